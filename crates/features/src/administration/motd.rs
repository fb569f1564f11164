//! The message of the day: sections 4.24 to 4.26. Sent at once to who is online, to everybody else when they next become
//! available, and to each account once.
//!
//! Who has seen it is a bit for each number of the address dictionary, in pieces of 32 kB among the node's settings: no row
//! for a login, none for an account, and nothing to read when somebody comes. A piece begins with the time of its message,
//! so the pieces of an older message count as empty and need no clearing. Pieces are written behind: after `kill -9` those
//! who came in the last moment see the message again.
//!
//! Left out: several nodes over one database, which would overwrite one another's pieces.
//!
//! The trap: while there is no message, becoming available must cost one load; see [`Motds::there`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use store::{AddressId, Settings, StoreError};
use throng_core::command::{
    Call, Command, CommandError, CommandFuture, Field, FieldKind, Output, Present, Scope,
};
use throng_core::feature::Builder;
use throng_core::hooks::{AvailableCtx, Flow, Interest, Outcome, Phase};
use throng_core::session::{Stamp, flags};
use throng_core::{Account, Effect, Effects, Frame, Host, Node, Session};

use super::announce::{everybody, headline, takes};
use super::{FORM_TYPE, node};

/// Numbers in one piece: 32 kB of bits, below the size of a setting.
const PIECE: u32 = 1 << 18;

const TEXT: Field = Field::new("text", "motd", "Message of the Day", FieldKind::Lines).required();

/// Section 4.24.
pub(super) static SET: Command = Command {
    name: "set-motd",
    node: node!("set-motd"),
    title: "Set Message of the Day",
    doc: "Sends a message to all users who are online, and to the others when they come.",
    form_type: FORM_TYPE,
    input: &[TEXT],
    scope: Scope::Messages,
    ..Command::EMPTY
};

/// Section 4.25.
pub(super) static EDIT: Command = Command {
    name: "edit-motd",
    node: node!("edit-motd"),
    title: "Edit Message of the Day",
    doc: "Changes the message of the day for those who have not seen it yet, or sets one for those who come.",
    form_type: FORM_TYPE,
    input: &[TEXT],
    scope: Scope::Messages,
    ..Command::EMPTY
};

/// Section 4.26.
pub(super) static DELETE: Command = Command {
    name: "delete-motd",
    node: node!("delete-motd"),
    title: "Delete Message of the Day",
    doc: "Removes the message of the day.",
    form_type: FORM_TYPE,
    scope: Scope::Messages,
    ..Command::EMPTY
};

const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
const SOME: u8 = 2;

#[derive(Clone)]
struct Motd {
    /// When it was set, in milliseconds since 1970: tells messages apart.
    at: u64,
    text: String,
    frame: Frame,
}

#[derive(Default)]
struct Piece {
    bits: Vec<u8>,
    dirty: bool,
}

#[derive(Default)]
struct State {
    motd: Option<Motd>,
    seen: BTreeMap<u32, Piece>,
    writing: bool,
}

/// The message of a domain.
#[derive(Default)]
struct Motds {
    /// One of the three above.
    there: AtomicU8,
    state: Mutex<State>,
}

pub(super) fn build(builder: &mut Builder<'_>) {
    let motds = builder.kept(Motds::default);
    let of = |what: fn(Arc<Motds>, Call) -> CommandFuture| {
        let motds = motds.clone();
        move |call: Call| what(motds.clone(), call)
    };
    builder.command(&SET, of(|motds, call| Box::pin(motds.set(call))));
    builder.command(&DELETE, of(|motds, call| Box::pin(motds.delete(call))));
    let shown = motds.clone();
    let present = move |node: &Arc<Node>, host: &Arc<Host>| -> base::spawn::BoxFuture<'static, _> {
        Box::pin(shown.clone().present(node.clone(), host.domain().to_owned()))
    };
    builder.command_with(&EDIT, present, of(|motds, call| Box::pin(motds.edit(call))));
    builder.available(Phase::Notify, Interest::ALL, move |ctx: &mut AvailableCtx<'_>| available(&motds, ctx));
}

fn available(motds: &Arc<Motds>, ctx: &mut AvailableCtx<'_>) -> Flow {
    match motds.there.load(Ordering::Relaxed) {
        NONE => Flow::Next,
        SOME => {
            motds.greet(ctx.node, ctx.session, ctx.effects);
            Flow::Next
        }
        _ => {
            let (motds, node, session) = (motds.clone(), ctx.node.clone(), ctx.session.clone());
            Flow::Wait(Box::pin(async move {
                let mut effects = Effects::default();
                match motds.load(&node, session.account.jid.domain()).await {
                    Ok(()) => motds.greet(&node, &session, &mut effects),
                    Err(error) => tracing::warn!(%error, "the message of the day could not be read"),
                }
                Outcome { effects, ..Outcome::next() }
            }))
        }
    }
}

