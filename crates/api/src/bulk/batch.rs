//! One batch of a bulk creation: validation, key derivation, and two transactions.
//!
//! Deriving keys is most of the work (milliseconds for each password), so it uses all CPUs but one; consecutive
//! accounts with the same password share their keys.
//!
//! # Pitfalls
//!
//! Contacts may be accounts that are created later, or of other servers. They get their numbers from the dictionary.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use base::Secret;
use base::spawn::BoxFuture;
use jid::Jid;
use serde::Deserialize;
use store::{AddressId, BulkItem, BulkRoster, CreateOutcome, NewAccount, Subscription};
use throng_commands::{Caller, CommandError, CommandErrorKind};
use throng_core::{Host, Node};

/// Bytes of a name or a group.
const MAX_TEXT_BYTES: usize = 1_023;
/// Groups of one contact.
const MAX_GROUPS: usize = 32;

/// One line of the request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewAccountLine {
    jid: String,
    password: String,
    #[serde(default)]
    roster: Vec<NewContact>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewContact {
    jid: String,
    name: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
    subscription: Option<NewContactSubscription>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NewContactSubscription {
    None,
    To,
    From,
    Both,
}

/// One account that can be created.
pub(super) struct ValidatedAccount {
    jid: Jid,
    host: Arc<Host>,
    password: Secret,
    roster: Vec<(Jid, NewContact)>,
}

impl ValidatedAccount {
    /// The account, if the caller may create it: a token needs the scope `admin` for an administrator's address.
    pub(super) fn authorize(self, node: &Node, caller: &Caller) -> Result<ValidatedAccount, BulkOutcome> {
        if caller.may_change_admins() || !node.is_protected(self.jid.as_ref()) {
            return Ok(self);
        }
        let error = CommandError::protected(&self.jid);
        Err(BulkOutcome::Failed(Some(self.jid), error))
    }
}

/// Result of one line.
#[derive(Debug)]
pub(super) enum BulkOutcome {
    Created(Jid),
    Exists(Jid),
    Failed(Option<Jid>, CommandError),
}

fn bad_line(text: impl Into<String>) -> CommandError {
    CommandError::new(CommandErrorKind::Invalid, text.into())
}

/// Parses one line.
pub(super) fn parse_line(node: &Node, line: &[u8]) -> Result<ValidatedAccount, BulkOutcome> {
    let failed = |jid: Option<Jid>, error| BulkOutcome::Failed(jid, error);
    // serde's message may repeat the password.
    let wanted: NewAccountLine = serde_json::from_slice(line)
        .map_err(|_| failed(None, bad_line("the line is not valid JSON for an account")))?;
    let jid = Jid::parse(&wanted.jid).ok().filter(|jid| jid.local().is_some() && jid.resource().is_none());
    let Some(jid) = jid else {
        return Err(failed(None, bad_line("invalid address; write one such as user@example.org")));
    };
    let Some(host) = node.host(jid.domain()) else {
        let text = format!("{} is not served here", jid.domain());
        return Err(failed(Some(jid), CommandError::new(CommandErrorKind::NotFound, text)));
    };
    if let Some(provider) = host.account_provider() {
        let text = format!("accounts of {} are kept by {}; create them there", jid.domain(), provider.name());
        return Err(failed(Some(jid), CommandError::new(CommandErrorKind::NotAllowed, text)));
    }
    if wanted.password.len() > 3_071 {
        return Err(failed(Some(jid), bad_line("the password is too long")));
    }
    let most = node.limits().roster_items as usize;
    if wanted.roster.len() > most {
        let text = format!("a roster can have at most {most} contacts");
        return Err(failed(Some(jid), CommandError::new(CommandErrorKind::NotAcceptable, text)));
    }
    let mut roster = Vec::with_capacity(wanted.roster.len());
    for contact in wanted.roster {
        let address = Jid::parse(&contact.jid).ok().map(|jid| jid.bare().to_jid());
        let long = contact.groups.iter().chain(&contact.name).any(|text| text.len() > MAX_TEXT_BYTES);
        match address {
            Some(address) if !long && contact.groups.len() <= MAX_GROUPS => roster.push((address, contact)),
            _ => return Err(failed(Some(jid), bad_line("a contact of the roster is not a valid address"))),
        }
    }
    Ok(ValidatedAccount { jid, host, password: Secret::new(wanted.password), roster })
}

/// Keys of the previous password: consecutive accounts often share one.
#[derive(Default)]
pub(super) struct LastDerivedKeys(Option<(Secret, Arc<[u8]>)>);

/// Creates accounts with their rosters; returns the result of each, in order.
pub(super) async fn create_accounts(
    node: &Arc<Node>,
    batch: Vec<ValidatedAccount>,
    last: &mut LastDerivedKeys,
) -> Result<Vec<BulkOutcome>, CommandError> {
    let keys = derive_keys(node, &batch, last).await;
    let (mut outcomes, mut accounts, mut positions) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (ready, keys)) in batch.iter().zip(keys).enumerate() {
        match keys {
            Ok(credentials) => {
                accounts.push(NewAccount { jid: ready.jid.clone(), credentials });
                positions.push(at);
                outcomes.push(BulkOutcome::Exists(ready.jid.clone()));
            }
            Err(text) => {
                let error = CommandError::new(CommandErrorKind::NotAcceptable, text);
                outcomes.push(BulkOutcome::Failed(Some(ready.jid.clone()), error));
            }
        }
    }
    let created = node.stores.accounts.create_bulk(accounts).await?;
    let mut new: Vec<(usize, AddressId)> = Vec::new();
    for (at, created) in positions.into_iter().zip(created) {
        if let CreateOutcome::New(id) = created {
            outcomes[at] = BulkOutcome::Created(batch[at].jid.clone());
            new.push((at, id));
        }
    }
    store_rosters(node, &batch, &new).await?;
    for (at, _) in new {
        node.account_created(&batch[at].host, batch[at].jid.as_ref());
    }
    Ok(outcomes)
}

