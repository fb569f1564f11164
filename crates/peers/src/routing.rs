//! [`PeerRouter`], the implementation of the engine's [`PeerRouting`], and the handle of a node and its peer state that the
//! other files extend. Each method only forwards to the file of its subject.

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

use base::TimeOrderedId;
use base::spawn::BoxFuture;
use cluster::{Envelope, HandoverResult, InvalidationSubject, NodeId, RefusedEnvelope};
use jid::JidRef;
use store::AddressId;
use throng_core::account::{Account, AccountState, Contact};
use throng_core::host::Host;
use throng_core::receipt::{AttachedReceipt, Receipt};
use throng_core::router::peer_routing::BlocklistPair;
use throng_core::router::push::PushSelection;
use throng_core::router::{HandedOver, HomeDecision, PeerRouting, RoutingWork};
use throng_core::session::Session;
use throng_core::session::stream_management::{TransferRefusal, WantedStream};
use throng_core::shared_stanza::SharedStanza;
use throng_core::{Node, Principal};

use super::home::PeerState;
use super::inbox::settle;
use super::message_copies;

/// Connects a node with the other nodes. It has state of that node, so each node needs one of its own.
#[derive(Default)]
pub struct PeerRouter(Arc<PeerState>);

/// A node and what it remembers about other nodes.
#[derive(Clone, Copy)]
pub(crate) struct ClusteredNode<'a> {
    node: &'a Arc<Node>,
    pub(crate) state: &'a Arc<PeerState>,
}

/// As [`ClusteredNode`], for tasks.
#[derive(Clone)]
pub(crate) struct OwnedClusteredNode {
    node: Arc<Node>,
    state: Arc<PeerState>,
}

impl<'a> ClusteredNode<'a> {
    /// `None` if the node was built with other routing.
    pub(crate) fn of(node: &'a Arc<Node>) -> Option<ClusteredNode<'a>> {
        let router: &PeerRouter = (node.peer_routing() as &dyn Any).downcast_ref()?;
        Some(router.on(node))
    }

    pub(crate) fn arc(&self) -> &'a Arc<Node> {
        self.node
    }

    pub(crate) fn owned(&self) -> OwnedClusteredNode {
        OwnedClusteredNode { node: self.node.clone(), state: self.state.clone() }
    }
}

impl OwnedClusteredNode {
    pub(crate) fn view(&self) -> ClusteredNode<'_> {
        ClusteredNode { node: &self.node, state: &self.state }
    }
}

impl Deref for ClusteredNode<'_> {
    type Target = Arc<Node>;

    fn deref(&self) -> &Arc<Node> {
        self.node
    }
}

impl PeerRouter {
    fn on<'a>(&'a self, node: &'a Arc<Node>) -> ClusteredNode<'a> {
        ClusteredNode { node, state: &self.0 }
    }
}

impl PeerRouting for PeerRouter {
    fn claim_account(&self, node: &Arc<Node>, account: &Account) {
        self.on(node).claim_account(account);
    }

    fn release_account(&self, node: &Arc<Node>, account: &Account) {
        self.on(node).release_account(account);
    }

    fn note_earlier_claims(
        &self,
        node: &Arc<Node>,
        account: &Account,
        state: &mut AccountState,
        session: &Arc<Session>,
    ) {
        self.on(node).note_earlier_claims(account, state, session);
    }

    fn end_sessions_of_client(&self, node: &Arc<Node>, session: &Session, name: &str) {
        self.on(node).end_sessions_of_client(session, name);
    }

    fn announce_readiness(&self, node: &Arc<Node>, account: &Account) {
        self.on(node).announce_readiness(account);
    }

    fn report_sessions(&self, node: &Arc<Node>, account: &Account) {
        self.on(node).report_sessions(account);
    }

    fn session_resumed(&self, node: &Arc<Node>, session: &Arc<Session>) {
        self.on(node).session_resumed(session);
    }

