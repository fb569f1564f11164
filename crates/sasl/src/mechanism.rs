//! Names of SASL mechanisms, their order of preference, and sets of them.
//!
//! Names are those of the IANA registry "SASL Mechanisms". RFC 5802, section 4, forms the SCRAM family, RFC 7677 adds
//! SHA-256, SHA-512 follows the same pattern (draft-melnikov-scram-sha-512).
//!
//! # Pitfalls
//!
//! The offered and the accepted mechanisms must be the same set, and a client that sends `y` must be checked against it
//! (see [`crate::Exchange::new`], `offered_plus`). Store the [`MechanismSet`] for the lifetime of the stream.

use std::fmt;

use crate::hash::ScramHash;

/// SASL mechanism that this crate implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mechanism {
    /// SCRAM-SHA-512-PLUS.
    ScramSha512Plus,
    /// SCRAM-SHA-512.
    ScramSha512,
    /// SCRAM-SHA-256-PLUS (RFC 7677).
    ScramSha256Plus,
    /// SCRAM-SHA-256 (RFC 7677).
    ScramSha256,
    /// SCRAM-SHA-1-PLUS (RFC 5802).
    ScramSha1Plus,
    /// SCRAM-SHA-1 (RFC 5802).
    ScramSha1,
    /// PLAIN (RFC 4616).
    Plain,
    /// EXTERNAL (RFC 4422, appendix A).
    External,
    /// ANONYMOUS (RFC 4505).
    Anonymous,
    /// OAUTHBEARER (RFC 7628).
    OauthBearer,
}

