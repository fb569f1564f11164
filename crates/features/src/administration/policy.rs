//! Password policy of a domain. No command of XEP-0133 covers it, so nodes and fields are our own.
//!
//! It applies to passwords that users choose: on registration and on password change (XEP-0077).

use std::sync::Arc;

use feature_api::feature::FeatureBuilder;
use throng_commands::password_policy::PasswordPolicy;
use throng_commands::{
    Command, CommandCall, CommandError, CommandField, CommandFieldKind, CommandFuture, CommandOutput,
    CurrentValues, OutputValue, RegisterCommands, TokenScope,
};
use throng_core::{Host, Node};

static MIN_LENGTH: CommandField = CommandField::new(
    "length",
    "x-length",
    "Minimum number of characters",
    CommandFieldKind::Int(1, 256, &[]),
)
.required();
static DISTINCT_CHARS: CommandField = CommandField::new(
    "different",
    "x-different",
    "Minimum number of different characters",
    CommandFieldKind::Int(0, 64, &[]),
)
.required();
static FORBID_NAME: CommandField =
    CommandField::new("no-name", "x-no-name", "Must not contain the user name", CommandFieldKind::Bool)
        .required();

/// Shows the policy.
pub(super) static GET: Command = Command {
    name: "get-password-policy",
    node: "get-password-policy",
    title: "Get Password Policy",
    doc: "Shows the requirements for passwords that users choose.",
    changes: false,
    output: &[MIN_LENGTH, DISTINCT_CHARS, FORBID_NAME],
    ..Command::EMPTY
};

/// Changes the policy.
pub(super) static CHANGE: Command = Command {
    name: "change-password-policy",
    node: "change-password-policy",
    title: "Change Password Policy",
    doc: "Changes the requirements for passwords that users choose; existing passwords stay valid.",
    input: &[MIN_LENGTH, DISTINCT_CHARS, FORBID_NAME],
    scope: TokenScope::Node,
    ..Command::EMPTY
};

pub(super) fn build(builder: &mut FeatureBuilder<'_>) {
    builder.command(&GET, |call| -> CommandFuture { Box::pin(show_policy(call)) });
    let present = |node: &Arc<Node>, host: &Arc<Host>| -> base::spawn::BoxFuture<'static, _> {
        Box::pin(current_values(node.clone(), host.domain().to_owned()))
    };
    builder.command_with(&CHANGE, present, |call| -> CommandFuture { Box::pin(change_policy(call)) });
}

async fn show_policy(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let policy = PasswordPolicy::load(&*call.node.stores.server_kv, call.host.domain()).await?;
    Ok(CommandOutput::done()
        .with(&MIN_LENGTH, OutputValue::Int(policy.min_length.into()))
        .with(&DISTINCT_CHARS, OutputValue::Int(policy.min_distinct.into()))
        .with(&FORBID_NAME, OutputValue::Bool(policy.forbid_username)))
}

async fn current_values(node: Arc<Node>, domain: String) -> Result<CurrentValues, CommandError> {
    let policy = PasswordPolicy::load(&*node.stores.server_kv, &domain).await?;
    Ok(vec![
        (MIN_LENGTH.name, vec![policy.min_length.to_string()]),
        (DISTINCT_CHARS.name, vec![policy.min_distinct.to_string()]),
        (FORBID_NAME.name, vec![u8::from(policy.forbid_username).to_string()]),
    ])
}

async fn change_policy(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let number = |field: &CommandField| u16::try_from(call.input.int(field)).unwrap_or(u16::MAX);
    let policy = PasswordPolicy {
        min_length: number(&MIN_LENGTH),
        min_distinct: number(&DISTINCT_CHARS),
        forbid_username: call.input.bool(&FORBID_NAME),
    };
    policy.save(&*call.node.stores.server_kv, call.host.domain()).await?;
    Ok(CommandOutput::with_note("the password policy was changed"))
}
