//! Hash functions of SCRAM over ring: H, HMAC and Hi of RFC 5802, section 2.2, and the type of the keys.
//!
//! # Pitfalls
//!
//! SHA-1 is used here in HMAC-SHA-1 and PBKDF2, which its collisions do not affect. Do not use it for anything else.

use std::fmt;
use std::num::NonZeroU32;

use ring::{digest, hmac, pbkdf2};
use zeroize::Zeroizing;

/// Hash function of a SCRAM mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScramHash {
    /// SHA-1, 20 bytes (RFC 5802).
    Sha1,
    /// SHA-256, 32 bytes (RFC 7677).
    Sha256,
    /// SHA-512, 64 bytes.
    Sha512,
}

impl ScramHash {
    /// Every hash, weakest first.
    pub const ALL: [ScramHash; 3] = [ScramHash::Sha1, ScramHash::Sha256, ScramHash::Sha512];

    /// Length of the output in bytes.
    pub const fn output_len(self) -> usize {
        match self {
            ScramHash::Sha1 => 20,
            ScramHash::Sha256 => 32,
            ScramHash::Sha512 => 64,
        }
    }

    /// Name of the SCRAM mechanism without channel binding, which XEP-0480 uses in its upgrade names.
    pub const fn scram_name(self) -> &'static str {
        match self {
            ScramHash::Sha1 => "SCRAM-SHA-1",
            ScramHash::Sha256 => "SCRAM-SHA-256",
            ScramHash::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// H(data).
    pub(crate) fn digest(self, data: &[u8]) -> KeyBytes {
        let algorithm = match self {
            ScramHash::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            ScramHash::Sha256 => &digest::SHA256,
            ScramHash::Sha512 => &digest::SHA512,
        };
        KeyBytes::from_slice(digest::digest(algorithm, data).as_ref())
    }

    /// HMAC(key, concatenated parts).
    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> KeyBytes {
        #[cfg(test)]
        count::HMACS.with(|count| count.set(count.get() + 1));
        let algorithm = match self {
            ScramHash::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            ScramHash::Sha256 => hmac::HMAC_SHA256,
            ScramHash::Sha512 => hmac::HMAC_SHA512,
        };
        let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
        parts.iter().for_each(|part| context.update(part));
        KeyBytes::from_slice(context.sign().as_ref())
    }

    /// Hi(password, salt, iterations), which is PBKDF2. Costs `iterations` times two blocks of the hash.
    pub(crate) fn salted_password(self, password: &[u8], salt: &[u8], iterations: NonZeroU32) -> KeyBytes {
        #[cfg(test)]
        count::PBKDF2S.with(|count| count.set(count.get() + 1));
        let algorithm = match self {
            ScramHash::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            ScramHash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            ScramHash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let mut key = KeyBytes::zeroed(self.output_len());
        pbkdf2::derive(algorithm, iterations, salt, password, key.as_mut());
        key
    }
}

/// Up to 64 bytes of key material: wiped when dropped, compared in constant time, never printed.
#[derive(Clone)]
pub struct KeyBytes {
    bytes: Zeroizing<[u8; 64]>,
    len: u8,
}

impl KeyBytes {
    fn zeroed(len: usize) -> KeyBytes {
        KeyBytes { bytes: Zeroizing::new([0; 64]), len: len.min(64) as u8 }
    }

    /// Copies the first 64 bytes of a key that was stored elsewhere.
    pub fn copy_from(stored: &[u8]) -> KeyBytes {
        KeyBytes::from_slice(stored)
    }

    /// Copies the first 64 bytes of `slice`; no caller has more.
    pub(crate) fn from_slice(slice: &[u8]) -> KeyBytes {
        let mut key = KeyBytes::zeroed(slice.len());
        let len = usize::from(key.len);
        key.as_mut().copy_from_slice(&slice[..len]);
        key
    }

    /// The key bytes.
    pub fn expose(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..usize::from(self.len)]
    }

    /// `self` XOR `other`, with the length of the shorter.
    pub(crate) fn xor(mut self, other: &[u8]) -> KeyBytes {
        self.len = self.len.min(other.len().min(64) as u8);
        self.as_mut().iter_mut().zip(other).for_each(|(byte, with)| *byte ^= with);
        self
    }
}

impl PartialEq for KeyBytes {
    fn eq(&self, other: &KeyBytes) -> bool {
        base::secret::constant_time_eq(self.expose(), other.expose())
    }
}

impl Eq for KeyBytes {}

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Counters of expensive calls, so that tests can assert the cost of an exchange.
#[cfg(test)]
pub(crate) mod count {
    use std::cell::Cell;
    thread_local! {
        pub(crate) static HMACS: Cell<u32> = const { Cell::new(0) };
        pub(crate) static PBKDF2S: Cell<u32> = const { Cell::new(0) };
    }

    /// Calls on this thread while `work` ran: (HMAC, PBKDF2).
    pub(crate) fn of(work: impl FnOnce()) -> (u32, u32) {
        let before = (HMACS.get(), PBKDF2S.get());
        work();
        (HMACS.get() - before.0, PBKDF2S.get() - before.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(key: &KeyBytes) -> String {
        key.expose().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn hash_hmac_and_pbkdf2_match_published_vectors() {
        assert_eq!(hex(&ScramHash::Sha1.digest(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        // RFC 2202, section 3, case 2; the parts are hashed as one.
        let mac = ScramHash::Sha1.hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
        assert_eq!(hex(&mac), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        // RFC 6070, two iterations.
        let key = ScramHash::Sha1.salted_password(b"password", b"salt", NonZeroU32::new(2).unwrap());
        assert_eq!(hex(&key), "ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957");
        for hash in ScramHash::ALL {
            assert_eq!(hash.digest(b"").expose().len(), hash.output_len());
        }
    }

    #[test]
    fn a_key_is_not_printed_and_compares_by_content_and_length() {
        let key = KeyBytes::from_slice(b"abc");
        assert_eq!(format!("{key:?}"), "***");
        assert_eq!(key, KeyBytes::from_slice(b"abc"));
        assert_ne!(key, KeyBytes::from_slice(b"abd"));
        assert_ne!(key, KeyBytes::from_slice(b"abc\0"));
        assert_eq!(key.xor(b"abc"), KeyBytes::from_slice(&[0, 0, 0]));
    }
}
