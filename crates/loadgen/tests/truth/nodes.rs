//! Tests of PubSub nodes (XEP-0060): every event is accounted for, on one worker and on two.

use loadgen::control::room_accounting::RoomAccount;
use loadgen::measure::{Counter, Gauge, Timing};
use loadgen::plan::{MessageBody, PlanStep, PubSubNodeSelection, PubSubStep, StanzaPattern};

use crate::support::driver::{TestRunConfig, run_with};
use crate::support::each;
use crate::support::plans::{available, login, plan, reflected, say, stay, text, then, think, times};
use crate::support::script::{ServerAction, ServerEvent, ServerScript};
use crate::support::server::ScriptedServer;

const USERS: u32 = 10;

fn news() -> PubSubNodeSelection {
    PubSubNodeSelection::Named(text("news"))
}

fn subscribe() -> PlanStep {
    PlanStep::PubSub(PubSubStep::Subscribe { node: news(), wait: true })
}

fn publish(wait: bool) -> PlanStep {
    PlanStep::PubSub(PubSubStep::Publish { node: news(), body: MessageBody::Size(20), wait })
}

/// One worker, and two.
fn workers() -> [TestRunConfig; 2] {
    [TestRunConfig::alone(), TestRunConfig::two([0, 0])]
}

/// Waits until all users are subscribed.
fn all_there() -> PlanStep {
    PlanStep::WaitFor { what: StanzaPattern::Contains(text("<body>go</body>")), timeout_ms: 20_000 }
}

fn announcing(script: ServerScript) -> ServerScript {
    let go = "<message from='load.test'><body>go</body></message>";
    let all = u64::from(USERS);
    script.once(move |truth, _| truth.node_subscriptions == all, ServerEvent::Send(0..USERS, go.to_owned()))
}

#[test]
fn lost_doubled_and_swapped_events_are_counted_exactly() {
    type EventFault = fn(u64, &str) -> ServerAction;
    let faults: [EventFault; 5] = [
        |_, _| ServerAction::Well,
        |item, user| if item == 30 && user == "u3" { ServerAction::Nothing } else { ServerAction::Well },
        |item, user| if item == 30 && user == "u4" { ServerAction::Twice } else { ServerAction::Well },
        |item, user| if item == 30 && user == "u5" { ServerAction::Hold } else { ServerAction::Well },
        |item, user| if item == 30 && user.is_empty() { ServerAction::Refuse } else { ServerAction::Well },
    ];
    let cases = faults.into_iter().flat_map(|fault| workers().map(|config| (fault, config)));
    each(cases, |(fault, config)| {
        let script = ServerScript { copy: Box::new(fault), ..ServerScript::default() };
        let server = ScriptedServer::start(announcing(script));
        let steps = vec![login(), available(), reflected(), subscribe(), all_there()];
        let steps = then(steps, [times(10, vec![publish(true)]), stay()]);
        let outcome = run_with(
            plan(&server, USERS, steps),
            &server,
            config.until(|truth| truth.node_items == 100 && !truth.busy),
        );
        let truth = server.truth();
        for (counter, expected) in [
            (Counter::NodeSubscriptions, truth.node_subscriptions),
            (Counter::NodePublications, truth.node_items),
            (Counter::NodePublicationsRefused, truth.node_refused),
            (Counter::NodeEvents, truth.node_events),
            (Counter::NodeEventsDuplicate, truth.node_duplicated),
            (Counter::NodeEventsOutside, 0),
        ] {
            assert_eq!(outcome.count(counter), expected, "{}", counter.name());
        }
        let expected = RoomAccount {
            lost: truth.node_dropped,
            reordered: truth.node_swapped,
            sender_reordered: truth.node_publisher_swapped,
            unreceived: 0,
            incomplete: false,
        };
        assert_eq!(outcome.nodes, expected);
        assert_eq!(outcome.rooms, RoomAccount::default());
        assert_eq!(outcome.timing(Timing::NodeEvent).count, truth.node_events);
        assert_eq!(outcome.timing(Timing::NodePublish).count, truth.node_items);
        assert_eq!((outcome.gauge(Gauge::NodeListeners), outcome.gauge(Gauge::UnderWay)), (0, 0));
    });
}

#[test]
fn subscribing_and_unsubscribing_amid_events_loses_nothing() {
    each(workers(), |config| {
        let server = ScriptedServer::start(ServerScript::default());
        let talk = vec![publish(false), think(1.0)];
        let end = PlanStep::PubSub(PubSubStep::Unsubscribe {
            node: PubSubNodeSelection::All,
            subid: None,
            wait: true,
        });
        let round = vec![subscribe(), times(5, talk), end];
        let steps = then(vec![login(), available(), reflected(), times(10, round)], [say("done"), stay()]);
        let outcome = run_with(
            plan(&server, USERS, steps),
            &server,
            config.until(|truth| truth.done() == USERS as usize && !truth.busy),
        );
        let truth = server.truth();
        assert_eq!(outcome.count(Counter::NodeSubscriptions), truth.node_subscriptions);
        assert_eq!(outcome.count(Counter::NodeUnsubscriptions), truth.node_unsubscriptions);
        let events = outcome.count(Counter::NodeEvents) + outcome.count(Counter::NodeEventsOutside);
        assert_eq!(events, truth.node_events);
        assert_eq!((outcome.nodes.lost, outcome.nodes.reordered), (0, 0));
    });
}
