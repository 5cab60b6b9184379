//! Floats as text: writes the shortest decimal text that reads back as the same value, and parses
//! decimal numbers exactly. Kernels of text formats and `scalar` call it, and `state/decimal.rs`
//! and `jit/decimal.rs` use its powers. It touches slices and the output.

use core::mem::MaybeUninit;

use super::{
    super::{Output, Status},
    number::{self, POWERS, read_digits},
};

/// Writes a finite `f64`.
#[inline]
pub(crate) fn put_f64(output: &mut Output<'_>, value: f64) -> Status {
    put_text(output, value)
}

/// Writes a finite `f32`.
#[inline]
pub(crate) fn put_f32(output: &mut Output<'_>, value: f32) -> Status {
    put_text(output, value)
}

/// The size of the buffer of a float's text. The whole buffer is copied.
const ROOM: usize = size_of::<zmij::Buffer>();

#[inline]
fn put_text(output: &mut Output<'_>, value: impl zmij::Float) -> Status {
    if output.reserve(ROOM) == Status::Failed {
        return Status::Failed;
    }
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value);
    let (start, len) = (text.as_ptr(), text.len());
    let from = &raw const buffer;
    // SAFETY: the output has room for the whole buffer and so for the text in it, and buffer and
    // output do not overlap. Bytes behind the text may be uninitialised; they lie behind the
    // position, where nothing is read before it is written.
    unsafe {
        let to = output.here();
        if core::ptr::eq(start, from.cast()) {
            // Copying the whole buffer in a few moves is faster than copying the length of the
            // text.
            core::ptr::copy_nonoverlapping(from.cast::<MaybeUninit<u8>>(), to.cast::<MaybeUninit<u8>>(), ROOM);
        } else {
            core::ptr::copy_nonoverlapping(start, to, len);
        }
    }
    output.pos += len;
    Status::Ok
}

/// A number's text, split into its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    /// Bytes of text.
    pub len: usize,
    /// There is a minus sign.
    pub negative: bool,
    /// All digits as an integer, if [`Decimal::exact`].
    pub digits: u64,
    /// Power of ten that the digits are to be multiplied by.
    pub exponent: i64,
    /// The digits fit 64 bits and the exponent was not cut.
    pub exact: bool,
    /// The text has neither fraction nor exponent.
    pub plain: bool,
}

/// The offset at which a number's text violates the grammar of RFC 8259.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotANumber(pub usize);

/// Parses the most common form of number at the start of sixteen bytes: up to six digits, a point,
/// up to eight digits. Returns its value, which is exact but for the rounding of one division, and
/// its length; none for all other forms.
///
/// The lengths of numbers are unpredictable, and a mispredicted branch costs as much as this whole
/// function. So it does not branch on them.
#[inline]
pub(crate) fn point(text: &[u8]) -> Option<(f64, usize)> {
    let negative = text.first() == Some(&b'-');
    let text = if negative { text.get(1..)? } else { text };
    let bytes = u128::from_le_bytes(*text.first_chunk::<16>()?);
    let others = number::other_bytes(bytes);
    let whole = others.trailing_zeros();
    let end = (others & others.wrapping_sub(1)).trailing_zeros();
    let fraction = end.wrapping_sub(whole + 1);
    let zero = bytes as u8 == b'0' && whole != 1;
    if zero || !(1..=6).contains(&whole) || !(1..=8).contains(&fraction) || text.get(whole as usize) != Some(&b'.') {
        return None;
    }
    let last_of = |word: u64, digits: u32| number::eight_digits(word << (64 - 8 * digits));
    let power = POWERS[fraction as usize];
    let digits = last_of(bytes as u64, whole) * power + last_of((bytes >> (8 * whole + 8)) as u64, fraction);
    let value = digits as f64 / power as f64;
    Some((if negative { -value } else { value }, end as usize + usize::from(negative)))
}

/// Digits that always fit 64 bits.
const SAFE_DIGITS: usize = 19;

