//! Helpers of the tests of text formats.

use polywire_core::{
    codec::{self, Codec, Decoder, Encoder, Options},
    layout::{Message, Record, Shape},
    program::{Backend, CodecError, Limits},
    schema::{BitField, Case, Def, Member, Schema, SchemaBuilder, Type},
};
use polywire_testing::Wire;
use std::{fmt::Debug, sync::Arc};

/// A codec of this name.
#[derive(Clone, Copy)]
pub struct Format(pub &'static str);

impl Format {
    pub fn codec(self) -> &'static dyn Codec {
        codec::find(self.0).unwrap()
    }

    fn wire(self, options: &str) -> Wire {
        Wire { codec: self.codec(), options: options.parse().unwrap() }
    }

    /// The text of a value; the same from every back end.
    pub fn write<T: Message>(self, value: &T, options: &str) -> String {
        String::from_utf8(self.wire(options).encode(value).unwrap()).unwrap()
    }

    /// Decodes a text into the value that `into` returns. The result is the same on every back end.
    pub fn read<T: Message + Debug>(self, text: &[u8], into: impl Fn() -> T) -> Result<T, CodecError> {
        self.read_of(T::shape().schema(), text, into)
    }

    /// Returns a function that decodes a text, for many texts.
    pub fn reader<T: Message + Debug + Default>(self) -> impl Fn(&[u8]) -> Result<T, CodecError> {
        let decoders = self.wire("").decoders(T::shape().schema(), Limits::default());
        move |text| decoders.decode_all(text, T::default)
    }

    /// Decodes a text of another writer.
    pub fn read_of<T: Message + Debug>(
        self,
        writer: &Schema,
        text: &[u8],
        into: impl Fn() -> T,
    ) -> Result<T, CodecError> {
        self.wire("").decode_all(writer, text, Limits::default(), into)
    }

    /// Decodes a text under limits, on the interpreter.
    pub fn read_within<T: Message + Default>(self, text: &[u8], limits: Limits) -> Result<T, CodecError> {
        let schema = T::shape().schema();
        let decoder = Decoder::<T>::with_backend(self.codec(), &Options::default(), schema, Backend::Interpreter);
        let mut value = T::default();
        decoder.unwrap().with_limits(limits).decode(text, &mut value).map(|_| value)
    }

    pub fn write_record(self, record: &Record, options: &str) -> Result<String, CodecError> {
        let encoder = Encoder::for_shape_with_backend(
            self.codec(),
            &options.parse().unwrap(),
            record.shape(),
            Backend::Interpreter,
        );
        let mut bytes = Vec::new();
        encoder.unwrap().encode(record, &mut bytes).map(|()| String::from_utf8(bytes).unwrap())
    }

    pub fn read_record(self, shape: &Arc<Shape>, text: &[u8]) -> Result<Record, CodecError> {
        let decoder = Decoder::for_shape_with_backend(
            self.codec(),
            &Options::default(),
            shape.schema(),
            shape,
            Backend::Interpreter,
        );
        let mut record = Record::new(shape);
        decoder.unwrap().decode(text, &mut record).map(|_| record)
    }
}

/// The value is written as this text, which is read as the value.
pub fn assert_golden<T: Message + Debug + Default>(format: Format, options: &str, value: &T, text: &str) {
    assert_eq!(format.write(value, options), text);
    let read = format.read(text.as_bytes(), T::default).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(format!("{read:?}"), format!("{value:?}"), "{text}");
}

/// The same for a record that is given as JSON.
pub fn assert_golden_record(format: Format, options: &str, json: &str, text: &str) {
    let shape = everything();
    let record = Record::from_json(&shape, json).unwrap_or_else(|error| panic!("{json}: {error}"));
    assert_eq!(format.write_record(&record, options).unwrap(), text);
    let read = format.read_record(&shape, text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(read, record, "{text}");
}

/// What a derived type cannot have, or not easily.
pub fn everything() -> Arc<Shape> {
    let mut types = SchemaBuilder::new();
    let sky = types.add(Def::enumeration("Sky", ["CLEAR", "no"]));
    let colours = types.add(Def::bitmask("Colours", 8, ["RED", "BLUE"]));
    let fields = vec![BitField::new("mode", 3), BitField::new("valid", 1)];
    let status = types.add(Def::bitset("Status", fields));
    let case = |labels: &[i64], name, ty| Case {
        labels: labels.to_vec(),
        is_default: labels.is_empty(),
        member: Member::new(name, ty),
    };
    let cases = vec![
        case(&[1], "gust_kt", Type::Float32),
        case(&[2, 3], "note", Type::string()),
        case(&[], "other", Type::Bool),
    ];
    let wind = types.add(Def::union("Wind", Type::Int32, cases));
    let members = vec![
        Member::new("map", Type::map(Type::string(), Type::Int32)).as_optional(),
        Member::new("sky", Type::Def(sky)).as_optional(),
        Member::new("colours", Type::Def(colours)).as_optional(),
        Member::new("status", Type::Def(status)).as_optional(),
        Member::new("wind", Type::Def(wind)).as_optional(),
        Member::new("letter", Type::Char8).as_optional(),
        Member::new("wide", Type::Char16).as_optional(),
        Member::new("rows", Type::sequence(Type::sequence(Type::Int32))).as_optional(),
        Member::new("texts", Type::sequence(Type::string())).as_optional(),
        Member::new("long", Type::Float128).as_optional(),
        Member::new("text", Type::string()).as_optional(),
        Member::new("real", Type::Float64).as_optional(),
        Member::new("big", Type::Int64).as_optional(),
    ];
    let root = types.add(Def::structure("Everything", members));
    Shape::of(&types.finish(Type::Def(root)).unwrap()).unwrap()
}

/// The golden vectors of a file in `conformance/FOLDER`.
pub fn vectors(folder: &str, file: &str) -> Vec<serde_json::Value> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance").join(folder).join(file);
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The types of `listing.idl`, which the golden vectors use.
pub mod golden {
    use polywire_derive::Message;

    #[derive(Message, Debug, PartialEq, Clone, Default)]
    #[polywire(name = "Golden::SystemTime", final)]
    pub struct SystemTime {
        pub system_time: i32,
    }

    #[derive(Message, Debug, PartialEq, Clone, Default)]
    #[polywire(name = "Golden::ProcessorTimes", final)]
    pub struct ProcessorTimes {
        pub idle_time: i32,
        pub system_time: i32,
        pub user_time: i32,
    }

    #[derive(Message, Debug, PartialEq, Clone, Default)]
    #[polywire(name = "Golden::Place", final)]
    pub struct Place {
        pub latitude_deg: f64,
        pub longitude_deg: f64,
    }

    #[derive(Message, Debug, PartialEq, Clone, Default)]
    #[polywire(name = "Golden::Elements", final)]
    pub struct Elements {
        pub flag: bool,
        pub small: i32,
        pub large: i64,
        pub ratio: f64,
        pub text: String,
        pub place: Place,
        pub counts: Vec<i32>,
        #[polywire(idl = "sequence<octet>")]
        pub blob: Vec<u8>,
        pub remark: Option<String>,
    }
}
