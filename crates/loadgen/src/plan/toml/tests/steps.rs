//! Tests of every step of the TOML form, in its short and long syntax, and its result.

use super::*;
use crate::plan::{
    AckMode, Activity, ComparisonOperator, Destination, MatchAction, MessageBody, MessageKind, PresenceKind,
    ResponseChecks, ResponseMatch, RoomSelection, RoomStep, RosterChange, StanzaPattern, VariableCondition,
    VariableValue,
};

/// Reads one step.
fn one(step: &str) -> PlanStep {
    let mut plan = read(&format!(
        "connections = 40\n[tables]\nnames = [[\"a\", \"b\"]]\n{PHASE}[[session]]\nsteps = [{step}]"
    ));
    assert_eq!(plan.sessions[0].steps.len(), 1);
    plan.sessions[0].steps.remove(0)
}

fn text(text: &str) -> Option<TextTemplate> {
    Some(TextTemplate::literal(text))
}

fn message(to: Destination, body: MessageBody) -> PlanStep {
    PlanStep::Message { to, body, kind: MessageKind::Chat, ack: AckMode::None }
}

/// All syntaxes, for tests that need one of each.
pub(super) const EVERY_STEP: &[&str] = &[
    r#""connect""#,
    r#""starttls""#,
    r#""register""#,
    r#"{ authenticate = { user = "{var:x}", password = "{password}", mechanisms = ["PLAIN"] } }"#,
    r#"{ bind = "r{n}" }"#,
    r#""session""#,
    r#"{ stream_management = true }"#,
    r#"{ roster = { wait = "none" } }"#,
    r#"{ roster_set = { to = "ring-1", name = "n", group = "g" } }"#,
    r#"{ presence = { kind = "subscribe", to = "last_contact" } }"#,
    r#"{ room_join = { room = "ring+1", count = 2, rooms = 9, nick = "{user}", history = 5 } }"#,
    r#"{ room_message = { text = "hi", wait = "delivery" } }"#,
    r#"{ room_presence = { show = "away" } }"#,
    r#"{ room_nick = { nick = "{user}-{unique}", wait = "none" } }"#,
    r#""room_leave""#,
    r#"{ message = { to = "a@b", text = "hi {to}", kind = "normal", wait = { regex = "x" } } }"#,
    r#"{ ping = "server" }"#,
    r#"{ raw = { xml = "<a/>", wait = "answer", check = [{ regex = "x", then = "loop" }], keep = { y = "(z)" } } }"#,
    r#"{ wait_for = { contains = "{user}" } }"#,
    r#"{ think = "1s..2s" }"#,
    r#"{ repeat = { times = 2, counter = "i", steps = ["ping"] } }"#,
    r#"{ while = { variable = "i", below = 3, steps = ["ping"] } }"#,
    r#"{ if = { variable = "i", equals = "{n}", steps = ["ping"] } }"#,
    r#"{ for_each = { variable = "v", in = "l", steps = ["ping"] } }"#,
    r#"{ meanwhile = { for = "~1m", do = [{ every = "1s", raw = "<a/>" }] } }"#,
    r#"{ bounce = { for = "1s" } }"#,
    r#"{ transaction = { name = "t", steps = ["ping"] } }"#,
    r#"{ set = { x = { random_number = [1, 6] }, l = { random_string = 3 } } }"#,
    r#"{ barrier = "1s" }"#,
    r#"{ change_target = "127.0.0.1:1" }"#,
    r#""cut""#,
    r#""resume""#,
    r#"{ abort = "run" }"#,
    r#""unregister""#,
    r#"{ legacy_authenticate = "load" }"#,
    r#""disconnect""#,
];

