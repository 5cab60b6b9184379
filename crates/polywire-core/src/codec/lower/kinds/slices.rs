//! Kernels that read and write all elements of a sequence or array of plain numbers at once. The
//! dialects of this folder put them into programs. They touch the input, the output and the
//! elements.

use super::{
    Extent, Format, Head, OPEN,
    get::{double_of, or_nan, pass_pieces, signed_of, single_of, take, unsigned_of, widen, wrong_kind},
};
use crate::{
    codec::lower::keys::fail_at,
    layout::Scalar,
    program::{
        Elements, FaultKind, Input, Output, SliceKernel, Status,
        kernels::scalar::{Plain, of_number},
    },
};

/// The kernel for elements of a scalar. `None` for booleans and other scalars that are not plain
/// numbers. `shortest` asks for the shortest form of floating-point numbers.
pub(super) fn kernel<F: Format>(scalar: Scalar, shortest: bool) -> Option<&'static SliceKernel> {
    match scalar {
        Scalar::F32 if shortest => Some(Slices::<F, f32>::SHORTEST),
        Scalar::F64 if shortest => Some(Slices::<F, f64>::SHORTEST),
        _ => of_number!(scalar, T => Slices::<F, T>::KERNEL),
    }
}

/// The kernel for octets, in formats with a kind of their own for octets.
pub(super) fn octets<F: Format>() -> &'static SliceKernel {
    Slices::<F, u8>::OCTETS
}

struct Slices<F, T>(core::marker::PhantomData<(F, T)>);

impl<F: Format, T: Number> Slices<F, T> {
    const KERNEL: &'static SliceKernel =
        &SliceKernel { name: "numbers", scalar: T::SCALAR, get: get::<F, T>, put: put::<F, T, false> };
    const SHORTEST: &'static SliceKernel = &SliceKernel { put: put::<F, T, true>, ..*Self::KERNEL };
    const OCTETS: &'static SliceKernel = &SliceKernel { name: "octets", put: put_octets::<F>, ..*Self::KERNEL };
}

