//! Sessions of all nodes: pages of them, those of one account, and one by its address.
//!
//! A page walks the routing table shard by shard, in each shard by address; so a page of a hundred thousand sessions costs
//! one shard and not a sort of all. Data that only the connections have is requested for the sessions on the page
//! ([`access::session_info`]).
//!
//! # Pitfalls
//!
//! A search has to look at all online users; it yields between shards.

use std::sync::Arc;

use access::session_info::{SessionInfo, request_session_info};
use base::printable::printable;
use base::spawn::yield_now;
use jid::Jid;
use serde::{Deserialize, Serialize};
use throng_core::provided::ClientSoftware;
use throng_core::session::flags;
use throng_core::{Account, Node, Session};

use super::account_paging::page_of_shard;
use super::pages::{PageOfNode, check_pages, merge_pages};
use super::{ClusterAnswers, MissingNode, NodeQuery, NodeSelection, PAGE_BYTES, collect_answers};

/// Maximum number of sessions on a page, beyond which the last account of the page may have some.
pub const MAX_PAGE: u32 = 1_000;
/// Maximum bytes of what a client reports about its software.
const MAX_CLIENT_BYTES: usize = 256;

/// A query for sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionQuery {
    /// Only sessions of this domain.
    pub domain: Option<String>,
    /// Only sessions whose address contains this text, in any case.
    pub search: Option<String>,
    /// Only sessions of this account, or the one with this full address; all on one page.
    pub account: Option<String>,
    /// Only sessions of accounts after this one, in the order of pages.
    pub after: Option<String>,
    /// Maximum number of sessions.
    pub limit: u32,
    /// Without what only connections know: transport, address of the client, idle time.
    pub brief: bool,
}

/// A session, as one node describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionRecord {
    /// The full address.
    pub jid: String,
    /// The node to which it is connected.
    pub node: String,
    /// `tcp`, `tls`, `websocket`, `bosh`; `detached` without a connection; `None` if unknown.
    pub transport: Option<String>,
    /// Whether the stream is confidential up to the client.
    pub secure: Option<bool>,
    /// IP address and port of the client.
    pub address: Option<String>,
    /// Software that the client reports.
    pub client: Option<String>,
    /// Seconds since data was received from the client.
    pub idle_seconds: Option<u32>,
    /// Time of the login, in seconds since 1970.
    pub since: u64,
    /// Priority of its presence; `None` if it is not available.
    pub priority: Option<i8>,
    /// Whether stream management is enabled (XEP-0198).
    pub managed: bool,
    /// Whether the client is inactive (XEP-0352).
    pub inactive: bool,
    /// Bytes queued for the client.
    pub queued_bytes: u64,
}

/// The sessions of one node.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SessionsAnswer {
    sessions: Vec<SessionRecord>,
    next: Option<String>,
    total: u64,
}

/// A page of the sessions of all nodes.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionPage {
    /// Whole accounts, in the order of pages.
    pub sessions: Vec<SessionRecord>,
    /// The `after` of the next page; `None` on the last one.
    pub next: Option<String>,
    /// Number of all sessions of the nodes, or of the account.
    pub total: u64,
    /// Nodes whose sessions are missing.
    pub missing: Vec<MissingNode>,
}

/// The address of an account, as `after` has it.
pub fn parse_cursor(text: &str) -> Option<Jid> {
    Jid::parse(text).ok().filter(|jid| jid.local().is_some() && jid.is_bare())
}

/// Sessions of these nodes. `after` must satisfy [`parse_cursor`].
pub async fn sessions(node: &Arc<Node>, nodes: NodeSelection, query: SessionQuery) -> SessionPage {
    let after = query.after.as_deref().and_then(parse_cursor);
    // Those of one account are all on one page.
    let limit = if query.account.is_some() { usize::MAX } else { query.limit as usize };
    let ClusterAnswers { answers, mut missing } =
        collect_answers::<SessionsAnswer>(node, nodes, &NodeQuery::Sessions(query)).await;
    let total = answers.iter().fold(0_u64, |sum, (_, answer)| sum.saturating_add(answer.total));
    let pages = answers.into_iter().map(|(name, answer)| {
        let page = read_page(&name, answer);
        (name, page)
    });
    let pages = check_pages(node, after.as_ref(), pages.collect(), &mut missing);
    let page = merge_pages(node, pages, after.as_ref(), limit);
    SessionPage { sessions: page.items, next: page.next, total, missing }
}

fn read_page(name: &str, answer: SessionsAnswer) -> Option<PageOfNode<SessionRecord>> {
    let items = answer.sessions.into_iter().map(|record| {
        let jid = Jid::parse(&record.jid).ok().filter(|jid| jid.local().is_some())?;
        // The name is that of the node that answered, whatever it says.
        Some((jid.bare().to_jid(), SessionRecord { node: name.to_owned(), ..record }))
    });
    let next = match answer.next {
        Some(text) => Some(parse_cursor(&text)?),
        None => None,
    };
    Some(PageOfNode { items: items.collect::<Option<_>>()?, next })
}

