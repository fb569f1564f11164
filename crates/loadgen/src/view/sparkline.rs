//! A curve in one line: a value for each column, as bars of eight heights.
//!
//! Bars stand on zero and the highest of those shown is full, so heights of two curves cannot be compared; the figure
//! beside the curve says what the height is. Left out: an axis.
//!
//! Trap: a second without a value (nobody reported, nothing was timed) is a blank and not the lowest bar.

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// For terminals without UTF-8.
const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// The last `width` values as bars, the newest at the right end.
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
    fn heights_follow_the_highest_shown() {
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
    fn nothing_is_not_zero() {
        assert_eq!(line(&[Some(0.0), None, Some(f64::NAN), Some(0.0)], 60, true), "▁  ▁");
        assert_eq!(line(&[], 60, true), "");
        assert_eq!(line(&[Some(3.0)], 0, true), "");
    }
}
