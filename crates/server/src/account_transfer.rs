//! `throng import`, `throng export` and `throng backup`: accounts and rooms of other servers, XEP-0227, copies of the database.
//!
//! # Pitfalls
//!
//! An import needs the database alone: a running node would not notice what it writes. An export and a backup read beside
//! the node.

use std::fs::OpenOptions;
use std::io::{BufWriter, IsTerminal};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use base::clock::{Clock, Millis, SystemClock};
use base::{BoxFuture, Secret};
use feature_api::EnabledFeature;
use feature_api::feature::{Feature, FeatureOptions};
use feature_api::service::service_address;
use features::{blocking, offline, private_storage, rfc6121, vcard};
use muc::ImportedRoom;
use pubsub::{ImportedNode, ImportedState, ImportedSubscription};
use sasl::{Credentials, Mechanism, ScramHash};
use store::{AccountKvLimits, Quota, RoomUpdate, Stores};
use store_sql::{DatabaseState, Encryption};
use throng_core::NodeLimits;
use throng_core::account_provider::{external_credentials, is_external};
use transfer::ejabberd::EjabberdDump;
use transfer::prosody::ProsodyFolder;
use transfer::server_data::ServerDataSource;
use transfer::{
    AccountLimits, DerivePasswords, ExportCounts, ExportDomain, ExportOptions, FeatureFormats, ImportCounts,
    ImportDomain, ImportObserver, ImportOptions, IndexedVcard, LocatedPubSubState, NewPubSubNode,
    NewPubSubState, SkippedData, SourcePubSubNode, SourcePubSubState, SourceRoom, TransferSource,
};
use transfer_sql::EjabberdDatabase;
use xml::{NamespaceContext, Ns, Tree};

use crate::accounts::{OfflineDatabase, absolute_path};
use crate::assemble::NodeDatabases;
use crate::cli::{BackupArgs, ExportArgs, ImportArgs, ImportKind};
use crate::config::NodeConfig;
use crate::runtime::{self, TokioSpawner};
use crate::{admin, assemble, output, prompt};

/// Formats of the features whose data are imported and exported.
const FORMATS: FeatureFormats = FeatureFormats {
    private_prefix: private_storage::KEY_PREFIX,
    private_key,
    vcard: indexed_vcard,
    room: room_update,
    pubsub_node: pubsub_node_changes,
    pubsub_state: pubsub_state_changes,
};

/// Version of the password of accounts that an import has created where a provider checks the passwords. Their first login
/// replaces it.
const IMPORTED_VERSION: &[u8] = b"import";

/// Milliseconds between two lines of progress.
const PROGRESS_INTERVAL: u64 = 250;

/// Imports accounts.
pub(crate) fn import(args: ImportArgs) -> Result<()> {
    if args.domain.is_some() && args.kind != ImportKind::EjabberdSql {
        bail!(
            "--domain names the domain of an SQL database of ejabberd; other imports take all domains that are in hosts"
        );
    }
    let config = NodeConfig::load(args.file.config.as_deref())?;
    let mut shown = absolute_path(&args.path);
    let mut source: Box<dyn TransferSource> = match args.kind {
        ImportKind::Prosody => Box::new(ProsodyFolder::open(&args.path)?),
        ImportKind::Ejabberd => Box::new(EjabberdDump::open(&args.path)?),
        ImportKind::EjabberdSql => {
            let url = database_url(&args.path)?;
            shown = check_source_database(&url)?;
            Box::new(EjabberdDatabase::open(&url, args.domain.as_deref())?)
        }
        ImportKind::Xep0227 => Box::new(ServerDataSource::open(&args.path)?),
    };
    runtime::start()?.block_on(run_import(&config, &args, &shown, source.as_mut()))
}

/// The URL of the command line, or the first line of standard input.
fn database_url(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        return prompt::secret("URL of the database");
    }
    path.to_str().map(str::to_owned).context("the URL is not UTF-8")
}

