//! Last Activity: XEP-0012 2.0, sections 3 (offline users), 4 (online users) and 5 (the server).
//!
//! When the last session of an account ends, the time and the status text of its last unavailable presence are
//! stored; the store batches such writes. Running sessions are not touched. Users who may see the account's presence
//! may query it; all others get `forbidden`, whether the account exists or not, and cannot query a resource either
//! (section 4).
//!
//! Not implemented: answering for a resource; a query to a resource is routed to it like any other.
//!
//! # Pitfalls
//!
//! A session's presence is removed in the last phase of the closing chain; this feature has to read it before that.

use feature_api::feature::{DiscoFeature, Feature, FeatureBuilder, Spec};
use stanza::{IqType, PayloadNs, PresenceType, StanzaCondition, StanzaError, StanzaKind, StanzaKindSet};
use store::last_seen::MAX_STATUS_BYTES;
use store::{LastActivity, StoreError};
use throng_core::hooks::{ClosingCtx, Flow, HandlerOutcome, IncomingCtx, Interest, OutgoingCtx, Phase};
use throng_core::iq::{IqAnswer, IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::server_error::store_error;
use throng_core::session::{Extension, flags};
use throng_core::visibility::Visibility;
use xml::Ns;

/// Last Activity.
pub static FEATURE: Feature = Feature {
    name: "last_activity",
    summary: "Reports the last activity of a user to authorized contacts, and the uptime of the server.",
    specs: &[Spec { name: "XEP-0012", title: "Last Activity", version: "2.0", not_implemented: "" }],
    disco: &[
        DiscoFeature::Server(Ns::LastActivity.as_str()),
        DiscoFeature::Account(Ns::LastActivity.as_str()),
    ],
    iq: &[SERVER, OWN, OTHER],
    build,
    ..Feature::EMPTY
};

const SERVER: IqKey = IqKey::get(IqTarget::Server, Ns::LastActivity, "query");
const OWN: IqKey = IqKey::get(IqTarget::OwnAccount, Ns::LastActivity, "query");
const OTHER: IqKey = IqKey::get(IqTarget::Account, Ns::LastActivity, "query");

/// Status text of the last unavailable presence that the session sent.
struct UnavailableStatus(String);
impl Extension for UnavailableStatus {}

fn build(builder: &mut FeatureBuilder<'_>) {
    // Section 5: uptime since the node was started, which is when its clock was created.
    builder.iq(SERVER, |r: &mut IqRequest<'_>| {
        IqFlow::Reply(Ok(answer(u64::from(r.node.clock.now_seconds()), None)))
    });
    // A requester who asks about the own account is online.
    builder.iq(OWN, |_: &mut IqRequest<'_>| IqFlow::Reply(Ok(answer(0, None))));
    builder.iq(OTHER, account_query);
    let get = StanzaKindSet::of(StanzaKind::Iq(IqType::Get));
    builder.incoming(Phase::Police, Interest::kinds(get).payload(PayloadNs::LastActivity), filter_query);
    let unavailable = StanzaKindSet::of(StanzaKind::Presence(PresenceType::Unavailable));
    builder.outgoing(Phase::Archive, Interest::kinds(unavailable), remember_status);
    builder.closing(Phase::Archive, closing);
}

fn answer(seconds: u64, status: Option<&str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    let mut w = xml::Writer::new(&mut out);
    w.start_ns("query", Ns::LastActivity).attr("seconds", &seconds.to_string());
    w.text(status.unwrap_or_default()).end();
    out
}

fn forbidden() -> StanzaError {
    StanzaCondition::Forbidden.into()
}

/// Query to an account (section 3).
fn account_query(request: &mut IqRequest<'_>) -> IqFlow {
    let Some(owner) = request.to else { return IqFlow::error(forbidden()) };
    let question = match request.node.visibility(owner, request.from) {
        Visibility::Visible => return IqFlow::Reply(Ok(answer(0, None))),
        Visibility::NeedsCheck(question) => question,
    };
    let (node, owner) = (request.node.clone(), owner.bare().to_jid());
    IqFlow::wait(async move {
        let found: Result<IqAnswer, StoreError> = async {
            if !question.run().await? {
                return Ok(Err(forbidden()));
            }
            Ok(match node.stores.last_seen.get(owner.as_ref()).await? {
                Some(seen) => {
                    let now = node.clock.unix_millis() / 1000;
                    Ok(answer(now.saturating_sub(seen.at), seen.status.as_deref()))
                }
                // The user has never logged in.
                None => Err(StanzaCondition::ItemNotFound.into()),
            })
        }
        .await;
        found.unwrap_or_else(|error| Err(store_error(error)))
    })
}

/// Section 4: a resource receives queries only from users who may see its presence.
fn filter_query(ctx: &mut IncomingCtx<'_>) -> Flow {
    if ctx.to.resource().is_none() {
        return Flow::Next;
    }
    if ctx.from.bare() == ctx.to.bare() {
        return Flow::Next;
    }
    let question = match ctx.node.visibility(ctx.to, ctx.from) {
        Visibility::Visible => return Flow::Next,
        // Also for an account without a connection: the response must not reveal that.
        Visibility::NeedsCheck(question) => question,
    };
    Flow::Wait(Box::pin(async move {
        match question.run().await {
            Ok(true) => HandlerOutcome::next(),
            Ok(false) => HandlerOutcome::refused(forbidden()),
            Err(error) => HandlerOutcome::refused(store_error(error)),
        }
    }))
}

/// Stores the status text of a broadcast until the session ends.
fn remember_status(ctx: &mut OutgoingCtx<'_>) -> Flow {
    if ctx.to.is_some() {
        return Flow::Next;
    }
    let status = ctx.stanza.tree().ok().and_then(|tree| {
        let text = tree.root().child("status", Ns::Client)?.text().into_owned();
        Some(text).filter(|text| !text.trim().is_empty())
    });
    ctx.session.with(|state| match status {
        Some(mut status) => {
            status.truncate(status.floor_char_boundary(MAX_STATUS_BYTES));
            status.shrink_to_fit();
            state.extensions.insert(UnavailableStatus(status));
        }
        None => drop(state.extensions.remove::<UnavailableStatus>()),
    });
    Flow::Next
}

fn closing(ctx: &mut ClosingCtx<'_>) -> Flow {
    let (session, account) = (ctx.session, &ctx.session.account);
    if session.flags.has(flags::EPHEMERAL) || account.with(|state| state.sessions.len()) > 1 {
        return Flow::Next;
    }
    let status = session.with(|state| {
        let goodbye = state.extensions.remove::<UnavailableStatus>();
        // A session that became available again and then lost its connection has no status.
        goodbye.filter(|_| state.presence.is_none()).map(|goodbye| goodbye.0)
    });
    ctx.node
        .stores
        .last_seen
        .set(account.id, LastActivity { at: ctx.node.clock.unix_millis() / 1000, status });
    Flow::Next
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Subscription;
    use testkit::{NodeClient, TestNode, assert_same};

    fn engine() -> TestNode {
        let engine = TestNode::new(&[&FEATURE, &crate::rfc6121::presence::FEATURE]);
        for user in ["romeo@example.net", "juliet", "nurse"] {
            engine.create_user(user);
        }
        engine.add_contact("juliet", "romeo@example.net", Subscription::FROM);
        engine
    }

    fn ask(client: &NodeClient, to: &str) -> String {
        client.recv();
        client
            .request(&format!("<iq {to} type='get' id='last1'><query xmlns='jabber:iq:last'/></iq>"))
            .remove(0)
    }

    fn result(client: &NodeClient, from: &str, query: &str) -> String {
        format!(
            "<iq {from} to='{}' type='result' id='last1'><query xmlns='jabber:iq:last' {query}</iq>",
            client.full()
        )
    }

    fn is_forbidden(answer: &str) -> bool {
        answer.contains("<error type='auth'><forbidden ")
    }
    const JULIET: &str = "from='juliet@example.com'";

    #[test]
    fn section_3_the_result_holds_the_seconds_since_logout_and_the_status() {
        let engine = engine();
        let romeo = engine.connect("romeo@example.net", "orchard");
        let juliet = engine.connect("juliet", "balcony");
        juliet.send("<presence/>");
        juliet.send("<presence type='unavailable'><status>Heading Home</status></presence>");
        engine.advance(60);
        juliet.close();
        engine.advance(903);
        let want = result(&romeo, JULIET, "seconds='903'>Heading Home</query>");
        assert_same(&[ask(&romeo, "to='juliet@example.com'")], &[want]);
    }

    #[test]
    fn section_3_zero_while_a_resource_is_connected() {
        let engine = engine();
        let romeo = engine.connect("romeo@example.net", "orchard");
        let juliet = ["balcony", "chamber"].map(|resource| engine.connect("juliet", resource));
        let here = result(&romeo, JULIET, "seconds='0'/>");
        assert_same(&[ask(&romeo, "to='juliet@example.com'")], &[&here]);
        assert_same(&[ask(&juliet[0], "")], &[result(&juliet[0], "", "seconds='0'/>")]);
        juliet[0].close();
        engine.advance(10);
        assert_same(&[ask(&romeo, "to='juliet@example.com'")], &[&here]);
        juliet[1].close();
        engine.advance(5);
        assert_same(&[ask(&romeo, "to='juliet@example.com'")], &[result(&romeo, JULIET, "seconds='5'/>")]);
    }

    #[test]
    fn only_the_status_of_a_user_who_left_is_stored() {
        let engine = engine();
        let romeo = engine.connect("romeo@example.net", "orchard");
        for (then, words) in
            [("<presence/>", "/>"), ("<presence type='unavailable'/>", "/>"), ("", ">Bye</query>")]
        {
            let juliet = engine.connect("juliet", "balcony");
            juliet.send("<presence/>");
            juliet.send("<presence type='unavailable'><status>Bye</status></presence>");
            if !then.is_empty() {
                juliet.send(then);
            }
            juliet.close();
            let want = result(&romeo, JULIET, &format!("seconds='0'{words}"));
            assert_same(&[ask(&romeo, "to='juliet@example.com'")], &[want]);
        }
    }

    #[test]
    fn sections_3_and_4_unauthorized_queries_get_the_same_error_for_every_account() {
        let engine = engine();
        let nurse = engine.connect("nurse", "hall");
        for to in
            ["juliet@example.com", "nobody@example.com", "juliet@example.com/balcony", "nobody@example.com/x"]
        {
            assert!(is_forbidden(&ask(&nurse, &format!("to='{to}'"))), "{to}");
        }
        let juliet = engine.connect("juliet", "balcony");
        for to in ["juliet@example.com", "juliet@example.com/balcony", "juliet@example.com/none"] {
            assert!(is_forbidden(&ask(&nurse, &format!("to='{to}'"))), "{to}");
        }
        assert!(juliet.recv().is_empty(), "the question is not delivered");
    }

    #[test]
    fn section_4_a_query_of_a_resource_is_answered_by_that_resource() {
        let engine = engine();
        let romeo = engine.connect("romeo@example.net", "orchard");
        let juliet = engine.connect("juliet", "balcony");
        juliet.send("<presence/>");
        juliet.recv();
        romeo.send(
            "<iq to='juliet@example.com/balcony' type='get' id='last2'><query xmlns='jabber:iq:last'/></iq>",
        );
        assert_eq!(juliet.recv().len(), 1);
        let gone = ask(&romeo, "to='juliet@example.com/none'");
        assert!(gone.contains("<service-unavailable "), "{gone}");
    }

    #[test]
    fn section_5_the_server_reports_its_uptime() {
        let engine = engine();
        let nurse = engine.connect("nurse", "hall");
        let before = u64::from(engine.node.clock.now_seconds());
        engine.advance(120);
        let want = result(&nurse, "from='example.com'", &format!("seconds='{}'/>", before + 120));
        assert_same(&[ask(&nurse, "to='example.com'")], &[want]);
    }

    #[test]
    fn a_user_who_never_logged_in_is_not_found_and_guests_are_not_recorded() {
        let engine = engine();
        let romeo = engine.connect("romeo@example.net", "orchard");
        assert!(ask(&romeo, "to='juliet@example.com'").contains("<item-not-found "));
        engine.store_calls();
        engine.connect_anonymous("guest", "x").close();
        assert!(!engine.store_calls().contains(&"last_seen.set"));
        engine.set_store_failing(true);
        assert!(ask(&romeo, "to='juliet@example.com'").contains("<resource-constraint "));
    }

    #[test]
    fn logins_and_sessions_need_no_store_access() {
        let engine = engine();
        engine.store_calls();
        let juliet = engine.connect("juliet", "balcony");
        juliet.send("<presence><status>here</status></presence>");
        assert_eq!(engine.store_calls(), ["logins.secrets", "logins.login"]);
        juliet.close();
        assert_eq!(engine.store_calls(), ["last_seen.set"]);
    }
}
