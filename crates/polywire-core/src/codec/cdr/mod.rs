//! CDR: the format of DDS in both versions of XTypes. With alignment origin 0 it is also that of
//! GIOP.
//!
//! `cdr` is version 1 (XCDR1): alignment up to 8, mutable types as parameter lists, optional
//! members as parameters. `xcdr2` is version 2: alignment up to 4, lengths in front of appendable
//! and mutable types, member headers in mutable types. Both support either byte order, with or
//! without the 4-byte encapsulation header that DDS puts in front of a message.
//!
//! ```
//! use polywire_core::codec::{self, Encoder};
//! # use polywire_core as polywire;
//!
//! #[derive(polywire_derive::Message)]
//! #[polywire(final)]
//! struct Sample { flag: bool, value: f64 }
//!
//! let encode = |codec: &str, options: &str| {
//!     let codec = codec::find(codec).unwrap();
//!     let encoder = Encoder::<Sample>::new(codec, &options.parse().unwrap()).unwrap();
//!     let mut bytes = Vec::new();
//!     encoder.encode(&Sample { flag: true, value: 0.5 }, &mut bytes).unwrap();
//!     bytes
//! };
//! assert_eq!(encode("cdr", "be"), [1, 0, 0, 0, 0, 0, 0, 0, 0x3F, 0xE0, 0, 0, 0, 0, 0, 0]);
//! assert_eq!(encode("xcdr2", "header"), [0, 7, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xE0, 0x3F]);
//! ```

use alloc::{boxed::Box, collections::BTreeMap, string::ToString, sync::Arc, vec::Vec};

use super::{
    Codec, LowerError, LowerResult, OptionSpec, Options, Properties,
    lower::{DecodeDialect, DecodeWalk, bits_scalar, decode, encode, enum_scalar, scalar_of},
};
use crate::{
    layout::{Layout, Scalar},
    program::{Block, Op, OpKind, Order, PathId, Program, TextForm, Wire},
    schema::{Def, DefId, DefKind, Extensibility, Member, Schema, Type, array_shape},
};

mod decode_dialect;
mod encode_dialect;
pub mod key;
mod older;
mod parameters;
mod wide;

use older::OlderDialect;

/// XCDR1.
pub static CDR: Cdr = Cdr { version: Version::One };

/// XCDR2.
pub static XCDR2: Cdr = Cdr { version: Version::Two };

/// CDR in one of its versions: [`CDR`] or [`XCDR2`].
#[derive(Debug)]
pub struct Cdr {
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

static OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("le", &[], "least significant byte first (default)"),
    OptionSpec::new("be", &[], "most significant byte first"),
    OptionSpec {
        name: "header",
        values: &[],
        help: "adds the 4-byte encapsulation header of DDS, and padding to a multiple of 4 bytes; \
               when decoding, the header determines the byte order",
    },
    OptionSpec {
        name: "older",
        values: &[],
        help: "decoding accepts values of older, shorter versions of appendable types; \
               missing members get their defaults",
    },
];

static CDR_PROPERTIES: Properties = Properties {
    summary: "the binary format of DDS and CORBA, version 1",
    text: false,
    self_describing: false,
    stateful: false,
    typical_use: "lowest latency between processes; DDS systems of any age",
    specification: "OMG CORBA 3.4, 9.3 (CDR); OMG DDS-XTypes 1.3, 7.4.1 (XCDR1)",
};

static XCDR2_PROPERTIES: Properties = Properties {
    summary: "the binary format of DDS for types that evolve, version 2",
    text: false,
    self_describing: false,
    stateful: false,
    typical_use: "DDS systems with appendable and mutable types",
    specification: "OMG DDS-XTypes 1.3, 7.4.3 (XCDR2)",
};

impl Codec for Cdr {
    fn name(&self) -> &'static str {
        match self.version {
            Version::One => "cdr",
            Version::Two => "xcdr2",
        }
    }

    fn properties(&self) -> &'static Properties {
        match self.version {
            Version::One => &CDR_PROPERTIES,
            Version::Two => &XCDR2_PROPERTIES,
        }
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn lower_encode(&self, options: &Options, schema: &Schema, layout: &Arc<Layout>) -> LowerResult {
        let dialect = self.dialect(options)?;
        let program = encode::lower(&dialect, schema, layout)?;
        Ok(match options.has("header") {
            true => dialect.encapsulated(program, schema),
            false => program,
        })
    }

    fn lower_decode(&self, options: &Options, writer: &Schema, reader: &Schema, layout: &Arc<Layout>) -> LowerResult {
        let dialect = self.dialect(options)?;
        let in_order = |order| -> Box<dyn DecodeDialect> {
            let dialect = Dialect { order, ..dialect };
            if dialect.older { Box::new(OlderDialect::new(dialect)) } else { Box::new(dialect) }
        };
        if !options.has("header") {
            return decode::lower(&*in_order(dialect.order), writer, reader, layout);
        }
        let (little, big) = (in_order(Order::Little), in_order(Order::Big));
        decode::lower_several(&[&*little, &*big], writer, reader, layout, |walk, blocks| {
            dialect.get_encapsulated(walk, blocks);
        })
    }
}

