//! Tests of capabilities: the server's own, the cache of clients' capabilities, and rejected replies.

use std::fmt::Write as _;

use feature_api::disco::HostDisco;
use feature_api::server_iq::{TIMEOUT_SECONDS, pending_iq_count};
use testkit::{NodeClient, TestNode};
use throng_core::StreamFeatureStage;

use super::cache::{FeatureSet, MAX_ENTRIES, RETRY_AFTER_SECONDS, caps_cache};
use super::*;

fn engine() -> TestNode {
    let engine = TestNode::new(&[&crate::disco::FEATURE, &FEATURE, &crate::rfc6121::presence::FEATURE]);
    for user in ["juliet", "romeo", "nurse", "mallory"] {
        engine.create_user(user);
    }
    engine
}

fn base64(digest: Vec<u8>) -> String {
    base64::Engine::encode(&BASE64_STANDARD, digest)
}

/// A client's disco information: the content of `<query/>`.
const PSI: &str = "<identity category='client' type='pc' name='Psi'/>\
    <feature var='http://jabber.org/protocol/caps'/><feature var='http://jabber.org/protocol/disco#info'/>\
    <feature var='urn:xmpp:ping'/>";

fn psi() -> ([HashedIdentity<'static>; 1], [&'static str; 3]) {
    (
        [HashedIdentity { category: "client", kind: "pc", lang: "", name: "Psi" }],
        ["http://jabber.org/protocol/caps", "http://jabber.org/protocol/disco#info", "urn:xmpp:ping"],
    )
}

fn ver_of(identities: &[HashedIdentity<'_>], features: &[&str], forms: &[HashedForm<'_>]) -> String {
    base64(CapsAlgorithm::Sha1.digest(&xep_0115_input(identities, features, forms)))
}

fn psi_ver() -> String {
    let (identities, features) = psi();
    ver_of(&identities, &features, &[])
}

fn psi_hash(algorithm: CapsAlgorithm) -> String {
    let (identities, features) = psi();
    base64(algorithm.digest(&xep_0390_input(&identities, &features, &[])))
}

fn xep_0115_element(ver: &str) -> String {
    format!(
        "<presence><c xmlns='http://jabber.org/protocol/caps' hash='sha-1' node='http://psi-im.org' ver='{ver}'/></presence>"
    )
}

fn xep_0390_element(hashes: &str) -> String {
    format!("<presence><c xmlns='urn:xmpp:caps'>{hashes}</c></presence>")
}

fn hash(algo: &str, text: &str) -> String {
    format!("<hash xmlns='urn:xmpp:hashes:2' algo='{algo}'>{text}</hash>")
}

/// Id and node of the disco queries that a client received; other stanzas are dropped.
fn disco_queries(client: &NodeClient) -> Vec<(String, Option<String>)> {
    client
        .recv()
        .iter()
        .filter(|stanza| stanza.starts_with("<iq type='get'"))
        .map(|stanza| {
            let tree = throng_core::shared_stanza::tree(stanza.as_bytes()).unwrap();
            let query = tree.root().child("query", Ns::DiscoInfo).unwrap();
            assert_eq!(tree.root().attr("from").as_deref(), Some("example.com"));
            assert_eq!(tree.root().attr("to").as_deref(), Some(client.full()));
            (tree.root().attr("id").unwrap().into_owned(), query.attr("node").map(|n| n.into_owned()))
        })
        .collect()
}

#[track_caller]
fn disco_query(client: &NodeClient) -> String {
    let mut all = disco_queries(client);
    assert_eq!(all.len(), 1, "one question to {}", client.full());
    all.remove(0).0
}

fn answer(client: &NodeClient, id: &str, info: &str) {
    client.send(&format!(
        "<iq to='example.com' type='result' id='{id}'><query xmlns='http://jabber.org/protocol/disco#info'>{info}</query></iq>"
    ));
}

fn features(engine: &TestNode, client: &NodeClient) -> Option<std::sync::Arc<FeatureSet>> {
    caps_cache(&engine.node).features(&client.session)
}

/// Announces, replies with `info`, and returns whether the reply was accepted.
fn is_accepted(engine: &TestNode, announced: &str, info: &str) -> bool {
    let mallory = engine.connect("mallory", "x");
    mallory.send(announced);
    for (id, _) in disco_queries(&mallory) {
        answer(&mallory, &id, info);
    }
    let believed = features(engine, &mallory).is_some();
    mallory.close();
    believed
}

