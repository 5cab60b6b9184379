//! Kernels for the delimiters of XML (the document, members, items, entries, cases), and for enums,
//! bitmasks, bitsets and unions, whose values are names.

use crate::{
    codec::lower::symbols::{self, LITERAL, parts},
    layout::Scalar,
    program::{
        ActionKernel, Cursor, FaultKind, Input, MemberDialect, MemberTable, Output, RegionDialect, SequenceDialect,
        Status, SymbolKernel, SymbolTable, TestKernel,
        kernels::{number, scan},
    },
};

use super::{
    scalars::integer,
    tokens::{self, Markup, Name},
};

/// Stores a number in the accumulator's word.
fn word_of(result: Result<i64, Status>, word: &mut u64) -> Status {
    Status::give(result.map(|value| value as u64), word)
}

/// Reads up to the name of the root element, which is the only one in the table.
pub(super) static ROOT: SymbolKernel = SymbolKernel::get_only("xml root", get_root);

extern "C" fn get_root(input: &mut Input<'_>, table: &SymbolTable, word: &mut u64) -> Status {
    let name = tokens::begin(input);
    word_of(name.and_then(|name| known(input, name, table, FaultKind::WrongKind)), word)
}

/// The value of a name in a table.
fn known(input: &mut Input<'_>, name: Name, table: &SymbolTable, kind: FaultKind) -> Result<i64, Status> {
    table.value(name.local(input)).ok_or_else(|| {
        input.seek(name.start);
        input.fail(kind, 0, 0)
    })
}

/// Expects the end of the document.
pub(super) static END: ActionKernel = ActionKernel::get_only("xml end", get_end);

extern "C" fn get_end(input: &mut Input<'_>, _: u64) -> Status {
    tokens::end(input)
}

/// Skips a value.
pub(super) static SKIP: ActionKernel = ActionKernel::get_only("xml skip", get_skip);

extern "C" fn get_skip(input: &mut Input<'_>, _: u64) -> Status {
    tokens::skip(input)
}

/// Splits the text written inside into indented lines.
pub(super) static PRETTY: RegionDialect = RegionDialect::rewriting("xml pretty", put_pretty);

extern "C" fn put_pretty(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    tokens::indent(output, cursor.0[0] as usize)
}

/// An element. The body reads the start tag and the content, and the region reads the end tag. For
/// an empty element, it reads `/>` instead.
pub(super) static ELEMENT: RegionDialect = RegionDialect::get_only("xml element", begin_element, end_element);

/// Stores the end of the element's name in the cursor's first word.
extern "C" fn begin_element(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    note_name(input, cursor)
}

fn note_name(input: &mut Input<'_>, cursor: &mut Cursor) -> Status {
    if tokens::quote(input).is_some() {
        return tokens::wrong_kind(input);
    }
    cursor.0[0] = input.position() as u64;
    Status::Ok
}

extern "C" fn end_element(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    if input.rest().starts_with(b"/>") {
        return tokens::expect(input, b"/>");
    }
    match tokens::next_tag(input) {
        Ok(Markup::End) => close(input, cursor),
        Ok(Markup::Start(name)) => {
            input.seek(name.start);
            input.fail(FaultKind::Syntax, b'/'.into(), 0)
        }
        Ok(Markup::Nothing) => tokens::unexpected(input, b'<'),
        Err(status) => status,
    }
}

fn close(input: &mut Input<'_>, cursor: &Cursor) -> Status {
    let name = tokens::name_before(input, cursor.0[0] as usize);
    tokens::close(input, name)
}

/// The next element inside the current one, whose name ends at the cursor's first word. `None` at
/// the end tag, which is read.
fn next_inside(input: &mut Input<'_>, cursor: &Cursor) -> Result<Option<Name>, Status> {
    match tokens::next_tag(input)? {
        Markup::Start(name) => Ok(Some(name)),
        Markup::Nothing => Err(tokens::unexpected(input, b'<')),
        Markup::End => close(input, cursor).ok().map(|()| None),
    }
}

