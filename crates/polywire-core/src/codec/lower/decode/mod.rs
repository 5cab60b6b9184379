//! The walk for decoding: the writer's schema beside the reader's, and the reader's layout.

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
    format,
    string::ToString,
    sync::Arc,
    vec::Vec,
};

use super::{LowerError, Paths, bits_scalar, encode::fields, enum_scalar, recursive, scalar_of, widens};
use crate::{
    layout::{Kind, Layout, NodeId, Scalar},
    program::{
        Block, Check, Direction, FaultKind, Op, OpKind, Order, Overflow, PathId, Place, Program, Routine, Segment,
        Source, TestKernel, TextForm, Wire,
    },
    schema::{
        Def, DefId, DefKind, EnumLiteral, Member, Schema, TryConstruct, Type,
        evolve::{self, CaseStep, DefaultValue, Verdict, absent_value, default_of, value_default, zero_of},
    },
};

mod defaults;
mod unions;

pub use unions::CaseIn;

/// How a format reads each kind of value. Types are the writer's; where the value goes is a
/// [`Slot`].
pub trait DecodeDialect {
    /// A boolean, number, character, bitmask or bitset. [`DecodeWalk::fixed`] or
    /// [`DecodeWalk::get`] do it all.
    fn scalar(&self, walk: &mut DecodeWalk<'_>, ty: &Type, wire: Scalar, slot: &Slot<'_>) -> Result<(), LowerError>;

    /// An enum.
    fn enumeration(
        &self,
        walk: &mut DecodeWalk<'_>,
        id: DefId,
        wire: Scalar,
        slot: &Slot<'_>,
    ) -> Result<(), LowerError>;

    /// A string, or a wide one. [`DecodeWalk::text`] does it all.
    fn text(&self, walk: &mut DecodeWalk<'_>, ty: &Type, slot: &Slot<'_>) -> Result<(), LowerError>;

    /// A sequence.
    fn sequence(&self, walk: &mut DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> Result<(), LowerError>;

    /// An array.
    fn array(&self, walk: &mut DecodeWalk<'_>, element: &Type, dims: &[u32], slot: &Slot<'_>)
    -> Result<(), LowerError>;

    /// A map.
    fn map(&self, walk: &mut DecodeWalk<'_>, key: &Type, value: &Type, slot: &Slot<'_>) -> Result<(), LowerError>;

    /// A structure. [`DecodeWalk::member`] reads a member's value, [`DecodeWalk::absent`] stands
    /// for one that is not there. What only the reader has was given its default before.
    fn structure(&self, walk: &mut DecodeWalk<'_>, id: DefId, members: &[MemberIn<'_>]) -> Result<(), LowerError>;

    /// A union. With the discriminator in the accumulator as an `I64`, checked for nothing yet,
    /// [`DecodeWalk::union_arms`] does the rest.
    fn union(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Result<(), LowerError>;
}

/// Where a value goes, and what the reader says of it.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    /// In memory; [`Place::Sink`] if the reader does not have it.
    pub place: Place,
    /// The reader's type; none for a sink.
    reader: Option<&'a Type>,
    /// What happens to a value that does not fit: what the nearest member around it says.
    try_construct: TryConstruct,
    /// The member that the value is, for its default; none for an element inside a member's value.
    member: Option<&'a Member>,
    /// The value is a map's key: no other may take its place.
    key: bool,
}

impl<'a> Slot<'a> {
    const SINK: Slot<'static> =
        Slot { place: Place::Sink, reader: None, try_construct: TryConstruct::Discard, member: None, key: false };

