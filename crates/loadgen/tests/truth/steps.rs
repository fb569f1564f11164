//! Tests of session steps between login and end: loops, variables, conditions, transactions, barriers, and activities
//! with their own rate. The server records the words that users send, in order.

use loadgen::measure::{Counter, Gauge, Timing, TimingSummary};
use loadgen::plan::{
    AckMode, ComparisonOperator, DataTable, Destination, LoadPlan, MatchAction, PlanStep as Do,
    ResponseChecks, ResponseMatch, StanzaPattern, TemplatePart, TextTemplate, TimeSpan, VariableCondition,
    VariableValue,
};

use crate::login::slow;
use crate::messages::agree;
use crate::support::driver::{RunOutcome, run, until};
use crate::support::each;
use crate::support::plans::{
    barrier, every, login, meanwhile, message, online, plan, say, say_with, stay, text, then, think, times,
    wait_for,
};
use crate::support::script::{ServerAction, ServerCounts, ServerEvent, ServerScript, ServerStep};
use crate::support::server::ScriptedServer;

fn did(
    script: ServerScript,
    users: u32,
    steps: Vec<Do>,
    change: impl FnOnce(&mut LoadPlan),
) -> (RunOutcome, ServerCounts) {
    let server = ScriptedServer::start(script);
    let mut plan = plan(&server, users, then(vec![login()], steps));
    change(&mut plan);
    let outcome = run(plan, &server);
    let truth = server.truth();
    assert_eq!(truth.wrong, Vec::<String>::new());
    (outcome, truth)
}

/// Words sent by one user.
fn errors(steps: Vec<Do>) -> Vec<String> {
    let (outcome, truth) = did(ServerScript::default(), 1, steps, |_| {});
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    assert_eq!(outcome.count(Counter::UsersFinished), 1);
    truth.bodies
}

fn set(name: &str, value: VariableValue) -> Do {
    Do::Set(vec![(name.to_owned(), value)])
}

fn is(variable: &str, compare: ComparisonOperator, value: &str) -> VariableCondition {
    VariableCondition { variable: variable.to_owned(), compare, value: text(value) }
}

#[test]
fn loops_count_nest_and_end() {
    let counted = |name: &str, first, increment, steps| Do::Repeat {
        times: Some(3),
        counter: Some(name.to_owned()),
        first,
        increment,
        steps,
    };
    let inner = counted("j", 10, -5, vec![say("$i$.$j$")]);
    assert_eq!(
        errors(vec![counted("i", 1, 2, vec![inner, say("-")]), say("end")]),
        ["1.10", "1.5", "1.0", "-", "3.10", "3.5", "3.0", "-", "5.10", "5.5", "5.0", "-", "end"]
    );
    assert_eq!(errors(vec![times(0, vec![say("never")]), say("end")]), ["end"]);
}

#[test]
fn conditions_are_checked_before_or_after() {
    let count = |after, max, compare, value: &str| {
        let grow = Do::Repeat {
            times: Some(10),
            counter: Some("n".to_owned()),
            first: 1,
            increment: 1,
            steps: vec![Do::If { condition: is("n", compare, value), steps: vec![say("$n$")] }],
        };
        let again = Do::While {
            condition: is("x", ComparisonOperator::Less, "2"),
            after,
            max,
            steps: vec![say("turn $x$"), set("x", VariableValue::Text(text("9")))],
        };
        errors(vec![grow, set("x", VariableValue::Text(text("2"))), again, say("end")])
    };
    assert_eq!(count(false, 5, ComparisonOperator::Greater, "8"), ["9", "10", "end"]);
    assert_eq!(count(true, 5, ComparisonOperator::LessOrEqual, "2"), ["1", "2", "turn 2", "end"]);
    assert_eq!(count(true, 5, ComparisonOperator::Equal, "10"), ["10", "turn 2", "end"]);
    assert_eq!(
        count(false, 5, ComparisonOperator::NotEqual, "x"),
        ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "end"]
    );
    assert_eq!(count(false, 5, ComparisonOperator::GreaterOrEqual, "10"), ["10", "end"]);
    // A condition that is always true stops at its limit.
    let endless = Do::While {
        condition: is("y", ComparisonOperator::Equal, "1"),
        after: false,
        max: 4,
        steps: vec![say("again")],
    };
    assert_eq!(
        errors(vec![set("y", VariableValue::Text(text("1"))), endless, say("end")]),
        ["again", "again", "again", "again", "end"]
    );
}

