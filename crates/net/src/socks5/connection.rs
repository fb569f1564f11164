//! A connection until it has named its destination, on which its task ends or waits for the activation.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use base::clock::Millis;

use super::handshake::{self, BytestreamDestination, Reply, Step};
use super::metrics::Socks5Outcome;
use super::party::{Party, PartySocket};
use super::pending::PendingTask;
use super::table::{Socks5Proxy, sweep_after};
use crate::connection_limits::ConnectionPermit;
use crate::deadlines::Deadline;
use crate::listener::AcceptedConnection;

/// Milliseconds for the handshake. Its messages have less than 600 bytes.
const HANDSHAKE_MILLIS: u64 = 10_000;

impl Socks5Proxy {
    /// Serves an accepted connection until it is closed, or handed over to the task of the other party.
    pub async fn serve(self, accepted: AcceptedConnection) {
        let AcceptedConnection { socket, peer, permit, .. } = accepted;
        match self.0.unactivated.try_acquire(peer.ip()) {
            Ok(unactivated) => self.serve_socket(PartySocket::Tcp(socket), Some(permit), unactivated).await,
            Err(_) => self.count_ended(Socks5Outcome::UnactivatedLimit),
        }
    }

    pub(super) async fn serve_socket(
        self,
        mut socket: PartySocket,
        permit: Option<ConnectionPermit>,
        unactivated: ConnectionPermit,
    ) {
        let deadline = self.deadline();
        let expires = self.0.clock.now().plus(self.activation_timeout_millis());
        let destination = match self.handshake(&mut socket, &deadline).await {
            Ok(destination) => destination,
            Err(outcome) => return self.count_ended(outcome),
        };
        match self.join(destination, Party { socket, permit, unactivated }, expires) {
            Ok(None) => {}
            Ok(Some((pending, party))) => {
                PendingTask::new(&self, destination, pending, party, &deadline, expires).run().await;
            }
            // Another party was faster since the reply.
            Err(_) => self.count_ended(Socks5Outcome::Duplicate),
        }
    }

    /// Exchanges greetings and reads the request.
    async fn handshake(
        &self,
        socket: &mut PartySocket,
        deadline: &Deadline,
    ) -> Result<BytestreamDestination, Socks5Outcome> {
        let expires = self.0.clock.now().plus(HANDSHAKE_MILLIS.min(self.activation_timeout_millis()));
        let mut bytes = Vec::with_capacity(64);
        if !self.read(socket, &mut bytes, handshake::read_greeting, deadline, expires).await? {
            let reply = handshake::NO_ACCEPTABLE_METHOD;
            self.write_all(socket, &reply, deadline, expires).await?;
            return Err(Socks5Outcome::Rejected);
        }
        self.write_all(socket, &handshake::METHOD_ACCEPTED, deadline, expires).await?;
        bytes.clear();
        match self.read(socket, &mut bytes, handshake::read_request, deadline, expires).await? {
            // One reply only (RFC 1928, section 6): after a success, a refusal would be read as data.
            Ok(destination) if self.has_two_parties(destination) => {
                self.write_all(socket, &handshake::refused(Reply::NotAllowed), deadline, expires).await?;
                Err(Socks5Outcome::Duplicate)
            }
            Ok(destination) => {
                self.write_all(socket, &handshake::accepted(&bytes), deadline, expires).await?;
                Ok(destination)
            }
            Err(reason) => {
                self.write_all(socket, &handshake::refused(reason), deadline, expires).await?;
                Err(Socks5Outcome::Rejected)
            }
        }
    }

    /// Reads one message, and no byte after it.
    async fn read<T>(
        &self,
        socket: &mut PartySocket,
        bytes: &mut Vec<u8>,
        read: fn(&[u8]) -> Step<T>,
        deadline: &Deadline,
        expires: Millis,
    ) -> Result<T, Socks5Outcome> {
        loop {
            let missing = match read(bytes) {
                Step::Done(value) => return Ok(value),
                Step::Invalid => return Err(Socks5Outcome::Rejected),
                Step::Need(missing) => missing,
            };
            let have = bytes.len();
            bytes.resize(have + missing, 0);
            let room = bytes.get_mut(have..).unwrap_or_default();
            let reading = |cx: &mut Context<'_>| {
                let done = socket.poll_read(cx, room);
                self.or_expired(deadline, expires, cx, done)
            };
            let count = poll_fn(reading).await?;
            if count == 0 {
                return Err(Socks5Outcome::Rejected);
            }
            bytes.truncate(have + count);
        }
    }

    async fn write_all(
        &self,
        socket: &mut PartySocket,
        mut bytes: &[u8],
        deadline: &Deadline,
        expires: Millis,
    ) -> Result<(), Socks5Outcome> {
        while !bytes.is_empty() {
            let writing = |cx: &mut Context<'_>| {
                let done = socket.poll_write(cx, bytes);
                self.or_expired(deadline, expires, cx, done)
            };
            let count = poll_fn(writing).await?;
            bytes = bytes.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// The result of an operation on a socket, unless the time for it has passed.
    fn or_expired(
        &self,
        deadline: &Deadline,
        expires: Millis,
        cx: &Context<'_>,
        done: Poll<io::Result<usize>>,
    ) -> Poll<Result<usize, Socks5Outcome>> {
        match done {
            Poll::Ready(Ok(count)) => Poll::Ready(Ok(count)),
            Poll::Ready(Err(_)) => Poll::Ready(Err(Socks5Outcome::Failed)),
            Poll::Pending if self.0.clock.now() >= expires => Poll::Ready(Err(Socks5Outcome::Expired)),
            Poll::Pending => {
                deadline.register(cx);
                deadline.set(sweep_after(expires));
                Poll::Pending
            }
        }
    }
}
