//! Logins, many to a statement: whoever is waiting is asked for together.
//!
//! A visit to SQLite's thread costs five times what the reading itself costs, so a task per lane takes all waiting logins
//! and sends one statement for them. Nobody shares more than the visit: each login has its own answer and deadline.
//!
//! The trap for the next person: two lanes make smaller groups and so cost more; more lanes help only when reads wait for
//! a disk or a network.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base::Spawner;
use store::{Fut, Login, StoreError};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::dialect::{Conn, Pool, Sizes};
use crate::fault;
use crate::gather::Gather;
use crate::kit::Kit;
use crate::tables::logins;

/// Logins in one statement.
const MOST: usize = 64;

pub(crate) struct Lanes {
    queue: mpsc::Sender<Request>,
    deadline: Duration,
}

struct Ask {
    account: Box<str>,
    answer: oneshot::Sender<Result<Option<Login>, StoreError>>,
}

enum Request {
    Login(Ask),
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

    pub(crate) fn login(&self, account: &str) -> Fut<'_, Option<Login>> {
        let (answer, wait) = oneshot::channel();
        let queued = self.queue.try_send(Request::Login(Ask { account: account.into(), answer }));
        let queued = queued.map_err(|refused| match refused {
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
    let mut asks: Vec<Ask> = Vec::with_capacity(MOST);
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
                    Request::Login(ask) => asks.push(ask),
                    Request::Close => queue.close(),
                }
            }
        }
        asks.retain(|ask| !ask.answer.is_closed());
        if asks.is_empty() {
            continue;
        }
        debug_assert!(asks.len() <= Sizes::MOST);
        let conn = match held.take() {
            Some(conn) => Ok(conn),
            None => pool.acquire(&kit).await,
        };
        let found = match conn {
            Ok(mut conn) => {
                let accounts: Vec<&str> = asks.iter().map(|ask| ask.account.as_ref()).collect();
                let found = logins::read(&mut conn, &accounts).await;
                // After a failure the pool decides whether the connection is still good.
                held = found.is_ok().then_some(conn);
                found
            }
            Err(error) => Err(error),
        };
        answer(&mut asks, found);
    }
}

type Found = Vec<(Box<str>, Result<Login, StoreError>)>;

fn answer(asks: &mut Vec<Ask>, found: Result<Found, StoreError>) {
    let mut found: HashMap<Box<str>, Result<Login, StoreError>> = match found {
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
        let login = if more {
            found.get(&ask.account).map(|login| match login {
                Ok(login) => Ok(login.clone()),
                Err(error) => Err(fault::again(error)),
            })
        } else {
            found.remove(&ask.account)
        };
        let _ = ask.answer.send(login.transpose());
    }
}
