//! `[accounts]` and `[prepare]`: accounts that log in, and data that the server must hold before the run.
//!
//! Not implemented: a check that the server holds it; the first login shows.
//!
//! # Pitfalls
//!
//! With a stride the server needs more accounts than there are users, since the roster ring contains all of them.

use super::super::{AccountSource, PlanOverrides, TestAccounts, csv};
use super::reader::TomlSection;

/// Data that the server must hold before the run: `throng account bulk` creates it on Throng.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// Name prefix.
    pub prefix: String,
    /// Number of the first account.
    pub first: u64,
    /// Number of accounts.
    pub accounts: u64,
    /// Password of all accounts; `{n}` stands for the number of the account.
    pub password: String,
    /// Domain of the accounts.
    pub domain: String,
    /// Mutual contacts of each account: its nearest neighbours in a ring. 0 means empty rosters.
    pub roster: u32,
}

impl Preparation {
    /// Command that creates these accounts on Throng; `None` if each has its own password, which the command cannot
    /// set.
    pub fn command(&self) -> Option<String> {
        if self.password.contains("{n}") {
            return None;
        }
        let Self { prefix, first, accounts, password, domain, roster } = self;
        let ring = if *roster > 0 { format!(" --roster ring:{roster}") } else { String::new() };
        let (prefix, password, domain) = (quoted(prefix), quoted(password), quoted(domain));
        Some(format!(
            "throng account bulk --domain {domain} --prefix {prefix} --from {first} --count {accounts} --password {password}{ring}"
        ))
    }
}

/// Quotes text for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Values of `[accounts]`.
struct AccountsSection {
    prefix: String,
    first: u64,
    count: u32,
    stride: u32,
    password: String,
    list: Option<Vec<(String, String)>>,
    anonymous: bool,
    domain: String,
}

/// Reads both sections.
pub(super) fn read(
    s: &TomlSection<'_>,
    domain: &str,
    arguments: &PlanOverrides,
) -> Option<(TestAccounts, Option<Preparation>)> {
    let given = given(s, domain, arguments);
    let prepare = s.get("prepare").and_then(|n| n.section());
    let wanted = prepare.as_ref().and_then(|p| p.get("accounts")).and_then(|n| n.amount());
    let roster =
        prepare.as_ref().and_then(|p| p.get("roster")).and_then(|n| n.whole(0, 100_000)).unwrap_or(0) as u32;
    if let Some(prepare) = prepare {
        prepare.finish();
    }
    let AccountsSection { prefix, first, count, stride, password, list, anonymous, domain } = given;
    let source = match list {
        _ if anonymous => AccountSource::Anonymous { count },
        Some(rows) if rows.is_empty() => {
            s.context.wrong_nowhere(
                "the list of accounts is empty; each line must be a name and a password, such as \
                 alice,secret",
            );
            return None;
        }
        Some(rows) => AccountSource::List(rows),
        None => AccountSource::Pattern {
            prefix: prefix.clone(),
            first,
            count,
            stride,
            password: password.clone(),
        },
    };
    let preparation = matches!(source, AccountSource::Pattern { .. }).then(|| {
        // At least all accounts in use, and a ring larger than its rosters.
        let used = u64::from(count) * u64::from(stride);
        let accounts = wanted.map_or(used, |n| used.max(u64::from(n))).max(u64::from(roster) + 1);
        Preparation { prefix, first, accounts, password, domain: domain.clone(), roster }
    });
    Some((TestAccounts { source, domain }, preparation))
}

fn given(s: &TomlSection<'_>, domain: &str, arguments: &PlanOverrides) -> AccountsSection {
    let connections = s.context.connections;
    let mut given = AccountsSection {
        prefix: "u".to_owned(),
        first: 0,
        count: connections,
        stride: 1,
        password: "secret".to_owned(),
        list: None,
        anonymous: false,
        domain: domain.to_owned(),
    };
    if let Some(section) = s.get("accounts").and_then(|n| n.section()) {
        let text = |key| section.get(key).and_then(|n| n.text()).map(str::to_owned);
        let (prefix, password, own) = (text("prefix"), text("password"), text("domain"));
        given.prefix = prefix.unwrap_or(given.prefix);
        given.password = password.unwrap_or(given.password);
        // The command line's domain applies to all; the file's may differ from that of the stream.
        given.domain = own.filter(|_| arguments.domain.is_none()).unwrap_or(given.domain);
        given.first = section.get("first").and_then(|n| n.whole(0, i64::MAX)).unwrap_or(0) as u64;
        given.count = section.get("count").and_then(|n| n.amount()).unwrap_or(connections);
        given.stride = section.get("stride").and_then(|n| n.whole(1, 1_000_000)).unwrap_or(1) as u32;
        given.anonymous = section.get("anonymous").and_then(|n| n.boolean()).unwrap_or(false);
        if let Some(node) = section.get("file")
            && arguments.accounts.csv.is_none()
        {
            given.list = super::file(&node, arguments).map(|text| rows(&section, &text));
        }
        section.finish();
    }
    let over = &arguments.accounts;
    given.prefix = over.prefix.clone().unwrap_or(given.prefix);
    given.first = over.first.unwrap_or(given.first);
    given.count = over.count.unwrap_or(given.count);
    given.stride = over.stride.unwrap_or(given.stride).max(1);
    given.password = over.password.clone().unwrap_or(given.password);
    if let Some(text) = &over.csv {
        given.list = Some(rows(s, text));
        given.anonymous = false;
    } else if over.prefix.is_some() {
        given.list = None;
    }
    if given.count == 0 {
        s.context.wrong_nowhere("--count must be at least 1");
    }
    given
}

/// Names and passwords. A first line of `user,password` or `name,password` is a header.
fn rows(s: &TomlSection<'_>, text: &str) -> Vec<(String, String)> {
    let mut list = Vec::new();
    for (i, mut row) in csv::rows(text).into_iter().enumerate() {
        if i == 0
            && row.len() >= 2
            && ["user", "name", "username"].contains(&row[0].as_str())
            && row[1] == "password"
        {
            continue;
        }
        if row.len() < 2 || row[0].is_empty() {
            s.context.wrong_nowhere(format!(
                "line {} of the accounts is not a name and a password with a comma between, such as alice,secret",
                i + 1
            ));
            // One error is enough: a wrong file is wrong in every line.
            return list;
        }
        let password = row.swap_remove(1);
        list.push((row.swap_remove(0), password));
    }
    list
}
