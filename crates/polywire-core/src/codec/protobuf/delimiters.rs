//! Kernels for the delimiters of Protobuf: fields, repeated elements, map entries, unions.

use super::{
    get::{open, skip, tag, unzigzag, varint},
    kinds::{DISCRIMINATOR_NUMBER, FIXED32, FIXED64, LENGTH, VARINT},
};
use crate::{
    codec::lower::one_way,
    program::{
        ActionKernel, Cursor, Ending, FaultKind, Input, MemberDialect, MemberKey, MemberTable, SequenceDialect, Status,
        SymbolKernel, SymbolTable,
    },
};

type Read<T = ()> = Result<T, Status>;

/// The fields of a message, up to its end.
pub(super) static FIELDS: MemberDialect = MemberDialect {
    ending: Some(Ending::Exhausted),
    prefixes_suffice: true,
    ..MemberDialect::new("fields", one_way::no_step, next_field, skip_field)
};

/// Largest number of fields in a message for which it matters whether they occur again.
pub(super) const MAX_REPEAT_KEYS: usize = 192;

/// The fault for a field in several parts that must be merged, such as an array whose elements do
/// not all follow each other.
pub(super) const IN_PIECES: FaultKind = FaultKind::Count;

/// What happens when a field occurs again: see [`repeat_key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnRepeat {
    /// The later value replaces the earlier one.
    Replaces,
    /// The message is refused, because its values must be merged. [`merge`](super::merge) merges
    /// them in the message, which is then decoded again.
    Refused,
    /// Another arm reads the field.
    Arm(u32),
}

/// True for a field whose repetition is refused.
pub(super) fn is_refused_again(key: &MemberKey) -> bool {
    matches!(&*key.name, [_, arm @ ..] if arm == u32::MAX.to_le_bytes())
}

/// The key of a field that is the `rank`th for which it matters whether it occurs again.
pub(super) fn repeat_key(number: u32, rank: usize, again: OnRepeat) -> MemberKey {
    let arm = match again {
        OnRepeat::Replaces => return MemberKey { id: number, name: [].into() },
        OnRepeat::Refused => u32::MAX,
        OnRepeat::Arm(arm) => arm,
    };
    let [a, b, c, d] = arm.to_le_bytes();
    MemberKey { id: number, name: [rank as u8, a, b, c, d].into() }
}

extern "C" fn next_field(input: &mut Input<'_>, cursor: &mut Cursor, table: &MemberTable, arm: &mut u64) -> Status {
    if input.remaining() == 0 {
        *arm = MemberTable::END;
        return Status::Ok;
    }
    input.tag = match tag(input) {
        Ok(tag) => tag,
        Err(failed) => return failed,
    };
    *arm = table.by_id(input.tag >> 3, *arm);
    match table.keys().get(*arm as usize).map(|key| &*key.name) {
        None | Some([]) => Status::Ok,
        Some(note) => on_repeat(input, cursor, note, arm),
    }
}

/// Records that a field occurred. If it occurred before, applies its [`OnRepeat`].
fn on_repeat(input: &mut Input<'_>, cursor: &mut Cursor, note: &[u8], arm: &mut u64) -> Status {
    let [rank, a, b, c, d] = note else { return Status::Ok };
    let Some(word) = cursor.0.get_mut(usize::from(rank / 64)) else { return Status::Ok };
    let bit = 1 << (rank % 64);
    if *word & bit == 0 {
        *word |= bit;
        return Status::Ok;
    }
    match u32::from_le_bytes([*a, *b, *c, *d]) {
        u32::MAX => input.fail(IN_PIECES, 1, 2),
        again => {
            *arm = again.into();
            Status::Ok
        }
    }
}

extern "C" fn skip_field(input: &mut Input<'_>, _: &mut Cursor) -> Status {
    let tag = input.tag;
    Status::of(skip(input, tag))
}

/// The elements of a repeated field as long as no other field comes between: packed ones with this
/// wire type, or unpacked ones.
pub(super) fn elements(wire_type: u32) -> &'static SequenceDialect {
    static VARINTS: SequenceDialect =
        SequenceDialect { name: "varints", begin: begin_elements, next: next_element::<VARINT> };
    static SINGLES: SequenceDialect =
        SequenceDialect { name: "singles", begin: begin_elements, next: next_element::<FIXED32> };
    static DOUBLES: SequenceDialect =
        SequenceDialect { name: "doubles", begin: begin_elements, next: next_element::<FIXED64> };
    static OTHERS: SequenceDialect =
        SequenceDialect { name: "elements", begin: begin_elements, next: next_element::<LENGTH> };
    match wire_type {
        VARINT => &VARINTS,
        FIXED32 => &SINGLES,
        FIXED64 => &DOUBLES,
        _ => &OTHERS,
    }
}

