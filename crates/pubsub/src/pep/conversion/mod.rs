//! Conversions between items of accounts and what clients keep elsewhere: avatars and photos of vCards (XEP-0398 1.0.0, in
//! `avatars.rs`); bookmarks as items, as one list in an item, and in private XML (XEP-0402, XEP-0411, in
//! `bookmarks.rs`; as they are stored, in `bookmark_formats.rs`).
//!
//! A conversion is a task that reads all places from the store and changes those that differ from the one that a client has changed
//! last. It runs on the node of the cluster that owns the nodes of the account, one of an account at a time (`conversion_queue.rs`),
//! and awaits the answer to each of its changes: the next one reads what it has stored. Items are changed by requests on behalf of the
//! account; what they change is not converted again.
//!
//! # Pitfalls
//!
//! What is converted may become visible to others: the access model and the affiliations of the other place decide whether it is.
//!
//! A client may change a place while a conversion runs. Its change is later, so it must not be overwritten: a conversion ends if a more
//! recent change waits when it begins to write, and each of its changes names what it has read, and is refused if that is not there any
//! more. The conversion of the client's change follows.

mod avatars;
mod bookmark_formats;
mod bookmarks;
mod conversion_queue;
mod node_request;

use std::sync::{Arc, OnceLock, Weak};

use feature_api::account_data::ObserveAccountData;
use jid::Jid;
use queues::answer_channel::answer_channel;
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use stanza::{StanzaCondition, StanzaError};
use store::{PubSubItem, PubSubItemHead, StoreError};
use throng_core::feature_notice::NoticeCtx;
use throng_core::{Host, Node};
use xml::Ns;

use self::bookmarks::BookmarkPlace;
use self::conversion_queue::{ConversionQueue, ConversionRequest};
use super::{PersonalEventing, notice};
use crate::affiliation::NodeAffiliation;
use crate::node::PubSubNode;
use crate::node_config::{AccessModel, CONFIG_FORM};
use crate::pubsub_shared::{NodeInput, NodeMessage, PubSubShared};
use crate::request::{GivenItem, NodeRequest};

/// Name of the node with bookmarks in one item (XEP-0048).
const STORAGE: &str = Ns::Bookmarks.as_str();
/// Name of the node with one item for each bookmark (XEP-0402).
const BOOKMARKS: &str = Ns::Bookmarks1.as_str();
const AVATAR_DATA: &str = Ns::AvatarData.as_str();
const AVATAR_METADATA: &str = Ns::AvatarMetadata.as_str();
/// Bytes that a request counts besides its payloads.
const REQUEST_BYTES: usize = 256;

/// Why a conversion is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConversionKind {
    /// The avatar has changed.
    Avatar,
    /// The photo of the vCard has changed.
    Photo,
    /// The item with all bookmarks has changed.
    Storage,
    /// Items with bookmarks have changed.
    Bookmarks,
    /// Bookmarks in private XML have changed.
    PrivateXml,
    /// A client is interested in bookmarks, which may be only in some of their places.
    First,
}

impl ConversionKind {
    const ALL: [(ConversionKind, char, &'static str); 6] = [
        (ConversionKind::Avatar, 'a', "avatar"),
        (ConversionKind::Photo, 'p', "photo"),
        (ConversionKind::Storage, 's', "item with all bookmarks"),
        (ConversionKind::Bookmarks, 'b', "items with bookmarks"),
        (ConversionKind::PrivateXml, 'x', "private XML"),
        (ConversionKind::First, 'f', "first conversion of bookmarks"),
    ];

    /// Its letter in notices to other nodes of a cluster, and its name in logs.
    fn names(self) -> (char, &'static str) {
        let names = ConversionKind::ALL.iter().find(|(kind, ..)| *kind == self);
        names.map_or((' ', ""), |(_, letter, name)| (*letter, name))
    }

    fn is_of_bookmarks(self) -> bool {
        !matches!(self, ConversionKind::Avatar | ConversionKind::Photo)
    }

    /// The conversion after a change of the items of a node.
    pub(crate) fn of_items(name: &str) -> Option<ConversionKind> {
        match name {
            // Clients may send both at once, and the metadata may be stored first.
            AVATAR_METADATA | AVATAR_DATA => Some(ConversionKind::Avatar),
            STORAGE => Some(ConversionKind::Storage),
            BOOKMARKS => Some(ConversionKind::Bookmarks),
            _ => None,
        }
    }

    /// The conversion for a client that is interested in nodes.
    pub(super) fn of_interest(names: &[String]) -> Option<ConversionKind> {
        names.iter().any(|name| name == STORAGE || name == BOOKMARKS).then_some(ConversionKind::First)
    }
}

#[derive(Default)]
struct ConversionsState {
    queue: ConversionQueue,
    /// The nodes of the accounts.
    nodes: OnceLock<Weak<PubSubShared>>,
}

/// The conversions of a domain.
#[derive(Clone, Default)]
pub(crate) struct Conversions(Arc<ConversionsState>);

impl Conversions {
    /// The nodes to which requests are sent.
    pub(super) fn set_nodes(&self, nodes: &Arc<PubSubShared>) {
        let _ = self.0.nodes.set(Arc::downgrade(nodes));
    }

