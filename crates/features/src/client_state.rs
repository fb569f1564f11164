//! Client State Indication: XEP-0352 1.0.0.
//!
//! A client says that nobody looks at it. From then on what can wait stays in its queue and wakes neither the connection
//! nor the radio behind it. It leaves, in order, with the first thing that matters, when the client sends anything, when
//! the queue holds 64 kB, or when the client is active again (section 5.1: before what it sends next is answered). While
//! it waits, a presence takes the place of the older one of the same sender, and a chat state that of the older one.
//!
//! What matters and what can wait, [`can_wait`] (`docs/messages.md` has it as a table):
//!
//! | Can wait | Matters |
//! | --- | --- |
//! | presence, available and unavailable | subscriptions, errors, a client's own presence in a room (status 110) |
//! | chat states, receipts, markers, reactions, retractions, alone or together | a body, a subject, anything encrypted, invitations, calls |
//! | headlines; events of nodes (PEP) without a body; the subject of a room | everything that is not understood; errors |
//! | copies of such messages | copies of others, and of a marker that the user's other client sent: it clears the screen |
//! | | every IQ |
//!
//! Prosody's `mod_csi_simple` holds back everything without a body, ejabberd's `mod_client_state` only presence, lone chat
//! states and events. This is nearer to the latter: what the server does not understand is not delayed.
//!
//! Left out: a time after which what waits leaves in any case; a choice for each user.
//!
//! The trap: nothing here may be lost. A message that waits is in the queue like any other, counts for its limits, and goes
//! to the store or elsewhere if the connection breaks. Section 5.2: a resumed stream is active; whoever resumes one clears
//! [`flags::INACTIVE`].

use std::sync::Arc;

use stanza::{Content, Kind, KindSet, MessageType, PresenceType};
use throng_core::feature::{self, Builder, Feature, OptionSpec, Spec, Value};
use throng_core::hooks::{DeliverCtx, Flow, Interest, Phase};
use throng_core::nonza::{InlineCtx, NonzaCtx};
use throng_core::session::{Urgency, flags};
use throng_core::{Frame, Session};
use xml::Ns;

/// Client State Indication.
pub static FEATURE: Feature = Feature {
    name: "client_state",
    summary: "Lets what can wait wait while nobody looks at a client.",
    specs: &[Spec { name: "XEP-0352", title: "Client State Indication", version: "1.0.0", left_out: "" }],
    stream_features: &["<csi xmlns='urn:xmpp:csi:0'/>"],
    options: &[
        OptionSpec {
            key: "presence",
            kind: feature::Kind::Bool,
            default: Value::Bool(true),
            doc: "Let presence wait.",
        },
        OptionSpec {
            key: "notifications",
            kind: feature::Kind::Bool,
            default: Value::Bool(true),
            doc: "Let chat states, receipts, markers, reactions and retractions wait.",
        },
        OptionSpec {
            key: "events",
            kind: feature::Kind::Bool,
            default: Value::Bool(true),
            doc: "Let headlines and events of nodes wait.",
        },
    ],
    build,
    ..Feature::EMPTY
};

/// What the operator lets wait.
#[derive(Clone, Copy, Debug)]
struct Rules {
    presence: bool,
    notifications: bool,
    events: bool,
}

fn build(b: &mut Builder<'_>) {
    b.nonza(Ns::Csi, "active", |ctx: &mut NonzaCtx<'_>| {
        set(ctx.session, true);
        Ok(())
    });
    b.nonza(Ns::Csi, "inactive", |ctx: &mut NonzaCtx<'_>| {
        set(ctx.session, false);
        Ok(())
    });
    b.inline(Ns::Csi, "active", |ctx: &mut InlineCtx<'_>| set(ctx.session, true));
    b.inline(Ns::Csi, "inactive", |ctx: &mut InlineCtx<'_>| set(ctx.session, false));
    let option = |key| b.options.bool(key);
    let rules = Rules {
        presence: option("presence"),
        notifications: option("notifications"),
        events: option("events"),
    };
    let some = Interest::kinds(KindSet::MESSAGES.and(KindSet::PRESENCE)).flags(flags::INACTIVE);
    b.deliver(Phase::Notify, some, move |ctx: &mut DeliverCtx<'_>| {
        if can_wait(ctx.frame, rules) {
            *ctx.urgency = Urgency::Later;
        }
        Flow::Next
    });
}

/// Section 4.2. There is no reply.
fn set(session: &Arc<Session>, active: bool) {
    if active {
        session.flags.clear(flags::INACTIVE);
        session.link.flush();
    } else {
        session.flags.set(flags::INACTIVE);
    }
}

fn can_wait(frame: &Frame, rules: Rules) -> bool {
    match frame.kind() {
        Kind::Presence(PresenceType::Available | PresenceType::Unavailable) => {
            rules.presence && !is_own_in_room(frame)
        }
        Kind::Message(ty) => {
            let content = Content::of(frame.head(), frame.bytes());
            if !content.has(Content::COPY) {
                return message(ty, content, rules);
            }
            let first = frame.head().first;
            let sent = first.is_some_and(|first| first.name.str(frame.bytes()) == "sent");
            match Content::copied(frame.bytes()) {
                Some((_, content)) if sent && content.has(Content::MARKER) => false,
                Some((ty, content)) => message(ty, content, rules),
                None => false,
            }
        }
        _ => false,
    }
}

fn message(ty: MessageType, content: Content, rules: Rules) -> bool {
    const QUIET: Content = Content::STATE
        .and(Content::REQUEST)
        .and(Content::RECEIPT)
        .and(Content::MARKABLE)
        .and(Content::MARKER)
        .and(Content::REACTION)
        .and(Content::RETRACTION)
        .and(Content::ROOM);
    match ty {
        MessageType::Error => false,
        MessageType::Headline => rules.events,
        MessageType::Groupchat => rules.notifications && content.within(QUIET.and(Content::SUBJECT)),
        _ if content.has(Content::EVENT) && content.within(QUIET.and(Content::EVENT)) => rules.events,
        _ => rules.notifications && content.within(QUIET),
    }
}

/// XEP-0045: what a room says of the client itself, such as that it was thrown out.
fn is_own_in_room(frame: &Frame) -> bool {
    if !frame.head().payloads().contains(Ns::MucUser) {
        return false;
    }
    // Frames were checked when they were made; one that cannot be read does not wait.
    let Ok(tree) = frame.tree() else { return true };
    tree.root().child("x", Ns::MucUser).is_some_and(|x| {
        x.child_elements()
            .any(|c| c.is("status", Ns::MucUser) && c.attr("code").is_some_and(|code| code == "110"))
    })
}

#[cfg(test)]
mod tests;
