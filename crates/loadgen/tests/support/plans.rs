//! Small plans: so many users at once, who do some steps.

use loadgen::plan::{
    AccountSource, Accounts, Ack, Activity, Body, Checks, Destination, MessageKind, Options, Phase, Piece,
    Plan, PresenceKind, Security, Session, Step, Target, Text, Time, Tls,
};

use super::server::{DOMAIN, Server};

/// All users arrive at once and do these steps; then the run waits for them to end.
pub(crate) fn plan(server: &Server, users: u32, steps: Vec<Step>) -> Plan {
    Plan {
        name: "truth".to_owned(),
        title: String::new(),
        target: Target {
            addresses: vec![server.address],
            domain: DOMAIN.to_owned(),
            security: Security::None,
            tls: Tls::default(),
            sources: Vec::new(),
            web: Default::default(),
        },
        accounts: Accounts {
            source: AccountSource::Pattern {
                prefix: "u".to_owned(),
                first: 0,
                stride: 1,
                count: users,
                password: "p{n}".to_owned(),
            },
            domain: DOMAIN.to_owned(),
        },
        phases: vec![arrivals(users)],
        starts: Vec::new(),
        sessions: vec![session(steps)],
        transactions: Vec::new(),
        options: Options { connections: users, drain_ms: 8_000, ..Options::default() },
    }
}

/// So many at once.
pub(crate) fn arrivals(users: u32) -> Phase {
    Phase {
        name: "all".to_owned(),
        duration_ms: None,
        rate: 1_000.0,
        batch: users,
        poisson: false,
        max_users: Some(users),
        weights: None,
        wait_all_end: false,
    }
}

pub(crate) fn session(steps: Vec<Step>) -> Session {
    Session { name: "user".to_owned(), weight: 1.0, accept_subscriptions: false, steps }
}

/// Login with the server's strongest mechanism.
pub(crate) fn login() -> Step {
    Step::Login { mechanisms: Vec::new(), resource: None }
}

pub(crate) fn available() -> Step {
    Step::Presence { kind: PresenceKind::Available, to: None, show: None, status: None }
}

/// All users of the worker.
pub(crate) fn barrier() -> Step {
    Step::Barrier { timeout_ms: 20_000, users: None }
}

/// Login, presence and its reflection, and then all together.
pub(crate) fn online() -> Vec<Step> {
    vec![login(), available(), reflected(), barrier()]
}

/// Waits for a presence.
pub(crate) fn reflected() -> Step {
    wait_for("presence", 10_000)
}

pub(crate) fn wait_for(name: &str, timeout_ms: u64) -> Step {
    let what = loadgen::plan::Pattern::Stanza { name: Some(name.to_owned()), kind: None, namespace: None };
    Step::WaitFor { what, timeout_ms }
}

pub(crate) fn message(to: Destination) -> Step {
    acked(to, Ack::None)
}

pub(crate) fn acked(to: Destination, ack: Ack) -> Step {
    Step::Message { to, body: Body::Size(20), kind: MessageKind::Chat, ack }
}

pub(crate) fn times(times: u32, steps: Vec<Step>) -> Step {
    Step::Repeat { times: Some(times), counter: None, first: 0, increment: 1, steps }
}

pub(crate) fn think(ms: f64) -> Step {
    Step::Think(Time::Fixed(ms))
}

/// Waits for the end of the run.
pub(crate) fn stay() -> Step {
    Step::Meanwhile { duration: None, activities: Vec::new() }
}

pub(crate) fn every(ms: f64, step: Step) -> Activity {
    Activity { every: Time::Fixed(ms), step }
}

/// So long.
pub(crate) fn meanwhile(ms: f64, activities: Vec<Activity>) -> Step {
    Step::Meanwhile { duration: Some(Time::Fixed(ms)), activities }
}

/// Literal text and variables between dollar signs: `a$x$b`.
pub(crate) fn text(pattern: &str) -> Text {
    let pieces = pattern.split('$').enumerate().filter(|(_, piece)| !piece.is_empty());
    Text(
        pieces
            .map(|(at, piece)| {
                if at % 2 == 0 { Piece::Literal(piece.to_owned()) } else { Piece::Variable(piece.to_owned()) }
            })
            .collect(),
    )
}

/// Says a word to the server, so that the server's truth has it; the answer has it again.
pub(crate) fn say(word: &str) -> Step {
    say_with(word, Checks::default())
}

pub(crate) fn say_with(word: &str, checks: Checks) -> Step {
    let xml = format!("<iq type='get' id='say'><say xmlns='urn:test:say'><word>{word}</word></say></iq>");
    Step::Raw { xml: text(&xml), ack: Ack::Any, checks }
}

/// `steps`, then `more`.
pub(crate) fn then(mut steps: Vec<Step>, more: impl IntoIterator<Item = Step>) -> Vec<Step> {
    steps.extend(more);
    steps
}

/// The last thing before the user only waits: the server hears that it came so far.
pub(crate) fn done() -> Vec<Step> {
    vec![say("done"), stay()]
}
