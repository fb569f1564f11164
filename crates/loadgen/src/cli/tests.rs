//! Tests of the command line as users type it.

use clap::{CommandFactory, Parser};

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    load: LoadCommand,
}

fn load(words: &str) -> Result<LoadCommand, String> {
    let words = std::iter::once("load").chain(words.split_ascii_whitespace());
    Line::try_parse_from(words).map(|line| line.load).map_err(|error| error.to_string())
}

#[test]
fn flags_do_not_contradict_one_another() {
    Line::command().debug_assert();
}

#[test]
fn the_first_word_is_a_plan_unless_it_is_a_command() {
    let found = load("tigase-30k --target a:1 --target b:2 -n 500").unwrap();
    assert!(found.word.is_none());
    assert_eq!(found.run.plan.as_deref(), Some("tigase-30k"));
    assert_eq!(found.run.shape.target, ["a:1", "b:2"]);
    assert_eq!(found.run.shape.connections, Some(500));
    let found = load("./worker").unwrap();
    assert_eq!(found.run.plan.as_deref(), Some("./worker"));
    // Similar to a subcommand, but a plan.
    assert_eq!(load("workers").unwrap().run.plan.as_deref(), Some("workers"));
    let found = load("worker --join a:1 --token t").unwrap();
    assert!(
        matches!(found.word, Some(LoadSubcommand::Worker(WorkerArgs { join, token, .. })) if join == "a:1" && token == "t")
    );
    let found = load("capacity steady --target a:1 --by messages --delivery-ms 50").unwrap();
    let Some(LoadSubcommand::Capacity(args)) = found.word else { panic!("not capacity") };
    assert_eq!(
        (args.by, args.delivery_ms, args.run.plan.as_deref()),
        (CapacityTarget::Messages, 50.0, Some("steady"))
    );
    assert!(matches!(load("compare a b").unwrap().word, Some(LoadSubcommand::Compare { .. })));
    assert!(load("--list").unwrap().list);
}

#[test]
fn flags_that_depend_on_each_other_are_required_together() {
    for words in [
        "x --cert a",
        "x --key a",
        "x --expect 2",
        "x --children",
        "x --users f --user-prefix u",
        "x --connections 0",
        "x --duration soon",
        "x --security maybe",
        "worker --join a:1",
        "compare a",
        "x y",
    ] {
        assert!(load(words).is_err(), "{words}");
    }
}

#[test]
fn several_values_are_lists() {
    let found = load("x --pid 1,2 --pid 3 --mechanism PLAIN,SCRAM-SHA-1 --source a --source b").unwrap().run;
    assert_eq!(found.monitor.pid, [1, 2, 3]);
    assert_eq!(found.shape.mechanism, ["PLAIN", "SCRAM-SHA-1"]);
    assert_eq!(found.shape.source, ["a", "b"]);
}

#[test]
fn a_missing_or_unknown_plan_is_refused() {
    let refused = |words: &str| match super::plan::read(&load(words).unwrap().run) {
        Err(CommandFailure::Usage(error)) => error.to_string(),
        _ => panic!("{words}"),
    };
    assert!(refused("--target 127.0.0.1").starts_with("no workload was given"));
    assert!(refused("tigase-30").contains("unknown workload \"tigase-30\""));
    assert!(refused("not-there.toml").contains("not-there.toml cannot be read"));
    assert!(refused("idle --target 127.0.0.1:x").contains("--target"));
    assert!(refused("idle --time-scale 0").contains("--time-scale 0 is invalid"));
    assert!(refused("idle --password-file not-there").contains("--password-file not-there cannot be read"));
}

#[test]
fn failures_are_for_single_runs_and_need_a_time() {
    let found = load("x --chaos kill=4711@1m --chaos run=start@90s").unwrap().run.failures;
    assert_eq!(found.chaos.iter().map(|action| action.at_ms).collect::<Vec<_>>(), [60_000, 90_000]);
    assert!(found.fails_over() && found.refuse("capacity").is_err());
    let (none, only) = (load("x").unwrap().run.failures, load("x --failover").unwrap().run.failures);
    assert!(!none.fails_over() && none.refuse("capacity").is_ok() && only.fails_over());
    let Err(error) = load("x --chaos kill=4711") else { panic!("a time is missing") };
    assert!(error.contains("is not kill=PID@TIME or run=COMMAND@TIME"), "{error}");
}

#[test]
fn the_old_name_of_security_is_refused_with_the_new_one() {
    let Err(error) = load("x --tls starttls") else { panic!("--tls is taken") };
    assert!(error.to_string().contains("use --security starttls"), "{error}");
    for (word, security) in [
        ("auto", TransportSecurity::Auto),
        ("direct", TransportSecurity::Direct),
        ("tls", TransportSecurity::Direct),
    ] {
        assert_eq!(load(&format!("x --security {word}")).unwrap().run.shape.security, Some(security));
    }
}

#[test]
fn the_old_flags_of_a_worker_are_refused_with_the_new_ones() {
    for (old, new) in [("--patience 60s", "use --retry-for 60s"), ("--stay", "use --rejoin")] {
        let Err(error) = load(&format!("worker --join a:1 --token t {old}")) else {
            panic!("{old} is accepted")
        };
        assert!(error.contains(new), "{error}");
    }
    let found = load("worker --join a:1 --token t --retry-for 60s --rejoin").unwrap();
    assert!(matches!(
        found.word,
        Some(LoadSubcommand::Worker(WorkerArgs { retry_for: 60_000, rejoin: true, .. }))
    ));
}

#[test]
fn no_help_text_is_broken_by_a_word_that_clap_takes_for_its_own() {
    let mut line = Line::command();
    let help = line.render_long_help().to_string();
    assert!(help.contains("the letter n in braces is replaced by the number"), "{help}");
    assert!(help.contains("1  the run failed"), "{help}");
    for argument in line.get_arguments().filter(|argument| !argument.is_hide_set()) {
        let text = argument.get_help().map(ToString::to_string).unwrap_or_default();
        assert!(!text.is_empty() && !text.contains("{n}"), "--{}: {text:?}", argument.get_id());
    }
}
