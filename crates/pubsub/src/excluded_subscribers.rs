//! Removal of the subscribers that may not stay after a change of a node's configuration: XEP-0060 1.30.0, sections 4.5 and 8.2.

use std::sync::Arc;

use jid::Jid;
use throng_core::Node;

use crate::delivery::Delivery;
use crate::node::NodeCtx;
use crate::node_task::NodeTask;
use crate::plain_subscriptions::{PAGE, PlainSubscriptions};
use crate::requester_facts::is_account;
use crate::write_queue::AfterWrite;

impl NodeTask {
    /// Removes subscribers that may not stay after a change of the configuration. False if it failed: the change, or a part of
    /// the removals, is not stored.
    pub(crate) async fn recheck_subscribers(&mut self, node: &Arc<Node>) -> bool {
        if !self.writes.flush(node).await {
            return false;
        }
        let options = self.shared.options();
        let new_id = || base::id::random_id().to_lowercase();
        // The page after a subscriber that is removed would be empty: the changes wait for the end of the list.
        let (mut after, mut removed) = (None, Vec::new());
        let mut is_first = true;
        loop {
            let page = PlainSubscriptions(&node.stores).subscribers(self.key.as_ref(), after, PAGE).await;
            let (Ok(page), Some(one)) = (page, self.node.as_mut()) else { return false };
            let (changes, notices) = {
                let is_account = |jid: &Jid| is_account(node, jid);
                let mut ctx = NodeCtx::new(node.clock.unix_millis(), &new_id, &is_account, &options.limits);
                one.remove_excluded(&mut ctx, &page);
                if std::mem::take(&mut is_first) {
                    one.remove_excluded_special(&mut ctx);
                }
                (ctx.changes, ctx.notices)
            };
            self.subscribers.apply(&changes);
            if let Some(rest) =
                Delivery::new(&self.key, &self.shared, node, notices).perform_to(&Arc::from([]))
            {
                rest.await;
            }
            after = page.last().cloned();
            removed.extend(changes);
            if page.len() < PAGE as usize {
                break;
            }
        }
        while !removed.is_empty() {
            let rest = removed.split_off(removed.len().min(PAGE as usize));
            self.writes.push(node, std::mem::replace(&mut removed, rest), AfterWrite::Nothing);
            if !self.writes.flush(node).await {
                return false;
            }
        }
        true
    }
}
