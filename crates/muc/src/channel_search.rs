//! Search of public rooms: XEP-0433 0.1.0, with pages of XEP-0059 1.0.
//!
//! Not implemented: descriptions of stored rooms that nobody uses, which are searched by name and address; temporary rooms of other
//! nodes.
//!
//! # Pitfalls
//!
//! The rooms that are searched are up to [`MAX_AGE_MILLIS`] old.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use base::lock::LeafMutex;
use jid::Jid;
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use stanza::payload::rsm::{PagePosition, RsmRequest, RsmResponse};
use stanza::{ErrorType, StanzaCondition, StanzaError};
use store::{ListedRoom, StoreError};
use throng_core::Node;
use throng_core::iq::{IqFlow, IqRequest};
use throng_core::server_error::store_error;
use xml::{Ns, Writer};

use crate::room_directory::{RoomDirectory, RoomSummary};
use crate::service::RoomService;

/// `FORM_TYPE` of a search.
const SEARCH_FORM: &str = "urn:xmpp:channel-search:0:search-params";
const BY_USERS: &str = "{urn:xmpp:channel-search:0:order}nusers";
const BY_ADDRESS: &str = "{urn:xmpp:channel-search:0:order}address";
const NOT_ANONYMOUS: &str = "{urn:xmpp:channel-search:0:anonymity}none";
const SERVICE_TYPE: &str = "xep-0045";

/// Rooms of a page.
const MAX_PAGE: u32 = 100;
/// Rooms that are searched.
const MAX_CHANNELS: usize = 10_000;
/// Stored rooms that are read at a time.
const STORE_PAGE: u32 = 1_000;
/// Time after which the rooms are read again, in milliseconds.
const MAX_AGE_MILLIS: u64 = 10_000;
/// Searches of all users in a second: each examines all rooms.
const MAX_SEARCHES_PER_SECOND: u32 = 50;
/// Bounds of the search terms.
const MAX_QUERY_BYTES: usize = 256;
const MAX_TERMS: usize = 10;

/// A public room.
#[derive(Debug)]
struct Channel {
    address: Jid,
    name: String,
    /// What is known of a room that is in use.
    used: Option<RoomSummary>,
    /// Name and description in lower case.
    lower_name: String,
    lower_description: String,
}

impl Channel {
    fn new(address: Jid, name: String, used: Option<RoomSummary>) -> Channel {
        let lower_description = used.as_ref().map(|used| used.description.to_lowercase());
        Channel {
            address,
            lower_name: name.to_lowercase(),
            lower_description: lower_description.unwrap_or_default(),
            name,
            used,
        }
    }

    fn users(&self) -> usize {
        self.used.as_ref().map_or(0, |used| used.occupants)
    }
}

#[derive(Default)]
struct ChannelCache {
    channels: Option<Arc<Vec<Channel>>>,
    read_at: u64,
    second: u64,
    searches: u32,
}

/// The rooms that are searched, as they were a moment ago.
#[derive(Default)]
pub(crate) struct ChannelIndex(LeafMutex<ChannelCache>);

impl ChannelIndex {
    /// Whether one more search is permitted in this second.
    fn permit(&self, now: u64) -> bool {
        let mut cache = self.0.lock();
        if cache.second != now / 1000 {
            (cache.second, cache.searches) = (now / 1000, 0);
        }
        cache.searches = cache.searches.saturating_add(1);
        cache.searches <= MAX_SEARCHES_PER_SECOND
    }

    /// The rooms, unless they must be read again; others use the former ones meanwhile.
    fn fresh(&self, now: u64) -> Option<Arc<Vec<Channel>>> {
        let mut cache = self.0.lock();
        let is_fresh = now < cache.read_at.saturating_add(MAX_AGE_MILLIS);
        if is_fresh && cache.channels.is_some() {
            return cache.channels.clone();
        }
        cache.read_at = now;
        None
    }

