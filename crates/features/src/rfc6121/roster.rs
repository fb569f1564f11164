//! Contact list: RFC 6121, section 2, with roster versions (section 2.6, which replaces XEP-0237).
//!
//! The roster that the login read answers the first request, so a login needs no further query of the store. It is
//! dropped when the resource becomes available, because clients that never request it must not hold it in memory.
//!
//! An entry is stored under the bare address.
//!
//! Not implemented: interim pushes (section 2.6.3). A client with an older version gets the whole roster, which the
//! section allows; a client with the current one gets an empty result, unless it may have missed a push of another node.
//!
//! # Pitfalls
//!
//! Entries without `IN_ROSTER` are shadows (unanswered requests). They are never shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use feature_api::feature::{Feature, FeatureBuilder, OptionKind, OptionSpec, OptionValue, Spec};
use jid::Jid;
use stanza::{ErrorType, PresenceType, StanzaCondition, StanzaError};
use store::{RosterItem, RosterSnapshot, RosterUpdate, RosterUpdateOutcome, StoreError, Subscription};
use throng_core::hooks::{AvailableCtx, ClosingCtx, Flow, Phase};
use throng_core::iq::{IqAnswer, IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::server_error::store_error;
use throng_core::session::flags;
use throng_core::{Account, Effects, Node, StreamFeature};
use xml::{Ns, Writer};

use super::{apply_roster_change, bare_presence, send_unavailable, write_item};

/// Module declaration.
pub static FEATURE: Feature = Feature {
    name: "roster",
    summary: "Stores the roster of each account and pushes changes to its clients.",
    specs: &[
        Spec {
            name: "RFC 6121",
            title: "XMPP: Instant Messaging and Presence",
            version: "",
            not_implemented: "section 2.6.3: interim pushes; an outdated client receives the full roster",
        },
        Spec {
            name: "XEP-0237",
            title: "Roster Versioning",
            version: "1.3",
            not_implemented: "interim pushes",
        },
    ],
    stream_features: &[StreamFeature::authenticated("ver", Ns::RosterVer)],
    iq: &[GET, SET, OTHERS_GET, OTHERS_SET],
    options: &[
        OptionSpec {
            key: "max_name_bytes",
            kind: OptionKind::Int(16, 65_536),
            default: OptionValue::Int(1023),
            doc: "Maximum length of the name of a contact, in bytes.",
        },
        OptionSpec {
            key: "max_group_bytes",
            kind: OptionKind::Int(16, 65_536),
            default: OptionValue::Int(1023),
            doc: "Maximum length of the name of a group, in bytes.",
        },
        OptionSpec {
            key: "max_groups_per_contact",
            kind: OptionKind::Int(1, 1_000),
            default: OptionValue::Int(50),
            doc: "Maximum number of groups per contact.",
        },
    ],
    build,
    ..Feature::EMPTY
};

const GET: IqKey = IqKey::get(IqTarget::OwnAccount, Ns::Roster, "query");
const SET: IqKey = IqKey::set(IqTarget::OwnAccount, Ns::Roster, "query");
const OTHERS_GET: IqKey = IqKey::get(IqTarget::Account, Ns::Roster, "query");
const OTHERS_SET: IqKey = IqKey::set(IqTarget::Account, Ns::Roster, "query");

/// Limits of one entry; bytes, bytes, count.
#[derive(Clone, Copy)]
struct ItemLimits {
    name: usize,
    group: usize,
    groups: usize,
}

fn build(b: &mut FeatureBuilder<'_>) {
    let option = |key| usize::try_from(b.options.int(key)).unwrap_or_default();
    let bounds = ItemLimits {
        name: option("max_name_bytes"),
        group: option("max_group_bytes"),
        groups: option("max_groups_per_contact"),
    };
    b.iq(GET, get);
    b.iq(SET, move |request: &mut IqRequest<'_>| set(request, bounds));
    b.iq(OTHERS_GET, |_: &mut IqRequest<'_>| forbidden());
    b.iq(OTHERS_SET, |_: &mut IqRequest<'_>| forbidden());
    // Last, so that other handlers have had the roster of the login.
    b.available(Phase::Notify, |ctx: &mut AvailableCtx<'_>| {
        ctx.session.account.with(|state| drop(state.take_prefetched()));
        Flow::Next
    });
    b.closing(Phase::Notify, |ctx: &mut ClosingCtx<'_>| {
        ctx.session.account.with(|state| drop(state.take_prefetched()));
        Flow::Next
    });
}

fn forbidden() -> IqFlow {
    IqFlow::error(StanzaError::new(StanzaCondition::Forbidden).text("this roster belongs to another user"))
}

/// Sections 2.1.3 and 2.2.
fn get(request: &mut IqRequest<'_>) -> IqFlow {
    let Some(session) = request.session else { return forbidden() };
    let (has_item, known) = match request.tree() {
        Err(error) => return IqFlow::error(error),
        Ok(tree) => match tree.root().child("query", Ns::Roster) {
            None => (false, None),
            Some(query) => (
                query.child("item", Ns::Roster).is_some(),
                query.attr("ver").map(std::borrow::Cow::into_owned),
            ),
        },
    };
    if has_item {
        return IqFlow::error(
            StanzaError::new(StanzaCondition::BadRequest).text("a roster get must not contain an item"),
        );
    }
    // Pushes start here, so no change after the answer is missed.
    session.flags.set(flags::INTERESTED);
    if known.is_some() {
        session.flags.set(flags::ROSTER_VERSIONS);
    }
    // Before the roster is read: what is missed later is not in it. In one step: another thread may set it at any time.
    let missed = session.flags.clear(flags::MAY_LACK_ROSTER_PUSH);
    let known = known.filter(|_| !missed);
    let account = &session.account;
    if session.flags.has(flags::EPHEMERAL) {
        return IqFlow::Reply(Ok(result(&RosterSnapshot { version: 0, items: Vec::new() })));
    }
    // Another login may have read it before the change that this client has missed.
    let prefetched = account.with(|state| state.take_prefetched()).filter(|_| !missed);
    if let Some(roster) = prefetched {
        return IqFlow::Reply(Ok(roster_answer(&roster, known.as_deref())));
    }
    let (node, session) = (request.node.clone(), session.clone());
    IqFlow::wait(async move {
        match read_consistent(&node, &session.account).await {
            Ok(roster) => Ok(roster_answer(&roster, known.as_deref())),
            Err(error) => {
                if missed {
                    session.flags.set(flags::MAY_LACK_ROSTER_PUSH);
                }
                Err(store_error(error))
            }
        }
    })
}

/// Reads the roster; once more if it changed meanwhile, because the push of that change may have been sent already.
async fn read_consistent(node: &Arc<Node>, account: &Arc<Account>) -> Result<RosterSnapshot, StoreError> {
    let jid = account.jid.as_ref();
    let epoch = node.roster_epoch(jid);
    let roster = node.stores.roster.get(account.id).await?;
    // Another node may have changed it: the view is read later.
    let is_current = account.with(|state| state.roster_version) <= roster.version;
    if is_current && node.roster_epoch(jid) == epoch {
        return Ok(roster);
    }
    node.stores.roster.get(account.id).await
}

fn roster_answer(roster: &RosterSnapshot, known: Option<&str>) -> Vec<u8> {
    if known.is_some_and(|ver| ver == roster.version.to_string()) { Vec::new() } else { result(roster) }
}

fn result(roster: &RosterSnapshot) -> Vec<u8> {
    let mut out = Vec::with_capacity(96 + 96 * roster.items.len());
    let mut w = Writer::new(&mut out);
    w.start_ns("query", Ns::Roster).attr("ver", &roster.version.to_string());
    for item in &roster.items {
        if item.subscription.contains(Subscription::IN_ROSTER) {
            write_item(&mut w, item);
        }
    }
    w.end();
    out
}

/// Parsed roster set.
struct RosterSet {
    jid: Jid,
    name: Option<String>,
    groups: Vec<String>,
    remove: bool,
}

/// Sections 2.3 to 2.5.
fn set(request: &mut IqRequest<'_>, bounds: ItemLimits) -> IqFlow {
    let Some(session) = request.session else { return forbidden() };
    if session.flags.has(flags::EPHEMERAL) {
        return IqFlow::error(
            StanzaError::new(StanzaCondition::NotAllowed).text("an anonymous user has no roster"),
        );
    }
    let roster_set = match request.tree().and_then(|tree| parse_roster_set(&tree, bounds)) {
        Ok(roster_set) => roster_set,
        Err(error) => return IqFlow::error(error),
    };
    let (node, account) = (request.node.clone(), session.account.clone());
    if roster_set.remove {
        return IqFlow::Wait(Box::pin(remove_item(node, account, roster_set.jid)));
    }
    if roster_set.jid.as_ref() == session.bare() {
        return IqFlow::error(
            StanzaError::new(StanzaCondition::NotAllowed).text("you cannot add yourself as a contact"),
        );
    }
    if let Err(error) = check_contact_fits(&node, &account, &roster_set.jid) {
        return IqFlow::error(error);
    }
    IqFlow::Wait(Box::pin(store_item(node, account, roster_set)))
}

/// Whether the roster has room for this contact. Shadows count as well, so a roster never exceeds its limit.
pub(super) fn check_contact_fits(node: &Node, account: &Account, contact: &Jid) -> Result<(), StanzaError> {
    let limit = node.limits().roster_items as usize;
    let hash = node.routing_table.hash(contact.as_ref());
    // Another contact with the same hash lets the roster grow by one, which is harmless.
    if account.with(|state| state.contacts().len() < limit || state.may_contain(hash)) {
        return Ok(());
    }
    let text = format!("the roster is full; its limit is {limit} contacts");
    Err(StanzaError::new(StanzaCondition::PolicyViolation).text(text))
}

/// Bytes left in the roster, at least `needed` if there are as many: its size is read only if the account does not know
/// of that many from before. Concurrent additions are not counted; they are a few entries at most.
pub(super) async fn roster_bytes_left(
    node: &Node,
    account: &Account,
    needed: u64,
) -> Result<u64, StanzaError> {
    if account.with(|state| state.fits_in_roster(needed)) {
        return Ok(needed);
    }
    let version = account.with(|state| state.roster_version);
    let size = node.stores.roster.size(account.id).await.map_err(store_error)?;
    let room = u64::from(node.limits().roster_bytes).saturating_sub(size.bytes);
    account.with(|state| {
        // A change that was applied meanwhile may not be in that size.
        if state.roster_version == version {
            state.set_roster_bytes_free(room);
        }
    });
    Ok(room)
}

/// Error for a roster whose entries exceed the size limit.
pub(super) fn roster_too_large(node: &Node) -> StanzaError {
    let limit = node.limits().roster_bytes;
    let text = format!("the roster is full; the limit for addresses, names and groups is {limit} bytes");
    StanzaError::new(StanzaCondition::PolicyViolation).text(text)
}

async fn store_item(node: Arc<Node>, account: Arc<Account>, roster_set: RosterSet) -> (IqAnswer, Effects) {
    let RosterSet { jid, name, groups, .. } = roster_set;
    let mut effects = Effects::default();
    let mut item = RosterItem::new(jid.clone());
    item.subscription = Subscription::IN_ROSTER;
    (item.name, item.groups) = (name, groups);
    let room = match roster_bytes_left(&node, &account, item.bytes()).await {
        Ok(room) => room,
        Err(error) => return (Err(error), effects),
    };
    let refused = Arc::new(AtomicBool::new(false));
    let refuse = refused.clone();
    let change = move |before: Option<RosterItem>| {
        let bytes = before.as_ref().map_or(0, RosterItem::bytes);
        if let Some(before) = before {
            let subscription = before.subscription | item.subscription;
            item = RosterItem { name: item.name, groups: item.groups, subscription, ..before };
        }
        // An entry of an oversized roster may still shrink.
        if item.bytes() > bytes + room {
            refuse.store(true, Ordering::Relaxed);
            return RosterUpdate::Keep;
        }
        RosterUpdate::Put(item)
    };
    match node.stores.roster.update(account.id, &jid, Box::new(change)).await {
        Err(error) => (Err(store_error(error)), effects),
        Ok(_) if refused.load(Ordering::Relaxed) => (Err(roster_too_large(&node)), effects),
        Ok(done) => {
            apply_roster_change(&node, account.jid.as_ref(), &jid, &done, true, &mut effects);
            (Ok(Vec::new()), effects)
        }
    }
}

/// Section 2.5. An unanswered request stays, because removing the entry is no answer (section 3.1.3).
async fn remove_item(node: Arc<Node>, account: Arc<Account>, jid: Jid) -> (IqAnswer, Effects) {
    let change = |before: Option<RosterItem>| match before {
        Some(mut item) if item.subscription.contains(Subscription::IN_ROSTER) => {
            item.subscription = if item.subscription.contains(Subscription::PENDING_IN) {
                Subscription::PENDING_IN
            } else {
                Subscription::NONE
            };
            RosterUpdate::Put(item)
        }
        _ => RosterUpdate::Keep,
    };
    let mut effects = Effects::default();
    let done: RosterUpdateOutcome = match node.stores.roster.update(account.id, &jid, Box::new(change)).await
    {
        Err(error) => return (Err(store_error(error)), effects),
        Ok(done) => done,
    };
    let had = done.before.as_ref().map(|item| item.subscription).unwrap_or_default();
    if !had.contains(Subscription::IN_ROSTER) {
        let error = StanzaError::new(StanzaCondition::ItemNotFound)
            .kind(ErrorType::Modify)
            .text("this contact is not in the roster");
        return (Err(error), effects);
    }
    let owner = account.jid.as_ref();
    apply_roster_change(&node, owner, &jid, &done, true, &mut effects);
    let tell = |ty, effects: &mut Effects| {
        let id = base::id::random_id();
        let frame = bare_presence(owner, Some(jid.as_ref()), ty, Some(&id));
        effects.route(frame, account.jid.clone(), jid.clone());
    };
    // A pending request is also withdrawn (appendix A.2.2).
    if had.contains(Subscription::TO) || had.contains(Subscription::PENDING_OUT) {
        tell(PresenceType::Unsubscribe, &mut effects);
    }
    if had.contains(Subscription::FROM) {
        send_unavailable(&account, jid.as_ref(), &mut effects);
        tell(PresenceType::Unsubscribed, &mut effects);
    }
    (Ok(Vec::new()), effects)
}

/// Parses and checks a roster set (sections 2.1.5 and 2.3.3). `ask`, `approved` and values of `subscription` other
/// than `remove` are set by the server only and ignored.
fn parse_roster_set(tree: &xml::Tree<'_>, bounds: ItemLimits) -> Result<RosterSet, StanzaError> {
    let bad = |text: &'static str| StanzaError::new(StanzaCondition::BadRequest).text(text);
    let not_acceptable = |text: String| StanzaError::new(StanzaCondition::NotAcceptable).text(text);
    let query = tree.root().child("query", Ns::Roster).ok_or_else(|| bad("the query is missing"))?;
    let mut items = query.child_elements().filter(|c| c.is("item", Ns::Roster));
    let (Some(item), None) = (items.next(), items.next()) else {
        return Err(bad("a roster set must contain exactly one item"));
    };
    let jid = item.attr("jid").ok_or_else(|| bad("the item lacks the attribute jid"))?;
    let jid = jid::parse(&jid)
        .map_err(|error| StanzaError::new(StanzaCondition::JidMalformed).text(error.to_string()))?;
    let jid = jid.as_ref().bare().to_jid();
    if item.attr("subscription").is_some_and(|s| s == "remove") {
        return Ok(RosterSet { jid, name: None, groups: Vec::new(), remove: true });
    }
    // Section 2.4.1: an empty name counts as none.
    let name = item.attr("name").map(std::borrow::Cow::into_owned).filter(|name| !name.is_empty());
    if name.as_ref().is_some_and(|name| name.len() > bounds.name) {
        return Err(not_acceptable(format!("a name can have at most {} bytes", bounds.name)));
    }
    let mut groups: Vec<String> = Vec::new();
    for group in item.child_elements().filter(|c| c.is("group", Ns::Roster)) {
        let group = group.text().into_owned();
        if group.is_empty() {
            return Err(not_acceptable("a group requires a name".to_owned()));
        }
        if group.len() > bounds.group {
            return Err(not_acceptable(format!(
                "the name of a group can have at most {} bytes",
                bounds.group
            )));
        }
        if groups.contains(&group) {
            return Err(bad("a group occurs twice"));
        }
        if groups.len() == bounds.groups {
            return Err(not_acceptable(format!("a contact can be in at most {} groups", bounds.groups)));
        }
        groups.push(group);
    }
    Ok(RosterSet { jid, name, groups, remove: false })
}
