// @ts-check
// The Compare view: Focus against full attention on the same text, and the parts that compare with something else.
import { CompareGeneration } from "./generation.js";
import { CompareHeads } from "./heads.js";
import { CompareLengths } from "./lengths.js";
import { CompareLinks } from "./missing-links.js";
import { Overview } from "./overview.js";
import { CompareRuns } from "./runs.js";
import { CompareSettings } from "./settings.js";
import { CompareWhatIf } from "./what-if.js";
import { addressedPart } from "../core/address.js";
import { resizePlots } from "../core/plot.js";
import { choiceOf } from "../core/widgets.js";
import { parts as partsText } from "../strings/compare.js";
/** @import { Selection } from "../core/types.js" */
/** @import { App } from "../shell/app.js" */

/** @typedef {keyof typeof partsText.names} PartName */
/**
 * `marked` is the selection that it shows.
 * @typedef {{ node: HTMLElement, update: () => void, selectionChanged?: () => void, marked?: Selection | null }} Part
 */

// One part at a time, so that the view stays short; the address remembers which.
export class CompareView {
  /**
   * @param {App} app
   * @param {HTMLElement} panel
   */
  constructor(app, panel) {
    this.app = app;
    const words = partsText;
    const links = new CompareLinks(app);
    /** @param {number} token */
    const explain = (token) => {
      this.show("links");
      return links.explain(token);
    };
    this.parts = {
      overview: new Overview(app, explain),
      links,
      heads: new CompareHeads(app),
      whatIf: new CompareWhatIf(app),
      settings: new CompareSettings(app),
      runs: new CompareRuns(app),
      lengths: new CompareLengths(app),
      generation: new CompareGeneration(app),
    };
    this.open = addressedPart(/** @type {PartName[]} */ (Object.keys(this.parts)), "overview");
    this.choice = choiceOf(words.label, words.names, this.open, (name) => this.choose(name));
    this.choice.classList.add("fx-compare-choice");
    panel.append(this.choice, ...Object.values(this.parts).map((part) => part.node));
  }

  // For the address: nothing for the part that opens by itself.
  get part() {
    return this.open === "overview" ? null : this.open;
  }

  // For the address: the run compared with this one, the token explained or the changes, while they are shown.
  get parameters() {
    const { runs, links, whatIf } = this.parts;
    /** @param {PartName} name @param {string | number | null} value */
    const shown = (name, value) => (this.open === name && this.parts[name].run === this.app.run ? value : null);
    return {
      with: shown("runs", runs.other),
      why: shown("links", links.token),
      set: shown("whatIf", whatIf.addressed),
    };
  }

  /** @param {PartName} name */
  show(name) {
    const option = /** @type {HTMLInputElement} */ (this.choice.querySelector(`input[value=${name}]`));
    option.checked = true;
    this.choose(name);
  }

  /** @param {PartName} name */
  choose(name) {
    this.open = name;
    this.app.writeAddress();
    this.app.tooltip.hide();
    this.update();
    resizePlots(this.parts[name].node); // the window may have changed while the part was hidden
  }

  update() {
    for (const [name, part] of Object.entries(this.parts)) part.node.hidden = name !== this.open;
    this.parts[this.open].update();
    this.selectionChanged();
  }

  selectionChanged() {
    const part = /** @type {Part} */ (this.parts[this.open]);
    if (part.selectionChanged && part.marked !== this.app.selection) {
      part.marked = this.app.selection;
      part.selectionChanged();
    }
  }
}
