//! Domains in which a provider checks the passwords, so that the store has none.

use std::sync::Arc;

use jid::Jid;
use store::Stores;
use store::conformance::block_on_ready;
use throng_transfer::ImportOptions;
use throng_transfer::server_data::ServerDataSource;

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
