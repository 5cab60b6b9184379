//! Lowers strings and byte vectors with operators to ordinary operations: presence bits, slots, and
//! the bytes in hand. Both dialects call it. It only emits into [`Ops`].
//!
//! The presence of an optional value is known only inside the branches of its reading. So the
//! continuations for a present and for an absent value are emitted in these branches.

use alloc::boxed::Box;
use core::ops::Range;

use super::{
    field::{Field, FieldKind, Operator},
    numbers::{Ops, SlotUse, THERE, Uses},
};
use crate::{
    layout::Scalar,
    program::{
        ByteSlot, Bytes, BytesForm, Check, Coding, FaultKind, OpKind, PartKernel, Policy, SlotOp, StopBit, Wire,
    },
};

/// The local of the number that goes with a part.
const NUMBER: u8 = 3;

/// The part kernel of the operator tail: the part is the differing end, which replaces as many
/// bytes at the end of the previous value.
static TAIL: PartKernel = PartKernel {
    name: "fast.tail",
    split: |known, value| differing_end(known, value).map(|start| (0, start..value.len())),
    join: |known, part, _| Some((known.saturating_sub(part), 0)),
};

/// The part kernel of the operator delta: the part replaces `number` bytes at the end of the
/// previous value, or `-1 - number` bytes at its front if the number is negative. So -1 replaces no
/// bytes at the front.
static DELTA: PartKernel = PartKernel {
    name: "fast.delta",
    split: |known, value| Some(replaced(known, value)),
    join: |known, _, number| match usize::try_from(number) {
        Ok(number) => Some((known.checked_sub(number)?, 0)),
        Err(_) => Some((0, known.checked_sub(usize::try_from(!number).ok()?)?)),
    },
};

/// The position where a value begins to differ; none if the value is shorter, which a tail cannot
/// represent.
fn differing_end(known: &[u8], value: &[u8]) -> Option<usize> {
    match known.len() == value.len() {
        true => Some(common(known.iter(), value.iter())),
        false => (known.len() < value.len()).then_some(0),
    }
}

fn replaced(known: &[u8], value: &[u8]) -> (i64, Range<usize>) {
    let front = common(known.iter(), value.iter());
    let back = common(known.iter().rev(), value.iter().rev());
    match front >= back {
        true => ((known.len() - front) as i64, front..value.len()),
        false => (!((known.len() - back) as i64), 0..value.len() - back),
    }
}

fn common<'b>(a: impl Iterator<Item = &'b u8>, b: impl Iterator<Item = &'b u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

/// A string or byte vector.
pub(super) struct Text<'f> {
    field: &'f Field,
    slot: ByteSlot,
    uses: SlotUse,
}

