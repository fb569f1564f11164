//! SASL mechanisms: names, strength, selection among those offered, and channel binding in SCRAM.
//!
//! Names are those of the IANA registry. The selection follows RFC 5802, section 6: the flag is `y` if this end could
//! bind and the server offered no -PLUS, so that a stripped offer is detected.
//!
//! # Pitfalls
//!
//! A plan that forbids -PLUS must send `n`, not `y`: with `y` a server that did offer it must refuse.

use sasl::Mechanism;
use sasl::client::Gs2;

/// The mechanism with that name, case-insensitive as in plans; `None` if it is not supported.
pub fn parse_mechanism(name: &str) -> Option<Mechanism> {
    Mechanism::ALL.into_iter().find(|mechanism| mechanism.name().eq_ignore_ascii_case(name))
}

/// Result of [`choose`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MechanismChoice {
    /// The mechanism to use.
    pub mechanism: Mechanism,
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
    ) -> Gs2 {
        let takes = |name: &str| types.is_none_or(|types| types.contains(&name));
        let can = exporter.is_some() || end_point.is_some();
        let bound = |name: &str, data| takes(name).then(|| Gs2::Bound { name: name.to_owned(), data });
        match self.mechanism {
            mechanism if mechanism.is_plus() => exporter
                .and_then(|data| bound("tls-exporter", data.to_vec()))
                .or_else(|| end_point.and_then(|data| bound("tls-server-end-point", data)))
                .unwrap_or(Gs2::None),
            mechanism if mechanism.hash().is_some() && can && !self.plus_offered => Gs2::NotOffered,
            _ => Gs2::None,
        }
    }
}

/// Whether a -PLUS mechanism may be chosen: the server has announced a binding which this connection supports
/// (XEP-0440). Without an announcement the server may support none of them, and a wrong guess is a failed login that is
/// not the server's fault; a -PLUS is then used only if it is requested by name.
pub fn can_bind(exporter: bool, end_point: bool, types: Option<&[&str]>, wanted: &[Mechanism]) -> bool {
    match types {
        Some(types) => {
            exporter && types.contains(&"tls-exporter")
                || end_point && types.contains(&"tls-server-end-point")
        }
        None => (exporter || end_point) && wanted.iter().any(|mechanism| mechanism.is_plus()),
    }
}

/// Chooses the strongest mechanism that is offered and wanted. An empty `wanted` means any except EXTERNAL and
/// ANONYMOUS, which log in as another user than the account, and OAUTHBEARER, which needs a token. `can_bind` means that the connection has channel binding
/// data.
pub fn choose<'a>(
    offered: impl IntoIterator<Item = &'a str>,
    wanted: &[Mechanism],
    can_bind: bool,
) -> Option<MechanismChoice> {
    let mut found = [false; Mechanism::ALL.len()];
    for name in offered {
        // Registered names are upper case (RFC 4422, section 3.1); a lower-case offer is another mechanism.
        if let Some(place) = Mechanism::ALL.iter().position(|mechanism| mechanism.name() == name)
            && let Some(found) = found.get_mut(place)
        {
            *found = true;
        }
    }
    let offered =
        || Mechanism::ALL.into_iter().zip(found).filter_map(|(mechanism, found)| found.then_some(mechanism));
    let plus_offered = offered().any(Mechanism::is_plus);
    offered()
        .filter(|mechanism| can_bind || !mechanism.is_plus())
        .find(|mechanism| match wanted {
            [] => !matches!(mechanism, Mechanism::External | Mechanism::Anonymous | Mechanism::OauthBearer),
            wanted => wanted.contains(mechanism),
        })
        .map(|mechanism| MechanismChoice { mechanism, plus_offered })
}
