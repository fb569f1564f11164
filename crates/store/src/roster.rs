//! Rosters: contacts, their labels and subscription states (RFC 6121, section 2 and appendix A).
//!
//! All nine states of appendix A.2, pre-approval (section 3.4) and the stored subscribe stanza (section 3.1.3, "MUST
//! deliver ... upon the next login") are bits and bytes here; the caller's closure decides the transitions, inside the
//! transaction. Versions implement RFC 6121, section 2.6.
//!
//! # Pitfalls
//!
//! An entry without [`Subscription::IN_ROSTER`] is a shadow. It is returned with the roster, because probes and logins
//! need it, but must never be shown to the client.

use std::fmt;
use std::panic::AssertUnwindSafe;

use jid::{Jid, JidRef};

use crate::{AddressId, StoreError, StoreErrorKind, StoreFuture};

/// Subscription state of one contact as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Subscription(pub u8);

impl Subscription {
    /// No state; such an entry is not stored.
    pub const NONE: Subscription = Subscription(0);
    /// The owner receives the contact's presence.
    pub const TO: Subscription = Subscription(1);
    /// The contact receives the owner's presence.
    pub const FROM: Subscription = Subscription(2);
    /// Both directions.
    pub const BOTH: Subscription = Subscription(3);
    /// The owner has requested a subscription (pending out).
    pub const PENDING_OUT: Subscription = Subscription(4);
    /// The contact has requested a subscription and is not answered (pending in).
    pub const PENDING_IN: Subscription = Subscription(8);
    /// The owner has pre-approved the contact.
    pub const APPROVED: Subscription = Subscription(16);
    /// The owner sees this entry; without it the entry is a shadow.
    pub const IN_ROSTER: Subscription = Subscription(32);

    const ALL: u8 = 63;
    /// Bits visible to clients: all except the unanswered request of the contact.
    const VISIBLE: u8 = Self::ALL & !Self::PENDING_IN.0;

    /// State from storage; `None` if it has bits unknown to this version.
    pub fn from_bits(bits: u8) -> Option<Subscription> {
        (bits & !Self::ALL == 0).then_some(Subscription(bits))
    }

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Subscription) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union with `other`.
    #[must_use]
    pub const fn with(self, other: Subscription) -> Subscription {
        Subscription(self.0 | other.0)
    }

    /// The difference to `other`.
    #[must_use]
    pub const fn without(self, other: Subscription) -> Subscription {
        Subscription(self.0 & !other.0)
    }

    /// Value of the `subscription` attribute (RFC 6121, section 2.1.2.5), without pending states.
    pub const fn as_str(self) -> &'static str {
        match self.0 & 3 {
            0 => "none",
            1 => "to",
            2 => "from",
            _ => "both",
        }
    }
}

