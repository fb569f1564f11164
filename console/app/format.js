//! Formats numbers, times and sentences. Digits are grouped with a narrow no-break space, which is unambiguous in all locales.
//!
//! # Pitfalls
//!
//! A missing number is shown as a dash, never as 0: zero is a value.

export const NONE = "–";
const SPACE = "\u202f";
const isNumber = (n) => typeof n === "number" && Number.isFinite(n);

function fixed(n, digits) {
  const [whole, part] = Math.abs(n).toFixed(digits).split(".");
  const grouped = whole.length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, SPACE) : whole;
  return (n < 0 ? "−" : "") + grouped + (part ? `.${part}` : "");
}

/// A number with about three significant digits.
function threeDigits(n) {
  const size = Math.abs(n);
  return fixed(n, size === 0 || size >= 100 || Number.isInteger(n) ? 0 : size >= 10 ? 1 : 2);
}

const scaled = (n, steps) => {
  const [factor, unit] = steps.find(([factor]) => Math.abs(n) >= factor) ?? steps.at(-1);
  return [n / factor, unit];
};
const THOUSANDS = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const BYTES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
const SECONDS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]];

/// The value and its unit as a pair. `kind`: count, rate (per second), bytes, seconds, percent.
export function parts(n, kind) {
  if (!isNumber(n)) return [NONE, ""];
  switch (kind) {
    case "bytes": {
      const [value, unit] = scaled(n, BYTES);
      return [threeDigits(value), unit];
    }
    case "seconds": {
      if (n === 0) return ["0", "ms"];
      const [value, unit] = scaled(n, SECONDS);
      return [threeDigits(value), unit];
    }
    case "percent":
      return [fixed(n, n < 10 && n > 0 ? 1 : 0), "%"];
    case "rate":
      return [n > 0 && n < 0.01 ? "< 0.01" : threeDigits(n >= 1000 ? Math.round(n) : n), "/s"];
    default:
      return [fixed(Math.round(n), 0), ""];
  }
}

/// The value with its unit.
export function value(n, kind) {
  const [text, unit] = parts(n, kind);
  return unit ? `${text}${unit === "%" || unit === "/s" ? "" : SPACE}${unit}` : text;
}

const trimZeros = (text) => text.replace(/\.(\d*[1-9])?0+(?!\d)/, (_, kept) => (kept ? `.${kept}` : ""));
/// A short form for the labels of an axis.
export function short(n, kind) {
  if (kind === "bytes" || kind === "seconds" || kind === "percent") return n === 0 ? "0" : trimZeros(value(n, kind));
  const [scale, unit] = scaled(n, THOUSANDS);
  return trimZeros(threeDigits(scale)) + unit;
}

export const count = (n) => (isNumber(n) ? fixed(Math.round(n), 0) : NONE);
export const bytes = (n) => value(n, "bytes");
/// `1 user`, `2 users`.
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

/// A duration in one or two units: `3 d 4 h`, `12 min`, `8 s`.
export function duration(seconds) {
  if (!isNumber(seconds)) return NONE;
  const whole = Math.max(0, Math.floor(seconds));
  const [d, h, m] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (d) return h ? `${d} d ${h} h` : `${d} d`;
  if (h) return m ? `${h} h ${m} min` : `${h} h`;
  return m ? `${m} min` : `${whole} s`;
}

const twoDigits = (n) => String(n).padStart(2, "0");
/// Time of day such as `14:32:05`, from seconds since 1970.
export function clock(seconds, exact = true) {
  const at = new Date(seconds * 1000);
  return `${twoDigits(at.getHours())}:${twoDigits(at.getMinutes())}${exact ? `:${twoDigits(at.getSeconds())}` : ""}`;
}
/// Seconds since 1970 from a time of the API: seconds, milliseconds, or an RFC 3339 string.
export function seconds(time) {
  if (isNumber(time)) return time > 1e11 ? time / 1000 : time;
  const at = typeof time === "string" ? Date.parse(time) : Number.NaN;
  return Number.isNaN(at) ? null : at / 1000;
}
/// Date and time; without the date for today.
export function dateTime(time, exact = false) {
  const at = seconds(time);
  if (at === null) return NONE;
  const day = new Date(at * 1000);
  const same = day.toDateString() === new Date().toDateString();
  return same ? clock(at, exact) : `${day.getFullYear()}-${twoDigits(day.getMonth() + 1)}-${twoDigits(day.getDate())} ${clock(at, exact)}`;
}
/// The date.
export function day(time) {
  const at = seconds(time);
  if (at === null) return NONE;
  const date = new Date(at * 1000);
  return `${date.getFullYear()}-${twoDigits(date.getMonth() + 1)}-${twoDigits(date.getDate())}`;
}

/// A sentence with a capital letter and a full stop. An address at its start is not changed.
export function sentence(text) {
  const line = String(text ?? "").trim();
  if (!line) return "";
  const first = line.split(/\s/, 1)[0];
  const capitalized = /[@./]/.test(first.slice(0, -1)) ? line : line[0].toUpperCase() + line.slice(1);
  return /[.!?]$/.test(capitalized) ? capitalized : `${capitalized}.`;
}
