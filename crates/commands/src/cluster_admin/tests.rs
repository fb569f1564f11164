//! Nodes over the memory bus that query one another, and nodes that do not answer as they should.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::task::{Context, Waker};

use cluster::conformance::InboxRecorder;
use cluster::{
    Cluster, Envelope, EnvelopeClass, EnvelopeKind, HandoverResult, Inbox, MembershipChange, PeerViolation,
    Ticket,
};
use peers::node_queries::{AnswerStatus, TIMEOUT_SECONDS};
use testkit::{NodeClient, TestNodes};
use throng_core::router::OnlineFilter;

use super::records::{NodeCursor, audit_entries};
use super::sessions::{SessionPage, sessions};
use super::*;
use crate::Caller;
use crate::audit::record_audit_entry;

/// Polls of a future between two seconds.
const POLLS: usize = 50;
const NODE_QUERY: EnvelopeKind = EnvelopeKind::Engine(9);
const NODE_QUERY_ANSWER: EnvelopeKind = EnvelopeKind::Engine(10);

/// Drives a future of one node while the others go on, and the time: connections without a task never answer.
fn drive<T>(nodes: &TestNodes, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    for _ in 0..3 * TIMEOUT_SECONDS {
        for _ in 0..POLLS {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return value;
            }
            nodes.step();
        }
        nodes.advance(1);
    }
    panic!("the nodes do not answer");
}

/// Nodes that can be queried, without sessions.
fn cluster(count: usize) -> TestNodes {
    let nodes = TestNodes::new(count, &[]);
    (0..count).for_each(|index| answer_other_nodes(&nodes.node(index).node));
    nodes
}

fn connect(nodes: &TestNodes, places: &[(usize, &str, &str)]) -> Vec<NodeClient> {
    let users: BTreeSet<&str> = places.iter().map(|(_, user, _)| *user).collect();
    users.into_iter().for_each(|user| {
        nodes.node(0).create_user(user);
    });
    let clients = places.iter().map(|(node, user, resource)| nodes.node(*node).connect(user, resource));
    let clients = clients.collect();
    nodes.settle();
    clients
}

fn list(nodes: &TestNodes, asked: usize, selection: NodeSelection, query: SessionQuery) -> SessionPage {
    drive(nodes, sessions(&nodes.node(asked).node, selection, query))
}

fn missing(node: &str, reason: MissingReason) -> Vec<MissingNode> {
    vec![MissingNode { node: node.to_owned(), reason }]
}

/// A member of the cluster that answers each query with these octets after its number.
struct FalseAnswers {
    cluster: Weak<dyn Cluster>,
    answer: Vec<u8>,
    settles: HandoverResult,
}

impl FalseAnswers {
    fn join(nodes: &TestNodes, answer: Vec<u8>, settles: HandoverResult) -> Arc<dyn Cluster> {
        let cluster: Arc<dyn Cluster> = nodes.bus.join(NodeId::new("other").unwrap());
        cluster.attach(Arc::new(FalseAnswers { cluster: Arc::downgrade(&cluster), answer, settles }));
        nodes.settle();
        cluster
    }
}

impl Inbox for FalseAnswers {
    fn on_envelope(&self, from: NodeId, envelope: Envelope) {
        let Some(cluster) = self.cluster.upgrade() else { return };
        cluster.settle(from, envelope.ticket(), self.settles.clone());
        if envelope.header.kind == NODE_QUERY && self.settles == HandoverResult::Safe {
            let octets = [&envelope.bytes[..8], &self.answer].concat();
            let own = cluster.node();
            let answer = Envelope::new(NODE_QUERY_ANSWER, EnvelopeClass::Control, own, Vec::new(), octets);
            cluster.deliver(from, answer).expect("room in the queue");
        }
    }

    fn on_receipts(&self, _: NodeId, _: Ticket, _: &[Ticket]) {}
    fn on_refused(&self, _: NodeId, _: Envelope) {}
    fn on_undelivered(&self, _: NodeId, _: Envelope) {}
    fn on_membership_change(&self, _: MembershipChange) {}
    fn on_violation(&self, _: NodeId, _: PeerViolation) {}
}

