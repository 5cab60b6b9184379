//! Passes, which rewrite a program before it is verified. Codecs emit simple operations (`Align`,
//! one scalar, `Align`, one scalar). [`prepare`] fuses neighbouring operations and merges their
//! reservations. Each pass preserves the meaning of the program and is tested alone. `exec.rs` and
//! `Program::prepared` call it. It touches the program only.

use alloc::vec::Vec;

use super::{Block, Bytes, Direction, Op, OpKind, Order, Program, SlotOp, Source, TextForm, Wire, kernel::RegionForm};

/// All passes in order.
pub(crate) fn prepare(mut program: Program) -> Program {
    fuse(&mut program);
    bounds(&mut program);
    weigh(&mut program);
    program
}

macro_rules! each_block {
    ($kind:expr, $f:expr, $iter:ident, $($borrow:tt)+) => {
        match $kind {
            OpKind::Sequence { element, .. } => $f(element),
            OpKind::Map { key, value, .. } => [key, value].into_iter().for_each($f),
            OpKind::IfPresent { then, otherwise, .. } | OpKind::If { then, otherwise } => {
                [then, otherwise].into_iter().for_each($f);
            }
            OpKind::Present { body, .. }
            | OpKind::Unbox { body, .. }
            | OpKind::Select { body, .. }
            | OpKind::PresenceMap { body, .. }
            | OpKind::Region { body, .. } => $f(body),
            OpKind::Union { arms, none: rest, .. } | OpKind::Switch { arms, otherwise: rest, .. } => {
                arms.$iter().chain([rest]).for_each($f);
            }
            OpKind::Members { arms, .. } => {
                arms.$iter().flat_map(|a| [$($borrow)+ a.body, $($borrow)+ a.absent]).for_each($f);
            }
            _ => {}
        }
    };
}

/// Calls `f` on every block directly inside an operation.
pub(crate) fn inner_blocks<'a>(kind: &'a OpKind, f: &mut dyn FnMut(&'a Block)) {
    each_block!(kind, f, iter, &);
}

pub(super) fn inner_blocks_mut(kind: &mut OpKind, f: &mut dyn FnMut(&mut Block)) {
    each_block!(kind, f, iter_mut, &mut);
}

/// A known congruence of the position: it is `residue` modulo `modulus`, counted from the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    modulus: u32,
    residue: u32,
}

impl Known {
    const NOTHING: Known = Known { modulus: 1, residue: 0 };
    const ORIGIN: Known = Known { modulus: 8, residue: 0 };

    fn forward(&mut self, n: u32) {
        self.residue = (self.residue + n) % self.modulus;
    }

    /// Bytes to the next multiple of `n`, if that is known.
    fn distance(&self, n: u32) -> Option<u32> {
        (self.modulus >= n).then(|| self.residue.wrapping_neg() & (n - 1))
    }
}

/// Fuses neighbouring runs and literals, and turns alignment by a known distance into padding
/// inside a run.
pub(crate) fn fuse(program: &mut Program) {
    let direction = program.direction;
    fuse_block(&mut program.root, Known::ORIGIN, direction);
    for routine in &mut program.routines {
        fuse_block(&mut routine.block, Known::NOTHING, direction);
    }
}

