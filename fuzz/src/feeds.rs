//! Targets for FAST templates and their messages, for files of messages, and for deltas over lossy
//! links.

use crate::{reused::was_written, seed};
use polywire_core::{
    codec::{
        Decoder, Encoder, Options,
        fast::{
            FAST, Fast,
            template::{TemplateLimits, TemplateSet},
        },
        stateful::{Mode, StatefulError, StatefulReader, StatefulWriter},
    },
    envelope::{ChannelId, Envelope, Id128},
    frame::{self, DatagramDecoder, DatagramEncoder, Frame},
    framing::{Framing, Piece, Splitter, Step},
    layout::{Record, Shape},
    program::{Backend, FaultKind, Limits},
    schema::{Case, Def, DefId, DefKind, Member, Schema, SchemaBuilder, Type, arbitrary::Random},
};
use polywire_testing::{mutated, random_record, random_schema};
use std::{collections::BTreeMap, sync::OnceLock};

const LIMITS: Limits = Limits {
    message_bytes: 1 << 20,
    memory_bytes: 1 << 20,
    expansion: 64,
    free_bytes: 1 << 16,
    elements: 10_000,
    depth: 32,
};

/// Template documents that together use all types and operators of FAST.
const DOCUMENTS: &[&str] = &[
    "<templates xmlns='http://www.fixprotocol.org/ns/fast/td/1.1' dictionary='global'>
<template name='A' id='1'><uInt32 name='a'><copy value='7'/></uInt32><int64 name='b' presence='optional'><delta/></int64>
<string name='c'><tail value='abc'/></string><string name='d' charset='unicode' presence='optional'><delta/></string>
<decimal name='e'><exponent><copy value='-2'/></exponent><mantissa><delta/></mantissa></decimal></template>
<template name='B' id='2' reset='Y'><templateRef name='A'/><byteVector name='f' presence='optional'><tail/></byteVector></template>
</templates>",
    "<templates><template name='T' id='3' dictionary='template'><typeRef name='X'/>
<sequence name='s' presence='optional'><length name='n'><copy/></length>
<uInt64 name='a' presence='optional'><increment/></uInt64><decimal name='p' presence='optional'><delta value='100'/></decimal>
<group name='g' presence='optional'><int32 name='i'><default value='-5'/></int32><string name='k'><constant value='K'/></string></group></sequence>
<byteVector name='v'><delta/></byteVector></template>
<template name='U' id='300'><templateRef/><int32 name='x' presence='optional'><default/></int32></template></templates>",
    "<template name='W' id='1' xmlns:scp='http://www.fixprotocol.org/ns/fast/scp/1.1'><uInt8 name='a'/><int8 name='b'><increment value='1'/></int8>
<uInt16 name='c' presence='optional'><copy dictionary='type' key='k'/></uInt16><int16 name='d'><copy key='k' dictionary='named'/></int16>
<decimal name='p' presence='optional'><exponent><default/></exponent><mantissa><copy/></mantissa></decimal>
<uInt64 name='z' presence='optional'><constant value='18446744073709551615'/></uInt64><string name='t' presence='optional'/></template>",
];

/// Elements and attributes that are inserted at random places.
const WORDS: &[&str] = &[
    "<group name='g'>",
    "</group>",
    "<sequence name='q'>",
    "<length name='l'><delta/></length>",
    "<templateRef name='A'/>",
    "<templateRef name='T'/>",
    "<templateRef name='B'/>",
    "<sequence name='q'><templateRef name='A'/></sequence>",
    "<templateRef/>",
    "<copy value='-1'/>",
    "<increment/>",
    "<delta value='1e400'/>",
    "<tail value='&#x00e4;'/>",
    "<default value='99999999999999999999'/>",
    " presence='optional'",
    " id='4294967296'",
    " dictionary='global'",
    " key='a'",
    " xmlns='urn:x'",
    "<!DOCTYPE t [<!ENTITY e 'ee'>]>",
    "&e;",
    "<![CDATA[",
    "<!--",
    "\u{0}",
];

pub fn template_text(random: &mut Random) -> Vec<u8> {
    let mut text = random.choose(DOCUMENTS).as_bytes().to_vec();
    for _ in 0..random.below(4) {
        let at = random.below(text.len() + 1);
        let word = random.choose(WORDS).repeat(if random.one_in(20) { 60 } else { 1 });
        text.splice(at..at, word.into_bytes());
    }
    if random.one_in(2) { mutated(random, &text) } else { text }
}

