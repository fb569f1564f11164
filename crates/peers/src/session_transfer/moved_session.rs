//! What a node hands over of a session, as octets. XEP-0198 1.6.3, section 5.
//!
//! ```text
//! octets  field                    all numbers big-endian
//! session
//!   4, 4    terms                    seconds for a resumption, limit of unacknowledged octets
//!   4, 4    stanzas                  sent to the client, handled for it
//!   8       bound at                 milliseconds since 1970
//!   8       flags                    [`throng_core::session::flags`]
//!   1       state                    bit 0: it has presence; bit 1: the older namespace of stream management
//!   1       priority
//!   4 + n   presence                 length, stanza; empty without presence
//!   2       directed presence        number of addresses, each 2 + n: length, text
//!   ...     stanzas                  up to the end
//! stanza
//!   1       form                     bits 0 and 1: the `to` that is written; then one bit each
//!   4       age                      seconds since it was sent
//!   8       row                      its number in the store
//!   4 + n   stanza                   length, text
//! ```
//!
//! # Pitfalls
//!
//! A stanza with a row is in the store already: the node that receives it removes the row when the client has acknowledged it.

use jid::{Jid, JidRef};
use throng_core::session::{Session, StreamManagementTerms, ToRewrite, flags};
use throng_core::shared_stanza::SharedStanza;

/// Maximum octets of a session: half of the queue to another node.
pub(super) const MAX_BYTES: usize = 2 << 20;
/// Flags that another node may set: the others depend on the connection, or on work of this node.
const MOVED_FLAGS: u64 = flags::INTERESTED
    | flags::ROSTER_VERSIONS
    | flags::OFFLINE_FETCHED
    | flags::REQUESTS_SHOWN
    | flags::CARBONS
    | flags::STREAM_MANAGEMENT
    | flags::BLOCKLIST
    | flags::PHOTO_ADDED;
const HAS_PRESENCE: u8 = 1;
const SM2: u8 = 2;
const TO_REWRITE: u8 = 3;
const SENT: u8 = 1 << 2;
const TRACKED: u8 = 1 << 3;
const STORED: u8 = 1 << 4;
const COPY: u8 = 1 << 5;
const DELAYED: u8 = 1 << 6;
const MULTICAST: u8 = 1 << 7;

/// A stanza that a session holds.
#[derive(Clone, Debug)]
pub(super) struct MovedStanza {
    pub(super) stanza: SharedStanza,
    pub(super) to_rewrite: ToRewrite,
    /// Seconds since it was sent, if it was.
    pub(super) age: Option<u32>,
    /// Its sender waits until it is safe.
    pub(super) is_tracked: bool,
    /// Its number in the store, if that has it.
    pub(super) row: Option<u64>,
    /// Another session answers for it.
    pub(super) is_copy: bool,
}

/// A session without its connection.
#[derive(Clone, Debug)]
pub(super) struct MovedSession {
    pub(super) terms: StreamManagementTerms,
    pub(super) sent: u32,
    pub(super) handled: u32,
    pub(super) bound_at: u64,
    pub(super) flags: u64,
    pub(super) presence: Option<(SharedStanza, i8)>,
    pub(super) directed_presence: Vec<Jid>,
    /// Unacknowledged stanzas, then the queue.
    pub(super) stanzas: Vec<MovedStanza>,
}

