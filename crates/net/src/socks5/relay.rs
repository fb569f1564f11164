//! The life of a connection: handshake, wait for the other party and the activation, relay.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use base::clock::Millis;
use tokio::net::TcpStream;

use super::handshake::{self, BytestreamDestination, Reply, Step};
use super::table::{Alarm, Grant, Party, PendingBytestream, Socks5Outcome, Socks5Proxy};
use crate::connection_limits::ConnectionPermit;
use crate::stream::byte_stream::{AnyByteStream, ByteStream};

/// Bytes read at once: the most that one direction of a bytestream holds.
const CHUNK_BYTES: usize = 32 * 1024;
/// Chunks that one direction relays before other tasks have a turn.
const CHUNKS_PER_TURN: usize = 8;
/// Bytes that a party may send before the activation. They are ignored (XEP-0065, section 10.1).
const MAX_EARLY_BYTES: usize = 64 * 1024;
/// Milliseconds for the handshake. Its messages have less than 600 bytes.
const HANDSHAKE_MILLIS: u64 = 10_000;

thread_local! {
    static CHUNK: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK_BYTES].into_boxed_slice());
}

impl Socks5Proxy {
    /// Serves an accepted connection until it is closed, or handed over to the task of the other party.
    pub async fn serve(self, socket: TcpStream, permit: ConnectionPermit) {
        self.serve_stream(AnyByteStream::Tcp(socket), Some(permit)).await;
    }

    pub(super) async fn serve_stream(self, mut socket: AnyByteStream, permit: Option<ConnectionPermit>) {
        let alarm = self.alarm();
        let expires = self.0.clock.now().plus(self.pairing_millis());
        let destination = match self.handshake(&mut socket, &alarm).await {
            Ok(destination) => destination,
            Err(outcome) => return self.count_ended(outcome),
        };
        match self.join(destination, Party { socket, permit }, &alarm) {
            Ok(first) => {
                if let Some((pending, party)) = first {
                    let waiting = Waiting::new(&self, destination, pending, party, expires);
                    self.count_ended(waiting.run().await);
                }
            }
            // Another party was faster since the reply.
            Err(_) => self.count_ended(Socks5Outcome::Occupied),
        }
    }

    /// Exchanges greetings and reads the request.
    async fn handshake(
        &self,
        socket: &mut AnyByteStream,
        alarm: &Alarm,
    ) -> Result<BytestreamDestination, Socks5Outcome> {
        let deadline = self.0.clock.now().plus(HANDSHAKE_MILLIS.min(self.pairing_millis()));
        let mut bytes = Vec::with_capacity(64);
        if !self.read(socket, &mut bytes, handshake::read_greeting, alarm, deadline).await? {
            let reply = handshake::NO_ACCEPTABLE_METHOD;
            self.write_all(socket, &reply, alarm, deadline).await?;
            return Err(Socks5Outcome::Rejected);
        }
        self.write_all(socket, &handshake::METHOD_ACCEPTED, alarm, deadline).await?;
        bytes.clear();
        match self.read(socket, &mut bytes, handshake::read_request, alarm, deadline).await? {
            // One reply only (RFC 1928, section 6): after a success, a refusal would be read as data.
            Ok(destination) if self.has_two_parties(destination) => {
                self.write_all(socket, &handshake::refused(Reply::NotAllowed), alarm, deadline).await?;
                Err(Socks5Outcome::Occupied)
            }
            Ok(destination) => {
                self.write_all(socket, &handshake::accepted(&bytes), alarm, deadline).await?;
                Ok(destination)
            }
            Err(reason) => {
                self.write_all(socket, &handshake::refused(reason), alarm, deadline).await?;
                Err(Socks5Outcome::Rejected)
            }
        }
    }

