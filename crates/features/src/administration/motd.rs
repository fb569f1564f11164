//! Message of the day: XEP-0133 1.3.1, sections 4.24 to 4.26. Sent immediately to online users, to all others when
//! they next become available, and to each account once.
//!
//! A bit per id of the address dictionary records which accounts have seen it, in chunks of 32 kB among the server's
//! key-value storage: no row per login or account, and no read when a user becomes available. A chunk begins with the time of
//! its message, so the chunks of an older message count as empty and need no clearing. Chunks are written
//! asynchronously: after `kill -9` the most recent recipients see the message again.
//!
//! Of several nodes, the one that changes the message notifies the others, which read it again. The node with the preferred session of
//! a user sends it to this user: a connected session before a detached one, then the one of the highest priority. Each adds its bits
//! to the stored chunk, and reads that chunk before it sends the message to a user who becomes available and has no bit here.
//!
//! Long because commands, notices and logins share one state and its bits.
//!
//! # Pitfalls
//!
//! While there is no message, becoming available must cost one load; see [`DomainMotd::status`].
//!
//! A user who becomes available on two nodes within the time of a write may see the message twice. One whose sessions change
//! their priorities while it is sent may see it twice, or at the next `available`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use base::lock::LeafMutex;
use feature_api::feature::FeatureBuilder;
use store::{AddressId, StoreError, StoreErrorKind};
use throng_commands::{
    Command, CommandCall, CommandError, CommandField, CommandFieldKind, CommandFuture, CommandOutput,
    CurrentValues, RegisterCommands, TokenScope,
};
use throng_core::account::PeerSession;
use throng_core::feature_notice::NoticeCtx;
use throng_core::hooks::{AvailableCtx, Flow, HandlerOutcome, Phase};
use throng_core::session::{ToRewrite, flags};
use throng_core::{Account, Effect, Effects, Host, Node, Session, SharedStanza};

use super::announce::{accepts_headline, count_online, for_each_online, headline};
use super::{FORM_TYPE, node};

/// The notice that the message has changed; see [`MotdChange`].
const NOTICE: &str = "motd";

/// Content of the notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MotdChange {
    /// Nothing is sent now.
    Quiet = 0,
    /// Online users must receive it.
    Announced = 1,
}

/// Reads of the message because of notices. One runs at a time, however many notices a node sends.
#[derive(Default)]
struct NoticedReads {
    running: bool,
    /// Another read is due. The content of its notices; `None` if some may have been missed.
    due: Option<Option<MotdChange>>,
}

/// Attempts to add bits to a chunk that other nodes write as well.
const WRITE_ATTEMPTS: usize = 16;

/// Account ids per chunk: 32 kB of bits, below the size limit of a value.
const CHUNK_ACCOUNTS: u32 = 1 << 18;

const TEXT: CommandField =
    CommandField::new("text", "motd", "Message of the Day", CommandFieldKind::Lines).required();

/// Set Message of the Day: XEP-0133, section 4.24.
pub(super) static SET: Command = Command {
    name: "set-motd",
    node: node!("set-motd"),
    title: "Set Message of the Day",
    doc: "Sends a message to all online users immediately and to all others at their next login.",
    form_type: FORM_TYPE,
    input: &[TEXT],
    scope: TokenScope::Messages,
    ..Command::EMPTY
};

/// Edit Message of the Day: XEP-0133, section 4.25.
pub(super) static EDIT: Command = Command {
    name: "edit-motd",
    node: node!("edit-motd"),
    title: "Edit Message of the Day",
    doc: "Changes the message of the day for users who have not received it yet, or sets one without \
     sending it immediately.",
    form_type: FORM_TYPE,
    input: &[TEXT],
    scope: TokenScope::Messages,
    ..Command::EMPTY
};