    async fn read(
        &self,
        node: &Node,
        directory: &RoomDirectory,
        service: &str,
    ) -> Result<Arc<Vec<Channel>>, StoreError> {
        let now = node.clock.unix_millis();
        if let Some(channels) = self.fresh(now) {
            return Ok(channels);
        }
        let temporary = directory.listed_page(service, None, MAX_CHANNELS).into_iter();
        let mut channels: Vec<Channel> = temporary
            .map(|(address, summary)| Channel::new(address, summary.name.clone(), Some(summary)))
            .collect();
        let mut after = None;
        while channels.len() < MAX_CHANNELS {
            let stored = node.stores.rooms.list(service, after, STORE_PAGE).await?;
            let is_last = stored.len() < STORE_PAGE as usize;
            after = stored.last().map(|room| room.jid.clone());
            channels.extend(stored.into_iter().map(|ListedRoom { jid, title }| {
                let used = directory.summary(&jid);
                Channel::new(jid, title, used)
            }));
            if is_last {
                break;
            }
        }
        let channels = Arc::new(channels);
        self.0.lock().channels = Some(channels.clone());
        Ok(channels)
    }
}

/// Order of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SortKey {
    Users,
    Address,
}

/// A search.
#[derive(Debug)]
struct ChannelQuery {
    /// In lower case; none: all rooms.
    terms: Vec<String>,
    in_name: bool,
    in_description: bool,
    in_address: bool,
    min_users: usize,
    /// Whether rooms of this kind are wanted.
    wants_rooms: bool,
    key: SortKey,
}

fn refuse(condition: StanzaCondition, kind: ErrorType, name: &'static str) -> StanzaError {
    StanzaError::new(condition).kind(kind).application_condition(Ns::ChannelSearchErrors, name)
}

fn conflict(vars: &[&str], text: &'static str) -> StanzaError {
    StanzaError::new(StanzaCondition::BadRequest).kind(ErrorType::Modify).text(text).application_element(
        |w| {
            w.start_ns("conflicting-fields", Ns::ChannelSearchErrors);
            for var in vars {
                w.text_element("var", var);
            }
            w.end();
        },
    )
}

impl ChannelQuery {
    /// Reads a submitted form; fields that are absent have their defaults.
    fn read(form: &DataForm) -> Result<ChannelQuery, StanzaError> {
        if form.kind != FormKind::Submit || form.form_type() != Some(SEARCH_FORM) {
            return Err(StanzaCondition::BadRequest.into());
        }
        let query = form.value("q").filter(|query| !query.is_empty());
        let all = form.bool("all") == Some(true);
        let switch = |var: &str| form.bool(var).unwrap_or(true);
        let (in_name, in_description) = (switch("sinname"), switch("sindescription"));
        // The example of the specification has another name than its table.
        let in_address = switch("sinaddress") && switch("sinaddr");
        if query.is_some() && all {
            let text = "\"Search for\" cannot be used together with \"Return all entries\"";
            return Err(conflict(&["all", "q"], text));
        }
        if query.is_none() && !all {
            return Err(refuse(StanzaCondition::BadRequest, ErrorType::Cancel, "no-search-conditions"));
        }
        if query.is_some() && !in_name && !in_description && !in_address {
            let text =
                "a search needs \"Search in name\", \"Search in description\" or \"Search in address\"";
            return Err(conflict(&["sinname", "sindescription", "sinaddress"], text));
        }
        let lower = query.unwrap_or_default().to_lowercase();
        let terms: Vec<String> = lower.split_whitespace().map(str::to_owned).collect();
        if query.is_some() && (terms.is_empty() || terms.len() > MAX_TERMS || lower.len() > MAX_QUERY_BYTES) {
            let error = refuse(StanzaCondition::BadRequest, ErrorType::Modify, "invalid-search-terms");
            return Err(error.text("a search has one to ten terms, with at most 256 bytes in all"));
        }
        let key = match form.value("key") {
            None | Some("" | BY_USERS) => SortKey::Users,
            Some(BY_ADDRESS) => SortKey::Address,
            Some(_) => {
                let condition = StanzaCondition::FeatureNotImplemented;
                return Err(refuse(condition, ErrorType::Modify, "invalid-sort-key"));
            }
        };
        let min_users = match form.value("min_users").map(str::trim) {
            None | Some("") => 0,
            Some(number) => number.parse().map_err(|_| StanzaCondition::BadRequest)?,
        };
        let types = form.values("types");
        let wants_rooms = types.is_empty() || types.iter().any(|one| one == SERVICE_TYPE);
        Ok(ChannelQuery { terms, in_name, in_description, in_address, min_users, wants_rooms, key })
    }

