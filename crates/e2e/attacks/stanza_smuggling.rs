//! Stanza smuggling by parser differences.
//!
//! Done: thousands of messages from a grammar of hostile lexical forms (prefixes, references, sections, unusual
//! white space, brackets in values, undeclared namespaces) and mutations of them are sent; an independent parser
//! reads what arrives, and the result is compared with its reading of what was sent.
//!
//! Rule: RFC 6120, section 11; XML 1.0, Namespaces in XML. Differences between the parsers of server and client let
//! one user write another's stanzas (CVE-2022-22784 to 22787, CVE-2022-25235, CVE-2022-25236).
//!
//! Right: a message arrives as one element with exactly the elements, names, namespaces, attributes and text that
//! were sent, or it is refused. What the independent parser refuses is refused.

use std::fmt::Write;

use roxmltree::{Document, Node};
use testkit::server::ReceivedEvent;

use crate::support::{ClientTransport, assert_well_formed, pair};

const CASES: usize = 700;

/// Choices that are equal in each run.
struct TestRng(fastrand::Rng);

impl TestRng {
    fn roll(&mut self, sides: usize) -> usize {
        self.0.usize(..sides)
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

const TEXTS: &[&str] = &[
    "x",
    " ",
    "\n",
    "\r\n",
    "\t",
    "&amp;",
    "&lt;message&gt;",
    "&#60;/message&#62;",
    "&#x3c;",
    "&#13;",
    "&#10;",
    "&#9;",
    "&apos;",
    "<![CDATA[</message><message to='x'>]]>",
    "<![CDATA[]]>",
    "<![CDATA[]]]]><![CDATA[>]]>",
    "]]&gt;",
    "]]",
    ">",
    "'",
    "\"",
    "é",
    "\u{1F600}",
    "\u{2028}",
    "\u{85}",
    "\u{FEFF}",
    "&#x10FFFF;",
    "\u{FFFD}",
    "]]>",
    "&lt",
    "&#0;",
    "\u{7f}",
    "</stream:stream>",
    "<!--x-->",
];
const VALUES: &[&str] = &[
    "",
    "x",
    " x ",
    "a\nb",
    "a\tb",
    "a\r\nb",
    "&#10;",
    "&#13;",
    "&#9;",
    "&lt;",
    "&amp;lt;",
    ">",
    "/>",
    "</message>",
    "&quot;&apos;",
    "urn:x",
    "jabber:client",
    "jabber:server",
    "http://etherx.jabber.org/streams",
    "é",
    "&#x1F600;",
    "<",
    "&",
    "urn:&#120;",
];
const NAMES: &[&str] = &[
    "a",
    "b:c",
    "p:q",
    "body",
    "message",
    "stream:error",
    "a.b",
    "x-y.z",
    "_",
    "été",
    "a:",
    ":a",
    "1",
    "xmlns:a",
    "stream",
    "q:body",
];
const ATTRIBUTES: &[&str] = &[
    "a",
    "b",
    "p:a",
    "b:a",
    "xml:lang",
    "xml:space",
    "xmlns",
    "xmlns:p",
    "xmlns:b",
    "xmlns:q",
    "xmlns:stream",
    "xmlns:xml",
    "xmlns:xmlns",
    "from",
    "to",
    "id",
    "type",
    "é",
];
const BLANKS: &[&str] = &[" ", "  ", "\n", "\t", "\r\n", " \n ", "", "\u{a0}"];

fn element(rng: &mut TestRng, depth: usize, out: &mut String) {
    // Prefixes are mostly declared; otherwise hardly any stanza would be valid.
    let declared = rng.roll(4) != 0;
    let name = rng.pick(if declared { &NAMES[..9] } else { NAMES });
    let _ = write!(out, "<{name}");
    if declared {
        out.push_str(
            " xmlns:b='urn:b' xmlns:p=\"urn:&#112;\" xmlns:stream=\"http://etherx.jabber.org/streams\"",
        );
    }
    for _ in 0..rng.roll(3) {
        let blank = if rng.roll(12) == 0 { rng.pick(BLANKS) } else { " " };
        let equals = rng.pick(&["=", "=", "=", " = ", "\n=", "=\t"]);
        let quote = rng.pick(&["'", "\""]);
        let attribute = if rng.roll(3) == 0 { rng.pick(ATTRIBUTES) } else { rng.pick(&ATTRIBUTES[..7]) };
        let value = if rng.roll(8) == 0 { rng.pick(VALUES) } else { rng.pick(&VALUES[..16]) };
        let _ = write!(out, "{blank}{attribute}{equals}{quote}{value}{quote}");
    }
    if rng.roll(4) == 0 {
        out.push_str(rng.pick(&["/>", " />", "\n/>"]));
        return;
    }
    out.push_str(rng.pick(&[">", ">", " >", "\n>"]));
    for _ in 0..rng.roll(4) {
        if depth < 4 && rng.roll(2) == 0 {
            element(rng, depth + 1, out);
        } else {
            let texts = if rng.roll(8) == 0 { TEXTS } else { &TEXTS[..24] };
            out.push_str(rng.pick(texts));
        }
    }
    let _ = write!(out, "</{name}{}>", rng.pick(&["", "", "", " ", "\n"]));
}

fn stanza(rng: &mut TestRng) -> String {
    let mut out = "<message type='chat' to='juliet@example.com/balcony'".to_owned();
    if rng.roll(4) == 0 {
        let _ = write!(out, " {}='{}'", rng.pick(&ATTRIBUTES[..10]), rng.pick(&VALUES[..12]));
    }
    out.push('>');
    for _ in 0..=rng.roll(3) {
        element(rng, 1, &mut out);
    }
    out.push_str("</message>");
    // One in six is damaged: a piece is removed, doubled, or moved.
    if rng.roll(6) == 0 {
        let edges: Vec<usize> = out.char_indices().map(|(at, _)| at).collect();
        let (from, to) = (edges[rng.roll(edges.len())], edges[rng.roll(edges.len())]);
        let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 12));
        let to = (to..=out.len()).find(|at| out.is_char_boundary(*at)).unwrap();
        let piece = out[from..to].to_owned();
        if rng.roll(2) == 0 {
            out.replace_range(from..to, "");
        } else {
            out.insert_str(edges[rng.roll(edges.len())], &piece);
        }
    }
    out
}

