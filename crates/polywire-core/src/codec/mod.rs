//! Wire formats. [`CODECS`] is the table of all codecs: a new codec is a folder here and a line in
//! the table; then it is listed, tested and benchmarked like the others.
//!
//! A codec only lowers: from a schema and a layout to an encode program, from a writer's schema and
//! a reader's to a decode program. [`Encoder`] and [`Decoder`] run them, for values of a Rust type
//! or for records.
//!
//! ```
//! use polywire_core::codec::{self, Decoder, Encoder, Options};
//! # use polywire_core as polywire;
//!
//! #[derive(Default, Debug, PartialEq, polywire_derive::Message)]
//! #[polywire(name = "Geo::Position")]
//! struct Position { latitude_deg: f64, longitude_deg: f64 }
//!
//! let cdr = codec::find("cdr").unwrap();
//! let encoder = Encoder::<Position>::new(cdr, &Options::default()).unwrap();
//! let mut bytes = Vec::new();
//! encoder.encode(&Position { latitude_deg: 48.1, longitude_deg: 11.5 }, &mut bytes).unwrap();
//! assert_eq!(bytes.len(), 16);
//!
//! let decoder = Decoder::<Position>::new(cdr, &Options::default(), encoder.schema()).unwrap();
//! let mut position = Position::default();
//! decoder.decode(&bytes, &mut position).unwrap();
//! assert_eq!(position.latitude_deg, 48.1);
//! ```
//!
//! The same value in each of the formats that need no schema to be read, or only numbers:
//!
//! ```
//! use polywire_core::codec::{self, Decoder, Encoder, Options};
//!
//! #[derive(Debug, Default, PartialEq, polywire_derive::Message)]
//! struct Pump { id: u32, name: String }
//!
//! let (pump, options) = (Pump { id: 7, name: "P".into() }, Options::default());
//! let formats: [(&str, &[u8]); 8] = [
//!     ("json", br#"{"id":7,"name":"P"}"#),
//!     ("yaml", b"id: 7\nname: P"),
//!     ("xml", b"<Pump><id>7</id><name>P</name></Pump>"),
//!     ("bson", b"\x1D\0\0\0\x12id\0\x07\0\0\0\0\0\0\0\x02name\0\x02\0\0\0P\0\0"),
//!     ("msgpack", b"\x82\xA2id\x07\xA4name\xA1P"),
//!     ("cbor", b"\xA2\x62id\x07\x64name\x61P"),
//!     ("ubjson", b"{i\x02idi\x07i\x04nameSi\x01P}"),
//!     ("protobuf", b"\x08\x07\x12\x01P"),
//! ];
//! for (format, written) in formats {
//!     let (codec, mut bytes, mut read) = (codec::find(format).unwrap(), Vec::new(), Pump::default());
//!     let encoder = Encoder::<Pump>::new(codec, &options)?;
//!     encoder.encode(&pump, &mut bytes)?;
//!     assert_eq!(bytes, written);
//!     Decoder::new(codec, &options, encoder.schema())?.decode(&bytes, &mut read)?;
//!     assert_eq!(read, pump);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::{
    format,
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};
use core::{fmt, str::FromStr};

use crate::{
    layout::Layout,
    program::{Program, exec::ExecError},
    schema::Schema,
};

pub mod bson;
pub mod cbor;
pub mod cdr;
mod coder;
pub mod fast;
pub mod json;
pub mod lower;
pub mod msgpack;
pub mod protobuf;
pub mod stateful;
pub mod ubjson;
pub mod xml;
pub mod yaml;

pub use coder::{Decoder, Encoder};
pub use lower::LowerError;

/// All codecs of this crate, in the order of listings.
pub static CODECS: &[&dyn Codec] = &[
    &cdr::CDR,
    &cdr::XCDR2,
    &json::JSON,
    &bson::BSON,
    &msgpack::MSGPACK,
    &cbor::CBOR,
    &ubjson::UBJSON,
    &protobuf::PROTOBUF,
    &fast::FAST,
    &xml::XML,
    &xml::XML_DOM,
    &yaml::YAML,
    &yaml::YAML_FLOW,
];

/// The codec with this name.
pub fn find(name: &str) -> Option<&'static dyn Codec> {
    CODECS.iter().copied().find(|codec| codec.name() == name)
}

