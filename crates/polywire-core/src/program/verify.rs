//! The verifier: what it passes cannot touch anything but the value and the message, whatever the
//! bytes are.
//!
//! It is the gate in front of both back ends, for our own lowerings and for codecs registered at
//! run time alike. It shows that
//!
//! 1. each operation belongs to the program's direction;
//! 2. each place lies in its frame and holds what the operation works on, and sinks occur only when
//!    decoding;
//! 3. the accumulator is set, and of the right type, where it is used; what is stored is valid
//!    there: booleans and enum literals were checked;
//! 4. a `Need` dominates each operation that moves a fixed number of bytes, with no barrier
//!    between;
//! 5. runs are in order and without overlap; in a run too, booleans and enums are checked, and
//!    scalars widen, never narrow;
//! 6. calls name routines with the frame they expect, and cost as many levels as their blocks are
//!    nested; blocks nest to a limited depth, and their operations are not too many;
//! 7. who asks for the state of a stream has a bank, and fields are sound and keep to its slots;
//!    who takes a field's value has asked for it, and for no other one since;
//! 8. kernels are of types that they can have, and what forms and expected prefixes say is within
//!    what machine code can do: kernels are anybody's safe code.

use alloc::string::String;

use super::{
    ActionKernel, Arm, Block, Check, Direction, Field, FieldKind, Op, OpKind, Place, Program, ScalarKernel, Segment,
    Source, TextForm, TextKernel, Wire,
    passes::{Cost, cost, levels, op_count},
    state::{BITS, OCTET, OCTETS, RESET, SEGMENT, TAKE_BIT},
};
use crate::layout::{EnumNode, Kind, Layout, NodeId, Scalar};

/// Operations in a program.
pub(crate) const MAX_OPS: usize = 1 << 18;
/// Blocks inside each other.
pub(crate) const MAX_DEPTH: usize = 128;

/// Why a program is refused. That is a bug in a lowering, never the fault of a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("program refused at '{path}': {rule}")]
#[non_exhaustive]
pub struct VerifyError {
    /// The field.
    pub path: String,
    /// What is violated.
    pub rule: &'static str,
}

/// Shows that a program keeps the [module's](self) rules.
pub(crate) fn verify(program: &Program) -> Result<(), VerifyError> {
    if op_count(program) > MAX_OPS {
        return Err(VerifyError { path: String::new(), rule: "it has too many operations" });
    }
    let verifier = Verifier { program, layout: &program.layout };
    verifier.block(&program.root, &mut State::new(Some(program.layout.root())), 0)?;
    for routine in &program.routines {
        if routine.frame.is_some_and(|node| node.0 as usize >= program.layout.len()) {
            return Err(VerifyError { path: String::new(), rule: "a routine's frame is no node" });
        }
        verifier.block(&routine.block, &mut State::new(routine.frame), 0)?;
        if routine.levels < levels(&routine.block) {
            return Err(VerifyError {
                path: String::new(),
                rule: "calls cost too little for the blocks in the routine",
            });
        }
    }
    Ok(())
}

/// What is known between two operations.
#[derive(Clone, Copy)]
struct State {
    /// What the frame is; none where only sinks are allowed.
    frame: Option<NodeId>,
    /// The accumulator's type, and the enum that it is a literal of.
    accumulator: Option<(Scalar, Option<NodeId>)>,
    /// Bytes made sure of.
    ensured: u32,
    /// Inside a sequence or map.
    indexed: bool,
    /// A field was asked for, and its value waits.
    held: Held,
}

/// Whether a field's value waits for who takes it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    No,
    /// If the accumulator is true.
    Perhaps,
    Yes,
}

impl State {
    fn new(frame: Option<NodeId>) -> State {
        State { frame, accumulator: None, ensured: 0, indexed: false, held: Held::No }
    }

    /// The state where an inner block begins.
    fn inside(&self, frame: Option<NodeId>) -> State {
        State { frame, ensured: 0, ..*self }
    }
}

