//! Fields of bound templates: a type, whether the field is optional, and an operator with its slot.
//! `plan` makes them; the dialects and `numbers`, `decimals` and `texts` read them. Types only.

use alloc::boxed::Box;

pub(super) use super::template::OperatorKind as Operator;
use crate::{layout::Scalar, program::Policy};

/// A field, for both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Its form on the wire.
    pub kind: FieldKind,
    /// It may be absent.
    pub optional: bool,
    /// How it refers to the previous value.
    pub operator: Operator,
    /// The slot of the previous value, for operators that use it.
    pub slot: u32,
    /// The byte slot of the previous string or bytes, whose state is in [`Field::slot`]. For a
    /// decimal, the slot of the previous mantissa.
    pub text: u32,
    /// The slot's tag for a value of this type: 2 or more.
    pub tag: u8,
    /// The initial value.
    pub initial: Option<Initial>,
    /// The policy for deviations that the specification calls reportable.
    pub policy: Policy,
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// A stop-bit integer of this type.
    Int(Scalar),
    /// A string of 7-bit characters with a stop bit.
    Ascii,
    /// UTF-8 behind its length.
    Unicode,
    /// Bytes behind their length.
    Bytes,
    /// Exponent and mantissa with one operator.
    Decimal,
    /// Exponent and mantissa with an operator each. The exponent is optional if the field is; the
    /// field's own operator is not used.
    Split(Box<[Field; 2]>),
    /// A floating-point number: sent as a decimal if it is exactly one, else as its bits.
    Float {
        /// A `float`, not a `double`.
        single: bool,
        /// [`FieldKind::Decimal`] or [`FieldKind::Split`]; optional if there are bits, or if the
        /// field is.
        decimal: Box<Field>,
        /// An optional unsigned integer.
        bits: Option<Box<Field>>,
    },
    /// An integer that is a decimal on the wire.
    Whole(Box<Field>),
    /// The bits of a floating-point number: an unsigned integer.
    Bits {
        /// A `float`, not a `double`.
        single: bool,
        /// The integer, of as many bits.
        bits: Box<Field>,
    },
}

impl FieldKind {
    /// True if the value is bytes.
    pub fn is_text(&self) -> bool {
        matches!(self, FieldKind::Ascii | FieldKind::Unicode | FieldKind::Bytes)
    }
}

/// An initial value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Initial {
    /// The initial value of an integer, as bits.
    Int(u64),
    /// The initial value of a decimal.
    Decimal {
        /// Power of ten.
        exponent: i64,
        /// Its factor.
        mantissa: i64,
    },
    /// The initial value of a string or of bytes.
    Bytes(Box<[u8]>),
}

impl Field {
    /// The most bits that it takes in the presence map.
    pub fn bits(&self) -> u32 {
        match &self.kind {
            FieldKind::Split(parts) => parts.iter().map(Field::bits).sum(),
            FieldKind::Float { decimal, bits, .. } => decimal.bits() + bits.as_ref().map_or(0, |bits| bits.bits()),
            FieldKind::Whole(inner) | FieldKind::Bits { bits: inner, .. } => inner.bits(),
            _ => match self.operator {
                Operator::None | Operator::Delta => 0,
                Operator::Constant => u32::from(self.optional),
                Operator::Default | Operator::Copy | Operator::Increment | Operator::Tail => 1,
            },
        }
    }

    /// The fewest bytes that it takes, without the presence map.
    pub fn min_wire(&self) -> u32 {
        match &self.kind {
            FieldKind::Split(parts) if self.optional => parts[0].min_wire(),
            FieldKind::Split(parts) => parts.iter().map(Field::min_wire).sum(),
            FieldKind::Float { decimal: inner, .. } | FieldKind::Whole(inner) | FieldKind::Bits { bits: inner, .. } => {
                inner.min_wire()
            }
            kind => match self.operator {
                Operator::None | Operator::Delta if *kind == FieldKind::Decimal && !self.optional => 2,
                Operator::None | Operator::Delta => 1,
                _ => 0,
            },
        }
    }

    /// True if a slot keeps the previous value.
    pub fn has_slot(&self) -> bool {
        matches!(self.operator, Operator::Copy | Operator::Increment | Operator::Delta | Operator::Tail)
            && (self.kind.is_text() || matches!(self.kind, FieldKind::Int(_) | FieldKind::Decimal))
    }

    pub fn initial_int(&self) -> Option<u64> {
        match &self.initial {
            Some(Initial::Int(value)) => Some(*value),
            _ => None,
        }
    }

    pub fn initial_decimal(&self) -> Option<(i64, i64)> {
        match &self.initial {
            Some(Initial::Decimal { exponent, mantissa }) => Some((*exponent, *mantissa)),
            _ => None,
        }
    }

    /// For a decimal, the field that has the exponent's properties.
    pub fn exponent(&self) -> &Field {
        match &self.kind {
            FieldKind::Split(parts) => &parts[0],
            _ => self,
        }
    }

    /// The exponent of the initial value: of a decimal's, or of that of its exponent field.
    pub fn initial_exponent(&self) -> Option<i64> {
        match self.initial_decimal() {
            Some((exponent, _)) => Some(exponent),
            None => self.initial_int().map(|exponent| exponent as i64),
        }
    }

    pub fn initial_bytes(&self) -> Option<&[u8]> {
        match &self.initial {
            Some(Initial::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }
}
