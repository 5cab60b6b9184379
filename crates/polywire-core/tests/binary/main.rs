//! BSON, CBOR, MessagePack, UBJSON and Protobuf: what is written and read, hostile input, other
//! people's libraries.

mod bson_conformance;
mod bson_hostile;
mod bson_support;
mod bson_values;
mod cbor;
mod hostile;
mod msgpack;
mod protobuf;
mod protobuf_merge;
mod ubjson;
mod unions;
mod wire_support;
