//! A scripted XMPP server and a driver of workers, to check what the load generator says against what happened.
//!
//! [`server`] keeps its own account ([`script::ServerCounts`]) with code that shares nothing with the project; [`port`] runs
//! workers in threads against it and adds up what they report; [`plans`] writes small plans; [`gateway`] speaks BOSH and
//! WebSocket in front of the server.

pub(crate) mod driver;
pub(crate) mod gateway;
pub(crate) mod plans;
mod protocol;
mod sasl;
pub(crate) mod script;
pub(crate) mod server;
mod sessions;
mod text;
mod wire;

/// Tries all cases at once: a run waits most of its time.
pub(crate) fn each<T: Send>(cases: impl IntoIterator<Item = T>, attempt: impl Fn(T) + Sync) {
    let attempt = &attempt;
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || attempt(case));
        }
    });
}
