//! For tests: a connection in memory, with a clock that tests move, and exchanges that tests answer.
//!
//! The trap: nothing runs by itself; every method that sends, reads or lets time pass polls until nobody wakes the task.

use super::*;
use crate::bosh::{Answer, Origin};
use crate::facts::{Kind, Port};
use crate::gate::{Gate, Pass};
use crate::stream::Stream;
use crate::stream::memory::Pipe;
use base::clock::ManualClock;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

/// A request as the site got it.
pub(super) struct Asked {
    pub(super) body: String,
    pub(super) origin: Origin,
    slot: Arc<Mutex<Slot>>,
}

#[derive(Default)]
pub(super) struct Slot {
    answer: Option<Answer>,
    waker: Option<Waker>,
    gone: bool,
}

impl Asked {
    pub(super) fn answer(&self, text: &str) {
        self.say(Answer { status: 200, body: text.as_bytes().into(), content: None, close: false });
    }
    pub(super) fn say(&self, answer: Answer) {
        let mut slot = self.slot.lock();
        slot.answer = Some(answer);
        slot.waker.take().into_iter().for_each(Waker::wake);
    }
    pub(super) fn is_gone(&self) -> bool {
        self.slot.lock().gone
    }
}

pub(super) struct Held(Arc<Mutex<Slot>>);

impl Future for Held {
    type Output = Answer;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let mut slot = self.0.lock();
        match slot.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.lock().gone = true;
    }
}

pub(super) struct Fake {
    pub(super) http: Arc<Http>,
    pub(super) gate: Gate,
    pub(super) tls: bool,
    pub(super) full: bool,
    pub(super) asked: Mutex<Vec<Asked>>,
    pub(super) websockets: Mutex<Vec<Stream>>,
    pub(super) others: Mutex<Vec<Stream>>,
}

impl Site for Fake {
    type Exchange = Held;
    fn http(&self) -> &Http {
        &self.http
    }
    fn needs_tls(&self) -> bool {
        self.tls
    }
    fn exchange(&self, origin: Origin, body: &[u8]) -> Held {
        let slot = Arc::new(Mutex::new(Slot::default()));
        let body = String::from_utf8_lossy(body).into_owned();
        self.asked.lock().push(Asked { body, origin, slot: slot.clone() });
        Held(slot)
    }
    fn enter(&self, remote: &Remote) -> Option<Pass> {
        if self.full { None } else { self.gate.enter(remote.peer.ip()).ok() }
    }
    fn websocket(&self, stream: Stream, _pass: Pass) {
        self.websockets.lock().push(stream);
    }
    fn other(&self, stream: Stream, _pass: Pass) {
        self.others.lock().push(stream);
    }
}

#[derive(Default)]
struct Woken(AtomicBool);
impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

pub(super) struct Run {
    pub(super) connection: Option<Connection<Fake>>,
    pub(super) pipe: Pipe,
    pub(super) site: Arc<Fake>,
    clock: Arc<ManualClock>,
    woken: Arc<Woken>,
}

impl Run {
    pub(super) fn new() -> Run {
        Run::with(Settings::default(), |_| {})
    }

    pub(super) fn with(settings: Settings, change: impl FnOnce(&mut Fake)) -> Run {
        let clock = Arc::new(ManualClock::new());
        clock.advance(1_000_000);
        let http = Http::new(settings, clock.clone());
        let mut site = Fake {
            http,
            gate: Gate::default(),
            tls: false,
            full: false,
            asked: Mutex::default(),
            websockets: Mutex::default(),
            others: Mutex::default(),
        };
        change(&mut site);
        let site = Arc::new(site);
        let port = Arc::new(Port::new(Kind::Http, "127.0.0.1:5280".parse().unwrap()));
        let (stream, pipe) = Stream::memory_from(port, 20_000, "192.0.2.1:4711".parse().unwrap());
        let pass = site.gate.enter("192.0.2.1".parse().unwrap()).unwrap();
        let connection = Some(Connection::new(stream, pass, site.clone()));
        let mut run = Run { connection, pipe, site, clock, woken: Arc::default() };
        run.woken.0.store(true, SeqCst);
        run.go();
        run
    }

    /// Polls for as long as somebody wakes the task.
    pub(super) fn go(&mut self) {
        let waker = Waker::from(self.woken.clone());
        while self.woken.0.swap(false, SeqCst) {
            let Some(connection) = &mut self.connection else { return };
            if Pin::new(connection).poll(&mut Context::from_waker(&waker)).is_ready() {
                self.connection = None;
            }
        }
    }

    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let mut rest = bytes.as_ref();
        while !rest.is_empty() {
            match self.pipe.poll_write(&mut Context::from_waker(Waker::noop()), rest) {
                Poll::Ready(Ok(count)) => rest = &rest[count..],
                Poll::Ready(Err(_)) => return,
                Poll::Pending => {}
            }
            self.go();
        }
    }

    /// What has come back. At its end: `#` when the connection was closed.
    pub(super) fn read(&mut self) -> String {
        let mut text = String::new();
        let mut buffer = [0; 5000];
        loop {
            self.go();
            match self.pipe.poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer) {
                Poll::Ready(0) => return text + "#",
                Poll::Ready(count) => text += &String::from_utf8_lossy(&buffer[..count]),
                Poll::Pending => return text,
            }
        }
    }

    pub(super) fn post(&mut self, body: &str) {
        self.send(format!("POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    }

    pub(super) fn bodies(&self) -> Vec<String> {
        self.site.asked.lock().iter().map(|asked| asked.body.clone()).collect()
    }

    pub(super) fn answer(&mut self, at: usize, text: &str) {
        self.site.asked.lock()[at].answer(text);
    }

    /// Time passes, a second at a time.
    pub(super) fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.clock.advance(1000);
            self.site.http.sweep();
            self.go();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.connection.is_none()
    }

    pub(super) fn owns_nothing(&self) -> bool {
        let connection = self.connection.as_ref().unwrap();
        connection.is_quiet()
    }
}

/// Status and body of one answer.
pub(super) fn parts(text: &str) -> (u16, &str) {
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (status, text.split_once("\r\n\r\n").map_or("", |(_, body)| body))
}
