//! Client State Indication: XEP-0352 1.0.0.
//!
//! A client reports that its user is not looking at it. From then on deferrable stanzas stay in its queue and wake
//! neither the connection nor the device's radio. They are sent, in order, with the first important stanza, when the
//! client sends anything, when the queue holds 64 kB, or when the client is active again (section 5.1: before its
//! next stanza is answered). Meanwhile a presence replaces the older one of the same sender, and a chat state
//! likewise.
//!
//! Deferrable stanzas, [`can_wait`] (`docs/messages.md` has the same table):
//!
//! | Deferrable | Important |
//! | --- | --- |
//! | presence, available and unavailable | subscriptions, errors, a client's own presence in a room (status 110) |
//! | chat states, receipts, markers, reactions, retractions, alone or together | a body, a subject, anything encrypted, invitations, calls |
//! | headlines; events of nodes (PEP) without a body; the subject of a room | everything that is not understood; errors |
//! | copies of such messages | copies of others, and of a marker that the user's other client sent: it clears the screen |
//! | | every IQ |
//!
//! Prosody's `mod_csi_simple` holds back everything without a body, ejabberd's `mod_client_state` only presence, lone
//! chat states and events. This is nearer to the latter: stanzas that the server does not understand are not delayed.
//!
//! Not implemented: a maximum delay; a choice for each user.
//!
//! # Pitfalls
//!
//! Nothing may be lost here. A deferred message is in the queue like any other, counts towards its limits, and is
//! stored or redirected if the connection breaks. Section 5.2: a resumed stream is active, so resumption must clear
//! [`flags::INACTIVE`].

#[cfg(test)]
mod tests;

use std::sync::Arc;

use feature_api::feature::{self, Feature, FeatureBuilder, OptionSpec, OptionValue, Spec};
use feature_api::stream_elements::{Bind2InlineCtx, NonzaCtx};
use stanza::{MessageTraits, MessageType, PayloadNs, PresenceType, StanzaKind, StanzaKindSet};
use throng_core::hooks::{DeliverCtx, Flow, Interest, Phase};
use throng_core::session::{Urgency, flags};
use throng_core::{Session, SharedStanza, StreamFeature};
use xml::Ns;

/// Client State Indication.
pub static FEATURE: Feature = Feature {
    name: "client_state",
    summary: "Delays unimportant stanzas for inactive clients.",
    specs: &[Spec {
        name: "XEP-0352",
        title: "Client State Indication",
        version: "1.0.0",
        not_implemented: "",
    }],
    stream_features: &[StreamFeature::authenticated("csi", Ns::Csi)],
    options: &[
        OptionSpec {
            key: "presence",
            kind: feature::OptionKind::Bool,
            default: OptionValue::Bool(true),
            doc: "Delay presence.",
        },
        OptionSpec {
            key: "notifications",
            kind: feature::OptionKind::Bool,
            default: OptionValue::Bool(true),
            doc: "Delay chat states, receipts, markers, reactions and retractions.",
        },
        OptionSpec {
            key: "events",
            kind: feature::OptionKind::Bool,
            default: OptionValue::Bool(true),
            doc: "Delay headlines and PubSub events.",
        },
    ],
    build,
    ..Feature::EMPTY
};

/// Stanza classes that the operator allows to be deferred.
#[derive(Clone, Copy, Debug)]
struct CsiRules {
    presence: bool,
    notifications: bool,
    events: bool,
}

fn build(b: &mut FeatureBuilder<'_>) {
    b.nonza(Ns::Csi, "active", |ctx: &mut NonzaCtx<'_>| {
        set_active(ctx.session, true);
        Ok(())
    });
    b.nonza(Ns::Csi, "inactive", |ctx: &mut NonzaCtx<'_>| {
        set_active(ctx.session, false);
        Ok(())
    });
    b.bind2_inline(Ns::Csi, "active", |ctx: &mut Bind2InlineCtx<'_>| set_active(ctx.session, true));
    b.bind2_inline(Ns::Csi, "inactive", |ctx: &mut Bind2InlineCtx<'_>| set_active(ctx.session, false));
    let option = |key| b.options.bool(key);
    let rules = CsiRules {
        presence: option("presence"),
        notifications: option("notifications"),
        events: option("events"),
    };
    let some = Interest::kinds(StanzaKindSet::MESSAGES.union(StanzaKindSet::PRESENCE)).flags(flags::INACTIVE);
    b.deliver(Phase::Notify, some, move |ctx: &mut DeliverCtx<'_>| {
        if can_wait(ctx.stanza, rules) {
            *ctx.urgency = Urgency::Later;
        }
        Flow::Next
    });
}

/// Sets the state (section 4.2). There is no reply.
fn set_active(session: &Arc<Session>, active: bool) {
    if active {
        session.flags.clear(flags::INACTIVE);
        session.outbox.flush();
    } else {
        session.flags.set(flags::INACTIVE);
    }
}

fn can_wait(frame: &SharedStanza, rules: CsiRules) -> bool {
    match frame.kind() {
        StanzaKind::Presence(PresenceType::Available | PresenceType::Unavailable) => {
            rules.presence && !is_self_presence_in_room(frame)
        }
        StanzaKind::Message(ty) => {
            let content = MessageTraits::of(frame.head(), frame.bytes());
            if !content.contains(MessageTraits::COPY) {
                return message_can_wait(ty, content, rules);
            }
            let first = frame.head().first_child;
            let sent = first.is_some_and(|first| first.name.str(frame.bytes()) == "sent");
            match MessageTraits::of_carbon(frame.bytes()) {
                Some((_, content)) if sent && content.contains(MessageTraits::MARKER) => false,
                Some((ty, content)) => message_can_wait(ty, content, rules),
                None => false,
            }
        }
        _ => false,
    }
}

fn message_can_wait(ty: MessageType, content: MessageTraits, rules: CsiRules) -> bool {
    const QUIET: MessageTraits = MessageTraits::STATE
        .union(MessageTraits::REQUEST)
        .union(MessageTraits::RECEIPT)
        .union(MessageTraits::MARKABLE)
        .union(MessageTraits::MARKER)
        .union(MessageTraits::REACTION)
        .union(MessageTraits::RETRACTION)
        .union(MessageTraits::ROOM);
    match ty {
        MessageType::Error => false,
        MessageType::Headline => rules.events,
        MessageType::Groupchat => {
            rules.notifications && content.is_within_ignoring_hints(QUIET.union(MessageTraits::SUBJECT))
        }
        _ if content.contains(MessageTraits::EVENT)
            && content.is_within_ignoring_hints(QUIET.union(MessageTraits::EVENT)) =>
        {
            rules.events
        }
        _ => rules.notifications && content.is_within_ignoring_hints(QUIET),
    }
}

/// Presence of the client itself in a room (XEP-0045), such as its removal from the room.
fn is_self_presence_in_room(frame: &SharedStanza) -> bool {
    if !frame.head().payloads().contains(PayloadNs::MucUser) {
        return false;
    }
    // Stanzas were checked when they were built; an unreadable one is not deferred.
    let Ok(tree) = frame.tree() else { return true };
    tree.root().child("x", Ns::MucUser).is_some_and(|x| {
        x.child_elements()
            .any(|c| c.is("status", Ns::MucUser) && c.attr("code").is_some_and(|code| code == "110"))
    })
}