/// Reads a document. It must be refused, or give the same templates when it is written and read
/// again. The codec of its templates must decode its own messages.
pub fn read_template(input: &[u8]) {
    let limits = TemplateLimits { bytes: 1 << 16, templates: 64, instructions: 512, depth: 16, initial_bytes: 1 << 12 };
    let set = match TemplateSet::parse_within(&String::from_utf8_lossy(input), &limits) {
        Ok(set) => set,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let xml = set.to_xml();
    assert_eq!(TemplateSet::parse(&xml).as_ref(), Ok(&set), "{xml}");
    let Ok((codec, schema)) = Fast::feed(set) else { return };
    let Ok(shape) = Shape::of(&schema) else { return };
    let none = Options::default();
    let encoder = Encoder::for_shape_with_backend(&codec, &none, &shape, Backend::Interpreter);
    let decoder = Decoder::for_shape_with_backend(&codec, &none, &schema, &shape, Backend::Interpreter);
    let (Ok(encoder), Ok(decoder)) = (encoder, decoder) else { return };
    let (record, mut bytes, mut read) = (Record::new(&shape), Vec::new(), Record::new(&shape));
    if encoder.encode(&record, &mut bytes).is_ok() {
        // A constant on the wire may differ from the default in a record, but a decoded value must
        // encode to the same message.
        assert_eq!(decoder.decode(&bytes, &mut read), Ok(bytes.len()), "{xml}");
        let mut again = Vec::new();
        encoder.encode(&read, &mut again).expect("a decoded value can be encoded");
        assert_eq!(again, bytes, "{xml}");
    }
}

/// Recursive types: by a sequence, by an optional member, and by a union and a structure that
/// contain each other.
fn recursive_types() -> &'static [Schema] {
    static TYPES: OnceLock<Vec<Schema>> = OnceLock::new();
    TYPES.get_or_init(|| {
        let number = || Member::new("n", Type::Uint32);
        let next = |ty| Member { external: true, ..Member::new("next", ty).as_optional() };
        let finish = |types: SchemaBuilder, node: DefId| {
            let mut types = types;
            let root = types.add(Def::structure("Root", vec![number(), Member::new("top", Type::Def(node))]));
            types.finish(Type::Def(root)).expect("a valid schema")
        };
        let tree = |member: &dyn Fn(Type) -> Member| {
            let mut types = SchemaBuilder::new();
            let node = types.add(Def::structure("Node", vec![]));
            types.replace(node, Def::structure("Node", vec![number(), member(Type::Def(node))]));
            finish(types, node)
        };
        let mutual = || {
            let mut types = SchemaBuilder::new();
            let node = types.add(Def::structure("Node", vec![]));
            let list = Member::new("list", Type::sequence(Type::Def(node)));
            let inside = types.add(Def::structure("Inside", vec![list, Member::new("t", Type::string())]));
            let cases = vec![Case::new([0], "leaf", Type::Int64), Case::new([1], "inside", Type::Def(inside))];
            types.replace(node, Def::union("Node", Type::Int32, cases));
            finish(types, node)
        };
        vec![tree(&|ty| Member::new("next", Type::sequence(ty))), tree(&next), mutual()]
    })
}

/// The number of a recursive type, and the text of templates for it with additional references.
pub fn recursive_text(random: &mut Random) -> Vec<u8> {
    let number = random.below(recursive_types().len());
    let set = TemplateSet::for_schema(&recursive_types()[number]).expect("a recursive type has templates");
    let names: Vec<String> = set.templates.iter().map(|template| template.name.local.clone()).collect();
    let mut text = set.to_xml();
    for _ in 0..random.below(4) {
        let ends: Vec<usize> = text.match_indices('>').map(|(at, _)| at + 1).collect();
        let at = *random.choose(&ends);
        let name = random.choose(&names);
        let word = match random.below(6) {
            0 | 1 => format!("<templateRef name='{name}'/>"),
            2 => format!("<sequence name='next'><templateRef name='{name}'/></sequence>"),
            3 => format!("<group name='top'><templateRef name='{name}'/></group>"),
            4 => "<uInt32 name='c'><constant value='1'/></uInt32>".to_owned(),
            _ => format!("</template><template name='{name}_'><templateRef name='{name}'/>"),
        };
        text.insert_str(at, &word);
    }
    let text = if random.one_in(6) { mutated(random, text.as_bytes()) } else { text.into_bytes() };
    [vec![number as u8], text].concat()
}

