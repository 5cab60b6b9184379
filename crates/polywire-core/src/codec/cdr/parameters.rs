//! Kernels for headers and lengths: the encapsulation header, DHEADERs, parameters of XCDR1 and
//! members of XCDR2.
//!
//! Each function exists once for each byte order; the constant `BIG` selects it.

use crate::{
    codec::lower::one_way,
    program::{
        ActionKernel, Cursor, FaultKind, Input, MemberDialect, MemberTable, Order, Output, RegionDialect, RegionForm,
        Status, TestKernel,
    },
};

/// The id of a parameter whose real id and length follow as words of 32 bits.
pub(super) const PID_EXTENDED: u16 = 0x3F01;
/// The id of the end of a parameter list. RTPS uses another id for its own lists.
pub(super) const PID_LIST_END: u16 = 0x3F02;
/// The id of a parameter to skip.
const PID_IGNORE: u16 = 0x3F03;
/// Flag in a parameter's id: the reader must understand the parameter.
pub(super) const PID_MUST_UNDERSTAND: u16 = 0x4000;
/// The bits of the id without flags.
const PID_MASK: u16 = 0x3FFF;
/// The largest id in a short header.
const PID_SHORT_MAX: u32 = 0x3F00;

const MEMBER_ID_MASK: u32 = 0x0FFF_FFFF;
const EM_MUST_UNDERSTAND: u32 = 1 << 31;

/// Argument of a DHEADER's region: remaining bytes belong to a newer version of the type and are
/// skipped.
pub(super) const SKIP_REST: u64 = 0;
/// Argument of a DHEADER's region: no bytes may remain.
pub(super) const EXACT: u64 = 1;

/// The argument of regions and actions for parameters.
pub(super) fn parameter(id: u32, must_understand: bool) -> u64 {
    u64::from(id) | u64::from(must_understand) << 32
}

/// The id for a short header. `None` if it is too large.
pub(super) fn short_id(id: u32) -> Option<u16> {
    u16::try_from(id).ok().filter(|_| id <= PID_SHORT_MAX)
}

macro_rules! by_order {
    ($($(#[$doc:meta])* $name:ident<$big:ident>: $kind:ident = $value:expr;)*) => {$(
        $(#[$doc])*
        pub(super) fn $name(order: Order) -> &'static $kind {
            const fn made<const $big: bool>() -> $kind {
                $value
            }
            static OF_LITTLE: $kind = made::<false>();
            static OF_BIG: $kind = made::<true>();
            match order {
                Order::Little => &OF_LITTLE,
                Order::Big => &OF_BIG,
            }
        }
    )*};
}

/// The header in front of a message and the padding after it. The argument is the identifier; when
/// decoding, it was read before.
pub(super) static ENCAPSULATION: RegionDialect = RegionDialect {
    restarts_origin: true,
    ..RegionDialect::new(
        "encapsulation",
        [get_encapsulation, leave_encapsulation],
        [put_encapsulation, pad_encapsulation],
    )
};

/// Tests whether the region has no bytes left for a value of this alignment. Does not advance the
/// input.
pub(super) fn nothing_left(alignment: u8) -> &'static TestKernel {
    static BY_ALIGNMENT: [TestKernel; 4] = [
        TestKernel { name: "nothing left", test: is_nothing_left::<1> },
        TestKernel { name: "nothing left, by 2", test: is_nothing_left::<2> },
        TestKernel { name: "nothing left, by 4", test: is_nothing_left::<4> },
        TestKernel { name: "nothing left, by 8", test: is_nothing_left::<8> },
    ];
    &BY_ALIGNMENT[alignment.trailing_zeros().min(3) as usize]
}

/// Refuses an encapsulation header whose identifier does not suit the type. The argument is the
/// expected big-endian identifier.
pub(super) static OTHER_ENCAPSULATION: ActionKernel =
    ActionKernel::get_only("other encapsulation", refuse_encapsulation);

