//! The verifier: a program that it accepts cannot access anything but the value, the message and
//! the state, whatever the bytes are. `exec.rs` and `Program::verify` call it. It reads the program
//! only.
//!
//! Every program passes it before a back end runs it, whether this crate's lowerings or codecs
//! registered at run time made it. It shares no code with passes and back ends: it has its own
//! table of facts about operations ([`facts`]), and its one walk counts operations, nesting and
//! bytes itself. It checks that
//!
//! 1. each operation belongs to the program's direction;
//! 2. each place lies in its frame and holds what the operation works on, and sinks occur only when
//!    decoding;
//! 3. the accumulator is set, and of the right type, where it is used; what is stored is valid
//!    there: booleans and enum literals were checked; the labels of a switch ascend and choose arms
//!    that exist;
//! 4. a `Need` dominates each operation that moves a fixed number of bytes, without a barrier in
//!    between;
//! 5. segments of runs are in order and do not overlap; in runs, too, booleans and enums are
//!    checked; scalars widen, never narrow;
//! 6. calls name existing routines with the frame they expect, and cost levels in proportion to the
//!    nesting of the routine's blocks; the nesting depth and the number of operations are limited;
//! 7. a program that uses the state of a stream has a bank, and uses only its slots; operations
//!    that use the bytes in hand come behind one that takes some;
//! 8. kernels have types that they support, and forms and expected prefixes are within the limits
//!    of machine code, because kernels are arbitrary safe code.

use alloc::{string::String, vec, vec::Vec};
use core::cell::Cell;

use super::{
    Arithmetic, Block, ByteSlot, Bytes, Check, Decimal, Direction, Op, OpKind, Operand, Place, Policy, Program,
    ScalarKernel, SlotOp, TextForm, TextKernel, Wire, state::LOCALS,
};
use crate::layout::{Kind, Layout, NodeId, Scalar};
use facts::{Facts, Hand, Reserved, facts};

mod facts;
mod memory;
#[cfg(test)]
mod tests;

/// Operations in a program.
pub(crate) const MAX_OPS: usize = 1 << 18;
/// Largest nesting depth of blocks.
const MAX_DEPTH: u32 = 128;
/// Nested blocks that a routine may have for each level that a call costs.
const BLOCKS_PER_LEVEL: u32 = 8;
/// Bits of a presence map.
const MAX_BITS: u32 = 1 << 18;

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

/// Checks that a program keeps the [module's](self) rules.
pub(crate) fn verify(program: &Program) -> Result<(), VerifyError> {
    let refused = |rule| VerifyError { path: String::new(), rule };
    let verifier = Verifier { program, layout: &program.layout, ops: Cell::new(0) };
    verifier.block(&program.root, State::new(Some(program.layout.root())), 0)?;
    for routine in &program.routines {
        if routine.frame.is_some_and(|node| node.0 as usize >= program.layout.len()) {
            return Err(refused("a routine's frame is no node"));
        }
        let End { nested, .. } = verifier.block(&routine.block, State::new(routine.frame), 0)?;
        if routine.levels < 1 + nested / BLOCKS_PER_LEVEL {
            return Err(refused("calls cost too little for the blocks in the routine"));
        }
    }
    Ok(())
}

/// The verifier's knowledge between two operations.
#[derive(Clone, Copy)]
struct State {
    /// The node of the frame; none where only sinks are allowed.
    frame: Option<NodeId>,
    /// The accumulator's type, and the enum of which it is known to be a literal.
    accumulator: Option<(Scalar, Option<NodeId>)>,
    /// Bytes that are reserved.
    ensured: u32,
    /// Inside a sequence or map.
    indexed: bool,
    /// There are bytes in hand.
    held: bool,
}

impl State {
    fn new(frame: Option<NodeId>) -> State {
        State { frame, accumulator: None, ensured: 0, indexed: false, held: false }
    }

    /// Sets the type of the accumulator, which is not known to be a literal.
    fn fill(&mut self, scalar: Scalar) {
        self.accumulator = Some((scalar, None));
    }

    /// The state where an inner block begins.
    fn inside(&self, frame: Option<NodeId>) -> State {
        State { frame, ensured: 0, ..*self }
    }

    /// The state where a block begins that is repeated, or runs behind others of its operation.
    fn repeated(&self, frame: Option<NodeId>) -> State {
        State { accumulator: None, ..self.inside(frame) }
    }
}

