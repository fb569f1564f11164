//! Hand-overs between nodes at the contract of the cluster: a node without an engine ("peer") that sends and receives
//! envelopes, correct and false ones, beside nodes with an engine.
//!
//! Long because every test needs the peer.

use std::sync::Arc;

use cluster::conformance::{InboxEvent, InboxRecorder};
use cluster::memory::MemoryNode;
use cluster::{
    AddressNumber, AddressReference, Claim, Cluster, Envelope, EnvelopeClass, EnvelopeKind, HandoverResult,
    NodeId, PeerViolation, Recipient, Ticket,
};
use jid::Jid;
use testkit::{NodeClient, TestNodes};
use throng_e2e::chain_observer::{observed_features, take_runs};

/// Two nodes with an engine, and the peer.
pub(crate) struct Peer {
    pub(crate) nodes: TestNodes,
    number: AddressNumber,
    pub(crate) peer: Arc<MemoryNode>,
    pub(crate) inbox: Arc<InboxRecorder>,
}

pub(crate) const JULIET: &str = "juliet@example.com";

pub(crate) fn chat(id: &str) -> String {
    format!("<message to='{JULIET}' type='chat' id='{id}'><body>Hello</body></message>")
}

/// As it arrives from another node.
pub(crate) fn handed_over(id: &str) -> String {
    chat(id).replace("<message ", "<message from='romeo@example.com/orchard' xmlns='jabber:client' ")
}

impl Peer {
    pub(crate) fn new() -> Peer {
        let nodes = TestNodes::new(2, &observed_features());
        nodes.node(0).create_user("romeo");
        let number = nodes.node(0).create_user("juliet").0;
        let peer = nodes.bus.join(Peer::id());
        let cluster: Arc<dyn Cluster> = peer.clone();
        let inbox = InboxRecorder::attach_unsettled(&cluster);
        nodes.settle();
        Peer { nodes, number, peer, inbox }
    }

    pub(crate) fn id() -> NodeId {
        NodeId::new("a-peer").expect("a name")
    }

    fn hash(&self) -> u64 {
        self.nodes.node(0).node.routing_table.hash(Jid::parse(JULIET).expect("an address").as_ref())
    }

    fn reference(&self, number: u32) -> AddressReference {
        AddressReference { hash: self.hash(), number: AddressNumber::new(number).expect("a number") }
    }

    pub(crate) fn claim(&self, since: u64) {
        let (address, number) = (self.hash(), Some(self.number));
        self.peer.claim(Claim { address, number, since, takes_messages: true });
        self.nodes.settle();
    }

    pub(crate) fn release(&self) {
        self.peer.release(self.hash(), Some(self.number));
        self.nodes.settle();
    }

    /// Sends to node 0, and returns when everything is done.
    pub(crate) fn send(&self, kind: EnvelopeKind, recipients: Vec<Recipient>, bytes: &str) -> Ticket {
        self.send_tracked(kind, recipients, bytes, true)
    }

    /// As [`Peer::send`]; the sender's stream may count its stanzas or not.
    fn send_tracked(
        &self,
        kind: EnvelopeKind,
        recipients: Vec<Recipient>,
        bytes: &str,
        tracked: bool,
    ) -> Ticket {
        let envelope =
            Envelope::new(kind, EnvelopeClass::Message, self.peer.node(), recipients, bytes.as_bytes());
        let envelope = envelope.with_delivery_tracking(tracked);
        let ticket = self.peer.deliver(self.nodes.id(0), envelope).expect("accepted");
        self.nodes.settle();
        ticket
    }

    pub(crate) fn online(&self, node: usize, user: &str, resource: &str) -> NodeClient {
        let client = self.nodes.node(node).connect(user, resource);
        client.send("<presence/>");
        self.nodes.settle();
        client.recv();
        client
    }

    /// The messages that arrived at the peer.
    pub(crate) fn received(&self) -> Vec<Envelope> {
        let envelope = |event| match event {
            InboxEvent::Envelope(_, envelope) if envelope.header.class == EnvelopeClass::Message => {
                Some(envelope)
            }
            _ => None,
        };
        self.inbox.events().into_iter().filter_map(envelope).collect()
    }

    /// Settles everything but messages: one receipt covers all tickets up to its own.
    pub(crate) fn settle_reports(&self) {
        for event in self.inbox.events() {
            if let InboxEvent::Envelope(from, envelope) = event
                && envelope.header.class == EnvelopeClass::Control
            {
                self.peer.settle(from, envelope.ticket(), HandoverResult::Safe);
            }
        }
    }

    /// The recipients that node 0 refused.
    fn refused(&self) -> Vec<Recipient> {
        let recipients = |event| match event {
            InboxEvent::Refused(_, envelope) => envelope.recipients,
            _ => Vec::new(),
        };
        self.inbox.events().into_iter().flat_map(recipients).collect()
    }

    pub(crate) fn violations(&self, violation: PeerViolation) -> u64 {
        self.nodes.node(0).node.metrics.cluster_violations.get([violation.as_str()])
    }
}

