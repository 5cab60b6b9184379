//! Message sequences on both back ends. Machine code handles messages without a context, or, where
//! anything is unusual, with one. It must encode the same bytes, decode the same
//! values and refuse the same messages for the same reason as the interpreter.

use std::{collections::BTreeMap, sync::Arc};

use polywire_core::{
    codec::{
        Decoder, Encoder, Options,
        fast::{
            Fast,
            template::{Field, FieldType, Initial, OperatorKind, TemplateSet},
        },
    },
    layout::{Record, Shape, SharedStr, Value, ValueRef},
    program::{Backend, CodecError, Limits, State},
    schema::{Def, DefKind, Member, Schema, SchemaBuilder, Type, arbitrary::Random},
};
use polywire_testing::{backends, mutated, random_limits, random_record, random_schema, seeds};

/// Words that stand for absence, and for no value.
const MARK: i64 = 3 << 61;
const NO_NUMBER: i64 = 0x5B1D_27E4_93A6_C80F;

/// A text that is compared by a function.
const LONG: &str = "more than sixteen bytes";

fn octets(bound: u32) -> Type {
    Type::Sequence { element: Type::Uint8.into(), bound }
}

const KINDS: &[Type] = &[
    Type::Bool,
    Type::Int8,
    Type::Uint8,
    Type::Int16,
    Type::Uint16,
    Type::Int32,
    Type::Uint32,
    Type::Int64,
    Type::Uint64,
    Type::Float32,
    Type::Float64,
    Type::String { bound: 0 },
    Type::String { bound: 12 },
];

fn members(random: &mut Random, count: usize) -> Vec<Member> {
    let octets = [octets(0), octets(5), Type::Array { element: Type::Uint8.into(), dims: vec![3] }];
    let kind =
        |random: &mut Random| if random.one_in(9) { random.choose(&octets) } else { random.choose(KINDS) }.clone();
    let member = |random: &mut Random, i: usize| {
        let member = Member::new(format!("m{i}"), kind(random));
        let may_be_absent = matches!(member.ty, Type::Float32 | Type::Float64) && random.one_in(2) || random.one_in(12);
        if may_be_absent { member.as_optional() } else { member }
    };
    (0..count).map(|i| member(random, i)).collect()
}

/// A structure of plain members, and in every other one a sequence of such.
fn schema(random: &mut Random) -> Schema {
    let mut types = SchemaBuilder::new();
    let count = 4 + random.below(40);
    let mut own = members(random, count);
    if random.one_in(2) {
        let count = 1 + random.below(12);
        let entry = types.add(Def::structure("Entry", members(random, count)));
        let bound = if random.one_in(2) { 3 } else { 0 };
        let element = Type::Def(entry).into();
        let ty = match random.one_in(4) {
            true => Type::Array { element, dims: vec![2] },
            false => Type::Sequence { element, bound },
        };
        own.insert(random.below(own.len()), Member::new("entries", ty));
    }
    let root = types.add(Def::structure("Root", own));
    types.finish(Type::Def(root)).unwrap()
}

/// Paths and types of what a record has, of each entry too.
fn leaves(schema: &Schema, record: &Record) -> Vec<(String, Type)> {
    let Type::Def(root) = schema.resolve(schema.root()) else { unreachable!("the root is a structure") };
    let mut leaves = Vec::new();
    for member in schema.members(*root) {
        match &member.ty {
            Type::Sequence { element, .. } | Type::Array { element, .. } if **element != Type::Uint8 => {
                let Type::Def(entry) = schema.resolve(element) else { unreachable!("elements are structures") };
                let ValueRef::List(entries) = record.get(&member.name).unwrap() else {
                    unreachable!("it is a sequence")
                };
                for i in 0..entries.len() {
                    let inner = schema.members(*entry);
                    leaves.extend(inner.iter().map(|m| (format!("{}[{i}].{}", member.name, m.name), m.ty.clone())));
                }
            }
            ty => leaves.push((member.name.to_string(), ty.clone())),
        }
    }
    leaves
}

