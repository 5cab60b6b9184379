//! The walk for encoding. It follows one schema and its layout and makes a program that writes such
//! values. A format's [`EncodeDialect`] supplies the operations for each kind of type. Codecs call
//! [`lower`]. It reads schema and layout and makes a program.

use alloc::{
    collections::{BTreeMap, VecDeque},
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};

use super::{LowerError, Lowered, Paths, bits_scalar, case_count, enum_scalar, in_routines, scalar_of, symbols};
use crate::{
    layout::{Field, Kind, Layout, NodeId, Scalar},
    program::{
        Block, Direction, Op, OpKind, Order, Overflow, PathId, Place, Program, Routine, Segment, SliceKernel, Source,
        SymbolTable, TextForm, Wire,
    },
    schema::{Case, Def, DefId, DefKind, Member, Schema, Type},
};

/// How a format writes each kind of value. Implementations append operations with
/// [`EncodeWalk::emit`], make nested blocks with [`EncodeWalk::block`], and call the walk's methods
/// for the values inside.
pub trait EncodeDialect {
    /// Emits a boolean, number, character, bitmask or bitset.
    fn scalar(&self, walk: &mut EncodeWalk<'_>, ty: &Type, wire: Scalar, place: Place) -> Result<(), LowerError>;

    /// Emits an enum. `wire` is the integer for formats that have fixed-size integers.
    fn enumeration(&self, walk: &mut EncodeWalk<'_>, id: DefId, wire: Scalar, place: Place) -> Result<(), LowerError>;

    /// Emits a string or wide string.
    fn text(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place) -> Result<(), LowerError>;

    /// Emits a sequence.
    fn sequence(&self, walk: &mut EncodeWalk<'_>, element: &Type, bound: u32, place: Place) -> Result<(), LowerError>;

    /// Emits an array. `dims` are its dimensions, outermost first.
    fn array(&self, walk: &mut EncodeWalk<'_>, element: &Type, dims: &[u32], place: Place) -> Result<(), LowerError>;

    /// Emits a map.
    fn map(
        &self,
        walk: &mut EncodeWalk<'_>,
        key: &Type,
        value: &Type,
        bound: u32,
        place: Place,
    ) -> Result<(), LowerError>;

    /// Emits a structure. Call [`EncodeWalk::if_present`] for an optional member and
    /// [`EncodeWalk::member`] for a member's value.
    fn structure(&self, walk: &mut EncodeWalk<'_>, id: DefId, members: &[MemberOut<'_>]) -> Result<(), LowerError>;

    /// Emits a union. Call [`EncodeWalk::union_arms`]; at the beginning of each arm the
    /// accumulator, an `I64`, holds the discriminator.
    fn union(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Result<(), LowerError>;

    /// The part of the dialect's own state on which the operations for a structure or union depend.
    /// A recursive type gets a routine for each state.
    fn context(&self) -> u64 {
        0
    }

    /// Sets that state to one that [`EncodeDialect::context`] returned. A routine is then emitted
    /// when the walk has ended, which needs no stack for types that contain each other. False if
    /// the dialect cannot set it: then routines are emitted in place, and the family is limited.
    fn resume(&self, context: u64) -> bool {
        context == 0
    }
}

/// A member to write.
#[derive(Clone, Copy, Debug)]
pub struct MemberOut<'a> {
    /// The member's declaration.
    pub member: &'a Member,
    /// The member's place, including its optional and pointer.
    pub place: Place,
}

/// A union to write.
#[derive(Clone, Copy, Debug)]
pub struct UnionOut<'a> {
    /// The union's definition.
    pub id: DefId,
    /// Type of the discriminator.
    pub discriminator: &'a Type,
    /// The discriminator's integer type, for formats that have fixed-size integers.
    pub wire: Scalar,
    /// The union's cases.
    pub cases: &'a [Case],
    /// The union's place.
    pub place: Place,
}

/// The state of the walk: the operations emitted so far and the current field.
pub struct EncodeWalk<'a> {
    dialect: &'a dyn EncodeDialect,
    schema: &'a Schema,
    layout: &'a Layout,
    paths: Paths,
    ops: Vec<Op>,
    /// The definitions that have routines.
    in_routines: alloc::collections::BTreeSet<DefId>,
    routines: Vec<Option<Routine>>,
    /// Routines by definition, node and [`EncodeDialect::context`].
    routine_of: BTreeMap<(DefId, NodeId, u64), u32>,
    waiting: VecDeque<Waiting>,
    /// The literals of enums, by name and value; see [`EncodeWalk::literals`].
    literals: BTreeMap<DefId, Arc<SymbolTable>>,
}

/// A routine that is emitted later.
struct Waiting {
    routine: u32,
    id: DefId,
    node: NodeId,
    context: u64,
    path: String,
}

/// Lowers a type for encoding.
pub fn lower(dialect: &dyn EncodeDialect, schema: &Schema, layout: &Arc<Layout>) -> Result<Program, LowerError> {
    let mut walk = EncodeWalk {
        dialect,
        schema,
        layout,
        paths: Paths::new(),
        ops: Vec::new(),
        in_routines: in_routines(schema, dialect.resume(dialect.context()), |id| case_count(schema, id)),
        routines: Vec::new(),
        routine_of: BTreeMap::new(),
        waiting: VecDeque::new(),
        literals: BTreeMap::new(),
    };
    walk.value(schema.root(), Place::At { offset: 0, node: layout.root() })?;
    walk.waiting_routines()?;
    Ok(Program {
        direction: Direction::Encode,
        layout: layout.clone(),
        root: Block(walk.ops),
        routines: walk.routines.into_iter().flatten().collect(),
        adapter: None,
        paths: walk.paths.all,
        bank: None,
    })
}

impl<'a> EncodeWalk<'a> {
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

