//! Memory of an import: some bytes for each account, as docs/moving.md states, and nothing for the data of an account.
//!
//! The memory store of a test keeps what is imported, so the peak counts from what is allocated after the import.

use std::fmt::Write as _;
use std::fs::{File, create_dir_all};
use std::future::ready;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use counting_allocator::{live_bytes, peak_bytes, reset_peak};
use sasl::Credentials;
use throng_transfer::TransferSource;
use throng_transfer::ejabberd::EjabberdDump;
use throng_transfer::prosody::ProsodyFolder;
use throng_transfer::server_data::ServerDataSource;

use super::support::{TemporaryFolder, options, run_with, stores};

/// Largest memory of an account in a dry run and in an import, in bytes: the name of its file, its address, and what is
/// remembered to find it again. Most after a table has doubled, as with 8 000.
const BYTES_PER_ACCOUNT: [isize; 2] = [450, 250];

/// Bytes of a message, of which each account has one.
const MESSAGE_BYTES: usize = 500;

/// Bytes above those that remain. `open` is part of the import.
fn peak(
    open: &dyn Fn() -> Box<dyn TransferSource>,
    accounts: isize,
    messages: isize,
    dry_run: bool,
) -> isize {
    let stores = stores();
    let mut options = options(dry_run);
    // The same keys for all, since their derivation would take most of the time.
    let keys = Credentials::derive("p", 1, b"salt").unwrap().encode();
    options.derive = Box::new(move |passwords| Box::pin(ready(vec![Ok(keys.clone()); passwords.len()])));
    reset_peak();
    let mut source = open();
    let (counts, reports) = run_with(&mut *source, &stores, &options).unwrap();
    assert_eq!(reports, Vec::<String>::new());
    assert_eq!(
        (counts.accounts, counts.offline),
        (accounts.unsigned_abs() as u64, messages.unsigned_abs() as u64)
    );
    drop(source);
    peak_bytes() - live_bytes()
}

type MakeSource = fn(&TemporaryFolder, isize, isize) -> Box<dyn Fn() -> Box<dyn TransferSource>>;

fn body() -> String {
    "x".repeat(MESSAGE_BYTES)
}

fn server_data(
    folder: &TemporaryFolder,
    accounts: isize,
    messages: isize,
) -> Box<dyn Fn() -> Box<dyn TransferSource>> {
    let path = folder.path().join("data.xml");
    let mut out = BufWriter::new(File::create(&path).unwrap());
    let body = body();
    write!(out, "<server-data xmlns='urn:xmpp:pie:0'><host jid='capulet.lit'>").unwrap();
    for user in 0..accounts {
        write!(out, "<user name='user-{user}' password='p'><offline-messages>").unwrap();
        for _ in 0..messages {
            write!(out, "<message xmlns='jabber:client' from='x@montague.lit'><body>{body}</body></message>")
                .unwrap();
        }
        write!(out, "</offline-messages></user>").unwrap();
    }
    write!(out, "</host></server-data>").unwrap();
    out.flush().unwrap();
    Box::new(move || Box::new(ServerDataSource::open(&path).unwrap()))
}

fn dump(
    folder: &TemporaryFolder,
    accounts: isize,
    messages: isize,
) -> Box<dyn Fn() -> Box<dyn TransferSource>> {
    let path = folder.path().join("dump.txt");
    let mut out = BufWriter::new(File::create(&path).unwrap());
    let body = body();
    let tables = "{tables,[{passwd,[{record_name,passwd},{attributes,[us,password]}]},
        {offline_msg,[{record_name,offline_msg},{attributes,[us,timestamp,expire,from,to,packet]}]}]}.";
    writeln!(out, "{tables}").unwrap();
    for user in 0..accounts {
        writeln!(out, "{{passwd,{{<<\"user-{user}\">>,<<\"capulet.lit\">>}},<<\"p\">>}}.").unwrap();
        for _ in 0..messages {
            writeln!(
                out,
                "{{offline_msg,{{<<\"user-{user}\">>,<<\"capulet.lit\">>}},{{1600,0,0}},never,{{jid}},{{jid}},
                 {{xmlel,<<\"message\">>,[],[{{xmlel,<<\"body\">>,[],[{{xmlcdata,<<\"{body}\">>}}]}}]}}}}."
            )
            .unwrap();
        }
    }
    out.flush().unwrap();
    Box::new(move || Box::new(EjabberdDump::open(&path).unwrap()))
}

fn prosody(
    folder: &TemporaryFolder,
    accounts: isize,
    messages: isize,
) -> Box<dyn Fn() -> Box<dyn TransferSource>> {
    let root = folder.path().join("data");
    let host = root.join("capulet%2elit");
    for store in ["accounts", "offline"] {
        create_dir_all(host.join(store)).unwrap();
    }
    let body = body();
    let mut list = String::new();
    for _ in 0..messages {
        writeln!(
            list,
            "item({{ [\"name\"] = \"message\"; [\"attr\"] = {{}}; {{ [\"name\"] = \"body\"; [\"attr\"] = {{}}; \"{body}\" }} }});"
        )
        .unwrap();
    }
    let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
    for user in 0..accounts {
        write(&host.join(format!("accounts/user%2d{user}.dat")), "return { [\"password\"] = \"p\" };");
        write(&host.join(format!("offline/user%2d{user}.list")), &list);
    }
    Box::new(move || Box::new(ProsodyFolder::open(&root).unwrap()))
}

/// Compares imports of these two numbers of accounts.
fn check_accounts(make: MakeSource, accounts: [isize; 2]) {
    let peaks = accounts.map(|accounts| {
        let folder = TemporaryFolder::new();
        let open = make(&folder, accounts, 1);
        [true, false].map(|dry_run| peak(&open, accounts, accounts, dry_run))
    });
    let [small, large] = peaks;
    for ((small, large), allowed) in small.into_iter().zip(large).zip(BYTES_PER_ACCOUNT) {
        let bytes = (large - small) / (accounts[1] - accounts[0]);
        assert!(bytes <= allowed, "{bytes} bytes for an account, from {small} and {large}");
    }
}

fn check_messages(make: MakeSource) {
    let [small, large] = [3_000, 9_000].map(|messages| {
        let folder = TemporaryFolder::new();
        peak(&make(&folder, 1, messages), 1, messages, true)
    });
    // A batch has less than a megabyte.
    assert!(large - small < 10_000, "{small} bytes and {large}");
}

#[test]
fn an_import_of_xep_0227_needs_some_bytes_for_an_account_and_none_for_its_data() {
    check_accounts(server_data, [2_000, 20_000]);
    check_messages(server_data);
}

#[test]
fn an_import_of_ejabberds_dump_needs_some_bytes_for_an_account_and_none_for_its_data() {
    check_accounts(dump, [2_000, 20_000]);
    check_messages(dump);
}

#[test]
fn an_import_of_prosodys_folder_needs_some_bytes_for_an_account_and_none_for_its_data() {
    // Of which each has two files.
    check_accounts(prosody, [1_000, 8_000]);
    check_messages(prosody);
}
