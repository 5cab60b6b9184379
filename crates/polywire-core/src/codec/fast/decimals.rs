//! Lowers decimals, and numbers that are decimals on the wire, to ordinary operations. Both
//! dialects (`encode`, `decode`) call it. It only emits into [`Ops`].
//!
//! A decimal is in the locals [`EXPONENT`] and [`MANTISSA`]. Other numbers are where integers are:
//! in the accumulator, or in [`VALUE`] if they are optional.

use super::{
    field::{Field, FieldKind, Operator},
    numbers::{Int, Ops, SlotUse, THERE, Uses, VALUE},
};
use crate::{
    layout::Scalar,
    program::{
        Arithmetic, Check, Decimal, FaultKind, NO_DECIMAL, NO_VALUE, OpKind, Operand, Policy, SlotOp, StopBit, Wire,
    },
};

/// The locals of a decimal.
pub(super) const MANTISSA: u8 = 3;
pub(super) const EXPONENT: u8 = 4;
/// The local of a floating-point number.
const NUMBER: u8 = 5;
/// The local that is 1 if a number's decimal is present, else 0.
const FOUND: u8 = 6;
/// The locals of the bases to which differences are added.
const BASES: [u8; 2] = [2, 7];

/// A decimal with one operator for exponent and mantissa together.
struct Parts<'f> {
    field: &'f Field,
    /// How fields use the exponent's slot, whose state says whether there is a previous value.
    slot: SlotUse,
    /// All fields of the slots have the same initial value.
    agrees: bool,
}

/// The type of a field's value in the accumulator; for a decimal, the type of its parts.
pub(super) fn scalar(field: &Field) -> Scalar {
    match &field.kind {
        FieldKind::Float { single: true, .. } | FieldKind::Bits { single: true, .. } => Scalar::F32,
        FieldKind::Float { single: false, .. } | FieldKind::Bits { single: false, .. } => Scalar::F64,
        _ => Int::of(field).map_or(Scalar::I64, |int| int.scalar),
    }
}

/// Emits the conversion of the accumulator from another type to the field's type.
pub(super) fn convert(ops: &mut Ops, field: &Field, from: Scalar) {
    match Int::of(field) {
        Some(int) => int.convert(ops, from),
        None if from != scalar(field) => ops.put(OpKind::Convert(scalar(field))),
        None => {}
    }
}

/// Emits the reading of a field of any kind but texts.
pub(super) fn get(ops: &mut Ops, field: &Field, uses: &Uses) {
    match &field.kind {
        FieldKind::Decimal | FieldKind::Split(_) => get_decimal(ops, field, uses),
        FieldKind::Float { decimal, bits, .. } => {
            FloatIn { optional: field.optional, to: scalar(field), decimal, uses }.get(ops, bits.as_deref());
        }
        FieldKind::Whole(decimal) => {
            let join = Decimal::Join { exponent: EXPONENT, to: Scalar::I64, policy: field.policy };
            let value = |ops: &mut Ops| {
                ops.all([SlotOp::LoadLocal(MANTISSA, Scalar::I64).into(), OpKind::Decimal(join)]);
                if field.optional {
                    ops.put(SlotOp::StoreLocal(VALUE));
                }
            };
            get_parts(ops, decimal, uses, value, |_| {});
        }
        FieldKind::Bits { bits, .. } => {
            get(ops, bits, uses);
            if !field.optional {
                ops.all([SlotOp::StoreLocal(VALUE), SlotOp::LoadLocal(VALUE, scalar(field))]);
            }
        }
        _ => {
            if let Some(int) = Int::of(field) {
                int.get(ops, &uses.of(field));
            }
        }
    }
}

/// Emits the writing of a field from the accumulator, which has the field's type, or from the
/// locals of a decimal.
pub(super) fn put(ops: &mut Ops, field: &Field, uses: &Uses) {
    match &field.kind {
        FieldKind::Decimal | FieldKind::Split(_) => {
            ops.all([SlotOp::LoadLocal(EXPONENT, Scalar::I64).into(), within(63, Policy::Reject)]);
            put_decimal(ops, field, uses);
        }
        FieldKind::Float { decimal, bits, .. } => put_float(ops, scalar(field), decimal, bits.as_deref(), uses),
        FieldKind::Whole(decimal) => {
            ops.all([OpKind::Decimal(Decimal::Split { exponent: EXPONENT }), SlotOp::StoreLocal(MANTISSA).into()]);
            put_decimal(ops, decimal, uses);
        }
        FieldKind::Bits { bits, .. } => {
            ops.put(SlotOp::StoreLocal(VALUE));
            put_value(ops, bits, VALUE, uses);
        }
        _ => {
            if let Some(int) = Int::of(field) {
                int.put(ops, &uses.of(field));
            }
        }
    }
}

