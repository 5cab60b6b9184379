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
    pub const BOOLEAN: &'static ScalarKernel = &ScalarKernel {
        name: "boolean",
        scalar: Scalar::Bool,
        get: get::boolean::<F>,
        put: put_boolean::<F>,
        wide: None,
        form: None,
    };
    /// A signed integer of at most 64 bits. The program checks the range of the type.
    pub const SIGNED: &'static ScalarKernel = &ScalarKernel {
        name: "signed",
        scalar: Scalar::I64,
        get: get::signed::<F>,
        put: put_signed::<F>,
        wide: None,
        form: None,
    };
    pub const UNSIGNED: &'static ScalarKernel = &ScalarKernel {
        name: "unsigned",
        scalar: Scalar::U64,
        get: get::unsigned::<F>,
        put: put_unsigned::<F>,
        wide: None,
        form: None,
    };
    /// [`Self::SIGNED`] in a form that machine code writes inline.
    pub const INLINE_SIGNED: &'static InlineKernel =
        &InlineKernel { exact: true, ..InlineKernel::new("signed", Scalar::I64, inline_signed::<F>, None) };
    pub const INLINE_UNSIGNED: &'static InlineKernel =
        &InlineKernel { exact: true, ..InlineKernel::new("unsigned", Scalar::U64, inline_unsigned::<F>, None) };
    pub const SINGLE: &'static ScalarKernel = &ScalarKernel {
        name: "single",
        scalar: Scalar::F32,
        get: get::single::<F>,
        put: put_single::<F>,
        wide: None,
        form: None,
    };
    pub const DOUBLE: &'static ScalarKernel = &ScalarKernel {
        name: "double",
        scalar: Scalar::F64,
        get: get::double::<F>,
        put: put_double::<F>,
        wide: None,
        form: None,
    };
    pub const CHARACTER: &'static ScalarKernel = &ScalarKernel {
        name: "character",
        scalar: Scalar::U16,
        get: get::character::<F>,
        put: put_character::<F>,
        wide: None,
        form: None,
    };
    /// An enum literal's name. Its number is accepted, too.
    pub const LITERAL: &'static SymbolKernel =
        &SymbolKernel { name: "literal", scalar: Scalar::I64, get: get::literal::<F>, put: put_literal::<F> };
    pub const TEXT: &'static TextKernel =
        &TextKernel { name: "text", get: get::text::<F>, put: F::put_text, short: F::SHORT_TEXT };
    /// A map key that is a name.
    pub const KEY_TEXT: &'static TextKernel =
        &TextKernel { name: "key", get: get::key_text::<F>, put: F::put_name, short: None };
    pub const KEY_SIGNED: &'static ScalarKernel = &ScalarKernel {
        name: "signed key",
        scalar: Scalar::I64,
        get: get::key_signed::<F>,
        put: put_key_signed::<F>,
        wide: None,
        form: None,
    };
    pub const KEY_UNSIGNED: &'static ScalarKernel = &ScalarKernel {
        name: "unsigned key",
        scalar: Scalar::U64,
        get: get::key_unsigned::<F>,
        put: put_key_unsigned::<F>,
        wide: None,
        form: None,
    };
    pub const KEY_BOOLEAN: &'static ScalarKernel = &ScalarKernel {
        name: "boolean key",
        scalar: Scalar::Bool,
        get: get::key_boolean::<F>,
        put: put_key_boolean::<F>,
        wide: None,
        form: None,
    };
    pub const KEY_CHARACTER: &'static ScalarKernel = &ScalarKernel {
        name: "character key",
        scalar: Scalar::U16,
        get: get::key_character::<F>,
        put: put_key_character::<F>,
        wide: None,
        form: None,
    };
    pub const KEY_LITERAL: &'static SymbolKernel = &SymbolKernel {
        name: "literal key",
        scalar: Scalar::I64,
        get: get::key_literal::<F>,
        put: put_key_literal::<F>,
    };
    /// Writes the head of octets. In the other direction, reads the number that selects a union's
    /// case in a pair.
    pub const BYTES: &'static ScalarKernel = &ScalarKernel {
        name: "bytes",
        scalar: Scalar::U64,
        get: get::unsigned::<F>,
        put: put_bytes::<F>,
        wide: None,
        form: None,
    };
    /// The head of an array: the number of elements.
    pub const ARRAY: &'static ScalarKernel = &ScalarKernel {
        name: "array",
        scalar: Scalar::U64,
        get: get::array::<F>,
        put: put_array::<F>,
        wide: None,
        form: None,
    };
    /// The head of a map: the number of entries.
    pub const MAP: &'static ScalarKernel = &ScalarKernel {
        name: "map",
        scalar: Scalar::U64,
        get: get::map::<F>,
        put: put_map::<F>,
        wide: None,
        form: None,
    };
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

extern "C" fn put_key_signed<F: Format>(output: &mut Output<'_>, value: u64) -> Status {
    let value = value as i64;
    put_decimal::<F>(output, value < 0, value.unsigned_abs())
}

extern "C" fn put_key_unsigned<F: Format>(output: &mut Output<'_>, value: u64) -> Status {
    put_decimal::<F>(output, false, value)
}

fn put_decimal<F: Format>(output: &mut Output<'_>, negative: bool, value: u64) -> Status {
    with_decimal(negative, value, |text| F::put_name(output, text))
}

/// Passes the shortest decimal text of an integer to `take`.
pub fn with_decimal<T>(negative: bool, mut value: u64, take: impl FnOnce(&str) -> T) -> T {
    let mut digits = [b'-'; 21];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    let text = &digits[start - usize::from(negative)..];
    take(core::str::from_utf8(text).unwrap_or_default())
}

extern "C" fn put_key_boolean<F: Format>(output: &mut Output<'_>, value: u64) -> Status {
    F::put_name(output, if value != 0 { "true" } else { "false" })
}

extern "C" fn put_key_character<F: Format>(output: &mut Output<'_>, code: u64) -> Status {
    match char::from_u32(code as u32) {
        Some(char) => F::put_name(output, char.encode_utf8(&mut [0; 4])),
        None => output.fail(FaultKind::Unrepresentable, 0, code),
    }
}

extern "C" fn put_key_literal<F: Format>(output: &mut Output<'_>, table: &SymbolTable, value: u64) -> Status {
    match table.name(value as i64) {
        Some(name) => F::put_name(output, name),
        None => output.fail(FaultKind::UnknownLiteral, 0, value),
    }
}
