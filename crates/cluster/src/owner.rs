//! The node that owns something, by rendezvous hashing: every node computes the same one from the members it sees.
//!
//! Items of services, such as rooms, are owned in slices: by the first octet of the hashes of their addresses, so that the cost of
//! ownership does not depend on the number of items.
//!
//! # Pitfalls
//!
//! Nodes that see different members name different owners for a moment. So only work that tolerates two owners may
//! rely on it; other work needs a lease.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

use crate::{Member, NodeId};

/// The owner of a key among the members: the node with the highest hash. A member that leaves moves its keys only. The key is a
/// keyed hash of a name: otherwise a user who chooses names could choose their owner.
///
/// A member that drains owns nothing, so that what it owned moves while it still answers; unless all drain.
pub(crate) fn owner_among(members: &[Member], key: u64) -> Option<NodeId> {
    let weight = |member: &Member| {
        let mut hasher = SipHasher13::new();
        hasher.write(member.node.as_str().as_bytes());
        hasher.write_u8(0);
        hasher.write_u64(key);
        (!member.drains, hasher.finish(), member.node)
    };
    members.iter().map(weight).max().map(|(.., node)| node)
}

/// Number of slices of the addresses of items.
pub const SLICES: u16 = 256;

/// The slice of an address, by its hash ([`crate::AddressHasher`]).
pub fn slice_of(address: u64) -> u8 {
    address.to_be_bytes()[0]
}

/// The nodes of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceNodes {
    /// The node that must own it.
    pub owner: NodeId,
    /// The node that must own it when the owner is gone, so it has a copy of what is not in the store. None without other
    /// members.
    pub backup: Option<NodeId>,
}

impl SliceNodes {
    /// The nodes of a slice among the members; none without members.
    pub fn among(members: &[Member], slice: u8) -> Option<SliceNodes> {
        let owner = owner_among(members, slice.into())?;
        let others: Vec<Member> = members.iter().filter(|member| member.node != owner).copied().collect();
        Some(SliceNodes { owner, backup: owner_among(&others, slice.into()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backup_of_a_slice_owns_it_when_the_owner_is_gone() {
        let all = ["a", "b", "c"];
        for slice in 0..=u8::MAX {
            let nodes = SliceNodes::among(&members(&all), slice).unwrap();
            let left: Vec<&str> = all.into_iter().filter(|name| *name != nodes.owner.as_str()).collect();
            assert_eq!(Some(SliceNodes::among(&members(&left), slice).unwrap().owner), nodes.backup);
        }
        assert_eq!(SliceNodes::among(&members(&["a"]), 7).unwrap().backup, None);
        assert_eq!((slice_of(0), slice_of(u64::MAX), slice_of(1 << 56)), (0, 255, 1));
    }

    fn members(names: &[&str]) -> Vec<Member> {
        let member =
            |name: &&str| Member { node: NodeId::new(name).unwrap(), epoch: 0, version: 1, drains: false };
        names.iter().map(member).collect()
    }

    #[test]
    fn each_key_has_one_owner_in_any_order_of_members() {
        assert_eq!(owner_among(&[], 0), None);
        for key in 0..100 {
            assert_eq!(
                owner_among(&members(&["a", "b", "c"]), key),
                owner_among(&members(&["c", "a", "b"]), key)
            );
        }
    }

    #[test]
    fn a_member_that_drains_owns_nothing_and_the_others_own_what_they_will_without_it() {
        let (all, left) = (members(&["a", "b", "c"]), members(&["a", "b"]));
        let mut draining = all.clone();
        draining[2].drains = true;
        for key in 0..100 {
            assert_eq!(owner_among(&draining, key), owner_among(&left, key));
        }
        draining.iter_mut().for_each(|member| member.drains = true);
        for key in 0..100 {
            assert_eq!(owner_among(&draining, key), owner_among(&all, key), "somebody must own it");
        }
    }

    #[test]
    fn a_member_that_leaves_moves_its_keys_only_and_keys_are_spread() {
        let (all, left) = (members(&["a", "b", "c"]), members(&["a", "b"]));
        let gone = NodeId::new("c").unwrap();
        let mut owned = [0; 3];
        for key in 0..300 {
            let before = owner_among(&all, key).unwrap();
            owned[all.iter().position(|member| member.node == before).unwrap()] += 1;
            if before != gone {
                assert_eq!(owner_among(&left, key), Some(before));
            }
        }
        assert!(owned.iter().all(|count| (60..140).contains(count)), "{owned:?}");
    }
}
