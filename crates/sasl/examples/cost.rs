//! Measures the cost of this crate: `cargo run --release -p throng-sasl --example cost`.
//!
//! Times are CPU time of this thread, from `/proc/thread-self/schedstat` (Linux), because wall time on a busy machine
//! mostly measures other processes. Each result is the minimum of five rounds.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "a program to read, not to ship")]

use std::hint::black_box;

use base::Secret;
use throng_sasl::client::{Gs2, ScramClient, ScramKeyCache};
use throng_sasl::{
    ChannelBindingData, Credentials, DEFAULT_ITERATIONS, Decoy, Exchange, ExchangeStep, ScramHash,
};

/// Nanoseconds of CPU time of this thread.
fn ran() -> u64 {
    // A thread that never waits is accounted only at ticks; yielding updates the counter.
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

/// Microseconds of CPU time per call of `work`.
fn micros(times: u32, mut work: impl FnMut()) -> f64 {
    let round = |_| {
        let before = ran();
        (0..times).for_each(|_| work());
        (ran() - before) as f64 / 1000.0 / f64::from(times)
    };
    (0..5).map(round).fold(f64::INFINITY, f64::min)
}

fn main() {
    let derive = |hash| Credentials::derive_for(&[hash], "pencil", DEFAULT_ITERATIONS, &[7; 16]).unwrap();
    let decoy = Decoy::new(&Secret::new(*b"secret"), DEFAULT_ITERATIONS);
    println!("{DEFAULT_ITERATIONS} iterations; microseconds of processor time a call");
    for hash in ScramHash::ALL {
        let deriving = micros(20, || drop(black_box(derive(hash))));
        let stored = derive(hash);
        let checking = micros(20, || assert!(black_box(&stored).verify_password("pencil")));
        // The client's messages are built once: with fixed nonces every exchange is the same.
        let mut client =
            ScramClient::new(hash, Gs2::None, "user", "pencil").with_nonce("fyko+d2lbbFgONRv9qkxdawL");
        let first = client.client_first();
        let begin = |found: Option<&Credentials>| {
            let nonce = "3rfcNHYJY1ZVvWVs7j".to_owned();
            let mut exchange = Exchange::new(client.mechanism(), false, ChannelBindingData::default(), nonce);
            let ExchangeStep::NeedCredentials { username } = exchange.step(Some(&first)) else { panic!() };
            let ExchangeStep::Challenge(challenge) = exchange.credentials(found, &decoy, &username) else {
                panic!()
            };
            (exchange, challenge)
        };
        let challenge = begin(Some(&stored)).1;
        let server = |found: Option<&Credentials>, last: &[u8]| black_box(begin(found).0.step(Some(last)));
        let last = client.clone().client_final(&challenge, None).unwrap();
        assert!(matches!(server(Some(&stored), &last), ExchangeStep::Done { .. }));
        let known = micros(20_000, || drop(server(Some(&stored), &last)));
        let unknown = micros(20_000, || drop(server(None, &last)));
        let mut cache = ScramKeyCache::default();
        let cached = micros(20_000, || drop(black_box(client.client_final(&challenge, Some(&mut cache)))));
        println!(
            "{hash:?}: derive {deriving:.0}, verify_password {checking:.0}, server's SCRAM {known:.1} \
             (missing account {unknown:.1}), client's cached {cached:.1}"
        );
    }
}
