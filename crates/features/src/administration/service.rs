//! Restart and shutdown of the node: XEP-0133 1.3.1, sections 4.30 and 4.31; and a command to drain it, which the specification
//! does not have.
//!
//! The commands only record the request ([`request_shutdown`]); the program closes the streams in order, and
//! restarts if requested. A later command replaces an earlier one.

use std::net::Ipv6Addr;

use feature_api::feature::FeatureBuilder;
use jid::Jid;
use throng_commands::shutdown::{Drain, ShutdownKind, request_shutdown};
use throng_commands::{
    Command, CommandCall, CommandError, CommandErrorKind, CommandField, CommandFieldKind, CommandFuture,
    CommandOutput, RegisterCommands, TokenScope,
};

use super::announce::{broadcast, headline};
use super::{FORM_TYPE, node};

/// A delay, because the reply has to be sent before the streams are closed.
const DELAY: CommandField = CommandField::new(
    "delay",
    "delay",
    "Seconds of delay",
    CommandFieldKind::Int(
        1,
        86_400,
        &[
            (30, "30 seconds"),
            (60, "60 seconds"),
            (90, "90 seconds"),
            (120, "2 minutes"),
            (180, "3 minutes"),
            (240, "4 minutes"),
            (300, "5 minutes"),
        ],
    ),
)
.default("30");
const TEXT: CommandField = CommandField::new("text", "announcement", "Announcement", CommandFieldKind::Lines);

/// Restart Service: XEP-0133, section 4.30.
pub(super) static RESTART: Command = Command {
    name: "restart",
    node: node!("restart"),
    title: "Restart Service",
    doc: "Restarts the node gracefully after a delay.",
    form_type: FORM_TYPE,
    input: &[DELAY, TEXT],
    scope: TokenScope::Node,
    ..Command::EMPTY
};

/// Shut Down Service: XEP-0133, section 4.31.
pub(super) static SHUTDOWN: Command = Command {
    name: "shutdown",
    node: node!("shutdown"),
    title: "Shut Down Service",
    doc: "Shuts the node down gracefully after a delay.",
    form_type: FORM_TYPE,
    input: &[DELAY, TEXT],
    scope: TokenScope::Node,
    ..Command::EMPTY
};

const RATE: CommandField =
    CommandField::new("rate", "x-rate", "Streams ended in a second", CommandFieldKind::Int(1, 100_000, &[]))
        .default("100");
const OTHER_HOST: CommandField = CommandField::new(
    "other-host",
    "x-other-host",
    "Host to which clients are redirected, with an optional port",
    CommandFieldKind::Text,
);

/// Not in XEP-0133.
pub(super) static DRAIN: Command = Command {
    name: "drain",
    node: "drain",
    title: "Drain the Node",
    doc: "Takes no new streams, ends those that exist at a rate, and shuts the node down.",
    input: &[RATE, OTHER_HOST],
    scope: TokenScope::Node,
    ..Command::EMPTY
};

pub(super) fn build(builder: &mut FeatureBuilder<'_>) {
    for (command, kind) in [(&RESTART, ShutdownKind::Restart), (&SHUTDOWN, ShutdownKind::Stop)] {
        builder.command(command, move |call: CommandCall| -> CommandFuture {
            Box::pin(std::future::ready(schedule_shutdown(&call, kind.clone())))
        });
    }
    builder.command(&DRAIN, |call: CommandCall| -> CommandFuture {
        Box::pin(std::future::ready(schedule_drain(&call)))
    });
}

fn schedule_drain(call: &CommandCall) -> Result<CommandOutput, CommandError> {
    let streams_per_second = u32::try_from(call.input.int(&RATE)).unwrap_or(1);
    let other_host = call.input.text(&OTHER_HOST).map(str::trim).filter(|host| !host.is_empty());
    if let Some(host) = other_host.filter(|host| !is_host(host)) {
        let text =
            format!("{host} is not a host; write a name or an address, such as xmpp2.example.org:5222");
        return Err(CommandError::new(CommandErrorKind::NotAcceptable, text));
    }
    let other_host = other_host.map(str::to_owned);
    request_shutdown(&call.node, ShutdownKind::Drain(Drain { streams_per_second, other_host }), 0);
    Ok(CommandOutput::with_note("the node takes no new streams and ends those that exist"))
}

/// Whether this is a domain name or an IP address, with an optional port (RFC 6120, section 4.9.3.19). An IPv6 address is in
/// brackets.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let valid = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|address| address.parse::<Ipv6Addr>().is_ok()),
        None => {
            !host.contains(':')
                && Jid::parse(host).is_ok_and(|jid| jid.local().is_none() && jid.resource().is_none())
        }
    };
    valid && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port != 0))
}

fn schedule_shutdown(call: &CommandCall, kind: ShutdownKind) -> Result<CommandOutput, CommandError> {
    let delay = u32::try_from(call.input.int(&DELAY)).unwrap_or(1);
    let text = call.input.lines(&TEXT).join("\n");
    if !text.is_empty() {
        for host in call.node.hosts() {
            let Some(frame) = headline(host.domain(), "Announcement", &text) else { continue };
            let node = call.node.clone();
            call.node.spawner.spawn(
                "announcement",
                Box::pin(async move { broadcast(&node, host.domain(), &frame).await }),
            );
        }
    }
    let what = if kind == ShutdownKind::Restart { "restarts" } else { "shuts down" };
    request_shutdown(&call.node, kind, delay);
    Ok(CommandOutput::with_note(format!("the node {what} in {delay} seconds")))
}
