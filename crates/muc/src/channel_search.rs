//! Search of public rooms: XEP-0433 0.1.0, with pages of XEP-0059 1.0.
//!
//! Not implemented: descriptions and details of stored rooms that nobody uses on this node, which are searched by name and address;
//! temporary rooms of other nodes; rooms beyond [`MAX_CHANNELS`], also in the list of all (section 5).
//!
//! # Pitfalls
//!
//! The rooms that are searched are up to [`MAX_AGE_MILLIS`] old. A search examines all of them, so it lets other tasks run meanwhile.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use base::lock::LeafMutex;
use base::spawn::yield_now;
use hashbrown::HashMap;
use jid::{Jid, JidRef};
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
/// Temporary rooms among them, so that stored ones are found, too.
const MAX_TEMPORARY: usize = MAX_CHANNELS / 2;
/// Rooms that are read at a time.
const READ_PAGE: u32 = 1_000;
/// Rooms that are examined before other tasks run.
const EXAMINED_AT_ONCE: usize = 200;
/// Time after which the rooms are read again, in milliseconds.
const MAX_AGE_MILLIS: u64 = 10_000;
/// Searches of all users in a second: each examines all rooms.
const MAX_SEARCHES_PER_SECOND: u32 = 50;
/// Searches of one user in an interval.
const MAX_SEARCHES_OF_USER: u32 = 20;
const USER_INTERVAL_SECONDS: u64 = 10;
/// Bounds of the search terms.
const MAX_QUERY_BYTES: usize = 256;
const MAX_TERMS: usize = 10;

/// A public room.
#[derive(Debug)]
struct Channel {
    address: Jid,
    name: String,
    /// Summary of a room that is in use on this node.
    summary: Option<RoomSummary>,
    /// Number of occupants, if it is known.
    users: Option<usize>,
    /// Name and description in lower case.
    lower_name: String,
    lower_description: String,
}

impl Channel {
    /// `users_if_unused` is the number of occupants of a room that is not in use on this node, if it is known.
    fn new(
        address: Jid,
        name: String,
        summary: Option<RoomSummary>,
        users_if_unused: Option<usize>,
    ) -> Channel {
        let users = summary.as_ref().map(|summary| summary.occupants).or(users_if_unused);
        let lower_description = summary.as_ref().map(|summary| summary.description.to_lowercase());
        Channel {
            address,
            lower_name: name.to_lowercase(),
            lower_description: lower_description.unwrap_or_default(),
            name,
            summary,
            users,
        }
    }

    /// An unknown number of occupants counts as none.
    fn known_users(&self) -> usize {
        self.users.unwrap_or_default()
    }
}

/// The rooms in both orders.
#[derive(Debug, Default)]
struct ChannelLists {
    by_users: Vec<Arc<Channel>>,
    by_address: Vec<Arc<Channel>>,
}

impl ChannelLists {
    fn new(channels: Vec<Channel>) -> ChannelLists {
        let mut by_users: Vec<Arc<Channel>> = channels.into_iter().map(Arc::new).collect();
        let mut by_address = by_users.clone();
        by_address.sort_unstable_by(|one, other| one.address.cmp(&other.address));
        by_users.sort_unstable_by(|one, other| users_first(one).cmp(&users_first(other)));
        ChannelLists { by_users, by_address }
    }
}

/// Searches in the current second and, of each user, in the current interval.
#[derive(Default)]
struct SearchCounts {
    second: u64,
    searches: u32,
    interval: u64,
    by_user: HashMap<Jid, u32>,
}

impl SearchCounts {
    /// Counts one more search.
    ///
    /// # Errors
    /// Seconds until it is permitted.
    fn add(&mut self, user: JidRef<'_>, now: u64) -> Result<(), u64> {
        let second = now / 1000;
        if self.second != second {
            (self.second, self.searches) = (second, 0);
        }
        let interval = second / USER_INTERVAL_SECONDS;
        if self.interval != interval {
            (self.interval, self.by_user) = (interval, HashMap::new());
        }
        let user = user.bare().to_jid();
        if self.by_user.get(&user).is_some_and(|searches| *searches >= MAX_SEARCHES_OF_USER) {
            return Err((interval + 1) * USER_INTERVAL_SECONDS - second);
        }
        if self.searches >= MAX_SEARCHES_PER_SECOND {
            return Err(1);
        }
        self.searches += 1;
        *self.by_user.entry(user).or_default() += 1;
        Ok(())
    }
}

#[derive(Default)]
struct ChannelCache {
    channels: Option<Arc<ChannelLists>>,
    read_at: u64,
    searches: SearchCounts,
}

/// The rooms that are searched, as they were a moment ago.
#[derive(Default)]
pub(crate) struct ChannelIndex(LeafMutex<ChannelCache>);

