//! Nodes, users and operations of one run of the simulation.

use std::collections::BTreeSet;

use cluster::memory::NetworkFaults;
use fastrand::Rng;
use jid::Jid;
use testkit::{NodeClient, TestNodes};

use super::Setting;
use super::invariants::{self, InvariantViolation};
use super::simulated_client::SimulatedClient;
use crate::chain_observer::{ChainRuns, SLOW, observed_features, take_runs};

/// Accounts.
pub(super) const USERS: usize = 4;
/// Operations of a run.
const OPERATIONS: usize = 30;
/// Seconds after which a resumption has an outcome.
const RESUMPTION_SECONDS: u32 = 12;
/// Sessions of one user at a time.
const SESSIONS: usize = 3;

/// A message that was sent.
pub(super) struct SentMessage {
    pub(super) id: String,
    /// Index of the sender's session.
    pub(super) sender: usize,
    /// Number of the sender's stanzas up to this one.
    pub(super) position: u32,
    /// Index of the recipient.
    pub(super) recipient: usize,
    /// The address to which it was sent.
    pub(super) to: String,
}

/// Everything of one run.
pub(super) struct World {
    pub(super) nodes: TestNodes,
    /// All sessions that there were.
    pub(super) clients: Vec<SimulatedClient>,
    /// In the order of sending.
    pub(super) messages: Vec<SentMessage>,
    /// Users whose account was removed.
    pub(super) removed: BTreeSet<usize>,
    /// Runs of the recipient's chain.
    pub(super) chain_runs: ChainRuns,
    /// Those on nodes that crashed before the message was acknowledged, so that others may never have learned of them.
    pub(super) lost_chain_runs: ChainRuns,
    /// Violations of what is checked before the sessions end.
    early: Vec<InvariantViolation>,
    pub(super) setting: Setting,
    random: Rng,
    /// Decides which clients are slow, so that this does not change what happens otherwise.
    slow: Rng,
    /// Pairs of nodes that are cut off from each other.
    cuts: BTreeSet<(usize, usize)>,
    /// The operations have not ended.
    operating: bool,
    /// Numbers resources, texts and messages.
    serial: u32,
    print: bool,
}

pub(super) fn user_name(user: usize) -> String {
    format!("user{user}")
}

pub(super) fn user_address(user: usize) -> String {
    format!("{}@example.com", user_name(user))
}

impl World {
    pub(super) fn new(setting: Setting, seed: u64, print: bool) -> World {
        let mut random = Rng::with_seed(seed);
        let count = if setting == Setting::Single { 1 } else { random.usize(2..=5) };
        let faults = match setting.has_faults() {
            true => NetworkFaults { drop: 50, duplicate: 50, delay: 3 },
            false => NetworkFaults::default(),
        };
        let nodes = TestNodes::with_faults(count, &observed_features(), seed, faults);
        for user in 0..USERS {
            nodes.node(0).create_user(&user_name(user));
        }
        for (one, other) in [(0, 1), (1, 2), (0, 2)] {
            nodes.node(0).befriend(&user_name(one), &user_name(other));
        }
        take_runs();
        let world = World {
            nodes,
            clients: Vec::new(),
            messages: Vec::new(),
            removed: BTreeSet::new(),
            chain_runs: ChainRuns::new(),
            lost_chain_runs: ChainRuns::new(),
            early: Vec::new(),
            setting,
            random,
            slow: Rng::with_seed(seed ^ 1 << 32),
            cuts: BTreeSet::new(),
            operating: false,
            serial: 0,
            print,
        };
        world.log(|| format!("{count} nodes"));
        world
    }

    fn log(&self, text: impl FnOnce() -> String) {
        if self.print {
            eprintln!("{}", text());
        }
    }

    fn next(&mut self) -> u32 {
        self.serial += 1;
        self.serial
    }

    /// Runs all operations, then lets everything arrive, checks the sessions, and reads what the store has left.
    pub(super) fn run(&mut self) {
        self.operating = true;
        for _ in 0..OPERATIONS {
            self.operate();
            self.pass_time();
        }
        self.operating = false;
        self.heal_everything();
        self.settle();
        // Nodes that have not answered are given up.
        self.nodes.advance(RESUMPTION_SECONDS);
        self.settle();
        self.clients.iter_mut().for_each(|client| client.slow = false);
        self.nodes.advance(1);
        self.settle();
        self.early = invariants::check_sessions(self);
        (0..self.clients.len()).for_each(|index| self.close(index));
        self.settle();
        for user in 0..USERS {
            if !self.removed.contains(&user) {
                self.connect(user, 0);
                self.settle();
            }
        }
        self.record_runs();
    }

    fn record_runs(&mut self) {
        for (message, runs) in take_runs() {
            self.chain_runs.entry(message).or_default().extend(runs);
        }
    }

