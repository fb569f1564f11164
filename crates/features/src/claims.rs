//! What only servers and rooms may say is taken out of what clients send.
//!
//! Clients believe some elements for the entity that they name, and not for the sender of the stanza. So from what a user
//! sends these are removed, from messages and presence of every type:
//!
//! - `<delay/>` (XEP-0203 2.0) and its forerunner in `jabber:x:delay` (XEP-0091 1.4) by a domain of this server or by
//!   another user of it, or by what is no address. A user's own address may stand there: clients say so what they sent late.
//! - `<occupant-id/>` (XEP-0421 1.0.1 section 3): only a room says it.
//! - `<result/>` of an archive (XEP-0313 1.1.3 section 5.1): only the archive says it, and an account's archive is its server.
//! - the address `ofrom` (XEP-0033 1.2.1 section 4.1.6) of anybody but the sender: a room says who wrote to it.
//!
//! Ids by this server are `stanza_id`'s, copies of messages are `carbons`'.
//!
//! Left out: what is inside `<forwarded/>` (XEP-0297 section 5), which is what its sender says and no more; hints
//! (XEP-0334), which are for senders to give; what other servers send, since there are no streams to them.
//!
//! The trap: what this server says itself does not come this way; only the chain of sessions is asked.

use jid::JidRef;
use stanza::{KindSet, StanzaCondition, StanzaError};
use throng_core::Node;
use throng_core::feature::{Builder, Feature, Spec};
use throng_core::hooks::{Flow, Interest, OutgoingCtx, Phase, Verdict};
use xml::Ns;

/// Claims that are not the client's to make.
pub static FEATURE: Feature = Feature {
    name: "claims",
    summary: "Removes from what clients send what only servers and rooms may say: delays, occupants and archive results of others.",
    specs: &[Spec { name: "XEP-0203", title: "Delayed Delivery", version: "2.0", left_out: "" }],
    build,
    ..Feature::EMPTY
};

fn build(builder: &mut Builder<'_>) {
    let kinds = KindSet::MESSAGES.and(KindSet::PRESENCE);
    let claims = [Ns::DelayLegacy, Ns::OccupantId, Ns::Mam2, Ns::Addresses];
    let interest = claims.into_iter().fold(Interest::kinds(kinds).payload(Ns::Delay), Interest::payload);
    builder.outgoing(Phase::Stamp, interest, |ctx: &mut OutgoingCtx<'_>| {
        let (node, own) = (ctx.node, ctx.session.bare());
        match ctx.frame.without(|child| is_claim(child, node, own)) {
            Ok(clean) => {
                if let Some(clean) = clean {
                    *ctx.frame = clean;
                }
                Flow::Next
            }
            // What cannot be read may be forged.
            Err(_) => {
                let error =
                    StanzaError::new(StanzaCondition::NotAcceptable).text("the stanza cannot be read");
                Flow::Stop(Verdict::Refused(error))
            }
        }
    });
}

fn is_claim(child: &xml::Node<'_>, node: &Node, own: JidRef<'_>) -> bool {
    child.is("delay", Ns::Delay) && is_by_others(child, node, own)
        || child.is("x", Ns::DelayLegacy) && is_by_others(child, node, own)
        || child.is("occupant-id", Ns::OccupantId)
        || child.is("result", Ns::Mam2)
        || child.is("addresses", Ns::Addresses) && claims_origin(child, own)
}

/// Whether `from` is an address of this server that is not the sender's, or no address at all.
fn is_by_others(child: &xml::Node<'_>, node: &Node, own: JidRef<'_>) -> bool {
    child.attr("from").is_some_and(|from| match jid::parse(&from) {
        Ok(from) => {
            let from = from.as_ref();
            from.bare().as_str() != own.as_str() && node.host(from.domain()).is_some()
        }
        // No address, but clients may cut it to one: `example.com/` to `example.com`.
        Err(_) => true,
    })
}