/// A wire format. It is a compiler front end: it turns types into programs.
///
/// ```
/// use polywire_core::codec::{self, BuildError, Codec, LowerError, OptionSpec, Options, Properties, CODECS};
/// use polywire_core::{codec::{Decoder, Encoder}, layout::Message, program::{Backend, Limits}};
///
/// for codec in CODECS {
///     let Properties { summary, text, .. } = codec.properties();
///     println!("{}: {summary}{}", codec.name(), if *text { ", for people" } else { "" });
/// }
/// let cdr: &dyn Codec = codec::find("cdr").unwrap();
/// let order: &OptionSpec = cdr.options().iter().find(|option| option.name == "be").unwrap();
/// assert!(order.values.is_empty());
/// let options: Options = "be".parse()?;
/// assert!(options.has("be") && options.value("be") == Some("") && options.check(cdr).is_ok());
/// assert!(matches!("sideways".parse::<Options>()?.check(cdr), Err(LowerError::Option(_))));
///
/// #[derive(Default, polywire_derive::Message)]
/// struct Pump { id: u32 }
/// let encoder = Encoder::<Pump>::with_backend(cdr, &options, Backend::Interpreter)?;
/// let mut bytes = Vec::new();
/// encoder.encode(&Pump { id: 7 }, &mut bytes)?;
/// assert_eq!(bytes, [0, 0, 0, 7]);
/// assert!(!encoder.executable().is_machine_code());
/// let narrow = Limits { message_bytes: 2, ..Limits::default() };
/// assert!(encoder.clone().with_limits(narrow).encode(&Pump { id: 7 }, &mut bytes).is_err());
/// let decoder = Decoder::<Pump>::with_backend(cdr, &options, Pump::shape().schema(), Backend::Interpreter)?;
/// let mut pump = Pump::default();
/// assert_eq!(decoder.with_limits(Limits::default()).decode(&bytes, &mut pump)?, 4);
/// assert!(matches!(Encoder::<Pump>::new(cdr, &"no=1".parse()?), Err(BuildError::Lower(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Codec: Send + Sync {
    /// The name in a wire string: lower-case letters, digits and `-`.
    fn name(&self) -> &'static str;

    /// Properties for listings and choices.
    fn properties(&self) -> &'static Properties;

    /// The options that it accepts.
    fn options(&self) -> &'static [OptionSpec];

    /// How a message identifies members.
    ///
    /// ```
    /// use polywire_core::codec::{self, Codec as _, Evolution};
    ///
    /// let evolution = |codec| codec::find(codec).unwrap().evolution();
    /// assert_eq!([evolution("cdr"), evolution("json")], [Evolution::Schema, Evolution::Names]);
    /// assert_eq!(evolution("protobuf"), Evolution::Numbers);
    /// assert!(Evolution::Numbers.summary().contains("numbers"));
    /// ```
    fn evolution(&self) -> Evolution {
        if self.properties().self_describing { Evolution::Names } else { Evolution::Schema }
    }

    /// The codec's configuration beyond its options, as a document that readers fetch by its hash:
    /// FAST's templates, unless they are derived from the type. `None` if there is none.
    fn configuration(&self) -> Option<Vec<u8>> {
        None
    }

    /// Returns the same codec with the configuration in this document. Fails if the codec takes
    /// none, or the document is not valid.
    ///
    /// ```
    /// use polywire_core::codec::{self, Codec as _};
    ///
    /// let xml = "<template name='Tick' id='1'><uInt32 name='count'><increment/></uInt32></template>";
    /// let fast = codec::find("fast").unwrap();
    /// let configured = fast.configured(xml.as_bytes()).unwrap();
    /// assert!(fast.configuration().is_none() && configured.configuration().is_some());
    /// assert!(codec::find("cdr").unwrap().configured(xml.as_bytes()).is_err());
    /// ```
    fn configured(&self, _document: &[u8]) -> Result<Arc<dyn Codec>, LowerError> {
        Err(LowerError::Option(format!("codec '{}' is not configured by a document", self.name())))
    }

    /// Makes the program that writes values of `schema`. Their memory layout is `layout`, and the
    /// program must be made for this very `Arc`. Callers pass schemas [with flat
    /// arrays](Schema::with_flat_arrays): the elements of an array are never arrays, neither in the
    /// type nor in memory.
    fn lower_encode(&self, options: &Options, schema: &Schema, layout: &Arc<Layout>) -> Result<Program, LowerError>;

    /// Makes the program that reads values of `writer` into values of `reader`. The requirements of
    /// [`Codec::lower_encode`] apply to both schemas and to `layout`.
    fn lower_decode(
        &self,
        options: &Options,
        writer: &Schema,
        reader: &Schema,
        layout: &Arc<Layout>,
    ) -> Result<Program, LowerError>;
}

