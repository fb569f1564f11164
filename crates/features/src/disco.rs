//! Service Discovery: XEP-0030 2.5.0, sections 3 (information) and 4 (items), for the domain, its services and its
//! accounts. The items of the domain are its services.
//!
//! Answers come from the declarations of the enabled features; see [`feature_api::disco`]. Another account's
//! information is available to users who may see its presence, with its resources as items. All others get the same
//! answer as for a missing account (section 8).
//!
//! Not implemented: publishing (section 5, deprecated).
//!
//! # Pitfalls
//!
//! Visibility of presence is decided by the target's roster, never the requester's, and the target may be offline:
//! then the store is queried.

use std::borrow::Cow;
use std::sync::Arc;

use feature_api::disco::{
    AccountNodePage, AccountNodes, DiscoInfo, DiscoItem, DiscoNode, DiscoQuery, HostDisco, SharedAccountNodes,
};
use feature_api::feature::{DiscoFeature, Feature, FeatureBuilder, Spec};
use stanza::payload::rsm::RsmResponse;
use stanza::{StanzaCondition, StanzaError};
use store::Subscription;
use throng_core::Account;
use throng_core::iq::{IqAnswer, IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::server_error::store_error;
use throng_core::service::Service;
use throng_core::visibility::Visibility;
use xml::{Ns, Writer};

/// Service Discovery.
pub static FEATURE: Feature = Feature {
    name: "disco",
    summary: "Service discovery for the server, its services and its accounts.",
    specs: &[Spec {
        name: "XEP-0030",
        title: "Service Discovery",
        version: "2.5.0",
        not_implemented: "section 5: publication of items",
    }],
    disco: &[
        DiscoFeature::Server(Ns::DiscoInfo.as_str()),
        DiscoFeature::Server(Ns::DiscoItems.as_str()),
        DiscoFeature::Account(Ns::DiscoInfo.as_str()),
        DiscoFeature::Account(Ns::DiscoItems.as_str()),
        DiscoFeature::Service(Ns::DiscoInfo.as_str()),
        DiscoFeature::Service(Ns::DiscoItems.as_str()),
    ],
    iq: &[
        SERVER_INFO,
        SERVER_ITEMS,
        OWN_INFO,
        OWN_ITEMS,
        OTHER_INFO,
        OTHER_ITEMS,
        SERVICE_INFO,
        SERVICE_ITEMS,
    ],
    build,
    ..Feature::EMPTY
};

const SERVER_INFO: IqKey = IqKey::get(IqTarget::Server, Ns::DiscoInfo, "query");
const SERVER_ITEMS: IqKey = IqKey::get(IqTarget::Server, Ns::DiscoItems, "query");
const OWN_INFO: IqKey = IqKey::get(IqTarget::OwnAccount, Ns::DiscoInfo, "query");
const OWN_ITEMS: IqKey = IqKey::get(IqTarget::OwnAccount, Ns::DiscoItems, "query");
const OTHER_INFO: IqKey = IqKey::get(IqTarget::Account, Ns::DiscoInfo, "query");
const OTHER_ITEMS: IqKey = IqKey::get(IqTarget::Account, Ns::DiscoItems, "query");
const SERVICE_INFO: IqKey = IqKey::get(IqTarget::Service, Ns::DiscoInfo, "query");
const SERVICE_ITEMS: IqKey = IqKey::get(IqTarget::Service, Ns::DiscoItems, "query");

fn build(builder: &mut FeatureBuilder<'_>) {
    builder.iq(SERVER_INFO, |r: &mut IqRequest<'_>| {
        if let Some(answer) = node_info(r, IqTarget::Server) {
            return IqFlow::Reply(answer);
        }
        IqFlow::Reply(requested_node(r).and_then(|node| info(&HostDisco::of(r.host).server, node.as_deref())))
    });
    builder.iq(OWN_INFO, |r: &mut IqRequest<'_>| {
        if let Some(answer) = node_info(r, IqTarget::OwnAccount) {
            return IqFlow::Reply(answer);
        }
        if let Some(answer) = node_elsewhere(r) {
            return answer;
        }
        IqFlow::Reply(
            requested_node(r).and_then(|node| info(&HostDisco::of(r.host).account, node.as_deref())),
        )
    });
    builder.iq(OTHER_INFO, |r: &mut IqRequest<'_>| other_info(r).unwrap_or_else(IqFlow::error));
    builder.iq(SERVER_ITEMS, |r: &mut IqRequest<'_>| {
        if let Some(answer) = node_items(r, IqTarget::Server) {
            return IqFlow::Reply(answer);
        }
        let known = &HostDisco::of(r.host).server.alias_nodes;
        IqFlow::Reply(requested_node(r).and_then(|node| match node {
            // The node of XEP-0115 is another name for the domain, and has no items.
            Some(node) if !known.contains(&node) => Err(StanzaCondition::ItemNotFound.into()),
            Some(node) => Ok(items(Some(&node), None, &AccountNodePage::default())),
            None => Ok(services(&r.host.services)),
        }))
    });
    builder.iq(OWN_ITEMS, |r: &mut IqRequest<'_>| {
        if let Some(answer) = node_items(r, IqTarget::OwnAccount) {
            return IqFlow::Reply(answer);
        }
        if let Some(answer) = node_elsewhere(r) {
            return answer;
        }
        if requested_node(r).is_ok_and(|node| node.is_some()) {
            return IqFlow::error(StanzaCondition::ItemNotFound);
        }
        let account = r.session.map(|session| session.account.clone());
        match account_nodes(r) {
            None => IqFlow::Reply(Ok(items(None, account.as_deref(), &AccountNodePage::default()))),
            Some(nodes) => {
                let nodes = nodes.list(r);
                IqFlow::wait(async move { Ok(items(None, account.as_deref(), &nodes.await?)) })
            }
        }
    });
    builder.iq(OTHER_ITEMS, |r: &mut IqRequest<'_>| other_items(r).unwrap_or_else(IqFlow::error));
    builder.iq(SERVICE_INFO, |r: &mut IqRequest<'_>| {
        IqFlow::Reply(requested_node(r).and_then(|node| {
            match r.service.and_then(|one| HostDisco::of(r.host).service(one)) {
                Some(service) => info(service, node.as_deref()),
                None => Err(StanzaCondition::ServiceUnavailable.into()),
            }
        }))
    });
    // A service with items answers this request itself.
    builder.iq(SERVICE_ITEMS, |r: &mut IqRequest<'_>| {
        IqFlow::Reply(requested_node(r).and_then(|node| match node {
            Some(_) => Err(StanzaCondition::ItemNotFound.into()),
            None => Ok(items(None, None, &AccountNodePage::default())),
        }))
    });
}

