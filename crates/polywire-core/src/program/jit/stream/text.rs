//! Texts of which neither the form nor the previous value needs a context.

use core::mem::offset_of;

use cranelift_codegen::ir::{Block as CodeBlock, InstBuilder, Value, condcodes::IntCC, types};
use cranelift_frontend::Variable;

use super::{
    super::{emit::Emit, encode::PAGE, shims},
    calls,
    combined::is_combined,
    map::Bit,
};
use crate::{
    layout::{Kind, Scalar, Words},
    program::{
        Field, FieldKind, Order, Place, State,
        io::SHORT_TEXT,
        state::{
            Operator, Text,
            specialised::{EMPTY_WORD, IN_SLOT, LONG},
        },
    },
};

/// Bytes that a text takes beside its own.
pub(super) const HEAD: usize = 10;

/// Bytes up to which a text that is known is compared and written here.
const SHORT: usize = 32;

/// Bytes up to which a previous text is compared and repeated here: two words, which may overlap.
const INLINE: usize = SHORT_TEXT;

/// A string in memory.
#[derive(Clone, Copy)]
struct Target {
    base: Value,
    offset: i32,
    words: Words,
}

impl<'e> Emit<'e, '_> {
    /// A string as a field. There is room for all but its bytes.
    pub(in super::super) fn put_text(&mut self, place: Place, field: &'e Field, bound: u32, frame: Value) {
        let text = self.slice(place, frame);
        self.put_bytes(text, field, bound);
    }

    /// Bytes as a field.
    pub(super) fn put_bytes(&mut self, (data, len): (Value, Value), field: &'e Field, bound: u32) {
        let unwind = self.unwind;
        if bound > 0 {
            let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, i64::from(bound));
            self.or_else(long, unwind);
        }
        let initial = field.initial_bytes().unwrap_or_default();
        match field.operator {
            Operator::Constant => {
                self.unless_same((data, len), initial, unwind);
                if field.optional {
                    let bit = self.next_bit();
                    self.set_bit(bit);
                }
            }
            Operator::Default => {
                let (other, done) = (self.code.create_block(), self.code.create_block());
                let bit = self.next_bit();
                match &field.initial {
                    Some(_) => {
                        self.unless_same((data, len), initial, other);
                        self.code.ins().jump(done, &[]);
                    }
                    None => drop(self.code.ins().jump(other, &[])),
                }
                self.code.switch_to_block(other);
                self.set_bit(bit);
                self.write_text(field, data, len);
                self.code.ins().jump(done, &[]);
                self.code.switch_to_block(done);
            }
            Operator::Copy => {
                let (bit, other, done) = (self.next_bit(), self.code.create_block(), self.code.create_block());
                self.unless_previous(field, (data, len), other);
                self.code.ins().jump(done, &[]);
                self.code.switch_to_block(other);
                let (state, slots) = (self.state(), self.slots(field));
                let answer = self.call(calls::note_text as *const u8, &[state, slots, data, len], Some(types::I64));
                let answer = answer.expect("it returns a word");
                let same = self.code.ins().icmp_imm_s(IntCC::Equal, answer, 0);
                self.or_else(same, done);
                let failed = self.code.ins().icmp_imm_s(IntCC::NotEqual, answer, 1);
                self.or_else(failed, unwind);
                self.set_bit(bit);
                self.write_text(field, data, len);
                self.code.ins().jump(done, &[]);
                self.code.switch_to_block(done);
            }
            Operator::Tail | Operator::Delta => self.put_combined(field, data, len),
            _ => self.write_text(field, data, len),
        }
    }

    /// Goes to `other` unless a text is of at most [`INLINE`] bytes, and the one that its slot has.
    fn unless_previous(&mut self, field: &Field, (data, len): (Value, Value), other: CodeBlock) {
        let values = self.stream().values;
        let previous = self.load(types::I64, values, 8 * field.slot as i32);
        let short = |emit: &mut Self, longer| emit.unless_previous_in_slot((data, len), previous, [longer, other]);
        self.in_slot_or_long(field, other, short, |emit| {
            let (at, kept) = emit.kept(field, previous, INLINE, other);
            let differs = emit.code.ins().icmp(IntCC::NotEqual, len, kept);
            emit.or_else(differs, other);
            let [(first, last), (kept_first, kept_last)] = [data, at].map(|text| emit.ends(text, len));
            let first = emit.code.ins().bxor(first, kept_first);
            let last = emit.code.ins().bxor(last, kept_last);
            let differs = emit.code.ins().bor(first, last);
            emit.or_else(differs, other);
        });
    }

    /// What is done with a previous text that is kept inline, and with a longer one, as far as
    /// the field is likely to have either. The first is told where to go with a text that is
    /// longer: to `other`, if nothing is done with such.
    fn in_slot_or_long(
        &mut self,
        field: &Field,
        other: CodeBlock,
        short: impl FnOnce(&mut Self, CodeBlock),
        long: impl FnOnce(&mut Self),
    ) {
        let done = self.code.create_block();
        let [may_be_in_slot, may_be_long] = likely(field);
        if may_be_in_slot {
            let longer = if may_be_long { self.code.create_block() } else { other };
            short(self, longer);
            self.code.ins().jump(done, &[]);
            if may_be_long {
                self.code.switch_to_block(longer);
            }
        }
        if may_be_long {
            long(self);
            self.code.ins().jump(done, &[]);
        }
        self.code.switch_to_block(done);
    }

    /// Goes to `longer` unless a text is short, and to `other` unless it is the one that is kept in
    /// inline.
    fn unless_previous_in_slot(
        &mut self,
        (data, len): (Value, Value),
        previous: Value,
        [longer, other]: [CodeBlock; 2],
    ) {
        let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, IN_SLOT as i64);
        self.or_else(long, longer);
        // An empty string's pointer is not one; the state's bytes do as well.
        let (state, empty) = (self.state(), self.code.ins().icmp_imm_s(IntCC::Equal, len, 0));
        let data = self.code.ins().select(empty, state, data);
        let in_page = self.code.ins().band_imm_s(data, PAGE - 1);
        let crosses = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, in_page, PAGE - 8);
        self.or_else(crosses, other);
        let word = self.load_scalar(Scalar::U64, data, 0);
        let word = self.reorder(word, Scalar::U64, Order::Little);
        let (bits, one) = (self.code.ins().ishl_imm_u(len, 3), self.constant(1));
        let mask = self.code.ins().ishl(one, bits);
        let mask = self.code.ins().iadd_imm_s(mask, -1);
        let (own, top) = (self.code.ins().band(word, mask), self.code.ins().ishl_imm_u(len, 56));
        let short = self.code.ins().bor(own, top);
        let differs = self.code.ins().icmp(IntCC::NotEqual, short, previous);
        self.or_else(differs, other);
    }

    /// Where the text is that a slot has, of more than [`IN_SLOT`] bytes, and its length. Goes to
    /// `other` if it has none such, or a longer one than `most`.
    fn kept(&mut self, field: &Field, word: Value, most: usize, other: CodeBlock) -> (Value, Value) {
        let none = self.code.ins().icmp_imm_s(IntCC::NotEqual, word, LONG as i64);
        self.or_else(none, other);
        let state = self.state();
        let texts = self.load(types::I64, state, offset_of!(State, texts_at) as i32);
        let text = field.text as i32 * size_of::<Text>() as i32;
        let len = self.load(types::I64, texts, text + offset_of!(Text, len) as i32);
        let long = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, most as i64);
        self.or_else(long, other);
        (self.load(types::I64, texts, text + offset_of!(Text, at) as i32), len)
    }

    /// The first and the last eight bytes of a text that has as many.
    fn ends(&mut self, text: Value, len: Value) -> (Value, Value) {
        let behind = self.code.ins().iadd(text, len);
        (self.load(types::I64, text, 0), self.load(types::I64, behind, -8))
    }

    /// Goes to `other` unless a slot has a text of at most [`INLINE`] bytes, and the string has
    /// room for it; then that is the string's.
    fn take_previous(&mut self, target: Target, field: &Field, bound: u32, other: CodeBlock) {
        let most = |len: usize| if bound == 0 { len } else { len.min(bound as usize) };
        let capacity = self.load(types::I64, target.base, target.offset + target.words.capacity as i32);
        let small = self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, capacity, INLINE as i64);
        self.or_else(small, other);
        let data = self.load(types::I64, target.base, target.offset + target.words.pointer as i32);
        let values = self.stream().values;
        let previous = self.load(types::I64, values, 8 * field.slot as i32);
        let short = |emit: &mut Self, longer| {
            let len = emit.code.ins().ushr_imm_u(previous, 56);
            let is_long = emit.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, len, most(IN_SLOT) as i64);
            emit.or_else(is_long, longer);
            let bytes = emit.reorder(previous, Scalar::U64, Order::Little);
            emit.store(bytes, data, 0);
            emit.store(len, target.base, target.offset + target.words.len as i32);
        };
        self.in_slot_or_long(field, other, short, |emit| {
            let (at, len) = emit.kept(field, previous, most(INLINE), other);
            let (first, last) = emit.ends(at, len);
            let behind = emit.code.ins().iadd(data, len);
            emit.store(first, data, 0);
            emit.store(last, behind, -8);
            emit.store(len, target.base, target.offset + target.words.len as i32);
        });
    }

    /// Goes to `other` unless a text is the one that is known.
    fn unless_same(&mut self, (data, len): (Value, Value), known: &'e [u8], other: CodeBlock) {
        let longer = self.code.ins().icmp_imm_s(IntCC::NotEqual, len, known.len() as i64);
        self.or_else(longer, other);
        if known.len() > SHORT {
            let (known, len) = (self.address(known), self.constant(known.len() as i64));
            let differs = self.call(calls::differ as *const u8, &[data, known, len], Some(types::I64));
            return self.or_else(differs.expect("it returns a word"), other);
        }
        let mut differs: Option<Value> = None;
        for (scalar, at, word) in pieces(known) {
            let there = self.load_scalar(scalar, data, at);
            let there = self.reorder(there, scalar, Order::Little);
            let word = self.constant(word as i64);
            let different = self.code.ins().bxor(there, word);
            differs = Some(match differs {
                Some(before) => self.code.ins().bor(before, different),
                None => different,
            });
        }
        if let Some(differs) = differs {
            self.or_else(differs, other);
        }
    }

    /// Makes sure of room for bytes. There is room for all else.
    pub(super) fn room_for_bytes(&mut self, len: Value) {
        let unwind = self.unwind;
        let (position, capacity) = (self.position(), self.code.use_var(self.end));
        let wanted = self.code.ins().iadd(position, len);
        let wanted = self.code.ins().iadd_imm_s(wanted, self.room_wanted);
        let full = self.code.ins().icmp(IntCC::UnsignedGreaterThan, wanted, capacity);
        self.or_else(full, unwind);
    }

    /// The absence of a text or bytes.
    pub(in super::super) fn encode_absent(&mut self, field: &Field) {
        let zero = self.constant(0);
        match field.operator {
            Operator::None | Operator::Delta => self.write_entity(false, zero),
            Operator::Constant => drop(self.next_bit()),
            _ => {
                let bit = self.next_bit();
                self.encode_none(field, bit);
            }
        }
    }

    /// The absence of a field with a bit that says more than that it is there.
    fn encode_none(&mut self, field: &Field, bit: Bit) {
        let zero = self.constant(0);
        match field.operator {
            Operator::Default if field.initial.is_none() => {}
            Operator::Default => {
                self.set_bit(bit);
                self.write_entity(false, zero);
            }
            _ => {
                let done = self.code.create_block();
                let (values, at) = (self.stream().values, 8 * field.slot as i32);
                let previous = self.load(types::I64, values, at);
                let same = self.code.ins().icmp_imm_s(IntCC::Equal, previous, EMPTY_WORD as i64);
                self.or_else(same, done);
                self.set_bit(bit);
                let empty = self.constant(EMPTY_WORD as i64);
                self.store(empty, values, at);
                self.write_entity(false, zero);
                self.code.ins().jump(done, &[]);
                self.code.switch_to_block(done);
            }
        }
    }

    /// A text without its operator.
    fn write_text(&mut self, field: &Field, data: Value, len: Value) {
        self.room_for_bytes(len);
        let here = self.here();
        let function = if field.kind == FieldKind::Ascii {
            calls::write_ascii as *const u8
        } else {
            calls::write_counted as *const u8
        };
        let nullable = self.constant(field.optional.into());
        let arguments = [here, data, len, nullable];
        let behind = self.call_or_leave(function, &arguments);
        self.move_to(behind);
    }

    /// Accumulator from whether a text is there; it is pending then.
    pub(in super::super) fn test_text(&mut self, field: &'e Field) {
        let there = self.code.declare_var(types::I64);
        let one = self.constant(1);
        match field.operator {
            Operator::None => self.read_pending(field, there),
            Operator::Delta => self.read_combined(field, there),
            Operator::Constant => {
                self.load_pending(field.initial_bytes());
                let bit = if field.optional { self.take_flag() } else { one };
                self.code.def_var(there, bit);
            }
            _ => {
                let bit = self.take_bit();
                self.branch(bit, |emit| emit.test_sent(field, there), |emit| emit.test_left_out(field, there));
            }
        }
        let there = self.code.use_var(there);
        if !field.optional {
            let (absent, unwind) = (self.code.ins().icmp_imm_s(IntCC::Equal, there, 0), self.unwind);
            self.or_else(absent, unwind);
        }
        self.set(there, Scalar::Bool);
    }

    fn test_sent(&mut self, field: &Field, there: Variable) {
        if field.operator == Operator::Tail {
            return self.read_combined(field, there);
        }
        self.read_pending(field, there);
        if field.operator == Operator::Copy {
            let (state, slots, some) = (self.state(), self.slots(field), self.code.use_var(there));
            self.call_well(calls::keep_pending as *const u8, &[state, slots, some]);
        }
    }

    fn test_left_out(&mut self, field: &'e Field, there: Variable) {
        let known = if matches!(field.operator, Operator::Copy | Operator::Tail) {
            let (state, slots) = (self.state(), self.slots(field));
            let there = self.call(calls::previous_pending as *const u8, &[state, slots], Some(types::I64));
            there.expect("it returns a word")
        } else {
            self.load_pending(field.initial_bytes());
            self.constant(field.initial.is_some().into())
        };
        self.code.def_var(there, known);
    }

    /// What is pending from a text without its operator, and whether it is there.
    fn read_pending(&mut self, field: &Field, there: Variable) {
        let (state, here, end) = (self.state(), self.here(), self.code.use_var(self.end));
        let charset = match field.kind {
            FieldKind::Ascii => calls::ASCII,
            FieldKind::Unicode => calls::UNICODE,
            _ => 0,
        };
        let form = charset | if field.optional { calls::NULLABLE } else { 0 };
        let (form, word) = (self.constant(form as i64), self.word());
        let behind = self.call_or_leave(calls::read_pending as *const u8, &[state, here, end, form, word]);
        let some = self.load_word(0);
        self.code.def_var(there, some);
        self.move_to(behind);
    }

    /// What is pending from a text that is known.
    fn load_pending(&mut self, known: Option<&'e [u8]>) {
        let known = known.unwrap_or_default();
        let (state, known, len) = (self.state(), self.address(known), self.constant(known.len() as i64));
        self.call(calls::load_pending as *const u8, &[state, known, len], None);
    }

    /// A string from what is pending.
    pub(in super::super) fn take_pending(&mut self, place: Place, bound: u32, frame: Value) {
        let take =
            if self.is_shared(place) { calls::take_shared as *const u8 } else { calls::take_pending as *const u8 };
        let (state, string, bound) = (self.state(), self.place_address(place, frame), self.constant(bound.into()));
        self.call_well(take, &[state, string, bound]);
    }

    /// A string from a field that is always there.
    pub(in super::super) fn get_text(&mut self, place: Place, field: &'e Field, bound: u32, frame: Value) {
        if is_combined(field) || self.is_shared(place) {
            self.test_text(field);
            return self.take_pending(place, bound, frame);
        }
        let Some(target) = self.target(place, frame) else { return };
        let initial = field.initial_bytes().unwrap_or_default();
        match field.operator {
            Operator::Constant => self.set_known(target, initial, bound),
            Operator::None => self.read_text(target, field, bound),
            _ => {
                let bit = self.take_bit();
                self.branch(
                    bit,
                    |emit| {
                        emit.read_text(target, field, bound);
                        if field.operator == Operator::Copy {
                            emit.on_previous(calls::keep_text as *const u8, target, field, bound);
                        }
                    },
                    |emit| match field.operator {
                        Operator::Copy => emit.repeat_text(target, field, bound),
                        _ => emit.set_known(target, initial, bound),
                    },
                );
            }
        }
    }

    /// A string from the previous text: here if it is short, else by a function.
    fn repeat_text(&mut self, target: Target, field: &Field, bound: u32) {
        let (other, done) = (self.cold(), self.code.create_block());
        self.take_previous(target, field, bound, other);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(other);
        self.on_previous(calls::load_text as *const u8, target, field, bound);
        self.code.ins().jump(done, &[]);
        self.code.switch_to_block(done);
    }

    /// Moves a text between a string and its slot.
    fn on_previous(&mut self, function: *const u8, target: Target, field: &Field, bound: u32) {
        let (state, slots, string) = (self.state(), self.slots(field), self.string(target));
        let bound = self.constant(bound.into());
        self.call_well(function, &[state, slots, string, bound]);
    }

    /// A string from a text that is known.
    fn set_known(&mut self, target: Target, known: &'e [u8], bound: u32) {
        let unwind = self.unwind;
        if bound > 0 && known.len() > bound as usize {
            let one = self.code.ins().iconst(types::I8, 1);
            return self.or_else(one, unwind);
        }
        let capacity = self.load(types::I64, target.base, target.offset + target.words.capacity as i32);
        let wanted = known.len().max(SHORT_TEXT) as i64;
        let small = self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, capacity, wanted);
        self.rarely(small, |emit| {
            let (state, string, wanted) = (emit.state(), emit.string(target), emit.constant(wanted));
            emit.call_well(calls::grow as *const u8, &[state, string, wanted]);
        });
        let data = self.load(types::I64, target.base, target.offset + target.words.pointer as i32);
        let len = self.constant(known.len() as i64);
        if known.len() > SHORT {
            let known = self.address(known);
            self.call(shims::copy as *const u8, &[known, data, len], None);
        } else {
            for (scalar, at, word) in pieces(known) {
                let word = self.constant(word as i64);
                let word = self.reorder(word, scalar, Order::Little);
                self.store_scalar(scalar, word, data, at);
            }
        }
        self.store(len, target.base, target.offset + target.words.len as i32);
    }

    /// A string from a text without its operator.
    fn read_text(&mut self, target: Target, field: &Field, bound: u32) {
        let (here, end) = (self.here(), self.code.use_var(self.end));
        let (state, string, bound) = (self.state(), self.string(target), self.constant(bound.into()));
        let function = if field.kind == FieldKind::Ascii {
            calls::read_ascii as *const u8
        } else {
            calls::read_counted as *const u8
        };
        let arguments = [state, here, end, string, bound];
        let behind = self.call_or_leave(function, &arguments);
        self.move_to(behind);
    }

    fn target(&self, place: Place, frame: Value) -> Option<Target> {
        let (base, offset, node) = self.place(place, frame)?;
        match &self.layout().node(node).kind {
            Kind::String { words: Some(words), .. } => Some(Target { base, offset, words: *words }),
            _ => None,
        }
    }

    /// A field's slot and text slot, for what is called.
    pub(super) fn slots(&mut self, field: &Field) -> Value {
        self.constant((u64::from(field.slot) << 32 | u64::from(field.text)) as i64)
    }

    fn string(&mut self, target: Target) -> Value {
        self.code.ins().iadd_imm_s(target.base, i64::from(target.offset))
    }
}

