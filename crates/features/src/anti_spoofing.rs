//! Removal of elements that only servers and rooms may send from clients' stanzas.
//!
//! Clients attribute some elements to the entity that they name, and not to the sender of the stanza. So these are
//! removed from users' messages and presence of every type:
//!
//! - `<delay/>` (XEP-0203 2.0, section 5) and its legacy form in `jabber:x:delay` (XEP-0091 1.4) by a domain of this
//!   server, by the account of the recipient, which its client treats as its server, or by an invalid address. Other
//!   addresses are allowed: the sender's own, because clients mark messages that they sent late, and those of quoted
//!   entities.
//! - `<occupant-id/>` (XEP-0421 1.0.1, section 3): only a room sends it.
//! - `<result/>` of an archive (XEP-0313 1.1.3, section 5.1): only the archive sends it, and an account's archive is
//!   its server.
//! - the address `ofrom` (XEP-0033 1.2.1, section 4.1.6) of anybody but the sender: a room uses it for the original
//!   sender. Other addresses stay.
//!
//! Ids by this server are handled by `stanza_id`, copies of messages by `carbons`.
//!
//! Not implemented: the contents of `<forwarded/>` (XEP-0297, section 5), which are only a claim of the sender; hints
//! (XEP-0334), which senders may set; stanzas of other servers, since there are no streams to them.
//!
//! # Pitfalls
//!
//! Only the outgoing handlers of sessions run this filter; stanzas that the server creates bypass it.

use std::ops::Range;

use feature_api::feature::{Feature, FeatureBuilder, Spec};
use jid::JidRef;
use stanza::{PayloadNs, StanzaCondition, StanzaError, StanzaKindSet};
use throng_core::Node;
use throng_core::hooks::{Flow, Interest, OutgoingCtx, Phase, StopReason};
use xml::Ns;

/// Removal of elements that only servers and rooms may send.
pub static FEATURE: Feature = Feature {
    name: "anti_spoofing",
    summary: "Removes forged elements from stanzas of clients that only servers and rooms may add: delays, \
     occupants and archive results.",
    specs: &[Spec { name: "XEP-0203", title: "Delayed Delivery", version: "2.0", not_implemented: "" }],
    build,
    ..Feature::EMPTY
};

fn build(builder: &mut FeatureBuilder<'_>) {
    let kinds = StanzaKindSet::MESSAGES.union(StanzaKindSet::PRESENCE);
    let claims = [PayloadNs::DelayLegacy, PayloadNs::OccupantId, PayloadNs::Mam2, PayloadNs::Addresses];
    let interest =
        claims.into_iter().fold(Interest::kinds(kinds).payload(PayloadNs::Delay), Interest::payload);
    builder.outgoing(Phase::Stamp, interest, |ctx: &mut OutgoingCtx<'_>| {
        let (node, own, to) = (ctx.node, ctx.session.bare(), ctx.to);
        match ctx.stanza.without(|child, gone| select_forged(child, node, own, to, gone)) {
            Ok(clean) => {
                if let Some(clean) = clean {
                    *ctx.stanza = clean;
                }
                Flow::Next
            }
            // An unreadable stanza may be forged.
            Err(_) => {
                let error =
                    StanzaError::new(StanzaCondition::NotAcceptable).text("the stanza cannot be parsed");
                Flow::Stop(StopReason::Refused(error))
            }
        }
    });
}

/// Adds the ranges of this child that must be removed.
fn select_forged(
    child: &xml::TreeNode<'_>,
    node: &Node,
    own: JidRef<'_>,
    to: Option<JidRef<'_>>,
    gone: &mut Vec<Range<usize>>,
) {
    if child.is("addresses", Ns::Addresses) {
        let (forged, rest): (Vec<_>, Vec<_>) =
            child.child_elements().partition(|a| claims_original_sender(a, own));
        // The schema requires at least one address.
        if rest.is_empty() && !forged.is_empty() {
            gone.push(child.range());
        } else {
            gone.extend(forged.iter().map(xml::TreeNode::range));
        }
    } else if (child.is("delay", Ns::Delay) || child.is("x", Ns::DelayLegacy))
        && is_own_server(child, node, own, to)
        || child.is("occupant-id", Ns::OccupantId)
        || child.is("result", Ns::Mam2)
    {
        gone.push(child.range());
    }
}

/// Whether the recipient's client treats `from` as its server: a domain of this server, the recipient's own account,
/// or no valid address. Presence without `to` has many recipients, so no other account of this server may be named in
/// it.
fn is_own_server(child: &xml::TreeNode<'_>, node: &Node, own: JidRef<'_>, to: Option<JidRef<'_>>) -> bool {
    child.attr("from").is_some_and(|from| match jid::parse(&from) {
        Ok(from) => {
            let from = from.as_ref();
            let account = from.bare();
            node.host(from.domain()).is_some()
                && account.as_str() != own.as_str()
                && (from.local().is_none() || to.is_none_or(|to| to.bare().as_str() == account.as_str()))
        }
        // Not an address, but clients may truncate it to one: `example.com/` to `example.com`.
        Err(_) => true,
    })
}

/// Whether this address claims another original sender.
fn claims_original_sender(address: &xml::TreeNode<'_>, own: JidRef<'_>) -> bool {
    address.is("address", Ns::Addresses)
        && address.attr("type").as_deref() == Some("ofrom")
        && address
            .attr("jid")
            .is_none_or(|jid| !jid::parse(&jid).is_ok_and(|jid| jid.as_ref().bare().as_str() == own.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{NodeClient, TestNode};

    fn engine() -> (TestNode, NodeClient, NodeClient) {
        let engine = TestNode::new(&[&FEATURE, &crate::rfc6121::presence::FEATURE]);
        engine.create_user("romeo@example.net");
        engine.create_user("juliet");
        let romeo = engine.connect("romeo@example.net", "orchard");
        let juliet = engine.connect("juliet", "balcony");
        (engine, romeo, juliet)
    }

    /// The children that arrive, in a message of each type and in presence.
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
    fn xep_0203_5_a_delay_of_this_server_or_of_the_recipients_account_is_removed() {
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
                " from='nurse@example.com/room'",
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
    fn elements_reserved_for_rooms_and_archives_are_removed() {
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
        let addresses = |inner: &str| {
            format!("<addresses xmlns='http://jabber.org/protocol/address'>{inner}</addresses>")
        };
        let (to, cc) = ("<address type='to' jid='nurse@example.com'/>", "<address type='cc' jid='a@b'/>");
        let forged = "<address type='ofrom' jid='nurse@example.com/room'/>";
        assert_eq!(
            arrives(&addresses(&format!("{forged}{to}{forged}{cc}"))),
            addresses(&format!("{to}{cc}")),
            "the other addresses stay"
        );
    }
}
