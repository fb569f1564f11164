//! Benchmark of parsing, in nanoseconds per call, for each path: `cargo bench -p throng-jid`. Prints the best of nine
//! rounds, because on a shared machine the others include the load of other processes.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a benchmark prints and measures time")]

use std::hint::black_box;
use std::time::Instant;

use throng_jid::{Jid, JidRef, parse};

fn measure(what: &str, text: &str, work: impl Fn(&str) -> bool) {
    // The number of calls that takes about ten milliseconds.
    let start = Instant::now();
    black_box(work(black_box(text)));
    let calls = (10_000_000 / start.elapsed().as_nanos().max(1)).clamp(1, 100_000);
    let round = |_| {
        let start = Instant::now();
        for _ in 0..calls {
            black_box(work(black_box(text)));
        }
        100 * start.elapsed().as_nanos() / calls
    };
    let hundredths = (0..9).map(round).min().unwrap_or_default();
    println!("{:5}.{:02} ns  {what}  {text:.60}", hundredths / 100, hundredths % 100);
}

fn main() {
    let long = format!("{}@{}.example.com/{}", "a".repeat(100), "b".repeat(60), "c".repeat(200));
    for text in [
        "juliet@example.com/balcony",
        "juliet@example.com",
        "example.com",
        "user1234567@conference.example.com/Nick Name 7",
        &long,
    ] {
        measure("parse, fast path  ", text, |text| parse(text).is_ok());
    }
    let full = "juliet@example.com/balcony";
    measure("parse and keep    ", full, |text| Jid::parse(text).is_ok());
    measure("from_normalised   ", full, |text| JidRef::from_normalised(text).is_some());
    measure("xmpp-rs           ", full, |text| xmpp_jid::Jid::new(text).is_ok());
    for text in [
        "Juliet@Example.com/balcony",
        "juliet@example.com/\u{265a}",
        "\u{3c0}@example.com",
        "a@fu\u{df}ball.example",
        "a@xn--fuball-cta.example",
    ] {
        measure("parse, slow path  ", text, |text| parse(text).is_ok());
        measure("xmpp-rs           ", text, |text| xmpp_jid::Jid::new(text).is_ok());
    }
    let hostile = format!("{}@example.com", "\u{660}".repeat(500));
    measure("parse, worst local", &hostile, |text| parse(text).is_ok());
    let hostile = format!("{}@example.com", "\u{660}".repeat(2046));
    measure("parse, too long   ", &hostile, |text| parse(text).is_ok());
    let hostile = format!("example.com/{}", "\u{1160}\u{308}".repeat(800));
    measure("parse, bad resource", &hostile, |text| parse(text).is_ok());
}
