//! The lower layers of the API, for authors of codecs, compressors and engines.
//!
//! | module | what it has | who needs it |
//! |---|---|---|
//! | [`codec`] | the `Codec` trait, the table, encoders and decoders | codecs |
//! | [`program`] | the operations that a codec lowers a type to, and kernels | codecs |
//! | [`layout`] | where the members of a value lie | codecs |
//! | [`compress`] | the `Compressor` trait and the table | compressors |
//! | [`envelope`] | the metadata of a payload | engines |
//! | [`frame`] | the frames of a byte stream or datagram, with their limits | engines |
//! | [`framing`] | how files are divided into encoded messages | tools |
//!
//! [`NodeBuilder`](crate::NodeBuilder) registers the results by
//! [`codec`](crate::NodeBuilder::codec), [`compressor`](crate::NodeBuilder::compressor) and
//! [`engine`](crate::NodeBuilder::engine). A compressor:
//!
//! ```
//! use polywire::{Node, extend::compress::{Compressor, find}};
//! let (node, lz4) = (Node::builder(), find("lz4").expect("built in"));
//! assert_eq!(lz4.name(), "lz4");
//! node.compressor(lz4).build();
//! ```

pub use polywire_core::{codec, compress, envelope, frame, framing, layout, program};
