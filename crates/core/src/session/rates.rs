//! Rate limits of one session: `stanzas_per_second` and related limits. RFC 6120, section 13.12 (denial of
//! service); RFC 6121, section 11 (floods of presence and subscriptions).
//!
//! There are two reactions. Stanzas and bytes are charged after they were read; a session in debt is not read
//! until the debt is paid, so that its own connection slows it down and nothing is lost. Presence and roster
//! changes cost others more than the sender: those above their rate are refused, with the time after which to
//! retry.
//!
//! Each session has its own buckets, so several clients of a user do not slow each other down. What sessions have
//! spent when they end or lose their connection is summed for their account ([`AccountRates`]) until it is refilled.
//! A session that starts or is resumed has what the sum leaves of one burst. So reconnecting does not refill a bucket,
//! however many sessions reconnect. No session starts with more debt than a single one has left, so the sum takes the
//! burst and delays nobody.
//!
//! Not implemented: logins (`negotiate`), connections (`net`), stanzas that others send to the session (its
//! queue is bounded); accounts of SASL ANONYMOUS, which are new with each connection, so that the connection
//! limits apply.
//!
//! # Pitfalls
//!
//! Time is that of the node's sweep, in whole seconds, because the sweep also wakes throttled sessions. The
//! refill of a second arrives in one step, so that with a burst below the rate the rate could never be reached;
//! see [`bucket`].

use std::hash::{BuildHasher, RandomState};

use base::clock::Millis;
use base::lock::LeafMutex;
use base::token_bucket::TokenBucket;
use hashbrown::HashMap;
use stanza::{ErrorType, Head, IqType, PresenceType, StanzaCondition, StanzaError, StanzaKind};
use store::AddressId;
use xml::Ns;

use super::{Session, flags};
use crate::limits::NodeLimits;
use crate::node::Node;

/// The buckets of one session; absent while no limit is set.
#[derive(Clone)]
pub struct SessionRates {
    /// The limits for which the buckets were made.
    configured_limits: [u32; 10],
    stanzas: TokenBucket,
    bytes: TokenBucket,
    broadcasts: TokenBucket,
    directed: TokenBucket,
    roster: TokenBucket,
    /// The levels that the buckets would have without what was spent since it was last summed for the account. `None`:
    /// full.
    unspent: Option<Box<Levels>>,
}

/// Buckets in the order of [`SessionRates::buckets`].
type Levels = [TokenBucket; 5];

/// Cost of an event in a bucket with a rate by the minute: buckets refill by the second.
const PER_MINUTE_COST: u32 = 60;

/// A bucket; without a rate it admits everything.
fn bucket(rate: u32, burst: u32, cost: u32, default: u32) -> TokenBucket {
    if rate == 0 {
        return TokenBucket::unlimited();
    }
    let burst = if burst == 0 { rate.saturating_mul(default) } else { burst.saturating_mul(cost) };
    TokenBucket::new(rate, burst.max(rate).max(cost))
}

fn limit_values(limits: &NodeLimits, local: bool) -> [u32; 10] {
    let mut numbers = [
        limits.stanzas_per_second,
        limits.stanzas_burst,
        limits.bytes_per_second,
        limits.bytes_burst,
        limits.presence_broadcasts_per_minute,
        limits.presence_broadcasts_burst,
        limits.directed_presence_per_minute,
        limits.directed_presence_burst,
        limits.roster_changes_per_minute,
        limits.roster_changes_burst,
    ];
    for (pair, applies) in numbers.chunks_exact_mut(2).zip(limits.rates_on_loopback) {
        if local && !applies {
            pair.fill(0);
        }
    }
    numbers
}

impl SessionRates {
    fn new(configured_limits: [u32; 10]) -> SessionRates {
        let [
            stanzas,
            stanzas_burst,
            bytes,
            bytes_burst,
            all,
            all_burst,
            one,
            one_burst,
            roster,
            roster_burst,
        ] = configured_limits;
        SessionRates {
            configured_limits,
            stanzas: bucket(stanzas, stanzas_burst, 1, 10),
            bytes: bucket(bytes, bytes_burst, 1, 10),
            broadcasts: bucket(all, all_burst, PER_MINUTE_COST, PER_MINUTE_COST),
            directed: bucket(one, one_burst, PER_MINUTE_COST, PER_MINUTE_COST),
            roster: bucket(roster, roster_burst, PER_MINUTE_COST, PER_MINUTE_COST),
            unspent: None,
        }
    }

