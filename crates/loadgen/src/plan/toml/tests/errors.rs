//! Tests of every error of the TOML form, with the sentence that a user sees.

use super::*;

/// The sentences for a text.
fn errors(text: &str, arguments: &PlanOverrides) -> Vec<String> {
    match read_toml(text, "test", arguments) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(PlanError::to_string).collect(),
    }
}

fn of(text: &str) -> Vec<String> {
    errors(text, &PlanOverrides::default())
}

/// The sentences for lines before a valid phase and session.
fn top(lines: &str) -> String {
    of(&format!("{lines}\n{PHASE}{SESSION}")).join("\n")
}

/// The sentences for one step, which is in line 2.
fn step(step: &str) -> String {
    of(&format!("[[session]]\nsteps = [{step}]\n{PHASE}")).join("\n")
}

#[test]
fn all_errors_are_reported_in_line_order() {
    let text = "tittle = \"x\"\n[options]\nhold = 5\n[[phase]]\nrate = 1\n[[session]]\nsteps = [\n  \"logn\",\n  { think = \"5\" },\n]\n";
    assert_eq!(
        of(text),
        [
            "line 1: tittle: unknown key \"tittle\"; did you mean \"title\"?",
            "line 3: options.hold: must be a time such as \"250ms\", \"5s\", \"1m30s\", \"2h\" or \"connections * 100ms\"",
            "line 4: phase[0]: would never end; add a \"duration\" such as \"1m\", or \"users\" such as \
             \"connections\"",
            "line 8: session[0].steps[0]: unknown step \"logn\"; did you mean \"login\"?",
            "line 9: session[0].steps[1].think: must be a time such as \"5s\" or \"1m30s\", between two such as \"5s..10s\", or random around one such as \"~5s\"; not \"5\"",
        ]
    );
}

#[test]
fn text_that_is_not_toml() {
    let found = of("title = \n[[phase]\n");
    assert!(found[0].starts_with("line 1: is not TOML: "), "{found:?}");
    assert!(found.iter().any(|m| m.starts_with("line 2: is not TOML: ")), "{found:?}");
}

#[test]
fn plans_without_users() {
    assert_eq!(
        of(""),
        [
            "the plan has no [[session]]; add one with steps = [\"login\"]",
            "the plan has no [[phase]], so no users arrive; add one such as: [[phase]] rate = 100, users = \
             \"connections\"",
        ]
    );
}