/// Splits a number into its parts by the grammar of RFC 8259, section 6.
#[inline]
pub(crate) fn decimal(bytes: &[u8]) -> Result<Decimal, NotANumber> {
    let negative = bytes.first() == Some(&b'-');
    let start = usize::from(negative);
    let mut digits = 0;
    let whole = read_digits(&bytes[start..], &mut digits);
    if whole == 0 || (whole > 1 && bytes[start] == b'0') {
        return Err(NotANumber(start + whole.min(1)));
    }
    let len = start + whole;
    let number = Decimal { len, negative, digits, exponent: 0, exact: whole <= SAFE_DIGITS, plain: true };
    match bytes.get(len) {
        Some(b'.' | b'e' | b'E') => rest(bytes, number, whole),
        _ => Ok(number),
    }
}

/// Splits a text that is a number as a whole. Like [`plain_number`], it accepts other forms, too.
pub(crate) fn whole_text<'a>(text: &'a [u8], buffer: &'a mut [u8; 512]) -> Option<(Decimal, &'a [u8])> {
    let text = plain_number(text, buffer);
    Some((decimal(text).ok().filter(|number| number.len == text.len())?, text))
}

/// Rewrites a number so that [`decimal`] accepts it, if it is one: without a plus sign, without
/// leading zeros, and without a point that has digits on one side only.
pub(crate) fn plain_number<'a>(text: &'a [u8], buffer: &'a mut [u8; 512]) -> &'a [u8] {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] if digits.first() != Some(&b'-') => (false, digits),
        digits => (false, digits),
    };
    let ordinary = matches!(digits, [b'0'] | [b'0', b'.', b'0'..=b'9', ..] | [b'1'..=b'9', ..]);
    if (ordinary && text.first() != Some(&b'+') && !digits.contains(&b'.')) || digits.len() > buffer.len() - 4 {
        return text;
    }
    let zeros = digits.iter().take_while(|b| **b == b'0').count();
    let digits = &digits[zeros..];
    let mut len = 0;
    let mut push = |byte| {
        buffer[len] = byte;
        len += 1;
    };
    if negative {
        push(b'-');
    }
    let only_behind_point = matches!(digits, [b'.', b'0'..=b'9', ..]);
    if only_behind_point || (zeros > 0 && !digits.first().is_some_and(u8::is_ascii_digit)) {
        push(b'0');
    }
    for (at, byte) in digits.iter().enumerate() {
        // A point without digits behind it is dropped.
        let lonely = *byte == b'.' && !digits.get(at + 1).is_some_and(u8::is_ascii_digit) && (at > 0 || zeros > 0);
        if !lonely {
            push(*byte);
        }
    }
    &buffer[..len]
}

/// Fraction and exponent.
#[inline]
fn rest(bytes: &[u8], mut number: Decimal, whole: usize) -> Result<Decimal, NotANumber> {
    number.plain = false;
    if bytes[number.len] == b'.' {
        let fraction = read_digits(&bytes[number.len + 1..], &mut number.digits);
        number.len += 1 + fraction;
        if fraction == 0 {
            return Err(NotANumber(number.len));
        }
        number.exponent = -(fraction as i64);
        number.exact = whole + fraction <= SAFE_DIGITS || leading_zeros(bytes, &number, whole + fraction);
    }
    if matches!(bytes.get(number.len), Some(b'e' | b'E')) {
        return exponent(bytes, number);
    }
    Ok(number)
}

/// True if more than [`SAFE_DIGITS`] digits fit nevertheless, because many are leading zeros, as in
/// 0.00000000000000000001.
#[cold]
fn leading_zeros(bytes: &[u8], number: &Decimal, digits: usize) -> bool {
    let text = &bytes[..number.len];
    let zeros = text.iter().skip_while(|b| **b == b'-').take_while(|b| matches!(b, b'0' | b'.'));
    digits - zeros.filter(|b| **b == b'0').count() <= SAFE_DIGITS
}

