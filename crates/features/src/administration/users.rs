//! Accounts one by one: sections 4.1 to 4.5 and 4.7 to 4.10.
//!
//! Several accounts are checked before the first is touched, so that a wrong address does nothing. The trap: an account
//! may go between the check and its turn; that counts as done.

use jid::Jid;
use stanza::payload::time::utc;
use stanza::{StreamCondition, StreamError};
use store::{ErrorKind, Searchable, Subscription};
use throng_core::accounts::AccountError;
use throng_core::command::{
    Call, Command, CommandError, CommandFuture, Field, FieldKind, Output, Row, Scope, Shown, Who, Why,
};
use throng_core::feature::Builder;
use xml::{Ns, Writer};

use super::{FORM_TYPE, USER, USERS, account, count, existing, node};

const PASSWORD: Field =
    Field::new("password", "password", "The password for this account", FieldKind::Secret).required();
const VERIFY: Field = Field::new("password-verify", "password-verify", "Retype password", FieldKind::Secret);
const EMAIL: Field = Field::new("email", "email", "Email address", FieldKind::Text);
const GIVEN: Field = Field::new("given-name", "given_name", "Given name", FieldKind::Text);
const SURNAME: Field = Field::new("surname", "surname", "Family name", FieldKind::Text);

/// Section 4.1.
pub(super) static ADD: Command = Command {
    name: "add-user",
    node: node!("add-user"),
    title: "Add User",
    doc: "Creates an account.",
    form_type: FORM_TYPE,
    input: &[USER, PASSWORD, VERIFY, EMAIL, GIVEN, SURNAME],
    scope: Scope::Accounts,
    ..Command::EMPTY
};

/// Section 4.2.
pub(super) static DELETE: Command = Command {
    name: "delete-user",
    node: node!("delete-user"),
    title: "Delete User",
    doc: "Removes accounts with all their data, ends their sessions and tells their contacts.",
    form_type: FORM_TYPE,
    input: &[USERS],
    scope: Scope::Accounts,
    ..Command::EMPTY
};

/// Section 4.3.
pub(super) static DISABLE: Command = Command {
    name: "disable-user",
    node: node!("disable-user"),
    title: "Disable User",
    doc: "Ends the sessions of accounts and refuses their logins until they are enabled again.",
    form_type: FORM_TYPE,
    input: &[USERS],
    scope: Scope::Accounts,
    ..Command::EMPTY
};

/// Section 4.4.
pub(super) static REENABLE: Command = Command {
    name: "reenable-user",
    node: node!("reenable-user"),
    title: "Re-Enable User",
    doc: "Lets the users of disabled accounts log in again.",
    form_type: FORM_TYPE,
    input: &[USERS],
    scope: Scope::Accounts,
    ..Command::EMPTY
};

const SESSIONS: Field =
    Field::new("user", "accountjids", "The addresses whose sessions are to end", FieldKind::Jids)
        .required()
        .doc("All sessions of an account, or with a resource that one session.");

/// Section 4.5.
pub(super) static END_SESSION: Command = Command {
    name: "end-user-session",
    node: node!("end-user-session"),
    title: "End User Session",
    doc: "Ends sessions; their users may log in again.",
    form_type: FORM_TYPE,
    input: &[SESSIONS],
    scope: Scope::Sessions,
    ..Command::EMPTY
};

/// Section 4.7.
pub(super) static CHANGE_PASSWORD: Command = Command {
    name: "change-user-password",
    node: node!("change-user-password"),
    title: "Change User Password",
    doc: "Changes the password of an account; the password policy does not bind administrators.",
    form_type: FORM_TYPE,
    input: &[USER, PASSWORD],
    scope: Scope::Accounts,
    ..Command::EMPTY
};

const COLUMNS: &[Field] = &[
    Field::new("owner", "owner", "Account", FieldKind::Jid),
    Field::new("jid", "jid", "Contact", FieldKind::Jid),
    Field::new("name", "name", "Name", FieldKind::Text),
    Field::new("subscription", "subscription", "Subscription", FieldKind::Text),
    Field::new("groups", "groups", "Groups", FieldKind::Lines),
];
static OF: Field = Field::new("user", "accountjids", "The accounts", FieldKind::Jids);
static CONTACTS: Field = Field::new("contacts", "contacts", "Contacts", FieldKind::Table(COLUMNS));

/// Section 4.8.
pub(super) static ROSTER: Command = Command {
    name: "get-user-roster",
    node: node!("get-user-roster"),
    title: "Get User Roster",
    doc: "Shows the contact lists of accounts.",
    changes: false,
    form_type: FORM_TYPE,
    input: &[USERS],
    output: &[OF, CONTACTS],
    ..Command::EMPTY
};

static LAST: Field = Field::new("last-login", "lastlogin", "Last there", FieldKind::Lines).doc(
    "A time for each account, in the order of the accounts; the present one for who is online, or never.",
);

