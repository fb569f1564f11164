//! What a node remembers of directed presence that sessions on other nodes have sent to users here (RFC 6121, section 4.6.3): in memory,
//! bounded by account and in all.
//!
//! An entry ends when the recipient receives `unavailable` here, when the session broadcasts `unavailable`, when its node is lost, and
//! when its account has had no session on any node for a minute: the recipient may have received `unavailable` on another node.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use base::lock::LeafMutex;
use cluster::{AddressNumber, NodeId};
use jid::{Jid, JidRef};

/// Maximum octets of all entries.
const MAX_OCTETS: usize = 16 << 20;
/// Maximum octets of the entries of one account's sessions. The oldest are displaced by further ones.
const MAX_OCTETS_OF_ACCOUNT: usize = 128 << 10;
/// Octets that one entry occupies besides the addresses.
const ENTRY_OCTETS: usize = 256;
/// Accounts that a sweep looks at.
const ACCOUNTS_PER_SWEEP: usize = 256;
/// Seconds without a session after which the entries of an account end. A node that is lost is handled earlier.
const UNCLAIMED_SECONDS: u32 = 60;

/// Directed presence of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotedPresence {
    /// Full address of the session.
    pub(super) from: Jid,
    /// Number of its account.
    pub(super) number: Option<AddressNumber>,
    pub(super) to: Jid,
    /// The node of the session.
    pub(super) node: NodeId,
}

impl NotedPresence {
    fn octets(&self) -> usize {
        ENTRY_OCTETS + self.from.as_str().len() + self.to.as_str().len()
    }
}

/// Entries of an account's sessions.
#[derive(Default)]
struct NotedOfAccount {
    /// In the order in which they were made.
    entries: Vec<NotedPresence>,
    octets: usize,
    /// Second of the node's clock since which the account has no session, as far as it was looked for.
    unclaimed_since: Option<u32>,
}

impl NotedOfAccount {
    /// Removes entries and returns them.
    fn take(&mut self, select: impl Fn(&NotedPresence) -> bool) -> Vec<NotedPresence> {
        let taken: Vec<NotedPresence> = self.entries.extract_if(.., |entry| select(entry)).collect();
        self.octets -= taken.iter().map(NotedPresence::octets).sum::<usize>();
        taken
    }
}

#[derive(Default)]
struct NotedByAccount {
    /// By bare address; none is empty.
    accounts: BTreeMap<Jid, NotedOfAccount>,
    octets: usize,
    /// The last account that a sweep has looked at.
    swept_through: Option<Jid>,
}

impl NotedByAccount {
    /// Removes entries of an account and returns them.
    fn take_of(&mut self, account: &Jid, select: impl Fn(&NotedPresence) -> bool) -> Vec<NotedPresence> {
        let Some(noted) = self.accounts.get_mut(account) else { return Vec::new() };
        let before = noted.octets;
        let taken = noted.take(select);
        self.octets -= before - noted.octets;
        if noted.entries.is_empty() {
            self.accounts.remove(account);
        }
        taken
    }
}

/// Directed presence that sessions on other nodes have sent to users here.
#[derive(Default)]
pub(super) struct DirectedPresenceFromPeers(LeafMutex<NotedByAccount>);

impl DirectedPresenceFromPeers {
    /// Remembers the presence. The latest node of the session counts: it may move. What does not fit displaces the oldest of the same
    /// account: an account cannot displace that of others.
    pub(super) fn note(&self, new: NotedPresence) {
        let account = new.from.as_ref().bare().to_jid();
        let mut guard = self.0.lock();
        let all = &mut *guard;
        let mut noted = all.accounts.remove(&account).unwrap_or_default();
        all.octets -= noted.octets;
        noted.unclaimed_since = None;
        let known = noted.entries.iter_mut().find(|entry| (&entry.from, &entry.to) == (&new.from, &new.to));
        if let Some(known) = known {
            *known = new;
        } else {
            let octets = new.octets();
            let limit = MAX_OCTETS_OF_ACCOUNT.min(MAX_OCTETS - all.octets);
            let mut oldest = 0;
            while octets <= limit
                && noted.octets + octets > limit
                && let Some(entry) = noted.entries.get(oldest)
            {
                noted.octets -= entry.octets();
                oldest += 1;
            }
            noted.entries.drain(..oldest);
            if noted.octets + octets <= limit {
                noted.octets += octets;
                noted.entries.push(new);
            }
        }
        all.octets += noted.octets;
        if !noted.entries.is_empty() {
            all.accounts.insert(account, noted);
        }
    }

