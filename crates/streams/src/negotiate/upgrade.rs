//! Upgrades of stored keys: XEP-0480 (0.2.0), with the SCRAM tasks of its section 3.
//!
//! An account that was imported with keys for SCRAM-SHA-1 only cannot use more than that, and the server cannot make the
//! other keys: they need the password. The client makes them after it has logged in. Tasks are offered for every SCRAM
//! mechanism that is switched on, to everybody, so that nothing shows what an account has; what it has already is passed
//! over in silence.
//!
//! Left out: the server making the keys itself where PLAIN has brought the password.
//!
//! The trap: nothing proves that the new keys belong to the password, so only a login that has just proved the password
//! may set them. A token must not become a password, nor a certificate.

use ::sasl::{Credentials, Failure, Hash, Mechanism};
use throng_core::fault::Fault;
use xml::{Ns, Writer};

use super::{Did, Ready, Taken};
use crate::c2s::Connection;

/// The module's name in the configuration.
pub(super) const MODULE: &str = "scram_upgrade";
const PREFIX: &str = "UPGR-";

/// A task that the client was given.
pub(crate) struct Task {
    hash: Hash,
    /// The salt that it was told; none before `<next/>`.
    salt: Option<[u8; ::sasl::SALT_BYTES]>,
}

/// The hash of a task's name.
pub(super) fn hash(task: &str) -> Option<Hash> {
    let name = task.strip_prefix(PREFIX)?;
    Hash::ALL.into_iter().find(|hash| hash.scram() == name)
}

fn task_name(hash: Hash) -> String {
    format!("{PREFIX}{}", hash.scram())
}

/// Section 2.1: what may be asked for.
pub(super) fn features(w: &mut Writer<'_>, offered: ::sasl::MechanismSet) {
    for hash in Hash::ALL {
        if offers(offered, hash) {
            w.start("upgrade").ns(Ns::SaslUpgrade).text(&task_name(hash)).end();
        }
    }
}

fn offers(offered: ::sasl::MechanismSet, hash: Hash) -> bool {
    [true, false].into_iter().any(|plus| offered.contains(Mechanism::scram(hash, plus)))
}

impl Connection {
    /// The first task of those that the client asked for and the account needs.
    pub(super) fn first_task(&mut self) -> Option<Taken> {
        let state = self.state()?;
        let on = state.host.as_ref().is_some_and(|host| host.options(MODULE).is_some());
        let mechanism = Mechanism::from_name(state.mechanism);
        let password = mechanism.is_some_and(|m| m.hash().is_some() || m == Mechanism::Plain);
        let offered = state.offered2;
        let request = state.request.as_mut()?;
        if !on || !password || request.upgrades.is_empty() {
            return None;
        }
        let stored = Credentials::decode(&request.credentials).ok()?;
        request.upgrades.retain(|hash| stored.keys(*hash).is_none() && offers(offered, *hash));
        self.task()
    }

    /// The next task; section 2.2: one at a time.
    fn task(&mut self) -> Option<Taken> {
        let state = self.state()?;
        let request = state.request.as_mut()?;
        let hash = request.upgrades.pop()?;
        request.task = Some(Task { hash, salt: None });
        let mut out = Vec::with_capacity(192);
        let mut w = Writer::new(&mut out);
        w.start("continue").ns(Ns::Sasl2);
        if let Some(data) = state.additional.take() {
            w.leaf("additional-data", &::sasl::text::challenge(&data));
        }
        w.start("tasks").leaf("task", &task_name(hash)).end().end();
        Some(Ok(Did::Said(out)))
    }

    /// `<next/>`: the client begins, and is told what to compute.
    pub(super) fn next_task(&mut self, root: xml::Node<'_>) -> Taken {
        let iterations = self.service.policy.scram_iterations;
        let named = root.attr("task").and_then(|name| hash(&name));
        let Some(task) = self.state().and_then(|s| s.request.as_mut()).and_then(|r| r.task.as_mut()) else {
            return Ok(Did::Waits);
        };
        if named != Some(task.hash) || task.salt.is_some() {
            return self.failed_login(Failure::MalformedRequest, "task");
        }
        let salt = base::id::random_bytes::<{ ::sasl::SALT_BYTES }>();
        task.salt = Some(salt);
        let mut out = Vec::with_capacity(160);
        let mut w = Writer::new(&mut out);
        w.start("task-data").ns(Ns::Sasl2);
        w.start("salt").ns(Ns::ScramUpgrade).attr("iterations", &iterations.to_string());
        w.text(&::sasl::text::challenge(&salt)).end().end();
        Ok(Did::Said(out))
    }

    /// `<task-data/>`: what it computed. Stored only if nobody has changed the credentials meanwhile.
    pub(super) fn task_data(&mut self, root: xml::Node<'_>) -> Taken {
        let iterations = self.service.policy.scram_iterations;
        let node = self.service.node.clone();
        let salted = root.child("hash", Ns::ScramUpgrade).map(|h| ::sasl::text::sasl2(&h.text()));
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        let jid = state.identity.as_ref().map(|i| i.jid.clone());
        let Some(request) = state.request.as_mut() else { return Ok(Did::Waits) };
        let salted = match salted {
            Some(Ok(salted)) => salted,
            Some(Err(failure)) => return self.failed_login(failure, "encoding"),
            None => return self.failed_login(Failure::MalformedRequest, "task"),
        };
        let before = request.credentials.clone();
        let (Some(Task { hash, salt: Some(salt) }), Some(jid)) = (request.task.take(), jid) else {
            return self.failed_login(Failure::MalformedRequest, "task");
        };
        let Ok(mut stored) = Credentials::decode(&before) else { return self.change_tokens() };
        if !stored.add_salted(hash, &salt, iterations, &salted) {
            return self.failed_login(Failure::MalformedRequest, "task");
        }
        let after = stored.encode();
        request.credentials.clone_from(&after);
        state.work = Some(Box::pin(async move {
            let done = node.stores.accounts.upgrade_credentials(jid.as_ref(), &before, &after).await;
            Ready::Upgraded(done.map_err(Fault::from))
        }));
        Ok(Did::Waits)
    }

    /// The store has answered. The login is good whatever it says.
    pub(super) fn upgraded(&mut self, done: Result<bool, Fault>) -> Taken {
        match done {
            Ok(true) => {}
            Ok(false) => {
                // The password was changed by somebody: what the client would make next fits it no more.
                if let Some(request) = self.state().and_then(|s| s.request.as_mut()) {
                    request.upgrades.clear();
                }
            }
            Err(fault) => tracing::warn!(cause = %fault.cause, "upgraded keys could not be stored"),
        }
        self.task().unwrap_or_else(|| self.change_tokens())
    }
}