impl MovedStanza {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let MovedStanza { stanza, to_rewrite, age, is_tracked, row, is_copy } = self;
        let to_rewrite: u8 = match to_rewrite {
            ToRewrite::None => 0,
            ToRewrite::Bare => 1,
            ToRewrite::Full => 2,
        };
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        out.push(
            to_rewrite
                | bit(age.is_some(), SENT)
                | bit(*is_tracked, TRACKED)
                | bit(row.is_some(), STORED)
                | bit(*is_copy, COPY)
                | bit(stanza.is_delayed(), DELAYED)
                | bit(stanza.is_multicast(), MULTICAST),
        );
        out.extend(age.unwrap_or_default().to_be_bytes());
        out.extend(row.unwrap_or_default().to_be_bytes());
        encode_text(stanza.bytes(), out);
    }

    /// The next stanza of the input.
    fn decode(input: &mut &[u8]) -> Option<MovedStanza> {
        let [form] = take(input)?;
        let age = u32::from_be_bytes(take(input)?);
        let row = u64::from_be_bytes(take(input)?);
        let bytes = take_text(input)?;
        let stanza = SharedStanza::read(bytes)?;
        let stanza = if form & DELAYED != 0 { SharedStanza::delayed(bytes)? } else { stanza };
        if form & MULTICAST != 0 {
            stanza.mark_multicast();
        }
        if form & COPY != 0 {
            stanza.mark_node_copy();
        }
        Some(MovedStanza {
            stanza,
            to_rewrite: match form & TO_REWRITE {
                0 => ToRewrite::None,
                1 => ToRewrite::Bare,
                2 => ToRewrite::Full,
                _ => return None,
            },
            age: (form & SENT != 0).then_some(age),
            is_tracked: form & TRACKED != 0,
            row: (form & STORED != 0).then_some(row),
            is_copy: form & COPY != 0,
        })
    }

    /// All stanzas of the input.
    pub(super) fn decode_all(mut input: &[u8]) -> Option<Vec<MovedStanza>> {
        let mut stanzas = Vec::new();
        while !input.is_empty() {
            stanzas.push(MovedStanza::decode(&mut input)?);
        }
        Some(stanzas)
    }
}

impl MovedSession {
    /// `None` if it is too large to be moved.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let StreamManagementTerms { resume_seconds, unacked_bytes, sm2 } = self.terms;
        for number in [resume_seconds, unacked_bytes, self.sent, self.handled] {
            out.extend(number.to_be_bytes());
        }
        out.extend(self.bound_at.to_be_bytes());
        out.extend((self.flags & MOVED_FLAGS).to_be_bytes());
        let (presence, priority) = match &self.presence {
            Some((presence, priority)) => (presence.bytes(), *priority),
            None => (&[][..], 0),
        };
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        out.push(bit(self.presence.is_some(), HAS_PRESENCE) | bit(sm2, SM2));
        out.extend(priority.to_be_bytes());
        encode_text(presence, &mut out);
        out.extend(u16::try_from(self.directed_presence.len()).ok()?.to_be_bytes());
        for jid in &self.directed_presence {
            out.extend(u16::try_from(jid.as_str().len()).ok()?.to_be_bytes());
            out.extend(jid.as_str().as_bytes());
        }
        for stanza in &self.stanzas {
            stanza.encode(&mut out);
            if out.len() > MAX_BYTES {
                return None;
            }
        }
        Some(out)
    }

    pub(super) fn decode(mut input: &[u8]) -> Option<MovedSession> {
        let input = &mut input;
        let [resume_seconds, unacked_bytes, sent, handled] =
            [take(input)?, take(input)?, take(input)?, take(input)?].map(u32::from_be_bytes);
        let (bound_at, flags) = (u64::from_be_bytes(take(input)?), u64::from_be_bytes(take(input)?));
        let [state] = take(input)?;
        let priority = i8::from_be_bytes(take(input)?);
        if state & !(HAS_PRESENCE | SM2) != 0 || flags & !MOVED_FLAGS != 0 {
            return None;
        }
        let presence = take_text(input)?;
        let presence = match state & HAS_PRESENCE {
            0 => None,
            _ => Some((SharedStanza::read(presence)?, priority)),
        };
        let mut directed_presence = Vec::new();
        for _ in 0..u16::from_be_bytes(take(input)?) {
            let length = u16::from_be_bytes(take(input)?);
            let (jid, rest) = input.split_at_checked(length.into())?;
            *input = rest;
            let jid = std::str::from_utf8(jid).ok().and_then(JidRef::from_normalised)?;
            directed_presence.push(jid.to_jid());
        }
        Some(MovedSession {
            terms: StreamManagementTerms { resume_seconds, unacked_bytes, sm2: state & SM2 != 0 },
            sent,
            handled,
            bound_at,
            flags,
            presence,
            directed_presence,
            stanzas: MovedStanza::decode_all(input)?,
        })
    }

    /// Sets the state of a session that continues this one.
    pub(super) fn prepare(&self, session: &Session) {
        session.flags.set(self.flags);
        if session.flags.has(flags::INTERESTED) {
            // Pushes on their way to the old node stay there.
            session.flags.set(flags::MAY_LACK_ROSTER_PUSH);
        }
        session.with(|state| {
            if let Some((presence, priority)) = &self.presence {
                state.presence = Some(presence.clone());
                session.set_priority(*priority);
            }
            if !self.directed_presence.is_empty() {
                state.directed_presence = Some(Box::new(self.directed_presence.clone()));
            }
        });
    }
}

