//! CodecsTest of `codecs_test.pdl`: ten members of ten kinds, once and fifty times.

use std::fmt::Write;

use polywire_derive::Message;

use crate::cdr::{Cdr, FIELD, Malformed, Reader, Writer, string_bound};
use crate::fast::{Fast, FastReader, FastWriter, set_text};
use crate::{Rng, Workload};

/// The PDL of CodecsTest with `n / 10` groups of ten members.
pub fn pdl(n: usize) -> String {
    let mut text = String::from(
        "module CodecsTest {\n  [uuid (0D1F63DC-0AC4-43C5-A366-C89D0A5F3ACD); version (1.0)]\n  probe Codecs_Test {\n",
    );
    for group in 1..=n / 10 {
        for (kind, name) in MEMBERS {
            writeln!(text, "    {kind} {name}_value_{group};").expect("writing to a string does not fail");
        }
    }
    text + "  };\n}\n"
}

/// The FAST template of CodecsTest with `n / 10` groups of ten members: `codecs_test.fast.xml` over and over.
pub fn fast_template(n: usize) -> String {
    let once = include_str!("../codecs_test.fast.xml");
    let split = |text: &'static str, at: &str| text.split_once(at).expect("the file is ours");
    let (head, rest) = split(once, "    <int8 name=\"bool");
    let (group, tail) = split(rest, "  </template>");
    let groups =
        (1..=n / 10).map(|i| format!("    <int8 name=\"bool{group}").replace("_value_1\"", &format!("_value_{i}\"")));
    format!("{head}{}  </template>{tail}", groups.collect::<String>())
}

const MEMBERS: [(&str, &str); 10] = [
    ("boolean", "bool"),
    ("string", "string"),
    ("int8", "char"),
    ("uint8", "uchar"),
    ("int16", "int16"),
    ("uint16", "uint16"),
    ("int32", "int32"),
    ("uint32", "uint32"),
    ("int64", "int64"),
    ("uint64", "uint64"),
];