struct Verifier<'p> {
    program: &'p Program,
    layout: &'p Layout,
}

type Verdict<T = ()> = Result<T, &'static str>;

impl Verifier<'_> {
    fn block(&self, block: &Block, state: &mut State, depth: usize) -> Result<(), VerifyError> {
        let at = |op: &Op, rule| VerifyError {
            path: self.program.paths.get(op.path.0 as usize).cloned().unwrap_or_default(),
            rule,
        };
        for op in &block.0 {
            if depth > MAX_DEPTH {
                return Err(at(op, "blocks are nested too deeply"));
            }
            self.direction(&op.kind).and_then(|()| self.ensured(&op.kind, state)).map_err(|rule| at(op, rule))?;
            self.inner(&op.kind, state, depth).map_err(|refused| match refused {
                Refused::Here(rule) => at(op, rule),
                Refused::Inside(error) => error,
            })?;
        }
        Ok(())
    }

    fn direction(&self, kind: &OpKind) -> Verdict {
        let only = match kind {
            OpKind::Literal(_)
            | OpKind::Put(_)
            | OpKind::Length(_)
            | OpKind::Index
            | OpKind::PutField { .. }
            | OpKind::IfPresent { .. }
            | OpKind::Union { .. } => Some(Direction::Encode),
            OpKind::Store(_)
            | OpKind::Get(_)
            | OpKind::SetText(..)
            | OpKind::Present { .. }
            | OpKind::Clear(_)
            | OpKind::Select { .. }
            | OpKind::Test(_)
            | OpKind::TestField(_)
            | OpKind::Octets { field: None, .. }
            | OpKind::Text { form: TextForm::Pending, .. }
            | OpKind::Members { .. } => Some(Direction::Decode),
            _ => None,
        };
        match only {
            Some(direction) if direction != self.program.direction => Err("the operation is of the other direction"),
            _ => Ok(()),
        }
    }

    /// Rule 4.
    fn ensured(&self, kind: &OpKind, state: &mut State) -> Verdict {
        match (kind, cost(kind, self.program.direction)) {
            (OpKind::Need(n), _) => state.ensured = state.ensured.max(*n),
            (_, Cost::Bytes(n)) => {
                state.ensured = state.ensured.checked_sub(n).ok_or("no Need covers the bytes it moves")?;
            }
            (OpKind::Text { after, .. }, Cost::Barrier) if self.program.direction == Direction::Encode => {
                state.ensured = *after;
            }
            (_, Cost::Barrier) => state.ensured = 0,
        }
        Ok(())
    }

    /// Rules 2, 3, 5 and 6, and the blocks inside.
    fn inner(&self, kind: &OpKind, state: &mut State, depth: usize) -> Result<(), Refused> {
        let nested =
            |block: &Block, mut inside: State| self.block(block, &mut inside, depth + 1).map_err(Refused::Inside);
        let before = *state;
        // What a repeated block reads was there before its second turn.
        let replaced = state.held != Held::No && reads_inside(kind);
        let repeated = State { held: if replaced { Held::No } else { state.held }, ..*state };
        require(state.held == Held::Yes || !takes_held(kind), "no field was asked for whose value it could take")?;
        match kind {
            OpKind::Need(_) | OpKind::SetText(Place::Sink, _) | OpKind::Literal(_) | OpKind::Fail(_) => {}
            OpKind::Action(kernel, _) => self.has_bank(kernel_needs_bank(kernel))?,
            OpKind::Align(n) => require(matches!(n, 1 | 2 | 4 | 8), "alignment is 1, 2, 4 or 8")?,
            OpKind::Run { segments, size } => self.run(segments, *size, state)?,
            OpKind::Load(place) => {
                let scalar = self.scalar_at(*place, state)?.0;
                state.accumulator = Some((scalar, None));
            }
            OpKind::Store(place) => self.store(*place, state)?,
            OpKind::Get(wire) => {
                let unchecked = matches!(wire, Wire::Fixed { scalar: Scalar::Bool, .. });
                require(!unchecked, "a boolean is read as an octet and checked")?;
                self.wire(wire)?;
                state.accumulator = Some((wire.scalar(), None));
            }
            OpKind::Put(wire) => {
                self.wire(wire)?;
                require(self.accumulator(state)? == wire.scalar(), "the accumulator is of another type than the wire")?;
            }
            OpKind::Const(scalar, bits) => {
                require(*scalar != Scalar::Bool || *bits <= 1, "a boolean constant is 0 or 1")?;
                let fits = scalar.is_signed() || bits.checked_shr(8 * scalar.size() as u32).unwrap_or(0) == 0;
                require(fits, "a constant has more bits than its type")?;
                state.accumulator = Some((*scalar, None));
            }
            OpKind::Length(place) => {
                let fits = |k: &Kind| matches!(k, Kind::String { .. } | Kind::Sequence(_) | Kind::Map(_));
                self.place(*place, state, fits)?;
                state.accumulator = Some((Scalar::U64, None));
            }
            OpKind::Index => {
                require(state.indexed, "there is no sequence around it")?;
                state.accumulator = Some((Scalar::U64, None));
            }
            OpKind::Convert(to) => self.convert(*to, state)?,
            OpKind::Check(check) => self.check(check, state)?,
            OpKind::Text { place, form: TextForm::Field(field), .. } => {
                self.field(field, field.kind.is_text())?;
                self.place(*place, state, |k| matches!(k, Kind::String { .. }))?;
            }
            OpKind::Text { form: TextForm::Pending, place, .. } => {
                self.has_bank(true)?;
                self.place(*place, state, |k| matches!(k, Kind::String { .. }))?;
            }
            OpKind::TestField(field) => {
                self.field(field, true)?;
                state.accumulator = Some((Scalar::Bool, None));
                state.held = if field.optional { Held::Perhaps } else { Held::Yes };
            }
            OpKind::PutField { field, present } => self.field(field, !present || !field.kind.is_text())?,
            OpKind::Octets { place, field, .. } => {
                self.has_bank(true)?;
                if let Some(field) = field {
                    self.field(field, field.kind.is_text())?;
                }
                match place {
                    Place::Sink => require(self.program.direction == Direction::Decode, "a sink cannot be encoded")?,
                    place => self.slice(*place, Scalar::U8, state)?,
                }
            }
            OpKind::Text { place, form, .. } => {
                if let TextForm::Kernel(kernel) = form {
                    text_kernel(kernel)?;
                }
                self.place(*place, state, |k| matches!(k, Kind::String { .. }))?;
            }
            OpKind::SetText(place, _) => {
                self.place(*place, state, |k| matches!(k, Kind::String { .. }))?;
            }
            OpKind::Bulk { place, scalar, .. } => self.bulk(*place, *scalar, state)?,
            OpKind::Slice { place, kernel, .. } => self.slice(*place, kernel.scalar, state)?,
            OpKind::Sequence { place, source, element, .. } => {
                let frame = self.elements(*place, source, state)?;
                nested(element, State { indexed: true, accumulator: None, ..repeated.inside(frame) })?;
            }
            OpKind::Map { place, source, key, value, .. } => {
                self.counted(source, state)?;
                let node = self.place(*place, state, |k| matches!(k, Kind::Map(_)))?;
                let frames = node.map(|n| match &self.layout.node(n).kind {
                    Kind::Map(map) => (map.key, map.value),
                    _ => unreachable!("just checked"),
                });
                let inside = State { indexed: true, accumulator: None, ..repeated };
                nested(key, inside.inside(frames.map(|f| f.0)))?;
                nested(value, inside.inside(frames.map(|f| f.1)))?;
            }
            OpKind::IfPresent { place, then, otherwise } => {
                nested(then, before.inside(self.optional(*place, state)?))?;
                nested(otherwise, before.inside(state.frame))?;
            }
            OpKind::Present { place, body } => nested(body, before.inside(self.optional(*place, state)?))?,
            OpKind::Clear(place) => {
                let fits =
                    |k: &Kind| matches!(k, Kind::String { .. } | Kind::Sequence(_) | Kind::Map(_) | Kind::Optional(_));
                self.place(*place, state, fits)?;
            }
            OpKind::Unbox { place, body } => {
                let node = self.place(*place, state, |k| matches!(k, Kind::Boxed(_)))?;
                let frame = node.map(|n| match &self.layout.node(n).kind {
                    Kind::Boxed(boxed) => boxed.inner,
                    _ => unreachable!("just checked"),
                });
                nested(body, before.inside(frame))?;
            }
            OpKind::Union { place, arms, none } => {
                let cases = self.cases(*place, state)?.ok_or("a sink cannot be encoded")?;
                require(arms.len() == cases.len(), "there is one arm for each case")?;
                let discriminator = State { accumulator: Some((Scalar::I64, None)), ..before };
                for (arm, case) in arms.iter().zip(cases) {
                    nested(arm, discriminator.inside(Some(*case)))?;
                }
                nested(none, discriminator.inside(state.frame))?;
            }
            OpKind::Select { place, case, body } => {
                require(self.accumulator(state)? == Scalar::I64, "a discriminator is an I64")?;
                let cases = self.cases(*place, state)?;
                require(case.is_some() || body.0.is_empty(), "there is no value without a case")?;
                let frame = match (cases, case) {
                    (Some(cases), Some(i)) => Some(*cases.get(*i as usize).ok_or("the union has no such case")?),
                    _ => None,
                };
                nested(body, before.inside(frame))?;
            }
            OpKind::Switch { arms, otherwise } => {
                let scalar = self.accumulator(state)?;
                require(scalar.range().is_some(), "a switch is on an integer or boolean")?;
                for block in arms.iter().map(|(_, block)| block).chain([otherwise]) {
                    nested(block, before.inside(state.frame))?;
                }
            }
            OpKind::If { then, otherwise } => {
                require(self.accumulator(state)? == Scalar::Bool, "a condition is a boolean")?;
                let held =
                    |held| State { held: if before.held == Held::Perhaps { held } else { before.held }, ..before };
                nested(then, held(Held::Yes).inside(state.frame))?;
                nested(otherwise, held(Held::No).inside(state.frame))?;
            }
            OpKind::Test(kernel) => {
                self.has_bank(core::ptr::eq(*kernel, &TAKE_BIT))?;
                state.accumulator = Some((Scalar::Bool, None));
            }
            OpKind::Region { body, dialect, .. } => {
                self.has_bank(core::ptr::eq(*dialect, &SEGMENT))?;
                nested(body, before.inside(state.frame))?;
            }
            OpKind::Members { arms, table, .. } => {
                require(arms.len() == table.keys().len(), "the table is of other members")?;
                require(arms.iter().zip(table.keys()).all(|(a, k)| a.key == *k), "the table is of other members")?;
                require(arms.iter().all(prefix_fits), "a prefix notes a bit that the cursor does not have")?;
                for block in arms.iter().flat_map(|arm| [&arm.body, &arm.absent]) {
                    nested(block, State { accumulator: None, ..repeated.inside(state.frame) })?;
                }
            }
            OpKind::Call { routine, place } => {
                let routine = self.program.routines.get(*routine as usize).ok_or("there is no such routine")?;
                let node = self.place(*place, state, |_| true)?;
                require(node == routine.frame, "the routine expects another frame")?;
            }
        }
        // What a block inside leaves in the accumulator depends on which one ran.
        let mut has_blocks = false;
        super::passes::inner_blocks(kind, &mut |_| has_blocks = true);
        if has_blocks || matches!(kind, OpKind::Call { .. }) {
            state.accumulator = None;
        }
        let passed = matches!(kind, OpKind::TestField(_) | OpKind::Need(_));
        if !passed && (state.held == Held::Perhaps || state.held == Held::Yes && replaces_held(kind)) {
            state.held = Held::No;
        }
        Ok(())
    }

    /// Rule 2: the node at a place, if it is what the operation works on.
    fn place(&self, place: Place, state: &State, fits: impl Fn(&Kind) -> bool) -> Verdict<Option<NodeId>> {
        let Place::At { offset, node } = place else {
            require(self.program.direction == Direction::Decode, "a sink cannot be encoded")?;
            return Ok(None);
        };
        let frame = state.frame.ok_or("there is no frame for a place")?;
        require((node.0 as usize) < self.layout.len(), "there is no such node")?;
        require(self.layout.contains(frame, offset, node), "the frame has no such place")?;
        require(fits(&self.layout.node(node).kind), "the place holds something else")?;
        Ok(Some(node))
    }

    /// Rule 7: who asks for the state of a stream has one.
    fn has_bank(&self, needed: bool) -> Verdict {
        require(!needed || self.program.bank.is_some(), "the program has no bank")
    }

    fn wire(&self, wire: &Wire) -> Verdict {
        match wire {
            Wire::Field(field) => self.field(field, field.kind.is_scalar()),
            Wire::Word(index, scalar) => {
                self.has_bank(true)?;
                let fits = matches!(scalar, Scalar::I64 | Scalar::U64 | Scalar::F32 | Scalar::F64);
                require(*index < 2 && fits, "a field's value is one of two words")
            }
            Wire::Inline(kernel, argument) => {
                require(self.program.direction == Direction::Encode, "the operation is of the other direction")?;
                require(kernel.scalar != Scalar::F128, "an inline kernel's value has 64 bits")?;
                // The bytes of a form's argument stand below the one that counts them.
                require(kernel.form.is_none() || argument >> 56 <= 7, "an inline kernel's head is too long")
            }
            Wire::Kernel(kernel) => scalar_kernel(kernel),
            Wire::Symbol(kernel, _) => {
                require(matches!(kernel.scalar, Scalar::I64 | Scalar::U64), "a symbol is an I64 or U64")
            }
            Wire::Fixed { .. } => Ok(()),
        }
    }

    /// Rule 7: a field's slots are in the bank, and its parts and values are of its type.
    fn field(&self, field: &Field, fits: bool) -> Verdict {
        require(fits, "the field's value is of another kind than the operation")?;
        let bank = self.program.bank.as_ref().ok_or("the program has no bank")?;
        let mut sound = field.is_sound();
        field.each(&mut |part| {
            let second = match part.kind {
                FieldKind::Decimal => part.text < bank.slots,
                _ => !part.kind.is_text() || part.text < bank.texts,
            };
            sound &= !part.has_slot() || part.slot < bank.slots && second;
        });
        require(sound, "the field is none, or its slots are not in the bank")
    }

    /// The scalar at a place, and the enum whose literal it must be.
    fn scalar_at(&self, place: Place, state: &State) -> Verdict<(Scalar, Option<NodeId>)> {
        let node = self.place(place, state, |k| matches!(k, Kind::Scalar(_) | Kind::Enum(_)))?;
        let node = node.ok_or("a sink holds nothing")?;
        Ok(match &self.layout.node(node).kind {
            Kind::Scalar(scalar) => (*scalar, None),
            Kind::Enum(literals) => (literals.repr, Some(node)),
            _ => unreachable!("just checked"),
        })
    }

    fn accumulator(&self, state: &State) -> Verdict<Scalar> {
        state.accumulator.map(|(scalar, _)| scalar).ok_or("the accumulator is not set")
    }

    /// Rule 3.
    fn store(&self, place: Place, state: &State) -> Verdict {
        let (scalar, literal_of) = state.accumulator.ok_or("the accumulator is not set")?;
        if place == Place::Sink {
            return Ok(());
        }
        let (wanted, node) = self.scalar_at(place, state)?;
        require(wanted == scalar, "the accumulator is of another type than the place")?;
        require(node.is_none() || node == literal_of, "the accumulator was not checked to be a literal")
    }

    fn convert(&self, to: Scalar, state: &mut State) -> Verdict {
        let (from, literal_of) = state.accumulator.ok_or("the accumulator is not set")?;
        let float = |s| matches!(s, Scalar::F32 | Scalar::F64);
        let possible = from == to
            || (from.range().is_some() && to != Scalar::F128 && to != Scalar::Bool)
            || (float(from) && float(to));
        require(possible, "there is no such conversion")?;
        state.accumulator = Some((to, literal_of));
        Ok(())
    }

    fn check(&self, check: &Check, state: &mut State) -> Verdict {
        let (scalar, _) = state.accumulator.ok_or("the accumulator is not set")?;
        checkable(check, scalar)?;
        state.accumulator = Some(match check {
            Check::Bool => (Scalar::Bool, None),
            Check::Enum { node, otherwise } => {
                self.literals(*node, *otherwise)?;
                (scalar, Some(*node))
            }
            Check::Range { .. } | Check::OneOf(_) | Check::Keep(_) => (scalar, None),
        });
        Ok(())
    }

    fn literals(&self, node: NodeId, otherwise: Option<i32>) -> Verdict<&EnumNode> {
        require((node.0 as usize) < self.layout.len(), "there is no such node")?;
        match &self.layout.node(node).kind {
            Kind::Enum(literals) => {
                let known = otherwise.is_none_or(|value| literals.literals.binary_search(&value).is_ok());
                require(known, "the default is no literal")?;
                Ok(literals)
            }
            _ => Err("the place holds no enum"),
        }
    }

    /// Rule 5.
    fn run(&self, segments: &[Segment], size: u32, state: &State) -> Verdict {
        let mut end = 0;
        for segment in segments {
            require(segment.at >= end, "segments overlap or are out of order")?;
            let bytes = u64::from(segment.count) * segment.wire.size() as u64 + u64::from(segment.at);
            require(bytes <= u64::from(size), "a segment lies outside its run")?;
            end = bytes as u32;
            self.segment(segment, state)?;
        }
        Ok(())
    }

    fn segment(&self, segment: &Segment, state: &State) -> Verdict {
        require(segment.count == 1 || segment.wire == segment.memory, "only like scalars are repeated")?;
        require(widens(segment.wire, segment.memory), "a run widens scalars, it does not narrow them")?;
        if let Some(check) = &segment.check {
            checkable(check, segment.wire)?;
        }
        if let Some(Check::Enum { node, otherwise }) = &segment.check {
            self.literals(*node, *otherwise)?;
        }
        let Place::At { offset, node } = segment.place else {
            return Ok(());
        };
        let frame = state.frame.ok_or("there is no frame for a place")?;
        for i in 0..segment.count {
            // One scalar's node may repeat only as an array's elements do; checking first and last
            // is enough for those.
            if i == 0 || i + 1 == segment.count {
                let at = i.checked_mul(segment.memory.size() as u32).and_then(|n| n.checked_add(offset));
                let at = at.ok_or("a place lies outside every frame")?;
                require((node.0 as usize) < self.layout.len(), "there is no such node")?;
                require(self.layout.contains(frame, at, node), "the frame has no such place")?;
            }
        }
        require(segment.count == 1 || self.adjacent(frame, segment), "repeated scalars lie side by side")?;
        let decodes = self.program.direction == Direction::Decode;
        match &self.layout.node(node).kind {
            Kind::Scalar(Scalar::Bool) => {
                require(segment.memory == Scalar::Bool, "the place holds something else")?;
                require(!decodes || matches!(segment.check, Some(Check::Bool)), "a boolean is not checked")
            }
            Kind::Scalar(scalar) => require(*scalar == segment.memory, "the place holds something else"),
            Kind::Enum(literals) => {
                require(literals.repr == segment.memory, "the place holds something else")?;
                let checked = matches!(&segment.check, Some(Check::Enum { node: n, .. }) if *n == node);
                require(!decodes || checked, "an enum is not checked")
            }
            _ => Err("the place holds something else"),
        }
    }

    /// All of a repeated segment's scalars are there, not just the first and the last.
    fn adjacent(&self, frame: NodeId, segment: &Segment) -> bool {
        let Place::At { offset, node } = segment.place else { return true };
        (0..segment.count).all(|i| {
            let at = offset.checked_add(i.saturating_mul(segment.memory.size() as u32));
            at.is_some_and(|at| self.layout.contains(frame, at, node))
        })
    }

    fn bulk(&self, place: Place, scalar: Scalar, state: &State) -> Verdict {
        if self.program.direction == Direction::Decode {
            self.counted(&Source::Count, state)?;
        }
        let Some(node) = self.place(place, state, |k| matches!(k, Kind::Sequence(_)))? else {
            return Ok(());
        };
        let Kind::Sequence(sequence) = &self.layout.node(node).kind else { unreachable!("just checked") };
        let plain = matches!(&self.layout.node(sequence.element).kind, Kind::Scalar(s) if *s == scalar);
        require(plain, "the elements are something else")
    }

    fn slice(&self, place: Place, scalar: Scalar, state: &State) -> Verdict {
        let node = self.place(place, state, |k| matches!(k, Kind::Sequence(_) | Kind::Array { .. }))?;
        let element = match &self.layout.node(node.ok_or("a sink is no slice")?).kind {
            Kind::Sequence(sequence) => sequence.element,
            Kind::Array { element, .. } => *element,
            _ => unreachable!("just checked"),
        };
        require(scalar != Scalar::Bool, "a slice of booleans cannot be checked")?;
        let plain = matches!(&self.layout.node(element).kind, Kind::Scalar(s) if *s == scalar);
        require(plain, "the elements are something else")
    }

    fn counted(&self, source: &Source, state: &State) -> Verdict {
        if self.program.direction == Direction::Decode && matches!(source, Source::Count) {
            let scalar = self.accumulator(state)?;
            require(scalar.is_integer() && !scalar.is_signed(), "a count is an unsigned integer")?;
        }
        Ok(())
    }

    /// The frame of the elements.
    fn elements(&self, place: Place, source: &Source, state: &State) -> Verdict<Option<NodeId>> {
        self.counted(source, state)?;
        let node = self.place(place, state, |k| matches!(k, Kind::Sequence(_) | Kind::Array { .. }))?;
        let decodes = self.program.direction == Direction::Decode;
        match node.map(|n| &self.layout.node(n).kind) {
            None => Ok(None),
            Some(Kind::Sequence(sequence)) => {
                require(!decodes || !matches!(source, Source::Fixed(_)), "a sequence has no fixed number of elements")?;
                Ok(Some(sequence.element))
            }
            Some(Kind::Array { element, len }) => {
                let fits = match source {
                    Source::Count => false,
                    Source::Fixed(n) => n == len,
                    Source::Dialect(_) => true,
                    Source::Append(_) => false,
                };
                require(!decodes || fits, "an array has a fixed number of elements")?;
                Ok(Some(*element))
            }
            Some(_) => unreachable!("just checked"),
        }
    }

    fn optional(&self, place: Place, state: &State) -> Verdict<Option<NodeId>> {
        let node = self.place(place, state, |k| matches!(k, Kind::Optional(_)))?;
        Ok(node.map(|n| match &self.layout.node(n).kind {
            Kind::Optional(optional) => optional.inner,
            _ => unreachable!("just checked"),
        }))
    }

    fn cases(&self, place: Place, state: &State) -> Verdict<Option<&[NodeId]>> {
        let node = self.place(place, state, |k| matches!(k, Kind::Union(_)))?;
        Ok(node.map(|n| match &self.layout.node(n).kind {
            Kind::Union(union) => &union.cases[..],
            _ => unreachable!("just checked"),
        }))
    }
}

