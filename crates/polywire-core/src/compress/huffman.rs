//! The compressor `huffman`: canonical Huffman codes over bytes. Frequent bytes take few bits.

use alloc::{boxed::Box, vec, vec::Vec};

use super::{
    BuiltIn, Compress, CompressError, Decompress, DecompressError, Properties,
    bits::{BitReader, BitWriter},
};

/// The compressor `huffman`.
pub(super) static HUFFMAN: BuiltIn = BuiltIn {
    name: "huffman",
    properties: &Properties {
        summary: "canonical Huffman codes: frequent bytes take few bits",
        levels: None,
        dictionary: false,
        typical_use: "text without repetitions, and comparison",
        specification: "spec/compress.md",
    },
    compression: |_, _| Ok(Box::new(Encoder { nodes: Vec::with_capacity(512), leaves: Vec::with_capacity(256) })),
    decompression: |_| Ok(Box::new(Decoder { table: vec![Entry::default(); TABLE] })),
};

/// Length of the longest code. A table for all values of this length decodes a byte with one
/// lookup.
const MAX_BITS: u32 = 12;
const TABLE: usize = 1 << MAX_BITS;

/// Runs of unused bytes up to this length take two groups of four bits.
const SHORT_RUN: usize = 15;

/// Length of each byte's code in bits. 0 for bytes that do not occur.
type Lengths = [u8; 256];

struct Encoder {
    nodes: Vec<Node>,
    leaves: Vec<(u32, u8)>,
}

/// A leaf or inner node of the tree under construction.
#[derive(Clone, Copy)]
struct Node {
    weight: u32,
    parent: u16,
}

impl Compress for Encoder {
    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
        if input.is_empty() {
            return Ok(());
        }
        if u32::try_from(input.len()).is_err() {
            return Err(CompressError("more than 4 GiB at once"));
        }
        let lengths = self.lengths(input);
        let codes = codes(&lengths);
        let mut bits = BitWriter::new(out);
        put_lengths(&lengths, &mut bits);
        for byte in input {
            let byte = usize::from(*byte);
            bits.put(u32::from(codes[byte]), u32::from(lengths[byte]));
        }
        bits.finish();
        Ok(())
    }
}

impl Encoder {
    fn lengths(&mut self, input: &[u8]) -> Lengths {
        let mut counts = [0u32; 256];
        input.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        self.leaves.clear();
        self.leaves.extend((0..=255u8).map(|byte| (counts[usize::from(byte)], byte)).filter(|(count, _)| *count > 0));
        // Sorted by weight, and by byte for equal weights, so that every implementation finds the
        // same codes.
        self.leaves.sort_unstable();
        let mut lengths = [0; 256];
        if let [(_, only)] = self.leaves[..] {
            lengths[usize::from(only)] = 1;
            return lengths;
        }
        let mut by_depth = self.count_by_depth();
        limit(&mut by_depth);
        let mut rarest_first = self.leaves.iter();
        for depth in (1..=MAX_BITS).rev() {
            let here = rarest_first.by_ref().take(usize::from(by_depth[depth as usize]));
            here.for_each(|(_, byte)| lengths[usize::from(*byte)] = depth as u8);
        }
        lengths
    }

    /// The number of leaves at each depth of the Huffman tree. Leaves below the longest code's
    /// depth are counted there.
    fn count_by_depth(&mut self) -> [u16; MAX_BITS as usize + 1] {
        let leaves = self.leaves.len();
        self.nodes.clear();
        self.nodes.extend(self.leaves.iter().map(|(weight, _)| Node { weight: *weight, parent: 0 }));
        // Leaves and inner nodes are both in ascending order, so the two lightest are at the front
        // of either.
        let (mut leaf, mut inner) = (0, leaves);
        for new in leaves..2 * leaves - 1 {
            let mut weight = 0;
            for _ in 0..2 {
                let from_leaves =
                    leaf < leaves && (inner >= new || self.nodes[leaf].weight <= self.nodes[inner].weight);
                let lightest = if from_leaves { &mut leaf } else { &mut inner };
                weight += self.nodes[*lightest].weight;
                self.nodes[*lightest].parent = new as u16;
                *lightest += 1;
            }
            self.nodes.push(Node { weight, parent: 0 });
        }
        // The weights are no longer needed. From the root down they are replaced by depths.
        let mut by_depth = [0; MAX_BITS as usize + 1];
        if let Some(root) = self.nodes.last_mut() {
            root.weight = 0;
        }
        for at in (0..2 * leaves - 2).rev() {
            let depth = self.nodes[usize::from(self.nodes[at].parent)].weight + 1;
            self.nodes[at].weight = depth;
            if at < leaves {
                by_depth[depth.min(MAX_BITS) as usize] += 1;
            }
        }
        by_depth
    }
}

