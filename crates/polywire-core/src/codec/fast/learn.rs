//! Learns templates from sample messages: for each field the operator and initial value that take
//! the fewest bytes. Users call [`learn`]. It reads samples and makes templates.
//!
//! Fields are independent, so the cost of each operator is computed for each field separately, over
//! its values in all samples.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};

use super::{
    Fast,
    template::{Field, FieldType, Initial, Operator, OperatorKind, TemplateSet},
};
use crate::{
    codec::{BuildError, Encoder, LowerError, Options},
    layout::{Record, Shape, ValueRef},
    program::{Backend, state::float::decompose},
    schema::{DefId, Schema, Type, recursive},
};

/// Options of [`learn`].
///
/// ```
/// use polywire_core::codec::fast::LearnOptions;
/// let options = LearnOptions { interval: 100, ..LearnOptions::default() };
/// assert!(!options.constants);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnOptions {
    /// Number of messages from one key frame to the next, at which all previous values are
    /// forgotten. 0 means a key frame only at the beginning.
    pub interval: usize,
    /// If true, a mandatory integer or string with the same value in all samples becomes a
    /// constant, which takes no bits on the wire. Encoding then fails for messages with another
    /// value. If false, the templates can encode any value of the type.
    pub constants: bool,
}

/// The result of [`learn`].
#[derive(Clone, Debug)]
pub struct Learned {
    /// The templates. They can encode any value of the type, except for
    /// [constants](LearnOptions::constants).
    pub templates: TemplateSet,
    /// Number of samples that could be encoded.
    pub messages: usize,
    /// Size of these samples in bytes with the templates derived from the type.
    pub derived_bytes: usize,
    /// Size of these samples in bytes with the learned templates.
    pub learned_bytes: usize,
}

/// Learns the templates of a type from samples, in the order in which they were sent. Fails if a
/// sample was not made from this very `shape`, even if its shape is equal.
///
/// ```
/// use polywire_core::{codec::fast::{LearnOptions, Learned, learn}, layout::{Record, Shape}, schema::{Def, Member, SchemaBuilder, Type}};
///
/// let mut types = SchemaBuilder::new();
/// let root = types.add(Def::structure("Tick", vec![Member::new("count", Type::Uint32), Member::new("venue", Type::Uint32)]));
/// let shape = Shape::of(&types.finish(Type::Def(root))?)?;
/// let samples: Vec<Record> = (0..100u32).map(|i| {
///     let mut record = Record::new(&shape);
///     record.set("count", i).unwrap();
///     record.set("venue", 7u32).unwrap();
///     record
/// }).collect();
/// let Learned { templates, learned_bytes, derived_bytes, .. } = learn(&shape, &samples, &LearnOptions::default())?;
/// assert!(templates.to_xml().contains("<increment"));
/// assert!(3 * learned_bytes < 2 * derived_bytes);
/// let strict = learn(&shape, &samples, &LearnOptions { constants: true, ..LearnOptions::default() })?;
/// assert!(strict.templates.to_xml().contains("<constant value=\"7\"/>"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn learn(shape: &Arc<Shape>, samples: &[Record], options: &LearnOptions) -> Result<Learned, BuildError> {
    let interval = options.interval;
    if samples.iter().any(|sample| !Arc::ptr_eq(sample.shape(), shape)) {
        return Err(LowerError::Option("the samples have another shape than the one to learn for".to_string()).into());
    }
    let schema = shape.schema();
    let mut watcher =
        Watcher { schema, recursive: recursive(schema.defs()), path: String::new(), series: BTreeMap::new() };
    for (number, record) in samples.iter().enumerate() {
        if interval > 0 && number % interval == 0 {
            watcher.series.values_mut().for_each(|series| series.push(Seen::Reset));
        }
        watcher.value(schema.root(), &record.view());
    }
    let series = watcher.series;
    let templates = TemplateSet::for_schema_with(schema, |path, field| {
        if let Some(series) = series.get(path) {
            choose(field, series, options.constants);
        }
    })?;
    let (derived, _) = measure(Fast::default(), shape, samples, interval)?;
    let (learned, messages) = measure(Fast::new(templates.clone()), shape, samples, interval)?;
    // The costs of single fields ignore the rounding of presence maps to whole bytes.
    if derived <= learned {
        let templates = TemplateSet::for_schema(schema)?;
        return Ok(Learned { templates, messages, derived_bytes: derived, learned_bytes: derived });
    }
    Ok(Learned { templates, messages, derived_bytes: derived, learned_bytes: learned })
}

