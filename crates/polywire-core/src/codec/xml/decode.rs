//! The decoding dialect of XML. The program reads a value either from an element, beginning after
//! the element's name and ending after its end tag, or from an attribute.

use alloc::{sync::Arc, vec::Vec};

use super::{
    delimiters::{CASE, ELEMENT, FIELDS, FLAG_NAMES, ITEMS, LIST, MAP, MEMBERS, NAMED, NIL, SKIP, UNION, VALUE},
    element_name, is_listed, scalars,
};
use crate::{
    codec::lower::{
        CaseIn, DecodeDialect, DecodeWalk, LowerError, MemberIn, Slot, UnionIn, decode::key, scalar_of, symbols,
    },
    layout::Scalar,
    program::{Arm, Block, MemberTable, OpKind, Overflow, Place, Source, TextForm, Wire},
    schema::{DefId, DefKind, Type},
};

pub(super) struct Dialect;

type Lowered = Result<(), LowerError>;

impl DecodeDialect for Dialect {
    fn scalar(&self, walk: &mut DecodeWalk<'_>, ty: &Type, wire: Scalar, slot: &Slot<'_>) -> Lowered {
        if slot.place == Place::Sink {
            return skip(walk);
        }
        let Type::Def(id) = ty else {
            return walk.get(ty, Wire::Kernel(scalars::kernel(ty, wire)), slot);
        };
        let wire = match symbols::flags(walk.writer(), *id) {
            Some(flags) => Wire::Symbol(&FLAG_NAMES, flags),
            None => Wire::Symbol(&FIELDS, symbols::bit_fields(walk.writer(), *id, &element_name)),
        };
        walk.get(ty, wire, slot)
    }

    fn enumeration(&self, walk: &mut DecodeWalk<'_>, id: DefId, _: Scalar, slot: &Slot<'_>) -> Lowered {
        if slot.place == Place::Sink {
            return skip(walk);
        }
        let literals = symbols::literals(walk.writer(), id, walk.default_literal(slot));
        walk.get(&Type::Def(id), Wire::Symbol(&NAMED, literals), slot)
    }

    fn text(&self, walk: &mut DecodeWalk<'_>, _: &Type, slot: &Slot<'_>) -> Lowered {
        walk.text(TextForm::Kernel(&scalars::TEXT), slot)
    }

    fn sequence(&self, walk: &mut DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> Lowered {
        if slot.place == Place::Sink {
            return skip(walk);
        }
        let (bound, overflow) = (walk.bound(slot), walk.overflow(slot));
        self.elements(walk, element, slot, bound, overflow)
    }

    fn array(&self, walk: &mut DecodeWalk<'_>, element: &Type, _: &[u32], slot: &Slot<'_>) -> Lowered {
        if slot.place == Place::Sink {
            return skip(walk);
        }
        self.elements(walk, element, slot, 0, Overflow::Refuse)
    }

    fn map(&self, walk: &mut DecodeWalk<'_>, key: &Type, value: &Type, slot: &Slot<'_>) -> Lowered {
        if slot.place == Place::Sink {
            return skip(walk);
        }
        let (key, value) = walk.entry(
            slot,
            |walk, slot| walk.value(key, slot),
            |walk, slot| {
                walk.emit(OpKind::Action(&VALUE, 0));
                walk.value(value, slot)
            },
        )?;
        let (bound, overflow, source) = (walk.bound(slot), walk.overflow(slot), Source::Dialect(&MAP));
        walk.emit(OpKind::Map { place: slot.place, source, key, value, bound, overflow, min_wire: 1 });
        Ok(())
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
        let table = Arc::new(MemberTable::new(arms.iter().map(|arm| arm.key.clone()).collect()));
        walk.emit(OpKind::Members { dialect: &MEMBERS, arms, table });
        Ok(())
    }

    fn union(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Lowered {
        if union.slot.place == Place::Sink {
            return skip(walk);
        }
        let body = walk.block(|walk| self.cases(walk, union))?;
        walk.emit(OpKind::Region { dialect: &ELEMENT, argument: 0, body });
        Ok(())
    }
}

impl Dialect {
    fn cases(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Lowered {
        let writer = walk.writer();
        let DefKind::Union { cases, .. } = &writer.def(union.id).kind else { return Err(walk.mismatch()) };
        let head = symbols::union_head(writer, union.discriminator, cases, &element_name);
        walk.emit(OpKind::Get(Wire::Symbol(&UNION, head)));
        walk.union_arms(union, |walk: &mut DecodeWalk<'_>, case: &CaseIn<'_>| {
            walk.emit(OpKind::Get(Wire::Symbol(&CASE, symbols::only(&element_name(&case.member.name)))));
            walk.case_value(case)
        })
    }

    fn elements(
        &self,
        walk: &mut DecodeWalk<'_>,
        element: &Type,
        slot: &Slot<'_>,
        bound: u32,
        overflow: Overflow,
    ) -> Lowered {
        let ty = walk.writer().resolve(element);
        let place = slot.place;
        let kernel = walk.slice_scalar(ty, slot).and_then(|scalar| scalars::slice(ty, scalar));
        let (dialect, element): (_, Block) = match (is_listed(ty), kernel) {
            (true, Some(kernel)) => {
                walk.emit(OpKind::Slice { place, kernel, bound, overflow });
                return Ok(());
            }
            (true, None) => {
                let kernel = scalar_of(ty).filter(|_| *ty != Type::Octet).and_then(scalars::token);
                let kernel = kernel.ok_or_else(|| walk.unsupported("octets that become something else"))?;
                (&LIST, walk.element(slot, |walk, slot| walk.get(ty, Wire::Kernel(kernel), slot))?)
            }
            (false, _) => (&ITEMS, walk.element(slot, |walk, slot| walk.value(element, slot))?),
        };
        let source = Source::Dialect(dialect);
        walk.emit(OpKind::Sequence { place, source, element, bound, overflow, min_wire: 1 });
        Ok(())
    }
}

/// Emits a skip of a value that the reader does not have.
fn skip(walk: &mut DecodeWalk<'_>) -> Lowered {
    walk.emit(OpKind::Action(&SKIP, 0));
    Ok(())
}
