//! Example Feature: XEP-0000 0.0.0, section 1.
//!
//! TODO(example_feature): state what the server does and what it does not implement (`Not implemented: …`); what a reader
//! of the specification gets wrong goes under a heading `# Pitfalls`.

use feature_api::feature::{
    DiscoFeature, Feature, FeatureBuilder, OptionKind, OptionSpec, OptionValue, Spec,
};
use stanza::{StanzaCondition, StanzaError};
use store::{AccountKvLimits, PutOutcome};
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::limits::FRAGMENT_LIMITS;
use throng_core::server_error::store_error;
use xml::Ns;

/// Example Feature.
pub static FEATURE: Feature = Feature {
    name: "example_feature",
    summary: "Stores a value of XEP-0000 for each account.",
    specs: &[Spec { name: "XEP-0000", title: "Example Feature", version: "0.0.0", not_implemented: "" }],
    disco: &[DiscoFeature::Account(Ns::Receipts.as_str())],
    iq: &[GET, SET],
    options: &[OptionSpec {
        key: "max_bytes",
        kind: OptionKind::Int(1_024, 1_048_576),
        default: OptionValue::Int(16_384),
        doc: "Maximum size of the value of an account, in bytes.",
    }],
    build,
    ..Feature::EMPTY
};

const GET: IqKey = IqKey::get(IqTarget::OwnAccount, Ns::Receipts, "query");
const SET: IqKey = IqKey::set(IqTarget::OwnAccount, Ns::Receipts, "query");

/// Key of the value: a namespace and a name, so that it differs from keys of other features.
const STORE_KEY: &str = "urn:xmpp:receipts query";

fn build(builder: &mut FeatureBuilder<'_>) {
    let max_bytes = u32::try_from(builder.options.int("max_bytes")).unwrap_or(u32::MAX);
    builder.iq(GET, |request: &mut IqRequest<'_>| get(request));
    builder.iq(SET, move |request: &mut IqRequest<'_>| set(request, max_bytes).unwrap_or_else(IqFlow::error));
}

/// Answers with the stored element.
fn get(request: &IqRequest<'_>) -> IqFlow {
    let (node, owner) = (request.node.clone(), request.from.bare().to_jid());
    IqFlow::wait(async move {
        match node.stores.account_kv.get(owner.as_ref(), STORE_KEY).await {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(StanzaCondition::ItemNotFound.into()),
            Err(error) => Err(store_error(error)),
        }
    })
}

/// Replaces the stored element.
fn set(request: &IqRequest<'_>, max_bytes: u32) -> Result<IqFlow, StanzaError> {
    let too_large = || {
        let text = format!("the value is larger than the limit of {max_bytes} bytes");
        StanzaError::new(StanzaCondition::NotAcceptable).text(text)
    };
    let tree = request.tree()?;
    let element = tree.root().child("query", Ns::Receipts).ok_or(StanzaCondition::BadRequest)?;
    let value = element.to_standalone(&FRAGMENT_LIMITS).map_err(|_| too_large())?.into_owned();
    if value.len() > max_bytes as usize {
        return Err(too_large());
    }
    let (node, owner) = (request.node.clone(), request.from.bare().to_jid());
    Ok(IqFlow::wait(async move {
        let values = vec![(STORE_KEY.to_owned(), value)];
        match node.stores.account_kv.put(owner.as_ref(), values, AccountKvLimits::UNLIMITED).await {
            Ok(PutOutcome::Done) => Ok(Vec::new()),
            Ok(PutOutcome::Full) => Err(StanzaCondition::ResourceConstraint.into()),
            // An anonymous user.
            Ok(PutOutcome::NoAccount) => Err(StanzaCondition::NotAllowed.into()),
            Err(error) => Err(store_error(error)),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{NodeClient, TestNode, assert_same};

    fn request(client: &NodeClient, ty: &str, content: &str) -> Vec<String> {
        let ns = Ns::Receipts.as_str();
        client.request(&format!("<iq type='{ty}' id='1'><query xmlns='{ns}'>{content}</query></iq>"))
    }

    #[test]
    fn section_1_the_value_is_stored_and_returned() {
        let node = TestNode::new(&[&FEATURE]);
        node.create_user("juliet");
        let juliet = node.connect("juliet", "balcony");
        let result = |payload: &str| {
            format!("<iq type='result' to='juliet@example.com/balcony' id='1'>{payload}</iq>")
        };
        let value = format!("<query xmlns='{}'><item/></query>", Ns::Receipts.as_str());
        assert!(request(&juliet, "get", "").concat().contains("<item-not-found "));
        assert_same(&request(&juliet, "set", "<item/>"), &[result("")]);
        assert_same(&request(&juliet, "get", ""), &[result(&value)]);
    }

    #[test]
    fn a_value_above_the_limit_and_a_guest_are_refused() {
        let node = TestNode::with_options(&FEATURE, &[("max_bytes", OptionValue::Int(1_024))]);
        node.create_user("juliet");
        let juliet = node.connect("juliet", "balcony");
        assert!(request(&juliet, "set", &"x".repeat(1_024)).concat().contains("<not-acceptable "));
        assert!(request(&juliet, "get", "").concat().contains("<item-not-found "));
        let guest = node.connect_anonymous("guest", "x");
        assert!(request(&guest, "set", "").concat().contains("<not-allowed "));
    }
}
