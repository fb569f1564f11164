//! Integration tests of the crate as `streams` uses it: server against client, vectors, refusals, hostile input.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]

mod channel;
mod hostile;
mod logins;
mod refusals;
mod stored;
mod tokens;
mod vectors;

use base::Secret;
use sasl::client::{Gs2, ScramClient, ScramKeyCache};
use sasl::{
    ChannelBindingData, Credentials, Decoy, Exchange, ExchangeStep, Failure, FailureReason, Mechanism,
    ScramHash,
};
use throng_sasl as sasl;

/// Enough for a test; the strength of PBKDF2 is not tested here.
const ITERATIONS: u32 = 2;

/// Account and its server.
struct SaslFixture {
    stored: Credentials,
    decoy: Decoy,
    binding: ChannelBindingData,
    offered_plus: bool,
}

/// Result of a login.
#[derive(Debug, PartialEq, Eq)]
struct ExchangeResult {
    step: ExchangeStep,
    reason: Option<FailureReason>,
}

impl SaslFixture {
    /// The account `user` with the password `pencil`, on a stream with both channel bindings.
    fn new() -> SaslFixture {
        SaslFixture {
            stored: Credentials::derive("pencil", ITERATIONS, b"0123456789abcdef").unwrap(),
            decoy: Decoy::new(&Secret::new(*b"server secret"), ITERATIONS),
            binding: ChannelBindingData { exporter: Some(vec![7; 32]), server_end_point: Some(vec![9; 32]) },
            offered_plus: true,
        }
    }

    fn exchange(&self, mechanism: Mechanism) -> Exchange {
        Exchange::new(mechanism, self.offered_plus, self.binding.clone(), sasl::nonce())
    }

    /// Answers one step as `c2s` does: looks up accounts and verifies passwords.
    fn answer(&self, exchange: &mut Exchange, step: ExchangeStep) -> ExchangeStep {
        match step {
            ExchangeStep::NeedCredentials { username } => {
                let found = Some(&self.stored).filter(|_| username == "user");
                exchange.credentials(found, &self.decoy, &format!("{username}@example.org"))
            }
            ExchangeStep::NeedPasswordCheck { username, password } => {
                let password = password.expose_str().unwrap();
                let decoy = self.decoy.credentials(&username);
                let credentials = if username == "user" { &self.stored } else { &decoy };
                exchange.password_checked(credentials.verify_password(password))
            }
            ExchangeStep::NeedTokenCheck { token, .. } => {
                exchange.token_checked(Some("user".to_owned()).filter(|_| token.expose() == b"t0ken"))
            }
            ExchangeStep::NeedCertificate { authzid } => exchange.certificate(match authzid.as_deref() {
                None | Some("user@example.org") => Ok("user".to_owned()),
                Some(_) => Err(Failure::InvalidAuthzid),
            }),
            step => step,
        }
    }

    /// Runs a whole SCRAM login; `tamper` may change the client's final message.
    fn scram_with(
        &self,
        mechanism: Mechanism,
        client: &mut ScramClient,
        tamper: impl FnOnce(String) -> Vec<u8>,
    ) -> ExchangeResult {
        let mut exchange = self.exchange(mechanism);
        let step = exchange.step(Some(&client.client_first()));
        let mut step = self.answer(&mut exchange, step);
        if let ExchangeStep::Challenge(challenge) = &step {
            let last = client.client_final(challenge, None).unwrap();
            step = exchange.step(Some(&tamper(String::from_utf8(last).unwrap())));
        }
        assert!(
            exchange.is_finished() && matches!(step, ExchangeStep::Done { .. } | ExchangeStep::Failed(_)),
            "{step:?}"
        );
        ExchangeResult { step, reason: exchange.reason() }
    }

    fn scram(&self, mechanism: Mechanism, client: &mut ScramClient) -> ExchangeResult {
        self.scram_with(mechanism, client, String::into_bytes)
    }
}

fn failed(reason: FailureReason) -> ExchangeResult {
    ExchangeResult { step: ExchangeStep::Failed(reason.failure()), reason: Some(reason) }
}

fn bound(name: &str, data: &[u8]) -> Gs2 {
    Gs2::Bound { name: name.to_owned(), data: data.to_vec() }
}

fn exporter() -> Gs2 {
    bound(sasl::channel_binding::TLS_EXPORTER, &[7; 32])
}

fn user(gs2: Gs2) -> ScramClient {
    ScramClient::new(ScramHash::Sha256, gs2, "user", "pencil")
}