/// The tag was read.
const AT_VALUE: u64 = 0;
/// Inside a packed field. The third word is the outer end.
const PACKED: u64 = 1;
/// Behind a value.
const BEHIND: u64 = 2;

extern "C" fn begin_elements(input: &mut Input<'_>, cursor: &mut Cursor) -> Status {
    cursor.0 = [AT_VALUE, input.tag.into(), 0];
    Status::Ok
}

extern "C" fn next_element<const WIRE_TYPE: u32>(input: &mut Input<'_>, cursor: &mut Cursor, more: &mut u64) -> Status {
    Status::give(has_more::<WIRE_TYPE>(input, cursor).map(u64::from), more)
}

fn has_more<const WIRE_TYPE: u32>(input: &mut Input<'_>, cursor: &mut Cursor) -> Read<bool> {
    let [state, field, outer] = &mut cursor.0;
    loop {
        match *state {
            AT_VALUE if WIRE_TYPE != LENGTH && input.tag & 7 == LENGTH => {
                *outer = open(input)? as u64;
                *state = PACKED;
            }
            AT_VALUE => {
                *state = BEHIND;
                return Ok(true);
            }
            PACKED if input.remaining() > 0 => {
                input.tag = *field as u32 & !7 | WIRE_TYPE;
                return Ok(true);
            }
            PACKED => {
                input.restore_end(*outer as usize);
                *state = BEHIND;
            }
            _ => {
                if !same_field(input, *field as u32)? {
                    return Ok(false);
                }
                *state = AT_VALUE;
            }
        }
    }
}

/// Reads the next tag if it belongs to the same field.
#[inline]
pub(super) fn same_field(input: &mut Input<'_>, field: u32) -> Read<bool> {
    if input.remaining() == 0 {
        return Ok(false);
    }
    let start = input.position();
    let next = tag(input)?;
    if next >> 3 == field >> 3 {
        input.tag = next;
        return Ok(true);
    }
    input.seek(start);
    Ok(false)
}

/// The entries of a map as long as no other field comes between. Each is a message in which key and
/// value may have any order, so each of the two is searched from the start of the entry, which is
/// the input's origin.
pub(super) static ENTRIES: SequenceDialect =
    SequenceDialect { name: "entries", begin: begin_elements, next: next_entry };

/// Goes back to the start of an entry, to search for its value.
pub(super) static REWIND: ActionKernel = ActionKernel::get_only("rewind", rewind);

extern "C" fn next_entry(input: &mut Input<'_>, cursor: &mut Cursor, more: &mut u64) -> Status {
    Status::give(has_entry(input, cursor).map(u64::from), more)
}

fn has_entry(input: &mut Input<'_>, cursor: &mut Cursor) -> Read<bool> {
    let [state, field, outer] = &mut cursor.0;
    if *state != AT_VALUE {
        input.seek(input.end());
        input.restore_end(*outer as usize);
        if !same_field(input, *field as u32)? {
            return Ok(false);
        }
    }
    *state = PACKED;
    *outer = open(input)? as u64;
    input.replace_origin(input.position());
    Ok(true)
}

extern "C" fn rewind(input: &mut Input<'_>, _: u64) -> Status {
    let start = input.replace_origin(0);
    input.seek(start);
    Status::Ok
}

/// Finds the case of the union whose message was entered, and does not advance the input. The names
/// in the table are the field numbers of the cases.
pub(super) static SELECTOR: SymbolKernel = SymbolKernel::get_only("selector", selector);

extern "C" fn selector(input: &mut Input<'_>, table: &SymbolTable, selected: &mut u64) -> Status {
    let start = input.position();
    match select(input, table) {
        Ok(Some(label)) => {
            *selected = label as u64;
            input.seek(start);
            Status::Ok
        }
        Ok(None) => {
            input.seek(start);
            input.fail(FaultKind::UnknownCase, 0, 0)
        }
        Err(failed) => failed,
    }
}

/// The discriminator or, without one, the label of the last case in the message.
fn select(input: &mut Input<'_>, table: &SymbolTable) -> Read<Option<i64>> {
    let (mut said, mut chosen) = (None, None);
    while input.remaining() > 0 {
        let tag = tag(input)?;
        if tag == DISCRIMINATOR_NUMBER << 3 | VARINT {
            said = Some(unzigzag(varint(input)?));
            continue;
        }
        let (digits, len) = number_name(tag >> 3);
        chosen = digits.get(..len).and_then(|name| table.value(name)).or(chosen);
        skip(input, tag)?;
    }
    Ok(said.or(chosen))
}

/// A field number as a name in a table: its decimal digits, the last digit first.
pub(super) fn number_name(mut number: u32) -> ([u8; 10], usize) {
    let mut digits = [0; 10];
    for (i, digit) in digits.iter_mut().enumerate() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return (digits, i + 1);
        }
    }
    (digits, 10)
}
