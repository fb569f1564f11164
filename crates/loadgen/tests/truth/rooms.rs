//! Tests of rooms (XEP-0045): every copy of a message is accounted for, on one worker and on two.

use loadgen::control::room_accounting::RoomAccount;
use loadgen::measure::{Counter, Gauge, Timing};
use loadgen::plan::{
    AckMode, MessageBody, PlanStep, RoomSelection, RoomStep, StanzaPattern, TemplatePart, TextTemplate,
};

use crate::messages::agree;
use crate::support::driver::{RunOutcome, TestRunConfig, run_with};
use crate::support::each;
use crate::support::plans::{available, login, plan, reflected, say, stay, text, then, think, times};
use crate::support::script::{ServerAction, ServerCounts, ServerEvent, ServerScript};
use crate::support::server::ScriptedServer;

const USERS: u32 = 20;

fn lobby() -> RoomSelection {
    RoomSelection::Named(text("Lobby"))
}

fn join(nick: TextTemplate, history: Option<u32>) -> PlanStep {
    PlanStep::Room(RoomStep::Join { room: lobby(), nick, history, wait: true })
}

fn own_name() -> TextTemplate {
    TextTemplate(vec![TemplatePart::User])
}

fn room_message(ack: AckMode) -> PlanStep {
    PlanStep::Room(RoomStep::Message { room: lobby(), body: MessageBody::Size(20), ack })
}

fn leave() -> PlanStep {
    PlanStep::Room(RoomStep::Leave { room: RoomSelection::All, wait: true })
}

/// Login, presence, and a join.
fn entered() -> Vec<PlanStep> {
    vec![login(), available(), reflected(), join(own_name(), Some(0))]
}

/// Waits until all users are in the room, also those of other workers: the server sends a word to them.
fn all_there() -> PlanStep {
    PlanStep::WaitFor { what: StanzaPattern::Contains(text("<body>go</body>")), timeout_ms: 20_000 }
}

fn announcing(script: ServerScript) -> ServerScript {
    let go = "<message from='load.test'><body>go</body></message>";
    script.once(|truth, _| truth.room_joins == u64::from(USERS), ServerEvent::Send(0..USERS, go.to_owned()))
}

/// One worker, and two.
fn workers() -> [TestRunConfig; 2] {
    [TestRunConfig::alone(), TestRunConfig::two([0, 0])]
}

/// Asserts the counts on which both sides must agree whatever happens to copies.
fn agree_on_rooms(outcome: &RunOutcome, truth: &ServerCounts) {
    agree(outcome, truth);
    for (counter, expected) in [
        (Counter::RoomJoins, truth.room_joins),
        (Counter::RoomLeaves, truth.room_leaves),
        (Counter::RoomMessagesSent, truth.room_messages),
        (Counter::RoomMessagesRefused, truth.room_refused),
        (Counter::RoomCopiesDuplicate, truth.room_duplicated),
        (Counter::RoomHistory, truth.room_history),
    ] {
        assert_eq!(outcome.count(counter), expected, "{}", counter.name());
    }
    // Copies that arrive after leaving belong to no stay.
    let copies = outcome.count(Counter::RoomCopies) + outcome.count(Counter::RoomCopiesOutside);
    assert_eq!(copies, truth.room_copies);
    assert_eq!(outcome.timing(Timing::RoomMessage).count, outcome.count(Counter::RoomCopies));
    assert_eq!(outcome.timing(Timing::RoomJoin).count, truth.room_joins);
    assert_eq!(outcome.gauge(Gauge::RoomOccupants), 0);
    assert!(!outcome.rooms.incomplete);
}