/// The database of a URL in messages, without its password. A misspelt `sslmode` would leave the connection unencrypted, so
/// parameters without an effect are refused.
fn check_source_database(url: &str) -> Result<String> {
    let shown = store_sql::database_name(url).map_err(|error| anyhow!("{error}"))?;
    let (encryption, parameters) = store_sql::encryption(url).map_err(|error| anyhow!("{error}"))?;
    if !matches!(encryption, Encryption::Local | Encryption::Verified) {
        output::error(&format!(
            "warning: connections to {shown} may be unencrypted or intercepted, and keys of accounts pass there; add \
             {parameters} to the URL"
        ));
    }
    Ok(shown)
}

async fn run_import(
    config: &NodeConfig,
    args: &ImportArgs,
    shown: &str,
    source: &mut dyn TransferSource,
) -> Result<()> {
    if !args.dry_run && admin::connect(&config.socket()).await.is_some() {
        bail!(
            "a node is running, {}, and would not notice what is imported; stop it, import, and start it again",
            absolute_path(&config.socket())
        );
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let options = ImportOptions {
        source: format!("{} {shown}", args.kind.name()),
        domains: import_domains(config)?,
        room_services: services(config, &muc::FEATURE)?,
        pubsub_services: services(config, &pubsub::FEATURE)?,
        dry_run: args.dry_run,
        restart: args.restart,
        now: clock.unix_millis(),
        formats: FORMATS,
        derive: password_deriver(config.scram_iterations),
    };
    let opened = if args.dry_run {
        open_for_dry_run(config).await?
    } else {
        Some(OfflineDatabase::open(config, args.create).await?.databases)
    };
    let stores = match &opened {
        Some(databases) => databases.stores(),
        None => store::memory::stores(clock.clone()),
    };
    let mut observer = TerminalProgress::new(clock);
    let result = transfer::import(source, &stores, &options, &mut observer).await;
    observer.clear();
    if let Some(databases) = &opened {
        databases.close().await;
    }
    print_counts(&result?, args.dry_run);
    Ok(())
}

/// The domains with the limits of their modules; those of a module that is off are its defaults.
fn import_domains(config: &NodeConfig) -> Result<Vec<ImportDomain>> {
    let provided = config.provided_domains();
    let import = |name: &String| {
        let enabled =
            features::registry::enable(&config.modules_of(name)).map_err(|error| anyhow!("{error}"))?;
        let external = provided.contains(name).then(|| external_credentials(Some(IMPORTED_VERSION)));
        Ok(ImportDomain {
            name: name.clone(),
            external_credentials: external.map(Arc::from),
            limits: account_limits(&config.limits, &enabled),
        })
    };
    config.hosts.iter().map(import).collect()
}

/// Addresses of the services of a module.
fn services(config: &NodeConfig, feature: &Feature) -> Result<Vec<String>> {
    let mut services = Vec::new();
    for host in &config.hosts {
        let enabled =
            features::registry::enable(&config.modules_of(host)).map_err(|error| anyhow!("{error}"))?;
        let of_feature = enabled.iter().find(|found| found.feature.name == feature.name);
        let address = of_feature.map(|found| service_address(&found.options, host));
        services.extend(address.flatten().map(|jid| jid.domain().to_owned()));
    }
    Ok(services)
}

/// What clients can store.
fn account_limits(node: &NodeLimits, enabled: &[EnabledFeature]) -> AccountLimits {
    let option = |feature: &'static Feature, key: &str| {
        let found = enabled.iter().find(|found| found.feature.name == feature.name);
        let number = match found {
            Some(found) => found.options.int(key),
            None => FeatureOptions::defaults(feature.options).int(key),
        };
        number.unsigned_abs()
    };
    let size = |feature, key| usize::try_from(option(feature, key)).unwrap_or(usize::MAX);
    let count = |feature, key| u32::try_from(option(feature, key)).unwrap_or(u32::MAX);
    let bytes = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    AccountLimits {
        roster_items: node.roster_items,
        roster_bytes: node.roster_bytes.into(),
        name_bytes: size(&rfc6121::roster::FEATURE, "max_name_bytes"),
        group_bytes: size(&rfc6121::roster::FEATURE, "max_group_bytes"),
        groups: size(&rfc6121::roster::FEATURE, "max_groups_per_contact"),
        requests: count(&rfc6121::subscription::FEATURE, "max_pending_requests"),
        private: AccountKvLimits {
            entries: count(&private_storage::FEATURE, "max_entries"),
            bytes: count(&private_storage::FEATURE, "max_bytes"),
        },
        vcard_bytes: size(&vcard::FEATURE, "max_bytes"),
        blocked: count(&blocking::FEATURE, "max_entries"),
        blocked_bytes: bytes(node.roster_bytes),
        offline: Quota {
            messages: count(&offline::FEATURE, "max_messages"),
            bytes: option(&offline::FEATURE, "max_bytes"),
            // A sender of this server is not known by a number yet.
            sender_percent: 100,
        },
        stanza_bytes: bytes(node.stanza_bytes.saturating_add(throng_core::limits::ADDED_BYTES)),
    }
}

