//! Tests of every error that is found before the first connection, with its sentence, and of the number of workers.

use super::*;
use crate::plan::{PlanOverrides, named, read_toml, workloads};

/// A machine with enough of everything.
fn large() -> MachineCapacity {
    MachineCapacity {
        files: 1_000_000,
        cores: 64,
        memory: 1_000_000_000_000,
        ports: (1_024, 65_535),
        server_here: false,
    }
}

/// The machine on which this project's measurements are made.
fn small() -> MachineCapacity {
    MachineCapacity {
        files: 20_000,
        cores: 2,
        memory: 20_000_000_000,
        ports: (32_768, 60_999),
        server_here: true,
    }
}

/// Reads a valid plan.
fn plan_with(text: &str, arguments: &PlanOverrides) -> LoadPlan {
    read_toml(text, "test", arguments).unwrap_or_else(|m| panic!("{}", m[0]))
}

fn plan(lines: &str, steps: &str) -> LoadPlan {
    let text = format!(
        "connections = 10\n[options]\nhold = \"1s\"\n{lines}\n[[phase]]\nrate = 1\nusers = \"connections\"\n[[session]]\nname = \"s\"\nsteps = [{steps}]"
    );
    plan_with(&text, &PlanOverrides::default())
}

fn sentences(plan: &LoadPlan, machine: &MachineCapacity) -> Vec<String> {
    check(plan, machine).iter().map(PlanError::to_string).collect()
}

/// The sentences for steps, without their session.
fn of_steps(steps: &str) -> String {
    sentences(&plan("", steps), &large()).join("\n").replace("session \"s\", ", "")
}

/// The same without TLS.
fn of_plain(steps: &str) -> String {
    let plan = plan("[target]\nsecurity = \"none\"", steps);
    sentences(&plan, &large()).join("\n").replace("session \"s\", ", "")
}

#[test]
fn every_workload_can_be_run_on_a_large_machine() {
    for workload in workloads() {
        let (mut plan, _) = named(workload.name, &PlanOverrides::default()).unwrap();
        plan.target.sources = crate::plan::sources("127.0.0.2-127.0.0.60").unwrap();
        assert_eq!(sentences(&plan, &large()), Vec::<String>::new(), "{}", workload.name);
    }
}

#[test]
fn every_workload_can_be_run_with_19_000_connections_on_a_small_machine() {
    for workload in workloads() {
        // BOSH users have two sockets.
        let connections = match workload.name {
            "flood" => 200,
            "openfire-bosh" => 9_500,
            _ => 19_000,
        };
        let arguments = PlanOverrides { connections: Some(connections), ..PlanOverrides::default() };
        let (plan, _) = named(workload.name, &arguments).unwrap();
        assert_eq!(sentences(&plan, &small()), Vec::<String>::new(), "{}", workload.name);
        assert_eq!(workers_needed(&plan, &small()).count, 1, "{}", workload.name);
    }
}