pub(crate) fn messages(client: &NodeClient) -> Vec<String> {
    let mut stanzas = client.recv();
    stanzas.retain(|stanza| stanza.starts_with("<message"));
    stanzas
}

fn stanza_id(message: &str) -> &str {
    let (_, rest) = message.split_once("<stanza-id xmlns='urn:xmpp:sid:0' id='").expect(message);
    rest.split_once('\'').expect(message).0
}

#[test]
fn a_recipient_whose_number_differs_is_refused_although_its_hash_is_found() {
    let test = Peer::new();
    let juliet = test.online(0, "juliet", "balcony");
    let right = Recipient::Account(test.reference(test.number.get()));
    let wrong = [
        Recipient::Account(test.reference(test.number.get() + 1)),
        Recipient::Account(test.reference(u32::MAX)),
        Recipient::Session(test.reference(test.number.get()), 1),
        Recipient::Address(Jid::parse("nobody@example.com").expect("an address")),
        Recipient::Address(Jid::parse("juliet@elsewhere.example").expect("an address")),
    ];
    let mut recipients = wrong.to_vec();
    recipients.insert(2, right);
    let mut ticket = None;
    for recipient in recipients {
        ticket = Some(test.send(EnvelopeKind::RunChain, vec![recipient], &handed_over("1")));
    }
    assert_eq!(messages(&juliet).len(), 1);
    test.nodes.settle();
    assert_eq!(test.refused(), wrong);
    assert!(test.inbox.receipt(test.nodes.id(0)) >= ticket);
    assert_eq!(test.nodes.node(0).node.metrics.cluster_refused.get(), 5);
}

/// Two addresses can have the same hash.
#[test]
fn presence_of_a_sender_whose_number_is_not_that_of_the_contact_is_not_delivered() {
    let test = Peer::new();
    test.nodes.node(0).befriend("romeo", "juliet");
    let romeo = test.online(0, "romeo", "orchard");
    let romeo_number = romeo.session.account.id.0;
    let hash = test.nodes.node(0).node.routing_table.hash(romeo.bare());
    let recipients = || vec![Recipient::Account(AddressReference { hash, number: romeo_number })];
    let presence = "<presence xmlns='jabber:client' from='juliet@example.com/phone'/>";
    let length = u32::try_from(presence.len()).expect("a length").to_be_bytes();
    for (number, received) in [(test.number.get() + 1, 0), (u32::MAX, 0), (test.number.get(), 1)] {
        let number = number.to_be_bytes();
        let change = [&[0, 0][..], &number, presence.as_bytes()].concat();
        let answer = [&[0, 7][..], b"orchard", &number, &length, presence.as_bytes()].concat();
        for (kind, octets) in [(EnvelopeKind::Engine(2), change), (EnvelopeKind::Engine(4), answer)] {
            let envelope = Envelope::new(kind, EnvelopeClass::Control, Peer::id(), recipients(), octets);
            test.peer.deliver(test.nodes.id(0), envelope).expect("accepted");
            test.nodes.settle();
            assert_eq!(romeo.recv().len(), received, "{kind:?} {number:?}");
        }
    }
    assert_eq!(test.violations(PeerViolation::Payload), 0);
}

#[test]
fn a_user_without_an_account_is_never_found_by_a_number() {
    let test = Peer::new();
    let guest = test.nodes.node(0).connect_anonymous("guest", "web");
    guest.send("<presence/>");
    test.nodes.settle();
    guest.recv();
    let hash = test.nodes.node(0).node.routing_table.hash(guest.bare());
    let reference = AddressReference { hash, number: AddressNumber::MAX };
    let text = handed_over("1").replace(JULIET, "guest@example.com");
    test.send(EnvelopeKind::RunChain, vec![Recipient::Account(reference)], &text);
    assert_eq!((messages(&guest).len(), test.refused().len()), (0, 1));
    let by_text = Recipient::Address(guest.bare().to_jid());
    test.send(EnvelopeKind::RunChain, vec![by_text], &text);
    assert_eq!((messages(&guest).len(), test.refused().len()), (1, 1));
}

#[test]
fn a_refused_stanza_is_not_sent_to_a_third_node() {
    let test = Peer::new();
    let juliet = test.online(1, "juliet", "balcony");
    let before = test.nodes.bus.envelopes();
    test.send(
        EnvelopeKind::RunChain,
        vec![Jid::parse(JULIET).expect("an address").into()],
        &handed_over("1"),
    );
    assert_eq!(test.nodes.bus.envelopes() - before, 1, "the peer's only");
    assert_eq!((messages(&juliet).len(), test.refused().len()), (0, 1));
}

