//! Worker's end of the connection to its controller: never blocks, buffers unsent data.
//!
//! # Pitfalls
//!
//! A controller that is gone or stops reading must end the worker, or orphaned workers keep loading a server. The end
//! of the stream is therefore an error here, and so is a full connection that did not move for half a minute.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::framing::{self, AFTER_AUTH, FrameDecoder};
use super::handshake::{ControllerMessage, WorkerMessage};
use super::message::{WorkerCommand, WorkerReport};
use crate::clock;
use crate::engine::ControllerPort;

/// Time for which the controller may leave everything unread, in microseconds.
const TIMEOUT_US: u64 = 30_000_000;
/// Bytes buffered for a controller that does not read; a single report may be as long as a frame.
const KEPT: usize = 2 * AFTER_AUTH;

/// Non-blocking connection to the controller.
pub(crate) struct ControllerConnection {
    stream: TcpStream,
    inbox: FrameDecoder,
    outbox: Vec<u8>,
    /// Bytes of `outbox` that are written.
    written: usize,
    /// Time at which the outbox last shrank or was empty.
    moved_us: u64,
}

impl ControllerConnection {
    /// Wraps a connection on which the assignment has been received.
    pub(crate) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nonblocking(true)?;
        let moved_us = clock::now_us();
        Ok(Self { stream, inbox: FrameDecoder::default(), outbox: Vec::new(), written: 0, moved_us })
    }

    fn flush(&mut self) -> Result<()> {
        while self.written < self.outbox.len() {
            match self.stream.write(&self.outbox[self.written..]) {
                Ok(0) => bail!("the connection to the controller was lost"),
                Ok(n) => {
                    self.written += n;
                    self.moved_us = clock::now_us();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if clock::now_us().saturating_sub(self.moved_us) > TIMEOUT_US {
                        bail!("the controller has stopped reading");
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the connection to the controller was lost"),
            }
        }
        self.outbox.clear();
        self.outbox.shrink_to(64 << 10);
        self.written = 0;
        self.moved_us = clock::now_us();
        Ok(())
    }

    /// Writes the rest, blocking, and waits until the controller has read everything.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(Duration::from_micros(TIMEOUT_US)))?;
        self.stream
            .write_all(&self.outbox[self.written..])
            .context("the connection to the controller was lost")?;
        self.stream.shutdown(Shutdown::Write)?;
        // Closing with unread commands would reset the connection and lose the last report.
        let deadline = clock::now_us() + TIMEOUT_US;
        let mut rest = framing::DeadlineReader { stream: &self.stream, deadline };
        let _ = io::copy(&mut rest, &mut io::sink());
        Ok(())
    }
}

impl ControllerPort for ControllerConnection {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.as_fd())
    }

    fn receive(&mut self) -> Result<Vec<WorkerCommand>> {
        self.flush()?;
        let mut buffer = [0; 16 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => bail!("the connection to the controller was lost"),
                Ok(n) => self.inbox.push(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the connection to the controller was lost"),
            }
        }
        let mut commands = Vec::new();
        while let Some(frame) = self.inbox.next()? {
            match frame {
                ControllerMessage::Command(command) => commands.push(command),
                ControllerMessage::Ping(number) => {
                    self.outbox.extend(framing::encode(&WorkerMessage::Pong(number))?)
                }
                ControllerMessage::Assignment(_) => bail!("the controller sent a second plan"),
            }
        }
        Ok(commands)
    }

    fn send(&mut self, report: WorkerReport) -> Result<()> {
        self.outbox.extend(framing::encode(&WorkerMessage::Report(report))?);
        if self.outbox.len() - self.written > KEPT {
            bail!("the controller reads too slowly");
        }
        self.flush()
    }
}