fn expect_name(input: &mut Input<'_>, name: Name, wanted: &[u8]) -> Result<(), Status> {
    if name.local(input) == wanted {
        return Ok(());
    }
    input.seek(name.start);
    Err(tokens::unexpected(input, wanted.first().copied().unwrap_or(0)))
}

/// Sequences and arrays, except lists of numbers. The cursor's third word is 1 at the end.
pub(super) static ITEMS: SequenceDialect = SequenceDialect { name: "xml items", begin: begin_inside, next: next_item };

extern "C" fn begin_inside(input: &mut Input<'_>, cursor: &mut Cursor) -> Status {
    note_name(input, cursor).then(|| Status::of(tokens::open(input).map(|empty| cursor.0[2] = u64::from(empty))))
}

extern "C" fn next_item(input: &mut Input<'_>, cursor: &mut Cursor, more: &mut u64) -> Status {
    const ITEM: &[u8] = b"<item";
    *more = 0;
    if cursor.0[2] == 1 {
        return Status::Ok;
    }
    let rest = input.rest();
    if rest.get(ITEM.len()) == Some(&b'>') && rest.starts_with(ITEM) {
        *more = 1;
        input.seek(input.position() + ITEM.len());
        return Status::Ok;
    }
    let item = next_inside(input, cursor).and_then(|name| {
        *more = u64::from(name.is_some());
        name.map_or(Ok(()), |name| expect_name(input, name, &ITEM[1..]))
    });
    Status::of(item)
}

/// Lists of numbers. The cursor has the end of the list and the end of its value.
pub(super) static LIST: SequenceDialect = SequenceDialect { name: "xml list", begin: begin_list, next: next_in_list };

extern "C" fn begin_list(input: &mut Input<'_>, cursor: &mut Cursor) -> Status {
    let list = super::scalars::list(input).map(|list| {
        cursor.0 = [0, list.end as u64, input.position() as u64];
        input.seek(list.start);
    });
    Status::of(list)
}

extern "C" fn next_in_list(input: &mut Input<'_>, cursor: &mut Cursor, more: &mut u64) -> Status {
    tokens::space(input);
    let [_, end, behind] = cursor.0;
    *more = u64::from(input.position() < end as usize);
    if *more == 0 {
        input.seek(behind as usize);
    }
    Status::Ok
}

/// Maps. The cursor's second word is the end of the name of the open entry, or 0.
pub(super) static MAP: SequenceDialect = SequenceDialect { name: "xml map", begin: begin_inside, next: next_entry };

extern "C" fn next_entry(input: &mut Input<'_>, cursor: &mut Cursor, more: &mut u64) -> Status {
    *more = 0;
    if cursor.0[2] == 1 {
        return Status::Ok;
    }
    let entry = close_entry(input, cursor).and_then(|()| next_inside(input, cursor)).and_then(|entry| {
        let Some(entry) = entry else { return Ok(()) };
        expect_name(input, entry, b"entry")?;
        cursor.0[1] = entry.end as u64;
        *more = 1;
        match tokens::open(input)? {
            true => Err(tokens::unexpected(input, b'<')),
            false => inner(input, b"key"),
        }
    });
    Status::of(entry)
}

fn close_entry(input: &mut Input<'_>, cursor: &Cursor) -> Result<(), Status> {
    let entry = Cursor([cursor.0[1], 0, 0]);
    match cursor.0[1] {
        0 => Ok(()),
        _ => match next_inside(input, &entry)? {
            None => Ok(()),
            Some(name) => {
                input.seek(name.start);
                Err(tokens::unexpected(input, b'/'))
            }
        },
    }
}

/// Reads the start tag of an entry's key or value, up to its name.
fn inner(input: &mut Input<'_>, wanted: &[u8]) -> Result<(), Status> {
    match tokens::next_tag(input)? {
        Markup::Start(name) => expect_name(input, name, wanted),
        _ => Err(tokens::unexpected(input, b'<')),
    }
}

/// Reads the start tag of an entry's value.
pub(super) static VALUE: ActionKernel = ActionKernel::get_only("xml map value", get_value);