    fn matches(&self, channel: &Channel) -> bool {
        let address = channel.address.as_str();
        let is_found = |term: &String| {
            self.in_name && channel.lower_name.contains(term)
                || self.in_address && address.contains(term)
                || self.in_description && channel.lower_description.contains(term)
        };
        self.wants_rooms && channel.users() >= self.min_users && self.terms.iter().all(is_found)
    }

    fn sort(&self, found: &mut [&Channel]) {
        match self.key {
            SortKey::Address => found.sort_unstable_by(|one, other| one.address.cmp(&other.address)),
            SortKey::Users => {
                found.sort_unstable_by(|one, other| users_first(one).cmp(&users_first(other)));
            }
        }
    }

    /// The id of a result on a page.
    fn id(&self, channel: &Channel) -> String {
        match self.key {
            SortKey::Address => channel.address.to_string(),
            SortKey::Users => format!("{} {}", channel.users(), channel.address),
        }
    }

    /// Positions before and after a result with this id, which need not exist any more.
    fn around(&self, found: &[&Channel], id: &str) -> Option<Range<usize>> {
        let (users, address) = match self.key {
            SortKey::Address => (0, id),
            SortKey::Users => {
                let (users, address) = id.split_once(' ')?;
                (users.parse().ok()?, address)
            }
        };
        let address = Jid::parse(address).ok()?;
        let order = |one: &Channel| match self.key {
            SortKey::Address => one.address.as_str().cmp(address.as_str()),
            SortKey::Users => users_first(one).cmp(&(Reverse(users), address.as_str())),
        };
        let before = found.partition_point(|one| order(one).is_lt());
        Some(before..found.partition_point(|one| order(one).is_le()))
    }

    fn page(&self, found: &[&Channel], paging: &RsmRequest) -> Result<Range<usize>, StanzaError> {
        let size = paging.page_size(MAX_PAGE) as usize;
        let around =
            |id: &str| self.around(found, id).ok_or_else(|| StanzaError::new(StanzaCondition::ItemNotFound));
        let backwards = |end: usize| end.saturating_sub(size)..end;
        let forwards = |start: usize| start..start.saturating_add(size).min(found.len());
        Ok(match &paging.position {
            PagePosition::First => forwards(0),
            PagePosition::After(id) => forwards(around(id)?.end),
            PagePosition::Before(id) => backwards(around(id)?.start),
            PagePosition::Last => backwards(found.len()),
            PagePosition::Index(index) => forwards(found.len().min(*index as usize)),
        })
    }
}

/// Descending by users, then by address.
fn users_first(channel: &Channel) -> (Reverse<usize>, &str) {
    (Reverse(channel.users()), channel.address.as_str())
}

