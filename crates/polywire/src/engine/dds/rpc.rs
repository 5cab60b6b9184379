//! Requests and replies in the basic service mapping of OMG DDS-RPC 1.0: a structure has a header
//! as its first member, which identifies the request, and the value as its second.
//! `spec/dds-rpc.md` has the bytes.
//!
//! The value follows the header in the same CDR stream, so its padding depends on the length of the
//! header. Where this padding differs from that of a value that stands alone, the value is decoded
//! with the one padding, and encoded again with the other.

use std::sync::Arc;

use polywire_core::{
    codec::{self, Decoder, Encoder, Options},
    envelope::{Announcement, Id128},
    layout::{Record, Shape},
    rpc::{self, Role, SampleIdentity},
    schema::{Def, DefKind, Extensibility, Member, Schema, SchemaBuilder, SchemaError, Type},
};
use polywire_dds::{Bytes, Endpoint};

use super::{
    form::Form,
    name::{escape, unescape},
};

/// The number of `REMOTE_EX_OK`. The other numbers are those of [`rpc::RemoteCode`].
const OK: u32 = 0;

/// The names of `RemoteExceptionCode_t`, in the order of their numbers.
const EXCEPTIONS: [&str; 6] = [
    "REMOTE_EX_OK",
    "REMOTE_EX_UNSUPPORTED",
    "REMOTE_EX_INVALID_ARGUMENT",
    "REMOTE_EX_OUT_OF_RESOURCES",
    "REMOTE_EX_UNKNOWN_OPERATION",
    "REMOTE_EX_UNKNOWN_EXCEPTION",
];

/// The maximum length of an instance name, in bytes.
const MAX_NAME: u32 = 255;

/// Returns the suffix of topic names and type names in DDS-RPC.
fn ending(role: Role) -> &'static str {
    match role {
        Role::Request => "_Request",
        Role::Reply => "_Reply",
    }
}

/// Returns the suffix of a value type's name, which the suffix of DDS-RPC replaces.
fn value_ending(role: Role) -> &'static str {
    match role {
        Role::Request => "_Call",
        Role::Reply => "_Return",
    }
}

/// Returns the name in DDS of a service's topic.
pub(crate) fn dds_topic(service: &str, role: Role) -> String {
    escape(service) + ending(role)
}

/// Returns the name of the DDS type that wraps values of this type.
pub(super) fn dds_type(value: &str, role: Role) -> String {
    value.strip_suffix(value_ending(role)).unwrap_or(value).to_owned() + ending(role)
}

/// Returns whether a DDS type is for requests or replies, by its name. `None` for other types.
pub(super) fn role_of(type_name: &str) -> Option<Role> {
    [Role::Request, Role::Reply].into_iter().find(|role| type_name.ends_with(ending(*role)))
}

/// Returns Polywire's name of an endpoint's topic, if the endpoint belongs to a service.
pub(super) fn topic_of(writer: &Endpoint) -> Option<String> {
    let role = role_of(&writer.type_name)?;
    let service = unescape(writer.topic.strip_suffix(ending(role))?);
    Some(match role {
        Role::Request => rpc::request_topic(&service),
        Role::Reply => rpc::reply_topic(&service),
    })
}

/// Returns the name of the value type in a DDS type: the name of `expected`, if the DDS type wraps
/// it.
pub(super) fn value_name(type_name: &str, expected: Option<&Schema>) -> String {
    let Some(role) = role_of(type_name) else { return type_name.into() };
    match expected.map(Schema::name).filter(|expected| dds_type(expected, role) == type_name) {
        Some(expected) => expected.into(),
        None => type_name.strip_suffix(ending(role)).unwrap_or(type_name).into(),
    }
}

/// Returns the schema of the values in another program's type. `None` if the type is not one of
/// DDS-RPC.
pub(super) fn value_schema(told: &Schema) -> Option<Schema> {
    let [header, data] = told.members(told.find(told.name())?)[..] else { return None };
    let Type::Def(data) = told.resolve(&data.ty) else { return None };
    (header.name == "header").then(|| told.with_root(*data))
}

/// Returns the type that wraps values of a service. It is published to other programs.
pub(super) fn dds_schema(value: &Schema, role: Role) -> Result<Schema, SchemaError> {
    behind(value, &dds_type(value.name(), role), |types| Member::new("header", header_type(types, role)))
}

