//! Administration of nodes as commands: list, show, create, delete, subscribers, items, statistics. XEP-0133 has none for PubSub.

use std::sync::Arc;

use feature_api::feature::{FeatureBuilder, FeatureDeclaration};
use jid::Jid;
use stanza::StanzaCondition;
use stanza::payload::datetime;
use throng_commands::paging::{AFTER, MAX_ITEMS, MAX_PAGE, NEXT};
use throng_commands::{
    Command, CommandCall, CommandError, CommandErrorKind, CommandField, CommandFieldKind, CommandFuture,
    CommandOutput, OutputRow, OutputValue, RegisterCommands, TokenScope,
};

use crate::FEATURE;
use crate::affiliation::NodeAffiliation;
use crate::change_commands::{self, PURGE, SET_AFFILIATION};
use crate::node::{PubSubNode, ROOT_NODE};
use crate::node_directory::other_owner;
use crate::plain_subscriptions::PlainSubscriptions;
use crate::pubsub_shared::NodeInput;
use crate::request::NodeRequest;
use crate::service::{PubSubService, node_address};

/// All commands.
pub(crate) static COMMANDS: &[&dyn FeatureDeclaration] =
    &[&LIST, &SHOW, &CREATE, &DELETE, &SUBSCRIBERS, &ITEMS, &STATISTICS, &SET_AFFILIATION, &PURGE];

pub(crate) const NODE: CommandField =
    CommandField::new("node", "x-node", "The name of the node", CommandFieldKind::Text).required();

const NODE_COLUMNS: &[CommandField] = &[
    CommandField::new("node", "node", "Name", CommandFieldKind::Text),
    CommandField::new("title", "title", "Title", CommandFieldKind::Text),
];
static NODE_ROWS: CommandField =
    CommandField::new("nodes", "x-nodes", "Nodes", CommandFieldKind::Table(NODE_COLUMNS));

/// Lists nodes, those that are not open included.
static LIST: Command = Command {
    name: "get-pubsub-nodes-list",
    node: "get-pubsub-nodes-list",
    title: "Get List of PubSub Nodes",
    doc: "Lists the PubSub nodes of the domain's service, page by page.",
    changes: false,
    input: &[MAX_ITEMS, AFTER],
    output: &[NODE_ROWS, NEXT],
    ..Command::EMPTY
};

const COUNT: CommandFieldKind = CommandFieldKind::Int(0, i64::MAX, &[]);
static CREATOR: CommandField =
    CommandField::new("creator", "x-creator", "Who has created it", CommandFieldKind::Jid);
static CREATED: CommandField =
    CommandField::new("created", "x-created", "When it was created", CommandFieldKind::Text);
static ITEM_COUNT: CommandField = CommandField::new("items", "x-items", "Number of items", COUNT);
static SUBSCRIBER_COUNT: CommandField =
    CommandField::new("subscribers", "x-subscribers", "Number of subscribers", COUNT);
const AFFILIATION_COLUMNS: &[CommandField] = &[
    CommandField::new("jid", "jid", "Address", CommandFieldKind::Jid),
    CommandField::new("affiliation", "affiliation", "Affiliation", CommandFieldKind::Text),
];
static AFFILIATIONS: CommandField = CommandField::new(
    "affiliations",
    "x-affiliations",
    "Affiliations",
    CommandFieldKind::Table(AFFILIATION_COLUMNS),
);
const CONFIG_COLUMNS: &[CommandField] = &[
    CommandField::new("field", "field", "Field", CommandFieldKind::Text),
    CommandField::new("value", "value", "Value", CommandFieldKind::Text),
];
static CONFIG: CommandField =
    CommandField::new("config", "x-config", "Configuration", CommandFieldKind::Table(CONFIG_COLUMNS));

/// Shows a node.
static SHOW: Command = Command {
    name: "get-pubsub-node",
    node: "get-pubsub-node",
    title: "Get a PubSub Node",
    doc: "Shows a PubSub node: who created it, its configuration, affiliations, and how much it has.",
    changes: false,
    input: &[NODE],
    output: &[CREATOR, CREATED, ITEM_COUNT, SUBSCRIBER_COUNT, AFFILIATIONS, CONFIG],
    ..Command::EMPTY
};