/// Section 4.9.
pub(super) static LAST_LOGIN: Command = Command {
    name: "get-user-lastlogin",
    node: node!("get-user-lastlogin"),
    title: "Get User Last Login Time",
    doc: "Shows when users were last there.",
    changes: false,
    form_type: FORM_TYPE,
    input: &[USERS],
    output: &[OF, LAST],
    ..Command::EMPTY
};

static ROSTER_SIZE: Field =
    Field::new("roster-size", "rostersize", "Contacts", FieldKind::Int(0, i64::MAX, &[]));
static RESOURCES: Field = Field::new("resources", "onlineresources", "Connected resources", FieldKind::Lines);
static WAITING: Field =
    Field::new("waiting", "x-waiting", "Messages waiting", FieldKind::Int(0, i64::MAX, &[]));
static CREATED: Field = Field::new("created", "x-created", "Created", FieldKind::Text);
static SHUT: Field = Field::new("disabled", "x-disabled", "Disabled", FieldKind::Bool);

/// Section 4.10.
pub(super) static STATISTICS: Command = Command {
    name: "user-stats",
    node: node!("user-stats"),
    title: "Get User Statistics",
    doc: "Shows what an account keeps and where it is connected.",
    changes: false,
    form_type: FORM_TYPE,
    input: &[USER],
    output: &[ROSTER_SIZE, RESOURCES, WAITING, CREATED, SHUT],
    ..Command::EMPTY
};