/// Emits the absence of a field of any kind.
pub(super) fn put_absent(ops: &mut Ops, field: &Field) {
    match &field.kind {
        FieldKind::Split(parts) => put_absent(ops, &parts[0]),
        FieldKind::Float { decimal, bits, .. } => {
            put_absent(ops, decimal);
            bits.iter().for_each(|bits| put_absent(ops, bits));
        }
        FieldKind::Whole(inner) | FieldKind::Bits { bits: inner, .. } => put_absent(ops, inner),
        _ => ops.absent(field),
    }
}

/// An integer from a local.
fn put_value(ops: &mut Ops, field: &Field, local: u8, uses: &Uses) {
    if let Some(int) = Int::of(field) {
        ops.put(SlotOp::LoadLocal(local, int.scalar));
        int.put(ops, &uses.of(field));
    }
}

/// Emits constants for two locals.
fn set(ops: &mut Ops, locals: [u8; 2], values: [i64; 2]) {
    for (local, value) in locals.into_iter().zip(values) {
        ops.all([OpKind::Const(Scalar::I64, (value as u64).into()), SlotOp::StoreLocal(local).into()]);
    }
}

fn set_parts(ops: &mut Ops, (exponent, mantissa): (i64, i64)) {
    set(ops, [EXPONENT, MANTISSA], [exponent, mantissa]);
}

/// The check that an exponent lies between `-most` and `most`.
fn within(most: i64, policy: Policy) -> OpKind {
    OpKind::Check(Check::Within { min: -most, max: most, fault: FaultKind::DecimalRange, policy })
}

fn get_decimal(ops: &mut Ops, field: &Field, uses: &Uses) {
    match &field.kind {
        FieldKind::Split(parts) => get_split(ops, parts, uses, |ops| check_exponent(ops, field.policy), |_| {}),
        _ => Parts::of(field, uses).get(ops, true),
    }
}

/// Emits the reading of a decimal, with the continuations for a present and for an absent one. The
/// exponent is not checked here, but where a number is made.
fn get_parts(ops: &mut Ops, field: &Field, uses: &Uses, then: impl Fn(&mut Ops), absent: impl FnOnce(&mut Ops)) {
    match &field.kind {
        FieldKind::Split(parts) => get_split(ops, parts, uses, then, absent),
        _ => {
            Parts::of(field, uses).get(ops, false);
            ops.if_there(field.optional, then, absent);
        }
    }
}

/// Emits the reading of two fields as a decimal, with the continuations for a present and for an
/// absent one.
fn get_split(
    ops: &mut Ops,
    [exponent, mantissa]: &[Field; 2],
    uses: &Uses,
    then: impl Fn(&mut Ops),
    absent: impl FnOnce(&mut Ops),
) {
    let rest = |ops: &mut Ops| {
        ops.put(SlotOp::StoreLocal(EXPONENT));
        get(ops, mantissa, uses);
        ops.put(SlotOp::StoreLocal(MANTISSA));
        then(ops);
    };
    match (Int::of(exponent), exponent.operator) {
        // The mantissa behind a known exponent has its own code.
        (Some(int), Operator::Default) if !exponent.optional => {
            let known = exponent.initial_exponent().unwrap_or_default() as u64;
            ops.put(OpKind::TakeBit);
            ops.choose(
                |ops| {
                    int.get_plain(ops);
                    rest(ops);
                },
                |ops| {
                    ops.put(OpKind::Const(Scalar::I64, known.into()));
                    rest(ops);
                },
            );
        }
        (int, _) if exponent.optional => {
            get(ops, exponent, uses);
            ops.test(THERE);
            ops.choose(
                |ops| {
                    ops.put(SlotOp::LoadLocal(VALUE, int.map_or(Scalar::I64, |int| int.scalar)));
                    rest(ops);
                },
                absent,
            );
        }
        _ => {
            get(ops, exponent, uses);
            rest(ops);
        }
    }
}

