//! How fast one session may send: the limits of `stanzas_per_second` and its siblings. RFC 6120 section 13.12 (denial of
//! service), RFC 6121 section 11 (floods of presence and of subscriptions).
//!
//! Two answers. Stanzas and bytes are charged for after they were read; who is in debt is not read from until it is
//! paid, so that the client's own connection slows it down and nothing is lost. Presence and roster changes cost others
//! more than the sender: what is over their rate is refused, with the time after which to try again.
//!
//! Left out: logins (`negotiate`), connections (`net::Gate`), what others send to the session (its queue is bounded).
//!
//! The trap: time is that of the node's sweep, whole seconds, because the sweep is also what wakes a session that is not
//! read from. What a second gives comes at once, so a burst below the rate would never let the rate be reached; see
//! [`meter`].

use std::cell::RefCell;

use base::clock::Millis;
use base::limit::Meter;
use stanza::{ErrorType, Head, IqType, Kind, PresenceType, StanzaCondition, StanzaError};
use throng_core::Limits;
use xml::Ns;

/// The buckets of one session; absent while no limit is on.
pub(crate) struct Rates {
    /// The limits that the buckets were made for.
    made_for: [u32; 10],
    stanzas: Meter,
    bytes: Meter,
    broadcasts: Meter,
    directed: Meter,
    roster: Meter,
    /// Second at which reading goes on; 0 while it does.
    until: u32,
}

/// What something costs in a bucket by the minute: the bucket flows by the second.
const BY_THE_MINUTE: u32 = 60;

/// A bucket; one without a rate lets everything pass.
fn meter(rate: u32, burst: u32, cost: u32, default: u32) -> Meter {
    if rate == 0 {
        return Meter::unlimited();
    }
    let burst = if burst == 0 { rate.saturating_mul(default) } else { burst.saturating_mul(cost) };
    Meter::new(rate, burst.max(rate).max(cost))
}

fn numbers(limits: &Limits, local: bool) -> [u32; 10] {
    let mut numbers = [
        limits.stanzas_per_second,
        limits.stanzas_burst,
        limits.bytes_per_second,
        limits.bytes_burst,
        limits.broadcasts_per_minute,
        limits.broadcasts_burst,
        limits.directed_per_minute,
        limits.directed_burst,
        limits.roster_changes_per_minute,
        limits.roster_changes_burst,
    ];
    for (pair, holds) in numbers.chunks_exact_mut(2).zip(limits.rates_on_loopback) {
        if local && !holds {
            pair.fill(0);
        }
    }
    numbers
}

impl Rates {
    /// Keeps the buckets of a session in step with the limits, which a reload may change. `local`: it comes from loopback.
    pub(crate) fn follow(rates: &mut Option<Box<RefCell<Rates>>>, limits: &Limits, local: bool) {
        let wanted = numbers(limits, local);
        let on = wanted.iter().step_by(2).any(|rate| *rate != 0);
        match rates {
            None if !on => {}
            Some(_) if !on => *rates = None,
            Some(made) if made.borrow().made_for == wanted => {}
            _ => *rates = Some(Box::new(RefCell::new(Rates::new(wanted)))),
        }
    }

    fn new(made_for: [u32; 10]) -> Rates {
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
        ] = made_for;
        Rates {
            made_for,
            stanzas: meter(stanzas, stanzas_burst, 1, 10),
            bytes: meter(bytes, bytes_burst, 1, 10),
            broadcasts: meter(all, all_burst, BY_THE_MINUTE, BY_THE_MINUTE),
            directed: meter(one, one_burst, BY_THE_MINUTE, BY_THE_MINUTE),
            roster: meter(roster, roster_burst, BY_THE_MINUTE, BY_THE_MINUTE),
            until: 0,
        }
    }

    /// Counts a stanza. An error if its kind has used up its rate: it must not be carried out then.
    pub(crate) fn stanza(
        &mut self,
        head: &Head,
        bytes: &[u8],
        now: u32,
    ) -> Result<(), (&'static str, StanzaError)> {
        self.stanzas.charge(1, at(now));
        let (class, what, meter) = match head.kind {
            Kind::Presence(PresenceType::Available) if head.to(bytes).is_none() => {
                ("presence", "changes of presence", &mut self.broadcasts)
            }
            // RFC 6121 sections 4.5 and 4.6: unavailable presence must be routed, to everybody or to one. It counts as a
            // stanza like any other.
            Kind::Presence(PresenceType::Unavailable | PresenceType::Error) => return Ok(()),
            Kind::Presence(t) if t.is_subscription() => ("roster", "subscriptions", &mut self.roster),
            Kind::Presence(_) => ("directed", "directed presence", &mut self.directed),
            Kind::Iq(IqType::Set) if head.first.is_some_and(|f| f.ns == Some(Ns::Roster)) => {
                ("roster", "roster changes", &mut self.roster)
            }
            _ => return Ok(()),
        };
        if meter.take(BY_THE_MINUTE, at(now)) {
            return Ok(());
        }
        let seconds = meter.wait_ms(BY_THE_MINUTE, at(now)).div_ceil(1000);
        let error = StanzaError::new(StanzaCondition::PolicyViolation).kind(ErrorType::Wait);
        Err((class, error.text(format!("too many {what}; try again in {seconds} s"))))
    }

    /// Counts what was read. The class that is in debt if reading must stop now.
    pub(crate) fn read(&mut self, bytes: usize, now: u32) -> Option<&'static str> {
        self.bytes.charge(u32::try_from(bytes).unwrap_or(u32::MAX), at(now));
        let (stanzas, bytes) = (self.stanzas.wait_ms(0, at(now)), self.bytes.wait_ms(0, at(now)));
        let wait = u32::try_from(stanzas.max(bytes).div_ceil(1000)).unwrap_or(u32::MAX);
        if wait == 0 {
            return None;
        }
        self.until = now.saturating_add(wait).max(1);
        Some(if stanzas > bytes { "stanzas" } else { "bytes" })
    }

    /// The second until which nothing is read; 0 if it may be now.
    pub(crate) fn until(&self) -> u32 {
        self.until
    }
    /// Reading goes on.
    pub(crate) fn resume(&mut self) {
        self.until = 0;
    }
}

