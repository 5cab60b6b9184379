//! The decoding dialect of self-describing formats: see [`Format`]. The walk of `lower/decode`
//! calls it for each value. It emits operations with the kernels of this folder, and touches the
//! walk only.

use alloc::{string::ToString, vec::Vec};

use super::{
    Format, Style,
    delimiters::Delimiters,
    encode::{is_octet, name_bytes},
    put::Kernels,
    slices,
};
use crate::{
    codec::lower::{
        CaseIn, DecodeDialect, DecodeWalk, LowerError, Lowered, MemberIn, Slot, UnionIn, decode::key as member_key,
        keys, symbols,
    },
    layout::Scalar,
    program::{Arm, ExpectedPrefix, OpKind, Source, TextForm, Wire},
    schema::{DefId, Type},
};

/// The decoding dialect of format `F`.
pub struct Decode<F> {
    style: Style,
    format: core::marker::PhantomData<F>,
}

impl<F: Format> DecodeDialect for Decode<F> {
    fn scalar(&self, walk: &mut DecodeWalk<'_>, ty: &Type, wire: Scalar, slot: &Slot<'_>) -> Lowered {
        let kernel = match (ty, wire) {
            (Type::Char8 | Type::Char16, _) => Kernels::<F>::CHARACTER,
            (_, Scalar::Bool) => Kernels::<F>::BOOLEAN,
            (_, Scalar::F32) => Kernels::<F>::SINGLE,
            (_, Scalar::F64) => Kernels::<F>::DOUBLE,
            (_, Scalar::F128) => Delimiters::<F>::QUAD,
            (_, wire) if wire.is_signed() => Kernels::<F>::SIGNED,
            _ => Kernels::<F>::UNSIGNED,
        };
        walk.unless_skipped(Delimiters::<F>::SKIP, slot, |walk| walk.get(ty, Wire::Kernel(kernel), slot))
    }

    fn enumeration(&self, walk: &mut DecodeWalk<'_>, id: DefId, _: Scalar, slot: &Slot<'_>) -> Lowered {
        let literals = walk.literals(id, slot);
        let wire = Wire::Symbol(Kernels::<F>::LITERAL, literals);
        walk.unless_skipped(Delimiters::<F>::SKIP, slot, |walk| walk.get(&Type::Def(id), wire, slot))
    }

    fn text(&self, walk: &mut DecodeWalk<'_>, _: &Type, slot: &Slot<'_>) -> Lowered {
        walk.unless_skipped(Delimiters::<F>::SKIP, slot, |walk| walk.text(TextForm::Kernel(Kernels::<F>::TEXT), slot))
    }

    fn sequence(&self, walk: &mut DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> Lowered {
        walk.unless_skipped(Delimiters::<F>::SKIP, slot, |walk| elements::<F>(walk, element, slot, false))
    }

    fn array(&self, walk: &mut DecodeWalk<'_>, element: &Type, _: &[u32], slot: &Slot<'_>) -> Lowered {
        walk.unless_skipped(Delimiters::<F>::SKIP, slot, |walk| elements::<F>(walk, element, slot, true))
    }

    fn map(&self, walk: &mut DecodeWalk<'_>, key: &Type, value: &Type, slot: &Slot<'_>) -> Lowered {
        walk.unless_skipped(Delimiters::<F>::SKIP, slot, |walk| {
            let source = match F::COUNTED {
                true => {
                    walk.emit(OpKind::Get(Wire::Kernel(Kernels::<F>::MAP)));
                    Source::Count
                }
                false => Source::Dialect(Delimiters::<F>::ENTRIES),
            };
            let key = |walk: &mut DecodeWalk<'_>, slot: &Slot<'_>| match F::NATIVE_KEYS {
                true => walk.value(key, slot),
                false => keys::get::<F>(walk, key, slot),
            };
            walk.entries(slot, source, 2, key, |walk, slot| walk.value(value, slot))
        })
    }

    fn structure(&self, walk: &mut DecodeWalk<'_>, _: DefId, members: &[MemberIn<'_>]) -> Lowered {
        if self.style.rows {
            return row::<F>(walk, members);
        }
        let mut arms = members.iter().map(|member| arm::<F>(walk, member)).collect::<Result<Vec<Arm>, LowerError>>()?;
        if self.style.sorted {
            arms.sort_by(|a, b| a.key.name.cmp(&b.key.name));
        }
        walk.members(Delimiters::<F>::MEMBERS, arms);
        Ok(())
    }