/// Exponents reach from -63 to 63.
fn check_exponent(ops: &mut Ops, policy: Policy) {
    ops.put(SlotOp::LoadLocal(EXPONENT, Scalar::I64));
    if policy != Policy::Reject {
        // The operations behind it compute with exponents of 32 bits.
        ops.put(within(i32::MAX.into(), Policy::Reject));
    }
    ops.put(within(63, policy));
}

fn put_decimal(ops: &mut Ops, field: &Field, uses: &Uses) {
    let FieldKind::Split(parts) = &field.kind else {
        return Parts::of(field, uses).put(ops);
    };
    let [exponent, mantissa] = &**parts;
    if let (Operator::Constant, Some(to)) = (exponent.operator, exponent.initial_exponent()) {
        ops.put(SlotOp::LoadLocal(MANTISSA, Scalar::I64));
        ops.all([OpKind::Decimal(Decimal::Shift { exponent: EXPONENT, to }), SlotOp::StoreLocal(MANTISSA).into()]);
    }
    put_value(ops, exponent, EXPONENT, uses);
    put_value(ops, mantissa, MANTISSA, uses);
}

/// Emits the reading of a floating-point number, which is sent as a decimal or as its bits.
struct FloatIn<'f> {
    optional: bool,
    to: Scalar,
    decimal: &'f Field,
    uses: &'f Uses,
}

impl FloatIn<'_> {
    /// `escape` is the field with the bits.
    fn get(&self, ops: &mut Ops, escape: Option<&Field>) {
        match escape {
            _ if !self.decimal.optional => get_parts(ops, self.decimal, self.uses, |ops| self.join(ops), |_| {}),
            None => self.get_alone(ops),
            Some(escape) if has_bit_of_mantissa(self.decimal) => self.get_before_escape(ops, escape),
            Some(escape) => self.get_beside_escape(ops, escape),
        }
    }

    fn get_alone(&self, ops: &mut Ops) {
        let there = |ops: &mut Ops| {
            self.join(ops);
            self.keep(ops);
        };
        let absent = |ops: &mut Ops| {
            if !self.optional {
                ops.put(OpKind::Fail(FaultKind::MissingMember));
            }
        };
        get_parts(ops, self.decimal, self.uses, there, absent);
    }

    fn get_beside_escape(&self, ops: &mut Ops, escape: &Field) {
        let there = |ops: &mut Ops| {
            match (Int::of(escape), escape.operator, &escape.initial) {
                (Some(int), Operator::Default, None) => {
                    ops.put(OpKind::TakeBit);
                    let both = |ops: &mut Ops| {
                        int.get_plain(ops);
                        refuse_both(ops);
                    };
                    ops.choose(both, |_| {});
                }
                _ => {
                    get(ops, escape, self.uses);
                    refuse_both(ops);
                }
            }
            self.join(ops);
            self.keep(ops);
        };
        let absent = |ops: &mut Ops| {
            get(ops, escape, self.uses);
            self.take_bits(ops, escape);
        };
        get_parts(ops, self.decimal, self.uses, there, absent);
    }

    /// The position of the escape's presence bit depends on whether the mantissa has a bit, so the
    /// escape is read after both cases of the decimal.
    fn get_before_escape(&self, ops: &mut Ops, escape: &Field) {
        let there = |ops: &mut Ops| {
            self.join(ops);
            ops.put(SlotOp::StoreLocal(NUMBER));
            ops.set(FOUND, 1);
        };
        get_parts(ops, self.decimal, self.uses, there, |ops| ops.set(FOUND, 0));
        get(ops, escape, self.uses);
        ops.test(FOUND);
        let found = |ops: &mut Ops| {
            refuse_both(ops);
            ops.put(SlotOp::LoadLocal(NUMBER, self.to));
            self.keep(ops);
        };
        ops.choose(found, |ops| self.take_bits(ops, escape));
    }

    /// Emits the number of a decimal.
    fn join(&self, ops: &mut Ops) {
        let (to, policy) = (self.to, self.decimal.policy);
        ops.put(SlotOp::LoadLocal(MANTISSA, Scalar::I64));
        ops.put(OpKind::Decimal(Decimal::Join { exponent: EXPONENT, to, policy }));
    }

    fn keep(&self, ops: &mut Ops) {
        if self.optional {
            ops.put(SlotOp::StoreLocal(VALUE));
            ops.set(THERE, 1);
        }
    }

    /// Emits the reading of the bits that replace the decimal, and the case that both are absent.
    fn take_bits(&self, ops: &mut Ops, escape: &Field) {
        if let (Some(Scalar::U64), Scalar::F32) = (Int::of(escape).map(|int| int.scalar), self.to) {
            let (fault, policy) = (FaultKind::IntegerRange, Policy::Reject);
            ops.put(SlotOp::LoadLocal(VALUE, Scalar::U64));
            ops.put(OpKind::Check(Check::Within { min: 0, max: u32::MAX.into(), fault, policy }));
        }
        if !self.optional {
            ops.demand(FaultKind::MissingMember);
            ops.put(SlotOp::LoadLocal(VALUE, self.to));
        }
    }
}

