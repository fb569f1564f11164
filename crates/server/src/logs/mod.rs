//! Logging: structured lines on standard error, as text or JSON, and the last of them in memory for the console. No
//! secret is ever a field.

mod line_format;

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::log::{LogBuffer, LogLine};
use base::clock::{Clock, SystemClock};
use base::printable::printable;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{self, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogConfig;

/// The words that are valid as a level on their own.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Parses a level or a filter such as `info,throng_streams=debug`.
///
/// A single unknown word would be parsed as a target, and suppress all lines: it is more likely a typing error.
pub(crate) fn filter(level: &str) -> Result<Targets> {
    let expected = || {
        let near = features::registry::did_you_mean(level, LEVELS.into_iter());
        format!("[log] level must be one of {}, not \"{level}\"{near}", LEVELS.join(", "))
    };
    let word = level.bytes().all(|b| b.is_ascii_alphanumeric());
    if word && !LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level)) {
        bail!(expected());
    }
    level.parse::<Targets>().with_context(expected)
}

/// A running log.
pub(crate) struct LogHandle {
    set: Box<dyn Fn(Targets) + Send + Sync>,
    /// Its last lines.
    pub(crate) ring: Arc<LogBuffer>,
}

impl LogHandle {
    /// Replaces the filter.
    pub(crate) fn set(&self, filter: Targets) {
        (self.set)(filter);
    }
}

/// Starts logging.
pub(crate) fn start(log: &LogConfig) -> Result<LogHandle> {
    let (filter, handle) = tracing_subscriber::reload::Layer::new(filter(&log.level)?);
    let ring = Arc::new(LogBuffer::default());
    let ring_layer = RingLayer { ring: ring.clone(), clock: SystemClock::new() };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter).with(ring_layer);
    // A second start (tests) retains the first log.
    let _ = registry
        .with(lines.with_ansi(false).event_format(line_format::LineFormat { json: log.json }))
        .try_init();
    Ok(LogHandle { set: Box::new(move |filter| drop(handle.reload(filter))), ring })
}

/// Stores the last lines in memory, for the console.
struct RingLayer {
    ring: Arc<LogBuffer>,
    clock: SystemClock,
}

impl<S: Subscriber> Layer<S> for RingLayer {
    fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, S>) {
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => api::log::LogLevel::Error,
            tracing::Level::WARN => api::log::LogLevel::Warn,
            tracing::Level::INFO => api::log::LogLevel::Info,
            tracing::Level::DEBUG => api::log::LogLevel::Debug,
            _ => api::log::LogLevel::Trace,
        };
        let mut texts = FieldTexts::default();
        event.record(&mut texts);
        self.ring.push(LogLine {
            number: 0,
            time: self.clock.unix_millis(),
            level,
            target: event.metadata().target().to_owned(),
            message: texts.message,
            fields: texts.fields,
        });
    }
}

/// The fields of an event as texts.
#[derive(Default)]
struct FieldTexts {
    message: String,
    fields: Vec<(String, String)>,
}

impl FieldTexts {
    fn take(&mut self, field: &Field, text: String) {
        if field.name() == "message" {
            self.message = text;
        } else {
            self.fields.push((field.name().to_owned(), text));
        }
    }
}

impl Visit for FieldTexts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, printable(value, line_format::max_bytes(field)).into_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.take(field, line_format::debug_escaped(value, line_format::max_bytes(field)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_lines_keep_their_fields_and_hide_secrets() {
        let ring = Arc::new(LogBuffer::default());
        let ring_layer = RingLayer { ring: ring.clone(), clock: SystemClock::new() };
        let subscriber = tracing_subscriber::registry().with(filter("info").unwrap()).with(ring_layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(user = "romeo@example.net", tries = 3, password = "hunter2", "a login failed");
            tracing::debug!("not let through");
        });
        let (lines, next) = ring.read(None, api::log::LogLevel::Trace, 10);
        assert_eq!((lines.len(), next), (1, 1));
        assert_eq!((lines[0].level, lines[0].message.as_str()), (api::log::LogLevel::Warn, "a login failed"));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let fields = [pair("user", "romeo@example.net"), pair("tries", "3"), pair("password", "…")];
        assert_eq!(lines[0].fields, fields);
    }
}
