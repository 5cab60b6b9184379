//! The examples of `spec/compress.md`: compressing produces these bytes, and decompressing them the
//! text.

use polywire_core::compress::{Limits, Packer, Settings, Unpacker, find};
use polywire_testing::spec_examples;

#[test]
fn our_own_formats_are_as_specified() {
    let examples = spec_examples("compress.md");
    for (name, plain) in [("rle", &b"aaaaab"[..]), ("huffman", b"abaa"), ("lzw", b"abababa"), ("lz77", b"abcabcabcabc")]
    {
        let compressor = find(name).expect("in the table");
        let mut out = Vec::new();
        let level = compressor.properties().default_level();
        compressor.compression(level, &[]).expect("a state").compress(plain, &mut out).expect("compressed");
        assert_eq!(out, examples[name], "{name}: {out:02x?}");
        let mut back = vec![0; plain.len()];
        compressor.decompression(&[]).expect("a state").decompress(&out, &mut back).expect("decompressed");
        assert_eq!(back, plain, "{name}");
    }
}

#[test]
fn payloads_are_as_specified() {
    let examples = spec_examples("compress.md");
    let rle = find("rle").expect("in the table");
    let mut packer = Packer::new(rle, &Settings::default(), &[]).expect("a state");
    let mut unpacker = Unpacker::new(rle, &[], Limits::default()).expect("a state");
    for (name, plain) in [("raw", b"hi".to_vec()), ("packed", b"a".repeat(100))] {
        let mut packed = Vec::new();
        packer.pack(&plain, &mut packed);
        assert_eq!(packed, examples[name], "{name}: {packed:02x?}");
        assert_eq!(unpacker.unpack(&examples[name]), Ok(&plain[..]), "{name}");
    }
}
