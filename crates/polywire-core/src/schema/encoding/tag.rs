//! The numbers of kinds in the encoding and in the canonical form of schemas.

use alloc::vec::Vec;

use super::{put_signed, put_text, put_varint};
use crate::schema::{AutoId, DefKind, Extensibility, Literal, TryConstruct, Type};

pub(super) const STRING: u8 = 0x10;
pub(super) const WSTRING: u8 = 0x11;
pub(super) const SEQUENCE: u8 = 0x12;
pub(super) const ARRAY: u8 = 0x13;
pub(super) const MAP: u8 = 0x14;
pub(super) const DEF: u8 = 0x15;

/// The tag of a primitive: its place in the list, from 1. Returns 0 for other types, which no
/// caller passes.
pub(super) fn of_primitive(ty: &Type) -> u8 {
    Type::PRIMITIVES.iter().position(|p| p == ty).map_or(0, |place| place as u8 + 1)
}

pub(super) fn primitive(tag: u8) -> Option<Type> {
    Type::PRIMITIVES.get(usize::from(tag).checked_sub(1)?).cloned()
}

pub(super) const STRUCT: u8 = 1;
pub(super) const UNION: u8 = 2;
pub(super) const ENUM: u8 = 3;
pub(super) const BITMASK: u8 = 4;
pub(super) const BITSET: u8 = 5;
pub(super) const ALIAS: u8 = 6;

pub(super) fn of_def(kind: &DefKind) -> u8 {
    match kind {
        DefKind::Struct { .. } => STRUCT,
        DefKind::Union { .. } => UNION,
        DefKind::Enum { .. } => ENUM,
        DefKind::Bitmask { .. } => BITMASK,
        DefKind::Bitset { .. } => BITSET,
        DefKind::Alias { .. } => ALIAS,
    }
}

pub(super) fn of_extensibility(extensibility: Extensibility) -> u8 {
    match extensibility {
        Extensibility::Final => 0,
        Extensibility::Appendable => 1,
        Extensibility::Mutable => 2,
    }
}

pub(super) fn extensibility(number: u8) -> Option<Extensibility> {
    [Extensibility::Final, Extensibility::Appendable, Extensibility::Mutable].get(usize::from(number)).copied()
}

pub(super) fn auto_id(hash: bool) -> AutoId {
    if hash { AutoId::Hash } else { AutoId::Sequential }
}

pub(super) fn try_construct(use_default: bool, trim: bool) -> Option<TryConstruct> {
    match (use_default, trim) {
        (false, false) => Some(TryConstruct::Discard),
        (true, false) => Some(TryConstruct::UseDefault),
        (false, true) => Some(TryConstruct::Trim),
        (true, true) => None,
    }
}

/// Packs flags into a byte, the first flag in the least significant bit.
pub(super) fn flags<const N: usize>(flags: [bool; N]) -> u8 {
    flags.iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(*flag))
}

pub(super) const BOOL: u8 = 1;
pub(super) const INT: u8 = 2;
pub(super) const FLOAT: u8 = 3;
pub(super) const CHAR: u8 = 4;
pub(super) const TEXT: u8 = 5;
pub(super) const LITERAL: u8 = 6;

pub(super) fn put_literal(out: &mut Vec<u8>, literal: &Literal) {
    match literal {
        Literal::Bool(value) => out.extend([BOOL, u8::from(*value)]),
        Literal::Int(value) => {
            out.push(INT);
            put_signed(out, *value);
        }
        Literal::Float(value) => {
            out.push(FLOAT);
            out.extend(value.to_bits().to_le_bytes());
        }
        Literal::Char(code) => {
            out.push(CHAR);
            put_varint(out, (*code).into());
        }
        Literal::String(text) => {
            out.push(TEXT);
            put_text(out, text);
        }
        Literal::Enum(name) => {
            out.push(LITERAL);
            put_text(out, name);
        }
    }
}
