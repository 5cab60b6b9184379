//! Traits over the integers and floats of Rust: their bytes in memory, which kernels of slices use,
//! and their decimal text and accumulator word, for text formats (JSON, XML). They touch slices and
//! the output.

use super::{
    super::{Output, Status},
    float::{self, Decimal},
    number,
};
use crate::layout::Scalar;

/// A Rust integer or float in memory.
pub(crate) trait Plain: Copy + 'static {
    /// The scalar type.
    const SCALAR: Scalar;
    /// Its bytes in memory.
    const SIZE: usize = Self::SCALAR.size();
    /// Whether it is a float.
    const FLOAT: bool = matches!(Self::SCALAR, Scalar::F32 | Scalar::F64);

    /// The value from its bytes in memory.
    fn of_bytes(bytes: &[u8]) -> Self;
    /// Stores the value's bytes in memory.
    fn to_bytes(self, bytes: &mut [u8]);
}

macro_rules! plain {
    ($($number:ident $scalar:ident;)*) => {$(
        impl Plain for $number {
            const SCALAR: Scalar = Scalar::$scalar;

            #[inline(always)]
            fn of_bytes(bytes: &[u8]) -> $number {
                bytes.first_chunk().map_or(Default::default(), |bytes| $number::from_ne_bytes(*bytes))
            }

            #[inline(always)]
            fn to_bytes(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

plain! { i8 I8; i16 I16; i32 I32; i64 I64; u8 U8; u16 U16; u32 U32; u64 U64; f32 F32; f64 F64; }

/// The value of an expression, with `$type` as the Rust type of a scalar. `None` for booleans and
/// floats of 128 bits.
macro_rules! of_number {
    ($of:expr, $type:ident => $value:expr) => {
        of_number! {
            $of, $type => $value;
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, F32 f32, F64 f64
        }
    };
    ($of:expr, $type:ident => $value:expr; $($scalar:ident $number:ident),*) => {
        match $of {
            $(Scalar::$scalar => {
                type $type = $number;
                Some($value)
            })*
            Scalar::Bool | Scalar::F128 => None,
        }
    };
}
pub(crate) use of_number;

/// A number with its text.
pub(crate) trait Number: Plain {
    /// The value of a number's text, split into its parts; none if the type cannot hold it, which
    /// for a float means that it is too large.
    fn of_decimal(number: &Decimal, text: &[u8]) -> Option<Self>;
    /// Parses a common form of number at the start of the text, and returns its length; none for
    /// all other forms, which the slow path handles.
    fn quick(text: &[u8]) -> Option<(Self, usize)>;
    /// Writes it. Floats must be finite.
    fn put(self, output: &mut Output<'_>) -> Status;
    /// The nearest value of the type; for values that are not finite.
    fn of_f64(value: f64) -> Self;
    /// As a double, to test whether it is finite. Integers are.
    fn as_f64(self) -> f64;
    /// The value as an accumulator word.
    fn word(self) -> u64;
    /// The value from an accumulator word.
    fn of_word(word: u64) -> Self;
}

macro_rules! integers {
    ($($int:ident $put:ident $wide:ident;)*) => {$(
        impl Number for $int {
            #[inline]
            fn of_decimal(number: &Decimal, text: &[u8]) -> Option<$int> {
                if !number.plain || !number.exact {
                    return $int::try_from(number.to_integer(text)?).ok();
                }
                let value = i128::from(number.digits);
                $int::try_from(if number.negative { -value } else { value }).ok()
            }

            #[inline]
            fn quick(text: &[u8]) -> Option<($int, usize)> {
                let number = float::decimal(text).ok().filter(|number| number.plain && number.exact)?;
                Some(($int::of_decimal(&number, text)?, number.len))
            }

            #[inline]
            fn put(self, output: &mut Output<'_>) -> Status {
                number::$put(output, $wide::from(self))
            }

            fn of_f64(value: f64) -> $int {
                value as $int
            }

            fn as_f64(self) -> f64 {
                self as f64
            }

            fn word(self) -> u64 {
                self as u64
            }

            fn of_word(word: u64) -> $int {
                word as $int
            }
        }
    )*};
}

integers! {
    i8 put_i64 i64;
    i16 put_i64 i64;
    i32 put_i64 i64;
    i64 put_i64 i64;
    u8 put_u64 u64;
    u16 put_u64 u64;
    u32 put_u64 u64;
    u64 put_u64 u64;
}

macro_rules! floats {
    ($($float:ident $bits:ident $put:ident $to:ident $of_double:expr;)*) => {$(
        impl Number for $float {
            #[inline]
            fn of_decimal(number: &Decimal, text: &[u8]) -> Option<$float> {
                Some(number.$to(text)).filter(|value| value.is_finite())
            }

            #[inline]
            fn quick(text: &[u8]) -> Option<($float, usize)> {
                if let Some((value, len)) = float::point(text)
                    && let Some(value) = $of_double(value)
                {
                    return Some((value, len));
                }
                let number = float::decimal(text).ok()?;
                Some(($float::of_decimal(&number, text)?, number.len))
            }

            #[inline]
            fn put(self, output: &mut Output<'_>) -> Status {
                float::$put(output, self)
            }

            fn of_f64(value: f64) -> $float {
                value as $float
            }

            #[inline]
            fn as_f64(self) -> f64 {
                f64::from(self)
            }

            fn word(self) -> u64 {
                u64::from(self.to_bits())
            }

            fn of_word(word: u64) -> $float {
                $float::from_bits(word as $bits)
            }
        }
    )*};
}

floats! {
    f32 u32 put_f32 to_f32 float::narrowed;
    f64 u64 put_f64 to_f64 Some;
}
