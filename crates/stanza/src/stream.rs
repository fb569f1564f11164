//! Stream headers, features and closing tags: RFC 6120, sections 4.2 to 4.7.
//!
//! The response header is written as one string because all later output depends on its prefixes: the default namespace
//! is `jabber:client`, the prefix of the stream namespace is always `stream`.

use std::borrow::Cow;

use xml::{Ns, Writer};

use crate::condition::StreamCondition;
use crate::error::StreamError;

/// Attributes of a client's stream header (RFC 6120, section 4.7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamHeader {
    /// The requested domain.
    pub to: Option<String>,
    /// The address that the client claims; never trusted.
    pub from: Option<String>,
    /// Preferred language of texts.
    pub lang: Option<String>,
    /// Major and minor version; a missing version means 0.9.
    pub version: Option<(u16, u16)>,
}

impl StreamHeader {
    /// Reads a start tag that was found to open a client stream.
    ///
    /// # Errors
    /// `invalid-namespace` and `bad-format` as in sections 4.8.1 and 4.9.3.1, and errors of the parser.
    pub fn read(tag: &[u8], limits: &xml::Limits) -> Result<StreamHeader, StreamError> {
        let start = xml::Reader::open_tag(tag, limits)?;
        if start.name != "stream" {
            return Err(StreamError::new(StreamCondition::BadFormat)
                .text(format!("expected <stream:stream>, got <{}>", start.name)));
        }
        if start.ns.id != Some(Ns::Stream) {
            return Err(StreamError::new(StreamCondition::InvalidNamespace)
                .text(format!("the stream namespace is {}", Ns::Stream.as_str())));
        }
        let default = start.declarations().find(|d| d.prefix.is_none());
        if default.is_none_or(|d| d.value() != Ns::Client.as_str()) {
            return Err(StreamError::new(StreamCondition::InvalidNamespace)
                .text(format!("the default namespace of a client's stream is {}", Ns::Client.as_str())));
        }
        let get = |name: &str| start.attr(name).map(|a| a.value().into_owned());
        let version = match get("version") {
            None => None,
            Some(text) => Some(
                text.split_once('.')
                    .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
                    .ok_or_else(|| {
                        StreamError::new(StreamCondition::UnsupportedVersion)
                            .text("the version is not of the form 1.0")
                    })?,
            ),
        };
        Ok(StreamHeader {
            to: get("to"),
            from: get("from"),
            lang: start.lang().map(Cow::into_owned),
            version,
        })
    }
}

/// Writes the server's stream header (RFC 6120, section 4.7).
pub fn write_header(out: &mut Vec<u8>, from: &str, to: Option<&str>, id: &str, lang: &str) {
    out.extend_from_slice(b"<?xml version='1.0'?><stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' id='");
    xml::escape::attr(id, out);
    out.extend_from_slice(b"' from='");
    xml::escape::attr(from, out);
    if let Some(to) = to {
        out.extend_from_slice(b"' to='");
        xml::escape::attr(to, out);
    }
    out.extend_from_slice(b"' version='1.0' xml:lang='");
    xml::escape::attr(lang, out);
    out.extend_from_slice(b"'>");
}

/// Writes the closing tag of a stream (RFC 6120, section 4.4).
pub fn write_close(out: &mut Vec<u8>) {
    out.extend_from_slice(b"</stream:stream>");
}

/// Writes `<stream:features/>` around the output of `content` (RFC 6120, section 4.3.2).
pub fn write_features(out: &mut Vec<u8>, content: impl FnOnce(&mut Writer<'_>)) {
    let mut writer = Writer::new(out);
    writer.start("stream:features");
    content(&mut writer);
    writer.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tag: &str) -> Result<StreamHeader, StreamError> {
        StreamHeader::read(tag.as_bytes(), &xml::Limits::default())
    }

    #[test]
    fn the_header_of_section_4_2_is_read() {
        let opening = read(
            "<stream:stream from='juliet@im.example.com' to='im.example.com' version='1.0' xml:lang='en' \
             xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>",
        )
        .unwrap();
        assert_eq!(opening.to.as_deref(), Some("im.example.com"));
        assert_eq!(opening.version, Some((1, 0)));
        assert_eq!(opening.lang.as_deref(), Some("en"));
    }

    #[test]
    fn wrong_namespaces_are_named() {
        let wrong = |tag: &str| read(tag).unwrap_err().condition;
        assert_eq!(
            wrong("<stream:stream to='a' xmlns='jabber:client' xmlns:stream='http://wrong.example/'>"),
            StreamCondition::InvalidNamespace
        );
        assert_eq!(
            wrong(
                "<stream:stream to='a' xmlns='jabber:server' xmlns:stream='http://etherx.jabber.org/streams'>"
            ),
            StreamCondition::InvalidNamespace
        );
        assert_eq!(
            wrong(
                "<stream:foo to='a' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>"
            ),
            StreamCondition::BadFormat
        );
        assert_eq!(
            wrong(
                "<stream:stream version='x' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>"
            ),
            StreamCondition::UnsupportedVersion
        );
    }

    #[test]
    fn the_answer_is_a_header() {
        let mut out = Vec::new();
        write_header(
            &mut out,
            "im.example.com",
            Some("juliet@im.example.com"),
            "t7AMCin9zjMNwQKDnplntZPIDEI=",
            "en",
        );
        assert!(read(std::str::from_utf8(&out).unwrap().trim_start_matches("<?xml version='1.0'?>")).is_ok());
    }

    //= https://www.rfc-editor.org/rfc/rfc6120#section-11.5
    //= type=test
    //# Before sending a stream header, an implementation SHOULD send an XML declaration (matching the "XMLDecl"
    //# production from [XML]).
    //= https://www.rfc-editor.org/rfc/rfc6120#section-11.5
    //= type=test
    //# the standalone document declaration (matching the "SDDecl" production from [XML]) would have no meaning and
    //# therefore MUST NOT be included in an XML declaration sent over an XML stream.
    //= https://www.rfc-editor.org/rfc/rfc6120#section-11.6
    //= type=test
    //# an implementation MUST NOT send a byte order mark ("BOM") at the beginning of the data stream.
    #[test]
    fn section_11_5_the_header_follows_a_declaration_without_standalone() {
        let mut out = Vec::new();
        write_header(&mut out, "im.example.com", None, "id", "en");
        let text = String::from_utf8(out).unwrap();
        let rest = text.strip_prefix("<?xml version='1.0'?>").unwrap();
        // Section 11.6: no byte order mark either.
        assert!(rest.starts_with("<stream:stream "), "{text}");
    }
}