const OWNER: CommandField =
    CommandField::new("owner", "x-owner", "The address of its owner", CommandFieldKind::Jid).required();

/// Creates a node.
static CREATE: Command = Command {
    name: "create-pubsub-node",
    node: "create-pubsub-node",
    title: "Create a PubSub Node",
    doc: "Creates a PubSub node with the default configuration for an owner.",
    input: &[NODE, OWNER],
    scope: TokenScope::Node,
    ..Command::EMPTY
};

/// Deletes a node.
static DELETE: Command = Command {
    name: "delete-pubsub-node",
    node: "delete-pubsub-node",
    title: "Delete a PubSub Node",
    doc: "Removes a PubSub node with its items and all its subscriptions.",
    input: &[NODE],
    scope: TokenScope::Node,
    ..Command::EMPTY
};

const SUBSCRIBER_COLUMNS: &[CommandField] =
    &[CommandField::new("jid", "jid", "Address", CommandFieldKind::Jid)];
static SUBSCRIBER_ROWS: CommandField = CommandField::new(
    "subscribers",
    "x-subscribers",
    "Subscribers",
    CommandFieldKind::Table(SUBSCRIBER_COLUMNS),
);

/// Lists subscribers.
static SUBSCRIBERS: Command = Command {
    name: "get-pubsub-subscribers",
    node: "get-pubsub-subscribers",
    title: "Get Subscribers of a PubSub Node",
    doc: "Lists the subscribers of a PubSub node, page by page; those with options are on the first page.",
    changes: false,
    input: &[NODE, MAX_ITEMS, AFTER],
    output: &[SUBSCRIBER_ROWS, NEXT],
    ..Command::EMPTY
};

const ITEM_COLUMNS: &[CommandField] = &[
    CommandField::new("id", "id", "Id", CommandFieldKind::Text),
    CommandField::new("publisher", "publisher", "Publisher", CommandFieldKind::Jid),
    CommandField::new("published", "published", "Published", CommandFieldKind::Text),
];
static ITEM_ROWS: CommandField =
    CommandField::new("items", "x-items", "Items", CommandFieldKind::Table(ITEM_COLUMNS));

/// Lists items.
static ITEMS: Command = Command {
    name: "get-pubsub-items",
    node: "get-pubsub-items",
    title: "Get Items of a PubSub Node",
    doc: "Lists the items of a PubSub node without their payloads, newest first.",
    changes: false,
    input: &[NODE, MAX_ITEMS],
    output: &[ITEM_ROWS],
    ..Command::EMPTY
};

static LISTED: CommandField = CommandField::new("nodes", "x-nodes", "Listed nodes, 10 000 at most", COUNT);
static PUBLICATIONS: CommandField =
    CommandField::new("published", "x-published", "Items published since the start", COUNT);
static PER_MINUTE: CommandField =
    CommandField::new("per-minute", "x-per-minute", "Items published in the last minute", COUNT);

/// Counts publications.
static STATISTICS: Command = Command {
    name: "get-pubsub-statistics",
    node: "get-pubsub-statistics",
    title: "Get Statistics of PubSub",
    doc: "Shows how many PubSub nodes are listed, and how many items were published. In a cluster, publications are those of the \
          PubSub nodes that this node owns.",
    changes: false,
    output: &[LISTED, PUBLICATIONS, PER_MINUTE],
    ..Command::EMPTY
};

/// Registers the handlers.
pub(crate) fn build(builder: &mut FeatureBuilder<'_>, service: &Arc<PubSubService>) {
    builder.command(&LIST, |call: CommandCall| -> CommandFuture { Box::pin(list(call)) });
    builder.command(&SHOW, |call: CommandCall| -> CommandFuture { Box::pin(show(call)) });
    builder.command(&SUBSCRIBERS, |call: CommandCall| -> CommandFuture { Box::pin(subscribers(call)) });
    builder.command(&ITEMS, |call: CommandCall| -> CommandFuture { Box::pin(items(call)) });
    let of = service.clone();
    builder
        .command(&CREATE, move |call: CommandCall| -> CommandFuture { Box::pin(create(of.clone(), call)) });
    let of = service.clone();
    builder
        .command(&DELETE, move |call: CommandCall| -> CommandFuture { Box::pin(delete(of.clone(), call)) });
    let of = service.clone();
    builder.command(&STATISTICS, move |call: CommandCall| -> CommandFuture {
        Box::pin(statistics(of.clone(), call))
    });
    change_commands::build(builder, service);
}

