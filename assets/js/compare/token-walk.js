// @ts-check
// Keyboard navigation between tokens of a text.
/** @import { UiEvent } from "../core/types.js" */

// Tokens inside `body` by keyboard: one of them is in the tab order, arrows move from it. `onFocus` gets the token that
// has the focus, or null; `choose`, where tokens can be chosen, the one Enter or Space was pressed on.
export class TokenWalk {
  /** @type {HTMLElement} */
  body;
  /** @type {(token: HTMLElement | null) => unknown} */
  onFocus;
  /** @type {((token: HTMLElement) => unknown) | null | undefined} */
  choose;

  /**
   * @param {HTMLElement} body
   * @param {(token: HTMLElement | null) => unknown} onFocus
   * @param {((token: HTMLElement) => unknown) | null} [choose]
   */
  constructor(body, onFocus, choose = null) {
    Object.assign(this, { body, onFocus, choose });
    body.addEventListener("keydown", (event) => this.key(event));
    body.addEventListener("focusin", (event) => this.tokenFocused(/** @type {HTMLElement} */ (event.target)));
    body.addEventListener("focusout", () => onFocus(null));
  }

  get tokens() {
    return [...this.body.querySelectorAll(".fx-pair-token")];
  }

  // After the tokens changed: the one at hand stays at hand while it is there.
  refresh() {
    const { tokens } = this;
    if (tokens.length > 0 && !tokens.some((token) => token.tabIndex === 0)) this.setFocusable(tokens[0]);
  }

  /** @param {HTMLElement} token */
  setFocusable(token) {
    for (const other of this.body.querySelectorAll('.fx-pair-token[tabindex="0"]')) other.tabIndex = -1;
    token.tabIndex = 0;
  }

  /** @param {HTMLElement} token */
  tokenFocused(token) {
    if (!token.classList.contains("fx-pair-token")) return;
    this.setFocusable(token);
    this.onFocus(token);
  }

  /** @param {UiEvent<KeyboardEvent>} event */
  key(event) {
    const { tokens } = this;
    const at = tokens.indexOf(event.target);
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const chosen = this.choose !== null && (event.key === "Enter" || event.key === " ");
    /** @type {Record<string, () => number>} */
    const moves = {
      ArrowRight: () => at + 1,
      ArrowLeft: () => at - 1,
      ArrowDown: () => lineAway(tokens, at, 1),
      ArrowUp: () => lineAway(tokens, at, -1),
      Home: () => 0,
      End: () => tokens.length - 1,
    };
    if (!chosen && !(event.key in moves)) return;
    event.preventDefault();
    if (chosen) this.choose?.(event.target);
    else (tokens[moves[event.key]()] || event.target).focus();
  }
}

/**
 * The token nearest to the one at `at`, one line further down or up; the same where there is no such line.
 * @param {HTMLElement[]} tokens
 * @param {number} at
 * @param {number} step
 */
function lineAway(tokens, at, step) {
  /** @param {number} i */
  const place = (i) => tokens[i].getClientRects()[0] || tokens[i].getBoundingClientRect();
  const current = place(at);
  let best = at;
  let line = null;
  for (let i = at + step; i >= 0 && i < tokens.length; i += step) {
    const there = place(i);
    if (Math.abs(there.top - current.top) < current.height / 2) continue;
    if (line !== null && Math.abs(there.top - line) > current.height / 2) break;
    line = there.top;
    if (best === at || Math.abs(there.left - current.left) < Math.abs(place(best).left - current.left)) best = i;
  }
  return best;
}