fn answered(content: &str) -> Vec<u8> {
    [&[AnswerStatus::Answered as u8], content.as_bytes()].concat()
}

#[test]
fn a_query_is_read_as_it_was_written_and_anything_else_is_not_supported() {
    let queries = [
        NodeQuery::CountOnline { domain: "example.com".to_owned(), users: UserSelection::Idle },
        NodeQuery::Sessions(SessionQuery { search: Some("ü".to_owned()), ..SessionQuery::default() }),
        NodeQuery::EndSessions { jid: "juliet@example.com/balcony".to_owned(), text: "an end".to_owned() },
        NodeQuery::Summary,
        NodeQuery::Overview { since: Some(7) },
        NodeQuery::Log { after: BTreeMap::from([("a".to_owned(), 3)]), level: LogLevel::Warn, limit: 9 },
    ];
    for query in queries {
        let octets = query.encode();
        assert_eq!(NodeQuery::decode(&octets), Some(query));
        assert!((0..octets.len()).all(|end| NodeQuery::decode(&octets[..end]).is_none()));
        let later = [&[VERSION + 1], &octets[1..]].concat();
        assert_eq!(NodeQuery::decode(&later), None);
    }
    for json in [
        r#""rooms""#,
        r#"{"rooms":{}}"#,
        r#"{"overview":{"since":null,"until":7}}"#,
        r#"{"sessions":{"domain":null,"search":null,"account":null,"after":null,"limit":1,"brief":true,"room":"x"}}"#,
    ] {
        assert_eq!(NodeQuery::decode(&[&[VERSION], json.as_bytes()].concat()), None, "{json}");
    }
}

#[test]
fn all_sessions_of_three_nodes_are_listed_once_with_their_node() {
    let nodes = cluster(3);
    let names: Vec<String> = (0..20).map(|number| format!("user{number}")).collect();
    let mut places: Vec<(usize, &str, &str)> =
        names.iter().enumerate().map(|(number, name)| (number % 3, name.as_str(), "phone")).collect();
    // These have sessions on two nodes.
    places.extend(
        names.iter().take(5).enumerate().map(|(number, name)| (number % 3 + 1, name.as_str(), "tablet")),
    );
    let clients = connect(&nodes, &places);
    for asked in 0..3 {
        let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let query = SessionQuery { after, limit: 4, brief: true, ..SessionQuery::default() };
            let page = list(&nodes, asked, NodeSelection::All, query);
            assert_eq!((page.total, page.missing), (25, Vec::new()));
            assert!(page.sessions.len() <= 5, "two of one account stay together");
            found.extend(page.sessions);
            pages += 1;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert!((5..=8).contains(&pages), "{pages}");
        let listed: BTreeSet<(String, String)> =
            found.iter().map(|session| (session.jid.clone(), session.node.clone())).collect();
        let expected = clients
            .iter()
            .zip(&places)
            .map(|(client, (node, ..))| (client.full().to_owned(), nodes.id(*node).to_string()));
        assert_eq!((found.len(), listed), (25, expected.collect()));
        let together = found.chunk_by(|one, other| one.jid.split('/').next() == other.jid.split('/').next());
        assert_eq!(together.count(), 20, "sessions of an account follow one another");
    }
}

