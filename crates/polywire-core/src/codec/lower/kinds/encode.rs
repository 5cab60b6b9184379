//! The encoding dialect of self-describing formats: see [`Format`]. The walk of `lower/encode`
//! calls it for each value. It emits operations with the kernels of this folder, and touches the
//! walk only.

use alloc::vec::Vec;

use super::{
    DISCRIMINATOR, Format, Style, bytes_of,
    delimiters::{Delimiters, is_many},
    put::Kernels,
    slices,
};
use crate::{
    codec::lower::{EncodeDialect, EncodeWalk, Lowered, MemberOut, UnionOut, keys},
    layout::{Kind, Scalar},
    program::{OpKind, Order, Overflow, Place, ScalarKernel, SliceKernel, TextForm, Wire},
    schema::{Case, DefId, Schema, Type},
};

/// The encoding dialect of format `F`.
pub struct Encode<F> {
    style: Style,
    format: core::marker::PhantomData<F>,
}

/// Arrays of plain floating-point numbers up to this length are written without a loop.
const UNROLLED: u32 = 16;

impl<F: Format> EncodeDialect for Encode<F> {
    fn scalar(&self, walk: &mut EncodeWalk<'_>, ty: &Type, wire: Scalar, place: Place) -> Lowered {
        match (ty, wire) {
            (Type::Char8 | Type::Char16, _) => walk.put(place, Wire::Kernel(Kernels::<F>::CHARACTER)),
            (_, Scalar::Bool) => {
                walk.emit(OpKind::Load(place));
                let [otherwise, then] = walk.truths([&[F::TYPE_BYTES.no], &[F::TYPE_BYTES.yes]]);
                walk.emit(OpKind::If { then, otherwise });
                Ok(())
            }
            (_, Scalar::F32) if self.style.sorted => walk.put(place, Wire::Kernel(Kernels::<F>::SINGLE)),
            (_, Scalar::F64) if self.style.sorted => walk.put(place, Wire::Kernel(Kernels::<F>::DOUBLE)),
            (_, Scalar::F32) => fixed(walk, &[F::TYPE_BYTES.single], place, wire),
            (_, Scalar::F64) => fixed(walk, &[F::TYPE_BYTES.double], place, wire),
            (_, Scalar::F128) => fixed(walk, &bytes_of(|output| F::put_bytes(output, 16)), place, wire),
            (_, wire) if wire.is_signed() => walk.put(place, Wire::Inline(Kernels::<F>::INLINE_SIGNED, 0)),
            _ => walk.put(place, Wire::Inline(Kernels::<F>::INLINE_UNSIGNED, 0)),
        }
    }

    fn enumeration(&self, walk: &mut EncodeWalk<'_>, id: DefId, _: Scalar, place: Place) -> Lowered {
        let wire = match self.style.enum_names {
            true => Wire::Symbol(Kernels::<F>::LITERAL, walk.literals(id)),
            false => Wire::Inline(Kernels::<F>::INLINE_SIGNED, 0),
        };
        walk.put(place, wire)
    }

    fn text(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place) -> Lowered {
        walk.text(ty, place, TextForm::Kernel(Kernels::<F>::TEXT))
    }

    fn sequence(&self, walk: &mut EncodeWalk<'_>, element: &Type, bound: u32, place: Place) -> Lowered {
        if is_octet(walk.schema(), element) {
            put_length(walk, place, Kernels::<F>::BYTES);
            let (scalar, order, overflow) = (Scalar::U8, Order::Big, Overflow::Refuse);
            walk.emit(OpKind::Bulk { place, scalar, order, bound, overflow });
            return Ok(());
        }
        if let Some(kernel) = self.slice(walk, element, place) {
            return walk.slice(place, kernel, bound);
        }
        put_length(walk, place, Kernels::<F>::ARRAY);
        walk.elements(place, bound, |walk, inside| walk.value(element, inside))
    }

