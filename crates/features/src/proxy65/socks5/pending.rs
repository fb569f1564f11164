//! A bytestream before its activation: the task of the first party waits for the second and for the activation.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use base::clock::Millis;
use base::connection_limits::ConnectionPermit;
use feature_api::listener::ConnectionDeadline;

use super::handshake::BytestreamDestination;
use super::metrics::Socks5Outcome;
use super::party::Party;
use super::permit::BytestreamPermit;
use super::relay::{Relay, with_chunk};
use super::table::{PendingBytestream, Socks5Proxy};

/// Bytes that a party may send before the activation. They are ignored (XEP-0065, section 10.1).
const MAX_EARLY_BYTES: usize = 64 * 1024;

pub(super) struct PendingTask<'a> {
    proxy: &'a Socks5Proxy,
    destination: BytestreamDestination,
    pending: Arc<PendingBytestream>,
    /// With the number of bytes that were ignored.
    parties: Vec<(Party, usize)>,
    deadline: &'a ConnectionDeadline,
    expires: Millis,
    /// The bytestream is no longer in the table.
    removed: bool,
}

impl<'a> PendingTask<'a> {
    pub(super) fn new(
        proxy: &'a Socks5Proxy,
        destination: BytestreamDestination,
        pending: Arc<PendingBytestream>,
        party: Party,
        deadline: &'a ConnectionDeadline,
        expires: Millis,
    ) -> PendingTask<'a> {
        let parties = vec![(party, 0)];
        PendingTask { proxy, destination, pending, parties, deadline, expires, removed: false }
    }

    /// Waits for the activation, relays, and counts the outcome.
    pub(super) async fn run(mut self) {
        let Some(permit) = poll_fn(|cx| self.poll(cx)).await else { return };
        let parties = std::mem::take(&mut self.parties);
        let Ok([(first, _), (second, _)]) = <[_; 2]>::try_from(parties) else {
            // One party left in the moment of the activation.
            return self.proxy.count_ended(Socks5Outcome::Failed);
        };
        let mut sockets = [first.io, second.io];
        let mut permits = [first.permit, second.permit];
        permits.iter_mut().for_each(ConnectionPermit::mark_authenticated);
        drop([first.unactivated, second.unactivated]);
        let mut relay = Relay::new(self.proxy, self.deadline, permit);
        let outcome = poll_fn(|cx| relay.poll(cx, &mut sockets)).await;
        self.proxy.count_ended(outcome);
    }

    /// Ready when the bytestream is active, or has ended: its connections are then counted.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<BytestreamPermit>> {
        let (proxy, pending) = (self.proxy, self.pending.clone());
        let mut state = pending.state.lock();
        // Under the lock, so that a later change wakes this task.
        state.waker = Some(cx.waker().clone());
        if let Some((party, expires)) = state.arrived.take() {
            self.parties.push((party, 0));
            // The second party has its full time.
            self.expires = self.expires.max(expires);
        }
        if let Some(permit) = state.activated.take() {
            self.removed = true;
            return Poll::Ready(Some(permit));
        }
        // Under the lock, so that an activation comes before or after: what arrives after it belongs to the bytestream.
        let mut outcomes = Vec::new();
        let is_over = |(party, early): &mut (Party, usize)| match ignore_bytes(party, early, cx) {
            Poll::Pending => false,
            Poll::Ready(outcome) => {
                outcomes.push(outcome);
                true
            }
        };
        let gone: Vec<_> = self.parties.extract_if(.., is_over).collect();
        drop(state);
        drop(gone);
        for outcome in outcomes {
            proxy.count_ended(outcome);
            if proxy.leave(self.destination, &self.pending) {
                self.removed = true;
                return Poll::Ready(None);
            }
        }
        if self.deadline.poll(cx, self.expires).is_ready() && proxy.expire(self.destination, &self.pending) {
            self.removed = true;
            self.parties.iter().for_each(|_| proxy.count_ended(Socks5Outcome::Expired));
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

impl Drop for PendingTask<'_> {
    fn drop(&mut self) {
        // The task was cancelled.
        if !self.removed {
            self.proxy.expire(self.destination, &self.pending);
        }
    }
}

/// Reads and discards what a party sends before the activation. Ready when the party must be dropped.
fn ignore_bytes(party: &mut Party, early: &mut usize, cx: &mut Context<'_>) -> Poll<Socks5Outcome> {
    with_chunk(|chunk| {
        loop {
            match party.io.poll_read(cx, chunk) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_) | Ok(0)) => return Poll::Ready(Socks5Outcome::Abandoned),
                Poll::Ready(Ok(count)) => {
                    *early += count;
                    if *early > MAX_EARLY_BYTES {
                        return Poll::Ready(Socks5Outcome::TooMuchEarlyData);
                    }
                }
            }
        }
    })
}
