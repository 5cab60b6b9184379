//! FAST 1.1 (FIX Adapted for STreaming): fields without tags or lengths, each encoded relative to
//! an earlier value.
//!
//! A set of [templates](template) defines the fields. [`FAST`] derives it from the type. [`Fast`]
//! takes a given one; for a foreign feed, [`Fast::feed`] also makes the type. `spec/fast.md`
//! defines the derived templates and the representation of types that FAST lacks.
//!
//! An encoder or decoder that is used without a [`State`](crate::program::State) treats each
//! message as a key frame, which refers to no other message. With a state, messages refer to
//! earlier ones.
//!
//! ```
//! use polywire_core::{codec::{Decoder, Encoder, Options, fast::FAST}, program::State};
//! # use polywire_core as polywire;
//!
//! #[derive(Default, Debug, PartialEq, polywire_derive::Message)]
//! struct Tick { symbol: String, price: f64, count: u32 }
//!
//! let encoder = Encoder::<Tick>::new(&FAST, &Options::default())?;
//! let decoder = Decoder::<Tick>::new(&FAST, &Options::default(), encoder.schema())?;
//! let (mut writer, mut reader) = (encoder.state().unwrap(), decoder.state().unwrap());
//! let (mut tick, mut back) = (Tick { symbol: "POLY".into(), price: 17.25, count: 100 }, Tick::default());
//! for size in [12, 3, 3] {
//!     let mut bytes = Vec::new();
//!     encoder.encode_with(&mut writer, true, &tick, &mut bytes)?;
//!     decoder.decode_with(&mut reader, true, &bytes, &mut back)?;
//!     assert_eq!((bytes.len(), &back), (size, &tick));
//!     tick.price += 0.25;
//!     tick.count += 1;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::{format, sync::Arc, vec::Vec};

use super::{
    Codec, LowerError, LowerResult, OptionSpec, Options, Properties,
    lower::{decode as decoding, encode as encoding},
};
use crate::{layout::Layout, program::state::Policy, schema::Schema};

mod bind;
mod decimals;
mod decode;
mod derive;
mod encode;
mod field;
mod learn;
mod lowering;
mod names;
mod numbers;
mod plan;
mod schema;
pub mod template;
mod texts;
mod wide;

pub use learn::{LearnOptions, Learned, learn};
use template::TemplateSet;

/// FAST with templates derived from the type.
pub static FAST: Fast = Fast { templates: None };

/// FAST with the given templates, or with templates derived from each type if there are none.
#[derive(Clone, Debug, Default)]
pub struct Fast {
    templates: Option<Arc<TemplateSet>>,
}

static OPTIONS: &[OptionSpec] = &[
    OptionSpec::new(
        "deviations",
        &["reject", "report", "ignore"],
        "what to do with the specification's reportable errors R1 to R9: refuse the message (default), report it, or ignore it",
    ),
    OptionSpec::new(
        "mode",
        &["chained", "anchored"],
        "what a message refers to: the previous message (default on links without loss), or the last key frame (default elsewhere)",
    ),
    OptionSpec::new(
        "key_interval",
        &["N"],
        "number of messages from one key frame to the next: 100 (default); 0 for key frames only on request",
    ),
    OptionSpec::new(
        "template",
        &["FILE"],
        "templates in XML, instead of those derived from the type (default); subscribers fetch them",
    ),
    OptionSpec::new(
        "id",
        &["N"],
        "the template id that applies until a message states one; by default the first message must state it",
    ),
];

static PROPERTIES: Properties = Properties {
    summary: "FAST: only changes are sent; the format of market data feeds",
    text: false,
    self_describing: false,
    stateful: true,
    typical_use: "many similar messages over links with little bandwidth",
    specification: "FIX Protocol, FAST Specification 1.1",
};

impl Fast {
    /// FAST with these templates.
    pub fn new(templates: TemplateSet) -> Fast {
        Fast { templates: Some(Arc::new(templates)) }
    }

    /// FAST with the templates of a foreign feed, and the type that they describe: the structure of
    /// the only template with an id, or a union whose cases template ids select.
    pub fn feed(templates: TemplateSet) -> Result<(Fast, Schema), LowerError> {
        let schema = schema::schema(&templates)?;
        Ok((Fast::new(templates), schema))
    }

    /// The templates that this codec uses for a type.
    pub fn templates(&self, schema: &Schema) -> Result<Arc<TemplateSet>, LowerError> {
        match &self.templates {
            Some(templates) => Ok(templates.clone()),
            None => TemplateSet::for_schema(schema).map(Arc::new),
        }
    }