fn fuse_block(block: &mut Block, mut known: Known, direction: Direction) {
    let mut fused: Vec<Op> = Vec::with_capacity(block.0.len());
    // In reverse order, so that `pop` gives the next operation.
    let mut rest: Vec<Op> = block.0.drain(..).rev().collect();
    while let Some(mut op) = rest.pop() {
        match op.kind {
            OpKind::Align(n) => match known.distance(u32::from(n)) {
                Some(gap) => {
                    known.forward(gap);
                    append_run(&mut fused, Op { path: op.path, kind: OpKind::Run { segments: Vec::new(), size: gap } });
                }
                None => {
                    known = Known { modulus: u32::from(n), residue: 0 };
                    fused.push(op);
                }
            },
            OpKind::Run { size, .. } => {
                known.forward(size);
                append_run(&mut fused, op);
            }
            OpKind::Literal(ref bytes) => {
                known.forward(bytes.len() as u32);
                append_literal(&mut fused, op);
            }
            _ => {
                let inside = if restarts_origin(&op.kind) { Known::ORIGIN } else { Known::NOTHING };
                inner_blocks_mut(&mut op.kind, &mut |block| fuse_block(block, inside, direction));
                if does_nothing(&op.kind) {
                    continue;
                }
                if direction == Direction::Encode
                    && let Some(length) = known_length(&op.kind)
                    && let OpKind::Region { body, .. } = &mut op.kind
                {
                    let path = op.path;
                    let head = [OpKind::Align(4), OpKind::Literal(length.into())].map(|kind| Op { path, kind });
                    rest.extend(body.0.drain(..).rev().chain(head.into_iter().rev()));
                    continue;
                }
                match fixed_size(&op.kind) {
                    Some(size) => known.forward(size),
                    None => known = Known::NOTHING,
                }
                fused.push(op);
            }
        }
    }
    block.0 = fused;
}

/// True for an array whose elements have no operations. It is removed: its elements may be many
/// millions, and no limit charges for them.
fn does_nothing(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Sequence { source: Source::Fixed(_), element, bound: 0, .. } if element.0.is_empty())
}

/// The length in front of a region as bytes, if the length is a word and the content has a constant
/// size.
fn known_length(kind: &OpKind) -> Option<[u8; 4]> {
    let OpKind::Region { dialect, argument: 0, body } = kind else { return None };
    let Some(RegionForm::Word { order }) = dialect.form else { return None };
    let size = body.0.iter().try_fold(0u32, |size, op| match &op.kind {
        OpKind::Run { size: run, .. } => size.checked_add(*run),
        OpKind::Literal(bytes) => size.checked_add(u32::try_from(bytes.len()).ok()?),
        _ => None,
    })?;
    Some(if order == Order::Big { size.to_be_bytes() } else { size.to_le_bytes() })
}

fn restarts_origin(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Region { dialect, .. } if dialect.restarts_origin)
}

/// Bytes that an operation other than a run moves on the wire, if the number is constant.
fn fixed_size(kind: &OpKind) -> Option<u32> {
    match kind {
        OpKind::Get(Wire::Fixed { scalar, .. }) | OpKind::Put(Wire::Fixed { scalar, .. }) => Some(scalar.size() as u32),
        OpKind::Literal(bytes) => Some(bytes.len() as u32),
        OpKind::Need(_)
        | OpKind::Load(_)
        | OpKind::Store(_)
        | OpKind::Const(..)
        | OpKind::Length(_)
        | OpKind::Index
        | OpKind::Convert(_)
        | OpKind::Check(_)
        | OpKind::SetText(..)
        | OpKind::Clear(_)
        | OpKind::Decimal(_) => Some(0),
        OpKind::Slot(op) if !matches!(op, SlotOp::Forget { .. }) => Some(0),
        OpKind::Bytes(bytes) if !matches!(bytes, Bytes::Get(_) | Bytes::Put(_) | Bytes::Octets { .. }) => Some(0),
        _ => None,
    }
}

/// The largest size of a fused run. A larger one is split, so that errors and checks stay near the
/// field.
const MAX_RUN: u32 = 4096;

fn append_run(fused: &mut Vec<Op>, op: Op) {
    let OpKind::Run { segments: more, size: added } = op.kind else { unreachable!("only called with runs") };
    if let Some(Op { kind: OpKind::Run { segments, size }, .. }) = fused.last_mut()
        && *size + added <= MAX_RUN
    {
        let start = *size;
        segments.extend(more.into_iter().map(|mut segment| {
            segment.at += start;
            segment
        }));
        *size += added;
    } else if added > 0 {
        fused.push(Op { path: op.path, kind: OpKind::Run { segments: more, size: added } });
    }
}

