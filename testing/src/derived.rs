//! Rust types that together use every attribute and every kind of member that `#[derive(Message)]`
//! supports. Tests of codecs and of the derive encode and decode random values of them.
#![expect(missing_docs, reason = "the names of the members state their kinds")]

use crate::{Coder, plain_wires, random_record};
use polywire_core::{
    codec::{Decoder, Options},
    layout::{Char8, Char16, Float128, Message, Shape, ValueRef},
    program::Backend,
    schema::arbitrary::Random,
};
use polywire_derive::Message;
use std::collections::{BTreeMap, HashMap};

#[derive(Message, Debug, Clone, PartialEq)]
#[polywire(final)]
pub struct Scalars {
    pub flag: bool,
    pub small: i8,
    pub short: i16,
    pub tiny: u8,
    pub int: i32,
    pub long: i64,
    pub half: u16,
    #[polywire(idl = "octet")]
    pub raw: u8,
    pub word: u32,
    pub huge: u64,
    pub float: f32,
    pub double: f64,
    pub quad: Float128,
    pub letter: Char8,
    pub unit: Char16,
    pub last: bool,
}

#[derive(Message, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[polywire(bit_bound = 8)]
#[repr(u8)]
pub enum Small {
    A = 0,
    B = 3,
    #[polywire(default_literal)]
    C = 100,
}

#[derive(Message, Debug, Clone, Copy, PartialEq, Eq)]
#[polywire(bit_bound = 16)]
#[repr(i16)]
pub enum Signed {
    Below = -300,
    Zero = 0,
    Above = 20_000,
}

#[derive(Message, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    One,
    Two,
    Three,
    Four,
}

#[derive(Message, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[polywire(bitmask(bit_bound = 12, READ = 0, WRITE = 3, ADMIN = 11))]
pub struct Rights(pub u16);

#[derive(Message, Debug, Clone, PartialEq)]
#[polywire(switch = "int32")]
pub enum Choice {
    #[polywire(case(1, 5))]
    Number(i64),
    #[polywire(case(-2))]
    Text(String),
    #[polywire(case(3))]
    List(Vec<Small>),
    #[polywire(default)]
    Other(Scalars),
}

#[derive(Message, Debug, Clone, PartialEq)]
#[polywire(mutable)]
pub struct Open {
    #[polywire(id = 7)]
    pub kind: Plain,
    pub choice: Choice,
    #[polywire(id = 70_000, must_understand)]
    pub rights: Rights,
    pub note: Option<String>,
}

#[derive(Message, Debug, Clone, PartialEq)]
#[polywire(appendable)]
pub struct Everything {
    #[polywire(key)]
    pub key: u32,
    pub scalars: Scalars,
    pub small: Small,
    pub signed: Signed,
    pub smalls: [Small; 3],
    pub text: String,
    #[polywire(idl = "wstring<9>", try_construct = "trim")]
    pub wide: String,
    #[polywire(idl = "string<6>")]
    pub bounded: String,
    pub numbers: Vec<i32>,
    pub wides: Vec<f64>,
    pub flags: Vec<bool>,
    #[polywire(idl = "sequence<octet, 12>")]
    pub image: Vec<u8>,
    pub grid: [[f32; 3]; 2],
    pub names: Vec<String>,
    pub entries: Vec<Scalars>,
    pub maybe: Option<i32>,
    pub boxed: Box<Scalars>,
    pub both: Option<Box<String>>,
    pub sorted: BTreeMap<String, i32>,
    pub by_literal: BTreeMap<Small, Vec<u16>>,
    pub hashed: HashMap<u16, String>,
    pub choice: Choice,
    pub open: Open,
    pub opens: Vec<Open>,
    pub tree: Vec<Everything>,
    pub end: bool,
}

/// A random value.
pub fn random_message<T: Message>(random: &mut Random) -> T {
    let wire = plain_wires().remove(0);
    let shape = Shape::of(T::shape().schema()).unwrap();
    let coder = Coder::new(&wire, &shape, Backend::Interpreter).unwrap();
    let schema = T::shape().schema();
    let decoder = Decoder::<T>::with_backend(wire.codec, &Options::default(), schema, Backend::Interpreter).unwrap();
    let mut value = T::default_value();
    let message = coder.encode(&random_record(random, &shape)).unwrap();
    decoder.decode(&message, &mut value).unwrap();
    value
}

/// Whether two messages are equal as values ([`ValueRef`]), which compare floating-point numbers by
/// their bits.
pub fn same<T: Message>(a: &T, b: &T) -> bool {
    ValueRef::of(a) == ValueRef::of(b)
}