#[test]
fn section_6_3_the_stream_features_name_nodes_that_disco_answers() {
    let engine = engine();
    let host = engine.node.host("example.com").unwrap();
    let stream = host.stream_features.to_xml(StreamFeatureStage::Authenticated);
    let (identities, forms) = hashed_parts(&HostDisco::of(&host).server);
    let ver = ver_of(&identities, &HostDisco::of(&host).server.features, &forms);
    let input = xep_0390_input(&identities, &HostDisco::of(&host).server.features, &forms);
    let hash = base64(CapsAlgorithm::Sha256.digest(&input));
    assert_eq!(
        stream,
        format!(
            "<c xmlns='http://jabber.org/protocol/caps' hash='sha-1' node='{NODE}' ver='{ver}'/>\
             <c xmlns='urn:xmpp:caps'><hash xmlns='urn:xmpp:hashes:2' algo='sha-256'>{hash}</hash></c>"
        )
    );
    let juliet = engine.connect("juliet", "balcony");
    for node in [format!("{NODE}#{ver}"), format!("urn:xmpp:caps#sha-256.{hash}")] {
        let answer = juliet.request(&format!(
            "<iq to='example.com' id='1' type='get'>\
             <query xmlns='http://jabber.org/protocol/disco#info' node='{node}'/></iq>"
        ));
        assert!(answer[0].contains("<feature var='http://jabber.org/protocol/caps'/>"), "{answer:?}");
    }
}

#[test]
fn one_client_is_queried_for_all_with_the_same_hash() {
    let engine = engine();
    let juliet = engine.connect("juliet", "balcony");
    let romeo = engine.connect("romeo", "orchard");
    juliet.send(&xep_0115_element(&psi_ver()));
    let queries = disco_queries(&juliet);
    assert_eq!(queries[0].1, Some(format!("http://psi-im.org#{}", psi_ver())));
    romeo.send(&xep_0115_element(&psi_ver()));
    assert!(disco_queries(&romeo).is_empty(), "the other one is being asked");
    assert!(features(&engine, &romeo).is_none());
    answer(&juliet, &queries[0].0, PSI);
    let (first, second) = (features(&engine, &juliet).unwrap(), features(&engine, &romeo).unwrap());
    assert!(std::sync::Arc::ptr_eq(&first, &second), "they share what was learnt");
    assert!(first.has("urn:xmpp:ping") && !first.has("urn:xmpp:pin") && first.features().count() == 3);
    assert_eq!(first.identities().collect::<Vec<_>>(), [("client", "pc")]);
    let nurse = engine.connect("nurse", "hall");
    nurse.send(&xep_0115_element(&psi_ver()));
    assert!(disco_queries(&nurse).is_empty() && features(&engine, &nurse).is_some());
    assert_eq!(pending_iq_count(&engine.node), 0);
}

#[test]
fn verified_features_outlive_their_clients_and_presence_without_a_hash_changes_nothing() {
    let engine = engine();
    let juliet = engine.connect("juliet", "balcony");
    juliet.send(&xep_0115_element(&psi_ver()));
    answer(&juliet, &disco_query(&juliet), PSI);
    juliet.send("<presence><show>away</show></presence>");
    assert!(features(&engine, &juliet).is_some());
    juliet.close();
    assert!(features(&engine, &juliet).is_none());
    let again = engine.connect("juliet", "balcony");
    assert!(features(&engine, &again).is_none());
    again.send(&xep_0115_element(&psi_ver()));
    assert!(disco_queries(&again).is_empty() && features(&engine, &again).is_some());
}

#[test]
fn xep_0390_takes_precedence_over_xep_0115_and_stronger_hashes_over_weaker() {
    let engine = engine();
    let juliet = engine.connect("juliet", "balcony");
    let both = xep_0390_element(
        &(hash("sha-256", &psi_hash(CapsAlgorithm::Sha256))
            + &hash("sha-512", &psi_hash(CapsAlgorithm::Sha512))
            + &hash("sha3-256", "AAAA")),
    );
    let both = both.replace("</presence>", &xep_0115_element(&psi_ver()).replace("<presence>", ""));
    juliet.send(&both);
    let queries = disco_queries(&juliet);
    assert_eq!(queries[0].1, Some(format!("urn:xmpp:caps#sha-512.{}", psi_hash(CapsAlgorithm::Sha512))));
    answer(&juliet, &queries[0].0, PSI);
    assert!(features(&engine, &juliet).unwrap().has("urn:xmpp:ping"));
}

