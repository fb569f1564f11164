//! Writer of a `<body/>` for the client (XEP-0124, sections 6.2, 8 and 17; XEP-0206, sections 4 and 6).
//!
//! The stream above writes the text of an XML document, whole elements at a time. [`extract_elements`] strips the
//! document around them and gives each element its namespace, because a response has only the wrapper around them.
//!
//! Not implemented: `charsets`, `accept`, `stream`.
//!
//! # Pitfalls
//!
//! A response is written while the session is locked; everything that scans the text is done before, in
//! [`extract_elements`].

use std::sync::Arc;

use xml::{Limits, Reader, ScanOutcome, Scanner};

use super::request::{leading_whitespace, tag_end};
use super::{BodyBytes, BoshBody};

const NS: &str = "http://jabber.org/protocol/httpbind";

/// Response without payloads (section 7).
pub(super) const EMPTY: BoshBody =
    BoshBody(BodyBytes::Fixed(b"<body xmlns='http://jabber.org/protocol/httpbind'/>"));
/// Recoverable error: the client must send the request again (section 17.3).
pub(super) const RECOVERABLE: BoshBody =
    BoshBody(BodyBytes::Fixed(b"<body type='error' xmlns='http://jabber.org/protocol/httpbind'/>"));

macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Terminal condition of a session (section 17.2).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Condition {
            $($(#[$doc])* $name,)*
        }

        impl Condition {
            /// Name of the condition.
            pub(super) const fn as_str(self) -> &'static str {
                match self { $(Condition::$name => $text,)* }
            }

            /// A whole response with this condition.
            pub(super) const fn body(self) -> BoshBody {
                match self {
                    $(Condition::$name => BoshBody(BodyBytes::Fixed(concat!(
                        "<body type='terminate' condition='", $text,
                        "' xmlns='http://jabber.org/protocol/httpbind'/>"
                    ).as_bytes())),)*
                }
            }
        }
    };
}

conditions! {
    BadRequest = "bad-request",
    HostUnknown = "host-unknown",
    ImproperAddressing = "improper-addressing",
    InternalServerError = "internal-server-error",
    ItemNotFound = "item-not-found",
    OtherRequest = "other-request",
    PolicyViolation = "policy-violation",
    RemoteConnectionFailed = "remote-connection-failed",
    RemoteStreamError = "remote-stream-error",
    SystemShutdown = "system-shutdown",
}

impl Condition {
    /// HTTP status for a client that does not send its version (section 17.1).
    pub(super) const fn status(self, legacy: bool) -> u16 {
        match self {
            Condition::BadRequest if legacy => 400,
            Condition::PolicyViolation if legacy => 403,
            Condition::ItemNotFound if legacy => 404,
            _ => 200,
        }
    }
}

/// Output of the stream, without the document around it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ExtractedElements {
    /// The stream was opened: its `from` and `id`.
    pub(super) opened: Option<(String, String)>,
    /// An element uses the prefix `stream`.
    pub(super) uses_stream_prefix: bool,
    /// The stream was closed.
    pub(super) closed: bool,
    /// It was closed with an error.
    pub(super) error: Option<Condition>,
}

/// The server's own output is not limited in depth: a stanza that was admitted may have been wrapped several times.
const OUTPUT_LIMITS: Limits = Limits { depth: u8::MAX, ..Limits::CEILING };

/// Appends the elements in `text` to `out`, each with a default namespace.
pub(super) fn extract_elements(text: &[u8], out: &mut Vec<u8>) -> ExtractedElements {
    let mut cut = ExtractedElements::default();
    let mut scanner = Scanner::fragment();
    let mut at = 0;
    loop {
        at += leading_whitespace(&text[at..]);
        let here = &text[at..];
        if here.is_empty() {
            return cut;
        }
        if here.starts_with(b"<?xml") {
            at += here.windows(2).position(|pair| pair == b"?>").map_or(here.len(), |end| end + 2);
        } else if here.starts_with(b"<stream:stream") {
            let Some(end) = tag_end(here, 0) else {
                (cut.closed, cut.error) = (true, Some(Condition::InternalServerError));
                return cut;
            };
            cut.opened = Some(header_from_and_id(&here[..end]));
            at += end;
        } else if here.starts_with(b"</stream:stream") {
            cut.closed = true;
            return cut;
        } else {
            let end = match scanner.scan(here, &OUTPUT_LIMITS) {
                Ok(ScanOutcome::Element { end, .. }) => end,
                // Only the server itself writes this text, so it is a bug here. The session ends: skipping the element
                // would silently lose what follows as well.
                _ => {
                    (cut.closed, cut.error) = (true, Some(Condition::InternalServerError));
                    return cut;
                }
            };
            append_element(&here[..end], out, &mut cut);
            at += end;
        }
    }
}

