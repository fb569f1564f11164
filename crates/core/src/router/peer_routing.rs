//! [`PeerRouting`], the engine's interface to the crate `throng-peers`, which connects the nodes of a cluster: the home of an
//! account, stanzas and presence for other nodes, reports of changes.
//!
//! A node that never has others does not call it on the path of a stanza ([`Node::peers`]): that costs a comparison on one node,
//! and a virtual call on several.

use std::any::Any;
use std::sync::Arc;

use base::{BoxFuture, TimeOrderedId};
use cluster::{
    AddressNumber, Envelope, EnvelopeClass, HandoverResult, InvalidationSubject, NodeId, RefusedEnvelope,
};
use jid::JidRef;
use stanza::StanzaCondition;
use store::AddressId;

use super::RoutingWork;
use super::push::PushSelection;
use crate::account::{Account, AccountState, Contact};
use crate::blocklist::Blocklist;
use crate::host::Host;
use crate::node::Node;
use crate::principal::Principal;
use crate::receipt::{AttachedReceipt, Receipt};
use crate::session::stream_management::{TransferRefusal, WantedStream};
use crate::session::{Session, flags};
use crate::shared_stanza::{QueueClass, SharedStanza};

/// A stanza that another node handed over, or that returned from one.
#[derive(Clone, Copy)]
pub struct HandedOver {
    /// The stanza id that it was given.
    pub stanza_id: Option<TimeOrderedId>,
    /// Envelopes that have carried it.
    pub hops: u8,
    /// The node that did not take it, if it returned.
    pub returned_by: Option<NodeId>,
}

impl HandedOver {
    /// The stanza of an envelope.
    pub fn of(envelope: &Envelope, returned_by: Option<NodeId>) -> HandedOver {
        let cluster::EnvelopeHeader { stanza_id, hops, .. } = envelope.header;
        HandedOver { stanza_id, hops, returned_by }
    }
}

/// Where the chain of a stanza runs.
pub enum HomeDecision {
    /// On another node, which has received it. With a receipt, it is safe when that is fulfilled.
    HandedOver(Option<Receipt>),
    /// It must wait until stanzas before it have ended where they were sent.
    Wait(BoxFuture<'static, ()>),
    /// On this node.
    Own,
    /// Nowhere: its sender must receive this error.
    Refused(StanzaCondition),
}

/// Which online users are counted. Users without an account are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnlineFilter {
    /// All.
    All,
    /// Those with a client that is active (XEP-0352).
    Active,
    /// Those whose clients have all reported that they are inactive.
    Idle,
}

impl OnlineFilter {
    /// All filters.
    pub const ALL: [OnlineFilter; 3] = [OnlineFilter::All, OnlineFilter::Active, OnlineFilter::Idle];

    /// Whether an account with a session here satisfies the filter.
    pub fn matches(self, account: &Account, domain: &str) -> bool {
        if account.id == AddressId::UNASSIGNED || account.jid.domain() != domain {
            return false;
        }
        let idle = || {
            account.with(|state| {
                let elsewhere = state.peers().iter().flat_map(|peer| &peer.sessions);
                state.sessions.iter().all(|session| session.flags.has(flags::INACTIVE))
                    && elsewhere.map(|session| session.flags).all(|set| set & flags::INACTIVE != 0)
            })
        };
        match self {
            OnlineFilter::All => true,
            OnlineFilter::Active => !idle(),
            OnlineFilter::Idle => idle(),
        }
    }
}

/// Blocklists before and after a change.
pub type BlocklistPair = (Option<Arc<Blocklist>>, Option<Arc<Blocklist>>);

/// Connects a node with the other nodes of its cluster.
pub trait PeerRouting: Any + Send + Sync {
    /// Announces that an account has a session here.
    fn claim_account(&self, node: &Arc<Node>, account: &Account);

    /// Announces that an account has no session here.
    fn release_account(&self, node: &Arc<Node>, account: &Account);

    /// A session is about to be bound here: those on nodes that have claimed its account already are older, whatever the clocks of
    /// these nodes say.
    fn note_earlier_claims(
        &self,
        node: &Arc<Node>,
        account: &Account,
        state: &mut AccountState,
        session: &Arc<Session>,
    );

    /// A client has bound this session: its earlier ones on other nodes end. Their resources are this name, or end with a slash and
    /// this name (XEP-0386, section 4.2.1).
    fn end_sessions_of_client(&self, node: &Arc<Node>, session: &Session, name: &str);

