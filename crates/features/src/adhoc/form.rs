//! Wire format of ad-hoc commands: forms from declarations, results from outputs (XEP-0050 1.3.0, sections 4.1 to
//! 4.3).

use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use throng_commands::{Command, CommandOutput, OutputValue, RawArguments};
use xml::{Ns, Writer};

use super::sessions::CommandSession;

/// Language of every text in forms and notes.
const LANG: &str = "en";

fn command_element(
    command: &Command,
    id: &str,
    status: &str,
    content: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let mut w = Writer::new(&mut out);
    w.start_ns("command", Ns::Commands).attr("node", command.node).attr("sessionid", id);
    w.attr("status", status).attr("xml:lang", LANG);
    content(&mut w);
    w.end();
    out
}

pub(super) fn canceled(command: &Command, id: &str) -> Vec<u8> {
    command_element(command, id, "canceled", |_| {})
}

/// The form of a stage with the actions that are possible there. Values come from earlier submissions (section 2.4.2,
/// *remembered*), from the current state, or are the defaults.
pub(super) fn stage_form(
    command: &'static Command,
    id: &str,
    session: &CommandSession,
    present: &[(&'static str, Vec<String>)],
) -> Vec<u8> {
    let stages = command.stages();
    let last = session.stage + 1 >= stages;
    command_element(command, id, "executing", |w| {
        w.start("actions").attr("execute", if last { "complete" } else { "next" });
        if session.stage > 0 {
            w.start("prev").end();
        }
        if !last {
            w.start("next").end();
        }
        if last || may_complete(command, session.stage) {
            w.start("complete").end();
        }
        w.end();
        let mut form = new_form(command, FormKind::Form).title(command.title).instructions(command.doc);
        for field in command.stage(session.stage) {
            let values = session.given.get(field.var).map(<[String]>::to_vec);
            let values = values
                .or_else(|| present.iter().find(|(name, _)| *name == field.name).map(|(_, v)| v.clone()))
                .unwrap_or_else(|| match field.default {
                    "" => Vec::new(),
                    default => vec![default.to_owned()],
                });
            form = form.field(input_field(field, values));
        }
        form.write(w);
    })
}

fn new_form(command: &Command, kind: FormKind) -> DataForm {
    match command.form_type {
        "" => DataForm::new(kind),
        form_type => DataForm::typed(kind, form_type),
    }
}

/// Whether the command can be executed without the stages after this one.
pub(super) fn may_complete(command: &Command, stage: u8) -> bool {
    !command.input.iter().any(|f| f.stage > stage && f.required && f.default.is_empty())
}

/// An input field of a form.
fn input_field(field: &throng_commands::CommandField, values: Vec<String>) -> FormField {
    let secret = matches!(field.kind, throng_commands::CommandFieldKind::Secret);
    let kind = match field.kind {
        throng_commands::CommandFieldKind::Jid => FormFieldType::JidSingle,
        throng_commands::CommandFieldKind::Jids => FormFieldType::JidMulti,
        throng_commands::CommandFieldKind::Secret => FormFieldType::TextPrivate,
        throng_commands::CommandFieldKind::Lines => FormFieldType::TextMulti,
        throng_commands::CommandFieldKind::Bool => FormFieldType::Boolean,
        throng_commands::CommandFieldKind::Choice(_) | throng_commands::CommandFieldKind::Count(..) => {
            FormFieldType::ListSingle
        }
        throng_commands::CommandFieldKind::Int(_, _, proposals) if !proposals.is_empty() => {
            FormFieldType::ListSingle
        }
        throng_commands::CommandFieldKind::Int(..)
        | throng_commands::CommandFieldKind::Text
        | throng_commands::CommandFieldKind::Table(_) => FormFieldType::TextSingle,
    };
    let mut form_field = FormField::new(kind, field.var).label(field.label).desc(field.doc);
    form_field.required = field.required && field.default.is_empty();
    if !secret {
        form_field = form_field.values(values);
    }
    match field.kind {
        throng_commands::CommandFieldKind::Choice(list) => {
            for (value, label) in list {
                form_field = form_field.option(*label, *value);
            }
        }
        throng_commands::CommandFieldKind::Int(_, _, proposals) => {
            for (value, label) in proposals {
                form_field = form_field.option(*label, value.to_string());
            }
        }
        throng_commands::CommandFieldKind::Count(_, proposals) => {
            for value in proposals {
                form_field = form_field.option(value.to_string(), value.to_string());
            }
            form_field = form_field.option("None", "none");
        }
        _ => {}
    }
    form_field
}

/// The final result of a command.
pub(super) fn completed(command: &Command, id: &str, output: &CommandOutput) -> Vec<u8> {
    command_element(command, id, "completed", |w| {
        if !output.values.is_empty() {
            let mut form = new_form(command, FormKind::Result);
            let mut inside = Vec::new();
            for (field, shown) in &output.values {
                match (shown, field.kind) {
                    // The layout comes from the specification of the command.
                    (OutputValue::Rows(_), _) if !output.xml.is_empty() => {
                        inside.extend_from_slice(&output.xml)
                    }
                    (OutputValue::Rows(rows), throng_commands::CommandFieldKind::Table(columns)) => {
                        form = table(form, columns, rows);
                    }
                    _ => form = form.field(result_field(field, shown)),
                }
            }
            let mut bytes = Vec::with_capacity(512 + inside.len());
            form.write(&mut Writer::new(&mut bytes));
            let end = bytes.len().saturating_sub("</x>".len());
            bytes.splice(end..end, inside);
            w.raw(&bytes);
        }
        if !output.note.is_empty() {
            w.start("note").attr("type", "info").text(&output.note).end();
        }
    })
}

/// The final result of a command that failed because of a value (section 3.3).
pub(super) fn failed(command: &Command, id: &str, reason: &str) -> Vec<u8> {
    command_element(command, id, "completed", |w| {
        w.start("note").attr("type", "error").text(reason).end();
    })
}

/// Whether a required field of a stage is missing or empty.
pub(super) fn lacks_required(command: &Command, stage: u8, given: &RawArguments) -> bool {
    command
        .stage(stage)
        .filter(|field| field.required && field.default.is_empty())
        .any(|field| given.get(field.var).is_none_or(|values| values.iter().all(|value| value.is_empty())))
}

fn result_field(field: &throng_commands::CommandField, shown: &OutputValue) -> FormField {
    let kind = match shown {
        OutputValue::Texts(_) if matches!(field.kind, throng_commands::CommandFieldKind::Jids) => {
            Some(FormFieldType::JidMulti)
        }
        OutputValue::Texts(_) => Some(FormFieldType::TextMulti),
        OutputValue::Bool(_) => Some(FormFieldType::Boolean),
        _ => None,
    };
    let mut out =
        FormField::new(FormFieldType::TextSingle, field.var).label(field.label).values(shown.texts());
    out.kind = kind;
    out
}

/// A table (XEP-0004, section 3.4). A cell with several values has a line for each.
fn table(
    mut form: DataForm,
    columns: &[throng_commands::CommandField],
    rows: &[throng_commands::OutputRow],
) -> DataForm {
    for column in columns {
        form = form.column(FormFieldType::TextSingle, column.var, column.label);
    }
    for row in rows {
        let cells =
            columns.iter().zip(row).map(|(c, shown)| FormField::cell(c.var, shown.texts().join(", ")));
        form = form.item(cells.collect());
    }
    form
}

/// Values of a submitted form. A cancelled form counts as submitted (section 3.5.1).
pub(super) fn submitted_values(form: DataForm) -> RawArguments {
    RawArguments(form.fields.into_iter().map(|field| (field.var, field.values)).collect())
}

/// Values of earlier stages, overridden by those of this stage.
pub(super) fn merge_values(
    command: &'static Command,
    stage: u8,
    before: RawArguments,
    now: RawArguments,
) -> RawArguments {
    let of_stage = |var: &str| command.stage(stage).any(|f| f.var == var);
    let before = before.0.into_iter().filter(|(var, _)| !of_stage(var));
    let now = now.0.into_iter().filter(|(var, _)| of_stage(var));
    RawArguments(before.chain(now).collect())
}