/// A number as a value of these formats.
trait Number: Plain {
    fn of_head(head: Head) -> Result<Self, FaultKind>;
    fn put<F: Format>(self, output: &mut Output<'_>, shortest: bool) -> Status;
}

macro_rules! numbers {
    ($($number:ident $of_head:expr, $put:expr;)*) => {$(
        impl Number for $number {
            #[inline(always)]
            fn of_head(head: Head) -> Result<$number, FaultKind> {
                $of_head(head)
            }

            #[inline(always)]
            fn put<F: Format>(self, output: &mut Output<'_>, shortest: bool) -> Status {
                let put: fn($number, &mut Output<'_>, bool) -> Status = $put;
                put(self, output, shortest)
            }
        }
    )*};
}

fn narrow<T, U: TryInto<T>>(wide: U) -> Result<T, FaultKind> {
    wide.try_into().map_err(|_| FaultKind::OutOfRange)
}

numbers! {
    u8 |head| unsigned_of(head).and_then(narrow), |n, output, _| F::put_unsigned(output, n.into());
    u16 |head| unsigned_of(head).and_then(narrow), |n, output, _| F::put_unsigned(output, n.into());
    u32 |head| unsigned_of(head).and_then(narrow), |n, output, _| F::put_unsigned(output, n.into());
    u64 unsigned_of, |n, output, _| F::put_unsigned(output, n);
    i8 |head| signed_of(head).and_then(narrow), |n, output, _| F::put_signed(output, n.into());
    i16 |head| signed_of(head).and_then(narrow), |n, output, _| F::put_signed(output, n.into());
    i32 |head| signed_of(head).and_then(narrow), |n, output, _| F::put_signed(output, n.into());
    i64 signed_of, |n, output, _| F::put_signed(output, n);
    f32 single_of, |n, output, shortest| match shortest {
        true => F::put_shortest(output, widen(n)),
        false => output.put_word(u64::from(n.to_bits().swap_bytes()) << 8 | u64::from(F::TYPE_BYTES.single), 5),
    };
    f64 double_of, |n, output, shortest| match shortest {
        true => F::put_shortest(output, n),
        false => {
            let mut bytes = [F::TYPE_BYTES.double; 9];
            bytes[1..].copy_from_slice(&n.to_be_bytes());
            output.put(&bytes)
        }
    };
}

fn get<F: Format, T: Number>(input: &mut Input<'_>, elements: &mut Elements<'_>) -> Status {
    let start = input.position();
    let read = match F::head(input) {
        Ok(Head::Array(extent)) if extent.count == OPEN => open_array::<F, T>(input, elements, extent.kind),
        Ok(Head::Array(extent)) => counted::<F, T>(input, elements, extent),
        Ok(Head::Bytes(OPEN)) if T::SCALAR == Scalar::U8 => pieces::<F>(input, elements),
        Ok(Head::Bytes(len)) if T::SCALAR == Scalar::U8 => take(input, len).and_then(|b| append(input, elements, b)),
        Ok(_) => Err(wrong_kind(input, start)),
        Err(failed) => Err(failed),
    };
    Status::of(read)
}

fn counted<F: Format, T: Number>(
    input: &mut Input<'_>,
    elements: &mut Elements<'_>,
    extent: Extent,
) -> Result<(), Status> {
    let left = input.remaining();
    let count = match usize::try_from(extent.count) {
        Ok(count) if count <= left => count,
        _ => return Err(input.fail(FaultKind::BadLength, left as u64, extent.count)),
    };
    let room = elements.spare(input, count)?;
    let room = room.get_mut(..count * T::SIZE).unwrap_or_default();
    if F::TYPED && F::plain(input, extent.kind, T::SCALAR, room)? {
        elements.take(count);
        return Ok(());
    }
    let mut left = room;
    while !left.is_empty() {
        if extent.kind == 0 {
            left = same_size::<F, T>(input, left);
        }
        let Some((element, others)) = left.split_at_mut_checked(T::SIZE) else { break };
        input.tag = extent.kind;
        number::<F, T>(input)?.to_bytes(element);
        left = others;
    }
    input.tag = 0;
    elements.take(count);
    Ok(())
}

/// Reads floating-point numbers up to the first element that has another type or size. Returns the
/// room of that element and those behind it.
#[inline(always)]
fn same_size<'e, F: Format, T: Number>(input: &mut Input<'_>, room: &'e mut [u8]) -> &'e mut [u8] {
    let type_byte = match T::SCALAR {
        Scalar::F32 => F::TYPE_BYTES.single,
        Scalar::F64 => F::TYPE_BYTES.double,
        _ => return room,
    };
    let size = 1 + T::SIZE;
    let mut count = 0;
    for (element, bytes) in room.chunks_exact_mut(T::SIZE).zip(input.rest().chunks_exact(size)) {
        if bytes[0] != type_byte {
            break;
        }
        element.copy_from_slice(&bytes[1..]);
        if cfg!(target_endian = "little") {
            element.reverse();
        }
        count += 1;
    }
    input.seek(input.position() + count * size);
    &mut room[count * T::SIZE..]
}

#[inline(always)]
fn number<F: Format, T: Number>(input: &mut Input<'_>) -> Result<T, Status> {
    let start = input.position();
    let head = F::head(input)?;
    let head = if T::FLOAT { or_nan::<F>(head) } else { head };
    T::of_head(head).map_err(|kind| fail_at(input, start, kind))
}

fn open_array<F: Format, T: Number>(
    input: &mut Input<'_>,
    elements: &mut Elements<'_>,
    kind: u32,
) -> Result<(), Status> {
    while !F::ends(input, false)? {
        input.tag = kind;
        let value = number::<F, T>(input)?;
        value.to_bytes(elements.spare(input, 1)?.get_mut(..T::SIZE).unwrap_or_default());
        elements.take(1);
    }
    Ok(())
}

fn append(input: &mut Input<'_>, elements: &mut Elements<'_>, octets: &[u8]) -> Result<(), Status> {
    if let Some(room) = elements.spare(input, octets.len())?.get_mut(..octets.len()) {
        room.copy_from_slice(octets);
    }
    elements.take(octets.len());
    Ok(())
}

fn pieces<F: Format>(input: &mut Input<'_>, elements: &mut Elements<'_>) -> Result<(), Status> {
    let start = input.position();
    let len = pass_pieces::<F>(input, false)?;
    input.seek(start);
    elements.spare(input, len)?;
    while let Some(piece) = F::piece(input, false)? {
        append(input, elements, piece)?;
    }
    Ok(())
}

fn put<F: Format, T: Number, const SHORTEST: bool>(output: &mut Output<'_>, elements: &[u8]) -> Status {
    if let Some(status) = F::put_plain(output, T::SCALAR, elements) {
        return status;
    }
    F::put_array(output, (elements.len() / T::SIZE) as u64).then(|| {
        let put = |element| T::of_bytes(element).put::<F>(output, SHORTEST).ok();
        Status::of(elements.chunks_exact(T::SIZE).try_for_each(put))
    })
}

fn put_octets<F: Format>(output: &mut Output<'_>, octets: &[u8]) -> Status {
    F::put_bytes(output, octets.len() as u64).then(|| output.put(octets))
}