/// The path of all elements of the one that a path leads into.
fn unindexed(path: &str) -> String {
    match (path.find('['), path.find(']')) {
        (Some(start), Some(end)) => format!("{}{}", &path[..=start], &path[end..]),
        _ => path.to_string(),
    }
}

/// Gives fields any operator that suits them, and says which are constant.
fn templates(random: &mut Random, schema: &Schema) -> (TemplateSet, BTreeMap<String, Initial>) {
    let mut constants = BTreeMap::new();
    let int = [
        OperatorKind::None,
        OperatorKind::Copy,
        OperatorKind::Delta,
        OperatorKind::Increment,
        OperatorKind::Default,
        OperatorKind::Copy,
        OperatorKind::Delta,
        OperatorKind::Constant,
    ];
    let text =
        [OperatorKind::None, OperatorKind::Copy, OperatorKind::Default, OperatorKind::Constant, OperatorKind::Copy];
    let operator = |random: &mut Random, field: &mut Field| match field.ty {
        FieldType::Int { .. } if !field.optional => {
            field.operator.kind = *random.choose(&int);
            let needed = matches!(field.operator.kind, OperatorKind::Default | OperatorKind::Constant);
            let may = field.operator.kind != OperatorKind::None;
            field.operator.initial = (needed || may && random.one_in(3)).then_some(Initial::Int(1));
        }
        FieldType::Ascii | FieldType::Unicode | FieldType::Bytes => {
            if field.ty != FieldType::Bytes && random.one_in(2) {
                field.ty = FieldType::Ascii;
            }
            field.operator.kind = *random.choose(&text);
            let value = random.choose(&["a", "", "fourteen bytes", LONG, "ab", "three"]).as_bytes();
            let needed = matches!(field.operator.kind, OperatorKind::Default | OperatorKind::Constant);
            let may = field.operator.kind == OperatorKind::Copy;
            field.operator.initial = (needed || may && random.one_in(2)).then(|| Initial::Bytes(value.into()));
        }
        FieldType::Decimal if random.one_in(2) => {
            field.operator.kind = OperatorKind::Default;
            field.operator.initial = Some(Initial::Int(-2));
        }
        FieldType::Decimal if random.one_in(3) => (field.operator, field.mantissa) = (Default::default(), None),
        _ => {}
    };
    let choose = |path: &str, field: &mut Field| {
        operator(random, field);
        if let (OperatorKind::Constant, Some(initial)) = (field.operator.kind, &field.operator.initial) {
            constants.insert(path.to_string(), initial.clone());
        }
    };
    (TemplateSet::for_schema_with(schema, choose).unwrap(), constants)
}

/// Sets a member to its constant.
fn settle(record: &mut Record, name: &str, ty: &Type, constant: &Initial) {
    match constant {
        Initial::Bytes(bytes) if matches!(ty, Type::Sequence { .. } | Type::Array { .. }) => {
            drop(record.set(name, Value::Bytes(bytes.to_vec())));
        }
        // It may be longer than the member's bound: then nothing can be written.
        Initial::Bytes(text) => drop(record.set(name, str::from_utf8(text).unwrap())),
        _ => set_integer(record, name, ty, 1),
    }
}

fn set_integer(record: &mut Record, name: &str, ty: &Type, v: i64) {
    match ty {
        Type::Bool => record.set(name, v & 1 == 1),
        Type::Int8 => record.set(name, v as i8),
        Type::Uint8 => record.set(name, v as u8),
        Type::Int16 => record.set(name, v as i16),
        Type::Uint16 => record.set(name, v as u16),
        Type::Int32 => record.set(name, v as i32),
        Type::Uint32 => record.set(name, v as u32),
        Type::Int64 => record.set(name, v),
        _ => record.set(name, v as u64),
    }
    .unwrap();
}

