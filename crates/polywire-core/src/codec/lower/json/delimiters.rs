//! Kernels for the delimiters of JSON notation (brackets, commas, member names, `null`), and for
//! enums, bitmasks, bitsets and unions, whose values are names. The dialects of this folder put
//! them into programs. They touch the input or the output, and their cursor.

use super::tokens;
use crate::{
    codec::lower::symbols::{self, LITERAL, parts},
    layout::Scalar,
    program::{
        ActionKernel, Cursor, Ending, ExpectedPrefix, FaultKind, Input, MemberDialect, MemberTable, Output,
        RegionDialect, SequenceDialect, Status, SymbolKernel, SymbolTable, TestKernel, TextKernel,
        kernels::{copy::replace_by_rest, number, scan},
    },
};

/// `}` or `]`, as the argument says. When writing, it replaces the comma after the last member or
/// element.
pub(super) static CLOSE: ActionKernel = ActionKernel { name: "json close", get: get_close, put: put_close };

extern "C" fn get_close(input: &mut Input<'_>, bracket: u64) -> Status {
    tokens::expect(input, bracket as u8)
}

extern "C" fn put_close(output: &mut Output<'_>, bracket: u64) -> Status {
    close(output, bracket as u8)
}

/// Ends a list in which every element was written with a comma after it. No value ends with a
/// comma, so a comma in the last place is a separator.
#[inline]
pub(super) fn close(output: &mut Output<'_>, bracket: u8) -> Status {
    match output.last() {
        Some(last) if *last == b',' => {
            *last = bracket;
            Status::Ok
        }
        _ => output.put(&[bracket]),
    }
}

/// Expects the character in the argument.
pub(super) static EXPECT: ActionKernel = ActionKernel::get_only("json mark", get_close);

/// Skips a value.
pub(super) static SKIP: ActionKernel = ActionKernel::get_only("json skip", get_skip);

extern "C" fn get_skip(input: &mut Input<'_>, _: u64) -> Status {
    tokens::skip(input)
}

/// Expects the end of the message.
pub(super) static END: ActionKernel = ActionKernel::get_only("json end", get_end);

extern "C" fn get_end(input: &mut Input<'_>, _: u64) -> Status {
    tokens::end(input)
}

/// Tests for `null` and skips it.
pub(super) static NULL: TestKernel = TestKernel { name: "json null", test: test_null };

extern "C" fn test_null(input: &mut Input<'_>, word: &mut u64) -> Status {
    *word = u64::from(tokens::accept_word(input, b"null"));
    Status::Ok
}

/// Strings.
pub(super) static TEXT: TextKernel =
    TextKernel { name: "json string", get: get_text, put: tokens::put_string, short: None };

fn get_text(input: &mut Input<'_>, target: Option<&mut alloc::string::String>) -> Status {
    match (tokens::string(input), target) {
        (Ok(text), Some(target)) => text.copy_to(input, target),
        (text, _) => Status::of(text.map(drop)),
    }
}

/// Arrays.
pub(super) static ARRAY: SequenceDialect =
    SequenceDialect { name: "json array", begin: begin_elements::<b'['>, next: next_element::<b']'> };

/// Maps.
pub(super) static MAP: SequenceDialect =
    SequenceDialect { name: "json map", begin: begin_elements::<b'{'>, next: next_element::<b'}'> };

extern "C" fn begin_elements<const OPEN: u8>(input: &mut Input<'_>, _: &mut Cursor) -> Status {
    match tokens::accept(input, OPEN) {
        true => Status::Ok,
        false => tokens::wrong_kind(input),
    }
}

extern "C" fn next_element<const CLOSE: u8>(input: &mut Input<'_>, cursor: &mut Cursor, more: &mut u64) -> Status {
    let first = core::mem::replace(&mut cursor.0[0], 1) == 0;
    let closes = tokens::accept(input, CLOSE);
    *more = u64::from(!closes);
    if closes || first || tokens::accept(input, b',') {
        return Status::Ok;
    }
    tokens::unexpected(input, CLOSE)
}

