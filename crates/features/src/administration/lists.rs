//! Counts and lists of users: XEP-0133 1.3.1, sections 4.13 to 4.22.
//!
//! Lists are returned in pages: `max_items` as in XEP-0133, plus the start of the page. XEP-0133 has no paging, so
//! the two fields for it are our own. A user is idle if all clients have reported that they are inactive (XEP-0352),
//! and active if online otherwise. Users without an account (SASL ANONYMOUS) are not counted. Counts and
//! lists are of all nodes; those that did not answer are in a field of our own.
//!
//! # Pitfalls
//!
//! Online users are ordered by the hashes of the table, so that a page needs no state of the previous one; users who
//! connect or disconnect in between cause no repeated or missing entries.

use feature_api::feature::FeatureBuilder;
use jid::Jid;
use store::Page;
use throng_commands::cluster_admin::online_users::{count_online_users, online_users};
use throng_commands::paging::{AFTER, MAX_PAGE, NEXT};
use throng_commands::{
    Command, CommandCall, CommandError, CommandErrorKind, CommandField, CommandFieldKind, CommandFuture,
    CommandOutput, OutputValue, RegisterCommands,
};
use throng_core::router::OnlineFilter;

use super::{FORM_TYPE, MISSING, name_missing, node};

/// As [`throng_commands::paging::MAX_ITEMS`], with the name and the options of XEP-0133.
const MAX_ITEMS: CommandField = CommandField::new(
    "max-items",
    "max_items",
    "Maximum number of items to show",
    CommandFieldKind::Count(MAX_PAGE, &[25, 50, 75, 100, 150, 200]),
)
.default("100");