/// What a member may come to be.
fn change(random: &mut Random, record: &mut Record, name: &str, ty: &Type, last: &mut i64) {
    *last = match random.below(20) {
        0 => random.bits() as i64,
        1 => i64::from(random.bits() as i16),
        2..6 => *last + random.below(300) as i64 - 150,
        6..10 => last.wrapping_add(1),
        _ => *last,
    };
    let v = *last;
    let odd = random.one_in(40);
    // A mandatory member cannot be set to absent.
    if random.one_in(6) && record.set(name, Value::Absent).is_ok() {
        return;
    }
    match ty {
        Type::Float32 if odd => record.set(name, f32::from_bits(random.bits() as u32 & 0x7F7F_FFFF)),
        Type::Float32 => record.set(name, (v as i16) as f32 / 4.0),
        Type::Float64 if odd => record.set(name, f64::from_bits(random.bits() & 0x7FEF_FFFF_FFFF_FFFF)),
        Type::Float64 => record.set(name, (v as i32) as f64 / 100.0),
        Type::String { bound: 0 } => record
            .set(name, *random.choose(&["a", "a", "", "fourteen bytes", "fourteen bytez", LONG, "three", "\u{e9}"])),
        Type::String { .. } => record.set(name, *random.choose(&["a", "a", "twelve bytes", "b", ""])),
        Type::Array { .. } => {
            record.set(name, Value::Bytes(random.choose(&[[1, 2, 3], [0, 0, 0], [0x80; 3]]).to_vec()))
        }
        Type::Sequence { bound, .. } => {
            let octets: &[&[u8]] = &[b"a", b"a", &[0], &[0x80, 0xFF], b"", b"seven b", b"eight by", LONG.as_bytes()];
            // Nobody can have more than a bound.
            let octets = random.choose(octets);
            let len = if *bound == 0 { octets.len() } else { octets.len().min(*bound as usize) };
            record.set(name, Value::Bytes(octets[..len].to_vec()))
        }
        _ => return set_integer(record, name, ty, v),
    }
    .unwrap();
}

/// One end of a stream by each back end.
struct Ends {
    encoder: Encoder<Record>,
    decoder: Decoder<Record>,
    writer: State,
    reader: State,
    back: Record,
}

type Read = Result<(usize, Record), CodecError>;

impl Ends {
    fn new(codec: &Fast, shape: &Arc<Shape>, limits: Limits, backend: Backend) -> Ends {
        let options = Options::default();
        let encoder = Encoder::for_shape_with_backend(codec, &options, shape, backend).unwrap();
        let decoder = Decoder::for_shape_with_backend(codec, &options, shape.schema(), shape, backend).unwrap();
        let decoder = decoder.with_limits(limits);
        let (writer, reader) = (encoder.state().unwrap(), decoder.state().unwrap());
        Ends { encoder, decoder, writer, reader, back: Record::new(shape) }
    }

    fn write(&mut self, record: &Record, keep: bool) -> Result<Vec<u8>, CodecError> {
        let mut bytes = Vec::new();
        self.encoder.encode_with(&mut self.writer, keep, record, &mut bytes).map(|()| bytes)
    }

    fn read(&mut self, bytes: &[u8], keep: bool) -> Read {
        let read = self.decoder.decode_with(&mut self.reader, keep, bytes, &mut self.back);
        self.reader.mend();
        if read.is_err() {
            // How far a back end came says what memory its strings have, and so what the next
            // message costs.
            self.back = Record::new(self.decoder.shape());
        }
        read.map(|taken| (taken, self.back.clone()))
    }
}

fn all_the_same<T: PartialEq + std::fmt::Debug>(results: Vec<T>, context: impl Fn() -> String) -> T {
    let mut results = results.into_iter();
    let first = results.next().unwrap();
    results.for_each(|other| assert_eq!(other, first, "{}", context()));
    first
}

