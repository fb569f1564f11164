//! `throng top`: live metrics of a running node, once a second, until q.
//!
//! The node answers the request of `throng status` once a second; rates over one and ten seconds are computed here.
//! The terminal uses its alternate screen without echo meanwhile, and both are restored at the end.
//!
//! Not implemented: colours, and keys other than q.
//!
//! # Pitfalls
//!
//! Every exit of this loop must drop [`AlternateScreen`], so signals are keys here: Ctrl-C arrives as a byte.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use base::clock::{Clock, Millis, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use serde_json::Value;

use crate::admin::{AdminRequest, AdminResponse};
use crate::config::NodeConfig;
use crate::output;
use crate::units::{bytes, whole};

/// Seconds over which the second column is averaged.
const AVERAGE_SECONDS: usize = 10;
/// Assumed size if the terminal does not report one.
const DEFAULT_TERMINAL_SIZE: (usize, usize) = (80, 24);

/// Shows the metrics.
pub(crate) fn command(config: Option<&Path>, once: bool) -> Result<()> {
    let socket = NodeConfig::load(config)?.socket();
    let stream = UnixStream::connect(&socket).with_context(|| crate::admin::not_running(&socket, config))?;
    let mut node = StatusConnection { stream: BufReader::new(stream), clock: SystemClock::new() };
    let mut history = History::default();
    history.push(node.poll_status()?);
    if once || !std::io::stdout().is_terminal() {
        wait_for_input(1000, None);
        history.push(node.poll_status()?);
        render(&history, DEFAULT_TERMINAL_SIZE).iter().for_each(|line| output::line(line.trim_end()));
        return Ok(());
    }
    let mut screen = AlternateScreen::open().context("cannot use the terminal; try --once")?;
    loop {
        screen.show(&render(&history, terminal_size()))?;
        let requested_at = node.clock.now();
        while node.clock.now().since(requested_at) < 1000 {
            let left = 1000 - node.clock.now().since(requested_at);
            if wait_for_input(left, Some(std::io::stdin())) && quits(&read_keys()) {
                return Ok(());
            }
        }
        history.push(node.poll_status()?);
    }
}

/// Connection to the node.
struct StatusConnection {
    stream: BufReader<UnixStream>,
    clock: SystemClock,
}

impl StatusConnection {
    fn poll_status(&mut self) -> Result<StatusSample> {
        let mut line = serde_json::to_vec(&AdminRequest::Status)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).context("the connection to the node was lost")?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer).context("the connection to the node was lost")?;
        let answer: AdminResponse =
            serde_json::from_str(&answer).map_err(|_| anyhow!("the connection to the node was lost"))?;
        if let Some(error) = answer.error {
            return Err(anyhow!(error));
        }
        Ok(StatusSample { at: self.clock.now(), figures: answer.status.unwrap_or_default() })
    }
}

/// One response of the node.
#[derive(Clone, Debug)]
struct StatusSample {
    at: Millis,
    figures: Value,
}

impl StatusSample {
    fn number(&self, path: &str) -> f64 {
        self.find(path).and_then(Value::as_f64).unwrap_or_default()
    }

    fn text(&self, key: &str) -> &str {
        self.figures[key].as_str().unwrap_or_default()
    }

    /// Looks up a path such as `queued_bytes` or `rate_limited.bytes`.
    fn find(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(&self.figures, |value, key| value.get(key))
    }

    /// The members of an object above zero as `name value`, or `none`.
    fn nonzero_parts(&self, key: &str) -> String {
        let all = self.figures[key].as_object();
        let shown = all.into_iter().flatten().filter(|(_, value)| value.as_f64().unwrap_or_default() > 0.0);
        let list: Vec<String> =
            shown.map(|(name, value)| format!("{name} {}", whole(value_of(value)))).collect();
        if list.is_empty() { "none".to_owned() } else { list.join("  ") }
    }
}