#[test]
fn xep_0390_section_4_5_example_hashes_match() {
    let engine = engine();
    let bombus = "<identity category='client' name='BombusMod' type='mobile'/><feature var='http://jabber.org/protocol/si'/>\
        <feature var='http://jabber.org/protocol/bytestreams'/><feature var='http://jabber.org/protocol/chatstates'/>\
        <feature var='http://jabber.org/protocol/disco#info'/><feature var='http://jabber.org/protocol/disco#items'/>\
        <feature var='urn:xmpp:ping'/><feature var='jabber:iq:time'/><feature var='jabber:iq:privacy'/>\
        <feature var='jabber:iq:version'/><feature var='http://jabber.org/protocol/rosterx'/><feature var='urn:xmpp:time'/>\
        <feature var='jabber:x:oob'/><feature var='http://jabber.org/protocol/ibb'/>\
        <feature var='http://jabber.org/protocol/si/profile/file-transfer'/><feature var='urn:xmpp:receipts'/>\
        <feature var='jabber:iq:roster'/><feature var='jabber:iq:last'/>";
    assert!(is_accepted(
        &engine,
        &xep_0390_element(&hash("sha-256", "kzBZbkqJ3ADrj7v08reD1qcWUwNGHaidNUgD7nHpiw8=")),
        bombus
    ));
    let mut tkabber = String::from(
        "<identity category='client' name='Tkabber' type='pc' xml:lang='en'/>\
         <identity category='client' name='Ткаббер' type='pc' xml:lang='ru'/>",
    );
    for var in TKABBER.split_whitespace() {
        let _ = write!(tkabber, "<feature var='{var}'/>");
    }
    tkabber += "<x xmlns='jabber:x:data' type='result'><field type='hidden' var='FORM_TYPE'>\
        <value>urn:xmpp:dataforms:softwareinfo</value></field><field var='software'><value>Tkabber</value></field>\
        <field var='software_version'><value>0.11.1-svn-20111216-mod (Tcl/Tk 8.6b2)</value></field>\
        <field var='os'><value>Windows</value></field><field var='os_version'><value>XP</value></field></x>";
    assert!(is_accepted(
        &engine,
        &xep_0390_element(&hash("sha-256", "u79ZroNJbdSWhdSp311mddz44oHHPsEBntQ5b1jqBSY=")),
        &tkabber
    ));
}

const TKABBER: &str = "games:board http://jabber.org/protocol/activity http://jabber.org/protocol/activity+notify \
    http://jabber.org/protocol/bytestreams http://jabber.org/protocol/chatstates http://jabber.org/protocol/commands \
    http://jabber.org/protocol/disco#info http://jabber.org/protocol/disco#items http://jabber.org/protocol/evil \
    http://jabber.org/protocol/feature-neg http://jabber.org/protocol/geoloc http://jabber.org/protocol/geoloc+notify \
    http://jabber.org/protocol/ibb http://jabber.org/protocol/iqibb http://jabber.org/protocol/mood \
    http://jabber.org/protocol/mood+notify http://jabber.org/protocol/rosterx http://jabber.org/protocol/si \
    http://jabber.org/protocol/si/profile/file-transfer http://jabber.org/protocol/tune \
    http://www.facebook.com/xmpp/messages http://www.xmpp.org/extensions/xep-0084.html#ns-metadata+notify \
    jabber:iq:avatar jabber:iq:browse jabber:iq:dtcp jabber:iq:filexfer jabber:iq:ibb jabber:iq:inband \
    jabber:iq:jidlink jabber:iq:last jabber:iq:oob jabber:iq:privacy jabber:iq:roster jabber:iq:time \
    jabber:iq:version jabber:x:data jabber:x:event jabber:x:oob urn:xmpp:avatar:metadata+notify urn:xmpp:ping \
    urn:xmpp:receipts urn:xmpp:time";

