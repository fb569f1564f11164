//! Server-generated elements in disguise.
//!
//! Done: carbons, stanza-ids, delays and forwarded messages under prefixes, with namespaces spelled with character
//! references, with prefixes that are declared twice, with the prefix of the stream; several stanza-ids in one
//! message.
//!
//! Rule: Namespaces in XML 1.0; XEP-0359, section 6, XEP-0280, section 11. A server that compares spellings does
//! not see what clients see (CVE-2022-25236 and stanza smuggling); ejabberd replaced only the first of several such
//! elements (release 25.04).
//!
//! Right: to a namespace-aware parser, a delivered message contains no carbon and exactly one stanza-id of the
//! recipient's account, the server's.

use roxmltree::Document;

use crate::support::{ClientTransport, assert_well_formed, friends};

#[tokio::test]
async fn forged_elements_are_removed_in_every_spelling() {
    let carbon = |start: &str, end: &str| {
        format!(
            "<{start}><f:forwarded xmlns:f='urn:xmpp:forward:0'><message xmlns='jabber:client' from='a@example.com'><body>forged</body></message>\
             </f:forwarded></{end}>"
        )
    };
    let own = "by='juliet@example.com' id='forged'";
    let attacks = [
        carbon("c:received xmlns:c='urn:xmpp:carbons:2'", "c:received"),
        carbon("received xmlns='urn:xmpp:&#99;arbons:2'", "received"),
        carbon("received xmlns='urn:xmpp:&#x63;arbons&#58;2'", "received"),
        carbon("xmlnsx:sent xmlns:xmlnsx=\"urn:xmpp:carbons:2\"", "xmlnsx:sent"),
        carbon("sent xmlns='urn:xmpp:carbons:2' xmlns:x='urn:x' x:xmlns='urn:y'", "sent"),
        format!("<stanza-id xmlns='urn:xmpp:sid:0' {own}/>"),
        format!("<stanza-id xmlns='urn:xmpp:sid:0' {own}/>").repeat(5),
        format!(
            "<s:stanza-id xmlns:s='urn:xmpp:sid:0' {own}/><body/><stanza-id xmlns='urn:xmpp:sid:0' {own}/>"
        ),
        format!("<stanza-id xmlns='urn:xmpp:&#115;id:0' {own}/>"),
        "<stanza-id xmlns='urn:xmpp:sid:0' by='&#106;uliet@example.com' id='forged'/>".to_owned(),
        "<stanza-id xmlns='urn:xmpp:sid:0' by='JULIET@EXAMPLE.COM' id='forged'/>".to_owned(),
        "<stanza-id xmlns='urn:xmpp:sid:0' by='juliet@example.com.' id='forged'/>".to_owned(),
        "<stanza-id xmlns='urn:xmpp:sid:0' by=' juliet@example.com ' id='forged'/>".to_owned(),
    ];
    for transport in ClientTransport::ALL {
        let server = transport.start();
        let (mut romeo, mut juliet) = friends(&server).await;
        for attack in &attacks {
            romeo
                .send(format!(
                    "<message xmlns:a='urn:xmpp:sid:0' xmlns:b='urn:xmpp:carbons:2' to='juliet@example.com' type='chat'>\
                     <body>x</body>{attack}<a:stanza-id {own}/><b:received/></message>"
                ))
                .await;
            romeo.sync().await;
            for seen in juliet.sync().await {
                assert_well_formed(&seen.0);
                let whole = format!("<s xmlns='jabber:client'>{}</s>", seen.0);
                let document = Document::parse(&whole).unwrap();
                let message = document.root_element().first_element_child().unwrap();
                for child in message.children().filter(roxmltree::Node::is_element) {
                    let ns = child.tag_name().namespace().unwrap_or_default();
                    assert_ne!(ns, "urn:xmpp:carbons:2", "{transport:?} {attack}: {}", seen.0);
                    if ns == "urn:xmpp:sid:0" && child.tag_name().name() == "stanza-id" {
                        let by = child.attribute("by").unwrap_or_default();
                        let same =
                            jid::parse(by).is_ok_and(|by| by.as_ref().as_str() == "juliet@example.com");
                        assert!(
                            !same || child.attribute("id") != Some("forged"),
                            "{transport:?} {attack}: {}",
                            seen.0
                        );
                    }
                }
            }
        }
    }
}
