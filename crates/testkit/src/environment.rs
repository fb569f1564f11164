//! What the program provides to features: files in memory, a secret, and a public URL at which nothing listens.

use std::sync::Arc;

use throng_core::Node;
use throng_core::file_storage::SharedFileStorage;
use throng_core::public_url::{PublicUrl, SharedPublicUrl};
use throng_core::server_secret::ServerSecret;

use crate::files::MemoryFileStorage;

/// The same for every domain.
struct TestUrl;

impl PublicUrl for TestUrl {
    fn base(&self, _domain: &str) -> Option<String> {
        Some("https://upload.test".to_owned())
    }
}

/// Provides everything to the features of a node.
pub(crate) fn provide(node: &Node) {
    node.extensions.insert(ServerSecret::new(&[1; 32]));
    node.extensions.insert::<SharedFileStorage>(Arc::new(MemoryFileStorage::default()));
    node.extensions.insert::<SharedPublicUrl>(Arc::new(TestUrl));
}