pub(super) fn build(builder: &mut Builder<'_>) {
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

async fn add(call: Call) -> Result<Output, CommandError> {
    let jid = call.input.jid(&USER)?.clone();
    account(&call.node, &jid)?;
    let password = call.input.secret(&PASSWORD).cloned().ok_or_else(CommandError::internal)?;
    if call.input.secret(&VERIFY).is_some_and(|again| *again != password) {
        return Err(CommandError::new(Why::NotAcceptable, "the two passwords differ"));
    }
    call.node.create_account(&jid, password).await.map_err(|e| e.about(&jid))?;
    if let Some((vcard, searchable)) = card(&call) {
        call.node.stores.vcards.put(jid.as_ref(), Some(vcard), searchable, None).await?;
    }
    Ok(Output::said(format!("{jid} was added")))
}

/// What is known of a new user, as its vCard (XEP-0054 section 2).
fn card(call: &Call) -> Option<(Vec<u8>, Searchable)> {
    let text = |field: &Field| call.input.text(field).unwrap_or_default().to_owned();
    let (first, last, email) = (text(&GIVEN), text(&SURNAME), text(&EMAIL));
    if first.is_empty() && last.is_empty() && email.is_empty() {
        return None;
    }
    let name = [first.as_str(), last.as_str()].join(" ").trim().to_owned();
    let mut out = Vec::with_capacity(256);
    let mut w = Writer::new(&mut out);
    w.start_ns("vCard", Ns::VCardTemp);
    if !name.is_empty() {
        w.leaf("FN", &name);
        w.start("N").leaf("FAMILY", &last).leaf("GIVEN", &first).end();
    }
    if !email.is_empty() {
        w.start("EMAIL").leaf("USERID", &email).end();
    }
    w.end();
    Some((out, Searchable { name, first, last, email, ..Searchable::default() }))
}

/// Nobody takes the account away that they are using: the answer would never arrive, and the last administrator would be
/// gone with one slip.
fn not_oneself(call: &Call, jids: &[Jid]) -> Result<(), CommandError> {
    match &call.caller.who {
        Who::Account(own) if jids.iter().any(|jid| jid.as_str() == own.bare().as_str()) => {
            Err(CommandError::new(Why::NotAllowed, "this is the account that you are using"))
        }
        _ => Ok(()),
    }
}

async fn delete(call: Call) -> Result<Output, CommandError> {
    let jids = call.input.jids(&USERS);
    not_oneself(&call, jids)?;
    existing(&call, jids).await?;
    for jid in jids {
        match call.node.remove_account(jid.as_ref()).await {
            Ok(()) | Err(AccountError::Missing) => {}
            Err(error) => return Err(error.about(jid)),
        }
    }
    Ok(Output::said(format!("{} deleted", count(jids.len(), "account"))))
}

async fn set_disabled(call: Call, disabled: bool) -> Result<Output, CommandError> {
    let jids = call.input.jids(&USERS);
    if disabled {
        not_oneself(&call, jids)?;
    }
    existing(&call, jids).await?;
    for jid in jids {
        match call.node.disable_account(jid, disabled).await {
            Ok(()) | Err(AccountError::Missing) => {}
            Err(error) => return Err(error.about(jid)),
        }
    }
    let what = if disabled { "disabled" } else { "enabled again" };
    Ok(Output::said(format!("{} {what}", count(jids.len(), "account"))))
}

async fn end_session(call: Call) -> Result<Output, CommandError> {
    let jids = call.input.jids(&SESSIONS);
    let bare: Vec<Jid> = jids.iter().map(|jid| jid.bare().to_jid()).collect();
    for jid in &bare {
        account(&call.node, jid)?;
    }
    let why = StreamError::new(StreamCondition::PolicyViolation).text("an administrator ended this session");
    let ended: usize = jids.iter().map(|jid| call.node.end_sessions(jid.as_ref(), &why)).sum();
    if ended == 0 {
        return Err(CommandError::new(Why::NotFound, "there is no such session"));
    }
    Ok(Output::said(format!("{} ended", count(ended, "session"))))
}

async fn change_password(call: Call) -> Result<Output, CommandError> {
    let jid = call.input.jid(&USER)?;
    account(&call.node, jid)?;
    let password = call.input.secret(&PASSWORD).cloned().ok_or_else(CommandError::internal)?;
    if !call.node.stores.accounts.exists(jid.as_ref()).await? {
        return Err(CommandError::no_account(jid));
    }
    call.node.change_password(jid.as_ref(), password).await.map_err(|e| e.about(jid))?;
    Ok(Output::said(format!("the password of {jid} was changed")))
}

fn shown(jids: &[Jid]) -> Shown {
    Shown::Texts(jids.iter().map(Jid::to_string).collect())
}

async fn roster(call: Call) -> Result<Output, CommandError> {
    let jids = call.input.jids(&USERS);
    existing(&call, jids).await?;
    let mut rows: Vec<Row> = Vec::new();
    let mut xml = Vec::new();
    for owner in jids {
        let Some(found) = call.node.stores.accounts.show(owner.as_ref()).await? else { continue };
        let items = match call.node.stores.roster.get(found.id).await {
            Ok(roster) => roster.items,
            Err(error) if error.kind == ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let mut w = Writer::new(&mut xml);
        w.start_ns("query", Ns::Roster);
        for item in items.iter().filter(|item| item.subscription.has(Subscription::IN_ROSTER)) {
            w.start("item").attr("jid", item.jid.as_str()).attr_opt("name", item.name.as_deref());
            w.attr("subscription", item.subscription.as_str());
            for group in &item.groups {
                w.leaf("group", group);
            }
            w.end();
            rows.push(vec![
                Shown::Text(owner.to_string()),
                Shown::Text(item.jid.to_string()),
                Shown::Text(item.name.clone().unwrap_or_default()),
                Shown::Text(item.subscription.as_str().to_owned()),
                Shown::Texts(item.groups.clone()),
            ]);
        }
        w.end();
    }
    let output = Output { xml, ..Output::done() };
    Ok(output.with(&OF, shown(jids)).with(&CONTACTS, Shown::Rows(rows)))
}

async fn last_login(call: Call) -> Result<Output, CommandError> {
    let jids = call.input.jids(&USERS);
    existing(&call, jids).await?;
    let mut times = Vec::with_capacity(jids.len());
    for jid in jids {
        let at = match call.node.table.find(jid.as_ref()) {
            Some(_) => Some(call.node.clock.unix_millis()),
            None => {
                call.node.stores.last_seen.get(jid.as_ref()).await?.map(|seen| seen.at.saturating_mul(1000))
            }
        };
        times.push(at.map_or_else(|| "never".to_owned(), |at| utc(at, false)));
    }
    Ok(Output::done().with(&OF, shown(jids)).with(&LAST, Shown::Texts(times)))
}

async fn statistics(call: Call) -> Result<Output, CommandError> {
    let jid = call.input.jid(&USER)?;
    account(&call.node, jid)?;
    let stores = &call.node.stores;
    let missing = || CommandError::no_account(jid);
    let found = stores.accounts.show(jid.as_ref()).await?.ok_or_else(missing)?;
    let contacts = match stores.roster.get(found.id).await {
        Ok(roster) => roster.items,
        Err(error) if error.kind == ErrorKind::NotFound => return Err(missing()),
        Err(error) => return Err(error.into()),
    };
    let contacts = contacts.iter().filter(|item| item.subscription.has(Subscription::IN_ROSTER)).count();
    let waiting = stores.offline.count(found.id).await?;
    let sessions = call.node.table.find(jid.as_ref()).map(|a| a.sessions()).unwrap_or_default();
    let resources = sessions.iter().map(|s| s.resource().to_owned()).collect();
    Ok(Output::done()
        .with(&ROSTER_SIZE, Shown::Int(contacts as u64))
        .with(&RESOURCES, Shown::Texts(resources))
        .with(&WAITING, Shown::Int(u64::from(waiting)))
        .with(&CREATED, Shown::Text(utc(found.created_at, false)))
        .with(&SHUT, Shown::Bool(found.disabled)))
}
