//! Welcome message for new users: XEP-0133 1.3.1, sections 4.27 and 4.28.
//!
//! It is sent when the account is created, and `offline` stores it until the first login. Accounts that are created
//! in bulk, or on a stopped node, get none.
//!
//! # Pitfalls
//!
//! The text is read when it is needed, which is rare, so that no node caches an outdated one.

use std::sync::Arc;

use feature_api::feature::FeatureBuilder;
use jid::Jid;
use throng_commands::{
    Command, CommandCall, CommandError, CommandField, CommandFieldKind, CommandFuture, CommandOutput,
    CurrentValues, RegisterCommands, TokenScope,
};
use throng_core::hooks::{CreatedCtx, Flow, HandlerOutcome, Phase};
use throng_core::{Effects, Host, Node, SharedStanza};

use super::{FORM_TYPE, node};

const TEXT: CommandField =
    CommandField::new("text", "welcome", "Welcome Message", CommandFieldKind::Lines).required();

/// Set Welcome Message: XEP-0133, section 4.27.
pub(super) static SET: Command = Command {
    name: "set-welcome",
    node: node!("set-welcome"),
    title: "Set Welcome Message",
    doc: "Sets the message that new users receive at their first login.",
    form_type: FORM_TYPE,
    input: &[TEXT],
    scope: TokenScope::Messages,
    ..Command::EMPTY
};

/// Delete Welcome Message: XEP-0133, section 4.28.
pub(super) static DELETE: Command = Command {
    name: "delete-welcome",
    node: node!("delete-welcome"),
    title: "Delete Welcome Message",
    doc: "Removes the welcome message.",
    form_type: FORM_TYPE,
    scope: TokenScope::Messages,
    ..Command::EMPTY
};

pub(super) fn build(builder: &mut FeatureBuilder<'_>) {
    let present = |node: &Arc<Node>, host: &Arc<Host>| -> base::spawn::BoxFuture<'static, _> {
        Box::pin(current_values(node.clone(), host.domain().to_owned()))
    };
    builder.command_with(&SET, present, |call| -> CommandFuture { Box::pin(set(call)) });
    builder.command(&DELETE, |call| -> CommandFuture { Box::pin(delete(call)) });
    builder.created(Phase::Notify, |ctx: &mut CreatedCtx<'_>| {
        Flow::Wait(Box::pin(greet(ctx.node.clone(), ctx.jid.to_jid())))
    });
}

fn key(domain: &str) -> String {
    format!("welcome:{domain}")
}

async fn load_text(node: &Node, domain: &str) -> Result<Option<String>, CommandError> {
    let stored = node.stores.server_kv.get(&key(domain)).await?;
    Ok(stored.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|text| !text.is_empty()))
}

async fn set(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let text = call.input.lines(&TEXT).join("\n");
    call.node.stores.server_kv.put(&key(call.host.domain()), text.as_bytes()).await?;
    Ok(CommandOutput::with_note("the welcome message was set"))
}

async fn delete(call: CommandCall) -> Result<CommandOutput, CommandError> {
    if load_text(&call.node, call.host.domain()).await?.is_none() {
        return Ok(CommandOutput::with_note("there is no welcome message"));
    }
    call.node.stores.server_kv.put(&key(call.host.domain()), &[]).await?;
    Ok(CommandOutput::with_note("the welcome message was removed"))
}

async fn current_values(node: Arc<Node>, domain: String) -> Result<CurrentValues, CommandError> {
    let text = load_text(&node, &domain).await?.unwrap_or_default();
    Ok(vec![(TEXT.name, text.lines().map(str::to_owned).collect())])
}

/// Sends the welcome message to a new user.
async fn greet(node: Arc<Node>, to: Jid) -> HandlerOutcome {
    let mut effects = Effects::default();
    match (load_text(&node, to.domain()).await, node.host(to.domain())) {
        (Ok(Some(text)), Some(host)) => {
            let frame = SharedStanza::build(|w| {
                w.start("message").attr("from", host.domain()).attr("to", to.as_str());
                w.attr("id", &base::id::random_id())
                    .text_element("subject", "Welcome")
                    .text_element("body", &text)
                    .end();
            });
            effects.route(frame, host.jid.clone(), to);
        }
        (Err(error), _) => tracing::warn!(%error, "cannot read the welcome message"),
        _ => {}
    }
    HandlerOutcome { effects, ..HandlerOutcome::next() }
}
