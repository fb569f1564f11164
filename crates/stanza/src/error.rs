//! Stanza errors, stream errors and error replies: RFC 6120, section 8.3 (stanzas) and section 4.9 (streams).
//!
//! An error reply includes the original children only up to [`MAX_ECHO_BYTES`], so that bounces do not amplify traffic.

use std::borrow::Cow;

use xml::{Ns, Writer};

use crate::condition::{ErrorType, StanzaCondition, StreamCondition};
use crate::head::Head;
use crate::payload::stanza_content;

/// Maximum size in bytes of original children included in an error reply.
pub const MAX_ECHO_BYTES: usize = 2048;

/// A stanza error (RFC 6120, section 8.3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StanzaError {
    /// Action that the sender can take.
    pub kind: ErrorType,
    /// The defined condition.
    pub condition: StanzaCondition,
    /// The address of the entity that has detected the error, if it is not the sender of the reply (RFC 6120, section 8.3.2).
    pub by: Option<Box<str>>,
    /// One sentence for a human reader, in English.
    pub text: Option<Cow<'static, str>>,
    /// Application-specific condition (RFC 6120, section 8.3.4): one element with its namespace declared, ready to send.
    pub application_condition: Option<Box<str>>,
    /// The address at which the entity is found (RFC 6120, sections 8.3.3.5 and 8.3.3.14): the content of
    /// [`StanzaCondition::Gone`] and [`StanzaCondition::Redirect`].
    pub new_address: Option<Box<str>>,
    /// Elements in place of the original children, ready to send.
    pub payload: Option<Box<str>>,
    /// Omits the original children from the reply, because they may be secret.
    pub omit_request: bool,
}

impl StanzaError {
    /// The condition with its default type.
    pub const fn new(condition: StanzaCondition) -> Self {
        Self {
            kind: condition.default_type(),
            condition,
            by: None,
            text: None,
            application_condition: None,
            new_address: None,
            payload: None,
            omit_request: false,
        }
    }

    /// Sets the text.
    #[must_use]
    pub fn text(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Sets the address of the entity that has detected the error.
    #[must_use]
    pub fn by(mut self, by: impl Into<Box<str>>) -> Self {
        self.by = Some(by.into());
        self
    }

    /// Sets the type.
    #[must_use]
    pub const fn kind(mut self, kind: ErrorType) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the application-specific condition to an empty element.
    #[must_use]
    pub fn application_condition(self, ns: Ns, name: &'static str) -> Self {
        self.application_element(|writer| {
            writer.empty_element(name, ns);
        })
    }

    /// Sets the application-specific condition to the element that is written, for one with attributes or children.
    #[must_use]
    pub fn application_element(mut self, write: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut out = Vec::with_capacity(128);
        write(&mut Writer::new(&mut out));
        self.application_condition = String::from_utf8(out).ok().map(String::into_boxed_str);
        self
    }

    /// Sets the address at which the entity is found.
    #[must_use]
    pub fn new_address(mut self, uri: impl Into<Box<str>>) -> Self {
        self.new_address = Some(uri.into());
        self
    }

    /// Replaces the original children of the reply by the elements that are written, such as those that caused the error.
    #[must_use]
    pub fn payload(mut self, write: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut out = Vec::with_capacity(256);
        write(&mut Writer::new(&mut out));
        self.payload = String::from_utf8(out).ok().map(String::into_boxed_str);
        self
    }

    /// Omits the original children from the reply (XEP-0077, section 3.3: they may contain a password).
    #[must_use]
    pub const fn without_request(mut self) -> Self {
        self.omit_request = true;
        self
    }

    /// Writes the `<error/>` element.
    pub fn write(&self, writer: &mut Writer<'_>) {
        writer.start("error");
        writer.attr_opt("by", self.by.as_deref());
        writer.attr("type", self.kind.as_str());
        writer.start(self.condition.as_str());
        writer.ns(Ns::Stanzas);
        writer.text(self.new_address.as_deref().unwrap_or_default());
        writer.end();
        if let Some(text) = &self.text {
            writer.start("text");
            writer.ns(Ns::Stanzas);
            writer.attr("xml:lang", "en");
            writer.text(text);
            writer.end();
        }
        writer.raw(self.application_condition.as_deref().unwrap_or_default().as_bytes());
        writer.end();
    }

    /// The error reply to a stanza; `None` where none may be sent: to errors and IQ results (RFC 6120, section 8.3.1).
    pub fn reply(&self, bytes: &[u8], head: &Head, from: Option<&str>, to: Option<&str>) -> Option<Vec<u8>> {
        if head.kind.is_error() || matches!(head.kind, crate::StanzaKind::Iq(crate::IqType::Result)) {
            return None;
        }
        let mut out = Vec::with_capacity(256);
        let mut writer = Writer::new(&mut out);
        writer.start(head.kind.name());
        if let Some(from) = from {
            writer.attr("from", from);
        }
        if let Some(to) = to {
            writer.attr("to", to);
        }
        // Copied raw: escaping could make it six times as long, too long for a start tag.
        if let Some(id) = head.raw_id(bytes) {
            writer.attr_raw("id", id);
        }
        writer.attr("type", "error");
        match &self.payload {
            Some(payload) => {
                writer.raw(payload.as_bytes());
            }
            None if self.omit_request => {}
            None => {
                stanza_content::write(&mut writer, head, bytes, MAX_ECHO_BYTES);
            }
        }
        self.write(&mut writer);
        writer.end();
        Some(out)
    }
}

impl From<StanzaCondition> for StanzaError {
    fn from(condition: StanzaCondition) -> Self {
        Self::new(condition)
    }
}

/// A stream error (RFC 6120, section 4.9.2), which always ends the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamError {
    /// The defined condition.
    pub condition: StreamCondition,
    /// One sentence for a human reader, in English.
    pub text: Option<Cow<'static, str>>,
    /// Application-specific condition (RFC 6120, section 4.9.4): one element with its namespace declared, ready to
    /// send.
    pub application_condition: Option<Box<str>>,
    /// Host or address, with an optional port, to which the client should connect: the content of
    /// [`StreamCondition::SeeOtherHost`] (RFC 6120, section 4.9.3.19).
    pub other_host: Option<Box<str>>,
}

