//! Rate limits of one session: `stanzas_per_second` and related limits. RFC 6120, section 13.12 (denial of
//! service); RFC 6121, section 11 (floods of presence and subscriptions).
//!
//! There are two reactions. Stanzas and bytes are charged after they were read; a session in debt is not read
//! until the debt is paid, so that its own connection slows it down and nothing is lost. Presence and roster
//! changes cost others more than the sender: those above their rate are refused, with the time after which to
//! retry.
//!
//! Each session has its own buckets, so several clients of a user do not slow each other down. What sessions have
//! spent when they end or lose their connection is summed for their account ([`crate::AccountRates`]) until it is refilled.
//! A session that starts or is resumed has what the sum leaves of one burst. So reconnecting does not refill a bucket,
//! however many sessions reconnect. No session starts with more debt than a single one has left, so the sum takes the
//! burst and delays nobody. In a cluster, nodes report such spending to one another ([`crate::SpentReports`]).
//!
//! Not implemented: logins (`access/src/login_throttle`), connections (`base/src/connection_limits.rs`), stanzas that others
//! send to the session (its queue is bounded).
//!
//! # Pitfalls
//!
//! Time is that of the node's sweep, in whole seconds, because the sweep also wakes throttled sessions. The
//! refill of a second arrives in one step, so that with a burst below the rate the rate could never be reached;
//! see [`bucket`].

use base::clock::Millis;
use base::token_bucket::TokenBucket;
use stanza::{ErrorType, Head, IqType, PresenceType, StanzaCondition, StanzaError, StanzaKind};
use xml::Ns;

use crate::account_rates::SpentRates;

/// Rates and bursts in pairs, 0 for none: stanzas and bytes by the second; broadcasts of presence, directed presence and
/// roster changes by the minute.
pub type RateLimits = [u32; 10];

/// The buckets of one session; absent while no limit is set.
#[derive(Clone)]
pub struct SessionRates {
    /// The limits for which the buckets were made.
    configured_limits: RateLimits,
    stanzas: TokenBucket,
    pub(crate) bytes: TokenBucket,
    broadcasts: TokenBucket,
    directed: TokenBucket,
    roster: TokenBucket,
    /// The levels that the buckets would have without what was spent since it was last summed for the account. `None`:
    /// full.
    unspent: Option<Box<Levels>>,
    /// Second at which the session started or was resumed; 0 if its buckets were created later.
    started: u32,
}

/// Seconds after its start in which a session is charged for what earlier ones had spent on another node: that node's report
/// may come after the start.
const LATE_REPORT_SECONDS: u32 = 2;

/// Buckets in the order of `SessionRates::buckets`.
pub(crate) type Levels = [TokenBucket; 5];

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

