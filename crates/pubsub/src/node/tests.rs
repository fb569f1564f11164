//! Tables of the state machine: who may do what, and what follows.

use jid::Jid;
use stanza::payload::data_form::{DataForm, FormField, FormKind};
use stanza::{StanzaCondition, StanzaError};
use store::{PubSubChange, StoredPubSubNode};

use super::{NodeCtx, Notice, PubSubAnswer, PubSubNode, Requester};
use crate::affiliation::NodeAffiliation;
use crate::graph::{
    ChildEvent, EdgeChange, EdgeRequester, GraphInput, MAX_LEVELS, MAX_REACHED, NodeEdgeChange,
};
use crate::node_config::{CONFIG_FORM, PubSubNodeConfig};
use crate::request::{GivenItem, ItemsQuery, NodeRequest, SubscriptionKey};
use crate::tests::limits;

const NOW: u64 = 1_700_000_000_000;

fn jid(text: &str) -> Jid {
    Jid::parse(text).unwrap()
}

/// What a request gives: the answer or its condition, changes, and notices.
struct Outcome {
    answer: Result<PubSubAnswer, StanzaError>,
    changes: Vec<PubSubChange>,
    notices: Vec<Notice>,
}

impl Outcome {
    fn condition(&self) -> Option<(StanzaCondition, String)> {
        let error = self.answer.as_ref().err()?;
        let own = error.application_condition.as_deref().unwrap_or_default();
        let name = own.trim_start_matches('<').split(' ').next().unwrap_or_default();
        Some((error.condition, name.to_owned()))
    }
}

fn with_ctx<T>(act: impl FnOnce(&mut NodeCtx<'_>) -> T) -> (T, Vec<PubSubChange>, Vec<Notice>) {
    let limits = limits();
    let next = std::cell::Cell::new(0);
    let new_id = || {
        next.set(next.get() + 1);
        format!("id{}", next.get())
    };
    let mut ctx = NodeCtx::new(NOW, &new_id, &|_| true, &limits);
    let result = act(&mut ctx);
    (result, ctx.changes, ctx.notices)
}

/// A node of hamlet with these fields of its configuration.
fn node(fields: &[(&str, &str)]) -> PubSubNode {
    let mut form = DataForm::typed(FormKind::Submit, CONFIG_FORM);
    for (var, value) in fields {
        form = form.field(FormField::cell(*var, *value));
    }
    let service = jid("pubsub.shakespeare.lit");
    let create = |ctx: &mut NodeCtx<'_>| {
        let config = (PubSubNodeConfig::new(ctx.limits), Some(&form));
        PubSubNode::create(ctx, service, "princely_musings".into(), jid("hamlet@denmark.lit"), config)
    };
    with_ctx(create).0.unwrap().0
}

fn requester(user: &Jid) -> Requester<'_> {
    Requester {
        jid: user,
        is_admin: false,
        is_anonymous: false,
        has_plain_subscription: false,
        sees_presence: false,
        is_in_group: false,
        may_subscribe: true,
    }
}

fn handle(node: &mut PubSubNode, requester: &Requester<'_>, request: NodeRequest) -> Outcome {
    let (answer, changes, notices) = with_ctx(|ctx| node.handle(ctx, requester, request));
    Outcome { answer, changes, notices }
}

fn subscribe(user: &Jid) -> NodeRequest {
    NodeRequest::Subscribe { jid: user.bare().to_jid(), options: None }
}

fn item(id: &str) -> GivenItem {
    GivenItem {
        id: Some(id.to_owned()),
        payload: b"<a xmlns='u:a'/>".to_vec(),
        payload_ns: "u:a".to_owned(),
        payload_count: 1,
    }
}

fn publish(ids: &[&str]) -> NodeRequest {
    NodeRequest::Publish { items: ids.iter().map(|id| item(id)).collect(), options: None }
}

fn affiliate(node: &mut PubSubNode, user: &Jid, affiliation: NodeAffiliation) {
    let owner = jid("hamlet@denmark.lit");
    let change = NodeRequest::ModifyAffiliations(vec![(user.clone(), Some(affiliation))]);
    assert!(handle(node, &requester(&owner), change).answer.is_ok(), "{affiliation:?}");
}