#[test]
fn a_message_keeps_its_id_when_the_other_node_refuses_it() {
    let test = Peer::new();
    test.claim(1);
    let romeo = test.online(0, "romeo", "orchard");
    romeo.send(&chat("1"));
    test.nodes.settle();
    let received = test.received();
    let id = received[0].header.stanza_id.expect("a given id").to_string();
    assert_eq!((received.len(), received[0].header.kind), (1, EnvelopeKind::RunChain));
    test.peer.release(test.hash(), Some(test.number));
    test.settle_reports();
    assert!(test.peer.settle(test.nodes.id(0), received[0].ticket(), HandoverResult::Refused));
    test.nodes.settle();
    let juliet = test.nodes.node(1).connect("juliet", "balcony");
    juliet.send("<presence/>");
    test.nodes.settle();
    let stored = messages(&juliet);
    assert_eq!(stored.len(), 1, "{stored:?}");
    assert_eq!(stanza_id(&stored[0]), id);
}

#[test]
fn a_message_keeps_its_id_when_the_other_node_is_gone_before_it_was_safe() {
    let test = Peer::new();
    test.claim(1);
    let romeo = test.online(0, "romeo", "orchard");
    romeo.send(&chat("1"));
    test.nodes.settle();
    let id = test.received()[0].header.stanza_id.expect("a given id").to_string();
    test.nodes.bus.crash(Peer::id());
    assert!(romeo.handled() < romeo.sent());
    test.nodes.settle();
    assert_eq!(romeo.handled(), romeo.sent(), "it is stored");
    let juliet = test.nodes.node(0).connect("juliet", "balcony");
    juliet.send("<presence/>");
    test.nodes.settle();
    let stored = messages(&juliet);
    assert_eq!(stored.len(), 1, "{stored:?}");
    assert_eq!(stanza_id(&stored[0]), id);
}

#[test]
fn a_message_for_another_node_counts_as_handled_when_that_node_has_it_safe() {
    let test = Peer::new();
    test.claim(1);
    let romeo = test.online(0, "romeo", "orchard");
    assert_eq!(romeo.handled(), romeo.sent());
    romeo.send(&chat("1"));
    romeo.send("<presence><show>away</show></presence>");
    test.nodes.settle();
    assert_eq!(romeo.handled(), romeo.sent() - 2, "the presence follows it");
    let received = test.received();
    test.settle_reports();
    test.nodes.settle();
    assert_eq!(romeo.handled(), romeo.sent() - 2);
    assert!(test.peer.settle(test.nodes.id(0), received[0].ticket(), HandoverResult::Safe));
    test.nodes.settle();
    assert_eq!(romeo.handled(), romeo.sent());
    assert!(messages(&romeo).is_empty());
}

/// The home waits for the node that has the session, and the sender's node for the home.
#[test]
fn a_message_for_a_resource_elsewhere_counts_as_handled_when_the_last_node_has_it_safe() {
    let test = Peer::new();
    let _juliet = test.online(1, "juliet", "balcony");
    test.nodes.clock.advance(10);
    test.claim(u64::MAX);
    let phone = [&[0, 5][..], b"phone", &[1, 0], &[0; 16]].concat();
    let recipients = vec![Recipient::Account(test.reference(test.number.get()))];
    let report =
        Envelope::new(EnvelopeKind::SessionReport, EnvelopeClass::Control, Peer::id(), recipients, phone);
    test.peer.deliver(test.nodes.id(1), report).expect("accepted");
    test.nodes.settle();
    let romeo = test.online(0, "romeo", "orchard");
    romeo.send(&chat("1").replace(JULIET, "juliet@example.com/phone"));
    test.nodes.settle();
    assert_eq!(romeo.handled(), romeo.sent() - 1);
    let received = test.received();
    assert_eq!((received.len(), received[0].header.kind), (1, EnvelopeKind::ChainHasRun));
    test.settle_reports();
    assert!(test.peer.settle(received[0].header.origin, received[0].ticket(), HandoverResult::Safe));
    test.nodes.settle();
    assert_eq!(romeo.handled(), romeo.sent());
}

/// Otherwise an acknowledged message would be lost with that node.
#[test]
fn a_message_in_the_queue_of_a_slow_client_elsewhere_counts_as_handled_when_it_is_received_or_stored() {
    let test = Peer::new();
    let juliet = test.online(1, "juliet", "balcony");
    let romeo = test.online(0, "romeo", "orchard");
    romeo.enable_stream_management();
    let after_receipts = || {
        test.settle_reports();
        test.nodes.settle();
        romeo.sent() - romeo.handled()
    };
    romeo.send(&chat("1"));
    assert_eq!(after_receipts(), 1);
    assert_eq!(messages(&juliet).len(), 1);
    assert_eq!(after_receipts(), 0);
    romeo.send(&chat("2"));
    assert_eq!(after_receipts(), 1);
    test.nodes.advance(1);
    assert_eq!(after_receipts(), 0, "it is stored");
    test.nodes.bus.crash(test.nodes.id(1));
    test.nodes.settle();
    let again = test.nodes.node(0).connect("juliet", "garden");
    again.send("<presence/>");
    test.nodes.settle();
    let stored = messages(&again);
    assert!(stored.len() == 1 && stored[0].contains(" id='2'"), "{stored:?}");
}