#[test]
fn lost_doubled_and_swapped_copies_are_counted_exactly() {
    type CopyFault = fn(u64, &str) -> ServerAction;
    let faults: [CopyFault; 6] = [
        |_, _| ServerAction::Well,
        |message, user| {
            if message == 70 && user == "u3" { ServerAction::Nothing } else { ServerAction::Well }
        },
        |message, user| if message == 70 && user == "u4" { ServerAction::Twice } else { ServerAction::Well },
        |message, user| if message == 70 && user == "u5" { ServerAction::Hold } else { ServerAction::Well },
        // The first message to the first occupant, and a last one.
        |message, _| if message % 199 == 0 { ServerAction::Nothing } else { ServerAction::Well },
        |message, user| match (message % 7, user) {
            (3, "u0" | "u7") => ServerAction::Nothing,
            (5, "u1") => ServerAction::Twice,
            (1, "u2") => ServerAction::Hold,
            _ => ServerAction::Well,
        },
    ];
    let cases = faults.into_iter().flat_map(|fault| workers().map(|config| (fault, config)));
    each(cases, |(fault, config)| {
        let script = ServerScript { copy: Box::new(fault), ..ServerScript::default() };
        let server = ScriptedServer::start(announcing(script));
        let steps = then(entered(), [all_there(), times(10, vec![room_message(AckMode::None)]), stay()]);
        let outcome = run_with(
            plan(&server, USERS, steps),
            &server,
            config.until(|truth| truth.room_messages == 200 && !truth.busy),
        );
        let truth = server.truth();
        agree_on_rooms(&outcome, &truth);
        // Messages of which every copy was dropped were not accepted.
        let unreceived = (0..200).filter(|message| matches!(fault(*message, "u9"), ServerAction::Nothing));
        let unreceived = unreceived.count() as u64;
        let expected = RoomAccount {
            lost: truth.room_dropped - unreceived * u64::from(USERS),
            reordered: truth.room_swapped,
            sender_reordered: truth.room_sender_swapped,
            unreceived,
            incomplete: false,
        };
        assert_eq!(outcome.rooms, expected);
        let distinct = 200 * u64::from(USERS) - truth.room_dropped;
        assert_eq!((outcome.count(Counter::RoomCopies), truth.room_copies), (distinct, distinct));
        assert_eq!(outcome.count(Counter::RoomCopiesOutside), 0);
    });
}

#[test]
fn joining_and_leaving_amid_messages_loses_nothing() {
    each(workers(), |config| {
        let server = ScriptedServer::start(ServerScript::default());
        let talk = vec![room_message(AckMode::None), think(1.0)];
        let round = vec![join(own_name(), Some(3)), times(5, talk), leave()];
        let steps = then(vec![login(), available(), reflected(), times(10, round)], [say("done"), stay()]);
        let outcome = run_with(
            plan(&server, USERS, steps),
            &server,
            config.until(|truth| truth.done() == USERS as usize && !truth.busy),
        );
        let truth = server.truth();
        agree_on_rooms(&outcome, &truth);
        assert_eq!((truth.room_joins, truth.room_leaves, truth.room_messages), (200, 200, 1_000));
        assert!(truth.room_history > 0);
        assert_eq!(
            (outcome.rooms.lost, outcome.rooms.reordered, outcome.rooms.sender_reordered),
            (0, 0, 0),
            "{:?}",
            outcome.rooms
        );
        assert_eq!(outcome.timing(Timing::RoomLeave).count, 200);
        assert_eq!(outcome.errors, Default::default());
    });
}

/// A resumed stream (XEP-0198) is still in its rooms: what the room sent meanwhile belongs to the stay.
#[test]
fn a_resumed_stream_stays_in_its_room() {
    each(workers(), |config| {
        let server = ScriptedServer::start(announcing(ServerScript::default()));
        let talk = || times(5, vec![room_message(AckMode::None), think(5.0)]);
        let managed = vec![login(), PlanStep::StreamManagement { resume: true }, available(), reflected()];
        let steps = then(
            managed,
            [
                join(own_name(), Some(0)),
                all_there(),
                talk(),
                PlanStep::Cut,
                think(30.0),
                PlanStep::Resume,
                talk(),
                say("done"),
                stay(),
            ],
        );
        let outcome = run_with(
            plan(&server, USERS, steps),
            &server,
            config.until(|truth| truth.done() == USERS as usize && !truth.busy),
        );
        let truth = server.truth();
        assert_eq!((truth.resumed, truth.room_messages, truth.room_copies), (20, 200, 4_000));
        assert_eq!(outcome.rooms, RoomAccount::default());
        assert_eq!((outcome.count(Counter::RoomCopies), outcome.count(Counter::RoomJoins)), (4_000, 20));
        assert_eq!(outcome.count(Counter::RoomCopiesDuplicate), 0);
    });
}