#[test]
fn sections_4_1_and_4_5_models_and_affiliations_decide_who_subscribes_and_reads() {
    use StanzaCondition::{Forbidden, NotAllowed, NotAuthorized};
    let francisco = jid("francisco@denmark.lit/barracks");
    let none = NodeAffiliation::None;
    let refused = |condition, own: &str| Some((condition, own.to_owned()));
    // Model, affiliation, presence, group; the errors of subscribing and of reading.
    let table = [
        ("open", none, false, false, None, None),
        ("presence", none, true, false, None, None),
        (
            "presence",
            none,
            false,
            false,
            refused(NotAuthorized, "presence-subscription-required"),
            refused(NotAuthorized, "presence-subscription-required"),
        ),
        ("roster", none, true, true, None, None),
        (
            "roster",
            none,
            true,
            false,
            refused(NotAuthorized, "not-in-roster-group"),
            refused(NotAuthorized, "not-in-roster-group"),
        ),
        (
            "roster",
            none,
            false,
            true,
            refused(NotAuthorized, "not-in-roster-group"),
            refused(NotAuthorized, "not-in-roster-group"),
        ),
        ("authorize", none, true, true, None, refused(NotAuthorized, "not-subscribed")),
        (
            "whitelist",
            none,
            true,
            true,
            refused(NotAllowed, "closed-node"),
            refused(NotAllowed, "closed-node"),
        ),
    ];
    for (model, affiliation, presence, group, subscribes, reads) in table {
        check_row(&francisco, (model, affiliation, presence, group), (subscribes, reads));
    }
    for model in ["open", "presence", "roster", "authorize", "whitelist"] {
        for affiliation in [NodeAffiliation::Owner, NodeAffiliation::Publisher, NodeAffiliation::Member] {
            check_row(&francisco, (model, affiliation, false, false), (None, None));
        }
        for affiliation in [NodeAffiliation::PublishOnly, NodeAffiliation::Outcast] {
            let error = refused(Forbidden, "");
            check_row(&francisco, (model, affiliation, true, true), (error.clone(), error));
        }
    }
}

type Condition = Option<(StanzaCondition, String)>;

fn check_row(
    user: &Jid,
    (model, affiliation, sees_presence, is_in_group): (&str, NodeAffiliation, bool, bool),
    (subscribes, reads): (Condition, Condition),
) {
    let mut node = node(&[("pubsub#access_model", model)]);
    if affiliation != NodeAffiliation::None {
        affiliate(&mut node, user, affiliation);
    }
    let who = Requester { sees_presence, is_in_group, ..requester(user) };
    let row = format!("{model}, {affiliation:?}, presence {sees_presence}, group {is_in_group}");
    let read = handle(&mut node, &who, NodeRequest::Items(ItemsQuery::default()));
    assert_eq!(read.condition(), reads, "reading: {row}");
    let subscribed = handle(&mut node, &who, subscribe(user));
    assert_eq!(subscribed.condition(), subscribes, "subscribing: {row}");
    let is_plain = subscribed.changes.iter().any(|change| matches!(change, PubSubChange::Subscribe(_)));
    let is_pending = subscribed.changes.iter().any(|change| matches!(change, PubSubChange::PutSpecial(_)));
    let needs_approval = model == "authorize" && affiliation == NodeAffiliation::None;
    assert_eq!((is_plain, is_pending), (subscribes.is_none() && !needs_approval, needs_approval), "{row}");
}

#[test]
fn publish_models_and_affiliations_decide_who_publishes() {
    let user = jid("francisco@denmark.lit");
    let all = [
        NodeAffiliation::Owner,
        NodeAffiliation::Publisher,
        NodeAffiliation::PublishOnly,
        NodeAffiliation::Member,
        NodeAffiliation::None,
        NodeAffiliation::Outcast,
    ];
    for model in ["publishers", "subscribers", "open"] {
        for affiliation in all {
            for is_subscribed in [false, true] {
                let mut node = node(&[("pubsub#publish_model", model)]);
                if affiliation != NodeAffiliation::None {
                    affiliate(&mut node, &user, affiliation);
                }
                let who = Requester { has_plain_subscription: is_subscribed, ..requester(&user) };
                let outcome = handle(&mut node, &who, publish(&["1"]));
                let may = affiliation.may_always_publish()
                    || affiliation != NodeAffiliation::Outcast
                        && (model == "open" || model == "subscribers" && is_subscribed);
                assert_eq!(
                    outcome.answer.is_ok(),
                    may,
                    "{model}, {affiliation:?}, subscribed {is_subscribed}"
                );
            }
        }
    }
}

