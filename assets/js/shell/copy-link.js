// @ts-check
// The button of the header that copies the address: run, view, layer and selection are in it.
import { buttonOf } from "../core/dom.js";
import { shell as text } from "../strings/shell.js";

const SHOWN_MS = 2000;

export const copyLinkButton = () => {
  const words = text.header;
  const button = buttonOf(words.copyLink, copy, { class: "fx-button fx-copy-link", title: words.copyLinkHint });
  async function copy() {
    // a page that is not served over https or from this machine may not write to the clipboard
    const copied = await Promise.resolve()
      .then(() => navigator.clipboard.writeText(window.location.href))
      .then(
        () => true,
        () => false,
      );
    button.textContent = copied ? words.linkCopied : words.linkNotCopied;
    setTimeout(() => (button.textContent = words.copyLink), SHOWN_MS);
  }
  return button;
};
