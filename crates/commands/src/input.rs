//! Input of commands: parsed and checked once, the same for every interface.

use std::collections::BTreeSet;

use base::Secret;
use jid::Jid;

use super::{Command, CommandError, CommandErrorKind, CommandField, CommandFieldKind};

/// Maximum number of addresses in one field.
const MAX_JIDS: usize = 1_000;
/// Maximum bytes of one line; also of a password (RFC 8265 leaves that to the server).
const MAX_LINE_BYTES: usize = 3_071;
/// Maximum bytes of all lines of one field: they must fit into a value of the server's key-value store with its
/// other content.
const MAX_LINES_BYTES: usize = 32_768;
/// Number of addresses in the audit line.
const MAX_AUDITED_JIDS: usize = 10;

/// The field name that an interface uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldNaming {
    /// [`CommandField::name`]
    Name,
    /// [`CommandField::var`]
    Var,
}

/// Values as received.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RawArguments(pub Vec<(String, Vec<String>)>);

impl RawArguments {
    /// Adds a value to a field.
    pub fn add(&mut self, key: &str, value: String) {
        match self.0.iter_mut().find(|(k, _)| k == key) {
            Some((_, values)) => values.push(value),
            None => self.0.push((key.to_owned(), vec![value])),
        }
    }

    /// The values of a field.
    pub fn get(&self, key: &str) -> Option<&[String]> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, values)| values.as_slice())
    }
}

impl std::fmt::Debug for RawArguments {
    /// Names only: a value may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(key, _)| key)).finish()
    }
}

#[derive(Clone, Debug)]
enum ArgumentValue {
    Jid(Jid),
    Jids(Vec<Jid>),
    Text(String),
    Secret(Secret),
    Lines(Vec<String>),
    Int(i64),
    Count(u32),
    Bool(bool),
}