/// An independent parser's reading of one stanza in a client's stream, or its error.
fn meaning(text: &str) -> Result<String, String> {
    let whole = format!(
        "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>{text}</stream:stream>"
    );
    let document = Document::parse(&whole).map_err(|error| error.to_string())?;
    let mut children = document.root_element().children();
    let (Some(stanza), None) = (children.next(), children.next()) else {
        return Err("not one element".to_owned());
    };
    let mut out = String::new();
    describe_difference(stanza, true, &mut out);
    Ok(out)
}

fn describe_difference(node: Node<'_, '_>, root: bool, out: &mut String) {
    if node.is_text() {
        // An empty CDATA section contributes nothing.
        if let Some(text) = node.text().filter(|text| !text.is_empty()) {
            let _ = write!(out, "{text:?}");
        }
        return;
    }
    let _ = write!(out, "<{{{}}}{}", node.tag_name().namespace().unwrap_or_default(), node.tag_name().name());
    let mut attributes: Vec<String> = node
        .attributes()
        .filter(|one| !(root && one.namespace().is_none() && ["from", "to"].contains(&one.name())))
        .map(|one| format!(" {{{}}}{}={:?}", one.namespace().unwrap_or_default(), one.name(), one.value()))
        .collect();
    attributes.sort();
    out.extend(attributes);
    out.push('>');
    for child in node.children() {
        // Added by the server.
        let id = child.tag_name().namespace() == Some("urn:xmpp:sid:0");
        if !(root && id) {
            describe_difference(child, false, out);
        }
    }
    out.push_str("</>");
}

async fn agree(transport: ClientTransport, seed: u64) {
    let server = transport.start();
    let (mut romeo, mut juliet) = pair(&server).await;
    let mut rng = TestRng(fastrand::Rng::with_seed(seed));
    let (mut arrived, mut refused) = (0, 0);
    for _ in 0..CASES {
        let sent = stanza(&mut rng);
        let before = meaning(&sent);
        let open = romeo.try_send(&sent).await.is_ok()
            && romeo.try_send("<iq type='get' id='done'><ping xmlns='urn:xmpp:ping'/></iq>").await.is_ok();
        if before.is_err() {
            // It may be unclosed, so that acceptance could not be observed.
            romeo.half_close().await;
        }
        let mut alive = false;
        loop {
            let received = if open { romeo.receive().await } else { ReceivedEvent::Eof };
            match received {
                ReceivedEvent::Element(seen) if seen.attr("id").as_deref() == Some("done") => {
                    alive = true;
                    if before.is_ok() {
                        break;
                    }
                }
                ReceivedEvent::Element(seen) => assert_well_formed(&seen.0),
                ReceivedEvent::Eof => break,
                _ => {}
            }
        }
        let seen = juliet.sync().await;
        for one in &seen {
            assert_well_formed(&one.0);
        }
        match (&before, &seen[..]) {
            (Ok(before), [one]) => {
                let after = meaning(&one.0).unwrap_or_else(|error| panic!("{error}: {}", one.0));
                assert_eq!(*before, after, "{transport:?}\nsent: {sent}\ncame: {}", one.0);
                arrived += 1;
            }
            (_, []) => refused += 1,
            // The part before the damage may be a complete stanza.
            (Err(error), [one]) => {
                let after = meaning(&one.0).unwrap_or_else(|error| panic!("{error}: {}", one.0));
                let mut heads = sent.match_indices('>').map(|(at, _)| meaning(&sent[..=at]));
                let whole = heads.any(|head| head.as_ref() == Ok(&after));
                assert!(whole, "{transport:?}: {error}, and it was let in\nsent: {sent}\ncame: {}", one.0);
            }
            _ => panic!("{transport:?}: {} stanzas came of one\nsent: {sent}\ncame: {seen:?}", seen.len()),
        }
        if !alive || before.is_err() {
            romeo = server.login("romeo", "orchard").await;
        }
    }
    assert!(arrived > CASES / 6 && refused > CASES / 6, "{arrived} arrived, {refused} were refused");
}

#[tokio::test]
async fn server_and_client_parse_the_same_over_tcp() {
    agree(ClientTransport::Tcp, 0x5EED).await;
}

#[tokio::test]
async fn server_and_client_parse_the_same_over_websocket() {
    agree(ClientTransport::WebSocket, 0xBEEF).await;
}
