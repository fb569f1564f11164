//! Announcements to all online users: XEP-0133 1.3.1, section 4.23.
//!
//! An announcement is a headline (RFC 6121, section 5.2.2) from the domain and is not stored for users who are
//! offline. All recipients share one stanza; the recipient's address is inserted while writing. Every node of a cluster sends
//! it to its own sessions.
//!
//! # Pitfalls
//!
//! A million queues may be filled here. The task yields after every [`YIELD_EVERY`] accounts, so that the connections
//! which it woke write before more are woken, and other stanzas are still routed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::lock::LeafMutex;
use base::spawn::yield_now;
use feature_api::feature::FeatureBuilder;
use stanza::{MessageType, StanzaKind};
use throng_commands::cluster_admin::describe_missing;
use throng_commands::cluster_admin::online_users::count_online_users;
use throng_commands::{
    Command, CommandCall, CommandError, CommandErrorKind, CommandField, CommandFieldKind, CommandFuture,
    CommandOutput, RegisterCommands, TokenScope,
};
use throng_core::feature_notice::NoticeCtx;
use throng_core::router::OnlineFilter;
use throng_core::session::ToRewrite;
use throng_core::{Account, Node, Session, SharedStanza};

use super::{FORM_TYPE, node};

/// Accounts that are processed before the task yields.
const YIELD_EVERY: usize = 256;
/// The notice with the stanza, for the other nodes.
const NOTICE: &str = "announcement";
/// Limit of announcements of a domain in progress that began here.
const MAX_CONCURRENT: usize = 4;
/// Limit of announcements of a domain that other nodes have made and that wait here: those of 16 nodes.
const MAX_RECEIVED: usize = 16 * MAX_CONCURRENT;

const TEXT: CommandField =
    CommandField::new("text", "announcement", "Announcement", CommandFieldKind::Lines).required();

/// Send Announcement to Online Users: XEP-0133, section 4.23.
pub(super) static ANNOUNCE: Command = Command {
    name: "announce",
    node: node!("announce"),
    title: "Send Announcement to Active Users",
    doc: "Sends a message to all online users.",
    form_type: FORM_TYPE,
    input: &[TEXT],
    scope: TokenScope::Messages,
    ..Command::EMPTY
};

/// Number of announcements in progress.
#[derive(Default)]
struct RunningAnnouncements(AtomicUsize);

/// Permit for one announcement; released on drop.
struct AnnouncementPermit(Arc<RunningAnnouncements>);