by_order! {
    /// A DHEADER: argument [`SKIP_REST`] or [`EXACT`]. It restarts the alignment origin, so that
    /// alignment inside is known in advance. The wire stays the same: XCDR2 aligns to at most 4,
    /// and the contents of a DHEADER begin at a multiple of 4.
    dheader_region<BIG>: RegionDialect = RegionDialect {
        restarts_origin: true,
        form: Some(RegionForm::Word { order: if BIG { Order::Big } else { Order::Little } }),
        ..RegionDialect::new("dheader", [get_dheader::<BIG>, leave_dheader], [put_dheader, patch_dheader::<BIG>])
    };
    /// A parameter of XCDR1: argument [`parameter`].
    parameter_region<BIG>: RegionDialect = RegionDialect {
        restarts_origin: true,
        ..RegionDialect::new(
            "parameter",
            [get_parameter::<BIG>, leave_parameter],
            [put_parameter, patch_parameter::<BIG>],
        )
    };
    /// A member of XCDR2 with a separate length. The argument is its EMHEADER.
    member_region<BIG>: RegionDialect = RegionDialect {
        restarts_origin: true,
        ..RegionDialect::new("member", [get_member::<BIG>, leave_parameter], [put_member::<BIG>, patch_dheader::<BIG>])
    };
    /// The parameters of a mutable type in XCDR1, with the end of their list.
    parameter_list<BIG>: MemberDialect = in_elements("parameters", next_parameter::<BIG>);
    /// The members of a mutable type in XCDR2, up to the end of its DHEADER.
    member_list<BIG>: MemberDialect = in_elements("members", next_member::<BIG>);
    /// Tests whether the optional member of a final or appendable type of XCDR1 is present. Does
    /// not advance the input.
    parameter_present<BIG>: TestKernel = TestKernel { name: "parameter present", test: is_parameter_present::<BIG> };
    /// Skips the header of an absent optional member: argument [`parameter`].
    absent_parameter<BIG>: ActionKernel = ActionKernel::get_only("absent parameter", get_absent::<BIG>);
    /// Skips the header of a scalar. The lower half of the argument is its id, the upper half its
    /// size.
    scalar_parameter<BIG>: ActionKernel = ActionKernel::get_only("scalar parameter", get_scalar_parameter::<BIG>);
    /// `scalar_parameter` for a member of XCDR2.
    scalar_member<BIG>: ActionKernel = ActionKernel::get_only("scalar member", get_scalar_member::<BIG>);
    /// Skips the rest of a mutable union in XCDR1.
    list_end<BIG>: ActionKernel = ActionKernel::get_only("list end", get_list_end::<BIG>);
}

