//! What a connection does with the stanzas of its client: one is handled after the other, and counted when it is safe (XEP-0198,
//! section 4).
//!
//! Not implemented: the bounds of a stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use stanza::{Element, StanzaCondition, StreamError};
use throng_core::session::outstanding::{OutstandingStanzas, StanzaPosition};
use throng_core::{IngestOutcome, Node, Receipts, Session};

/// Stanzas that a client has sent, as its stream keeps them.
#[derive(Default)]
struct SentStanzas {
    outstanding: OutstandingStanzas,
    /// The stanza that is being handled. Later ones are held.
    handling: Option<(StanzaPosition, BoxFuture<'static, Receipts>)>,
    held: VecDeque<Vec<u8>>,
    /// Number of stanzas whose handling has begun.
    begun: u32,
    handled: u32,
    /// A task continues what waits for other nodes.
    has_task: bool,
}

/// The stream of a client.
pub(crate) struct ClientStream {
    session: Arc<Session>,
    node: Arc<Node>,
    sent: LeafMutex<SentStanzas>,
}

impl ClientStream {
    pub(crate) fn new(node: Arc<Node>, session: Arc<Session>) -> Arc<ClientStream> {
        ClientStream::continued(node, session, 0)
    }

    /// The stream of a client that has resumed it: the server had handled this number of its stanzas.
    pub(crate) fn continued(node: Arc<Node>, session: Arc<Session>, handled: u32) -> Arc<ClientStream> {
        let sent = SentStanzas { begun: handled, handled, ..SentStanzas::default() };
        Arc::new(ClientStream { session, node, sent: LeafMutex::new(sent) })
    }

    /// Number of stanzas that count as handled.
    pub(crate) fn handled(&self) -> u32 {
        self.progress();
        self.sent.lock().handled
    }

    /// Handles a stanza, after those before it.
    #[track_caller]
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<(), StreamError> {
        let mut sent = self.take_sent();
        let outcome = if sent.handling.is_some() {
            sent.held.push_back(bytes.to_vec());
            Ok(())
        } else {
            self.ingest(&mut sent, bytes)
        };
        *self.sent.lock() = sent;
        outcome
    }

    /// Number of stanzas that were sent.
    pub(crate) fn count(&self) -> u32 {
        let sent = self.sent.lock();
        sent.begun + u32::try_from(sent.held.len()).expect("a few stanzas")
    }

    /// Ready when all stanzas count as handled.
    pub(crate) fn poll_handled(&self) -> Poll<()> {
        self.progress();
        let handled = self.sent.lock().handled;
        if handled == self.count() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Continues what waits for other nodes in a task, which ends with the client.
    pub(crate) fn continue_in_task(self: &Arc<Self>) {
        if self.poll_handled().is_ready() || std::mem::replace(&mut self.sent.lock().has_task, true) {
            return;
        }
        let stream = Arc::downgrade(self);
        let task = std::future::poll_fn(move |_| {
            let Some(stream) = stream.upgrade() else { return Poll::Ready(()) };
            let handled = stream.poll_handled();
            if handled.is_ready() {
                stream.sent.lock().has_task = false;
            }
            handled
        });
        self.node.spawner.spawn("client", Box::pin(task));
    }

    /// Not held over calls of the engine, which has locks of its own.
    fn take_sent(&self) -> SentStanzas {
        std::mem::take(&mut *self.sent.lock())
    }

    #[track_caller]
    fn ingest(&self, sent: &mut SentStanzas, bytes: &[u8]) -> Result<(), StreamError> {
        let scope = xml::NamespaceContext::client();
        match Element::read(bytes, &scope, &self.node.limits().stanza()) {
            Ok(Element::Stanza(head)) => {
                let outcome = self.node.ingest(&self.session, bytes, &head);
                if let IngestOutcome::Fatal(error) = outcome {
                    return Err(error);
                }
                let position = sent.outstanding.begin(true);
                sent.begun += 1;
                match outcome {
                    IngestOutcome::AwaitsReceipts(receipts) => sent.outstanding.complete(position, receipts),
                    IngestOutcome::Wait(rest) => sent.handling = Some((position, rest)),
                    IngestOutcome::Done | IngestOutcome::Fatal(_) => {
                        sent.outstanding.complete(position, Receipts::default());
                    }
                }
            }
            Ok(Element::UnknownType(head)) => {
                let error = StanzaCondition::BadRequest.into();
                self.node.reject_stanza(&self.session, bytes, &head, &error);
            }
            other => panic!("not a stanza ({other:?}): {}", String::from_utf8_lossy(bytes)),
        }
        Ok(())
    }

    /// Completes what can be completed, as the task of a connection does.
    pub(crate) fn progress(&self) {
        let mut sent = self.take_sent();
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            if let Some((position, mut rest)) = sent.handling.take() {
                match rest.as_mut().poll(&mut cx) {
                    Poll::Ready(receipts) => sent.outstanding.complete(position, receipts),
                    Poll::Pending => {
                        sent.handling = Some((position, rest));
                        break;
                    }
                }
            }
            let Some(next) = sent.held.pop_front() else { break };
            if let Err(error) = self.ingest(&mut sent, &next) {
                self.session.outbox.close(error);
            }
        }
        let mut failed = Vec::new();
        let handled = sent.outstanding.poll(&mut cx, &mut |one| failed.push(one));
        sent.handled += handled;
        *self.sent.lock() = sent;
        self.node.count_handled(&self.session, handled);
        failed.into_iter().for_each(|one| self.node.return_failed(one));
    }
}
