//! The walk over the operations of a block, for both directions. What most operations become is in
//! `jit/decode.rs`, `jit/encode.rs` and their helpers. The code touches what those touch.

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC, types};

use super::{SLACK, emit::Emit, join::sets_bit, shims};
use crate::{
    layout::Scalar,
    program::{Block, Bytes, Op, OpKind, Place, SlotOp, Source, TextForm, interp::bytes::filled},
};

/// The most members of which the set of those seen is kept on the stack.
const MAX_INLINE_MEMBERS: usize = 512;

impl<'e> Emit<'e, '_> {
    /// Emits a block.
    pub(super) fn block(&mut self, block: &'e Block, frame: Value) {
        let mut ops = block.0.iter().peekable();
        while let Some(op) = ops.next() {
            if self.has_given_up() {
                return;
            }
            match (&op.kind, ops.peek().map(|next| &next.kind)) {
                (OpKind::Slot(SlotOp::SlotState(slot)), Some(OpKind::Switch { labels, arms, otherwise }))
                    if self.direct =>
                {
                    self.slot_switch(*slot, (labels, arms, otherwise), frame);
                    ops.next();
                }
                // A bit that is only branched on need not become a boolean.
                (OpKind::TakeBit, Some(OpKind::If { then, otherwise })) if self.direct => {
                    let bit = self.take_bit();
                    self.set(bit, Scalar::Bool);
                    // Operators are made to leave a field out.
                    self.choose(bit, [then, otherwise], [true, false], frame);
                    ops.next();
                }
                (
                    OpKind::Bytes(bytes @ (Bytes::SlotHas { .. } | Bytes::Equal(_))),
                    Some(OpKind::If { then, otherwise }),
                ) if self.direct => {
                    let blocks = [then, otherwise];
                    let ask = |emit: &mut Self, yes, no| emit.ask_bytes(bytes, yes, no);
                    self.choose_by(ask, blocks, blocks.map(sets_bit), frame);
                    ops.next();
                }
                // The string operation checks its bytes itself.
                (
                    OpKind::Bytes(Bytes::Utf8(_)),
                    Some(OpKind::Text { form: TextForm::Held, place: Place::At { .. }, .. }),
                ) if self.direct => {}
                _ => self.op(op, frame),
            }
        }
    }

    /// Emits a block whose accumulator is not used behind it.
    pub(super) fn inner(&mut self, block: &'e Block, frame: Value) {
        self.block(block, frame);
        self.accumulator = None;
    }

    /// Emits an operation. The verifier refuses those of the other direction.
    fn op(&mut self, op: &'e Op, frame: Value) {
        let encodes = self.encodes();
        match &op.kind {
            OpKind::Need(n) if encodes => self.room(op, i64::from(*n) + SLACK as i64),
            OpKind::Need(n) => self.decode_need(op, i64::from(*n)),
            // It writes nothing, and there may be no room for the wide store of zeros.
            OpKind::Align(1) if encodes => {}
            OpKind::Align(n) => {
                if encodes {
                    let (here, zero) = (self.here(), self.constant(0));
                    self.store(zero, here, 0);
                }
                self.align(*n);
            }
            OpKind::Run { segments, size } if encodes => self.encode_run(segments, *size, frame),
            OpKind::Run { segments, size } => {
                self.decode_run(op, segments, frame);
                self.advance(i64::from(*size));
            }
            OpKind::Literal(bytes) => self.encode_literal(bytes),
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
            OpKind::Put(wire) => self.encode_put(op, wire),
            OpKind::Const(scalar, bits) => self.constant_accumulator(*scalar, *bits),
            OpKind::Length(place) => {
                let (_, len) = self.slice(*place, frame);
                self.set(len, Scalar::U64);
            }
            OpKind::Index => {
                // Direct code does not keep it.
                let index = self.index.unwrap_or_else(|| self.context());
                self.set(index, Scalar::U64);
            }
            OpKind::Convert(to) => self.convert(op, *to),
            OpKind::Check(check) => self.check(op, check),
            OpKind::Text { place, form, bound, utf16_bound, after, .. } if encodes => {
                self.encode_text(op, *place, form, (*bound, *utf16_bound, i64::from(*after)), frame);
            }
            OpKind::Text { place, form, bound, .. } => self.decode_text(op, *place, form, *bound, frame),
            OpKind::Bulk { place, scalar, order, bound, .. } => {
                let form = (*scalar, *order, *bound);
                if encodes {
                    self.encode_bulk(op, *place, form, frame)
                } else {
                    self.decode_bulk(op, *place, form, frame)
                }
            }
            OpKind::Sequence { place, element, bound, .. } if encodes => {
                self.encode_sequence(op, *place, element, *bound, frame);
            }
            OpKind::Sequence { place, source, element, bound, overflow, min_wire } => match source {
                Source::Count => self.decode_counted(op, *place, (element, *bound, overflow, *min_wire), frame),
                Source::Fixed(n) => self.decode_fixed(*place, *n, element, frame),
                Source::Dialect(dialect) => self.decode_delimited(op, *place, dialect, element, frame),
                Source::Append(_) => self.by_interpreter(op, frame),
            },
            OpKind::IfPresent { place, then, otherwise } => self.if_present(*place, [then, otherwise], frame),
            OpKind::Present { place, body } => self.decode_present(op, *place, body, frame),
            OpKind::Clear(place) => self.decode_clear(op, *place, frame),
            OpKind::Unbox { place, body } => {
                let value = match self.place(*place, frame) {
                    None => frame,
                    Some((.., node)) => {
                        let function = self.either(shims::unbox_mut as *const u8, shims::unbox as *const u8);
                        let at = self.place_address(*place, frame);
                        let node = self.address(&self.layout().node(node).kind);
                        self.call_word(function, &[node, at])
                    }
                };
                self.inner(body, value);
            }
            OpKind::Union { place, arms, none } => self.encode_union(*place, arms, none, frame),
            OpKind::Select { place, case, body } => self.decode_select(op, *place, *case, body, frame),
            OpKind::Switch { labels, arms, otherwise } => self.switch(labels, arms, otherwise, frame),
            OpKind::If { then, otherwise } => {
                let condition = self.accumulator().value;
                let blocks = [then, otherwise];
                self.choose(condition, blocks, blocks.map(sets_bit), frame);
            }
            OpKind::TakeBit => self.decode_bit(op),
            OpKind::KnownBits { zeros, one } if encodes => self.put_bits(op, *zeros, *one),
            OpKind::KnownBits { zeros, one } => self.expect_bits(op, *zeros, *one),
            OpKind::Slot(op) => self.slot_op(*op),
            OpKind::Decimal(decimal) => self.decimal(op, decimal),
            OpKind::PresenceMap { bits, policy, body } => self.presence_map(op, (*bits, *policy), body, frame),
            OpKind::Test(kernel) => {
                let word = self.word();
                self.call_status(op, kernel.test as *const u8, &[self.context(), word]);
                let value = self.load_word(0);
                let value = self.code.ins().icmp_imm_s(IntCC::NotEqual, value, 0);
                let value = self.code.ins().uextend(types::I64, value);
                self.set(value, Scalar::Bool);
            }
            OpKind::Action(kernel, argument) => {
                let function = self.either(kernel.get as *const u8, kernel.put as *const u8);
                let argument = self.constant(*argument as i64);
                self.call_status(op, function, &[self.context(), argument]);
            }
            OpKind::Region { dialect, argument, body } if encodes => {
                self.encode_region(op, dialect, *argument, body, frame);
            }
            OpKind::Region { dialect, argument, body } => self.decode_region(op, dialect, *argument, body, frame),
            OpKind::Members { dialect, arms, table } if arms.len() <= MAX_INLINE_MEMBERS => {
                self.decode_members(op, dialect, arms, table, frame);
                self.accumulator = None;
            }
            OpKind::Call { routine, place } => {
                let frame = self.place_address(*place, frame);
                self.call_routine(op, *routine, frame);
                if encodes {
                    self.accumulator = None;
                }
            }
            OpKind::Bytes(bytes) if self.direct => self.stream_bytes(op, bytes, frame),
            OpKind::Bytes(bytes) => {
                self.by_interpreter(op, frame);
                self.take_filled(filled(bytes));
            }
            OpKind::Fail(_) if self.direct => self.bail_out(),
            OpKind::SetText(..) | OpKind::Fail(_) | OpKind::Slice { .. } => self.by_interpreter(op, frame),
            OpKind::Map { .. } | OpKind::Members { .. } => {
                self.by_interpreter(op, frame);
                self.accumulator = None;
            }
        }
    }

    /// Emits a call of the interpreter for one operation.
    fn by_interpreter(&mut self, op: &'e Op, frame: Value) {
        match self.encodes() {
            true => self.encode_by_interpreter(op, frame),
            false => self.decode_by_interpreter(op, frame),
        }
    }
}
