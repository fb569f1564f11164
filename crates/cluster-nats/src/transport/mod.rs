//! The task that receives from NATS, sends to it, keeps the time and calls the inbox; and the tasks around it.
//!
//! * **main**: connects, then runs until the node leaves.
//! * **writer**: publishes frames, because publishing waits while the client has no connection. What does not fit into its queue is
//!   dropped and sent again later.
//! * **membership** ([`membership`]): the record of this node, and those of the others.

pub(crate) mod log_limit;
mod membership;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use async_nats::{Client, ClientError, Event, Message, ServerError, Subscriber};
use base::clock::Millis;
use base::spawn::Spawner;
use bytes::Bytes;
use cluster::NodeId;
use futures_core::Stream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::node::{LeaveProgress, Shared};
use crate::protocol::entry::MAX_NODES;
use crate::protocol::frame::MAX_FRAME;
use crate::settings::{MAX_RECONNECT_DELAY, NatsError, NatsSettings};

/// Frames that wait for the client.
const WRITER_CAPACITY: usize = 256;
/// Frames that are written under one lock.
const MAX_POLLED: usize = 16;
/// Messages that are handled before frames are sent.
const MAX_RECEIVED: usize = 64;
/// Longest sleep.
const MAX_SLEEP_MILLIS: u64 = 1_000;
/// Time for handing over what is queued, when the node leaves. Short, because a node that is gone never takes it.
const HAND_OVER_MILLIS: u64 = 1_000;
/// Time for the last items. An item that is lost is sent again within it.
const LAST_ITEMS_MILLIS: u64 = 700;
/// Time within which all other nodes have learnt that this one has left, in milliseconds, if they answer.
pub const LEAVE_MILLIS: u64 = HAND_OVER_MILLIS + LAST_ITEMS_MILLIS;
/// Longest time for the answer of a server that is there.
const ANSWER: Duration = Duration::from_secs(3);

type Frame = (NodeId, Vec<u8>);

/// Runs until the node has left.
pub(crate) async fn run(shared: Arc<Shared>, spawner: Arc<dyn Spawner>) {
    if let Some((client, subscriber)) = Box::pin(connect_until(&shared)).await {
        let (frames, queue) = mpsc::channel(WRITER_CAPACITY);
        spawner.spawn("cluster writer", Box::pin(write(shared.clone(), client.clone(), queue)));
        let record = membership::keep_record(shared.clone(), client.clone());
        spawner.spawn("cluster record", Box::pin(record));
        spawner.spawn("cluster members", Box::pin(membership::watch(shared.clone(), client.clone())));
        run_connected(&shared, subscriber, &frames).await;
        membership::remove_record(&shared, &client).await;
        drop(frames);
    }
    shared.core.finish_leave();
    shared.core.run_calls();
    shared.leave.send_replace(LeaveProgress::Done);
}

