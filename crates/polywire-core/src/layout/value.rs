//! [`Value`]: an untyped value to store in a record.

use alloc::{string::String, vec::Vec};

/// A value to store in a [`Record`](super::Record). Most are made with `into()`.
///
/// ```
/// use polywire_core::layout::Value;
///
/// assert_eq!(Value::from(vec![1, 2]), Value::List(vec![Value::Int(1), Value::Int(2)]));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Makes an optional member absent.
    Absent,
    /// For booleans and discriminators of unions.
    Bool(bool),
    /// For integers, characters, enums, bitmasks, bitsets, discriminators and floating-point
    /// numbers.
    Int(i128),
    /// For floating-point numbers.
    Float(f64),
    /// For strings, single characters and enum literals.
    Text(String),
    /// For sequences and arrays of octets.
    Bytes(Vec<u8>),
    /// For sequences and arrays, and for bitmasks as names of flags.
    List(Vec<Value>),
    /// For structures, bitsets and unions, and for maps with string keys. Members of a structure
    /// that are not listed stay unchanged; a union takes exactly one field.
    Fields(Vec<(String, Value)>),
    /// For maps.
    Entries(Vec<(Value, Value)>),
}

impl Value {
    /// Fields of a structure, bitset or union.
    pub fn fields<N: Into<String>, V: Into<Value>>(fields: impl IntoIterator<Item = (N, V)>) -> Value {
        Value::Fields(fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// Entries of a map.
    pub fn entries<K: Into<Value>, V: Into<Value>>(entries: impl IntoIterator<Item = (K, V)>) -> Value {
        Value::Entries(entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

macro_rules! from {
    ($($rust:ty => $make:expr;)*) => {$(
        impl From<$rust> for Value {
            fn from(value: $rust) -> Value {
                let make: fn($rust) -> Value = $make;
                make(value)
            }
        }
    )*};
}

from! {
    bool => Value::Bool;
    i8 => |v| Value::Int(v.into());
    i16 => |v| Value::Int(v.into());
    i32 => |v| Value::Int(v.into());
    i64 => |v| Value::Int(v.into());
    u8 => |v| Value::Int(v.into());
    u16 => |v| Value::Int(v.into());
    u32 => |v| Value::Int(v.into());
    u64 => |v| Value::Int(v.into());
    f32 => |v| Value::Float(v.into());
    f64 => Value::Float;
    &str => |v| Value::Text(v.into());
    String => Value::Text;
    &[u8] => |v| Value::Bytes(v.into());
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Value {
        Value::List(values.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Value>, const N: usize> From<[T; N]> for Value {
    fn from(values: [T; N]) -> Value {
        Value::List(values.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Absent, Into::into)
    }
}
