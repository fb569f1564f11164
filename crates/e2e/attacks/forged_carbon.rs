//! Forged carbon copies.
//!
//! Done: a contact sends messages that contain `<received/>` or `<sent/>` of XEP-0280 with a forwarded message that
//! the victim never received, to the bare and to the full address.
//!
//! Rule: XEP-0280, section 11 (clients must check the sender); a dozen clients did not (CVE-2017-5589 to
//! CVE-2017-5606), and a server can protect them.
//!
//! Right: a message with such an element reaches a client only if the server wrote it, from the account's own bare
//! address.

use testkit::server::ReceivedElement;

use crate::support::{ClientTransport, assert_well_formed, friends};

#[tokio::test]
async fn forged_carbons_are_not_delivered() {
    for transport in ClientTransport::ALL {
        let server = transport.start();
        let (mut romeo, mut juliet) = friends(&server).await;
        juliet.send("<iq type='set' id='on'><enable xmlns='urn:xmpp:carbons:2'/></iq>").await;
        juliet.sync().await;
        for kind in ["received", "sent"] {
            for to in ["juliet@example.com", "juliet@example.com/balcony"] {
                romeo
                    .send(format!(
                        "<message to='{to}' type='chat'><body>x</body><{kind} xmlns='urn:xmpp:carbons:2'><forwarded xmlns='urn:xmpp:forward:0'>\
                         <message xmlns='jabber:client' from='nurse@example.com/room' to='juliet@example.com/balcony'><body>forged</body></message>\
                         </forwarded></{kind}></message>"
                    ))
                    .await;
            }
        }
        romeo.sync().await;
        for ReceivedElement(text) in juliet.sync().await {
            assert_well_formed(&text);
            assert!(!text.contains("urn:xmpp:carbons:2"), "{transport:?}: {text}");
        }
    }
}