/// Binds templates with cyclic references to a recursive type. They may be refused. The stack of an
/// ordinary thread must suffice.
pub fn bind_recursive(input: &[u8]) {
    let Some((number, text)) = input.split_first() else { return };
    let Ok(set) = TemplateSet::parse(&String::from_utf8_lossy(text)) else { return };
    let schema = recursive_types()[usize::from(*number) % recursive_types().len()].clone();
    let bind = move || {
        let _ = Fast::feed(set.clone());
        let (codec, none, shape) = (Fast::new(set), Options::default(), Shape::of(&schema).expect("a shape"));
        let encoder = Encoder::for_shape_with_backend(&codec, &none, &shape, Backend::Interpreter);
        let decoder = Decoder::for_shape_with_backend(&codec, &none, &schema, &shape, Backend::Auto);
        let (Ok(encoder), Ok(decoder)) = (encoder, decoder) else { return };
        let (record, mut bytes) = (random_record(&mut Random::new(1), &shape), Vec::new());
        if encoder.encode(&record, &mut bytes).is_ok() {
            let mut read = Record::new(&shape);
            assert_eq!(decoder.decode(&bytes, &mut read), Ok(bytes.len()));
        }
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(bind).expect("the thread starts");
    thread.join().expect("the thread does not panic");
}

/// The decoders and encoders of one document.
struct Feed {
    decoders: Vec<Decoder<Record>>,
    /// One encoder for each template, each with its own type.
    encoders: Vec<Encoder<Record>>,
}

fn feeds() -> &'static [Feed] {
    static FEEDS: OnceLock<Vec<Feed>> = OnceLock::new();
    FEEDS.get_or_init(|| DOCUMENTS.iter().map(|xml| Feed::new(TemplateSet::parse(xml).expect("well-formed"))).collect())
}

impl Feed {
    fn new(set: TemplateSet) -> Feed {
        let encoders = (0..set.templates.len()).filter_map(|index| encoder_of(&set, index)).collect();
        let (codec, schema) = Fast::feed(set).expect("a type");
        let (shape, none) = (Shape::of(&schema).expect("a shape"), Options::default());
        let decoder = |backend| {
            Decoder::for_shape_with_backend(&codec, &none, &schema, &shape, backend)
                .expect("the codec supports the type")
        };
        Feed { decoders: vec![decoder(Backend::Interpreter), decoder(Backend::Auto)], encoders }
    }
}

/// The encoder of one template. All other templates lose their ids, so the type is a structure and
/// not a union. `None` if the template contains messages of all templates.
fn encoder_of(set: &TemplateSet, index: usize) -> Option<Encoder<Record>> {
    let mut set = set.clone();
    let others = set.templates.iter_mut().enumerate().filter(|(other, _)| *other != index);
    others.for_each(|(_, template)| template.id = None);
    let (codec, schema) = Fast::feed(set).ok()?;
    let is_struct = matches!(schema.root(), Type::Def(id) if matches!(schema.def(*id).kind, DefKind::Struct { .. }));
    let shape = Shape::of(&schema).ok().filter(|_| is_struct)?;
    Encoder::for_shape_with_backend(&codec, &Options::default(), &shape, Backend::Interpreter).ok()
}

/// The number of a document, and messages of its templates, each preceded by its length.
pub fn feed_bytes(random: &mut Random) -> Vec<u8> {
    let mut input = vec![random.below(DOCUMENTS.len()) as u8];
    let feed = &feeds()[usize::from(input[0])];
    let mut states: Vec<_> = feed.encoders.iter().filter_map(Encoder::state).collect();
    for _ in 0..16 {
        let which = random.below(feed.encoders.len());
        let (encoder, state) = (&feed.encoders[which], &mut states[which]);
        let (record, mut message) = (random_record(random, encoder.shape()), Vec::new());
        if encoder.encode_with(state, true, &record, &mut message).is_err() || random.one_in(4) {
            message = (0..random.below(40))
                .map(|_| random.bits() as u8 & if random.one_in(2) { 0x83 } else { 255 })
                .collect();
        }
        if random.one_in(3) {
            message = mutated(random, &message);
        }
        input.push(message.len().min(255) as u8);
        input.extend(message.iter().take(255));
    }
    input
}

