//! Names of accounts as sources write them: the user name, or the address.
//!
//! # Pitfalls
//!
//! A source compares texts in its own way, often without case, accents or spaces, so what it finds for a name may be the entry
//! of another one. Without a comparison here, one entry would be many accounts.

use jid::Jid;

/// The account of `domain` that a user name stands for, or that an address is; `None` if it is neither.
pub(crate) fn named_account(name: &str, domain: &str) -> Option<Jid> {
    match name.contains('@') {
        true => Jid::parse(name).ok(),
        false => Jid::from_parts(Some(name), domain, None).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_normalised() {
        let named = |name| named_account(name, "example.net").map(|jid| jid.to_string());
        for same in ["romeo", "Romeo", "romeo@example.net", "ROMEO@EXAMPLE.net"] {
            assert_eq!(named(same).as_deref(), Some("romeo@example.net"), "{same}");
        }
        assert_eq!(named("romeo@other.example").as_deref(), Some("romeo@other.example"));
        for wrong in ["", "a b", "a@b@c", "+49 30"] {
            assert_eq!(named(wrong), None, "{wrong}");
        }
    }
}
