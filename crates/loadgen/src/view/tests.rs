//! Tests of the rendered view: values, widths, hostile names, and redrawing on a terminal.

use super::draw::{TerminalCapabilities, render};
use super::line::{ascii, columns, fit, safe, wrapped};
use super::*;
use crate::measure::{Counter, Gauge, Timing};
use crate::report::model::{CounterTotal, PhaseRun, RunInfo, SecondReport, ServerSample, TimingTotal};

fn screen(width: usize) -> TerminalCapabilities {
    TerminalCapabilities { width, height: 60, colour: false, unicode: true }
}

fn summary(count: u64, p50: u64) -> TimingSummary {
    TimingSummary {
        count,
        p50,
        p90: p50 * 2,
        p99: p50 * 4,
        p999: p50 * 5,
        max: p50 * 6,
        ..TimingSummary::default()
    }
}

/// A run of `seconds` seconds with predictable values: second `n` delivers `100 + n` messages.
fn run(seconds: u32) -> RunRecord {
    let mut run = RunRecord {
        about: RunInfo {
            plan: "tigase-roster-10".into(),
            target: "127.0.0.1:5222".into(),
            label: "throng".into(),
            connections: 15_000,
            ..RunInfo::default()
        },
        phases: vec![PhaseRun { name: "ramp".into(), from: 0 }],
        ..RunRecord::default()
    };
    for at in 0..seconds {
        let counters = [
            (Counter::UsersStarted, 50),
            (Counter::Logins, 49),
            (Counter::MessagesSent, 230),
            (Counter::MessagesDelivered, 100 + u64::from(at)),
            (Counter::PresenceReceived, 12_340),
            (Counter::BytesIn, 1_200_000),
            (Counter::BytesOut, 340_000),
        ];
        let gauges = [
            (Gauge::Users, 12_000),
            (Gauge::Connected, 11_990),
            (Gauge::Online, 11_980),
            (Gauge::Acceptable, 11_970),
            (Gauge::UnderWay, 17),
        ];
        run.seconds.push(SecondReport {
            at,
            counters: counters.map(|(c, n)| (c.name().to_owned(), n)).into(),
            gauges: gauges.map(|(g, n)| (g.name().to_owned(), n)).into(),
            timings: [(Timing::Message.name().to_owned(), summary(100, 700 + u64::from(at)))].into(),
            busiest_cpu: 0.42,
            generator_rss: 21_500_000,
            ..SecondReport::default()
        });
    }
    let total = |total| CounterTotal { total, ..CounterTotal::default() };
    for (counter, count) in [
        (Counter::MessagesSent, 1_234_600),
        (Counter::MessagesDelivered, 1_234_567),
        (Counter::MessagesDuplicate, 3),
        (Counter::SessionsLost, 2),
    ] {
        run.totals.counters.insert(counter.name().to_owned(), total(count));
    }
    for (kind, count) in [("a", 1), ("connect:refused", 40), ("iq:timeout", 5), ("b", 4), ("c", 3)] {
        run.totals.errors.insert(kind.to_owned(), total(count));
    }
    for name in ["login", "message", "presence", "roster", "ping", "tr:first page"] {
        let timing = TimingTotal { summary: summary(1_000, 100), ..TimingTotal::default() };
        run.totals.timings.insert(name.to_owned(), timing);
    }
    run.server.push(ServerSample { at: seconds, cpu: 1.37, rss: 345_000_000, ..ServerSample::default() });
    run
}

fn live(elapsed: f64) -> LiveContext {
    LiveContext {
        phase: 1,
        phases: 3,
        phase_name: "ramp".into(),
        phase_elapsed: elapsed / 2.0,
        phase_expected: Some(elapsed),
        elapsed,
        expected: Some(120.0),
        connections: 15_000,
        workers_alive: 2,
        workers: 2,
        recent: [
            ("login".to_owned(), summary(490, 3_000)),
            ("message".to_owned(), summary(2_300, 775)),
            ("lateness".to_owned(), summary(9_000, 100)),
            ("tr:first page".to_owned(), summary(7, 50_000)),
        ]
        .into(),
        ..LiveContext::default()
    }
}

fn line<'a>(lines: &'a [String], beginning: &str) -> &'a str {
    lines
        .iter()
        .find(|line| line.starts_with(beginning))
        .unwrap_or_else(|| panic!("{beginning} in {lines:#?}"))
}

