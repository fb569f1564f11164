//! Avatars and photos of vCards: XEP-0398 1.0.0.

use super::*;

const DATA: &str = "urn:xmpp:avatar:data";
const METADATA: &str = "urn:xmpp:avatar:metadata";
/// `printf photo | sha1sum`
pub(crate) const SHA1: &str = "eeb35d331bddcddfdbb0a6d16f64120bb01356fd";
const BASE64: &str = "cGhvdG8=";
pub(crate) const VCARD: &str = "<vCard xmlns='vcard-temp'><FN>Juliet</FN><PHOTO><TYPE>image/png</TYPE>\
    <BINVAL>cGhv\ndG8=</BINVAL></PHOTO></vCard>";

fn publish_as(client: &NodeClient, node: &str, id: &str, payload: &str, access: &str) {
    let options = match access {
        "" => String::new(),
        access => format!(
            "<publish-options>{}</publish-options>",
            form("publish-options", &[("access_model", access)])
        ),
    };
    let content = format!("<publish node='{node}'><item id='{id}'>{payload}</item></publish>{options}");
    let published = set(client, &content);
    assert!(published.contains("type='result'"), "{published}");
}

fn publish_data(client: &NodeClient, access: &str) {
    publish_as(client, DATA, SHA1, &format!("<data xmlns='{DATA}'>{BASE64}</data>"), access);
}

fn info(url: &str) -> String {
    format!("<info bytes='5' id='{SHA1}' type='image/png' height='64' width='64'{url}/>")
}

fn publish_metadata(client: &NodeClient, infos: &str) {
    let id = if infos.is_empty() { "none" } else { SHA1 };
    publish_as(client, METADATA, id, &format!("<metadata xmlns='{METADATA}'>{infos}</metadata>"), "");
}

fn vcard(engine: &TestNode, client: &NodeClient) -> String {
    engine.run_tasks();
    client.recv();
    answer(client.request("<iq type='get' to='juliet@example.com' id='v'><vCard xmlns='vcard-temp'/></iq>"))
}

fn set_vcard(engine: &TestNode, client: &NodeClient, card: &str) {
    let stored = answer(client.request(&format!("<iq type='set' id='v'>{card}</iq>")));
    assert!(stored.contains("type='result'"), "{stored}");
    engine.run_tasks();
}

#[test]
fn section_2_the_conversion_is_discovered() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let query = "<iq to='juliet@example.com' id='01' type='get'><query xmlns='http://jabber.org/protocol/disco#info'/></iq>";
    assert!(answer(juliet.request(query)).contains("<feature var='urn:xmpp:pep-vcard-conversion:0'/>"));
}

#[test]
fn section_3_1_an_open_avatar_becomes_the_photo_of_the_vcard() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let romeo = connect(&engine, "romeo", "orchard", &[]);
    let benvolio = connect(&engine, "benvolio", "street", &[]);
    set_vcard(&engine, &juliet, "<vCard xmlns='vcard-temp'><FN>Juliet</FN></vCard>");
    publish_data(&juliet, "open");
    let elsewhere =
        format!("<info bytes='9' id='{}' type='image/gif' url='http://a/b.gif'/>", "0".repeat(40));
    publish_metadata(&juliet, &format!("{elsewhere}{}", info("")));
    engine.run_tasks();
    let announced = romeo.recv();
    assert!(announced.iter().any(|one| one.contains(&format!("<photo>{SHA1}</photo>"))), "{announced:?}");
    let card = vcard(&engine, &benvolio);
    assert!(
        card.contains("<FN>Juliet</FN>") && card.contains(&format!("<BINVAL>{BASE64}</BINVAL>")),
        "{card}"
    );
    assert!(card.contains("<TYPE>image/png</TYPE>"), "{card}");
    // XEP-0084, section 3.5: no avatar.
    publish_metadata(&juliet, "");
    let card = vcard(&engine, &benvolio);
    assert!(card.contains("<FN>Juliet</FN>") && !card.contains("PHOTO"), "{card}");
}

#[test]
fn section_7_an_avatar_that_is_not_open_stays_out_of_the_vcard() {
    for access in ["", "presence", "whitelist"] {
        let engine = verona();
        let juliet = connect(&engine, "juliet", "balcony", &[]);
        let benvolio = connect(&engine, "benvolio", "street", &[]);
        publish_data(&juliet, access);
        publish_metadata(&juliet, &info(""));
        assert!(!vcard(&engine, &benvolio).contains("PHOTO"), "{access}");
    }
}

