//! Logins, many to a statement: whoever is waiting is asked for together.
//!
//! A visit to SQLite's thread costs five times what the reading itself costs, so a task per lane takes all waiting logins
//! and sends one statement for them. Nobody shares more than the visit: each login has its own answer and deadline.
//!
//! What a lane keeps from one turn to the next is room for that many requests, not what they were answered.
//!
//! The trap for the next person: two lanes make smaller groups and so cost more; more lanes help only when reads wait for
//! a disk or a network.
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use base::Spawner;
use store::{AddressId, Fut, Secrets, StoreError};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::dialect::{Conn, Pool, Sizes};
use crate::fault;
use crate::gather::Gather;
use crate::kit::Kit;
use crate::tables::logins::{self as tables, Block};

/// Logins in one statement; those that wait for their proof and those after it have a statement each.
const MOST: usize = 64;

pub(crate) struct Lanes {
    queue: mpsc::Sender<Request>,
    deadline: Duration,
}

struct Ask<K, T> {
    account: K,
    answer: oneshot::Sender<Result<Option<T>, StoreError>>,
}

enum Request {
    Secrets(Ask<Box<str>, Secrets>),
    Login(Ask<AddressId, Block>),
    Close,
}

impl Lanes {
    pub(crate) fn start(pool: Pool, kit: Arc<Kit>, spawner: &dyn Spawner, options: &crate::Options) -> Lanes {
        let (queue, waiting) = mpsc::channel(options.queue.max(1));
        let waiting = Arc::new(Mutex::new((waiting, Gather::new(options.login_gather, MOST))));
        for _ in 0..options.login_lanes.max(1) {
            spawner.spawn("store-logins", Box::pin(lane(pool.clone(), kit.clone(), waiting.clone())));
        }
        Lanes { queue, deadline: options.read_deadline }
    }

    /// Logins that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.max_capacity().saturating_sub(self.queue.capacity())
    }

    /// Answers what waits, then takes nothing more. The lanes let go of their connections soon after.
    pub(crate) async fn close(&self) {
        // An error means that the lanes are gone, which is what was asked for.
        let _ = self.queue.send(Request::Close).await;
    }

    pub(crate) fn secrets(&self, account: &str) -> Fut<'_, Option<Secrets>> {
        let (answer, wait) = oneshot::channel();
        self.ask(Request::Secrets(Ask { account: account.into(), answer }), wait)
    }

    pub(crate) fn login(&self, account: AddressId) -> Fut<'_, Option<Block>> {
        let (answer, wait) = oneshot::channel();
        self.ask(Request::Login(Ask { account, answer }), wait)
    }

    fn ask<T: Send + 'static>(
        &self,
        request: Request,
        wait: oneshot::Receiver<Result<Option<T>, StoreError>>,
    ) -> Fut<'_, Option<T>> {
        let queued = self.queue.try_send(request).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => fault::overloaded(),
            mpsc::error::TrySendError::Closed(_) => fault::unavailable(),
        });
        let deadline = self.deadline;
        Box::pin(async move {
            queued?;
            match tokio::time::timeout(deadline, wait).await {
                Ok(answer) => answer.map_err(|_| fault::unavailable())?,
                Err(_) => Err(fault::late()),
            }
        })
    }
}

async fn lane(pool: Pool, kit: Arc<Kit>, waiting: Arc<Mutex<(mpsc::Receiver<Request>, Gather)>>) {
    let mut requests: Vec<Request> = Vec::with_capacity(MOST);
    let mut secrets: Vec<Ask<Box<str>, Secrets>> = Vec::new();
    let mut logins: Vec<Ask<AddressId, Block>> = Vec::new();
    let mut held: Option<Conn> = None;
    loop {
        {
            let mut waiting = waiting.lock().await;
            let (queue, gather) = &mut *waiting;
            if !gather.take(queue, &mut requests).await {
                return;
            }
            for request in requests.drain(..) {
                match request {
                    Request::Secrets(ask) => secrets.push(ask),
                    Request::Login(ask) => logins.push(ask),
                    Request::Close => queue.close(),
                }
            }
        }
        secrets.retain(|ask| !ask.answer.is_closed());
        logins.retain(|ask| !ask.answer.is_closed());
        debug_assert!(secrets.len().max(logins.len()) <= Sizes::MOST);
        if !secrets.is_empty() {
            let found = match connection(&mut held, &pool, &kit).await {
                Ok(mut conn) => {
                    let accounts: Vec<&str> = secrets.iter().map(|ask| ask.account.as_ref()).collect();
                    let found = tables::secrets(&mut conn, &accounts).await;
                    // After a failure the pool decides whether the connection is still good.
                    held = found.is_ok().then_some(conn);
                    found
                }
                Err(error) => Err(error),
            };
            answer(&mut secrets, found);
        }
        if !logins.is_empty() {
            let found = match connection(&mut held, &pool, &kit).await {
                Ok(mut conn) => {
                    let accounts: Vec<_> = logins.iter().map(|ask| ask.account).collect();
                    let found = tables::logins(&mut conn, &accounts).await;
                    held = found.is_ok().then_some(conn);
                    found
                }
                Err(error) => Err(error),
            };
            answer(&mut logins, found);
        }
    }
}

async fn connection(held: &mut Option<Conn>, pool: &Pool, kit: &Arc<Kit>) -> Result<Conn, StoreError> {
    match held.take() {
        Some(conn) => Ok(conn),
        None => pool.acquire(kit).await,
    }
}

fn answer<K: Eq + Hash, T: Clone>(
    asks: &mut Vec<Ask<K, T>>,
    found: Result<tables::Found<K, Option<T>>, StoreError>,
) {
    let mut found: HashMap<K, Result<Option<T>, StoreError>> = match found {
        Ok(found) => found.into_iter().collect(),
        Err(error) => {
            for ask in asks.drain(..) {
                let _ = ask.answer.send(Err(fault::again(&error)));
            }
            return;
        }
    };
    while let Some(ask) = asks.pop() {
        // The same account may be asked for twice; only the last asker may take the answer away.
        let more = asks.iter().any(|other| other.account == ask.account);
        let answer = if more {
            found.get(&ask.account).map(|found| match found {
                Ok(found) => Ok(found.clone()),
                Err(error) => Err(fault::again(error)),
            })
        } else {
            found.remove(&ask.account)
        };
        let _ = ask.answer.send(answer.unwrap_or(Ok(None)));
    }
}
