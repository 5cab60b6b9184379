//! Which scalar of the writer's may become which of the reader's.

use crate::schema::Type;

/// What turns a writer's scalar into a reader's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScalarStep {
    /// The same bits: the same type, or `octet` and `uint8`.
    Same,
    /// A signed integer into a larger signed one: copy the sign.
    SignExtend,
    /// An unsigned integer into a larger integer, signed or not: fill with zeros.
    ZeroExtend,
    /// A signed integer into a float that holds every value of it.
    SignedToFloat,
    /// An unsigned integer into a float that holds every value of it.
    UnsignedToFloat,
    /// `float` into `double`.
    FloatToDouble,
    /// Not without loss, or not without a guess at what is meant.
    Refused,
}

impl ScalarStep {
    /// The step from the writer's type to the reader's; both resolved. [`ScalarStep::Refused`] for
    /// what is no primitive.
    ///
    /// Only steps that keep every value are taken. So `int64` does not become `double`, nothing
    /// becomes narrower, and a boolean, a character or an octet is no number.
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

/// Largest number of bits of which a float holds every integer. `long double` is left out: hardly a
/// machine computes with it.
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

    const ALL: [Type; 15] = [
        Type::Bool,
        Type::Octet,
        Type::Int8,
        Type::Uint8,
        Type::Int16,
        Type::Uint16,
        Type::Int32,
        Type::Uint32,
        Type::Int64,
        Type::Uint64,
        Type::Float32,
        Type::Float64,
        Type::Float128,
        Type::Char8,
        Type::Char16,
    ];

    #[test]
    fn the_whole_table() {
        // One line a writer's type, in the order of ALL: '=' same, 's' and 'z' extend, 'S' and 'U'
        // to float, 'd' to double.
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
        for (writer, line) in ALL.iter().zip(table) {
            let got: Vec<ScalarStep> = ALL.iter().map(|reader| ScalarStep::of(writer, reader)).collect();
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
