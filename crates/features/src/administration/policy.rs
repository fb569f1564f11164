//! The password policy of a domain. No command of XEP-0133 is about it, so nodes and fields are ours.
//!
//! It binds what users choose themselves: when they register and when they change their password (XEP-0077).

use std::sync::Arc;

use throng_core::command::{
    Call, Command, CommandError, CommandFuture, Field, FieldKind, Output, Present, Scope, Shown,
};
use throng_core::feature::Builder;
use throng_core::passwords::PasswordPolicy;
use throng_core::{Host, Node};

static LEAST: Field =
    Field::new("length", "x-length", "Least number of characters", FieldKind::Int(1, 256, &[])).required();
static DIFFERENT: Field = Field::new(
    "different",
    "x-different",
    "Least number of different characters",
    FieldKind::Int(0, 64, &[]),
)
.required();
static NO_NAME: Field =
    Field::new("no-name", "x-no-name", "It must not contain the user's name", FieldKind::Bool).required();

/// Shows the policy.
pub(super) static GET: Command = Command {
    name: "get-password-policy",
    node: "get-password-policy",
    title: "Get Password Policy",
    doc: "Shows what passwords that users choose must be like.",
    changes: false,
    output: &[LEAST, DIFFERENT, NO_NAME],
    ..Command::EMPTY
};

/// Changes the policy.
pub(super) static CHANGE: Command = Command {
    name: "change-password-policy",
    node: "change-password-policy",
    title: "Change Password Policy",
    doc: "Changes what passwords that users choose must be like; those in use stay.",
    input: &[LEAST, DIFFERENT, NO_NAME],
    scope: Scope::Node,
    ..Command::EMPTY
};

pub(super) fn build(builder: &mut Builder<'_>) {
    builder.command(&GET, |call| -> CommandFuture { Box::pin(get(call)) });
    let present = |node: &Arc<Node>, host: &Arc<Host>| -> base::spawn::BoxFuture<'static, _> {
        Box::pin(present(node.clone(), host.domain().to_owned()))
    };
    builder.command_with(&CHANGE, present, |call| -> CommandFuture { Box::pin(change(call)) });
}

async fn get(call: Call) -> Result<Output, CommandError> {
    let policy = PasswordPolicy::load(&*call.node.stores.settings, call.host.domain()).await?;
    Ok(Output::done()
        .with(&LEAST, Shown::Int(policy.least.into()))
        .with(&DIFFERENT, Shown::Int(policy.different.into()))
        .with(&NO_NAME, Shown::Bool(policy.no_name)))
}

async fn present(node: Arc<Node>, domain: String) -> Result<Present, CommandError> {
    let policy = PasswordPolicy::load(&*node.stores.settings, &domain).await?;
    Ok(vec![
        (LEAST.name, vec![policy.least.to_string()]),
        (DIFFERENT.name, vec![policy.different.to_string()]),
        (NO_NAME.name, vec![u8::from(policy.no_name).to_string()]),
    ])
}

async fn change(call: Call) -> Result<Output, CommandError> {
    let number = |field: &Field| u16::try_from(call.input.int(field)).unwrap_or(u16::MAX);
    let policy = PasswordPolicy {
        least: number(&LEAST),
        different: number(&DIFFERENT),
        no_name: call.input.bool(&NO_NAME),
    };
    policy.save(&*call.node.stores.settings, call.host.domain()).await?;
    Ok(Output::said("the password policy was changed"))
}
