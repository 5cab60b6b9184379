//! Requests as text, for records of commands and for programs.

use polywire::{codec::Encoder, extend::layout::Codable};

/// A request as JSON, by an encoder for that format.
pub(crate) fn json<V: Codable>(encoder: &Encoder<V>, request: &V) -> String {
    let mut text = Vec::new();
    // JSON has a text for every value; a request that is too long for one is empty.
    let _ = encoder.encode(request, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}
