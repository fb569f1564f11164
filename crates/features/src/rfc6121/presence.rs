//! Exchange of presence: RFC 6121, section 4.
//!
//! A presence without `to` becomes the session's presence and goes to every contact with `FROM` as one shared stanza;
//! the recipients' addresses are inserted while their queues are written. Probes are never sent between local
//! accounts, because both sides are here (section 4.3.1): the new resource directly receives the presence that probes
//! would return.
//!
//! Presence for contacts of other domains (components, other servers) is routed to their addresses, which are read
//! from the store; rosters in memory only mark these contacts.
//!
//! As sections 4.2.2, 4.4.2 and 4.5.2 require, the resource that sent a presence receives it as well.
//!
//! Not implemented: probes to contacts of other servers, which need server-to-server streams; the time
//! of the last unavailable presence in the answer to a probe (section 4.3.2, rule 3, a SHOULD), which is not stored.
//!
//! # Pitfalls
//!
//! The handler for broadcasts is in the last phase and ends the chain. A handler that must see or change a broadcast
//! has to be in an earlier phase.

use std::sync::Arc;

use feature_api::feature::{self, Feature, FeatureBuilder, OptionSpec, OptionValue, Spec};
use jid::JidRef;
use stanza::{Head, PresenceType, StanzaCondition, StanzaError, StanzaKind, StanzaKindSet};
use store::Subscription;
use throng_core::hooks::{
    ClosingCtx, DeliverCtx, Flow, HandlerOutcome, IncomingCtx, Interest, OutgoingCtx, Phase, StopReason,
};
use throng_core::limits::STANZA_LIMITS;
use throng_core::server_error::store_error;
use throng_core::session::flags;
use throng_core::visibility::Visibility;
use throng_core::{Account, Effect, Effects, Node, Session, SharedStanza};
use xml::{Event, NamespaceContext, Ns, Reader};

use super::{bare_presence, readdressed, send_current};

/// Module declaration.
pub static FEATURE: Feature = Feature {
    name: "presence",
    summary: "Broadcasts presence to contacts.",
    specs: &[Spec {
        name: "RFC 6121",
        title: "XMPP: Instant Messaging and Presence",
        version: "",
        not_implemented: "section 4.3: probes to other servers; the time in the reply to a probe of an \
         offline user",
    }],
    options: &[
        OptionSpec {
            key: "max_bytes",
            kind: feature::OptionKind::Int(1_024, 65_536),
            default: OptionValue::Int(4_096),
            doc: "Maximum size of a broadcast presence, in bytes.",
        },
        OptionSpec {
            key: "allow_iq_without_subscription",
            kind: feature::OptionKind::Bool,
            default: OptionValue::Bool(false),
            doc: "Deliver IQ requests to a full JID even if the sender is not allowed to see its presence, \
             as other servers do. RFC 6121, section 8.5.3.1, refuses them with `service-unavailable`, so that full JIDs cannot be probed.",
        },
    ],
    build,
    ..Feature::EMPTY
};

const fn kind_set(ty: PresenceType) -> StanzaKindSet {
    StanzaKindSet::of(StanzaKind::Presence(ty))
}

fn build(b: &mut FeatureBuilder<'_>) {
    let limit = usize::try_from(b.options.int("max_bytes")).unwrap_or(usize::MAX);
    let outbound = kind_set(PresenceType::Available)
        .union(kind_set(PresenceType::Unavailable))
        .union(kind_set(PresenceType::Probe))
        .union(kind_set(PresenceType::Error));
    b.outgoing(Phase::Notify, Interest::kinds(outbound), move |ctx: &mut OutgoingCtx<'_>| {
        outgoing(ctx, limit)
    });
    b.incoming(Phase::Rewrite, Interest::kinds(kind_set(PresenceType::Probe)), probe);
    b.incoming(Phase::Notify, Interest::kinds(kind_set(PresenceType::Unavailable)), on_unavailable_from);
    b.deliver(Phase::Notify, Interest::kinds(kind_set(PresenceType::Unavailable)), on_delivered_unavailable);
    b.closing(Phase::Notify, closing);
    if b.options.bool("allow_iq_without_subscription") {
        b.iq_without_subscription();
    }
}

