// @ts-check
// The entry of the page "method": fills its two pictures.
import { BalancePicture } from "./balance-picture.js";
import { EXAMPLE } from "./example.js";
import { MaskPicture } from "./mask-picture.js";
import { SCORES } from "./scores.js";

const place = (/** @type {string} */ name) => /** @type {HTMLElement | null} */ (document.getElementById(name));

const mask = place("mask-picture");

if (mask) new MaskPicture(mask, EXAMPLE);

const balance = place("balance-picture");

if (balance) new BalancePicture(balance, SCORES);
