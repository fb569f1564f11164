//! Many light clients in one thread: an epoll loop over connections that log in, talk and close.
//!
//! A quiet connection holds no buffer. Bytes are cut into elements and given to the bench's own closure;
//! what that queues is written after the connection's event, so several messages to one connection share a write.
//! A connection that the server closes unasked ends the run with an error: a figure over lost clients is worth nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::event::{Timespec, epoll};
use rustls::ClientConfig;

use super::clock::now;
use super::link::{Got, Link, tls_config};
use super::negotiate::{Login, Next, Profile, Security, reply};
use super::scram::Secrets;
use super::split::{Piece, piece};

/// What is queued for the connections.
pub(crate) struct Outs {
    queued: Vec<Vec<u8>>,
    dirty: Vec<usize>,
}

impl Outs {
    /// The bytes queued for connection `slot`, to append to.
    pub(crate) fn to(&mut self, slot: usize) -> &mut Vec<u8> {
        if self.queued[slot].is_empty() {
            self.dirty.push(slot);
        }
        &mut self.queued[slot]
    }
}

struct Conn {
    link: Link,
    login: Option<Box<Login>>,
    partial: Vec<u8>,
    connected: bool,
    /// The socket did not take everything; the rest goes when epoll says so.
    stuck: bool,
    closing: bool,
}

/// The light clients.
pub(crate) struct Driver {
    epoll: rustix::fd::OwnedFd,
    events: Vec<epoll::Event>,
    conns: Vec<Option<Conn>>,
    /// The full address of each connection that is up.
    pub(crate) addresses: Vec<String>,
    /// What is queued.
    pub(crate) outs: Outs,
    scratch: Vec<u8>,
    to: SocketAddr,
    /// What all clients have in common; may be changed between logins.
    pub(crate) profile: Profile,
    /// The password and its keys.
    pub(crate) secrets: Secrets,
    tls: Arc<ClientConfig>,
    turns: u64,
    ready: Vec<usize>,
    open: usize,
}

/// The longest silence during a login or a close before the run is given up.
const PATIENCE: Duration = Duration::from_secs(30);
const SCRATCH: usize = 256 * 1024;

