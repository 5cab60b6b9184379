//! Annotations: known ones are applied, all others are kept in the schema.

use polywire_core::schema::{self, AutoId, Extensibility, Literal, MAX_MEMBER_ID, TryConstruct, Type, hash_id};

use super::names::Entity;
use super::values::Value;
use super::{Checker, ModuleAnnotations};
use crate::ast::{Annotation, Expr, ExprKind, Item, ScopedName};
use crate::diag::closest;

/// The annotations of a definition.
pub(super) struct TypeAnnotations {
    pub extensibility: Extensibility,
    pub nested: bool,
    pub auto_id: AutoId,
    pub bit_bound: Option<(u8, crate::source::Span)>,
    pub doc: String,
    pub kept: Vec<schema::Annotation>,
}

/// The annotations of a member.
#[derive(Default)]
pub(super) struct MemberAnnotations {
    pub explicit_id: Option<u32>,
    pub key: bool,
    pub optional: bool,
    pub must_understand: bool,
    pub external: bool,
    pub default: Option<Literal>,
    pub try_construct: TryConstruct,
    /// Whether `@default` is there without a value, which some files use for a case of a union.
    pub default_case: bool,
    pub doc: Option<String>,
    pub kept: Vec<schema::Annotation>,
}

/// The annotations of a literal or flag.
#[derive(Default)]
pub(super) struct LiteralAnnotations {
    pub value: Option<i128>,
    pub is_default: bool,
    pub kept: Vec<schema::Annotation>,
}

const KNOWN: &[&str] = &[
    "id",
    "autoid",
    "optional",
    "extensibility",
    "final",
    "appendable",
    "mutable",
    "position",
    "value",
    "key",
    "must_understand",
    "default_literal",
    "default",
    "range",
    "min",
    "max",
    "unit",
    "bit_bound",
    "external",
    "nested",
    "default_nested",
    "verbatim",
    "hashid",
    "try_construct",
    "topic",
    "service",
    "oneway",
    "ami",
    "data_representation",
    "uuid",
    "version",
];