extern "C" fn get_value(input: &mut Input<'_>, _: u64) -> Status {
    Status::of(inner(input, b"value"))
}

/// Tests for an attribute `xsi:nil="true"`, which means that the value is absent. Then skips the
/// element.
pub(super) static NIL: TestKernel = TestKernel { name: "xml nil", test: test_nil };

extern "C" fn test_nil(input: &mut Input<'_>, word: &mut u64) -> Status {
    *word = 0;
    if tokens::quote(input).is_some() || input.rest().first() == Some(&b'>') {
        return Status::Ok;
    }
    let start = input.position();
    let nil = is_nil(input);
    match nil {
        Ok(nil) => {
            input.seek(start);
            *word = u64::from(nil);
            if nil { tokens::skip(input) } else { Status::Ok }
        }
        Err(status) => status,
    }
}

fn is_nil(input: &mut Input<'_>) -> Result<bool, Status> {
    let mut nil = false;
    while let Some(name) = tokens::attribute(input)? {
        let value = tokens::text(input)?;
        let named = name.local(input) == b"nil" && name.bytes(input).len() > 3;
        nil |= named && matches!(value.as_str().trim_ascii(), "true" | "1");
    }
    Ok(nil)
}

/// Structures: attributes first, then elements. The cursor's third word is the state: [`TAG`],
/// [`ATTRIBUTES`] or [`CONTENT`].
pub(super) static MEMBERS: MemberDialect = MemberDialect::new("xml members", begin_members, next_member, skip_member);

/// Behind the element's name; no attribute was read.
const TAG: u64 = 0;
/// Among the attributes, all of which were checked.
const ATTRIBUTES: u64 = 1;
/// Between start tag and end tag.
const CONTENT: u64 = 2;

extern "C" fn begin_members(input: &mut Input<'_>, cursor: &mut Cursor) -> Status {
    cursor.0[2] = TAG;
    note_name(input, cursor)
}

extern "C" fn skip_member(input: &mut Input<'_>, _: &mut Cursor) -> Status {
    tokens::skip(input)
}

extern "C" fn next_member(input: &mut Input<'_>, cursor: &mut Cursor, table: &MemberTable, arm: &mut u64) -> Status {
    let rest = input.rest();
    let ahead = match (cursor.0[2], rest.first()) {
        (CONTENT, Some(b'<')) => 1,
        (TAG, Some(b'>')) if rest.get(1) == Some(&b'<') => 2,
        _ => 0,
    };
    if ahead > 0
        && let Some(key) = table.keys().get(*arm as usize)
        && let Some(name) = rest.get(ahead..)
        && scan::starts_with(name, &key.name)
        && matches!(name.get(key.name.len()), Some(b'>' | b' ' | b'/'))
    {
        cursor.0[2] = CONTENT;
        input.seek(input.position() + ahead + key.name.len());
        return Status::Ok;
    }
    Status::of(any_member(input, cursor, table, arm))
}

fn any_member(input: &mut Input<'_>, cursor: &mut Cursor, table: &MemberTable, arm: &mut u64) -> Result<(), Status> {
    if cursor.0[2] == TAG {
        let start = input.position();
        tokens::open(input)?;
        input.seek(start);
        cursor.0[2] = ATTRIBUTES;
    }
    if cursor.0[2] == ATTRIBUTES {
        if let Some(name) = tokens::attribute(input)? {
            let bytes = name.bytes(input);
            let foreign = bytes == b"xmlns" || bytes.contains(&b':');
            *arm = if foreign { MemberTable::UNKNOWN } else { table.by_name(bytes, *arm) };
            return Ok(());
        }
        cursor.0[2] = CONTENT;
        if tokens::tag_end(input)? {
            *arm = MemberTable::END;
            return Ok(());
        }
    }
    *arm = match next_inside(input, cursor)? {
        Some(name) => table.by_name(name.local(input), *arm),
        None => MemberTable::END,
    };
    Ok(())
}

/// The beginning of a union, up to the start tag of its case. The table has each case's name with
/// its first label, and each literal of the discriminator's enum after [`LITERAL`].
pub(super) static UNION: SymbolKernel = SymbolKernel::get_only("xml union", get_union);