/// Delete Message of the Day: XEP-0133, section 4.26.
pub(super) static DELETE: Command = Command {
    name: "delete-motd",
    node: node!("delete-motd"),
    title: "Delete Message of the Day",
    doc: "Removes the message of the day.",
    form_type: FORM_TYPE,
    scope: TokenScope::Messages,
    ..Command::EMPTY
};

const NOT_LOADED: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

#[derive(Clone)]
struct Motd {
    /// When it was set, in milliseconds since 1970; identifies the message.
    set_at: u64,
    text: String,
    frame: SharedStanza,
}

#[derive(Default)]
struct SeenChunk {
    bits: Vec<u8>,
    dirty: bool,
}

#[derive(Default)]
struct MotdState {
    motd: Option<Motd>,
    seen: BTreeMap<u32, SeenChunk>,
    writing: bool,
    /// Changes by commands on this node: what was read before one must not replace it.
    changes: u64,
    /// When the last message was set, also if it was deleted: a later one must have a later time, although the clocks of the
    /// nodes differ.
    last_set_at: u64,
}

/// Message of the day of a domain.
#[derive(Default)]
struct DomainMotd {
    /// One of the three constants above.
    status: AtomicU8,
    state: LeafMutex<MotdState>,
    reads: LeafMutex<NoticedReads>,
}

