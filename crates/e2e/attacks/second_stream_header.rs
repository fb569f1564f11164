//! Stream header within a stream.
//!
//! Done: a second stream header within a stream, at each stage and within a stanza; a closing tag followed by more;
//! an element of the stream's namespace that only servers send.
//!
//! Rule: RFC 6120, sections 4.2, 4.4 and 4.9.3; smuggled headers make one user's bytes appear as the server's (I.
//! Fratric, "XMPP stanza smuggling", Black Hat 2022, CVE-2022-22784 to 22787).
//!
//! Right: the stream ends, nothing after the invalid element is processed, and nothing of it reaches others.

use crate::support::{ClientTransport, friends, pair, read_until_end, stream_error};

const MESSAGE: &str = "<message to='juliet@example.com/balcony'><body>smuggled</body></message>";

#[tokio::test]
async fn a_second_stream_header_or_end_tag_ends_the_stream() {
    for odd in [
        "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='example.com' version='1.0'>",
        "<?xml version='1.0'?><stream:stream to='example.com' version='1.0' xmlns='jabber:client' \
         xmlns:stream='http://etherx.jabber.org/streams'>",
        "<stream:error><not-authorized xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>",
        "<stream:features/>",
        "<stream:message/>",
        "</stream:stream>",
        "<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>",
        "<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
        "<resumed xmlns='urn:xmpp:sm:3' h='0' previd='x'/>",
        "<x:stream xmlns:x='http://etherx.jabber.org/streams'/>",
    ] {
        let server = ClientTransport::Tcp.start();
        let (mut romeo, mut juliet) = pair(&server).await;
        // A stream header within the stream is an unclosed element; its children are not stanzas.
        let _ = romeo.try_send(format!("{odd}{MESSAGE}</stream:stream>")).await;
        let seen = read_until_end(&mut romeo).await;
        // A stream error of the client ends the stream without one of the server (section 4.9.1.1).
        let silent = odd.starts_with("</") || odd.starts_with("<stream:error");
        assert!(silent || stream_error(&seen).is_some(), "{odd}: {seen:?}");
        assert_eq!(juliet.sync().await, [], "{odd}");
    }
}

#[tokio::test]
async fn stream_elements_within_a_stanza_stay_in_it() {
    for transport in ClientTransport::ALL {
        let server = transport.start();
        let (mut romeo, mut juliet) = friends(&server).await;
        for inner in [
            "<stream:stream xmlns:stream='http://etherx.jabber.org/streams'>x</stream:stream>",
            "<stream:error xmlns:stream='http://etherx.jabber.org/streams'><conflict xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>",
            "<open xmlns='urn:ietf:params:xml:ns:xmpp-framing'/><close xmlns='urn:ietf:params:xml:ns:xmpp-framing'/>",
            "<body xmlns='http://jabber.org/protocol/httpbind' type='terminate'/>",
            "<r xmlns='urn:xmpp:sm:3'/>",
        ] {
            romeo
                .send(format!("<message to='juliet@example.com/balcony'>{inner}<body>x</body></message>"))
                .await;
            romeo.sync().await;
            let seen = crate::support::assert_alive(&mut juliet).await;
            assert_eq!(seen.len(), 1, "{transport:?} {inner}: {seen:?}");
            assert_eq!(seen[0].name(), "message", "{transport:?} {inner}");
        }
    }
}
