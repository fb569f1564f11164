//! Formatting of log lines, as text or as JSON.
//!
//! Text: `TIME LEVEL message name=value …`; a value that is more than one plain word is quoted, so it never looks
//! like another field. Lines of the audit log name their target. JSON: an object with `timestamp`, `level`, `fields`
//! (including the message) and `target`. In both, characters that end a line or act on a terminal are escaped
//! ([`base::printable`]), and texts are truncated: clients choose some of them.
//!
//! Not implemented: spans; this program has none.
//!
//! # Pitfalls
//!
//! A value formatted with `%` may be any text, so quoting depends on the formatted text.

use std::fmt::{self, Debug, Write};

use base::printable::{Printable, printable};
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Maximum bytes of a value.
pub(super) const MAX_VALUE_BYTES: usize = 1_024;
/// Maximum bytes of the message: a list of errors in a configuration may be long.
pub(super) const MAX_MESSAGE_BYTES: usize = 8_192;
/// The target that text lines name.
const AUDIT_TARGET: &str = "throng::audit";

/// Format of a line.
pub(super) struct LineFormat {
    pub(super) json: bool,
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let about = event.metadata();
        if self.json {
            let mut fields = JsonFields::default();
            event.record(&mut fields);
            let mut time = String::new();
            SystemTime.format_time(&mut Writer::new(&mut time))?;
            let level = about.level().as_str();
            return writeln!(
                to,
                "{{\"timestamp\":{},\"level\":{},\"fields\":{},\"target\":{}}}",
                json!(time),
                json!(level),
                Value::Object(fields.0),
                json!(about.target())
            );
        }
        let mut fields = TextFields::default();
        event.record(&mut fields);
        SystemTime.format_time(&mut to)?;
        write!(to, " {:>5} ", about.level().as_str())?;
        if about.target() == AUDIT_TARGET {
            write!(to, "{AUDIT_TARGET}: ")?;
        }
        writeln!(to, "{}{}", fields.message, fields.rest)
    }
}

/// The `Debug` text of a value, escaped and truncated.
pub(super) fn debug_escaped(value: &dyn Debug, most: usize) -> String {
    let mut out = Printable::new(most);
    // It stops when the buffer is full, or the value cannot be formatted.
    let _ = write!(out, "{value:?}");
    out.finish()
}

/// Maximum bytes of a field.
pub(super) fn max_bytes(field: &Field) -> usize {
    if field.name() == "message" { MAX_MESSAGE_BYTES } else { MAX_VALUE_BYTES }
}

#[derive(Default)]
struct TextFields {
    message: String,
    rest: String,
}

impl TextFields {
    /// `text` is escaped already.
    fn push_field(&mut self, field: &Field, text: &str, quoted: bool) {
        if field.name() == "message" {
            text.clone_into(&mut self.message);
            return;
        }
        let plain = |c: char| !c.is_whitespace() && !matches!(c, '"' | '=');
        self.rest.push(' ');
        self.rest.push_str(field.name().trim_start_matches("r#"));
        self.rest.push('=');
        if !quoted && !text.is_empty() && text.chars().all(plain) {
            self.rest.push_str(text);
            return;
        }
        self.rest.push('"');
        for c in text.chars() {
            if c == '"' {
                self.rest.push('\\');
            }
            self.rest.push(c);
        }
        self.rest.push('"');
    }
}

impl Visit for TextFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.push_field(field, &printable(value, max_bytes(field)), true);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.push_field(field, &debug_escaped(&format_args!("{value}"), max_bytes(field)), false);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.push_field(field, &debug_escaped(value, max_bytes(field)), false);
    }
}

#[derive(Default)]
struct JsonFields(Map<String, Value>);

impl JsonFields {
    fn insert_field(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().trim_start_matches("r#").to_owned(), value);
    }
}

impl Visit for JsonFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert_field(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert_field(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert_field(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert_field(field, json!(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert_field(field, json!(printable(value, max_bytes(field))));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.insert_field(field, json!(debug_escaped(&format_args!("{value}"), max_bytes(field))));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.insert_field(field, json!(debug_escaped(value, max_bytes(field))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::lock::LeafMutex;
    use std::io;
    use std::sync::Arc;
    use tracing_subscriber::fmt::MakeWriter;
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct Written(Arc<LeafMutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Written {
        type Writer = Written;
        fn make_writer(&'a self) -> Written {
            self.clone()
        }
    }

    fn written(json: bool, say: impl FnOnce()) -> String {
        let to = Written::default();
        let lines =
            tracing_subscriber::fmt::layer().with_writer(to.clone()).event_format(LineFormat { json });
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), say);
        let bytes = to.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    /// Text that a client may choose: a line end and a whole line of the audit log, ANSI, C1, a change of text
    /// direction.
    const FORGED: &str = "x\n2026-11-22T00:00:00.000000Z  INFO throng::audit: command who=\"admin@a.org\" outcome=\"done\"\
                          \r\x1b[2K\u{9b}1m\u{202e}\u{2028}\0";

    #[test]
    fn a_value_of_a_client_is_one_value_of_one_line() {
        let text = written(false, || {
            tracing::info!(by = %"romeo@a.org", text = %FORGED, about = FORGED, more = ?FORGED, "abuse was reported: {FORGED}");
        });
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(text.trim_end().chars().all(|c| !base::printable::is_unsafe(c)), "{text:?}");
        assert!(
            !text.contains(" who=\"admin@a.org\" outcome=\"done\"") || text.contains("reported: x\\n"),
            "{text}"
        );
        assert!(
            text.contains(
                " text=\"x\\n2026-11-22T00:00:00.000000Z  INFO throng::audit: command who=\\\"admin"
            )
        );
        let text = written(true, || {
            tracing::info!(by = %"romeo@a.org", text = %FORGED, about = FORGED, n = 7, "abuse: {FORGED}");
        });
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(text.trim_end().chars().all(|c| !base::printable::is_unsafe(c)), "{text:?}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["fields"]["by"], &line["fields"]["n"]), (&json!("romeo@a.org"), &json!(7)));
        assert_eq!((&line["level"], line["target"].as_str().is_some()), (&json!("INFO"), true));
    }

    #[test]
    fn a_value_cannot_look_like_another_field() {
        let text = written(false, || {
            tracing::info!(reason = %"spam outcome=done", empty = "", peer = %"[2001:db8::1]:80", n = 3, "said");
        });
        assert!(
            text.ends_with(" INFO said reason=\"spam outcome=done\" empty=\"\" peer=[2001:db8::1]:80 n=3\n"),
            "{text}"
        );
    }

    #[test]
    fn a_long_text_is_cut() {
        for json in [false, true] {
            let long = "y".repeat(1 << 20);
            let text = written(json, || tracing::info!(a = %long, b = long, c = ?long, "said {long}"));
            assert!(text.len() < MAX_MESSAGE_BYTES + 3 * MAX_VALUE_BYTES + 500, "{}", text.len());
        }
    }

    #[test]
    fn audit_lines_name_their_target() {
        let text = written(false, || {
            tracing::info!(target: "throng::audit", who = "operator", "command");
            tracing::warn!("command");
        });
        let mut lines = text.lines();
        assert!(lines.next().unwrap().ends_with("  INFO throng::audit: command who=\"operator\""), "{text}");
        assert!(lines.next().unwrap().ends_with("  WARN command"), "{text}");
    }
}