impl Motds {
    fn key(domain: &str) -> String {
        format!("motd:{domain}")
    }
    fn piece_key(domain: &str, piece: u32) -> String {
        format!("motd-seen:{domain}:{piece}")
    }

    /// Reads message and pieces, unless somebody has.
    async fn load(&self, node: &Arc<Node>, domain: &str) -> Result<(), StoreError> {
        if self.there.load(Ordering::Relaxed) != UNKNOWN {
            return Ok(());
        }
        let settings = &node.stores.settings;
        let motd = settings.get(&Self::key(domain)).await?.and_then(|bytes| Motd::decode(&bytes, domain));
        let mut seen = BTreeMap::new();
        if let Some(motd) = &motd {
            let mut number = 0;
            while let Some(bytes) = settings.get(&Self::piece_key(domain, number)).await? {
                if let Some(bits) = bytes.strip_prefix(&motd.at.to_be_bytes()) {
                    seen.insert(number, Piece { bits: bits.to_vec(), dirty: false });
                }
                number += 1;
            }
        }
        let mut state = self.state.lock();
        // Somebody may have set one, or have read it and shown it, meanwhile.
        if self.there.load(Ordering::Relaxed) == UNKNOWN {
            self.there.store(if motd.is_some() { SOME } else { NONE }, Ordering::Relaxed);
            *state = State { motd, seen, writing: state.writing };
        }
        Ok(())
    }

    /// Sends the message to a resource whose user has not seen it.
    fn greet(self: &Arc<Self>, node: &Arc<Node>, session: &Arc<Session>, effects: &mut Effects) {
        if !takes(session) || session.flags.has(flags::EPHEMERAL) {
            return;
        }
        let frame = {
            let mut state = self.state.lock();
            let frame = state.motd.as_ref().map(|motd| motd.frame.clone());
            frame.filter(|_| state.mark(session.account.id))
        };
        if let Some(frame) = frame {
            effects.add(Effect::SendTo(session.clone(), frame));
            self.write_behind(node, session.account.jid.domain());
        }
    }

    /// Writes pieces that changed, unless that is going on.
    fn write_behind(self: &Arc<Self>, node: &Arc<Node>, domain: &str) {
        if std::mem::replace(&mut self.state.lock().writing, true) {
            return;
        }
        let (motds, settings, domain) = (self.clone(), node.stores.settings.clone(), domain.to_owned());
        node.spawner.spawn(
            "message of the day",
            Box::pin(async move {
                while let Some((number, bytes)) = motds.changed() {
                    if let Err(error) = motds.write(&*settings, &domain, number, &bytes).await {
                        tracing::warn!(%error, "it could not be written who has seen the message of the day");
                        let mut state = motds.state.lock();
                        state.seen.entry(number).or_default().dirty = true;
                        state.writing = false;
                        return;
                    }
                }
            }),
        );
    }

    /// The next piece to be written; `None` ends the writing.
    fn changed(&self) -> Option<(u32, Vec<u8>)> {
        let mut state = self.state.lock();
        let at = state.motd.as_ref().map(|motd| motd.at);
        let next = state.seen.iter_mut().find(|(_, piece)| piece.dirty);
        match (at, next) {
            (Some(at), Some((number, piece))) => {
                piece.dirty = false;
                let bytes = at.to_be_bytes().into_iter().chain(piece.bits.iter().copied()).collect();
                Some((*number, bytes))
            }
            _ => {
                state.writing = false;
                None
            }
        }
    }

    /// Pieces are read from the first on until one is missing, so those in front of it are made.
    async fn write(
        &self,
        settings: &dyn Settings,
        domain: &str,
        number: u32,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        for earlier in (0..number).rev() {
            if settings.get(&Self::piece_key(domain, earlier)).await?.is_some() {
                break;
            }
            settings.put(&Self::piece_key(domain, earlier), &[]).await?;
        }
        settings.put(&Self::piece_key(domain, number), bytes).await
    }

