//! Input and output fields of commands.

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub enum CommandFieldKind {
    /// One address.
    Jid,
    /// Distinct addresses.
    Jids,
    /// One line of text.
    Text,
    /// One line that is never shown, logged or sent back.
    Secret,
    /// Lines of text.
    Lines,
    /// A whole number from the first to the second; the third are suggestions with their labels.
    Int(i64, i64, &'static [(i64, &'static str)]),
    /// A count up to the first number; `none` is no limit. The second are suggestions.
    Count(u32, &'static [u32]),
    /// Yes or no.
    Bool,
    /// One of these: value and label.
    Choice(&'static [(&'static str, &'static str)]),
    /// Rows, only in output.
    Table(&'static [CommandField]),
}

impl CommandFieldKind {
    /// The type in words, for the documentation.
    pub fn describe(&self) -> String {
        match self {
            CommandFieldKind::Jid => "address".to_owned(),
            CommandFieldKind::Jids => "addresses".to_owned(),
            CommandFieldKind::Text => "text".to_owned(),
            CommandFieldKind::Secret => "secret".to_owned(),
            CommandFieldKind::Lines => "lines of text".to_owned(),
            CommandFieldKind::Int(low, high, _) => format!("{low} to {high}"),
            CommandFieldKind::Count(most, _) => format!("1 to {most} or none"),
            CommandFieldKind::Bool => "true or false".to_owned(),
            CommandFieldKind::Choice(list) => {
                list.iter().map(|(value, _)| *value).collect::<Vec<_>>().join(", ")
            }
            CommandFieldKind::Table(_) => "table".to_owned(),
        }
    }

    /// Whether it may have several values.
    pub const fn is_multi(&self) -> bool {
        matches!(self, CommandFieldKind::Jids | CommandFieldKind::Lines)
    }
}

/// A field.
#[derive(Clone, Copy, Debug)]
pub struct CommandField {
    /// Its name on the command line and in JSON.
    pub name: &'static str,
    /// Its name in data forms: `accountjid`.
    pub var: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// Its type.
    pub kind: CommandFieldKind,
    /// Whether it must have a value.
    pub required: bool,
    /// Default value; empty for none.
    pub default: &'static str,
    /// A sentence for people; empty where the label is enough.
    pub doc: &'static str,
    /// The stage at which it is requested, from 0 without gaps.
    pub stage: u8,
}

impl CommandField {
    /// An optional field.
    pub const fn new(
        name: &'static str,
        var: &'static str,
        label: &'static str,
        kind: CommandFieldKind,
    ) -> CommandField {
        CommandField { name, var, label, kind, required: false, default: "", doc: "", stage: 0 }
    }

    /// Makes the field required.
    #[must_use]
    pub const fn required(mut self) -> CommandField {
        self.required = true;
        self
    }

    /// Sets the default value.
    #[must_use]
    pub const fn default(mut self, value: &'static str) -> CommandField {
        self.default = value;
        self
    }

    /// Sets the sentence for people.
    #[must_use]
    pub const fn doc(mut self, doc: &'static str) -> CommandField {
        self.doc = doc;
        self
    }

    /// Sets a later stage.
    #[must_use]
    pub const fn stage(mut self, stage: u8) -> CommandField {
        self.stage = stage;
        self
    }
}