#[test]
fn presence_and_nicknames_in_rooms() {
    each(workers(), |config| {
        let server = ScriptedServer::start(announcing(ServerScript::default()));
        let away = PlanStep::Room(RoomStep::Presence {
            room: RoomSelection::Joined,
            show: Some(TextTemplate::literal("away")),
            status: None,
        });
        let nick = TextTemplate(vec![TemplatePart::Literal("new-".to_owned()), TemplatePart::User]);
        let nick = PlanStep::Room(RoomStep::Nick { room: RoomSelection::All, nick, wait: true });
        let steps =
            then(entered(), [all_there(), away, nick, room_message(AckMode::Delivery), say("done"), stay()]);
        let outcome = run_with(
            plan(&server, USERS, steps),
            &server,
            config.until(|truth| truth.done() == USERS as usize && !truth.busy),
        );
        let truth = server.truth();
        agree_on_rooms(&outcome, &truth);
        assert_eq!((truth.room_presence_changes, truth.room_nicks, truth.room_messages), (20, 20, 20));
        assert_eq!(outcome.timing(Timing::RoomPresence).count, 400);
        assert_eq!(outcome.timing(Timing::RoomNick).count, 20);
        assert_eq!(outcome.rooms, RoomAccount::default());
        assert_eq!((outcome.count(Counter::Timeouts), outcome.errors.len()), (0, 0), "{:?}", outcome.errors);
    });
}

#[test]
fn refused_joins_and_messages_are_counted_by_their_conditions() {
    let refuse = |message: u64, _: &str| if message == 0 { ServerAction::Refuse } else { ServerAction::Well };
    let server = ScriptedServer::start(ServerScript { copy: Box::new(refuse), ..ServerScript::default() });
    let steps = then(
        vec![login(), available(), reflected(), join(TextTemplate::literal("same"), None)],
        [room_message(AckMode::Delivery), room_message(AckMode::Delivery), say("done"), stay()],
    );
    let outcome = run_with(
        plan(&server, USERS, steps),
        &server,
        TestRunConfig::alone().until(|truth| truth.done() == USERS as usize && !truth.busy),
    );
    let truth = server.truth();
    agree_on_rooms(&outcome, &truth);
    assert_eq!((truth.room_joins, truth.room_joins_refused, truth.room_refused), (1, 19, 1));
    assert_eq!((outcome.error("room_join:conflict"), outcome.count(Counter::RoomJoinErrors)), (19, 19));
    assert_eq!((outcome.error("room_message:not-acceptable"), outcome.error("not-in-room")), (1, 38));
    assert_eq!(outcome.count(Counter::RoomCopies), 1);
    assert_eq!(outcome.rooms, RoomAccount::default());
}

/// XEP-0045, section 10.1: a room is locked until its creator has configured it.
#[test]
fn the_creator_unlocks_the_room_and_others_join_again() {
    let server = ScriptedServer::start(ServerScript { lock_rooms: true, ..ServerScript::default() });
    let steps = then(entered(), [say("done"), stay()]);
    let outcome = run_with(
        plan(&server, 5, steps),
        &server,
        TestRunConfig::alone().until(|truth| truth.done() == 5 && !truth.busy),
    );
    let truth = server.truth();
    agree_on_rooms(&outcome, &truth);
    assert_eq!((truth.room_joins, outcome.count(Counter::RoomJoinErrors)), (5, 0));
    assert_eq!(outcome.error("room_join:item-not-found"), truth.room_joins_refused);
}

#[test]
fn users_of_a_ring_share_rooms() {
    let server = ScriptedServer::start(ServerScript::default());
    let room = RoomSelection::Ring { offset: 0, rooms: USERS, count: 4 };
    let join = PlanStep::Room(RoomStep::Join { room, nick: own_name(), history: Some(0), wait: true });
    let everywhere = PlanStep::Room(RoomStep::Message {
        room: RoomSelection::All,
        body: MessageBody::Size(20),
        ack: AckMode::None,
    });
    let steps = then(
        vec![login(), available(), reflected(), join, crate::support::plans::barrier()],
        [everywhere, stay()],
    );
    let outcome = run_with(
        plan(&server, USERS, steps),
        &server,
        TestRunConfig::alone().until(|truth| truth.room_messages == 80 && !truth.busy),
    );
    let truth = server.truth();
    agree_on_rooms(&outcome, &truth);
    // Four occupants in each of twenty rooms, and a message of each.
    assert_eq!((truth.room_joins, truth.room_copies), (80, 320));
    assert_eq!(outcome.highest[Gauge::RoomOccupants as usize], 80);
    assert_eq!(outcome.rooms, RoomAccount::default());
}