/// Streams that meet the memory limit after direct code has bailed out: in one, an initial string
/// is copied, and in the other, the value has grown by as much as it may.
const MEMORY_IS_CHARGED_ONCE: [u64; 2] = [1012, 1024];

#[test]
fn streams_are_the_same() {
    let (mut carried, mut refused, mut errors) = (0, 0, 0);
    for seed in seeds(60).chain(MEMORY_IS_CHARGED_ONCE) {
        let mut random = Random::new(seed);
        let schema = schema(&mut random);
        let (set, constants) = templates(&mut random, &schema);
        let codec = Fast::new(set);
        let shape = Shape::of(&schema).unwrap();
        let limits = if random.one_in(4) { random_limits(&mut random) } else { Default::default() };
        let make = |backend| Ends::new(&codec, &shape, limits, backend);
        let mut ends: Vec<Ends> = backends().into_iter().map(make).collect();
        let mut record = Record::new(&shape);
        let mut values = BTreeMap::new();
        // Both functions are tested: messages that the specialised one refuses go to the function
        // with a context, and so do some messages after them.
        let (is_hostile, changes) = (random.one_in(2), [1, 2, 8][random.below(3)]);
        for step in 0..40 {
            if random.one_in(6) {
                // There may be no entries.
                let _ = record.resize("entries", random.below(5));
            }
            for (path, ty) in leaves(&schema, &record) {
                let last = values.entry(path.clone()).or_insert(1);
                match constants.get(&unindexed(&path)) {
                    Some(constant) if !random.one_in(4000) => settle(&mut record, &path, &ty, constant),
                    _ if random.one_in(changes) => change(&mut random, &mut record, &path, &ty, last),
                    _ => {}
                }
            }
            if random.one_in(15) {
                ends.iter_mut().flat_map(|end| [&mut end.writer, &mut end.reader]).for_each(State::reset);
            }
            let keep = !random.one_in(5);
            let written = ends.iter_mut().map(|end| end.write(&record, keep)).collect();
            let context = || format!("seed {seed}, step {step}, {}", codec.templates(&schema).unwrap().to_xml());
            let Ok(bytes) = all_the_same(written, context) else {
                errors += 1;
                continue;
            };
            for _ in 0..if is_hostile { 4 } else { 0 } {
                let bad = mutated(&mut random, &bytes);
                let read: Vec<Read> = ends.iter_mut().map(|end| end.read(&bad, false)).collect();
                refused += usize::from(all_the_same(read, || format!("{bad:x?}, {}", context())).is_err());
            }
            let read: Vec<Read> = ends.iter_mut().map(|end| end.read(&bytes, keep)).collect();
            carried += usize::from(all_the_same(read, || format!("{bytes:x?}, {}", context())).is_ok());
        }
    }
    assert!(carried > 100 && refused > 500, "{carried} carried, {refused} refused, {errors} not written");
}

/// Maps, unions, structures that may be absent, octets, recursion: all that a template can be
/// derived from.
#[test]
fn streams_of_any_type_are_the_same() {
    let (mut carried, mut refused) = (0, 0);
    for seed in seeds(120) {
        let mut random = Random::new(seed);
        let Ok(shape) = Shape::of(&random_schema(seed, 3 + seed as usize % 9)) else { continue };
        if Encoder::for_shape(&Fast::default(), &Options::default(), &shape).is_err() {
            continue;
        }
        let make = |backend| Ends::new(&Fast::default(), &shape, Limits::default(), backend);
        let mut ends: Vec<Ends> = backends().into_iter().map(make).collect();
        let records = [(); 3].map(|()| random_record(&mut random, &shape));
        for step in 0..12 {
            let record = random.choose(&records).clone();
            let keep = !random.one_in(4);
            let context = || format!("seed {seed}, step {step}, {record:?}");
            if random.one_in(9) {
                ends.iter_mut().flat_map(|end| [&mut end.writer, &mut end.reader]).for_each(State::reset);
            }
            let written = ends.iter_mut().map(|end| end.write(&record, keep)).collect();
            let Ok(bytes) = all_the_same(written, context) else { continue };
            let bad = mutated(&mut random, &bytes);
            let read: Vec<Read> = ends.iter_mut().map(|end| end.read(&bad, false)).collect();
            refused += usize::from(all_the_same(read, || format!("{bad:x?}, {}", context())).is_err());
            let read: Vec<Read> = ends.iter_mut().map(|end| end.read(&bytes, keep)).collect();
            let read = all_the_same(read, || format!("{bytes:x?}, {}", context()));
            assert!(read.is_ok_and(|(_, back)| back == record), "{}", context());
            carried += 1;
        }
    }
    assert!(carried > 300 && refused > 100, "{carried} carried, {refused} refused");
}

