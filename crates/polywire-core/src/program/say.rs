//! The two numbers of an error in words, as its kind has them.

use core::fmt;

use super::FaultKind;

/// What was expected and what came, behind a comma; nothing where both are 0.
pub(super) fn numbers(f: &mut fmt::Formatter<'_>, kind: FaultKind, expected: u64, got: u64) -> fmt::Result {
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
        _ if expected == 0 && got == 0 => Ok(()),
        FaultKind::Syntax if expected == 0 => write!(f, ", got {}", Byte(got)),
        FaultKind::Syntax => write!(f, ", expected {}, got {}", Byte(expected), Byte(got)),
        _ => write!(f, ", expected {expected}, got {got}"),
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
    use crate::program::CodecError;

    fn said(kind: FaultKind, expected: u64, got: u64) -> String {
        CodecError { kind, path: String::new(), offset: 7, expected, got }.to_string()
    }

    #[test]
    fn characters_are_shown_as_such() {
        let said = |expected, got| said(FaultKind::Syntax, expected, got);
        assert_eq!(said(0x3A, 0x7D), "the syntax of the format is violated (byte 7, expected ':', got '}')");
        assert_eq!(said(0, 0x5D), "the syntax of the format is violated (byte 7, got ']')");
        assert_eq!(said(0x22, 1), "the syntax of the format is violated (byte 7, expected '\"', got 0x01)");
    }

    #[test]
    fn encapsulations_have_their_names() {
        let text = said(FaultKind::Encapsulation, 8, 3);
        assert!(text.ends_with("(byte 7, expected D_CDR2_BE or D_CDR2_LE, got PL_CDR_LE)"), "{text}");
        assert!(said(FaultKind::Encapsulation, 0, 0x1234).ends_with("got the unknown kind 0x1234)"));
    }
}
