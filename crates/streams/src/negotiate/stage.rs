//! Stage of a stream's negotiation: what the client may send next. RFC 6120, section 4.3.5.
//!
//! One value instead of marks for the header and for authentication, which exclude one another in part: an element
//! before the header, or a resource before authentication, cannot be represented.

/// Elements that the client may send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NegotiationStage {
    /// The header of a stream that is not authenticated: the first one, or the one after STARTTLS.
    Header,
    /// STARTTLS or SASL elements.
    Authentication,
    /// The header after authentication.
    AuthenticatedHeader,
    /// A request to bind or resume.
    Resource,
}

/// Transition of a [`NegotiationStage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NegotiationEvent {
    /// The header was answered with ours.
    HeaderSent,
    /// The client has authenticated.
    Authenticated,
    /// The stream starts again, after STARTTLS or SASL.
    Restarted,
}

impl NegotiationStage {
    /// The stage after this event.
    pub(crate) const fn after(self, event: NegotiationEvent) -> NegotiationStage {
        match (self.is_authenticated(), event) {
            (_, NegotiationEvent::Authenticated) | (true, NegotiationEvent::HeaderSent) => {
                NegotiationStage::Resource
            }
            (false, NegotiationEvent::HeaderSent) => NegotiationStage::Authentication,
            (true, NegotiationEvent::Restarted) => NegotiationStage::AuthenticatedHeader,
            (false, NegotiationEvent::Restarted) => NegotiationStage::Header,
        }
    }

    /// Whether our header of the current document was sent.
    pub(crate) const fn is_header_sent(self) -> bool {
        matches!(self, NegotiationStage::Authentication | NegotiationStage::Resource)
    }

    /// Whether the client has authenticated.
    pub(crate) const fn is_authenticated(self) -> bool {
        matches!(self, NegotiationStage::AuthenticatedHeader | NegotiationStage::Resource)
    }
}

#[cfg(test)]
mod tests {
    use super::NegotiationEvent::{Authenticated, HeaderSent, Restarted};
    use super::NegotiationStage::{self, AuthenticatedHeader, Authentication, Header, Resource};

    #[test]
    fn every_event_leads_to_the_next_stage() {
        for (stage, header_sent, authenticated, restarted) in [
            (Header, Authentication, Resource, Header),
            (Authentication, Authentication, Resource, Header),
            (AuthenticatedHeader, Resource, Resource, AuthenticatedHeader),
            (Resource, Resource, Resource, AuthenticatedHeader),
        ] {
            assert_eq!(
                [HeaderSent, Authenticated, Restarted].map(|event| stage.after(event)),
                [header_sent, authenticated, restarted],
                "{stage:?}"
            );
        }
    }

    #[test]
    fn both_profiles_reach_the_resource() {
        let play = |events: &[_]| events.iter().fold(Header, |stage: NegotiationStage, e| stage.after(*e));
        let tls = [HeaderSent, Restarted, HeaderSent];
        assert_eq!(play(&tls), Authentication);
        assert_eq!(play(&[&tls[..], &[Authenticated]].concat()), Resource, "XEP-0388");
        assert_eq!(play(&[&tls[..], &[Authenticated, Restarted]].concat()), AuthenticatedHeader, "RFC 6120");
        assert_eq!(play(&[&tls[..], &[Authenticated, Restarted, HeaderSent]].concat()), Resource);
        assert_eq!(
            [Header, Authentication, AuthenticatedHeader, Resource].map(NegotiationStage::is_header_sent),
            [false, true, false, true]
        );
    }
}
