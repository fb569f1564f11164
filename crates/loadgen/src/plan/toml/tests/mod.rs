//! Tests of the TOML form: every key, every step, and every error with its sentence.

mod errors;
mod steps;

use super::*;
use crate::plan::{AccountSource, Destination, PlanStep, TemplatePart, TestAccounts, TextTemplate, TimeSpan};

/// Reads a valid plan.
fn read(text: &str) -> LoadPlan {
    read_with(text, &PlanOverrides::default())
}

fn read_with(text: &str, arguments: &PlanOverrides) -> LoadPlan {
    read_toml(text, "test", arguments).unwrap_or_else(|errors| {
        let lines: Vec<String> = errors.iter().map(PlanError::to_string).collect();
        panic!("{}\n{text}", lines.join("\n"))
    })
}

const SESSION: &str = "[[session]]\nsteps = [\"login\"]\n";
const PHASE: &str = "[[phase]]\nrate = 10\nusers = \"connections\"\n";

#[test]
fn the_smallest_plan() {
    let plan = read(&format!("{PHASE}{SESSION}"));
    assert_eq!(plan.name, "test");
    assert_eq!(plan.title, "test");
    assert_eq!(plan.target.addresses, ["127.0.0.1:5222".parse().unwrap()]);
    assert_eq!(plan.target.domain, "localhost");
    assert_eq!(plan.target.security, TransportSecurity::Auto);
    let (prefix, password) = ("u".to_owned(), "secret".to_owned());
    let source = AccountSource::Pattern { prefix, first: 0, count: 1_000, stride: 1, password };
    assert_eq!(plan.accounts, TestAccounts { source, domain: "localhost".to_owned() });
    assert_eq!(plan.options, PlanOptions::default());
    let [phase] = plan.phases.as_slice() else { panic!("one phase") };
    assert_eq!(
        (phase.name.as_str(), phase.rate, phase.batch, phase.max_users),
        ("phase 1", 10.0, 1, Some(1_000))
    );
    assert_eq!((phase.duration_ms, phase.poisson, phase.wait_all_end), (None, false, false));
    let [session] = plan.sessions.as_slice() else { panic!("one session") };
    assert_eq!(
        (session.name.as_str(), session.weight, session.accept_subscriptions),
        ("session", 1.0, false)
    );
    assert_eq!(session.steps, [PlanStep::Login { mechanisms: vec![], resource: None }]);
}

#[test]
fn every_key_outside_of_steps() {
    let plan = read(
        r#"
        title = "All of it"
        connections = 40

        [target]
        address = ["127.0.0.1:5222", "127.0.0.2:5223"]
        domain = "example.org"
        security = "starttls"
        resume = true
        only_tls12 = true
        sources = "127.0.0.3-127.0.0.4"

        [accounts]
        prefix = "user"
        first = 7
        count = "connections * 2"
        stride = 3
        password = "pw{n}"
        domain = "users.example.org"

        [prepare]
        accounts = 1_000
        roster = 10

        [options]
        duration = "10m"
        hold = "1m"
        drain = "2s"
        connect_timeout = "3s"
        answer_timeout = "4s"
        acceptable = "500ms"
        keep_going = true
        retries = 3
        retry_pause = "6s"
        seed = 9
        receive_buffer = 4096
        send_buffer = 8192
        stamps = false
        fail_on = ["p99(message) > 50ms", "count(errors) > 0"]

        [tables]
        words = [["a", "b"], ["c", "d"]]

        [[phase]]
        name = "ramp"
        every = "2s"
        batch = 10
        users = "connections / 2"
        poisson = true
        weights = { quiet = 3 }

        [[phase]]
        duration = "30s"
        rate = 2.5
        wait_all_end = true

        [[phase]]
        duration = "1m"

        [[start]]
        at = "5s"
        session = "quiet"
        users = 2

        [[session]]
        name = "loud"
        weight = 0.25
        accept_subscriptions = true
        steps = ["login"]

        [[session]]
        name = "quiet"
        steps = ["login"]
        "#,
    );
    assert_eq!(plan.title, "All of it");
    assert_eq!(plan.target.addresses.len(), 2);
    assert_eq!(plan.target.domain, "example.org");
    assert_eq!(plan.target.security, TransportSecurity::Starttls);
    assert!(plan.target.tls.resume && plan.target.tls.only_tls12);
    assert_eq!(plan.target.sources.len(), 2);
    let (prefix, password) = ("user".to_owned(), "pw{n}".to_owned());
    assert_eq!(
        plan.accounts.source,
        AccountSource::Pattern { prefix, first: 7, count: 80, stride: 3, password }
    );
    assert_eq!(plan.accounts.domain, "users.example.org");
    let options = PlanOptions {
        muc_service: None,
        pubsub_service: None,
        connections: 40,
        duration_ms: Some(600_000),
        hold_ms: Some(60_000),
        drain_ms: 2_000,
        connect_timeout_ms: 3_000,
        answer_timeout_ms: 4_000,
        acceptable_ms: 500,
        keep_going: true,
        failover: false,
        retries: 3,
        retry_ms: 6_000,
        seed: 9,
        receive_buffer: Some(4_096),
        send_buffer: Some(8_192),
        stamps: false,
        fail_on: ["p99(message) > 50ms", "count(errors) > 0"]
            .map(|text| crate::plan::Threshold::parse(text).unwrap())
            .to_vec(),
        tables: vec![DataTable {
            name: "words".to_owned(),
            rows: vec![vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned(), "d".to_owned()]],
        }],
    };
    assert_eq!(plan.options, options);
    let ramp = ArrivalPhase {
        name: "ramp".to_owned(),
        duration_ms: None,
        rate: 5.0,
        batch: 10,
        poisson: true,
        max_users: Some(20),
        weights: Some(vec![0.0, 3.0]),
        wait_all_end: false,
        concurrency: None,
    };
    assert_eq!(plan.phases[0], ramp);
    assert_eq!((plan.phases[1].duration_ms, plan.phases[1].rate), (Some(30_000), 2.5));
    assert!(plan.phases[1].wait_all_end);
    assert_eq!((plan.phases[2].name.as_str(), plan.phases[2].rate), ("phase 3", 0.0));
    assert_eq!(plan.starts, vec![UserStart { at_ms: 5_000, session: 1 }; 2]);
    assert_eq!((plan.sessions[0].weight, plan.sessions[0].accept_subscriptions), (0.25, true));
}

