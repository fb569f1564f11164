//! Fuzz target for the SASL client against arbitrary servers: byte 0 selects the mechanism, the rest is messages,
//! separated by 0xff. A SCRAM client that accepts such a server is a crash, because the server does not know the
//! password.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadgen::sasl::ClientExchange;
use sasl::Mechanism;
use sasl::client::{Gs2, ScramKeyCache};

fuzz_target!(|data: &[u8]| {
    let [which, messages @ ..] = data else { return };
    let mechanism = Mechanism::ALL[usize::from(*which) % Mechanism::ALL.len()];
    let binding =
        if mechanism.is_plus() { Gs2::Bound { name: "tls-exporter".into(), data: vec![7; 32] } } else { Gs2::None };
    let (mut exchange, _) =
        ClientExchange::begin(mechanism, "user", "not to be guessed", None, binding, "nonce")
            .expect("constant input");
    let mut keys = ScramKeyCache::new();
    // A derivation of millions of rounds is right, but nothing for a fuzzer.
    if messages.windows(7).any(|window| window.iter().all(u8::is_ascii_digit)) {
        return;
    }
    let messages: Vec<_> = messages.split(|byte| *byte == 0xff).collect();
    let Some((last, challenges)) = messages.split_last() else { return };
    for challenge in challenges {
        if exchange.challenge(challenge, &mut keys).is_err() {
            return;
        }
    }
    let believed = exchange.success(last).is_ok();
    assert!(
        !believed || mechanism.hash().is_none(),
        "a server without the password was believed"
    );
});
