//! The JSON lines that `fast decode` writes and `fast encode` reads.

use std::{borrow::Cow, fmt::Write as _};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A message, a frame without messages, or bytes between frames. Bytes are in hexadecimal.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Line<'a> {
    /// Number of the frame, from 1, for all messages of the frame. Absent without framing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<u64>,
    /// Bytes before the frame's payload, unless the framing derives them from the payload; on the
    /// frame's first line.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub head: Option<Cow<'a, str>>,
    /// Bytes before the frame's messages, on the frame's first line; without framing, bytes before
    /// the message.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub preamble: Option<Cow<'a, str>>,
    /// The message's template.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub template: Option<Cow<'a, str>>,
    /// The message.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub message: Option<&'a RawValue>,
    /// The message's bytes, if they are not the shortest encoding.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Cow<'a, str>>,
    /// Bytes at the frame's end that could not be read as messages.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub undecoded: Option<Cow<'a, str>>,
    /// Bytes after the frame's payload; on the frame's last line.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Cow<'a, str>>,
    /// Bytes that belong to no frame.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub other: Option<Cow<'a, str>>,
}

/// Formats bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> Cow<'static, str> {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

/// Parses hexadecimal bytes. `name` is the member, for errors.
pub fn bytes(name: &str, hex: Option<&Cow<'_, str>>) -> anyhow::Result<Vec<u8>> {
    let Some(hex) = hex else { return Ok(Vec::new()) };
    if !hex.is_ascii() || hex.len() % 2 != 0 {
        bail!("'{name}' is not hexadecimal: two digits a byte are expected");
    }
    let byte = |at: usize| hex.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
    bytes.with_context(|| format!("'{name}' is not hexadecimal"))
}
