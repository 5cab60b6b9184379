//! The workloads CodecsTest of `codecs_test.pdl`: 1 to 50 groups of ten members of different kinds,
//! with hand-written CDR and FAST. One macro generates the five types.

use polywire_derive::Message;

use crate::cdr::{Cdr, FIELD, Malformed, Reader, Writer, string_bound};
use crate::fast::{Fast, FastReader, FastWriter, set_text};
use crate::{Rng, Workload};

/// The FAST template of the CodecsTest with `n` members. It has the fields of
/// `codecs_test.fast.xml` `n / 10` times.
pub fn fast_template(n: usize) -> String {
    let once = include_str!("../codecs_test.fast.xml");
    let split = |text: &'static str, at: &str| text.split_once(at).expect("`codecs_test.fast.xml` has this text");
    let (head, rest) = split(once, "    <int8 name=\"bool");
    let (group, tail) = split(rest, "  </template>");
    let groups =
        (1..=n / 10).map(|i| format!("    <int8 name=\"bool{group}").replace("_value_1\"", &format!("_value_{i}\"")));
    format!("{head}{}  </template>{tail}", groups.collect::<String>())
}

/// Declares a CodecsTest from groups of ten member names: its structure, codecs and values.
macro_rules! codecs_test {
    (
        $(#[$attribute:meta])* $test:ident, $state:ident, $name:literal, $messages:literal:
        $($bool:ident $string:ident $int8:ident $uint8:ident $int16:ident $uint16:ident
          $int32:ident $uint32:ident $int64:ident $uint64:ident;)+
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Default, Message)]
        #[polywire(name = "CodecsTest::Codecs_Test")]
        #[repr(C)]
        #[expect(missing_docs, reason = "the names in the PDL are self-explanatory")]
        pub struct $test {
            $(
                pub $bool: bool,
                pub $string: String,
                pub $int8: i8,
                pub $uint8: u8,
                pub $int16: i16,
                pub $uint16: u16,
                pub $int32: i32,
                pub $uint32: u32,
                pub $int64: i64,
                pub $uint64: u64,
            )+
        }

        /// Serde's traits, written by hand. Serde's derived code for 500 members compares a name
        /// with one name after the other, keeps an `Option` per member, and takes many minutes to
        /// compile. This code accepts and writes the same data faster.
        #[cfg(feature = "serde")]
        const _: () = {
            use std::{fmt, sync::LazyLock};

            use serde::{
                Deserialize, Deserializer, Serialize, Serializer,
                de::{self, Error, IgnoredAny, MapAccess, SeqAccess},
                ser::SerializeStruct,
            };

            #[derive(Clone, Copy)]
            #[expect(non_camel_case_types, reason = "the names of the PDL")]
            enum Member {
                $($bool, $string, $int8, $uint8, $int16, $uint16, $int32, $uint32, $int64, $uint64,)+
            }

            const NAMES: &[&str] = &[
                $(stringify!($bool), stringify!($string), stringify!($int8), stringify!($uint8), stringify!($int16),
                  stringify!($uint16), stringify!($int32), stringify!($uint32), stringify!($int64), stringify!($uint64),)+
            ];

            /// The members, sorted by name.
            static MEMBERS: LazyLock<Vec<(&str, Member)>> = LazyLock::new(|| {
                let members = [
                    $(Member::$bool, Member::$string, Member::$int8, Member::$uint8, Member::$int16,
                      Member::$uint16, Member::$int32, Member::$uint32, Member::$int64, Member::$uint64,)+
                ];
                let mut members: Vec<_> = NAMES.iter().copied().zip(members).collect();
                members.sort_unstable_by_key(|(name, _)| *name);
                members
            });

            impl Serialize for $test {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    let mut members = serializer.serialize_struct(stringify!($test), NAMES.len())?;
                    $(
                        members.serialize_field(stringify!($bool), &self.$bool)?;
                        members.serialize_field(stringify!($string), &self.$string)?;
                        members.serialize_field(stringify!($int8), &self.$int8)?;
                        members.serialize_field(stringify!($uint8), &self.$uint8)?;
                        members.serialize_field(stringify!($int16), &self.$int16)?;
                        members.serialize_field(stringify!($uint16), &self.$uint16)?;
                        members.serialize_field(stringify!($int32), &self.$int32)?;
                        members.serialize_field(stringify!($uint32), &self.$uint32)?;
                        members.serialize_field(stringify!($int64), &self.$int64)?;
                        members.serialize_field(stringify!($uint64), &self.$uint64)?;
                    )+
                    members.end()
                }
            }

            impl<'de> Deserialize<'de> for $test {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$test, D::Error> {
                    deserializer.deserialize_struct(stringify!($test), NAMES, Visitor)
                }
            }

            struct Visitor;

            impl<'de> de::Visitor<'de> for Visitor {
                type Value = $test;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(stringify!($test))
                }

                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$test, A::Error> {
                    let (mut test, mut met) = ($test::default(), 0);
                    while let Some(name) = map.next_key::<Name>()? {
                        met += usize::from(name.0.is_some());
                        match name.0 {
                            $(
                                Some(Member::$bool) => test.$bool = map.next_value()?,
                                Some(Member::$string) => test.$string = map.next_value()?,
                                Some(Member::$int8) => test.$int8 = map.next_value()?,
                                Some(Member::$uint8) => test.$uint8 = map.next_value()?,
                                Some(Member::$int16) => test.$int16 = map.next_value()?,
                                Some(Member::$uint16) => test.$uint16 = map.next_value()?,
                                Some(Member::$int32) => test.$int32 = map.next_value()?,
                                Some(Member::$uint32) => test.$uint32 = map.next_value()?,
                                Some(Member::$int64) => test.$int64 = map.next_value()?,
                                Some(Member::$uint64) => test.$uint64 = map.next_value()?,
                            )+
                            None => drop(map.next_value::<IgnoredAny>()?),
                        }
                    }
                    match met == NAMES.len() {
                        true => Ok(test),
                        false => Err(A::Error::invalid_length(met, &self)),
                    }
                }

                fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<$test, A::Error> {
                    let mut test = $test::default();
                    $(
                        test.$bool = next(&mut seq)?;
                        test.$string = next(&mut seq)?;
                        test.$int8 = next(&mut seq)?;
                        test.$uint8 = next(&mut seq)?;
                        test.$int16 = next(&mut seq)?;
                        test.$uint16 = next(&mut seq)?;
                        test.$int32 = next(&mut seq)?;
                        test.$uint32 = next(&mut seq)?;
                        test.$int64 = next(&mut seq)?;
                        test.$uint64 = next(&mut seq)?;
                    )+
                    Ok(test)
                }
            }

            /// The next member, for formats without names.
            fn next<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(seq: &mut A) -> Result<T, A::Error> {
                seq.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &Visitor))
            }

            struct Name(Option<Member>);

            impl<'de> Deserialize<'de> for Name {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
                    struct Visitor;
                    impl de::Visitor<'_> for Visitor {
                        type Value = Name;

                        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                            f.write_str("the name of a member")
                        }

                        fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                            let found = MEMBERS.binary_search_by_key(&name, |(name, _)| name);
                            Ok(Name(found.ok().map(|i| MEMBERS[i].1)))
                        }
                    }
                    deserializer.deserialize_identifier(Visitor)
                }
            }
        };

        impl Cdr for $test {
            #[inline]
            fn encode(&self, writer: &mut Writer) {
                let mut local = *writer;
                let w = &mut local;
                $(
                    w.scalar(self.$bool as u8);
                    w.align(4);
                    w.string(&self.$string);
                    w.scalar(self.$int8);
                    w.scalar(self.$uint8);
                    w.align(2);
                    w.scalar(self.$int16);
                    w.scalar(self.$uint16);
                    w.align(4);
                    w.scalar(self.$int32);
                    w.scalar(self.$uint32);
                    w.align(8);
                    w.scalar(self.$int64);
                    w.scalar(self.$uint64);
                )+
                *writer = local;
            }

            #[inline]
            fn decode(&mut self, reader: &mut Reader) -> Result<(), Malformed> {
                let mut local = *reader;
                let r = &mut local;
                $(
                    self.$bool = r.boolean()?;
                    r.align(4);
                    r.string(&mut self.$string)?;
                    self.$int8 = r.scalar::<i8>()?;
                    self.$uint8 = r.scalar::<u8>()?;
                    r.align(2);
                    self.$int16 = r.scalar::<i16>()?;
                    self.$uint16 = r.scalar::<u16>()?;
                    r.align(4);
                    self.$int32 = r.scalar::<i32>()?;
                    self.$uint32 = r.scalar::<u32>()?;
                    r.align(8);
                    self.$int64 = r.scalar::<i64>()?;
                    self.$uint64 = r.scalar::<u64>()?;
                )+
                *reader = local;
                Ok(())
            }

            fn bound(&self) -> usize {
                0 $(+ 9 * FIELD + string_bound(&self.$string))+
            }
        }

        /// The previous values of a FAST stream.
        #[derive(Clone, Debug, Default)]
        pub struct $state {
            known: bool,
            $($bool: u8, $int16: i16, $uint16: u16, $uint32: u32, $int64: i64, $uint64: u64,)+
        }

        impl Fast for $test {
            type State = $state;

            fn template() -> String {
                fast_template(10 * [$(stringify!($bool)),+].len())
            }

            #[inline]
            fn write(&self, writer: &mut FastWriter, s: &mut $state) {
                let mut local = *writer;
                let w = &mut local;
                w.begin(1 + 3 * [$(stringify!($bool)),+].len());
                w.bit(!s.known);
                if !s.known {
                    w.unsigned(2);
                }
                $(
                    let value = self.$bool as u8;
                    w.bit(value != s.$bool);
                    if value != s.$bool {
                        w.signed(value.into());
                        s.$bool = value;
                    }
                    w.signed(self.$int8.into());
                    w.unsigned(self.$uint8.into());
                    w.signed(i64::from(self.$int16) - i64::from(s.$int16));
                    s.$int16 = self.$int16;
                    w.signed(i64::from(self.$uint16) - i64::from(s.$uint16));
                    s.$uint16 = self.$uint16;
                    w.signed(self.$int32.into());
                    w.bit(self.$uint32 != s.$uint32);
                    if self.$uint32 != s.$uint32 {
                        w.unsigned(self.$uint32.into());
                        s.$uint32 = self.$uint32;
                    }
                    let differs = self.$int64 != s.$int64.wrapping_add(1) || !s.known;
                    w.bit(differs);
                    if differs {
                        w.signed(self.$int64);
                    }
                    s.$int64 = self.$int64;
                    w.signed(self.$uint64.wrapping_sub(s.$uint64) as i64);
                    s.$uint64 = self.$uint64;
                )+
                w.end();
                s.known = true;
                *writer = local;
            }

            #[inline]
            fn read(&mut self, reader: &mut FastReader, s: &mut $state) -> Result<(), Malformed> {
                let mut local = *reader;
                let r = &mut local;
                r.begin()?;
                if r.bit() {
                    r.unsigned()?;
                }
                $(
                    if r.bit() {
                        s.$bool = r.signed()? as u8;
                    }
                    self.$bool = s.$bool != 0;
                    set_text(&mut self.$string, "Hello_World!");
                    self.$int8 = r.signed()? as i8;
                    self.$uint8 = r.unsigned()? as u8;
                    s.$int16 = (i64::from(s.$int16) + r.signed()?) as i16;
                    self.$int16 = s.$int16;
                    s.$uint16 = (i64::from(s.$uint16) + r.signed()?) as u16;
                    self.$uint16 = s.$uint16;
                    self.$int32 = r.signed()? as i32;
                    if r.bit() {
                        s.$uint32 = r.unsigned()? as u32;
                    }
                    self.$uint32 = s.$uint32;
                    s.$int64 = if r.bit() { r.signed()? } else { s.$int64.wrapping_add(1) };
                    self.$int64 = s.$int64;
                    s.$uint64 = s.$uint64.wrapping_add(r.signed()? as u64);
                    self.$uint64 = s.$uint64;
                )+
                *reader = local;
                Ok(())
            }
        }

        impl Workload for $test {
            const NAME: &'static str = $name;
            const MESSAGES: usize = $messages;

            fn generate(n: usize) -> Vec<Self> {
                let mut rng = Rng(0x9E3779B97F4A7C15);
                let mut message = Self::default();
                $(
                    message.$string = "Hello_World!".into();
                    message.$uint8 = 60;
                    message.$int16 = rng.range(-3000, 3000) as i16;
                    message.$uint16 = rng.range(20000, 40000) as u16;
                    message.$uint32 = rng.range(0, 100000) as u32;
                    message.$int64 = rng.range(0, 1 << 40);
                    message.$uint64 = rng.range(1 << 32, 1 << 50) as u64;
                )+
                (0..n)
                    .map(|_| {
                        $(
                            if rng.chance(5) {
                                message.$bool = !message.$bool;
                            }
                            message.$int8 = (message.$int8 as i64 + rng.range(-2, 3)).clamp(-60, 60) as i8;
                            message.$uint8 = (message.$uint8 as i64 + rng.range(-2, 3)).clamp(1, 120) as u8;
                            message.$int16 = (message.$int16 as i64 + rng.range(-20, 21)) as i16;
                            message.$uint16 = (message.$uint16 as i64 + rng.range(-20, 21)) as u16;
                            message.$int32 += rng.range(-5, 6) as i32;
                            if rng.chance(5) {
                                message.$uint32 = rng.range(0, 100000) as u32;
                            }
                            message.$int64 += 1;
                            message.$uint64 = (message.$uint64 as i64 + rng.range(-20, 21)) as u64;
                        )+
                        message.clone()
                    })
                    .collect()
            }
        }
    };
}

macro_rules! codecs_tests {
    ($($n:tt: $(#[$attribute:meta])* $test:ident, $state:ident, $name:literal, $messages:literal;)+) => {
        $($crate::codecs_test_members! { $n codecs_test { $(#[$attribute])* $test, $state, $name, $messages: } })+
    };
}

codecs_tests! {
    10:
    /// CodecsTest with ten members.
    #[cfg_attr(feature = "rkyv", derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize), rkyv(attr(allow(missing_docs))))]
    CodecsTest10, CodecsTest10State, "CodecsTest_10", 1024;
    50:
    /// CodecsTest with fifty members.
    CodecsTest50, CodecsTest50State, "CodecsTest_50", 512;
    100:
    /// CodecsTest with a hundred members.
    CodecsTest100, CodecsTest100State, "CodecsTest_100", 512;
    250:
    /// CodecsTest with two hundred and fifty members.
    CodecsTest250, CodecsTest250State, "CodecsTest_250", 256;
    500:
    /// CodecsTest with five hundred members.
    CodecsTest500, CodecsTest500State, "CodecsTest_500", 256;
}
