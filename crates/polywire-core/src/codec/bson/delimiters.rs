//! Kernels for the delimiters of BSON: documents, arrays, and headers of their elements. The
//! dialects `encode` and `decode` put them into programs. They touch the input or the output, and
//! their cursor.

use super::{
    get::{discriminator, is_null, skip_value, wrong_kind},
    kind::{self, MIN_DOCUMENT},
};
use crate::{
    codec::lower::one_way,
    program::{
        Cursor, FaultKind, Input, MemberDialect, MemberTable, Output, RegionDialect, SequenceDialect, Status,
        SymbolKernel, SymbolTable, TestKernel, kernels::scan::starts_with,
    },
};

/// A document with members.
pub(super) static MEMBERS: MemberDialect =
    MemberDialect { refuse_duplicates: true, ..MemberDialect::new("bson document", begin_document, next_member, skip) };

/// The element of a union's case in the document that [`DOCUMENT`] entered; other elements are
/// skipped.
pub(super) static CASE: MemberDialect = MemberDialect {
    refuse_duplicates: true,
    ..MemberDialect::new("bson case", one_way::no_step, next_in_region, skip)
};

/// A document with elements whose names are indices.
pub(super) static ARRAY: SequenceDialect =
    SequenceDialect { name: "bson array", begin: begin_array, next: next_element };

/// A document with elements whose names are map keys.
pub(super) static MAP: SequenceDialect = SequenceDialect { name: "bson map", begin: begin_document, next: next_entry };

/// A whole document. Its length is filled in at its end.
pub(super) static DOCUMENT: RegionDialect =
    RegionDialect::new("bson document", [begin_region, end_region], [put_begin, put_end]);

/// Finds the discriminator of the union whose document follows. The table has the labels that the
/// names of cases determine.
pub(super) static SELECTOR: SymbolKernel = SymbolKernel::get_only("bson selector", get_selector::<false>);

/// [`SELECTOR`] for a discriminator that is a character.
pub(super) static CHARACTER_SELECTOR: SymbolKernel = SymbolKernel::get_only("bson selector", get_selector::<true>);

/// Tests for null.
pub(super) static IS_NULL: TestKernel = TestKernel { name: "bson null", test: is_null };

/// Tests for a binary.
pub(super) static IS_BINARY: TestKernel = TestKernel { name: "bson binary", test: is_binary };

/// Tests for a string. A text that is not a string is a decimal, or refused.
pub(super) static IS_STRING: TestKernel = TestKernel { name: "bson string", test: is_string };

extern "C" fn begin_document(input: &mut Input<'_>, cursor: &mut Cursor) -> Status {
    // Only the message itself is not an element and has no kind.
    match input.tag {
        0 => open(input, cursor),
        tag if tag == u32::from(kind::DOCUMENT) => open(input, cursor),
        _ => wrong_kind(input, kind::DOCUMENT),
    }
}

extern "C" fn begin_array(input: &mut Input<'_>, cursor: &mut Cursor) -> Status {
    match input.tag == u32::from(kind::ARRAY) {
        true => open(input, cursor),
        false => wrong_kind(input, kind::ARRAY),
    }
}

/// Checks length and terminator, and narrows the input to the elements. The cursor's first word is
/// the outer end.
#[inline]
pub(super) fn open(input: &mut Input<'_>, cursor: &mut Cursor) -> Status {
    let rest = input.rest();
    let Some(head) = rest.first_chunk::<4>() else {
        return input.fail(FaultKind::Truncated, MIN_DOCUMENT as u64, rest.len() as u64);
    };
    let declared = i32::from_le_bytes(*head);
    let len = usize::try_from(declared).unwrap_or(0);
    if len < MIN_DOCUMENT || len > rest.len() {
        return input.fail(FaultKind::BadLength, rest.len() as u64, declared as u64);
    }
    let start = input.position();
    let terminator = rest[len - 1];
    if terminator != 0 {
        input.seek(start + len - 1);
        return input.fail(FaultKind::BadTerminator, 0, terminator.into());
    }
    input.seek(start + 4);
    match input.limit_end(start + len - 1) {
        Some(outer) => {
            cursor.0[0] = outer as u64;
            Status::Ok
        }
        None => input.fail(FaultKind::BadLength, rest.len() as u64, declared as u64),
    }
}

