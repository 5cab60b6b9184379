//! Values of constants and defaults in ROS 2 definitions.

use polywire_core::schema::Type;

use crate::ast::ExprKind;

/// Parses a value, or returns what was expected. The checker tests later whether a number fits its
/// type.
pub(super) fn parse(text: &str, ty: &Type) -> Result<ExprKind, &'static str> {
    match ty {
        Type::Bool => match text.to_ascii_lowercase().as_str() {
            "true" | "1" => Ok(ExprKind::Bool(true)),
            "false" | "0" => Ok(ExprKind::Bool(false)),
            _ => Err("true or false"),
        },
        Type::Float32 | Type::Float64 | Type::Float128 => match text.parse::<f64>() {
            Ok(number) => Ok(ExprKind::Float(number)),
            Err(_) => Err("a number"),
        },
        Type::String { .. } => string(text).map(|text| ExprKind::String(text.into())),
        _ => integer(text).map(ExprKind::Int).ok_or("an integer"),
    }
}

/// Parses an integer as Python does: decimal, or with the prefix `0x`, `0o` or `0b`.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let prefixed =
        [("0x", 16), ("0o", 8), ("0b", 2)].into_iter().find_map(|(p, radix)| Some((lower.strip_prefix(p)?, radix)));
    let (digits, radix) = prefixed.unwrap_or((&lower, 10));
    // `from_str_radix` would accept a second sign.
    let number = digits.starts_with(|c: char| c.is_digit(radix)).then(|| u64::from_str_radix(digits, radix).ok())??;
    Some(if negative { -i128::from(number) } else { i128::from(number) })
}

/// Parses a string: in quotes of either kind, where a backslash escapes that quote and itself, or
/// without quotes.
fn string(text: &str) -> Result<String, &'static str> {
    let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) else { return Ok(text.into()) };
    let Some(inner) = text[1..].strip_suffix(quote) else { return Err("a closing quote at the end of the string") };
    let mut out = String::new();
    let mut chars = inner.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some(next)) if *next == quote || *next == '\\' => out.extend(chars.next()),
            (c, _) if c == quote => return Err("nothing after the closing quote"),
            _ => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_python_reads_them() {
        for (text, number) in [("-5", -5), ("+7", 7), ("0xFF", 255), ("-0b11", -3), ("0o17", 15), ("010", 10)] {
            assert_eq!(integer(text), Some(number), "{text}");
        }
        assert_eq!(integer("18446744073709551615"), Some(i128::from(u64::MAX)));
        for text in ["", "-", "--1", "+-1", "0x", "1.5", "x", "0x-1"] {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    #[test]
    fn strings_may_be_quoted() {
        assert_eq!(string(r#""a \"b\" \\ \n""#).as_deref(), Ok(r#"a "b" \ \n"#));
        assert_eq!(string("'it\\'s'").as_deref(), Ok("it's"));
        assert_eq!(string("plain text").as_deref(), Ok("plain text"));
        assert!(string("\"open").is_err() && string("\"a\" b\"").is_err());
    }
}
