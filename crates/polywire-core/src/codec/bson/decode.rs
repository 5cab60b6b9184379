//! The decoding dialect of BSON. The walk of `lower/decode` calls it for each value. It emits
//! operations with the kernels of `get` and `delimiters`, and touches the walk only.

use alloc::{boxed::Box, string::ToString, sync::Arc, vec, vec::Vec};

use super::{
    VALUE, delimiters, encode, get,
    kind::{Form, Forms},
};
use crate::{
    codec::lower::{
        CaseIn, DecodeDialect, DecodeWalk, LowerError, MemberIn, Slot, UnionIn, decode::key as member_key, scalar_of,
        symbols,
    },
    layout::{Kind, Scalar},
    program::{
        Arm, Block, ExpectedPrefix, FaultKind, MemberDialect, MemberTable, Op, OpKind, Order, PathId, Place, PrefixTag,
        Segment, Source, SymbolTable, TextForm, Wire,
    },
    schema::{DefId, DefKind, Type},
};

/// The decoding dialect. Its forms are those of the writer's types.
pub(super) struct Decode<'a> {
    pub forms: Forms<'a>,
}

impl DecodeDialect for Decode<'_> {
    fn scalar(&self, walk: &mut DecodeWalk<'_>, ty: &Type, wire: Scalar, slot: &Slot<'_>) -> Result<(), LowerError> {
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

    fn enumeration(&self, walk: &mut DecodeWalk<'_>, id: DefId, _: Scalar, slot: &Slot<'_>) -> Result<(), LowerError> {
        let wire = Wire::Symbol(&get::LITERAL, self.symbols(walk, id, slot));
        walk.get(&Type::Def(id), wire, slot)
    }

    fn text(&self, walk: &mut DecodeWalk<'_>, _: &Type, slot: &Slot<'_>) -> Result<(), LowerError> {
        let then = walk.block(|walk| walk.text(TextForm::CountedNul { order: Order::Little }, slot))?;
        let otherwise = walk.block(|walk| walk.text(TextForm::Kernel(&get::DECIMAL), slot))?;
        walk.emit(OpKind::Test(&delimiters::IS_STRING));
        walk.emit(OpKind::If { then, otherwise });
        Ok(())
    }

    fn sequence(&self, walk: &mut DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> Result<(), LowerError> {
        let elements = walk.block(|walk| self.elements(walk, element, slot))?;
        if !self.may_be_binary(walk, element, slot) {
            walk.append(elements);
            return Ok(());
        }
        let binary = walk.block(|walk| {
            let (bound, overflow) = (walk.bound(slot), walk.overflow(slot));
            let (place, scalar, order) = (slot.place, Scalar::U8, Order::Little);
            walk.emit(OpKind::Get(Wire::Kernel(&get::OCTETS)));
            walk.emit(OpKind::Bulk { place, scalar, order, bound, overflow });
            Ok(())
        })?;
        binary_or(walk, binary, elements);
        Ok(())
    }

    fn array(
        &self,
        walk: &mut DecodeWalk<'_>,
        element: &Type,
        dims: &[u32],
        slot: &Slot<'_>,
    ) -> Result<(), LowerError> {
        let elements = walk.block(|walk| self.elements(walk, element, slot))?;
        let len = dims.iter().try_fold(1u32, |n, d| n.checked_mul(*d)).ok_or_else(|| walk.mismatch())?;
        match octets(walk, slot.place, len) {
            Some(segment) if self.is_octet(walk, element) => {
                let binary = walk.block(|walk| {
                    walk.emit(OpKind::Action(&get::EXPECT_OCTETS, len.into()));
                    walk.emit(OpKind::Run { segments: vec![segment], size: len });
                    Ok(())
                })?;
                binary_or(walk, binary, elements);
            }
            _ => walk.append(elements),
        }
        Ok(())
    }

    fn map(&self, walk: &mut DecodeWalk<'_>, key: &Type, value: &Type, slot: &Slot<'_>) -> Result<(), LowerError> {
        let (key, value) =
            walk.entry(slot, |walk, slot| self.key(walk, key, slot), |walk, slot| walk.value(value, slot))?;
        let (place, source) = (slot.place, Source::Dialect(&delimiters::MAP));
        let (bound, overflow) = (walk.bound(slot), walk.overflow(slot));
        walk.emit(OpKind::Map { place, source, key, value, bound, overflow, min_wire: 0 });
        Ok(())
    }

    fn structure(&self, walk: &mut DecodeWalk<'_>, _: DefId, members: &[MemberIn<'_>]) -> Result<(), LowerError> {
        let arms = members.iter().map(|member| arm(walk, member)).collect::<Result<Vec<Arm>, LowerError>>()?;
        walk.emit(members_op(&delimiters::MEMBERS, arms));
        Ok(())
    }

    fn union(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Result<(), LowerError> {
        let writer = walk.writer();
        let DefKind::Union { cases, .. } = &writer.def(union.id).kind else { return Err(walk.mismatch()) };
        let table = symbols::union_head(writer, union.discriminator, cases, &str::to_string);
        let kernel = match writer.resolve(union.discriminator) {
            Type::Char8 | Type::Char16 => &delimiters::CHARACTER_SELECTOR,
            _ => &delimiters::SELECTOR,
        };
        let body = walk.block(|walk| {
            walk.emit(OpKind::Get(Wire::Symbol(kernel, table)));
            walk.union_arms(union, case)
        })?;
        walk.emit(OpKind::Region { dialect: &delimiters::DOCUMENT, argument: 0, body });
        Ok(())
    }
}

impl Decode<'_> {
    fn symbols(&self, walk: &DecodeWalk<'_>, id: DefId, slot: &Slot<'_>) -> Arc<SymbolTable> {
        encode::symbols(self.forms.schema, id, walk.default_literal(slot).map(i64::from))
    }

    fn elements(&self, walk: &mut DecodeWalk<'_>, ty: &Type, slot: &Slot<'_>) -> Result<(), LowerError> {
        let element = walk.element(slot, |walk, inside| walk.value(ty, inside))?;
        let (place, source) = (slot.place, Source::Dialect(&delimiters::ARRAY));
        let (bound, overflow) = (walk.bound(slot), walk.overflow(slot));
        walk.emit(OpKind::Sequence { place, source, element, bound, overflow, min_wire: 0 });
        Ok(())
    }

    /// Octets are written as binary. Small integers are read from binary, too.
    fn is_octet(&self, walk: &DecodeWalk<'_>, element: &Type) -> bool {
        matches!(walk.writer().resolve(element), Type::Octet | Type::Uint8)
    }

    fn may_be_binary(&self, walk: &DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> bool {
        self.is_octet(walk, element) && walk.bulk_scalar(element, slot) == Some(Scalar::U8)
    }

    fn key(&self, walk: &mut DecodeWalk<'_>, ty: &Type, slot: &Slot<'_>) -> Result<(), LowerError> {
        let ty = walk.writer().resolve(ty);
        let kernel = match (ty, scalar_of(ty)) {
            (Type::String { .. } | Type::WString { .. }, _) => {
                return walk.text(TextForm::Kernel(&get::KEY_TEXT), slot);
            }
            (Type::Def(id), _) => {
                let wire = Wire::Symbol(&get::KEY_LITERAL, self.symbols(walk, *id, slot));
                return walk.get(ty, wire, slot);
            }
            (Type::Bool, _) => &get::KEY_BOOLEAN,
            (Type::Char8 | Type::Char16, _) => &get::KEY_CHARACTER,
            (_, Some(wire)) if wire.is_signed() => &get::KEY_SIGNED,
            (_, Some(wire)) if wire.is_integer() => &get::KEY_UNSIGNED,
            _ => return Err(walk.unsupported("in BSON a map's key is a string, integer, boolean, character or enum")),
        };
        walk.get(ty, Wire::Kernel(kernel), slot)
    }
}

/// The program of a root that is not a document itself.
pub(super) fn wrapped(root: Block) -> Block {
    let op = |kind| Op { path: PathId(0), kind };
    let absent = Block(vec![op(OpKind::Fail(FaultKind::MissingMember))]);
    let arm = Arm { key: member_key(0, &terminated(VALUE)), prefix: None, body: root, absent };
    Block(vec![op(members_op(&delimiters::MEMBERS, vec![arm]))])
}

fn members_op(dialect: &'static MemberDialect, arms: Vec<Arm>) -> OpKind {
    let table = Arc::new(MemberTable::new(arms.iter().map(|arm| arm.key.clone()).collect()));
    OpKind::Members { dialect, arms, table }
}

fn arm(walk: &mut DecodeWalk<'_>, member: &MemberIn<'_>) -> Result<Arm, LowerError> {
    let key = member_key(0, &terminated(&member.writer.name));
    let prefix = Some(ExpectedPrefix { tag: PrefixTag::Byte, ..ExpectedPrefix::new(&key.name) });
    let value = walk.block(|walk| walk.member(member))?;
    if !member.writer.optional {
        let absent = walk.block(|walk| walk.missing(member))?;
        return Ok(Arm { key, prefix, body: value, absent });
    }
    let absent = walk.block(|walk| walk.absent(member))?;
    let then = absent.clone();
    let body = walk.block(|walk| {
        walk.emit(OpKind::Test(&delimiters::IS_NULL));
        walk.emit(OpKind::If { then, otherwise: value });
        Ok(())
    })?;
    Ok(Arm { key, prefix, body, absent })
}

/// Emits the value of a union's case, which is an element with the name of the case's member.
fn case(walk: &mut DecodeWalk<'_>, case: &CaseIn<'_>) -> Result<(), LowerError> {
    let body = walk.block(|walk| walk.case_value(case))?;
    let absent = walk.block(|walk| {
        walk.emit(OpKind::Fail(FaultKind::MissingMember));
        Ok(())
    })?;
    let key = member_key(0, &terminated(&case.member.name));
    walk.emit(members_op(&delimiters::CASE, vec![Arm { key, prefix: None, body, absent }]));
    Ok(())
}

fn binary_or(walk: &mut DecodeWalk<'_>, then: Block, otherwise: Block) {
    walk.emit(OpKind::Test(&delimiters::IS_BINARY));
    walk.emit(OpKind::If { then, otherwise });
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
