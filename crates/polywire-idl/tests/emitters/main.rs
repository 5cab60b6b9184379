//! The emitters: golden files, round trips through IDL, and `protoc` and `xmllint` as oracles.

mod golden;
mod proto;
mod round_trip;
mod schemas;
mod xsd;
