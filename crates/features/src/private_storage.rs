//! Private XML Storage: XEP-0049 1.2, sections 2 (the namespace) and 3 (errors).
//!
//! Clients' private data, by namespace and name of its root element: legacy bookmarks, notes, preferences. A value is
//! stored as self-contained XML and returned unchanged. Several elements in one request are stored together or not at
//! all.
//!
//! Not implemented: several values of the same name and namespace; the last one replaces earlier ones.
//!
//! # Pitfalls
//!
//! The limits cover all private values of the account, including those that other features keep in the same store.

use std::sync::Arc;

use base::BoxFuture;
use feature_api::account_data::{AccountDataObserver, PrivateXml, PrivateXmlOutcome, SharedPrivateXml};
use feature_api::feature::{
    DiscoFeature, Feature, FeatureBuilder, OptionKind, OptionSpec, OptionValue, Spec,
};
use jid::Jid;
use stanza::{ErrorType, StanzaCondition, StanzaError};
use store::account_kv::MAX_KEY_BYTES;
use store::{AccountKvLimits, PutOutcome, StoreError};
use throng_core::Node;
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::limits::FRAGMENT_LIMITS;
use throng_core::server_error::store_error;
use xml::{Limits, Ns, TreeNode, Writer};

/// Private XML Storage.
pub static FEATURE: Feature = Feature {
    name: "private_storage",
    summary: "Stores private XML of clients, such as bookmarks and notes.",
    specs: &[Spec { name: "XEP-0049", title: "Private XML Storage", version: "1.2", not_implemented: "" }],
    disco: &[DiscoFeature::Server(Ns::Private.as_str()), DiscoFeature::Account(Ns::Private.as_str())],
    iq: &[OWN_GET, OWN_SET, OTHER_GET, OTHER_SET, SERVER_GET, SERVER_SET],
    options: &[
        OptionSpec {
            key: "max_entries",
            kind: OptionKind::Int(1, 10_000),
            default: OptionValue::Int(128),
            doc: "Maximum number of values per account, each with its own name and namespace.",
        },
        OptionSpec {
            key: "max_bytes",
            kind: OptionKind::Int(1_024, 16_777_216),
            default: OptionValue::Int(131_072),
            doc: "Maximum size of the values per account, in bytes.",
        },
    ],
    build,
    ..Feature::EMPTY
};

const OWN_GET: IqKey = IqKey::get(IqTarget::OwnAccount, Ns::Private, "query");
const OWN_SET: IqKey = IqKey::set(IqTarget::OwnAccount, Ns::Private, "query");
const OTHER_GET: IqKey = IqKey::get(IqTarget::Account, Ns::Private, "query");
const OTHER_SET: IqKey = IqKey::set(IqTarget::Account, Ns::Private, "query");
const SERVER_GET: IqKey = IqKey::get(IqTarget::Server, Ns::Private, "query");
const SERVER_SET: IqKey = IqKey::set(IqTarget::Server, Ns::Private, "query");

