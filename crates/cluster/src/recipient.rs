//! Recipients of an envelope: by reference where the receiver has the text of the address, else by text.
//!
//! # Pitfalls
//!
//! A reference is only a claim of the sender. The receiver finds the account by the hash and compares the number with its
//! own table; a recipient whose number differs is refused and returns to the sender. A sender may use a number only if
//! it has it from the store (a contact, the account of a session), never one that it located by the hash alone.

use jid::Jid;

use crate::AddressReference;

/// A recipient on the receiving node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// A bare or full address.
    Address(Jid),
    /// A bare address: 12 octets.
    Account(AddressReference),
    /// A session of an account by number, 16 octets. Reserved: no release sends it, and a receiver refuses it.
    Session(AddressReference, u32),
}

impl Recipient {
    /// Length of the encoded recipient in octets.
    pub(crate) fn encoded_len(&self) -> usize {
        1 + match self {
            Recipient::Address(jid) => 2 + jid.as_str().len(),
            Recipient::Account(_) => 12,
            Recipient::Session(..) => 16,
        }
    }
}

impl From<Jid> for Recipient {
    fn from(jid: Jid) -> Recipient {
        Recipient::Address(jid)
    }
}
