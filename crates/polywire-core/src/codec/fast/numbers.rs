//! Lowers integers with operators to ordinary operations: presence bits, slots, and stop-bit
//! integers. Both dialects, `decimals` and `texts` call it. It only emits into [`Ops`].
//!
//! A mandatory integer is in the accumulator. An optional one is read into the local [`VALUE`], and
//! [`THERE`] says whether it is present.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use super::field::{Field, FieldKind, Initial, Operator};
use crate::{
    layout::Scalar,
    program::{
        Arithmetic, Block, Check, FaultKind, NO_VALUE, Op, OpKind, Operand, PathId, Policy, SlotOp, StopBit, Wire,
    },
};

/// The local of a value.
pub(super) const VALUE: u8 = 0;
/// The local that is 1 if the value is present, else 0.
pub(super) const THERE: u8 = 1;
/// The local of the base to which a difference is added.
const BASE: u8 = 2;

/// States of slots.
const UNDEFINED: i64 = 0;
const EMPTY: i64 = 1;

/// An integer field.
#[derive(Clone, Debug)]
pub(super) struct Int {
    /// Its type.
    pub scalar: Scalar,
    optional: bool,
    operator: Operator,
    slot: u32,
    /// The kind of its values in a slot.
    kind: u8,
    initial: Option<u64>,
    policy: Policy,
}

/// How all fields of a slot use it.
#[derive(Clone, Debug)]
pub(super) struct SlotUse {
    kind: u8,
    /// True if the slot has values of several types.
    is_mixed: bool,
    may_be_empty: bool,
    /// The value that an undefined slot is equivalent to, if any.
    begins: Option<Initial>,
    /// `begins` is the same for all fields.
    agrees: bool,
}

/// How fields use all slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses(BTreeMap<u32, SlotUse>);

impl Uses {
    /// Records a field's use of its slots.
    pub fn note(&mut self, field: &Field) {
        if !field.has_slot() {
            return;
        }
        self.and(field.slot, SlotUse::of(field));
        if field.kind == FieldKind::Decimal {
            let begins = field.initial_decimal().map(|(_, mantissa)| mantissa as u64);
            let begins = if field.operator == Operator::Delta { Some(begins.unwrap_or(0)) } else { begins };
            let begins = begins.map(Initial::Int);
            self.and(field.text, SlotUse { may_be_empty: false, begins, ..SlotUse::of(field) });
        }
    }

    fn and(&mut self, slot: u32, own: SlotUse) {
        self.0.entry(slot).and_modify(|all| all.and(&own)).or_insert(own);
    }

    /// How fields use the slot of a field.
    pub fn of(&self, field: &Field) -> SlotUse {
        self.0.get(&field.slot).cloned().unwrap_or_else(|| SlotUse::of(field))
    }

    /// True if all fields of a slot have the same initial value.
    pub fn agrees(&self, slot: u32) -> bool {
        self.0.get(&slot).is_none_or(|slot| slot.agrees)
    }
}

impl SlotUse {
    /// How one field uses its slot.
    fn of(field: &Field) -> SlotUse {
        let exponent = || match (field.operator, field.initial_decimal()) {
            (Operator::Delta, initial) => Some(initial.map_or(0, |initial| initial.0)),
            (_, initial) => initial.map(|initial| initial.0),
        };
        SlotUse {
            kind: field.tag,
            is_mixed: false,
            may_be_empty: field.optional && field.operator != Operator::Delta,
            begins: match field.kind {
                FieldKind::Decimal => exponent().map(|exponent| Initial::Int(exponent as u64)),
                _ if !field.kind.is_text() => Int::of(field).and_then(|int| int.begins()).map(Initial::Int),
                _ if field.operator == Operator::Delta => {
                    Some(Initial::Bytes(field.initial_bytes().unwrap_or_default().into()))
                }
                _ => field.initial.clone(),
            },
            agrees: true,
        }
    }

    /// Adds the use by another field.
    fn and(&mut self, other: &SlotUse) {
        self.is_mixed |= self.kind != other.kind;
        self.may_be_empty |= other.may_be_empty;
        self.agrees &= self.begins == other.begins;
    }

    /// True if the slot has values of several types.
    pub fn is_mixed(&self) -> bool {
        self.is_mixed
    }

