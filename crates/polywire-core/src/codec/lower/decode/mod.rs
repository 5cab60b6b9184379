//! The walk for decoding. It follows the writer's and the reader's schema with the reader's layout
//! and makes a program that reads the writer's values into the reader's. A format's
//! [`DecodeDialect`] supplies the operations for each kind of type. Codecs call [`lower`] or
//! [`lower_several`]. It reads schemas and layout and makes a program.

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet, VecDeque},
    format,
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};

use super::{
    LowerError, Lowered, Paths, bits_scalar, encode::fields, enum_scalar, in_routines, scalar_of, symbols, union_parts,
    widens,
};
use crate::{
    layout::{Kind, Layout, NodeId, Scalar},
    program::{
        ActionKernel, Arm, Block, Check, Direction, FaultKind, MemberDialect, Op, OpKind, Order, Overflow, PathId,
        Place, Program, Routine, Segment, SliceKernel, Source, SymbolTable, TestKernel, TextForm, Wire,
    },
    schema::{
        Def, DefId, DefKind, EnumLiteral, Member, Schema, TryConstruct, Type,
        evolve::{self, CaseStep, DefaultValue, Verdict, default_of, has_absent_value, value_default, zero_of},
        part_count,
    },
};

mod defaults;
mod routines;
mod unions;

pub use unions::CaseIn;

/// How a format reads each kind of value. All types are the writer's. The destination is a
/// [`Slot`].
pub trait DecodeDialect {
    /// Emits a boolean, number, character, bitmask or bitset. [`DecodeWalk::fixed`] or
    /// [`DecodeWalk::get`] emit everything that is needed.
    fn scalar(&self, walk: &mut DecodeWalk<'_>, ty: &Type, wire: Scalar, slot: &Slot<'_>) -> Result<(), LowerError>;

    /// Emits an enum.
    fn enumeration(
        &self,
        walk: &mut DecodeWalk<'_>,
        id: DefId,
        wire: Scalar,
        slot: &Slot<'_>,
    ) -> Result<(), LowerError>;

    /// Emits a string or wide string. [`DecodeWalk::text`] emits everything that is needed.
    fn text(&self, walk: &mut DecodeWalk<'_>, ty: &Type, slot: &Slot<'_>) -> Result<(), LowerError>;

    /// Emits a sequence.
    fn sequence(&self, walk: &mut DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> Result<(), LowerError>;

    /// Emits an array.
    fn array(&self, walk: &mut DecodeWalk<'_>, element: &Type, dims: &[u32], slot: &Slot<'_>)
    -> Result<(), LowerError>;

    /// Emits a map.
    fn map(&self, walk: &mut DecodeWalk<'_>, key: &Type, value: &Type, slot: &Slot<'_>) -> Result<(), LowerError>;

    /// Emits a structure. Call [`DecodeWalk::member`] for a member's value and
    /// [`DecodeWalk::absent`] for an absent one. Members that only the reader has were set to their
    /// defaults before.
    fn structure(&self, walk: &mut DecodeWalk<'_>, id: DefId, members: &[MemberIn<'_>]) -> Result<(), LowerError>;

    /// Emits a union. Read the discriminator into the accumulator as an `I64`, without checking it,
    /// and call [`DecodeWalk::union_arms`].
    fn union(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Result<(), LowerError>;

    /// The part of the dialect's own state on which the operations for a structure or union depend.
    /// A recursive type gets a routine for each state.
    fn context(&self) -> u64 {
        0
    }

    /// Sets that state to one that [`DecodeDialect::context`] returned. A routine is then emitted
    /// when the walk has ended, which needs no stack for types that contain each other. False if
    /// the dialect cannot set it: then routines are emitted in place, and the family is limited.
    fn resume(&self, context: u64) -> bool {
        context == 0
    }
}

/// The destination of a value, and what the reader's type requires of it.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    /// The place in memory. [`Place::Sink`] if the reader does not have the value, so that it is
    /// skipped.
    pub place: Place,
    /// The reader's type. `None` for a sink.
    reader: Option<&'a Type>,
    /// `@try_construct` of the nearest surrounding member: what happens to a value that does not
    /// fit.
    try_construct: TryConstruct,
    /// The reader's member, if the value is the member's own. `None` for an element inside it.
    member: Option<&'a Member>,
    /// True for a map's key, which no other value may replace.
    key: bool,
}

impl<'a> Slot<'a> {
    const SINK: Slot<'static> =
        Slot { place: Place::Sink, reader: None, try_construct: TryConstruct::Discard, member: None, key: false };

