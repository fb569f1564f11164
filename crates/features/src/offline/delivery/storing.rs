//! Storing of messages: the task of one recipient that writes what is pending, in batches.

use std::collections::HashMap;
use std::sync::Arc;

use jid::Jid;
use ring::digest;
use stanza::{StanzaCondition, StanzaError, append_child, payload::delay};
use store::{AddressId, AppendOutcome, OfflineMessage, QuotaUsage, StoreError};
use throng_core::receipt::FailedReceipt;
use throng_core::server_error::{store_error, unreadable_stanza};
use throng_core::{Node, SharedStanza};
use xml::{Ns, Writer};

use super::super::backups::{BackupUse, StoredRow, consecutive_ranges};
use super::super::pending::PendingMessage;
use super::super::queue_state::{DeliveryPhase, QueueEvent};
use super::{OfflineDelivery, OfflineRules, RecipientGuard, can_deliver, sender_of, storage_busy};

/// Recipients with a cached address id.
const MAX_CACHED_ADDRESSES: usize = 16_384;
const DAY_MILLIS: u64 = 86_400_000;
/// Time for which a message may be pending: the deadline of one write. An older one fails without an attempt, so that the
/// number of pending messages does not decide how long a sender waits for a store that hangs.
const MAX_PENDING_MILLIS: u64 = 10_000;

/// Why a message was not stored.
#[derive(Clone)]
struct StoreRefusal {
    error: StanzaError,
    /// The store failed; another attempt may succeed.
    temporary: bool,
}

