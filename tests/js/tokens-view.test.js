// The Tokens view where a layer does not come, and where the filter hides the token the keyboard acts on.
import assert from "node:assert/strict";
import { test } from "node:test";
import "./page.js";
import { groupLabel } from "../../assets/js/core/labels.js";
import { TokenInput } from "../../assets/js/tokens/input.js";
import { Lines } from "../../assets/js/tokens/lines.js";
import { TokenPanel } from "../../assets/js/tokens/panel.js";
import { TokensView } from "../../assets/js/tokens/view.js";
import { randomRun, times } from "./helpers.js";

/** A view without its elements; what it shows of a token is kept in `shown`. */
function viewOf(run) {
  const shown = [];
  const app = { run, layerIndex: 0, part: 0, selection: { size: 1, positions: [3] }, isOpen: () => true };
  const view = Object.assign(Object.create(TokensView.prototype), {
    app,
    run,
    problem: null,
    filter: { active: false, nameGroups() {} },
    lines: { lines: [1] },
    typing: { update() {} },
    detail: { show: (pos, links, problem) => shown.push(problem ?? null), hide() {} },
    legend: { update() {} },
    repaint() {},
  });
  return { view, app, shown };
}

test("a layer that did not come keeps its problem when the view is drawn again, and no other layer has it", () => {
  const { view, app, shown } = viewOf(randomRun().run);
  view.layerFailed("no answer");
  view.update();
  assert.deepEqual(shown, ["no answer", "no answer"], "else the panel would wait for what nobody asked for");
  app.layerIndex = 1;
  view.update();
  assert.equal(shown.at(-1), null);
  app.layerIndex = 0;
  view.update();
  assert.equal(shown.at(-1), null, "the layer is asked for again");
});

/** A view of 40 tokens, twelve to a line, whose filter hides all but some. */
function filtered(positions) {
  const { run } = randomRun();
  const { view, app } = viewOf(run);
  const lines = new Lines({}, () => {});
  const width = 40;
  lines.measure = { of: (head) => ({ head, ends: 0, tail: "", before: true, after: false, width, tailWidth: 0 }) };
  Object.assign(lines.text, { clientWidth: 500 });
  Object.assign(lines.node, { scrollTop: 0, clientHeight: 100 });
  const chosen = [];
  Object.assign(app, { toggleSelection: (selection) => chosen.push(selection.positions[0]), tooltip: { hide() {} } });
  Object.assign(view, { lines, text: lines.text, current: 0, describe() {} });
  Object.assign(view, { colours: { prepare() {} }, input: null });
  const passes = (pos) => positions.includes(pos);
  view.filter = { active: true, mode: "hide", test: () => passes, positions: () => positions, count() {} };
  view.search = { filtered: () => (view.searched = [...view.lines.shown]) };
  lines.setText(run.shown);
  view.input = new TokenInput(view);
  view.applyFilter();
  const press = (key) => view.input.keyDown({ key, preventDefault() {} });
  return { view, press, chosen };
}

test("the keyboard goes on from the next token shown where the filter hides the one it was on", () => {
  const shown = times(20, (i) => 2 * i + 1);
  const { view, press, chosen } = filtered(shown);
  assert.equal(view.current, 1);
  assert.deepEqual(view.searched, shown, "the search goes on among these");
  press("Enter");
  assert.deepEqual(chosen, [1]);
  press("ArrowRight");
  assert.equal(view.current, 3);
  press("ArrowDown");
  assert.ok(shown.includes(view.current) && view.current > 3);
  const before = filtered(times(5, (i) => i));
  before.view.current = 39;
  before.view.applyFilter();
  assert.equal(before.view.current, 4, "the last one shown where none follows");
});

test("where the filter hides every token no key does anything", () => {
  const { press, chosen } = filtered([]);
  for (const key of ["ArrowDown", "PageUp", "ArrowRight", "End", "Enter"]) press(key);
  assert.deepEqual(chosen, []);
});

