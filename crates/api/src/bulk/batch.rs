//! One batch of a bulk creation: checked, keys derived, stored in two transactions.
//!
//! Deriving keys is most of the work (milliseconds for each password), so all processors but one do it; accounts of the
//! same password in a row share their keys.
//!
//! The trap: contacts may be accounts that come later, or of other servers. They get their numbers from the dictionary.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use base::Secret;
use base::spawn::BoxFuture;
use jid::Jid;
use serde::Deserialize;
use store::{AddressId, BulkItem, BulkRoster, Created, NewAccount, Subscription};
use throng_core::command::{Caller, CommandError, Why};
use throng_core::{Host, Node};

/// Bytes of a name or a group.
const TEXT: usize = 1_023;
/// Groups of one contact.
const GROUPS: usize = 32;

/// One account as it is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    jid: String,
    password: String,
    #[serde(default)]
    roster: Vec<Contact>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contact {
    jid: String,
    name: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
    subscription: Option<State>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    None,
    To,
    From,
    Both,
}

/// One account that can be created.
pub(super) struct Ready {
    jid: Jid,
    host: Arc<Host>,
    password: Secret,
    roster: Vec<(Jid, Contact)>,
}

impl Ready {
    /// The account, if the caller may create it: a token needs the scope `admin` for an administrator's address.
    pub(super) fn permitted(self, node: &Node, caller: &Caller) -> Result<Ready, Outcome> {
        if caller.may_change_admins() || !node.is_protected(self.jid.as_ref()) {
            return Ok(self);
        }
        let error = CommandError::protected(&self.jid);
        Err(Outcome::Failed(Some(self.jid), error))
    }
}

/// What became of one line.
#[derive(Debug)]
pub(super) enum Outcome {
    Created(Jid),
    Exists(Jid),
    Failed(Option<Jid>, CommandError),
}

fn wrong(text: impl Into<String>) -> CommandError {
    CommandError::new(Why::Invalid, text.into())
}

/// Reads one line.
pub(super) fn read(node: &Node, line: &[u8]) -> Result<Ready, Outcome> {
    let failed = |jid: Option<Jid>, error| Outcome::Failed(jid, error);
    // serde's message may repeat the password.
    let wanted: Wanted = serde_json::from_slice(line)
        .map_err(|_| failed(None, wrong("the line is not the JSON that is expected here")))?;
    let jid = Jid::parse(&wanted.jid).ok().filter(|jid| jid.local().is_some() && jid.resource().is_none());
    let Some(jid) = jid else {
        return Err(failed(None, wrong("the address of an account looks like user@example.org")));
    };
    let Some(host) = node.host(jid.domain()) else {
        let text = format!("{} is not served here", jid.domain());
        return Err(failed(Some(jid), CommandError::new(Why::NotFound, text)));
    };
    if wanted.password.len() > 3_071 {
        return Err(failed(Some(jid), wrong("the password is too long")));
    }
    let most = node.limits().roster_items as usize;
    if wanted.roster.len() > most {
        let text = format!("a roster has at most {most} contacts");
        return Err(failed(Some(jid), CommandError::new(Why::NotAcceptable, text)));
    }
    let mut roster = Vec::with_capacity(wanted.roster.len());
    for contact in wanted.roster {
        let address = Jid::parse(&contact.jid).ok().map(|jid| jid.bare().to_jid());
        let long = contact.groups.iter().chain(&contact.name).any(|text| text.len() > TEXT);
        match address {
            Some(address) if !long && contact.groups.len() <= GROUPS => roster.push((address, contact)),
            _ => return Err(failed(Some(jid), wrong("a contact of the roster cannot be one"))),
        }
    }
    Ok(Ready { jid, host, password: Secret::new(wanted.password), roster })
}

/// Keys of the password before: a row of accounts with the same one is common.
#[derive(Default)]
pub(super) struct Last(Option<(Secret, Arc<[u8]>)>);

/// Creates accounts with their rosters; what became of each, in their order.
pub(super) async fn create(
    node: &Arc<Node>,
    batch: Vec<Ready>,
    last: &mut Last,
) -> Result<Vec<Outcome>, CommandError> {
    let keys = derive(node, &batch, last).await;
    let (mut outcomes, mut accounts, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (ready, keys)) in batch.iter().zip(keys).enumerate() {
        match keys {
            Ok(credentials) => {
                accounts.push(NewAccount { jid: ready.jid.clone(), credentials });
                places.push(at);
                outcomes.push(Outcome::Exists(ready.jid.clone()));
            }
            Err(text) => {
                let error = CommandError::new(Why::NotAcceptable, text);
                outcomes.push(Outcome::Failed(Some(ready.jid.clone()), error));
            }
        }
    }
    let created = node.stores.accounts.create_bulk(accounts).await?;
    let mut new: Vec<(usize, AddressId)> = Vec::new();
    for (at, created) in places.into_iter().zip(created) {
        if let Created::New(id) = created {
            outcomes[at] = Outcome::Created(batch[at].jid.clone());
            new.push((at, id));
        }
    }
    rosters(node, &batch, &new).await?;
    for (at, _) in new {
        node.account_created(&batch[at].host, batch[at].jid.as_ref());
    }
    Ok(outcomes)
}

