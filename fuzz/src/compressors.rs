//! Targets for compressed payloads, settings and dictionaries.

use crate::seed;
use polywire_core::{
    compress::{COMPRESSORS, Compressor, Limits, Packer, Settings, Unpacker, announced_dictionary},
    schema::arbitrary::Random,
};
use polywire_testing::mutated;

const LIMITS: Limits = Limits { message_bytes: 1 << 20, expansion: 1024, free_bytes: 1 << 16 };

/// A payload of compressible and random parts: runs of a byte, repeated words, repetitions of
/// earlier bytes, and random bytes.
fn payload(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(12) {
        let (size, byte) = (random.below(400), random.bits() as u8);
        let start = bytes.len();
        match random.below(4) {
            0 => bytes.resize(start + size, byte),
            1 => bytes.extend(b"temperature_c\":".iter().cycle().take(size)),
            2 => (0..size).for_each(|i| bytes.push(if start > 0 { bytes[i % start] } else { byte })),
            _ => bytes.extend((0..size).map(|_| random.bits() as u8)),
        }
    }
    bytes
}

/// The compressor, dictionary and settings that the first two bytes of an input choose. The first
/// has the compressor's number and whether it uses a dictionary, the second the level.
fn chosen(input: &[u8]) -> (&'static dyn Compressor, Vec<u8>, Settings) {
    let (which, level) = (input.first().copied().unwrap_or(0), input.get(1).copied().unwrap_or(0));
    let compressor = COMPRESSORS[usize::from(which & 0x7F) % COMPRESSORS.len()];
    let with_dictionary = which & 0x80 != 0 && compressor.properties().dictionary;
    let dictionary = if with_dictionary { b"\"temperature_c\":21.5,\"station\":\"EDDM\"".to_vec() } else { Vec::new() };
    let levels = compressor.properties().levels;
    let level = levels.map(|levels| levels.least + i32::from(level) % (levels.most - levels.least + 1));
    (compressor, dictionary, Settings { level, min_bytes: Some(1), ratio_percent: 100, ..Settings::default() })
}

/// Two bytes that choose a compressor, then a packed payload with defects.
pub fn packed_bytes(random: &mut Random) -> Vec<u8> {
    let mut input = vec![random.bits() as u8, random.bits() as u8];
    let (compressor, dictionary, settings) = chosen(&input);
    let payload = payload(random);
    let mut packed = Vec::new();
    if let Ok(mut packer) = Packer::new(compressor, &settings, &dictionary) {
        packer.pack(&payload, &mut packed);
    }
    input.extend(mutated(random, &packed));
    input
}

/// Unpacks a payload. It must be refused, or stay within the limits. Unpacking it again must give
/// the same result, with the same state and with new state.
pub fn unpack(input: &[u8]) {
    let (compressor, dictionary, _) = chosen(input);
    let packed = input.get(2..).unwrap_or_default();
    let fresh = || Unpacker::new(compressor, &dictionary, LIMITS).expect("a state");
    let (mut first, mut second) = (fresh(), fresh());
    let once = first.unpack(packed).map(<[u8]>::to_vec);
    if let Ok(bytes) = &once {
        let raw = packed.len();
        assert!(
            bytes.len() <= LIMITS.free_bytes.max(raw.saturating_mul(LIMITS.expansion)),
            "the unpacked payload exceeds the limits"
        );
    }
    // The kind of error may depend on the payloads that a library's state saw before. Whether there
    // is an error may not.
    let again = [first.unpack(packed).map(<[u8]>::to_vec), second.unpack(packed).map(<[u8]>::to_vec)];
    assert!(
        again.iter().all(|again| again.as_ref().ok() == once.as_ref().ok()),
        "{}: earlier payloads change the result",
        compressor.name()
    );
}

/// Two bytes that choose a compressor, then a payload.
pub fn payload_bytes(random: &mut Random) -> Vec<u8> {
    let mut input = vec![random.bits() as u8, random.bits() as u8];
    input.extend(payload(random));
    input
}

/// Packs and unpacks a payload and a part of it, with the same state each time.
pub fn pack(input: &[u8]) {
    let (compressor, dictionary, settings) = chosen(input);
    let payload = input.get(2..).unwrap_or_default();
    let mut packer = Packer::new(compressor, &settings, &dictionary).expect("a state");
    let mut unpacker = Unpacker::new(compressor, &dictionary, Limits::default()).expect("a state");
    for part in [payload, &payload[payload.len() / 2..], payload] {
        let mut packed = Vec::new();
        packer.pack(part, &mut packed);
        assert!(
            packed.len() <= part.len() + 1,
            "{}: the packed payload is longer than the uncompressed form",
            compressor.name()
        );
        assert!(
            unpacker.unpack(&packed) == Ok(part),
            "{}: unpacking gives other bytes than were packed",
            compressor.name()
        );
    }
}

/// Reads untrusted settings and dictionaries. They must be refused, or pack and unpack correctly.
pub fn configure(input: &[u8]) {
    let compressor = COMPRESSORS[seed(input) as usize % COMPRESSORS.len()];
    let text = String::from_utf8_lossy(input.get(8..).unwrap_or_default());
    let _ = announced_dictionary(&text);
    if let Ok(settings) = Settings::parse(&text, compressor) {
        let announced = settings.announced(compressor, None);
        assert!(announced.starts_with(compressor.name()) && announced_dictionary(&announced).is_none());
    }
    if compressor.properties().dictionary {
        let dictionary = input.get(8..).unwrap_or_default();
        let settings = Settings { min_bytes: Some(1), ..Settings::default() };
        let Ok(mut packer) = Packer::new(compressor, &settings, dictionary) else { return };
        let mut unpacker =
            Unpacker::new(compressor, dictionary, LIMITS).expect("`Unpacker` accepts what `Packer` accepts");
        let mut packed = Vec::new();
        packer.pack(input, &mut packed);
        assert!(
            unpacker.unpack(&packed) == Ok(input),
            "{}: unpacking with this dictionary gives other bytes",
            compressor.name()
        );
    }
}

/// A number, then settings with typing errors or a damaged dictionary.
pub fn settings_bytes(random: &mut Random) -> Vec<u8> {
    let mut input = random.bits().to_le_bytes().to_vec();
    // The header of a Zstandard dictionary, so that the rest is read as its tables.
    let parts: [&[u8]; 8] = [b"3,", b"-7", b"dict=", b"min=64", b",", b"ratio=90", b"\x37\xa4\x30\xec", b"99"];
    for _ in 0..random.below(6) {
        let part: &[u8] = random.choose::<&[u8]>(&parts);
        input.extend_from_slice(part);
        if random.one_in(3) {
            input.extend((0..random.below(300)).map(|_| random.bits() as u8));
        }
    }
    input
}
