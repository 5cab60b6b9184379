//! The encoding dialect of BSON. The walk of `lower/encode` calls it for each value. It emits
//! operations with the kernels of `put` and `delimiters`, and touches the walk only.

use alloc::{format, vec};

use super::{
    VALUE, delimiters,
    kind::{DISCRIMINATOR, Form, Forms, GENERIC, INT32, INT64, NULL, NUMBER, header},
    put::{self, Names},
};
use crate::{
    codec::lower::{EncodeDialect, EncodeWalk, Lowered, MemberOut, UnionOut, keys},
    layout::{Kind, NodeId, Scalar},
    program::{Block, Op, OpKind, Order, Overflow, PathId, Place, Segment, TextForm, Wire},
    schema::{Case, DefId, Type},
};

/// The encoding dialect.
pub(super) struct Encode<'a> {
    pub forms: Forms<'a>,
    pub write_null: bool,
}

/// Arrays of plain numbers up to this length are written without a loop.
const UNROLLED: u32 = 16;

impl EncodeDialect for Encode<'_> {
    fn scalar(&self, walk: &mut EncodeWalk<'_>, ty: &Type, wire: Scalar, place: Place) -> Lowered {
        scalar(walk, Form::of(ty, wire), place, &put::UNSIGNED, &put::CHAR16)
    }

    fn enumeration(&self, walk: &mut EncodeWalk<'_>, id: DefId, _: Scalar, place: Place) -> Lowered {
        let wire = match self.forms.enum_names {
            true => Wire::Symbol(&put::LITERAL, walk.literals(id)),
            false => fixed(Scalar::I32),
        };
        walk.put(place, wire)
    }

    fn text(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place) -> Lowered {
        walk.text(ty, place, TextForm::CountedNul { order: Order::Little })
    }

    fn sequence(&self, walk: &mut EncodeWalk<'_>, element: &Type, bound: u32, place: Place) -> Lowered {
        if self.forms.is_octet(element) {
            walk.emit(OpKind::Length(place));
            walk.emit(OpKind::Convert(Scalar::I32));
            walk.emit(OpKind::Put(fixed(Scalar::I32)));
            walk.literal([GENERIC]);
            let (scalar, order, overflow) = (Scalar::U8, Order::Little, Overflow::Refuse);
            walk.emit(OpKind::Bulk { place, scalar, order, bound, overflow });
            return Ok(());
        }
        document(walk, None, |walk| self.elements(walk, element, bound, place))
    }

    fn array(&self, walk: &mut EncodeWalk<'_>, element: &Type, dims: &[u32], place: Place) -> Lowered {
        let Some(Kind::Array { element: node, len }) = walk.kind(place) else { return Err(walk.mismatch()) };
        if self.forms.is_octet(element) {
            return octets(walk, *len, *node, place);
        }
        let size = self.forms.static_size(&Type::array(element.clone(), dims));
        let unrolled = *len <= UNROLLED && size.is_some() && self.forms.form(element).is_some();
        document(walk, size, |walk| match unrolled {
            true => walk.unrolled(place, |walk, i, inside| {
                walk.literal(header(self.forms.kind(element), &format!("{i}")));
                walk.value(element, inside)
            }),
            false => self.elements(walk, element, 0, place),
        })
    }

    fn map(&self, walk: &mut EncodeWalk<'_>, key: &Type, value: &Type, bound: u32, place: Place) -> Lowered {
        let form = self.forms.form(value);
        let key = |walk: &mut EncodeWalk<'_>, place| {
            if form.is_some_and(Form::kind_varies) {
                walk.emit(OpKind::Action(&put::MARK, 0));
            }
            walk.literal([self.forms.kind(value)]);
            keys::put::<Names>(walk, key, place, self.forms.enum_names)
        };
        let value = |walk: &mut EncodeWalk<'_>, place| match form {
            Some(form) => scalar(walk, form, place, &put::MARKED_UNSIGNED, &put::MARKED_CHAR16),
            None => walk.value(value, place),
        };
        document(walk, None, |walk| walk.entries(place, bound, key, value))
    }

    fn structure(&self, walk: &mut EncodeWalk<'_>, id: DefId, members: &[MemberOut<'_>]) -> Lowered {
        document(walk, self.forms.static_size(&Type::Def(id)), |walk| {
            members.iter().try_for_each(|out| self.member(walk, out))
        })
    }

    fn union(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Lowered {
        let wire = match union.wire {
            Scalar::U32 | Scalar::I64 | Scalar::U64 => Scalar::I64,
            _ => Scalar::I32,
        };
        let discriminator = |walk: &mut EncodeWalk<'_>| put_discriminator(walk, wire);
        let arm = |walk: &mut EncodeWalk<'_>, case: &Case, place| {
            walk.implied_or(case, |_| Ok(()), discriminator)?;
            walk.literal(header(self.forms.kind(&case.member.ty), &case.member.name));
            walk.member(&case.member, place)
        };
        document(walk, None, |walk| walk.union_arms(union, arm, discriminator))
    }
}

