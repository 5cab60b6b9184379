//! The compressor `lzo`: LZO1X, a format that consists of whole bytes. The compressor is our own,
//! written from the description of the format; the decompressor is a library.

use alloc::{boxed::Box, vec::Vec};

use super::{
    BuiltIn, Compress, CompressError, Decompress, DecompressError, Properties,
    matcher::{Margins, Match, Matcher},
};

/// The compressor `lzo`: one LZO1X block without a header.
pub(super) static LZO: BuiltIn = BuiltIn {
    name: "lzo",
    properties: &Properties {
        summary: "LZO1X: fast in both directions; repetitions within the last 48 KiB",
        levels: None,
        dictionary: false,
        typical_use: "peers that use LZO",
        specification: "the LZO stream format as the Linux kernel documents it, version 0",
    },
    compression: |_, _| Ok(Box::new(Encoder { matcher: Matcher::new(FAR, 1) })),
    decompression: |_| Ok(Box::new(Decoder)),
};

/// Largest distances: of instructions of two bytes (`NEAR`), and of the two kinds of instructions
/// of three bytes (`MIDDLE`, `FAR`).
const NEAR: usize = 0x0800;
const MIDDLE: usize = 0x4000;
const FAR: usize = 0xBFFF;

/// The longest match that takes two bytes.
const SHORT: usize = 8;

const END: [u8; 3] = [0x11, 0, 0];

struct Encoder {
    matcher: Matcher,
}

impl Compress for Encoder {
    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
        if input.len() > u32::MAX as usize / 4 {
            return Err(CompressError("more than 1 GiB at once"));
        }
        let start = out.len();
        let emit = |literals: &[u8], found: Match| {
            put_literals(literals, start, out);
            put_match(found, out);
        };
        let rest = self.matcher.parse(input, Margins { begin: 0, end: 0 }, emit);
        self.matcher.end(input.len());
        put_literals(rest, start, out);
        out.extend(END);
        Ok(())
    }
}

/// Writes literals. Up to three of them are counted in the two low bits of the previous match,
/// which are in its last byte but one.
fn put_literals(literals: &[u8], start: usize, out: &mut Vec<u8>) {
    let last_but_one = out.len().wrapping_sub(2);
    match literals.len() {
        0 => {}
        len @ ..=238 if out.len() == start => out.push(17 + len as u8),
        len @ ..=3 => out[last_but_one] |= len as u8,
        len @ ..=18 => out.push(len as u8 - 3),
        len => put_long(0, len - 18, out),
    }
    out.extend_from_slice(literals);
}

fn put_match(Match { distance, length }: Match, out: &mut Vec<u8>) {
    if length <= SHORT && distance <= NEAR {
        let back = distance - 1;
        out.extend([((length - 1) << 5 | (back & 7) << 2) as u8, (back >> 3) as u8]);
        return;
    }
    let (head, longest, back) = match distance {
        ..=MIDDLE => (0x20, 33, distance - 1),
        _ => (0x10 | ((distance - MIDDLE) >> 11 & 8) as u8, 9, distance - MIDDLE),
    };
    if length <= longest {
        out.push(head | (length - 2) as u8);
    } else {
        put_long(head, length - longest, out);
    }
    out.extend([(back << 2) as u8, (back >> 6) as u8]);
}

/// Writes an instruction with a length that does not fit into it: a zero byte for each 255, and a
/// last byte that is not zero.
fn put_long(instruction: u8, mut length: usize, out: &mut Vec<u8>) {
    out.push(instruction);
    while length > 255 {
        out.push(0);
        length -= 255;
    }
    out.push(length as u8);
}

struct Decoder;

impl Decompress for Decoder {
    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
        let expected = output.len();
        match lzokay::decompress::decompress(input, output) {
            Ok(written) if written == expected => Ok(()),
            Ok(written) => Err(DecompressError::Truncated { written, expected }),
            Err(lzokay::Error::LookbehindOverrun) => {
                Err(DecompressError::Damaged("a distance reaches to before the start"))
            }
            Err(lzokay::Error::OutputOverrun) => Err(DecompressError::TooLong { expected }),
            Err(lzokay::Error::InputOverrun) => Err(DecompressError::Damaged("the input ends too early")),
            Err(lzokay::Error::InputNotConsumed) => Err(DecompressError::Damaged("bytes are left over")),
            Err(_) => Err(DecompressError::Damaged("not LZO1X")),
        }
    }
}
