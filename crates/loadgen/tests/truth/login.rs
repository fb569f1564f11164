//! Tests of logins: every step is timed separately, and every failure has its kind and count.

use std::net::TcpListener;

use loadgen::measure::{Counter, Gauge, Timing, TimingSummary};
use loadgen::plan::{AccountSource, AckMode, LoadPlan, PlanStep as Do, TransportSecurity};

use crate::messages::agree;
use crate::support::driver::{RunOutcome, run};
use crate::support::each;
use crate::support::plans::{login, online, plan, text, then};
use crate::support::script::{
    CloseMode, LegacySessionOffer, ScriptTls, ServerAction, ServerCounts, ServerScript, ServerStep,
};
use crate::support::server::ScriptedServer;

/// Asserts `count` values, none shorter than `ms`.
pub(crate) fn slow(summary: TimingSummary, count: u64, ms: u64) {
    assert_eq!(summary.count, count);
    // A histogram reports the lower end of a bucket, up to a thousandth less.
    assert!(summary.min >= ms * 998, "{summary:?} for {ms} ms");
    assert!(summary.p50 >= ms * 998 && summary.mean >= ms as f64 * 1_000.0, "{summary:?} for {ms} ms");
    assert!(summary.max < 20_000_000, "{summary:?} for {ms} ms");
}

