//! Stop-bit integers: seven bits in each byte, the most significant first. The last byte has its
//! highest bit set, the stop bit.
//!
//! `state/stop_bit.rs`, `state/bytes.rs` and `state/bits.rs` call the safe functions, which work on
//! `Input` and `Output`. Direct functions call those in [`Functions`] for integers of more than one
//! byte; they are chosen for the processor once.

use super::{
    super::{FaultKind, Input, Output, Status},
    Policy,
};

/// More bits than any integer of FAST has, nullable integers and differences included.
const MAX_BITS: u32 = 70;

/// Reads an unsigned integer.
#[inline]
pub(super) fn unsigned(input: &mut Input<'_>, policy: Policy) -> Result<u128, Status> {
    match input.rest().first() {
        Some(byte) if byte & 0x80 != 0 => {
            input.seek(input.position() + 1);
            Ok(u128::from(byte & 0x7F))
        }
        _ => longer(input, policy, false).map(|value| value as u128),
    }
}

/// Reads a signed integer.
#[inline]
pub(super) fn signed(input: &mut Input<'_>, policy: Policy) -> Result<i128, Status> {
    match input.rest().first() {
        Some(byte) if byte & 0x80 != 0 => {
            input.seek(input.position() + 1);
            Ok(i128::from((*byte as i8) << 1 >> 1))
        }
        _ => longer(input, policy, true),
    }
}

fn longer(input: &mut Input<'_>, policy: Policy, signed: bool) -> Result<i128, Status> {
    let rest = input.rest();
    let Some(last) = rest.iter().position(|byte| byte & 0x80 != 0) else {
        // An integer without an end is reported as too large, if enough bytes follow, rather than
        // as truncated.
        return Err(match rest.len() > 10 {
            true => input.fail(FaultKind::IntegerRange, 0, 0),
            false => input.fail(FaultKind::Truncated, rest.len() as u64 + 1, rest.len() as u64),
        });
    };
    let bytes = &rest[..=last];
    let negative = signed && bytes[0] & 0x40 != 0;
    let filler = if negative { 0x7F } else { 0 };
    // A first byte that only repeats the sign of the second is redundant.
    let redundant = bytes[0] == filler && (!signed || (bytes[1] & 0x40 != 0) == negative);
    if redundant {
        input.deviate(FaultKind::OverlongInteger, policy, bytes.len() as u64)?;
    }
    let mut value = if negative { -1i128 } else { 0 };
    for byte in bytes {
        value = value << 7 | i128::from(byte & 0x7F);
        if value >> MAX_BITS != 0 && value >> MAX_BITS != -1 {
            return Err(input.fail(FaultKind::IntegerRange, 0, value as u64));
        }
    }
    input.seek(input.position() + bytes.len());
    Ok(value)
}

/// Writes an unsigned integer.
#[inline]
pub(super) fn put_unsigned(output: &mut Output<'_>, value: u128) -> Status {
    if value < 0x80 {
        return output.put_word(value as u64 | 0x80, 1);
    }
    put_bytes(output, value, (128 - value.leading_zeros()).div_ceil(7))
}

/// Writes a signed integer.
#[inline]
pub(super) fn put_signed(output: &mut Output<'_>, value: i128) -> Status {
    if (-64..64).contains(&value) {
        return output.put_word((value as u64 & 0x7F) | 0x80, 1);
    }
    let magnitude = (value ^ (value >> 127)) as u128;
    // One bit more, for the sign.
    put_bytes(output, value as u128, (129 - magnitude.leading_zeros()).div_ceil(7))
}