extern "C" fn get_union(input: &mut Input<'_>, table: &SymbolTable, word: &mut u64) -> Status {
    word_of(union_head(input, table), word)
}

fn union_head(input: &mut Input<'_>, table: &SymbolTable) -> Result<i64, Status> {
    let start = input.position();
    tokens::open(input)?;
    input.seek(start);
    let mut found = None;
    while let Some(name) = tokens::attribute(input)? {
        match name.bytes(input) {
            b"discriminator" => found = Some(discriminator(input, table)?),
            _ => drop(tokens::text(input)?),
        }
    }
    // For an empty element, the end is left to be read later.
    let empty = input.rest().first() == Some(&b'/');
    if !empty {
        tokens::tag_end(input)?;
    }
    match found {
        Some(value) => Ok(value),
        None if empty => Err(input.fail(FaultKind::UnknownCase, 0, 0)),
        None => match tokens::next_tag(input)? {
            Markup::Start(name) => {
                let label = known(input, name, table, FaultKind::UnknownCase)?;
                // The case's own kernel reads the name again and compares it.
                input.seek(name.start - 1);
                Ok(label)
            }
            _ => Err(input.fail(FaultKind::UnknownCase, 0, 0)),
        },
    }
}

fn discriminator(input: &mut Input<'_>, table: &SymbolTable) -> Result<i64, Status> {
    let start = input.position();
    let mut buffer = [0; 512];
    let text = tokens::text(input)?.token(&mut buffer).unwrap_or_default();
    let value = match text {
        b"true" => Some(1),
        b"false" => Some(0),
        text => table.value_behind(LITERAL, text).or_else(|| i64::try_from(integer(text)?).ok()),
    };
    value.ok_or_else(|| {
        input.seek(start);
        input.fail(FaultKind::UnknownCase, 0, 0)
    })
}

/// Reads the start tag of a union's case, up to its name, which is the only one in the table.
pub(super) static CASE: SymbolKernel = SymbolKernel::get_only("xml case", get_case);

extern "C" fn get_case(input: &mut Input<'_>, table: &SymbolTable, word: &mut u64) -> Status {
    let case = tokens::next_tag(input).and_then(|tag| match tag {
        Markup::Start(name) => known(input, name, table, FaultKind::UnknownCase),
        _ => Err(input.fail(FaultKind::UnknownCase, 0, 0)),
    });
    word_of(case, word)
}

/// Enums as names of their literals. Numbers are accepted, too.
pub(super) static NAMED: SymbolKernel =
    SymbolKernel { name: "xml enum", scalar: Scalar::I64, get: get_symbol, put: put_symbol };

/// Enums as numbers. Names are accepted, too.
pub(super) static NUMBERED: SymbolKernel =
    SymbolKernel { name: "xml enum number", scalar: Scalar::I64, get: get_symbol, put: put_symbol_number };

extern "C" fn get_symbol(input: &mut Input<'_>, table: &SymbolTable, word: &mut u64) -> Status {
    let start = input.position();
    let mut buffer = [0; 512];
    let value = tokens::text(input).and_then(|raw| {
        let text = raw.token(&mut buffer).unwrap_or_default();
        let number = || i64::try_from(integer(text)?).ok();
        table.value(text).or_else(number).or(table.otherwise).ok_or_else(|| {
            input.seek(start);
            input.fail(FaultKind::UnknownLiteral, 0, 0)
        })
    });
    word_of(value, word)
}

extern "C" fn put_symbol(output: &mut Output<'_>, table: &SymbolTable, word: u64) -> Status {
    match table.name(word as i64) {
        Some(name) => tokens::put_attribute(output, name),
        None => number::put_i64(output, word as i64),
    }
}

extern "C" fn put_symbol_number(output: &mut Output<'_>, _: &SymbolTable, word: u64) -> Status {
    number::put_i64(output, word as i64)
}

