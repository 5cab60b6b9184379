//! Tests of eligible programs: each has a direct function that handles ordinary values without a
//! bail-out, with the results of the interpreter.

use alloc::{format, string::String, sync::Arc, vec::Vec};
use core::ptr::NonNull;

use crate::{
    codec::{
        Codec, Decoder, Encoder, Options,
        fast::{
            Fast,
            template::{Field, FieldType, Initial, Operator, OperatorKind, TemplateSet},
        },
    },
    layout::{Record, Shape, Value},
    program::{
        Backend, Executable, FaultKind, Limits, Payload, Program, State, jit, passes,
        state::specialised::Specialisation,
    },
    schema::{Def, Member, Schema, SchemaBuilder, Type},
};

/// A program's direct function, with its state.
struct Direct {
    code: jit::Code,
    specialised: Arc<Specialisation>,
    state: State,
}

impl Direct {
    /// Compiles the program; panics if it has no direct function.
    fn new(program: &Program) -> Direct {
        let bank = program.bank.clone().unwrap();
        let specialised = jit::specialised(program).expect("it needs no context");
        let code = jit::compile(&Arc::new(program.clone())).unwrap();
        Direct { code, specialised: Arc::new(specialised), state: State::new(&bank) }
    }

    fn begin(&mut self, limits: &Limits) -> NonNull<u8> {
        (self.state.memory_left, self.state.copies_left) = (limits.memory_bytes, limits.memory_bytes);
        assert!(self.state.is_specialised(&self.specialised) || self.state.specialise(&self.specialised));
        self.state.begin_specialised(limits);
        NonNull::new(self.code.direct().cast_mut()).unwrap()
    }
}

/// Both ends of a stream of a feed: direct functions, and the interpreter as reference.
struct Ends {
    shape: Arc<Shape>,
    encoder: Direct,
    decoder: Direct,
    reference: Executable,
    reader: Executable,
    writer: State,
    back: Record,
}

impl Ends {
    fn new(fields: &str) -> Ends {
        let xml = format!("<templates><template id=\"1\" name=\"T\">{fields}</template></templates>");
        let (codec, schema) = Fast::feed(TemplateSet::parse(&xml).unwrap()).unwrap();
        Ends::of(&codec, &schema)
    }

    fn of(codec: &Fast, schema: &Schema) -> Ends {
        let (shape, options) = (Shape::of(schema).unwrap(), Options::default());
        let encode = passes::prepare(codec.lower_encode(&options, schema, shape.layout()).unwrap());
        let decode = passes::prepare(codec.lower_decode(&options, schema, schema, shape.layout()).unwrap());
        // `prepared` also verifies the program.
        let reference = Executable::prepared(encode.clone(), Backend::Interpreter).unwrap();
        let reader = Executable::prepared(decode.clone(), Backend::Interpreter).unwrap();
        let (encoder, decoder) = (Direct::new(&encode), Direct::new(&decode));
        let writer = reference.state().unwrap();
        Ends { back: Record::new(&shape), shape, encoder, decoder, reference, reader, writer }
    }

    /// Encodes and decodes a record with the direct functions. Panics on a bail-out, or if bytes or
    /// value differ from the reference.
    fn carry(&mut self, record: &Record, what: &str) {
        let limits = Limits::default();
        let (mut bytes, mut expected): (Vec<u8>, _) = (Vec::with_capacity(4096), Vec::new());
        // SAFETY: the record has the layout that the program was verified for, `room` is the
        // capacity of `bytes`, and the state was specialised by `begin`.
        unsafe {
            let entry = self.encoder.begin(&limits);
            let room = bytes.capacity();
            let start = bytes.as_mut_ptr();
            let written = jit::encode_stream(entry, start, room, record.as_ptr(), &mut self.encoder.state);
            assert!(written <= room, "{what}: not written without a context");
            bytes.set_len(written);
            self.reference.encode_with(&mut self.writer, true, record.as_ptr(), &mut expected, &limits).unwrap();
        }
        assert_eq!(bytes, expected, "{what}");
        let entry = self.decoder.begin(&limits);
        // SAFETY: `entry` is the direct function of the decode program, its state is specialised,
        // and `back` is a live record that nobody else refers to.
        let taken = unsafe { jit::decode_stream(entry, &bytes, self.back.as_mut_ptr(), &mut self.decoder.state) };
        assert_eq!(taken, bytes.len(), "{what}: {bytes:x?} not read without a context");
        assert_eq!(self.back, *record, "{what}: {bytes:x?}");
    }
}