impl Driver {
    /// A driver without connections towards the server at `to`.
    pub(crate) fn new(to: SocketAddr, profile: Profile, password: &str) -> Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(256),
            conns: Vec::new(),
            addresses: Vec::new(),
            outs: Outs { queued: Vec::new(), dirty: Vec::new() },
            scratch: vec![0; SCRATCH],
            to,
            tls: tls_config(profile.security == Security::Direct)?,
            profile,
            secrets: Secrets::new(password),
            turns: 0,
            ready: Vec::new(),
            open: 0,
        })
    }

    /// Logs in accounts `first .. first + count` on the slots behind the last one, at most `at_once` at a time.
    pub(crate) fn login(&mut self, first: u64, count: usize, at_once: usize) -> Result<()> {
        let base = self.conns.len();
        let (mut begun, mut done) = (0, 0);
        let mut progress = now();
        while done < count {
            while begun < count && begun - done < at_once {
                self.begin(base + begun, first + begun as u64)?;
                begun += 1;
            }
            self.turn(Some(Duration::from_secs(1)), |_, _, _| {})?;
            if !self.ready.is_empty() {
                done += self.ready.len();
                self.ready.clear();
                progress = now();
            } else if progress.elapsed() > PATIENCE {
                bail!("no login was completed for {} s; {done} of {count} are up", PATIENCE.as_secs());
            }
        }
        Ok(())
    }

    fn begin(&mut self, slot: usize, account: u64) -> Result<()> {
        self.turns += 1;
        let mut link = Link::connect(self.to, self.turns)
            .with_context(|| format!("connection {slot} to {} cannot be opened", self.to))?;
        if self.profile.security == Security::Direct {
            link.start_tls(&self.tls, &self.profile.domain)?;
        }
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
        epoll::add(&self.epoll, &link, epoll::EventData::new_u64(slot as u64), flags)?;
        let mut first = Vec::new();
        let login = Login::begin(&self.profile, account, &self.secrets, &mut first);
        debug_assert_eq!(slot, self.conns.len());
        self.outs.queued.push(first);
        self.addresses.push(String::new());
        self.conns.push(Some(Conn {
            link,
            login: Some(Box::new(login)),
            partial: Vec::new(),
            connected: false,
            stuck: true,
            closing: false,
        }));
        self.open += 1;
        Ok(())
    }

    /// Waits at most `timeout` (for ever without one) and handles what came. `on` gets each element of a connection that is up.
    pub(crate) fn turn<F>(&mut self, timeout: Option<Duration>, mut on: F) -> Result<()>
    where
        F: FnMut(&mut Outs, usize, &[u8]),
    {
        self.flush()?;
        let timeout = timeout.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let events = std::mem::take(&mut self.events);
        for event in &events {
            let (slot, flags) = (event.data.u64() as usize, event.flags);
            self.event(slot, flags, &mut on).with_context(|| format!("connection {slot}"))?;
            self.flush()?;
        }
        self.events = events;
        Ok(())
    }

    fn event<F>(&mut self, slot: usize, flags: epoll::EventFlags, on: &mut F) -> Result<()>
    where
        F: FnMut(&mut Outs, usize, &[u8]),
    {
        let Some(conn) = self.conns[slot].as_mut() else { return Ok(()) };
        if !conn.connected && flags.intersects(epoll::EventFlags::OUT | epoll::EventFlags::ERR) {
            conn.link.connect_error().with_context(|| format!("cannot connect to {}", self.to))?;
            conn.connected = true;
        }
        if flags.contains(epoll::EventFlags::OUT) {
            self.write(slot)?;
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            self.read(slot, on)?;
        }
        Ok(())
    }

    fn read<F>(&mut self, slot: usize, on: &mut F) -> Result<()>
    where
        F: FnMut(&mut Outs, usize, &[u8]),
    {
        loop {
            let Some(conn) = self.conns[slot].as_mut() else { return Ok(()) };
            let kept = conn.partial.len();
            if kept + SCRATCH / 2 > self.scratch.len() {
                self.scratch.resize(2 * (kept + SCRATCH), 0);
            }
            self.scratch[..kept].copy_from_slice(&conn.partial);
            let end = match conn.link.read(&mut self.scratch[kept..]) {
                Ok(Got::Bytes(0)) => return self.after_read(slot),
                Ok(Got::Bytes(read)) => kept + read,
                Ok(Got::End) => return self.ended(slot, None),
                Err(error) => return self.ended(slot, Some(error)),
            };
            conn.partial.clear();
            let mut at = 0;
            while at < end {
                match piece(&self.scratch[at..end]) {
                    Piece::More => break,
                    Piece::Skip(length) => at += length,
                    Piece::Element(length) => {
                        self.element(slot, at, at + length, on)?;
                        at += length;
                    }
                    Piece::End => return self.ended(slot, None),
                }
            }
            if let Some(conn) = self.conns[slot].as_mut()
                && at < end
            {
                conn.partial.extend_from_slice(&self.scratch[at..end]);
            } else if let Some(conn) = self.conns[slot].as_mut() {
                conn.partial = Vec::new();
            }
            // Plain sockets are level-triggered, so the next turn tells of the rest; TLS may hold more by itself.
            if self.profile.security == Security::None {
                return Ok(());
            }
        }
    }

    /// A TLS handshake has something to send although nothing was queued.
    fn after_read(&mut self, slot: usize) -> Result<()> {
        if self.profile.security == Security::None { Ok(()) } else { self.write(slot) }
    }

    fn element<F>(&mut self, slot: usize, from: usize, to: usize, on: &mut F) -> Result<()>
    where
        F: FnMut(&mut Outs, usize, &[u8]),
    {
        let element = &self.scratch[from..to];
        let Some(conn) = self.conns[slot].as_mut() else { return Ok(()) };
        let Some(login) = conn.login.as_mut() else {
            if element.starts_with(b"<iq") {
                let mut answer = Vec::new();
                reply(element, &mut answer);
                if !answer.is_empty() {
                    self.outs.to(slot).extend_from_slice(&answer);
                }
            } else if element.starts_with(b"<stream:error") && !conn.closing {
                bail!("{} got {}", self.addresses[slot], String::from_utf8_lossy(element));
            }
            on(&mut self.outs, slot, element);
            return Ok(());
        };
        self.turns += 1;
        let mut answer = Vec::new();
        let next = login.element(element, &self.profile, &mut self.secrets, self.turns, &mut answer)?;
        match next {
            Next::Wait => {}
            Next::Tls => conn.link.start_tls(&self.tls, &self.profile.domain)?,
            Next::Ready(address) => {
                self.addresses[slot] = address;
                conn.login = None;
                self.ready.push(slot);
            }
        }
        if !answer.is_empty() {
            self.outs.to(slot).extend_from_slice(&answer);
        }
        Ok(())
    }

    fn ended(&mut self, slot: usize, error: Option<std::io::Error>) -> Result<()> {
        if let Some(conn) = self.conns[slot].take() {
            self.open -= 1;
            self.outs.queued[slot] = Vec::new();
            if !conn.closing {
                let why = error.map_or_else(|| anyhow!("the server closed it"), anyhow::Error::from);
                return Err(why.context(format!("{} went away", self.addresses[slot])));
            }
        }
        Ok(())
    }

    /// Writes what is queued.
    pub(crate) fn flush(&mut self) -> Result<()> {
        while let Some(slot) = self.outs.dirty.pop() {
            if self.conns[slot].as_ref().is_some_and(|conn| !conn.stuck) {
                self.write(slot)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, slot: usize) -> Result<()> {
        let Some(conn) = self.conns[slot].as_mut() else { return Ok(()) };
        if !conn.connected {
            return Ok(());
        }
        let done = match conn.link.write(&mut self.outs.queued[slot]) {
            Ok(done) => done,
            Err(error) => return self.ended(slot, Some(error)),
        };
        if done == conn.stuck {
            conn.stuck = !done;
            let out = if done { epoll::EventFlags::empty() } else { epoll::EventFlags::OUT };
            let flags = epoll::EventFlags::IN | out;
            epoll::modify(&self.epoll, &conn.link, epoll::EventData::new_u64(slot as u64), flags)?;
        }
        Ok(())
    }

    /// Handles what comes until `end`, for `on`.
    pub(crate) fn run_until<F>(&mut self, end: Instant, mut on: F) -> Result<()>
    where
        F: FnMut(&mut Outs, usize, &[u8]),
    {
        loop {
            let left = end.saturating_duration_since(now());
            if left.is_zero() {
                return Ok(());
            }
            self.turn(Some(left), &mut on)?;
        }
    }

    /// Reads until nothing has come for `gap`; fails when that takes longer than `limit`.
    pub(crate) fn quiet(&mut self, gap: Duration, limit: Duration) -> Result<()> {
        let started = now();
        let mut last = started;
        while last.elapsed() < gap {
            let mut came = false;
            self.turn(Some(gap), |_, _, _| came = true)?;
            if came {
                last = now();
            }
            if started.elapsed() > limit {
                bail!("the server still sends after {} s", limit.as_secs());
            }
        }
        Ok(())
    }

    /// Loses all connections without a word.
    pub(crate) fn abandon_all(&mut self) {
        self.conns.clear();
        self.open = 0;
        self.addresses.clear();
        self.outs.queued.clear();
        self.outs.dirty.clear();
        self.ready.clear();
    }

    /// Closes all connections and waits until the server has closed them too.
    pub(crate) fn close_all(&mut self) -> Result<()> {
        if !self.profile.relay {
            for slot in 0..self.conns.len() {
                if let Some(conn) = self.conns[slot].as_mut() {
                    conn.closing = true;
                    self.outs.to(slot).extend_from_slice(b"</stream:stream>");
                }
            }
            let (mut progress, mut left) = (now(), self.open);
            while self.open > 0 {
                self.turn(Some(Duration::from_secs(1)), |_, _, _| {})?;
                if self.open < left {
                    (progress, left) = (now(), self.open);
                } else if progress.elapsed() > PATIENCE {
                    bail!("the server leaves {left} streams open {} s after their end", PATIENCE.as_secs());
                }
            }
        }
        self.abandon_all();
        Ok(())
    }
}