/// Nobody would learn that they are safe, so their slow recipients cost no database write.
#[test]
fn a_message_whose_sender_has_no_stream_management_is_not_backed_up_elsewhere() {
    for (with, backups) in [(false, 0), (true, 1)] {
        let test = Peer::new();
        let _juliet = test.online(1, "juliet", "balcony");
        let romeo = test.online(0, "romeo", "orchard");
        if with {
            romeo.enable_stream_management();
        }
        // Her client reads nothing.
        romeo.send(&chat("1"));
        test.nodes.settle();
        test.nodes.advance(1);
        test.nodes.settle();
        let written = test.nodes.node(1).node.metrics.offline_backups.get();
        assert_eq!(written, backups, "with stream management: {with}");
    }
}

#[test]
fn an_envelope_ends_with_the_delivery_only_if_its_sender_waits_for_it() {
    for tracked in [false, true] {
        let test = Peer::new();
        let juliet = test.online(0, "juliet", "balcony");
        let recipients = vec![Jid::parse(JULIET).expect("an address").into()];
        let ticket = test.send_tracked(EnvelopeKind::RunChain, recipients, &handed_over("1"), tracked);
        assert_eq!(test.inbox.receipt(test.nodes.id(0)) >= Some(ticket), !tracked, "in her queue");
        assert_eq!(messages(&juliet).len(), 1);
        test.nodes.settle();
        assert!(test.inbox.receipt(test.nodes.id(0)) >= Some(ticket), "received");
    }
}

#[test]
fn a_stanza_takes_the_way_to_a_new_home_when_everything_on_the_old_one_has_ended() {
    let test = Peer::new();
    test.claim(1);
    let romeo = test.online(0, "romeo", "orchard");
    romeo.send(&chat("1"));
    let juliet = test.online(1, "juliet", "balcony");
    test.release();
    romeo.send(&chat("2"));
    romeo.send(&chat("3"));
    test.nodes.settle();
    assert!(messages(&juliet).is_empty(), "the first one may come back");
    let received = test.received();
    test.settle_reports();
    assert!(test.peer.settle(test.nodes.id(0), received[0].ticket(), HandoverResult::Refused));
    test.nodes.settle();
    // Their stanzas wait for a poll of their stream.
    romeo.recv();
    test.nodes.settle();
    let order: Vec<bool> = messages(&juliet).iter().map(|message| message.contains(" id='1'")).collect();
    assert_eq!(order, [true, false, false]);
    test.nodes.settle();
    assert_eq!(romeo.handled(), romeo.sent());
}

#[test]
fn a_message_whose_chain_another_node_runs_gets_the_id_that_it_was_given() {
    let test = Peer::new();
    let juliet = test.online(0, "juliet", "balcony");
    let id = test.nodes.node(1).node.next_stanza_id();
    let recipients = vec![Jid::parse(JULIET).expect("an address").into()];
    let envelope = Envelope::new(
        EnvelopeKind::RunChain,
        EnvelopeClass::Message,
        test.peer.node(),
        recipients,
        handed_over("1").as_bytes(),
    );
    assert!(test.peer.deliver(test.nodes.id(0), envelope.with_stanza_id(Some(id))).is_ok());
    test.nodes.settle();
    assert_eq!(stanza_id(&messages(&juliet)[0]), id.to_string());
}

#[test]
fn a_message_whose_chain_has_run_is_delivered_as_it_is() {
    let test = Peer::new();
    let juliet = test.online(0, "juliet", "balcony");
    let given = format!("<stanza-id xmlns='urn:xmpp:sid:0' id='given' by='{JULIET}'/></message>");
    let message = handed_over("1").replace("</message>", &given);
    let account = Recipient::Account(test.reference(test.number.get()));
    test.send(EnvelopeKind::ChainHasRun, vec![account], &message);
    let received = messages(&juliet);
    assert_eq!(received.len(), 1);
    assert_eq!((stanza_id(&received[0]), received[0].matches("<stanza-id").count()), ("given", 1));
    assert_eq!(take_runs().get("1"), None, "no chain ran");
}

#[test]
fn a_stanza_that_names_another_recipient_than_its_envelope_is_refused() {
    let test = Peer::new();
    let juliet = test.online(0, "juliet", "balcony");
    let lie = handed_over("1").replace(JULIET, "nurse@example.com");
    let address = Recipient::from(Jid::parse(JULIET).expect("an address"));
    for recipient in [address, Recipient::Account(test.reference(test.number.get()))] {
        for kind in [EnvelopeKind::RunChain, EnvelopeKind::ChainHasRun] {
            test.send(kind, vec![recipient.clone()], &lie);
        }
    }
    assert_eq!((messages(&juliet).len(), test.refused().len()), (0, 4));
    assert_eq!(test.violations(PeerViolation::Payload), 4);
}

