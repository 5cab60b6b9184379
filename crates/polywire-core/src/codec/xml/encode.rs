//! The encoding dialect of XML. The owner of a value writes the value's tags; the value itself
//! writes what is between them.

use alloc::format;
use core::cell::Cell;

use super::{
    Style,
    delimiters::{FIELDS, FLAG_NAMES, NAMED, NUMBERED},
    element_name, is_listed, scalars,
    tokens::MAX_ATTRIBUTES,
    writes_its_bracket,
};
use crate::{
    codec::lower::{EncodeDialect, EncodeWalk, Lowered, MemberOut, UnionOut, scalar_of, symbols},
    layout::Scalar,
    program::{OpKind, Place, TextForm, Wire},
    schema::{Case, Def, DefId, DefKind, Schema, Type, array_len},
};

pub(super) struct Dialect {
    style: Style,
    /// True while an attribute's value is written.
    in_attribute: Cell<bool>,
}

impl EncodeDialect for Dialect {
    fn scalar(&self, walk: &mut EncodeWalk<'_>, ty: &Type, _: Scalar, place: Place) -> Lowered {
        let Type::Def(id) = ty else {
            let memory = walk.memory_scalar(place)?;
            return walk.put(place, Wire::Kernel(scalars::kernel(ty, memory)));
        };
        let wire = match symbols::flags(walk.schema(), *id) {
            Some(flags) if self.style.flag_names => Wire::Symbol(&FLAG_NAMES, flags),
            Some(_) => Wire::Kernel(scalars::kernel(&Type::Uint64, Scalar::U64)),
            None => Wire::Symbol(&FIELDS, symbols::bit_fields(walk.schema(), *id, &element_name)),
        };
        walk.put(place, wire)
    }

    fn enumeration(&self, walk: &mut EncodeWalk<'_>, id: DefId, _: Scalar, place: Place) -> Lowered {
        let kernel = if self.style.enum_numbers { &NUMBERED } else { &NAMED };
        let literals = walk.literals(id);
        walk.put(place, Wire::Symbol(kernel, literals))
    }

    fn text(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place) -> Lowered {
        let kernel = if self.in_attribute.get() { &scalars::ATTRIBUTE_TEXT } else { &scalars::TEXT };
        walk.text(ty, place, TextForm::Kernel(kernel))
    }

    fn sequence(&self, walk: &mut EncodeWalk<'_>, element: &Type, bound: u32, place: Place) -> Lowered {
        elements(walk, element, bound, place)
    }

    fn array(&self, walk: &mut EncodeWalk<'_>, element: &Type, dims: &[u32], place: Place) -> Lowered {
        match array_len(dims) {
            Some(_) => elements(walk, element, 0, place),
            None => Err(walk.unsupported("an array of more elements than can be counted")),
        }
    }

    fn map(&self, walk: &mut EncodeWalk<'_>, key: &Type, value: &Type, bound: u32, place: Place) -> Lowered {
        let key = |walk: &mut EncodeWalk<'_>, place| {
            walk.literal("<entry>");
            element(walk, "key", key, |walk| walk.value(key, place))
        };
        walk.entries(place, bound, key, |walk, place| {
            element(walk, "value", value, |walk| walk.value(value, place))?;
            walk.literal("</entry>");
            Ok(())
        })
    }

    fn structure(&self, walk: &mut EncodeWalk<'_>, _: DefId, members: &[MemberOut<'_>]) -> Lowered {
        let mut left = if self.style.attributes { MAX_ATTRIBUTES } else { 0 };
        let as_attribute = |out: &&MemberOut<'_>| {
            // An attribute `xmlns` is a namespace to every reader.
            let named = element_name(&out.member.name) != "xmlns";
            let fits = left > 0 && named && fits_attribute(walk.schema(), &out.member.ty);
            left -= usize::from(fits);
            fits
        };
        let (attributes, elements): (alloc::vec::Vec<_>, alloc::vec::Vec<_>) = members.iter().partition(as_attribute);
        for out in attributes {
            member(walk, out, |walk, place| {
                walk.literal(format!(" {}=\"", element_name(&out.member.name)));
                let outer = self.in_attribute.replace(true);
                let done = walk.member(out.member, place);
                self.in_attribute.set(outer);
                walk.literal("\"");
                done
            })?;
        }
        walk.literal(">");
        for out in elements {
            member(walk, out, |walk, place| {
                let name = element_name(&out.member.name);
                element(walk, &name, &out.member.ty, |walk| walk.member(out.member, place))
            })?;
        }
        Ok(())
    }

    fn union(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Lowered {
        let arm = |walk: &mut EncodeWalk<'_>, case: &Case, place| {
            walk.implied_or(case, |_| Ok(()), |walk| self.discriminator(walk, union))?;
            walk.literal(">");
            let name = element_name(&case.member.name);
            element(walk, &name, &case.member.ty, |walk| walk.member(&case.member, place))
        };
        let none = |walk: &mut EncodeWalk<'_>| {
            self.discriminator(walk, union)?;
            walk.literal(">");
            Ok(())
        };
        walk.union_arms(union, arm, none)
    }
}