    fn array(&self, walk: &mut EncodeWalk<'_>, element: &Type, _: &[u32], place: Place) -> Lowered {
        let len = match walk.kind(place) {
            Some(Kind::Array { len, .. }) => *len,
            _ => return Err(walk.mismatch()),
        };
        if is_octet(walk.schema(), element) {
            return walk.slice(place, slices::octets::<F>(), 0);
        }
        let kernel = self.slice(walk, element, place);
        let is_float = kernel.is_some_and(|k| matches!(k.scalar, Scalar::F32 | Scalar::F64)) && !F::TYPED;
        match kernel {
            Some(kernel) if !is_float || len > UNROLLED => return walk.slice(place, kernel, 0),
            _ => walk.literal(bytes_of(|output| F::put_array(output, len.into()))),
        }
        match is_float {
            true => walk.unrolled(place, |walk, _, inside| walk.value(element, inside)),
            false => walk.elements(place, 0, |walk, inside| walk.value(element, inside)),
        }
    }

    fn map(&self, walk: &mut EncodeWalk<'_>, key: &Type, value: &Type, bound: u32, place: Place) -> Lowered {
        let entries = walk.block(|walk| {
            put_length(walk, place, Kernels::<F>::MAP);
            let key = |walk: &mut EncodeWalk<'_>, place| match F::NATIVE_KEYS {
                true => walk.value(key, place),
                false => keys::put::<F>(walk, key, place, self.style.enum_names),
            };
            walk.entries(place, bound, key, |walk, place| walk.value(value, place))
        })?;
        match self.style.sorted {
            true => walk.emit(OpKind::Region { dialect: Delimiters::<F>::SORTED, argument: 0, body: entries }),
            false => walk.append(entries),
        }
        Ok(())
    }

    fn structure(&self, walk: &mut EncodeWalk<'_>, _: DefId, members: &[MemberOut<'_>]) -> Lowered {
        if self.style.rows {
            return self.row(walk, members);
        }
        let mut members = members.to_vec();
        if self.style.sorted {
            members.sort_by_key(|out| name_bytes::<F>(&out.member.name));
        }
        let always = members.iter().filter(|out| !out.member.optional || self.style.write_null).count();
        let all = members.len();
        let body =
            walk.block(|walk| members.iter().try_for_each(|out| self.member(walk, out, is_many(all), all == always)))?;
        if F::CLOSED || all == always {
            open::<F>(walk, all as u64);
            walk.append(body);
            close::<F>(walk);
        } else {
            let argument = always as u64 | (all as u64) << 32;
            walk.emit(OpKind::Region { dialect: Delimiters::<F>::COUNTED, argument, body });
        }
        Ok(())
    }

    fn union(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Lowered {
        if self.style.rows {
            return self.pair(walk, union);
        }
        walk.union_arms(
            union,
            |walk, case, place| {
                self.case_head(walk, union, case)?;
                walk.literal(name_bytes::<F>(&case.member.name));
                walk.member(&case.member, place)?;
                close::<F>(walk);
                Ok(())
            },
            |walk| {
                open::<F>(walk, 1);
                walk.literal(name_bytes::<F>(DISCRIMINATOR));
                put_label::<F>(walk, union)?;
                close::<F>(walk);
                Ok(())
            },
        )
    }
}

impl<F: Format> Encode<F> {
    /// `style` has the codec's options.
    pub fn new(style: Style) -> Encode<F> {
        Encode { style, format: core::marker::PhantomData }
    }

    fn member(&self, walk: &mut EncodeWalk<'_>, out: &MemberOut<'_>, many: u64, uncounted: bool) -> Lowered {
        let name = name_bytes::<F>(&out.member.name);
        if !out.member.optional {
            walk.literal(&name);
            return walk.member(out.member, out.place);
        }
        walk.if_present(
            out,
            |walk, place| {
                walk.literal(&name);
                walk.member(out.member, place)?;
                if !F::CLOSED && !uncounted {
                    walk.emit(OpKind::Action(Delimiters::<F>::PRESENT, many));
                }
                Ok(())
            },
            |walk| {
                if self.style.write_null {
                    walk.literal(&name);
                    walk.literal([F::TYPE_BYTES.null]);
                }
                Ok(())
            },
        )
    }