    /// True if all fields have the same initial value.
    pub fn agrees(&self) -> bool {
        self.agrees
    }

    /// True if the slot is always undefined or has a value of one type.
    fn is_simple(&self) -> bool {
        !self.is_mixed && !self.may_be_empty
    }
}

impl Int {
    /// The integer of a field; none if the field is not an integer.
    pub fn of(field: &Field) -> Option<Int> {
        let FieldKind::Int(scalar) = field.kind else { return None };
        let initial = match field.initial {
            Some(Initial::Int(bits)) => Some(bits),
            _ => None,
        };
        let Field { optional, operator, slot, tag: kind, policy, .. } = *field;
        Some(Int { scalar, optional, operator, slot, kind, initial, policy })
    }

    /// The value that an undefined slot is equivalent to. For the operator increment, this is the
    /// value before the initial one.
    fn begins(&self) -> Option<u64> {
        match (self.operator, self.initial) {
            (Operator::Delta, initial) => Some(initial.unwrap_or(0)),
            (Operator::Increment, Some(initial)) => {
                let (min, max) = self.scalar.range().unwrap_or_default();
                Some(if initial == min as u64 { max as u64 } else { initial.wrapping_sub(1) })
            }
            (_, initial) => initial,
        }
    }

    fn form(&self) -> StopBit {
        let there = self.optional.then_some(THERE);
        StopBit { there, policy: self.policy, ..StopBit::new(self.scalar) }
    }

    fn difference(&self) -> StopBit {
        StopBit { base: Some(BASE), ..self.form() }
    }

    fn load(&self) -> SlotOp {
        SlotOp::LoadSlot { slot: self.slot, scalar: self.scalar, initial: self.begins().unwrap_or(NO_VALUE) }
    }

    fn store(&self) -> SlotOp {
        SlotOp::StoreSlot { slot: self.slot, kind: self.kind }
    }

    fn constant(&self, bits: u64) -> OpKind {
        OpKind::Const(self.scalar, u128::from(bits) & (u128::MAX >> (128 - 8 * self.scalar.size())))
    }

    /// Emits the reading of the field.
    pub fn get(&self, ops: &mut Ops, slot: &SlotUse) {
        match self.operator {
            Operator::None => self.get_plain(ops),
            Operator::Constant => {
                ops.get_constant(self.optional);
                ops.put(self.constant(self.initial.unwrap_or(0)));
                self.keep(ops);
            }
            Operator::Default => {
                ops.put(OpKind::TakeBit);
                ops.choose(
                    |ops| self.get_plain(ops),
                    |ops| {
                        if self.optional {
                            ops.set(THERE, self.initial.is_some().into());
                        }
                        ops.put(self.constant(self.initial.unwrap_or(0)));
                        self.keep(ops);
                    },
                );
            }
            Operator::Delta => self.get_difference(ops, slot),
            _ => {
                ops.put(OpKind::TakeBit);
                ops.choose(|ops| self.get_sent(ops), |ops| self.get_left_out(ops, slot));
            }
        }
    }

    /// Emits the move of the value that was read to its place: accumulator or local.
    fn keep(&self, ops: &mut Ops) {
        if self.optional {
            ops.put(SlotOp::StoreLocal(VALUE));
        }
    }

    /// Emits the reading of the field as if it had no operator.
    pub fn get_plain(&self, ops: &mut Ops) {
        ops.put(OpKind::Get(Wire::StopBit(self.form())));
        self.keep(ops);
    }

    fn get_sent(&self, ops: &mut Ops) {
        self.get_plain(ops);
        let keep = |ops: &mut Ops| {
            if self.optional {
                ops.put(SlotOp::LoadLocal(VALUE, self.scalar));
            }
            ops.put(self.store());
        };
        ops.if_there(self.optional, keep, |ops| ops.put(SlotOp::EmptySlot(self.slot)));
    }

