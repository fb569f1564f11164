//! Administration of rooms as commands: list, search, occupants, create, destroy. XEP-0133 has none for rooms.

use std::sync::Arc;

use feature_api::feature::{FeatureBuilder, FeatureDeclaration};
use jid::Jid;
use peers::slices::{SliceAccess, slice_access, slice_of_item};
use store::StoreError;
use throng_commands::paging::{AFTER, MAX_ITEMS, MAX_PAGE, NEXT};
use throng_commands::{
    Command, CommandCall, CommandError, CommandErrorKind, CommandField, CommandFieldKind, CommandFuture,
    CommandOutput, OutputRow, OutputValue, RegisterCommands, TokenScope,
};

use crate::FEATURE;
use crate::affiliation_commands::{LIST_AFFILIATIONS, SET_AFFILIATION};
use crate::room::{CreationOutcome, DestroyNotice, DestructionOutcome};
use crate::room_directory::RoomSummary;
use crate::room_input::RoomInput;
use crate::service::RoomService;

/// All commands.
pub(crate) static COMMANDS: &[&dyn FeatureDeclaration] =
    &[&LIST, &OCCUPANTS, &LIST_AFFILIATIONS, &CREATE, &SET_AFFILIATION, &DESTROY];

pub(crate) const ROOM: CommandField =
    CommandField::new("room", "x-room", "The address of the room", CommandFieldKind::Jid).required();

const ROOM_COLUMNS: &[CommandField] = &[
    CommandField::new("jid", "jid", "Address", CommandFieldKind::Jid),
    CommandField::new("name", "name", "Name", CommandFieldKind::Text),
    CommandField::new("persistent", "persistent", "Persistent", CommandFieldKind::Bool),
    CommandField::new("occupants", "occupants", "Occupants", CommandFieldKind::Int(0, i64::MAX, &[])),
];
static ROOM_ROWS: CommandField =
    CommandField::new("rooms", "x-rooms", "Rooms", CommandFieldKind::Table(ROOM_COLUMNS));

/// Rooms of the store that a search examines for one page.
const MAX_SEARCHED: u32 = 2_000;

const SEARCH: CommandField =
    CommandField::new("search", "x-search", "A part of the address or name", CommandFieldKind::Text);

/// Lists rooms, hidden ones included.
static LIST: Command = Command {
    name: "get-rooms-list",
    node: "get-rooms-list",
    title: "Get List of Rooms",
    doc: "Lists the rooms of the domain, temporary ones first, page by page. A search examines at most 2 000 stored rooms \
          for each page, which may be empty although further pages are not.",
    changes: false,
    input: &[SEARCH, MAX_ITEMS, AFTER],
    output: &[ROOM_ROWS, NEXT],
    ..Command::EMPTY
};

const OCCUPANT_COLUMNS: &[CommandField] = &[
    CommandField::new("nick", "nick", "Nickname", CommandFieldKind::Text),
    CommandField::new("jid", "jid", "Address", CommandFieldKind::Jid),
];
static OCCUPANT_ROWS: CommandField =
    CommandField::new("occupants", "x-occupants", "Occupants", CommandFieldKind::Table(OCCUPANT_COLUMNS));

/// Lists the sessions in a room.
static OCCUPANTS: Command = Command {
    name: "get-room-occupants",
    node: "get-room-occupants",
    title: "Get Occupants of a Room",
    doc: "Lists the sessions that are in a room.",
    changes: false,
    input: &[ROOM],
    output: &[OCCUPANT_ROWS],
    ..Command::EMPTY
};

const OWNER: CommandField =
    CommandField::new("owner", "x-owner", "The address of its owner", CommandFieldKind::Jid).required();

/// Creates a persistent room.
static CREATE: Command = Command {
    name: "create-room",
    node: "create-room",
    title: "Create a Room",
    doc: "Creates a persistent room for an owner.",
    input: &[ROOM, OWNER],
    scope: TokenScope::Node,
    ..Command::EMPTY
};

const REASON: CommandField =
    CommandField::new("reason", "x-reason", "The reason, for the occupants", CommandFieldKind::Text);
const ALTERNATE: CommandField = CommandField::new(
    "alternate",
    "x-alternate",
    "A room in which the discussion goes on",
    CommandFieldKind::Jid,
);