/// The states of the databases of data and, if they are separate, of accounts.
async fn inspect(config: &NodeConfig) -> Result<Vec<DatabaseState>> {
    let mut found = Vec::new();
    let data = (&config.storage_url, &config.storage_password_file);
    let auth = config.auth_database.as_ref().map(|auth| (&auth.url, &auth.password_file));
    for (url, password_file) in std::iter::once(data).chain(auth) {
        let state = store_sql::inspect(url, password_file.as_deref()).await;
        found.push(state.map_err(|error| anyhow!("{error}"))?);
    }
    Ok(found)
}

/// A schema older than the program's, and the program's. Opening such a database migrates it.
fn older_schema(states: &[DatabaseState]) -> Option<(u64, u64)> {
    states.iter().find_map(|state| match state {
        DatabaseState::Schema { version, newest } if version < newest => Some((*version, *newest)),
        _ => None,
    })
}

/// The databases of a dry run, which must neither create nor migrate them. `None` if there are none; a dry run needs none.
async fn open_for_dry_run(config: &NodeConfig) -> Result<Option<NodeDatabases>> {
    let states = inspect(config).await?;
    if states.contains(&DatabaseState::Missing) {
        return Ok(None);
    }
    if let Some((version, newest)) = older_schema(&states) {
        bail!(
            "a dry run writes nothing, and the database has schema {version}, which this program must migrate to \
             {newest} before it can read it; start the node once, or use the program that wrote the database"
        );
    }
    let tasks = TokioSpawner::new(tokio::runtime::Handle::current());
    assemble::open_databases(config, &tasks, false).await.map(Some)
}

fn print_counts(counts: &ImportCounts, dry_run: bool) {
    if counts.continued {
        output::line("continued an interrupted import; earlier data are not counted");
    }
    for (count, what) in [
        (counts.accounts, "accounts"),
        (counts.passwords, "passwords in plain text"),
        (counts.keys[0], "sets of keys for SCRAM-SHA-1"),
        (counts.keys[1], "sets of keys for SCRAM-SHA-256"),
        (counts.keys[2], "sets of keys for SCRAM-SHA-512"),
        (counts.contacts, "contacts"),
        (counts.requests, "subscription requests"),
        (counts.private, "private values"),
        (counts.vcards, "vCards"),
        (counts.blocked, "blocked addresses"),
        (counts.offline, "offline messages"),
        (counts.last_activities, "times of the last activity"),
        (counts.rooms, "rooms"),
        (counts.pubsub_nodes, "PubSub nodes"),
        (counts.pubsub_subscriptions, "subscriptions to PubSub nodes"),
        (counts.pubsub_items, "items of PubSub nodes"),
    ] {
        output::line(&format!("{count:>12} {what}"));
    }
    let skipped = counts.skipped;
    output::line(&format!("{skipped:>12} reports of skipped data"));
    if let Some(advice) = mechanism_advice(counts) {
        output::line(&advice);
    }
    if dry_run {
        output::line("this was a dry run; nothing was written");
    }
}

