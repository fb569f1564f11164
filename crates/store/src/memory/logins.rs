//! Logins from memory.
use jid::JidRef;

use super::{Memory, ready};
use crate::{AddressId, Fut, Login, Logins, Secrets};

impl Logins for Memory {
    fn secrets(&self, account: JidRef<'_>) -> Fut<'_, Option<Secrets>> {
        let state = self.state.lock();
        ready(Ok(state.account(account).map(|(id, entry)| Secrets {
            id,
            credentials: entry.credentials.to_vec(),
            disabled: entry.disabled,
            tokens: entry.tokens.clone(),
        })))
    }

    fn login(&self, account: AddressId) -> Fut<'_, Option<Login>> {
        let state = self.state.lock();
        let Some(entry) = state.accounts.get(&account) else { return ready(Ok(None)) };
        ready(super::roster::whole(entry).map(|roster| {
            Some(Login {
                disabled: entry.disabled,
                roster,
                roster_version: entry.version,
                offline: u32::try_from(entry.offline.len()).unwrap_or(u32::MAX),
                blocklist: entry.blocklist.clone(),
                photo: entry.photo,
            })
        }))
    }
}