/// Decodes a sequence of messages. Both back ends must give the same value or the same error, and a
/// refused message must not change the state.
pub fn decode_feed(input: &[u8]) {
    let Some((number, mut rest)) = input.split_first() else { return };
    let feed = &feeds()[usize::from(*number) % DOCUMENTS.len()];
    let mut ends: Vec<_> = feed
        .decoders
        .iter()
        .map(|decoder| {
            let state = decoder.state().expect("FAST is stateful");
            (decoder.clone().with_limits(LIMITS), state, Record::new(decoder.shape()))
        })
        .collect();
    while let Some((length, after)) = rest.split_first() {
        let (message, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        let outcomes: Vec<_> = ends
            .iter_mut()
            .map(|(decoder, state, record)| {
                // The value still has the contents of earlier messages, which must not change the
                // result.
                let (mut fresh, mut other) = (Record::new(decoder.shape()), state.clone());
                let expected = decoder.decode_with(&mut other, true, message, &mut fresh);
                let outcome = decoder.decode_with(state, true, message, record);
                was_written(&format!("{record:?}{fresh:?}"), message);
                match (&expected, &outcome) {
                    (Ok(_), Ok(_)) => assert_eq!(format!("{fresh:?}"), format!("{record:?}"), "of {message:02x?}"),
                    (Err(error), _) | (_, Err(error)) if error.kind == FaultKind::Limit => {}
                    _ => assert_eq!(expected, outcome, "of {message:02x?}"),
                }
                state.mend();
                outcome
                    .map(|taken| (taken, format!("{record:?}")))
                    .map_err(|error| (error.kind, error.offset, error.path))
            })
            .collect();
        match &outcomes[..] {
            [Err((FaultKind::Limit, ..)), Err((FaultKind::Limit, ..))] => {}
            [one, other] => assert_eq!(one, other, "of {message:02x?}"),
            _ => unreachable!("two back ends"),
        }
    }
}

/// The number of a framing, and a file with nearly that framing.
pub fn framed_bytes(random: &mut Random) -> Vec<u8> {
    let number = random.below(Framing::ALL.len());
    let mut input = vec![number as u8];
    if Framing::ALL[number] == Framing::Pcap {
        // The header of a capture file: magic number, versions, time zone, accuracy, snapshot
        // length, Ethernet. Records follow.
        let magic: u32 = *random.choose(&[0xa1b2_c3d4, 0xa1b2_3c4d, 0xd4c3_b2a1]);
        input.extend(magic.to_le_bytes());
        input.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, *random.choose(&[0, 1, 101, 113]), 0, 0, 0]);
        for _ in 0..random.below(4) {
            let size = random.below(80) as u32;
            input.extend([0; 8]);
            input.extend(size.to_le_bytes());
            input.extend(size.to_le_bytes());
            let mut packet = vec![0; size as usize];
            let usual = [
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                8,
                0,
                0x45,
                0,
                0,
                size as u8 - 14_u8.min(size as u8),
                0,
                0,
                0,
                0,
                9,
                17,
            ];
            packet.iter_mut().zip(usual).for_each(|(to, from)| *to = from);
            input.extend(packet);
        }
    } else {
        for _ in 0..random.below(5) {
            let payload = vec![0x81; random.below(300)];
            let _ = Framing::ALL[number].put(&payload, &mut input);
        }
    }
    let file = mutated(random, &input[1..]);
    input.truncate(1);
    input.extend(file);
    input
}

/// Splits a file at once and in pieces of up to seven bytes. Both must give the same payloads, and
/// the parts must add up to the file.
pub fn split(input: &[u8]) {
    let Some((number, file)) = input.split_first() else { return };
    let framing = Framing::ALL[usize::from(*number) % Framing::ALL.len()];
    if framing == Framing::None {
        return;
    }
    assert_eq!(
        pieces(framing, file, usize::MAX),
        pieces(framing, file, 1 + file.len() % 7),
        "reading in pieces changes the result"
    );
}

fn pieces(framing: Framing, file: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let mut splitter = Splitter::new(framing).limit(1 << 16);
    let (mut payloads, mut start, mut end) = (Vec::new(), 0, 0);
    loop {
        match splitter.step(&file[start..end]) {
            Ok(Step::Piece { piece, used }) => {
                let whole = match piece {
                    Piece::Other(bytes) => bytes.to_vec(),
                    Piece::Frame { head, payload, tail } => {
                        payloads.push(payload.to_vec());
                        [head, payload, tail].concat()
                    }
                };
                assert_eq!(whole, file[start..start + used]);
                assert!(used > 0);
                start += used;
            }
            Ok(Step::Need(need)) => {
                assert!(need > end - start, "the splitter needs more bytes than it has");
                if end == file.len() {
                    return (payloads, false);
                }
                end = end.saturating_add(piece).min(file.len());
            }
            Err(_) => return (payloads, true),
        }
    }
}

