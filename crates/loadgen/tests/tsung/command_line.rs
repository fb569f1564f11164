//! Tests that the command line overrides the scenario.
//!
//! Not implemented: values that only TOML plans have.

use throng_loadgen::plan::{
    AccountOverrides, AccountSource, LoadPlan, MessageBody, PlanOverrides, PlanStep, TimeSpan,
    TransportSecurity,
};

use super::read;

fn plan(name: &str, arguments: &PlanOverrides) -> LoadPlan {
    read(name, arguments).unwrap().0
}

fn first<'p>(steps: &'p [PlanStep], such: &dyn Fn(&PlanStep) -> bool) -> Option<&'p PlanStep> {
    steps.iter().find_map(|step| match step {
        step if such(step) => Some(step),
        PlanStep::Transaction { steps, .. } | PlanStep::Repeat { steps, .. } => first(steps, such),
        _ => None,
    })
}

#[test]
fn connections_are_the_users_that_arrive_in_all() {
    let fewer = plan("phases", &PlanOverrides { connections: Some(100), ..PlanOverrides::default() });
    assert_eq!(fewer.options.connections, 100);
    let arriving: u32 = fewer.phases.iter().map(|phase| phase.max_users.unwrap()).sum();
    assert_eq!(arriving as usize + fewer.starts.len(), 100);
    let usual = plan("phases", &PlanOverrides::default());
    for (fewer, usual) in fewer.phases.iter().zip(&usual.phases) {
        assert_eq!(fewer.duration_ms, usual.duration_ms, "the shape stays");
        assert!(fewer.rate > usual.rate, "some 12 users arrive by themselves");
    }
}

#[test]
fn more_connections_than_accounts_are_an_error() {
    let errors =
        read("simple", &PlanOverrides { connections: Some(501), ..PlanOverrides::default() }).unwrap_err();
    assert_eq!(
        errors[0].to_string(),
        "--connections 501: there are 500 accounts (userid_max or the lines of a file); set --count to the number of accounts \
         on the server"
    );
    let accounts = AccountOverrides { count: Some(501), ..AccountOverrides::default() };
    let more =
        plan("simple", &PlanOverrides { connections: Some(501), accounts, ..PlanOverrides::default() });
    assert_eq!(more.options.connections, 501);
    assert_eq!(more.phases[0].max_users, Some(501));
    let rate = more.phases[0].rate * 60.0 / 501.0;
    assert!((1.0..1.2).contains(&rate), "so fast that all come in time, and no faster: {rate}");
}

#[test]
fn barriers_wait_for_fewer_when_fewer_arrive() {
    let (plan, notes) =
        read("global", &PlanOverrides { connections: Some(5), ..PlanOverrides::default() }).unwrap();
    assert!(
        plan.sessions[0].steps.iter().any(|step| matches!(step, PlanStep::Barrier { users: Some(5), .. })),
        "{plan:#?}"
    );
    assert!(!notes.iter().any(|note| note.text.contains("global_number")), "{notes:?}");
}

#[test]
fn a_target_replaces_the_servers_without_resolving_them() {
    let mut text = super::text_of("simple.xml");
    text = text.replace("127.0.0.1", "no-such-host.invalid");
    assert!(super::read_text(&text, &PlanOverrides::default()).is_err());
    let addresses = vec!["127.0.0.9:15222".parse().unwrap()];
    let arguments = PlanOverrides { addresses: addresses.clone(), ..PlanOverrides::default() };
    let (plan, notes) = super::read_text(&text, &arguments).unwrap();
    assert_eq!(plan.target.addresses, addresses);
    assert!(notes.iter().any(|note| note.to_string() == "the servers are replaced by --target"));
}

#[test]
fn the_time_scale_shortens_times_and_raises_rates() {
    let usual = plan("simple", &PlanOverrides::default());
    let fast = plan("simple", &PlanOverrides { time_scale: 10.0, ..PlanOverrides::default() });
    assert_eq!(fast.phases[0].duration_ms, Some(6_000));
    assert!((fast.phases[0].rate - 20.0).abs() < 1e-9);
    assert!(usual.sessions[0].steps.contains(&PlanStep::Think(TimeSpan::Fixed(30_000.0))));
    assert!(fast.sessions[0].steps.contains(&PlanStep::Think(TimeSpan::Fixed(3_000.0))));
    assert_eq!(fast.options.answer_timeout_ms, usual.options.answer_timeout_ms);
    assert_eq!(fast.options.connections, usual.options.connections);
}

#[test]
fn the_security_override_also_changes_the_steps() {
    let overrides = |security| PlanOverrides { security: Some(security), ..PlanOverrides::default() };
    let none = plan("starttls", &overrides(TransportSecurity::None));
    assert_eq!(none.target.security, TransportSecurity::None);
    assert!(!none.sessions[0].steps.contains(&PlanStep::StartTls));
    let starttls = plan("simple", &overrides(TransportSecurity::Starttls));
    assert_eq!(starttls.sessions[0].steps[..2], [PlanStep::Connect, PlanStep::StartTls]);
    let direct = plan("starttls", &overrides(TransportSecurity::Direct));
    assert_eq!(direct.target.security, TransportSecurity::Direct);
    assert!(!direct.sessions[0].steps.contains(&PlanStep::StartTls));
}

#[test]
fn accounts_mechanisms_and_sizes_are_overridden() {
    let accounts = AccountOverrides {
        prefix: Some("u".to_owned()),
        first: Some(100),
        count: Some(7),
        stride: Some(3),
        password: Some("p{n}".to_owned()),
        csv: None,
    };
    let arguments = PlanOverrides {
        accounts,
        mechanisms: vec!["SCRAM-SHA-256".to_owned()],
        message_size: Some(1_000),
        domain: Some("other.example".to_owned()),
        register: true,
        ..PlanOverrides::default()
    };
    let plan = plan("simple", &arguments);
    let source = AccountSource::Pattern {
        prefix: "u".to_owned(),
        first: 100,
        count: 7,
        stride: 3,
        password: "p{n}".to_owned(),
    };
    assert_eq!(plan.accounts.source, source);
    assert_eq!(
        (plan.accounts.domain.as_str(), plan.target.domain.as_str()),
        ("other.example", "other.example")
    );
    assert_eq!(plan.options.connections, 7);
    let steps = &plan.sessions[0].steps;
    assert_eq!(steps[..4], [PlanStep::Connect, PlanStep::Register, PlanStep::Disconnect, PlanStep::Connect]);
    let mechanisms = vec!["SCRAM-SHA-256".to_owned()];
    assert!(steps.contains(&PlanStep::Authenticate { mechanisms, credentials: None }));
    let message = first(steps, &|step| matches!(step, PlanStep::Message { .. }));
    assert!(matches!(message, Some(PlanStep::Message { body: MessageBody::Size(1_000), .. })));
}

#[test]
fn a_list_of_users_replaces_those_of_the_scenario() {
    let csv = Some("anna,one\nbert,two\n".to_owned());
    let accounts = AccountOverrides { csv, ..AccountOverrides::default() };
    let plan = plan("simple", &PlanOverrides { accounts, ..PlanOverrides::default() });
    let rows =
        [("anna", "one"), ("bert", "two")].map(|(name, password)| (name.to_owned(), password.to_owned()));
    assert_eq!(plan.accounts.source, AccountSource::List(rows.to_vec()));
    assert_eq!(plan.options.connections, 2);
}