#[test]
fn sessions_are_found_by_node_account_and_address() {
    let nodes = cluster(3);
    let _clients = connect(
        &nodes,
        &[
            (0, "juliet", "balcony"),
            (1, "juliet", "chamber"),
            (2, "romeo", "orchard"),
            (2, "nurse", "orchard"),
        ],
    );
    let jids = |page: &SessionPage| page.sessions.iter().map(|one| one.jid.clone()).collect::<BTreeSet<_>>();
    let all = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<BTreeSet<_>>();
    for asked in 0..3 {
        let node = &nodes.node(asked).node;
        let third = NodeSelection::of(node, Some("node-2")).unwrap();
        let query = SessionQuery { limit: 50, ..SessionQuery::default() };
        let page = list(&nodes, asked, third, query);
        assert_eq!(jids(&page), all(&["romeo@example.com/orchard", "nurse@example.com/orchard"]));
        assert_eq!((page.total, page.next), (2, None));
        let of = |account: &str, selection| {
            let query = SessionQuery { account: Some(account.to_owned()), ..SessionQuery::default() };
            jids(&list(&nodes, asked, selection, query))
        };
        let everywhere = NodeSelection::All;
        assert_eq!(
            of("juliet@example.com", everywhere),
            all(&["juliet@example.com/balcony", "juliet@example.com/chamber"])
        );
        assert_eq!(of("juliet@example.com/chamber", everywhere), all(&["juliet@example.com/chamber"]));
        assert_eq!(of("juliet@example.com", third), all(&[]));
        assert_eq!(of("juliet@example.com/orchard", everywhere), all(&[]));
        let search = |text: &str, domain: &str| {
            let (search, domain) = (Some(text.to_owned()), Some(domain.to_owned()));
            jids(&list(
                &nodes,
                asked,
                everywhere,
                SessionQuery { search, domain, limit: 50, ..SessionQuery::default() },
            ))
        };
        assert_eq!(search("ORCHARD", "example.com").len(), 2);
        assert_eq!(search("orchard", "example.net").len(), 0);
        assert_eq!(NodeSelection::of(node, Some("node-9")).unwrap_err().kind, CommandErrorKind::NotFound);
        assert_eq!(NodeSelection::of(node, Some("No node")).unwrap_err().kind, CommandErrorKind::NotFound);
        assert_eq!(NodeSelection::of(node, Some("")).unwrap(), NodeSelection::All);
    }
}

#[test]
fn users_on_several_nodes_are_listed_and_counted_once() {
    let nodes = cluster(3);
    let _clients = connect(
        &nodes,
        &[
            (0, "juliet", "balcony"),
            (1, "juliet", "chamber"),
            (2, "juliet", "garden"),
            (2, "romeo", "orchard"),
        ],
    );
    for asked in 0..3 {
        let node = &nodes.node(asked).node;
        let count = |filter| drive(&nodes, online_users::count_online_users(node, "example.com", filter));
        assert_eq!(
            [OnlineFilter::All, OnlineFilter::Active, OnlineFilter::Idle].map(count),
            [(2, Vec::new()), (2, Vec::new()), (0, Vec::new())]
        );
        let page = |after: Option<&Jid>| {
            drive(&nodes, online_users::online_users(node, "example.com", OnlineFilter::All, after, 1))
        };
        let first = page(None);
        let next = first.next.as_deref().map(|text| Jid::parse(text).unwrap());
        let second = page(next.as_ref());
        let users: BTreeSet<String> = first.users.into_iter().chain(second.users).collect();
        assert_eq!(users, ["juliet@example.com", "romeo@example.com"].map(str::to_owned).into());
        assert_eq!(second.next, None);
    }
}

#[test]
fn sessions_end_on_whichever_node_they_are() {
    let nodes = cluster(3);
    let clients =
        connect(&nodes, &[(0, "juliet", "balcony"), (1, "juliet", "chamber"), (2, "romeo", "orchard")]);
    let end = |jid: &str| {
        let jid = Jid::parse(jid).unwrap();
        drive(&nodes, end_sessions(&nodes.node(2).node, &jid, "an end"))
    };
    let ended = || clients.iter().map(|client| client.session.is_ended()).collect::<Vec<_>>();
    assert_eq!(end("juliet@example.com/chamber"), (1, Vec::new()));
    assert_eq!(ended(), [false, true, false]);
    assert_eq!(end("juliet@example.com"), (1, Vec::new()));
    assert_eq!(ended(), [true, true, false]);
    assert_eq!(end("juliet@example.com"), (0, Vec::new()));
}