/// The form, with all fields and their defaults (section 5).
fn search_form() -> DataForm {
    let switch = |var: &str, label: &str| FormField::boolean(var, true).label(label);
    DataForm::typed(FormKind::Form, SEARCH_FORM)
        .field(FormField::new(FormFieldType::TextSingle, "q").label("Search for"))
        .field(FormField::boolean("all", false).label("Return all entries (ignore search terms)"))
        .field(switch("sinname", "Search in name"))
        .field(switch("sindescription", "Search in description"))
        .field(switch("sinaddress", "Search in address"))
        .field(
            FormField::new(FormFieldType::TextSingle, "min_users")
                .label("Minimum number of users")
                .value("0"),
        )
        .field(
            FormField::new(FormFieldType::ListMulti, "types")
                .label("Service types")
                .value(SERVICE_TYPE)
                .option("XEP-0045 Multi User Chats", SERVICE_TYPE),
        )
        .field(
            FormField::new(FormFieldType::ListSingle, "key")
                .label("Sort results by")
                .value(BY_USERS)
                .option("Number of online users", BY_USERS)
                .option("Address", BY_ADDRESS),
        )
}

fn write_channel(w: &mut Writer<'_>, channel: &Channel) {
    w.start("item").attr("address", channel.address.as_str());
    let name =
        if channel.name.is_empty() { channel.address.local().unwrap_or_default() } else { &channel.name };
    w.text_element("name", name);
    if let Some(used) = &channel.used {
        if !used.description.is_empty() {
            w.text_element("description", &used.description);
        }
        if !used.language.is_empty() {
            w.text_element("language", &used.language);
        }
    }
    w.text_element("nusers", &channel.users().to_string()).text_element("service-type", SERVICE_TYPE);
    if let Some(used) = &channel.used {
        if used.is_open {
            w.text_element("is-open", "true");
        }
        let mode = if used.is_non_anonymous { NOT_ANONYMOUS } else { "muc_semianonymous" };
        w.text_element("anonymity-mode", mode);
    }
    w.end();
}

impl RoomService {
    /// The form, or the results of a submitted one.
    pub(crate) fn search(&self, request: &IqRequest<'_>) -> Result<IqFlow, StanzaError> {
        let service = request.service.ok_or(StanzaCondition::ServiceUnavailable)?.address().to_owned();
        let tree = request.tree()?;
        let search = tree.root().child_elements().next().ok_or(StanzaCondition::BadRequest)?;
        let Some(form) = search.child("x", Ns::DataForms) else {
            return Ok(IqFlow::result(|w| {
                w.start_ns("search", Ns::ChannelSearch);
                search_form().write(w);
                w.end();
            }));
        };
        let query = ChannelQuery::read(&DataForm::read(form)?)?;
        let paging = RsmRequest::from_parent(search)?.unwrap_or_default();
        let (shared, node) = (self.shared.clone(), request.node.clone());
        if !shared.channels.permit(node.clock.unix_millis()) {
            let error = StanzaError::new(StanzaCondition::ResourceConstraint).kind(ErrorType::Wait);
            return Err(error.application_element(|w| {
                w.start_ns("rate-limit", Ns::ChannelSearchErrors).attr("retry-after", "1").end();
            }));
        }
        Ok(IqFlow::wait(async move {
            let channels =
                shared.channels.read(&node, &shared.directory, &service).await.map_err(store_error)?;
            let mut found: Vec<&Channel> = channels.iter().filter(|one| query.matches(one)).collect();
            query.sort(&mut found);
            let page = query.page(&found, &paging)?;
            let first = page.start as u64;
            let page = found.get(page).unwrap_or_default();
            let mut out = Vec::with_capacity(1024);
            let mut w = Writer::new(&mut out);
            w.start_ns("result", Ns::ChannelSearch);
            // A room that has become hidden is not shown any more.
            let is_shown = |one: &&&Channel| !shared.directory.contains(&one.address, |it| !it.is_public);
            page.iter().filter(is_shown).for_each(|one| write_channel(&mut w, one));
            let ends = page.first().zip(page.last()).map(|(first, last)| (query.id(first), query.id(last)));
            let ends = ends.as_ref().map(|(first, last)| (first.as_str(), last.as_str()));
            let index = ends.map(|_| first);
            RsmResponse { first_and_last: ends, index, count: Some(found.len() as u64) }.write(&mut w);
            w.end();
            Ok(out)
        }))
    }
}
