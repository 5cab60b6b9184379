//! Integers as decimal text: writing and reading. Kernels of text formats, `float` and `scalar`
//! call it. It touches slices and the output.

use super::super::{Output, Status};

/// Bytes that the longest integer of 64 bits takes, its sign included.
pub(crate) const MAX_LEN: usize = 20;

const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut i = 0;
    while i < 100 {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
};

/// The powers of ten that 64 bits hold.
pub(crate) const POWERS: [u64; 20] = {
    let mut powers = [1; 20];
    let mut i = 1;
    while i < 20 {
        powers[i] = powers[i - 1] * 10;
        i += 1;
    }
    powers
};

/// Number of decimal digits.
#[inline]
fn digits(value: u64) -> usize {
    // log10 from log2; the estimate is at most one too small.
    let bits = 64 - (value | 1).leading_zeros() as usize;
    let estimate = (bits * 1233) >> 12;
    estimate + usize::from(value >= POWERS[estimate] || value == 0)
}

/// Writes an integer without a sign.
#[inline]
pub(crate) fn put_u64(output: &mut Output<'_>, value: u64) -> Status {
    if output.reserve(MAX_LEN) == Status::Failed {
        return Status::Failed;
    }
    // SAFETY: `reserve` made room for `MAX_LEN` bytes, which the longest integer has.
    unsafe { append(output, value) };
    Status::Ok
}

/// Writes an integer with a sign if it is negative.
#[inline]
pub(crate) fn put_i64(output: &mut Output<'_>, value: i64) -> Status {
    if output.reserve(MAX_LEN) == Status::Failed {
        return Status::Failed;
    }
    // SAFETY: `reserve` made room for `MAX_LEN` bytes: a sign and nineteen digits, the most of any
    // negative integer.
    unsafe {
        if value < 0 {
            *output.here() = b'-';
            output.pos += 1;
        }
        append(output, value.unsigned_abs());
    }
    Status::Ok
}

/// Writes all bits as `0x` and 32 hexadecimal digits.
pub(crate) fn put_hex128(output: &mut Output<'_>, bits: u128) -> Status {
    let mut text = *b"0x00000000000000000000000000000000";
    for (i, digit) in text[2..].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(bits >> (124 - 4 * i)) as usize & 15];
    }
    output.put(&text)
}

/// Reads what [`put_hex128`] writes.
pub(crate) fn read_hex128(text: &[u8]) -> Option<u128> {
    let digits = text.strip_prefix(b"0x").filter(|digits| digits.len() == 32)?;
    digits.iter().try_fold(0, |bits, digit| Some(bits << 4 | u128::from(char::from(*digit).to_digit(16)?)))
}

/// Appends the digits.
///
/// # Safety
/// The output has room for them.
#[inline]
unsafe fn append(output: &mut Output<'_>, mut value: u64) {
    // SAFETY: the digits are written from the last to the first, `len` of them behind `start`.
    unsafe {
        let start = output.here();
        if value < 10 {
            *start = b'0' + value as u8;
            output.pos += 1;
            return;
        }
        let len = digits(value);
        let mut at = start.add(len);
        while value >= 100 {
            at = at.sub(2);
            at.cast::<[u8; 2]>().write(PAIRS[(value % 100) as usize]);
            value /= 100;
        }
        if value >= 10 {
            at.sub(2).cast::<[u8; 2]>().write(PAIRS[value as usize]);
        } else {
            *at.sub(1) = b'0' + value as u8;
        }
        output.pos += len;
    }
}

/// Appends the decimal digits at the start of `bytes` to `value`, and returns their number. The
/// value wraps if they are too many.
#[inline]
pub(crate) fn read_digits(bytes: &[u8], value: &mut u64) -> usize {
    let mut at = 0;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let n = leading_digits(word);
        if n == 0 {
            return at;
        }
        *value = value.wrapping_mul(POWERS[n]).wrapping_add(eight_digits(word << (64 - 8 * n)));
        at += n;
        if n < 8 {
            return at;
        }
    }
    while let Some(digit) = bytes.get(at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
        *value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    at
}

