//! The photo in a stored vCard, read and replaced for the conversion from and to avatars of XEP-0084: XEP-0398 1.0.0, section 3.
//!
//! Everything else in the vCard stays as its owner wrote it.

use std::sync::Arc;

use base::BoxFuture;
use feature_api::account_data::{NewPhoto, VCardPhoto, VCardPhotos};
use jid::Jid;
use store::StoreError;
use throng_core::feature_notice::NoticeCtx;
use throng_core::{Effects, Host, Node, shared_stanza};
use xml::{Ns, TreeNode, Writer};

use super::photo::{self, PhotoSha1};

/// Name of the notice that a photo was replaced or removed. Content: the hash of the photo in hexadecimal digits or nothing, a space,
/// and the account.
pub(super) const PHOTO_CHANGED: &str = "vcard-photo";

/// How often a vCard is read and replaced while its owner changes it.
const MAX_ATTEMPTS: usize = 8;

/// The photos of a host.
pub(super) struct StoredPhotos {
    /// Maximum size of a vCard.
    pub(super) max_bytes: usize,
    /// Whether hashes are added to presence.
    pub(super) hashes: bool,
}

impl VCardPhotos for StoredPhotos {
    fn photo(
        &self,
        node: Arc<Node>,
        owner: Jid,
    ) -> BoxFuture<'static, Result<Option<VCardPhoto>, StoreError>> {
        Box::pin(async move {
            let card = node.stores.vcards.get(owner.as_ref()).await?;
            Ok(card.as_deref().and_then(photo_of))
        })
    }

    fn set_photo(
        &self,
        node: Arc<Node>,
        host: Arc<Host>,
        owner: Jid,
        photo: Option<NewPhoto>,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        let (max_bytes, hashes) = (self.max_bytes, self.hashes);
        Box::pin(async move {
            // The client may store another vCard meanwhile, which must not be lost.
            for _ in 0..MAX_ATTEMPTS {
                let before = node.stores.vcards.get(owner.as_ref()).await?;
                let known = before.as_deref().and_then(photo_of).map(|photo| photo.sha1);
                if known == photo.as_ref().map(|photo| photo.sha1.to_ascii_lowercase()) {
                    return Ok(());
                }
                let stored = before.as_deref().unwrap_or_default();
                let card = match photo.as_ref().map(|photo| card_with(&owner, stored, photo, max_bytes)) {
                    Some(Some(card)) => Some(card),
                    Some(None) if known.is_none() => return Ok(()),
                    // The photo before is not the avatar any more.
                    _ => with_photo(stored, None),
                };
                let tree = card.as_deref().map(shared_stanza::tree);
                let Some(Ok(tree)) = tree.or_else(|| Some(shared_stanza::tree(EMPTY))) else { return Ok(()) };
                let (searchable, hash) = super::index(tree.root());
                drop(tree);
                match node.stores.vcards.replace(owner.as_ref(), before, card, searchable, hash).await? {
                    Some(true) => {
                        let mut effects = Effects::default();
                        photo_changed_everywhere(&node, &host, &owner, hash, hashes, &mut effects);
                        node.perform(effects);
                        return Ok(());
                    }
                    Some(false) => return Ok(()),
                    None => {}
                }
            }
            tracing::warn!(account = %owner, "an avatar is not copied to the vCard: the vCard changes repeatedly");
            Ok(())
        })
    }
}

/// The vCard with a photo; `None` if the photo cannot be in it.
fn card_with(owner: &Jid, stored: &[u8], photo: &NewPhoto, max_bytes: usize) -> Option<Vec<u8>> {
    if !has_its_hash(photo) {
        tracing::debug!(account = %owner, "an avatar is not copied to the vCard: its data does not have the hash of its metadata");
        return None;
    }
    let card = with_photo(stored, Some(photo))?;
    if card.len() > max_bytes {
        tracing::info!(account = %owner, "an avatar is not copied to the vCard: it is too large");
        return None;
    }
    Some(card)
}

const EMPTY: &[u8] = b"<vCard xmlns='vcard-temp'/>";

/// Announces on all nodes of the cluster that the photo was replaced or removed. `hashes`: whether hashes are added to presence.
pub(super) fn photo_changed_everywhere(
    node: &Arc<Node>,
    host: &Host,
    owner: &Jid,
    hash: Option<PhotoSha1>,
    hashes: bool,
    effects: &mut Effects,
) {
    photo_changed_here(node, owner, hash, hashes, effects);
    if let Some(peers) = node.peers() {
        let hash = hash.as_ref().map(photo::hex).unwrap_or_default();
        peers.send_notice(node, host, PHOTO_CHANGED, format!("{hash} {owner}").as_bytes());
    }
}

fn photo_changed_here(
    node: &Arc<Node>,
    owner: &Jid,
    hash: Option<PhotoSha1>,
    hashes: bool,
    effects: &mut Effects,
) {
    let Some(account) = node.routing_table.find(owner.as_ref()) else { return };
    match hashes {
        true => photo::photo_changed(&account, hash, effects),
        false => account.with(|state| account.set_photo(state, hash)),
    }
}

/// Handles the notice of another node.
pub(super) fn receive_change(ctx: &NoticeCtx<'_>, hashes: bool) {
    let text = ctx.content.and_then(|content| std::str::from_utf8(content).ok());
    let Some((hash, owner)) = text.and_then(|text| text.split_once(' ')) else { return };
    let Ok(owner) = Jid::parse(owner) else { return };
    let hash = match hash {
        "" => None,
        hash => match read_hex(hash) {
            Some(hash) => Some(hash),
            None => return,
        },
    };
    let mut effects = Effects::default();
    photo_changed_here(ctx.node, &owner, hash, hashes, &mut effects);
    ctx.node.perform(effects);
}