impl Dialect {
    pub(super) fn new(style: Style) -> Dialect {
        Dialect { style, in_attribute: Cell::new(false) }
    }

    /// Emits the discriminator, which is in the accumulator, as an attribute.
    fn discriminator(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Lowered {
        walk.literal(" discriminator=\"");
        let ty = walk.schema().resolve(union.discriminator);
        match (walk.schema().def_of(ty), ty) {
            (Some(Def { kind: DefKind::Enum { .. }, .. }), Type::Def(id)) => {
                let kernel = if self.style.enum_numbers { &NUMBERED } else { &NAMED };
                let literals = walk.literals(*id);
                walk.emit(OpKind::Put(Wire::Symbol(kernel, literals)));
            }
            _ if union.wire == Scalar::Bool => walk.put_truth([b"false", b"true"]),
            _ => {
                // Characters are written as codes, because a digit would look like a number.
                walk.emit(OpKind::Put(Wire::Kernel(scalars::kernel(&Type::Int64, Scalar::I64))));
            }
        }
        walk.literal("\"");
        Ok(())
    }
}

fn elements(walk: &mut EncodeWalk<'_>, ty: &Type, bound: u32, place: Place) -> Lowered {
    let resolved = walk.schema().resolve(ty);
    if !is_listed(resolved) {
        let item = |walk: &mut EncodeWalk<'_>, place| element(walk, "item", ty, |walk| walk.value(ty, place));
        return walk.elements(place, bound, item);
    }
    let kernel = scalar_of(resolved).and_then(|scalar| scalars::slice(resolved, scalar));
    walk.slice(place, kernel.ok_or_else(|| walk.mismatch())?, bound)
}

/// True if the type's values are plain text without tags.
fn fits_attribute(schema: &Schema, ty: &Type) -> bool {
    match schema.resolve(ty) {
        Type::Def(id) => matches!(schema.def(*id).kind, DefKind::Enum { .. } | DefKind::Bitmask { .. }),
        Type::Sequence { .. } | Type::Array { .. } | Type::Map { .. } => false,
        _ => true,
    }
}

/// Emits `fill` for a member's value, if the member is present.
fn member(
    walk: &mut EncodeWalk<'_>,
    out: &MemberOut<'_>,
    fill: impl FnOnce(&mut EncodeWalk<'_>, Place) -> Lowered,
) -> Lowered {
    match out.member.optional {
        true => walk.if_present(out, fill, |_| Ok(())),
        false => fill(walk, out.place),
    }
}

/// Emits a value with its tags.
fn element(
    walk: &mut EncodeWalk<'_>,
    name: &str,
    ty: &Type,
    value: impl FnOnce(&mut EncodeWalk<'_>) -> Lowered,
) -> Lowered {
    let bracket = if writes_its_bracket(walk.schema(), ty) { "" } else { ">" };
    walk.literal(format!("<{name}{bracket}"));
    value(walk)?;
    walk.literal(format!("</{name}>"));
    Ok(())
}
