//! The decoding dialect of BSON. The walk of `lower/decode` calls it for each value. It emits
//! operations with the kernels of `get` and `delimiters`, and touches the walk only.

use alloc::{boxed::Box, vec, vec::Vec};

use super::{VALUE, delimiters, get, kind::Form, put::Names};
use crate::{
    codec::lower::{
        DecodeDialect, DecodeWalk, LowerError, Lowered, MemberIn, Slot, UnionIn, decode::key as member_key, keys,
    },
    layout::{Kind, Scalar},
    program::{
        Arm, Block, ExpectedPrefix, FaultKind, Op, OpKind, Order, PathId, Place, PrefixTag, Segment, Source, TextForm,
        Wire,
    },
    schema::{DefId, Type},
};

/// The decoding dialect.
pub(super) struct Decode;

impl DecodeDialect for Decode {
    fn scalar(&self, walk: &mut DecodeWalk<'_>, ty: &Type, wire: Scalar, slot: &Slot<'_>) -> Lowered {
        let kernel = match (Form::of(ty, wire), wire) {
            (Form::Boolean, _) => &get::BOOLEAN,
            (Form::Int64, Scalar::I64) => &get::INTEGER_OR_TIME,
            (Form::Int32 | Form::Int64, _) => &get::INTEGER,
            (Form::Unsigned64, _) => &get::UNSIGNED,
            (Form::Double, Scalar::F32) => &get::FLOAT,
            (Form::Double, _) => &get::DOUBLE,
            (Form::Quad, _) => &get::QUAD,
            (Form::Char8 | Form::Char16, _) => &get::CHARACTER,
        };
        walk.get(ty, Wire::Kernel(kernel), slot)
    }

    fn enumeration(&self, walk: &mut DecodeWalk<'_>, id: DefId, _: Scalar, slot: &Slot<'_>) -> Lowered {
        let literals = walk.literals(id, slot);
        walk.get(&Type::Def(id), Wire::Symbol(&get::LITERAL, literals), slot)
    }

    fn text(&self, walk: &mut DecodeWalk<'_>, _: &Type, slot: &Slot<'_>) -> Lowered {
        let string = |walk: &mut DecodeWalk<'_>| walk.text(TextForm::CountedNul { order: Order::Little }, slot);
        walk.choose(&delimiters::IS_STRING, string, |walk| walk.text(TextForm::Kernel(&get::DECIMAL), slot))
    }

    fn sequence(&self, walk: &mut DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> Lowered {
        if !is_octet(walk, element) || walk.bulk_scalar(element, slot) != Some(Scalar::U8) {
            return elements(walk, element, slot);
        }
        let binary = |walk: &mut DecodeWalk<'_>| {
            let (bound, overflow) = (walk.bound(slot), walk.overflow(slot));
            let (place, scalar, order) = (slot.place, Scalar::U8, Order::Little);
            walk.emit(OpKind::Get(Wire::Kernel(&get::OCTETS)));
            walk.emit(OpKind::Bulk { place, scalar, order, bound, overflow });
            Ok(())
        };
        walk.choose(&delimiters::IS_BINARY, binary, |walk| elements(walk, element, slot))
    }

    fn array(&self, walk: &mut DecodeWalk<'_>, element: &Type, dims: &[u32], slot: &Slot<'_>) -> Lowered {
        let len = dims.iter().try_fold(1u32, |n, d| n.checked_mul(*d)).ok_or_else(|| walk.mismatch())?;
        let Some(segment) = octets(walk, slot.place, len).filter(|_| is_octet(walk, element)) else {
            return elements(walk, element, slot);
        };
        let binary = |walk: &mut DecodeWalk<'_>| {
            walk.emit(OpKind::Action(&get::EXPECT_OCTETS, len.into()));
            walk.emit(OpKind::Run { segments: vec![segment], size: len });
            Ok(())
        };
        walk.choose(&delimiters::IS_BINARY, binary, |walk| elements(walk, element, slot))
    }

    fn map(&self, walk: &mut DecodeWalk<'_>, key: &Type, value: &Type, slot: &Slot<'_>) -> Lowered {
        let key = |walk: &mut DecodeWalk<'_>, slot: &Slot<'_>| keys::get::<Names>(walk, key, slot);
        walk.entries(slot, Source::Dialect(&delimiters::MAP), 0, key, |walk, slot| walk.value(value, slot))
    }

    fn structure(&self, walk: &mut DecodeWalk<'_>, _: DefId, members: &[MemberIn<'_>]) -> Lowered {
        let arms = members.iter().map(|member| arm(walk, member)).collect::<Result<Vec<Arm>, LowerError>>()?;
        walk.members(&delimiters::MEMBERS, arms);
        Ok(())
    }

    fn union(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Lowered {
        let selectors = [&delimiters::SELECTOR, &delimiters::CHARACTER_SELECTOR];
        walk.named_case(union, selectors, &delimiters::CASE, &delimiters::DOCUMENT, terminated)
    }
}

/// Emits the reading of elements from an array.
fn elements(walk: &mut DecodeWalk<'_>, ty: &Type, slot: &Slot<'_>) -> Lowered {
    walk.elements(slot, Source::Dialect(&delimiters::ARRAY), 0, |walk, inside| walk.value(ty, inside))
}

/// Octets are written as binary. Small integers are read from binary, too.
fn is_octet(walk: &DecodeWalk<'_>, element: &Type) -> bool {
    matches!(walk.writer().resolve(element), Type::Octet | Type::Uint8)
}

/// The program of a root that is not a document itself.
pub(super) fn wrapped(root: Block) -> Block {
    let op = |kind| Op { path: PathId(0), kind };
    let absent = Block(vec![op(OpKind::Fail(FaultKind::MissingMember))]);
    let arm = Arm { key: member_key(0, &terminated(VALUE)), prefix: None, body: root, absent };
    Block(vec![op(OpKind::members(&delimiters::MEMBERS, vec![arm]))])
}

fn arm(walk: &mut DecodeWalk<'_>, member: &MemberIn<'_>) -> Result<Arm, LowerError> {
    let key = member_key(0, &terminated(&member.writer.name));
    let optional = member.writer.optional;
    let prefix = Some(ExpectedPrefix { optional, tag: PrefixTag::Byte, ..ExpectedPrefix::new(&key.name) });
    let body = walk.block(|walk| walk.member_unless(&delimiters::IS_NULL, member))?;
    let absent = walk.block(|walk| walk.left_out(member))?;
    Ok(Arm { key, prefix, body, absent })
}

/// The octets of an array in memory, or of a sink, as a segment. `None` for other places.
fn octets(walk: &DecodeWalk<'_>, place: Place, count: u32) -> Option<Segment> {
    let place = match (walk.kind(place), place) {
        (None, _) => Place::Sink,
        (Some(Kind::Array { element, len }), Place::At { offset, .. }) if *len == count => {
            let element = Place::At { offset, node: *element };
            match walk.kind(element) {
                Some(Kind::Scalar(Scalar::U8)) => element,
                _ => return None,
            }
        }
        _ => return None,
    };
    let (wire, memory, order) = (Scalar::U8, Scalar::U8, Order::Little);
    Some(Segment { place, at: 0, wire, memory, count, order, check: None })
}

/// A name with its terminating NUL.
fn terminated(name: &str) -> Box<[u8]> {
    name.bytes().chain([0]).collect()
}
