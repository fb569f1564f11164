//! Tests of data forms: round trips, validation of submissions, and rejection of invalid forms.

use xml::{Limits, NamespaceContext, Tree};

use super::*;
use crate::{ErrorType, StanzaCondition, StanzaError};

fn read(text: &str) -> Result<DataForm, FormError> {
    let scope = NamespaceContext::client();
    let tree = Tree::parse(text.as_bytes(), &scope, &Limits::DEFAULT).unwrap();
    DataForm::read(tree.root())
}

fn written(form: &DataForm) -> String {
    let mut out = Vec::new();
    form.write(&mut Writer::new(&mut out));
    String::from_utf8(out).unwrap()
}

fn submit(fields: &str) -> DataForm {
    read(&format!("<x xmlns='jabber:x:data' type='submit'>{fields}</x>")).unwrap()
}

/// Example 2 of XEP-0004, slightly shortened, with every type.
fn bot() -> DataForm {
    DataForm::typed(FormKind::Form, "jabber:bot")
        .title("Bot Configuration")
        .instructions("Fill out this form to configure your new bot!")
        .field(FormField::fixed("Section 1: Bot Info"))
        .field(FormField::new(FormFieldType::TextSingle, "botname").label("The name of your bot").required())
        .field(FormField::new(FormFieldType::TextMulti, "description").label("Helpful description"))
        .field(FormField::boolean("public", false).label("Public bot?").desc("Seen by all"))
        .field(FormField::new(FormFieldType::TextPrivate, "password"))
        .field(
            FormField::new(FormFieldType::ListMulti, "features")
                .option("Contests", "contests")
                .option("News", "news")
                .value("news"),
        )
        .field(
            FormField::new(FormFieldType::ListSingle, "maxsubs")
                .value("20")
                .option("10", "10")
                .option("20", "20"),
        )
        .field(FormField::new(FormFieldType::JidMulti, "invitelist"))
        .field(FormField::new(FormFieldType::JidSingle, "owner"))
}

#[test]
fn written_forms_are_read_back() {
    let form = bot();
    let text = written(&form);
    assert!(
        text.starts_with(
            "<x xmlns='jabber:x:data' type='form'><title>Bot Configuration</title>\
             <instructions>Fill out this form to configure your new bot!</instructions>\
             <field var='FORM_TYPE' type='hidden'><value>jabber:bot</value></field>\
             <field type='fixed'><value>Section 1: Bot Info</value></field>\
             <field var='botname' type='text-single' label='The name of your bot'><required/></field>"
        ),
        "{text}"
    );
    assert!(text.contains("<option label='Contests'><value>contests</value></option>"), "{text}");
    assert!(text.contains("label='Public bot?'><desc>Seen by all</desc><value>0</value></field>"), "{text}");
    assert_eq!(read(&text).unwrap(), form);
}

#[test]
fn section_3_4_a_table_has_columns_and_rows() {
    let table = DataForm::typed(FormKind::Result, "jabber:iq:search")
        .column(FormFieldType::JidSingle, "jid", "Address")
        .column(FormFieldType::TextSingle, "first", "Given Name")
        .item(vec![FormField::cell("jid", "benvolio@example.com"), FormField::cell("first", "B & B")])
        .item(vec![FormField::cell("jid", "romeo@example.com"), FormField::cell("first", "")]);
    let text = written(&table);
    assert!(
        text.ends_with(
            "<reported><field var='jid' type='jid-single' label='Address'/>\
             <field var='first' type='text-single' label='Given Name'/></reported>\
             <item><field var='jid'><value>benvolio@example.com</value></field>\
             <field var='first'><value>B &amp; B</value></field></item>\
             <item><field var='jid'><value>romeo@example.com</value></field><field var='first'><value/></field></item></x>"
        ),
        "{text}"
    );
    assert_eq!(read(&text).unwrap(), table);
}

#[test]
fn a_submission_is_validated_against_the_form() {
    let sent = submit(
        "<field var='botname'><value>The Jabber Bot</value></field>\
         <field var='description'><value>a</value><value/><value>b</value></field>\
         <field var='public'><value>true</value></field><field var='password'><value/></field>\
         <field var='features'><value>news</value><value>news</value></field>\
         <field var='invitelist'><value>Juliet@Example.ORG</value><value>juliet@example.org</value></field>\
         <field var='unknown' type='boolean'><value>perhaps</value></field>",
    );
    let form = bot().validate(&sent).unwrap();
    assert_eq!(form.form_type(), Some("jabber:bot"), "an absent type means the form that was shown");
    assert_eq!(form.value("botname"), Some("The Jabber Bot"));
    assert_eq!(form.text("description"), "a\n\nb");
    assert_eq!(form.bool("public"), Some(true));
    assert_eq!(form.value("public"), Some("1"));
    assert_eq!(form.values("password"), &[] as &[String], "an empty value is no value");
    assert!(form.get("password").is_some(), "but the field was submitted");
    assert_eq!(form.values("features"), ["news"]);
    assert_eq!(form.values("invitelist"), ["juliet@example.org"]);
    assert!(form.get("maxsubs").is_none(), "what was left out keeps its value");
    assert!(form.get("unknown").is_none());
}