#[test]
fn only_data_with_their_hash_at_the_data_node_are_converted() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    publish_as(&juliet, DATA, SHA1, &format!("<data xmlns='{DATA}'>b3RoZXI=</data>"), "open");
    publish_metadata(&juliet, &info(""));
    assert!(!vcard(&engine, &juliet).contains("PHOTO"), "another image");
    publish_data(&juliet, "");
    publish_metadata(&juliet, &info(" url='http://avatars.example.org/happy.gif'"));
    assert!(!vcard(&engine, &juliet).contains("PHOTO"), "elsewhere");
    publish_metadata(&juliet, &info(""));
    assert!(vcard(&engine, &juliet).contains(BASE64));
}

#[test]
fn section_3_2_the_photo_of_a_vcard_becomes_an_avatar() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let romeo = connect(&engine, "romeo", "orchard", &[METADATA]);
    let benvolio = connect(&engine, "benvolio", "street", &[]);
    set_vcard(&engine, &juliet, VCARD);
    assert_eq!(events(&romeo.recv()), [format!("{METADATA} {SHA1}")]);
    let to = "juliet@example.com";
    let data = get(&benvolio, to, &format!("<items node='{DATA}'><item id='{SHA1}'/></items>"));
    assert!(data.contains(&format!("<data xmlns='{DATA}'>{BASE64}</data>")), "{data}");
    let metadata = get(&benvolio, to, &format!("<items node='{METADATA}'/>"));
    assert!(metadata.contains(&format!("<info bytes='5' id='{SHA1}' type='image/png'/>")), "{metadata}");
    assert_eq!(vcard(&engine, &juliet).matches("<PHOTO>").count(), 1, "unchanged");
    // Another change of the vCard is none of the avatar.
    set_vcard(&engine, &juliet, &VCARD.replace("Juliet", "J."));
    assert!(events(&romeo.recv()).is_empty());
    set_vcard(&engine, &juliet, "<vCard xmlns='vcard-temp'><FN>J.</FN></vCard>");
    assert_eq!(events(&romeo.recv()).len(), 1);
    let metadata = get(&benvolio, to, &format!("<items node='{METADATA}'/>"));
    assert!(metadata.contains(&format!("<metadata xmlns='{METADATA}'/>")), "{metadata}");
}

#[test]
fn a_photo_of_no_image_type_and_a_vcard_without_one_make_no_nodes() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    set_vcard(&engine, &juliet, "<vCard xmlns='vcard-temp'><FN>J.</FN></vCard>");
    set_vcard(&engine, &juliet, &VCARD.replace("image/png", "text/html"));
    for node in [DATA, METADATA] {
        assert!(get(&juliet, "", &format!("<items node='{node}'/>")).contains("<item-not-found "), "{node}");
    }
}

#[test]
fn section_7_an_avatar_that_cannot_be_copied_leaves_no_former_photo() {
    let other = "0".repeat(40);
    let with_photo = || {
        let engine = verona();
        let juliet = connect(&engine, "juliet", "balcony", &[]);
        set_vcard(&engine, &juliet, VCARD);
        assert!(vcard(&engine, &juliet).contains("PHOTO"));
        (engine, juliet)
    };
    let close = |juliet: &NodeClient| {
        let config = form("node_config", &[("access_model", "whitelist")]);
        let configure = format!("<configure node='{DATA}'>{config}</configure>");
        assert!(answer(pubsub(juliet, "", "set", "#owner", &configure)).contains("type='result'"));
    };
    // The user has no avatar any more, after the data were closed.
    let (engine, juliet) = with_photo();
    close(&juliet);
    publish_metadata(&juliet, "");
    let card = vcard(&engine, &juliet);
    assert!(card.contains("<FN>Juliet</FN>") && !card.contains("PHOTO"), "{card}");
    // Another avatar that is not open, one elsewhere, and one whose data are not what they say.
    let info = |url: &str| format!("<info bytes='5' id='{other}' type='image/png'{url}/>");
    let (engine, juliet) = with_photo();
    close(&juliet);
    publish_as(&juliet, DATA, &other, &format!("<data xmlns='{DATA}'>b3RoZXI=</data>"), "");
    publish_metadata(&juliet, &info(""));
    assert!(!vcard(&engine, &juliet).contains("PHOTO"), "closed");
    let (engine, juliet) = with_photo();
    publish_metadata(&juliet, &info(" url='http://avatars.example.org/happy.gif'"));
    assert!(!vcard(&engine, &juliet).contains("PHOTO"), "elsewhere");
    let (engine, juliet) = with_photo();
    publish_as(&juliet, DATA, &other, &format!("<data xmlns='{DATA}'>b3RoZXI=</data>"), "");
    publish_metadata(&juliet, &info(""));
    assert!(!vcard(&engine, &juliet).contains("PHOTO"), "another image");
}