const fn in_elements(
    name: &'static str,
    next: extern "C" fn(&mut Input<'_>, &mut Cursor, &MemberTable, &mut u64) -> Status,
) -> MemberDialect {
    let plain = MemberDialect::new(name, one_way::no_step, next, leave_element);
    MemberDialect { refuse_duplicates: true, after: leave_element, ..plain }
}

// Reading and writing words.

fn get_u32<const BIG: bool>(input: &mut Input<'_>) -> Result<u32, Status> {
    input.align(4);
    let bytes = input.take(4)?.try_into().unwrap_or_default();
    Ok(if BIG { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
}

fn get_u16<const BIG: bool>(input: &mut Input<'_>) -> Result<u16, Status> {
    let bytes = input.take(2)?.try_into().unwrap_or_default();
    Ok(if BIG { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
}

fn word<const BIG: bool>(value: u32) -> [u8; 4] {
    if BIG { value.to_be_bytes() } else { value.to_le_bytes() }
}

fn halves<const BIG: bool>(first: u16, second: u16) -> [u8; 4] {
    let half = |value: u16| if BIG { value.to_be_bytes() } else { value.to_le_bytes() };
    let ([a, b], [c, d]) = (half(first), half(second));
    [a, b, c, d]
}

/// The length of what was written since `start`. Fails if it exceeds 32 bits.
fn length_since(output: &mut Output<'_>, start: usize) -> Result<u32, Status> {
    let len = output.position() - start;
    u32::try_from(len).map_err(|_| output.fail(FaultKind::Limit, u64::from(u32::MAX), len as u64))
}

// Entering and leaving regions. The cursor keeps the outer end and the outer origin.

/// Narrows the input to its next `len` bytes and makes their start the origin.
fn enter(input: &mut Input<'_>, len: usize, cursor: &mut Cursor) -> Result<(), Status> {
    let end = input.position().saturating_add(len);
    match input.limit_end(end) {
        Some(former) => {
            cursor.0 = [former as u64, input.replace_origin(input.position()) as u64, 0];
            Ok(())
        }
        None => Err(input.fail(FaultKind::BadLength, input.remaining() as u64, len as u64)),
    }
}

/// Skips the rest of the narrowed input and widens it again.
fn leave(input: &mut Input<'_>, cursor: &Cursor) {
    input.seek(input.end());
    input.restore_end(cursor.0[0] as usize);
    input.replace_origin(cursor.0[1] as usize);
}

extern "C" fn leave_parameter(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    leave(input, cursor);
    Status::Ok
}

extern "C" fn leave_element(input: &mut Input<'_>, cursor: &mut Cursor) -> Status {
    leave(input, cursor);
    Status::Ok
}

// The encapsulation header.

/// The bits in the second byte of the options that count the padding bytes after the value.
const PADDING_MASK: u8 = 3;

extern "C" fn get_encapsulation(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    let Ok(&[_, options]) = input.take(2) else { return Status::Failed };
    let (padding, left) = (usize::from(options & PADDING_MASK), input.remaining());
    match left.checked_sub(padding) {
        Some(len) => Status::of(enter(input, len, cursor)),
        None => input.fail(FaultKind::BadLength, padding as u64, left as u64),
    }
}

extern "C" fn refuse_encapsulation(input: &mut Input<'_>, identifier: u64) -> Status {
    input.seek(input.position().saturating_sub(2));
    let got = get_u16::<true>(input).unwrap_or_default();
    input.seek(input.position().saturating_sub(2));
    input.fail(FaultKind::Encapsulation, identifier, got.into())
}

/// Skips the rest: padding that the sender did not count, or members of a newer version of the
/// type.
extern "C" fn leave_encapsulation(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    leave(input, cursor);
    input.seek(input.end());
    Status::Ok
}

extern "C" fn put_encapsulation(output: &mut Output<'_>, identifier: u64, cursor: &mut Cursor) -> Status {
    let [.., high, low] = identifier.to_be_bytes();
    let head = output.put(&[high, low, 0, 0]).ok();
    Status::of(head.map(|()| open(output, cursor)))
}

extern "C" fn pad_encapsulation(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    let end = output.position();
    if output.align(4) == Status::Failed {
        return Status::Failed;
    }
    let padding = output.position() - end;
    output.patch(cursor.0[0] as usize - 1, &[padding as u8]);
    output.replace_origin(cursor.0[1] as usize);
    Status::Ok
}

extern "C" fn is_nothing_left<const ALIGNMENT: usize>(input: &mut Input<'_>, nothing: &mut u64) -> Status {
    // Senders pad messages to a multiple of four, and some do not count the padding.
    let padding = input.padding(ALIGNMENT);
    *nothing = u64::from(input.remaining() <= padding);
    Status::Ok
}

// DHEADERs.

extern "C" fn get_dheader<const BIG: bool>(input: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    Status::of(get_u32::<BIG>(input).and_then(|len| enter(input, len as usize, cursor)))
}

extern "C" fn leave_dheader(input: &mut Input<'_>, rest: u64, cursor: &mut Cursor) -> Status {
    let left = input.remaining() as u64;
    if rest == EXACT && left > 0 {
        return input.fail(FaultKind::BadLength, 0, left);
    }
    leave(input, cursor);
    Status::Ok
}

extern "C" fn put_dheader(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    Status::of(output.align(4).ok().and_then(|()| output.put(&[0; 4]).ok()).map(|()| open(output, cursor)))
}

/// Remembers the start of a value whose length is filled in later, and makes it the origin.
fn open(output: &mut Output<'_>, cursor: &mut Cursor) {
    let start = output.position();
    cursor.0 = [start as u64, output.replace_origin(start) as u64, 0];
}

extern "C" fn patch_dheader<const BIG: bool>(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    let [start, origin, _] = cursor.0.map(|word| word as usize);
    output.replace_origin(origin);
    Status::of(length_since(output, start).map(|len| output.patch(start - 4, &word::<BIG>(len))))
}

// Headers of parameters and members.

/// The header of a parameter or member.
struct Header {
    /// `None` at the end of a list.
    id: Option<u32>,
    /// The length of the value, whichever length code announced it.
    len: usize,
    must_understand: bool,
}

/// Reads a header and fails if it has another id.
fn expect(
    input: &mut Input<'_>,
    read: impl FnOnce(&mut Input<'_>) -> Result<Header, Status>,
    id: u64,
) -> Result<Header, Status> {
    let header = read(input)?;
    let (wanted, got) = (id & u64::from(MEMBER_ID_MASK), header.id.map_or(u64::from(PID_LIST_END), u64::from));
    if header.id.is_none() || got != wanted {
        return Err(input.fail(FaultKind::UnknownMember, wanted, got));
    }
    Ok(header)
}

/// Reads the header of a scalar, whose length is its size, with or without padding to a multiple of
/// 4. The lower half of the argument is the id, the upper half the size.
fn expect_scalar(
    input: &mut Input<'_>,
    read: impl FnOnce(&mut Input<'_>) -> Result<Header, Status>,
    argument: u64,
) -> Status {
    let (id, size) = (argument & u64::from(u32::MAX), argument >> 32);
    match expect(input, read, id) {
        Ok(Header { len, .. }) if [size, size.next_multiple_of(4)].contains(&(len as u64)) => Status::Ok,
        Ok(Header { len, .. }) => input.fail(FaultKind::BadLength, size, len as u64),
        Err(failed) => failed,
    }
}

// Parameters of XCDR1.

fn parameter_header<const BIG: bool>(input: &mut Input<'_>) -> Result<Header, Status> {
    loop {
        input.align(4);
        let (pid, len) = (get_u16::<BIG>(input)?, get_u16::<BIG>(input)?);
        let must_understand = pid & PID_MUST_UNDERSTAND != 0;
        match pid & PID_MASK {
            PID_IGNORE => {
                input.take(usize::from(len))?;
            }
            PID_LIST_END => return Ok(Header { id: None, len: 0, must_understand: false }),
            PID_EXTENDED => {
                let (id, len) = (get_u32::<BIG>(input)?, get_u32::<BIG>(input)?);
                return Ok(Header { id: Some(id & MEMBER_ID_MASK), len: len as usize, must_understand });
            }
            id => return Ok(Header { id: Some(id.into()), len: len.into(), must_understand }),
        }
    }
}

extern "C" fn get_parameter<const BIG: bool>(input: &mut Input<'_>, id: u64, cursor: &mut Cursor) -> Status {
    Status::of(expect(input, parameter_header::<BIG>, id).and_then(|header| enter(input, header.len, cursor)))
}

extern "C" fn is_parameter_present<const BIG: bool>(input: &mut Input<'_>, present: &mut u64) -> Status {
    let start = input.position();
    let header = parameter_header::<BIG>(input);
    if header.is_ok() {
        input.seek(start);
    }
    Status::of(header.map(|header| *present = u64::from(header.len > 0)))
}

extern "C" fn get_absent<const BIG: bool>(input: &mut Input<'_>, id: u64) -> Status {
    Status::of(expect(input, parameter_header::<BIG>, id).map(|_| ()))
}

extern "C" fn get_scalar_parameter<const BIG: bool>(input: &mut Input<'_>, argument: u64) -> Status {
    expect_scalar(input, parameter_header::<BIG>, argument)
}

extern "C" fn get_list_end<const BIG: bool>(input: &mut Input<'_>, _: u64) -> Status {
    loop {
        match parameter_header::<BIG>(input) {
            Err(failed) => return failed,
            Ok(Header { id: None, .. }) => return Status::Ok,
            Ok(Header { id: Some(id), must_understand: true, .. }) => {
                return input.fail(FaultKind::UnknownMember, 0, id.into());
            }
            Ok(header) if input.take(header.len).is_err() => return Status::Failed,
            Ok(_) => {}
        }
    }
}

extern "C" fn next_parameter<const BIG: bool>(
    input: &mut Input<'_>,
    cursor: &mut Cursor,
    table: &MemberTable,
    arm: &mut u64,
) -> Status {
    Status::of(parameter_header::<BIG>(input).and_then(|header| enter_known(input, cursor, table, header, arm)))
}

/// Finds the arm of the member behind a header and enters the member. Fails for an unknown member
/// that must be understood.
fn enter_known(
    input: &mut Input<'_>,
    cursor: &mut Cursor,
    table: &MemberTable,
    header: Header,
    arm: &mut u64,
) -> Result<(), Status> {
    let Some(id) = header.id else {
        *arm = MemberTable::END;
        return Ok(());
    };
    *arm = table.by_id(id, *arm);
    match *arm == MemberTable::UNKNOWN && header.must_understand {
        true => Err(input.fail(FaultKind::UnknownMember, 0, id.into())),
        false => enter(input, header.len, cursor),
    }
}

const SHORT_HEADER: usize = 4;
const EXTENDED_HEADER: usize = 12;

extern "C" fn put_parameter(output: &mut Output<'_>, argument: u64, cursor: &mut Cursor) -> Status {
    let header = match short_id(argument as u32) {
        Some(_) => SHORT_HEADER,
        None => EXTENDED_HEADER,
    };
    let begun = output.align(4).ok().and_then(|()| output.put(&[0; EXTENDED_HEADER][..header]).ok());
    Status::of(begun.map(|()| open(output, cursor)))
}

extern "C" fn patch_parameter<const BIG: bool>(output: &mut Output<'_>, argument: u64, cursor: &mut Cursor) -> Status {
    let [start, origin, _] = cursor.0.map(|word| word as usize);
    output.replace_origin(origin);
    Status::of(finish_parameter::<BIG>(output, argument, start))
}

fn finish_parameter<const BIG: bool>(output: &mut Output<'_>, argument: u64, start: usize) -> Result<(), Status> {
    let len = length_since(output, start)?;
    let (id, flag) = (argument as u32, if argument >> 32 != 0 { PID_MUST_UNDERSTAND } else { 0 });
    match (short_id(id), u16::try_from(len)) {
        (Some(id), Ok(len)) => {
            output.patch(start - SHORT_HEADER, &halves::<BIG>(id | flag, len));
            return Ok(());
        }
        // Alignment inside the value counts from its start, so it does not change when the value
        // moves.
        (Some(_), Err(_)) => output.insert(start, EXTENDED_HEADER - SHORT_HEADER).ok()?,
        (None, _) => {}
    }
    // A widened header begins where the short one began.
    let at = if short_id(id).is_some() { start - SHORT_HEADER } else { start - EXTENDED_HEADER };
    output.patch(at, &halves::<BIG>(PID_EXTENDED | flag, 8));
    output.patch(at + 4, &word::<BIG>(id));
    output.patch(at + 8, &word::<BIG>(len));
    Ok(())
}

// Members of XCDR2.

fn member_header<const BIG: bool>(input: &mut Input<'_>) -> Result<Header, Status> {
    let header = get_u32::<BIG>(input)?;
    let len = match header >> 28 & 7 {
        code @ 0..=3 => 1 << code,
        4 => get_u32::<BIG>(input)? as usize,
        // The first word of the value serves as its length, and is read again as part of the value.
        code => {
            let start = input.position();
            let count = get_u32::<BIG>(input)? as usize;
            input.seek(start);
            let unit = [1, 4, 8][code as usize - 5];
            count.saturating_mul(unit).saturating_add(4)
        }
    };
    Ok(Header { id: Some(header & MEMBER_ID_MASK), len, must_understand: header & EM_MUST_UNDERSTAND != 0 })
}

extern "C" fn get_member<const BIG: bool>(input: &mut Input<'_>, id: u64, cursor: &mut Cursor) -> Status {
    Status::of(expect(input, member_header::<BIG>, id).and_then(|header| enter(input, header.len, cursor)))
}

extern "C" fn get_scalar_member<const BIG: bool>(input: &mut Input<'_>, argument: u64) -> Status {
    expect_scalar(input, member_header::<BIG>, argument)
}

extern "C" fn next_member<const BIG: bool>(
    input: &mut Input<'_>,
    cursor: &mut Cursor,
    table: &MemberTable,
    arm: &mut u64,
) -> Status {
    if input.remaining() == 0 {
        *arm = MemberTable::END;
        return Status::Ok;
    }
    Status::of(member_header::<BIG>(input).and_then(|header| enter_known(input, cursor, table, header, arm)))
}

extern "C" fn put_member<const BIG: bool>(output: &mut Output<'_>, header: u64, cursor: &mut Cursor) -> Status {
    let begun = output
        .align(4)
        .ok()
        .and_then(|()| output.put(&word::<BIG>(header as u32)).ok())
        .and_then(|()| output.put(&[0; 4]).ok());
    Status::of(begun.map(|()| open(output, cursor)))
}
