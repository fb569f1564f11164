//! How many users there are, and which: sections 4.13 to 4.22.
//!
//! A list is given in pages: `max_items` as in XEP-0133, and where the page begins. XEP-0133 leaves paging out, so the two
//! fields for it are ours. Idle is a user all of whose clients have said that they are inactive (XEP-0352); active is any
//! other who is online. Users without an account (SASL ANONYMOUS) are not counted.
//!
//! The trap: the order of the online is that of the table's hashes, so that a page needs no memory of the one before; users
//! who come and go in between neither repeat nor hide others.

use jid::Jid;
use store::{AddressId, Page};
use throng_core::Account;
use throng_core::command::{
    Call, Command, CommandError, CommandFuture, Field, FieldKind, Output, Shown, Why, breathe,
};
use throng_core::feature::Builder;
use throng_core::session::flags;

use super::{FORM_TYPE, node};

/// Users on one page.
const MOST: u32 = 1_000;

const MAX_ITEMS: Field = Field::new(
    "max-items",
    "max_items",
    "Maximum number of items to show",
    FieldKind::Count(MOST, &[25, 50, 75, 100, 150, 200]),
)
.default("100");
const AFTER: Field = Field::new("after", "x-after", "Behind the page that ended with", FieldKind::Text)
    .doc("What the page before gave as its end.");
static NEXT: Field =
    Field::new("next", "x-next", "The page ends with", FieldKind::Text).doc("Absent if there is no more.");

macro_rules! number {
    ($static:ident, $field:ident, $node:literal, $var:literal, $title:literal, $what:literal) => {
        static $field: Field =
            Field::new("number", $var, concat!("The number of ", $what), FieldKind::Int(0, i64::MAX, &[]));
        pub(super) static $static: Command = Command {
            name: $node,
            node: node!($node),
            title: $title,
            doc: concat!("Counts ", $what, "."),
            changes: false,
            form_type: FORM_TYPE,
            output: &[$field],
            ..Command::EMPTY
        };
    };
}
macro_rules! list {
    ($static:ident, $field:ident, $node:literal, $var:literal, $title:literal, $what:literal) => {
        static $field: Field = Field::new("users", $var, concat!("The list of ", $what), FieldKind::Jids);
        pub(super) static $static: Command = Command {
            name: $node,
            node: node!($node),
            title: $title,
            doc: concat!("Lists ", $what, ", page by page."),
            changes: false,
            form_type: FORM_TYPE,
            input: &[MAX_ITEMS, AFTER],
            output: &[$field, NEXT],
            ..Command::EMPTY
        };
    };
}

number!(
    REGISTERED_NUM,
    REGISTERED_NUMBER,
    "get-registered-users-num",
    "registeredusersnum",
    "Get Number of Registered Users",
    "registered users"
);
number!(
    DISABLED_NUM,
    DISABLED_NUMBER,
    "get-disabled-users-num",
    "disabledusersnum",
    "Get Number of Disabled Users",
    "disabled users"
);
number!(
    ONLINE_NUM,
    ONLINE_NUMBER,
    "get-online-users-num",
    "onlineusersnum",
    "Get Number of Online Users",
    "online users"
);
number!(
    ACTIVE_NUM,
    ACTIVE_NUMBER,
    "get-active-users-num",
    "activeusersnum",
    "Get Number of Active Users",
    "active users"
);
number!(
    IDLE_NUM,
    IDLE_NUMBER,
    "get-idle-users-num",
    "idleusersnum",
    "Get Number of Idle Users",
    "idle users"
);
list!(
    REGISTERED,
    REGISTERED_USERS,
    "get-registered-users-list",
    "registereduserjids",
    "Get List of Registered Users",
    "registered users"
);
list!(
    DISABLED,
    DISABLED_USERS,
    "get-disabled-users-list",
    "disableduserjids",
    "Get List of Disabled Users",
    "disabled users"
);
list!(
    ONLINE,
    ONLINE_USERS,
    "get-online-users-list",
    "onlineuserjids",
    "Get List of Online Users",
    "online users"
);
list!(ACTIVE, ACTIVE_USERS, "get-active-users", "activeuserjids", "Get List of Active Users", "active users");
list!(IDLE, IDLE_USERS, "get-idle-users", "idleuserjids", "Get List of Idle Users", "idle users");

/// Which users.
#[derive(Clone, Copy)]
enum Which {
    Registered,
    Disabled,
    Online,
    Active,
    Idle,
}

