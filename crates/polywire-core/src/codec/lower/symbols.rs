//! Tables of names and numbers, made from schemas: enum literals, flags, bit fields, union cases.
//! The dialects of [`kinds`](super::kinds), [`json`](super::json), BSON and XML use them. They read
//! schemas only.

use alloc::{boxed::Box, collections::BTreeSet, format, string::String, sync::Arc, vec::Vec};

use crate::{
    program::{FaultKind, Output, Status, SymbolTable, kernels::number},
    schema::{Case, Def, DefId, DefKind, Schema, Type},
};

fn table(symbols: impl Iterator<Item = (i64, Box<str>)>, otherwise: Option<i64>) -> Arc<SymbolTable> {
    Arc::new(SymbolTable::new(symbols, otherwise))
}

/// The literals of an enum, by value. `otherwise` is the value for names that the table lacks.
pub fn literals(schema: &Schema, id: DefId, otherwise: Option<i32>) -> Arc<SymbolTable> {
    let symbols = enum_literals(schema, id).into_iter().map(|(value, name)| (value, name.into()));
    table(symbols, otherwise.map(i64::from))
}

fn enum_literals(schema: &Schema, id: DefId) -> Vec<(i64, &str)> {
    match &schema.def(id).kind {
        DefKind::Enum { literals, .. } => literals.iter().map(|l| (l.value.into(), l.name.as_str())).collect(),
        _ => Vec::new(),
    }
}

/// The flags of a bitmask, by position. `None` for a bitset.
pub fn flags(schema: &Schema, id: DefId) -> Option<Arc<SymbolTable>> {
    match &schema.def(id).kind {
        DefKind::Bitmask { flags, .. } => {
            Some(table(flags.iter().map(|f| (f.position.into(), f.name.as_str().into())), None))
        }
        _ => None,
    }
}

/// The named fields of a bitset. `spelt` converts names to the format's spelling.
pub fn bit_fields(schema: &Schema, id: DefId, spelt: &dyn Fn(&str) -> String) -> Arc<SymbolTable> {
    let signed = |ty: &Type| matches!(schema.resolve(ty), Type::Int8 | Type::Int16 | Type::Int32 | Type::Int64);
    let fields = schema.bit_fields(id).into_iter().filter_map(|f| {
        let name = f.name.as_deref()?;
        Some((field(f.position, f.width, signed(&f.ty)), spelt(name).into()))
    });
    table(fields, None)
}

/// The names with which a union may begin: its cases with their first labels, and the literals of
/// the discriminator's enum. `spelt` converts case names to the format's spelling.
pub fn union_head(
    schema: &Schema,
    discriminator: &Type,
    cases: &[Case],
    spelt: &dyn Fn(&str) -> String,
) -> Arc<SymbolTable> {
    let cases_by_name = cases.iter().map(|case| {
        let label = case.labels.first().copied().unwrap_or_else(|| free_label(schema, discriminator, cases));
        (label, spelt(&case.member.name).into())
    });
    let literals = match schema.resolve(discriminator) {
        Type::Def(id) => enum_literals(schema, *id),
        _ => Vec::new(),
    };
    let mark = char::from(LITERAL);
    let literals = literals.into_iter().map(|(value, name)| (value, format!("{mark}{name}").into()));
    table(cases_by_name.chain(literals), None)
}

/// A discriminator that is no case's label, so it selects the default case.
fn free_label(schema: &Schema, discriminator: &Type, cases: &[Case]) -> i64 {
    let labels: BTreeSet<i64> = cases.iter().flat_map(|case| case.labels.iter().copied()).collect();
    let taken = |value: &i64| labels.contains(value);
    let free = match schema.def_of(discriminator) {
        Some(Def { kind: DefKind::Enum { literals, .. }, .. }) => {
            literals.iter().map(|l| i64::from(l.value)).find(|value| !taken(value))
        }
        _ => (0..).find(|value| !taken(value)),
    };
    free.unwrap_or(0)
}

/// A table with a single name.
pub fn only(name: &str) -> Arc<SymbolTable> {
    table([(0, String::from(name).into())].into_iter(), None)
}

/// Position, width and sign of a bitset's field, packed into a number for the symbol table.
pub fn field(position: u8, width: u8, signed: bool) -> i64 {
    i64::from(position) << 16 | i64::from(width) << 8 | i64::from(signed)
}

/// Unpacks a number made by [`field`]: position, mask with as many bits as the field is wide, and
/// sign.
pub fn parts(field: i64) -> (u32, u64, bool) {
    let width = (field >> 8 & 0xFF).clamp(1, 64) as u32;
    ((field >> 16 & 63) as u32, u64::MAX >> (64 - width), field & 1 == 1)
}

/// Writes the value of a bitset's field in decimal digits.
pub fn put_field(output: &mut Output<'_>, value: u64, mask: u64, signed: bool) -> Status {
    match signed && value > mask >> 1 {
        true => number::put_i64(output, (value | !mask) as i64),
        false => number::put_u64(output, value),
    }
}

/// Sets a bitset's field. Fails with the field's bits if the value does not fit.
pub fn with_field(bits: u64, field: i64, value: i128) -> Result<u64, u64> {
    let (position, mask, signed) = parts(field);
    let (min, max) = if signed { (-i128::from(mask >> 1) - 1, mask >> 1) } else { (0, mask) };
    match (min..=i128::from(max)).contains(&value) {
        true => Ok(bits & !(mask << position) | (value as u64 & mask) << position),
        false => Err(mask.count_ones().into()),
    }
}

/// The value of a literal in a table of [`union_head`]. Fails with `UnknownLiteral` if the table
/// lacks the literal, and with `WrongKind` if the discriminator is not an enum.
pub fn label_of(table: &SymbolTable, literal: &[u8]) -> Result<i64, FaultKind> {
    table.value_behind(LITERAL, literal).ok_or_else(|| {
        match table.iter().any(|(_, name)| name.as_bytes().first() == Some(&LITERAL)) {
            true => FaultKind::UnknownLiteral,
            false => FaultKind::WrongKind,
        }
    })
}

/// The first byte of a literal's name in a table of [`union_head`]. Case names do not begin with
/// it.
pub const LITERAL: u8 = b'=';
