//! The cluster of a case: its network, servers and nodes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use test_databases::{DelayRelay, NatsServer, NatsSetup, Server, ServerKind, ServerSetup};
use throng_e2e::text_client::{DOMAIN, PASSWORD};
use throng_e2e::{NodeProcess, wait};

use crate::managed_client::ManagedClient;
use crate::network::{ClusterNetwork, SERVERS};

/// Number of nodes.
pub(crate) const NODES: usize = 3;

/// Ports of each node, which are in its namespace.
const CLIENTS: u16 = 5222;
const HTTP: u16 = 5280;

/// Links of a node that can be slow.
struct SlowLinks {
    nats: DelayRelay,
    database: DelayRelay,
}

/// A running cluster.
pub(crate) struct NetworkCluster {
    // Dropped in this order: the namespaces are the last.
    pub(crate) nodes: Vec<NodeProcess>,
    slow: Option<SlowLinks>,
    pub(crate) nats: NatsServer,
    pub(crate) database: Server,
    pub(crate) network: ClusterNetwork,
}

impl NetworkCluster {
    /// Nodes that know one another, with these accounts. The links of the first node go through relays if it is wanted.
    pub(crate) fn start(case: &str, users: &[&str], relayed: bool) -> NetworkCluster {
        let network = ClusterNetwork::create(case, NODES);
        let database = ServerSetup { on_all_addresses: true, ..ServerSetup::default() };
        let database = Server::start_with(ServerKind::Postgres, &database);
        let nats = NatsSetup { address: Some(SERVERS), ..NatsSetup::default() };
        let nats = NatsServer::start_with(&nats);
        let database_address = SocketAddr::from((SERVERS, database.address().port()));
        let slow = relayed.then(|| SlowLinks {
            nats: DelayRelay::start(nats.address()),
            database: DelayRelay::start(database_address),
        });
        let nodes = (0..NODES).map(|index| {
            let relays = slow.as_ref().filter(|_| index == 0);
            let nats = relays.map_or(nats.address(), |links| links.nats.address());
            let database_address = relays.map_or(database_address, |links| links.database.address());
            let node = NodeProcess::new_in_netns(Some(network.node(index)), &format!("net-{case}-{index}"));
            node.configure(&format!(
                "hosts = ['{DOMAIN}']\ndata_dir = 'data'\n[auth]\nscram_iterations = 4096\n\
                 [storage]\nurl = '{}'\n[cluster]\nnats = ['nats://{nats}']\nnode = 'node-{index}'\n\
                 [limits]\nnew_connections_per_second = 0\n\
                 [modules.offline]\nmax_messages = 100000\nmax_bytes = 100000000\nsender_percent = 100\n\
                 [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{CLIENTS}'\ntls = 'off'\n\
                 [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{HTTP}'\n",
                database.url_through(database_address, "postgres")
            ));
            node
        });
        let mut cluster = NetworkCluster { nodes: nodes.collect(), slow, nats, database, network };
        for user in users {
            cluster.nodes[0].add_account(&format!("{user}@{DOMAIN}"), PASSWORD);
        }
        cluster.nodes.iter_mut().for_each(NodeProcess::start);
        cluster.wait_until_connected();
        cluster
    }

    /// Waits until each running node has all others.
    pub(crate) fn wait_until_connected(&self) {
        let all = self.nodes.len().to_string();
        for index in 0..self.nodes.len() {
            wait("the other nodes", || {
                (self.metric(index, "throng_cluster_members") == all
                    && self.metric(index, "throng_ready") == "1")
                    .then_some(())
            });
        }
    }

    /// The value of a metric without labels; empty if it is not there.
    pub(crate) fn metric(&self, node: usize, name: &str) -> String {
        let request = "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
        let mut page = String::new();
        let stream = self.network.at_node(node, || TcpStream::connect((Ipv4Addr::LOCALHOST, HTTP)));
        let read = stream.and_then(|mut stream| {
            stream.write_all(request.as_bytes())?;
            stream.read_to_string(&mut page)
        });
        read.expect("the metrics");
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_default().trim_end_matches(".0").to_owned()
    }

    /// Logs in at a node.
    pub(crate) fn login(&self, node: usize, user: &'static str) -> ManagedClient {
        self.network.at_node(node, || ManagedClient::login(CLIENTS, user, node))
    }

    /// Delays what the first node sends and receives.
    pub(crate) fn delay_first_node(&self, by: Duration) {
        let links = self.slow.as_ref().expect("a cluster with relays");
        links.nats.delay(by);
        links.database.delay(by);
    }
}