/// The sessions of this node.
pub(super) async fn page_here(node: &Arc<Node>, query: &SessionQuery) -> SessionsAnswer {
    if let Some(account) = &query.account {
        let Ok(jid) = Jid::parse(account) else { return SessionsAnswer::default() };
        let found = node.routing_table.find(jid.as_ref());
        let mut sessions = found.map(|account| account.sessions().to_vec()).unwrap_or_default();
        sessions.retain(|session| jid.resource().is_none_or(|resource| resource == session.resource()));
        let total = sessions.len() as u64;
        return SessionsAnswer { sessions: describe(node, &sessions, query.brief).await, next: None, total };
    }
    let after = query.after.as_deref().and_then(parse_cursor);
    let limit = query.limit.clamp(1, MAX_PAGE) as usize;
    let search = query.search.as_deref().map(str::to_lowercase);
    let holds =
        |account: &Account| query.domain.as_deref().is_none_or(|domain| account.jid.domain() == domain);
    let matches = |session: &Session| {
        search.as_deref().is_none_or(|text| {
            let jid = session.jid.as_str();
            jid.contains(text) || jid.to_lowercase().contains(text)
        })
    };
    let table = &node.routing_table;
    let (mut found, mut next) = (Vec::new(), None);
    'parts: for part in after.as_ref().map_or(0, |jid| table.shard_index(jid.as_ref()))..table.shard_count() {
        for account in page_of_shard(table, part, after.as_ref().map(Jid::as_ref), holds) {
            let sessions = account.sessions().into_iter().filter(|session| matches(session));
            let mut sessions = sessions.peekable();
            if found.len() >= limit && sessions.peek().is_some() {
                break 'parts;
            }
            // All sessions of an account are on one page, since its address is the cursor.
            found.extend(sessions);
            next = Some(account.jid.to_string());
        }
        yield_now().await;
        if part + 1 == table.shard_count() {
            next = None;
        }
    }
    let mut sessions = describe(node, &found, query.brief).await;
    let kept = whole_accounts_within(&sessions, PAGE_BYTES);
    if kept < sessions.len() {
        sessions.truncate(kept);
        let last = sessions.last().and_then(|record| Jid::parse(&record.jid).ok());
        next = last.map(|jid| jid.bare().as_str().to_owned());
    }
    SessionsAnswer { sessions, next, total: table.sessions() as u64 }
}

/// How many records fit into these octets, without dividing an account; at least those of the first one.
fn whole_accounts_within(sessions: &[SessionRecord], octets: usize) -> usize {
    let bare = |record: &SessionRecord| record.jid.split('/').next().map(str::to_owned);
    let (mut used, mut kept) = (0, 0);
    for account in sessions.chunk_by(|one, other| bare(one) == bare(other)) {
        used += serde_json::to_vec(account).map_or(0, |json| json.len());
        if used > octets && kept > 0 {
            break;
        }
        kept += account.len();
    }
    kept
}

async fn describe(node: &Arc<Node>, sessions: &[Arc<Session>], brief: bool) -> Vec<SessionRecord> {
    let info = match brief {
        true => vec![None; sessions.len()],
        false => request_session_info(node, sessions).await,
    };
    sessions.iter().zip(info).map(|(session, info)| session_record(node, session, info)).collect()
}

fn session_record(node: &Node, session: &Session, info: Option<SessionInfo>) -> SessionRecord {
    let now = node.seconds();
    let since = u64::from(now.saturating_sub(node.outboxes.created_at(&session.outbox, now)));
    let transport = match &info {
        Some(info) => Some(info.transport),
        None => session.outbox.is_detached().then_some("detached"),
    };
    SessionRecord {
        jid: session.jid.to_string(),
        node: node.cluster.node().to_string(),
        transport: transport.map(str::to_owned),
        secure: info.as_ref().map(|info| info.secure),
        address: info.as_ref().map(|info| info.peer.to_string()),
        client: client_software(session),
        idle_seconds: info.as_ref().and_then(|info| info.idle_seconds),
        since: (node.clock.unix_millis() / 1000).saturating_sub(since),
        priority: session.priority(),
        managed: session.flags.has(flags::STREAM_MANAGEMENT),
        inactive: session.flags.has(flags::INACTIVE),
        queued_bytes: u64::from(session.outbox.queued_bytes()),
    }
}

fn client_software(session: &Session) -> Option<String> {
    let host = session.account.host();
    let ClientSoftware(software) = host.extensions.get::<ClientSoftware>()?;
    software(session).map(|text| printable(&text, MAX_CLIENT_BYTES).into_owned())
}