    /// The recipient has received `unavailable`, from whichever node.
    pub(super) fn forget(&self, from: JidRef<'_>, to: JidRef<'_>) {
        self.forget_of(from, |recipient| recipient == to);
    }

    /// The session has broadcast `unavailable` to this account.
    pub(super) fn forget_account(&self, from: JidRef<'_>, account: JidRef<'_>) {
        self.forget_of(from, |recipient| recipient.bare() == account);
    }

    /// The session has broadcast `unavailable`.
    pub(super) fn forget_session(&self, from: JidRef<'_>) {
        self.forget_of(from, |_| true);
    }

    fn forget_of(&self, from: JidRef<'_>, select: impl Fn(JidRef<'_>) -> bool) {
        let mut all = self.0.lock();
        if !all.accounts.is_empty() {
            let gone = |entry: &NotedPresence| entry.from.as_ref() == from && select(entry.to.as_ref());
            drop(all.take_of(&from.bare().to_jid(), gone));
        }
    }

    /// The bare addresses of accounts with entries for which `select` is true.
    pub(super) fn accounts(&self, select: impl Fn(&Jid) -> bool) -> Vec<Jid> {
        self.0.lock().accounts.keys().filter(|account| select(account)).cloned().collect()
    }

    /// Removes and returns the entries of sessions on a node, and of these accounts. Those of one session follow each other.
    pub(super) fn take_of(&self, node: Option<NodeId>, accounts: &HashSet<Jid>) -> Vec<NotedPresence> {
        let mut taken = Vec::new();
        let mut guard = self.0.lock();
        let all = &mut *guard;
        all.accounts.retain(|account, noted| {
            let is_whole = accounts.contains(account);
            let mut of_account = noted.take(|entry| is_whole || Some(entry.node) == node);
            of_account.sort_by(|one, other| one.from.cmp(&other.from));
            taken.append(&mut of_account);
            !noted.entries.is_empty()
        });
        all.octets -= taken.iter().map(NotedPresence::octets).sum::<usize>();
        taken
    }

    /// The next accounts of which a sweep must find out whether they have sessions.
    pub(super) fn next_swept(&self) -> Vec<Jid> {
        let mut all = self.0.lock();
        let after = all.swept_through.take().map_or(Bound::Unbounded, Bound::Excluded);
        let next = all.accounts.range((after, Bound::Unbounded)).map(|(account, _)| account.clone());
        let next: Vec<Jid> = next.take(ACCOUNTS_PER_SWEEP).collect();
        all.swept_through = next.last().cloned();
        next
    }

    /// Whether an account has sessions on any node. Its entries are taken if it has had none for a while.
    pub(super) fn sweep_account(&self, account: &Jid, is_claimed: bool, now: u32) -> Vec<NotedPresence> {
        let mut all = self.0.lock();
        let Some(noted) = all.accounts.get_mut(account) else { return Vec::new() };
        if is_claimed {
            noted.unclaimed_since = None;
            return Vec::new();
        }
        if now.saturating_sub(*noted.unclaimed_since.get_or_insert(now)) < UNCLAIMED_SECONDS {
            return Vec::new();
        }
        all.take_of(account, |_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jid(text: &str) -> Jid {
        Jid::parse(text).unwrap()
    }

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    fn entry(on: &str, from: &str, to: &str) -> NotedPresence {
        NotedPresence { from: jid(from), number: None, to: jid(to), node: node(on) }
    }

    fn take_of(noted: &DirectedPresenceFromPeers, on: &str) -> Vec<NotedPresence> {
        noted.take_of(Some(node(on)), &HashSet::new())
    }

    fn octets(noted: &DirectedPresenceFromPeers) -> usize {
        let all = noted.0.lock();
        let entries = all.accounts.values().flat_map(|of_account| &of_account.entries);
        assert_eq!(all.octets, entries.map(NotedPresence::octets).sum::<usize>());
        assert!(all.accounts.values().all(|of_account| !of_account.entries.is_empty()));
        all.octets
    }

    #[test]
    fn directed_presence_is_remembered_until_it_is_withdrawn() {
        let noted = DirectedPresenceFromPeers::default();
        let (romeo, juliet) = (jid("romeo@x/r"), jid("juliet@x/j"));
        for on in ["a", "a", "b"] {
            noted.note(entry(on, "romeo@x/r", "juliet@x/j"));
        }
        assert!(take_of(&noted, "a").is_empty(), "it has moved");
        assert_eq!(take_of(&noted, "b"), [entry("b", "romeo@x/r", "juliet@x/j")]);
        let forgets: [&dyn Fn(); 3] = [
            &|| noted.forget(romeo.as_ref(), juliet.as_ref()),
            &|| noted.forget_account(romeo.as_ref(), juliet.as_ref().bare()),
            &|| noted.forget_session(romeo.as_ref()),
        ];
        for (position, forget) in forgets.iter().enumerate() {
            for to in ["juliet@x/j", "juliet@x", "nurse@x"] {
                noted.note(entry("a", "romeo@x/r", to));
            }
            noted.note(entry("a", "romeo@x/other", "juliet@x/j"));
            forget();
            forget();
            assert_eq!(take_of(&noted, "a").len(), [3, 2, 1][position]);
            assert_eq!(octets(&noted), 0);
        }
        noted.note(entry("a", "romeo@x/r", "juliet@x"));
        assert!(noted.take_of(Some(node("b")), &HashSet::from([jid("juliet@x")])).is_empty());
        let of_account = noted.take_of(None, &HashSet::from([jid("romeo@x")]));
        assert_eq!(of_account.len(), 1, "it may have moved");
    }

    #[test]
    fn the_entries_of_a_session_follow_each_other() {
        let noted = DirectedPresenceFromPeers::default();
        for to in ["a@x", "b@x", "c@x"] {
            ["romeo@x/1", "romeo@x/2"].iter().for_each(|from| noted.note(entry("n", from, to)));
        }
        let taken = take_of(&noted, "n");
        assert!(taken.is_sorted_by(|one, other| one.from <= other.from) && taken.len() == 6);
    }

    #[test]
    fn an_account_displaces_its_own_oldest_entries_and_none_of_others() {
        let noted = DirectedPresenceFromPeers::default();
        noted.note(entry("a", "nurse@x/n", "juliet@x"));
        let long = |number: usize| format!("juliet@x/{number:0>1000}");
        for number in 0..1_000 {
            noted.note(entry("a", "romeo@x/r", &long(number)));
        }
        let total = octets(&noted);
        assert!(total <= MAX_OCTETS_OF_ACCOUNT + 400 && total > MAX_OCTETS_OF_ACCOUNT / 2, "{total}");
        for user in 0..200 {
            for number in 0..100 {
                noted.note(entry("b", &format!("user{user}@x/r"), &long(number)));
            }
        }
        let total = octets(&noted);
        assert!(total <= MAX_OCTETS && total > MAX_OCTETS / 2, "{total}");
        let taken = take_of(&noted, "a");
        assert!(taken.contains(&entry("a", "nurse@x/n", "juliet@x")));
        assert!(taken.contains(&entry("a", "romeo@x/r", &long(999))), "the oldest were displaced");
        assert!(!taken.contains(&entry("a", "romeo@x/r", &long(0))));
    }

    #[test]
    fn entries_of_an_account_without_sessions_end() {
        let noted = DirectedPresenceFromPeers::default();
        for user in 0..300 {
            noted.note(entry("a", &format!("user{user:0>3}@x/r"), "juliet@x"));
        }
        let sizes: Vec<usize> = (0..4).map(|_| noted.next_swept().len()).collect();
        assert_eq!(sizes, [ACCOUNTS_PER_SWEEP, 44, 0, ACCOUNTS_PER_SWEEP], "it begins again");
        let [romeo, nurse] = ["user000@x", "user001@x"].map(jid);
        for (now, left) in [(10, 300), (69, 300), (70, 299)] {
            noted.sweep_account(&romeo, false, now);
            noted.sweep_account(&nurse, now > 60, now);
            assert_eq!(noted.accounts(|_| true).len(), left, "{now}");
        }
        noted.sweep_account(&nurse, false, 71);
        assert_eq!(noted.accounts(|_| true).len(), 299, "it had a session in between");
    }
}