fn read_hex(text: &str) -> Option<PhotoSha1> {
    let mut hash = PhotoSha1::default();
    if text.len() != 2 * hash.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(hash)
}

fn has_its_hash(photo: &NewPhoto) -> bool {
    let decoded = photo::decode_photo(&photo.base64);
    decoded.is_some_and(|(_, hash)| photo::hex(&hash).eq_ignore_ascii_case(&photo.sha1))
}

fn photo_of(card: &[u8]) -> Option<VCardPhoto> {
    let tree = shared_stanza::tree(card).ok()?;
    let photo = tree.root().child("PHOTO", Ns::VCardTemp)?;
    let text = |name| photo.child(name, Ns::VCardTemp).map(|child| child.text().trim().to_owned());
    let base64: String = text("BINVAL")?.split_ascii_whitespace().collect();
    let (octets, hash) = photo::decode_photo(&base64)?;
    Some(VCardPhoto { media_type: text("TYPE").unwrap_or_default(), base64, sha1: photo::hex(&hash), octets })
}

/// A vCard with another photo or without one; `None` if nothing is left of it.
fn with_photo(card: &[u8], photo: Option<&NewPhoto>) -> Option<Vec<u8>> {
    let mut element = Vec::new();
    if let Some(photo) = photo {
        let base64: String = photo.base64.split_ascii_whitespace().collect();
        let mut w = Writer::new(&mut element);
        w.start_ns("PHOTO", Ns::VCardTemp).text_element("TYPE", &photo.media_type);
        w.text_element("BINVAL", &base64).end();
    }
    let fresh = || {
        let mut out = Vec::with_capacity(element.len() + 64);
        Writer::new(&mut out).start_ns("vCard", Ns::VCardTemp).raw(&element).end();
        Some(out).filter(|_| photo.is_some())
    };
    let Ok(tree) = shared_stanza::tree(card) else { return fresh() };
    let is_photo = |child: &TreeNode<'_>| child.is("PHOTO", Ns::VCardTemp);
    if tree.root().child_elements().all(|child| is_photo(&child)) {
        return fresh();
    }
    // There is another child, so the root has an end tag.
    let Some(end) = card.windows(2).rposition(|pair| pair == b"</") else { return fresh() };
    let mut out = Vec::with_capacity(card.len() + element.len());
    let mut at = 0;
    for child in tree.root().child_elements().filter(is_photo) {
        out.extend_from_slice(card.get(at..child.range().start)?);
        at = child.range().end;
    }
    out.extend_from_slice(card.get(at..end)?);
    out.extend_from_slice(&element);
    out.extend_from_slice(card.get(end..)?);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_photo() -> NewPhoto {
        // `printf photo | sha1sum`
        let sha1 = "EEB35D331BDDCDDFDBB0A6D16F64120BB01356FD".to_owned();
        NewPhoto { media_type: "image/png".to_owned(), base64: "cGhv\ndG8=".to_owned(), sha1 }
    }
    const PHOTO: &str = "<PHOTO xmlns='vcard-temp'><TYPE>image/png</TYPE><BINVAL>cGhvdG8=</BINVAL></PHOTO>";

    #[test]
    fn only_the_photo_of_a_vcard_is_replaced() {
        let with = |card: &str, photo: Option<&NewPhoto>| {
            with_photo(card.as_bytes(), photo).map(|card| String::from_utf8(card).unwrap())
        };
        let photo = new_photo();
        let of = |inner: &str| format!("<vCard xmlns='vcard-temp'>{inner}</vCard>");
        let old = "<PHOTO><TYPE>image/gif</TYPE><BINVAL>b2xk</BINVAL></PHOTO>";
        assert_eq!(with("", Some(&photo)), Some(format!("<vCard xmlns='vcard-temp'>{PHOTO}</vCard>")));
        assert_eq!(with(&of(old), Some(&photo)), with("", Some(&photo)));
        let full = of(&format!("<FN>a</FN>{old}<N><GIVEN>b</GIVEN></N>{old}"));
        assert_eq!(with(&full, Some(&photo)), Some(of(&format!("<FN>a</FN><N><GIVEN>b</GIVEN></N>{PHOTO}"))));
        assert_eq!(with(&full, None), Some(of("<FN>a</FN><N><GIVEN>b</GIVEN></N>")));
        assert_eq!(with(&of(old), None), None);
        let prefixed = "<v:vCard xmlns:v='vcard-temp'><v:FN>a</v:FN></v:vCard>";
        assert_eq!(
            with(prefixed, Some(&photo)),
            Some(prefixed.replace("</v:vCard>", &format!("{PHOTO}</v:vCard>")))
        );
    }

    #[test]
    fn a_photo_must_have_its_hash() {
        let photo = new_photo();
        assert!(has_its_hash(&photo));
        assert!(!has_its_hash(&NewPhoto { base64: "b3RoZXI=".to_owned(), ..photo.clone() }));
        assert!(!has_its_hash(&NewPhoto { base64: "!".to_owned(), ..photo }));
        assert_eq!(read_hex(&photo::hex(&[7; 20])), Some([7; 20]));
        for bad in ["", "07", &"g".repeat(40), &"é".repeat(20), &"+".repeat(40)] {
            assert_eq!(read_hex(bad), None, "{bad}");
        }
    }
}