    /// The slot of the root.
    fn root(place: Place, reader: &'a Type) -> Slot<'a> {
        Slot { place, reader: Some(reader), ..Slot::SINK }
    }

    /// The slot of an element or a map's value inside this one.
    fn element(&self, node: Option<NodeId>, reader: Option<&'a Type>) -> Slot<'a> {
        match (node, reader) {
            (Some(node), Some(_)) => Slot { place: Place::At { offset: 0, node }, reader, member: None, ..*self },
            _ => Slot::SINK,
        }
    }

    /// The slot of a map's key inside this one.
    fn key(&self, node: Option<NodeId>, reader: Option<&'a Type>) -> Slot<'a> {
        Slot { try_construct: TryConstruct::Discard, key: true, ..self.element(node, reader) }
    }
}

/// A member of the writer's structure, with the reader's counterpart.
#[derive(Clone, Copy, Debug)]
pub struct MemberIn<'a> {
    /// The writer's declaration.
    pub writer: &'a Member,
    /// The reader's declaration, and its place including optional and pointer. `None` if the member
    /// is skipped.
    pub reader: Option<(&'a Member, Place)>,
    /// True if the whole structure is skipped, so that mandatory members may be missing in it.
    pub in_skipped: bool,
}

/// A union to read.
#[derive(Clone, Copy, Debug)]
pub struct UnionIn<'a> {
    /// The writer's definition.
    pub id: DefId,
    /// The writer's type of the discriminator.
    pub discriminator: &'a Type,
    /// The discriminator's integer type, for formats that have fixed-size integers.
    pub wire: Scalar,
    /// The destination.
    pub slot: Slot<'a>,
}

/// The state of the walk: the operations emitted so far and the current field.
pub struct DecodeWalk<'a> {
    dialect: &'a dyn DecodeDialect,
    writer: &'a Schema,
    reader: &'a Schema,
    layout: &'a Layout,
    paths: Paths,
    ops: Vec<Op>,
    /// The definitions that have routines.
    in_routines: BTreeSet<DefId>,
    routines: Vec<Option<Routine>>,
    routine_of: BTreeMap<RoutineKey, u32>,
    waiting: VecDeque<routines::Waiting>,
    /// The literals of the writer's enums in ascending order; see [`DecodeWalk::one_of`].
    literals: BTreeMap<DefId, Arc<[i64]>>,
    /// The names of the writer's literals, with what replaces others; see
    /// [`DecodeWalk::literals`].
    names: BTreeMap<(DefId, Option<i32>), Arc<SymbolTable>>,
    /// Smallest sizes of the writer's definitions, for codecs that compute them.
    pub(crate) min_sizes: BTreeMap<DefId, u64>,
}

/// What a routine depends on: the writer's definition, the reader's definition with its node, for a
/// union what the surrounding member says of an unknown case, and [`DecodeDialect::context`].
type RoutineKey = (DefId, Option<(DefId, NodeId)>, Option<u8>, u64);

/// Lowers a pair of types for decoding. Paths in errors use the writer's names.
pub fn lower(
    dialect: &dyn DecodeDialect,
    writer: &Schema,
    reader: &Schema,
    layout: &Arc<Layout>,
) -> Result<Program, LowerError> {
    lower_several(&[dialect], writer, reader, layout, |walk, blocks| blocks.into_iter().for_each(|b| walk.append(b)))
}

/// Lowers a pair of types with several dialects, for a format whose messages say which of them
/// applies. `join` gets one block for each dialect, in the same order, and emits the choice among
/// them.
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
    let Some(first) = dialects.first() else { return Err(LowerError::Option("no dialect is given".to_string())) };
    let mut walk = DecodeWalk {
        dialect: *first,
        writer,
        reader,
        layout,
        paths: Paths::new(),
        ops: Vec::new(),
        in_routines: in_routines(writer, first.resume(first.context()), |id| union_parts(writer, id)),
        routines: Vec::new(),
        routine_of: BTreeMap::new(),
        waiting: VecDeque::new(),
        literals: BTreeMap::new(),
        names: BTreeMap::new(),
        min_sizes: BTreeMap::new(),
    };
    let place = Place::At { offset: 0, node: layout.root() };
    let blocks = dialects.iter().map(|dialect| {
        walk.dialect = *dialect;
        walk.routine_of.clear();
        walk.paths.set(String::new());
        let block = walk.block(|walk| walk.value(writer.root(), &Slot::root(place, reader.root())))?;
        walk.waiting_routines()?;
        Ok(block)
    });
    let blocks = blocks.collect::<Result<Vec<Block>, LowerError>>()?;
    walk.paths.set(String::new());
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
    /// Appends an operation. Its errors name the current field.
    pub fn emit(&mut self, kind: OpKind) {
        let op = self.paths.op(kind);
        self.ops.push(op);
    }