/// True for what takes the value of the field that was asked for last.
fn takes_held(kind: &OpKind) -> bool {
    match kind {
        OpKind::Get(Wire::Word(..))
        | OpKind::Text { form: TextForm::Pending, .. }
        | OpKind::Octets { field: None, .. } => true,
        OpKind::Get(Wire::Kernel(kernel)) => core::ptr::eq(*kernel, &OCTET),
        OpKind::Sequence { source: Source::Dialect(dialect), .. } => core::ptr::eq(*dialect, &OCTETS),
        _ => false,
    }
}

/// True for what reads another field, or may.
fn replaces_held(kind: &OpKind) -> bool {
    match kind {
        OpKind::Get(Wire::Field(_))
        | OpKind::Text { form: TextForm::Field(_), .. }
        | OpKind::Octets { field: Some(_), .. }
        | OpKind::TestField(_)
        | OpKind::Call { .. } => true,
        OpKind::Sequence { source: Source::Dialect(dialect), .. } if core::ptr::eq(*dialect, &OCTETS) => true,
        _ => reads_inside(kind),
    }
}

/// The same of its blocks.
fn reads_inside(kind: &OpKind) -> bool {
    let mut inside = false;
    super::passes::inner_blocks(kind, &mut |block| inside |= block.0.iter().any(|op| replaces_held(&op.kind)));
    inside
}

