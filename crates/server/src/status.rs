//! `throng status`: a node's figures, once.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use throng_core::Node;

use crate::admin::{self, Request};
use crate::config::Config;
use crate::{out, runtime};

/// Asks the running node and prints its figures.
pub(crate) fn command(config: Option<&Path>, json: bool) -> Result<()> {
    let config = Config::load(config)?;
    runtime::start()?.block_on(async {
        let socket = config.socket();
        let mut stream = admin::connect(&socket).await.with_context(|| {
            format!("no node is running on {}; start one with: throng serve", socket.display())
        })?;
        let answer = admin::ask(&mut stream, &Request::Status).await?;
        let figures = answer.status.unwrap_or_default();
        if json {
            out::line(&figures.to_string());
        } else if let Some(object) = figures.as_object() {
            for (key, value) in object {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                out::line(&format!("{:<24}{value}", key.replace('_', " ")));
            }
        }
        Ok(())
    })
}

/// The figures of a node.
pub(crate) fn figures(node: &Arc<Node>) -> serde_json::Value {
    let [[messages_in, presence_in, iq_in], [messages_out, presence_out, iq_out]] = node.metrics.stanzas();
    serde_json::json!({
        "version": node.version,
        "up_seconds": node.seconds(),
        "domains": node.hosts().iter().map(|h| h.domain().to_owned()).collect::<Vec<_>>().join(", "),
        "connections": node.links.len(),
        "sessions": node.table.sessions(),
        "accounts_online": node.table.accounts(),
        "messages_in": messages_in,
        "messages_out": messages_out,
        "presence_in": presence_in,
        "presence_out": presence_out,
        "iq_in": iq_in,
        "iq_out": iq_out,
        "offline_stored": node.metrics.offline_stored.get(),
        "presence_dropped": node.metrics.shed_presence.get(),
        "memory_bytes": resident(),
    })
}

/// Resident memory of this process in bytes; 0 where the system does not tell.
pub(crate) fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|s| s.split_whitespace().nth(1).and_then(|p| p.parse::<u64>().ok()));
    pages.unwrap_or(0) * 4096
}