async fn rosters(node: &Node, batch: &[Ready], new: &[(usize, AddressId)]) -> Result<(), CommandError> {
    let mut contacts: Vec<Jid> =
        new.iter().flat_map(|(at, _)| &batch[*at].roster).map(|(address, _)| address.clone()).collect();
    contacts.sort_unstable();
    contacts.dedup();
    if contacts.is_empty() {
        return Ok(());
    }
    let numbers = node.stores.addresses.numbers(&contacts).await?;
    let numbers: HashMap<&str, AddressId> = contacts.iter().map(Jid::as_str).zip(numbers).collect();
    let item = |(address, contact): &(Jid, Contact)| {
        let subscription = match contact.subscription.unwrap_or(State::Both) {
            State::None => Subscription::NONE,
            State::To => Subscription::TO,
            State::From => Subscription::FROM,
            State::Both => Subscription::BOTH,
        };
        Some(BulkItem {
            contact: *numbers.get(address.as_str())?,
            name: contact.name.clone().filter(|name| !name.is_empty()),
            groups: contact.groups.clone(),
            subscription: subscription.with(Subscription::IN_ROSTER),
        })
    };
    let rosters = new.iter().filter(|(at, _)| !batch[*at].roster.is_empty()).map(|(at, owner)| BulkRoster {
        owner: *owner,
        items: batch[*at].roster.iter().filter_map(item).collect(),
    });
    node.stores.roster.put_bulk(rosters.collect()).await?;
    Ok(())
}

type Keys = Result<Arc<[u8]>, String>;

/// Keys for each of the batch.
async fn derive(node: &Arc<Node>, batch: &[Ready], last: &mut Last) -> Vec<Keys> {
    // Whether the password is that of the one before.
    let mut jobs: Vec<BoxFuture<'static, Result<Vec<u8>, String>>> = Vec::new();
    let mut of: Vec<Option<usize>> = Vec::with_capacity(batch.len());
    let before = last.0.clone();
    let mut password = before.as_ref().map(|(password, _)| password);
    let mut job = None;
    for ready in batch {
        if password != Some(&ready.password) {
            jobs.push(node.passwords.derive(ready.password.clone()));
            (password, job) = (Some(&ready.password), Some(jobs.len() - 1));
        }
        of.push(job);
    }
    let done: Vec<Keys> = all(jobs).await.into_iter().map(|keys| keys.map(Into::into)).collect();
    let keys = |job: &Option<usize>| match (job, &before) {
        (Some(job), _) => done.get(*job).cloned().unwrap_or_else(|| Err("no keys".to_owned())),
        (None, Some((_, keys))) => Ok(keys.clone()),
        (None, None) => Err("no keys".to_owned()),
    };
    let all: Vec<Keys> = of.iter().map(keys).collect();
    if let (Some(ready), Some(keys)) = (batch.last(), all.last()) {
        last.0 = keys.as_ref().ok().map(|keys| (ready.password.clone(), keys.clone()));
    }
    all
}

/// Runs jobs, a few at a time, so that a processor stays free for those who chat.
async fn all<T: Send + Unpin>(jobs: Vec<BoxFuture<'static, T>>) -> Vec<T> {
    let lanes = std::thread::available_parallelism().map_or(1, |n| n.get().saturating_sub(1)).clamp(1, 16);
    let mut waiting = jobs.into_iter().enumerate();
    let mut running: Vec<(usize, BoxFuture<'static, T>)> = waiting.by_ref().take(lanes).collect();
    let mut done: Vec<(usize, T)> = Vec::new();
    poll_fn(|cx| {
        let mut at = 0;
        while at < running.len() {
            match running[at].1.as_mut().poll(cx) {
                Poll::Pending => at += 1,
                Poll::Ready(value) => {
                    done.push((running[at].0, value));
                    match waiting.next() {
                        Some(next) => running[at] = next,
                        None => drop(running.swap_remove(at)),
                    }
                }
            }
        }
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, value)| value).collect()
}
