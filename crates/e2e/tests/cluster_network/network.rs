//! Network of a case: a namespace for the servers and the test, and one for each node, with a link between them that can be cut.
//!
//! Cuts and losses are filters of incoming packets on both sides: packets disappear and no interface goes down, so that neither
//! side is notified. netem (`tc`) would do the same, but not every kernel has it.
//!
//! The thread of the case is in the namespace of the servers; connections to a node are opened in that of the node, so that no cut
//! concerns clients.
//!
//! # Pitfalls
//!
//! The namespaces of a test that was killed stay, with the nodes in them. The next run removes them by their names, which have the
//! process id.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use throng_e2e::{describe_output, signal};

const PREFIX: &str = "throng-net-";
const NAMESPACES: &str = "/run/netns";

/// Address of the servers.
pub(crate) const SERVERS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 254);

/// Packets in a hundred that a lossy link loses, in each direction.
const LOST_PERCENT: u32 = 5;

/// The namespaces of a case. They are removed on drop, also when the test fails.
pub(crate) struct ClusterNetwork {
    case: String,
    nodes: usize,
    /// The namespace of the thread before.
    outside: File,
}

impl ClusterNetwork {
    /// Creates the namespaces, and moves this thread into that of the servers.
    pub(crate) fn create(case: &str, nodes: usize) -> ClusterNetwork {
        let outside = File::open("/proc/thread-self/ns/net").expect("the own namespace");
        let network =
            ClusterNetwork { case: format!("{PREFIX}{}-{case}", std::process::id()), nodes, outside };
        let servers = network.servers();
        run("ip", &["netns", "add", &servers]);
        run("ip", &["-n", &servers, "link", "set", "lo", "up"]);
        run("ip", &["-n", &servers, "link", "add", "nodes", "type", "bridge"]);
        run("ip", &["-n", &servers, "address", "add", &format!("{SERVERS}/24"), "dev", "nodes"]);
        run("ip", &["-n", &servers, "link", "set", "nodes", "up"]);
        for node in 0..nodes {
            let (name, link) = (network.node(node), format!("node{node}"));
            run("ip", &["netns", "add", &name]);
            run("ip", &["-n", &name, "link", "set", "lo", "up"]);
            run(
                "ip",
                &[
                    "-n", &servers, "link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns",
                    &name,
                ],
            );
            run("ip", &["-n", &servers, "link", "set", &link, "master", "nodes", "up"]);
            run("ip", &["-n", &name, "address", "add", &format!("{}/24", address(node)), "dev", "eth0"]);
            run("ip", &["-n", &name, "link", "set", "eth0", "up"]);
        }
        enter(&open(&servers));
        load_filters();
        (0..nodes).for_each(|node| network.at_node(node, load_filters));
        network
    }

    fn servers(&self) -> String {
        format!("{}-servers", self.case)
    }

    /// Name of the namespace of a node.
    pub(crate) fn node(&self, node: usize) -> String {
        format!("{}-{node}", self.case)
    }

    /// Runs this in the namespace of a node.
    pub(crate) fn at_node<T>(&self, node: usize, run: impl FnOnce() -> T) -> T {
        // Back in the namespace of the servers also after a panic: what is dropped then runs commands.
        let _back = EnterOnDrop(open(&self.servers()));
        enter(&open(&self.node(node)));
        run()
    }

    /// Cuts a node off from all servers, or ends that.
    pub(crate) fn cut(&self, node: usize, cut: bool) {
        self.change_sets(node, "cut", "", cut);
    }

    /// Cuts a node off from the server on this port only, or ends that.
    pub(crate) fn cut_from(&self, node: usize, port: u16, cut: bool) {
        self.change_sets(node, "cut_from", &format!(" . {port}"), cut);
    }

    /// Makes the link of a node lossy, or ends that.
    pub(crate) fn lose_packets(&self, node: usize, lossy: bool) {
        self.change_sets(node, "lossy", "", lossy);
    }

    /// Packets that the lossy link of a node has lost.
    pub(crate) fn lost_packets(&self, node: usize) -> u64 {
        self.at_node(node, count_lost) + count_lost()
    }

    /// Both sides drop what comes from the other one: a sender that dropped its own packets would notice.
    fn change_sets(&self, node: usize, set: &str, rest: &str, add: bool) {
        let verb = if add { "add" } else { "delete" };
        let change = |from: Ipv4Addr| {
            run("nft", &[&format!("{verb} element inet faults {set} {{ {from}{rest} }}")]);
        };
        change(address(node));
        self.at_node(node, || change(SERVERS));
    }
}

impl Drop for ClusterNetwork {
    fn drop(&mut self) {
        enter(&self.outside);
        for name in (0..self.nodes).map(|node| self.node(node)).chain([self.servers()]) {
            // The links and filters go with their namespaces.
            let _ = Command::new("ip").args(["netns", "delete", &name]).output();
        }
    }
}

struct EnterOnDrop(File);

impl Drop for EnterOnDrop {
    fn drop(&mut self) {
        enter(&self.0);
    }
}

/// Removes what test programs have left that were killed: the namespaces, and the nodes in them.
pub(crate) fn remove_stale_namespaces() {
    for entry in fs::read_dir(NAMESPACES).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(process) = process.filter(|process| !Path::new("/proc").join(process).exists()) else {
            continue;
        };
        println!("removing {name}, which process {process} has left");
        let inside = Command::new("ip").args(["netns", "pids", &name]).output().expect("ip");
        for pid in String::from_utf8_lossy(&inside.stdout).lines().filter_map(|pid| pid.parse().ok()) {
            signal(pid, "KILL");
        }
        let _ = Command::new("ip").args(["netns", "delete", &name]).output();
    }
}

fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, u8::try_from(node + 1).expect("few nodes"))
}

fn open(name: &str) -> File {
    File::open(Path::new(NAMESPACES).join(name)).expect("a namespace")
}

/// Moves this thread into a namespace. Processes and threads that it starts are there, too.
fn enter(namespace: &File) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("a namespace");
}

/// Filters of incoming packets in the namespace of this thread, by their source; without effect until one is in a set.
fn load_filters() {
    let text = format!(
        "table inet faults {{
            set cut {{ type ipv4_addr; }}
            set cut_from {{ type ipv4_addr . inet_service; }}
            set lossy {{ type ipv4_addr; }}
            counter lost {{ }}
            chain input {{
                type filter hook input priority 0;
                ip saddr @cut drop
                ip saddr . tcp dport @cut_from drop
                ip saddr . tcp sport @cut_from drop
                ip saddr @lossy numgen random mod 100 < {LOST_PERCENT} counter name lost drop
            }}
        }}"
    );
    run("nft", &[&text]);
}

/// Packets that the filters in the namespace of this thread have lost.
fn count_lost() -> u64 {
    let text = run("nft", &["list counter inet faults lost"]);
    let count = text.split_whitespace().skip_while(|word| *word != "packets").nth(1);
    count.and_then(|count| count.parse().ok()).expect("a number")
}

fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().expect("iproute2 and nftables are installed");
    assert!(output.status.success(), "{program} {words:?}: {}", describe_output(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
