//! Kernels for scalars, texts, keys and heads: the tables for both directions, and the functions
//! that write. The dialects of this folder put them into programs. The functions touch the output
//! only.

use super::{Format, get};
use crate::{
    layout::Scalar,
    program::{
        FaultKind, Output, ScalarKernel, Status, SymbolKernel, SymbolTable, TextKernel,
        kernel::{InlineKernel, Room},
    },
};

/// The kernels for values of format `F`, for both directions.
pub(super) struct Kernels<F>(core::marker::PhantomData<F>);

impl<F: Format> Kernels<F> {
    pub const BOOLEAN: &'static ScalarKernel =
        &ScalarKernel::new("boolean", Scalar::Bool, get::boolean::<F>, put_boolean::<F>);
    /// A signed integer of at most 64 bits. The program checks the range of the type.
    pub const SIGNED: &'static ScalarKernel =
        &ScalarKernel::new("signed", Scalar::I64, get::signed::<F>, put_signed::<F>);
    pub const UNSIGNED: &'static ScalarKernel =
        &ScalarKernel::new("unsigned", Scalar::U64, get::unsigned::<F>, put_unsigned::<F>);
    /// [`Self::SIGNED`] in a form that machine code writes inline.
    pub const INLINE_SIGNED: &'static InlineKernel =
        &InlineKernel { exact: true, ..InlineKernel::new("signed", Scalar::I64, inline_signed::<F>, None) };
    pub const INLINE_UNSIGNED: &'static InlineKernel =
        &InlineKernel { exact: true, ..InlineKernel::new("unsigned", Scalar::U64, inline_unsigned::<F>, None) };
    pub const SINGLE: &'static ScalarKernel =
        &ScalarKernel::new("single", Scalar::F32, get::single::<F>, put_single::<F>);
    pub const DOUBLE: &'static ScalarKernel =
        &ScalarKernel::new("double", Scalar::F64, get::double::<F>, put_double::<F>);
    pub const CHARACTER: &'static ScalarKernel =
        &ScalarKernel::new("character", Scalar::U16, get::character::<F>, put_character::<F>);
    /// An enum literal's name. Its number is accepted, too.
    pub const LITERAL: &'static SymbolKernel =
        &SymbolKernel { name: "literal", scalar: Scalar::I64, get: get::literal::<F>, put: put_literal::<F> };
    pub const TEXT: &'static TextKernel =
        &TextKernel { name: "text", get: get::text::<F>, put: F::put_text, short: F::SHORT_TEXT };
    /// Writes the head of octets. In the other direction, reads the number that selects a union's
    /// case in a pair.
    pub const BYTES: &'static ScalarKernel =
        &ScalarKernel::new("bytes", Scalar::U64, get::unsigned::<F>, put_bytes::<F>);
    /// The head of an array: the number of elements.
    pub const ARRAY: &'static ScalarKernel = &ScalarKernel::new("array", Scalar::U64, get::array::<F>, put_array::<F>);
    /// The head of a map: the number of entries.
    pub const MAP: &'static ScalarKernel = &ScalarKernel::new("map", Scalar::U64, get::map::<F>, put_map::<F>);
}

extern "C" fn put_boolean<F: Format>(output: &mut Output<'_>, value: u64) -> Status {
    output.put_word(u64::from(if value != 0 { F::TYPE_BYTES.yes } else { F::TYPE_BYTES.no }), 1)
}

extern "C" fn put_signed<F: Format>(output: &mut Output<'_>, value: u64) -> Status {
    F::put_signed(output, value as i64)
}

extern "C" fn put_unsigned<F: Format>(output: &mut Output<'_>, value: u64) -> Status {
    F::put_unsigned(output, value)
}

extern "C" fn inline_signed<F: Format>(room: &mut Room, _: u64, value: u64) -> usize {
    F::signed(room, value as i64)
}

extern "C" fn inline_unsigned<F: Format>(room: &mut Room, _: u64, value: u64) -> usize {
    F::unsigned(room, value)
}

extern "C" fn put_single<F: Format>(output: &mut Output<'_>, bits: u64) -> Status {
    F::put_shortest(output, get::widen(f32::from_bits(bits as u32)))
}

extern "C" fn put_double<F: Format>(output: &mut Output<'_>, bits: u64) -> Status {
    F::put_shortest(output, f64::from_bits(bits))
}

extern "C" fn put_character<F: Format>(output: &mut Output<'_>, code: u64) -> Status {
    match char::from_u32(code as u32) {
        Some(char) => F::put_text(output, char.encode_utf8(&mut [0; 4])),
        // Half of a surrogate pair is not a character.
        None => F::put_unsigned(output, code),
    }
}

extern "C" fn put_literal<F: Format>(output: &mut Output<'_>, table: &SymbolTable, value: u64) -> Status {
    match table.name(value as i64) {
        Some(name) => F::put_text(output, name),
        None => output.fail(FaultKind::UnknownLiteral, 0, value),
    }
}

extern "C" fn put_bytes<F: Format>(output: &mut Output<'_>, len: u64) -> Status {
    F::put_bytes(output, len)
}

extern "C" fn put_array<F: Format>(output: &mut Output<'_>, len: u64) -> Status {
    F::put_array(output, len)
}

extern "C" fn put_map<F: Format>(output: &mut Output<'_>, len: u64) -> Status {
    F::put_map(output, len)
}
