//! Message Carbons: XEP-0280 1.0.1, with the wrapping of XEP-0297 1.0 and the hints of XEP-0334 1.0.0.
//!
//! A client that enables carbons gets a copy of every conversation of its account: messages that the account's other
//! clients send (section 8), and incoming messages that were delivered only to others of them (section 7). A copy is
//! put directly into the session's queue; it is not routed, so it is never copied, stored or bounced again (section
//! 10.3).
//!
//! Messages are selected exactly as in section 6.1, which is why `urn:xmpp:carbons:rules:0` is announced;
//! [`eligible`] is the table. Where the text leaves a choice:
//!
//! * `<no-copy/>` alone also prevents copies (XEP-0334, section 4.3), except in errors.
//! * An error is treated like the message that it quotes. One without a quote is copied: the original is unknown, and
//!   an extra copy is better than a message that seems to have arrived.
//! * A message to the account's own address is copied once to each client, as received, and not to its sender.
//! * Only the server writes `<sent/>` and `<received/>`. A user's message that contains one, forged or forwarded, is
//!   refused with `forbidden`: the text leaves detection to clients, and many failed at it (section 11).
//!
//! Not implemented: received copies of messages that no session accepted (they are stored and delivered later), and
//! of messages from the offline store.
//!
//! # Pitfalls
//!
//! Handlers run only for accounts with [`flags::ACCOUNT_CARBONS`]. Code that changes a session's flag must update the
//! account's flag under the account's lock.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::sync::Arc;

use feature_api::feature::{DiscoFeature, Feature, FeatureBuilder, Spec};
use feature_api::stream_elements::Bind2InlineCtx;
use stanza::payload::forward::{self, CarbonDirection};
use stanza::{
    MessageTraits, MessageType, PayloadNs, StanzaCondition, StanzaError, StanzaKind, StanzaKindSet,
};
use throng_core::account::PeerSession;
use throng_core::hooks::{
    ClosingCtx, DeliveredCtx, Flow, IncomingCtx, Interest, OutgoingCtx, Phase, StopReason,
};
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::server_error::unreadable_stanza;
use throng_core::session::flags;
use throng_core::{Account, Effect, Effects, Node, Session, SharedStanza};
use xml::Ns;

/// Message Carbons.
pub static FEATURE: Feature = Feature {
    name: "carbons",
    summary: "Copies messages to all clients of a user.",
    specs: &[
        Spec { name: "XEP-0280", title: "Message Carbons", version: "1.0.1", not_implemented: "" },
        Spec {
            name: "XEP-0297",
            title: "Stanza Forwarding",
            version: "1.0",
            not_implemented: "all except wrapping of carbons",
        },
        Spec {
            name: "XEP-0334",
            title: "Message Processing Hints",
            version: "1.0.0",
            not_implemented: "all except the hints for carbons",
        },
    ],
    disco: &[DiscoFeature::Server(Ns::Carbons2.as_str()), DiscoFeature::Server("urn:xmpp:carbons:rules:0")],
    iq: &[ENABLE, DISABLE, ENABLE_OTHERS, DISABLE_OTHERS],
    build,
    ..Feature::EMPTY
};

const ENABLE: IqKey = IqKey::set(IqTarget::OwnAccount, Ns::Carbons2, "enable");
const DISABLE: IqKey = IqKey::set(IqTarget::OwnAccount, Ns::Carbons2, "disable");
const ENABLE_OTHERS: IqKey = IqKey::set(IqTarget::Account, Ns::Carbons2, "enable");
const DISABLE_OTHERS: IqKey = IqKey::set(IqTarget::Account, Ns::Carbons2, "disable");