/// The size of the encoded samples in bytes, and how many of them can be encoded.
fn measure(codec: Fast, shape: &Arc<Shape>, samples: &[Record], interval: usize) -> Result<(usize, usize), BuildError> {
    let encoder = Encoder::for_shape_with_backend(&codec, &Options::default(), shape, Backend::Interpreter)?;
    let Some(mut state) = encoder.state() else {
        return Err(LowerError::Option("the codec keeps no state".to_string()).into());
    };
    let (mut bytes, mut messages) = (Vec::new(), 0);
    let mut total = 0;
    for (number, record) in samples.iter().enumerate() {
        if interval > 0 && number % interval == 0 {
            state.reset();
        }
        bytes.clear();
        if encoder.encode_with(&mut state, true, record, &mut bytes).is_ok() {
            messages += 1;
            total += bytes.len();
        }
    }
    Ok((total, messages))
}

/// One value of a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    /// All previous values are forgotten here.
    Reset,
    Absent,
    Int(i128),
    Bytes(Vec<u8>),
}

/// Walks over values as the derived template does, and records the values of each field.
struct Watcher<'a> {
    schema: &'a Schema,
    recursive: BTreeSet<DefId>,
    path: String,
    series: BTreeMap<String, Vec<Seen>>,
}

impl Watcher<'_> {
    fn note(&mut self, seen: Seen) {
        match self.series.get_mut(&self.path) {
            Some(series) => series.push(seen),
            None => drop(self.series.insert(self.path.clone(), [seen].into())),
        }
    }

    fn inside(&mut self, step: &str, watch: impl FnOnce(&mut Self)) {
        let len = self.path.len();
        if !self.path.is_empty() && step != "[]" {
            self.path.push('.');
        }
        self.path.push_str(step);
        watch(self);
        self.path.truncate(len);
    }

    fn value(&mut self, ty: &Type, value: &ValueRef<'_>) {
        let schema = self.schema;
        let ty = schema.resolve(ty);
        // The path does not identify the fields of a recursive type.
        if let Type::Def(id) = ty
            && self.recursive.contains(id)
        {
            return;
        }
        match value {
            ValueRef::Absent => self.note(Seen::Absent),
            ValueRef::Bool(v) => self.note(Seen::Int((*v).into())),
            ValueRef::Int(v) => self.note(Seen::Int((*v).into())),
            ValueRef::Uint(v) => self.note(Seen::Int((*v).into())),
            ValueRef::Char8(v) => self.note(Seen::Int(v.0.into())),
            ValueRef::Char16(v) => self.note(Seen::Int(v.0.into())),
            ValueRef::Enum(v) => self.note(Seen::Int(v.value().into())),
            ValueRef::Bitmask(v) => self.note(Seen::Int(v.bits().into())),
            ValueRef::Bitset(v) => self.note(Seen::Int(v.bits().into())),
            ValueRef::Float32(v) => self.note(Seen::Int(v.to_bits().into())),
            ValueRef::Float64(v) => self.note(Seen::Int(v.to_bits().into())),
            ValueRef::Str(v) => self.note(Seen::Bytes(v.as_bytes().into())),
            ValueRef::List(list) if list.as_bytes().is_some() => {
                self.note(Seen::Bytes(list.as_bytes().unwrap_or_default().into()));
            }
            ValueRef::List(list) => {
                let (Type::Sequence { element, .. } | Type::Array { element, .. }) = ty else { return };
                self.inside("length", |watcher| watcher.note(Seen::Int(list.len() as i128)));
                self.inside("[]", |watcher| list.iter().for_each(|value| watcher.value(element, &value)));
            }
            ValueRef::Struct(fields) => {
                for (member, value) in fields.fields() {
                    self.inside(&member.name, |watcher| watcher.value(&member.ty, &value));
                }
            }
            ValueRef::Union(union) => {
                self.inside("discriminator", |watcher| watcher.note(Seen::Int(union.discriminator().into())));
                if let Some((case, value)) = union.case() {
                    self.inside(&case.member.name, |watcher| watcher.value(&case.member.ty, &value));
                }
            }
            ValueRef::Map(map) => {
                let Type::Map { key, value, .. } = ty else { return };
                self.inside("length", |watcher| watcher.note(Seen::Int(map.len() as i128)));
                self.inside("[]", |watcher| {
                    for (k, v) in map.entries() {
                        watcher.inside("key", |watcher| watcher.value(key, &k));
                        watcher.inside("value", |watcher| watcher.value(value, &v));
                    }
                });
            }
            ValueRef::Float128(_) => {}
        }
    }
}