/// What to configure if accounts have keys for some hashes only. Most clients choose the strongest mechanism that is offered,
/// and do not try another one when it fails.
fn mechanism_advice(counts: &ImportCounts) -> Option<String> {
    let most = counts.keys.into_iter().max().unwrap_or(0);
    let usable = |plus: bool| {
        let hashes = ScramHash::ALL.into_iter().zip(counts.keys).filter(|(_, count)| *count == most);
        hashes.map(move |(hash, _)| Mechanism::scram(hash, plus))
    };
    if counts.keys.into_iter().all(|count| count == most) {
        return None;
    }
    let mechanisms = usable(true).chain(usable(false)).chain([Mechanism::Plain]);
    let mechanisms: Vec<String> = mechanisms.map(|mechanism| format!("\"{}\"", mechanism.name())).collect();
    Some(format!(
        "accounts have keys for some mechanisms only, and clients that choose another one cannot log in; set in [auth]: \
         mechanisms = [{}]",
        mechanisms.join(", ")
    ))
}

/// Exports accounts, also beside a running node.
pub(crate) fn export(args: ExportArgs) -> Result<()> {
    let config = NodeConfig::load(args.file.config.as_deref())?;
    let domains = if args.domain.is_empty() { config.hosts.clone() } else { args.domain.clone() };
    if let Some(unknown) = domains.iter().find(|domain| !config.hosts.contains(domain)) {
        bail!("the configuration has no domain {unknown}; its domains are {}", config.hosts.join(", "));
    }
    let provided = config.provided_domains();
    let domains = domains.into_iter().map(|name| ExportDomain { provided: provided.contains(&name), name });
    let domains = domains.collect();
    runtime::start()?.block_on(run_export(&config, domains, &args.path))
}

async fn run_export(config: &NodeConfig, domains: Vec<ExportDomain>, path: &Path) -> Result<()> {
    let states = inspect(config).await?;
    if states.contains(&DatabaseState::Missing) {
        bail!("there is no database; nothing to export");
    }
    // Opening it would migrate it beside a node that does not know the newer schema.
    if older_schema(&states).is_some() && admin::connect(&config.socket()).await.is_some() {
        bail!("the running node is of an older version; export with the program of its version");
    }
    let tasks = TokioSpawner::new(tokio::runtime::Handle::current());
    let databases = assemble::open_databases(config, &tasks, false).await?;
    let result = write_export(&databases.stores(), domains, path).await;
    databases.close().await;
    let counts = result?;
    output::error(&format!("exported {} accounts", counts.accounts));
    if counts.without_keys > 0 {
        let count = counts.without_keys;
        output::error(&format!(
            "{count} of them without keys, because an account provider checks their passwords"
        ));
    }
    Ok(())
}

async fn write_export(stores: &Stores, domains: Vec<ExportDomain>, path: &Path) -> Result<ExportCounts> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let options = ExportOptions {
        domains,
        private_prefix: FORMATS.private_prefix,
        is_external,
        now: clock.unix_millis(),
    };
    let mut terminal = TerminalProgress::new(clock);
    let mut progress = |counts: &ExportCounts| {
        terminal.show(|| format!("{} of {} accounts", counts.accounts, counts.total));
    };
    let result = if path == Path::new("-") {
        let mut out = BufWriter::new(std::io::stdout().lock());
        transfer::export(stores, &options, &mut out, &mut progress).await
    } else {
        let partial = with_suffix(path, ".partial");
        // A link whose target is missing is there, too.
        if path.symlink_metadata().is_ok() {
            bail!("{} exists; name a file that does not", path.display());
        }
        // It contains keys of all accounts.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial);
        let file = file.with_context(|| format!("cannot create {}", partial.display()))?;
        let mut out = BufWriter::new(file);
        let result = transfer::export(stores, &options, &mut out, &mut progress).await;
        let synced = out.into_inner().map_err(|error| error.into_error()).and_then(|file| file.sync_all());
        if result.is_ok() && synced.is_ok() {
            std::fs::rename(&partial, path).with_context(|| format!("cannot create {}", path.display()))?;
        } else {
            let _ = std::fs::remove_file(&partial);
        }
        synced.with_context(|| format!("cannot write {}", partial.display()))?;
        result
    };
    terminal.clear();
    Ok(result?)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Copies the database, also beside a running node.