/// A seed, and a byte per message that decides what the link does to its datagram.
pub fn link_bytes(random: &mut Random) -> Vec<u8> {
    let mut input = (random.bits() % 2000).to_le_bytes().to_vec();
    // Each input prefers one action.
    let often = random.below(16) as u8;
    input.extend((0..60).map(|_| if random.one_in(2) { often } else { random.bits() as u8 }));
    input
}

/// Sends deltas over a link that loses, repeats, reorders and damages datagrams. Each value that
/// arrives must equal the sent one.
pub fn deltas_over_a_link(input: &[u8]) {
    let seed = seed(input);
    let Ok(shape) = Shape::of(&random_schema(seed, 1 + seed as usize % 6)) else { return };
    let (none, mut random) = (Options::default(), Random::new(seed));
    let encoder = Encoder::for_shape_with_backend(&FAST, &none, &shape, Backend::Interpreter);
    let decoder = Decoder::for_shape_with_backend(&FAST, &none, shape.schema(), &shape, Backend::Interpreter);
    let (Ok(encoder), Ok(decoder)) = (encoder, decoder) else { return };
    let mode = if seed.is_multiple_of(3) { Mode::Chained } else { Mode::Anchored };
    let state = || encoder.state().expect("FAST is stateful");
    let (mut incarnation, mut sequence) = (1, 0);
    let mut writer = StatefulWriter::new(state(), mode, 8);
    let mut reader = StatefulReader::new(decoder.state().expect("FAST is stateful"));
    let mut frames = DatagramDecoder::default();
    let (mut sent, mut under_way) = (BTreeMap::new(), Vec::new());
    let (mut record, mut read) = (random_record(&mut random, &shape), Record::new(&shape));
    for step in input.get(8..).unwrap_or_default() {
        if !random.one_in(3) {
            record = random_record(&mut random, &shape);
        }
        if step % 16 == 7 {
            // A restart: sequence numbers start again.
            (incarnation, sequence) = (incarnation + 1, 0);
            writer = StatefulWriter::new(state(), mode, 8);
        }
        let mut payload = Vec::new();
        let encode = |state: &mut _, keep| encoder.encode_with(state, keep, &record, &mut payload);
        sequence += 1;
        let Ok(anchor) = writer.write(sequence, encode) else { continue };
        sent.insert((incarnation, sequence), record.clone());
        let out = DatagramEncoder::new(Id128([1; 16]), incarnation, frame::Limits::default());
        let mut datagram = Vec::new();
        out.begin(&mut datagram);
        let envelope = Envelope { anchor, ..Envelope::data(ChannelId(1), sequence, 0) };
        out.data(&envelope, &payload, &mut datagram).expect("the message fits");
        out.finish(&mut datagram);
        match step % 16 {
            0..3 => {}
            3 => under_way.extend([datagram.clone(), datagram]),
            4 => under_way.insert(0, datagram),
            5 => {
                let at = usize::from(step / 16) * datagram.len() / 16;
                datagram[at] ^= 1 << (step / 32);
                under_way.push(datagram);
            }
            6 => {
                // The datagram is delayed until after the next ones.
                under_way.push(datagram);
                continue;
            }
            _ => under_way.push(datagram),
        }
        for packet in under_way.drain(..) {
            let Ok(datagram) = frames.open(&packet) else { continue };
            if datagram.restarted {
                reader = StatefulReader::new(decoder.state().expect("FAST is stateful"));
            }
            let incarnation = datagram.incarnation;
            for frame in datagram {
                let Ok(Frame::Data(envelope, payload)) = frame else {
                    panic!("a datagram with a correct checksum has a frame that is not valid data")
                };
                let decode = |state: &mut _, keep| decoder.decode_with(state, keep, payload, &mut read);
                match reader.read(envelope.sequence, envelope.anchor, decode) {
                    Ok(_) => {
                        let expected = &sent[&(incarnation, envelope.sequence)];
                        // Values are compared as text, because NaN is not equal to itself.
                        assert_eq!(format!("{read:?}"), format!("{expected:?}"), "message {}", envelope.sequence);
                    }
                    Err(StatefulError::Decode(error)) => {
                        panic!("message {} arrived intact and cannot be decoded: {error}", envelope.sequence)
                    }
                    Err(_) => {}
                }
            }
        }
        if reader.needs_key_frame() && step & 0x40 != 0 {
            writer.request_key_frame();
        }
    }
}