#[test]
fn each_login_step_of_a_slow_server_is_measured_separately() {
    let script = ServerScript {
        mechanisms: vec!["PLAIN", "SCRAM-SHA-1"],
        old_session: LegacySessionOffer::Required,
        ..ServerScript::acting(|step, _| {
            ServerAction::Late(match step {
                ServerStep::Features => 20,
                ServerStep::Challenge => 30,
                ServerStep::Success => 40,
                ServerStep::Bind => 50,
                ServerStep::Session => 60,
                ServerStep::Roster => 70,
                ServerStep::RosterSet => 80,
                ServerStep::Reflection => 90,
                ServerStep::Ping => 100,
                ServerStep::Enabled => 110,
                _ => return ServerAction::Well,
            })
        })
    };
    let server = ScriptedServer::start(script);
    let change = Do::RosterSet {
        change: loadgen::plan::RosterChange::Set,
        to: loadgen::plan::Destination::Partner,
        name: Some(text("A & B")),
        group: None,
    };
    let steps = then(
        vec![login(), Do::StreamManagement { resume: false }, Do::Roster, change, Do::Ping { to: None }],
        online().into_iter().skip(1),
    );
    let outcome = run(plan(&server, 10, steps), &server);
    agree(&outcome, &server.truth());
    slow(outcome.timing(Timing::Connect), 10, 0);
    slow(outcome.timing(Timing::Features), 20, 20);
    slow(outcome.timing(Timing::Authenticate), 10, 70);
    slow(outcome.timing(Timing::Bind), 10, 50);
    slow(outcome.timing(Timing::OpenSession), 10, 60);
    slow(outcome.timing(Timing::Login), 10, 220);
    slow(outcome.timing(Timing::SmEnable), 10, 110);
    slow(outcome.timing(Timing::Roster), 10, 70);
    slow(outcome.timing(Timing::RosterSet), 10, 80);
    slow(outcome.timing(Timing::Ping), 10, 100);
    slow(outcome.timing(Timing::PresenceEcho), 10, 90);
    slow(outcome.timing(Timing::Session), 10, 670);
    assert_eq!(outcome.count(Counter::UsersStarted), 10);
    assert_eq!(outcome.count(Counter::UsersFinished), 10);
    assert_eq!(outcome.count(Counter::IqAnswered), server.truth().iq_answers);
    assert_eq!((server.truth().scram, server.truth().plain), (10, 0));
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

/// Ten users log in to a server that misbehaves for some of them.
fn logins(script: ServerScript, change: impl FnOnce(&mut LoadPlan)) -> (RunOutcome, ServerCounts) {
    let server = ScriptedServer::start(script);
    let mut plan = plan(&server, 10, vec![login()]);
    plan.options.keep_going = true;
    // No drain: a broken connection leaves nothing to wait for.
    plan.options.drain_ms = 0;
    change(&mut plan);
    let outcome = run(plan, &server);
    (outcome, server.truth())
}

/// Asserts `count` failures, all of this kind.
fn failed(outcome: &RunOutcome, truth: &ServerCounts, count: u64, kind: &str) {
    assert_eq!(outcome.error(kind), count, "{kind} in {:?}", outcome.errors);
    assert_eq!(outcome.count(Counter::LoginErrors), count);
    assert_eq!(outcome.count(Counter::Logins), 10 - count);
    assert_eq!(outcome.timing(Timing::Login).count, 10 - count);
    assert_eq!(truth.logins, 10 - count);
    assert_eq!(outcome.count(Counter::UsersFinished), 10 - count);
    assert_eq!(outcome.count(Counter::SessionsLost), 0);
    assert_eq!(outcome.gauge(Gauge::Users), 0);
}

#[test]
fn the_first_login_that_fails_ends_the_run_with_the_reason() {
    let script = ServerScript { accounts: 0, ..ServerScript::default() };
    let (outcome, truth) = logins(script, |plan| {
        plan.options.keep_going = false;
        plan.phases[0].batch = 1;
        plan.phases[0].rate = 20.0;
    });
    let reason = outcome.refused.as_deref().expect("the run ends with a reason");
    assert!(reason.contains("u0@load.test") && reason.contains("not-authorized"), "{reason}");
    assert!(!reason.contains("tried"), "a wrong password has nothing to do with protection: {reason}");
    assert_eq!((outcome.count(Counter::LoginErrors), outcome.count(Counter::Logins)), (1, 0));
    assert!(truth.connections < 10, "users still arrived: {truth:?}");
}

#[test]
fn wrong_passwords_fail_and_other_users_continue() {
    each(["PLAIN", "SCRAM-SHA-1"], |mechanism| {
        let script = ServerScript { mechanisms: vec![mechanism], ..ServerScript::default() };
        let (outcome, truth) = logins(script, |plan| {
            let password = |user: u32| if user % 3 == 1 { "wrong".to_owned() } else { format!("p{user}") };
            let rows = (0..10).map(|user| (format!("u{user}"), password(user))).collect();
            plan.accounts.source = AccountSource::List(rows);
        });
        failed(&outcome, &truth, 3, "login:not-authorized");
        assert_eq!(truth.failed_logins, 3);
        assert_eq!(outcome.refused, None);
    });
}

#[test]
fn a_server_that_does_not_prove_the_password_is_rejected() {
    let script =
        ServerScript { mechanisms: vec!["SCRAM-SHA-1"], wrong_signature: true, ..ServerScript::default() };
    let (outcome, truth) = logins(script, |_| {});
    assert_eq!((outcome.error("login:sasl"), outcome.count(Counter::LoginErrors)), (10, 10));
    assert_eq!((outcome.count(Counter::Logins), truth.logins, truth.scram), (0, 0, 10));
}

#[test]
fn the_strongest_mechanism_is_used_unless_the_plan_selects_another() {
    let both = || ServerScript { mechanisms: vec!["PLAIN", "SCRAM-SHA-1"], ..ServerScript::default() };
    let (outcome, truth) = logins(both(), |_| {});
    failed(&outcome, &truth, 0, "");
    assert_eq!((truth.scram, truth.plain), (10, 0));
    let (outcome, truth) = logins(both(), |plan| {
        plan.sessions[0].steps = vec![Do::Login { mechanisms: vec!["PLAIN".to_owned()], resource: None }];
    });
    failed(&outcome, &truth, 0, "");
    assert_eq!((truth.scram, truth.plain), (0, 10));
    let (outcome, _) = logins(both(), |plan| {
        plan.sessions[0].steps =
            vec![Do::Login { mechanisms: vec!["SCRAM-SHA-512".to_owned()], resource: None }];
    });
    assert_eq!(outcome.error("login:no-mechanism"), 10);
}

#[test]
fn legacy_sessions_are_opened_where_required() {
    each(
        [
            (LegacySessionOffer::Absent, 0),
            (LegacySessionOffer::Optional, 0),
            (LegacySessionOffer::Required, 10),
        ],
        |(old_session, opened)| {
            let (outcome, truth) = logins(ServerScript { old_session, ..ServerScript::default() }, |_| {});
            failed(&outcome, &truth, 0, "");
            assert_eq!((truth.sessions_opened, outcome.timing(Timing::OpenSession).count), (opened, opened));
        },
    );
}

#[test]
fn a_connection_lost_during_login_is_a_failed_login() {
    let (step, how) = (ServerStep::Success, CloseMode::Fin);
    let cases = [
        (ServerStep::Features, CloseMode::Fin, "login:closed"),
        (ServerStep::Features, CloseMode::Reset, "login:closed"),
        (step, how, "login:authentication"),
        (ServerStep::Success, CloseMode::Reset, "login:authentication"),
        (ServerStep::Bind, CloseMode::Fin, "login:closed"),
        (ServerStep::Bind, CloseMode::Error("policy-violation"), "login:stream-error"),
    ];
    each(cases, |(at, how, kind)| {
        // Affects the first to get here, on either of the two streams.
        let script = ServerScript::acting(move |step, n| {
            if step == at && n < 4 { ServerAction::Close(how) } else { ServerAction::Well }
        });
        let (outcome, truth) = logins(script, |_| {});
        failed(&outcome, &truth, 4, kind);
        assert_eq!(
            outcome.error("stream:policy-violation"),
            if how == CloseMode::Error("policy-violation") { 4 } else { 0 }
        );
    });
}

#[test]
fn logins_without_an_answer_time_out() {
    each([ServerStep::Features, ServerStep::Success, ServerStep::Bind], |step| {
        let script = ServerScript::acting(move |at, n| {
            if at == step && n < 3 { ServerAction::Nothing } else { ServerAction::Well }
        });
        let (outcome, truth) = logins(script, |plan| plan.options.answer_timeout_ms = 300);
        failed(&outcome, &truth, 3, "login:timeout");
        assert_eq!(outcome.count(Counter::Timeouts), 3);
    });
}

#[test]
fn a_refused_connection_is_retried_as_configured() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (outcome, truth) = logins(ServerScript::default(), |plan| {
        plan.target.addresses = vec![free];
        plan.options.retries = 2;
        plan.options.retry_ms = 20;
    });
    assert_eq!((outcome.count(Counter::ConnectErrors), outcome.error("connect:refused")), (30, 30));
    assert_eq!((outcome.error("login:connect"), outcome.count(Counter::LoginErrors)), (10, 10));
    assert_eq!((outcome.count(Counter::Connections), truth.connections), (0, 0));
}

