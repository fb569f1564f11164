//! Search filters: the text of RFC 4515 and the encoding of RFC 4511, section 4.5.1.7.
//!
//! A [`FilterTemplate`] is a filter with `{user}`, `{domain}` and `{address}` in its values. It is parsed once, at the start;
//! what is inserted later is a value and can never become a part of the filter.

use crate::ber;

/// Deepest nesting, for the recursion of the parser.
const MAX_DEPTH: usize = 16;

/// A filter. A value is bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Filter {
    /// `(&…)`
    And(Vec<Filter>),
    /// `(|…)`
    Or(Vec<Filter>),
    /// `(!…)`
    Not(Box<Filter>),
    /// `(attribute=value)`
    Equal(String, Vec<u8>),
    /// `(attribute=initial*any*final)`; empty parts are absent, except that between `*` and `*` there is always a value.
    Substrings(String, Vec<u8>, Vec<Vec<u8>>, Vec<u8>),
    /// `(attribute>=value)`
    GreaterOrEqual(String, Vec<u8>),
    /// `(attribute<=value)`
    LessOrEqual(String, Vec<u8>),
    /// `(attribute=*)`
    Present(String),
    /// `(attribute~=value)`
    Approximate(String, Vec<u8>),
    /// `(attribute:dn:rule:=value)`, such as the groups in groups and the bits of Active Directory.
    Extensible(MatchingRule, Vec<u8>),
}

/// Left side of an extensible match (RFC 4511, section 4.5.1.7.7). It has an attribute or a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MatchingRule {
    /// Attribute; all that the rule is for if there is none.
    pub attribute: Option<String>,
    /// Matching rule; that of the attribute for equality if there is none.
    pub rule: Option<String>,
    /// The attributes in the distinguished name count, too.
    pub dn_attributes: bool,
}

/// What is inserted into a template.
#[derive(Clone, Copy, Debug)]
pub struct FilterValues<'a> {
    /// Local part.
    pub user: &'a str,
    /// Domain.
    pub domain: &'a str,
}

/// A filter with placeholders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterTemplate(Filter);

impl FilterTemplate {
    /// Parses a filter.
    ///
    /// # Errors
    /// One sentence, if it is malformed or has no `{user}` or `{address}`: it would find the same entry for everybody.
    pub fn parse(text: &str) -> Result<FilterTemplate, String> {
        let filter = Filter::parse(text)?;
        if !filter.values().any(|value| contains(value, b"{user}") || contains(value, b"{address}")) {
            return Err(format!("the filter {text} has no {{user}}; write one such as (uid={{user}})"));
        }
        Ok(FilterTemplate(filter))
    }

    /// The attributes that are compared with the whole name or address of an account.
    pub fn name_attributes(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.0.collect_name_attributes(&mut names);
        names
    }

    /// The filter for an account.
    pub fn fill(&self, values: FilterValues<'_>) -> Filter {
        self.0.map(&|value| {
            let address = format!("{}@{}", values.user, values.domain);
            let mut out = Vec::with_capacity(value.len() + address.len());
            let mut rest = value;
            while let Some((byte, after)) = rest.split_first() {
                let known = [
                    (&b"{user}"[..], values.user),
                    (&b"{domain}"[..], values.domain),
                    (&b"{address}"[..], address.as_str()),
                ];
                let found = known.iter().find_map(|(name, text)| Some((rest.strip_prefix(*name)?, *text)));
                match found {
                    Some((after, text)) => {
                        out.extend_from_slice(text.as_bytes());
                        rest = after;
                    }
                    None => {
                        out.push(*byte);
                        rest = after;
                    }
                }
            }
            out
        })
    }
}

fn contains(value: &[u8], part: &[u8]) -> bool {
    value.windows(part.len()).any(|window| window == part)
}

impl Filter {
    /// Parses the text of a filter.
    ///
    /// # Errors
    /// One sentence, if it is malformed.
    pub fn parse(text: &str) -> Result<Filter, String> {
        let wrong = || format!("the LDAP filter {text} is not valid; write one such as (uid={{user}})");
        let (filter, rest) = parse(text.trim(), MAX_DEPTH).ok_or_else(wrong)?;
        if rest.is_empty() { Ok(filter) } else { Err(wrong()) }
    }

