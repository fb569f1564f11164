//! Unique and Stable Stanza IDs: XEP-0359 0.7.0, sections 2.1 and 3.
//!
//! Each message of type chat or normal that arrives for an account gets a `<stanza-id/>` by that account before any
//! other handler sees it, so that the archive, the offline store and all resources use the same id. Ids sort by time
//! ([`base::TimeOrderedId`]), so that an archive pages by them. A message keeps the id that another node gave it. Not
//! stamped: groupchat (the room sets the id), headline and error (never archived), and typing notifications without a
//! body. A `<stanza-id/>` that claims to be by the account or by this server, or whose `by` is not a valid address, is
//! removed from messages of every type that its users send and receive, whether stamping is enabled or not (section
//! 3, rule 2). `<origin-id/>` passes untouched.
//!
//! Not implemented: ids for messages that an account sends, which its own archive assigns; ids that are unpredictable
//! (section 3, rule 1) and reveal nothing (section 6), because they sort by time.
//!
//! # Pitfalls
//!
//! This handler sees every message. A message from a client has room for the id, so that it is not copied; an id is one
//! atomic operation, and only a message with a payload in the namespace is parsed.

use std::cell::RefCell;

use base::TimeOrderedId;
use feature_api::feature::{
    DiscoFeature, Feature, FeatureBuilder, OptionKind, OptionSpec, OptionValue, Spec,
};
use jid::JidRef;
use stanza::{MessageType, PayloadNs, StanzaKindSet};
use throng_core::domains::Domain;
use throng_core::hooks::{Flow, IncomingCtx, Interest, OutgoingCtx, Phase, StopReason};
use throng_core::server_error::unreadable_stanza;
use throng_core::{Node, SharedStanza};
use xml::Ns;

/// Unique and Stable Stanza IDs.
pub static FEATURE: Feature = Feature {
    name: "stanza_id",
    summary: "Assigns each message a unique id that all clients of a user and the archive share.",
    specs: &[Spec {
        name: "XEP-0359",
        title: "Unique and Stable Stanza IDs",
        version: "0.7.0",
        not_implemented: "section 3, rule 1, and section 6: ids sort by time, so they are not unpredictable and reveal when a message arrived",
    }],
    disco: &[DiscoFeature::Server(Ns::StanzaId.as_str()), DiscoFeature::Account(Ns::StanzaId.as_str())],
    options: &[OptionSpec {
        key: "assign_ids",
        kind: OptionKind::Bool,
        default: OptionValue::Bool(true),
        doc: "Assign ids; forged ids are always removed.",
    }],
    build,
    ..Feature::EMPTY
};

const IDENTIFIED_KINDS: StanzaKindSet = StanzaKindSet::of(stanza::StanzaKind::Message(MessageType::Chat))
    .union(StanzaKindSet::of(stanza::StanzaKind::Message(MessageType::Normal)));

fn build(builder: &mut FeatureBuilder<'_>) {
    let claims = Interest::kinds(StanzaKindSet::MESSAGES).payload(PayloadNs::StanzaId);
    builder.outgoing(Phase::Stamp, claims, |ctx: &mut OutgoingCtx<'_>| {
        strip_forged(ctx.stanza, ctx.node, ctx.session.full(), ctx.session.bare())
    });
    builder.incoming(Phase::Stamp, claims, |ctx: &mut IncomingCtx<'_>| {
        strip_forged(ctx.stanza, ctx.node, ctx.from, ctx.to.bare())
    });
    if builder.options.bool("assign_ids") {
        builder.incoming(Phase::Stamp, Interest::kinds(IDENTIFIED_KINDS), |ctx: &mut IncomingCtx<'_>| {
            let head = ctx.stanza.head();
            if head.has_body || !head.payloads().contains(PayloadNs::Chatstates) {
                let id = ctx.stanza_id.unwrap_or_else(|| ctx.node.next_stanza_id());
                if let Err(error) = add_stanza_id(ctx.stanza, id, ctx.to.bare()) {
                    return refused(error);
                }
            }
            Flow::Next
        });
    }
}

/// An unreadable stanza may be forged.
fn refused(error: xml::Error) -> Flow {
    Flow::Stop(StopReason::Refused(unreadable_stanza(error)))
}

/// Removes every `<stanza-id/>` by this account, by a domain of this server (with any resource), by any address of a service
/// or component that did not send the stanza, or by an invalid address.
fn strip_forged(frame: &mut SharedStanza, node: &Node, from: JidRef<'_>, account: JidRef<'_>) -> Flow {
    let domains = node.domains();
    let clean = frame.without(|child, gone| {
        let forged = child.is("stanza-id", Ns::StanzaId)
            && child.attr("by").is_some_and(|by| match jid::parse(&by) {
                Ok(by) => {
                    let by = by.as_ref().bare();
                    by.as_str() == account.as_str()
                        || match domains.find(by.domain()) {
                            Domain::Accounts(_) => by.is_domain(),
                            // A room assigns ids to the messages that it sends.
                            Domain::Service(..) | Domain::Component(_) => by.domain() != from.domain(),
                            Domain::Remote(_) => false,
                        }
                }
                // Not an address, but clients may truncate it to one: `example.com/` to `example.com`.
                Err(_) => true,
            });
        if forged {
            gone.push(child.range());
        }
    });
    match clean {
        Ok(None) => {}
        Ok(Some(clean)) => *frame = clean,
        Err(error) => return refused(error),
    }
    Flow::Next
}

thread_local! {
    /// Buffers in which the child and the new stanza are assembled.
    static BUFFERS: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}