impl Encode<'_> {
    fn member(&self, walk: &mut EncodeWalk<'_>, out: &MemberOut<'_>) -> Lowered {
        let present = |walk: &mut EncodeWalk<'_>, place| {
            walk.literal(header(self.forms.kind(&out.member.ty), &out.member.name));
            walk.member(out.member, place)
        };
        if !out.member.optional {
            return present(walk, out.place);
        }
        walk.if_present(out, present, |walk| {
            if self.write_null {
                walk.literal(header(NULL, &out.member.name));
            }
            Ok(())
        })
    }

    /// Emits the elements of a sequence or array. The name of each is its index.
    fn elements(&self, walk: &mut EncodeWalk<'_>, ty: &Type, bound: u32, place: Place) -> Lowered {
        let head = put::index(self.forms.kind(ty));
        walk.elements(place, bound, |walk, inside| {
            walk.emit(OpKind::Index);
            walk.emit(OpKind::Put(Wire::Kernel(head)));
            walk.value(ty, inside)
        })
    }
}

/// Emits an array of octets as binary.
fn octets(walk: &mut EncodeWalk<'_>, len: u32, element: NodeId, place: Place) -> Lowered {
    let count =
        i32::try_from(len).map_err(|_| walk.unsupported("BSON has no binary of more than 2147483647 octets"))?;
    let Place::At { offset, .. } = place else { return Err(walk.mismatch()) };
    walk.literal(count.to_le_bytes());
    walk.literal([GENERIC]);
    let (wire, memory, order) = (Scalar::U8, Scalar::U8, Order::Little);
    walk.run(Segment {
        place: Place::At { offset, node: element },
        at: 0,
        wire,
        memory,
        count: len,
        order,
        check: None,
    });
    Ok(())
}

/// The program of a root that is not a document itself.
pub(super) fn wrapped(kind: u8, root: Block) -> Block {
    let op = |kind| Op { path: PathId(0), kind };
    let mut ops = vec![op(OpKind::Literal(header(kind, VALUE)))];
    ops.extend(root.0);
    Block(vec![op(OpKind::Region { dialect: &delimiters::DOCUMENT, argument: 0, body: Block(ops) })])
}

type Kernel = &'static crate::program::ScalarKernel;

/// Emits a scalar behind its kind and name. `unsigned` and `char16` are the kernels for values that
/// may change the kind.
fn scalar(walk: &mut EncodeWalk<'_>, form: Form, place: Place, unsigned: Kernel, char16: Kernel) -> Lowered {
    if form == Form::Quad {
        walk.literal(16i32.to_le_bytes());
        walk.literal([NUMBER]);
    }
    walk.put(
        place,
        match form {
            Form::Boolean => fixed(Scalar::Bool),
            Form::Int32 => fixed(Scalar::I32),
            Form::Int64 => fixed(Scalar::I64),
            Form::Double => fixed(Scalar::F64),
            Form::Quad => fixed(Scalar::F128),
            Form::Unsigned64 => Wire::Kernel(unsigned),
            Form::Char8 => Wire::Kernel(&put::CHAR8),
            Form::Char16 => Wire::Kernel(char16),
        },
    )
}

fn fixed(scalar: Scalar) -> Wire {
    Wire::Fixed { scalar, order: Order::Little }
}

/// Emits a document. If its size is not given, it is filled in at the document's end.
fn document(
    walk: &mut EncodeWalk<'_>,
    size: Option<u32>,
    fill: impl FnOnce(&mut EncodeWalk<'_>) -> Lowered,
) -> Lowered {
    let body = walk.block(fill)?;
    match size.and_then(|size| i32::try_from(size).ok()) {
        Some(size) => {
            walk.literal(size.to_le_bytes());
            walk.append(body);
            walk.literal([0]);
        }
        None => walk.emit(OpKind::Region { dialect: &delimiters::DOCUMENT, argument: 0, body }),
    }
    Ok(())
}

/// Emits the discriminator, which is in the accumulator.
fn put_discriminator(walk: &mut EncodeWalk<'_>, wire: Scalar) -> Lowered {
    let kind = if wire == Scalar::I64 { INT64 } else { INT32 };
    walk.literal(header(kind, DISCRIMINATOR));
    if wire != Scalar::I64 {
        walk.emit(OpKind::Convert(wire));
    }
    walk.emit(OpKind::Put(fixed(wire)));
    Ok(())
}