fn value_of(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

/// The last responses, the newest last.
#[derive(Default)]
struct History(VecDeque<StatusSample>);

impl History {
    fn push(&mut self, sample: StatusSample) {
        // A restarted node counts from zero.
        if self.0.back().is_some_and(|last| sample.number("up_seconds") < last.number("up_seconds")) {
            self.0.clear();
        }
        self.0.push_back(sample);
        if self.0.len() > AVERAGE_SECONDS + 1 {
            self.0.pop_front();
        }
    }

    /// Increase of a counter per second, over at most this number of seconds.
    fn rate(&self, path: &str, seconds: usize) -> f64 {
        let Some(now) = self.0.back() else { return 0.0 };
        let first = self.0.len().saturating_sub(seconds + 1);
        let then = &self.0[first];
        let span = now.at.since(then.at) as f64 / 1000.0;
        if span <= 0.0 { 0.0 } else { (now.number(path) - then.number(path)).max(0.0) / span }
    }
}

impl History {
    /// Increase of a sum divided by the increase of a count, over all samples.
    fn mean(&self, sum: &str, count: &str) -> f64 {
        let count = self.rate(count, AVERAGE_SECONDS);
        if count <= 0.0 { 0.0 } else { self.rate(sum, AVERAGE_SECONDS) / count }
    }
}

/// Counters shown as rates: title and path.
const RATES: [(&str, &str); 12] = [
    ("logins", "logins"),
    ("failed logins", "login_failures"),
    ("messages in", "messages_in"),
    ("messages out", "messages_out"),
    ("presence in", "presence_in"),
    ("presence out", "presence_out"),
    ("IQ in", "iq_in"),
    ("IQ out", "iq_out"),
    ("offline stored", "offline_stored"),
    ("offline delivered", "offline_delivered"),
    ("blocked on store", "blocked_on_store"),
    ("bounced", "sent_back"),
];

/// Renders one screen. No line is wider than the terminal, and there are no more lines than it has.
fn render(history: &History, (width, height): (usize, usize)) -> Vec<String> {
    let Some(now) = history.0.back() else { return Vec::new() };
    let count = |path: &str| whole(now.number(path));
    let mut lines = vec![
        format!(
            "Throng {}   {}   up {}",
            now.text("version"),
            now.text("domains"),
            format_uptime(now.number("up_seconds") as u64)
        ),
        format!(
            "online  users {}  sessions {}  connections {}",
            count("accounts_online"),
            count("sessions"),
            count("connections")
        ),
        format!(
            "streams {}  unauthenticated {}",
            now.nonzero_parts("streams"),
            count("unauthenticated_connections")
        ),
        format!(
            "CPU {:.0} %  memory {}  queues {}  sweep lag {} ms, max {} ms",
            history.rate("cpu_seconds", 1) * 100.0,
            bytes(now.number("memory_bytes")),
            bytes(now.number("queued_bytes")),
            now.number("sweep_lag_ms"),
            now.number("sweep_lag_max_ms")
        ),
        format!(
            "storage {}/s  commits {}/s  waiting {}  readers {} of {}, wait {:.1} ms",
            format_rate(history.rate("database_round_trips", 1)),
            format_rate(history.rate("database_commits", 1)),
            count("database_waiting"),
            count("pool_used"),
            count("pool_size"),
            history.mean("pool_wait_seconds", "pool_waits") * 1000.0
        ),
        String::new(),
        format!("{:<20}{:>12}{:>12}{:>16}", "", "now/s", "10 s/s", "total"),
    ];
    for (title, path) in RATES {
        let (one, ten) = (history.rate(path, 1), history.rate(path, AVERAGE_SECONDS));
        lines.push(format!("{title:<20}{:>12}{:>12}{:>16}", format_rate(one), format_rate(ten), count(path)));
    }
    lines.push(String::new());
    lines.push(format!(
        "dropped  presence {}  queue full {}",
        count("presence_dropped"),
        count("queue_full")
    ));
    lines.push(format!("limited  {}", now.nonzero_parts("rate_limited")));
    lines.push(format!("refused  {}", now.nonzero_parts("connections_refused")));
    lines.push("q quits".to_owned());
    if lines.len() > height {
        // The last line shows how to quit: it stays.
        lines.drain(height.saturating_sub(1)..lines.len() - 1);
    }
    lines.into_iter().map(|line| line.chars().take(width).collect()).collect()
}

fn format_uptime(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let clock = format!("{hours:02}:{:02}:{:02}", seconds / 60 % 60, seconds % 60);
    if days > 0 { format!("{days} d {clock}") } else { clock }
}

fn format_rate(value: f64) -> String {
    if value > 0.0 && value < 9.95 { format!("{value:.1}") } else { whole(value) }
}

/// Columns and lines of the terminal.
fn terminal_size() -> (usize, usize) {
    let Ok(size) = tcgetwinsize(std::io::stdout()) else { return DEFAULT_TERMINAL_SIZE };
    let or = |value: u16, otherwise: usize| if value == 0 { otherwise } else { usize::from(value) };
    (or(size.ws_col, DEFAULT_TERMINAL_SIZE.0), or(size.ws_row, DEFAULT_TERMINAL_SIZE.1))
}

/// Waits for input; true if there is some before the timeout.
fn wait_for_input(ms: u64, keys: Option<std::io::Stdin>) -> bool {
    let timeout = Timespec {
        tv_sec: i64::try_from(ms / 1000).unwrap_or(1),
        tv_nsec: i64::try_from(ms % 1000 * 1_000_000).unwrap_or(0),
    };
    match &keys {
        Some(keys) => poll(&mut [PollFd::new(keys, PollFlags::IN)], Some(&timeout)).is_ok_and(|n| n > 0),
        None => poll(&mut [], Some(&timeout)).is_ok_and(|n| n > 0),
    }
}

/// Reads the typed bytes. Empty at the end of the input, which quits as well.
fn read_keys() -> Vec<u8> {
    let mut keys = [0; 64];
    let count = rustix::io::read(std::io::stdin(), &mut keys).unwrap_or(0);
    keys[..count].to_vec()
}

/// Whether to quit: q, Q, Ctrl-C, Ctrl-D, or a closed terminal.
fn quits(keys: &[u8]) -> bool {
    keys.is_empty() || keys.iter().any(|key| matches!(key, b'q' | b'Q' | 3 | 4))
}

/// The alternate screen of the terminal, without echo.
struct AlternateScreen {
    before: Termios,
}

impl AlternateScreen {
    fn open() -> Result<AlternateScreen> {
        let before = tcgetattr(std::io::stdin())?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw)?;
        let screen = AlternateScreen { before };
        // Alternate screen, hidden cursor.
        screen.write("\x1b[?1049h\x1b[?25l")?;
        Ok(screen)
    }

    fn write(&self, text: &str) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Writes all lines at once, so that no partial screen is visible.
    fn show(&mut self, lines: &[String]) -> Result<()> {
        let mut text = String::from("\x1b[H");
        for (at, line) in lines.iter().enumerate() {
            if at > 0 {
                text.push_str("\r\n");
            }
            text.push_str("\x1b[K");
            text.push_str(line);
        }
        text.push_str("\x1b[J");
        Ok(self.write(&text)?)
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        let _ = self.write("\x1b[?25h\x1b[?1049l");
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample(second: u64, messages: u64) -> StatusSample {
        let figures = json!({
            "version": "0.1.0", "domains": "example.org, example.net", "up_seconds": 90_000 + second,
            "accounts_online": 1_234_567, "sessions": 1_300_000, "connections": 1_300_010, "unauthenticated_connections": 10,
            "streams": {"c2s": 300_000, "c2s-tls": 1_000_000}, "messages_in": messages,
            "memory_bytes": 2_600_000_000_u64, "queued_bytes": 1_500, "sweep_lag_ms": 0.4, "sweep_lag_max_ms": 12.5,
            "database_waiting": 4, "pool_size": 12, "pool_used": 3,
            "pool_waits": second * 10, "pool_wait_seconds": second as f64 * 0.025,
            "cpu_seconds": second as f64 * 1.5, "rate_limited": {"bytes": 3, "presence": 0},
            "connections_refused": {"full": 0, "address": 0, "rate": 0},
        });
        StatusSample { at: Millis(second * 1000), figures }
    }

    fn history(samples: &[(u64, u64)]) -> History {
        let mut history = History::default();
        samples.iter().for_each(|(second, messages)| history.push(sample(*second, *messages)));
        history
    }

    #[test]
    fn the_screen_fits_eighty_by_twenty_four_and_shows_every_value() {
        let history = history(&[(0, 0), (1, 1000), (2, 3000)]);
        let lines = render(&history, (80, 24));
        assert_eq!(lines.len(), 24, "{lines:#?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        let text = lines.join("\n");
        for part in [
            "Throng 0.1.0   example.org, example.net   up 1 d 01:00:02",
            "users 1 234 567  sessions 1 300 000",
            "streams c2s 300 000  c2s-tls 1 000 000",
            "CPU 150 %  memory 2 600 MB  queues 1 500 B  sweep lag 0.4 ms, max 12.5 ms",
            "storage 0/s  commits 0/s  waiting 4  readers 3 of 12, wait 2.5 ms",
            "messages in                2 000       1 500           3 000",
            "limited  bytes 3",
            "refused  none",
            "q quits",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
    }

    #[test]
    fn a_small_terminal_shows_fewer_rows_and_how_to_quit() {
        let lines = render(&history(&[(0, 0), (1, 5)]), (30, 8));
        assert_eq!(lines.len(), 8);
        assert!(lines.iter().all(|line| line.chars().count() <= 30));
        assert_eq!(lines.last().map(String::as_str), Some("q quits"));
        assert!(render(&history(&[(0, 0)]), (5, 1)).len() == 1);
        assert!(render(&History::default(), (80, 24)).is_empty());
    }

    #[test]
    fn averages_cover_ten_seconds_and_restart_with_the_node() {
        let samples: Vec<_> = (0..=30).map(|n| (n, if n > 20 { (n - 20) * 100 } else { 0 })).collect();
        let mut history = history(&samples);
        assert_eq!(history.0.len(), AVERAGE_SECONDS + 1);
        assert!((history.rate("messages_in", AVERAGE_SECONDS) - 100.0).abs() < 1e-6);
        let mut fresh = sample(31, 7);
        fresh.figures["up_seconds"] = json!(1);
        history.push(fresh);
        assert_eq!((history.0.len(), history.rate("messages_in", 1)), (1, 0.0));
    }

    #[test]
    fn numbers_are_short_and_readable() {
        assert_eq!([whole(0.0), whole(999.0), whole(1_234_567.4)], ["0", "999", "1 234 567"]);
        assert_eq!(
            [format_rate(0.0), format_rate(0.5), format_rate(9.96), format_rate(1500.0)],
            ["0", "0.5", "10", "1 500"]
        );
        assert_eq!([bytes(10.0), bytes(20_000.0), bytes(3e9)], ["10 B", "20 kB", "3 000 MB"]);
        assert_eq!([format_uptime(59), format_uptime(90_061)], ["00:00:59", "1 d 01:01:01"]);
        assert!(quits(b"q") && quits(&[3]) && quits(b"") && !quits(b"x\r"));
    }
}
