//! Upgrades of stored SCRAM keys: XEP-0480 (0.2.0), with the SCRAM tasks of its section 3.
//!
//! An account imported with keys for SCRAM-SHA-1 only can use nothing stronger, and the server cannot derive the other
//! keys without the password. The client derives them after login. Tasks are offered to all clients for every enabled
//! SCRAM mechanism, so the offer does not reveal which keys an account has; requests for existing keys are silently
//! skipped.
//!
//! Not implemented: deriving the keys on the server where PLAIN has sent the password.
//!
//! # Pitfalls
//!
//! Nothing proves that the new keys belong to the password, so only a login that has just proved the password may set
//! them. A token must not become a password, nor a certificate.

use ::sasl::{Credentials, Failure, Mechanism, ScramHash};
use access::login::{CredentialsUpgradeOutcome, upgrade_credentials};
use throng_core::server_error::ServerError;
use xml::{Ns, Writer};

use super::{LoginStepResult, NegotiationOutcome, NegotiationResult};
use crate::c2s::C2sConnection;

/// Module name in the configuration.
pub(super) const MODULE: &str = "scram_upgrade";
const PREFIX: &str = "UPGR-";

/// Task in progress.
pub(crate) struct UpgradeTask {
    hash: ScramHash,
    /// Salt that was sent to the client; `None` before `<next/>`.
    salt: Option<[u8; ::sasl::SALT_BYTES]>,
}

/// Hash that a task name stands for.
pub(super) fn hash(task: &str) -> Option<ScramHash> {
    let name = task.strip_prefix(PREFIX)?;
    ScramHash::ALL.into_iter().find(|hash| hash.scram_name() == name)
}

fn task_name(hash: ScramHash) -> String {
    format!("{PREFIX}{}", hash.scram_name())
}

/// Writes the offered upgrades (section 2.1).
pub(super) fn features(w: &mut Writer<'_>, offered: ::sasl::MechanismSet) {
    for hash in ScramHash::ALL {
        if offers(offered, hash) {
            w.start("upgrade").ns(Ns::SaslUpgrade).text(&task_name(hash)).end();
        }
    }
}

fn offers(offered: ::sasl::MechanismSet, hash: ScramHash) -> bool {
    [true, false].into_iter().any(|plus| offered.contains(Mechanism::scram(hash, plus)))
}

impl C2sConnection {
    /// Starts the first task that the client requested and the account needs.
    pub(super) fn first_task(&mut self) -> Option<NegotiationResult> {
        let state = self.negotiation()?;
        let on = state.host.as_ref().is_some_and(|host| host.options(MODULE).is_some());
        let mechanism = Mechanism::from_name(state.mechanism);
        let password = mechanism.is_some_and(|m| m.hash().is_some() || m == Mechanism::Plain);
        let offered = state.offered_sasl2;
        let request = state.sasl2_request.as_mut()?;
        if !on || !password || request.upgrades.is_empty() {
            return None;
        }
        let stored = Credentials::decode(&request.credentials).ok()?;
        request.upgrades.retain(|hash| stored.keys(*hash).is_none() && offers(offered, *hash));
        self.task()
    }

    /// Starts the next task; one at a time (section 2.2).
    fn task(&mut self) -> Option<NegotiationResult> {
        let state = self.negotiation()?;
        let request = state.sasl2_request.as_mut()?;
        let hash = request.upgrades.pop()?;
        request.task = Some(UpgradeTask { hash, salt: None });
        let mut out = Vec::with_capacity(192);
        let mut w = Writer::new(&mut out);
        w.start("continue").ns(Ns::Sasl2);
        if let Some(data) = state.additional.take() {
            w.text_element("additional-data", &::sasl::encoding::encode_challenge(&data));
        }
        w.start("tasks").text_element("task", &task_name(hash)).end().end();
        Some(Ok(NegotiationOutcome::Reply(out)))
    }

    /// Handles `<next/>`: sends salt and iterations.
    pub(super) fn next_task(&mut self, root: xml::TreeNode<'_>) -> NegotiationResult {
        let iterations = self.context.policy.scram_iterations;
        let named = root.attr("task").and_then(|name| hash(&name));
        let Some(task) =
            self.negotiation().and_then(|s| s.sasl2_request.as_mut()).and_then(|r| r.task.as_mut())
        else {
            return Ok(NegotiationOutcome::Pending);
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
        w.text(&::sasl::encoding::encode_challenge(&salt)).end().end();
        Ok(NegotiationOutcome::Reply(out))
    }

    /// Handles `<task-data/>`, the derived keys. They are stored only if the credentials have not changed meanwhile.
    pub(super) fn task_data(&mut self, root: xml::TreeNode<'_>) -> NegotiationResult {
        let iterations = self.context.policy.scram_iterations;
        let node = self.context.node.clone();
        let salted = root.child("hash", Ns::ScramUpgrade).map(|h| ::sasl::encoding::decode_sasl2(&h.text()));
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let identity = state.identity.clone();
        let Some(request) = state.sasl2_request.as_mut() else { return Ok(NegotiationOutcome::Pending) };
        let salted = match salted {
            Some(Ok(salted)) => salted,
            Some(Err(failure)) => return self.failed_login(failure, "encoding"),
            None => return self.failed_login(Failure::MalformedRequest, "task"),
        };
        let before = request.credentials.clone();
        let (Some(UpgradeTask { hash, salt: Some(salt) }), Some(identity)) = (request.task.take(), identity)
        else {
            return self.failed_login(Failure::MalformedRequest, "task");
        };
        let Ok(mut stored) = Credentials::decode(&before) else { return self.check_account() };
        if !stored.add_salted(hash, &salt, iterations, &salted) {
            return self.failed_login(Failure::MalformedRequest, "task");
        }
        let after = stored.encode();
        request.credentials.clone_from(&after);
        state.pending_step = Some(Box::pin(async move {
            LoginStepResult::Upgraded(upgrade_credentials(&node, &identity, &before, &after).await)
        }));
        Ok(NegotiationOutcome::Pending)
    }

    /// Continues after the keys were stored. A failure to store them does not fail the login, but a changed password
    /// does: the proved one is no longer valid.
    pub(super) fn on_upgraded(
        &mut self,
        done: Result<CredentialsUpgradeOutcome, ServerError>,
    ) -> NegotiationResult {
        match done {
            Ok(CredentialsUpgradeOutcome::Stored) => {}
            Ok(CredentialsUpgradeOutcome::Superseded(credentials)) => {
                // Another client of the user was faster. What it has stored need not be derived again.
                let stored = Credentials::decode(&credentials).ok();
                if let Some(request) = self.negotiation().and_then(|s| s.sasl2_request.as_mut()) {
                    request.upgrades.retain(|hash| stored.as_ref().is_some_and(|s| s.keys(*hash).is_none()));
                    request.credentials = credentials;
                }
            }
            Ok(CredentialsUpgradeOutcome::Disabled) => {
                return self.failed_after_proof(Failure::AccountDisabled, "disabled");
            }
            Ok(CredentialsUpgradeOutcome::Revoked) => return self.revoked_login(),
            Err(fault) => tracing::warn!(cause = %fault.cause, "could not store upgraded SCRAM keys"),
        }
        self.task().unwrap_or_else(|| self.check_account())
    }
}
