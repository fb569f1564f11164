//! Store of resumable TLS sessions (RFC 8446, section 2.2; RFC 5077), shared by all users of a
//! [`super::SharedTlsClient`].
//!
//! The store of rustls keeps 8 tickets per server name, which a burst of logins uses up at once, since all users of a
//! load run share the name. This one keeps [`TICKETS`]. A ticket is used once, the newest first.
//!
//! Not implemented: lifetimes; rustls checks them when it takes a ticket.
//!
//! # Pitfalls
//!
//! A ticket also stands for the client certificate of its first handshake. Users with different certificates need
//! different `SharedTlsClient`s (rustls refuses to mix them).

use std::collections::{HashMap, VecDeque};
use std::sync::PoisonError;
#[allow(
    clippy::disallowed_types,
    reason = "rustls wants Sync; one worker is one thread, so it is never contended"
)]
use std::sync::{Mutex, MutexGuard};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Maximum number of tickets per server name, about 1 kB each.
const TICKETS: usize = 512;
/// Maximum number of server names; a run has one per XMPP domain.
const NAMES: usize = 64;

#[derive(Default)]
struct ServerTickets {
    group: Option<NamedGroup>,
    session: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

/// Sessions by server name.
#[derive(Default)]
#[allow(clippy::disallowed_types, reason = "see above")]
pub(super) struct SessionTickets {
    servers: Mutex<HashMap<ServerName<'static>, ServerTickets>>,
}

impl SessionTickets {
    #[allow(clippy::disallowed_types, reason = "see above")]
    fn servers(&self) -> MutexGuard<'_, HashMap<ServerName<'static>, ServerTickets>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn edit(&self, name: ServerName<'static>, change: impl FnOnce(&mut ServerTickets)) {
        let mut servers = self.servers();
        if servers.len() >= NAMES && !servers.contains_key(&name) {
            servers.clear();
        }
        change(servers.entry(name).or_default());
    }
}

impl std::fmt::Debug for SessionTickets {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The contents are secrets.
        to.debug_struct("Tickets").finish_non_exhaustive()
    }
}

impl ClientSessionStore for SessionTickets {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.edit(name, |server| server.group = Some(group));
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.servers().get(name).and_then(|server| server.group)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.edit(name, |server| server.session = Some(value));
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.servers().get(name).and_then(|server| server.session.clone())
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        if let Some(server) = self.servers().get_mut(name) {
            server.session = None;
        }
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.edit(name, |server| {
            if server.tickets.len() >= TICKETS {
                server.tickets.pop_front();
            }
            server.tickets.push_back(value);
        });
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.servers().get_mut(name).and_then(|server| server.tickets.pop_back())
    }
}
