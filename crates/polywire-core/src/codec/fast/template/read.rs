//! Parses template documents: from XML to a `TemplateSet`, with the position of errors. `mod.rs`
//! calls it. It uses the XML parser `roxmltree`, behind `scan`, and no state.

use alloc::{
    collections::BTreeSet,
    format,
    string::{String, ToString},
    vec::Vec,
};

use roxmltree::{Document, Node, ParsingOptions};

use super::{
    Dictionary, Field, FieldType, Group, Initial, Instruction, NAMESPACE, NAMESPACE_BEFORE, Name, Operator,
    OperatorKind, Sequence, StaticCode, Template, TemplateError, TemplateLimits, TemplateSet, endless::endless,
    scan::scan, value,
};

type Read<T> = Result<T, TemplateError>;

/// Parses a document within limits.
pub(super) fn read(xml: &str, limits: &TemplateLimits) -> Read<TemplateSet> {
    let nowhere = |code, what: String| TemplateError { code, line: 0, column: 0, what };
    if xml.len() > limits.bytes {
        return Err(nowhere(StaticCode::Limit, format!("the document has more than {} bytes", limits.bytes)));
    }
    scan(xml, limits).map_err(|(at, what)| {
        let before = &xml[..at];
        let line = before.bytes().filter(|byte| *byte == b'\n').count() as u32 + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() as u32 + 1;
        TemplateError { code: StaticCode::Limit, line, column, what }
    })?;
    // Document type definitions are refused, because templates do not need entities.
    let nodes_limit = u32::try_from(limits.instructions.saturating_mul(NODES)).unwrap_or(u32::MAX);
    let document =
        Document::parse_with_options(xml, ParsingOptions { allow_dtd: false, nodes_limit, ..Default::default() });
    let document = document.map_err(|error| {
        let at = error.pos();
        let code = if error == roxmltree::Error::NodesLimitReached { StaticCode::Limit } else { StaticCode::S1 };
        TemplateError { code, line: at.row, column: at.col, what: error.to_string() }
    })?;
    let mut reader = Reader {
        document: &document,
        limits,
        names: BTreeSet::new(),
        ids: BTreeSet::new(),
        instructions: 0,
        initial_bytes: 0,
    };
    let set = reader.templates(document.root_element())?;
    reader.check_references(&set)?;
    reader.check_ends(&set)?;
    Ok(set)
}

/// XML nodes for each allowed instruction: the parts of a field, and text and comments between
/// them.
const NODES: usize = 16;

/// Largest length of a name in bytes. Elements that inherit a name store a copy of it.
const MAX_NAME: usize = 255;

struct Reader<'d> {
    document: &'d Document<'d>,
    limits: &'d TemplateLimits,
    names: BTreeSet<Name>,
    ids: BTreeSet<u32>,
    instructions: usize,
    initial_bytes: usize,
}

/// Values that elements inherit from the elements around them.
#[derive(Clone)]
struct Context {
    namespace: String,
    template_namespace: String,
    dictionary: Dictionary,
    depth: usize,
}

type Element<'d> = Node<'d, 'd>;

impl<'d> Reader<'d> {
    fn templates(&mut self, root: Element<'d>) -> Read<TemplateSet> {
        let context = Context {
            namespace: String::new(),
            template_namespace: String::new(),
            dictionary: Dictionary::Global,
            depth: 0,
        };
        let mut set = TemplateSet::default();
        match root.tag_name().name() {
            _ if !ours(root) => return Err(self.wrong(root, StaticCode::S1, "it is not a template document")),
            "templates" => {
                // Documents in the older namespace may have a version number of the publisher.
                let known = ["ns", "templateNs", "dictionary", "version"];
                let is_older = root.tag_name().namespace() == Some(NAMESPACE_BEFORE);
                self.allow(root, if is_older { &known } else { &known[..3] })?;
                let context = self.inherit(root, &context)?;
                for element in children(root) {
                    self.template_of(element, &context, &mut set)?;
                }
                self.no_text(root)?;
            }
            _ => self.template_of(root, &context, &mut set)?,
        }
        Ok(set)
    }

    fn template_of(&mut self, element: Element<'d>, context: &Context, set: &mut TemplateSet) -> Read<()> {
        if element.tag_name().name() != "template" {
            let what = format!("there should be a template, not '{}'", element.tag_name().name());
            return Err(self.wrong(element, StaticCode::S1, what));
        }
        let template = self.template(element, context)?;
        if !self.names.insert(template.name.clone()) {
            let what = format!("the template '{}' occurs twice", template.name);
            return Err(self.wrong(element, StaticCode::S1, what));
        }
        if template.id.is_some_and(|id| !self.ids.insert(id)) {
            return Err(self.wrong(element, StaticCode::S1, "the template's id occurs twice"));
        }
        if set.templates.len() >= self.limits.templates {
            let what = format!("there are more than {} templates", self.limits.templates);
            return Err(self.wrong(element, StaticCode::Limit, what));
        }
        set.templates.push(template);
        Ok(())
    }