/// A codec of this crate without a configuration: its table entry. [`Codec`] says what it does.
pub struct BuiltIn {
    name: &'static str,
    properties: &'static Properties,
    options: &'static [OptionSpec],
    evolution: Evolution,
    encode: fn(&Options, &Schema, &Arc<Layout>) -> LowerResult,
    decode: fn(&Options, &Schema, &Schema, &Arc<Layout>) -> LowerResult,
}

impl Codec for BuiltIn {
    fn name(&self) -> &'static str {
        self.name
    }

    fn properties(&self) -> &'static Properties {
        self.properties
    }

    fn options(&self) -> &'static [OptionSpec] {
        self.options
    }

    fn evolution(&self) -> Evolution {
        self.evolution
    }

    fn lower_encode(&self, options: &Options, schema: &Schema, layout: &Arc<Layout>) -> LowerResult {
        (self.encode)(options, schema, layout)
    }

    fn lower_decode(&self, options: &Options, writer: &Schema, reader: &Schema, layout: &Arc<Layout>) -> LowerResult {
        (self.decode)(options, writer, reader, layout)
    }
}

/// Properties by which users compare codecs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// One line for listings.
    pub summary: &'static str,
    /// True for a format that people can read.
    pub text: bool,
    /// True if a message can be decoded without a schema.
    pub self_describing: bool,
    /// True if a message may refer to earlier messages.
    pub stateful: bool,
    /// What it is typically used for.
    pub typical_use: &'static str,
    /// The specification of the format.
    pub specification: &'static str,
}

/// How a message identifies members, which decides what a reader with another version of the type
/// can do without the writer's schema. With it, which nodes fetch from each other, all formats
/// evolve by the same rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evolution {
    /// By their order. A reader needs the writer's schema, except for what the format itself
    /// allows.
    Schema,
    /// By their names.
    Names,
    /// By their numbers.
    Numbers,
}

impl Evolution {
    /// One line for listings.
    pub fn summary(self) -> &'static str {
        match self {
            Evolution::Schema => "evolves by the writer's schema",
            Evolution::Names => "evolves by the writer's schema, for peers without it by members' names",
            Evolution::Numbers => "evolves by the writer's schema, for peers without it by members' numbers",
        }
    }
}

/// What a codec's lowering returns.
pub(crate) type LowerResult = Result<Program, LowerError>;

/// An option of a codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    /// The name in a wire string.
    pub name: &'static str,
    /// Allowed values. Empty for an option without a value. `N` stands for a number, `FILE` for the
    /// path of a file.
    pub values: &'static [&'static str],
    /// One line for listings, beginning with the default.
    pub help: &'static str,
}

impl OptionSpec {
    pub(crate) const fn new(name: &'static str, values: &'static [&'static str], help: &'static str) -> OptionSpec {
        OptionSpec { name, values, help }
    }

    fn takes(&self, value: &str) -> bool {
        self.values.iter().any(|allowed| match *allowed {
            "N" => value.parse::<u64>().is_ok(),
            "FILE" => !value.is_empty(),
            allowed => allowed == value,
        })
    }
}

/// A codec's options: in a wire string, the part after the colon, such as
/// `be,header,int64=string`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(Vec<(String, String)>);

impl Options {
    /// True if the option is set.
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The option's value, empty if it is set without a value. `None` if it is not set.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns these options with one added. It replaces an option of the same name.
    pub fn with(mut self, name: &str, value: &str) -> Options {
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_string(), value.to_string()));
        self
    }

    /// Returns these options without the one of this name.
    ///
    /// ```
    /// use polywire_core::codec::Options;
    /// let options: Options = "be,header".parse()?;
    /// assert_eq!(options.without("be").to_string(), "header");
    /// # Ok::<(), polywire_core::codec::LowerError>(())
    /// ```
    pub fn without(mut self, name: &str) -> Options {
        self.0.retain(|(known, _)| known != name);
        self
    }

    /// Checks that the codec accepts all options and their values.
    pub fn check(&self, codec: &dyn Codec) -> Result<(), LowerError> {
        let wrong = |text: String| Err(LowerError::Option(format!("codec '{}': {text}", codec.name())));
        for (name, value) in &self.0 {
            let Some(spec) = codec.options().iter().find(|spec| spec.name == name) else {
                let known: Vec<&str> = codec.options().iter().map(|spec| spec.name).collect();
                return wrong(format!("there is no option '{name}'; there are: {}", known.join(", ")));
            };
            let fits = if spec.values.is_empty() { value.is_empty() } else { spec.takes(value) };
            if !fits {
                let allowed = if spec.values.is_empty() { "none".to_string() } else { spec.values.join(", ") };
                return wrong(format!("option '{name}' has the value '{value}'; allowed: {allowed}"));
            }
        }
        Ok(())
    }
}