/// Emits the refusal of a message with both a decimal and bits.
fn refuse_both(ops: &mut Ops) {
    ops.test(THERE);
    ops.choose(|ops| ops.put(OpKind::Fail(FaultKind::Unrepresentable)), |_| {});
}

/// True if the mantissa has a presence bit, which is elided if the decimal is absent.
fn has_bit_of_mantissa(decimal: &Field) -> bool {
    matches!(&decimal.kind, FieldKind::Split(parts) if parts[1].bits() > 0)
}

/// Emits the writing of the accumulator, a floating-point number, as a decimal or its bits.
fn put_float(ops: &mut Ops, number: Scalar, decimal: &Field, escape: Option<&Field>, uses: &Uses) {
    let exponent = decimal.exponent();
    ops.put(SlotOp::StoreLocal(NUMBER));
    put_expected(ops, exponent);
    ops.all([SlotOp::LoadLocal(NUMBER, number).into(), OpKind::Decimal(Decimal::Split { exponent: EXPONENT })]);
    ops.put(SlotOp::StoreLocal(MANTISSA));
    let choose = |ops: &mut Ops, there: &dyn Fn(&mut Ops), raw: &dyn Fn(&mut Ops)| {
        ops.put(SlotOp::LoadLocal(EXPONENT, Scalar::I64));
        match (exponent.operator, exponent.initial_exponent()) {
            (Operator::Constant, Some(only)) => {
                ops.put(SlotOp::Compute(Arithmetic::Equal, Operand::Constant(only as u64)));
                ops.choose(there, raw);
            }
            _ => {
                ops.put(SlotOp::Compute(Arithmetic::Equal, Operand::Constant(NO_DECIMAL as u64)));
                ops.choose(raw, there);
            }
        }
    };
    let Some(escape) = escape else {
        let fault = |ops: &mut Ops| ops.put(OpKind::Fail(FaultKind::NotEncodable));
        return choose(ops, &|ops| put_decimal(ops, decimal, uses), &fault);
    };
    let no_bits = |ops: &mut Ops| put_absent(ops, escape);
    let bits = |ops: &mut Ops| put_value(ops, escape, NUMBER, uses);
    let (there, absent) = (|ops: &mut Ops| put_decimal(ops, decimal, uses), |ops: &mut Ops| put_absent(ops, decimal));
    if has_bit_of_mantissa(decimal) {
        // The position of the bits' presence bit depends on whether the mantissa has one.
        choose(ops, &there, &absent);
        choose(ops, &no_bits, &bits);
    } else {
        let both = |first: &dyn Fn(&mut Ops), second: &dyn Fn(&mut Ops), ops: &mut Ops| {
            first(ops);
            second(ops);
        };
        choose(ops, &|ops| both(&there, &no_bits, ops), &|ops| both(&absent, &bits, ops));
    }
}

