//! The compressor `lz77`: repetitions within the last 64 KiB are written as distance and length.
//! `spec/compress.md` defines the format.

use alloc::{boxed::Box, vec::Vec};

use super::{
    BuiltIn, Compress, CompressError, Decompress, DecompressError, Levels, Properties, SettingsError,
    matcher::{self, MIN_MATCH, Margins, Match, Matcher},
};
use crate::frame::varint;

/// The compressor `lz77`.
pub(super) static LZ77: BuiltIn = BuiltIn {
    name: "lz77",
    properties: &Properties {
        summary: "LZ77: repetitions within the last 64 KiB as distance and length",
        levels: Some(Levels { least: 1, most: 9, usual: 4 }),
        dictionary: false,
        typical_use: "machines without any library, and comparison",
        specification: "spec/compress.md",
    },
    compression,
    decompression: |_| Ok(Box::new(Decoder)),
};

const WINDOW: usize = 1 << 16;
const MAX_LITERALS: usize = 128;
/// The length in a control byte which says that more of the length follows.
const LONG: usize = 127;

fn compression(level: i32, _: &[u8]) -> Result<Box<dyn Compress>, SettingsError> {
    let tries = 1 << (level.clamp(1, 9) - 1);
    Ok(Box::new(Encoder { matcher: Matcher::new(WINDOW, tries) }))
}

struct Encoder {
    matcher: Matcher,
}

impl Compress for Encoder {
    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
        if input.len() > u32::MAX as usize / 4 {
            return Err(CompressError("more than 1 GiB at once"));
        }
        let emit = |literals: &[u8], found: Match| {
            put_literals(literals, out);
            let length = found.length - MIN_MATCH;
            out.push(0x80 | length.min(LONG) as u8);
            if length >= LONG {
                varint::put(out, (length - LONG) as u64);
            }
            varint::put(out, found.distance as u64 - 1);
        };
        let rest = self.matcher.parse(input, Margins { begin: 0, end: 0 }, emit);
        self.matcher.end(input.len());
        put_literals(rest, out);
        Ok(())
    }
}

fn put_literals(literals: &[u8], out: &mut Vec<u8>) {
    for chunk in literals.chunks(MAX_LITERALS) {
        out.push((chunk.len() - 1) as u8);
        out.extend_from_slice(chunk);
    }
}

struct Decoder;

impl Decompress for Decoder {
    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
        let (mut rest, expected, mut at) = (input, output.len(), 0);
        while at < expected {
            let ended = DecompressError::Truncated { written: at, expected };
            let too_long = DecompressError::TooLong { expected };
            let (control, after) = rest.split_first().ok_or(ended)?;
            if *control < 0x80 {
                let count = usize::from(*control) + 1;
                let (literals, after) = after.split_at_checked(count).ok_or(ended)?;
                output.get_mut(at..at + count).ok_or(too_long)?.copy_from_slice(literals);
                (rest, at) = (after, at + count);
                continue;
            }
            let offset = input.len() - after.len();
            let short = usize::from(control & 0x7F);
            let number = DecompressError::Malformed { offset, what: "a length or distance is malformed or too large" };
            let (more, after) = if short == LONG { varint::split(after).ok_or(number)? } else { (0, after) };
            let (distance, after) = varint::split(after).ok_or(number)?;
            let length = usize::try_from(more).ok().and_then(|more| more.checked_add(short + MIN_MATCH));
            let length = length.filter(|length| *length <= expected - at).ok_or(too_long)?;
            let distance = usize::try_from(distance).ok().filter(|distance| *distance < WINDOW).ok_or(number)? + 1;
            if distance > at {
                return Err(DecompressError::Malformed { offset, what: "a distance reaches to before the start" });
            }
            matcher::repeat(output, at, distance, length);
            (rest, at) = (after, at + length);
        }
        if rest.is_empty() { Ok(()) } else { Err(DecompressError::Trailing { left: rest.len() }) }
    }
}
