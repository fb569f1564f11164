//! Conversions between items of accounts and what clients keep elsewhere: avatars and photos of vCards (XEP-0398 1.0.0, in
//! `avatars.rs`); bookmarks as items, as one list in an item, and in private XML (XEP-0402, XEP-0411, in `bookmarks.rs`).
//!
//! A conversion is a task that reads all places from the store and changes those that differ from the one that a client has
//! changed. An account has one at a time on a node of the cluster. Items are changed by requests of the account's bare address to
//! itself, which any node passes to the owner of the nodes; what they change is not converted again.
//!
//! # Pitfalls
//!
//! What is converted may become visible to others: the access model of the other place decides whether it is.

mod avatars;
mod bookmarks;

use std::collections::VecDeque;
use std::sync::Arc;

use base::lock::LeafMutex;
use feature_api::account_data::ObserveAccountData;
use hashbrown::HashMap;
use jid::Jid;
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use store::{PubSubItem, PubSubItemHead, StoreError};
use throng_core::{Effects, Host, Node, SharedStanza};
use xml::{Ns, Writer};

use super::PersonalEventing;
use crate::node::PubSubNode;
use crate::node_config::CONFIG_FORM;

/// Accounts whose conversions run at the same time on a node; those of others wait for the next change.
const MAX_RUNNING: usize = 4_096;
/// Name of the node with bookmarks in one item (XEP-0048).
const STORAGE: &str = Ns::Bookmarks.as_str();
/// Name of the node with one item for each bookmark (XEP-0402).
const BOOKMARKS: &str = Ns::Bookmarks1.as_str();
const AVATAR_DATA: &str = Ns::AvatarData.as_str();
const AVATAR_METADATA: &str = Ns::AvatarMetadata.as_str();

/// What has changed, and is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConversionKind {
    /// The avatar.
    Avatar,
    /// The photo of the vCard.
    Photo,
    /// The item with all bookmarks.
    Storage,
    /// Items with bookmarks.
    Bookmarks,
    /// Bookmarks in private XML.
    PrivateXml,
    /// Nothing, but a client is interested in bookmarks, which may be only in private XML.
    Interest,
}

impl ConversionKind {
    /// Its name in logs.
    const fn as_str(self) -> &'static str {
        match self {
            ConversionKind::Avatar => "avatar",
            ConversionKind::Photo => "photo",
            ConversionKind::Storage => "item with all bookmarks",
            ConversionKind::Bookmarks => "items with bookmarks",
            ConversionKind::PrivateXml => "private XML",
            ConversionKind::Interest => "interest in bookmarks",
        }
    }

    /// The conversion after a change of the items of a node.
    pub(crate) fn of_items(name: &str) -> Option<ConversionKind> {
        match name {
            AVATAR_METADATA => Some(ConversionKind::Avatar),
            STORAGE => Some(ConversionKind::Storage),
            BOOKMARKS => Some(ConversionKind::Bookmarks),
            _ => None,
        }
    }

    /// The conversion for a client that is interested in nodes.
    pub(super) fn of_interest(names: &[String]) -> Option<ConversionKind> {
        names.iter().any(|name| name == STORAGE || name == BOOKMARKS).then_some(ConversionKind::Interest)
    }
}

/// Conversions that run or wait, by account.
#[derive(Clone, Default)]
pub(crate) struct Conversions(Arc<LeafMutex<HashMap<Jid, VecDeque<ConversionKind>>>>);

impl Conversions {
    /// Converts what has changed.
    pub(crate) fn request(&self, node: &Arc<Node>, account: &Jid, kind: ConversionKind) {
        {
            let mut running = self.0.lock();
            if let Some(waiting) = running.get_mut(account) {
                if !waiting.contains(&kind) {
                    waiting.push_back(kind);
                }
                return;
            }
            if running.len() >= MAX_RUNNING {
                tracing::warn!(%account, "there are too many conversions; one is omitted");
                return;
            }
            running.insert(account.clone(), VecDeque::from([kind]));
        }
        let (conversions, node, account) = (self.clone(), node.clone(), account.clone());
        let spawner = node.spawner.clone();
        let run = async move {
            while let Some(kind) = conversions.next(&account) {
                let Some(host) = node.host(account.domain()) else { continue };
                let conversion = Conversion { node: node.clone(), host, account: account.clone() };
                if let Err(error) = conversion.run(kind).await {
                    tracing::warn!(%account, kind = kind.as_str(), %error, "a change of items was not converted");
                }
            }
        };
        spawner.spawn("pep-conversion", Box::pin(run));
    }