    /// A node is about to crash.
    fn lose_runs(&mut self, node: usize) {
        self.record_runs();
        let node = self.nodes.id(node);
        let open = self.messages.iter().filter(|message| !self.is_acknowledged(message));
        let open: Vec<String> = open.map(|message| message.id.clone()).collect();
        for message in open {
            let Some(runs) = self.chain_runs.get_mut(&message) else { continue };
            let lost: Vec<_> = runs.extract_if(.., |run| run.node == node).collect();
            self.lost_chain_runs.entry(message).or_default().extend(lost);
        }
    }

    /// What the run has violated.
    pub(super) fn violations(mut self) -> Vec<InvariantViolation> {
        let mut all = std::mem::take(&mut self.early);
        all.extend(invariants::check_messages(&self));
        all
    }

    fn operate(&mut self) {
        match self.random.u32(..100) {
            0..22 => {
                let user = self.random.usize(..USERS);
                let priority = if self.random.u32(..6) == 0 { -1 } else { 0 };
                self.connect(user, priority);
            }
            22..30 => {
                if let Some(index) = self.any_client() {
                    self.log(|| format!("close {index}"));
                    self.close(index);
                }
            }
            30..64 => self.send_message(),
            64..74 => {
                let status = format!("s{}", self.next());
                if let Some(index) = self.any_client() {
                    self.log(|| format!("presence {status} of {index}"));
                    self.clients[index].become_available(status, 0);
                }
            }
            74..84 => self.change_roster(),
            84..86 => self.remove_account(),
            86..92 if self.setting.moves_sessions() => self.resume_elsewhere(),
            _ if self.setting.has_faults() => self.disturb(),
            _ => self.send_message(),
        }
    }

    /// Time between two operations: everything arrives, or only some of it.
    fn pass_time(&mut self) {
        self.nodes.advance(1);
        if !self.setting.has_faults() {
            return self.settle();
        }
        self.read_all();
        for _ in 0..self.random.u32(..5) {
            self.nodes.step();
            self.read_all();
        }
    }

    /// Lets clients read until none has anything to read. What they read may make them send.
    fn read_all(&mut self) -> bool {
        let mut any = false;
        loop {
            let moved =
                self.clients.iter_mut().filter_map(|c| c.finish_move(&self.nodes).then_some(())).count();
            let reading = self.clients.iter_mut().filter(|client| !client.slow);
            let read = reading.map(SimulatedClient::read).filter(|read| *read).count();
            if read + moved == 0 {
                return any;
            }
            any = true;
        }
    }

    fn settle(&mut self) {
        loop {
            self.nodes.settle();
            if !self.read_all() {
                return;
            }
        }
    }

    /// A session that has not ended and has a connection, of an account that exists.
    fn any_client(&mut self) -> Option<usize> {
        let live: Vec<usize> =
            self.live_clients().filter(|index| self.clients[*index].moving.is_none()).collect();
        self.random.choice(live)
    }

    /// Whether the sender's server has acknowledged a message.
    pub(super) fn is_acknowledged(&self, message: &SentMessage) -> bool {
        self.clients[message.sender].acknowledged >= message.position
    }