/// Minimal terminal emulator: its lines and the cursor.
struct Terminal {
    lines: Vec<String>,
    row: usize,
    column: usize,
    highest: usize,
}

impl Terminal {
    fn new() -> Self {
        Self { lines: vec![String::new()], row: 0, column: 0, highest: 0 }
    }

    fn feed(&mut self, bytes: &[u8]) {
        let text = std::str::from_utf8(bytes).expect("UTF-8");
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '\r' => self.column = 0,
                '\n' => {
                    self.row += 1;
                    if self.row == self.lines.len() {
                        self.lines.push(String::new());
                    }
                }
                '\x1b' => {
                    assert_eq!(chars.next(), Some('['));
                    let mut number = String::new();
                    let end = loop {
                        let c = chars.next().expect("an end");
                        if c.is_ascii_alphabetic() {
                            break c;
                        }
                        number.push(c);
                    };
                    match end {
                        'A' => {
                            let up: usize = number.parse().expect("a number");
                            self.row = self.row.checked_sub(up).expect("not above the screen");
                            self.highest = up;
                        }
                        'K' => {
                            assert_eq!(self.column, 0);
                            self.lines[self.row].clear();
                        }
                        'J' => {
                            self.lines.truncate(self.row + 1);
                            self.lines[self.row].clear();
                        }
                        'm' => {}
                        other => panic!("{other}"),
                    }
                }
                c => {
                    self.lines[self.row].push(c);
                    self.column += 1;
                }
            }
        }
    }
}

