//! Tests of XEP-0388 logins and the companion XEP-0386, XEP-0480, XEP-0484, XEP-0509, and of the limits on failed
//! logins.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod bind2;
mod exchanges;
mod fast;
mod guesses;
mod management;
mod pipelining;
mod revoked;
mod upgrades;

use feature_api::feature::{Feature, OptionKind, OptionSpec, OptionValue};
use feature_api::stream_elements::Bind2InlineCtx;
use sasl::client::{Gs2, ScramClient};
use sasl::{Mechanism, ScramHash, encoding};
use stanza::StreamCondition;
use testkit::server::{
    PASSWORD, ReceivedElement, ReceivedEvent, StreamClient, TestServer, TestServerConfig, TlsClientSettings,
    run_until_idle,
};
use xml::Ns;

const SASL2: &str = "xmlns='urn:xmpp:sasl:2'";
const PHONE: &str = "<user-agent id='d4565fa7-4d72-4749-b3d3-740edbf87770'><software>AwesomeXMPP</software>\
                     <device>Kiva's Phone</device></user-agent>";
const BIND: &str = "<bind xmlns='urn:xmpp:bind:0'><tag>AwesomeXMPP</tag></bind>";

const fn hours(key: &'static str, default: i64) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Int(0, i64::MAX), default: OptionValue::Int(default), doc: "." }
}

static OPTIONS: &[OptionSpec] =
    &[hours("lifetime_hours", 504), hours("rotate_hours", 24), hours("max_clients_per_account", 3)];
static MODULES: [Feature; 4] = [
    Feature { name: "sasl2", ..Feature::EMPTY },
    Feature { name: "bind2", ..Feature::EMPTY },
    Feature { name: "fast_tokens", options: OPTIONS, ..Feature::EMPTY },
    Feature { name: "scram_upgrade", ..Feature::EMPTY },
];
/// Placeholder for features that register for inline binding.
static COPIES: Feature = Feature {
    name: "copies",
    build: |builder| {
        builder.bind2_inline(Ns::Carbons2, "enable", |ctx: &mut Bind2InlineCtx<'_>| {
            ctx.session.flags.set(throng_core::session::flags::INTERESTED);
        });
        builder
            .bind2_inline(Ns::Csi, "inactive", |ctx: &mut Bind2InlineCtx<'_>| ctx.answer.extend(ctx.bytes));
    },
    ..Feature::EMPTY
};

/// A node with everything enabled, and juliet's account.
async fn juliet(change: impl FnOnce(&mut TestServerConfig)) -> TestServer {
    let mut setup = TestServerConfig {
        features: MODULES.iter().chain([&COPIES]).collect(),
        ..TestServerConfig::default()
    };
    change(&mut setup);
    let server = setup.start();
    server.create_user("juliet").await;
    server
}

async fn node() -> TestServer {
    juliet(|_| {}).await
}

/// A stream under TLS, with its features.
async fn encrypted(server: &TestServer) -> (StreamClient, ReceivedElement) {
    let mut client = server.connect();
    shaken(&mut client).await.map_or_else(|| panic!("no features"), |features| (client, features))
}

async fn shaken(client: &mut StreamClient) -> Option<ReceivedElement> {
    client.open().await;
    client.start_tls(&TlsClientSettings::default()).await;
    Some(client.open().await.1)
}

fn authenticate(mechanism: &str, initial: &[u8], more: &str) -> String {
    let initial = encoding::encode_challenge(initial);
    format!(
        "<authenticate {SASL2} mechanism='{mechanism}'><initial-response>{initial}</initial-response>{more}</authenticate>"
    )
}

fn plain(user: &str, password: &str, more: &str) -> String {
    authenticate("PLAIN", &sasl::client::plain(None, user, password), more)
}

/// `<success/>`, and the features after it.
async fn succeeds(client: &mut StreamClient) -> (ReceivedElement, ReceivedElement) {
    let success = client.element().await;
    assert_eq!(success.name(), "success", "{}", success.0);
    let features = client.element().await;
    assert_eq!(features.name(), "features", "{}", features.0);
    (success, features)
}

/// The condition of an XEP-0388 failure.
async fn fails(client: &mut StreamClient, element: &str) -> String {
    client.send(element).await;
    failure(client).await
}

async fn failure(client: &mut StreamClient) -> String {
    let failure = client.element().await;
    assert_eq!(failure.name(), "failure", "{}", failure.0);
    let condition = failure.condition().unwrap();
    assert!(
        failure.has(&format!("<failure {SASL2}><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>")),
        "{}",
        failure.0
    );
    condition
}

async fn ends(client: &mut StreamClient, element: &str, condition: StreamCondition) {
    client.send(element).await;
    client.expect_stream_error(condition).await;
}

/// SCRAM with all checks of a careful client.
async fn scram(
    client: &mut StreamClient,
    mechanism: Mechanism,
    features: &ReceivedElement,
    more: &str,
) -> ReceivedElement {
    let gs2 = if mechanism.is_plus() {
        Gs2::Bound { name: "tls-exporter".into(), data: client.binding("tls-exporter").to_vec() }
    } else {
        Gs2::None
    };
    let offered = offered(features);
    let offered: Vec<&str> = offered.iter().map(String::as_str).collect();
    let mut scram = ScramClient::new(mechanism.hash().unwrap(), gs2, "juliet", PASSWORD)
        .require_offer(&offered, Some(&["tls-exporter", "tls-server-end-point"]));
    client.send(authenticate(mechanism.name(), &scram.client_first(), more)).await;
    let challenge = client.element().await;
    assert!(challenge.name() == "challenge" && challenge.has(SASL2), "{}", challenge.0);
    let last = scram.client_final(&encoding::decode_sasl2(&challenge.text()).unwrap(), None).unwrap();
    client.send(format!("<response {SASL2}>{}</response>", encoding::encode_challenge(&last))).await;
    let answer = client.element().await;
    let proof = answer.all("additional-data").concat();
    scram.verify(&encoding::decode_sasl2(&proof).unwrap()).unwrap();
    answer
}

/// Mechanisms of `<authentication/>`, without those of FAST.
fn offered(features: &ReceivedElement) -> Vec<String> {
    let start = features.0.find("<authentication").unwrap();
    let end = features.0[start..].find("<inline").map_or(features.0.len(), |at| start + at);
    let list = &features.0[start..end];
    list.split("<mechanism>").skip(1).map(|m| m.split('<').next().unwrap().to_owned()).collect()
}

/// The full address, or the bare one.
fn identity(success: &ReceivedElement) -> String {
    success.all("authorization-identifier").concat()
}
