//! Special subscriptions of a node by user: those of one user are few, those of all are up to a limit of the service.

use std::collections::BTreeMap;

use jid::{Jid, JidRef};

use crate::subscription::{NodeSubscription, SubscriptionExpiry};

/// The subscriptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SpecialSubscriptions {
    /// By bare address.
    by_user: BTreeMap<Jid, Vec<NodeSubscription>>,
    count: usize,
    /// No lease ends before, in milliseconds since 1970; `None`: there is no lease.
    first_end: Option<u64>,
}

impl SpecialSubscriptions {
    /// Number of subscriptions.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// All, by user.
    pub(super) fn iter(&self) -> impl Iterator<Item = &NodeSubscription> + Clone {
        self.by_user.values().flatten()
    }

    /// All, by user.
    pub(super) fn by_user(&self) -> impl Iterator<Item = &[NodeSubscription]> {
        self.by_user.values().map(Vec::as_slice)
    }

    /// Those of a user, whatever the resource is.
    pub(super) fn of_user(&self, user: JidRef<'_>) -> &[NodeSubscription] {
        self.by_user.get(user.bare().as_str()).map(Vec::as_slice).unwrap_or_default()
    }

    /// Those of one address.
    pub(super) fn of_jid<'a>(&'a self, jid: &'a Jid) -> impl Iterator<Item = &'a NodeSubscription> {
        self.of_user(jid.as_ref()).iter().filter(move |one| one.jid == *jid)
    }

    /// Inserts or replaces one.
    pub(super) fn put(&mut self, one: NodeSubscription) {
        if let SubscriptionExpiry::At(end) = one.options.expiry {
            self.first_end = Some(self.first_end.map_or(end, |first| first.min(end)));
        }
        let of_user = self.by_user.entry(one.jid.bare().to_jid()).or_default();
        match of_user.iter_mut().find(|other| other.jid == one.jid && other.subid == one.subid) {
            Some(other) => *other = one,
            None => {
                of_user.push(one);
                self.count += 1;
            }
        }
    }

    /// Removes one.
    pub(super) fn remove(&mut self, jid: &Jid, subid: &str) {
        let user = jid.as_ref().bare();
        let Some(of_user) = self.by_user.get_mut(user.as_str()) else { return };
        let before = of_user.len();
        of_user.retain(|one| one.jid != *jid || *one.subid != *subid);
        self.count -= before - of_user.len();
        if of_user.is_empty() {
            self.by_user.remove(user.as_str());
        }
    }

    /// Removes all.
    pub(super) fn clear(&mut self) {
        *self = SpecialSubscriptions::default();
    }

    /// Those whose lease has ended. Costs nothing before the first one does.
    pub(super) fn ended(&mut self, now: u64) -> Vec<NodeSubscription> {
        if self.first_end.is_none_or(|end| end > now) {
            return Vec::new();
        }
        let end = |one: &NodeSubscription| match one.options.expiry {
            SubscriptionExpiry::At(end) => Some(end),
            _ => None,
        };
        let ended = self.iter().filter(|one| end(one).is_some_and(|end| end <= now)).cloned().collect();
        self.first_end = self.iter().filter_map(end).filter(|end| *end > now).min();
        ended
    }
}

impl FromIterator<NodeSubscription> for SpecialSubscriptions {
    fn from_iter<T: IntoIterator<Item = NodeSubscription>>(all: T) -> SpecialSubscriptions {
        let mut special = SpecialSubscriptions::default();
        all.into_iter().for_each(|one| special.put(one));
        special
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscription::{SubscriptionOptions, SubscriptionState};

    fn one(jid: &str, subid: &str, end: Option<u64>) -> NodeSubscription {
        let expiry = end.map_or(SubscriptionExpiry::Never, SubscriptionExpiry::At);
        NodeSubscription {
            jid: Jid::parse(jid).unwrap(),
            subid: subid.into(),
            state: SubscriptionState::Subscribed,
            options: SubscriptionOptions { expiry, ..SubscriptionOptions::default() },
        }
    }

    #[test]
    fn subscriptions_are_found_by_user_and_by_address() {
        let all = [("a@b/x", "1"), ("a@b", "2"), ("a@b.c", "3"), ("a@b/y", "4")];
        let mut special: SpecialSubscriptions =
            all.map(|(jid, subid)| one(jid, subid, None)).into_iter().collect();
        let user = Jid::parse("a@b/z").unwrap();
        assert_eq!((special.len(), special.of_user(user.as_ref()).len()), (4, 3));
        assert_eq!(special.of_jid(&Jid::parse("a@b/x").unwrap()).count(), 1);
        special.put(one("a@b/x", "1", Some(5)));
        assert_eq!(special.len(), 4, "replaced");
        special.remove(&Jid::parse("a@b/x").unwrap(), "2");
        special.remove(&Jid::parse("a@b.c").unwrap(), "3");
        assert_eq!((special.len(), special.by_user().count()), (3, 1));
    }

    #[test]
    fn leases_end_once() {
        let all = [one("a@b", "1", Some(5)), one("c@d", "2", Some(9)), one("e@f", "3", None)];
        let mut special: SpecialSubscriptions = all.into_iter().collect();
        assert!(special.ended(4).is_empty());
        assert_eq!(special.ended(5).len(), 1);
        special.remove(&Jid::parse("a@b").unwrap(), "1");
        assert!(special.ended(8).is_empty());
        assert_eq!(special.ended(100).len(), 1);
        special.clear();
        assert!(special.ended(1_000).is_empty() && special.len() == 0);
    }
}
