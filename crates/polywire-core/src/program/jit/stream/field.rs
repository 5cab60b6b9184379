//! Fields of all kinds: which function makes which.

use cranelift_codegen::ir::Value;

use super::{super::emit::Emit, decimal::parts, optional};
use crate::program::{Field, FieldKind};

impl<'e> Emit<'e, '_> {
    /// Accumulator from a field that fits a word, and must be there.
    pub(in super::super) fn decode_number(&mut self, field: &Field) {
        match (&field.kind, optional(field)) {
            (FieldKind::Float { .. }, _) if parts(field).is_some() => self.decode_float(field),
            (FieldKind::Float { .. } | FieldKind::Whole(_), _) => self.demand_by_decimal(field),
            (FieldKind::Bits { bits, .. }, _) => {
                self.decode_number(bits);
                let bits = self.accumulator().value;
                self.set(bits, field.scalar());
            }
            (_, Some(int)) => self.demand(field, &int),
            (_, None) => self.decode_int(field),
        }
    }

    /// Accumulator from whether a field is there; its value waits.
    pub(in super::super) fn decode_presence(&mut self, field: &'e Field) {
        match (&field.kind, optional(field)) {
            (FieldKind::Split(_) | FieldKind::Decimal, _) => self.decode_words(field),
            (FieldKind::Float { .. } | FieldKind::Whole(_), _) => self.test_by_decimal(field),
            (FieldKind::Bits { bits, .. }, _) => self.decode_presence(bits),
            (FieldKind::Int { .. }, Some(int)) => self.test_optional(&int),
            (FieldKind::Int { .. }, None) => self.test_present(field),
            _ => self.test_text(field),
        }
    }

    /// The words from a decimal; accumulator from whether it is there.
    pub(super) fn decode_words(&mut self, decimal: &Field) {
        match &decimal.kind {
            FieldKind::Split(parts) => self.decode_decimal(parts),
            _ => self.decode_whole(decimal),
        }
    }

    /// The accumulator as a field that is there.
    pub(in super::super) fn encode_number(&mut self, field: &Field, value: Value) {
        match (&field.kind, optional(field)) {
            (FieldKind::Float { .. }, _) if parts(field).is_some() => self.encode_float(field, value),
            (FieldKind::Float { .. } | FieldKind::Whole(_), _) => self.encode_by_decimal(field, value),
            (FieldKind::Bits { bits, .. }, _) => self.encode_number(bits, value),
            (_, Some(int)) => self.encode_present(&int, value),
            (_, None) => self.encode_int(field, value),
        }
    }

    /// The words as a field, or its absence.
    pub(in super::super) fn encode_words(&mut self, field: &Field, present: bool) {
        match (&field.kind, present) {
            (FieldKind::Split(parts), true) => self.encode_decimal(parts),
            (FieldKind::Decimal, true) => self.encode_whole(field),
            (FieldKind::Float { decimal, bits, .. }, false) => {
                self.encode_words(decimal, false);
                bits.iter().for_each(|bits| self.encode_absent(bits));
            }
            (FieldKind::Whole(decimal), false) => self.encode_words(decimal, false),
            (FieldKind::Bits { bits, .. }, false) => self.encode_absent(bits),
            (FieldKind::Split(parts), false) => {
                self.encode_absent(&parts[0]);
                self.leave_bits_out(&parts[1]);
            }
            _ => self.encode_absent(field),
        }
    }
}