    /// Appends the encoding.
    pub fn write(&self, out: &mut Vec<u8>) {
        let pair = |out: &mut Vec<u8>, tag: u8, attribute: &str, value: &[u8]| {
            ber::write_constructed(out, tag, |out| {
                ber::write(out, ber::OCTET_STRING, attribute.as_bytes());
                ber::write(out, ber::OCTET_STRING, value);
            });
        };
        match self {
            Filter::And(all) => {
                ber::write_constructed(out, 0xa0, |out| all.iter().for_each(|one| one.write(out)))
            }
            Filter::Or(all) => {
                ber::write_constructed(out, 0xa1, |out| all.iter().for_each(|one| one.write(out)))
            }
            Filter::Not(one) => ber::write_constructed(out, 0xa2, |out| one.write(out)),
            Filter::Equal(attribute, value) => pair(out, 0xa3, attribute, value),
            Filter::Substrings(attribute, first, any, last) => ber::write_constructed(out, 0xa4, |out| {
                ber::write(out, ber::OCTET_STRING, attribute.as_bytes());
                ber::write_constructed(out, ber::SEQUENCE, |out| {
                    if !first.is_empty() {
                        ber::write(out, 0x80, first);
                    }
                    any.iter().for_each(|part| ber::write(out, 0x81, part));
                    if !last.is_empty() {
                        ber::write(out, 0x82, last);
                    }
                });
            }),
            Filter::GreaterOrEqual(attribute, value) => pair(out, 0xa5, attribute, value),
            Filter::LessOrEqual(attribute, value) => pair(out, 0xa6, attribute, value),
            Filter::Present(attribute) => ber::write(out, 0x87, attribute.as_bytes()),
            Filter::Approximate(attribute, value) => pair(out, 0xa8, attribute, value),
            Filter::Extensible(matching, value) => ber::write_constructed(out, 0xa9, |out| {
                if let Some(rule) = &matching.rule {
                    ber::write(out, 0x81, rule.as_bytes());
                }
                if let Some(attribute) = &matching.attribute {
                    ber::write(out, 0x82, attribute.as_bytes());
                }
                ber::write(out, 0x83, value);
                // Not encoded where it is the default (section 5.1).
                if matching.dn_attributes {
                    ber::write(out, 0x84, &[0xff]);
                }
            }),
        }
    }

    /// The filter with other values.
    fn map(&self, change: &impl Fn(&[u8]) -> Vec<u8>) -> Filter {
        let all = |all: &[Filter]| all.iter().map(|one| one.map(change)).collect();
        match self {
            Filter::And(filters) => Filter::And(all(filters)),
            Filter::Or(filters) => Filter::Or(all(filters)),
            Filter::Not(one) => Filter::Not(Box::new(one.map(change))),
            Filter::Equal(attribute, value) => Filter::Equal(attribute.clone(), change(value)),
            Filter::Substrings(attribute, first, any, last) => Filter::Substrings(
                attribute.clone(),
                change(first),
                any.iter().map(|part| change(part)).collect(),
                change(last),
            ),
            Filter::GreaterOrEqual(attribute, value) => {
                Filter::GreaterOrEqual(attribute.clone(), change(value))
            }
            Filter::LessOrEqual(attribute, value) => Filter::LessOrEqual(attribute.clone(), change(value)),
            Filter::Present(attribute) => Filter::Present(attribute.clone()),
            Filter::Approximate(attribute, value) => Filter::Approximate(attribute.clone(), change(value)),
            Filter::Extensible(matching, value) => Filter::Extensible(matching.clone(), change(value)),
        }
    }

    /// Adds the attributes that must equal `{user}` or `{address}`, each once.
    fn collect_name_attributes(&self, names: &mut Vec<String>) {
        match self {
            Filter::And(all) | Filter::Or(all) => {
                all.iter().for_each(|one| one.collect_name_attributes(names));
            }
            Filter::Equal(attribute, value) => {
                let is_name = matches!(value.as_slice(), b"{user}" | b"{address}");
                if is_name && !names.iter().any(|name| name.eq_ignore_ascii_case(attribute)) {
                    names.push(attribute.clone());
                }
            }
            _ => {}
        }
    }