    /// The buckets of a session that starts, with what earlier sessions of its account have left.
    fn starting(configured_limits: [u32; 10], spent: &SpentRates, now: u32) -> SessionRates {
        let mut rates = SessionRates::new(configured_limits);
        for (at, (own, shared)) in rates.buckets_mut().into_iter().zip(&spent.shared).enumerate() {
            // Only stanzas and bytes are charged after the fact, so only these can be in debt.
            let single = spent.lowest.get(at).copied().unwrap_or_else(|| shared.filled());
            own.carry_shared(shared, &single, to_millis(now));
        }
        rates.unspent = Some(Box::new(rates.buckets().map(|bucket| *bucket)));
        rates
    }

    /// What was spent since the start, or since the last call.
    fn take_spent(&mut self, now: u32) -> SpentRates {
        let left = self.buckets().map(|bucket| *bucket);
        let full = left.map(|bucket| bucket.filled());
        let before = self.unspent.replace(Box::new(left)).map_or(full, |unspent| *unspent);
        let mut shared = full;
        for ((shared, before), left) in shared.iter_mut().zip(&before).zip(&left) {
            shared.charge_difference(before, left, to_millis(now));
        }
        SpentRates { shared, lowest: [self.stanzas, self.bytes] }
    }

    /// Charges a stanza. An error means that its kind has exhausted its rate: it must not be executed.
    ///
    /// # Errors
    /// The class, and the error for the client.
    pub fn charge_stanza(
        &mut self,
        head: &Head,
        bytes: &[u8],
        now: u32,
    ) -> Result<(), (&'static str, StanzaError)> {
        self.stanzas.charge(1, to_millis(now));
        let (class, what, bucket) = match head.kind {
            StanzaKind::Presence(PresenceType::Available) if head.to(bytes).is_none() => {
                ("presence", "presence changes", &mut self.broadcasts)
            }
            // RFC 6121, sections 4.5 and 4.6: unavailable presence must be routed, broadcast or directed. It
            // only counts as a stanza.
            StanzaKind::Presence(PresenceType::Unavailable | PresenceType::Error) => return Ok(()),
            StanzaKind::Presence(t) if t.is_subscription() => ("roster", "subscriptions", &mut self.roster),
            StanzaKind::Presence(_) => ("directed", "directed presence", &mut self.directed),
            StanzaKind::Iq(IqType::Set) if head.first_child.is_some_and(|f| f.ns == Some(Ns::Roster)) => {
                ("roster", "roster changes", &mut self.roster)
            }
            _ => return Ok(()),
        };
        if bucket.try_take(PER_MINUTE_COST, to_millis(now)) {
            return Ok(());
        }
        let seconds = bucket.millis_until(PER_MINUTE_COST, to_millis(now)).div_ceil(1000);
        let error = StanzaError::new(StanzaCondition::PolicyViolation).kind(ErrorType::Wait);
        Err((class, error.text(format!("too many {what}; try again in {seconds} s"))))
    }

    /// Charges bytes that were read; returns [`SessionRates::debt`].
    pub fn charge_bytes(&mut self, bytes: usize, now: u32) -> Option<(&'static str, u32)> {
        self.bytes.charge(u32::try_from(bytes).unwrap_or(u32::MAX), to_millis(now));
        self.debt(now)
    }

    /// The class in debt, and the second until which nothing may be read.
    pub fn debt(&self, now: u32) -> Option<(&'static str, u32)> {
        let (stanzas, bytes) =
            (self.stanzas.millis_until(0, to_millis(now)), self.bytes.millis_until(0, to_millis(now)));
        let wait = seconds(stanzas.max(bytes));
        let class = if stanzas > bytes { "stanzas" } else { "bytes" };
        (wait > 0).then(|| (class, now.saturating_add(wait).max(1)))
    }

    fn buckets(&self) -> [&TokenBucket; 5] {
        [&self.stanzas, &self.bytes, &self.broadcasts, &self.directed, &self.roster]
    }

    fn buckets_mut(&mut self) -> [&mut TokenBucket; 5] {
        [&mut self.stanzas, &mut self.bytes, &mut self.broadcasts, &mut self.directed, &mut self.roster]
    }

