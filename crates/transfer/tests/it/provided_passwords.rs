//! Domains in which a provider checks the passwords, so that the store has none.

use std::sync::Arc;

use jid::Jid;
use store::Stores;
use store::conformance::block_on_ready;
use throng_transfer::ejabberd::EjabberdDump;
use throng_transfer::prosody::ProsodyFolder;
use throng_transfer::server_data::ServerDataSource;
use throng_transfer::{ImportOptions, SourceError, SourceRecord, TransferSource};

use super::interrupted::FailingSource;
use super::support::{
    EXTERNAL, TemporaryFolder, accepts, exported_with, options, run, run_with, secrets, stores,
};

const DATA: &str = "<server-data xmlns='urn:xmpp:pie:0'><host jid='capulet.lit'>\
    <user name='juliet' password='r0m30'><vCard xmlns='vcard-temp'><FN>Juliet</FN></vCard></user></host>\
    <host jid='montague.lit'><user name='romeo' password='jul13t'/></host></server-data>";

fn create_external(stores: &Stores, jid: &str) {
    block_on_ready(stores.accounts.create(&Jid::parse(jid).unwrap(), EXTERNAL)).unwrap();
}

#[test]
fn accounts_of_a_provider_are_exported_without_keys() {
    let folder = TemporaryFolder::new();
    let stores = stores();
    run(&mut ServerDataSource::open(&folder.write("data.xml", DATA)).unwrap(), &stores).unwrap();
    create_external(&stores, "nurse@capulet.lit");
    let (text, without_keys) = exported_with(&stores, &[]);
    assert_eq!(without_keys, 1);
    assert!(text.contains("<user name='nurse'>\n</user>"), "{text}");
    assert_eq!(text.matches("mechanism='SCRAM-SHA-256'").count(), 2, "{text}");
    // Keys of a time before the provider are not exported: another server would accept an old password.
    let (text, without_keys) = exported_with(&stores, &["capulet.lit"]);
    assert_eq!(without_keys, 2);
    assert_eq!(text.matches("mechanism='SCRAM-SHA-256'").count(), 1, "{text}");
    assert!(text.contains("<FN>Juliet</FN>"), "{text}");
}

fn provided() -> ImportOptions {
    let mut options = options(false);
    options.domains[0].external_credentials = Some(Arc::from(EXTERNAL));
    options
}

#[test]
fn passwords_of_a_provider_are_not_taken_and_this_is_reported_once() {
    let folder = TemporaryFolder::new();
    let path = folder.write("data.xml", DATA);
    let stores = stores();
    let mut source = ServerDataSource::open(&path).unwrap();
    let (counts, reports) = run_with(&mut source, &stores, &provided()).unwrap();
    assert_eq!((counts.accounts, counts.passwords, counts.vcards), (2, 1, 1));
    assert_eq!(
        reports,
        [
            "capulet.lit: the passwords and keys of 1 accounts: an account provider checks the passwords of this domain"
        ]
    );
    assert_eq!(&*secrets(&stores, "juliet@capulet.lit").credentials, EXTERNAL);
    assert!(accepts(&stores, "romeo@montague.lit", "jul13t"));
}

/// A source with all accounts before all data, such as a database, and here without any account.
struct AccountsFirst(EjabberdDump);

impl TransferSource for AccountsFirst {
    fn next_record(&mut self) -> Result<Option<SourceRecord>, SourceError> {
        self.0.next_record()
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.0.rewind()
    }

    fn has_accounts_first(&self) -> bool {
        true
    }
}