/// The address of the service.
fn service_address(call: &CommandCall) -> Result<Jid, CommandError> {
    let mut services = call.host.services.iter();
    let service = services.find(|service| service.feature == FEATURE.name);
    service.map(|service| service.jid.clone()).ok_or_else(CommandError::internal)
}

/// The address of the node that a call names.
fn key(call: &CommandCall) -> Result<Jid, CommandError> {
    let name = call.input.text(&NODE).unwrap_or_default();
    let service = service_address(call)?;
    if name == ROOT_NODE {
        let text = format!("the name \"{name}\" is reserved; write another one");
        return Err(CommandError::new(CommandErrorKind::NotAcceptable, text));
    }
    node_address(service.as_ref(), name).map_err(|_| {
        let text = format!("\"{name}\" is not the name of a node; write one without control characters");
        CommandError::new(CommandErrorKind::NotAcceptable, text)
    })
}

/// The same, for a change: this node of the cluster must own the PubSub node.
pub(crate) fn own_key(call: &CommandCall) -> Result<Jid, CommandError> {
    let key = key(call)?;
    let Some(owner) = other_owner(&call.node, &key) else { return Ok(key) };
    let text = format!("the node {owner} has the PubSub node {key}; run the command there");
    Err(CommandError::new(CommandErrorKind::Unavailable, text))
}

pub(crate) fn no_node(key: &Jid) -> CommandError {
    let name = key.resource().unwrap_or_default();
    CommandError::new(CommandErrorKind::NotFound, format!("there is no PubSub node \"{name}\""))
}

fn page_size(call: &CommandCall) -> u32 {
    match call.input.count(&MAX_ITEMS) {
        0 => MAX_PAGE,
        most => most.min(MAX_PAGE),
    }
}

fn text(text: impl Into<String>) -> OutputValue {
    OutputValue::Text(text.into())
}

async fn list(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let service = service_address(&call)?;
    let most = page_size(&call);
    let after = call.input.text(&AFTER).filter(|after| !after.is_empty());
    let after = after.map(|name| node_address(service.as_ref(), name)).transpose().map_err(|_| {
        CommandError::new(CommandErrorKind::NotAcceptable, "\"after\" is not the name of a node")
    })?;
    let nodes = call.node.stores.pubsub.list_all(service.as_ref(), after, most).await?;
    let name = |jid: &Jid| jid.resource().unwrap_or_default().to_owned();
    let next = nodes.last().filter(|_| nodes.len() == most as usize).map(|node| name(&node.jid));
    // The root node is not one of users.
    let shown = nodes.iter().filter(|node| node.jid.resource() != Some(ROOT_NODE));
    let rows: Vec<OutputRow> =
        shown.map(|node| vec![text(name(&node.jid)), text(node.title.clone())]).collect();
    Ok(with_next(CommandOutput::done().with(&NODE_ROWS, OutputValue::Rows(rows)), next))
}

fn with_next(output: CommandOutput, next: Option<String>) -> CommandOutput {
    match next {
        Some(next) => output.with(&NEXT, text(next)),
        None => output,
    }
}

async fn show(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let key = key(&call)?;
    let stored = call.node.stores.pubsub.load(key.as_ref()).await?.ok_or_else(|| no_node(&key))?;
    let plain = PlainSubscriptions(&call.node.stores).count(key.as_ref()).await?;
    let affiliation = |(jid, number): &(Jid, u8)| {
        let affiliation = NodeAffiliation::from_number(*number).unwrap_or(NodeAffiliation::None);
        vec![text(jid.as_str()), text(affiliation.as_str())]
    };
    let affiliations = stored.affiliations.iter().map(affiliation).collect();
    let fields = PubSubNode::stored_config(&stored.record.config).unwrap_or_default();
    let config = fields.into_iter().map(|(var, value)| vec![text(var), text(value)]).collect();
    Ok(CommandOutput::done()
        .with(&CREATOR, text(stored.record.creator.as_str()))
        .with(&CREATED, text(datetime::format_utc(stored.record.created, false)))
        .with(&ITEM_COUNT, OutputValue::Int(stored.items.len() as u64))
        .with(&SUBSCRIBER_COUNT, OutputValue::Int(plain + stored.special.len() as u64))
        .with(&AFFILIATIONS, OutputValue::Rows(affiliations))
        .with(&CONFIG, OutputValue::Rows(config)))
}