fn exponent(bytes: &[u8], mut number: Decimal) -> Result<Decimal, NotANumber> {
    number.len += 1;
    let negative = bytes.get(number.len) == Some(&b'-');
    if matches!(bytes.get(number.len), Some(b'-' | b'+')) {
        number.len += 1;
    }
    let mut value = 0;
    let digits = read_digits(&bytes[number.len..], &mut value);
    if digits == 0 {
        return Err(NotANumber(number.len));
    }
    number.len += digits;
    if digits > 9 {
        number.exact = false;
    } else {
        number.exponent += if negative { -(value as i64) } else { value as i64 };
    }
    Ok(number)
}

/// The powers of ten that an `f64` holds.
const F64_POWERS: [f64; 23] = {
    let mut powers = [1.0; 23];
    let mut i = 1;
    while i < 23 {
        powers[i] = if i < 20 { POWERS[i] as f64 } else { powers[i - 1] * 10.0 };
        i += 1;
    }
    powers
};

impl Decimal {
    /// The nearest `f64`, ties to even. `text` is the number's text. A number that is too large
    /// becomes infinite.
    #[inline]
    pub(crate) fn to_f64(self, text: &[u8]) -> f64 {
        match self.quick() {
            Some(value) => value,
            None => slow::<f64>(text, self.len),
        }
    }

    /// The nearest `f32`, ties to even.
    #[inline]
    pub(crate) fn to_f32(self, text: &[u8]) -> f32 {
        self.quick().and_then(narrowed).unwrap_or_else(|| slow::<f32>(text, self.len))
    }

    /// If digits and power of ten are both exact as doubles, one operation gives the nearest (W. D.
    /// Clinger, 1990).
    #[inline]
    fn quick(&self) -> Option<f64> {
        if !self.exact || self.digits > 1 << 53 || !(-22..=22).contains(&self.exponent) {
            return None;
        }
        let digits = self.digits as f64;
        let value = match self.exponent {
            0 => digits,
            e if e < 0 => digits / F64_POWERS[e.unsigned_abs() as usize],
            e => digits * F64_POWERS[e as usize],
        };
        Some(if self.negative { -value } else { value })
    }

    /// The number as an integer, if it is one, as 1.0 and 1e2 are. None if it needs more than 64
    /// bits and a sign.
    pub(crate) fn to_integer(self, text: &[u8]) -> Option<i128> {
        let (digits, exponent) = if self.exact { (self.digits, self.exponent) } else { self.significant(text)? };
        let power = |e: i64| usize::try_from(e).ok().and_then(|e| POWERS.get(e)).copied();
        let magnitude = match exponent {
            _ if digits == 0 => 0,
            e if e < 0 => {
                let divisor = power(-e)?;
                (digits % divisor == 0).then(|| digits / divisor)?
            }
            e => digits.checked_mul(power(e)?)?,
        };
        Some(if self.negative { -i128::from(magnitude) } else { i128::from(magnitude) })
    }

    /// The digits without leading and trailing zeros, and their exponent: for numbers with many
    /// digits, such as 10000000000000000000000e-10.
    #[cold]
    fn significant(&self, text: &[u8]) -> Option<(u64, i64)> {
        let text = text.get(..self.len)?;
        let mantissa = text.split(|b| matches!(b, b'e' | b'E')).next()?;
        let (mut digits, mut zeros, mut exponent) = (0u64, 0u32, self.exponent);
        for digit in mantissa.iter().filter(|b| b.is_ascii_digit()).map(|b| u64::from(b - b'0')) {
            if digit == 0 {
                zeros += u32::from(digits != 0);
                continue;
            }
            digits = digits.checked_mul(*POWERS.get(zeros as usize + 1)?)?.checked_add(digit)?;
            zeros = 0;
        }
        exponent += i64::from(zeros);
        // A longer exponent was not read; then only zero is an integer.
        let read = text[mantissa.len()..].len() <= 11;
        (read || digits == 0).then_some((digits, exponent))
    }

