//! Commands on single accounts: XEP-0133 1.3.1, sections 4.1 to 4.5 and 4.7 to 4.10.
//!
//! Several accounts are all checked before the first is changed, so that a wrong address has no effect.
//!
//! # Pitfalls
//!
//! An account may be removed between the check and its change; that counts as success.

use feature_api::feature::FeatureBuilder;
use jid::Jid;
use stanza::payload::datetime::format_utc;
use store::{SearchableProfile, StoreErrorKind, Subscription};
use throng_commands::account_admin::{self, AccountError};
use throng_commands::cluster_admin::sessions::{SessionQuery, sessions};
use throng_commands::cluster_admin::{NodeSelection, describe_missing, end_sessions};
use throng_commands::{
    CallerIdentity, Command, CommandCall, CommandError, CommandErrorKind, CommandField, CommandFieldKind,
    CommandFuture, CommandOutput, OutputRow, OutputValue, RegisterCommands, TokenScope,
};
use xml::{Ns, Writer};

use super::{
    FORM_TYPE, MISSING, USER, USERS, check_accounts_exist, check_local_account, name_missing, node, pluralize,
};

const PASSWORD: CommandField =
    CommandField::new("password", "password", "The password for this account", CommandFieldKind::Secret)
        .required();
const VERIFY: CommandField =
    CommandField::new("password-verify", "password-verify", "Retype password", CommandFieldKind::Secret);
const EMAIL: CommandField = CommandField::new("email", "email", "Email address", CommandFieldKind::Text);
const GIVEN_NAME: CommandField =
    CommandField::new("given-name", "given_name", "Given name", CommandFieldKind::Text);
const SURNAME: CommandField = CommandField::new("surname", "surname", "Family name", CommandFieldKind::Text);

/// Add User: XEP-0133, section 4.1.
pub(super) static ADD: Command = Command {
    name: "add-user",
    node: node!("add-user"),
    title: "Add User",
    doc: "Creates an account.",
    form_type: FORM_TYPE,
    input: &[USER, PASSWORD, VERIFY, EMAIL, GIVEN_NAME, SURNAME],
    scope: TokenScope::Accounts,
    ..Command::EMPTY
};

/// Delete User: XEP-0133, section 4.2.
pub(super) static DELETE: Command = Command {
    name: "delete-user",
    node: node!("delete-user"),
    title: "Delete User",
    doc: "Removes accounts with all their data, ends their sessions and notifies their contacts.",
    form_type: FORM_TYPE,
    input: &[USERS],
    scope: TokenScope::Accounts,
    ..Command::EMPTY
};

/// Disable User: XEP-0133, section 4.3.
pub(super) static DISABLE: Command = Command {
    name: "disable-user",
    node: node!("disable-user"),
    title: "Disable User",
    doc: "Disables accounts: ends their sessions and refuses their logins until they are enabled again.",
    form_type: FORM_TYPE,
    input: &[USERS],
    scope: TokenScope::Accounts,
    ..Command::EMPTY
};

/// Re-Enable User: XEP-0133, section 4.4.
pub(super) static REENABLE: Command = Command {
    name: "reenable-user",
    node: node!("reenable-user"),
    title: "Re-Enable User",
    doc: "Enables disabled accounts.",
    form_type: FORM_TYPE,
    input: &[USERS],
    scope: TokenScope::Accounts,
    ..Command::EMPTY
};

const SESSIONS: CommandField = CommandField::new(
    "user",
    "accountjids",
    "The addresses whose sessions must be ended",
    CommandFieldKind::Jids,
)
.required()
.doc("A bare address ends all sessions of the account, a full address only that session.");

/// End User Session: XEP-0133, section 4.5.
pub(super) static END_SESSION: Command = Command {
    name: "end-user-session",
    node: node!("end-user-session"),
    title: "End User Session",
    doc: "Ends sessions; their users can log in again.",
    form_type: FORM_TYPE,
    input: &[SESSIONS],
    output: &[MISSING],
    scope: TokenScope::Sessions,
    ..Command::EMPTY
};

/// Change User Password: XEP-0133, section 4.7.
pub(super) static CHANGE_PASSWORD: Command = Command {
    name: "change-user-password",
    node: node!("change-user-password"),
    title: "Change User Password",
    doc: "Changes the password of an account; the password policy does not apply to administrators.",
    form_type: FORM_TYPE,
    input: &[USER, PASSWORD],
    scope: TokenScope::Accounts,
    ..Command::EMPTY
};