fn outgoing(ctx: &mut OutgoingCtx<'_>, limit: usize) -> Flow {
    let StanzaKind::Presence(ty) = ctx.stanza.kind() else { return Flow::Next };
    let taken = match (ty, ctx.to) {
        (PresenceType::Available | PresenceType::Unavailable, None) if ctx.stanza.bytes().len() > limit => {
            let text = format!("the presence is larger than the limit of {limit} bytes");
            Err(StanzaError::new(StanzaCondition::PolicyViolation).text(text))
        }
        (PresenceType::Available, None) => broadcast_available(ctx),
        (PresenceType::Unavailable, None) => {
            broadcast_unavailable(ctx.node, ctx.session, ctx.stanza, true, ctx.effects);
            Ok(())
        }
        (PresenceType::Available | PresenceType::Unavailable, Some(to)) => {
            return directed(ctx, ty, to);
        }
        // Without a recipient there is nothing to send.
        (_, None) => Ok(()),
        _ => return Flow::Next,
    };
    match taken {
        Ok(()) => Flow::Stop(StopReason::Consumed),
        Err(error) => Flow::Stop(StopReason::Refused(error)),
    }
}

/// Sections 4.2.2 and 4.4.2.
fn broadcast_available(ctx: &mut OutgoingCtx<'_>) -> Result<(), StanzaError> {
    let (session, frame) = (ctx.session, &*ctx.stanza);
    let account = &session.account;
    let priority = priority(frame.head(), frame.bytes())?;
    let Some((initial, old)) = session.set_available(frame.clone(), priority) else { return Ok(()) };
    if initial || old != priority {
        ctx.node.announce_readiness(account);
    }
    let effects = &mut *ctx.effects;
    broadcast_to_all(session, frame, effects);
    effects.add(Effect::SendTo(session.clone(), frame.clone()));
    if initial {
        account.for_each_session(|other| {
            if !Arc::ptr_eq(other, session)
                && let Some(presence) = other.with(|state| state.presence.clone())
            {
                effects.add(Effect::SendTo(session.clone(), presence));
            }
        });
        ctx.node.for_each_contact_presence(session, |presence| {
            effects.add(Effect::SendTo(session.clone(), presence.clone()));
        });
        if let Some(peers) = ctx.node.peers() {
            peers.probe_peers(ctx.node, session);
        }
    }
    if initial || old != priority {
        effects.add(Effect::Available(session.clone()));
    }
    Ok(())
}

/// Sends to the contacts and to the other resources of the account.
fn broadcast_to_all(session: &Arc<Session>, frame: &SharedStanza, effects: &mut Effects) {
    effects.add(Effect::Broadcast {
        account: session.account.clone(),
        stanza: frame.clone(),
        to: Subscription::FROM,
    });
    effects.add(Effect::OtherResources { except: session.clone(), stanza: frame.clone() });
}

/// Section 4.5.2, and section 4.6.3 for recipients of directed presence. With `echo` the resource itself also
/// receives it.
fn broadcast_unavailable(
    node: &Arc<Node>,
    session: &Arc<Session>,
    frame: &SharedStanza,
    echo: bool,
    effects: &mut Effects,
) {
    let (was_available, directed) = session.with(|state| {
        session.set_priority(0);
        (state.presence.take().is_some(), state.directed_presence.take())
    });
    session.flags.clear(flags::SINCE_AVAILABLE);
    if was_available {
        node.announce_readiness(&session.account);
        broadcast_to_all(session, frame, effects);
    }
    if echo {
        effects.add(Effect::SendTo(session.clone(), frame.clone()));
    }
    for to in directed.into_iter().flat_map(|list| *list) {
        // Contacts that have become subscribers meanwhile were reached by the broadcast (section 4.6.1).
        if was_available && node.reaches_by_broadcast(&session.account, to.as_ref()) {
            continue;
        }
        let frame = readdressed(frame, session.full(), Some(to.as_ref()));
        effects.route(frame.ok(), session.jid.clone(), to);
    }
}