fn build(b: &mut FeatureBuilder<'_>) {
    b.iq(ENABLE, |request: &mut IqRequest<'_>| switch(request, true));
    b.iq(DISABLE, |request: &mut IqRequest<'_>| switch(request, false));
    // Sections 4.1 and 5.1.
    b.iq(ENABLE_OTHERS, |_: &mut IqRequest<'_>| IqFlow::error(StanzaCondition::NotAllowed));
    b.iq(DISABLE_OTHERS, |_: &mut IqRequest<'_>| IqFlow::error(StanzaCondition::NotAllowed));
    b.bind2_inline(Ns::Carbons2, "enable", |ctx: &mut Bind2InlineCtx<'_>| {
        set_enabled(ctx.node, ctx.session, true);
    });
    let written = Interest::kinds(StanzaKindSet::MESSAGES).payload(PayloadNs::Carbons2);
    b.outgoing(Phase::Police, written, |ctx: &mut OutgoingCtx<'_>| reject_forged(ctx.stanza));
    b.incoming(Phase::Police, written, |ctx: &mut IncomingCtx<'_>| reject_forged(ctx.stanza));
    let wanted = Interest::kinds(StanzaKindSet::MESSAGES).flags(flags::ACCOUNT_CARBONS);
    b.outgoing(Phase::Copy, wanted, copy_sent);
    b.delivered(Phase::Copy, wanted, copy_received);
    b.closing(Phase::Copy, |ctx: &mut ClosingCtx<'_>| {
        let account = &ctx.session.account;
        if account.flags.has(flags::ACCOUNT_CARBONS) {
            account.with(|state| account.refresh_carbons(state, Some(ctx.session)));
        }
        Flow::Next
    });
}

/// Sections 4, 5 and 10.1: may be repeated any number of times.
fn switch(request: &mut IqRequest<'_>, on: bool) -> IqFlow {
    let Some(session) = request.session else { return IqFlow::error(StanzaCondition::NotAllowed) };
    set_enabled(request.node, session, on);
    IqFlow::empty()
}

fn set_enabled(node: &Arc<Node>, session: &Arc<Session>, on: bool) {
    session.account.with(|state| {
        if on {
            session.flags.set(flags::CARBONS);
        } else {
            session.flags.clear(flags::CARBONS);
        }
        session.account.refresh_carbons(state, None);
    });
    node.report_sessions(&session.account);
}

/// Refuses messages that contain copies: only the server writes them. An unreadable message may contain one.
fn reject_forged(frame: &SharedStanza) -> Flow {
    let content = MessageTraits::of(frame.head(), frame.bytes());
    if content.contains(MessageTraits::UNREADABLE) {
        let error = unreadable_stanza(xml::Error::NotWellFormed("a message that was parsed before"));
        return Flow::Stop(StopReason::Refused(error));
    }
    if !content.contains(MessageTraits::COPY) {
        return Flow::Next;
    }
    let error = StanzaError::new(StanzaCondition::Forbidden).text("only servers send carbons");
    Flow::Stop(StopReason::Refused(error))
}

/// Sent copies (section 8).
fn copy_sent(ctx: &mut OutgoingCtx<'_>) -> Flow {
    let account = &ctx.session.account;
    let Some(to) = ctx.to else { return Flow::Next };
    // Messages to the account itself are copied on the receiving side, which knows the recipient sessions.
    if to.bare() != account.jid.as_ref() {
        let without = std::slice::from_ref(ctx.session);
        send_copies(
            account,
            ctx.stanza,
            CarbonDirection::Sent,
            to.resource().is_some(),
            (without, &[]),
            ctx.effects,
        );
    }
    Flow::Next
}

/// Received copies (section 7).
fn copy_received(ctx: &mut DeliveredCtx<'_>) -> Flow {
    let full = ctx.from.resource();
    let own = full.filter(|_| ctx.from.bare() == ctx.account.jid.as_ref());
    let sender = own.and_then(|resource| ctx.account.session(resource));
    let mut peers = ctx.accepted_by_peers.to_vec();
    peers.extend(own.filter(|_| sender.is_none()).map(Into::into));
    let with_sender: Vec<_>;
    let without = match sender {
        None => ctx.accepted_by,
        Some(sender) => {
            with_sender = ctx.accepted_by.iter().cloned().chain([sender]).collect();
            &with_sender
        }
    };
    let without = (without, &peers[..]);
    send_copies(ctx.account, ctx.stanza, CarbonDirection::Received, full.is_some(), without, ctx.effects);
    Flow::Next
}

/// Section 6.1. `full`: the address of the other party is a full address.
fn eligible(frame: &SharedStanza, direction: CarbonDirection, full: bool) -> bool {
    const NEVER: MessageTraits =
        MessageTraits::PRIVATE.union(MessageTraits::COPY).union(MessageTraits::UNREADABLE);
    const MESSAGING: MessageTraits = MessageTraits::REQUEST
        .union(MessageTraits::RECEIPT)
        .union(MessageTraits::STATE)
        .union(MessageTraits::MARKABLE)
        .union(MessageTraits::MARKER);
    /// Other content of chat messages. An error does not contain the type of the original.
    const QUOTED: MessageTraits = MessageTraits::BODY
        .union(MessageTraits::ENCRYPTED)
        .union(MessageTraits::CORRECTION)
        .union(MessageTraits::REACTION)
        .union(MessageTraits::RETRACTION)
        .union(MessageTraits::CALL);
    let StanzaKind::Message(ty) = frame.kind() else { return false };
    if ty == MessageType::Groupchat {
        return false;
    }
    let content = MessageTraits::of(frame.head(), frame.bytes());
    if content.intersects(NEVER) || content.contains(MessageTraits::NO_COPY) && ty != MessageType::Error {
        return false;
    }
    if content.contains(MessageTraits::INVITE) {
        return true;
    }
    if content.contains(MessageTraits::ROOM) && full && ty != MessageType::Error {
        // A private message of a room: the room itself sends it to all joined clients.
        return direction == CarbonDirection::Sent;
    }
    match ty {
        MessageType::Chat => true,
        // Only the error itself, or the content of the original.
        MessageType::Error => frame.head().child_count <= 1 || content.intersects(MESSAGING.union(QUOTED)),
        MessageType::Normal => content.intersects(MESSAGING.union(MessageTraits::BODY)),
        _ => content.intersects(MESSAGING),
    }
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
/// Capacity in bytes that the buffer retains between messages; larger ones are freed.
const MAX_RETAINED_BUFFER: usize = 64 * 1024;

/// Sends one copy to all sessions with carbons that are not in `without`, nor in `peers` on other nodes. `full`: the other party has a full address.
fn send_copies(
    account: &Arc<Account>,
    frame: &SharedStanza,
    direction: CarbonDirection,
    full: bool,
    (without, peers): (&[Arc<Session>], &[Box<str>]),
    effects: &mut Effects,
) {
    let wants = |s: &Arc<Session>| s.flags.has(flags::CARBONS) && !without.iter().any(|w| Arc::ptr_eq(w, s));
    let wanted = account.with(|state| {
        let peer_wants = |s: &PeerSession| {
            s.flags & flags::CARBONS != 0 && !peers.iter().any(|peer| **peer == *s.resource)
        };
        state.sessions.iter().any(wants)
            || state.peers().iter().flat_map(|peer| &peer.sessions).any(peer_wants)
    });
    if !wanted || !eligible(frame, direction, full) {
        return;
    }
    let copy = BUFFER.with_borrow_mut(|out| {
        let head = forward::carbon_copy(frame.bytes(), frame.head(), direction, account.jid.as_str(), out)?;
        let copy = SharedStanza::new(head, out);
        if out.capacity() > MAX_RETAINED_BUFFER {
            *out = Vec::new();
        }
        Some(copy)
    });
    if let Some(frame) = copy {
        let except = without.iter().cloned().collect();
        effects.add(Effect::Copy {
            account: account.clone(),
            flags: flags::CARBONS,
            except,
            except_peers: peers.to_vec(),
            stanza: frame,
        });
    }
}
