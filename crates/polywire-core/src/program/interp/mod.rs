//! The interpreter: the reference semantics of programs, and the back end where machine code cannot
//! be made. `exec.rs` calls it for whole messages, and machine code for single operations (`op`).
//! It touches the input or output, the value and the state.
//!
//! It relies on what the verifier has checked (places, types, reservations) and checks everything
//! that depends on the bytes.

use super::{Check, FaultKind, Order, Status};
use crate::layout::{
    BoxedNode, EnumNode, Kind, Layout, MapNode, NodeId, OptionalNode, Scalar, SequenceNode, UnionNode,
};

pub(crate) mod bytes;
mod decode;
mod encode;
/// Single operations, for machine code that leaves them to the interpreter.
#[cfg(feature = "jit")]
pub(crate) mod op;
mod slots;
pub(crate) mod texts;

#[cfg(feature = "jit")]
pub(crate) use decode::Run as DecodeRun;
pub(crate) use decode::decode;
pub(crate) use encode::encode;

/// Words for the `seen` set of a `Members` operation that need no allocation.
const INLINE_SEEN: usize = 16;

/// Reads a scalar in the host's order.
///
/// # Safety
/// `at` is readable for the scalar's size.
unsafe fn load(at: *const u8, scalar: Scalar) -> i128 {
    // SAFETY: `at` is readable for the scalar's size by the contract, and unaligned reads need no
    // alignment.
    unsafe {
        match scalar {
            Scalar::Bool | Scalar::U8 => i128::from(*at),
            Scalar::I8 => i128::from(at.cast::<i8>().read()),
            Scalar::I16 => i128::from(at.cast::<i16>().read_unaligned()),
            Scalar::U16 => i128::from(at.cast::<u16>().read_unaligned()),
            Scalar::I32 => i128::from(at.cast::<i32>().read_unaligned()),
            Scalar::U32 | Scalar::F32 => i128::from(at.cast::<u32>().read_unaligned()),
            Scalar::I64 => i128::from(at.cast::<i64>().read_unaligned()),
            Scalar::U64 | Scalar::F64 => i128::from(at.cast::<u64>().read_unaligned()),
            Scalar::F128 => at.cast::<i128>().read_unaligned(),
        }
    }
}

/// Writes the low bytes of a scalar in the host's order.
///
/// # Safety
/// `at` is writable for the scalar's size.
unsafe fn store(at: *mut u8, scalar: Scalar, value: i128) {
    // SAFETY: `at` is writable for the scalar's size by the contract, exactly that many bytes are
    // written, and unaligned writes need no alignment.
    unsafe {
        match scalar.size() {
            1 => at.write(value as u8),
            2 => at.cast::<u16>().write_unaligned(value as u16),
            4 => at.cast::<u32>().write_unaligned(value as u32),
            8 => at.cast::<u64>().write_unaligned(value as u64),
            _ => at.cast::<i128>().write_unaligned(value),
        }
    }
}

/// A value as [`load`] gives it, with the bytes of the scalar reversed if `order` is not the
/// host's.
fn reorder(value: i128, scalar: Scalar, order: Order) -> i128 {
    if order == HOST {
        return value;
    }
    match (scalar.size(), scalar.is_signed()) {
        (1, _) => value,
        (2, true) => i128::from((value as i16).swap_bytes()),
        (2, false) => i128::from((value as u16).swap_bytes()),
        (4, true) => i128::from((value as i32).swap_bytes()),
        (4, false) => i128::from((value as u32).swap_bytes()),
        (8, true) => i128::from((value as i64).swap_bytes()),
        (8, false) => i128::from((value as u64).swap_bytes()),
        _ => value.swap_bytes(),
    }
}

/// The host's byte order.
pub(crate) const HOST: Order = if cfg!(target_endian = "little") { Order::Little } else { Order::Big };

/// Sign- or zero-extends the 64 bits of a kernel's word.
pub(crate) fn from_word(word: u64, scalar: Scalar) -> i128 {
    if scalar.is_signed() { i128::from(word as i64) } else { i128::from(word) }
}

