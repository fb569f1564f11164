//! vcard-temp: XEP-0054 1.3.0, sections 3.1 (the user's own vCard), 3.2 (updating) and 3.3 (another user's).
//!
//! A vCard is opaque XML, stored as self-contained bytes and returned unchanged. Searchable fields are extracted when
//! it is stored (`card`). Another user's vCard is returned to anybody, also while its owner is offline:
//! it is world-readable (section 5). A user without a vCard and a missing user get the same answer. The domain's own
//! vCard is built from options.
//!
//! The hash of the photo is added to presence: `photo`. Conversions from and to avatars of XEP-0084 are elsewhere; they read and
//! replace the photo: `stored_photo`.
//!
//! Not implemented: the formats of vCard 4 (XEP-0292).
//!
//! # Pitfalls
//!
//! The size is checked before the vCard is parsed; a tree is many times larger than its text.

mod card;
mod photo;
mod stored_photo;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use feature_api::account_data::{AccountDataObserver, SharedVCardPhotos};
use feature_api::feature::{
    DiscoFeature, Feature, FeatureBuilder, OptionKind, OptionSpec, OptionValue, Spec,
};
use stanza::{StanzaCondition, StanzaError};
use store::{PhotoHash, SearchableProfile};
use throng_core::Effects;
use throng_core::feature_notice::NoticeCtx;
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::limits::FRAGMENT_LIMITS;
use throng_core::server_error::store_error;
use xml::{Limits, Ns, TreeNode, Writer};

use self::stored_photo::{StoredPhotos, photo_changed_everywhere};

/// vcard-temp.
pub static FEATURE: Feature = Feature {
    name: "vcard",
    summary: "Stores a vCard for each account and returns it on request.",
    specs: &[
        Spec { name: "XEP-0054", title: "vcard-temp", version: "1.3.0", not_implemented: "" },
        Spec { name: "XEP-0153", title: "vCard-Based Avatars", version: "1.1.1", not_implemented: "" },
    ],
    disco: &[DiscoFeature::Server(Ns::VCardTemp.as_str()), DiscoFeature::Account(Ns::VCardTemp.as_str())],
    iq: &[OWN_GET, OWN_SET, OTHER_GET, OTHER_SET, SERVER_GET, SERVER_SET],
    options: &[
        OptionSpec {
            key: "max_bytes",
            kind: OptionKind::Int(1_024, store::vcards::MAX_VCARD_BYTES as i64),
            default: OptionValue::Int(65_536),
            doc: "Maximum size of a vCard, in bytes, including its photo.",
        },
        OptionSpec {
            key: "photo_hash",
            kind: OptionKind::Bool,
            default: OptionValue::Bool(true),
            doc: "Add the hash of a user's photo to presence if the client does not.",
        },
        OptionSpec {
            key: "server_name",
            kind: OptionKind::Text,
            default: OptionValue::Text(std::borrow::Cow::Borrowed("")),
            doc: "Operator of the service, for the vCard of the domain; omitted if empty.",
        },
        OptionSpec {
            key: "server_url",
            kind: OptionKind::Text,
            default: OptionValue::Text(std::borrow::Cow::Borrowed("")),
            doc: "Web site of the service, for the vCard of the domain; omitted if empty.",
        },
        OptionSpec {
            key: "server_description",
            kind: OptionKind::Text,
            default: OptionValue::Text(std::borrow::Cow::Borrowed("")),
            doc: "Description of the service, for the vCard of the domain; omitted if empty.",
        },
    ],
    build,
    ..Feature::EMPTY
};

const OWN_GET: IqKey = IqKey::get(IqTarget::OwnAccount, Ns::VCardTemp, "vCard");
const OWN_SET: IqKey = IqKey::set(IqTarget::OwnAccount, Ns::VCardTemp, "vCard");
const OTHER_GET: IqKey = IqKey::get(IqTarget::Account, Ns::VCardTemp, "vCard");
const OTHER_SET: IqKey = IqKey::set(IqTarget::Account, Ns::VCardTemp, "vCard");
const SERVER_GET: IqKey = IqKey::get(IqTarget::Server, Ns::VCardTemp, "vCard");
const SERVER_SET: IqKey = IqKey::set(IqTarget::Server, Ns::VCardTemp, "vCard");