/// Destroys a room.
static DESTROY: Command = Command {
    name: "destroy-room",
    node: "destroy-room",
    title: "Destroy a Room",
    doc: "Removes a room with its history and all its occupants.",
    input: &[ROOM, REASON, ALTERNATE],
    scope: TokenScope::Node,
    ..Command::EMPTY
};

/// Registers the handlers.
pub(crate) fn build(builder: &mut FeatureBuilder<'_>, service: &Arc<RoomService>) {
    let of = service.clone();
    builder.command(&LIST, move |call: CommandCall| -> CommandFuture { Box::pin(list(of.clone(), call)) });
    let of = service.clone();
    builder.command(&OCCUPANTS, move |call: CommandCall| -> CommandFuture {
        Box::pin(occupants(of.clone(), call))
    });
    let of = service.clone();
    builder
        .command(&CREATE, move |call: CommandCall| -> CommandFuture { Box::pin(create(of.clone(), call)) });
    let of = service.clone();
    builder
        .command(&DESTROY, move |call: CommandCall| -> CommandFuture { Box::pin(destroy(of.clone(), call)) });
    crate::affiliation_commands::build(builder, service);
}

/// The address of the service.
fn service_address(call: &CommandCall) -> Result<String, CommandError> {
    let mut services = call.host.services.iter();
    let service = services.find(|service| service.feature == FEATURE.name);
    service.map(|service| service.address().to_owned()).ok_or_else(CommandError::internal)
}

/// The address of a room of the domain.
pub(crate) fn room_address(call: &CommandCall) -> Result<Jid, CommandError> {
    let room = call.input.jid(&ROOM)?;
    let service = service_address(call)?;
    if room.domain() != service || room.local().is_none() || room.resource().is_some() {
        let text = format!("{room} is not the address of a room; write one such as name@{service}");
        return Err(CommandError::new(CommandErrorKind::NotAcceptable, text));
    }
    let SliceAccess::Elsewhere(owner) = slice_access(&call.node, slice_of_item(&call.node, room.as_ref()))
    else {
        return Ok(room.clone());
    };
    let text = format!("the node {owner} has the room {room}; run the command there");
    Err(CommandError::new(CommandErrorKind::Unavailable, text))
}

pub(crate) fn no_room(room: &Jid) -> CommandError {
    CommandError::new(CommandErrorKind::NotFound, format!("there is no room {room}"))
}

/// The database has failed; its error is in the log.
fn not_stored(room: &Jid) -> CommandError {
    let text = format!("the database has not stored the change of the room {room}; try again later");
    CommandError::new(CommandErrorKind::Unavailable, text)
}

fn store_failed(error: StoreError) -> CommandError {
    CommandError::from(error)
}