#[test]
fn logging_in() {
    assert_eq!(one(r#""login""#), PlanStep::Login { mechanisms: vec![], resource: None });
    assert_eq!(one(r#"{ login = {} }"#), PlanStep::Login { mechanisms: vec![], resource: None });
    let plain = vec!["PLAIN".to_owned()];
    assert_eq!(one(r#"{ login = "PLAIN" }"#), PlanStep::Login { mechanisms: plain.clone(), resource: None });
    assert_eq!(
        one(r#"{ login = { mechanisms = ["PLAIN"], resource = "r{n}" } }"#),
        PlanStep::Login {
            mechanisms: plain,
            resource: Some(TextTemplate(vec![TemplatePart::Literal("r".into()), TemplatePart::Number]))
        }
    );
    assert_eq!(one(r#""connect""#), PlanStep::Connect);
    assert_eq!(one(r#""starttls""#), PlanStep::StartTls);
    assert_eq!(one(r#""register""#), PlanStep::Register);
    assert_eq!(one(r#""unregister""#), PlanStep::Unregister);
    assert_eq!(one(r#""authenticate""#), PlanStep::Authenticate { mechanisms: vec![], credentials: None });
    let credentials = Some((piece(TemplatePart::Variable("x".into())), piece(TemplatePart::Password)));
    assert_eq!(
        one(r#"{ authenticate = { user = "{var:x}", password = "{password}" } }"#),
        PlanStep::Authenticate { mechanisms: vec![], credentials: credentials.clone() }
    );
    assert_eq!(
        one(r#"{ legacy_authenticate = { resource = "r", user = "{var:x}", password = "{password}" } }"#),
        PlanStep::LegacyAuthenticate { resource: TextTemplate::literal("r"), credentials }
    );
    assert_eq!(one(r#""bind""#), PlanStep::Bind { resource: None });
    assert_eq!(one(r#"{ bind = "r" }"#), PlanStep::Bind { resource: text("r") });
    assert_eq!(one(r#""session""#), PlanStep::OpenSession);
    assert_eq!(one(r#""stream_management""#), PlanStep::StreamManagement { resume: false });
    assert_eq!(
        one(r#"{ stream_management = { resume = true } }"#),
        PlanStep::StreamManagement { resume: true }
    );
}

#[test]
fn rosters_and_presence() {
    assert_eq!(one(r#""roster""#), PlanStep::Roster);
    assert_eq!(one(r#"{ roster = { wait = "none" } }"#), PlanStep::NoWait(Box::new(PlanStep::Roster)));
    let (change, to) = (RosterChange::Set, Destination::Ring(1));
    assert_eq!(
        one(r#"{ roster_set = { to = "ring+1", name = "n", group = "g" } }"#),
        PlanStep::RosterSet { change, to: to.clone(), name: text("n"), group: text("g") }
    );
    let change = RosterChange::Remove;
    assert_eq!(
        one(r#"{ roster_remove = "ring+1" }"#),
        PlanStep::RosterSet { change, to, name: None, group: None }
    );
    let presence = |kind, to, show, status| PlanStep::Presence { kind, to, show, status };
    assert_eq!(one(r#""presence""#), presence(PresenceKind::Available, None, None, None));
    assert_eq!(one(r#"{ presence = "unavailable" }"#), presence(PresenceKind::Unavailable, None, None, None));
    assert_eq!(
        one(r#"{ presence = { show = "away", status = "out", to = "previous" } }"#),
        presence(PresenceKind::Available, Some(Destination::Previous), text("away"), text("out"))
    );
    for (word, kind) in [
        ("subscribe", PresenceKind::Subscribe),
        ("subscribed", PresenceKind::Subscribed),
        ("unsubscribe", PresenceKind::Unsubscribe),
        ("probe", PresenceKind::Probe),
    ] {
        let step = one(&format!("{{ presence = {{ kind = \"{word}\", to = \"ring+1\" }} }}"));
        assert_eq!(step, presence(kind, Some(Destination::Ring(1)), None, None));
    }
}

#[test]
fn rooms() {
    let room = |step| one(step).clone();
    let own_name = TextTemplate(vec![TemplatePart::User]);
    let named = |name: &str| RoomSelection::Named(TextTemplate::literal(name));
    let join =
        |room, history, wait| PlanStep::Room(RoomStep::Join { room, nick: own_name.clone(), history, wait });
    assert_eq!(room(r#"{ room_join = "lobby" }"#), join(named("lobby"), None, true));
    assert_eq!(room(r#"{ room_join = 7 }"#), join(named("room7"), None, true));
    assert_eq!(
        room(r#"{ room_join = { room = "hall@rooms.a.org", history = 0, wait = "none" } }"#),
        join(named("hall@rooms.a.org"), Some(0), false)
    );
    let ring = |offset, rooms, count| RoomSelection::Ring { offset, rooms, count };
    assert_eq!(room(r#"{ room_join = "ring" }"#), join(ring(0, 40, 1), None, true));
    assert_eq!(
        room(r#"{ room_join = { room = "ring+3", rooms = "connections / 2", count = 5 } }"#),
        join(ring(3, 20, 5), None, true)
    );
    // Names that only begin like a ring.
    assert_eq!(room(r#"{ room_join = "rings" }"#), join(named("rings"), None, true));
    assert_eq!(
        room(r#""room_leave""#),
        PlanStep::Room(RoomStep::Leave { room: RoomSelection::All, wait: true })
    );
    let message = |room, body, ack| PlanStep::Room(RoomStep::Message { room, body, ack });
    assert_eq!(
        room(r#""room_message""#),
        message(RoomSelection::Joined, MessageBody::Size(100), AckMode::None)
    );
    assert_eq!(
        room(r#"{ room_message = { room = 3, size = 5, wait = "delivery" } }"#),
        message(named("room3"), MessageBody::Size(5), AckMode::Delivery)
    );
    assert_eq!(
        room(r#"{ room_presence = { room = "joined", show = "dnd", status = "out" } }"#),
        PlanStep::Room(RoomStep::Presence {
            room: RoomSelection::Joined,
            show: text("dnd"),
            status: text("out")
        })
    );
    let nick = |wait| {
        PlanStep::Room(RoomStep::Nick { room: RoomSelection::All, nick: TextTemplate::literal("x"), wait })
    };
    assert_eq!(room(r#"{ room_nick = "x" }"#), nick(true));
    let PlanStep::Meanwhile { activities, .. } = one(r#"{ meanwhile = { do = [
            { every = "1s", room_message = true },
            { every = "2s", room_presence = { status = "{unique}" } },
            { every = "3s", room_nick = { nick = "x", wait = "none" } },
        ] } }"#)
    else {
        panic!("activities");
    };
    assert_eq!(activities[0].step, message(RoomSelection::Joined, MessageBody::Size(100), AckMode::None));
    assert_eq!((activities.len(), &activities[2].step), (3, &nick(false)));
}

#[test]
fn messages_to_everybody() {
    for (word, to) in [
        ("online", Destination::Online),
        ("offline", Destination::Offline),
        ("random", Destination::Random),
        ("unique", Destination::Unique),
        ("previous", Destination::Previous),
        ("last_contact", Destination::LastContact),
        ("first", Destination::First),
        ("contact", Destination::Contact),
        ("online_contact", Destination::OnlineContact),
        ("ring-25", Destination::Ring(-25)),
        ("partner", Destination::Partner),
        ("self", Destination::Myself),
        ("server", Destination::Server),
        ("a@b.example", Destination::Jid(TextTemplate::literal("a@b.example"))),
        ("{var:friend}", Destination::Jid(piece(TemplatePart::Variable("friend".into())))),
    ] {
        assert_eq!(one(&format!("{{ message = \"{word}\" }}")), message(to, MessageBody::Size(100)));
    }
    let to = Destination::Online;
    assert_eq!(
        one(r#"{ message = { to = "online", size = 0 } }"#),
        message(to.clone(), MessageBody::Size(0))
    );
    let hi = TextTemplate(vec![TemplatePart::Literal("hi ".into()), TemplatePart::Destination]);
    assert_eq!(
        one(r#"{ message = { to = "online", text = "hi {to}" } }"#),
        message(to.clone(), MessageBody::Text(hi))
    );
    let contains = StanzaPattern::Contains(TextTemplate::literal("x"));
    for (wait, ack) in [
        (r#""none""#, AckMode::None),
        (r#""any""#, AckMode::Any),
        (r#""answer""#, AckMode::Answer),
        (r#""delivery""#, AckMode::Delivery),
        (r#""all""#, AckMode::All),
        (r#""acknowledged""#, AckMode::Acknowledged),
        (r#"{ contains = "x" }"#, AckMode::Match(contains)),
    ] {
        let step = one(&format!("{{ message = {{ to = \"online\", kind = \"headline\", wait = {wait} }} }}"));
        let expected = PlanStep::Message {
            to: to.clone(),
            body: MessageBody::Size(100),
            kind: MessageKind::Headline,
            ack,
        };
        assert_eq!(step, expected);
    }
}

#[test]
fn requests_and_waiting() {
    assert_eq!(one(r#""ping""#), PlanStep::Ping { to: None });
    let ping = PlanStep::Ping { to: Some(Destination::Partner) };
    assert_eq!(one(r#"{ ping = "partner" }"#), ping);
    assert_eq!(one(r#"{ ping = { to = "partner", wait = "none" } }"#), PlanStep::NoWait(Box::new(ping)));
    let xml = TextTemplate::literal("<a/>");
    let raw = PlanStep::Raw { xml: xml.clone(), ack: AckMode::None, checks: ResponseChecks::default() };
    assert_eq!(one(r#"{ raw = "<a/>" }"#), raw);
    let checks = ResponseChecks {
        matches: vec![
            ResponseMatch {
                regex: "no".to_owned(),
                when: false,
                action: MatchAction::Loop,
                max: 3,
                pause_ms: 500,
                name: Some("again".to_owned()),
            },
            ResponseMatch {
                regex: "e".to_owned(),
                when: true,
                action: MatchAction::Abort,
                max: 20,
                pause_ms: 0,
                name: None,
            },
        ],
        captures: vec![("z".to_owned(), "(1)".to_owned()), ("a".to_owned(), "(2)".to_owned())],
    };
    let step = one(r#"{ raw = { xml = "<a/>", wait = "any", keep = { z = "(1)", a = "(2)" }, check = [
            { regex = "no", when = "missing", then = "loop", max = 3, pause = "500ms", name = "again" },
            { regex = "e", then = "abort" },
        ] } }"#);
    assert_eq!(step, PlanStep::Raw { xml, ack: AckMode::Any, checks });
    let stanza = |name: Option<&str>, kind: Option<&str>, namespace: Option<&str>| StanzaPattern::Stanza {
        name: name.map(str::to_owned),
        kind: kind.map(str::to_owned),
        namespace: namespace.map(str::to_owned),
    };
    for (form, what) in [
        (r#""message""#, stanza(Some("message"), None, None)),
        (r#"{ stanza = "iq", type = "set" }"#, stanza(Some("iq"), Some("set"), None)),
        (r#"{ namespace = "urn:x" }"#, stanza(None, None, Some("urn:x"))),
        (r#"{ contains = "{user}" }"#, StanzaPattern::Contains(piece(TemplatePart::User))),
        (r#"{ regex = "a.*" }"#, StanzaPattern::Regex("a.*".to_owned())),
    ] {
        assert_eq!(one(&format!("{{ wait_for = {form} }}")), PlanStep::WaitFor { what, timeout_ms: 60_000 });
    }
    let what = stanza(Some("presence"), None, None);
    let step = one(r#"{ wait_for = { stanza = "presence", timeout = "3s" } }"#);
    assert_eq!(step, PlanStep::WaitFor { what, timeout_ms: 3_000 });
}

#[test]
fn pauses_loops_and_conditions() {
    assert_eq!(one(r#"{ think = "5s" }"#), PlanStep::Think(TimeSpan::Fixed(5_000.0)));
    assert_eq!(one(r#"{ think = { for = "~5s" } }"#), PlanStep::Think(TimeSpan::Exponential(5_000.0)));
    let ping = || vec![PlanStep::Ping { to: None }];
    let (counter, steps) = (None, ping());
    assert_eq!(
        one(r#"{ repeat = { steps = ["ping"] } }"#),
        PlanStep::Repeat { times: None, counter, first: 1, increment: 1, steps }
    );
    let (counter, steps) = (Some("i".to_owned()), ping());
    assert_eq!(
        one(r#"{ repeat = { times = 3, counter = "i", first = -2, by = 5, steps = ["ping"] } }"#),
        PlanStep::Repeat { times: Some(3), counter, first: -2, increment: 5, steps }
    );
    for (word, compare, opposite) in [
        ("equals", ComparisonOperator::Equal, ComparisonOperator::NotEqual),
        ("not", ComparisonOperator::NotEqual, ComparisonOperator::Equal),
        ("below", ComparisonOperator::Less, ComparisonOperator::GreaterOrEqual),
        ("at_most", ComparisonOperator::LessOrEqual, ComparisonOperator::Greater),
        ("above", ComparisonOperator::Greater, ComparisonOperator::LessOrEqual),
        ("at_least", ComparisonOperator::GreaterOrEqual, ComparisonOperator::Less),
    ] {
        let condition = |compare| VariableCondition {
            variable: "x".to_owned(),
            compare,
            value: TextTemplate::literal("3"),
        };
        let form = |name: &str, more: &str| {
            one(&format!("{{ {name} = {{ variable = \"x\", {word} = 3, {more} steps = [\"ping\"] }} }}"))
        };
        assert_eq!(form("if", ""), PlanStep::If { condition: condition(compare), steps: ping() });
        let repeat = |condition, after, max| PlanStep::While { condition, after, max, steps: ping() };
        assert_eq!(form("while", ""), repeat(condition(compare), false, 1_000_000));
        assert_eq!(form("until", "max = 7, "), repeat(condition(opposite), true, 7));
        assert_eq!(form("while", "check = \"after\", "), repeat(condition(compare), true, 1_000_000));
    }
    let (variable, list, steps) = ("v".to_owned(), "l".to_owned(), ping());
    assert_eq!(
        one(r#"{ for_each = { variable = "v", in = "l", steps = ["ping"] } }"#),
        PlanStep::ForEach { variable, list, steps }
    );
    assert_eq!(one(r#"{ barrier = {} }"#), PlanStep::Barrier { timeout_ms: 60_000, users: None });
    assert_eq!(
        one(r#"{ barrier = { users = "connections", timeout = "connections * 10ms" } }"#),
        PlanStep::Barrier { timeout_ms: 400, users: Some(40) }
    );
    assert_eq!(one(r#""disconnect""#), PlanStep::Disconnect);
    assert_eq!(one(r#""cut""#), PlanStep::Cut);
    assert_eq!(one(r#""abort""#), PlanStep::Abort { run: false });
    assert_eq!(one(r#"{ abort = "run" }"#), PlanStep::Abort { run: true });
    let addresses = vec!["127.0.0.1:5223".parse().unwrap()];
    assert_eq!(
        one(r#"{ change_target = { address = "127.0.0.1:5223", security = "direct" } }"#),
        PlanStep::ChangeTarget { addresses, security: TransportSecurity::Direct }
    );
}

#[test]
fn activities_with_their_own_interval() {
    let every = |every, step| Activity { every, batch: 1, step };
    let (available, status) = (PresenceKind::Available, text("s"));
    let step = one(r#"{ meanwhile = { for = "20m", do = [
            { every = "5s", message = { to = "online", size = 100 } },
            { every = "10s..20s", presence = { status = "s" } },
            { every = "~1m", ping = true },
            { every = "1m", ping = "partner" },
            { every = "1m", raw = "<a/>" },
            { every = "1m", roster = true },
            { every = "1m", roster = {} },
        ] } }"#);
    let raw = PlanStep::Raw {
        xml: TextTemplate::literal("<a/>"),
        ack: AckMode::None,
        checks: ResponseChecks::default(),
    };
    let activities = vec![
        every(TimeSpan::Fixed(5_000.0), message(Destination::Online, MessageBody::Size(100))),
        every(
            TimeSpan::Uniform(10_000.0, 20_000.0),
            PlanStep::Presence { kind: available, to: None, show: None, status },
        ),
        every(TimeSpan::Exponential(60_000.0), PlanStep::Ping { to: None }),
        every(TimeSpan::Fixed(60_000.0), PlanStep::Ping { to: Some(Destination::Partner) }),
        every(TimeSpan::Fixed(60_000.0), raw),
        every(TimeSpan::Fixed(60_000.0), PlanStep::Roster),
        every(TimeSpan::Fixed(60_000.0), PlanStep::Roster),
    ];
    assert_eq!(step, PlanStep::Meanwhile { duration: Some(TimeSpan::Fixed(1_200_000.0)), activities });
    assert_eq!(
        one(r#""bounce""#),
        PlanStep::Bounce {
            in_flight: 1,
            duration_ms: None,
            size: 100,
            one_sided: false,
            to: Destination::Partner
        }
    );
    assert_eq!(
        one(r#"{ bounce = 8 }"#),
        PlanStep::Bounce {
            in_flight: 8,
            duration_ms: None,
            size: 100,
            one_sided: false,
            to: Destination::Partner
        }
    );
    assert_eq!(
        one(r#"{ bounce = { in_flight = 8, for = "30s", size = 5 } }"#),
        PlanStep::Bounce {
            in_flight: 8,
            duration_ms: Some(30_000),
            size: 5,
            one_sided: false,
            to: Destination::Partner
        }
    );
}

#[test]
fn closed_loops_and_full_addresses() {
    let plain = vec!["PLAIN".to_owned()];
    assert_eq!(
        one(r#"{ login = { fast = true, mechanisms = "PLAIN", stream_management = true } }"#),
        PlanStep::FastLogin { mechanisms: plain, manage: true }
    );
    let presence = PlanStep::Presence { kind: PresenceKind::Available, to: None, show: None, status: None };
    assert_eq!(
        one(r#"{ presence = { deliveries = 3 } }"#),
        PlanStep::Delivered { presence: Box::new(presence), users: 3 }
    );
    let full = |to: Destination| Destination::Full(Box::new(to), TextTemplate::literal("r"));
    assert_eq!(
        one(r#"{ bounce = { in_flight = 4, start = "even", resource = "r" } }"#),
        PlanStep::Bounce {
            in_flight: 4,
            duration_ms: None,
            size: 100,
            one_sided: true,
            to: full(Destination::Partner)
        }
    );
    for (word, to) in [("partner/r", Destination::Partner), ("ring+1/r", Destination::Ring(1))] {
        assert_eq!(one(&format!("{{ message = \"{word}\" }}")), message(full(to), MessageBody::Size(100)));
    }
    assert_eq!(
        one(r#"{ message = "a@b.example/r" }"#),
        message(Destination::Jid(TextTemplate::literal("a@b.example/r")), MessageBody::Size(100))
    );
    let step = one(r#"{ meanwhile = { do = [{ every = "2.5ms", batch = 8, message = "partner" }] } }"#);
    let every = TimeSpan::Fixed(2.5);
    let activity = Activity { every, batch: 8, step: message(Destination::Partner, MessageBody::Size(100)) };
    assert_eq!(step, PlanStep::Meanwhile { duration: None, activities: vec![activity] });
}

#[test]
fn arrivals_of_a_phase_can_be_a_closed_loop() {
    let plan = read("[[phase]]\nconcurrency = 64\nusers = 100\n[[session]]\nsteps = [\"login\"]\n");
    assert_eq!((plan.phases[0].concurrency, plan.phases[0].max_users), (Some(64), Some(100)));
    let wrong = read_toml(
        "[[phase]]\nconcurrency = 64\nrate = 5\nusers = 100\n[[session]]\nsteps = [\"login\"]\n",
        "x",
        &PlanOverrides::default(),
    );
    assert!(wrong.unwrap_err()[0].to_string().contains("cannot be combined with"));
}

#[test]
fn transactions_are_numbered_by_their_names() {
    let plan = read(&format!(
        "{PHASE}{}",
        r#"
        [[session]]
        steps = [
          { transaction = { name = "outer", steps = [{ transaction = { name = "inner", steps = ["ping"] } }] } },
          { transaction = { name = "outer", steps = ["ping"] } },
        ]
        "#
    ));
    let mut names = plan.transactions.clone();
    names.sort_unstable();
    assert_eq!(names, ["inner", "outer"]);
    let name = |step: &PlanStep| match step {
        PlanStep::Transaction { index, .. } => plan.transactions[usize::from(*index)].clone(),
        other => panic!("{other:?}"),
    };
    let steps = &plan.sessions[0].steps;
    assert_eq!((name(&steps[0]).as_str(), name(&steps[1]).as_str()), ("outer", "outer"));
    let PlanStep::Transaction { steps: inner, .. } = &steps[0] else { panic!("a transaction") };
    assert_eq!(name(&inner[0]), "inner");
}

#[test]
fn variables() {
    let step = one(r#"{ set = {
            z = "{n}", a = 5, s = { random_string = 8 }, r = { random_number = [-1, 6] },
            next = { table = "names" }, any = { table = "names", column = 1, line = "random" },
            own = { table = "names", column = 1, line = "own" },
        } }"#);
    let expected = [
        ("z", VariableValue::Text(piece(TemplatePart::Number))),
        ("a", VariableValue::Text(TextTemplate::literal("5"))),
        ("s", VariableValue::RandomString(8)),
        ("r", VariableValue::RandomNumber(-1, 6)),
        ("next", VariableValue::Row { table: 0, column: 0, random: false }),
        ("any", VariableValue::Row { table: 0, column: 1, random: true }),
        ("own", VariableValue::OwnRow { table: 0, column: 1 }),
    ];
    assert_eq!(step, PlanStep::Set(expected.map(|(name, value)| (name.to_owned(), value)).to_vec()));
}