/// Bitmasks as lists with the names of the set flags, and a number for flags without a name. Any
/// mixture is accepted.
pub(super) static FLAG_NAMES: SymbolKernel =
    SymbolKernel { name: "xml bitmask", scalar: Scalar::U64, get: get_flags, put: put_flags };

extern "C" fn get_flags(input: &mut Input<'_>, table: &SymbolTable, word: &mut u64) -> Status {
    let start = input.position();
    let mut buffer = [0; 512];
    *word = 0;
    let text = match tokens::text(input) {
        Ok(raw) => raw.token(&mut buffer).unwrap_or(b"?"),
        Err(status) => return status,
    };
    for flag in text.split(|b| tokens::is_space(*b)).filter(|flag| !flag.is_empty()) {
        let named = table.value(flag).map(|position| 1 << (position & 63));
        match named.or_else(|| u64::try_from(integer(flag)?).ok()) {
            Some(bits) => *word |= bits,
            None => {
                input.seek(start);
                return input.fail(FaultKind::UnknownLiteral, 0, 0);
            }
        }
    }
    Status::Ok
}

extern "C" fn put_flags(output: &mut Output<'_>, table: &SymbolTable, word: u64) -> Status {
    let (mut left, mut status) = (word, Status::Ok);
    let blank = |output: &mut Output<'_>, left| if left != word { output.put(b" ") } else { Status::Ok };
    for (position, name) in table.iter().filter(|(position, _)| word >> (position & 63) & 1 == 1) {
        status = status.then(|| blank(output, left)).then(|| tokens::put_attribute(output, name));
        left &= !(1 << (position & 63));
    }
    if left != 0 {
        status = status.then(|| blank(output, left)).then(|| number::put_u64(output, left));
    }
    status
}

/// Bitsets as attributes, one for each named field. The number of all bits as the element's text is
/// accepted, too. The table's values are [`field`](crate::codec::lower::symbols::field)s.
pub(super) static FIELDS: SymbolKernel =
    SymbolKernel { name: "xml bitset", scalar: Scalar::U64, get: get_fields, put: put_fields };

extern "C" fn put_fields(output: &mut Output<'_>, table: &SymbolTable, word: u64) -> Status {
    let mut status = Status::Ok;
    for (field, name) in table.iter() {
        let (position, mask, signed) = parts(field);
        let value = word >> position & mask;
        status = status.then(|| output.put(b" ")).then(|| output.put(name.as_bytes())).then(|| output.put(b"=\""));
        status = status.then(|| symbols::put_field(output, value, mask, signed)).then(|| output.put(b"\""));
    }
    status.then(|| output.put(b">"))
}

extern "C" fn get_fields(input: &mut Input<'_>, table: &SymbolTable, word: &mut u64) -> Status {
    Status::give(fields(input, table), word)
}

fn fields(input: &mut Input<'_>, table: &SymbolTable) -> Result<u64, Status> {
    let start = input.position();
    let (mut bits, mut named) = (0, false);
    if tokens::quote(input).is_none() {
        while let Some(name) = tokens::attribute(input)? {
            match table.value(name.bytes(input)) {
                Some(field) => (bits, named) = (put_field(input, field, bits)?, true),
                None => drop(tokens::text(input)?),
            }
        }
        input.seek(start);
    }
    let mut buffer = [0; 64];
    match tokens::text(input)?.token(&mut buffer) {
        Some(b"") => Ok(bits),
        text => text.filter(|_| !named).and_then(|text| u64::try_from(integer(text)?).ok()).ok_or_else(|| {
            input.seek(start);
            tokens::wrong_kind(input)
        }),
    }
}

fn put_field(input: &mut Input<'_>, field: i64, bits: u64) -> Result<u64, Status> {
    let start = input.position();
    let mut buffer = [0; 64];
    let value = match tokens::text(input)?.token(&mut buffer).unwrap_or_default() {
        b"true" => Some(1),
        b"false" => Some(0),
        text => integer(text),
    };
    // A text that is no number does not fit any field.
    symbols::with_field(bits, field, value.unwrap_or(i128::MAX)).map_err(|bits| {
        input.seek(start);
        input.fail(FaultKind::OutOfRange, bits, 0)
    })
}
