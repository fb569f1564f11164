//! What a command is given: read and checked once, the same for every door.

use std::collections::BTreeSet;

use base::Secret;
use jid::Jid;

use super::{Command, CommandError, Field, FieldKind, Why};

/// Addresses in one field.
const JIDS: usize = 1_000;
/// Bytes of one line; a password may not be longer either (RFC 8265 leaves that to the server).
const LINE_BYTES: usize = 3_071;
/// Bytes of all lines of one field: they have to fit a setting of the store beside what else stands there.
const LINES_BYTES: usize = 32_768;
/// Addresses that the audit line names.
const NAMED: usize = 10;

/// Which name a door calls fields by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// [`Field::name`]
    Name,
    /// [`Field::var`]
    Var,
}

/// Values as they came in.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Given(pub Vec<(String, Vec<String>)>);

impl Given {
    /// Adds a value to those of a field.
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

impl std::fmt::Debug for Given {
    /// Names only: a value may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(key, _)| key)).finish()
    }
}

#[derive(Clone, Debug)]
enum Value {
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
pub struct Input(Vec<(&'static str, Value)>);

impl Command {
    /// Reads and checks values of all fields.
    ///
    /// # Errors
    /// [`Why::Invalid`] with the field's name, never with the value of a secret one.
    pub fn read(&self, given: &Given, key: Key) -> Result<Input, CommandError> {
        self.read_fields(given, key, |_| true)
    }

    /// The same for the fields of one stage; the others may be there and are not looked at.
    ///
    /// # Errors
    /// As [`Command::read`].
    pub fn read_stage(&self, given: &Given, key: Key, stage: u8) -> Result<Input, CommandError> {
        self.read_fields(given, key, |field| field.stage == stage)
    }

    fn read_fields(
        &self,
        given: &Given,
        key: Key,
        wanted: impl Fn(&Field) -> bool,
    ) -> Result<Input, CommandError> {
        let name = |field: &Field| if key == Key::Name { field.name } else { field.var };
        if key == Key::Name
            && let Some((unknown, _)) = given.0.iter().find(|(k, _)| !self.input.iter().any(|f| f.name == k))
        {
            // People mistype; forms of clients may carry what nobody asked for.
            let names: Vec<&str> = self.input.iter().map(|f| f.name).collect();
            let known = if names.is_empty() { "there are none".to_owned() } else { names.join(", ") };
            let unknown: String = unknown.chars().take(64).collect();
            return Err(CommandError::new(
                Why::Invalid,
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
                .filter(|t| !t.is_empty() || matches!(field.kind, FieldKind::Lines))
                .collect();
            let empty = full.iter().all(|t| t.is_empty());
            let value = match (empty, field.default) {
                (false, _) => read(field, &full).map_err(|what| wrong(shown, &what))?,
                (true, "") if field.required => return Err(wrong(shown, "must be filled in")),
                (true, "") => continue,
                (true, default) => read(field, &[default]).map_err(|what| wrong(shown, &what))?,
            };
            values.push((field.name, value));
        }
        Ok(Input(values))
    }
}

fn wrong(field: &str, what: &str) -> CommandError {
    CommandError::new(Why::Invalid, format!("the field \"{field}\" {what}"))
}

/// Reads the values of one field, of which there is at least one.
fn read(field: &Field, texts: &[&str]) -> Result<Value, String> {
    if !field.kind.is_multi() && texts.len() > 1 {
        return Err("takes one value only".to_owned());
    }
    if texts.iter().any(|t| t.len() > LINE_BYTES) {
        return Err(format!("has a line of more than {LINE_BYTES} bytes"));
    }
    let one = texts.first().copied().unwrap_or_default();
    let address =
        |text: &str| Jid::parse(text).map_err(|_| "must be an address such as user@example.org".to_owned());
    Ok(match field.kind {
        FieldKind::Jid => Value::Jid(address(one)?),
        FieldKind::Jids => {
            if texts.len() > JIDS {
                return Err(format!("takes at most {JIDS} addresses"));
            }
            let mut seen = BTreeSet::new();
            let mut list = Vec::with_capacity(texts.len());
            for text in texts {
                let jid = address(text)?;
                if seen.insert(jid.clone()) {
                    list.push(jid);
                }
            }
            Value::Jids(list)
        }
        FieldKind::Text => Value::Text(one.to_owned()),
        FieldKind::Secret => Value::Secret(Secret::new(one)),
        FieldKind::Lines => {
            let lines: Vec<String> = texts.iter().flat_map(|t| t.split('\n')).map(str::to_owned).collect();
            if lines.iter().map(|l| l.len() + 1).sum::<usize>() > LINES_BYTES {
                return Err(format!("has more than {LINES_BYTES} bytes"));
            }
            Value::Lines(lines)
        }
        FieldKind::Int(low, high, _) => match one.parse() {
            Ok(n) if low <= n && n <= high => Value::Int(n),
            _ => return Err(format!("must be a number from {low} to {high}")),
        },
        FieldKind::Count(most, _) => match (one, one.parse()) {
            ("none", _) => Value::Count(most),
            (_, Ok(n)) if 1 <= n && n <= most => Value::Count(n),
            _ => return Err(format!("must be a number from 1 to {most}, or none")),
        },
        FieldKind::Bool => match one {
            "1" | "true" => Value::Bool(true),
            "0" | "false" => Value::Bool(false),
            _ => return Err("must be true or false".to_owned()),
        },
        FieldKind::Choice(list) => match list.iter().find(|(value, _)| *value == one) {
            Some((value, _)) => Value::Text((*value).to_owned()),
            None => return Err(format!("must be one of: {}", field.kind.describe())),
        },
        FieldKind::Table(_) => return Err("is only for answers".to_owned()),
    })
}

impl Input {
    fn find(&self, field: &Field) -> Option<&Value> {
        self.0.iter().find(|(name, _)| *name == field.name).map(|(_, value)| value)
    }
    /// An address.
    ///
    /// # Errors
    /// When there is none: `invalid`, as for a required field that is missing.
    pub fn jid(&self, field: &Field) -> Result<&Jid, CommandError> {
        match self.find(field) {
            Some(Value::Jid(jid)) => Ok(jid),
            _ => Err(wrong(field.name, "must be filled in")),
        }
    }
    /// Addresses; none if there are none.
    pub fn jids(&self, field: &Field) -> &[Jid] {
        match self.find(field) {
            Some(Value::Jids(list)) => list,
            _ => &[],
        }
    }
    /// Text, or the value of a choice.
    pub fn text(&self, field: &Field) -> Option<&str> {
        match self.find(field) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }
    /// A secret.
    pub fn secret(&self, field: &Field) -> Option<&Secret> {
        match self.find(field) {
            Some(Value::Secret(secret)) => Some(secret),
            _ => None,
        }
    }
    /// Lines; none if there are none.
    pub fn lines(&self, field: &Field) -> &[String] {
        match self.find(field) {
            Some(Value::Lines(lines)) => lines,
            _ => &[],
        }
    }
    /// A number; zero if there is none.
    pub fn int(&self, field: &Field) -> i64 {
        match self.find(field) {
            Some(Value::Int(n)) => *n,
            _ => 0,
        }
    }
    /// How many; zero if there is no value.
    pub fn count(&self, field: &Field) -> u32 {
        match self.find(field) {
            Some(Value::Count(n)) => *n,
            _ => 0,
        }
    }
    /// A switch; off if there is no value.
    pub fn bool(&self, field: &Field) -> bool {
        matches!(self.find(field), Some(Value::Bool(true)))
    }

    /// All addresses in it.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &Jid> {
        self.0.iter().flat_map(|(_, value)| match value {
            Value::Jid(jid) => std::slice::from_ref(jid),
            Value::Jids(list) => list.as_slice(),
            _ => &[],
        })
    }

    /// The addresses in it, for the audit line: the first few and how many more.
    pub(super) fn subjects(&self) -> String {
        let all: Vec<&str> = self.addresses().map(Jid::as_str).collect();
        let mut text = all[..all.len().min(NAMED)].join(" ");
        if all.len() > NAMED {
            text.push_str(&format!(" and {} more", all.len() - NAMED));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Field = Field::new("user", "accountjid", "User", FieldKind::Jid).required();
    const USERS: Field = Field::new("users", "accountjids", "Users", FieldKind::Jids);
    const SECRET: Field = Field::new("password", "password", "Password", FieldKind::Secret);
    const MOST: Field = Field::new("most", "max_items", "Most", FieldKind::Count(1000, &[25])).default("100");
    const DELAY: Field = Field::new("delay", "delay", "Delay", FieldKind::Int(0, 300, &[])).stage(1);
    const TEXT: Field = Field::new("text", "motd", "Text", FieldKind::Lines).stage(1);
    const ON: Field = Field::new("on", "on", "On", FieldKind::Bool).stage(1);
    const KIND: Field = Field::new("kind", "kind", "Kind", FieldKind::Choice(&[("a", "A"), ("b", "B")]));
    static COMMAND: Command = Command {
        name: "test",
        input: &[USER, USERS, SECRET, MOST, KIND, DELAY, TEXT, ON],
        ..Command::EMPTY
    };

    fn given(pairs: &[(&str, &str)]) -> Given {
        let mut given = Given::default();
        for (key, value) in pairs {
            given.add(key, (*value).to_owned());
        }
        given
    }
    fn refused(pairs: &[(&str, &str)]) -> String {
        COMMAND.read(&given(pairs), Key::Name).expect_err("a mistake").text.into_owned()
    }

    #[test]
    fn values_are_read_by_either_name() {
        let pairs = [("user", "Juliet@Example.com"), ("users", "a@x"), ("users", "A@x"), ("most", "none")];
        let input = COMMAND.read(&given(&pairs), Key::Name).unwrap();
        assert_eq!(input.jid(&USER).unwrap().as_str(), "juliet@example.com");
        assert_eq!(input.jids(&USERS).len(), 1, "addresses are normalised and there once");
        assert_eq!((input.count(&MOST), input.int(&DELAY), input.bool(&ON)), (1000, 0, false));
        assert_eq!(input.subjects(), "juliet@example.com a@x");
        let pairs = [("accountjid", "a@b"), ("delay", "300"), ("on", "1"), ("motd", "x\ny"), ("motd", "")];
        let input = COMMAND.read(&given(&pairs), Key::Var).unwrap();
        assert_eq!((input.count(&MOST), input.int(&DELAY), input.bool(&ON)), (100, 300, true));
        assert_eq!(input.lines(&TEXT), ["x", "y", ""]);
    }

    #[test]
    fn mistakes_are_one_sentence_and_no_secret() {
        assert_eq!(refused(&[]), "the field \"user\" must be filled in");
        assert_eq!(refused(&[("user", "")]), "the field \"user\" must be filled in");
        assert!(refused(&[("user", "a b@c")]).contains("must be an address"));
        assert_eq!(refused(&[("user", "a@b"), ("user", "c@d")]), "the field \"user\" takes one value only");
        assert!(refused(&[("user", "a@b"), ("delay", "301")]).contains("from 0 to 300"));
        assert!(refused(&[("user", "a@b"), ("most", "0")]).contains("from 1 to 1000, or none"));
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
    fn stages_are_read_one_by_one() {
        assert_eq!(COMMAND.stages(), 2);
        assert!(COMMAND.read_stage(&given(&[("delay", "3")]), Key::Var, 1).is_ok());
        assert!(COMMAND.read_stage(&given(&[("delay", "3")]), Key::Var, 0).is_err());
    }
}