    /// All values.
    fn values(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        match self {
            Filter::And(all) | Filter::Or(all) => Box::new(all.iter().flat_map(Filter::values)),
            Filter::Not(one) => one.values(),
            Filter::Equal(_, value)
            | Filter::GreaterOrEqual(_, value)
            | Filter::LessOrEqual(_, value)
            | Filter::Approximate(_, value)
            | Filter::Extensible(_, value) => Box::new(std::iter::once(value.as_slice())),
            Filter::Substrings(_, first, any, last) => {
                Box::new([first, last].into_iter().chain(any).map(Vec::as_slice))
            }
            Filter::Present(_) => Box::new(std::iter::empty()),
        }
    }
}

/// Parses a filter in parentheses; returns what follows it.
fn parse(text: &str, depth: usize) -> Option<(Filter, &str)> {
    let depth = depth.checked_sub(1)?;
    let inner = text.strip_prefix('(')?;
    let list = |mut rest: &str| -> Option<(Vec<Filter>, usize)> {
        let before = rest.len();
        let mut all = Vec::new();
        while rest.starts_with('(') {
            let (one, after) = parse(rest, depth)?;
            all.push(one);
            rest = after;
        }
        Some((all, before - rest.len()))
    };
    let (filter, rest) = if let Some(rest) = inner.strip_prefix('&') {
        let (all, used) = list(rest)?;
        (Filter::And(all), rest.get(used..)?)
    } else if let Some(rest) = inner.strip_prefix('|') {
        let (all, used) = list(rest)?;
        (Filter::Or(all), rest.get(used..)?)
    } else if let Some(rest) = inner.strip_prefix('!') {
        let (one, rest) = parse(rest, depth)?;
        (Filter::Not(Box::new(one)), rest)
    } else {
        let end = inner.find(')')?;
        (parse_item(&inner[..end])?, &inner[end..])
    };
    Some((filter, rest.strip_prefix(')')?))
}

fn parse_item(item: &str) -> Option<Filter> {
    let (left, value) = item.split_once('=')?;
    let (attribute, operator) = match left.char_indices().last()? {
        (at, ':') => return Some(Filter::Extensible(parse_matching_rule(&left[..at])?, unescape(value)?)),
        (at, operator @ ('>' | '<' | '~')) => (&left[..at], Some(operator)),
        _ => (left, None),
    };
    if !is_description(attribute) {
        return None;
    }
    let attribute = attribute.to_owned();
    match (operator, value) {
        (Some('>'), value) => Some(Filter::GreaterOrEqual(attribute, unescape(value)?)),
        (Some('<'), value) => Some(Filter::LessOrEqual(attribute, unescape(value)?)),
        (Some(_), value) => Some(Filter::Approximate(attribute, unescape(value)?)),
        (None, "*") => Some(Filter::Present(attribute)),
        (None, value) if value.contains('*') => {
            let mut parts = value.split('*').map(unescape).collect::<Option<Vec<_>>>()?;
            let last = parts.pop()?;
            let first = parts.drain(..1).next()?;
            if parts.iter().any(Vec::is_empty) {
                return None;
            }
            Some(Filter::Substrings(attribute, first, parts, last))
        }
        (None, value) => Some(Filter::Equal(attribute, unescape(value)?)),
    }
}

/// Whether it is the name or number of an attribute or a matching rule, with its options.
fn is_description(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ';'))
}

/// `attribute[:dn][:rule]` or `[:dn]:rule` (RFC 4515, section 3), without the `:` of the operator.
fn parse_matching_rule(text: &str) -> Option<MatchingRule> {
    let mut parts = text.split(':').peekable();
    let attribute = parts.next().filter(|attribute| !attribute.is_empty()).map(str::to_owned);
    let dn_attributes = parts.next_if(|part| part.eq_ignore_ascii_case("dn")).is_some();
    let rule = parts.next().map(str::to_owned);
    let valid = parts.next().is_none()
        && (attribute.is_some() || rule.is_some())
        && attribute.iter().chain(&rule).all(|name| is_description(name));
    valid.then_some(MatchingRule { attribute, rule, dn_attributes })
}