pub(super) fn build(builder: &mut FeatureBuilder<'_>) {
    let motds = builder.shared_state(DomainMotd::default);
    let of = |what: fn(Arc<DomainMotd>, CommandCall) -> CommandFuture| {
        let motds = motds.clone();
        move |call: CommandCall| what(motds.clone(), call)
    };
    builder.command(&SET, of(|motds, call| Box::pin(motds.set(call))));
    builder.command(&DELETE, of(|motds, call| Box::pin(motds.delete(call))));
    let shown = motds.clone();
    let present = move |node: &Arc<Node>, host: &Arc<Host>| -> base::spawn::BoxFuture<'static, _> {
        Box::pin(shown.clone().current_values(node.clone(), host.domain().to_owned()))
    };
    builder.command_with(&EDIT, present, of(|motds, call| Box::pin(motds.edit(call))));
    let changed = motds.clone();
    builder.notice(NOTICE, move |ctx: &NoticeCtx<'_>| changed.clone().on_notice(ctx));
    builder.available(Phase::Notify, move |ctx: &mut AvailableCtx<'_>| available(&motds, ctx));
}

fn available(motds: &Arc<DomainMotd>, ctx: &mut AvailableCtx<'_>) -> Flow {
    match motds.status.load(Ordering::Relaxed) {
        ABSENT => Flow::Next,
        PRESENT if ctx.node.is_single() || motds.is_seen(ctx.session.account.id) => {
            motds.send_if_unseen(ctx.node, ctx.session, ctx.effects);
            Flow::Next
        }
        status => {
            let (motds, node, session) = (motds.clone(), ctx.node.clone(), ctx.session.clone());
            Flow::Wait(Box::pin(async move {
                let mut effects = Effects::default();
                let domain = session.account.jid.domain();
                let read = match status {
                    PRESENT => motds.read_chunk_of(&node, domain, session.account.id).await,
                    _ => motds.load(&node, domain).await,
                };
                match read {
                    Ok(()) => motds.send_if_unseen(&node, &session, &mut effects),
                    Err(error) => tracing::warn!(%error, "cannot read the message of the day"),
                }
                HandlerOutcome { effects, ..HandlerOutcome::next() }
            }))
        }
    }
}

impl DomainMotd {
    fn key(domain: &str) -> String {
        format!("motd:{domain}")
    }

    /// The setting with the time of a message that was set without sending it to online users.
    fn quiet_key(domain: &str) -> String {
        format!("motd-quiet:{domain}")
    }

    fn chunk_key(domain: &str, piece: u32) -> String {
        format!("motd-seen:{domain}:{piece}")
    }

    /// Reads message and chunks once.
    async fn load(&self, node: &Arc<Node>, domain: &str) -> Result<(), StoreError> {
        if self.status.load(Ordering::Relaxed) != NOT_LOADED {
            return Ok(());
        }
        self.read(node, domain).await
    }

    /// Reads message and chunks, unless a command of this node changes them meanwhile.
    async fn read(&self, node: &Arc<Node>, domain: &str) -> Result<(), StoreError> {
        let changes = self.state.lock().changes;
        let server_kv = &node.stores.server_kv;
        let stored = server_kv.get(&Self::key(domain)).await?.unwrap_or_default();
        let last_set_at = stored.first_chunk().map_or(0, |at| u64::from_be_bytes(*at));
        let motd = Motd::decode(&stored, domain);
        let mut seen = BTreeMap::new();
        if let Some(motd) = &motd {
            let mut number = 0;
            while let Some(bytes) = server_kv.get(&Self::chunk_key(domain, number)).await? {
                if let Some(bits) = bytes.strip_prefix(&motd.set_at.to_be_bytes()) {
                    seen.insert(number, SeenChunk { bits: bits.to_vec(), dirty: false });
                }
                number += 1;
            }
        }
        let mut state = self.state.lock();
        if state.changes != changes {
            return Ok(());
        }
        self.status.store(if motd.is_some() { PRESENT } else { ABSENT }, Ordering::Relaxed);
        state.last_set_at = state.last_set_at.max(last_set_at);
        let set_at = |motd: &Option<Motd>| motd.as_ref().map(|motd| motd.set_at);
        // Another task may have sent the message meanwhile.
        if set_at(&state.motd) == set_at(&motd) {
            state.motd = motd;
            for (number, read) in seen {
                state.seen.entry(number).or_default().add(&read.bits);
            }
        } else {
            *state = MotdState { motd, seen, ..state.rest() };
        }
        Ok(())
    }

    /// Adds the bits of other nodes for an account.
    async fn read_chunk_of(&self, node: &Arc<Node>, domain: &str, id: AddressId) -> Result<(), StoreError> {
        let number = id.0.get() / CHUNK_ACCOUNTS;
        let stored = node.stores.server_kv.get(&Self::chunk_key(domain, number)).await?;
        let mut state = self.state.lock();
        let set_at = state.motd.as_ref().map_or(0, |motd| motd.set_at);
        if let Some(bits) = stored.as_ref().and_then(|bytes| bytes.strip_prefix(&set_at.to_be_bytes())) {
            state.seen.entry(number).or_default().add(bits);
        }
        Ok(())
    }

    fn is_seen(&self, id: AddressId) -> bool {
        self.state.lock().is_seen(id)
    }

    /// Another node has changed the message, or may have.
    fn on_notice(self: Arc<Self>, ctx: &NoticeCtx<'_>) {
        let change = match ctx.content {
            None if self.status.load(Ordering::Relaxed) == NOT_LOADED => return,
            None => None,
            Some(content) if content == [MotdChange::Quiet as u8] => Some(MotdChange::Quiet),
            Some(_) => Some(MotdChange::Announced),
        };
        if !self.reads.lock().begin(change) {
            return;
        }
        let (node, domain) = (ctx.node.clone(), ctx.host.domain().to_owned());
        let task = async move {
            let mut permit = NoticedReadPermit { motds: self, ended: false };
            while let Some(change) = permit.next() {
                if let Err(error) = permit.motds.read_after_notice(&node, &domain, change).await {
                    tracing::warn!(%error, "cannot read the message of the day");
                }
            }
        };
        ctx.node.spawner.spawn("message of the day", Box::pin(task));
    }

    async fn read_after_notice(
        self: &Arc<Self>,
        node: &Arc<Node>,
        domain: &str,
        change: Option<MotdChange>,
    ) -> Result<(), StoreError> {
        let set_at = || self.state.lock().motd.as_ref().map(|motd| motd.set_at);
        let before = set_at();
        self.read(node, domain).await?;
        let Some(set_at) = set_at().filter(|at| Some(*at) != before) else { return Ok(()) };
        let announced = match change {
            Some(change) => change == MotdChange::Announced,
            None => {
                let quiet = node.stores.server_kv.get(&Self::quiet_key(domain)).await?;
                quiet.as_deref() != Some(&set_at.to_be_bytes())
            }
        };
        if announced {
            self.send_to_online(node, domain).await;
        }
        Ok(())
    }

    /// Sends the message to online users whose preferred session is here.
    async fn send_to_online(self: &Arc<Self>, node: &Arc<Node>, domain: &str) {
        let Some(motd) = self.state.lock().motd.clone() else { return };
        for_each_online(node, domain, |account| self.send_to_preferred(node, account, &motd)).await;
        self.spawn_writer(node, domain);
    }

    /// The other nodes must read the message again.
    fn report_change(call: &CommandCall, change: MotdChange) {
        if let Some(peers) = call.node.peers() {
            peers.send_notice(&call.node, &call.host, NOTICE, &[change as u8]);
        }
    }

    /// Sends the message to a resource whose user has not seen it.
    fn send_if_unseen(self: &Arc<Self>, node: &Arc<Node>, session: &Arc<Session>, effects: &mut Effects) {
        if !accepts_headline(session) || session.flags.has(flags::EPHEMERAL) {
            return;
        }
        let frame = {
            let mut state = self.state.lock();
            let frame = state.motd.as_ref().map(|motd| motd.frame.clone());
            frame.filter(|_| state.mark_seen(session.account.id))
        };
        if let Some(frame) = frame {
            effects.add(Effect::SendTo(session.clone(), frame));
            self.spawn_writer(node, session.account.jid.domain());
        }
    }

    /// Starts writing changed chunks, unless a writer is running.
    fn spawn_writer(self: &Arc<Self>, node: &Arc<Node>, domain: &str) {
        if std::mem::replace(&mut self.state.lock().writing, true) {
            return;
        }
        let (motds, writer, domain) = (self.clone(), node.clone(), domain.to_owned());
        node.spawner.spawn(
            "message of the day",
            Box::pin(async move {
                while let Some(number) = motds.next_dirty_chunk() {
                    if let Err(error) = motds.write_seen(&writer, &domain, number).await {
                        tracing::warn!(%error, "cannot store which users have received the message of the \
                         day");
                        let mut state = motds.state.lock();
                        state.seen.entry(number).or_default().dirty = true;
                        state.writing = false;
                        return;
                    }
                }
            }),
        );
    }

    /// The number of the next chunk to write; `None` ends the writer.
    fn next_dirty_chunk(&self) -> Option<u32> {
        let mut state = self.state.lock();
        let is_set = state.motd.is_some();
        let next = state.seen.iter_mut().find(|(_, piece)| piece.dirty);
        match (is_set, next) {
            (true, Some((number, piece))) => {
                piece.dirty = false;
                Some(*number)
            }
            _ => {
                state.writing = false;
                None
            }
        }
    }

    /// The bytes of a chunk with the bits of other nodes, which are kept. `None` if there is nothing to write: the stored chunk
    /// belongs to a later message, or has all bits.
    fn merged_chunk(&self, number: u32, stored: Option<&[u8]>) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        let set_at = state.motd.as_ref()?.set_at;
        let chunk = state.seen.get_mut(&number)?;
        match stored.and_then(|stored| stored.split_first_chunk()) {
            Some((at, bits)) if u64::from_be_bytes(*at) == set_at => chunk.add(bits),
            Some((at, _)) if u64::from_be_bytes(*at) > set_at => return None,
            _ => {}
        }
        let bytes: Vec<u8> = set_at.to_be_bytes().into_iter().chain(chunk.bits.iter().copied()).collect();
        (stored != Some(&bytes[..])).then_some(bytes)
    }

    /// Chunks are read from the first on until one is missing, so missing chunks before this one are created.
    async fn write_seen(&self, node: &Arc<Node>, domain: &str, number: u32) -> Result<(), StoreError> {
        let server_kv = &node.stores.server_kv;
        for earlier in (0..number).rev() {
            let key = Self::chunk_key(domain, earlier);
            if server_kv.get(&key).await?.is_some() {
                break;
            }
            server_kv.put_if_absent(&key, &[]).await?;
        }
        let key = Self::chunk_key(domain, number);
        if node.is_single() {
            return match self.merged_chunk(number, None) {
                Some(bytes) => server_kv.put(&key, &bytes).await,
                None => Ok(()),
            };
        }
        for _ in 0..WRITE_ATTEMPTS {
            let stored = server_kv.get(&key).await?;
            let Some(bytes) = self.merged_chunk(number, stored.as_deref()) else { return Ok(()) };
            if server_kv.compare_and_set(&key, stored.as_deref(), &bytes).await? {
                return Ok(());
            }
        }
        Err(StoreError::new(StoreErrorKind::Conflict, "other nodes write the same chunk"))
    }

    async fn set(self: Arc<Self>, call: CommandCall) -> Result<CommandOutput, CommandError> {
        let domain = call.host.domain().to_owned();
        self.load(&call.node, &domain).await?;
        let at = self.next_time(&call);
        let motd = Motd::new(at, &domain, &call.input.lines(&TEXT).join("\n"))?;
        call.node.stores.server_kv.put(&Self::key(&domain), &motd.encode()).await?;
        {
            let mut state = self.state.lock();
            *state =
                MotdState { motd: Some(motd), seen: BTreeMap::new(), last_set_at: at, ..state.changed() };
            self.status.store(PRESENT, Ordering::Relaxed);
        }
        Self::report_change(&call, MotdChange::Announced);
        let online = count_online(&call).await;
        let (node, motds) = (call.node.clone(), self.clone());
        let task = async move { motds.send_to_online(&node, &domain).await };
        call.node.spawner.spawn("message of the day", Box::pin(task));
        Ok(CommandOutput::with_note(format!("it is being sent to {online}")))
    }

    /// A time after that of every earlier message.
    fn next_time(&self, call: &CommandCall) -> u64 {
        let last = self.state.lock().last_set_at;
        call.node.clock.unix_millis().max(last.saturating_add(1))
    }

    /// Sends a message to the resource of highest priority, if it is on this node and the message still current and unseen.
    /// A detached session gets it only if none is connected: it may never be resumed, and the account is marked.
    fn send_to_preferred(&self, node: &Arc<Node>, account: &Arc<Account>, motd: &Motd) {
        let best = account
            .sessions()
            .into_iter()
            .filter(|session| accepts_headline(session))
            .max_by_key(|session| (!session.outbox.is_detached(), session.priority()));
        let Some(session) = best.filter(|s| !s.flags.has(flags::EPHEMERAL)) else { return };
        if is_preferred_elsewhere(node, account, &session) {
            return;
        }
        let mut state = self.state.lock();
        let same = state.motd.as_ref().is_some_and(|now| now.set_at == motd.set_at);
        let fresh = same && state.mark_seen(account.id);
        drop(state);
        if fresh {
            node.enqueue(&session, motd.frame.clone(), ToRewrite::Bare);
        }
    }

    async fn edit(self: Arc<Self>, call: CommandCall) -> Result<CommandOutput, CommandError> {
        let domain = call.host.domain();
        self.load(&call.node, domain).await?;
        // Without an earlier message nobody has seen it: it stays unseen for users who become available.
        let before = self.state.lock().motd.as_ref().map(|motd| motd.set_at);
        let at = before.unwrap_or_else(|| self.next_time(&call));
        let motd = Motd::new(at, domain, &call.input.lines(&TEXT).join("\n"))?;
        if before.is_none() {
            // For nodes that miss the notice.
            call.node.stores.server_kv.put(&Self::quiet_key(domain), &at.to_be_bytes()).await?;
        }
        call.node.stores.server_kv.put(&Self::key(domain), &motd.encode()).await?;
        {
            let mut state = self.state.lock();
            if state.motd.as_ref().map(|now| now.set_at) == before {
                let seen = std::mem::take(&mut state.seen);
                *state = MotdState { motd: Some(motd), seen, last_set_at: at, ..state.changed() };
                self.status.store(PRESENT, Ordering::Relaxed);
            }
        }
        Self::report_change(&call, MotdChange::Quiet);
        Ok(CommandOutput::with_note("the message of the day was changed"))
    }

    async fn delete(self: Arc<Self>, call: CommandCall) -> Result<CommandOutput, CommandError> {
        let domain = call.host.domain();
        self.load(&call.node, domain).await?;
        let set_at = self.state.lock().motd.as_ref().map(|motd| motd.set_at);
        let Some(set_at) = set_at else {
            // The requested state already holds: not an error (section 4.26).
            return Ok(CommandOutput::with_note("there is no message of the day"));
        };
        // The time stays, for the next message.
        call.node.stores.server_kv.put(&Self::key(domain), &set_at.to_be_bytes()).await?;
        {
            let mut state = self.state.lock();
            *state = state.changed();
            self.status.store(ABSENT, Ordering::Relaxed);
        }
        Self::report_change(&call, MotdChange::Quiet);
        Ok(CommandOutput::with_note("the message of the day was removed"))
    }

    async fn current_values(
        self: Arc<Self>,
        node: Arc<Node>,
        domain: String,
    ) -> Result<CurrentValues, CommandError> {
        self.load(&node, &domain).await?;
        let state = self.state.lock();
        let text = state.motd.as_ref().map_or("", |motd| &motd.text);
        Ok(vec![(TEXT.name, text.lines().map(str::to_owned).collect())])
    }
}