#[test]
fn records_of_all_nodes_are_merged_by_time_and_a_reader_goes_on_where_it_stopped() {
    let nodes = cluster(3);
    let record = |index: usize, action: &str| {
        record_audit_entry(&nodes.node(index).node, &Caller::operator(), action, "", "done");
        nodes.clock.advance(1000);
    };
    for (index, action) in [(0, "a"), (2, "b"), (1, "c"), (0, "d"), (2, "e")] {
        record(index, action);
    }
    let read = |after: Option<&NodeCursor>, limit| {
        let found =
            drive(&nodes, audit_entries(&nodes.node(1).node, NodeSelection::All, after.cloned(), limit));
        let actions: String = found.items.iter().map(|(_, entry)| entry.action.as_str()).collect();
        (actions, found.next)
    };
    let (all, end) = read(None, 100);
    assert_eq!((all.as_str(), end.to_string().as_str()), ("abcde", "node-0:2,node-1:1,node-2:2"));
    assert_eq!(read(None, 2), ("de".to_owned(), end.clone()), "the newest ones");
    let (first, next) = read(Some(&NodeCursor::default()), 3);
    // Nodes that are not in the cursor send their newest ones, and what does not fit follows.
    assert_eq!(first, "abc");
    let (rest, next) = read(Some(&next), 3);
    assert_eq!((rest.as_str(), &next), ("de", &end));
    record(1, "f");
    let (newer, next) = read(Some(&end.to_string().parse().unwrap()), 3);
    assert_eq!((newer.as_str(), next.to_string().as_str()), ("f", "node-0:2,node-1:2,node-2:2"));
    for wrong in
        ["x", "node-0", "node-0:x", "node-0:-1", "NODE:1", &"node:1,".repeat(3).replace("node", "a b")]
    {
        assert_eq!(wrong.parse::<NodeCursor>(), Err(()), "{wrong}");
    }
}

#[test]
fn a_node_that_does_not_answer_is_named_after_five_seconds() {
    let nodes = cluster(2);
    let _clients = connect(&nodes, &[(0, "juliet", "balcony"), (1, "romeo", "orchard")]);
    let silent: Arc<dyn Cluster> = nodes.bus.join(NodeId::new("silent").unwrap());
    let _recorder = InboxRecorder::attach(&silent);
    nodes.settle();
    let begun = nodes.node(0).node.seconds();
    let query = SessionQuery { limit: 50, brief: true, ..SessionQuery::default() };
    let page = list(&nodes, 0, NodeSelection::All, query);
    assert_eq!(nodes.node(0).node.seconds() - begun, TIMEOUT_SECONDS);
    assert_eq!((page.sessions.len(), page.total), (2, 2));
    assert_eq!(page.missing, missing("silent", MissingReason::NoAnswer));
    assert_eq!(describe_missing(&page.missing).as_deref(), Some("without silent, which did not answer"));
    let count = online_users::count_online_users(&nodes.node(0).node, "example.com", OnlineFilter::All);
    assert_eq!(drive(&nodes, count), (2, missing("silent", MissingReason::NoAnswer)));
}

#[test]
fn a_node_that_leaves_while_it_is_asked_is_named() {
    let nodes = cluster(2);
    let silent: Arc<dyn Cluster> = nodes.bus.join(NodeId::new("silent").unwrap());
    let _recorder = InboxRecorder::attach(&silent);
    nodes.settle();
    let node = nodes.node(0).node.clone();
    let mut asked = pin!(summary::summaries(&node, NodeSelection::All));
    assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    nodes.bus.crash(NodeId::new("silent").unwrap());
    let found = drive(&nodes, asked);
    assert_eq!(found.answers.len(), 2);
    assert_eq!(found.missing, missing("silent", MissingReason::NoAnswer));
}

#[test]
fn a_node_of_another_version_is_named_at_once() {
    let not_supported = missing("other", MissingReason::NotSupported);
    // It knows no queries at all; it does not know the query; it answers with a result of a later version.
    for (answer, settles) in [
        (Vec::new(), HandoverResult::Refused),
        (vec![AnswerStatus::NotSupported as u8], HandoverResult::Safe),
        (vec![77], HandoverResult::Safe),
    ] {
        let nodes = cluster(2);
        let _other = FalseAnswers::join(&nodes, answer, settles);
        let begun = nodes.node(0).node.seconds();
        let found = drive(&nodes, summary::summaries(&nodes.node(0).node, NodeSelection::All));
        assert_eq!((found.answers.len(), &found.missing), (2, &not_supported));
        assert_eq!(nodes.node(0).node.seconds(), begun, "without waiting");
    }
    // A node of this version that does not answer queries, such as one that has just started.
    let nodes = TestNodes::new(2, &[]);
    let found = drive(&nodes, summary::summaries(&nodes.node(0).node, NodeSelection::All));
    assert_eq!(found.missing, missing("node-1", MissingReason::NotSupported));
}

