//! What the pages of the crate `api` ask of this program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::reload::Running;

/// What the API asks of the program.
pub(crate) struct Pages {
    pub(crate) running: Arc<Running>,
    pub(crate) ready: Arc<AtomicBool>,
}

impl api::Machine for Pages {
    fn ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    fn metrics(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.running.wired.registry.lock())?;
        self.gauges(&mut text);
        Ok(text)
    }

    fn figures(&self) -> serde_json::Value {
        crate::status::figures(&self.running)
    }

    fn alternatives(&self, host: Option<&str>, secure: bool) -> Vec<(&'static str, String)> {
        self.running.with_config(|config| crate::web::alternatives(&config.http, host, secure))
    }
}

impl Pages {
    /// Values that are read when they are asked for.
    fn gauges(&self, text: &mut String) {
        let end = "# EOF\n";
        let body = text.strip_suffix(end).map(str::to_owned);
        *text = body.unwrap_or_default();
        let node = &self.running.wired.node;
        let (gate, lag) = (self.running.gate.counts(), self.running.vitals.lag());
        let gauge = |text: &mut String, name: &str, help: &str, value: String| {
            text.push_str(&format!("# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {value}\n"));
        };
        for (name, help, value) in [
            ("throng_connections", "Open connections", node.links.len() as u64),
            ("throng_sessions", "Bound resources", node.table.sessions() as u64),
            ("throng_accounts_online", "Accounts with a bound resource", node.table.accounts() as u64),
            ("throng_half_open", "Connections without a session yet", u64::from(gate.half_open)),
            ("process_resident_memory_bytes", "Resident memory", crate::status::resident()),
        ] {
            gauge(text, name, help, value.to_string());
        }
        let seconds = |lag: Duration| format!("{:.6}", lag.as_secs_f64());
        gauge(text, "throng_lag_seconds", "How late the last sweep was", seconds(lag.last));
        gauge(
            text,
            "throng_lag_max_seconds",
            "How late the latest sweep of a minute was",
            seconds(lag.worst),
        );
        let name = "throng_connections_refused";
        text.push_str(&format!("# HELP {name} Connections that the gate refused.\n# TYPE {name} counter\n"));
        for (reason, count) in crate::status::refused(&gate) {
            text.push_str(&format!("{name}_total{{reason=\"{reason}\"}} {count}\n"));
        }
        text.push_str(end);
    }
}
