//! Nodes that connect to NATS with TLS and credentials: they form a cluster, and one whose credentials are refused says so.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use test_databases::{NatsServer, NatsSetup};
use throng_e2e::{describe_output, wait};

use super::{Cluster, chat};

/// The PEM text of an authority, and a certificate of it for 127.0.0.1 with its key.
fn authority_and_certificate() -> (String, [String; 2]) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate").pem();
    (authority, [certificate, key.serialize_pem()])
}

fn users(password: &str) -> String {
    format!("authorization {{ users: [ {{ user: throng, password: \"{password}\" }} ] }}\n")
}

#[test]
fn nodes_meet_over_tls_and_say_that_nats_refuses_their_credentials() {
    let (authority, certificate) = authority_and_certificate();
    let setup = |password| NatsSetup {
        certificate: Some(certificate.clone()),
        configuration: users(password),
        ..NatsSetup::default()
    };
    let files = throng_e2e::TempFolder::new("nats-security");
    let (of_authority, of_password) = (files.join("authority.pem"), files.join("password"));
    fs::write(&of_authority, &authority).expect("a file");
    fs::write(&of_password, "pass word").expect("a file");
    let settings = format!(
        "ca_file = '{}'\nuser = 'throng'\npassword_file = '{}'\n",
        of_authority.display(),
        of_password.display()
    );
    let nats = NatsServer::start_with(&setup("pass word"));
    let mut cluster = Cluster::start_with("nats-security", 2, &["romeo", "juliet"], nats, &settings);
    let checked = describe_output(&cluster.members[0].node.run(&["check"]));
    assert!(checked.contains("the name of this node is node-1"), "{checked}");
    let (mut romeo, mut juliet) = (cluster.login(0, "romeo"), cluster.login(1, "juliet"));
    chat(&mut romeo, &mut juliet, "juliet", "over TLS");
    // The password is changed in NATS only, as one that has expired.
    cluster.nats.stop();
    cluster.nats.configure(&setup("another one"));
    cluster.nats.run();
    for member in &cluster.members {
        wait("the refusal", || (member.metric("throng_cluster_credentials_refused") == "1").then_some(()));
        member.node.wait_for_log("NATS refuses the credentials of this node");
        assert_eq!(member.metric("throng_ready"), "0");
    }
    let checked = cluster.members[0].node.run(&["check"]);
    assert!(!checked.status.success() && describe_output(&checked).contains("NATS refuses the credentials"));
    // A node that is restarted with the right password joins; the other one joins when NATS accepts its own again.
    cluster.nats.stop();
    cluster.nats.configure(&setup("pass word"));
    cluster.nats.run();
    cluster.wait_until_connected();
    assert_eq!(cluster.members[0].metric("throng_cluster_credentials_refused"), "0");
    chat(&mut romeo, &mut juliet, "juliet", "again");
    cluster.members.iter_mut().for_each(|member| member.node.stop_in_order());
}
