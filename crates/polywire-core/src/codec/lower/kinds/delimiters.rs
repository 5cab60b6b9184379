//! Kernels for the delimiters around values: members, elements, map entries, unions. The dialects
//! of this folder put them into programs. They touch the input or the output, and their cursor.

use super::{
    DISCRIMINATOR, Extent, Format, OPEN,
    get::{array_of, discriminator, map_of, quad},
};
use crate::{
    codec::lower::one_way,
    program::{
        ActionKernel, Cursor, Ending, FaultKind, Input, MemberDialect, MemberTable, Output, RegionDialect,
        ScalarKernel, SequenceDialect, Status, SymbolKernel, SymbolTable, TestKernel, kernels::scan::starts_with,
    },
};

type Read<T = ()> = Result<T, Status>;

/// The delimiter kernels of format `F`.
pub(super) struct Delimiters<F>(core::marker::PhantomData<F>);

impl<F: Format> Delimiters<F> {
    /// A structure as a map of its members.
    pub const MEMBERS: &'static MemberDialect = &MemberDialect {
        refuse_duplicates: true,
        ending: Some(Ending::Counted),
        ..MemberDialect::new("members", begin_map::<F>, next_member::<F>, skip_member::<F>)
    };
    pub const SEQUENCE: &'static SequenceDialect =
        &SequenceDialect { name: "elements", begin: begin_array::<F>, next: next_item::<F> };
    pub const ENTRIES: &'static SequenceDialect =
        &SequenceDialect { name: "entries", begin: begin_map::<F>, next: next_item::<F> };
    /// A structure of which only the present members are written. The low half of the argument is
    /// the number of mandatory members, the high half the number of all members.
    pub const COUNTED: &'static RegionDialect =
        &RegionDialect::put_only("present members", put_counted::<F>, put_count::<F>);
    /// Adds one to the number of present members.
    pub const PRESENT: &'static ActionKernel = &ActionKernel::put_only("present", count_member);
    /// A map whose entries are sorted at its end.
    pub const SORTED: &'static RegionDialect = &RegionDialect::rewriting("sorted entries", put_sorted::<F>);
    /// An array whose number of values is the argument.
    pub const ROW: &'static RegionDialect = &RegionDialect::get_only("row", begin_row::<F>, end_row::<F>);
    /// A union. Its end skips the value if the body did not read it.
    pub const UNION: &'static RegionDialect = &RegionDialect::get_only("union", begin_union, end_union::<F>);
    /// A union as an array of its discriminator and its value, or null.
    pub const PAIR: &'static RegionDialect =
        &RegionDialect { get_begin: begin_pair::<F>, get_end: end_pair::<F>, ..*Self::UNION };
    /// Finds the case of the union that follows and does not advance the input. The table comes
    /// from [`union_head`](crate::codec::lower::symbols::union_head).
    pub const SELECTOR: &'static SymbolKernel = &SymbolKernel::get_only("selector", selector::<F, false>);
    /// [`Self::SELECTOR`] for a discriminator that is a character.
    pub const CHARACTER_SELECTOR: &'static SymbolKernel = &SymbolKernel { get: selector::<F, true>, ..*Self::SELECTOR };
    /// Finds the discriminator of the pair that follows and does not advance the input.
    pub const LABEL: &'static SymbolKernel = &SymbolKernel { name: "label", get: label::<F, false>, ..*Self::SELECTOR };
    /// [`Self::LABEL`] for a discriminator that is a character.
    pub const CHARACTER_LABEL: &'static SymbolKernel = &SymbolKernel { get: label::<F, true>, ..*Self::LABEL };
    pub const QUAD: &'static ScalarKernel = &ScalarKernel::wide("long double", quad::<F>, one_way::put_no_wide);
    /// Tests for null and skips it.
    pub const NULL: &'static TestKernel = &TestKernel { name: "null", test: null::<F> };
    /// Skips a value.
    pub const SKIP: &'static ActionKernel = &ActionKernel::get_only("skip", skip::<F>);
}

/// Sets the cursor: number of items left, their common kind, and whether they are map entries.
fn open(extent: Read<Extent>, map: bool, cursor: &mut Cursor) -> Status {
    Status::give(extent.map(|extent| [extent.count, extent.kind.into(), map.into()]), &mut cursor.0)
}

extern "C" fn begin_map<F: Format>(input: &mut Input<'_>, cursor: &mut Cursor) -> Status {
    open(map_of::<F>(input), true, cursor)
}

extern "C" fn begin_array<F: Format>(input: &mut Input<'_>, cursor: &mut Cursor) -> Status {
    open(array_of::<F>(input), false, cursor)
}

