//! Round numbers for axes. Scales start at zero, since other charts exaggerate small changes.

const STEPS = [1, 2, 3, 4, 5, 6, 8, 10];
/// Smallest maximum of an axis, so that noise near zero stays flat.
const MIN_TOP = { bytes: 1e3, seconds: 1e-3, percent: 10, rate: 2, count: 4 };

/// A round maximum of at least `most` whose half is also round.
export function axisMaximum(most, kind) {
  const least = MIN_TOP[kind] ?? 1;
  const wanted = Math.max(most || 0, least);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = STEPS.find((step) => step * power >= wanted * 0.9999) ?? 10;
  const found = step * power;
  return kind === "count" && found % 2 ? found + 1 : found;
}

const TICK_STEPS = [15, 30, 60, 120, 300, 600, 900, 1200, 1800];

/// Round times in `from..=to` (seconds), at most `most` of them.
export function timeTicks(from, to, most) {
  const step = TICK_STEPS.find((step) => (to - from) / step <= most) ?? 3600;
  // Multiples of minutes are round in every time zone, multiples of hours are not.
  const out = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) out.push(at);
  return out;
}