/// Makes a structure with a member that `first` makes, followed by a value.
fn behind(value: &Schema, name: &str, first: impl FnOnce(&mut SchemaBuilder) -> Member) -> Result<Schema, SchemaError> {
    let mut types = SchemaBuilder::new();
    for def in value.defs() {
        types.add(def.clone());
    }
    let members = vec![first(&mut types), Member::new("data", value.root().clone())];
    let root = structure(&mut types, name, members);
    types.finish(root)
}

fn structure(types: &mut SchemaBuilder, name: &str, members: Vec<Member>) -> Type {
    Type::Def(types.add(Def::structure(name, members).with_extensibility(Extensibility::Final)))
}

fn header_type(types: &mut SchemaBuilder, role: Role) -> Type {
    let octets = |len: u32| Type::array(Type::Octet, [len]);
    let key = vec![Member::new("entityKey", octets(3)), Member::new("entityKind", Type::Octet)];
    let entity = structure(types, "dds::EntityId_t", key);
    let guid = vec![Member::new("guidPrefix", octets(12)), Member::new("entityId", entity)];
    let guid = structure(types, "dds::GUID_t", guid);
    let number = vec![Member::new("high", Type::Int32), Member::new("low", Type::Uint32)];
    let number = structure(types, "dds::SequenceNumber_t", number);
    let identity = vec![Member::new("writer_guid", guid), Member::new("sequence_number", number)];
    let identity = structure(types, "dds::SampleIdentity", identity);
    match role {
        Role::Request => {
            let name = Member::new("instanceName", Type::String { bound: MAX_NAME });
            structure(types, "dds::rpc::RequestHeader", vec![Member::new("requestId", identity), name])
        }
        Role::Reply => {
            let mut code = Def::enumeration("dds::rpc::RemoteExceptionCode_t", EXCEPTIONS);
            if let DefKind::Enum { literals, .. } = &mut code.kind {
                // The default literal is as in Cyclone's Python package, unlike `idlc`. Members of
                // final structures match only if their types are equal.
                literals.iter_mut().take(1).for_each(|literal| literal.is_default = true);
            }
            let code = Type::Def(types.add(code.with_extensibility(Extensibility::Final)));
            let members = vec![Member::new("relatedRequestId", identity), Member::new("remoteEx", code)];
            structure(types, "dds::rpc::ReplyHeader", members)
        }
    }
}

/// The header in front of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) request: SampleIdentity,
    /// In replies, the reason why there is no value; [`OK`] if there is one.
    pub(super) exception: u32,
}

impl Header {
    fn write(&self, role: Role, is_big: bool) -> Vec<u8> {
        let word = |word: u32| if is_big { word.to_be_bytes() } else { word.to_le_bytes() };
        let SampleIdentity { writer, sequence } = self.request;
        let mut bytes = [&writer.0[..], &word((sequence >> 32) as u32), &word(sequence as u32)].concat();
        match role {
            // The instance name is empty, and ends with a zero byte.
            Role::Request => bytes.extend([&word(1)[..], &[0]].concat()),
            Role::Reply => bytes.extend(word(self.exception)),
        }
        bytes
    }

    /// Reads the header at the beginning of a stream. Returns it with its length in bytes, or
    /// `None` if it is malformed.
    fn read(role: Role, is_big: bool, stream: &[u8]) -> Option<(Header, usize)> {
        let word = |at: usize| {
            let bytes = *stream.get(at..)?.first_chunk()?;
            Some(if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
        };
        let writer = Id128(*stream.first_chunk()?);
        let request = SampleIdentity { writer, sequence: u64::from(word(16)?) << 32 | u64::from(word(20)?) };
        let last = word(24)?;
        let (exception, name) = match role {
            Role::Request => (OK, Some(last).filter(|len| (1..=MAX_NAME + 1).contains(len))?),
            Role::Reply => (last, 0),
        };
        let len = 28 + name as usize;
        (len <= stream.len()).then_some((Header { request, exception }, len))
    }
}

/// Adds headers to the values of a channel, and removes them.
pub(super) struct Wrapper {
    pub(super) role: Role,
    is_xcdr2: bool,
    /// The byte order of the values.
    is_big: bool,
    /// The values have an encapsulation header. If it is added here, it has this `identifier`.
    has_header: bool,
    identifier: [u8; 2],
    shape: Arc<Shape>,
    decoder: Decoder<Record>,
    encoder: Encoder<Record>,
}

impl Wrapper {
    /// Makes a wrapper for the values of a channel, with the schema `value`. The error is for
    /// people.
    pub(super) fn new(role: Role, announcement: &Announcement, value: &Schema) -> Result<Wrapper, String> {
        let Form::Native { identifier, has_header, .. } = Form::of(announcement, Some(value), true) else {
            return Err("its values are no samples of DDS".into());
        };
        let codec = codec::find(&announcement.codec).ok_or("there is no such codec")?;
        let is_big = announcement.has_option("be");
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let options = |text: &str| text.parse::<Options>().map_err(|error| said(&error));
        // The value follows the four bytes of a length, and as many octets as its padding requires.
        let shifted = behind(value, "polywire::Shifted", |_| Member::new("shift", Type::sequence(Type::Octet)));
        let shape = Shape::of(&shifted.map_err(|error| said(&error))?).map_err(|error| said(&error))?;
        let order = options(if is_big { "be" } else { "" })?;
        let older = if announcement.has_option("older") { "header,older" } else { "header" };
        Ok(Wrapper {
            role,
            is_xcdr2: announcement.codec == "xcdr2",
            is_big,
            has_header,
            identifier,
            decoder: Decoder::for_shape(codec, &options(older)?, shape.schema(), &shape)
                .map_err(|error| said(&error))?,
            encoder: Encoder::for_shape(codec, &order, &shape).map_err(|error| said(&error))?,
            shape,
        })
    }

