//! Rust types for the IDL primitives `long double`, `char` and `wchar`, which Rust lacks.

use core::fmt;

/// `long double`: IEEE 754 binary128, as sixteen bytes in the host's byte order.
///
/// Stable Rust has no type longer than `f64`. This one stores the bytes unchanged and converts from
/// and to `f64`. Equality compares bits, so a NaN equals itself and `-0` differs from `0`.
///
/// ```
/// use polywire_core::layout::Float128;
///
/// assert_eq!(Float128::from(-1.5).to_f64(), -1.5);
/// assert_eq!(Float128::from_bits(Float128::from(-1.5).to_bits()), Float128::from(-1.5));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Float128(pub [u8; 16]);

impl Float128 {
    const EXPONENT_MASK: u128 = 0x7FFF;
    const MANTISSA_BITS: u32 = 112;
    /// Difference between the biases of the two exponents: 16383 - 1023.
    const REBIAS: i32 = 16383 - 1023;

    /// Makes a number from its bits; the sign is the most significant bit.
    pub const fn from_bits(bits: u128) -> Float128 {
        Float128(bits.to_ne_bytes())
    }

    /// The bits; the sign is the most significant bit.
    pub const fn to_bits(self) -> u128 {
        u128::from_ne_bytes(self.0)
    }

    /// The nearest `f64`, ties to even. Numbers out of range become infinite.
    pub fn to_f64(self) -> f64 {
        let bits = self.to_bits();
        let sign = ((bits >> 127) as u64) << 63;
        let exponent = ((bits >> Self::MANTISSA_BITS) & Self::EXPONENT_MASK) as i32;
        let mantissa = bits & ((1 << Self::MANTISSA_BITS) - 1);
        let magnitude = match exponent {
            0x7FFF if mantissa == 0 => f64::INFINITY.to_bits(),
            0x7FFF => f64::NAN.to_bits() | (mantissa >> 60) as u64,
            // The subnormals of binary128 are far below the smallest f64.
            0 => 0,
            _ => Self::narrowed(exponent - Self::REBIAS, mantissa | 1 << Self::MANTISSA_BITS),
        };
        f64::from_bits(sign | magnitude)
    }

    /// Bits of the `f64` with the biased `exponent` and a mantissa of 113 bits. A carry out of the
    /// rounding increments the exponent, as IEEE 754 wants it.
    fn narrowed(exponent: i32, mantissa: u128) -> u64 {
        if exponent >= 0x7FF {
            return f64::INFINITY.to_bits();
        }
        let shift = 60 + if exponent < 1 { 1 - exponent } else { 0 } as u32;
        if shift > 113 {
            return 0;
        }
        let kept = (mantissa >> shift) as u64;
        let rest = mantissa & ((1 << shift) - 1);
        let half = 1u128 << (shift - 1);
        let up = rest > half || (rest == half && kept & 1 == 1);
        let base = if exponent < 1 { kept } else { (((exponent as u64) - 1) << 52) + kept };
        base + u64::from(up)
    }
}

impl From<f64> for Float128 {
    fn from(value: f64) -> Float128 {
        let bits = value.to_bits();
        let sign = u128::from(bits >> 63) << 127;
        let exponent = ((bits >> 52) & 0x7FF) as i32;
        let mantissa = u128::from(bits & ((1 << 52) - 1));
        let (exponent, mantissa) = match exponent {
            0 if mantissa == 0 => (0, 0),
            0 => {
                // Normalise: move the leading one to bit 52, which is implicit.
                let shift = 52 - (127 - mantissa.leading_zeros() as i32);
                (Float128::REBIAS + 1 - shift, (mantissa << shift) & ((1 << 52) - 1))
            }
            0x7FF => (0x7FFF, mantissa),
            _ => (exponent + Float128::REBIAS, mantissa),
        };
        Float128::from_bits(sign | (exponent as u128) << Float128::MANTISSA_BITS | mantissa << 60)
    }
}

impl fmt::Display for Float128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_f64(), f)
    }
}

impl fmt::Debug for Float128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_f64(), f)
    }
}

