//! Presence subscriptions: RFC 6121, section 3, by the tables of appendix A in [`super::subscription_state`].
//!
//! Both sides are handled here, each in its own chain: the sender's state changes in `outgoing`, the recipient's in
//! `incoming`, whether or not the recipient is connected. Between the two the stanza is routed like any other.
//!
//! Where the text leaves a choice: a request to a missing account is ignored (section 8.5.1), so that accounts cannot
//! be enumerated. Of several requests the first one is stored (section 3.1.3), with a delay stamp (XEP-0203), and
//! without its children when it is larger than [`MAX_REQUEST_BYTES`].
//!
//! Not implemented: repeating a request that a remote server does not answer (section 3.1.2), and notices of
//! approvals that came while no resource was connected (section 3.1.6, a MAY).
//!
//! # Pitfalls
//!
//! The user's own pushes are sent before the stanza is routed. The contact's server may answer at once, and the push
//! of that answer must not overtake the push of the request.

use std::sync::Arc;

use feature_api::feature::{self, Feature, FeatureBuilder, OptionSpec, OptionValue, Spec};
use jid::{Jid, JidRef};
use stanza::{PresenceType, StanzaCondition, StanzaError, StanzaKind, StanzaKindSet};
use store::{AddressId, RosterItem, RosterUpdate, StoreError, StoreErrorKind, Subscription};
use throng_core::hooks::{
    AvailableCtx, Flow, HandlerOutcome, IncomingCtx, Interest, OutgoingCtx, Phase, RemovedCtx, StopReason,
};
use throng_core::server_error::store_error;
use throng_core::session::flags;
use throng_core::{Account, Effect, Effects, Node, Session, SharedStanza, StreamFeature};
use xml::Ns;

use super::roster::{check_contact_fits, roster_bytes_left, roster_too_large};
use super::subscription_state::{self, Direction, PresenceUpdate, transition};
use super::{apply_roster_change, bare_presence, is_ephemeral, readdressed, send_current, send_unavailable};

/// The largest request that is stored with its children, in bytes.
pub const MAX_REQUEST_BYTES: usize = 4096;
/// Longest id and language of a stored request, in bytes.
const MAX_ATTRIBUTE_BYTES: usize = 512;

/// Module declaration.
pub static FEATURE: Feature = Feature {
    name: "subscription",
    summary: "Presence subscriptions between users.",
    specs: &[Spec {
        name: "RFC 6121",
        title: "XMPP: Instant Messaging and Presence",
        version: "",
        not_implemented: "section 3.1.2: resending a pending request to a remote server",
    }],
    stream_features: &[StreamFeature::authenticated("sub", Ns::PreApproval)],
    options: &[OptionSpec {
        key: "max_pending_requests",
        kind: feature::OptionKind::Int(1, 100_000),
        default: OptionValue::Int(500),
        doc: "Maximum number of pending subscription requests per account; further ones are ignored.",
    }],
    needs: &["roster"],
    build,
    ..Feature::EMPTY
};

const SUBSCRIPTIONS: StanzaKindSet = StanzaKindSet::of(StanzaKind::Presence(PresenceType::Subscribe))
    .union(StanzaKindSet::of(StanzaKind::Presence(PresenceType::Subscribed)))
    .union(StanzaKindSet::of(StanzaKind::Presence(PresenceType::Unsubscribe)))
    .union(StanzaKindSet::of(StanzaKind::Presence(PresenceType::Unsubscribed)));

fn build(b: &mut FeatureBuilder<'_>) {
    let limit = usize::try_from(b.options.int("max_pending_requests")).unwrap_or_default();
    b.outgoing(Phase::Rewrite, Interest::kinds(SUBSCRIPTIONS), outgoing);
    b.incoming(Phase::Rewrite, Interest::kinds(SUBSCRIPTIONS), move |ctx: &mut IncomingCtx<'_>| {
        incoming(ctx, limit)
    });
    b.incoming(
        Phase::Rewrite,
        Interest::kinds(StanzaKindSet::of(StanzaKind::Presence(PresenceType::Error))),
        failed,
    );
    b.available(Phase::Rewrite, show_requests);
    b.removed(Phase::Rewrite, account_removed);
}

fn presence_type(frame: &SharedStanza) -> PresenceType {
    match frame.kind() {
        StanzaKind::Presence(ty) => ty,
        _ => PresenceType::Error,
    }
}