    fn template(&mut self, element: Element<'d>, context: &Context) -> Read<Template> {
        self.allow(element, &["name", "templateNs", "id", "ns", "dictionary", "typeRef", "reset"])?;
        let context = self.inherit(element, context)?;
        let id = match element.attribute("id") {
            None => None,
            Some(text) => Some(text.trim().parse().map_err(|_| {
                self.wrong(element, StaticCode::S1, format!("the id '{text}' is not a number of 32 bits"))
            })?),
        };
        Ok(Template {
            name: Name { namespace: context.template_namespace.clone(), local: self.required(element, "name")? },
            id,
            reset: resets(element),
            type_ref: self.type_ref(element, &context)?,
            instructions: self.instructions(element, &context)?,
        })
    }

    fn instructions(&mut self, element: Element<'d>, context: &Context) -> Read<Vec<Instruction>> {
        self.no_text(element)?;
        let mut instructions = Vec::new();
        for child in children(element) {
            if matches!(child.tag_name().name(), "typeRef" | "length") {
                continue;
            }
            self.instructions += 1;
            if self.instructions > self.limits.instructions {
                let what = format!("there are more than {} instructions", self.limits.instructions);
                return Err(self.wrong(child, StaticCode::Limit, what));
            }
            instructions.push(self.instruction(child, context)?);
        }
        Ok(instructions)
    }

    fn instruction(&mut self, element: Element<'d>, context: &Context) -> Read<Instruction> {
        match element.tag_name().name() {
            "group" => self.group(element, context).map(Instruction::Group),
            "sequence" => self.sequence(element, context).map(Instruction::Sequence),
            "templateRef" => self.reference(element, context),
            _ => self.field(element, context).map(Instruction::Field),
        }
    }

    fn group(&mut self, element: Element<'d>, context: &Context) -> Read<Group> {
        self.allow(element, &["name", "id", "ns", "dictionary", "presence", "typeRef"])?;
        let context = self.inherit(element, &self.deeper(element, context)?)?;
        Ok(Group {
            name: self.name(element, &context)?,
            optional: self.optional(element)?,
            type_ref: self.type_ref(element, &context)?,
            instructions: self.instructions(element, &context)?,
        })
    }

    fn sequence(&mut self, element: Element<'d>, context: &Context) -> Read<Sequence> {
        self.allow(element, &["name", "id", "ns", "dictionary", "presence", "typeRef"])?;
        let context = self.inherit(element, &self.deeper(element, context)?)?;
        let (name, optional) = (self.name(element, &context)?, self.optional(element)?);
        let mut lengths = children(element).filter(|child| child.tag_name().name() == "length");
        let length = match lengths.next() {
            Some(length) => self.length(length, &name, optional, &context)?,
            None => Field { optional, name: implicit_length(&name), ..Field::new("", FieldType::U32) },
        };
        if let Some(second) = lengths.next() {
            return Err(self.wrong(second, StaticCode::S1, "a sequence has one length"));
        }
        let type_ref = self.type_ref(element, &context)?;
        Ok(Sequence { name, optional, type_ref, length, instructions: self.instructions(element, &context)? })
    }

    fn length(&mut self, element: Element<'d>, sequence: &Name, optional: bool, context: &Context) -> Read<Field> {
        self.allow(element, &["name", "id", "ns"])?;
        let name = match element.attribute("name") {
            Some(_) => self.name(element, context)?,
            None => implicit_length(sequence),
        };
        let operator = self.operator_of(element, FieldType::U32, optional, &name, context)?;
        Ok(Field { name, optional, ty: FieldType::U32, operator, mantissa: None })
    }

    fn reference(&mut self, element: Element<'d>, context: &Context) -> Read<Instruction> {
        self.allow(element, &["name", "templateNs", "ns"])?;
        match element.attribute("name") {
            None => Ok(Instruction::Dynamic),
            Some(name) => {
                let namespace = element.attribute("templateNs").unwrap_or(&context.template_namespace);
                Ok(Instruction::Static(Name { namespace: namespace.to_string(), local: name.to_string() }))
            }
        }
    }

