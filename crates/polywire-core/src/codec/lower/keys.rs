//! Map keys as names, for formats in which a key is always text: UBJSON and BSON. Their dialects
//! call [`put`] and [`get`]. The kernels touch the input or the output.

use alloc::{string::String, sync::Arc};

use super::{DecodeWalk, EncodeWalk, Lowered, Slot, scalar_of};
use crate::{
    layout::Scalar,
    program::{
        FaultKind, Input, Output, Place, ScalarKernel, Status, SymbolKernel, SymbolTable, TextForm, TextKernel, Wire,
    },
    schema::Type,
};

/// How a format writes names.
pub trait Keys: 'static {
    /// Number of bytes behind the bytes of a name.
    const BEHIND: usize;

    /// Reads a name.
    fn key<'a>(input: &mut Input<'a>) -> Result<&'a [u8], Status>;

    /// Writes a name without control characters.
    fn put_key(output: &mut Output<'_>, name: &str) -> Status;

    /// Writes any text as a name.
    fn put_any_key(output: &mut Output<'_>, text: &str) -> Status {
        Self::put_key(output, text)
    }
}

/// Emits the writing of a key. Literals are written by name if `enum_names` is set.
pub fn put<K: Keys>(walk: &mut EncodeWalk<'_>, ty: &Type, place: Place, enum_names: bool) -> Lowered {
    let schema = walk.schema();
    let ty = schema.resolve(ty);
    if let Type::String { .. } | Type::WString { .. } = ty {
        return walk.text(ty, place, TextForm::Kernel(Kernels::<K>::TEXT));
    }
    let literals = match ty {
        Type::Def(id) if enum_names => Some(walk.literals(*id)),
        _ => None,
    };
    let wire = wire::<K>(ty, literals).ok_or_else(|| walk.unsupported(NO_KEY))?;
    walk.put(place, wire)
}

/// Emits the reading of a key. Literals may be names or numbers.
pub fn get<K: Keys>(walk: &mut DecodeWalk<'_>, ty: &Type, slot: &Slot<'_>) -> Lowered {
    let writer = walk.writer();
    let ty = writer.resolve(ty);
    if let Type::String { .. } | Type::WString { .. } = ty {
        return walk.text(TextForm::Kernel(Kernels::<K>::TEXT), slot);
    }
    let literals = match ty {
        Type::Def(id) => Some(walk.literals(*id, slot)),
        _ => None,
    };
    let wire = wire::<K>(ty, literals).ok_or_else(|| walk.unsupported(NO_KEY))?;
    walk.get(ty, wire, slot)
}

const NO_KEY: &str = "a map's key is a string, integer, boolean, character or enum";

/// The kernel of a key that is not a string, with the names of literals if there are any.
fn wire<K: Keys>(ty: &Type, literals: Option<Arc<SymbolTable>>) -> Option<Wire> {
    Some(Wire::Kernel(match (ty, scalar_of(ty)) {
        (Type::Def(_), _) => match literals {
            Some(literals) => return Some(Wire::Symbol(Kernels::<K>::LITERAL, literals)),
            None => Kernels::<K>::SIGNED,
        },
        (Type::Bool, _) => Kernels::<K>::BOOLEAN,
        (Type::Char8 | Type::Char16, _) => Kernels::<K>::CHARACTER,
        (_, Some(wire)) if wire.is_signed() && wire.is_integer() => Kernels::<K>::SIGNED,
        (_, Some(wire)) if wire.is_integer() => Kernels::<K>::UNSIGNED,
        _ => return None,
    }))
}

struct Kernels<K>(core::marker::PhantomData<K>);

impl<K: Keys> Kernels<K> {
    const TEXT: &'static TextKernel = &TextKernel { name: "key", get: text::<K>, put: K::put_any_key, short: None };
    const SIGNED: &'static ScalarKernel = &ScalarKernel::new("signed key", Scalar::I64, signed::<K>, put_signed::<K>);
    const UNSIGNED: &'static ScalarKernel =
        &ScalarKernel::new("unsigned key", Scalar::U64, unsigned::<K>, put_unsigned::<K>);
    const BOOLEAN: &'static ScalarKernel =
        &ScalarKernel::new("boolean key", Scalar::Bool, boolean::<K>, put_boolean::<K>);
    const CHARACTER: &'static ScalarKernel =
        &ScalarKernel::new("character key", Scalar::U16, character::<K>, put_character::<K>);
    const LITERAL: &'static SymbolKernel =
        &SymbolKernel { name: "literal key", scalar: Scalar::I64, get: literal::<K>, put: put_literal::<K> };
}

fn text<K: Keys>(input: &mut Input<'_>, string: Option<&mut String>) -> Status {
    let key = match K::key(input) {
        Ok(key) => key,
        Err(failed) => return failed,
    };
    match core::str::from_utf8(key) {
        Ok(text) => string.map_or(Status::Ok, |string| input.set_text(string, text)),
        Err(error) => {
            input.seek(input.position() - K::BEHIND - (key.len() - error.valid_up_to()));
            input.fail(FaultKind::BadText, 0, 0)
        }
    }
}

extern "C" fn signed<K: Keys>(input: &mut Input<'_>, value: &mut u64) -> Status {
    read::<K>(input, value, |key| decimal::<i64>(key).map(|number| number as u64))
}

extern "C" fn unsigned<K: Keys>(input: &mut Input<'_>, value: &mut u64) -> Status {
    read::<K>(input, value, decimal::<u64>)
}

