//! Scalars without quotes: which of them are numbers (YAML 1.2.2, section 10.3.2), and which texts
//! may stand without quotes.

use crate::{
    codec::lower::json::tokens::put_string,
    program::{Output, Status, kernels::number},
};

/// True if a text can stand without quotes, in block and flow, and is a string for every reader of
/// YAML 1.1 and 1.2: it begins with a letter or underscore, goes on with those, digits, single
/// blanks and `-./+`, and is no word that some take for a boolean, null or number.
pub(crate) fn is_plain(text: &[u8]) -> bool {
    let [first, .., last] = text else { return matches!(text, [b] if b.is_ascii_alphabetic() && !is_word(text)) };
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/' | b'+' | b' ');
    (first.is_ascii_alphabetic() || *first == b'_')
        && *last != b' '
        && text.iter().all(inner)
        && !text.windows(2).any(|pair| pair == b"  ")
        && !is_word(text)
}

/// A word that YAML 1.1, or one of its readers, takes for something else than a string.
fn is_word(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 13] =
        [b"y", b"n", b"yes", b"no", b"on", b"off", b"true", b"false", b"null", b"nan", b"inf", b"infinity", b"none"];
    text.len() <= 8 && WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// What a scalar without quotes becomes that is a number to YAML 1.2 and a string to YAML 1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Either {
    /// The number that it is to YAML 1.2.
    Number,
    /// A string of its text, for readers who know the type: they read a number from a string of
    /// one.
    Text,
}

/// Writes, as JSON, what a scalar without quotes is: null, a boolean, a number, or a string.
pub(crate) fn put_plain(output: &mut Output<'_>, text: &str, either: Either) -> Status {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => output.put(b"null"),
        "true" | "True" | "TRUE" => output.put(b"true"),
        "false" | "False" | "FALSE" => output.put(b"false"),
        ".nan" | ".NaN" | ".NAN" => output.put(b"\"NaN\""),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => output.put(b"\"Infinity\""),
        "-.inf" | "-.Inf" | "-.INF" => output.put(b"\"-Infinity\""),
        _ if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) => match either {
            Either::Text if !is_number_to_1_1(text) => put_string(output, text),
            _ => put_number(output, text),
        },
        _ => put_string(output, text),
    }
}

/// True if YAML 1.1, as PyYAML and others read it, has no string there:
/// <https://yaml.org/type/int.html> and `float.html`. It wants a point in a float, no sign in front
/// of one, and a sign behind the `e`; `0o7` is none of its numbers, nor is `08`, which is no octal
/// one.
fn is_number_to_1_1(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let all = |text: &str, digit: fn(&u8) -> bool| !text.is_empty() && text.bytes().all(|b| digit(&b));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if let Some(hex) = unsigned.strip_prefix("0x") {
        return all(hex, u8::is_ascii_hexdigit);
    }
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).map_or((unsigned, None), |(m, e)| (m, Some(e)));
    match mantissa.split_once('.') {
        Some((whole, fraction)) => {
            let signed =
                exponent.is_none_or(|e| e.strip_prefix(['-', '+']).is_some_and(|e| all(e, u8::is_ascii_digit)));
            let some = !whole.is_empty() || (!fraction.is_empty() && unsigned.len() == text.len());
            some && digits(whole) && digits(fraction) && signed
        }
        None if exponent.is_some() => false,
        None if mantissa.len() > 1 && mantissa.starts_with('0') => all(mantissa, |b| matches!(b, b'0'..=b'7')),
        None => all(mantissa, u8::is_ascii_digit),
    }
}

/// A number as JSON has it, or a string after all.
fn put_number(output: &mut Output<'_>, text: &str) -> Status {
    let radix = match text.get(..2) {
        Some("0x") => Some(16),
        Some("0o") => Some(8),
        _ => None,
    };
    if let Some(value) = radix.and_then(|radix| unsigned(&text[2..], radix)) {
        return number::put_u64(output, value);
    }
    match Parts::of(text) {
        Some(parts) => parts.put(output),
        None => put_string(output, text),
    }
}

fn unsigned(digits: &str, radix: u32) -> Option<u64> {
    let digits = Some(digits).filter(|digits| digits.bytes().all(|b| b.is_ascii_alphanumeric()))?;
    u64::from_str_radix(digits, radix).ok()
}

