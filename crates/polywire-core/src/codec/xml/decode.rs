//! The decoding dialect of XML. The program reads a value either from an element, beginning after
//! the element's name and ending after its end tag, or from an attribute.

use alloc::vec::Vec;

use super::{
    delimiters::{CASE, ELEMENT, FIELDS, FLAG_NAMES, ITEMS, LIST, MAP, MEMBERS, NAMED, NIL, SKIP, UNION, VALUE},
    element_name, is_listed, scalars,
};
use crate::{
    codec::lower::{
        CaseIn, DecodeDialect, DecodeWalk, LowerError, Lowered, MemberIn, Slot, UnionIn, decode::key, scalar_of,
        symbols,
    },
    layout::Scalar,
    program::{Arm, OpKind, Source, TextForm, Wire},
    schema::{DefId, DefKind, Type},
};

pub(super) struct Dialect;

impl DecodeDialect for Dialect {
    fn scalar(&self, walk: &mut DecodeWalk<'_>, ty: &Type, wire: Scalar, slot: &Slot<'_>) -> Lowered {
        let wire = match ty {
            Type::Def(id) => match symbols::flags(walk.writer(), *id) {
                Some(flags) => Wire::Symbol(&FLAG_NAMES, flags),
                None => Wire::Symbol(&FIELDS, symbols::bit_fields(walk.writer(), *id, &element_name)),
            },
            _ => Wire::Kernel(scalars::kernel(ty, wire)),
        };
        walk.unless_skipped(&SKIP, slot, |walk| walk.get(ty, wire, slot))
    }

    fn enumeration(&self, walk: &mut DecodeWalk<'_>, id: DefId, _: Scalar, slot: &Slot<'_>) -> Lowered {
        let literals = walk.literals(id, slot);
        walk.unless_skipped(&SKIP, slot, |walk| walk.get(&Type::Def(id), Wire::Symbol(&NAMED, literals), slot))
    }

    fn text(&self, walk: &mut DecodeWalk<'_>, _: &Type, slot: &Slot<'_>) -> Lowered {
        walk.text(TextForm::Kernel(&scalars::TEXT), slot)
    }

    fn sequence(&self, walk: &mut DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> Lowered {
        walk.unless_skipped(&SKIP, slot, |walk| elements(walk, element, slot))
    }

    fn array(&self, walk: &mut DecodeWalk<'_>, element: &Type, _: &[u32], slot: &Slot<'_>) -> Lowered {
        walk.unless_skipped(&SKIP, slot, |walk| elements(walk, element, slot))
    }

    fn map(&self, walk: &mut DecodeWalk<'_>, key: &Type, value: &Type, slot: &Slot<'_>) -> Lowered {
        let value = |walk: &mut DecodeWalk<'_>, slot: &Slot<'_>| {
            walk.emit(OpKind::Action(&VALUE, 0));
            walk.value(value, slot)
        };
        walk.unless_skipped(&SKIP, slot, |walk| {
            walk.entries(slot, Source::Dialect(&MAP), 1, |walk, slot| walk.value(key, slot), value)
        })
    }

    fn structure(&self, walk: &mut DecodeWalk<'_>, _: DefId, members: &[MemberIn<'_>]) -> Lowered {
        // Members that the reader lacks are skipped like unknown names, unless they must be
        // understood.
        let known = members.iter().filter(|member| member.reader.is_some() || member.must_be_understood());
        let arms = known.map(|member| {
            let body = walk.block(|walk| walk.member_unless(&NIL, member))?;
            let absent = walk.block(|walk| walk.left_out(member))?;
            Ok(Arm {
                key: key(member.writer.id, element_name(&member.writer.name).as_bytes()),
                prefix: None,
                body,
                absent,
            })
        });
        let arms = arms.collect::<Result<Vec<_>, LowerError>>()?;
        walk.members(&MEMBERS, arms);
        Ok(())
    }

    fn union(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Lowered {
        walk.unless_skipped(&SKIP, &union.slot, |walk| {
            let body = walk.block(|walk| cases(walk, union))?;
            walk.emit(OpKind::Region { dialect: &ELEMENT, argument: 0, body });
            Ok(())
        })
    }
}

fn cases(walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Lowered {
    let writer = walk.writer();
    let DefKind::Union { cases, .. } = &writer.def(union.id).kind else { return Err(walk.mismatch()) };
    let head = symbols::union_head(writer, union.discriminator, cases, &element_name);
    walk.emit(OpKind::Get(Wire::Symbol(&UNION, head)));
    walk.union_arms(union, |walk: &mut DecodeWalk<'_>, case: &CaseIn<'_>| {
        walk.emit(OpKind::Get(Wire::Symbol(&CASE, symbols::only(&element_name(&case.member.name)))));
        walk.case_value(case)
    })
}

fn elements(walk: &mut DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> Lowered {
    let ty = walk.writer().resolve(element);
    if !is_listed(ty) {
        return walk.elements(slot, Source::Dialect(&ITEMS), 1, |walk, slot| walk.value(element, slot));
    }
    if let Some(kernel) = walk.slice_scalar(ty, slot).and_then(|scalar| scalars::slice(ty, scalar)) {
        return walk.slice(slot, kernel);
    }
    let kernel = scalar_of(ty).filter(|_| *ty != Type::Octet).and_then(scalars::token);
    let kernel = kernel.ok_or_else(|| walk.unsupported("octets that become something else"))?;
    walk.elements(slot, Source::Dialect(&LIST), 1, |walk, slot| walk.get(ty, Wire::Kernel(kernel), slot))
}
