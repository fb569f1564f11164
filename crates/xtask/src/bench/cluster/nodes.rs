//! Servers and nodes of `bench cluster`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use test_databases::{NatsServer, NatsSetup, Server, ServerKind, ServerSetup, ports};

use super::super::clock::now;
use super::super::process::{BenchFolder, ChildGuard, log_tail};
use super::super::report::print_progress;
use crate::cluster::{ClusterNode, wait_until_connected};

/// Accounts for each user and contacts of each account, as in the published test: a fifth of the contacts is online.
const ACCOUNTS_PER_USER: u32 = 5;
const CONTACTS: u32 = 150;

/// Password of all accounts.
pub(super) const PASSWORD: &str = "secret";
/// Domain of all accounts.
pub(super) const DOMAIN: &str = "localhost";

/// NATS, and a database with the accounts.
pub(super) struct BenchServers {
    pub(super) program: PathBuf,
    pub(super) folder: BenchFolder,
    pub(super) nats: NatsServer,
    /// Port of the HTTP server of NATS.
    pub(super) nats_monitor: u16,
    pub(super) database: Server,
}

impl BenchServers {
    /// Starts the servers and creates the accounts.
    pub(super) fn start(program: &std::path::Path, users: u32, keep: bool) -> Result<Self> {
        let folder = BenchFolder::new(keep)?;
        let [nats_monitor] = ports::free();
        let configuration = format!("http: \"127.0.0.1:{nats_monitor}\"");
        let nats = NatsServer::start_with(&NatsSetup { configuration, ..NatsSetup::default() });
        let database = Server::start_with(ServerKind::Postgres, &ServerSetup::measured(ServerKind::Postgres));
        let servers = Self { program: program.to_owned(), folder, nats, nats_monitor, database };
        servers.create_accounts(users)?;
        Ok(servers)
    }

    fn create_accounts(&self, users: u32) -> Result<()> {
        let node = self.configure(0, 1)?;
        let mut bulk = Command::new(&self.program);
        let count = (users * ACCOUNTS_PER_USER).to_string();
        bulk.args(["account", "bulk", "--create", "--domain", DOMAIN, "--prefix", "u", "--from", "0"])
            .args(["--count", &count, "--password", PASSWORD, "--roster", &format!("ring:{CONTACTS}")])
            .arg("--config")
            .arg(&node.config);
        let started = now();
        if !ChildGuard::start(&bulk, &node.log)?.wait()?.success() {
            bail!("`account bulk` failed: {}", log_tail(&node.log));
        }
        print_progress(&format!(
            "{count} accounts with {CONTACTS} contacts each in {:.1} s",
            started.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    /// Writes the configuration of a node, numbered from 0, of a cluster of this many.
    fn configure(&self, number: u16, nodes: u16) -> Result<ClusterNode> {
        let name = format!("node-{}-of-{nodes}", number + 1);
        let folder = self.folder.path().join(&name);
        fs::create_dir_all(&folder)?;
        let [clients, http] = ports::free();
        let cluster = if nodes > 1 {
            format!("[cluster]\nnats = ['{}']\nnode = '{name}'\n\n", self.nats.url())
        } else {
            String::new()
        };
        let text = format!(
            "hosts = ['{DOMAIN}']\ndata_dir = {:?}\n\n[storage]\nurl = '{}'\n\n{cluster}\
             [auth]\nscram_iterations = 4096\n\n\
             [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{clients}'\ntls = 'off'\nallow_plain_without_tls = true\n\n\
             [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n",
            folder.join("data"),
            self.database.default_url()
        );
        let (config, log) = (folder.join("throng.toml"), folder.join("log"));
        fs::write(&config, text)?;
        Ok(ClusterNode { name, config, log, clients, http, process: None })
    }
}

/// Running nodes.
pub(super) struct BenchCluster {
    pub(super) nodes: Vec<ClusterNode>,
}

impl BenchCluster {
    /// Starts this many nodes and waits until they know each other.
    pub(super) fn start(servers: &BenchServers, count: u16) -> Result<Self> {
        let mut nodes =
            (0..count).map(|number| servers.configure(number, count)).collect::<Result<Vec<_>>>()?;
        for node in &mut nodes {
            node.process = Some(ChildGuard::start(&serve(servers, node), &node.log)?);
        }
        wait_until_connected(&mut nodes)?;
        // What a start and the meeting of the nodes leave to do is not of the run.
        std::thread::sleep(Duration::from_millis(500));
        Ok(Self { nodes })
    }

    /// Processes of the nodes.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.nodes.iter().filter_map(|node| Some(node.process.as_ref()?.id())).collect()
    }
}

/// The command of a node.
pub(super) fn serve(servers: &BenchServers, node: &ClusterNode) -> Command {
    let mut serve = Command::new(&servers.program);
    serve.arg("serve").arg("--config").arg(&node.config);
    serve
}
