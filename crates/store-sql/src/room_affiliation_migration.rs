//! Part of migration 0010: affiliations in the state of rooms become rows of `room_affiliation`.
//!
//! ```text
//! state      1 version, which is 1; five fields; then entries
//! entry      1 kind: 16 and above stay, lower ones are affiliations; then three fields: of an affiliation bare JID, nickname, reason
//! field      4 octets of length, and the octets
//! ```
//!
//! Nicknames and reasons that are longer than the columns of MySQL are cut: an import took reasons of any length.
//!
//! # Pitfalls
//!
//! On MySQL it may be interrupted between two statements, and runs again from the beginning.

use store::StoreError;

use crate::dialect::{Arg, DbConnection, RowStatement};
use crate::tables::rooms::{AffiliationRow, put_affiliations};

/// Name of the migration.
pub(crate) const STEP: &str = "0010_room_affiliations";
/// Rooms that are in memory at a time.
const PAGE: u64 = 200;
/// Affiliations that are written at a time.
const MAX_ROWS: usize = 5_000;
/// Longest nickname and reason, in bytes.
const MAX_NICK_BYTES: usize = 1_023;
const MAX_REASON_BYTES: usize = 1_024;
const VERSION: u8 = 1;
const FIELDS: usize = 5;
/// The lowest kind of entries that stay.
const FIRST_OTHER: u8 = 16;

/// An affiliation in a state.
#[derive(Debug, PartialEq, Eq)]
struct Entry<'a> {
    affiliation: u8,
    user: &'a str,
    nick: &'a str,
    reason: &'a str,
}

/// The text without what is longer.
fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

fn octet(from: &mut &[u8]) -> Option<u8> {
    let (octet, rest) = from.split_first()?;
    *from = rest;
    Some(*octet)
}

fn field<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = from.split_first_chunk()?;
    let (field, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *from = rest;
    Some(field)
}

/// The affiliations in a state, and the state without them; `None` if it cannot be read.
fn split(state: &[u8]) -> Option<(Vec<Entry<'_>>, Vec<u8>)> {
    let mut rest = state;
    if octet(&mut rest)? != VERSION {
        return None;
    }
    for _ in 0..FIELDS {
        field(&mut rest)?;
    }
    let mut kept = state.get(..state.len() - rest.len())?.to_vec();
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let entry = rest;
        let kind = octet(&mut rest)?;
        let [user, nick, reason] = [field(&mut rest)?, field(&mut rest)?, field(&mut rest)?];
        if kind >= FIRST_OTHER {
            kept.extend_from_slice(entry.get(..entry.len() - rest.len())?);
        } else {
            let text = |octets| std::str::from_utf8(octets).ok();
            // A reservation of a part of a nickname would be another one.
            let nick = text(nick)?;
            let nick = if nick.len() <= MAX_NICK_BYTES { nick } else { "" };
            let reason = cut(text(reason)?, MAX_REASON_BYTES);
            entries.push(Entry { affiliation: kind, user: text(user)?, nick, reason });
        }
    }
    Some((entries, kept))
}

/// Moves the affiliations of all rooms.
pub(crate) async fn run(conn: &mut DbConnection) -> Result<(), StoreError> {
    let context = conn.context.clone();
    let select = conn.sql("SELECT room, state FROM room WHERE room > ? ORDER BY room LIMIT ?");
    let update = RowStatement::new(&*context.dialect, "UPDATE room SET state = ? WHERE room = ?");
    let mut after = 0;
    loop {
        let rooms = conn.fetch_all(&select, &[Arg::number(after), Arg::number(PAGE)]).await?;
        let Some(last) = rooms.last() else { return Ok(()) };
        after = last.number(0)?;
        let (mut rows, mut states) = (Vec::new(), Vec::new());
        for row in &rooms {
            let room = row.number(0)?;
            // One that cannot be read could not be used before either.
            let Some((entries, kept)) = split(row.bytes(1)?) else { continue };
            if entries.is_empty() {
                continue;
            }
            states.push((kept, room));
            rows.extend(entries.into_iter().map(|one| AffiliationRow {
                room,
                user: one.user,
                affiliation: one.affiliation,
                nick: one.nick.as_bytes(),
                reason: one.reason.as_bytes(),
            }));
            if rows.len() >= MAX_ROWS {
                put_affiliations(conn, &std::mem::take(&mut rows)).await?;
            }
        }
        // The rows first: see the pitfall.
        put_affiliations(conn, &rows).await?;
        let args: Vec<Arg<'_>> =
            states.iter().flat_map(|(state, room)| [Arg::Bytes(state), Arg::number(*room)]).collect();
        conn.execute_each(&update, &args).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(out: &mut Vec<u8>, fields: &[&[u8]]) {
        for field in fields {
            out.extend(u32::try_from(field.len()).unwrap().to_be_bytes());
            out.extend(*field);
        }
    }

    #[test]
    fn affiliations_are_taken_out_of_a_state_and_hats_stay() {
        let mut base = vec![VERSION];
        put(&mut base, &[b"<x/>", b"", b"", b"", b"<vCard/>"]);
        let (mut hat, mut owner) = (vec![16], vec![4]);
        put(&mut hat, &[b"urn:host", b"Host", b""]);
        put(&mut owner, &[b"ann@example.org", b"Ann", b""]);
        let state = [&base[..], &owner, &hat].concat();
        let entry = Entry { affiliation: 4, user: "ann@example.org", nick: "Ann", reason: "" };
        assert_eq!(split(&state), Some((vec![entry], [&base[..], &hat].concat())));
        assert_eq!(split(&[&base[..], &hat].concat()), Some((Vec::new(), [&base[..], &hat].concat())));
        for end in 0..state.len() {
            // Some parts are states, too.
            let _ = split(&state[..end]);
        }
        assert_eq!(split(&state[..state.len() - 1]), None);
        assert_eq!(split(&[2]), None);
    }

    #[test]
    fn long_reasons_are_cut_between_characters_and_long_nicknames_are_dropped() {
        let mut state = vec![VERSION];
        put(&mut state, &[b"<x/>", b"", b"", b"", b""]);
        state.push(0);
        let long = "a".to_owned() + &"\u{f6}".repeat(2_500);
        put(&mut state, &[b"eve@example.org", long.as_bytes(), long.as_bytes()]);
        let (entries, _) = split(&state).unwrap();
        assert_eq!((entries[0].nick, entries[0].reason), ("", &long[..1_023]));
    }
}