async fn statistics(service: Arc<PubSubService>, call: CommandCall) -> Result<CommandOutput, CommandError> {
    let address = service_address(&call)?;
    let nodes = call.node.stores.pubsub.count(address.as_ref()).await?;
    let (published, per_minute) = service.shared.publications.read(call.node.seconds());
    Ok(CommandOutput::done()
        .with(&LISTED, OutputValue::Int(nodes))
        .with(&PUBLICATIONS, OutputValue::Int(published))
        .with(&PER_MINUTE, OutputValue::Int(per_minute)))
}

async fn subscribers(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let key = key(&call)?;
    let most = page_size(&call);
    let stored = call.node.stores.pubsub.load(key.as_ref()).await?.ok_or_else(|| no_node(&key))?;
    let after = call.input.text(&AFTER).filter(|after| !after.is_empty());
    let after = after.map(Jid::parse).transpose().map_err(|_| {
        CommandError::new(CommandErrorKind::NotAcceptable, "\"after\" is not the address of a subscriber")
    })?;
    let is_first = after.is_none();
    let plain = PlainSubscriptions(&call.node.stores).subscribers(key.as_ref(), after, most).await?;
    let next = plain.last().filter(|_| plain.len() == most as usize).map(|jid| jid.to_string());
    let special = stored.special.into_iter().filter(|_| is_first).map(|one| one.jid);
    let rows = special.chain(plain).map(|jid| vec![text(jid.as_str())]).collect();
    Ok(with_next(CommandOutput::done().with(&SUBSCRIBER_ROWS, OutputValue::Rows(rows)), next))
}

async fn items(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let key = key(&call)?;
    let stored = call.node.stores.pubsub.load(key.as_ref()).await?.ok_or_else(|| no_node(&key))?;
    let newest = stored.items.iter().rev().take(page_size(&call) as usize);
    let rows = newest
        .map(|head| {
            let published = datetime::format_utc(head.published, false);
            vec![text(&*head.id), text(head.publisher.as_str()), text(published)]
        })
        .collect();
    Ok(CommandOutput::done().with(&ITEM_ROWS, OutputValue::Rows(rows)))
}

/// Sends a request to a node with the rights of an operator.
pub(crate) async fn command(
    service: &PubSubService,
    call: &CommandCall,
    key: &Jid,
    (user, request): (Jid, NodeRequest),
) -> Result<(), StanzaCondition> {
    let answer =
        service.send_request(&call.node, key, 256, |reply| NodeInput::Command { request, user, reply });
    answer.await.map(drop).map_err(|error| error.condition)
}

async fn create(service: Arc<PubSubService>, call: CommandCall) -> Result<CommandOutput, CommandError> {
    let key = own_key(&call)?;
    let owner = call.input.jid(&OWNER)?.bare().to_jid();
    let name = key.resource().unwrap_or_default();
    match command(&service, &call, &key, (owner, NodeRequest::Create { config: None })).await {
        Ok(()) => Ok(CommandOutput::with_note(format!("the PubSub node \"{name}\" is created"))),
        Err(StanzaCondition::Conflict) => {
            let text = format!("the PubSub node \"{name}\" exists already");
            Err(CommandError::new(CommandErrorKind::Conflict, text))
        }
        Err(_) => Err(CommandError::internal()),
    }
}

async fn delete(service: Arc<PubSubService>, call: CommandCall) -> Result<CommandOutput, CommandError> {
    let key = own_key(&call)?;
    let user = call.host.jid.clone();
    match command(&service, &call, &key, (user, NodeRequest::Delete { redirect: None })).await {
        Ok(()) => {
            let name = key.resource().unwrap_or_default();
            Ok(CommandOutput::with_note(format!("the PubSub node \"{name}\" is deleted")))
        }
        Err(StanzaCondition::ItemNotFound) => Err(no_node(&key)),
        Err(_) => Err(CommandError::internal()),
    }
}
