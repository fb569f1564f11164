//! What a host and its accounts say of themselves: the data behind XEP-0030 replies and XEP-0115 hashes.
//!
//! Filled from the declarations of the features that are on, so a reply can never promise what is off.

use crate::feature::{Disco, Feature};

/// An identity (XEP-0030 section 3.1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Category.
    pub category: &'static str,
    /// Type.
    pub kind: &'static str,
    /// Name for people.
    pub name: &'static str,
}

/// Identities and feature variables, sorted and without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoInfo {
    /// Identities.
    pub identities: Vec<Identity>,
    /// Feature variables.
    pub features: Vec<&'static str>,
    /// Nodes that are other names for this very information (XEP-0115 section 6.2).
    pub nodes: Vec<String>,
}

impl DiscoInfo {
    /// The domain's and the accounts' information.
    pub(crate) fn of(features: impl Iterator<Item = &'static Feature> + Clone) -> (DiscoInfo, DiscoInfo) {
        let all = features.flat_map(|f| f.disco.iter());
        let pick = |want: fn(&Disco) -> Option<&'static str>| {
            let mut list: Vec<&'static str> = all.clone().filter_map(want).collect();
            list.sort_unstable();
            list.dedup();
            list
        };
        let server = DiscoInfo {
            identities: vec![Identity { category: "server", kind: "im", name: "Throng" }],
            features: pick(|d| if let Disco::Server(var) = d { Some(var) } else { None }),
            nodes: Vec::new(),
        };
        let account = DiscoInfo {
            identities: vec![Identity { category: "account", kind: "registered", name: "" }],
            features: pick(|d| if let Disco::Account(var) = d { Some(var) } else { None }),
            nodes: Vec::new(),
        };
        (server, account)
    }

    /// Writes identities and features into an open `<query/>`.
    pub fn write(&self, writer: &mut xml::Writer<'_>) {
        for identity in &self.identities {
            writer.start("identity");
            writer.attr("category", identity.category);
            writer.attr("type", identity.kind);
            if !identity.name.is_empty() {
                writer.attr("name", identity.name);
            }
            writer.end();
        }
        for var in &self.features {
            writer.start("feature");
            writer.attr("var", var);
            writer.end();
        }
    }
}
