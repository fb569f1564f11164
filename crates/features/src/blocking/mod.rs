//! Blocking Command: XEP-0191 1.3, with abuse reports: XEP-0377 0.4.1.
//!
//! The blocklist belongs to the account and is persistent. Stanzas of a blocked address do not arrive (section 3.3):
//! presence is ignored, messages of type chat and normal and requests are answered with `service-unavailable`,
//! everything else is dropped. Stanzas of the user to a blocked address are refused with `not-acceptable` and
//! `<blocked/>`. Both also hold for users who are not connected; `offline_users` uses the node's cache for them.
//! `presence` implements the effects of a change that contacts see.
//!
//! Where the text leaves a choice:
//!
//! * A user's own account and the server itself are never blocked, whatever the list contains (section 5: *an
//!   implementation must not block communications from one of a user's resources to another*). Blocking one's own
//!   domain blocks its users, not its answers.
//! * Messages of type groupchat and headline are dropped without an error: a room would take an error for the
//!   departure of an occupant who only blocks another one.
//! * Subscriptions stay (section 4, *polite blocking*).
//! * Stored messages of a sender who was blocked later are discarded when they are fetched; a pending subscription
//!   request is shown again after unblocking.
//! * A push contains the requested addresses, even if none of them changed the list.
//! * A report is logged with its reason and text, once for each address that was not blocked before, and is not
//!   forwarded.
//!
//! Not implemented: contacts on other servers (they need server-to-server streams); presence for entries of the form
//! `domain/resource`.
//!
//! # Pitfalls
//!
//! Most handlers run only for accounts with [`flags::ACCOUNT_BLOCKS`], which the engine maintains. Change lists
//! through [`throng_core::account_views::AccountViews::update_blocklist`] only.