    /// Returns the form of the samples that [`Wrapper::wrap`] makes.
    pub(super) fn form(&self) -> Form {
        Form::Native { identifier: self.plain(self.is_big), is_keyed: false, has_header: false }
    }

    /// Returns the encapsulation identifier of final structures.
    fn plain(&self, is_big: bool) -> [u8; 2] {
        [0, if self.is_xcdr2 { 6 } else { 0 } + u8::from(!is_big)]
    }

    /// Makes a sample with a header and a value, without the sample's encapsulation header.
    pub(super) fn wrap(&self, header: Header, value: &[u8]) -> Result<Vec<u8>, String> {
        let mut sample = header.write(self.role, self.is_big);
        let moved = match header.exception {
            OK => self.moved(self.is_big, self.body(value).ok_or("it is too short")?, 0, sample.len())?,
            // The structure must have all its members, so it gets a default value without meaning.
            _ => self.written(&mut Record::new(&self.shape), sample.len())?,
        };
        sample.extend(moved);
        Ok(sample)
    }

    /// Returns the header and the value of a sample. The value is empty if the header has an
    /// exception.
    pub(super) fn unwrap(&self, sample: &[u8]) -> Result<(Header, Vec<u8>), String> {
        let is_big = match self.has_header {
            true => sample.get(1).ok_or("it is too short")? & 1 == 0,
            false => self.is_big,
        };
        if self.has_header && !sample.starts_with(&self.plain(is_big)) {
            return Err("it is no final structure".into());
        }
        let stream = self.body(sample).ok_or("it is too short")?;
        let (header, len) = Header::read(self.role, is_big, stream).ok_or("its header is malformed")?;
        if header.exception != OK {
            return Ok((header, Vec::new()));
        }
        let value = self.moved(is_big, &stream[len..], len, 0)?;
        let [high, low] = self.identifier;
        Ok(match self.has_header {
            true => {
                let value = Bytes::new([high, low, 0, 0], &value).map_err(|error| error.to_string())?;
                (header, value.sample().to_vec())
            }
            false => (header, value),
        })
    }

    /// Returns a payload without its encapsulation header, and without the padding that the header
    /// counts.
    fn body<'a>(&self, payload: &'a [u8]) -> Option<&'a [u8]> {
        if !self.has_header {
            return Some(payload);
        }
        let (head, body) = payload.split_first_chunk::<4>()?;
        body.get(..body.len().checked_sub(usize::from(head[3] & 3))?)
    }

    /// Converts a value that follows `from` bytes of a stream to one that follows `to` bytes.
    fn moved(&self, is_big: bool, value: &[u8], from: usize, to: usize) -> Result<Vec<u8>, String> {
        let alignment = if self.is_xcdr2 { 4 } else { 8 };
        if is_big == self.is_big && from % alignment == to % alignment {
            return Ok(value.into());
        }
        let [high, low] = self.plain(is_big);
        let shift = shift(from);
        let len = if is_big { (shift as u32).to_be_bytes() } else { (shift as u32).to_le_bytes() };
        let stream = [&[high, low, 0, 0], &len[..], &[0; 8][..shift], value].concat();
        let mut record = Record::new(&self.shape);
        self.decoder.decode(&stream, &mut record).map_err(|error| error.to_string())?;
        self.written(&mut record, to)
    }

    /// Encodes a value as it must be after `to` bytes of a stream.
    fn written(&self, record: &mut Record, to: usize) -> Result<Vec<u8>, String> {
        record.resize("shift", shift(to)).map_err(|error| error.to_string())?;
        let mut stream = Vec::new();
        self.encoder.encode(record, &mut stream).map_err(|error| error.to_string())?;
        Ok(stream.split_off(4 + shift(to)))
    }
}

