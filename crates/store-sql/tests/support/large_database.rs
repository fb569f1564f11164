//! Statements that fill a new database with accounts of `example.org`, without the program: plans and costs are compared on
//! databases of different sizes.
//!
//! The accounts are `user1`, `user2` and so on; the number of an address is one more than that of its account. Each has two
//! contacts; every tenth account has a stored message, a last logout, a value, a vCard and a profile.
#![allow(unreachable_pub, reason = "shared by a test program and the tests of the crate")]

use test_databases::ServerKind;

/// The statements, each for a connection of the user who owns the tables.
pub fn fill(kind: ServerKind, accounts: u64) -> Vec<String> {
    let few = accounts / 10;
    // Numbers from 1 on, as `n`.
    let numbers = |count: u64| match kind {
        ServerKind::Postgres => format!("generate_series(1, {count}) AS numbers(n)"),
        ServerKind::MariaDb | ServerKind::MySql => {
            format!("(SELECT seq AS n FROM seq_1_to_{count}) AS numbers")
        }
    };
    let bytes = |count: u64| match kind {
        ServerKind::Postgres => format!("decode(repeat('61', {count}), 'hex')"),
        ServerKind::MariaDb | ServerKind::MySql => format!("repeat('a', {count})"),
    };
    let name = |prefix: &str, suffix: &str| match kind {
        ServerKind::Postgres => format!("'{prefix}' || n || '{suffix}'"),
        ServerKind::MariaDb | ServerKind::MySql => format!("concat('{prefix}', n, '{suffix}')"),
    };
    let (short, long) = (bytes(1), bytes(300));
    let (all, some) = (numbers(accounts), numbers(few));
    let (jid, user) = (name("user", "@example.org"), name("user", ""));
    let keys: Vec<String> =
        ["name", "first", "last", "nick", "mail"].map(|key| name(key, "")).into_iter().collect();
    let texts = [short.as_str(); 5].join(", ");
    let mut statements = vec![
        "INSERT INTO address (id, jid) VALUES (1, 'example.org')".to_owned(),
        format!("INSERT INTO address (id, jid) SELECT n + 1, {jid} FROM {all}"),
        format!(
            "INSERT INTO account (id, domain, created_at, disabled, roster_version, credentials, revision) \
             SELECT n + 1, 1, 0, CASE WHEN n % 1000 = 0 THEN 1 ELSE 0 END, 0, {long}, 2305843009213693952 \
             FROM {all}"
        ),
        format!("INSERT INTO username (domain, name, id) SELECT 1, {user}, n + 1 FROM {all}"),
        format!(
            "INSERT INTO roster (owner, contact, subscription) SELECT n + 1, (n + d) % {accounts} + 2, 35 \
             FROM {all}, (SELECT 1 AS d UNION ALL SELECT 2) AS distances"
        ),
        format!("INSERT INTO inbox (owner, last_seq, waiting, bytes) SELECT n + 1, 1, 1, 300 FROM {some}"),
        format!(
            "INSERT INTO offline (owner, seq, stored_at, expires, sender, stanza) \
             SELECT n + 1, 1, 1, CASE WHEN n % 10 = 0 THEN 9000000000000 END, 0, {long} FROM {some}"
        ),
        format!("INSERT INTO last_seen (owner, at) SELECT n + 1, 1 FROM {some}"),
        format!("INSERT INTO private (owner, name, value) SELECT n + 1, {short}, {long} FROM {some}"),
        format!("INSERT INTO vcard (owner, card) SELECT n + 1, {long} FROM {some}"),
        format!(
            "INSERT INTO profile (owner, domain, username, name_key, first_key, last_key, nick_key, email_key, \
             full_name, first_name, last_name, nick, email) \
             SELECT n + 1, 1, {user}, {}, {texts} FROM {some}",
            keys.join(", ")
        ),
    ];
    match kind {
        ServerKind::Postgres => {
            let next = accounts + 1;
            statements.push(format!("SELECT setval(pg_get_serial_sequence('address', 'id'), {next})"));
            statements.push("ANALYZE".to_owned());
        }
        // Its counter follows the largest number.
        ServerKind::MariaDb | ServerKind::MySql => statements.push(
            "ANALYZE TABLE address, account, username, roster, inbox, offline, last_seen, private, vcard, profile"
                .to_owned(),
        ),
    }
    statements
}