/// Sets the cheapest operator of a field.
fn choose(field: &mut Field, series: &[Seen], constants: bool) {
    match field.ty {
        FieldType::Decimal => number(field, series),
        ty => {
            let constant = constants && !field.optional && is_constant(series);
            field.operator = match constant.then(|| initial(most_common(series))).flatten() {
                Some(value) => Operator { kind: OperatorKind::Constant, initial: Some(value), ..Operator::default() },
                // The key is the field's path, so the previous value is not shared with another
                // field.
                None => Operator { key: field.operator.key.clone(), ..best(ty, field.optional, series).1 },
            };
        }
    }
}

/// True if all values are present and equal.
fn is_constant(series: &[Seen]) -> bool {
    let mut values = series.iter().filter(|seen| **seen != Seen::Reset);
    let first = values.next();
    matches!(first, Some(Seen::Int(_) | Seen::Bytes(_))) && values.all(|seen| Some(seen) == first)
}

/// Chooses between a decimal and the bits of a floating-point number.
fn number(field: &mut Field, series: &[Seen]) {
    let (decimal, exponent, mantissa) = as_decimal(series);
    let single = !series.iter().any(|seen| matches!(seen, Seen::Int(bits) if *bits > u32::MAX.into()));
    let bits = FieldType::Int { signed: false, bits: if single { 32 } else { 64 } };
    // `float` values fit 32 bits, as few `double` values do; the width of the bits shows which it
    // is.
    let (cost, operator) = best(bits, field.optional, series);
    if cost < decimal && !single {
        field.ty = bits;
        field.mantissa = None;
        field.operator = operator;
        return;
    }
    field.operator = exponent;
    field.mantissa = Some(mantissa);
}

/// The cost of numbers as decimals, with the best operators of exponent and mantissa.
fn as_decimal(series: &[Seen]) -> (usize, Operator, Operator) {
    let (mut exponents, mut mantissas) = (Vec::new(), Vec::new());
    let (mut hint, mut escapes) = (None, 0);
    let single = !series.iter().any(|seen| matches!(seen, Seen::Int(bits) if *bits > u32::MAX.into()));
    for seen in series {
        match seen {
            Seen::Reset => {
                exponents.push(Seen::Reset);
                mantissas.push(Seen::Reset);
            }
            Seen::Int(bits) => match decompose(*bits as u64, single, hint) {
                Some((exponent, mantissa)) => {
                    hint = Some(exponent);
                    exponents.push(Seen::Int(exponent.into()));
                    mantissas.push(Seen::Int(mantissa.into()));
                }
                None => {
                    escapes += 1;
                    exponents.push(Seen::Absent);
                }
            },
            _ => exponents.push(Seen::Absent),
        }
    }
    let int = |bits| FieldType::Int { signed: true, bits };
    let (first, exponent) = best(int(32), true, &exponents);
    let (second, mantissa) = best(int(64), false, &mantissas);
    // Add the presence bit of the bits field, and its bytes if it is used.
    (first + second + series.len() + escapes * 10 * BYTE, exponent, mantissa)
}

/// The cost of a byte in presence map bits: a byte of a presence map holds seven.
const BYTE: usize = 7;

