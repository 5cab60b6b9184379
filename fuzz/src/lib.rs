//! Fuzz targets for every parser and decoder: [`TARGETS`]. README.md describes them. The binary of
//! this crate and its tests run them. Targets only compute, except that those for IDL and PDL read
//! files of this repository to generate inputs, `cycle` starts a thread, `peer`, `udp`, `dds`,
//! `zenoh` and `zeromq` start nodes, and the last four open sockets on the loopback interface.

mod compressors;
#[cfg(feature = "dds")]
mod dds;
mod discovery;
mod feeds;
mod groups;
mod layouts;
mod messages;
mod nodes;
mod programs;
mod reused;
mod sources;
mod talk;
#[cfg(not(all(feature = "dds", feature = "zenoh")))]
mod without;
#[cfg(feature = "zenoh")]
mod zenoh;
mod zeromq;

use polywire_core::schema::arbitrary::Random;
#[cfg(not(feature = "dds"))]
use without as dds;
#[cfg(not(feature = "zenoh"))]
use without as zenoh;

/// A fuzz target: a generator of inputs, and a check of code that takes untrusted bytes.
pub struct Target {
    /// The name. Names of files in `regressions/` begin with it.
    pub name: &'static str,
    /// Generates an input. Most inputs are valid ones with defects.
    pub generate: fn(&mut Random) -> Vec<u8>,
    /// Runs the code on an input, and panics if the code has a defect.
    pub run: fn(&[u8]),
}

/// All targets. Those for codecs and compressors use the tables of `polywire-core`.
pub static TARGETS: &[Target] = &[
    Target { name: "idl", generate: sources::idl_text, run: sources::compile_idl },
    Target { name: "pdl", generate: sources::pdl_text, run: sources::compile_pdl },
    Target { name: "ros", generate: sources::ros_text, run: sources::compile_ros },
    Target { name: "wire", generate: sources::wire_text, run: sources::read_wire },
    Target { name: "config", generate: sources::config_text, run: sources::read_config },
    Target { name: "schema", generate: layouts::schema_bytes, run: layouts::read_schema },
    Target { name: "types", generate: layouts::type_object_bytes, run: layouts::read_type_objects },
    Target { name: "layout", generate: layouts::record_bytes, run: layouts::use_record },
    Target { name: "stream", generate: messages::stream_bytes, run: messages::read_stream },
    Target { name: "datagram", generate: messages::datagram_bytes, run: messages::read_datagram },
    Target { name: "group", generate: groups::group_packets, run: groups::read_group_packets },
    Target { name: "peer", generate: nodes::stream_bytes, run: nodes::read_stream },
    Target { name: "udp", generate: nodes::record_bytes, run: nodes::read_records },
    Target { name: "dds", generate: dds::samples, run: dds::meet },
    Target { name: "zenoh", generate: zenoh::samples, run: zenoh::meet },
    Target { name: "zeromq", generate: zeromq::message_frames, run: zeromq::meet },
    Target { name: "socket", generate: programs::conversation, run: programs::take },
    Target { name: "directory", generate: discovery::description_bytes, run: discovery::collect },
    Target { name: "record", generate: discovery::record_bytes, run: discovery::read_record },
    Target { name: "entities", generate: discovery::ros_bytes, run: discovery::read_ros },
    Target { name: "descriptions", generate: discovery::answer_bytes, run: discovery::read_answer },
    Target { name: "mdns", generate: discovery::packet_bytes, run: discovery::read_packet },
    Target { name: "decode", generate: messages::message_bytes, run: messages::decode },
    Target { name: "evolved", generate: messages::message_bytes, run: messages::decode_evolved },
    Target { name: "reused", generate: messages::message_bytes, run: reused::decode_again },
    Target { name: "evolve", generate: messages::seed_bytes, run: messages::evolve },
    Target { name: "transcode", generate: messages::seed_bytes, run: messages::transcode },
    Target { name: "unpack", generate: compressors::packed_bytes, run: compressors::unpack },
    Target { name: "pack", generate: compressors::payload_bytes, run: compressors::pack },
    Target { name: "settings", generate: compressors::settings_bytes, run: compressors::configure },
    Target { name: "template", generate: feeds::template_text, run: feeds::read_template },
    Target { name: "cycle", generate: feeds::recursive_text, run: feeds::bind_recursive },
    Target { name: "feed", generate: feeds::feed_bytes, run: feeds::decode_feed },
    Target { name: "framing", generate: feeds::framed_bytes, run: feeds::split },
    Target { name: "deltas", generate: feeds::link_bytes, run: feeds::deltas_over_a_link },
    Target { name: "program", generate: messages::seed_bytes, run: messages::run_program },
];

/// Finds a target by its name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The target of a file in `regressions/`: its name is the text before the last hyphen.
pub fn target_of_file(name: &str) -> Option<&'static Target> {
    target(name.strip_suffix(".bin")?.rsplit_once('-')?.0)
}

/// The number in the first eight bytes of an input. Missing bytes are zero.
fn seed(input: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(input).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(bytes)
}
