//! vCards: the cases of XEP-0054 section 3, bounds, and what the directory finds.

use super::*;
use testkit::{Client, Engine, assert_same};
use throng_core::feature::Options;
use throng_core::{Enabled, Limits};

const CARD: &str = "<vCard xmlns='vcard-temp'><FN>Juliet Capulet</FN><N><GIVEN>Juliet</GIVEN></N>\
    <EMAIL><USERID>jcapulet@shakespeare.lit</USERID></EMAIL><X-OWN xmlns='u:own' a='&amp;'/></vCard>";

fn with(options: Options, limits: Limits) -> Engine {
    let engine = Engine::start(&[Enabled { feature: &FEATURE, options }], limits);
    for user in ["juliet", "romeo@example.net", "nurse"] {
        engine.user(user);
    }
    engine
}
fn engine() -> Engine {
    with(Options::defaults(FEATURE.options), Limits::default())
}
fn get(to: &str) -> String {
    format!("<iq {to} type='get' id='v1'><vCard xmlns='vcard-temp'/></iq>")
}
fn set(card: &str) -> String {
    format!("<iq type='set' id='v2'>{card}</iq>")
}
fn error(client: &Client, from: &str, kind: &str, condition: &str) -> String {
    format!(
        "<iq {from} to='{}' type='error' id='v1'><vCard xmlns='vcard-temp'/><error type='{kind}'>\
         <{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>",
        client.full()
    )
}

#[test]
fn sections_3_1_and_3_2_ones_own_card() {
    let engine = engine();
    let juliet = engine.connect("juliet", "balcony");
    assert_same(&juliet.ask(&get("")), &[error(&juliet, "", "cancel", "item-not-found")]);
    let done = "<iq to='juliet@example.com/balcony' type='result' id='v2'/>";
    assert_same(&juliet.ask(&set(CARD)), &[done]);
    let own = format!("<iq to='juliet@example.com/balcony' type='result' id='v1'>{CARD}</iq>");
    assert_same(&juliet.ask(&get("")), &[own]);
    assert_same(&juliet.ask(&set("<vCard xmlns='vcard-temp'/>")), &[done]);
    assert_same(&juliet.ask(&get("")), &[error(&juliet, "", "cancel", "item-not-found")]);
}

#[test]
fn section_3_3_anothers_card_is_there_also_while_its_owner_is_not() {
    let engine = engine();
    let juliet = engine.connect("juliet", "balcony");
    juliet.ask(&set(CARD));
    let romeo = engine.connect("romeo@example.net", "orchard");
    let want =
        format!("<iq from='juliet@example.com' to='{}' type='result' id='v1'>{CARD}</iq>", romeo.full());
    assert_same(&romeo.ask(&get("to='juliet@example.com'")), &[&want]);
    juliet.close();
    assert_same(&romeo.ask(&get("to='juliet@example.com'")), &[&want]);
}

#[test]
fn section_3_3_a_missing_user_looks_like_one_without_a_card() {
    let engine = engine();
    let romeo = engine.connect("romeo@example.net", "orchard");
    for user in ["nurse@example.com", "nobody@example.com"] {
        let from = format!("from='{user}'");
        let want = error(&romeo, &from, "cancel", "service-unavailable");
        assert_same(&romeo.ask(&get(&format!("to='{user}'"))), &[want]);
    }
}

#[test]
fn section_3_2_nobody_sets_anothers_card() {
    let engine = engine();
    let romeo = engine.connect("romeo@example.net", "orchard");
    for to in ["juliet@example.com", "nobody@example.com", "example.net", "example.com"] {
        let answer = romeo.ask(&format!("<iq to='{to}' type='set' id='v1'>{CARD}</iq>"));
        assert!(answer[0].contains("<error type='auth'><forbidden"), "{to}: {answer:?}");
    }
}

#[test]
fn the_domain_has_a_card_when_there_is_something_to_say() {
    let engine = engine();
    let juliet = engine.connect("juliet", "balcony");
    let none = error(&juliet, "from='example.com'", "cancel", "service-unavailable");
    assert_same(&juliet.ask(&get("to='example.com'")), &[none]);
    let mut options = Options::defaults(FEATURE.options);
    options.set(FEATURE.options, "server_name", Value::Text("Montague & Capulet".into())).unwrap();
    let engine = with(options, Limits::default());
    let juliet = engine.connect("juliet", "balcony");
    assert_same(
        &juliet.ask(&get("to='example.com'")),
        &[
            "<iq from='example.com' to='juliet@example.com/balcony' type='result' id='v1'><vCard xmlns='vcard-temp'>\
           <FN>Montague &amp; Capulet</FN><JABBERID>example.com</JABBERID></vCard></iq>",
        ],
    );
}

#[test]
fn a_card_of_a_megabyte_is_refused_and_the_old_one_stays() {
    let limits = Limits { stanza_bytes: 2 << 20, ..Limits::default() };
    let engine = with(Options::defaults(FEATURE.options), limits);
    let juliet = engine.connect("juliet", "balcony");
    juliet.ask(&set(CARD));
    for size in [1 << 20, 65_536] {
        let card = format!("<vCard xmlns='vcard-temp'><DESC>{}</DESC></vCard>", "x".repeat(size));
        let answer = juliet.ask(&set(&card));
        assert!(answer[0].contains("<not-acceptable"), "{}", answer[0].len());
        assert!(answer[0].len() < 1024, "the card does not come back with the error");
    }
    // Namespaces that are declared once and used often are counted as they are kept.
    let lean = format!(
        "<iq type='set' id='v2' xmlns:a='u:{}'><vCard xmlns='vcard-temp'>{}</vCard></iq>",
        "x".repeat(900),
        "<X><a:b/></X>".repeat(200)
    );
    assert!(juliet.ask(&lean)[0].contains("<not-acceptable"));
    assert!(juliet.ask(&get(""))[0].contains("Juliet Capulet"));
}

#[test]
fn what_the_directory_finds_changes_with_the_card() {
    let engine = engine();
    let juliet = engine.connect("juliet", "balcony");
    let found = || {
        let query = store::Query { first: Some("jul".into()), ..store::Query::default() };
        let page = store::SearchPage { seek: store::Seek::First, limit: 10 };
        engine.wait(engine.stores.directory.search("example.com", &query, page)).unwrap().users.len()
    };
    assert_eq!(found(), 0);
    juliet.ask(&set(CARD));
    assert_eq!(found(), 1);
    juliet.ask(&set("<vCard xmlns='vcard-temp'/>"));
    assert_eq!(found(), 0);
}

#[test]
fn guests_and_a_store_that_does_not_answer() {
    let engine = engine();
    let guest = engine.connect_anonymous("guest", "x");
    assert!(guest.ask(&set(CARD))[0].contains("<not-allowed"));
    let juliet = engine.connect("juliet", "balcony");
    engine.fail_store(true);
    assert!(juliet.ask(&get(""))[0].contains("<resource-constraint"));
    assert!(juliet.ask(&set(CARD))[0].contains("<resource-constraint"));
}
