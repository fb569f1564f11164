//! Administration of affiliations as commands: list and change.

use std::sync::Arc;

use feature_api::feature::FeatureBuilder;
use jid::Jid;
use store::RoomAffiliation;
use throng_commands::paging::{AFTER, MAX_ITEMS, MAX_PAGE, NEXT};
use throng_commands::{
    Command, CommandCall, CommandError, CommandErrorKind, CommandField, CommandFieldKind, CommandFuture,
    CommandOutput, OutputValue, RegisterCommands, TokenScope,
};

use crate::commands::{ROOM, no_room, room_address};
use crate::privileges::Affiliation;
use crate::room::AffiliationOutcome;
use crate::room_input::RoomInput;
use crate::service::RoomService;

const USER_COLUMN: CommandField = CommandField::new("jid", "jid", "Address", CommandFieldKind::Jid);
const AFFILIATION_COLUMNS: &[CommandField] = &[
    USER_COLUMN,
    CommandField::new("affiliation", "affiliation", "Affiliation", CommandFieldKind::Text),
    CommandField::new("nick", "nick", "Reserved nickname", CommandFieldKind::Text),
    CommandField::new("reason", "reason", "Reason", CommandFieldKind::Text),
];
static AFFILIATION_ROWS: CommandField = CommandField::new(
    "affiliations",
    "x-affiliations",
    "Affiliations",
    CommandFieldKind::Table(AFFILIATION_COLUMNS),
);

/// Lists the affiliations of a room.
pub(crate) static LIST_AFFILIATIONS: Command = Command {
    name: "get-room-affiliations",
    node: "get-room-affiliations",
    title: "Get Affiliations of a Room",
    doc: "Lists owners, administrators, members and banned users of a room, page by page.",
    changes: false,
    input: &[ROOM, MAX_ITEMS, AFTER],
    output: &[AFFILIATION_ROWS, NEXT],
    ..Command::EMPTY
};

const USER: CommandField =
    CommandField::new("user", "x-user", "The address of the user, or a domain to ban", CommandFieldKind::Jid)
        .required();
const AFFILIATION: CommandField = CommandField::new(
    "affiliation",
    "x-affiliation",
    "The affiliation",
    CommandFieldKind::Choice(&[
        ("owner", "Owner"),
        ("admin", "Administrator"),
        ("member", "Member"),
        ("outcast", "Banned"),
        ("none", "None"),
    ]),
)
.required();

/// Sets an affiliation.
pub(crate) static SET_AFFILIATION: Command = Command {
    name: "set-room-affiliation",
    node: "set-room-affiliation",
    title: "Set an Affiliation with a Room",
    doc: "Makes a user owner, administrator or member of a room, bans the user, or removes the affiliation.",
    input: &[ROOM, USER, AFFILIATION],
    scope: TokenScope::Node,
    ..Command::EMPTY
};

/// Registers the handlers.
pub(crate) fn build(builder: &mut FeatureBuilder<'_>, service: &Arc<RoomService>) {
    let of = service.clone();
    builder.command(&LIST_AFFILIATIONS, move |call: CommandCall| -> CommandFuture {
        Box::pin(list(of.clone(), call))
    });
    let of = service.clone();
    builder.command(&SET_AFFILIATION, move |call: CommandCall| -> CommandFuture {
        Box::pin(set(of.clone(), call))
    });
}

async fn list(rooms: Arc<RoomService>, call: CommandCall) -> Result<CommandOutput, CommandError> {
    let room = room_address(&call)?;
    let limit = match call.input.count(&MAX_ITEMS) {
        0 => MAX_PAGE,
        limit => limit.min(MAX_PAGE),
    };
    let after = call.input.text(&AFTER).filter(|after| !after.is_empty());
    let after = after.map(Jid::parse).transpose().map_err(|_| {
        CommandError::new(CommandErrorKind::NotAcceptable, "\"after\" is not the address of a user")
    })?;
    let input = |reply| RoomInput::ListAffiliations { after, limit, reply };
    let found = rooms.call(&call.node, room.clone(), input).await;
    let found = found.flatten().ok_or_else(|| no_room(&room))?.map_err(CommandError::from)?;
    let next = found.last().filter(|_| found.len() == limit as usize).map(|last| last.user.to_string());
    let row = |it: RoomAffiliation| {
        let affiliation = Affiliation::from_number(it.affiliation).unwrap_or(Affiliation::None);
        vec![
            OutputValue::Text(it.user.to_string()),
            OutputValue::Text(affiliation.as_str().to_owned()),
            OutputValue::Text(it.nick.into()),
            OutputValue::Text(it.reason.into()),
        ]
    };
    let rows = found.into_iter().map(row).collect();
    let output = CommandOutput::done().with(&AFFILIATION_ROWS, OutputValue::Rows(rows));
    Ok(match next {
        Some(next) => output.with(&NEXT, OutputValue::Text(next)),
        None => output,
    })
}

async fn set(rooms: Arc<RoomService>, call: CommandCall) -> Result<CommandOutput, CommandError> {
    let room = room_address(&call)?;
    let user = call.input.jid(&USER)?.bare().to_jid();
    let name = call.input.text(&AFFILIATION).unwrap_or_default();
    let affiliation = Affiliation::from_name(name).ok_or_else(CommandError::internal)?;
    let refuse = |kind, text: String| Err(CommandError::new(kind, text));
    if user.local().is_none() && !matches!(affiliation, Affiliation::Outcast | Affiliation::None) {
        let text = format!("{user} is a domain, which can only be banned");
        return refuse(CommandErrorKind::NotAcceptable, text);
    }
    let change = user.clone();
    let input = |reply| RoomInput::SetAffiliation { user: change, affiliation, reply };
    match rooms.call(&call.node, room.clone(), input).await {
        Some(AffiliationOutcome::Done) => {
            Ok(CommandOutput::with_note(format!("the affiliation of {user} with {room} is {name}")))
        }
        Some(AffiliationOutcome::NoRoom) => Err(no_room(&room)),
        Some(AffiliationOutcome::LastOwner) => {
            let text = format!("{user} is the only owner of {room}; make another user owner first");
            refuse(CommandErrorKind::Conflict, text)
        }
        Some(AffiliationOutcome::Full) => {
            let text = format!("the lists of {room} have reached their maximum length");
            refuse(CommandErrorKind::Conflict, text)
        }
        Some(AffiliationOutcome::OverQuota) => {
            let text = format!(
                "the rooms of the user who has created {room} take too much memory; destroy some, or raise memory_per_user"
            );
            refuse(CommandErrorKind::Conflict, text)
        }
        Some(AffiliationOutcome::NotStored) | None => Err(CommandError::internal()),
    }
}
