//! Decode programs as machine code: emits the operations that read the message and store values, in
//! general and direct functions. `jit/ops.rs` calls it. The code touches the input, the value and,
//! in programs with a bank, the state.

use core::mem::offset_of;

use alloc::vec::Vec;

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC, types};

use super::{
    emit::{Emit, flags},
    shims,
};
use crate::{
    layout::{Kind, Scalar, SequenceNode, Words},
    program::{
        Block, Check, Input, Op, OpKind, Order, Overflow, Place, RegionDialect, Segment, SequenceDialect, State,
        TextForm, Wire, interp::HOST, kernel::RegionForm, state::bytes::take_octet,
    },
};

impl<'e> Emit<'e, '_> {
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

    /// Emits a test: 1 if fewer than `n` bytes are left.
    pub(super) fn lacks(&mut self, n: i64) -> Value {
        let (end, position) = (self.code.use_var(self.end), self.position());
        let wanted = self.code.ins().iadd_imm_s(position, n);
        self.code.ins().icmp(IntCC::UnsignedGreaterThan, wanted, end)
    }

    pub(super) fn decode_need(&mut self, op: &'e Op, n: i64) {
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
    pub(super) fn decode_run(&mut self, op: &'e Op, segments: &'e [Segment], frame: Value) {
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

    pub(super) fn decode_get(&mut self, op: &'e Op, wire: &'e Wire) {
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

    pub(super) fn decode_text(&mut self, op: &'e Op, place: Place, form: &'e TextForm, bound: u32, frame: Value) {
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
                let done = self.new_block();
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

    pub(super) fn decode_bulk(
        &mut self,
        op: &'e Op,
        place: Place,
        (scalar, order, bound): (Scalar, Order, u32),
        frame: Value,
    ) {
        let words = self.sequence_node(place).and_then(|s| s.words);
        let (Some(words), Some((base, offset, _))) = (words, self.place(place, frame)) else {
            return self.decode_by_interpreter(op, frame);
        };
        if scalar == Scalar::Bool || (order != HOST && scalar.size() > 1) {
            return self.decode_by_interpreter(op, frame);
        }
        let (done, slow) = (self.new_block(), self.cold());
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

    pub(super) fn decode_counted(
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
        let elements = (self.code.use_var(data), self.stride(place));
        self.repeat(count, elements, |emit, at| emit.inner(element, at));
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

    pub(super) fn decode_fixed(&mut self, place: Place, count: u32, element: &'e Block, frame: Value) {
        let (data, stride) = (self.place_address(place, frame), self.stride(place));
        let count = self.constant(i64::from(count));
        self.accumulator = None;
        self.repeat(count, (data, stride), |emit, at| emit.inner(element, at));
    }

    pub(super) fn decode_delimited(
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
        let (head, done) = (self.new_block(), self.new_block());
        let index = self.code.append_block_param(head, types::I64);
        let zero = self.constant(0);
        self.jump(head, &[zero]);
        self.code.switch_to_block(head);
        let (cursor, word) = (self.slot_address(slot), self.word());
        self.call_status(op, dialect.next as *const u8, &[self.context(), cursor, word]);
        let more = self.load_word(0);
        let inside = self.new_block();
        self.code.ins().brif(more, inside, &[], done, &[]);
        self.code.switch_to_block(inside);
        let at = self.delimited_element(op, place, index, frame);
        self.element(index, |emit| emit.inner(element, at));
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

    pub(super) fn decode_present(&mut self, op: &'e Op, place: Place, body: &'e Block, frame: Value) {
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
        self.inner(body, value);
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
            return self.inner(body, value);
        };
        let (flag, payload) = (words.flag as i32, words.payload as i32);
        // A number need not be initialised first: it is written before the flag is set.
        if !matches!(self.layout().node(optional.inner).kind, Kind::Scalar(_)) {
            let state = self.load_scalar(Scalar::U8, base, offset + flag);
            let never = self.code.ins().icmp_imm_s(IntCC::Equal, state, 0);
            self.rarely(never, |emit| _ = make(emit));
        }
        let value = self.code.ins().iadd_imm_s(base, i64::from(offset + payload));
        self.inner(body, value);
        let present = self.constant(1);
        self.store_scalar(Scalar::U8, present, base, offset + flag);
    }

    pub(super) fn decode_clear(&mut self, op: &'e Op, place: Place, frame: Value) {
        let Some((base, offset, node)) = self.place(place, frame) else { return };
        let empty = |emit: &mut Self, words: &Words| {
            let zero = emit.constant(0);
            emit.store(zero, base, offset + words.len as i32);
        };
        match &self.layout().node(node).kind {
            Kind::String { words: Some(words), .. } => empty(self, words),
            // Numbers need no drop.
            Kind::Sequence(SequenceNode { element, words: Some(words), .. })
                if matches!(self.layout().node(*element).kind, Kind::Scalar(_)) =>
            {
                empty(self, words);
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

    pub(super) fn decode_select(&mut self, op: &'e Op, place: Place, case: Option<u32>, body: &'e Block, frame: Value) {
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
                    return self.inner(body, value);
                }
                let arguments = [self.context(), program, node, at, discriminator, case, word];
                self.spill();
                self.call_in_place(op, shims::select as *const u8, &arguments);
                self.load_word(0)
            }
        };
        self.inner(body, value);
    }

    pub(super) fn decode_region(
        &mut self,
        op: &'e Op,
        dialect: &'static RegionDialect,
        argument: u64,
        body: &'e Block,
        frame: Value,
    ) {
        if dialect.form == Some(RegionForm::Rest) {
            self.inner(body, frame);
            let end = self.code.use_var(self.end);
            self.code.def_var(self.position, end);
            return;
        }
        if let Some(RegionForm::Length { tag }) = dialect.form {
            let slot = self.slot(3);
            let region = self.begin_in_region(op, dialect, (argument, tag), slot);
            self.release(slot);
            self.inner(body, frame);
            return self.end_in_region(region);
        }
        if let (Some(RegionForm::Word { order }), 0) = (dialect.form, argument) {
            return self.get_word_region(op, (dialect, order), body, frame);
        }
        self.bracketed(op, [dialect.get_begin as *const u8, dialect.get_end as *const u8], argument, (body, frame));
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
