//! Emits the operations on the bytes in hand, in direct functions.
//!
//! `Emit::held` says where the bytes are: in memory, in a slot, or in the program ([`Held`]). Up to
//! sixteen bytes are moved, compared and checked in line. For more bytes, and in unusual cases, the
//! code calls a function of `calls`. `text` emits comparisons and strings.
//!
//! `jit/ops.rs` calls `stream_bytes` and `ask_bytes`. The code touches the message, the state, and
//! sequences and arrays of octets in the value.

use alloc::vec::Vec;
use core::{iter::repeat_n, mem::offset_of};

use cranelift_codegen::ir::{
    Block as CodeBlock, Endianness, InstBuilder, MemFlagsData, Value, condcodes::IntCC, types,
};

use super::{
    super::{emit::Emit, encode::PAGE, join::LocalFact, shims},
    calls::{self, FoundStop},
};
use crate::{
    layout::{Kind, Scalar},
    program::{
        ByteSlot, Bytes, BytesForm, Coding, Op, Order, Place, State,
        io::SHORT_TEXT,
        state::{
            bytes::MAX_INLINE,
            specialised::{EMPTY_WORD, LONG, NO_TEXT},
        },
    },
};

/// The most bytes that a form adds to those in hand.
pub(in super::super) const HEAD: usize = 10;

/// The most bytes that are moved in one step.
const FEW: i64 = SHORT_TEXT as i64;

/// Where the bytes in hand are.
#[derive(Clone, Copy)]
pub(in super::super) enum Held<'e> {
    /// In memory.
    Found(Found),
    /// In a slot.
    Slot(ByteSlot),
    /// In the program.
    Known(&'e [u8]),
}

/// Bytes in memory.
#[derive(Clone, Copy)]
pub(in super::super) struct Found {
    pub data: Value,
    pub len: Value,
    /// All of them as one vector, without the stop bit, if they fit.
    pub first: Option<Value>,
    /// [`SHORT_TEXT`] bytes are readable at `data`, whatever the number.
    pub is_roomy: bool,
    /// The last byte still has its stop bit, which is not part of the value.
    pub has_stop: bool,
    /// They are known to be UTF-8 (without the stop bit).
    pub is_text: bool,
}

impl Found {
    /// Bytes without known facts.
    pub(super) fn any(data: Value, len: Value) -> Found {
        Found { data, len, first: None, is_roomy: false, has_stop: false, is_text: false }
    }
}