async fn list(rooms: Arc<RoomService>, call: CommandCall) -> Result<CommandOutput, CommandError> {
    let service = service_address(&call)?;
    let page_size = match call.input.count(&MAX_ITEMS) {
        0 => MAX_PAGE,
        page_size => page_size.min(MAX_PAGE),
    };
    let after = call.input.text(&AFTER).filter(|after| !after.is_empty());
    let after = after.map(Jid::parse).transpose().map_err(|_| {
        CommandError::new(CommandErrorKind::NotAcceptable, "\"after\" is not the address of a room")
    })?;
    let directory = &rooms.shared.directory;
    let search = call.input.text(&SEARCH).unwrap_or_default().trim().to_lowercase();
    let matches = |jid: &Jid, name: &str| {
        let local = jid.local().unwrap_or_default();
        search.is_empty() || local.contains(&search) || name.to_lowercase().contains(&search)
    };
    let is_temporary = |summary: &RoomSummary| !summary.is_persistent;
    let is_in_store = after.as_ref().is_some_and(|after| !directory.contains(after, is_temporary));
    let mut listed: Vec<(Jid, OutputRow)> = Vec::new();
    let row = |jid: &Jid, name: &str, persistent: bool, occupants: usize| {
        vec![
            OutputValue::Text(jid.to_string()),
            OutputValue::Text(name.to_owned()),
            OutputValue::Bool(persistent),
            OutputValue::Int(occupants as u64),
        ]
    };
    if !is_in_store {
        let page_limit = if search.is_empty() { page_size as usize } else { usize::MAX };
        let page = directory.page(&service, after.as_ref().map(Jid::as_ref), page_limit, is_temporary);
        let page = page.into_iter().filter(|(jid, summary)| matches(jid, &summary.name));
        for (jid, summary) in page.take(page_size as usize) {
            let row = row(&jid, &summary.name, false, summary.occupants);
            listed.push((jid, row));
        }
    }
    let mut next = listed.last().filter(|_| listed.len() == page_size as usize).map(|(jid, _)| jid.clone());
    let mut from = after.filter(|_| is_in_store);
    let mut searched = 0;
    while next.is_none() {
        let missing = page_size.saturating_sub(u32::try_from(listed.len()).unwrap_or(u32::MAX));
        let wanted = if search.is_empty() { missing } else { MAX_PAGE };
        let stored = call.node.stores.rooms.list_all(&service, from, wanted).await.map_err(store_failed)?;
        let is_last = stored.len() < wanted as usize;
        from = stored.last().map(|room| room.jid.clone());
        searched += wanted;
        for room in stored.into_iter().filter(|room| matches(&room.jid, &room.title)) {
            let row = row(&room.jid, &room.title, true, directory.occupants(&room.jid));
            listed.push((room.jid.clone(), row));
            if listed.len() == page_size as usize {
                next = Some(room.jid);
                break;
            }
        }
        if is_last && next.is_none() {
            break;
        }
        if searched >= MAX_SEARCHED {
            next = next.or_else(|| from.clone());
        }
    }
    let next = next.map(|jid| jid.to_string());
    let rows = listed.into_iter().map(|(_, row)| row).collect();
    let output = CommandOutput::done().with(&ROOM_ROWS, OutputValue::Rows(rows));
    Ok(match next {
        Some(next) => output.with(&NEXT, OutputValue::Text(next)),
        None => output,
    })
}

async fn occupants(rooms: Arc<RoomService>, call: CommandCall) -> Result<CommandOutput, CommandError> {
    let room = room_address(&call)?;
    let found = rooms.call(&call.node, room.clone(), |reply| RoomInput::ListOccupants { reply }).await;
    let found = found.flatten().ok_or_else(|| no_room(&room))?;
    let row = |(nick, jid): (String, Jid)| vec![OutputValue::Text(nick), OutputValue::Text(jid.to_string())];
    let rows = found.into_iter().map(row).collect();
    Ok(CommandOutput::done().with(&OCCUPANT_ROWS, OutputValue::Rows(rows)))
}

async fn create(rooms: Arc<RoomService>, call: CommandCall) -> Result<CommandOutput, CommandError> {
    let room = room_address(&call)?;
    let owner = call.input.jid(&OWNER)?.bare().to_jid();
    let created = rooms.call(&call.node, room.clone(), |reply| RoomInput::Create { owner, reply }).await;
    match created {
        Some(CreationOutcome::Created) => Ok(CommandOutput::with_note(format!("the room {room} is created"))),
        Some(CreationOutcome::Exists) => {
            let text = format!("the room {room} exists already");
            Err(CommandError::new(CommandErrorKind::Conflict, text))
        }
        Some(CreationOutcome::NotStored) => Err(not_stored(&room)),
        None => Err(CommandError::internal()),
    }
}

async fn destroy(rooms: Arc<RoomService>, call: CommandCall) -> Result<CommandOutput, CommandError> {
    let room = room_address(&call)?;
    let notice = DestroyNotice {
        alternate: call.input.jid(&ALTERNATE).ok().cloned(),
        password: None,
        reason: call.input.text(&REASON).filter(|reason| !reason.is_empty()).map(str::to_owned),
    };
    let destroyed = rooms.call(&call.node, room.clone(), |reply| RoomInput::Destroy { notice, reply }).await;
    match destroyed {
        Some(DestructionOutcome::Destroyed) => {
            Ok(CommandOutput::with_note(format!("the room {room} is destroyed")))
        }
        Some(DestructionOutcome::NoRoom) => Err(no_room(&room)),
        Some(DestructionOutcome::NotStored) => Err(not_stored(&room)),
        None => Err(CommandError::internal()),
    }
}
