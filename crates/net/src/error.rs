//! What can go wrong on a transport, and nothing about why XMPP cares (RFC 6120 §4.9 is the stream layer's).
//!
//! Left out: stream error conditions for anything but XML; `xml::Error::kind` names those.
//! Trap: after any error the stream is dead. The layer above may still queue and flush a stream error
//! (XML errors leave the way out open), but it must not expect another event.

use std::io;

/// Why a transport stopped. Every one of them ends the stream.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The operating system said no (reset, no route, …).
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    /// The bytes are not an XMPP stream; the error knows its stream error condition.
    #[error("{0}")]
    Xml(xml::Error),
    /// A client broke a rule of WebSocket. A last stream error can still be sent; the closing handshake says the code.
    #[error("WebSocket: {0}")]
    WebSocket(crate::websocket::Violation),
    /// TLS broke: garbage, a failed handshake, a bad record. An alert was sent where the peer could read it.
    #[error("TLS failed: {0}")]
    Tls(Box<rustls::Error>),
    /// Plaintext behind `<starttls/>` (RFC 6120 §5.4.2.3): somebody may be injecting commands.
    #[error("plaintext was pipelined behind <starttls/>")]
    PlaintextAfterStartTls,
    /// More was queued than this port allows to wait for one peer, in bytes.
    #[error("the peer does not read: more than {0} bytes wait for it")]
    OutputLimit(u32),
    /// TLS was asked for on a stream that already has it.
    #[error("the stream is already encrypted")]
    AlreadyEncrypted,
    /// A record or an element does not fit the buffer that is meant for it.
    #[error("more bytes without an end than the limits allow")]
    TooLong,
    /// The caller yielded without [`crate::Stream::release_buffers`] and another stream used the buffers since.
    /// A mistake in the server, and the stream is given up rather than fed with foreign bytes.
    #[error("a stream was not parked before its task yielded")]
    BuffersNotReleased,
    /// The stream has ended or failed before.
    #[error("the stream is closed")]
    Closed,
    /// A configuration could not be used; the text says what to mend.
    #[error("{0}")]
    InvalidConfig(String),
}

impl From<rustls::Error> for NetError {
    fn from(error: rustls::Error) -> NetError {
        NetError::Tls(Box::new(error))
    }
}

impl From<xml::Error> for NetError {
    fn from(error: xml::Error) -> NetError {
        NetError::Xml(error)
    }
}