    /// Sessions that have not ended, of accounts that exist.
    pub(super) fn live_clients(&self) -> impl Iterator<Item = usize> + '_ {
        let live = |client: &SimulatedClient| client.client.is_some() && !self.removed.contains(&client.user);
        (0..self.clients.len()).filter(move |index| live(&self.clients[*index]))
    }

    fn connect(&mut self, user: usize, priority: i8) {
        let own: Vec<usize> = self.live_clients().filter(|index| self.clients[*index].user == user).collect();
        if self.removed.contains(&user) || own.len() >= SESSIONS {
            return;
        }
        let node = match own.first() {
            Some(index) if self.setting == Setting::Calm => self.clients[*index].node,
            _ => self.random.choice(self.nodes.alive()).expect("a node is alive"),
        };
        let (resource, status) = (format!("r{}", self.next()), format!("s{}", self.next()));
        let index = self.clients.len();
        self.log(|| {
            format!("{index}: {}/{resource} on {node}, {status}, priority {priority}", user_name(user))
        });
        let client = self.nodes.node(node).connect(&user_name(user), &resource);
        client.enable_resumption();
        let mut client = SimulatedClient::new(user, node, client, self.messages.len());
        client.send("<iq type='get' id='roster'><query xmlns='jabber:iq:roster'/></iq>");
        client.become_available(status, priority);
        if self.operating && self.slow.u32(..8) == 0 {
            self.log(|| format!("{index} is slow"));
            (client.slow, client.was_slow) = (true, true);
        }
        self.clients.push(client);
    }

    /// A client loses its connection and resumes its stream on another node.
    fn resume_elsewhere(&mut self) {
        let Some(index) = self.any_client() else { return };
        let (user, own) = (self.clients[index].user, self.clients[index].node);
        let other_nodes: Vec<usize> = self.nodes.alive().into_iter().filter(|node| *node != own).collect();
        let Some(node) = self.random.choice(other_nodes) else { return };
        let others = self.live_clients().any(|other| other != index && self.clients[other].user == user);
        let session_ended = self.clients[index].client.as_ref().is_none_or(|c| c.session.is_ended());
        if session_ended || others && self.setting == Setting::Calm {
            return;
        }
        self.log(|| format!("{index} resumes on {node}"));
        self.clients[index].resume_on(&self.nodes, node);
    }

    fn close(&mut self, index: usize) {
        self.clients[index].close();
    }

    fn send_message(&mut self) {
        let Some(sender) = self.any_client() else { return };
        let from = self.clients[sender].user;
        let others: Vec<usize> =
            (0..USERS).filter(|user| *user != from && !self.removed.contains(user)).collect();
        let Some(recipient) = self.random.choice(others) else { return };
        // Also addresses of sessions that have ended.
        let full: Vec<String> = self
            .clients
            .iter()
            .filter(|client| client.user == recipient)
            .map(|client| client.address.clone())
            .collect();
        let bare = self.random.u32(..10) < 6;
        let full = self.random.choice(full).filter(|_| !bare);
        let to = full.unwrap_or_else(|| user_address(recipient));
        let slow = if self.random.u32(..8) == 0 { SLOW } else { "" };
        let id = format!("m{}{slow}", self.next());
        self.log(|| format!("message {id} from {sender} to {to}"));
        let client = &self.clients[sender];
        if client.client.as_ref().is_some_and(|client| client.session.is_ended()) {
            return;
        }
        client.send(&format!("<message to='{to}' type='chat' id='{id}'><body>Hello</body></message>"));
        let Some(position) = client.client.as_ref().map(NodeClient::sent) else { return };
        self.messages.push(SentMessage { id, sender, position, recipient, to });
    }

    fn change_roster(&mut self) {
        let Some(index) = self.any_client() else { return };
        let user = self.clients[index].user;
        let others: Vec<usize> =
            (0..USERS).filter(|other| *other != user && !self.removed.contains(other)).collect();
        let Some(contact) = self.random.choice(others).map(user_address) else { return };
        let removes = self.random.bool();
        self.log(|| format!("{index} {} {contact}", if removes { "removes" } else { "subscribes to" }));
        self.clients[index].send(&if removes {
            format!(
                "<iq type='set' id='remove'><query xmlns='jabber:iq:roster'>\
                 <item jid='{contact}' subscription='remove'/></query></iq>"
            )
        } else {
            format!("<presence type='subscribe' to='{contact}'/>")
        });
    }

    fn remove_account(&mut self) {
        let user = self.random.usize(..USERS);
        let node = self.random.choice(self.nodes.alive()).expect("a node is alive");
        if !self.removed.insert(user) {
            return;
        }
        self.log(|| format!("{} is removed on {node}", user_name(user)));
        let address = Jid::parse(&user_address(user)).expect("an address");
        let node = self.nodes.node(node);
        node.block_on(throng_commands::account_admin::remove_account(&node.node, address.as_ref()))
            .expect("an account");
        node.run_tasks();
    }

    /// A cut, its end, a crash or a restart.
    fn disturb(&mut self) {
        let alive = self.nodes.alive();
        match self.random.u32(..4) {
            0 => {
                let (Some(one), Some(other)) = (self.random.choice(alive.clone()), self.random.choice(alive))
                else {
                    return;
                };
                if one != other && self.cuts.insert((one.min(other), one.max(other))) {
                    self.log(|| format!("cut {one} {other}"));
                    self.nodes.cut(one, other);
                }
            }
            1 => {
                if let Some((one, other)) = self.cuts.pop_first() {
                    self.log(|| format!("heal {one} {other}"));
                    self.nodes.heal(one, other);
                }
            }
            2 if alive.len() > 1 => {
                let node = self.random.choice(alive).expect("a node is alive");
                self.crash(node);
            }
            _ => {
                if let Some(node) = self.random.choice(self.nodes.crashed()) {
                    self.log(|| format!("restart {node}"));
                    self.nodes.restart(node);
                }
            }
        }
    }

    fn crash(&mut self, node: usize) {
        self.log(|| format!("crash {node}"));
        self.read_all();
        self.lose_runs(node);
        // A crash of a node that is cut off is a cut of another kind in the network.
        let (own, others): (BTreeSet<_>, BTreeSet<_>) =
            self.cuts.iter().copied().partition(|(one, other)| *one == node || *other == node);
        self.cuts = others;
        own.into_iter().for_each(|(one, other)| self.nodes.heal(one, other));
        self.nodes.crash(node);
        for client in &mut self.clients {
            let goes_there = client.moving.as_ref().is_some_and(|(to, _)| *to == node);
            if !goes_there && (client.client.is_none() || client.node != node) {
                continue;
            }
            let session = client.client.take();
            if goes_there {
                client.moving = None;
                // Its old node may still have the session, which ends when the client does not come back.
                session.iter().for_each(NodeClient::close);
            }
            client.crashed = true;
            client.left_unread |= client.slow || goes_there;
        }
    }

    fn heal_everything(&mut self) {
        for (one, other) in std::mem::take(&mut self.cuts) {
            self.nodes.heal(one, other);
        }
    }
}