    /// The value as a double, if it is exactly that.
    pub(crate) fn to_exact_f64(self, text: &[u8]) -> Option<f64> {
        let (mut digits, exponent) = if self.exact { (self.digits, self.exponent) } else { self.significant(text)? };
        if digits == 0 {
            return Some(if self.negative { -0.0 } else { 0.0 });
        }
        if exponent < 0 {
            // Divided by 10^n it is dyadic only if 5^n divides it.
            let fives = 5u64.checked_pow(u32::try_from(-exponent).ok()?)?;
            digits = (digits % fives == 0).then(|| digits / fives)?;
        } else {
            digits = digits.checked_mul(5u64.checked_pow(u32::try_from(exponent).ok()?)?)?;
        }
        let bits = 64 - digits.leading_zeros() - digits.trailing_zeros();
        (bits <= 53).then(|| self.to_f64(text))
    }
}

/// Rounds a double, which was itself rounded, to a float, if that gives the same result as rounding
/// the number directly. It may not where the double lies exactly between two floats, and for
/// subnormals.
#[inline]
pub(crate) fn narrowed(value: f64) -> Option<f32> {
    let between = value.to_bits() & 0x1FFF_FFFF == 0x1000_0000;
    let normal = f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX);
    (value == 0.0 || (!between && normal.contains(&value.abs()))).then_some(value as f32)
}

