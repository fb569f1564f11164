//! Sparkline: one value per column, as bars of eight heights.
//!
//! Bars start at zero and the highest shown one is full, so heights of two curves cannot be compared; the value beside
//! the curve gives the scale.
//!
//! Not implemented: an axis.
//!
//! # Pitfalls
//!
//! A second without a value (no report, nothing timed) is a blank and not the lowest bar.

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Bars for terminals without UTF-8.
const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// Draws the last `width` values as bars, the newest on the right.
pub(super) fn line(values: &[Option<f64>], width: usize, unicode: bool) -> String {
    let shown = &values[values.len().saturating_sub(width)..];
    let known = |value: &Option<f64>| value.filter(|v| v.is_finite() && *v >= 0.0);
    let highest = shown.iter().filter_map(known).fold(0.0, f64::max);
    let bars = if unicode { BARS } else { ASCII };
    let bar = |value: &Option<f64>| match known(value) {
        None => ' ',
        Some(value) if highest > 0.0 => bars[((value / highest * 8.0).ceil() as usize).clamp(1, 8) - 1],
        Some(_) => bars[0],
    };
    shown.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn bar_heights_are_relative_to_the_highest_value() {
        let values: Vec<_> = (0..=8).map(|v| Some(f64::from(v))).collect();
        assert_eq!(line(&values, 60, true), "▁▁▂▃▄▅▆▇█");
        assert_eq!(line(&values, 60, false), "__.:-=+*#");
        assert_eq!(
            line(&[Some(1e9), Some(1.0), Some(2.0)], 2, true),
            "▄█",
            "what is not shown has no part in it"
        );
    }

    #[test]
    fn a_missing_value_is_not_zero() {
        assert_eq!(line(&[Some(0.0), None, Some(f64::NAN), Some(0.0)], 60, true), "▁  ▁");
        assert_eq!(line(&[], 60, true), "");
        assert_eq!(line(&[Some(3.0)], 0, true), "");
    }
}