/// Whether a session on another node is preferred to this one, which is the best of the account here. Nodes that know of each other
/// decide the same.
fn is_preferred_elsewhere(node: &Node, account: &Account, best: &Session) -> bool {
    let here = (!best.outbox.is_detached(), best.priority(), node.cluster.node());
    account.with(|state| {
        let accepts = |session: &&PeerSession| session.priority.is_some_and(|priority| priority >= 0);
        let mut elsewhere = state.peers().iter().flat_map(|peer| {
            let sessions = peer.sessions.iter().filter(accepts);
            sessions.map(move |session| (!session.is_detached, session.priority, peer.node))
        });
        elsewhere.any(|there| there > here)
    })
}

impl NoticedReads {
    /// Whether the caller must begin to read.
    fn begin(&mut self, change: Option<MotdChange>) -> bool {
        // What is announced must be sent, and what may have been missed must be found.
        self.due = Some(match self.due {
            Some(Some(MotdChange::Announced)) => Some(MotdChange::Announced),
            Some(None) if change != Some(MotdChange::Announced) => None,
            _ => change,
        });
        !std::mem::replace(&mut self.running, true)
    }
}

/// The task that reads because of notices; dropping it permits another one.
struct NoticedReadPermit {
    motds: Arc<DomainMotd>,
    ended: bool,
}

