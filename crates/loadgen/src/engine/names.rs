//! Accounts by number: name and password of a number, number of a name.

use hashbrown::HashMap;
use jid::JidRef;

use crate::plan::{AccountSource, Accounts};

/// The accounts of a plan.
pub(crate) struct Names {
    accounts: &'static Accounts,
    /// Only for lists; a pattern is computed.
    by_name: HashMap<&'static str, u32>,
}

impl Names {
    /// The accounts of a plan.
    pub(crate) fn new(accounts: &'static Accounts) -> Self {
        let by_name = match &accounts.source {
            AccountSource::List(rows) => {
                rows.iter().zip(0..).map(|((name, _), number)| (name.as_str(), number)).collect()
            }
            _ => HashMap::new(),
        };
        Self { accounts, by_name }
    }

    /// The domain of all.
    pub(crate) fn domain(&self) -> &'static str {
        &self.accounts.domain
    }

    /// Appends the name of `user`; nothing for anonymous users.
    pub(crate) fn name(&self, user: u32, out: &mut String) {
        match &self.accounts.source {
            AccountSource::Pattern { prefix, first, .. } => {
                out.push_str(prefix);
                push_number(first + u64::from(user), out);
            }
            AccountSource::List(rows) => {
                if let Some((name, _)) = rows.get(user as usize) {
                    out.push_str(name);
                }
            }
            AccountSource::Anonymous { .. } => {}
        }
    }

    /// Appends the bare address of `user`, not escaped.
    pub(crate) fn bare(&self, user: u32, out: &mut String) {
        self.name(user, out);
        out.push('@');
        out.push_str(&self.accounts.domain);
    }

    /// The password of `user`.
    pub(crate) fn password(&self, user: u32) -> String {
        match &self.accounts.source {
            AccountSource::Pattern { password, first, .. } => {
                password.replace("{n}", &(first + u64::from(user)).to_string())
            }
            AccountSource::List(rows) => {
                rows.get(user as usize).map(|(_, password)| password.clone()).unwrap_or_default()
            }
            AccountSource::Anonymous { .. } => String::new(),
        }
    }

    /// The number of an address, if it is one of these accounts.
    pub(crate) fn number(&self, address: &str) -> Option<u32> {
        let parsed = JidRef::from_normalised(address)?;
        if parsed.domain() != self.accounts.domain {
            return None;
        }
        let local = parsed.local()?;
        match &self.accounts.source {
            AccountSource::Pattern { prefix, first, count, .. } => {
                let digits = local.strip_prefix(prefix.as_str())?;
                // `u007` is another account than `u7`.
                if digits.len() > 1 && digits.starts_with('0') {
                    return None;
                }
                let number = digits.parse::<u64>().ok()?.checked_sub(*first)?;
                u32::try_from(number).ok().filter(|number| number < count)
            }
            AccountSource::List(_) => self.by_name.get(local).copied(),
            AccountSource::Anonymous { .. } => None,
        }
    }
}

/// Appends a decimal number without the formatting machinery, which costs more than the rest of a stanza.
pub(crate) fn push_number(mut value: u64, out: &mut String) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend(digits[at..].iter().map(|digit| char::from(*digit)));
}

#[cfg(test)]
mod tests {
    use super::Names;
    use crate::plan::{AccountSource, Accounts};

    fn names(source: AccountSource) -> Names {
        Names::new(Box::leak(Box::new(Accounts { source, domain: "a.org".into() })))
    }

    #[test]
    fn a_pattern_counts_both_ways() {
        let names = names(AccountSource::Pattern {
            prefix: "u".into(),
            first: 100,
            count: 50,
            password: "p{n}".into(),
        });
        let mut bare = String::new();
        names.bare(7, &mut bare);
        assert_eq!((bare.as_str(), names.password(7).as_str()), ("u107@a.org", "p107"));
        assert_eq!(names.number("u107@a.org/x"), Some(7));
        for other in [
            "u99@a.org",
            "u150@a.org",
            "u0107@a.org",
            "v107@a.org",
            "u107@b.org",
            "a.org",
            "u@a.org",
            "u-1@a.org",
        ] {
            assert_eq!(names.number(other), None, "{other}");
        }
    }

    #[test]
    fn a_list_is_looked_up() {
        let names = names(AccountSource::List(vec![("ann".into(), "x".into()), ("bob".into(), "y".into())]));
        assert_eq!((names.number("bob@a.org"), names.number("eve@a.org")), (Some(1), None));
        assert_eq!(names.password(0), "x");
    }
}