#[test]
fn steps_before_their_prerequisite_are_errors() {
    assert_eq!(of_steps(r#""login", "roster", "presence", { message = "contact" }"#), "");
    assert_eq!(of_steps(r#""connect", "register", "authenticate", "bind", "presence""#), "");
    assert_eq!(of_steps(r#""connect", { legacy_authenticate = "r" }, "presence""#), "");
    assert_eq!(of_steps(r#"{ repeat = { times = 2, steps = ["login", "ping", "disconnect"] } }"#), "");
    let too_early = [
        ("presence", "\"presence\"", "\"login\""),
        ("roster", "\"roster\"", "\"login\""),
        ("ping", "\"ping\"", "\"login\""),
        ("message", "{ message = \"online\" }", "\"login\""),
        ("roster_set", "{ roster_set = \"ring+1\" }", "\"login\""),
        ("stream_management", "\"stream_management\"", "\"login\""),
        ("session", "\"session\"", "\"login\""),
        ("unregister", "\"unregister\"", "\"login\""),
        ("bounce", "\"bounce\"", "\"login\""),
        ("bind", "\"connect\", \"bind\"", "\"login\""),
    ];
    for (what, step, fix) in too_early {
        let place = if step.starts_with("\"connect") { 2 } else { 1 };
        let sentence = format!("step {place}: {what} comes before the login; put {fix} before it");
        assert_eq!(of_steps(&format!("{step}, \"ping\"")), sentence);
    }
    for (what, step) in [
        ("starttls", "\"starttls\""),
        ("register", "\"register\""),
        ("authenticate", "\"authenticate\""),
        ("legacy_authenticate", "{ legacy_authenticate = \"r\" }"),
        ("raw", "{ raw = \"<a/>\" }"),
        ("wait_for", "{ wait_for = \"iq\" }"),
    ] {
        let sentence =
            format!("step 1: {what} comes before the connection; put \"connect\" or \"login\" before it");
        assert_eq!(of_steps(step), sentence);
    }
    assert_eq!(
        of_steps(r#""login", "disconnect", "ping""#),
        "step 3: ping comes before the login; put \"login\" before it"
    );
    assert_eq!(
        of_steps(r#""login", "login""#),
        "step 2: login comes while the user is logged in; put \"disconnect\" before it"
    );
    assert_eq!(
        of_steps(r#"{ transaction = { name = "t", steps = [{ think = "1s" }, "ping"] } }"#),
        "step 1.2: ping comes before the login; put \"login\" before it"
    );
    assert_eq!(
        of_steps(
            r#""login", { meanwhile = { for = "1s", do = [{ every = "1s", ping = true }, { every = "1s", message = "contact" }] } }"#
        ),
        "step 2.2: is for a contact, but the roster is not fetched; put \"roster\" before it"
    );
    assert_eq!(
        of_steps(r#""login", { message = "online_contact" }"#),
        "step 2: is for a contact, but the roster is not fetched; put \"roster\" before it"
    );
}

#[test]
fn steps_in_rooms_come_after_a_join() {
    for step in ["\"room_message\"", "\"room_leave\"", "\"room_presence\"", "{ room_nick = \"x\" }"] {
        let name = step.trim_matches(['{', ' ', '"']).split('"').next().unwrap_or_default();
        let name = name.split(' ').next().unwrap_or_default();
        let sentence = format!("step 2: {name} comes before a join; put \"room_join\" before it");
        assert_eq!(of_steps(&format!("\"login\", {step}")), sentence);
        assert_eq!(of_steps(&format!("\"login\", {{ room_join = 1 }}, {step}")), "");
    }
    assert_eq!(
        of_steps("{ room_join = 1 }"),
        "step 1: room_join comes before the login; put \"login\" before it"
    );
    assert_eq!(
        of_steps("\"login\", { room_join = \"{var:x}\" }"),
        "step 2: the variable \"x\" is never set; set it before, such as with \"set\""
    );
    assert_eq!(
        of_steps("\"login\", { room_join = 1 }, \"disconnect\", \"login\", \"room_leave\""),
        "step 5: room_leave comes before a join; put \"room_join\" before it"
    );
}

#[test]
fn variables_that_are_never_set_are_errors() {
    assert_eq!(
        of_steps(r#""login", { set = { word = "x" } }, { message = { to = "online", text = "{var:wrd}" } }"#),
        "step 3: the variable \"wrd\" is never set; did you mean \"word\"?"
    );
    assert_eq!(
        of_steps(r#""login", { if = { variable = "x", equals = "{var:y}", steps = ["ping"] } }"#),
        "step 2: the variable \"x\" is never set; set it before, such as with \"set\"\nstep 2: the variable \"y\" is never set; did you mean \"x\"?"
    );
    assert_eq!(
        of_steps(
            r#""login", { for_each = { variable = "x", in = "list", steps = [{ message = "{var:x}" }] } }"#
        ),
        "step 2: the variable \"list\" is never set; set it before, such as with \"set\""
    );
    assert_eq!(
        of_steps(
            r#""login", { raw = { xml = "<a/>", wait = "any", keep = { a = "(b)" } } }, { repeat = { times = 2, counter = "i", steps = [{ raw = "{var:a}{var:i}" }] } }"#
        ),
        ""
    );
}

#[test]
fn tables() {
    let lines = "[tables]\nt = [[\"a\"], [\"b\"]]";
    let own = plan(lines, r#""login", { set = { x = { table = "t", line = "own" } } }"#);
    assert_eq!(
        sentences(&own, &large()),
        [
            "session \"s\", step 2: the table \"t\" has 2 lines for 10 connections; add lines or give fewer --connections"
        ]
    );
    let mut plan = plan(lines, r#""login", { set = { x = { table = "t" } } }"#);
    plan.options.tables[0].rows[1].clear();
    assert_eq!(
        sentences(&plan, &large()),
        [
            "session \"s\", step 2: the variable \"x\" reads column 0 of the table \"t\", which not every line has; columns are counted from 0"
        ]
    );
    plan.options.tables.clear();
    assert_eq!(
        sentences(&plan, &large()),
        ["session \"s\", step 2: the variable \"x\" reads a table that does not exist; add the table"]
    );
}

#[test]
fn bounce_needs_an_even_number_of_accounts() {
    let odd = plan("[accounts]\ncount = 11", r#""login", "bounce""#);
    assert_eq!(
        sentences(&odd, &large()),
        ["session \"s\", step 2: bounce requires pairs of accounts and 11 is odd; give --count 12"]
    );
    let arguments = PlanOverrides { connections: Some(1), ..PlanOverrides::default() };
    let (plan, _) = named("flood", &arguments).unwrap();
    assert_eq!(
        sentences(&plan, &large()),
        ["session \"pair\", step 4: bounce requires pairs and 1 connections is odd; give --connections 2"]
    );
}

#[test]
fn anonymous_users() {
    let lines = "[accounts]\nanonymous = true";
    let online =
        plan(lines, r#""login", { message = "online" }, { message = "server" }, { message = "a@b" }"#);
    assert_eq!(
        sentences(&online, &large()),
        ["session \"s\", step 2: is for another user, but anonymous users have no names; give accounts \
             or an address"]
    );
    assert_eq!(
        sentences(&plan(lines, r#""login", "bounce""#), &large()),
        ["session \"s\", step 2: bounce requires users with names; give accounts that are not anonymous"]
    );
    assert_eq!(
        sentences(&plan(lines, r#"{ login = "PLAIN" }"#), &large()),
        ["anonymous users can log in only with ANONYMOUS; give --mechanism ANONYMOUS, or accounts"]
    );
}

#[test]
fn mechanisms_and_tls() {
    assert_eq!(
        of_steps(r#"{ login = "scram-sha1" }"#),
        "unknown SASL mechanism \"scram-sha1\"; did you mean \"SCRAM-SHA-1\"?"
    );
    assert_eq!(
        of_steps(r#"{ login = "X-OAUTH2" }"#),
        "unknown SASL mechanism \"X-OAUTH2\"; known are SCRAM-SHA-512-PLUS, SCRAM-SHA-256-PLUS, SCRAM-SHA-1-PLUS, SCRAM-SHA-512, SCRAM-SHA-256, SCRAM-SHA-1, PLAIN, EXTERNAL, ANONYMOUS"
    );
    assert_eq!(
        of_plain(r#"{ login = "EXTERNAL" }"#),
        "EXTERNAL requires a client certificate; give --cert FILE and --key FILE\nEXTERNAL requires TLS; give \
         --security starttls or --security direct"
    );
    assert_eq!(
        of_plain(r#"{ login = ["SCRAM-SHA-1-PLUS"] }"#),
        "SCRAM-SHA-1-PLUS requires TLS; give --security starttls or --security direct"
    );
    assert_eq!(of_steps(r#"{ login = ["SCRAM-SHA-1-PLUS", "SCRAM-SHA-1"] }"#), "");
    assert_eq!(of_steps(r#""connect", "starttls", { authenticate = "SCRAM-SHA-1-PLUS" }"#), "");
    let mut half = plan("[target]\nsecurity = \"direct\"", r#"{ login = "EXTERNAL" }"#);
    half.target.tls.certificate_pem = Some("x".to_owned());
    assert_eq!(sentences(&half, &large()), ["the client certificate has no key; give --key too"]);
    half.target.tls.key_pem = half.target.tls.certificate_pem.take();
    assert_eq!(sentences(&half, &large())[0], "the client key has no certificate; give --cert too");
}

#[test]
fn targets_and_sources() {
    let mut plan = plan("", "\"login\"");
    plan.target.sources = vec!["127.0.0.2".parse().unwrap(), "::1".parse().unwrap()];
    assert_eq!(
        sentences(&plan, &large()),
        [
            "the source address ::1 cannot reach any of the targets, which are of the other IP version; give sources of the same version"
        ]
    );
    plan.target.addresses.clear();
    plan.target.domain.clear();
    assert_eq!(
        sentences(&plan, &large()),
        [
            "no server is defined to connect to; give --target HOST:PORT",
            "there is no XMPP domain; give --domain, such as --domain localhost",
        ]
    );
}

#[test]
fn accounts_for_all() {
    assert_eq!(
        sentences(&plan("[accounts]\ncount = 4", "\"login\""), &large()),
        ["10 connections need 10 accounts, but there are 4; give --count 10, or --connections 4"]
    );
    let mut arguments = PlanOverrides::default();
    arguments.accounts.csv = Some("a,b\nc,d".to_owned());
    arguments.connections = Some(3);
    let text = "[[phase]]\nrate = 1\nusers = 3\n[[session]]\nsteps = [\"login\"]";
    assert_eq!(
        sentences(&plan_with(text, &arguments), &large()),
        ["3 connections need 3 accounts, but there are 2; add lines to the list, or give --connections 2"]
    );
}

#[test]
fn arrivals() {
    let mut plan = plan("", "\"login\"");
    plan.sessions[0].weight = 0.0;
    assert_eq!(
        sentences(&plan, &large()),
        ["all sessions have weight 0; give at least one a weight above 0"]
    );
    plan.phases[0].weights = Some(vec![0.0]);
    assert_eq!(
        sentences(&plan, &large()),
        ["phase \"phase 1\": has no session with a weight above 0; give at least one a weight"]
    );
    plan.phases[0].weights = Some(vec![1.0]);
    plan.phases[0].max_users = None;
    assert_eq!(
        sentences(&plan, &large()),
        ["phase \"phase 1\": would never end; add a duration, or a rate and a number of users"]
    );
    plan.phases.clear();
    assert_eq!(
        sentences(&plan, &large()),
        ["the plan has no phase, so no users arrive; add one with a rate"]
    );
    plan.starts.push(crate::plan::UserStart { at_ms: 0, session: 1 });
    assert_eq!(
        sentences(&plan, &large()),
        ["a single user starts with a session that does not exist; name an existing one"]
    );
    plan.sessions.clear();
    assert_eq!(sentences(&plan, &large()), ["the plan has no session; add one"]);
}

#[test]
fn unavailable_steps_are_refused() {
    assert_eq!(of_steps(""), "session \"s\": has no steps; add at least a login");
    let mut plan = plan("", r#""login", { transaction = { name = "t", steps = ["ping"] } }"#);
    plan.transactions.clear();
    assert_eq!(
        sentences(&plan, &large()),
        ["session \"s\", step 2: there is no transaction with the number 0; name it in the plan"]
    );
}

#[test]
fn runs_without_an_end_are_refused() {
    let endless = [
        r#""login", { meanwhile = { do = [{ every = "1s", ping = true }] } }"#,
        r#""login", "bounce""#,
        r#""login", { transaction = { name = "t", steps = [{ repeat = { steps = ["ping"] } }] } }"#,
    ];
    for steps in endless {
        let mut plan = plan("", steps);
        assert_eq!(sentences(&plan, &large()), Vec::<String>::new(), "{steps}");
        plan.options.hold_ms = None;
        assert_eq!(
            sentences(&plan, &large()),
            ["session \"s\": lasts until the run ends, and nothing ends the run; give --hold or \
                 --duration, such as --hold 1m"]
        );
        plan.options.duration_ms = Some(1);
        assert_eq!(sentences(&plan, &large()), Vec::<String>::new(), "{steps}");
    }
}

fn sized(connections: u32) -> LoadPlan {
    let arguments = PlanOverrides { connections: Some(connections), ..PlanOverrides::default() };
    named("idle", &arguments).unwrap().0
}

#[test]
fn too_few_local_ports_is_an_error() {
    let mut plan = sized(100_000);
    assert_eq!(
        sentences(&plan, &small()),
        [
            "100000 connections need more than the 28232 available ports (28232 for each of 1 source address and 1 target); give --source 127.0.0.2-127.0.0.5, or fewer --connections"
        ]
    );
    plan.target.sources = crate::plan::sources("127.0.0.2-127.0.0.5").unwrap();
    assert_eq!(sentences(&plan, &small()), Vec::<String>::new());
    plan.target.sources.clear();
    plan.target.addresses = vec!["192.0.2.1:5222".parse().unwrap(), "192.0.2.2:5222".parse().unwrap()];
    assert_eq!(
        sentences(&plan, &small()),
        ["100000 connections need more than the 56464 available ports (28232 for each of 1 source \
             address and 2 targets); give --source with 2 addresses of this machine, or add machines (--listen), or fewer --connections"]
    );
}

#[test]
fn too_little_memory_is_an_error() {
    let machine = MachineCapacity { memory: 100_000_000, ..small() };
    assert_eq!(sentences(&sized(10_000), &machine), Vec::<String>::new());
    let sentence = |plan: &LoadPlan| sentences(plan, &machine).join("\n");
    let mut plan = sized(20_000);
    assert_eq!(
        sentence(&plan),
        "20000 connections need about 184 MB of memory and 100 MB are free; at most 10850 fit here: give \
         fewer --connections, or add machines (--listen)"
    );
    plan.target.security = TransportSecurity::Direct;
    assert!(sentence(&plan).starts_with("20000 connections need about 256 MB"), "{}", sentence(&plan));
}

#[test]
fn too_few_open_files_is_an_error() {
    assert_eq!(
        sentences(&sized(10), &MachineCapacity { files: 64, ..small() }),
        ["a process can open only 64 files, too few for a worker; raise the limit with: ulimit -n 20000"]
    );
    let few = MachineCapacity { files: 1_024, memory: u64::MAX, ..large() };
    let mut plan = sized(1_000_000);
    plan.target.sources = crate::plan::sources("127.0.0.2-127.0.0.60").unwrap();
    assert_eq!(
        sentences(&plan, &few),
        [
            "1000000 connections need 1083 processes with 1024 open files each, and the limit is 256 processes; raise the limit of open files (ulimit -n 20000), or give fewer --connections"
        ]
    );
}

#[test]
fn workers() {
    let workers = |plan: &LoadPlan, machine: &MachineCapacity| {
        let workers = workers_needed(plan, machine);
        (workers.count, workers.reason)
    };
    assert_eq!(workers(&sized(19_000), &small()), (1, "1 process for 19000 connections".to_owned()));
    assert_eq!(
        workers(&sized(19_001), &small()),
        (2, "2 processes for 19001 connections, 19000 in each at most".to_owned())
    );
    assert_eq!(
        workers(&sized(5_000), &MachineCapacity { files: 1_100, ..small() }),
        (5, "5 processes for 5000 connections, 1000 in each by the limit of open files".to_owned())
    );
    let (flood, _) = named("flood", &PlanOverrides::default()).unwrap();
    assert_eq!(workers(&flood, &small()).0, 1);
    let eight = MachineCapacity { cores: 8, ..large() };
    assert_eq!(
        workers(&flood, &eight),
        (8, "8 processes, since a closed loop uses all available CPU".to_owned())
    );
    assert_eq!(workers(&flood, &MachineCapacity { server_here: true, ..eight.clone() }).0, 4);
    let busy = PlanOverrides { time_scale: 100.0, ..PlanOverrides::default() };
    let (steady, _) = named("steady", &busy).unwrap();
    assert_eq!(
        workers(&steady, &eight),
        (8, "8 processes for about 9.5 cores of work (50000 logins and 200000 stanzas a second)".to_owned())
    );
}
