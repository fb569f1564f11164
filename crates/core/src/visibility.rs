//! Who may see the presence of an account, as a question that may need the store: RFC 6121 section 8.5.1.
//!
//! The server answers for an account only to those who are subscribed to its presence. Everybody else gets the answer
//! that a missing account gets, so that addresses cannot be tried out.
//!
//! A refusal always comes from the store, even where memory could give it: otherwise the time of the answer would tell
//! who is connected. Those who may see the presence know that anyway, so they are answered from memory.
//!
//! The trap: the blocklist of an absent account is read, too, at the first question (see [`crate::blocklists`]), so only the
//! questions after that cost the same.

use jid::{Jid, JidRef};
use store::{StoreError, Stores, Subscription};

use crate::node::Node;

/// Whether somebody may see an account's presence.
pub enum Visibility {
    /// They may: the account is connected and its roster says so.
    Visible,
    /// The store knows.
    NeedsCheck(SubscriptionCheck),
}

/// A question to the store.
pub struct SubscriptionCheck {
    stores: Stores,
    owner: Jid,
    from: Jid,
}

impl Node {
    /// Whether `from` is subscribed to the presence of the account `owner`. Both may be full addresses.
    pub fn visibility(&self, owner: JidRef<'_>, from: JidRef<'_>) -> Visibility {
        let from = from.bare();
        if let Some(account) = self.routing_table.find(owner) {
            // A roster view holds numbers; that of an address without a session here is known to the store alone.
            let contact = self.routing_table.find(from);
            if contact.is_some_and(|contact| account.subscription(&contact).contains(Subscription::FROM)) {
                return Visibility::Visible;
            }
        }
        let stores = self.stores.clone();
        Visibility::NeedsCheck(SubscriptionCheck {
            stores,
            owner: owner.bare().to_jid(),
            from: from.to_jid(),
        })
    }
}

impl SubscriptionCheck {
    /// Asks. An account that does not exist is visible to nobody.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn run(&self) -> Result<bool, StoreError> {
        let state = self.stores.roster.subscription(self.owner.as_ref(), self.from.as_ref()).await?;
        Ok(state.contains(Subscription::FROM))
    }
}
