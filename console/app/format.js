//! Numbers, times and sentences for people. Groups are parted by a narrow space, which is the same in all countries.
//! The trap: what is not a number is shown as a dash, never as 0: zero is a figure, and absence is not.

export const NONE = "–";
const SPACE = "\u202f";
const known = (n) => typeof n === "number" && Number.isFinite(n);

function fixed(n, digits) {
  const [whole, part] = Math.abs(n).toFixed(digits).split(".");
  const grouped = whole.length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, SPACE) : whole;
  return (n < 0 ? "−" : "") + grouped + (part ? `.${part}` : "");
}

/// A number with about three digits that matter.
function three(n) {
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

/// The value and its unit, apart, for large figures. `kind`: count, rate (a second), bytes, seconds, percent.
export function parts(n, kind) {
  if (!known(n)) return [NONE, ""];
  switch (kind) {
    case "bytes": {
      const [value, unit] = scaled(n, BYTES);
      return [three(value), unit];
    }
    case "seconds": {
      if (n === 0) return ["0", "ms"];
      const [value, unit] = scaled(n, SECONDS);
      return [three(value), unit];
    }
    case "percent":
      return [fixed(n, n < 10 && n > 0 ? 1 : 0), "%"];
    case "rate":
      return [n > 0 && n < 0.01 ? "< 0.01" : three(n >= 1000 ? Math.round(n) : n), "/s"];
    default:
      return [fixed(Math.round(n), 0), ""];
  }
}

/// The value with its unit.
export function value(n, kind) {
  const [text, unit] = parts(n, kind);
  return unit ? `${text}${unit === "%" || unit === "/s" ? "" : SPACE}${unit}` : text;
}

const bare = (text) => text.replace(/\.(\d*[1-9])?0+(?!\d)/, (_, kept) => (kept ? `.${kept}` : ""));
/// For an axis: short.
export function short(n, kind) {
  if (kind === "bytes" || kind === "seconds" || kind === "percent") return n === 0 ? "0" : bare(value(n, kind));
  const [scale, unit] = scaled(n, THOUSANDS);
  return bare(three(scale)) + unit;
}

export const count = (n) => (known(n) ? fixed(Math.round(n), 0) : NONE);
export const bytes = (n) => value(n, "bytes");
/// `1 user`, `2 users`.
export const many = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

/// How long, in one or two units: `3 d 4 h`, `12 min`, `8 s`.
export function span(seconds) {
  if (!known(seconds)) return NONE;
  const whole = Math.max(0, Math.floor(seconds));
  const [d, h, m] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (d) return h ? `${d} d ${h} h` : `${d} d`;
  if (h) return m ? `${h} h ${m} min` : `${h} h`;
  return m ? `${m} min` : `${whole} s`;
}

const two = (n) => String(n).padStart(2, "0");
/// `14:32:05`, of seconds since 1970.
export function clock(seconds, exact = true) {
  const at = new Date(seconds * 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}${exact ? `:${two(at.getSeconds())}` : ""}`;
}
/// Seconds since 1970 of what an API calls a time: a number of seconds or milliseconds, or a text of RFC 3339.
export function seconds(time) {
  if (known(time)) return time > 1e11 ? time / 1000 : time;
  const at = typeof time === "string" ? Date.parse(time) : Number.NaN;
  return Number.isNaN(at) ? null : at / 1000;
}
/// A day and a time; the day only if it is not today's.
export function moment(time, exact = false) {
  const at = seconds(time);
  if (at === null) return NONE;
  const day = new Date(at * 1000);
  const same = day.toDateString() === new Date().toDateString();
  return same ? clock(at, exact) : `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())} ${clock(at, exact)}`;
}
/// A day.
export function day(time) {
  const at = seconds(time);
  if (at === null) return NONE;
  const date = new Date(at * 1000);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/// One sentence: begins with a capital, ends with a stop. An address at its beginning stays as it is.
export function sentence(text) {
  const line = String(text ?? "").trim();
  if (!line) return "";
  const first = line.split(/\s/, 1)[0];
  const begun = /[@./]/.test(first.slice(0, -1)) ? line : line[0].toUpperCase() + line.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
