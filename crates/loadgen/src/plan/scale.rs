//! Time scaling of a plan: every time is divided by the scale and every rate multiplied.
//!
//! The shape is unchanged: who does what, in which order, how often in total, and with how many users at one time. The
//! timeouts (`connect_timeout`, `answer_timeout`, `acceptable`, `drain`, the longest wait of `wait_for`) are unchanged
//! too, since the server does not run on the faster clock. A phase cannot become too short for its users, since its
//! duration and its rate are scaled together.

use super::{LoadPlan, PlanStep, ResponseMatch};

/// Scales a plan in place. A scale that is not above 0 changes nothing.
pub(crate) fn scale(plan: &mut LoadPlan, scale: f64) {
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

/// Divides a time. The result is not 0 unless `ms` is: dropping a pause would change the shape.
fn divided(ms: u64, scale: f64) -> u64 {
    let exact = (ms as f64 / scale).round();
    if ms == 0 { 0 } else { (exact as u64).max(1) }
}

fn steps(list: &mut [PlanStep], scale: f64) {
    for step in list {
        match step {
            PlanStep::Think(time) => *time = time.scaled(scale),
            PlanStep::Meanwhile { duration, activities } => {
                *duration = duration.map(|time| time.scaled(scale));
                for activity in activities {
                    activity.every = activity.every.scaled(scale);
                }
            }
            PlanStep::Bounce { duration_ms, .. } => *duration_ms = duration_ms.map(|ms| divided(ms, scale)),
            // The time until all have arrived follows from the arrival rate.
            PlanStep::Barrier { timeout_ms, .. } => *timeout_ms = divided(*timeout_ms, scale),
            PlanStep::Raw { checks, .. } => {
                for ResponseMatch { pause_ms, .. } in &mut checks.matches {
                    *pause_ms = divided(*pause_ms, scale);
                }
            }
            PlanStep::Repeat { steps: inner, .. }
            | PlanStep::While { steps: inner, .. }
            | PlanStep::If { steps: inner, .. }
            | PlanStep::ForEach { steps: inner, .. }
            | PlanStep::Transaction { steps: inner, .. } => steps(inner, scale),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Activity, PlanOverrides, TimeSpan, named, workloads};

    /// All times and rates of a plan that a scale may change, in a fixed order. Rates are given as intervals.
    fn times(plan: &LoadPlan) -> Vec<f64> {
        let mut list = Vec::new();
        for phase in &plan.phases {
            list.extend((phase.rate > 0.0).then(|| 1_000.0 / phase.rate));
            list.extend(phase.duration_ms.map(|ms| ms as f64));
        }
        list.extend(plan.starts.iter().map(|start| start.at_ms as f64));
        let options = &plan.options;
        list.extend([options.duration_ms, options.hold_ms].into_iter().flatten().map(|ms| ms as f64));
        for session in &plan.sessions {
            of_steps(&session.steps, &mut list);
        }
        list
    }

    fn of_steps(steps: &[PlanStep], list: &mut Vec<f64>) {
        let of_time = |time: TimeSpan, list: &mut Vec<f64>| match time {
            TimeSpan::Fixed(ms) | TimeSpan::Exponential(ms) => list.push(ms),
            TimeSpan::Uniform(from, to) => list.extend([from, to]),
        };
        for step in steps {
            match step {
                PlanStep::Think(time) => of_time(*time, list),
                PlanStep::Meanwhile { duration, activities } => {
                    if let Some(time) = duration {
                        of_time(*time, list);
                    }
                    for Activity { every, .. } in activities {
                        of_time(*every, list);
                    }
                }
                PlanStep::Barrier { timeout_ms, .. } => list.push(*timeout_ms as f64),
                PlanStep::Bounce { duration_ms, .. } => list.extend(duration_ms.map(|ms| ms as f64)),
                PlanStep::Raw { checks, .. } => list.extend(checks.matches.iter().map(|m| m.pause_ms as f64)),
                PlanStep::Repeat { steps, .. }
                | PlanStep::While { steps, .. }
                | PlanStep::If { steps, .. }
                | PlanStep::ForEach { steps, .. }
                | PlanStep::Transaction { steps, .. } => of_steps(steps, list),
                _ => {}
            }
        }
    }

    /// A plan with every kind of time.
    fn rich() -> LoadPlan {
        let text = r#"
            [options]
            hold = "100s"
            duration = "1000s"
            [[phase]]
            rate = 10
            duration = "300s"
            [[phase]]
            duration = "7s"
            [[start]]
            at = "11s"
            [[session]]
            steps = [
              "login",
              { think = "5s" }, { think = "~13s" }, { think = "17s..19s" },
              { barrier = "23s" },
              { bounce = { for = "29s" } },
              { wait_for = { stanza = "iq", timeout = "31s" } },
              { raw = { xml = "<a/>", wait = "any", check = [{ regex = "x", then = "loop", pause = "37s" }] } },
              { repeat = { times = 2, steps = [{ transaction = { name = "t", steps = [
                { meanwhile = { for = "41s", do = [{ every = "43s", message = "online" }] } },
              ] } }] } },
            ]
        "#;
        crate::plan::read_toml(text, "rich", &PlanOverrides::default()).unwrap()
    }

    #[test]
    fn every_time_is_divided_and_every_rate_multiplied() {
        let plan = rich();
        assert_eq!(times(&plan).len(), 15);
        for factor in [0.5, 2.0, 10.0] {
            let mut faster = plan.clone();
            scale(&mut faster, factor);
            for (before, after) in times(&plan).iter().zip(times(&faster)) {
                assert!((before / factor - after).abs() < 1e-6, "{before} / {factor} is not {after}");
            }
        }
    }

    #[test]
    fn scaling_is_reversible() {
        let plans = workloads().into_iter().map(|w| named(w.name, &PlanOverrides::default()).unwrap().0);
        for plan in plans.chain([rich()]) {
            for factor in [0.1, 1.0 / 3.0, 1.0, 2.0, 7.0, 60.0] {
                let mut there = plan.clone();
                scale(&mut there, factor);
                scale(&mut there, 1.0 / factor);
                for (before, after) in times(&plan).iter().zip(times(&there)) {
                    // Rounding by half a millisecond, on the faster clock.
                    let allowed = 0.5 * factor.max(1.0) + 1e-6;
                    assert!((before - after).abs() <= allowed, "{}: {before} became {after}", plan.name);
                }
            }
        }
    }

    #[test]
    fn scaling_preserves_the_shape_of_the_plan() {
        for workload in workloads() {
            let at = |time_scale| {
                let arguments =
                    PlanOverrides { time_scale, connections: Some(100), ..PlanOverrides::default() };
                let (mut plan, preparation) = named(workload.name, &arguments).unwrap();
                // Scaled back, everything is equal except for rounding.
                let ramp = 100.0 / plan.phases[0].rate * time_scale;
                scale(&mut plan, 1.0 / time_scale);
                (plan, preparation, ramp)
            };
            let (plan, preparation, ramp) = at(1.0);
            let (fast, fast_preparation, fast_ramp) = at(10.0);
            assert_eq!(preparation, fast_preparation);
            assert!((ramp - fast_ramp).abs() < 1e-9);
            assert_eq!(plan.phases[0].max_users, fast.phases[0].max_users);
            assert_eq!(plan.options, fast.options);
            assert_eq!(plan.sessions, fast.sessions, "{}", workload.name);
        }
    }

    #[test]
    fn timeouts_are_not_scaled() {
        let mut plan = rich();
        let before = plan.clone();
        scale(&mut plan, 100.0);
        let timeouts = |plan: &LoadPlan| {
            let o = &plan.options;
            (o.connect_timeout_ms, o.answer_timeout_ms, o.acceptable_ms, o.drain_ms)
        };
        assert_eq!(timeouts(&plan), timeouts(&before));
        let waits = |plan: &LoadPlan| {
            plan.sessions[0].steps.iter().find_map(|step| match step {
                PlanStep::WaitFor { timeout_ms, .. } => Some(*timeout_ms),
                _ => None,
            })
        };
        assert_eq!(waits(&plan), Some(31_000));
    }

    #[test]
    fn a_pause_never_becomes_zero_and_an_invalid_scale_is_ignored() {
        let mut plan = rich();
        scale(&mut plan, 1e9);
        assert_eq!(plan.options.hold_ms, Some(1));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut plan = rich();
            scale(&mut plan, wrong);
            assert_eq!(plan, rich());
        }
    }
}
