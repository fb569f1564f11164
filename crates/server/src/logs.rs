//! The log: structured lines on standard error, as text or JSON. No secret is ever a field.

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

use crate::config::Log;

/// Starts the log.
pub(crate) fn start(log: &Log) -> Result<()> {
    let filter = EnvFilter::try_new(&log.level).with_context(|| {
        format!("[log] level \"{}\" is not one of error, warn, info, debug, trace", log.level)
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if log.json {
        builder.json().try_init()
    } else {
        builder.with_target(false).with_ansi(false).try_init()
    };
    // A second start (tests) keeps the first log.
    let _ = started;
    Ok(())
}