    /// The second at which all buckets are full.
    fn full_at(&self, now: u32) -> u32 {
        full_at(self.buckets(), now)
    }

    /// Follows changed limits: the buckets keep the levels of the earlier ones.
    fn carry(&mut self, earlier: &SessionRates, now: u32) {
        let mut unspent = self.buckets().map(|bucket| *bucket);
        for (own, earlier) in self.buckets_mut().into_iter().zip(earlier.buckets()) {
            own.carry(earlier, to_millis(now));
        }
        if let Some(earlier) = &earlier.unspent {
            for (own, earlier) in unspent.iter_mut().zip(earlier.iter()) {
                own.carry(earlier, to_millis(now));
            }
            self.unspent = Some(Box::new(unspent));
        }
    }
}

fn full_at(buckets: [&TokenBucket; 5], now: u32) -> u32 {
    let wait = buckets.map(|bucket| bucket.full_ms(to_millis(now))).into_iter().max();
    now.saturating_add(seconds(wait.unwrap_or_default()))
}

fn seconds(ms: u64) -> u32 {
    u32::try_from(ms.div_ceil(1000)).unwrap_or(u32::MAX)
}

const SHARDS: usize = 16;
/// Accounts stored in a shard. With [`MAX_ENTRY_BYTES`] 4.3 MB in total, whatever the accounts are called.
const ACCOUNTS: usize = 1_024;
/// Bytes of a stored account: the boxed buckets, and two slots of the map, which is at least half full.
const MAX_ENTRY_BYTES: usize =
    size_of::<AccountSpending>() + 2 * (size_of::<(AddressId, Box<AccountSpending>)>() + 1);

const _: () = assert!(SHARDS * ACCOUNTS * MAX_ENTRY_BYTES <= 4_300_000);

/// What the sessions of an account have spent.
#[derive(Clone, Debug)]
struct SpentRates {
    /// The sum.
    shared: Levels,
    /// The lowest level of a single session: stanzas and bytes.
    lowest: [TokenBucket; 2],
}

impl SpentRates {
    /// Adds what was spent earlier. The limits are those of `self`, which are the present ones.
    fn add(&mut self, earlier: &SpentRates, now: u32) {
        for (sum, earlier) in self.shared.iter_mut().zip(&earlier.shared) {
            sum.charge_difference(&earlier.filled(), earlier, to_millis(now));
        }
        for (lowest, earlier) in self.lowest.iter_mut().zip(&earlier.lowest) {
            lowest.carry(earlier, to_millis(now));
        }
    }

    fn full_at(&self, now: u32) -> u32 {
        full_at(self.shared.each_ref(), now)
    }
}

/// What sessions had spent when they ended or lost their connection, summed for their account until it is refilled.
///
/// An account is known by its number, which takes no more room for a long name. Without room, the account that would be
/// refilled first is removed.
#[derive(Default)]
pub struct AccountRates {
    hasher: RandomState,
    shards: [LeafMutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    accounts: HashMap<AddressId, Box<AccountSpending>>,
    /// Second at which refilled accounts were last removed.
    swept: u32,
}

struct AccountSpending {
    spent: SpentRates,
    full_at: u32,
}

impl Shard {
    fn sweep(&mut self, now: u32) {
        if self.swept != now {
            self.swept = now;
            self.accounts.retain(|_, stored| stored.full_at > now);
            if self.accounts.is_empty() {
                self.accounts = HashMap::new();
            }
        }
    }
}

impl AccountRates {
    fn shard(&self, account: AddressId) -> &LeafMutex<Shard> {
        #[allow(clippy::cast_possible_truncation, reason = "any bits of a hash do")]
        let at = self.hasher.hash_one(account) as usize % SHARDS;
        &self.shards[at]
    }

    /// Adds what a session has spent to the sum of its account.
    fn keep(&self, account: AddressId, mut spent: SpentRates, now: u32) {
        let full_at = spent.full_at(now);
        if full_at <= now {
            return;
        }
        let mut shard = self.shard(account).lock();
        shard.sweep(now);
        if let Some(stored) = shard.accounts.get_mut(&account) {
            spent.add(&stored.spent, now);
            **stored = AccountSpending { full_at: spent.full_at(now), spent };
            return;
        }
        if shard.accounts.len() >= ACCOUNTS {
            let first = shard.accounts.iter().min_by_key(|(_, stored)| stored.full_at);
            let Some((first, _)) = first.filter(|(_, stored)| stored.full_at < full_at) else { return };
            let first = *first;
            shard.accounts.remove(&first);
        }
        shard.accounts.insert(account, Box::new(AccountSpending { spent, full_at }));
    }

