//! The compressor `lz4`: LZ4 blocks. A library compresses without a dictionary. With one, our own
//! compressor does, because the library would process the whole dictionary again for each message.

use alloc::{boxed::Box, vec::Vec};

use lz4_flex::block::{self, CompressTable};

use super::{
    BuiltIn, Compress, CompressError, Decompress, DecompressError, Properties, SettingsError,
    matcher::{MIN_MATCH, Margins, Match, Matcher},
};

/// The compressor `lz4`: one LZ4 block without a header.
pub(super) static LZ4: BuiltIn = BuiltIn {
    name: "lz4",
    properties: &Properties {
        summary: "LZ4: the fastest in both directions",
        levels: None,
        dictionary: true,
        typical_use: "links and processors that are both fast",
        specification: "LZ4 block format",
    },
    compression,
    decompression: |dictionary| Ok(Box::new(Decoder { dictionary: within_reach(dictionary).to_vec() })),
};

/// Largest distance of a match. Only this many bytes at the end of a dictionary are within reach.
const WINDOW: usize = 65_535;

/// A rule of the format: the last match begins at least 12 bytes before the end, and the last 5
/// bytes are literals.
const MARGINS: Margins = Margins { begin: 12, end: 5 };

fn compression(_: i32, dictionary: &[u8]) -> Result<Box<dyn Compress>, SettingsError> {
    let dictionary = within_reach(dictionary);
    if dictionary.is_empty() {
        return Ok(Box::new(Encoder { small: CompressTable::small(), large: None }));
    }
    let matcher = Matcher::new(WINDOW, 1).with_dictionary(dictionary);
    Ok(Box::new(DictionaryEncoder { matcher, data: dictionary.to_vec(), dictionary: dictionary.len() }))
}

fn within_reach(dictionary: &[u8]) -> &[u8] {
    dictionary.get(dictionary.len().saturating_sub(WINDOW)..).unwrap_or_default()
}

struct Encoder {
    /// For messages up to 64 KiB. It is smaller, so clearing it takes less time.
    small: CompressTable,
    large: Option<CompressTable>,
}

impl Compress for Encoder {
    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
        let start = out.len();
        out.resize(start + block::get_maximum_output_size(input.len()), 0);
        let table = match input.len() {
            ..65_535 => &mut self.small,
            _ => self.large.get_or_insert_with(CompressTable::large),
        };
        let room = out.get_mut(start..).unwrap_or_default();
        let len = block::compress_into_with_table(input, room, table)
            .map_err(|_| CompressError("the output buffer is too small"))?;
        out.truncate(start + len);
        Ok(())
    }
}

struct DictionaryEncoder {
    matcher: Matcher,
    /// The dictionary, followed by the current message.
    data: Vec<u8>,
    dictionary: usize,
}

impl Compress for DictionaryEncoder {
    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
        if input.len() > u32::MAX as usize / 4 {
            return Err(CompressError("more than 1 GiB at once"));
        }
        self.data.truncate(self.dictionary);
        self.data.extend_from_slice(input);
        let rest = self.matcher.parse(&self.data, MARGINS, |literals, found| put(literals, Some(found), out));
        put(rest, None, out);
        self.matcher.end(self.data.len());
        Ok(())
    }
}

/// Writes a sequence: literals and the match after them. The last sequence has no match.
fn put(literals: &[u8], found: Option<Match>, out: &mut Vec<u8>) {
    let length = found.map_or(0, |found| found.length - MIN_MATCH);
    out.push((literals.len().min(15) << 4 | length.min(15)) as u8);
    put_more(literals.len(), out);
    out.extend_from_slice(literals);
    if let Some(found) = found {
        out.extend((found.distance as u16).to_le_bytes());
        put_more(length, out);
    }
}

/// Writes the part of a length that exceeds four bits: bytes of 255, and a last one that is less.
fn put_more(length: usize, out: &mut Vec<u8>) {
    if let Some(mut more) = length.checked_sub(15) {
        while more >= 255 {
            out.push(255);
            more -= 255;
        }
        out.push(more as u8);
    }
}

struct Decoder {
    dictionary: Vec<u8>,
}

impl Decompress for Decoder {
    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
        let expected = output.len();
        let written = match self.dictionary.as_slice() {
            [] => block::decompress_into(input, output),
            dictionary => block::decompress_into_with_dict(input, output, dictionary),
        };
        use block::DecompressError as Library;
        match written {
            Ok(written) if written == expected => Ok(()),
            Ok(written) => Err(DecompressError::Truncated { written, expected }),
            Err(Library::OutputTooSmall { .. }) => Err(DecompressError::TooLong { expected }),
            Err(Library::OffsetZero) => Err(DecompressError::Damaged("a distance of 0")),
            Err(Library::OffsetOutOfBounds) => Err(DecompressError::Damaged("a distance reaches to before the start")),
            Err(_) => Err(DecompressError::Damaged("the input ends too early")),
        }
    }
}