#[test]
fn requests_of_owners_are_refused_to_everybody_else() {
    let (owner, publisher) = (jid("hamlet@denmark.lit"), jid("bard@shakespeare.lit"));
    let mut node = node(&[]);
    affiliate(&mut node, &publisher, NodeAffiliation::Publisher);
    let requests = || {
        [
            NodeRequest::GetConfig,
            NodeRequest::SetConfig(DataForm::new(FormKind::Submit)),
            NodeRequest::Purge,
            NodeRequest::ListSubscriptions(None),
            NodeRequest::ModifySubscriptions(Vec::new()),
            NodeRequest::ListAffiliations(None),
            NodeRequest::ModifyAffiliations(Vec::new()),
            NodeRequest::Delete { redirect: None },
        ]
    };
    for request in requests() {
        let outcome = handle(&mut node, &requester(&publisher), request.clone());
        assert_eq!(outcome.condition().map(|one| one.0), Some(StanzaCondition::Forbidden), "{request:?}");
        assert!(outcome.changes.is_empty() && outcome.notices.is_empty());
    }
    for request in requests() {
        assert!(handle(&mut node, &requester(&owner), request.clone()).answer.is_ok(), "{request:?}");
    }
}

#[test]
fn the_owner_list_never_becomes_empty() {
    let (hamlet, bard) = (jid("hamlet@denmark.lit"), jid("bard@shakespeare.lit"));
    let mut node = node(&[]);
    let set = |node: &mut PubSubNode, changes: &[(&Jid, NodeAffiliation)]| {
        let changes = changes.iter().map(|(user, one)| ((*user).clone(), Some(*one))).collect();
        handle(node, &requester(&hamlet), NodeRequest::ModifyAffiliations(changes)).answer.is_ok()
    };
    assert!(!set(&mut node, &[(&hamlet, NodeAffiliation::None)]));
    assert!(set(&mut node, &[(&bard, NodeAffiliation::Owner)]));
    assert!(
        !set(&mut node, &[(&hamlet, NodeAffiliation::None), (&bard, NodeAffiliation::None)]),
        "one of them stays"
    );
    assert_eq!(node.owners().count(), 1);
}

#[test]
fn a_refused_request_changes_nothing() {
    let (hamlet, francisco) = (jid("hamlet@denmark.lit"), jid("francisco@denmark.lit"));
    let mut node = node(&[("pubsub#max_items", "2")]);
    handle(&mut node, &requester(&hamlet), publish(&["1", "2"]));
    let refused = [
        publish(&["3", "4", "5"]),
        NodeRequest::Retract { ids: vec!["1".into(), "x".into()], notify: Some(true) },
        NodeRequest::Unsubscribe(SubscriptionKey { jid: Some(hamlet.clone()), subid: None }),
        NodeRequest::Unsubscribe(SubscriptionKey { jid: Some(francisco.clone()), subid: None }),
        NodeRequest::Create { config: None },
    ];
    for request in refused {
        let outcome = handle(&mut node, &requester(&hamlet), request.clone());
        assert!(outcome.answer.is_err(), "{request:?}");
        assert!(outcome.changes.is_empty() && outcome.notices.is_empty(), "{request:?}");
    }
}

#[test]
fn what_is_stored_is_read_back() {
    let hamlet = jid("hamlet@denmark.lit");
    let mut node = node(&[("pubsub#title", "Musings")]);
    let mut stored: Vec<PubSubChange> = with_ctx(|ctx| node.put_record(ctx)).1;
    stored.extend(handle(&mut node, &requester(&hamlet), publish(&["1", "2"])).changes);
    let full = jid("francisco@denmark.lit/barracks");
    let own = NodeRequest::Subscribe { jid: full.clone(), options: None };
    stored.extend(handle(&mut node, &requester(&full), own).changes);
    let mut record = None;
    let (mut special, mut items) = (Vec::new(), Vec::new());
    for change in stored {
        match change {
            PubSubChange::Put(one) => record = Some(one),
            PubSubChange::PutSpecial(one) => special.push(one),
            PubSubChange::PutItem(one) => items.push(one.head),
            other => panic!("{other:?}"),
        }
    }
    let stored = StoredPubSubNode {
        number: 1,
        record: record.unwrap(),
        affiliations: vec![(hamlet.clone(), 1)],
        special,
        items,
    };
    let service = jid("pubsub.shakespeare.lit");
    let read = PubSubNode::restore(service, "princely_musings".into(), stored, &limits()).unwrap();
    assert_eq!((read.config(), read.last_seq()), (node.config(), Some(2)));
    assert_eq!(read.owners().collect::<Vec<_>>(), [&hamlet]);
    assert_eq!(read.special, node.special);
}

