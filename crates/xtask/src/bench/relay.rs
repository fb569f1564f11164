//! The floor that a server is compared with: a plain tokio relay that checks and parses nothing.
//!
//! A client sends one line with its name and gets `<ok/>`. After that every `…</message>` goes to the connection named in
//! its `to='…'`, each with a write of its own, and every `…</presence>` is written as it is to all other connections.
//! There is no XML, no authentication, no storage, no flow control and no order between writers beyond the lock of a socket.
//!
//! It is meant to be naive: one task a connection, a buffer a task, `write_all` for each message. Coalescing reads and writes can beat it.
//! It ends when its standard input closes, so that a killed bench leaves no relay behind.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;

use memchr::memmem;
use parking_lot::RwLock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use super::report::print_progress;

/// The flags of `xtask relay`.
#[derive(clap::Args)]
pub(crate) struct RelayArgs {
    /// Where to listen, HOST:PORT.
    #[arg(long)]
    listen: String,
}

type RelayPeer = Arc<Mutex<OwnedWriteHalf>>;
type RelayPeers = Arc<RwLock<HashMap<Vec<u8>, RelayPeer>>>;

/// The largest message; a longer one ends the connection.
const MAX_MESSAGE_BYTES: usize = 65_536;
/// A task's buffer to begin with.
const INITIAL_BUFFER_BYTES: usize = 4_096;

/// Runs the relay until its standard input closes.
pub(crate) fn run(args: &RelayArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build();
    let result = runtime.and_then(|runtime| {
        runtime.block_on(async {
            tokio::select! {
                result = accept(&args.listen) => result,
                () = closed_stdin() => Ok(()),
            }
        })?;
        runtime.shutdown_background();
        Ok(())
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_progress(&format!("relay on {}: {error}", args.listen));
            ExitCode::FAILURE
        }
    }
}

async fn closed_stdin() {
    let mut byte = [0; 16];
    while matches!(tokio::io::stdin().read(&mut byte).await, Ok(n) if n > 0) {}
}

async fn accept(listen: &str) -> std::io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    let peers = RelayPeers::default();
    loop {
        let (stream, _) = listener.accept().await?;
        let peers = Arc::clone(&peers);
        #[allow(clippy::disallowed_methods, reason = "a program of its own; its runtime ends with it")]
        tokio::spawn(async move {
            let mut name = None;
            // A connection that ends or misbehaves is closed; nobody is told.
            let _ = serve(stream, &peers, &mut name).await;
            if let Some(name) = name {
                peers.write().remove(&name);
            }
        });
    }
}

async fn serve(stream: TcpStream, peers: &RelayPeers, name: &mut Option<Vec<u8>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut reader, writer) = stream.into_split();
    let writer: RelayPeer = Arc::new(Mutex::new(writer));
    let mut buffer = vec![0; INITIAL_BUFFER_BYTES];
    let mut filled = 0;
    let mut crowd: Option<Vec<RelayPeer>> = None;
    let message_end = memmem::Finder::new(b"</message>");
    let presence_end = memmem::Finder::new(b"</presence>");
    let to = memmem::Finder::new(b"to='");
    loop {
        if filled == buffer.len() {
            if filled >= MAX_MESSAGE_BYTES {
                return Ok(());
            }
            buffer.resize(filled * 2, 0);
        }
        let read = reader.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        let mut at = 0;
        if name.is_none() {
            let Some(line) = memchr::memchr(b'\n', &buffer[..filled]) else { continue };
            let own = buffer[..line].to_vec();
            peers.write().insert(own.clone(), Arc::clone(&writer));
            *name = Some(own);
            at = line + 1;
            writer.lock().await.write_all(b"<ok/>").await?;
        }
        while at < filled {
            let rest = &buffer[at..filled];
            if rest.starts_with(b"<presence") {
                let Some(end) = presence_end.find(rest) else { break };
                let bytes = &rest[..end + b"</presence>".len()];
                // The crowd is taken once: the same sockets each time, as the server's contacts are.
                let crowd = crowd.get_or_insert_with(|| other_peers(peers, name.as_deref()));
                for peer in crowd.iter() {
                    peer.lock().await.write_all(bytes).await?;
                }
                at += bytes.len();
            } else {
                let Some(end) = message_end.find(rest) else { break };
                let bytes = &rest[..end + b"</message>".len()];
                let peer = recipient(bytes, &to).and_then(|to| peers.read().get(to).cloned());
                if let Some(peer) = peer {
                    peer.lock().await.write_all(bytes).await?;
                }
                at += bytes.len();
            }
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
    }
}

fn other_peers(peers: &RelayPeers, own: Option<&[u8]>) -> Vec<RelayPeer> {
    let peers = peers.read();
    peers.iter().filter(|(name, _)| Some(name.as_slice()) != own).map(|(_, peer)| Arc::clone(peer)).collect()
}

fn recipient<'a>(message: &'a [u8], to: &memmem::Finder<'_>) -> Option<&'a [u8]> {
    let from = to.find(message)? + to.needle().len();
    let length = memchr::memchr(b'\'', &message[from..])?;
    Some(&message[from..from + length])
}

#[cfg(test)]
mod tests {
    use super::recipient;

    #[test]
    fn the_recipient_is_the_text_of_to() {
        let to = memchr::memmem::Finder::new(b"to='");
        assert_eq!(recipient(b"<message from='a' to='b@c/d' id='1'>", &to), Some(&b"b@c/d"[..]));
        assert_eq!(recipient(b"<message to='b", &to), None);
        assert_eq!(recipient(b"<message/>", &to), None);
    }
}