/// A value: `\` and two hexadecimal digits are a byte (RFC 4515, section 3).
fn unescape(value: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(value.len());
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                let digit =
                    |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                out.push(digit(bytes.next()?)? << 4 | digit(bytes.next()?)?);
            }
            b'*' | b'(' | b')' | 0 => return None,
            byte => out.push(byte),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn equal(attribute: &str, value: &[u8]) -> Filter {
        Filter::Equal(attribute.to_owned(), value.to_vec())
    }

    #[test]
    fn attributes_that_equal_the_name_are_known() {
        let names = |text: &str| FilterTemplate::parse(text).unwrap().name_attributes();
        assert_eq!(
            names("(&(objectClass=person)(|(uid={user})(mail={address})(UID={user})))"),
            ["uid", "mail"]
        );
        for other in ["(mail={user}@*)", "(uid=x{user})", "(!(uid={user}))", "(uid:caseExactMatch:={user})"] {
            assert!(names(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn rfc_4515_section_4_the_examples_are_parsed() {
        assert_eq!(Filter::parse("(cn=Babs Jensen)"), Ok(equal("cn", b"Babs Jensen")));
        let not = Filter::Not(Box::new(equal("cn", b"Tim Howes")));
        assert_eq!(Filter::parse("(!(cn=Tim Howes))"), Ok(not));
        let babs = Filter::Substrings("cn".into(), b"Babs J".to_vec(), vec![], vec![]);
        let both = Filter::And(vec![
            equal("objectClass", b"Person"),
            Filter::Or(vec![equal("sn", b"Jensen"), babs]),
        ]);
        assert_eq!(Filter::parse("(&(objectClass=Person)(|(sn=Jensen)(cn=Babs J*)))"), Ok(both));
        let parts = vec![b"of".to_vec()];
        let university = Filter::Substrings("o".into(), b"univ".to_vec(), parts, b"mich".to_vec());
        assert_eq!(Filter::parse("(o=univ*of*mich)"), Ok(university.clone()));
        let Filter::Substrings(_, first, ..) = university else { panic!() };
        assert_eq!(first, b"univ");
        assert_eq!(Filter::parse("(seeAlso=)"), Ok(equal("seeAlso", b"")));
        assert_eq!(
            Filter::parse("(o=Parens R Us \\28for all your parenthetical needs\\29)"),
            Ok(equal("o", b"Parens R Us (for all your parenthetical needs)"))
        );
        let star = Filter::Substrings("cn".into(), vec![], vec![b"*".to_vec()], vec![]);
        assert_eq!(Filter::parse("(cn=*\\2A*)"), Ok(star));
        assert_eq!(Filter::parse("(bin=\\00\\00\\00\\04)"), Ok(equal("bin", &[0, 0, 0, 4])));
        assert_eq!(
            Filter::parse("(sn=Lu\\c4\\8di\\c4\\87)"),
            Ok(equal("sn", "Lu\u{10d}i\u{107}".as_bytes()))
        );
        assert_eq!(
            Filter::parse("(1.3.6.1.4.1.1466.0=\\04\\02\\48\\69)"),
            Ok(equal("1.3.6.1.4.1.1466.0", b"\x04\x02Hi"))
        );
        assert_eq!(Filter::parse("(mail=*)"), Ok(Filter::Present("mail".into())));
        assert_eq!(Filter::parse("(age>=18)"), Ok(Filter::GreaterOrEqual("age".into(), b"18".to_vec())));
    }

    #[test]
    fn rfc_4515_section_4_the_extensible_examples_are_parsed() {
        for (text, attribute, dn_attributes, rule, value) in [
            (
                "(cn:caseExactMatch:=Fred Flintstone)",
                Some("cn"),
                false,
                Some("caseExactMatch"),
                "Fred Flintstone",
            ),
            ("(cn:=Betty Rubble)", Some("cn"), false, None, "Betty Rubble"),
            ("(sn:dn:2.4.6.8.10:=Barney Rubble)", Some("sn"), true, Some("2.4.6.8.10"), "Barney Rubble"),
            ("(o:dn:=Ace Industry)", Some("o"), true, None, "Ace Industry"),
            ("(:1.2.3:=Wilma Flintstone)", None, false, Some("1.2.3"), "Wilma Flintstone"),
            ("(:DN:2.4.6.8.10:=Dino)", None, true, Some("2.4.6.8.10"), "Dino"),
        ] {
            let owned = |text: Option<&str>| text.map(str::to_owned);
            let matching = MatchingRule { attribute: owned(attribute), rule: owned(rule), dn_attributes };
            assert_eq!(Filter::parse(text), Ok(Filter::Extensible(matching, value.into())), "{text}");
        }
    }

    #[test]
    fn malformed_filters_are_refused() {
        let deep = format!("{}(a=b){}", "(!".repeat(MAX_DEPTH), ")".repeat(MAX_DEPTH));
        for wrong in [
            "",
            "uid={user}",
            "(uid)",
            "(uid={user}",
            "(uid={user}))",
            "(=x)",
            "(u d=x)",
            "(uid=x\\2)",
            "(uid=\\zz)",
            "(uid=a(b)",
            "(a=b**c)",
            "(:=x)",
            "(:dn:=x)",
            "(uid::=x)",
            "(uid:dn:rule:more:=x)",
            "(u d:=x)",
            "(uid:=a(b)",
            "(&(a=b)x)",
            deep.as_str(),
        ] {
            assert!(Filter::parse(wrong).is_err(), "{wrong}");
        }
        assert!(FilterTemplate::parse("(uid=romeo)").unwrap_err().contains("{user}"));
        assert!(FilterTemplate::parse("(objectClass=*)").is_err());
    }

    #[test]
    fn inserted_values_stay_values() {
        let template =
            FilterTemplate::parse("(&(uid={user})(mail={address})(o=x {domain}*)(cn:dn:=u {user}))").unwrap();
        for user in ["romeo", "*", "romeo)(uid=*", "\\2a", "{domain}", "{user}", "r\u{f6}meo"] {
            let filled = template.fill(FilterValues { user, domain: "example.net" });
            let expected = Filter::And(vec![
                equal("uid", user.as_bytes()),
                equal("mail", format!("{user}@example.net").as_bytes()),
                Filter::Substrings("o".into(), b"x example.net".to_vec(), vec![], vec![]),
                Filter::Extensible(
                    MatchingRule { attribute: Some("cn".into()), rule: None, dn_attributes: true },
                    format!("u {user}").into_bytes(),
                ),
            ]);
            assert_eq!(filled, expected);
        }
    }

    #[test]
    fn filters_are_encoded_as_the_protocol_has_them() {
        let encoded = |text: &str| {
            let mut out = Vec::new();
            Filter::parse(text).unwrap().write(&mut out);
            out
        };
        assert_eq!(encoded("(uid=jo)"), b"\xa3\x09\x04\x03uid\x04\x02jo");
        assert_eq!(encoded("(mail=*)"), b"\x87\x04mail");
        assert_eq!(encoded("(!(a=b))"), b"\xa2\x08\xa3\x06\x04\x01a\x04\x01b");
        assert_eq!(encoded("(&(a=b)(c=*))"), b"\xa0\x0b\xa3\x06\x04\x01a\x04\x01b\x87\x01c");
        assert_eq!(encoded("(a:dn:1.2:=b)"), b"\xa9\x0e\x81\x031.2\x82\x01a\x83\x01b\x84\x01\xff");
        assert_eq!(encoded("(a:=b)"), b"\xa9\x06\x82\x01a\x83\x01b");
        assert_eq!(encoded("(a=b*c*d)"), b"\xa4\x0e\x04\x01a\x30\x09\x80\x01b\x81\x01c\x82\x01d");
    }

    proptest! {
        #[test]
        fn random_filters_never_panic(text in "[(&|!)a-c=*<>~:\\\\0-2{}]{0,40}") {
            if let Ok(filter) = Filter::parse(&text) {
                filter.write(&mut Vec::new());
            }
        }
    }
}