impl OfflineDelivery {
    pub(super) async fn store_task(self: Arc<Self>, node: Arc<Node>, owner: Jid) {
        let guard = RecipientGuard { delivery: &self, node: &node, owner: &owner, storing: true };
        loop {
            let batch = self.update(&node, &owner, |queue, account, then| {
                queue.finish_backups(then);
                if queue.state.delivery != DeliveryPhase::Draining && !queue.pending.is_empty() {
                    return queue.take_batch();
                }
                queue.writes_messages = false;
                queue.on(QueueEvent::NothingToWrite, then);
                // A delivery task has stopped while messages were pending, or a resource became available during a
                // write that failed.
                if queue.state.delivery == DeliveryPhase::Idle
                    && account.is_some_and(|a| can_deliver(a) && queue.delivers_here(&node, a))
                {
                    queue.on(QueueEvent::DeliveryDue, then);
                }
                Vec::new()
            });
            // The options of the newest message apply.
            let Some(rules) = batch.last().map(|queued| queued.message.rules) else { break };
            let (mut messages, mut stanzas) =
                (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
            let now = node.clock.now();
            for queued in batch {
                let message = &queued.message;
                let stanza = if now.since(message.pending_since) > MAX_PENDING_MILLIS {
                    Err(StoreRefusal { error: storage_busy(), temporary: true })
                } else {
                    with_delay(&message.frame, owner.domain(), message.received_at)
                        .map_err(|error| StoreRefusal { error, temporary: false })
                };
                match stanza {
                    Ok(stanza) => {
                        stanzas.push((sender_fingerprint(&message.frame, &owner), stanza));
                        messages.push(queued);
                    }
                    Err(refusal) => {
                        self.finish_message(&node, &owner, queued.message, Err(refusal), &mut Vec::new());
                    }
                }
            }
            if messages.is_empty() {
                continue;
            }
            let backups = messages.iter().all(|queued| queued.message.is_backup);
            let outcomes = self.store_batch(&node, &owner, stanzas, backups, rules).await;
            let stored = if backups { &node.metrics.offline_backups } else { &node.metrics.offline_stored };
            stored.inc_by(outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64);
            if !backups && outcomes.iter().any(Result::is_ok) {
                self.messages_stored(&node, &owner);
            }
            let mut obsolete = Vec::new();
            for (queued, outcome) in messages.into_iter().zip(outcomes) {
                self.finish_message(&node, &owner, queued.message, outcome, &mut obsolete);
            }
            if !obsolete.is_empty()
                && let Ok(Some(id)) = self.address_id(&node, &owner).await
            {
                self.remove_rows(&node, &owner, id, &obsolete).await;
            }
        }
        std::mem::forget(guard);
    }

    /// Messages other than backups were stored.
    fn messages_stored(self: &Arc<Self>, node: &Arc<Node>, owner: &Jid) {
        self.update(node, owner, |queue, _, then| {
            let account = node.message_stored(owner.as_ref());
            if account.is_some_and(|a| can_deliver(&a) && queue.delivers_here(node, &a)) {
                queue.on(QueueEvent::DeliveryDue, then);
            }
        });
    }

    /// The session that held a message is gone; its backup is delivered as any stored message.
    pub(in crate::offline) fn backup_abandoned(self: &Arc<Self>, node: &Arc<Node>, owner: &Jid) {
        node.metrics.offline_stored.inc();
        self.messages_stored(node, owner);
    }

    /// Settles a message that was stored, or not. Adds the number of a backup that is not needed any more to `obsolete`.
    fn finish_message(
        self: &Arc<Self>,
        node: &Arc<Node>,
        owner: &Jid,
        mut message: PendingMessage,
        outcome: Result<StoredRow, StoreRefusal>,
        obsolete: &mut Vec<u64>,
    ) {
        if let Some(issuer) = message.issuer.take() {
            return issuer.settle(outcome.map(drop).map_err(|refusal| refusal.error));
        }
        message.is_backup = false;
        let frame = &message.frame;
        match outcome {
            Ok(row) => {
                let used = self.backups.add(owner, frame.clone(), row);
                frame.settle_delivery();
                match used {
                    BackupUse::Held => {}
                    BackupUse::Delivered => obsolete.push(row.number),
                    BackupUse::Abandoned => self.backup_abandoned(node, owner),
                }
            }
            Err(StoreRefusal { error, temporary }) => {
                if frame.cancel_backup() {
                    // No session holds it any more.
                    node.return_failed(FailedReceipt { stanza: frame.clone(), error });
                    frame.settle_delivery();
                } else if !temporary {
                    // It cannot be stored: the sender's stream must not stop until this client reads.
                    frame.settle_delivery();
                } else if let Some(account) = node.routing_table.find(owner.as_ref()) {
                    // Another attempt follows.
                    account.sessions().iter().for_each(|session| node.watch_delivery(session));
                }
            }
        }
    }

    /// Removes the rows of backups whose messages were delivered. After an error they are delivered a second time, with the
    /// same stanza-id.
    pub(in crate::offline) async fn remove_rows(
        &self,
        node: &Arc<Node>,
        owner: &Jid,
        id: AddressId,
        numbers: &[u64],
    ) {
        for (first, last) in consecutive_ranges(numbers) {
            if let Err(error) = node.stores.offline.remove_range(id, first, last).await {
                tracing::warn!(%error, "cannot remove delivered messages from offline storage");
            }
        }
        self.backups.remove(owner, numbers);
    }

    /// Writes messages, each with the number of its sender, all backups or none, and returns one result for each.
    async fn store_batch(
        &self,
        node: &Arc<Node>,
        owner: &Jid,
        stanzas: Vec<(u64, Vec<u8>)>,
        backups: bool,
        rules: OfflineRules,
    ) -> Vec<Result<StoredRow, StoreRefusal>> {
        let count = stanzas.len();
        let sizes: Vec<u64> = stanzas.iter().map(|(_, stanza)| stanza.len() as u64).collect();
        let refused = |error: StanzaError| Err(StoreRefusal { error, temporary: false });
        let failed = |error: StoreError| {
            let refusal = StoreRefusal { error: store_error(error), temporary: true };
            vec![Err(refusal); count]
        };
        let id = match self.address_id(node, owner).await {
            Ok(Some(id)) => id,
            Ok(None) => return vec![refused(StanzaCondition::ServiceUnavailable.into()); count],
            Err(error) => return failed(error),
        };
        let now = node.clock.unix_millis();
        let expires = (rules.expiry_days > 0).then(|| now + rules.expiry_days * DAY_MILLIS);
        let messages = stanzas.into_iter().map(|(sender, stanza)| OfflineMessage {
            owner: id,
            sender,
            stored_at: now,
            expires,
            stanza,
        });
        let quota = if backups {
            let batch = QuotaUsage { messages: count as u64, bytes: sizes.iter().sum() };
            self.backups.quota(owner, rules.quota, batch)
        } else {
            rules.quota
        };
        match node.stores.offline.append(messages.collect(), quota).await {
            Err(error) => failed(error),
            Ok(appended) => appended
                .into_iter()
                .zip(sizes)
                .map(|(one, bytes)| match one {
                    AppendOutcome::Stored { seq } => Ok(StoredRow { number: seq, bytes }),
                    AppendOutcome::Full => {
                        node.metrics.offline_refused.inc(["full"]);
                        refused(storage_full())
                    }
                    // The sender's share is used up. The error does not tell which limit was reached, because a
                    // sender could learn from it that the recipient is away, and how long (RFC 6121, section 8.5.2).
                    AppendOutcome::SenderFull => {
                        node.metrics.offline_refused.inc(["sender"]);
                        refused(storage_full())
                    }
                    AppendOutcome::NoAccount => refused(StanzaCondition::ServiceUnavailable.into()),
                })
                .collect(),
        }
    }

    pub(super) async fn address_id(
        &self,
        node: &Arc<Node>,
        owner: &Jid,
    ) -> Result<Option<AddressId>, StoreError> {
        if let Some(account) = node.routing_table.find(owner.as_ref()) {
            return Ok(Some(account.id));
        }
        if let Some(id) = self.address_ids.lock().get(owner) {
            return Ok(Some(*id));
        }
        let id = node.stores.addresses.find(owner).await?;
        if let Some(id) = id {
            let mut cached = self.address_ids.lock();
            // Rare, and cheaper than tracking the last use.
            if cached.len() >= MAX_CACHED_ADDRESSES {
                *cached = HashMap::new();
            }
            cached.insert(owner.clone(), id);
        }
        Ok(id)
    }
}

/// Error of XEP-0160, section 2, step 3.
fn storage_full() -> StanzaError {
    StanzaError::new(StanzaCondition::ServiceUnavailable).text("the recipient's offline storage is full")
}

/// Sender of a message as a number for the store: a part of a SHA-256, for which a second address cannot be found.
/// None for the owner's own messages and the server's, which are exempt from the share per sender.
fn sender_fingerprint(stanza: &SharedStanza, owner: &Jid) -> u64 {
    let bare = sender_of(stanza);
    if bare.is_empty() || bare == owner.as_ref().as_str() || bare == owner.domain() {
        return 0;
    }
    let hash = digest::digest(&digest::SHA256, bare.as_bytes());
    let number = hash.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
    (number >> 1).max(1)
}

/// Adds the time at which the message was stored (XEP-0203, section 3).
///
/// # Errors
///
/// If it would be unreadable when it is fetched from the store: then it is refused instead of stored.
fn with_delay(frame: &SharedStanza, domain: &str, now: u64) -> Result<Vec<u8>, StanzaError> {
    if frame.is_delayed() {
        return Ok(frame.bytes().to_vec());
    }
    let mut child = Vec::with_capacity(96);
    delay::write(&mut Writer::new(&mut child), domain, now);
    let mut out = Vec::new();
    append_child(frame.bytes(), frame.head(), &child, Ns::Delay, &mut out).map_err(unreadable_stanza)?;
    throng_core::shared_stanza::check(&out).map_err(unreadable_stanza)?;
    Ok(out)
}