/// The verifier's knowledge at the end of a block.
struct End {
    /// Nesting depth of the blocks in it.
    nested: u32,
    /// The accumulator there.
    accumulator: Option<(Scalar, Option<NodeId>)>,
    /// Its end is never reached: it always fails.
    stops: bool,
}

/// Joins the ends of alternative blocks: keeps the accumulator if all agree on it, and whether any
/// end is reached.
fn join(ends: &[End]) -> End {
    let mut arrivals = ends.iter().filter(|end| !end.stops);
    let nested = ends.iter().map(|end| end.nested).max().unwrap_or(0);
    let Some(first) = arrivals.next() else { return End { nested, accumulator: None, stops: true } };
    let both = |a: (Scalar, Option<NodeId>), b: (Scalar, Option<NodeId>)| {
        (a.0 == b.0).then_some((a.0, a.1.filter(|node| b.1 == Some(*node))))
    };
    let accumulator = arrivals.fold(first.accumulator, |before, end| both(before?, end.accumulator?));
    End { nested, accumulator, stops: false }
}

struct Verifier<'p> {
    program: &'p Program,
    layout: &'p Layout,
    /// Operations seen so far.
    ops: Cell<usize>,
}

type Verdict<T = ()> = Result<T, &'static str>;

impl Verifier<'_> {
    /// Checks a block, and returns the knowledge at its end.
    fn block(&self, block: &Block, mut state: State, depth: u32) -> Result<End, VerifyError> {
        let (mut nested, mut stops) = (0, false);
        for op in &block.0 {
            let at = |rule| VerifyError { path: self.path(op), rule };
            require(depth <= MAX_DEPTH, "blocks are nested too deeply").map_err(at)?;
            self.ops.set(self.ops.get() + 1);
            require(self.ops.get() <= MAX_OPS, "it has too many operations").map_err(at)?;
            let facts = facts(&op.kind, self.program.direction);
            let inner = self.op(&op.kind, &facts, &mut state).map_err(at)?;
            let blocks = facts.blocks.into_iter().zip(inner);
            let ends = blocks.map(|(block, inside)| self.block(block, inside, depth + 1));
            let ends = ends.collect::<Result<Vec<End>, VerifyError>>()?;
            stops |= matches!(op.kind, OpKind::Fail(_));
            if !ends.is_empty() {
                let end = join(&ends);
                nested = nested.max(1 + end.nested);
                if matches!(op.kind, OpKind::If { .. } | OpKind::Switch { .. }) {
                    state.accumulator = end.accumulator;
                    stops |= end.stops;
                }
            }
        }
        Ok(End { nested, accumulator: state.accumulator, stops })
    }

    fn path(&self, op: &Op) -> String {
        self.program.paths.get(op.path.0 as usize).cloned().unwrap_or_default()
    }

    /// Checks an operation, and returns the knowledge at the beginning of each of its blocks.
    fn op(&self, kind: &OpKind, facts: &Facts<'_>, state: &mut State) -> Verdict<Vec<State>> {
        let of_this_direction = facts.only.is_none_or(|only| only == self.program.direction);
        require(of_this_direction, "the operation is of the other direction")?;
        self.ensured(facts.reserved, state)?;
        require(!facts.has_state || self.program.bank.is_some(), "the program has no bank")?;
        let uses = matches!(facts.hand, Hand::Uses | Hand::Changes);
        require(!uses || state.held, "there are no bytes in hand")?;
        let inner = self.rules(kind, facts, state)?;
        require(inner.len() == facts.blocks.len(), "an operation has blocks that nobody looks at")?;
        // The accumulator behind inner blocks depends on which one ran.
        if !inner.is_empty() || matches!(kind, OpKind::Call { .. }) {
            state.accumulator = None;
        }
        state.held = match facts.hand {
            Hand::Fills | Hand::Changes => true,
            Hand::Loses => false,
            // An inner block may have taken other bytes.
            Hand::Ignores | Hand::Uses => state.held && !self.fills_inside(facts),
        };
        Ok(inner)
    }

    /// Rule 4: reserved bytes.
    fn ensured(&self, reserved: Reserved, state: &mut State) -> Verdict {
        state.ensured = match reserved {
            Reserved::Ensures(n) => state.ensured.max(n),
            Reserved::Moves(n) => state.ensured.checked_sub(n).ok_or("no Need covers the bytes it moves")?,
            Reserved::Leaves(n) => n,
        };
        Ok(())
    }

    /// True if an inner block may take bytes in hand.
    fn fills_inside(&self, facts: &Facts<'_>) -> bool {
        facts.blocks.iter().flat_map(|block| &block.0).any(|op| {
            let facts = self::facts(&op.kind, self.program.direction);
            matches!(facts.hand, Hand::Fills | Hand::Changes | Hand::Loses) || self.fills_inside(&facts)
        })
    }

    /// Checks the rules that are specific to the operation, sets the accumulator if it does, and
    /// returns the knowledge at the beginning of each of its blocks.
    fn rules(&self, kind: &OpKind, facts: &Facts<'_>, state: &mut State) -> Verdict<Vec<State>> {
        match kind {
            OpKind::Sequence { .. } | OpKind::Map { .. } | OpKind::Members { .. } => {
                return self.repeating(kind, facts, state);
            }
            OpKind::IfPresent { .. }
            | OpKind::Present { .. }
            | OpKind::Unbox { .. }
            | OpKind::Union { .. }
            | OpKind::Select { .. } => return self.opening(kind, state),
            OpKind::Switch { .. }
            | OpKind::If { .. }
            | OpKind::Region { .. }
            | OpKind::PresenceMap { .. }
            | OpKind::Call { .. } => return self.branching(kind, state),
            OpKind::Need(_) | OpKind::Literal(_) | OpKind::Fail(_) | OpKind::Action(..) => {}
            OpKind::Align(n) => require(matches!(n, 1 | 2 | 4 | 8), "alignment is 1, 2, 4 or 8")?,
            OpKind::Run { segments, size } => self.run(segments, *size, state)?,
            OpKind::Load(place) => state.fill(self.scalar_at(*place, state)?.0),
            OpKind::Store(place) => self.store(*place, state)?,
            OpKind::Get(wire) => {
                let unchecked = matches!(wire, Wire::Fixed { scalar: Scalar::Bool, .. });
                require(!unchecked, "a boolean is read as an octet and checked")?;
                self.wire(wire)?;
                state.fill(wire.scalar());
            }
            OpKind::Put(wire) => {
                self.wire(wire)?;
                require(self.accumulator(state)? == wire.scalar(), "the accumulator is of another type than the wire")?;
            }
            OpKind::Const(scalar, bits) => {
                require(*scalar != Scalar::Bool || *bits <= 1, "a boolean constant is 0 or 1")?;
                let fits = scalar.is_signed() || bits.checked_shr(8 * scalar.size() as u32).unwrap_or(0) == 0;
                require(fits, "a constant has more bits than its type")?;
                state.fill(*scalar);
            }
            OpKind::Length(place) => {
                self.place(*place, state, |k| matches!(k, Kind::String { .. } | Kind::Sequence(_) | Kind::Map(_)))?;
                state.fill(Scalar::U64);
            }
            OpKind::Index => {
                require(state.indexed, "there is no sequence around it")?;
                state.fill(Scalar::U64);
            }
            OpKind::Convert(to) => state.accumulator = Some(self.convert(*to, state)?),
            OpKind::Check(check) => self.check(check, state)?,
            OpKind::Text { place, form, .. } => {
                if let TextForm::Kernel(kernel) = form {
                    text_kernel(kernel)?;
                }
                self.text(*place, state)?;
            }
            OpKind::SetText(place, _) => self.text(*place, state)?,
            OpKind::Bulk { place, scalar, .. } => self.bulk(*place, *scalar, state)?,
            OpKind::Slice { place, kernel, .. } => self.slice(*place, kernel.scalar, state)?,
            OpKind::Clear(place) => self.clear(*place, state)?,
            OpKind::Bytes(bytes) => self.in_hand(bytes, state)?,
            OpKind::Slot(op) => self.slot_op(*op, state)?,
            OpKind::Decimal(decimal) => state.fill(self.decimal(*decimal, state)?),
            OpKind::KnownBits { zeros, .. } => require(*zeros <= MAX_BITS, "a presence map has too many bits")?,
            OpKind::TakeBit | OpKind::Test(_) => state.fill(Scalar::Bool),
        }
        Ok(Vec::new())
    }

    /// Rules 3 and 7: operations on slots and locals.
    fn slot_op(&self, op: SlotOp, state: &mut State) -> Verdict {
        match op {
            // An index outside the bank is allowed: it keeps no slot.
            SlotOp::Forget { .. } => {}
            SlotOp::LoadSlot { slot, scalar, .. } => {
                self.slot(slot)?;
                is_word(scalar)?;
                state.fill(scalar);
            }
            SlotOp::StoreSlot { slot, kind } => {
                self.slot(slot)?;
                is_kind(kind)?;
                is_word(self.accumulator(state)?)?;
            }
            SlotOp::EmptySlot(slot) => self.slot(slot)?,
            SlotOp::SlotState(slot) => {
                self.slot(slot)?;
                state.fill(Scalar::U64);
            }
            SlotOp::SlotHas { slot, kind, .. } => {
                self.slot(slot)?;
                is_kind(kind)?;
                is_integer(self.accumulator(state)?)?;
                state.fill(Scalar::Bool);
            }
            SlotOp::LoadLocal(index, scalar) => {
                is_local(index)?;
                is_word(scalar)?;
                state.fill(scalar);
            }
            SlotOp::StoreLocal(index) => {
                is_local(index)?;
                is_word(self.accumulator(state)?)?;
            }
            SlotOp::Compute(arithmetic, operand) => {
                if let Operand::Local(index) = operand {
                    is_local(index)?;
                }
                let scalar = self.accumulator(state)?;
                is_integer(scalar)?;
                state.fill(match arithmetic {
                    Arithmetic::Add | Arithmetic::Subtract => scalar,
                    Arithmetic::Equal | Arithmetic::Less => Scalar::Bool,
                });
            }
        }
        Ok(())
    }

    /// The type of the accumulator behind a `Decimal` operation.
    fn decimal(&self, decimal: Decimal, state: &State) -> Verdict<Scalar> {
        let is_number = |scalar| matches!(scalar, Scalar::F32 | Scalar::F64 | Scalar::I64);
        let from = self.accumulator(state)?;
        let (exponent, fits, to) = match decimal {
            Decimal::Split { exponent } => (exponent, is_number(from), Scalar::I64),
            Decimal::Shift { exponent, .. } => (exponent, from == Scalar::I64, Scalar::I64),
            Decimal::Join { exponent, to, .. } => (exponent, from == Scalar::I64 && is_number(to), to),
        };
        is_local(exponent)?;
        require(fits, "a mantissa is an I64, and a decimal becomes an F32, F64 or I64")?;
        Ok(to)
    }

    /// Checks operations that run a block several times, or several blocks one after another.
    fn repeating(&self, kind: &OpKind, facts: &Facts<'_>, state: &State) -> Verdict<Vec<State>> {
        // Bytes in hand count in a repeated block only if the block does not replace them.
        let held = state.held && !self.fills_inside(facts);
        let repeated = State { held, ..*state };
        Ok(match kind {
            OpKind::Sequence { place, source, .. } => {
                let frame = self.elements(*place, source, state)?;
                vec![State { indexed: true, ..repeated.repeated(frame) }]
            }
            OpKind::Map { place, source, .. } => {
                self.counted(source, state)?;
                let node = self.place(*place, state, |k| matches!(k, Kind::Map(_)))?;
                let frames = node.map(|n| match &self.layout.node(n).kind {
                    Kind::Map(map) => (map.key, map.value),
                    _ => unreachable!("just checked"),
                });
                let inside = State { indexed: true, ..repeated };
                vec![inside.repeated(frames.map(|f| f.0)), inside.repeated(frames.map(|f| f.1))]
            }
            OpKind::Members { arms, table, .. } => {
                require(arms.len() == table.keys().len(), "the table is of other members")?;
                require(arms.iter().zip(table.keys()).all(|(a, k)| a.key == *k), "the table is of other members")?;
                // A cursor has three words of bits.
                let fits = |bit: u8| usize::from(bit) < 8 * size_of::<super::Cursor>();
                let notes = arms.iter().filter_map(|arm| arm.prefix.as_ref()?.note);
                require(notes.into_iter().all(fits), "a prefix notes a bit that the cursor does not have")?;
                vec![repeated.repeated(state.frame); 2 * arms.len()]
            }
            _ => unreachable!("only called for these"),
        })
    }

    /// Checks operations that open another frame.
    fn opening(&self, kind: &OpKind, state: &State) -> Verdict<Vec<State>> {
        Ok(match kind {
            OpKind::IfPresent { place, .. } => {
                vec![state.inside(self.optional(*place, state)?), state.inside(state.frame)]
            }
            OpKind::Present { place, .. } => vec![state.inside(self.optional(*place, state)?)],
            OpKind::Unbox { place, .. } => {
                let node = self.place(*place, state, |k| matches!(k, Kind::Boxed(_)))?;
                let frame = node.map(|n| match &self.layout.node(n).kind {
                    Kind::Boxed(boxed) => boxed.inner,
                    _ => unreachable!("just checked"),
                });
                vec![state.inside(frame)]
            }
            OpKind::Union { place, arms, .. } => {
                let cases = self.cases(*place, state)?.ok_or("a sink cannot be encoded")?;
                require(arms.len() == cases.len(), "there is one arm for each case")?;
                let discriminator = State { accumulator: Some((Scalar::I64, None)), ..*state };
                let frames = cases.iter().copied().map(Some).chain([state.frame]);
                frames.map(|frame| discriminator.inside(frame)).collect()
            }
            OpKind::Select { place, case, body } => {
                require(self.accumulator(state)? == Scalar::I64, "a discriminator is an I64")?;
                let cases = self.cases(*place, state)?;
                require(case.is_some() || body.0.is_empty(), "there is no value without a case")?;
                let frame = match (cases, case) {
                    (Some(cases), Some(i)) => Some(*cases.get(*i as usize).ok_or("the union has no such case")?),
                    _ => None,
                };
                vec![state.inside(frame)]
            }
            _ => unreachable!("only called for these"),
        })
    }

    /// Checks operations that run a block on the same frame, or call a routine.
    fn branching(&self, kind: &OpKind, state: &State) -> Verdict<Vec<State>> {
        Ok(match kind {
            OpKind::Switch { labels, arms, .. } => {
                let scalar = self.accumulator(state)?;
                require(scalar.range().is_some(), "a switch is on an integer or boolean")?;
                let ascend = labels.windows(2).all(|pair| pair[0].0 < pair[1].0);
                require(ascend, "the labels of a switch ascend, and none occurs twice")?;
                let have_arms = labels.iter().all(|(_, arm)| (*arm as usize) < arms.len());
                require(have_arms, "a label chooses an arm of its switch")?;
                vec![state.inside(state.frame); arms.len() + 1]
            }
            OpKind::If { .. } => {
                require(self.accumulator(state)? == Scalar::Bool, "a condition is a boolean")?;
                vec![state.inside(state.frame); 2]
            }
            OpKind::Region { .. } => vec![state.inside(state.frame)],
            OpKind::PresenceMap { bits, .. } => {
                require(*bits <= MAX_BITS, "a presence map has too many bits")?;
                vec![state.inside(state.frame)]
            }
            OpKind::Call { routine, place } => {
                let routine = self.program.routines.get(*routine as usize).ok_or("there is no such routine")?;
                let node = self.place(*place, state, |_| true)?;
                require(node == routine.frame, "the routine expects another frame")?;
                Vec::new()
            }
            _ => unreachable!("only called for these"),
        })
    }

    /// Rules 7 and 8, for a scalar's form on the wire.
    fn wire(&self, wire: &Wire) -> Verdict {
        match wire {
            Wire::StopBit(form) => {
                form.there.into_iter().chain(form.base).try_for_each(is_local)?;
                is_integer(form.scalar)
            }
            Wire::Octet => require(self.program.direction == Direction::Decode, "octets are taken, not written"),
            Wire::Inline(kernel, argument) => {
                require(self.program.direction == Direction::Encode, "the operation is of the other direction")?;
                require(kernel.scalar != Scalar::F128, "an inline kernel's value has 64 bits")?;
                // The highest byte of the argument counts the bytes below it.
                require(kernel.form.is_none() || argument >> 56 <= 7, "an inline kernel's head is too long")
            }
            Wire::Kernel(kernel) => scalar_kernel(kernel),
            Wire::Symbol(kernel, _) => {
                require(matches!(kernel.scalar, Scalar::I64 | Scalar::U64), "a symbol is an I64 or U64")
            }
            Wire::Fixed { .. } => Ok(()),
        }
    }

    /// Rule 7: operations on the bytes in hand.
    fn in_hand(&self, bytes: &Bytes, state: &mut State) -> Verdict {
        match bytes {
            Bytes::Octets { place: Place::Sink, .. } => {
                require(self.program.direction == Direction::Decode, "a sink cannot be encoded")
            }
            Bytes::Octets { place, .. } => self.slice(*place, Scalar::U8, state),
            Bytes::Get(form) | Bytes::Put(form) => form.there.into_iter().try_for_each(is_local),
            Bytes::Const(_) | Bytes::Utf8(_) => Ok(()),
            Bytes::LoadSlot { slot, .. } => self.byte_slot(*slot),
            Bytes::StoreSlot { slot, kind } => {
                is_kind(*kind)?;
                self.byte_slot(*slot)
            }
            Bytes::SlotHas { slot, kind, .. } => {
                state.fill(Scalar::Bool);
                is_kind(*kind)?;
                self.byte_slot(*slot)
            }
            Bytes::Equal(_) => {
                state.fill(Scalar::Bool);
                Ok(())
            }
            Bytes::Length => {
                state.fill(Scalar::U64);
                Ok(())
            }
            Bytes::Part { slot, number, .. } => {
                is_local(*number)?;
                self.byte_slot(*slot)
            }
        }
    }

    /// Rule 7: the bank has the slot for bytes.
    fn byte_slot(&self, slot: ByteSlot) -> Verdict {
        let bank = self.program.bank.as_ref().ok_or("the program has no bank")?;
        require(slot.slot < bank.slots && slot.bytes < bank.texts, "the bank has no such slot for bytes")
    }

    /// Rule 7: the bank has the slot.
    fn slot(&self, slot: u32) -> Verdict {
        require(self.program.bank.as_ref().is_some_and(|bank| slot < bank.slots), "the bank has no such slot")
    }

    /// Rule 3: the accumulator is set.
    fn accumulator(&self, state: &State) -> Verdict<Scalar> {
        state.accumulator.map(|(scalar, _)| scalar).ok_or("the accumulator is not set")
    }

    fn convert(&self, to: Scalar, state: &State) -> Verdict<(Scalar, Option<NodeId>)> {
        let (from, literal_of) = state.accumulator.ok_or("the accumulator is not set")?;
        let float = |s| matches!(s, Scalar::F32 | Scalar::F64);
        let possible = from == to
            || (from.range().is_some() && to != Scalar::F128 && to != Scalar::Bool)
            || (float(from) && float(to));
        require(possible, "there is no such conversion")?;
        Ok((to, literal_of))
    }

    fn check(&self, check: &Check, state: &mut State) -> Verdict {
        let (scalar, _) = state.accumulator.ok_or("the accumulator is not set")?;
        checkable(check, scalar)?;
        let accepts = matches!(check, Check::Within { policy, .. } if *policy != Policy::Reject);
        require(!accepts || self.program.bank.is_some(), "the program has no bank")?;
        state.accumulator = Some(match check {
            Check::Bool => (Scalar::Bool, None),
            Check::Enum { node, otherwise } => {
                self.literals(*node, *otherwise)?;
                (scalar, Some(*node))
            }
            Check::Range { .. } | Check::Within { .. } | Check::OneOf(_) | Check::Keep(_) => (scalar, None),
        });
        Ok(())
    }
}