const OPERATORS: &[&str] = &[
    "<copy/>",
    "<copy value=\"1\"/>",
    "<delta/>",
    "<default value=\"1\"/>",
    "",
    "<increment value=\"1\"/>",
    "<increment/>",
];

/// Of decimals whose exponent and mantissa have no operators of their own.
const WHOLE: &[&str] = &[
    "",
    "<copy/>",
    "<copy value=\"10\"/>",
    "<delta/>",
    "<delta value=\"0.5\"/>",
    "<default value=\"10\"/>",
    "<constant value=\"10\"/>",
];

/// A feed of one template or a few.
fn feed(random: &mut Random) -> String {
    let count = if random.one_in(3) { 3 } else { 1 };
    format!("<templates>{}</templates>", (1..=count).map(|id| template(random, id)).collect::<String>())
}

/// Numbers, decimals and texts, some of which may be absent, with any operator.
fn template(random: &mut Random, id: usize) -> String {
    let reset = if random.one_in(5) { " reset=\"Y\"" } else { "" };
    let fields = (0..1 + random.below(12)).map(|i| {
        let presence = if random.one_in(2) { " presence=\"optional\"" } else { "" };
        if random.one_in(5) {
            let operator = random.choose(WHOLE);
            let operator = if random.one_in(6) && !presence.is_empty() { "<default/>" } else { operator };
            return format!("<decimal name=\"d{i}\"{presence}>{operator}</decimal>");
        }
        if random.one_in(3) {
            let exponent = if random.one_in(4) { "<constant value=\"1\"/>" } else { random.choose(OPERATORS) };
            // A mantissa's bit is there if the decimal is, so that those after it are at no known
            // place.
            let mantissa = random.choose(OPERATORS);
            let parts = format!("<exponent>{exponent}</exponent><mantissa>{mantissa}</mantissa>");
            return format!("<decimal name=\"d{i}\"{presence}>{parts}</decimal>");
        }
        if random.one_in(3) {
            let charset = random.choose(&["ascii", "unicode"]);
            let operator = random.choose(&[
                "",
                "<copy/>",
                "<copy value=\"a\"/>",
                "<copy value=\"eight by\"/>",
                "<default value=\"ab\"/>",
                "<constant value=\"1\"/>",
                "<delta/>",
                "<delta value=\"eight by\"/>",
                "<tail/>",
                "<tail value=\"a\"/>",
            ]);
            let operator = if random.one_in(6) && !presence.is_empty() { "<default/>" } else { operator };
            return format!("<string name=\"s{i}\" charset=\"{charset}\"{presence}>{operator}</string>");
        }
        if random.one_in(6) {
            let operators = [
                "",
                "<copy/>",
                "<copy value=\"01\"/>",
                "<default value=\"0080\"/>",
                "<constant value=\"01\"/>",
                "<delta/>",
                "<delta value=\"0102\"/>",
                "<tail/>",
                "<tail value=\"01\"/>",
            ];
            let operator = random.choose(&operators);
            let operator = if random.one_in(6) && !presence.is_empty() { "<default/>" } else { operator };
            return format!("<byteVector name=\"b{i}\"{presence}>{operator}</byteVector>");
        }
        let narrow = ["int8", "uInt8", "int32", "uInt32"];
        let wide = ["int64", "uInt64"];
        let is_wide = random.one_in(3);
        let ty = random.choose(if is_wide { &wide[..] } else { &narrow });
        let mut operators = OPERATORS.to_vec();
        if !presence.is_empty() {
            operators.extend(["<constant value=\"1\"/>", "<default/>"]);
        }
        let operator = random.choose(&operators);
        format!("<{ty} name=\"f{i}\"{presence}>{operator}</{ty}>")
    });
    let fields = fields.collect::<String>();
    format!("<template id=\"{id}\" name=\"T{id}\"{reset}><uInt32 name=\"n\"><increment/></uInt32>{fields}</template>")
}

