//! Converts constants to the types of members, and checks that they fit.

use alloc::{collections::BTreeMap, vec::Vec};

use super::{Def, DefId, DefKind, EnumLiteral, Literal, Schema, Type, builder::unalias};

/// Definitions with an index of all enum literals. The index is needed because a peer's schema may
/// have very many literals and as many members that mention them.
pub(super) struct Constants<'a> {
    defs: &'a [Def],
    by_name: BTreeMap<(u32, &'a str), &'a EnumLiteral>,
    by_value: BTreeMap<(u32, i128), &'a EnumLiteral>,
}

impl<'a> Constants<'a> {
    pub(super) fn of(defs: &'a [Def]) -> Constants<'a> {
        let enums = (0u32..).zip(defs).filter_map(|(i, def)| match &def.kind {
            DefKind::Enum { literals, .. } => Some((i, literals)),
            _ => None,
        });
        let all = enums.flat_map(|(i, literals)| literals.iter().map(move |l| (i, l)));
        Constants {
            defs,
            by_name: all.clone().map(|(i, l)| ((i, l.name.as_str()), l)).collect(),
            by_value: all.map(|(i, l)| ((i, l.value.into()), l)).collect(),
        }
    }

    /// Converts `literal` to a constant of type `ty`: an integer becomes a double, a scoped enum
    /// literal loses its scope, and so on. `None` if it is not a value of that type.
    ///
    /// A default then has the same form wherever the type comes from, so that type hashes agree.
    pub(super) fn fit(&self, ty: &Type, literal: &Literal) -> Option<Literal> {
        match (unalias(self.defs, ty)?, literal) {
            (Type::Bool, Literal::Bool(_)) => Some(literal.clone()),
            (Type::Bool, Literal::Int(value @ (0 | 1))) => Some(Literal::Bool(*value == 1)),
            (Type::Octet, Literal::Char(code)) => self.fit(ty, &Literal::Int((*code).into())),
            (Type::Float32, Literal::Float(value)) => single(*value),
            (Type::Float32, Literal::Int(value)) => single(*value as f64),
            (Type::Float64 | Type::Float128, Literal::Float(_)) => Some(literal.clone()),
            (Type::Float64 | Type::Float128, Literal::Int(value)) => Some(Literal::Float(*value as f64)),
            (Type::Char8, Literal::Char(code)) => (*code <= 0xFF).then(|| literal.clone()),
            (Type::Char16, Literal::Char(code)) => (*code <= 0xFFFF).then(|| literal.clone()),
            (Type::Char8 | Type::Char16, Literal::Int(code)) => {
                self.fit(ty, &Literal::Char(u32::try_from(*code).ok()?))
            }
            (Type::String { bound }, Literal::String(text)) => within(*bound, text.len(), literal),
            (Type::WString { bound }, Literal::String(text)) => within(*bound, text.encode_utf16().count(), literal),
            (Type::Def(id), _) => self.fit_def(id.0, literal),
            (ty, Literal::Int(value)) => integer_range(ty)?.contains(value).then(|| literal.clone()),
            _ => None,
        }
    }

    fn fit_def(&self, id: u32, literal: &Literal) -> Option<Literal> {
        let named = |found: &&EnumLiteral| Literal::Enum(found.name.clone());
        match (&self.defs.get(id as usize)?.kind, literal) {
            (DefKind::Enum { .. }, Literal::Enum(name)) => self.by_name.get(&(id, last_part(name))).map(named),
            (DefKind::Enum { .. }, Literal::Int(value)) => self.by_value.get(&(id, *value)).map(named),
            (DefKind::Bitmask { flags, .. }, Literal::Enum(name)) => {
                let name = last_part(name);
                flags.iter().find(|f| f.name == name).map(|f| Literal::Int(1 << f.position))
            }
            (DefKind::Bitmask { bit_bound, .. }, Literal::Int(bits)) => fits_bits(*bits, *bit_bound, literal),
            (DefKind::Bitset { .. }, Literal::Int(bits)) => fits_bits(*bits, 64, literal),
            _ => None,
        }
    }
}

/// Rounds to `float` as a reader would. `None` for a finite value that would become infinite.
fn single(value: f64) -> Option<Literal> {
    let rounded = f64::from(value as f32);
    (rounded.is_finite() || !value.is_finite()).then_some(Literal::Float(rounded))
}

fn within(bound: u32, len: usize, literal: &Literal) -> Option<Literal> {
    (bound == 0 || len as u64 <= u64::from(bound)).then(|| literal.clone())
}

fn last_part(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

fn fits_bits(bits: i128, width: u8, literal: &Literal) -> Option<Literal> {
    let end = 1i128.checked_shl(width.into())?;
    (0..end).contains(&bits).then(|| literal.clone())
}

/// The range of an integer type or octet. `None` for other types.
pub(super) fn integer_range(ty: &Type) -> Option<core::ops::RangeInclusive<i128>> {
    Some(match ty {
        Type::Octet | Type::Uint8 => 0..=u8::MAX.into(),
        Type::Int8 => i8::MIN.into()..=i8::MAX.into(),
        Type::Int16 => i16::MIN.into()..=i16::MAX.into(),
        Type::Uint16 => 0..=u16::MAX.into(),
        Type::Int32 => i32::MIN.into()..=i32::MAX.into(),
        Type::Uint32 => 0..=u32::MAX.into(),
        Type::Int64 => i64::MIN.into()..=i64::MAX.into(),
        Type::Uint64 => 0..=u64::MAX.into(),
        _ => return None,
    })
}

/// The places of an enum's literals. A peer's enum may have very many literals, and as many members
/// whose defaults are looked up.
pub(super) struct Literals {
    id: DefId,
    by_name: Vec<u32>,
    /// The one with `@default_literal`.
    marked: Option<u32>,
}

impl Literals {
    /// Those of all enums, in ascending order of their ids.
    pub(super) fn of_all(defs: &[Def]) -> Vec<Literals> {
        let of = |(id, def): (u32, &Def)| {
            let DefKind::Enum { literals, .. } = &def.kind else { return None };
            let mut by_name: Vec<u32> = (0..literals.len() as u32).collect();
            by_name.sort_unstable_by(|a, b| literals[*a as usize].name.cmp(&literals[*b as usize].name));
            let marked = literals.iter().position(|l| l.is_default).map(|at| at as u32);
            Some(Literals { id: DefId(id), by_name, marked })
        };
        (0u32..).zip(defs).filter_map(of).collect()
    }
}

impl Schema {
    /// The literal of an enum with a name.
    pub(crate) fn literal_named(&self, id: DefId, name: &str) -> Option<&EnumLiteral> {
        let (places, literals) = self.literals(id)?;
        let at = places.by_name.binary_search_by(|at| literals[*at as usize].name.as_str().cmp(name)).ok()?;
        literals.get(places.by_name[at] as usize)
    }

    /// The literal of an enum that a fresh value has: that with `@default_literal`, or the first.
    pub(crate) fn default_literal(&self, id: DefId) -> Option<&EnumLiteral> {
        self.marked_literal(id).or_else(|| self.literals(id)?.1.first())
    }

    /// The literal of an enum with `@default_literal`.
    pub(crate) fn marked_literal(&self, id: DefId) -> Option<&EnumLiteral> {
        let (places, literals) = self.literals(id)?;
        literals.get(places.marked? as usize)
    }

    fn literals(&self, id: DefId) -> Option<(&Literals, &[EnumLiteral])> {
        let at = self.0.literals.binary_search_by_key(&id, |places| places.id).ok()?;
        match &self.def(id).kind {
            DefKind::Enum { literals, .. } => Some((&self.0.literals[at], literals)),
            _ => None,
        }
    }
}
