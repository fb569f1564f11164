//! Fuzz target of whole exchanges: byte 0 selects the mechanism, byte 1 the conditions; the rest is messages, separated
//! by 0xff (which UTF-8 never has). A SCRAM or PLAIN login without the password is a crash: the proof cannot be
//! guessed.
#![no_main]

use std::sync::LazyLock;

use base::Secret;
use libfuzzer_sys::fuzz_target;
use sasl::{ChannelBindingData, Credentials, Decoy, Exchange, ExchangeStep, Mechanism};

static WORLD: LazyLock<(Credentials, Decoy)> = LazyLock::new(|| {
    let stored = Credentials::derive("not to be guessed by a fuzzer", 1, b"salt").expect("constant input");
    (stored, Decoy::new(&Secret::new(*b"secret"), 1))
});

fuzz_target!(|data: &[u8]| {
    let [which, conditions, messages @ ..] = data else { return };
    let mechanism = Mechanism::ALL[usize::from(*which) % Mechanism::ALL.len()];
    let (stored, decoy) = &*WORLD;
    let binding = ChannelBindingData {
        exporter: (conditions & 1 != 0).then(|| vec![7; 32]),
        server_end_point: (conditions & 2 != 0).then(|| vec![9; 32]),
    };
    let mut exchange = Exchange::new(mechanism, conditions & 4 != 0, binding, "0123456789abcdef".to_owned());
    let mut messages = messages.split(|byte| *byte == 0xff);
    let mut step = if conditions & 8 != 0 { exchange.step(None) } else { exchange.step(messages.next()) };
    loop {
        step = match step {
            ExchangeStep::NeedCredentials { username } => {
                exchange.credentials(Some(stored).filter(|_| conditions & 16 != 0), decoy, &username)
            }
            ExchangeStep::NeedPasswordCheck { password, .. } => {
                let valid = password.expose_str().is_ok_and(|password| stored.verify_password(password));
                exchange.password_checked(valid)
            }
            ExchangeStep::NeedTokenCheck { token, .. } => {
                assert!(!token.is_empty() && token.expose().is_ascii());
                exchange.token_checked(None)
            }
            ExchangeStep::NeedCertificate { authzid } => {
                exchange.certificate(Ok(authzid.unwrap_or_default()))
            }
            ExchangeStep::Challenge(_) => match messages.next() {
                Some(message) => exchange.step(Some(message)),
                None => return,
            },
            ExchangeStep::Done { .. } => {
                assert!(matches!(mechanism, Mechanism::External | Mechanism::Anonymous));
                return;
            }
            ExchangeStep::Failed(_) => {
                assert!(exchange.is_finished() && exchange.reason().is_some());
                return;
            }
        };
    }
});