/// Each recipient would keep a copy of up to 128 KiB, and the stanzas of each would be handled in the lane of the first.
#[test]
fn reports_and_stanzas_for_several_accounts_are_refused() {
    let test = Peer::new();
    let juliet = test.online(0, "juliet", "balcony");
    let romeo = Jid::parse("romeo@example.com").expect("an address");
    let node = test.nodes.node(0);
    let romeo = node.block_on(node.stores.addresses.find(&romeo)).expect("the store answers");
    let romeo = romeo.expect("an account");
    test.claim(u64::MAX);
    let recipients =
        || [test.number.get(), romeo.0.get()].map(|n| Recipient::Account(test.reference(n))).to_vec();
    let report = [&[0, 5][..], b"phone", &[1, 0], &[0; 16]].concat();
    let report = String::from_utf8(report).expect("ASCII");
    test.send(EnvelopeKind::SessionReport, recipients(), &report);
    test.send(EnvelopeKind::ChainHasRun, recipients(), &handed_over("1"));
    assert_eq!(test.violations(PeerViolation::Payload), 2);
    assert!(messages(&juliet).is_empty());
    assert!(juliet.session.account.with(|state| state.peers().iter().all(|peer| !peer.reported)));
}

#[test]
fn a_report_of_a_node_without_a_claim_is_ignored() {
    let test = Peer::new();
    let juliet = test.online(0, "juliet", "balcony");
    let report = [&[0, 5][..], b"phone", &[1, 0], &[0; 16]].concat();
    let report = String::from_utf8(report).expect("ASCII");
    let recipients = || vec![Recipient::Account(test.reference(test.number.get()))];
    test.send(EnvelopeKind::SessionReport, recipients(), &report);
    assert!(juliet.session.account.with(|state| state.peers().is_empty()));
    test.claim(u64::MAX);
    test.send(EnvelopeKind::SessionReport, recipients(), &report);
    assert!(juliet.session.account.with(|state| state.peers().iter().any(|peer| peer.reported)));
}

/// The peer reports a session of juliet with the resource of the one here, bound at this time.
fn report_balcony(test: &Peer, bound_at: u64) {
    let report = [&[0, 7][..], b"balcony", &[1, 0], &[0; 8], &bound_at.to_be_bytes()].concat();
    let recipients = vec![Recipient::Account(test.reference(test.number.get()))];
    let (kind, class) = (EnvelopeKind::SessionReport, EnvelopeClass::Control);
    let report = Envelope::new(kind, class, Peer::id(), recipients, report);
    test.peer.deliver(test.nodes.id(0), report).expect("accepted");
    test.nodes.settle();
}

/// The home of an account does not decide between its sessions, nor does the order in which reports arrive.
#[test]
fn the_newer_of_two_sessions_with_one_full_address_stays() {
    for stays in [true, false] {
        let test = Peer::new();
        let juliet = test.online(0, "juliet", "balcony");
        let bound_at = if stays { 0 } else { test.nodes.node(0).node.clock.unix_millis() + 1000 };
        test.claim(u64::MAX);
        report_balcony(&test, bound_at);
        assert_eq!(!juliet.session.is_ended(), stays, "bound at {bound_at}");
        assert_eq!(juliet.closed_with().is_some(), !stays, "with a conflict");
    }
}

/// The clock of the node on which she was before is ahead.
#[test]
fn a_session_is_newer_than_those_of_nodes_that_had_claimed_its_account_before() {
    let test = Peer::new();
    test.claim(1);
    let juliet = test.online(0, "juliet", "balcony");
    let bound_at = test.nodes.node(0).node.clock.unix_millis() + 60_000;
    let report = |bound_at| report_balcony(&test, bound_at);
    report(bound_at);
    assert!(!juliet.session.is_ended() && juliet.session.bound_at() > bound_at);
    let reported = test.inbox.events().into_iter().rev().find_map(|event| match event {
        InboxEvent::Envelope(_, envelope) if envelope.header.kind == EnvelopeKind::SessionReport => {
            envelope.bytes.last_chunk().map(|octets| u64::from_be_bytes(*octets))
        }
        _ => None,
    });
    assert_eq!(reported, Some(juliet.session.bound_at()), "the other node learns of it");
    // What it binds later is newer.
    report(bound_at + 60_000);
    assert!(juliet.session.is_ended());
}

/// She has bound the address there again before the first report was sent; the clocks agree, or nearly.
#[test]
fn a_session_that_is_bound_after_one_here_stays_although_its_node_had_claimed_the_account_before() {
    for (ahead, stays) in [(500, false), (1_000, false), (1_001, true)] {
        let test = Peer::new();
        test.claim(1);
        let juliet = test.online(0, "juliet", "balcony");
        report_balcony(&test, test.nodes.node(0).node.clock.unix_millis() + ahead);
        assert_eq!(!juliet.session.is_ended(), stays, "{ahead}");
    }
}

#[test]
fn of_two_sessions_with_one_full_address_that_are_bound_at_once_one_stays() {
    let test = Peer::new();
    let principals = [0, 1].map(|node| test.nodes.node(node).principal("juliet"));
    let sessions: Vec<NodeClient> = (0..2)
        .zip(principals)
        .map(|(node, principal)| test.nodes.node(node).bind(principal, "balcony").expect("a session"))
        .collect();
    test.nodes.settle();
    let live: Vec<bool> = sessions.iter().map(|client| !client.session.is_ended()).collect();
    assert_eq!(live, [false, true], "bound in the same millisecond: the name of the node decides");
}

