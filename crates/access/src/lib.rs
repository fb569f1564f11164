//! Access to accounts: the throttle of failed logins and the log of logins and ended sessions. Every interface that accepts
//! a password uses them.
//!
//! Not implemented: the mechanisms, which are in `sasl`, and their negotiation, which is in `streams` and `api`.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod login_throttle;
pub mod session_log;