pub(crate) fn backup(args: BackupArgs) -> Result<()> {
    let config = NodeConfig::load(args.file.config.as_deref())?;
    let mut copies = vec![(&config.storage_url, args.path.clone())];
    // Accounts last: one that was created meanwhile is completed by its next login, and its data would be refused without it.
    copies.extend(config.auth_database.iter().map(|auth| (&auth.url, with_suffix(&args.path, ".auth"))));
    let is_file = |url: &str| store_sql::database_path(url).map(|path| path.is_some());
    let runtime = runtime::start()?;
    for (url, path) in &copies {
        if copies.len() > 1 && !is_file(url).map_err(|error| anyhow!("{error}"))? {
            let shown = store_sql::database_name(url).map_err(|error| anyhow!("{error}"))?;
            output::error(&format!("{shown} was not copied; use its own tools, see docs/backup.md"));
            continue;
        }
        let bytes = runtime.block_on(store_sql::backup(url, path)).map_err(|error| anyhow!("{error}"))?;
        output::line(&format!("wrote {bytes} bytes to {}", absolute_path(path)));
    }
    Ok(())
}

/// Key of a private value; the error is a reason for people.
fn private_key(value: &[u8]) -> Result<String, String> {
    let scope = NamespaceContext::empty();
    let tree = Tree::parse(value, &scope, &throng_core::limits::FRAGMENT_LIMITS);
    let tree = tree.map_err(|error| error.to_string())?;
    private_storage::storage_key(tree.root()).map_err(|error| {
        error.text.map_or_else(|| "it cannot be stored".to_owned(), |text| text.into_owned())
    })
}

/// A room as the service stores it; the error is a reason for people.
fn room_update(room: &SourceRoom) -> Result<RoomUpdate, String> {
    let affiliations = room.affiliations.iter();
    let imported = ImportedRoom {
        jid: &room.jid,
        config: room.config.iter().map(|(field, values)| (*field, values.as_slice())).collect(),
        affiliations: affiliations.map(|it| (&it.user, &*it.affiliation, &*it.nick, &*it.reason)).collect(),
        subject: &room.subject,
        subject_author: &room.subject_author,
        subject_at: room.subject_at,
        vcard: room.vcard.as_deref(),
    };
    imported.update()
}

/// The changes that create a PubSub node, and fields that have no place; the error is a reason for people.
fn pubsub_node_changes(node: &SourcePubSubNode, now: u64) -> Result<NewPubSubNode, String> {
    let SourcePubSubNode { address, owners, config } = node;
    let (service, name) = (&address.service, address.name.as_str());
    ImportedNode { service, name, created: now, owners, config }.changes()
}

/// The changes for what one entity has at a node; the error is a reason for people.
fn pubsub_state_changes(located: LocatedPubSubState<'_>) -> Result<NewPubSubState, String> {
    let LocatedPubSubState { state, is_account } = located;
    let subscriptions = state.subscriptions.iter().map(|one| ImportedSubscription {
        subid: &one.subid,
        is_pending: one.is_pending,
        options: &one.options,
    });
    let subscriptions: Vec<ImportedSubscription<'_>> = subscriptions.collect();
    let SourcePubSubState { jid, affiliation, .. } = state;
    let new = ImportedState { jid, is_account, affiliation, subscriptions: &subscriptions }.changes()?;
    Ok(NewPubSubState { changes: new.changes, subscriptions: new.subscriptions, dropped: new.dropped })
}

