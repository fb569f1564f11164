//! Console sessions: who signed in with a password. In memory, bounded, gone with the process.
//!
//! The cookie is 128 random bits; what is kept is its hash, so that nothing in memory or in a dump is a cookie, and looking
//! one up tells nothing by its time. Beside it stands the CSRF token, which only the page that signed in can read.
//!
//! The trap: a session is a standing proof. It ends when it is idle, when it is old, when the account is no administrator
//! any more, and when its password changed ([`super::signin::still`]).

use std::collections::HashMap;

use base::Millis;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jid::Jid;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

/// Sessions at a time.
const MOST: usize = 256;
/// Of one account.
const MOST_OF_ONE: usize = 16;
/// Milliseconds without a request after which a session is over.
pub(crate) const IDLE: u64 = 60 * 60 * 1000;
/// Milliseconds after which it is over in any case.
pub(crate) const AGE: u64 = 12 * 60 * 60 * 1000;
/// Milliseconds after which the account is looked up again.
const FRESH: u64 = 15 * 1000;

/// SHA-256.
pub(crate) type Hash = [u8; 32];

/// The hash of a secret that has enough random bits to need no slow one.
pub(crate) fn hash(secret: &[u8]) -> Hash {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, secret).as_ref());
    out
}

/// 128 random bits as 22 characters that cookies, headers and URLs take.
pub(crate) fn random() -> String {
    URL_SAFE_NO_PAD.encode(base::id::random_bytes::<16>())
}

struct Session {
    jid: Jid,
    csrf: String,
    began: Millis,
    used: Millis,
    /// When the account was last looked up.
    checked: Millis,
    /// Of the stored keys as they were then.
    keys: Hash,
}

/// All console sessions.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<Hash, Session>>);

/// What a cookie stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) id: Hash,
    pub(crate) jid: Jid,
    pub(crate) csrf: String,
    /// Milliseconds until it is over in any case.
    pub(crate) left: u64,
    /// The account is to be looked up: its stored keys must still have this hash.
    pub(crate) check: Option<Hash>,
}

impl Sessions {
    /// Begins one; the cookie.
    pub(crate) fn begin(&self, jid: Jid, keys: Hash, now: Millis) -> (String, Found) {
        let cookie = random();
        let id = hash(cookie.as_bytes());
        let mut all = self.0.lock();
        all.retain(|_, session| !session.is_over(now));
        // The one that was not used for longest makes room.
        while all.values().filter(|s| s.jid == jid).count() >= MOST_OF_ONE {
            drop_oldest(&mut all, |s| s.jid == jid);
        }
        while all.len() >= MOST {
            drop_oldest(&mut all, |_| true);
        }
        let session = Session { jid, csrf: random(), began: now, used: now, checked: now, keys };
        let found = session.found(id, now);
        all.insert(id, session);
        (cookie, found)
    }
    /// The session of a cookie; it counts as used.
    pub(crate) fn find(&self, cookie: &[u8], now: Millis) -> Option<Found> {
        let id = hash(cookie);
        let mut all = self.0.lock();
        let session = all.get_mut(&id)?;
        if session.is_over(now) {
            all.remove(&id);
            return None;
        }
        session.used = now;
        Some(session.found(id, now))
    }
    /// The account of a session is still what it was.
    pub(crate) fn checked(&self, id: &Hash, now: Millis) {
        if let Some(session) = self.0.lock().get_mut(id) {
            session.checked = now;
        }
    }
    /// Ends one.
    pub(crate) fn end(&self, id: &Hash) {
        self.0.lock().remove(id);
    }
    /// Ends all of an account.
    pub(crate) fn end_of(&self, jid: &Jid) {
        self.0.lock().retain(|_, session| session.jid != *jid);
    }
}

impl Session {
    fn is_over(&self, now: Millis) -> bool {
        now.since(self.used) >= IDLE || now.since(self.began) >= AGE
    }
    fn found(&self, id: Hash, now: Millis) -> Found {
        Found {
            id,
            jid: self.jid.clone(),
            csrf: self.csrf.clone(),
            left: AGE.saturating_sub(now.since(self.began)),
            check: (now.since(self.checked) >= FRESH).then_some(self.keys),
        }
    }
}

fn drop_oldest(all: &mut HashMap<Hash, Session>, of: impl Fn(&Session) -> bool) {
    let oldest = all.iter().filter(|(_, s)| of(s)).min_by_key(|(_, s)| s.used).map(|(id, _)| *id);
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
        let sessions = Sessions::default();
        let (cookie, _) = sessions.begin(jid("a@x"), [0; 32], Millis(0));
        assert_eq!(cookie.len(), 22);
        assert!(sessions.find(cookie.as_bytes(), Millis(IDLE - 1)).is_some());
        assert!(sessions.find(cookie.as_bytes(), Millis(2 * IDLE - 2)).is_some(), "each use counts");
        assert!(sessions.find(cookie.as_bytes(), Millis(3 * IDLE - 2)).is_none());
        assert!(sessions.0.lock().is_empty());
        let (cookie, _) = sessions.begin(jid("a@x"), [0; 32], Millis(0));
        let mut now = 0;
        while sessions.find(cookie.as_bytes(), Millis(now)).is_some() {
            now += IDLE / 2;
        }
        assert_eq!(now, AGE);
    }

    #[test]
    fn sessions_are_bounded_and_the_least_used_goes() {
        let sessions = Sessions::default();
        let (first, _) = sessions.begin(jid("a@x"), [0; 32], Millis(0));
        for n in 1..=MOST_OF_ONE as u64 {
            sessions.begin(jid("a@x"), [0; 32], Millis(n));
        }
        assert!(sessions.find(first.as_bytes(), Millis(20)).is_none());
        assert_eq!(sessions.0.lock().len(), MOST_OF_ONE);
        for n in 0..2 * MOST {
            sessions.begin(jid(&format!("u{n}@x")), [0; 32], Millis(30));
        }
        assert_eq!(sessions.0.lock().len(), MOST);
    }

    #[test]
    fn the_account_is_looked_up_now_and_then() {
        let sessions = Sessions::default();
        let (cookie, found) = sessions.begin(jid("a@x"), [7; 32], Millis(0));
        assert_eq!(found.check, None);
        let found = sessions.find(cookie.as_bytes(), Millis(FRESH)).unwrap();
        assert_eq!(found.check, Some([7; 32]));
        sessions.checked(&found.id, Millis(FRESH));
        assert_eq!(sessions.find(cookie.as_bytes(), Millis(FRESH + 1)).unwrap().check, None);
        sessions.end_of(&jid("b@x"));
        assert!(sessions.find(cookie.as_bytes(), Millis(FRESH + 1)).is_some());
        sessions.end_of(&jid("a@x"));
        assert!(sessions.find(cookie.as_bytes(), Millis(FRESH + 1)).is_none());
        for forged in ["", "x", "AAAAAAAAAAAAAAAAAAAAAA"] {
            assert!(sessions.find(forged.as_bytes(), Millis(0)).is_none());
        }
    }
}
