//! Command sessions: the values that clients have submitted so far (XEP-0050 1.3.0, section 3.3), bounded in number
//! and time.
//!
//! An id contains a keyed code over the requester and the command. So an id that was never issued and an expired one
//! can be distinguished without storing either.
//!
//! # Pitfalls
//!
//! A session is removed while its command runs and inserted again on failure, so that one submission cannot be
//! executed twice.

use std::collections::HashMap;

use base::lock::LeafMutex;
use jid::Jid;
use ring::hmac;
use stanza::{StanzaCondition, StanzaError};
use throng_commands::{Command, RawArguments};

use super::adhoc_error;

/// Limit of sessions per host.
const MAX_SESSIONS: usize = 1024;
/// Limit of sessions per account; a further one replaces the oldest.
const MAX_SESSIONS_PER_ACCOUNT: usize = 8;
/// Lifetime in seconds, counted from the last request.
const SESSION_SECONDS: u32 = 600;

/// Parties and command of a session.
#[derive(Clone)]
pub(super) struct SessionBinding {
    /// The requester's full address.
    pub(super) from: Jid,
    /// The requested address.
    pub(super) to: Jid,
    /// The command of the session.
    pub(super) command: &'static Command,
}

/// Values that were submitted so far.
#[derive(Clone, Debug)]
pub(super) struct CommandSession {
    pub(super) stage: u8,
    pub(super) given: RawArguments,
}

struct StoredSession {
    session: CommandSession,
    owner: Jid,
    expires: u32,
}

/// All sessions of a host.
pub(super) struct CommandSessions {
    key: hmac::Key,
    by_id: LeafMutex<HashMap<String, StoredSession>>,
}

impl CommandSessions {
    pub(super) fn new() -> CommandSessions {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &base::id::random_bytes::<32>());
        CommandSessions { key, by_id: LeafMutex::default() }
    }

    /// Creates an id.
    pub(super) fn new_id(&self, pair: &SessionBinding) -> String {
        let random = base::id::random_id();
        let code = self.mac(&random, pair);
        format!("{random}{code}")
    }

    fn mac(&self, random: &str, pair: &SessionBinding) -> String {
        let text = [random, pair.from.as_str(), pair.to.as_str(), pair.command.node].join("\n");
        let tag = hmac::sign(&self.key, text.as_bytes());
        tag.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Removes the session with this id and returns it.
    ///
    /// # Errors
    ///
    /// `bad-sessionid` for an id that was never issued to this requester for this command, `session-expired` for an
    /// expired one.
    pub(super) fn take(
        &self,
        id: &str,
        pair: &SessionBinding,
        now: u32,
    ) -> Result<CommandSession, StanzaError> {
        let random = id.get(..16).unwrap_or_default();
        let expected_mac = self.mac(random, pair);
        if !base::secret::constant_time_eq(
            id.get(16..).unwrap_or_default().as_bytes(),
            expected_mac.as_bytes(),
        ) {
            return Err(adhoc_error(StanzaCondition::BadRequest, "bad-sessionid"));
        }
        match self.by_id.lock().remove(id) {
            Some(stored) if now < stored.expires => Ok(stored.session),
            _ => Err(adhoc_error(StanzaCondition::NotAllowed, "session-expired")),
        }
    }

    /// Stores a session for its next request.
    pub(super) fn insert(&self, id: &str, pair: &SessionBinding, session: CommandSession, now: u32) {
        let owner = pair.from.bare().to_jid();
        let mut stored = self.by_id.lock();
        stored.retain(|_, k| now < k.expires);
        let oldest = |stored: &HashMap<String, StoredSession>, of: &dyn Fn(&StoredSession) -> bool| {
            stored.iter().filter(|(_, k)| of(k)).min_by_key(|(_, k)| k.expires).map(|(id, _)| id.clone())
        };
        let own = |k: &StoredSession| k.owner == owner;
        let gone = if stored.values().filter(|k| own(k)).count() >= MAX_SESSIONS_PER_ACCOUNT {
            oldest(&stored, &own)
        } else if stored.len() >= MAX_SESSIONS {
            oldest(&stored, &|_| true)
        } else {
            None
        };
        if let Some(gone) = gone {
            stored.remove(&gone);
        }
        stored.insert(
            id.to_owned(),
            StoredSession { session, owner, expires: now.saturating_add(SESSION_SECONDS) },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static COMMAND: Command = Command { name: "a", node: "a", ..Command::EMPTY };
    static OTHER: Command = Command { name: "b", node: "b", ..Command::EMPTY };

    fn pair(from: &str) -> SessionBinding {
        SessionBinding { from: Jid::parse(from).unwrap(), to: Jid::parse("x").unwrap(), command: &COMMAND }
    }

    fn session() -> CommandSession {
        CommandSession { stage: 0, given: RawArguments::default() }
    }

    fn refused(sessions: &CommandSessions, id: &str, pair: &SessionBinding, now: u32) -> String {
        let error = sessions.take(id, pair, now).expect_err("a refusal");
        let element = error.application_condition.expect("a specific condition");
        element.trim_start_matches('<').split(' ').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn an_id_is_valid_only_for_its_session_binding() {
        let (sessions, admin) = (CommandSessions::new(), pair("admin@x/a"));
        let id = sessions.new_id(&admin);
        sessions.insert(&id, &admin, session(), 0);
        let moved = SessionBinding { to: Jid::parse("admin@x").unwrap(), ..admin.clone() };
        let about = SessionBinding { command: &OTHER, ..admin.clone() };
        for wrong in [pair("admin@x/b"), pair("romeo@x/a"), moved, about] {
            assert_eq!(refused(&sessions, &id, &wrong, 1), "bad-sessionid");
        }
        for forged in ["", "x", "é", &id[1..], &format!("{id}0"), &"a".repeat(4096)] {
            assert_eq!(refused(&sessions, forged, &admin, 1), "bad-sessionid");
        }
        assert!(sessions.take(&id, &admin, 1).is_ok());
        assert_eq!(refused(&sessions, &id, &admin, 1), "session-expired", "it is taken only once");
    }

    #[test]
    fn sessions_expire_and_are_bounded() {
        let sessions = CommandSessions::new();
        let admin = pair("admin@x/a");
        let id = sessions.new_id(&admin);
        sessions.insert(&id, &admin, session(), 0);
        assert_eq!(refused(&sessions, &id, &admin, SESSION_SECONDS), "session-expired");
        let ids: Vec<String> = (0..20).map(|_| sessions.new_id(&admin)).collect();
        for (second, id) in ids.iter().enumerate() {
            sessions.insert(id, &admin, session(), second as u32);
        }
        assert_eq!(sessions.by_id.lock().len(), MAX_SESSIONS_PER_ACCOUNT);
        assert!(sessions.take(&ids[19], &admin, 20).is_ok());
        for n in 0..2 * MAX_SESSIONS {
            let user = pair(&format!("u{n}@x/a"));
            sessions.insert(&sessions.new_id(&user), &user, session(), 21);
        }
        assert_eq!(sessions.by_id.lock().len(), MAX_SESSIONS);
    }
}