/// Widens the input again and skips the terminator.
#[inline]
pub(super) fn close(input: &mut Input<'_>, cursor: &Cursor) {
    let behind = input.end() + 1;
    input.restore_end(cursor.0[0] as usize);
    input.seek(behind);
}

extern "C" fn next_member(input: &mut Input<'_>, cursor: &mut Cursor, table: &MemberTable, arm: &mut u64) -> Status {
    if input.remaining() == 0 {
        close(input, cursor);
        *arm = MemberTable::END;
        return Status::Ok;
    }
    next_name(input, table, arm)
}

extern "C" fn next_in_region(input: &mut Input<'_>, _: &mut Cursor, table: &MemberTable, arm: &mut u64) -> Status {
    if input.remaining() == 0 {
        *arm = MemberTable::END;
        return Status::Ok;
    }
    next_name(input, table, arm)
}

/// Reads an element's header and finds its arm. Keys in the table end with a NUL.
#[inline]
fn next_name(input: &mut Input<'_>, table: &MemberTable, arm: &mut u64) -> Status {
    let rest = input.rest();
    if let Some(key) = table.keys().get(*arm as usize)
        && let Some((tag, name)) = rest.split_first()
        && starts_with(name, &key.name)
        && *tag != 0
    {
        input.tag = u32::from(*tag);
        input.seek(input.position() + 1 + key.name.len());
        return Status::Ok;
    }
    search_name(input, table, arm)
}

fn search_name(input: &mut Input<'_>, table: &MemberTable, arm: &mut u64) -> Status {
    Status::give(name(input).map(|name| table.by_name(name, MemberTable::UNKNOWN)), arm)
}

/// Reads an element's header: sets the kind and returns the name with its NUL.
fn name<'a>(input: &mut Input<'a>) -> Result<&'a [u8], Status> {
    let rest = input.rest();
    let Some((tag, names)) = rest.split_first() else {
        return Err(input.fail(FaultKind::Truncated, 2, 0));
    };
    if *tag == 0 {
        return Err(input.fail(FaultKind::BadTerminator, 1, 0));
    }
    let Some(nul) = names.iter().position(|byte| *byte == 0) else {
        return Err(input.fail(FaultKind::Truncated, rest.len() as u64 + 1, rest.len() as u64));
    };
    input.tag = u32::from(*tag);
    input.seek(input.position() + nul + 2);
    Ok(&names[..=nul])
}

extern "C" fn skip(input: &mut Input<'_>, _: &mut Cursor) -> Status {
    Status::of(skip_value(input))
}

/// Elements are taken in the order of the message. Their names are ignored, because some writers do
/// not number them correctly.
extern "C" fn next_element(input: &mut Input<'_>, cursor: &mut Cursor, more: &mut u64) -> Status {
    let rest = input.rest();
    if let Some((tag, names)) = rest.split_first()
        && let Some(word) = names.first_chunk::<8>()
        && *tag != 0
    {
        // Nearly all names are shorter than eight digits; their NUL is found without a loop.
        let word = u64::from_le_bytes(*word);
        let zeros = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080;
        if zeros != 0 {
            input.tag = u32::from(*tag);
            input.seek(input.position() + 2 + zeros.trailing_zeros() as usize / 8);
            *more = 1;
            return Status::Ok;
        }
    }
    next_element_slowly(input, cursor, more)
}

fn next_element_slowly(input: &mut Input<'_>, cursor: &mut Cursor, more: &mut u64) -> Status {
    *more = u64::from(input.remaining() > 0);
    if *more == 0 {
        close(input, cursor);
        return Status::Ok;
    }
    Status::of(name(input).map(drop))
}