    fn union(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Lowered {
        walk.unless_skipped(Delimiters::<F>::SKIP, &union.slot, |walk| match self.style.rows {
            true => pair::<F>(walk, union),
            false => walk.named_case(
                union,
                [Delimiters::<F>::SELECTOR, Delimiters::<F>::CHARACTER_SELECTOR],
                Delimiters::<F>::MEMBERS,
                Delimiters::<F>::UNION,
                |name| name_bytes::<F>(name).into(),
            ),
        })
    }
}

impl<F: Format> Decode<F> {
    /// `style` has the options that the encoder had.
    pub fn new(style: Style) -> Decode<F> {
        Decode { style, format: core::marker::PhantomData }
    }
}

/// Emits the elements of a sequence or array.
fn elements<F: Format>(walk: &mut DecodeWalk<'_>, ty: &Type, slot: &Slot<'_>, array: bool) -> Lowered {
    let writer = walk.writer();
    let kernel = match (walk.slice_scalar(ty, slot), writer.resolve(ty)) {
        (_, Type::Char8 | Type::Char16) => None,
        (Some(Scalar::U8), _) if is_octet(writer, ty) => Some(slices::octets::<F>()),
        (Some(scalar), _) => slices::kernel::<F>(scalar, false),
        (None, _) => None,
    };
    if let Some(kernel) = kernel {
        return walk.slice(slot, kernel);
    }
    let source = match (F::COUNTED, array) {
        (true, false) => {
            walk.emit(OpKind::Get(Wire::Kernel(Kernels::<F>::ARRAY)));
            Source::Count
        }
        _ => Source::Dialect(Delimiters::<F>::SEQUENCE),
    };
    walk.elements(slot, source, 1, |walk, inside| walk.value(ty, inside))
}

fn arm<F: Format>(walk: &mut DecodeWalk<'_>, member: &MemberIn<'_>) -> Result<Arm, LowerError> {
    let key = member_key(member.writer.id, &name_bytes::<F>(&member.writer.name));
    let body = walk.block(|walk| walk.member_unless(Delimiters::<F>::NULL, member))?;
    let absent = walk.block(|walk| walk.left_out(member))?;
    let prefix = ExpectedPrefix { optional: member.writer.optional, counted: true, ..ExpectedPrefix::new(&key.name) };
    let prefix = (!F::TYPED).then_some(prefix);
    Ok(Arm { key, prefix, body, absent })
}

fn row<F: Format>(walk: &mut DecodeWalk<'_>, members: &[MemberIn<'_>]) -> Lowered {
    let body =
        walk.block(|walk| members.iter().try_for_each(|member| walk.member_unless(Delimiters::<F>::NULL, member)))?;
    walk.emit(OpKind::Region { dialect: Delimiters::<F>::ROW, argument: members.len() as u64, body });
    Ok(())
}

/// Emits a union as an array of its discriminator and its value.
fn pair<F: Format>(walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Lowered {
    let writer = walk.writer();
    let table = symbols::union_head(writer, union.discriminator, &[], &str::to_string);
    let kernel = if walk.is_character(union) { Delimiters::<F>::CHARACTER_LABEL } else { Delimiters::<F>::LABEL };
    let body = walk.block(|walk| {
        walk.emit(OpKind::Get(Wire::Symbol(kernel, table)));
        walk.union_arms(union, |walk: &mut DecodeWalk<'_>, case: &CaseIn<'_>| {
            walk.emit(OpKind::Action(Delimiters::<F>::SKIP, 0));
            walk.case_value(case)
        })
    })?;
    walk.emit(OpKind::Region { dialect: Delimiters::<F>::PAIR, argument: 0, body });
    Ok(())
}
