//! Random ids and random bytes from the operating system.
//!
//! Ids are used where they must not be guessable (streams, sessions, tokens, nonces): 80 bits each, in the lower-case
//! base32 alphabet of RFC 4648, section 6, which survives case folding and needs no XML escapes.
//!
//! Ids that must only be unique and in order are [`crate::TimeOrderedId`].
//!
//! Not implemented: a generator in user space. One system call per id is cheap enough and leaves no state that a fork
//! or a snapshot could repeat.

use ring::rand::{SecureRandom, SystemRandom};

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// `N` bytes from the operating system's generator.
///
/// # Panics
/// If the operating system has no randomness available. A server must not continue then.
#[allow(clippy::expect_used, reason = "no input can cause it; going on without randomness would be worse")]
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// 16 base32 characters encoding 80 random bits. Valid in XML attributes, resources and host-name labels.
///
/// # Panics
/// See [`random_bytes`].
pub fn random_id() -> String {
    base32(random_bytes::<10>())
}

fn base32(bytes: [u8; 10]) -> String {
    let bits = bytes.iter().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte));
    (0..16).rev().map(|at| char::from(ALPHABET[(bits >> (at * 5) & 31) as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn base32_follows_rfc_4648() {
        assert_eq!(base32(*b"foobarfoob"), "mzxw6ytbojtg633c");
        assert_eq!(base32([0; 10]), "aaaaaaaaaaaaaaaa");
        assert_eq!(base32([255; 10]), "7777777777777777");
    }

    #[test]
    fn ids_are_16_safe_characters_and_differ() {
        let ids: HashSet<String> = (0..1000).map(|_| random_id()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 16 && id.bytes().all(|c| ALPHABET.contains(&c))));
        assert_ne!(random_bytes::<16>(), random_bytes::<16>());
    }
}