    fn field(&mut self, element: Element<'d>, context: &Context) -> Read<Field> {
        let tag = element.tag_name().name();
        let ty = match field_type(element) {
            Some(ty) => ty,
            None => return Err(self.wrong(element, StaticCode::S1, format!("there is no instruction '{tag}'"))),
        };
        match ty {
            FieldType::Ascii | FieldType::Unicode => {
                self.allow(element, &["name", "id", "ns", "presence", "charset", "dictionary"])?;
            }
            _ => self.allow(element, &["name", "id", "ns", "presence", "dictionary"])?,
        }
        self.no_text(element)?;
        let charset = element.attribute("charset").filter(|_| tag == "string");
        if let Some(other) = charset.filter(|c| !matches!(*c, "ascii" | "unicode")) {
            return Err(self.wrong(element, StaticCode::S1, format!("there is no character set '{other}'")));
        }
        let context = self.inherit(element, context)?;
        let (name, optional) = (self.name(element, &context)?, self.optional(element)?);
        let part = |part: &str| children(element).find(|child| child.tag_name().name() == part);
        let (exponent, mantissa) = (part("exponent"), part("mantissa"));
        if ty != FieldType::Decimal || (exponent.is_none() && mantissa.is_none()) {
            let operator = self.operator_of(element, ty, optional, &name, &context)?;
            return Ok(Field { name, optional, ty, operator, mantissa: None });
        }
        if let Some(other) = children(element).find(|child| !matches!(child.tag_name().name(), "exponent" | "mantissa"))
        {
            let what = "a decimal has operators of its parts or of the whole, not both";
            return Err(self.wrong(other, StaticCode::S1, what));
        }
        let mut of_part = |part: Option<Element<'d>>, bits, optional| match part {
            None => Ok(Operator::default()),
            Some(part) => {
                self.allow(part, &[])?;
                self.operator_of(part, FieldType::Int { signed: true, bits }, optional, &name, &context)
            }
        };
        // The mantissa is present whenever the exponent is.
        let mantissa = of_part(mantissa, 64, false)?;
        let operator = of_part(exponent, 32, optional)?;
        if let Some(Initial::Int(value)) = &operator.initial
            && !(-63..=63).contains(value)
        {
            let what = format!("the exponent {value} of '{name}' is not between -63 and 63");
            return Err(self.wrong(element, StaticCode::S3, what));
        }
        Ok(Field { name, optional, ty, operator, mantissa: Some(mantissa) })
    }

    /// The operator inside an element. The default operator if there is none.
    fn operator_of(
        &mut self,
        element: Element<'d>,
        ty: FieldType,
        optional: bool,
        name: &Name,
        context: &Context,
    ) -> Read<Operator> {
        // The length of a byte vector may have a name, for the application only.
        let mut operators = children(element).filter(|c| !(has_length(ty) && c.tag_name().name() == "length"));
        let Some(operator) = operators.next() else { return Ok(Operator::default()) };
        if let Some(second) = operators.next() {
            return Err(self.wrong(second, StaticCode::S1, format!("'{name}' has more than one operator")));
        }
        let kind = match operator.tag_name().name() {
            "constant" => OperatorKind::Constant,
            "default" => OperatorKind::Default,
            "copy" => OperatorKind::Copy,
            "increment" => OperatorKind::Increment,
            "delta" => OperatorKind::Delta,
            "tail" => OperatorKind::Tail,
            other => return Err(self.wrong(operator, StaticCode::S1, format!("there is no operator '{other}'"))),
        };
        if !goes_with(kind, ty) {
            let what =
                format!("the operator '{}' does not go with the type of '{name}'", kind.element().unwrap_or_default());
            return Err(self.wrong(operator, StaticCode::S2, what));
        }
        match kind.has_dictionary() {
            true => self.allow(operator, &["value", "dictionary", "key", "ns"])?,
            false => self.allow(operator, &["value"])?,
        }
        self.no_text(operator)?;
        let context = self.inherit(operator, context)?;
        let initial = self.initial(operator, ty, name)?;
        match (kind, &initial) {
            (OperatorKind::Constant, None) => {
                return Err(self.wrong(operator, StaticCode::S4, format!("the constant '{name}' has no value")));
            }
            (OperatorKind::Default, None) if !optional => {
                let what = format!("'{name}' is mandatory and its default has no value");
                return Err(self.wrong(operator, StaticCode::S5, what));
            }
            _ => {}
        }
        let key =
            operator.attribute("key").map(|key| Name { namespace: context.namespace.clone(), local: key.to_string() });
        let dictionary = if kind.has_dictionary() { context.dictionary } else { Dictionary::default() };
        Ok(Operator { kind, dictionary, key, initial })
    }

    fn initial(&mut self, operator: Element<'d>, ty: FieldType, name: &Name) -> Read<Option<Initial>> {
        let Some(text) = operator.attribute("value") else { return Ok(None) };
        self.initial_bytes += text.len();
        if self.initial_bytes > self.limits.initial_bytes {
            return Err(self.wrong(operator, StaticCode::Limit, "initial values are too long"));
        }
        match value::parse(ty, text) {
            Some(initial) => Ok(Some(initial)),
            None => {
                let what = format!("'{text}' is not a value of the type of '{name}'");
                Err(self.wrong(operator, StaticCode::S3, what))
            }
        }
    }

    fn deeper(&self, element: Element<'d>, context: &Context) -> Read<Context> {
        if context.depth >= self.limits.depth {
            return Err(self.wrong(element, StaticCode::Limit, "groups and sequences are nested too deeply"));
        }
        Ok(Context { depth: context.depth + 1, ..context.clone() })
    }

    fn inherit(&self, element: Element<'d>, context: &Context) -> Read<Context> {
        let mut context = context.clone();
        if let Some(namespace) = element.attribute("ns") {
            context.namespace = namespace.to_string();
        }
        if let Some(namespace) = element.attribute("templateNs") {
            context.template_namespace = namespace.to_string();
        }
        context.dictionary = match element.attribute("dictionary") {
            None => context.dictionary,
            Some("template") => Dictionary::Template,
            Some("type") => Dictionary::Type,
            Some("global") => Dictionary::Global,
            Some("") => return Err(self.wrong(element, StaticCode::S1, "a dictionary has no name")),
            Some(name) => Dictionary::Named(name.to_string()),
        };
        Ok(context)
    }

    fn type_ref(&self, element: Element<'d>, context: &Context) -> Read<Option<Name>> {
        let name =
            |namespace: &str, local: &str| Some(Name { namespace: namespace.to_string(), local: local.to_string() });
        if let Some(local) = element.attribute("typeRef") {
            return Ok(name(&context.namespace, local));
        }
        match children(element).find(|child| child.tag_name().name() == "typeRef") {
            None => Ok(None),
            Some(child) => {
                self.check_name(child, "name").and_then(|()| self.check_name(child, "ns"))?;
                let namespace = child.attribute("ns").unwrap_or(&context.namespace);
                Ok(name(namespace, &self.required(child, "name")?))
            }
        }
    }

    fn name(&self, element: Element<'d>, context: &Context) -> Read<Name> {
        Ok(Name { namespace: context.namespace.clone(), local: self.required(element, "name")? })
    }

    fn required(&self, element: Element<'d>, attribute: &str) -> Read<String> {
        match element.attribute(attribute) {
            Some(text) if !text.is_empty() => Ok(text.to_string()),
            _ => {
                let what = format!("'{}' has no attribute '{attribute}'", element.tag_name().name());
                Err(self.wrong(element, StaticCode::S1, what))
            }
        }
    }

    fn optional(&self, element: Element<'d>) -> Read<bool> {
        match element.attribute("presence") {
            None | Some("mandatory") => Ok(false),
            Some("optional") => Ok(true),
            Some(other) => Err(self.wrong(element, StaticCode::S1, format!("there is no presence '{other}'"))),
        }
    }

    /// Refuses unknown attributes. Attributes of other namespaces are allowed.
    fn allow(&self, element: Element<'d>, known: &[&str]) -> Read<()> {
        ["name", "ns", "templateNs", "dictionary", "key", "typeRef"]
            .into_iter()
            .try_for_each(|attribute| self.check_name(element, attribute))?;
        let mut own = element.attributes().filter(|attribute| attribute.namespace().is_none());
        match own.find(|attribute| !known.contains(&attribute.name())) {
            None => Ok(()),
            Some(other) => {
                let what = format!("'{}' has no attribute '{}'", element.tag_name().name(), other.name());
                Err(self.wrong(element, StaticCode::S1, what))
            }
        }
    }

    fn no_text(&self, element: Element<'d>) -> Read<()> {
        let text = |node: &Node<'_, '_>| node.is_text() && node.text().is_some_and(|text| !text.trim().is_empty());
        match element.children().find(text) {
            None => Ok(()),
            Some(_) => {
                let what = format!("there is text in '{}'", element.tag_name().name());
                Err(self.wrong(element, StaticCode::S1, what))
            }
        }
    }

    fn check_references(&self, set: &TemplateSet) -> Read<()> {
        let known: BTreeSet<&str> = set.templates.iter().map(|template| &*template.name.local).collect();
        for element in self.document.descendants() {
            let name = element.attribute("name").filter(|_| element.has_tag_name_of("templateRef"));
            if let Some(name) = name.filter(|name| !known.contains(name)) {
                return Err(self.wrong(element, StaticCode::D8, format!("there is no template '{name}'")));
            }
        }
        Ok(())
    }

    /// Refuses templates that refer to themselves endlessly. Recursive types are allowed.
    fn check_ends(&self, set: &TemplateSet) -> Read<()> {
        let Some(index) = endless(set) else { return Ok(()) };
        let mut templates = self.document.descendants().filter(|element| element.has_tag_name_of("template"));
        let element = templates.nth(index).unwrap_or(self.document.root_element());
        let name = set.templates.get(index).map_or_else(String::new, |template| template.name.to_string());
        let what = format!(
            "the template '{name}' refers to itself endlessly: a reference that leads back must stand alone in a group or sequence"
        );
        Err(self.wrong(element, StaticCode::Endless, what))
    }

    /// Checks the length of names, because many elements may inherit the same name.
    fn check_name(&self, element: Element<'d>, attribute: &str) -> Read<()> {
        match element.attribute(attribute) {
            Some(name) if name.len() > MAX_NAME => {
                let what = format!("'{attribute}' has {} bytes, allowed are {MAX_NAME}", name.len());
                Err(self.wrong(element, StaticCode::Limit, what))
            }
            _ => Ok(()),
        }
    }

    fn wrong(&self, element: Node<'_, '_>, code: StaticCode, what: impl Into<String>) -> TemplateError {
        let at = self.document.text_pos_at(element.range().start);
        TemplateError { code, line: at.row, column: at.col, what: what.into() }
    }
}

