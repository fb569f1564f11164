//! Parser of data forms (XEP-0004 2.13.2, section 3).

use xml::{Ns, TreeNode};

use super::{DataForm, FormError, FormField, FormFieldType, FormKind, FormOption, MAX_FIELDS, MAX_VALUES};

/// Remaining fields and values of one form.
struct Budget {
    fields: usize,
    values: usize,
}

impl DataForm {
    /// Reads `<x xmlns='jabber:x:data'/>`. Skips unknown elements; the order of `<reported/>` and `<item/>` does not
    /// matter (section 3.4).
    ///
    /// # Errors
    /// One sentence: an unknown type, a field without a name or with a duplicate one, more than [`MAX_FIELDS`] or
    /// [`MAX_VALUES`].
    pub fn read(x: TreeNode<'_>) -> Result<DataForm, FormError> {
        let kind = x.attr("type").ok_or_else(|| FormError::new("a form needs a type"))?;
        let kind = FormKind::from_name(&kind)
            .ok_or_else(|| FormError::new("a form is of type form, submit, cancel or result"))?;
        let mut form = DataForm::new(kind);
        let mut budget = Budget { fields: MAX_FIELDS, values: MAX_VALUES };
        for child in x.child_elements().filter(|c| c.ns() == Some(Ns::DataForms)) {
            match child.name() {
                "title" => form.title = child.text().into_owned(),
                "instructions" => {
                    budget.value()?;
                    form.instructions.push(child.text().into_owned());
                }
                "field" => form.fields.push(field(child, &mut budget)?),
                "reported" => form.reported = fields(child, &mut budget)?,
                "item" => {
                    // An empty row counts as a field.
                    budget.field()?;
                    form.items.push(fields(child, &mut budget)?);
                }
                _ => {}
            }
        }
        unique(&form.fields)?;
        Ok(form)
    }
}

fn fields(parent: TreeNode<'_>, budget: &mut Budget) -> Result<Vec<FormField>, FormError> {
    let mut fields = Vec::new();
    for child in parent.child_elements().filter(|c| c.is("field", Ns::DataForms)) {
        fields.push(field(child, budget)?);
    }
    unique(&fields)?;
    Ok(fields)
}

fn field(node: TreeNode<'_>, budget: &mut Budget) -> Result<FormField, FormError> {
    budget.field()?;
    let kind = node.attr("type").map(|kind| FormFieldType::from_name(&kind));
    let var = node.attr("var").unwrap_or_default().into_owned();
    if var.is_empty() && kind != Some(FormFieldType::Fixed) {
        return Err(FormError::new("a field needs a name"));
    }
    let mut field = FormField::new(FormFieldType::TextSingle, var);
    field.kind = kind;
    field.label = node.attr("label").unwrap_or_default().into_owned();
    for child in node.child_elements().filter(|c| c.ns() == Some(Ns::DataForms)) {
        match child.name() {
            "desc" => field.desc = child.text().into_owned(),
            "required" => field.required = true,
            "value" => {
                budget.value()?;
                field.values.push(child.text().into_owned());
            }
            "option" => {
                budget.value()?;
                let value = child.child("value", Ns::DataForms);
                let value =
                    value.ok_or_else(|| FormError::of(&field.var, "has an option without a value"))?;
                let label = child.attr("label").unwrap_or_default();
                field.options.push(FormOption::new(label, value.text()));
            }
            _ => {}
        }
    }
    Ok(field)
}

/// Rejects fields with the same name.
fn unique(fields: &[FormField]) -> Result<(), FormError> {
    let mut names: Vec<&str> = fields.iter().map(|f| f.var.as_str()).filter(|v| !v.is_empty()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(FormError::of(pair[0], "is there twice")),
        None => Ok(()),
    }
}

impl Budget {
    fn field(&mut self) -> Result<(), FormError> {
        self.fields =
            self.fields.checked_sub(1).ok_or_else(|| FormError::new("the form has too many fields"))?;
        Ok(())
    }

    fn value(&mut self) -> Result<(), FormError> {
        self.values =
            self.values.checked_sub(1).ok_or_else(|| FormError::new("the form has too many values"))?;
        Ok(())
    }
}