#[test]
fn an_event_is_built_once_for_subscribers_with_several_subscriptions() {
    let hamlet = jid("hamlet@denmark.lit");
    let mut node = node(&[]);
    for number in 0..5 {
        let user = jid(&format!("u{number}@denmark.lit/x"));
        let subscribe_twice = |ctx: &mut NodeCtx<'_>| {
            for _ in 0..2 {
                let options = Some(DataForm::typed(FormKind::Submit, crate::subscription::OPTIONS_FORM));
                let own = NodeRequest::Subscribe { jid: user.clone(), options };
                node.handle(ctx, &requester(&user), own).unwrap();
            }
        };
        with_ctx(subscribe_twice);
    }
    // Each stanza that is built has an id.
    let (limits, count) = (limits(), std::cell::Cell::new(0));
    let new_id = || {
        count.set(count.get() + 1);
        format!("id{}", count.get())
    };
    let mut ctx = NodeCtx::new(NOW, &new_id, &|_| true, &limits);
    node.handle(&mut ctx, &requester(&hamlet), publish(&["1"])).unwrap();
    assert_eq!(count.get(), 1, "one stanza for all");
    let [Notice::Event(event)] = ctx.notices.as_slice() else { panic!("{:?}", ctx.notices) };
    assert_eq!((event.recipients.separate.len(), event.recipients.special.len()), (5, 0));
    let (_, subids) = &event.recipients.separate[0];
    let own = super::with_subids(&event.stanza, subids).unwrap();
    let text = String::from_utf8(own.bytes().to_vec()).unwrap();
    assert!(subids.iter().all(|subid| text.contains(&format!(">{subid}</header>"))), "{text}");
}

#[test]
fn those_who_are_accepted_at_once_share_the_last_item() {
    let hamlet = jid("hamlet@denmark.lit");
    let mut node = node(&[("pubsub#access_model", "authorize")]);
    handle(&mut node, &requester(&hamlet), publish(&["1"]));
    let users = ["francisco@denmark.lit", "bernardo@denmark.lit"].map(jid);
    for user in &users {
        handle(&mut node, &requester(user), subscribe(user));
    }
    let members = users.map(|user| (user, Some(NodeAffiliation::Member))).to_vec();
    let outcome = handle(&mut node, &requester(&hamlet), NodeRequest::ModifyAffiliations(members));
    let shared: Vec<*const u8> = outcome
        .notices
        .iter()
        .filter_map(|notice| match notice {
            Notice::Shared { stanza, .. } => Some(stanza.bytes().as_ptr()),
            _ => None,
        })
        .collect();
    assert!(shared.len() == 2 && shared[0] == shared[1], "{shared:?}");
}

fn child_events(notices: &[Notice]) -> Vec<&ChildEvent> {
    let mut events = Vec::new();
    for notice in notices {
        if let Notice::Graph(GraphInput::Event(event)) = notice {
            events.push(&**event);
        }
    }
    events
}

