//! Invariants of the simulation, and their checks.

use std::collections::{BTreeMap, BTreeSet};

use jid::Jid;
use store::Subscription;

use super::Setting;
use super::simulated_client::SimulatedClient;
use super::world::{USERS, World, user_address, user_name};

/// An invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// The recipient's chain runs exactly once for each acknowledged message, and at most once for any other. One exception:
    /// if its node crashes before the message was acknowledged, it runs again elsewhere, for the same stanza-id.
    ChainRunsOnce,
    /// Each acknowledged message reaches a session of the recipient, is in the store, or comes back.
    NothingLost,
    /// No session receives a message twice. One exception: what a client had received when its node crashed is delivered again
    /// with the same stanza-id, because the client had not acknowledged it.
    ///
    /// A message that was delivered is not stored for other sessions. One exception: what a slow client has not acknowledged is
    /// in the store, too, until it is, so that it survives the node. Another session of the user that logs in meanwhile on
    /// another node receives it, once and with the same stanza-id. This is no double: RFC 6121, section 8.5.2.1.1, lets a
    /// server deliver to all resources, and the slow client may be a connection that the user has lost.
    NothingDoubled,
    /// A session receives the messages of another one in their order. One exception: what another session did not read follows
    /// when that one ends.
    PairOrder,
    /// A user has a subscription to another if and only if the other's roster says so.
    RostersAgree,
    /// Each session knows the last presence of every session that it may see, and no other.
    PresenceConverges,
    /// No session survives the removal of its account.
    RemovedAccountsHaveNoSession,
}

impl Invariant {
    /// All invariants.
    pub const ALL: [Invariant; 7] = [
        Invariant::ChainRunsOnce,
        Invariant::NothingLost,
        Invariant::NothingDoubled,
        Invariant::PairOrder,
        Invariant::RostersAgree,
        Invariant::PresenceConverges,
        Invariant::RemovedAccountsHaveNoSession,
    ];

    /// Its name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Invariant::ChainRunsOnce => "chain-runs-once",
            Invariant::NothingLost => "nothing-lost",
            Invariant::NothingDoubled => "nothing-doubled",
            Invariant::PairOrder => "pair-order",
            Invariant::RostersAgree => "rosters-agree",
            Invariant::PresenceConverges => "presence-converges",
            Invariant::RemovedAccountsHaveNoSession => "removed-accounts-have-no-session",
        }
    }
}

/// A violation of an invariant, with what is wrong.
#[derive(Debug)]
pub struct InvariantViolation {
    /// The invariant.
    pub invariant: Invariant,
    /// What is wrong, in one sentence.
    pub text: String,
}

fn violation(invariant: Invariant, text: String) -> InvariantViolation {
    InvariantViolation { invariant, text }
}

/// Stored subscriptions: by pair of owner and contact.
fn stored_subscriptions(world: &World) -> BTreeMap<(usize, usize), Subscription> {
    let node = world.nodes.node(world.nodes.alive()[0]);
    let mut all = BTreeMap::new();
    let existing = |user: &usize| !world.removed.contains(user);
    for owner in (0..USERS).filter(existing) {
        for contact in (0..USERS).filter(existing).filter(|contact| *contact != owner) {
            let item = node.stored_roster_item(&user_name(owner), &user_name(contact));
            all.insert((owner, contact), item.map_or(Subscription::NONE, |item| item.subscription));
        }
    }
    all
}

/// Checks what sessions must know when everything has arrived.
pub(super) fn check_sessions(world: &World) -> Vec<InvariantViolation> {
    let mut found = Vec::new();
    for user in &world.removed {
        let address = Jid::parse(&user_address(*user)).expect("an address");
        for node in world.nodes.alive() {
            if world.nodes.node(node).node.routing_table.find(address.as_ref()).is_some() {
                let text = format!("{address} has a session on node {node}");
                found.push(violation(Invariant::RemovedAccountsHaveNoSession, text));
            }
        }
    }
    let stored = stored_subscriptions(world);
    let has = |owner: usize, contact: usize, bits| {
        stored.get(&(owner, contact)).is_some_and(|subscription| subscription.contains(bits))
    };
    let mut disagree: BTreeSet<(usize, usize)> = BTreeSet::new();
    for (owner, contact) in stored.keys().copied() {
        let (to, from) = (has(owner, contact, Subscription::TO), has(contact, owner, Subscription::FROM));
        if to != from {
            let text =
                format!("user{owner} has \"to\" for user{contact}: {to}; the other has \"from\": {from}");
            found.push(violation(Invariant::RostersAgree, text));
            disagree.insert((owner, contact));
        }
    }
    let sees = |user: usize, other: usize| {
        user == other || has(user, other, Subscription::TO) && has(other, user, Subscription::FROM)
    };
    for index in world.live_clients() {
        let client = &world.clients[index];
        let expected: BTreeMap<String, String> = world
            .live_clients()
            .map(|other| &world.clients[other])
            .filter(|other| other.address != client.address && sees(client.user, other.user))
            .map(|other| (other.address.clone(), other.status.clone()))
            .collect();
        // Of pairs whose rosters disagree, both outcomes are right.
        let decided = |address: &String| {
            let other = (0..USERS).find(|other| address.starts_with(&format!("{}/", user_address(*other))));
            other.is_none_or(|other| !disagree.contains(&(client.user, other)))
        };
        // A contact that sends its presence to this user is shown as it is.
        let live: BTreeMap<&String, &String> = world
            .live_clients()
            .map(|other| (&world.clients[other].address, &world.clients[other].status))
            .collect();
        for (address, status) in client.seen.iter().filter(|(address, _)| !decided(address)) {
            let other = (0..USERS).find(|other| address.starts_with(&format!("{}/", user_address(*other))));
            let sends = other.is_some_and(|other| has(other, client.user, Subscription::FROM));
            if sends && live.get(address) != Some(&status) {
                let text = format!("{} sees {address} with {status:?}", client.address);
                found.push(violation(Invariant::PresenceConverges, text));
            }
        }
        let expected: BTreeMap<_, _> = expected.into_iter().filter(|(address, _)| decided(address)).collect();
        let seen = client.seen.iter().filter(|(address, _)| decided(address));
        if !seen.eq(&expected) {
            let text = format!("{} sees {:?} where there is {expected:?}", client.address, client.seen);
            found.push(violation(Invariant::PresenceConverges, text));
        }
    }
    found
}

