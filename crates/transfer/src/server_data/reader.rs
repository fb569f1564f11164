//! Reads XEP-0227 as a stream: nothing larger than one child of `<user/>` is in memory, and of rosters, private storage and
//! offline messages nothing larger than one entry. Subscription requests wait for the end of their account, within a limit.
//!
//! Long because the elements of an account are one list, as in the specification.
//!
//! # Pitfalls
//!
//! An included file is read only if it is below the folder of the main file: an export of another operator must not read
//! `/etc`.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufReader;
use std::path::{Component, Path, PathBuf};

use base::Secret;
use base::percent_encoding::percent_decode;
use jid::Jid;
use limits::FRAGMENT_LIMITS;
use sasl::Credentials;
use stanza::payload::datetime::parse_datetime;
use store::{LastActivity, Subscription};
use xml::{NamespaceContext, Ns, Tree, TreeNode};

use super::{EXTENSION_NAMESPACE, OLD_NAMESPACE, SCRAM_NAMESPACE, SERVER_DATA_NAMESPACE};
use crate::ejabberd::hash_of_name;
use crate::markup::{Markup, MarkupError, MarkupReader};
use crate::scram_keys::{add_base64, hash_of_mechanism};
use crate::stanza_form::{bare_from, check_message, check_request, delay_stamp, to_store_form};
use crate::{
    AccountItem, AccountPassword, ContactData, ContactRequest, OfflineData, SourceError, SourceRecord,
    TransferSource,
};

const FORMAT: &str = "XEP-0227 data";
const XINCLUDE_NAMESPACE: &str = "http://www.w3.org/2001/XInclude";

/// Files included in one another; a host and a user are two.
const MAX_OPEN_FILES: usize = 8;

/// Bytes of the subscription requests of an account that wait for its end.
const MAX_REQUEST_BYTES: usize = 16 << 20;

/// Limits of an element that is read as a whole. Depth and prefixes leave room for the elements that deliver it.
const ELEMENT_LIMITS: xml::Limits = xml::Limits { element_bytes: u32::MAX, ..FRAGMENT_LIMITS };

/// A file of XEP-0227 data, with those that it includes.
pub struct ServerDataSource {
    path: PathBuf,
    files: Vec<IncludedFile>,
    levels: Vec<ServerDataLevel>,
    records: VecDeque<SourceRecord>,
    /// Size of all files opened so far, and bytes of those that are closed.
    sizes: (u64, u64),
}

struct IncludedFile {
    reader: MarkupReader<BufReader<File>>,
    path: PathBuf,
    /// Prefixes and namespaces of the open elements of this file.
    declared: Vec<Vec<(String, String)>>,
    /// Number of levels when it was opened.
    outer_levels: usize,
    /// Whether its root element has begun.
    has_root: bool,
}

/// An open element.
enum ServerDataLevel {
    ServerData,
    Host(String),
    User(Box<OpenUser>),
    OfflineMessages {
        expires: Option<u64>,
    },
    /// The query of a roster.
    Roster,
    /// The query of private storage.
    Private,
}

impl ServerDataLevel {
    /// Whether this end tag, whose prefix is not compared, is the element's.
    fn is_ended_by(&self, tag: &[u8]) -> bool {
        let name = match self {
            ServerDataLevel::ServerData => "server-data",
            ServerDataLevel::Host(_) => "host",
            ServerDataLevel::User(_) => "user",
            ServerDataLevel::OfflineMessages { .. } => "offline-messages",
            ServerDataLevel::Roster | ServerDataLevel::Private => "query",
        };
        let written = tag.strip_prefix(b"</").and_then(|tag| tag.strip_suffix(b">")).unwrap_or_default();
        let local = written.trim_ascii_end().rsplit(|byte| *byte == b':').next().unwrap_or_default();
        local == name.as_bytes()
    }
}

/// What is known of an account before its end tag.
struct OpenUser {
    jid: Jid,
    plain: Option<Secret>,
    keys: Credentials,
    disabled: bool,
    /// Requests follow the contacts.
    requests: Vec<ContactRequest>,
    request_bytes: usize,
    /// Requests beyond the limit.
    dropped_requests: u64,
}