#[cold]
fn slow<T: fast_float2::FastFloat + Default>(text: &[u8], len: usize) -> T {
    // The text is a number by the grammar, all of which the parser takes.
    fast_float2::parse(text.get(..len).unwrap_or(text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::String};

    use super::*;
    use crate::schema::arbitrary::Random;

    fn f64_of(text: &str) -> f64 {
        decimal(text.as_bytes()).unwrap().to_f64(text.as_bytes())
    }

    fn f32_of(text: &str) -> f32 {
        decimal(text.as_bytes()).unwrap().to_f32(text.as_bytes())
    }

    #[test]
    fn the_commonest_numbers_are_read_at_once() {
        let mut random = Random::new(2);
        for _ in 0..50_000 {
            let (whole, fraction) = (1 + random.below(8), 1 + random.below(10));
            let digits = |n| 10u64.pow(n as u32);
            let sign = ["", "-"][random.below(2)];
            let number =
                format!("{sign}{}.{:02$}", random.bits() % digits(whole), random.bits() % digits(fraction), fraction);
            let text = format!("{number},{:016}", random.bits());
            let wide = number.trim_start_matches('-').find('.') > Some(6) || fraction > 8;
            let expected = (!wide).then(|| (number.parse::<f64>().unwrap().to_bits(), number.len()));
            assert_eq!(point(text.as_bytes()).map(|(value, len)| (value.to_bits(), len)), expected, "{number}");
        }
        for other in ["1", "-", ".5", "1.", "01.5", "00.5", "--1.5", "1,5", "-01.5", "a.5", "1.a", "1/5", "1:5"] {
            assert_eq!(point(format!("{other},0123456789012345").as_bytes()), None, "{other}");
        }
        assert_eq!(point(b"1.5,34567890123"), None, "there are fewer than sixteen bytes");
        for end in ["e5", ".", "/", ":", "]", "\u{e9}"] {
            assert_eq!(
                point(format!("0.25{end}0123456789012345").as_bytes()),
                Some((0.25, 4)),
                "the next byte is the caller's"
            );
        }
    }

    #[test]
    fn floats_read_as_the_standard_library_reads_them() {
        let mut random = Random::new(1);
        let mut texts: alloc::vec::Vec<String> = [
            "0",
            "-0",
            "0.0",
            "-0.0e5",
            "1e22",
            "1e23",
            "9007199254740993",
            "9007199254740992",
            "1e308",
            "1e309",
            "4.9e-324",
            "2.4e-324",
            "16777217",
            "16777217.0000001",
            "33554435",
            "3.4028235e38",
            "3.4028236e38",
            "1e-45",
            "7e-46",
            "1.17549435e-38",
            "0.00000000000000000000000000012345678901234567890",
            "123456789012345678901234567890",
            "1e999999999999",
            "1e-999999999999",
            "0e999999999999",
            "1.00000017881393432617187499",
            "1.00000017881393432617187500",
            "1.00000017881393432617187501",
        ]
        .map(String::from)
        .into();
        for _ in 0..20_000 {
            let bits = random.bits();
            let (double, single) = (f64::from_bits(bits), f32::from_bits(bits as u32));
            if double.is_finite() && single.is_finite() {
                texts.extend([format!("{double:e}"), format!("{single:e}"), format!("{single}")]);
            }
            texts.push(format!("{}.{}e{}", bits >> 40, bits & 0xFFFF, (bits >> 20 & 63) as i64 - 32));
        }
        for text in texts {
            assert_eq!(f64_of(&text).to_bits(), text.parse::<f64>().unwrap().to_bits(), "{text}");
            assert_eq!(f32_of(&text).to_bits(), text.parse::<f32>().unwrap().to_bits(), "{text}");
        }
    }

    #[test]
    fn the_grammar_is_held() {
        for text in ["", "-", "01", "-01", "1.", ".5", "1.e3", "1e", "1e+", "+1", "--1", "a", "00"] {
            assert!(decimal(text.as_bytes()).is_err(), "{text}");
        }
        for (text, len) in [("1,", 1), ("-0.5]", 4), ("1e5}", 3), ("1E-05 ", 5), ("12.50x", 5)] {
            assert_eq!(decimal(text.as_bytes()).unwrap().len, len, "{text}");
        }
    }

    #[test]
    fn integers_may_be_written_with_fraction_and_exponent() {
        let integer = |text: &str| decimal(text.as_bytes()).unwrap().to_integer(text.as_bytes());
        for (text, value) in [
            ("1.0", 1),
            ("1e2", 100),
            ("-120e-1", -12),
            ("-0.0", 0),
            ("0e99999999999", 0),
            ("18446744073709551615", 18446744073709551615),
            ("1844674407370955161500000e-5", 18446744073709551615),
            ("9007199254740993.000", 9007199254740993),
            ("-9223372036854775808", -9223372036854775808),
        ] {
            assert_eq!(integer(text), Some(value), "{text}");
        }
        for text in [
            "1.5",
            "1e-1",
            "18446744073709551616",
            "1e20",
            "1e99999999999",
            "1e-99999999999",
            "1.0000000000000000000000001",
        ] {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    #[test]
    fn only_what_a_double_holds_is_exact() {
        let exact = |text: &str| decimal(text.as_bytes()).unwrap().to_exact_f64(text.as_bytes());
        for text in ["0.5", "1e3", "-0.0", "3.0625", "9007199254740992", "1e22"] {
            assert_eq!(exact(text).map(f64::to_bits), Some(text.parse::<f64>().unwrap().to_bits()), "{text}");
        }
        for text in ["0.1", "9007199254740993", "1e-1", "1e400"] {
            assert_eq!(exact(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_as_each_type() {
        use crate::program::{Limits, Output, kernels::float};
        let (limits, mut bytes) = (Limits::default(), Vec::new());
        let _ = Output::lend(&mut bytes, &limits, |output| {
            assert_eq!(float::put_f64(output, 0.1), Status::Ok);
            float::put_f32(output, 0.1)
        });
        assert_eq!(bytes, b"0.10.1");
        let text = b"-2.5e2,";
        let number: Decimal = float::decimal(text).unwrap_or_else(|_: NotANumber| panic!("it is a number"));
        assert_eq!((number.to_f64(text), number.to_f32(text), number.to_integer(text)), (-250.0, -250.0, Some(-250)));
        assert_eq!(number.to_exact_f64(text), Some(-250.0));
        assert!(float::decimal(b"x").is_err());
    }
}
