//! Kernels that write element names, map keys, and values whose kind or length depends on the
//! value. The dialect `encode` puts them into programs. They touch the output only.

use super::{get, kind};
use crate::{
    codec::lower::keys::{Keys, with_decimal},
    layout::Scalar,
    program::{ActionKernel, FaultKind, Input, Output, ScalarKernel, Status, SymbolKernel, SymbolTable},
};

/// A `uint64` after the header of an int64.
pub(super) static UNSIGNED: ScalarKernel = ScalarKernel::put_only("bson unsigned", Scalar::U64, put_unsigned);
/// [`UNSIGNED`] after a header whose position was recorded by [`MARK`].
pub(super) static MARKED_UNSIGNED: ScalarKernel =
    ScalarKernel::put_only("bson marked unsigned", Scalar::U64, put_marked_unsigned);
/// A `char` after the header of a string.
pub(super) static CHAR8: ScalarKernel = ScalarKernel::put_only("bson char", Scalar::U8, put_char);
/// A `wchar` after the header of a string.
pub(super) static CHAR16: ScalarKernel = ScalarKernel::put_only("bson wchar", Scalar::U16, put_char16);
/// [`CHAR16`] after a header whose position was recorded by [`MARK`].
pub(super) static MARKED_CHAR16: ScalarKernel =
    ScalarKernel::put_only("bson marked wchar", Scalar::U16, put_marked_char16);
/// The name of an enum literal as a string.
pub(super) static LITERAL: SymbolKernel = SymbolKernel::put_only("bson literal", put_literal);
/// Records the position of the next element's kind.
pub(super) static MARK: ActionKernel = ActionKernel::put_only("bson mark", put_mark);

/// The header of an array's element: its kind, and its index as the name.
pub(super) fn index(kind: u8) -> &'static ScalarKernel {
    macro_rules! kernels {
        ($($kind:ident)*) => {
            match kind {
                $(kind::$kind => {
                    static KERNEL: ScalarKernel =
                        ScalarKernel::put_only("bson index", Scalar::U64, put_index::<{ kind::$kind }>);
                    &KERNEL
                })*
                _ => unreachable!("no type is written as another kind"),
            }
        };
    }
    kernels! { DOUBLE STRING DOCUMENT ARRAY BINARY BOOLEAN INT32 INT64 }
}

/// Pairs of decimal digits, the first digit in the low byte.
static PAIRS: [u16; 100] = {
    let mut pairs = [0; 100];
    let mut i = 0;
    while i < 100 {
        pairs[i] = (b'0' as usize + i / 10 + ((b'0' as usize + i % 10) << 8)) as u16;
        i += 1;
    }
    pairs
};

extern "C" fn put_index<const KIND: u8>(output: &mut Output<'_>, index: u64) -> Status {
    if index >= 1_000_000 {
        return put_long_index(output, KIND, index);
    }
    // Six digits at once, with the leading zeros shifted out. The bytes above them are the name's
    // NUL.
    let index = index as u32;
    let pair = |n: u32| u64::from(PAIRS[n as usize]);
    let digits = pair(index / 10_000) | pair(index / 100 % 100) << 16 | pair(index % 100) << 32;
    let zeros = u32::from(index < 100_000)
        + u32::from(index < 10_000)
        + u32::from(index < 1000)
        + u32::from(index < 100)
        + u32::from(index < 10);
    output.put_word(digits >> (8 * zeros) << 8 | u64::from(KIND), 8 - zeros as usize)
}

#[cold]
fn put_long_index(output: &mut Output<'_>, kind: u8, index: u64) -> Status {
    output.put(&[kind]).then(|| with_decimal(false, index, |text| put_name(output, text)))
}

extern "C" fn put_unsigned(output: &mut Output<'_>, value: u64) -> Status {
    match value <= i64::MAX as u64 {
        true => output.put_word(value, 8),
        false => change_and_put_unsigned(output, value),
    }
}

#[cold]
fn change_and_put_unsigned(output: &mut Output<'_>, value: u64) -> Status {
    change_kind(output, kind::BINARY);
    put_large(output, value)
}

