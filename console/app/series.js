//! History of the metrics from /overview, kept in the page.
//!
//! # Pitfalls
//!
//! A suspended page has a gap. Samples that the node still has fill it; charts never draw across a gap.

/// Length of the history, in seconds.
const RETENTION_SECONDS = 3600;
/// Factors that convert durations to seconds.
const FACTORS = { ms: 1e-3 };

export class History {
  constructor() {
    this.step = 2;
    /// The time of the last sample, seconds since 1970; 0 before the first answer.
    this.end = 0;
    this.seriesByName = new Map();
    this.current = {};
    this.resources = {};
  }

  /// Parameter of the next request: the time of the last sample, or nothing for all samples.
  get since() {
    return this.end || undefined;
  }

  /// Adds a response. Its series end at `now`.
  add({ now, interval, series = {}, units = {}, current = {}, resources = {} }) {
    const step = interval || 2;
    this.current = current;
    this.resources = resources;
    if (!now) return;
    if (this.end && (step !== this.step || now < this.end)) {
      // The node restarted or its clock was set: the next response has all samples.
      this.clear();
      return;
    }
    this.step = step;
    const maxSamples = Math.round(RETENTION_SECONDS / step);
    const elapsedSamples = this.end ? Math.max(0, Math.round((now - this.end) / step)) : maxSamples;
    for (const [name, fresh] of Object.entries(series)) {
      let list = this.seriesByName.get(name) ?? [];
      const factor = FACTORS[units[name]] ?? 1;
      const values = fresh.map((n) => (typeof n === "number" ? n * factor : Number.NaN));
      if (values.length >= elapsedSamples) {
        // Overlapping samples have the same values.
        list = list.slice(0, Math.max(0, list.length - (values.length - elapsedSamples))).concat(values);
      } else {
        list = list.concat(new Array(elapsedSamples - values.length).fill(Number.NaN), values);
      }
      this.seriesByName.set(name, list.slice(-maxSamples));
    }
    this.end = now;
  }

  clear() {
    this.end = 0;
    this.seriesByName.clear();
  }

  /// Seconds for which there is data.
  get span() {
    return Math.max(0, ...[...this.seriesByName.values()].map((list) => list.length - Math.max(0, list.findIndex((n) => !Number.isNaN(n))))) * this.step;
  }

  /// The total of a per-second rate.
  sum(name) {
    return (this.seriesByName.get(name) ?? []).reduce((sum, n) => (Number.isNaN(n) ? sum : sum + n * this.step), 0);
  }

  has(name) {
    return this.seriesByName.has(name);
  }

  /// The last `n` samples; missing ones are NaN.
  last(name, n) {
    const list = this.seriesByName.get(name) ?? [];
    return list.length >= n ? list.slice(-n) : new Array(n - list.length).fill(Number.NaN).concat(list);
  }
}

/// Minimum, mean and maximum of the samples; `null` without samples.
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