/// Moves to an entry's name, which is the key.
extern "C" fn next_entry(input: &mut Input<'_>, cursor: &mut Cursor, more: &mut u64) -> Status {
    let Some(tag) = input.rest().first().copied() else {
        close(input, cursor);
        *more = 0;
        return Status::Ok;
    };
    if tag == 0 {
        return input.fail(FaultKind::BadTerminator, 1, 0);
    }
    input.tag = u32::from(tag);
    input.seek(input.position() + 1);
    *more = 1;
    Status::Ok
}

extern "C" fn begin_region(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    begin_document(input, cursor)
}

/// Skips the rest of a document.
extern "C" fn end_region(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    close(input, cursor);
    Status::Ok
}

extern "C" fn put_begin(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    cursor.0[0] = output.position() as u64;
    output.put_word(0, 4)
}

extern "C" fn put_end(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    let terminated = output.put_word(0, 1);
    let start = cursor.0[0] as usize;
    let len = output.position().wrapping_sub(start);
    terminated.then(|| match document_length(len) {
        Some(head) => {
            output.patch(start, &head);
            Status::Ok
        }
        None => output.fail(FaultKind::Unrepresentable, i32::MAX as u64, len as u64),
    })
}

/// The bytes of a document's length. `None` if a document cannot be that long.
fn document_length(len: usize) -> Option<[u8; 4]> {
    i32::try_from(len).ok().map(i32::to_le_bytes)
}

/// Looks through a union's document, which was entered, and does not advance the input.
extern "C" fn get_selector<const CHARACTER: bool>(
    input: &mut Input<'_>,
    table: &SymbolTable,
    selected: &mut u64,
) -> Status {
    let start = input.position();
    let label = select(input, table, CHARACTER).inspect(|_| input.seek(start));
    Status::give(label.map(|label| label as u64), selected)
}

fn select(input: &mut Input<'_>, table: &SymbolTable, character: bool) -> Result<i64, Status> {
    let start = input.position();
    let (mut named, mut members) = (None, 0u64);
    while input.remaining() > 0 {
        let name = name(input)?;
        let name = &name[..name.len() - 1];
        if name == kind::DISCRIMINATOR.as_bytes() {
            return discriminator(input, table, character);
        }
        if let Some(label) = table.value(name) {
            named = Some(label);
            members += 1;
        }
        skip_value(input)?;
    }
    input.seek(start);
    match named {
        Some(label) if members == 1 => Ok(label),
        Some(_) => Err(input.fail(FaultKind::DuplicateMember, 1, members)),
        None => Err(input.fail(FaultKind::UnknownCase, 0, 0)),
    }
}

extern "C" fn is_binary(input: &mut Input<'_>, is: &mut u64) -> Status {
    *is = u64::from(input.tag == u32::from(kind::BINARY));
    Status::Ok
}

extern "C" fn is_string(input: &mut Input<'_>, is: &mut u64) -> Status {
    const STRING: u32 = kind::STRING as u32;
    const DECIMAL128: u32 = kind::DECIMAL128 as u32;
    *is = match input.tag {
        STRING => 1,
        DECIMAL128 => 0,
        _ => return wrong_kind(input, kind::STRING),
    };
    Status::Ok
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_no_longer_than_its_length_can_say() {
        assert_eq!(document_length(0x7FFF_FFFF), Some([0xFF, 0xFF, 0xFF, 0x7F]));
        #[cfg(target_pointer_width = "64")]
        assert_eq!(document_length(0x8000_0000), None);
    }

    #[test]
    fn prefixes_of_every_length() {
        let bytes: alloc::vec::Vec<u8> = (1..60).collect();
        for len in 0..bytes.len() {
            assert!(starts_with(&bytes, &bytes[..len]));
            assert!(!starts_with(&bytes[..len], &bytes[..len + 1]));
            for wrong in 0..len {
                let mut other = bytes[..len].to_vec();
                other[wrong] ^= 0x80;
                assert!(!starts_with(&bytes, &other));
            }
        }
    }
}
