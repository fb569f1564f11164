//! Controller's threads for each joined worker: one reads its reports, one writes its commands.
//!
//! Both queues are bounded. A full report queue blocks the reader, and through TCP the worker; a full command queue
//! means that the worker has stopped reading, and it counts as lost.
//!
//! # Pitfalls
//!
//! The start is a delay; it is computed when it is written, not when it was decided.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use anyhow::Result;

use super::framing::{self, AFTER_AUTH};
use super::handshake::{ControllerMessage, JoinedWorker, WorkerMessage};
use super::message::{Assignment, WorkerCommand, WorkerReport};
use crate::clock;

/// Capacity of a worker's command queue: several minutes of one-second changes of all other workers.
const COMMANDS: usize = 512;
/// Time for which a worker may leave its commands unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Event from the threads to the controller.
pub(crate) enum ControllerEvent {
    /// A report of a worker.
    Report(u16, WorkerReport),
    /// A worker's connection ended, and why.
    Lost(u16, String),
    /// A stderr line of a local worker.
    WorkerOutput(String),
}

/// Connection of one worker.
pub(crate) struct WorkerConnection {
    stream: TcpStream,
    commands: Option<SyncSender<ControllerMessage>>,
}

impl WorkerConnection {
    /// Starts the threads; the assignment is written first.
    pub(crate) fn new(
        number: u16,
        joined: JoinedWorker,
        assignment: Assignment,
        events: SyncSender<ControllerEvent>,
    ) -> Result<Self> {
        let JoinedWorker { stream, half_trip_us, .. } = joined;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let (commands, queue) = sync_channel(COMMANDS);
        // The queue is empty and has room.
        let _ = commands.try_send(ControllerMessage::Assignment(Box::new(assignment)));
        let (reading, writing) = (stream.try_clone()?, stream.try_clone()?);
        let lost = events.clone();
        std::thread::spawn(move || read(number, reading, events));
        std::thread::spawn(move || write(number, writing, queue, half_trip_us, lost));
        Ok(Self { stream, commands: Some(commands) })
    }

    /// Sends a command; an error means that the worker does not read.
    pub(crate) fn send(&self, command: WorkerCommand) -> std::result::Result<(), &'static str> {
        let Some(commands) = &self.commands else { return Ok(()) };
        match commands.try_send(ControllerMessage::Command(command)) {
            // The writer has ended and reported why.
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full(_)) => Err("it has stopped reading commands"),
        }
    }

    /// Closes the connection.
    pub(crate) fn close(&mut self) {
        self.commands = None;
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Drop for WorkerConnection {
    fn drop(&mut self) {
        self.close();
    }
}

fn read(number: u16, stream: TcpStream, events: SyncSender<ControllerEvent>) {
    let mut reader = std::io::BufReader::with_capacity(64 << 10, stream);
    let reason = loop {
        match framing::read(&mut reader, AFTER_AUTH) {
            Ok(Some(WorkerMessage::Report(report))) => {
                if events.send(ControllerEvent::Report(number, report)).is_err() {
                    return;
                }
            }
            Ok(Some(WorkerMessage::Pong(_))) => {}
            Ok(Some(WorkerMessage::Hello(_))) => break "it introduced itself twice".to_owned(),
            Ok(None) => break "its connection ended".to_owned(),
            Err(error) => break format!("{error:#}"),
        }
    };
    let _ = events.send(ControllerEvent::Lost(number, reason));
}

fn write(
    number: u16,
    mut stream: TcpStream,
    queue: Receiver<ControllerMessage>,
    half_trip_us: u64,
    lost: SyncSender<ControllerEvent>,
) {
    while let Ok(mut down) = queue.recv() {
        if let ControllerMessage::Command(WorkerCommand::Start { in_us, at_us }) = &mut down {
            *in_us = start_in(*at_us, clock::now_us(), half_trip_us);
        }
        let written = framing::encode(&down).and_then(|bytes| Ok(stream.write_all(&bytes)?));
        if let Err(error) = written {
            let _ = lost.send(ControllerEvent::Lost(number, format!("cannot send to it: {error:#}")));
            return;
        }
    }
}

/// Start delay for a worker so that it begins at `at_us`, given that the message takes half a round trip.
fn start_in(at_us: u64, now: u64, half_trip_us: u64) -> u64 {
    at_us.saturating_sub(now).saturating_sub(half_trip_us)
}

#[cfg(test)]
mod tests {
    use super::start_in;

    #[test]
    fn the_start_delay_is_corrected_by_the_network_latency() {
        // Sent at 1 000 and received 300 later, it begins 8 700 after that: at 10 000.
        assert_eq!(start_in(10_000, 1_000, 300), 8_700);
        assert_eq!(1_000 + 300 + start_in(10_000, 1_000, 300), 10_000);
        // Already too late: at once.
        assert_eq!(start_in(10_000, 10_001, 300), 0);
    }
}
