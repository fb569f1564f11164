//! The history of figures in the page: what /overview answered, joined at the end.
//!
//! The trap: a page that slept has a gap. What the node still knows fills it; nothing is ever drawn across.

/// Seconds that are kept.
const KEPT = 3600;
/// Everything that lasts is in seconds here.
const FACTORS = { ms: 1e-3 };

export class History {
  constructor() {
    this.step = 2;
    /// The time of the last sample, seconds since 1970; 0 before the first answer.
    this.end = 0;
    this.all = new Map();
    this.current = {};
    this.resources = {};
  }

  /// What to ask for: the time of the last sample, or nothing for all.
  get since() {
    return this.end || undefined;
  }

  /// Takes an answer in. Series end at its `now`.
  add({ now, interval, series = {}, units = {}, current = {}, resources = {} }) {
    const step = interval || 2;
    this.current = current;
    this.resources = resources;
    if (!now) return;
    if (this.end && (step !== this.step || now < this.end)) {
      // The node began anew, or its clock was set: the next answer brings everything.
      this.forget();
      return;
    }
    this.step = step;
    const most = Math.round(KEPT / step);
    const passed = this.end ? Math.max(0, Math.round((now - this.end) / step)) : most;
    for (const [name, fresh] of Object.entries(series)) {
      let list = this.all.get(name) ?? [];
      const factor = FACTORS[units[name]] ?? 1;
      const values = fresh.map((n) => (typeof n === "number" ? n * factor : Number.NaN));
      if (values.length >= passed) {
        // Samples that were there already come again with the same values.
        list = list.slice(0, Math.max(0, list.length - (values.length - passed))).concat(values);
      } else {
        list = list.concat(new Array(passed - values.length).fill(Number.NaN), values);
      }
      this.all.set(name, list.slice(-most));
    }
    this.end = now;
  }

  forget() {
    this.end = 0;
    this.all.clear();
  }

  /// Seconds that are known.
  get span() {
    return Math.max(0, ...[...this.all.values()].map((list) => list.length - Math.max(0, list.findIndex((n) => !Number.isNaN(n))))) * this.step;
  }

  /// How many there were, of what is counted by the second.
  sum(name) {
    return (this.all.get(name) ?? []).reduce((sum, n) => (Number.isNaN(n) ? sum : sum + n * this.step), 0);
  }

  has(name) {
    return this.all.has(name);
  }

  /// The last `n` samples; what is not known is NaN.
  last(name, n) {
    const list = this.all.get(name) ?? [];
    return list.length >= n ? list.slice(-n) : new Array(n - list.length).fill(Number.NaN).concat(list);
  }
}

/// Least, mean and most of what is known; `null` if nothing is.
export function summary(values) {
  let [least, most, sum, n] = [Infinity, -Infinity, 0, 0];
  for (const value of values) {
    if (Number.isNaN(value)) continue;
    if (value < least) least = value;
    if (value > most) most = value;
    sum += value;
    n += 1;
  }
  return n ? { least, most, mean: sum / n, n } : null;
}
