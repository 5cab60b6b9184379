//! Fields of bound templates: a type, whether it may be absent, and an operator with its slot.

use alloc::boxed::Box;

use crate::{layout::Scalar, program::Policy};

/// A field, for both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// What it is on the wire.
    pub kind: FieldKind,
    /// It may be absent.
    pub optional: bool,
    /// How it refers to the previous value.
    pub operator: Operator,
    /// Where the previous value is, for operators that refer to it.
    pub slot: u32,
    /// Where the previous string or bytes are, beside the tag in [`Field::slot`]; of a decimal, the
    /// slot of the previous mantissa.
    pub text: u32,
    /// What the slot's tag is with a value of this type: 2 or more.
    pub tag: u8,
    /// The value before there is one.
    pub initial: Option<Initial>,
    /// What happens to deviations that the specification calls reportable.
    pub policy: Policy,
}

/// How a field refers to the previous value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    /// Not at all.
    None,
    /// Always the initial value.
    Constant,
    /// Left out if it is the initial value.
    Default,
    /// Left out if it is the previous value.
    Copy,
    /// Left out if it is one more than the previous value.
    Increment,
    /// As the difference.
    Delta,
    /// As the end that differs.
    Tail,
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
    /// field's own operator says nothing.
    Split(Box<[Field; 2]>),
    /// A floating-point number as the decimal that it is exactly, else as its bits.
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
    /// True where a value is bytes.
    pub fn is_text(&self) -> bool {
        matches!(self, FieldKind::Ascii | FieldKind::Unicode | FieldKind::Bytes)
    }
}

/// An initial value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Initial {
    /// Of an integer: its bits.
    Int(u64),
    /// Of a decimal.
    Decimal {
        /// Power of ten.
        exponent: i64,
        /// Its factor.
        mantissa: i64,
    },
    /// Of a string, or of bytes.
    Bytes(Box<[u8]>),
}

impl Field {
    /// Bits that it takes in the presence map at most.
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

    /// Bytes that it takes at least, without the presence map.
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

    /// True where the previous value is kept in a slot.
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

    /// Of a decimal, the field that knows about the exponent.
    pub fn exponent(&self) -> &Field {
        match &self.kind {
            FieldKind::Split(parts) => &parts[0],
            _ => self,
        }
    }

    /// The exponent of the initial value, of a decimal or of its exponent alone.
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