impl std::ops::BitOr for Subscription {
    type Output = Subscription;
    fn bitor(self, other: Subscription) -> Subscription {
        self.with(other)
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        for (bit, name) in [
            (Subscription::PENDING_OUT, "+ask"),
            (Subscription::PENDING_IN, "+pending-in"),
            (Subscription::APPROVED, "+approved"),
            (Subscription::IN_ROSTER, "+in-roster"),
        ] {
            if self.contains(bit) {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

/// Fixed cost of an entry, besides its texts, in [`LARGE_ROSTER_BYTES`] and [`MAX_ROSTER_BYTES`].
pub const ENTRY_OVERHEAD_BYTES: u64 = 128;
/// Size above which a roster is large: it is read with a query of its own and not cached in memory.
pub const LARGE_ROSTER_BYTES: u64 = 65_536;
/// Size above which a roster is not read as a whole. Far above any sensible write limit.
pub const MAX_ROSTER_BYTES: u64 = 64 << 20;

/// Whether a roster is large.
pub fn is_large(items: &[RosterItem]) -> bool {
    items.iter().map(RosterItem::weight).sum::<u64>() > LARGE_ROSTER_BYTES
}

/// The error of a roster beyond [`MAX_ROSTER_BYTES`].
pub fn roster_too_large() -> StoreError {
    let most = MAX_ROSTER_BYTES >> 20;
    StoreError::new(
        StoreErrorKind::TooLarge,
        format!(
            "a roster is larger than {most} MiB and cannot be loaded; delete some of its entries from the \
             database"
        ),
    )
}

/// One contact of one owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RosterItem {
    /// Id of the contact's address.
    pub contact: AddressId,
    /// The contact's bare address.
    pub jid: Jid,
    /// The label set by the owner.
    pub name: Option<String>,
    /// The groups in the order that the client sent.
    pub groups: Vec<String>,
    /// The state of the subscription.
    pub subscription: Subscription,
    /// The stored subscribe stanza. Present only with `PENDING_IN`.
    pub request: Option<Vec<u8>>,
}

impl RosterItem {
    /// An entry for a contact not yet in the roster, to be completed by a [`RosterUpdateFn`]. The store assigns its id.
    pub fn new(jid: Jid) -> RosterItem {
        RosterItem {
            contact: AddressId::UNASSIGNED,
            jid,
            name: None,
            groups: Vec::new(),
            subscription: Subscription::NONE,
            request: None,
        }
    }

    /// The stored form of an entry: `None` without state, the stanza only while the request is pending.
    pub fn normalised(mut self) -> Option<RosterItem> {
        if !self.subscription.contains(Subscription::PENDING_IN) {
            self.request = None;
        }
        if !self.subscription.contains(Subscription::IN_ROSTER) {
            self.name = None;
            self.groups.clear();
        }
        (self.subscription != Subscription::NONE).then_some(self)
    }
}

impl RosterItem {
    /// Bytes of address and label, as counted in [`RosterSize`].
    pub fn bytes(&self) -> u64 {
        let texts = self.groups.iter().chain(&self.name).map(String::len).sum::<usize>();
        (self.jid.as_str().len() + texts) as u64
    }

    /// Size counted for [`LARGE_ROSTER_BYTES`] and [`MAX_ROSTER_BYTES`]: label, stanza and [`ENTRY_OVERHEAD_BYTES`].
    pub fn weight(&self) -> u64 {
        let texts = self.groups.iter().chain(&self.name).map(String::len).sum::<usize>();
        (texts + self.request.as_ref().map_or(0, Vec::len)) as u64 + ENTRY_OVERHEAD_BYTES
    }

    /// Whether the contact must be notified when the owner's account is removed (RFC 6121, section 3): there is a
    /// subscription or a request in either direction.
    pub fn has_subscription_or_request(&self) -> bool {
        let bits = Subscription::BOTH | Subscription::PENDING_OUT | Subscription::PENDING_IN;
        self.subscription.0 & bits.0 != 0
    }
}

/// Runs the closure for a backend. A panic in it is an error of that one call, not the end of the writer.
pub fn run_update(change: RosterUpdateFn, before: Option<RosterItem>) -> Result<RosterUpdate, StoreError> {
    std::panic::catch_unwind(AssertUnwindSafe(|| change(before))).map_err(|_| {
        StoreError::new(StoreErrorKind::Internal, "a roster change panicked; nothing was stored")
    })
}

/// Whether the two differ for the client, which increments the version.
pub fn is_visible_change(before: Option<&RosterItem>, after: Option<&RosterItem>) -> bool {
    fn shown(item: Option<&RosterItem>) -> Option<(u8, Option<&str>, &[String])> {
        let item = item.filter(|item| item.subscription.contains(Subscription::IN_ROSTER))?;
        Some((item.subscription.0 & Subscription::VISIBLE, item.name.as_deref(), item.groups.as_slice()))
    }
    shown(before) != shown(after)
}

/// A consistent snapshot of a roster.
#[derive(Clone, PartialEq, Debug)]
pub struct RosterSnapshot {
    /// Version of exactly these items.
    pub version: u64,
    /// All entries, shadows included, ordered by contact id.
    pub items: Vec<RosterItem>,
}

/// A consistent snapshot of one entry.
#[derive(Clone, PartialEq, Debug)]
pub struct RosterEntry {
    /// Version of the roster at that time.
    pub version: u64,
    /// The entry, which may be a shadow; `None` if there is none.
    pub item: Option<RosterItem>,
}

/// Size of a roster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RosterSize {
    /// Entries, shadows included.
    pub contacts: u32,
    /// Entries with [`Subscription::PENDING_IN`].
    pub requests: u32,
    /// Approximate bytes of addresses and labels; backends differ in the overhead of a label. Stanzas of requests are
    /// not included; they are limited by number and size.
    pub bytes: u64,
}

/// Decision of an update closure.
#[derive(Clone, PartialEq, Debug)]
pub enum RosterUpdate {
    /// Leave the entry unchanged.
    Keep,
    /// Store this entry. The store sets id and address; an entry without any state is deleted.
    Put(RosterItem),
    /// Delete the entry.
    Delete,
}

/// Decides on one entry inside the transaction. Must be fast and must not call the store.
pub type RosterUpdateFn = Box<dyn FnOnce(Option<RosterItem>) -> RosterUpdate + Send>;

/// Effect of an update.
#[derive(Clone, PartialEq, Debug)]
pub struct RosterUpdateOutcome {
    /// The entry before.
    pub before: Option<RosterItem>,
    /// The entry after.
    pub after: Option<RosterItem>,
    /// The roster's version after the change.
    pub version: u64,
}

impl RosterUpdateOutcome {
    /// Bytes by which the roster has grown, as counted in [`RosterSize`]; 0 if it has shrunk.
    pub fn added_bytes(&self) -> u64 {
        let bytes = |item: &Option<RosterItem>| item.as_ref().map_or(0, RosterItem::bytes);
        bytes(&self.after).saturating_sub(bytes(&self.before))
    }

    /// Whether the contact has requested a subscription with this change.
    pub fn is_new_request(&self) -> bool {
        let is_pending = |item: &Option<RosterItem>| {
            item.as_ref().is_some_and(|item| item.subscription.contains(Subscription::PENDING_IN))
        };
        is_pending(&self.after) && !is_pending(&self.before)
    }

    /// The contact to whose presence the owner is not subscribed any more.
    pub fn ended_subscription(&self) -> Option<AddressId> {
        let is_subscribed = |item: &&RosterItem| item.subscription.contains(Subscription::TO);
        let before = self.before.as_ref().filter(is_subscribed)?;
        self.after.as_ref().filter(is_subscribed).is_none().then_some(before.contact)
    }
}

/// One entry of a bulk load. All contacts must already have ids.
#[derive(Clone, PartialEq, Debug)]
pub struct BulkItem {
    /// The contact's id.
    pub contact: AddressId,
    /// The label.
    pub name: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// The state.
    pub subscription: Subscription,
}

/// Entries of a bulk load for one roster.
#[derive(Clone, PartialEq, Debug)]
pub struct BulkRoster {
    /// Id of the owner's address.
    pub owner: AddressId,
    /// Entries, which replace those of the same contacts; others stay.
    pub items: Vec<BulkItem>,
}

storage_need! {
    /// Rosters, addressed by the owner's id.
    ///
    /// Every change visible to clients increments the owner's version. Versions of one owner never repeat, not even after
    /// the account was removed and created again. Changes to shadows and to unanswered requests leave the version
    /// unchanged.
    pub trait Roster in roster {
        /// The whole roster. Fails with `NotFound` if the owner has no account, and with `TooLarge` beyond
        /// [`MAX_ROSTER_BYTES`].
        fn get(&self, owner: AddressId) -> StoreFuture<'_, RosterSnapshot>;

        /// One entry, without reading the others. Fails with `NotFound` if the owner has no account.
        fn entry(&self, owner: AddressId, contact: &Jid) -> StoreFuture<'_, RosterEntry>;

        /// State of one contact, by bare addresses, in one round trip and without reading other entries. `NONE` if there is
        /// no entry or no account. For checks such as whether the contact may see the owner's presence.
        fn subscription(&self, owner: JidRef<'_>, contact: JidRef<'_>) -> StoreFuture<'_, Subscription>;

        /// Size of the roster, without reading its texts. Fails with `NotFound` if the owner has no account.
        fn size(&self, owner: AddressId) -> StoreFuture<'_, RosterSize>;

        /// Reads one entry, calls `change` and stores its decision, in one transaction. Fails with `NotFound` if the owner
        /// has no account; `change` is not called then.
        fn update(&self, owner: AddressId, contact: &Jid, change: RosterUpdateFn) -> StoreFuture<'_, RosterUpdateOutcome>;

        /// Loads many entries in chunks of one transaction each; may be repeated. Owners without an account are skipped.
        /// Increments the version of each other owner. Returns the number of stored entries.
        fn put_bulk(&self, rosters: Vec<BulkRoster>) -> StoreFuture<'_, u64>;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(bits: u8) -> RosterItem {
        let mut item = RosterItem::new(Jid::parse("a@b").unwrap());
        item.subscription = Subscription(bits);
        item.request = Some(vec![1]);
        item
    }

    #[test]
    fn an_entry_without_state_is_dropped_and_a_request_without_pending_in() {
        assert_eq!(item(0).normalised(), None);
        assert_eq!(item(1).normalised().unwrap().request, None);
        assert_eq!(item(8).normalised().unwrap().request, Some(vec![1]));
    }

    #[test]
    fn only_changes_visible_to_the_client_raise_the_version() {
        let differs = |a: u8, b: u8| is_visible_change(Some(&item(a)), Some(&item(b)));
        assert!(!differs(0, 8), "a shadow is not shown");
        assert!(!differs(32, 32 | 8), "an unanswered request is not shown");
        assert!(differs(32, 33));
        assert!(differs(8, 32 | 8));
        assert!(is_visible_change(None, Some(&item(32))));
    }

    #[test]
    fn a_subscription_ends_when_only_the_entry_before_has_it() {
        let ended = |before: Option<u8>, after: Option<u8>| {
            RosterUpdateOutcome { before: before.map(item), after: after.map(item), version: 1 }
                .ended_subscription()
                .is_some()
        };
        let (to, from) = (Subscription::TO.0, Subscription::FROM.0);
        assert!(ended(Some(to), None) && ended(Some(to | from), Some(from)));
        assert!(!ended(Some(to), Some(to | from)) && !ended(Some(from), None) && !ended(None, Some(to)));
    }

    #[test]
    fn bits_of_a_later_version_are_refused() {
        assert_eq!(Subscription::from_bits(63), Some(Subscription(63)));
        assert_eq!(Subscription::from_bits(64), None);
    }
}
