//! Memory budget of modules: a module costs a session nothing until the session uses it. Measures the live bytes of
//! sessions that bind, request their roster, become available and receive a message, with all modules and with all
//! but one.
#![allow(clippy::panic, reason = "a test")]

use std::collections::BTreeSet;

use counting_allocator::live_bytes;
use feature_api::EnabledFeature;
use feature_api::feature::{Feature, FeatureOptions};
use testkit::TestNode;
use throng_core::NodeLimits;
use throng_features::registry::ALL;

/// Sessions before the first measurement, so that amortised growth has happened.
const WARMUP_SESSIONS: usize = 200;
/// Further sessions before the second measurement.
const MEASURED_SESSIONS: usize = 800;

/// Bytes of [`MEASURED_SESSIONS`] sessions on a host with these modules.
fn bytes_of_sessions(features: &[&'static Feature]) -> isize {
    let enabled: Vec<EnabledFeature> = features
        .iter()
        .map(|feature| EnabledFeature { feature, options: FeatureOptions::defaults(feature.options) })
        .collect();
    let engine = TestNode::start(&enabled, NodeLimits::default());
    engine.create_user("writer");
    for n in 0..WARMUP_SESSIONS + MEASURED_SESSIONS {
        engine.create_user(&format!("user{n:04}"));
    }
    let writer = engine.connect("writer", "laptop");
    let mut clients = Vec::with_capacity(WARMUP_SESSIONS + MEASURED_SESSIONS);
    let mut before = 0;
    for n in 0..WARMUP_SESSIONS + MEASURED_SESSIONS {
        if n == WARMUP_SESSIONS {
            engine.store_calls();
            before = live_bytes();
        }
        let client = engine.connect(&format!("user{n:04}"), "balcony");
        client.send("<iq type='get' id='1'><query xmlns='jabber:iq:roster'/></iq>");
        client.send("<presence/>");
        writer.send(&format!(
            "<message to='user{n:04}@example.com' type='chat'><body>Good morrow</body></message>"
        ));
        assert!(client.recv().iter().any(|stanza| stanza.contains("Good morrow")), "with {n} sessions");
        writer.recv();
        clients.push(client);
    }
    engine.store_calls();
    let after = live_bytes();
    assert_eq!(clients.len(), WARMUP_SESSIONS + MEASURED_SESSIONS);
    after - before
}

/// Names of the modules that depend on this one.
fn dependents(name: &'static str) -> BTreeSet<&'static str> {
    let mut out = BTreeSet::from([name]);
    loop {
        let before = out.len();
        for feature in ALL {
            if feature.needs.iter().any(|need| out.contains(need)) {
                out.insert(feature.name);
            }
        }
        if out.len() == before {
            return out;
        }
    }
}

#[test]
fn no_module_adds_bytes_to_a_session_that_does_not_use_it() {
    let all = bytes_of_sessions(ALL);
    for feature in ALL {
        // Every session uses these: a roster, presence, and the modules that depend on them.
        if ["roster", "presence", "subscription"].contains(&feature.name) {
            continue;
        }
        let gone = dependents(feature.name);
        let rest: Vec<_> = ALL.iter().copied().filter(|f| !gone.contains(f.name)).collect();
        let without = bytes_of_sessions(&rest);
        let each = (all - without) / MEASURED_SESSIONS as isize;
        assert!(each <= 0, "{} adds {each} bytes to every session ({all} to {without})", feature.name);
    }
    println!("{} bytes a session with all {} modules", all / MEASURED_SESSIONS as isize, ALL.len());
}
