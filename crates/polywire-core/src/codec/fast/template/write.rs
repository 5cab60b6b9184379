//! Writes template documents: from a `TemplateSet` to XML that `read` accepts. `mod.rs` calls it.
//! It makes a string only.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use super::{
    Dictionary, Field, FieldType, Instruction, NAMESPACE, Name, Operator, OperatorKind, Template, TemplateSet, value,
};

/// Writes a set of templates as an XML document.
pub(super) fn write(set: &TemplateSet) -> String {
    let mut out = Xml { text: String::new(), depth: 0 };
    out.text.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    out.open("templates", &[("xmlns", NAMESPACE.to_string())]);
    set.templates.iter().for_each(|template| out.template(template));
    out.close("templates");
    out.text
}

struct Xml {
    text: String,
    depth: usize,
}

type Attributes<'a> = Vec<(&'a str, String)>;

impl Xml {
    fn template(&mut self, template: &Template) {
        let mut attributes: Attributes<'_> = [("name", template.name.local.clone())].into();
        if !template.name.namespace.is_empty() {
            attributes.push(("templateNs", template.name.namespace.clone()));
        }
        attributes.extend(template.id.map(|id| ("id", id.to_string())));
        if template.reset {
            attributes.push(("reset", "Y".to_string()));
        }
        self.open("template", &attributes);
        self.inside(template.type_ref.as_ref(), &template.instructions);
        self.close("template");
    }

    fn inside(&mut self, type_ref: Option<&Name>, instructions: &[Instruction]) {
        if let Some(name) = type_ref {
            self.empty("typeRef", &named(name));
        }
        instructions.iter().for_each(|instruction| self.instruction(instruction));
    }

    fn instruction(&mut self, instruction: &Instruction) {
        match instruction {
            Instruction::Field(field) => self.field(field, field.ty.element()),
            Instruction::Group(group) => {
                self.open("group", &present(&group.name, group.optional));
                self.inside(group.type_ref.as_ref(), &group.instructions);
                self.close("group");
            }
            Instruction::Sequence(sequence) => {
                self.open("sequence", &present(&sequence.name, sequence.optional));
                if !sequence.length.name.local.contains(' ') {
                    let length = Field { optional: false, ..sequence.length.clone() };
                    self.field(&length, "length");
                } else if sequence.length.operator.kind != OperatorKind::None {
                    self.open("length", &[]);
                    self.operator(&sequence.length.operator, FieldType::U32);
                    self.close("length");
                }
                self.inside(sequence.type_ref.as_ref(), &sequence.instructions);
                self.close("sequence");
            }
            Instruction::Static(name) => {
                let mut attributes: Attributes<'_> = [("name", name.local.clone())].into();
                if !name.namespace.is_empty() {
                    attributes.push(("templateNs", name.namespace.clone()));
                }
                self.empty("templateRef", &attributes);
            }
            Instruction::Dynamic => self.empty("templateRef", &[]),
        }
    }

    fn field(&mut self, field: &Field, element: &str) {
        let mut attributes = present(&field.name, field.optional);
        if field.ty == FieldType::Unicode {
            attributes.push(("charset", "unicode".to_string()));
        }
        let int = |bits| FieldType::Int { signed: true, bits };
        match &field.mantissa {
            None if field.operator.kind == OperatorKind::None => self.empty(element, &attributes),
            None => {
                self.open(element, &attributes);
                self.operator(&field.operator, field.ty);
                self.close(element);
            }
            Some(mantissa) => {
                self.open(element, &attributes);
                for (part, operator, ty) in [("exponent", &field.operator, int(32)), ("mantissa", mantissa, int(64))] {
                    self.open(part, &[]);
                    self.operator(operator, ty);
                    self.close(part);
                }
                self.close(element);
            }
        }
    }

    fn operator(&mut self, operator: &Operator, ty: FieldType) {
        let Some(element) = operator.kind.element() else { return };
        let mut attributes: Attributes<'_> = Vec::new();
        if operator.kind.has_dictionary() {
            let dictionary = match &operator.dictionary {
                Dictionary::Global => None,
                Dictionary::Template => Some("template".to_string()),
                Dictionary::Type => Some("type".to_string()),
                Dictionary::Named(name) => Some(name.clone()),
            };
            attributes.extend(dictionary.map(|name| ("dictionary", name)));
        }
        if let Some(key) = &operator.key {
            attributes.push(("key", key.local.clone()));
            attributes.push(("ns", key.namespace.clone()));
        }
        attributes.extend(operator.initial.as_ref().map(|initial| ("value", value::print(ty, initial))));
        self.empty(element, &attributes);
    }

    fn open(&mut self, element: &str, attributes: &[(&str, String)]) {
        self.tag(element, attributes, ">");
        self.depth += 1;
    }

    fn close(&mut self, element: &str) {
        self.depth -= 1;
        self.indent();
        self.text.push_str(&format!("</{element}>\n"));
    }

    fn empty(&mut self, element: &str, attributes: &[(&str, String)]) {
        self.tag(element, attributes, "/>");
    }

    fn tag(&mut self, element: &str, attributes: &[(&str, String)], end: &str) {
        self.indent();
        self.text.push_str(&format!("<{element}"));
        for (name, value) in attributes {
            self.text.push_str(&format!(" {name}=\"{}\"", escape(value)));
        }
        self.text.push_str(end);
        self.text.push('\n');
    }

    fn indent(&mut self) {
        self.text.extend(core::iter::repeat_n("  ", self.depth));
    }
}

fn named(name: &Name) -> Attributes<'static> {
    let mut attributes: Attributes<'_> = [("name", name.local.clone())].into();
    if !name.namespace.is_empty() {
        attributes.push(("ns", name.namespace.clone()));
    }
    attributes
}

fn present(name: &Name, optional: bool) -> Attributes<'static> {
    let mut attributes = named(name);
    if optional {
        attributes.push(("presence", "optional".to_string()));
    }
    attributes
}

/// Escapes an attribute's value, including white space that a parser would normalise.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '"' => escaped.push_str("&quot;"),
            c if c < ' ' => escaped.push_str(&format!("&#{};", c as u32)),
            c => escaped.push(c),
        }
    }
    escaped
}
