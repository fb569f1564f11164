//! Service discovery information of a host (XEP-0030), from the declarations of its features.

use std::sync::Arc;

use crate::disco::{DiscoForm, DiscoIdentity, DiscoInfo, DiscoNode};
use crate::feature::{DiscoFeature, Feature};

/// Additions of features to the domain's information, besides feature variables.
#[derive(Default)]
pub(crate) struct DiscoExtensions {
    pub(crate) identities: Vec<DiscoIdentity>,
    /// Of accounts.
    pub(crate) account_identities: Vec<DiscoIdentity>,
    /// Of accounts.
    pub(crate) account_features: Vec<&'static str>,
    pub(crate) forms: Vec<DiscoForm>,
    pub(crate) nodes: Vec<Arc<dyn DiscoNode>>,
}

/// The information of the domain and of its accounts.
pub(crate) fn disco_of(
    features: impl Iterator<Item = &'static Feature> + Clone,
    extra: &mut DiscoExtensions,
) -> (DiscoInfo, DiscoInfo) {
    extra.identities.push(DiscoIdentity { category: "server", kind: "im", name: "Throng" });
    extra.account_identities.push(DiscoIdentity { category: "account", kind: "registered", name: "" });
    extra.account_identities.sort();
    extra.identities.sort();
    extra.forms.sort();
    let all = features.flat_map(|f| f.disco.iter());
    let collect_features = |select: fn(&DiscoFeature) -> Option<&'static str>| {
        let mut list: Vec<&'static str> = all.clone().filter_map(select).collect();
        list.sort_unstable();
        list.dedup();
        list
    };
    let server = DiscoInfo {
        identities: std::mem::take(&mut extra.identities),
        features: collect_features(|d| if let DiscoFeature::Server(var) = d { Some(var) } else { None }),
        forms: std::mem::take(&mut extra.forms),
        alias_nodes: Vec::new(),
    };
    let mut account_features =
        collect_features(|d| if let DiscoFeature::Account(var) = d { Some(var) } else { None });
    account_features.append(&mut extra.account_features);
    account_features.sort_unstable();
    account_features.dedup();
    let account = DiscoInfo {
        identities: std::mem::take(&mut extra.account_identities),
        features: account_features,
        forms: Vec::new(),
        alias_nodes: Vec::new(),
    };
    (server, account)
}
