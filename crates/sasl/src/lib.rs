//! SASL (RFC 4422) for XMPP (RFC 6120, section 6) as pure state machines: bytes in, bytes out.
//!
//! [`Exchange`] is one attempt of one client. It owns no socket, no database and no clock; it requests external data
//! with an [`ExchangeStep`], and the caller supplies the answer. Mechanisms: SCRAM-SHA-1, -256 and -512, each with
//! channel binding (`-PLUS`), PLAIN, EXTERNAL, ANONYMOUS, OAUTHBEARER; see [`Mechanism`]. In addition, [`hashed_token`] and
//! [`fast_tokens`]: logins with a token issued by the server (XEP-0484).
//!
//! ```
//! # use throng_sasl as sasl;
//! use base::Secret;
//! use sasl::{ChannelBindingData, Credentials, Decoy, Exchange, ExchangeStep, Mechanism, client};
//!
//! let stored = Credentials::derive("r0m30myr0m30", 4096, b"any salt").unwrap();
//! let decoy = Decoy::new(&Secret::new(*b"from the settings store"), 4096);
//! let mut juliet = client::ScramClient::new(sasl::ScramHash::Sha256, client::Gs2::None, "juliet", "r0m30myr0m30");
//!
//! let mut exchange = Exchange::new(Mechanism::ScramSha256, false, ChannelBindingData::default(), sasl::nonce());
//! let ExchangeStep::NeedCredentials { username } = exchange.step(Some(&juliet.client_first())) else { panic!() };
//! // The caller maps the user name to an account and reads its credentials: one look-up, any way it likes.
//! let ExchangeStep::Challenge(challenge) = exchange.credentials(Some(&stored), &decoy, &username) else { panic!() };
//! let response = juliet.client_final(&challenge, None).unwrap();
//! let ExchangeStep::Done { username, additional, .. } = exchange.step(Some(&response)) else { panic!() };
//! juliet.verify(&additional.unwrap()).unwrap();
//! assert_eq!(username, "juliet");
//! ```
//!
//! Cost: the server's side of SCRAM is five HMACs (5 to 9 µs, see `examples/cost.rs`) and no PBKDF2; the work of RFC
//! 5802 is the client's. Only PLAIN and setting a password derive keys ([`Credentials`]), which belongs on a thread
//! that may compute for milliseconds.
//!
//! Why not the `rsasl` crate: its session calls a synchronous callback for the stored keys in the middle of a step, so
//! a database look-up would block the thread. Its SCRAM server (2.2.1) leaves the user name escaped and answers unknown
//! users with fresh random salts, which reveals that they are unknown.
//!
//! Not implemented: security layers (none of these mechanisms has one), tls-unique (undefined for TLS 1.3).
//!
//! # Pitfalls
//!
//! A user name here is the client's text, prepared with SASLprep. Only the address rules (RFC 7622), which are up to
//! the caller, turn it into an account.

mod anonymous;
pub mod channel_binding;
pub mod client;
mod credentials;
mod decoy;
pub mod downgrade_protection;
pub mod encoding;
mod exchange;
mod external;
mod failure;
pub mod fast_tokens;
mod hash;
pub mod hashed_token;
mod key_shape;
mod mechanism;
mod oauth_bearer;
mod plain;
mod saslprep;
mod scram;
mod scram_message;

pub use channel_binding::ChannelBindingData;
pub use credentials::{
    Credentials, CredentialsError, DEFAULT_ITERATIONS, MAX_ITERATIONS, SALT_BYTES, ScramKeys,
};
pub use decoy::Decoy;
pub use exchange::{Exchange, ExchangeStep};
pub use failure::{Failure, FailureReason};
pub use fast_tokens::{ClientId, FastTokens, TokenKey};
pub use hash::{KeyBytes, ScramHash};
pub use hashed_token::HtMechanism;
pub use key_shape::{KeyShape, KeyShapes, MAX_SHAPES};
pub use mechanism::{Mechanism, MechanismSet};
pub use oauth_bearer::MAX_MESSAGE as MAX_BEARER_MESSAGE;
pub use plain::{MAX_MESSAGE as MAX_PLAIN_MESSAGE, MAX_PASSWORD};
pub use saslprep::{PrepError, prepare};
pub use scram::{MAX_CLIENT_FINAL, MAX_CLIENT_FIRST};

/// A fresh server nonce for [`Exchange::new`]: 144 random bits as 24 characters.
pub fn nonce() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(base::id::random_bytes::<18>())
}