/// Nodes of accounts that a feature keeps in the store.
fn account_nodes<'a>(request: &IqRequest<'a>) -> Option<&'a dyn AccountNodes> {
    request.host.extensions.get::<SharedAccountNodes>().map(|nodes| &*nodes.0)
}

/// The answer to a query of such a node.
fn node_elsewhere(request: &IqRequest<'_>) -> Option<IqFlow> {
    let nodes = account_nodes(request)?;
    let name = requested_node(request).ok()?.filter(|name| !name.is_empty())?;
    let is_alias = HostDisco::of(request.host).account.alias_nodes.contains(&name);
    (!is_alias).then(|| nodes.answer(request))
}

/// Information of a node that a feature registers.
fn node_info(request: &IqRequest<'_>, target: IqTarget) -> Option<IqAnswer> {
    let name = requested_node(request).ok()??;
    let found = ask_disco_nodes(request, target, &name, |node, query| node.info(query))?;
    Some(found.map(|found| query_element(Ns::DiscoInfo, Some(&name), |w| found.write(w))))
}

/// Items of a node that a feature registers.
fn node_items(request: &IqRequest<'_>, target: IqTarget) -> Option<IqAnswer> {
    let name = requested_node(request).ok()??;
    let found = ask_disco_nodes(request, target, &name, |node, query| node.items(query))?;
    Some(found.map(|found| {
        query_element(Ns::DiscoItems, Some(&name), |w| {
            for item in found {
                write_item(w, &item);
            }
        })
    }))
}

fn write_item(w: &mut Writer<'_>, item: &DiscoItem) {
    w.start("item").attr("jid", &item.jid).attr_opt("node", item.node.as_deref());
    w.attr_opt("name", Some(item.name.as_str()).filter(|n| !n.is_empty())).end();
}

