//! User Search: XEP-0055 1.3 sections 2 (the fields of old) and 3 (data forms), in pages of XEP-0059 1.0.
//!
//! The domain itself is the directory. A field that is filled in finds what begins with it, without regard to case; no
//! character is a wildcard. The store reads an index in its order and stops after a page, so a search by one term costs what it
//! shows, however many accounts there are. By several it passes over those that match the longest term only; what would read
//! too many of them is refused with `not-acceptable`. Counts end at 10 000.
//!
//! Left out: words in the middle of a text.
//!
//! The trap: the ids of a result set are places in the order of one query; with another query they mean something else.

mod fields;

use stanza::payload::data_form::{Field, FieldKind, Form, FormKind};
use stanza::payload::rsm::{Answer, Place, Request};
use stanza::{StanzaCondition, StanzaError};
use store::directory::COUNT_MOST;
use store::{ErrorKind, Found, FoundUser, Query, SearchPage, Seek, StoreError, Stores};
use throng_core::Effects;
use throng_core::disco::Identity;
use throng_core::fault::store_error;
use throng_core::feature::{Builder, Disco, Feature, Kind, OptionSpec, Spec, Value};
use throng_core::iq::{IqFlow, IqKey, IqRequest, Target};
use throng_core::session::flags;
use xml::{Ns, Writer};

use fields::{FIELDS, LEGACY};

/// User Search.
pub static FEATURE: Feature = Feature {
    name: "user_search",
    summary: "Finds users by name, nickname and email address.",
    specs: &[
        Spec { name: "XEP-0055", title: "Jabber Search", version: "1.3", left_out: "" },
        Spec { name: "XEP-0059", title: "Result Set Management", version: "1.0", left_out: "" },
    ],
    disco: &[Disco::Server(Ns::Search.as_str()), Disco::Server(Ns::Rsm.as_str())],
    iq: &[FORM, SEARCH],
    options: &[
        OptionSpec {
            key: "access",
            kind: Kind::Text,
            default: Value::Text(std::borrow::Cow::Borrowed("users")),
            doc: "Who may search: `users` with an account on the domain, `admins` only, or `all`, also guests and users of other servers.",
        },
        OptionSpec {
            key: "max_results",
            kind: Kind::Int(1, store::directory::PAGE_MOST as i64),
            default: Value::Int(50),
            doc: "How many users one answer has at most; clients ask for further pages.",
        },
        OptionSpec {
            key: "list_all",
            kind: Kind::Bool,
            default: Value::Bool(false),
            doc: "Answer a search without any term with all users, page by page; otherwise it is refused.",
        },
    ],
    build,
    ..Feature::EMPTY
};

const FORM: IqKey = IqKey::get(Target::Server, Ns::Search, "query");
const SEARCH: IqKey = IqKey::set(Target::Server, Ns::Search, "query");

/// Who may search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Users,
    Admins,
    All,
}

#[derive(Clone, Copy)]
struct Rules {
    who: Who,
    results: u32,
    list_all: bool,
}

fn build(builder: &mut Builder<'_>) {
    let who = match builder.options.text("access") {
        "all" => Who::All,
        "admins" => Who::Admins,
        "users" => Who::Users,
        other => {
            tracing::error!(
                who = other,
                "modules.user_search: \"access\" is users, admins or all; users may search"
            );
            Who::Users
        }
    };
    let rules = Rules {
        who,
        results: u32::try_from(builder.options.int("max_results")).unwrap_or(50),
        list_all: builder.options.bool("list_all"),
    };
    builder.disco_identity(Identity { category: "directory", kind: "user", name: "Users" });
    builder.iq(FORM, move |r: &mut IqRequest<'_>| {
        IqFlow::Reply(admit(r, rules.who).map(|()| {
            let mut out = Vec::with_capacity(1024);
            fields::write_form(&mut Writer::new(&mut out));
            out
        }))
    });
    builder.iq(SEARCH, move |r: &mut IqRequest<'_>| search(r, rules).unwrap_or_else(IqFlow::error));
}

fn admit(request: &IqRequest<'_>, who: Who) -> Result<(), StanzaError> {
    let user = request.session.is_some_and(|session| !session.flags.has(flags::EPHEMERAL));
    let may = match who {
        Who::All => true,
        Who::Users => user,
        Who::Admins => user && request.node.is_admin(request.from),
    };
    if may {
        return Ok(());
    }
    Err(StanzaError::new(StanzaCondition::Forbidden).text("the directory is not open to you"))
}

