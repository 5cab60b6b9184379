//! The entries of a segment: samples and descriptions of streams. Each has a checksum, so that a
//! damaged entry is skipped and the others are read.

use polywire::{
    codec::{self, BuildError, Decoder, Encoder, Options},
    extend::program::{Backend, CodecError, Payload},
};

use crate::packet::{DataPacket, MAX_DOCUMENT_BYTES, MAX_PAYLOAD_BYTES, StreamDescription};

/// The mark at the beginning of each entry, so that the next one can be found after damage.
const MARK: [u8; 4] = [0xd7, 0x50, 0x57, 0x01];

/// The size of an entry's header: mark, length of the body, checksum of length and body.
const HEAD_BYTES: usize = 12;

/// The maximum size of an entry's body in bytes.
const MAX_BODY_BYTES: usize = MAX_PAYLOAD_BYTES + 2 * MAX_DOCUMENT_BYTES + 4096;

const STREAM: u8 = 1;
const SAMPLE: u8 = 2;

/// An entry of a segment.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// The description of a stream whose samples follow.
    Stream(StreamDescription),
    /// A sample.
    Sample(DataPacket),
}

/// A part of a segment.
#[derive(Debug, PartialEq)]
pub enum Found {
    /// A valid entry.
    Entry(Entry),
    /// Bytes that are not a valid entry.
    Damage,
}

/// Writes and reads entries.
pub struct Entries {
    encoder: Encoder<StreamDescription>,
    decoder: Decoder<StreamDescription>,
}

impl Entries {
    pub fn new() -> Result<Entries, BuildError> {
        let (codec, options) = (&codec::cdr::CDR, Options::default());
        let encoder = Encoder::with_backend(codec, &options, Backend::Interpreter)?;
        let decoder = Decoder::with_backend(codec, &options, encoder.schema(), Backend::Interpreter)?;
        Ok(Entries { encoder, decoder })
    }

    /// Appends a description of a stream.
    pub fn put_stream(&self, stream: &StreamDescription, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let mut body = vec![STREAM];
        self.encoder.encode(stream, &mut body)?;
        put(&[&body], out);
        Ok(())
    }

    /// Returns the entry or the damage at an offset, and where it ends; `None` at the end of the
    /// bytes.
    pub fn at(&self, bytes: &[u8], offset: usize) -> Option<(Found, usize)> {
        let rest = bytes.get(offset..).filter(|rest| !rest.is_empty())?;
        if let Some((entry, len)) = self.whole(rest) {
            return Some((Found::Entry(entry), offset + len));
        }
        let marks = rest.windows(MARK.len()).enumerate().skip(1).filter(|(_, window)| *window == MARK);
        let next = marks.map(|(at, _)| at).find(|at| self.whole(&rest[*at..]).is_some());
        Some((Found::Damage, offset + next.unwrap_or(rest.len())))
    }

    fn whole(&self, bytes: &[u8]) -> Option<(Entry, usize)> {
        let rest = bytes.strip_prefix(&MARK)?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (sum, rest) = rest.split_first_chunk::<4>()?;
        let size = usize::try_from(u32::from_le_bytes(*len)).ok().filter(|size| *size <= MAX_BODY_BYTES)?;
        let body = rest.get(..size)?;
        let entry = (u32::from_le_bytes(*sum) == checksum(len, &[body])).then(|| self.parse(body))??;
        Some((entry, HEAD_BYTES + size))
    }

    fn parse(&self, body: &[u8]) -> Option<Entry> {
        let (kind, body) = body.split_first()?;
        match *kind {
            STREAM => {
                let mut stream = StreamDescription::default();
                self.decoder.decode_measured(Payload::Bytes(body), &mut stream).ok()?;
                Some(Entry::Stream(stream))
            }
            SAMPLE => {
                let (stream, body) = body.split_first_chunk()?;
                let (sequence, body) = body.split_first_chunk()?;
                let (time_ns, payload) = body.split_first_chunk()?;
                Some(Entry::Sample(DataPacket {
                    stream: u32::from_le_bytes(*stream),
                    sequence: u64::from_le_bytes(*sequence),
                    time_ns: i64::from_le_bytes(*time_ns),
                    payload: payload.to_vec(),
                }))
            }
            _ => None,
        }
    }
}

/// Appends a sample.
pub fn put_sample(sample: &DataPacket, out: &mut Vec<u8>) {
    let DataPacket { stream, sequence, time_ns, payload } = sample;
    put(&[&[SAMPLE], &stream.to_le_bytes(), &sequence.to_le_bytes(), &time_ns.to_le_bytes(), payload], out);
}

fn put(parts: &[&[u8]], out: &mut Vec<u8>) {
    // Callers limit the parts to a size much smaller than that.
    let len = u32::try_from(parts.iter().map(|part| part.len()).sum::<usize>()).unwrap_or(u32::MAX).to_le_bytes();
    out.extend_from_slice(&MARK);
    out.extend_from_slice(&len);
    out.extend_from_slice(&checksum(&len, parts).to_le_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Computes the CRC-32, as in Ethernet and zip.
fn checksum(len: &[u8; 4], parts: &[&[u8]]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(len);
    parts.iter().for_each(|part| sum.update(part));
    sum.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sequence: u64) -> DataPacket {
        // A payload that looks like an entry does not mislead the search for the next entry.
        let payload = [MARK.as_slice(), &[3, 0, 0, 0], &[9; 20]].concat();
        DataPacket { stream: 7, sequence, time_ns: -5, payload }
    }

    fn all(entries: &Entries, bytes: &[u8]) -> (Vec<Entry>, usize) {
        let (mut found, mut damage, mut offset) = (Vec::new(), 0, 0);
        while let Some((part, end)) = entries.at(bytes, offset) {
            assert!(end > offset && end <= bytes.len());
            offset = end;
            match part {
                Found::Entry(entry) => found.push(entry),
                Found::Damage => damage += 1,
            }
        }
        (found, damage)
    }

    fn segment(entries: &Entries) -> (Vec<u8>, Vec<Entry>) {
        let stream = StreamDescription { number: 7, instance: "pump".into(), schema: vec![1; 9], ..Default::default() };
        let mut bytes = Vec::new();
        entries.put_stream(&stream, &mut bytes).expect("encoded");
        (0..4).for_each(|sequence| put_sample(&sample(sequence), &mut bytes));
        let whole = [Entry::Stream(stream)].into_iter().chain((0..4).map(|n| Entry::Sample(sample(n)))).collect();
        (bytes, whole)
    }

    #[test]
    fn cut_at_any_byte_what_is_whole_is_read() {
        let entries = Entries::new().expect("entries");
        let (bytes, whole) = segment(&entries);
        assert_eq!(all(&entries, &bytes), (whole.clone(), 0));
        for end in 0..bytes.len() {
            let (found, damage) = all(&entries, &bytes[..end]);
            assert_eq!(found, whole[..found.len()]);
            assert!(damage <= 1 && found.len() < whole.len(), "{end}");
        }
    }

    #[test]
    fn a_flipped_bit_costs_one_entry() {
        let entries = Entries::new().expect("entries");
        let (bytes, whole) = segment(&entries);
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let (found, damage) = all(&entries, &flipped);
            assert_eq!((found.len(), damage), (whole.len() - 1, 1), "{bit}");
            assert!(found.iter().all(|entry| whole.contains(entry)));
        }
    }
}
