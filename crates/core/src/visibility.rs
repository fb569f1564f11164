//! Visibility of an account's presence, as a check that may need the store: RFC 6121, section 8.5.1.
//!
//! The server responds on behalf of an account only to those who are subscribed to its presence. Everybody else
//! receives the response of a missing account, so that addresses cannot be enumerated.
//!
//! A refusal always follows a store query, even where memory has the answer: otherwise the response time would
//! disclose who is connected. Those who may see the presence know that anyway, so they are answered from
//! memory.
//!
//! # Pitfalls
//!
//! The first check also reads the blocklist of an absent account (crate `throng-access`), so that only
//! later checks cost the same.

use std::sync::Arc;

use jid::{Jid, JidRef};
use store::{Roster, StoreError, Subscription};

use crate::account::Account;
use crate::node::Node;

/// Whether an address may see an account's presence.
pub enum Visibility {
    /// Visible: the account is connected and its roster has the subscription.
    Visible,
    /// The store must be queried.
    NeedsCheck(SubscriptionCheck),
}

/// A deferred check in the store.
pub struct SubscriptionCheck {
    roster: Arc<dyn Roster>,
    owner: Jid,
    from: Jid,
}

impl Node {
    /// Whether `from` is subscribed to the presence of the account `owner`. Both may be full addresses.
    pub fn visibility(&self, owner: JidRef<'_>, from: JidRef<'_>) -> Visibility {
        let from = from.bare();
        if let Some(account) = self.routing_table.find(owner) {
            // A roster view holds ids; only the store knows the id of an address without a session here.
            let contact = self.routing_table.find(from);
            if contact.is_some_and(|contact| account.subscription(&contact).contains(Subscription::FROM)) {
                return Visibility::Visible;
            }
        }
        Visibility::NeedsCheck(self.subscription_check(owner, from))
    }

    fn subscription_check(&self, owner: JidRef<'_>, from: JidRef<'_>) -> SubscriptionCheck {
        SubscriptionCheck {
            roster: self.stores.roster.clone(),
            owner: owner.bare().to_jid(),
            from: from.bare().to_jid(),
        }
    }

    /// A check in the store whether `from` is subscribed to the presence of an account with a session here. Needed if
    /// `from` may be a contact without a session here: a roster view holds numbers, and only the store can map an
    /// address to its number. `None` if [`Node::subscription`] is right.
    pub fn check_contact_elsewhere(&self, account: &Account, from: JidRef<'_>) -> Option<SubscriptionCheck> {
        if self.is_single() || self.routing_table.find(from).is_some() {
            return None;
        }
        let hash = self.routing_table.hash(from);
        account
            .with(|state| state.may_contain(hash))
            .then(|| self.subscription_check(account.jid.as_ref(), from))
    }
}

impl SubscriptionCheck {
    /// Queries the store. An account that does not exist is visible to nobody.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn run(&self) -> Result<bool, StoreError> {
        let state = self.roster.subscription(self.owner.as_ref(), self.from.as_ref()).await?;
        Ok(state.contains(Subscription::FROM))
    }
}
