//! Reads of a login, in memory.

use jid::JidRef;

use super::{MemoryState, MemoryStore, ready};
use crate::logins::judge;
use crate::{AccountSecrets, AddressId, Login, LoginAttempt, Logins, ProofFn, StoreError, StoreFuture};

impl MemoryState {
    fn secrets(&self, account: JidRef<'_>) -> Option<AccountSecrets> {
        self.account(account).map(|(id, entry)| AccountSecrets {
            id,
            revision: entry.revision,
            credentials: entry.credentials.to_vec(),
            disabled: entry.disabled,
            tokens: entry.tokens.clone(),
        })
    }

    fn login(&self, account: AddressId, revision: u64) -> Result<Option<Login>, StoreError> {
        let entry = self.accounts.get(&account).filter(|entry| entry.revision == revision);
        let Some(entry) = entry else { return Ok(None) };
        Ok(Some(Login {
            disabled: entry.disabled,
            roster: super::roster::whole(entry)?,
            roster_version: entry.version,
            offline_messages: u32::try_from(entry.offline.len()).unwrap_or(u32::MAX),
            blocklist: entry.blocklist.clone(),
            photo: entry.photo,
        }))
    }
}

impl Logins for MemoryStore {
    fn secrets(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<AccountSecrets>> {
        ready(Ok(self.state.lock().secrets(account)))
    }

    fn login(&self, account: AddressId, revision: u64) -> StoreFuture<'_, Option<Login>> {
        ready(self.state.lock().login(account, revision))
    }

    fn prove(&self, account: JidRef<'_>, proof: ProofFn) -> StoreFuture<'_, Option<LoginAttempt>> {
        let secrets = self.state.lock().secrets(account);
        // Without the lock: a proof may take long.
        let right = match judge(proof, secrets.as_ref()) {
            Ok(right) => right,
            Err(error) => return ready(Err(error)),
        };
        ready(Ok(secrets.map(|secrets| {
            let read = right && !secrets.disabled;
            let login = read.then(|| self.state.lock().login(secrets.id, secrets.revision));
            LoginAttempt { secrets, login }
        })))
    }
}