/// Arrays of 2 to 8 dimensions, flattened. [`SHAPE`] has checked their brackets.
pub(super) static MATRICES: [SequenceDialect; 7] =
    [matrix::<2>(), matrix::<3>(), matrix::<4>(), matrix::<5>(), matrix::<6>(), matrix::<7>(), matrix::<8>()];

const fn matrix<const RANK: u64>() -> SequenceDialect {
    SequenceDialect { name: "json arrays", begin: begin_matrix::<RANK>, next: next_in_matrix::<RANK> }
}

extern "C" fn begin_matrix<const RANK: u64>(input: &mut Input<'_>, cursor: &mut Cursor) -> Status {
    open_rows(input, cursor, RANK)
}

/// Skips brackets up to the next element of the innermost array.
fn open_rows(input: &mut Input<'_>, cursor: &mut Cursor, rank: u64) -> Status {
    while cursor.0[1] < rank {
        if !tokens::accept(input, b'[') {
            return tokens::wrong_kind(input);
        }
        cursor.0[1] += 1;
    }
    Status::Ok
}

extern "C" fn next_in_matrix<const RANK: u64>(input: &mut Input<'_>, cursor: &mut Cursor, more: &mut u64) -> Status {
    *more = 1;
    if core::mem::replace(&mut cursor.0[0], 1) == 0 {
        return Status::Ok;
    }
    while tokens::accept(input, b']') {
        cursor.0[1] -= 1;
        if cursor.0[1] == 0 {
            *more = 0;
            return Status::Ok;
        }
    }
    match tokens::accept(input, b',') {
        true => open_rows(input, cursor, RANK),
        false => tokens::unexpected(input, b']'),
    }
}

/// Checks that each array at a certain level has a certain length, and does not advance the input.
/// The upper half of the argument is the level, the lower half the length.
pub(super) static SHAPE: ActionKernel = ActionKernel::get_only("json array shape", get_shape);

extern "C" fn get_shape(input: &mut Input<'_>, argument: u64) -> Status {
    let start = input.position();
    let status = shape(input, argument >> 32, argument & 0xFFFF_FFFF);
    if status == Status::Ok {
        input.seek(start);
    }
    status
}

fn shape(input: &mut Input<'_>, level: u64, len: u64) -> Status {
    let (mut cursor, mut counts) = (Cursor::default(), [0u64; 9]);
    loop {
        // One value, or the brackets in front of it.
        while cursor.0[1] < level + 1 {
            if !tokens::accept(input, b'[') {
                return tokens::wrong_kind(input);
            }
            cursor.0[1] += 1;
            if let Some(count) = counts.get_mut(cursor.0[1] as usize) {
                *count = 0;
            }
        }
        if tokens::peek(input) != Some(b']') {
            if tokens::skip(input) == Status::Failed {
                return Status::Failed;
            }
            counts[level as usize + 1] += 1;
        }
        loop {
            if tokens::accept(input, b',') {
                break;
            }
            if !tokens::accept(input, b']') {
                return tokens::unexpected(input, b']');
            }
            if cursor.0[1] == level + 1 && counts[level as usize + 1] != len {
                return input.fail(FaultKind::Count, len, counts[level as usize + 1]);
            }
            cursor.0[1] -= 1;
            if cursor.0[1] == 0 {
                return Status::Ok;
            }
        }
    }
}

/// Splits the array written inside into rows. The argument is the number of elements in a row.
pub(super) static ROWS: RegionDialect = RegionDialect::rewriting("json rows", put_rows);

/// Splits the text written inside into indented lines.
pub static PRETTY: RegionDialect = RegionDialect::rewriting("json pretty", put_pretty);

extern "C" fn put_pretty(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    tokens::indent(output, cursor.0[0] as usize)
}