    fn get_left_out(&self, ops: &mut Ops, slot: &SlotUse) {
        let value = |ops: &mut Ops, is_initial: bool| {
            match is_initial {
                true => ops.put(self.constant(self.begins().unwrap_or(0))),
                false => ops.put(self.load()),
            }
            if self.operator == Operator::Increment {
                ops.put(SlotOp::Compute(Arithmetic::Add, Operand::Constant(1)));
            }
            if is_initial || self.operator == Operator::Increment {
                ops.put(self.store());
            }
            self.keep(ops);
            if self.optional {
                ops.set(THERE, 1);
            }
        };
        let absent = |ops: &mut Ops| {
            ops.all([self.constant(0), SlotOp::StoreLocal(VALUE).into()]);
            ops.set(THERE, 0);
        };
        let begins = self.begins().map(|_| slot.agrees);
        ops.previous((self.slot, self.kind, self.optional), begins, slot, value, absent);
    }

    /// Emits the loading of the base of a difference, without a check of the slot's state.
    fn base(&self, ops: &mut Ops, slot: &SlotUse) {
        let mut arms = Vec::new();
        if !slot.agrees {
            let initial = self.constant(self.initial.unwrap_or(0));
            arms.push((vec![UNDEFINED], ops.block(|ops| ops.put(initial))));
        }
        if arms.is_empty() {
            ops.put(self.load());
        } else {
            let otherwise = ops.block(|ops| ops.put(self.load()));
            ops.switch(self.slot, arms, otherwise);
        }
        ops.put(SlotOp::StoreLocal(BASE));
    }

    fn get_difference(&self, ops: &mut Ops, slot: &SlotUse) {
        self.base(ops, slot);
        ops.put(OpKind::Get(Wire::StopBit(self.difference())));
        if !self.optional && slot.is_simple() {
            return ops.put(self.store());
        }
        let keep = |ops: &mut Ops| {
            ops.check_base((self.slot, self.kind), slot);
            ops.all([SlotOp::LoadLocal(VALUE, self.scalar), self.store()]);
        };
        ops.put(SlotOp::StoreLocal(VALUE));
        ops.if_there(self.optional, keep, |_| {});
    }

    /// Emits the writing of the accumulator, which has the field's type.
    pub fn put(&self, ops: &mut Ops, slot: &SlotUse) {
        let plain = OpKind::Put(Wire::StopBit(self.form()));
        match (self.operator, self.initial) {
            (Operator::None, _) => ops.put(plain),
            (Operator::Constant, initial) => {
                ops.put(SlotOp::Compute(Arithmetic::Equal, Operand::Constant(initial.unwrap_or(0))));
                ops.put_constant(self.optional);
            }
            (Operator::Default, None) => {
                ops.bit(true);
                ops.put(plain);
            }
            (Operator::Default, Some(initial)) => {
                ops.put(SlotOp::StoreLocal(VALUE));
                ops.put(SlotOp::Compute(Arithmetic::Equal, Operand::Constant(initial)));
                ops.put_unless(|_| {}, |ops| ops.all([SlotOp::LoadLocal(VALUE, self.scalar).into(), plain]));
            }
            (Operator::Delta, _) => {
                ops.put(SlotOp::StoreLocal(VALUE));
                self.base(ops, slot);
                ops.check_base((self.slot, self.kind), slot);
                ops.all([SlotOp::LoadLocal(VALUE, self.scalar), self.store()]);
                ops.put(OpKind::Put(Wire::StopBit(self.difference())));
            }
            _ => {
                ops.put(SlotOp::StoreLocal(VALUE));
                if self.operator == Operator::Increment {
                    ops.put(SlotOp::Compute(Arithmetic::Subtract, Operand::Constant(1)));
                }
                ops.put(SlotOp::SlotHas { slot: self.slot, kind: self.kind, initial: self.begins() });
                let changes = self.operator == Operator::Increment || self.begins().is_some() && !slot.agrees;
                let keep = |ops: &mut Ops| ops.all([SlotOp::LoadLocal(VALUE, self.scalar), self.store()]);
                ops.put_unless(
                    |ops| {
                        if changes {
                            keep(ops);
                        }
                    },
                    |ops| {
                        keep(ops);
                        ops.put(plain);
                    },
                );
            }
        }
    }