fn header_from_and_id(tag: &[u8]) -> (String, String) {
    let Ok(start) = Reader::open_tag(tag, &Limits::CEILING) else { return Default::default() };
    let get = |name| start.attr(name).map(|attr| attr.value().into_owned()).unwrap_or_default();
    (get("from"), get("id"))
}

fn append_element(bytes: &[u8], out: &mut Vec<u8>, cut: &mut ExtractedElements) {
    let name = bytes.iter().position(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n' | b'/' | b'>'));
    let (name, rest) = bytes.split_at(name.unwrap_or(bytes.len()));
    out.extend_from_slice(name);
    if name.contains(&b':') {
        cut.uses_stream_prefix = true;
        if name == b"<stream:error" {
            cut.error = Some(terminal_condition(rest));
        }
    } else if !declares_default(rest) {
        out.extend_from_slice(b" xmlns='jabber:client'");
    }
    out.extend_from_slice(rest);
}

/// Some stream errors have a condition of their own (section 17.2); all others become `remote-stream-error`.
fn terminal_condition(rest: &[u8]) -> Condition {
    let is = |name: &[u8]| rest.strip_prefix(b"><").is_some_and(|rest| rest.starts_with(name));
    if is(b"host-unknown ") {
        Condition::HostUnknown
    } else if is(b"improper-addressing ") {
        Condition::ImproperAddressing
    } else if is(b"system-shutdown ") {
        Condition::SystemShutdown
    } else {
        Condition::RemoteStreamError
    }
}

/// Whether a well-formed tag, after its name, declares a default namespace.
fn declares_default(mut rest: &[u8]) -> bool {
    loop {
        rest = &rest[leading_whitespace(rest)..];
        let Some(equals) = rest.iter().position(|b| matches!(b, b'=' | b'>')) else { return false };
        if rest[equals] == b'>' {
            return false;
        }
        if rest[..equals].trim_ascii_end() == b"xmlns" {
            return true;
        }
        rest = &rest[equals + 1..];
        rest = &rest[leading_whitespace(rest)..];
        let Some((&quote, value)) = rest.split_first() else { return false };
        let Some(end) = value.iter().position(|&b| b == quote) else { return false };
        rest = &value[end + 1..];
    }
}

/// Attributes of the session creation response.
pub(super) struct CreationAttributes<'a> {
    pub(super) sid: u128,
    pub(super) wait: u32,
    pub(super) hold: u8,
    pub(super) requests: u8,
    pub(super) inactivity: u32,
    pub(super) polling: u32,
    pub(super) max_pause_seconds: u32,
    /// The lower of both versions; none for a client that did not send its version.
    pub(super) version: Option<(u32, u32)>,
    /// Acknowledgements are in use: the id of the request.
    pub(super) ack: Option<u64>,
    /// `from` and `id` of the stream.
    pub(super) opened: Option<&'a (String, String)>,
}

/// Attributes of a response.
#[derive(Default)]
pub(super) struct BodyAttributes<'a> {
    pub(super) created: Option<CreationAttributes<'a>>,
    /// Highest id received, if it is not that of the request being answered (section 8.1).
    pub(super) ack: Option<u64>,
    /// A response that the client seems to have missed, and its age in milliseconds (section 8.2).
    pub(super) report: Option<(u64, u64)>,
    /// The session is over, with an optional condition.
    pub(super) terminate: Option<Option<Condition>>,
    /// The prefix `stream` must be declared.
    pub(super) uses_stream_prefix: bool,
}

/// A whole response around elements prepared by [`extract_elements`].
pub(super) fn write_body(head: &BodyAttributes<'_>, payload: &[u8]) -> BoshBody {
    let mut out = Vec::with_capacity(payload.len() + if head.created.is_some() { 640 } else { 192 });
    out.extend_from_slice(b"<body");
    if let Some(created) = &head.created {
        created.write(&mut out);
    }
    if let Some(ack) = head.ack {
        push_number_attr(&mut out, "ack", ack);
    }
    if let Some((rid, millis)) = head.report {
        push_number_attr(&mut out, "report", rid);
        push_number_attr(&mut out, "time", millis);
    }
    if let Some(condition) = head.terminate {
        out.extend_from_slice(b" type='terminate'");
        if let Some(condition) = condition {
            push_attr(&mut out, "condition", condition.as_str());
        }
    }
    push_attr(&mut out, "xmlns", NS);
    if head.uses_stream_prefix && head.created.is_none() {
        out.extend_from_slice(b" xmlns:stream='http://etherx.jabber.org/streams'");
    }
    if payload.is_empty() {
        out.extend_from_slice(b"/>");
    } else {
        out.push(b'>');
        out.extend_from_slice(payload);
        out.extend_from_slice(b"</body>");
    }
    BoshBody(BodyBytes::Shared(Arc::from(out)))
}

