//! An acknowledged write survives `SIGKILL`.
//!
//! The test starts this very program again as a child, which opens the database and writes until it is killed; it
//! prints a line for each acknowledged write. Power cuts are not tested: `synchronous=FULL` guarantees that an answer
//! waits for `fsync`.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use store::conformance::{jid, join_all};
use store::{AppendOutcome, OfflineMessage, Page, RosterItem, RosterUpdate, Subscription};
use support::{TempDir, open, runtime};
use throng_store_sql::DatabaseOptions;

const FILE: &str = "THRONG_STORE_TEST_FILE";

/// The child process; does nothing in an ordinary run.
#[test]
fn child() {
    let Ok(file) = std::env::var(FILE) else { return };
    runtime().block_on(async {
        let database = open(Path::new(&file), &DatabaseOptions::default()).await.unwrap();
        let stores = database.stores();
        let ann = stores.accounts.create(&jid("ann@example.org"), b"x").await.unwrap();
        for round in 0u32.. {
            let contact = jid(&format!("c{round}@example.org"));
            let mut item = RosterItem::new(contact.clone());
            item.subscription = Subscription::IN_ROSTER;
            let changing = stores.roster.update(ann, &contact, Box::new(|_| RosterUpdate::Put(item)));
            // Several at once, so that they share a transaction.
            let appends = (0..4).map(|n| {
                let stanza = format!("{round}.{n}").into_bytes();
                let message = OfflineMessage { owner: ann, sender: 0, stored_at: 1, expires: None, stanza };
                stores.offline.append(vec![message], store::Quota::messages_only(u32::MAX))
            });
            let answers = join_all(appends.collect());
            changing.await.unwrap();
            for (n, answer) in answers.await.into_iter().enumerate() {
                assert!(matches!(answer.unwrap()[0], AppendOutcome::Stored { .. }));
                println!("acknowledged {round}.{n}");
            }
            std::io::stdout().flush().unwrap();
        }
    });
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let directory = TempDir::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(FILE, directory.file())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = Vec::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.by_ref() {
        // The harness prints the test's name before the first line.
        if let Some((_, text)) = line.unwrap().split_once("acknowledged ") {
            acknowledged.push(text.to_owned());
        }
        if acknowledged.len() == 60 {
            break;
        }
    }
    child.kill().unwrap();
    // Everything it managed to print before it died was acknowledged, too.
    acknowledged.extend(
        lines.map_while(Result::ok).filter_map(|line| Some(line.split_once("acknowledged ")?.1.to_owned())),
    );
    let status = child.wait().unwrap();
    assert!(!status.success(), "it was killed, not finished");
    assert!(acknowledged.len() >= 60);

    runtime().block_on(async {
        let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
        let stores = database.stores();
        let secrets = stores.logins.secrets(jid("ann@example.org").as_ref()).await.unwrap().unwrap();
        let ann = secrets.id;
        let login = stores.logins.login(ann, secrets.revision).await.unwrap().unwrap();
        let waiting = stores.offline.fetch(ann, Page::first(1_000_000), 0).await.unwrap().items;
        assert_eq!(waiting.len(), login.offline_messages as usize, "the counter agrees with the rows");
        let stored: std::collections::HashSet<String> =
            waiting.into_iter().map(|waiting| String::from_utf8(waiting.stanza).unwrap()).collect();
        for text in &acknowledged {
            assert!(stored.contains(text), "{text} was acknowledged and is gone");
        }
        let rounds = acknowledged.len() / 4;
        assert!(login.roster.len() >= rounds, "{} >= {rounds}", login.roster.len());
        database.close().await;
    });
}
