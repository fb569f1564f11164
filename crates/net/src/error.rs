//! Transport errors, without their XMPP meaning (stream errors of RFC 6120, section 4.9 belong to the stream layer).
//!
//! Not implemented: stream error conditions for anything but XML; `xml::Error::kind` names those.
//!
//! # Pitfalls
//!
//! After any error the stream delivers no more events. The layer above may still queue and flush a stream error,
//! because XML errors leave the outgoing direction open.

use std::io;

/// Reason why a transport stopped. Every one ends the stream.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// Error from the operating system (reset, no route, …).
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    /// The bytes are not an XMPP stream; the error carries its stream error condition.
    #[error("{0}")]
    Xml(xml::Error),
    /// A client violated the WebSocket protocol. A final stream error can still be sent; the closing handshake carries
    /// the code.
    #[error("WebSocket: {0}")]
    WebSocket(crate::websocket::Violation),
    /// TLS failed: invalid data, a failed handshake, a bad record. An alert was sent if the peer could read it.
    #[error("TLS failed: {0}")]
    Tls(Box<rustls::Error>),
    /// Plaintext after `<starttls/>` (RFC 6120, section 5.4.2.3): a possible command injection.
    #[error("plaintext followed <starttls/>")]
    PlaintextAfterStartTls,
    /// More bytes were queued than this listener allows per peer.
    #[error("the peer does not read: more than {0} bytes are queued for it")]
    OutputLimit(u32),
    /// TLS was requested on a stream that already has it.
    #[error("the stream is already encrypted")]
    AlreadyEncrypted,
    /// A record or an element exceeds its buffer.
    #[error("an element or a record exceeds its size limit")]
    TooLong,
    /// The caller yielded without [`crate::Stream::release_buffers`], and another stream has used the buffers since.
    /// This is a bug in the server; the stream is ended so that it never reads another stream's bytes.
    #[error("a stream did not release its buffers before its task yielded")]
    BuffersNotReleased,
    /// The stream has already ended or failed.
    #[error("the stream is closed")]
    Closed,
    /// An invalid configuration; the text states the fix.
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