#[test]
fn the_photo_stays_until_the_data_of_another_avatar_have_come() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let other = "d0941e68da8f38151ff86a61fc59f7c5cf9fcaa2";
    set_vcard(&engine, &juliet, VCARD);
    publish_metadata(&juliet, &format!("<info bytes='5' id='{other}' type='image/png'/>"));
    assert!(vcard(&engine, &juliet).contains("dG8="));
    publish_as(&juliet, DATA, other, &format!("<data xmlns='{DATA}'>b3RoZXI=</data>"), "");
    assert!(vcard(&engine, &juliet).contains("b3RoZXI="), "also if they come after the metadata");
}

#[test]
fn section_3_2_metadata_are_published_when_the_data_are_stored() {
    let engine = verona_with("pep", "payload_bytes", 150);
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let romeo = connect(&engine, "romeo", "orchard", &[METADATA]);
    set_vcard(&engine, &juliet, &VCARD.replace("cGhv", &"cGhv".repeat(50)));
    assert!(events(&romeo.recv()).is_empty(), "the data are too large for the node");
    set_vcard(&engine, &juliet, VCARD);
    assert_eq!(events(&romeo.recv()).len(), 1);
    // The data node is not in memory, and is read first: the metadata wait for it.
    let engine = TestNode::with_waiting_handlers(ALL);
    people(&engine);
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let romeo = connect(&engine, "romeo", "orchard", &[METADATA]);
    engine.hold_store_call(Some("pubsub.apply"));
    juliet.send(&format!("<iq type='set' id='v'>{VCARD}</iq>"));
    settle(&engine);
    assert!(events(&romeo.recv()).is_empty(), "before the data are stored");
    engine.hold_store_call(None);
    settle(&engine);
    assert_eq!(events(&romeo.recv()).len(), 1);
}

#[test]
fn a_vcard_that_changes_meanwhile_keeps_its_change() {
    let engine = TestNode::with_waiting_handlers(ALL);
    people(&engine);
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    set_vcard(&engine, &juliet, "<vCard xmlns='vcard-temp'><FN>Juliet</FN></vCard>");
    publish_data(&juliet, "open");
    settle(&engine);
    engine.hold_store_call(Some("vcards.get"));
    publish_metadata(&juliet, &info(""));
    settle(&engine);
    let stored = answer(
        juliet.request("<iq type='set' id='v'><vCard xmlns='vcard-temp'><FN>J. Capulet</FN></vCard></iq>"),
    );
    assert!(stored.contains("type='result'"), "{stored}");
    engine.hold_store_call(None);
    settle(&engine);
    let card = vcard(&engine, &juliet);
    assert!(card.contains("J. Capulet") && card.contains(BASE64), "{card}");
}

#[test]
fn an_avatar_that_is_too_large_for_the_vcard_leaves_no_former_photo() {
    let engine = verona_with("vcard", "max_bytes", 1_024);
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    set_vcard(&engine, &juliet, VCARD);
    // `head -c 1500 /dev/zero | sha1sum`
    let large = "AAAA".repeat(500);
    let hash = "4aef92218368e0df083c33a32b2e8d88e35b57b1";
    publish_as(&juliet, DATA, hash, &format!("<data xmlns='{DATA}'>{large}</data>"), "");
    publish_metadata(&juliet, &format!("<info bytes='1500' id='{hash}' type='image/png'/>"));
    let card = vcard(&engine, &juliet);
    assert!(card.contains("<FN>Juliet</FN>") && !card.contains("PHOTO"), "{card}");
}
