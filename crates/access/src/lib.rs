//! What streams and the API share about accounts: the queries of a login, the throttle of failed logins, the log of logins and
//! ended sessions, information about the connections of sessions, and the views of accounts (rosters, blocklists), which are read
//! again when the store changes.
//!
//! Not implemented: the mechanisms, which are in `sasl`, and their negotiation, which is in `streams` and `api`.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod account_recheck;
pub mod account_views;
mod blocklist_cache;
pub mod login;
pub mod login_throttle;
pub mod provided_accounts;
pub mod session_info;
pub mod session_log;

pub use account_views::StoreBackedViews;
