//! Converts parsed types to the types of a schema.

use polywire_core::schema::{DefKind, Type};

use super::Checker;
use crate::ast::{Declarator, Expr, TypeKind, TypeSpec};
use crate::source::Dialect;

/// The bytes that a copied node of a type counts for.
const NODE_BYTES: usize = 16;

impl Checker<'_> {
    pub(super) fn type_of(&mut self, spec: &TypeSpec) -> Option<Type> {
        self.spend(NODE_BYTES);
        Some(match &spec.kind {
            TypeKind::Primitive(ty) => ty.clone(),
            TypeKind::String { wide: false, bound } => Type::String { bound: self.bound(bound.as_ref())? },
            TypeKind::String { wide: true, bound } => Type::WString { bound: self.bound(bound.as_ref())? },
            TypeKind::Sequence { element, bound } => {
                let element = self.type_of(element);
                let bound = self.bound(bound.as_ref())?;
                Type::Sequence { element: Box::new(element?), bound }
            }
            TypeKind::Map { key, value, bound } => {
                let key_type = self.type_of(key);
                let value = self.type_of(value);
                let bound = self.bound(bound.as_ref())?;
                let key_type = key_type?;
                self.check_map_key(&key_type, key)?;
                Type::Map { key: Box::new(key_type), value: Box::new(value?), bound }
            }
            TypeKind::Named(name) => Type::Def(self.type_named(name)?),
            TypeKind::Unsupported => return None,
        })
    }

    /// The value of a bound, or 0 without one: unbounded.
    fn bound(&mut self, bound: Option<&Expr>) -> Option<u32> {
        match bound {
            None => Some(0),
            Some(expr) => self.integer(expr, "a bound", 1, i128::from(u32::MAX)).map(|n| n as u32),
        }
    }

    fn check_map_key(&mut self, ty: &Type, spec: &TypeSpec) -> Option<()> {
        let good = match self.resolve(ty) {
            Type::Def(id) => matches!(self.kind_of(id), Some(DefKind::Enum { .. })),
            Type::String { .. } | Type::WString { .. } => true,
            Type::Float32 | Type::Float64 | Type::Float128 => false,
            ty => ty.is_primitive(),
        };
        if !good {
            self.reporter
                .error(spec.span, "this type cannot be the key of a map")
                .help("expected a boolean, integer, character, string or enum");
        }
        good.then_some(())
    }

    /// The type of a declarator: `ty`, or an array of it.
    pub(super) fn declared_type(&mut self, ty: &Type, declarator: &Declarator) -> Option<Type> {
        // Each declarator copies the type.
        self.spend(NODE_BYTES * nodes(ty));
        if declarator.dims.is_empty() {
            return Some(ty.clone());
        }
        let mut dims = Vec::new();
        for dim in &declarator.dims {
            dims.push(self.integer(dim, "the length of an array", 1, i128::from(u32::MAX))? as u32);
        }
        Some(Type::array(ty.clone(), dims))
    }

    /// Reports an error if the type is used by value before it is complete, which IDL does not
    /// allow.
    pub(super) fn check_complete(&mut self, ty: &Type, spec: &TypeSpec) -> Option<()> {
        let mut at = ty;
        while let Type::Array { element, .. } = at {
            at = element;
        }
        let Type::Def(id) = self.resolve(at) else { return Some(()) };
        let slot = &self.slots[id.0 as usize];
        if slot.def.is_some() || self.dialect == Dialect::Pdl {
            return Some(());
        }
        let (name, declared) = (slot.name.clone(), slot.span);
        self.reporter
            .error_beside(spec.span, format!("'{name}' is incomplete here"), "it is only declared here", declared)
            .help(format!("use sequence<{name}>, or make the member @external @optional"));
        None
    }

    /// The type with typedefs resolved, as far as they are defined already.
    pub(super) fn resolve(&self, ty: &Type) -> Type {
        let mut at = ty;
        for _ in 0..=self.slots.len() {
            match at {
                Type::Def(id) => match self.kind_of(*id) {
                    Some(DefKind::Alias { target }) => at = target,
                    _ => break,
                },
                _ => break,
            }
        }
        at.clone()
    }

    pub(super) fn kind_of(&self, id: polywire_core::schema::DefId) -> Option<&DefKind> {
        self.slots[id.0 as usize].def.as_ref().map(|d| &d.kind)
    }

    /// The name of a type for diagnostics.
    pub(super) fn type_name(&self, ty: &Type) -> String {
        match ty {
            Type::Def(id) => format!("'{}'", self.slots[id.0 as usize].name),
            Type::String { bound: 0 } => "'string'".into(),
            Type::String { bound } => format!("'string<{bound}>'"),
            Type::WString { bound: 0 } => "'wstring'".into(),
            Type::WString { bound } => format!("'wstring<{bound}>'"),
            Type::Sequence { .. } => "sequence".into(),
            Type::Map { .. } => "map".into(),
            Type::Array { .. } => "array".into(),
            primitive => format!("'{}'", primitive.keyword()),
        }
    }
}

fn nodes(ty: &Type) -> usize {
    match ty {
        Type::Sequence { element, .. } | Type::Array { element, .. } => 1 + nodes(element),
        Type::Map { key, value, .. } => 1 + nodes(key) + nodes(value),
        _ => 1,
    }
}
