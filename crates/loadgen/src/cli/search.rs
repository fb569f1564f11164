//! Search for the largest value that passes, by increasing and bisecting. Pure; the caller defines a probe.
//!
//! # Pitfalls
//!
//! Servers are not monotonic. A value that failed once is not tried again, so one bad second of the machine costs
//! capacity; the caller prints every probe, and a second search shows how much.

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeOutcome {
    /// Within the limits.
    Good,
    /// Beyond a limit of the server.
    Bad,
    /// Over a limit while the generator itself was late or saturated: inconclusive about the server.
    Unclear,
    /// Accounts are missing: no larger value can be tried.
    Accounts,
}

/// Reason why the search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchEnd {
    /// The next higher value failed.
    Found,
    /// The largest value allowed passed.
    Highest,
    /// The generator was the bottleneck.
    Generator,
    /// Even the smallest value failed.
    Nothing,
    /// No more accounts are available.
    Accounts,
    /// The number of probes is exhausted.
    Probes,
}

/// State of the search.
#[derive(Clone, Debug)]
pub(super) struct CapacitySearch {
    next: u64,
    least: u64,
    most: u64,
    /// Largest distance between the passing and the failing value, as a share of the former.
    precision: f64,
    probes: u32,
    good: Option<u64>,
    bad: Option<u64>,
    end: Option<SearchEnd>,
}

impl CapacitySearch {
    /// Starts at `first`, never below `least` or above `most`, with at most `probes` probes.
    pub(super) fn new(first: u64, least: u64, most: u64, precision: f64, probes: u32) -> Self {
        let most = most.max(least);
        let next = first.clamp(least, most);
        Self { next, least, most, precision, probes, good: None, bad: None, end: None }
    }

    /// Next value to try; `None` at the end.
    pub(super) fn next(&self) -> Option<u64> {
        self.end.is_none().then_some(self.next)
    }

    /// Largest passing value and the reason for the end (until then: the number of probes).
    pub(super) fn result(&self) -> (Option<u64>, SearchEnd) {
        (self.good, self.end.unwrap_or(SearchEnd::Probes))
    }

    /// Records the result of the value returned by `next`.
    pub(super) fn record_outcome(&mut self, outcome: ProbeOutcome) {
        self.probes = self.probes.saturating_sub(1);
        match outcome {
            ProbeOutcome::Good => self.good = self.good.max(Some(self.next)),
            ProbeOutcome::Bad => self.bad = Some(self.bad.map_or(self.next, |bad| bad.min(self.next))),
            ProbeOutcome::Unclear => {
                self.end = Some(SearchEnd::Generator);
                return;
            }
            ProbeOutcome::Accounts => {
                self.end = Some(SearchEnd::Accounts);
                return;
            }
        }
        self.end = self.decide();
        if self.end.is_none() && self.probes == 0 {
            self.end = Some(SearchEnd::Probes);
        }
    }

    fn decide(&mut self) -> Option<SearchEnd> {
        match (self.good, self.bad) {
            (None, None) => {}
            (None, Some(bad)) if bad <= self.least => return Some(SearchEnd::Nothing),
            (None, Some(bad)) => self.next = (bad / 2).max(self.least),
            (Some(good), None) if good >= self.most => return Some(SearchEnd::Highest),
            (Some(good), None) => self.next = good.saturating_mul(2).min(self.most),
            (Some(good), Some(bad)) => {
                let apart = bad.saturating_sub(good);
                if apart <= 1 || apart as f64 <= self.precision * good as f64 {
                    return Some(SearchEnd::Found);
                }
                self.next = good + apart / 2;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(
        first: u64,
        most: u64,
        probes: u32,
        judge: impl Fn(u64) -> ProbeOutcome,
    ) -> (CapacitySearch, Vec<u64>) {
        let mut search = CapacitySearch::new(first, 1, most, 0.05, probes);
        let mut tried = Vec::new();
        while let Some(value) = search.next() {
            tried.push(value);
            search.record_outcome(judge(value));
        }
        (search, tried)
    }

    fn below(limit: u64) -> impl Fn(u64) -> ProbeOutcome {
        move |value| if value <= limit { ProbeOutcome::Good } else { ProbeOutcome::Bad }
    }

    #[test]
    fn the_search_doubles_and_then_bisects() {
        let (found, tried) = search(100, 100_000, 50, below(1_234));
        assert_eq!(tried, [100, 200, 400, 800, 1_600, 1_200, 1_400, 1_300, 1_250]);
        assert_eq!(found.result(), (Some(1_200), SearchEnd::Found));
    }

    #[test]
    fn for_every_limit_the_result_is_good_and_within_the_precision() {
        for limit in (1..400).chain([999, 1_000, 54_321, 99_999]) {
            let (found, tried) = search(100, 100_000, 60, below(limit));
            let (Some(good), SearchEnd::Found) = found.result() else { panic!("{limit}: {tried:?}") };
            assert!(good <= limit && limit as f64 <= good as f64 * 1.05 + 1.0, "{limit}: {good} {tried:?}");
            // No value is tried twice.
            let mut once = tried.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), tried.len(), "{tried:?}");
        }
    }

    #[test]
    fn failures_that_are_not_the_servers_end_the_search() {
        assert_eq!(search(100, 700, 50, |_| ProbeOutcome::Good).1, [100, 200, 400, 700]);
        assert_eq!(search(100, 700, 50, |_| ProbeOutcome::Good).0.result(), (Some(700), SearchEnd::Highest));
        let (found, tried) = search(100, 700, 50, |_| ProbeOutcome::Bad);
        assert_eq!((found.result(), tried), ((None, SearchEnd::Nothing), vec![100, 50, 25, 12, 6, 3, 1]));
        let unclear = |value| if value > 300 { ProbeOutcome::Unclear } else { ProbeOutcome::Good };
        let (found, tried) = search(100, 700, 50, unclear);
        assert_eq!((found.result(), tried), ((Some(200), SearchEnd::Generator), vec![100, 200, 400]));
        assert_eq!(search(1, 1 << 40, 3, |_| ProbeOutcome::Good).0.result(), (Some(4), SearchEnd::Probes));
        assert_eq!(search(1 << 40, 10, 9, |_| ProbeOutcome::Good).0.result(), (Some(10), SearchEnd::Highest));
    }
}