#[test]
fn xep_0248_a_notification_reaches_a_bounded_number_of_collections() {
    let parents = || (0..16).map(|number| format!("c{number}")).collect();
    let mut leaf = node(&[]);
    leaf.config.graph.parents = parents();
    let owner = jid("hamlet@denmark.lit/elsinore");
    let outcome = handle(&mut leaf, &requester(&owner), publish(&["1"]));
    let events = child_events(&outcome.notices);
    assert_eq!((events.len(), events[0].depth), (16, 1));
    assert!(events.iter().map(|event| 1 + event.budget).sum::<u32>() <= MAX_REACHED);
    let mut collection = node(&[("pubsub#node_type", "collection")]);
    collection.config.graph.children = ["princely_musings".to_owned()].into();
    collection.config.graph.parents = parents();
    let reader = jid("francisco@denmark.lit");
    let everything = DataForm::typed(FormKind::Submit, crate::subscription::OPTIONS_FORM)
        .field(FormField::cell("pubsub#subscription_type", "items"))
        .field(FormField::cell("pubsub#subscription_depth", "all"));
    let subscribe = NodeRequest::Subscribe { jid: reader.clone(), options: Some(everything) };
    assert!(handle(&mut collection, &requester(&reader), subscribe).answer.is_ok());
    let mut pass = |id: &str, depth, budget| {
        let event = ChildEvent { id: id.into(), depth, budget, ..events[0].clone() };
        let (_, _, notices) = with_ctx(|ctx| collection.child_event(ctx, event));
        let passed = child_events(&notices).len();
        (passed, notices.len() - passed)
    };
    // Its subscribers always receive it.
    assert_eq!(pass("a", 1, 3), (3, 1));
    assert_eq!(pass("b", 1, 0), (0, 1));
    assert_eq!(pass("c", MAX_LEVELS, 100), (0, 1));
    // The same notification by another path, and one of a node that is no child.
    assert_eq!(pass("a", 2, 100), (0, 0));
    collection.config.graph.children.clear();
    let (_, _, notices) = with_ctx(|ctx| collection.child_event(ctx, events[0].clone()));
    assert!(notices.is_empty());
}

/// XEP-0248, section 7.5.3.1: between the check and the change, another user may have become owner of the node at the other end.
#[test]
fn the_other_end_of_an_edge_decides_again() {
    let edges = |notices: &[Notice]| -> Vec<EdgeChange> {
        let edge = |notice: &Notice| match notice {
            Notice::Graph(GraphInput::Edge(edge)) => Some(edge.change),
            _ => None,
        };
        notices.iter().filter_map(edge).collect()
    };
    let by = |user: &str, is_admin| Some(EdgeRequester { user: jid(user), is_admin });
    let (owner, other) = ("hamlet@denmark.lit", "mallory@elsinore.lit");
    for (requester, is_permitted) in
        [(by(owner, false), true), (by(other, false), false), (by(other, true), true), (None, false)]
    {
        let edge = |change| NodeEdgeChange {
            to: "princely_musings".into(),
            from: "other".into(),
            change,
            requester: requester.clone(),
        };
        let mut leaf = node(&[]);
        let (_, _, notices) = with_ctx(|ctx| leaf.apply_edge_change(ctx, &edge(EdgeChange::AddParent)));
        assert_eq!(leaf.config.graph.parents.contains("other"), is_permitted, "{requester:?}");
        let refusal = EdgeChange::RemoveChild { is_deleted: false };
        assert_eq!(edges(&notices) == [refusal], !is_permitted, "{notices:?}");
        let mut collection = node(&[("pubsub#node_type", "collection")]);
        let add = EdgeChange::AddChild { is_new: false };
        let (_, _, notices) = with_ctx(|ctx| collection.apply_edge_change(ctx, &edge(add)));
        assert_eq!(collection.config.graph.children.contains("other"), is_permitted, "{requester:?}");
        assert_eq!(edges(&notices) == [EdgeChange::RemoveParent], !is_permitted, "{notices:?}");
        let (_, _, notices) = with_ctx(|ctx| collection.apply_edge_change(ctx, &edge(add)));
        assert_eq!(edges(&notices).is_empty(), is_permitted, "an edge that exists is not removed");
    }
}

#[test]
fn notifications_of_one_change_share_their_recipients() {
    let owner = jid("hamlet@denmark.lit");
    let mut collection = node(&[("pubsub#node_type", "collection")]);
    for number in 0..5 {
        let user = jid(&format!("u{number}@denmark.lit/x"));
        handle(
            &mut collection,
            &requester(&user),
            NodeRequest::Subscribe { jid: user.clone(), options: None },
        );
    }
    collection.config.graph.children = ["a", "b", "c"].map(str::to_owned).into();
    let form = DataForm::typed(FormKind::Submit, CONFIG_FORM).field(FormField::cell("pubsub#children", ""));
    let outcome = handle(&mut collection, &requester(&owner), NodeRequest::SetConfig(form));
    let events = outcome.notices.iter().filter_map(|notice| match notice {
        Notice::Event(event) => Some(event),
        _ => None,
    });
    let events: Vec<_> = events.collect();
    assert_eq!((events.len(), events[0].recipients.special.len()), (3, 5));
    assert!(events.iter().all(|event| std::sync::Arc::ptr_eq(&event.recipients, &events[0].recipients)));
}