impl<'f> Text<'f> {
    pub fn of(field: &'f Field, uses: &Uses) -> Text<'f> {
        Text { field, slot: ByteSlot { slot: field.slot, bytes: field.text }, uses: uses.of(field) }
    }

    fn form(&self, nullable: bool) -> BytesForm {
        let coding = if self.field.kind == FieldKind::Ascii { Coding::StopBit } else { Coding::Counted };
        BytesForm { coding, there: nullable.then_some(THERE), policy: self.field.policy }
    }

    /// The form of the subtraction length of a delta.
    fn number(&self) -> StopBit {
        let there = self.field.optional.then_some(THERE);
        StopBit { there, range: FaultKind::Subtraction, policy: self.field.policy, ..StopBit::new(Scalar::I32) }
    }

    fn initial(&self) -> Box<[u8]> {
        self.field.initial_bytes().unwrap_or_default().into()
    }

    fn constant(&self) -> OpKind {
        OpKind::Bytes(Bytes::Const(self.initial()))
    }

    fn store(&self) -> OpKind {
        OpKind::Bytes(Bytes::StoreSlot { slot: self.slot, kind: self.field.tag })
    }

    fn part(&self) -> OpKind {
        let kernel = if self.field.operator == Operator::Tail { &TAIL } else { &DELTA };
        OpKind::Bytes(Bytes::Part { kernel, slot: self.slot, initial: self.initial(), number: NUMBER })
    }

    /// Emits the reading of the field, with the continuations for a present and for an absent
    /// value.
    pub fn get(&self, ops: &mut Ops, then: &dyn Fn(&mut Ops), absent: &dyn Fn(&mut Ops)) {
        let known = |ops: &mut Ops| match self.field.initial_bytes() {
            Some(_) => {
                ops.put(self.constant());
                then(ops);
            }
            None => absent(ops),
        };
        match self.field.operator {
            Operator::None | Operator::Increment => self.get_sent(ops, then, absent),
            Operator::Constant if self.field.optional => {
                ops.put(OpKind::TakeBit);
                ops.choose(known, absent);
            }
            Operator::Constant => known(ops),
            Operator::Default => {
                ops.put(OpKind::TakeBit);
                ops.choose(|ops| self.get_sent(ops, then, absent), known);
            }
            Operator::Copy | Operator::Tail => {
                let keep = |ops: &mut Ops| {
                    self.keep(ops);
                    then(ops);
                };
                let empty = |ops: &mut Ops| {
                    ops.put(SlotOp::EmptySlot(self.field.slot));
                    absent(ops);
                };
                ops.put(OpKind::TakeBit);
                ops.choose(|ops| self.get_sent(ops, &keep, &empty), |ops| self.get_left_out(ops, then, absent));
            }
            Operator::Delta => {
                ops.all([OpKind::Get(Wire::StopBit(self.number())), SlotOp::StoreLocal(NUMBER).into()]);
                let rest = |ops: &mut Ops| {
                    ops.put(OpKind::Bytes(Bytes::Get(self.form(false))));
                    ops.check_base((self.field.slot, self.field.tag), &self.uses);
                    self.keep(ops);
                    then(ops);
                };
                ops.if_there(self.field.optional, rest, absent);
            }
        }
    }

    /// Emits the reading without the operator.
    fn get_sent(&self, ops: &mut Ops, then: &dyn Fn(&mut Ops), absent: &dyn Fn(&mut Ops)) {
        let then = |ops: &mut Ops| {
            if self.field.kind == FieldKind::Unicode && self.field.operator != Operator::Tail {
                ops.put(OpKind::Bytes(Bytes::Utf8(self.field.policy)));
            }
            then(ops);
        };
        ops.put(OpKind::Bytes(Bytes::Get(self.form(self.field.optional))));
        ops.if_there(self.field.optional, then, absent);
    }

    /// Emits the storing of a value in its slot. If the operator has parts, a part is in hand and
    /// is joined first.
    fn keep(&self, ops: &mut Ops) {
        if self.field.operator == Operator::Tail && self.uses.is_mixed() {
            ops.check_kind((self.field.slot, self.field.tag));
        }
        if self.field.operator != Operator::Copy {
            ops.put(self.part());
            if self.field.kind != FieldKind::Bytes {
                ops.put(OpKind::Bytes(Bytes::Utf8(self.field.policy)));
            }
        }
        ops.put(self.store());
    }

    fn get_left_out(&self, ops: &mut Ops, then: &dyn Fn(&mut Ops), absent: &dyn Fn(&mut Ops)) {
        let value = |ops: &mut Ops, is_initial: bool| {
            if is_initial {
                ops.all([self.constant(), self.store()]);
            } else {
                ops.put(OpKind::Bytes(Bytes::LoadSlot { slot: self.slot, initial: self.initial() }));
            }
            then(ops);
        };
        let begins = self.field.initial_bytes().map(|_| self.uses.agrees());
        let Field { slot, tag, optional, .. } = *self.field;
        ops.previous((slot, tag, optional), begins, &self.uses, value, absent);
    }

    /// Emits `load`, which takes the value in hand, and the writing of the field.
    pub fn put(&self, ops: &mut Ops, load: &OpKind) {
        let sent = OpKind::Bytes(Bytes::Put(self.form(self.field.optional && self.field.operator != Operator::Delta)));
        let initial = self.field.initial_bytes();
        if self.field.operator == Operator::Delta {
            ops.check_base((self.field.slot, self.field.tag), &self.uses);
        }
        ops.put(load.clone());
        match (self.field.operator, initial) {
            (Operator::None | Operator::Increment, _) => ops.put(sent),
            (Operator::Constant, _) => {
                ops.put(OpKind::Bytes(Bytes::Equal(self.initial())));
                ops.put_constant(self.field.optional);
            }
            (Operator::Default, None) => {
                ops.bit(true);
                ops.put(sent);
            }
            (Operator::Default, Some(_)) => {
                ops.put(OpKind::Bytes(Bytes::Equal(self.initial())));
                ops.put_unless(|_| {}, |ops| ops.put(sent));
            }
            (Operator::Copy | Operator::Tail, _) => {
                let (kind, initial) = (self.field.tag, initial.map(Into::into));
                ops.put(OpKind::Bytes(Bytes::SlotHas { slot: self.slot, kind, initial }));
                let changes = self.field.initial_bytes().is_some() && !self.uses.agrees();
                ops.put_unless(
                    |ops| {
                        if changes {
                            ops.put(self.store());
                        }
                    },
                    |ops| {
                        if self.field.operator == Operator::Tail {
                            ops.all([self.part(), sent, load.clone()]);
                        } else {
                            ops.put(sent);
                        }
                        ops.put(self.store());
                    },
                );
            }
            (Operator::Delta, _) => {
                let (min, max) = (i32::MIN.into(), i32::MAX.into());
                let within = Check::Within { min, max, fault: FaultKind::Subtraction, policy: Policy::Reject };
                ops.all([self.part(), SlotOp::LoadLocal(NUMBER, Scalar::I64).into(), OpKind::Check(within)]);
                ops.all([SlotOp::LoadLocal(NUMBER, Scalar::I32).into(), OpKind::Put(Wire::StopBit(self.number()))]);
                ops.all([sent, load.clone(), self.store()]);
            }
        }
    }
}
