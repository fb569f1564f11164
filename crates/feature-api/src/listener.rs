//! Listeners of features with a protocol of their own, such as the SOCKS5 proxy of XEP-0065.
//!
//! A feature declares a [`ListenerSpec`] under `listeners`; an operator opens the listener with a `[[listen]]` of its kind. The
//! program binds the address, applies the limits of connections, accepts, runs deadlines and writes metrics
//! (`server/src/service_listeners`). The feature has the protocol: a [`ListenerHandler`] that serves a
//! [`ListenerConnection`] in a task of its own. `features/src/proxy65` is an example; tests have listeners without sockets
//! (`testkit/src/listener.rs`).
//!
//! Not implemented: TLS, PROXY headers, datagrams.
//!
//! # Pitfalls
//!
//! A handler belongs to the node, not to a domain: a connection names its domain, if it does, in its protocol. The handler
//! exists also if no listener is configured and if no domain has the feature, so that its metrics do not disappear.
//!
//! Any client that reaches the listener can send anything. All that a handler awaits from an unauthenticated connection must
//! have a deadline.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use base::clock::{Clock, Millis};
use base::connection_limits::ConnectionPermit;
use base::deadlines::{self, Deadline, Deadlines};
use base::spawn::BoxFuture;
use throng_core::{Host, Node};

/// Milliseconds between two sweeps: the granularity of deadlines.
pub const SWEEP_MILLIS: u64 = 100;

/// Declaration of a kind of listener.
#[derive(Debug)]
pub struct ListenerSpec {
    /// Value of `kind` in `[[listen]]`, and label in metrics: lower-case letters, digits and `-`.
    pub kind: &'static str,
    /// The usual port, for documentation and messages.
    pub port: u16,
    /// What it serves, for the startup message; at most 14 characters.
    pub purpose: &'static str,
    /// What the feature cannot do without a listener, as the end of a sentence.
    pub unavailable: &'static str,
    /// One sentence for the documentation.
    pub doc: &'static str,
    /// Whether the handler limits unauthenticated connections itself. Otherwise accepting pauses at
    /// `limits.unauthenticated_connections`, until connections end or [`ConnectionPermit::mark_authenticated`] is called.
    pub limits_unauthenticated: bool,
    /// Creates the handler of a node; called once. What the feature's other handlers need of it goes to `node.extensions`.
    pub start: fn(&Node) -> Arc<dyn ListenerHandler>,
}

/// Serves the connections of all listeners of one kind.
pub trait ListenerHandler: Send + Sync {
    /// Serves a connection to its end.
    fn serve(&self, connection: ListenerConnection) -> BoxFuture<'static, ()>;

    /// Adds the address of a listener.
    fn add_address(&self, _address: SocketAddr) {}

    /// Applies the options of all domains to new connections; called at the start and after each reload.
    fn configure(&self, _hosts: &[Arc<Host>]) {}

    /// Called every [`SWEEP_MILLIS`], after the tasks with elapsed deadlines were woken.
    fn sweep(&self) {}

    /// Present metrics, always the same ones.
    fn metrics(&self) -> Vec<ListenerMetric> {
        Vec::new()
    }
}

/// Transport of a connection: what tokio's `AsyncRead` and `AsyncWrite` are with a runtime.
pub trait ConnectionIo: Send {
    /// Reads once. 0 is the end.
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Number of bytes that can be read, at least one; they stay. 0 is the end.
    fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Writes once, at least one byte if `bytes` is not empty.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Ends the outgoing direction.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// An accepted connection. Dropping its transport closes it.
pub struct ListenerConnection {
    /// Its bytes.
    pub io: Box<dyn ConnectionIo>,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Counts the connection until it is dropped.
    pub permit: ConnectionPermit,
    /// Wakes the task that serves it.
    pub deadline: ConnectionDeadline,
}

/// Why a connection cannot be read or written any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The deadline has passed.
    Expired,
    /// The transport failed.
    Failed,
}

impl ListenerConnection {
    /// Reads once, until a time of the node's clock. 0 is the end.
    ///
    /// # Errors
    /// See [`ConnectionEnd`].
    pub async fn read(&mut self, into: &mut [u8], expires: Millis) -> Result<usize, ConnectionEnd> {
        let ListenerConnection { io, deadline, .. } = self;
        poll_fn(|cx| {
            let done = io.poll_read(cx, into);
            deadline.bound(cx, expires, done)
        })
        .await
    }