test("a drag that ends outside the text selects to its last token, and tokens show their details again", () => {
  const { view } = filtered(times(40, (i) => i));
  const ranges = [];
  const released = [];
  globalThis.window.addEventListener = (_, listener) => released.push(listener);
  Object.assign(view.app, { select: ({ positions }) => ranges.push([positions[0], positions.at(-1)]) });
  view.spanOf = (event) => ({ fxPos: event.pos });
  const at = (pos) => ({ pos, clientX: 20 * pos, clientY: 0, button: 0, buttons: 1, pointerType: "mouse" });
  view.input.pointerDown(at(3));
  view.input.draggedAt = performance.now(); // the pause between two selections
  view.input.pointerMove(at(9));
  assert.deepEqual([view.input.dragging, ranges], [true, []]);
  released[0]({ target: null });
  assert.deepEqual([view.input.dragging, ranges], [false, [[3, 9]]]);
  view.input.pointerMove({ ...at(12), buttons: 0 });
  assert.equal(ranges.length, 1);
});

test("labels of two letters have room in a run of many groups that opens while labels are shown", () => {
  const { view } = filtered([1]);
  view.lines.setLabels(true);
  const other = { reset() {}, restore() {} };
  Object.assign(view, { search: other, filter: other, fixedWidth: {}, address: null, input: other });
  for (const [numGroups, width] of [
    [8, 10],
    [40, 20],
  ]) {
    view.app.run = randomRun({ numGroups }).run;
    view.openRun();
    assert.equal(view.lines.labelWidth, width);
  }
});

test("the keyboard is in the text once the panel of a token it was in is gone", () => {
  const { view, app } = viewOf(randomRun().run);
  const focused = [];
  view.text = { focus: () => focused.push("text") };
  view.detail.node = { contains: (node) => node === "in the panel" };
  app.selection = { size: 2, positions: [3, 4] };
  globalThis.document.activeElement = "elsewhere";
  view.selectionChanged();
  assert.deepEqual(focused, []);
  globalThis.document.activeElement = "in the panel";
  view.selectionChanged();
  assert.deepEqual(focused, ["text"]);
  globalThis.document.activeElement = null;
});

test("few tokens of a long text are not said to be none of it", () => {
  const totals = [];
  const panel = Object.assign(Object.create(TokenPanel.prototype), {
    heads: { node: "", update() {} },
    direction: (way, title, hint, total) => totals.push(total) && "",
  });
  const count = (length) => () => times(length, (i) => i);
  const links = { pos: 49_999, numTokens: 100_000, back: count(150), forward: count(200) };
  panel.links(links, null);
  assert.deepEqual(totals, [
    "150 of 50,000 tokens up to here (0.3\u00a0%), itself included",
    "200 of 50,000 later tokens (0.4\u00a0%)",
  ]);
});

test("the token that the keyboard is on, and no other, has its text and group in its name", () => {
  const { view, press } = filtered(times(40, (i) => i));
  const { run, lines } = view;
  Object.assign(view, { links: null, search: { hitTokens: new Set(), currentHit: () => null, filtered() {} } });
  view.colours.shade = () => "none";
  view.app.selection = null;
  lines.paint = (span, pos) => view.paint(span, pos);
  [run.shown[1], run.shown[2]] = [" ", "end.\n\n"];
  lines.measure.of = (piece) => {
    const [head, ...rest] = piece.split("\n");
    return { head, ends: rest.length, tail: "", before: true, after: false, width: 40, tailWidth: 0 };
  };
  lines.lay(true);
  view.moveTo(0);
  const nameOf = (pos) => lines.spanOf(pos).getAttribute("aria-label");
  const group = (pos) => groupLabel(run.top(view.app.layerIndex, pos));
  assert.deepEqual([nameOf(0), nameOf(1)], [`w0, group ${group(0)}`, "space"]);
  press("ArrowRight");
  assert.equal(view.text.getAttribute("aria-activedescendant"), "fx-token-1");
  assert.deepEqual([nameOf(0), nameOf(1)], [null, `space, group ${group(1)}`]);
  press("ArrowRight");
  assert.deepEqual([nameOf(1), nameOf(2)], ["space", `end., line break, group ${group(2)}`]);
  view.app.layerIndex = 1;
  lines.repaint();
  assert.equal(nameOf(2), `end., line break, group ${group(2)}`);
  const named = [...lines.spans()].filter((span) => span.getAttribute("aria-label")?.includes("group"));
  assert.equal(named.length, 1);
});