/// However a session ends, its `unavailable` is the last presence that others receive (section 4.5.2).
fn closing(ctx: &mut ClosingCtx<'_>) -> Flow {
    let known = ctx.session.with(|state| state.presence.is_some() || state.directed_presence.is_some());
    if known && let Some(frame) = bare_presence(ctx.session.full(), None, PresenceType::Unavailable, None) {
        broadcast_unavailable(ctx.node, ctx.session, &frame, false, ctx.effects);
    }
    Flow::Next
}

/// Section 4.6.3: recipients of directed presence receive `unavailable` when the session ends.
fn directed(ctx: &mut OutgoingCtx<'_>, ty: PresenceType, to: JidRef<'_>) -> Flow {
    let account = &ctx.session.account;
    if to.bare() == account.jid.as_ref() {
        return Flow::Next;
    }
    let limit = usize::from(ctx.node.limits().directed_presence_entities);
    // Case 1: subscribers receive it by broadcast anyway.
    let subscriber = ctx.node.reaches_by_broadcast(account, to);
    let fits = ctx.session.with(|state| {
        let known = state.directed_presence.as_ref().and_then(|list| list.iter().position(|d| *d == to));
        match (ty, known) {
            (PresenceType::Unavailable, Some(at)) => {
                if let Some(list) = &mut state.directed_presence {
                    list.swap_remove(at);
                    if list.is_empty() {
                        state.directed_presence = None;
                    }
                }
            }
            (PresenceType::Unavailable, None) | (_, Some(_)) => {}
            _ if subscriber && state.presence.is_some() => {}
            _ => {
                let list = state.directed_presence.get_or_insert_default();
                if list.len() >= limit {
                    return false;
                }
                // Most have one or a few: an exact growth saves three unused places.
                if list.len() == list.capacity() {
                    list.reserve_exact(1 + list.len() / 4);
                }
                list.push(to.to_jid());
            }
        }
        true
    });
    if fits {
        return Flow::Next;
    }
    let text = format!("the limit of {limit} entities with directed presence is reached");
    Flow::Stop(StopReason::Refused(StanzaError::new(StanzaCondition::ResourceConstraint).text(text)))
}

/// Section 4.6.1: an entity that sends unavailable presence does not need ours.
fn on_unavailable_from(ctx: &mut IncomingCtx<'_>) -> Flow {
    if let Some(account) = ctx.account {
        let mut expected = false;
        account.for_each_session(|session| {
            if ctx.to.resource().is_some_and(|resource| resource != session.resource()) {
                return;
            }
            expected |= forget_recipient(session, ctx.from);
        });
        if expected {
            // Delivery comes later and no longer finds the entry.
            ctx.stanza.mark_requested();
        }
    }
    Flow::Next
}

/// Removes a recipient of directed presence. False if it was none.
fn forget_recipient(session: &Session, entity: JidRef<'_>) -> bool {
    session.with(|state| {
        let Some(list) = &mut state.directed_presence else { return false };
        let before = list.len();
        list.retain(|known| *known != entity);
        let found = list.len() < before;
        if list.is_empty() {
            state.directed_presence = None;
        }
        found
    })
}

/// As [`on_unavailable_from`], for a session that is not on the home of the account, where the chain of the stanza has run.
fn on_delivered_unavailable(ctx: &mut DeliverCtx<'_>) -> Flow {
    if !ctx.node.is_single()
        && ctx.session.with(|state| state.directed_presence.is_some())
        && let Some(from) = ctx.stanza.sender()
        && forget_recipient(ctx.session, from.as_ref())
    {
        ctx.stanza.mark_requested();
    }
    Flow::Next
}