fn at(second: u32) -> Millis {
    Millis(u64::from(second) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stanza::Element;

    fn rates(set: impl FnOnce(&mut Limits)) -> Rates {
        let mut limits = Limits::default();
        set(&mut limits);
        Rates::new(numbers(&limits, false))
    }
    fn head(text: &str) -> Head {
        let scope = xml::Scope::client();
        match Element::read(text.as_bytes(), &scope, &Limits::default().stanza()) {
            Ok(Element::Stanza(head)) => head,
            _ => panic!("{text}"),
        }
    }
    fn count(rates: &mut Rates, text: &str, now: u32) -> Option<&'static str> {
        rates.stanza(&head(text), text.as_bytes(), now).err().map(|(class, _)| class)
    }

    #[test]
    fn nothing_is_kept_while_no_limit_is_on() {
        let mut none = None;
        Rates::follow(&mut none, &Limits { stanzas_burst: 5, ..Limits::default() }, false);
        assert!(none.is_none());
        for local in [false, true] {
            Rates::follow(&mut none, &Limits { bytes_per_second: 5, ..Limits::default() }, local);
            assert!(none.is_some(), "a rate that was written holds for everybody");
            Rates::follow(&mut none, &Limits::default(), local);
            assert!(none.is_none());
        }
    }

    #[test]
    fn the_default_rates_hold_but_for_loopback() {
        let mut rates = None;
        Rates::follow(&mut rates, &Limits::with_rates(), true);
        assert!(rates.is_none());
        Rates::follow(&mut rates, &Limits::with_rates(), false);
        let mut rates = rates.unwrap().into_inner();
        // A client that comes: roster, presence, 300 rooms, a page of history each.
        for n in 0..600 {
            let text = if n % 2 == 0 {
                "<presence to='a@b/c'/>"
            } else {
                "<iq type='get' id='1'><x xmlns='urn:x'/></iq>"
            };
            assert_eq!(count(&mut rates, text, 1), None);
            assert_eq!(rates.read(500, 1), None);
        }
        for _ in 0..1_000 {
            count(&mut rates, "<message to='a@b'/>", 1);
            rates.read(20, 1);
        }
        assert!(rates.until() > 1, "a flood is read more slowly");
    }

    #[test]
    fn a_debt_is_paid_by_the_second() {
        let mut rates = rates(|l| {
            l.bytes_per_second = 100;
            l.bytes_burst = 300;
        });
        assert_eq!(rates.read(300, 5), None);
        assert_eq!(rates.read(250, 5), Some("bytes"));
        assert_eq!(rates.until(), 8, "250 bytes at 100 a second");
        rates.resume();
        assert_eq!(rates.read(40, 8), None);
    }

    #[test]
    fn a_burst_below_the_rate_is_the_rate() {
        let mut rates = rates(|l| {
            l.stanzas_per_second = 10;
            l.stanzas_burst = 1;
        });
        for _ in 0..10 {
            assert_eq!(count(&mut rates, "<message/>", 1), None);
            assert_eq!(rates.read(10, 1), None);
        }
        count(&mut rates, "<message/>", 1);
        assert_eq!(rates.read(10, 1), Some("stanzas"));
        assert_eq!(rates.until(), 2);
    }

    #[test]
    fn each_class_has_its_own_bucket_and_rfc_6121_4_6_unavailable_presence_always_passes() {
        let mut rates = rates(|l| {
            (l.broadcasts_per_minute, l.broadcasts_burst) = (6, 1);
            (l.directed_per_minute, l.directed_burst) = (60, 1);
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
    fn a_refusal_says_when_to_try_again() {
        let mut rates = rates(|l| (l.broadcasts_per_minute, l.broadcasts_burst) = (2, 1));
        assert_eq!(count(&mut rates, "<presence/>", 1), None);
        let (_, error) = rates.stanza(&head("<presence/>"), b"<presence/>", 11).unwrap_err();
        assert_eq!((error.condition, error.kind), (StanzaCondition::PolicyViolation, ErrorType::Wait));
        assert_eq!(error.text.as_deref(), Some("too many changes of presence; try again in 20 s"));
    }
}
