//! A macro with the names of CodecsTest's members, for macros that need each name.

/// Calls another macro with the names of the members of the CodecsTest that has 10, 50, 100, 250 or
/// 500 members. The arguments of that macro are the tokens in braces, then the names in groups of
/// ten:
///
/// ```
/// macro_rules! last_strings {
///     ($what:literal $($bool:ident $string:ident $($other:ident)*;)+) => { [$what, $(stringify!($string)),+] };
/// }
/// let strings = polywire_workloads::codecs_test_members! { 50 last_strings { "strings" } };
/// assert_eq!((strings[0], strings[5]), ("strings", "string_value_5"));
/// ```
#[macro_export]
macro_rules! codecs_test_members {
    (10 $then:ident { $($given:tt)* } $($more:tt)*) => {
        $then! {
            $($given)*
            bool_value_1 string_value_1 char_value_1 uchar_value_1 int16_value_1 uint16_value_1 int32_value_1 uint32_value_1 int64_value_1 uint64_value_1;
            $($more)*
        }
    };
    (50 $then:ident $given:tt $($more:tt)*) => {
        $crate::codecs_test_members! {
            10 $then $given
            bool_value_2 string_value_2 char_value_2 uchar_value_2 int16_value_2 uint16_value_2 int32_value_2 uint32_value_2 int64_value_2 uint64_value_2;
            bool_value_3 string_value_3 char_value_3 uchar_value_3 int16_value_3 uint16_value_3 int32_value_3 uint32_value_3 int64_value_3 uint64_value_3;
            bool_value_4 string_value_4 char_value_4 uchar_value_4 int16_value_4 uint16_value_4 int32_value_4 uint32_value_4 int64_value_4 uint64_value_4;
            bool_value_5 string_value_5 char_value_5 uchar_value_5 int16_value_5 uint16_value_5 int32_value_5 uint32_value_5 int64_value_5 uint64_value_5;
            $($more)*
        }
    };
    (100 $then:ident $given:tt $($more:tt)*) => {
        $crate::codecs_test_members! {
            50 $then $given
            bool_value_6 string_value_6 char_value_6 uchar_value_6 int16_value_6 uint16_value_6 int32_value_6 uint32_value_6 int64_value_6 uint64_value_6;
            bool_value_7 string_value_7 char_value_7 uchar_value_7 int16_value_7 uint16_value_7 int32_value_7 uint32_value_7 int64_value_7 uint64_value_7;
            bool_value_8 string_value_8 char_value_8 uchar_value_8 int16_value_8 uint16_value_8 int32_value_8 uint32_value_8 int64_value_8 uint64_value_8;
            bool_value_9 string_value_9 char_value_9 uchar_value_9 int16_value_9 uint16_value_9 int32_value_9 uint32_value_9 int64_value_9 uint64_value_9;
            bool_value_10 string_value_10 char_value_10 uchar_value_10 int16_value_10 uint16_value_10 int32_value_10 uint32_value_10 int64_value_10 uint64_value_10;
            $($more)*
        }
    };
    (250 $then:ident $given:tt $($more:tt)*) => {
        $crate::codecs_test_members! {
            100 $then $given
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
            $($more)*
        }
    };
    (500 $then:ident $given:tt $($more:tt)*) => {
        $crate::codecs_test_members! {
            250 $then $given
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
            $($more)*
        }
    };
}