/// Section 4.3.2.
fn probe(ctx: &mut IncomingCtx<'_>) -> Flow {
    let (from, to) = (ctx.from, ctx.to);
    let id = ctx.stanza.head().raw_id(ctx.stanza.bytes()).map(str::to_owned);
    let Some(account) = ctx.account else {
        return probe_without_session(ctx, id);
    };
    let own = from.bare() == account.jid.as_ref();
    let visible = if own { Visibility::Visible } else { ctx.node.visibility(to, from) };
    match visible {
        Visibility::Visible => {
            let probe = ProbeOfAccount { node: ctx.node, account, stanza: ctx.stanza, from, to };
            probe.answer(id.as_deref(), true, ctx.effects);
            Flow::Stop(StopReason::Consumed)
        }
        // As for an account without a session. Only the store knows about a prober without one.
        Visibility::NeedsCheck(question) => {
            let (account, from, to) = (account.clone(), from.to_jid(), to.to_jid());
            let (node, stanza) = (ctx.node.clone(), ctx.stanza.clone());
            Flow::Wait(Box::pin(async move {
                let visible = match question.run().await {
                    Ok(visible) => visible,
                    Err(error) => return HandlerOutcome::refused(store_error(error)),
                };
                let mut effects = Effects::default();
                let (from, to) = (from.as_ref(), to.as_ref());
                let probe = ProbeOfAccount { node: &node, account: &account, stanza: &stanza, from, to };
                probe.answer(id.as_deref(), visible, &mut effects);
                HandlerOutcome::consumed(effects)
            }))
        }
    }
}

/// A probe for an account with sessions.
struct ProbeOfAccount<'a> {
    node: &'a Arc<Node>,
    account: &'a Arc<Account>,
    stanza: &'a SharedStanza,
    from: JidRef<'a>,
    to: JidRef<'a>,
}

impl ProbeOfAccount<'_> {
    fn answer(&self, id: Option<&str>, visible: bool, effects: &mut Effects) {
        let ProbeOfAccount { node, account, stanza, from, to } = *self;
        if visible {
            match to.resource() {
                None => {
                    if !send_current(account, from, true, effects) {
                        probe_reply(to, from, PresenceType::Unavailable, id, effects);
                    }
                }
                // A single resource: only its availability, no content.
                Some(resource) => {
                    let there = match account.session(resource) {
                        Some(session) => session.is_available(),
                        None => account.available_peers().iter().any(|peer| peer.as_ref() == to),
                    };
                    if there {
                        probe_reply(to, from, PresenceType::Available, None, effects);
                    } else {
                        probe_reply(to, from, PresenceType::Unavailable, id, effects);
                    }
                }
            }
            return;
        }
        let answered = reply_if_directed(account, from, to, effects);
        let peers = node.peers();
        let asked =
            peers.is_some_and(|peers| peers.probe_directed_elsewhere(node, account, stanza, answered));
        if !answered && !asked {
            probe_reply(to.bare(), from.bare(), PresenceType::Unsubscribed, id, effects);
        }
    }
}

fn probe_reply(from: JidRef<'_>, to: JidRef<'_>, ty: PresenceType, id: Option<&str>, effects: &mut Effects) {
    effects.route(bare_presence(from, Some(to), ty, id), from.to_jid(), to.to_jid());
}

/// Section 4.6.6: a recipient of directed presence may probe whether that resource is still available.
fn reply_if_directed(account: &Account, from: JidRef<'_>, to: JidRef<'_>, effects: &mut Effects) -> bool {
    let mut replied = false;
    account.for_each_session(|session| {
        if to.resource().is_some_and(|resource| resource != session.resource()) {
            return;
        }
        let knows = session.with(|state| {
            state
                .directed_presence
                .as_ref()
                .is_some_and(|list| list.iter().any(|known| known.bare() == from.bare()))
        });
        if knows {
            replied = true;
            probe_reply(session.full(), from, PresenceType::Available, None, effects);
        }
    });
    replied
}

/// The account has no session: the store decides who may learn that. A missing account answers like one that has not
/// approved, so that they cannot be distinguished.
fn probe_without_session(ctx: &IncomingCtx<'_>, id: Option<String>) -> Flow {
    let (node, from, to) = (ctx.node.clone(), ctx.from.to_jid(), ctx.to.to_jid());
    Flow::Wait(Box::pin(async move {
        let contact = from.bare().to_jid();
        let own = contact.as_ref() == to.bare();
        let mut effects = Effects::default();
        match node.stores.roster.subscription(to.bare(), contact.as_ref()).await {
            Err(error) => return HandlerOutcome::refused(store_error(error)),
            Ok(state) if state.contains(Subscription::FROM) || own => {
                let ty = PresenceType::Unavailable;
                probe_reply(to.as_ref(), from.as_ref(), ty, id.as_deref(), &mut effects);
            }
            // Subscriptions are between bare addresses.
            Ok(_) => {
                probe_reply(to.bare(), from.bare(), PresenceType::Unsubscribed, id.as_deref(), &mut effects)
            }
        }
        HandlerOutcome::consumed(effects)
    }))
}

