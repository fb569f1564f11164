//! Accounts of a run, and the mapping between a user's number and name.
//!
//! A user's number is its index here, and users arrive in order of their numbers. With ring rosters (the contacts of
//! each account are its nearest neighbours) that order decides who is online when a user logs in:
//! - stride 1 (the default): every user finds the neighbours below online and those above not yet, so exactly half of
//!   the roster at login, and all of it later;
//! - stride `d` ([`AccountSource::Pattern::stride`]): only every `d`-th account of the ring is used, so `1/d` of
//!   each roster is online in the end.
//!
//! # Pitfalls
//!
//! The name's number is not the user's number; always use [`TestAccounts::name_of`] and [`TestAccounts::index_of`].

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// Accounts of a run. A user's number is its index here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestAccounts {
    /// Source of names and passwords.
    pub source: AccountSource,
    /// Domain of the accounts.
    pub domain: String,
}

/// Source of names and passwords.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AccountSource {
    /// `<prefix><first + index * stride>`, all with the same password pattern.
    Pattern {
        /// Name prefix.
        prefix: String,
        /// Number of the user with index 0.
        first: u64,
        /// Number of users.
        count: u32,
        /// Interval between the numbers of two users; 1 if all accounts are used. Never 0.
        #[serde(default = "one")]
        stride: u32,
        /// Password; `{n}` stands for the number in the name.
        password: String,
    },
    /// Name and password of each user.
    List(Vec<(String, String)>),
    /// No accounts: names are assigned by ANONYMOUS. Such users cannot be the destination of an `Online` message.
    Anonymous {
        /// Maximum number of simultaneous users.
        count: u32,
    },
}

impl TestAccounts {
    /// Number of users.
    pub fn count(&self) -> u32 {
        match &self.source {
            AccountSource::Pattern { count, .. } | AccountSource::Anonymous { count } => *count,
            AccountSource::List(rows) => u32::try_from(rows.len()).unwrap_or(u32::MAX),
        }
    }

    /// Number in the name of a user; the index itself if names are not a pattern.
    pub fn number_of(&self, index: u32) -> u64 {
        match &self.source {
            AccountSource::Pattern { first, stride, .. } => {
                first.saturating_add(u64::from(index).saturating_mul(u64::from(*stride)))
            }
            _ => u64::from(index),
        }
    }

    /// Appends the user's name; nothing for anonymous users and beyond the end.
    pub fn name_of(&self, index: u32, name: &mut String) {
        match &self.source {
            AccountSource::Pattern { prefix, .. } => {
                let _ = write!(name, "{prefix}{}", self.number_of(index));
            }
            AccountSource::List(rows) => {
                name.push_str(rows.get(index as usize).map_or("", |row| row.0.as_str()));
            }
            AccountSource::Anonymous { .. } => {}
        }
    }

    /// Appends the user's password; nothing for anonymous users and beyond the end.
    pub fn password_of(&self, index: u32, password: &mut String) {
        match &self.source {
            AccountSource::Pattern { password: pattern, .. } => {
                let mut rest = pattern.as_str();
                while let Some((before, after)) = rest.split_once("{n}") {
                    let _ = write!(password, "{before}{}", self.number_of(index));
                    rest = after;
                }
                password.push_str(rest);
            }
            AccountSource::List(rows) => {
                password.push_str(rows.get(index as usize).map_or("", |row| row.1.as_str()));
            }
            AccountSource::Anonymous { .. } => {}
        }
    }

    /// User with this name, if names are a pattern; `None` for a name that belongs to no user of the run.
    /// Lists are not searched: callers that need that keep a map.
    pub fn index_of(&self, name: &str) -> Option<u32> {
        let AccountSource::Pattern { prefix, first, count, stride, .. } = &self.source else { return None };
        let digits = name.strip_prefix(prefix.as_str())?;
        let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
        let distance = digits.parse::<u64>().ok().filter(|_| plain)?.checked_sub(*first)?;
        let stride = u64::from((*stride).max(1));
        let index = distance.is_multiple_of(stride).then_some(distance / stride)?;
        u32::try_from(index).ok().filter(|index| index < count)
    }
}

fn one() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(first: u64, count: u32, stride: u32) -> TestAccounts {
        let (prefix, password) = ("u".to_owned(), "pw{n}!{n}".to_owned());
        TestAccounts {
            source: AccountSource::Pattern { prefix, first, count, stride, password },
            domain: "localhost".to_owned(),
        }
    }

    #[test]
    fn an_account_name_maps_to_its_user() {
        for (first, count, stride) in [(0, 10, 1), (1, 1, 1), (7, 300, 5)] {
            let accounts = accounts(first, count, stride);
            for index in 0..count {
                let mut name = String::new();
                accounts.name_of(index, &mut name);
                assert_eq!(accounts.index_of(&name), Some(index), "{name}");
            }
        }
    }

    #[test]
    fn unknown_account_names_map_to_no_user() {
        let accounts = accounts(10, 5, 5);
        for name in ["u9", "u11", "u35", "u010", "u+10", "v10", "u", "", "u99999999999999999999"] {
            assert_eq!(accounts.index_of(name), None, "{name}");
        }
        assert_eq!(accounts.index_of("u30"), Some(4));
    }

    #[test]
    fn the_user_number_is_inserted_into_the_password() {
        let mut password = String::new();
        accounts(10, 5, 5).password_of(2, &mut password);
        assert_eq!(password, "pw20!20");
    }

    /// Share of each user's ring of `ring` contacts that is online when the user logs in.
    fn shares_at_login(order: &[usize], users: usize, ring: usize) -> Vec<f64> {
        let mut online = vec![false; users];
        let mut shares = vec![0.0; users];
        for &user in order {
            let near = (1..=ring / 2).flat_map(|d| [(user + d) % users, (user + users - d) % users]);
            shares[user] = near.filter(|&c| online[c]).count() as f64 / ring as f64;
            online[user] = true;
        }
        shares
    }

    #[test]
    fn arrival_in_the_order_of_numbers_finds_half_of_a_ring_online_and_other_orders_do_not() {
        let (users, ring) = (1_000, 50);
        let in_order: Vec<usize> = (0..users).collect();
        let shares = shares_at_login(&in_order, users, ring);
        // Without the first and last half ring, whose neighbours are beyond the ends.
        assert!(shares[ring / 2..users - ring / 2].iter().all(|share| (share - 0.5).abs() < 1e-9));
        // Even numbers first: a quarter, and then three quarters.
        let even_first: Vec<usize> = (0..users).step_by(2).chain((1..users).step_by(2)).collect();
        let shares = shares_at_login(&even_first, users, ring);
        assert!((shares[500] - 0.24).abs() < 1e-9 && (shares[501] - 0.76).abs() < 1e-9);
    }
}
