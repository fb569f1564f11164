//! Tests of the Helm chart without a Kubernetes: helm renders it, its schemas validate the result, and the programs accept the
//! configurations in it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use test_databases::{NatsServer, Server, ServerKind};
use throng_e2e::clients::install_clients;
use throng_e2e::{TempFolder, describe_output};

use crate::{assert_valid, output_of, root};

const HELM: &str = "/usr/local/lib/throng-tests-helm/helm";
const NATS: &str = "/usr/local/lib/throng-tests-nats/nats-server";

/// Versions of Kubernetes: the oldest that the chart permits and that has schemas, and a newer one.
const KUBERNETES: [&str; 2] = ["1.25.0", "1.34.0"];

fn helm(kubernetes: &str, settings: &[&str]) -> Command {
    let mut command = Command::new(HELM);
    command.args(["template", "chat", "--namespace", "chat", "--kube-version", kubernetes]);
    command.arg(root().join("contrib/helm/throng"));
    settings.iter().for_each(|setting| {
        command.args(["--set", setting]);
    });
    command
}

fn render(settings: &[&str]) -> String {
    output_of(&mut helm(KUBERNETES[1], settings))
}

/// The text of a file in a rendered ConfigMap.
fn file_in(rendered: &str, name: &str) -> String {
    let key = format!("  {name}: |\n");
    let rest = rendered.split_once(&key).unwrap_or_else(|| panic!("no {name} in {rendered}")).1;
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| line.strip_prefix("    ").unwrap_or_default().to_owned() + "\n").collect()
}

fn count(rendered: &str, line: &str) -> usize {
    rendered.lines().filter(|one| *one == line).count()
}

#[test]
fn the_schemas_of_kubernetes_accept_the_chart_with_and_without_its_own_servers() {
    let folder = TempFolder::new("helm-schemas");
    output_of(Command::new(HELM).args(["lint", "--strict"]).arg(root().join("contrib/helm/throng")));
    let settings: [&[&str]; 2] = [
        &["replicas=5"],
        &[
            "nats.enabled=false",
            "nats.urls={tls://nats-1.example.org}",
            "postgres.enabled=false",
            "postgres.secret=database",
            "tls.secret=certificate",
            "service.type=LoadBalancer",
        ],
    ];
    for (kubernetes, settings) in KUBERNETES.iter().flat_map(|one| settings.map(|settings| (one, settings))) {
        let path: PathBuf = folder.join("rendered.yaml");
        let rendered = output_of(&mut helm(kubernetes, settings));
        fs::write(&path, &rendered).expect("a file");
        let sets = if settings.len() == 1 { 3 } else { 1 };
        assert_eq!(count(&rendered, "kind: StatefulSet"), sets, "{settings:?}");
        let mut validate = Command::new(install_clients().join("kubernetes/bin/kubernetes-validate"));
        let minor = kubernetes.trim_end_matches(".0");
        output_of(validate.args(["--strict", "--quiet", "-k", minor]).arg(&path).stdin(Stdio::null()));
    }
}

#[test]
fn the_configurations_in_the_chart_are_valid_for_three_nodes_and_three_servers() {
    let rendered = render(&["configuration=[limits]\nstanza_bytes = 100000"]);
    assert_eq!(count(&rendered, "  replicas: 3"), 2, "nodes and NATS");
    // With the addresses of servers that exist; everything else as it is rendered.
    let (database, nats) = (Server::start(ServerKind::Postgres), NatsServer::start());
    let mut configuration = file_in(&rendered, "throng.toml");
    for number in 0..3 {
        let name = format!("nats://chat-nats-{number}.chat-nats:4222");
        assert!(configuration.contains(&name), "{configuration}");
        configuration = configuration.replace(&name, &nats.url());
    }
    let folder = TempFolder::new("helm-configuration");
    let environment =
        [("THRONG__STORAGE__URL", &*database.default_url()), ("THRONG__CLUSTER__NODE", "chat-0")];
    assert_valid(&configuration, &folder, &environment);

    let path = folder.join("nats.conf");
    fs::write(&path, file_in(&rendered, "nats.conf")).expect("a file");
    let mut check = Command::new(NATS);
    output_of(check.arg("-t").arg("--config").arg(&path).env("POD_NAME", "chat-nats-0"));
}

#[test]
fn values_that_cannot_work_are_refused_with_the_reason() {
    for (settings, reason) in [
        (&["nats.enabled=false"][..], "set nats.urls, or nats.enabled"),
        (&["postgres.enabled=false"], "set postgres.secret, or postgres.enabled"),
        (&["replicas=many"], "replicas"),
    ] {
        let output = helm(KUBERNETES[1], settings).output().expect("helm");
        let said = describe_output(&output);
        assert!(!output.status.success() && said.contains(reason), "{settings:?}: {said}");
    }
}