impl Drop for AnnouncementPermit {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Announcements of other nodes. One task makes them in their order.
#[derive(Default)]
struct ReceivedAnnouncements(LeafMutex<ReceivedQueue>);

#[derive(Default)]
struct ReceivedQueue {
    waiting: VecDeque<SharedStanza>,
    /// A task makes them.
    running: bool,
}

impl ReceivedAnnouncements {
    /// Adds one, and returns the permit of a task if none is running. One too many is dropped.
    fn push(self: &Arc<Self>, frame: SharedStanza) -> Option<ReceivedPermit> {
        let mut queue = self.0.lock();
        if queue.waiting.len() >= MAX_RECEIVED {
            drop(queue);
            tracing::warn!("an announcement of another node is dropped, because {MAX_RECEIVED} others wait");
            return None;
        }
        queue.waiting.push_back(frame);
        let start = !std::mem::replace(&mut queue.running, true);
        start.then(|| ReceivedPermit { queue: self.clone(), ended: false })
    }
}

/// Permit of the task that makes received announcements. A task that panicked does not prevent the next one.
struct ReceivedPermit {
    queue: Arc<ReceivedAnnouncements>,
    ended: bool,
}

impl ReceivedPermit {
    /// The next announcement. After the last one the permit has ended.
    fn next(&mut self) -> Option<SharedStanza> {
        let mut queue = self.queue.0.lock();
        let next = queue.waiting.pop_front();
        if next.is_none() {
            queue.running = false;
            self.ended = true;
        }
        next
    }
}

impl Drop for ReceivedPermit {
    fn drop(&mut self) {
        if !self.ended {
            self.queue.0.lock().running = false;
        }
    }
}

pub(super) fn build(builder: &mut FeatureBuilder<'_>) {
    let under = builder.shared_state(RunningAnnouncements::default);
    let received = builder.shared_state(ReceivedAnnouncements::default);
    builder.command(&ANNOUNCE, move |call: CommandCall| -> CommandFuture {
        let under = under.clone();
        Box::pin(async move { announce(&call, &under).await })
    });
    builder.notice(NOTICE, move |ctx: &NoticeCtx<'_>| on_notice(ctx, &received));
}

/// Another node makes an announcement.
fn on_notice(ctx: &NoticeCtx<'_>, received: &Arc<ReceivedAnnouncements>) {
    // One that was missed is not repeated.
    let Some(frame) = ctx.content.and_then(SharedStanza::read) else { return };
    let from = frame.head().from(frame.bytes());
    if !matches!(frame.kind(), StanzaKind::Message(MessageType::Headline))
        || from.as_deref() != Some(ctx.host.domain())
    {
        return;
    }
    let (node, domain) = (ctx.node.clone(), ctx.host.domain().to_owned());
    let Some(mut permit) = received.push(frame) else { return };
    let task = async move {
        while let Some(frame) = permit.next() {
            broadcast(&node, &domain, &frame).await;
        }
    };
    ctx.node.spawner.spawn("announcement", Box::pin(task));
}

/// The users with a session on any node, also if no resource of theirs receives headlines: `2 users`.
pub(super) async fn count_online(call: &CommandCall) -> String {
    let (online, missing) = count_online_users(&call.node, call.host.domain(), OnlineFilter::All).await;
    let users = super::pluralize(usize::try_from(online).unwrap_or(usize::MAX), "user");
    match describe_missing(&missing) {
        Some(without) => format!("{users}, {without}"),
        None => users,
    }
}

async fn announce(
    call: &CommandCall,
    under: &Arc<RunningAnnouncements>,
) -> Result<CommandOutput, CommandError> {
    if under.0.fetch_add(1, Ordering::Relaxed) >= MAX_CONCURRENT {
        under.0.fetch_sub(1, Ordering::Relaxed);
        return Err(CommandError::new(
            CommandErrorKind::Unavailable,
            "earlier announcements are still being sent",
        ));
    }
    let permit = AnnouncementPermit(under.clone());
    let frame = headline(call.host.domain(), "Announcement", &call.input.lines(&TEXT).join("\n"))
        .ok_or_else(CommandError::internal)?;
    let (node, domain) = (call.node.clone(), call.host.domain().to_owned());
    if let Some(peers) = call.node.peers() {
        peers.send_notice(&call.node, &call.host, NOTICE, frame.bytes());
    }
    let task = async move {
        broadcast(&node, &domain, &frame).await;
        drop(permit);
    };
    call.node.spawner.spawn("announcement", Box::pin(task));
    let online = count_online(call).await;
    Ok(CommandOutput::with_note(format!("it is being sent to {online}")))
}

/// The message, without its recipient.
pub(super) fn headline(domain: &str, subject: &str, text: &str) -> Option<SharedStanza> {
    SharedStanza::build(|w| {
        w.start("message").attr("from", domain).attr("type", "headline").attr("id", &base::id::random_id());
        w.text_element("subject", subject).text_element("body", text).end();
    })
}

/// Whether a headline may be queued for this session (RFC 6121, section 8.5.2.1.1).
pub(super) fn accepts_headline(session: &Session) -> bool {
    session.priority().is_some_and(|priority| priority >= 0)
}

/// Sends to every resource that accepts headlines.
pub(super) async fn broadcast(node: &Arc<Node>, domain: &str, frame: &SharedStanza) {
    for_each_online(node, domain, |account| {
        for session in account.sessions().iter().filter(|s| accepts_headline(s)) {
            node.enqueue(session, frame.clone(), ToRewrite::Bare);
        }
    })
    .await;
}

/// Calls `f` for every connected account of a domain, and yields in between.
pub(super) async fn for_each_online(node: &Arc<Node>, domain: &str, mut f: impl FnMut(&Arc<Account>)) {
    for part in 0..node.routing_table.shard_count() {
        let mut accounts = Vec::new();
        node.routing_table.for_each_in_shard(part, |account| accounts.push(account.clone()));
        for chunk in accounts.chunks(YIELD_EVERY) {
            for account in chunk.iter().filter(|a| a.jid.domain() == domain) {
                f(account);
            }
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_of_other_nodes_wait_for_one_task_and_are_bounded() {
        let received = Arc::<ReceivedAnnouncements>::default();
        let frame = |n: usize| headline("example.com", "Announcement", &n.to_string()).unwrap();
        let mut permits: Vec<_> = (0..1000).filter_map(|n| received.push(frame(n))).collect();
        assert_eq!((permits.len(), received.0.lock().waiting.len()), (1, MAX_RECEIVED));
        let mut permit = permits.pop().unwrap();
        let first = permit.next().unwrap();
        assert!(String::from_utf8_lossy(first.bytes()).contains("<body>0</body>"), "in their order");
        assert!(received.push(frame(0)).is_none(), "the task goes on with it");
        assert_eq!(std::iter::from_fn(|| permit.next()).count(), MAX_RECEIVED);
        drop(permit);
        // The task of this one panics.
        drop(received.push(frame(0)).unwrap());
        let mut permit = received.push(frame(1)).expect("another task");
        assert_eq!(std::iter::from_fn(|| permit.next()).count(), 2);
    }
}