impl StreamError {
    /// The condition without text.
    pub const fn new(condition: StreamCondition) -> Self {
        Self { condition, text: None, application_condition: None, other_host: None }
    }

    /// Redirects the client to another host (RFC 6120, section 4.9.3.19).
    pub fn see_other_host(host: impl Into<Box<str>>) -> Self {
        Self { other_host: Some(host.into()), ..Self::new(StreamCondition::SeeOtherHost) }
    }

    /// Sets the application-specific condition.
    #[must_use]
    pub fn application_condition(mut self, element: impl Into<Box<str>>) -> Self {
        self.application_condition = Some(element.into());
        self
    }

    /// Sets the text.
    #[must_use]
    pub fn text(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Writes `<stream:error/>`; the stream header declares the prefix.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.start("stream:error");
        writer.start(self.condition.as_str());
        writer.ns(Ns::StreamsErrors);
        if let Some(host) = &self.other_host {
            writer.text(host);
        }
        writer.end();
        if let Some(text) = &self.text {
            writer.start("text");
            writer.ns(Ns::StreamsErrors);
            writer.attr("xml:lang", "en");
            writer.text(text);
            writer.end();
        }
        writer.raw(self.application_condition.as_deref().unwrap_or_default().as_bytes());
        writer.end();
    }
}

impl From<StreamCondition> for StreamError {
    fn from(condition: StreamCondition) -> Self {
        Self::new(condition)
    }
}

/// Maps a parser error to the condition required by RFC 6120, sections 4.9.3 and 11.
impl From<xml::Error> for StreamError {
    fn from(error: xml::Error) -> Self {
        let condition = match error.kind() {
            xml::StreamErrorKind::NotWellFormed => StreamCondition::NotWellFormed,
            xml::StreamErrorKind::RestrictedXml => StreamCondition::RestrictedXml,
            xml::StreamErrorKind::PolicyViolation => StreamCondition::PolicyViolation,
            xml::StreamErrorKind::BadNamespacePrefix => StreamCondition::BadNamespacePrefix,
            xml::StreamErrorKind::UnsupportedEncoding => StreamCondition::UnsupportedEncoding,
            xml::StreamErrorKind::InvalidXml => StreamCondition::InvalidXml,
        };
        StreamError::new(condition).text(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Element;
    use xml::{Limits, NamespaceContext};

    fn reply(text: &str) -> Option<String> {
        let scope = NamespaceContext::client();
        let limits = Limits::default();
        let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &scope, &limits) else { panic!() };
        StanzaError::new(StanzaCondition::ServiceUnavailable)
            .reply(text.as_bytes(), &head, Some("a@b"), Some("c@d/e"))
            .map(|b| String::from_utf8(b).unwrap())
    }

    //= https://www.rfc-editor.org/rfc/rfc6121#section-4.7.1
    //= type=test
    //# error -- An error has occurred regarding processing of a previously sent presence stanza; if the presence
    //# stanza is of type "error", it MUST include an <error/> child element (refer to [XMPP-CORE]).
    #[test]
    fn replies_swap_addresses_and_keep_the_id() {
        assert_eq!(
            reply("<iq id='x&amp;1' type='get'><q xmlns='u:v'/></iq>").unwrap(),
            "<iq from='a@b' to='c@d/e' id='x&amp;1' type='error'><q xmlns='u:v'/><error type='cancel'>\
             <service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
        );
    }

    #[test]
    fn rfc6120_section_8_3_2_an_error_may_name_who_has_detected_it() {
        let mut out = Vec::new();
        StanzaError::new(StanzaCondition::Conflict)
            .by("coven@chat.shakespeare.lit")
            .write(&mut Writer::new(&mut out));
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("<error by='coven@chat.shakespeare.lit' type='cancel'>"), "{text}");
    }