/// `[-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`
struct Parts<'t> {
    negative: bool,
    whole: &'t str,
    fraction: &'t str,
    exponent: &'t str,
}

impl<'t> Parts<'t> {
    fn of(text: &'t str) -> Option<Parts<'t>> {
        let is_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let negative = text.starts_with('-');
        let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
                (mantissa, Some(exponent).filter(|_| !digits.is_empty() && is_digits(digits))?)
            }
            None => (rest, ""),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let number = is_digits(whole) && is_digits(fraction) && !(whole.is_empty() && fraction.is_empty());
        number.then_some(Parts { negative, whole, fraction, exponent })
    }

    fn put(&self, output: &mut Output<'_>) -> Status {
        let whole = self.whole.trim_start_matches('0');
        let mut parts = [
            if self.negative { "-" } else { "" },
            if whole.is_empty() { "0" } else { whole },
            if self.fraction.is_empty() { "" } else { "." },
            self.fraction,
            if self.exponent.is_empty() { "" } else { "e" },
            self.exponent,
        ]
        .into_iter();
        match parts.all(|part| output.put(part.as_bytes()) == Status::Ok) {
            true => Status::Ok,
            false => Status::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{string::String, vec::Vec};

    use super::*;
    use crate::program::Limits;

    fn put(text: &str) -> String {
        let (mut bytes, limits) = (Vec::new(), Limits::default());
        let mut output = Output::new(&mut bytes, &limits);
        let status = put_plain(&mut output, text, Either::Number);
        assert_eq!(output.finish(status), Status::Ok);
        String::from_utf8(bytes).unwrap()
    }

    /// Found out with PyYAML 6: `type(yaml.safe_load(text))`.
    #[test]
    fn yaml_1_1_has_fewer_numbers() {
        for text in
            ["1", "-12", "+3", "0", "017", "0x1F", "1.5", "1.", "1.5e+3", "1.e-3", ".5", ".5e+3", "-0", "+1.5e-3"]
        {
            assert!(is_number_to_1_1(text), "{text}");
        }
        for text in [
            "0o7", "1e3", "1e+3", "1E5", "12e03", "1.5e3", ".5e3", "08", "089", "-.5", "+.5", "+1e3", "0o", "x", "-",
            ".",
        ] {
            assert!(!is_number_to_1_1(text), "{text}");
        }
    }

    #[test]
    fn the_core_schema_is_held() {
        for (text, json) in [
            ("~", "null"),
            ("TRUE", "true"),
            ("0x1F", "31"),
            ("0o17", "15"),
            ("017", "17"),
            ("+12", "12"),
            ("-0", "-0"),
            (".5", "0.5"),
            ("5.", "5"),
            ("+1e+3", "1e+3"),
            ("-.inf", "\"-Infinity\""),
            ("1_000", "\"1_000\""),
            ("0x", "\"0x\""),
            ("0x+1", "\"0x+1\""),
            ("-", "\"-\""),
            ("-0x1", "\"-0x1\""),
            (".", "\".\""),
            ("1e", "\"1e\""),
            ("1:20", "\"1:20\""),
            ("2001-12-14", "\"2001-12-14\""),
            ("nan", "\"nan\""),
            ("yes", "\"yes\""),
        ] {
            assert_eq!(put(text), json, "{text}");
        }
    }

    #[test]
    fn only_what_nobody_mistakes_stands_without_quotes() {
        for text in ["a", "EDDM", "mid price", "a-b/c.d", "_x", "yesterday", "Nonesuch", "a1e5"] {
            assert!(is_plain(text.as_bytes()), "{text}");
        }
        for text in [
            "", " ", "a ", " a", "a  b", "1", "-", "- a", "a: b", "a:", "a #b", "#", "y", "N", "No", "yes", "ON",
            "off", "TRUE", "null", "Null", "~", "NaN", ".inf", "Inf", "a,b", "[a]", "ü", "a\tb", "0x1", "<<", "=",
            "!a", "&a", "*a", "?", "|",
        ] {
            assert!(!is_plain(text.as_bytes()), "{text}");
        }
    }
}
