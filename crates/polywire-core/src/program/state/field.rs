//! Fields as FAST has them: a type, whether it may be absent, and an operator with its slot.

use alloc::boxed::Box;

use crate::layout::Scalar;

/// A field, for both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
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

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A stop-bit integer within `min..=max`, which 64 bits hold.
    Int {
        /// It has a sign.
        signed: bool,
        /// Smallest value.
        min: i128,
        /// Largest value.
        max: i128,
    },
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
    /// True where a value fits the accumulator.
    pub fn is_scalar(&self) -> bool {
        matches!(self, FieldKind::Int { .. } | FieldKind::Float { .. } | FieldKind::Whole(_) | FieldKind::Bits { .. })
    }

    /// True where a value is bytes.
    pub fn is_text(&self) -> bool {
        matches!(self, FieldKind::Ascii | FieldKind::Unicode | FieldKind::Bytes)
    }
}

/// How a field refers to the previous value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
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

/// An initial value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initial {
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

/// What happens to deviations that the specification calls reportable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The message is refused.
    #[default]
    Reject,
    /// They are noted in the state, and the message goes on.
    Report,
    /// The message goes on.
    Ignore,
}

impl Policy {
    /// The policy that a word of machine code is.
    pub(crate) fn of_word(word: u64) -> Policy {
        match word {
            1 => Policy::Report,
            2 => Policy::Ignore,
            _ => Policy::Reject,
        }
    }
}

impl Field {
    /// The accumulator's type, for a field whose value fits it.
    pub fn scalar(&self) -> Scalar {
        match self.kind {
            FieldKind::Int { signed: false, .. } => Scalar::U64,
            FieldKind::Float { single: true, .. } | FieldKind::Bits { single: true, .. } => Scalar::F32,
            FieldKind::Float { single: false, .. } | FieldKind::Bits { single: false, .. } => Scalar::F64,
            _ => Scalar::I64,
        }
    }

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

    /// Calls `f` on it and the fields it consists of.
    pub fn each(&self, f: &mut dyn FnMut(&Field)) {
        f(self);
        match &self.kind {
            FieldKind::Split(parts) => parts.iter().for_each(|part| part.each(f)),
            FieldKind::Float { decimal, bits, .. } => {
                decimal.each(f);
                bits.iter().for_each(|bits| bits.each(f));
            }
            FieldKind::Whole(inner) | FieldKind::Bits { bits: inner, .. } => inner.each(f),
            _ => {}
        }
    }

    /// True where the previous value is kept in a slot.
    pub fn has_slot(&self) -> bool {
        matches!(self.operator, Operator::Copy | Operator::Increment | Operator::Delta | Operator::Tail)
            && (self.kind.is_text() || matches!(self.kind, FieldKind::Int { .. } | FieldKind::Decimal))
    }

    /// True if its parts, range and initial value are of its type.
    pub fn is_sound(&self) -> bool {
        let int = |field: &Field| matches!(field.kind, FieldKind::Int { .. }) && field.is_sound();
        let decimal =
            |field: &Field| matches!(field.kind, FieldKind::Decimal | FieldKind::Split(_)) && field.is_sound();
        let own = match &self.kind {
            FieldKind::Int { signed, min, max } => {
                let (least, most) =
                    if *signed { (i64::MIN.into(), i64::MAX.into()) } else { (0, i128::from(u64::MAX)) };
                let value = self.initial_int().map(|bits| if *signed { (bits as i64).into() } else { bits.into() });
                min <= max
                    && *min >= least
                    && *max <= most
                    && self.operator != Operator::Tail
                    && value.is_none_or(|value: i128| (*min..=*max).contains(&value))
                    && matches!(self.initial, None | Some(Initial::Int(_)))
            }
            FieldKind::Ascii | FieldKind::Unicode | FieldKind::Bytes => {
                self.operator != Operator::Increment && matches!(self.initial, None | Some(Initial::Bytes(_)))
            }
            FieldKind::Decimal => {
                !matches!(self.operator, Operator::Increment | Operator::Tail)
                    && matches!(self.initial, None | Some(Initial::Decimal { .. }))
            }
            FieldKind::Split(parts) => {
                parts.iter().all(int) && !parts[1].optional && parts[0].optional == self.optional
            }
            FieldKind::Float { decimal: number, bits, .. } => {
                decimal(number)
                    && number.optional == (self.optional || bits.is_some())
                    && bits.as_ref().is_none_or(|bits| int(bits) && bits.optional)
            }
            FieldKind::Whole(number) => decimal(number) && number.optional == self.optional,
            FieldKind::Bits { single, bits } => {
                let most = if *single { u32::MAX.into() } else { u64::MAX };
                int(bits)
                    && bits.optional == self.optional
                    && matches!(bits.kind, FieldKind::Int { signed: false, max, .. } if max <= most.into())
            }
        };
        let valued = !matches!(self.operator, Operator::Constant | Operator::Default)
            || self.initial.is_some()
            || self.optional && self.operator == Operator::Default;
        own && valued && self.tag > 1
    }

    pub(crate) fn initial_int(&self) -> Option<u64> {
        match &self.initial {
            Some(Initial::Int(value)) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn initial_decimal(&self) -> Option<(i64, i64)> {
        match &self.initial {
            Some(Initial::Decimal { exponent, mantissa }) => Some((*exponent, *mantissa)),
            _ => None,
        }
    }

    /// Of a decimal, the field that knows about the exponent.
    pub(crate) fn exponent(&self) -> &Field {
        match &self.kind {
            FieldKind::Split(parts) => &parts[0],
            _ => self,
        }
    }

    /// The exponent of the initial value, of a decimal or of its exponent alone.
    pub(crate) fn initial_exponent(&self) -> Option<i64> {
        match self.initial_decimal() {
            Some((exponent, _)) => Some(exponent),
            None => self.initial_int().map(|exponent| exponent as i64),
        }
    }

    pub(crate) fn initial_bytes(&self) -> Option<&[u8]> {
        match &self.initial {
            Some(Initial::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }
}
