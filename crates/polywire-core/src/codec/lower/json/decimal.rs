//! Decimal numbers as JSON numbers: their lowering and kernels. The dialects `encode` and `decode`
//! of this folder call it. The kernels touch the input and the output. A structure of an exponent
//! and a mantissa keeps the number of decimal places: `99.50` is the mantissa 9950 with the
//! exponent -2.

use super::{Form, scalars::number_of_text, tokens};
use crate::{
    codec::lower::{DecodeWalk, EncodeWalk, Lowered, MemberIn, MemberOut},
    layout::Scalar,
    program::{FaultKind, Input, Output, ScalarKernel, Status, TestKernel, Wire, kernels::number},
    schema::Type,
};

/// A number with more decimal places than this is written with an exponent.
const MAX_PLACES: usize = 18;

/// Emits the writing of a decimal. The output keeps the exponent until the mantissa follows.
pub(super) fn write(walk: &mut EncodeWalk<'_>, members: &[MemberOut<'_>], form: Form) -> Lowered {
    let mantissa = if form == Form::Bare { &BARE_MANTISSA } else { &MANTISSA };
    for (out, kernel) in members.iter().zip([&EXPONENT, mantissa]) {
        walk.put(out.place, Wire::Kernel(kernel))?;
    }
    Ok(())
}

/// Emits the reading of a decimal from a number, and `object` for a message that has an object
/// instead.
pub(super) fn read(
    walk: &mut DecodeWalk<'_>,
    members: &[MemberIn<'_>],
    object: impl FnOnce(&mut DecodeWalk<'_>) -> Lowered,
) -> Lowered {
    let number = |walk: &mut DecodeWalk<'_>| {
        // The mantissa's kernel reads the whole number, and the input keeps the exponent until its
        // kernel runs.
        let parts = members.iter().rev().zip([(&MANTISSA, Type::Int64), (&EXPONENT, Type::Int32)]);
        parts.into_iter().try_for_each(|(member, (kernel, ty))| {
            walk.member_as(member, |walk, slot| walk.get(&ty, Wire::Kernel(kernel), slot))
        })
    };
    walk.choose(&IS_OBJECT, object, number)
}

static IS_OBJECT: TestKernel = TestKernel { name: "json decimal in parts", test: is_object };

extern "C" fn is_object(input: &mut Input<'_>, word: &mut u64) -> Status {
    *word = u64::from(tokens::peek(input) == Some(b'{'));
    Status::Ok
}

static EXPONENT: ScalarKernel = ScalarKernel::new("json decimal exponent", Scalar::I32, get_exponent, put_exponent);

static MANTISSA: ScalarKernel = ScalarKernel::new("json decimal", Scalar::I64, get_number, put_number::<false>);

/// Writes a point in front of an exponent, as YAML 1.1 requires.
static BARE_MANTISSA: ScalarKernel =
    ScalarKernel::new("json bare decimal", Scalar::I64, get_number, put_number::<true>);

extern "C" fn put_exponent(output: &mut Output<'_>, word: u64) -> Status {
    output.mark = word as usize;
    Status::Ok
}

extern "C" fn put_number<const POINT: bool>(output: &mut Output<'_>, word: u64) -> Status {
    let (mantissa, exponent) = (word as i64, output.mark as i32);
    match usize::try_from(exponent.unsigned_abs()) {
        Ok(places) if exponent <= 0 && places <= MAX_PLACES => put_places(output, mantissa, places),
        _ => put_scientific(output, mantissa, exponent, if POINT { b".e" } else { b"e" }),
    }
}

fn put_places(output: &mut Output<'_>, mantissa: i64, places: usize) -> Status {
    if places == 0 {
        return number::put_i64(output, mantissa);
    }
    // A sign, a zero, nineteen digits and a point fit.
    let (mut text, mut at, mut left) = ([b'0'; 24], 24, mantissa.unsigned_abs());
    for digit in 0.. {
        if left == 0 && digit > places {
            break;
        }
        if digit == places {
            at -= 1;
            text[at] = b'.';
        }
        at -= 1;
        text[at] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    if mantissa < 0 {
        at -= 1;
        text[at] = b'-';
    }
    output.put(text.get(at..).unwrap_or_default())
}

fn put_scientific(output: &mut Output<'_>, mantissa: i64, exponent: i32, mark: &[u8]) -> Status {
    let sign: &[u8] = if exponent < 0 { b"" } else { b"+" };
    let mantissa = number::put_i64(output, mantissa);
    let head = mantissa.then(|| output.put(mark)).then(|| output.put(sign));
    head.then(|| number::put_i64(output, exponent.into()))
}

extern "C" fn get_exponent(input: &mut Input<'_>, word: &mut u64) -> Status {
    *word = i64::from(input.tag as i32) as u64;
    Status::Ok
}

extern "C" fn get_number(input: &mut Input<'_>, word: &mut u64) -> Status {
    match parts(input) {
        Ok((mantissa, exponent)) => {
            *word = mantissa as u64;
            input.tag = exponent as u32;
            Status::Ok
        }
        Err(status) => status,
    }
}

/// Mantissa and exponent of a number, which may be quoted.
fn parts(input: &mut Input<'_>) -> Result<(i64, i32), Status> {
    let quoted = tokens::peek(input) == Some(b'"');
    let start = input.position();
    let number = if quoted {
        let text = tokens::string(input)?;
        let (mut buffer, mut room) = ([0; 64], [0; 512]);
        text.plain(&mut buffer).and_then(|text| number_of_text(text, &mut room)).map(|(number, _)| number)
    } else {
        Some(tokens::number(input)?.0)
    };
    let Some(number) = number else {
        input.seek(start);
        return Err(tokens::wrong_kind(input));
    };
    let digits = i128::from(number.digits);
    let mantissa = i64::try_from(if number.negative { -digits } else { digits }).ok().filter(|_| number.exact);
    match (mantissa, i32::try_from(number.exponent)) {
        (Some(mantissa), Ok(exponent)) => Ok((mantissa, exponent)),
        _ => {
            input.seek(start);
            Err(input.fail(FaultKind::OutOfRange, 64, 0))
        }
    }
}