impl Checker<'_> {
    pub(super) fn module_annotations(&mut self, annotations: &[Annotation]) -> ModuleAnnotations {
        let mut given = self.modules.last().copied().unwrap_or_default();
        for a in annotations {
            match a.name.as_str() {
                "autoid" => given.auto_id = self.auto_id(a).unwrap_or_default(),
                "default_nested" => given.nested = self.flag(a),
                "verbatim" | "uuid" | "version" => {}
                _ => self.no_effect(a, "a module"),
            }
        }
        given
    }

    pub(super) fn type_annotations(&mut self, item: &Item, what: &str) -> TypeAnnotations {
        let module = self.modules.last().copied().unwrap_or_default();
        let mut given = TypeAnnotations {
            extensibility: self.default_extensibility,
            nested: module.nested,
            auto_id: module.auto_id,
            bit_bound: None,
            doc: item.doc.as_deref().unwrap_or("").to_string(),
            kept: Vec::new(),
        };
        let explicit_nested = item.annotations.iter().any(|a| a.name == "nested");
        for a in &item.annotations {
            match a.name.as_str() {
                "final" => given.extensibility = Extensibility::Final,
                "appendable" => given.extensibility = Extensibility::Appendable,
                "mutable" => given.extensibility = Extensibility::Mutable,
                "extensibility" => given.extensibility = self.extensibility(a).unwrap_or_default(),
                "nested" => given.nested = self.flag(a),
                "autoid" => given.auto_id = self.auto_id(a).unwrap_or_default(),
                "bit_bound" => given.bit_bound = self.number(a, 1, 64).map(|n| (n as u8, a.span)),
                "verbatim" => given.doc = self.verbatim(a).filter(|_| given.doc.is_empty()).unwrap_or(given.doc),
                "topic" => {
                    given.nested &= explicit_nested;
                    self.keep(a, None, &mut given.kept);
                }
                "key" | "id" | "optional" | "must_understand" | "external" | "position" | "value" | "hashid"
                | "default_literal" | "try_construct" => self.no_effect(a, what),
                _ => self.keep(a, None, &mut given.kept),
            }
        }
        self.spend(given.doc.len());
        given
    }

    /// Reads the annotations of a member, for the declarator `name`.
    pub(super) fn member_annotations(
        &mut self,
        annotations: &[Annotation],
        name: &str,
        ty: &Type,
    ) -> MemberAnnotations {
        let mut given = MemberAnnotations::default();
        for a in annotations {
            match a.name.as_str() {
                "id" => given.explicit_id = self.number(a, 0, i128::from(MAX_MEMBER_ID)).map(|n| n as u32),
                "hashid" => given.explicit_id = self.hashed_id(a, name),
                "key" | "Key" => given.key = self.flag(a),
                "optional" => given.optional = self.flag(a),
                "must_understand" => given.must_understand = self.flag(a),
                "external" => given.external = self.flag(a),
                "default" if a.args.is_empty() => given.default_case = true,
                "default" => given.default = self.argument(a).and_then(|e| self.literal(&e, ty)),
                "try_construct" => given.try_construct = self.try_construct(a).unwrap_or_default(),
                "verbatim" => given.doc = self.verbatim(a),
                "min" | "max" | "range" => self.keep(a, Some(ty), &mut given.kept),
                "bit_bound" | "position" | "value" | "default_literal" | "nested" | "autoid" | "final"
                | "appendable" | "mutable" | "extensibility" | "default_nested" => self.no_effect(a, "a member"),
                _ => self.keep(a, None, &mut given.kept),
            }
        }
        given
    }

    /// Reads the annotations of a literal (`@value`) or flag (`@position`).
    pub(super) fn literal_annotations(
        &mut self,
        annotations: &[Annotation],
        value: &str,
        min: i128,
        max: i128,
    ) -> LiteralAnnotations {
        let mut given = LiteralAnnotations::default();
        for a in annotations {
            match a.name.as_str() {
                "value" | "position" if a.name == value => given.value = self.number(a, min, max),
                "default_literal" if value == "value" => given.is_default = self.flag(a),
                "verbatim" => {}
                "value" | "position" | "key" | "id" | "optional" | "default" | "default_literal" => {
                    self.no_effect(a, if value == "value" { "a literal" } else { "a flag" })
                }
                _ => self.keep(a, None, &mut given.kept),
            }
        }
        given
    }

    pub(super) fn switch_key(&mut self, annotations: &[Annotation]) -> bool {
        let mut key = false;
        for a in annotations {
            match a.name.as_str() {
                "key" => key = self.flag(a),
                "must_understand" | "verbatim" => {}
                _ => self.no_effect(a, "a discriminator"),
            }
        }
        key
    }

    fn no_effect(&mut self, a: &Annotation, what: &str) {
        self.reporter.warning(a.span, format!("@{} has no effect on {what}", a.name));
    }

    pub(super) fn no_effects(&mut self, annotations: &[Annotation], what: &str) {
        annotations.iter().filter(|a| a.name != "verbatim").for_each(|a| self.no_effect(a, what));
    }

    /// The argument of an annotation that takes exactly one.
    fn argument(&mut self, a: &Annotation) -> Option<Expr> {
        match a.args.as_slice() {
            [(name, expr)] if name.as_ref().is_none_or(|n| &*n.text == "value") => Some(expr.clone()),
            _ => {
                self.reporter.error(a.span, format!("@{} takes one argument", a.name));
                None
            }
        }
    }

    /// The value of a boolean annotation: `@key` means `@key(TRUE)`.
    fn flag(&mut self, a: &Annotation) -> bool {
        if a.args.is_empty() {
            return true;
        }
        let value = self.argument(a).and_then(|expr| self.literal(&expr, &Type::Bool));
        matches!(value, Some(Literal::Bool(true)))
    }

    fn number(&mut self, a: &Annotation, min: i128, max: i128) -> Option<i128> {
        let expr = self.argument(a)?;
        self.integer(&expr, &format!("@{}", a.name), min, max)
    }

    /// The value of an annotation whose argument is one of a list of words.
    fn word<T: Copy>(&mut self, a: &Annotation, words: &[(&str, T)]) -> Option<T> {
        let expr = self.argument(a)?;
        let text = match &expr.kind {
            ExprKind::Name(name) => name.parts.last().map(|p| p.text.to_string()).unwrap_or_default(),
            _ => String::new(),
        };
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let meant = closest(&text, known.iter().copied());
            let message = format!("@{} takes {}", a.name, known.join(" or "));
            self.reporter.error(expr.span, message).suggest(meant);
        }
        found.map(|(_, value)| *value)
    }

    fn extensibility(&mut self, a: &Annotation) -> Option<Extensibility> {
        let words = [
            ("FINAL", Extensibility::Final),
            ("APPENDABLE", Extensibility::Appendable),
            ("MUTABLE", Extensibility::Mutable),
        ];
        self.word(a, &words)
    }

    fn auto_id(&mut self, a: &Annotation) -> Option<AutoId> {
        if a.args.is_empty() {
            return Some(AutoId::Hash);
        }
        self.word(a, &[("SEQUENTIAL", AutoId::Sequential), ("HASH", AutoId::Hash)])
    }

    fn try_construct(&mut self, a: &Annotation) -> Option<TryConstruct> {
        if a.args.is_empty() {
            return Some(TryConstruct::UseDefault);
        }
        let words = [
            ("DISCARD", TryConstruct::Discard),
            ("USE_DEFAULT", TryConstruct::UseDefault),
            ("TRIM", TryConstruct::Trim),
        ];
        self.word(a, &words)
    }

    /// The id of `@hashid`, which hashes the name of the member, or of `@hashid("other")`.
    fn hashed_id(&mut self, a: &Annotation, name: &str) -> Option<u32> {
        if a.args.is_empty() {
            return Some(hash_id(name));
        }
        let expr = self.argument(a)?;
        match self.literal(&expr, &Type::string())? {
            Literal::String(text) if !text.is_empty() => Some(hash_id(&text)),
            _ => Some(hash_id(name)),
        }
    }

    /// The text of a comment that a generator, such as that of ROS 2, has put into an annotation.
    fn verbatim(&mut self, a: &Annotation) -> Option<String> {
        let argument = |name: &str| {
            let (_, expr) = a.args.iter().find(|(n, _)| n.as_ref().is_some_and(|n| &*n.text == name))?;
            match &expr.kind {
                ExprKind::String(text) => Some(text.to_string()),
                _ => None,
            }
        };
        let text = argument("text")?;
        self.spend(text.len());
        (argument("language")? == "comment").then(|| text.trim_end().to_string())
    }

    /// Keeps an annotation in the schema. `ty` is the type of its arguments, if known.
    fn keep(&mut self, a: &Annotation, ty: Option<&Type>, kept: &mut Vec<schema::Annotation>) {
        if !KNOWN.contains(&a.name.as_str())
            && let Some(meant) = closest(&a.name, KNOWN.iter().copied())
        {
            self.reporter
                .warning(a.span, format!("there is no annotation '@{}'", a.name))
                .suggest(Some(format!("@{meant}")));
        }
        self.spend(a.name.len());
        let mut args = Vec::new();
        for (name, expr) in &a.args {
            let Some(value) = self.kept_value(expr, ty) else { return };
            args.push((name.as_ref().map_or("value", |n| &n.text).to_string(), value));
        }
        kept.push(schema::Annotation { name: a.name.clone(), args });
    }

    fn kept_value(&mut self, expr: &Expr, ty: Option<&Type>) -> Option<Literal> {
        if let Some(words) = words(expr)
            && words.iter().any(|word| matches!(word, Word::Name(_)))
            && !words.iter().any(|word| matches!(word, Word::Name(name) if self.is_constant(name, ty)))
        {
            // Only the annotation may define these words, as in `@data_representation(XCDR1 |
            // XCDR2)`.
            let text = words.iter().map(Word::text).collect::<Vec<_>>().join(" | ");
            if ty.is_some() {
                self.reporter.warning(expr.span, format!("there is no constant '{text}' here"));
            }
            self.spend(text.len());
            return Some(Literal::Enum(text));
        }
        let value = self.value(expr, ty)?;
        let Some(ty) = ty else { return Some(self.as_written(value)) };
        if self.could_be(&value, ty) {
            return self.convert(value, ty, expr.span);
        }
        // This is a warning, because nothing is computed from the argument.
        let name = self.type_name(ty);
        self.reporter.warning(expr.span, format!("expected a value of type {name}"));
        Some(self.as_written(value))
    }

    fn is_constant(&self, name: &ScopedName, ty: Option<&Type>) -> bool {
        let constant = |e| matches!(e, Entity::Constant(_) | Entity::Literal(..) | Entity::Flag(..));
        let of_type = |ty| match (self.resolve(ty), name.parts.as_slice()) {
            (Type::Def(id), [only]) => self.literal_of(id, &only.text).is_some(),
            _ => false,
        };
        ty.is_some_and(of_type) || self.find_entity(name).is_some_and(constant)
    }

    fn could_be(&self, value: &Value, ty: &Type) -> bool {
        match (value, self.resolve(ty)) {
            (Value::Int(number), ty) => match self.integer_range(&ty) {
                Some((min, max)) => (min..=max).contains(number),
                None => matches!(ty, Type::Float32 | Type::Float64 | Type::Float128),
            },
            (Value::Float(number), Type::Float32) => (*number as f32).is_finite(),
            (Value::Float(_), Type::Float64 | Type::Float128) => true,
            (Value::Char(code), Type::Char8) => *code <= 0xFF,
            (Value::Char(_), Type::Char16) => true,
            (Value::Enum(id, ..), Type::Def(wanted)) => *id == wanted,
            _ => false,
        }
    }

    fn as_written(&mut self, value: Value) -> Literal {
        match value {
            Value::Int(value) => Literal::Int(value),
            Value::Float(value) => Literal::Float(value),
            Value::Bool(value) => Literal::Bool(value),
            Value::Char(code) => Literal::Char(code),
            Value::Enum(_, name, _) => Literal::Enum(name.to_string()),
            Value::String(text) => {
                self.spend(text.len());
                Literal::String(text.to_string())
            }
        }
    }
}

/// A part of the argument of an annotation.
enum Word<'a> {
    Name(&'a ScopedName),
    Number(i128),
}

impl Word<'_> {
    fn text(&self) -> String {
        match self {
            Word::Name(name) => name.text(),
            Word::Number(number) => number.to_string(),
        }
    }
}

/// The parts of an expression that consists of names and numbers joined by `|`, else `None`.
fn words(expr: &Expr) -> Option<Vec<Word<'_>>> {
    match &expr.kind {
        ExprKind::Name(name) => Some(vec![Word::Name(name)]),
        ExprKind::Int(number) => Some(vec![Word::Number(*number)]),
        ExprKind::Binary('|', left, right) => {
            let mut all = words(left)?;
            all.extend(words(right)?);
            Some(all)
        }
        _ => None,
    }
}