    fn plans(&self, options: &Options, schema: &Schema) -> Result<plan::Plans, LowerError> {
        if let Some(file) = options.value("template") {
            let reason = format!("the template file '{file}' was not read: give its text to Codec::configured");
            return Err(LowerError::Option(reason));
        }
        let policy = match options.value("deviations") {
            None | Some("reject") => Policy::Reject,
            Some("report") => Policy::Report,
            Some("ignore") => Policy::Ignore,
            Some(other) => return Err(LowerError::Option(format!("'deviations' is not '{other}'"))),
        };
        let first = options.value("id").map(|text| text.parse::<u32>().map_err(|_| text)).transpose();
        let first = first.map_err(|text| LowerError::Option(format!("'id' is a number of 32 bits, not '{text}'")))?;
        bind::bind(&*self.templates(schema)?, schema, policy, first)
    }
}

impl TemplateSet {
    /// Derives the templates of a type.
    ///
    /// ```
    /// use polywire_core::codec::fast::template::{Initial, OperatorKind, TemplateSet};
    /// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
    /// # let mut types = SchemaBuilder::new();
    /// # let tick = types.add(Def::structure("Tick", vec![Member::new("count", Type::Uint32)]));
    /// # let schema = types.finish(Type::Def(tick))?;
    /// // `schema` is of struct Tick { uint32 count; };
    /// assert!(TemplateSet::for_schema(&schema)?.to_xml().contains(r#"<uInt32 name="count""#));
    /// // With a chosen operator.
    /// let chosen = TemplateSet::for_schema_with(&schema, |_path, field| {
    ///     if field.name.local == "count" {
    ///         *field = field.clone().with(OperatorKind::Increment).starting(Initial::Int(1));
    ///     }
    /// })?;
    /// assert!(chosen.to_xml().contains("<increment"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_schema(schema: &Schema) -> Result<TemplateSet, LowerError> {
        derive::templates(schema, &mut derive::keep_all)
    }

    /// Derives the templates of a type like [`TemplateSet::for_schema`]. `choose` gets the path of
    /// each field and may change the field's operator and initial value.
    pub fn for_schema_with(
        schema: &Schema,
        mut choose: impl FnMut(&str, &mut template::Field),
    ) -> Result<TemplateSet, LowerError> {
        derive::templates(schema, &mut choose)
    }

    /// The type of messages with these templates.
    pub fn schema(&self) -> Result<Schema, LowerError> {
        schema::schema(self)
    }
}

impl Codec for Fast {
    fn name(&self) -> &'static str {
        "fast"
    }

    fn properties(&self) -> &'static Properties {
        &PROPERTIES
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn configuration(&self) -> Option<Vec<u8>> {
        self.templates.as_ref().map(|templates| templates.to_xml().into_bytes())
    }

    fn configured(&self, document: &[u8]) -> Result<Arc<dyn Codec>, LowerError> {
        let wrong = |what: &dyn core::fmt::Display| LowerError::Option(format!("the templates cannot be used: {what}"));
        let xml = core::str::from_utf8(document).map_err(|error| wrong(&error))?;
        let templates = TemplateSet::parse(xml).map_err(|error| wrong(&error))?;
        Ok(Arc::new(Fast::new(templates)))
    }

    fn lower_encode(&self, options: &Options, schema: &Schema, layout: &Arc<Layout>) -> LowerResult {
        let plans = self.plans(options, schema)?;
        let mut program = encoding::lower(&lowering::Lowering::new(&plans), schema, layout)?;
        if let Some((id, field)) = &plans.id {
            let root = core::mem::take(&mut program.root);
            program.root = encode::message(&plans, (*id, field), root);
        }
        program.bank = Some(Arc::new(plans.bank));
        Ok(program)
    }

    fn lower_decode(&self, options: &Options, writer: &Schema, reader: &Schema, layout: &Arc<Layout>) -> LowerResult {
        let plans = self.plans(options, writer)?;
        let mut program = decoding::lower(&lowering::Lowering::new(&plans), writer, reader, layout)?;
        if let Some((id, field)) = &plans.id {
            let root = core::mem::take(&mut program.root);
            program.root = decode::message(&plans, (*id, field), root);
        }
        program.bank = Some(Arc::new(plans.bank));
        Ok(program)
    }
}