mod offline_users;
mod presence;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use feature_api::feature::{self, DiscoFeature, Feature, FeatureBuilder, OptionSpec, OptionValue, Spec};
use jid::{Jid, JidRef};
use stanza::{
    ErrorType, IqType, MessageType, PresenceType, StanzaCondition, StanzaError, StanzaKind, StanzaKindSet,
};
use store::{BlocklistOutcome, Unblock};
use throng_core::hooks::{
    DeliverCtx, Flow, IncomingCtx, Interest, OutgoingCtx, Phase, StopReason, UndeliveredCtx,
};
use throng_core::iq::{IqAnswer, IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::server_error::store_error;
use throng_core::session::flags;
use throng_core::{Account, Effect, Effects, Node, SharedStanza};
use xml::Ns;

/// Blocking Command.
pub static FEATURE: Feature = Feature {
    name: "blocking",
    summary: "Lets users block contacts.",
    specs: &[
        Spec {
            name: "XEP-0191",
            title: "Blocking Command",
            version: "1.3",
            not_implemented: "contacts on other servers",
        },
        Spec {
            name: "XEP-0377",
            title: "Blocking Command Reports",
            version: "0.4.1",
            not_implemented: "section 5: forwarding of reports; they are logged",
        },
    ],
    disco: &[DiscoFeature::Server(Ns::Blocking.as_str()), DiscoFeature::Server(Ns::Reporting.as_str())],
    iq: &[GET, BLOCK, UNBLOCK],
    options: &[OptionSpec {
        key: "max_entries",
        kind: feature::OptionKind::Int(1, 10_000),
        default: OptionValue::Int(1_000),
        doc: "Maximum number of addresses on the blocklist of an account; further ones are refused.",
    }],
    build,
    ..Feature::EMPTY
};

const GET: IqKey = IqKey::get(IqTarget::OwnAccount, Ns::Blocking, "blocklist");
const BLOCK: IqKey = IqKey::set(IqTarget::OwnAccount, Ns::Blocking, "block");
const UNBLOCK: IqKey = IqKey::set(IqTarget::OwnAccount, Ns::Blocking, "unblock");

/// Characters of a report's text that are logged.
const REPORT_CHARS: usize = 256;

fn build(b: &mut FeatureBuilder<'_>) {
    let limit = u32::try_from(b.options.int("max_entries")).unwrap_or_default();
    b.iq(GET, get);
    b.iq(BLOCK, move |request: &mut IqRequest<'_>| handle_change(request, true, limit));
    b.iq(UNBLOCK, move |request: &mut IqRequest<'_>| handle_change(request, false, limit));
    let blocks = Interest::ALL.flags(flags::ACCOUNT_BLOCKS);
    b.outgoing(Phase::Police, blocks, outgoing);
    b.incoming(Phase::Police, blocks, incoming);
    b.incoming(Phase::Police, Interest::kinds(AUTO_ANSWERED), |ctx: &mut IncomingCtx<'_>| {
        match ctx.account {
            Some(_) => offline_users::like_absent(ctx.node, ctx.from, ctx.to),
            None => offline_users::filter(ctx.node, ctx.stanza.kind(), ctx.from, ctx.to),
        }
    });
    b.undelivered(Phase::Police, Interest::kinds(STORABLE), |ctx: &mut UndeliveredCtx<'_>| {
        match ctx.account {
            Some(_) => Flow::Next,
            None => offline_users::filter(ctx.node, ctx.stanza.kind(), ctx.from, ctx.to),
        }
    });
    b.deliver(Phase::Police, Interest::kinds(BYPASSING_INCOMING).flags(flags::ACCOUNT_BLOCKS), deliver);
}

const fn presence(ty: PresenceType) -> StanzaKindSet {
    StanzaKindSet::of(StanzaKind::Presence(ty))
}

const fn message(ty: MessageType) -> StanzaKindSet {
    StanzaKindSet::of(StanzaKind::Message(ty))
}

/// Stanza kinds that the server answers for a user who is not connected.
const AUTO_ANSWERED: StanzaKindSet = presence(PresenceType::Probe)
    .union(presence(PresenceType::Subscribe))
    .union(presence(PresenceType::Subscribed))
    .union(presence(PresenceType::Unsubscribe))
    .union(presence(PresenceType::Unsubscribed))
    .union(StanzaKindSet::of(StanzaKind::Iq(IqType::Get)))
    .union(StanzaKindSet::of(StanzaKind::Iq(IqType::Set)));
/// Stanza kinds that may be stored when no resource accepts them.
const STORABLE: StanzaKindSet = message(MessageType::Chat).union(message(MessageType::Normal));
/// Stanza kinds that reach a session without passing `incoming`: broadcasts and stored messages. Errors are excluded,
/// because they may be the server's own about a blocked address.
const BYPASSING_INCOMING: StanzaKindSet = STORABLE
    .union(presence(PresenceType::Available))
    .union(presence(PresenceType::Unavailable))
    .union(presence(PresenceType::Subscribe));

/// Whether this address can never be blocked: the account itself, and the server.
fn never_blocked(owner: JidRef<'_>, other: JidRef<'_>) -> bool {
    other.bare() == owner.bare() || other.local().is_none() && other.domain() == owner.domain()
}

fn blocks(account: &Account, other: JidRef<'_>) -> bool {
    !never_blocked(account.jid.as_ref(), other) && account.blocks(other)
}

/// Reply to a blocked sender (section 3.3). The engine never answers errors and results.
fn blocked_outcome(kind: StanzaKind) -> StopReason {
    match kind {
        StanzaKind::Message(MessageType::Chat | MessageType::Normal) | StanzaKind::Iq(_) => {
            StopReason::Refused(StanzaCondition::ServiceUnavailable.into())
        }
        StanzaKind::Message(_) | StanzaKind::Presence(_) => StopReason::Consumed,
    }
}

fn incoming(ctx: &mut IncomingCtx<'_>) -> Flow {
    match ctx.account {
        Some(account) if blocks(account, ctx.from) => {
            offline_users::refuse_like_absent(ctx.node, ctx.stanza.kind(), ctx.from, ctx.to)
        }
        _ => Flow::Next,
    }
}

fn outgoing(ctx: &mut OutgoingCtx<'_>) -> Flow {
    match ctx.to {
        Some(to) if blocks(&ctx.session.account, to) => Flow::Stop(StopReason::Refused(
            StanzaError::new(StanzaCondition::NotAcceptable)
                .kind(ErrorType::Cancel)
                .application_condition(Ns::BlockingErrors, "blocked"),
        )),
        _ => Flow::Next,
    }
}

fn deliver(ctx: &mut DeliverCtx<'_>) -> Flow {
    if matches!(ctx.stanza.kind(), StanzaKind::Message(_)) && !ctx.stanza.is_stored() {
        return Flow::Next;
    }
    let Some(from) = ctx.stanza.head().from(ctx.stanza.bytes()) else { return Flow::Next };
    let blocked = jid::parse(&from).is_ok_and(|from| blocks(&ctx.session.account, from.as_ref()));
    if blocked { Flow::Stop(StopReason::Consumed) } else { Flow::Next }
}

/// Section 3.2. The session receives pushes from here on.
fn get(request: &mut IqRequest<'_>) -> IqFlow {
    let Some(session) = request.session else { return IqFlow::error(StanzaCondition::NotAllowed) };
    session.flags.set(flags::BLOCKLIST);
    let list = session.account.blocked();
    IqFlow::result(|w| {
        write_items(w, "blocklist", list.as_ref().map(|list| list.entries()).unwrap_or_default())
    })
}

fn write_items(w: &mut xml::Writer<'_>, name: &str, list: &[Jid]) {
    w.start_ns(name, Ns::Blocking);
    for jid in list {
        w.start("item").attr("jid", jid.as_str()).end();
    }
    w.end();
}

/// Sections 3.3 to 3.5.
fn handle_change(request: &mut IqRequest<'_>, block: bool, limit: u32) -> IqFlow {
    let refuse = |text| IqFlow::error(StanzaError::new(StanzaCondition::NotAllowed).text(text));
    let Some(session) = request.session else { return refuse("this blocklist belongs to another user") };
    if session.flags.has(flags::EPHEMERAL) {
        return refuse("an anonymous user has no blocklist");
    }
    let change = match request.tree().and_then(|tree| parse_request(&tree, block)) {
        Ok(change) => change,
        Err(error) => return IqFlow::error(error),
    };
    let (node, account) = (request.node.clone(), session.account.clone());
    IqFlow::Wait(Box::pin(async move {
        let mut effects = Effects::default();
        let answer = apply_request(&node, &account, change, block, limit, &mut effects).await;
        (answer, effects)
    }))
}

/// Contents of a `<block/>` or `<unblock/>` request.
struct BlocklistRequest {
    /// In the order of the request, without duplicates; an empty list to unblock means all.
    jids: Vec<Jid>,
    reports: Vec<AbuseReport>,
}

/// Abuse report of XEP-0377, section 4.
struct AbuseReport {
    jid: Jid,
    reason: String,
    text: String,
    /// Number of reported message ids.
    messages: usize,
}

fn parse_request(tree: &xml::Tree<'_>, block: bool) -> Result<BlocklistRequest, StanzaError> {
    let bad = |text: &'static str| StanzaError::new(StanzaCondition::BadRequest).text(text);
    let name = if block { "block" } else { "unblock" };
    let list = tree.root().child(name, Ns::Blocking).ok_or_else(|| bad("the list is missing"))?;
    let mut change = BlocklistRequest { jids: Vec::new(), reports: Vec::new() };
    let mut seen = HashSet::new();
    for item in list.child_elements() {
        if !item.is("item", Ns::Blocking) {
            return Err(bad("a list of addresses can contain only items"));
        }
        let jid = item.attr("jid").ok_or_else(|| bad("an item lacks the attribute jid"))?;
        let jid = Jid::parse(&jid)
            .map_err(|error| StanzaError::new(StanzaCondition::JidMalformed).text(error.to_string()))?;
        // A malformed report is ignored (XEP-0377, section 6).
        if block
            && let Some(report) = item.child("report", Ns::Reporting)
            && let Some(reason) = report.attr("reason")
        {
            let text = report.child("text", Ns::Reporting).map(|t| t.text()).unwrap_or_default();
            change.reports.push(AbuseReport {
                jid: jid.clone(),
                reason: reason.chars().take(REPORT_CHARS).collect(),
                text: text.trim().chars().take(REPORT_CHARS).collect(),
                messages: report.child_elements().filter(|c| c.is("stanza-id", Ns::StanzaId)).count(),
            });
        }
        if seen.insert(jid.clone()) {
            change.jids.push(jid);
        }
    }
    if block && change.jids.is_empty() {
        return Err(bad("no address to block was given"));
    }
    Ok(change)
}

async fn apply_request(
    node: &Arc<Node>,
    account: &Arc<Account>,
    change: BlocklistRequest,
    block: bool,
    limit: u32,
    effects: &mut Effects,
) -> IqAnswer {
    let BlocklistRequest { jids, reports } = change;
    let before = account.blocked();
    let listed = before.as_ref().map(|list| list.entries()).unwrap_or_default();
    let bytes: usize = listed.iter().chain(&jids).map(|jid| jid.as_str().len()).sum();
    let max_bytes = node.limits().roster_bytes;
    if block && bytes > max_bytes as usize {
        // A longer list could not be sent: see `NodeLimits::outgoing_stanza_bytes`.
        let text = format!("the blocklist is full; its limit is {max_bytes} bytes");
        return Err(StanzaError::new(StanzaCondition::NotAllowed).text(text).without_request());
    }
    let (add, remove) = match (block, jids.is_empty()) {
        (true, _) => (jids.clone(), Unblock::These(Vec::new())),
        (false, true) => (Vec::new(), Unblock::All),
        (false, false) => (Vec::new(), Unblock::These(jids.clone())),
    };
    let updated = node.account_views().update_blocklist(node, &account.jid, add, remove, limit).await;
    let (outcome, read_elsewhere) = updated.map_err(store_error)?;
    let done = match outcome {
        BlocklistOutcome::NoAccount => return Err(StanzaCondition::ItemNotFound.into()),
        BlocklistOutcome::Full => {
            let text = format!("the blocklist is full; its limit is {limit} addresses");
            return Err(StanzaError::new(StanzaCondition::NotAllowed).text(text).without_request());
        }
        BlocklistOutcome::Changed(done) => done,
    };
    for report in reports.iter().filter(|report| done.added.contains(&report.jid)) {
        tracing::info!(
            by = %account.jid, about = %report.jid, reason = %report.reason, text = %report.text,
            messages = report.messages, "abuse was reported"
        );
    }
    presence::hide_presence(node, account, &done.added, effects);
    presence::restore_presence(node, account, &done.removed, effects);
    // Before anything is awaited: the `unavailable` of a session that ends meanwhile does not reach those that are blocked.
    node.perform(std::mem::take(effects));
    if let Some(peers) = node.peers() {
        peers.exchange_presence_after_block(node, account, (before, account.blocked()), false).await;
    }
    // The user expects that nothing arrives any more when the request is answered (section 3.3).
    read_elsewhere.await;
    let push = SharedStanza::build(|w| {
        w.start("iq").attr("type", "set").attr("id", &base::id::random_id());
        write_items(w, if block { "block" } else { "unblock" }, &jids);
        w.end();
    });
    effects.0.extend(push.map(|frame| Effect::Copy {
        account: account.clone(),
        flags: flags::BLOCKLIST,
        except: Default::default(),
        except_peers: Vec::new(),
        stanza: frame,
    }));
    Ok(Vec::new())
}
