// @ts-check
// What a group is called: the name made from statistics with its evidence, or one's own.
import { buttonOf, el } from "../core/dom.js";
import { format } from "../core/format.js";
import { groupName, groupNames, setGroupName } from "../core/group-names.js";
import { alertBox } from "../core/widgets.js";
import { groups as groupsText } from "../strings/groups.js";
/** @import { TraitPayload } from "../core/payloads.js" */
/** @import { UiEvent } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */

const text = groupsText.names;
const LONGEST = 60;

export class GroupName {
  /**
   * @param {App} app
   * @param {number} group
   */
  constructor(app, group) {
    this.app = app;
    this.run = app.run;
    this.layerIndex = app.layerIndex;
    this.group = group;
    this.node = el("div", { class: "fx-card-name", "data-testid": "fx-group-name" });
    this.draw();
  }

  draw() {
    const names = groupNames(this.run);
    if (names === undefined) {
      this.node.replaceChildren(el("p", { class: "fx-muted" }, text.waiting));
      return;
    }
    const { name, given, evidence } = names.names[this.layerIndex][this.group];
    const shown = groupName(this.run, this.layerIndex, this.group);
    this.node.replaceChildren(
      el(
        "p",
        { class: "fx-card-name-line" },
        el("span", { class: shown ? "fx-group-title" : "fx-muted" }, shown || text.nothing),
        buttonOf(text.rename, () => this.edit(), { class: "fx-button fx-small", "aria-label": text.renameOf(shown) }),
      ),
      ...(given === null ? [] : [el("p", { class: "fx-muted" }, text.given(name || text.nothing))]),
      ...(evidence.length === 0 ? [] : [el("ul", { class: "fx-card-evidence" }, evidence.map(line))]),
    );
  }

  // The keyboard goes back to where it came from.
  leave() {
    this.draw();
    this.node.querySelector("button")?.focus();
  }

  edit() {
    const names = groupNames(this.run);
    const input = /** @type {HTMLInputElement} */ (
      el("input", {
        type: "text",
        maxlength: LONGEST,
        value: names?.names[this.layerIndex][this.group].given ?? "",
        placeholder: text.placeholder,
        "aria-label": text.field,
      })
    );
    const problem = el("div");
    /** @param {UiEvent<SubmitEvent>} event */
    const save = async (event) => {
      event.preventDefault();
      const { run, layerIndex, group } = this;
      const answer = await this.app.request("name_group", {
        layer: run.layerIds[layerIndex],
        group,
        name: input.value,
      });
      if (answer.error !== undefined) {
        problem.replaceChildren(alertBox(answer.error));
        return;
      }
      setGroupName(run, layerIndex, group, answer);
      this.leave();
    };
    /** @param {UiEvent<KeyboardEvent>} event */
    const leave = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.leave();
    };
    this.node.replaceChildren(
      el(
        "form",
        { class: "fx-card-rename", onsubmit: save, onkeydown: leave },
        input,
        el("button", { type: "submit", class: "fx-button fx-small" }, text.save),
        buttonOf(text.cancel, () => this.leave(), { class: "fx-button fx-small" }),
        problem,
      ),
      el("p", { class: "fx-muted" }, text.everywhere),
    );
    input.focus();
  }
}

/** @param {TraitPayload} given */
const line = ({ trait, phi, share, base, covered, p_value }) =>
  el(
    "li",
    { title: text.phi(format.decimal(phi, 2), p_value < 0.001 ? text.rare : format.decimal(p_value, 3)) },
    el("b", {}, trait),
    text.evidence(format.percent(share), format.percent(base), format.percent(covered)),
  );

/** @param {App} app */
export function nameRule(app) {
  const names = groupNames(app.run);
  if (names === undefined) return "";
  const random = names.random[app.layerIndex];
  return text.rule(
    format.count(names.traits),
    format.decimal(names.least_phi, 2),
    format.percent(names.least_share),
    format.percent(names.most_p_value, 1),
    random === null ? text.noRandom : text.random(format.decimal(random, 2)),
  );
}