    /// See [`Node::announce_readiness`].
    fn announce_readiness(&self, node: &Arc<Node>, account: &Account);

    /// See [`Node::report_sessions`].
    fn report_sessions(&self, node: &Arc<Node>, account: &Account);

    /// See [`Node::session_resumed`].
    fn session_resumed(&self, node: &Arc<Node>, session: &Arc<Session>);

    /// Hands a stanza whose chain has not begun to the home of its recipient, if that is another node. `work`: that of the
    /// stanza.
    fn hand_to_home(
        &self,
        node: &Arc<Node>,
        stanza: &SharedStanza,
        to: JidRef<'_>,
        account: Option<&Arc<Account>>,
        handed_over: Option<HandedOver>,
        work: &RoutingWork,
    ) -> HomeDecision;

    /// Sends a stanza whose chain has run here to a node with sessions that receive it. `hops`: envelopes that have carried
    /// it. With `is_copy`, nobody handles what that node refuses. True if it was accepted.
    #[allow(clippy::too_many_arguments, reason = "the stanza with its addresses and its work")]
    fn deliver_to_peer(
        &self,
        node: &Arc<Node>,
        peer: NodeId,
        account: &Account,
        stanza: &SharedStanza,
        to: JidRef<'_>,
        hops: u8,
        is_copy: bool,
        work: &mut RoutingWork,
    ) -> bool;

    /// Sends an envelope to another node. Returns its receipt, unless it has ended already, or the envelope if that node does
    /// not take it. The receipt is fulfilled when each recipient has its copy there, or was handled here after the return of the
    /// envelope.
    ///
    /// # Errors
    /// The envelope, with the reason.
    fn send_with_receipt(
        &self,
        node: &Arc<Node>,
        to: NodeId,
        envelope: Envelope,
    ) -> Result<Option<Receipt>, Box<RefusedEnvelope>>;

    /// The receipt of a message that this node writes: until then, later ones for its recipient must not go to another node.
    fn hold_path(&self, node: &Arc<Node>, attached: AttachedReceipt) -> AttachedReceipt;

    /// Handles a stanza of another node. Returns what must be awaited before the next one for this recipient.
    fn receive_stanza(
        &self,
        node: &Arc<Node>,
        from: NodeId,
        envelope: Envelope,
    ) -> Option<BoxFuture<'static, ()>>;

    /// Reports the result of an envelope to the node that sent it.
    fn settle(&self, node: &Arc<Node>, from: NodeId, envelope: &Envelope, result: HandoverResult);

    /// Pushes a stanza to the selected sessions of an account on other nodes, except some resources.
    fn push_to_peers(
        &self,
        node: &Arc<Node>,
        account: &Arc<Account>,
        selection: PushSelection,
        except: &mut dyn Iterator<Item = &str>,
        stanza: &SharedStanza,
    );

    /// Records a roster push to the sessions of an account here. False if it must be dropped, because another node has pushed a later
    /// state of the same entry to them. True for any other stanza.
    fn record_push(&self, node: &Arc<Node>, account: &Account, stanza: &SharedStanza) -> bool;

    /// Sends presence to contacts on other nodes.
    fn broadcast_to_peers(
        &self,
        node: &Arc<Node>,
        sender: &Arc<Account>,
        contacts: &[Contact],
        stanza: &SharedStanza,
    );

    /// Sends the presence of the sessions here to a local contact, on all nodes. See [`crate::Effect::PresenceTo`].
    fn send_presence_to_contact(
        &self,
        node: &Arc<Node>,
        account: &Arc<Account>,
        to: JidRef<'_>,
        available: bool,
    );

    /// The other nodes send the presence of their sessions. See [`crate::Effect::PresenceTo`].
    fn request_presence_of_peers(
        &self,
        node: &Arc<Node>,
        account: &Arc<Account>,
        to: JidRef<'_>,
        available: bool,
    );

