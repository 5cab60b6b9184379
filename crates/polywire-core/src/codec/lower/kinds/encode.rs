//! The encoding dialect of self-describing formats: see [`Format`]. The walk of `lower/encode`
//! calls it for each value. It emits operations with the kernels of this folder, and touches the
//! walk only.

use alloc::{boxed::Box, sync::Arc, vec, vec::Vec};

use super::{
    DISCRIMINATOR, Format, Style, bytes_of,
    delimiters::{Delimiters, is_many},
    put::Kernels,
    slices,
};
use crate::{
    codec::lower::{EncodeDialect, EncodeWalk, LowerError, MemberOut, UnionOut, scalar_of},
    layout::{Kind, Scalar},
    program::{
        InlineKernel, OpKind, Order, Overflow, Place, ScalarKernel, Segment, Source, SymbolTable, TextForm, Wire,
    },
    schema::{Case, Def, DefId, DefKind, Schema, Type},
};

/// The encoding dialect of format `F`.
pub struct Encode<F> {
    style: Style,
    format: core::marker::PhantomData<F>,
}

type Lowered = Result<(), LowerError>;

/// Arrays of plain floating-point numbers up to this length are written without a loop.
const UNROLLED: u32 = 16;

impl<F: Format> EncodeDialect for Encode<F> {
    fn scalar(&self, walk: &mut EncodeWalk<'_>, ty: &Type, wire: Scalar, place: Place) -> Lowered {
        match (ty, wire) {
            (Type::Char8 | Type::Char16, _) => put_kernel(walk, place, Kernels::<F>::CHARACTER),
            (_, Scalar::Bool) => {
                walk.emit(OpKind::Load(place));
                put_truth::<F>(walk)
            }
            (_, Scalar::F32) if self.style.sorted => put_kernel(walk, place, Kernels::<F>::SINGLE),
            (_, Scalar::F64) if self.style.sorted => put_kernel(walk, place, Kernels::<F>::DOUBLE),
            (_, Scalar::F32) => fixed(walk, &[F::TYPE_BYTES.single], place, wire),
            (_, Scalar::F64) => fixed(walk, &[F::TYPE_BYTES.double], place, wire),
            (_, Scalar::F128) => fixed(walk, &bytes_of(|output| F::put_bytes(output, 16)), place, wire),
            (_, wire) if wire.is_signed() => put_inline(walk, place, Kernels::<F>::INLINE_SIGNED),
            _ => put_inline(walk, place, Kernels::<F>::INLINE_UNSIGNED),
        }
    }

    fn enumeration(&self, walk: &mut EncodeWalk<'_>, id: DefId, _: Scalar, place: Place) -> Lowered {
        if !self.style.enum_names {
            return put_inline(walk, place, Kernels::<F>::INLINE_SIGNED);
        }
        load(walk, place, Scalar::I64)?;
        let literals = literals(walk.schema(), id, None);
        walk.emit(OpKind::Put(Wire::Symbol(Kernels::<F>::LITERAL, literals)));
        Ok(())
    }

    fn text(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place) -> Lowered {
        text(walk, ty, place, TextForm::Kernel(Kernels::<F>::TEXT))
    }

    fn sequence(&self, walk: &mut EncodeWalk<'_>, element: &Type, bound: u32, place: Place) -> Lowered {
        if is_octet(walk.schema(), element) {
            put_length(walk, place, Kernels::<F>::BYTES);
            let (scalar, order, overflow) = (Scalar::U8, Order::Big, Overflow::Refuse);
            walk.emit(OpKind::Bulk { place, scalar, order, bound, overflow });
            return Ok(());
        }
        if let Some(kernel) = self.slice(walk, element, place) {
            walk.emit(OpKind::Slice { place, kernel, bound, overflow: Overflow::Refuse });
            return Ok(());
        }
        put_length(walk, place, Kernels::<F>::ARRAY);
        self.elements(walk, element, bound, place)
    }