/// Values to store for a change: the new state, and the request while it is pending.
fn roster_change(
    direction: Direction,
    ty: PresenceType,
    before: Option<RosterItem>,
    contact: Jid,
    request: Option<Vec<u8>>,
) -> RosterUpdate {
    let state = before.as_ref().map(|item| item.subscription).unwrap_or_default();
    let after = transition(direction, ty, state).after;
    if after == state {
        return RosterUpdate::Keep;
    }
    let mut item = before.unwrap_or_else(|| RosterItem::new(contact));
    item.subscription = after;
    if let Some(request) = request
        && after.contains(Subscription::PENDING_IN)
    {
        item.request = Some(request);
    }
    RosterUpdate::Put(item)
}

/// Sections 3.1.2, 3.1.5, 3.2.2, 3.3.2 and 3.4.2: the sender's side. `to` is bare already.
fn outgoing(ctx: &mut OutgoingCtx<'_>) -> Flow {
    let refuse = |error: StanzaError| Flow::Stop(StopReason::Refused(error));
    let (ty, account) = (presence_type(ctx.stanza), &ctx.session.account);
    let Some(to) = ctx.to.map(|t| t.bare()) else {
        return refuse(
            StanzaError::new(StanzaCondition::BadRequest).text("a subscription requires a recipient"),
        );
    };
    // A user always sees the own presence.
    if to == account.jid.as_ref() {
        return Flow::Stop(StopReason::Consumed);
    }
    if ctx.session.flags.has(flags::EPHEMERAL) {
        return refuse(
            StanzaError::new(StanzaCondition::NotAllowed).text("an anonymous user has no contacts"),
        );
    }
    let to = to.to_jid();
    if matches!(ty, PresenceType::Subscribe | PresenceType::Subscribed)
        && let Err(error) = check_contact_fits(ctx.node, account, &to)
    {
        return refuse(error);
    }
    let new = matches!(ty, PresenceType::Subscribe | PresenceType::Subscribed)
        && !account.with(|state| state.may_contain(ctx.node.routing_table.hash(to.as_ref())));
    let (node, account, frame) = (ctx.node.clone(), account.clone(), ctx.stanza.clone());
    Flow::Wait(Box::pin(async move {
        if new {
            let needed = to.as_str().len() as u64;
            match roster_bytes_left(&node, &account, needed).await {
                Ok(room) if needed > room => {
                    return HandlerOutcome::refused(roster_too_large(&node));
                }
                Ok(_) => {}
                Err(error) => return HandlerOutcome::refused(error),
            }
        }
        let contact = to.clone();
        let change = move |before| roster_change(Direction::Outbound, ty, before, contact, None);
        let done = match node.stores.roster.update(account.id, &to, Box::new(change)).await {
            Ok(done) => done,
            Err(error) => return HandlerOutcome::refused(store_error(error)),
        };
        let before = done.before.as_ref().map(|item| item.subscription).unwrap_or_default();
        let outcome = transition(Direction::Outbound, ty, before);
        let mut effects = Effects::default();
        apply_roster_change(&node, account.jid.as_ref(), &to, &done, false, &mut effects);
        if outcome.presence == PresenceUpdate::Unavailable {
            send_unavailable(&account, to.as_ref(), &mut effects);
        }
        if outcome.forward {
            effects.route(Some(frame), account.jid.clone(), to.clone());
        }
        if outcome.presence == PresenceUpdate::Available {
            send_current(&account, to.as_ref(), false, &mut effects);
        }
        HandlerOutcome::consumed(effects)
    }))
}

/// Sections 3.1.3, 3.1.6, 3.2.3 and 3.3.3: the recipient's side.
fn incoming(ctx: &mut IncomingCtx<'_>, limit: usize) -> Flow {
    let ty = presence_type(ctx.stanza);
    if let Some(resource) = ctx.to.resource()
        && ty != PresenceType::Subscribe
        && ctx.account.is_none_or(|account| account.session(resource).is_none())
    {
        // Section 8.5.3.2.2: to a missing resource; the routing rules drop it.
        return Flow::Next;
    }
    let (from, to) = (ctx.from.bare(), ctx.to.bare());
    if from == to || ctx.account.is_some_and(is_ephemeral) {
        return Flow::Stop(StopReason::Consumed);
    }
    let frame = if ctx.from.is_bare() && ctx.to.is_bare() {
        ctx.stanza.clone()
    } else {
        match readdressed(ctx.stanza, from, Some(to)) {
            Ok(frame) => frame,
            Err(error) => return Flow::Stop(StopReason::Refused(error)),
        }
    };
    let arrival = InboundSubscription {
        node: ctx.node.clone(),
        account: ctx.account.cloned(),
        from: from.to_jid(),
        to: to.to_jid(),
        frame,
        ty,
        limit,
    };
    Flow::Wait(Box::pin(async move {
        match arrival.process().await {
            Ok(effects) => HandlerOutcome::consumed(effects),
            Err(error) => HandlerOutcome::refused(store_error(error)),
        }
    }))
}