    /// The sessions of an account receive the presence of a contact. See [`crate::Effect::FetchPresence`].
    fn fetch_presence(&self, node: &Arc<Node>, account: &Arc<Account>, contact: JidRef<'_>);

    /// An account is not subscribed to a contact any more. Called before its roster view changes, or with it.
    fn subscription_ended(&self, node: &Arc<Node>, account: &Arc<Account>, contact: (u64, AddressId));

    /// The roster view of an account was replaced: sends presence to contacts whose subscription began or ended, and
    /// requests that of contacts to which one began.
    fn roster_replaced(
        &self,
        node: &Arc<Node>,
        account: &Arc<Account>,
        before: &[Contact],
        after: &[Contact],
    );

    /// Requests the presence of contacts and of the account's other resources on other nodes, for a session that became
    /// available (RFC 6121, section 4.3). It arrives later. Its own presence goes to the contacts that the broadcast
    /// does not find.
    fn probe_peers(&self, node: &Arc<Node>, session: &Arc<Session>);

    /// Passes the probe from an entity without a subscription to the other nodes with sessions of an account, which may have sent
    /// directed presence to it (RFC 6121, section 4.6.6). `answered`: whether a session here has answered; the last node answers
    /// `unsubscribed` if none did. False if there is no such node.
    fn probe_directed_elsewhere(
        &self,
        node: &Arc<Node>,
        account: &Account,
        stanza: &SharedStanza,
        answered: bool,
    ) -> bool;

    /// Exchanges presence with contacts that a change of the blocklist covers or no longer covers (XEP-0191, sections 3.3 and
    /// 3.4), for the sessions here. With `everywhere`, with all of them, and with recipients of directed presence; otherwise only
    /// with sessions on other nodes, because the feature that made the change does the rest.
    ///
    /// Not implemented: entries of the form `domain/resource`.
    fn exchange_presence_after_block<'a>(
        &'a self,
        node: &'a Arc<Node>,
        account: &'a Arc<Account>,
        change: BlocklistPair,
        everywhere: bool,
    ) -> BoxFuture<'a, ()>;

    /// Sessions here are about to receive a message that sessions on other nodes receive, too. `responsible`: this node
    /// delivers it again if they end before a client has it.
    fn record_copy(&self, account: &Account, stanza: &SharedStanza, responsible: bool);

    /// A session here is about to receive a message that was read from the store, where it stays until a client has it.
    /// `number` is its number there.
    fn record_read_from_store(&self, account: &Account, stanza: &SharedStanza, number: u64);

    /// Whether a session here has read this message from the store, so that it must not be delivered by another way.
    fn was_read_from_store(&self, account: &Account, stanza: &SharedStanza) -> bool;

    /// Whether sessions here have, or have had, this message, which was read from the store, as a copy from another source. If so,
    /// this node answers for that copy: the stored message must not be delivered, and may be removed when the receipt is fulfilled.
    fn take_over_copy(
        &self,
        node: &Arc<Node>,
        account: &Account,
        stanza: &SharedStanza,
        number: u64,
    ) -> (bool, Option<AttachedReceipt>);

    /// No session here has the message. True if this node answers for it, so that it must be delivered otherwise.
    fn forget_copy(&self, account: &Account, stanza: &SharedStanza) -> bool;

    /// Whether sessions here have, or have had, this message. If so and if `responsible`, this node answers for it, and the
    /// receipt says when it is safe.
    fn recognise_copy(
        &self,
        node: &Arc<Node>,
        account: &Account,
        stanza: &SharedStanza,
        responsible: bool,
    ) -> (bool, Option<AttachedReceipt>);

    /// As [`PeerRouting::recognise_copy`], for a message whose chain another node may have run with this id.
    fn recognise_copy_with_id(
        &self,
        node: &Arc<Node>,
        account: &Account,
        id: TimeOrderedId,
    ) -> (bool, Option<AttachedReceipt>);

    /// A client here has taken a message that the store had as well: if another node has stored it, too, it is recognised.
    fn note_delivered(&self, account: &Account, stanza: &SharedStanza);