async fn store_rosters(
    node: &Node,
    batch: &[ValidatedAccount],
    new: &[(usize, AddressId)],
) -> Result<(), CommandError> {
    let mut contacts: Vec<Jid> =
        new.iter().flat_map(|(at, _)| &batch[*at].roster).map(|(address, _)| address.clone()).collect();
    contacts.sort_unstable();
    contacts.dedup();
    if contacts.is_empty() {
        return Ok(());
    }
    let numbers = node.stores.addresses.intern_many(&contacts).await?;
    let numbers: HashMap<&str, AddressId> = contacts.iter().map(Jid::as_str).zip(numbers).collect();
    let item = |(address, contact): &(Jid, NewContact)| {
        let subscription = match contact.subscription.unwrap_or(NewContactSubscription::Both) {
            NewContactSubscription::None => Subscription::NONE,
            NewContactSubscription::To => Subscription::TO,
            NewContactSubscription::From => Subscription::FROM,
            NewContactSubscription::Both => Subscription::BOTH,
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

type DerivedKeys = Result<Arc<[u8]>, String>;

/// Derives keys for each account of the batch.
async fn derive_keys(
    node: &Arc<Node>,
    batch: &[ValidatedAccount],
    last: &mut LastDerivedKeys,
) -> Vec<DerivedKeys> {
    // Whether the password is the previous one.
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
    let done: Vec<DerivedKeys> =
        join_limited(jobs).await.into_iter().map(|keys| keys.map(Into::into)).collect();
    let keys = |job: &Option<usize>| match (job, &before) {
        (Some(job), _) => done.get(*job).cloned().unwrap_or_else(|| Err("no keys".to_owned())),
        (None, Some((_, keys))) => Ok(keys.clone()),
        (None, None) => Err("no keys".to_owned()),
    };
    let all: Vec<DerivedKeys> = of.iter().map(keys).collect();
    if let (Some(ready), Some(keys)) = (batch.last(), all.last()) {
        last.0 = keys.as_ref().ok().map(|keys| (ready.password.clone(), keys.clone()));
    }
    all
}

/// Runs jobs, a few at a time, so that a CPU remains free for chat traffic.
async fn join_limited<T: Send + Unpin>(jobs: Vec<BoxFuture<'static, T>>) -> Vec<T> {
    let parallel = std::thread::available_parallelism().map_or(1, |n| n.get().saturating_sub(1)).clamp(1, 16);
    let mut waiting = jobs.into_iter().enumerate();
    let mut running: Vec<(usize, BoxFuture<'static, T>)> = waiting.by_ref().take(parallel).collect();
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
