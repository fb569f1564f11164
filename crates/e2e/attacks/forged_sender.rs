//! Forged sender address.
//!
//! Done: stanzas with a foreign address in `from`, in every form: the victim, the server, no resource, an escaped
//! character, a prefixed attribute, `from` twice, an empty one, and a roster push that seems to come from the
//! victim's own account.
//!
//! Rule: RFC 6120, section 8.1.2.1; RFC 6121, section 2.1.6. Clients accepted such roster pushes (CVE-2015-8688,
//! CVE-2016-9928).
//!
//! Right: the stanza is refused or arrives with the real address of its sender.

use testkit::server::ReceivedEvent;

use crate::support::{ClientTransport, bare, friends};

#[tokio::test]
async fn every_stanza_carries_the_address_of_its_sender() {
    for transport in ClientTransport::ALL {
        for from in [
            "from='juliet@example.com'",
            "from='juliet@example.com/balcony'",
            "from='example.com'",
            "from=''",
            "from='romeo@example.com'",
            "from='romeo@example.com/ORCHARD'",
            "from='romeo@example.com/other'",
            "from='&#106;uliet@example.com'",
            "from='romeo@example.com/orchard/../juliet'",
            "from='romeo@example.com\u{2f}balcony'",
            "xmlns:x='jabber:client' x:from='juliet@example.com'",
            "FROM='juliet@example.com'",
        ] {
            let server = transport.start();
            let (mut romeo, mut juliet) = friends(&server).await;
            let payload =
                "<query xmlns='jabber:iq:roster'><item jid='evil@example.com' subscription='both'/></query>";
            for stanza in [
                format!("<iq {from} to='juliet@example.com/balcony' type='set' id='push'>{payload}</iq>"),
                format!("<message {from} to='juliet@example.com'><body>x</body></message>"),
                format!("<presence {from} to='juliet@example.com'/>"),
                format!("<presence {from} type='subscribed' to='juliet@example.com'/>"),
            ] {
                if romeo.try_send(&stanza).await.is_err() {
                    break;
                }
            }
            // Either the stream ended or every stanza was handled.
            let _ = romeo.try_send("<iq type='get' id='done'><ping xmlns='urn:xmpp:ping'/></iq>").await;
            loop {
                match romeo.receive().await {
                    ReceivedEvent::Element(seen) if seen.attr("id").as_deref() == Some("done") => break,
                    ReceivedEvent::Eof => break,
                    _ => {}
                }
            }
            let own = bare(&juliet);
            for seen in crate::support::assert_alive(&mut juliet).await {
                let sender = seen.attr("from").unwrap_or_default();
                let push = seen.name() == "iq" && (sender.is_empty() || sender == own);
                let real = sender == "romeo@example.com/orchard" || sender == "romeo@example.com";
                assert!(real || push && !seen.has("evil@"), "{transport:?} {from}: {}", seen.0);
            }
        }
    }
}
