//! Commands for administrators.

use throng_commands::{
    Caller, CommandError, CommandErrorKind, CommandOutput, FieldNaming, OutputValue, RawArguments,
    commands_of, run_command,
};

use super::*;

fn run(play: &Shakespeare, name: &str, values: &[(&str, &str)]) -> Result<CommandOutput, CommandError> {
    let host = play.engine.node.host("example.com").unwrap();
    let entry = commands_of(&host).by_name(name).unwrap().clone();
    let mut given = RawArguments::default();
    values.iter().for_each(|(key, value)| given.add(key, (*value).to_owned()));
    let input = entry.command.parse_input(&given, FieldNaming::Name)?;
    play.engine.block_on(run_command(&play.engine.node, &host, &entry, Caller::operator(), input))
}

/// The rows of a table, as text.
fn rows(output: &CommandOutput, field: &str) -> Vec<String> {
    let Some(OutputValue::Rows(rows)) = output.get(field) else { panic!("no rows") };
    rows.iter().map(|row| row.iter().flat_map(OutputValue::texts).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn rooms_are_created_listed_and_destroyed() {
    let play = Shakespeare::new();
    let heath = ("room", "heath@conference.example.com");
    run(&play, "create-room", &[heath, ("owner", "hag66@example.com")]).unwrap();
    let again = run(&play, "create-room", &[heath, ("owner", "hag66@example.com")]).unwrap_err();
    assert_eq!(again.kind, CommandErrorKind::Conflict);
    let crone = play.room(&field("muc#roomconfig_publicroom", "0"));
    let listed = rows(&run(&play, "get-rooms-list", &[]).unwrap(), "rooms");
    assert_eq!(listed, [format!("{ROOM}  0 1"), "heath@conference.example.com  1 0".to_owned()]);
    let page = run(&play, "get-rooms-list", &[("max-items", "1")]).unwrap();
    assert_eq!(rows(&page, "rooms"), [format!("{ROOM}  0 1")]);
    let next = page.get("next").unwrap().texts().concat();
    let page = run(&play, "get-rooms-list", &[("max-items", "9"), ("after", &next)]).unwrap();
    assert_eq!(rows(&page, "rooms").len(), 1);
    let occupants = rows(&run(&play, "get-room-occupants", &[("room", ROOM)]).unwrap(), "occupants");
    assert_eq!(occupants, [format!("firstwitch {}", crone.full())]);
    forget(&[&crone]);
    run(&play, "destroy-room", &[("room", ROOM), ("reason", "Macbeth doth come.")]).unwrap();
    play.engine.run_tasks();
    assert!(crone.recv().concat().contains("<destroy><reason>Macbeth doth come.</reason></destroy>"));
    let gone = run(&play, "get-room-occupants", &[("room", ROOM)]).unwrap_err();
    assert_eq!(gone.kind, CommandErrorKind::NotFound);
    run(&play, "destroy-room", &[heath]).unwrap();
    assert!(rows(&run(&play, "get-rooms-list", &[]).unwrap(), "rooms").is_empty());
    let elsewhere = run(&play, "destroy-room", &[("room", "heath@example.com")]).unwrap_err();
    assert_eq!(elsewhere.kind, CommandErrorKind::NotAcceptable);
    assert!(elsewhere.text.contains("name@conference.example.com"), "{}", elsewhere.text);
}

#[test]
fn a_write_that_fails_is_reported_as_such() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_persistentroom", "1"));
    play.engine.set_store_failing(true);
    let failed = run(&play, "destroy-room", &[("room", ROOM)]).unwrap_err();
    assert_eq!(failed.kind, CommandErrorKind::Unavailable, "{}", failed.text);
    assert!(failed.text.contains("database"), "{}", failed.text);
    play.engine.set_store_failing(false);
    // The room is still stored, so it can be destroyed again.
    run(&play, "destroy-room", &[("room", ROOM)]).unwrap();
    let gone = run(&play, "get-room-occupants", &[("room", ROOM)]).unwrap_err();
    assert_eq!(gone.kind, CommandErrorKind::NotFound);
    assert!(enter(&crone, "firstwitch").concat().contains("<status code='201'/>"));
}

#[test]
fn rooms_are_found_by_a_part_of_their_address_or_name() {
    let play = Shakespeare::new();
    for name in ["heath", "castle", "forest"] {
        let room = format!("{name}@conference.example.com");
        run(&play, "create-room", &[("room", &room), ("owner", "hag66@example.com")]).unwrap();
    }
    let found = |values: &[(&str, &str)]| run(&play, "get-rooms-list", values).unwrap();
    assert_eq!(rows(&found(&[("search", "EAT")]), "rooms"), ["heath@conference.example.com  1 0"]);
    let page = found(&[("search", "e"), ("max-items", "1")]);
    assert_eq!(rows(&page, "rooms").len(), 1);
    let next = page.get("next").unwrap().texts().concat();
    let rest = found(&[("search", "e"), ("after", &next)]);
    assert_eq!(rows(&rest, "rooms").len(), 2);
    assert!(rest.get("next").is_none());
    assert!(rows(&found(&[("search", "conference")]), "rooms").is_empty(), "the service is not searched");
}

#[test]
fn affiliations_are_listed_and_changed() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let room = ("room", ROOM);
    let set = |user: &str, affiliation: &str| {
        run(&play, "set-room-affiliation", &[room, ("user", user), ("affiliation", affiliation)])
    };
    set("wiccarocks@example.com/laptop", "member").unwrap();
    set("spam.example", "outcast").unwrap();
    let owner = crone.bare().to_string();
    let mut listed = rows(&run(&play, "get-room-affiliations", &[room]).unwrap(), "affiliations");
    listed.sort_unstable();
    let mut expected = [
        format!("{owner} owner  "),
        "spam.example outcast  ".into(),
        "wiccarocks@example.com member  ".into(),
    ];
    expected.sort_unstable();
    assert_eq!(listed, expected);
    forget(&[&crone]);
    assert_eq!(set(&owner, "member").unwrap_err().kind, CommandErrorKind::Conflict);
    set("wiccarocks@example.com", "owner").unwrap();
    set(&owner, "outcast").unwrap();
    play.engine.run_tasks();
    assert!(crone.recv().concat().contains("code='301'"));
    assert_eq!(set("spam.example", "member").unwrap_err().kind, CommandErrorKind::NotAcceptable);
    let elsewhere = run(&play, "get-room-affiliations", &[("room", "x@conference.example.com")]).unwrap_err();
    assert_eq!(elsewhere.kind, CommandErrorKind::NotFound);
}