/// A constant's bits as the accumulator holds them.
fn extend(bits: u128, scalar: Scalar) -> i128 {
    let shift = 128 - 8 * scalar.size() as u32;
    if scalar.is_signed() { (bits as i128) << shift >> shift } else { bits as i128 }
}

/// What `Convert` does: the value as the other scalar, if it fits.
pub(crate) fn convert(value: i128, from: Scalar, to: Scalar) -> Result<i128, FaultKind> {
    let float = |scalar| matches!(scalar, Scalar::F32 | Scalar::F64);
    match (from, to) {
        _ if from == to => Ok(value),
        (Scalar::F32, Scalar::F64) => Ok(i128::from(f64::from(f32::from_bits(value as u32)).to_bits())),
        (Scalar::F64, Scalar::F32) => {
            let wide = f64::from_bits(value as u64);
            let narrow = wide as f32;
            match narrow.is_infinite() && wide.is_finite() {
                true => Err(FaultKind::OutOfRange),
                false => Ok(i128::from(narrow.to_bits())),
            }
        }
        (_, Scalar::F32) if !float(from) => Ok(i128::from((value as f32).to_bits())),
        (_, Scalar::F64) if !float(from) => Ok(i128::from((value as f64).to_bits())),
        _ => match to.range() {
            Some((min, max)) if (min..=max).contains(&value) => Ok(value),
            _ => Err(FaultKind::OutOfRange),
        },
    }
}

/// What `Check` does: returns the value, or its replacement.
pub(crate) fn check(layout: &Layout, check: &Check, value: i128) -> Result<i128, FaultKind> {
    match check {
        Check::Bool if value == 0 || value == 1 => Ok(value),
        Check::Bool => Err(FaultKind::BadBool),
        Check::Enum { node, otherwise } => match (is_literal(enum_node(layout, *node), value), otherwise) {
            (true, _) => Ok(value),
            (false, Some(literal)) => Ok(i128::from(*literal)),
            (false, None) => Err(FaultKind::UnknownLiteral),
        },
        Check::Keep(bits) => Ok(value & i128::from(*bits)),
        Check::Within { min, max, .. } if (i128::from(*min)..=i128::from(*max)).contains(&value) => Ok(value),
        Check::Within { fault, .. } => Err(*fault),
        Check::Range { min, max } if (*min..=*max).contains(&value) => Ok(value),
        Check::Range { .. } => Err(FaultKind::OutOfRange),
        Check::OneOf(values) => match i64::try_from(value).is_ok_and(|v| values.binary_search(&v).is_ok()) {
            true => Ok(value),
            false => Err(FaultKind::UnknownLiteral),
        },
    }
}

pub(crate) fn is_literal(node: &EnumNode, value: i128) -> bool {
    i32::try_from(value).is_ok_and(|v| node.literals.binary_search(&v).is_ok())
}

macro_rules! nodes {
    ($($name:ident: $kind:ident($node:ty), $whole:literal;)*) => {$(
        fn $name(layout: &Layout, id: NodeId) -> &$node {
            match &layout.node(id).kind {
                Kind::$kind(node) => node,
                _ => unreachable!($whole),
            }
        }
    )*};
}

nodes! {
    boxed_node: Boxed(BoxedNode), "the verifier admits pointers only";
    enum_node: Enum(EnumNode), "the verifier admits enums only";
    map_node: Map(MapNode), "the verifier admits maps only";
    optional_node: Optional(OptionalNode), "the verifier admits optionals only";
    sequence_node: Sequence(SequenceNode), "the verifier admits sequences only";
    union_node: Union(UnionNode), "the verifier admits unions only";
}

/// The scalar in memory at a node that holds one.
fn memory_scalar(layout: &Layout, id: NodeId) -> Scalar {
    match &layout.node(id).kind {
        Kind::Scalar(scalar) => *scalar,
        Kind::Enum(node) => node.repr,
        _ => unreachable!("the verifier admits scalars only"),
    }
}

/// An error means that the fault is set.
type Done<T = ()> = Result<T, Status>;