#[test]
fn connecting_times_out() {
    // A listener with a full queue drops connection attempts.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let first = std::net::TcpStream::connect(address).unwrap();
    let (outcome, _) = logins(ServerScript::default(), |plan| {
        plan.target.addresses = vec![address];
        plan.options.connect_timeout_ms = 200;
        plan.options.answer_timeout_ms = 200;
    });
    drop(first);
    assert_eq!((outcome.error("connect:timeout"), outcome.count(Counter::ConnectErrors)), (10, 10));
    assert_eq!((outcome.error("login:connect"), outcome.count(Counter::LoginErrors)), (10, 10));
}

#[test]
fn both_kinds_of_tls_are_timed() {
    each(
        [
            (ScriptTls::Starttls, TransportSecurity::Starttls, 3),
            (ScriptTls::Direct, TransportSecurity::Direct, 2),
        ],
        |(tls, security, streams)| {
            let server = ScriptedServer::start(ServerScript {
                tls,
                mechanisms: vec!["SCRAM-SHA-1"],
                ..ServerScript::default()
            });
            let mut plan = plan(&server, 10, online());
            plan.target.security = security;
            plan.target.tls.resume = true;
            let (outcome, truth) = (run(plan, &server), server.truth());
            assert_eq!((outcome.count(Counter::Logins), truth.logins), (10, 10), "{:?}", outcome.errors);
            assert_eq!(outcome.timing(Timing::Tls).count, 10);
            assert_eq!(outcome.timing(Timing::Features).count, 10 * streams);
            assert_eq!(outcome.count(Counter::StanzasIn), truth.stanzas_out);
            assert_eq!(outcome.count(Counter::StanzasOut), truth.stanzas_in);
            assert_eq!(outcome.count(Counter::BytesOut), truth.bytes_in);
            // The last data of each connection is an alert of 24 bytes, which is not awaited.
            let unread = truth.bytes_out - outcome.count(Counter::BytesIn);
            assert!(unread <= 10 * 24, "{unread} bytes were not counted");
        },
    );
}

