//! The decoding dialect of values in JSON notation. The walk of `lower/decode` calls it for each
//! value. It emits operations with the kernels of `scalars`, `delimiters` and `decimal`, and
//! touches the walk only.

use alloc::{string::ToString, vec::Vec};

use super::{
    Style, decimal,
    delimiters::{
        self, ARRAY, CASE, EXPECT, FIELDS, FLAG_BITS, KEY_NAMED, MAP, MATRICES, MEMBERS, NAMED, NULL, SHAPE, SKIP,
        TEXT, UNION, UNION_END, UNION_OF_INTEGER,
    },
    encode::MAX_RANK,
    quoted,
    scalars::{self, Form},
};
use crate::{
    codec::lower::{
        CaseIn, DecodeDialect, DecodeWalk, LowerError, Lowered, MemberIn, Slot, UnionIn, decode::key, is_decimal,
        symbols,
    },
    layout::Scalar,
    program::{Arm, ExpectedPrefix, OpKind, Source, TextForm, Wire},
    schema::{DefId, DefKind, Type},
};

pub(super) struct Dialect(pub Style);

impl DecodeDialect for Dialect {
    fn scalar(&self, walk: &mut DecodeWalk<'_>, ty: &Type, wire: Scalar, slot: &Slot<'_>) -> Lowered {
        let wire = match ty {
            Type::Def(id) => match symbols::flags(walk.writer(), *id) {
                Some(flags) => Wire::Symbol(&FLAG_BITS, flags),
                None => Wire::Symbol(&FIELDS, symbols::bit_fields(walk.writer(), *id, &str::to_string)),
            },
            _ => Wire::Kernel(scalars::kernel(ty, wire, Form::Value)),
        };
        walk.unless_skipped(&SKIP, slot, |walk| walk.get(ty, wire, slot))
    }

    fn enumeration(&self, walk: &mut DecodeWalk<'_>, id: DefId, _: Scalar, slot: &Slot<'_>) -> Lowered {
        let literals = walk.literals(id, slot);
        walk.unless_skipped(&SKIP, slot, |walk| walk.get(&Type::Def(id), Wire::Symbol(&NAMED, literals), slot))
    }

    fn text(&self, walk: &mut DecodeWalk<'_>, _: &Type, slot: &Slot<'_>) -> Lowered {
        walk.text(TextForm::Kernel(&TEXT), slot)
    }

    fn sequence(&self, walk: &mut DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> Lowered {
        walk.unless_skipped(&SKIP, slot, |walk| self.elements(walk, element, slot))
    }

    fn array(&self, walk: &mut DecodeWalk<'_>, element: &Type, dims: &[u32], slot: &Slot<'_>) -> Lowered {
        walk.unless_skipped(&SKIP, slot, |walk| {
            if dims.len() > MAX_RANK {
                return Err(walk.unsupported("an array of more than eight dimensions"));
            }
            let Some(dialect) = dims.len().checked_sub(2).and_then(|i| MATRICES.get(i)) else {
                return self.elements(walk, element, slot);
            };
            for (level, len) in dims.iter().enumerate() {
                walk.emit(OpKind::Action(&SHAPE, (level as u64) << 32 | u64::from(*len)));
            }
            walk.elements(slot, Source::Dialect(dialect), 1, |walk, slot| walk.value(element, slot))
        })
    }

    fn map(&self, walk: &mut DecodeWalk<'_>, key: &Type, value: &Type, slot: &Slot<'_>) -> Lowered {
        walk.unless_skipped(&SKIP, slot, |walk| {
            let key = |walk: &mut DecodeWalk<'_>, slot: &Slot<'_>| {
                self.key(walk, key, slot)?;
                walk.emit(OpKind::Action(&EXPECT, b':'.into()));
                Ok(())
            };
            walk.entries(slot, Source::Dialect(&MAP), 1, key, |walk, slot| walk.value(value, slot))
        })
    }

    fn structure(&self, walk: &mut DecodeWalk<'_>, id: DefId, members: &[MemberIn<'_>]) -> Lowered {
        match is_decimal(walk.writer(), id) {
            true if members.iter().all(|member| member.in_skipped) => {
                walk.emit(OpKind::Action(&SKIP, 0));
                Ok(())
            }
            true => decimal::read(walk, members, |walk| object(walk, members)),
            false => object(walk, members),
        }
    }

    fn union(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Lowered {
        let writer = walk.writer();
        let DefKind::Union { cases, .. } = &writer.def(union.id).kind else { return Err(walk.mismatch()) };
        let head = symbols::union_head(writer, union.discriminator, cases, &str::to_string);
        let kernel = match writer.resolve(union.discriminator) {
            Type::Char8 | Type::Char16 | Type::Bool | Type::Def(_) => &UNION,
            _ => &UNION_OF_INTEGER,
        };
        walk.unless_skipped(&SKIP, &union.slot, |walk| {
            walk.emit(OpKind::Get(Wire::Symbol(kernel, head)));
            walk.union_arms(union, |walk: &mut DecodeWalk<'_>, case: &CaseIn<'_>| {
                walk.emit(OpKind::Get(Wire::Symbol(&CASE, symbols::only(&case.member.name))));
                walk.case_value(case)
            })?;
            walk.emit(OpKind::Action(&UNION_END, 0));
            Ok(())
        })
    }
}

fn object(walk: &mut DecodeWalk<'_>, members: &[MemberIn<'_>]) -> Lowered {
    // Members that the reader lacks are skipped like unknown names, unless they must be understood.
    let known = members.iter().filter(|member| member.reader.is_some() || member.must_be_understood());
    let arms = known.enumerate().map(|(i, member)| {
        let name = [&quoted(&member.writer.name)[..], b":"].concat();
        let body = walk.block(|walk| walk.member_unless(&NULL, member))?;
        let absent = walk.block(|walk| walk.left_out(member))?;
        let prefix = match i {
            0 => delimiters::first_prefix(&name),
            _ => ExpectedPrefix::new(&[b",", &*name].concat()),
        };
        let prefix = Some(ExpectedPrefix { optional: member.writer.optional, ..prefix });
        Ok(Arm { key: key(member.writer.id, &name), prefix, body, absent })
    });
    let arms = arms.collect::<Result<Vec<_>, LowerError>>()?;
    walk.members(&MEMBERS, arms);
    Ok(())
}

impl Dialect {
    fn key(&self, walk: &mut DecodeWalk<'_>, ty: &Type, slot: &Slot<'_>) -> Lowered {
        let writer = walk.writer();
        match writer.resolve(ty) {
            Type::Def(id) => {
                let literals = walk.literals(*id, slot);
                walk.get(ty, Wire::Symbol(&KEY_NAMED, literals), slot)
            }
            ty @ (Type::String { .. } | Type::WString { .. }) => self.text(walk, ty, slot),
            ty => match crate::codec::lower::scalar_of(ty) {
                Some(scalar) => walk.get(ty, Wire::Kernel(scalars::kernel(ty, scalar, Form::Key)), slot),
                None => Err(walk.unsupported("a map's key of this type")),
            },
        }
    }

    fn elements(&self, walk: &mut DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> Lowered {
        let writer = walk.writer();
        let ty = writer.resolve(element);
        let kernel = walk.slice_scalar(ty, slot).and_then(|scalar| scalars::slice(ty, scalar, self.0.form, false));
        match kernel {
            Some(kernel) => walk.slice(slot, kernel),
            None => walk.elements(slot, Source::Dialect(&ARRAY), 1, |walk, slot| walk.value(element, slot)),
        }
    }
}