impl CreationAttributes<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        push_attr(out, "sid", &format!("{:032x}", self.sid));
        push_number_attr(out, "wait", u64::from(self.wait));
        push_number_attr(out, "requests", u64::from(self.requests));
        push_number_attr(out, "hold", u64::from(self.hold));
        push_number_attr(out, "inactivity", u64::from(self.inactivity));
        if self.polling > 0 {
            push_number_attr(out, "polling", u64::from(self.polling));
        }
        if self.max_pause_seconds > 0 {
            push_number_attr(out, "maxpause", u64::from(self.max_pause_seconds));
        }
        if let Some((major, minor)) = self.version {
            push_attr(out, "ver", &format!("{major}.{minor}"));
        }
        if let Some(ack) = self.ack {
            push_number_attr(out, "ack", ack);
        }
        if let Some((from, id)) = self.opened {
            push_attr(out, "from", from);
            push_attr(out, "authid", id);
        }
        out.extend_from_slice(
            b" xmpp:restartlogic='true' xmpp:version='1.0' xmlns:xmpp='urn:xmpp:xbosh' \
              xmlns:stream='http://etherx.jabber.org/streams'",
        );
    }
}

fn push_attr(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(b' ');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"='");
    xml::escape::attr(value, out);
    out.push(b'\'');
}

/// Appends a numeric attribute without the overhead of `format!`.
fn push_number_attr(out: &mut Vec<u8>, name: &str, value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.push(b' ');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"='");
    out.extend_from_slice(&digits[at..]);
    out.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> (String, ExtractedElements) {
        let mut out = Vec::new();
        let cut = extract_elements(text.as_bytes(), &mut out);
        (String::from_utf8(out).unwrap(), cut)
    }

    #[test]
    fn each_element_declares_its_namespace_once() {
        let (text, cut) = check(
            "<message to='a'><body>x</body></message><iq xmlns='jabber:client'/><presence/>\
             <r xmlns='urn:xmpp:sm:3'/><iq id=' xmlns=' to=\"it's\"><a/></iq>\n<iq\nid='1'/><m a = 'b' xmlns = 'c'/>",
        );
        assert_eq!(
            text,
            "<message xmlns='jabber:client' to='a'><body>x</body></message><iq xmlns='jabber:client'/>\
             <presence xmlns='jabber:client'/><r xmlns='urn:xmpp:sm:3'/>\
             <iq xmlns='jabber:client' id=' xmlns=' to=\"it's\"><a/></iq><iq xmlns='jabber:client'\nid='1'/>\
             <m a = 'b' xmlns = 'c'/>"
        );
        assert_eq!(cut, ExtractedElements::default());
    }

    #[test]
    fn the_stream_wrapper_is_removed_and_its_attributes_are_preserved() {
        let mut text = Vec::new();
        stanza::stream::write_header(&mut text, "it's.example", None, "i&d", "en");
        stanza::stream::write_features(&mut text, |w| {
            w.start("bind").ns(xml::Ns::Bind).end();
        });
        let (out, cut) = check(std::str::from_utf8(&text).unwrap());
        assert_eq!(
            out,
            "<stream:features><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></stream:features>"
        );
        assert_eq!(cut.opened, Some(("it's.example".to_owned(), "i&d".to_owned())));
        assert!(cut.uses_stream_prefix && !cut.closed && cut.error.is_none());
    }

    #[test]
    fn errors_of_the_stream_become_conditions() {
        use stanza::{StreamCondition as C, StreamError};
        for (condition, expect) in [
            (C::HostUnknown, Condition::HostUnknown),
            (C::ImproperAddressing, Condition::ImproperAddressing),
            (C::SystemShutdown, Condition::SystemShutdown),
            (C::NotWellFormed, Condition::RemoteStreamError),
            (C::HostGone, Condition::RemoteStreamError),
        ] {
            let mut text = b"<message/>".to_vec();
            StreamError::new(condition).text("why").write(&mut text);
            stanza::stream::write_close(&mut text);
            let (out, cut) = check(std::str::from_utf8(&text).unwrap());
            assert!(out.starts_with("<message xmlns='jabber:client'/><stream:error><"), "{out}");
            assert_eq!((cut.error, cut.closed, cut.uses_stream_prefix), (Some(expect), true, true));
        }
    }

    #[test]
    fn numbers_are_written_with_all_digits() {
        let mut out = Vec::new();
        push_number_attr(&mut out, "a", 0);
        push_number_attr(&mut out, "b", u64::MAX);
        assert_eq!(out, b" a='0' b='18446744073709551615'");
    }
}