/// Emits the exponent that is tried first for a number, and stores it in its local.
fn put_expected(ops: &mut Ops, exponent: &Field) {
    let initial = exponent.initial_exponent();
    let initial = if exponent.operator == Operator::Delta { Some(initial.unwrap_or(0)) } else { initial };
    let known = initial.map_or(NO_VALUE, |exponent| exponent as u64);
    let in_slot = SlotOp::LoadSlot { slot: exponent.slot, scalar: Scalar::I64, initial: known };
    match (exponent.has_slot(), exponent.operator) {
        // The slot begins with a value that is one less.
        (true, Operator::Increment) if initial.is_some() => {
            let otherwise = ops.block(|ops| ops.put(OpKind::Const(Scalar::I64, known.into())));
            let assigned = ops.block(|ops| ops.put(in_slot));
            ops.switch(exponent.slot, [([exponent.tag.into()].into(), assigned)].into(), otherwise);
        }
        (true, _) => ops.put(in_slot),
        (false, _) => ops.put(OpKind::Const(Scalar::I64, known.into())),
    }
    ops.put(SlotOp::StoreLocal(EXPONENT));
}

impl<'f> Parts<'f> {
    fn of(field: &'f Field, uses: &'f Uses) -> Parts<'f> {
        Parts { field, slot: uses.of(field), agrees: uses.agrees(field.slot) && uses.agrees(field.text) }
    }

    /// The exponent and mantissa that an undefined slot is equivalent to.
    fn begins(&self) -> Option<(i64, i64)> {
        match (self.field.operator, self.field.initial_decimal()) {
            (Operator::Delta, initial) => Some(initial.unwrap_or((0, 0))),
            (_, initial) => initial,
        }
    }

    /// Each part's slot and local, and the value that the slot begins with.
    fn each(&self) -> [(u32, u8, Option<u64>); 2] {
        let begins = self.begins();
        let (exponent, mantissa) = (begins.map(|both| both.0 as u64), begins.map(|both| both.1 as u64));
        [(self.field.slot, EXPONENT, exponent), (self.field.text, MANTISSA, mantissa)]
    }

    fn form(&self, base: Option<u8>) -> [StopBit; 2] {
        let whole = StopBit { range: FaultKind::DecimalRange, policy: self.field.policy, ..StopBit::new(Scalar::I64) };
        let there = self.field.optional.then_some(THERE);
        let [first, second] = BASES.map(|local| base.map(|_| local));
        [StopBit { there, base: first, ..whole }, StopBit { base: second, ..whole }]
    }

    /// Emits the loading of the slots' values into locals.
    fn load(&self, ops: &mut Ops, into: [u8; 2]) {
        for ((slot, _, begins), local) in self.each().into_iter().zip(into) {
            ops.put(SlotOp::LoadSlot { slot, scalar: Scalar::I64, initial: begins.unwrap_or(NO_VALUE) });
            ops.put(SlotOp::StoreLocal(local));
        }
    }

    fn store(&self, ops: &mut Ops) {
        for (slot, local, _) in self.each() {
            ops.put(SlotOp::LoadLocal(local, Scalar::I64));
            ops.put(SlotOp::StoreSlot { slot, kind: self.field.tag });
        }
    }

    /// Emits the reading; `checks` says whether the exponent is checked.
    fn get(&self, ops: &mut Ops, checks: bool) {
        let initial = self.field.initial_decimal();
        let there = |ops: &mut Ops, there: bool| {
            if self.field.optional {
                ops.set(THERE, there.into());
            }
        };
        let check = |ops: &mut Ops| {
            if checks {
                check_exponent(ops, self.field.policy);
            }
        };
        let keep = |ops: &mut Ops| {
            check(ops);
            self.store(ops);
        };
        match self.field.operator {
            Operator::Constant => {
                ops.get_constant(self.field.optional);
                set_parts(ops, initial.unwrap_or_default());
            }
            Operator::Default => {
                ops.put(OpKind::TakeBit);
                ops.choose(
                    |ops| self.get_sent(ops, None, check, |_| {}),
                    |ops| {
                        there(ops, initial.is_some());
                        set_parts(ops, initial.unwrap_or_default());
                    },
                );
            }
            Operator::Copy => {
                let empty = |ops: &mut Ops| ops.put(SlotOp::EmptySlot(self.field.slot));
                ops.put(OpKind::TakeBit);
                ops.choose(
                    |ops| self.get_sent(ops, None, keep, empty),
                    |ops| {
                        let value = |ops: &mut Ops, is_initial: bool| {
                            if is_initial {
                                set_parts(ops, self.begins().unwrap_or_default());
                                self.store(ops);
                            } else {
                                self.load(ops, [EXPONENT, MANTISSA]);
                            }
                            there(ops, true);
                        };
                        let begins = self.begins().map(|_| self.agrees);
                        let Field { slot, optional, tag, .. } = *self.field;
                        ops.previous((slot, tag, optional), begins, &self.slot, value, |ops| there(ops, false));
                    },
                );
            }
            Operator::Delta => {
                self.base(ops);
                self.get_sent(ops, Some(BASES[0]), keep, |_| {});
            }
            _ => self.get_sent(ops, None, check, |_| {}),
        }
    }

    /// Emits the reading of both parts, with the continuations for present and for absent ones.
    fn get_sent(&self, ops: &mut Ops, base: Option<u8>, then: impl Fn(&mut Ops), absent: impl FnOnce(&mut Ops)) {
        let [exponent, mantissa] = self.form(base);
        ops.all([OpKind::Get(Wire::StopBit(exponent)), SlotOp::StoreLocal(EXPONENT).into()]);
        let rest = |ops: &mut Ops| {
            ops.all([OpKind::Get(Wire::StopBit(mantissa)), SlotOp::StoreLocal(MANTISSA).into()]);
            if base.is_some() {
                ops.check_base((self.field.slot, self.field.tag), &self.slot);
            }
            then(ops);
        };
        ops.if_there(self.field.optional, rest, absent);
    }

    /// Emits the loading of the bases to which differences are added.
    fn base(&self, ops: &mut Ops) {
        if self.agrees {
            return self.load(ops, BASES);
        }
        let (exponent, mantissa) = self.begins().unwrap_or_default();
        let initial = ops.block(|ops| set(ops, BASES, [exponent, mantissa]));
        let otherwise = ops.block(|ops| self.load(ops, BASES));
        ops.switch(self.field.slot, [([0].into(), initial)].into(), otherwise);
    }

    fn put(&self, ops: &mut Ops) {
        let initial = self.field.initial_decimal();
        let sent = |ops: &mut Ops| self.put_sent(ops, None);
        match (self.field.operator, initial) {
            (Operator::Constant, _) => {
                self.compare(ops, initial.unwrap_or_default());
                ops.put_constant(self.field.optional);
            }
            (Operator::Default, None) => {
                ops.bit(true);
                sent(ops);
            }
            (Operator::Default, Some(initial)) => {
                self.compare(ops, initial);
                ops.put_unless(|_| {}, sent);
            }
            (Operator::Copy, _) => {
                let kind = self.field.tag;
                let [exponent, mantissa] = self.each();
                let has = |ops: &mut Ops, (slot, local, initial): (u32, u8, Option<u64>)| {
                    ops.all([SlotOp::LoadLocal(local, Scalar::I64), SlotOp::SlotHas { slot, kind, initial }]);
                };
                has(ops, exponent);
                ops.choose(|ops| has(ops, mantissa), |ops| ops.put(OpKind::Const(Scalar::Bool, 0)));
                ops.put_unless(
                    |ops| {
                        if self.begins().is_some() && !self.agrees {
                            self.store(ops);
                        }
                    },
                    |ops| {
                        self.store(ops);
                        sent(ops);
                    },
                );
            }
            (Operator::Delta, _) => {
                self.base(ops);
                ops.check_base((self.field.slot, self.field.tag), &self.slot);
                self.put_sent(ops, Some(BASES[0]));
                self.store(ops);
            }
            _ => sent(ops),
        }
    }

    /// Emits a comparison of the parts with constants.
    fn compare(&self, ops: &mut Ops, (exponent, mantissa): (i64, i64)) {
        let is = |ops: &mut Ops, local: u8, value: i64| {
            ops.put(SlotOp::LoadLocal(local, Scalar::I64));
            ops.put(SlotOp::Compute(Arithmetic::Equal, Operand::Constant(value as u64)));
        };
        is(ops, EXPONENT, exponent);
        ops.choose(|ops| is(ops, MANTISSA, mantissa), |ops| ops.put(OpKind::Const(Scalar::Bool, 0)));
    }

    fn put_sent(&self, ops: &mut Ops, base: Option<u8>) {
        for (local, form) in [EXPONENT, MANTISSA].into_iter().zip(self.form(base)) {
            ops.all([SlotOp::LoadLocal(local, Scalar::I64).into(), OpKind::Put(Wire::StopBit(form))]);
        }
    }
}