#[test]
fn values_of_a_response_can_be_stored_and_iterated() {
    let checks = ResponseChecks {
        matches: Vec::new(),
        captures: vec![
            ("all".to_owned(), "([A-Z]+)".to_owned()),
            ("type".to_owned(), "type='(.)".to_owned()),
        ],
    };
    let walk =
        Do::ForEach { variable: "one".to_owned(), list: "all".to_owned(), steps: vec![say("got $one$")] };
    assert_eq!(
        errors(vec![say_with("RED GREEN BLUE", checks), walk, say("$type$")]),
        ["RED GREEN BLUE", "got RED", "got GREEN", "got BLUE", "r"]
    );
    let none = ResponseChecks {
        matches: Vec::new(),
        captures: vec![("none".to_owned(), "(nothing like it)".to_owned())],
    };
    let walk = Do::ForEach { variable: "one".to_owned(), list: "none".to_owned(), steps: vec![say("never")] };
    assert_eq!(errors(vec![say_with("x", none), walk, say("end")]), ["x", "end"]);
}

#[test]
fn variables_can_be_set_from_every_source() {
    let row = |column| VariableValue::Row { table: 0, column, random: false };
    let steps = vec![
        Do::Set(vec![("a".to_owned(), row(0)), ("b".to_owned(), row(1))]),
        set("own", VariableValue::OwnRow { table: 0, column: 1 }),
        set("number", VariableValue::RandomNumber(5, 7)),
        set("letters", VariableValue::RandomString(12)),
        say("$a$ $b$ $own$|$number$|$letters$"),
        Do::Raw {
            xml: TextTemplate(vec![
                TemplatePart::Literal("<iq type='get' id='1'><say xmlns='urn:test:say'><word>".to_owned()),
                TemplatePart::User,
                TemplatePart::Literal(" ".to_owned()),
                TemplatePart::Number,
                TemplatePart::Literal(" ".to_owned()),
                TemplatePart::Password,
                TemplatePart::Literal(" ".to_owned()),
                TemplatePart::Domain,
                TemplatePart::Literal(" ".to_owned()),
                TemplatePart::Unique,
                TemplatePart::Literal("</word></say></iq>".to_owned()),
            ]),
            ack: AckMode::Any,
            checks: ResponseChecks::default(),
        },
    ];
    let (outcome, truth) = did(ServerScript::default(), 6, steps, |plan| {
        let rows = (0..6).map(|line| vec![format!("a{line}"), format!("b{line}")]).collect();
        plan.options.tables = vec![DataTable { name: "t".to_owned(), rows }];
    });
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    let (mut words, mut users): (Vec<String>, Vec<String>) =
        truth.bodies.into_iter().partition(|words| words.contains('|'));
    words.sort();
    assert_eq!(words.len(), 6);
    for (line, words) in words.iter().enumerate() {
        let parts: Vec<&str> = words.split('|').collect();
        assert!(parts[0].starts_with(&format!("a{line} b{line} b")), "one line for both columns: {words}");
        assert!((5..=7).contains(&parts[1].parse::<u32>().unwrap()), "{words}");
        assert!(parts[2].len() == 12 && parts[2].bytes().all(|byte| byte.is_ascii_lowercase()), "{words}");
    }
    users.sort();
    let mut unique: Vec<&str> = users.iter().filter_map(|words| words.rsplit(' ').next()).collect();
    for (number, words) in users.iter().enumerate() {
        assert!(words.starts_with(&format!("u{number} {number} p{number} load.test ")), "{words}");
    }
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), 6);
}

fn check(regex: &str, when: bool, action: MatchAction, max: u32) -> ResponseChecks {
    let check = ResponseMatch {
        regex: regex.to_owned(),
        when,
        action,
        max,
        pause_ms: 10,
        name: Some("seen".to_owned()),
    };
    ResponseChecks { matches: vec![check], captures: Vec::new() }
}

