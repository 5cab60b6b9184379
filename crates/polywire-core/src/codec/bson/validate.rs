//! Validation of a complete document, independent of a type. Users call [`validate`]; no program
//! does. It reads bytes only.

use super::{
    delimiters::{close, open},
    get::{binary, name, skip_value, string},
    kind,
};
use crate::program::{Cursor, FaultKind, Input, Limits, Status, io::CodecError};

type Read<T = ()> = Result<T, Status>;

/// Checks that `bytes` are exactly one well-formed document: lengths are consistent, documents end
/// where they say, all text is UTF-8, and every element has a kind of BSON 1.1. Decoding does not
/// check all of this in elements that it skips.
///
/// ```
/// use polywire_core::{codec::bson, program::Limits};
///
/// let document = b"\x16\0\0\0\x10system_time\0\x41\x05\0\0\0";
/// assert!(bson::validate(document, &Limits::default()).is_ok());
/// assert!(bson::validate(&document[..21], &Limits::default()).is_err());
/// ```
pub fn validate(bytes: &[u8], limits: &Limits) -> Result<(), CodecError> {
    Input::inspect(bytes, limits, |input| {
        Status::of(document(input)).then(|| match input.remaining() {
            0 => Status::Ok,
            left => input.fail(FaultKind::Trailing, 0, left as u64),
        })
    })
}

fn document(input: &mut Input<'_>) -> Read {
    input.enter().ok()?;
    let mut cursor = Cursor::default();
    open(input, &mut cursor).ok()?;
    while input.remaining() > 0 {
        element(input)?;
    }
    close(input, &cursor);
    input.leave();
    Ok(())
}

fn element(input: &mut Input<'_>) -> Read {
    let start = input.position();
    let kind = input.take(1)?[0];
    if kind == 0 {
        input.seek(start);
        return Err(input.fail(FaultKind::BadTerminator, 1, 0));
    }
    input.tag = kind.into();
    text(input, name)?;
    match kind {
        kind::BOOLEAN => boolean(input),
        kind::STRING | kind::CODE | kind::SYMBOL => text(input, string),
        kind::DB_POINTER => {
            text(input, string)?;
            input.take(12).map(drop)
        }
        kind::REGEX => {
            text(input, name)?;
            text(input, name)
        }
        kind::BINARY => {
            let len = binary(input)?;
            input.take(len).map(drop)
        }
        kind::DOCUMENT | kind::ARRAY => document(input),
        kind::CODE_WITH_SCOPE => code_with_scope(input),
        // All others have a fixed size, or are unknown.
        _ => skip_value(input),
    }
}

fn boolean(input: &mut Input<'_>) -> Read {
    let start = input.position();
    match input.take(1)? {
        [0 | 1] => Ok(()),
        other => {
            input.seek(start);
            Err(input.fail(FaultKind::BadBool, 1, other[0].into()))
        }
    }
}

fn code_with_scope(input: &mut Input<'_>) -> Read {
    let start = input.position();
    skip_value(input)?;
    let end = input.position();
    input.seek(start + 4);
    text(input, string)?;
    document(input)?;
    match input.position() {
        at if at == end => Ok(()),
        at => Err(input.fail(FaultKind::BadLength, end as u64, at as u64)),
    }
}

/// Reads text with one byte behind it, and checks that it is UTF-8.
fn text<'a>(input: &mut Input<'a>, read: impl FnOnce(&mut Input<'a>) -> Read<&'a [u8]>) -> Read {
    let text = read(input)?;
    core::str::from_utf8(text).map(drop).map_err(|error| {
        input.seek(input.position() - 1 - text.len() + error.valid_up_to());
        input.fail(FaultKind::BadText, 0, 0)
    })
}
