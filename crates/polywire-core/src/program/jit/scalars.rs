//! The accumulator: emits constants, conversions and checks, for both directions. `jit/ops.rs`
//! calls it. The code touches the accumulator only.

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC, types};

use super::{
    emit::{Accumulator, Emit},
    shims,
};
use crate::{
    layout::{Kind, Scalar},
    program::{Check, FaultKind, Op, OpKind},
};

impl<'e> Emit<'e, '_> {
    pub(super) fn constant_accumulator(&mut self, scalar: Scalar, bits: u128) {
        let low = match (scalar.is_signed(), scalar.size()) {
            (true, 1) => i64::from(bits as i8),
            (true, 2) => i64::from(bits as i16),
            (true, 4) => i64::from(bits as i32),
            _ => bits as i64,
        };
        let mut value = self.constant(low);
        if scalar == Scalar::F128 {
            let high = self.constant((bits >> 64) as i64);
            value = self.code.ins().iconcat(value, high);
        }
        self.set(value, scalar);
    }

    pub(super) fn convert(&mut self, op: &'e Op, to: Scalar) {
        let Accumulator { value, scalar: from, from: narrow } = self.accumulator();
        let float = |s| matches!(s, Scalar::F32 | Scalar::F64);
        let converted = match (from, to) {
            _ if from == to => value,
            (Scalar::F32, Scalar::F64) => self.widen(value, from, to),
            _ if float(from) || float(to) => {
                let word = self.word();
                self.store_word(value);
                let (from, to) = (self.constant(from as i64), self.constant(to as i64));
                let failed = self.call_word(shims::convert_word as *const u8, &[word, from, to]);
                self.out_of_range(op, failed, value);
                self.load_word(0)
            }
            _ => {
                let fits = holds(to, narrow);
                if let Some(outside) = self.outside_scalar(value, from, to).filter(|_| !fits) {
                    self.out_of_range(op, outside, value);
                }
                value
            }
        };
        self.set(converted, to);
        // A checked integer uses no more bits than before.
        if from.range().is_some() && to.range().is_some() {
            self.accumulator = self.accumulator.map(|accumulator| Accumulator { from: narrow, ..accumulator });
        }
    }

    /// 1 if an extended integer does not fit; none if it always does.
    fn outside_scalar(&mut self, value: Value, from: Scalar, to: Scalar) -> Option<Value> {
        from.range().and(to.range())?;
        if holds(to, from) {
            return None;
        }
        let (low, high) = to.range()?;
        Some(match (from, to) {
            (_, Scalar::U64) => self.code.ins().icmp_imm_s(IntCC::SignedLessThan, value, 0),
            (Scalar::U64, _) => {
                let high = self.constant(high as i64);
                self.code.ins().icmp(IntCC::UnsignedGreaterThan, value, high)
            }
            _ => self.outside(value, low as i64, high as i64),
        })
    }

    fn out_of_range(&mut self, op: &'e Op, outside: Value, value: Value) {
        let OpKind::Convert(to) = &op.kind else { unreachable!("only conversions come here") };
        let bits = 8 * to.size() as i64;
        self.unless(outside, |emit| {
            let bits = emit.constant(bits);
            emit.fault(op, FaultKind::OutOfRange, bits, value);
        });
    }

    pub(super) fn check(&mut self, op: &'e Op, check: &'e Check) {
        let (value, scalar) = (self.accumulator().value, self.accumulator().scalar);
        let zero = self.constant(0);
        let mut result = (value, scalar);
        match check {
            Check::Bool => {
                let bad = self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, value, 1);
                self.unless(bad, |emit| emit.fault(op, FaultKind::BadBool, zero, value));
                result.1 = Scalar::Bool;
            }
            Check::Keep(bits) => result.0 = self.code.ins().band_imm_s(value, *bits as i64),
            Check::Enum { node, otherwise } => {
                let Kind::Enum(literals) = &self.layout().node(*node).kind else {
                    unreachable!("the verifier admits enums only")
                };
                let unknown = self.no_literal(value, literals);
                match otherwise {
                    None => self.unless(unknown, |emit| emit.fault(op, FaultKind::UnknownLiteral, zero, value)),
                    Some(literal) => {
                        let literal = self.constant(i64::from(*literal));
                        result.0 = self.code.ins().select(unknown, literal, value);
                    }
                }
            }
            Check::Within { min, max, fault, .. } => {
                let outside = match scalar {
                    // The bounds of the range may be negative or beyond `i64`, so unsigned numbers
                    // need care.
                    Scalar::U64 => {
                        let (min, max) = ((*min).max(0), *max);
                        if max < min { self.code.ins().iconst(types::I8, 1) } else { self.outside(value, min, max) }
                    }
                    _ => self.outside(value, *min, *max),
                };
                match self.encodes() {
                    true => self.unless(outside, |emit| emit.fault(op, *fault, zero, value)),
                    false if self.direct => {
                        self.or_bail_out(outside);
                    }
                    // The policy may accept it.
                    false => self.rarely(outside, |emit| emit.decode_by_interpreter(op, zero)),
                }
            }
            Check::Range { .. } | Check::OneOf(_) => {
                let bad = self.check_word(check, value, scalar);
                let kind = match check {
                    Check::Range { .. } => FaultKind::OutOfRange,
                    _ => FaultKind::UnknownLiteral,
                };
                self.unless(bad, |emit| emit.fault(op, kind, zero, value));
            }
        }
        let accumulator = self.accumulator;
        self.set(result.0, result.1);
        if let (true, Some(own), Some(before)) = (result == (value, scalar), self.accumulator.as_mut(), accumulator) {
            own.from = before.from;
        }
    }
}

/// True if all integers of one type are integers of the other.
pub(super) fn holds(to: Scalar, from: Scalar) -> bool {
    let (Some((low, high)), Some((min, max))) = (to.range(), from.range()) else { return false };
    low <= min && max <= high
}