/// The first three answers report that it is not ready yet.
fn not_ready() -> ServerScript {
    ServerScript::acting(|step, n| {
        let wait = "<iq type='result' id='say'><wait xmlns='urn:test:say'/></iq>";
        if step == ServerStep::Request && n < 3 {
            ServerAction::Instead(wait.to_owned())
        } else {
            ServerAction::Well
        }
    })
}

#[test]
fn a_match_can_repeat_the_request_until_it_succeeds() {
    let steps = vec![say_with("ready", check("wait", true, MatchAction::Loop, 10)), say("end")];
    let (outcome, truth) = did(not_ready(), 1, steps, |_| {});
    assert_eq!(truth.bodies, ["ready", "ready", "ready", "ready", "end"]);
    assert_eq!((outcome.count(Counter::Matches), outcome.count(Counter::NoMatches)), (3, 1));
    assert_eq!(outcome.error("match:seen"), 3);
    let steps = vec![say_with("ready", check("wait", true, MatchAction::Loop, 2)), say("end")];
    let (outcome, truth) = did(not_ready(), 1, steps, |_| {});
    assert_eq!((truth.bodies.len(), outcome.error("match:repeated-too-often")), (4, 1));
    assert_eq!(truth.bodies[3], "end");
}

#[test]
fn a_match_can_abort_restart_or_only_count() {
    let try_it = |action| {
        did(not_ready(), 1, vec![say_with("x", check("said", false, action, 10)), say("end")], |_| {})
    };
    let (outcome, truth) = try_it(MatchAction::Continue);
    assert_eq!((truth.bodies.join(" "), outcome.count(Counter::Matches)), ("x end".to_owned(), 1));
    let (outcome, truth) = try_it(MatchAction::Log);
    assert_eq!(truth.bodies, ["x", "end"]);
    assert!(outcome.log.iter().any(|line| line.contains("urn:test:say")), "{:?}", outcome.log);
    let (outcome, truth) = try_it(MatchAction::Abort);
    assert_eq!((truth.bodies.join(" "), outcome.error("aborted-by-match")), ("x".to_owned(), 1));
    let (outcome, truth) = try_it(MatchAction::Restart);
    assert_eq!((truth.bodies.join(" "), truth.logins), ("x x x x end".to_owned(), 4));
    assert_eq!((outcome.count(Counter::Logins), outcome.count(Counter::UsersFinished)), (4, 1));
    assert_eq!((outcome.count(Counter::SessionsLost), outcome.gauge(Gauge::Online)), (0, 0));
    let (outcome, truth) = try_it(MatchAction::AbortRun);
    assert!(outcome.refused.is_some_and(|reason| reason.contains("said")));
    assert_eq!(truth.bodies, ["x"]);
}

#[test]
fn the_plan_can_abort_the_session_or_the_run() {
    let (outcome, truth) =
        did(ServerScript::default(), 5, vec![say("x"), Do::Abort { run: false }, say("never")], |_| {});
    assert_eq!((truth.bodies.len(), outcome.refused), (5, None));
    let (outcome, truth) =
        did(ServerScript::default(), 5, vec![think(50.0), Do::Abort { run: true }, say("never")], |_| {});
    assert!(outcome.refused.is_some() && truth.bodies.is_empty());
}

#[test]
fn no_user_passes_a_barrier_before_all_have_reached_it() {
    let steps = vec![say("before"), barrier(), say("after")];
    let (outcome, truth) = did(ServerScript::default(), 20, steps, |plan| {
        plan.phases[0].batch = 5;
        plan.phases[0].rate = 50.0;
        plan.options.hold_ms = None;
    });
    assert_eq!((truth.bodies.len(), outcome.count(Counter::Timeouts)), (40, 0));
    let first = truth.bodies.iter().position(|word| word == "after").unwrap();
    // A barrier counts the users present: the first five may pass it alone if they are quick.
    assert!(first >= 5 && truth.bodies[first..].iter().filter(|word| *word == "before").count() % 5 == 0);
}