/// Connects, again and again. None if the node leaves before.
async fn connect_until(shared: &Arc<Shared>) -> Option<(Client, Subscriber)> {
    let mut leave = shared.leave.subscribe();
    let mut failures = 0_u64;
    loop {
        let wait = tokio::select! {
            _ = leave.wait_for(|progress| *progress != LeaveProgress::Member) => return None,
            connected = connect(shared) => match connected {
                Ok(connected) => return Some(connected),
                Err(error) => {
                    shared.connected.store(false, Ordering::Release);
                    shared.refused.store(matches!(error, NatsError::Refused), Ordering::Release);
                    if failures.is_power_of_two() || failures == 0 {
                        tracing::error!(%error, "no connection to the cluster; this node is alone until there is one");
                    }
                    failures += 1;
                    MAX_RECONNECT_DELAY
                }
            },
        };
        tokio::select! {
            _ = leave.wait_for(|progress| *progress != LeaveProgress::Member) => return None,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn connect(shared: &Arc<Shared>) -> Result<(Client, Subscriber), NatsError> {
    let settings = &shared.settings;
    let (options, addresses) = settings.options()?;
    let events = shared.clone();
    let options = options.event_callback(move |event| {
        on_event(&events, &event);
        std::future::ready(())
    });
    let client =
        Box::pin(options.connect(addresses)).await.map_err(|error| settings.connect_error(&error))?;
    let max_payload = client.server_info().max_payload;
    if max_payload < MAX_FRAME {
        return Err(NatsError::MaxPayload(max_payload));
    }
    let subject = settings.subject(settings.node);
    let subscribed = client.subscribe(subject).await;
    let subscriber = subscribed.map_err(|error| NatsError::Unreachable {
        servers: settings.shown_servers(),
        reason: error.to_string(),
    })?;
    set_connected(shared, true);
    Ok((client, subscriber))
}

fn on_event(shared: &Shared, event: &Event) {
    match event {
        Event::Connected => set_connected(shared, true),
        Event::Disconnected | Event::Closed => set_connected(shared, false),
        event => {
            if matches!(event, Event::ServerError(_)) {
                shared.server_errors.fetch_add(1, Ordering::AcqRel);
            }
            if is_refusal(event) {
                // Once for each time that they are refused: the client tries again and again.
                if !shared.refused.swap(true, Ordering::AcqRel) {
                    tracing::error!(
                        %event,
                        "NATS refuses the credentials of this node, or they have expired; renew them in [cluster] or in NATS, and restart this node if they are in [cluster]"
                    );
                }
                return;
            }
            let Some(left_out) = shared.error_lines.permit(shared.clock.now()) else { return };
            if let Event::SlowConsumer(_) = event {
                tracing::warn!(
                    left_out,
                    "messages of other nodes arrive faster than they are handled; they are sent again"
                );
            } else {
                tracing::warn!(%event, left_out, "the connection to NATS");
            }
        }
    }
}

/// Whether the server does not accept the credentials, or not any more. The client passes the server's text on for most reasons
/// (`User Authentication Expired`, `User Authentication Revoked`), and an attempt to connect as an error of its own.
fn is_refusal(event: &Event) -> bool {
    match event {
        Event::ServerError(ServerError::AuthorizationViolation) => true,
        Event::ServerError(ServerError::Other(text)) | Event::ClientError(ClientError::Other(text)) => {
            let text = text.to_ascii_lowercase();
            text.contains("authentication") || text.contains("authorization")
        }
        _ => false,
    }
}

fn set_connected(shared: &Shared, connected: bool) {
    if connected {
        shared.refused.store(false, Ordering::Release);
    }
    if shared.connected.swap(connected, Ordering::AcqRel) == connected {
        return;
    }
    if connected {
        tracing::info!(servers = shared.settings.shown_servers(), "connected to the cluster");
        shared.connections.send_modify(|count| *count += 1);
        shared.core.reconnected(shared.clock.now());
    } else if *shared.leave.borrow() == LeaveProgress::Member {
        tracing::error!("the connection to the cluster is lost");
    }
    shared.wake.notify_one();
}

/// When the node leaves: what is awaited until when.
#[derive(Clone, Copy)]
enum LeaveStep {
    None,
    HandsOver(Millis),
    SendsLast(Millis),
}

async fn run_connected(shared: &Arc<Shared>, mut subscriber: Subscriber, frames: &mpsc::Sender<Frame>) {
    let core = &shared.core;
    let mut leave = shared.leave.subscribe();
    let mut step = LeaveStep::None;
    loop {
        core.run_calls();
        let now = shared.clock.now();
        let connected = shared.connected.load(Ordering::Acquire);
        match step {
            LeaveStep::None if *leave.borrow_and_update() == LeaveProgress::Requested => {
                core.begin_leave();
                step = LeaveStep::HandsOver(now.plus(HAND_OVER_MILLIS));
            }
            LeaveStep::HandsOver(until) if core.send_leave(now >= until || !connected) => {
                step = LeaveStep::SendsLast(now.plus(LAST_ITEMS_MILLIS));
            }
            LeaveStep::SendsLast(until) if core.is_sent() || now >= until || !connected => return,
            _ => {}
        }
        // Each node may have one more frame than the budget.
        let room = frames.capacity().saturating_sub(MAX_NODES).min(MAX_POLLED);
        let output = core.poll(now, room, connected && room > 0);
        for frame in output.frames {
            // Dropped if the client is slow: it is sent again.
            let _ = frames.try_send(frame);
        }
        core.run_calls();
        let mut sleep = output.wake_at.since(now).min(MAX_SLEEP_MILLIS);
        if matches!(step, LeaveStep::HandsOver(_) | LeaveStep::SendsLast(_)) || connected && room == 0 {
            sleep = sleep.min(5);
        }
        tokio::select! {
            biased;
            messages = receive(&mut subscriber) => {
                if messages.is_empty() {
                    // The client was closed: nothing is received any more.
                    set_connected(shared, false);
                    let _ = leave.wait_for(|progress| *progress != LeaveProgress::Member).await;
                    return;
                }
                for message in messages {
                    if core.receive(shared.clock.now(), &message.payload) {
                        shared.echoes.send_modify(|count| *count += 1);
                    }
                }
            }
            () = shared.wake.notified() => {}
            _ = leave.changed() => {}
            () = tokio::time::sleep(Duration::from_millis(sleep)) => {}
        }
    }
}

/// Waits for messages, and returns those that are there; none after the last one.
async fn receive(subscriber: &mut Subscriber) -> Vec<Message> {
    std::future::poll_fn(|context| {
        let mut messages = Vec::new();
        while messages.len() < MAX_RECEIVED {
            match Pin::new(&mut *subscriber).poll_next(context) {
                Poll::Ready(Some(message)) => messages.push(message),
                Poll::Pending if messages.is_empty() => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(messages)
    })
    .await
}

async fn write(shared: Arc<Shared>, client: Client, mut frames: mpsc::Receiver<Frame>) {
    while let Some((node, frame)) = frames.recv().await {
        if let Err(error) = client.publish(shared.settings.subject(node), frame.into()).await {
            tracing::debug!(%error, %node, "a frame was not published");
        }
    }
}

/// Connects once, and checks what the cluster needs of NATS.
///
/// # Errors
/// What is missing.
pub async fn check_connection(settings: &NatsSettings) -> Result<(), NatsError> {
    let (options, addresses) = settings.options()?;
    let client =
        Box::pin(options.connect(addresses)).await.map_err(|error| settings.connect_error(&error))?;
    let max_payload = client.server_info().max_payload;
    if max_payload < MAX_FRAME {
        return Err(NatsError::MaxPayload(max_payload));
    }
    let context = async_nats::jetstream::new(client.clone());
    let account = context.query_account().await;
    account.map_err(|error| NatsError::JetStream(error.to_string()))?;
    check_subject(settings, &client).await?;
    Box::pin(membership::check_bucket(settings, &client)).await
}

/// Sends a message to the subject of the node, and waits for it.
async fn check_subject(settings: &NatsSettings, client: &Client) -> Result<(), NatsError> {
    let subject = settings.subject(settings.node);
    let echo = async {
        let mut subscriber = client.subscribe(subject.clone()).await.ok()?;
        client.publish(subject.clone(), Bytes::new()).await.ok()?;
        std::future::poll_fn(|context| Pin::new(&mut subscriber).poll_next(context)).await
    };
    match timeout(ANSWER, echo).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) | Err(_) => Err(NatsError::Subject(subject)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_and_expired_credentials_are_recognised() {
        let server = |text: &str| Event::ServerError(ServerError::Other(text.to_owned()));
        for event in [
            Event::ServerError(ServerError::AuthorizationViolation),
            server("user authentication expired"),
            server("User Authentication Revoked"),
            server("account authentication expired"),
            Event::ClientError(ClientError::Other("authorization violation".to_owned())),
        ] {
            assert!(is_refusal(&event), "{event}");
        }
        let denied = "permissions violation for publish to \"throng.x\"";
        for event in [server(denied), server("maximum connections exceeded"), Event::Connected] {
            assert!(!is_refusal(&event), "{event}");
        }
    }
}
