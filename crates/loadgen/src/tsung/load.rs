//! `load` of Tsung scenarios: when users arrive.
//!
//! Intervals between arrivals are exponentially distributed, as in Tsung. Phases run in order of their numbers, and
//! `loop` repeats them all.
//!
//! # Pitfalls
//!
//! A session that a phase's `session_setup` does not name keeps its own weight in that phase.

use super::reader::{TsungReader, XmlNode, attribute, child, elements, milliseconds};
use super::session::SessionChoice;
use crate::plan::{ArrivalPhase, UserStart};

/// Arrivals and end of the run.
#[derive(Debug, Default)]
pub(super) struct TsungLoad {
    pub(super) phases: Vec<ArrivalPhase>,
    pub(super) starts: Vec<UserStart>,
    pub(super) duration_ms: Option<u64>,
}

/// Maximum number of phases of a load with all its repetitions.
const MAX_PHASES: usize = 10_000;

impl TsungReader<'_> {
    pub(super) fn read_load(
        &mut self,
        root: XmlNode<'_>,
        load: Option<XmlNode<'_>>,
        sessions: &SessionChoice,
    ) -> TsungLoad {
        let Some(load) = load else {
            self.error(root, "tsung", "the element load is missing");
            return TsungLoad::default();
        };
        self.known_attributes(load);
        let duration = self.number(load, "duration").filter(|duration| *duration > 0.0);
        let unit = self.unit(load);
        let mut phases: Vec<(i64, ArrivalPhase)> = Vec::new();
        let mut starts = Vec::new();
        for node in elements(load) {
            match node.tag_name().name() {
                "arrivalphase" => {
                    if let Some((number, phase)) = self.phase(node, sessions) {
                        if phases.iter().any(|(other, _)| *other == number) {
                            self.error(
                                node,
                                "arrivalphase",
                                format!("there are two phases with the number {number}"),
                            );
                        }
                        phases.push((number, phase));
                    }
                }
                "user" => self.start(node, sessions, &mut starts),
                _ => self.unknown(node, ["arrivalphase", "user"]),
            }
        }
        if phases.is_empty() && starts.is_empty() {
            self.error(load, "load", "no users arrive: there is no arrivalphase and no user");
        }
        if phases.iter().any(|(_, phase)| phase.weights.is_none()) {
            let at = child(root, "sessions").unwrap_or(load);
            self.check_weights(at, "sessions", &sessions.weights, sessions.percent);
        }
        phases.sort_by_key(|(number, _)| *number);
        starts.sort_by_key(|start: &UserStart| start.at_ms);
        let once: Vec<ArrivalPhase> = phases.into_iter().map(|(_, phase)| phase).collect();
        let times = self.count(load, "loop").unwrap_or(0) as usize;
        let mut all = once.clone();
        for turn in 1..=times {
            if all.len() + once.len() > MAX_PHASES {
                self.error(load, "load", format!("loop=\"{times}\": more than {MAX_PHASES} phases"));
                break;
            }
            all.extend(once.iter().cloned().map(|mut phase| {
                phase.name = format!("{} ({})", phase.name, turn + 1);
                phase
            }));
        }
        TsungLoad { phases: all, starts, duration_ms: duration.map(|duration| milliseconds(duration * unit)) }
    }

    fn phase(&mut self, node: XmlNode<'_>, sessions: &SessionChoice) -> Option<(i64, ArrivalPhase)> {
        self.known_attributes(node);
        let number = self.needed(node, "phase").and_then(|_| self.whole(node, "phase", 0, i64::MAX));
        let duration = self.needed(node, "duration").and_then(|_| self.number(node, "duration"));
        let unit = self.unit(node);
        let wait_all_end = self.flag(node, "wait_all_sessions_end", false);
        let mut rate = None;
        let mut max_users = None;
        let mut weights = sessions.weights.clone();
        let mut changed = false;
        for inner in elements(node) {
            match inner.tag_name().name() {
                "users" => {
                    self.known_attributes(inner);
                    if rate.is_some() {
                        self.error(inner, "users", "occurs twice here");
                    }
                    rate = Some(self.rate(inner));
                    max_users = self.count(inner, "maxnumber");
                }
                "session_setup" => {
                    changed = true;
                    self.setup(inner, sessions, &mut weights);
                }
                _ => self.unknown(inner, ["users", "session_setup"]),
            }
        }
        if rate.is_none() {
            self.error(node, "arrivalphase", "needs users");
        }
        if changed {
            self.check_weights(node, "arrivalphase", &weights, sessions.percent);
        }
        let number = number?;
        let phase = ArrivalPhase {
            name: format!("phase {number}"),
            duration_ms: Some(milliseconds(duration? * unit)),
            rate: rate.unwrap_or(0.0),
            batch: 1,
            poisson: true,
            max_users,
            weights: changed.then_some(weights),
            wait_all_end,
            concurrency: None,
        };
        Some((number, phase))
    }

    /// Users per second.
    fn rate(&mut self, node: XmlNode<'_>) -> f64 {
        let unit = self.unit(node) / 1_000.0;
        let given = (attribute(node, "arrivalrate").is_some(), attribute(node, "interarrival").is_some());
        let (rate, name) = match given {
            (true, false) => (self.number(node, "arrivalrate").map(|rate| rate / unit), "arrivalrate"),
            (false, true) => {
                let distance = self.number(node, "interarrival");
                (distance.map(|distance| 1.0 / (distance * unit)), "interarrival")
            }
            (true, true) => {
                self.error(node, "users", "has both arrivalrate and interarrival; keep one of them");
                return 0.0;
            }
            (false, false) => {
                self.error(node, "users", "requires arrivalrate or interarrival");
                return 0.0;
            }
        };
        match rate {
            Some(rate) if rate.is_finite() && rate > 0.0 => rate,
            Some(_) => {
                self.error(node, "users", format!("{name} must be above 0"));
                0.0
            }
            None => 0.0,
        }
    }

    /// Weights of sessions in one phase.
    fn setup(&mut self, node: XmlNode<'_>, sessions: &SessionChoice, weights: &mut [f64]) {
        self.known_attributes(node);
        let Some(name) = self.needed(node, "name") else { return };
        let found = self.matching(node, "session_setup", name, sessions);
        let (wanted, other) =
            if sessions.percent { ("probability", "weight") } else { ("weight", "probability") };
        if attribute(node, other).is_some() {
            let text = format!("has a {other}, but the sessions have a {wanted}");
            self.error(node, "session_setup", text);
            return;
        }
        let value = self.needed(node, wanted).and_then(|_| self.number(node, wanted)).unwrap_or(0.0);
        for index in found {
            if let Some(weight) = weights.get_mut(index) {
                *weight = value;
            }
        }
    }

    fn start(&mut self, node: XmlNode<'_>, sessions: &SessionChoice, starts: &mut Vec<UserStart>) {
        self.known_attributes(node);
        let at = self.number(node, "start_time").unwrap_or(0.0) * self.unit(node);
        let Some(name) = self.needed(node, "session") else { return };
        for index in self.matching(node, "user", name, sessions) {
            starts.push(UserStart {
                at_ms: milliseconds(at),
                session: u16::try_from(index).unwrap_or(u16::MAX),
            });
        }
    }

    /// Sessions that match a name, in which the first `*` and the first `?` are wildcards for any text and any
    /// character.
    fn matching(
        &mut self,
        node: XmlNode<'_>,
        key: &str,
        pattern: &str,
        sessions: &SessionChoice,
    ) -> Vec<usize> {
        let found: Vec<usize> = sessions
            .names
            .iter()
            .enumerate()
            .filter(|(_, name)| wildcard(pattern, name))
            .map(|(at, _)| at)
            .collect();
        if found.is_empty() {
            let near = crate::plan::nearest(pattern, sessions.names.iter().map(String::as_str));
            self.error(node, key, format!("unknown session {pattern}{near}"));
        }
        found
    }
}

/// Whether a name matches the pattern.
fn wildcard(pattern: &str, name: &str) -> bool {
    let (p, n): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // The last star, and where its match starts.
    let (mut at, mut i, mut star) = (0, 0, None);
    while i < n.len() {
        match p.get(at) {
            Some('*') => {
                star = Some((at, i));
                at += 1;
            }
            Some(c) if *c == '?' || *c == n[i] => {
                at += 1;
                i += 1;
            }
            _ => match star {
                Some((back, from)) => {
                    at = back + 1;
                    i = from + 1;
                    star = Some((back, from + 1));
                }
                None => return false,
            },
        }
    }
    p.get(at..).is_some_and(|rest| rest.iter().all(|c| *c == '*'))
}

#[cfg(test)]
mod tests {
    use super::wildcard;

    #[test]
    fn wildcards_match_transaction_names() {
        assert!(wildcard("foo*", "foo") && wildcard("foo*", "foobar") && wildcard("f?o", "fxo"));
        assert!(wildcard("*a*b", "xxaxxaxb") && !wildcard("*a*b", "xxaxxax"));
        assert!(!wildcard("foo", "foobar") && !wildcard("fo?", "fo"));
    }
}