    /// Converts what has changed, on the node of the cluster that owns the nodes of the account.
    pub(crate) fn request(&self, node: &Arc<Node>, account: &Jid, kind: ConversionKind) {
        let Some(owner) = peers::slices::other_owner(node, node.routing_table.hash(account.as_ref())) else {
            return self.request_here(node, account, kind);
        };
        let Some(host) = node.host(account.domain()) else { return };
        let (letter, name) = kind.names();
        let content = format!("{letter} {account}");
        if !peers::notices::send_notice_to(node, owner, &host, notice::CONVERSION, content.as_bytes()) {
            tracing::warn!(%account, kind = name, node = %owner, "a change is not converted: its owner cannot be reached");
        }
    }

    /// Another node of the cluster reports a change.
    pub(super) fn receive(&self, ctx: &NoticeCtx<'_>) {
        let text = ctx.content.and_then(|content| std::str::from_utf8(content).ok()).unwrap_or_default();
        let mut letters = text.chars();
        let letter = letters.next();
        let kind = ConversionKind::ALL.iter().find(|(_, one, _)| Some(*one) == letter);
        let account = letters.as_str().strip_prefix(' ').and_then(|account| Jid::parse(account).ok());
        if let Some(((kind, ..), account)) = kind.zip(account) {
            self.request_here(ctx.node, &account, *kind);
        }
    }

    fn request_here(&self, node: &Arc<Node>, account: &Jid, kind: ConversionKind) {
        if self.0.queue.add(account, kind) != ConversionRequest::Start {
            return;
        }
        let (state, node, account) = (self.0.clone(), node.clone(), account.clone());
        let spawner = node.spawner.clone();
        let run = async move {
            while let Some(kind) = state.queue.next(&account) {
                let _permit = state.queue.permit(kind).await;
                state.run(&node, &account, kind).await;
                state.queue.ended(kind);
            }
        };
        spawner.spawn("pep-conversion", Box::pin(run));
    }
}

impl ConversionsState {
    async fn run(&self, node: &Arc<Node>, account: &Jid, kind: ConversionKind) {
        let nodes = self.nodes.get().and_then(Weak::upgrade);
        let Some((host, nodes)) = node.host(account.domain()).zip(nodes) else { return };
        let conversion = Conversion {
            node: node.clone(),
            host,
            account: account.clone(),
            kind,
            nodes,
            queue: &self.queue,
        };
        match conversion.run().await {
            // A client has changed something meanwhile, and that is converted, too.
            Ok(()) | Err(ConversionError::Changed) => {}
            Err(ConversionError::Store(error)) => {
                tracing::warn!(%account, kind = kind.names().1, %error, "a change was not converted");
            }
            Err(ConversionError::Refused(place, condition)) => {
                tracing::warn!(%account, kind = kind.names().1, place, condition, "a change was not converted");
            }
        }
    }
}

impl ObserveAccountData for PersonalEventing {
    fn photo_stored(&self, node: &Arc<Node>, owner: &Jid) {
        self.accounts.conversions.request(node, owner, ConversionKind::Photo);
    }

    fn private_xml_stored(&self, node: &Arc<Node>, owner: &Jid, ns: &str) {
        if ns == STORAGE {
            self.accounts.conversions.request(node, owner, ConversionKind::PrivateXml);
        }
    }
}

/// Why a conversion ends early.
#[derive(Debug)]
enum ConversionError {
    Store(StoreError),
    /// A place refuses the change: its name, and the condition.
    Refused(&'static str, &'static str),
    /// A client has changed a place since it was read.
    Changed,
}

impl From<StoreError> for ConversionError {
    fn from(error: StoreError) -> ConversionError {
        ConversionError::Store(error)
    }
}

/// A conversion of one account.
struct Conversion<'a> {
    node: Arc<Node>,
    host: Arc<Host>,
    account: Jid,
    kind: ConversionKind,
    nodes: Arc<PubSubShared>,
    queue: &'a ConversionQueue,
}

/// A node of the account as the store has it.
struct ConvertedNode {
    access_model: AccessModel,
    /// Only the account reads it.
    is_private: bool,
    /// How many items it keeps.
    item_limit: usize,
    /// Its items, oldest first.
    items: Vec<PubSubItemHead>,
}

impl ConvertedNode {
    /// Number of its last item.
    fn last_item(&self) -> Option<u64> {
        self.items.last().map(|head| head.seq)
    }
}

