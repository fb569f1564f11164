//! Test of the log line of a failed login: it names the account wherever the account is known to exist.
//!
//! A program of its own: `tracing` caches for the whole process whether a line is enabled.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::fmt::Debug;
use std::sync::mpsc;

use feature_api::feature::Feature;
use sasl::encoding;
use testkit::server::{PASSWORD, StreamClient, TestServerConfig, TlsClientSettings};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Sends the fields `user` and `condition` of failed logins.
struct FailureLog(mpsc::SyncSender<[String; 2]>);

#[derive(Default)]
struct FailureFields([String; 2]);

impl Visit for FailureFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "user" => value.clone_into(&mut self.0[0]),
            "condition" => value.clone_into(&mut self.0[1]),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl Subscriber for FailureLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == access::session_log::TARGET
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = FailureFields::default();
        event.record(&mut fields);
        let _ = self.0.send(fields.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

static MODULES: [Feature; 2] =
    [Feature { name: "sasl2", ..Feature::EMPTY }, Feature { name: "bind2", ..Feature::EMPTY }];

/// Logs in with SASL2 and binds; returns the condition of the failure.
async fn failed_login(mut client: StreamClient, user: &str, password: &str) -> String {
    client.open().await;
    client.start_tls(&TlsClientSettings::default()).await;
    client.open().await;
    let initial = encoding::encode_challenge(&sasl::client::plain(None, user, password));
    client
        .send(format!(
            "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='PLAIN'><initial-response>{initial}</initial-response>\
             <bind xmlns='urn:xmpp:bind:0'/></authenticate>"
        ))
        .await;
    client.element().await.condition().expect("a failure")
}

#[tokio::test]
async fn a_failure_after_the_proof_names_the_account() {
    let (sender, lines) = mpsc::sync_channel(8);
    let _default = tracing::subscriber::set_default(FailureLog(sender));
    let server =
        TestServerConfig { features: MODULES.iter().collect(), ..TestServerConfig::default() }.start();
    server.create_user("juliet").await;
    let juliet = server.address("juliet");
    let disabled = async |disabled| {
        server.stores.accounts.set_disabled(juliet.as_ref(), disabled).await.unwrap();
    };

    let changed = juliet.clone();
    let change = move |stores: &store::Stores| {
        let mut change = stores.accounts.set_credentials(changed.as_ref(), b"other");
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(change.as_mut().poll(&mut cx).is_ready());
    };

    // The first failure of an address is logged at once.
    let attempt = async |address: &str, user: &str, password: &str| {
        let condition = failed_login(server.connect_from(address), user, password).await;
        let [user, logged] = lines.try_recv().expect("a line at once");
        assert_eq!((logged, lines.try_recv().ok()), (condition.clone(), None), "{address}");
        (user, condition)
    };
    let juliet_failed = |condition: &str| ("juliet@example.com".to_owned(), condition.to_owned());
    let wrong = attempt("192.0.2.1", "juliet", "wrong").await;
    assert_eq!(wrong, juliet_failed("not-authorized"), "before the proof");
    let unknown = attempt("192.0.2.2", "nobody", "wrong").await;
    assert_eq!(unknown.0, "", "people type passwords into the name field");
    disabled(true).await;
    let refused = attempt("192.0.2.3", "juliet", PASSWORD).await;
    assert_eq!(refused, juliet_failed("account-disabled"), "disabled before the login");
    disabled(false).await;
    server.after_proof(change);
    let revoked = attempt("192.0.2.4", "juliet", PASSWORD).await;
    assert_eq!(revoked, juliet_failed("not-authorized"), "changed between the proof and the session");
}
