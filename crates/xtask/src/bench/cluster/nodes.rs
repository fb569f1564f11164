//! Servers and nodes of `bench cluster`.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use test_databases::{NatsServer, NatsSetup, Server, ServerKind, ServerSetup, ports};

use super::super::clock::now;
use super::super::process::{BenchFolder, ChildGuard, log_tail};
use super::super::report::print_progress;
use super::run::MeasuredCluster;
use crate::cluster::{ClusterNode, wait_until_connected};

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
    /// Further lines of the section `[storage]` of each node, and sections after it.
    storage: String,
}

/// Accounts, numbered from 0, each with the same number of contacts, who are its neighbours in the ring of all.
#[derive(Clone, Copy, Debug)]
pub(super) struct BenchAccounts {
    pub(super) count: u32,
    pub(super) contacts: u32,
}

/// Connections of PostgreSQL: more than all nodes may open.
const DATABASE_CONNECTIONS: (&str, &str) = ("max_connections", "1000");

impl BenchServers {
    /// Starts the servers and creates the accounts.
    pub(super) fn start(
        program: &std::path::Path,
        accounts: BenchAccounts,
        storage: &str,
        keep: bool,
    ) -> Result<Self> {
        let folder = BenchFolder::new(keep)?;
        let [nats_monitor] = ports::free();
        let configuration = format!("http: \"127.0.0.1:{nats_monitor}\"");
        let nats = NatsServer::start_with(&NatsSetup { configuration, ..NatsSetup::default() });
        let mut setup = ServerSetup::measured(ServerKind::Postgres);
        setup.settings.push(DATABASE_CONNECTIONS);
        let database = Server::start_with(ServerKind::Postgres, &setup);
        let servers = Self {
            program: program.to_owned(),
            folder,
            nats,
            nats_monitor,
            database,
            storage: storage.to_owned(),
        };
        servers.create_accounts(accounts)?;
        Ok(servers)
    }

    /// Number of rows of the offline store, backups of messages that sessions hold included. They are written to `stored.txt`, which `--keep`
    /// keeps.
    pub(super) fn stored_messages(&self) -> Result<f64> {
        let mut psql = Command::new("psql");
        psql.args(["--quiet", "--no-psqlrc", "--tuples-only", "--no-align", "--command"])
            .arg(
                "SELECT owner, seq, stored_at, convert_from(stanza, 'UTF8') FROM offline ORDER BY owner, seq",
            )
            .arg(self.database.default_url());
        let output = psql.output().context("psql is needed")?;
        ensure!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
        fs::write(self.folder.path().join("stored.txt"), &output.stdout)?;
        Ok(String::from_utf8_lossy(&output.stdout).matches("<message").count() as f64)
    }

    fn create_accounts(&self, accounts: BenchAccounts) -> Result<()> {
        let BenchAccounts { count, contacts } = accounts;
        let node = self.configure(0, 1)?;
        let mut bulk = Command::new(&self.program);
        bulk.args(["account", "bulk", "--create", "--domain", DOMAIN, "--prefix", "u", "--from", "0"])
            .args(["--count", &count.to_string(), "--password", PASSWORD])
            .arg("--config")
            .arg(&node.config);
        if contacts > 0 {
            bulk.args(["--roster", &format!("ring:{contacts}")]);
        }
        let started = now();
        if !ChildGuard::start(&bulk, &node.log)?.wait()?.success() {
            bail!("`account bulk` failed: {}", log_tail(&node.log));
        }
        print_progress(&format!(
            "{count} accounts with {contacts} contacts each in {:.1} s",
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
            "hosts = ['{DOMAIN}']\ndata_dir = {:?}\n\n[storage]\nurl = '{}'\n{}\n{cluster}\
             [auth]\nscram_iterations = 4096\n\n\
             [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{clients}'\ntls = 'off'\nallow_plain_without_tls = true\n\n\
             [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n",
            folder.join("data"),
            self.database.default_url(),
            self.storage
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

    /// What a run of these nodes measures.
    pub(super) fn measured<'a>(&self, servers: &'a BenchServers) -> MeasuredCluster<'a> {
        MeasuredCluster {
            clients: self.nodes.iter().map(|node| SocketAddr::from(([127, 0, 0, 1], node.clients))).collect(),
            nodes: self.pids(),
            nats: Some(servers.nats.process()),
            database: servers.database.process(),
            folder: servers.folder.path(),
        }
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