impl Conversion<'_> {
    async fn run(&self) -> Result<(), ConversionError> {
        match self.kind {
            ConversionKind::Avatar => self.convert_avatar().await,
            ConversionKind::Photo => self.convert_photo().await,
            ConversionKind::Storage => self.convert_bookmarks(Some(BookmarkPlace::Storage)).await,
            ConversionKind::Bookmarks => self.convert_bookmarks(Some(BookmarkPlace::Items)).await,
            ConversionKind::PrivateXml => self.convert_bookmarks(Some(BookmarkPlace::PrivateXml)).await,
            ConversionKind::First => self.convert_bookmarks(None).await,
        }
    }

    /// Everything was read: whether nothing has changed since.
    fn check_newest(&self) -> Result<(), ConversionError> {
        match self.queue.has_newer(&self.account, self.kind) {
            true => Err(ConversionError::Changed),
            false => Ok(()),
        }
    }

    /// A node of the account. One that has moved, or cannot be read, is as if it were not private.
    async fn load(&self, name: &str) -> Result<Option<ConvertedNode>, StoreError> {
        let Ok(key) = self.account.with_resource(name) else { return Ok(None) };
        let Some(stored) = self.node.stores.pubsub.load(key.as_ref()).await? else { return Ok(None) };
        let limits = self.nodes.options().limits;
        let config = PubSubNode::restored_config(&stored.record.config, &limits);
        let outcast = NodeAffiliation::Outcast.number();
        let is_alone =
            stored.affiliations.iter().all(|(jid, number)| *jid == self.account || Some(*number) == outcast);
        let is_private = |one: &crate::node_config::PubSubNodeConfig| {
            is_alone && one.access_model == AccessModel::Whitelist && one.persist_items
        };
        Ok(Some(ConvertedNode {
            access_model: config.as_ref().map_or(AccessModel::Whitelist, |config| config.access_model),
            is_private: config.as_ref().is_some_and(is_private),
            item_limit: config.as_ref().map_or(0, |config| config.item_limit(&limits)),
            items: stored.items,
        }))
    }

    /// The items of a node with these numbers.
    async fn items(&self, name: &str, seqs: Vec<u64>) -> Result<Vec<PubSubItem>, StoreError> {
        match self.account.with_resource(name) {
            Ok(key) if !seqs.is_empty() => self.node.stores.pubsub.items(key.as_ref(), seqs).await,
            _ => Ok(Vec::new()),
        }
    }

    async fn last_item(&self, name: &str, of: &ConvertedNode) -> Result<Option<PubSubItem>, StoreError> {
        Ok(self.items(name, of.last_item().into_iter().collect()).await?.pop())
    }

    /// Creates a node with these fields of its configuration.
    async fn create(&self, name: &'static str, fields: &[(&str, &str)]) -> Result<(), ConversionError> {
        let form =
            fields.iter().fold(DataForm::typed(FormKind::Submit, CONFIG_FORM), |form, (var, value)| {
                form.field(FormField::new(FormFieldType::TextSingle, *var).value(*value))
            });
        self.ask(name, NodeRequest::Create { config: Some(form) }, None, 0).await
    }

    /// Publishes items: ids, of which one may be empty, and payloads. `last_item`: that of the node.
    async fn publish(
        &self,
        name: &'static str,
        last_item: Option<u64>,
        items: impl IntoIterator<Item = (String, Vec<u8>)>,
    ) -> Result<(), ConversionError> {
        let given = |(id, payload): (String, Vec<u8>)| GivenItem {
            id: Some(id).filter(|id| !id.is_empty()),
            payload,
            payload_ns: name.to_owned(),
            payload_count: 1,
        };
        let items: Vec<GivenItem> = items.into_iter().map(given).collect();
        let bytes = items.iter().map(|item| item.payload.len()).sum();
        self.ask(name, NodeRequest::Publish { items, options: None }, last_item, bytes).await
    }

    /// Retracts items, and notifies those who have received them.
    async fn retract(
        &self,
        name: &'static str,
        last_item: Option<u64>,
        ids: Vec<String>,
    ) -> Result<(), ConversionError> {
        let bytes = ids.iter().map(String::len).sum();
        self.ask(name, NodeRequest::Retract { ids, notify: Some(true) }, last_item, bytes).await
    }

    /// Sends a request to a node, and awaits its answer: what it changes is stored then.
    async fn ask(
        &self,
        name: &'static str,
        request: NodeRequest,
        last_item: Option<u64>,
        bytes: usize,
    ) -> Result<(), ConversionError> {
        let refused = |error: StanzaError| ConversionError::Refused(name, error.condition.as_str());
        let Some(tasks) = self.nodes.tasks() else {
            return Err(refused(StanzaCondition::ResourceConstraint.into()));
        };
        let key = self.account.with_resource(name);
        let key = key.map_err(|_| refused(StanzaCondition::JidMalformed.into()))?;
        let (reply, answer) = answer_channel();
        let input = NodeInput::Conversion { request, account: self.account.clone(), last_item, reply };
        let message = NodeMessage { node: self.node.clone(), input };
        tasks.send(self.node.spawner.clone(), key, message, bytes + REQUEST_BYTES).await;
        match answer.receive().await {
            Some(Ok(_)) => Ok(()),
            Some(Err(error))
                if error.condition == StanzaCondition::Conflict && error.application_condition.is_none() =>
            {
                Err(ConversionError::Changed)
            }
            Some(Err(error)) => Err(refused(error)),
            None => Err(refused(StanzaCondition::ResourceConstraint.into())),
        }
    }
}
