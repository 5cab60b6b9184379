//! The encoding dialect of BSON. The walk of `lower/encode` calls it for each value. It emits
//! operations with the kernels of `put` and `delimiters`, and touches the walk only.

use alloc::{boxed::Box, format, sync::Arc, vec, vec::Vec};

use super::{
    VALUE, delimiters,
    kind::{DISCRIMINATOR, Form, Forms, GENERIC, INT32, INT64, NULL, NUMBER, header},
    put,
};
use crate::{
    codec::lower::{EncodeDialect, EncodeWalk, LowerError, MemberOut, UnionOut, scalar_of},
    layout::{Kind, Scalar},
    program::{Block, Op, OpKind, Order, Overflow, PathId, Place, Segment, Source, SymbolTable, TextForm, Wire},
    schema::{Case, DefId, DefKind, Schema, Type},
};

/// The encoding dialect.
pub(super) struct Encode<'a> {
    pub forms: Forms<'a>,
    pub write_null: bool,
}

/// Arrays of plain numbers up to this length are written without a loop.
const UNROLLED: u32 = 16;

impl EncodeDialect for Encode<'_> {
    fn scalar(&self, walk: &mut EncodeWalk<'_>, ty: &Type, wire: Scalar, place: Place) -> Result<(), LowerError> {
        scalar(walk, Form::of(ty, wire), place, &put::UNSIGNED, &put::CHAR16)
    }

    fn enumeration(&self, walk: &mut EncodeWalk<'_>, id: DefId, _: Scalar, place: Place) -> Result<(), LowerError> {
        walk.emit(OpKind::Load(place));
        if self.forms.enum_names {
            convert(walk, place, Scalar::I64)?;
            walk.emit(OpKind::Put(Wire::Symbol(&put::LITERAL, symbols(self.forms.schema, id, None))));
        } else {
            convert(walk, place, Scalar::I32)?;
            put_fixed(walk, Scalar::I32);
        }
        Ok(())
    }

    fn text(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place) -> Result<(), LowerError> {
        text(walk, ty, place, TextForm::CountedNul { order: Order::Little });
        Ok(())
    }

    fn sequence(&self, walk: &mut EncodeWalk<'_>, element: &Type, bound: u32, place: Place) -> Result<(), LowerError> {
        if self.forms.is_octet(element) {
            walk.emit(OpKind::Length(place));
            walk.emit(OpKind::Convert(Scalar::I32));
            put_fixed(walk, Scalar::I32);
            walk.emit(OpKind::Literal(Box::new([GENERIC])));
            let (scalar, order, overflow) = (Scalar::U8, Order::Little, Overflow::Refuse);
            walk.emit(OpKind::Bulk { place, scalar, order, bound, overflow });
            return Ok(());
        }
        let elements = walk.block(|walk| self.elements(walk, element, bound, place))?;
        document(walk, elements);
        Ok(())
    }

    fn array(&self, walk: &mut EncodeWalk<'_>, element: &Type, dims: &[u32], place: Place) -> Result<(), LowerError> {
        let len = match walk.kind(place) {
            Some(Kind::Array { len, .. }) => *len,
            _ => return Err(walk.mismatch()),
        };
        if self.forms.is_octet(element) {
            return self.octets(walk, len, place);
        }
        let fixed = self.forms.static_size(&Type::array(element.clone(), dims));
        let unrolled = len <= UNROLLED && fixed.is_some() && self.forms.form(element).is_some();
        let block = walk.block(|walk| match unrolled {
            true => self.unrolled(walk, element, len, place),
            false => self.elements(walk, element, 0, place),
        })?;
        match fixed {
            Some(size) => fixed_document(walk, size, block),
            None => document(walk, block),
        }
        Ok(())
    }

    fn map(
        &self,
        walk: &mut EncodeWalk<'_>,
        key: &Type,
        value: &Type,
        bound: u32,
        place: Place,
    ) -> Result<(), LowerError> {
        let form = self.forms.form(value);
        let (key, value) = walk.entry(
            place,
            |walk, place| {
                if form.is_some_and(Form::kind_varies) {
                    walk.emit(OpKind::Action(&put::MARK, 0));
                }
                walk.emit(OpKind::Literal(Box::new([self.forms.kind(value)])));
                self.key(walk, key, place)
            },
            |walk, place| match form {
                Some(form) => scalar(walk, form, place, &put::MARKED_UNSIGNED, &put::MARKED_CHAR16),
                None => walk.value(value, place),
            },
        )?;
        let entries = walk.block(|walk| {
            walk.emit(OpKind::Map {
                place,
                source: Source::Count,
                key,
                value,
                bound,
                overflow: Default::default(),
                min_wire: 0,
            });
            Ok(())
        })?;
        document(walk, entries);
        Ok(())
    }

    fn structure(&self, walk: &mut EncodeWalk<'_>, id: DefId, members: &[MemberOut<'_>]) -> Result<(), LowerError> {
        let block = walk.block(|walk| members.iter().try_for_each(|out| self.member(walk, out)))?;
        match self.forms.static_size(&Type::Def(id)) {
            Some(size) => fixed_document(walk, size, block),
            None => document(walk, block),
        }
        Ok(())
    }

    fn union(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Result<(), LowerError> {
        let wire = match union.wire {
            Scalar::U32 | Scalar::I64 | Scalar::U64 => Scalar::I64,
            _ => Scalar::I32,
        };
        let block = walk.block(|walk| {
            walk.union_arms(
                union,
                |walk, case, place| {
                    discriminator(walk, case, wire)?;
                    walk.emit(OpKind::Literal(header(self.forms.kind(&case.member.ty), &case.member.name)));
                    walk.member(&case.member, place)
                },
                |walk| {
                    put_discriminator(walk, wire);
                    Ok(())
                },
            )
        })?;
        document(walk, block);
        Ok(())
    }
}