/// Makes room for leaves that were too deep. Until the codes fit, a leaf of the deepest other level
/// moves one level down, and a leaf from the bottom becomes its sibling.
fn limit(by_depth: &mut [u16; MAX_BITS as usize + 1]) {
    let place = |depth: usize| 1u32 << (MAX_BITS as usize - depth);
    let mut taken: u32 = (1..by_depth.len()).map(|depth| u32::from(by_depth[depth]) * place(depth)).sum();
    while taken > TABLE as u32 {
        let bottom = MAX_BITS as usize;
        let above = (1..bottom).rev().find(|depth| by_depth[*depth] > 0).unwrap_or(1);
        by_depth[bottom] -= 1;
        by_depth[above] -= 1;
        by_depth[above + 1] += 2;
        taken -= 1;
    }
}

/// The code of each byte, with its first bit lowest. Codes of equal length are in the order of
/// their bytes.
fn codes(lengths: &Lengths) -> [u16; 256] {
    let mut next = first_codes(lengths);
    let mut codes = [0; 256];
    for (code, length) in codes.iter_mut().zip(lengths).filter(|(_, length)| **length > 0) {
        let next = &mut next[usize::from(*length)];
        *code = (*next).reverse_bits() >> (16 - length);
        *next = next.wrapping_add(1);
    }
    codes
}

/// The first code of each length.
fn first_codes(lengths: &Lengths) -> [u16; MAX_BITS as usize + 1] {
    let mut counts = [0u16; MAX_BITS as usize + 1];
    lengths.iter().filter(|length| **length > 0).for_each(|length| counts[usize::from(*length)] += 1);
    let (mut first, mut code) = ([0; MAX_BITS as usize + 1], 0u16);
    for length in 1..first.len() {
        code = code.wrapping_add(counts[length - 1]) << 1;
        first[length] = code;
    }
    first
}

fn put_lengths(lengths: &Lengths, bits: &mut BitWriter<'_>) {
    let mut rest = &lengths[..];
    while let Some(length) = rest.first() {
        if *length > 0 {
            bits.put(u32::from(*length), 4);
            rest = &rest[1..];
            continue;
        }
        let run = rest.iter().take_while(|length| **length == 0).count();
        bits.put(0, 4);
        if run <= SHORT_RUN {
            bits.put(run as u32 - 1, 4);
        } else {
            bits.put(15, 4);
            bits.put((run - SHORT_RUN - 1) as u32, 8);
        }
        rest = &rest[run..];
    }
}

struct Decoder {
    table: Vec<Entry>,
}

/// An entry of the decoding table: a byte and the length of its code. The length is 0 for bits that
/// are not a code.
#[derive(Clone, Copy, Default)]
struct Entry {
    byte: u8,
    length: u8,
}

impl Decompress for Decoder {
    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
        if output.is_empty() {
            return BitReader::new(input).finish();
        }
        let mut bits = BitReader::new(input);
        let lengths = take_lengths(&mut bits)
            .ok_or(DecompressError::Malformed { offset: 0, what: "the code lengths do not form a code" })?;
        self.fill(&lengths);
        let expected = output.len();
        for (at, to) in output.iter_mut().enumerate() {
            let entry = self.table.get(bits.peek(MAX_BITS) as usize).copied().unwrap_or_default();
            bits.skip(u32::from(entry.length));
            if entry.length == 0 {
                return Err(DecompressError::Malformed {
                    offset: bits.offset(input),
                    what: "bits that are not a code",
                });
            }
            if bits.overrun() {
                return Err(DecompressError::Truncated { written: at, expected });
            }
            *to = entry.byte;
        }
        bits.finish()
    }
}

impl Decoder {
    fn fill(&mut self, lengths: &Lengths) {
        self.table.fill(Entry::default());
        for (byte, (code, length)) in (0..=255u8).zip(codes(lengths).iter().zip(lengths)).filter(|(_, (_, l))| **l > 0)
        {
            let slots = self.table.iter_mut().skip(usize::from(*code)).step_by(1 << length);
            slots.for_each(|slot| *slot = Entry { byte, length: *length });
        }
    }
}

/// Reads the code lengths. `None` unless the codes fill the table, or there is only one code, of
/// one bit.
fn take_lengths(bits: &mut BitReader<'_>) -> Option<Lengths> {
    let (mut lengths, mut at, mut used, mut place) = ([0; 256], 0, 0, 0);
    while at < lengths.len() {
        let length = bits.take(4);
        if bits.overrun() || length > MAX_BITS {
            return None;
        }
        if length > 0 {
            *lengths.get_mut(at)? = length as u8;
            (at, used, place) = (at + 1, used + 1, place + (1 << (MAX_BITS - length)));
            continue;
        }
        let run = match bits.take(4) {
            15 => bits.take(8) as usize + SHORT_RUN,
            run => run as usize,
        };
        at += run + 1;
    }
    let complete = place == TABLE || (used == 1 && place == TABLE / 2);
    (at == lengths.len() && complete && !bits.overrun()).then_some(lengths)
}
