//! Data of accounts that clients keep in two places, where features meet that own one place each: photos of vCards (XEP-0153)
//! and private XML (XEP-0049). The feature with the nodes of accounts (XEP-0163) converts between them and its items
//! (XEP-0398, XEP-0402, XEP-0411).

use std::sync::Arc;

use base::{BoxFuture, Provided};
use jid::Jid;
use store::StoreError;
use throng_core::{Host, Node};

/// The photo of a vCard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VCardPhoto {
    /// Its media type, as its owner wrote it.
    pub media_type: String,
    /// Its octets in base64, without white space.
    pub base64: String,
    /// The SHA-1 of the octets, in hexadecimal digits.
    pub sha1: String,
    /// Number of octets.
    pub octets: usize,
}

/// A photo for a vCard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPhoto {
    /// Its media type.
    pub media_type: String,
    /// Its octets in base64; white space is ignored.
    pub base64: String,
    /// The SHA-1 that the octets must have, in hexadecimal digits.
    pub sha1: String,
}

/// The photos of vCards.
pub trait VCardPhotos: Send + Sync {
    /// The photo in the vCard of an account.
    fn photo(
        &self,
        node: Arc<Node>,
        owner: Jid,
    ) -> BoxFuture<'static, Result<Option<VCardPhoto>, StoreError>>;

    /// Replaces or removes the photo. The observer is not notified. A photo with another hash, and one with which the vCard would be
    /// too large, counts as none: the one before must not stay.
    fn set_photo(
        &self,
        node: Arc<Node>,
        host: Arc<Host>,
        owner: Jid,
        photo: Option<NewPhoto>,
    ) -> BoxFuture<'static, Result<(), StoreError>>;
}

/// The photos of vCards, provided by the feature that stores them.
#[derive(Clone)]
pub struct SharedVCardPhotos(pub Arc<dyn VCardPhotos>);

/// Result of a change of private XML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivateXmlOutcome {
    /// It is stored.
    Stored,
    /// Another element is stored than expected; nothing was changed.
    Changed,
    /// There is no room for it, or it cannot be private XML; nothing was changed.
    Refused,
}

/// Private XML of accounts.
pub trait PrivateXml: Send + Sync {
    /// The stored element with this name and namespace.
    fn get(
        &self,
        node: Arc<Node>,
        owner: Jid,
        name: &str,
        ns: &str,
    ) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>>;

    /// Stores an element if the stored one is `before`. The observer is not notified.
    fn replace(
        &self,
        node: Arc<Node>,
        owner: Jid,
        before: Option<Vec<u8>>,
        element: Vec<u8>,
    ) -> BoxFuture<'static, Result<PrivateXmlOutcome, StoreError>>;
}

/// The private XML of accounts, provided by the feature that stores it.
#[derive(Clone)]
pub struct SharedPrivateXml(pub Arc<dyn PrivateXml>);

/// Is notified of what users store; must not block.
pub trait ObserveAccountData: Send + Sync {
    /// A user has stored a vCard with another photo than before.
    fn photo_stored(&self, node: &Arc<Node>, owner: &Jid);

    /// A user has stored private XML with this namespace.
    fn private_xml_stored(&self, node: &Arc<Node>, owner: &Jid, ns: &str);
}

/// The observer of what users store, provided by the feature with the nodes of accounts.
#[derive(Clone)]
pub struct AccountDataObserver(pub Arc<dyn ObserveAccountData>);

impl Provided for SharedVCardPhotos {
    const NAME: &'static str = "the photos of vCards";
}

impl Provided for SharedPrivateXml {
    const NAME: &'static str = "the private XML of accounts";
}

impl Provided for AccountDataObserver {
    const NAME: &'static str = "the observer of data of accounts";
}
