// @ts-check
// Copying, with the outcome on the button for two seconds.

const SHOWN_MS = 2000;

/**
 * @param {HTMLElement} button
 * @param {string} content
 * @param {{ copy: string, copied: string, notCopied: string }} words
 */
export async function copyFrom(button, content, words) {
  // a page that is served neither over https nor from this machine has no clipboard
  const copied = await Promise.resolve()
    .then(() => navigator.clipboard.writeText(content))
    .then(
      () => true,
      () => false,
    );
  button.textContent = copied ? words.copied : words.notCopied;
  setTimeout(() => (button.textContent = words.copy), SHOWN_MS);
}