    /// Emits the value of type `ty` at a place.
    pub fn value(&mut self, ty: &Type, place: Place) -> Result<(), LowerError> {
        self.paths.down().map_err(|what| self.unsupported(what))?;
        let done = self.by_kind(ty, place);
        self.paths.up();
        done
    }

    fn by_kind(&mut self, ty: &Type, place: Place) -> Lowered {
        let dialect = self.dialect;
        match self.schema.resolve(ty) {
            Type::Def(id) => self.def(*id, place),
            ty @ (Type::String { .. } | Type::WString { .. }) => dialect.text(self, ty, place),
            Type::Sequence { element, bound } => dialect.sequence(self, element, *bound, place),
            Type::Array { element, dims } => dialect.array(self, element, dims, place),
            Type::Map { key, value, bound } => dialect.map(self, key, value, *bound, place),
            primitive => match scalar_of(primitive) {
                Some(scalar) => dialect.scalar(self, primitive, scalar, place),
                None => Err(self.unsupported("the type is not a scalar")),
            },
        }
    }

    fn def(&mut self, id: DefId, place: Place) -> Lowered {
        let (dialect, schema) = (self.dialect, self.schema);
        match &schema.def(id).kind {
            DefKind::Enum { bit_bound, .. } => dialect.enumeration(self, id, enum_scalar(*bit_bound), place),
            DefKind::Bitmask { .. } | DefKind::Bitset { .. } => {
                dialect.scalar(self, &Type::Def(id), bits_scalar(schema, id), place)
            }
            _ if self.in_routines.contains(&id) => self.routine(id, place),
            _ => self.aggregate(id, place),
        }
    }

    fn routine(&mut self, id: DefId, place: Place) -> Lowered {
        let node = place.node().ok_or_else(|| self.mismatch())?;
        let key = (id, node, self.dialect.context());
        if let Some(routine) = self.routine_of.get(&key) {
            self.emit(OpKind::Call { routine: *routine, place });
            return Ok(());
        }
        let routine = self.routines.len() as u32;
        self.routine_of.insert(key, routine);
        self.routines.push(None);
        let context = key.2;
        if self.dialect.resume(context) {
            self.waiting.push_back(Waiting { routine, id, node, context, path: self.paths.current.clone() });
        } else {
            self.fill_routine(routine, id, node)?;
        }
        self.emit(OpKind::Call { routine, place });
        Ok(())
    }

    fn fill_routine(&mut self, routine: u32, id: DefId, node: NodeId) -> Lowered {
        let block = self.block(|walk| walk.aggregate(id, Place::At { offset: 0, node }))?;
        self.routines[routine as usize] = Some(Routine { frame: Some(node), block, levels: 1 });
        Ok(())
    }