const COLUMNS: &[CommandField] = &[
    CommandField::new("owner", "owner", "Account", CommandFieldKind::Jid),
    CommandField::new("jid", "jid", "Contact", CommandFieldKind::Jid),
    CommandField::new("name", "name", "Name", CommandFieldKind::Text),
    CommandField::new("subscription", "subscription", "Subscription", CommandFieldKind::Text),
    CommandField::new("groups", "groups", "Groups", CommandFieldKind::Lines),
];
static ACCOUNTS: CommandField =
    CommandField::new("user", "accountjids", "The accounts", CommandFieldKind::Jids);
static CONTACTS: CommandField =
    CommandField::new("contacts", "contacts", "Contacts", CommandFieldKind::Table(COLUMNS));

/// Get User Roster: XEP-0133, section 4.8.
pub(super) static ROSTER: Command = Command {
    name: "get-user-roster",
    node: node!("get-user-roster"),
    title: "Get User Roster",
    doc: "Shows the rosters of accounts.",
    changes: false,
    form_type: FORM_TYPE,
    input: &[USERS],
    output: &[ACCOUNTS, CONTACTS],
    ..Command::EMPTY
};

static LAST: CommandField =
    CommandField::new("last-login", "lastlogin", "Last login", CommandFieldKind::Lines)
        .doc("A time for each account, in the same order; the current time for online users, or never.");

/// Get User Last Login Time: XEP-0133, section 4.9.
pub(super) static LAST_LOGIN: Command = Command {
    name: "get-user-lastlogin",
    node: node!("get-user-lastlogin"),
    title: "Get User Last Login Time",
    doc: "Shows when users were last online.",
    changes: false,
    form_type: FORM_TYPE,
    input: &[USERS],
    output: &[ACCOUNTS, LAST],
    ..Command::EMPTY
};

static ROSTER_SIZE: CommandField =
    CommandField::new("roster-size", "rostersize", "Contacts", CommandFieldKind::Int(0, i64::MAX, &[]));
static RESOURCES: CommandField =
    CommandField::new("resources", "onlineresources", "Connected resources", CommandFieldKind::Lines);
static NODES: CommandField =
    CommandField::new("nodes", "x-nodes", "Nodes of these resources", CommandFieldKind::Lines)
        .doc("One for each resource, in the same order.");
static OFFLINE_MESSAGES: CommandField =
    CommandField::new("waiting", "x-waiting", "Offline messages", CommandFieldKind::Int(0, i64::MAX, &[]));
static CREATED: CommandField = CommandField::new("created", "x-created", "Created", CommandFieldKind::Text);
static DISABLED: CommandField =
    CommandField::new("disabled", "x-disabled", "Disabled", CommandFieldKind::Bool);

/// Get User Statistics: XEP-0133, section 4.10.
pub(super) static STATISTICS: Command = Command {
    name: "user-stats",
    node: node!("user-stats"),
    title: "Get User Statistics",
    doc: "Shows the stored data and the connected resources of an account.",
    changes: false,
    form_type: FORM_TYPE,
    input: &[USER],
    output: &[ROSTER_SIZE, RESOURCES, NODES, OFFLINE_MESSAGES, CREATED, DISABLED, MISSING],
    ..Command::EMPTY
};

pub(super) fn build(builder: &mut FeatureBuilder<'_>) {
    builder.command(&ADD, |call| -> CommandFuture { Box::pin(add(call)) });
    builder.command(&DELETE, |call| -> CommandFuture { Box::pin(delete(call)) });
    builder.command(&DISABLE, |call| -> CommandFuture { Box::pin(set_disabled(call, true)) });
    builder.command(&REENABLE, |call| -> CommandFuture { Box::pin(set_disabled(call, false)) });
    builder.command(&END_SESSION, |call| -> CommandFuture { Box::pin(end_session(call)) });
    builder.command(&CHANGE_PASSWORD, |call| -> CommandFuture { Box::pin(change_password(call)) });
    builder.command(&ROSTER, |call| -> CommandFuture { Box::pin(roster(call)) });
    builder.command(&LAST_LOGIN, |call| -> CommandFuture { Box::pin(last_login(call)) });
    builder.command(&STATISTICS, |call| -> CommandFuture { Box::pin(statistics(call)) });
}

