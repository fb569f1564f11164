//! A case in progress: the cluster, its users, their messages, and what is promised about them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use test_databases::{NatsServer, Server};
use throng_e2e::text_client::DOMAIN;
use throng_e2e::{poll, wait};

use crate::accounts::{Fault, MessageAccounts};
use crate::cluster::NetworkCluster;
use crate::managed_client::ManagedClient;
use crate::traffic::Traffic;

/// Users that are online from the beginning, and their nodes. All are contacts of one another.
const ONLINE: [(&str, usize); 4] = [(ROMEO, 0), (JULIET, 1), (NURSE, 2), (TYBALT, 0)];
pub(crate) const ROMEO: &str = "romeo";
pub(crate) const JULIET: &str = "juliet";
pub(crate) const NURSE: &str = "nurse";
/// Sends no messages, so that he may leave.
pub(crate) const TYBALT: &str = "tybalt";
/// Is offline until the end.
const ROSALINE: &str = "rosaline";

/// Time in which contacts must see that users of a node are gone (docs/cluster.md: ten seconds, and 13 if messages still arrive in
/// one direction), and some for a busy machine.
const GONE_WITHIN: Duration = Duration::from_secs(13 + 3);
/// Time after a fault in which presence must be right again.
const HEALED_WITHIN: Duration = Duration::from_secs(15);
/// Time in which stored messages reach clients that log in after everything.
const DELIVERED_WITHIN: Duration = Duration::from_secs(20);

pub(crate) struct Trial {
    case: &'static str,
    traffic: Option<Traffic>,
    online: Vec<Arc<ManagedClient>>,
    /// Sessions that have ended, in the order of their logins.
    ended: Vec<Arc<ManagedClient>>,
    begun: Instant,
    fault: Option<Fault>,
    pub(crate) cluster: NetworkCluster,
}

impl Trial {
    /// A cluster whose users are online, see one another and send messages.
    pub(crate) fn start(case: &'static str, relayed: bool) -> Trial {
        let begun = Instant::now();
        let users = [ROMEO, JULIET, NURSE, TYBALT, ROSALINE];
        let cluster = NetworkCluster::start(case, &users, relayed);
        let online: Vec<_> = ONLINE.iter().map(|&(user, node)| Arc::new(cluster.login(node, user))).collect();
        for client in &online {
            for (user, _) in ONLINE.iter().filter(|(user, _)| *user != client.user) {
                client.send(&format!("<presence type='subscribe' to='{user}@{DOMAIN}'/>"));
            }
        }
        let mut trial = Trial { case, traffic: None, online, ended: Vec::new(), begun, fault: None, cluster };
        wait("the presence of all contacts", || trial.presence_is_right().then_some(()));
        trial.start_traffic(0);
        trial.pass_rounds(3);
        trial.note("the users are online");
        trial
    }

    /// Something fails.
    pub(crate) fn fault_begins(&mut self) -> Instant {
        let began = Instant::now();
        // Until it is repaired, which is later.
        self.fault = Some(Fault { began, ended: began });
        began
    }

    /// It is repaired.
    pub(crate) fn fault_ends(&mut self) -> Instant {
        let ended = Instant::now();
        self.fault.as_mut().expect("a fault").ended = ended;
        ended
    }

    fn note(&self, text: &str) {
        println!("{} {:.1} s: {text}", self.case, self.begun.elapsed().as_secs_f64());
    }

    /// Clients send to all users, online or not, from now on; [`TYBALT`] takes no part.
    fn start_traffic(&mut self, first: u32) {
        let senders = self.online.iter().filter(|client| client.user != TYBALT).cloned().collect();
        self.traffic = Some(Traffic::start(first, senders, vec![ROMEO, JULIET, NURSE, ROSALINE]));
    }

    fn stop_traffic(&mut self) -> u32 {
        self.traffic.take().expect("traffic").stop()
    }

    /// Lets the clients send some rounds of messages.
    pub(crate) fn pass_rounds(&self, count: u32) {
        let traffic = self.traffic.as_ref().expect("traffic");
        let until = traffic.rounds() + count;
        wait("rounds of messages", || (traffic.rounds() >= until).then_some(()));
    }

    /// Waits until this time after the beginning of a fault.
    pub(crate) fn pass_until(&self, since: Instant, time: Duration) {
        sleep(time.saturating_sub(since.elapsed()));
    }

