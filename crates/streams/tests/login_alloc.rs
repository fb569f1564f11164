//! Allocation budget of a reconnect with a token (XEP-0484), compared with SCRAM: a guard against growth, and proof
//! that no keys are derived.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use counting_allocator::allocations;
use feature_api::feature::{Feature, OptionKind, OptionSpec, OptionValue};
use testkit::server::{PASSWORD, STREAM_HEADER, TestServerConfig};

/// Maximum of allocations of client and server together from header to success; measured: 53.
const MAX_ALLOCATIONS: usize = 80;

static OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        key: "lifetime_hours",
        kind: OptionKind::Int(0, 999),
        default: OptionValue::Int(504),
        doc: ".",
    },
    OptionSpec {
        key: "rotate_hours",
        kind: OptionKind::Int(0, 999),
        default: OptionValue::Int(24),
        doc: ".",
    },
    OptionSpec {
        key: "max_clients_per_account",
        kind: OptionKind::Int(0, 999),
        default: OptionValue::Int(3),
        doc: ".",
    },
];
static MODULES: [Feature; 3] = [
    Feature { name: "sasl2", ..Feature::EMPTY },
    Feature { name: "bind2", ..Feature::EMPTY },
    Feature { name: "fast_tokens", options: OPTIONS, ..Feature::EMPTY },
];

#[tokio::test]
async fn a_reconnect_stays_within_its_allocation_budget() {
    let mut setup = TestServerConfig { features: MODULES.iter().collect(), ..TestServerConfig::default() };
    setup.policy.allow_plain_without_tls = true;
    let server = setup.start();
    server.create_user("juliet").await;
    let authenticate = |mechanism: &str, initial: &[u8], more: &str| {
        let initial = sasl::encoding::encode_challenge(initial);
        format!(
            "{STREAM_HEADER}<authenticate xmlns='urn:xmpp:sasl:2' mechanism='{mechanism}'><initial-response>{initial}\
             </initial-response><user-agent id='phone'/><bind xmlns='urn:xmpp:bind:0'/>{more}</authenticate>"
        )
    };
    let ask = "<request-token xmlns='urn:xmpp:fast:0' mechanism='HT-SHA-256-NONE'/>";
    let mut client = server.connect();
    client.send(authenticate("PLAIN", &sasl::client::plain(None, "juliet", PASSWORD), ask)).await;
    client.header().await;
    client.element().await;
    let success = client.element().await;
    let (_, token) = success.0.split_once(" token='").unwrap();
    let proof = sasl::client::hashed_token("juliet", token.split('\'').next().unwrap(), &[]);
    let flight = authenticate("HT-SHA-256-NONE", &proof, "<fast xmlns='urn:xmpp:fast:0'/>");
    let mut counts = Vec::new();
    for _ in 0..5 {
        // It replaces the previous session, as a reconnect does.
        let mut client = server.connect();
        let before = allocations();
        client.send(&flight).await;
        client.header().await;
        client.element().await;
        let success = client.element().await;
        counts.push(allocations() - before);
        assert_eq!(success.name(), "success", "{}", success.0);
    }
    let least = counts.iter().min().copied().unwrap_or_default();
    println!("allocations of a reconnect, client and server: {counts:?}");
    assert!(least <= MAX_ALLOCATIONS, "{counts:?}");
}