/// Requires a scalar of which any bits are a valid value.
fn is_word(scalar: Scalar) -> Verdict {
    let is_float = matches!(scalar, Scalar::F32 | Scalar::F64);
    require(is_float || is_integer(scalar).is_ok(), "a slot or local has an integer, F32 or F64")
}

fn is_integer(scalar: Scalar) -> Verdict {
    require(scalar != Scalar::Bool && scalar.range().is_some(), "only an integer is computed with")
}

/// Requires the kind of a value: lower numbers mean that there is no value.
fn is_kind(kind: u8) -> Verdict {
    require(kind > 1, "the kind of a slot's value is 2 or more")
}

fn is_local(index: u8) -> Verdict {
    require(usize::from(index) < LOCALS, "there is no such local")
}

/// Requires a kernel to have `wide` functions if, and only if, its scalar does not fit 64 bits.
fn scalar_kernel(kernel: &ScalarKernel) -> Verdict {
    let wide = kernel.scalar == Scalar::F128;
    require(kernel.wide.is_some() == wide, "a kernel has functions for 128 bits if its scalar has as many")?;
    require(!wide || kernel.form.is_none(), "a scalar of 128 bits has no form")
}

/// Checks the form of short texts: machine code writes the head and sixteen bytes in one step.
fn text_kernel(kernel: &TextKernel) -> Verdict {
    let fits = kernel.short.is_none_or(|short| (1..=4).contains(&short.head_len) && short.below > 0);
    require(fits, "a short text's head has one to four bytes, and there are such texts")
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
        Check::Bool | Check::Range { .. } | Check::Within { .. } | Check::OneOf(_) => Ok(()),
    }
}
