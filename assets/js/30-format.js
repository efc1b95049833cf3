// Turns numbers, group indices and token text into the form people read.
(function () {
  const NBSP = "\u00a0";
  const MINUS = "\u2212";

  function fixed(value, digits) {
    return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }

  FX.format = {
    count: (value) => fixed(value, 0),
    decimal: (value, digits) => fixed(value, digits).replace("-", MINUS),
    percent: (share, digits = 0) => `${fixed(share * 100, digits)}${NBSP}%`,
    ratio: (value) => `${fixed(value, value < 10 ? 2 : 1)}×`,
    perplexity: (value) => fixed(value, value < 100 ? 2 : 1),
    signed(value, digits) {
      const text = fixed(Math.abs(value), digits);
      if (Number(text.replace(/,/g, "")) === 0) return text;
      return (value > 0 ? "+" : MINUS) + text;
    },
    signedPercent: (share) => `${FX.format.signed(share * 100, 1)}${NBSP}%`,
    msNumber: (value) => fixed(value, value < 10 ? 2 : value < 100 ? 1 : 0),
    ms: (value) => `${FX.format.msNumber(value)}${NBSP}ms`,
    date(iso) {
      const date = new Date(iso);
      return Number.isNaN(date.getTime()) ? iso : date.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
    },
  };

  // A, B, … Z, AA, AB, …
  FX.groupLabel = (group) => {
    const letter = String.fromCharCode(65 + (group % 26));
    return group < 26 ? letter : FX.groupLabel(Math.floor(group / 26) - 1) + letter;
  };

  const NAMED_ESCAPES = { "\n": "\\n", "\r": "\\r", "\t": "\\t", " ": "␣" };

  // Spaces, line ends and invisible characters become visible marks.
  FX.visibleToken = (piece) =>
    piece.replace(/[\s\p{Cc}\p{Cf}]/gu, (char) => {
      if (char in NAMED_ESCAPES) return NAMED_ESCAPES[char];
      return `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`;
    });

  // For running text on one line: only line ends and tabs would break it.
  FX.oneLine = (text) => text.replace(/\r?\n/g, "↵").replace(/\t/g, "⇥");
})();