/// Checked values.
#[derive(Clone, Debug, Default)]
pub struct CommandInput(Vec<(&'static str, ArgumentValue)>);

impl Command {
    /// Parses and checks the values of all fields.
    ///
    /// # Errors
    /// [`CommandErrorKind::Invalid`] with the field's name, never with the value of a secret one.
    pub fn parse_input(&self, given: &RawArguments, key: FieldNaming) -> Result<CommandInput, CommandError> {
        self.parse_fields(given, key, |_| true)
    }

    /// Like [`Command::parse_input`], for the fields of one stage; values of other fields are ignored.
    ///
    /// # Errors
    /// As [`Command::parse_input`].
    pub fn parse_stage(
        &self,
        given: &RawArguments,
        key: FieldNaming,
        stage: u8,
    ) -> Result<CommandInput, CommandError> {
        self.parse_fields(given, key, |field| field.stage == stage)
    }

    fn parse_fields(
        &self,
        given: &RawArguments,
        key: FieldNaming,
        wanted: impl Fn(&CommandField) -> bool,
    ) -> Result<CommandInput, CommandError> {
        let name = |field: &CommandField| if key == FieldNaming::Name { field.name } else { field.var };
        if key == FieldNaming::Name
            && let Some((unknown, _)) = given.0.iter().find(|(k, _)| !self.input.iter().any(|f| f.name == k))
        {
            // Unknown names: people mistype, and clients' forms may contain fields that nobody requested.
            let names: Vec<&str> = self.input.iter().map(|f| f.name).collect();
            let known = if names.is_empty() { "there are none".to_owned() } else { names.join(", ") };
            let unknown: String = unknown.chars().take(64).collect();
            return Err(CommandError::new(
                CommandErrorKind::Invalid,
                format!("{} has no field \"{unknown}\"; its fields: {known}", self.name),
            ));
        }
        let mut values = Vec::new();
        for field in self.input.iter().filter(|f| wanted(f)) {
            let shown = name(field);
            let texts = given.get(shown).unwrap_or_default();
            let full: Vec<&str> = texts
                .iter()
                .map(String::as_str)
                .filter(|t| !t.is_empty() || matches!(field.kind, CommandFieldKind::Lines))
                .collect();
            let empty = full.iter().all(|t| t.is_empty());
            let value = match (empty, field.default) {
                (false, _) => parse_value(field, &full).map_err(|what| invalid_value(shown, &what))?,
                (true, "") if field.required => return Err(invalid_value(shown, "is required")),
                (true, "") => continue,
                (true, default) => {
                    parse_value(field, &[default]).map_err(|what| invalid_value(shown, &what))?
                }
            };
            values.push((field.name, value));
        }
        Ok(CommandInput(values))
    }
}

fn invalid_value(field: &str, what: &str) -> CommandError {
    CommandError::new(CommandErrorKind::Invalid, format!("the field \"{field}\" {what}"))
}

/// Parses the values of one field, of which there is at least one.
fn parse_value(field: &CommandField, texts: &[&str]) -> Result<ArgumentValue, String> {
    if !field.kind.is_multi() && texts.len() > 1 {
        return Err("accepts only one value".to_owned());
    }
    if texts.iter().any(|t| t.len() > MAX_LINE_BYTES) {
        return Err(format!("has a line of more than {MAX_LINE_BYTES} bytes"));
    }
    let one = texts.first().copied().unwrap_or_default();
    let address =
        |text: &str| Jid::parse(text).map_err(|_| "must be an address such as user@example.org".to_owned());
    Ok(match field.kind {
        CommandFieldKind::Jid => ArgumentValue::Jid(address(one)?),
        CommandFieldKind::Jids => {
            if texts.len() > MAX_JIDS {
                return Err(format!("accepts at most {MAX_JIDS} addresses"));
            }
            let mut seen = BTreeSet::new();
            let mut list = Vec::with_capacity(texts.len());
            for text in texts {
                let jid = address(text)?;
                if seen.insert(jid.clone()) {
                    list.push(jid);
                }
            }
            ArgumentValue::Jids(list)
        }
        CommandFieldKind::Text => ArgumentValue::Text(one.to_owned()),
        CommandFieldKind::Secret => ArgumentValue::Secret(Secret::new(one)),
        CommandFieldKind::Lines => {
            let lines: Vec<String> = texts.iter().flat_map(|t| t.split('\n')).map(str::to_owned).collect();
            if lines.iter().map(|l| l.len() + 1).sum::<usize>() > MAX_LINES_BYTES {
                return Err(format!("has more than {MAX_LINES_BYTES} bytes"));
            }
            ArgumentValue::Lines(lines)
        }
        CommandFieldKind::Int(low, high, _) => match one.parse() {
            Ok(n) if low <= n && n <= high => ArgumentValue::Int(n),
            _ => return Err(format!("must be a number from {low} to {high}")),
        },
        CommandFieldKind::Count(most, _) => match (one, one.parse()) {
            ("none", _) => ArgumentValue::Count(most),
            (_, Ok(n)) if 1 <= n && n <= most => ArgumentValue::Count(n),
            _ => return Err(format!("must be a number from 1 to {most} or none")),
        },
        CommandFieldKind::Bool => match one {
            "1" | "true" => ArgumentValue::Bool(true),
            "0" | "false" => ArgumentValue::Bool(false),
            _ => return Err("must be true or false".to_owned()),
        },
        CommandFieldKind::Choice(list) => match list.iter().find(|(value, _)| *value == one) {
            Some((value, _)) => ArgumentValue::Text((*value).to_owned()),
            None => return Err(format!("must be one of: {}", field.kind.describe())),
        },
        CommandFieldKind::Table(_) => return Err("is only for output".to_owned()),
    })
}

impl CommandInput {
    fn find(&self, field: &CommandField) -> Option<&ArgumentValue> {
        self.0.iter().find(|(name, _)| *name == field.name).map(|(_, value)| value)
    }

    /// An address.
    ///
    /// # Errors
    /// If there is none: `invalid`, as for a missing required field.
    pub fn jid(&self, field: &CommandField) -> Result<&Jid, CommandError> {
        match self.find(field) {
            Some(ArgumentValue::Jid(jid)) => Ok(jid),
            _ => Err(invalid_value(field.name, "is required")),
        }
    }

    /// Addresses; empty if there are none.
    pub fn jids(&self, field: &CommandField) -> &[Jid] {
        match self.find(field) {
            Some(ArgumentValue::Jids(list)) => list,
            _ => &[],
        }
    }

    /// Text, or the value of a choice.
    pub fn text(&self, field: &CommandField) -> Option<&str> {
        match self.find(field) {
            Some(ArgumentValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A secret.
    pub fn secret(&self, field: &CommandField) -> Option<&Secret> {
        match self.find(field) {
            Some(ArgumentValue::Secret(secret)) => Some(secret),
            _ => None,
        }
    }

    /// Lines; empty if there are none.
    pub fn lines(&self, field: &CommandField) -> &[String] {
        match self.find(field) {
            Some(ArgumentValue::Lines(lines)) => lines,
            _ => &[],
        }
    }

    /// A number; zero if there is none.
    pub fn int(&self, field: &CommandField) -> i64 {
        match self.find(field) {
            Some(ArgumentValue::Int(n)) => *n,
            _ => 0,
        }
    }

    /// A count; zero if there is no value.
    pub fn count(&self, field: &CommandField) -> u32 {
        match self.find(field) {
            Some(ArgumentValue::Count(n)) => *n,
            _ => 0,
        }
    }

    /// A switch; off if there is no value.
    pub fn bool(&self, field: &CommandField) -> bool {
        matches!(self.find(field), Some(ArgumentValue::Bool(true)))
    }

    /// All addresses in the input.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &Jid> {
        self.0.iter().flat_map(|(_, value)| match value {
            ArgumentValue::Jid(jid) => std::slice::from_ref(jid),
            ArgumentValue::Jids(list) => list.as_slice(),
            _ => &[],
        })
    }

    /// The addresses for the audit line: the first few and the number of the others.
    pub(super) fn subjects(&self) -> String {
        let all: Vec<&str> = self.addresses().map(Jid::as_str).collect();
        let mut text = all[..all.len().min(MAX_AUDITED_JIDS)].join(" ");
        if all.len() > MAX_AUDITED_JIDS {
            text.push_str(&format!(" and {} more", all.len() - MAX_AUDITED_JIDS));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: CommandField =
        CommandField::new("user", "accountjid", "User", CommandFieldKind::Jid).required();
    const USERS: CommandField = CommandField::new("users", "accountjids", "Users", CommandFieldKind::Jids);
    const SECRET: CommandField =
        CommandField::new("password", "password", "Password", CommandFieldKind::Secret);
    const MOST: CommandField =
        CommandField::new("most", "max_items", "Most", CommandFieldKind::Count(1000, &[25])).default("100");
    const DELAY: CommandField =
        CommandField::new("delay", "delay", "Delay", CommandFieldKind::Int(0, 300, &[])).stage(1);
    const TEXT: CommandField = CommandField::new("text", "motd", "Text", CommandFieldKind::Lines).stage(1);
    const ON: CommandField = CommandField::new("on", "on", "On", CommandFieldKind::Bool).stage(1);
    const KIND: CommandField =
        CommandField::new("kind", "kind", "Kind", CommandFieldKind::Choice(&[("a", "A"), ("b", "B")]));
    static COMMAND: Command = Command {
        name: "test",
        input: &[USER, USERS, SECRET, MOST, KIND, DELAY, TEXT, ON],
        ..Command::EMPTY
    };

    fn given(pairs: &[(&str, &str)]) -> RawArguments {
        let mut given = RawArguments::default();
        for (key, value) in pairs {
            given.add(key, (*value).to_owned());
        }
        given
    }

    fn refused(pairs: &[(&str, &str)]) -> String {
        COMMAND.parse_input(&given(pairs), FieldNaming::Name).expect_err("an error").text.into_owned()
    }

    #[test]
    fn values_are_read_by_either_name() {
        let pairs = [("user", "Juliet@Example.com"), ("users", "a@x"), ("users", "A@x"), ("most", "none")];
        let input = COMMAND.parse_input(&given(&pairs), FieldNaming::Name).unwrap();
        assert_eq!(input.jid(&USER).unwrap().as_str(), "juliet@example.com");
        assert_eq!(input.jids(&USERS).len(), 1, "addresses are normalised and there once");
        assert_eq!((input.count(&MOST), input.int(&DELAY), input.bool(&ON)), (1000, 0, false));
        assert_eq!(input.subjects(), "juliet@example.com a@x");
        let pairs = [("accountjid", "a@b"), ("delay", "300"), ("on", "1"), ("motd", "x\ny"), ("motd", "")];
        let input = COMMAND.parse_input(&given(&pairs), FieldNaming::Var).unwrap();
        assert_eq!((input.count(&MOST), input.int(&DELAY), input.bool(&ON)), (100, 300, true));
        assert_eq!(input.lines(&TEXT), ["x", "y", ""]);
    }

    #[test]
    fn errors_are_one_sentence_and_contain_no_secret() {
        assert_eq!(refused(&[]), "the field \"user\" is required");
        assert_eq!(refused(&[("user", "")]), "the field \"user\" is required");
        assert!(refused(&[("user", "a b@c")]).contains("must be an address"));
        assert_eq!(refused(&[("user", "a@b"), ("user", "c@d")]), "the field \"user\" accepts only one value");
        assert!(refused(&[("user", "a@b"), ("delay", "301")]).contains("from 0 to 300"));
        assert!(refused(&[("user", "a@b"), ("most", "0")]).contains("from 1 to 1000 or none"));
        assert!(refused(&[("user", "a@b"), ("on", "yes")]).contains("true or false"));
        assert!(refused(&[("user", "a@b"), ("kind", "c")]).contains("one of: a, b"));
        assert!(refused(&[("usr", "a@b")]).contains("its fields: user, users"));
        let long = "s3cr3t".repeat(600);
        let text = refused(&[("user", "a@b"), ("password", &long)]);
        assert!(text.contains("more than") && !text.contains("s3cr3t"), "{text}");
        let debug = format!("{:?}", given(&[("password", "s3cr3t")]));
        assert!(!debug.contains("s3cr3t"), "{debug}");
    }

    #[test]
    fn a_flood_of_addresses_or_lines_is_refused() {
        let many: Vec<String> = (0..1001).map(|n| format!("u{n}@x")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|j| ("users", j.as_str())).collect();
        assert!(refused(&[&[("user", "a@b")], many.as_slice()].concat()).contains("at most 1000"));
        let line = "x".repeat(3_000);
        let lines = vec![("text", line.as_str()); 11];
        assert!(refused(&[&[("user", "a@b")], lines.as_slice()].concat()).contains("32768 bytes"));
    }

    #[test]
    fn each_stage_is_parsed_separately() {
        assert_eq!(COMMAND.stages(), 2);
        assert!(COMMAND.parse_stage(&given(&[("delay", "3")]), FieldNaming::Var, 1).is_ok());
        assert!(COMMAND.parse_stage(&given(&[("delay", "3")]), FieldNaming::Var, 0).is_err());
    }
}