/// A subscription stanza for a local account.
struct InboundSubscription {
    node: Arc<Node>,
    account: Option<Arc<Account>>,
    from: Jid,
    to: Jid,
    frame: SharedStanza,
    ty: PresenceType,
    limit: usize,
}

impl InboundSubscription {
    async fn process(self) -> Result<Effects, StoreError> {
        let InboundSubscription { node, account, from, to, frame, ty, limit } = self;
        let mut effects = Effects::default();
        let id = match &account {
            Some(account) => Some(account.id),
            None => node.stores.addresses.find(&to).await?,
        };
        // The effort must not reveal whether the account exists: the store gets the same query for a missing account,
        // and finds nothing.
        let id = id.unwrap_or(AddressId::UNASSIGNED);
        let mut request = None;
        if ty == PresenceType::Subscribe {
            let open = match &account {
                Some(account) => account.with(|state| {
                    state
                        .contacts()
                        .iter()
                        .filter(|c| c.subscription.contains(Subscription::PENDING_IN))
                        .count()
                }),
                None => match node.stores.roster.size(id).await {
                    Ok(size) => size.requests as usize,
                    Err(error) if error.kind == StoreErrorKind::NotFound => 0,
                    Err(error) => return Err(error),
                },
            };
            if open >= limit {
                tracing::info!(account = %to, "ignored a subscription request: too many are pending");
                return Ok(effects);
            }
            request = Some(stored_request(&node, &frame, from.as_ref(), to.as_ref()));
        }
        let contact = from.clone();
        let change = move |before| roster_change(Direction::Inbound, ty, before, contact, request);
        let done = match node.stores.roster.update(id, &from, Box::new(change)).await {
            Ok(done) => done,
            // The number belongs to a contact without an account, or to a removed account.
            Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(effects),
            Err(error) => return Err(error),
        };
        let before = done.before.as_ref().map(|item| item.subscription).unwrap_or_default();
        let outcome = transition(Direction::Inbound, ty, before);
        // The account may have connected while the store was busy.
        let account = node.routing_table.find(to.as_ref());
        if outcome.forward
            && let Some(account) = &account
        {
            deliver(account, ty, &frame, &mut effects);
        }
        apply_roster_change(&node, to.as_ref(), &from, &done, false, &mut effects);
        if ty == PresenceType::Subscribed
            && let Some(account) = &account
        {
            effects.add(Effect::FetchPresence { account: account.clone(), contact: from.clone() });
        }
        auto_reply(&outcome, account.as_ref(), &frame, &to, &from, &mut effects);
        Ok(effects)
    }
}

/// Section 3.1.2: subscription stanzas are sent from a bare address, so their errors return to it, where the general
/// rules know no recipient.
fn failed(ctx: &mut IncomingCtx<'_>) -> Flow {
    let Some(account) = ctx.account.filter(|_| ctx.to.is_bare()) else { return Flow::Next };
    deliver(account, PresenceType::Error, ctx.stanza, ctx.effects);
    Flow::Stop(StopReason::Consumed)
}

/// An account was removed: its contacts receive what they would if its owner had cancelled all subscriptions.
fn account_removed(ctx: &mut RemovedCtx<'_>) -> Flow {
    for item in ctx.contacts {
        let mut tell = |ty| {
            let id = base::id::random_id();
            let frame = bare_presence(ctx.jid, Some(item.jid.as_ref()), ty, Some(&id));
            ctx.effects.route(frame, ctx.jid.to_jid(), item.jid.clone());
        };
        let state = item.subscription;
        if state.contains(Subscription::TO) || state.contains(Subscription::PENDING_OUT) {
            tell(PresenceType::Unsubscribe);
        }
        if state.contains(Subscription::FROM) || state.contains(Subscription::PENDING_IN) {
            tell(PresenceType::Unsubscribed);
        }
    }
    Flow::Next
}

