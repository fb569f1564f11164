//! A connection until it has named its destination, on which its task ends or waits for the activation.

use base::clock::Millis;
use base::connection_limits::ConnectionPermit;
use feature_api::listener::{ConnectionEnd, ListenerConnection};

use super::handshake::{self, BytestreamDestination, Reply, Step};
use super::metrics::Socks5Outcome;
use super::party::Party;
use super::pending::PendingTask;
use super::table::Socks5Proxy;

/// Milliseconds for the handshake. Its messages have less than 600 bytes.
const HANDSHAKE_MILLIS: u64 = 10_000;

impl Socks5Proxy {
    /// Serves a connection until it is closed, or handed over to the task of the other party.
    pub(crate) async fn serve_connection(self, mut connection: ListenerConnection) {
        let Ok(unactivated) = self.0.unactivated.try_acquire(connection.peer.ip()) else {
            return self.count_ended(Socks5Outcome::UnactivatedLimit);
        };
        let expires = self.0.clock.now().plus(self.activation_timeout_millis());
        match self.handshake(&mut connection).await {
            Ok(destination) => self.wait_for_activation(destination, connection, unactivated, expires).await,
            Err(outcome) => self.count_ended(outcome),
        }
    }

    async fn wait_for_activation(
        &self,
        destination: BytestreamDestination,
        connection: ListenerConnection,
        unactivated: ConnectionPermit,
        expires: Millis,
    ) {
        let ListenerConnection { io, permit, deadline, .. } = connection;
        match self.join(destination, Party { io, permit, unactivated }, expires) {
            Ok(None) => {}
            Ok(Some((pending, party))) => {
                PendingTask::new(self, destination, pending, party, &deadline, expires).run().await;
            }
            // Another party was faster since the reply.
            Err(_) => self.count_ended(Socks5Outcome::Duplicate),
        }
    }

    /// Exchanges greetings and reads the request.
    async fn handshake(
        &self,
        connection: &mut ListenerConnection,
    ) -> Result<BytestreamDestination, Socks5Outcome> {
        let expires = self.0.clock.now().plus(HANDSHAKE_MILLIS.min(self.activation_timeout_millis()));
        let mut bytes = Vec::with_capacity(64);
        if !read(connection, &mut bytes, handshake::read_greeting, expires).await? {
            connection.write_all(&handshake::NO_ACCEPTABLE_METHOD, expires).await?;
            return Err(Socks5Outcome::Rejected);
        }
        connection.write_all(&handshake::METHOD_ACCEPTED, expires).await?;
        bytes.clear();
        match read(connection, &mut bytes, handshake::read_request, expires).await? {
            // One reply only (RFC 1928, section 6): after a success, a refusal would be read as data.
            Ok(destination) if self.has_two_parties(destination) => {
                connection.write_all(&handshake::refused(Reply::NotAllowed), expires).await?;
                Err(Socks5Outcome::Duplicate)
            }
            Ok(destination) => {
                connection.write_all(&handshake::accepted(&bytes), expires).await?;
                Ok(destination)
            }
            Err(reason) => {
                connection.write_all(&handshake::refused(reason), expires).await?;
                Err(Socks5Outcome::Rejected)
            }
        }
    }
}

impl From<ConnectionEnd> for Socks5Outcome {
    fn from(end: ConnectionEnd) -> Socks5Outcome {
        match end {
            ConnectionEnd::Expired => Socks5Outcome::Expired,
            ConnectionEnd::Failed => Socks5Outcome::Failed,
        }
    }
}

/// Reads one message, and no byte after it.
async fn read<T>(
    connection: &mut ListenerConnection,
    bytes: &mut Vec<u8>,
    read: fn(&[u8]) -> Step<T>,
    expires: Millis,
) -> Result<T, Socks5Outcome> {
    loop {
        let missing = match read(bytes) {
            Step::Done(value) => return Ok(value),
            Step::Invalid => return Err(Socks5Outcome::Rejected),
            Step::Need(missing) => missing,
        };
        let have = bytes.len();
        bytes.resize(have + missing, 0);
        let room = bytes.get_mut(have..).unwrap_or_default();
        let count = connection.read(room, expires).await?;
        if count == 0 {
            return Err(Socks5Outcome::Rejected);
        }
        bytes.truncate(have + count);
    }
}