/// A vCard with its searchable texts; `None` if it is empty, which is as none.
fn indexed_vcard(card: &[u8]) -> Result<Option<IndexedVcard>, String> {
    let scope = NamespaceContext::empty();
    let tree = Tree::parse(card, &scope, &throng_core::limits::FRAGMENT_LIMITS);
    let tree = tree.map_err(|error| error.to_string())?;
    if !tree.root().is("vCard", Ns::VCardTemp) {
        return Err("it is not a vCard".to_owned());
    }
    if tree.root().child_elements().next().is_none() {
        return Ok(None);
    }
    let (searchable, photo) = vcard::index(tree.root());
    Ok(Some((card.to_vec(), searchable, photo)))
}

/// Derives passwords on all cores.
fn password_deriver(iterations: u32) -> DerivePasswords {
    Box::new(move |passwords: Vec<Secret>| -> BoxFuture<'static, _> {
        Box::pin(derive_all(passwords, iterations))
    })
}

async fn derive_all(passwords: Vec<Secret>, iterations: u32) -> Vec<Result<Vec<u8>, String>> {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let size = passwords.len().div_ceil(cores).max(1);
    let mut tasks = Vec::new();
    for part in passwords.chunks(size) {
        let part = part.to_vec();
        let work = move || part.iter().map(|password| derive(password, iterations)).collect::<Vec<_>>();
        tasks.push(tokio::task::spawn_blocking(work));
    }
    let mut derived = Vec::with_capacity(passwords.len());
    for (task, part) in tasks.into_iter().zip(passwords.chunks(size)) {
        match task.await {
            Ok(mut keys) => derived.append(&mut keys),
            Err(_) => {
                let failed = |_: &Secret| Err("the password could not be derived".to_owned());
                derived.extend(part.iter().map(failed));
            }
        }
    }
    derived
}

fn derive(password: &Secret, iterations: u32) -> Result<Vec<u8>, String> {
    let text = password.expose_str().map_err(|_| "it is not valid text".to_owned())?;
    let salt = base::id::random_bytes::<{ sasl::SALT_BYTES }>();
    Credentials::derive(text, iterations, &salt).map(|keys| keys.encode()).map_err(|error| error.to_string())
}

/// A line of progress on a terminal, and the reports above it.
struct TerminalProgress {
    clock: Arc<dyn Clock>,
    terminal: bool,
    shown_at: Option<Millis>,
}

impl TerminalProgress {
    fn new(clock: Arc<dyn Clock>) -> TerminalProgress {
        TerminalProgress { clock, terminal: std::io::stderr().is_terminal(), shown_at: None }
    }

    /// Shows a line, but not too often.
    fn show(&mut self, line: impl FnOnce() -> String) {
        let now = self.clock.now();
        if self.terminal && self.shown_at.is_none_or(|before| now.since(before) >= PROGRESS_INTERVAL) {
            self.shown_at = Some(now);
            // Carriage return, and erasure to the end of the line.
            output::question(&format!("\r{}\x1b[K", line()));
        }
    }

    fn clear(&mut self) {
        if self.shown_at.take().is_some() {
            output::question("\r\x1b[K");
        }
    }
}

/// A text of the source without control characters: it must neither begin another line nor control the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

impl ImportObserver for TerminalProgress {
    fn skipped(&mut self, skipped: &SkippedData) {
        self.clear();
        output::error(&one_line(&format!("skipped: {}: {}", skipped.place, skipped.reason)));
    }

