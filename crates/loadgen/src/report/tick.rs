//! Axis ticks at round numbers.
//!
//! # Pitfalls
//!
//! An axis ends at a tick, so the upper edge of a chart is the last entry here and not the largest value.

/// Ticks from 0 to at least `max`, at steps of 1, 2 or 5 times a power of ten, about `wanted` of them.
pub(super) fn linear(max: f64, wanted: usize) -> Vec<f64> {
    let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
    let rough = max / wanted.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * power).find(|s| *s >= rough * 0.999).unwrap_or(power);
    let count = (max / step - 1e-9).ceil().max(1.0) as usize;
    (0..=count).map(|index| index as f64 * step).collect()
}

/// Ticks around `min ..= max` for a logarithmic axis: powers of ten, and 2 and 5 in between if there is room.
pub(super) fn logarithmic(min: f64, max: f64) -> Vec<f64> {
    let min = if min.is_finite() && min > 0.0 { min } else { 1.0 };
    let max = if max.is_finite() { max.max(min) } else { min };
    let mut steps = Vec::new();
    for exponent in min.log10().floor() as i32 - 1..=max.log10().ceil() as i32 + 1 {
        steps.extend([1.0, 2.0, 5.0].map(|m| m * 10f64.powi(exponent)));
    }
    let low = steps.iter().rposition(|s| *s <= min * 1.000_001).unwrap_or(0);
    let high = steps.iter().position(|s| *s >= max * 0.999_999).unwrap_or(steps.len() - 1);
    // A single value still needs an axis with two ends.
    let high = high.max(low + 1).min(steps.len() - 1);
    let (bottom, top) = (steps[low], steps[high]);
    let mut ticks = steps[low..=high].to_vec();
    let decade = |s: &f64| (s.log10() - s.log10().round()).abs() < 1e-6;
    if ticks.len() > 7 {
        // The end ticks stay, even if they are no powers of ten, unless they are close to one.
        let far = |s: &f64| {
            let distance = (s.log10() - s.log10().round()).abs();
            distance > 0.25
        };
        ticks.retain(|s| decade(s) || ((*s == bottom || *s == top) && far(s)));
        if !ticks.contains(&bottom) {
            ticks.insert(0, bottom);
        }
        if !ticks.contains(&top) {
            ticks.push(top);
        }
    }
    ticks
}

/// Ticks in seconds from 0 to at most `length`, with their unit and format.
pub(super) fn seconds(length: f64, wanted: usize) -> (Vec<f64>, &'static str, fn(f64) -> String) {
    const STEPS: [f64; 20] = [
        1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_200.0, 1_800.0, 3_600.0,
        7_200.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 604_800.0,
    ];
    let length = if length.is_finite() { length.clamp(1.0, 1e9) } else { 1.0 };
    let rough = length / wanted.max(1) as f64;
    let step =
        STEPS.into_iter().find(|s| *s >= rough * 0.999).unwrap_or(604_800.0 * (rough / 604_800.0).ceil());
    let ticks = (0..=(length / step + 1e-9).floor() as usize).map(|index| index as f64 * step).collect();
    match step {
        _ if length <= 120.0 => (ticks, "seconds", |s| format!("{s:.0}")),
        _ if step < 60.0 => (ticks, "min:s", super::unit::clock),
        _ if length < 7_200.0 => (ticks, "minutes", |s| format!("{:.0}", s / 60.0)),
        _ => (ticks, "h:min", |s| format!("{:.0}:{:02.0}", (s / 3_600.0).floor(), s % 3_600.0 / 60.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::{linear, logarithmic, seconds};

    #[test]
    fn linear_ticks_are_round_and_reach_the_largest_value() {
        assert_eq!(linear(19_000.0, 5), [0.0, 5_000.0, 10_000.0, 15_000.0, 20_000.0]);
        assert_eq!(linear(10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(linear(0.0, 5).first(), Some(&0.0));
        assert_eq!(linear(f64::NAN, 5).len(), linear(1.0, 5).len());
        for max in [0.003, 0.7, 1.0, 3.2, 99.0, 101.0, 7.7e9] {
            let ticks = linear(max, 5);
            assert!(*ticks.last().unwrap() >= max * 0.999_999, "{max}: {ticks:?}");
            assert!((3..=7).contains(&ticks.len()), "{max}: {ticks:?}");
        }
    }

    #[test]
    fn logarithmic_ticks_enclose_the_values() {
        let close = |found: Vec<f64>, expected: &[f64]| {
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(found.iter().zip(expected).all(|(a, b)| (a / b - 1.0).abs() < 1e-9), "{found:?}");
        };
        close(logarithmic(150.0, 900.0), &[100.0, 200.0, 500.0, 1_000.0]);
        close(logarithmic(1.0, 1.0), &[1.0, 2.0]);
        close(logarithmic(0.0, 0.0), &[1.0, 2.0]);
        for (min, max) in [(3.0, 3.0e7), (1.0, 1e4), (7.0, 8.0), (450.0, 2.1e6)] {
            let ticks = logarithmic(min, max);
            assert!(ticks[0] <= min && ticks[ticks.len() - 1] >= max, "{min} {max}: {ticks:?}");
            assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{ticks:?}");
            assert!((2..=10).contains(&ticks.len()), "{ticks:?}");
        }
    }

    #[test]
    fn time_is_counted_in_minutes_and_hours_not_in_hundreds() {
        let shown = |length| {
            let (ticks, unit, show) = seconds(length, 6);
            (unit, ticks.into_iter().map(show).collect::<Vec<_>>())
        };
        assert_eq!(
            shown(60.0),
            ("seconds", ["0", "10", "20", "30", "40", "50", "60"].map(String::from).to_vec())
        );
        assert_eq!(shown(150.0).1, ["0:00", "0:30", "1:00", "1:30", "2:00", "2:30"]);
        assert_eq!(shown(1_250.0), ("minutes", ["0", "5", "10", "15", "20"].map(String::from).to_vec()));
        assert_eq!(
            shown(10_000.0),
            ("h:min", ["0:00", "0:30", "1:00", "1:30", "2:00", "2:30"].map(String::from).to_vec())
        );
        assert!(shown(f64::INFINITY).1.len() < 10 && shown(4e9).1.len() < 10);
    }
}