extern "C" fn boolean<K: Keys>(input: &mut Input<'_>, value: &mut u64) -> Status {
    read::<K>(input, value, |key| match key {
        b"true" => Ok(1),
        b"false" => Ok(0),
        _ => Err(FaultKind::BadBool),
    })
}

extern "C" fn character<K: Keys>(input: &mut Input<'_>, value: &mut u64) -> Status {
    read::<K>(input, value, |key| one_character(key).map(u64::from))
}

extern "C" fn literal<K: Keys>(input: &mut Input<'_>, table: &SymbolTable, value: &mut u64) -> Status {
    read::<K>(input, value, |key| match (decimal::<i64>(key), table.value(key), key.first()) {
        (Ok(number), ..) => Ok(number as u64),
        // The name of a literal may begin as a number does.
        (Err(_), Some(named), _) => Ok(named as u64),
        (Err(fault), None, Some(b'-' | b'0'..=b'9')) => Err(fault),
        (Err(_), None, _) => table.otherwise.map(|n| n as u64).ok_or(FaultKind::UnknownLiteral),
    })
}

fn read<K: Keys>(input: &mut Input<'_>, value: &mut u64, word: impl FnOnce(&[u8]) -> Result<u64, FaultKind>) -> Status {
    let start = input.position();
    let read = K::key(input).and_then(|key| word(key).map_err(|kind| fail_at(input, start, kind)));
    Status::give(read, value)
}

/// Reports an error about the value that began at `start`.
#[cold]
pub fn fail_at(input: &mut Input<'_>, start: usize, kind: FaultKind) -> Status {
    input.seek(start);
    let got = input.rest().first().copied().unwrap_or(0);
    input.fail(kind, 0, got.into())
}

/// The only character of a text, as a `wchar`.
pub fn one_character(text: &[u8]) -> Result<u16, FaultKind> {
    let mut chars = core::str::from_utf8(text).map_err(|_| FaultKind::BadText)?.chars();
    match (chars.next(), chars.next()) {
        (Some(char), None) => u16::try_from(u32::from(char)).map_err(|_| FaultKind::OutOfRange),
        _ => Err(FaultKind::OutOfRange),
    }
}

/// Accepts only the shortest form of a number, so that different keys are different numbers.
fn decimal<T: core::str::FromStr>(key: &[u8]) -> Result<T, FaultKind> {
    let shortest = match key {
        [b'0'] => true,
        [b'-', digits @ ..] | digits => matches!(digits.first(), Some(b'1'..=b'9')),
    };
    let text = core::str::from_utf8(key).ok().filter(|_| shortest);
    text.and_then(|text| text.parse().ok()).ok_or(FaultKind::WrongKind)
}

extern "C" fn put_signed<K: Keys>(output: &mut Output<'_>, value: u64) -> Status {
    let value = value as i64;
    with_decimal(value < 0, value.unsigned_abs(), |text| K::put_key(output, text))
}

extern "C" fn put_unsigned<K: Keys>(output: &mut Output<'_>, value: u64) -> Status {
    with_decimal(false, value, |text| K::put_key(output, text))
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

extern "C" fn put_boolean<K: Keys>(output: &mut Output<'_>, value: u64) -> Status {
    K::put_key(output, if value != 0 { "true" } else { "false" })
}

extern "C" fn put_character<K: Keys>(output: &mut Output<'_>, code: u64) -> Status {
    match char::from_u32(code as u32) {
        Some(char) => K::put_any_key(output, char.encode_utf8(&mut [0; 4])),
        None => output.fail(FaultKind::Unrepresentable, 0, code),
    }
}

extern "C" fn put_literal<K: Keys>(output: &mut Output<'_>, table: &SymbolTable, value: u64) -> Status {
    match table.name(value as i64) {
        Some(name) => K::put_key(output, name),
        None => output.fail(FaultKind::UnknownLiteral, 0, value),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use crate::{
        codec::{self, Decoder, Encoder, Options},
        layout::{Record, Shape},
        program::Backend,
        schema::{Def, Member, SchemaBuilder, Type},
    };

    #[test]
    fn the_name_of_a_literal_may_look_like_a_number() {
        let mut types = SchemaBuilder::new();
        let grade = types.add(Def::enumeration("Grade", ["2nd", "-"]));
        let counts = Member::new("counts", Type::map(Type::Def(grade), Type::Int32));
        let root = types.add(Def::structure("Root", [counts].into()));
        let shape = Shape::of(&types.finish(Type::Def(root)).unwrap()).unwrap();
        let record = Record::from_json(&shape, r#"{"counts":{"2nd":1,"-":2}}"#).unwrap();
        for (name, options) in ["bson", "ubjson"].into_iter().flat_map(|name| [(name, "enum=name"), (name, "")]) {
            let (codec, backend) = (codec::find(name).unwrap(), Backend::Interpreter);
            let options: Options = options.parse().unwrap();
            let encoder = Encoder::for_shape_with_backend(codec, &options, &shape, backend).unwrap();
            let decoder = Decoder::for_shape_with_backend(codec, &options, shape.schema(), &shape, backend).unwrap();
            let (mut bytes, mut read) = (Vec::new(), Record::new(&shape));
            encoder.encode(&record, &mut bytes).unwrap();
            decoder.decode(&bytes, &mut read).unwrap();
            assert_eq!(read, record, "{name} {options}");
        }
    }
}
