//! Transport security of a connection: what was requested, what is negotiated, and how it is reported.
//!
//! STARTTLS (RFC 6120, section 5) and direct TLS (XEP-0368). With [`TransportSecurity::Auto`] STARTTLS is used where
//! the server offers it and no TLS where it does not; a session with its own `starttls` step decides for itself.
//!
//! Not implemented: DNS SRV lookup of the port.
//!
//! # Pitfalls
//!
//! The server's offer is known only once features have been received, so every message about a failed login checks
//! that.

use super::event_loop::WorkerEngine;
use super::slot::UserSlot;
use super::virtual_user::WaitState;
use crate::plan::{PlanStep, StreamTransport, TransportSecurity, UserSession};

/// Kinds of login failures that transport security may cause. A wrong password is not among them.
const PROTECTION: [&str; 10] = [
    "login:no-mechanism",
    "login:no-starttls",
    "login:tls",
    "login:closed",
    "login:stream-error",
    "login:authentication",
    "login:timeout",
    "login:encryption-required",
    "login:invalid-mechanism",
    "login:mechanism-too-weak",
];

/// Sessions that leave STARTTLS to the engine: those without a step for it.
pub(super) fn negotiating(sessions: &[UserSession]) -> Vec<bool> {
    sessions.iter().map(|session| !has_starttls(&session.steps)).collect()
}

/// Whether some step uses STARTTLS.
fn has_starttls(steps: &[PlanStep]) -> bool {
    steps.iter().any(|step| match step {
        PlanStep::StartTls => true,
        PlanStep::Repeat { steps, .. }
        | PlanStep::While { steps, .. }
        | PlanStep::If { steps, .. }
        | PlanStep::ForEach { steps, .. }
        | PlanStep::Transaction { steps, .. } => has_starttls(steps),
        _ => false,
    })
}

/// Whether some step may use TLS.
pub(super) fn uses_tls(steps: &[PlanStep]) -> bool {
    steps.iter().any(|step| match step {
        PlanStep::StartTls => true,
        PlanStep::ChangeTarget { security, .. } => *security != TransportSecurity::None,
        PlanStep::Repeat { steps, .. }
        | PlanStep::While { steps, .. }
        | PlanStep::If { steps, .. }
        | PlanStep::ForEach { steps, .. }
        | PlanStep::Transaction { steps, .. } => uses_tls(steps),
        _ => false,
    })
}

impl WorkerEngine<'_> {
    /// Requested security of this user's connection.
    pub(super) fn security(&self, slot: UserSlot) -> TransportSecurity {
        match self.users[slot].extra.as_ref().and_then(|extra| extra.target.as_deref()) {
            Some((_, security)) => *security,
            None => self.plan.target.security,
        }
    }

    /// Whether the received features call for STARTTLS although no step does.
    pub(super) fn needs_starttls(&self, slot: UserSlot) -> bool {
        let user = &self.users[slot];
        let offered = user.login.as_ref().is_some_and(|login| login.features.starttls);
        offered
            && !user.socket.as_ref().is_some_and(crate::socket::Socket::is_secure)
            && self.security(slot) == TransportSecurity::Auto
            && self.negotiating.get(usize::from(user.session)) == Some(&true)
    }

    /// Security and login mechanism of the connection of `slot`, for the report: `STARTTLS, TLSv1.3, SCRAM-SHA-256`.
    pub(super) fn protection(&self, slot: UserSlot) -> String {
        let user = &self.users[slot];
        let tls = match (&user.socket, &user.bosh) {
            (Some(socket), _) => socket.negotiated_tls(),
            (None, Some(bosh)) => bosh.negotiated_tls(),
            (None, None) => None,
        };
        let direct = self.security(slot) == TransportSecurity::Direct;
        let mut text = match (tls, direct) {
            (None, true) => "TLS".to_owned(),
            (None, false) => "no TLS".to_owned(),
            (Some(tls), true) => format!("direct TLS, {}", tls.version),
            (Some(tls), false) => format!("STARTTLS, {}", tls.version),
        };
        let mechanism = user.login.as_ref().map_or("", |login| login.mechanism);
        if !mechanism.is_empty() {
            text.push_str(", ");
            text.push_str(mechanism);
        }
        text
    }

    /// Describes what was tried with the connection of `slot` and what the server offered, for the login failure
    /// message.
    pub(super) fn describe_attempt(&self, slot: UserSlot, kind: &str) -> String {
        let user = &self.users[slot];
        let about = PROTECTION.contains(&kind);
        if !about || self.plan.target.web.transport != StreamTransport::Tcp || !user.is_open() {
            return String::new();
        }
        let configured = self.security(slot);
        let secure = user.socket.as_ref().is_some_and(crate::socket::Socket::is_secure);
        let handshaking = user.wait == WaitState::Handshake;
        let attempted = match (configured, secure || handshaking) {
            (TransportSecurity::Direct, _) => "TLS from the first byte (security direct)",
            (TransportSecurity::Auto, true) => "STARTTLS (security auto)",
            (TransportSecurity::Auto, false) => "no TLS (security auto)",
            (_, true) => "STARTTLS",
            (TransportSecurity::None, false) => "no TLS (security none)",
            (TransportSecurity::Starttls, false) => "STARTTLS (security starttls)",
        };
        let features = user.login.as_ref().map(|login| &login.features).filter(|features| features.known);
        let Some(features) = features else {
            let fix = match configured {
                TransportSecurity::Direct if handshaking => {
                    "; if the port uses STARTTLS, such as 5222, give --security starttls"
                }
                TransportSecurity::None | TransportSecurity::Auto | TransportSecurity::Starttls
                    if matches!(kind, "login:closed" | "login:stream-error") =>
                {
                    "; if the port uses direct TLS, such as 5223, give --security direct"
                }
                _ => "",
            };
            return format!(" (tried: {attempted}; the server offered nothing before that{fix})");
        };
        let mut offers = Vec::new();
        if features.starttls {
            offers.push("STARTTLS".to_owned());
        }
        match features.mechanisms.as_slice() {
            [] => offers.push("no SASL mechanism".to_owned()),
            some => offers.push(some.join(", ")),
        }
        if let Some(types) = &features.bindings {
            offers.push(format!("channel binding {}", types.join(", ")));
        }
        let fix = match (configured, secure, features.starttls) {
            (TransportSecurity::None, false, true) if kind == "login:no-mechanism" => {
                "; omit --security or give --security starttls"
            }
            (TransportSecurity::Starttls, false, false) if kind == "login:no-starttls" => {
                "; give --security none, or --security direct and its port"
            }
            (TransportSecurity::Auto, false, true) if kind == "login:no-mechanism" => {
                "; the steps of the plan log in before their own starttls"
            }
            _ => "",
        };
        format!(" (tried: {attempted}; the server offered: {}{fix})", offers.join(", "))
    }
}