#[test]
fn section_5_6_hashes_may_come_before_presence() {
    let engine = engine();
    let juliet = engine.connect("juliet", "balcony");
    let c = xep_0390_element(&hash("sha-256", &psi_hash(CapsAlgorithm::Sha256))).replace("presence>", "iq>");
    juliet.send(&c.replacen("<iq>", "<iq to='example.com' type='set' id='grat1'>", 1));
    let id = disco_query(&juliet);
    answer(&juliet, &id, PSI);
    assert!(features(&engine, &juliet).is_some());
}

#[test]
fn a_reply_with_another_hash_is_rejected_and_the_next_client_is_queried() {
    let engine = engine();
    let mallory = engine.connect("mallory", "x");
    let juliet = engine.connect("juliet", "balcony");
    mallory.send(&xep_0115_element(&psi_ver()));
    juliet.send(&xep_0115_element(&psi_ver()).replace("psi-im.org", "other.example"));
    answer(&mallory, &disco_query(&mallory), &PSI.replace("urn:xmpp:ping", "urn:evil"));
    assert!(features(&engine, &mallory).is_none());
    let queries = disco_queries(&juliet);
    assert_eq!(queries[0].1, None, "the node of the first one means nothing to the next");
    // The forging client may announce it any number of times.
    mallory.send(&xep_0115_element(&psi_ver()));
    assert!(disco_queries(&mallory).is_empty());
    answer(&juliet, &queries[0].0, PSI);
    assert!(features(&engine, &juliet).unwrap().has("urn:xmpp:ping"));
    assert!(
        !features(&engine, &mallory).unwrap().has("urn:evil"),
        "what is believed is what the hash stands for"
    );
}

#[test]
fn timeouts_errors_and_closed_sessions_move_the_query_to_the_next_client() {
    let engine = engine();
    let clients = ["mallory", "romeo", "nurse", "juliet"].map(|user| engine.connect(user, "x"));
    for client in &clients {
        client.send(&xep_0115_element(&psi_ver()));
    }
    let [silent, refusing, leaving, juliet] = &clients;
    disco_query(silent);
    engine.advance(TIMEOUT_SECONDS);
    let id = disco_query(refusing);
    refusing.send(&format!(
        "<iq to='example.com' type='error' id='{id}'><error type='cancel'>\
         <service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
    ));
    disco_query(leaving);
    leaving.close();
    engine.advance(1);
    answer(juliet, &disco_query(juliet), PSI);
    assert!(features(&engine, silent).is_some() && features(&engine, juliet).is_some());
}

#[test]
fn a_failed_client_is_queried_again_only_after_a_delay() {
    let engine = engine();
    let mallory = engine.connect("mallory", "x");
    mallory.send(&xep_0115_element(&psi_ver()));
    answer(&mallory, &disco_query(&mallory), "");
    mallory.send(&xep_0115_element(&psi_ver()));
    assert!(disco_queries(&mallory).is_empty());
    engine.advance(RETRY_AFTER_SECONDS);
    mallory.send(&xep_0115_element(&psi_ver()));
    answer(&mallory, &disco_query(&mallory), PSI);
    assert!(features(&engine, &mallory).is_some());
}

#[test]
fn unsolicited_foreign_and_repeated_replies_change_nothing() {
    let engine = engine();
    let (juliet, mallory) = (engine.connect("juliet", "balcony"), engine.connect("mallory", "x"));
    answer(&mallory, "1", PSI);
    juliet.send(&xep_0115_element(&psi_ver()));
    mallory.send(&xep_0115_element(&psi_ver()));
    let id = disco_query(&juliet);
    mallory.recv();
    answer(&mallory, &id, &PSI.replace("ping", "pong"));
    answer(&mallory, &id, PSI);
    assert!(features(&engine, &mallory).is_none(), "only who was asked answers");
    answer(&juliet, "other", PSI);
    assert!(features(&engine, &juliet).is_none());
    answer(&juliet, &id, PSI);
    answer(&juliet, &id, &PSI.replace("ping", "pong"));
    assert!(features(&engine, &juliet).unwrap().has("urn:xmpp:ping"));
    assert!(juliet.recv().is_empty() && mallory.recv().is_empty(), "an answer is never answered");
}