fn append_literal(fused: &mut Vec<Op>, op: Op) {
    let OpKind::Literal(more) = op.kind else { unreachable!("only called with literals") };
    if let Some(Op { kind: OpKind::Literal(bytes), .. }) = fused.last_mut() {
        let mut joined = core::mem::take(bytes).into_vec();
        joined.extend_from_slice(&more);
        *bytes = joined.into_boxed_slice();
    } else if !more.is_empty() {
        fused.push(Op { path: op.path, kind: OpKind::Literal(more) });
    }
}

/// Inserts a `Need` before operations that move a fixed number of bytes. An encode program gets one
/// `Need` for all such operations up to the next barrier. A decode program gets one for each
/// sequence of them without alignment, because a message may end where the worst case of an
/// alignment does not fit.
pub(crate) fn bounds(program: &mut Program) {
    let direction = program.direction;
    bound_block(&mut program.root, direction);
    for routine in &mut program.routines {
        bound_block(&mut routine.block, direction);
    }
}

fn bound_block(block: &mut Block, direction: Direction) {
    let mut ops: Vec<Op> = Vec::with_capacity(block.0.len() + 4);
    // The walk goes backwards, so that the bytes that follow are known.
    let mut following = 0;
    for mut op in block.0.drain(..).rev() {
        inner_blocks_mut(&mut op.kind, &mut |block| bound_block(block, direction));
        match (cost(&op.kind, direction), &mut op.kind) {
            (_, OpKind::Need(_)) => continue,
            (Cost::Bytes(n), _) => following += n,
            (Cost::Barrier, kind) => {
                let ensured = match kind {
                    OpKind::Text { after, form: TextForm::CountedNul { .. }, .. } if direction == Direction::Encode => {
                        *after = following;
                        true
                    }
                    _ => false,
                };
                if !ensured {
                    push_need(&mut ops, following);
                }
                following = 0;
            }
        }
        ops.push(op);
    }
    push_need(&mut ops, following);
    ops.reverse();
    block.0 = ops;
}

/// Appends a `Need`. `ops` is in reverse order: its last operation is the one that needs the bytes.
fn push_need(ops: &mut Vec<Op>, bytes: u32) {
    if let Some(first) = ops.last().filter(|_| bytes > 0) {
        let path = first.path;
        ops.push(Op { path, kind: OpKind::Need(bytes) });
    }
}

/// How an operation uses the reservation of a `Need` before it.
pub(crate) enum Cost {
    /// It moves at most this many bytes of the reservation.
    Bytes(u32),
    /// It ends the reservation: it moves an unknown number of bytes, or checks bounds itself.
    Barrier,
}

pub(crate) fn cost(kind: &OpKind, direction: Direction) -> Cost {
    match kind {
        OpKind::Run { size, .. } => Cost::Bytes(*size),
        OpKind::Align(n) if direction == Direction::Encode => Cost::Bytes(u32::from(*n) - 1),
        OpKind::Align(_) => Cost::Barrier,
        kind => fixed_size(kind).map_or(Cost::Barrier, Cost::Bytes),
    }
}

/// Nested blocks that a routine may have for each level that a call costs.
const BLOCKS_PER_LEVEL: u32 = 8;

/// Sets the number of levels that a call of each routine costs.
pub(crate) fn weigh(program: &mut Program) {
    for routine in &mut program.routines {
        routine.levels = levels(&routine.block);
    }
}

/// Levels that a call of a block must cost at least.
pub(crate) fn levels(block: &Block) -> u32 {
    1 + nesting(block) / BLOCKS_PER_LEVEL
}

/// The depth of nested blocks, the block itself not counted.
fn nesting(block: &Block) -> u32 {
    let mut deepest = 0;
    block.0.iter().for_each(|op| inner_blocks(&op.kind, &mut |inner| deepest = deepest.max(1 + nesting(inner))));
    deepest
}

/// Counts operations, all blocks together.
pub(crate) fn op_count(program: &Program) -> usize {
    count(program, &|_| 1)
}