impl<'e> Emit<'e, '_> {
    fn held(&self) -> Held<'e> {
        self.held.expect("the verifier has seen bytes in hand")
    }

    /// Emits an operation on the bytes in hand; comparisons are emitted by `ask_bytes`.
    pub(in super::super) fn stream_bytes(&mut self, op: &'e Op, bytes: &'e Bytes, frame: Value) {
        match bytes {
            Bytes::Octets { place, bound, .. } if self.encodes() => self.take_octets(*place, *bound, frame),
            Bytes::Octets { place, bound, .. } => self.set_octets(op, *place, *bound, frame),
            Bytes::Const(known) => self.held = Some(Held::Known(known)),
            Bytes::Get(form) => match form.coding {
                Coding::StopBit => self.get_stop_bytes(form),
                Coding::Counted => self.get_counted(form),
            },
            Bytes::Put(form) => self.put_bytes(form),
            Bytes::LoadSlot { slot, .. } => self.held = Some(Held::Slot(*slot)),
            Bytes::StoreSlot { slot, .. } => self.store_bytes(*slot),
            Bytes::SlotHas { .. } | Bytes::Equal(_) => {
                let [yes, no, done] = [(); 3].map(|()| self.new_block());
                let answer = self.code.append_block_param(done, types::I64);
                self.ask_bytes(bytes, yes, no);
                for (block, answer) in [(yes, 1), (no, 0)] {
                    self.code.switch_to_block(block);
                    let answer = self.constant(answer);
                    self.jump(done, &[answer]);
                }
                self.code.switch_to_block(done);
                self.set(answer, Scalar::Bool);
            }
            Bytes::Length => {
                let found = self.found();
                self.set(found.len, Scalar::U64);
            }
            Bytes::Utf8(_) => {
                let found = self.found();
                let found = self.checked(found);
                self.held = Some(Held::Found(found));
            }
            Bytes::Part { number, .. } => self.part(bytes, *number),
        }
    }

    /// Emits a comparison of the bytes in hand, and jumps to one of two blocks by its result.
    pub(in super::super) fn ask_bytes(&mut self, bytes: &'e Bytes, yes: CodeBlock, no: CodeBlock) {
        let found = self.found();
        match bytes {
            Bytes::Equal(known) => {
                self.unless_same((found.data, found.len), known, no);
                self.code.ins().jump(yes, &[]);
            }
            Bytes::SlotHas { slot, initial, .. } => self.slot_has_bytes(found, *slot, initial.as_deref(), [yes, no]),
            _ => unreachable!("only called for questions"),
        }
    }

    /// The bytes in hand in memory, without a stop bit. Bails out if they are in a slot that has
    /// none.
    pub(super) fn found(&mut self) -> Found {
        let found = match self.held() {
            Held::Found(found) if found.has_stop => {
                let (state, one) = (self.state(), self.constant(1));
                let data = self.call_word(calls::hold as *const u8, &[state, found.data, found.len, one]);
                Found { data, has_stop: false, ..found }
            }
            held => self.found_with_stop(held),
        };
        self.held = Some(Held::Found(found));
        found
    }

    /// The same, possibly with a stop bit.
    pub(super) fn found_with_stop(&mut self, held: Held<'e>) -> Found {
        match held {
            Held::Found(found) => found,
            Held::Known(known) => {
                let (data, len) = (self.address(known), self.constant(known.len() as i64));
                let first = (known.len() <= SHORT_TEXT)
                    .then(|| self.sixteen(known.iter().copied().chain(repeat_n(0, SHORT_TEXT - known.len()))));
                Found { first, is_text: core::str::from_utf8(known).is_ok(), ..Found::any(data, len) }
            }
            Held::Slot(slot) => {
                self.charge_copy(slot);
                self.bail_out_if_none(slot);
                let (data, len) = self.slot_bytes(slot);
                Found { is_text: self.slot_words(slot.slot).is_text, ..Found::any(data, len) }
            }
        }
    }

    /// The address and the number of the bytes of a slot that has some.
    pub(super) fn slot_bytes(&mut self, slot: ByteSlot) -> (Value, Value) {
        let (inline, inline_len) = self.inline_bytes(slot);
        let (word, (data, len)) = (self.word_of(slot.slot), self.kept(slot));
        let is_long = self.code.ins().icmp_imm_s(IntCC::Equal, word, LONG as i64);
        let data = self.code.ins().select(is_long, data, inline);
        (data, self.code.ins().select(is_long, len, inline_len))
    }

    /// The address of a copy of an inline string on the stack, and the number of its bytes.
    pub(super) fn inline_bytes(&mut self, slot: ByteSlot) -> (Value, Value) {
        let (word, copy) = (self.word_of(slot.slot), self.slot(SHORT_TEXT as u32 / 8));
        let bytes = self.reorder(word, Scalar::U64, Order::Little);
        self.code.ins().stack_store(types::I64, bytes, copy, 0);
        (self.slot_address(copy), self.code.ins().ushr_imm_u(word, 56))
    }

    /// The inline string of bytes, as a slot's word. Jumps to `longer` if there are too many, and
    /// to `unsure` if loading them would cross a page.
    pub(super) fn inline_word(&mut self, found: Found, longer: CodeBlock, unsure: CodeBlock) -> Value {
        let Found { data, len, first, has_stop, .. } = found;
        let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, MAX_INLINE as i64);
        self.or_else(long, longer);
        let word = if let Some(first) = first {
            let little = MemFlagsData::new().with_endianness(Endianness::Little);
            let words = self.code.ins().bitcast(types::I64X2, little, first);
            self.code.ins().extractlane(words, 0)
        } else {
            // Without bytes the address may not be readable; load from the state instead.
            let (state, empty) = (self.state(), self.code.ins().icmp_imm_s(IntCC::Equal, len, 0));
            let data = self.code.ins().select(empty, state, data);
            self.unless_in_page(data, 8, unsure);
            let word = self.load_scalar(Scalar::U64, data, 0);
            let word = self.reorder(word, Scalar::U64, Order::Little);
            if has_stop { self.code.ins().band_imm_s(word, 0x7F7F_7F7F_7F7F_7F7F) } else { word }
        };
        let (bits, one) = (self.code.ins().ishl_imm_u(len, 3), self.constant(1));
        let mask = self.code.ins().ishl(one, bits);
        let mask = self.code.ins().iadd_imm_s(mask, -1);
        let (own, top) = (self.code.ins().band(word, mask), self.code.ins().ishl_imm_u(len, 56));
        self.code.ins().bor(own, top)
    }

    /// When decoding: charges for copying the bytes of a slot, unless they are an inline string.
    pub(super) fn charge_copy(&mut self, slot: ByteSlot) {
        if self.encodes() {
            return;
        }
        let (long, done) = (self.new_block(), self.new_block());
        let word = self.word_of(slot.slot);
        let is_long = self.code.ins().icmp_imm_s(IntCC::Equal, word, LONG as i64);
        self.code.ins().brif(is_long, long, &[], done, &[]);
        self.code.switch_to_block(long);
        let (_, len) = self.kept(slot);
        self.charge(len);
        self.jump_and_begin(done, done);
    }

    /// Charges for copying bytes of a slot. Bails out if the budget is exceeded.
    pub(super) fn charge(&mut self, len: Value) {
        let state = self.state();
        let left = self.load(types::I64, state, offset_of!(State, copies_left) as i32);
        let lacks = self.code.ins().icmp(IntCC::UnsignedGreaterThan, len, left);
        self.or_bail_out(lacks);
        let left = self.code.ins().isub(left, len);
        self.store(left, state, offset_of!(State, copies_left) as i32);
    }

    /// Bails out if a slot has no bytes.
    fn bail_out_if_none(&mut self, slot: ByteSlot) {
        let words = self.slot_words(slot.slot);
        let none = [words.undefined.map(|_| NO_TEXT), words.is_emptied.then_some(EMPTY_WORD)];
        if !self.assigned.contains(&slot.slot) {
            for reserved in none.into_iter().flatten() {
                let word = self.word_of(slot.slot);
                let is_none = self.code.ins().icmp_imm_s(IntCC::Equal, word, reserved as i64);
                self.or_bail_out(is_none);
            }
        }
    }

    /// Loads all bytes as one vector, the first lowest. Jumps to `other` if there are more than
    /// sixteen, or if the load would cross a page.
    pub(super) fn first_of(&mut self, found: Found, other: CodeBlock) -> Value {
        if self.constant_of(found.len).is_none_or(|len| len > FEW) {
            let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, found.len, FEW);
            self.or_else(long, other);
        }
        if let Some(first) = found.first {
            return first;
        }
        if found.is_roomy {
            return self.load(types::I8X16, found.data, 0);
        }
        // Without bytes the address may not be readable; load from the state instead.
        let (state, empty) = (self.state(), self.code.ins().icmp_imm_s(IntCC::Equal, found.len, 0));
        let data = self.code.ins().select(empty, state, found.data);
        self.unless_in_page(data, FEW, other);
        self.load(types::I8X16, data, 0)
    }

    /// A vector of sixteen constant bytes.
    fn sixteen(&mut self, bytes: impl Iterator<Item = u8>) -> Value {
        let bytes = self.code.func.dfg.constants.insert(bytes.collect::<Vec<u8>>().into());
        self.code.ins().vconst(types::I8X16, bytes)
    }

    /// Jumps to `other` if `bytes` bytes at the address cross a page.
    pub(super) fn unless_in_page(&mut self, data: Value, bytes: i64, other: CodeBlock) {
        let in_page = self.code.ins().band_imm_s(data, PAGE - 1);
        let crosses = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, in_page, PAGE - bytes);
        self.or_else(crosses, other);
    }

    /// A bit for each of the first `len` bytes that is not ASCII.
    pub(super) fn beyond_ascii(&mut self, first: Value, len: Value) -> Value {
        let high = self.code.ins().vhigh_bits(types::I32, first);
        let one = self.code.ins().iconst(types::I32, 1);
        let mask = self.code.ins().ishl(one, len);
        let mask = self.code.ins().iadd_imm_s(mask, -1);
        self.code.ins().band(high, mask)
    }

    /// Checks that bytes are UTF-8; bails out if they are not.
    fn checked(&mut self, found: Found) -> Found {
        if !found.is_text {
            let (slow, done) = (self.cold(), self.new_block());
            let first = self.first_of(found, slow);
            let high = self.beyond_ascii(first, found.len);
            self.or_else(high, slow);
            self.jump_and_begin(done, slow);
            let is_text = self.call_word(calls::is_utf8 as *const u8, &[found.data, found.len]);
            let broken = self.code.ins().icmp_imm_s(IntCC::Equal, is_text, 0);
            self.or_bail_out(broken);
            self.jump_and_begin(done, done);
        }
        Found { is_text: true, ..found }
    }

    /// Emits reading bytes that end with a stop bit.
    fn get_stop_bytes(&mut self, form: &BytesForm) {
        let (end, position) = (self.code.use_var(self.end), self.position());
        let none = self.code.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, position, end);
        self.or_bail_out(none);
        let here = self.here();
        let [len, there] = [(); 2].map(|()| self.code.declare_var(types::I64));
        let first = self.code.declare_var(types::I8X16);
        let (slow, done) = (self.cold(), self.new_block());
        self.unless_in_page(here, FEW, slow);
        let bytes = self.load(types::I8X16, here, 0);
        let sevens = self.sixteen(repeat_n(0x7F, SHORT_TEXT));
        let plain = self.code.ins().band(bytes, sevens);
        self.code.def_var(first, plain);
        let byte = self.load_scalar(Scalar::U8, here, 0);
        let one = self.constant(1);
        if form.there.is_some() {
            let null = self.code.ins().icmp_imm_s(IntCC::Equal, byte, 0x80);
            let (absent, go_on) = (self.new_block(), self.new_block());
            self.code.ins().brif(null, absent, &[], go_on, &[]);
            self.code.switch_to_block(absent);
            let zero = self.constant(0);
            self.code.def_var(len, zero);
            self.code.def_var(there, zero);
            let behind = self.code.ins().iadd_imm_s(here, 1);
            self.move_to(behind);
            self.jump_and_begin(done, go_on);
        }
        // A leading NUL is a preamble, which the slow path handles.
        let some = self.code.ins().band_imm_s(byte, 0x7F);
        let preamble = self.code.ins().icmp_imm_s(IntCC::Equal, some, 0);
        self.or_else(preamble, slow);
        let stops = self.code.ins().vhigh_bits(types::I32, bytes);
        let longer = self.code.ins().icmp_imm_s(IntCC::Equal, stops, 0);
        self.or_else(longer, slow);
        let last = self.code.ins().ctz(stops);
        let last = self.code.ins().uextend(types::I64, last);
        let count = self.code.ins().iadd_imm_s(last, 1);
        let position = self.position();
        let behind = self.code.ins().iadd(position, count);
        let beyond = self.code.ins().icmp(IntCC::UnsignedGreaterThan, behind, end);
        self.or_bail_out(beyond);
        self.code.def_var(self.position, behind);
        self.code.def_var(len, count);
        self.code.def_var(there, one);
        self.jump_and_begin(done, slow);
        let slot = self.slot(size_of::<FoundStop>() as u32 / 8);
        let (to, nullable) = (self.slot_address(slot), self.constant(form.there.is_some().into()));
        let base = self.code.use_var(self.base);
        let end = self.code.ins().iadd(base, end);
        let behind = self.call_or_bail_out(calls::find_stop as *const u8, &[here, end, nullable, to]);
        self.move_to(behind);
        for (variable, ty, offset) in [
            (len, types::I64, offset_of!(FoundStop, len)),
            (there, types::I64, offset_of!(FoundStop, there)),
            (first, types::I8X16, offset_of!(FoundStop, first)),
        ] {
            let value = self.code.ins().stack_load(types::I64, ty, slot, offset as i32);
            self.code.def_var(variable, value);
        }
        self.release(slot);
        self.jump_and_begin(done, done);
        self.set_there(form, |emit| emit.code.use_var(there));
        let (len, first) = (self.code.use_var(len), Some(self.code.use_var(first)));
        self.held = Some(Held::Found(Found { first, has_stop: true, is_text: true, ..Found::any(here, len) }));
    }

    /// Sets a form's local to whether its bytes are present.
    fn set_there(&mut self, form: &BytesForm, there: impl FnOnce(&mut Self) -> Value) {
        if let Some(local) = form.there {
            let there = there(self);
            self.set_local(local, there, LocalFact { from: Some(Scalar::U8), constant: None });
        }
    }

    /// Emits reading bytes with their number in front.
    fn get_counted(&mut self, form: &BytesForm) {
        let unwind = self.unwind;
        let number = self.read_entity(unwind, false, None);
        let mut len = number;
        if form.there.is_some() {
            let (zero, less) = (self.constant(0), self.code.ins().iadd_imm_s(number, -1));
            let none = self.code.ins().icmp_imm_s(IntCC::Equal, number, 0);
            len = self.code.ins().select(none, zero, less);
        }
        self.set_there(form, |emit| {
            let there = emit.code.ins().icmp_imm_s(IntCC::NotEqual, number, 0);
            emit.code.ins().uextend(types::I64, there)
        });
        let (position, end, data) = (self.position(), self.code.use_var(self.end), self.here());
        let left = self.code.ins().isub(end, position);
        let short = self.code.ins().icmp(IntCC::UnsignedGreaterThan, len, left);
        self.or_bail_out(short);
        let behind = self.code.ins().iadd(position, len);
        self.code.def_var(self.position, behind);
        self.held = Some(Held::Found(Found::any(data, len)));
    }

    /// Writes the bytes in hand. Room for everything else is reserved.
    fn put_bytes(&mut self, form: &BytesForm) {
        let found = self.found();
        let nullable = form.there.is_some();
        self.room_for_bytes(found.len);
        match form.coding {
            Coding::StopBit => self.put_stop_bytes(found, nullable),
            Coding::Counted => {
                let long = self.code.ins().ushr_imm_u(found.len, 32);
                self.or_bail_out(long);
                let number = self.code.ins().iadd_imm_s(found.len, i64::from(nullable));
                self.write_entity(false, number);
                let (other, done) = (self.cold(), self.new_block());
                let (first, here) = (self.first_of(found, other), self.here());
                self.store(first, here, 0);
                self.jump_and_begin(done, other);
                let here = self.here();
                self.call(shims::copy as *const u8, &[found.data, here, found.len], None);
                self.jump_and_begin(done, done);
                self.advance_by(found.len, 0);
            }
        }
    }

    /// Writes bytes with a stop bit: in line if they are few and not unusual, else by a call.
    fn put_stop_bytes(&mut self, found: Found, nullable: bool) {
        let (slow, done) = (self.cold(), self.new_block());
        let none = self.code.ins().icmp_imm_s(IntCC::Equal, found.len, 0);
        self.or_else(none, slow);
        let first = self.first_of(found, slow);
        let high = self.beyond_ascii(first, found.len);
        self.or_else(high, slow);
        let byte = self.load_scalar(Scalar::U8, found.data, 0);
        let preamble = self.code.ins().icmp_imm_s(IntCC::Equal, byte, 0);
        self.or_else(preamble, slow);
        let here = self.here();
        self.store(first, here, 0);
        let [behind, own] = [here, found.data].map(|at| self.code.ins().iadd(at, found.len));
        let last = self.load_scalar(Scalar::U8, own, -1);
        let last = self.code.ins().bor_imm_s(last, 0x80);
        self.store_scalar(Scalar::U8, last, behind, -1);
        self.move_to(behind);
        self.jump_and_begin(done, slow);
        let (here, nullable) = (self.here(), self.constant(nullable.into()));
        let behind = self.call_or_bail_out(calls::write_stop as *const u8, &[here, found.data, found.len, nullable]);
        self.move_to(behind);
        self.jump_and_begin(done, done);
    }

    /// Checks the room for bytes. Room for everything else is reserved.
    fn room_for_bytes(&mut self, len: Value) {
        let (position, capacity) = (self.position(), self.code.use_var(self.end));
        let wanted = self.code.ins().iadd(position, len);
        let wanted = self.code.ins().iadd_imm_s(wanted, self.wanted);
        let full = self.code.ins().icmp(IntCC::UnsignedGreaterThan, wanted, capacity);
        self.or_bail_out(full);
    }

    /// Stores the bytes in hand in a slot.
    fn store_bytes(&mut self, slot: ByteSlot) {
        let found = match self.held() {
            // The slot's own bytes stay. If it has none, the direct function bails out.
            Held::Slot(own) if own == slot => return self.bail_out_if_none(slot),
            held => self.found_with_stop(held),
        };
        // Strings take the bytes of such a slot without a check, so check them here.
        let found = if self.slot_words(slot.slot).is_text { self.checked(found) } else { found };
        let (other, done) = (self.cold(), self.new_block());
        let word = self.inline_word(found, other, other);
        self.store(word, self.stream().values, 8 * slot.slot as i32);
        self.jump_and_begin(done, other);
        let keep = if found.has_stop { calls::keep_stopped as *const u8 } else { calls::keep as *const u8 };
        let (state, slots) = (self.state(), self.slots(slot));
        self.call_expecting_zero(keep, &[state, slots, found.data, found.len]);
        self.jump_and_begin(done, done);
        self.held = Some(Held::Found(found));
    }

    /// The numbers of a slot and of its bytes, packed into one argument.
    pub(super) fn slots(&mut self, slot: ByteSlot) -> Value {
        self.constant((u64::from(slot.slot) << 32 | u64::from(slot.bytes)) as i64)
    }

    /// Emits `Part`: the part of the bytes that is sent, or the full bytes.
    fn part(&mut self, bytes: &'e Bytes, number: u8) {
        let found = self.found();
        let (state, op) = (self.state(), self.address(bytes));
        if self.encodes() {
            let slot = self.slot(3);
            let to = self.slot_address(slot);
            self.call_expecting_zero(calls::split as *const u8, &[state, op, found.data, found.len, to]);
            let [value, start, len] = [0, 8, 16].map(|at| self.code.ins().stack_load(types::I64, types::I64, slot, at));
            self.release(slot);
            self.set_local(number, value, LocalFact { from: Some(Scalar::I64), constant: None });
            let data = self.code.ins().iadd(found.data, start);
            self.held = Some(Held::Found(Found { is_text: false, ..Found::any(data, len) }));
        } else {
            let (value, word) = (self.local(number, Scalar::I64), self.word());
            let data =
                self.call_or_bail_out(calls::join as *const u8, &[state, op, found.data, found.len, value, word]);
            let len = self.load_word(0);
            self.held = Some(Held::Found(Found::any(data, len)));
        }
    }

    /// Takes the elements of a sequence or array of octets.
    fn take_octets(&mut self, place: Place, bound: u32, frame: Value) {
        let Some((.., node)) = self.place(place, frame) else { return };
        let (data, len) = match &self.layout().node(node).kind {
            Kind::Array { len, .. } => (self.place_address(place, frame), self.constant(i64::from(*len))),
            _ => self.slice(place, frame),
        };
        self.bail_out_beyond(len, bound);
        self.held = Some(Held::Found(Found::any(data, len)));
    }

    /// Bails out if there are more bytes than a bound.
    pub(super) fn bail_out_beyond(&mut self, len: Value, bound: u32) {
        if bound > 0 {
            let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, i64::from(bound));
            self.or_bail_out(long);
        }
    }

    /// Stores octets in a sequence or array: in line if it has room for them, else by a call.
    fn set_octets(&mut self, op: &'e Op, place: Place, bound: u32, frame: Value) {
        let Some((base, offset, _)) = self.place(place, frame) else { return };
        let Found { data, len, .. } = self.found();
        let words = self.sequence_node(place).and_then(|sequence| sequence.words);
        let (slow, done) = (self.cold(), self.new_block());
        if let Some(words) = words {
            let room = self.load(types::I64, base, offset + words.len as i32);
            let more = self.code.ins().icmp(IntCC::UnsignedGreaterThan, len, room);
            self.or_else(more, slow);
            if bound > 0 {
                let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, i64::from(bound));
                self.or_else(long, slow);
            }
            let to = self.load(types::I64, base, offset + words.pointer as i32);
            self.call(shims::copy as *const u8, &[data, to, len], None);
            self.store(len, base, offset + words.len as i32);
            self.code.ins().jump(done, &[]);
        } else {
            self.code.ins().jump(slow, &[]);
        }
        self.code.switch_to_block(slow);
        let (state, program, address) = (self.state(), self.address(self.program), self.address(op));
        let at = self.place_address(place, frame);
        self.call_or_bail_out(shims::set_octets_specialised as *const u8, &[state, program, address, at, data, len]);
        self.jump_and_begin(done, done);
    }
}
