//! Wide strings: UTF-16 after their length in bytes, without a terminator.

use alloc::string::String;

use crate::program::{FaultKind, Input, Order, Output, Status, TextKernel};

/// The kernel for wide strings in this byte order.
pub(super) fn kernel(order: Order) -> &'static TextKernel {
    static LITTLE: TextKernel = TextKernel { name: "utf-16 le", get: get::<false>, put: put::<false>, short: None };
    static BIG: TextKernel = TextKernel { name: "utf-16 be", get: get::<true>, put: put::<true>, short: None };
    match order {
        Order::Little => &LITTLE,
        Order::Big => &BIG,
    }
}

fn get<const BIG: bool>(input: &mut Input<'_>, string: Option<&mut String>) -> Status {
    let start = input.position();
    let Ok(head) = input.take(4) else { return Status::Failed };
    let head = head.try_into().unwrap_or_default();
    let len = if BIG { u32::from_be_bytes(head) } else { u32::from_le_bytes(head) } as usize;
    let left = input.remaining();
    if len > left || !len.is_multiple_of(2) {
        input.seek(start);
        return input.fail(FaultKind::BadLength, left as u64, len as u64);
    }
    let Ok(bytes) = input.take(len) else { return Status::Failed };
    let utf8_len = match utf8_len::<BIG>(bytes) {
        Ok(utf8_len) => utf8_len,
        Err(at) => {
            input.seek(start + 4 + at);
            return input.fail(FaultKind::BadText, 0, 0);
        }
    };
    match string {
        None => Status::Ok,
        Some(string) => fill::<BIG>(input, string, bytes, utf8_len),
    }
}

fn units<const BIG: bool>(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.chunks_exact(2).map(|pair| {
        let pair = [pair[0], pair[1]];
        if BIG { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
    })
}

/// The length of the text as UTF-8 in bytes. Fails with the offset of the first invalid unit.
fn utf8_len<const BIG: bool>(bytes: &[u8]) -> Result<usize, usize> {
    let (mut len, mut at) = (0, 0);
    for decoded in char::decode_utf16(units::<BIG>(bytes)) {
        let decoded = decoded.map_err(|_| at)?;
        len += decoded.len_utf8();
        at += 2 * decoded.len_utf16();
    }
    Ok(len)
}

fn fill<const BIG: bool>(input: &mut Input<'_>, string: &mut String, bytes: &[u8], utf8_len: usize) -> Status {
    if input.make_room(string, utf8_len) == Status::Failed {
        return Status::Failed;
    }
    string.extend(char::decode_utf16(units::<BIG>(bytes)).flatten());
    Status::Ok
}

fn put<const BIG: bool>(output: &mut Output<'_>, text: &str) -> Status {
    let len = 2 * text.encode_utf16().count() as u64;
    let Ok(count) = u32::try_from(len) else {
        return output.fail(FaultKind::Limit, u64::from(u32::MAX), len);
    };
    let head = if BIG { count.to_be_bytes() } else { count.to_le_bytes() };
    if output.put(&head) == Status::Failed {
        return Status::Failed;
    }
    output.put_with(count as usize, |bytes| {
        for (pair, unit) in bytes.chunks_exact_mut(2).zip(text.encode_utf16()) {
            pair.copy_from_slice(&if BIG { unit.to_be_bytes() } else { unit.to_le_bytes() });
        }
        bytes.len()
    })
}
