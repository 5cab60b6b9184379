//! Requests as JSON, for audit records and for programs.

use polywire::{codec::Encoder, extend::layout::Codable};

/// Returns a request as JSON. `encoder` must be one for that format.
pub(crate) fn json<V: Codable>(encoder: &Encoder<V>, request: &V) -> String {
    let mut text = Vec::new();
    // JSON can represent every value; the text of a request that is too long is empty.
    let _ = encoder.encode(request, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}
