//! BOSH bodies as a client writes and reads them: XEP-0124 (version 1.11) and XEP-0206 (version 1.4).
//!
//! Not implemented: keys (section 15), acknowledgements (section 9), several streams in one session, polling sessions.
//!
//! # Pitfalls
//!
//! A session error may be reported by the HTTP status alone (section 17.1), even to clients that name a version.

use std::io::Write as _;

use xml::{Limits, Reader, ScanOutcome, Scanner};

const LIMITS: Limits = Limits { element_bytes: 17 << 20, ..Limits::CEILING };

/// Purpose of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyKind {
    /// Carries stanzas, or is empty and held by the server.
    #[default]
    Plain,
    /// Creates the session (section 7).
    Create,
    /// Restarts the stream after SASL (XEP-0206, section 5).
    Restart,
    /// Terminates the session (section 13).
    Terminate,
}

/// Session parameters of a request.
#[derive(Clone, Copy, Debug)]
pub struct BodySession<'a> {
    /// Session id; empty before the session is created.
    pub sid: &'a str,
    /// The XMPP domain.
    pub domain: &'a str,
    /// Longest time that the server may hold a request, in seconds.
    pub wait: u32,
}

/// Appends a body with these stanzas, which already declare their namespaces.
pub fn write(kind: BodyKind, session: BodySession<'_>, rid: u64, stanzas: &[u8], out: &mut Vec<u8>) {
    // Writing into a vector does not fail.
    let _ = write!(out, "<body xmlns='http://jabber.org/protocol/httpbind' rid='{rid}'");
    if kind != BodyKind::Create {
        attribute("sid", session.sid, out);
    }
    match kind {
        BodyKind::Plain => {}
        BodyKind::Create => {
            attribute("to", session.domain, out);
            let _ = write!(
                out,
                " ver='1.11' wait='{}' hold='1' content='text/xml; charset=utf-8' xml:lang='en' \
                 xmpp:version='1.0' xmlns:xmpp='urn:xmpp:xbosh'",
                session.wait
            );
        }
        BodyKind::Restart => {
            attribute("to", session.domain, out);
            out.extend_from_slice(b" xml:lang='en' xmpp:restart='true' xmlns:xmpp='urn:xmpp:xbosh'");
        }
        BodyKind::Terminate => out.extend_from_slice(b" type='terminate'"),
    }
    if stanzas.is_empty() {
        out.extend_from_slice(b"/>");
    } else {
        out.push(b'>');
        out.extend_from_slice(stanzas);
        out.extend_from_slice(b"</body>");
    }
}

fn attribute(name: &str, value: &str, out: &mut Vec<u8>) {
    out.push(b' ');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"='");
    xml::escape::attr(value, out);
    out.push(b'\'');
}

/// A received body.
#[derive(Debug, PartialEq, Eq)]
pub struct HttpBody<'a> {
    /// The start tag, for [`created`] and [`session_end`].
    pub tag: &'a [u8],
    /// Everything after it, for [`stanzas`].
    rest: &'a [u8],
}

/// Parses a body.
///
/// # Errors
/// It is not a BOSH body.
pub fn read(content: &[u8]) -> Result<HttpBody<'_>, &'static str> {
    let wrong = "the response is not a BOSH body";
    let begin = content.iter().position(|byte| *byte == b'<').ok_or(wrong)?;
    let mut content = &content[begin..];
    if content.starts_with(b"<?xml") {
        let end = memchr::memmem::find(content, b"?>").ok_or(wrong)? + 2;
        content = content[end..].trim_ascii_start();
    }
    let end = tag_end(content).ok_or(wrong)?;
    let (tag, rest) = content.split_at(end);
    let name = tag[1..].split(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'/' | b'>')).next();
    let local = name.and_then(|name| name.rsplit(|byte| *byte == b':').next());
    if local != Some(b"body") {
        return Err(wrong);
    }
    Ok(HttpBody { tag, rest: if tag.ends_with(b"/>") { b"" } else { rest } })
}