    /// Emits the conversion of the accumulator from another type to the field's type.
    pub fn convert(&self, ops: &mut Ops, from: Scalar) {
        let wide = if self.scalar.is_signed() { Scalar::I64 } else { Scalar::U64 };
        let holds = |to: Scalar| matches!((to.range(), from.range()), (Some(to), Some(from)) if to.0 <= from.0 && from.1 <= to.1);
        if !holds(self.scalar) {
            if from != wide {
                ops.put(OpKind::Convert(wide));
            }
            if let Some((min, max)) = self.scalar.range().filter(|_| self.scalar != wide) {
                let (fault, policy) = (FaultKind::IntegerRange, Policy::Reject);
                ops.put(OpKind::Check(Check::Within { min: min as i64, max: max as i64, fault, policy }));
            }
        }
        if self.scalar != from && (holds(self.scalar) || self.scalar != wide) {
            ops.put(OpKind::Convert(self.scalar));
        }
    }
}

/// Operations of one path.
pub(super) struct Ops {
    path: PathId,
    ops: Vec<Op>,
}

impl Ops {
    /// Starts without operations.
    pub fn new(path: PathId) -> Ops {
        Ops { path, ops: Vec::new() }
    }

    /// All operations, as a block.
    pub fn into_block(self) -> Block {
        Block(self.ops)
    }

    /// Emits an operation.
    pub fn put(&mut self, kind: impl Into<OpKind>) {
        self.ops.push(Op { path: self.path, kind: kind.into() });
    }

    /// Emits the operations of a block.
    pub fn append(&mut self, block: &Block) {
        self.ops.extend_from_slice(&block.0);
    }

    /// A block of the same path.
    pub fn block(&self, fill: impl FnOnce(&mut Ops)) -> Block {
        let mut inner = Ops::new(self.path);
        fill(&mut inner);
        inner.into_block()
    }

    /// A block that fails.
    pub fn fault(&self, kind: FaultKind) -> Block {
        self.block(|ops| ops.put(OpKind::Fail(kind)))
    }

    /// Emits a choice by the accumulator.
    pub fn choose(&mut self, then: impl FnOnce(&mut Ops), otherwise: impl FnOnce(&mut Ops)) {
        let (then, otherwise) = (self.block(then), self.block(otherwise));
        self.put(OpKind::If { then, otherwise });
    }

    /// Emits several operations.
    pub fn all<const N: usize>(&mut self, kinds: [impl Into<OpKind>; N]) {
        kinds.into_iter().for_each(|kind| self.put(kind));
    }

    /// Emits a choice by the state of a slot.
    pub fn switch(&mut self, slot: u32, arms: Vec<(Vec<i64>, Block)>, otherwise: Block) {
        self.put(SlotOp::SlotState(slot));
        self.put(OpKind::switch(arms, otherwise));
    }

    /// Emits a choice by whether the value is present, if it is optional.
    pub fn if_there(&mut self, optional: bool, then: impl FnOnce(&mut Ops), absent: impl FnOnce(&mut Ops)) {
        match optional {
            true => {
                self.test(THERE);
                self.choose(then, absent);
            }
            false => then(self),
        }
    }

    /// Emits the reading of the presence bit of a constant.
    pub fn get_constant(&mut self, optional: bool) {
        if optional {
            self.put(OpKind::TakeBit);
            self.choose(|ops| ops.set(THERE, 1), |ops| ops.set(THERE, 0));
        }
    }

    /// Emits the writing of a constant. The accumulator says whether the value equals it.
    pub fn put_constant(&mut self, optional: bool) {
        let bit = |ops: &mut Ops| {
            if optional {
                ops.bit(true);
            }
        };
        self.choose(bit, |ops| ops.put(OpKind::Fail(FaultKind::NotEncodable)));
    }

    /// Emits a small number for a local.
    pub fn set(&mut self, local: u8, value: u64) {
        self.all([OpKind::Const(Scalar::U8, value.into()), SlotOp::StoreLocal(local).into()]);
    }

    /// Emits a test of a local that is 1 or 0.
    pub fn test(&mut self, local: u8) {
        self.put(SlotOp::LoadLocal(local, Scalar::U8));
        self.put(SlotOp::Compute(Arithmetic::Equal, Operand::Constant(1)));
    }

    /// Emits a fault if the value is absent.
    pub fn demand(&mut self, kind: FaultKind) {
        self.test(THERE);
        let otherwise = self.fault(kind);
        self.put(OpKind::If { then: Block::default(), otherwise });
    }

    /// Emits a bit of the presence map.
    pub fn bit(&mut self, bit: bool) {
        self.put(OpKind::KnownBits { zeros: u32::from(!bit), one: bit });
    }