/// The cheapest operator and its cost.
fn best(ty: FieldType, optional: bool, series: &[Seen]) -> (usize, Operator) {
    let common = most_common(series);
    let first = series.iter().find(|seen| matches!(seen, Seen::Int(_) | Seen::Bytes(_)));
    let candidates = [
        (OperatorKind::Copy, None),
        (OperatorKind::Copy, common),
        (OperatorKind::Delta, None),
        (OperatorKind::Delta, first),
        (OperatorKind::Default, common),
        (OperatorKind::Increment, first),
        (OperatorKind::None, None),
    ];
    let fits = |(kind, initial): &(OperatorKind, Option<&Seen>)| match kind {
        OperatorKind::Increment => matches!(ty, FieldType::Int { .. }) && initial.is_some(),
        OperatorKind::Default => optional || initial.is_some(),
        _ => true,
    };
    let costs = candidates.into_iter().filter(fits).map(|(kind, initial)| (cost(kind, initial, series), kind, initial));
    let (cost, kind, initial) = costs.min_by_key(|(cost, ..)| *cost).unwrap_or((0, OperatorKind::None, None));
    let initial = self::initial(initial);
    let kind = if kind == OperatorKind::Default && initial.is_none() && !optional { OperatorKind::Copy } else { kind };
    (cost, Operator { kind, initial, ..Operator::default() })
}

fn initial(seen: Option<&Seen>) -> Option<Initial> {
    match seen? {
        Seen::Int(value) => Some(Initial::Int(*value)),
        // Text that is long or that XML cannot represent cannot be an initial value.
        Seen::Bytes(bytes) if bytes.len() <= 64 && bytes.iter().all(|b| matches!(b, 0x20..=0x7E)) => {
            Some(Initial::Bytes(bytes.as_slice().into()))
        }
        _ => None,
    }
}

fn most_common(series: &[Seen]) -> Option<&Seen> {
    let mut counts: BTreeMap<&Seen, usize> = BTreeMap::new();
    for seen in series.iter().filter(|seen| matches!(seen, Seen::Int(_) | Seen::Bytes(_))) {
        *counts.entry(seen).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(seen, _)| seen)
}

/// The cost of a series of values with an operator.
fn cost(kind: OperatorKind, initial: Option<&Seen>, series: &[Seen]) -> usize {
    let (mut previous, mut total) = (initial, 0);
    for seen in series {
        if *seen == Seen::Reset {
            previous = initial;
            continue;
        }
        total += match kind {
            OperatorKind::Default => 1 + if Some(seen) == initial { 0 } else { plain(seen) },
            OperatorKind::Copy => 1 + if Some(seen) == previous { 0 } else { plain(seen) },
            OperatorKind::Increment => 1 + if expected(previous, initial, seen) { 0 } else { plain(seen) },
            OperatorKind::Delta => difference(previous, seen),
            _ => plain(seen),
        };
        let stays = *seen == Seen::Absent && kind == OperatorKind::Delta;
        previous = if stays { previous } else { Some(seen) };
    }
    total
}

/// True if the increment operator omits the value.
fn expected(previous: Option<&Seen>, initial: Option<&Seen>, seen: &Seen) -> bool {
    match (previous, seen) {
        (Some(before), after) if Some(before) == initial && before == after => true,
        (Some(Seen::Int(before)), Seen::Int(after)) => before + 1 == *after,
        (before, after) => before == Some(after) && *after == Seen::Absent,
    }
}

/// The cost of a value that is written out.
fn plain(seen: &Seen) -> usize {
    BYTE * match seen {
        Seen::Int(value) => groups(*value),
        Seen::Bytes(bytes) => bytes.len() + groups(bytes.len() as i128),
        Seen::Absent | Seen::Reset => 1,
    }
}

fn difference(previous: Option<&Seen>, seen: &Seen) -> usize {
    match (previous, seen) {
        (Some(Seen::Int(before)), Seen::Int(after)) => BYTE * groups(after - before),
        (Some(Seen::Bytes(before)), Seen::Bytes(after)) => {
            let front = before.iter().zip(after).take_while(|(a, b)| a == b).count();
            let back = before.iter().rev().zip(after.iter().rev()).take_while(|(a, b)| a == b).count();
            BYTE * (2 + after.len() - front.max(back))
        }
        (None, Seen::Bytes(after)) => BYTE * (2 + after.len()),
        _ => plain(seen),
    }
}

/// Length of a signed integer in bytes.
fn groups(value: i128) -> usize {
    let magnitude = (value ^ (value >> 127)) as u128;
    (129 - magnitude.leading_zeros() as usize).div_ceil(7).max(1)
}
