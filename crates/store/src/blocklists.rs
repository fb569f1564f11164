//! Blocklists: the addresses that an account blocks (XEP-0191 1.3).
//!
//! A list is small and read at every login, so it is one opaque value next to the credentials and part of
//! [`crate::Login`]; [`encode`] and [`decode`] define its only format. It may contain bare addresses, full addresses
//! and domains (section 3.1.1); their meaning is up to the caller.
//!
//! ```text
//! list = [jid *(LF jid)]        normalised addresses in the order of adding; no address contains a line feed
//! ```
//!
//! # Pitfalls
//!
//! The engine caches the decoded lists of sessions. Code that changes a list here must update those too.

use std::collections::HashSet;

use jid::{Jid, JidRef};

use crate::{StoreError, StoreErrorKind, StoreFuture};

/// Maximum size of a list as encoded by [`encode`], in bytes.
pub const MAX_BLOCKLIST_BYTES: usize = 65_536;

/// Addresses to remove from a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unblock {
    /// These, if listed; none if empty.
    These(Vec<Jid>),
    /// All of them (XEP-0191, section 3.6).
    All,
}

/// Effect of an update.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlocklistChange {
    /// Addresses added to the list, in the order of the call.
    pub added: Vec<Jid>,
    /// Addresses removed from the list.
    pub removed: Vec<Jid>,
    /// The whole list after the update, in insertion order.
    pub list: Vec<Jid>,
}

/// Result of an update.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BlocklistOutcome {
    /// It is stored durably.
    Changed(BlocklistChange),
    /// The list would exceed its limit or [`MAX_BLOCKLIST_BYTES`]; nothing was changed.
    Full,
    /// There is no such account.
    NoAccount,
}

storage_need! {
    /// The blocklists of accounts.
    pub trait Blocklists in blocklists {
        /// The list in insertion order; empty for an account that does not exist.
        fn blocklist(&self, owner: JidRef<'_>) -> StoreFuture<'_, Vec<Jid>>;

        /// Removes `remove` from the list, then appends the addresses of `add` that are not listed, in one transaction.
        /// Returns [`BlocklistOutcome::Full`] if it would add an address and the list would exceed `limit` addresses; a
        /// list already too long (after the limit was lowered) may still shrink.
        fn update_blocklist(&self, owner: JidRef<'_>, add: Vec<Jid>, remove: Unblock, limit: u32) -> StoreFuture<'_, BlocklistOutcome>;
    }
}

/// Encodes a list; no bytes for an empty one.
pub fn encode(list: &[Jid]) -> Vec<u8> {
    let texts: Vec<&str> = list.iter().map(Jid::as_str).collect();
    texts.join("\n").into_bytes()
}

/// Decodes a list, such as the one in a [`crate::Login`].
///
/// # Errors
/// `Corrupt` if the bytes are not output of [`encode`].
pub fn decode(bytes: &[u8]) -> Result<Vec<Jid>, StoreError> {
    let wrong = || StoreError::new(StoreErrorKind::Corrupt, "the storage contains an invalid blocklist");
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let text = std::str::from_utf8(bytes).map_err(|_| wrong())?;
    text.split('\n').map(|line| Ok(JidRef::from_normalised(line).ok_or_else(wrong)?.to_jid())).collect()
}

/// The update itself, for backends. `None` if the list would become too long.
pub fn apply_update(list: Vec<Jid>, add: Vec<Jid>, remove: &Unblock, limit: u32) -> Option<BlocklistChange> {
    let before: HashSet<Jid> = list.iter().cloned().collect();
    let mut list = match remove {
        Unblock::All => Vec::new(),
        Unblock::These(gone) => {
            let gone: HashSet<&Jid> = gone.iter().collect();
            list.into_iter().filter(|jid| !gone.contains(jid)).collect()
        }
    };
    let mut there: HashSet<Jid> = list.iter().cloned().collect();
    let remaining = list.len();
    list.extend(add.into_iter().filter(|jid| there.insert(jid.clone())));
    if list.len() > remaining && (list.len() > limit as usize || encoded_len(&list) > MAX_BLOCKLIST_BYTES) {
        return None;
    }
    let added = list.iter().filter(|jid| !before.contains(*jid)).cloned().collect();
    let mut removed: Vec<Jid> = before.into_iter().filter(|jid| !there.contains(jid)).collect();
    removed.sort_unstable();
    Some(BlocklistChange { added, removed, list })
}

fn encoded_len(list: &[Jid]) -> usize {
    list.iter().map(|jid| jid.as_str().len() + 1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jids(texts: &[&str]) -> Vec<Jid> {
        texts.iter().map(|text| Jid::parse(text).unwrap()).collect()
    }

    #[test]
    fn encoded_lists_decode_to_the_same_addresses() {
        for list in [&[][..], &["a@b"], &["b", "a@b/c d", "a@b", "a@b/日本 語"]] {
            let list = jids(list);
            assert_eq!(decode(&encode(&list)).unwrap(), list);
        }
        assert!(encode(&[]).is_empty());
        assert_eq!(decode(b"a@b\n").unwrap_err().kind, StoreErrorKind::Corrupt);
        assert_eq!(decode(b"\xff").unwrap_err().kind, StoreErrorKind::Corrupt);
    }

    #[test]
    fn no_address_contains_a_line_feed() {
        assert!(Jid::parse("a@b/c\nd").is_err());
        assert!(Jid::parse("a\n@b").is_err());
    }

    #[test]
    fn addresses_already_listed_keep_their_position() {
        let change =
            apply_update(jids(&["a@b", "c@d"]), jids(&["e", "a@b", "e"]), &Unblock::These(vec![]), 9)
                .unwrap();
        assert_eq!((change.added, change.list), (jids(&["e"]), jids(&["a@b", "c@d", "e"])));
        assert!(change.removed.is_empty());
    }

    #[test]
    fn a_list_that_is_too_long_may_shrink_but_not_grow() {
        let long = jids(&["a", "b", "c", "d"]);
        let one = Unblock::These(jids(&["b", "x"]));
        assert_eq!(apply_update(long.clone(), jids(&["e"]), &one, 2), None);
        let change = apply_update(long.clone(), vec![], &one, 2).unwrap();
        assert_eq!((change.removed, change.list), (jids(&["b"]), jids(&["a", "c", "d"])));
        assert!(apply_update(long, vec![], &Unblock::All, 0).unwrap().list.is_empty());
    }
}
