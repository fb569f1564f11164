//! Nodes of ejabberd in one cluster on this machine, with accounts and rosters in one PostgreSQL database.
//!
//! Each node is configured as in `ejabberd.rs`. The first node starts alone; the others join it as `ejabberdctl join_cluster` does
//! (`ejabberd_cluster:join/1`), so that the table of sessions is replicated by Mnesia on every node. Names are `NAME@localhost`, and a
//! port mapper (epmd) of the cluster's own knows their ports.
//!
//! # Pitfalls
//!
//! The memory tables of Mnesia are on each node: what a login costs grows with the number of nodes.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::super::clock::now;
use super::super::process::{ChildGuard, log_tail};
use super::super::report::print_progress;
use super::{
    DOMAIN, PeerDatabase, PeerOptions, START_TIMEOUT, ejabberd, ejabberd_sql, empty_folder, login_check,
    ring_roster, run_to_end,
};

/// Shared secret of the nodes.
const COOKIE: &str = "bench";

/// Starts clusters on one filled database.
pub(crate) struct EjabberdClusters {
    wanted: PeerOptions,
    folder: PathBuf,
    /// Port of the port mapper.
    epmd_port: u16,
    _port_mapper: ChildGuard,
}

/// Running nodes.
pub(crate) struct EjabberdCluster {
    nodes: Vec<EjabberdNode>,
}

struct EjabberdNode {
    process: ChildGuard,
    clients: SocketAddr,
    log: PathBuf,
}

impl EjabberdClusters {
    /// Fills the empty database and starts the port mapper.
    pub(crate) fn new(
        accounts: PeerOptions,
        database: PeerDatabase,
        epmd_port: u16,
        folder: &Path,
    ) -> Result<Self> {
        super::check_installed("erl")?;
        let wanted = PeerOptions { database: Some(database.clone()), ..accounts };
        wanted.check()?;
        super::raise_file_limit();
        ejabberd_sql::fill(&wanted, &database, folder)?;
        let mut mapper = Command::new("epmd");
        mapper.args(["-address", "127.0.0.1", "-port", &epmd_port.to_string()]);
        let port_mapper = ChildGuard::start(&mapper, &folder.join("epmd.log"))?;
        Ok(Self { wanted, folder: folder.to_owned(), epmd_port, _port_mapper: port_mapper })
    }

    /// Starts a node on each of these ports, joins them, and checks that an account can log in everywhere.
    pub(crate) fn start(&self, clients: &[SocketAddr]) -> Result<EjabberdCluster> {
        let mut nodes: Vec<EjabberdNode> = Vec::new();
        let name = |number: usize| format!("ejabberd{number}@localhost");
        for (number, address) in clients.iter().enumerate() {
            let mut node = self.start_node(&name(number), *address)?;
            node.wait_until_listening()?;
            if number > 0 {
                self.join(&name(number), &name(0), number + 1)?;
                // The join has started its listener again.
                node.wait_until_listening()?;
            }
            nodes.push(node);
        }
        let wanted = &self.wanted;
        let number = wanted.accounts / 2;
        let expected = ring_roster::neighbours(number, wanted.accounts, wanted.roster).len();
        for node in &nodes {
            let contacts =
                login_check::contacts(node.clients, DOMAIN, &wanted.user(number), &wanted.secret(number))
                    .with_context(|| format!("a node does not work: {}", log_tail(&node.log)))?;
            ensure!(contacts == expected, "an account has {contacts} contacts, not {expected}");
        }
        print_progress(&format!("ejabberd: a cluster of {}", nodes.len()));
        Ok(EjabberdCluster { nodes })
    }

    fn start_node(&self, name: &str, address: SocketAddr) -> Result<EjabberdNode> {
        let folder = self.folder.join(name);
        empty_folder(&folder)?;
        let data = folder.join("run");
        empty_folder(&data)?;
        let config = folder.join("ejabberd.yml");
        fs::write(&config, ejabberd::configuration(&self.wanted, address)?)?;
        let log = folder.join("start.log");
        let mut serve = ejabberd::erlang(&ejabberd::applications()?, &folder, &config, &data);
        self.add_name(&mut serve, name).args(["-s", "ejabberd"]);
        Ok(EjabberdNode { process: ChildGuard::start(&serve, &log)?, clients: address, log })
    }

    /// Adds what a node needs to be found by others.
    fn add_name<'a>(&self, command: &'a mut Command, name: &str) -> &'a mut Command {
        command
            .args(["-sname", name, "-setcookie", COOKIE, "-start_epmd", "false"])
            .args(["-kernel", "inet_dist_use_interface", "{127,0,0,1}"])
            .env("ERL_EPMD_PORT", self.epmd_port.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
    }

    /// Joins a node to the one that is there, and checks that each of `count` nodes has the table of sessions.
    fn join(&self, joining: &str, existing: &str, count: usize) -> Result<()> {
        let script = format!(
            "Join = rpc:call('{joining}', ejabberd_cluster, join, ['{existing}']), \
             Nodes = rpc:call('{joining}', mnesia, table_info, [session, active_replicas]), \
             io:format(\"~p ~p~n\", [Join, Nodes]), \
             case {{Join, length(Nodes)}} of {{ok, {count}}} -> halt(0); _ -> halt(1) end."
        );
        let mut call = Command::new("erl");
        self.add_name(&mut call, "control@localhost").args(["-noshell", "-noinput", "-eval", &script]);
        run_to_end(&call, &self.folder.join(format!("{joining}.join.log")), "joining the cluster of ejabberd")
    }
}

impl EjabberdNode {
    fn wait_until_listening(&mut self) -> Result<()> {
        let waiting = now();
        while TcpStream::connect_timeout(&self.clients, Duration::from_secs(1)).is_err() {
            let log = &self.log;
            self.process.check_running().with_context(|| format!("ejabberd: {}", log_tail(log)))?;
            ensure!(waiting.elapsed() < START_TIMEOUT, "ejabberd does not listen: {}", log_tail(log));
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl EjabberdCluster {
    /// Processes of the nodes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.process.id()).collect()
    }

    /// Addresses for clients.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.clients).collect()
    }
}