impl Cdr {
    fn dialect(&self, options: &Options) -> Result<Dialect, LowerError> {
        let order = match (options.has("le"), options.has("be")) {
            (true, true) => return Err(LowerError::Option("choose one byte order, 'le' or 'be'".to_string())),
            (_, false) => Order::Little,
            (false, true) => Order::Big,
        };
        Ok(Dialect { version: self.version, order, older: options.has("older") })
    }
}

/// The properties of the format that both walks need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dialect {
    version: Version,
    order: Order,
    /// When decoding, appendable structures may end early.
    older: bool,
}

impl Dialect {
    /// The form of strings of type `ty`.
    fn text_form(&self, ty: &Type) -> TextForm {
        match ty {
            Type::WString { .. } => TextForm::Kernel(wide::kernel(self.order)),
            _ => TextForm::CountedNul { order: self.order },
        }
    }

    /// Puts the encapsulation header around an encoding program.
    fn encapsulated(&self, mut program: Program, schema: &Schema) -> Program {
        let region = OpKind::Region {
            dialect: &parameters::ENCAPSULATION,
            argument: self.encapsulation(schema) + u64::from(self.order == Order::Little),
            body: core::mem::take(&mut program.root),
        };
        program.root = Block(alloc::vec![Op { path: PathId(0), kind: region }]);
        program
    }

    /// Emits the choice between one block for each byte order, little endian first. The
    /// encapsulation header decides.
    fn get_encapsulated(&self, walk: &mut DecodeWalk<'_>, blocks: Vec<Block>) {
        let path = walk.path();
        let identifier = self.encapsulation(walk.writer());
        let block = |kind| Block(alloc::vec![Op { path, kind }]);
        let arm = |(identifier, body)| {
            let region = OpKind::Region { dialect: &parameters::ENCAPSULATION, argument: identifier, body };
            (alloc::vec![identifier as i64], block(region))
        };
        let arms = [identifier + 1, identifier].into_iter().zip(blocks).map(arm).collect();
        walk.emit(OpKind::Get(Wire::Fixed { scalar: Scalar::U16, order: Order::Big }));
        let otherwise = block(OpKind::Action(&parameters::OTHER_ENCAPSULATION, identifier));
        walk.emit(OpKind::switch(arms, otherwise));
    }

    /// The big-endian identifier of the encapsulation header; the little-endian one is larger by
    /// one. Where the tables of the specification contradict each other, this is what Cyclone DDS
    /// and Fast DDS send.
    fn encapsulation(&self, writer: &Schema) -> u64 {
        let extensibility = writer.def_of(writer.root()).map_or(Extensibility::Final, |def| def.extensibility);
        match (self.version, extensibility) {
            (Version::One, Extensibility::Mutable) => 2,
            (Version::One, _) => 0,
            (Version::Two, Extensibility::Final) => 6,
            (Version::Two, Extensibility::Appendable) => 8,
            (Version::Two, Extensibility::Mutable) => 10,
        }
    }

    /// Alignment of a scalar, in bytes.
    fn alignment(&self, scalar: Scalar) -> u8 {
        let largest = if self.version == Version::One { 8 } else { 4 };
        (scalar.size() as u8).min(largest)
    }

    /// True if the type has a DHEADER.
    fn delimited(&self, def: &Def) -> bool {
        self.version == Version::Two && def.extensibility != Extensibility::Final
    }

    /// True if a collection of these elements has a DHEADER: all except primitives. Enums and
    /// bitmasks do not count as primitives.
    fn delimited_elements(&self, schema: &Schema, elements: &[&Type]) -> bool {
        self.version == Version::Two && !elements.iter().all(|ty| schema.resolve(ty).is_primitive())
    }

    /// A lower bound of a value's size in bytes, without padding. It limits the number of elements
    /// that a message of a given length can announce.
    fn min_wire(&self, walk: &mut DecodeWalk<'_>, ty: &Type) -> u32 {
        let writer = walk.writer();
        u32::try_from(self.min_size(writer, ty, &mut walk.min_sizes)).unwrap_or(u32::MAX)
    }

    fn min_size(&self, schema: &Schema, ty: &Type, known: &mut BTreeMap<DefId, u64>) -> u64 {
        let header = |elements: &[&Type]| if self.delimited_elements(schema, elements) { 4 } else { 0 };
        match schema.resolve(ty) {
            Type::String { .. } => 5,
            Type::WString { .. } => 4,
            Type::Sequence { element, .. } => 4 + header(&[&**element]),
            Type::Map { key, value, .. } => 4 + header(&[&**key, &**value]),
            Type::Array { element, dims } => {
                let (inner, inner_dims) = array_shape(schema, element);
                let len = dims.iter().chain(&inner_dims).fold(1u64, |n, dim| n.saturating_mul(u64::from(*dim)));
                self.min_size(schema, inner, known).saturating_mul(len).saturating_add(header(&[inner]))
            }
            // Each definition is measured once, because a value may contain it very often.
            Type::Def(id) => match known.get(id) {
                Some(size) => *size,
                None => {
                    known.insert(*id, 0);
                    let size = self.min_def(schema, *id, known);
                    known.insert(*id, size);
                    size
                }
            },
            primitive => scalar_of(primitive).map_or(0, |scalar| scalar.size() as u64),
        }
    }

