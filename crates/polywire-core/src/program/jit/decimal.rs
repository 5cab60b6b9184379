//! Numbers as decimals: emits the operation `Decimal`. `jit/ops.rs` calls it.
//!
//! The general function calls `state/decimal.rs`. A direct function computes a number with the
//! expected exponent in line and calls functions for all others. The code touches the accumulator
//! and a local.

use cranelift_codegen::ir::{
    Block as CodeBlock, InstBuilder, MemFlagsData, Opcode, Value, ValueDef, condcodes::IntCC,
    instructions::InstructionData, types,
};

use super::{
    emit::{Accumulator, Emit},
    join::LocalFact,
};
use crate::{
    layout::Scalar,
    program::{
        Decimal, Input, NO_DECIMAL, Op, Output, Policy, Status,
        state::{
            decimal,
            float::{self, POWERS},
        },
    },
};

/// 1.5 times two to the 52nd. The last bit of doubles of this size counts one.
const ROUNDS: f64 = 6_755_399_441_055_744.0;

impl<'e> Emit<'e, '_> {
    /// Emits the conversion of a number to a decimal, or back.
    pub(super) fn decimal(&mut self, op: &Op, decimal: &'e Decimal) {
        let Accumulator { value, scalar, .. } = self.accumulator();
        let to = if let Decimal::Join { to, .. } = decimal { *to } else { Scalar::I64 };
        let made = match (self.direct, decimal) {
            (true, Decimal::Split { exponent }) => self.split(*exponent, value, scalar),
            (true, Decimal::Shift { exponent, to }) => {
                let from = self.local(*exponent, Scalar::I64);
                let differs = self.code.ins().icmp_imm_s(IntCC::NotEqual, from, *to);
                self.or_bail_out(differs);
                value
            }
            (true, Decimal::Join { exponent, to, .. }) => self.join_parts(*exponent, value, *to),
            (false, Decimal::Join { .. }) => {
                let (address, word) = (self.address(decimal), self.word());
                self.call_status(op, join as *const u8, &[self.context(), address, value, word]);
                self.load_word(0)
            }
            (false, _) => {
                let (address, word, scalar) = (self.address(decimal), self.word(), self.constant(scalar as i64));
                self.call_status(op, to_decimal as *const u8, &[self.context(), address, value, scalar, word]);
                self.load_word(0)
            }
        };
        self.set(made, to);
    }

    /// Emits the mantissa of a number, and stores its exponent in the local.
    fn split(&mut self, exponent: u8, number: Value, scalar: Scalar) -> Value {
        let (hint, scalar_word) = (self.local(exponent, Scalar::I64), self.constant(scalar as i64));
        let [found, mantissa] = [(); 2].map(|()| self.code.declare_var(types::I64));
        let by_function = |emit: &mut Self| {
            let word = emit.word();
            emit.call(split as *const u8, &[scalar_word, number, hint, word], None);
            let (exponent, whole) = (emit.load_word(0), emit.load_word(8));
            emit.code.def_var(found, exponent);
            emit.code.def_var(mantissa, whole);
        };
        let known = self.facts[usize::from(exponent)].constant;
        if scalar == Scalar::I64 || known.is_some_and(|exponent| places(exponent).is_none()) {
            by_function(self);
        } else {
            let (odd, done) = (self.cold(), self.new_block());
            let power = self.power_of(exponent, odd);
            let whole = self.scaled((number, scalar == Scalar::F32), power, odd);
            self.code.def_var(found, hint);
            self.code.def_var(mantissa, whole);
            self.jump_and_begin(done, odd);
            by_function(self);
            self.jump_and_begin(done, done);
        }
        let found = self.code.use_var(found);
        self.set_local(exponent, found, LocalFact { from: Some(Scalar::I64), constant: None });
        self.code.use_var(mantissa)
    }

    /// Emits the number with this mantissa and the exponent in the local.
    fn join_parts(&mut self, local: u8, mantissa: Value, to: Scalar) -> Value {
        let exponent = self.local(local, Scalar::I64);
        let value = self.code.declare_var(types::I64);
        if to == Scalar::I64 {
            self.code.def_var(value, mantissa);
            self.rarely(exponent, |emit| {
                let word = emit.word();
                emit.call_or_bail_out(whole as *const u8, &[exponent, mantissa, word]);
                let whole = emit.load_word(0);
                emit.code.def_var(value, whole);
            });
            return self.code.use_var(value);
        }
        let (odd, done) = (self.cold(), self.new_block());
        let power = self.power_of(local, odd);
        let large = self.outside(mantissa, -(1 << 53), 1 << 53);
        self.or_else(large, odd);
        let bits = self.compose(mantissa, power, to == Scalar::F32);
        self.code.def_var(value, bits);
        self.jump_and_begin(done, odd);
        let (single, word) = (self.constant((to == Scalar::F32).into()), self.word());
        self.call_or_bail_out(compose as *const u8, &[exponent, mantissa, single, word]);
        let bits = self.load_word(0);
        self.code.def_var(value, bits);
        self.jump_and_begin(done, done);
        self.code.use_var(value)
    }

    /// The constant of a value, if a constant instruction defines it.
    pub(super) fn constant_of(&self, value: Value) -> Option<i64> {
        let graph = &self.code.func.dfg;
        let ValueDef::Result(instruction, _) = graph.value_def(graph.resolve_aliases(value)) else { return None };
        match graph.insts[instruction] {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
            _ => None,
        }
    }

    /// Emits the mantissa of a number for a power of ten as divisor. Jumps to `odd` if the quotient
    /// is not exactly the number, or if the mantissa has many bits.
    ///
    /// Adding [`ROUNDS`] rounds a double below two to the 51st to an integer, by which the bits of
    /// the sum differ from those of [`ROUNDS`].
    fn scaled(&mut self, (bits, single): (Value, bool), power: Value, odd: CodeBlock) -> Value {
        let number = self.number(bits, single);
        let scaled = self.code.ins().fmul(number, power);
        let rounds = self.code.ins().f64const(ROUNDS);
        let sum = self.code.ins().fadd(scaled, rounds);
        let whole = self.code.ins().fsub(sum, rounds);
        let back = self.quotient(whole, power, single);
        let differs = self.code.ins().icmp(IntCC::NotEqual, back, bits);
        self.or_else(differs, odd);
        let sum = self.code.ins().bitcast(types::I64, MemFlagsData::new(), sum);
        let mantissa = self.code.ins().iadd_imm_s(sum, (ROUNDS.to_bits() as i64).wrapping_neg());
        // A float may be the nearest one to two integers of more bits.
        let bits = if single { 23 } else { 51 };
        let large = self.code.ins().iadd_imm_s(mantissa, 1 << bits);
        let large = self.code.ins().ushr_imm_u(large, bits + 1);
        self.or_else(large, odd);
        mantissa
    }

    /// The divisor for the exponent in a local; jumps to `odd` if a double does not hold it.
    fn power_of(&mut self, local: u8, odd: CodeBlock) -> Value {
        if let Some(places) = self.facts[usize::from(local)].constant.and_then(places) {
            return self.code.ins().f64const(POWERS[places]);
        }
        let exponent = self.local(local, Scalar::I64);
        let places = self.code.ins().ineg(exponent);
        let outside = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, places, POWERS.len() as i64);
        self.or_else(outside, odd);
        let (table, distance) = (self.address(&POWERS), self.code.ins().ishl_imm_u(places, 3));
        let at = self.code.ins().iadd(table, distance);
        self.load(types::F64, at, 0)
    }

    /// A double from the accumulator's bits.
    fn number(&mut self, bits: Value, single: bool) -> Value {
        if !single {
            return self.code.ins().bitcast(types::F64, MemFlagsData::new(), bits);
        }
        let bits = self.code.ins().ireduce(types::I32, bits);
        let number = self.code.ins().bitcast(types::F32, MemFlagsData::new(), bits);
        self.code.ins().fpromote(types::F64, number)
    }

    /// The bits of a mantissa divided by a power of ten.
    fn compose(&mut self, mantissa: Value, power: Value, single: bool) -> Value {
        let number = self.code.ins().fcvt_from_sint(types::F64, mantissa);
        self.quotient(number, power, single)
    }

    /// The bits of a quotient.
    fn quotient(&mut self, number: Value, power: Value, single: bool) -> Value {
        let number = self.code.ins().fdiv(number, power);
        if !single {
            return self.code.ins().bitcast(types::I64, MemFlagsData::new(), number);
        }
        let number = self.code.ins().fdemote(types::F32, number);
        let bits = self.code.ins().bitcast(types::I32, MemFlagsData::new(), number);
        self.code.ins().uextend(types::I64, bits)
    }
}

