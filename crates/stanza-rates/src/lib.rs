//! Rates of stanzas as token buckets: those of a session and what its account has spent, and those of the senders to a
//! service.
//!
//! Not implemented: when sessions get their buckets, which the engine decides (`core/src/session/rates.rs`); rates of logins
//! and connections (`access`, `net`).

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod account_rates;
mod service_rates;
mod session_rates;
mod spent_reports;

pub use account_rates::{AccountRates, SpentRates};
pub use service_rates::ServiceRates;
pub use session_rates::{RateLimits, SessionRates};
pub use spent_reports::{SpentReport, SpentReports};
