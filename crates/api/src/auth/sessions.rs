//! Console sessions of administrators who signed in with a password: in memory, bounded, lost with the process.
//!
//! The cookie is 128 random bits; only its hash is stored, so that neither memory nor a dump contains a cookie, and
//! the time of a look-up reveals nothing. The CSRF token is stored beside it; only the page that signed in can read
//! it.
//!
//! # Pitfalls
//!
//! A session outlives the check of the password. So it ends when it is idle, when it is old, when the account is no
//! longer an administrator, and when its password changes ([`super::sign_in::is_still_valid`]).

use std::collections::HashMap;

use base::Millis;
use base::lock::LeafMutex;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jid::Jid;
use ring::digest::{SHA256, digest};

/// Sessions at a time.
const MAX_SESSIONS: usize = 256;
/// Sessions of one account at a time.
const MAX_SESSIONS_PER_ACCOUNT: usize = 16;
/// Milliseconds without a request after which a session expires.
pub(crate) const IDLE_TIMEOUT: u64 = 60 * 60 * 1000;
/// Milliseconds after which a session expires in any case.
pub(crate) const MAX_AGE: u64 = 12 * 60 * 60 * 1000;
/// Milliseconds after which the account is checked again.
const RECHECK_AFTER: u64 = 15 * 1000;

/// SHA-256.
pub(crate) type SecretHash = [u8; 32];

/// The hash of a secret with enough random bits to need no slow hash.
pub(crate) fn hash_secret(secret: &[u8]) -> SecretHash {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, secret).as_ref());
    out
}

/// 128 random bits as 22 characters that are valid in cookies, headers and URLs.
pub(crate) fn random_token() -> String {
    URL_SAFE_NO_PAD.encode(base::id::random_bytes::<16>())
}

struct SessionRecord {
    jid: Jid,
    csrf: String,
    created: Millis,
    last_used: Millis,
    /// Time of the last check of the account.
    last_checked: Millis,
    /// Hash of the stored keys at sign-in.
    credentials_hash: SecretHash,
}

/// All console sessions.
#[derive(Default)]
pub(crate) struct ConsoleSessions(LeafMutex<HashMap<SecretHash, SessionRecord>>);

/// A valid console session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsoleSession {
    pub(crate) id: SecretHash,
    pub(crate) jid: Jid,
    pub(crate) csrf: String,
    /// Milliseconds until it expires in any case.
    pub(crate) expires_in: u64,
    /// The account must be checked: its stored keys must still have this hash.
    pub(crate) recheck: Option<SecretHash>,
}

impl ConsoleSessions {
    /// Begins a session; returns the cookie and the session.
    pub(crate) fn create(&self, jid: Jid, keys: SecretHash, now: Millis) -> (String, ConsoleSession) {
        let cookie = random_token();
        let id = hash_secret(cookie.as_bytes());
        let mut all = self.0.lock();
        all.retain(|_, session| !session.is_expired(now));
        // The least recently used session is evicted.
        while all.values().filter(|s| s.jid == jid).count() >= MAX_SESSIONS_PER_ACCOUNT {
            evict_oldest(&mut all, |s| s.jid == jid);
        }
        while all.len() >= MAX_SESSIONS {
            evict_oldest(&mut all, |_| true);
        }
        let session = SessionRecord {
            jid,
            csrf: random_token(),
            created: now,
            last_used: now,
            last_checked: now,
            credentials_hash: keys,
        };
        let found = session.snapshot(id, now);
        all.insert(id, session);
        (cookie, found)
    }

    /// The session of a cookie; resets its idle timeout.
    pub(crate) fn find(&self, cookie: &[u8], now: Millis) -> Option<ConsoleSession> {
        let id = hash_secret(cookie);
        let mut all = self.0.lock();
        let session = all.get_mut(&id)?;
        if session.is_expired(now) {
            all.remove(&id);
            return None;
        }
        session.last_used = now;
        Some(session.snapshot(id, now))
    }

    /// Records that the account of a session is unchanged.
    pub(crate) fn mark_checked(&self, id: &SecretHash, now: Millis) {
        if let Some(session) = self.0.lock().get_mut(id) {
            session.last_checked = now;
        }
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: &SecretHash) {
        self.0.lock().remove(id);
    }