    /// Emits the routines that wait, and those that they need.
    fn waiting_routines(&mut self) -> Lowered {
        while let Some(Waiting { routine, id, node, context, path }) = self.waiting.pop_front() {
            self.dialect.resume(context);
            self.paths.set(path);
            self.fill_routine(routine, id, node)?;
        }
        Ok(())
    }

    /// The names of an enum's literals. All values of an enum share them.
    pub(crate) fn literals(&mut self, id: DefId) -> Arc<SymbolTable> {
        let schema = self.schema;
        self.literals.entry(id).or_insert_with(|| symbols::literals(schema, id, None)).clone()
    }

    fn aggregate(&mut self, id: DefId, place: Place) -> Lowered {
        let (dialect, schema) = (self.dialect, self.schema);
        match &schema.def(id).kind {
            DefKind::Union { discriminator, cases, .. } => {
                let wire = match schema.def_of(discriminator) {
                    Some(Def { kind: DefKind::Enum { bit_bound, .. }, .. }) => Some(enum_scalar(*bit_bound)),
                    _ => scalar_of(schema.resolve(discriminator)),
                };
                let wire = wire.ok_or_else(|| self.mismatch())?;
                dialect.union(self, &UnionOut { id, discriminator, wire, cases, place })
            }
            _ => {
                let members = self.members(id, place)?;
                dialect.structure(self, id, &members)
            }
        }
    }

    fn members(&self, id: DefId, place: Place) -> Result<Vec<MemberOut<'a>>, LowerError> {
        let (members, fields) = (self.schema.members(id), fields(self.layout, place).ok_or_else(|| self.mismatch())?);
        if members.len() != fields.len() {
            return Err(self.mismatch());
        }
        Ok(members.into_iter().zip(fields).map(|(member, place)| MemberOut { member, place }).collect())
    }

    /// Emits a member's value, through its pointer if it has one. For an optional member, `place`
    /// is the place of the value inside the optional.
    pub fn member(&mut self, member: &Member, place: Place) -> Result<(), LowerError> {
        let step = self.paths.enter(&member.name);
        let done = match (member.external, self.kind(place)) {
            (true, Some(Kind::Boxed(boxed))) => {
                let place_inside = Place::At { offset: 0, node: boxed.inner };
                self.block(|walk| walk.value(&member.ty, place_inside))
                    .map(|body| self.emit(OpKind::Unbox { place, body }))
            }
            _ => self.value(&member.ty, place),
        };
        self.paths.leave(step);
        done
    }

    /// Emits a test of an optional member: `present`, called with the place of the value, runs if
    /// the value is present, and `absent` otherwise.
    pub fn if_present(
        &mut self,
        out: &MemberOut<'_>,
        present: impl FnOnce(&mut Self, Place) -> Result<(), LowerError>,
        absent: impl FnOnce(&mut Self) -> Result<(), LowerError>,
    ) -> Result<(), LowerError> {
        let Some(Kind::Optional(optional)) = self.kind(out.place) else { return Err(self.mismatch()) };
        let inside = Place::At { offset: 0, node: optional.inner };
        let step = self.paths.enter(&out.member.name);
        let path = self.paths.id();
        self.paths.leave(step);
        let then = self.block(|walk| present(walk, inside))?;
        let otherwise = self.block(absent)?;
        self.paths.steps += 1;
        self.ops.push(Op { path, kind: OpKind::IfPresent { place: out.place, then, otherwise } });
        Ok(())
    }

    /// Emits a choice among a union's cases: `arm` for each case, called with the place of its
    /// value, and `none` for a discriminator that selects no case.
    pub fn union_arms(
        &mut self,
        union: &UnionOut<'_>,
        mut arm: impl FnMut(&mut Self, &Case, Place) -> Result<(), LowerError>,
        none: impl FnOnce(&mut Self) -> Result<(), LowerError>,
    ) -> Result<(), LowerError> {
        let Some(Kind::Union(node)) = self.kind(union.place) else { return Err(self.mismatch()) };
        let nodes = node.cases.clone();
        if nodes.len() != union.cases.len() {
            return Err(self.mismatch());
        }
        let arms = union.cases.iter().zip(nodes.iter());
        let arms = arms.map(|(case, node)| self.block(|walk| arm(walk, case, Place::At { offset: 0, node: *node })));
        let arms = arms.collect::<Result<Vec<Block>, LowerError>>()?;
        let none = self.block(none)?;
        self.emit(OpKind::Union { place: union.place, arms, none });
        Ok(())
    }