macro_rules! number {
    (
        $static:ident, $field:ident, $node:literal, $var:literal, $title:literal, $what:literal
        $(, $missing:ident)?
    ) => {
        static $field: CommandField = CommandField::new(
            "number",
            $var,
            concat!("The number of ", $what),
            CommandFieldKind::Int(0, i64::MAX, &[]),
        );
        pub(super) static $static: Command = Command {
            name: $node,
            node: node!($node),
            title: $title,
            doc: concat!("Counts ", $what, "."),
            changes: false,
            form_type: FORM_TYPE,
            output: &[$field $(, $missing)?],
            ..Command::EMPTY
        };
    };
}
macro_rules! list {
    (
        $static:ident, $field:ident, $node:literal, $var:literal, $title:literal, $what:literal
        $(, $missing:ident)?
    ) => {
        static $field: CommandField =
            CommandField::new("users", $var, concat!("The list of ", $what), CommandFieldKind::Jids);
        pub(super) static $static: Command = Command {
            name: $node,
            node: node!($node),
            title: $title,
            doc: concat!("Lists ", $what, ", page by page."),
            changes: false,
            form_type: FORM_TYPE,
            input: &[MAX_ITEMS, AFTER],
            output: &[$field, NEXT $(, $missing)?],
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
    "online users",
    MISSING
);
number!(
    ACTIVE_NUM,
    ACTIVE_NUMBER,
    "get-active-users-num",
    "activeusersnum",
    "Get Number of Active Users",
    "active users",
    MISSING
);
number!(
    IDLE_NUM,
    IDLE_NUMBER,
    "get-idle-users-num",
    "idleusersnum",
    "Get Number of Idle Users",
    "idle users",
    MISSING
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
    "online users",
    MISSING
);
list!(
    ACTIVE,
    ACTIVE_USERS,
    "get-active-users",
    "activeuserjids",
    "Get List of Active Users",
    "active users",
    MISSING
);
list!(IDLE, IDLE_USERS, "get-idle-users", "idleuserjids", "Get List of Idle Users", "idle users", MISSING);

/// Filter of a count or a list.
#[derive(Clone, Copy)]
enum UserFilter {
    Registered,
    Disabled,
    Online,
    Active,
    Idle,
}

pub(super) fn build(builder: &mut FeatureBuilder<'_>) {
    for (command, field, which) in [
        (&REGISTERED_NUM, &REGISTERED_NUMBER, UserFilter::Registered),
        (&DISABLED_NUM, &DISABLED_NUMBER, UserFilter::Disabled),
        (&ONLINE_NUM, &ONLINE_NUMBER, UserFilter::Online),
        (&ACTIVE_NUM, &ACTIVE_NUMBER, UserFilter::Active),
        (&IDLE_NUM, &IDLE_NUMBER, UserFilter::Idle),
    ] {
        builder.command(command, move |call| -> CommandFuture { Box::pin(count_users(call, field, which)) });
    }
    for (command, field, which) in [
        (&REGISTERED, &REGISTERED_USERS, UserFilter::Registered),
        (&DISABLED, &DISABLED_USERS, UserFilter::Disabled),
        (&ONLINE, &ONLINE_USERS, UserFilter::Online),
        (&ACTIVE, &ACTIVE_USERS, UserFilter::Active),
        (&IDLE, &IDLE_USERS, UserFilter::Idle),
    ] {
        builder.command(command, move |call| -> CommandFuture { Box::pin(list_users(call, field, which)) });
    }
}

impl UserFilter {
    /// The filter of users who are online.
    fn online(self) -> OnlineFilter {
        match self {
            UserFilter::Active => OnlineFilter::Active,
            UserFilter::Idle => OnlineFilter::Idle,
            UserFilter::Registered | UserFilter::Disabled | UserFilter::Online => OnlineFilter::All,
        }
    }
}

async fn count_users(
    call: CommandCall,
    field: &'static CommandField,
    which: UserFilter,
) -> Result<CommandOutput, CommandError> {
    let domain = call.host.domain();
    let accounts = &call.node.stores.accounts;
    let number = match which {
        UserFilter::Registered => accounts.count(domain).await?,
        UserFilter::Disabled => accounts.count_disabled(domain).await?,
        _ => {
            let (number, missing) = count_online_users(&call.node, domain, which.online()).await;
            let output = CommandOutput::done().with(field, OutputValue::Int(number));
            return Ok(name_missing(output, &missing));
        }
    };
    Ok(CommandOutput::done().with(field, OutputValue::Int(number)))
}

async fn list_users(
    call: CommandCall,
    field: &'static CommandField,
    which: UserFilter,
) -> Result<CommandOutput, CommandError> {
    let limit = call.input.count(&MAX_ITEMS);
    let after = call.input.text(&AFTER);
    let wrong =
        || CommandError::new(CommandErrorKind::NotAcceptable, "this is not the `next` of a previous page");
    let mut missing = Vec::new();
    let (users, next) = match which {
        UserFilter::Registered | UserFilter::Disabled => {
            let after = after.map(str::parse).transpose().map_err(|_| wrong())?;
            let page = Page::after(after.unwrap_or(0), limit);
            let (accounts, domain) = (&call.node.stores.accounts, call.host.domain());
            let slice = match which {
                UserFilter::Disabled => accounts.list_disabled(domain, page).await?,
                _ => accounts.list(domain, page).await?,
            };
            (slice.items.iter().map(|a| a.jid.to_string()).collect(), slice.next.map(|next| next.to_string()))
        }
        _ => {
            let after = after.map(Jid::parse).transpose().map_err(|_| wrong())?;
            if after.as_ref().is_some_and(|jid| jid.local().is_none()) {
                return Err(wrong());
            }
            let domain = call.host.domain();
            let page = online_users(&call.node, domain, which.online(), after.as_ref(), limit).await;
            missing = page.missing;
            (page.users, page.next)
        }
    };
    let mut output = CommandOutput::done().with(field, OutputValue::Texts(users));
    if let Some(next) = next {
        output = output.with(&NEXT, OutputValue::Text(next));
    }
    Ok(name_missing(output, &missing))
}
