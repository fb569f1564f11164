//! The vCard of a room with its avatar: XEP-0486 0.1.0.
//!
//! Not implemented: presence of the room itself with the hash (section 6.2), which clients take for that of a user.

use base64::Engine;
use stanza::{StanzaCondition, StanzaError};
use throng_core::iq::IqAnswer;
use xml::{Limits, Ns, TreeNode};

use super::{Room, RoomCtx, RoomRequest};

/// The vCard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoomAvatar {
    /// The element.
    pub(crate) card: Box<[u8]>,
    /// SHA-1 of each photo, in hexadecimal digits.
    pub(crate) photo_hashes: Vec<String>,
}

impl RoomAvatar {
    /// Reads a vCard; `None` if it is empty.
    pub(crate) fn read(card: TreeNode<'_>) -> Option<RoomAvatar> {
        card.child_elements().next()?;
        let photos = card.child_elements().filter(|child| child.is("PHOTO", Ns::VCardTemp));
        let photo_hashes = photos.filter_map(photo_hash).collect();
        Some(RoomAvatar { card: card.to_standalone(&Limits::DEFAULT).ok()?.into(), photo_hashes })
    }
}

fn photo_hash(photo: TreeNode<'_>) -> Option<String> {
    let text: String = photo.child("BINVAL", Ns::VCardTemp)?.text().split_ascii_whitespace().collect();
    let bytes = base64::prelude::BASE64_STANDARD.decode(text).ok()?;
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &bytes);
    Some(digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Room {
    /// A request of `vcard-temp`.
    pub(super) fn avatar_request(&mut self, ctx: &mut RoomCtx<'_>, request: &RoomRequest<'_>) -> IqAnswer {
        if !request.is_set {
            let empty = || b"<vCard xmlns='vcard-temp'/>".to_vec();
            return Ok(self.avatar.as_ref().map_or_else(empty, |avatar| avatar.card.to_vec()));
        }
        if !self.is_owner(ctx, request.from.bare()) {
            let text = "Only owners are allowed to set avatars.";
            return Err(StanzaError::new(StanzaCondition::Forbidden).text(text));
        }
        if request.payload.raw().len() > self.limits().avatar_bytes {
            return Err(StanzaError::new(StanzaCondition::NotAcceptable).text("the vCard is too large"));
        }
        self.avatar = RoomAvatar::read(request.payload);
        self.note_change();
        self.announce_status(ctx, &[104]);
        Ok(Vec::new())
    }
}
