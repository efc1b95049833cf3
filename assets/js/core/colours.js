// @ts-check
// The colours of groups, in light and dark, and their mixing.
/** @import { Theme } from "./types.js" */

// Okabe–Ito hues; darkened for light pages so that underlines and points reach 3:1, lightened for dark ones.
const BASE = {
  light: ["#0068ab", "#c77e00", "#00805c", "#b03a80", "#3399d4", "#b83d00", "#3d3900", "#3d4550"],
  dark: ["#4a9fe0", "#e69f00", "#2fbf93", "#e08dbb", "#97d6ff", "#f2683c", "#f0e442", "#7f8a99"],
};

const GENERATED_LIGHTNESS = { light: [0.33, 0.43], dark: [0.66, 0.76] };

const GOLDEN_ANGLE = 137.508;

/**
 * Red, green and blue, 0 to 255.
 * @param {string} hex
 */
export const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** @param {number[]} rgb */
const toHex = (rgb) => `#${rgb.map((value) => Math.round(value).toString(16).padStart(2, "0")).join("")}`;

/**
 * @param {string} colour
 * @param {string} ground
 * @param {number} amount
 * @returns {string}
 */
export function mix(colour, ground, amount) {
  const back = channels(ground);
  return toHex(channels(colour).map((value, i) => value * amount + back[i] * (1 - amount)));
}

/**
 * @param {number} hue
 * @param {number} saturation
 * @param {number} lightness
 */
function fromHsl(hue, saturation, lightness) {
  const amplitude = saturation * Math.min(lightness, 1 - lightness);
  /** @param {number} n */
  const channel = (n) => {
    const k = (n + hue / 30) % 12;
    return 255 * (lightness - amplitude * Math.max(-1, Math.min(k - 3, 9 - k, 1)));
  };
  return toHex([channel(0), channel(8), channel(4)]);
}

/**
 * @param {number} group
 * @param {Theme} theme
 * @returns {string}
 */
export const groupColour = (group, theme) => {
  if (group < BASE[theme].length) return BASE[theme][group];
  const lightness = GENERATED_LIGHTNESS[theme][group % 2];
  return fromHsl((group * GOLDEN_ANGLE) % 360, 0.6, lightness);
};
