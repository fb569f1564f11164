//! SASL profile of RFC 6120, section 6: `<auth/>`, `<response/>`, `<abort/>`, and a new stream after success.
//!
//! The steps in between are in `sasl_result`. XEP-0178 (1.2), section 2, for certificates; XEP-0474 (0.5.0) for the
//! hash of the offered mechanisms.

use sasl::{Exchange, Failure, Mechanism};
use stanza::StreamCondition;
use xml::{Ns, Tree, Writer};

use super::sasl_result::too_many_attempts;
use super::{NegotiationOutcome, NegotiationResult, SaslProfile};
use crate::c2s::C2sConnection;

impl C2sConnection {
    /// Handles an element in the SASL namespace.
    pub(super) fn sasl(&mut self, name: &str, bytes: &[u8]) -> NegotiationResult {
        let scope = self.scope.clone();
        let limits = self.context.node.limits().negotiation();
        let tree = Tree::parse(bytes, &scope, &limits)?;
        let text = tree.root().text().into_owned();
        let binding = self.channel_binding();
        let after_tls = self.mechanisms_after_tls();
        let limit = self.context.node.limits().auth_attempts;
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        match name {
            "auth" => {
                // Section 6.4.2: a new attempt discards an exchange in progress, which counts as an attempt.
                if state.exchange.is_some() {
                    state.attempts = state.attempts.saturating_add(1);
                    if state.attempts >= limit {
                        return Err(too_many_attempts());
                    }
                }
                state.forget_login();
                state.profile = SaslProfile::Rfc6120;
                let mechanism = tree.root().attr("mechanism");
                let mechanism = mechanism.as_deref().and_then(Mechanism::from_name);
                let Some(mechanism) = mechanism.filter(|m| state.offered.contains(*m)) else {
                    let failure = if mechanism.is_some_and(|m| after_tls.contains(m)) {
                        Failure::EncryptionRequired
                    } else {
                        Failure::InvalidMechanism
                    };
                    return self.failed_login(failure, "mechanism");
                };
                let initial = match sasl::encoding::decode_initial_response(&text) {
                    Ok(initial) => initial,
                    Err(failure) => return self.failed_login(failure, "encoding"),
                };
                let mut exchange = Exchange::new(mechanism, state.offered.has_plus(), binding, sasl::nonce())
                    .with_downgrade_protection(state.offered);
                let step = exchange.step(initial.as_deref());
                state.exchange = Some(exchange);
                self.apply_sasl_step(step)
            }
            "response" => {
                state.profile = SaslProfile::Rfc6120;
                let Some(exchange) = &mut state.exchange else {
                    return self.failed_login(Failure::MalformedRequest, "no exchange");
                };
                match sasl::encoding::decode_response(&text) {
                    Ok(data) => {
                        let step = exchange.step(Some(&data));
                        self.apply_sasl_step(step)
                    }
                    Err(failure) => self.failed_login(failure, "encoding"),
                }
            }
            "abort" => {
                state.profile = SaslProfile::Rfc6120;
                self.failed_login(Failure::Aborted, "aborted")
            }
            _ => Err(StreamCondition::UnsupportedStanzaType.into()),
        }
    }

    /// Sends `<success/>` (section 6.4.6).
    pub(super) fn success_rfc6120(&mut self) -> NegotiationResult {
        self.on_authenticated();
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let additional = sasl::encoding::encode_additional_data(state.additional.take().as_deref());
        let mut out = Vec::with_capacity(128);
        Writer::new(&mut out).start("success").ns(Ns::Sasl).text(&additional).end();
        Ok(NegotiationOutcome::RestartStream(out))
    }
}