static CLIENT: NamespaceContext = NamespaceContext::client();

/// Section 4.7.2.3: at most one `<priority/>`, an integer from -128 to 127; zero without one.
fn priority(head: &Head, bytes: &[u8]) -> Result<i8, StanzaError> {
    let bad = |text| StanzaError::new(StanzaCondition::BadRequest).text(text);
    if head.child_count == 0 {
        return Ok(0);
    }
    let unreadable = |_| bad("the presence cannot be parsed");
    let mut reader = Reader::new(bytes, &CLIENT, &STANZA_LIMITS).map_err(unreadable)?;
    let (mut depth, mut found, mut inside) = (0_u32, false, false);
    let mut text = String::new();
    while let Some(event) = reader.next().map_err(unreadable)? {
        match event {
            Event::Start(start) => {
                depth += 1;
                if inside {
                    return Err(bad("a priority can contain only a number"));
                }
                if depth == 2 && start.is("priority", Ns::Client) {
                    if found {
                        return Err(bad("a presence can have only one priority"));
                    }
                    (found, inside) = (true, true);
                }
            }
            Event::Text(piece) if inside => text.push_str(&piece.unescape()),
            Event::Text(_) => {}
            Event::End => {
                depth = depth.saturating_sub(1);
                inside &= depth >= 2;
            }
        }
    }
    if !found {
        return Ok(0);
    }
    text.trim().parse().map_err(|_| bad("a priority must be an integer from -128 to 127"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<i8, StanzaCondition> {
        let frame = SharedStanza::parse(text.as_bytes()).unwrap();
        priority(frame.head(), frame.bytes()).map_err(|e| e.condition)
    }

    //= https://www.rfc-editor.org/rfc/rfc6121#section-4.7.2.3
    //= type=test
    //# The value MUST be an integer between -128 and +127.
    //= https://www.rfc-editor.org/rfc/rfc6121#section-4.7.2.3
    //= type=test
    //# A presence stanza MUST NOT contain more than one <priority/> element.
    //= https://www.rfc-editor.org/rfc/rfc6121#section-4.7.2.3
    //= type=test
    //# The <priority/> element MUST NOT contain mixed content (as defined in Section 3.2.2 of [XML]).
    //= https://www.rfc-editor.org/rfc/rfc6121#section-4.7.2.3
    //= type=test
    //# If no priority is provided, the processing server or client MUST consider the priority to be zero ("0").
    #[test]
    fn section_4_7_2_3_priority() {
        assert_eq!(read("<presence/>"), Ok(0));
        assert_eq!(read("<presence><show>away</show></presence>"), Ok(0));
        assert_eq!(read("<presence><priority>1</priority></presence>"), Ok(1));
        assert_eq!(read("<presence><priority> -128 </priority></presence>"), Ok(-128));
        assert_eq!(read("<presence><priority>12<![CDATA[7]]></priority></presence>"), Ok(127));
        let bad = Err(StanzaCondition::BadRequest);
        assert_eq!(read("<presence><priority>128</priority></presence>"), bad);
        assert_eq!(read("<presence><priority>high</priority></presence>"), bad);
        assert_eq!(read("<presence><priority/></presence>"), bad);
        assert_eq!(read("<presence><priority>1<a/></priority></presence>"), bad);
        assert_eq!(read("<presence><priority>1</priority><priority>2</priority></presence>"), bad);
        assert_eq!(read("<presence><x xmlns='u:v'><priority>9</priority></x></presence>"), Ok(0));
        assert_eq!(read("<presence><priority xmlns='u:v'>9</priority></presence>"), Ok(0));
    }
}