    /// Collects what `fill` emits into a block of its own.
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

    /// Emits the reading of a value of the writer's type `ty` into a slot.
    pub fn value(&mut self, ty: &Type, slot: &Slot<'_>) -> Result<(), LowerError> {
        self.paths.down().map_err(|what| self.unsupported(what))?;
        let done = self.by_kind(ty, slot);
        self.paths.up();
        done
    }

    fn by_kind(&mut self, ty: &Type, slot: &Slot<'_>) -> Lowered {
        let dialect = self.dialect;
        match self.writer.resolve(ty) {
            Type::Def(id) => self.def(*id, slot),
            ty @ (Type::String { .. } | Type::WString { .. }) => dialect.text(self, ty, slot),
            Type::Sequence { element, .. } => dialect.sequence(self, element, slot),
            Type::Array { element, dims } => dialect.array(self, element, dims, slot),
            Type::Map { key, value, .. } => dialect.map(self, key, value, slot),
            primitive => match scalar_of(primitive) {
                Some(scalar) => dialect.scalar(self, primitive, scalar, slot),
                None => Err(self.unsupported("the type is not a scalar")),
            },
        }
    }

    fn def(&mut self, id: DefId, slot: &Slot<'_>) -> Lowered {
        let (dialect, writer) = (self.dialect, self.writer);
        match &writer.def(id).kind {
            DefKind::Enum { bit_bound, .. } => dialect.enumeration(self, id, enum_scalar(*bit_bound), slot),
            DefKind::Bitmask { .. } | DefKind::Bitset { .. } => {
                dialect.scalar(self, &Type::Def(id), bits_scalar(writer, id), slot)
            }
            _ if self.in_routines.contains(&id) => self.routine(id, slot),
            _ => self.aggregate(id, slot),
        }
    }

    /// The reader's definition for a slot, if its type is one.
    fn reader_def(&self, slot: &Slot<'_>) -> Option<DefId> {
        match self.reader.resolve(slot.reader?) {
            Type::Def(id) => Some(*id),
            _ => None,
        }
    }

