//! The crate from outside, as `streams` uses it: server against client, vectors, refusals, hostile input.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]

mod channel;
mod hostile;
mod logins;
mod refusals;
mod stored;
mod tokens;
mod vectors;

use base::Secret;
use sasl::client::{Cache, Gs2, Scram};
use sasl::{Binding, Credentials, Decoy, Exchange, Failure, Hash, Mechanism, Reason, Step};
use throng_sasl as sasl;

/// Enough for a test; what PBKDF2 is worth is not tested here.
const ITERATIONS: u32 = 2;

/// An account and its server.
struct World {
    stored: Credentials,
    decoy: Decoy,
    binding: Binding,
    offered_plus: bool,
}

/// How a login ended.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    step: Step,
    reason: Option<Reason>,
}

impl World {
    /// The account `user` with the password `pencil`, on a stream with both bindings.
    fn new() -> World {
        World {
            stored: Credentials::derive("pencil", ITERATIONS, b"0123456789abcdef").unwrap(),
            decoy: Decoy::new(&Secret::new(*b"server secret"), ITERATIONS),
            binding: Binding { exporter: Some(vec![7; 32]), server_end_point: Some(vec![9; 32]) },
            offered_plus: true,
        }
    }

    fn exchange(&self, mechanism: Mechanism) -> Exchange {
        Exchange::new(mechanism, self.offered_plus, self.binding.clone(), sasl::nonce())
    }

    /// What `c2s` does with one step: looks up accounts and passwords.
    fn answer(&self, exchange: &mut Exchange, step: Step) -> Step {
        match step {
            Step::NeedCredentials { username } => {
                let found = Some(&self.stored).filter(|_| username == "user");
                exchange.credentials(found, &self.decoy, &format!("{username}@example.org"))
            }
            Step::NeedPasswordCheck { username, password } => {
                let password = password.expose_str().unwrap();
                let decoy = self.decoy.credentials(&username);
                let credentials = if username == "user" { &self.stored } else { &decoy };
                exchange.password_checked(credentials.verify_password(password))
            }
            Step::NeedCertificate { authzid } => exchange.certificate(match authzid.as_deref() {
                None | Some("user@example.org") => Ok("user".to_owned()),
                Some(_) => Err(Failure::InvalidAuthzid),
            }),
            step => step,
        }
    }

    /// A whole SCRAM login; `tamper` may change the client's final message.
    fn scram_with(
        &self,
        mechanism: Mechanism,
        client: &mut Scram,
        tamper: impl FnOnce(String) -> Vec<u8>,
    ) -> Ended {
        let mut exchange = self.exchange(mechanism);
        let step = exchange.step(Some(&client.first()));
        let mut step = self.answer(&mut exchange, step);
        if let Step::Challenge(challenge) = &step {
            let last = client.last(challenge, None).unwrap();
            step = exchange.step(Some(&tamper(String::from_utf8(last).unwrap())));
        }
        assert!(exchange.is_over() && matches!(step, Step::Done { .. } | Step::Failed(_)), "{step:?}");
        Ended { step, reason: exchange.reason() }
    }

    fn scram(&self, mechanism: Mechanism, client: &mut Scram) -> Ended {
        self.scram_with(mechanism, client, String::into_bytes)
    }
}

fn failed(reason: Reason) -> Ended {
    Ended { step: Step::Failed(reason.failure()), reason: Some(reason) }
}

fn bound(name: &str, data: &[u8]) -> Gs2 {
    Gs2::Bound { name: name.to_owned(), data: data.to_vec() }
}

fn exporter() -> Gs2 {
    bound(sasl::binding::TLS_EXPORTER, &[7; 32])
}

fn user(gs2: Gs2) -> Scram {
    Scram::new(Hash::Sha256, gs2, "user", "pencil")
}