#[test]
fn by_default_starttls_is_used_if_offered() {
    for (tls, streams, used) in
        [(ScriptTls::Starttls, 3, "STARTTLS, TLSv1.3, PLAIN"), (ScriptTls::None, 2, "no TLS, PLAIN")]
    {
        let script = ServerScript { tls, ..ServerScript::default() };
        let (outcome, truth) = logins(script, |plan| plan.target.security = TransportSecurity::Auto);
        assert_eq!((outcome.count(Counter::Logins), truth.logins), (10, 10), "{:?}", outcome.errors);
        assert_eq!(outcome.timing(Timing::Features).count, 10 * streams);
        assert_eq!(outcome.used.iter().collect::<Vec<_>>(), [(&used.to_owned(), &10)]);
    }
}

#[test]
fn an_explicit_starttls_step_disables_automatic_starttls() {
    let script = ServerScript { tls: ScriptTls::Starttls, ..ServerScript::default() };
    let (outcome, truth) = logins(script, |plan| {
        plan.target.security = TransportSecurity::Auto;
        let authenticate = Do::Authenticate { mechanisms: Vec::new(), credentials: None };
        plan.sessions[0].steps = vec![Do::Connect, Do::StartTls, authenticate, Do::Bind { resource: None }];
    });
    assert_eq!((outcome.count(Counter::Logins), truth.logins), (10, 10), "{:?}", outcome.errors);
    assert_eq!(outcome.timing(Timing::Features).count, 30);
}

#[test]
fn a_failed_login_reports_the_attempt_and_the_offers() {
    let first = |script, security| {
        let (outcome, _) = logins(script, |plan: &mut LoadPlan| {
            plan.target.security = security;
            plan.options.keep_going = false;
        });
        outcome.refused.expect("the run ends with a reason")
    };
    let required = || ServerScript { tls: ScriptTls::Starttls, ..ServerScript::default() };
    let plain = first(required(), TransportSecurity::None);
    for part in [
        "tried: no TLS (security none)",
        "the server offered: STARTTLS, no SASL mechanism",
        "--security starttls",
    ] {
        assert!(plain.contains(part), "no {part:?} in {plain}");
    }
    let absent = first(ServerScript::default(), TransportSecurity::Starttls);
    for part in ["does not offer STARTTLS", "the server offered: PLAIN", "--security none"] {
        assert!(absent.contains(part), "no {part:?} in {absent}");
    }
    let direct =
        first(ServerScript { tls: ScriptTls::Direct, ..ServerScript::default() }, TransportSecurity::Auto);
    for part in ["tried: no TLS (security auto)", "offered nothing before that", "--security direct"] {
        assert!(direct.contains(part), "no {part:?} in {direct}");
    }
}

#[test]
fn missing_or_failed_tls_is_a_failed_login() {
    let starttls = |plan: &mut LoadPlan| plan.target.security = TransportSecurity::Starttls;
    let (outcome, truth) = logins(ServerScript::default(), starttls);
    assert_eq!((outcome.error("login:no-starttls"), truth.logins), (10, 0));
    // Direct TLS against a server that speaks plain text.
    let script = ServerScript::acting(|step, _| {
        if step == ServerStep::Accept {
            ServerAction::Bytes(b"<hello/>".to_vec())
        } else {
            ServerAction::Well
        }
    });
    let (outcome, truth) = logins(script, |plan| plan.target.security = TransportSecurity::Direct);
    assert_eq!((outcome.error("login:tls"), truth.logins), (10, 0), "{:?}", outcome.errors);
}