impl Ends {
    /// Encodes and decodes a record with the interpreter, on the states of the direct functions.
    fn carry_generally(&mut self, record: &Record, what: &str) {
        let (limits, mut bytes, mut expected) = (Limits::default(), Vec::new(), Vec::new());
        let payload = |bytes, state| Payload::Chained { state, keep: true, bytes };
        // SAFETY: the records have the layout that the programs were verified for, and nobody else
        // refers to `back`.
        unsafe {
            self.reference.encode_with(&mut self.writer, true, record.as_ptr(), &mut expected, &limits).unwrap();
            self.reference.encode_with(&mut self.encoder.state, true, record.as_ptr(), &mut bytes, &limits).unwrap();
            assert_eq!(bytes, expected, "{what}");
            let payload = payload(&bytes, &mut self.decoder.state);
            self.reader.decode(payload, self.back.as_mut_ptr(), &limits).unwrap();
        }
        assert_eq!(self.back, *record, "{what}: {bytes:x?}");
    }
}

/// Sequences of values for a field, absent values included.
fn values(is_optional: bool) -> Vec<Option<i64>> {
    let mut values = [10, 10, 10, 11, 70, 10, -3, 100_000, 100_000, 10].map(Some).to_vec();
    if is_optional {
        values.extend([None, None, Some(10), Some(11), None, Some(10), Some(10)]);
    }
    values
}

/// Carries a stream with a field between two others, whose values show whether presence bits are at
/// their positions.
fn carried(is_optional: bool, field: &str, is_constant: bool, set: impl Fn(&mut Record, Option<i64>)) {
    let fields = format!("<uInt32 name=\"a\"><copy/></uInt32>{field}<uInt32 name=\"z\"><increment/></uInt32>");
    carried_by(Ends::new(&fields), is_optional, &fields, is_constant, set);
}

/// The same for any fields between `a` and `z`.
fn carried_by(
    mut ends: Ends,
    is_optional: bool,
    fields: &str,
    is_constant: bool,
    set: impl Fn(&mut Record, Option<i64>),
) {
    let mut record = Record::new(&ends.shape);
    for (step, value) in values(is_optional).into_iter().enumerate() {
        record.set("a", step as u32 / 3).unwrap();
        record.set("z", step as u32 + u32::from(step > 4)).unwrap();
        set(&mut record, value.map(|value| if is_constant { 10 } else { value }));
        ends.carry(&record, &format!("step {step} of {fields}"));
    }
}

