//! A digest of every member's values. The demonstration compares the digests of the publisher and
//! the subscribers, so the values need not be sent twice.

use std::collections::BTreeMap;

use polywire::extend::layout::ValueRef;

/// For each path, such as `interfaces[].name`, a hash of all its values in their order.
pub type Digest = BTreeMap<String, u64>;

/// The initial value and the factor of the hash FNV-1a.
const START: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Adds a value. A number has the same hash in every width, so that widened members compare as
/// equal.
pub fn add(digest: &mut Digest, path: &str, value: ValueRef<'_>) {
    match value {
        ValueRef::Struct(value) => {
            let dot = if path.is_empty() { "" } else { "." };
            value.fields().into_iter().for_each(|(m, value)| add(digest, &format!("{path}{dot}{}", m.name), value));
        }
        ValueRef::List(list) => {
            mix(digest, &format!("{path}[#]"), &list.len().to_le_bytes());
            let elements = format!("{path}[]");
            list.iter().for_each(|element| add(digest, &elements, element));
        }
        scalar => mix(digest, path, &bytes_of(scalar)),
    }
}

fn bytes_of(value: ValueRef<'_>) -> Vec<u8> {
    match value {
        ValueRef::Float32(_) | ValueRef::Float64(_) => {
            value.as_f64().unwrap_or_default().to_bits().to_le_bytes().to_vec()
        }
        ValueRef::Str(text) => text.as_bytes().to_vec(),
        other => match other.as_i64().map(i128::from).or(other.as_u64().map(i128::from)) {
            Some(number) => number.to_le_bytes().to_vec(),
            None => format!("{other:?}").into_bytes(),
        },
    }
}

fn mix(digest: &mut Digest, path: &str, bytes: &[u8]) {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    if !digest.contains_key(path) {
        digest.insert(path.to_owned(), START);
    }
    if let Some(hash) = digest.get_mut(path) {
        // The length distinguishes "ab", "c" from "a", "bc".
        *hash = bytes.len().to_le_bytes().iter().chain(bytes).fold(*hash, step);
    }
}

#[cfg(test)]
mod tests {
    use polywire::{
        extend::layout::{Record, Shape, Value},
        schema::Schema,
    };
    use polywire_idl::Compiler;

    use super::*;

    fn schema(text: &str) -> Schema {
        Compiler::new().parse_str("a.idl", text).expect("valid").schema("A").expect("there")
    }

    fn of(record: &Record) -> Digest {
        let mut digest = Digest::new();
        add(&mut digest, "", record.view());
        digest
    }

    #[test]
    fn widened_values_are_the_same_and_others_are_not() {
        let narrow = schema("struct A { float f; uint8 i; sequence<string> s; };");
        let wide = schema("struct A { double f; int64 i; sequence<string> s; };");
        let (mut a, mut b) = (Record::new(&Shape::of(&narrow).expect("a")), Record::new(&Shape::of(&wide).expect("b")));
        for record in [&mut a, &mut b] {
            record.set("f", 0.5).expect("set");
            record.set("i", 200).expect("set");
            record.resize("s", 2).expect("set");
            record.set("s[1]", "x").expect("set");
        }
        assert_eq!(of(&a), of(&b));
        assert_eq!(of(&a).keys().collect::<Vec<_>>(), ["f", "i", "s[#]", "s[]"]);
        let changed = |path: &str, value: Value| {
            let mut other = b.clone();
            other.set(path, value).expect("set");
            of(&other)
        };
        assert_ne!(changed("f", 0.25.into()), of(&b));
        assert_ne!(changed("i", 201.into()), of(&b));
        assert_ne!(changed("s[0]", "x".into()), of(&b));
        assert_eq!(changed("s[1]", "x".into()), of(&b));
    }
}