#[test]
fn transactions_measure_their_steps() {
    let script = ServerScript::acting(|step, _| match step {
        ServerStep::Ping => ServerAction::Late(40),
        ServerStep::Request => ServerAction::Late(25),
        _ => ServerAction::Well,
    });
    let ping = || Do::Ping { to: None };
    let steps = vec![
        Do::Transaction {
            index: 0,
            steps: vec![ping(), Do::Transaction { index: 1, steps: vec![say("x")] }, ping()],
        },
        Do::Transaction { index: 1, steps: vec![say("y")] },
    ];
    let (outcome, _) =
        did(script, 5, steps, |plan| plan.transactions = vec!["outer".to_owned(), "inner".to_owned()]);
    slow(outcome.transaction(0), 5, 105);
    slow(outcome.transaction(1), 10, 25);
    slow(outcome.timing(Timing::Request), 10, 25);
    slow(outcome.timing(Timing::Ping), 10, 40);
}

#[test]
fn pauses_have_the_configured_length() {
    let steps = vec![
        think(50.0),
        Do::Think(TimeSpan::Uniform(30.0, 40.0)),
        Do::Think(TimeSpan::Exponential(5.0)),
        say("x"),
    ];
    let (outcome, _) = did(ServerScript::default(), 5, steps, |_| {});
    slow(outcome.timing(Timing::Session), 5, 80);
}

#[test]
fn activities_run_at_their_own_interval() {
    let script = ServerScript::acting(|step, _| {
        if step == ServerStep::Ping { ServerAction::Late(150) } else { ServerAction::Well }
    });
    let server = ScriptedServer::start(script);
    let activities = vec![
        every(50.0, message(Destination::Partner)),
        every(100.0, Do::Ping { to: None }),
        every(200.0, crate::support::plans::available()),
        every(250.0, Do::Roster),
    ];
    let steps = then(online(), [meanwhile(500.0, activities), say("done"), stay()]);
    let outcome = until(plan(&server, 10, steps), &server, |truth| truth.done() == 10);
    let truth = server.truth();
    agree(&outcome, &truth);
    // The first of each comes within its interval, so their number is fixed, however slow the answers are.
    let (messages, pings) = (truth.messages, truth.pings);
    assert!((90..=110).contains(&messages) && (40..=60).contains(&pings), "{messages} {pings}");
    assert!(
        (20..=40).contains(&(truth.presences_in - 10)) && (10..=30).contains(&truth.rosters),
        "{truth:?}"
    );
    assert_eq!(truth.bodies, vec!["done"; 10]);
    slow(outcome.timing(Timing::Ping), pings, 150);
    assert_eq!(outcome.timing(Timing::Roster).count, truth.rosters);
}

#[test]
fn bounced_messages_return_to_the_sender() {
    let server = ScriptedServer::start(ServerScript::default());
    let bounce = Do::Bounce {
        in_flight: 2,
        duration_ms: None,
        size: 100,
        one_sided: false,
        to: loadgen::plan::Destination::Partner,
    };
    let outcome = until(plan(&server, 10, then(online(), [bounce])), &server, |truth| truth.messages > 300);
    let truth = server.truth();
    agree(&outcome, &truth);
    assert!(truth.messages > 200, "each message is answered by the next: {}", truth.messages);
    assert!(outcome.highest[Gauge::UnderWay as usize] <= 20);
    assert!(truth.pairs.keys().all(|(from, to)| from ^ to == 1));
}

#[test]
fn responses_can_be_awaited_later() {
    let script = ServerScript::acting(|step, _| {
        if step == ServerStep::Ping { ServerAction::Late(100) } else { ServerAction::Well }
    });
    let ping = Do::NoWait(Box::new(Do::Ping { to: None }));
    let server = ScriptedServer::start(script);
    let steps = then(vec![login()], [times(5, vec![ping]), say("x"), stay()]);
    let outcome =
        until(plan(&server, 5, steps), &server, |truth| truth.pings == 25 && truth.bodies.len() == 5);
    let truth = server.truth();
    agree(&outcome, &truth);
    slow(outcome.timing(Timing::Ping), 25, 100);
    // The other five are answers to bind requests.
    assert_eq!((truth.pings, outcome.count(Counter::IqAnswered)), (25, 30));
}

