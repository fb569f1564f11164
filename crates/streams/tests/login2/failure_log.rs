//! Tests of the log line of a failed login: it names the account wherever the account is known to exist.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;

/// Records the fields `user` and `condition` of failed logins.
#[derive(Clone, Default)]
struct FailureLog(Arc<Mutex<Vec<[String; 2]>>>);

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
        metadata.target() == throng_core::session_log::TARGET
    }
    fn event(&self, event: &Event<'_>) {
        let mut fields = FailureFields::default();
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_failure_after_the_proof_names_the_account() {
    let log = FailureLog::default();
    let _default = tracing::subscriber::set_default(log.clone());
    let wire = node().await;
    let juliet = wire.address("juliet");
    let disabled = async |disabled| {
        wire.stores.accounts.set_disabled(juliet.as_ref(), disabled).await.unwrap();
    };

    let changed = juliet.clone();
    let change = move |stores: &store::Stores| {
        let mut change = stores.accounts.set_credentials(changed.as_ref(), b"other");
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(change.as_mut().poll(&mut cx).is_ready());
    };

    // The first failure of an address is logged at once.
    let attempt = async |address: &str, request: String| {
        let mut client = wire.connect_from(address);
        shaken(&mut client).await.unwrap();
        let condition = fails(&mut client, &request).await;
        let mut lines = log.0.lock().unwrap();
        assert_eq!(lines.len(), 1, "{address}: {lines:?}");
        let [user, logged] = lines.remove(0);
        assert_eq!(logged, condition, "{address}");
        (user, condition)
    };
    let juliet_failed = |condition: &str| ("juliet@example.com".to_owned(), condition.to_owned());
    let wrong = attempt("192.0.2.1", plain("juliet", "wrong", "")).await;
    assert_eq!(wrong, juliet_failed("not-authorized"), "before the proof");
    let unknown = attempt("192.0.2.2", plain("nobody", "wrong", "")).await;
    assert_eq!(unknown.0, "", "people type passwords into the name field");
    disabled(true).await;
    let refused = attempt("192.0.2.3", plain("juliet", PASSWORD, "")).await;
    assert_eq!(refused, juliet_failed("account-disabled"), "disabled before the login");
    disabled(false).await;
    wire.after_proof(change);
    let revoked = attempt("192.0.2.4", plain("juliet", PASSWORD, BIND)).await;
    assert_eq!(revoked, juliet_failed("not-authorized"), "changed between the proof and the session");
}