fn build(builder: &mut FeatureBuilder<'_>) {
    let bounded = |key| u32::try_from(builder.options.int(key)).unwrap_or(u32::MAX);
    let limits = AccountKvLimits { entries: bounded("max_entries"), bytes: bounded("max_bytes") };
    builder.provide(SharedPrivateXml(Arc::new(StoredElements { limits })));
    builder.iq(OWN_GET, |r: &mut IqRequest<'_>| get(r).unwrap_or_else(IqFlow::error));
    builder.iq(OWN_SET, move |r: &mut IqRequest<'_>| set(r, limits).unwrap_or_else(IqFlow::error));
    for key in [OTHER_GET, OTHER_SET, SERVER_GET, SERVER_SET] {
        builder.iq(key, |_: &mut IqRequest<'_>| {
            let text = "private storage can be used only by its owner";
            IqFlow::error(StanzaError::new(StanzaCondition::Forbidden).text(text))
        });
    }
}

/// Access to private values for the conversion of bookmarks (XEP-0411).
struct StoredElements {
    limits: AccountKvLimits,
}

impl PrivateXml for StoredElements {
    fn get(
        &self,
        node: Arc<Node>,
        owner: Jid,
        name: &str,
        ns: &str,
    ) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>> {
        let key = format!("{KEY_PREFIX}{name} {ns}");
        Box::pin(async move { node.stores.account_kv.get(owner.as_ref(), &key).await })
    }

    fn replace(
        &self,
        node: Arc<Node>,
        owner: Jid,
        before: Option<Vec<u8>>,
        element: Vec<u8>,
    ) -> BoxFuture<'static, Result<PrivateXmlOutcome, StoreError>> {
        let limits = self.limits;
        Box::pin(async move {
            let key = throng_core::shared_stanza::tree(&element)
                .ok()
                .and_then(|tree| storage_key(tree.root()).ok());
            let Some(key) = key else { return Ok(PrivateXmlOutcome::Refused) };
            let account_kv = &node.stores.account_kv;
            Ok(match account_kv.replace(owner.as_ref(), &key, before, element, limits).await? {
                None => PrivateXmlOutcome::Changed,
                Some(PutOutcome::Done) => PrivateXmlOutcome::Stored,
                Some(PutOutcome::Full | PutOutcome::NoAccount) => PrivateXmlOutcome::Refused,
            })
        })
    }
}

/// Beginning of the keys of private values in the store.
pub const KEY_PREFIX: &str = "jabber:iq:private ";

/// Key of an element in the store, for imports.
///
/// # Errors
/// If it cannot be a private value.
pub fn storage_key(element: TreeNode<'_>) -> Result<String, StanzaError> {
    let ns = xml::escape::unescape(element.ns_text()).unwrap_or_default();
    // Section 2.3: reserved namespaces. An element without its own namespace is in that of the query.
    if ns.is_empty()
        || ns.starts_with("jabber:")
        || ns.starts_with("http://jabber.org/")
        || ns == "vcard-temp"
    {
        let text = "a private value requires its own namespace, which must not be one of XMPP";
        return Err(StanzaError::new(StanzaCondition::NotAcceptable).text(text));
    }
    let key = format!("{KEY_PREFIX}{} {ns}", element.name());
    if key.len() > MAX_KEY_BYTES {
        let text = "the name and namespace of the private value are too long";
        return Err(StanzaError::new(StanzaCondition::NotAcceptable).text(text));
    }
    Ok(key)
}

fn get(request: &IqRequest<'_>) -> Result<IqFlow, StanzaError> {
    let tree = request.tree()?;
    let mut wanted = tree.root().child_elements().next().into_iter().flat_map(|query| query.child_elements());
    let bad = |text: &'static str| StanzaError::new(StanzaCondition::BadRequest).text(text);
    let element = wanted.next().ok_or_else(|| bad("the request does not name a private value"))?;
    if wanted.next().is_some() {
        return Err(bad("a request can name only one private value"));
    }
    let key = storage_key(element)?;
    let (name, ns) =
        (element.name().to_owned(), xml::escape::unescape(element.ns_text()).unwrap_or_default());
    let (node, owner, ns) = (request.node.clone(), request.from.bare().to_jid(), ns.into_owned());
    Ok(IqFlow::wait(async move {
        match node.stores.account_kv.get(owner.as_ref(), &key).await {
            Ok(value) => {
                let mut out = Vec::with_capacity(64 + value.as_ref().map_or(0, Vec::len));
                let mut w = Writer::new(&mut out);
                w.start_ns("query", Ns::Private);
                match value {
                    Some(value) => w.raw(&value),
                    None => w.start(&name).xmlns(&ns).end(),
                };
                w.end();
                Ok(out)
            }
            Err(error) => Err(store_error(error)),
        }
    }))
}

