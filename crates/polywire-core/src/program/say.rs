//! Describes the two numbers of an error in words. Their meaning depends on the kind of the fault.
//! The `Display` of `CodecError` (`io.rs`) calls it. It formats only.

use core::fmt;

use super::{CodecError, FaultKind};

/// Writes what was expected and what came, behind a comma: the error's words if it has some, else
/// its two numbers as the kind defines them.
pub(super) fn numbers(f: &mut fmt::Formatter<'_>, error: &CodecError) -> fmt::Result {
    let CodecError { kind, expected, got, expected_words, got_words, .. } = error;
    let (expected, got) = (*expected, *got);
    if !expected_words.is_empty() {
        write!(f, ", expected {expected_words}")?;
    }
    if !got_words.is_empty() {
        return write!(f, ", got {got_words}");
    }
    match kind {
        FaultKind::Encapsulation => {
            write!(
                f,
                ", expected {} or {}, got {}",
                Encapsulation(expected),
                Encapsulation(expected | 1),
                Encapsulation(got)
            )
        }
        FaultKind::WireType => write!(f, ", expected {}, got {}", WireType(expected), WireType(got)),
        _ if expected == 0 && got == 0 => Ok(()),
        FaultKind::Truncated => write!(f, ", expected {} more, got {got}", Counted(expected, "byte")),
        FaultKind::Trailing => write!(f, ", got {} more", Counted(got, "byte")),
        FaultKind::Bound | FaultKind::Limit | FaultKind::TooDeep => {
            write!(f, ", expected at most {expected}, got {got}")
        }
        FaultKind::Count => write!(f, ", expected {}, got {got}", Counted(expected, "element")),
        FaultKind::OutOfRange if !expected_words.is_empty() || expected == 0 => write!(f, ", got {}", got as i64),
        FaultKind::OutOfRange if got == 0 => write!(f, ", expected a number of {}", Counted(expected, "bit")),
        FaultKind::OutOfRange => {
            write!(f, ", expected a number of {}, got {}", Counted(expected, "bit"), got as i64)
        }
        FaultKind::UnknownLiteral | FaultKind::UnknownCase | FaultKind::BadBool => write!(f, ", got {}", got as i64),
        FaultKind::Forbidden => write!(f, ", got {}", Byte(got)),
        FaultKind::Syntax | FaultKind::WrongKind if expected == 0 => write!(f, ", got {}", Byte(got)),
        FaultKind::WrongKind if !expected_words.is_empty() => write!(f, ", got {}", Byte(got)),
        FaultKind::Syntax | FaultKind::WrongKind => {
            write!(f, ", expected {}, got {}", Byte(expected), Byte(got))
        }
        _ => write!(f, ", expected {expected}, got {got}"),
    }
}

/// A number of things.
struct Counted(u64, &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted(count, thing) = self;
        write!(f, "{count} {thing}{}", if *count == 1 { "" } else { "s" })
    }
}

/// A byte of a message: the character, where it is one.
struct Byte(u64);

impl fmt::Display for Byte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u8::try_from(self.0) {
            Ok(byte @ 0x20..=0x7E) => write!(f, "'{}'", char::from(byte)),
            _ => write!(f, "0x{:02X}", self.0),
        }
    }
}

/// A wire type of Protobuf.
struct WireType(u64);

impl fmt::Display for WireType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "a varint",
            1 => "64 bits",
            2 => "a value behind its length",
            3 => "the start of a group",
            4 => "the end of a group",
            5 => "32 bits",
            other => return write!(f, "the unknown wire type {other}"),
        })
    }
}

/// The identifier of an encapsulation header.
struct Encapsulation(u64);

impl fmt::Display for Encapsulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "CDR_BE",
            1 => "CDR_LE",
            2 => "PL_CDR_BE",
            3 => "PL_CDR_LE",
            4 => "XML",
            6 => "CDR2_BE",
            7 => "CDR2_LE",
            8 => "D_CDR2_BE",
            9 => "D_CDR2_LE",
            10 => "PL_CDR2_BE",
            11 => "PL_CDR2_LE",
            other => return write!(f, "the unknown kind 0x{other:04X}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use super::*;

    fn said(kind: FaultKind, expected: u64, got: u64) -> String {
        CodecError::plain(kind, 7, expected, got).to_string()
    }

    #[test]
    fn characters_are_shown_as_such() {
        let said = |expected, got| said(FaultKind::Syntax, expected, got);
        assert_eq!(said(0x3A, 0x7D), "the syntax of the format is violated (byte 7, expected ':', got '}')");
        assert_eq!(said(0, 0x5D), "the syntax of the format is violated (byte 7, got ']')");
        assert_eq!(said(0x22, 1), "the syntax of the format is violated (byte 7, expected '\"', got 0x01)");
    }

    #[test]
    fn wire_types_have_their_names() {
        let text = said(FaultKind::WireType, 0, 1);
        assert_eq!(text, "the field has another wire type than its type (byte 7, expected a varint, got 64 bits)");
        let text = said(FaultKind::WireType, 2, 7);
        assert!(text.ends_with("expected a value behind its length, got the unknown wire type 7)"), "{text}");
    }

    #[test]
    fn encapsulations_have_their_names() {
        let text = said(FaultKind::Encapsulation, 8, 3);
        assert!(text.ends_with("(byte 7, expected D_CDR2_BE or D_CDR2_LE, got PL_CDR_LE)"), "{text}");
        assert!(said(FaultKind::Encapsulation, 0, 0x1234).ends_with("got the unknown kind 0x1234)"));
    }
}
