//! Accounts by number and by address, for the engine: lists are looked up in a map, patterns are computed.

use hashbrown::HashMap;
use jid::JidRef;

use crate::plan::{AccountSource, TestAccounts};

/// The accounts of a plan.
pub(crate) struct AccountNames<'p> {
    accounts: &'p TestAccounts,
    /// Used for lists only.
    by_name: HashMap<&'p str, u32>,
}

impl<'p> AccountNames<'p> {
    /// Indexes the accounts of a plan.
    pub(crate) fn new(accounts: &'p TestAccounts) -> Self {
        let by_name = match &accounts.source {
            AccountSource::List(rows) => {
                rows.iter().zip(0..).map(|((name, _), number)| (name.as_str(), number)).collect()
            }
            _ => HashMap::new(),
        };
        Self { accounts, by_name }
    }

    /// Domain of all accounts.
    pub(crate) fn domain(&self) -> &'p str {
        &self.accounts.domain
    }

    /// Appends the name of `user`; nothing for anonymous users.
    pub(crate) fn name(&self, user: u32, out: &mut String) {
        self.accounts.name_of(user, out);
    }

    /// Number in the name of `user`.
    pub(crate) fn number_of(&self, user: u32) -> u64 {
        self.accounts.number_of(user)
    }

    /// Appends the bare JID of `user`, unescaped.
    pub(crate) fn bare(&self, user: u32, out: &mut String) {
        self.name(user, out);
        out.push('@');
        out.push_str(&self.accounts.domain);
    }

    /// Password of `user`.
    pub(crate) fn password(&self, user: u32) -> String {
        let mut password = String::new();
        self.accounts.password_of(user, &mut password);
        password
    }

    /// Index of an address, if it is one of these accounts.
    pub(crate) fn index(&self, address: &str) -> Option<u32> {
        let parsed = JidRef::from_normalised(address)?;
        if parsed.domain() != self.accounts.domain {
            return None;
        }
        let local = parsed.local()?;
        match &self.accounts.source {
            AccountSource::List(_) => self.by_name.get(local).copied(),
            _ => self.accounts.index_of(local),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AccountNames;
    use crate::plan::{AccountSource, TestAccounts};

    #[test]
    fn addresses_of_a_list_and_of_a_pattern_are_found() {
        let list = AccountSource::List(vec![("ann".into(), "x".into()), ("bob".into(), "y".into())]);
        let pattern = AccountSource::Pattern {
            prefix: "u".into(),
            first: 10,
            count: 5,
            stride: 2,
            password: "p".into(),
        };
        for (source, address, index) in [
            (list.clone(), "bob@a.org", 1),
            (pattern.clone(), "u14@a.org/x", 2),
            (pattern.clone(), "u10@a.org", 0),
        ] {
            let accounts = TestAccounts { source, domain: "a.org".into() };
            let names = AccountNames::new(&accounts);
            assert_eq!(names.index(address), Some(index));
            for other in ["eve@a.org", "bob@b.org", "u14@b.org", "a.org", "u11@a.org", ""] {
                assert_eq!(names.index(other), None, "{other}");
            }
        }
    }
}
