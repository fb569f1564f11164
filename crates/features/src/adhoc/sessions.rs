//! What clients have said so far: command sessions (XEP-0050 section 3.3), bounded in number and time.
//!
//! An id carries a code over whom it was given to, so an id that was never given out and one that is over are told apart
//! without remembering either.
//!
//! The trap: a session is taken out while its command runs and put back if it fails, so that one submission cannot be
//! carried out twice.

use std::collections::HashMap;

use jid::Jid;
use parking_lot::Mutex;
use ring::hmac;
use stanza::{StanzaCondition, StanzaError};
use throng_core::command::{Command, Given};

use super::specific;

/// Sessions of a host.
const MOST: usize = 1024;
/// Sessions of one account; a further one takes the place of the oldest.
const MOST_OF_ACCOUNT: usize = 8;
/// Seconds from the last request.
const LIFE: u32 = 600;

/// Between whom a session is, and about what.
#[derive(Clone)]
pub(super) struct Pair {
    /// The requester's full address.
    pub(super) from: Jid,
    /// The address that was asked.
    pub(super) to: Jid,
    /// The command.
    pub(super) command: &'static Command,
}

/// What was said so far.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) stage: u8,
    pub(super) given: Given,
}

struct Kept {
    session: Session,
    owner: Jid,
    until: u32,
}

/// All sessions of a host.
pub(super) struct Sessions {
    key: hmac::Key,
    kept: Mutex<HashMap<String, Kept>>,
}

impl Sessions {
    pub(super) fn new() -> Sessions {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &base::id::random_bytes::<32>());
        Sessions { key, kept: Mutex::default() }
    }

    /// A new id.
    pub(super) fn id(&self, pair: &Pair) -> String {
        let random = base::id::random_id();
        let code = self.code(&random, pair);
        format!("{random}{code}")
    }

    fn code(&self, random: &str, pair: &Pair) -> String {
        let text = [random, pair.from.as_str(), pair.to.as_str(), pair.command.node].join("\n");
        let tag = hmac::sign(&self.key, text.as_bytes());
        tag.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Takes the session of this id out.
    ///
    /// # Errors
    /// `bad-sessionid` for an id that was never given to this requester for this, `session-expired` for one that is over.
    pub(super) fn take(&self, id: &str, pair: &Pair, now: u32) -> Result<Session, StanzaError> {
        let random = id.get(..16).unwrap_or_default();
        let right = self.code(random, pair);
        if !base::secret::constant_time_eq(id.get(16..).unwrap_or_default().as_bytes(), right.as_bytes()) {
            return Err(specific(StanzaCondition::BadRequest, "bad-sessionid"));
        }
        match self.kept.lock().remove(id) {
            Some(kept) if now < kept.until => Ok(kept.session),
            _ => Err(specific(StanzaCondition::NotAllowed, "session-expired")),
        }
    }

    /// Keeps a session for its next request.
    pub(super) fn put(&self, id: &str, pair: &Pair, session: Session, now: u32) {
        let owner = pair.from.bare().to_jid();
        let mut kept = self.kept.lock();
        kept.retain(|_, k| now < k.until);
        let oldest = |kept: &HashMap<String, Kept>, of: &dyn Fn(&Kept) -> bool| {
            kept.iter().filter(|(_, k)| of(k)).min_by_key(|(_, k)| k.until).map(|(id, _)| id.clone())
        };
        let own = |k: &Kept| k.owner == owner;
        let gone = if kept.values().filter(|k| own(k)).count() >= MOST_OF_ACCOUNT {
            oldest(&kept, &own)
        } else if kept.len() >= MOST {
            oldest(&kept, &|_| true)
        } else {
            None
        };
        if let Some(gone) = gone {
            kept.remove(&gone);
        }
        kept.insert(id.to_owned(), Kept { session, owner, until: now.saturating_add(LIFE) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static COMMAND: Command = Command { name: "a", node: "a", ..Command::EMPTY };
    static OTHER: Command = Command { name: "b", node: "b", ..Command::EMPTY };

    fn pair(from: &str) -> Pair {
        Pair { from: Jid::parse(from).unwrap(), to: Jid::parse("x").unwrap(), command: &COMMAND }
    }
    fn session() -> Session {
        Session { stage: 0, given: Given::default() }
    }
    fn refused(sessions: &Sessions, id: &str, pair: &Pair, now: u32) -> &'static str {
        sessions.take(id, pair, now).expect_err("a refusal").application.unwrap().1
    }

    #[test]
    fn an_id_counts_only_for_whom_it_was_given() {
        let (sessions, admin) = (Sessions::new(), pair("admin@x/a"));
        let id = sessions.id(&admin);
        sessions.put(&id, &admin, session(), 0);
        let moved = Pair { to: Jid::parse("admin@x").unwrap(), ..admin.clone() };
        let about = Pair { command: &OTHER, ..admin.clone() };
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
    fn sessions_end_by_themselves_and_are_few() {
        let sessions = Sessions::new();
        let admin = pair("admin@x/a");
        let id = sessions.id(&admin);
        sessions.put(&id, &admin, session(), 0);
        assert_eq!(refused(&sessions, &id, &admin, LIFE), "session-expired");
        let ids: Vec<String> = (0..20).map(|_| sessions.id(&admin)).collect();
        for (second, id) in ids.iter().enumerate() {
            sessions.put(id, &admin, session(), second as u32);
        }
        assert_eq!(sessions.kept.lock().len(), MOST_OF_ACCOUNT);
        assert!(sessions.take(&ids[19], &admin, 20).is_ok());
        for n in 0..2 * MOST {
            let user = pair(&format!("u{n}@x/a"));
            sessions.put(&sessions.id(&user), &user, session(), 21);
        }
        assert_eq!(sessions.kept.lock().len(), MOST);
    }
}