extern "C" fn put_rows(output: &mut Output<'_>, row: u64, cursor: &mut Cursor) -> Status {
    let start = cursor.0[0] as usize;
    let end = output.position();
    let (mut at, mut depth, mut elements) = (start, 0u32, 0u64);
    let mut in_string = false;
    while at < end {
        let byte = output.written()[at];
        at += 1;
        let status = match byte {
            b'\\' if in_string => {
                let escaped = output.written()[at];
                at += 1;
                output.put(&[byte, escaped])
            }
            b'"' => {
                in_string = !in_string;
                output.put(b"\"")
            }
            b'[' if !in_string && depth == 0 => {
                depth = 1;
                output.put(b"[[")
            }
            b']' if !in_string && depth == 1 => {
                depth = 0;
                output.put(b"]]")
            }
            b',' if !in_string && depth == 1 => {
                elements += 1;
                output.put(if elements % row == 0 { b"],[" } else { b"," })
            }
            _ => {
                match byte {
                    b'[' | b'{' if !in_string => depth += 1,
                    b']' | b'}' if !in_string => depth -= 1,
                    _ => {}
                }
                output.put(&[byte])
            }
        };
        if status == Status::Failed {
            return status;
        }
    }
    replace_by_rest(output, start, end);
    Status::Ok
}

/// Structures. Names in the table are quoted and escaped, with the colon after them.
pub(super) static MEMBERS: MemberDialect = MemberDialect {
    ending: Some(Ending::Byte(b'}')),
    ..MemberDialect::new("json object", begin_elements::<b'{'>, next_member, skip_member)
};

extern "C" fn skip_member(input: &mut Input<'_>, _: &mut Cursor) -> Status {
    tokens::skip(input)
}

/// The expected prefix of the first member's value.
pub(super) fn first_prefix(name: &[u8]) -> ExpectedPrefix {
    ExpectedPrefix { note: Some(0), ..ExpectedPrefix::new(name) }
}

/// The cursor's word is 0 before the first member and 1 after it, which is also the number of bytes
/// of the comma in front of the next member.
extern "C" fn next_member(input: &mut Input<'_>, cursor: &mut Cursor, table: &MemberTable, arm: &mut u64) -> Status {
    let comma = cursor.0[0] as usize;
    let rest = input.rest();
    if let Some(key) = table.keys().get(*arm as usize)
        && (comma == 0 || rest.first() == Some(&b','))
        && rest.get(comma..).is_some_and(|rest| scan::starts_with(rest, &key.name))
    {
        cursor.0[0] = 1;
        input.seek(input.position() + comma + key.name.len());
        return Status::Ok;
    }
    any_member(input, cursor, table, arm)
}

fn any_member(input: &mut Input<'_>, cursor: &mut Cursor, table: &MemberTable, arm: &mut u64) -> Status {
    if tokens::accept(input, b'}') {
        *arm = MemberTable::END;
        return Status::Ok;
    }
    let first = core::mem::replace(&mut cursor.0[0], 1) == 0;
    if !first && !tokens::accept(input, b',') {
        return tokens::unexpected(input, b'}');
    }
    if tokens::peek(input) != Some(b'"') {
        return tokens::unexpected(input, b'"');
    }
    let rest = input.rest();
    let name = match tokens::string(input) {
        Ok(name) => name,
        Err(status) => return status,
    };
    let with_colon = rest.get(..name.as_str().len() + 3).filter(|key| !name.is_escaped() && key.last() == Some(&b':'));
    if let Some(key) = with_colon {
        *arm = table.by_name(key, *arm);
        input.seek(input.position() + 1);
        return Status::Ok;
    }
    *arm = unusual_name(name, table, *arm);
    tokens::expect(input, b':')
}

/// Finds a name that has escapes, or blanks in front of its colon.
#[cold]
fn unusual_name(name: tokens::Raw<'_>, table: &MemberTable, guess: u64) -> u64 {
    let mut key = [0; 512];
    let mut len = 0;
    let mut push = |bytes: &[u8]| {
        let room = key.get_mut(len..len + bytes.len())?;
        room.copy_from_slice(bytes);
        len += bytes.len();
        Some(())
    };
    let written = push(b"\"").and_then(|()| {
        for c in name.chars() {
            match c {
                '"' | '\\' => push(&[b'\\', c as u8])?,
                _ => push(c.encode_utf8(&mut [0; 4]).as_bytes())?,
            }
        }
        push(b"\":")
    });
    match written {
        Some(()) => table.by_name(&key[..len], guess),
        // The name is longer than the buffer. It is compared with each member's name character by
        // character, which needs no longer than the name.
        None => {
            let equal = |key: &[u8]| {
                let inner = key.get(1..key.len().saturating_sub(2)).unwrap_or_default();
                let mut chars = name.chars();
                let mut text = core::str::from_utf8(inner).unwrap_or_default().chars();
                loop {
                    let wanted = match text.next() {
                        Some('\\') => text.next(),
                        c => c,
                    };
                    match (wanted, chars.next()) {
                        (None, None) => return true,
                        (a, b) if a == b => {}
                        _ => return false,
                    }
                }
            };
            let long = table.keys().iter().position(|key| key.name.len() > 256 && equal(&key.name));
            long.map_or(MemberTable::UNKNOWN, |at| at as u64)
        }
    }
}

