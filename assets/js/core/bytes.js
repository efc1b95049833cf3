// @ts-check
// Decoding of the base64 arrays in the server's payloads.

/**
 * @param {string} text
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/**
 * @template {ArrayLike<unknown>} T
 * @param {string} name
 * @param {T} array
 * @param {number} expected
 * @returns {T}
 */
export function expectLength(name, array, expected) {
  if (array.length !== expected) {
    throw new RangeError(`${name} has ${array.length} entries where ${expected} were expected`);
  }
  return array;
}
