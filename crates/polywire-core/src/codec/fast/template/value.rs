//! Converts initial values from and to text. `read` and `write` call it. Pure functions.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use super::{FieldType, Initial};

/// Parses an initial value of a type. `None` if the text is not a value of that type.
pub(super) fn parse(ty: FieldType, text: &str) -> Option<Initial> {
    match ty {
        FieldType::Int { signed, bits } => {
            let value: i128 = text.trim().parse().ok()?;
            let (min, max) = range(signed, bits);
            (min..=max).contains(&value).then_some(Initial::Int(value))
        }
        FieldType::Decimal => decimal(text.trim()),
        FieldType::Ascii => text.is_ascii().then(|| Initial::Bytes(text.as_bytes().into())),
        FieldType::Unicode => Some(Initial::Bytes(text.as_bytes().into())),
        FieldType::Bytes => bytes(text).map(|bytes| Initial::Bytes(bytes.into())),
    }
}

/// Writes a value in the form that [`parse`] reads.
pub(super) fn print(ty: FieldType, value: &Initial) -> String {
    match value {
        Initial::Int(value) => value.to_string(),
        Initial::Decimal { exponent, mantissa } => print_decimal(*exponent, *mantissa),
        Initial::Bytes(bytes) if ty == FieldType::Bytes => bytes.iter().map(|b| format!("{b:02x}")).collect(),
        Initial::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Smallest and largest value of an integer type.
pub(crate) fn range(signed: bool, bits: u8) -> (i128, i128) {
    match signed {
        true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        false => (0, (1i128 << bits) - 1),
    }
}

/// Parses `[-+]?digits[.digits]` and normalises it: the mantissa has no trailing zeros.
fn decimal(text: &str) -> Option<Initial> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = || whole.bytes().chain(fraction.bytes());
    if all().next().is_none() || !all().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let significant: Vec<u8> = all().skip_while(|b| *b == b'0').collect();
    let zeros = significant.iter().rev().take_while(|b| **b == b'0').count();
    let kept = &significant[..significant.len() - zeros];
    if kept.len() > 19 {
        return None;
    }
    let magnitude = kept.iter().fold(0i128, |sum, b| 10 * sum + i128::from(b - b'0'));
    let mantissa = i64::try_from(if negative { -magnitude } else { magnitude }).ok()?;
    let exponent = match mantissa {
        0 => 0,
        _ => i32::try_from(zeros).ok()?.checked_sub(i32::try_from(fraction.len()).ok()?)?,
    };
    (-63..=63).contains(&exponent).then_some(Initial::Decimal { exponent, mantissa })
}

fn print_decimal(exponent: i32, mantissa: i64) -> String {
    let sign = if mantissa < 0 { "-" } else { "" };
    let mut digits = mantissa.unsigned_abs().to_string();
    if exponent >= 0 {
        digits.extend(core::iter::repeat_n('0', exponent.min(63) as usize));
        return format!("{sign}{digits}");
    }
    let places = exponent.unsigned_abs() as usize;
    while digits.len() <= places {
        digits.insert(0, '0');
    }
    digits.insert(digits.len() - places, '.');
    format!("{sign}{digits}")
}

/// Parses pairs of hexadecimal digits with optional white space.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let digits = digits?;
    digits.len().is_multiple_of(2).then(|| digits.chunks_exact(2).map(|pair| 16 * pair[0] + pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_normalised() {
        let value = |text| match parse(FieldType::Decimal, text) {
            Some(Initial::Decimal { exponent, mantissa }) => Some((exponent, mantissa)),
            _ => None,
        };
        assert_eq!(value("12000"), Some((3, 12)));
        assert_eq!(value("-942.7550"), Some((-3, -942755)));
        assert_eq!(value("0.00"), Some((0, 0)));
        assert_eq!(value("9223372036854775807"), Some((0, i64::MAX)));
        assert_eq!(value("9223372036854775808"), None);
        assert_eq!(value("."), None);
        assert_eq!(value("1e5"), None);
        for text in ["12000", "-942.755", "0", "0.0001"] {
            let (exponent, mantissa) = value(text).unwrap();
            assert_eq!(print_decimal(exponent, mantissa), text);
        }
    }
}
