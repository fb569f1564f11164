//! Requirements for passwords that users choose, one set for each domain (RFC 6120, section 13.9.4).

use std::collections::BTreeSet;

use base::Secret;
use store::{ServerKv, StoreError};

/// Requirements for a password that a user chooses. Administrators may set any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordPolicy {
    /// Minimum number of characters.
    pub min_length: u16,
    /// Minimum number of different characters.
    pub min_distinct: u16,
    /// Must not contain the user name.
    pub forbid_username: bool,
}

impl Default for PasswordPolicy {
    fn default() -> PasswordPolicy {
        PasswordPolicy { min_length: 8, min_distinct: 4, forbid_username: true }
    }
}

impl PasswordPolicy {
    fn key(domain: &str) -> String {
        format!("password-policy:{domain}")
    }

    /// The policy of a domain.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn load(settings: &dyn ServerKv, domain: &str) -> Result<PasswordPolicy, StoreError> {
        let stored = settings.get(&Self::key(domain)).await?;
        Ok(stored.and_then(|bytes| Self::decode(&bytes)).unwrap_or_default())
    }

    /// Stores the policy.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn save(&self, settings: &dyn ServerKv, domain: &str) -> Result<(), StoreError> {
        let text = format!("{} {} {}", self.min_length, self.min_distinct, u8::from(self.forbid_username));
        settings.put(&Self::key(domain), text.as_bytes()).await
    }

    fn decode(bytes: &[u8]) -> Option<PasswordPolicy> {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let mut next = || words.next()?.parse::<u16>().ok();
        Some(PasswordPolicy { min_length: next()?, min_distinct: next()?, forbid_username: next()? != 0 })
    }

    /// Whether the password is acceptable for a user of this name (the localpart of the address).
    ///
    /// # Errors
    /// One sentence that states what it lacks. It contains nothing of the password.
    pub fn check(&self, name: &str, password: &Secret) -> Result<(), String> {
        let text = password.expose_str().map_err(|_| "the password is not valid text".to_owned())?;
        if text.chars().count() < usize::from(self.min_length) {
            return Err(format!("the password is too short; use at least {} characters", self.min_length));
        }
        let different: BTreeSet<char> = text.chars().collect();
        if different.len() < usize::from(self.min_distinct) {
            return Err(format!("the password requires at least {} different characters", self.min_distinct));
        }
        if self.forbid_username && name.len() > 2 && text.to_lowercase().contains(&name.to_lowercase()) {
            return Err("the password must not contain the user name".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= https://www.rfc-editor.org/rfc/rfc6120#section-13.9.4
    //= type=test
    //# Although service provisioning is out of scope for this document, XMPP servers that allow password-based
    //# authentication SHOULD enforce minimal criteria for password strength to help prevent dictionary attacks.
    #[test]
    fn a_policy_reports_what_a_password_lacks() {
        let policy = PasswordPolicy::default();
        let check = |password: &str| policy.check("juliet", &Secret::new(password));
        assert_eq!(check("R0m30&juli"), Ok(()));
        assert!(check("R0m30").unwrap_err().contains("at least 8 characters"));
        assert!(check("aaaaaaaaab").unwrap_err().contains("4 different"));
        assert!(check("myJULIET12").unwrap_err().contains("user name"));
        assert!(
            PasswordPolicy { forbid_username: false, ..policy }
                .check("juliet", &Secret::new("myJULIET12"))
                .is_ok()
        );
    }

    #[test]
    fn a_policy_survives_a_round_trip_through_the_store() {
        assert_eq!(
            PasswordPolicy::decode(b"12 0 1"),
            Some(PasswordPolicy { min_length: 12, min_distinct: 0, forbid_username: true })
        );
        for bad in ["", "1 2", "x 1 1"] {
            assert_eq!(PasswordPolicy::decode(bad.as_bytes()), None);
        }
    }
}