extern "C" fn put_marked_unsigned(output: &mut Output<'_>, value: u64) -> Status {
    if value <= i64::MAX as u64 {
        return output.put_word(value, 8);
    }
    change_marked_kind(output, kind::BINARY);
    put_large(output, value)
}

/// Writes a number too large for an int64 as binary.
fn put_large(output: &mut Output<'_>, value: u64) -> Status {
    let mut bytes = [0; 4 + 1 + 8];
    bytes[0] = 8;
    bytes[4] = kind::NUMBER;
    bytes[5..].copy_from_slice(&value.to_le_bytes());
    output.put(&bytes)
}

/// Changes the kind of the element whose header was just written. Member names contain no control
/// characters and kinds are control characters, so the last one in front of the name's NUL is the
/// kind.
fn change_kind(output: &mut Output<'_>, kind: u8) {
    let written = output.written();
    let name_end = written.len().saturating_sub(1);
    if let Some(at) = written[..name_end].iter().rposition(|byte| *byte < 0x20) {
        written[at] = kind;
    }
}

fn change_marked_kind(output: &mut Output<'_>, kind: u8) {
    output.patch(output.mark, &[kind]);
}

extern "C" fn put_char(output: &mut Output<'_>, code: u64) -> Status {
    put_string(output, char::from(code as u8).encode_utf8(&mut [0; 4]))
}

extern "C" fn put_char16(output: &mut Output<'_>, code: u64) -> Status {
    put_char16_or(output, code, change_kind)
}

extern "C" fn put_marked_char16(output: &mut Output<'_>, code: u64) -> Status {
    put_char16_or(output, code, change_marked_kind)
}

fn put_char16_or(output: &mut Output<'_>, code: u64, change_kind: fn(&mut Output<'_>, u8)) -> Status {
    match char::from_u32(code as u32) {
        Some(char) => put_string(output, char.encode_utf8(&mut [0; 4])),
        None => {
            change_kind(output, kind::INT32);
            output.put(&(code as u32).to_le_bytes())
        }
    }
}

fn put_string(output: &mut Output<'_>, text: &str) -> Status {
    let Ok(len) = i32::try_from(text.len() + 1) else {
        return output.fail(FaultKind::Unrepresentable, i32::MAX as u64, text.len() as u64 + 1);
    };
    output.put(&len.to_le_bytes()).then(|| put_name(output, text))
}

/// Writes text and a NUL.
fn put_name(output: &mut Output<'_>, text: &str) -> Status {
    output.put(text.as_bytes()).then(|| output.put(&[0]))
}

/// Names end with a NUL.
pub(super) struct Names;

impl Keys for Names {
    const BEHIND: usize = 1;

    fn key<'a>(input: &mut Input<'a>) -> Result<&'a [u8], Status> {
        get::name(input)
    }

    fn put_key(output: &mut Output<'_>, name: &str) -> Status {
        put_name(output, name)
    }

    fn put_any_key(output: &mut Output<'_>, text: &str) -> Status {
        match text.bytes().any(|byte| byte == 0) {
            true => output.fail(FaultKind::Unrepresentable, 0, 0),
            false => put_name(output, text),
        }
    }
}

extern "C" fn put_literal(output: &mut Output<'_>, table: &SymbolTable, value: u64) -> Status {
    match table.name(value as i64) {
        Some(name) => put_string(output, name),
        None => output.fail(FaultKind::UnknownLiteral, 0, value),
    }
}

extern "C" fn put_mark(output: &mut Output<'_>, _: u64) -> Status {
    output.mark = output.position();
    Status::Ok
}

#[cfg(test)]
mod tests {
    use alloc::{format, vec::Vec};

    use super::*;
    use crate::program::Limits;

    #[test]
    fn indices_are_decimal() {
        for i in (0..1200).chain([9999, 10_000, 99_999, 100_000, 999_999, 1_000_000, 12_345_678, u64::MAX]) {
            let mut bytes = Vec::new();
            let limits = Limits::default();
            let mut output = Output::new(&mut bytes, &limits);
            let status = put_index::<{ kind::INT32 }>(&mut output, i);
            assert_eq!(output.finish(status), Status::Ok);
            assert_eq!(bytes, format!("\x10{i}\0").as_bytes());
        }
    }
}
