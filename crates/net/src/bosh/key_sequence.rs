//! Key sequencing: each request proves that it comes from the client that created the session (XEP-0124, section 15).
//!
//! The client hashes a seed n times and sends the results from last to first, so that the hash of each key is the
//! previous key.
//!
//! # Pitfalls
//!
//! A retransmitted request carries its original key, not the next one, so the keys of the latest requests are stored
//! with their ids.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// A decoded key: letter case is not significant (section 15.3).
pub(super) type SequenceKey = [u8; 20];

/// State of a key sequence.
pub(super) struct KeySequence {
    /// Required hash of the next key.
    expected: SequenceKey,
    /// Ids and keys of the latest requests.
    used: Vec<(u64, SequenceKey)>,
}

impl KeySequence {
    pub(super) fn new(first: SequenceKey) -> KeySequence {
        KeySequence { expected: first, used: Vec::new() }
    }

    /// Checks the key of a new request, and switches to a new sequence if one begins. The last `keep` requests are
    /// stored.
    pub(super) fn accept(&mut self, rid: u64, key: Option<&str>, newkey: Option<&str>, keep: usize) -> bool {
        let Some((text, key)) = key.and_then(|text| Some((text, parse_key(text)?))) else { return false };
        let hashes =
            |text: &str| digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()).as_ref() == self.expected;
        // Clients hash the text they sent; one that sends upper case may have hashed lower case.
        if !hashes(text) && !hashes(&text.to_ascii_lowercase()) {
            return false;
        }
        let Some(next) = newkey.map_or(Some(key), parse_key) else { return false };
        self.expected = next;
        if self.used.len() >= keep {
            self.used.remove(0);
        }
        self.used.push((rid, key));
        true
    }

    /// Whether a request that was received before had this key. The request that created the session had none.
    pub(super) fn is_repeat(&self, rid: u64, key: Option<&str>) -> bool {
        match self.used.iter().find(|(used, _)| *used == rid) {
            Some((_, used)) => key.and_then(parse_key) == Some(*used),
            None => key.is_none(),
        }
    }
}

/// Parses 40 hexadecimal digits.
pub(super) fn parse_key(text: &str) -> Option<SequenceKey> {
    let mut key = [0; 20];
    if text.len() != 40 {
        return None;
    }
    for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
        let [high, low] = digits else { return None };
        let digit = |d: u8| char::from(d).to_digit(16);
        *byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Sections 15.4 and 15.5.
    const K3: &str = "ca393b51b682f61f98e7877d61146407f3d0a770";
    const K2: &str = "bfb06a6f113cd6fd3838ab9d300fdb4fe3da2f7d";
    const K1: &str = "6f825e81f4532b2c5fa2d12457d8a1f22e8f838e";
    const NEW: &str = "113f58a37245ec9637266cf2fb6e48bfeaf7964e";

    #[test]
    fn the_example_of_section_15_is_followed_through_a_switch() {
        let mut keys = KeySequence::new(parse_key(K3).unwrap());
        assert!(keys.accept(1, Some(K2), None, 3));
        assert!(keys.accept(2, Some(K1), Some(NEW), 3));
        assert_eq!(keys.expected, parse_key(NEW).unwrap());
        assert!(!keys.accept(3, Some(K2), None, 3), "a key of the old sequence");
    }

    #[test]
    fn keys_are_case_insensitive() {
        let mut keys = KeySequence::new(parse_key(&K3.to_uppercase()).unwrap());
        assert!(keys.accept(1, Some(&K2.to_uppercase()), None, 3));
        assert!(keys.accept(2, Some(K1), None, 3));
    }

    #[test]
    fn a_wrong_or_a_missing_key_is_refused() {
        for wrong in [
            None,
            Some(K1),
            Some(K3),
            Some(""),
            Some("bfb06a6f"),
            Some("zzb06a6f113cd6fd3838ab9d300fdb4fe3da2f7d"),
        ] {
            assert!(!KeySequence::new(parse_key(K3).unwrap()).accept(1, wrong, None, 3), "{wrong:?}");
        }
        assert!(
            !KeySequence::new(parse_key(K3).unwrap()).accept(1, Some(K2), Some("nothing"), 3),
            "a bad new key"
        );
    }

    #[test]
    fn a_resent_request_carries_the_same_key() {
        let mut keys = KeySequence::new(parse_key(K3).unwrap());
        assert!(keys.accept(1, Some(K2), None, 3) && keys.accept(2, Some(K1), None, 3));
        assert!(keys.is_repeat(1, Some(K2)) && keys.is_repeat(2, Some(K1)) && keys.is_repeat(0, None));
        assert!(!keys.is_repeat(1, Some(K1)) && !keys.is_repeat(1, None) && !keys.is_repeat(0, Some(K3)));
    }

    #[test]
    fn only_the_latest_keys_are_remembered() {
        let mut text = vec![K1.to_owned()];
        for _ in 0..50 {
            let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.last().unwrap().as_bytes());
            text.push(hash.as_ref().iter().map(|b| format!("{b:02x}")).collect());
        }
        let mut keys = KeySequence::new(parse_key(&text.pop().unwrap()).unwrap());
        for (rid, key) in text.iter().rev().enumerate() {
            assert!(keys.accept(rid as u64, Some(key), None, 3));
        }
        assert_eq!(keys.used.len(), 3);
    }
}