#[test]
fn values_of_the_wrong_kind() {
    let cases = [
        ("title = 5", "line 1: title: must be a string in quotes"),
        ("connections = 0", "line 1: connections: must be a whole number between 1 and 4294967295"),
        ("options = 5", "line 1: options: must be a table: { … }"),
        ("[options]\nkeep_going = 1", "line 2: options.keep_going: must be true or false"),
        ("[options]\nretries = -1", "line 2: options.retries: must be a whole number between 0 and 1000000"),
        ("[options]\nseed = -1", "line 2: options.seed: must be a whole number of at least 0"),
        (
            "[options]\nhold = \"soon\"",
            "line 2: options.hold: must be a time such as \"250ms\", \"5s\", \"1m30s\", \"2h\" or \"connections * 100ms\"; not \"soon\"",
        ),
        ("[target]\nsources = 5", "line 2: target.sources: must be a string or a list of strings"),
        (
            "[target]\naddress = \"a:b\"",
            "line 2: target.address: \"a:b\" is not HOST:PORT, such as 127.0.0.1:5222",
        ),
        (
            "[target]\nsources = \"x\"",
            "line 2: target.sources: \"x\" is not a range of local addresses; write one such as \
             127.0.0.2-127.0.0.60 or 10.1.0.0/28",
        ),
        (
            "[target]\nsecurity = \"startls\"",
            "line 2: target.security: \"startls\" is none of \"auto\", \"none\", \"plain\", \"starttls\", \"direct\", \"tls\"; did you mean \"starttls\"?",
        ),
        (
            "[target]\nca = \"/not/there\"",
            "line 2: target.ca: the file /not/there cannot be read: No such file or directory (os error 2)",
        ),
        (
            "[accounts]\nfile = \"/not/there\"",
            "line 2: accounts.file: the file /not/there cannot be read: No such file or directory (os error 2)",
        ),
        (
            "[accounts]\ncount = \"conections\"",
            "line 2: accounts.count: must be a number of at least 1, \"connections\", or such as \"connections * 5\"; not \"conections\"",
        ),
        (
            "[accounts]\ncount = 0",
            "line 2: accounts.count: must be a number of at least 1, \"connections\", or such as \"connections * 5\"",
        ),
        ("[accounts]\nstride = 0", "line 2: accounts.stride: must be a whole number between 1 and 1000000"),
        (
            "[accounts]\nprefx = \"u\"",
            "line 2: accounts.prefx: unknown key \"prefx\"; did you mean \"prefix\"?",
        ),
        ("[prepare]\nring = 5", "line 2: prepare.ring: unknown key \"ring\"; known are accounts, roster"),
        ("[tables]\nwords = []", "line 2: tables.words: the table \"words\" has no lines"),
        ("[tables]\nwords = 5", "line 2: tables.words: must be a list: [ … ]"),
        ("[[start]]\nsession = \"session\"", "line 1: start[0]: needs \"at\", such as at = \"10s\""),
        (
            "[[start]]\nat = \"1s\"\nsession = \"sesion\"",
            "line 3: start[0].session: no session is defined \"sesion\"; did you mean \"session\"?",
        ),
        (
            "[[phase]]\nusers = 1",
            "line 1: phase[0]: has users but no rate, so they never arrive; add a \"rate\" such as 100 \
             (users per second)",
        ),
        ("[[phase]]\nusers = 1\nrate = -1", "line 3: phase[0].rate: must be a number of at least 0"),
    ];
    for (lines, sentence) in cases {
        let found = top(lines);
        assert!(found.starts_with(sentence), "{lines}\n{found}");
    }
}

#[test]
fn phases() {
    let phase = |lines: &str| of(&format!("{SESSION}[[phase]]\nduration = \"1s\"\n{lines}")).join("\n");
    assert_eq!(
        phase("rate = 1\nevery = \"1s\""),
        "line 6: phase[0].every: cannot be combined with \"rate\"; keep one of the two"
    );
    assert_eq!(phase("every = \"0s\""), "line 5: phase[0].every: must be more than 0");
    assert_eq!(
        phase("weights = { sesion = 1 }"),
        "line 5: phase[0].weights.sesion: no session is defined \"sesion\"; did you mean \"session\"?"
    );
    assert_eq!(phase("batch = 0"), "line 5: phase[0].batch: must be a whole number between 1 and 1000000");
}

#[test]
fn sessions() {
    assert_eq!(
        of(&format!("{PHASE}[[session]]\nname = \"a\"")),
        ["line 4: session[0]: needs \"steps\", such as steps = [\"login\", \"presence\"]"]
    );
    assert_eq!(
        of(&format!("{PHASE}{SESSION}{SESSION}")),
        ["line 6: session[1]: there are two sessions named \"session\"; give each its own name"]
    );
}

