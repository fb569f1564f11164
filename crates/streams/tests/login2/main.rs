//! Logins of XEP-0388 and what goes with it: XEP-0386, XEP-0480, XEP-0484, XEP-0509; and the limits on failed logins.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod bind2;
mod exchanges;
mod fast;
mod guesses;
mod management;
mod pipelining;
mod revoked;
mod upgrades;

use sasl::client::{Gs2, Scram};
use sasl::{Hash, Mechanism, text};
use stanza::StreamCondition;
use testkit::wire::{Client, PASSWORD, Seen, Setup, TlsClient, Wire};
use throng_core::feature::{Feature, Kind, OptionSpec, Value};
use throng_core::nonza::InlineCtx;
use xml::Ns;

const SASL2: &str = "xmlns='urn:xmpp:sasl:2'";
const PHONE: &str = "<user-agent id='d4565fa7-4d72-4749-b3d3-740edbf87770'><software>AwesomeXMPP</software>\
                     <device>Kiva's Phone</device></user-agent>";
const BIND: &str = "<bind xmlns='urn:xmpp:bind:0'><tag>AwesomeXMPP</tag></bind>";

const fn hours(key: &'static str, default: i64) -> OptionSpec {
    OptionSpec { key, kind: Kind::Int(0, i64::MAX), default: Value::Int(default), doc: "." }
}

static OPTIONS: &[OptionSpec] =
    &[hours("lifetime_hours", 504), hours("rotate_hours", 24), hours("max_clients_per_account", 3)];
static MODULES: [Feature; 4] = [
    Feature { name: "sasl2", ..Feature::EMPTY },
    Feature { name: "bind2", ..Feature::EMPTY },
    Feature { name: "fast_tokens", options: OPTIONS, ..Feature::EMPTY },
    Feature { name: "scram_upgrade", ..Feature::EMPTY },
];
/// Stands for what registers itself for binding.
static COPIES: Feature = Feature {
    name: "copies",
    build: |builder| {
        builder.inline(Ns::Carbons2, "enable", |ctx: &mut InlineCtx<'_>| {
            ctx.session.flags.set(throng_core::session::flags::INTERESTED);
        });
        builder.inline(Ns::Csi, "inactive", |ctx: &mut InlineCtx<'_>| ctx.answer.extend(ctx.bytes));
    },
    ..Feature::EMPTY
};

/// A node with everything on, and juliet.
async fn juliet(change: impl FnOnce(&mut Setup)) -> Wire {
    let mut setup = Setup { features: MODULES.iter().chain([&COPIES]).collect(), ..Setup::default() };
    change(&mut setup);
    let wire = setup.start();
    wire.user("juliet").await;
    wire
}

async fn node() -> Wire {
    juliet(|_| {}).await
}

/// A stream under TLS, with its features.
async fn encrypted(wire: &Wire) -> (Client, Seen) {
    let mut client = wire.connect();
    shaken(&mut client).await.map_or_else(|| panic!("no features"), |features| (client, features))
}

async fn shaken(client: &mut Client) -> Option<Seen> {
    client.open().await;
    client.start_tls(&TlsClient::default()).await;
    Some(client.open().await.1)
}

fn authenticate(mechanism: &str, initial: &[u8], more: &str) -> String {
    let initial = text::challenge(initial);
    format!(
        "<authenticate {SASL2} mechanism='{mechanism}'><initial-response>{initial}</initial-response>{more}</authenticate>"
    )
}

fn plain(user: &str, password: &str, more: &str) -> String {
    authenticate("PLAIN", &sasl::client::plain(None, user, password), more)
}

/// What `<success/>` says, and the features behind it.
async fn succeeds(client: &mut Client) -> (Seen, Seen) {
    let success = client.element().await;
    assert_eq!(success.name(), "success", "{}", success.0);
    let features = client.element().await;
    assert_eq!(features.name(), "features", "{}", features.0);
    (success, features)
}

/// The condition of a failure in the words of XEP-0388.
async fn fails(client: &mut Client, element: &str) -> String {
    client.send(element).await;
    failure(client).await
}

async fn failure(client: &mut Client) -> String {
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

async fn ends(client: &mut Client, element: &str, condition: StreamCondition) {
    client.send(element).await;
    client.ends_with(condition).await;
}

/// SCRAM with everything a careful client checks.
async fn scram(client: &mut Client, mechanism: Mechanism, features: &Seen, more: &str) -> Seen {
    let gs2 = if mechanism.is_plus() {
        Gs2::Bound { name: "tls-exporter".into(), data: client.binding("tls-exporter").to_vec() }
    } else {
        Gs2::None
    };
    let offered = offered(features);
    let offered: Vec<&str> = offered.iter().map(String::as_str).collect();
    let mut scram = Scram::new(mechanism.hash().unwrap(), gs2, "juliet", PASSWORD)
        .expecting(&offered, Some(&["tls-exporter", "tls-server-end-point"]));
    client.send(authenticate(mechanism.name(), &scram.first(), more)).await;
    let challenge = client.element().await;
    assert!(challenge.name() == "challenge" && challenge.has(SASL2), "{}", challenge.0);
    let last = scram.last(&text::sasl2(&challenge.text()).unwrap(), None).unwrap();
    client.send(format!("<response {SASL2}>{}</response>", text::challenge(&last))).await;
    let answer = client.element().await;
    let proof = answer.all("additional-data").concat();
    scram.verify(&text::sasl2(&proof).unwrap()).unwrap();
    answer
}

/// The mechanisms of `<authentication/>`, without those of FAST.
fn offered(features: &Seen) -> Vec<String> {
    let start = features.0.find("<authentication").unwrap();
    let end = features.0[start..].find("<inline").map_or(features.0.len(), |at| start + at);
    let list = &features.0[start..end];
    list.split("<mechanism>").skip(1).map(|m| m.split('<').next().unwrap().to_owned()).collect()
}

/// The full address, or the bare one.
fn identity(success: &Seen) -> String {
    success.all("authorization-identifier").concat()
}
