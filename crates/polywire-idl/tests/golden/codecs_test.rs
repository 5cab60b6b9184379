// Written by Polywire from IDL; changes here will be lost.

pub mod codecs_test {
    #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
    #[polywire(name = "CodecsTest::Codecs_Test")]
    pub struct CodecsTest {
        pub bool_value_1: bool,
        pub string_value_1: String,
        pub char_value_1: i8,
        pub uchar_value_1: u8,
        pub int16_value_1: i16,
        pub uint16_value_1: u16,
        pub int32_value_1: i32,
        pub uint32_value_1: u32,
        pub int64_value_1: i64,
        pub uint64_value_1: u64,
    }
}
