//! Restart and shutdown of the node: XEP-0133 1.3.1, sections 4.30 and 4.31.
//!
//! The commands only record the request ([`request_shutdown`]); the program closes the streams in order, and
//! restarts if requested. A later command replaces an earlier one.

use feature_api::feature::FeatureBuilder;
use throng_commands::shutdown::request_shutdown;
use throng_commands::{
    Command, CommandCall, CommandError, CommandField, CommandFieldKind, CommandFuture, CommandOutput,
    RegisterCommands, TokenScope,
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

pub(super) fn build(builder: &mut FeatureBuilder<'_>) {
    for (command, again) in [(&RESTART, true), (&SHUTDOWN, false)] {
        builder.command(command, move |call: CommandCall| -> CommandFuture {
            Box::pin(std::future::ready(schedule_shutdown(&call, again)))
        });
    }
}

fn schedule_shutdown(call: &CommandCall, restart: bool) -> Result<CommandOutput, CommandError> {
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
    request_shutdown(&call.node, restart, delay);
    let what = if restart { "restarts" } else { "shuts down" };
    Ok(CommandOutput::with_note(format!("the node {what} in {delay} seconds")))
}