    /// Emits the null value.
    pub fn null(&mut self) {
        self.put(OpKind::Literal([0x80].into()));
    }

    /// Emits a presence bit that is set if the accumulator, a boolean, is false, with the
    /// continuations for both cases.
    pub fn put_unless(&mut self, same: impl FnOnce(&mut Ops), other: impl FnOnce(&mut Ops)) {
        self.choose(
            |ops| {
                ops.bit(false);
                same(ops);
            },
            |ops| {
                ops.bit(true);
                other(ops);
            },
        );
    }

    /// Emits the absence of a simple field, which has no parts.
    pub fn absent(&mut self, field: &Field) {
        let (slot, has_initial) = (field.slot, field.initial.is_some());
        let null = |ops: &mut Ops| {
            ops.bit(true);
            ops.null();
        };
        match field.operator {
            _ if !field.optional => self.put(OpKind::Fail(FaultKind::MissingMember)),
            Operator::None | Operator::Delta => self.null(),
            Operator::Constant => self.bit(false),
            Operator::Default if has_initial => null(self),
            Operator::Default => self.bit(false),
            _ => {
                let labels = if has_initial { vec![EMPTY] } else { vec![UNDEFINED, EMPTY] };
                let (same, otherwise) = (self.block(|ops| ops.bit(false)), self.block(null));
                self.switch(slot, vec![(labels, same)], otherwise);
                self.put(SlotOp::EmptySlot(slot));
            }
        }
    }

    /// Emits the reading of a field that the message omits. Depending on the state of the slot, it
    /// takes the previous value (`value`), the initial value, or runs `absent`. `begins` says
    /// whether there is an initial value, and whether all fields of the slot agree on it.
    pub fn previous(
        &mut self,
        (slot, kind, optional): (u32, u8, bool),
        begins: Option<bool>,
        uses: &SlotUse,
        value: impl Fn(&mut Ops, bool),
        absent: impl Fn(&mut Ops),
    ) {
        let mut arms = Vec::new();
        match begins {
            Some(true) => {}
            Some(false) => arms.push((vec![UNDEFINED], self.block(|ops| value(ops, true)))),
            None if optional => {
                let block = self.block(|ops| {
                    ops.put(SlotOp::EmptySlot(slot));
                    absent(ops);
                });
                arms.push((vec![UNDEFINED, EMPTY], block));
            }
            None => arms.push((vec![UNDEFINED], self.fault(FaultKind::NoPrevious))),
        }
        match optional {
            true if begins.is_some() => arms.push((vec![EMPTY], self.block(absent))),
            false if uses.may_be_empty => arms.push((vec![EMPTY], self.fault(FaultKind::EmptyPrevious))),
            _ => {}
        }
        self.on_state((slot, kind), uses, arms, |ops| value(ops, false));
    }

    /// Emits a switch on the state of the slot. A state without an arm is that of a value.
    fn on_state(
        &mut self,
        (slot, kind): (u32, u8),
        uses: &SlotUse,
        mut arms: Vec<(Vec<i64>, Block)>,
        value: impl Fn(&mut Ops),
    ) {
        if arms.is_empty() && !uses.is_mixed {
            return value(self);
        }
        let mut otherwise = self.block(&value);
        if uses.is_mixed {
            let fault = self.fault(FaultKind::PreviousType);
            let mut labels = vec![kind.into()];
            if !arms.iter().any(|(labels, _)| labels.contains(&UNDEFINED)) {
                labels.push(UNDEFINED);
            }
            arms.push((labels, core::mem::replace(&mut otherwise, fault)));
        }
        self.switch(slot, arms, otherwise);
    }

    /// Emits a fault if the slot has no base for a difference.
    pub fn check_base(&mut self, slot: (u32, u8), uses: &SlotUse) {
        if !uses.is_simple() {
            let arms = vec![(vec![EMPTY], self.fault(FaultKind::EmptyPrevious))];
            self.on_state(slot, uses, arms, |_| {});
        }
    }

    /// Emits a fault if the slot has a value of another type.
    pub fn check_kind(&mut self, (slot, kind): (u32, u8)) {
        let otherwise = self.fault(FaultKind::PreviousType);
        self.switch(slot, vec![(vec![UNDEFINED, EMPTY, kind.into()], Block::default())], otherwise);
    }
}