trait TagName {
    fn has_tag_name_of(&self, name: &str) -> bool;
}

impl TagName for Node<'_, '_> {
    fn has_tag_name_of(&self, name: &str) -> bool {
        self.is_element() && ours(*self) && self.tag_name().name() == name
    }
}

/// True for elements of the template namespace. Documents often have no namespace, or that of
/// version 1.2 or of a version before 1.1.
fn ours(element: Node<'_, '_>) -> bool {
    match element.tag_name().namespace() {
        None | Some(NAMESPACE | NAMESPACE_BEFORE) => true,
        Some(namespace) => namespace.starts_with("http://www.fixprotocol.org/ns/fast/td/"),
    }
}

/// Child elements without those of other namespaces.
fn children<'d>(element: Element<'d>) -> impl Iterator<Item = Element<'d>> {
    element.children().filter(|node| node.is_element() && ours(*node))
}

/// True for `reset="Y"`, or the same attribute of the session control protocol.
fn resets(element: Node<'_, '_>) -> bool {
    let mut attributes = element.attributes().filter(|attribute| attribute.name() == "reset");
    attributes.any(|attribute| matches!(attribute.value(), "Y" | "y" | "yes" | "true" | "1" | "T"))
}

/// The implicit name of a sequence's length. It contains a space, so no document can have the same
/// name.
fn implicit_length(sequence: &Name) -> Name {
    Name { namespace: sequence.namespace.clone(), local: format!("{} length", sequence.local) }
}