impl Mechanism {
    /// Every mechanism in the order in which a server should list them: EXTERNAL first, because it is listed only when
    /// a certificate was presented; then channel binding before none, and strong hash before weak.
    pub const ALL: [Mechanism; 10] = [
        Mechanism::External,
        Mechanism::ScramSha512Plus,
        Mechanism::ScramSha256Plus,
        Mechanism::ScramSha1Plus,
        Mechanism::ScramSha512,
        Mechanism::ScramSha256,
        Mechanism::ScramSha1,
        Mechanism::OauthBearer,
        Mechanism::Plain,
        Mechanism::Anonymous,
    ];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::ScramSha512Plus => "SCRAM-SHA-512-PLUS",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
            Mechanism::ScramSha256Plus => "SCRAM-SHA-256-PLUS",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha1Plus => "SCRAM-SHA-1-PLUS",
            Mechanism::ScramSha1 => "SCRAM-SHA-1",
            Mechanism::Plain => "PLAIN",
            Mechanism::External => "EXTERNAL",
            Mechanism::Anonymous => "ANONYMOUS",
            Mechanism::OauthBearer => "OAUTHBEARER",
        }
    }

    /// Mechanism with this name. Names are upper case (RFC 4422, section 3.1); others are unknown.
    pub fn from_name(name: &str) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// Hash of a SCRAM mechanism; `None` for the others.
    pub const fn hash(self) -> Option<ScramHash> {
        match self {
            Mechanism::ScramSha512Plus | Mechanism::ScramSha512 => Some(ScramHash::Sha512),
            Mechanism::ScramSha256Plus | Mechanism::ScramSha256 => Some(ScramHash::Sha256),
            Mechanism::ScramSha1Plus | Mechanism::ScramSha1 => Some(ScramHash::Sha1),
            Mechanism::Plain | Mechanism::External | Mechanism::Anonymous | Mechanism::OauthBearer => None,
        }
    }

    /// Whether it binds to the TLS channel (`-PLUS`).
    pub const fn is_plus(self) -> bool {
        matches!(self, Mechanism::ScramSha512Plus | Mechanism::ScramSha256Plus | Mechanism::ScramSha1Plus)
    }

    /// SCRAM mechanism of this hash, with or without channel binding.
    pub const fn scram(hash: ScramHash, plus: bool) -> Mechanism {
        match (hash, plus) {
            (ScramHash::Sha1, false) => Mechanism::ScramSha1,
            (ScramHash::Sha1, true) => Mechanism::ScramSha1Plus,
            (ScramHash::Sha256, false) => Mechanism::ScramSha256,
            (ScramHash::Sha256, true) => Mechanism::ScramSha256Plus,
            (ScramHash::Sha512, false) => Mechanism::ScramSha512,
            (ScramHash::Sha512, true) => Mechanism::ScramSha512Plus,
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Set of mechanisms in two bytes, such as the offer of a stream.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct MechanismSet(u16);

impl MechanismSet {
    /// The empty set.
    pub const EMPTY: MechanismSet = MechanismSet(0);
    /// The three SCRAM mechanisms without channel binding.
    pub const SCRAM: MechanismSet = MechanismSet::EMPTY
        .with(Mechanism::ScramSha1)
        .with(Mechanism::ScramSha256)
        .with(Mechanism::ScramSha512);
    /// The three SCRAM mechanisms with channel binding.
    pub const SCRAM_PLUS: MechanismSet = MechanismSet::EMPTY
        .with(Mechanism::ScramSha1Plus)
        .with(Mechanism::ScramSha256Plus)
        .with(Mechanism::ScramSha512Plus);

    /// The set with `mechanism` added.
    #[must_use]
    pub const fn with(self, mechanism: Mechanism) -> MechanismSet {
        MechanismSet(self.0 | 1 << mechanism as u8)
    }

    /// The set without `mechanism`.
    #[must_use]
    pub const fn without(self, mechanism: Mechanism) -> MechanismSet {
        MechanismSet(self.0 & !(1 << mechanism as u8))
    }

    /// Union of both sets.
    #[must_use]
    pub const fn union(self, other: MechanismSet) -> MechanismSet {
        MechanismSet(self.0 | other.0)
    }

    /// Whether the set has `mechanism`.
    pub const fn contains(self, mechanism: Mechanism) -> bool {
        self.0 & (1 << mechanism as u8) != 0
    }

    /// Whether the set has any mechanism with channel binding.
    pub const fn has_plus(self) -> bool {
        self.0 & MechanismSet::SCRAM_PLUS.0 != 0
    }

    /// Whether the set is empty. `<mechanisms/>` is then omitted (RFC 6120, section 6.4.1).
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates in the order of [`Mechanism::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Mechanism> {
        Mechanism::ALL.into_iter().filter(move |mechanism| self.contains(*mechanism))
    }
}

impl FromIterator<Mechanism> for MechanismSet {
    fn from_iter<I: IntoIterator<Item = Mechanism>>(mechanisms: I) -> MechanismSet {
        mechanisms.into_iter().fold(MechanismSet::EMPTY, MechanismSet::with)
    }
}

impl fmt::Debug for MechanismSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_to_its_mechanism() {
        for mechanism in Mechanism::ALL {
            assert_eq!(Mechanism::from_name(mechanism.name()), Some(mechanism));
            assert_eq!(mechanism.is_plus(), mechanism.name().ends_with("-PLUS"));
            assert_eq!(mechanism.hash().is_some(), mechanism.name().starts_with("SCRAM-"));
            if let Some(hash) = mechanism.hash() {
                assert_eq!(Mechanism::scram(hash, mechanism.is_plus()), mechanism);
            }
        }
        for unknown in ["", "plain", "SCRAM-SHA-1-", "SCRAM-SHA-384", "DIGEST-MD5", "PLAIN "] {
            assert_eq!(Mechanism::from_name(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn a_mechanism_set_lists_its_members_in_order() {
        let set: MechanismSet =
            [Mechanism::Plain, Mechanism::ScramSha1, Mechanism::ScramSha1Plus].into_iter().collect();
        let names: Vec<&str> = set.iter().map(Mechanism::name).collect();
        assert_eq!(names, ["SCRAM-SHA-1-PLUS", "SCRAM-SHA-1", "PLAIN"]);
        assert!(set.has_plus() && !set.without(Mechanism::ScramSha1Plus).has_plus());
        assert!(!set.contains(Mechanism::Anonymous) && MechanismSet::EMPTY.is_empty());
        assert_eq!(MechanismSet::SCRAM.union(MechanismSet::SCRAM_PLUS).iter().count(), 6);
    }
}