    fn aggregate(&mut self, id: DefId, slot: &Slot<'_>) -> Lowered {
        let (dialect, writer) = (self.dialect, self.writer);
        match &writer.def(id).kind {
            DefKind::Union { discriminator, .. } => {
                let reader = self.reader_def(slot).map_or(0, |id| union_parts(self.reader, id));
                let parts = union_parts(writer, id).saturating_add(reader);
                self.paths.steps(parts).map_err(|what| self.unsupported(what))?;
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

    /// The writer's members with the reader's counterparts. Emits default values for members that
    /// only the reader has.
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

    /// Emits a member's value. If the member is optional at the writer, call this only where the
    /// value is known to be present.
    pub fn member(&mut self, member: &MemberIn<'_>) -> Result<(), LowerError> {
        self.member_as(member, |walk, slot| walk.value(&member.writer.ty, slot))
    }

    /// Like [`DecodeWalk::member`], for a format with a special form of the value: `fill` emits the
    /// reading into the slot.
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

    /// Emits a member's value in a format with a null for absent values. If the member is optional
    /// at the writer or the reader, `none` tests for the null.
    pub fn member_unless(&mut self, none: &'static TestKernel, member: &MemberIn<'_>) -> Result<(), LowerError> {
        if !member.writer.optional && !member.reader.is_some_and(|(reader, _)| reader.optional) {
            return self.member(member);
        }
        self.choose(none, |walk| walk.absent(member), |walk| walk.member(member))
    }

    /// Emits a test, and the choice that it makes.
    pub(crate) fn choose(
        &mut self,
        test: &'static TestKernel,
        then: impl FnOnce(&mut Self) -> Lowered,
        otherwise: impl FnOnce(&mut Self) -> Lowered,
    ) -> Lowered {
        let (then, otherwise) = (self.block(then)?, self.block(otherwise)?);
        self.emit(OpKind::Test(test));
        self.emit(OpKind::If { then, otherwise });
        Ok(())
    }

    /// Emits the substitute for a member that a message lacks, in a format that may omit members.
    pub fn left_out(&mut self, member: &MemberIn<'_>) -> Result<(), LowerError> {
        match member.writer.optional {
            true => self.absent(member),
            false => self.missing(member),
        }
    }

    /// Emits the substitute for an optional member of the writer that is absent: an absent member,
    /// the reader's default, or an error if the reader has neither, because absent does not mean
    /// zero.
    pub fn absent(&mut self, member: &MemberIn<'_>) -> Result<(), LowerError> {
        let step = self.paths.enter(&member.writer.name);
        let done = match member.reader {
            None => Ok(()),
            Some((reader, place)) if has_absent_value(reader) => self.default_member(reader, place),
            Some(_) => {
                self.emit(OpKind::Fail(FaultKind::MissingMember));
                Ok(())
            }
        };
        self.paths.leave(step);
        done
    }

    /// Emits the substitute for a mandatory member that a message lacks, in a format that may omit
    /// members: an error for a key or `@must_understand` member, otherwise the reader's default.
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
        fill: impl FnOnce(&mut Self, &Slot<'_>) -> Lowered,
    ) -> Lowered {
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
        fill: impl FnOnce(&mut Self, &Slot<'_>) -> Lowered,
    ) -> Lowered {
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

    /// Emits the reading of a fixed-size scalar into a slot, as part of a run if memory and wire
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

    /// A fixed-size scalar as a segment of a run. `None` if it needs a check or conversion that
    /// runs cannot do.
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

    /// Emits the reading of a scalar into a slot: get, check, convert and store.
    pub fn get(&mut self, ty: &Type, wire: Wire, slot: &Slot<'_>) -> Result<(), LowerError> {
        let scalar = wire.scalar();
        self.emit(OpKind::Get(wire));
        self.store(ty, scalar, slot)
    }

    /// Emits the storing of the accumulator into a slot. It holds a value of the writer's type `ty`
    /// as a `scalar`.
    pub fn store(&mut self, ty: &Type, scalar: Scalar, slot: &Slot<'_>) -> Result<(), LowerError> {
        let declared = self.wire_scalar(ty);
        // A format may return a wider integer than the writer's type; the conversion checks its
        // range.
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

    /// The scalar of a writer's primitive, enum, bitmask or bitset in formats with fixed-size
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

    /// The check or mask that a writer's scalar needs before it is stored.
    fn check(&mut self, ty: &Type, wire: Scalar, slot: &Slot<'_>) -> Result<Option<Check>, LowerError> {
        let writer = self.writer;
        let Type::Def(id) = writer.resolve(ty) else {
            return Ok((wire == Scalar::Bool).then_some(Check::Bool));
        };
        match (&writer.def(*id).kind, slot.place) {
            (DefKind::Enum { literals, .. }, Place::Sink) => Ok(Some(self.one_of(*id, literals))),
            (DefKind::Enum { .. }, Place::At { node, .. }) => {
                Ok(Some(Check::Enum { node, otherwise: self.default_literal(slot) }))
            }
            (_, Place::Sink) => Ok(None),
            _ => self.kept_bits(*id, slot),
        }
    }

    /// A check that the value is one of the literals of the writer's enum. All checks of an enum
    /// share its values.
    fn one_of(&mut self, id: DefId, literals: &[EnumLiteral]) -> Check {
        let values = self.literals.entry(id).or_insert_with(|| {
            let mut values: Vec<i64> = literals.iter().map(|l| l.value.into()).collect();
            values.sort_unstable();
            values.into()
        });
        Check::OneOf(values.clone())
    }

    /// The names of the literals of the writer's enum, with the literal that replaces others in a
    /// slot. All values with the same replacement share them.
    pub(crate) fn literals(&mut self, id: DefId, slot: &Slot<'_>) -> Arc<SymbolTable> {
        let (writer, otherwise) = (self.writer, self.default_literal(slot));
        if let Some(names) = self.names.get(&(id, otherwise)) {
            return names.clone();
        }
        // The next step fails if there are too many tables.
        self.paths.steps = self.paths.steps.saturating_add(part_count(writer.def(id)));
        let names = symbols::literals(writer, id, otherwise);
        self.names.insert((id, otherwise), names.clone());
        names
    }

    /// The literal that replaces one that the reader does not know, if the reader's enum or member
    /// provides it.
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

    /// Emits the reading of a string into a slot, with the reader's bound and policy.
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

    /// What happens to a value that exceeds the reader's bound.
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

    /// The bound of the reader's sequence or map; 0 if it is unbounded.
    pub fn bound(&self, slot: &Slot<'_>) -> u32 {
        match slot.reader.map(|ty| self.reader.resolve(ty)) {
            Some(Type::Sequence { bound, .. } | Type::Map { bound, .. }) => *bound,
            _ => 0,
        }
    }

    /// The scalar of a sequence's elements, if their bytes can be copied from the wire to memory at
    /// once, apart from the byte order.
    pub fn bulk_scalar(&self, element: &Type, slot: &Slot<'_>) -> Option<Scalar> {
        match self.kind(slot.place) {
            None => scalar_of(self.writer.resolve(element)),
            Some(Kind::Sequence(_)) => self.slice_scalar(element, slot),
            Some(_) => None,
        }
    }

    /// The scalar of a sequence's or array's elements, if memory has the same scalar. `None` for a
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

    /// Emits all elements of a sequence or array of numbers at once.
    pub(crate) fn slice(&mut self, slot: &Slot<'_>, kernel: &'static SliceKernel) -> Lowered {
        let (bound, overflow) = (self.bound(slot), self.overflow(slot));
        self.emit(OpKind::Slice { place: slot.place, kernel, bound, overflow });
        Ok(())
    }

    /// Emits the elements of a sequence or array one by one. `fill` gets an element's slot.
    pub(crate) fn elements(
        &mut self,
        slot: &Slot<'_>,
        source: Source,
        min_wire: u32,
        fill: impl FnOnce(&mut Self, &Slot<'_>) -> Lowered,
    ) -> Lowered {
        let element = self.element(slot, fill)?;
        let (place, bound, overflow) = (slot.place, self.bound(slot), self.overflow(slot));
        self.emit(OpKind::Sequence { place, source, element, bound, overflow, min_wire });
        Ok(())
    }

    /// Emits the entries of a map. `key` and `value` get the slot of the key and of the value.
    pub(crate) fn entries(
        &mut self,
        slot: &Slot<'_>,
        source: Source,
        min_wire: u32,
        key: impl FnOnce(&mut Self, &Slot<'_>) -> Lowered,
        value: impl FnOnce(&mut Self, &Slot<'_>) -> Lowered,
    ) -> Lowered {
        let (key, value) = self.entry(slot, key, value)?;
        let (place, bound, overflow) = (slot.place, self.bound(slot), self.overflow(slot));
        self.emit(OpKind::Map { place, source, key, value, bound, overflow, min_wire });
        Ok(())
    }

    /// Emits members in any order.
    pub(crate) fn members(&mut self, dialect: &'static MemberDialect, arms: Vec<Arm>) {
        self.emit(OpKind::members(dialect, arms));
    }

    /// Emits `read`, or a skip of the value if the reader does not have it.
    pub(crate) fn unless_skipped(
        &mut self,
        skip: &'static ActionKernel,
        slot: &Slot<'_>,
        read: impl FnOnce(&mut Self) -> Lowered,
    ) -> Lowered {
        if slot.place != Place::Sink {
            return read(self);
        }
        self.emit(OpKind::Action(skip, 0));
        Ok(())
    }

    /// A block that fails.
    pub(crate) fn failing(&mut self, kind: FaultKind) -> Block {
        Block([self.paths.op(OpKind::Fail(kind))].into())
    }

    /// Makes the block for one element of a sequence or array. `fill` gets the element's slot.
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

    /// Makes the blocks for one entry of a map. `key` and `value` get the slot of the key and of
    /// the value.
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

    /// The kind of node at a place. `None` for a sink.
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

    /// The id of the current field's path, for operations that a dialect builds itself.
    pub fn path(&mut self) -> PathId {
        self.paths.id()
    }

    /// An error about the current field.
    pub fn unsupported(&self, what: impl ToString) -> LowerError {
        LowerError::Unsupported { path: self.paths.current.clone(), what: what.to_string() }
    }

    /// The error for a layout that does not match the schema.
    pub fn mismatch(&self) -> LowerError {
        LowerError::Layout { path: self.paths.current.clone() }
    }
}

impl MemberIn<'_> {
    /// True if the reader lacks a `@must_understand` member, so that a message with this member is
    /// refused.
    pub fn must_be_understood(&self) -> bool {
        self.reader.is_none() && !self.in_skipped && self.writer.must_understand
    }
}

/// A key for a table of members.
pub fn key(id: u32, name: &[u8]) -> crate::program::MemberKey {
    crate::program::MemberKey { id, name: Box::from(name) }
}
