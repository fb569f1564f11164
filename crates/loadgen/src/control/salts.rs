//! The salts that a server uses for its accounts (RFC 5802), kept from one run to the next.
//!
//! A server gives the salt of an account to everybody who asks; it is no secret. Known salts let workers derive their keys
//! before the start. The file is JSON: a domain, and for each account the hash function, the salt and the iterations.
//!
//! Left out: keys, which are as good as passwords. Trap: a salt can be another one by now; then its key was derived in
//! vain, and the login derives the right one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::message::Salt;
use crate::plan::Accounts;
use crate::sasl::Hash;

/// Accounts that are kept at most: so many keys as a large plan has users, in some tens of megabytes.
const MOST: usize = 1_000_000;

/// The salts that are known. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book(Arc<Mutex<Known>>);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Known {
    domain: String,
    salts: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    hash: Hash,
    iterations: u32,
    salt: Vec<u8>,
}

impl Book {
    /// Reads a file; one that is not there is an empty book.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("--salts {shown} cannot be read")),
        };
        let known: Known = serde_json::from_str(&text)
            .with_context(|| format!("--salts {shown} is not a salt file; choose another name"))?;
        Ok(Self(Arc::new(Mutex::new(known))))
    }

    /// The book is about accounts of this domain; what it knows of another one must not be mixed with it.
    pub(crate) fn for_domain(&self, domain: &str) -> Result<()> {
        let mut known = self.0.lock();
        ensure!(
            known.salts.is_empty() || known.domain == domain,
            "the salts are those of {} and the plan is about {domain}; give another file to --salts",
            known.domain
        );
        domain.clone_into(&mut known.domain);
        Ok(())
    }

    /// Writes the file.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(&*self.0.lock()).context("salts cannot be written as JSON")?;
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
    }

    /// What is known of a plan's accounts, by their numbers.
    pub(crate) fn of(&self, accounts: &Accounts) -> Vec<Salt> {
        let known = self.0.lock();
        let mut name = String::new();
        (0..accounts.count())
            .filter_map(|user| {
                name.clear();
                accounts.name_of(user, &mut name);
                let Entry { hash, iterations, salt } = known.salts.get(&name)?.clone();
                Some(Salt { user, hash, salt, iterations })
            })
            .collect()
    }

    /// Adds what a run has learned.
    pub(crate) fn learn(&self, accounts: &Accounts, salts: Vec<Salt>) {
        let mut known = self.0.lock();
        for Salt { user, hash, salt, iterations } in salts {
            if user >= accounts.count() || known.salts.len() >= MOST {
                continue;
            }
            let mut name = String::new();
            accounts.name_of(user, &mut name);
            known.salts.insert(name, Entry { hash, iterations, salt });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::AccountSource;

    fn accounts(first: u64) -> Accounts {
        let (prefix, password) = ("u".to_owned(), "secret".to_owned());
        let source = AccountSource::Pattern { prefix, first, count: 3, stride: 1, password };
        Accounts { source, domain: "a.test".to_owned() }
    }

    #[test]
    fn salts_are_found_again_by_the_name_of_the_account() {
        let folder = std::env::temp_dir().join(format!("throng-salts-{}", std::process::id()));
        let book = Book::read(&folder).unwrap();
        book.for_domain("a.test").unwrap();
        let salt = |user| Salt { user, hash: Hash::Sha256, salt: vec![1, 2], iterations: 4_096 };
        book.learn(&accounts(0), vec![salt(1), salt(2), salt(9)]);
        book.write(&folder).unwrap();
        let again = Book::read(&folder).unwrap();
        assert_eq!(again.of(&accounts(0)), [salt(1), salt(2)]);
        // u1 is the first of those that begin there.
        assert_eq!(again.of(&accounts(1)), [salt(0), salt(1)]);
        assert!(again.for_domain("b.test").unwrap_err().to_string().contains("those of a.test"));
        std::fs::write(&folder, "no").unwrap();
        assert!(Book::read(&folder).unwrap_err().to_string().contains("is not a salt file"));
        std::fs::remove_file(&folder).unwrap();
    }
}