    fn hand_to_home(
        &self,
        node: &Arc<Node>,
        stanza: &SharedStanza,
        to: JidRef<'_>,
        account: Option<&Arc<Account>>,
        handed_over: Option<HandedOver>,
        work: &RoutingWork,
    ) -> HomeDecision {
        self.on(node).hand_to_home(stanza, to, account, handed_over, work)
    }

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
    ) -> bool {
        self.on(node).deliver_to_peer(peer, account, stanza, to, hops, is_copy, work)
    }

    fn send_with_receipt(
        &self,
        node: &Arc<Node>,
        to: NodeId,
        envelope: Envelope,
    ) -> Result<Option<Receipt>, Box<RefusedEnvelope>> {
        self.on(node).hand_over(to, envelope, None, true)
    }

    fn hold_path(&self, node: &Arc<Node>, attached: AttachedReceipt) -> AttachedReceipt {
        self.on(node).hold_path(attached)
    }

    fn receive_stanza(
        &self,
        node: &Arc<Node>,
        from: NodeId,
        envelope: Envelope,
    ) -> Option<BoxFuture<'static, ()>> {
        self.on(node).receive_stanza(from, envelope)
    }

    fn settle(&self, node: &Arc<Node>, from: NodeId, envelope: &Envelope, result: HandoverResult) {
        settle(&self.on(node), from, envelope, result);
    }

    fn push_to_peers(
        &self,
        node: &Arc<Node>,
        account: &Arc<Account>,
        selection: PushSelection,
        except: &mut dyn Iterator<Item = &str>,
        stanza: &SharedStanza,
    ) {
        self.on(node).push_to_peers(account, selection, except, stanza);
    }

    fn record_push(&self, node: &Arc<Node>, account: &Account, stanza: &SharedStanza) -> bool {
        self.on(node).record_push(account, stanza, false)
    }

    fn broadcast_to_peers(
        &self,
        node: &Arc<Node>,
        sender: &Arc<Account>,
        contacts: &[Contact],
        stanza: &SharedStanza,
    ) {
        self.on(node).broadcast_to_peers(sender, contacts, stanza);
    }

    fn send_presence_to_contact(
        &self,
        node: &Arc<Node>,
        account: &Arc<Account>,
        to: JidRef<'_>,
        available: bool,
    ) {
        self.on(node).send_presence_to_contact(account, to, available);
    }

    fn request_presence_of_peers(
        &self,
        node: &Arc<Node>,
        account: &Arc<Account>,
        to: JidRef<'_>,
        available: bool,
    ) {
        self.on(node).request_presence_of_peers(account, to, available);
    }

    fn fetch_presence(&self, node: &Arc<Node>, account: &Arc<Account>, contact: JidRef<'_>) {
        self.on(node).fetch_presence(account, contact);
    }

    fn subscription_ended(&self, node: &Arc<Node>, account: &Arc<Account>, contact: (u64, AddressId)) {
        self.on(node).note_ended_subscription(account, contact);
    }

    fn roster_replaced(
        &self,
        node: &Arc<Node>,
        account: &Arc<Account>,
        before: &[Contact],
        after: &[Contact],
    ) {
        self.on(node).roster_replaced(account, before, after);
    }

    fn probe_peers(&self, node: &Arc<Node>, session: &Arc<Session>) {
        self.on(node).probe_peers(session);
    }

    fn probe_directed_elsewhere(
        &self,
        node: &Arc<Node>,
        account: &Account,
        stanza: &SharedStanza,
        answered: bool,
    ) -> bool {
        self.on(node).probe_directed_elsewhere(account, stanza, answered)
    }

    fn exchange_presence_after_block<'a>(
        &'a self,
        node: &'a Arc<Node>,
        account: &'a Arc<Account>,
        change: BlocklistPair,
        everywhere: bool,
    ) -> BoxFuture<'a, ()> {
        let node = self.on(node);
        Box::pin(async move { node.exchange_presence_after_block(account, change, everywhere).await })
    }

    fn record_copy(&self, account: &Account, stanza: &SharedStanza, responsible: bool) {
        message_copies::record_copy(account, stanza, responsible);
    }

    fn record_read_from_store(&self, account: &Account, stanza: &SharedStanza, number: u64) {
        message_copies::record_read_from_store(account, stanza, number);
    }

    fn was_read_from_store(&self, account: &Account, stanza: &SharedStanza) -> bool {
        message_copies::stored_number(account, stanza).is_some()
    }

    fn take_over_copy(
        &self,
        node: &Arc<Node>,
        account: &Account,
        stanza: &SharedStanza,
        number: u64,
    ) -> (bool, Option<AttachedReceipt>) {
        self.on(node).take_over_copy(account, stanza, number)
    }

    fn forget_copy(&self, account: &Account, stanza: &SharedStanza) -> bool {
        message_copies::forget_copy(account, stanza)
    }

    fn recognise_copy(
        &self,
        node: &Arc<Node>,
        account: &Account,
        stanza: &SharedStanza,
        responsible: bool,
    ) -> (bool, Option<AttachedReceipt>) {
        self.on(node).recognise_copy(account, stanza, responsible)
    }

    fn recognise_copy_with_id(
        &self,
        node: &Arc<Node>,
        account: &Account,
        id: TimeOrderedId,
    ) -> (bool, Option<AttachedReceipt>) {
        self.on(node).recognise_copy_with_id(account, id)
    }

    fn note_delivered(&self, account: &Account, stanza: &SharedStanza) {
        self.0.note_delivered(account, stanza);
    }

    fn announce_blocklist(&self, node: &Arc<Node>, owner: JidRef<'_>) -> BoxFuture<'static, ()> {
        self.on(node).announce_blocklist(owner)
    }

    fn invalidate(&self, node: &Arc<Node>, jid: JidRef<'_>, subject: InvalidationSubject) {
        self.on(node).invalidate_elsewhere(jid, subject);
    }

    fn send_notice(&self, node: &Arc<Node>, host: &Host, name: &'static str, content: &[u8]) {
        self.on(node).send_notice(host, name, content);
    }

    fn forward_service_stanza(
        &self,
        node: &Arc<Node>,
        stanza: &SharedStanza,
        to: JidRef<'_>,
        owner_hash: u64,
        work: &mut RoutingWork,
    ) -> bool {
        self.on(node).forward_service_stanza(stanza, to, owner_hash, work)
    }

    fn report_stored_message(&self, node: &Arc<Node>, owner: JidRef<'_>) {
        self.on(node).report_stored_message(owner);
    }

    fn delivers_stored(&self, node: &Arc<Node>, account: &Account) -> bool {
        self.on(node).delivers_stored(account)
    }

    fn leave_stored(&self, node: &Arc<Node>, account: &Account, delivers: bool) -> bool {
        self.on(node).leave_stored(account, delivers)
    }

    fn take_session<'a>(
        &'a self,
        node: &'a Arc<Node>,
        principal: Principal,
        stream: WantedStream,
    ) -> BoxFuture<'a, Result<(Arc<Session>, u32), TransferRefusal>> {
        let node = self.on(node);
        Box::pin(async move { node.take_session(principal, stream).await })
    }

    fn sweep(&self, node: &Arc<Node>, now: u32) {
        let node = self.on(node);
        node.send_all_due();
        node.withdraw_remaining_contacts();
        node.sweep_directed_presence(now);
        node.retry_account_pass();
        node.expire_node_queries(now);
        node.sweep_forwarded_requests(now);
        node.expire_session_transfers(now);
        node.give_up_overdue_handovers(now);
        node.state.pending_blocklist_changes.wake_overdue(now);
        node.sweep_slices();
    }
}
