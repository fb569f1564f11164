//! Offline messages: XEP-0160 1.0.1 (sections 2 and 3) with Delayed Delivery, XEP-0203 2.0.
//!
//! A message of type chat or normal for an account without a resource that accepts it is stored. The sender's stream
//! continues at once, and counts the message as handled when it is durable. When a resource becomes available with a
//! priority of zero or more, stored messages move into its queue, oldest first, each with the time at which it was stored.
//! `storage_policy` selects the messages to store, `pending` bounds those that must be stored and shares each batch among
//! senders, `delivery` preserves the order with the states of `queue_state`, `in_flight` tracks messages that are queued but
//! not yet safe to remove, `backups` stores messages that a session takes slowly.
//!
//! Not implemented: XEP-0013 (selective retrieval by a client).
//!
//! # Pitfalls
//!
//! The order between two addresses must never change. While messages are being stored or delivered, newer ones are
//! stored after them; a change to when `flushing` is set or cleared must consider every case in `delivery`.

mod backups;
mod delivery;
mod in_flight;
mod pending;
mod queue_state;
mod storage_policy;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use base::spawn::BoxFuture;
use feature_api::feature::{
    DiscoFeature, Feature, FeatureBuilder, OptionKind, OptionSpec, OptionValue, Spec,
};
use feature_api::periodic_job::{JobScope, PeriodicJobCtx, PeriodicJobSpec};
use stanza::{MessageType, StanzaKindSet};
use store::Quota;
use throng_core::hooks::{AvailableCtx, Flow, Interest, OpenedCtx, Phase, StopReason, UndeliveredCtx};
use throng_core::session::flags;

use self::backups::OfflineBackup;
use self::delivery::{MessageOrigin, OfflineDelivery, OfflineRules};

/// Offline messages.
pub static FEATURE: Feature = Feature {
    name: "offline",
    summary: "Stores messages for offline users and delivers them at the next login.",
    specs: &[
        Spec {
            name: "XEP-0160",
            title: "Best Practices for Handling Offline Messages",
            version: "1.0.1",
            not_implemented: "",
        },
        Spec { name: "XEP-0203", title: "Delayed Delivery", version: "2.0", not_implemented: "" },
        Spec {
            name: "XEP-0334",
            title: "Message Processing Hints",
            version: "1.0.0",
            not_implemented: "all except the hints for offline messages",
        },
    ],
    disco: &[DiscoFeature::Server("msgoffline")],
    options: &[
        OptionSpec {
            key: "max_messages",
            kind: OptionKind::Int(0, 1_000_000),
            default: OptionValue::Int(1000),
            doc: "Maximum number of stored messages per account; further ones are refused.",
        },
        OptionSpec {
            key: "max_bytes",
            kind: OptionKind::Int(65_536, 1_099_511_627_776),
            default: OptionValue::Int(10_485_760),
            doc: "Maximum size of the stored messages per account, in bytes; further ones are refused.",
        },
        OptionSpec {
            key: "sender_percent",
            kind: OptionKind::Int(1, 100),
            default: OptionValue::Int(50),
            doc: "Maximum share of `max_messages` and `max_bytes` per sender, in percent; further messages \
             are refused.",
        },
        OptionSpec {
            key: "expiry_days",
            kind: OptionKind::Int(0, 36_500),
            default: OptionValue::Int(0),
            doc: "Days after which a stored message expires; 0 means never.",
        },
    ],
    periodic_jobs: &[&REMOVE_EXPIRED],
    build,
    ..Feature::EMPTY
};

static REMOVE_EXPIRED: PeriodicJobSpec = PeriodicJobSpec {
    name: "remove_expired_messages",
    interval_seconds: 3600,
    scope: JobScope::Deployment,
    doc: "Removes expired messages from the store.",
};

/// Messages that one run removes at most, so that the database is not busy for long.
const MAX_EXPIRED: u32 = 100_000;

const STORED_KINDS: StanzaKindSet = StanzaKindSet::of(stanza::StanzaKind::Message(MessageType::Chat))
    .union(StanzaKindSet::of(stanza::StanzaKind::Message(MessageType::Normal)));

fn build(builder: &mut FeatureBuilder<'_>) {
    let limit = u32::try_from(builder.options.int("max_messages")).unwrap_or(0);
    let expiry_days = u64::try_from(builder.options.int("expiry_days")).unwrap_or(0);
    let quota = Quota {
        messages: limit,
        bytes: builder.options.int("max_bytes").unsigned_abs(),
        sender_percent: u32::try_from(builder.options.int("sender_percent")).unwrap_or(100),
    };
    let rules = OfflineRules { quota, expiry_days };
    let delivery = builder.shared_state(OfflineDelivery::new);
    builder.stores_offline_messages();
    builder.periodic_job(&REMOVE_EXPIRED, |ctx: PeriodicJobCtx| -> BoxFuture<'static, _> {
        Box::pin(remove_expired(ctx))
    });
    builder.message_backup(Arc::new(OfflineBackup { delivery: delivery.clone(), rules }));
    let for_undelivered = delivery.clone();
    builder.undelivered(
        Phase::Archive,
        Interest::kinds(STORED_KINDS),
        move |ctx: &mut UndeliveredCtx<'_>| undelivered(&for_undelivered, rules, ctx),
    );
    let for_opened = delivery.clone();
    builder.opened(Phase::Notify, move |ctx: &mut OpenedCtx<'_>| {
        if !ctx.session.flags.has(flags::EPHEMERAL) {
            for_opened.opened(ctx.node, &ctx.session.account);
        }
        Flow::Next
    });
    builder.available(Phase::Notify, move |ctx: &mut AvailableCtx<'_>| {
        if !ctx.session.flags.has(flags::EPHEMERAL) {
            delivery.available(ctx.node, &ctx.session.account);
        }
        Flow::Next
    });
}

async fn remove_expired(ctx: PeriodicJobCtx) -> Result<(), String> {
    let node = &ctx.node;
    let removed = node.stores.offline.expire(node.clock.unix_millis(), MAX_EXPIRED).await;
    let count = removed.map_err(|error| error.to_string())?;
    node.metrics.offline_expired.inc_by(count.into());
    tracing::debug!(count, "removed expired offline messages");
    Ok(())
}

fn undelivered(delivery: &Arc<OfflineDelivery>, rules: OfflineRules, ctx: &mut UndeliveredCtx<'_>) -> Flow {
    if ctx.stanza.is_stored() {
        // It was queued for a connection that is gone, and is still in the store.
        return Flow::Stop(StopReason::Consumed);
    }
    let guest = |a: &throng_core::Account| a.sessions().iter().any(|s| s.flags.has(flags::EPHEMERAL));
    if ctx.account.is_some_and(|account| guest(account)) {
        return Flow::Next;
    }
    match storage_policy::decide(ctx.stanza) {
        storage_policy::StorageDecision::Skip => Flow::Next,
        storage_policy::StorageDecision::Discard => Flow::Stop(StopReason::Consumed),
        storage_policy::StorageDecision::Store => {
            // Those that its sessions hold are older.
            if let Some(account) = ctx.account {
                ctx.node.back_up_unsettled(account);
            }
            let stanza = ctx.stanza;
            let origin = MessageOrigin { tracks_delivery: ctx.tracks_delivery, redelivery: ctx.redelivery };
            let receipt = delivery.store(ctx.node, ctx.to, stanza, origin, rules);
            ctx.effects.receipt(stanza, receipt);
            Flow::Stop(StopReason::Consumed)
        }
    }
}
