//! Tests of what `contrib` has for operators, and of `make cluster`: the unit, the Debian package, the container image, the Helm chart.
//!
//! Not implemented: a start by systemd as process 1, a build of the image, an installation of the chart in a Kubernetes.
//!
//! # Pitfalls
//!
//! As for all tests here, run `cargo build -p throng-server -p throng-xtask` first.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "the lints exempt functions marked as tests, not what those call"
)]

mod container;
mod debian;
mod helm;
mod make_cluster;
mod service_manager;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use throng_e2e::{TempFolder, describe_output, ports, program};

/// Root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Output of a command that must succeed.
fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", describe_output(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_page_for_operators_explains_exactly_the_alarms_that_exist() {
    let rules = read("contrib/prometheus/alerts.yml");
    let named: BTreeSet<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let page = read("docs/operations.md");
    let explained: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| Throng"))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, _)| name)
        .collect();
    let explained: BTreeSet<String> = explained.iter().map(|name| format!("Throng{name}")).collect();
    assert_eq!(named.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(), explained);
    assert!(!named.is_empty());
}

/// Asserts that `throng check` accepts this configuration, with free ports and a folder that is writable here.
fn assert_valid(configuration: &str, folder: &TempFolder, environment: &[(&str, &str)]) {
    let with_free_port = |line: &str| {
        if line.starts_with("address = \"0.0.0.0:") {
            let [port] = ports::free();
            return format!("address = \"127.0.0.1:{port}\"");
        }
        line.to_owned()
    };
    let text = configuration.lines().map(with_free_port).collect::<Vec<_>>().join("\n");
    let path = folder.join("throng.toml");
    fs::write(&path, text).expect("a configuration");
    let mut check = program(None, &["check", "--config"]);
    check.arg(&path).env("THRONG__DATA_DIR", folder.join("data"));
    output_of(check.envs(environment.iter().copied()));
}