/// It is sent again when there is room: the session must end all the same.
#[test]
fn a_disabled_account_loses_its_session_on_a_node_whose_queue_was_full() {
    let test = Peer::new();
    let juliet = test.online(1, "juliet", "balcony");
    let romeo = test.online(0, "romeo", "orchard");
    let body = "x".repeat(200_000);
    for id in 0..30 {
        romeo.send(&chat(&id.to_string()).replace("Hello", &body));
    }
    let address = Jid::parse(JULIET).expect("an address");
    let node = test.nodes.node(0);
    let disabled = throng_commands::account_admin::set_account_disabled(&node.node, &address, true);
    node.block_on(disabled).expect("an account");
    assert!(!juliet.session.is_ended());
    test.nodes.settle();
    test.nodes.advance(1);
    test.nodes.settle();
    assert!(juliet.session.is_ended());
}

/// Without a session anywhere, the sender's node stores it.
#[test]
fn a_message_that_is_being_stored_arrives_before_a_later_one_on_the_node_of_a_new_session() {
    let test = Peer::new();
    let romeo = test.online(0, "romeo", "orchard");
    let juliet = test.nodes.node(1).connect("juliet", "balcony");
    juliet.send("<presence/>");
    // Node 0 does not know of her yet.
    romeo.send(&chat("1"));
    test.nodes.settle();
    romeo.send(&chat("2"));
    for _ in 0..3 {
        test.nodes.settle();
        romeo.recv();
    }
    let received = [messages(&juliet), {
        test.nodes.settle();
        messages(&juliet)
    }]
    .concat();
    let order: Vec<bool> = received.iter().map(|message| message.contains(" id='1'")).collect();
    assert_eq!(order, [true, false]);
    assert_eq!(romeo.handled(), romeo.sent());
}

/// The number of a recipient decides, also where the stanza has an address with the same hash.
#[test]
fn a_message_that_returns_from_a_resource_elsewhere_is_stored_for_its_recipient() {
    let test = Peer::new();
    let juliet = test.online(0, "juliet", "balcony");
    test.nodes.clock.advance(10);
    test.claim(u64::MAX);
    let phone = [&[0, 5][..], b"phone", &[1, 0], &[0; 16]].concat();
    let recipients = vec![Recipient::Account(test.reference(test.number.get()))];
    let report =
        Envelope::new(EnvelopeKind::SessionReport, EnvelopeClass::Control, Peer::id(), recipients, phone);
    test.peer.deliver(test.nodes.id(0), report).expect("accepted");
    test.nodes.settle();
    let romeo = test.online(0, "romeo", "orchard");
    romeo.send(&chat("1").replace(JULIET, "juliet@example.com/phone"));
    test.nodes.settle();
    let received = test.received();
    assert_eq!((received.len(), received[0].header.kind), (1, EnvelopeKind::ChainHasRun));
    juliet.close();
    test.peer.release(test.hash(), Some(test.number));
    test.nodes.settle();
    test.settle_reports();
    assert!(test.peer.settle(test.nodes.id(0), received[0].ticket(), HandoverResult::Refused));
    test.nodes.settle();
    let late = test.nodes.node(0).connect("juliet", "late");
    late.send("<presence/>");
    test.nodes.settle();
    assert_eq!(messages(&late).len(), 1);
}

/// The home answers for a message; what the other nodes refuse has no effect.
#[test]
fn a_copy_that_is_refused_is_neither_stored_nor_returned_when_the_home_has_it() {
    let test = Peer::new();
    let juliet = test.online(1, "juliet", "balcony");
    test.nodes.clock.advance(10);
    test.claim(u64::MAX);
    let romeo = test.online(0, "romeo", "orchard");
    romeo.send(&chat("1"));
    test.nodes.settle();
    let received = test.received();
    let copy = received.first().expect("a copy");
    test.settle_reports();
    assert_ne!(copy.header.kind, EnvelopeKind::RunChain);
    assert!(test.peer.settle(copy.header.origin, copy.ticket(), HandoverResult::Refused));
    test.nodes.settle();
    assert_eq!((messages(&juliet).len(), messages(&romeo).len()), (1, 0));
    juliet.close();
    test.nodes.settle();
    let again = test.online(0, "juliet", "late");
    assert!(messages(&again).is_empty());
}

/// Stored, it would be delivered a second time later: sessions elsewhere have it.
#[test]
fn a_copy_that_arrives_while_stored_messages_are_being_delivered_is_not_stored() {
    const COPY: EnvelopeKind = EnvelopeKind::Engine(0);
    for (kind, stored) in [(COPY, 0), (EnvelopeKind::ChainHasRun, 1)] {
        let test = Peer::new();
        let juliet = test.online(0, "juliet", "balcony");
        let node = test.nodes.node(0);
        juliet.session.account.with(|state| state.flushing = true);
        let recipients = vec![Recipient::Account(test.reference(test.number.get()))];
        test.send(kind, recipients, &handed_over("1"));
        assert_eq!(node.node.metrics.offline_stored.get(), stored, "{kind:?}");
        let received = messages(&juliet);
        assert_eq!(received.len(), 1, "{received:?}");
        assert_eq!(received[0].contains("<delay"), stored == 1, "{received:?}");
    }
}