impl NoticedReadPermit {
    fn next(&mut self) -> Option<Option<MotdChange>> {
        let mut reads = self.motds.reads.lock();
        let due = reads.due.take();
        reads.running = due.is_some();
        self.ended = due.is_none();
        due
    }
}

impl Drop for NoticedReadPermit {
    fn drop(&mut self) {
        if !self.ended {
            self.motds.reads.lock().running = false;
        }
    }
}

impl Motd {
    fn new(at: u64, domain: &str, text: &str) -> Result<Motd, CommandError> {
        let frame = headline(domain, "Message of the day", text).ok_or_else(CommandError::internal)?;
        Ok(Motd { set_at: at, text: text.to_owned(), frame })
    }

    fn encode(&self) -> Vec<u8> {
        self.set_at.to_be_bytes().into_iter().chain(self.text.bytes()).collect()
    }

    fn decode(bytes: &[u8], domain: &str) -> Option<Motd> {
        let (at, text) = bytes.split_first_chunk::<8>()?;
        // Without a text: it was deleted.
        let text = std::str::from_utf8(text).ok().filter(|text| !text.is_empty())?;
        Motd::new(u64::from_be_bytes(*at), domain, text).ok()
    }
}

impl SeenChunk {
    /// Adds bits that are stored.
    fn add(&mut self, bits: &[u8]) {
        if self.bits.len() < bits.len() {
            self.bits.resize(bits.len(), 0);
        }
        self.bits.iter_mut().zip(bits).for_each(|(byte, stored)| *byte |= stored);
    }
}