    /// For the root, which no member is around.
    fn root(place: Place, reader: &'a Type) -> Slot<'a> {
        Slot { place, reader: Some(reader), ..Slot::SINK }
    }

    /// For an element, or a map's value, inside this one.
    fn element(&self, node: Option<NodeId>, reader: Option<&'a Type>) -> Slot<'a> {
        match (node, reader) {
            (Some(node), Some(_)) => Slot { place: Place::At { offset: 0, node }, reader, member: None, ..*self },
            _ => Slot::SINK,
        }
    }

    /// For a map's key inside this one.
    fn key(&self, node: Option<NodeId>, reader: Option<&'a Type>) -> Slot<'a> {
        Slot { try_construct: TryConstruct::Discard, key: true, ..self.element(node, reader) }
    }

    /// What a routine made for a slot depends on besides the types: a union's unknown case has the
    /// policy of the member around it.
    fn policy(&self) -> (TryConstruct, Option<*const Member>) {
        (self.try_construct, self.member.map(core::ptr::from_ref))
    }
}

/// A member of the writer's, and what the reader has for it.
#[derive(Clone, Copy, Debug)]
pub struct MemberIn<'a> {
    /// Its declaration at the writer.
    pub writer: &'a Member,
    /// Its declaration at the reader, and where it is, optional and pointer included; none if it is
    /// skipped.
    pub reader: Option<(&'a Member, Place)>,
    /// The whole structure is skipped, so that nobody asks what is in it.
    pub in_skipped: bool,
}

/// A union to be read.
#[derive(Clone, Copy, Debug)]
pub struct UnionIn<'a> {
    /// The writer's definition.
    pub id: DefId,
    /// The writer's type of the discriminator.
    pub discriminator: &'a Type,
    /// The discriminator on the wire of a format that has fixed-size integers.
    pub wire: Scalar,
    /// Where it goes.
    pub slot: Slot<'a>,
}

/// The walk: what is emitted so far, and where it stands.
pub struct DecodeWalk<'a> {
    dialect: &'a dyn DecodeDialect,
    writer: &'a Schema,
    reader: &'a Schema,
    layout: &'a Layout,
    paths: Paths,
    ops: Vec<Op>,
    recursive: BTreeSet<DefId>,
    routines: Vec<Option<Routine>>,
    routine_of: BTreeMap<RoutineKey, u32>,
}

/// What a routine is made for: the writer's definition, the reader's and where it lies, and for a
/// union what [`Slot::policy`] says.
type RoutineKey = (DefId, Option<(DefId, NodeId)>, Option<(u8, Option<*const Member>)>);

/// Lowers a pair of types for decoding. Paths in errors are the writer's.
pub fn lower(
    dialect: &dyn DecodeDialect,
    writer: &Schema,
    reader: &Schema,
    layout: &Arc<Layout>,
) -> Result<Program, LowerError> {
    lower_several(&[dialect], writer, reader, layout, |walk, blocks| blocks.into_iter().for_each(|b| walk.append(b)))
}

/// Lowers a pair of types once for each of some dialects, for a format of which a message says
/// itself how it goes on. `join` emits what chooses among the blocks, which come in the order of
/// the dialects.
pub fn lower_several(
    dialects: &[&dyn DecodeDialect],
    writer: &Schema,
    reader: &Schema,
    layout: &Arc<Layout>,
    join: impl FnOnce(&mut DecodeWalk<'_>, Vec<Block>),
) -> Result<Program, LowerError> {
    if let refused @ Verdict::Refused(_) = evolve::assess(writer, reader) {
        return Err(LowerError::Refused(format!("{refused}")));
    }
    let Some(first) = dialects.first() else { return Err(LowerError::Option("there is no dialect".to_string())) };
    let mut walk = DecodeWalk {
        dialect: *first,
        writer,
        reader,
        layout,
        paths: Paths::new(),
        ops: Vec::new(),
        recursive: recursive(writer),
        routines: Vec::new(),
        routine_of: BTreeMap::new(),
    };
    let place = Place::At { offset: 0, node: layout.root() };
    let blocks = dialects.iter().map(|dialect| {
        walk.dialect = *dialect;
        walk.routine_of.clear();
        walk.block(|walk| walk.value(writer.root(), &Slot::root(place, reader.root())))
    });
    let blocks = blocks.collect::<Result<Vec<Block>, LowerError>>()?;
    join(&mut walk, blocks);
    Ok(Program {
        direction: Direction::Decode,
        layout: layout.clone(),
        root: Block(walk.ops),
        routines: walk.routines.into_iter().flatten().collect(),
        adapter: None,
        paths: walk.paths.all,
        bank: None,
    })
}

impl<'a> DecodeWalk<'a> {
    /// Appends an operation, blamed on the current field.
    pub fn emit(&mut self, kind: OpKind) {
        let op = self.paths.op(kind);
        self.ops.push(op);
    }

    /// What `fill` emits, as a block of its own.
    pub fn block(&mut self, fill: impl FnOnce(&mut Self) -> Result<(), LowerError>) -> Result<Block, LowerError> {
        let outer = core::mem::take(&mut self.ops);
        let filled = fill(self);
        let inner = core::mem::replace(&mut self.ops, outer);
        filled.map(|()| Block(inner))
    }

    /// Appends a block's operations.
    pub fn append(&mut self, block: Block) {
        self.ops.extend(block.0);
    }

    /// Emits the value of a writer's type into a slot.
    pub fn value(&mut self, ty: &Type, slot: &Slot<'_>) -> Result<(), LowerError> {
        let dialect = self.dialect;
        self.paths.step().map_err(|what| self.unsupported(what))?;
        match self.writer.resolve(ty) {
            Type::Def(id) => self.def(*id, slot),
            ty @ (Type::String { .. } | Type::WString { .. }) => dialect.text(self, ty, slot),
            Type::Sequence { element, .. } => dialect.sequence(self, element, slot),
            Type::Array { element, dims } => dialect.array(self, element, dims, slot),
            Type::Map { key, value, .. } => dialect.map(self, key, value, slot),
            primitive => match scalar_of(primitive) {
                Some(scalar) => dialect.scalar(self, primitive, scalar, slot),
                None => Err(self.unsupported("the type has no scalar")),
            },
        }
    }

    fn def(&mut self, id: DefId, slot: &Slot<'_>) -> Result<(), LowerError> {
        let (dialect, writer) = (self.dialect, self.writer);
        match &writer.def(id).kind {
            DefKind::Enum { bit_bound, .. } => dialect.enumeration(self, id, enum_scalar(*bit_bound), slot),
            DefKind::Bitmask { .. } | DefKind::Bitset { .. } => {
                dialect.scalar(self, &Type::Def(id), bits_scalar(writer, id), slot)
            }
            _ if self.recursive.contains(&id) => self.routine(id, slot),
            _ => self.aggregate(id, slot),
        }
    }

    fn routine(&mut self, id: DefId, slot: &Slot<'_>) -> Result<(), LowerError> {
        let target = self.reader_def(slot).zip(slot.place.node());
        let is_union = matches!(self.writer.def(id).kind, DefKind::Union { .. });
        let (policy, member) = slot.policy();
        let key = (id, target, is_union.then_some((policy as u8, member)));
        if let Some(routine) = self.routine_of.get(&key) {
            self.emit(OpKind::Call { routine: *routine, place: slot.place });
            return Ok(());
        }
        let routine = self.routines.len() as u32;
        self.routine_of.insert(key, routine);
        self.routines.push(None);
        let mut inside = *slot;
        if let Place::At { node, .. } = slot.place {
            inside.place = Place::At { offset: 0, node };
        }
        let block = self.block(|walk| walk.aggregate(id, &inside))?;
        self.routines[routine as usize] = Some(Routine { frame: slot.place.node(), block, levels: 1 });
        self.emit(OpKind::Call { routine, place: slot.place });
        Ok(())
    }

    /// The definition that the reader has for a slot.
    fn reader_def(&self, slot: &Slot<'_>) -> Option<DefId> {
        match self.reader.resolve(slot.reader?) {
            Type::Def(id) => Some(*id),
            _ => None,
        }
    }

    fn aggregate(&mut self, id: DefId, slot: &Slot<'_>) -> Result<(), LowerError> {
        let (dialect, writer) = (self.dialect, self.writer);
        match &writer.def(id).kind {
            DefKind::Union { discriminator, .. } => {
                let wire = match writer.def_of(discriminator) {
                    Some(Def { kind: DefKind::Enum { bit_bound, .. }, .. }) => Some(enum_scalar(*bit_bound)),
                    _ => scalar_of(writer.resolve(discriminator)),
                };
                let wire = wire.ok_or_else(|| self.mismatch())?;
                dialect.union(self, &UnionIn { id, discriminator, wire, slot: *slot })
            }
            _ => {
                let members = self.pair_members(id, slot)?;
                dialect.structure(self, id, &members)
            }
        }
    }

    /// The writer's members with the reader's beside them. What only the reader has is given its
    /// default.
    fn pair_members(&mut self, id: DefId, slot: &Slot<'_>) -> Result<Vec<MemberIn<'a>>, LowerError> {
        let (writer, reader) = (self.writer, self.reader);
        let Some(target) = self.reader_def(slot) else {
            let skipped = |writer| MemberIn { writer, reader: None, in_skipped: true };
            return Ok(writer.members(id).into_iter().map(skipped).collect());
        };
        let places = fields(self.layout, slot.place).ok_or_else(|| self.mismatch())?;
        let pairs = evolve::pair_members(writer, id, reader, target);
        let pairs = pairs.map_err(|conflict| LowerError::Refused(format!("{conflict}")))?;
        let place = |i: usize| places.get(i).copied();
        let mut members = Vec::new();
        for pair in pairs {
            let theirs = match pair.reader {
                Some((i, member)) => Some((member, place(i).ok_or_else(|| self.mismatch())?)),
                None => None,
            };
            match (pair.writer, theirs) {
                (Some((_, writer)), reader) => members.push(MemberIn { writer, reader, in_skipped: false }),
                (None, Some((member, place))) => self.default_member(member, place)?,
                (None, None) => {}
            }
        }
        Ok(members)
    }

    /// Emits a member's value: for one that the writer says is optional, where it is known to be
    /// there.
    pub fn member(&mut self, member: &MemberIn<'_>) -> Result<(), LowerError> {
        self.member_as(member, |walk, slot| walk.value(&member.writer.ty, slot))
    }

    /// The same for a format that has a form of its own for the value: `fill` emits what reads it
    /// into the slot.
    pub fn member_as(
        &mut self,
        member: &MemberIn<'_>,
        fill: impl FnOnce(&mut Self, &Slot<'_>) -> Result<(), LowerError>,
    ) -> Result<(), LowerError> {
        let step = self.paths.enter(&member.writer.name);
        let done = match member.reader {
            None if member.must_be_understood() => {
                self.emit(OpKind::Fail(FaultKind::UnknownMember));
                Ok(())
            }
            None => fill(self, &Slot::SINK),
            Some((reader, place)) => self.in_member(reader, place, fill),
        };
        self.paths.leave(step);
        done
    }

    /// Emits a member's value in a format with a mark for absence; where the writer's or the
    /// reader's may be absent, `none` looks for the mark.
    pub fn member_unless(&mut self, none: &'static TestKernel, member: &MemberIn<'_>) -> Result<(), LowerError> {
        if !member.writer.optional && !member.reader.is_some_and(|(reader, _)| reader.optional) {
            return self.member(member);
        }
        let then = self.block(|walk| walk.absent(member))?;
        let otherwise = self.block(|walk| walk.member(member))?;
        self.emit(OpKind::Test(none));
        self.emit(OpKind::If { then, otherwise });
        Ok(())
    }

    /// Emits what stands for a member that the message does not have, in a format that can leave
    /// members out.
    pub fn left_out(&mut self, member: &MemberIn<'_>) -> Result<(), LowerError> {
        match member.writer.optional {
            true => self.absent(member),
            false => self.missing(member),
        }
    }

    /// Emits what stands for an optional member of the writer's that is absent: absence, what the
    /// reader says is to stand for it, or an error, because an absent value is no zero.
    pub fn absent(&mut self, member: &MemberIn<'_>) -> Result<(), LowerError> {
        let step = self.paths.enter(&member.writer.name);
        let done = match member.reader.map(|(reader, place)| (reader, place, absent_value(self.reader, reader))) {
            None => Ok(()),
            Some((reader, place, Some(_))) => self.default_member(reader, place),
            Some((_, _, None)) => {
                self.emit(OpKind::Fail(FaultKind::MissingMember));
                Ok(())
            }
        };
        self.paths.leave(step);
        done
    }

    /// Emits what stands for a mandatory member that a format can leave out and the message does
    /// not have: an error for a key, else the reader's default.
    pub fn missing(&mut self, member: &MemberIn<'_>) -> Result<(), LowerError> {
        let step = self.paths.enter(&member.writer.name);
        let done = match member.reader {
            _ if member.in_skipped => Ok(()),
            _ if member.writer.key || member.writer.must_understand => {
                self.emit(OpKind::Fail(FaultKind::MissingMember));
                Ok(())
            }
            Some((reader, place)) => self.default_member(reader, place),
            None => Ok(()),
        };
        self.paths.leave(step);
        done
    }

    /// Goes through optional and pointer to the value of a reader's member.
    fn in_member(
        &mut self,
        member: &Member,
        place: Place,
        fill: impl FnOnce(&mut Self, &Slot<'_>) -> Result<(), LowerError>,
    ) -> Result<(), LowerError> {
        match self.kind(place) {
            Some(Kind::Optional(optional)) if member.optional => {
                let inside = Place::At { offset: 0, node: optional.inner };
                let body = self.block(|walk| walk.through_pointer(member, inside, fill))?;
                self.emit(OpKind::Present { place, body });
                Ok(())
            }
            _ => self.through_pointer(member, place, fill),
        }
    }

    fn through_pointer(
        &mut self,
        member: &Member,
        place: Place,
        fill: impl FnOnce(&mut Self, &Slot<'_>) -> Result<(), LowerError>,
    ) -> Result<(), LowerError> {
        let slot = |place| Slot {
            place,
            reader: Some(&member.ty),
            try_construct: member.try_construct,
            member: Some(member),
            key: false,
        };
        match self.kind(place) {
            Some(Kind::Boxed(boxed)) if member.external => {
                let inside = Place::At { offset: 0, node: boxed.inner };
                let body = self.block(|walk| fill(walk, &slot(inside)))?;
                self.emit(OpKind::Unbox { place, body });
                Ok(())
            }
            _ => fill(self, &slot(place)),
        }
    }

    /// Emits a fixed-size scalar of the wire into a slot: as part of a run where memory and wire
    /// allow it.
    pub fn fixed(&mut self, ty: &Type, wire: Scalar, order: Order, slot: &Slot<'_>) -> Result<(), LowerError> {
        match self.segment(ty, wire, order, slot)? {
            Some(segment) => {
                let size = segment.size();
                self.emit(OpKind::Run { segments: [segment].into(), size });
                Ok(())
            }
            None => {
                let unchecked = if wire == Scalar::Bool { Scalar::U8 } else { wire };
                self.get(ty, Wire::Fixed { scalar: unchecked, order }, slot)
            }
        }
    }

    /// The same as a segment, if that can be.
    pub fn segment(
        &mut self,
        ty: &Type,
        wire: Scalar,
        order: Order,
        slot: &Slot<'_>,
    ) -> Result<Option<Segment>, LowerError> {
        let check = self.check(ty, wire, slot)?;
        let memory = match slot.place {
            Place::Sink => wire,
            place => self.memory_scalar(place)?,
        };
        let fits = match &check {
            None | Some(Check::Bool | Check::Enum { .. }) => wire == memory || widens(wire, memory),
            Some(Check::OneOf(_)) => slot.place == Place::Sink,
            Some(_) => false,
        };
        Ok(fits.then_some(Segment { place: slot.place, at: 0, wire, memory, count: 1, order, check }))
    }

    /// Emits a scalar of the wire into a slot: fetched, checked, converted and stored.
    pub fn get(&mut self, ty: &Type, wire: Wire, slot: &Slot<'_>) -> Result<(), LowerError> {
        let scalar = wire.scalar();
        self.emit(OpKind::Get(wire));
        self.store(ty, scalar, slot)
    }

    /// Emits what moves the accumulator, a value of the writer's type that is a `scalar`, into a
    /// slot.
    pub fn store(&mut self, ty: &Type, scalar: Scalar, slot: &Slot<'_>) -> Result<(), LowerError> {
        let declared = self.wire_scalar(ty);
        // A format may give a wider integer than the writer's type; that it is one of the type's
        // values is checked here.
        if declared != scalar && declared != Scalar::Bool {
            self.emit(OpKind::Convert(declared));
        }
        let check = self.check(ty, declared, slot)?;
        if let Some(check) = check.filter(|c| scalar != Scalar::Bool || !matches!(c, Check::Bool)) {
            self.emit(OpKind::Check(check));
        }
        if slot.place == Place::Sink {
            return Ok(());
        }
        let memory = self.memory_scalar(slot.place)?;
        if memory != declared {
            self.emit(OpKind::Convert(memory));
        }
        self.emit(OpKind::Store(slot.place));
        Ok(())
    }

    /// The scalar of a writer's primitive, enum, bitmask or bitset on a wire that has fixed-size
    /// integers.
    fn wire_scalar(&self, ty: &Type) -> Scalar {
        match self.writer.resolve(ty) {
            Type::Def(id) => match &self.writer.def(*id).kind {
                DefKind::Enum { bit_bound, .. } => enum_scalar(*bit_bound),
                _ => bits_scalar(self.writer, *id),
            },
            primitive => scalar_of(primitive).unwrap_or(Scalar::U8),
        }
    }

    /// What must be checked or masked before a writer's scalar is stored.
    fn check(&mut self, ty: &Type, wire: Scalar, slot: &Slot<'_>) -> Result<Option<Check>, LowerError> {
        let writer = self.writer;
        let Type::Def(id) = writer.resolve(ty) else {
            return Ok((wire == Scalar::Bool).then_some(Check::Bool));
        };
        match (&writer.def(*id).kind, slot.place) {
            (DefKind::Enum { literals, .. }, Place::Sink) => Ok(Some(one_of(literals))),
            (DefKind::Enum { .. }, Place::At { node, .. }) => {
                Ok(Some(Check::Enum { node, otherwise: self.default_literal(slot) }))
            }
            (_, Place::Sink) => Ok(None),
            _ => self.kept_bits(*id, slot),
        }
    }

    /// The literal that takes the place of one that the reader does not know, if its type or member
    /// says so.
    pub fn default_literal(&self, slot: &Slot<'_>) -> Option<i32> {
        let id = self.reader_def(slot).filter(|_| !slot.key)?;
        evolve::unknown_literal(self.reader, id, slot.try_construct, slot.member)
    }

    fn kept_bits(&self, id: DefId, slot: &Slot<'_>) -> Result<Option<Check>, LowerError> {
        let Some(target) = self.reader_def(slot) else { return Ok(None) };
        if self.writer.def(id) == self.reader.def(target) {
            return Ok(None);
        }
        let kept = evolve::kept_bits(self.writer, id, self.reader, target);
        kept.map(|bits| Some(Check::Keep(bits))).map_err(|conflict| LowerError::Refused(format!("{conflict}")))
    }

    /// Emits a string into a slot, with the reader's bound and policy.
    pub fn text(&mut self, form: TextForm, slot: &Slot<'_>) -> Result<(), LowerError> {
        let (bound, utf16_bound) = match slot.reader.map(|ty| self.reader.resolve(ty)) {
            Some(Type::String { bound }) => (*bound, false),
            Some(Type::WString { bound }) => (*bound, true),
            _ => (0, false),
        };
        let overflow = self.overflow(slot);
        self.emit(OpKind::Text { place: slot.place, form, bound, utf16_bound, overflow, after: 0 });
        Ok(())
    }

    /// What happens to what is longer than the reader's bound.
    pub fn overflow(&self, slot: &Slot<'_>) -> Overflow {
        match slot.try_construct {
            TryConstruct::Discard => Overflow::Refuse,
            TryConstruct::Trim => Overflow::Trim,
            TryConstruct::UseDefault => match slot.member.map(|m| value_default(self.reader, m)) {
                Some(DefaultValue::Text(text)) => Overflow::UseDefault(text.into()),
                _ => Overflow::UseDefault("".into()),
            },
        }
    }

    /// The bound that the reader's sequence or map has; 0 is none.
    pub fn bound(&self, slot: &Slot<'_>) -> u32 {
        match slot.reader.map(|ty| self.reader.resolve(ty)) {
            Some(Type::Sequence { bound, .. } | Type::Map { bound, .. }) => *bound,
            _ => 0,
        }
    }

    /// The scalar of a sequence's elements, if the wire's bytes can be copied to memory all at once
    /// but for their order.
    pub fn bulk_scalar(&self, element: &Type, slot: &Slot<'_>) -> Option<Scalar> {
        match self.kind(slot.place) {
            None => scalar_of(self.writer.resolve(element)),
            Some(Kind::Sequence(_)) => self.slice_scalar(element, slot),
            Some(_) => None,
        }
    }

    /// The scalar of a sequence's or array's elements, if it is the same in memory; none for a
    /// sink.
    pub fn slice_scalar(&self, element: &Type, slot: &Slot<'_>) -> Option<Scalar> {
        let scalar = scalar_of(self.writer.resolve(element))?;
        let node = match self.kind(slot.place)? {
            Kind::Sequence(sequence) => sequence.element,
            Kind::Array { element, .. } => *element,
            _ => return None,
        };
        match &self.layout.node(node).kind {
            Kind::Scalar(memory) => (*memory == scalar).then_some(scalar),
            _ => None,
        }
    }

    /// The block for an element of a sequence or array: `fill` gets the element's slot.
    pub fn element(
        &mut self,
        slot: &Slot<'_>,
        fill: impl FnOnce(&mut Self, &Slot<'_>) -> Result<(), LowerError>,
    ) -> Result<Block, LowerError> {
        let node = match self.kind(slot.place) {
            None => None,
            Some(Kind::Sequence(sequence)) => Some(sequence.element),
            Some(Kind::Array { element, .. }) => Some(*element),
            Some(_) => return Err(self.mismatch()),
        };
        let reader = match slot.reader.map(|ty| self.reader.resolve(ty)) {
            Some(Type::Sequence { element, .. } | Type::Array { element, .. }) => Some(&**element),
            _ => None,
        };
        let inside = slot.element(node, reader);
        let step = self.paths.enter("[]");
        let block = self.block(|walk| fill(walk, &inside));
        self.paths.leave(step);
        block
    }

    /// The blocks for an entry of a map: both get the slot of what they read.
    pub fn entry(
        &mut self,
        slot: &Slot<'_>,
        key: impl FnOnce(&mut Self, &Slot<'_>) -> Result<(), LowerError>,
        value: impl FnOnce(&mut Self, &Slot<'_>) -> Result<(), LowerError>,
    ) -> Result<(Block, Block), LowerError> {
        let nodes = match self.kind(slot.place) {
            None => (None, None),
            Some(Kind::Map(map)) => (Some(map.key), Some(map.value)),
            Some(_) => return Err(self.mismatch()),
        };
        let types = match slot.reader.map(|ty| self.reader.resolve(ty)) {
            Some(Type::Map { key, value, .. }) => (Some(&**key), Some(&**value)),
            _ => (None, None),
        };
        let (k, v) = (slot.key(nodes.0, types.0), slot.element(nodes.1, types.1));
        let step = self.paths.enter("[]");
        let blocks = self.block(|walk| key(walk, &k)).and_then(|key| Ok((key, self.block(|walk| value(walk, &v))?)));
        self.paths.leave(step);
        blocks
    }

    /// The writer's schema.
    pub fn writer(&self) -> &'a Schema {
        self.writer
    }

    /// The reader's layout.
    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// What lies at a place.
    pub fn kind(&self, place: Place) -> Option<&'a Kind> {
        place.node().map(|node| &self.layout.node(node).kind)
    }

    fn memory_scalar(&self, place: Place) -> Result<Scalar, LowerError> {
        match self.kind(place) {
            Some(Kind::Scalar(scalar)) => Ok(*scalar),
            Some(Kind::Enum(node)) => Ok(node.repr),
            _ => Err(self.mismatch()),
        }
    }

    /// The current field's path, for an operation that a dialect makes by hand.
    pub fn path(&mut self) -> PathId {
        self.paths.id()
    }

    /// An error about the current field.
    pub fn unsupported(&self, what: impl ToString) -> LowerError {
        LowerError::Unsupported { path: self.paths.current.clone(), what: what.to_string() }
    }

    /// The layout is of another type than the schema.
    pub fn mismatch(&self) -> LowerError {
        LowerError::Layout { path: self.paths.current.clone() }
    }
}

impl MemberIn<'_> {
    /// The reader lacks a member that it must not pass over where it is present.
    pub fn must_be_understood(&self) -> bool {
        self.reader.is_none() && !self.in_skipped && self.writer.must_understand
    }
}

/// It is a literal of the writer's.
fn one_of(literals: &[EnumLiteral]) -> Check {
    let mut values: Vec<i64> = literals.iter().map(|l| l.value.into()).collect();
    values.sort_unstable();
    Check::OneOf(values.into())
}

/// A boxed name, for the keys of members.
pub fn key(id: u32, name: &[u8]) -> crate::program::MemberKey {
    crate::program::MemberKey { id, name: Box::from(name) }
}