#[test]
fn invalid_submissions_get_a_one_sentence_error() {
    let name = "<field var='botname'><value>x</value></field>";
    for (fields, text) in [
        (String::new(), "the field \"botname\" is required"),
        ("<field var='botname'><value/></field>".into(), "the field \"botname\" is required"),
        (
            "<field var='botname'><value>a</value><value>b</value></field>".into(),
            "the field \"botname\" accepts only one value",
        ),
        (
            format!("{name}<field var='public'><value>maybe</value></field>"),
            "the field \"public\" must be true or false",
        ),
        (
            format!("{name}<field var='maxsubs'><value>30</value></field>"),
            "the field \"maxsubs\" has a value that is not one of its options",
        ),
        (
            format!("{name}<field var='owner'><value>a@@b</value></field>"),
            "the field \"owner\" must be an address",
        ),
        (
            format!("{name}<field var='FORM_TYPE'><value>jabber:iq:search</value></field>"),
            "the form must be of the type jabber:bot",
        ),
    ] {
        assert_eq!(bot().validate(&submit(&fields)).unwrap_err().as_str(), text);
    }
    let error: StanzaError = FormError::new("no").into();
    assert_eq!((error.condition, error.kind), (StanzaCondition::NotAcceptable, ErrorType::Modify));
    let cancelled = DataForm::new(FormKind::Cancel);
    assert_eq!(bot().validate(&cancelled).unwrap_err().as_str(), "the form must be of type submit");
}

#[test]
fn bad_forms_are_refused() {
    let many = |n: usize, what: &str| {
        let body: String = (0..n).map(|i| what.replace('#', &i.to_string())).collect();
        format!("<x xmlns='jabber:x:data' type='submit'>{body}</x>")
    };
    let values = |n: usize| many(1, &format!("<field var='v'>{}</field>", "<value>a</value>".repeat(n)));
    for (text, sentence) in [
        ("<x xmlns='jabber:x:data'/>".to_owned(), "a form needs a type"),
        (
            "<x xmlns='jabber:x:data' type='error'/>".to_owned(),
            "a form is of type form, submit, cancel or result",
        ),
        (many(1, "<field/>"), "a field needs a name"),
        (many(2, "<field var='v'/>"), "the field \"v\" is there twice"),
        (many(1, "<field var='v'><option/></field>"), "the field \"v\" has an option without a value"),
        (many(MAX_FIELDS + 1, "<field var='#'/>"), "the form has too many fields"),
        (many(MAX_FIELDS + 1, "<item/>"), "the form has too many fields"),
        (values(MAX_VALUES + 1), "the form has too many values"),
        (many(MAX_VALUES + 1, "<instructions/>"), "the form has too many values"),
    ] {
        assert_eq!(read(&text).unwrap_err().as_str(), sentence);
    }
    assert_eq!(read(&many(MAX_FIELDS, "<field var='#'/>")).unwrap().fields.len(), MAX_FIELDS);
    assert!(read(&values(MAX_VALUES)).is_ok());
    let long = "x".repeat(10_000);
    let error = read(&many(2, &format!("<field var='{long}'/>"))).unwrap_err();
    assert!(error.as_str().len() < 128, "a name is not repeated at any length");
}

#[test]
fn unknown_types_are_text_and_foreign_elements_are_skipped() {
    let form = read(
        "<x xmlns='jabber:x:data' type='form'><item xmlns='urn:other'/><field var='v' type='color'>\
         <value>red</value><validate xmlns='http://jabber.org/protocol/xdata-validate'/></field></x>",
    )
    .unwrap();
    assert_eq!((form.items.len(), form.fields[0].kind()), (0, FormFieldType::TextSingle));
    assert_eq!(form.value("v"), Some("red"));
    assert_eq!(form.value("w"), None);
    assert_eq!(form.bool("v"), None);
}

#[test]
fn xep_0122_section_3_2_a_range_of_integers_is_shown_and_checked() {
    let wait = FormField::new(FormFieldType::TextSingle, "wait").integers(0..=60).value("20");
    let form = DataForm::new(FormKind::Form).field(wait);
    let mut out = Vec::new();
    form.write(&mut Writer::new(&mut out));
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.contains(
            "<validate xmlns='http://jabber.org/protocol/xdata-validate' datatype='xs:integer'>\
             <range min='0' max='60'/></validate><value>20</value>"
        ),
        "{text}"
    );
    let submit = |value: &str| DataForm::new(FormKind::Submit).field(FormField::cell("wait", value));
    for value in ["0", "60", ""] {
        assert!(form.validate(&submit(value)).is_ok(), "{value}");
    }
    for value in ["-1", "61", "1.5", "soon"] {
        let refused = form.validate(&submit(value)).unwrap_err();
        assert_eq!(refused.as_str(), "the field \"wait\" must be an integer from 0 to 60");
    }
}
