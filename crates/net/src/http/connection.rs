//! A connection of an HTTP listener, as one future: requests for BOSH are answered, WebSockets leave, the rest is handed on.
//!
//! RFC 9112; XEP-0124 sections 4 and 11 (persistent connections, pipelining, HTTP/1.0). While a request is held the
//! connection reads on: a request that a client sends behind it on the same connection counts at once, and the end of the
//! connection is noticed. Answers leave in the order of the requests.
//!
//! Left out: HTTP/2 and all other paths, see [`Site::other`].
//! The trap: a half-closed connection (a client that says that it will send nothing more) counts as broken, as with most
//! servers: a client that is gone looks the same.

use super::alarms::{Alarm, NEVER};
use super::body::{BodyFault, Decoder};
use super::forwarded::Remote;
use super::head::{self, Length, Manners, Method, Refusal, Request, Start};
use super::look::{Found, NEEDS_TLS, look, spoilt};
use super::origins::Cors;
use super::reply;
use super::site::Site;
use crate::bosh::{Answer, Origin};
use crate::gate::Pass;
use crate::scratch::{Scratch, with_scratch};
use crate::stream::Stream;
use crate::websocket::Accepted;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

/// Requests of one connection that may wait for their answers at a time.
const PIPELINED: usize = 4;
/// Steps of one poll before other tasks get their turn.
const FAIR: usize = 64;
/// Seconds for the end of a connection: what it still sends is thrown away, or a reset could overtake the answer.
const FAREWELL_SECONDS: u32 = 2;
/// Bytes that are thrown away at the end.
const DISCARD_BYTES: usize = 1 << 20;

/// A connection of an HTTP listener.
pub struct Connection<S: Site> {
    /// Taken away when the connection becomes something else.
    stream: Option<Stream>,
    pass: Option<Pass>,
    site: Arc<S>,
    alarm: Alarm,
    /// The request that is answered next.
    front: Option<Turn<S::Exchange>>,
    /// Requests behind it.
    #[allow(
        clippy::box_collection,
        reason = "absent from nearly all connections, which then pay 8 bytes and not 32"
    )]
    behind: Option<Box<VecDeque<Turn<S::Exchange>>>>,
    /// A request whose body is on its way.
    partial: Option<Box<Partial>>,
    /// Unread bytes that were looked at already.
    seen: usize,
    /// Bytes that were thrown away at the end; while writing is blocked, what was unsent.
    measure: usize,
    /// What the deadline is for.
    due: Due,
    phase: Phase,
    /// Something is next that has to wait until all answers are out.
    stalled: bool,
}

/// A request in its place.
enum Turn<E> {
    Held(E, Manners),
    Said(Vec<u8>, Keep),
}

/// Whether the connection stays.
type Keep = bool;

/// A request whose body is not there yet.
struct Partial {
    request: Request,
    decoder: Decoder,
    body: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    Nothing,
    Head,
    Body,
    Idle,
    Write,
    Farewell,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No request has come yet.
    New,
    Open,
    /// No further request is read.
    Last,
    /// We are done, and say so.
    Shutting,
    Shut,
}

enum Step {
    Again,
    Sleep,
    Over,
}

impl<S: Site> Connection<S> {
    /// A connection that was just accepted.
    pub fn new(mut stream: Stream, pass: Pass, site: Arc<S>) -> Connection<S> {
        stream.set_raw();
        let http = site.http();
        http.tally.connections.fetch_add(1, Relaxed);
        let alarm = http.alarms.add();
        alarm.set(http.clock.seconds().saturating_add(http.settings().header_timeout_seconds));
        Connection {
            stream: Some(stream),
            pass: Some(pass),
            site,
            alarm,
            front: None,
            behind: None,
            partial: None,
            seen: 0,
            measure: 0,
            due: Due::Head,
            phase: Phase::New,
            stalled: false,
        }
    }

