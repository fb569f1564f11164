//! Namespaces of stanzas' children as one word: what a [`Head`](crate::Head) records and handlers declare
//! interest in.
//!
//! Only namespaces that select stanzas have a bit. All others known to the server have a number
//! ([`Ns`]) only, so the number of namespaces is not limited by the size of a head.
//!
//! # Pitfalls
//!
//! A bit is assigned by the list below and not while features register: a head exists before it is known which
//! host receives the stanza, and outlives a reload. Like the numbers of [`Ns`], bits differ between builds.

use xml::Ns;

macro_rules! payload_namespaces {
    ($($name:ident),* $(,)?) => {
        /// A namespace by which stanzas are selected: a bit of a [`PayloadSet`]. A handler with another interest,
        /// or a check of another namespace in a head, needs an entry in the list of this file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum PayloadNs { $(#[doc = concat!("[`Ns::", stringify!($name), "`]")] $name,)* }

        impl PayloadNs {
            /// All of them, each at the position of its bit.
            pub const ALL: &'static [PayloadNs] = &[$(PayloadNs::$name),*];

            /// The namespace.
            pub const fn ns(self) -> Ns {
                match self { $(PayloadNs::$name => Ns::$name,)* }
            }
        }
    };
}

payload_namespaces! {
    Addresses, Caps, Caps2, Carbons2, ChatMarkers, Chatstates, Conference, Correct, Delay, DelayLegacy, Eme,
    Hints, JingleMessage, LastActivity, Mam2, MucUser, OccupantId, Omemo2, OmemoLegacy, Openpgp, Ping,
    PubsubEvent, Reactions, Receipts, Reply, Retract, Roster, StanzaId,
}

const _: () = assert!(
    PayloadNs::ALL.len() <= PayloadSet::CAPACITY,
    "a PayloadSet has 64 bits: remove a namespace that no handler selects by, or store a second word"
);

/// Not a bit number: shifting by it gives an empty set.
const NOT_LISTED: u8 = u8::MAX;

/// Bit numbers by namespace.
static BITS: [u8; Ns::ALL.len()] = {
    let mut bits = [NOT_LISTED; Ns::ALL.len()];
    let mut i = 0u8;
    while (i as usize) < PayloadNs::ALL.len() {
        bits[PayloadNs::ALL[i as usize].ns() as usize] = i;
        i += 1;
    }
    bits
};

impl PayloadNs {
    /// The bit of a namespace, if stanzas are selected by it.
    pub fn of(ns: Ns) -> Option<PayloadNs> {
        PayloadNs::ALL.get(usize::from(BITS[ns as usize])).copied()
    }

    const fn mask(self) -> u64 {
        1 << (self as u8)
    }
}

/// A set of [`PayloadNs`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PayloadSet(u64);

impl PayloadSet {
    /// Number of namespaces that a set can distinguish.
    pub const CAPACITY: usize = 64;
    /// The empty set.
    pub const NONE: PayloadSet = PayloadSet(0);
    /// The set of every namespace.
    pub const ALL: PayloadSet = PayloadSet(u64::MAX);

    /// The set of these namespaces.
    pub const fn of(members: &[PayloadNs]) -> PayloadSet {
        let mut set = PayloadSet::NONE;
        let mut i = 0;
        while i < members.len() {
            set = set.with(members[i]);
            i += 1;
        }
        set
    }

    /// This set and one more namespace.
    #[must_use]
    pub const fn with(self, ns: PayloadNs) -> PayloadSet {
        PayloadSet(self.0 | ns.mask())
    }

    /// Adds the namespace of a child. One by which nothing is selected leaves the set unchanged.
    pub fn insert(&mut self, ns: Ns) {
        self.0 |= 1_u64.checked_shl(u32::from(BITS[ns as usize])).unwrap_or_default();
    }

    /// Whether the set contains this namespace.
    pub const fn contains(self, ns: PayloadNs) -> bool {
        self.0 & ns.mask() != 0
    }

    /// Whether the two sets share a member.
    pub const fn intersects(self, other: PayloadSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl std::fmt::Debug for PayloadSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(PayloadNs::ALL.iter().filter(|ns| self.contains(**ns))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_namespace_has_its_own_bit_and_no_other_has_one() {
        let mut all = PayloadSet::NONE;
        for &listed in PayloadNs::ALL {
            assert_eq!(PayloadNs::of(listed.ns()), Some(listed));
            assert!(!all.contains(listed), "{listed:?} is listed twice");
            all.insert(listed.ns());
            assert!(all.contains(listed));
        }
        assert_eq!(all.0.count_ones() as usize, PayloadNs::ALL.len());
        let without = Ns::ALL.iter().filter(|ns| PayloadNs::of(**ns).is_none());
        assert_eq!(without.clone().count(), Ns::ALL.len() - PayloadNs::ALL.len());
        for &ns in without {
            let mut set = PayloadSet::NONE;
            set.insert(ns);
            assert!(set.is_empty(), "{ns:?}");
        }
    }

    #[test]
    fn sets_contain_what_was_added() {
        let set = PayloadSet::of(&[PayloadNs::Delay, PayloadNs::StanzaId]);
        assert!(set.contains(PayloadNs::StanzaId) && !set.contains(PayloadNs::Ping));
        assert!(set.with(PayloadNs::Ping).contains(PayloadNs::Ping));
        assert!(set.intersects(PayloadSet::of(&[PayloadNs::Delay, PayloadNs::Caps])));
        assert!(!set.intersects(PayloadSet::of(&[PayloadNs::Caps])));
        assert_eq!(format!("{set:?}"), "{Delay, StanzaId}");
    }
}