    fn find(&self, account: AddressId, now: u32) -> Option<SpentRates> {
        let shard = self.shard(account).lock();
        let stored = shard.accounts.get(&account).filter(|stored| stored.full_at > now)?;
        Some(stored.spent.clone())
    }
}

impl Session {
    /// Charges or reads the buckets; `None` if the session has none.
    pub fn rates<T>(&self, f: impl FnOnce(&mut SessionRates) -> T) -> Option<T> {
        self.with(|state| state.rates.as_deref_mut().map(f))
    }

    /// Removes full buckets, which are created again when needed.
    pub fn drop_full_rates(&self, now: u32) {
        self.with(|state| {
            if state.rates.as_deref().is_some_and(|rates| rates.full_at(now) <= now) {
                state.rates = None;
            }
        });
    }
}

impl Node {
    /// Gives a session that starts or is resumed its buckets, with what earlier sessions of its account have left.
    /// Buckets that it has are kept. `local`: it connects from loopback.
    pub fn start_rates(&self, session: &Session, local: bool) {
        let has_rates = session.rates(|_| ()).is_some();
        let spent =
            if has_rates { None } else { self.account_rates.find(session.account.id, self.seconds()) };
        self.set_rates(session, local, spent);
    }

    /// Adjusts the buckets of a session to the limits, which a reload may change. Buckets that it does not have are
    /// created full: those of a session with a connection are only removed when they are full, and what its siblings
    /// have spent is theirs. `local`: it connects from loopback.
    pub fn follow_rates(&self, session: &Session, local: bool) {
        self.set_rates(session, local, None);
    }

    /// `spent`: what the buckets lack, if they are created.
    fn set_rates(&self, session: &Session, local: bool, spent: Option<SpentRates>) {
        let wanted = limit_values(&self.limits(), local);
        let on = wanted.iter().step_by(2).any(|rate| *rate != 0);
        let configured_limits = session.rates(|rates| rates.configured_limits);
        match configured_limits {
            None if !on => return,
            Some(configured_limits) if on && configured_limits == wanted => return,
            _ => {}
        }
        let now = self.seconds();
        session.with(|state| {
            let earlier = state.rates.take();
            if on {
                let mut rates = match &spent {
                    Some(spent) => SessionRates::starting(wanted, spent, now),
                    None => SessionRates::new(wanted),
                };
                if let Some(earlier) = earlier {
                    rates.carry(&earlier, now);
                }
                state.rates = Some(Box::new(rates));
            }
        });
    }

    /// Stores for the account what this session has spent since the last call.
    pub fn keep_rates(&self, session: &Session) {
        let now = self.seconds();
        // The account of an anonymous user ends with its session.
        if !session.flags.has(flags::EPHEMERAL)
            && let Some(spent) = session.rates(|rates| rates.take_spent(now))
        {
            self.account_rates.keep(session.account.id, spent, now);
        }
    }