/// RFC 6120, section 5.4.3.3: plain text after `<proceed/>` may be injected by anybody.
#[test]
fn plaintext_after_proceed_ends_the_login() {
    let injected =
        "<stream:features><mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/></stream:features>";
    let script = ServerScript {
        tls: ScriptTls::Starttls,
        ..ServerScript::acting(move |step, _| {
            if step == ServerStep::Starttls {
                ServerAction::Then(injected.to_owned())
            } else {
                ServerAction::Well
            }
        })
    };
    let (outcome, truth) = logins(script, |plan| {
        plan.target.security = TransportSecurity::Starttls;
    });
    assert_eq!(
        (outcome.error("login:tls"), outcome.count(Counter::LoginErrors)),
        (10, 10),
        "{:?}",
        outcome.errors
    );
    assert_eq!(truth.logins, 0);
}

#[test]
fn accounts_are_created_and_removed() {
    let script = ServerScript { accounts: 4, ..ServerScript::default() };
    let (outcome, truth) = logins(script, |plan| {
        plan.sessions[0].steps = vec![
            Do::Connect,
            Do::Register,
            Do::Authenticate { mechanisms: Vec::new(), credentials: None },
            Do::Bind { resource: Some(text("here")) },
            Do::Unregister,
        ];
    });
    assert_eq!((truth.registered, truth.removed, truth.logins), (6, 10, 10), "{:?}", outcome.errors);
    assert_eq!((outcome.timing(Timing::Register).count, outcome.error("register:exists")), (6, 4));
    assert_eq!((outcome.count(Counter::Logins), outcome.count(Counter::IqErrors)), (10, 4));
}

#[test]
fn anonymous_users_use_the_assigned_names() {
    let script = ServerScript { mechanisms: vec!["ANONYMOUS"], ..ServerScript::default() };
    let (outcome, truth) = logins(script, |plan| {
        plan.accounts.source = AccountSource::Anonymous { count: 10 };
        let xml = loadgen::plan::TextTemplate(vec![
            loadgen::plan::TemplatePart::Literal(
                "<iq type='get' id='say'><say xmlns='urn:test:say'><word>".to_owned(),
            ),
            loadgen::plan::TemplatePart::Jid,
            loadgen::plan::TemplatePart::Literal("</word></say></iq>".to_owned()),
        ]);
        let say = Do::Raw { xml, ack: AckMode::Any, checks: Default::default() };
        plan.sessions[0].steps = vec![login(), say];
    });
    failed(&outcome, &truth, 0, "");
    let mut names: Vec<&str> =
        truth.bodies.iter().filter_map(|jid| jid.split_once('@').map(|(name, _)| name)).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 10);
    assert!(names.iter().all(|name| name.starts_with("guest")), "{names:?}");
}

#[test]
fn legacy_authentication_falls_back_to_sasl_if_not_offered() {
    let legacy = "<query xmlns='jabber:iq:auth'><username>u</username></query>";
    let fields = Do::Raw {
        xml: text(&format!("<iq type='get' id='f'>{legacy}</iq>")),
        ack: AckMode::Any,
        checks: Default::default(),
    };
    let (outcome, truth) = logins(
        ServerScript { mechanisms: vec!["SCRAM-SHA-1", "PLAIN"], ..ServerScript::default() },
        |plan| {
            let login = Do::LegacyAuthenticate { resource: text("r"), credentials: None };
            plan.sessions[0].steps = vec![Do::Connect, fields, login, Do::Ping { to: None }, Do::Disconnect];
        },
    );
    failed(&outcome, &truth, 0, "");
    assert_eq!((truth.plain, truth.scram), (10, 0), "the password in the clear, as the step has it");
    assert_eq!((outcome.timing(Timing::Bind).count, outcome.timing(Timing::Ping).count), (10, 10));
}