/// The attribute that makes a field optional or not.
fn presences() -> [(bool, &'static str); 2] {
    [(false, ""), (true, " presence=\"optional\"")]
}

#[test]
fn whole_decimals_need_no_context() {
    for (is_optional, presence) in presences() {
        for operator in [
            "",
            "<copy/>",
            "<copy value=\"10\"/>",
            "<delta/>",
            "<delta value=\"0.5\"/>",
            "<default value=\"10\"/>",
            "<default/>",
            "<constant value=\"10\"/>",
        ] {
            if operator == "<default/>" && !is_optional {
                continue;
            }
            let field = format!("<decimal name=\"d\"{presence}>{operator}</decimal>");
            carried(is_optional, &field, operator.contains("constant"), |record, value| match value {
                // Ten is the initial value, whose mantissa has no trailing zeros.
                Some(value) => {
                    let (exponent, mantissa) = if value == 10 { (1, 1) } else { (-(value % 3) as i32, value) };
                    record.set("d.exponent", exponent).unwrap();
                    record.set("d.mantissa", mantissa).unwrap();
                }
                None => record.set("d", Value::Absent).unwrap(),
            });
        }
    }
}

#[test]
fn decimals_of_two_operators_need_no_context() {
    let exponents = ["", "<copy/>", "<copy value=\"1\"/>", "<delta/>", "<increment/>", "<default value=\"1\"/>"];
    let mantissas = ["", "<copy value=\"1\"/>", "<delta/>", "<increment value=\"1\"/>", "<default value=\"1\"/>"];
    for (is_optional, presence) in presences() {
        for (exponent, mantissa) in exponents.iter().flat_map(|a| mantissas.iter().map(move |b| (a, b))) {
            let part = |name: &str| {
                format!(
                    "<decimal name=\"{name}\"{presence}><exponent>{exponent}</exponent><mantissa>{mantissa}</mantissa></decimal>"
                )
            };
            // There are more bits than one byte of the map has, and the elided bits of one decimal
            // precede those of another.
            let fields: String =
                (0..if exponent == mantissa { 40 } else { 4 }).map(|i| part(&format!("d{i}"))).collect();
            carried(is_optional, &fields, false, |record, value| {
                for i in 0..40 {
                    let name = format!("d{i}");
                    // The fields of a message are not all present or all absent.
                    let there = value.filter(|value| !is_optional || (value + i) % 3 != 0);
                    let _ = match there {
                        Some(value) => record
                            .set(&format!("{name}.exponent"), (value % 3) as i32)
                            .and_then(|()| record.set(&format!("{name}.mantissa"), value + i / 2)),
                        None => record.set(&name, Value::Absent),
                    };
                }
            });
        }
    }
}

#[test]
fn integers_need_no_context() {
    let operators = [
        "",
        "<copy/>",
        "<copy value=\"10\"/>",
        "<delta/>",
        "<increment/>",
        "<increment value=\"10\"/>",
        "<default value=\"10\"/>",
    ];
    for (is_optional, presence) in presences() {
        for (ty, operator) in ["int32", "int64", "uInt64"].iter().flat_map(|ty| operators.iter().map(move |o| (ty, o)))
        {
            let field = format!("<{ty} name=\"i\"{presence}>{operator}</{ty}>");
            carried(is_optional, &field, false, |record, value| match value {
                Some(value) if *ty == "int32" => record.set("i", value as i32).unwrap(),
                Some(value) if *ty == "int64" => record.set("i", value << 40).unwrap(),
                Some(value) => record.set("i", value.unsigned_abs() << 40 | 1).unwrap(),
                None => record.set("i", Value::Absent).unwrap(),
            });
        }
    }
}

#[test]
fn numbers_that_may_be_absent_need_no_context() {
    let mut types = SchemaBuilder::new();
    let plain = |name: &str| Member::new(name, Type::Uint32);
    let number = |name: &str, ty: Type| Member::new(name, ty).as_optional();
    let members = vec![
        plain("a"),
        number("x", Type::Float64),
        number("y", Type::Float32),
        Member::new("w", Type::Float64),
        plain("z"),
    ];
    let root = types.add(Def::structure("T", members));
    let schema = types.finish(Type::Def(root)).unwrap();
    for (has_bits, has_operators) in [(false, true), (true, true), (false, false)] {
        let choose = |_: &str, field: &mut Field| {
            // Mantissas then have bits, which are elided if the decimal is absent.
            if has_bits && field.ty == FieldType::Decimal {
                field.mantissa = field.mantissa.take().map(|delta| Operator {
                    kind: OperatorKind::Copy,
                    initial: Some(Initial::Int(10)),
                    ..delta
                });
            }
            if !has_operators && field.ty == FieldType::Decimal {
                (field.operator, field.mantissa) = (Operator::default(), None);
            }
        };
        let codec = Fast::new(TemplateSet::for_schema_with(&schema, choose).unwrap());
        carried_by(Ends::of(&codec, &schema), true, "numbers", false, |record, value| {
            record.set("w", value.unwrap_or(7) as f64 / 4.0).unwrap();
            match value {
                // This value is no decimal; its raw bits are sent instead.
                Some(11) if !has_bits => {
                    record.set("x", 1.0 / 3.0).unwrap();
                    record.set("y", 1.0f32 / 3.0).unwrap();
                }
                Some(value) => {
                    record.set("x", value as f64 / 100.0).unwrap();
                    record.set("y", value as f32 / 8.0).unwrap();
                }
                None => ["x", "y"].iter().for_each(|name| record.set(name, Value::Absent).unwrap()),
            }
        });
    }
}

/// Ends for a type with the member `n` between two others.
fn ends_of(fields: &str, member: Member) -> Ends {
    let mut types = SchemaBuilder::new();
    let plain = |name: &str| Member::new(name, Type::Uint32);
    let root = types.add(Def::structure("T", vec![plain("a"), member, plain("z")]));
    let schema = types.finish(Type::Def(root)).unwrap();
    let xml = format!("<templates><template id=\"1\" name=\"T\">{fields}</template></templates>");
    Ends::of(&Fast::new(TemplateSet::parse(&xml).unwrap()), &schema)
}

#[test]
fn numbers_with_any_operators_need_no_context() {
    let both =
        ["", "<copy/>", "<copy value=\"0.5\"/>", "<delta/>", "<delta value=\"0.5\"/>", "<default value=\"0.5\"/>"];
    let parts = ["", "<copy/>", "<copy value=\"-1\"/>", "<delta/>", "<increment/>", "<default value=\"-1\"/>"];
    let split = parts.iter().flat_map(|exponent| {
        ["<delta/>", "<copy/>"]
            .map(|mantissa| format!("<exponent>{exponent}</exponent><mantissa>{mantissa}</mantissa>"))
    });
    let operators: Vec<String> = both.into_iter().map(String::from).chain(split).collect();
    for (ty, operator) in
        [Type::Float64, Type::Float32, Type::Int64].iter().flat_map(|ty| operators.iter().map(move |o| (ty, o)))
    {
        for (is_optional, presence) in presences() {
            let field = format!("<decimal name=\"n\"{presence}>{operator}</decimal>");
            let fields = format!("<uInt32 name=\"a\"><copy/></uInt32>{field}<uInt32 name=\"z\"><increment/></uInt32>");
            let member = Member::new("n", ty.clone());
            let member = if is_optional { member.as_optional() } else { member };
            carried_by(ends_of(&fields, member), is_optional, &fields, false, |record, value| {
                let value = match (value, ty) {
                    (None, _) => Value::Absent,
                    (Some(value), Type::Int64) => Value::Int(value.into()),
                    (Some(value), _) => Value::Float(value as f64 / 4.0),
                };
                record.set("n", value).unwrap();
            });
        }
    }
}

#[test]
fn numbers_that_are_no_decimal_need_no_context() {
    let operators = ["<copy/>", "<delta/>", "<default value=\"0.5\"/>", "<constant value=\"0.5\"/>"];
    for (is_optional, operator) in [false, true].into_iter().flat_map(|it| operators.map(|operator| (it, operator))) {
        let fields = format!(
            "<uInt32 name=\"a\"><copy/></uInt32><decimal name=\"n\" presence=\"optional\">{operator}</decimal>\
             <uInt64 name=\"n.bits\" presence=\"optional\"><default/></uInt64>\
             <uInt32 name=\"z\"><increment/></uInt32>"
        );
        let member = Member::new("n", Type::Float64);
        let member = if is_optional { member.as_optional() } else { member };
        let is_constant = operator.contains("constant");
        carried_by(ends_of(&fields, member), is_optional, &fields, false, |record, value| {
            let value = match value {
                None => Value::Absent,
                Some(value) if value % 10 != 0 => Value::Float(value as f64 / 7.0),
                Some(_) if is_constant => Value::Float(0.5),
                Some(value) => Value::Float(value as f64 / 4.0),
            };
            record.set("n", value).unwrap();
        });
    }
}

#[test]
fn numbers_of_many_bits_are_as_in_the_interpreter() {
    let whole = [22, 23, 24, 25, 50, 51, 52, 53, 54].into_iter().flat_map(|bits| {
        let power = (1i64 << bits) as f64;
        [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0].map(|more| power + more)
    });
    let others = [0.0, 0.5, 0.1, 1.0 / 3.0, 524_288.062_5, 1e300, f64::INFINITY, f64::MIN_POSITIVE];
    let numbers: Vec<f64> = whole.chain(others).flat_map(|number| [number, -number]).collect();
    for (ty, places) in [Type::Float64, Type::Float32].iter().flat_map(|ty| [0, 1, 2, 3, 9].map(|places| (ty, places)))
    {
        let fields = format!(
            "<decimal name=\"n\" presence=\"optional\"><exponent><default value=\"-{places}\"/></exponent>\
             <mantissa><delta/></mantissa></decimal><uInt64 name=\"n.bits\" presence=\"optional\"><default/></uInt64>\
             <uInt32 name=\"a\"><copy/></uInt32><uInt32 name=\"z\"><increment/></uInt32>"
        );
        let mut ends = ends_of(&fields, Member::new("n", ty.clone()));
        let shape = ends.shape.clone();
        let scale = 10f64.powi(places);
        for number in numbers.iter().flat_map(|number| [*number, number / scale]) {
            let mut record = Record::new(&shape);
            record.set("n", number).unwrap();
            ends.carry(&record, &format!("{number} of {ty:?} with {places} places"));
        }
    }
}

/// Texts or octets for a number: short, medium and long ones, mostly repeated.
fn text(value: i64) -> String {
    match value {
        10 => String::from("ten"),
        70 => String::new(),
        value => format!("{value}").repeat(if value < 0 { 30 } else { 2 }),
    }
}

#[test]
fn texts_and_octets_need_no_context() {
    for (is_optional, presence) in presences() {
        for operator in [
            "",
            "<copy/>",
            "<copy value=\"V\"/>",
            "<default value=\"V\"/>",
            "<default/>",
            "<constant value=\"V\"/>",
            "<delta/>",
            "<delta value=\"V\"/>",
        ] {
            if operator == "<default/>" && !is_optional {
                continue;
            }
            let is_constant = operator.contains("constant");
            for (element, initial) in
                [("string", "ten"), ("string charset=\"unicode\"", "ten"), ("byteVector", "74656e")]
            {
                let (name, operator) = (element.split(' ').next().unwrap(), operator.replace('V', initial));
                let field = format!("<{element} name=\"t\"{presence}>{operator}</{name}>");
                carried(is_optional, &field, is_constant, |record, value| {
                    let value = value.map(text).map_or(Value::Absent, |text| match name {
                        "string" => Value::Text(text),
                        _ => Value::Bytes(text.into_bytes()),
                    });
                    record.set("t", value).unwrap();
                });
            }
        }
    }
}

#[test]
fn tails_need_no_context() {
    for (is_optional, presence) in presences() {
        for (operator, (name, charset)) in ["<tail/>", "<tail value=\"30\"/>"].iter().flat_map(|operator| {
            [("string", ""), ("string", " charset=\"unicode\""), ("byteVector", "")].map(|kind| (operator, kind))
        }) {
            let field = format!("<{name} name=\"t\"{charset}{presence}>{operator}</{name}>");
            // The operator tail cannot send a shorter value.
            carried(is_optional, &field, false, |record, value| {
                let value = value.map(|value| format!("{:09}", value + 50));
                record
                    .set(
                        "t",
                        value.map_or(Value::Absent, |text| match name {
                            "string" => Value::Text(text),
                            _ => Value::Bytes(text.into_bytes()),
                        }),
                    )
                    .unwrap();
            });
        }
    }
}

#[test]
fn the_interpreter_takes_over_strings_of_any_length() {
    for operator in ["copy", "delta"] {
        let mut ends = Ends::new(&format!("<string name=\"t\" charset=\"unicode\"><{operator}/></string>"));
        let mut record = Record::new(&ends.shape);
        // So that strings of all lengths can be stored without growing.
        ends.back.set("t", "-".repeat(64)).unwrap();
        for (step, len) in [0, 1, 7, 8, 20, 7, 6, 3, 30, 2, 2, 0, 9, 16, 17, 5].into_iter().enumerate() {
            let text: String = ('a'..='z').cycle().skip(step).take(len).collect();
            record.set("t", text).unwrap();
            let what = format!("step {step}, {operator}");
            match step % 3 {
                1 => ends.carry_generally(&record, &what),
                _ => ends.carry(&record, &what),
            }
        }
    }
}

#[test]
fn strings_in_words_do_not_count_against_the_limit() {
    let mut ends = Ends::new("<string name=\"t\"><copy/></string>");
    for state in [&mut ends.encoder.state, &mut ends.decoder.state, &mut ends.writer] {
        state.limit_texts(8);
    }
    let mut record = Record::new(&ends.shape);
    ends.back.set("t", "-".repeat(64)).unwrap();
    for text in ["seven77", "eight888", "8888eigh", "short", "eight888"] {
        record.set("t", text).unwrap();
        ends.carry(&record, text);
        ends.carry_generally(&record, text);
    }
    record.set("t", "nine99999").unwrap();
    let limits = Limits::default();
    // SAFETY: the record has the layout that the program was verified for.
    let error =
        unsafe { ends.reference.encode_with(&mut ends.writer, true, record.as_ptr(), &mut Vec::new(), &limits) };
    assert_eq!(error.unwrap_err().kind, FaultKind::Limit);
}

#[test]
fn differences_of_large_numbers_are_as_in_the_interpreter() {
    const EDGES: [u64; 7] = [0, 1, i64::MAX as u64, 1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX];
    let xml = "<templates><template id=\"1\" name=\"T\"><uInt64 name=\"n\"><delta/></uInt64></template></templates>";
    let (codec, schema) = Fast::feed(TemplateSet::parse(xml).unwrap()).unwrap();
    let (shape, options) = (Shape::of(&schema).unwrap(), Options::default());
    let coders = [Backend::Jit, Backend::Interpreter].map(|backend| {
        let encoder = Encoder::for_shape_with_backend(&codec, &options, &shape, backend).unwrap();
        (encoder, Decoder::for_shape_with_backend(&codec, &options, &schema, &shape, backend).unwrap())
    });
    let record = |number: u64| {
        let mut record = Record::new(&shape);
        record.set("n", number).unwrap();
        record
    };
    let encode = |backend: usize, numbers: [u64; 2]| {
        let encoder = &coders[backend].0;
        let mut state = encoder.state().unwrap();
        numbers.map(|number| {
            let mut bytes = Vec::new();
            encoder.encode_with(&mut state, true, &record(number), &mut bytes).map(|()| bytes)
        })
    };
    let decode = |backend: usize, messages: [&Vec<u8>; 2]| {
        let decoder = &coders[backend].1;
        let (mut state, mut back) = (decoder.state().unwrap(), record(0));
        messages.map(|bytes| decoder.decode_with(&mut state, true, bytes, &mut back).map(|_| back.clone()))
    };
    let pairs = EDGES.into_iter().flat_map(|first| EDGES.map(|second| [first, second]));
    let encoded: Vec<_> = pairs.map(|pair| encode(1, pair)).collect();
    for (pair, expected) in EDGES.into_iter().flat_map(|first| EDGES.map(|second| [first, second])).zip(&encoded) {
        assert_eq!(encode(0, pair), *expected, "{pair:?}");
    }
    // The second message of a pair behind the first of any other.
    let (mut read, mut refused) = (0, 0);
    for [first, _] in &encoded {
        for [_, second] in &encoded {
            let (Ok(first), Ok(second)) = (first, second) else { continue };
            let expected = decode(1, [first, second]);
            assert_eq!(decode(0, [first, second]), expected, "{first:x?} {second:x?}");
            *if expected[1].is_ok() { &mut read } else { &mut refused } += 1;
        }
    }
    assert!(read > 0 && refused > 0);
}
