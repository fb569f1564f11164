//! What clients do with nodes: XEP-0222, XEP-0223, XEP-0384, XEP-0402, XEP-0490, XEP-0080, XEP-0107, XEP-0108, XEP-0118, XEP-0172.

use super::*;

fn publish_with(client: &NodeClient, node: &str, id: &str, fields: &[(&str, &str)]) -> String {
    let options = form("publish-options", fields);
    set(client, &format!("{}<publish-options>{options}</publish-options>", publish_request(node, id)))
}

const PRIVATE: &[(&str, &str)] = &[
    ("persist_items", "true"),
    ("max_items", "max"),
    ("send_last_published_item", "never"),
    ("access_model", "whitelist"),
];

#[test]
fn private_data_is_for_the_own_clients_and_keeps_all_items() {
    let engine = verona();
    for node in ["urn:xmpp:bookmarks:1", "urn:xmpp:mds:displayed:0"] {
        let juliet = connect(&engine, "juliet", "balcony", &[]);
        let chamber = connect(&engine, "juliet", "chamber", &[node]);
        let romeo = connect(&engine, "romeo", "orchard", &[node]);
        for id in ["a@muc", "b@muc", "c@muc"] {
            assert!(publish_with(&juliet, node, id, PRIVATE).contains("type='result'"));
        }
        assert_eq!(events(&chamber.recv()).len(), 3);
        assert!(romeo.recv().is_empty());
        let items = format!("<items node='{node}'/>");
        assert!(get(&romeo, "juliet@example.com", &items).contains("<item-not-found "));
        assert_eq!(get(&chamber, "", &items).matches("<item ").count(), 3);
        // Section 7.1.5 of XEP-0060: the node has another configuration.
        let other = publish_with(&juliet, node, "d@muc", &[("access_model", "open")]);
        assert!(other.contains("<precondition-not-met "), "{other}");
        juliet.close();
        chamber.close();
        romeo.close();
    }
}

#[test]
fn keys_of_omemo_are_open_if_the_client_says_so() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let benvolio = connect(&engine, "benvolio", "street", &[]);
    let open = &[("access_model", "open"), ("persist_items", "true")][..];
    for (node, more) in [
        ("eu.siacs.conversations.axolotl.devicelist", &[][..]),
        ("eu.siacs.conversations.axolotl.bundles:31415", &[][..]),
        ("urn:xmpp:omemo:2:devices", &[][..]),
        ("urn:xmpp:omemo:2:bundles", &[("max_items", "max")][..]),
    ] {
        let fields = [open, more].concat();
        let done = publish_with(&juliet, node, "current", &fields);
        assert!(done.contains("type='result'"), "{node}: {done}");
        let items = get(&benvolio, "juliet@example.com", &format!("<items node='{node}'/>"));
        assert!(items.contains("<item id='current'>"), "{items}");
    }
}

#[test]
fn moods_activities_tunes_locations_and_nicknames_pass() {
    let engine = verona();
    let nodes = [
        "http://jabber.org/protocol/mood",
        "http://jabber.org/protocol/activity",
        TUNE,
        "http://jabber.org/protocol/geoloc",
        "http://jabber.org/protocol/nick",
    ];
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let romeo = connect(&engine, "romeo", "orchard", &nodes);
    for node in nodes {
        publish(&juliet, node, "current");
        assert_eq!(events(&romeo.recv()), [format!("{node} current")]);
    }
}