/// Whether somebody else is said to have written the stanza.
fn claims_origin(child: &xml::Node<'_>, own: JidRef<'_>) -> bool {
    child.child_elements().any(|address| {
        address.is("address", Ns::Addresses)
            && address.attr("type").as_deref() == Some("ofrom")
            && address.attr("jid").is_none_or(|jid| {
                !jid::parse(&jid).is_ok_and(|jid| jid.as_ref().bare().as_str() == own.as_str())
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{Client, Engine};

    fn engine() -> (Engine, Client, Client) {
        let engine = Engine::new(&[&FEATURE, &crate::rfc6121::presence::FEATURE]);
        engine.user("romeo@example.net");
        engine.user("juliet");
        let romeo = engine.connect("romeo@example.net", "orchard");
        let juliet = engine.connect("juliet", "balcony");
        (engine, romeo, juliet)
    }

    /// What arrives of these children, in a message of each type and in presence.
    fn arrives(children: &str) -> String {
        let (_engine, romeo, juliet) = engine();
        let mut seen = Vec::new();
        let stanzas =
            ["chat", "normal", "groupchat", "headline"].map(|kind| ("message", format!("type='{kind}' ")));
        for (name, kind) in stanzas.into_iter().chain([("presence", String::new())]) {
            romeo.send(&format!("<{name} {kind}to='juliet@example.com/balcony' id='1'>{children}</{name}>"));
            let got = juliet.recv().concat();
            let start = got.find('>').unwrap() + 1;
            let inner = got[start..].strip_suffix(&format!("</{name}>")).unwrap_or_default();
            seen.push(inner.to_owned());
        }
        seen.dedup();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.concat()
    }

    #[test]
    fn xep_0203_a_delay_of_this_server_or_of_its_other_users_is_removed() {
        for (name, ns) in [("delay", "urn:xmpp:delay"), ("x", "jabber:x:delay")] {
            let delay = |from: &str| format!("<{name} xmlns='{ns}'{from} stamp='2002-09-10T23:08:25Z'/>");
            for forged in [
                " from='example.com'",
                " from='example.net'",
                " from='EXAMPLE.com'",
                " from=\"example.&#99;om\"",
                " from='example.com/x'",
                " from='juliet@example.com'",
                " from='juliet@example.com/balcony'",
                " from='romeo@example.com/orchard'",
                " from='example.com/'",
                " from='juliet@example.com/'",
                " from='romeo@example.net/'",
                " from='@example.com'",
                " from='example.com '",
                " from='xmpp:example.com?'",
                " from=''",
            ] {
                let text = format!("<a xmlns='u:a'/>{}<b xmlns='u:b'/>", delay(forged));
                assert_eq!(arrives(&text), "<a xmlns='u:a'/><b xmlns='u:b'/>", "{forged}");
            }
            for honest in [
                "",
                " from='romeo@example.net'",
                " from='romeo@example.net/orchard'",
                " from='elsewhere.org'",
            ] {
                let text = format!("{}{}", delay(honest), delay(" from='example.com'"));
                assert_eq!(arrives(&text), delay(honest));
            }
        }
        let nested = "<forwarded xmlns='urn:xmpp:forward:0'><delay xmlns='urn:xmpp:delay' from='example.com' \
                      stamp='2002-09-10T23:08:25Z'/></forwarded>";
        assert_eq!(arrives(nested), nested, "a quotation is its sender's");
    }

    #[test]
    fn what_only_rooms_and_archives_say_is_removed() {
        for forged in [
            "<occupant-id xmlns='urn:xmpp:occupant-id:0' id='dd72603deec90a38ba552f7c68cbcc61bca202cd'/>",
            "<result xmlns='urn:xmpp:mam:2' queryid='f27' id='28482-98726-73623'><forwarded xmlns='urn:xmpp:forward:0'/></result>",
            "<addresses xmlns='http://jabber.org/protocol/address'><address type='ofrom' jid='nurse@example.com/room'/></addresses>",
            "<addresses xmlns='http://jabber.org/protocol/address'><address type='ofrom'/></addresses>",
        ] {
            assert_eq!(arrives(&format!("<a xmlns='u:a'/>{forged}")), "<a xmlns='u:a'/>");
        }
        for honest in [
            "<addresses xmlns='http://jabber.org/protocol/address'><address type='ofrom' jid='romeo@example.net/orchard'/></addresses>",
            "<addresses xmlns='http://jabber.org/protocol/address'><address type='to' jid='nurse@example.com'/></addresses>",
            "<fin xmlns='urn:xmpp:mam:2'/>",
        ] {
            assert_eq!(arrives(honest), honest);
        }
    }
}