    /// Reads one message, and no byte after it.
    async fn read<T>(
        &self,
        socket: &mut AnyByteStream,
        bytes: &mut Vec<u8>,
        read: fn(&[u8]) -> Step<T>,
        alarm: &Alarm,
        deadline: Millis,
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
                self.or_expired(alarm, deadline, cx, done)
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
        socket: &mut AnyByteStream,
        mut bytes: &[u8],
        alarm: &Alarm,
        deadline: Millis,
    ) -> Result<(), Socks5Outcome> {
        while !bytes.is_empty() {
            let writing = |cx: &mut Context<'_>| {
                let done = socket.poll_write(cx, bytes);
                self.or_expired(alarm, deadline, cx, done)
            };
            let count = poll_fn(writing).await?;
            bytes = bytes.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// The result of an operation on a socket, unless its deadline has passed.
    fn or_expired(
        &self,
        alarm: &Alarm,
        deadline: Millis,
        cx: &Context<'_>,
        done: Poll<io::Result<usize>>,
    ) -> Poll<Result<usize, Socks5Outcome>> {
        match done {
            Poll::Ready(Ok(count)) => Poll::Ready(Ok(count)),
            Poll::Ready(Err(_)) => Poll::Ready(Err(Socks5Outcome::Failed)),
            Poll::Pending if self.0.clock.now() >= deadline => Poll::Ready(Err(Socks5Outcome::Expired)),
            Poll::Pending => {
                alarm.set(deadline, cx);
                Poll::Pending
            }
        }
    }
}

/// A bytestream before its activation, in the task of the first party.
struct Waiting<'a> {
    proxy: &'a Socks5Proxy,
    destination: BytestreamDestination,
    pending: Arc<PendingBytestream>,
    parties: Vec<(Party, usize)>,
    expires: Millis,
    /// The bytestream is no longer in the table.
    removed: bool,
}

impl<'a> Waiting<'a> {
    fn new(
        proxy: &'a Socks5Proxy,
        destination: BytestreamDestination,
        pending: Arc<PendingBytestream>,
        party: Party,
        expires: Millis,
    ) -> Waiting<'a> {
        Waiting { proxy, destination, pending, parties: vec![(party, 0)], expires, removed: false }
    }

    async fn run(mut self) -> Socks5Outcome {
        let grant = match poll_fn(|cx| self.poll(cx)).await {
            Ok(grant) => grant,
            Err(outcome) => return outcome,
        };
        let parties = std::mem::take(&mut self.parties);
        let Ok([(first, _), (second, _)]) = <[_; 2]>::try_from(parties) else {
            // One party left in the moment of the activation.
            return Socks5Outcome::Failed;
        };
        let mut sockets = [first.socket, second.socket];
        let mut permits = [first.permit, second.permit];
        permits.iter_mut().flatten().for_each(ConnectionPermit::mark_authenticated);
        let mut relay = Relay::new(self.proxy, &self.pending.alarm, grant);
        poll_fn(|cx| relay.poll(cx, &mut sockets)).await
    }

    /// Ready when the bytestream is active, or is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Grant, Socks5Outcome>> {
        // Before the state is read, so that a later change wakes this task.
        self.pending.alarm.set(self.expires, cx);
        let (proxy, pending) = (self.proxy, self.pending.clone());
        let mut state = pending.state.lock();
        self.parties.extend(state.arrived.take().map(|party| (party, 0)));
        if let Some(grant) = state.activated.take() {
            self.removed = true;
            return Poll::Ready(Ok(grant));
        }
        // Under the lock, so that an activation comes before or after: what arrives after it belongs to the bytestream.
        let mut flooded = false;
        let ended = |(party, early): &mut (Party, usize)| match ignore_bytes(party, early, cx) {
            Ignored::Open => false,
            Ignored::Closed => true,
            Ignored::TooMany => {
                flooded = true;
                true
            }
        };
        let gone: Vec<_> = self.parties.extract_if(.., ended).collect();
        drop(state);
        for _ in gone {
            if proxy.leave(self.destination, &self.pending) {
                self.removed = true;
                let outcome = if flooded { Socks5Outcome::Flooded } else { Socks5Outcome::Abandoned };
                return Poll::Ready(Err(outcome));
            }
        }
        if proxy.0.clock.now() >= self.expires && proxy.expire(self.destination, &self.pending) {
            self.removed = true;
            return Poll::Ready(Err(Socks5Outcome::Expired));
        }
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // The task was cancelled.
        if !self.removed {
            self.proxy.expire(self.destination, &self.pending);
        }
    }
}

enum Ignored {
    Open,
    Closed,
    TooMany,
}

/// Reads and discards what a party sends before the activation.
fn ignore_bytes(party: &mut Party, early: &mut usize, cx: &mut Context<'_>) -> Ignored {
    CHUNK.with_borrow_mut(|chunk| {
        loop {
            match party.socket.poll_read(cx, chunk) {
                Poll::Pending => return Ignored::Open,
                Poll::Ready(Err(_) | Ok(0)) => return Ignored::Closed,
                Poll::Ready(Ok(count)) => {
                    *early += count;
                    if *early > MAX_EARLY_BYTES {
                        return Ignored::TooMany;
                    }
                }
            }
        }
    })
}

