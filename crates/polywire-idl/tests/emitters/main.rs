//! What the emitters write: golden files, schemas that come back, and the judgement of `protoc` and
//! `xmllint`.

mod golden;
mod proto;
mod round_trip;
mod schemas;
mod xsd;