/// Reply of the server on the recipient's behalf.
fn auto_reply(
    outcome: &subscription_state::SubscriptionTransition,
    account: Option<&Arc<Account>>,
    frame: &SharedStanza,
    to: &Jid,
    from: &Jid,
    effects: &mut Effects,
) {
    if outcome.presence == PresenceUpdate::Unavailable
        && let Some(account) = account
    {
        send_unavailable(account, from.as_ref(), effects);
    }
    if let Some(reply) = outcome.reply {
        let id = frame.head().raw_id(frame.bytes());
        let reply = bare_presence(to.as_ref(), Some(from.as_ref()), reply, id);
        effects.route(reply, to.clone(), from.clone());
    }
    if outcome.presence == PresenceUpdate::Available
        && let Some(account) = account
    {
        send_current(account, from.as_ref(), false, effects);
    }
}

/// Requests go to available resources, everything else to those that requested the roster (sections 3.1.3 and 3.1.6).
fn deliver(account: &Arc<Account>, ty: PresenceType, frame: &SharedStanza, effects: &mut Effects) {
    let (flags, available) = match ty {
        PresenceType::Subscribe => (0, true),
        _ => (flags::INTERESTED, false),
    };
    effects.add(Effect::ToResources { account: account.clone(), flags, available, stanza: frame.clone() });
}

/// The request in stored form: with the time, and without its children when it is large.
fn stored_request(node: &Node, frame: &SharedStanza, from: JidRef<'_>, to: JidRef<'_>) -> Vec<u8> {
    let (head, bytes) = (frame.head(), frame.bytes());
    let mut out = Vec::with_capacity(bytes.len().min(MAX_REQUEST_BYTES) + 128);
    let mut w = xml::Writer::new(&mut out);
    w.start("presence").attr("from", from.as_str()).attr("to", to.as_str());
    // An attribute may be as long as a stanza.
    let short = |text: &str| text.len() <= MAX_ATTRIBUTE_BYTES;
    w.attr("type", "subscribe");
    if let Some(id) = head.raw_id(bytes).filter(|id| short(id)) {
        w.attr_raw("id", id);
    }
    w.attr_opt("xml:lang", head.lang(bytes).filter(|lang| short(lang)).as_deref());
    let whole = bytes.len() <= MAX_REQUEST_BYTES
        && stanza::payload::stanza_content::write(&mut w, head, bytes, MAX_REQUEST_BYTES);
    // Exactly one stamp (XEP-0203, section 3).
    if !whole || !head.payloads().contains(stanza::PayloadNs::Delay) {
        stanza::payload::delay::write(&mut w, to.domain(), node.clock.unix_millis());
    }
    w.end();
    out
}

/// Unanswered requests are shown to every resource that becomes available (section 3.1.3).
fn show_requests(ctx: &mut AvailableCtx<'_>) -> Flow {
    // Also called when only the priority changed.
    if !ctx.session.flags.set(flags::REQUESTS_SHOWN) {
        return Flow::Next;
    }
    let account = &ctx.session.account;
    let prefetched = account.with(|state| {
        let open = state.contacts().iter().any(|c| c.subscription.contains(Subscription::PENDING_IN));
        open.then(|| state.prefetched().map(|roster| pending_requests(&roster.items, ctx.session.bare())))
    });
    match prefetched {
        None => {}
        Some(Some(list)) => send(ctx.session, list, ctx.effects),
        Some(None) => {
            let (node, session) = (ctx.node.clone(), ctx.session.clone());
            return Flow::Wait(Box::pin(async move {
                let mut outcome = HandlerOutcome::next();
                match node.stores.roster.get(session.account.id).await {
                    Ok(roster) => {
                        send(&session, pending_requests(&roster.items, session.bare()), &mut outcome.effects)
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot read pending subscription requests");
                        // Retried on the next presence.
                        session.flags.clear(flags::REQUESTS_SHOWN);
                    }
                }
                outcome
            }));
        }
    }
    Flow::Next
}

fn pending_requests(items: &[RosterItem], owner: JidRef<'_>) -> Vec<SharedStanza> {
    let open = items.iter().filter(|item| item.subscription.contains(Subscription::PENDING_IN));
    // Bulk imports may set a state without its stanza.
    let plain =
        |item: &RosterItem| bare_presence(item.jid.as_ref(), Some(owner), PresenceType::Subscribe, None);
    open.filter_map(|item| item.request.as_deref().and_then(SharedStanza::parse).or_else(|| plain(item)))
        .collect()
}

fn send(session: &Arc<Session>, requests: Vec<SharedStanza>, effects: &mut Effects) {
    for request in requests {
        effects.add(Effect::Send(session.clone(), request));
    }
}