#[test]
fn steps() {
    let cases = [
        ("5", "steps[0]: must be a step such as \"roster\" or { think = \"5s\" }"),
        ("{}", "steps[0]: is an empty step; write such as { think = \"5s\" }"),
        (
            "{ roster = {}, ping = {} }",
            "steps[0]: has 2 keys (roster, ping) where one step is expected; give each step its own { }",
        ),
        ("{ mesage = \"online\" }", "steps[0].mesage: unknown step \"mesage\"; did you mean \"message\"?"),
        ("{ roster = 5 }", "steps[0].roster: \"roster\" needs a table of options: roster = { … }"),
        ("{ cut = { x = 1 } }", "steps[0].cut.x: unknown key \"x\"; no options are supported here"),
        ("\"message\"", "steps[0]: needs \"to\", such as to = \"online\""),
        ("\"think\"", "steps[0]: needs \"for\", such as think = \"5s\""),
        ("\"raw\"", "steps[0]: needs \"xml\", such as xml = \"<presence/>\""),
        (
            "{ message = { to = \"online\", sise = 5 } }",
            "steps[0].message.sise: unknown key \"sise\"; did you mean \"size\"?",
        ),
        (
            "{ message = \"onlin\" }",
            "steps[0].message: \"onlin\" is not a recipient; did you mean \"online\"?",
        ),
        (
            "{ message = \"everybody in town\" }",
            "steps[0].message: \"everybody in town\" is not a recipient; write one of online, offline, \
             random, unique, previous, last_contact, first, contact, online_contact, partner, self, server, ring+1, or an address such as \"alice@example.org\"",
        ),
        (
            "{ message = \"ring+0\" }",
            "steps[0].message: \"ring+0\" is not a position in the ring; write one such as \"ring+1\" or \
             \"ring-25\"",
        ),
        (
            "{ message = { to = \"online\", text = \"x\", size = 5 } }",
            "steps[0].message.text: cannot be combined with \"size\"; keep one of the two",
        ),
        (
            "{ message = { to = \"online\", size = -1 } }",
            "steps[0].message.size: must be a whole number between 0 and 16777216",
        ),
        (
            "{ message = { to = \"online\", wait = \"deliverry\" } }",
            "steps[0].message.wait: \"deliverry\" is none of \"none\", \"any\", \"answer\", \"delivery\", \"all\", \"acknowledged\"; did you mean \"delivery\"?",
        ),
        (
            "{ message = { to = \"online\", text = \"{usr}\" } }",
            "steps[0].message.text: has the unknown placeholder \"{usr}\"; did you mean \"user\"?",
        ),
        (
            "{ message = { to = \"online\", text = \"{something}\" } }",
            "steps[0].message.text: has the unknown placeholder \"{something}\"; known are {user}, {n}, {password}, {domain}, {jid}, {unique}, {to} and {var:NAME}",
        ),
        (
            "{ message = { to = \"online\", text = \"a{b\" } }",
            "steps[0].message.text: has a \"{\" without its \"}\"; write a literal brace twice: \"{{\"",
        ),
        (
            "{ message = { to = \"online\", text = \"a}b\" } }",
            "steps[0].message.text: has a \"}\" without its \"{\"; write a literal brace twice: \"}}\"",
        ),
        (
            "{ presence = \"away\" }",
            "steps[0].presence: \"away\" is none of \"available\", \"unavailable\", \"subscribe\", \"subscribed\", \"unsubscribe\", \"probe\"",
        ),
        (
            "{ presence = \"subscribe\" }",
            "steps[0].presence: of this kind needs \"to\", such as to = \"ring+1\"",
        ),
        (
            "{ authenticate = { user = \"a\" } }",
            "steps[0].authenticate: needs both \"user\" and \"password\", or neither for those of the account",
        ),
        ("\"legacy_authenticate\"", "steps[0]: needs \"resource\", such as resource = \"load\""),
        (
            "{ raw = { xml = \"<a/>\", keep = { x = \"(y)\" } } }",
            "steps[0].raw: checks a response but does not wait for one; add wait = \"answer\" or wait = \
             \"any\"",
        ),
        (
            "{ raw = { xml = \"<a/>\", wait = \"any\", check = [{ regex = \"x\" }] } }",
            "steps[0].raw.check[0]: needs \"then\", such as then = \"abort\"",
        ),
        (
            "{ wait_for = {} }",
            "steps[0].wait_for: requires a condition: \"stanza\" (with \"type\" and \"namespace\"), \
             \"contains\" or \"regex\"",
        ),
        ("{ repeat = { times = 2 } }", "steps[0].repeat: needs \"steps\", such as steps = [\"ping\"]"),
        ("{ repeat = { steps = [] } }", "steps[0].repeat.steps: has no steps; add at least one"),
        (
            "{ repeat = { times = 0, steps = [\"ping\"] } }",
            "steps[0].repeat.times: must be a whole number between 1 and 4294967295",
        ),
        (
            "{ if = { variable = \"x\", steps = [\"ping\"] } }",
            "steps[0].if: needs one of \"equals\", \"not\", \"below\", \"at_most\", \"above\" and \"at_least\"",
        ),
        (
            "{ if = { equals = 1, steps = [\"ping\"] } }",
            "steps[0].if: needs \"variable\", such as variable = \"x\"",
        ),
        (
            "{ for_each = { variable = \"x\", steps = [\"ping\"] } }",
            "steps[0].for_each: needs \"in\", such as in = \"names\"",
        ),
        (
            "{ meanwhile = {} }",
            "steps[0].meanwhile: needs \"do\", such as do = [{ every = \"5s\", message = { to = \"online\" } }]",
        ),
        (
            "{ meanwhile = { do = [] } }",
            "steps[0].meanwhile.do: has no activities; give at least one, such as { every = \"5s\", message \
             = { to = \"online\" } }",
        ),
        (
            "{ meanwhile = { do = [{ every = \"5s\" }] } }",
            "steps[0].meanwhile.do[0]: needs \"every\" and one of message, presence, ping, raw, roster, \
             room_message, room_presence, room_nick, pubsub_publish, pubsub_subscribe and pubsub_unsubscribe",
        ),
        (
            "{ meanwhile = { do = [{ message = \"online\" }] } }",
            "steps[0].meanwhile.do[0]: needs \"every\", such as every = \"5s\"",
        ),
        (
            "{ meanwhile = { do = [{ every = \"0s\", message = \"online\" }] } }",
            "steps[0].meanwhile.do[0].every: must be more than 0",
        ),
        (
            "{ meanwhile = { do = [{ every = \"1s\", message = { to = \"online\", wait = \"any\" } }] } }",
            "steps[0].meanwhile.do[0].message: cannot wait inside \"meanwhile\", where activities follow \
             the clock; remove \"wait\"",
        ),
        (
            "{ room_join = { nick = \"x\" } }",
            "steps[0].room_join: needs \"room\", such as room = \"lobby\", room = 7 or room = \"ring\"",
        ),
        (
            "{ room_join = \"all\" }",
            "steps[0].room_join: must name a room to join, such as \"lobby\", 7 or \"ring\"",
        ),
        ("{ room_join = \"\" }", "steps[0].room_join: is empty; name a room, such as \"lobby\""),
        (
            "{ room_join = \"ring-1\" }",
            "steps[0].room_join: is not a position in a ring; write \"ring\" or such as \"ring+3\"",
        ),
        (
            "{ room_join = { room = \"lobby\", count = 3 } }",
            "steps[0].room_join.count: belongs to room = \"ring\"; remove it",
        ),
        ("\"room_nick\"", "steps[0]: needs \"nick\", such as nick = \"{user}-{unique}\""),
        (
            "{ meanwhile = { do = [{ every = \"1s\", room_nick = \"x\" }] } }",
            "steps[0].meanwhile.do[0].room_nick: cannot wait inside \"meanwhile\"; add wait = \"none\"",
        ),
        (
            "{ meanwhile = { do = [{ every = \"1s\", room_join = \"x\" }] } }",
            "steps[0].meanwhile.do[0].room_join: \"room_join\" is not allowed inside \"meanwhile\"; use message, \
             presence, ping, raw, roster, room_message, room_presence, room_nick, pubsub_publish, pubsub_subscribe or pubsub_unsubscribe",
        ),
        (
            "{ meanwhile = { do = [{ every = \"1s\", think = \"1s\" }] } }",
            "steps[0].meanwhile.do[0].think: \"think\" is not allowed inside \"meanwhile\"; use message, \
             presence, ping, raw, roster, room_message, room_presence, room_nick, pubsub_publish, pubsub_subscribe or pubsub_unsubscribe",
        ),
        (
            "{ transaction = { steps = [\"ping\"] } }",
            "steps[0].transaction: needs \"name\", such as name = \"search\"",
        ),
        ("\"set\"", "steps[0]: needs variables, such as { set = { x = \"{n}\" } }"),
        ("{ set = {} }", "steps[0].set: needs variables, such as set = { x = \"{n}\" }"),
        (
            "{ set = { x = {} } }",
            "steps[0].set.x: must be text, a number, { random_string = 8 }, { random_number = [1, 6] } or { table = \"…\", column = 0 }",
        ),
        (
            "{ set = { x = { random_number = [6, 1] } } }",
            "steps[0].set.x.random_number: must be the smallest and the largest number, such as [1, 6]",
        ),
        (
            "{ set = { x = { table = \"words\" } } }",
            "steps[0].set.x.table: there is no table \"words\"; add it under [tables]",
        ),
        ("{ abort = \"all\" }", "steps[0].abort: \"all\" is none of \"session\", \"run\""),
        ("{ bounce = 0 }", "steps[0].bounce: must be a whole number between 1 and 1000"),
    ];
    for (text, sentence) in cases {
        assert_eq!(step(text), format!("line 2: session[0].{sentence}"), "{text}");
    }
}

