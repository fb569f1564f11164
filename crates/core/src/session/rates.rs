//! Rates of sessions: when they get their token buckets, and when what they have spent is summed for their account. The
//! buckets are those of the crate `stanza-rates`.
//!
//! Not implemented: accounts of SASL ANONYMOUS, which are new with each connection, so that the connection limits apply.
//!
//! # Pitfalls
//!
//! Time is that of the node's sweep, in whole seconds, because the sweep also wakes throttled sessions.

use stanza_rates::{SessionRates, SpentReports};

use super::{Session, flags};
use crate::node::Node;

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
        self.set_rates(session, local, true);
    }

    /// Adjusts the buckets of a session to the limits, which a reload may change. Buckets that it does not have are
    /// created full: those of a session with a connection are only removed when they are full, and what its siblings
    /// have spent is theirs. `local`: it connects from loopback.
    pub fn follow_rates(&self, session: &Session, local: bool) {
        self.set_rates(session, local, false);
    }

    /// `starts`: buckets that are created lack what earlier sessions have spent.
    fn set_rates(&self, session: &Session, local: bool, starts: bool) {
        let wanted = self.limits().session_rates(local);
        let on = wanted.iter().step_by(2).any(|rate| *rate != 0);
        let configured_limits = session.rates(|rates| *rates.limits());
        match configured_limits {
            None if !on => return,
            Some(configured_limits) if on && configured_limits == wanted => return,
            _ => {}
        }
        let (id, now) = (session.account.id, self.seconds());
        session.with(|state| {
            let earlier = state.rates.take();
            if on {
                let mut rates = match starts && earlier.is_none() {
                    true => SessionRates::starting(wanted, self.account_rates.find(id, now), now),
                    false => SessionRates::new(wanted),
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
            if let Some(reports) = self.extensions.get::<SpentReports>() {
                reports.note(session.account.id, session.account.hash, &spent, now);
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::NodeLimits;

    #[test]
    fn the_default_rates_let_a_client_join_hundreds_of_rooms_and_slow_a_flood_down() {
        let mut rates = SessionRates::new(NodeLimits::with_rates().session_rates(false));
        let count = |rates: &mut SessionRates, text: &str, size: usize| {
            let scope = xml::NamespaceContext::client();
            let Ok(stanza::Element::Stanza(head)) =
                stanza::Element::read(text.as_bytes(), &scope, &NodeLimits::default().stanza())
            else {
                panic!("{text}");
            };
            let refused = rates.charge_stanza(&head, text.as_bytes(), 1).is_err();
            (refused, rates.charge_bytes(size, 1))
        };
        // A client that logs in: roster, presence, 300 rooms, a page of history for each.
        for n in 0..600 {
            let text = if n % 2 == 0 {
                "<presence to='a@b/c'/>"
            } else {
                "<iq type='get' id='1'><x xmlns='urn:x'/></iq>"
            };
            assert_eq!(count(&mut rates, text, 500), (false, None));
        }
        for _ in 0..1_000 {
            count(&mut rates, "<message to='a@b'/>", 20);
        }
        assert!(rates.debt(1).is_some(), "a flood is read more slowly");
    }
}
