//! Encode programs as machine code: emits the operations that load values and write the message, in
//! general and direct functions. `jit/ops.rs` calls it. The code touches the output, the value and,
//! in programs with a bank, the state.

use core::mem::offset_of;

use alloc::vec::Vec;

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC, types};

use super::{
    decode::{as_is, follows},
    emit::{Emit, flags},
    join::stops,
    shims::{self, Selection},
};
use crate::{
    layout::{Kind, Scalar},
    program::{
        Block, InlineKernel, Op, Order, Place, RegionDialect, Segment, TextForm, Wire,
        kernel::{RegionForm, Room, ShortText},
    },
};

/// Extra room behind each reservation, so that a wide store may write past the bytes that count.
pub(crate) const SLACK: usize = 16;

/// The longest string that is copied in line.
const SHORT: i64 = 16;

/// The most bytes of a string, or of a sequence of numbers, that direct code copies.
const LONG: i64 = 1 << 16;

/// The smallest size of a page. A load within one page that holds a readable byte cannot fault.
pub(super) const PAGE: i64 = 4096;

/// The bytes in front of a string that is written in line, and behind it.
#[derive(Clone, Copy)]
enum TextHead {
    /// A count of 32 bits in front, and a NUL behind, which is counted.
    Counted(Order),
    Short(ShortText),
}

impl TextHead {
    /// The number of bytes in front.
    fn len(self) -> i32 {
        match self {
            TextHead::Counted(_) => 4,
            TextHead::Short(short) => short.head_len.into(),
        }
    }

    /// The number of bytes in front and behind.
    fn around(self) -> i64 {
        i64::from(self.len()) + i64::from(matches!(self, TextHead::Counted(_)))
    }

    /// The longest string that this head can describe.
    fn longest(self) -> i64 {
        match self {
            TextHead::Counted(_) => LONG,
            TextHead::Short(short) => i64::from(short.below) - 1,
        }
    }
}

