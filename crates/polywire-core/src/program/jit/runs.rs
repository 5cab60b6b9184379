//! Runs of fields: machine code moves their members into lanes or out of them, and a function does the fields eight at a time.

use alloc::{boxed::Box, vec::Vec};

use cranelift_codegen::ir::{InstBuilder, StackSlotData, StackSlotKind, Value, condcodes::IntCC, types};

use super::emit::Emit;
use crate::{
    layout::{Kind, Scalar, Words},
    program::{
        Check, Field, Op, OpKind, Place, TextForm, Wire,
        io::SHORT_TEXT,
        state::{
            Operator,
            run::{Member, Run, Step, functions, pays, set_initial},
        },
    },
};

/// Fields that are worth a call.
const LEAST: usize = 4;

/// A member whose value is in a lane, or of whose string something is said there.
struct Moved<'e> {
    lane: usize,
    offset: u32,
    memory: Scalar,
    /// A string's field, and where its words are.
    text: Option<(&'e Field, Words)>,
}

/// Bytes of the longest string that is compared here.
const SHORT: usize = 16;

/// The beginning of a block as a run.
struct Found<'e> {
    run: Run,
    moved: Vec<Moved<'e>>,
    /// Operations.
    taken: usize,
}

impl<'e> Emit<'e, '_> {
    /// Fields that a block begins with, if they are worth it; gives how many operations they are.
    pub(super) fn decode_fields(&mut self, ops: &'e [Op], frame: Value) -> usize {
        let Some(Found { run, moved, taken }) = self.find(ops, Self::decoded) else { return 0 };
        let lanes = self.lanes(&run);
        let run = self.keep(run);
        self.call_status(&ops[0], functions().1 as *const u8, &[self.context, run, lanes, frame]);
        for Moved { lane, offset, memory, text } in moved {
            let value = self.load(types::I64, lanes, 8 * lane as i32);
            match text {
                Some((field, words)) => self.set_left_out(value, field, (frame, offset, words)),
                None => self.store_scalar(memory, value, frame, offset as i32),
            }
        }
        self.accumulator = None;
        taken
    }

    /// The same when encoding.
    pub(super) fn encode_fields(&mut self, ops: &'e [Op], frame: Value) -> usize {
        let Some(Found { run, moved, taken }) = self.find(ops, Self::encoded) else { return 0 };
        let lanes = self.lanes(&run);
        for Moved { lane, offset, memory, text } in moved {
            let value = match text {
                Some((field, words)) => {
                    let text = field.initial_bytes().unwrap_or_default();
                    self.text_differs(text, (frame, offset, words), false)
                }
                None => self.load_scalar(memory, frame, offset as i32),
            };
            self.store(value, lanes, 8 * lane as i32);
        }
        let run = self.keep(run);
        self.call_status(&ops[0], functions().0 as *const u8, &[self.context, run, lanes, frame]);
        self.accumulator = None;
        taken
    }

    fn find(&self, ops: &'e [Op], next: impl Fn(&Self, &'e [Op]) -> Option<(Member<'e>, usize)>) -> Option<Found<'e>> {
        self.stream.filter(|_| pays())?;
        let (mut run, mut moved, mut taken) = (Run::new(), Vec::new(), 0);
        while let Some((member, count)) = next(self, &ops[taken..]) {
            // What comes next must not ask for the value.
            if ops.get(taken + count).is_some_and(|op| !starts_anew(&op.kind)) {
                break;
            }
            let (offset, memory, field) = (member.offset, member.memory, member.field);
            let text = match &ops[taken].kind {
                OpKind::Text { place, .. } => Some(self.short_words(*place, field)),
                _ => None,
            };
            let inline = text.is_some_and(|words| words.is_some());
            let Some(lane) = run.push(Member { inline, ..member }) else { break };
            match text {
                Some(None) => {}
                Some(Some(words)) => moved.push(Moved { lane, offset, memory, text: Some((field, words)) }),
                None => moved.push(Moved { lane, offset, memory, text: None }),
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
                return Some((
                    Member {
                        field,
                        path,
                        offset: self.text(*place)?,
                        memory: Scalar::U64,
                        steps: Vec::new(),
                        encoded: false,
                        inline: false,
                    },
                    1,
                ));
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
                    let (offset, memory) = (*offset, self.plain(*node)?);
                    return Some((
                        Member { field, path, offset, memory, steps, encoded: false, inline: false },
                        at + 2,
                    ));
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
                return Some((
                    Member {
                        field,
                        path,
                        offset: self.text(*place)?,
                        memory: Scalar::U64,
                        steps: Vec::new(),
                        encoded: true,
                        inline: false,
                    },
                    1,
                ));
            }
            OpKind::Load(Place::At { offset, node }) => (*offset, self.plain(*node)?),
            _ => return None,
        };
        let mut steps = Vec::new();
        for (at, op) in rest.iter().enumerate() {
            match &op.kind {
                OpKind::Convert(to) => steps.push(Step::Convert(*to)),
                OpKind::Put(Wire::Field(field)) => {
                    return Some((Member { field, path, offset, memory, steps, encoded: true, inline: false }, at + 2));
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

    /// Where the words of a string are that is compared with an initial value here.
    fn short_words(&self, place: Place, field: &Field) -> Option<Words> {
        let fixed = matches!(field.operator, Operator::Constant | Operator::Default);
        let len = field.initial_bytes().map_or(0, <[u8]>::len);
        match &self.layout().node(place.node()?).kind {
            Kind::String { words, .. } if fixed && len <= SHORT => *words,
            _ => None,
        }
    }

    /// 1 if a string is another than `text`, or, if asked, has less memory than every string that was decoded.
    fn text_differs(&mut self, text: &[u8], (frame, offset, words): (Value, u32, Words), with_room: bool) -> Value {
        let result = self.code.declare_var(types::I64);
        let one = self.constant(1);
        self.code.def_var(result, one);
        let len = self.load(types::I64, frame, (offset + words.len) as i32);
        let mut other = self.code.ins().icmp_imm_s(IntCC::NotEqual, len, text.len() as i64);
        if with_room {
            let capacity = self.load(types::I64, frame, (offset + words.capacity) as i32);
            let small = self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, capacity, SHORT_TEXT as i64);
            other = self.code.ins().bor(other, small);
        }
        let (same_len, done) = (self.code.create_block(), self.code.create_block());
        self.code.ins().brif(other, done, &[], same_len, &[]);
        self.code.switch_to_block(same_len);
        let data = self.load(types::I64, frame, (offset + words.pointer) as i32);
        // Pieces that cover all of it; the last may overlap the one before.
        let size = [8, 4, 2, 1].into_iter().find(|size| *size <= text.len()).unwrap_or(1);
        let scalar = match size {
            8 => Scalar::U64,
            4 => Scalar::U32,
            2 => Scalar::U16,
            _ => Scalar::U8,
        };
        let mut differs = self.constant(0);
        let starts = (0..text.len() / size).map(|i| i * size);
        let last = (!text.len().is_multiple_of(size)).then(|| text.len() - size);
        for start in starts.chain(last) {
            let mut word = [0; 8];
            // As the host would load it.
            let at = if cfg!(target_endian = "little") { 0 } else { 8 - size };
            word[at..at + size].copy_from_slice(&text[start..start + size]);
            let there = self.load_scalar(scalar, data, start as i32);
            let wanted = self.constant(i64::from_ne_bytes(word));
            let wrong = self.code.ins().bxor(there, wanted);
            differs = self.code.ins().bor(differs, wrong);
        }
        let differs = self.code.ins().icmp_imm_s(IntCC::NotEqual, differs, 0);
        let differs = self.code.ins().uextend(types::I64, differs);
        self.code.def_var(result, differs);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(done);
        self.code.use_var(result)
    }

    /// Sets a string to its initial value, unless the message has it or it is so already.
    fn set_left_out(&mut self, there: Value, field: &'e Field, (frame, offset, words): (Value, u32, Words)) {
        let text = field.initial_bytes().unwrap_or_default();
        let differs = self.text_differs(text, (frame, offset, words), true);
        let left_out = self.code.ins().icmp_imm_s(IntCC::Equal, there, 0);
        let left_out = self.code.ins().uextend(types::I64, left_out);
        let set = self.code.ins().band(differs, left_out);
        self.rarely(set, |emit| {
            let (field, string) = (emit.address(field), emit.code.ins().iadd_imm_s(frame, i64::from(offset)));
            emit.call(set_initial as *const u8, &[emit.context, field, string], None);
        });
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
