//! The log: structured lines on standard error, as text or JSON. No secret is ever a field.

use anyhow::{Context, Result, bail};
use tracing_subscriber::EnvFilter;

use crate::config::Log;

/// The words that are a level by themselves.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// What a level or a filter such as `info,throng_streams=debug` lets through.
///
/// A single unknown word would be the name of a target, and let nothing through: more likely it is a slip.
pub(crate) fn filter(level: &str) -> Result<EnvFilter> {
    let expected = || {
        let near = features::registry::nearest(level, LEVELS.into_iter());
        format!("[log] level \"{level}\" is not one of {}{near}", LEVELS.join(", "))
    };
    let word = level.bytes().all(|b| b.is_ascii_alphanumeric());
    if word && !LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level)) {
        bail!(expected());
    }
    EnvFilter::try_new(level).with_context(expected)
}

/// The level of a log that runs.
pub(crate) struct Level(Box<dyn Fn(EnvFilter) + Send + Sync>);

impl Level {
    /// From now on this is let through.
    pub(crate) fn set(&self, filter: EnvFilter) {
        (self.0)(filter);
    }
}

/// Starts the log.
pub(crate) fn start(log: &Log) -> Result<Level> {
    let filter = filter(&log.level)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    macro_rules! start {
        ($builder:expr) => {{
            let builder = $builder.with_filter_reloading();
            let handle = builder.reload_handle();
            // A second start (tests) keeps the first log.
            let _ = builder.try_init();
            Level(Box::new(move |filter| drop(handle.reload(filter))))
        }};
    }
    Ok(if log.json { start!(builder.json()) } else { start!(builder.with_target(false).with_ansi(false)) })
}