    /// Writes all bytes, until a time of the node's clock.
    ///
    /// # Errors
    /// See [`ConnectionEnd`].
    pub async fn write_all(&mut self, mut bytes: &[u8], expires: Millis) -> Result<(), ConnectionEnd> {
        let ListenerConnection { io, deadline, .. } = self;
        while !bytes.is_empty() {
            let written = poll_fn(|cx| {
                let done = io.poll_write(cx, bytes);
                deadline.bound(cx, expires, done)
            });
            bytes = bytes.get(written.await?..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Deadlines of the connections of one kind of listener. Clones share them.
#[derive(Clone)]
pub struct ListenerDeadlines {
    deadlines: Arc<Deadlines>,
    clock: Arc<dyn Clock>,
}

impl ListenerDeadlines {
    /// With the clock of the node.
    pub fn new(clock: Arc<dyn Clock>) -> ListenerDeadlines {
        ListenerDeadlines { deadlines: Arc::default(), clock }
    }

    /// The deadline of a new connection.
    pub fn add(&self) -> ConnectionDeadline {
        ConnectionDeadline { deadline: self.deadlines.add(), clock: self.clock.clone() }
    }

    /// Wakes tasks whose deadline has passed. Must be called every [`SWEEP_MILLIS`].
    pub fn sweep(&self) {
        let sweeps = self.clock.now().0 / SWEEP_MILLIS;
        self.deadlines.sweep(u32::try_from(sweeps).unwrap_or(deadlines::NEVER));
    }
}

/// Wakes the task of a connection at a time of the node's clock, at most one sweep later.
pub struct ConnectionDeadline {
    deadline: Deadline,
    clock: Arc<dyn Clock>,
}

impl ConnectionDeadline {
    /// Ready if the time has passed. Otherwise the task is woken then, unless another call replaces the time.
    pub fn poll(&self, cx: &Context<'_>, at: Millis) -> Poll<()> {
        if self.clock.now() >= at {
            return Poll::Ready(());
        }
        self.deadline.register(cx);
        self.deadline.set(u32::try_from(at.0.div_ceil(SWEEP_MILLIS)).unwrap_or(deadlines::NEVER));
        Poll::Pending
    }

    /// The result of an operation, unless the time for it has passed.
    fn bound(
        &self,
        cx: &Context<'_>,
        expires: Millis,
        done: Poll<io::Result<usize>>,
    ) -> Poll<Result<usize, ConnectionEnd>> {
        match done {
            Poll::Ready(done) => Poll::Ready(done.map_err(|_| ConnectionEnd::Failed)),
            Poll::Pending => self.poll(cx, expires).map(|()| Err(ConnectionEnd::Expired)),
        }
    }
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerMetricKind {
    /// It only rises; its name is printed with `_total`.
    Counter,
    /// It rises and falls.
    Gauge,
}

/// A metric of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerMetric {
    /// Type.
    pub kind: ListenerMetricKind,
    /// Name, with the prefix `throng_` and without unit.
    pub name: &'static str,
    /// Unit that follows the name, such as `bytes`; empty if there is none.
    pub unit: &'static str,
    /// Description without a full stop.
    pub help: &'static str,
    /// Values, each with a label and its value unless there is only one.
    pub values: Vec<(Option<(&'static str, &'static str)>, u64)>,
}

impl ListenerMetric {
    /// A counter without labels.
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> ListenerMetric {
        ListenerMetric {
            kind: ListenerMetricKind::Counter,
            name,
            unit: "",
            help,
            values: vec![(None, value)],
        }
    }

    /// A gauge without labels.
    pub fn gauge(name: &'static str, help: &'static str, value: u64) -> ListenerMetric {
        ListenerMetric { kind: ListenerMetricKind::Gauge, ..ListenerMetric::counter(name, help, value) }
    }

    /// A counter with one value for each value of a label.
    pub fn labelled_counter(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: impl IntoIterator<Item = (&'static str, u64)>,
    ) -> ListenerMetric {
        let values = values.into_iter().map(|(text, value)| (Some((label, text)), value)).collect();
        ListenerMetric { values, ..ListenerMetric::counter(name, help, 0) }
    }
}
