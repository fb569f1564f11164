//! Sessions of a node that is drained: its clients learn why their streams end, and the other nodes keep the sessions detached until the
//! clients resume them. XEP-0198 1.6.3, section 5.
//!
//! # Pitfalls
//!
//! A client that does not resume its stream after such an error leaves a session that is online until the resumption timeout, as
//! after a lost connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use access::login::{load_principal, load_stored};
use peers::session_transfer::{OfferedSession, OfferedSessionHandler, TakeOfferedSession};
use stanza::StreamError;
use throng_core::server_error::ServerError;
use throng_core::{Node, Principal};

use crate::detached::DetachedSession;

/// Maximum number of offered sessions that are being taken: another node offers fewer at a time.
const MAX_TAKING: usize = 1024;

/// The error with which streams end whose sessions move to other nodes.
struct DrainNotice(StreamError);

/// From now on, a stream whose session moves to another node ends with this error: the session has not moved because its client is
/// there.
pub fn announce_drain(node: &Node, error: StreamError) {
    node.extensions.insert(DrainNotice(error));
}

/// The error of [`announce_drain`], if the node is drained.
pub(crate) fn drain_error(node: &Node) -> Option<StreamError> {
    node.extensions.get::<DrainNotice>().map(|notice| notice.0.clone())
}

/// Lets this node take the sessions that other nodes offer. To be called before the first session.
pub fn take_offered_sessions(node: &Arc<Node>) {
    if !node.is_single() {
        node.extensions.insert(OfferedSessionHandler(Arc::new(SessionTaker::default())));
    }
}

#[derive(Default)]
struct SessionTaker(Arc<AtomicUsize>);

/// Counts as a session that is being taken until it is dropped.
struct Taking(Arc<AtomicUsize>);

impl Taking {
    fn begin(count: &Arc<AtomicUsize>) -> Option<Taking> {
        let taking = Taking(count.clone());
        (count.fetch_add(1, Ordering::Relaxed) < MAX_TAKING).then_some(taking)
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TakeOfferedSession for SessionTaker {
    fn take(&self, node: &Arc<Node>, offered: OfferedSession) {
        let Some(taking) = Taking::begin(&self.0) else { return };
        let of_task = node.clone();
        let task = async move {
            let _taking = taking;
            take(&of_task, offered).await;
        };
        node.spawner.spawn("session of a drained node", Box::pin(task));
    }
}

async fn take(node: &Arc<Node>, offered: OfferedSession) {
    let OfferedSession { account, stream } = offered;
    let principal = match read_principal(node, &account).await {
        Ok(Some(principal)) => principal,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(cause = %error.cause, "could not read the data of a session that another node offers");
            return;
        }
    };
    match node.peer_routing().take_session(node, principal, stream).await {
        Ok((session, _)) => {
            DetachedSession::start(node, &session, None);
        }
        Err(_) => tracing::debug!(jid = %account, "an offered session was not taken"),
    }
}

/// The initial data of a session; none if the account may have none.
async fn read_principal(node: &Node, account: &jid::Jid) -> Result<Option<Principal>, ServerError> {
    let Some(host) = node.host(account.as_ref().domain()) else { return Ok(None) };
    let record = load_stored(node, host, account.clone()).await?;
    match record.filter(|record| !record.disabled) {
        Some(record) => Ok(load_principal(node, record.identity).await?.granted()),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_sessions_that_are_being_taken_is_bounded() {
        let count = Arc::default();
        let taking: Vec<Taking> = std::iter::from_fn(|| Taking::begin(&count)).collect();
        assert_eq!(taking.len(), MAX_TAKING);
        drop(taking);
        assert!(Taking::begin(&count).is_some());
    }
}
