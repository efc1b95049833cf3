// The Map view before its charts are here, when a map fails, and when the run changes under it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { randomRun, times } from "./helpers.js";
import { charts, document, explorer, later, root, settled } from "./page.js";
import { selectRange, selectToken } from "../../assets/js/core/selection.js";
import { Tooltip } from "../../assets/js/core/tooltip.js";
import { MapView } from "../../assets/js/map/view.js";

function opened(answers) {
  const { run } = randomRun({ numTokens: 12, layerIds: [3, 5, 9], numGroups: 2 });
  const request = async (what, details) => answers[what](details);
  const app = explorer(run, { root, tooltip: new Tooltip(root), request });
  document.createElement("canvas").constructor.prototype.getContext = () => null;
  return { app, view: new MapView(app, document.createElement("div")) };
}

const MAP = {
  method: "PCA",
  parameters: null,
  seed: 0,
  trustworthiness: 0.93,
  preliminary: false,
  positions: times(12, (pos) => pos),
  x: times(12, (pos) => pos),
  y: times(12, (pos) => -pos),
  centroid_x: [0, 1],
  centroid_y: [0, 1],
};

test("what was said of a map goes with it when another layer's cannot be had", async () => {
  const { view } = opened({});
  view.show(MAP);
  await settled();
  assert.match(view.caption.textContent, /Trustworthiness 0.93/);
  view.fail("the server was busy");
  assert.equal(view.caption.textContent, "");
  assert.equal(view.drawnNote.hidden, true);
});

test("a token without a value has no colour of the scale, and its own entry in the legend", async () => {
  const { app, view } = opened({});
  view.colouring = "loss";
  view.show(MAP);
  await settled();
  const [scale, without] = charts.get(view.plot).data;
  assert.deepEqual(scale.meta.tokens, times(11, (i) => i + 1));
  assert.deepEqual(scale.marker.color, times(11, (i) => app.run.lossDifference(i + 1)));
  assert.deepEqual([without.name, without.meta.tokens, without.showlegend], ["no value", [0], true]);
  assert.equal(without.marker.colorscale, undefined);
  const shown = view.traces.flatMap(({ meta }) => meta.tokens);
  assert.equal(shown.length, 12, "a selection marks it too");
  view.colouring = "position";
  await view.draw();
  assert.deepEqual(charts.get(view.plot).data[0].meta.tokens, MAP.positions);
});

test("tokens chosen while the charts' script loads are marked once the map is drawn", async () => {
  const { app, view } = opened({ map_neighbours: () => ({ token: 3, positions: [], similarity: [], of: 11 }) });
  const { Plotly } = globalThis;
  const loading = later();
  const append = document.head.append;
  document.head.append = (script) => loading.promise.then(() => script.onload());
  document.querySelector = () => ({ content: "plotly.js" });
  delete globalThis.Plotly;
  delete globalThis.window.Plotly;
  view.show(MAP);
  app.selection = selectToken(3);
  view.selectionChanged();
  view.setDrag("lasso");
  globalThis.Plotly = globalThis.window.Plotly = Plotly;
  loading.answer();
  await settled();
  document.head.append = append;
  const { data, layout } = charts.get(view.plot);
  assert.deepEqual(
    data.flatMap((trace) => (trace.selectedpoints ?? []).map((point) => trace.meta.tokens[point])),
    [3],
  );
  assert.equal(layout.dragmode, "lasso");
});

test("neighbours of a token of one run are not said in the words of another", async () => {
  const slow = later();
  const { app, view } = opened({ map_neighbours: () => slow.promise });
  view.show(MAP);
  await settled();
  app.selection = selectToken(3);
  view.selectionChanged();
  app.run = randomRun({ numTokens: 4, layerIds: [3], numGroups: 2 }).run;
  slow.answer({ token: 3, positions: [7], similarity: [0.9], of: 11 });
  await settled();
  assert.equal(view.neighbours.node.textContent, "");
});

test("neighbours that could not be had are asked for again", async () => {
  const answers = [{ error: "the server was busy" }, { token: 3, positions: [7], similarity: [0.9], of: 11 }];
  const { app, view } = opened({ map_neighbours: () => answers.shift() });
  view.show(MAP);
  await settled();
  app.selection = selectToken(3);
  view.selectionChanged();
  await settled();
  assert.match(view.neighbours.node.textContent, /the server was busy/);
  view.selectionChanged();
  await settled();
  assert.doesNotMatch(view.neighbours.node.textContent, /busy/);
  assert.equal(answers.length, 0);
});

test("a map of some tokens says how many selected ones it shows", () => {
  const { app, view } = opened({});
  view.map = { ...MAP, positions: [0, 2, 4, 6, 8] };
  const notes = [selectRange(0, 5), selectRange(2, 2), null].map((selection) => {
    app.selection = selection;
    view.countDrawn();
    return view.drawnNote.textContent;
  });
  assert.deepEqual(notes, ["3 of 6 selected tokens are drawn here.", "", ""]);
});
