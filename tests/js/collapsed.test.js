// What a group of nearly all tokens means for attention, wherever the page says it: heads may be without groups.
import assert from "node:assert/strict";
import { test } from "node:test";
import { centroids } from "../../assets/js/strings/centroids.js";
import { groups } from "../../assets/js/strings/groups.js";
import { shell } from "../../assets/js/strings/shell.js";

test("collapsed groups make full attention of the heads that use them alone", () => {
  const hints = [centroids.dominanceHint, groups.flagHints.collapsed, shell.cards.dominance.hint("12.5 %")];
  const words = /heads (of this layer )?that use (groups|them) are close to full attention/;
  for (const hint of hints) assert.match(hint, words);
});