/// The decimal places of an exponent, if the table has the power.
fn places(exponent: i64) -> Option<usize> {
    usize::try_from(exponent.checked_neg()?).ok().filter(|places| *places < POWERS.len())
}

// Machine code calls the functions below. None unwinds.

/// For the general function: the mantissa of a number, or a mantissa for another exponent.
unsafe extern "C" fn to_decimal(
    output: *mut Output<'_>,
    decimal: *const Decimal,
    value: u64,
    scalar: u64,
    word: *mut u64,
) -> Status {
    // SAFETY: machine code passes its output, an operation that lives as long as the code, the
    // number of a `Scalar`, and a word of its stack frame.
    unsafe {
        let (output, scalar) = (&mut *output, core::mem::transmute::<u8, Scalar>(scalar as u8));
        let made = match *decimal {
            Decimal::Split { exponent } => Ok(decimal::split(output, exponent, scalar, value)),
            Decimal::Shift { exponent, to } => decimal::shift(output, (exponent, to), value),
            Decimal::Join { .. } => Ok(value),
        };
        Status::give(made, &mut *word)
    }
}

/// For the general function: the number with this mantissa.
unsafe extern "C" fn join(input: *mut Input<'_>, decimal: *const Decimal, mantissa: u64, word: *mut u64) -> Status {
    // SAFETY: machine code passes its input, an operation that lives as long as the code, and a
    // word of its stack frame.
    unsafe {
        let (exponent, to, policy) = match *decimal {
            Decimal::Join { exponent, to, policy } => (exponent, to, policy),
            Decimal::Split { exponent } | Decimal::Shift { exponent, .. } => (exponent, Scalar::I64, Policy::Reject),
        };
        Status::give(decimal::join(&mut *input, (exponent, to, policy), mantissa), &mut *word)
    }
}