/// Capacity in bytes that the buffers retain between messages; larger ones are freed.
const MAX_RETAINED_BUFFER: usize = 64 * 1024;

/// Adds an id by this account to the message.
fn add_stanza_id(stanza: &mut SharedStanza, id: TimeOrderedId, by: JidRef<'_>) -> Result<(), xml::Error> {
    BUFFERS.with_borrow_mut(|(child, out)| {
        child.clear();
        child.extend_from_slice(b"<stanza-id xmlns='urn:xmpp:sid:0' id='");
        child.extend_from_slice(&id.to_text());
        child.extend_from_slice(b"' by='");
        xml::escape::attr(by.as_str(), child);
        child.extend_from_slice(b"'/>");
        let added = stanza.append_child(child, Ns::StanzaId, out);
        if out.capacity() > MAX_RETAINED_BUFFER {
            *out = Vec::new();
        }
        added
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Clock as _;
    use testkit::{NodeClient, TestNode, assert_same};

    fn engine(assign: bool) -> (TestNode, NodeClient, NodeClient) {
        let engine = TestNode::with_options(&FEATURE, &[("assign_ids", OptionValue::Bool(assign))]);
        engine.create_user("romeo@example.net");
        engine.create_user("juliet");
        let romeo = engine.connect("romeo@example.net", "orchard");
        let juliet = engine.connect("juliet", "balcony");
        juliet.session.with(|state| state.presence = SharedStanza::parse(b"<presence/>"));
        (engine, romeo, juliet)
    }

    fn deliver(romeo: &NodeClient, juliet: &NodeClient, ty: &str, children: &str) -> String {
        romeo.send(&format!("<message to='juliet@example.com/balcony' type='{ty}'>{children}</message>"));
        let mut got = juliet.recv();
        assert_eq!(got.len(), 1, "{got:?}");
        got.remove(0)
    }

    fn expect(ty: &str, children: &str) -> String {
        format!(
            "<message from='romeo@example.net/orchard' to='juliet@example.com/balcony' type='{ty}'>{children}</message>"
        )
    }

    /// The assigned id.
    fn id(text: &str) -> &str {
        let (_, rest) = text.split_once("<stanza-id xmlns='urn:xmpp:sid:0' id='").expect(text);
        rest.split_once('\'').unwrap().0
    }

    #[test]
    fn section_3_1_messages_get_an_id_by_the_account() {
        let (_engine, romeo, juliet) = engine(true);
        for ty in ["chat", "normal"] {
            let got = deliver(&romeo, &juliet, ty, "<body>Typical body text</body>");
            let by = "by='juliet@example.com'";
            let stamp = format!("<stanza-id xmlns='urn:xmpp:sid:0' id='{}' {by}/>", id(&got));
            assert_same(&[&got], &[expect(ty, &format!("<body>Typical body text</body>{stamp}"))]);
        }
    }

    #[test]
    fn messages_that_are_never_archived_get_no_id() {
        let (_engine, romeo, juliet) = engine(true);
        let body = "<body>x</body>";
        let composing = "<composing xmlns='http://jabber.org/protocol/chatstates'/>";
        for (ty, children) in [("headline", body), ("groupchat", body), ("error", body), ("chat", composing)]
        {
            assert_same(&[deliver(&romeo, &juliet, ty, children)], &[expect(ty, children)]);
        }
    }

    #[test]
    fn section_4_rule_2_forged_ids_are_removed_and_others_stay() {
        let (_engine, romeo, juliet) = engine(false);
        let sid = |by: &str| format!("<stanza-id xmlns='urn:xmpp:sid:0' id='forged' by='{by}'/>");
        let (body, foreign) = ("<body>x</body>", sid("room@muc.example.org"));
        let origin = "<origin-id xmlns='urn:xmpp:sid:0' id='de305d54-75b4-431b-adb2-eb6b9e546013'/>";
        for by in [
            "juliet@example.com",
            "JULIET@Example.COM",
            "example.com",
            "example.net",
            "romeo@example.net",
            "juliet@example.com/x",
            "example.com/x",
            "juliet@example.com/",
            "example.com/",
            "@example.com",
            "",
        ] {
            for ty in ["chat", "groupchat"] {
                let got = deliver(&romeo, &juliet, ty, &format!("{}{body}{origin}{foreign}{0}", sid(by)));
                assert_same(&[got], &[expect(ty, &format!("{body}{origin}{foreign}"))]);
            }
        }
    }

    #[test]
    fn a_forged_id_is_replaced_by_ours() {
        let (_engine, romeo, juliet) = engine(true);
        let forged = "<stanza-id xmlns='urn:xmpp:sid:0' id='forged' by='juliet@example.com'/>";
        let got = deliver(&romeo, &juliet, "chat", &format!("<body>x</body>{forged}"));
        assert_eq!(got.matches("<stanza-id").count(), 1);
        assert_ne!(id(&got), "forged");
    }

    #[test]
    fn ids_of_a_node_sort_in_the_order_of_arrival() {
        let (engine, romeo, juliet) = engine(true);
        let mut ids: Vec<String> = Vec::new();
        for at in 0..200 {
            // The clock stands still, advances, and is set back.
            match at % 40 {
                10 => engine.clock.advance(5),
                30 => engine.clock.set_unix_millis(engine.clock.unix_millis() - 60_000),
                _ => {}
            }
            ids.push(id(&deliver(&romeo, &juliet, "chat", "<body>x</body>")).to_owned());
        }
        assert!(ids.iter().all(|id| id.len() == TimeOrderedId::CHARS));
        assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    }
}
