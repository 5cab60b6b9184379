//! Runs of fields: a function does them eight at a time; where it does not gather their members,
//! machine code moves them into lanes or out of them.

use alloc::{boxed::Box, vec::Vec};

use cranelift_codegen::ir::{InstBuilder, StackSlotData, StackSlotKind, Value, types};

use super::emit::Emit;
use crate::{
    layout::{Kind, Scalar},
    program::{
        Check, Op, OpKind, Place, TextForm, Wire,
        state::run::{Member, Run, Step, functions, gathers, pays},
    },
};

/// Fields that are worth a call.
const LEAST: usize = 4;

/// A number that is in a lane.
struct Moved {
    lane: usize,
    offset: u32,
    memory: Scalar,
}

/// The beginning of a block as a run.
struct Found {
    run: Run,
    moved: Vec<Moved>,
    /// Operations.
    taken: usize,
}

impl<'e> Emit<'e, '_> {
    /// Fields that a block begins with, if they are worth it; gives how many operations they are.
    pub(super) fn decode_fields(&mut self, ops: &'e [Op], frame: Value) -> usize {
        let Some(Found { run, moved, taken }) = self.find(ops, Run::new(false), Self::decoded) else { return 0 };
        let lanes = self.lanes(&run);
        let run = self.keep(run);
        self.call_status(&ops[0], functions().1 as *const u8, &[self.context, run, lanes, frame]);
        for Moved { lane, offset, memory } in moved {
            let value = self.load(types::I64, lanes, 8 * lane as i32);
            self.store_scalar(memory, value, frame, offset as i32);
        }
        self.accumulator = None;
        taken
    }

    /// The same when encoding.
    pub(super) fn encode_fields(&mut self, ops: &'e [Op], frame: Value) -> usize {
        let Some(Found { run, moved, taken }) = self.find(ops, Run::new(true), Self::encoded) else { return 0 };
        let lanes = if gathers() { self.constant(0) } else { self.lanes(&run) };
        for Moved { lane, offset, memory } in moved {
            let value = self.load_scalar(memory, frame, offset as i32);
            self.store(value, lanes, 8 * lane as i32);
        }
        let run = self.keep(run);
        self.call_status(&ops[0], functions().0 as *const u8, &[self.context, run, lanes, frame]);
        self.accumulator = None;
        taken
    }

    fn find(
        &self,
        ops: &'e [Op],
        mut run: Run,
        next: impl Fn(&Self, &'e [Op]) -> Option<(Member<'e>, usize)>,
    ) -> Option<Found> {
        self.stream.filter(|_| !self.direct && pays())?;
        let (mut moved, mut taken) = (Vec::new(), 0);
        while let Some((member, count)) = next(self, &ops[taken..]) {
            // What comes next must not ask for the value.
            if ops.get(taken + count).is_some_and(|op| !starts_anew(&op.kind)) {
                break;
            }
            let (offset, memory) = (member.offset, member.memory);
            let Some(lane) = run.push(member) else { break };
            if let (Some(lane), Some(memory), false) = (lane, memory, gathers()) {
                moved.push(Moved { lane, offset, memory });
            }
            taken += count;
        }
        if run.len() < LEAST {
            return None;
        }
        run.complete();
        Some(Found { run, moved, taken })
    }

    /// The member that is read next, and how many operations that takes.
    fn decoded(&self, ops: &'e [Op]) -> Option<(Member<'e>, usize)> {
        let [first, rest @ ..] = ops else { return None };
        let path = first.path;
        let field = match &first.kind {
            OpKind::Text { place, form: TextForm::Field(field), bound: 0, .. } => {
                let offset = self.text(*place)?;
                return Some((Member { field, path, offset, memory: None, steps: Vec::new() }, 1));
            }
            OpKind::Get(Wire::Field(field)) => field,
            _ => return None,
        };
        let mut steps = Vec::new();
        for (at, op) in rest.iter().enumerate() {
            match &op.kind {
                OpKind::Convert(to) => steps.push(Step::Convert(*to)),
                OpKind::Check(Check::Bool) => steps.push(Step::Bool),
                OpKind::Store(Place::At { offset, node }) => {
                    let (offset, memory) = (*offset, Some(self.plain(*node)?));
                    return Some((Member { field, path, offset, memory, steps }, at + 2));
                }
                _ => return None,
            }
        }
        None
    }

    /// The member that is written next, and how many operations that takes.
    fn encoded(&self, ops: &'e [Op]) -> Option<(Member<'e>, usize)> {
        let [first, rest @ ..] = ops else { return None };
        let path = first.path;
        let (offset, memory) = match &first.kind {
            OpKind::Text { place, form: TextForm::Field(field), bound: 0, after: 0, .. } => {
                let offset = self.text(*place)?;
                return Some((Member { field, path, offset, memory: None, steps: Vec::new() }, 1));
            }
            OpKind::Load(Place::At { offset, node }) => (*offset, self.plain(*node)?),
            _ => return None,
        };
        let mut steps = Vec::new();
        for (at, op) in rest.iter().enumerate() {
            match &op.kind {
                OpKind::Convert(to) => steps.push(Step::Convert(*to)),
                OpKind::Put(Wire::Field(field)) => {
                    return Some((Member { field, path, offset, memory: Some(memory), steps }, at + 2));
                }
                _ => return None,
            }
        }
        None
    }

    /// Where a string is that is not a part of a message.
    fn text(&self, place: Place) -> Option<u32> {
        let Place::At { offset, node } = place else { return None };
        matches!(self.layout().node(node).kind, Kind::String { shared: false, .. }).then_some(offset)
    }

    /// The scalar at a node, if a word holds it and any is as good as another.
    fn plain(&self, node: crate::layout::NodeId) -> Option<Scalar> {
        match &self.layout().node(node).kind {
            Kind::Scalar(scalar) if scalar.size() <= 8 => Some(*scalar),
            _ => None,
        }
    }

    /// Room for the values.
    fn lanes(&mut self, run: &Run) -> Value {
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, 8 * run.width() as u32, 6);
        let slot = self.code.create_sized_stack_slot(data);
        self.code.ins().stack_addr(types::I64, slot, 0)
    }

    /// The run's address; it lives as long as the code.
    fn keep(&mut self, run: Run) -> Value {
        self.runs.push(Box::new(run));
        let last = self.runs.len() - 1;
        let run = &raw const *self.runs[last];
        self.constant(run as i64)
    }
}

/// True for an operation that does not look at the accumulator.
fn starts_anew(op: &OpKind) -> bool {
    matches!(
        op,
        OpKind::Load(_)
            | OpKind::Get(_)
            | OpKind::Const(..)
            | OpKind::Length(_)
            | OpKind::Text { .. }
            | OpKind::Octets { .. }
            | OpKind::TestField(_)
            | OpKind::Test(_)
            | OpKind::Region { .. }
            | OpKind::IfPresent { .. }
    )
}
