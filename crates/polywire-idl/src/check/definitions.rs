//! Checks definitions and constants. Each kind has a function.

use std::collections::HashMap;
use std::rc::Rc;

use polywire_core::schema::{self, BitField, Case, Def, DefId, DefKind, EnumLiteral, Flag, Literal, Member, Type};

use super::Checker;
use super::annotations::{MemberAnnotations, TypeAnnotations};
use super::names::{Entity, full};
use crate::ast::{self, Declarator, Expr, Item, Name, ScopedName, TypeSpec};
use crate::document::Constant;
use crate::source::{Dialect, Span};

impl Checker<'_> {
    pub(super) fn constant(&mut self, item: &Item, name: &Name, ty: &TypeSpec, value: &Expr) {
        let full = self.full_name(&name.text);
        let Some(ty) = self.type_of(ty) else { return };
        let literal = self.literal(value, &ty).unwrap_or(Literal::Int(0));
        if self.declare(&full, Entity::Constant(self.constants.len()), name.span) {
            let doc = item.doc.as_deref().unwrap_or("").to_string();
            self.spend(full.len());
            self.constants.push(Constant { name: full, ty, value: literal, doc });
        }
    }

    pub(super) fn typedef(&mut self, item: &Item, target: &TypeSpec, declarators: &[Declarator]) {
        let Some(target) = self.type_of(target) else {
            // The name is declared even if the definition is wrong. Otherwise each use of it would
            // be another error.
            return declarators.iter().for_each(|d| self.define_alias(item, &d.name, Type::Octet));
        };
        self.aliases(item, &target, declarators);
    }

    pub(super) fn typedef_of(&mut self, item: &Item, inner: &Item, declarators: &[Declarator]) {
        self.item(inner);
        let Some(name) = inner.kind.name() else { return };
        let Some(id) = self.names.type_named(&self.scope, std::slice::from_ref(&name.text)) else { return };
        self.aliases(item, &Type::Def(id), declarators);
    }

    fn aliases(&mut self, item: &Item, target: &Type, declarators: &[Declarator]) {
        for declarator in declarators {
            if self.exhausted() {
                return;
            }
            let ty = self.declared_type(target, declarator);
            self.define_alias(item, &declarator.name, ty.unwrap_or(Type::Octet));
        }
    }

    fn define_alias(&mut self, item: &Item, name: &Name, target: Type) {
        let given = self.type_annotations(item, "a typedef");
        self.parts += 1;
        if self.is_the_same_typedef(name, &target) {
            return;
        }
        let Some(id) = self.declare_type(name) else { return };
        let mut def = Def::alias(self.full_name(&name.text), target);
        (def.annotations, def.doc) = (given.kept, given.doc);
        self.slots[id.0 as usize].def = Some(def);
    }

    /// Whether the typedef repeats an earlier one. Generators write the same typedef before each
    /// use.
    fn is_the_same_typedef(&mut self, name: &Name, target: &Type) -> bool {
        let full = self.full_name(&name.text);
        let Some((id, first)) = self.names.declared_type(&full) else { return false };
        let same = matches!(self.kind_of(id), Some(DefKind::Alias { target: old }) if old == target);
        if same {
            let message = format!("'{}' is defined twice, as the same type", name.text);
            self.reporter.warning_beside(name.span, message, "the first one is here", first);
        }
        same
    }

    pub(super) fn structure(
        &mut self,
        item: &Item,
        name: &Name,
        base: Option<&ScopedName>,
        members: &[ast::Member],
        operations: &[ast::Operation],
        nested: bool,
    ) -> Option<DefId> {
        let mut given = self.type_annotations(item, "a structure");
        given.nested |= nested;
        // It counts as declared from here on, so that it can have members that are sequences of
        // itself.
        let id = self.declare_type(name);
        let base = base.and_then(|base| self.base(base, "structure", |k| matches!(k, DefKind::Struct { .. })));
        let mut seen = HashMap::new();
        let mut list = Vec::new();
        for member in members {
            if self.exhausted() {
                return None;
            }
            let Some(ty) = self.type_of(&member.ty) else { continue };
            for declarator in &member.declarators {
                if self.exhausted() {
                    return None;
                }
                self.check_sibling(&mut seen, &declarator.name, "member");
                list.extend(self.member(member, declarator, &ty));
            }
        }
        operations.iter().for_each(|operation| self.check_sibling(&mut seen, &operation.name, "name"));
        let kind = DefKind::Struct { base, members: list };
        self.define(id, name, kind, given);
        id
    }

    pub(super) fn define(&mut self, id: Option<DefId>, name: &Name, kind: DefKind, given: TypeAnnotations) {
        let Some(id) = id else { return };
        let TypeAnnotations { extensibility, nested, auto_id, kept: annotations, doc, bit_bound } = given;
        let takes_bound = matches!(kind, DefKind::Enum { .. } | DefKind::Bitmask { .. });
        if let (Some((_, span)), false) = (bit_bound, takes_bound) {
            self.reporter.warning(span, "@bit_bound has no effect here");
        }
        let name = self.full_name(&name.text);
        self.spend(name.len());
        self.slots[id.0 as usize].def = Some(Def { name, kind, extensibility, nested, auto_id, annotations, doc });
    }

    fn base(&mut self, base: &ScopedName, what: &str, good: fn(&DefKind) -> bool) -> Option<DefId> {
        let id = self.type_named(base)?;
        let Type::Def(id) = self.resolve(&Type::Def(id)) else {
            self.reporter.error(base.span, format!("'{}' is not a {what}", base.text()));
            return None;
        };
        match self.kind_of(id) {
            Some(kind) if good(kind) => Some(id),
            // PDL may define the base later. The builder of the schema checks it then.
            None if self.dialect == Dialect::Pdl => Some(id),
            None => {
                self.reporter.error(base.span, format!("'{}' is incomplete here", base.text()));
                None
            }
            Some(_) => {
                self.reporter.error(base.span, format!("'{}' is not a {what}", base.text()));
                None
            }
        }
    }

    pub(super) fn member(&mut self, member: &ast::Member, declarator: &Declarator, ty: &Type) -> Option<Member> {
        let ty = self.declared_type(ty, declarator)?;
        self.parts += 1;
        let given = self.member_annotations(&member.annotations, &declarator.name.text, &ty);
        // The builder of the schema checks whether a value would be finite.
        if !given.external {
            self.check_complete(&ty, &member.ty)?;
        }
        if given.default_case {
            self.reporter.error(declarator.name.span, "@default takes one argument");
        }
        if given.key && given.optional {
            self.reporter.error(declarator.name.span, "a member cannot be both @key and @optional");
        }
        Some(self.build_member(member, &declarator.name, ty, given))
    }

    fn build_member(&mut self, member: &ast::Member, name: &Name, ty: Type, given: MemberAnnotations) -> Member {
        let doc = member.doc.as_deref().map(str::to_string).or(given.doc).unwrap_or_default();
        self.spend(doc.len());
        Member {
            name: name.text.to_string(),
            id: 0,
            explicit_id: given.explicit_id,
            ty,
            key: given.key,
            optional: given.optional,
            must_understand: given.must_understand,
            external: given.external,
            default: given.default,
            try_construct: given.try_construct,
            annotations: given.kept,
            doc,
        }
    }

    pub(super) fn union(
        &mut self,
        item: &Item,
        name: &Name,
        switch: &TypeSpec,
        switch_annotations: &[ast::Annotation],
        cases: &[ast::Case],
    ) {
        let given = self.type_annotations(item, "a union");
        let id = self.declare_type(name);
        let key = self.switch_key(switch_annotations);
        let written = self.discriminator(switch);
        let discriminator = written.as_ref().map(|ty| self.holder_of_bitmask(ty));
        let mut names = HashMap::new();
        let mut labels = HashMap::new();
        let mut list = Vec::new();
        for case in cases {
            if self.exhausted() {
                return;
            }
            list.extend(self.case(case, written.as_ref(), &mut names, &mut labels));
        }
        if list.is_empty() && discriminator.is_some() {
            self.reporter.error(name.span, "a union needs at least one case");
        }
        let discriminator = discriminator.unwrap_or(Type::Int32);
        self.define(id, name, DefKind::Union { discriminator, key, cases: list }, given);
    }

    fn discriminator(&mut self, spec: &TypeSpec) -> Option<Type> {
        let ty = self.type_of(spec)?;
        let good = match self.resolve(&ty) {
            Type::Bool | Type::Char8 | Type::Char16 => true,
            Type::Def(id) => matches!(self.kind_of(id), Some(DefKind::Enum { .. } | DefKind::Bitmask { .. })),
            other => self.integer_range(&other).is_some(),
        };
        if !good {
            self.reporter
                .error(spec.span, "a union cannot switch on this type")
                .help("expected a boolean, octet, integer, character, enum or bitmask");
            return None;
        }
        Some(ty)
    }

    /// A bitmask as discriminator becomes the integer that it is on the wire, because a schema
    /// cannot represent it otherwise.
    fn holder_of_bitmask(&self, ty: &Type) -> Type {
        let bits = match self.resolve(ty) {
            Type::Def(id) => match self.kind_of(id) {
                Some(DefKind::Bitmask { bit_bound, .. }) => schema::holder_bits(*bit_bound),
                _ => return ty.clone(),
            },
            _ => return ty.clone(),
        };
        match bits {
            8 => Type::Uint8,
            16 => Type::Uint16,
            32 => Type::Uint32,
            _ => Type::Uint64,
        }
    }

    fn case(
        &mut self,
        case: &ast::Case,
        discriminator: Option<&Type>,
        names: &mut HashMap<String, (Rc<str>, Span)>,
        labels: &mut HashMap<Option<i64>, Span>,
    ) -> Option<Case> {
        let declarator = case.member.declarators.first()?;
        self.check_sibling(names, &declarator.name, "case");
        let mut values = Vec::new();
        let mut is_default = false;
        for (label, span) in &case.labels {
            self.parts += 1;
            let value = match label {
                None => None,
                Some(expr) => match discriminator.and_then(|ty| self.label(expr, ty)) {
                    Some(value) => Some(value),
                    None => continue,
                },
            };
            if let Some(first) = labels.insert(value, *span) {
                self.reporter.error_beside(*span, "duplicate label", "the first one is here", first);
                continue;
            }
            is_default |= value.is_none();
            values.extend(value);
        }
        let ty = self.type_of(&case.member.ty)?;
        let ty = self.declared_type(&ty, declarator)?;
        let mut given = self.member_annotations(&case.member.annotations, &declarator.name.text, &ty);
        is_default |= std::mem::take(&mut given.default_case);
        if !given.external {
            self.check_complete(&ty, &case.member.ty)?;
        }
        if given.key || given.optional {
            let what = if given.key { "@key" } else { "@optional" };
            self.reporter.error(declarator.name.span, format!("a case of a union cannot be {what}"));
        }
        let member = self.build_member(&case.member, &declarator.name, ty, given);
        Some(Case { labels: values, is_default, member })
    }

    fn label(&mut self, expr: &Expr, discriminator: &Type) -> Option<i64> {
        let number = match self.literal(expr, discriminator)? {
            Literal::Bool(value) => i128::from(value),
            Literal::Int(value) => value,
            Literal::Char(code) => i128::from(code),
            Literal::Enum(name) => {
                let Type::Def(id) = self.resolve(discriminator) else { return None };
                let Some(DefKind::Enum { literals, .. }) = self.kind_of(id) else { return None };
                i128::from(literals.iter().find(|l| l.name == name)?.value)
            }
            Literal::Float(_) | Literal::String(_) => return None,
        };
        let label = i64::try_from(number).ok();
        if label.is_none() {
            self.reporter.error(expr.span, format!("labels above {} are not supported", i64::MAX));
        }
        label
    }

    pub(super) fn enumeration(&mut self, item: &Item, name: &Name, literals: &[ast::EnumLiteral]) {
        let given = self.type_annotations(item, "an enum");
        let bit_bound = self.bit_bound(&given, 32);
        // Values may use all bits, with or without a sign, but must fit the signed integer on the
        // wire.
        let holder = [8, 16].into_iter().find(|bits| bit_bound <= *bits).unwrap_or(32);
        let (min, max) = (-(1i128 << (bit_bound - 1)), ((1i128 << bit_bound) - 1).min((1i128 << (holder - 1)) - 1));
        let mut seen = HashMap::new();
        let mut list: Vec<EnumLiteral> = Vec::new();
        let mut values = HashMap::new();
        for literal in literals {
            self.check_sibling(&mut seen, &literal.name, "literal");
            let own = self.literal_annotations(&literal.annotations, "value", min, max);
            let next = list.last().map_or(0, |last| i128::from(last.value) + 1);
            let value = own.value.unwrap_or(next);
            if !(min..=max).contains(&value) {
                let message = format!("the value of this literal is {value}, but must be between {min} and {max}");
                self.reporter.error(literal.name.span, message);
            } else if let Some(first) = values.insert(value, literal.name.span) {
                let message = format!("duplicate value {value}");
                self.reporter.error_beside(literal.name.span, message, "the first one is here", first);
            }
            let (name, value) = (literal.name.text.to_string(), value.clamp(min, max) as i32);
            list.push(EnumLiteral { name, value, is_default: own.is_default, annotations: own.kept });
        }
        if list.is_empty() {
            self.reporter.error(name.span, "an enum needs at least one literal");
        }
        self.parts += list.len();
        let id = self.declare_type(name);
        self.declare_parts(id, name, literals, Entity::Literal, true);
        self.define(id, name, DefKind::Enum { bit_bound, literals: list }, given);
    }

    fn bit_bound(&mut self, given: &TypeAnnotations, most: u8) -> u8 {
        match given.bit_bound {
            None => 32,
            Some((bits, _)) if bits <= most => bits,
            Some((bits, span)) => {
                self.reporter.error(span, format!("@bit_bound is {bits}, but must be between 1 and {most}"));
                most
            }
        }
    }

    /// Declares literals in the scope around their enum and, because people write `Enum::LITERAL`,
    /// also inside it. Flags are declared only inside.
    fn declare_parts(
        &mut self,
        id: Option<DefId>,
        owner: &Name,
        parts: &[ast::EnumLiteral],
        entity: fn(DefId, usize) -> Entity,
        outside: bool,
    ) {
        let Some(id) = id else { return };
        for (index, part) in parts.iter().enumerate() {
            let entity = entity(id, index);
            let name = full(&[self.full_name(&owner.text).into()], &part.name.text);
            self.spend(name.len());
            self.names_insert(&name, entity, part.name.span);
            if outside {
                let name = self.full_name(&part.name.text);
                self.declare(&name, entity, part.name.span);
            }
        }
    }

    pub(super) fn bitmask(&mut self, item: &Item, name: &Name, flags: &[ast::EnumLiteral]) {
        let given = self.type_annotations(item, "a bitmask");
        let bit_bound = self.bit_bound(&given, 64);
        let max = i128::from(bit_bound) - 1;
        let mut seen = HashMap::new();
        let mut taken: HashMap<u8, Span> = HashMap::new();
        let mut list: Vec<Flag> = Vec::new();
        for flag in flags {
            self.check_sibling(&mut seen, &flag.name, "flag");
            let own = self.literal_annotations(&flag.annotations, "position", 0, max);
            let position = own.value.unwrap_or(list.last().map_or(0, |last| i128::from(last.position) + 1));
            if position > max {
                let message = format!("the position of this flag is {position}, but must be between 0 and {max}");
                self.reporter.error(flag.name.span, message);
            }
            let good = position <= max;
            let position = position.clamp(0, max) as u8;
            if let Some(first) = taken.insert(position, flag.name.span).filter(|_| good) {
                let message = format!("duplicate position {position}");
                self.reporter.error_beside(flag.name.span, message, "the first one is here", first);
            }
            list.push(Flag { name: flag.name.text.to_string(), position, annotations: own.kept });
        }
        self.parts += list.len();
        let id = self.declare_type(name);
        self.declare_parts(id, name, flags, Entity::Flag, false);
        self.define(id, name, DefKind::Bitmask { bit_bound, flags: list }, given);
    }

    pub(super) fn bitset(&mut self, item: &Item, name: &Name, base: Option<&ScopedName>, fields: &[ast::BitField]) {
        let given = self.type_annotations(item, "a bitset");
        let base = base.and_then(|base| self.base(base, "bitset", |k| matches!(k, DefKind::Bitset { .. })));
        let mut seen = HashMap::new();
        let mut list = Vec::new();
        for field in fields {
            if self.exhausted() {
                return;
            }
            self.bit_field(field, &mut seen, &mut list);
        }
        let id = self.declare_type(name);
        self.define(id, name, DefKind::Bitset { base, fields: list }, given);
    }

    fn bit_field(
        &mut self,
        field: &ast::BitField,
        seen: &mut HashMap<String, (Rc<str>, Span)>,
        list: &mut Vec<BitField>,
    ) {
        let Some(width) = self.integer(&field.width, "the width of a bit field", 1, 64) else { return };
        let width = width as u8;
        let ty = match &field.ty {
            None => BitField::new("", width).ty,
            Some(spec) => match self.bit_field_type(spec, width) {
                Some(ty) => ty,
                None => return,
            },
        };
        let given = self.member_annotations(&field.annotations, "", &ty);
        let mut add = |name: Option<String>, annotations: Vec<schema::Annotation>| {
            list.push(BitField { name, position: 0, width, ty: ty.clone(), annotations });
        };
        if field.names.is_empty() {
            add(None, given.kept.clone());
        }
        for name in &field.names {
            add(Some(name.text.to_string()), given.kept.clone());
        }
        self.parts += field.names.len().max(1);
        field.names.iter().for_each(|name| self.check_sibling(seen, name, "field"));
    }

    fn bit_field_type(&mut self, spec: &TypeSpec, width: u8) -> Option<Type> {
        let ty = self.type_of(spec)?;
        let bits = match self.resolve(&ty) {
            Type::Bool => 1,
            Type::Def(_) => 0,
            other => match self.integer_range(&other) {
                Some((min, max)) => (max - min).ilog2() + 1,
                None => 0,
            },
        };
        if u32::from(width) <= bits {
            return Some(self.resolve(&ty));
        }
        let name = self.type_name(&ty);
        let message = match bits {
            0 => "the type of a bit field must be boolean, octet or an integer".into(),
            _ => format!("{width} bits do not fit into {name}"),
        };
        self.reporter.error(spec.span, message);
        None
    }
}