/// Otherwise nothing that this node sends the other one after it would count as handled.
#[test]
fn a_copy_that_another_session_still_has_is_safe_soon_when_one_session_ends() {
    const COPY: EnvelopeKind = EnvelopeKind::Engine(0);
    let test = Peer::new();
    let first = test.online(0, "juliet", "balcony");
    let _second = test.online(0, "juliet", "garden");
    first.recv();
    let id = "x".repeat(base::TimeOrderedId::CHARS);
    let stanza_id = format!("</body><stanza-id xmlns='urn:xmpp:sid:0' id='{id}' by='{JULIET}'/>");
    let message = handed_over("1").replace("</body>", &stanza_id);
    let send = |kind, tracked| {
        let recipients = vec![Recipient::Account(test.reference(test.number.get()))];
        test.send_tracked(kind, recipients, &message, tracked)
    };
    send(COPY, false);
    let ticket = send(EnvelopeKind::ChainHasRun, true);
    assert!(test.inbox.receipt(test.nodes.id(0)) < Some(ticket), "it is in their queues only");
    first.close();
    test.nodes.advance(1);
    test.nodes.settle();
    assert!(test.inbox.receipt(test.nodes.id(0)) >= Some(ticket), "it has a backup");
}

#[test]
fn contacts_and_other_resources_on_a_lost_node_become_unavailable() {
    let test = Peer::new();
    test.nodes.node(0).befriend("romeo", "juliet");
    let (romeo, balcony) = (test.online(0, "romeo", "orchard"), test.online(1, "juliet", "balcony"));
    test.claim(u64::MAX);
    let phone = [&[0, 5][..], b"phone", &[1, 0], &[0; 16]].concat();
    let recipients = vec![Recipient::Account(test.reference(test.number.get()))];
    let report =
        Envelope::new(EnvelopeKind::SessionReport, EnvelopeClass::Control, Peer::id(), recipients, phone);
    test.peer.deliver(test.nodes.id(1), report).expect("accepted");
    test.nodes.settle();
    romeo.recv();
    balcony.recv();
    test.nodes.bus.crash(Peer::id());
    test.nodes.settle();
    let (his, hers) = (romeo.recv(), balcony.recv());
    let unavailable = |stanzas: &[String], from: &str| {
        stanzas.iter().position(|s| s.contains("type='unavailable'") && s.contains(&format!("from='{from}'")))
    };
    let available = his.iter().position(|stanza| stanza.contains("from='juliet@example.com/balcony'"));
    assert!(unavailable(&his, JULIET).is_some() && unavailable(&his, JULIET) < available, "{his:?}");
    assert!(unavailable(&hers, "juliet@example.com/phone").is_some(), "{hers:?}");
}

#[test]
fn readiness_for_messages_follows_the_priorities_of_all_sessions() {
    let test = Peer::new();
    let state = || {
        let location = test.peer.locate(test.hash(), Some(test.number));
        location.claims().iter().map(|at| (at.node, at.claim.takes_messages)).collect::<Vec<_>>()
    };
    let node = test.nodes.id(1);
    let one = test.nodes.node(1).connect("juliet", "one");
    test.nodes.settle();
    assert_eq!(state(), [(node, false)], "bound, not available");
    let other = test.online(1, "juliet", "other");
    assert_eq!(state(), [(node, true)]);
    one.send("<presence><priority>-1</priority></presence>");
    test.nodes.settle();
    assert_eq!(state(), [(node, true)], "the other one takes them");
    other.send("<presence type='unavailable'/>");
    test.nodes.settle();
    assert_eq!(state(), [(node, false)]);
    one.send("<presence/>");
    test.nodes.settle();
    assert_eq!(state(), [(node, true)]);
    one.close();
    test.nodes.settle();
    assert_eq!(state(), [(node, false)], "unavailable, and still a session");
    other.close();
    test.nodes.settle();
    assert_eq!(state(), []);
}