fn search(request: &IqRequest<'_>, rules: Rules) -> Result<IqFlow, StanzaError> {
    admit(request, rules.who)?;
    let tree = request.tree()?;
    let query = tree.root().child_elements().next().ok_or(StanzaCondition::BadRequest)?;
    let form = query.child("x", Ns::DataForms);
    let terms = match form {
        Some(x) => fields::of_form(&fields::form().accept(&Form::read(x)?)?),
        None => fields::of_elements(query),
    };
    if terms.plan() == Query::default().plan() && !rules.list_all {
        let text = "fill in at least one field to search";
        return Err(StanzaError::new(StanzaCondition::NotAcceptable).text(text));
    }
    let pages = Request::of(query)?;
    let (stores, domain) = (request.node.stores.clone(), request.host.domain().to_owned());
    let as_form = form.is_some();
    Ok(IqFlow::Wait(Box::pin(async move {
        let answer = match page(&stores, &domain, &terms, pages.as_ref(), rules.results).await {
            Ok(page) => Ok(page.write(as_form)),
            Err(error) if error.kind == ErrorKind::NotFound => {
                Err(StanzaError::new(StanzaCondition::ItemNotFound)
                    .text("there is no such place in the result"))
            }
            Err(error) if error.kind == ErrorKind::TooBroad => {
                Err(StanzaError::new(StanzaCondition::NotAcceptable)
                    .text("too many users match the longest term; give a longer one"))
            }
            Err(error) => Err(store_error(error)),
        };
        (answer, Effects::default())
    })))
}

/// What is answered.
#[derive(Default)]
struct Shown {
    users: Vec<FoundUser>,
    /// Where the page is; only for those who asked for one.
    set: Option<(Option<u64>, u64)>,
}

async fn page(
    stores: &Stores,
    domain: &str,
    terms: &Query,
    pages: Option<&Request>,
    most: u32,
) -> Result<Shown, StoreError> {
    let Some(pages) = pages else {
        let page = SearchPage { seek: Seek::First, limit: most };
        return Ok(Shown { users: stores.directory.search(domain, terms, page).await?.users, set: None });
    };
    let count = stores.directory.count(domain, terms).await?;
    let limit = pages.limit(most);
    if limit == 0 || count == 0 {
        return Ok(Shown { users: Vec::new(), set: Some((None, count)) });
    }
    let seek = match &pages.place {
        Place::First => Seek::First,
        Place::After(id) => Seek::After(id.clone()),
        Place::Before(id) => Seek::Before(id.clone()),
        Place::Last => Seek::Last,
        Place::Index(index) => Seek::Index(*index),
    };
    let Found { users, .. } = stores.directory.search(domain, terms, SearchPage { seek, limit }).await?;
    let index = match (&pages.place, users.first()) {
        (_, None) => None,
        (Place::First, _) => Some(0),
        (Place::Index(index), _) => Some(u64::from(*index)),
        (_, Some(first)) => {
            let index = stores.directory.index(domain, terms, &first.cursor).await?;
            Some(index).filter(|index| *index < COUNT_MOST)
        }
    };
    Ok(Shown { users, set: Some((index, count)) })
}

impl Shown {
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
                for field in LEGACY {
                    w.leaf(field.var, field.shown(user));
                }
                w.end();
            }
        }
        if let Some((index, count)) = self.set
            && count > 0
        {
            let ends = self.users.first().zip(self.users.last());
            let ends = ends.map(|(first, last)| (first.cursor.as_str(), last.cursor.as_str()));
            Answer { ends, index, count: Some(count) }.write(&mut w);
        }
        w.end();
        out
    }

    fn form(&self) -> Form {
        let mut form = Form::typed(FormKind::Result, Ns::Search.as_str());
        form = form.column(FieldKind::JidSingle, "jid", "Address");
        for field in FIELDS {
            form = form.column(FieldKind::TextSingle, field.var, field.label);
        }
        for user in &self.users {
            let mut cells = vec![Field::cell("jid", user.jid.as_str())];
            cells.extend(FIELDS.iter().map(|field| Field::cell(field.var, field.shown(user))));
            form = form.item(cells);
        }
        form
    }
}

#[cfg(test)]
mod tests;