/// Defines the functions that machine code calls, compiled with the given instructions.
#[cfg(feature = "jit")]
macro_rules! machine_functions {
    ($gather:path, $spread:path, $(#[$attribute:meta])*) => {
        /// Reads an unsigned integer of two to ten bytes at `at`, in a message that ends at `end`,
        /// for machine code. Returns its end, or null if it is longer, overlong, truncated, or too
        /// large.
        $(#[$attribute])*
                pub(crate) unsafe extern "C" fn read_unsigned(at: *const u8, end: *const u8, value: *mut u64) -> *const u8 {
            // SAFETY: machine code passes both ends of the rest of the message, which has at least
            // one byte, and `value`, a writable word.
            unsafe {
                let Some((word, stop)) = up_to_eight(at, end) else { return by_bytes(at, end, false, value) };
                *value = $gather(word.swap_bytes().wrapping_shr(!stop));
                if word as u8 == 0 { core::ptr::null() } else { at.add(stop as usize / 8 + 1) }
            }
        }

        /// The same for a signed integer.
        $(#[$attribute])*
                pub(crate) unsafe extern "C" fn read_signed(at: *const u8, end: *const u8, value: *mut u64) -> *const u8 {
            // SAFETY: machine code passes both ends of the rest of the message, which has at least
            // one byte, and `value`, a writable word.
            unsafe {
                let Some((word, stop)) = up_to_eight(at, end) else { return by_bytes(at, end, true, value) };
                let (groups, last) = ($gather(word.swap_bytes().wrapping_shr(!stop)), stop / 8);
                let unused = 57 - 7 * last;
                *value = ((groups << unused) as i64 >> unused) as u64;
                if is_overlong(word) { core::ptr::null() } else { at.add(last as usize + 1) }
            }
        }

        /// Writes an unsigned integer, for machine code. Returns its end, at most ten bytes behind
        /// `at`.
        $(#[$attribute])*
                pub(crate) unsafe extern "C" fn write_unsigned(at: *mut u8, value: u64) -> *mut u8 {
            let count = bytes_for(64 - value.leading_zeros()).max(1);
            // SAFETY: machine code has reserved ten bytes at `at`, which any unsigned integer fits.
            unsafe { write_groups(at, value, (value >> 56, value >> 63), count) }
        }

        /// The same for a signed integer.
        $(#[$attribute])*
                pub(crate) unsafe extern "C" fn write_signed(at: *mut u8, value: u64) -> *mut u8 {
            let sign = (value as i64 >> 63) as u64;
            let count = bytes_for(65 - (value ^ sign).leading_zeros());
            // SAFETY: machine code has reserved ten bytes at `at`, which any signed integer fits.
            unsafe { write_groups(at, value, ((value as i64 >> 56) as u64, sign), count) }
        }

        /// Writes groups of seven bits: the ninth and the tenth from the right are given.
        ///
        /// # Safety
        /// Ten bytes are writable at `at`, and `count` is at most ten.
        #[inline]
        $(#[$attribute])*
        unsafe fn write_groups(at: *mut u8, value: u64, (ninth, tenth): (u64, u64), count: u32) -> *mut u8 {
            let groups = $spread(value) | 0x80;
            // SAFETY: ten bytes are writable by the contract. Up to eight bytes are written as a
            // word at `at`; the last eight of nine or ten bytes end at `at + count`.
            unsafe {
                if count <= 8 {
                    at.cast::<[u8; 8]>().write((groups << (64 - 8 * count)).to_be_bytes());
                } else {
                    *at = tenth as u8 & 0x7F;
                    *at.add(count as usize - 9) = ninth as u8 & 0x7F;
                    at.add(count as usize - 8).cast::<[u8; 8]>().write(groups.to_be_bytes());
                }
                at.add(count as usize)
            }
        }
    };
}

/// The eight bytes at `at`, and the index of the stop bit of the integer there. None if the integer
/// is longer, or if fewer bytes are left.
///
/// # Safety
/// The bytes from `at` to `end` are readable.
#[cfg(feature = "jit")]
#[inline]
unsafe fn up_to_eight(at: *const u8, end: *const u8) -> Option<(u64, u32)> {
    // SAFETY: both are ends of one range by the contract. Eight bytes are read if eight are left.
    unsafe {
        if end.offset_from(at) < 8 {
            return None;
        }
        let word = u64::from_le_bytes(at.cast::<[u8; 8]>().read());
        let stops = word & 0x8080_8080_8080_8080;
        (stops != 0).then(|| (word, stops.trailing_zeros()))
    }
}

/// True if the first byte of a signed integer, which is lowest in `word`, only repeats the sign of
/// the second.
#[cfg(feature = "jit")]
#[inline]
fn is_overlong(word: u64) -> bool {
    let is_sign = (word as u8).wrapping_add(1) & 0x7E == 0;
    is_sign && (word ^ word >> 8) & 0x40 == 0
}

/// Reads an integer of two to ten bytes as [`Functions`] do, byte by byte.
///
/// # Safety
/// The bytes from `at` to `end` are readable, and `value` is writable.
#[cfg(feature = "jit")]
unsafe fn by_bytes(at: *const u8, end: *const u8, is_signed: bool, value: *mut u64) -> *const u8 {
    // SAFETY: only bytes in front of `end` are read.
    unsafe {
        let (mut groups, mut last) = (0, at);
        loop {
            if last == end || last.offset_from(at) == 10 {
                return core::ptr::null();
            }
            groups = groups << 7 | u64::from(*last & 0x7F);
            if *last & 0x80 != 0 {
                break;
            }
            last = last.add(1);
        }
        let (first, second, last) = (*at, *at.add(1), last.offset_from(at) as usize);
        let unused = 57usize.saturating_sub(7 * last);
        let is_refused = match is_signed {
            false => first == 0 || last == 9 && first > 1,
            true => {
                is_overlong(u64::from_le_bytes([first, second, 0, 0, 0, 0, 0, 0]))
                    || last == 9 && !matches!(first, 0 | 0x7F)
            }
        };
        *value = if is_signed { ((groups << unused) as i64 >> unused) as u64 } else { groups };
        if is_refused { core::ptr::null() } else { at.add(last + 1) }
    }
}

/// The number of bytes for this many bits, at most 71.
#[cfg(feature = "jit")]
#[inline]
fn bytes_for(bits: u32) -> u32 {
    // A division by seven.
    ((bits + 6) * 37) >> 8
}

/// The functions for any machine.
#[cfg(feature = "jit")]
pub(crate) mod plain {
    use super::{by_bytes, bytes_for, gather, is_overlong, spread, up_to_eight};

    machine_functions!(gather, spread,);
}

/// The functions with the BMI2 instructions that gather and spread bits.
#[cfg(all(feature = "jit", target_arch = "x86_64"))]
pub(crate) mod bmi2 {
    use core::arch::x86_64::{_pdep_u64, _pext_u64};

    use super::{by_bytes, bytes_for, is_overlong, up_to_eight};

    const GROUPS: u64 = 0x7F7F_7F7F_7F7F_7F7F;

    #[inline]
    #[target_feature(enable = "bmi2")]
    fn gather(bytes: u64) -> u64 {
        _pext_u64(bytes, GROUPS)
    }

    #[inline]
    #[target_feature(enable = "bmi2")]
    fn spread(value: u64) -> u64 {
        _pdep_u64(value, GROUPS)
    }

    machine_functions!(gather, spread, #[target_feature(enable = "bmi1,bmi2,lzcnt")]);
}

/// Addresses of the functions for this machine.
#[cfg(feature = "jit")]
pub(crate) struct Functions {
    pub read_unsigned: *const u8,
    pub read_signed: *const u8,
    pub write_unsigned: *const u8,
    pub write_signed: *const u8,
}

#[cfg(feature = "jit")]
impl Functions {
    pub(crate) fn of_machine() -> Functions {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("bmi1") && has!("bmi2") && has!("lzcnt") {
                return Functions {
                    read_unsigned: bmi2::read_unsigned as *const u8,
                    read_signed: bmi2::read_signed as *const u8,
                    write_unsigned: bmi2::write_unsigned as *const u8,
                    write_signed: bmi2::write_signed as *const u8,
                };
            }
        }
        Functions {
            read_unsigned: plain::read_unsigned as *const u8,
            read_signed: plain::read_signed as *const u8,
            write_unsigned: plain::write_unsigned as *const u8,
            write_signed: plain::write_signed as *const u8,
        }
    }
}

/// Joins the seven low bits of each byte.
#[inline]
pub(crate) fn gather(bytes: u64) -> u64 {
    let x = bytes & 0x7F7F_7F7F_7F7F_7F7F;
    let x = (x & 0x007F_007F_007F_007F) | (x & 0x7F00_7F00_7F00_7F00) >> 1;
    let x = (x & 0x0000_3FFF_0000_3FFF) | (x & 0x3FFF_0000_3FFF_0000) >> 2;
    (x & 0x0FFF_FFFF) | (x & 0x0FFF_FFFF_0000_0000) >> 4
}

fn put_bytes(output: &mut Output<'_>, value: u128, count: u32) -> Status {
    if count <= 8 {
        let spread = spread(value as u64) | 0x80;
        return output.put_word((spread << (64 - 8 * count)).swap_bytes(), count as usize);
    }
    let mut bytes = [0; 19];
    let count = (count as usize).min(19);
    for (i, byte) in bytes[..count].iter_mut().rev().enumerate() {
        *byte = (value >> (7 * i)) as u8 & 0x7F;
    }
    bytes[count - 1] |= 0x80;
    output.put(&bytes[..count])
}

/// The low 56 bits as eight groups of seven.
#[inline]
pub(crate) fn spread(value: u64) -> u64 {
    let x = (value & 0x0FFF_FFFF) | (value & 0x00FF_FFFF_F000_0000) << 4;
    let x = (x & 0x0000_3FFF_0000_3FFF) | (x & 0x0FFF_C000_0FFF_C000) << 2;
    (x & 0x007F_007F_007F_007F) | (x & 0x3F80_3F80_3F80_3F80) << 1
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;
    use crate::program::Limits;

    fn written(write: impl Fn(&mut Output<'_>) -> Status) -> Vec<u8> {
        let (mut bytes, limits) = (Vec::new(), Limits::default());
        let mut output = Output::new(&mut bytes, &limits);
        let status = write(&mut output);
        assert_eq!(output.finish(status), Status::Ok);
        bytes
    }

    /// The specification's examples (10.6.1.1 and 10.6.1.2); its hex column for -8193 has a typing
    /// error.
    #[test]
    fn signed_integers_keep_their_sign() {
        let cases: [(i128, &[u8]); 8] = [
            (63, &[0xBF]),
            (64, &[0x00, 0xC0]),
            (-64, &[0xC0]),
            (-65, &[0x7F, 0xBF]),
            (942_755, &[0x39, 0x45, 0xA3]),
            (-942_755, &[0x46, 0x3A, 0xDD]),
            (-7_942_755, &[0x7C, 0x1B, 0x1B, 0x9D]),
            (-8193, &[0x7F, 0x3F, 0xFF]),
        ];
        for (value, bytes) in cases {
            assert_eq!(written(|output| put_signed(output, value)), bytes, "{value}");
            let limits = Limits::default();
            assert_eq!(signed(&mut Input::new(bytes, &limits), Policy::Reject), Ok(value));
        }
    }

    #[test]
    fn all_widths_come_back() {
        let limits = Limits::default();
        for shift in 0..66 {
            for value in [(1u128 << shift) - 1, 1 << shift, (1 << shift) + 1] {
                let bytes = written(|output| put_unsigned(output, value));
                assert_eq!(unsigned(&mut Input::new(&bytes, &limits), Policy::Reject), Ok(value));
                for value in [value as i128, -(value as i128)] {
                    let bytes = written(|output| put_signed(output, value));
                    assert_eq!(signed(&mut Input::new(&bytes, &limits), Policy::Reject), Ok(value), "{bytes:x?}");
                }
            }
        }
    }

    #[cfg(feature = "jit")]
    #[test]
    fn machine_codes_functions_do_the_same() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1, !(1u64 << shift), !0 - (1 << shift)] {
                use plain::{read_signed, read_unsigned, write_signed, write_unsigned};
                type Write = unsafe extern "C" fn(*mut u8, u64) -> *mut u8;
                type Read = unsafe extern "C" fn(*const u8, *const u8, *mut u64) -> *const u8;
                let both = [(write_unsigned as Write, read_unsigned as Read), (write_signed, read_signed)];
                for (is_signed, (write, read)) in [false, true].into_iter().zip(both) {
                    let mut bytes = [0xFF; 18];
                    let start = bytes.as_mut_ptr();
                    // SAFETY: the buffer at `start` has more than the ten bytes that `write` may
                    // write.
                    let count = unsafe { write(start, value).offset_from(start) } as usize;
                    let expected = written(|output| match is_signed {
                        true => put_signed(output, (value as i64).into()),
                        false => put_unsigned(output, value.into()),
                    });
                    assert_eq!(bytes[..count], expected, "{value:x}");
                    // Integers of one byte are handled by the caller.
                    for end in [18, 11, count, count - 1].into_iter().filter(|end| count > 1 && *end > 0) {
                        let (mut back, bytes) = (0, &bytes[..end]);
                        // SAFETY: the two addresses are the ends of a readable range of at least
                        // one byte, and `back` is a local word.
                        let behind = unsafe { read(bytes.as_ptr(), bytes.as_ptr_range().end, &mut back) };
                        match bytes.get(count..) {
                            Some(rest) => assert_eq!((behind, back), (rest.as_ptr(), value), "{bytes:x?}"),
                            None => assert!(behind.is_null(), "{bytes:x?}"),
                        }
                    }
                }
            }
        }
    }

    #[cfg(feature = "jit")]
    #[test]
    fn machine_codes_functions_refuse_what_is_too_large() {
        use plain::{read_signed, read_unsigned};
        let read = |bytes: &[u8], is_signed: bool| {
            let (mut back, ends) = (0, bytes.as_ptr_range());
            // SAFETY: the two addresses are the ends of a readable range of at least one byte, and
            // `back` is a local word.
            unsafe {
                match is_signed {
                    false => !read_unsigned(ends.start, ends.end, &mut back).is_null(),
                    true => !read_signed(ends.start, ends.end, &mut back).is_null(),
                }
            }
        };
        let long = |first: u8, filler: u8| {
            [first, filler, filler, filler, filler, filler, filler, filler, filler, filler | 0x80]
        };
        assert!(read(&long(1, 0x7F), false) && !read(&long(2, 0), false) && !read(&long(0, 0x7F), false));
        assert!(read(&long(0, 0x7F), true) && !read(&long(1, 0), true) && !read(&long(0, 0x3F), true));
        assert!(read(&long(0x7F, 0), true) && !read(&long(0x7E, 0), true) && !read(&long(0x7F, 0x7F), true));
        assert!(!read(&[1; 11], false) && !read(&[1; 11], true));
    }

    #[test]
    fn what_is_no_integer_is_refused() {
        let limits = Limits::default();
        let kind = |bytes: &[u8], is_signed: bool| {
            let mut input = Input::new(bytes, &limits);
            let failed = if is_signed {
                signed(&mut input, Policy::Reject).is_err()
            } else {
                unsigned(&mut input, Policy::Reject).is_err()
            };
            failed.then(|| input.fault().unwrap().kind)
        };
        assert_eq!(kind(&[], false), Some(FaultKind::Truncated));
        assert_eq!(kind(&[1, 2, 3], true), Some(FaultKind::Truncated));
        assert_eq!(kind(&[1; 20], false), Some(FaultKind::IntegerRange));
        assert_eq!(kind(&[0x00, 0x81], false), Some(FaultKind::OverlongInteger));
        assert_eq!(kind(&[0x00, 0x81], true), Some(FaultKind::OverlongInteger));
        assert_eq!(kind(&[0x7F, 0xC1], true), Some(FaultKind::OverlongInteger));
        assert_eq!(kind(&[0x00, 0xC1], true), None);
        let mut long = vec![0x3F; 11];
        long.push(0xFF);
        assert_eq!(kind(&long, true), Some(FaultKind::IntegerRange));
        let mut input = Input::new(&[0x00, 0x00, 0x81], &limits);
        assert_eq!(unsigned(&mut input, Policy::Ignore), Ok(1));
    }
}
