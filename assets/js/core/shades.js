// @ts-check
// Token shades by group, confidence and loss, as one generated style sheet.
import { range } from "./arrays.js";
import { groupColour, mix } from "./colours.js";
/** @import { Theme } from "./types.js" */

const PAGE = { light: "#ffffff", dark: "#0f141c" };

const TINT = { light: 0.2, dark: 0.3 };

const MAX_GROUPS = 64;

const SEQUENTIAL = { light: "#4338ca", dark: "#a5b4fc" };

const DIVERGING = { light: ["#0068ab", "#c94f00"], dark: ["#4a9fe0", "#f2783c"] };

const CONFIDENCE_STEPS = 8;

const LOSS_LIMITS = [-1, -0.5, -0.2, -0.05, 0.05, 0.2, 0.5, 1];

const NEUTRAL_LOSS = LOSS_LIMITS.length / 2;

const STYLE_ID = "fx-shades";

/**
 * @param {number | null} confidence
 * @param {number} numGroups
 */
export const confidenceShade = (confidence, numGroups) => {
  const floor = 1 / numGroups;
  const scaled = numGroups > 1 && confidence !== null ? (confidence - floor) / (1 - floor) : 1;
  return `s${Math.max(0, Math.min(CONFIDENCE_STEPS - 1, Math.floor(scaled * CONFIDENCE_STEPS)))}`;
};

/**
 * A share from 0 to 1 in the same steps.
 * @param {number} share
 */
export const shareShade = (share) =>
  `s${Math.max(0, Math.min(CONFIDENCE_STEPS - 1, Math.floor(share * CONFIDENCE_STEPS)))}`;

/** @param {number | null} difference */
export const lossShade = (difference) => {
  if (difference === null) return "none";
  return `d${LOSS_LIMITS.filter((limit) => difference >= limit).length}`;
};

export const confidenceShades = () => range(CONFIDENCE_STEPS).map((step) => `s${step}`);

export const lossShades = () => range(LOSS_LIMITS.length + 1).map((step) => `d${step}`);

/** @param {Theme} theme */
function groupShades(theme) {
  return range(MAX_GROUPS).map((group) => {
    const strong = groupColour(group, theme);
    return [`g${group}`, mix(strong, PAGE[theme], TINT[theme]), strong];
  });
}

/** @param {Theme} theme */
function confidenceRules(theme) {
  return confidenceShades().map((name, step) => {
    const amount = step / (CONFIDENCE_STEPS - 1);
    const strong = mix(SEQUENTIAL[theme], PAGE[theme], 0.15 + 0.85 * amount);
    return [name, mix(SEQUENTIAL[theme], PAGE[theme], 0.42 * amount), strong];
  });
}

/** @param {Theme} theme */
function lossRules(theme) {
  return lossShades().map((name, step) => {
    const side = DIVERGING[theme][step < NEUTRAL_LOSS ? 0 : 1];
    const amount = Math.abs(step - NEUTRAL_LOSS) / NEUTRAL_LOSS;
    return [name, mix(side, PAGE[theme], 0.42 * amount), mix(side, PAGE[theme], amount)];
  });
}

/** @param {Theme} theme */
function styleRules(theme) {
  const prefix = theme === "dark" ? ":is(.dark .fx-root, .fx-root.dark)" : ".fx-root";
  return [...groupShades(theme), ...confidenceRules(theme), ...lossRules(theme)]
    .map(([name, tint, strong]) => `${prefix} [data-shade="${name}"]{--fx-tint:${tint};--fx-strong:${strong}}`)
    .join("\n");
}

// Colours hang on one attribute per token, so a change of theme touches no token at all.
export const installShades = () => {
  if (document.getElementById(STYLE_ID)) return;
  const style = document.createElement("style");
  style.id = STYLE_ID;
  style.textContent = `${styleRules("light")}\n${styleRules("dark")}`;
  document.head.append(style);
};