/// Where the templates of a feed are in a record, and their types.
fn templates_of(schema: &Schema) -> Vec<(String, Type)> {
    let Type::Def(root) = schema.resolve(schema.root()) else { unreachable!("a feed is no primitive") };
    match &schema.def(*root).kind {
        DefKind::Union { cases, .. } => {
            cases.iter().map(|case| (format!("{}.", case.member.name), case.member.ty.clone())).collect()
        }
        _ => vec![(String::new(), schema.root().clone())],
    }
}

/// Numbers that a field of any of the types can have, mostly.
fn number(random: &mut Random) -> i64 {
    match random.below(30) {
        0 => random.bits() as i64,
        1 => *random.choose(&[i64::MAX, i64::MIN, 255, 127, -128, i64::from(u32::MAX), -1]),
        // Words by which machine code represents absent values, and their neighbours.
        2 => *random.choose(&[MARK, MARK + 1, MARK - 1, NO_NUMBER, NO_NUMBER + 1, NO_NUMBER - 1]),
        3..10 => random.below(100) as i64,
        _ => 1,
    }
}

#[test]
fn feeds_are_the_same() {
    let (mut carried, mut refused, mut errors) = (0, 0, 0);
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        let xml = feed(&mut random);
        let (codec, schema) = Fast::feed(TemplateSet::parse(&xml).unwrap()).unwrap();
        let shape = Shape::of(&schema).unwrap();
        let mut ends: Vec<Ends> =
            backends().into_iter().map(|backend| Ends::new(&codec, &shape, Limits::default(), backend)).collect();
        let mut record = Record::new(&shape);
        let templates = templates_of(&schema);
        let is_hostile = random.one_in(3);
        for step in 0..60 {
            // Mostly the same as before.
            let (path, ty) = if random.one_in(4) { random.choose(&templates) } else { &templates[0] };
            let Type::Def(id) = schema.resolve(ty) else { unreachable!("a template is a structure") };
            for member in schema.members(*id).iter().filter(|_| step == 0 || random.one_in(2)).collect::<Vec<_>>() {
                let name = format!("{path}{}", member.name);
                if member.optional && random.one_in(3) {
                    record.set(&name, Value::Absent).unwrap();
                } else if member.name.starts_with('d') {
                    let exponent = if random.one_in(10) { random.below(160) as i32 - 80 } else { 1 };
                    record.set(&format!("{name}.exponent"), exponent).unwrap();
                    record.set(&format!("{name}.mantissa"), number(&mut random)).unwrap();
                } else if member.name.starts_with('b') {
                    let octets: &[&[u8]] =
                        &[&[1], &[1], &[1], &[], &[0, 0x80], b"seven b", b"eight by", LONG.as_bytes()];
                    record.set(&name, Value::Bytes(random.choose(octets).to_vec())).unwrap();
                } else if member.name.starts_with('s') {
                    let texts =
                        ["1", "1", "1", "", "a", "ab", "seven b", "eight by", "longer than a word", "\u{e9}", "\0"];
                    record.set(&name, *random.choose(&texts)).unwrap();
                } else {
                    // What the type cannot hold leaves it as it is.
                    let _ = record.set(&name, number(&mut random));
                }
            }
            record.set(&format!("{path}n"), step / 3).unwrap();
            let keep = !random.one_in(5);
            let written = ends.iter_mut().map(|end| end.write(&record, keep)).collect();
            let Ok(bytes) = all_the_same(written, || format!("seed {seed}, step {step}, {xml}")) else {
                errors += 1;
                continue;
            };
            if is_hostile {
                let bad = mutated(&mut random, &bytes);
                let read: Vec<Read> = ends.iter_mut().map(|end| end.read(&bad, false)).collect();
                refused += usize::from(all_the_same(read, || format!("seed {seed}, {bad:x?}, {xml}")).is_err());
            }
            let read: Vec<Read> = ends.iter_mut().map(|end| end.read(&bytes, keep)).collect();
            let read = all_the_same(read, || format!("seed {seed}, {bytes:x?}, {xml}"));
            carried += usize::from(read.is_ok_and(|(_, back)| back == record));
        }
    }
    assert!(carried > 100 && refused > 50 && errors > 50, "{carried} carried, {refused} refused, {errors} not written");
}

