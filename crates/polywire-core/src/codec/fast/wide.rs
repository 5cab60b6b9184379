//! The kernel of `long double`: a byte vector of sixteen bytes, least significant first. `encode`
//! and `decode` put it into programs. It touches the input and the output.

use crate::{
    layout::Scalar,
    program::{FaultKind, Input, Output, ScalarKernel, Status, kernel::WideKernel},
};

/// The kernel for both directions.
pub(super) static WIDE: ScalarKernel = ScalarKernel {
    name: "fast.wide",
    scalar: Scalar::F128,
    get,
    put,
    wide: Some(WideKernel { get: get_wide, put: put_wide }),
    form: None,
};

/// The vector's length as a stop-bit integer.
const LENGTH: u8 = 16 | 0x80;

extern "C" fn get(input: &mut Input<'_>, _: &mut u64) -> Status {
    input.fail(FaultKind::WrongKind, 0, 0)
}

extern "C" fn put(output: &mut Output<'_>, _: u64) -> Status {
    output.fail(FaultKind::WrongKind, 0, 0)
}

fn get_wide(input: &mut Input<'_>) -> Result<u128, Status> {
    let length = input.take(1)?[0];
    if length != LENGTH {
        return Err(input.fail(FaultKind::BadLength, 16, u64::from(length & 0x7F)));
    }
    let bytes = input.take(16)?;
    Ok(bytes.iter().rev().fold(0, |word, byte| word << 8 | u128::from(*byte)))
}

fn put_wide(output: &mut Output<'_>, value: u128) -> Status {
    output.put(&[LENGTH]).then(|| output.put(&value.to_le_bytes()))
}
