//! `throng check`: everything about a configuration that can be validated without serving.
//!
//! It writes nothing here: no data folder, no database, no certificate. It reports what a start would create instead. In NATS it makes
//! a bucket of its own, because only a write shows the permissions.
//!
//! Not implemented: a check whether a name resolves to this machine.
//!
//! # Pitfalls
//!
//! SQLite writes files beside a database that is only read; see `store_sql::inspect`.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use base::clock::{Clock, SystemClock};
use cluster_nats::ClusterKey;
use feature_api::feature_state::FeatureState;
use net::{ConnectionLimiter, Listener};
use rustix::fs::{Access, access};
use store_sql::DatabaseState;

use crate::account_providers::AccountProviders;
use crate::accounts::absolute_path;
use crate::config::NodeConfig;
use crate::config::reader::ConfigError;
use crate::{admin, assemble, logs, output, runtime, serve, status};

/// Validates a configuration and prints the findings.
pub(crate) fn command(path: Option<&Path>, compliance: bool) -> Result<()> {
    if compliance {
        let config = NodeConfig::load(path)?;
        crate::compliance::report(&config)?.iter().for_each(|line| output::line(line));
        return Ok(());
    }
    let mut seen = CheckFindings::default();
    match NodeConfig::load(path) {
        Ok(config) => {
            logs::start(&config.log)?;
            runtime::start()?.block_on(run_checks(&config, &mut seen));
        }
        // The other checks need a configuration.
        Err(error) => match error.downcast::<ConfigError>() {
            Ok(errors) => seen.errors = errors.0,
            Err(error) => return Err(error),
        },
    }
    seen.notes.iter().for_each(|remark| output::line(remark));
    seen.warnings.iter().for_each(|warning| output::line(&format!("warning: {warning}")));
    if seen.errors.is_empty() {
        output::line(&match seen.warnings.len() {
            0 => "the configuration is valid".to_owned(),
            1 => "the configuration is valid, 1 warning".to_owned(),
            n => format!("the configuration is valid, {n} warnings"),
        });
        return Ok(());
    }
    for fault in &seen.errors {
        output::error(&format!("- {fault}"));
    }
    match seen.errors.len() {
        1 => bail!("1 error found"),
        n => bail!("{n} errors found"),
    }
}

/// Findings of a check.
#[derive(Default)]
struct CheckFindings {
    /// Problems that prevent a start.
    errors: Vec<String>,
    /// Information.
    notes: Vec<String>,
    /// Problems that do not prevent a start but affect some clients.
    warnings: Vec<String>,
}

impl CheckFindings {
    fn record(&mut self, what: Result<()>) {
        if let Err(error) = what {
            self.errors.push(format!("{error:#}"));
        }
    }
}

async fn run_checks(config: &NodeConfig, seen: &mut CheckFindings) {
    seen.record(
        assemble::build_hosts(config, &FeatureState::default(), &AccountProviders::default()).map(drop),
    );
    seen.record(check_writable(&config.data_dir));
    seen.warnings.extend(crate::config_warnings::warnings(config));
    let certificates = certificates(config, seen);
    seen.record(certificates);
    let running = admin::connect(&config.socket()).await.is_some();
    if running {
        seen.notes.push(format!("a node is running, {}", absolute_path(&config.socket())));
    } else {
        for listen in &config.listen {
            let bound = Listener::bind(listen.kind, listen.address, ConnectionLimiter::default(), |_| {});
            seen.record(bound.map(drop).map_err(Into::into));
        }
    }
    let database = databases(config, seen).await;
    seen.record(database);
    let cluster = cluster(config, seen).await;
    seen.record(cluster);
}

/// Connects to NATS, without joining.
async fn cluster(config: &NodeConfig, seen: &mut CheckFindings) -> Result<()> {
    let Some(cluster) = &config.cluster else { return Ok(()) };
    // The key of the deployment authenticates messages of nodes, and this sends none.
    let settings = cluster.settings(0, ClusterKey::new(&[0; 32]))?;
    cluster_nats::check_connection(&settings).await?;
    seen.notes.push(format!("cluster        NATS is reachable; the name of this node is {}", cluster.node));
    Ok(())
}