#[test]
fn files_are_read_beside_the_plan() {
    let directory = std::env::temp_dir().join(format!("throng-load-plan-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("users.csv"), "user,password\nalice,a1\nbob,b2\n").unwrap();
    std::fs::write(directory.join("words.csv"), "x;y\nz;w\n").unwrap();
    std::fs::write(directory.join("ca.pem"), "CA").unwrap();
    let text = format!(
        "connections = 2\n[target]\nca = \"ca.pem\"\n[accounts]\nfile = \"users.csv\"\n[tables]\nwords = \"words.csv\"\n{PHASE}{SESSION}"
    );
    let plan =
        read_with(&text, &PlanOverrides { directory: Some(directory.clone()), ..PlanOverrides::default() });
    std::fs::remove_dir_all(&directory).unwrap();
    let rows = [("alice", "a1"), ("bob", "b2")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(plan.accounts.source, AccountSource::List(rows.to_vec()));
    assert_eq!(plan.options.tables[0].rows[1], ["z", "w"]);
    assert_eq!(plan.target.tls.ca_pem.as_deref(), Some("CA"));
}

#[test]
fn the_command_line_wins() {
    let text = format!(
        "{PHASE}{}",
        r#"
        connections = 5
        [target]
        address = "no-such-host.invalid:5222"
        domain = "a.example"
        only_tls12 = true
        [accounts]
        domain = "b.example"
        prefix = "x"
        [options]
        hold = "9m"
        [[session]]
        steps = [
          "connect",
          { transaction = { name = "t", steps = [{ login = "PLAIN" }] } },
          { message = { to = "online", size = 10 } },
          { message = { to = "online", text = "hi" } },
          { meanwhile = { do = [{ every = "9s", message = { to = "online" } }, { every = "8s", ping = {} }] } },
          { bounce = {} },
        ]
        "#
    );
    // Keys after a section belong to it, so top-level keys must come first.
    let text = text.replacen("connections = 5", "", 1);
    let arguments = PlanOverrides {
        connections: Some(50),
        time_scale: 2.0,
        duration_ms: Some(7_000),
        hold_ms: Some(8_000),
        arrival_rate: Some(3.0),
        message_every: Some(TimeSpan::Fixed(100.0)),
        message_size: Some(77),
        in_flight: Some(4),
        addresses: vec!["127.0.0.9:1".parse().unwrap()],
        endpoint: None,
        sockets: Some(90),
        domain: Some("c.example".to_owned()),
        security: Some(TransportSecurity::Starttls),
        tls: Some(crate::plan::PlanTls { resume: true, ..crate::plan::PlanTls::default() }),
        sources: vec!["127.0.0.8".parse().unwrap()],
        accounts: crate::plan::AccountOverrides {
            prefix: Some("y".to_owned()),
            first: Some(100),
            count: Some(60),
            stride: Some(2),
            password: Some("pw".to_owned()),
            csv: None,
        },
        mechanisms: vec!["SCRAM-SHA-1".to_owned()],
        seed: Some(3),
        acceptable_ms: Some(250),
        keep_going: true,
        failover: true,
        fail_on: vec![crate::plan::Threshold::parse("max(login) > 1s").unwrap()],
        register: true,
        directory: None,
    };
    let plan = read_with(&text, &arguments);
    assert_eq!(plan.options.connections, 50);
    assert_eq!(plan.phases[0].max_users, Some(50));
    assert_eq!(plan.phases[0].rate, 3.0);
    assert_eq!((plan.options.duration_ms, plan.options.hold_ms), (Some(7_000), Some(8_000)));
    assert_eq!(plan.target.addresses, arguments.addresses);
    assert_eq!((&plan.target.sources, plan.target.web.sockets), (&arguments.sources, Some(90)));
    assert_eq!((plan.target.domain.as_str(), plan.accounts.domain.as_str()), ("c.example", "c.example"));
    assert_eq!(plan.target.security, TransportSecurity::Starttls);
    assert!(plan.target.tls.resume && plan.target.tls.only_tls12, "TLS of both is put together");
    let (prefix, password) = ("y".to_owned(), "pw".to_owned());
    assert_eq!(
        plan.accounts.source,
        AccountSource::Pattern { prefix, first: 100, count: 60, stride: 2, password }
    );
    assert_eq!((plan.options.seed, plan.options.acceptable_ms, plan.options.keep_going), (3, 250, true));
    let steps = &plan.sessions[0].steps;
    assert_eq!(
        steps[1..5],
        [PlanStep::Connect, PlanStep::StartTls, PlanStep::Register, PlanStep::Disconnect]
    );
    let login = PlanStep::Login { mechanisms: vec!["SCRAM-SHA-1".to_owned()], resource: None };
    let management = PlanStep::StreamManagement { resume: true };
    assert_eq!(steps[5], PlanStep::Transaction { index: 0, steps: vec![login, management] });
    assert!(plan.options.failover);
    let sizes = steps.iter().filter_map(|s| match s {
        PlanStep::Message { body, .. } => Some(body.clone()),
        _ => None,
    });
    let sizes: Vec<_> = sizes.collect();
    assert_eq!(
        sizes,
        [crate::plan::MessageBody::Size(77), crate::plan::MessageBody::Text(TextTemplate::literal("hi"))]
    );
    let PlanStep::Meanwhile { activities, .. } = &steps[8] else { panic!("{:?}", steps[8]) };
    assert_eq!(activities[0].every, TimeSpan::Fixed(100.0));
    assert_eq!(activities[1].every, TimeSpan::Fixed(4_000.0));
    assert_eq!(
        steps[9],
        PlanStep::Bounce {
            in_flight: 4,
            duration_ms: None,
            size: 77,
            one_sided: false,
            to: Destination::Partner
        }
    );
}

#[test]
fn accounts_from_the_command_line_as_a_list() {
    let mut arguments = PlanOverrides { connections: Some(1), ..PlanOverrides::default() };
    arguments.accounts.csv = Some("alice;a,1".to_owned());
    let text = format!("[accounts]\nfile = \"not there.csv\"\n{PHASE}{SESSION}");
    let plan = read_with(&text, &arguments);
    assert_eq!(plan.accounts.source, AccountSource::List(vec![("alice".to_owned(), "a,1".to_owned())]));
    let (_, preparation) = read_toml_with_preparation(&text, "test", &arguments).unwrap();
    assert_eq!(preparation, None);
}

#[test]
fn anonymous_users() {
    let plan = read(&format!("connections = 3\n[accounts]\nanonymous = true\n{PHASE}{SESSION}"));
    assert_eq!(plan.accounts.source, AccountSource::Anonymous { count: 3 });
}

#[test]
fn what_must_be_prepared() {
    let preparation = |text: &str| {
        let text = format!("{text}\n{PHASE}{SESSION}");
        read_toml_with_preparation(&text, "test", &PlanOverrides::default()).unwrap().1.unwrap()
    };
    assert_eq!(
        preparation("").command().unwrap(),
        "throng account bulk --domain localhost --prefix u --from 0 --count 1000 --password secret"
    );
    assert_eq!(
        preparation(
            "connections = 40\n[accounts]\nprefix = \"a b\"\npassword = \"it's\"\n[prepare]\nroster = 50"
        )
        .command()
        .unwrap(),
        "throng account bulk --domain localhost --prefix 'a b' --from 0 --count 51 --password 'it'\\''s' --roster ring:50"
    );
    // Never fewer than are used.
    assert_eq!(preparation("[accounts]\nstride = 5\nfirst = 7\n[prepare]\naccounts = 10").accounts, 5_000);
    assert_eq!(preparation("[accounts]\npassword = \"pw{n}\"").command(), None);
}

#[test]
fn a_plan_round_trips_through_json() {
    let arguments = PlanOverrides { time_scale: 3.0, ..PlanOverrides::default() };
    for workload in crate::plan::workloads() {
        let (plan, _) = crate::plan::named(workload.name, &arguments).unwrap();
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<LoadPlan>(&json).unwrap(), plan, "{}", workload.name);
    }
    let plan = read(&format!("{PHASE}[[session]]\nsteps = [{}]", steps::EVERY_STEP.join(",\n")));
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<LoadPlan>(&json).unwrap(), plan);
}

/// A template with one part.
fn piece(piece: TemplatePart) -> TextTemplate {
    TextTemplate(vec![piece])
}

/// The user reference.
const REFERENCE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/load-plans.md"));

#[test]
fn the_examples_of_the_reference_can_be_read() {
    let plans: Vec<&str> =
        REFERENCE.split("```toml\n").skip(1).filter_map(|t| t.split("```").next()).collect();
    assert!(!plans.is_empty());
    for text in plans {
        read(text);
    }
    let mut names = Vec::new();
    for row in REFERENCE.lines().filter(|line| line.starts_with("| `")) {
        let columns: Vec<&str> = row.split(" | ").map(|c| c.trim_matches(['|', ' '])).collect();
        let [name, example, ..] = columns.as_slice() else { panic!("{row}") };
        let (name, example) = (name.trim_matches('`'), example.trim_matches('`'));
        if !super::steps::NAMES.contains(&name) || !example.starts_with(['{', '"']) {
            continue;
        }
        read(&format!("{PHASE}[[session]]\nsteps = [{example}]"));
        assert!(example.contains(name), "{row}");
        names.push(name);
    }
    names.sort_unstable();
    let mut all = super::steps::NAMES.to_vec();
    all.sort_unstable();
    assert_eq!(names, all, "every step is in the reference");
}

#[test]
fn every_key_is_in_the_reference() {
    // An unknown key without a similar name makes the reader list all known keys.
    let sections = [
        "[target]",
        "[bosh]",
        "[accounts]",
        "[prepare]",
        "[options]",
        "[[phase]]",
        "[[start]]",
        "[[session]]",
    ];
    for section in sections {
        let text = format!("{section}\nqqqqqqqqqqqqqqqqqqqq = 1\n");
        let errors = read_toml(&text, "test", &PlanOverrides::default()).unwrap_err();
        let known = errors.iter().find_map(|m| m.text.split_once("; known are ")).expect("a list of keys").1;
        for key in known.split(", ") {
            assert!(REFERENCE.contains(&format!("`{key}`")), "{section} {key}");
        }
    }
}

#[test]
fn every_workload_is_in_the_reference() {
    for workload in crate::plan::workloads() {
        let name = workload.name;
        let family = name.rsplit_once('-').map_or(name, |(family, _)| family);
        let shortened = name.starts_with("tigase-roster-") || name.starts_with("atom-cluster-");
        let wanted = if shortened { format!("`{family}-") } else { format!("`{name}`") };
        assert!(REFERENCE.contains(&wanted), "{name}");
    }
}

#[test]
fn a_title_says_how_many_connections_there_are_and_not_only_how_many_were_published() {
    let title = |connections| {
        let arguments = PlanOverrides { connections, ..PlanOverrides::default() };
        crate::plan::named("tigase-roster-10", &arguments).unwrap().0.title
    };
    assert_eq!(title(None), "100 000 connections, 10 contacts each (Tigase 2010)");
    assert_eq!(
        title(Some(2_000)),
        "2000 connections (of 100 000 in the plan), 10 contacts each (Tigase 2010)"
    );
}

#[test]
fn security_auto_follows_the_url_where_starttls_is_impossible() {
    let session = "[[phase]]\nrate = 1\nusers = 1\n[[session]]\nsteps = [\"login\"]\n";
    let plan = |target: &str, security| {
        let text = format!("[target]\n{target}\n{session}");
        read_toml(&text, "test", &PlanOverrides { security, ..PlanOverrides::default() })
            .unwrap()
            .target
            .security
    };
    for (target, security, expected) in [
        ("url = \"https://127.0.0.1/b\"", Some(TransportSecurity::Auto), TransportSecurity::Direct),
        ("url = \"https://127.0.0.1/b\"\nsecurity = \"auto\"", None, TransportSecurity::Direct),
        ("url = \"ws://127.0.0.1/b\"", Some(TransportSecurity::Auto), TransportSecurity::None),
        ("transport = \"bosh\"", None, TransportSecurity::None),
        ("security = \"direct\"", Some(TransportSecurity::Auto), TransportSecurity::Auto),
        ("address = \"127.0.0.1\"", None, TransportSecurity::Auto),
    ] {
        assert_eq!(plan(target, security), expected, "{target}");
    }
}