/// Enums as names of their literals. Numbers are accepted, too.
pub(super) static NAMED: SymbolKernel =
    SymbolKernel { name: "json enum", scalar: Scalar::I64, get: get_symbol, put: put_symbol };

/// Enums as numbers. Names are accepted, too.
pub(super) static NUMBERED: SymbolKernel =
    SymbolKernel { name: "json enum number", scalar: Scalar::I64, get: get_symbol, put: put_symbol_number };

/// Enums as map keys.
pub(super) static KEY_NAMED: SymbolKernel =
    SymbolKernel { name: "json key enum", scalar: Scalar::I64, get: get_key_symbol, put: put_symbol };

extern "C" fn get_symbol(input: &mut Input<'_>, table: &SymbolTable, word: &mut u64) -> Status {
    if tokens::peek(input) == Some(b'"') {
        return get_name(input, table, word);
    }
    (super::scalars::kernel(&crate::schema::Type::Int64, Scalar::I64, super::scalars::Form::Value).get)(input, word)
}

fn get_name(input: &mut Input<'_>, table: &SymbolTable, word: &mut u64) -> Status {
    // YAML may have turned a number into a string.
    let number = |name: &[u8]| i64::try_from(super::scalars::integer_of_text(name)?).ok();
    Status::give(name_value(input, |name| table.value(name).or_else(|| number(name)).or(table.otherwise)), word)
}

/// Reads a string and converts it with `value`.
fn name_value(input: &mut Input<'_>, value: impl FnOnce(&[u8]) -> Option<i64>) -> Result<u64, Status> {
    let start = input.position();
    let name = tokens::string(input)?;
    let mut buffer = [0; 512];
    name.plain(&mut buffer).and_then(value).map(|value| value as u64).ok_or_else(|| {
        input.seek(start);
        input.fail(FaultKind::UnknownLiteral, 0, 0)
    })
}

extern "C" fn get_key_symbol(input: &mut Input<'_>, table: &SymbolTable, word: &mut u64) -> Status {
    if tokens::peek(input) != Some(b'"') {
        return tokens::unexpected(input, b'"');
    }
    let number = |name: &[u8]| core::str::from_utf8(name).ok()?.parse().ok();
    Status::give(name_value(input, |name| table.value(name).or_else(|| number(name)).or(table.otherwise)), word)
}

extern "C" fn put_symbol(output: &mut Output<'_>, table: &SymbolTable, word: u64) -> Status {
    match table.name(word as i64) {
        Some(name) => tokens::put_string(output, name),
        None => output.fail(FaultKind::UnknownLiteral, 0, word),
    }
}

extern "C" fn put_symbol_number(output: &mut Output<'_>, _: &SymbolTable, word: u64) -> Status {
    number::put_i64(output, word as i64)
}

/// Bitmasks as numbers. An array of flag names is accepted, too. The table's values are flag
/// positions.
pub(super) static FLAG_BITS: SymbolKernel =
    SymbolKernel { name: "json flags", scalar: Scalar::U64, get: get_flags, put: put_bits };

/// Bitmasks as arrays of flag names.
pub(super) static FLAG_NAMES: SymbolKernel =
    SymbolKernel { name: "json flag names", scalar: Scalar::U64, get: get_flags, put: put_flags };

extern "C" fn put_bits(output: &mut Output<'_>, _: &SymbolTable, word: u64) -> Status {
    number::put_u64(output, word)
}