fn encode_text(text: &[u8], out: &mut Vec<u8>) {
    // A stanza is far shorter; one that is not would be cut, and refused by its reader.
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    out.extend(length.to_be_bytes());
    out.extend(text);
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (field, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*field)
}

fn take_text<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(u32::from_be_bytes(take(input)?)).ok()?;
    let (text, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stanza(text: &str) -> SharedStanza {
        SharedStanza::parse(text.as_bytes()).unwrap()
    }

    fn session() -> MovedSession {
        let moved = |id: u32, row, age| MovedStanza {
            stanza: stanza(&format!("<message id='{id}'/>")),
            to_rewrite: [ToRewrite::None, ToRewrite::Bare, ToRewrite::Full][id as usize % 3],
            age,
            is_tracked: id == 1,
            row,
            is_copy: id == 2,
        };
        MovedSession {
            terms: StreamManagementTerms { resume_seconds: 60, unacked_bytes: 1000, sm2: true },
            sent: u32::MAX,
            handled: 7,
            bound_at: 1 << 40,
            flags: MOVED_FLAGS,
            presence: Some((stanza("<presence from='a@b/c'/>"), -3)),
            directed_presence: vec![Jid::parse("room@muc.b/nick").unwrap()],
            stanzas: vec![moved(0, Some(u64::MAX), Some(3)), moved(1, None, None), moved(2, None, None)],
        }
    }

    #[test]
    fn a_session_is_read_as_it_was_written_and_anything_else_is_refused() {
        let session = session();
        let octets = session.encode().unwrap();
        let read = MovedSession::decode(&octets).unwrap();
        assert_eq!(read.encode().unwrap(), octets);
        assert_eq!((read.terms, read.sent, read.handled), (session.terms, u32::MAX, 7));
        assert_eq!((read.bound_at, read.flags), (session.bound_at, MOVED_FLAGS));
        assert_eq!(read.presence.unwrap().1, -3);
        assert_eq!(read.directed_presence, session.directed_presence);
        let facts = |s: &MovedStanza| (s.to_rewrite, s.age, s.is_tracked, s.row, s.is_copy);
        let of = |stanzas: &[MovedStanza]| stanzas.iter().map(facts).collect::<Vec<_>>();
        assert_eq!(of(&read.stanzas), of(&session.stanzas));
        // It may end after each of its stanzas, and nowhere else.
        let shorter = (0..octets.len()).filter(|length| MovedSession::decode(&octets[..*length]).is_some());
        assert_eq!(shorter.count(), session.stanzas.len());
        let mut undefined = octets.clone();
        undefined[24] |= 1 << 7;
        assert!(MovedSession::decode(&undefined).is_none(), "a flag that cannot be moved");
    }

    /// The nodes of a session may be of two releases, so its octets must never change: they are those of a recorded one.
    #[test]
    fn a_recorded_session_is_read_and_written_as_it_is() {
        let recorded: Vec<u8> = include_str!("recorded_session.hex")
            .split_ascii_whitespace()
            .map(|octet| u8::from_str_radix(octet, 16).unwrap())
            .collect();
        let written = session().encode().unwrap();
        let shown: Vec<String> = written.iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(written, recorded, "{}", shown.join(" "));
        assert_eq!(MovedSession::decode(&recorded).and_then(|read| read.encode()), Some(recorded));
    }

    #[test]
    fn a_session_that_holds_too_much_cannot_be_moved() {
        let mut session = session();
        let body = "x".repeat(MAX_BYTES);
        session.stanzas[0].stanza = stanza(&format!("<message><body>{}</body></message>", &body[..200_000]));
        session.stanzas = vec![session.stanzas[0].clone(); 10];
        assert!(session.encode().is_some());
        session.stanzas = vec![session.stanzas[0].clone(); 11];
        assert!(session.encode().is_none());
    }
}
