//! Salts that a server uses for its accounts (RFC 5802), cached from one run to the next.
//!
//! A server sends an account's salt to anyone who asks; it is no secret. Known salts let workers derive their keys
//! before the start. The file is JSON: a domain, and for each account the hash function, the salt and the iteration
//! count.
//!
//! Not implemented: caching keys, which are as good as passwords.
//!
//! # Pitfalls
//!
//! A salt may have changed since; its key was then derived in vain, and the login derives the right one.
#![allow(
    clippy::disallowed_types,
    reason = "the generator does not use `base`; no other lock is acquired while this one is held"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use sasl::ScramHash;
use serde::{Deserialize, Serialize};

use super::message::{AccountSalt, ScramHashName};
use crate::plan::TestAccounts;

/// Maximum number of cached accounts: as many keys as a large plan has users, in some tens of megabytes.
const MOST: usize = 1_000_000;

/// Known salts. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SaltCache(Arc<Mutex<SaltFile>>);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SaltFile {
    domain: String,
    salts: BTreeMap<String, SaltFileEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SaltFileEntry {
    #[serde(with = "ScramHashName")]
    hash: ScramHash,
    iterations: u32,
    salt: Vec<u8>,
}

impl SaltCache {
    /// Reads a file; a missing one yields an empty cache.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("--salts {shown} cannot be read")),
        };
        let known: SaltFile = serde_json::from_str(&text)
            .with_context(|| format!("--salts {shown} is not a salt file; choose another file"))?;
        Ok(Self(Arc::new(Mutex::new(known))))
    }

    /// Ties the cache to a domain; salts of different domains must not be mixed.
    pub(crate) fn bind_to_domain(&self, domain: &str) -> Result<()> {
        let mut known = self.0.lock();
        ensure!(
            known.salts.is_empty() || known.domain == domain,
            "the salts belong to {}, but the plan is for {domain}; give another file to --salts",
            known.domain
        );
        domain.clone_into(&mut known.domain);
        Ok(())
    }

    /// Writes the file.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(&*self.0.lock()).context("cannot encode the salts as JSON")?;
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
    }

    /// Known salts of a plan's accounts, by their numbers.
    pub(crate) fn for_accounts(&self, accounts: &TestAccounts) -> Vec<AccountSalt> {
        let known = self.0.lock();
        let mut name = String::new();
        (0..accounts.count())
            .filter_map(|user| {
                name.clear();
                accounts.name_of(user, &mut name);
                let SaltFileEntry { hash, iterations, salt } = known.salts.get(&name)?.clone();
                Some(AccountSalt { user, hash, salt, iterations })
            })
            .collect()
    }

    /// Adds the salts that a run learned.
    pub(crate) fn insert(&self, accounts: &TestAccounts, salts: Vec<AccountSalt>) {
        let mut known = self.0.lock();
        for AccountSalt { user, hash, salt, iterations } in salts {
            if user >= accounts.count() || known.salts.len() >= MOST {
                continue;
            }
            let mut name = String::new();
            accounts.name_of(user, &mut name);
            known.salts.insert(name, SaltFileEntry { hash, iterations, salt });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::AccountSource;

    fn accounts(first: u64) -> TestAccounts {
        let (prefix, password) = ("u".to_owned(), "secret".to_owned());
        let source = AccountSource::Pattern { prefix, first, count: 3, stride: 1, password };
        TestAccounts { source, domain: "a.test".to_owned() }
    }

    #[test]
    fn salts_are_looked_up_by_account_name() {
        let folder = std::env::temp_dir().join(format!("throng-salts-{}", std::process::id()));
        let book = SaltCache::read(&folder).unwrap();
        book.bind_to_domain("a.test").unwrap();
        let salt = |user| AccountSalt { user, hash: ScramHash::Sha256, salt: vec![1, 2], iterations: 4_096 };
        book.insert(&accounts(0), vec![salt(1), salt(2), salt(9)]);
        book.write(&folder).unwrap();
        let again = SaltCache::read(&folder).unwrap();
        assert_eq!(again.for_accounts(&accounts(0)), [salt(1), salt(2)]);
        // `accounts(1)` starts at u1.
        assert_eq!(again.for_accounts(&accounts(1)), [salt(0), salt(1)]);
        assert!(again.bind_to_domain("b.test").unwrap_err().to_string().contains("belong to a.test"));
        std::fs::write(&folder, "no").unwrap();
        assert!(SaltCache::read(&folder).unwrap_err().to_string().contains("is not a salt file"));
        std::fs::remove_file(&folder).unwrap();
    }
}