    /// Emits bytes that do not depend on the value.
    pub(crate) fn literal(&mut self, bytes: impl AsRef<[u8]>) {
        self.emit(OpKind::Literal(bytes.as_ref().into()));
    }

    /// Emits the writing of a scalar, converted to the type that it has on the wire.
    pub(crate) fn put(&mut self, place: Place, wire: Wire) -> Lowered {
        let memory = self.memory_scalar(place)?;
        self.emit(OpKind::Load(place));
        if memory != wire.scalar() {
            self.emit(OpKind::Convert(wire.scalar()));
        }
        self.emit(OpKind::Put(wire));
        Ok(())
    }

    /// Emits a scalar of fixed size as a run, without a check.
    pub(crate) fn fixed(&mut self, place: Place, wire: Scalar, order: Order) -> Lowered {
        let memory = self.memory_scalar(place)?;
        let segment = Segment { place, at: 0, wire, memory, count: 1, order, check: None };
        self.run(segment);
        Ok(())
    }

    pub(crate) fn run(&mut self, segment: Segment) {
        let size = segment.size();
        self.emit(OpKind::Run { segments: [segment].into(), size });
    }

    /// The operation for a string of type `ty`, with the type's bound.
    pub(crate) fn string(ty: &Type, place: Place, form: TextForm) -> OpKind {
        let (bound, utf16_bound) = match ty {
            Type::String { bound } => (*bound, false),
            Type::WString { bound } => (*bound, true),
            _ => (0, false),
        };
        OpKind::Text { place, form, bound, utf16_bound, overflow: Overflow::Refuse, after: 0 }
    }

    /// Emits a string of type `ty`, with the type's bound.
    pub(crate) fn text(&mut self, ty: &Type, place: Place, form: TextForm) -> Lowered {
        self.emit(Self::string(ty, place, form));
        Ok(())
    }

    /// Emits all elements of a sequence or array of numbers at once.
    pub(crate) fn slice(&mut self, place: Place, kernel: &'static SliceKernel, bound: u32) -> Lowered {
        self.emit(OpKind::Slice { place, kernel, bound, overflow: Overflow::Refuse });
        Ok(())
    }

    /// The scalar of a sequence's or array's elements in memory. `None` for enums and other kinds.
    pub(crate) fn element_scalar(&self, place: Place) -> Option<Scalar> {
        match self.kind(place)? {
            Kind::Sequence(sequence) => self.scalar_node(sequence.element),
            Kind::Array { element, .. } => self.scalar_node(*element),
            _ => None,
        }
    }

    /// Emits the elements of a sequence or array one by one. `fill` gets an element's place.
    pub(crate) fn elements(
        &mut self,
        place: Place,
        bound: u32,
        fill: impl FnOnce(&mut Self, Place) -> Lowered,
    ) -> Lowered {
        let element = self.element(place, fill)?;
        let (source, overflow) = (Source::Count, Overflow::Refuse);
        self.emit(OpKind::Sequence { place, source, element, bound, overflow, min_wire: 0 });
        Ok(())
    }

    /// Emits the elements of an array of scalars one by one, without a loop. `fill` gets an
    /// element's index and place.
    pub(crate) fn unrolled(&mut self, place: Place, mut fill: impl FnMut(&mut Self, u32, Place) -> Lowered) -> Lowered {
        let (Some(Kind::Array { element, len }), Place::At { offset, .. }) = (self.kind(place), place) else {
            return Err(self.mismatch());
        };
        let size = self.memory_scalar(Place::At { offset, node: *element })?.size() as u32;
        (0..*len).try_for_each(|i| fill(self, i, Place::At { offset: offset + i * size, node: *element }))
    }

    /// Emits the entries of a map. `key` and `value` get the place of the key and of the value.
    pub(crate) fn entries(
        &mut self,
        place: Place,
        bound: u32,
        key: impl FnOnce(&mut Self, Place) -> Lowered,
        value: impl FnOnce(&mut Self, Place) -> Lowered,
    ) -> Lowered {
        let (key, value) = self.entry(place, key, value)?;
        let (source, overflow) = (Source::Count, Overflow::Refuse);
        self.emit(OpKind::Map { place, source, key, value, bound, overflow, min_wire: 0 });
        Ok(())
    }