/// Returns the number of octets that, after the four bytes of their length, give a value the same
/// alignment as `len` bytes do.
fn shift(len: usize) -> usize {
    (len + 4) % 8
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: SampleIdentity = SampleIdentity { writer: Id128([7; 16]), sequence: 300 };

    /// Makes the type of a value that needs padding in front of its large member.
    fn schema(extensibility: Extensibility) -> Schema {
        let mut types = SchemaBuilder::new();
        let members = vec![Member::new("unit", Type::Uint8), Member::new("value", Type::Int64)];
        let id = types.add(Def::structure("plant::Add_Call", members).with_extensibility(extensibility));
        types.finish(Type::Def(id)).expect("a schema")
    }

    fn wrapper(role: Role, codec: &str, options: &str, extensibility: Extensibility) -> Wrapper {
        let topic = if role == Role::Request { "rq/addRequest" } else { "rr/addReply" }.into();
        let (codec, options) = (codec.into(), options.into());
        let announcement = Announcement { topic, codec, options, ..Announcement::default() };
        Wrapper::new(role, &announcement, &schema(extensibility)).expect("a wrapper")
    }

    /// Encodes a value with its codec.
    fn value(codec: &str, options: &str, extensibility: Extensibility) -> Vec<u8> {
        let shape = Shape::of(&schema(extensibility)).expect("a shape");
        let mut record = Record::new(&shape);
        record.set("unit", 9).expect("set");
        record.set("value", -2).expect("set");
        let encoder =
            Encoder::for_shape(codec::find(codec).expect("a codec"), &options.parse().expect("options"), &shape);
        let mut bytes = Vec::new();
        encoder.expect("an encoder").encode(&record, &mut bytes).expect("encoded");
        bytes
    }

    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let identity = [&[7; 16][..], &[0, 0, 0, 0, 0x2c, 1, 0, 0]].concat();
        let wrapped = |role, exception, codec| {
            let value = value(codec, "", Extensibility::Final);
            wrapper(role, codec, "", Extensibility::Final).wrap(Header { request: REQUEST, exception }, &value)
        };
        let minus_two = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        let request = [&identity[..], &[1, 0, 0, 0, 0, 9, 0, 0], &minus_two].concat();
        assert_eq!(wrapped(Role::Request, OK, "cdr"), Ok(request.clone()));
        assert_eq!(wrapped(Role::Request, OK, "xcdr2"), Ok(request));
        let reply = |code, unit, value: &[u8]| [&identity[..], &[code, 0, 0, 0, unit, 0, 0, 0], value].concat();
        assert_eq!(wrapped(Role::Reply, OK, "cdr"), Ok(reply(0, 9, &minus_two)));
        assert_eq!(wrapped(Role::Reply, OK, "xcdr2"), Ok(reply(0, 9, &minus_two)));
        assert_eq!(wrapped(Role::Reply, 3, "cdr"), Ok(reply(3, 0, &[0; 8])));
    }

    #[test]
    fn values_come_back_whatever_stands_in_front() {
        use Extensibility::{Appendable, Final, Mutable};
        for role in [Role::Request, Role::Reply] {
            for (codec, options) in
                [("cdr", ""), ("cdr", "be"), ("xcdr2", ""), ("xcdr2", "be,header"), ("cdr", "header")]
            {
                for extensibility in [Final, Appendable, Mutable] {
                    let wrapper = wrapper(role, codec, options, extensibility);
                    let value = value(codec, options, extensibility);
                    let header = Header { request: REQUEST, exception: OK };
                    let stream = wrapper.wrap(header, &value).expect("a sample");
                    let [high, low] = wrapper.plain(wrapper.is_big);
                    let sample = Bytes::new([high, low, 0, 0], &stream).expect("bytes");
                    let sample = if wrapper.has_header { sample.sample() } else { &stream };
                    assert_eq!(wrapper.unwrap(sample), Ok((header, value)), "{codec}:{options} {extensibility:?}");
                }
            }
        }
    }

    #[test]
    fn samples_of_others_have_any_byte_order_and_name_of_an_instance() {
        let ours = wrapper(Role::Request, "cdr", "header", Extensibility::Final);
        for (options, name) in [("", &b"x\0"[..]), ("be", b"hall 7\0"), ("be", b"\0"), ("", b"abc\0")] {
            let theirs = wrapper(Role::Request, "cdr", options, Extensibility::Final);
            let header = Header { request: REQUEST, exception: OK };
            let mut stream = header.write(Role::Request, theirs.is_big);
            stream.truncate(24);
            let len = name.len() as u32;
            stream.extend(if theirs.is_big { len.to_be_bytes() } else { len.to_le_bytes() });
            stream.extend(name);
            let value_here = value("cdr", options, Extensibility::Final);
            stream.extend(theirs.moved(theirs.is_big, &value_here, 0, stream.len()).expect("moved"));
            let [high, low] = theirs.plain(theirs.is_big);
            let sample = Bytes::new([high, low, 0, 0], &stream).expect("bytes");
            let expected = value("cdr", "header", Extensibility::Final);
            assert_eq!(ours.unwrap(sample.sample()), Ok((header, expected)), "{options} {name:?}");
        }
    }

    #[test]
    fn malformed_samples_are_refused() {
        let stream = |role| {
            let wrapper = wrapper(role, "cdr", "", Extensibility::Final);
            let value = value("cdr", "", Extensibility::Final);
            (wrapper.wrap(Header { request: REQUEST, exception: OK }, &value).expect("a sample"), wrapper)
        };
        for role in [Role::Request, Role::Reply] {
            let (stream, wrapper) = stream(role);
            for len in 0..stream.len() {
                assert!(wrapper.unwrap(&stream[..len]).is_err(), "{role:?} {len}");
            }
            assert!(wrapper.unwrap(&stream).is_ok());
        }
        let (mut request, wrapped) = stream(Role::Request);
        for len in [0u32, 40, 257, u32::MAX] {
            request[24..28].copy_from_slice(&len.to_le_bytes());
            assert_eq!(wrapped.unwrap(&request), Err("its header is malformed".into()), "{len}");
        }
        let foreign = wrapper(Role::Reply, "cdr", "header", Extensibility::Final);
        for sample in [&b""[..], b"\0", b"\0\x01\0", b"\0\x01\0\x03a", b"\0\x09\0\0abcd", b"\x01\x01\0\0abcd"] {
            assert!(foreign.unwrap(sample).is_err(), "{sample:?}");
        }
    }

    #[test]
    fn hostile_samples_do_no_harm() {
        let mut state = 7u64;
        let mut below = |end: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize % end
        };
        for role in [Role::Request, Role::Reply] {
            let ours = wrapper(role, "cdr", "header", Extensibility::Mutable);
            let value = value("cdr", "header", Extensibility::Mutable);
            let stream = ours.wrap(Header { request: REQUEST, exception: OK }, &value).expect("a sample");
            let mut read = 0;
            for _ in 0..2000 {
                let mut sample = [&[0, 1, 0, 0], &stream[..]].concat();
                for _ in 0..below(4) {
                    let at = below(sample.len());
                    sample[at] = below(256) as u8;
                }
                sample.truncate(sample.len() - below(3));
                let Ok((header, _)) = ours.unwrap(&sample) else { continue };
                let bytes = header.write(role, false);
                assert_eq!(Header::read(role, false, &bytes), Some((header, bytes.len())));
                read += 1;
            }
            assert!((100..2000).contains(&read), "{role:?}: {read}");
        }
    }

    #[test]
    fn names_are_those_of_the_specification() {
        assert_eq!(dds_topic("plant/add 1", Role::Request), "plant/add%201_Request");
        assert_eq!(dds_type("plant::Add_Call", Role::Request), "plant::Add_Request");
        assert_eq!(dds_type("plant::Add_Return", Role::Reply), "plant::Add_Reply");
        assert_eq!(dds_type("plant::Add", Role::Request), "plant::Add_Request");
        let expected = schema(Extensibility::Final);
        assert_eq!(value_name("plant::Add_Request", Some(&expected)), "plant::Add_Call");
        assert_eq!(value_name("plant::Sum_Request", Some(&expected)), "plant::Sum");
        assert_eq!(value_name("plant::Sum", None), "plant::Sum");
        for role in [Role::Request, Role::Reply] {
            let around = dds_schema(&expected, role).expect("a schema");
            let inner = value_schema(&around).expect("the values' schema");
            assert_eq!((inner.name(), inner.type_hash()), (expected.name(), expected.type_hash()));
            assert_eq!(value_schema(&expected), None);
        }
    }
}