impl Encode<'_> {
    fn member(&self, walk: &mut EncodeWalk<'_>, out: &MemberOut<'_>) -> Result<(), LowerError> {
        let head = OpKind::Literal(header(self.forms.kind(&out.member.ty), &out.member.name));
        if !out.member.optional {
            walk.emit(head);
            return walk.member(out.member, out.place);
        }
        walk.if_present(
            out,
            |walk, place| {
                walk.emit(head);
                walk.member(out.member, place)
            },
            |walk| {
                if self.write_null {
                    walk.emit(OpKind::Literal(header(NULL, &out.member.name)));
                }
                Ok(())
            },
        )
    }

    /// Emits the elements of a sequence or array. The name of each is its index.
    fn elements(&self, walk: &mut EncodeWalk<'_>, ty: &Type, bound: u32, place: Place) -> Result<(), LowerError> {
        let head = put::index(self.forms.kind(ty));
        let element = walk.element(place, |walk, inside| {
            walk.emit(OpKind::Index);
            walk.emit(OpKind::Put(Wire::Kernel(head)));
            walk.value(ty, inside)
        })?;
        let (source, overflow) = (Source::Count, Overflow::Refuse);
        walk.emit(OpKind::Sequence { place, source, element, bound, overflow, min_wire: 0 });
        Ok(())
    }

    fn unrolled(&self, walk: &mut EncodeWalk<'_>, ty: &Type, len: u32, place: Place) -> Result<(), LowerError> {
        let (Some(Kind::Array { element, .. }), Place::At { offset, .. }) = (walk.kind(place), place) else {
            return Err(walk.mismatch());
        };
        let node = *element;
        let size = walk.memory_scalar(Place::At { offset, node })?.size() as u32;
        for i in 0..len {
            walk.emit(OpKind::Literal(header(self.forms.kind(ty), &format!("{i}"))));
            walk.value(ty, Place::At { offset: offset + i * size, node })?;
        }
        Ok(())
    }

    /// Emits an array of octets as binary.
    fn octets(&self, walk: &mut EncodeWalk<'_>, len: u32, place: Place) -> Result<(), LowerError> {
        let (Some(Kind::Array { element, .. }), Place::At { offset, .. }) = (walk.kind(place), place) else {
            return Err(walk.mismatch());
        };
        let mut head = length(walk, len)?.to_vec();
        head.push(GENERIC);
        let place = Place::At { offset, node: *element };
        walk.emit(OpKind::Literal(head.into()));
        let (wire, memory, order) = (Scalar::U8, Scalar::U8, Order::Little);
        let segments = vec![Segment { place, at: 0, wire, memory, count: len, order, check: None }];
        walk.emit(OpKind::Run { segments, size: len });
        Ok(())
    }

    /// Emits a map's key as a name with its NUL.
    fn key(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place) -> Result<(), LowerError> {
        let schema = self.forms.schema;
        let ty = schema.resolve(ty);
        if let Type::String { .. } | Type::WString { .. } = ty {
            text(walk, ty, place, TextForm::Kernel(&put::KEY_TEXT));
            return Ok(());
        }
        walk.emit(OpKind::Load(place));
        let kernel = match (ty, scalar_of(ty)) {
            (Type::Def(id), _) => {
                convert(walk, place, Scalar::I64)?;
                if self.forms.enum_names {
                    walk.emit(OpKind::Put(Wire::Symbol(&put::KEY_LITERAL, symbols(schema, *id, None))));
                    return Ok(());
                }
                &put::KEY_SIGNED
            }
            (Type::Bool, _) => &put::KEY_BOOLEAN,
            (Type::Char8 | Type::Char16, _) => &put::KEY_CHARACTER,
            (_, Some(wire)) if wire.is_signed() => &put::KEY_SIGNED,
            (_, Some(wire)) if wire.is_integer() => &put::KEY_UNSIGNED,
            _ => return Err(walk.unsupported("in BSON a map's key is a string, integer, boolean, character or enum")),
        };
        if !matches!(ty, Type::Def(_) | Type::Bool) {
            convert(walk, place, kernel.scalar)?;
        }
        walk.emit(OpKind::Put(Wire::Kernel(kernel)));
        Ok(())
    }
}

