//! Builders of small plans: a number of users that arrive at once and perform some steps.

use loadgen::plan::{
    AccountSource, AckMode, Activity, ArrivalPhase, Destination, LoadPlan, MessageBody, MessageKind,
    PlanOptions, PlanStep, PlanTarget, PlanTls, PresenceKind, ResponseChecks, TemplatePart, TestAccounts,
    TextTemplate, TimeSpan, TransportSecurity, UserSession,
};

use super::server::{DOMAIN, ScriptedServer};

/// All users arrive at once and perform these steps; the run waits for them to end.
pub(crate) fn plan(server: &ScriptedServer, users: u32, steps: Vec<PlanStep>) -> LoadPlan {
    LoadPlan {
        name: "truth".to_owned(),
        title: String::new(),
        target: PlanTarget {
            addresses: vec![server.address],
            domain: DOMAIN.to_owned(),
            security: TransportSecurity::None,
            tls: PlanTls::default(),
            sources: Vec::new(),
            web: Default::default(),
        },
        accounts: TestAccounts {
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
        options: PlanOptions { connections: users, drain_ms: 8_000, ..PlanOptions::default() },
    }
}

/// A phase in which all users arrive at once.
pub(crate) fn arrivals(users: u32) -> ArrivalPhase {
    ArrivalPhase {
        name: "all".to_owned(),
        duration_ms: None,
        rate: 1_000.0,
        batch: users,
        poisson: false,
        max_users: Some(users),
        weights: None,
        wait_all_end: false,
        concurrency: None,
    }
}

pub(crate) fn session(steps: Vec<PlanStep>) -> UserSession {
    UserSession { name: "user".to_owned(), weight: 1.0, accept_subscriptions: false, steps }
}

/// Login with the server's strongest mechanism.
pub(crate) fn login() -> PlanStep {
    PlanStep::Login { mechanisms: Vec::new(), resource: None }
}

pub(crate) fn available() -> PlanStep {
    PlanStep::Presence { kind: PresenceKind::Available, to: None, show: None, status: None }
}

/// Barrier for all users of the worker.
pub(crate) fn barrier() -> PlanStep {
    PlanStep::Barrier { timeout_ms: 20_000, users: None }
}

/// Login, presence and its reflection, then a barrier.
pub(crate) fn online() -> Vec<PlanStep> {
    vec![login(), available(), reflected(), barrier()]
}

/// Waits for the reflection of the user's presence.
pub(crate) fn reflected() -> PlanStep {
    wait_for("presence", 10_000)
}

pub(crate) fn wait_for(name: &str, timeout_ms: u64) -> PlanStep {
    let what =
        loadgen::plan::StanzaPattern::Stanza { name: Some(name.to_owned()), kind: None, namespace: None };
    PlanStep::WaitFor { what, timeout_ms }
}

pub(crate) fn message(to: Destination) -> PlanStep {
    acked(to, AckMode::None)
}

pub(crate) fn acked(to: Destination, ack: AckMode) -> PlanStep {
    PlanStep::Message { to, body: MessageBody::Size(20), kind: MessageKind::Chat, ack }
}

pub(crate) fn times(times: u32, steps: Vec<PlanStep>) -> PlanStep {
    PlanStep::Repeat { times: Some(times), counter: None, first: 0, increment: 1, steps }
}

pub(crate) fn think(ms: f64) -> PlanStep {
    PlanStep::Think(TimeSpan::Fixed(ms))
}

/// Waits for the end of the run.
pub(crate) fn stay() -> PlanStep {
    PlanStep::Meanwhile { duration: None, activities: Vec::new() }
}

pub(crate) fn every(ms: f64, step: PlanStep) -> Activity {
    Activity { every: TimeSpan::Fixed(ms), batch: 1, step }
}

/// Performs the activities for `ms` milliseconds.
pub(crate) fn meanwhile(ms: f64, activities: Vec<Activity>) -> PlanStep {
    PlanStep::Meanwhile { duration: Some(TimeSpan::Fixed(ms)), activities }
}

/// Parses literal text with variables between dollar signs: `a$x$b`.
pub(crate) fn text(pattern: &str) -> TextTemplate {
    let pieces = pattern.split('$').enumerate().filter(|(_, piece)| !piece.is_empty());
    TextTemplate(
        pieces
            .map(|(at, piece)| {
                if at % 2 == 0 {
                    TemplatePart::Literal(piece.to_owned())
                } else {
                    TemplatePart::Variable(piece.to_owned())
                }
            })
            .collect(),
    )
}

/// Sends a word to the server, which records it and repeats it in its answer.
pub(crate) fn say(word: &str) -> PlanStep {
    say_with(word, ResponseChecks::default())
}

pub(crate) fn say_with(word: &str, checks: ResponseChecks) -> PlanStep {
    let xml = format!("<iq type='get' id='say'><say xmlns='urn:test:say'><word>{word}</word></say></iq>");
    PlanStep::Raw { xml: text(&xml), ack: AckMode::Any, checks }
}

/// Concatenates `steps` and `more`.
pub(crate) fn then(mut steps: Vec<PlanStep>, more: impl IntoIterator<Item = PlanStep>) -> Vec<PlanStep> {
    steps.extend(more);
    steps
}

/// Final steps: the user reports to the server that it is done, then waits.
pub(crate) fn done() -> Vec<PlanStep> {
    vec![say("done"), stay()]
}
