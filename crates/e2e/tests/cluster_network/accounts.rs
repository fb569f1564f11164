//! Exact accounts of the messages of a case: sent, acknowledged, delivered, returned, and what contradicts the promises.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::managed_client::ManagedClient;

/// Time after a fault in which messages that wait because of it are settled.
const SETTLED_WITHIN: Duration = Duration::from_secs(2);

/// When something failed, and when it was repaired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

impl Fault {
    /// Whether a message may have been on the way, or its receipt, or its write to the database: it was delivered before the nodes have
    /// settled what waited, and its sender had no acknowledgement when something failed.
    fn may_unsettle(&self, delivered: Instant, acknowledged: Option<Instant>) -> bool {
        delivered <= self.ended + SETTLED_WITHIN && acknowledged.is_none_or(|at| at >= self.began)
    }
}

/// A delivery of a message.
struct Delivery {
    at: Instant,
    stanza_id: Option<String>,
    /// The client has acknowledged it.
    acknowledged: bool,
}

/// What became of the messages.
#[derive(Debug, Default)]
pub(crate) struct MessageAccounts {
    sent: usize,
    acknowledged: usize,
    delivered: usize,
    returned: usize,
    /// Delivered again with the same stanza-id, because the client had not acknowledged the first delivery.
    repeated: usize,
    /// Delivered again with the same stanza-id, because the sender's node did not learn of the first delivery.
    unsettled: usize,
    /// Delivered, and returned to the sender: its node did not learn of the delivery, and could not store the message.
    in_doubt: usize,
    /// Acknowledged to the sender, and neither delivered nor returned.
    pub(crate) lost: Vec<String>,
    /// Delivered again although the client had acknowledged it, or with another stanza-id.
    doubled: Vec<String>,
    /// Delivered and returned to the sender although nothing was on the way, or returned twice.
    contradictory: Vec<String>,
    /// Not acknowledged, although the sender's session is still there.
    pub(crate) open: Vec<String>,
}

impl MessageAccounts {
    /// Adds up what these sessions have sent and received. `fault`: something failed meanwhile.
    pub(crate) fn of<'a>(
        clients: impl IntoIterator<Item = &'a ManagedClient> + Clone,
        fault: Option<Fault>,
    ) -> MessageAccounts {
        let mut deliveries: BTreeMap<String, Vec<Delivery>> = BTreeMap::new();
        for client in clients.clone() {
            for (message, acknowledged) in client.received() {
                let delivery = Delivery { at: message.at, stanza_id: message.stanza_id, acknowledged };
                deliveries.entry(message.id).or_default().push(delivery);
            }
        }
        let mut accounts = MessageAccounts::default();
        for client in clients {
            let returned = client.returned();
            for (message, acknowledged) in client.sent() {
                let delivered = deliveries.get(&message.id).map_or(&[][..], Vec::as_slice);
                let returns = returned.iter().filter(|id| **id == message.id).count();
                accounts.add(&message.id, acknowledged, delivered, returns, fault);
                if acknowledged.is_none() && !client.has_ended() {
                    accounts.open.push(message.id);
                }
            }
        }
        accounts
    }

    fn add(
        &mut self,
        id: &str,
        acknowledged: Option<Instant>,
        delivered: &[Delivery],
        returns: usize,
        fault: Option<Fault>,
    ) {
        self.sent += 1;
        self.acknowledged += usize::from(acknowledged.is_some());
        self.delivered += usize::from(!delivered.is_empty());
        self.returned += usize::from(returns > 0);
        if acknowledged.is_some() && delivered.is_empty() && returns == 0 {
            self.lost.push(id.to_owned());
        }
        let was_unsettled =
            |first: &Delivery| fault.is_some_and(|fault| fault.may_unsettle(first.at, acknowledged));
        match delivered.first() {
            Some(first) if returns == 1 && was_unsettled(first) => self.in_doubt += 1,
            Some(_) if returns > 0 => self.contradictory.push(id.to_owned()),
            _ if returns > 1 => self.contradictory.push(id.to_owned()),
            _ => {}
        }
        let Some((_, earlier)) = delivered.split_last().filter(|(_, earlier)| !earlier.is_empty()) else {
            return;
        };
        let same_id = delivered[0].stanza_id.is_some()
            && delivered.iter().all(|delivery| delivery.stanza_id == delivered[0].stanza_id);
        // Sessions are in the order of their logins, and the last one may have acknowledged it.
        if same_id && earlier.iter().all(|delivery| !delivery.acknowledged) {
            self.repeated += 1;
        } else if same_id && was_unsettled(&delivered[0]) {
            self.unsettled += 1;
        } else {
            let ids: Vec<&str> =
                delivered.iter().map(|one| one.stanza_id.as_deref().unwrap_or_default()).collect();
            self.doubled.push(format!("{id} {ids:?}"));
        }
    }

    /// The numbers in one line.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{} sent, {} acknowledged, {} delivered ({} again that the client had not acknowledged, {} again that were \
             not settled when the fault began), {} returned ({} that were delivered and not settled when the fault began)",
            self.sent,
            self.acknowledged,
            self.delivered,
            self.repeated,
            self.unsettled,
            self.returned,
            self.in_doubt
        )
    }

    /// What contradicts the promises; empty if nothing does.
    pub(crate) fn faults(&self) -> Vec<String> {
        let kinds = [
            ("lost", &self.lost),
            ("doubled", &self.doubled),
            ("delivered and returned", &self.contradictory),
            ("never acknowledged", &self.open),
        ];
        let found = kinds.into_iter().filter(|(_, ids)| !ids.is_empty());
        found.map(|(kind, ids)| format!("{} {kind}: {ids:?}", ids.len())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(at: Instant, stanza_id: &str, acknowledged: bool) -> Delivery {
        Delivery { at, stanza_id: Some(stanza_id.to_owned()), acknowledged }
    }

    #[test]
    fn what_contradicts_the_promises_is_a_fault() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let fault = Some(Fault { began: now + second, ended: now + 2 * second });
        let (soon, late) = (Some(now), Some(now + second));
        let after = now + 2 * second + SETTLED_WITHIN + second;
        let mut good = MessageAccounts::default();
        good.add("delivered", soon, &[delivery(now, "1", true)], 0, fault);
        good.add("returned", soon, &[], 1, fault);
        good.add("not acknowledged", None, &[], 0, fault);
        good.add("again", soon, &[delivery(now, "1", false), delivery(now, "1", true)], 0, None);
        good.add("not settled", late, &[delivery(now, "1", true), delivery(now, "1", true)], 0, fault);
        good.add("in doubt", late, &[delivery(now, "1", true)], 1, fault);
        let counts = (good.faults().len(), good.repeated, good.unsettled, good.in_doubt);
        assert_eq!(counts, (0, 1, 1, 1), "{:?}", good.faults());
        let mut bad = MessageAccounts::default();
        bad.add("lost", soon, &[], 0, fault);
        bad.add("settled", soon, &[delivery(now, "1", true), delivery(now, "1", true)], 0, fault);
        bad.add("later", Some(after), &[delivery(after, "1", true), delivery(after, "1", true)], 0, fault);
        bad.add("no fault", late, &[delivery(now, "1", true), delivery(now, "1", true)], 0, None);
        bad.add("another id", late, &[delivery(now, "1", false), delivery(now, "2", true)], 0, fault);
        bad.add("both", soon, &[delivery(now, "1", true)], 1, fault);
        bad.add("returned twice", late, &[delivery(now, "1", true)], 2, fault);
        assert_eq!((bad.lost.len(), bad.doubled.len(), bad.contradictory.len()), (1, 4, 2));
    }
}