impl SessionRates {
    /// Full buckets.
    pub fn new(configured_limits: RateLimits) -> SessionRates {
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
            started: 0,
        }
    }

    /// The limits for which the buckets were made.
    pub fn limits(&self) -> &RateLimits {
        &self.configured_limits
    }

    /// The buckets of a session that starts, with what earlier sessions of its account have left.
    pub fn starting(configured_limits: RateLimits, spent: Option<SpentRates>, now: u32) -> SessionRates {
        let mut rates = SessionRates { started: now, ..SessionRates::new(configured_limits) };
        let Some(spent) = spent else { return rates };
        for (at, (own, shared)) in rates.buckets_mut().into_iter().zip(&spent.shared).enumerate() {
            own.carry_shared(shared, &spent.single(at), to_millis(now));
        }
        rates.unspent = Some(Box::new(rates.buckets().map(|bucket| *bucket)));
        rates
    }

    /// Charges what sessions on another node had spent, if this one has just started: it would have started with less. As at
    /// a start, no debt but that of a single session delays it. It has not spent this itself.
    pub fn charge_late_report(&mut self, spent: &SpentRates, now: u32) {
        if now.saturating_sub(self.started) > LATE_REPORT_SECONDS {
            return;
        }
        let millis = to_millis(now);
        let before = self.buckets().map(|bucket| *bucket);
        for (at, (own, shared)) in self.buckets_mut().into_iter().zip(&spent.shared).enumerate() {
            let mut rest = *own;
            rest.charge_difference(&shared.filled(), shared, millis);
            own.carry_shared(&rest, &spent.single(at), millis);
        }
        let after = self.buckets().map(|bucket| *bucket);
        let mut unspent =
            self.unspent.take().unwrap_or_else(|| Box::new(after.map(|bucket| bucket.filled())));
        for (unspent, (before, after)) in unspent.iter_mut().zip(before.iter().zip(&after)) {
            unspent.charge_difference(before, after, millis);
        }
        self.unspent = Some(unspent);
    }

    /// What was spent since the start, or since the last call.
    pub fn take_spent(&mut self, now: u32) -> SpentRates {
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

    pub(crate) fn buckets(&self) -> [&TokenBucket; 5] {
        [&self.stanzas, &self.bytes, &self.broadcasts, &self.directed, &self.roster]
    }

    fn buckets_mut(&mut self) -> [&mut TokenBucket; 5] {
        [&mut self.stanzas, &mut self.bytes, &mut self.broadcasts, &mut self.directed, &mut self.roster]
    }

    /// The second at which all buckets are full.
    pub fn full_at(&self, now: u32) -> u32 {
        full_at(self.buckets(), now)
    }

    /// Follows changed limits: the buckets keep the levels of the earlier ones.
    pub fn carry(&mut self, earlier: &SessionRates, now: u32) {
        let mut unspent = self.buckets().map(|bucket| *bucket);
        self.started = self.started.max(earlier.started);
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

pub(crate) fn full_at(buckets: [&TokenBucket; 5], now: u32) -> u32 {
    let wait = buckets.map(|bucket| bucket.full_ms(to_millis(now))).into_iter().max();
    now.saturating_add(seconds(wait.unwrap_or_default()))
}

fn seconds(ms: u64) -> u32 {
    u32::try_from(ms.div_ceil(1000)).unwrap_or(u32::MAX)
}

pub(crate) fn to_millis(second: u32) -> Millis {
    Millis(u64::from(second) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stanza::Element;

    fn head(text: &str) -> Head {
        let scope = xml::NamespaceContext::client();
        match Element::read(text.as_bytes(), &scope, &xml::Limits::CEILING) {
            Ok(Element::Stanza(head)) => head,
            _ => panic!("{text}"),
        }
    }

    fn count(rates: &mut SessionRates, text: &str, now: u32) -> Option<&'static str> {
        rates.charge_stanza(&head(text), text.as_bytes(), now).err().map(|(class, _)| class)
    }

    #[test]
    fn a_rate_debt_is_repaid_second_by_second() {
        let mut rates = SessionRates::new([0, 0, 100, 300, 0, 0, 0, 0, 0, 0]);
        assert_eq!(rates.charge_bytes(300, 5), None);
        assert_eq!(rates.charge_bytes(250, 5), Some(("bytes", 8)), "250 bytes at 100 a second");
        assert_eq!(rates.charge_bytes(40, 8), None);
    }

    #[test]
    fn a_burst_below_the_rate_is_the_rate() {
        let mut rates = SessionRates::new([10, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        for _ in 0..10 {
            assert_eq!(count(&mut rates, "<message/>", 1), None);
            assert_eq!(rates.charge_bytes(10, 1), None);
        }
        count(&mut rates, "<message/>", 1);
        assert_eq!(rates.charge_bytes(10, 1), Some(("stanzas", 2)));
    }

    #[test]
    fn each_class_has_its_own_bucket_and_rfc_6121_4_6_unavailable_presence_always_passes() {
        let mut rates = SessionRates::new([0, 0, 0, 0, 6, 1, 60, 1, 60, 2]);
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
        let mut rates = SessionRates::new([0, 0, 0, 0, 2, 1, 0, 0, 0, 0]);
        assert_eq!(count(&mut rates, "<presence/>", 1), None);
        let (_, error) = rates.charge_stanza(&head("<presence/>"), b"<presence/>", 11).unwrap_err();
        assert_eq!((error.condition, error.kind), (StanzaCondition::PolicyViolation, ErrorType::Wait));
        assert_eq!(error.text.as_deref(), Some("too many presence changes; try again in 20 s"));
    }
}