    /// True when it owns no buffer.
    #[cfg(test)]
    pub(super) fn is_quiet(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::is_idle) && self.partial.is_none() && self.behind.is_none()
    }

    fn step(&mut self, cx: &mut Context<'_>, lent: &mut Scratch) -> Step {
        let now = self.site.http().clock.seconds();
        let Some(stream) = &mut self.stream else { return Step::Over };
        if matches!(self.phase, Phase::Shutting | Phase::Shut) {
            return self.farewell(now, cx, lent);
        }
        match stream.poll_flush(cx, lent) {
            Poll::Ready(Err(_)) => return Step::Over,
            Poll::Pending => {
                let unsent = stream.unsent();
                // A slow reader is not a dead one.
                if self.due != Due::Write || unsent < self.measure {
                    self.due = Due::Nothing;
                    self.measure = unsent;
                    self.wait(Due::Write, now);
                } else if self.alarm.is_due(now) {
                    self.site.http().tally.late.fetch_add(1, Relaxed);
                    return Step::Over;
                }
                return Step::Sleep;
            }
            Poll::Ready(Ok(())) if self.due == Due::Write => self.wait(Due::Nothing, now),
            Poll::Ready(Ok(())) => {}
        }
        if self.answer(cx, lent) {
            return Step::Again;
        }
        if self.front.is_none() {
            let quiet = self.partial.is_none() && self.seen == 0;
            if self.phase == Phase::Last || (quiet && self.site.http().is_draining()) {
                self.measure = 0;
                self.phase = Phase::Shutting;
                self.wait(Due::Farewell, now);
                return Step::Again;
            }
            if std::mem::take(&mut self.stalled) {
                self.seen = 0;
            }
        }
        self.read(now, cx, lent)
    }

    /// Sets the deadline, unless it is set for the same already.
    fn wait(&mut self, due: Due, now: u32) {
        if self.due == due {
            return;
        }
        self.due = due;
        let settings = self.site.http().settings();
        let seconds = match due {
            Due::Nothing => return self.alarm.set(NEVER),
            Due::Head => settings.header_timeout_seconds,
            Due::Body => settings.body_timeout_seconds,
            Due::Idle => settings.idle_timeout_seconds,
            Due::Write => settings.write_stall_timeout_seconds,
            Due::Farewell => FAREWELL_SECONDS,
        };
        self.alarm.set(now.saturating_add(seconds));
    }

    /// Queues the next answer, if there is one.
    fn answer(&mut self, cx: &mut Context<'_>, lent: &mut Scratch) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let answer = match &mut self.front {
            None => return false,
            Some(Turn::Said(..)) => None,
            Some(Turn::Held(exchange, _)) => match Pin::new(exchange).poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(answer) => Some(answer),
            },
        };
        let next = self.behind.as_mut().and_then(|behind| behind.pop_front());
        if next.is_none() {
            self.behind = None;
        }
        let keep = match (std::mem::replace(&mut self.front, next), answer) {
            (Some(Turn::Said(bytes, keep)), _) => {
                stream.queue(&bytes, lent);
                keep
            }
            (Some(Turn::Held(_, mut manners)), Some(answer)) => {
                if answer.close {
                    // Without a word; what else is under way broke with it.
                    (self.front, self.behind) = (None, None);
                } else {
                    let http = self.site.http();
                    manners.keep &= self.phase != Phase::Last && !http.is_draining();
                    let content = answer.content.as_deref().unwrap_or(Answer::CONTENT);
                    let mut out = Vec::with_capacity(512 + answer.body.len());
                    reply::write(&mut out, &*http.clock, answer.status, content, &answer.body, &manners, &[]);
                    stream.queue(&out, lent);
                }
                manners.keep && !answer.close
            }
            _ => true,
        };
        if !keep {
            (self.front, self.behind) = (None, None);
            self.phase = Phase::Last;
        }
        true
    }

    /// Puts a request in its place.
    fn push(&mut self, turn: Turn<S::Exchange>) {
        let keep = match &turn {
            Turn::Held(_, manners) => manners.keep,
            Turn::Said(_, keep) => *keep,
        };
        self.phase = if keep { Phase::Open } else { Phase::Last };
        if self.front.is_none() {
            self.front = Some(turn);
        } else {
            self.behind.get_or_insert_default().push_back(turn);
        }
    }

    fn read(&mut self, now: u32, cx: &mut Context<'_>, lent: &mut Scratch) -> Step {
        let Some(stream) = &mut self.stream else { return Step::Over };
        let waiting = self.front.iter().len() + self.behind.as_ref().map_or(0, |behind| behind.len());
        let bytes = match stream.poll_bytes(cx, lent, self.seen) {
            Poll::Pending => return self.rest(now, lent),
            Poll::Ready(Err(_)) => return Step::Over,
            Poll::Ready(Ok(bytes)) if bytes.len() <= self.seen => return Step::Over,
            Poll::Ready(Ok(bytes)) => bytes,
        };
        if self.stalled || self.phase == Phase::Last || waiting >= PIPELINED {
            // It is looked at when its turn comes; until then only the end of the connection matters.
            self.seen = bytes.len();
            self.stalled = true;
            return Step::Again;
        }
        let settings = self.site.http().settings();
        let limit = settings.bosh.unwrap_or(0);
        if let Some(partial) = &mut self.partial {
            let taken = partial.decoder.feed(bytes, &mut partial.body, limit);
            let done = partial.decoder.is_done();
            match taken {
                Ok(count) => stream.consume(count, lent),
                Err(fault) => return self.refuse(spoilt(fault), lent),
            }
            self.seen = 0;
            if done && let Some(partial) = self.partial.take() {
                let exchange = exchange(&*self.site, stream, &partial.request.remote, &partial.body);
                self.push(Turn::Held(exchange, partial.request.manners));
                self.wait(Due::Nothing, now);
            }
            return Step::Again;
        }
        let end = match head::start(bytes, self.seen) {
            Err(refusal) => return self.refuse(refusal, lent),
            Ok(Start::More { skip: 0 }) => {
                self.seen = bytes.len();
                return Step::Again;
            }
            Ok(Start::More { skip }) => {
                stream.consume(skip, lent);
                self.seen = 0;
                return Step::Again;
            }
            Ok(Start::Http2) => 0,
            Ok(Start::Head(end)) => end,
        };
        let found = match bytes.get(..end).filter(|head| !head.is_empty()) {
            None => Ok(Found::Other),
            Some(head) => look(head, &settings, stream),
        };
        match found {
            Err(refusal) => self.refuse(refusal, lent),
            Ok(Found::Bosh(request)) => self.bosh(request, limit, now, lent),
            // The rest has to wait until the connection is ours alone.
            Ok(_) if waiting > 0 => {
                self.seen = bytes.len();
                self.stalled = true;
                Step::Again
            }
            Ok(Found::Other) => self.hand_over(lent),
            Ok(Found::Upgrade(request, accepted)) => self.upgrade(&request, *accepted, lent),
            Ok(Found::Rejected(request, rejected)) => {
                let mut more = Vec::new();
                if let Some((name, value)) = rejected.header() {
                    more.push((name, value));
                }
                self.tell(&request.manners, rejected.status, rejected.reason, &more, lent)
            }
        }
    }

    /// There is nothing to read: until when?
    fn rest(&mut self, now: u32, lent: &mut Scratch) -> Step {
        let http = self.site.http();
        let due = if self.partial.is_some() {
            Due::Body
        } else if self.front.is_some() {
            // A head that began behind a held request is bounded in bytes, and by the request.
            Due::Nothing
        } else if self.seen > 0 || self.phase == Phase::New {
            Due::Head
        } else {
            Due::Idle
        };
        if self.due != due {
            self.wait(due, now);
            return Step::Sleep;
        }
        if !self.alarm.is_due(now) {
            return Step::Sleep;
        }
        if due == Due::Idle {
            self.phase = Phase::Last;
            return Step::Again;
        }
        http.tally.late.fetch_add(1, Relaxed);
        if due == Due::Head && self.seen == 0 {
            // Not a byte came: nobody is there to be told.
            return Step::Over;
        }
        self.refuse(Refusal { status: 408, why: "the request took too long" }, lent)
    }

    fn bosh(&mut self, request: Request, limit: usize, now: u32, lent: &mut Scratch) -> Step {
        self.pass.iter_mut().for_each(Pass::authenticated);
        let http = self.site.http();
        http.tally.requests.fetch_add(1, Relaxed);
        if request.method != Method::Post {
            return self.aside(request, lent);
        }
        if self.site.needs_tls() && !request.remote.secure {
            return self.refuse(NEEDS_TLS, lent);
        }
        if matches!(request.length, Length::Known(length) if length > limit as u64) {
            return self.refuse(spoilt(BodyFault::TooLong), lent);
        }
        let Some(stream) = &mut self.stream else { return Step::Over };
        stream.consume(request.bytes, lent);
        self.seen = 0;
        if let Length::Known(length) = request.length {
            // Asked again for what is behind the head: it is usually there already.
            // Below the limit, which was asked before.
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let rest = match length {
                0 => Some(&[][..]),
                _ => stream.unread(lent).get(..length),
            };
            if let Some(body) = rest {
                let exchange = exchange(&*self.site, stream, &request.remote, body);
                stream.consume(length, lent);
                self.push(Turn::Held(exchange, request.manners));
                self.wait(Due::Nothing, now);
                return Step::Again;
            }
        }
        if request.expects && self.front.is_none() && stream.unread(lent).is_empty() {
            stream.queue(b"HTTP/1.1 100 Continue\r\n\r\n", lent);
        }
        let decoder = match request.length {
            Length::Known(length) => Decoder::length(length),
            Length::Chunked => Decoder::chunked(),
        };
        self.partial = Some(Box::new(Partial { request, decoder, body: Vec::new() }));
        self.wait(Due::Body, now);
        Step::Again
    }

    /// Requests to the path of BOSH that are none of BOSH.
    fn aside(&mut self, mut request: Request, lent: &mut Scratch) -> Step {
        let Some(stream) = &mut self.stream else { return Step::Over };
        stream.consume(request.bytes, lent);
        self.seen = 0;
        // A body that nobody wants is not read.
        request.manners.keep &= request.length == Length::Known(0) && !self.site.http().is_draining();
        let manners = &request.manners;
        let clock = &*self.site.http().clock;
        let mut out = Vec::with_capacity(512);
        match request.method {
            Method::Options => reply::preflight(&mut out, clock, manners),
            Method::Get | Method::Head => {
                reply::write(&mut out, clock, 200, reply::TEXT, super::BOSH_PAGE.as_bytes(), manners, &[]);
            }
            _ => {
                let allow = [("Allow", "POST, GET, HEAD, OPTIONS")];
                reply::write(&mut out, clock, 405, reply::TEXT, b"BOSH is POST.\n", manners, &allow);
            }
        }
        self.push(Turn::Said(out, request.manners.keep));
        Step::Again
    }

    fn upgrade(&mut self, request: &Request, accepted: Accepted, lent: &mut Scratch) -> Step {
        let site = self.site.clone();
        site.http().tally.requests.fetch_add(1, Relaxed);
        if site.needs_tls() && !request.remote.secure {
            return self.refuse(NEEDS_TLS, lent);
        }
        let Some(pass) = site.enter(&request.remote) else {
            return self.refuse(Refusal { status: 503, why: "there is no room for another session" }, lent);
        };
        let Some(mut stream) = self.stream.take() else { return Step::Over };
        stream.consume(request.bytes, lent);
        let mut out = Vec::with_capacity(256);
        accepted.write(&mut out);
        stream.queue(&out, lent);
        stream.set_websocket(accepted);
        stream.behind_proxy(request.remote.peer, request.remote.secure);
        if stream.park(lent).is_ok() {
            site.http().tally.upgraded.fetch_add(1, Relaxed);
            site.websocket(stream, pass);
        }
        Step::Over
    }

    fn hand_over(&mut self, lent: &mut Scratch) -> Step {
        let (Some(mut stream), Some(mut pass)) = (self.stream.take(), self.pass.take()) else {
            return Step::Over;
        };
        pass.authenticated();
        if stream.park(lent).is_ok() {
            self.site.http().tally.handed_over.fetch_add(1, Relaxed);
            self.site.other(stream, pass);
        }
        Step::Over
    }

    /// Says why a request is not taken, and that the connection ends.
    fn refuse(&mut self, refusal: Refusal, lent: &mut Scratch) -> Step {
        let cors = Cors::Silent;
        let manners = Manners { cors, gzip: false, keep: false, old: false, bare: false };
        self.tell(&manners, refusal.status, refusal.why, &[], lent)
    }

    fn tell(
        &mut self,
        manners: &Manners,
        status: u16,
        why: &str,
        more: &[(&str, &str)],
        lent: &mut Scratch,
    ) -> Step {
        let http = self.site.http();
        http.tally.refused.fetch_add(1, Relaxed);
        if self.front.is_some() {
            // Its answer would overtake others, and they are not to be had any more.
            return Step::Over;
        }
        let manners = Manners { keep: false, gzip: false, ..manners.clone() };
        let mut out = Vec::with_capacity(256);
        reply::write(
            &mut out,
            &*http.clock,
            status,
            reply::TEXT,
            format!("{why}\n").as_bytes(),
            &manners,
            more,
        );
        if let Some(stream) = &mut self.stream {
            stream.queue(&out, lent);
        }
        self.partial = None;
        self.phase = Phase::Last;
        Step::Again
    }

    /// The last answer is out: ends our direction and waits for the other one.
    fn farewell(&mut self, now: u32, cx: &mut Context<'_>, lent: &mut Scratch) -> Step {
        let Some(stream) = &mut self.stream else { return Step::Over };
        if self.phase == Phase::Shutting {
            match stream.poll_shutdown(cx, lent) {
                Poll::Ready(Ok(())) => self.phase = Phase::Shut,
                Poll::Ready(Err(_)) => return Step::Over,
                Poll::Pending => {}
            }
        }
        if self.alarm.is_due(now) {
            return Step::Over;
        }
        while self.phase == Phase::Shut {
            match stream.poll_discard(cx, lent) {
                Poll::Ready(Ok(0) | Err(_)) => return Step::Over,
                Poll::Ready(Ok(count)) => self.measure += count,
                Poll::Pending => break,
            }
            if self.measure > DISCARD_BYTES {
                return Step::Over;
            }
        }
        Step::Sleep
    }
}

impl<S: Site> Future for Connection<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.alarm.register(cx);
        with_scratch(|lent| {
            for _ in 0..FAIR {
                match this.step(cx, lent) {
                    Step::Again => {}
                    Step::Over => return Poll::Ready(()),
                    Step::Sleep => return this.park(lent),
                }
            }
            cx.waker().wake_by_ref();
            this.park(lent)
        })
    }
}

impl<S: Site> Connection<S> {
    fn park(&mut self, lent: &mut Scratch) -> Poll<()> {
        match self.stream.as_mut().map(|stream| stream.park(lent)) {
            Some(Ok(())) => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}

impl<S: Site> Drop for Connection<S> {
    fn drop(&mut self) {
        self.site.http().tally.connections.fetch_sub(1, Relaxed);
    }
}

fn exchange<S: Site>(site: &S, stream: &Stream, remote: &Remote, body: &[u8]) -> S::Exchange {
    let origin = Origin { peer: remote.peer, port: stream.port().clone(), secure: remote.secure };
    site.exchange(origin, body)
}
