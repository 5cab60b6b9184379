//! The compressor `rle`: run-length encoding of repeated bytes. `spec/compress.md` defines the
//! format.

use alloc::{boxed::Box, vec::Vec};

use super::{BuiltIn, Compress, CompressError, Decompress, DecompressError, Properties};

/// The compressor `rle`.
pub(super) static RLE: BuiltIn = BuiltIn {
    name: "rle",
    properties: &Properties {
        summary: "run-length encoding of repeated bytes",
        levels: None,
        dictionary: false,
        typical_use: "images and tables with long runs, on the smallest machines",
        specification: "spec/compress.md",
    },
    compression: |_, _| Ok(Box::new(State)),
    decompression: |_| Ok(Box::new(State)),
};

/// Length of the shortest run that is counted. Shorter runs would take as many bytes as literals.
const MIN_RUN: usize = 3;
const MAX_RUN: usize = MIN_RUN + 127;
const MAX_LITERALS: usize = 128;

struct State;

impl Compress for State {
    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
        let (mut rest, mut literals) = (input, input);
        while let Some(byte) = rest.first() {
            let run = rest.iter().take(MAX_RUN).take_while(|other| *other == byte).count();
            let (repeated, after) = rest.split_at(run);
            if run >= MIN_RUN {
                put_literals(literals, rest, out);
                out.extend([0x80 | (repeated.len() - MIN_RUN) as u8, *byte]);
                literals = after;
            }
            rest = after;
        }
        put_literals(literals, rest, out);
        Ok(())
    }
}

/// Writes the bytes of `from` in front of `until`, which is the end of `from`.
fn put_literals(from: &[u8], until: &[u8], out: &mut Vec<u8>) {
    let (literals, _) = from.split_at(from.len() - until.len());
    for chunk in literals.chunks(MAX_LITERALS) {
        out.push((chunk.len() - 1) as u8);
        out.extend_from_slice(chunk);
    }
}

impl Decompress for State {
    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
        let (mut rest, expected, mut at) = (input, output.len(), 0);
        while at < expected {
            let ended = DecompressError::Truncated { written: at, expected };
            let (control, after) = rest.split_first().ok_or(ended)?;
            let room = output.get_mut(at..).unwrap_or_default();
            let count = usize::from(control & 0x7F) + if *control < 0x80 { 1 } else { MIN_RUN };
            let target = room.get_mut(..count).ok_or(DecompressError::TooLong { expected })?;
            rest = if *control < 0x80 {
                let (literals, after) = after.split_at_checked(count).ok_or(ended)?;
                target.copy_from_slice(literals);
                after
            } else {
                let (byte, after) = after.split_first().ok_or(ended)?;
                target.fill(*byte);
                after
            };
            at += count;
        }
        if rest.is_empty() { Ok(()) } else { Err(DecompressError::Trailing { left: rest.len() }) }
    }
}
