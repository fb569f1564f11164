//! TLS and credentials, on real NATS servers.
#![allow(clippy::unwrap_used, reason = "the lints exempt functions marked as tests, not what those call")]

mod harness;

use std::fs;
use std::path::PathBuf;

use base::Secret;
use harness::{Nodes, deployment, runtime, settings, start};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use test_databases::{NatsServer, NatsSetup};
use throng_cluster_nats::{NatsCluster, NatsCredentials, NatsError, NatsSettings, NatsTls, check_connection};

const SEED: &str = "SUAAIUPEALTFAGK3JDCEUMLMCVO72UHYW6G5UUVRWKVXEHHX5LV4YJELOY";
const PUBLIC_KEY: &str = "UA4AZQQZBL4PZQSEW7EDA5BFLDT57TGQQCR4Q56Q6TLWN32RF2QDIBBV";

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate for this name and its key.
    fn certificate(&self, name: &str) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        [params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem()]
    }
}

/// Files that are removed with the test.
struct Files(PathBuf);

impl Files {
    fn new(test: &str) -> Files {
        let directory = std::env::temp_dir().join(format!("throng-nats-{}-{test}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Files(directory)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn check(settings: &NatsSettings) -> Result<(), NatsError> {
    runtime().block_on(check_connection(settings))
}

/// Two nodes with these settings know each other.
fn joins(change: impl Fn(NatsSettings) -> NatsSettings, url: &str) {
    let deployment = deployment();
    let nodes = ["a", "b"].map(|node| change(settings(url, node, deployment)));
    assert!(check(&nodes[0]).is_ok(), "{:?}", check(&nodes[0]));
    let nodes = Nodes(nodes.map(start).into());
    nodes.wait_until_connected();
}

#[test]
fn certificates_of_servers_and_of_nodes_are_verified() {
    let (authority, other) = (Authority::new(), Authority::new());
    let files = Files::new("tls");
    let setup = NatsSetup {
        certificate: Some(authority.certificate("127.0.0.1")),
        client_authorities: Some(authority.pem.clone()),
        ..NatsSetup::default()
    };
    let server = NatsServer::start_with(&setup);
    let write_pair = |name: &str, authority: &Authority| {
        let [certificate, key] = authority.certificate("node");
        Some((files.write(name, &certificate), files.write(&format!("{name}.key"), &key)))
    };
    let tls = NatsTls {
        required: true,
        authorities: Some(files.write("authority.pem", &authority.pem)),
        certificate: write_pair("node.pem", &authority),
    };
    joins(|settings| NatsSettings { tls: tls.clone(), ..settings }, &server.url());
    joins(|settings| NatsSettings { tls: tls.clone(), ..settings }, &server.url().replace("nats:", "tls:"));
    let with = |tls: NatsTls| check(&NatsSettings { tls, ..settings(&server.url(), "a", 1) });
    let of_other = files.write("other.pem", &other.pem);
    assert!(with(NatsTls { authorities: Some(of_other), ..tls.clone() }).is_err(), "another authority");
    assert!(with(NatsTls { authorities: None, ..tls.clone() }).is_err(), "the authorities of the system");
    assert!(with(NatsTls { certificate: None, ..tls.clone() }).is_err(), "no certificate of the node");
    let foreign = write_pair("foreign.pem", &other);
    assert!(
        with(NatsTls { certificate: foreign, ..tls.clone() }).is_err(),
        "a certificate of another authority"
    );
    let missing = Some(files.0.join("missing.pem"));
    let error = with(NatsTls { authorities: missing, ..tls }).unwrap_err().to_string();
    assert!(error.starts_with("cannot connect to NATS at 127.0.0.1:"), "{error}");
}

#[test]
fn a_certificate_for_another_name_is_refused_and_so_is_a_server_without_tls() {
    let authority = Authority::new();
    let files = Files::new("names");
    let certificate = Some(authority.certificate("nats.example"));
    let server = NatsServer::start_with(&NatsSetup { certificate, ..NatsSetup::default() });
    let authorities = Some(files.write("authority.pem", &authority.pem));
    let tls = NatsTls { required: true, authorities, certificate: None };
    let other_name = NatsSettings { tls: tls.clone(), ..settings(&server.url(), "a", 1) };
    assert!(check(&other_name).is_err());
    let plain = NatsSettings { tls, ..settings(&harness::shared_server().url(), "a", 1) };
    assert!(check(&plain).is_err(), "a password must not be sent in the clear");
    let plain = harness::shared_server().url();
    let servers = vec!["tls://127.0.0.1:1".to_owned(), plain];
    assert!(check(&NatsSettings { servers, ..settings("", "a", 1) }).is_err(), "one URL requires TLS");
}

/// A server with users; credentials that it accepts, and ones that it refuses.
fn accepts(configuration: &str, right: &NatsCredentials, wrong: &[NatsCredentials]) {
    let setup = NatsSetup { configuration: configuration.to_owned(), ..NatsSetup::default() };
    let server = NatsServer::start_with(&setup);
    let with = |credentials: &NatsCredentials| {
        let credentials = credentials.clone();
        move |settings| NatsSettings { credentials: credentials.clone(), ..settings }
    };
    joins(with(right), &server.url());
    for wrong in wrong.iter().chain([&NatsCredentials::None]) {
        let refused = check(&with(wrong)(settings(&server.url(), "a", 1)));
        assert!(matches!(refused, Err(NatsError::Refused)), "{refused:?}");
    }
}

#[test]
fn a_user_with_a_password_and_a_token_are_accepted_also_in_urls() {
    let user = |password: &str| NatsCredentials::UserPassword("throng".to_owned(), password.into());
    let users = "authorization { users: [ { user: throng, password: \"pass word\" } ] }";
    accepts(users, &user("pass word"), &[user("wrong")]);
    let token = |token: &str| NatsCredentials::Token(token.into());
    accepts("authorization { token: \"to ken\" }", &token("to ken"), &[token("wrong")]);
    let setup = NatsSetup { configuration: users.to_owned(), ..NatsSetup::default() };
    let server = NatsServer::start_with(&setup);
    let url = server.url().replace("nats://", "nats://throng:pass%20word@");
    joins(|settings| settings, &url);
    let url = server.url().replace("nats://", "nats://throng:wrong@");
    assert!(matches!(check(&settings(&url, "a", 1)), Err(NatsError::Refused)));
    let setup =
        NatsSetup { configuration: "authorization { token: abc }".to_owned(), ..NatsSetup::default() };
    let server = NatsServer::start_with(&setup);
    joins(|settings| settings, &server.url().replace("nats://", "nats://abc@"));
}

#[test]
fn an_nkey_and_a_credentials_file_are_accepted() {
    let users = format!("authorization {{ users: [ {{ nkey: {PUBLIC_KEY} }} ] }}");
    let file = include_str!("credentials/node.creds");
    let own_seed = file.lines().find(|line| line.starts_with("SU")).unwrap();
    let seed = |seed: &str| NatsCredentials::NkeySeed(Secret::from(seed));
    accepts(&users, &seed(SEED), &[seed(own_seed)]);
    let credentials = NatsCredentials::CredentialsFile(file.into());
    let forged = NatsCredentials::CredentialsFile(file.replace(own_seed, SEED).into());
    accepts(include_str!("credentials/operator.conf"), &credentials, &[forged, seed(SEED)]);
}

#[test]
fn what_nats_lacks_is_named() {
    let setup = NatsSetup { configuration: "max_payload: 65536\n".to_owned(), ..NatsSetup::default() };
    let small = NatsServer::start_with(&setup);
    let error = check(&settings(&small.url(), "a", 1)).unwrap_err().to_string();
    assert!(error.contains("max_payload of the NATS server is 65536"), "{error}");
    let setup = NatsSetup { configuration: "jetstream: false\n".to_owned(), ..NatsSetup::default() };
    let without = NatsServer::start_with(&setup);
    let error = check(&settings(&without.url(), "a", 1)).unwrap_err().to_string();
    assert!(error.contains("nats-server -js"), "{error}");
    let gone = settings("nats://127.0.0.1:1", "a", 1);
    let error = check(&gone).unwrap_err().to_string();
    assert!(error.starts_with("cannot connect to NATS at 127.0.0.1:1:"), "{error}");
    let invalid = NatsCluster::start(
        settings("http://x", "a", 1),
        std::sync::Arc::new(base::clock::SystemClock::new()),
        std::sync::Arc::new(harness::TokioSpawner(runtime().handle().clone())),
    );
    assert!(matches!(invalid.err(), Some(NatsError::Url(1))));
}

#[test]
fn any_of_several_servers_is_used() {
    let deployment = deployment();
    let url = harness::shared_server().url();
    let several = |node| NatsSettings {
        servers: vec!["nats://127.0.0.1:1".to_owned(), url.clone(), "nats://127.0.0.1:2".to_owned()],
        ..settings(&url, node, deployment)
    };
    let nodes = Nodes(["a", "b"].map(|node| start(several(node))).into());
    nodes.wait_until_connected();
}