impl FromStr for Options {
    type Err = LowerError;

    fn from_str(text: &str) -> Result<Options, LowerError> {
        let mut options = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            if options.iter().any(|(known, _)| known == name) {
                return Err(LowerError::Option(format!("option '{name}' occurs twice")));
            }
            options.push((name.to_string(), value.to_string()));
        }
        Ok(Options(options))
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let equals = if value.is_empty() { "" } else { "=" };
            write!(f, "{comma}{name}{equals}{value}")?;
        }
        Ok(())
    }
}

/// Why an encoder or decoder cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The codec does not support the type, or the reader's type cannot understand the writer's.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The program cannot be verified or compiled: a bug in the codec, or [`Backend::Jit`] was
    /// requested on a platform without machine code.
    ///
    /// [`Backend::Jit`]: crate::program::Backend::Jit
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The codec made a program for another type or for the other direction. This is a bug in the
    /// codec.
    #[error("codec '{0}' made a program for another type, or of the other direction")]
    Foreign(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        layout::Shape,
        program::{Block, InlineKernel, Limits, OpKind, Output, Status, Wire, passes},
        schema::{Def, Member, SchemaBuilder, Type},
    };

    fn inline_kernels(block: &Block, found: &mut Vec<(&'static InlineKernel, u64)>) {
        for op in &block.0 {
            if let OpKind::Put(Wire::Inline(kernel, argument)) = op.kind {
                found.push((kernel, argument));
            }
            passes::inner_blocks(&op.kind, &mut |inner| inline_kernels(inner, found));
        }
    }

    /// What machine code relies on, and the interpreter does not: it clears the room and cuts.
    #[test]
    fn inline_kernels_write_their_full_length() {
        let types = [Type::Int8, Type::Uint8, Type::Int32, Type::Uint32, Type::Int64, Type::Uint64, Type::Float64];
        let (mut schema, mut met) = (SchemaBuilder::new(), 0);
        let literals = Def::enumeration("E", ["A", "B"]);
        let literals = Type::Def(schema.add(literals));
        let types = types.into_iter().chain([Type::Float32, Type::Bool, literals.clone(), Type::sequence(literals)]);
        let member = |(i, ty): (usize, Type)| {
            [Member::new(format!("m{i}"), ty.clone()), Member::new(format!("o{i}"), ty).as_optional()]
        };
        let root = schema.add(Def::structure("S", types.enumerate().flat_map(member).collect()));
        let shape = Shape::of(&schema.finish(Type::Def(root)).unwrap()).unwrap();
        for codec in CODECS {
            let program = codec.lower_encode(&Options::default(), shape.schema(), shape.layout()).unwrap();
            let mut found = Vec::new();
            inline_kernels(&program.root, &mut found);
            for (kernel, argument) in found {
                assert!(kernel.exact, "{kernel:?}");
                let values = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, !(1 << bit), (1 << bit) + 1]);
                for value in values {
                    let written = [0x00, 0xFF].map(|fill| {
                        let (limits, mut bytes) = (Limits::default(), Vec::from([fill; 64]));
                        bytes.clear();
                        let mut output = Output::new(&mut bytes, &limits);
                        let status = output.put_inline(|room| {
                            let len = (kernel.put)(room, argument, value);
                            assert!(len <= 32, "{kernel:?}: {len}");
                            len
                        });
                        assert_eq!(output.finish(status), Status::Ok);
                        bytes
                    });
                    assert_eq!(written[0], written[1], "{kernel:?}, {value}");
                    met += 1;
                }
            }
        }
        assert!(met > 10_000, "there are such kernels: {met}");
    }
}