/// Returns whether another item follows, and counts it.
#[inline(always)]
fn more<F: Format>(input: &mut Input<'_>, cursor: &mut Cursor) -> Read<bool> {
    let [count, kind, map] = &mut cursor.0;
    match *count {
        0 => return Ok(false),
        OPEN if !F::COUNTED => {
            if F::ends(input, *map != 0)? {
                return Ok(false);
            }
        }
        left => *count = left - 1,
    }
    if F::TYPED {
        input.tag = *kind as u32;
    }
    Ok(true)
}

extern "C" fn next_item<F: Format>(input: &mut Input<'_>, cursor: &mut Cursor, word: &mut u64) -> Status {
    Status::give(more::<F>(input, cursor).map(u64::from), word)
}

extern "C" fn next_member<F: Format>(
    input: &mut Input<'_>,
    cursor: &mut Cursor,
    table: &MemberTable,
    arm: &mut u64,
) -> Status {
    match more::<F>(input, cursor) {
        Ok(true) => {}
        ended => return Status::give(ended.map(|_| MemberTable::END), arm),
    }
    if let Some(key) = table.keys().get(*arm as usize)
        && starts_with(input.rest(), &key.name)
    {
        input.seek(input.position() + key.name.len());
        return Status::Ok;
    }
    search::<F>(input, table, arm)
}

/// Finds a member by name. The table has keys as this library writes them; other writers may write
/// the head of a name differently.
fn search<F: Format>(input: &mut Input<'_>, table: &MemberTable, arm: &mut u64) -> Status {
    let (start, message) = (input.position(), input.message());
    let name = match F::name(input) {
        Ok(Some(name)) => name,
        no_name => return Status::give(no_name.map(|_| MemberTable::UNKNOWN), arm),
    };
    let whole = message.get(start..input.position()).unwrap_or(name);
    *arm = table.by_name(whole, MemberTable::UNKNOWN);
    if *arm == MemberTable::UNKNOWN {
        *arm = search_as_written::<F>(table, name, whole);
    }
    Status::Ok
}

/// Finds a member whose name has another head than this library writes.
#[cold]
fn search_as_written<F: Format>(table: &MemberTable, name: &[u8], whole: &[u8]) -> u64 {
    let (head, head_len) = F::name_head(name.len());
    let head = &head.to_le_bytes()[..head_len.min(8)];
    if whole.starts_with(head) && whole.len() == head.len() + name.len() {
        return MemberTable::UNKNOWN;
    }
    let mut room = [0; 256];
    if let Some(key) = room.get_mut(..head.len() + name.len()) {
        let (front, back) = key.split_at_mut(head.len());
        front.copy_from_slice(head);
        back.copy_from_slice(name);
        return table.by_name(key, MemberTable::UNKNOWN);
    }
    // A name this long is rare enough for a linear search.
    let same = |key: &crate::program::MemberKey| key.name.strip_prefix(head) == Some(name);
    table.keys().iter().position(same).map_or(MemberTable::UNKNOWN, |at| at as u64)
}

extern "C" fn skip_member<F: Format>(input: &mut Input<'_>, _: &mut Cursor) -> Status {
    Status::of(F::skip(input))
}

extern "C" fn skip<F: Format>(input: &mut Input<'_>, _: u64) -> Status {
    Status::of(F::skip(input))
}

extern "C" fn null<F: Format>(input: &mut Input<'_>, is: &mut u64) -> Status {
    *is = F::null(input).into();
    Status::Ok
}

extern "C" fn begin_row<F: Format>(input: &mut Input<'_>, len: u64, cursor: &mut Cursor) -> Status {
    let start = input.position();
    let extent =
        array_of::<F>(input).and_then(|extent| match extent.count == len || (extent.count == OPEN && !F::COUNTED) {
            true => Ok(extent),
            false => {
                input.seek(start);
                Err(input.fail(FaultKind::Count, len, extent.count))
            }
        });
    open(extent, false, cursor)
}

extern "C" fn end_row<F: Format>(input: &mut Input<'_>, len: u64, cursor: &mut Cursor) -> Status {
    if F::COUNTED || cursor.0[0] != OPEN {
        return Status::Ok;
    }
    Status::of(F::ends(input, false).and_then(|ends| match ends {
        true => Ok(()),
        false => Err(input.fail(FaultKind::Count, len, len + 1)),
    }))
}

extern "C" fn begin_union(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    cursor.0 = [input.position() as u64, input.tag.into(), 0];
    Status::Ok
}

extern "C" fn end_union<F: Format>(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    match input.position() as u64 == cursor.0[0] {
        true => Status::of(F::skip(input)),
        false => Status::Ok,
    }
}

