// @ts-check
// Whether a text is program code, which is read in letters of one width.

const LINES = 400; // looked at

const LEAST = 0.35; // of the lines that are not empty

const INDENTED = /^(?: {2,}|\t)\S/;

const ENDS = /[;{}:,)\]]$|=>$/;

const WORDS = "import |from \\S+ import |def |class |function |const |let |var |return |if \\(|for \\(|SELECT ";

const STARTS = new RegExp(`^(?:#include|${WORDS}|</?\\w)`);

/**
 * Lines that are indented, end as statements do or begin with a keyword are a good share of its lines. Prose hardly has
 * any: its lines end in words or full stops.
 * @param {string} text
 */
export function looksLikeCode(text) {
  const lines = text
    .split("\n", LINES)
    .map((line) => line.trimEnd())
    .filter(Boolean);
  if (lines.length < 3) return false;
  const marks = lines.filter((line) => {
    const trimmed = line.trim();
    // a comma or a colon ends lines of prose too, an indented one does so rarely
    const statement = /[,:]$/.test(trimmed) ? INDENTED.test(line) : ENDS.test(trimmed);
    return statement || STARTS.test(trimmed) || (INDENTED.test(line) && /[=(){}[\]<>]/.test(trimmed));
  });
  return marks.length / lines.length >= LEAST;
}
