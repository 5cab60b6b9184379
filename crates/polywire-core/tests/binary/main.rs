//! BSON, CBOR, MessagePack, UBJSON and Protobuf: encoding and decoding, hostile input, comparison
//! with other libraries.

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