/// Position after the `>` of the start tag.
fn tag_end(content: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr3(b'>', b'\'', b'"', &content[at..])? + 1;
        let quote = content[at - 1];
        if quote == b'>' {
            return Some(at);
        }
        at += memchr::memchr(quote, &content[at..])? + 1;
    }
}

/// Passes each stanza of a body to `each`, until it returns false.
///
/// # Errors
/// The content is not XML.
pub fn stanzas(body: &HttpBody<'_>, mut each: impl FnMut(&[u8]) -> bool) -> Result<(), xml::Error> {
    let mut scanner = Scanner::fragment();
    let mut rest = body.rest;
    while !rest.starts_with(b"</") && !rest.is_empty() {
        match scanner.scan(rest, &LIMITS)? {
            ScanOutcome::Element { start, end } => {
                if !each(&rest[start..end]) {
                    return Ok(());
                }
                rest = &rest[end..];
            }
            ScanOutcome::More { skip } if skip > 0 => rest = &rest[skip..],
            _ => return Err(xml::Error::NotWellFormed("the body is incomplete")),
        }
        rest = rest.trim_ascii_start();
    }
    Ok(())
}

/// Session parameters from the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatedSession {
    /// Never empty.
    pub sid: Box<str>,
    /// Maximum number of simultaneous requests.
    pub requests: u8,
}

/// Session parameters in the response to [`BodyKind::Create`]; `None` if there are none.
pub fn created(body: &HttpBody<'_>) -> Option<CreatedSession> {
    let start = Reader::open_tag(body.tag, &LIMITS).ok()?;
    let value = |name: &str| start.attr(name).map(|attr| attr.value().into_owned());
    let sid = value("sid").filter(|sid| !sid.is_empty())?;
    let number = |name: &str| value(name).and_then(|value| value.parse::<u8>().ok());
    // Section 7.2: at least one more than `hold`; derived from it when absent.
    let requests = number("requests").or_else(|| number("hold").map(|hold| hold.saturating_add(1)));
    Some(CreatedSession { sid: sid.into(), requests: requests.unwrap_or(2).max(1) })
}

/// How a body ends its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// Not at all.
    No,
    /// `type='error'`: all unanswered requests must be sent again (section 17.3).
    Again,
    /// `type='terminate'` with its condition; empty for a normal end (section 17.2).
    Over(String),
}

/// Determines whether a body ends the session.
pub fn session_end(body: &HttpBody<'_>) -> SessionEnd {
    if memchr::memmem::find(body.tag, b"type=").is_none()
        && memchr::memmem::find(body.tag, b"type ").is_none()
    {
        return SessionEnd::No;
    }
    let Ok(start) = Reader::open_tag(body.tag, &LIMITS) else { return SessionEnd::No };
    match start.attr("type").map(|attr| attr.value()).as_deref() {
        Some("terminate" | "terminal") => SessionEnd::Over(
            start.attr("condition").map(|attr| attr.value().into_owned()).unwrap_or_default(),
        ),
        Some("error") => SessionEnd::Again,
        _ => SessionEnd::No,
    }
}