#[test]
fn unusable_announcements_cause_no_query() {
    let engine = engine();
    let mallory = engine.connect("mallory", "x");
    let c =
        |attrs: &str| format!("<presence><c xmlns='http://jabber.org/protocol/caps' {attrs}/></presence>");
    for announced in [
        // The legacy format, unsupported hash functions, and digests of the wrong length.
        c("node='http://psi-im.org' ver='0.9'"),
        c(&format!("hash='md5' node='n' ver='{}'", psi_ver())),
        c(&format!("hash='sha-256' node='n' ver='{}'", psi_ver())),
        c("hash='sha-1' node='n' ver=''"),
        c("hash='sha-1' node='n' ver='not base64!'"),
        c(&format!("hash='sha-1' node='{}' ver='{}'", "n".repeat(600), psi_ver())),
        c(&format!("hash='sha-1' node='n' ver='{}'", "A".repeat(100_000))).replacen(
            "<presence>",
            "<presence >",
            1,
        ),
        xep_0390_element(&hash("sha-1", &psi_ver())),
        xep_0390_element(&hash("sha-256", &psi_ver())),
        xep_0390_element(""),
        xep_0390_element(&hash("sha-256", &"A".repeat(500))),
        xep_0390_element(&format!(
            "<x xmlns='u:v'>{}</x>",
            hash("sha-256", &psi_hash(CapsAlgorithm::Sha256))
        )),
    ] {
        mallory.send(&announced);
        assert!(disco_queries(&mallory).is_empty(), "{:.120}", announced);
    }
    assert_eq!(caps_cache(&engine.node).usage(), (0, 0));
}

#[test]
fn ambiguous_replies_are_rejected() {
    let engine = engine();
    // Each matches the announced hash, and yet no honest client would send it.
    let check = |identities: &[HashedIdentity<'_>], list: &[&str], forms: &[HashedForm<'_>], info: &str| {
        is_accepted(&engine, &xep_0115_element(&ver_of(identities, list, forms)), info)
    };
    let (identities, all) = psi();
    assert!(check(&identities, &all, &[], PSI), "the honest one");
    let text = |list: &[&str]| list.iter().map(|f| format!("<feature var='{f}'/>")).collect::<String>();
    let identity = "<identity category='client' type='pc' name='Other'/>";
    let other = [HashedIdentity { name: "Other", ..identities[0] }];
    // Features hidden in the name of an identity, or in one another.
    let name = HashedIdentity { name: "Other<http://jabber.org/protocol/caps", ..identities[0] };
    let hidden = "<identity category='client' type='pc' name='Other&lt;http://jabber.org/protocol/caps'/>";
    assert!(!check(&[name], &all[1..], &[], &format!("{hidden}{}", text(&all[1..]))));
    assert!(!check(&other, &["a<b"], &[], &format!("{identity}<feature var='a&lt;b'/>")));
    // Features disguised as identities, and vice versa.
    let web = HashedIdentity { category: "http:", kind: "", lang: "jabber.org", name: "protocol/caps" };
    let hidden = "<identity category='http:' type='' xml:lang='jabber.org' name='protocol/caps'/>";
    assert!(!check(&[other[0], web], &["u:x"], &[], &format!("{identity}{hidden}{}", text(&["u:x"]))));
    assert!(!check(&[], &["client/pc//Other", "u:x"], &[], &text(&["client/pc//Other", "u:x"])));
    assert!(!check(
        &other,
        &["client/pc/de/Other"],
        &[],
        &format!("{identity}{}", text(&["client/pc/de/Other"]))
    ));
    // Features hidden in a form.
    let form = |form_type: &'static str, var: &'static str| HashedForm {
        form_type,
        fields: vec![(var, vec!["urn:z"])],
    };
    let x = |form_type: &str, var: &str| {
        format!(
            "<x xmlns='jabber:x:data' type='result'><field var='FORM_TYPE' type='hidden'><value>{form_type}</value></field>\
             <field var='{var}'><value>urn:z</value></field></x>"
        )
    };
    let soft = "urn:xmpp:dataforms:softwareinfo";
    assert!(check(
        &other,
        &["u:x"],
        &[form(soft, "os")],
        &format!("{identity}{}{}", text(&["u:x"]), x(soft, "os"))
    ));
    assert!(!check(
        &other,
        &["u:x"],
        &[form("urn:a", "os")],
        &format!("{identity}{}{}", text(&["u:x"]), x("urn:a", "os"))
    ));
    assert!(!check(
        &other,
        &["u:x"],
        &[form(soft, "urn:b")],
        &format!("{identity}{}{}", text(&["u:x"]), x(soft, "urn:b"))
    ));
    // Duplicates.
    assert!(!check(&other, &["u:x", "u:x"], &[], &format!("{identity}{}", text(&["u:x", "u:x"]))));
    assert!(!check(&[other[0], other[0]], &["u:x"], &[], &format!("{identity}{identity}{}", text(&["u:x"]))));
    assert!(!check(&[], &all, &[], &text(&all)), "nobody without an identity");
}

