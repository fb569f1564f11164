//! A user's stream over WebSocket (RFC 7395): the upgrade, and conversion between elements and frames.
//!
//! Output waits in the user's `out` as XML and becomes frames when the socket accepts bytes, so that writers need not
//! know the transport. `framed` counts the bytes at the front that are already frames.
//!
//! Not implemented: `see-other-uri`, pings of our own.
//!
//! # Pitfalls
//!
//! `out` may end in the middle of an element that a plan sends raw; only complete elements become frames.

use super::event_loop::WorkerEngine;
use super::rng::Rng;
use super::slot::{SlotIndex as _, UserSlot};
use super::virtual_user::{UPGRADED, WaitState};
use crate::clock::now_us;
use crate::web::websocket::WebSocketMessage;
use crate::web::{http, qualify, websocket};

/// Parts of `<open/>` before and after the domain (RFC 7395, section 3.4).
pub(super) const OPEN: (&[u8], &[u8]) =
    (b"<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='", b"' version='1.0' xml:lang='en'/>");
/// Stream end (RFC 7395, section 3.6).
pub(super) const CLOSE: &[u8] = b"<close xmlns='urn:ietf:params:xml:ns:xmpp-framing'/>";

impl WorkerEngine<'_> {
    /// Requests the WebSocket upgrade of a new connection.
    pub(super) fn upgrade(&mut self, slot: UserSlot) {
        let key = self.key(slot);
        let web = &self.plan.target.web;
        let user = &mut self.users[slot];
        user.wait = WaitState::Features;
        user.login().since = now_us();
        websocket::upgrade(web.path(), &web.host, key, &mut user.out);
        self.mark_dirty(slot);
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
    }

    /// Handshake key of a connection. It is no secret (RFC 6455, section 10.3) and is derived again rather than stored.
    fn key(&self, slot: UserSlot) -> [u8; 16] {
        let user = &self.users[slot];
        let mut rng = Rng::new((slot.position() as u64) << 32 | u64::from(user.epoch) ^ self.start);
        std::array::from_fn(|_| rng.below(256) as u8)
    }

    fn mask(&mut self) -> [u8; 4] {
        self.rng.below(u32::MAX).to_be_bytes()
    }

    /// Handles received frames; returns where the rest begins.
    pub(super) fn frames(&mut self, slot: UserSlot, input: &mut Vec<u8>) -> usize {
        let mut at = 0;
        let epoch = self.users[slot].epoch;
        while at < input.len() {
            let user = &self.users[slot];
            if user.socket.is_none() || user.epoch != epoch {
                return input.len();
            }
            if !user.is(UPGRADED) {
                match self.upgraded(slot, &input[at..]) {
                    0 => return at,
                    taken => at += taken,
                }
                continue;
            }
            match websocket::next(&input[at..]) {
                Ok(None) => return at,
                Ok(Some((WebSocketMessage::Text(text), _, end))) => {
                    self.answer_bytes = text.len();
                    self.element(slot, &text);
                    at += end;
                }
                Ok(Some((WebSocketMessage::Close(_), ..))) => {
                    self.connection_closed(slot, None);
                    return input.len();
                }
                Ok(Some((frame, from, to))) => {
                    if let WebSocketMessage::Ping(content) = frame {
                        let content = content.to_vec();
                        self.pong(slot, &content);
                    }
                    // A control frame may come between the fragments of a message.
                    input.drain(at + from..at + to);
                }
                Err(reason) => {
                    self.broken_protocol(slot, reason);
                    return input.len();
                }
            }
        }
        at
    }

    /// Handles the response to the upgrade request once it is complete; returns the number of bytes consumed.
    fn upgraded(&mut self, slot: UserSlot, input: &[u8]) -> usize {
        let (status, head, length) = match http::answer(input, false) {
            Ok(Some(answer)) => (answer.status, &input[..answer.head], answer.length),
            Ok(None) => return 0,
            Err(reason) => {
                self.login_failed(slot, "login:websocket", reason);
                return input.len();
            }
        };
        if let Err(reason) = websocket::accepted(status, head, self.key(slot)) {
            self.login_failed(slot, "login:websocket", &reason);
            return input.len();
        }
        let user = &mut self.users[slot];
        // All earlier output has been sent, or there would be no response.
        user.set(UPGRADED, true);
        user.scope = xml::NamespaceContext::empty();
        let since = user.login().since;
        self.open_stream(slot);
        self.users[slot].login().since = since;
        length
    }

    /// Handles a violation of a protocol below XMPP.
    pub(super) fn broken_protocol(&mut self, slot: UserSlot, reason: &str) {
        self.record.error("garbled");
        self.record.log(|| reason.to_owned());
        self.connection_closed(slot, None);
    }

    /// Answers a ping at once, ahead of output that is not framed yet.
    fn pong(&mut self, slot: UserSlot, content: &[u8]) {
        let mut frame = Vec::new();
        websocket::pong(content, self.mask(), &mut frame);
        let user = &mut self.users[slot];
        let at = user.framed as usize;
        user.framed += frame.len() as u32;
        user.out.splice(at..at, frame);
        self.mark_dirty(slot);
    }

    /// Frames all complete elements in `out`.
    pub(super) fn frame(&mut self, slot: UserSlot) {
        let framed = self.users[slot].framed as usize;
        if framed >= self.users[slot].out.len() {
            return;
        }
        let mut out = std::mem::take(&mut self.users[slot].out);
        let mut frames = std::mem::take(&mut self.request);
        frames.clear();
        let taken = qualify::elements(&out[framed..], |before, behind| {
            let mask = self.mask();
            if behind.is_empty() {
                websocket::text(&[before], mask, &mut frames);
            } else {
                websocket::text(&[before, qualify::DECLARATION, behind], mask, &mut frames);
            }
        });
        let behind = out.split_off(framed + taken);
        out.truncate(framed);
        out.extend_from_slice(&frames);
        let user = &mut self.users[slot];
        user.framed = out.len() as u32;
        out.extend_from_slice(&behind);
        user.out = out;
        self.request = frames;
    }
}
