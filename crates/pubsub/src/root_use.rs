//! Whether a service has a root node, which exists while somebody is subscribed to it.

use std::sync::Arc;

use base::lock::LeafMutex;
use jid::JidRef;
use throng_core::Node;

use crate::node::ROOT_NODE;
use crate::service::node_address;

/// Seconds after which it is asked again whether a root node exists, which another node of the cluster may have created or
/// removed.
const ROOT_SECONDS: u32 = 60;

/// When it was read, and whether it exists.
#[derive(Debug, Default)]
pub(crate) struct RootUse(LeafMutex<Option<(u32, bool)>>);

impl RootUse {
    /// Whether it exists, if that was read lately.
    pub(crate) fn known(&self, now: u32) -> Option<bool> {
        let known = *self.0.lock();
        known.filter(|(at, _)| now.saturating_sub(*at) < ROOT_SECONDS).map(|(_, exists)| exists)
    }

    pub(crate) fn set(&self, now: u32, exists: bool) {
        *self.0.lock() = Some((now, exists));
    }

    /// Whether it exists.
    pub(crate) async fn exists(&self, node: &Arc<Node>, service: JidRef<'_>) -> bool {
        let now = node.seconds();
        if let Some(known) = self.known(now) {
            return known;
        }
        let Ok(key) = node_address(service, ROOT_NODE) else { return false };
        match node.stores.pubsub.number(key.as_ref()).await {
            Ok(number) => {
                self.set(now, number.is_some());
                number.is_some()
            }
            Err(error) => {
                tracing::warn!(%service, %error, "the root node could not be read");
                false
            }
        }
    }
}
