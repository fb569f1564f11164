//! The welcome message: sections 4.27 and 4.28. New users find it when they first log in.
//!
//! It is sent when the account is created; the module `offline` keeps it until its user comes. Accounts that are created in
//! bulk, or on a stopped node, have none. The trap: the text is read when it is needed, which is rarely, so no node holds an
//! old one.

use std::sync::Arc;

use jid::Jid;
use throng_core::command::{
    Call, Command, CommandError, CommandFuture, Field, FieldKind, Output, Present, Scope,
};
use throng_core::feature::Builder;
use throng_core::hooks::{CreatedCtx, Flow, Interest, Outcome, Phase};
use throng_core::{Effects, Frame, Host, Node};

use super::{FORM_TYPE, node};

const TEXT: Field = Field::new("text", "welcome", "Welcome Message", FieldKind::Lines).required();

/// Section 4.27.
pub(super) static SET: Command = Command {
    name: "set-welcome",
    node: node!("set-welcome"),
    title: "Set Welcome Message",
    doc: "Sets the message that new users find when they first log in.",
    form_type: FORM_TYPE,
    input: &[TEXT],
    scope: Scope::Messages,
    ..Command::EMPTY
};

/// Section 4.28.
pub(super) static DELETE: Command = Command {
    name: "delete-welcome",
    node: node!("delete-welcome"),
    title: "Delete Welcome Message",
    doc: "Removes the welcome message.",
    form_type: FORM_TYPE,
    scope: Scope::Messages,
    ..Command::EMPTY
};

pub(super) fn build(builder: &mut Builder<'_>) {
    let present = |node: &Arc<Node>, host: &Arc<Host>| -> base::spawn::BoxFuture<'static, _> {
        Box::pin(present(node.clone(), host.domain().to_owned()))
    };
    builder.command_with(&SET, present, |call| -> CommandFuture { Box::pin(set(call)) });
    builder.command(&DELETE, |call| -> CommandFuture { Box::pin(delete(call)) });
    builder.created(Phase::Notify, Interest::ALL, |ctx: &mut CreatedCtx<'_>| {
        Flow::Wait(Box::pin(greet(ctx.node.clone(), ctx.jid.to_jid())))
    });
}

fn key(domain: &str) -> String {
    format!("welcome:{domain}")
}

async fn text(node: &Node, domain: &str) -> Result<Option<String>, CommandError> {
    let stored = node.stores.settings.get(&key(domain)).await?;
    Ok(stored.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|text| !text.is_empty()))
}

async fn set(call: Call) -> Result<Output, CommandError> {
    let text = call.input.lines(&TEXT).join("\n");
    call.node.stores.settings.put(&key(call.host.domain()), text.as_bytes()).await?;
    Ok(Output::said("the welcome message was set"))
}

async fn delete(call: Call) -> Result<Output, CommandError> {
    if text(&call.node, call.host.domain()).await?.is_none() {
        return Ok(Output::said("there is no welcome message"));
    }
    call.node.stores.settings.put(&key(call.host.domain()), &[]).await?;
    Ok(Output::said("the welcome message was removed"))
}

async fn present(node: Arc<Node>, domain: String) -> Result<Present, CommandError> {
    let text = text(&node, &domain).await?.unwrap_or_default();
    Ok(vec![(TEXT.name, text.lines().map(str::to_owned).collect())])
}

/// Writes to a new user.
async fn greet(node: Arc<Node>, to: Jid) -> Outcome {
    let mut effects = Effects::default();
    match (text(&node, to.domain()).await, node.host(to.domain())) {
        (Ok(Some(text)), Some(host)) => {
            let frame = Frame::build(|w| {
                w.start("message").attr("from", host.domain()).attr("to", to.as_str());
                w.attr("id", &base::id::random_id()).leaf("subject", "Welcome").leaf("body", &text).end();
            });
            effects.route(frame, host.jid.clone(), to);
        }
        (Err(error), _) => tracing::warn!(%error, "the welcome message could not be read"),
        _ => {}
    }
    Outcome { effects, ..Outcome::next() }
}
