//! Types, constants and default values in Rust.

use polywire_core::schema::{DefKind, Literal, Type};

use super::super::{EmitError, float_text};
use super::Writer;
use super::names::{camel, raw};
use crate::document::Constant;

/// The standard library implements `Default` for arrays up to this length.
const LONGEST_DEFAULT_ARRAY: u32 = 32;

impl Writer<'_> {
    pub(super) fn rust_type(&self, ty: &Type, from: &[String]) -> String {
        match ty {
            Type::Bool => "bool".into(),
            Type::Octet | Type::Uint8 => "u8".into(),
            Type::Int8 => "i8".into(),
            Type::Int16 => "i16".into(),
            Type::Uint16 => "u16".into(),
            Type::Int32 => "i32".into(),
            Type::Uint32 => "u32".into(),
            Type::Int64 => "i64".into(),
            Type::Uint64 => "u64".into(),
            Type::Float32 => "f32".into(),
            Type::Float64 => "f64".into(),
            Type::Float128 => "polywire::Float128".into(),
            Type::Char8 => "polywire::Char8".into(),
            Type::Char16 => "polywire::Char16".into(),
            Type::String { .. } | Type::WString { .. } => self.std("String", "string"),
            Type::Sequence { element, .. } => format!("{}<{}>", self.std("Vec", "vec"), self.rust_type(element, from)),
            Type::Map { key, value, .. } => {
                let (key, value) = (self.rust_type(key, from), self.rust_type(value, from));
                format!("std::collections::BTreeMap<{key}, {value}>")
            }
            Type::Array { element, dims } => {
                dims.iter().rev().fold(self.rust_type(element, from), |inner, n| format!("[{inner}; {n}]"))
            }
            Type::Def(id) => self.names.path(from, *id),
        }
    }

    /// A name of the prelude. It is written with its full path if one of the types has the same
    /// name.
    pub(super) fn std(&self, name: &'static str, module: &'static str) -> String {
        if self.names.hides(name) { format!("std::{module}::{name}") } else { name.into() }
    }

    /// The IDL type for the attribute `idl`, if the Rust type does not determine it.
    pub(super) fn idl_text(&self, ty: &Type) -> Option<String> {
        self.says_more(ty).then(|| self.full_text(ty))
    }

    fn says_more(&self, ty: &Type) -> bool {
        match self.schema.resolve(ty) {
            Type::Octet | Type::WString { .. } | Type::Char16 => true,
            Type::String { bound } => *bound != 0,
            Type::Sequence { element, bound } => *bound != 0 || self.says_more(element),
            Type::Array { element, .. } => self.says_more(element),
            Type::Map { key, value, bound } => *bound != 0 || self.says_more(key) || self.says_more(value),
            _ => false,
        }
    }

    /// The type in IDL, with typedefs replaced. The dimensions of an array follow its element type.
    pub(super) fn full_text(&self, ty: &Type) -> String {
        let tail = |bound: u32| if bound == 0 { ">".to_string() } else { format!(", {bound}>") };
        match self.schema.resolve(ty) {
            Type::String { bound: 0 } => "string".into(),
            Type::String { bound } => format!("string<{bound}>"),
            Type::WString { bound: 0 } => "wstring".into(),
            Type::WString { bound } => format!("wstring<{bound}>"),
            Type::Sequence { element, bound } => format!("sequence<{}{}", self.full_text(element), tail(*bound)),
            Type::Map { key, value, bound } => {
                format!("map<{}, {}{}", self.full_text(key), self.full_text(value), tail(*bound))
            }
            array @ Type::Array { .. } => self.array_text(array),
            Type::Def(id) => self.schema.def(*id).name.clone(),
            primitive => primitive.keyword().into(),
        }
    }

    /// All dimensions of an array of arrays, the outermost first.
    fn array_text(&self, array: &Type) -> String {
        let (mut at, mut text) = (array, String::new());
        while let Type::Array { element, dims } = at {
            text.extend(dims.iter().map(|n| format!("[{n}]")));
            at = self.schema.resolve(element);
        }
        self.full_text(at) + &text
    }

    /// Whether the standard library has no `Default` for the type.
    pub(super) fn needs_own_default(&self, ty: &Type) -> bool {
        match self.schema.resolve(ty) {
            Type::Array { element, dims } => {
                dims.iter().any(|n| *n > LONGEST_DEFAULT_ARRAY) || self.needs_own_default(element)
            }
            _ => false,
        }
    }

    /// A literal in the syntax of the derive's attributes. Enum literals are written as their
    /// names.
    pub(super) fn attribute_value(&self, literal: &Literal, ty: &Type) -> Result<String, EmitError> {
        Ok(match literal {
            Literal::Bool(value) => value.to_string(),
            Literal::Int(value) => value.to_string(),
            Literal::Float(value) if !value.is_finite() => {
                let what = format!("there is no literal for the default {value}");
                return Err(EmitError::Value { def: self.def.clone(), what });
            }
            Literal::Float(value) => float(*value, self.schema.resolve(ty)),
            Literal::Char(code) => match char::from_u32(*code) {
                Some(c) => format!("{c:?}"),
                None => code.to_string(),
            },
            Literal::String(text) | Literal::Enum(text) => format!("{text:?}"),
        })
    }

    /// The Rust type and value of a constant.
    pub(super) fn constant_text(&self, constant: &Constant, from: &[String]) -> Result<(String, String), EmitError> {
        let ty = self.schema.resolve(&constant.ty);
        let no_value =
            || EmitError::Value { def: constant.name.clone(), what: "the value does not fit the type".into() };
        Ok(match (&constant.value, ty) {
            (Literal::String(text), _) => ("&str".into(), format!("{text:?}")),
            (Literal::Char(code), Type::Char8) => ("u8".into(), code.to_string()),
            (Literal::Char(code), _) => ("u16".into(), code.to_string()),
            (Literal::Float(value), Type::Float32) => ("f32".into(), float(*value, ty)),
            (Literal::Float(value), _) => ("f64".into(), float(*value, ty)),
            (Literal::Int(value), Type::Def(id)) => {
                let path = self.names.path(from, *id);
                (path.clone(), format!("{path}({value})"))
            }
            (Literal::Enum(name), Type::Def(id)) => match &self.schema.def(*id).kind {
                DefKind::Enum { literals, .. } => {
                    let variants = super::variant_names(literals.iter().map(|l| l.name.as_str()), camel);
                    let index = literals.iter().position(|l| l.name == *name).ok_or_else(no_value)?;
                    let path = self.names.path(from, *id);
                    (path.clone(), format!("{path}::{}", raw(&variants[index])))
                }
                _ => return Err(no_value()),
            },
            (Literal::Bool(value), _) => ("bool".into(), value.to_string()),
            (Literal::Int(value), ty) if ty.is_primitive() => (self.rust_type(ty, from), value.to_string()),
            _ => return Err(no_value()),
        })
    }
}

fn float(value: f64, ty: &Type) -> String {
    let module = if *ty == Type::Float32 { "f32" } else { "f64" };
    match value {
        v if v.is_nan() => format!("{module}::NAN"),
        f64::INFINITY => format!("{module}::INFINITY"),
        f64::NEG_INFINITY => format!("{module}::NEG_INFINITY"),
        _ => float_text(value, Some(ty)),
    }
}
