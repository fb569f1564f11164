//! Options of features: keys in their tables of the configuration.

use std::collections::BTreeMap;

/// The type of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// `true` or `false`
    Bool,
    /// A whole number in a range.
    Int(i64, i64),
    /// Text.
    Text,
    /// A list of texts.
    Texts,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A switch.
    Bool(bool),
    /// A number.
    Int(i64),
    /// Text.
    Text(std::borrow::Cow<'static, str>),
    /// A list of texts.
    Texts(Vec<String>),
}

/// An option of a feature: a key in its table of the configuration.
#[derive(Clone, Debug)]
pub struct OptionSpec {
    /// The key.
    pub key: &'static str,
    /// The type.
    pub kind: OptionKind,
    /// The default.
    pub default: OptionValue,
    /// One sentence, with the unit.
    pub doc: &'static str,
}

/// The options of one feature, complete and of the declared types.
#[derive(Clone, Debug, Default)]
pub struct FeatureOptions(BTreeMap<&'static str, OptionValue>);

impl FeatureOptions {
    /// All defaults.
    pub fn defaults(specs: &'static [OptionSpec]) -> FeatureOptions {
        FeatureOptions(specs.iter().map(|s| (s.key, s.default.clone())).collect())
    }

    /// Sets one option.
    ///
    /// # Errors
    /// One sentence that states the error and the expected value.
    pub fn set(&mut self, specs: &'static [OptionSpec], key: &str, value: OptionValue) -> Result<(), String> {
        let Some(spec) = specs.iter().find(|s| s.key == key) else {
            return Err(format!("unknown option \"{key}\""));
        };
        match (&spec.kind, &value) {
            (OptionKind::Bool, OptionValue::Bool(_))
            | (OptionKind::Text, OptionValue::Text(_))
            | (OptionKind::Texts, OptionValue::Texts(_)) => {}
            (OptionKind::Int(low, high), OptionValue::Int(n)) if low <= n && n <= high => {}
            (OptionKind::Int(low, high), OptionValue::Int(_)) => {
                return Err(format!("\"{key}\" must be between {low} and {high}"));
            }
            (OptionKind::Bool, _) => return Err(format!("\"{key}\" must be true or false")),
            (OptionKind::Int(..), _) => return Err(format!("\"{key}\" must be an integer")),
            (OptionKind::Text, _) => return Err(format!("\"{key}\" must be a string in quotes")),
            (OptionKind::Texts, _) => return Err(format!("\"{key}\" must be a list of strings in quotes")),
        }
        self.0.insert(spec.key, value);
        Ok(())
    }

    /// A switch; false if it is not declared.
    pub fn bool(&self, key: &str) -> bool {
        matches!(self.0.get(key), Some(OptionValue::Bool(true)))
    }

    /// A number; zero if it is not declared.
    pub fn int(&self, key: &str) -> i64 {
        match self.0.get(key) {
            Some(OptionValue::Int(n)) => *n,
            _ => 0,
        }
    }

    /// A list of texts; empty if it is not declared.
    pub fn texts(&self, key: &str) -> &[String] {
        match self.0.get(key) {
            Some(OptionValue::Texts(list)) => list,
            _ => &[],
        }
    }

    /// Text; empty if it is not declared.
    pub fn text(&self, key: &str) -> &str {
        match self.0.get(key) {
            Some(OptionValue::Text(t)) => t,
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &[OptionSpec] = &[
        OptionSpec { key: "on", kind: OptionKind::Bool, default: OptionValue::Bool(true), doc: "" },
        OptionSpec { key: "size", kind: OptionKind::Int(1, 9), default: OptionValue::Int(5), doc: "" },
    ];

    #[test]
    fn an_option_has_its_default_until_it_is_set_to_a_value_of_its_type_and_range() {
        let mut options = FeatureOptions::defaults(OPTIONS);
        assert!(options.bool("on") && options.int("size") == 5);
        assert_eq!(options.set(OPTIONS, "size", OptionValue::Int(9)), Ok(()));
        for (key, value, error) in [
            ("size", OptionValue::Int(10), "\"size\" must be between 1 and 9"),
            ("size", OptionValue::Bool(true), "\"size\" must be an integer"),
            ("on", OptionValue::Int(1), "\"on\" must be true or false"),
            ("of", OptionValue::Bool(true), "unknown option \"of\""),
        ] {
            assert_eq!(options.set(OPTIONS, key, value), Err(error.to_owned()));
        }
        assert_eq!((options.int("size"), options.int("none"), options.text("none")), (9, 0, ""));
    }
}