/// An active bytestream.
struct Relay<'a> {
    proxy: &'a Socks5Proxy,
    alarm: &'a Alarm,
    grant: Grant,
    directions: [Direction; 2],
    moved_at: Millis,
}

/// One direction of a bytestream.
#[derive(Default)]
struct Direction {
    /// Bytes that the receiver has not taken; empty and unallocated while it keeps up.
    unwritten: Vec<u8>,
    written: usize,
    ended: bool,
    closed: bool,
}

impl<'a> Relay<'a> {
    fn new(proxy: &'a Socks5Proxy, alarm: &'a Alarm, grant: Grant) -> Relay<'a> {
        let directions = [Direction::default(), Direction::default()];
        Relay { proxy, alarm, grant, directions, moved_at: proxy.0.clock.now() }
    }

    fn poll(&mut self, cx: &mut Context<'_>, sockets: &mut [AnyByteStream; 2]) -> Poll<Socks5Outcome> {
        let now = self.proxy.0.clock.now();
        let mut paused = u64::MAX;
        for direction in &mut self.directions {
            let [from, to] = sockets;
            let mut turn = Turn { grant: &self.grant, now, moved: 0, paused: &mut paused };
            let done = direction.poll(cx, from, to, &mut turn);
            if turn.moved > 0 {
                self.moved_at = now;
                self.proxy.0.bytes.fetch_add(turn.moved as u64, Relaxed);
            }
            if let Poll::Ready(Err(_)) = done {
                return Poll::Ready(Socks5Outcome::Failed);
            }
            // Back again after both.
            sockets.swap(0, 1);
        }
        if self.directions.iter().all(|direction| direction.closed) {
            return Poll::Ready(Socks5Outcome::Finished);
        }
        let idle = self.moved_at.plus(self.grant.idle_millis);
        // A party that waits for its rate is not idle.
        if now >= idle && paused == u64::MAX {
            return Poll::Ready(Socks5Outcome::Idle);
        }
        self.alarm.set(idle.min(now.plus(paused)), cx);
        Poll::Pending
    }
}

/// What the directions of a bytestream share while they are polled.
struct Turn<'a> {
    grant: &'a Grant,
    now: Millis,
    /// Bytes written.
    moved: usize,
    /// Milliseconds until a rate permits more; `u64::MAX` if no rate delays.
    paused: &'a mut u64,
}

impl Direction {
    /// Relays until a socket is not ready, or the turn is over. Ready when the direction is closed.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut AnyByteStream,
        to: &mut AnyByteStream,
        turn: &mut Turn<'_>,
    ) -> Poll<io::Result<()>> {
        for _ in 0..CHUNKS_PER_TURN {
            ready!(self.poll_unwritten(cx, to, turn))?;
            if self.closed {
                return Poll::Ready(Ok(()));
            }
            if self.ended {
                ready!(to.poll_shutdown(cx))?;
                self.closed = true;
                return Poll::Ready(Ok(()));
            }
            let delay = turn.grant.delay(turn.now);
            if delay > 0 {
                *turn.paused = (*turn.paused).min(delay);
                return Poll::Pending;
            }
            ready!(self.poll_chunk(cx, from, to, turn))?;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes what is left of an earlier chunk.
    fn poll_unwritten(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut AnyByteStream,
        turn: &mut Turn<'_>,
    ) -> Poll<io::Result<()>> {
        while let Some(rest) = self.unwritten.get(self.written..).filter(|rest| !rest.is_empty()) {
            let count = ready!(to.poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
            turn.moved += count;
        }
        self.unwritten = Vec::new();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Reads a chunk and writes as much of it as the receiver takes.
    fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut AnyByteStream,
        to: &mut AnyByteStream,
        turn: &mut Turn<'_>,
    ) -> Poll<io::Result<()>> {
        CHUNK.with_borrow_mut(|chunk| {
            let count = ready!(from.poll_read(cx, chunk))?;
            if count == 0 {
                self.ended = true;
                return Poll::Ready(Ok(()));
            }
            turn.grant.charge(count, turn.now);
            let chunk = chunk.get(..count).unwrap_or_default();
            let written = match to.poll_write(cx, chunk) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(written) => written?,
                Poll::Pending => 0,
            };
            turn.moved += written;
            self.unwritten = chunk.get(written..).unwrap_or_default().to_vec();
            Poll::Ready(Ok(()))
        })
    }
}