pub(super) fn build(builder: &mut Builder<'_>) {
    for (command, field, which) in [
        (&REGISTERED_NUM, &REGISTERED_NUMBER, Which::Registered),
        (&DISABLED_NUM, &DISABLED_NUMBER, Which::Disabled),
        (&ONLINE_NUM, &ONLINE_NUMBER, Which::Online),
        (&ACTIVE_NUM, &ACTIVE_NUMBER, Which::Active),
        (&IDLE_NUM, &IDLE_NUMBER, Which::Idle),
    ] {
        builder.command(command, move |call| -> CommandFuture { Box::pin(number(call, field, which)) });
    }
    for (command, field, which) in [
        (&REGISTERED, &REGISTERED_USERS, Which::Registered),
        (&DISABLED, &DISABLED_USERS, Which::Disabled),
        (&ONLINE, &ONLINE_USERS, Which::Online),
        (&ACTIVE, &ACTIVE_USERS, Which::Active),
        (&IDLE, &IDLE_USERS, Which::Idle),
    ] {
        builder.command(command, move |call| -> CommandFuture { Box::pin(list(call, field, which)) });
    }
}

impl Which {
    /// Whether a connected account is one of these.
    fn holds(self, account: &Account, domain: &str) -> bool {
        if account.id == AddressId::UNASSIGNED || account.jid.domain() != domain {
            return false;
        }
        let mut idle = true;
        account.each_session(|session| idle &= session.flags.has(flags::INACTIVE));
        match self {
            Which::Active => !idle,
            Which::Idle => idle,
            _ => true,
        }
    }
}

async fn number(call: Call, field: &'static Field, which: Which) -> Result<Output, CommandError> {
    let domain = call.host.domain();
    let accounts = &call.node.stores.accounts;
    let number = match which {
        Which::Registered => accounts.count(domain).await?,
        Which::Disabled => accounts.count_disabled(domain).await?,
        _ => online(&call, which).await,
    };
    Ok(Output::done().with(field, Shown::Int(number)))
}

/// Counts part by part.
async fn online(call: &Call, which: Which) -> u64 {
    let mut number = 0;
    for part in 0..call.node.table.parts() {
        call.node
            .table
            .each_of_part(part, |account| number += u64::from(which.holds(account, call.host.domain())));
        breathe().await;
    }
    number
}

async fn list(call: Call, field: &'static Field, which: Which) -> Result<Output, CommandError> {
    let limit = call.input.count(&MAX_ITEMS);
    let after = call.input.text(&AFTER);
    let wrong = || CommandError::new(Why::NotAcceptable, "the page before did not end with this");
    let (users, next) = match which {
        Which::Registered | Which::Disabled => {
            let after = after.map(str::parse).transpose().map_err(|_| wrong())?;
            let page = Page::after(after.unwrap_or(0), limit);
            let (accounts, domain) = (&call.node.stores.accounts, call.host.domain());
            let slice = match which {
                Which::Disabled => accounts.list_disabled(domain, page).await?,
                _ => accounts.list(domain, page).await?,
            };
            (slice.items.iter().map(|a| a.jid.to_string()).collect(), slice.next.map(|next| next.to_string()))
        }
        _ => {
            let after = after.map(Jid::parse).transpose().map_err(|_| wrong())?;
            if after.as_ref().is_some_and(|jid| jid.local().is_none()) {
                return Err(wrong());
            }
            connected(&call, which, after.as_ref(), limit as usize).await
        }
    };
    let mut output = Output::done().with(field, Shown::Texts(users));
    if let Some(next) = next {
        output = output.with(&NEXT, Shown::Text(next));
    }
    Ok(output)
}

/// One page of the online, in the order of the table's parts and in each of them of addresses.
async fn connected(
    call: &Call,
    which: Which,
    after: Option<&Jid>,
    limit: usize,
) -> (Vec<String>, Option<String>) {
    let table = &call.node.table;
    let mut users: Vec<String> = Vec::with_capacity(limit.min(256));
    for part in after.map_or(0, |jid| table.part_of(jid.as_ref()))..table.parts() {
        let keep = |account: &Account| which.holds(account, call.host.domain());
        for account in table.page_of_part(part, after.map(Jid::as_ref), keep) {
            if users.len() == limit {
                let next = users.last().cloned();
                return (users, next);
            }
            users.push(account.jid.to_string());
        }
        breathe().await;
    }
    (users, None)
}