impl<'e> Emit<'e, '_> {
    /// Emits a call of the interpreter for one operation that does not read the accumulator.
    pub(super) fn encode_by_interpreter(&mut self, op: &'e Op, frame: Value) {
        let (program, address) = (self.address(self.program), self.address(op));
        let index = match self.index {
            Some(index) => index,
            None => self.constant(0),
        };
        if self.direct {
            return self.interpret_encode(op, [program, address, frame, index]);
        }
        let arguments = [self.context(), program, address, frame, index, self.word()];
        self.call_status(op, shims::encode_op as *const u8, &arguments);
    }

    /// Reserves `n` bytes.
    pub(super) fn room(&mut self, op: &'e Op, n: i64) {
        if self.direct {
            return;
        }
        let (capacity, position) = (self.code.use_var(self.end), self.position());
        let wanted = self.code.ins().iadd_imm_s(position, n);
        let full = self.code.ins().icmp(IntCC::UnsignedGreaterThan, wanted, capacity);
        self.rarely(full, |emit| {
            let n = emit.constant(n);
            emit.call_status(op, shims::grow as *const u8, &[emit.context(), n]);
        });
    }

    /// In direct code: bails out unless there is still room for all bytes of known size.
    fn room_for_all(&mut self) {
        if self.direct {
            let (capacity, position) = (self.code.use_var(self.end), self.position());
            let wanted = self.code.ins().iadd_imm_s(position, self.wanted);
            let full = self.code.ins().icmp(IntCC::UnsignedGreaterThan, wanted, capacity);
            self.or_bail_out(full);
        }
    }

    pub(super) fn encode_run(&mut self, segments: &[Segment], size: u32, frame: Value) {
        let here = self.here();
        let mut end = 0;
        let mut rest = segments.iter().peekable();
        while let Some(segment) = rest.next() {
            let Place::At { offset, .. } = segment.place else { continue };
            self.zeros(here, end, segment.at);
            if !as_is(segment) {
                for i in 0..segment.count as i32 {
                    let memory = offset as i32 + i * segment.memory.size() as i32;
                    let value = self.load_scalar(segment.memory, frame, memory);
                    let value = self.reorder(value, segment.wire, segment.order);
                    self.store_scalar(segment.wire, value, here, segment.at as i32 + i * segment.wire.size() as i32);
                }
                end = segment.at + segment.size();
                continue;
            }
            let mut len = segment.size();
            while let Some(next) = rest.peek().filter(|next| follows(segment, len, next)) {
                len += next.size();
                rest.next();
            }
            if len > 256 {
                let from = self.code.ins().iadd_imm_s(frame, i64::from(offset));
                let to = self.code.ins().iadd_imm_s(here, i64::from(segment.at));
                let len = self.constant(i64::from(len));
                self.call(shims::copy as *const u8, &[from, to, len], None);
            } else {
                self.copy((frame, offset as i32), (here, segment.at as i32), len);
            }
            end = segment.at + len;
        }
        self.zeros(here, end, size);
        self.advance(i64::from(size));
    }

    /// Writes the zeros of padding.
    fn zeros(&mut self, here: Value, mut from: u32, to: u32) {
        while from < to {
            let scalar = match to - from {
                8.. => Scalar::U64,
                4..=7 => Scalar::U32,
                2..=3 => Scalar::U16,
                _ => Scalar::U8,
            };
            let zero = self.constant(0);
            self.store_scalar(scalar, zero, here, from as i32);
            from += scalar.size() as u32;
        }
    }

    pub(super) fn encode_literal(&mut self, bytes: &'e [u8]) {
        let here = self.here();
        if bytes.len() > 128 {
            let (from, len) = (self.address(bytes), self.constant(bytes.len() as i64));
            self.call(shims::copy as *const u8, &[from, here, len], None);
        } else {
            // The slack behind a reservation allows the last store to be a whole word.
            for (i, chunk) in bytes.chunks(8).enumerate() {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                let word = self.constant(i64::from_le_bytes(word));
                let flags = flags().with_endianness(cranelift_codegen::ir::Endianness::Little);
                self.code.ins().store(flags, word, here, 8 * i as i32);
            }
        }
        self.advance(bytes.len() as i64);
    }

    pub(super) fn encode_put(&mut self, op: &'e Op, wire: &'e Wire) {
        let (value, scalar) = (self.accumulator().value, self.accumulator().scalar);
        match wire {
            Wire::Fixed { scalar, order } => {
                let here = self.here();
                let value = self.reorder(value, *scalar, *order);
                self.store_scalar(*scalar, value, here, 0);
                self.advance(scalar.size() as i64);
            }
            Wire::Kernel(kernel) if scalar == Scalar::F128 => {
                let (low, high) = self.code.ins().isplit(value);
                let kernel = self.address(*kernel);
                self.call_status(op, shims::put_wide as *const u8, &[self.context(), kernel, low, high]);
            }
            Wire::Kernel(kernel) => self.call_status(op, kernel.put as *const u8, &[self.context(), value]),
            Wire::Inline(kernel, argument) => {
                self.room(op, size_of::<Room>() as i64);
                match kernel.form {
                    Some(form) => self.put_number(kernel, *argument, form),
                    None => self.put_inline(kernel, *argument, value),
                }
            }
            Wire::StopBit(form) => self.put_stop_bit(op, form, value),
            Wire::Octet => unreachable!("the verifier refuses decode operations here"),
            Wire::Symbol(kernel, table) => {
                let table = self.address(&**table);
                self.call_status(op, kernel.put as *const u8, &[self.context(), table, value]);
            }
        }
    }

    /// Emits a call of an inline kernel. There must be room.
    pub(super) fn put_inline(&mut self, kernel: &'static InlineKernel, argument: u64, value: Value) {
        let (here, argument) = (self.here(), self.constant(argument as i64));
        if !kernel.exact {
            self.zeros(here, 0, size_of::<Room>() as u32);
        }
        let mut len = self.call_word(kernel.put as *const u8, &[here, argument, value]);
        if !kernel.exact {
            let most = self.constant(size_of::<Room>() as i64);
            len = self.code.ins().umin(len, most);
        }
        self.advance_by(len, 0);
    }

    /// The first element and the number of elements of a sequence, string or map.
    pub(super) fn slice(&mut self, place: Place, frame: Value) -> (Value, Value) {
        let (base, offset, node) = self.place(place, frame).expect("the verifier refuses sinks");
        let kind = &self.layout().node(node).kind;
        let words = match kind {
            Kind::String { words, .. } => *words,
            Kind::Sequence(sequence) => sequence.words,
            _ => None,
        };
        match words {
            Some(words) => {
                let data = self.load(types::I64, base, offset + words.pointer as i32);
                (data, self.load(types::I64, base, offset + words.len as i32))
            }
            None => {
                let (kind, at, word) = (self.address(kind), self.place_address(place, frame), self.word());
                self.call(shims::slice as *const u8, &[kind, at, word], None);
                (self.load_word(0), self.load_word(8))
            }
        }
    }

    pub(super) fn encode_text(
        &mut self,
        op: &'e Op,
        place: Place,
        form: &'e TextForm,
        (bound, utf16_bound, after): (u32, bool, i64),
        frame: Value,
    ) {
        let head = match form {
            TextForm::CountedNul { order } => Some(TextHead::Counted(*order)),
            TextForm::Kernel(kernel) => kernel.short.map(TextHead::Short),
            TextForm::Held => None,
        };
        // The code below requires an owned string.
        let is_own = matches!(form, TextForm::CountedNul { .. }) || !self.is_shared(place);
        match head.filter(|_| is_own && (bound == 0 || !utf16_bound)) {
            Some(head) => self.encode_short(op, place, (form, head), (bound, after), frame),
            None => self.encode_any_text(op, place, form, (bound, after), frame),
        }
    }

    /// Emits a call of a function that writes a string.
    fn encode_any_text(
        &mut self,
        op: &'e Op,
        place: Place,
        form: &'e TextForm,
        (bound, after): (u32, i64),
        frame: Value,
    ) {
        match form {
            TextForm::Kernel(kernel) if bound == 0 && !self.is_shared(place) => {
                let (kernel, string) = (self.address(*kernel), self.place_address(place, frame));
                self.call_status(op, shims::put_text as *const u8, &[self.context(), kernel, string]);
            }
            TextForm::Held if self.direct => self.take_string(op, place, bound, frame),
            _ => self.encode_by_interpreter(op, frame),
        }
        // Rust functions do not reserve the slack, so machine code does.
        if after > 0 {
            self.room(op, after + SLACK as i64);
        }
    }

    /// Emits a string: in line if it is short, else by a call.
    fn encode_short(
        &mut self,
        op: &'e Op,
        place: Place,
        (form, head): (&'e TextForm, TextHead),
        (bound, after): (u32, i64),
        frame: Value,
    ) {
        let (data, len) = self.slice(place, frame);
        let longest = if bound == 0 { SHORT } else { SHORT.min(i64::from(bound)) };
        let longest = longest.min(head.longest());
        let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, longest);
        let (capacity, position) = (self.code.use_var(self.end), self.position());
        // Direct code reserves no room later, so check the room for everything that follows.
        let after = if self.direct { self.wanted } else { after };
        let wanted = self.code.ins().iadd_imm_s(position, head.around() + SHORT + after + SLACK as i64);
        let full = self.code.ins().icmp(IntCC::UnsignedGreaterThan, wanted, capacity);
        // The pointer of an empty string may not be readable; load from the output instead.
        let (here, empty) = (self.here(), self.code.ins().icmp_imm_s(IntCC::Equal, len, 0));
        let data = self.code.ins().select(empty, here, data);
        let in_page = self.code.ins().band_imm_s(data, PAGE - 1);
        let crosses = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, in_page, PAGE - SHORT);
        let unfit = self.code.ins().bor(long, full);
        let unfit = self.code.ins().bor(unfit, crosses);

        let (short, slow_block, done) = (self.new_block(), self.cold(), self.new_block());
        self.code.ins().brif(unfit, slow_block, &[], short, &[]);
        self.code.switch_to_block(short);
        let bytes = self.load(types::I8X16, data, 0);
        self.store(bytes, here, head.len());
        self.finish_text(head, here, len);
        self.jump_and_begin(done, slow_block);
        match self.direct {
            true => self.encode_long((data, len), head, bound),
            false => self.encode_any_text(op, place, form, (bound, after), frame),
        }
        self.jump_and_begin(done, done);
    }

    /// In direct code: emits a longer string. Bails out if it is too long or there is no room.
    fn encode_long(&mut self, (data, len): (Value, Value), head: TextHead, bound: u32) {
        let longest = head.longest().min(if bound == 0 { i64::MAX } else { bound.into() });
        let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, longest);
        self.or_bail_out(long);
        let (capacity, position) = (self.code.use_var(self.end), self.position());
        let wanted = self.code.ins().iadd(position, len);
        let wanted = self.code.ins().iadd_imm_s(wanted, head.around() + self.wanted + SLACK as i64);
        let full = self.code.ins().icmp(IntCC::UnsignedGreaterThan, wanted, capacity);
        self.or_bail_out(full);
        let here = self.here();
        let to = self.code.ins().iadd_imm_s(here, i64::from(head.len()));
        self.call(shims::copy as *const u8, &[data, to, len], None);
        self.finish_text(head, here, len);
    }

    /// Writes head and end of a string whose bytes are written, and moves the position behind it.
    fn finish_text(&mut self, head: TextHead, here: Value, len: Value) {
        match head {
            TextHead::Counted(order) => {
                let count = self.code.ins().iadd_imm_s(len, 1);
                let wire = self.reorder(count, Scalar::U32, order);
                self.store_scalar(Scalar::U32, wire, here, 0);
                let (last, zero) = (self.code.ins().iadd(here, len), self.constant(0));
                self.store_scalar(Scalar::U8, zero, last, 4);
            }
            TextHead::Short(short) => {
                let last = i32::from(short.head_len) - 1;
                for (i, byte) in short.head.to_le_bytes().into_iter().enumerate().take(last as usize) {
                    let byte = self.constant(byte.into());
                    self.store_scalar(Scalar::U8, byte, here, i as i32);
                }
                let mark = short.head.to_le_bytes().get(last as usize).copied().unwrap_or_default();
                let byte = self.code.ins().iadd_imm_s(len, i64::from(mark));
                self.store_scalar(Scalar::U8, byte, here, last);
            }
        }
        self.advance_by(len, head.around());
    }

    pub(super) fn encode_bulk(
        &mut self,
        op: &'e Op,
        place: Place,
        (scalar, order, bound): (Scalar, Order, u32),
        frame: Value,
    ) {
        if (order != crate::program::interp::HOST && scalar.size() > 1) || bound > 0 {
            return self.encode_by_interpreter(op, frame);
        }
        let (data, len) = self.slice(place, frame);
        let bytes = self.code.ins().imul_imm_s(len, scalar.size() as i64);
        let (capacity, position) = (self.code.use_var(self.end), self.position());
        let wanted = self.code.ins().iadd(position, bytes);
        if self.direct {
            let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, bytes, LONG);
            self.or_bail_out(long);
            let wanted = self.code.ins().iadd_imm_s(wanted, self.wanted);
            let full = self.code.ins().icmp(IntCC::UnsignedGreaterThan, wanted, capacity);
            self.or_bail_out(full);
        } else {
            let full = self.code.ins().icmp(IntCC::UnsignedGreaterThan, wanted, capacity);
            self.rarely(full, |emit| emit.call_status(op, shims::grow as *const u8, &[emit.context(), bytes]));
        }
        let here = self.here();
        self.call(shims::copy as *const u8, &[data, here, bytes], None);
        self.advance_by(bytes, 0);
    }

    pub(super) fn encode_sequence(&mut self, op: &'e Op, place: Place, element: &'e Block, bound: u32, frame: Value) {
        if self.direct && self.stream.is_none() {
            // Long messages gain nothing, and those that outgrow the room would be encoded twice.
            self.give_up();
        }
        let node = place.node().expect("the verifier refuses sinks");
        let (data, count, inside) = match &self.layout().node(node).kind {
            Kind::Sequence(sequence) => {
                let (data, count) = self.slice(place, frame);
                (data, count, sequence.element)
            }
            Kind::Array { element, len } => {
                let count = self.constant(i64::from(*len));
                (self.place_address(place, frame), count, *element)
            }
            _ => unreachable!("the verifier admits sequences and arrays only"),
        };
        if bound > 0 {
            let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, count, i64::from(bound));
            // The interpreter sets the fault.
            self.unless(long, |emit| {
                if !emit.direct {
                    emit.encode_by_interpreter(op, frame);
                }
                emit.jump_out();
            });
        }
        self.accumulator = None;
        let stride = i64::from(self.layout().node(inside).size);
        self.repeat(count, (data, stride), |emit, at| {
            emit.room_for_all();
            emit.inner(element, at);
        });
    }

    /// Emits a choice by the presence of an optional. Behind it the accumulator is the one before
    /// it.
    pub(super) fn if_present(&mut self, place: Place, [then, otherwise]: [&'e Block; 2], frame: Value) {
        let value = self.encode_optional(place, frame);
        let (accumulator, mut join) = (self.accumulator, self.begin_join());
        let (start, end) = self.arm_bits([then, otherwise].into_iter());
        let (yes, no, done) = (self.new_block(), self.new_block(), self.new_block());
        self.code.ins().brif(value, yes, &[], no, &[]);
        for (arm, block, inside) in [(yes, then, value), (no, otherwise, frame)] {
            self.code.switch_to_block(arm);
            self.begin_arm(&join);
            self.set_bits_done(start);
            self.block(block, inside);
            self.elide_rest(end, stops(block));
            self.accumulator = None;
            self.end_arm(&mut join, false);
            self.code.ins().jump(done, &[]);
        }
        self.code.switch_to_block(done);
        self.finish_join(join);
        self.accumulator = accumulator;
    }

    /// The value of an optional, or null.
    fn encode_optional(&mut self, place: Place, frame: Value) -> Value {
        let (base, offset, node) = self.place(place, frame).expect("the verifier refuses sinks");
        match &self.layout().node(node).kind {
            Kind::Optional(optional) if optional.flag.is_some() => {
                let (flag, payload) = optional.flag.map_or((0, 0), |f| (f.flag as i32, f.payload as i32));
                let state = self.load_scalar(Scalar::U8, base, offset + flag);
                let present = self.code.ins().icmp_imm_s(IntCC::Equal, state, 1);
                let value = self.code.ins().iadd_imm_s(base, i64::from(offset + payload));
                let null = self.constant(0);
                self.code.ins().select(present, value, null)
            }
            kind => {
                let (kind, at) = (self.address(kind), self.place_address(place, frame));
                self.call_word(shims::get_some as *const u8, &[kind, at])
            }
        }
    }

    pub(super) fn encode_union(&mut self, place: Place, arms: &'e [Block], none: &'e Block, frame: Value) {
        let (.., node) = self.place(place, frame).expect("the verifier refuses sinks");
        let slot = self.slot(size_of::<Selection>() as u32 / 8);
        let (kind, at, to) =
            (self.address(&self.layout().node(node).kind), self.place_address(place, frame), self.slot_address(slot));
        self.call(shims::selected as *const u8, &[kind, at, to], None);
        let load =
            |emit: &mut Self, offset: usize| emit.code.ins().stack_load(types::I64, types::I64, slot, offset as i32);
        let discriminator = load(self, offset_of!(Selection, discriminator));
        let case = load(self, offset_of!(Selection, case));
        let value = load(self, offset_of!(Selection, value));
        self.release(slot);
        let mut switch = cranelift_frontend::Switch::new();
        let blocks: Vec<_> = arms.iter().map(|_| self.new_block()).collect();
        for (i, block) in blocks.iter().enumerate() {
            switch.set_entry(i as u128, *block);
        }
        let (otherwise, done) = (self.new_block(), self.new_block());
        switch.emit(&mut self.code, case, otherwise);
        let frames = core::iter::repeat_n(value, arms.len()).chain([frame]);
        let bodies = arms.iter().chain([none]);
        let (start, end) = self.arm_bits(bodies.clone());
        let held = self.held;
        for ((block, body), frame) in blocks.iter().chain([&otherwise]).zip(bodies).zip(frames) {
            self.code.switch_to_block(*block);
            self.set(discriminator, Scalar::I64);
            self.set_bits_done(start);
            self.held = held;
            self.block(body, frame);
            self.fill_bits(end);
            self.code.ins().jump(done, &[]);
        }
        (self.accumulator, self.held) = (None, held);
        self.code.switch_to_block(done);
    }

    pub(super) fn encode_region(
        &mut self,
        op: &'e Op,
        dialect: &'static RegionDialect,
        argument: u64,
        body: &'e Block,
        frame: Value,
    ) {
        if let Some(RegionForm::Length { .. }) = dialect.form {
            self.room(op, 1);
            let region = self.begin_out_region();
            self.inner(body, frame);
            return self.end_out_region(op, dialect, region);
        }
        if let (Some(RegionForm::Word { order }), 0) = (dialect.form, argument) {
            return self.put_word_region(op, order, body, frame);
        }
        self.bracketed(op, [dialect.put_begin as *const u8, dialect.put_end as *const u8], argument, (body, frame));
    }
}
