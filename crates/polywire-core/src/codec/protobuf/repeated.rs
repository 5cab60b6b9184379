//! Kernels that read and write all elements of a sequence or array of plain numbers at once.

use super::{
    delimiters::same_field,
    get::{open, unzigzag, varint},
    kinds::{FIXED32, FIXED64, Form, LENGTH, VARINT},
    put::{put_varint, zigzag},
};
use crate::{
    codec::lower::kinds::fixed,
    layout::Scalar,
    program::{
        Elements, FaultKind, Input, Output, SliceKernel, Status,
        kernels::scalar::{Plain, of_number},
    },
};

/// The kernel for packed elements of a scalar. `None` for scalars that are not plain numbers.
pub(super) fn kernel(scalar: Scalar) -> Option<&'static SliceKernel> {
    of_number!(scalar, T => Packed::<T>::KERNEL)
}

struct Packed<T>(core::marker::PhantomData<T>);

impl<T: Number> Packed<T> {
    const KERNEL: &'static SliceKernel =
        &SliceKernel { name: "packed", scalar: T::SCALAR, get: get::<T>, put: put::<T> };
}

/// A number as a varint.
trait Number: Plain {
    fn of_varint(word: u64) -> Option<Self>;
    fn varint(self) -> u64;
}

macro_rules! numbers {
    ($($number:ident $of_varint:expr, $varint:expr;)*) => {$(
        impl Number for $number {
            #[inline(always)]
            fn of_varint(word: u64) -> Option<$number> {
                let of: fn(u64) -> Option<$number> = $of_varint;
                of(word)
            }

            #[inline(always)]
            fn varint(self) -> u64 {
                let varint: fn($number) -> u64 = $varint;
                varint(self)
            }
        }
    )*};
}

numbers! {
    u8 |word| word.try_into().ok(), |n| n.into();
    u16 |word| word.try_into().ok(), |n| n.into();
    u32 |word| word.try_into().ok(), |n| n.into();
    u64 Some, |n| n;
    i8 |word| unzigzag(word).try_into().ok(), |n| zigzag(n.into());
    i16 |word| unzigzag(word).try_into().ok(), |n| zigzag(n.into());
    i32 |word| unzigzag(word).try_into().ok(), |n| zigzag(n.into());
    i64 |word| Some(unzigzag(word)), zigzag;
    f32 |word| u32::try_from(word).ok().map(f32::from_bits), |n| n.to_bits().into();
    f64 |word| Some(f64::from_bits(word)), f64::to_bits;
}

fn wire_type<T: Number>() -> u32 {
    Form::of_scalar(T::SCALAR).wire_type()
}

/// Reads elements as long as no other field comes between, whether they are packed or not.
fn get<T: Number>(input: &mut Input<'_>, elements: &mut Elements<'_>) -> Status {
    Status::of(read::<T>(input, elements))
}

fn read<T: Number>(input: &mut Input<'_>, elements: &mut Elements<'_>) -> Result<(), Status> {
    loop {
        let field = input.tag;
        match field & 7 {
            LENGTH => {
                let outer = open(input)?;
                packed::<T>(input, elements)?;
                input.restore_end(outer);
            }
            other if other == wire_type::<T>() => one::<T>(input, elements)?,
            other => return Err(input.fail(FaultKind::WireType, wire_type::<T>().into(), other.into())),
        }
        if !same_field(input, field)? {
            return Ok(());
        }
    }
}

fn packed<T: Number>(input: &mut Input<'_>, elements: &mut Elements<'_>) -> Result<(), Status> {
    let (size, rest) = (T::SIZE, input.rest());
    if wire_type::<T>() != VARINT {
        let count = rest.len() / size;
        if count * size != rest.len() {
            return Err(input.fail(FaultKind::BadLength, (count * size) as u64, rest.len() as u64));
        }
        let room = elements.spare(input, count)?;
        copy(rest, room.get_mut(..rest.len()).unwrap_or_default(), size);
        elements.take(count);
        return input.take(rest.len()).map(|_| ());
    }
    // Each varint ends with a byte whose top bit is clear.
    let count = rest.iter().filter(|byte| **byte < 0x80).count();
    let room = elements.spare(input, count)?;
    for element in room.get_mut(..count * size).unwrap_or_default().chunks_exact_mut(size) {
        number::<T>(input)?.to_bytes(element);
    }
    elements.take(count);
    match input.remaining() {
        0 => Ok(()),
        left => Err(input.fail(FaultKind::Truncated, left as u64 + 1, left as u64)),
    }
}

/// Converts between little endian and the host's byte order.
fn copy(from: &[u8], to: &mut [u8], size: usize) {
    if cfg!(target_endian = "little") {
        to.copy_from_slice(from);
    } else {
        let pieces = from.chunks_exact(size).zip(to.chunks_exact_mut(size));
        pieces.for_each(|(from, to)| from.iter().rev().zip(to).for_each(|(from, to)| *to = *from));
    }
}

fn one<T: Number>(input: &mut Input<'_>, elements: &mut Elements<'_>) -> Result<(), Status> {
    let value = match wire_type::<T>() {
        FIXED32 => T::of_varint(u32::from_le_bytes(fixed(input)?).into()),
        FIXED64 => T::of_varint(u64::from_le_bytes(fixed(input)?)),
        _ => Some(number::<T>(input)?),
    };
    let room = elements.spare(input, 1)?.get_mut(..T::SIZE);
    if let (Some(value), Some(room)) = (value, room) {
        value.to_bytes(room);
    }
    elements.take(1);
    Ok(())
}

#[inline(always)]
fn number<T: Number>(input: &mut Input<'_>) -> Result<T, Status> {
    let start = input.position();
    let word = varint(input)?;
    match T::of_varint(word) {
        Some(number) => Ok(number),
        None => {
            input.seek(start);
            Err(input.fail(FaultKind::OutOfRange, 8 * T::SIZE as u64, word))
        }
    }
}

/// Writes length and elements. The tag was written before.
fn put<T: Number>(output: &mut Output<'_>, elements: &[u8]) -> Status {
    let size = T::SIZE;
    if wire_type::<T>() != VARINT {
        let put_all = |room: &mut [u8]| {
            copy(elements, room, size);
            elements.len()
        };
        return put_varint(output, elements.len() as u64).then(|| output.put_with(elements.len(), put_all));
    }
    let start = output.position();
    if output.put_word(0, 1) == Status::Failed {
        return Status::Failed;
    }
    for element in elements.chunks_exact(size) {
        if put_varint(output, T::of_bytes(element).varint()) == Status::Failed {
            return Status::Failed;
        }
    }
    super::put::close(output, start, 1)
}
