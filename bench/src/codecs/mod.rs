//! Codecs against hand-written code and against peers.

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

use crate::{measure::Effort, report::Group};

/// A measurement by the name that chooses it.
pub type Measurement = (&'static str, fn(Effort) -> Group);

/// All measurements, in the order of their tables.
pub const MEASUREMENTS: &[Measurement] = &[
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

/// Does something for each of the measured types.
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