/// The constant size of all messages, if the program consists of runs, literals and reservations.
pub(crate) fn message_size(program: &Program) -> Option<usize> {
    // A message that goes through an adapter has another size, and with a bank the state must be
    // kept around each message.
    if program.adapter.is_some() || program.bank.is_some() {
        return None;
    }
    let (mut size, mut needed) = (0usize, 0);
    for op in &program.root.0 {
        match &op.kind {
            OpKind::Need(n) => needed = needed.max(size.checked_add(*n as usize)?),
            OpKind::Align(1) => {}
            OpKind::Run { size: run, .. } => size = size.checked_add(*run as usize)?,
            OpKind::Literal(bytes) => size = size.checked_add(bytes.len())?,
            _ => return None,
        }
    }
    (needed <= size).then_some(size)
}

/// Counts operations, and the scalars in runs that are checked one by one.
#[cfg(feature = "jit")]
pub(crate) fn part_count(program: &Program) -> usize {
    count(program, &|op| match &op.kind {
        OpKind::Run { segments, .. } => {
            let checked = segments.iter().filter(|s| s.check.is_some());
            1 + segments.len() / 4 + checked.map(|s| s.count as usize).sum::<usize>()
        }
        _ => 1,
    })
}

fn count(program: &Program, weight: &dyn Fn(&Op) -> usize) -> usize {
    fn within(block: &Block, weight: &dyn Fn(&Op) -> usize) -> usize {
        let mut total = block.0.iter().map(weight).sum();
        block.0.iter().for_each(|op| inner_blocks(&op.kind, &mut |inner| total += within(inner, weight)));
        total
    }
    within(&program.root, weight) + program.routines.iter().map(|r| within(&r.block, weight)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use alloc::{boxed::Box, sync::Arc, vec};

    use super::*;
    use crate::{
        layout::{Kind, Layout, Node, NodeId, Scalar},
        program::{PathId, Place, Segment},
    };

    fn op(kind: OpKind) -> Op {
        Op { path: PathId(0), kind }
    }

    fn scalar(wire: Scalar) -> Op {
        let segment =
            Segment { place: Place::Sink, at: 0, wire, memory: wire, count: 1, order: Order::Little, check: None };
        op(OpKind::Run { segments: vec![segment], size: wire.size() as u32 })
    }

    fn text() -> Op {
        let form = TextForm::CountedNul { order: Order::Little };
        let overflow = Default::default();
        op(OpKind::Text { place: Place::Sink, form, bound: 0, utf16_bound: false, overflow, after: 0 })
    }

    fn program(direction: Direction, ops: Vec<Op>) -> Program {
        let node = Node { size: 1, align: 1, kind: Kind::Scalar(Scalar::U8) };
        // SAFETY: the layout's only node is `node`, and no test runs the program on memory.
        let layout = Arc::new(unsafe { Layout::new(vec![node], NodeId(0)) });
        Program {
            direction,
            layout,
            root: Block(ops),
            routines: vec![],
            paths: vec!["".into()],
            bank: None,
            adapter: None,
        }
    }

    fn shape(program: &Program) -> Vec<alloc::string::String> {
        shape_of(&program.root)
    }

    fn shape_of(block: &Block) -> Vec<alloc::string::String> {
        let name = |op: &Op| match &op.kind {
            OpKind::Run { segments, size } => {
                let at: Vec<u32> = segments.iter().map(|s| s.at).collect();
                alloc::format!("run {size} {at:?}")
            }
            OpKind::Align(n) => alloc::format!("align {n}"),
            OpKind::Need(n) => alloc::format!("need {n}"),
            OpKind::Text { after, .. } => alloc::format!("text {after}"),
            OpKind::Literal(bytes) => alloc::format!("literal {}", bytes.len()),
            other => alloc::format!("{other:?}"),
        };
        block.0.iter().map(name).collect()
    }

    #[test]
    fn known_alignment_becomes_a_gap() {
        let ops = vec![
            scalar(Scalar::U8),
            op(OpKind::Align(8)),
            scalar(Scalar::U64),
            op(OpKind::Align(4)),
            scalar(Scalar::U32),
        ];
        let mut program = program(Direction::Decode, ops);
        fuse(&mut program);
        assert_eq!(shape(&program), ["run 20 [0, 8, 16]"]);
    }

    #[test]
    fn alignment_behind_a_string_stays_but_teaches() {
        let ops = vec![
            text(),
            op(OpKind::Align(4)),
            scalar(Scalar::U32),
            op(OpKind::Align(2)),
            scalar(Scalar::U16),
            op(OpKind::Align(8)),
            scalar(Scalar::F64),
        ];
        let mut program = program(Direction::Encode, ops);
        fuse(&mut program);
        assert_eq!(shape(&program), ["text 0", "align 4", "run 6 [0, 4]", "align 8", "run 8 [0]"]);
        bounds(&mut program);
        assert_eq!(shape(&program), ["text 24", "align 4", "run 6 [0, 4]", "align 8", "run 8 [0]"]);
    }

    #[test]
    fn decoding_needs_exactly_what_a_run_takes() {
        let ops = vec![scalar(Scalar::U32), text(), op(OpKind::Align(8)), scalar(Scalar::F64)];
        let mut program = program(Direction::Decode, ops);
        bounds(&mut program);
        assert_eq!(shape(&program), ["need 4", "run 4 [0]", "text 0", "align 8", "need 8", "run 8 [0]"]);
    }

    #[test]
    fn literals_are_joined() {
        let literal = |bytes: &[u8]| op(OpKind::Literal(Box::from(bytes)));
        let mut program = program(Direction::Encode, vec![literal(b"{"), literal(b"\"a\":"), literal(b"")]);
        fuse(&mut program);
        assert_eq!(shape(&program), ["literal 5"]);
    }

    #[test]
    fn a_region_of_known_size_becomes_its_length_and_what_is_inside() {
        use crate::{
            codec::{self, Options},
            layout::Message,
        };

        #[derive(polywire_derive::Message)]
        struct Position {
            x: f64,
            y: f64,
        }
        #[derive(polywire_derive::Message)]
        struct Point {
            flag: u8,
            position: Position,
            name: String,
        }
        let (xcdr2, options) = (codec::find("xcdr2").unwrap(), Options::default());
        let shape = Position::shape();
        let mut program = xcdr2.lower_encode(&options, shape.schema(), shape.layout()).unwrap();
        fuse(&mut program);
        assert_eq!(shape_of(&program.root), ["literal 4", "run 16 [0, 8]"]);
        // A region with a string inside is kept, with the position in it.
        let shape = Point::shape();
        let mut program = xcdr2.lower_encode(&options, shape.schema(), shape.layout()).unwrap();
        fuse(&mut program);
        let [Op { kind: OpKind::Region { body, .. }, .. }] = &program.root.0[..] else { panic!("{:?}", program.root) };
        assert_eq!(shape_of(body), ["run 4 [0]", "literal 4", "run 16 [0, 8]", "text 0"]);
    }

    #[test]
    fn the_passes_one_by_one_are_prepare() {
        use crate::{
            codec::{self, Options},
            layout::Message,
            program::passes,
        };

        #[derive(polywire_derive::Message)]
        struct Pump {
            id: u32,
            station: u16,
            bar: f32,
        }
        let (cdr, shape) = (codec::find("cdr").unwrap(), Pump::shape());
        let lowered = cdr.lower_encode(&Options::default(), shape.schema(), shape.layout()).unwrap();

        // Each pass alone, and all of them in order.
        let mut program = lowered.clone();
        passes::fuse(&mut program);
        assert!(program.root.0.iter().any(|op| matches!(op.kind, OpKind::Run { .. })));
        passes::bounds(&mut program);
        passes::weigh(&mut program);
        let prepared = passes::prepare(lowered.clone());
        assert_eq!(passes::op_count(&prepared), passes::op_count(&program));
        assert!(passes::op_count(&prepared) < passes::op_count(&lowered));
        assert_eq!(passes::message_size(&prepared), Some(12));
    }
}