fn ask_disco_nodes<T>(
    request: &IqRequest<'_>,
    target: IqTarget,
    name: &str,
    ask: impl Fn(&dyn DiscoNode, &DiscoQuery<'_>) -> Option<T>,
) -> Option<Result<T, StanzaError>> {
    let to = match (request.to, target) {
        (Some(to), _) => to,
        (None, IqTarget::Server) => request.host.jid.as_ref(),
        (None, _) => request.from.bare(),
    };
    let query = DiscoQuery { node: request.node, host: request.host, target, from: request.from, to, name };
    HostDisco::of(request.host).nodes.iter().find_map(|node| match node.refusal(&query) {
        Some(error) => Some(Err(error)),
        None => ask(&**node, &query).map(Ok),
    })
}

/// The `node` attribute of the request.
fn requested_node(request: &IqRequest<'_>) -> Result<Option<String>, StanzaError> {
    let tree = request.tree()?;
    let node = tree.root().child_elements().next().and_then(|query| query.attr("node"));
    Ok(node.map(Cow::into_owned))
}

/// Section 3.1; with a node section 3.2, which requires it to be mirrored.
fn info(info: &DiscoInfo, node: Option<&str>) -> IqAnswer {
    if node.is_some_and(|node| !info.alias_nodes.iter().any(|n| n == node)) {
        return Err(StanzaCondition::ItemNotFound.into());
    }
    Ok(query_element(Ns::DiscoInfo, node, |w| info.write(w)))
}

/// Section 4.1: an account's available resources are its items, and its nodes.
fn items(node: Option<&str>, account: Option<&Account>, page: &AccountNodePage) -> Vec<u8> {
    let account = account.filter(|_| !page.is_continued);
    query_element(Ns::DiscoItems, node, |w| {
        for session in account.map(Account::sessions).unwrap_or_default() {
            if session.is_available() {
                w.start("item").attr("jid", session.jid.as_str()).end();
            }
        }
        for jid in account.map(Account::available_peers).unwrap_or_default() {
            w.start("item").attr("jid", jid.as_str()).end();
        }
        for item in &page.nodes {
            write_item(w, item);
        }
        if page.is_page {
            let name = |item: &DiscoItem| item.node.clone().unwrap_or_default();
            let ends = page.nodes.first().map(name).zip(page.nodes.last().map(name));
            let ends = ends.as_ref().map(|(first, last)| (first.as_str(), last.as_str()));
            RsmResponse { first_and_last: ends, index: None, count: None }.write(w);
        }
    })
}

/// The items of a domain.
fn services(services: &[Arc<Service>]) -> Vec<u8> {
    query_element(Ns::DiscoItems, None, |w| {
        for service in services {
            w.start("item").attr("jid", service.address()).attr("name", service.name).end();
        }
    })
}

fn query_element(ns: Ns, node: Option<&str>, content: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    let mut w = Writer::new(&mut out);
    w.start_ns("query", ns).attr_opt("node", node);
    content(&mut w);
    w.end();
    out
}

/// Section 8, rule 1: `service-unavailable` for users who may not see the account's presence.
fn other_info(request: &IqRequest<'_>) -> Result<IqFlow, StanzaError> {
    if let Some(answer) = node_info(request, IqTarget::Account) {
        return Ok(IqFlow::Reply(answer));
    }
    if let Some(answer) = node_elsewhere(request) {
        return Ok(answer);
    }
    let node = requested_node(request)?;
    let Some(to) = request.to else { return Ok(IqFlow::error(StanzaCondition::ServiceUnavailable)) };
    let host = request.host.clone();
    let answer = move |trusted: bool| match trusted {
        true => info(&HostDisco::of(&host).account, node.as_deref()),
        false => Err(StanzaCondition::ServiceUnavailable.into()),
    };
    let question = match request.node.visibility(to, request.from) {
        Visibility::Visible => return Ok(IqFlow::Reply(answer(true))),
        Visibility::NeedsCheck(question) => question,
    };
    Ok(IqFlow::wait(async move {
        match question.run().await {
            Ok(trusted) => answer(trusted),
            Err(error) => Err(store_error(error)),
        }
    }))
}

/// Section 8, rule 2: no items for users who may not see the account's presence. Without a connected resource there
/// are no items for anybody, so the store need not be queried.
fn other_items(request: &IqRequest<'_>) -> Result<IqFlow, StanzaError> {
    if let Some(answer) = node_items(request, IqTarget::Account) {
        return Ok(IqFlow::Reply(answer));
    }
    if let Some(answer) = node_elsewhere(request) {
        return Ok(answer);
    }
    let node = requested_node(request)?;
    let account = request.to.and_then(|to| request.node.routing_table.find(to));
    let trusted = account
        .as_ref()
        .is_some_and(|a| request.node.subscription(a, request.from).contains(Subscription::FROM));
    let check = account.as_ref().and_then(|a| request.node.check_contact_elsewhere(a, request.from));
    let answer = move |trusted: bool, nodes: &AccountNodePage| match account.filter(|_| trusted) {
        Some(_) if node.is_some() => Err(StanzaCondition::ItemNotFound.into()),
        account => Ok(items(node.as_deref(), account.as_deref(), nodes)),
    };
    let check = check.filter(|_| !trusted);
    let nodes = account_nodes(request).map(|nodes| nodes.list(request));
    if check.is_none() && nodes.is_none() {
        return Ok(IqFlow::Reply(answer(trusted, &AccountNodePage::default())));
    }
    Ok(IqFlow::wait(async move {
        let trusted = match check {
            Some(check) => check.run().await.map_err(store_error)?,
            None => trusted,
        };
        let nodes = match nodes {
            Some(nodes) => nodes.await?,
            None => AccountNodePage::default(),
        };
        answer(trusted, &nodes)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{NodeClient, TestNode, assert_same};

    fn engine() -> TestNode {
        let engine = TestNode::new(&[&FEATURE, &crate::ping::FEATURE]);
        for user in ["romeo@example.net", "juliet", "nurse"] {
            engine.create_user(user);
        }
        engine
    }

    fn ask(client: &NodeClient, to: &str, what: &str) -> Vec<String> {
        client.request(&format!(
            "<iq {to} id='1' type='get'><query xmlns='http://jabber.org/protocol/disco#{what}'/></iq>"
        ))
    }

    fn reply(client: &NodeClient, from: &str, payload: &str) -> String {
        format!("<iq type='result' {from} to='{}' id='1'>{payload}</iq>", client.full())
    }

    fn error(client: &NodeClient, from: &str, what: &str, kind: &str, condition: &str) -> String {
        format!(
            "<iq type='error' {from} to='{}' id='1'><query xmlns='http://jabber.org/protocol/disco#{what}'/>\
             <error type='{kind}'><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>",
            client.full()
        )
    }
    const ACCOUNT: &str = "<query xmlns='http://jabber.org/protocol/disco#info'>\
        <identity category='account' type='registered'/>\
        <feature var='http://jabber.org/protocol/disco#info'/>\
        <feature var='http://jabber.org/protocol/disco#items'/><feature var='urn:xmpp:ping'/></query>";
    const NO_ITEMS: &str = "<query xmlns='http://jabber.org/protocol/disco#items'/>";

    //= https://www.rfc-editor.org/rfc/rfc6120#section-8.1.2.1
    //= type=test
    //# When the server generates a stanza on its own behalf for delivery to the client from the server itself, the
    //# stanza MUST include a 'from' attribute whose value is the bare JID
    #[test]
    fn section_3_1_the_server_reports_its_identity() {
        let engine = engine();
        let romeo = engine.connect("romeo@example.net", "orchard");
        let server = ACCOUNT.replace("account' type='registered'", "server' type='im' name='Throng'");
        assert_same(
            &ask(&romeo, "to='example.net'", "info"),
            &[reply(&romeo, "from='example.net'", &server)],
        );
        assert_same(
            &ask(&romeo, "to='example.com'", "info"),
            &[reply(&romeo, "from='example.com'", &server)],
        );
        assert_same(
            &ask(&romeo, "to='example.net'", "items"),
            &[reply(&romeo, "from='example.net'", NO_ITEMS)],
        );
    }

    #[test]
    fn section_3_1_the_server_answers_for_the_users_own_account() {
        let engine = engine();
        let romeo = engine.connect("romeo@example.net", "orchard");
        assert_same(&ask(&romeo, "", "info"), &[reply(&romeo, "", ACCOUNT)]);
        let own = "to='romeo@example.net'";
        assert_same(&ask(&romeo, own, "info"), &[reply(&romeo, "from='romeo@example.net'", ACCOUNT)]);
    }

    #[test]
    fn section_3_2_an_unknown_node_is_not_found() {
        let engine = engine();
        let romeo = engine.connect("romeo@example.net", "orchard");
        for to in ["to='example.net'", ""] {
            for what in ["info", "items"] {
                let answer = romeo.request(&format!(
                    "<iq {to} id='1' type='get'>\
                     <query xmlns='http://jabber.org/protocol/disco#{what}' node='music'/></iq>"
                ));
                assert!(
                    answer[0].contains("<error type='cancel'><item-not-found"),
                    "{to} {what}: {answer:?}"
                );
            }
        }
    }

    #[test]
    fn section_8_only_presence_subscribers_can_query_the_account() {
        let engine = engine();
        engine.add_contact("juliet", "romeo@example.net", Subscription::FROM);
        let romeo = engine.connect("romeo@example.net", "orchard");
        let nurse = engine.connect("nurse", "hall");
        let (to, from) = ("to='juliet@example.com'", "from='juliet@example.com'");
        let mut juliet = None;
        for connected in [false, true] {
            if connected {
                juliet = Some(engine.connect("juliet", "balcony"));
            }
            assert_same(&ask(&romeo, to, "info"), &[reply(&romeo, from, ACCOUNT)]);
            assert_same(
                &ask(&nurse, to, "info"),
                &[error(&nurse, from, "info", "cancel", "service-unavailable")],
            );
            assert_same(&ask(&nurse, to, "items"), &[reply(&nurse, from, NO_ITEMS)]);
        }
        drop(juliet);
    }

    #[test]
    fn section_4_1_available_resources_are_an_accounts_items() {
        let engine = engine();
        engine.add_contact("juliet", "romeo@example.net", Subscription::FROM);
        let romeo = engine.connect("romeo@example.net", "orchard");
        let juliet = ["balcony", "chamber", "hidden"].map(|r| engine.connect("juliet", r));
        for client in &juliet[..2] {
            client.session.with(|state| state.presence = throng_core::SharedStanza::parse(b"<presence/>"));
        }
        let items = "<query xmlns='http://jabber.org/protocol/disco#items'>\
             <item jid='juliet@example.com/balcony'/><item jid='juliet@example.com/chamber'/></query>";
        assert_same(&ask(&juliet[2], "", "items"), &[reply(&juliet[2], "", items)]);
        let (to, from) = ("to='juliet@example.com'", "from='juliet@example.com'");
        assert_same(&ask(&romeo, to, "items"), &[reply(&romeo, from, items)]);
        let nurse = engine.connect("nurse", "hall");
        assert_same(&ask(&nurse, to, "items"), &[reply(&nurse, from, NO_ITEMS)]);
    }

    //= https://www.rfc-editor.org/rfc/rfc6120#section-8.3.3.7
    //= type=test
    //# Security Warning: An application MUST NOT return this error if doing so would provide information about the
    //# intended recipient's network availability to an entity that is not authorized to know such information (for
    //# a more detailed discussion of presence authorization, refer to the discussion of presence subscriptions in
    //# [XMPP-IM]); instead it MUST return a <service-unavailable/> stanza error (Section 8.3.3.19).
    //= https://www.rfc-editor.org/rfc/rfc6120#section-8.3.3.19
    //= type=test
    //# Security Warning: An application MUST return a <service-unavailable/> stanza error (Section 8.3.3.19)
    //# instead of <item-not-found/>
    //= https://www.rfc-editor.org/rfc/rfc6120#section-13.10.2
    //= type=test
    //# Although presence is discussed more fully in [XMPP-IM], it is important to note that an XMPP server MUST NOT
    //# leak presence.
    //= https://www.rfc-editor.org/rfc/rfc6120#section-13.10.2
    //= type=test
    //# To help prevent such a presence leak, a server MUST NOT return different stanza errors depending on whether
    //# a potential attacker sends XML stanzas to the entity's bare JID
    #[test]
    fn section_8_a_missing_account_looks_like_an_inaccessible_one() {
        let engine = engine();
        let nurse = engine.connect("nurse", "hall");
        let (to, from) = ("to='tybalt@example.com'", "from='tybalt@example.com'");
        assert_same(
            &ask(&nurse, to, "info"),
            &[error(&nurse, from, "info", "cancel", "service-unavailable")],
        );
        assert_same(&ask(&nurse, to, "items"), &[reply(&nurse, from, NO_ITEMS)]);
    }

    #[test]
    fn a_failing_store_is_reported_as_an_error() {
        let engine = engine();
        let nurse = engine.connect("nurse", "hall");
        engine.set_store_failing(true);
        let answer = ask(&nurse, "to='juliet@example.com'", "info");
        assert!(answer[0].contains("<resource-constraint "), "{answer:?}");
    }
}