/// Whether a field's texts are likely to be kept inline, and not to be: like its first, if that
/// is known.
fn likely(field: &Field) -> [bool; 2] {
    let first = field.initial_bytes().map(|initial| initial.len() <= IN_SLOT);
    [first != Some(false), first != Some(true)]
}

/// A text as words of at most eight bytes, with where they are; the last may overlap the one
/// before.
fn pieces(text: &[u8]) -> impl Iterator<Item = (Scalar, i32, u64)> {
    let largest = [(8, Scalar::U64), (4, Scalar::U32), (2, Scalar::U16), (1, Scalar::U8)];
    let (size, scalar) = largest.into_iter().find(|(size, _)| *size <= text.len()).unwrap_or((1, Scalar::U8));
    let starts = (0..text.len() / size * size).step_by(size);
    let last = (!text.len().is_multiple_of(size)).then(|| text.len() - size);
    starts.chain(last).map(move |at| {
        let word = text[at..at + size].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        (scalar, at as i32, word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_text() {
        let text: alloc::vec::Vec<u8> = (1..=SHORT as u8).collect();
        for len in 0..=text.len() {
            let mut covered = alloc::vec![0; len];
            for (scalar, at, word) in pieces(&text[..len]) {
                let bytes = &word.to_le_bytes()[..scalar.size()];
                covered[at as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            assert_eq!(covered, text[..len]);
        }
    }
}
