//! Bytes of one connection: counted, and encrypted if scripted.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

pub(crate) struct CountedStream {
    stream: TcpStream,
    tls: Option<Box<ServerConnection>>,
    /// Bytes not yet accepted by the kernel.
    pending: Vec<u8>,
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

impl CountedStream {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nonblocking(true).expect("a socket can be made non-blocking");
        stream.set_nodelay(true).expect("a socket has TCP_NODELAY");
        Self { stream, tls: None, pending: Vec::new(), received: 0, sent: 0 }
    }

    pub(crate) fn start_tls(&mut self, config: &Arc<ServerConfig>) {
        let tls = ServerConnection::new(Arc::clone(config)).expect("the configuration is complete");
        self.tls = Some(Box::new(tls));
    }

    /// Appends received plain text. False at the end of the stream, clean or not.
    pub(crate) fn read(&mut self, plain: &mut Vec<u8>) -> bool {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            self.received += count as u64;
            let mut data = &buffer[..count];
            let Some(tls) = &mut self.tls else {
                plain.extend_from_slice(data);
                continue;
            };
            while !data.is_empty() {
                if tls.read_tls(&mut data).is_err() || tls.process_new_packets().is_err() {
                    return false;
                }
                // It ends with WouldBlock or the peer's close_notify; in both cases nothing is left.
                let _ = tls.reader().read_to_end(plain);
            }
            self.encrypted();
        }
    }

    fn encrypted(&mut self) {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                tls.write_tls(&mut self.pending).expect("a vector takes everything");
            }
        }
    }

    /// Queues plain text.
    pub(crate) fn write(&mut self, plain: &[u8]) {
        match &mut self.tls {
            Some(tls) => {
                tls.writer().write_all(plain).expect("the buffer is not limited");
                self.encrypted();
            }
            None => self.pending.extend_from_slice(plain),
        }
    }

    /// Writes as much as the kernel accepts. False if the peer is gone.
    pub(crate) fn flush(&mut self) -> bool {
        let mut done = 0;
        let alive = loop {
            if done == self.pending.len() {
                break true;
            }
            match self.stream.write(&self.pending[done..]) {
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        self.sent += done as u64;
        self.pending.drain(..done);
        alive
    }

    pub(crate) fn waits(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Sends close_notify and FIN.
    pub(crate) fn finish(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        self.encrypted();
        self.flush();
        // Fails if the peer has closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Sends RST.
    pub(crate) fn reset(self) {
        let none = Some(std::time::Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&self.stream, none).expect("a socket has SO_LINGER");
    }
}

impl AsFd for CountedStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