#[test]
fn input_that_no_correct_node_sends_is_refused_and_counted() {
    let test = Peer::new();
    let juliet = test.online(0, "juliet", "balcony");
    let recipients = || vec![Recipient::from(Jid::parse(JULIET).expect("an address"))];
    let garbage = ["", "<message", "<a/>", "\0", &handed_over("1")[..60], "<message xmlns='jabber:client'/>"];
    for bytes in garbage {
        test.send(EnvelopeKind::RunChain, recipients(), bytes);
        test.send(EnvelopeKind::ChainHasRun, recipients(), bytes);
    }
    test.send(EnvelopeKind::Engine(5), recipients(), &handed_over("1"));
    for _ in 0..1000 {
        test.nodes.bus.inject(Peer::id(), test.nodes.id(0), b"no envelope");
    }
    test.nodes.settle();
    assert_eq!(test.violations(PeerViolation::Payload), 2 * garbage.len() as u64);
    assert_eq!((test.violations(PeerViolation::Kind), test.violations(PeerViolation::Envelope)), (1, 1000));
    assert_eq!(test.refused().len(), 2 * garbage.len() + 1, "all return to their sender");
    assert!(messages(&juliet).is_empty());
    // The node goes on.
    test.send(EnvelopeKind::RunChain, recipients(), &handed_over("2"));
    assert_eq!(messages(&juliet).len(), 1);
}

/// Random kinds, classes, hops, recipients and contents: every ticket ends, and the node goes on.
#[test]
fn random_envelopes_all_end_and_leave_nothing_behind() {
    for seed in 0..20 {
        let test = Peer::new();
        let juliet = test.online(0, "juliet", "balcony");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut last = None;
        for _ in 0..60 {
            let kind = EnvelopeKind::from_byte(random.u8(..)).unwrap_or(EnvelopeKind::RunChain);
            let classes = [EnvelopeClass::Control, EnvelopeClass::Message, EnvelopeClass::BestEffort];
            let class = random.choice(classes).expect("a class");
            let recipients = (0..random.usize(..4)).map(|_| random_recipient(&test, &mut random)).collect();
            let mut bytes = handed_over("1").into_bytes();
            // As the kinds of the engine begin: counts, lengths, flags and options.
            let before = (0..random.usize(..24)).map(|_| random.choice([0, 1, 2, 255]).expect("an octet"));
            let before: Vec<u8> = before.collect();
            if random.bool() {
                bytes.splice(..0, before);
            }
            if random.bool() {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
                bytes.truncate(random.usize(..=bytes.len()));
            }
            let envelope = Envelope::new(kind, class, test.peer.node(), recipients, bytes);
            let mut envelope = envelope.with_delivery_tracking(true);
            envelope.header.hops = random.u8(1..=Envelope::MAX_HOPS);
            let sent = test.peer.deliver(test.nodes.id(0), envelope).expect("accepted");
            last = Some(sent).filter(|ticket| ticket.has_receipt()).or(last);
        }
        test.nodes.settle();
        juliet.recv();
        test.nodes.settle();
        assert!(test.inbox.receipt(test.nodes.id(0)) >= last, "seed {seed}");
        // Nodes trust one another: one that reports that her account was removed has ended her session.
        let ended = juliet.session.is_ended();
        let juliet = if ended { test.online(0, "juliet", "balcony") } else { juliet };
        let juliet_again = Recipient::from(Jid::parse(JULIET).expect("an address"));
        test.send(EnvelopeKind::RunChain, vec![juliet_again], &handed_over("2"));
        assert_eq!(messages(&juliet).len(), 1, "seed {seed}");
    }
}

fn random_recipient(test: &Peer, random: &mut fastrand::Rng) -> Recipient {
    let hash = if random.bool() { test.hash() } else { random.u64(..) };
    let number =
        if random.bool() { test.number } else { AddressNumber::new(random.u32(1..)).expect("not 0") };
    let reference = AddressReference { hash, number };
    let text = random.choice([JULIET, "juliet@example.com/x", "a@b", "example.com"]).expect("an address");
    match random.u8(..3) {
        0 => Recipient::Account(reference),
        1 => Recipient::Session(reference, random.u32(..)),
        _ => Recipient::Address(Jid::parse(text).expect("an address")),
    }
}

/// As if the recipient's session is detached and the store of its node does not answer.
#[test]
fn a_message_that_another_node_settles_late_delays_and_fails_no_message_of_others() {
    let test = Peer::new();
    test.nodes.node(0).create_user("nurse");
    test.claim(0);
    let [romeo, nurse] = ["romeo", "nurse"].map(|user| test.online(0, user, "orchard"));
    romeo.send(&chat("late"));
    nurse.send(&chat("in time"));
    test.nodes.settle();
    let received = test.received();
    let [late, in_time] = &received[..] else { panic!("{received:?}") };
    assert!(test.peer.settle(test.nodes.id(0), in_time.ticket(), HandoverResult::Safe));
    test.settle_reports();
    test.nodes.settle();
    assert!(messages(&romeo).is_empty() && messages(&nurse).is_empty());
    assert_eq!((nurse.handled(), romeo.sent() - romeo.handled()), (nurse.sent(), 1));
    test.nodes.advance(30);
    test.nodes.settle();
    let errors = messages(&romeo);
    assert!(errors.len() == 1 && errors[0].contains(" id='late'"), "{errors:?}");
    assert!(messages(&nurse).is_empty(), "her message was delivered");
    assert_eq!(test.violations(PeerViolation::Unsettled), 1);
    assert!(test.peer.settle(test.nodes.id(0), late.ticket(), HandoverResult::Safe));
    test.nodes.settle();
}