    fn min_def(&self, schema: &Schema, id: DefId, known: &mut BTreeMap<DefId, u64>) -> u64 {
        let def = schema.def(id);
        if let Some(scalar) = scalar_of_def(schema, id) {
            return scalar.size() as u64;
        }
        let header = if self.delimited(def) { 4 } else { 0 };
        match &def.kind {
            // A mutable type has at least a length or the end of a list.
            _ if def.extensibility == Extensibility::Mutable => 4,
            DefKind::Struct { .. } if self.older && self.delimited(def) => 4,
            DefKind::Union { discriminator, .. } => header + self.min_size(schema, discriminator, known),
            _ => schema.members(id).iter().fold(header, |sum, member| {
                let size = match (member.optional, self.version) {
                    (false, _) => self.min_size(schema, &member.ty, known),
                    (true, Version::One) => 4,
                    (true, Version::Two) => 1,
                };
                sum.saturating_add(size)
            }),
        }
    }

    /// The argument of [`parameters`]' regions for a member in XCDR1.
    fn parameter(&self, member: &Member) -> u64 {
        parameters::parameter(member.id, member.must_understand)
    }

    /// The EMHEADER of a member in XCDR2.
    fn member_header(&self, schema: &Schema, member: &Member) -> MemberHeader {
        let code = self.length_code(schema, &member.ty);
        let understood = u32::from(member.must_understand || member.key) << 31;
        MemberHeader { word: understood | u32::from(code) << 28 | member.id, sized: code == LC_NEXTINT }
    }

    /// The length code of a member: 0 to 3 for values of 1, 2, 4 and 8 bytes; 5 if the value begins
    /// with its length in bytes; 6 and 7 if it begins with the number of its elements of 4 and 8
    /// bytes; 4, with a separate length, for all others. Types with a DHEADER may have 4 or 5;
    /// other implementations write 4.
    fn length_code(&self, schema: &Schema, ty: &Type) -> u8 {
        let ty = schema.resolve(ty);
        match (fixed_scalar(schema, ty).map(Scalar::size), ty) {
            (Some(1), _) => 0,
            (Some(2), _) => 1,
            (Some(4), _) => 2,
            (Some(8), _) => 3,
            (_, Type::String { .. } | Type::WString { .. }) => 5,
            (_, Type::Array { element, .. }) if array_shape(schema, element).0.is_primitive() => LC_NEXTINT,
            (_, Type::Array { .. }) => 5,
            (_, Type::Sequence { element, .. } | Type::Map { key: element, .. })
                if !schema.resolve(element).is_primitive() =>
            {
                5
            }
            (_, Type::Sequence { element, .. }) => match fixed_scalar(schema, element).map(Scalar::size) {
                Some(1) => 5,
                Some(4) => 6,
                Some(8) => 7,
                _ => LC_NEXTINT,
            },
            _ => LC_NEXTINT,
        }
    }

    /// The bytes of a word in the byte order of the message.
    fn word(&self, word: u32) -> [u8; 4] {
        match self.order {
            Order::Little => word.to_le_bytes(),
            Order::Big => word.to_be_bytes(),
        }
    }

    /// The bytes of a half word in the byte order of the message.
    fn half(&self, half: u16) -> [u8; 2] {
        match self.order {
            Order::Little => half.to_le_bytes(),
            Order::Big => half.to_be_bytes(),
        }
    }

    /// A short parameter header of XCDR1.
    fn short_parameter(&self, id: u16, len: u16) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.half(id), self.half(len));
        [a, b, c, d]
    }
}

/// The length code of a member whose length follows in a word of its own.
const LC_NEXTINT: u8 = 4;

/// A member header of XCDR2.
struct MemberHeader {
    word: u32,
    /// True if a length follows.
    sized: bool,
}

/// The scalar that represents values of a type. `None` for texts, collections, structures and
/// unions.
fn fixed_scalar(schema: &Schema, ty: &Type) -> Option<Scalar> {
    match schema.resolve(ty) {
        Type::Def(id) => scalar_of_def(schema, *id),
        primitive => scalar_of(primitive),
    }
}

fn scalar_of_def(schema: &Schema, id: DefId) -> Option<Scalar> {
    match &schema.def(id).kind {
        DefKind::Enum { bit_bound, .. } => Some(enum_scalar(*bit_bound)),
        DefKind::Bitmask { .. } | DefKind::Bitset { .. } => Some(bits_scalar(schema, id)),
        _ => None,
    }
}

/// The member id of the discriminator in a mutable union. The case's value has the id of its
/// member.
const DISCRIMINATOR_ID: u32 = 0;