    /// The blocks that write false and true as these bytes.
    pub(crate) fn truths(&mut self, words: [&[u8]; 2]) -> [Block; 2] {
        words.map(|word| Block([self.paths.op(OpKind::Literal(word.into()))].into()))
    }

    /// Emits a boolean discriminator, which is in the accumulator, as one of these bytes.
    pub(crate) fn put_truth(&mut self, words: [&[u8]; 2]) {
        let [no, yes] = self.truths(words);
        self.emit(OpKind::switch([([0].into(), no)].into(), yes));
    }

    /// Emits `implied` if a case determines its discriminator, because it is the case's only label;
    /// else `said`. For a case of several labels the discriminator, which is in the accumulator,
    /// decides: the first one is implied.
    pub(crate) fn implied_or(
        &mut self,
        case: &Case,
        implied: impl FnOnce(&mut Self) -> Lowered,
        said: impl FnOnce(&mut Self) -> Lowered,
    ) -> Lowered {
        match case.labels[..] {
            [] => said(self),
            [_] if !case.is_default => implied(self),
            [first, ..] => {
                let arms = [([first].into(), self.block(implied)?)].into();
                let otherwise = self.block(said)?;
                self.emit(OpKind::switch(arms, otherwise));
                Ok(())
            }
        }
    }

    /// Makes the block for one element of the sequence or array at `place`. `fill` gets the
    /// element's place.
    pub fn element(
        &mut self,
        place: Place,
        fill: impl FnOnce(&mut Self, Place) -> Result<(), LowerError>,
    ) -> Result<Block, LowerError> {
        let element = match self.kind(place) {
            Some(Kind::Sequence(sequence)) => sequence.element,
            Some(Kind::Array { element, .. }) => *element,
            _ => return Err(self.mismatch()),
        };
        let step = self.paths.enter("[]");
        let block = self.block(|walk| fill(walk, Place::At { offset: 0, node: element }));
        self.paths.leave(step);
        block
    }

    /// Makes the blocks for one entry of the map at `place`. `key` and `value` get the place of the
    /// key and of the value.
    pub fn entry(
        &mut self,
        place: Place,
        key: impl FnOnce(&mut Self, Place) -> Result<(), LowerError>,
        value: impl FnOnce(&mut Self, Place) -> Result<(), LowerError>,
    ) -> Result<(Block, Block), LowerError> {
        let Some(Kind::Map(map)) = self.kind(place) else { return Err(self.mismatch()) };
        let (k, v) = (Place::At { offset: 0, node: map.key }, Place::At { offset: 0, node: map.value });
        let step = self.paths.enter("[]");
        let blocks = self.block(|walk| key(walk, k)).and_then(|key| Ok((key, self.block(|walk| value(walk, v))?)));
        self.paths.leave(step);
        blocks
    }

    /// The schema.
    pub fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// The layout.
    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// The kind of node at a place.
    pub fn kind(&self, place: Place) -> Option<&'a Kind> {
        place.node().map(|node| &self.layout.node(node).kind)
    }

    /// The scalar that a place has in memory.
    pub fn memory_scalar(&self, place: Place) -> Result<Scalar, LowerError> {
        match self.kind(place) {
            Some(Kind::Scalar(scalar)) => Ok(*scalar),
            Some(Kind::Enum(node)) => Ok(node.repr),
            _ => Err(self.mismatch()),
        }
    }

    /// The scalar of a node, if all of its values are allowed. `None` for enums and other kinds.
    pub fn scalar_node(&self, node: NodeId) -> Option<Scalar> {
        match &self.layout.node(node).kind {
            Kind::Scalar(scalar) => Some(*scalar),
            _ => None,
        }
    }

    /// The current path.
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

/// Places of the fields of the structure at a place. `None` if it is not a structure.
pub(super) fn fields(layout: &Layout, place: Place) -> Option<Vec<Place>> {
    let Place::At { offset, node } = place else { return None };
    match &layout.node(node).kind {
        Kind::Struct { fields } => {
            let at = |f: &Field| Place::At { offset: offset + f.offset, node: f.node };
            Some(fields.iter().map(at).collect())
        }
        _ => None,
    }
}