/// Declares a CodecsTest: its structure, its codec and its values, from groups of ten member names.
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
        #[allow(missing_docs, reason = "the names of the PDL say it")]
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

        /// By hand, because what serde derives for five hundred members looks a name up by comparing it with one after the other, keeps an
        /// `Option` a member, and takes the compiler many minutes. This is the same for whoever calls it, only faster.
        #[cfg(feature = "serde")]
        const _: () = {
            use std::{fmt, sync::LazyLock};

            use serde::{
                Deserialize, Deserializer, Serialize, Serializer,
                de::{self, Error, IgnoredAny, MapAccess, SeqAccess},
                ser::SerializeStruct,
            };

            #[derive(Clone, Copy)]
            #[allow(non_camel_case_types, reason = "the names of the PDL")]
            enum Member {
                $($bool, $string, $int8, $uint8, $int16, $uint16, $int32, $uint32, $int64, $uint64,)+
            }

            const NAMES: &[&str] = &[
                $(stringify!($bool), stringify!($string), stringify!($int8), stringify!($uint8), stringify!($int16),
                  stringify!($uint16), stringify!($int32), stringify!($uint32), stringify!($int64), stringify!($uint64),)+
            ];

            /// By name.
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

            /// For formats without names.
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

        /// The previous values of a stream in FAST.
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

codecs_test! {
    /// CodecsTest with ten members.
    #[cfg_attr(feature = "rkyv", derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize), rkyv(attr(allow(missing_docs))))]
    CodecsTest10, CodecsTest10State, "CodecsTest_10", 1024:
    bool_value_1 string_value_1 char_value_1 uchar_value_1 int16_value_1 uint16_value_1 int32_value_1 uint32_value_1 int64_value_1 uint64_value_1;
}

codecs_test! {
    /// CodecsTest with five hundred members.
    CodecsTest500, CodecsTest500State, "CodecsTest_500", 256:
    bool_value_1 string_value_1 char_value_1 uchar_value_1 int16_value_1 uint16_value_1 int32_value_1 uint32_value_1 int64_value_1 uint64_value_1;
    bool_value_2 string_value_2 char_value_2 uchar_value_2 int16_value_2 uint16_value_2 int32_value_2 uint32_value_2 int64_value_2 uint64_value_2;
    bool_value_3 string_value_3 char_value_3 uchar_value_3 int16_value_3 uint16_value_3 int32_value_3 uint32_value_3 int64_value_3 uint64_value_3;
    bool_value_4 string_value_4 char_value_4 uchar_value_4 int16_value_4 uint16_value_4 int32_value_4 uint32_value_4 int64_value_4 uint64_value_4;
    bool_value_5 string_value_5 char_value_5 uchar_value_5 int16_value_5 uint16_value_5 int32_value_5 uint32_value_5 int64_value_5 uint64_value_5;
    bool_value_6 string_value_6 char_value_6 uchar_value_6 int16_value_6 uint16_value_6 int32_value_6 uint32_value_6 int64_value_6 uint64_value_6;
    bool_value_7 string_value_7 char_value_7 uchar_value_7 int16_value_7 uint16_value_7 int32_value_7 uint32_value_7 int64_value_7 uint64_value_7;
    bool_value_8 string_value_8 char_value_8 uchar_value_8 int16_value_8 uint16_value_8 int32_value_8 uint32_value_8 int64_value_8 uint64_value_8;
    bool_value_9 string_value_9 char_value_9 uchar_value_9 int16_value_9 uint16_value_9 int32_value_9 uint32_value_9 int64_value_9 uint64_value_9;
    bool_value_10 string_value_10 char_value_10 uchar_value_10 int16_value_10 uint16_value_10 int32_value_10 uint32_value_10 int64_value_10 uint64_value_10;
    bool_value_11 string_value_11 char_value_11 uchar_value_11 int16_value_11 uint16_value_11 int32_value_11 uint32_value_11 int64_value_11 uint64_value_11;
    bool_value_12 string_value_12 char_value_12 uchar_value_12 int16_value_12 uint16_value_12 int32_value_12 uint32_value_12 int64_value_12 uint64_value_12;
    bool_value_13 string_value_13 char_value_13 uchar_value_13 int16_value_13 uint16_value_13 int32_value_13 uint32_value_13 int64_value_13 uint64_value_13;
    bool_value_14 string_value_14 char_value_14 uchar_value_14 int16_value_14 uint16_value_14 int32_value_14 uint32_value_14 int64_value_14 uint64_value_14;
    bool_value_15 string_value_15 char_value_15 uchar_value_15 int16_value_15 uint16_value_15 int32_value_15 uint32_value_15 int64_value_15 uint64_value_15;
    bool_value_16 string_value_16 char_value_16 uchar_value_16 int16_value_16 uint16_value_16 int32_value_16 uint32_value_16 int64_value_16 uint64_value_16;
    bool_value_17 string_value_17 char_value_17 uchar_value_17 int16_value_17 uint16_value_17 int32_value_17 uint32_value_17 int64_value_17 uint64_value_17;
    bool_value_18 string_value_18 char_value_18 uchar_value_18 int16_value_18 uint16_value_18 int32_value_18 uint32_value_18 int64_value_18 uint64_value_18;
    bool_value_19 string_value_19 char_value_19 uchar_value_19 int16_value_19 uint16_value_19 int32_value_19 uint32_value_19 int64_value_19 uint64_value_19;
    bool_value_20 string_value_20 char_value_20 uchar_value_20 int16_value_20 uint16_value_20 int32_value_20 uint32_value_20 int64_value_20 uint64_value_20;
    bool_value_21 string_value_21 char_value_21 uchar_value_21 int16_value_21 uint16_value_21 int32_value_21 uint32_value_21 int64_value_21 uint64_value_21;
    bool_value_22 string_value_22 char_value_22 uchar_value_22 int16_value_22 uint16_value_22 int32_value_22 uint32_value_22 int64_value_22 uint64_value_22;
    bool_value_23 string_value_23 char_value_23 uchar_value_23 int16_value_23 uint16_value_23 int32_value_23 uint32_value_23 int64_value_23 uint64_value_23;
    bool_value_24 string_value_24 char_value_24 uchar_value_24 int16_value_24 uint16_value_24 int32_value_24 uint32_value_24 int64_value_24 uint64_value_24;
    bool_value_25 string_value_25 char_value_25 uchar_value_25 int16_value_25 uint16_value_25 int32_value_25 uint32_value_25 int64_value_25 uint64_value_25;
    bool_value_26 string_value_26 char_value_26 uchar_value_26 int16_value_26 uint16_value_26 int32_value_26 uint32_value_26 int64_value_26 uint64_value_26;
    bool_value_27 string_value_27 char_value_27 uchar_value_27 int16_value_27 uint16_value_27 int32_value_27 uint32_value_27 int64_value_27 uint64_value_27;
    bool_value_28 string_value_28 char_value_28 uchar_value_28 int16_value_28 uint16_value_28 int32_value_28 uint32_value_28 int64_value_28 uint64_value_28;
    bool_value_29 string_value_29 char_value_29 uchar_value_29 int16_value_29 uint16_value_29 int32_value_29 uint32_value_29 int64_value_29 uint64_value_29;
    bool_value_30 string_value_30 char_value_30 uchar_value_30 int16_value_30 uint16_value_30 int32_value_30 uint32_value_30 int64_value_30 uint64_value_30;
    bool_value_31 string_value_31 char_value_31 uchar_value_31 int16_value_31 uint16_value_31 int32_value_31 uint32_value_31 int64_value_31 uint64_value_31;
    bool_value_32 string_value_32 char_value_32 uchar_value_32 int16_value_32 uint16_value_32 int32_value_32 uint32_value_32 int64_value_32 uint64_value_32;
    bool_value_33 string_value_33 char_value_33 uchar_value_33 int16_value_33 uint16_value_33 int32_value_33 uint32_value_33 int64_value_33 uint64_value_33;
    bool_value_34 string_value_34 char_value_34 uchar_value_34 int16_value_34 uint16_value_34 int32_value_34 uint32_value_34 int64_value_34 uint64_value_34;
    bool_value_35 string_value_35 char_value_35 uchar_value_35 int16_value_35 uint16_value_35 int32_value_35 uint32_value_35 int64_value_35 uint64_value_35;
    bool_value_36 string_value_36 char_value_36 uchar_value_36 int16_value_36 uint16_value_36 int32_value_36 uint32_value_36 int64_value_36 uint64_value_36;
    bool_value_37 string_value_37 char_value_37 uchar_value_37 int16_value_37 uint16_value_37 int32_value_37 uint32_value_37 int64_value_37 uint64_value_37;
    bool_value_38 string_value_38 char_value_38 uchar_value_38 int16_value_38 uint16_value_38 int32_value_38 uint32_value_38 int64_value_38 uint64_value_38;
    bool_value_39 string_value_39 char_value_39 uchar_value_39 int16_value_39 uint16_value_39 int32_value_39 uint32_value_39 int64_value_39 uint64_value_39;
    bool_value_40 string_value_40 char_value_40 uchar_value_40 int16_value_40 uint16_value_40 int32_value_40 uint32_value_40 int64_value_40 uint64_value_40;
    bool_value_41 string_value_41 char_value_41 uchar_value_41 int16_value_41 uint16_value_41 int32_value_41 uint32_value_41 int64_value_41 uint64_value_41;
    bool_value_42 string_value_42 char_value_42 uchar_value_42 int16_value_42 uint16_value_42 int32_value_42 uint32_value_42 int64_value_42 uint64_value_42;
    bool_value_43 string_value_43 char_value_43 uchar_value_43 int16_value_43 uint16_value_43 int32_value_43 uint32_value_43 int64_value_43 uint64_value_43;
    bool_value_44 string_value_44 char_value_44 uchar_value_44 int16_value_44 uint16_value_44 int32_value_44 uint32_value_44 int64_value_44 uint64_value_44;
    bool_value_45 string_value_45 char_value_45 uchar_value_45 int16_value_45 uint16_value_45 int32_value_45 uint32_value_45 int64_value_45 uint64_value_45;
    bool_value_46 string_value_46 char_value_46 uchar_value_46 int16_value_46 uint16_value_46 int32_value_46 uint32_value_46 int64_value_46 uint64_value_46;
    bool_value_47 string_value_47 char_value_47 uchar_value_47 int16_value_47 uint16_value_47 int32_value_47 uint32_value_47 int64_value_47 uint64_value_47;
    bool_value_48 string_value_48 char_value_48 uchar_value_48 int16_value_48 uint16_value_48 int32_value_48 uint32_value_48 int64_value_48 uint64_value_48;
    bool_value_49 string_value_49 char_value_49 uchar_value_49 int16_value_49 uint16_value_49 int32_value_49 uint32_value_49 int64_value_49 uint64_value_49;
    bool_value_50 string_value_50 char_value_50 uchar_value_50 int16_value_50 uint16_value_50 int32_value_50 uint32_value_50 int64_value_50 uint64_value_50;
}