    /// Each of these users sees none of those, in the time that is promised.
    pub(crate) fn assert_gone(&self, since: Instant, observers: &[&str], users: &[&str]) {
        for observer in observers {
            let client = self.client(observer);
            for user in users.iter().filter(|user| *user != observer) {
                let gone = wait("an unavailable contact", || {
                    let presence = client.presence();
                    let mut after = presence.iter().filter(|event| event.at >= since && event.user == *user);
                    (!client.sees(user)).then(|| after.find(|event| !event.available).map(|event| event.at))
                });
                let took = gone.expect("it was seen before").duration_since(since);
                self.note(&format!("{observer} sees that {user} is gone, after {:.1} s", took.as_secs_f64()));
                assert!(took <= GONE_WITHIN, "{}: {observer} sees {user} gone after {took:?}", self.case);
            }
        }
    }

    /// Nobody was seen to leave since then.
    pub(crate) fn assert_nobody_left(&self, since: Instant) {
        for client in &self.online {
            let presence = client.presence();
            let left: Vec<_> =
                presence.iter().filter(|event| event.at >= since && !event.available).collect();
            assert!(left.is_empty(), "{}: {} has seen {left:?}", self.case, client.user);
        }
    }

    /// Presence is right in the time that is promised, counted from the end of the fault.
    pub(crate) fn assert_healed(&self, since: Instant) {
        let healed = poll(2 * HEALED_WITHIN, || self.presence_is_right().then(Instant::now));
        let took = healed.map(|at| at.duration_since(since));
        self.note(&format!("presence is right after {took:.1?}"));
        assert!(
            took.is_some_and(|took| took <= HEALED_WITHIN),
            "{}: healed after {took:?}: {}",
            self.case,
            self.seen()
        );
    }

    /// Every client sees the sessions that are online, and no other.
    fn presence_is_right(&self) -> bool {
        self.online.iter().all(|client| {
            client.seen_sessions() == self.online.len()
                && self.online.iter().all(|other| client.sees(other.user))
        })
    }

    fn seen(&self) -> String {
        let seen = |client: &ManagedClient| -> BTreeSet<&str> {
            ONLINE.iter().map(|(user, _)| *user).filter(|user| client.sees(user)).collect()
        };
        self.online.iter().map(|client| format!("{} sees {:?}; ", client.user, seen(client))).collect()
    }

    fn client(&self, user: &str) -> &Arc<ManagedClient> {
        self.online.iter().find(|client| client.user == user).expect("an online user")
    }

    /// A user logs out.
    pub(crate) fn leave(&mut self, user: &str) {
        let place = self.online.iter().position(|client| client.user == user).expect("an online user");
        let client = self.online.remove(place);
        client.close();
        self.ended.push(client);
    }

    /// A user logs in at a node, and is seen by contacts on the same node.
    pub(crate) fn enter(&mut self, user: &'static str, node: usize) {
        self.online.push(Arc::new(self.cluster.login(node, user)));
    }

    /// Kills a node. What its clients had received until then still arrives.
    pub(crate) fn kill_node(&mut self, node: usize) {
        self.cluster.nodes[node].kill();
        let (lost, online): (Vec<_>, Vec<_>) = self.online.drain(..).partition(|client| client.node == node);
        self.online = online;
        lost.iter().for_each(|client| client.wait_for_end());
        self.ended.extend(lost);
    }

    /// The clients that are online then send, instead of those that were.
    pub(crate) fn renew_traffic(&mut self) {
        let next = self.stop_traffic();
        self.start_traffic(next);
    }

    pub(crate) fn nats(&self) -> &NatsServer {
        &self.cluster.nats
    }

    pub(crate) fn database(&self) -> &Server {
        &self.cluster.database
    }

    /// Sends no more, lets all users log in again, so that they get what is stored, and checks the accounts.
    pub(crate) fn finish(mut self) {
        self.stop_traffic();
        let accounts = |trial: &Trial| {
            let clients: Vec<_> = trial.ended.iter().chain(&trial.online).map(Arc::as_ref).collect();
            MessageAccounts::of(clients, trial.fault)
        };
        wait("acknowledgements of all messages", || {
            self.online.iter().for_each(|client| client.request_acknowledgement());
            accounts(&self).open.is_empty().then_some(())
        });
        self.note("all messages are acknowledged");
        assert!(
            self.presence_is_right(),
            "{}: a session that has ended is seen, or one is missing: {}",
            self.case,
            self.seen()
        );
        for client in self.online.drain(..) {
            client.close();
            self.ended.push(client);
        }
        for (node, user) in [ROMEO, JULIET, NURSE, ROSALINE].into_iter().enumerate() {
            self.enter(user, (node + 1) % self.cluster.nodes.len());
        }
        poll(DELIVERED_WITHIN, || accounts(&self).lost.is_empty().then_some(()));
        self.online.iter().for_each(|client| client.sync());
        let accounts = accounts(&self);
        self.note(&accounts.summary());
        let faults = accounts.faults();
        assert!(faults.is_empty(), "{}: {}\n{}", self.case, accounts.summary(), faults.join("\n"));
        self.cluster.nodes.iter_mut().for_each(|node| node.stop());
    }
}
