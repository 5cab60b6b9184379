//! Decode programs as machine code: emits a function for each block of operations, general or
//! direct. `jit/mod.rs` calls [`define`]. The code touches the input, the value and, in programs
//! with a bank, the state.

use core::mem::offset_of;

use alloc::{collections::BTreeSet, sync::Arc, vec::Vec};

use cranelift_codegen::ir::{Block as CodeBlock, InstBuilder, Value, condcodes::IntCC, types};
use cranelift_frontend::Switch;
use cranelift_jit::JITModule;
use cranelift_module::FuncId;

use super::{
    emit::{Emit, Fields, flags, function, origin_moves},
    join::stops,
    shims,
};
use crate::{
    layout::{Kind, Scalar},
    program::{
        Block, Bytes, Check, Decimal, FaultKind, Input, Op, OpKind, Order, Overflow, Place, Program, RegionDialect,
        Segment, SequenceDialect, SlotOp, Source, State, TextForm, Wire,
        interp::{HOST, bytes::filled},
        kernel::RegionForm,
        state::bytes::take_octet,
    },
};

/// The most members of which the set of those seen is kept on the stack.
const MAX_INLINE_MEMBERS: usize = 512;

/// Makes the function of one block, and returns the length of its code; none if it would be direct
/// and needs a context.
pub(super) fn define<'e>(
    module: &mut JITModule,
    program: &'e Arc<Program>,
    block: &'e Block,
    id: FuncId,
    routines: &'e [FuncId],
    direct: bool,
) -> Result<Option<usize>, alloc::string::String> {
    let fields = Fields {
        base: offset_of!(Input<'_>, base) as i32,
        position: offset_of!(Input<'_>, pos) as i32,
        end: offset_of!(Input<'_>, end) as i32,
        origin: offset_of!(Input<'_>, origin) as i32,
        depth: offset_of!(Input<'_>, depth_left) as i32,
        state: offset_of!(Input<'_>, state) as i32,
        moves: false,
        origin_moves: origin_moves(program),
    };
    function(module, program, id, routines, (fields, direct), |emit, frame| emit.decode_block(block, frame))
}

impl<'e> Emit<'e, '_> {
    pub(super) fn decode_block(&mut self, block: &'e Block, frame: Value) {
        let mut ops = block.0.iter().peekable();
        while let Some(op) = ops.next() {
            if self.has_given_up() {
                return;
            }
            match (&op.kind, ops.peek().map(|next| &next.kind)) {
                (OpKind::Slot(SlotOp::SlotState(slot)), Some(OpKind::Switch { arms, otherwise })) if self.direct => {
                    self.slot_switch(*slot, arms, otherwise, |emit, block| emit.decode_block(block, frame));
                    ops.next();
                }
                // A bit that is only branched on need not become a boolean.
                (OpKind::TakeBit, Some(OpKind::If { then, otherwise })) if self.direct => {
                    let bit = self.take_bit();
                    self.set(bit, Scalar::Bool);
                    self.choose(bit, [then, otherwise], |emit, block| emit.decode_block(block, frame));
                    ops.next();
                }
                (
                    OpKind::Bytes(bytes @ (Bytes::SlotHas { .. } | Bytes::Equal(_))),
                    Some(OpKind::If { then, otherwise }),
                ) if self.direct => {
                    let ask = |emit: &mut Self, yes, no| emit.ask_bytes(bytes, yes, no);
                    self.choose_by(ask, [then, otherwise], |emit, block| emit.decode_block(block, frame));
                    ops.next();
                }
                // The string operation checks its bytes itself.
                (
                    OpKind::Bytes(Bytes::Utf8(_)),
                    Some(OpKind::Text { form: TextForm::Held, place: Place::At { .. }, .. }),
                ) if self.direct => {}
                _ => self.decode_op(op, frame),
            }
        }
    }

    fn decode_op(&mut self, op: &'e Op, frame: Value) {
        match &op.kind {
            OpKind::Need(n) => self.decode_need(op, i64::from(*n)),
            OpKind::Align(n) => self.align(*n),
            OpKind::Run { segments, size } => {
                self.decode_run(op, segments, frame);
                self.advance(i64::from(*size));
            }
            OpKind::Load(place) => {
                if let Some((base, offset, node)) = self.place(*place, frame) {
                    let scalar = self.memory_scalar(node);
                    let value = self.load_scalar(scalar, base, offset);
                    self.set(value, scalar);
                }
            }
            OpKind::Store(place) => {
                if let Some((base, offset, _)) = self.place(*place, frame) {
                    let accumulator = self.accumulator();
                    self.store_scalar(accumulator.scalar, accumulator.value, base, offset);
                }
            }
            OpKind::Get(wire) => self.decode_get(op, wire),
            OpKind::Const(scalar, bits) => self.constant_accumulator(*scalar, *bits),
            OpKind::Convert(to) => self.convert(op, *to),
            OpKind::Check(check) => self.check(op, check),
            OpKind::Text { place, form, bound, .. } => self.decode_text(op, *place, form, *bound, frame),
            OpKind::Bulk { place, scalar, order, bound, .. } => {
                self.decode_bulk(op, *place, (*scalar, *order, *bound), frame);
            }
            OpKind::Sequence { place, source, element, bound, overflow, min_wire } => match source {
                Source::Count => self.decode_counted(op, *place, (element, *bound, overflow, *min_wire), frame),
                Source::Fixed(n) => self.decode_fixed(*place, *n, element, frame),
                Source::Dialect(dialect) => self.decode_delimited(op, *place, dialect, element, frame),
                Source::Append(_) => self.decode_by_interpreter(op, frame),
            },
            OpKind::Present { place, body } => self.decode_present(op, *place, body, frame),
            OpKind::Clear(place) => self.decode_clear(op, *place, frame),
            OpKind::Unbox { place, body } => {
                let value = match self.place(*place, frame) {
                    None => frame,
                    Some((.., node)) => {
                        let at = self.place_address(*place, frame);
                        let node = self.address(&self.layout().node(node).kind);
                        self.call_word(shims::unbox_mut as *const u8, &[node, at])
                    }
                };
                self.decode_inner(body, value);
            }
            OpKind::Select { place, case, body } => self.decode_select(op, *place, *case, body, frame),
            OpKind::Switch { arms, otherwise } => {
                let blocks: Vec<(&[i64], &'e Block)> = arms.iter().map(|(l, b)| (l.as_slice(), b)).collect();
                let (start, end) = self.arm_bits(arms.iter().map(|(_, block)| block).chain([otherwise]));
                self.switch(&blocks, otherwise, |emit, block| {
                    emit.set_bits_done(start);
                    emit.decode_block(block, frame);
                    emit.fill_bits(end, false);
                });
            }
            OpKind::If { then, otherwise } => {
                let condition = self.accumulator().value;
                self.choose(condition, [then, otherwise], |emit, block| emit.decode_block(block, frame));
            }
            OpKind::TakeBit => self.decode_bit(op),
            OpKind::KnownBits { zeros, one } => self.expect_bits(op, *zeros, *one),
            OpKind::Slot(op) => self.slot_op(*op),
            OpKind::Decimal(decimal @ Decimal::Join { .. }) => self.decimal(op, decimal),
            OpKind::PresenceMap { bits, policy, body } => self.decode_map(op, (*bits, *policy), body, frame),
            OpKind::Test(kernel) => {
                let word = self.word();
                self.call_status(op, kernel.test as *const u8, &[self.context(), word]);
                let value = self.load_word(0);
                let value = self.code.ins().icmp_imm_s(IntCC::NotEqual, value, 0);
                let value = self.code.ins().uextend(types::I64, value);
                self.set(value, Scalar::Bool);
            }
            OpKind::Action(kernel, argument) => {
                let argument = self.constant(*argument as i64);
                self.call_status(op, kernel.get as *const u8, &[self.context(), argument]);
            }
            OpKind::Region { dialect, argument, body } => self.decode_region(op, dialect, *argument, body, frame),
            OpKind::Members { dialect, arms, table } if arms.len() <= MAX_INLINE_MEMBERS => {
                self.decode_members(op, dialect, arms, table, frame);
                self.accumulator = None;
            }
            OpKind::Call { routine, place } => {
                let frame = self.place_address(*place, frame);
                self.call_routine(op, *routine, frame, shims::too_deep_input as *const u8);
            }
            OpKind::Bytes(bytes) if self.direct => self.stream_bytes(op, bytes, frame),
            OpKind::Bytes(bytes) => {
                self.decode_by_interpreter(op, frame);
                self.take_filled(filled(bytes));
            }
            OpKind::Fail(_) if self.direct => self.bail_out(),
            OpKind::SetText(..) | OpKind::Fail(_) | OpKind::Slice { .. } => self.decode_by_interpreter(op, frame),
            OpKind::Map { .. } | OpKind::Members { .. } => {
                self.decode_by_interpreter(op, frame);
                self.accumulator = None;
            }
            OpKind::Literal(_)
            | OpKind::Put(_)
            | OpKind::Decimal(Decimal::Split { .. } | Decimal::Shift { .. })
            | OpKind::Length(_)
            | OpKind::Index
            | OpKind::IfPresent { .. }
            | OpKind::Union { .. } => unreachable!("the verifier refuses encode operations here"),
        }
    }

    /// Emits a block whose accumulator is not used behind it.
    pub(super) fn decode_inner(&mut self, block: &'e Block, frame: Value) {
        self.decode_block(block, frame);
        self.accumulator = None;
    }

    /// Emits a call of the interpreter for one operation.
    pub(super) fn decode_by_interpreter(&mut self, op: &'e Op, frame: Value) {
        let (program, address) = (self.address(self.program), self.address(op));
        let accumulator = match self.accumulator {
            Some(accumulator) if accumulator.scalar != Scalar::F128 => accumulator.value,
            _ => self.constant(0),
        };
        let scalar = self.accumulator.map_or(Scalar::U64, |a| a.scalar) as i64;
        let scalar = self.constant(scalar);
        if self.direct {
            return self.interpret_decode(op, [program, address, frame, accumulator, scalar]);
        }
        self.store_word(accumulator);
        let arguments = [self.context(), program, address, frame, self.word(), scalar];
        self.call_status(op, shims::decode_op as *const u8, &arguments);
    }

    /// Ends a cold block that is reached if an operation fails: the interpreter runs the operation
    /// again and sets the fault.
    fn replay(&mut self, op: &'e Op, frame: Value) {
        if !self.direct {
            self.decode_by_interpreter(op, frame);
        }
        // The call always fails, so this is never reached; the block needs a terminator.
        self.jump_out();
    }

    /// Ends a cold block with a fault.
    pub(super) fn fault(&mut self, op: &Op, kind: FaultKind, expected: Value, got: Value) {
        if self.direct {
            self.jump_out();
            return;
        }
        self.spill();
        let kind = self.constant(kind as i64);
        self.call(shims::fail_input as *const u8, &[self.context(), kind, expected, got], Some(types::I32));
        self.name(op);
    }

    /// Emits a test: 1 if fewer than `n` bytes are left.
    pub(super) fn lacks(&mut self, n: i64) -> Value {
        let (end, position) = (self.code.use_var(self.end), self.position());
        let wanted = self.code.ins().iadd_imm_s(position, n);
        self.code.ins().icmp(IntCC::UnsignedGreaterThan, wanted, end)
    }

    fn decode_need(&mut self, op: &'e Op, n: i64) {
        if self.direct && self.wanted > 0 {
            return;
        }
        let lacks = self.lacks(n);
        if self.direct {
            return self.or_bail_out(lacks);
        }
        self.unless(lacks, |emit| {
            emit.spill();
            let n = emit.constant(n);
            emit.call(shims::truncated as *const u8, &[emit.context(), n], None);
            emit.name(op);
        });
    }

    /// Emits a run. Scalars with a check are loaded and checked before anything is stored; adjacent
    /// segments are moved in large pieces.
    fn decode_run(&mut self, op: &'e Op, segments: &'e [Segment], frame: Value) {
        let here = self.here();
        let mut wrong: Option<Value> = None;
        let mut checked = Vec::new();
        for segment in segments.iter().filter(|s| s.check.is_some()) {
            for i in 0..segment.count {
                let at = (segment.at + i * segment.wire.size() as u32) as i32;
                let value = self.load_scalar(segment.wire, here, at);
                let value = self.reorder(value, segment.wire, segment.order);
                let (value, bad) = self.segment_check(segment, value);
                wrong = match (wrong, bad) {
                    (Some(a), Some(b)) => Some(self.code.ins().bor(a, b)),
                    (a, b) => a.or(b),
                };
                if let Place::At { offset, .. } = segment.place {
                    checked.push((segment.memory, value, (offset + i * segment.memory.size() as u32) as i32));
                }
            }
        }
        if let Some(wrong) = wrong {
            self.unless(wrong, |emit| emit.replay(op, frame));
        }
        for (memory, value, offset) in checked {
            self.store_scalar(memory, value, frame, offset);
        }
        self.decode_plain(segments, here, frame);
    }

    /// Returns the value, and a test that is 1 if it must be refused.
    fn segment_check(&mut self, segment: &Segment, value: Value) -> (Value, Option<Value>) {
        match &segment.check {
            Some(Check::Bool) => {
                let bad = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, value, 1);
                (value, Some(bad))
            }
            Some(Check::Enum { node, otherwise }) => {
                let Kind::Enum(literals) = &self.layout().node(*node).kind else {
                    unreachable!("the verifier admits enums only")
                };
                let unknown = self.no_literal(value, literals);
                match otherwise {
                    None => (value, Some(unknown)),
                    Some(literal) => {
                        let literal = self.constant(i64::from(*literal));
                        (self.code.ins().select(unknown, literal, value), None)
                    }
                }
            }
            Some(check) => {
                let bad = self.check_word(check, value, segment.wire);
                let bad = self.code.ins().ireduce(types::I8, bad);
                (self.load_word(0), Some(bad))
            }
            None => (value, None),
        }
    }

    fn decode_plain(&mut self, segments: &[Segment], here: Value, frame: Value) {
        let mut plain = segments.iter().filter(|s| s.check.is_none()).peekable();
        while let Some(segment) = plain.next() {
            let Place::At { offset, .. } = segment.place else { continue };
            if !as_is(segment) {
                for i in 0..segment.count as i32 {
                    let value =
                        self.load_scalar(segment.wire, here, segment.at as i32 + i * segment.wire.size() as i32);
                    let value = self.reorder(value, segment.wire, segment.order);
                    let value = self.widen(value, segment.wire, segment.memory);
                    self.store_scalar(segment.memory, value, frame, offset as i32 + i * segment.memory.size() as i32);
                }
                continue;
            }
            let mut len = segment.size();
            while let Some(next) = plain.peek().filter(|next| follows(segment, len, next)) {
                len += next.size();
                plain.next();
            }
            if len > 256 {
                let from = self.code.ins().iadd_imm_s(here, i64::from(segment.at));
                let to = self.code.ins().iadd_imm_s(frame, i64::from(offset));
                let len = self.constant(i64::from(len));
                self.call(shims::copy as *const u8, &[from, to, len], None);
            } else {
                self.copy((here, segment.at as i32), (frame, offset as i32), len);
            }
        }
    }

    /// Emits a call of the interpreter for a check: 1 if it fails. The checked value is in the
    /// word.
    pub(super) fn check_word(&mut self, check: &Check, value: Value, scalar: Scalar) -> Value {
        let (program, address, word) = (self.address(self.program), self.address(check), self.word());
        self.store_word(value);
        let scalar = self.constant(scalar as i64);
        self.call_word(shims::check_word as *const u8, &[program, address, word, scalar])
    }

    fn decode_get(&mut self, op: &'e Op, wire: &'e Wire) {
        match wire {
            Wire::Fixed { scalar, order } => {
                let here = self.here();
                let value = self.load_scalar(*scalar, here, 0);
                let value = self.reorder(value, *scalar, *order);
                self.advance(scalar.size() as i64);
                self.set(value, *scalar);
            }
            Wire::Kernel(kernel) if kernel.scalar == Scalar::F128 => {
                let (word, address) = (self.word(), self.address(*kernel));
                self.call_status(op, shims::get_wide as *const u8, &[self.context(), address, word]);
                let (low, high) = (self.load_word(0), self.load_word(8));
                let value = self.code.ins().iconcat(low, high);
                self.set(value, Scalar::F128);
            }
            Wire::Kernel(kernel) if kernel.form.is_some() => self.get_number(op, kernel),
            Wire::Kernel(kernel) => {
                let word = self.word();
                self.call_status(op, kernel.get as *const u8, &[self.context(), word]);
                let mut value = self.load_word(0);
                if kernel.scalar == Scalar::Bool {
                    let truth = self.code.ins().icmp_imm_s(IntCC::NotEqual, value, 0);
                    value = self.code.ins().uextend(types::I64, truth);
                }
                self.set(value, kernel.scalar);
            }
            Wire::Inline(..) => unreachable!("the verifier refuses encode operations here"),
            Wire::StopBit(form) => self.get_stop_bit(op, form),
            Wire::Octet => {
                let word = self.word();
                self.call_status(op, take_octet as *const u8, &[self.context(), word]);
                let value = self.load_word(0);
                self.set(value, Scalar::U8);
            }
            Wire::Symbol(kernel, table) => {
                let (word, table) = (self.word(), self.address(&**table));
                self.call_status(op, kernel.get as *const u8, &[self.context(), table, word]);
                let value = self.load_word(0);
                self.set(value, kernel.scalar);
            }
        }
    }

    fn decode_text(&mut self, op: &'e Op, place: Place, form: &'e TextForm, bound: u32, frame: Value) {
        let target = self.place(place, frame).map(|(base, offset, node)| {
            let words = match &self.layout().node(node).kind {
                Kind::String { words, .. } => *words,
                _ => None,
            };
            (base, offset, words)
        });
        let slow = |emit: &mut Self| emit.decode_by_interpreter(op, frame);
        match (form, target) {
            (TextForm::CountedNul { order }, Some((base, offset, Some(words)))) => {
                let done = self.code.create_block();
                let slow_block = self.cold();
                // The longest short string (16), its count (4), and the terminator (1).
                let lacks = self.lacks(21);
                self.or_else(lacks, slow_block);
                let here = self.here();
                let count = self.load_scalar(Scalar::U32, here, 0);
                let count = self.reorder(count, Scalar::U32, *order);
                let len = self.code.ins().iadd_imm_s(count, -1);
                let longest = if bound == 0 { 16 } else { i64::from(bound.min(16)) };
                let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, longest);
                let capacity = self.load(types::I64, base, offset + words.capacity as i32);
                let small = self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, capacity, 16);
                let unfit = self.code.ins().bor(long, small);
                self.or_else(unfit, slow_block);
                let bytes = self.load(types::I8X16, here, 4);
                let high = self.code.ins().vhigh_bits(types::I32, bytes);
                let one = self.code.ins().iconst(types::I32, 1);
                let mask = self.code.ins().ishl(one, len);
                let mask = self.code.ins().iadd_imm_s(mask, -1);
                let high = self.code.ins().band(high, mask);
                let last = self.code.ins().iadd(here, len);
                let nul = self.code.ins().uload8(types::I32, flags(), last, 4);
                let odd = self.code.ins().bor(high, nul);
                self.or_else(odd, slow_block);
                let data = self.load(types::I64, base, offset + words.pointer as i32);
                self.store(bytes, data, 0);
                self.store(len, base, offset + words.len as i32);
                self.advance_by(count, 4);
                self.jump_and_begin(done, slow_block);
                match self.direct {
                    true => self.decode_long((base, offset), *order, bound),
                    false => slow(self),
                }
                self.jump_and_begin(done, done);
            }
            // The arms below require an owned string.
            (TextForm::Held, _) if self.direct => self.set_string(op, place, bound, frame),
            _ if self.is_shared(place) => slow(self),
            (TextForm::Kernel(kernel), _) if bound == 0 => {
                let string = match place {
                    Place::Sink => self.constant(0),
                    place => self.place_address(place, frame),
                };
                let kernel = self.address(*kernel);
                self.call_status(op, shims::get_text as *const u8, &[self.context(), kernel, string]);
            }
            _ => slow(self),
        }
    }

    /// In direct code: emits a longer string. Bails out unless it fits into the capacity.
    fn decode_long(&mut self, (base, offset): (Value, i32), order: Order, bound: u32) {
        let longest = if bound == 0 { u32::MAX } else { bound };
        // Alignment may have moved the position past the end.
        let lacks = self.lacks(0);
        self.or_bail_out(lacks);
        let (end, position) = (self.code.use_var(self.end), self.position());
        let (here, left) = (self.here(), self.code.ins().isub(end, position));
        let string = self.code.ins().iadd_imm_s(base, i64::from(offset));
        let (order, longest) = (self.constant((order == Order::Little).into()), self.constant(longest.into()));
        let arguments = [string, here, left, order, longest];
        let taken = self.call_or_bail_out(shims::get_counted_nul as *const u8, &arguments);
        self.advance_by(taken, 0);
    }

    /// Bytes from one element to the next.
    fn stride(&self, place: Place) -> i64 {
        let element = match place.node().map(|n| &self.layout().node(n).kind) {
            Some(Kind::Sequence(sequence)) => sequence.element,
            Some(Kind::Array { element, .. }) => *element,
            _ => return 0,
        };
        i64::from(self.layout().node(element).size)
    }

    fn decode_bulk(&mut self, op: &'e Op, place: Place, (scalar, order, bound): (Scalar, Order, u32), frame: Value) {
        let words = self.sequence_node(place).and_then(|s| s.words);
        let (Some(words), Some((base, offset, _))) = (words, self.place(place, frame)) else {
            return self.decode_by_interpreter(op, frame);
        };
        if scalar == Scalar::Bool || (order != HOST && scalar.size() > 1) {
            return self.decode_by_interpreter(op, frame);
        }
        let (done, slow) = (self.code.create_block(), self.cold());
        let count = self.accumulator().value;
        let capacity = self.load(types::I64, base, offset + words.capacity as i32);
        let grows = self.code.ins().icmp(IntCC::UnsignedGreaterThan, count, capacity);
        self.or_else(grows, slow);
        if bound > 0 {
            let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, count, i64::from(bound));
            self.or_else(long, slow);
        }
        // A capacity is at most isize::MAX bytes, so this does not wrap.
        let bytes = self.code.ins().imul_imm_s(count, scalar.size() as i64);
        let (end, position) = (self.code.use_var(self.end), self.position());
        let after = self.code.ins().iadd(position, bytes);
        let short = self.code.ins().icmp(IntCC::UnsignedGreaterThan, after, end);
        self.or_else(short, slow);
        // Without a bank, direct code gets no message with more bytes than the limit has elements.
        if !self.direct || self.stream.is_some() {
            let many = self.beyond_limit(IntCC::UnsignedGreaterThan, count);
            self.or_else(many, slow);
        }
        let here = self.here();
        let data = self.load(types::I64, base, offset + words.pointer as i32);
        self.call(shims::copy as *const u8, &[here, data, bytes], None);
        self.store(count, base, offset + words.len as i32);
        self.code.def_var(self.position, after);
        self.jump_and_begin(done, slow);
        match self.direct {
            true => self.jump_out(),
            false => {
                self.decode_by_interpreter(op, frame);
                self.code.ins().jump(done, &[]);
            }
        }
        self.code.switch_to_block(done);
    }

    fn decode_counted(
        &mut self,
        op: &'e Op,
        place: Place,
        (element, bound, overflow, min_wire): (&'e Block, u32, &Overflow, u32),
        frame: Value,
    ) {
        let count = self.accumulator().value;
        self.accumulator = None;
        let data = self.code.declare_var(types::I64);
        let resize = |emit: &mut Self| {
            if emit.direct {
                let start = emit.resize(op, place, count, frame);
                emit.code.def_var(data, start);
                return;
            }
            let (address, program) = (emit.address(op), emit.address(emit.program));
            let (at, word) = (emit.place_address(place, frame), emit.word());
            let arguments = [emit.context(), program, address, at, count, word];
            emit.call_status(op, shims::sequence_begin as *const u8, &arguments);
            let start = emit.load_word(0);
            emit.code.def_var(data, start);
        };
        match (self.sequence_node(place).and_then(|s| s.words), self.place(place, frame)) {
            (Some(words), Some((base, offset, _))) if bound == 0 || *overflow == Overflow::Refuse => {
                // The sequence has this many elements already, so it need not grow. An impossible
                // count takes the slow path and gets the same error.
                let len = self.load(types::I64, base, offset + words.len as i32);
                let start = self.load(types::I64, base, offset + words.pointer as i32);
                self.code.def_var(data, start);
                let differs = self.code.ins().icmp(IntCC::NotEqual, len, count);
                let many = self.beyond_limit(IntCC::UnsignedGreaterThan, count);
                // Elements without bytes on the wire are charged if there are more of them than
                // bytes left.
                let bytes = self.code.ins().imul_imm_s(count, i64::from(min_wire.max(1)));
                let (end, position) = (self.code.use_var(self.end), self.position());
                let after = self.code.ins().iadd(position, bytes);
                let short = self.code.ins().icmp(IntCC::UnsignedGreaterThan, after, end);
                let unfit = self.code.ins().bor(differs, many);
                let mut unfit = self.code.ins().bor(unfit, short);
                if bound > 0 {
                    let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, count, i64::from(bound));
                    unfit = self.code.ins().bor(unfit, long);
                }
                self.rarely(unfit, resize);
            }
            _ => {
                // Direct code does not cut a sequence to its bound.
                self.give_up();
                resize(self);
            }
        }
        let stride = self.stride(place);
        self.repeat(count, |emit, i| {
            let start = emit.code.use_var(data);
            let distance = emit.code.ins().imul_imm_s(i, stride);
            let at = emit.code.ins().iadd(start, distance);
            emit.decode_inner(element, at);
        });
        if bound > 0 && *overflow != Overflow::Refuse && place != Place::Sink {
            self.sequence_end(op, place, count, frame);
        }
    }

    /// In direct code: resizes a sequence, and returns its first element.
    fn resize(&mut self, op: &'e Op, place: Place, count: Value, frame: Value) -> Value {
        let (state, program, address) = (self.state(), self.address(self.program), self.address(op));
        let (end, position) = (self.code.use_var(self.end), self.position());
        let (here, left) = (self.here(), self.code.ins().isub(end, position));
        let at = self.place_address(place, frame);
        let arguments = [state, program, address, at, count, here, left];
        self.call_or_bail_out(shims::resize as *const u8, &arguments)
    }

    /// Emits the comparison of a number of elements, or an index, with the limit.
    fn beyond_limit(&mut self, condition: IntCC, count: Value) -> Value {
        let limits = match self.direct {
            true => self.load(types::I64, self.state(), offset_of!(State, limits_at) as i32),
            false => self.load(types::I64, self.context(), offset_of!(Input<'_>, limits) as i32),
        };
        let limit = self.code.ins().uload32(flags(), limits, offset_of!(crate::program::Limits, elements) as i32);
        self.code.ins().icmp(condition, count, limit)
    }

    /// Cuts the sequence to those of `count` elements that its bound keeps.
    fn sequence_end(&mut self, op: &'e Op, place: Place, count: Value, frame: Value) {
        let (address, program) = (self.address(op), self.address(self.program));
        let at = self.place_address(place, frame);
        self.call_status(op, shims::sequence_end as *const u8, &[self.context(), program, address, at, count]);
    }

    fn decode_fixed(&mut self, place: Place, count: u32, element: &'e Block, frame: Value) {
        let (data, stride) = (self.place_address(place, frame), self.stride(place));
        let count = self.constant(i64::from(count));
        self.accumulator = None;
        self.repeat(count, |emit, i| {
            let distance = emit.code.ins().imul_imm_s(i, stride);
            let at = emit.code.ins().iadd(data, distance);
            emit.decode_inner(element, at);
        });
    }

    fn decode_delimited(
        &mut self,
        op: &'e Op,
        place: Place,
        dialect: &'static SequenceDialect,
        element: &'e Block,
        frame: Value,
    ) {
        self.accumulator = None;
        let slot = self.slot(3);
        let cursor = self.slot_address(slot);
        self.call_status(op, dialect.begin as *const u8, &[self.context(), cursor]);
        let (head, done) = (self.code.create_block(), self.code.create_block());
        let index = self.code.append_block_param(head, types::I64);
        let zero = self.constant(0);
        self.jump(head, &[zero]);
        self.code.switch_to_block(head);
        let (cursor, word) = (self.slot_address(slot), self.word());
        self.call_status(op, dialect.next as *const u8, &[self.context(), cursor, word]);
        let more = self.load_word(0);
        let inside = self.code.create_block();
        self.code.ins().brif(more, inside, &[], done, &[]);
        self.code.switch_to_block(inside);
        let at = self.delimited_element(op, place, index, frame);
        self.element(index, |emit| emit.decode_inner(element, at));
        let next = self.code.ins().iadd_imm_s(index, 1);
        self.jump(head, &[next]);
        self.code.switch_to_block(done);
        self.sequence_end(op, place, index, frame);
        self.release(slot);
    }

    /// The address of an element that the dialect has announced. Grows the sequence if necessary.
    fn delimited_element(&mut self, op: &'e Op, place: Place, index: Value, frame: Value) -> Value {
        let admit = |emit: &mut Self| {
            let (address, program) = (emit.address(op), emit.address(emit.program));
            let (at, word) = (emit.place_address(place, frame), emit.word());
            let arguments = [emit.context(), program, address, at, index, word];
            emit.call_status(op, shims::element_at as *const u8, &arguments);
            emit.load_word(0)
        };
        let OpKind::Sequence { bound: 0, .. } = op.kind else { return admit(self) };
        let words = self.sequence_node(place).and_then(|s| s.words);
        let (Some(words), Some((base, offset, _))) = (words, self.place(place, frame)) else { return admit(self) };
        let result = self.code.declare_var(types::I64);
        let len = self.load(types::I64, base, offset + words.len as i32);
        let start = self.load(types::I64, base, offset + words.pointer as i32);
        let stride = self.stride(place);
        let distance = self.code.ins().imul_imm_s(index, stride);
        let at = self.code.ins().iadd(start, distance);
        self.code.def_var(result, at);
        let missing = self.code.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, index, len);
        let many = self.beyond_limit(IntCC::UnsignedGreaterThanOrEqual, index);
        let missing = self.code.ins().bor(missing, many);
        self.rarely(missing, |emit| {
            let at = admit(emit);
            emit.code.def_var(result, at);
        });
        self.code.use_var(result)
    }

    fn decode_present(&mut self, op: &'e Op, place: Place, body: &'e Block, frame: Value) {
        let value = match self.place(place, frame) {
            None => frame,
            Some((base, offset, node)) if self.direct => return self.make_present((base, offset, node), body),
            Some((.., node)) => {
                let (program, at, word) = (self.address(self.program), self.place_address(place, frame), self.word());
                let node = self.constant(i64::from(node.0));
                // The fault needs the position.
                self.spill();
                self.call_in_place(op, shims::set_some as *const u8, &[self.context(), program, node, at, word]);
                self.load_word(0)
            }
        };
        self.decode_inner(body, value);
    }

    /// In direct code: makes an optional present and decodes its value. The flag is set last, so
    /// that after a bail-out before the value is stored, uninitialised memory is not taken for a
    /// value.
    fn make_present(&mut self, (base, offset, node): (Value, i32, crate::layout::NodeId), body: &'e Block) {
        let Kind::Optional(optional) = &self.layout().node(node).kind else {
            unreachable!("the verifier admits optionals only")
        };
        let make = |emit: &mut Self| {
            let (state, program) = (emit.state(), emit.address(emit.program));
            let at = emit.code.ins().iadd_imm_s(base, i64::from(offset));
            let node = emit.constant(i64::from(node.0));
            emit.call_or_bail_out(shims::set_some_specialised as *const u8, &[state, program, node, at])
        };
        let Some(words) = optional.flag else {
            let value = make(self);
            return self.decode_inner(body, value);
        };
        let (flag, payload) = (words.flag as i32, words.payload as i32);
        // A number need not be initialised first: it is written before the flag is set.
        if !matches!(self.layout().node(optional.inner).kind, Kind::Scalar(_)) {
            let state = self.load_scalar(Scalar::U8, base, offset + flag);
            let never = self.code.ins().icmp_imm_s(IntCC::Equal, state, 0);
            self.rarely(never, |emit| _ = make(emit));
        }
        let value = self.code.ins().iadd_imm_s(base, i64::from(offset + payload));
        self.decode_inner(body, value);
        let present = self.constant(1);
        self.store_scalar(Scalar::U8, present, base, offset + flag);
    }

    fn decode_clear(&mut self, op: &'e Op, place: Place, frame: Value) {
        let Some((base, offset, node)) = self.place(place, frame) else { return };
        match &self.layout().node(node).kind {
            Kind::String { words: Some(words), .. } => {
                let zero = self.constant(0);
                self.store(zero, base, offset + words.len as i32);
            }
            Kind::Optional(optional) if optional.flag.is_some() => {
                let flag = offset + optional.flag.map_or(0, |f| f.flag) as i32;
                let state = self.load_scalar(Scalar::U8, base, flag);
                // Present (1) becomes absent but initialised (2); other states do not change.
                let present = self.code.ins().icmp_imm_s(IntCC::Equal, state, 1);
                let kept = self.constant(2);
                let state = self.code.ins().select(present, kept, state);
                self.store_scalar(Scalar::U8, state, base, flag);
            }
            kind @ Kind::Optional(_) if self.direct => {
                let (kind, at) = (self.address(kind), self.code.ins().iadd_imm_s(base, i64::from(offset)));
                self.call(shims::set_none as *const u8, &[kind, at], None);
            }
            _ => self.decode_by_interpreter(op, frame),
        }
    }

    fn decode_select(&mut self, op: &'e Op, place: Place, case: Option<u32>, body: &'e Block, frame: Value) {
        let value = match self.place(place, frame) {
            None => frame,
            Some((.., node)) => {
                let discriminator = self.accumulator().value;
                let case = self.constant(case.map_or(-1, i64::from));
                let (program, at, word) = (self.address(self.program), self.place_address(place, frame), self.word());
                let node = self.constant(i64::from(node.0));
                if self.direct {
                    let arguments = [self.state(), program, node, at, discriminator, case];
                    let value = self.call_or_bail_out(shims::select_specialised as *const u8, &arguments);
                    return self.decode_inner(body, value);
                }
                let arguments = [self.context(), program, node, at, discriminator, case, word];
                self.spill();
                self.call_in_place(op, shims::select as *const u8, &arguments);
                self.load_word(0)
            }
        };
        self.decode_inner(body, value);
    }

    fn decode_region(
        &mut self,
        op: &'e Op,
        dialect: &'static RegionDialect,
        argument: u64,
        body: &'e Block,
        frame: Value,
    ) {
        if dialect.form == Some(RegionForm::Rest) {
            self.decode_inner(body, frame);
            let end = self.code.use_var(self.end);
            self.code.def_var(self.position, end);
            return;
        }
        if let Some(RegionForm::Length { tag }) = dialect.form {
            let slot = self.slot(3);
            let region = self.begin_in_region(op, dialect, (argument, tag), slot);
            self.release(slot);
            self.decode_inner(body, frame);
            return self.end_in_region(region);
        }
        if let (Some(RegionForm::Word { order }), 0) = (dialect.form, argument) {
            return self.get_word_region(op, (dialect, order), |emit| emit.decode_inner(body, frame));
        }
        self.bracketed(op, [dialect.get_begin as *const u8, dialect.get_end as *const u8], argument, |emit| {
            emit.decode_inner(body, frame);
        });
    }

    /// Emits a switch to the block that has the accumulator among its labels.
    pub(super) fn switch(
        &mut self,
        arms: &[(&[i64], &'e Block)],
        otherwise: &'e Block,
        mut fill: impl FnMut(&mut Self, &'e Block),
    ) {
        let value = self.accumulator().value;
        let mut join = self.begin_join();
        let mut switch = Switch::new();
        let (done, none) = (self.code.create_block(), self.code.create_block());
        let blocks: Vec<CodeBlock> = arms.iter().map(|_| self.code.create_block()).collect();
        let unsigned = self.accumulator().scalar == Scalar::U64;
        let mut known = BTreeSet::new();
        for ((labels, _), block) in arms.iter().zip(&blocks) {
            // An unsigned accumulator has no negative labels: they would match large numbers. If a
            // label occurs twice, the first arm has it.
            for label in labels.iter().filter(|label| (!unsigned || **label >= 0) && known.insert(**label)) {
                switch.set_entry(u128::from(*label as u64), *block);
            }
        }
        switch.emit(&mut self.code, value, none);
        for (block, body) in blocks.iter().zip(arms.iter().map(|(_, b)| *b)).chain([(&none, otherwise)]) {
            self.code.switch_to_block(*block);
            self.begin_arm(&join);
            fill(self, body);
            self.end_arm(&mut join, stops(body));
            self.code.ins().jump(done, &[]);
        }
        self.code.switch_to_block(done);
        self.finish_join(join);
    }

    /// Emits a branch. Behind it the accumulator is the one before it.
    pub(super) fn branch(&mut self, condition: Value, then: impl FnOnce(&mut Self), otherwise: impl FnOnce(&mut Self)) {
        let (accumulator, mut join) = (self.accumulator, self.begin_join());
        let (yes, no, done) = (self.code.create_block(), self.code.create_block(), self.code.create_block());
        self.code.ins().brif(condition, yes, &[], no, &[]);
        self.code.switch_to_block(yes);
        then(self);
        self.accumulator = None;
        self.end_arm(&mut join, false);
        self.code.ins().jump(done, &[]);
        self.begin_arm(&join);
        self.code.switch_to_block(no);
        otherwise(self);
        self.accumulator = None;
        self.end_arm(&mut join, false);
        self.jump_and_begin(done, done);
        self.finish_join(join);
        self.accumulator = accumulator;
    }
}

/// True if the bytes of a segment are the same on the wire and in memory.
pub(super) fn as_is(segment: &Segment) -> bool {
    segment.wire == segment.memory && (segment.order == HOST || segment.wire.size() == 1)
}

/// True if `next` lies directly behind the `len` bytes from `first` on, on the wire and in memory.
pub(super) fn follows(first: &Segment, len: u32, next: &Segment) -> bool {
    let (Place::At { offset, .. }, Place::At { offset: next_offset, .. }) = (first.place, next.place) else {
        return false;
    };
    as_is(next) && next.at == first.at + len && next_offset == offset + len
}