/// Dump, database and folder of servers whose passwords are elsewhere: data of juliet and of nobody else, and no account.
fn data_without_accounts(folder: &TemporaryFolder) -> [Box<dyn TransferSource>; 3] {
    let dump = "{tables,[{roster,[{record_name,roster},{attributes,[usj,us,jid,name,subscription,ask,groups,askmessage,xs]}]},
         {last_activity,[{record_name,last_activity},{attributes,[us,timestamp,status]}]}]}.
        {roster,{},{<<\"juliet\">>,<<\"capulet.lit\">>},{<<\"romeo\">>,<<\"montague.lit\">>,<<>>},<<>>,both,none,[],<<>>,[]}.
        {last_activity,{<<\"juliet\">>,<<\"capulet.lit\">>},1600000000,<<>>}.\n";
    let dump = folder.write("dump.txt", dump);
    folder.write(
        "prosody/capulet%2elit/roster/juliet.dat",
        "return { [\"romeo@montague.lit\"] = { [\"subscription\"] = \"both\"; [\"groups\"] = {} } };",
    );
    folder.write(
        "prosody/capulet%2elit/offline/juliet.list",
        "item({ [\"name\"] = \"message\"; [\"attr\"] = {}; [\"when\"] = 1600000000 });",
    );
    let prosody = ProsodyFolder::open(&folder.path().join("prosody")).unwrap();
    let dump = || EjabberdDump::open(&dump).unwrap();
    [Box::new(dump()), Box::new(AccountsFirst(dump())), Box::new(prosody)]
}

#[test]
fn data_without_an_account_become_one_where_a_provider_has_the_accounts() {
    let folder = TemporaryFolder::new();
    for mut source in data_without_accounts(&folder) {
        let stores = stores();
        let counted =
            run_with(&mut *source, &stores, &ImportOptions { dry_run: true, ..provided() }).unwrap();
        let written = run_with(&mut *source, &stores, &provided()).unwrap();
        assert_eq!(counted, written);
        let (counts, reports) = written;
        assert_eq!((counts.accounts, counts.contacts), (1, 1), "{reports:?}");
        assert_eq!(counts.offline + counts.last_activities, 1, "{reports:?}");
        assert!(reports.is_empty(), "{reports:?}");
        assert_eq!(&*secrets(&stores, "juliet@capulet.lit").credentials, EXTERNAL);
    }
}

#[test]
fn data_without_an_account_are_reported_by_a_dry_run_too() {
    let folder = TemporaryFolder::new();
    for mut source in data_without_accounts(&folder) {
        let stores = stores();
        for dry_run in [true, false] {
            let (counts, reports) = run_with(&mut *source, &stores, &options(dry_run)).unwrap();
            assert_eq!((counts.accounts, counts.contacts, counts.offline), (0, 0, 0), "{dry_run}");
            assert_eq!(reports, ["test: 2 records belong to accounts that do not exist"], "{dry_run}");
        }
    }
}

/// A source whose first pass has no data, as if all owners were taken for accounts that it has seen before.
struct OverlookedData(Box<dyn TransferSource>, u32);

impl TransferSource for OverlookedData {
    fn next_record(&mut self) -> Result<Option<SourceRecord>, SourceError> {
        if self.1 == 1 { Ok(None) } else { self.0.next_record() }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.1 += 1;
        self.0.rewind()
    }
}

#[test]
fn an_owner_that_the_first_pass_overlooks_becomes_an_account() {
    let folder = TemporaryFolder::new();
    for source in data_without_accounts(&folder) {
        let stores = stores();
        let (counts, reports) = run_with(&mut OverlookedData(source, 0), &stores, &provided()).unwrap();
        assert_eq!((counts.accounts, counts.contacts), (1, 1), "{reports:?}");
        assert!(reports.is_empty(), "{reports:?}");
        assert_eq!(&*secrets(&stores, "juliet@capulet.lit").credentials, EXTERNAL);
    }
}

#[test]
fn an_account_that_was_removed_during_an_interruption_is_not_created_again() {
    let folder = TemporaryFolder::new();
    let _ = data_without_accounts(&folder);
    let stores = stores();
    // It stops at the first record of the second pass: a pass has two, and its end.
    let dump = EjabberdDump::open(&folder.path().join("dump.txt")).unwrap();
    let mut source = FailingSource { inner: dump, left: 3 };
    assert!(run_with(&mut source, &stores, &provided()).is_err());
    let juliet = Jid::parse("juliet@capulet.lit").unwrap();
    assert!(block_on_ready(stores.accounts.remove(juliet.as_ref())).unwrap().is_some());
    let (counts, reports) = run_with(&mut source, &stores, &provided()).unwrap();
    assert_eq!((counts.accounts, counts.contacts), (0, 0), "{reports:?}");
    assert_eq!(
        reports,
        [
            "juliet@capulet.lit: the account was removed after this import had created it",
            "test: 2 records belong to accounts that do not exist",
        ]
    );
    assert_eq!(block_on_ready(stores.accounts.get(juliet.as_ref())).unwrap(), None);
}
