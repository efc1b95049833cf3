// @ts-check
// Numbers, durations, sizes and sentences in the form people read.

const NBSP = "\u00a0";

const MINUS = "\u2212";

/**
 * @param {number} value
 * @param {number} digits
 */
function fixed(value, digits) {
  const text = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return /^-[0.]+$/.test(text) ? text.slice(1) : text;
}

export const format = {
  /** @param {number} value */
  count: (value) => fixed(value, 0),
  /** @param {number} value @param {number} digits */
  decimal: (value, digits) => fixed(value, digits).replace("-", MINUS),
  /** @param {number} share @param {number} [digits] */
  percent: (share, digits = 0) => `${fixed(share * 100, digits)}${NBSP}%`,
  /** @param {number} value */
  ratio: (value) => `${fixed(value, value < 10 ? 2 : 1)}×`,
  /** @param {number} value */
  perplexity: (value) => fixed(value, value < 100 ? 2 : 1),
  /**
   * @param {number} value
   * @param {number} digits
   */
  signed(value, digits) {
    const text = fixed(Math.abs(value), digits);
    if (Number(text.replace(/,/g, "")) === 0) return text;
    return (value > 0 ? "+" : MINUS) + text;
  },
  /** @param {number} share */
  signedPercent: (share) => `${format.signed(share * 100, 1)}${NBSP}%`,
  /** @param {number} value */
  msNumber: (value) => fixed(value, value < 10 ? 2 : value < 100 ? 1 : 0),
  /** @param {number} value */
  ms: (value) => `${format.msNumber(value)}${NBSP}ms`,
  /** @param {number} value */
  seconds: (value) => `${format.decimal(value, 1)}${NBSP}s`,
  /**
   * Two units at most: 45 s, 2 min 10 s, 1 h 05 min, 2 d 3 h.
   * @param {number} seconds
   */
  duration(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    /** @param {number} value @param {string} unit @param {number | string} rest @param {string} small */
    const pair = (value, unit, rest, small) => `${value}${NBSP}${unit} ${rest}${NBSP}${small}`;
    if (whole < 60) return `${whole}${NBSP}s`;
    if (whole < 3600) return pair(Math.floor(whole / 60), "min", whole % 60, "s");
    const minutes = Math.round(whole / 60);
    if (minutes < 1440) return pair(Math.floor(minutes / 60), "h", minutes % 60, "min");
    return pair(Math.floor(minutes / 1440), "d", Math.floor((minutes % 1440) / 60), "h");
  },
  /** @param {string} iso */
  date(iso) {
    const date = new Date(iso);
    return Number.isNaN(date.getTime())
      ? iso
      : date.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
  },
};

/** @param {number} count */
export const memorySize = (count) => {
  const step = count >= 2 ** 30 ? 3 : 2;
  return `${format.decimal(count / 2 ** (10 * step), step === 3 ? 2 : 0)}\u00a0${["MiB", "GiB"][step - 2]}`;
};

/** @param {string} words */
export const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}${/[.…]$/.test(words) ? "" : "."}`;