    fn array(&self, walk: &mut EncodeWalk<'_>, element: &Type, _: &[u32], place: Place) -> Lowered {
        let len = match walk.kind(place) {
            Some(Kind::Array { len, .. }) => *len,
            _ => return Err(walk.mismatch()),
        };
        let kernel = self.slice(walk, element, place);
        if is_octet(walk.schema(), element) {
            walk.emit(OpKind::Slice { place, kernel: slices::octets::<F>(), bound: 0, overflow: Overflow::Refuse });
            return Ok(());
        }
        let is_float = kernel.is_some_and(|k| matches!(k.scalar, Scalar::F32 | Scalar::F64)) && !F::TYPED;
        match kernel {
            Some(kernel) if !is_float || len > UNROLLED => {
                walk.emit(OpKind::Slice { place, kernel, bound: 0, overflow: Overflow::Refuse });
                return Ok(());
            }
            _ => literal(walk, &bytes_of(|output| F::put_array(output, len.into()))),
        }
        match is_float {
            true => self.unrolled(walk, element, len, place),
            false => self.elements(walk, element, 0, place),
        }
    }

    fn map(&self, walk: &mut EncodeWalk<'_>, key: &Type, value: &Type, bound: u32, place: Place) -> Lowered {
        let entries = walk.block(|walk| {
            put_length(walk, place, Kernels::<F>::MAP);
            let (key, value) =
                walk.entry(place, |walk, place| self.key(walk, key, place), |walk, place| walk.value(value, place))?;
            let (source, overflow) = (Source::Count, Overflow::Refuse);
            walk.emit(OpKind::Map { place, source, key, value, bound, overflow, min_wire: 0 });
            Ok(())
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
        if F::CLOSED {
            literal(walk, &bytes_of(|output| F::put_map(output, super::OPEN)));
            walk.append(body);
            literal(walk, &[F::TYPE_BYTES.end]);
        } else if all == always {
            literal(walk, &bytes_of(|output| F::put_map(output, all as u64)));
            walk.append(body);
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
                literal(walk, &name_bytes::<F>(&case.member.name));
                walk.member(&case.member, place)?;
                close::<F>(walk);
                Ok(())
            },
            |walk| {
                open::<F>(walk, 1);
                literal(walk, &name_bytes::<F>(DISCRIMINATOR));
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
            literal(walk, &name);
            return walk.member(out.member, out.place);
        }
        walk.if_present(
            out,
            |walk, place| {
                literal(walk, &name);
                walk.member(out.member, place)?;
                if !F::CLOSED && !uncounted {
                    walk.emit(OpKind::Action(Delimiters::<F>::PRESENT, many));
                }
                Ok(())
            },
            |walk| {
                if self.style.write_null {
                    literal(walk, &name);
                    literal(walk, &[F::TYPE_BYTES.null]);
                }
                Ok(())
            },
        )
    }

    fn row(&self, walk: &mut EncodeWalk<'_>, members: &[MemberOut<'_>]) -> Lowered {
        literal(walk, &bytes_of(|output| F::put_array(output, members.len() as u64)));
        members.iter().try_for_each(|out| match out.member.optional {
            false => walk.member(out.member, out.place),
            true => walk.if_present(
                out,
                |walk, place| walk.member(out.member, place),
                |walk| {
                    literal(walk, &[F::TYPE_BYTES.null]);
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
                literal(walk, &head);
                put_label::<F>(walk, union)?;
                walk.member(&case.member, place)
            },
            |walk| {
                literal(walk, &head);
                put_label::<F>(walk, union)?;
                literal(walk, &[F::TYPE_BYTES.null]);
                Ok(())
            },
        )
    }

    /// Emits the beginning of a union's map. It includes the discriminator, which is in the
    /// accumulator, if the name of the case does not determine it.
    fn case_head(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>, case: &Case) -> Lowered {
        let said = walk.block(|walk| {
            open::<F>(walk, 2);
            literal(walk, &name_bytes::<F>(DISCRIMINATOR));
            put_label::<F>(walk, union)
        })?;
        let Some(first) = case.labels.first().copied() else {
            walk.append(said);
            return Ok(());
        };
        if case.labels.len() == 1 && !case.is_default {
            open::<F>(walk, 1);
            return Ok(());
        }
        let unsaid = walk.block(|walk| {
            open::<F>(walk, 1);
            Ok(())
        })?;
        walk.emit(OpKind::Switch { arms: vec![(vec![first], unsaid)], otherwise: said });
        Ok(())
    }

    /// The kernel for all elements at once, if there is one.
    fn slice(
        &self,
        walk: &EncodeWalk<'_>,
        element: &Type,
        place: Place,
    ) -> Option<&'static crate::program::SliceKernel> {
        let scalar = match walk.kind(place)? {
            Kind::Sequence(sequence) => walk.scalar_node(sequence.element)?,
            Kind::Array { element, .. } => walk.scalar_node(*element)?,
            _ => return None,
        };
        match walk.schema().resolve(element) {
            Type::Char8 | Type::Char16 => None,
            _ => slices::kernel::<F>(scalar, self.style.sorted),
        }
    }

    fn elements(&self, walk: &mut EncodeWalk<'_>, ty: &Type, bound: u32, place: Place) -> Lowered {
        let element = walk.element(place, |walk, inside| walk.value(ty, inside))?;
        let (source, overflow) = (Source::Count, Overflow::Refuse);
        walk.emit(OpKind::Sequence { place, source, element, bound, overflow, min_wire: 0 });
        Ok(())
    }

    fn unrolled(&self, walk: &mut EncodeWalk<'_>, ty: &Type, len: u32, place: Place) -> Lowered {
        let (Some(Kind::Array { element, .. }), Place::At { offset, .. }) = (walk.kind(place), place) else {
            return Err(walk.mismatch());
        };
        let node = *element;
        let size = walk.memory_scalar(Place::At { offset, node })?.size() as u32;
        (0..len).try_for_each(|i| walk.value(ty, Place::At { offset: offset + i * size, node }))
    }

    fn key(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place) -> Lowered {
        if F::NATIVE_KEYS {
            return walk.value(ty, place);
        }
        let schema = walk.schema();
        let kernel = match (schema.resolve(ty), scalar_of(schema.resolve(ty))) {
            (ty @ (Type::String { .. } | Type::WString { .. }), _) => {
                return text(walk, ty, place, TextForm::Kernel(Kernels::<F>::KEY_TEXT));
            }
            (Type::Def(id), _) if self.style.enum_names && is_enum(schema, *id) => {
                load(walk, place, Scalar::I64)?;
                walk.emit(OpKind::Put(Wire::Symbol(Kernels::<F>::KEY_LITERAL, literals(schema, *id, None))));
                return Ok(());
            }
            (Type::Def(id), _) if is_enum(schema, *id) => Kernels::<F>::KEY_SIGNED,
            (Type::Bool, _) => Kernels::<F>::KEY_BOOLEAN,
            (Type::Char8 | Type::Char16, _) => Kernels::<F>::KEY_CHARACTER,
            (_, Some(wire)) if wire.is_signed() && wire.is_integer() => Kernels::<F>::KEY_SIGNED,
            (_, Some(wire)) if wire.is_integer() => Kernels::<F>::KEY_UNSIGNED,
            _ => return Err(walk.unsupported("a map's key is a string, integer, boolean, character or enum")),
        };
        put_kernel(walk, place, kernel)
    }
}

/// A member's name as the format writes it.
pub(super) fn name_bytes<F: Format>(name: &str) -> Vec<u8> {
    bytes_of(|output| F::put_name(output, name))
}

/// The names of an enum's literals.
pub(super) fn literals(schema: &Schema, id: DefId, otherwise: Option<i64>) -> Arc<SymbolTable> {
    let literals = match &schema.def(id).kind {
        DefKind::Enum { literals, .. } => &literals[..],
        _ => &[],
    };
    let named = literals.iter().map(|l| (i64::from(l.value), l.name.as_str().into()));
    Arc::new(SymbolTable::new(named, otherwise))
}

/// True for octets, of which sequences and arrays are written as bytes instead of an array.
pub(super) fn is_octet(schema: &Schema, element: &Type) -> bool {
    *schema.resolve(element) == Type::Octet
}

pub(super) fn is_enum(schema: &Schema, id: DefId) -> bool {
    matches!(schema.def(id), Def { kind: DefKind::Enum { .. }, .. })
}

fn open<F: Format>(walk: &mut EncodeWalk<'_>, entries: u64) {
    let entries = if F::CLOSED { super::OPEN } else { entries };
    literal(walk, &bytes_of(|output| F::put_map(output, entries)));
}

fn close<F: Format>(walk: &mut EncodeWalk<'_>) {
    if F::CLOSED {
        literal(walk, &[F::TYPE_BYTES.end]);
    }
}

/// Emits the discriminator, which is in the accumulator.
fn put_label<F: Format>(walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Lowered {
    if union.wire == Scalar::Bool {
        let block = |walk: &mut EncodeWalk<'_>, mark| {
            walk.block(|walk| {
                literal(walk, &[mark]);
                Ok(())
            })
        };
        let (no, yes) = (block(walk, F::TYPE_BYTES.no)?, block(walk, F::TYPE_BYTES.yes)?);
        walk.emit(OpKind::Switch { arms: vec![(vec![0], no)], otherwise: yes });
        return Ok(());
    }
    walk.emit(OpKind::Put(Wire::Inline(Kernels::<F>::INLINE_SIGNED, 0)));
    Ok(())
}

/// Emits a boolean, which is in the accumulator.
fn put_truth<F: Format>(walk: &mut EncodeWalk<'_>) -> Lowered {
    let block = |walk: &mut EncodeWalk<'_>, mark| {
        walk.block(|walk| {
            literal(walk, &[mark]);
            Ok(())
        })
    };
    let (then, otherwise) = (block(walk, F::TYPE_BYTES.yes)?, block(walk, F::TYPE_BYTES.no)?);
    walk.emit(OpKind::If { then, otherwise });
    Ok(())
}

/// Emits a scalar as a type byte followed by its bytes.
fn fixed(walk: &mut EncodeWalk<'_>, mark: &[u8], place: Place, wire: Scalar) -> Lowered {
    let memory = walk.memory_scalar(place)?;
    literal(walk, mark);
    let segment = Segment { place, at: 0, wire, memory, count: 1, order: Order::Big, check: None };
    walk.emit(OpKind::Run { segments: vec![segment], size: wire.size() as u32 });
    Ok(())
}

fn put_kernel(walk: &mut EncodeWalk<'_>, place: Place, kernel: &'static ScalarKernel) -> Lowered {
    load(walk, place, kernel.scalar)?;
    walk.emit(OpKind::Put(Wire::Kernel(kernel)));
    Ok(())
}

fn put_inline(walk: &mut EncodeWalk<'_>, place: Place, kernel: &'static InlineKernel) -> Lowered {
    load(walk, place, kernel.scalar)?;
    walk.emit(OpKind::Put(Wire::Inline(kernel, 0)));
    Ok(())
}

fn load(walk: &mut EncodeWalk<'_>, place: Place, to: Scalar) -> Lowered {
    walk.emit(OpKind::Load(place));
    if walk.memory_scalar(place)? != to {
        walk.emit(OpKind::Convert(to));
    }
    Ok(())
}

fn put_length(walk: &mut EncodeWalk<'_>, place: Place, kernel: &'static ScalarKernel) {
    walk.emit(OpKind::Length(place));
    walk.emit(OpKind::Put(Wire::Kernel(kernel)));
}

fn text(walk: &mut EncodeWalk<'_>, ty: &Type, place: Place, form: TextForm) -> Lowered {
    let (bound, utf16_bound) = match ty {
        Type::String { bound } => (*bound, false),
        Type::WString { bound } => (*bound, true),
        _ => (0, false),
    };
    walk.emit(OpKind::Text { place, form, bound, utf16_bound, overflow: Overflow::Refuse, after: 0 });
    Ok(())
}

fn literal(walk: &mut EncodeWalk<'_>, bytes: &[u8]) {
    walk.emit(OpKind::Literal(Box::from(bytes)));
}