/// Checks the messages, after the store has delivered what it had to sessions that are the last ones.
pub(super) fn check_messages(world: &World) -> Vec<InvariantViolation> {
    let mut found = Vec::new();
    let last: BTreeSet<&str> =
        world.live_clients().map(|index| world.clients[index].address.as_str()).collect();
    let checked = world.messages.iter().enumerate();
    for (at, message) in checked.filter(|(_, message)| !world.removed.contains(&message.recipient)) {
        let id = &message.id;
        let runs = world.chain_runs.get(id).map_or(&[][..], Vec::as_slice);
        let lost = world.lost_chain_runs.get(id).map_or(&[][..], Vec::as_slice);
        let acknowledged = world.is_acknowledged(message);
        let mut all = runs.iter().chain(lost);
        let first = all.next().map(|run| run.given_id);
        let same_id = all.all(|run| run.given_id.is_some() && Some(run.given_id) == first);
        if runs.len() > 1 || !same_id || first.is_none() && acknowledged {
            found.push(violation(Invariant::ChainRunsOnce, format!("{id} ran {runs:?}, lost {lost:?}")));
        }
        let receivers: Vec<&SimulatedClient> =
            world.clients.iter().filter(|client| client.count(id, None) > 0).collect();
        let sender = &world.clients[message.sender];
        let returned = sender.left_unread || sender.returned.contains(id);
        if receivers.is_empty() && !returned && acknowledged {
            let text = format!("{id} to user{} is nowhere", message.recipient);
            found.push(violation(Invariant::NothingLost, text));
        }
        let ids: BTreeSet<&Option<String>> = receivers
            .iter()
            .flat_map(|client| client.received.iter().filter(move |m| m.id == *id))
            .map(|received| &received.stanza_id)
            .collect();
        let same_id = ids.len() == 1 && !ids.contains(&None);
        let twice = receivers.iter().any(|client| client.count(id, None) > 1 && !(same_id && client.crashed));
        // A slow client that was there, or to which the message was delivered again.
        let several = world.setting != Setting::Single;
        let held = world.clients.iter().any(|client| {
            several
                && client.user == message.recipient
                && client.was_slow
                && (client.opened_at <= at || client.count(id, None) > 0)
        });
        let receivers: Vec<&SimulatedClient> = receivers
            .into_iter()
            .filter(|client| !(same_id && (client.crashed || client.was_slow || held)))
            .collect();
        let stored = receivers.iter().any(|client| client.count(id, Some(true)) > 0);
        let direct = receivers.iter().any(|client| client.count(id, Some(false)) > 0);
        let late = receivers.iter().filter(|client| last.contains(client.address.as_str())).count();
        if twice || stored && direct || late > 0 && late < receivers.len() {
            let by: Vec<&str> = receivers.iter().map(|client| client.address.as_str()).collect();
            let text = format!("{id} was received by {by:?}, stored: {stored}, directly: {direct}");
            found.push(violation(Invariant::NothingDoubled, text));
        }
    }
    found.extend(check_order(world));
    found
}

fn check_order(world: &World) -> Vec<InvariantViolation> {
    let places: BTreeMap<&str, usize> =
        world.messages.iter().enumerate().map(|(at, message)| (message.id.as_str(), at)).collect();
    let mut found = Vec::new();
    for client in &world.clients {
        let mut last: BTreeMap<(usize, &str, bool), usize> = BTreeMap::new();
        for received in &client.received {
            let Some(at) = places.get(received.id.as_str()).copied() else { continue };
            let message = &world.messages[at];
            // With a negative priority, messages to the bare address are stored while those to the full one arrive. A
            // message to another resource was delivered to that one first, as far as its home knew.
            let others = world.clients.iter().filter(|other| other.user == client.user);
            let unread = received.delayed && others.clone().any(|other| other.was_slow);
            let rerouted = unread || message.to.contains('/') && message.to != client.address;
            let to = if client.was_negative || rerouted { message.to.as_str() } else { "" };
            let before = last.insert((message.sender, to, rerouted), at);
            if before.is_some_and(|before| before > at) {
                let text = format!("{} received {} after a later one", client.address, message.id);
                found.push(violation(Invariant::PairOrder, text));
            }
        }
    }
    found
}
