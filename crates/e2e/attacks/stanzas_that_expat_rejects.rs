//! Stanza that the server accepts and the victim's client rejects.
//!
//! Done: messages with names that only the fifth edition of XML 1.0 allows, and with namespace names that contain
//! the characters with which users of expat separate a namespace name from a local name: a space (nbxmpp, and so
//! Gajim), `}` (ElementTree, and so slixmpp), `|`, control characters.
//!
//! Rule: RFC 6120, section 11.3, and Namespaces in XML 1.0, section 2.2 (a namespace name is a URI reference). RFC
//! 6120 refers to the fifth edition, so the names are well-formed and refusing them is a policy (section 4.9.3.14).
//! A client that fails loses its stream, and with XEP-0198 or XEP-0160 it receives the same stanza again at each
//! login. Expat fails on such namespace names since 2.4.5 (CVE-2022-25236).
//!
//! Right: the sender's stream ends with `policy-violation` and the victim receives nothing.

use testkit::server::ReceivedEvent;

use crate::support::{ClientTransport, assert_alive, pair, read_until_end, stream_error};

const POISONS: &[&str] = &[
    "<\u{2C00}/>",
    "<a\u{203F}b/>",
    "<\u{10400}/>",
    "<a \u{1E9E}=''/>",
    "<\u{FA10}:a xmlns:\u{FA10}='urn:a'/>",
    "<a xmlns:a\u{35C}='urn:a'/>",
    "<a xmlns='urn:a b'/>",
    "<a xmlns='urn:a&#32;b'/>",
    "<a xmlns='urn:a}b'/>",
    "<a xmlns:p='urn:a|b'/>",
    "<a xmlns:p='urn:a&#x7d;b'/>",
    "<a xmlns='urn:\n'/>",
    "<a xmlns='urn:&#9;'/>",
    "<a xmlns='urn:\u{7F}'/>",
];

#[tokio::test]
async fn nothing_that_expat_rejects_is_delivered() {
    for transport in ClientTransport::ALL {
        let server = transport.start();
        let (mut romeo, mut juliet) = pair(&server).await;
        for poison in POISONS {
            let message = format!("<message to='juliet@example.com/balcony'>{poison}</message>");
            let _ = romeo.try_send(message).await;
            let received = read_until_end(&mut romeo).await;
            // Over BOSH the whole request may be refused before the stream receives it.
            let error = stream_error(&received);
            assert!(
                error.as_deref() == Some("policy-violation") || transport == ClientTransport::Bosh,
                "{transport:?} {poison}: {received:?}"
            );
            assert!(assert_alive(&mut juliet).await.is_empty(), "{transport:?} {poison}");
            romeo = server.login("romeo", "orchard").await;
        }
        assert_eq!(juliet.try_receive().await, None::<ReceivedEvent>, "{transport:?}");
    }
}