#[test]
fn users_ping_one_another() {
    let server = ScriptedServer::start(ServerScript::default());
    let ping = Do::Ping { to: Some(Destination::Partner) };
    let outcome = run(plan(&server, 10, then(online(), [ping, barrier()])), &server);
    agree(&outcome, &server.truth());
    let TimingSummary { count, .. } = outcome.timing(Timing::PingUser);
    assert_eq!((count, outcome.timing(Timing::Ping).count, outcome.errors.len()), (10, 0, 0));
}

#[test]
fn awaited_stanzas_arrive_or_time_out() {
    let hello = "<message from='load.test' type='headline'><body>Hello 42</body><x xmlns='urn:x'/></message>";
    let script = ServerScript::acting(move |step, _| {
        if step == ServerStep::Request {
            ServerAction::Then(format!("<presence from='x@y'/>{hello}"))
        } else {
            ServerAction::Well
        }
    });
    let stanza = |name: Option<&str>, kind: Option<&str>, namespace: Option<&str>| StanzaPattern::Stanza {
        name: name.map(str::to_owned),
        kind: kind.map(str::to_owned),
        namespace: namespace.map(str::to_owned),
    };
    let wait = |what| vec![say("x"), Do::WaitFor { what, timeout_ms: 300 }];
    let found = [
        stanza(Some("message"), None, None),
        stanza(None, Some("headline"), None),
        stanza(None, None, Some("urn:x")),
        StanzaPattern::Contains(text("Hello")),
        StanzaPattern::Regex("Hel+o [0-9]+".to_owned()),
    ];
    let steps = found.into_iter().flat_map(wait).collect();
    let (outcome, _) = did(script, 1, steps, |_| {});
    assert_eq!((outcome.count(Counter::Timeouts), outcome.count(Counter::UsersFinished)), (0, 1));
    let (outcome, truth) =
        did(ServerScript::default(), 3, vec![wait_for("message", 100), say("end")], |_| {});
    assert_eq!((outcome.count(Counter::Timeouts), outcome.error("timeout"), truth.bodies.len()), (3, 3, 3));
}

#[test]
fn a_user_can_connect_to_another_server() {
    let second = ScriptedServer::start(ServerScript::default());
    let there = Do::ChangeTarget {
        addresses: vec![second.address],
        security: loadgen::plan::TransportSecurity::None,
    };
    let steps = vec![say("here"), Do::Disconnect, there, login(), say("there")];
    let (outcome, truth) = did(ServerScript::default(), 5, steps, |_| {});
    let other = second.truth();
    assert_eq!((truth.logins, other.logins, outcome.count(Counter::Logins)), (5, 5, 10));
    assert_eq!((truth.bodies, other.bodies), (vec!["here".to_owned(); 5], vec!["there".to_owned(); 5]));
}

#[test]
fn subscriptions_are_accepted_where_the_plan_says_so() {
    let ask = "<presence type='subscribe' from='u7@load.test'/>";
    each([false, true], |accept| {
        let script = ServerScript::default()
            .once(|truth, _| truth.available == 5, ServerEvent::Send(0..5, ask.to_owned()));
        let server = ScriptedServer::start(script);
        let mut plan = plan(&server, 5, then(online(), [stay()]));
        plan.sessions[0].accept_subscriptions = accept;
        let outcome = until(plan, &server, |truth| truth.events_performed == 1 && !truth.busy);
        assert_eq!(server.truth().presences_in, if accept { 10 } else { 5 });
        assert_eq!(outcome.count(Counter::PresenceSent), server.truth().presences_in);
    });
}

#[test]
fn more_users_than_accounts_are_counted() {
    let (outcome, truth) = did(ServerScript::default(), 5, vec![barrier(), say("x")], |plan| {
        plan.phases[0].max_users = Some(8);
        plan.phases[0].batch = 8;
    });
    assert_eq!((outcome.count(Counter::UsersStarted), outcome.error("no-free-user")), (8, 3));
    assert_eq!((truth.logins, truth.bodies.len()), (5, 5));
}
