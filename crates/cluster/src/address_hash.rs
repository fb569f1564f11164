//! Keyed hash of a bare address, under which accounts are found in memory and claimed in the cluster.
//!
//! SipHash-1-3 with a 128-bit key, the function that `std` uses for its maps. The key is a secret of the
//! deployment, the same on every node of a cluster, so that nobody else can search for two addresses with the
//! same hash.
//!
//! # Pitfalls
//!
//! A hash only finds candidates. Compare the id or the text of the address after every match.

use std::hash::Hasher as _;

use jid::JidRef;
use siphasher::sip::SipHasher13;

/// Hashes bare addresses with the secret of the deployment.
#[derive(Clone, Copy)]
pub struct AddressHasher([u8; 16]);

impl AddressHasher {
    /// `key`: 16 bytes that no client can know, the same on every node of the deployment.
    pub const fn new(key: [u8; 16]) -> AddressHasher {
        AddressHasher(key)
    }

    /// The hash of the bare address; the resource is ignored.
    pub fn hash(&self, jid: JidRef<'_>) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write(jid.bare().as_str().as_bytes());
        hasher.finish()
    }
}

impl AddressHasher {
    /// The hash of a name that is no address, such as that of a periodic job.
    pub fn hash_name(&self, name: &str) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        // No byte of an address.
        hasher.write_u8(0xff);
        hasher.write(name.as_bytes());
        hasher.finish()
    }
}

impl std::fmt::Debug for AddressHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AddressHasher(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_names_depend_on_the_key_and_differ_from_those_of_addresses() {
        let hasher = |byte| AddressHasher::new([byte; 16]);
        let name = "juliet@example.com";
        let jid = jid::Jid::parse(name).unwrap();
        assert_eq!(hasher(1).hash_name(name), hasher(1).hash_name(name));
        assert_ne!(hasher(1).hash_name(name), hasher(2).hash_name(name));
        assert_ne!(hasher(1).hash_name(name), hasher(1).hash(jid.as_ref()));
    }
}