fn kernel_needs_bank(kernel: &ActionKernel) -> bool {
    core::ptr::eq(kernel, &BITS) || core::ptr::eq(kernel, &RESET)
}

/// What does not fit 64 bits has functions of its own, and nothing else has.
fn scalar_kernel(kernel: &ScalarKernel) -> Verdict {
    let wide = kernel.scalar == Scalar::F128;
    require(kernel.wide.is_some() == wide, "a kernel has functions for 128 bits if its scalar has as many")?;
    require(!wide || kernel.form.is_none(), "a scalar of 128 bits has no form")
}

/// Machine code writes a short text's head and sixteen bytes at once.
fn text_kernel(kernel: &TextKernel) -> Verdict {
    let fits = kernel.short.is_none_or(|short| (1..=4).contains(&short.head_len) && short.below > 0);
    require(fits, "a short text's head has one to four bytes, and there are such texts")
}

/// A cursor has three words of bits.
fn prefix_fits(arm: &Arm) -> bool {
    let note = arm.prefix.as_ref().and_then(|prefix| prefix.note);
    note.is_none_or(|bit| usize::from(bit) < 8 * size_of::<super::Cursor>())
}

enum Refused {
    Here(&'static str),
    Inside(VerifyError),
}

impl From<&'static str> for Refused {
    fn from(rule: &'static str) -> Refused {
        Refused::Here(rule)
    }
}

fn require(holds: bool, rule: &'static str) -> Verdict {
    if holds { Ok(()) } else { Err(rule) }
}

/// Whether a condition can be put on a type. Back ends hold integers in 64 bits, where a `U64` may
/// look like a negative literal, and bits cannot be cut from a negative number.
fn checkable(check: &Check, scalar: Scalar) -> Verdict {
    require(scalar.range().is_some(), "only integers are checked")?;
    match check {
        Check::Enum { .. } => require(scalar != Scalar::U64, "an enum's literal is no U64"),
        Check::Keep(_) => require(!scalar.is_signed(), "bits are kept of unsigned integers"),
        Check::Bool | Check::Range { .. } | Check::OneOf(_) => Ok(()),
    }
}

/// True if every value of `from` is one of `to`, in the same family.
fn widens(from: Scalar, to: Scalar) -> bool {
    match (from, to) {
        _ if from == to => true,
        (Scalar::F32, Scalar::F64) => true,
        _ => match (from.range(), to.range()) {
            (Some((min, max)), Some((low, high))) => {
                to != Scalar::Bool && from != Scalar::Bool && low <= min && max <= high
            }
            _ => false,
        },
    }
}