fn certificates(config: &NodeConfig, seen: &mut CheckFindings) -> Result<()> {
    let Some(settings) = assemble::tls_settings(config) else { return Ok(()) };
    let Some(tls) = net::tls::TlsConfig::inspect(settings).context("[tls]")? else {
        let folder = absolute_path(&config.data_dir.join("tls"));
        seen.notes.push(format!("certificate    a self-signed one will be generated in {folder}"));
        return Ok(());
    };
    let now = SystemClock::new().unix_millis() / 1000;
    for one in tls.certificates() {
        seen.notes.extend(serve::describe_certificate(&one));
        let (file, from, until) = (one.file.display(), one.not_before, one.not_after);
        if until <= now {
            seen.errors.push(format!(
                "the [tls] certificate {file} expired on {}; renew it",
                status::format_date(until)
            ));
        } else if from > now {
            let from = status::format_date(from);
            seen.errors.push(format!(
                "the [tls] certificate {file} is not valid before {from}; check the system clock"
            ));
        }
    }
    for domain in tls.uncovered_domains() {
        seen.warnings.push(format!("no certificate is valid for {domain}; clients will refuse to connect"));
    }
    Ok(())
}

async fn databases(config: &NodeConfig, seen: &mut CheckFindings) -> Result<()> {
    database(config, &config.storage_url, config.storage_password_file.as_deref(), seen).await?;
    let Some(auth) = &config.auth_database else { return Ok(()) };
    database(config, &auth.url, auth.password_file.as_deref(), seen).await.context("[auth] url")
}

async fn database(
    config: &NodeConfig,
    url: &str,
    password_file: Option<&Path>,
    seen: &mut CheckFindings,
) -> Result<()> {
    let file = store_sql::database_path(url).map_err(|error| anyhow!("{error}"))?;
    let found = store_sql::inspect(url, password_file).await.map_err(|error| anyhow!("{error}"))?;
    let Some(file) = file else {
        let shown = store_sql::database_name(url).map_err(|error| anyhow!("{error}"))?;
        seen.notes.push(match found {
            DatabaseState::Schema { version, newest } if version < newest => {
                format!("database       {shown}, schema {version}{}", migration(url, version, newest))
            }
            DatabaseState::Schema { version, .. } => format!("database       {shown}, schema {version}"),
            DatabaseState::Missing | DatabaseState::WalOnly => {
                format!("database       {shown} is empty; its tables will be created")
            }
        });
        return Ok(());
    };
    let shown = absolute_path(&file);
    match found {
        DatabaseState::Missing => {
            let folder =
                file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            // A start creates the data directory.
            if !folder.is_dir() && folder != config.data_dir {
                bail!("the directory {} of the database does not exist", folder.display());
            }
            check_writable(folder)?;
            seen.notes.push(format!("database       {shown} will be created"));
        }
        DatabaseState::WalOnly => {
            check_writable(&file)?;
            seen.notes.push(format!(
                "database       {shown}, with a write-ahead log that the next start will recover"
            ));
        }
        DatabaseState::Schema { version, newest } => {
            check_writable(&file)?;
            let next = migration(url, version, newest);
            seen.notes.push(format!("database       {shown}, schema {version}{next}"));
        }
    }
    Ok(())
}

/// What a start would do with a schema.
fn migration(url: &str, version: u64, newest: u64) -> String {
    if version >= newest {
        return String::new();
    }
    let steps = store_sql::pending_migrations(url, version).unwrap_or_default();
    format!(", will be migrated to {newest} ({})", steps.join(", "))
}

/// Whether this user could write there: a file, a folder, or what would be created in the nearest existing parent
/// folder.
fn check_writable(path: &Path) -> Result<()> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let nearest = whole.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    if nearest != whole && !nearest.is_dir() {
        bail!("cannot create {}: {} is not a directory", path.display(), nearest.display());
    }
    access(nearest, Access::WRITE_OK).with_context(|| format!("{} is not writable", nearest.display()))
}
