//! User Search: XEP-0055 1.3, sections 2 (legacy fields) and 3 (data forms), in pages of XEP-0059 1.0.
//!
//! Two addresses answer: a service that the domain lists among its items, and the domain itself. A filled-in field
//! matches values with that prefix, case-insensitively; there are no wildcards. The store reads an index in order and
//! stops after a page, so the cost of a search by one term depends on the page size, however many accounts there are. A
//! search by several terms scans the matches of the longest term only; one that would read too many of them is refused
//! with `not-acceptable`. Counts are capped at 10 000.
//!
//! Not implemented: matching words in the middle of a text.
//!
//! # Pitfalls
//!
//! The ids of a result set are positions in the order of one query and are not valid for another query.

mod fields;

#[cfg(test)]
mod tests;

use feature_api::disco::DiscoIdentity;
use feature_api::feature::{
    DiscoFeature, Feature, FeatureBuilder, OptionKind, OptionSpec, OptionValue, Spec,
};
use feature_api::service::ServiceSpec;
use fields::{FIELDS, LEGACY_FIELDS};
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use stanza::payload::rsm::{PagePosition, RsmRequest, RsmResponse};
use stanza::{StanzaCondition, StanzaError};
use store::user_search::MAX_COUNT;
use store::{
    FoundUser, SearchPageRequest, Seek, StoreError, StoreErrorKind, Stores, UserQuery, UserSearchPage,
};
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::server_error::store_error;
use xml::{Ns, Writer};

/// User Search.
pub static FEATURE: Feature = Feature {
    name: "user_search",
    summary: "Finds users by name, nickname and email address.",
    specs: &[
        Spec { name: "XEP-0055", title: "Jabber Search", version: "1.3", not_implemented: "" },
        Spec { name: "XEP-0059", title: "Result Set Management", version: "1.0", not_implemented: "" },
    ],
    disco: &[
        DiscoFeature::Server(Ns::Search.as_str()),
        DiscoFeature::Server(Ns::Rsm.as_str()),
        DiscoFeature::Service(Ns::Search.as_str()),
        DiscoFeature::Service(Ns::Rsm.as_str()),
    ],
    service: Some(&ServiceSpec { identity: DIRECTORY }),
    iq: &[FORM, SEARCH, SERVICE_FORM, SERVICE_SEARCH],
    options: &[
        ServiceSpec::address_option("vjud.{domain}"),
        ServiceSpec::rate_option(5),
        OptionSpec {
            key: "access",
            kind: OptionKind::Text,
            default: OptionValue::Text(std::borrow::Cow::Borrowed("users")),
            doc: "Who can search: `users` with an account on the domain, `admins` only, or `all` including \
             anonymous users and users of other servers.",
        },
        OptionSpec {
            key: "max_results",
            kind: OptionKind::Int(1, store::user_search::MAX_PAGE_SIZE as i64),
            default: OptionValue::Int(50),
            doc: "Maximum number of users per page; clients request further pages.",
        },
        OptionSpec {
            key: "list_all",
            kind: OptionKind::Bool,
            default: OptionValue::Bool(false),
            doc: "Return all users, paginated, for a search without terms; otherwise such a search is \
             refused.",
        },
    ],
    build,
    ..Feature::EMPTY
};

const FORM: IqKey = IqKey::get(IqTarget::Server, Ns::Search, "query");
const SEARCH: IqKey = IqKey::set(IqTarget::Server, Ns::Search, "query");
const SERVICE_FORM: IqKey = IqKey::get(IqTarget::Service, Ns::Search, "query");
const SERVICE_SEARCH: IqKey = IqKey::set(IqTarget::Service, Ns::Search, "query");
/// The identity of the service and of the domain.
const DIRECTORY: DiscoIdentity = DiscoIdentity { category: "directory", kind: "user", name: "Users" };

/// Users who may search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchAccess {
    Users,
    Admins,
    All,
}

#[derive(Clone, Copy)]
struct SearchRules {
    access: SearchAccess,
    results: u32,
    list_all: bool,
}

