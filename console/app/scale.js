//! Round numbers for axes. Scales begin at zero, since a chart that does not makes a ripple look like a flood.

const STEPS = [1, 2, 3, 4, 5, 6, 8, 10];
/// The least that the top of an axis stands for, so that noise around nothing stays flat.
const LEAST = { bytes: 1e3, seconds: 1e-3, percent: 10, rate: 2, count: 4 };

/// The top of an axis that has room for `most`; half of it is a round number as well.
export function top(most, kind) {
  const least = LEAST[kind] ?? 1;
  const wanted = Math.max(most || 0, least);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = STEPS.find((step) => step * power >= wanted * 0.9999) ?? 10;
  const found = step * power;
  return kind === "count" && found % 2 ? found + 1 : found;
}

const SPANS = [15, 30, 60, 120, 300, 600, 900, 1200, 1800];

/// Times in `from..=to` (seconds) that a clock would call round, at most `most` of them.
export function times(from, to, most) {
  const step = SPANS.find((step) => (to - from) / step <= most) ?? 3600;
  // Minutes are round in every zone, hours only in most.
  const out = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) out.push(at);
  return out;
}