fn block() -> LiveView {
    LiveView { mode: ViewMode::Block(Vec::new()), colour: false, unicode: true }
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let mut hostile = run(70);
    hostile.about.plan = "長い名前".repeat(40);
    hostile.warnings = vec!["wörter".repeat(60), "short words and many of them ".repeat(20)];
    for (run, live) in [
        (run(70), live(71.0)),
        (hostile, LiveContext { stopping: true, recent: BTreeMap::new(), ..live(1e9) }),
        (RunRecord::default(), LiveContext::default()),
    ] {
        for width in (1..=140).chain([40, 80, 120]) {
            for unicode in [true, false] {
                for ended in [true, false] {
                    for line in render(&run, &live, TerminalCapabilities { unicode, ..screen(width) }, ended)
                    {
                        assert!(
                            columns(&line) <= width && line.chars().count() <= width,
                            "{width}: {line:?}"
                        );
                        assert!(unicode || line.is_ascii(), "{line:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_view_shows_the_metrics_of_the_run() {
    let lines = render(&run(70), &live(70.5), screen(120), false);
    let found = |beginning: &str, parts: &[&str]| {
        let line = line(&lines, beginning);
        parts.iter().for_each(|part| assert!(line.contains(part), "{part} in {line}"));
    };
    found("tigase-roster-10 against throng (127.0.0.1:5222)", &["1:11 / 2:00"]);
    found("█", &["phase 2 of 3 ramp 0:35 / 1:11"]);
    found("Users", &["12 000", "connected 11 990", "online 11 980", "acceptable 11 970 of 15 000"]);
    found("Per second", &["arrivals 50", "logins 49", "sent 230", "delivered 169", "presence 12.3 k"]);
    assert!(lines.iter().any(|line| line.contains("in 1.2 MB, out 340 kB")), "{lines:#?}");
    found("Last 10 s", &["count", "p50", "p90", "p99", "max"]);
    found("  login", &["490", "3 ms", "6 ms", "12 ms", "18 ms"]);
    found("  message", &["2300", "775 µs", "1.55 ms", "3.1 ms", "4.65 ms"]);
    found("  roster", &["–"]);
    found("  “first page”", &["7", "50 ms"]);
    found(
        "So far",
        &["delivered 1 234 567", "in flight 17", "duplicated 3", "out of order 0", "sessions lost 2"],
    );
    found("Errors", &["53 in all", "connect:refused 40", "iq:timeout 5", "b 4", "c 3"]);
    assert!(!line(&lines, "Errors").contains("a 1"), "four kinds");
    found("Generator", &["CPU 42 %", "memory 21.5 MB", "late p99 400 µs", "workers 2 of 2"]);
    found("Server", &["CPU 137 %", "memory 345 MB"]);
    found("Delivered/s", &["█ up to 169"]);
    found("Message p99", &["█ up to 3.08 ms"]);
    found("Ctrl-C ends the run gracefully", &[]);
    let endless = LiveContext { phase_name: "holding".into(), phase_expected: None, ..live(70.0) };
    let died = LiveContext { workers_alive: 1, ..live(70.5) };
    assert!(line(&render(&run(70), &died, screen(120), false), "Generator").contains("workers 1 of 2"));
    line(&render(&run(70), &endless, screen(120), false), "phase 2 of 3 holding 0:35");
    assert!(!lines.iter().any(|line| line.starts_with('!')), "nothing to warn of: {lines:#?}");
}

#[test]
fn limits_of_the_generator_are_shown_immediately() {
    let (mut run, mut live) = (run(20), live(20.5));
    live.recent
        .insert("lateness".to_owned(), TimingSummary { count: 9, p99: 5_001, ..TimingSummary::default() });
    run.seconds[19].busiest_cpu = 0.91;
    let lines = render(&run, &live, screen(80), false);
    line(&lines, "! The generator is late: 5 ms at p99");
    line(&lines, "! A worker uses 91 % of its core");
    let silent = render(&run, &LiveContext { elapsed: 30.0, ..live.clone() }, screen(80), false);
    line(&silent, "! No report from the workers for 10 s");
    live.recent
        .insert("lateness".to_owned(), TimingSummary { count: 9, p99: 5_000, ..TimingSummary::default() });
    run.seconds[19].busiest_cpu = 0.9;
    assert!(!render(&run, &live, screen(80), false).iter().any(|line| line.starts_with('!')));
}

#[test]
fn an_incomplete_second_has_no_rates() {
    let mut run = run(20);
    let lost = [(Counter::SessionsLost.name().to_owned(), 7)].into();
    run.seconds.push(SecondReport { at: 20, counters: lost, ..SecondReport::default() });
    assert!(line(&render(&run, &live(20.5), screen(80), false), "Per second").contains("logins 49"));
}

#[test]
fn a_run_without_data_shows_no_values() {
    let lines = render(
        &RunRecord::default(),
        &LiveContext { elapsed: 1.5, ..LiveContext::default() },
        screen(80),
        false,
    );
    assert!(line(&lines, "So far").contains("delivered 0"));
    assert!(line(&lines, "Generator").contains("late p99 –"));
    for absent in ["Last 10 s", "Server", "Delivered/s", "Message p99", "!", "phase"] {
        assert!(!lines.iter().any(|line| line.starts_with(absent)), "{absent} in {lines:#?}");
    }
}

#[test]
fn narrow_terminals_keep_what_matters() {
    let lines = render(&run(70), &live(70.5), screen(40), false);
    assert!(line(&lines, "Users").contains("online 11 980"));
    assert!(lines.iter().any(|line| line.starts_with("Per second  ")), "labels stand apart: {lines:#?}");
    let header = line(&lines, "Last 10 s");
    assert!(header.contains("p99") && header.contains("p50") && !header.contains("p90"), "{header}");
    assert!(line(&lines, "So far").contains("delivered 1 234 567"));
    assert!(
        lines.iter().any(|line| line.contains("duplicated 3"))
            && lines.iter().any(|l| l.contains("sessions lost 2"))
    );
}

#[test]
fn low_terminals_keep_what_matters_and_the_first_line() {
    for height in 1..40 {
        let lines = render(&run(70), &live(70.5), TerminalCapabilities { height, ..screen(80) }, false);
        assert!(lines.len() < height.max(2), "{height}: {}", lines.len());
        assert!(lines[0].starts_with("tigase-roster-10"));
    }
    let lines = render(&run(70), &live(70.5), TerminalCapabilities { height: 12, ..screen(80) }, false);
    for kept in ["Users", "So far", "Errors", "Generator", "Ctrl-C"] {
        line(&lines, kept);
    }
    let mut warned = run(70);
    warned.warnings = vec!["many words ".repeat(30)];
    for (height, expected) in [(22, 1), (40, 2)] {
        let lines = render(&warned, &live(70.5), TerminalCapabilities { height, ..screen(80) }, false);
        let first = lines.iter().position(|line| line.starts_with("! many")).expect("the warning");
        let count = lines[first..].iter().filter(|line| line.contains("words")).count();
        assert_eq!(count, expected, "{lines:#?}");
        assert!(lines[first + expected - 1].ends_with('…'), "what is missing is seen to be missing");
    }
}

#[test]
fn names_cannot_contain_terminal_control_sequences() {
    let evil = "a\x1b[2J\x1b]0;title\x07b\u{9b}31mc\r\nd\x08\u{202e}e\x1bPq\x1b\\f\x1b(Bg\x7f\x1b";
    assert_eq!(safe(evil), "abc  defg");
    assert_eq!(safe("\x1b]0;never ends"), "");
    let mut run = run(5);
    run.about.plan = evil.into();
    run.about.label = evil.into();
    run.about.end = evil.into();
    run.warnings = vec![evil.into()];
    run.totals.errors.insert(evil.into(), CounterTotal { total: 99, ..CounterTotal::default() });
    let mut live = live(5.5);
    live.phase_name = evil.into();
    live.recent.insert(format!("tr:{evil}"), summary(1, 1));
    for ended in [false, true] {
        let mut lines = render(&run, &live, screen(120), ended);
        let mut log = PlainLog::default();
        lines.extend(if ended { log.finish(&run, &live) } else { log.update(&run, &live) });
        for line in &lines {
            assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
        }
        assert!(lines.iter().any(|line| line.contains("abc  defg")));
    }
}

#[test]
fn colour_adds_nothing_but_colour() {
    let (run, live) = (run(70), live(70.5));
    let bare = render(&run, &live, screen(80), false);
    let coloured = render(&run, &live, TerminalCapabilities { colour: true, ..screen(80) }, false);
    assert!(bare.iter().all(|line| !line.contains('\x1b')));
    assert!(coloured.iter().any(|line| line.contains("\x1b[31m")));
    let stripped: Vec<_> = coloured.iter().map(|line| safe(line).trim_end().to_owned()).collect();
    assert_eq!(bare, stripped);
    assert!(
        coloured.iter().all(|line| line.matches("\x1b[").count() % 2 == 0),
        "each style ends in its line"
    );
    assert!(colour(None) && colour(Some("")) && !colour(Some("1")));
}

#[test]
fn utf_8_locales_enable_unicode() {
    assert!(unicode(Some("en_GB.UTF-8")) && unicode(Some("C.utf8")));
    assert!(!unicode(Some("C")) && !unicode(None));
    assert_eq!(ascii("5 µs … ░█ “é”"), "5 us . .# \"?\"");
}

#[test]
fn redrawing_overwrites_exactly_the_previous_frame() {
    let mut view = block();
    let mut terminal = Terminal::new();
    terminal.feed(b"$ throng load\r\n");
    let (long, short) = (run(70), RunRecord::default());
    let mut before = 0;
    for (run, height) in [(&long, 60), (&long, 60), (&short, 60), (&long, 12), (&long, 60)] {
        let mut bytes = Vec::new();
        view.show(&mut bytes, run, &live(70.5), (80, height), false).expect("a Vec");
        terminal.highest = 0;
        terminal.feed(&bytes);
        assert_eq!(terminal.highest, before, "up by what was drawn before");
        let expected = render(run, &live(70.5), TerminalCapabilities { height, ..screen(80) }, false);
        assert_eq!(terminal.lines[0], "$ throng load");
        assert_eq!(terminal.lines[1..terminal.lines.len() - 1], expected);
        assert_eq!((terminal.row, terminal.column), (1 + expected.len(), 0), "below the block");
        // The next redraw erases the `^C` that the terminal echoes.
        terminal.feed(b"^C");
        before = expected.len();
    }
}

#[test]
fn redrawing_accounts_for_lines_wrapped_by_a_narrower_terminal() {
    assert!(redraw(&[80, 10, 0, 81], &[], 40).starts_with("\r\x1b[7A"), "2 + 1 + 1 + 3");
    assert!(redraw(&[40, 10], &[], 80).starts_with("\r\x1b[2A"));
    assert!(redraw(&[], &[], 80).starts_with("\r\x1b[J"));
}

#[test]
fn the_last_frame_stays_above_an_empty_line() {
    let mut view = block();
    let mut terminal = Terminal::new();
    let mut run = run(70);
    let mut bytes = Vec::new();
    view.update(&mut bytes, &run, &live(70.5)).expect("a Vec");
    run.about.end = "finished".into();
    view.finish(&mut bytes, &run, &live(71.0)).expect("a Vec");
    terminal.feed(&bytes);
    assert_eq!(terminal.lines.pop().as_deref(), Some(""));
    assert_eq!((terminal.row, terminal.column), (terminal.lines.len(), 0));
    assert_eq!(terminal.lines.last().map(String::as_str), Some("The run has finished."));
    assert!(!terminal.lines.iter().any(|line| line.contains("Ctrl-C") || line.starts_with("Per second")));
}

#[test]
fn the_second_ctrl_c_is_offered_while_the_run_ends() {
    let live = LiveContext { stopping: true, ..live(70.5) };
    for (width, expected) in [
        (
            120,
            "Ending: waiting for 17 messages in flight, then streams are closed; Ctrl-C again \
             stops immediately",
        ),
        (80, "Ending: 17 messages in flight; Ctrl-C again stops immediately"),
        (40, "Ending; Ctrl-C again stops immediately"),
    ] {
        assert_eq!(render(&run(70), &live, screen(width), false).last().map(String::as_str), Some(expected));
    }
}

#[test]
fn plain_lines_come_every_five_seconds_and_at_each_phase() {
    let mut log = PlainLog::default();
    let mut lines = Vec::new();
    for second in 1..=21_u32 {
        let phase = usize::from(second > 7);
        let elapsed = f64::from(second) + 0.5;
        let live = LiveContext { phase, phase_name: ["ramp", "hold"][phase].into(), ..live(elapsed) };
        lines.extend(log.update(&run(second), &live));
    }
    let seconds: Vec<_> = lines
        .iter()
        .map(|line| line.trim_start().split("  ").take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        seconds,
        ["1 s ramp 1/3", "5 s ramp 1/3", "8 s hold 2/3", "10 s hold 2/3", "15 s hold 2/3", "20 s hold 2/3"]
    );
    assert_eq!(
        lines[5],
        "   20 s  hold 2/3  users 12 000  online 11 980  acceptable 11 970  logins 49/s  messages 117/s  in flight 17  p99 login 12 ms message 3.1 ms  errors 53  sessions lost 2  late p99 400 µs  CPU 42 %  server CPU 137 %"
    );
}

#[test]
fn plain_warnings_are_printed_once_although_their_numbers_change() {
    let mut log = PlainLog::default();
    let mut run = run(3);
    let mut warnings = |run: &RunRecord| -> Vec<String> {
        log.update(run, &live(3.5)).into_iter().filter(|line| line.contains('!')).collect()
    };
    run.warnings = vec!["The generator was late: in 1 of 2 seconds (worst 12.3 ms)".into()];
    assert_eq!(warnings(&run), ["  ! The generator was late: in 1 of 2 seconds (worst 12.3 ms)"]);
    run.warnings = vec![
        "worker 1 (local, process 7) died in second 3".into(),
        "worker 2 (local, process 8) died in second 3".into(),
        "The generator was late: in 14 of 20 seconds (worst 123.4 ms)".into(),
    ];
    assert_eq!(warnings(&run).len(), 2, "both workers, nothing else");
    assert_eq!(warnings(&run), [""; 0]);
}

#[test]
fn the_last_plain_line_has_the_totals() {
    let mut view = LiveView { mode: ViewMode::Plain(PlainLog::default()), colour: true, unicode: false };
    let mut run = run(3);
    run.about.end = "interrupted".into();
    let mut bytes = Vec::new();
    view.finish(&mut bytes, &run, &live(62.0)).expect("a Vec");
    assert_eq!(
        String::from_utf8(bytes).expect("UTF-8"),
        "   62 s  end: interrupted  logins 0  sent 1 234 600  delivered 1 234 567  lost 0  duplicated 3  out of order 0  refused 0  sessions lost 2  errors 53\n"
    );
}

#[test]
fn quiet_mode_prints_nothing() {
    let mut view = LiveView::new(false, true);
    let mut bytes = Vec::new();
    view.update(&mut bytes, &run(3), &live(3.0)).expect("a Vec");
    view.finish(&mut bytes, &run(3), &live(3.0)).expect("a Vec");
    assert!(bytes.is_empty());
}

#[test]
fn texts_are_cut_by_columns() {
    assert_eq!(fit("日本語", 6), "日本語");
    assert_eq!(fit("日本語", 5), "日本…");
    assert_eq!(fit("日本語", 4), "日…");
    assert_eq!(fit("abc", 0), "");
    assert_eq!(wrapped("one two three four", 9, 2), ["one two", "three…"]);
    assert_eq!(wrapped("one two", 9, 2), ["one two"]);
    assert_eq!(wrapped("", 9, 2), [""; 0]);
}