fn set(request: &IqRequest<'_>, limits: AccountKvLimits) -> Result<IqFlow, StanzaError> {
    let full = || {
        let text = format!(
            "an account can store at most {} private values with {} bytes in total",
            limits.entries, limits.bytes
        );
        StanzaError::new(StanzaCondition::ResourceConstraint).kind(ErrorType::Modify).text(text)
    };
    if request.payload().len() > limits.bytes as usize + 1024 {
        return Err(full());
    }
    let tree = request.tree()?;
    let bounds = Limits { element_bytes: limits.bytes.saturating_add(4096), ..FRAGMENT_LIMITS };
    let mut values = Vec::new();
    for element in tree.root().child_elements().next().into_iter().flat_map(|query| query.child_elements()) {
        if values.len() >= limits.entries as usize {
            return Err(full());
        }
        let value = element.to_standalone(&bounds).map_err(|_| full())?;
        values.push((storage_key(element)?, value.into_owned()));
    }
    if values.is_empty() {
        let text = "the request contains no private value";
        return Err(StanzaError::new(StanzaCondition::NotAcceptable).text(text));
    }
    let full = full();
    let namespaces: Vec<String> =
        values.iter().filter_map(|(key, _)| Some(key.rsplit_once(' ')?.1.to_owned())).collect();
    let (node, host, owner) = (request.node.clone(), request.host.clone(), request.from.bare().to_jid());
    Ok(IqFlow::wait(async move {
        match node.stores.account_kv.put(owner.as_ref(), values, limits).await {
            Ok(PutOutcome::Done) => {
                if let Some(AccountDataObserver(observer)) = host.extensions.get() {
                    namespaces.iter().for_each(|ns| observer.private_xml_stored(&node, &owner, ns));
                }
                Ok(Vec::new())
            }
            Ok(PutOutcome::Full) => Err(full),
            Ok(PutOutcome::NoAccount) => {
                Err(StanzaError::new(StanzaCondition::NotAllowed)
                    .text("anonymous users have no private storage"))
            }
            Err(error) => Err(store_error(error)),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{NodeClient, TestNode, assert_same};

    fn engine() -> (TestNode, NodeClient) {
        let engine = TestNode::new(&[&FEATURE]);
        for user in ["hamlet", "macbeth"] {
            engine.create_user(user);
        }
        let hamlet = engine.connect("hamlet", "denmark");
        (engine, hamlet)
    }

    fn iq(ty: &str, inner: &str) -> String {
        format!("<iq type='{ty}' id='1'><query xmlns='jabber:iq:private'>{inner}</query></iq>")
    }

    fn result(inner: &str) -> String {
        format!(
            "<iq type='result' to='hamlet@example.com/denmark' id='1'>\
             <query xmlns='jabber:iq:private'>{inner}</query></iq>"
        )
    }
    const DONE: &str = "<iq type='result' to='hamlet@example.com/denmark' id='1'/>";

    #[test]
    fn section_2_3_stored_elements_are_returned() {
        let (engine, hamlet) = engine();
        let prefs = "<exodus xmlns='exodus:prefs'><defaultnick>Hamlet</defaultnick></exodus>";
        assert_same(
            &hamlet.request(&iq("get", "<exodus xmlns='exodus:prefs'/>")),
            &[result("<exodus xmlns='exodus:prefs'/>")],
        );
        assert_same(&hamlet.request(&iq("set", prefs)), &[DONE]);
        let again = engine.connect("hamlet", "castle");
        let answer = again.request(&iq("get", "<exodus xmlns='exodus:prefs'/>"));
        assert_same(&answer, &[result(prefs).replace("denmark", "castle")]);
        // Values with another name or namespace are distinct.
        for other in ["<exodus xmlns='exodus:other'/>", "<psi xmlns='exodus:prefs'/>"] {
            assert_same(&hamlet.request(&iq("get", other)), &[result(other)]);
        }
        let smaller = "<exodus xmlns='exodus:prefs'/>";
        assert_same(&hamlet.request(&iq("set", smaller)), &[DONE]);
        assert_same(&hamlet.request(&iq("get", smaller)), &[result(smaller)]);
    }

    #[test]
    fn prefixes_declared_on_enclosing_elements_are_preserved() {
        let (_engine, hamlet) = engine();
        let set = "<iq type='set' id='1' xmlns:e='exodus:prefs'><query xmlns='jabber:iq:private'>\
                   <e:exodus e:a='1'><e:b/></e:exodus></query></iq>";
        assert_same(&hamlet.request(set), &[DONE]);
        assert_same(
            &hamlet.request(&iq("get", "<x:exodus xmlns:x='exodus:prefs'/>")),
            &[result("<e:exodus xmlns:e='exodus:prefs' e:a='1'><e:b/></e:exodus>")],
        );
    }

    #[test]
    fn several_values_are_stored_atomically() {
        let (_engine, hamlet) = engine();
        assert_same(&hamlet.request(&iq("set", "<a xmlns='u:a'>1</a><b xmlns='u:a'>2</b>")), &[DONE]);
        assert_same(&hamlet.request(&iq("get", "<b xmlns='u:a'/>")), &[result("<b xmlns='u:a'>2</b>")]);
        let bad = hamlet.request(&iq("set", "<a xmlns='u:a'>3</a><q xmlns='jabber:iq:roster'/>"));
        assert!(bad[0].contains("<error type='modify'><not-acceptable"), "{bad:?}");
        assert_same(&hamlet.request(&iq("get", "<a xmlns='u:a'/>")), &[result("<a xmlns='u:a'>1</a>")]);
    }

    #[test]
    fn section_3_invalid_requests_are_refused() {
        let (engine, hamlet) = engine();
        let condition = |stanza: &str| {
            let answer = hamlet.request(stanza).remove(0);
            let at = answer.find("<error ").unwrap_or_else(|| panic!("no error: {answer}"));
            let rest = &answer[at..];
            rest[rest.find("><").unwrap() + 2..].split([' ', '/', '>']).next().unwrap().to_owned()
        };
        assert_eq!(condition(&iq("get", "")), "bad-request");
        assert_eq!(condition(&iq("get", "<a xmlns='u:a'/><b xmlns='u:a'/>")), "bad-request");
        assert_eq!(condition(&iq("set", "")), "not-acceptable");
        assert_eq!(condition(&iq("set", "<vCard xmlns='vcard-temp'/>")), "not-acceptable");
        assert_eq!(condition(&iq("set", "<own/>")), "not-acceptable");
        assert_eq!(condition(&iq("get", "<none xmlns=''/>")), "not-acceptable");
        let long = format!("<a xmlns='u:{}'/>", "x".repeat(1015));
        assert_eq!(condition(&iq("set", &long)), "not-acceptable");
        for to in ["macbeth@example.com", "nobody@example.com", "example.com"] {
            for ty in ["get", "set"] {
                let stanza = iq(ty, "<a xmlns='u:a'/>").replace("id=", &format!("to='{to}' id="));
                assert_eq!(condition(&stanza), "forbidden", "{to}");
            }
        }
        engine.set_store_failing(true);
        assert_eq!(condition(&iq("get", "<a xmlns='u:a'/>")), "resource-constraint");
        assert_eq!(condition(&iq("set", "<a xmlns='u:a'/>")), "resource-constraint");
    }

    #[test]
    fn entries_and_bytes_are_limited() {
        let (_engine, hamlet) = engine();
        let many: String = (0..128).map(|i| format!("<a xmlns='u:{i}'/>")).collect();
        assert_same(&hamlet.request(&iq("set", &many)), &[DONE]);
        for flood in [
            "<a xmlns='u:more'/>".to_owned(),
            (0..5_000).map(|i| format!("<a xmlns='v:{i}'/>")).collect(),
            format!("<a xmlns='u:1'>{}</a>", "x".repeat(131_072)),
            format!("<a xmlns='u:1'>{}</a>", "x".repeat(200_000)),
        ] {
            let answer = hamlet.request(&iq("set", &flood));
            assert!(answer[0].contains("<error type='modify'><resource-constraint"), "{}", answer[0].len());
        }
        assert_same(&hamlet.request(&iq("set", "<a xmlns='u:7'>there is room for a change</a>")), &[DONE]);
    }

    #[test]
    fn a_guest_cannot_store_private_elements() {
        let (engine, _) = engine();
        let guest = engine.connect_anonymous("guest", "x");
        let answer = guest.request(&iq("set", "<a xmlns='u:a'/>"));
        assert!(answer[0].contains("<not-allowed"), "{answer:?}");
        assert_eq!(guest.request(&iq("get", "<a xmlns='u:a'/>")).len(), 1);
    }
}
