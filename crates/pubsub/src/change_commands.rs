//! Changes of what a node has, as commands: an affiliation, and the removal of all items.

use std::sync::Arc;

use feature_api::feature::FeatureBuilder;
use jid::Jid;
use stanza::StanzaCondition;
use throng_commands::{
    Command, CommandCall, CommandError, CommandErrorKind, CommandField, CommandFieldKind, CommandFuture,
    CommandOutput, RegisterCommands, TokenScope,
};

use crate::affiliation::NodeAffiliation;
use crate::commands::{NODE, command, no_node, own_key};
use crate::request::NodeRequest;
use crate::service::PubSubService;

const USER: CommandField =
    CommandField::new("user", "x-user", "The address of the user", CommandFieldKind::Jid).required();
const AFFILIATION: CommandField = CommandField::new(
    "affiliation",
    "x-affiliation",
    "The affiliation",
    CommandFieldKind::Choice(&[
        ("owner", "Owner"),
        ("publisher", "Publisher"),
        ("publish-only", "Publisher who does not read"),
        ("member", "Member"),
        ("outcast", "Banned"),
        ("none", "None"),
    ]),
)
.required();

/// Sets an affiliation.
pub(crate) static SET_AFFILIATION: Command = Command {
    name: "set-pubsub-affiliation",
    node: "set-pubsub-affiliation",
    title: "Set an Affiliation with a PubSub Node",
    doc: "Makes a user owner, publisher or member of a PubSub node, bans the user, or removes the affiliation.",
    input: &[NODE, USER, AFFILIATION],
    scope: TokenScope::Node,
    ..Command::EMPTY
};

/// Removes all items.
pub(crate) static PURGE: Command = Command {
    name: "purge-pubsub-node",
    node: "purge-pubsub-node",
    title: "Remove all Items of a PubSub Node",
    doc: "Removes all items of a PubSub node, and notifies the subscribers.",
    input: &[NODE],
    scope: TokenScope::Node,
    ..Command::EMPTY
};

/// Registers the handlers.
pub(crate) fn build(builder: &mut FeatureBuilder<'_>, service: &Arc<PubSubService>) {
    let of = service.clone();
    builder.command(&SET_AFFILIATION, move |call: CommandCall| -> CommandFuture {
        Box::pin(set_affiliation(of.clone(), call))
    });
    let of = service.clone();
    builder.command(&PURGE, move |call: CommandCall| -> CommandFuture { Box::pin(purge(of.clone(), call)) });
}

async fn set_affiliation(
    service: Arc<PubSubService>,
    call: CommandCall,
) -> Result<CommandOutput, CommandError> {
    let key = own_key(&call)?;
    let user = call.input.jid(&USER)?.bare().to_jid();
    let name = call.input.text(&AFFILIATION).unwrap_or_default().to_owned();
    let affiliation = NodeAffiliation::from_name(&name).ok_or_else(CommandError::internal)?;
    let change = NodeRequest::ModifyAffiliations(vec![(user.clone(), Some(affiliation))]);
    match command(&service, &call, &key, (call.host.jid.clone(), change)).await {
        Ok(()) => {
            let node = key.resource().unwrap_or_default();
            Ok(CommandOutput::with_note(format!("the affiliation of {user} with \"{node}\" is {name}")))
        }
        Err(StanzaCondition::ItemNotFound) => Err(no_node(&key)),
        // Section 8.9.2.4, and the table of section 4.1.
        Err(StanzaCondition::NotAcceptable) => {
            let text = refused_change(&call, &key, (&user, &name)).await?;
            Err(CommandError::new(CommandErrorKind::Conflict, text))
        }
        Err(_) => Err(CommandError::internal()),
    }
}

/// Why an affiliation cannot be changed, as a sentence.
async fn refused_change(
    call: &CommandCall,
    key: &Jid,
    (user, name): (&Jid, &str),
) -> Result<String, CommandError> {
    let stored = call.node.stores.pubsub.load(key.as_ref()).await?.ok_or_else(|| no_node(key))?;
    let of = |number: u8| NodeAffiliation::from_number(number).unwrap_or(NodeAffiliation::None);
    let owners = stored.affiliations.iter().filter(|(_, number)| of(*number) == NodeAffiliation::Owner);
    let own = stored.affiliations.iter().find(|(jid, _)| jid == user).map(|(_, number)| of(*number));
    let node = key.resource().unwrap_or_default();
    Ok(match own {
        Some(NodeAffiliation::Owner) if owners.count() < 2 => {
            format!("{user} is the last owner of \"{node}\"; make another user owner first")
        }
        Some(old) => {
            format!("{user} is {}; set the affiliation to none first, then to {name}", old.as_str())
        }
        None => format!("\"{node}\" has too many affiliations; set that of another user to none first"),
    })
}

async fn purge(service: Arc<PubSubService>, call: CommandCall) -> Result<CommandOutput, CommandError> {
    let key = own_key(&call)?;
    let node = key.resource().unwrap_or_default();
    match command(&service, &call, &key, (call.host.jid.clone(), NodeRequest::Purge)).await {
        Ok(()) => {
            Ok(CommandOutput::with_note(format!("the items of the PubSub node \"{node}\" are removed")))
        }
        Err(StanzaCondition::ItemNotFound) => Err(no_node(&key)),
        Err(StanzaCondition::FeatureNotImplemented) => {
            let text = format!("the PubSub node \"{node}\" keeps no items");
            Err(CommandError::new(CommandErrorKind::Conflict, text))
        }
        Err(_) => Err(CommandError::internal()),
    }
}