    fn row(&self, walk: &mut EncodeWalk<'_>, members: &[MemberOut<'_>]) -> Lowered {
        walk.literal(bytes_of(|output| F::put_array(output, members.len() as u64)));
        members.iter().try_for_each(|out| match out.member.optional {
            false => walk.member(out.member, out.place),
            true => walk.if_present(
                out,
                |walk, place| walk.member(out.member, place),
                |walk| {
                    walk.literal([F::TYPE_BYTES.null]);
                    Ok(())
                },
            ),
        })
    }

    fn pair(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Lowered {
        let head = bytes_of(|output| F::put_array(output, 2));
        walk.union_arms(
            union,
            |walk, case, place| {
                walk.literal(&head);
                put_label::<F>(walk, union)?;
                walk.member(&case.member, place)
            },
            |walk| {
                walk.literal(&head);
                put_label::<F>(walk, union)?;
                walk.literal([F::TYPE_BYTES.null]);
                Ok(())
            },
        )
    }

    /// Emits the beginning of a union's map. It includes the discriminator, which is in the
    /// accumulator, if the name of the case does not determine it.
    fn case_head(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>, case: &Case) -> Lowered {
        let implied = |walk: &mut EncodeWalk<'_>| {
            open::<F>(walk, 1);
            Ok(())
        };
        walk.implied_or(case, implied, |walk| {
            open::<F>(walk, 2);
            walk.literal(name_bytes::<F>(DISCRIMINATOR));
            put_label::<F>(walk, union)
        })
    }

    /// The kernel for all elements at once, if there is one.
    fn slice(&self, walk: &EncodeWalk<'_>, element: &Type, place: Place) -> Option<&'static SliceKernel> {
        match walk.schema().resolve(element) {
            Type::Char8 | Type::Char16 => None,
            _ => slices::kernel::<F>(walk.element_scalar(place)?, self.style.sorted),
        }
    }
}

/// A member's name as the format writes it.
pub(super) fn name_bytes<F: Format>(name: &str) -> Vec<u8> {
    bytes_of(|output| F::put_name(output, name))
}

/// True for octets, of which sequences and arrays are written as bytes instead of an array.
pub(super) fn is_octet(schema: &Schema, element: &Type) -> bool {
    *schema.resolve(element) == Type::Octet
}

fn open<F: Format>(walk: &mut EncodeWalk<'_>, entries: u64) {
    let entries = if F::CLOSED { super::OPEN } else { entries };
    walk.literal(bytes_of(|output| F::put_map(output, entries)));
}

fn close<F: Format>(walk: &mut EncodeWalk<'_>) {
    if F::CLOSED {
        walk.literal([F::TYPE_BYTES.end]);
    }
}

/// Emits the discriminator, which is in the accumulator.
fn put_label<F: Format>(walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Lowered {
    match union.wire {
        Scalar::Bool => walk.put_truth([&[F::TYPE_BYTES.no], &[F::TYPE_BYTES.yes]]),
        _ => walk.emit(OpKind::Put(Wire::Inline(Kernels::<F>::INLINE_SIGNED, 0))),
    }
    Ok(())
}

/// Emits a scalar as a type byte followed by its bytes.
fn fixed(walk: &mut EncodeWalk<'_>, mark: &[u8], place: Place, wire: Scalar) -> Lowered {
    walk.literal(mark);
    walk.fixed(place, wire, Order::Big)
}

fn put_length(walk: &mut EncodeWalk<'_>, place: Place, kernel: &'static ScalarKernel) {
    walk.emit(OpKind::Length(place));
    walk.emit(OpKind::Put(Wire::Kernel(kernel)));
}
