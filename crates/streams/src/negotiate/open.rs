//! The stream header: RFC 6120 sections 4.2, 4.7 and 4.8.

use stanza::stream::{Opening, header};
use stanza::{StreamCondition, StreamError};
use xml::Scope;

use super::{Did, Stage, Taken};
use crate::c2s::{Connection, Phase};

/// Longest `xml:lang` that is repeated to the client.
const LANG: usize = 35;

/// Whether a language tag (RFC 5646) is English or a kind of it.
fn is_english(tag: &str) -> bool {
    let mut parts = tag.split('-');
    tag.len() <= LANG
        && parts.next().is_some_and(|p| p.eq_ignore_ascii_case("en"))
        && parts.all(|p| matches!(p.len(), 1..=8) && p.bytes().all(|b| b.is_ascii_alphanumeric()))
}

impl Connection {
    /// Takes the client's header, answers with ours and the features.
    pub(super) fn header(&mut self, tag: &[u8]) -> Taken {
        let limits = self.service.node.limits().negotiation();
        let lacks_tls = self.lacks_tls();
        let Phase::Negotiating(state) = &mut self.phase else { return Ok(Did::Waits) };
        if state.opened {
            return Err(StreamError::new(StreamCondition::BadFormat).text("a second stream header"));
        }
        let opening = Opening::read(tag, &limits)?;
        self.scope = Scope::from_open_tag(tag, &limits)?;
        // 4.7.4: the client's language if our texts are in it, else ours.
        state.lang = opening.lang.filter(|l| is_english(l)).unwrap_or_else(|| "en".to_owned());
        let node = &self.service.node;
        let host = match opening.to.as_deref() {
            Some(to) => match jid::parse(to) {
                Ok(parsed) if parsed.as_ref().is_domain() => node.host(parsed.as_ref().domain()),
                Ok(_) => None,
                Err(_) => {
                    return Err(
                        StreamError::new(StreamCondition::ImproperAddressing).text("to is not a domain")
                    );
                }
            },
            // 4.7.2: `to` is for servers of several domains to choose by; with one there is nothing to choose.
            None if node.hosts().len() == 1 => node.host(&self.service.default_domain),
            None => {
                return Err(StreamError::new(StreamCondition::ImproperAddressing)
                    .text("this server has several domains; name one in to"));
            }
        };
        let Some(host) = host else {
            return Err(StreamError::new(StreamCondition::HostUnknown)
                .text(format!("{} is not served here", opening.to.unwrap_or_default())));
        };
        if let Some(before) = &state.host
            && state.authenticated
            && before.domain() != host.domain()
        {
            return Err(StreamError::new(StreamCondition::NotAuthorized)
                .text("the domain changed after authentication"));
        }
        state.host = Some(host.clone());
        // 4.7.5: no version means 0.9, which has no features and no SASL.
        if opening.version.is_none_or(|(major, _)| major < 1) {
            return Err(
                StreamError::new(StreamCondition::UnsupportedVersion).text("only version 1.0 is spoken here")
            );
        }
        if lacks_tls {
            return Err(StreamError::new(StreamCondition::PolicyViolation)
                .text("nothing is said here without TLS: use https or wss"));
        }
        let mut out = Vec::with_capacity(768);
        // 4.7.2: the bare address of `from`. Nothing is believed of it; who it is shows in SASL.
        let from = opening.from.as_deref().and_then(|f| jid::parse(f).ok());
        // XEP-0388 section 3.1.
        if from.as_ref().is_some_and(|f| f.as_ref().domain() != host.domain()) {
            return Err(StreamError::new(StreamCondition::InvalidFrom)
                .text("from is not of the domain that the stream is for"));
        }
        let to = from.as_ref().map(|f| f.as_ref().bare());
        state.from = to.as_ref().map(|t| t.to_jid());
        header(&mut out, host.domain(), to.as_ref().map(|t| t.as_str()), &base::id::random_id(), &state.lang);
        state.opened = true;
        state.stage = if state.authenticated { Stage::Resource } else { Stage::Authentication };
        self.features(&mut out);
        Ok(Did::Said(out))
    }
}
