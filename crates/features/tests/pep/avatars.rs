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
