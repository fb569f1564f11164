//! Errors of PubSub: a condition of RFC 6120 with an element of `pubsub#errors`: XEP-0060 1.30.0, sections 6 to 8 and schema
//! 16.2.

use stanza::{ErrorType, StanzaCondition, StanzaError};
use xml::Ns;

/// A condition with an element of `pubsub#errors`.
const fn parts(name: &str) -> (StanzaCondition, ErrorType) {
    use ErrorType::{Auth, Cancel, Modify, Wait};
    use StanzaCondition as Of;
    match name.as_bytes() {
        b"closed-node" => (Of::NotAllowed, Cancel),
        b"item-forbidden" | b"item-required" | b"jid-required" | b"subid-required" => {
            (Of::BadRequest, Modify)
        }
        b"payload-required" | b"invalid-payload" | b"invalid-jid" | b"nodeid-required"
        | b"invalid-options" => (Of::BadRequest, Modify),
        b"invalid-subid" | b"payload-too-big" | b"unsupported-access-model" => (Of::NotAcceptable, Modify),
        b"max-items-exceeded" => (Of::NotAllowed, Cancel),
        b"node-full" | b"precondition-not-met" => (Of::Conflict, Cancel),
        b"not-in-roster-group" | b"pending-subscription" | b"presence-subscription-required" => {
            (Of::NotAuthorized, Auth)
        }
        b"not-subscribed" => (Of::UnexpectedRequest, Cancel),
        b"too-many-subscriptions" => (Of::PolicyViolation, Wait),
        _ => (Of::UndefinedCondition, Cancel),
    }
}

/// The error with this element; the text of the specification decides about its condition and type.
pub(crate) fn pubsub_error(name: &'static str) -> StanzaError {
    let (condition, kind) = parts(name);
    StanzaError::new(condition).kind(kind).application_condition(Ns::PubsubErrors, name)
}

/// Section 6.5.9.3: items are for subscribers only.
pub(crate) fn not_subscribed_to_read() -> StanzaError {
    StanzaError::new(StanzaCondition::NotAuthorized)
        .kind(ErrorType::Auth)
        .application_condition(Ns::PubsubErrors, "not-subscribed")
}

/// A change of the graph of collections that is not possible (XEP-0248 0.5.0, section 7.2.3).
pub(crate) fn graph_error(name: &'static str) -> StanzaError {
    StanzaError::new(StanzaCondition::NotAllowed)
        .kind(ErrorType::Cancel)
        .application_condition(Ns::PubsubErrors, name)
}

/// The requester may not change the graph of collections at these nodes (sections 7.2.3.2, 7.5.3.1 and 7.6.3.2).
pub(crate) fn forbidden_in_graph() -> StanzaError {
    forbidden().kind(ErrorType::Cancel)
}

/// The service or node does not have this feature.
pub(crate) fn unsupported(feature: &'static str) -> StanzaError {
    StanzaError::new(StanzaCondition::FeatureNotImplemented).kind(ErrorType::Cancel).application_element(
        |w| {
            w.start_ns("unsupported", Ns::PubsubErrors).attr("feature", feature).end();
        },
    )
}

/// Insufficient privileges.
pub(crate) fn forbidden() -> StanzaError {
    StanzaError::new(StanzaCondition::Forbidden).kind(ErrorType::Auth)
}

/// There is no such node or item.
pub(crate) fn not_found() -> StanzaError {
    StanzaCondition::ItemNotFound.into()
}

/// A request that the schema does not permit.
pub(crate) fn bad_request(text: &'static str) -> StanzaError {
    StanzaError::new(StanzaCondition::BadRequest).text(text)
}
