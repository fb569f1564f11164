//! Ids of occupants: XEP-0421 1.0.1, section 3.1.
//!
//! An id is the first 144 bits of an HMAC in Base64: enough that no two users have the same, and 24 octets in each occupant.

use std::ops::Deref;

use base64::Engine as _;
use ring::hmac;

/// Octets of the HMAC.
const TAG_BYTES: usize = 18;
const TEXT_BYTES: usize = 24;

/// The id of a user in a room, from which the real JID cannot be computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct OccupantId([u8; TEXT_BYTES]);

impl OccupantId {
    /// The id of what `text` names.
    pub(crate) fn new(key: &hmac::Key, text: &[u8]) -> OccupantId {
        let tag = hmac::sign(key, text);
        let mut id = [b'A'; TEXT_BYTES];
        let tag = tag.as_ref().get(..TAG_BYTES).unwrap_or_default();
        // The length of both is constant, so it fits.
        let _ = base64::prelude::BASE64_URL_SAFE_NO_PAD.encode_slice(tag, &mut id);
        OccupantId(id)
    }
}

impl Deref for OccupantId {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl std::fmt::Debug for OccupantId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self)
    }
}
