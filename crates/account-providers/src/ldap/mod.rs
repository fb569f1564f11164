//! Accounts of an LDAP directory (RFC 4511): a search finds the entry of the user, a bind with its name checks the password,
//! under TLS or StartTLS.
//!
//! Own code instead of a package, because three operations are needed, the encoding is that of the public keys of
//! [`crate::jwt`], and the packages bring an ASN.1 library and a second parser of URLs: messages in [`message`], filters
//! (RFC 4515) in [`filter`], the connection in [`connection`].
//!
//! Not implemented: SASL binds; referrals and aliases, which directories of accounts follow on their side; SCRAM keys;
//! creation and removal of entries, whose schema is the operator's.
//!
//! # Pitfalls
//!
//! A bind with an empty password succeeds as anonymous (RFC 4513, section 5.1.2). A user name is data: it must be escaped in a
//! filter, and is never put into a distinguished name.

pub mod connection;
pub mod filter;
pub mod message;
pub mod provider;

pub use connection::{LdapEncryption, LdapServer};
pub use filter::{Filter, FilterTemplate};
pub use provider::{LdapAccounts, LdapSettings};
