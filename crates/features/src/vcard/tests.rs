//! Tests of vCards: the cases of XEP-0054, section 3, limits, and searchable fields.

use feature_api::EnabledFeature;
use feature_api::feature::FeatureOptions;
use testkit::{NodeClient, TestNode, assert_same};
use throng_core::NodeLimits;

use super::*;

const CARD: &str = "<vCard xmlns='vcard-temp'><FN>Juliet Capulet</FN><N><GIVEN>Juliet</GIVEN></N>\
    <EMAIL><USERID>jcapulet@shakespeare.lit</USERID></EMAIL><X-OWN xmlns='u:own' a='&amp;'/></vCard>";

fn with(options: FeatureOptions, limits: NodeLimits) -> TestNode {
    let engine = TestNode::start(&[EnabledFeature { feature: &FEATURE, options }], limits);
    for user in ["juliet", "romeo@example.net", "nurse"] {
        engine.create_user(user);
    }
    engine
}

fn engine() -> TestNode {
    with(FeatureOptions::defaults(FEATURE.options), NodeLimits::default())
}

fn get(to: &str) -> String {
    format!("<iq {to} type='get' id='v1'><vCard xmlns='vcard-temp'/></iq>")
}

fn set(card: &str) -> String {
    format!("<iq type='set' id='v2'>{card}</iq>")
}

fn error(client: &NodeClient, from: &str, kind: &str, condition: &str) -> String {
    format!(
        "<iq {from} to='{}' type='error' id='v1'><vCard xmlns='vcard-temp'/><error type='{kind}'>\
         <{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>",
        client.full()
    )
}

#[test]
fn sections_3_1_and_3_2_a_user_sets_and_reads_its_own_vcard() {
    let engine = engine();
    let juliet = engine.connect("juliet", "balcony");
    assert_same(&juliet.request(&get("")), &[error(&juliet, "", "cancel", "item-not-found")]);
    let done = "<iq to='juliet@example.com/balcony' type='result' id='v2'/>";
    assert_same(&juliet.request(&set(CARD)), &[done]);
    let own = format!("<iq to='juliet@example.com/balcony' type='result' id='v1'>{CARD}</iq>");
    assert_same(&juliet.request(&get("")), &[own]);
    assert_same(&juliet.request(&set("<vCard xmlns='vcard-temp'/>")), &[done]);
    assert_same(&juliet.request(&get("")), &[error(&juliet, "", "cancel", "item-not-found")]);
}

#[test]
fn section_3_3_the_vcard_of_an_offline_user_can_be_read() {
    let engine = engine();
    let juliet = engine.connect("juliet", "balcony");
    juliet.request(&set(CARD));
    let romeo = engine.connect("romeo@example.net", "orchard");
    let want =
        format!("<iq from='juliet@example.com' to='{}' type='result' id='v1'>{CARD}</iq>", romeo.full());
    assert_same(&romeo.request(&get("to='juliet@example.com'")), &[&want]);
    juliet.close();
    assert_same(&romeo.request(&get("to='juliet@example.com'")), &[&want]);
}

#[test]
fn section_3_3_a_missing_user_looks_like_one_without_a_vcard() {
    let engine = engine();
    let romeo = engine.connect("romeo@example.net", "orchard");
    for user in ["nurse@example.com", "nobody@example.com"] {
        let from = format!("from='{user}'");
        let want = error(&romeo, &from, "cancel", "service-unavailable");
        assert_same(&romeo.request(&get(&format!("to='{user}'"))), &[want]);
    }
}

#[test]
fn section_3_2_the_vcard_of_another_user_cannot_be_set() {
    let engine = engine();
    let romeo = engine.connect("romeo@example.net", "orchard");
    for to in ["juliet@example.com", "nobody@example.com", "example.net", "example.com"] {
        let answer = romeo.request(&format!("<iq to='{to}' type='set' id='v1'>{CARD}</iq>"));
        assert!(answer[0].contains("<error type='auth'><forbidden"), "{to}: {answer:?}");
    }
}

#[test]
fn the_domain_has_a_vcard_if_contact_information_is_configured() {
    let engine = engine();
    let juliet = engine.connect("juliet", "balcony");
    let none = error(&juliet, "from='example.com'", "cancel", "service-unavailable");
    assert_same(&juliet.request(&get("to='example.com'")), &[none]);
    let mut options = FeatureOptions::defaults(FEATURE.options);
    options.set(FEATURE.options, "server_name", OptionValue::Text("Montague & Capulet".into())).unwrap();
    let engine = with(options, NodeLimits::default());
    let juliet = engine.connect("juliet", "balcony");
    assert_same(
        &juliet.request(&get("to='example.com'")),
        &[
            "<iq from='example.com' to='juliet@example.com/balcony' type='result' id='v1'><vCard xmlns='vcard-temp'>\
           <FN>Montague &amp; Capulet</FN><JABBERID>example.com</JABBERID></vCard></iq>",
        ],
    );
}

#[test]
fn a_vcard_of_a_megabyte_is_refused_and_the_stored_one_is_unchanged() {
    let limits = NodeLimits { stanza_bytes: 2 << 20, ..NodeLimits::default() };
    let engine = with(FeatureOptions::defaults(FEATURE.options), limits);
    let juliet = engine.connect("juliet", "balcony");
    juliet.request(&set(CARD));
    for size in [1 << 20, 65_536] {
        let card = format!("<vCard xmlns='vcard-temp'><DESC>{}</DESC></vCard>", "x".repeat(size));
        let answer = juliet.request(&set(&card));
        assert!(answer[0].contains("<not-acceptable"), "{}", answer[0].len());
        assert!(answer[0].len() < 1024, "the card does not come back with the error");
    }
    // A namespace that is declared once and used often is counted in stored form.
    let lean = format!(
        "<iq type='set' id='v2' xmlns:a='u:{}'><vCard xmlns='vcard-temp'>{}</vCard></iq>",
        "x".repeat(900),
        "<X><a:b/></X>".repeat(200)
    );
    assert!(juliet.request(&lean)[0].contains("<not-acceptable"));
    assert!(juliet.request(&get(""))[0].contains("Juliet Capulet"));
}

#[test]
fn the_user_search_index_follows_the_vcard() {
    let engine = engine();
    let juliet = engine.connect("juliet", "balcony");
    let found = || {
        let query = store::UserQuery { first: Some("jul".into()), ..store::UserQuery::default() };
        let page = store::SearchPageRequest { seek: store::Seek::First, limit: 10 };
        engine.block_on(engine.stores.user_search.search("example.com", &query, page)).unwrap().users.len()
    };
    assert_eq!(found(), 0);
    juliet.request(&set(CARD));
    assert_eq!(found(), 1);
    juliet.request(&set("<vCard xmlns='vcard-temp'/>"));
    assert_eq!(found(), 0);
}

#[test]
fn guests_and_a_failing_store_get_errors() {
    let engine = engine();
    let guest = engine.connect_anonymous("guest", "x");
    assert!(guest.request(&set(CARD))[0].contains("<not-allowed"));
    let juliet = engine.connect("juliet", "balcony");
    engine.set_store_failing(true);
    assert!(juliet.request(&get(""))[0].contains("<resource-constraint"));
    assert!(juliet.request(&set(CARD))[0].contains("<resource-constraint"));
}
