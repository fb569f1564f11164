//! Messages that all clients send to all users during a fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use crate::managed_client::ManagedClient;

/// Time between two rounds.
const ROUND: Duration = Duration::from_millis(400);

/// A thread that sends until it is stopped.
pub(crate) struct Traffic {
    stopped: Arc<AtomicBool>,
    rounds: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    /// Each client sends a message to each of the users in each round, except to its own. Rounds are numbered from
    /// `first`.
    pub(crate) fn start(first: u32, clients: Vec<Arc<ManagedClient>>, users: Vec<&'static str>) -> Traffic {
        let (stopped, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(first)));
        let (stop, round) = (stopped.clone(), rounds.clone());
        let thread = spawn(move || {
            while !stop.load(Ordering::Acquire) {
                let number = round.load(Ordering::Acquire);
                for client in &clients {
                    for user in users.iter().filter(|user| **user != client.user) {
                        client.send_message(user, &format!("{}-{user}-{number}", client.user));
                    }
                }
                round.store(number + 1, Ordering::Release);
                sleep(ROUND);
            }
        });
        Traffic { stopped, rounds, thread: Some(thread) }
    }

    /// Rounds so far.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.load(Ordering::Acquire)
    }

    /// Sends no more; returns the number of the next round.
    pub(crate) fn stop(mut self) -> u32 {
        self.stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the traffic");
        }
        self.rounds()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
    }
}