    /// Ends all sessions of an account.
    pub(crate) fn end_all_of(&self, jid: &Jid) {
        self.0.lock().retain(|_, session| session.jid != *jid);
    }
}

impl SessionRecord {
    fn is_expired(&self, now: Millis) -> bool {
        now.since(self.last_used) >= IDLE_TIMEOUT || now.since(self.created) >= MAX_AGE
    }

    fn snapshot(&self, id: SecretHash, now: Millis) -> ConsoleSession {
        ConsoleSession {
            id,
            jid: self.jid.clone(),
            csrf: self.csrf.clone(),
            expires_in: MAX_AGE.saturating_sub(now.since(self.created)),
            recheck: (now.since(self.last_checked) >= RECHECK_AFTER).then_some(self.credentials_hash),
        }
    }
}

fn evict_oldest(all: &mut HashMap<SecretHash, SessionRecord>, of: impl Fn(&SessionRecord) -> bool) {
    let oldest = all.iter().filter(|(_, s)| of(s)).min_by_key(|(_, s)| s.last_used).map(|(id, _)| *id);
    if let Some(id) = oldest {
        all.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jid(text: &str) -> Jid {
        Jid::parse(text).unwrap()
    }

    #[test]
    fn a_session_ends_when_idle_and_when_old() {
        let sessions = ConsoleSessions::default();
        let (cookie, _) = sessions.create(jid("a@x"), [0; 32], Millis(0));
        assert_eq!(cookie.len(), 22);
        assert!(sessions.find(cookie.as_bytes(), Millis(IDLE_TIMEOUT - 1)).is_some());
        assert!(sessions.find(cookie.as_bytes(), Millis(2 * IDLE_TIMEOUT - 2)).is_some(), "each use counts");
        assert!(sessions.find(cookie.as_bytes(), Millis(3 * IDLE_TIMEOUT - 2)).is_none());
        assert!(sessions.0.lock().is_empty());
        let (cookie, _) = sessions.create(jid("a@x"), [0; 32], Millis(0));
        let mut now = 0;
        while sessions.find(cookie.as_bytes(), Millis(now)).is_some() {
            now += IDLE_TIMEOUT / 2;
        }
        assert_eq!(now, MAX_AGE);
    }

    #[test]
    fn sessions_are_bounded_and_the_least_recently_used_is_evicted() {
        let sessions = ConsoleSessions::default();
        let (first, _) = sessions.create(jid("a@x"), [0; 32], Millis(0));
        for n in 1..=MAX_SESSIONS_PER_ACCOUNT as u64 {
            sessions.create(jid("a@x"), [0; 32], Millis(n));
        }
        assert!(sessions.find(first.as_bytes(), Millis(20)).is_none());
        assert_eq!(sessions.0.lock().len(), MAX_SESSIONS_PER_ACCOUNT);
        for n in 0..2 * MAX_SESSIONS {
            sessions.create(jid(&format!("u{n}@x")), [0; 32], Millis(30));
        }
        assert_eq!(sessions.0.lock().len(), MAX_SESSIONS);
    }

    #[test]
    fn the_account_is_rechecked_after_an_interval() {
        let sessions = ConsoleSessions::default();
        let (cookie, found) = sessions.create(jid("a@x"), [7; 32], Millis(0));
        assert_eq!(found.recheck, None);
        let found = sessions.find(cookie.as_bytes(), Millis(RECHECK_AFTER)).unwrap();
        assert_eq!(found.recheck, Some([7; 32]));
        sessions.mark_checked(&found.id, Millis(RECHECK_AFTER));
        assert_eq!(sessions.find(cookie.as_bytes(), Millis(RECHECK_AFTER + 1)).unwrap().recheck, None);
        sessions.end_all_of(&jid("b@x"));
        assert!(sessions.find(cookie.as_bytes(), Millis(RECHECK_AFTER + 1)).is_some());
        sessions.end_all_of(&jid("a@x"));
        assert!(sessions.find(cookie.as_bytes(), Millis(RECHECK_AFTER + 1)).is_none());
        for forged in ["", "x", "AAAAAAAAAAAAAAAAAAAAAA"] {
            assert!(sessions.find(forged.as_bytes(), Millis(0)).is_none());
        }
    }
}
