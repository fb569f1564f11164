//! Logins from memory.
use jid::JidRef;

use super::{Memory, ready};
use crate::{Fut, Login, Logins};

impl Logins for Memory {
    fn login(&self, account: JidRef<'_>) -> Fut<'_, Option<Login>> {
        let state = self.state.lock();
        ready(Ok(state.account(account).map(|(id, entry)| Login {
            id,
            credentials: entry.credentials.to_vec(),
            disabled: entry.disabled,
            roster: entry.roster.values().cloned().collect(),
            roster_version: entry.version,
            offline: u32::try_from(entry.offline.len()).unwrap_or(u32::MAX),
            blocklist: entry.blocklist.clone(),
            tokens: entry.tokens.clone(),
            photo: entry.photo,
        })))
    }
}
