//! A store in memory, folders that are removed, and formats of features as the program has them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{ManualClock, Secret};
use jid::Jid;
use sasl::Credentials;
use store::conformance::block_on_ready;
use store::{
    AccountSecrets, PubSubChange, PubSubNodeRecord, RoomRecord, RoomUpdate, SearchableProfile,
    SpecialSubscription, Stores,
};
use throng_transfer::{
    AccountLimits, ExportCounts, ExportDomain, ExportOptions, FeatureFormats, ImportCounts, ImportDomain,
    ImportError, ImportObserver, ImportOptions, LocatedPubSubState, NewPubSubState, SkippedData,
    TransferSource, export, import,
};

/// The time of all tests, in milliseconds since 1970.
pub(crate) const NOW: u64 = 1_700_000_000_000;

pub(crate) const PREFIX: &str = "private ";

/// A store at [`NOW`].
pub(crate) fn stores() -> Stores {
    let clock = ManualClock::default();
    clock.set_unix_millis(NOW);
    store::memory::stores(Arc::new(clock))
}

/// A folder that is removed with the value.
pub(crate) struct TemporaryFolder(pub(crate) PathBuf);

impl TemporaryFolder {
    pub(crate) fn new() -> TemporaryFolder {
        let path = std::env::temp_dir().join(format!("throng-transfer-{}", base::id::random_id()));
        std::fs::create_dir(&path).unwrap();
        TemporaryFolder(path)
    }

    /// Writes a file and creates its folders.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Observer that keeps the reports.
#[derive(Default)]
pub(crate) struct Reports(pub(crate) Vec<String>);

impl ImportObserver for Reports {
    fn skipped(&mut self, skipped: &SkippedData) {
        self.0.push(format!("{}: {}", skipped.place, skipped.reason));
    }

    fn progress(&mut self, _: &ImportCounts, _: u8, _: Option<(u64, u64)>) {}
}

pub(crate) fn domain(name: &str) -> ImportDomain {
    ImportDomain { name: name.to_owned(), external_credentials: None, limits: AccountLimits::UNLIMITED }
}

pub(crate) fn options(dry_run: bool) -> ImportOptions {
    ImportOptions {
        source: "test".to_owned(),
        domains: vec![domain("capulet.lit"), domain("montague.lit")],
        dry_run,
        restart: false,
        now: NOW,
        pubsub_services: vec!["pubsub.capulet.lit".to_owned()],
        room_services: vec!["conference.capulet.lit".to_owned(), "rooms.capulet.lit".to_owned()],
        formats: FeatureFormats {
            private_prefix: PREFIX,
            private_key: |value| {
                let text = String::from_utf8_lossy(value);
                Ok(format!("{PREFIX}{}", text.split('>').next().unwrap_or_default()))
            },
            vcard: |card| Ok(Some((card.to_vec(), SearchableProfile::default(), None))),
            room: |room| {
                let title = room.config.iter().find(|(field, _)| *field == "muc#roomconfig_roomname");
                let title = title.and_then(|(_, values)| values.first().cloned()).unwrap_or_default();
                let state = format!("{room:?}").into_bytes();
                let record = RoomRecord { creator: room.jid.clone(), title, is_public: true, state };
                Ok(RoomUpdate { record: Some(record), ..RoomUpdate::default() })
            },
            pubsub_node: |node, created| {
                let creator = node.owners.first().unwrap_or(&node.address.service).clone();
                let config = format!("{:?}", node.config).into_bytes();
                let title = String::new();
                let record = PubSubNodeRecord { creator, created, title, is_listed: true, config };
                Ok((vec![PubSubChange::Put(record)], Vec::new()))
            },
            pubsub_state: |LocatedPubSubState { state, is_account }| {
                let affiliate =
                    PubSubChange::Affiliate(state.jid.clone(), u8::try_from(state.affiliation.len()).ok());
                let mut changes = vec![affiliate];
                changes.retain(|_| !state.affiliation.is_empty());
                for one in &state.subscriptions {
                    changes.push(match is_account {
                        true => PubSubChange::Subscribe(state.jid.clone()),
                        false => PubSubChange::PutSpecial(SpecialSubscription {
                            jid: state.jid.clone(),
                            subid: one.subid.as_str().into(),
                            state: format!("{:?}", one.options).into_bytes(),
                        }),
                    });
                }
                let subscriptions = state.subscriptions.len();
                Ok(NewPubSubState { changes, subscriptions, dropped: Vec::new() })
            },
        },
        derive: Box::new(|passwords: Vec<Secret>| {
            let derive = |password: Secret| {
                let keys = Credentials::derive(password.expose_str().unwrap(), 1, b"salt");
                keys.map(|keys| keys.encode()).map_err(|error| error.to_string())
            };
            let keys: Vec<Result<Vec<u8>, String>> = passwords.into_iter().map(derive).collect();
            Box::pin(std::future::ready(keys))
        }),
    }
}

/// Imports with default options; returns the reports, too.
pub(crate) fn run(
    source: &mut dyn TransferSource,
    stores: &Stores,
) -> Result<(ImportCounts, Vec<String>), ImportError> {
    run_with(source, stores, &options(false))
}

pub(crate) fn run_with(
    source: &mut dyn TransferSource,
    stores: &Stores,
    options: &ImportOptions,
) -> Result<(ImportCounts, Vec<String>), ImportError> {
    let mut reports = Reports::default();
    let counts = block_on_ready(import(source, stores, options, &mut reports))?;
    Ok((counts, reports.0))
}

/// Credentials of accounts whose passwords a provider checks; they begin with a zero.
pub(crate) const EXTERNAL: &[u8] = b"\0import";

pub(crate) fn exported(stores: &Stores) -> String {
    exported_with(stores, &[]).0
}

/// An export in which a provider checks the passwords of these domains, and the number of accounts without keys.
pub(crate) fn exported_with(stores: &Stores, provided: &[&str]) -> (String, u64) {
    let mut out = Vec::new();
    let domains = options(false)
        .domains
        .into_iter()
        .map(|domain| ExportDomain { provided: provided.contains(&domain.name.as_str()), name: domain.name });
    let options = ExportOptions {
        domains: domains.collect(),
        private_prefix: PREFIX,
        is_external: |credentials| credentials.first() == Some(&0),
        now: NOW,
    };
    let mut last = ExportCounts::default();
    let counts = block_on_ready(export(stores, &options, &mut out, &mut |counts| last = *counts)).unwrap();
    assert_eq!((counts.accounts, last.accounts), (counts.total, counts.total));
    (String::from_utf8(out).unwrap(), counts.without_keys)
}

pub(crate) fn secrets(stores: &Stores, jid: &str) -> AccountSecrets {
    let jid = Jid::parse(jid).unwrap();
    block_on_ready(stores.logins.secrets(jid.as_ref())).unwrap().unwrap()
}

/// Whether the account accepts this password.
pub(crate) fn accepts(stores: &Stores, jid: &str, password: &str) -> bool {
    Credentials::decode(&secrets(stores, jid).credentials).unwrap().verify_password(password)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