async fn add(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let jid = call.input.jid(&USER)?.clone();
    check_local_account(&call.node, &jid)?;
    let password = call.input.secret(&PASSWORD).cloned().ok_or_else(CommandError::internal)?;
    if call.input.secret(&VERIFY).is_some_and(|again| *again != password) {
        return Err(CommandError::new(CommandErrorKind::NotAcceptable, "the two passwords differ"));
    }
    account_admin::create_account(&call.node, &jid, password)
        .await
        .map_err(|e| e.into_command_error(&jid))?;
    if let Some((vcard, searchable)) = new_user_vcard(&call) {
        call.node.stores.vcards.put(jid.as_ref(), Some(vcard), searchable, None).await?;
    }
    Ok(CommandOutput::with_note(format!("{jid} was added")))
}

/// Profile of a new user as a vCard (XEP-0054, section 2).
fn new_user_vcard(call: &CommandCall) -> Option<(Vec<u8>, SearchableProfile)> {
    let text = |field: &CommandField| call.input.text(field).unwrap_or_default().to_owned();
    let (first, last, email) = (text(&GIVEN_NAME), text(&SURNAME), text(&EMAIL));
    if first.is_empty() && last.is_empty() && email.is_empty() {
        return None;
    }
    let name = [first.as_str(), last.as_str()].join(" ").trim().to_owned();
    let mut out = Vec::with_capacity(256);
    let mut w = Writer::new(&mut out);
    w.start_ns("vCard", Ns::VCardTemp);
    if !name.is_empty() {
        w.text_element("FN", &name);
        w.start("N").text_element("FAMILY", &last).text_element("GIVEN", &first).end();
    }
    if !email.is_empty() {
        w.start("EMAIL").text_element("USERID", &email).end();
    }
    w.end();
    Some((out, SearchableProfile { name, first, last, email, ..SearchableProfile::default() }))
}

/// Refuses commands on the caller's own account: the answer would never arrive, and one slip would remove the last
/// administrator.
fn refuse_own_account(call: &CommandCall, jids: &[Jid]) -> Result<(), CommandError> {
    match &call.caller.identity {
        CallerIdentity::Account(own) if jids.iter().any(|jid| jid.as_str() == own.bare().as_str()) => {
            Err(CommandError::new(CommandErrorKind::NotAllowed, "this is your own account"))
        }
        _ => Ok(()),
    }
}

async fn delete(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let jids = call.input.jids(&USERS);
    refuse_own_account(&call, jids)?;
    check_accounts_exist(&call, jids).await?;
    for jid in jids {
        match account_admin::remove_account(&call.node, jid.as_ref()).await {
            Ok(()) | Err(AccountError::NotFound) => {}
            Err(error) => return Err(error.into_command_error(jid)),
        }
    }
    Ok(CommandOutput::with_note(format!("{} deleted", pluralize(jids.len(), "account"))))
}

async fn set_disabled(call: CommandCall, disabled: bool) -> Result<CommandOutput, CommandError> {
    let jids = call.input.jids(&USERS);
    if disabled {
        refuse_own_account(&call, jids)?;
    }
    check_accounts_exist(&call, jids).await?;
    for jid in jids {
        match account_admin::set_account_disabled(&call.node, jid, disabled).await {
            Ok(()) | Err(AccountError::NotFound) => {}
            Err(error) => return Err(error.into_command_error(jid)),
        }
    }
    let what = if disabled { "disabled" } else { "enabled again" };
    Ok(CommandOutput::with_note(format!("{} {what}", pluralize(jids.len(), "account"))))
}

async fn end_session(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let jids = call.input.jids(&SESSIONS);
    let bare: Vec<Jid> = jids.iter().map(|jid| jid.bare().to_jid()).collect();
    for jid in &bare {
        check_local_account(&call.node, jid)?;
    }
    let (mut ended, mut missing) = (0_u64, Vec::new());
    for jid in jids {
        let (number, without) = end_sessions(&call.node, jid, "an administrator ended this session").await;
        ended = ended.saturating_add(number);
        missing.extend(without);
    }
    missing.sort_by(|a, b| a.node.cmp(&b.node));
    missing.dedup_by(|a, b| a.node == b.node);
    let ended = usize::try_from(ended).unwrap_or(usize::MAX);
    match describe_missing(&missing) {
        None if ended == 0 => {
            Err(CommandError::new(CommandErrorKind::NotFound, "this session does not exist"))
        }
        Some(without) if ended == 0 => {
            let text = format!("no session was found {without}");
            Err(CommandError::new(CommandErrorKind::Unavailable, text))
        }
        _ => {
            let output = CommandOutput::with_note(format!("{} ended", pluralize(ended, "session")));
            Ok(name_missing(output, &missing))
        }
    }
}