fn build(builder: &mut FeatureBuilder<'_>) {
    let access = match builder.options.text("access") {
        "all" => SearchAccess::All,
        "admins" => SearchAccess::Admins,
        "users" => SearchAccess::Users,
        other => {
            let problem = format!("must be users, admins or all, not \"{other}\"");
            builder.refuse_option("access", problem);
            SearchAccess::Users
        }
    };
    let rules = SearchRules {
        access,
        results: u32::try_from(builder.options.int("max_results")).unwrap_or(50),
        list_all: builder.options.bool("list_all"),
    };
    builder.disco_identity(DIRECTORY);
    for form in [FORM, SERVICE_FORM] {
        builder.iq(form, move |r: &mut IqRequest<'_>| {
            IqFlow::Reply(check_access(r, rules.access).map(|()| {
                let mut out = Vec::with_capacity(1024);
                fields::write_form(&mut Writer::new(&mut out));
                out
            }))
        });
    }
    for key in [SEARCH, SERVICE_SEARCH] {
        builder.iq(key, move |r: &mut IqRequest<'_>| search(r, rules).unwrap_or_else(IqFlow::error));
    }
}

fn check_access(request: &IqRequest<'_>, access: SearchAccess) -> Result<(), StanzaError> {
    let user = request.is_from_user_of_domain();
    let may = match access {
        SearchAccess::All => true,
        SearchAccess::Users => user,
        SearchAccess::Admins => user && request.node.is_admin(request.from),
    };
    if may {
        return Ok(());
    }
    Err(StanzaError::new(StanzaCondition::Forbidden).text("you are not allowed to search the directory"))
}

/// A search at the domain counts for the rate of the service: the answer is the same, and so is the work.
fn check_rate(request: &IqRequest<'_>) -> Result<(), StanzaError> {
    let of_domain = request.host.services.iter().filter(|_| request.service.is_none());
    let mut service = of_domain.filter(|service| service.feature == FEATURE.name);
    if service.all(|service| service.try_take_rate(request.node, request.from)) {
        return Ok(());
    }
    Err(StanzaError::new(StanzaCondition::ResourceConstraint).text("too many searches; wait"))
}

fn search(request: &IqRequest<'_>, rules: SearchRules) -> Result<IqFlow, StanzaError> {
    check_access(request, rules.access)?;
    check_rate(request)?;
    let tree = request.tree()?;
    let query = tree.root().child_elements().next().ok_or(StanzaCondition::BadRequest)?;
    let form = query.child("x", Ns::DataForms);
    let terms = match form {
        Some(x) => fields::query_from_form(&fields::form().validate(&DataForm::read(x)?)?),
        None => fields::query_from_elements(query),
    };
    if terms.plan() == UserQuery::default().plan() && !rules.list_all {
        let text = "fill in at least one field to search";
        return Err(StanzaError::new(StanzaCondition::NotAcceptable).text(text));
    }
    let pages = RsmRequest::from_parent(query)?;
    let (stores, domain) = (request.node.stores.clone(), request.host.domain().to_owned());
    let max_bytes = request.node.limits().outgoing_stanza_bytes();
    let as_form = form.is_some();
    Ok(IqFlow::wait(async move {
        match fetch_page(&stores, &domain, &terms, pages.as_ref(), (rules.results, max_bytes)).await {
            Ok(page) => Ok(page.write(as_form)),
            Err(error) if error.kind == StoreErrorKind::NotFound => {
                Err(StanzaError::new(StanzaCondition::ItemNotFound)
                    .text("this position is not in the result"))
            }
            Err(error) if error.kind == StoreErrorKind::TooBroad => {
                Err(StanzaError::new(StanzaCondition::NotAcceptable)
                    .text("too many users match the longest term; use a longer one"))
            }
            Err(error) => Err(store_error(error)),
        }
    }))
}

/// Reply to a search.
#[derive(Default)]
struct SearchReply {
    users: Vec<FoundUser>,
    /// Position of the page; only for requests with paging.
    result_set: Option<(Option<u64>, u64)>,
}

