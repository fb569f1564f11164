//! Conformance suite that every backend must pass, one file per trait.
//!
//! ```ignore
//! struct Backend;
//! impl store::conformance::Backend for Backend { .. }
//! store::conformance_suite!(Backend);
//! ```
//! generates one `#[test]` per case. A case gets a fresh, empty backend and its clock. Each file lists its cases; a
//! case that no list names does not compile.
//!
//! # Pitfalls
//!
//! A case is a plain `async fn` over [`Fixture`] and must not depend on a runtime, since each backend brings its own.
//! Cases follow the documentation of the traits, never the behaviour of one backend.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "these are tests, in a library only so that several crates can run them"
)]
// An `async fn` that no list names is dead code, and so is a file that `storage_needs!` does not name.
#![deny(dead_code)]

/// Lists the cases of a file, which are private functions, under the name of the file. Public are a module of functions
/// with one signature, and a macro that makes one `#[test]` of each.
macro_rules! cases {
    ($file:ident: $($case:ident),+ $(,)?) => { cases! { @($) $file: $($case),+ } };
    (@($d:tt) $file:ident: $($case:ident),+) => {
        pub mod cases {
            $(
                pub fn $case(fixture: $crate::conformance::Fixture) -> base::BoxFuture<'static, ()> {
                    Box::pin(super::$case(fixture))
                }
            )+
        }

        #[doc(hidden)]
        #[macro_export]
        macro_rules! $file {
            ($d backend:ty) => {
                mod $file {
                    $(
                        #[test]
                        fn $case() {
                            <$d backend as $crate::conformance::Backend>::run(Box::new(
                                $crate::conformance::cases::$file::$case,
                            ));
                        }
                    )+
                }
            };
        }
    };
}

/// Defines `conformance_suite!` from the files that list their cases: one for each storage need.
macro_rules! suite {
    ($($(#[$doc:meta])* $field:ident in $file:ident: $need:ident;)+) => { suite! { @($) $($file),+ } };
    (@($d:tt) $($file:ident),+) => {
        /// The cases of each file.
        pub mod cases {
            $(pub use super::$file::cases as $file;)+
        }

        /// Generates one `#[test]` per case for a [`Backend`](crate::conformance::Backend).
        #[macro_export]
        macro_rules! conformance_suite {
            ($d backend:ty) => {
                $($crate::$file!($d backend);)+
            };
        }
    };
}

mod account_kv;
mod accounts;
mod address_dictionary;
mod blocklists;
mod last_seen;
mod logins;
mod offline;
mod pubsub;
mod rooms;
mod roster;
mod server_kv;
mod subscription_sets;
mod tokens;
mod user_search;
mod vcards;

storage_needs!(suite);

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::{BoxFuture, ManualClock};
use jid::Jid;

pub use base::spawn::join_all;

use crate::{AddressId, Login, RosterItem, StoreError, Stores, Subscription};

/// Environment of a case.
pub struct Fixture {
    /// A fresh, empty backend.
    pub stores: Stores,
    /// The clock of that backend.
    pub clock: Arc<ManualClock>,
}

/// A case that can run on any backend.
pub type Case = Box<dyn FnOnce(Fixture) -> BoxFuture<'static, ()> + Send>;

/// A backend under test.
pub trait Backend {
    /// Creates a fresh backend, runs the case to completion and cleans up.
    fn run(case: Case);
}

/// Runs a future that is always ready, like those of the memory backend.
pub fn block_on_ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future waited"),
    }
}

/// Parses a valid address.
pub fn jid(text: &str) -> Jid {
    Jid::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// Creates an account of this name at `example.org`.
pub async fn account(stores: &Stores, name: &str) -> AddressId {
    stores.accounts.create(&jid(&format!("{name}@example.org")), name.as_bytes()).await.unwrap()
}

/// The login data of this account after authentication.
pub async fn login(stores: &Stores, account: &Jid) -> Login {
    read_login(stores, account).await.unwrap().unwrap()
}

/// The same, for logins that may fail. The account must exist.
pub async fn read_login(stores: &Stores, account: &Jid) -> Result<Option<Login>, StoreError> {
    let secrets = stores.logins.secrets(account.as_ref()).await.unwrap().unwrap();
    let id = match secrets.id == AddressId::UNASSIGNED {
        true => stores.addresses.intern(account).await.unwrap(),
        false => secrets.id,
    };
    stores.logins.login(id, secrets.revision).await
}

/// An entry with a state, as an update closure would create it.
pub fn entry(contact: &Jid, subscription: Subscription) -> RosterItem {
    RosterItem { subscription, ..RosterItem::new(contact.clone()) }
}

/// Texts that databases tend to confuse or lose.
pub const UNUSUAL: &[&str] = &[
    "",
    " ",
    "a",
    "A",
    "a ",
    " a",
    "ａ",
    "ä",
    "a\u{308}",
    "ß",
    "ss",
    "İ",
    "i",
    "I",
    "ı",
    "ſ",
    "s",
    "Σ",
    "ς",
    "σ",
    "'",
    "\"",
    "\\",
    "%",
    "_",
    "\u{0}",
    "a\u{0}b",
    "\n",
    "\r\n",
    "\t",
    "\u{7f}",
    "\u{80}",
    "\u{7ff}",
    "\u{800}",
    "\u{d7ff}",
    "\u{e000}",
    "\u{fffd}",
    "\u{ffff}",
    "\u{10000}",
    "\u{1f600}",
    "\u{20000}",
    "\u{30000}",
    "\u{e0001}",
    "\u{f0000}",
    "\u{10ffff}",
    "\u{200d}",
    "\u{feff}a",
    "; DROP TABLE roster",
    "?1",
    "$1",
];