/// Condition of an HTTP status (section 17.1); `None` for 200.
pub fn condition(status: u16) -> Option<&'static str> {
    match status {
        200 => None,
        400 => Some("bad-request"),
        403 => Some("policy-violation"),
        404 => Some("item-not-found"),
        429 => Some("too-many-requests"),
        500..=599 => Some("server-error"),
        _ => Some("unknown-status"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: BodyKind, stanzas: &str) -> String {
        let mut out = Vec::new();
        let session = BodySession { sid: "a'b", domain: "example.com", wait: 60 };
        write(kind, session, 1573741820, stanzas.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_of_each_kind_are_complete_xml() {
        for kind in [BodyKind::Plain, BodyKind::Create, BodyKind::Restart, BodyKind::Terminate] {
            for stanzas in ["", "<presence xmlns='jabber:client' type='unavailable'/>"] {
                let text = written(kind, stanzas);
                let scope = xml::NamespaceContext::empty();
                let tree = xml::Tree::parse(text.as_bytes(), &scope, &LIMITS).unwrap();
                let root = tree.root();
                assert_eq!((root.name(), root.ns_text()), ("body", "http://jabber.org/protocol/httpbind"));
                assert_eq!(root.attr("rid").as_deref(), Some("1573741820"));
                assert_eq!(
                    root.attr("sid").as_deref(),
                    (kind != BodyKind::Create).then_some("a'b"),
                    "{text}"
                );
                assert_eq!(root.child_elements().count(), usize::from(!stanzas.is_empty()));
                assert_eq!(root.attr("type").is_some(), kind == BodyKind::Terminate);
                assert_eq!(root.attr("wait").is_some(), kind == BodyKind::Create);
                assert_eq!(text.contains("xmpp:restart='true'"), kind == BodyKind::Restart);
            }
        }
    }

    /// XEP-0124, example 2 and XEP-0206, example 2.
    #[test]
    fn the_answer_to_a_creation() {
        let text = b"<?xml version='1.0'?>\n<body wait='60' inactivity='30' polling='5' requests='2' hold='1' ack='1573741820' \
            accept='deflate,gzip' maxpause='120' sid='SomeSID' charset='ISO_8859-1 ISO-2022-JP' ver='1.6' \
            from='example.com' xmlns='http://jabber.org/protocol/httpbind' xmlns:stream='http://etherx.jabber.org/streams'>\
            <stream:features/></body>";
        let body = read(text).unwrap();
        assert_eq!(created(&body), Some(CreatedSession { sid: "SomeSID".into(), requests: 2 }));
        assert_eq!(session_end(&body), SessionEnd::No);
        let mut seen = Vec::new();
        stanzas(&body, |stanza| {
            seen.push(stanza.to_vec());
            true
        })
        .unwrap();
        assert_eq!(seen, [b"<stream:features/>"]);
        let bare = read(b"<body sid='x' hold='1' xmlns='http://jabber.org/protocol/httpbind'/>").unwrap();
        assert_eq!(created(&bare).unwrap().requests, 2);
        assert_eq!(created(&read(b"<body type='terminate' condition='host-unknown'/>").unwrap()), None);
    }

    #[test]
    fn stanzas_are_split_and_whitespace_between_them_is_skipped() {
        let count = |text: &[u8]| {
            let mut count = 0;
            stanzas(&read(text).unwrap(), |_| {
                count += 1;
                true
            })
            .map(|()| count)
        };
        assert_eq!(count(b"<body a='>'/>"), Ok(0));
        assert_eq!(count(b"<body></body>"), Ok(0));
        assert_eq!(count(b"<body>\n <a/> <b>x</b>\n</body>\n"), Ok(2));
        assert!(count(b"<body><a>").is_err());
        assert!(count(b"<body>text</body>").is_err());
    }

    #[test]
    fn ends_of_sessions() {
        let end = |text: &str| session_end(&read(text.as_bytes()).unwrap());
        assert_eq!(
            end("<body type='terminate' condition='item-not-found'/>"),
            SessionEnd::Over("item-not-found".into())
        );
        assert_eq!(end("<body type = 'terminate'/>"), SessionEnd::Over(String::new()));
        assert_eq!(end("<body type='error'/>"), SessionEnd::Again);
        assert_eq!(end("<body><iq type='error'/></body>"), SessionEnd::No);
        assert_eq!((condition(200), condition(404)), (None, Some("item-not-found")));
    }

    #[test]
    fn an_invalid_body_is_an_error() {
        for text in
            [&b""[..], b"Not found", b"<html><body/></html>", b"<body", b"<?xml version='1.0'", b"<body a='"]
        {
            assert!(read(text).is_err(), "{:?}", std::str::from_utf8(text));
        }
        assert!(read(b"<h:body xmlns:h='x'/>").is_ok());
    }
}
