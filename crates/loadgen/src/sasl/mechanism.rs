//! SASL mechanisms: names, strength, selection among those offered, and channel binding in SCRAM.
//!
//! Names are those of the IANA registry. The selection follows RFC 5802, section 6: the flag is `y` if this end could
//! bind and the server offered no -PLUS, so that a stripped offer is detected.
//!
//! # Pitfalls
//!
//! A plan that forbids -PLUS must send `n`, not `y`: with `y` a server that did offer it must refuse.

use serde::{Deserialize, Serialize};

/// The hash function of a SCRAM mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ClientScramHash {
    /// SHA-1 (RFC 5802).
    Sha1,
    /// SHA-256 (RFC 7677).
    Sha256,
    /// SHA-512.
    Sha512,
}

/// A SASL mechanism supported by this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientMechanism {
    /// PLAIN: the password itself; the server does the computation.
    Plain,
    /// ANONYMOUS: the server assigns the account.
    Anonymous,
    /// EXTERNAL: the TLS client certificate identifies the user.
    External,
    /// SCRAM with a hash function; `true` is -PLUS, with channel binding.
    Scram(ClientScramHash, bool),
}

impl ClientMechanism {
    /// All of them, strongest first: proof by certificate, SCRAM with channel binding, SCRAM, PLAIN, ANONYMOUS.
    pub const ALL: [ClientMechanism; 9] = [
        ClientMechanism::External,
        ClientMechanism::Scram(ClientScramHash::Sha512, true),
        ClientMechanism::Scram(ClientScramHash::Sha256, true),
        ClientMechanism::Scram(ClientScramHash::Sha1, true),
        ClientMechanism::Scram(ClientScramHash::Sha512, false),
        ClientMechanism::Scram(ClientScramHash::Sha256, false),
        ClientMechanism::Scram(ClientScramHash::Sha1, false),
        ClientMechanism::Plain,
        ClientMechanism::Anonymous,
    ];

    /// Registered name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Anonymous => "ANONYMOUS",
            Self::External => "EXTERNAL",
            Self::Scram(ClientScramHash::Sha1, false) => "SCRAM-SHA-1",
            Self::Scram(ClientScramHash::Sha1, true) => "SCRAM-SHA-1-PLUS",
            Self::Scram(ClientScramHash::Sha256, false) => "SCRAM-SHA-256",
            Self::Scram(ClientScramHash::Sha256, true) => "SCRAM-SHA-256-PLUS",
            Self::Scram(ClientScramHash::Sha512, false) => "SCRAM-SHA-512",
            Self::Scram(ClientScramHash::Sha512, true) => "SCRAM-SHA-512-PLUS",
        }
    }

    /// The mechanism with that name, case-insensitive as in plans; `None` if it is not supported.
    pub fn parse(name: &str) -> Option<ClientMechanism> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name().eq_ignore_ascii_case(name))
    }

    /// Whether it uses channel binding.
    pub fn is_plus(self) -> bool {
        matches!(self, Self::Scram(_, true))
    }
}

/// Channel binding of a login (RFC 5802, section 6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ScramChannelBinding {
    /// `n`: this end does not support binding.
    #[default]
    None,
    /// `y`: this end supports binding, and believes that the server does not.
    NotOffered,
    /// `p=tls-exporter` (RFC 9266).
    Exporter([u8; 32]),
    /// `p=tls-server-end-point` (RFC 5929).
    EndPoint(Vec<u8>),
}

impl ScramChannelBinding {
    /// GS2 flag at the start of the message: `n`, `y` or `p=…`.
    pub(super) fn flag(&self) -> &'static str {
        match self {
            Self::None => "n",
            Self::NotOffered => "y",
            Self::Exporter(_) => "p=tls-exporter",
            Self::EndPoint(_) => "p=tls-server-end-point",
        }
    }

    pub(super) fn data(&self) -> &[u8] {
        match self {
            Self::None | Self::NotOffered => &[],
            Self::Exporter(data) => data,
            Self::EndPoint(data) => data,
        }
    }

    pub(super) fn is_used(&self) -> bool {
        matches!(self, Self::Exporter(_) | Self::EndPoint(_))
    }
}

/// Result of [`choose`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MechanismChoice {
    /// The mechanism to use.
    pub mechanism: ClientMechanism,
    /// The server offered a -PLUS mechanism that this client supports.
    pub plus_offered: bool,
}

impl MechanismChoice {
    /// Channel binding for the mechanism. `exporter` and `end_point` are those of the connection; the exporter is
    /// preferred unless `types` (XEP-0440, the server's list, if it sent one) lacks it.
    pub fn binding(
        &self,
        exporter: Option<[u8; 32]>,
        end_point: Option<Vec<u8>>,
        types: Option<&[&str]>,
    ) -> ScramChannelBinding {
        let takes = |name: &str| types.is_none_or(|types| types.contains(&name));
        let can = exporter.is_some() || end_point.is_some();
        let exporter = exporter.filter(|_| takes("tls-exporter")).map(ScramChannelBinding::Exporter);
        let end_point =
            end_point.filter(|_| takes("tls-server-end-point")).map(ScramChannelBinding::EndPoint);
        match self.mechanism {
            ClientMechanism::Scram(_, true) => exporter.or(end_point).unwrap_or_default(),
            ClientMechanism::Scram(_, false) if can && !self.plus_offered => ScramChannelBinding::NotOffered,
            _ => ScramChannelBinding::None,
        }
    }
}

/// Whether a -PLUS mechanism may be chosen: the server has announced a binding which this connection supports
/// (XEP-0440). Without an announcement the server may support none of them, and a wrong guess is a failed login that is
/// not the server's fault; a -PLUS is then used only if it is requested by name.
pub fn can_bind(exporter: bool, end_point: bool, types: Option<&[&str]>, wanted: &[ClientMechanism]) -> bool {
    match types {
        Some(types) => {
            exporter && types.contains(&"tls-exporter")
                || end_point && types.contains(&"tls-server-end-point")
        }
        None => (exporter || end_point) && wanted.iter().any(|mechanism| mechanism.is_plus()),
    }
}

/// Chooses the strongest mechanism that is offered and wanted. An empty `wanted` means any except EXTERNAL and
/// ANONYMOUS, which log in as another user than the account. `can_bind` means that the connection has channel binding
/// data.
pub fn choose<'a>(
    offered: impl IntoIterator<Item = &'a str>,
    wanted: &[ClientMechanism],
    can_bind: bool,
) -> Option<MechanismChoice> {
    let mut found = [false; ClientMechanism::ALL.len()];
    for name in offered {
        // Registered names are upper case (RFC 4422, section 3.1); a lower-case offer is another mechanism.
        if let Some(place) = ClientMechanism::ALL.iter().position(|mechanism| mechanism.name() == name)
            && let Some(found) = found.get_mut(place)
        {
            *found = true;
        }
    }
    let offered = || {
        ClientMechanism::ALL
            .into_iter()
            .zip(found)
            .filter_map(|(mechanism, found)| found.then_some(mechanism))
    };
    let plus_offered = offered().any(ClientMechanism::is_plus);
    offered()
        .filter(|mechanism| can_bind || !mechanism.is_plus())
        .find(|mechanism| match wanted {
            [] => !matches!(mechanism, ClientMechanism::External | ClientMechanism::Anonymous),
            wanted => wanted.contains(mechanism),
        })
        .map(|mechanism| MechanismChoice { mechanism, plus_offered })
}
