//! Announcements to all online users: section 4.23.
//!
//! A headline (RFC 6121 section 5.2.2) from the domain: it is not kept for who is not there. One frame serves everybody; the
//! recipient's address is put in while writing.
//!
//! The trap: a million queues are filled here. After each few hundred the task gives way, so that the connections that it
//! woke write before more are woken, and everybody else's stanzas go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use throng_core::command::{
    Call, Command, CommandError, CommandFuture, Field, FieldKind, Output, Scope, Why, breathe,
};
use throng_core::feature::Builder;
use throng_core::session::Stamp;
use throng_core::{Account, Frame, Node, Session};

use super::{FORM_TYPE, node};

/// Accounts in a row before others get their turn.
const CHUNK: usize = 256;
/// Announcements of a domain that may be on their way at a time.
const AT_ONCE: usize = 4;

const TEXT: Field = Field::new("text", "announcement", "Announcement", FieldKind::Lines).required();

/// Section 4.23.
pub(super) static ANNOUNCE: Command = Command {
    name: "announce",
    node: node!("announce"),
    title: "Send Announcement to Active Users",
    doc: "Sends a message to all users who are online.",
    form_type: FORM_TYPE,
    input: &[TEXT],
    scope: Scope::Messages,
    ..Command::EMPTY
};

/// Announcements on their way.
#[derive(Default)]
struct Under(AtomicUsize);

/// One of them; gives its place back.
struct Place(Arc<Under>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) fn build(builder: &mut Builder<'_>) {
    let under = builder.kept(Under::default);
    builder.command(&ANNOUNCE, move |call: Call| -> CommandFuture {
        let done = announce(&call, &under);
        Box::pin(std::future::ready(done))
    });
}

fn announce(call: &Call, under: &Arc<Under>) -> Result<Output, CommandError> {
    if under.0.fetch_add(1, Ordering::Relaxed) >= AT_ONCE {
        under.0.fetch_sub(1, Ordering::Relaxed);
        return Err(CommandError::new(Why::Unavailable, "earlier announcements are still on their way"));
    }
    let place = Place(under.clone());
    let frame = headline(call.host.domain(), "Announcement", &call.input.lines(&TEXT).join("\n"));
    let (node, domain) = (call.node.clone(), call.host.domain().to_owned());
    let online = call.node.table.accounts();
    if let Some(frame) = frame {
        let task = async move {
            to_all(&node, &domain, &frame).await;
            drop(place);
        };
        call.node.spawner.spawn("announcement", Box::pin(task));
    }
    Ok(Output::said(format!("it is on its way to {}", super::count(online, "user"))))
}

/// The message, without its recipient.
pub(super) fn headline(domain: &str, subject: &str, text: &str) -> Option<Frame> {
    Frame::build(|w| {
        w.start("message").attr("from", domain).attr("type", "headline").attr("id", &base::id::random_id());
        w.leaf("subject", subject).leaf("body", text).end();
    })
}

/// Whether a headline may be put into the queue of this session (RFC 6121 section 8.5.2.1.1).
pub(super) fn takes(session: &Session) -> bool {
    session.priority().is_some_and(|priority| priority >= 0)
}

/// Sends to every resource that takes it.
pub(super) async fn to_all(node: &Arc<Node>, domain: &str, frame: &Frame) {
    everybody(node, domain, |account| {
        for session in account.sessions().iter().filter(|s| takes(s)) {
            node.enqueue(session, frame.clone(), Stamp::Bare);
        }
    })
    .await;
}

/// Calls `f` for every connected account of a domain, and gives way in between.
pub(super) async fn everybody(node: &Arc<Node>, domain: &str, mut f: impl FnMut(&Arc<Account>)) {
    for part in 0..node.table.parts() {
        let mut accounts = Vec::new();
        node.table.each_of_part(part, |account| accounts.push(account.clone()));
        for chunk in accounts.chunks(CHUNK) {
            for account in chunk.iter().filter(|a| a.jid.domain() == domain) {
                f(account);
            }
            breathe().await;
        }
    }
}