/// How many bytes of the word, lowest first, are digits.
#[inline]
fn leading_digits(word: u64) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // A digit's high nibble is 3, also after adding 6 to it; a carry into the next byte comes only
    // from a byte that is no digit.
    let other = (word & (ONES * 0xF0)) ^ (ONES * 0x30) | (word.wrapping_add(ONES * 6) & (ONES * 0xF0)) ^ (ONES * 0x30);
    other.trailing_zeros() as usize / 8
}

/// A bit for each byte that is no digit, the first byte's lowest.
#[inline]
pub(super) fn other_bytes(bytes: u128) -> u32 {
    let half = |word: u64| {
        const ONES: u64 = 0x0101_0101_0101_0101;
        let digits = word ^ (ONES * 0x30);
        // The highest bit of each byte says whether it is no digit, and no byte carries into the
        // next. The multiplication gathers these bits.
        let others = (((digits & (ONES * 0x7F)) + ONES * 0x76) | digits) & (ONES * 0x80);
        ((others >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
    };
    half(bytes as u64) | half((bytes >> 64) as u64) << 8
}

/// The number that eight digits make, the most significant in the lowest byte; a zero byte counts
/// as the digit 0.
#[inline]
pub(super) fn eight_digits(word: u64) -> u64 {
    let word = word & 0x0F0F_0F0F_0F0F_0F0F;
    let pairs = word.wrapping_mul(10).wrapping_add(word >> 8) & 0x00FF_00FF_00FF_00FF;
    let quads = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_FFFF_0000_FFFF;
    quads.wrapping_mul(10_000).wrapping_add(quads >> 32) & 0xFFFF_FFFF
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::ToString, vec::Vec};

    use super::*;
    use crate::program::Limits;

    fn written(write: impl FnOnce(&mut Output<'_>) -> Status) -> Vec<u8> {
        let (mut bytes, limits) = (Vec::new(), Limits::default());
        let mut output = Output::new(&mut bytes, &limits);
        let status = write(&mut output);
        assert_eq!(output.finish(status), Status::Ok);
        bytes
    }

    fn interesting() -> impl Iterator<Item = u64> {
        let near = POWERS.iter().chain(&[u64::MAX, 1 << 63, 1 << 53]).flat_map(|p| [p - 1, *p, p.wrapping_add(1)]);
        near.chain((0..64).map(|bit| 0x9E37_79B9_7F4A_7C15 >> bit))
    }

    #[test]
    fn integers_are_written_as_the_standard_library_does() {
        for value in interesting() {
            assert_eq!(written(|o| put_u64(o, value)), value.to_string().as_bytes());
            for signed in [value as i64, (value as i64).wrapping_neg()] {
                assert_eq!(written(|o| put_i64(o, signed)), signed.to_string().as_bytes());
            }
        }
    }

    #[test]
    fn digits_are_read_up_to_the_first_other_byte() {
        for value in interesting() {
            for tail in ["", ",", "/", ":", "  ,\"key\":1", "e5", ".25", "\u{ff}\u{ff}\u{ff}\u{ff}", "\0\0\0\0\0\0\0\0"]
            {
                let text = format!("{value}{tail}");
                let mut read = 0;
                assert_eq!(read_digits(text.as_bytes(), &mut read), value.to_string().len(), "{text}");
                assert_eq!(read, value, "{text}");
            }
        }
    }

    #[test]
    fn every_byte_but_ten_ends_the_digits() {
        for byte in 0..=255u8 {
            for at in 0..8 {
                let mut text = *b"12345678";
                text[at] = byte;
                let mut read = 0;
                let expected = if byte.is_ascii_digit() { 8 } else { at };
                assert_eq!(read_digits(&text, &mut read), expected, "{byte:#x} at {at}");
            }
        }
    }

    #[test]
    fn integers_of_both_signs_are_decimal_text() {
        use crate::program::{Limits, Output, kernels::number};
        let (limits, mut bytes) = (Limits::default(), Vec::new());
        let _ = Output::lend(&mut bytes, &limits, |output| {
            assert_eq!(number::put_u64(output, 1234567), Status::Ok);
            number::put_i64(output, -8)
        });
        assert_eq!(bytes, b"1234567-8");
    }
}