extern "C" fn begin_pair<F: Format>(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    let status = begin_row::<F>(input, 2, cursor);
    cursor.0[2] = input.position() as u64;
    status
}

extern "C" fn end_pair<F: Format>(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    let skipped = match input.position() as u64 == cursor.0[2] {
        true => F::skip(input).and_then(|()| F::skip(input)),
        false => Ok(()),
    };
    Status::of(skipped).then(|| end_row::<F>(input, 2, cursor))
}

extern "C" fn label<F: Format, const CHARACTER: bool>(
    input: &mut Input<'_>,
    table: &SymbolTable,
    word: &mut u64,
) -> Status {
    let start = input.position();
    let label = discriminator::<F>(input, table, CHARACTER).inspect(|_| input.seek(start));
    Status::give(label.map(|label| label as u64), word)
}

/// Looks through a union's map and does not advance the input.
extern "C" fn selector<F: Format, const CHARACTER: bool>(
    input: &mut Input<'_>,
    table: &SymbolTable,
    selected: &mut u64,
) -> Status {
    let (start, kind) = (input.position(), input.tag);
    let label = select::<F>(input, table, CHARACTER).inspect(|_| {
        input.seek(start);
        input.tag = kind;
    });
    Status::give(label.map(|label| label as u64), selected)
}

fn select<F: Format>(input: &mut Input<'_>, table: &SymbolTable, character: bool) -> Read<i64> {
    let start = input.position();
    let mut cursor = Cursor::default();
    begin_map::<F>(input, &mut cursor).ok()?;
    let alone = cursor.0[0] == 1;
    let (mut named, mut members) = (None, 0);
    while more::<F>(input, &mut cursor)? {
        let name = F::name(input)?;
        if name == Some(DISCRIMINATOR.as_bytes()) {
            return discriminator::<F>(input, table, character);
        }
        if let Some(label) = name.and_then(|name| table.value(name)) {
            (named, members) = (Some(label), members + 1);
            if alone {
                return Ok(label);
            }
        }
        F::skip(input)?;
    }
    match named {
        Some(label) if members == 1 => Ok(label),
        Some(_) => Err(input.fail(FaultKind::DuplicateMember, 1, members)),
        None => {
            input.seek(start);
            Err(input.fail(FaultKind::UnknownCase, 0, 0))
        }
    }
}

/// Maps with fewer members than this have their number in one byte.
const FEW: u64 = 16;
/// Bytes reserved for the head of a map with more members. The last four hold the number of members
/// until the end of the map.
const ROOM: usize = 5;

/// Reserves the head. While members are written, [`Output::mark`] is the head's position; the
/// cursor keeps that of the outer structure.
extern "C" fn put_counted<F: Format>(output: &mut Output<'_>, argument: u64, cursor: &mut Cursor) -> Status {
    let (always, all) = (argument & 0xFFFF_FFFF, argument >> 32);
    cursor.0[0] = output.mark as u64;
    output.mark = output.position();
    match all < FEW {
        true => F::put_map(output, always),
        false => output.put_word(always << 8, ROOM),
    }
}

extern "C" fn count_member(output: &mut Output<'_>, many: u64) -> Status {
    let mark = output.mark;
    let head = output.written().get_mut(mark..).unwrap_or_default();
    match many {
        0 => head.iter_mut().take(1).for_each(|byte| *byte = byte.wrapping_add(1)),
        _ => {
            if let Some(count) = head.get_mut(1..).and_then(|head| head.first_chunk_mut()) {
                *count = u32::from_le_bytes(*count).wrapping_add(1).to_le_bytes();
            }
        }
    }
    Status::Ok
}

extern "C" fn put_count<F: Format>(output: &mut Output<'_>, argument: u64, cursor: &mut Cursor) -> Status {
    let start = core::mem::replace(&mut output.mark, cursor.0[0] as usize);
    if argument >> 32 < FEW {
        return Status::Ok;
    }
    let Some(count) = output.written().get(start + 1..).and_then(|head| head.first_chunk()).copied() else {
        return Status::Ok;
    };
    // The head is written at the end, moved to its place, and the rest of the reserved bytes is
    // removed.
    let end = output.position();
    let status = F::put_map(output, u32::from_le_bytes(count).into());
    let len = output.position() - end;
    if let Some(members) = output.written().get_mut(start..) {
        members.copy_within(end - start.., 0);
        members.copy_within(ROOM..end - start, len);
    }
    output.truncate(end - ROOM + len);
    status
}

/// The argument of [`Delimiters::PRESENT`]: which form of the count it increments.
pub(super) fn is_many(all: usize) -> u64 {
    u64::from(all as u64 >= FEW)
}

extern "C" fn put_sorted<F: Format>(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    F::sort(output, cursor.0[0] as usize)
}
