//! Parser of the steps in rooms.

use super::super::super::room::ROOM_PREFIX;
use super::super::super::{RoomSelection, RoomStep, TemplatePart, TextTemplate};
use super::super::reader::{TomlNode, TomlSection};
use super::send::{ack, body};

pub(super) fn join(s: &TomlSection<'_>) -> Option<RoomStep> {
    let node = s.need("room", "room = \"lobby\", room = 7 or room = \"ring\"");
    let room = node.as_ref().and_then(|node| selection(s, node));
    if let (Some(node), Some(RoomSelection::Joined | RoomSelection::All)) = (&node, &room) {
        node.error("must name a room to join, such as \"lobby\", 7 or \"ring\"");
    }
    let nick = s.get("nick").map_or(Some(TextTemplate(vec![TemplatePart::User])), |n| n.template());
    let history = s.get("history").and_then(|n| n.whole(0, i64::from(u32::MAX))).map(|n| n as u32);
    let wait = waits(s);
    Some(RoomStep::Join { room: room?, nick: nick?, history, wait })
}

pub(super) fn leave(s: &TomlSection<'_>) -> Option<RoomStep> {
    let room = room_or(s, RoomSelection::All);
    let wait = waits(s);
    Some(RoomStep::Leave { room: room?, wait })
}

pub(super) fn message(s: &TomlSection<'_>) -> Option<RoomStep> {
    let room = room_or(s, RoomSelection::Joined);
    let ack = ack(s);
    let body = body(s)?;
    Some(RoomStep::Message { room: room?, body, ack })
}

pub(super) fn presence(s: &TomlSection<'_>) -> Option<RoomStep> {
    let room = room_or(s, RoomSelection::All);
    let show = s.get("show").and_then(|n| n.template());
    let status = s.get("status").and_then(|n| n.template());
    Some(RoomStep::Presence { room: room?, show, status })
}

pub(super) fn nick(s: &TomlSection<'_>) -> Option<RoomStep> {
    let nick = s.need("nick", "nick = \"{user}-{unique}\"").and_then(|n| n.template());
    let room = room_or(s, RoomSelection::All);
    let wait = waits(s);
    Some(RoomStep::Nick { room: room?, nick: nick?, wait })
}

fn room_or(s: &TomlSection<'_>, default: RoomSelection) -> Option<RoomSelection> {
    match s.get("room") {
        Some(node) => selection(s, &node),
        None => Some(default),
    }
}

fn waits(s: &TomlSection<'_>) -> bool {
    s.get("wait").and_then(|n| n.word(&[("answer", true), ("none", false)])).unwrap_or(true)
}

/// A room by number, by its name, by position in a ring, or those that the user is in.
fn selection(s: &TomlSection<'_>, node: &TomlNode<'_>) -> Option<RoomSelection> {
    let (rooms, count) = (s.get("rooms"), s.get("count"));
    let given = [&rooms, &count].into_iter().flatten().next();
    let ring = if node.is_text() { ring(node) } else { None };
    if let (None, Some(given)) = (&ring, given) {
        given.error("belongs to room = \"ring\"; remove it");
    }
    if node.integer().is_some() {
        let number = node.whole(0, i64::from(u32::MAX))?;
        return Some(RoomSelection::Named(TextTemplate::literal(format!("{ROOM_PREFIX}{number}"))));
    }
    match (ring, node.text()?) {
        (Some(offset), _) => {
            let rooms = rooms.map_or(Some(s.context.connections), |n| n.amount());
            let count = count.map_or(Some(1), |n| n.whole(1, 10_000));
            Some(RoomSelection::Ring { offset: offset?, rooms: rooms?, count: count? as u32 })
        }
        (None, "joined") => Some(RoomSelection::Joined),
        (None, "all") => Some(RoomSelection::All),
        (None, "") => node.none("is empty; name a room, such as \"lobby\""),
        (None, _) => node.template().map(RoomSelection::Named),
    }
}

/// Offset of `ring` or `ring+3`; `None` for other words, and `Some(None)` after an error.
pub(super) fn ring(node: &TomlNode<'_>) -> Option<Option<u32>> {
    let distance = node.text()?.strip_prefix("ring")?;
    if distance.is_empty() {
        return Some(Some(0));
    }
    let digits = distance.strip_prefix(['+', '-'])?;
    let offset = digits.parse().ok().filter(|_| distance.starts_with('+'));
    Some(offset.or_else(|| node.none("is not a position in a ring; write \"ring\" or such as \"ring+3\"")))
}