fn build(builder: &mut FeatureBuilder<'_>) {
    let max_bytes = usize::try_from(builder.options.int("max_bytes")).unwrap_or(usize::MAX);
    let domain = domain_card(builder);
    let hashes = builder.options.bool("photo_hash");
    builder.provide(SharedVCardPhotos(Arc::new(StoredPhotos { max_bytes, hashes })));
    builder.notice(stored_photo::PHOTO_CHANGED, move |ctx: &NoticeCtx<'_>| {
        stored_photo::receive_change(ctx, hashes);
    });
    if hashes {
        builder.outgoing(photo::PHASE, photo::interest(), photo::outgoing);
    }
    builder.iq(OWN_GET, |r: &mut IqRequest<'_>| get(r, StanzaCondition::ItemNotFound));
    builder.iq(OWN_SET, move |r: &mut IqRequest<'_>| set(r, max_bytes, hashes).unwrap_or_else(IqFlow::error));
    // Section 3.3: the same condition for a missing vCard and a missing account.
    builder.iq(OTHER_GET, |r: &mut IqRequest<'_>| get(r, StanzaCondition::ServiceUnavailable));
    builder.iq(SERVER_GET, move |_: &mut IqRequest<'_>| match &domain {
        Some(card) => IqFlow::Reply(Ok(card.clone())),
        None => IqFlow::error(StanzaCondition::ServiceUnavailable),
    });
    for key in [OTHER_SET, SERVER_SET] {
        builder.iq(key, |_: &mut IqRequest<'_>| IqFlow::error(StanzaCondition::Forbidden));
    }
}

/// The vCard of the domain; none if no option is set.
fn domain_card(builder: &FeatureBuilder<'_>) -> Option<Vec<u8>> {
    let fields = [("FN", "server_name"), ("URL", "server_url"), ("DESC", "server_description")];
    let fields = fields.map(|(name, key)| (name, builder.options.text(key)));
    if fields.iter().all(|(_, text)| text.is_empty()) {
        return None;
    }
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    w.start_ns("vCard", Ns::VCardTemp);
    for (name, text) in fields {
        if !text.is_empty() {
            w.text_element(name, text);
        }
    }
    w.text_element("JABBERID", builder.domain).end();
    Some(out)
}

fn get(request: &IqRequest<'_>, missing: StanzaCondition) -> IqFlow {
    let owner = request.to.unwrap_or(request.from).bare().to_jid();
    let node = request.node.clone();
    IqFlow::wait(async move {
        match node.stores.vcards.get(owner.as_ref()).await {
            Ok(Some(card)) => Ok(card),
            Ok(None) => Err(missing.into()),
            Err(error) => Err(store_error(error)),
        }
    })
}

/// Searchable texts of a vCard and the hash of its photo, for imports.
pub fn index(card: TreeNode<'_>) -> (SearchableProfile, Option<PhotoHash>) {
    (card::searchable(card), photo::photo_hash(card))
}

fn set(request: &IqRequest<'_>, max_bytes: usize, hashes: bool) -> Result<IqFlow, StanzaError> {
    let large = || {
        let text = format!("the vCard is larger than the limit of {max_bytes} bytes");
        // Not policy-violation (RFC 6120, section 8.3.3.12): slixmpp 1.17 does not know it and would wait
        // permanently.
        StanzaError::new(StanzaCondition::NotAcceptable).text(text)
    };
    if request.payload().len() > max_bytes {
        return Err(large());
    }
    let tree = request.tree()?;
    let element = tree.root().child_elements().next().ok_or(StanzaCondition::BadRequest)?;
    let (searchable, photo) = index(element);
    // An empty vCard counts as none.
    let bytes = match element.child_elements().next() {
        Some(_) => Some(
            element
                .to_standalone(&Limits { element_bytes: max_bytes as u32 + 4096, ..FRAGMENT_LIMITS })
                .map_err(|_| large())?
                .into_owned(),
        ),
        None => None,
    };
    if bytes.as_ref().is_some_and(|bytes| bytes.len() > max_bytes) {
        return Err(large());
    }
    let (node, host, owner) = (request.node.clone(), request.host.clone(), request.from.bare().to_jid());
    let before = request.session.and_then(|session| session.account.photo());
    Ok(IqFlow::Wait(Box::pin(async move {
        let mut effects = Effects::default();
        let answer = match node.stores.vcards.put(owner.as_ref(), bytes, searchable, photo).await {
            Ok(true) => {
                if before != photo {
                    photo_changed_everywhere(&node, &host, &owner, photo, hashes, &mut effects);
                    if let Some(AccountDataObserver(observer)) = host.extensions.get() {
                        observer.photo_stored(&node, &owner);
                    }
                }
                Ok(Vec::new())
            }
            Ok(false) => {
                Err(StanzaError::new(StanzaCondition::NotAllowed).text("anonymous users have no vCard"))
            }
            Err(error) => Err(store_error(error)),
        };
        (answer, effects)
    })))
}
