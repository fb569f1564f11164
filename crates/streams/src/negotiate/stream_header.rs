//! Stream header of the client and of the server: RFC 6120, sections 4.2, 4.7 and 4.8.

use stanza::stream::{StreamHeader, write_header};
use stanza::{StreamCondition, StreamError};
use xml::NamespaceContext;

use super::{NegotiationEvent, NegotiationOutcome, NegotiationResult};
use crate::c2s::{C2sConnection, ConnectionPhase};

/// Longest `xml:lang`, in bytes, that is echoed to the client.
const MAX_LANG_BYTES: usize = 35;

/// Whether a language tag (RFC 5646) is English or a variant of it.
fn is_english(tag: &str) -> bool {
    let mut parts = tag.split('-');
    tag.len() <= MAX_LANG_BYTES
        && parts.next().is_some_and(|p| p.eq_ignore_ascii_case("en"))
        && parts.all(|p| matches!(p.len(), 1..=8) && p.bytes().all(|b| b.is_ascii_alphanumeric()))
}

impl C2sConnection {
    /// Handles the client's header and answers with ours and the features.
    pub(super) fn on_stream_header(&mut self, tag: &[u8]) -> NegotiationResult {
        let limits = self.context.node.limits().negotiation();
        let lacks_tls = self.requires_unavailable_tls();
        let ConnectionPhase::Negotiating(state) = &mut self.phase else {
            return Ok(NegotiationOutcome::Pending);
        };
        if state.stage.is_header_sent() {
            return Err(StreamError::new(StreamCondition::BadFormat).text("unexpected second stream header"));
        }
        let opening = StreamHeader::read(tag, &limits)?;
        self.scope = NamespaceContext::from_open_tag(tag, &limits)?;
        // Section 4.7.4: the client's language if our texts are in it, otherwise ours.
        state.lang = opening.lang.filter(|l| is_english(l)).unwrap_or_else(|| "en".to_owned());
        let node = &self.context.node;
        let host = match opening.to.as_deref() {
            Some(to) => match jid::parse(to) {
                Ok(parsed) if parsed.as_ref().is_domain() => node.host(parsed.as_ref().domain()),
                Ok(_) => None,
                Err(_) => {
                    return Err(StreamError::new(StreamCondition::ImproperAddressing)
                        .text("the 'to' attribute is not a domain"));
                }
            },
            // Section 4.7.2: `to` selects one of several domains; with a single domain it may be omitted.
            None if node.hosts().len() == 1 => node.host(&self.context.default_domain),
            None => {
                return Err(StreamError::new(StreamCondition::ImproperAddressing)
                    .text("this server serves several domains; name one in the 'to' attribute"));
            }
        };
        let Some(host) = host else {
            return Err(StreamError::new(StreamCondition::HostUnknown)
                .text(format!("{} is not served here", opening.to.unwrap_or_default())));
        };
        if let Some(before) = &state.host
            && state.stage.is_authenticated()
            && before.domain() != host.domain()
        {
            return Err(StreamError::new(StreamCondition::NotAuthorized)
                .text("the domain changed after authentication"));
        }
        state.host = Some(host.clone());
        // Section 4.7.5: no version means 0.9, which has no features and no SASL.
        if opening.version.is_none_or(|(major, _)| major < 1) {
            return Err(
                StreamError::new(StreamCondition::UnsupportedVersion).text("only version 1.0 is supported")
            );
        }
        if lacks_tls {
            return Err(StreamError::new(StreamCondition::PolicyViolation)
                .text("this listener requires encryption: use https or wss"));
        }
        let mut out = Vec::with_capacity(768);
        // Section 4.7.2: the bare address of `from`. It is not trusted; SASL establishes the identity.
        let from = opening.from.as_deref().and_then(|f| jid::parse(f).ok());
        // XEP-0388, section 3.1.
        if from.as_ref().is_some_and(|f| f.as_ref().domain() != host.domain()) {
            return Err(StreamError::new(StreamCondition::InvalidFrom)
                .text("the 'from' attribute is not an address of the stream's domain"));
        }
        let to = from.as_ref().map(|f| f.as_ref().bare());
        state.from = to.as_ref().map(|t| t.to_jid());
        write_header(
            &mut out,
            host.domain(),
            to.as_ref().map(|t| t.as_str()),
            &base::id::random_id(),
            &state.lang,
        );
        state.stage = state.stage.after(NegotiationEvent::HeaderSent);
        self.write_stream_features(&mut out);
        Ok(NegotiationOutcome::Reply(out))
    }
}