/// The names of an enum's literals.
pub(super) fn symbols(schema: &Schema, id: DefId, otherwise: Option<i64>) -> Arc<SymbolTable> {
    let literals = match &schema.def(id).kind {
        DefKind::Enum { literals, .. } => &literals[..],
        _ => &[],
    };
    let named = literals.iter().map(|l| (i64::from(l.value), l.name.as_str().into()));
    Arc::new(SymbolTable::new(named, otherwise))
}

/// The program of a root that is not a document itself.
pub(super) fn wrapped(kind: u8, root: Block) -> Block {
    let op = |kind| Op { path: PathId(0), kind };
    let mut ops = vec![op(OpKind::Literal(header(kind, VALUE)))];
    ops.extend(root.0);
    Block(vec![op(OpKind::Region { dialect: &delimiters::DOCUMENT, argument: 0, body: Block(ops) })])
}

type Kernel = &'static crate::program::ScalarKernel;

/// Emits a scalar with its kind and name. `unsigned` and `char16` are the kernels for
/// values that may change the kind.
fn scalar(
    walk: &mut EncodeWalk<'_>,
    form: Form,
    place: Place,
    unsigned: Kernel,
    char16: Kernel,
) -> Result<(), LowerError> {
    if form == Form::Quad {
        let mut head = 16i32.to_le_bytes().to_vec();
        head.push(NUMBER);
        walk.emit(OpKind::Literal(head.into()));
    }
    walk.emit(OpKind::Load(place));
    let fixed = match form {
        Form::Boolean => Scalar::Bool,
        Form::Int32 => Scalar::I32,
        Form::Int64 => Scalar::I64,
        Form::Double => Scalar::F64,
        Form::Quad => Scalar::F128,
        Form::Unsigned64 => return put_kernel(walk, place, unsigned),
        Form::Char8 => return put_kernel(walk, place, &put::CHAR8),
        Form::Char16 => return put_kernel(walk, place, char16),
    };
    convert(walk, place, fixed)?;
    put_fixed(walk, fixed);
    Ok(())
}

fn put_kernel(walk: &mut EncodeWalk<'_>, place: Place, kernel: Kernel) -> Result<(), LowerError> {
    convert(walk, place, kernel.scalar)?;
    walk.emit(OpKind::Put(Wire::Kernel(kernel)));
    Ok(())
}

/// Emits the conversion of a loaded value to another scalar.
fn convert(walk: &mut EncodeWalk<'_>, place: Place, to: Scalar) -> Result<(), LowerError> {
    if walk.memory_scalar(place)? != to {
        walk.emit(OpKind::Convert(to));
    }
    Ok(())
}

fn put_fixed(walk: &mut EncodeWalk<'_>, scalar: Scalar) {
    walk.emit(OpKind::Put(Wire::Fixed { scalar, order: Order::Little }));
}

fn text(walk: &mut EncodeWalk<'_>, ty: &Type, place: Place, form: TextForm) {
    let (bound, utf16_bound) = match ty {
        Type::String { bound } => (*bound, false),
        Type::WString { bound } => (*bound, true),
        _ => (0, false),
    };
    walk.emit(OpKind::Text { place, form, bound, utf16_bound, overflow: Overflow::Refuse, after: 0 });
}

/// Emits a document whose length is filled in at its end.
fn document(walk: &mut EncodeWalk<'_>, body: Block) {
    walk.emit(OpKind::Region { dialect: &delimiters::DOCUMENT, argument: 0, body });
}

/// Emits a document of known length.
fn fixed_document(walk: &mut EncodeWalk<'_>, size: u32, body: Block) {
    match i32::try_from(size) {
        Ok(size) => {
            walk.emit(OpKind::Literal(Box::new(size.to_le_bytes())));
            walk.append(body);
            walk.emit(OpKind::Literal(Box::new([0])));
        }
        Err(_) => document(walk, body),
    }
}

fn length(walk: &EncodeWalk<'_>, len: u32) -> Result<[u8; 4], LowerError> {
    let fits = i32::try_from(len).map_err(|_| walk.unsupported("BSON has no binary of more than 2147483647 octets"))?;
    Ok(fits.to_le_bytes())
}

/// Emits the discriminator, which is in the accumulator, if the name of the case does not determine
/// it.
fn discriminator(walk: &mut EncodeWalk<'_>, case: &Case, wire: Scalar) -> Result<(), LowerError> {
    let Some(first) = case.labels.first().copied() else {
        put_discriminator(walk, wire);
        return Ok(());
    };
    if case.labels.len() == 1 && !case.is_default {
        return Ok(());
    }
    let otherwise = walk.block(|walk| {
        put_discriminator(walk, wire);
        Ok(())
    })?;
    let arms: Vec<(Vec<i64>, Block)> = vec![(vec![first], Block::default())];
    walk.emit(OpKind::Switch { arms, otherwise });
    Ok(())
}

fn put_discriminator(walk: &mut EncodeWalk<'_>, wire: Scalar) {
    let kind = if wire == Scalar::I64 { INT64 } else { INT32 };
    walk.emit(OpKind::Literal(header(kind, DISCRIMINATOR)));
    if wire != Scalar::I64 {
        walk.emit(OpKind::Convert(wire));
    }
    put_fixed(walk, wire);
}