#[test]
fn forms_of_unknown_type_are_ignored_by_xep_0115_and_refused_by_xep_0390() {
    let engine = engine();
    let untyped = "<x xmlns='jabber:x:data' type='result'><field var='os'><value>x</value></field></x>";
    assert!(is_accepted(&engine, &xep_0115_element(&psi_ver()), &format!("{PSI}{untyped}")));
    let engine = self::engine();
    let two = xep_0390_element(&hash("sha-256", &psi_hash(CapsAlgorithm::Sha256)));
    assert!(!is_accepted(&engine, &two, &format!("{PSI}{untyped}")));
    assert!(!is_accepted(&engine, &two, &format!("{PSI}<other xmlns='u:v'/>")));
    assert!(is_accepted(&engine, &two, PSI));
}

#[test]
fn oversized_replies_are_not_parsed() {
    let engine = engine();
    let list: Vec<String> = (0..2_000).map(|i| format!("urn:feature:number:{i:010}")).collect();
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    let (identities, _) = psi();
    let mut info = "<identity category='client' type='pc' name='Psi'/>".to_owned();
    for var in &list {
        let _ = write!(info, "<feature var='{var}'/>");
    }
    assert!(!is_accepted(&engine, &xep_0115_element(&ver_of(&identities, &list, &[])), &info));
    assert_eq!(caps_cache(&engine.node).usage().1, 0);
}

#[test]
fn an_inherited_language_counts() {
    let engine = engine();
    let (mut identities, all) = psi();
    identities[0].lang = "de";
    let juliet = engine.connect("juliet", "balcony");
    juliet.send(&xep_0115_element(&ver_of(&identities, &all, &[])));
    let id = disco_query(&juliet);
    juliet.send(&format!(
        "<iq to='example.com' type='result' id='{id}' xml:lang='de'>\
         <query xmlns='http://jabber.org/protocol/disco#info'>{PSI}</query></iq>"
    ));
    assert!(features(&engine, &juliet).is_some());
}

#[test]
fn a_flood_of_hashes_is_bounded_and_evicts_no_verified_entry() {
    let engine = engine();
    let juliet = engine.connect("juliet", "balcony");
    juliet.send(&xep_0115_element(&psi_ver()));
    answer(&juliet, &disco_query(&juliet), PSI);
    let mallory = engine.connect("mallory", "x");
    let mut queries = 0;
    for i in 0..MAX_ENTRIES + 100 {
        let ver = base64(CapsAlgorithm::Sha1.digest(&i.to_be_bytes()));
        mallory.send(&xep_0115_element(&ver));
        queries += disco_queries(&mallory).len();
    }
    assert!(queries <= feature_api::server_iq::MAX_PENDING_PER_SESSION, "{queries} questions to one client");
    assert!(caps_cache(&engine.node).usage().0 <= 3, "{:?}", caps_cache(&engine.node).usage());
    assert!(features(&engine, &juliet).is_some());
    mallory.close();
    engine.advance(TIMEOUT_SECONDS);
    assert_eq!(pending_iq_count(&engine.node), 0);
    assert_eq!(caps_cache(&engine.node).usage().0, 1, "what nobody has and nobody knows is gone");
}

#[test]
fn sessions_without_an_announcement_and_directed_presence_have_no_entry() {
    let engine = engine();
    let juliet = engine.connect("juliet", "balcony");
    juliet.send("<presence/>");
    juliet.send(&xep_0115_element(&psi_ver()).replacen("<presence>", "<presence to='romeo@example.com'>", 1));
    assert!(disco_queries(&juliet).is_empty());
    assert_eq!(caps_cache(&engine.node).usage(), (0, 0));
}