impl ChannelIndex {
    /// The rooms, unless they must be read again; others use the former ones meanwhile.
    fn fresh(&self, now: u64) -> Option<Arc<ChannelLists>> {
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
    ) -> Result<Arc<ChannelLists>, StoreError> {
        let now = node.clock.unix_millis();
        if let Some(channels) = self.fresh(now) {
            return Ok(channels);
        }
        // Other nodes do not tell which rooms they have in use.
        let users_if_unused = node.is_single().then_some(0);
        let mut channels: Vec<Channel> = Vec::new();
        let mut after: Option<Jid> = None;
        while channels.len() < MAX_TEMPORARY {
            // In pages, since the lock of the directory is that of every room.
            let page = directory.listed_page(service, after.as_ref().map(Jid::as_ref), READ_PAGE as usize);
            let is_last = page.len() < READ_PAGE as usize;
            after = page.last().map(|(room, _)| room.clone());
            channels.extend(page.into_iter().map(|(address, summary)| {
                Channel::new(address, summary.name.clone(), Some(summary), users_if_unused)
            }));
            if is_last {
                break;
            }
            yield_now().await;
        }
        let mut after = None;
        while channels.len() < MAX_CHANNELS {
            let stored = node.stores.rooms.list(service, after, READ_PAGE).await?;
            let is_last = stored.len() < READ_PAGE as usize;
            after = stored.last().map(|room| room.jid.clone());
            channels.extend(stored.into_iter().map(|ListedRoom { jid, title }| {
                let summary = directory.summary(&jid);
                Channel::new(jid, title, summary, users_if_unused)
            }));
            if is_last {
                break;
            }
            yield_now().await;
        }
        let channels = Arc::new(ChannelLists::new(channels));
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
        self.wants_rooms && channel.known_users() >= self.min_users && self.terms.iter().all(is_found)
    }

    /// All rooms in the order of this search.
    fn ordered<'a>(&self, channels: &'a ChannelLists) -> &'a [Arc<Channel>] {
        match self.key {
            SortKey::Address => &channels.by_address,
            SortKey::Users => &channels.by_users,
        }
    }

    /// The id of a result on a page.
    fn id(&self, channel: &Channel) -> String {
        match self.key {
            SortKey::Address => channel.address.to_string(),
            SortKey::Users => format!("{} {}", channel.known_users(), channel.address),
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
    (Reverse(channel.known_users()), channel.address.as_str())
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

/// Those that `is_chosen` selects; other tasks run meanwhile.
async fn choose(channels: Vec<&Channel>, is_chosen: impl Fn(&Channel) -> bool) -> Vec<&Channel> {
    let mut chosen = Vec::new();
    for part in channels.chunks(EXAMINED_AT_ONCE) {
        chosen.extend(part.iter().copied().filter(|one| is_chosen(one)));
        yield_now().await;
    }
    chosen
}

fn write_channel(w: &mut Writer<'_>, channel: &Channel) {
    w.start("item").attr("address", channel.address.as_str());
    let name =
        if channel.name.is_empty() { channel.address.local().unwrap_or_default() } else { &channel.name };
    w.text_element("name", name);
    if let Some(summary) = &channel.summary {
        if !summary.description.is_empty() {
            w.text_element("description", &summary.description);
        }
        if !summary.language.is_empty() {
            w.text_element("language", &summary.language);
        }
    }
    if let Some(users) = channel.users {
        w.text_element("nusers", &users.to_string());
    }
    w.text_element("service-type", SERVICE_TYPE);
    if let Some(summary) = &channel.summary {
        if summary.is_open {
            w.text_element("is-open", "true");
        }
        let mode = if summary.is_non_anonymous { NOT_ANONYMOUS } else { "muc_semianonymous" };
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
        let counted = shared.channels.0.lock().searches.add(request.from, node.clock.unix_millis());
        if let Err(seconds) = counted {
            let error = StanzaError::new(StanzaCondition::ResourceConstraint).kind(ErrorType::Wait);
            return Err(error.application_element(|w| {
                let limit = w.start_ns("rate-limit", Ns::ChannelSearchErrors);
                limit.attr("retry-after", &seconds.to_string()).end();
            }));
        }
        Ok(IqFlow::wait(async move {
            let channels =
                shared.channels.read(&node, &shared.directory, &service).await.map_err(store_error)?;
            let all = query.ordered(&channels).iter().map(|one| &**one).collect();
            let mut found = choose(all, |one| query.matches(one)).await;
            let mut range = query.page(&found, &paging)?;
            // A room of this node that is in use and has become hidden is not found any more, others after a while.
            let is_shown = |one: &Channel| !shared.directory.contains(&one.address, |it| !it.is_public);
            if !found.get(range.clone()).unwrap_or_default().iter().all(|one| is_shown(one)) {
                found = choose(found, is_shown).await;
                range = query.page(&found, &paging)?;
            }
            let first = range.start as u64;
            let page = found.get(range).unwrap_or_default();
            let mut out = Vec::with_capacity(1024);
            let mut w = Writer::new(&mut out);
            w.start_ns("result", Ns::ChannelSearch);
            page.iter().for_each(|one| write_channel(&mut w, one));
            let ends = page.first().zip(page.last()).map(|(first, last)| (query.id(first), query.id(last)));
            let ends = ends.as_ref().map(|(first, last)| (first.as_str(), last.as_str()));
            let index = ends.map(|_| first);
            RsmResponse { first_and_last: ends, index, count: Some(found.len() as u64) }.write(&mut w);
            w.end();
            Ok(out)
        }))
    }
}