    fn next(&self, account: &Jid) -> Option<ConversionKind> {
        let mut running = self.0.lock();
        let next = running.get_mut(account)?.pop_front();
        if next.is_none() {
            running.remove(account);
        }
        next
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

/// A conversion of one account.
struct Conversion {
    node: Arc<Node>,
    host: Arc<Host>,
    account: Jid,
}

/// A node of the account as the store has it.
struct ConvertedNode {
    access_model: String,
    /// Its items, oldest first.
    items: Vec<PubSubItemHead>,
}

impl Conversion {
    async fn run(&self, kind: ConversionKind) -> Result<(), StoreError> {
        match kind {
            ConversionKind::Avatar => self.convert_avatar().await,
            ConversionKind::Photo => self.convert_photo().await,
            ConversionKind::Storage => self.convert_storage().await,
            ConversionKind::Bookmarks => self.convert_bookmarks().await,
            ConversionKind::PrivateXml => self.convert_private_xml(false).await,
            ConversionKind::Interest => self.convert_private_xml(true).await,
        }
    }

    async fn load(&self, name: &str) -> Result<Option<ConvertedNode>, StoreError> {
        let Ok(key) = self.account.with_resource(name) else { return Ok(None) };
        let Some(stored) = self.node.stores.pubsub.load(key.as_ref()).await? else { return Ok(None) };
        let config = PubSubNode::stored_config(&stored.record.config).unwrap_or_default();
        let access_model = config.into_iter().find(|(var, _)| var == "pubsub#access_model");
        let access_model = access_model.map(|(_, value)| value).unwrap_or_default();
        Ok(Some(ConvertedNode { access_model, items: stored.items }))
    }

    async fn exists(&self, name: &str) -> Result<bool, StoreError> {
        let Ok(key) = self.account.with_resource(name) else { return Ok(false) };
        Ok(self.node.stores.pubsub.number(key.as_ref()).await?.is_some())
    }

    /// The items of a node with these numbers.
    async fn items(&self, name: &str, seqs: Vec<u64>) -> Result<Vec<PubSubItem>, StoreError> {
        match self.account.with_resource(name) {
            Ok(key) if !seqs.is_empty() => self.node.stores.pubsub.items(key.as_ref(), seqs).await,
            _ => Ok(Vec::new()),
        }
    }

    async fn last_item(&self, name: &str, of: &ConvertedNode) -> Result<Option<PubSubItem>, StoreError> {
        Ok(self.items(name, of.items.last().map(|head| head.seq).into_iter().collect()).await?.pop())
    }

    fn requests(&self) -> OwnRequests<'_> {
        OwnRequests { conversion: self, effects: Effects::default() }
    }
}

/// Requests of an account to itself. Their answers go to the account, which nobody awaits.
struct OwnRequests<'a> {
    conversion: &'a Conversion,
    effects: Effects,
}

impl OwnRequests<'_> {
    fn add(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        let account = &self.conversion.account;
        let stanza = SharedStanza::build(|w| {
            w.start("iq").attr("type", "set").attr("from", account.as_str()).attr("to", account.as_str());
            w.attr("id", "conversion").start_ns("pubsub", Ns::Pubsub);
            write(w);
            w.end().end();
        });
        self.effects.route(stanza, account.clone(), account.clone());
    }

    /// Creates a node with these fields of its configuration, if there is none.
    fn create(&mut self, name: &str, fields: &[(&str, &str)]) {
        let form =
            fields.iter().fold(DataForm::typed(FormKind::Submit, CONFIG_FORM), |form, (var, value)| {
                form.field(FormField::new(FormFieldType::TextSingle, *var).value(*value))
            });
        self.add(|w| {
            w.start("create").attr("node", name).end().start("configure");
            form.write(w);
            w.end();
        });
    }

    /// Publishes items: ids and payloads.
    fn publish<'i>(&mut self, name: &str, items: impl IntoIterator<Item = (&'i str, &'i [u8])>) {
        self.add(|w| {
            w.start("publish").attr("node", name);
            for (id, payload) in items {
                w.start("item").attr_opt("id", Some(id).filter(|id| !id.is_empty())).raw(payload).end();
            }
            w.end();
        });
    }

    /// Retracts an item, and notifies those who have received it.
    fn retract(&mut self, name: &str, id: &str) {
        self.add(|w| {
            w.start("retract").attr("node", name).attr("notify", "true").start("item").attr("id", id);
            w.end().end();
        });
    }

    /// Sends the requests in their order.
    fn send(self) {
        self.conversion.node.perform(self.effects);
    }
}
