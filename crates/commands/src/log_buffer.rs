//! Ring buffer of the last lines of the node's log, for interfaces that show them.
//!
//! Lines are numbered without gaps from the start of the process. The program's log fills the [`LogBuffer`] with the lines
//! that pass its filter, so `[log] level` applies here as well.
//!
//! No secret is ever a field of a log line; fields with a secret's name are blanked here all the same, since this log
//! has more readers than a file that belongs to root.
//!
//! Not implemented: searching, which is a task of log systems.

use std::collections::VecDeque;

use base::lock::{RankedMutex, rank};
use serde::{Deserialize, Serialize};

/// Maximum number of lines.
pub const MAX_LINES: usize = 2_000;
/// Maximum bytes of the texts of all lines together.
const MAX_BYTES: usize = 1 << 20;
/// Maximum bytes of one text; longer ones are truncated.
const MAX_TEXT_BYTES: usize = 1_024;
/// Maximum fields of a line; more are dropped.
const MAX_FIELDS: usize = 16;

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// A failure.
    Error,
    /// An anomaly.
    Warn,
    /// Information for operators.
    Info,
    /// Information for developers.
    Debug,
    /// Everything.
    Trace,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Its number; the first is 1.
    pub number: u64,
    /// Milliseconds since 1970.
    pub time: u64,
    /// Its severity.
    pub level: LogLevel,
    /// The module that wrote it.
    pub target: String,
    /// The message.
    pub message: String,
    /// Further fields, in order.
    pub fields: Vec<(String, String)>,
}

impl LogLine {
    fn bytes(&self) -> usize {
        let fields = self.fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        self.target.len() + self.message.len() + fields
    }
}

/// Ring buffer of the last lines.
#[derive(Debug, Default)]
pub struct LogBuffer(RankedMutex<LogBufferState, { rank::LOG }>);

#[derive(Debug, Default)]
struct LogBufferState {
    lines: VecDeque<LogLine>,
    bytes: usize,
    last: u64,
    counts: [u64; 5],
}

impl LogBuffer {
    /// Adds a line and assigns its number. Texts are truncated and secrets blanked.
    pub fn push(&self, mut line: LogLine) {
        line.fields.truncate(MAX_FIELDS);
        for (name, value) in &mut line.fields {
            if is_secret(name) {
                "…".clone_into(value);
            }
            truncate(value);
        }
        truncate(&mut line.message);
        let mut lines = self.0.lock();
        lines.last += 1;
        line.number = lines.last;
        lines.counts[line.level as usize] += 1;
        lines.bytes += line.bytes();
        lines.lines.push_back(line);
        while lines.lines.len() > MAX_LINES || lines.bytes > MAX_BYTES {
            let Some(old) = lines.lines.pop_front() else { return };
            lines.bytes -= old.bytes();
        }
    }

    /// Lines after this number of at least this severity, and the number to continue from. Without a number, the
    /// newest lines.
    pub fn read(&self, after: Option<u64>, level: LogLevel, limit: usize) -> (Vec<LogLine>, u64) {
        let lines = self.0.lock();
        let wanted = lines.lines.iter().filter(|line| line.level <= level);
        match after {
            // A number from an earlier life of the process starts over.
            Some(after) if after <= lines.last => {
                let found: Vec<LogLine> = wanted.filter(|l| l.number > after).take(limit).cloned().collect();
                let full = found.len() == limit;
                let next = found.last().filter(|_| full).map_or(lines.last, |line| line.number);
                (found, next)
            }
            _ => {
                let mut found: Vec<LogLine> = wanted.rev().take(limit).cloned().collect();
                found.reverse();
                (found, lines.last)
            }
        }
    }

    /// Lines by level since the start, including those that were evicted.
    pub fn counts(&self) -> [(&'static str, u64); 5] {
        let counts = self.0.lock().counts;
        let mut names = ["error", "warn", "info", "debug", "trace"].into_iter().zip(counts);
        std::array::from_fn(|_| names.next().unwrap_or_default())
    }
}

fn is_secret(name: &str) -> bool {
    ["password", "secret", "token", "credential", "proof"].iter().any(|word| name.contains(word))
}

fn truncate(text: &mut String) {
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(level: LogLevel, message: &str) -> LogLine {
        let (target, message) = ("throng".to_owned(), message.to_owned());
        LogLine { number: 0, time: 1, level, target, message, fields: Vec::new() }
    }

    fn messages(lines: &[LogLine]) -> Vec<&str> {
        lines.iter().map(|line| line.message.as_str()).collect()
    }

    #[test]
    fn a_reader_resumes_where_it_stopped() {
        let ring = LogBuffer::default();
        for text in ["a", "b", "c"] {
            ring.push(line(LogLevel::Info, text));
        }
        let (lines, next) = ring.read(None, LogLevel::Info, 2);
        assert_eq!((messages(&lines), next), (vec!["b", "c"], 3));
        assert_eq!(ring.read(Some(next), LogLevel::Info, 10), (Vec::new(), 3));
        ring.push(line(LogLevel::Debug, "d"));
        ring.push(line(LogLevel::Error, "e"));
        let (lines, next) = ring.read(Some(next), LogLevel::Warn, 10);
        assert_eq!((messages(&lines), next), (vec!["e"], 5));
        let (lines, next) = ring.read(Some(0), LogLevel::Trace, 2);
        assert_eq!(
            (messages(&lines), next),
            (vec!["a", "b"], 2),
            "a full answer goes on behind its last line"
        );
        let (lines, _) = ring.read(Some(900), LogLevel::Trace, 2);
        assert_eq!(messages(&lines), ["d", "e"], "a number from before a restart");
        assert_eq!(ring.counts()[..3], [("error", 1), ("warn", 0), ("info", 3)]);
    }

    #[test]
    fn lines_and_bytes_are_bounded() {
        let ring = LogBuffer::default();
        for n in 0..MAX_LINES + 5 {
            ring.push(line(LogLevel::Info, &n.to_string()));
        }
        let (lines, _) = ring.read(None, LogLevel::Info, MAX_LINES * 2);
        assert_eq!((lines.len(), lines[0].message.as_str()), (MAX_LINES, "5"));
        for _ in 0..MAX_LINES {
            ring.push(line(LogLevel::Info, &"日".repeat(5_000)));
        }
        let lines = ring.0.lock();
        assert!(lines.lines.len() > 900 && lines.bytes <= MAX_BYTES, "{} {}", lines.lines.len(), lines.bytes);
        assert!(lines.lines.iter().all(|line| line.message.len() <= MAX_TEXT_BYTES + 3));
    }

    #[test]
    fn fields_named_as_secrets_are_redacted() {
        let ring = LogBuffer::default();
        let field = |name: &str| (name.to_owned(), "hunter2".to_owned());
        ring.push(LogLine {
            fields: vec![field("new_password"), field("user")],
            ..line(LogLevel::Info, "x")
        });
        let (lines, _) = ring.read(None, LogLevel::Info, 1);
        assert_eq!(lines[0].fields, [("new_password".to_owned(), "…".to_owned()), field("user")]);
    }
}
