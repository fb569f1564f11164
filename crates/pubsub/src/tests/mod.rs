//! Tests from the examples of XEP-0060, on nodes without sockets.

use crate::options::NodeLimits;

pub(crate) fn limits() -> NodeLimits {
    NodeLimits {
        items: 100,
        default_items: 10,
        payload_bytes: 1_000,
        affiliations: 10,
        special_subscriptions: 10,
        subscriptions_per_address: 3,
        form_fields: 64,
        batch_items: 5,
    }
}
