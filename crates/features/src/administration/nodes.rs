//! Sessions and nodes of a cluster, as tables: commands that XEP-0133 does not have.

use feature_api::feature::FeatureBuilder;
use stanza::payload::datetime::format_utc;
use throng_commands::cluster_admin::NodeSelection;
use throng_commands::cluster_admin::sessions::{SessionQuery, SessionRecord, parse_cursor, sessions};
use throng_commands::cluster_admin::summary::{NodeSummary, summaries};
use throng_commands::paging::{AFTER, MAX_ITEMS, NEXT};
use throng_commands::{
    Command, CommandCall, CommandError, CommandErrorKind, CommandField, CommandFieldKind, CommandFuture,
    CommandOutput, OutputRow, OutputValue, RegisterCommands,
};

use super::{MISSING, check_local_account, name_missing};

const USER: CommandField =
    CommandField::new("user", "x-user", "Only sessions of this account", CommandFieldKind::Jid);
const NODE: CommandField =
    CommandField::new("node", "x-node", "Only sessions of this node", CommandFieldKind::Text);

const SESSION_COLUMNS: &[CommandField] = &[
    CommandField::new("jid", "jid", "Address", CommandFieldKind::Jid),
    CommandField::new("node", "node", "Node", CommandFieldKind::Text),
    CommandField::new("transport", "transport", "Transport", CommandFieldKind::Text),
    CommandField::new("address", "address", "From", CommandFieldKind::Text),
    CommandField::new("client", "client", "Client", CommandFieldKind::Text),
    CommandField::new("since", "since", "Since", CommandFieldKind::Text),
    CommandField::new("idle-seconds", "idle", "Idle, in seconds", CommandFieldKind::Text),
];
static SESSION_ROWS: CommandField =
    CommandField::new("sessions", "x-sessions", "Sessions", CommandFieldKind::Table(SESSION_COLUMNS));

/// Not in XEP-0133.
pub(super) static SESSIONS: Command = Command {
    name: "get-sessions-list",
    node: "get-sessions-list",
    title: "Get List of Sessions",
    doc: "Lists the sessions of the domain on all nodes, page by page.",
    changes: false,
    input: &[USER, NODE, MAX_ITEMS, AFTER],
    output: &[SESSION_ROWS, NEXT, MISSING],
    ..Command::EMPTY
};

const NODE_COLUMNS: &[CommandField] = &[
    CommandField::new("name", "name", "Node", CommandFieldKind::Text),
    CommandField::new("version", "version", "Version", CommandFieldKind::Text),
    CommandField::new("started", "started", "Since", CommandFieldKind::Text),
    CommandField::new("ready", "ready", "Accepts clients", CommandFieldKind::Bool),
    CommandField::new("users", "users", "Users online", CommandFieldKind::Int(0, i64::MAX, &[])),
    CommandField::new("sessions", "sessions", "Sessions", CommandFieldKind::Int(0, i64::MAX, &[])),
    CommandField::new("connections", "connections", "Connections", CommandFieldKind::Int(0, i64::MAX, &[])),
    CommandField::new("memory-bytes", "memory", "Memory, in bytes", CommandFieldKind::Int(0, i64::MAX, &[])),
    CommandField::new("cpu-percent", "cpu", "CPU, in percent", CommandFieldKind::Text),
    CommandField::new(
        "queued-bytes",
        "queued",
        "Queued for clients, in bytes",
        CommandFieldKind::Int(0, i64::MAX, &[]),
    ),
];
static NODE_ROWS: CommandField =
    CommandField::new("nodes", "x-nodes", "Nodes", CommandFieldKind::Table(NODE_COLUMNS));

/// Not in XEP-0133.
pub(super) static NODES: Command = Command {
    name: "get-nodes-list",
    node: "get-nodes-list",
    title: "Get List of Nodes",
    doc: "Lists the nodes of the cluster with their load.",
    changes: false,
    output: &[NODE_ROWS, MISSING],
    ..Command::EMPTY
};

pub(super) fn build(builder: &mut FeatureBuilder<'_>) {
    builder.command(&SESSIONS, |call| -> CommandFuture { Box::pin(list_sessions(call)) });
    builder.command(&NODES, |call| -> CommandFuture { Box::pin(list_nodes(call)) });
}

async fn list_sessions(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let after = call.input.text(&AFTER).map(str::to_owned);
    if after.as_deref().is_some_and(|text| parse_cursor(text).is_none()) {
        let text = "this is not the `next` of a previous page";
        return Err(CommandError::new(CommandErrorKind::NotAcceptable, text));
    }
    let account = call.input.jid(&USER).ok().cloned();
    if let Some(jid) = &account {
        check_local_account(&call.node, jid)?;
    }
    let nodes = NodeSelection::of(&call.node, call.input.text(&NODE))?;
    let query = SessionQuery {
        domain: Some(call.host.domain().to_owned()),
        account: account.map(|jid| jid.to_string()),
        after,
        limit: call.input.count(&MAX_ITEMS),
        ..SessionQuery::default()
    };
    let page = sessions(&call.node, nodes, query).await;
    let rows = page.sessions.iter().map(session_row).collect();
    let mut output = CommandOutput::done().with(&SESSION_ROWS, OutputValue::Rows(rows));
    if let Some(next) = page.next {
        output = output.with(&NEXT, OutputValue::Text(next));
    }
    Ok(name_missing(output, &page.missing))
}

fn session_row(session: &SessionRecord) -> OutputRow {
    let text = |text: Option<&String>| OutputValue::Text(text.cloned().unwrap_or_default());
    vec![
        OutputValue::Text(session.jid.clone()),
        OutputValue::Text(session.node.clone()),
        text(session.transport.as_ref()),
        text(session.address.as_ref()),
        text(session.client.as_ref()),
        OutputValue::Text(format_utc(session.since.saturating_mul(1000), false)),
        OutputValue::Text(session.idle_seconds.map_or_else(String::new, |idle| idle.to_string())),
    ]
}

async fn list_nodes(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let found = summaries(&call.node, NodeSelection::All).await;
    let rows = found.answers.iter().map(|(name, summary)| node_row(name, summary)).collect();
    let output = CommandOutput::done().with(&NODE_ROWS, OutputValue::Rows(rows));
    Ok(name_missing(output, &found.missing))
}

fn node_row(name: &str, summary: &NodeSummary) -> OutputRow {
    let process = &summary.process;
    let queued = summary.queued_bytes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    vec![
        OutputValue::Text(name.to_owned()),
        OutputValue::Text(summary.version.clone()),
        OutputValue::Text(format_utc(process.started.saturating_mul(1000), false)),
        OutputValue::Bool(process.ready),
        OutputValue::Int(summary.accounts_online),
        OutputValue::Int(summary.sessions),
        OutputValue::Int(summary.connections),
        OutputValue::Int(process.memory_bytes),
        OutputValue::Text(
            process.cpu_percent.map_or_else(|| "unknown".to_owned(), |cpu| format!("{cpu:.0}")),
        ),
        OutputValue::Int(queued),
    ]
}