    async fn set(self: Arc<Self>, call: Call) -> Result<Output, CommandError> {
        let domain = call.host.domain().to_owned();
        self.load(&call.node, &domain).await?;
        let before = self.state.lock().motd.as_ref().map_or(0, |motd| motd.at);
        let at = call.node.clock.unix_millis().max(before + 1);
        let motd = Motd::new(at, &domain, &call.input.lines(&TEXT).join("\n"))?;
        call.node.stores.settings.put(&Self::key(&domain), &motd.encode()).await?;
        {
            let mut state = self.state.lock();
            *state = State { motd: Some(motd.clone()), seen: BTreeMap::new(), writing: state.writing };
            self.there.store(SOME, Ordering::Relaxed);
        }
        let online = call.node.table.accounts();
        let node = call.node.clone();
        let motds = self.clone();
        call.node.spawner.spawn(
            "message of the day",
            Box::pin(async move {
                everybody(&node, &domain, |account| motds.show(&node, account, &motd)).await;
                motds.write_behind(&node, &domain);
            }),
        );
        Ok(Output::said(format!("it is on its way to {}", super::count(online, "user"))))
    }

    /// Sends a message to the resource of highest priority, if it still is the message and was not seen.
    fn show(&self, node: &Arc<Node>, account: &Arc<Account>, motd: &Motd) {
        let best = account.sessions().into_iter().filter(|s| takes(s)).max_by_key(|s| s.priority());
        let Some(session) = best.filter(|s| !s.flags.has(flags::EPHEMERAL)) else { return };
        let mut state = self.state.lock();
        let same = state.motd.as_ref().is_some_and(|now| now.at == motd.at);
        let fresh = same && state.mark(account.id);
        drop(state);
        if fresh {
            node.enqueue(&session, motd.frame.clone(), Stamp::Bare);
        }
    }

    async fn edit(self: Arc<Self>, call: Call) -> Result<Output, CommandError> {
        let domain = call.host.domain();
        self.load(&call.node, domain).await?;
        // Where there is none, nobody has seen it: it is kept for those who come.
        let before = self.state.lock().motd.as_ref().map(|motd| motd.at);
        let at = before.unwrap_or_else(|| call.node.clock.unix_millis());
        let motd = Motd::new(at, domain, &call.input.lines(&TEXT).join("\n"))?;
        call.node.stores.settings.put(&Self::key(domain), &motd.encode()).await?;
        let mut state = self.state.lock();
        if state.motd.as_ref().map(|now| now.at) == before {
            state.motd = Some(motd);
            self.there.store(SOME, Ordering::Relaxed);
        }
        Ok(Output::said("the message of the day was changed"))
    }

    async fn delete(self: Arc<Self>, call: Call) -> Result<Output, CommandError> {
        let domain = call.host.domain();
        self.load(&call.node, domain).await?;
        if self.state.lock().motd.is_none() {
            // What is wanted is so: not an error (section 4.26).
            return Ok(Output::said("there is no message of the day"));
        }
        call.node.stores.settings.put(&Self::key(domain), &[]).await?;
        let mut state = self.state.lock();
        *state = State { writing: state.writing, ..State::default() };
        self.there.store(NONE, Ordering::Relaxed);
        Ok(Output::said("the message of the day was removed"))
    }

    async fn present(self: Arc<Self>, node: Arc<Node>, domain: String) -> Result<Present, CommandError> {
        self.load(&node, &domain).await?;
        let state = self.state.lock();
        let text = state.motd.as_ref().map_or("", |motd| &motd.text);
        Ok(vec![(TEXT.name, text.lines().map(str::to_owned).collect())])
    }
}

impl Motd {
    fn new(at: u64, domain: &str, text: &str) -> Result<Motd, CommandError> {
        let frame = headline(domain, "Message of the day", text).ok_or_else(CommandError::internal)?;
        Ok(Motd { at, text: text.to_owned(), frame })
    }
    fn encode(&self) -> Vec<u8> {
        self.at.to_be_bytes().into_iter().chain(self.text.bytes()).collect()
    }
    fn decode(bytes: &[u8], domain: &str) -> Option<Motd> {
        let (at, text) = bytes.split_first_chunk::<8>()?;
        Motd::new(u64::from_be_bytes(*at), domain, std::str::from_utf8(text).ok()?).ok()
    }
}

impl State {
    /// Marks an account; true if it was not marked.
    fn mark(&mut self, id: AddressId) -> bool {
        let (number, at) = (id.0.get() / PIECE, (id.0.get() % PIECE) as usize);
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
    fn accounts_are_marked_once_by_their_number() {
        let mut state = State::default();
        for id in [1, 2, 7, 8, PIECE - 1, PIECE, PIECE + 1, u32::MAX - 1] {
            let id = AddressId(NonZeroU32::new(id).unwrap());
            assert!(state.mark(id), "{id:?}");
            assert!(!state.mark(id), "{id:?}");
        }
        assert_eq!(state.seen.len(), 3);
        assert!(state.seen.values().all(|piece| piece.dirty && piece.bits.len() <= 32_768));
    }
}