#[test]
fn a_busy_node_and_one_with_too_large_an_answer_are_named() {
    for (status, reason) in
        [(AnswerStatus::Busy, MissingReason::Busy), (AnswerStatus::TooLarge, MissingReason::TooLarge)]
    {
        let nodes = cluster(2);
        let _other = FalseAnswers::join(&nodes, vec![status as u8], HandoverResult::Safe);
        let found = drive(&nodes, summary::summaries(&nodes.node(0).node, NodeSelection::All));
        assert_eq!((found.answers.len(), found.missing), (2, missing("other", reason)));
    }
}

#[test]
fn hostile_answers_are_not_read_and_counted_if_they_are_too_large() {
    let huge = answered(&" ".repeat(MAX_ANSWER_BYTES + 1));
    let record = |jid: &str| format!(r#"{{"jid":"{jid}","node":"node-0","client":null}}"#);
    let page = |jid: &str, next: &str| {
        answered(&format!(r#"{{"sessions":[{}],"next":{next},"total":1}}"#, record(jid)))
    };
    for (answer, reason, violations) in [
        (huge, MissingReason::TooLarge, 1),
        (Vec::new(), MissingReason::NoAnswer, 1),
        (answered("no JSON"), MissingReason::Unreadable, 0),
        (answered("[1,2,3]"), MissingReason::Unreadable, 0),
        (answered(r#"{"sessions":7}"#), MissingReason::Unreadable, 0),
        (page("example.com", "null"), MissingReason::Unreadable, 0),
        (page("a b@@", "null"), MissingReason::Unreadable, 0),
        (page("mercutio@example.com/x", r#""mercutio@example.com/x""#), MissingReason::Unreadable, 0),
    ] {
        let nodes = cluster(2);
        let _clients = connect(&nodes, &[(0, "juliet", "balcony"), (1, "romeo", "orchard")]);
        let _other = FalseAnswers::join(&nodes, answer.clone(), HandoverResult::Safe);
        let query = SessionQuery { limit: 50, brief: true, ..SessionQuery::default() };
        let found = list(&nodes, 0, NodeSelection::All, query);
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(80)]);
        assert_eq!(found.missing, missing("other", reason), "{shown}");
        assert_eq!(found.sessions.len(), 2);
        let counted = nodes.node(0).node.metrics.cluster_violations.get([PeerViolation::Payload.as_str()]);
        assert_eq!(counted, violations, "{shown}");
    }
}

#[test]
fn an_answer_cannot_speak_for_another_node_nor_begin_a_page_again() {
    let nodes = cluster(2);
    let session = r#"{"jid":"mercutio@example.com/x","node":"node-0"}"#;
    let answer = |next: &str| answered(&format!(r#"{{"sessions":[{session}],"next":{next}}}"#));
    let other = FalseAnswers::join(&nodes, answer("null"), HandoverResult::Safe);
    let query = SessionQuery { limit: 50, brief: true, ..SessionQuery::default() };
    let found = list(&nodes, 0, NodeSelection::All, query.clone());
    assert_eq!((found.sessions.len(), found.sessions[0].node.as_str()), (1, "other"));
    drop(other);
    // A reader would request the same page again and again.
    let nodes = cluster(2);
    let _other = FalseAnswers::join(&nodes, answer(r#""mercutio@example.com""#), HandoverResult::Safe);
    let first = list(&nodes, 0, NodeSelection::All, query.clone());
    assert_eq!(first.next.as_deref(), Some("mercutio@example.com"));
    let second = list(&nodes, 0, NodeSelection::All, SessionQuery { after: first.next, ..query });
    assert_eq!((second.next, second.missing), (None, missing("other", MissingReason::Unreadable)));
}

#[test]
fn a_single_node_asks_nobody() {
    let nodes = TestNodes::new(1, &[]);
    let _clients = connect(&nodes, &[(0, "juliet", "balcony")]);
    let found = drive(&nodes, summary::summaries(&nodes.node(0).node, NodeSelection::All));
    assert_eq!((found.answers.len(), found.answers[0].1.sessions, found.missing.len()), (1, 1, 0));
}
