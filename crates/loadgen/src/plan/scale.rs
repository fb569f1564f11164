//! Runs a plan on a faster clock: every time of the plan is divided by the scale and every rate multiplied.
//!
//! The shape stays: who does what, in which order, how often in all, and with how many users at one time. What stays
//! too are the limits of patience (`connect_timeout`, `answer_timeout`, `acceptable`, `drain`, the longest wait of
//! `wait_for`), since the server does not run on the faster clock.
//!
//! Trap: a phase that is too short for its users at the new rate is not possible: both are scaled together.

use super::{Match, Plan, Step};

/// Scales a plan in place. A scale that is not above 0 changes nothing.
pub(crate) fn scale(plan: &mut Plan, scale: f64) {
    if !(scale.is_finite() && scale > 0.0) || scale == 1.0 {
        return;
    }
    for phase in &mut plan.phases {
        phase.rate *= scale;
        phase.duration_ms = phase.duration_ms.map(|ms| divided(ms, scale));
    }
    for start in &mut plan.starts {
        start.at_ms = divided(start.at_ms, scale);
    }
    let options = &mut plan.options;
    options.duration_ms = options.duration_ms.map(|ms| divided(ms, scale));
    options.hold_ms = options.hold_ms.map(|ms| divided(ms, scale));
    options.retry_ms = divided(options.retry_ms, scale);
    for session in &mut plan.sessions {
        steps(&mut session.steps, scale);
    }
}

/// Never 0 if it was not: a pause of nothing would be another shape.
fn divided(ms: u64, scale: f64) -> u64 {
    let exact = (ms as f64 / scale).round();
    if ms == 0 { 0 } else { (exact as u64).max(1) }
}

fn steps(list: &mut [Step], scale: f64) {
    for step in list {
        match step {
            Step::Think(time) => *time = time.scaled(scale),
            Step::Meanwhile { duration, activities } => {
                *duration = duration.map(|time| time.scaled(scale));
                for activity in activities {
                    activity.every = activity.every.scaled(scale);
                }
            }
            Step::Bounce { duration_ms, .. } => *duration_ms = duration_ms.map(|ms| divided(ms, scale)),
            // How long it takes until all are there follows from the rate of arrivals.
            Step::Barrier { timeout_ms, .. } => *timeout_ms = divided(*timeout_ms, scale),
            Step::Raw { checks, .. } => {
                for Match { pause_ms, .. } in &mut checks.matches {
                    *pause_ms = divided(*pause_ms, scale);
                }
            }
            Step::Repeat { steps: inner, .. }
            | Step::While { steps: inner, .. }
            | Step::If { steps: inner, .. }
            | Step::ForEach { steps: inner, .. }
            | Step::Transaction { steps: inner, .. } => steps(inner, scale),
            _ => {}
        }
    }
}