impl OpenUser {
    fn add_request(&mut self, request: ContactRequest) {
        let bytes = size_of::<ContactRequest>()
            + request.from.as_str().len()
            + request.stanza.as_ref().map_or(0, Vec::len);
        if self.request_bytes.saturating_add(bytes) > MAX_REQUEST_BYTES {
            self.dropped_requests += 1;
            return;
        }
        self.request_bytes += bytes;
        self.requests.push(request);
    }
}

/// A start tag, resolved.
struct TagParts {
    name: String,
    ns: String,
    attributes: Vec<(String, String)>,
    declared: Vec<(String, String)>,
}

impl TagParts {
    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    fn is(&self, name: &str, ns: &str) -> bool {
        self.name == name && self.ns == ns
    }

    fn is_server_data(&self, name: &str) -> bool {
        self.is(name, SERVER_DATA_NAMESPACE) || self.is(name, OLD_NAMESPACE)
    }
}

impl ServerDataSource {
    /// Opens the main file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<ServerDataSource, SourceError> {
        let mut source = ServerDataSource {
            path: path.to_owned(),
            files: Vec::new(),
            levels: Vec::new(),
            records: VecDeque::new(),
            sizes: (0, 0),
        };
        source.rewind()?;
        Ok(source)
    }

    fn open_file(&mut self, path: &Path) -> Result<(), SourceError> {
        let io = |error| SourceError::Io { place: path.display().to_string(), error };
        let file = File::open(path).map_err(io)?;
        self.sizes.0 += file.metadata().map_err(io)?.len();
        self.files.push(IncludedFile {
            reader: MarkupReader::new(BufReader::with_capacity(1 << 16, file)),
            path: path.to_owned(),
            declared: Vec::new(),
            outer_levels: self.levels.len(),
            has_root: false,
        });
        Ok(())
    }

    /// Reads one token. False at the end.
    fn advance(&mut self) -> Result<bool, SourceError> {
        let Some(file) = self.files.last_mut() else { return Ok(false) };
        match file.reader.next_token().map_err(|error| file.error(error))? {
            None => {
                if self.levels.len() > file.outer_levels {
                    return Err(file.format("the file ends inside an element"));
                }
                self.sizes.1 += file.reader.consumed();
                self.files.pop();
            }
            Some(Markup::Text(_)) => {}
            Some(Markup::End(tag)) => {
                if self.levels.len() <= file.outer_levels {
                    return Err(file.format("an end tag without a start tag"));
                }
                if !self.levels.last().is_some_and(|level| level.is_ended_by(&tag)) {
                    return Err(file.format("an end tag does not match its start tag"));
                }
                file.declared.pop();
                self.end_level();
            }
            Some(Markup::Start { tag, empty }) => self.start(tag, empty)?,
        }
        Ok(true)
    }

    fn end_level(&mut self) {
        if let Some(ServerDataLevel::User(user)) = self.levels.pop() {
            let OpenUser { jid, plain, keys, disabled, requests, dropped_requests, .. } = *user;
            let password = match plain {
                Some(plain) => AccountPassword::Plain(plain),
                None if keys != Credentials::default() => AccountPassword::Scram(Box::new(keys)),
                None => AccountPassword::Missing,
            };
            self.item(&jid, AccountItem::Account { password, disabled });
            for request in requests {
                self.item(&jid, AccountItem::Request(request));
            }
            if dropped_requests > 0 {
                self.skip(
                    jid.as_str(),
                    format!("{dropped_requests} subscription requests: they are too large"),
                );
            }
        }
    }

    fn item(&mut self, owner: &Jid, item: AccountItem) {
        self.records.push_back(SourceRecord::Item { owner: owner.clone(), item });
    }

    fn skip(&mut self, place: impl Into<String>, reason: impl Into<String>) {
        self.records.push_back(SourceRecord::skipped(place, reason));
    }

    fn start(&mut self, tag: Vec<u8>, empty: bool) -> Result<(), SourceError> {
        let Some(file) = self.files.last_mut() else { return Ok(()) };
        let is_root = self.levels.len() == file.outer_levels;
        if is_root && std::mem::replace(&mut file.has_root, true) {
            return Err(file.format("a second root element"));
        }
        let parts = file.resolve(&tag, empty)?;
        if parts.is("include", XINCLUDE_NAMESPACE)
            && matches!(
                self.levels.last(),
                Some(ServerDataLevel::ServerData | ServerDataLevel::Host(_) | ServerDataLevel::User(_))
            )
        {
            file.reader.skip_element(empty).map_err(|error| file.error(error))?;
            return self.include(&parts);
        }
        let level = match self.levels.last() {
            None if parts.is_server_data("server-data") => Some(ServerDataLevel::ServerData),
            None => return Err(file.format("the root element is not server-data")),
            Some(ServerDataLevel::ServerData) if parts.is_server_data("host") => {
                let domain = parts.attribute("jid").and_then(|jid| Jid::parse(jid).ok());
                match domain.filter(|domain| domain.is_domain()) {
                    Some(domain) => Some(ServerDataLevel::Host(domain.domain().to_owned())),
                    None => return Err(file.format("a host without a valid domain")),
                }
            }
            Some(ServerDataLevel::Host(domain)) if parts.is_server_data("user") => {
                let name = parts.attribute("name").unwrap_or_default();
                match Jid::from_parts(Some(name), domain, None) {
                    Ok(jid) => {
                        let (user, fault) = open_user(jid, &parts);
                        if let Some(fault) = fault {
                            self.records.push_back(SourceRecord::skipped(user.jid.as_str(), fault));
                        }
                        Some(ServerDataLevel::User(Box::new(user)))
                    }
                    Err(error) => {
                        let place = format!("{name}@{domain}");
                        file.reader.skip_element(empty).map_err(|error| file.error(error))?;
                        self.skip(place, format!("the address is not valid: {error}"));
                        return Ok(());
                    }
                }
            }
            Some(ServerDataLevel::User(_)) if parts.name == "offline-messages" => {
                Some(ServerDataLevel::OfflineMessages { expires: None })
            }
            Some(ServerDataLevel::User(_)) if parts.is("query", Ns::Roster.as_str()) => {
                Some(ServerDataLevel::Roster)
            }
            Some(ServerDataLevel::User(_)) if parts.is("query", Ns::Private.as_str()) => {
                Some(ServerDataLevel::Private)
            }
            Some(_) => None,
        };
        match level {
            Some(level) => {
                self.levels.push(level);
                if empty {
                    self.end_level();
                } else {
                    file.declared.push(parts.declared);
                }
                Ok(())
            }
            None => self.child(tag, empty, &parts),
        }
    }

    /// An element that is no container.
    fn child(&mut self, tag: Vec<u8>, empty: bool, parts: &TagParts) -> Result<(), SourceError> {
        let Some(file) = self.files.last_mut() else { return Ok(()) };
        let (place, owner) = match self.levels.iter().rev().find_map(|level| match level {
            ServerDataLevel::User(user) => Some(user.jid.clone()),
            _ => None,
        }) {
            Some(owner) => (owner.as_str().to_owned(), Some(owner)),
            None => (file.path.display().to_string(), None),
        };
        let unknown = match (&owner, skipped_reason(parts)) {
            (None, _) => Some(format!("{} is not an element of accounts", parts.name)),
            (Some(_), reason) => reason.map(str::to_owned),
        };
        if let Some(reason) = unknown {
            file.reader.skip_element(empty).map_err(|error| file.error(error))?;
            self.skip(place, reason);
            return Ok(());
        }
        let Some(owner) = owner else { return Ok(()) };
        let context = file.context()?;
        let (path, line) = (file.path.clone(), file.reader.line());
        let at = || format!("{} in line {line} of {}", parts.name, path.display());
        let element = file.reader.collect_element(tag, empty).map_err(|error| file.error(error))?;
        let Some(element) = element else {
            self.skip(place, format!("{} is too large", at()));
            return Ok(());
        };
        match Tree::parse(&element, &context, &ELEMENT_LIMITS) {
            Ok(tree) => {
                if let Err(reason) = self.read_child(&owner, tree.root()) {
                    self.skip(place, format!("{}: {reason}", at()));
                }
            }
            Err(error) => self.skip(place, format!("{} is not valid XML: {error}", at())),
        }
        Ok(())
    }

    /// An element of an account. The error is a reason for people.
    fn read_child(&mut self, owner: &Jid, element: TreeNode<'_>) -> Result<(), String> {
        let extension = element.ns_text() == EXTENSION_NAMESPACE;
        match self.levels.last_mut() {
            Some(ServerDataLevel::OfflineMessages { expires }) => {
                if extension && element.name() == "expires" {
                    *expires = stamp(element);
                    return Ok(());
                }
                let expires = expires.take();
                let offline = read_message(owner, element, expires)?;
                self.item(owner, AccountItem::Offline(offline));
                Ok(())
            }
            Some(ServerDataLevel::Roster) if element.name() == "item" => {
                if let Some(contact) = read_contact(owner, element, Subscription::IN_ROSTER)? {
                    self.item(owner, AccountItem::Contact(contact));
                }
                Ok(())
            }
            Some(ServerDataLevel::Private) => {
                let bytes = element.to_standalone(&ELEMENT_LIMITS).map_err(|error| error.to_string())?;
                self.item(owner, AccountItem::Private(bytes.into_owned()));
                Ok(())
            }
            Some(ServerDataLevel::User(user)) => {
                if element.is("presence", Ns::Client) {
                    user.add_request(read_request(element)?);
                } else if element.ns_text() == SCRAM_NAMESPACE {
                    read_keys(&mut user.keys, element)?;
                } else if extension && element.name() == "disabled" {
                    user.disabled = true;
                } else {
                    return self.read_data(owner, element);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn read_data(&mut self, owner: &Jid, element: TreeNode<'_>) -> Result<(), String> {
        match (element.name(), element.ns()) {
            ("query", Some(Ns::Privacy)) => {
                let (blocked, skipped) = read_privacy(element);
                if skipped > 0 {
                    let reason = format!("{skipped} privacy rules do more than block an address");
                    self.skip(owner.as_str(), reason);
                }
                self.item(owner, AccountItem::Blocked(blocked));
                Ok(())
            }
            ("blocklist", Some(Ns::Blocking)) => {
                let addresses = element.child_elements().map(|item| item.attr("jid").unwrap_or_default());
                let (addresses, wrong): (Vec<_>, Vec<_>) =
                    addresses.map(|jid| Jid::from_stored(&jid)).partition(Result::is_ok);
                self.item(owner, AccountItem::Blocked(addresses.into_iter().flatten().collect()));
                if wrong.is_empty() {
                    return Ok(());
                }
                Err(format!("{} addresses are not valid", wrong.len()))
            }
            ("vCard", Some(Ns::VCardTemp)) => {
                let bytes = element.to_standalone(&ELEMENT_LIMITS).map_err(|error| error.to_string())?;
                self.item(owner, AccountItem::Vcard(bytes.into_owned()));
                Ok(())
            }
            ("last-activity", _) if element.ns_text() == EXTENSION_NAMESPACE => {
                let at = stamp(element).ok_or("it has no valid stamp")? / 1000;
                let status = Some(element.text().into_owned()).filter(|status| !status.is_empty());
                self.item(owner, AccountItem::LastActivity(LastActivity { at, status }));
                Ok(())
            }
            ("hidden-item", _) if element.ns_text() == EXTENSION_NAMESPACE => {
                if let Some(contact) = read_contact(owner, element, Subscription::NONE)? {
                    self.item(owner, AccountItem::Contact(contact));
                }
                Ok(())
            }
            (_, _) => Err(format!("the namespace {} is not known", element.ns_text())),
        }
    }

    /// Opens an included file.
    fn include(&mut self, parts: &TagParts) -> Result<(), SourceError> {
        let Some(file) = self.files.last() else { return Ok(()) };
        let place = file.path.display().to_string();
        let href = parts.attribute("href").unwrap_or_default();
        if parts.attribute("parse").is_some() || parts.attribute("xpointer").is_some() {
            self.skip(place, format!("the kind of inclusion of {href} is not implemented"));
            return Ok(());
        }
        if self.files.len() >= MAX_OPEN_FILES {
            return Err(file.format("files include one another too deeply"));
        }
        let folder = file.path.parent().unwrap_or(Path::new("")).to_owned();
        // COMPAT(ejabberd, all versions): it writes names of files, not URIs, so `%` may be part of a name.
        let names = [Some(href.to_owned()), percent_decode(href)];
        let mut paths = names.iter().flatten().filter(|name| is_below(name)).map(|name| folder.join(name));
        match paths.find(|path| path.is_file() && is_inside(path, &folder)) {
            Some(path) => self.open_file(&path),
            None => {
                self.skip(place, format!("the included file {href} does not exist below its folder"));
                Ok(())
            }
        }
    }
}

impl TransferSource for ServerDataSource {
    fn next_record(&mut self) -> Result<Option<SourceRecord>, SourceError> {
        loop {
            if let Some(record) = self.records.pop_front() {
                return Ok(Some(record));
            }
            if !self.advance()? {
                return Ok(None);
            }
        }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.files.clear();
        self.levels.clear();
        self.records.clear();
        self.sizes = (0, 0);
        let path = self.path.clone();
        self.open_file(&path)
    }

    fn progress(&self) -> Option<(u64, u64)> {
        let open: u64 = self.files.iter().map(|file| file.reader.consumed()).sum();
        Some((self.sizes.1 + open, self.sizes.0))
    }
}

impl IncludedFile {
    fn format(&self, reason: impl Into<String>) -> SourceError {
        let place = format!("{}, line {}", self.path.display(), self.reader.line());
        SourceError::Format { place, expected: FORMAT, reason: reason.into() }
    }

    fn error(&self, error: MarkupError) -> SourceError {
        match error {
            MarkupError::Io(error) => SourceError::Io { place: self.path.display().to_string(), error },
            MarkupError::Malformed(what) => self.format(what),
        }
    }

    /// The namespaces of the open elements.
    fn context(&self) -> Result<NamespaceContext, SourceError> {
        let mut tag = b"<context".to_vec();
        let mut seen: Vec<&str> = Vec::new();
        // The innermost declaration of a prefix counts.
        for (prefix, value) in self.declared.iter().rev().flatten() {
            if seen.contains(&prefix.as_str()) {
                continue;
            }
            seen.push(prefix);
            let separator = if prefix.is_empty() { "" } else { ":" };
            tag.extend_from_slice(format!(" xmlns{separator}{prefix}").as_bytes());
            xml::escape::raw_attr_value(value, &mut tag);
        }
        tag.push(b'>');
        NamespaceContext::from_open_tag(&tag, &ELEMENT_LIMITS).map_err(|error| self.format(error.to_string()))
    }

    fn resolve(&self, tag: &[u8], empty: bool) -> Result<TagParts, SourceError> {
        let context = self.context()?;
        let mut element = tag.to_vec();
        if !empty {
            element.pop();
            element.extend_from_slice(b"/>");
        }
        let tree = Tree::parse(&element, &context, &ELEMENT_LIMITS);
        let tree = tree.map_err(|error| self.format(error.to_string()))?;
        let root = tree.root();
        let declared = root.start_tag().map(|start| {
            // A default declaration has the name `xmlns` and no prefix.
            let prefix =
                |attr: &xml::Attr<'_>| attr.prefix.map_or_else(String::new, |_| attr.name.to_owned());
            start.declarations().map(|attr| (prefix(&attr), attr.raw.to_owned())).collect()
        });
        Ok(TagParts {
            name: root.name().to_owned(),
            ns: root.ns_text().to_owned(),
            attributes: root
                .attrs()
                .filter(|attr| attr.prefix.is_none())
                .map(|attr| (attr.name.to_owned(), attr.value().into_owned()))
                .collect(),
            declared: declared.unwrap_or_default(),
        })
    }
}

/// Whether a relative path stays below its folder.
fn is_below(name: &str) -> bool {
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    !name.is_empty() && !name.contains("://") && Path::new(name).components().all(inside)
}

/// Whether a path is inside of a folder when links are followed.
fn is_inside(path: &Path, folder: &Path) -> bool {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    match (path.canonicalize(), folder.canonicalize()) {
        (Ok(path), Ok(folder)) => path.starts_with(folder),
        _ => false,
    }
}

/// The reason for which a child of an account is not even read.
fn skipped_reason(parts: &TagParts) -> Option<&'static str> {
    match parts.ns.as_str() {
        "http://jabber.org/protocol/pubsub" | "http://jabber.org/protocol/pubsub#owner" => {
            Some("PEP nodes are not implemented")
        }
        "urn:xmpp:pie:0#mam" | "urn:xmpp:mam:2" => Some("message archives are not implemented"),
        _ => None,
    }
}

/// The account, and what is wrong with its keys.
fn open_user(jid: Jid, parts: &TagParts) -> (OpenUser, Option<String>) {
    let mut user = OpenUser {
        jid,
        plain: None,
        keys: Credentials::default(),
        disabled: false,
        requests: Vec::new(),
        request_bytes: 0,
        dropped_requests: 0,
    };
    let Some(password) = parts.attribute("password").filter(|password| !password.is_empty()) else {
        return (user, None);
    };
    // COMPAT(ejabberd, until 23.10): SCRAM keys in the attribute of the password.
    let added = password.strip_prefix("scram:").and_then(|keys| add_joined_keys(&mut user.keys, keys));
    // Keys that cannot be used must not become a password: others may have seen them.
    let fault = added.map(Result::err).unwrap_or_else(|| {
        user.plain = Some(Secret::from(password));
        None
    });
    (user, fault)
}

/// Keys as `[HASH,]StoredKey,ServerKey,Salt,Iterations`; `None` for a text that does not have this form.
fn add_joined_keys(credentials: &mut Credentials, joined: &str) -> Option<Result<(), String>> {
    let parts: Vec<&str> = joined.split(',').collect();
    let (name, parts) = match parts.as_slice() {
        [name, rest @ ..] if rest.len() == 4 => (*name, rest),
        rest => ("sha", rest),
    };
    let [stored, server, salt, iterations] = parts else { return None };
    let iterations = iterations.trim();
    if iterations.is_empty() || !iterations.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let Some(hash) = hash_of_name(name) else {
        return Some(Err(format!("its keys have an unknown hash, {name}")));
    };
    let iterations = iterations.parse().unwrap_or(u32::MAX);
    Some(add_base64(credentials, hash, salt, iterations, stored, server))
}

/// Section 4.3.
fn read_keys(credentials: &mut Credentials, element: TreeNode<'_>) -> Result<(), String> {
    let mechanism = element.attr("mechanism").unwrap_or_default();
    let hash =
        hash_of_mechanism(&mechanism).ok_or_else(|| format!("the mechanism {mechanism} is not known"))?;
    let text = |name: &str| {
        let child = element.child_elements().find(|child| child.name() == name);
        child.map(|child| child.text().trim().to_owned()).ok_or_else(|| format!("{name} is missing"))
    };
    let iterations = text("iter-count")?.parse().map_err(|_| "iter-count is not a number")?;
    add_base64(credentials, hash, &text("salt")?, iterations, &text("stored-key")?, &text("server-key")?)
}

/// An `<item/>` of a roster. `None` for an entry to be removed or without any state.
fn read_contact(owner: &Jid, item: TreeNode<'_>, state: Subscription) -> Result<Option<ContactData>, String> {
    let address = item.attr("jid").unwrap_or_default();
    let jid =
        Jid::from_stored(&address).map_err(|error| format!("the contact {address} is not valid: {error}"))?;
    let jid = jid.bare().to_jid();
    if jid == *owner {
        return Err("an account cannot be its own contact".to_owned());
    }
    let mut subscription = state
        | match item.attr("subscription").as_deref() {
            Some("to") => Subscription::TO,
            Some("from") => Subscription::FROM,
            Some("both") => Subscription::BOTH,
            Some("remove") => return Ok(None),
            _ => Subscription::NONE,
        };
    if item.attr("ask").as_deref() == Some("subscribe") && !subscription.contains(Subscription::TO) {
        subscription = subscription | Subscription::PENDING_OUT;
    }
    if matches!(item.attr("approved").as_deref(), Some("true" | "1")) {
        subscription = subscription | Subscription::APPROVED;
    }
    if subscription == Subscription::NONE {
        return Ok(None);
    }
    let groups = item.child_elements().filter(|child| child.name() == "group");
    let mut seen = Vec::new();
    for group in groups.map(|group| group.text().into_owned()).filter(|group| !group.is_empty()) {
        if !seen.contains(&group) {
            seen.push(group);
        }
    }
    let name = item.attr("name").map(|name| name.into_owned()).filter(|name| !name.is_empty());
    Ok(Some(ContactData { jid, name, groups: seen, subscription }))
}

/// Section 4.9.
fn read_request(element: TreeNode<'_>) -> Result<ContactRequest, String> {
    let stanza = element.to_standalone(&ELEMENT_LIMITS).map_err(|error| error.to_string())?;
    let stanza = to_store_form(&stanza);
    check_request(&stanza)?;
    let from = bare_from(&stanza).ok_or("it has no valid sender")?;
    Ok(ContactRequest { from, stanza: Some(stanza) })
}

/// Section 4.5.
fn read_message(owner: &Jid, element: TreeNode<'_>, expires: Option<u64>) -> Result<OfflineData, String> {
    // COMPAT(ejabberd, all versions): its messages have the namespace of the document.
    let bytes = if element.ns() == Some(Ns::Client) {
        element.to_standalone(&ELEMENT_LIMITS).map_err(|error| error.to_string())?.into_owned()
    } else {
        element.raw().to_vec()
    };
    let stanza = to_store_form(&bytes);
    check_message(&stanza)?;
    Ok(OfflineData { stored_at: delay_stamp(&stanza, owner.domain()), expires, stanza })
}

/// Section 4.8: the addresses that the default list blocks, and the number of other rules in it. Other lists have no
/// effect on a server without privacy lists.
fn read_privacy(query: TreeNode<'_>) -> (Vec<Jid>, usize) {
    let default = query.child_elements().find(|child| child.name() == "default");
    let default = default.and_then(|default| default.attr("name"));
    let list = query
        .child_elements()
        .find(|child| child.name() == "list" && default.is_some() && child.attr("name") == default);
    let mut blocked = Vec::new();
    let mut skipped = 0;
    for item in list.into_iter().flat_map(|list| list.child_elements()) {
        let is = |name: &str, value: &str| item.attr(name).as_deref() == Some(value);
        let jid = item.attr("value").and_then(|value| Jid::from_stored(&value).ok());
        // An allowing rule without a condition at the end is the default of every list.
        let allows_rest = is("action", "allow") && item.attr("type").is_none();
        match jid {
            Some(jid) if is("type", "jid") && is("action", "deny") && blocks_everything(item) => {
                blocked.push(jid)
            }
            _ => skipped += usize::from(!allows_rest),
        }
    }
    (blocked, skipped)
}

/// Whether a rule covers all kinds of stanzas in both directions: no kind or all of them is named (XEP-0016, section 2.1).
fn blocks_everything(item: TreeNode<'_>) -> bool {
    let kinds = item.child_elements().count();
    kinds == 0 || kinds == 4
}

fn stamp(element: TreeNode<'_>) -> Option<u64> {
    u64::try_from(parse_datetime(&element.attr("stamp")?)?).ok()
}
