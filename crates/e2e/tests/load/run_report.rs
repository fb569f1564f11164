//! Reader of a run report as other programs would see it: `run.json` by the names in it.

use std::path::Path;

use serde_json::Value;

pub(crate) struct RunReport(pub(crate) Value);

impl RunReport {
    /// Reads the report in a directory.
    pub(crate) fn read(directory: &Path) -> RunReport {
        let path = directory.join("run.json");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        RunReport(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
    }

    /// A counter over the whole run; 0 if absent.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.0["totals"]["counters"][name]["total"].as_u64().unwrap_or(0)
    }

    /// The same counter, summed over the seconds.
    pub(crate) fn count_of_seconds(&self, name: &str) -> u64 {
        self.seconds().map(|second| second["counters"][name].as_u64().unwrap_or(0)).sum()
    }

    pub(crate) fn seconds(&self) -> impl Iterator<Item = &Value> {
        self.list("seconds").iter()
    }

    pub(crate) fn list(&self, name: &str) -> &Vec<Value> {
        self.0[name].as_array().unwrap_or_else(|| panic!("no list {name}"))
    }

    /// A statistic of a timing, such as `p99`, in microseconds.
    pub(crate) fn timing(&self, name: &str, figure: &str) -> u64 {
        self.0["totals"]["timings"][name]["summary"][figure].as_u64().unwrap_or(0)
    }

    /// Number of values of a timing that are at least `us` microseconds, from its histogram.
    pub(crate) fn slower_than(&self, name: &str, us: u64) -> u64 {
        let buckets = &self.0["totals"]["timings"][name]["histogram"]["buckets"];
        let buckets = buckets.as_array().unwrap_or_else(|| panic!("no histogram of {name}"));
        buckets.iter().filter(|b| b[0].as_u64() >= Some(us)).map(|b| b[1].as_u64().expect("a count")).sum()
    }

    /// Reason for the end of the run.
    pub(crate) fn end_reason(&self) -> &str {
        self.0["about"]["end"].as_str().unwrap_or("")
    }

    /// All warnings as one text.
    pub(crate) fn warnings(&self) -> String {
        self.list("warnings").iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
    }

    /// Text for the message of a failing test.
    pub(crate) fn messages(&self) -> String {
        format!(
            "end: {}\n{}\ncounters: {}\nerrors: {}\nworkers: {}\nlog: {}",
            self.end_reason(),
            self.warnings(),
            self.0["totals"]["counters"],
            self.0["totals"]["errors"],
            self.0["workers"],
            self.0["log"]
        )
    }
}