async fn fetch_page(
    stores: &Stores,
    domain: &str,
    terms: &UserQuery,
    pages: Option<&RsmRequest>,
    (most, max_bytes): (u32, u32),
) -> Result<SearchReply, StoreError> {
    let Some(pages) = pages else {
        let page = SearchPageRequest { seek: Seek::First, limit: most };
        let mut users = stores.user_search.search(domain, terms, page).await?.users;
        cut_page(&mut users, max_bytes, false);
        return Ok(SearchReply { users, result_set: None });
    };
    let count = stores.user_search.count(domain, terms).await?;
    let limit = pages.page_size(most);
    if limit == 0 || count == 0 {
        return Ok(SearchReply { users: Vec::new(), result_set: Some((None, count)) });
    }
    let seek = match &pages.position {
        PagePosition::First => Seek::First,
        PagePosition::After(id) => Seek::After(id.clone()),
        PagePosition::Before(id) => Seek::Before(id.clone()),
        PagePosition::Last => Seek::Last,
        PagePosition::Index(index) => Seek::Index(*index),
    };
    let is_backward = matches!(seek, Seek::Before(_) | Seek::Last);
    let UserSearchPage { mut users, .. } =
        stores.user_search.search(domain, terms, SearchPageRequest { seek, limit }).await?;
    cut_page(&mut users, max_bytes, is_backward);
    let index = match (&pages.position, users.first()) {
        (_, None) => None,
        (PagePosition::First, _) => Some(0),
        (PagePosition::Index(index), _) => Some(u64::from(*index)),
        (_, Some(first)) => {
            let index = stores.user_search.index(domain, terms, &first.cursor).await?;
            Some(index).filter(|index| *index < MAX_COUNT)
        }
    };
    Ok(SearchReply { users, result_set: Some((index, count)) })
}

/// Cuts a page to a number of bytes, at its beginning if the request pages backwards: a larger stanza would end the stream.
/// XEP-0059, section 2.1, permits fewer items than requested. One user always remains.
fn cut_page(users: &mut Vec<FoundUser>, max_bytes: u32, is_backward: bool) {
    let mut bytes = 0_usize;
    let fits = |user: &&FoundUser| {
        bytes = bytes.saturating_add(written_bytes(user));
        bytes <= max_bytes as usize
    };
    let kept = if is_backward {
        users.iter().rev().take_while(fits).count()
    } else {
        users.iter().take_while(fits).count()
    };
    let cut = users.len() - kept.max(1).min(users.len());
    if is_backward {
        users.drain(..cut);
    } else {
        users.truncate(users.len() - cut);
    }
}

/// Maximum bytes of a user in a reply.
fn written_bytes(user: &FoundUser) -> usize {
    /// The elements around the values of a form's item, rounded up.
    const MARKUP: usize = 512;
    // The longest escape is that of an apostrophe.
    let written = |text: &str| text.len() + 5 * text.bytes().filter(|byte| b"&<>'\"".contains(byte)).count();
    let values = FIELDS.iter().map(|field| written(field.value(user))).sum::<usize>();
    MARKUP + written(user.jid.as_str()) + values
}

impl SearchReply {
    fn write(&self, as_form: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + 160 * self.users.len());
        let mut w = Writer::new(&mut out);
        w.start_ns("query", Ns::Search);
        // Section 2.1: an empty query when nothing matches; the same for an empty page.
        if as_form && !self.users.is_empty() {
            self.form().write(&mut w);
        } else {
            for user in &self.users {
                w.start("item").attr("jid", user.jid.as_str());
                for field in LEGACY_FIELDS {
                    w.text_element(field.var, field.value(user));
                }
                w.end();
            }
        }
        if let Some((index, count)) = self.result_set
            && count > 0
        {
            let ends = self.users.first().zip(self.users.last());
            let ends = ends.map(|(first, last)| (first.cursor.as_str(), last.cursor.as_str()));
            RsmResponse { first_and_last: ends, index, count: Some(count) }.write(&mut w);
        }
        w.end();
        out
    }

    fn form(&self) -> DataForm {
        let mut form = DataForm::typed(FormKind::Result, Ns::Search.as_str());
        form = form.column(FormFieldType::JidSingle, "jid", "Address");
        for field in FIELDS {
            form = form.column(FormFieldType::TextSingle, field.var, field.label);
        }
        for user in &self.users {
            let mut cells = vec![FormField::cell("jid", user.jid.as_str())];
            cells.extend(FIELDS.iter().map(|field| FormField::cell(field.var, field.value(user))));
            form = form.item(cells);
        }
        form
    }
}