impl MotdState {
    /// The state without its message.
    fn rest(&self) -> MotdState {
        let MotdState { writing, changes, last_set_at, .. } = *self;
        MotdState { writing, changes, last_set_at, ..MotdState::default() }
    }

    /// The same after a change by a command of this node.
    fn changed(&self) -> MotdState {
        MotdState { changes: self.changes.wrapping_add(1), ..self.rest() }
    }

    /// Whether an account is marked.
    fn is_seen(&self, id: AddressId) -> bool {
        let (number, at) = (id.0.get() / CHUNK_ACCOUNTS, (id.0.get() % CHUNK_ACCOUNTS) as usize);
        let byte = self.seen.get(&number).and_then(|chunk| chunk.bits.get(at / 8));
        byte.is_some_and(|byte| byte & 1 << (at % 8) != 0)
    }

    /// Marks an account as having seen the message; true if it was not marked.
    fn mark_seen(&mut self, id: AddressId) -> bool {
        let (number, at) = (id.0.get() / CHUNK_ACCOUNTS, (id.0.get() % CHUNK_ACCOUNTS) as usize);
        let piece = self.seen.entry(number).or_default();
        if piece.bits.len() <= at / 8 {
            piece.bits.resize(at / 8 + 1, 0);
        }
        let (byte, bit) = (&mut piece.bits[at / 8], 1 << (at % 8));
        let fresh = *byte & bit == 0;
        *byte |= bit;
        piece.dirty |= fresh;
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    #[test]
    fn accounts_are_marked_once_by_their_id() {
        let mut state = MotdState::default();
        for id in [1, 2, 7, 8, CHUNK_ACCOUNTS - 1, CHUNK_ACCOUNTS, CHUNK_ACCOUNTS + 1, u32::MAX - 1] {
            let id = AddressId(NonZeroU32::new(id).unwrap());
            assert!(state.mark_seen(id), "{id:?}");
            assert!(!state.mark_seen(id), "{id:?}");
        }
        assert_eq!(state.seen.len(), 3);
        assert!(state.seen.values().all(|piece| piece.dirty && piece.bits.len() <= 32_768));
    }

    #[test]
    fn notices_that_arrive_during_a_read_cause_one_more_that_covers_them() {
        let motds = Arc::new(DomainMotd::default());
        let announced = Some(MotdChange::Announced);
        assert!(motds.reads.lock().begin(Some(MotdChange::Quiet)));
        let mut permit = NoticedReadPermit { motds: motds.clone(), ended: false };
        assert_eq!(permit.next(), Some(Some(MotdChange::Quiet)));
        for change in [Some(MotdChange::Quiet), announced, None, Some(MotdChange::Quiet)] {
            assert!(!motds.reads.lock().begin(change), "one at a time");
        }
        assert_eq!((permit.next(), permit.next()), (Some(announced), None));
        assert!(motds.reads.lock().begin(None));
        drop(permit);
        assert!(!motds.reads.lock().begin(Some(MotdChange::Quiet)), "the next one is running");
        drop(NoticedReadPermit { motds: motds.clone(), ended: false });
        assert!(motds.reads.lock().begin(None), "also if the task does not end");
        assert_eq!(motds.reads.lock().due, Some(None));
    }
}