/// Numbers whose decimal has one operator, an exponent that changes by differences, or a value that
/// is an integer; those that may be absent, and those that are no decimal.
#[test]
fn numbers_that_are_decimals_are_the_same() {
    let xml = "<templates><template name='T' id='1'>\
        <uInt32 name='before'><increment/></uInt32>\
        <decimal name='both'><delta/></decimal>\
        <decimal name='kept'><copy value='0.5'/></decimal>\
        <decimal name='maybe' presence='optional'><copy/></decimal>\
        <decimal name='any' presence='optional'><default value='0.25'/></decimal>\
        <uInt64 name='any.bits' presence='optional'><copy/></uInt64>\
        <decimal name='scaled' presence='optional'><exponent><default value='2'/></exponent><mantissa><copy/></mantissa></decimal>\
        <decimal name='plain'><exponent><delta/></exponent><mantissa><delta/></mantissa></decimal>\
        <string name='text'><copy/></string>\
        <decimal name='whole'/>\
        <uInt32 name='after'><copy/></uInt32>\
        </template></templates>";
    let members = [
        ("before", Type::Uint32),
        ("both", Type::Float64),
        ("kept", Type::Float64),
        ("maybe", Type::Float64),
        ("any", Type::Float64),
        ("scaled", Type::Int64),
        ("plain", Type::Float32),
        ("text", Type::string()),
        ("whole", Type::Int64),
        ("after", Type::Uint32),
    ];
    let mut types = SchemaBuilder::new();
    let optional =
        |member: Member| if ["maybe", "scaled"].contains(&&*member.name) { member.as_optional() } else { member };
    let members = members.map(|(name, ty)| optional(Member::new(name, ty))).to_vec();
    let root = types.add(Def::structure("T", members));
    let schema = types.finish(Type::Def(root)).unwrap();
    let (codec, shape) = (Fast::new(TemplateSet::parse(xml).unwrap()), Shape::of(&schema).unwrap());
    let (mut carried, mut refused, mut errors) = (0, 0, 0);
    for seed in seeds(30) {
        let mut random = Random::new(seed);
        let make = |backend| Ends::new(&codec, &shape, Limits::default(), backend);
        let mut ends: Vec<Ends> = backends().into_iter().map(make).collect();
        let mut record = Record::new(&shape);
        for step in 0..40 {
            record.set("before", step).unwrap();
            let value = match random.one_in(20) {
                true => f64::NAN,
                false => random.below(100_000) as f64 / [1.0, 4.0, 100.0][random.below(3)],
            };
            record.set("both", value).unwrap();
            let kept = [0.5, 0.75, 12.5, 1200.0][random.below(4)];
            record.set("kept", kept).unwrap();
            record.set("maybe", if random.one_in(3) { Value::Absent } else { Value::Float(kept * 2.0) }).unwrap();
            record.set("any", [0.25, 1.0 / 3.0, -0.0, 1e300, 7.0][random.below(5)]).unwrap();
            let scaled = random.below(9) as i128 * [1, 100, 10_000][random.below(3)];
            record.set("scaled", if random.one_in(3) { Value::Absent } else { Value::Int(scaled) }).unwrap();
            record.set("plain", random.below(1000) as f32 / 8.0).unwrap();
            record.set("text", if random.one_in(3) { LONG } else { "short" }).unwrap();
            record.set("whole", random.bits() as i64 >> random.below(64)).unwrap();
            record.set("after", random.below(2) as u32).unwrap();
            if random.one_in(15) {
                ends.iter_mut().flat_map(|end| [&mut end.writer, &mut end.reader]).for_each(State::reset);
            }
            let keep = !random.one_in(5);
            let written = ends.iter_mut().map(|end| end.write(&record, keep)).collect();
            let Ok(bytes) = all_the_same(written, || format!("seed {seed}, step {step}, {record:?}")) else {
                errors += 1;
                continue;
            };
            let bad = mutated(&mut random, &bytes);
            let read: Vec<Read> = ends.iter_mut().map(|end| end.read(&bad, false)).collect();
            refused += usize::from(all_the_same(read, || format!("seed {seed}, step {step}, {bad:x?}")).is_err());
            let read: Vec<Read> = ends.iter_mut().map(|end| end.read(&bytes, keep)).collect();
            let (_, back) = all_the_same(read, || format!("seed {seed}, step {step}, {bytes:x?}")).unwrap();
            assert_eq!(back, record, "seed {seed}, step {step}");
            carried += 1;
        }
    }
    assert!(carried > 300 && refused > 50 && errors > 5, "{carried} carried, {refused} refused, {errors} not written");
}