    /// Reports a change of a blocklist in the store to all other nodes. The future is ready when those with sessions of the account
    /// have read the list, or after three seconds.
    fn announce_blocklist(&self, node: &Arc<Node>, owner: JidRef<'_>) -> BoxFuture<'static, ()>;

    /// Reports a change of an account in the store to all other nodes.
    fn invalidate(&self, node: &Arc<Node>, jid: JidRef<'_>, subject: InvalidationSubject);

    /// Sends a notice ([`crate::feature_notice`]) to all other nodes. At most 256 KiB.
    fn send_notice(&self, node: &Arc<Node>, host: &Host, name: &'static str, content: &[u8]);

    /// Passes a stanza for a service on to the node that owns the item with this hash; false if that is this node.
    fn forward_service_stanza(
        &self,
        node: &Arc<Node>,
        stanza: &SharedStanza,
        to: JidRef<'_>,
        owner_hash: u64,
        work: &mut RoutingWork,
    ) -> bool;

    /// Reports to the other nodes with sessions of an account that the store has a message for it.
    fn report_stored_message(&self, node: &Arc<Node>, owner: JidRef<'_>);

    /// Whether this node delivers the stored messages of an account. While several nodes have sessions that take messages, one does.
    fn delivers_stored(&self, node: &Arc<Node>, account: &Account) -> bool;

    /// Leaves the stored messages of an account to another node when a session becomes available here. True if a node with connected
    /// sessions that take messages was requested to deliver them. `delivers`: whether they are being delivered here already; then they
    /// are not left.
    fn leave_stored(&self, node: &Arc<Node>, account: &Account, delivers: bool) -> bool;

    /// Takes the session of a stream over from the node that holds it; returns the number of its client's stanzas that were
    /// handled. The caller must attach or detach the session.
    fn take_session<'a>(
        &'a self,
        node: &'a Arc<Node>,
        principal: Principal,
        stream: WantedStream,
    ) -> BoxFuture<'a, Result<(Arc<Session>, u32), TransferRefusal>>;

    /// Called once a second, with the second of the node's clock.
    fn sweep(&self, node: &Arc<Node>, now: u32);
}

/// The account's number on all nodes; none for a user without an account.
pub fn address_number(account: &Account) -> Option<AddressNumber> {
    (account.id != AddressId::UNASSIGNED).then_some(account.id.0)
}

/// Class of the envelope for a stanza. Presence is retained as well: if it were lost, contacts would show a wrong state until
/// the next change.
pub fn envelope_class(stanza: &SharedStanza) -> EnvelopeClass {
    match stanza.class() {
        QueueClass::Control | QueueClass::Presence => EnvelopeClass::Control,
        QueueClass::Message => EnvelopeClass::Message,
    }
}

impl Node {
    /// What connects this node with other nodes; `None` if there are never any.
    pub fn peers(&self) -> Option<&dyn PeerRouting> {
        (!self.is_single()).then(|| self.peer_routing())
    }

    /// Announces to the other nodes whether a session of the account takes messages. Must be called after a session
    /// became available or unavailable, or changed its priority.
    pub fn announce_readiness(self: &Arc<Self>, account: &Account) {
        if let Some(peers) = self.peers() {
            peers.announce_readiness(self, account);
        }
    }

    /// Reports the sessions of an account to the other nodes that have sessions of it. Must be called after a change of
    /// their number, of an availability, of a priority, or of [`crate::session::flags::CARBONS`], and after a session was
    /// detached. For one that was resumed see [`Node::session_resumed`].
    pub fn report_sessions(self: &Arc<Self>, account: &Account) {
        if let Some(peers) = self.peers() {
            peers.report_sessions(self, account);
        }
    }

    /// Reports the resumption of a session to the other nodes, and delivers what was stored while it was detached. Must be called after a
    /// session was resumed here.
    pub fn session_resumed(self: &Arc<Self>, session: &Arc<Session>) {
        if let Some(peers) = self.peers() {
            peers.session_resumed(self, session);
        }
    }

    /// See [`PeerRouting::forget_copy`].
    pub(super) fn forget_copy(&self, account: &Account, stanza: &SharedStanza) -> bool {
        self.peers().is_none_or(|peers| peers.forget_copy(account, stanza))
    }

    /// Reports a change of an account in the store to all other nodes.
    pub fn invalidate_elsewhere(self: &Arc<Self>, jid: JidRef<'_>, subject: InvalidationSubject) {
        if let Some(peers) = self.peers() {
            peers.invalidate(self, jid, subject);
        }
    }

    /// Whether a bare address has a session on any node.
    pub fn is_online(&self, jid: JidRef<'_>) -> bool {
        self.routing_table.find(jid).is_some() || self.may_be_elsewhere(jid)
    }

    /// Whether a bare address may have a session on another node.
    pub fn may_be_elsewhere(&self, jid: JidRef<'_>) -> bool {
        !self.is_single() && !self.cluster.locate(self.routing_table.hash(jid), None).claims().is_empty()
    }
}