fn has_length(ty: FieldType) -> bool {
    matches!(ty, FieldType::Unicode | FieldType::Bytes)
}

fn field_type(element: Node<'_, '_>) -> Option<FieldType> {
    let int = |signed, bits| Some(FieldType::Int { signed, bits });
    match element.tag_name().name() {
        "int8" => int(true, 8),
        "int16" => int(true, 16),
        "int32" => int(true, 32),
        "int64" => int(true, 64),
        "uInt8" => int(false, 8),
        "uInt16" => int(false, 16),
        "uInt32" => int(false, 32),
        "uInt64" => int(false, 64),
        "decimal" => Some(FieldType::Decimal),
        "string" if element.attribute("charset") == Some("unicode") => Some(FieldType::Unicode),
        "string" => Some(FieldType::Ascii),
        "byteVector" => Some(FieldType::Bytes),
        _ => None,
    }
}

/// True if the operator is allowed for the type: the table in section 6.3 of the specification.
fn goes_with(kind: OperatorKind, ty: FieldType) -> bool {
    match kind {
        OperatorKind::Increment => matches!(ty, FieldType::Int { .. }),
        OperatorKind::Tail => matches!(ty, FieldType::Ascii | FieldType::Unicode | FieldType::Bytes),
        _ => true,
    }
}