#[derive(Clone, Debug, Default, PartialEq, polywire_derive::Message)]
struct Quote {
    count: u32,
    symbol: SharedStr,
    venue: SharedStr,
    note: SharedStr,
}

/// Strings that may be a part of a message, under each kind of operator.
#[test]
fn shared_strings_are_the_same() {
    let xml = "<templates><template name='Quote' id='1'>\
        <uInt32 name='count'><increment/></uInt32>\
        <string name='symbol' charset='unicode'><copy/></string>\
        <string name='venue'><default value='X'/></string>\
        <string name='note' charset='unicode'><tail/></string>\
        </template></templates>";
    let codec = Fast::new(TemplateSet::parse(xml).unwrap());
    let options = Options::default();
    let mut expected: Option<Vec<Vec<u8>>> = None;
    for backend in backends() {
        let encoder = Encoder::<Quote>::with_backend(&codec, &options, backend).unwrap();
        let decoder = Decoder::<Quote>::with_backend(&codec, &options, encoder.schema(), backend).unwrap();
        let (mut writer, mut reader) = (encoder.state().unwrap(), decoder.state().unwrap());
        let mut all = Vec::new();
        let mut back = Quote::default();
        for count in 0..12u32 {
            let symbol = ["", "a", LONG][count as usize / 2 % 3].to_string();
            let venue = ["X", "elsewhere"][count as usize / 3 % 2].to_string();
            let note = format!("{LONG} {}", 100 + count);
            let quote = Quote { count, symbol: symbol.into(), venue: venue.into(), note: note.into() };
            let mut bytes = Vec::new();
            encoder.encode_with(&mut writer, true, &quote, &mut bytes).unwrap();
            assert!(decoder.decode_with(&mut reader, false, &bytes[..bytes.len() - 1], &mut back).is_err());
            decoder.decode_with(&mut reader, true, &bytes, &mut back).unwrap();
            assert_eq!(back, quote, "{backend:?}");
            all.push(bytes);
        }
        assert_eq!(expected.get_or_insert_with(|| all.clone()), &all, "{backend:?}");
    }
}