#[test]
fn tables() {
    let text = |set: &str| {
        of(&format!("[tables]\nwords = [[\"a\", \"b\"], [\"c\"]]\n{PHASE}[[session]]\nsteps = [{{ set = {{ x = {set} }} }}]"))
            .join("\n")
    };
    assert_eq!(
        text("{ table = \"word\" }"),
        "line 7: session[0].steps[0].set.x.table: there is no table \"word\"; did you mean \"words\"?"
    );
    assert_eq!(
        text("{ table = \"words\", column = 1 }"),
        "line 7: session[0].steps[0].set.x.table: the table \"words\" has 1 columns and none with the number 1, counted from 0"
    );
}

#[test]
fn excessive_nesting_and_concurrency_are_refused() {
    let nine = ["{ every = \"1s\", ping = true }"; 9].join(", ");
    assert_eq!(
        step(&format!("{{ meanwhile = {{ do = [{nine}] }} }}")),
        "line 2: session[0].steps[0].meanwhile.do: has 9 activities; at most 8 are supported"
    );
    let deep = format!("{}\"ping\"{}", "{ repeat = { steps = [".repeat(17), "] } }".repeat(17));
    assert!(
        step(&deep).ends_with("is nested more than 16 deep; use fewer steps inside steps"),
        "{}",
        step(&deep)
    );
}

#[test]
fn the_command_line() {
    let text = format!("{PHASE}{SESSION}");
    let wrong = |arguments: PlanOverrides| errors(&text, &arguments).join("\n");
    assert_eq!(
        wrong(PlanOverrides { connections: Some(0), ..PlanOverrides::default() }),
        "--connections must be at least 1"
    );
    assert_eq!(
        wrong(PlanOverrides { time_scale: 0.0, ..PlanOverrides::default() }),
        "--time-scale must be more than 0; 2 is twice as fast, 0.5 half as fast"
    );
    let with = |change: &dyn Fn(&mut crate::plan::AccountOverrides)| {
        let mut arguments = PlanOverrides::default();
        change(&mut arguments.accounts);
        wrong(arguments)
    };
    assert_eq!(with(&|a| a.count = Some(0)), "--count must be at least 1");
    assert_eq!(
        with(&|a| a.csv = Some("alice\nbob\n".to_owned())),
        "line 1 of the accounts is not a name and a password with a comma between, such as \
         alice,secret\nthe list of accounts is empty; each line must be a name and a password, such as alice,secret"
    );
    assert_eq!(
        with(&|a| a.csv = Some(String::new())),
        "the list of accounts is empty; each line must be a name and a password, such as alice,secret"
    );
}
