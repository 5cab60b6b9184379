//! Conversions from the writer's scalars to the reader's.

use crate::schema::Type;

/// How a writer's scalar becomes a reader's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScalarStep {
    /// No conversion: the same type, or `octet` and `uint8`.
    Same,
    /// Sign-extend a signed integer to a larger signed one.
    SignExtend,
    /// Zero-extend an unsigned integer to a larger integer, signed or unsigned.
    ZeroExtend,
    /// Convert a signed integer to a floating-point type that holds all its values exactly.
    SignedToFloat,
    /// Convert an unsigned integer to a floating-point type that holds all its values exactly.
    UnsignedToFloat,
    /// Convert `float` to `double`.
    FloatToDouble,
    /// Refused: the conversion could lose information, or its meaning is unclear.
    Refused,
}

impl ScalarStep {
    /// The step from the writer's type to the reader's, with aliases resolved.
    /// [`ScalarStep::Refused`] for types that are not primitives.
    ///
    /// Only conversions that keep every value are allowed. So `int64` does not become `double`, no
    /// type becomes narrower, and a boolean, a character or an octet does not become a number.
    ///
    /// ```
    /// use polywire_core::schema::{Type, evolve::ScalarStep};
    ///
    /// assert_eq!(ScalarStep::of(&Type::Uint16, &Type::Int32), ScalarStep::ZeroExtend);
    /// assert_eq!(ScalarStep::of(&Type::Int64, &Type::Float64), ScalarStep::Refused);
    /// ```
    pub fn of(writer: &Type, reader: &Type) -> ScalarStep {
        if writer.is_primitive() && writer == reader {
            return ScalarStep::Same;
        }
        if matches!((writer, reader), (Type::Octet, Type::Uint8) | (Type::Uint8, Type::Octet)) {
            return ScalarStep::Same;
        }
        if (writer, reader) == (&Type::Float32, &Type::Float64) {
            return ScalarStep::FloatToDouble;
        }
        let Some(from) = Integer::of(writer) else { return ScalarStep::Refused };
        match (Integer::of(reader), mantissa_bits(reader)) {
            (Some(to), _) if from.fits(to) && from.signed => ScalarStep::SignExtend,
            (Some(to), _) if from.fits(to) => ScalarStep::ZeroExtend,
            (_, Some(bits)) if from.value_bits() <= bits && from.signed => ScalarStep::SignedToFloat,
            (_, Some(bits)) if from.value_bits() <= bits => ScalarStep::UnsignedToFloat,
            _ => ScalarStep::Refused,
        }
    }
}

#[derive(Clone, Copy)]
struct Integer {
    signed: bool,
    bits: u32,
}

impl Integer {
    fn of(ty: &Type) -> Option<Integer> {
        let (signed, bits) = match ty {
            Type::Int8 => (true, 8),
            Type::Int16 => (true, 16),
            Type::Int32 => (true, 32),
            Type::Int64 => (true, 64),
            Type::Uint8 => (false, 8),
            Type::Uint16 => (false, 16),
            Type::Uint32 => (false, 32),
            Type::Uint64 => (false, 64),
            _ => return None,
        };
        Some(Integer { signed, bits })
    }

    fn value_bits(self) -> u32 {
        self.bits - u32::from(self.signed)
    }

    fn fits(self, to: Integer) -> bool {
        self.bits < to.bits && (!self.signed || to.signed)
    }
}

/// Number of bits of the integers that a floating-point type represents exactly. `long double` is
/// left out, because hardly any machine computes with it.
fn mantissa_bits(ty: &Type) -> Option<u32> {
    match ty {
        Type::Float32 => Some(24),
        Type::Float64 => Some(53),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn the_whole_table() {
        // One line for each of the writer's types, in the order of PRIMITIVES: '=' is `Same`, 's'
        // and 'z' extend, 'S' and 'U' convert to a floating-point type, 'd' to double.
        let table = [
            "=..............",
            ".=.=...........",
            "..=.s.s.s.SS...",
            ".=.=zzzzzzUU...",
            "....=.s.s.SS...",
            ".....=zzzzUU...",
            "......=.s..S...",
            ".......=zz.U...",
            "........=......",
            ".........=.....",
            "..........=d...",
            "...........=...",
            "............=..",
            ".............=.",
            "..............=",
        ];
        for (writer, line) in Type::PRIMITIVES.iter().zip(table) {
            let got: Vec<ScalarStep> = Type::PRIMITIVES.iter().map(|reader| ScalarStep::of(writer, reader)).collect();
            let want: Vec<ScalarStep> = line.chars().map(step).collect();
            assert_eq!(got, want, "from {writer:?}");
        }
    }

    fn step(letter: char) -> ScalarStep {
        match letter {
            '=' => ScalarStep::Same,
            's' => ScalarStep::SignExtend,
            'z' => ScalarStep::ZeroExtend,
            'S' => ScalarStep::SignedToFloat,
            'U' => ScalarStep::UnsignedToFloat,
            'd' => ScalarStep::FloatToDouble,
            _ => ScalarStep::Refused,
        }
    }

    #[test]
    fn what_is_no_primitive_is_no_scalar() {
        assert_eq!(ScalarStep::of(&Type::string(), &Type::string()), ScalarStep::Refused);
    }
}
