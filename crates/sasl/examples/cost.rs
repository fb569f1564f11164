//! Measures what this crate costs on this machine: `cargo run --release -p throng-sasl --example cost`.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "a program to read, not to ship")]

use base::{Clock, Secret, SystemClock};
use std::hint::black_box;
use throng_sasl::client::{Cache, Gs2, Scram};
use throng_sasl::{Binding, Credentials, DEFAULT_ITERATIONS, Decoy, Exchange, Hash, Step};

/// Microseconds that one call of `work` takes.
fn micros(times: u32, mut work: impl FnMut()) -> f64 {
    let clock = SystemClock::new();
    (0..times).for_each(|_| work());
    clock.now().0 as f64 * 1000.0 / f64::from(times)
}

fn main() {
    let derive = |hash| Credentials::derive_for(&[hash], "pencil", DEFAULT_ITERATIONS, &[7; 16]).unwrap();
    let decoy = Decoy::new(&Secret::new(*b"secret"), DEFAULT_ITERATIONS);
    println!("{DEFAULT_ITERATIONS} iterations; microseconds a call");
    for hash in Hash::ALL {
        let deriving = micros(50, || drop(black_box(derive(hash))));
        let stored = derive(hash);
        let checking = micros(50, || assert!(black_box(&stored).verify_password("pencil")));
        let mut cache = Cache::default();
        let mut login = |found: Option<&Credentials>| {
            let mut client =
                Scram::new(hash, Gs2::None, "user", "pencil").with_nonce("fyko+d2lbbFgONRv9qkxdawL");
            let nonce = "3rfcNHYJY1ZVvWVs7j".to_owned();
            let mut exchange = Exchange::new(client.mechanism(), false, Binding::default(), nonce);
            let Step::NeedCredentials { username } = exchange.step(Some(&client.first())) else { panic!() };
            let Step::Challenge(challenge) = exchange.credentials(found, &decoy, &username) else { panic!() };
            let last = client.last(&challenge, Some(&mut cache)).unwrap();
            black_box(exchange.step(Some(&last)));
        };
        let both = micros(20_000, || login(Some(&stored)));
        println!("{hash:?}: derive {deriving:.0}, verify_password {checking:.0}, SCRAM both sides {both:.1}");
    }
}
