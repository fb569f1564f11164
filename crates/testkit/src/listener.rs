//! A listener of a feature without sockets: connections are pipes in memory, and its tasks run when the test calls them.
//!
//! # Pitfalls
//!
//! A connection makes progress only in [`TestListener::run`] and the methods that call it.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::ManualClock;
use base::connection_limits::ConnectionLimiter;
use feature_api::listener::{ConnectionIo, ListenerConnection, ListenerDeadlines, ListenerHandler};
use net::Pipe;

/// Rounds in which every task is polled once: pipes and deadlines wake nothing here.
const ROUNDS: usize = 64;
/// Bytes that a connection holds in each direction.
const PIPE_BYTES: usize = 256 * 1024;

/// Connections of a listener, and the clock of their deadlines.
pub struct TestListener {
    handler: Arc<dyn ListenerHandler>,
    clock: Arc<ManualClock>,
    deadlines: ListenerDeadlines,
    /// Counts connections, without a limit.
    pub connections: ConnectionLimiter,
    tasks: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl TestListener {
    /// A listener with this handler.
    pub fn new(handler: Arc<dyn ListenerHandler>, clock: Arc<ManualClock>) -> TestListener {
        let deadlines = ListenerDeadlines::new(clock.clone());
        TestListener {
            handler,
            clock,
            deadlines,
            connections: ConnectionLimiter::default(),
            tasks: Vec::new(),
        }
    }

    /// Connects a client from this machine.
    pub fn connect(&mut self) -> ListenerClient {
        self.connect_with(PIPE_BYTES)
    }

    /// Connects a client; each direction holds at most `capacity` unread bytes.
    ///
    /// # Panics
    /// If the test has set a limit of connections, and it is reached.
    pub fn connect_with(&mut self, capacity: usize) -> ListenerClient {
        let (here, there) = Pipe::pair(capacity);
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let permit = self.connections.try_acquire(peer.ip()).expect("a permit");
        let (io, deadline) = (Box::new(PipeIo(here)), self.deadlines.add());
        self.tasks.push(self.handler.serve(ListenerConnection { io, peer, permit, deadline }));
        self.run();
        ListenerClient(there)
    }

    /// Polls all tasks until none makes progress any more.
    pub fn run(&mut self) {
        for _ in 0..ROUNDS {
            self.poll_tasks(Waker::noop());
        }
    }

    /// Polls all tasks once.
    pub fn poll_tasks(&mut self, waker: &Waker) {
        let mut cx = Context::from_waker(waker);
        self.tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
    }

    /// Advances the clock, and sweeps as a program does.
    pub fn advance(&mut self, millis: u64) {
        self.clock.advance(millis);
        self.deadlines.sweep();
        self.handler.sweep();
        self.run();
    }

    /// Tasks that have not ended.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Drops every task, as a runtime does that stops.
    pub fn drop_tasks(&mut self) {
        self.tasks.clear();
    }
}

/// The client's end of a connection; dropping it closes both directions.
pub struct ListenerClient(Pipe);

impl ListenerClient {
    /// Writes as much as there is room for, and returns the number of bytes.
    pub fn write(&mut self, mut bytes: &[u8]) -> usize {
        let before = bytes.len();
        let mut cx = Context::from_waker(Waker::noop());
        while !bytes.is_empty() {
            match self.0.poll_write(&mut cx, bytes) {
                Poll::Ready(Ok(count)) => bytes = &bytes[count..],
                _ => break,
            }
        }
        before - bytes.len()
    }

    /// Reads what there is.
    pub fn read(&mut self) -> Vec<u8> {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut all, mut buffer) = (Vec::new(), vec![0; 4096]);
        while let Poll::Ready(count @ 1..) = self.0.poll_read(&mut cx, &mut buffer) {
            all.extend_from_slice(&buffer[..count]);
        }
        all
    }

    /// Whether the server has closed its direction and everything is read.
    pub fn is_closed(&mut self) -> bool {
        self.0.poll_read(&mut Context::from_waker(Waker::noop()), &mut [0]) == Poll::Ready(0)
    }

    /// Closes the client's direction.
    pub fn close(&mut self) {
        self.0.close();
    }
}

/// The server's end.
struct PipeIo(Pipe);

impl ConnectionIo for PipeIo {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_read(cx, into).map(Ok)
    }

    fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.0.poll_peek(cx).map(Ok)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes)
    }

    fn poll_shutdown(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.close();
        Poll::Ready(Ok(()))
    }
}
