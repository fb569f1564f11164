//! Avatars (XEP-0084) and photos of vCards (XEP-0153): XEP-0398 1.0.0, section 3.
//!
//! vCards are readable by everybody, so an avatar is copied into the vCard only if its data are open to everybody, too (section 7). A
//! photo that was the avatar before does not stay.

use feature_api::account_data::{NewPhoto, SharedVCardPhotos};
use store::StoreError;
use throng_core::shared_stanza;
use xml::{Ns, Writer};

use super::{AVATAR_DATA, AVATAR_METADATA, Conversion, ConversionError, ConvertedNode};
use crate::node_config::AccessModel;

/// What the metadata say about data at the data node: hash and media type.
struct AvatarInfo {
    id: String,
    media_type: String,
}

/// The content of metadata.
struct AvatarMetadata {
    /// Avatars at the data node.
    at_node: Vec<AvatarInfo>,
    /// Nothing: the user has no avatar.
    is_empty: bool,
}

impl AvatarMetadata {
    fn read(payload: &[u8]) -> Option<AvatarMetadata> {
        let tree = shared_stanza::tree(payload).ok()?;
        let root = tree.root();
        if !root.is("metadata", Ns::AvatarMetadata) {
            return None;
        }
        let infos = root.child_elements().filter(|child| child.is("info", Ns::AvatarMetadata));
        let at_node = infos.filter(|info| info.attr("url").is_none()).filter_map(|info| {
            let media_type = info.attr("type").map(|text| text.into_owned()).unwrap_or_default();
            Some(AvatarInfo { id: info.attr("id")?.to_ascii_lowercase(), media_type })
        });
        let at_node = at_node.collect();
        // Former versions have an element that says it.
        let is_empty = root.child_elements().all(|child| child.is("stop", Ns::AvatarMetadata));
        Some(AvatarMetadata { at_node, is_empty })
    }

    /// Whether an avatar has this hash.
    fn has(&self, sha1: &str) -> bool {
        self.at_node.iter().any(|info| info.id == sha1)
    }
}

impl Conversion<'_> {
    /// Section 3.1: from the items to the vCard.
    pub(super) async fn convert_avatar(&self) -> Result<(), ConversionError> {
        let Some(SharedVCardPhotos(photos)) = self.host.extensions.get() else { return Ok(()) };
        let Some(metadata) = self.load(AVATAR_METADATA).await? else { return Ok(()) };
        let Some(metadata) = self.current_metadata(&metadata).await? else { return Ok(()) };
        let mut photo = None;
        if !metadata.is_empty {
            let known = photos.photo(self.node.clone(), self.account.clone()).await?;
            if known.is_some_and(|known| metadata.has(&known.sha1)) {
                return Ok(());
            }
            let data = self.load(AVATAR_DATA).await?;
            let is_open = data.as_ref().is_none_or(|data| data.access_model == AccessModel::Open);
            if let Some(data) = data.as_ref().filter(|_| is_open) {
                photo = self.photo_of(&metadata, data).await?;
            }
            // The data may follow.
            if is_open && photo.is_none() && !metadata.at_node.is_empty() {
                return Ok(());
            }
        }
        self.check_newest()?;
        photos.set_photo(self.node.clone(), self.host.clone(), self.account.clone(), photo).await?;
        Ok(())
    }

    async fn current_metadata(&self, of: &ConvertedNode) -> Result<Option<AvatarMetadata>, StoreError> {
        let item = self.last_item(AVATAR_METADATA, of).await?;
        Ok(item.and_then(|item| AvatarMetadata::read(&item.payload)))
    }

    async fn photo_of(
        &self,
        metadata: &AvatarMetadata,
        data: &ConvertedNode,
    ) -> Result<Option<NewPhoto>, StoreError> {
        for info in &metadata.at_node {
            let Some(head) = data.items.iter().find(|head| head.id.eq_ignore_ascii_case(&info.id)) else {
                continue;
            };
            let Some(item) = self.items(AVATAR_DATA, vec![head.seq]).await?.pop() else { continue };
            let Ok(tree) = shared_stanza::tree(&item.payload) else { continue };
            if tree.root().is("data", Ns::AvatarData) {
                let base64 = tree.root().text().into_owned();
                let (media_type, sha1) = (info.media_type.clone(), info.id.clone());
                return Ok(Some(NewPhoto { media_type, base64, sha1 }));
            }
        }
        Ok(None)
    }

    /// Section 3.2: from the vCard to the items.
    pub(super) async fn convert_photo(&self) -> Result<(), ConversionError> {
        let Some(SharedVCardPhotos(photos)) = self.host.extensions.get() else { return Ok(()) };
        let photo = photos.photo(self.node.clone(), self.account.clone()).await?;
        let metadata = self.load(AVATAR_METADATA).await?;
        let current = match &metadata {
            Some(metadata) => self.current_metadata(metadata).await?,
            None => None,
        };
        let last_info = metadata.as_ref().and_then(ConvertedNode::last_item);
        self.check_newest()?;
        let Some(photo) = photo else {
            if current.is_some_and(|current| !current.is_empty) {
                let empty = (String::new(), b"<metadata xmlns='urn:xmpp:avatar:metadata'/>".to_vec());
                self.publish(AVATAR_METADATA, last_info, [empty]).await?;
            }
            return Ok(());
        };
        let is_current = current.is_some_and(|current| current.has(&photo.sha1));
        if is_current || !photo.media_type.to_ascii_lowercase().starts_with("image/") {
            return Ok(());
        }
        // The vCard is open to everybody. The access to nodes that exist is what their owner wants.
        let open = [("pubsub#access_model", "open")];
        let data = self.load(AVATAR_DATA).await?;
        if data.is_none() {
            self.create(AVATAR_DATA, &open).await?;
        }
        if metadata.is_none() {
            self.create(AVATAR_METADATA, &open).await?;
        }
        let (mut payload, mut info) = (Vec::new(), Vec::new());
        Writer::new(&mut payload).start_ns("data", Ns::AvatarData).text(&photo.base64).end();
        let mut w = Writer::new(&mut info);
        w.start_ns("metadata", Ns::AvatarMetadata).start("info");
        w.attr("bytes", &photo.octets.to_string()).attr("id", &photo.sha1).attr("type", &photo.media_type);
        w.end().end();
        // First the data, then the metadata: subscribers ask for the data at once.
        let last_data = data.as_ref().and_then(ConvertedNode::last_item);
        self.publish(AVATAR_DATA, last_data, [(photo.sha1.clone(), payload)]).await?;
        self.publish(AVATAR_METADATA, last_info, [(photo.sha1.clone(), info)]).await
    }
}