    /// As [`Node::keep_rates`], for a session without a connection: if it is resumed, it starts like another session,
    /// or the sessions of an account could all be refilled while they are detached.
    pub(crate) fn keep_detached_rates(&self, session: &Session) {
        self.keep_rates(session);
        session.with(|state| drop(state.rates.take()));
    }
}

fn to_millis(second: u32) -> Millis {
    Millis(u64::from(second) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stanza::Element;

    fn rates(set: impl FnOnce(&mut NodeLimits)) -> SessionRates {
        let mut limits = NodeLimits::default();
        set(&mut limits);
        SessionRates::new(limit_values(&limits, false))
    }

    fn head(text: &str) -> Head {
        let scope = xml::NamespaceContext::client();
        match Element::read(text.as_bytes(), &scope, &NodeLimits::default().stanza()) {
            Ok(Element::Stanza(head)) => head,
            _ => panic!("{text}"),
        }
    }

    fn count(rates: &mut SessionRates, text: &str, now: u32) -> Option<&'static str> {
        rates.charge_stanza(&head(text), text.as_bytes(), now).err().map(|(class, _)| class)
    }

    #[test]
    fn a_rate_debt_is_repaid_second_by_second() {
        let mut rates = rates(|l| {
            l.bytes_per_second = 100;
            l.bytes_burst = 300;
        });
        assert_eq!(rates.charge_bytes(300, 5), None);
        assert_eq!(rates.charge_bytes(250, 5), Some(("bytes", 8)), "250 bytes at 100 a second");
        assert_eq!(rates.charge_bytes(40, 8), None);
    }

    #[test]
    fn a_burst_below_the_rate_is_the_rate() {
        let mut rates = rates(|l| {
            l.stanzas_per_second = 10;
            l.stanzas_burst = 1;
        });
        for _ in 0..10 {
            assert_eq!(count(&mut rates, "<message/>", 1), None);
            assert_eq!(rates.charge_bytes(10, 1), None);
        }
        count(&mut rates, "<message/>", 1);
        assert_eq!(rates.charge_bytes(10, 1), Some(("stanzas", 2)));
    }

    #[test]
    fn each_class_has_its_own_bucket_and_rfc_6121_4_6_unavailable_presence_always_passes() {
        let mut rates = rates(|l| {
            (l.presence_broadcasts_per_minute, l.presence_broadcasts_burst) = (6, 1);
            (l.directed_presence_per_minute, l.directed_presence_burst) = (60, 1);
            (l.roster_changes_per_minute, l.roster_changes_burst) = (60, 2);
        });
        let set = "<iq type='set' id='1'><query xmlns='jabber:iq:roster'><item jid='a@b'/></query></iq>";
        let get = "<iq type='get' id='1'><query xmlns='jabber:iq:roster'/></iq>";
        for (text, now, refused) in [
            ("<presence/>", 1, None),
            ("<presence><show>away</show></presence>", 1, Some("presence")),
            ("<presence type='unavailable'/>", 1, None),
            ("<presence/>", 10, Some("presence")),
            ("<presence/>", 11, None),
            ("<presence to='a@b'/>", 11, None),
            ("<presence to='a@b'/>", 11, Some("directed")),
            ("<presence type='unavailable' to='a@b'/>", 11, None),
            ("<presence to='a@b'/>", 12, None),
            ("<presence type='subscribe' to='a@b'/>", 12, None),
            (set, 12, None),
            (set, 12, Some("roster")),
            (get, 12, None),
            ("<message to='a@b'/>", 12, None),
            (set, 13, None),
        ] {
            assert_eq!(count(&mut rates, text, now), refused, "{text} at {now}");
        }
    }

    #[test]
    fn a_refusal_contains_the_retry_delay() {
        let mut rates = rates(|l| (l.presence_broadcasts_per_minute, l.presence_broadcasts_burst) = (2, 1));
        assert_eq!(count(&mut rates, "<presence/>", 1), None);
        let (_, error) = rates.charge_stanza(&head("<presence/>"), b"<presence/>", 11).unwrap_err();
        assert_eq!((error.condition, error.kind), (StanzaCondition::PolicyViolation, ErrorType::Wait));
        assert_eq!(error.text.as_deref(), Some("too many presence changes; try again in 20 s"));
    }

    #[test]
    fn the_default_rates_let_a_client_join_hundreds_of_rooms_and_slow_a_flood_down() {
        let mut rates = SessionRates::new(limit_values(&NodeLimits::with_rates(), false));
        // A client that logs in: roster, presence, 300 rooms, a page of history for each.
        for n in 0..600 {
            let text = if n % 2 == 0 {
                "<presence to='a@b/c'/>"
            } else {
                "<iq type='get' id='1'><x xmlns='urn:x'/></iq>"
            };
            assert_eq!(count(&mut rates, text, 1), None);
            assert_eq!(rates.charge_bytes(500, 1), None);
        }
        for _ in 0..1_000 {
            count(&mut rates, "<message to='a@b'/>", 1);
            rates.charge_bytes(20, 1);
        }
        assert!(rates.debt(1).is_some(), "a flood is read more slowly");
    }

    fn session() -> SessionRates {
        rates(|l| (l.bytes_per_second, l.bytes_burst) = (10, 100))
    }

    fn spent(bytes: usize, now: u32) -> SpentRates {
        let mut rates = session();
        rates.charge_bytes(bytes, now);
        rates.take_spent(now)
    }

    fn account(number: usize) -> AddressId {
        AddressId(std::num::NonZeroU32::new(u32::try_from(number).unwrap() + 1).unwrap())
    }

    /// The buckets of a session that starts.
    fn start(account_rates: &AccountRates, account: AddressId, now: u32) -> SessionRates {
        let configured_limits = session().configured_limits;
        account_rates.find(account, now).map_or_else(
            || SessionRates::new(configured_limits),
            |spent| SessionRates::starting(configured_limits, &spent, now),
        )
    }

    fn left(rates: &SessionRates, now: u32) -> u32 {
        rates.bytes.available(to_millis(now))
    }

    #[test]
    fn spending_of_the_sessions_of_an_account_is_summed_until_it_is_refilled() {
        let account_rates = AccountRates::default();
        let (a, b) = (account(0), account(1));
        let left = |now| account_rates.find(a, now).map(|spent| spent.shared[1].available(to_millis(now)));
        account_rates.keep(a, spent(0, 1), 1);
        assert_eq!(left(1), None, "full buckets need no memory");
        account_rates.keep(a, spent(60, 1), 1);
        account_rates.keep(a, spent(20, 1), 1);
        assert_eq!(
            (left(1), account_rates.find(b, 1).is_none()),
            (Some(20), true),
            "the sum, and nobody else's"
        );
        assert_eq!((left(2), left(8), left(9)), (Some(30), Some(90), None));
        account_rates.keep(b, spent(1, 7), 7);
        account_rates.keep(a, spent(150, 9), 9);
        assert_eq!(start(&account_rates, a, 9).debt(9), Some(("bytes", 14)), "a debt is kept, too");
    }

    #[test]
    fn reconnecting_sessions_have_no_burst_until_the_debt_of_all_is_repaid() {
        let account_rates = AccountRates::default();
        let a = account(0);
        for _ in 0..10 {
            account_rates.keep(a, spent(100, 1), 1);
        }
        // Ten seconds refill one burst of the ten.
        for now in [1, 11, 91] {
            let rates = start(&account_rates, a, now);
            assert_eq!(
                (left(&rates, now), rates.debt(now)),
                (0, None),
                "no burst, but no debt of others either"
            );
        }
        assert_eq!(left(&start(&account_rates, a, 96), 96), 50);
        assert!(account_rates.find(a, 101).is_none());
    }

    #[test]
    fn each_byte_is_charged_to_the_account_once() {
        let account_rates = AccountRates::default();
        let a = account(0);
        account_rates.keep(a, spent(60, 1), 1);
        for _ in 0..5 {
            // What it began with was spent by another session.
            let mut rates = start(&account_rates, a, 1);
            assert_eq!(left(&rates, 1), 40);
            account_rates.keep(a, rates.take_spent(1), 1);
        }
        let mut rates = start(&account_rates, a, 2);
        rates.charge_bytes(30, 2);
        for _ in 0..5 {
            account_rates.keep(a, rates.take_spent(2), 2);
        }
        assert_eq!(left(&start(&account_rates, a, 2), 2), 20);
        // Changed limits charge nothing either.
        let mut wider = SessionRates::new(session().configured_limits.map(|limit| limit * 2));
        wider.carry(&rates, 2);
        account_rates.keep(a, wider.take_spent(2), 2);
        assert_eq!(left(&start(&account_rates, a, 2), 2), 20);
    }

    #[test]
    fn a_flood_of_accounts_uses_no_more_memory_and_does_not_evict_the_largest_debt() {
        let account_rates = AccountRates::default();
        let a = account(0);
        account_rates.keep(a, spent(5_000, 1), 1);
        for n in 0..SHARDS * ACCOUNTS * 2 {
            account_rates.keep(account(n + 1), spent(50, 1), 1);
        }
        assert!(account_rates.find(a, 1).is_some());
        let accounts = || account_rates.shards.iter().map(|shard| shard.lock().accounts.len());
        assert!(accounts().all(|count| count == ACCOUNTS));
        let capacity: usize = account_rates.shards.iter().map(|shard| shard.lock().accounts.capacity()).sum();
        assert!(capacity <= 2 * SHARDS * ACCOUNTS, "{capacity}: see MAX_ENTRY_BYTES");
        for n in 0..SHARDS * 100 {
            account_rates.keep(account(n + 1), spent(1, 60), 60);
        }
        assert!(accounts().sum::<usize>() <= SHARDS * 100 + 1, "and the memory is released");
    }
}