    fn progress(&mut self, counts: &ImportCounts, pass: u8, position: Option<(u64, u64)>) {
        let part = position.filter(|(_, total)| *total > 0).map(|(done, total)| {
            let percent = u128::from(done) * 100 / u128::from(total);
            format!(", {percent} %")
        });
        let part = part.unwrap_or_default();
        let (accounts, contacts, offline) = (counts.accounts, counts.contacts, counts.offline);
        self.show(|| {
            format!(
                "pass {pass} of 2{part}: {accounts} accounts, {contacts} contacts, {offline} offline messages"
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_values_and_vcards_are_stored_as_their_features_do() {
        let key = private_key(b"<storage xmlns='storage:bookmarks'/>").unwrap();
        assert_eq!(key, "jabber:iq:private storage storage:bookmarks");
        assert!(key.starts_with(FORMATS.private_prefix));
        assert!(private_key(b"<query xmlns='jabber:iq:roster'/>").unwrap_err().contains("namespace"));
        assert!(private_key(b"<a").is_err());
        let (card, texts, photo) =
            indexed_vcard(b"<vCard xmlns='vcard-temp'><FN>Juliet</FN></vCard>").unwrap().unwrap();
        assert_eq!((texts.name.as_str(), photo), ("Juliet", None));
        assert!(card.starts_with(b"<vCard "));
        assert_eq!(indexed_vcard(b"<vCard xmlns='vcard-temp'/>").unwrap(), None);
        assert!(indexed_vcard(b"<vCard xmlns='urn:x'><FN>Juliet</FN></vCard>").is_err());
    }

    #[test]
    fn mechanisms_without_keys_must_not_be_offered() {
        let advice =
            |keys, passwords| mechanism_advice(&ImportCounts { keys, passwords, ..ImportCounts::default() });
        assert_eq!(advice([0, 0, 0], 5), None);
        assert_eq!(advice([2, 2, 2], 5), None);
        let text = advice([7, 0, 0], 5).unwrap();
        assert!(text.ends_with("mechanisms = [\"SCRAM-SHA-1-PLUS\", \"SCRAM-SHA-1\", \"PLAIN\"]"), "{text}");
        assert!(advice([7, 7, 6], 0).unwrap().contains("\"SCRAM-SHA-256\", \"PLAIN\""));
    }

    #[test]
    fn a_password_of_a_url_is_not_shown_and_parameters_have_an_effect() {
        let shown = check_source_database("postgres://user:secret@host/db").unwrap();
        assert_eq!(shown, "the PostgreSQL database db at host:5432");
        for url in [
            "postgres://user:secret@host/db?ssl_mode=require",
            "postgre://user:secret@host/db",
            "postgres:///db?user=u&password=secret",
            "postgres://u@h/db?password=secret&sslmode=disable",
            "postgres:///db?user=u&password=p@secret",
            "postgres://u:secret?x@h/db",
        ] {
            let shown = check_source_database(url).unwrap_or_else(|error| error.to_string());
            assert!(!shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn a_report_is_one_line_without_control_characters() {
        assert_eq!(one_line("romeo"), "romeo");
        assert_eq!(
            one_line("a\nskipped: b\x1b[2J\u{9b}2J\r"),
            "a\u{fffd}skipped: b\u{fffd}[2J\u{fffd}2J\u{fffd}"
        );
    }

    #[test]
    fn passwords_are_derived_in_their_order() {
        let runtime = runtime::start().unwrap();
        let passwords: Vec<Secret> = (0..7).map(|number| Secret::from(format!("p{number}"))).collect();
        let derived = runtime.block_on(derive_all(passwords, 1));
        assert_eq!(derived.len(), 7);
        for (number, keys) in derived.into_iter().enumerate() {
            assert!(Credentials::decode(&keys.unwrap()).unwrap().verify_password(&format!("p{number}")));
        }
        let refused = runtime.block_on(derive_all(vec![Secret::from("")], 1));
        assert!(refused[0].as_ref().unwrap_err().contains("empty"));
    }
}