extern "C" fn get_flags(input: &mut Input<'_>, table: &SymbolTable, word: &mut u64) -> Status {
    if tokens::peek(input) != Some(b'[') {
        return get_bits(input, word);
    }
    *word = 0;
    Status::of(each::<b'[', b']'>(input, |input| {
        // Flags without a name appear as their numbers.
        let mut bits = 0;
        match tokens::peek(input) {
            Some(b'"') => bits = 1 << (name_value(input, |name| table.value(name))? & 63),
            _ => get_bits(input, &mut bits).ok()?,
        }
        *word |= bits;
        Ok(())
    }))
}

/// Calls `element` at each element of an array or object.
fn each<const OPEN: u8, const CLOSE: u8>(
    input: &mut Input<'_>,
    mut element: impl FnMut(&mut Input<'_>) -> Result<(), Status>,
) -> Result<(), Status> {
    let (mut cursor, mut more) = (Cursor::default(), 0);
    begin_elements::<OPEN>(input, &mut cursor).ok()?;
    loop {
        next_element::<CLOSE>(input, &mut cursor, &mut more).ok()?;
        if more == 0 {
            return Ok(());
        }
        element(input)?;
    }
}

fn get_bits(input: &mut Input<'_>, word: &mut u64) -> Status {
    (super::scalars::kernel(&crate::schema::Type::Uint64, Scalar::U64, super::scalars::Form::Value).get)(input, word)
}

extern "C" fn put_flags(output: &mut Output<'_>, table: &SymbolTable, word: u64) -> Status {
    let mut status = output.put(b"[");
    let mut left = word;
    for (position, name) in table.iter().filter(|(position, _)| word >> (position & 63) & 1 == 1) {
        left &= !(1 << (position & 63));
        status = status.then(|| tokens::put_string(output, name)).then(|| output.put(b","));
    }
    if left != 0 {
        status = status.then(|| number::put_u64(output, left));
    }
    status.then(|| close(output, b']'))
}

/// Bitsets as objects of their named fields. The number of all bits is accepted, too. The table's
/// values are [`field`](crate::codec::lower::symbols::field)s.
pub(super) static FIELDS: SymbolKernel =
    SymbolKernel { name: "json bitset", scalar: Scalar::U64, get: get_fields, put: put_fields };

extern "C" fn put_fields(output: &mut Output<'_>, table: &SymbolTable, word: u64) -> Status {
    let mut status = output.put(b"{");
    for (field, name) in table.iter() {
        let (position, mask, signed) = parts(field);
        let value = word >> position & mask;
        status = status.then(|| tokens::put_string(output, name)).then(|| output.put(b":"));
        status = status.then(|| symbols::put_field(output, value, mask, signed)).then(|| output.put(b","));
    }
    status.then(|| close(output, b'}'))
}

extern "C" fn get_fields(input: &mut Input<'_>, table: &SymbolTable, word: &mut u64) -> Status {
    if tokens::peek(input) != Some(b'{') {
        return get_bits(input, word);
    }
    *word = 0;
    Status::of(each::<b'{', b'}'>(input, |input| get_field(input, table, word)))
}

fn get_field(input: &mut Input<'_>, table: &SymbolTable, word: &mut u64) -> Result<(), Status> {
    let mut buffer = [0; 512];
    let name = tokens::member_name(input)?;
    let Some(field) = name.plain(&mut buffer).and_then(|name| table.value(name)) else {
        return tokens::skip(input).ok();
    };
    tokens::peek(input);
    let start = input.position();
    let value = match () {
        () if tokens::accept_word(input, b"true") => 1,
        () if tokens::accept_word(input, b"false") => 0,
        () => super::scalars::integer(input)?,
    };
    *word = symbols::with_field(*word, field, value).map_err(|bits| {
        input.seek(start);
        input.fail(FaultKind::OutOfRange, bits, 0)
    })?;
    Ok(())
}

/// The beginning of a union, up to the name of its case. The table has each case's name with its
/// first label, and each literal of the discriminator's enum after [`LITERAL`].
pub(super) static UNION: SymbolKernel = SymbolKernel::get_only("json union", get_union::<false>);

/// [`UNION`] with an integer as discriminator, which may be a string of digits.
pub(super) static UNION_OF_INTEGER: SymbolKernel = SymbolKernel::get_only("json union of integer", get_union::<true>);

const DISCRIMINATOR: &[u8] = b"$discriminator";

extern "C" fn get_union<const INTEGER: bool>(input: &mut Input<'_>, table: &SymbolTable, word: &mut u64) -> Status {
    Status::give(union_head(input, table, INTEGER), word)
}

fn union_head(input: &mut Input<'_>, table: &SymbolTable, integer: bool) -> Result<u64, Status> {
    if !tokens::accept(input, b'{') {
        return Err(tokens::wrong_kind(input));
    }
    let empty = tokens::peek(input) == Some(b'}');
    let start = input.position();
    if empty {
        return Err(input.fail(FaultKind::UnknownCase, 0, 0));
    }
    let name = tokens::member_name(input)?;
    let mut buffer = [0; 512];
    let plain = name.plain(&mut buffer);
    if plain != Some(DISCRIMINATOR) {
        let label = plain.and_then(|name| table.value(name));
        // The case's own kernel reads the name again and compares it.
        input.seek(start);
        return label.map(|label| label as u64).ok_or_else(|| input.fail(FaultKind::UnknownCase, 0, 0));
    }
    let value = discriminator(input, table, integer)?;
    let next = if tokens::accept(input, b',') { b'"' } else { b'}' };
    match tokens::peek(input) {
        Some(byte) if byte == next => Ok(value),
        _ => Err(tokens::unexpected(input, next)),
    }
}

fn discriminator(input: &mut Input<'_>, table: &SymbolTable, integer: bool) -> Result<u64, Status> {
    if tokens::accept_word(input, b"true") {
        return Ok(1);
    }
    if tokens::accept_word(input, b"false") {
        return Ok(0);
    }
    if tokens::peek(input) == Some(b'"') && !integer {
        return name_value(input, |name| {
            let character = || {
                let mut chars = core::str::from_utf8(name).ok()?.chars();
                chars.next().filter(|_| chars.next().is_none()).map(|c| i64::from(u32::from(c)))
            };
            table.value_behind(LITERAL, name).or_else(character)
        });
    }
    let start = input.position();
    let value = super::scalars::integer(input)?;
    i64::try_from(value).map(|value| value as u64).map_err(|_| {
        input.seek(start);
        input.fail(FaultKind::OutOfRange, 64, 0)
    })
}

/// The end of a union. No other member may follow the case's member, not even a discriminator.
pub(super) static UNION_END: ActionKernel = ActionKernel::get_only("json union end", get_union_end);

extern "C" fn get_union_end(input: &mut Input<'_>, _: u64) -> Status {
    if !tokens::accept(input, b',') {
        return tokens::expect(input, b'}');
    }
    tokens::peek(input);
    let start = input.position();
    let mut buffer = [0; 64];
    match tokens::member_name(input) {
        Ok(name) => {
            let late = name.plain(&mut buffer) == Some(DISCRIMINATOR);
            input.seek(start);
            input.fail(if late { FaultKind::UnknownCase } else { FaultKind::UnknownMember }, 0, 0)
        }
        Err(status) => status,
    }
}

/// The name of a union's case, which is the only one in the table, and its colon.
pub(super) static CASE: SymbolKernel = SymbolKernel::get_only("json case", get_case);

extern "C" fn get_case(input: &mut Input<'_>, table: &SymbolTable, word: &mut u64) -> Status {
    if tokens::peek(input) == Some(b'}') {
        return input.fail(FaultKind::MissingMember, 0, 0);
    }
    let start = input.position();
    let mut buffer = [0; 512];
    let value = tokens::member_name(input).and_then(|name| {
        name.plain(&mut buffer).and_then(|name| table.value(name)).ok_or_else(|| {
            input.seek(start);
            input.fail(FaultKind::UnknownCase, 0, 0)
        })
    });
    Status::give(value.map(|value| value as u64), word)
}
