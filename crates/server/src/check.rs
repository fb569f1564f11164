//! `throng check`: everything about a configuration that can be validated without serving.
//!
//! It writes nothing: no data folder, no database, no certificate. What a start would make is said instead. Left out: whether a
//! name resolves to this machine.
//!
//! The trap: SQLite writes beside a database that is only read; see `store_sql::inspect`.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use base::clock::{Clock, SystemClock};
use net::{Gate, Listener};
use rustix::fs::{Access, access};
use store_sql::Found;
use throng_core::kept::Kept;

use crate::accounts::whole;
use crate::config::Config;
use crate::config::reader::Mistakes;
use crate::{admin, logs, out, run, runtime, status, wire};

/// Validates a configuration and prints what it found.
pub(crate) fn command(path: Option<&Path>, compliance: bool) -> Result<()> {
    if compliance {
        let config = Config::load(path)?;
        crate::compliance::report(&config)?.iter().for_each(|line| out::line(line));
        return Ok(());
    }
    let mut seen = Seen::default();
    match Config::load(path) {
        Ok(config) => {
            logs::start(&config.log)?;
            runtime::start()?.block_on(examine(&config, &mut seen));
        }
        // The rest of the list needs a configuration.
        Err(error) => match error.downcast::<Mistakes>() {
            Ok(mistakes) => seen.faults = mistakes.0,
            Err(error) => return Err(error),
        },
    }
    seen.remarks.iter().for_each(|remark| out::line(remark));
    seen.warnings.iter().for_each(|warning| out::line(&format!("warning: {warning}")));
    if seen.faults.is_empty() {
        out::line(&match seen.warnings.len() {
            0 => "the configuration is good".to_owned(),
            1 => "the configuration is valid, 1 warning".to_owned(),
            n => format!("the configuration is valid, {n} warnings"),
        });
        return Ok(());
    }
    for fault in &seen.faults {
        out::error(&format!("- {fault}"));
    }
    match seen.faults.len() {
        1 => bail!("1 thing to fix"),
        n => bail!("{n} things to fix"),
    }
}

/// What was found.
#[derive(Default)]
struct Seen {
    /// What keeps a node from serving.
    faults: Vec<String>,
    /// What is good to know.
    remarks: Vec<String>,
    /// What a node serves with, and some clients do not.
    warnings: Vec<String>,
}

impl Seen {
    fn note(&mut self, what: Result<()>) {
        if let Err(error) = what {
            self.faults.push(format!("{error:#}"));
        }
    }
}

async fn examine(config: &Config, seen: &mut Seen) {
    seen.note(wire::hosts(config, &Kept::default()).map(drop));
    seen.note(may_write(&config.data_dir));
    let certificates = certificates(config, seen);
    seen.note(certificates);
    let running = admin::connect(&config.socket()).await.is_some();
    if running {
        seen.remarks.push(format!("a node is running, {}", whole(&config.socket())));
    } else {
        for listen in &config.listen {
            let bound = Listener::bind(listen.kind, listen.address, Gate::default(), |_| {});
            seen.note(bound.map(drop).map_err(Into::into));
        }
    }
    let database = database(config, seen).await;
    seen.note(database);
}

fn certificates(config: &Config, seen: &mut Seen) -> Result<()> {
    let Some(settings) = wire::tls_settings(config) else { return Ok(()) };
    let Some(tls) = net::tls::Config::inspect(settings).context("[tls]")? else {
        let folder = whole(&config.data_dir.join("tls"));
        seen.remarks.push(format!("certificate    a self-signed one will be made in {folder}"));
        return Ok(());
    };
    let now = SystemClock::new().unix_millis() / 1000;
    for one in tls.certificates() {
        seen.remarks.extend(run::certificate(&one));
        let (file, from, until) = (one.file.display(), one.not_before, one.not_after);
        if until <= now {
            seen.faults.push(format!("[tls] certificate {file} expired on {}; renew it", status::day(until)));
        } else if from > now {
            let from = status::day(from);
            seen.faults
                .push(format!("[tls] certificate {file} is valid from {from} only; is the clock right?"));
        }
    }
    for domain in tls.uncovered() {
        seen.warnings.push(format!("no certificate is good for {domain}; clients will refuse to connect"));
    }
    Ok(())
}

async fn database(config: &Config, seen: &mut Seen) -> Result<()> {
    let file = store_sql::file(&config.storage_url).map_err(|error| anyhow!("{error}"))?;
    let shown = whole(&file);
    let found = store_sql::inspect(&config.storage_url).await.map_err(|error| anyhow!("{error}"))?;
    match found {
        Found::Nothing => {
            let folder =
                file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            // That of the data is made by a start.
            if !folder.is_dir() && folder != config.data_dir {
                bail!("the directory {} of the database does not exist", folder.display());
            }
            may_write(folder)?;
            seen.remarks.push(format!("database       {shown} will be made"));
        }
        Found::Journal => {
            may_write(&file)?;
            seen.remarks
                .push(format!("database       {shown}, with a journal that the next start takes over"));
        }
        Found::Schema { version, newest } => {
            may_write(&file)?;
            let next = if version < newest { format!(", which becomes {newest}") } else { String::new() };
            seen.remarks.push(format!("database       {shown}, schema {version}{next}"));
        }
    }
    Ok(())
}

/// Whether this user could write there: a file, a folder, or what would be made in the nearest folder above.
fn may_write(path: &Path) -> Result<()> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let nearest = whole.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    if nearest != whole && !nearest.is_dir() {
        bail!("{} cannot be made: {} is no directory", path.display(), nearest.display());
    }
    access(nearest, Access::WRITE_OK).with_context(|| format!("{} cannot be written", nearest.display()))
}