    #[test]
    fn prefixes_that_the_original_declares_are_declared_in_the_reply() {
        assert_eq!(
            reply("<iq id='1' type='get' xmlns:p='urn:p' xmlns='jabber:client' xmlns:q=\"u:'\" q:x=''><p:q/></iq>").unwrap(),
            "<iq from='a@b' to='c@d/e' id='1' type='error' xmlns:p='urn:p' xmlns:q=\"u:'\"><p:q/><error type='cancel'>\
             <service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
        );
        let long = format!("<iq id='1' type='get' xmlns:p='u:{}'><p:q/></iq>", "x".repeat(1000));
        assert!(reply(&long).unwrap().contains("<p:q/>"));
        let many: String = (0..3).map(|i| format!(" xmlns:p{i}='u:{}'", "x".repeat(1000))).collect();
        let reply = reply(&format!("<iq id='1' type='get'{many}><p1:q/></iq>")).unwrap();
        assert!(!reply.contains("p1") && reply.contains("<service-unavailable "), "{reply}");
    }

    //= https://www.rfc-editor.org/rfc/rfc6120#section-8.3.1
    //= type=test
    //# Naturally, the entity MUST NOT include the original data if it not well-formed XML
    #[test]
    fn every_reply_to_an_admitted_stanza_can_be_read() {
        let scope = NamespaceContext::client();
        let prefixes: String = (0..32).map(|i| format!(" xmlns:p{i}='u:{i}'")).collect();
        let attributes: String = (0..29).map(|i| format!(" a{i}=''")).collect();
        let deep = format!("{}{}", "<p1:a>".repeat(63), "</p1:a>".repeat(63));
        for text in [
            format!("<iq id='1' type='get'{prefixes}{attributes}>{deep}</iq>"),
            format!("<iq type='get' id=\"{}\"><a/></iq>", "'".repeat(32_700)),
            format!("<message id='{}'/>", "\"".repeat(32_700)),
            format!("<message id='{}'/>", "\n".repeat(32_700)),
        ] {
            let reply = reply(&text).unwrap();
            let read = Element::read(reply.as_bytes(), &scope, &Limits::CEILING);
            let Ok(Element::Stanza(head)) = read else { panic!("{read:?}: {reply}") };
            let Ok(Element::Stanza(original)) = Element::read(text.as_bytes(), &scope, &Limits::DEFAULT)
            else {
                panic!()
            };
            assert_eq!(head.id(reply.as_bytes()), original.id(text.as_bytes()));
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc6120#section-8.2.3
    //= type=test
    //# An entity that receives a stanza of type "result" or "error" MUST NOT respond to the stanza by sending a
    //# further IQ response of type "result" or "error"
    //= https://www.rfc-editor.org/rfc/rfc6120#section-8.3.1
    //= type=test
    //# An entity that receives an error stanza MUST NOT respond to the stanza with a further error stanza; this
    //# helps to prevent looping.
    //= https://www.rfc-editor.org/rfc/rfc6120#section-15
    //= type=test
    //# Feature: stanza-error-reply. Description: Do not reply to a stanza of type "error" with another stanza of
    //# type "error". Section: Section 8.3. Roles: Client MUST, Server MUST.
    #[test]
    fn errors_and_results_are_never_answered() {
        assert!(reply("<message type='error'/>").is_none());
        assert!(reply("<iq type='result' id='1'/>").is_none());
        assert!(reply("<iq type='error' id='1'/>").is_none());
        assert!(reply("<message/>").is_some());
    }

    //= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.2
    //= type=test
    //# The "defined-condition" MUST correspond to one of the stream error conditions defined under Section 4.9.3.
    //= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.2
    //= type=test
    //# MUST contain a child element corresponding to one of the defined stream error conditions; this element MUST
    //# be qualified by the 'urn:ietf:params:xml:ns:xmpp-streams' namespace.
    #[test]
    fn stream_errors_name_the_condition() {
        let mut out = Vec::new();
        StreamError::new(StreamCondition::Conflict).text("replaced").write(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "<stream:error><conflict xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>\
             <text xmlns='urn:ietf:params:xml:ns:xmpp-streams' xml:lang='en'>replaced</text></stream:error>"
        );
    }

    #[test]
    fn section_8_3_4_an_application_specific_condition_has_its_namespace_and_content() {
        let write = |error: StanzaError| {
            let mut out = Vec::new();
            error.write(&mut Writer::new(&mut out));
            String::from_utf8(out).unwrap()
        };
        let error = |application: &str| {
            format!(
                "<error type='cancel'><not-allowed xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>{application}</error>"
            )
        };
        let condition = || StanzaError::new(StanzaCondition::NotAllowed);
        assert_eq!(
            write(condition().application_condition(Ns::Commands, "bad-payload")),
            error("<bad-payload xmlns='http://jabber.org/protocol/commands'/>")
        );
        let with_child = condition().application_element(|writer| {
            writer
                .start("file-too-large")
                .xmlns("urn:xmpp:http:upload:0")
                .text_element("max-file-size", "20000")
                .end();
        });
        assert_eq!(
            write(with_child),
            error(
                "<file-too-large xmlns='urn:xmpp:http:upload:0'><max-file-size>20000</max-file-size></file-too-large>"
            )
        );
    }
}
