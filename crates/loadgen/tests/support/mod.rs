//! Scripted XMPP server and driver of workers, to check the load generator's measurements against what happened.
//!
//! [`server`] keeps its own counts ([`script::ServerCounts`]) with code independent of the project; [`driver`] runs
//! workers in threads against it and adds up their reports; [`plans`] builds small plans; [`gateway`] speaks BOSH and
//! WebSocket in front of the server.

pub(crate) mod driver;
pub(crate) mod gateway;
mod nodes;
pub(crate) mod plans;
mod protocol;
mod rooms;
mod sasl;
pub(crate) mod script;
pub(crate) mod server;
mod sessions;
mod text;
mod wire;

/// Runs all cases in parallel, since a run mostly waits.
pub(crate) fn each<T: Send>(cases: impl IntoIterator<Item = T>, attempt: impl Fn(T) + Sync) {
    let attempt = &attempt;
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || attempt(case));
        }
    });
}
