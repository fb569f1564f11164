//! Accounts of Tsung scenarios: numbered users from the options, or names and passwords from a file
//! (`xmpp_authenticate`).
//!
//! A session that takes name and password from a row of a file makes that file the list of accounts: user and row have
//! the same number, so a name is never used twice at one time, and destinations are chosen among all of them.
//!
//! Not implemented: two account files in one run.
//!
//! # Pitfalls
//!
//! Tsung appends the number to the password, too: that of `user7` is `pass7`.

use super::reader::{TsungReader, XmlNode};
use super::session_flow::SessionFlow;
use crate::plan::{
    AccountSource, PlanOverrides, PlanStep, TemplatePart, TestAccounts, TextTemplate, VariableValue,
};

/// Source of a session's name and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TsungLogin {
    /// The numbered users.
    Numbered,
    /// Anonymous login.
    Anonymous,
    /// Two columns of a table.
    File { table: u16, name: u16, password: u16 },
    /// One user for all.
    Fixed { name: String, password: String },
    /// Text with variables; the numbered users provide only numbers.
    Text,
}

impl TsungReader<'_> {
    /// Reads `xmpp_authenticate`.
    pub(super) fn authenticate(&mut self, node: XmlNode<'_>, flow: &mut SessionFlow, subst: bool) {
        self.known_attributes(node);
        let (Some(name), Some(password)) = (self.needed(node, "username"), self.needed(node, "passwd"))
        else {
            return;
        };
        let variables = name.contains("%%") || password.contains("%%");
        if variables && !subst {
            self.error(node, "xmpp_authenticate", "its variables require subst=\"true\" on the request");
            return;
        }
        let login = if !variables {
            TsungLogin::Fixed { name: name.to_owned(), password: password.to_owned() }
        } else {
            let of_file = |text: TextTemplate| match &text.0[..] {
                [TemplatePart::Variable(variable)] => {
                    flow.rows.get(variable).map(|at| (*at, variable.clone()))
                }
                _ => None,
            };
            // Where they are read is recorded below.
            let mut unknown = SessionFlow::default();
            let names = self.text(node, &mut unknown, name, true);
            let passwords = self.text(node, &mut unknown, password, true);
            match (of_file(names.clone()), of_file(passwords.clone())) {
                (Some(((table, name), variable)), Some(((same, password), _))) if table == same => {
                    flow.account_row = Some((table, variable));
                    TsungLogin::File { table, name, password }
                }
                _ => {
                    flow.credentials = Some((names, passwords));
                    TsungLogin::Text
                }
            }
        };
        for (used, line) in [name, password]
            .into_iter()
            .filter_map(variable)
            .map(|name| (name.to_owned(), self.line(node)))
            .collect::<Vec<_>>()
        {
            flow.uses(&used, line);
        }
        flow.given = true;
        self.logins.push((login, self.line(node)));
    }

    /// Records the login of a session without `xmpp_authenticate`.
    pub(super) fn numbered(&mut self, flow: &SessionFlow, line: u32) {
        if flow.given {
        } else if flow.login {
            self.logins.push((TsungLogin::Numbered, line));
        } else if flow.anonymous {
            self.logins.push((TsungLogin::Anonymous, line));
        }
    }

    /// Reads the accounts of the run.
    pub(super) fn read_accounts(&mut self, arguments: &PlanOverrides) -> TestAccounts {
        let domain = self.domain();
        let domain = arguments.domain.clone().unwrap_or(domain);
        let over = &arguments.accounts;
        if let Some(csv) = &over.csv {
            let mut rows = Vec::new();
            for mut row in crate::plan::csv::rows(csv).into_iter().filter(|row| row.len() >= 2) {
                let password = row.swap_remove(1);
                rows.push((row.swap_remove(0), password));
            }
            if rows.is_empty() {
                self.wrong_plan("the list of accounts has no line with a name and a password");
            }
            return TestAccounts { source: AccountSource::List(rows), domain };
        }
        let first = self.logins.first().map_or(TsungLogin::Numbered, |(login, _)| login.clone());
        // Names with variables and users without a name are compatible with numbered ones.
        let class = |login: &TsungLogin| match login {
            TsungLogin::Text | TsungLogin::Anonymous => TsungLogin::Numbered,
            login => login.clone(),
        };
        if let Some((_, line)) = self.logins.iter().find(|(login, _)| class(login) != class(&first)).cloned()
        {
            let text = "this version supports only one kind of accounts per run, and another session has a \
             different one";
            self.wrong_line(line, "xmpp_authenticate", text);
        }
        let all_anonymous =
            !self.logins.is_empty() && self.logins.iter().all(|(login, _)| *login == TsungLogin::Anonymous);
        let count = over.count.unwrap_or(self.settings.userid_max);
        let source = match first {
            TsungLogin::File { table, name, password } if over.prefix.is_none() => {
                self.listed(table, name, password)
            }
            TsungLogin::Fixed { name, password } if over.prefix.is_none() => {
                self.note_plan(format!("all users log in as {name}, so only one can be online at a time"));
                AccountSource::List(vec![(name, password)])
            }
            _ if all_anonymous => AccountSource::Anonymous { count },
            _ => self.pattern(arguments, count),
        };
        self.check_destinations(&source);
        TestAccounts { source, domain }
    }

    fn pattern(&mut self, arguments: &PlanOverrides, count: u32) -> AccountSource {
        let over = &arguments.accounts;
        if count == 0 {
            self.wrong_plan("userid_max is 0 and no session reads its users from a file: no user can log in");
        }
        if over.password.is_none() && self.settings.password.contains("{n}") {
            self.wrong_plan(
                "passwd: a password cannot contain {n}, which is replaced by the number of the user",
            );
        }
        if self.logins.iter().any(|(login, _)| *login == TsungLogin::Text) {
            self.note_plan(
                "names of xmpp_authenticate that are not two columns of one file are not used for the \
                 destinations online, offline and random, which remain the numbered users",
            );
        }
        AccountSource::Pattern {
            prefix: over.prefix.clone().unwrap_or_else(|| self.settings.prefix.clone()),
            first: over.first.unwrap_or(1),
            count,
            stride: over.stride.unwrap_or(1).max(1),
            password: over.password.clone().unwrap_or_else(|| format!("{}{{n}}", self.settings.password)),
        }
    }

    fn listed(&mut self, table: u16, name: u16, password: u16) -> AccountSource {
        let (path, rows) = match self.tables.get(usize::from(table)) {
            Some(table) => (table.name.clone(), &table.rows),
            None => return AccountSource::List(Vec::new()),
        };
        let column =
            |row: &[String], at: u16| row.get(usize::from(at)).filter(|text| !text.is_empty()).cloned();
        let list: Vec<(String, String)> =
            rows.iter().filter_map(|row| Some((column(row, name)?, column(row, password)?))).collect();
        if list.len() < rows.len() {
            // Users and rows have the same number, so no row may be missing.
            let missing = rows.len() - list.len();
            self.wrong_plan(format!(
                "{path}: {missing} lines have no name and password; check the delimiter"
            ));
        }
        AccountSource::List(list)
    }

    /// Checks that the files for destinations are the account file, since destinations are chosen among the accounts.
    fn check_destinations(&mut self, source: &AccountSource) {
        let accounts = self.logins.iter().find_map(|(login, _)| match login {
            TsungLogin::File { table, .. } => {
                self.tables.get(usize::from(*table)).map(|table| table.name.clone())
            }
            _ => None,
        });
        for id in self.settings.destinations_from.clone() {
            let Some(path) = self.settings.files.get(&id).cloned() else {
                self.wrong_plan(format!(
                    "random_from_fileid, offline_from_fileid: there is no file_server {id}"
                ));
                continue;
            };
            if accounts.as_ref() != Some(&path) {
                let kind =
                    if matches!(source, AccountSource::List(_)) { "another file" } else { "numbered users" };
                self.wrong_plan(format!(
                    "random_from_fileid, offline_from_fileid: this version chooses destinations among the accounts, and these \
                     are {kind}, not {path}"
                ));
            }
        }
    }
}

fn variable(text: &str) -> Option<&str> {
    text.strip_prefix("%%_")?.strip_suffix("%%").filter(|name| !name.contains('%'))
}

/// Makes variables from the account's row use the user's own row, in whatever order the file is read.
pub(super) fn own_rows(steps: &mut [PlanStep], table: u16, variable: &str) {
    for step in steps {
        match step {
            PlanStep::Set(values)
                if values.iter().any(|(name, value)| name == variable && is_row(value, table)) =>
            {
                for (_, value) in values {
                    if let VariableValue::Row { table, column, .. } = value {
                        *value = VariableValue::OwnRow { table: *table, column: *column };
                    }
                }
            }
            PlanStep::Repeat { steps, .. }
            | PlanStep::While { steps, .. }
            | PlanStep::If { steps, .. }
            | PlanStep::ForEach { steps, .. }
            | PlanStep::Transaction { steps, .. } => own_rows(steps, table, variable),
            _ => {}
        }
    }
}

fn is_row(value: &VariableValue, wanted: u16) -> bool {
    matches!(value, VariableValue::Row { table, .. } if *table == wanted)
}
