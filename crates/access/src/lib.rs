//! Access to accounts, which interfaces share: the queries of a login, the throttle of failed logins, the log of logins and ended sessions, and
//! information about the connections of sessions; the views of accounts that follow the store.
//!
//! Not implemented: the mechanisms, which are in `sasl`, and their negotiation, which is in `streams` and `api`.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod account_recheck;
pub mod account_views;
mod blocklist_cache;
pub mod login;
pub mod login_throttle;
pub mod session_info;
pub mod session_log;

pub use account_views::StoreBackedViews;
