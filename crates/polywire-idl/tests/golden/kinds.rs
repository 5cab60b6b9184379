// Written by Polywire from IDL; changes here will be lost.

pub mod kinds {
    /// How large things are.
    pub const LARGE: u32 = 64;

    pub const GREETING: &str = "hello \"you\"";

    pub const RATIO: f32 = 0.1;

    pub const FAVOURITE: Colour = Colour::DarkGreen;

    #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, polywire::Message)]
    #[polywire(name = "Kinds::Colour", bit_bound = 8)]
    #[repr(i32)]
    pub enum Colour {
        #[polywire(name = "RED")]
        Red = 1,
        #[polywire(name = "DARK_GREEN", default_literal)]
        #[default]
        DarkGreen = 4,
    }

    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq, polywire::Message)]
    #[polywire(name = "Kinds::Flags", bitmask(bit_bound = 12, READ = 0, WRITE_BACK = 9))]
    pub struct Flags(pub u16);

    impl Flags {
        /// `READ`
        pub const READ: Self = Self(1 << 0);
        /// `WRITE_BACK`
        pub const WRITE_BACK: Self = Self(1 << 9);

        /// True if all flags of `other` are set.
        pub const fn contains(self, other: Self) -> bool {
            self.0 & other.0 == other.0
        }
    }

    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq, polywire::Message)]
    #[polywire(name = "Kinds::Base", bitset(low(3), bit(1)))]
    pub struct Base(pub u64);

    impl Base {
        /// `low`
        pub const fn low(self) -> u8 {
            (self.0 & 0x7) as u8
        }

        /// Sets `low`; excess bits are dropped.
        pub const fn set_low(&mut self, value: u8) {
            self.0 = (self.0 & !0x7) | (value as u64 & 0x7);
        }

        /// `bit`
        pub const fn bit(self) -> bool {
            (self.0 >> 3) & 1 != 0
        }

        /// Sets `bit`; excess bits are dropped.
        pub const fn set_bit(&mut self, value: bool) {
            self.0 = (self.0 & !(0x1 << 3)) | ((value as u64 & 0x1) << 3);
        }
    }

    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq, polywire::Message)]
    #[polywire(name = "Kinds::Status", bitset(base = "Base", _(4), signed_part(5, "int8")))]
    pub struct Status(pub u64);

    impl Status {
        /// `low`
        pub const fn low(self) -> u8 {
            (self.0 & 0x7) as u8
        }

        /// Sets `low`; excess bits are dropped.
        pub const fn set_low(&mut self, value: u8) {
            self.0 = (self.0 & !0x7) | (value as u64 & 0x7);
        }

        /// `bit`
        pub const fn bit(self) -> bool {
            (self.0 >> 3) & 1 != 0
        }

        /// Sets `bit`; excess bits are dropped.
        pub const fn set_bit(&mut self, value: bool) {
            self.0 = (self.0 & !(0x1 << 3)) | ((value as u64 & 0x1) << 3);
        }

        /// `signed_part`
        pub const fn signed_part(self) -> i8 {
            (((self.0 << 51) as i64) >> 59) as i8
        }

        /// Sets `signed_part`; excess bits are dropped.
        pub const fn set_signed_part(&mut self, value: i8) {
            self.0 = (self.0 & !(0x1f << 8)) | ((value as u64 & 0x1f) << 8);
        }
    }

    pub type Digest = Vec<u8>;

    #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    #[polywire(name = "Kinds::Header", final, nested)]
    pub struct Header {
        #[polywire(key)]
        pub id: i32,
    }

    #[derive(Clone, Debug, PartialEq, polywire::Message)]
    #[polywire(name = "Kinds::Everything", mutable, autoid = "hash")]
    pub struct Everything {
        #[polywire(base)]
        pub base: Header,
        /// Not a Rust name.
        #[polywire(id = 7)]
        pub r#type: bool,
        #[polywire(name = "isEcho")]
        pub is_echo: bool,
        #[polywire(must_understand, idl = "octet")]
        pub raw: u8,
        pub letter: polywire::Char8,
        #[polywire(idl = "wchar")]
        pub wide: polywire::Char16,
        #[polywire(idl = "wstring<4>")]
        pub text: String,
        pub precise: polywire::Float128,
        #[polywire(idl = "sequence<octet, 16>")]
        pub digest: Digest,
        pub next: Option<Box<Everything>>,
        pub boxed: Box<Header>,
        pub matrix: [[f64; 64]; 2],
        #[polywire(idl = "map<string<4>, sequence<int16>, 10>")]
        pub table: std::collections::BTreeMap<String, Vec<i16>>,
        #[polywire(default = "DARK_GREEN")]
        pub colour: Colour,
        #[polywire(default = -5, unit = "m", min = -10, max = 10)]
        pub depth: i16,
        #[polywire(default = "x", try_construct = "trim", idl = "string<8>")]
        pub label: String,
        #[polywire(name = "self")]
        pub self_: String,
        pub inner: super::other::Inner,
    }

    impl Default for Everything {
        fn default() -> Self {
            polywire::extend::layout::MessageField::default_value()
        }
    }

    #[derive(Clone, Debug, PartialEq, polywire::Message)]
    #[polywire(name = "Kinds::Choice", final, switch_type = "Colour")]
    pub enum Choice {
        #[polywire(case(1), name = "first")]
        First(i32),
        #[polywire(default, name = "others", id = 9)]
        Others([f32; 40]),
    }

    impl Default for Choice {
        fn default() -> Self {
            polywire::extend::layout::MessageField::default_value()
        }
    }

    #[derive(Clone, Debug, PartialEq, polywire::Message)]
    #[polywire(name = "Kinds::Number", switch = "octet", key)]
    pub enum Number {
        #[polywire(case(1, 2), name = "some_number", default = 3)]
        SomeNumber(i32),
        #[polywire(case(3), name = "text", idl = "string<9>")]
        Text(String),
    }

    impl Default for Number {
        fn default() -> Self {
            polywire::extend::layout::MessageField::default_value()
        }
    }
}

pub mod other {
    #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    #[polywire(name = "Other::Inner")]
    pub struct Inner {
        pub x: i32,
    }
}
