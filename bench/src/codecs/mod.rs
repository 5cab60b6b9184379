//! Benchmarks of codecs beside hand-written code and other libraries. The programs `codecs` and
//! `formats` run them. They do no I/O, except that [`FastCdr`] builds and starts a program in C++.

mod alternatives;
mod cdr;
mod compile;
mod compressors;
mod evolved;
mod fastcdr;
pub mod formats;
mod prost_peer;
mod serde_peers;
mod subject;
mod text_peers;

pub use fastcdr::FastCdr;
pub use subject::{Measured, Subject, decoder, encoder};

/// The measurements of the program `codecs`, in the order of their tables in the report.
pub const MEASUREMENTS: &[crate::Measurement] = &[
    ("cdr", cdr::group),
    ("evolved", evolved::group),
    ("json", serde_peers::json),
    ("bson", serde_peers::bson),
    ("msgpack", serde_peers::msgpack),
    ("cbor", serde_peers::cbor),
    ("ubjson", serde_peers::ubjson),
    ("protobuf", prost_peer::protobuf),
    ("xml", text_peers::xml),
    ("yaml", text_peers::yaml),
    ("alternatives", alternatives::group),
    ("compile", compile::group),
    ("compressors", compressors::group),
];

/// Calls a function that is generic over the measured type for each of five types, and makes an
/// array of the results.
macro_rules! for_each_workload {
    ($function:ident($($argument:expr),*)) => {
        [
            $function::<polywire_workloads::MarketData>($($argument),*),
            $function::<polywire_workloads::CodecsTest10>($($argument),*),
            $function::<polywire_workloads::CodecsTest500>($($argument),*),
            $function::<polywire_workloads::ProcessorProbe>($($argument),*),
            $function::<polywire_workloads::Floats>($($argument),*),
        ]
    };
}
use for_each_workload;