/// Stores exponent and mantissa of a number.
unsafe extern "C" fn split(scalar: u64, number: u64, hint: i64, words: *mut [i64; 2]) {
    // SAFETY: machine code passes the number of a `Scalar`, and two words of its stack frame.
    unsafe {
        let scalar = core::mem::transmute::<u8, Scalar>(scalar as u8);
        *words = decimal::split_word(scalar, number, hint).unwrap_or((NO_DECIMAL, 0)).into();
    }
}

/// Stores the bits of the number nearest to a decimal. Returns 1, or 0 if its exponent is out of
/// range.
unsafe extern "C" fn compose(exponent: i64, mantissa: i64, single: u64, word: *mut u64) -> u64 {
    if !decimal::is_exponent(exponent) {
        return 0;
    }
    // SAFETY: machine code passes a word of its stack frame.
    unsafe { *word = float::compose(exponent, mantissa, single != 0) }
    1
}

/// Stores the integer that equals a decimal. Returns 1, or 0 if there is none.
unsafe extern "C" fn whole(exponent: i64, mantissa: i64, word: *mut i64) -> u64 {
    let whole = decimal::whole(exponent, mantissa).filter(|_| decimal::is_exponent(exponent));
    let Some(value) = whole else { return 0 };
    // SAFETY: machine code passes a word of its stack frame.
    unsafe { *word = value }
    1
}