async fn change_password(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let jid = call.input.jid(&USER)?;
    check_local_account(&call.node, jid)?;
    let password = call.input.secret(&PASSWORD).cloned().ok_or_else(CommandError::internal)?;
    if !call.node.stores.accounts.exists(jid.as_ref()).await? {
        return Err(CommandError::no_account(jid));
    }
    account_admin::change_password(&call.node, jid.as_ref(), password)
        .await
        .map_err(|e| e.into_command_error(jid))?;
    Ok(CommandOutput::with_note(format!("the password of {jid} was changed")))
}

fn jids_value(jids: &[Jid]) -> OutputValue {
    OutputValue::Texts(jids.iter().map(Jid::to_string).collect())
}

async fn roster(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let jids = call.input.jids(&USERS);
    check_accounts_exist(&call, jids).await?;
    let mut rows: Vec<OutputRow> = Vec::new();
    let mut xml = Vec::new();
    for owner in jids {
        let Some(found) = call.node.stores.accounts.get(owner.as_ref()).await? else { continue };
        let items = match call.node.stores.roster.get(found.id).await {
            Ok(roster) => roster.items,
            Err(error) if error.kind == StoreErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let mut w = Writer::new(&mut xml);
        w.start_ns("query", Ns::Roster);
        for item in items.iter().filter(|item| item.subscription.contains(Subscription::IN_ROSTER)) {
            w.start("item").attr("jid", item.jid.as_str()).attr_opt("name", item.name.as_deref());
            w.attr("subscription", item.subscription.as_str());
            for group in &item.groups {
                w.text_element("group", group);
            }
            w.end();
            rows.push(vec![
                OutputValue::Text(owner.to_string()),
                OutputValue::Text(item.jid.to_string()),
                OutputValue::Text(item.name.clone().unwrap_or_default()),
                OutputValue::Text(item.subscription.as_str().to_owned()),
                OutputValue::Texts(item.groups.clone()),
            ]);
        }
        w.end();
    }
    let output = CommandOutput { xml, ..CommandOutput::done() };
    Ok(output.with(&ACCOUNTS, jids_value(jids)).with(&CONTACTS, OutputValue::Rows(rows)))
}

async fn last_login(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let jids = call.input.jids(&USERS);
    check_accounts_exist(&call, jids).await?;
    let mut times = Vec::with_capacity(jids.len());
    for jid in jids {
        let at = match call.node.is_online(jid.as_ref()) {
            true => Some(call.node.clock.unix_millis()),
            false => {
                call.node.stores.last_seen.get(jid.as_ref()).await?.map(|seen| seen.at.saturating_mul(1000))
            }
        };
        times.push(at.map_or_else(|| "never".to_owned(), |at| format_utc(at, false)));
    }
    Ok(CommandOutput::done().with(&ACCOUNTS, jids_value(jids)).with(&LAST, OutputValue::Texts(times)))
}

async fn statistics(call: CommandCall) -> Result<CommandOutput, CommandError> {
    let jid = call.input.jid(&USER)?;
    check_local_account(&call.node, jid)?;
    let stores = &call.node.stores;
    let missing = || CommandError::no_account(jid);
    let found = stores.accounts.get(jid.as_ref()).await?.ok_or_else(missing)?;
    let contacts = match stores.roster.get(found.id).await {
        Ok(roster) => roster.items,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Err(missing()),
        Err(error) => return Err(error.into()),
    };
    let contacts = contacts.iter().filter(|item| item.subscription.contains(Subscription::IN_ROSTER)).count();
    let waiting = stores.offline.count(found.id).await?;
    let query = SessionQuery { account: Some(jid.to_string()), brief: true, ..SessionQuery::default() };
    let connected = sessions(&call.node, NodeSelection::All, query).await;
    let resource =
        |address: &str| address.split_once('/').map_or_else(String::new, |(_, end)| end.to_owned());
    let resources = connected.sessions.iter().map(|session| resource(&session.jid)).collect();
    let nodes = connected.sessions.iter().map(|session| session.node.clone()).collect();
    let output = CommandOutput::done()
        .with(&ROSTER_SIZE, OutputValue::Int(contacts as u64))
        .with(&RESOURCES, OutputValue::Texts(resources))
        .with(&NODES, OutputValue::Texts(nodes))
        .with(&OFFLINE_MESSAGES, OutputValue::Int(u64::from(waiting)))
        .with(&CREATED, OutputValue::Text(format_utc(found.created_at, false)))
        .with(&DISABLED, OutputValue::Bool(found.disabled));
    Ok(name_missing(output, &connected.missing))
}