/// `char`: eight bits, usually ISO 8859-1.
///
/// ```
/// use polywire_core::layout::{Char16, Char8};
/// assert_eq!(Char8::try_from('ü').map(char::from), Ok('ü'));
/// assert!(Char8::try_from('€').is_err());
/// assert_eq!(Char16::try_from('€').unwrap().to_char(), Some('€'));
/// assert_eq!(Char16(0xD83D).to_char(), None);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Char8(pub u8);

impl From<Char8> for char {
    fn from(c: Char8) -> char {
        char::from(c.0)
    }
}

impl TryFrom<char> for Char8 {
    type Error = core::num::TryFromIntError;

    fn try_from(c: char) -> Result<Char8, Self::Error> {
        u8::try_from(u32::from(c)).map(Char8)
    }
}

/// `wchar`: one UTF-16 code unit. It may be one half of a surrogate pair.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Char16(pub u16);

impl Char16 {
    /// The character. `None` for half of a surrogate pair.
    pub fn to_char(self) -> Option<char> {
        char::from_u32(u32::from(self.0))
    }
}

impl TryFrom<char> for Char16 {
    type Error = core::num::TryFromIntError;

    fn try_from(c: char) -> Result<Char16, Self::Error> {
        u16::try_from(u32::from(c)).map(Char16)
    }
}

macro_rules! show_as_character {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", char::from_u32(u32::from(self.0)).unwrap_or(char::REPLACEMENT_CHARACTER))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match char::from_u32(u32::from(self.0)) {
                    Some(c) => write!(f, "{c:?}"),
                    None => write!(f, "'\\u{{{:04x}}}'", self.0),
                }
            }
        }
    )*};
}

show_as_character! { Char8 Char16 }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f64_survives_the_longer_form() {
        let mut bits = 0x9E37_79B9_7F4A_7C15u64;
        for _ in 0..2000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(bits);
            let back = Float128::from(value).to_f64();
            assert!(back.to_bits() == value.to_bits() || value.is_nan() && back.is_nan(), "{value:e}");
        }
        for value in [0.0, -0.0, 1.0, f64::MIN_POSITIVE, 5e-324, -4.9e-320, f64::MAX, f64::INFINITY, f64::NEG_INFINITY]
        {
            assert_eq!(Float128::from(value).to_f64().to_bits(), value.to_bits(), "{value:e}");
        }
    }

    #[test]
    fn the_bits_are_those_of_binary128() {
        assert_eq!(Float128::from(1.0).to_bits(), 0x3FFF << 112);
        assert_eq!(Float128::from(-2.0).to_bits(), 0xC000 << 112);
        assert_eq!(Float128::from(5e-324).to_bits(), (16383 - 1074) << 112);
    }

    #[test]
    fn what_lies_between_two_f64_rounds_to_even() {
        let one = Float128::from(1.0).to_bits();
        assert_eq!(Float128::from_bits(one + (1 << 59)).to_f64(), 1.0);
        assert_eq!(Float128::from_bits(one + (1 << 59) + 1).to_f64(), 1.0 + f64::EPSILON);
        assert_eq!(Float128::from_bits(one + (3 << 59)).to_f64(), 1.0 + 2.0 * f64::EPSILON);
        let max = Float128::from(f64::MAX).to_bits();
        assert_eq!(Float128::from_bits(max + (1 << 59)).to_f64(), f64::INFINITY);
        let tiny = Float128::from(5e-324).to_bits();
        assert_eq!(Float128::from_bits(tiny - (1 << 112)).to_f64(), 0.0);
        assert_eq!(Float128::from_bits(tiny - (1 << 112) + 1).to_f64(), 5e-324);
    }

    #[test]
    fn characters_show_themselves() {
        assert_eq!(alloc::format!("{} {:?} {:?}", Char8(b'a'), Char8(b'a'), Char16(0xD800)), "a 'a' '\\u{d800}'");
        assert!(Char8::try_from('€').is_err());
        assert_eq!(Char16::try_from('€'), Ok(Char16(0x20AC)));
    }
}
