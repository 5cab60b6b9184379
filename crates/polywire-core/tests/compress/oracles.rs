//! Compressors compared with other implementations in both directions: Python's zlib and bz2,
//! python-lzo, and the programs `zstd` and `lz4`.
#![cfg(feature = "zstd")]

use std::process::Command;

use polywire_core::{
    compress::{Compressor, find},
    schema::arbitrary::Random,
};
use polywire_testing::{Folder, hex, tools, unhex};

fn payloads() -> Vec<Vec<u8>> {
    let mut random = Random::new(17);
    let mut all = vec![vec![0; 40_000], b"a".to_vec(), b"abc".repeat(50), (0..=255).collect()];
    for size in [20, 300, 3000, 70_000, 200_000] {
        let words = ["wind", "speed_ms", " ", "EDDM", "0.5", "\":\"", "\n"];
        let mut text = Vec::new();
        while text.len() < size {
            text.extend_from_slice(random.choose(&words).as_bytes());
            if random.one_in(5) {
                text.push(random.bits() as u8);
            }
        }
        all.push(text);
        all.push((0..size).map(|_| random.bits() as u8).collect());
    }
    all
}

fn compress(compressor: &dyn Compressor, level: i32, dictionary: &[u8], input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compressor.compression(level, dictionary).expect("a state").compress(input, &mut out).expect("compressed");
    out
}

fn decompress(compressor: &dyn Compressor, dictionary: &[u8], input: &[u8], size: usize) -> Vec<u8> {
    let mut out = vec![0; size];
    let mut state = compressor.decompression(dictionary).expect("a state");
    state.decompress(input, &mut out).unwrap_or_else(|e| panic!("{}: {e}", compressor.name()));
    out
}

/// Runs a program with `input` on its standard input, and returns its standard output.
fn run(program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let output = tools::output_of(Command::new(program).args(arguments), input);
    output.unwrap_or_else(|errors| panic!("{program} {arguments:?}: {errors}"))
}

/// Each line of the input is a format, `c` or `d`, a level or size, and bytes; each line of the
/// output the bytes that come out.
const PYTHON: &str = "
import bz2, sys, zlib
if 'lzo' in sys.argv:
    import lzo
for line in sys.stdin:
    name, verb, number, data = line.rstrip('\\n').split(' ')
    number, data = int(number), bytes.fromhex(data)
    if name == 'zlib':
        out = zlib.compress(data, number) if verb == 'c' else zlib.decompress(data)
    elif name == 'bzip2':
        out = bz2.compress(data, number) if verb == 'c' else bz2.decompress(data)
    else:
        out = lzo.compress(data, number, False) if verb == 'c' else lzo.decompress(data, False, number)
    print(out.hex())
";

#[test]
fn python_reads_and_writes_the_same() {
    if tools::python_has("bz2, zlib") {
        compare_with_python(&[("zlib", &[1, 6, 9]), ("bzip2", &[1, 9])]);
    }
}

#[test]
fn python_lzo_reads_and_writes_the_same() {
    if tools::python_has("lzo") {
        compare_with_python(&[("lzo", &[1, 9])]);
    }
}

/// Both ways, by names of compressors and levels.
fn compare_with_python(compressors: &[(&str, &[i32])]) {
    let (mut questions, mut expected) = (String::new(), Vec::new());
    for (name, levels) in compressors {
        let compressor = find(name).expect("in the table");
        for payload in payloads() {
            for level in *levels {
                let packed = compress(compressor, *level, &[], &payload);
                questions += &format!("{name} d {} {}\n", payload.len(), hex(&packed));
                questions += &format!("{name} c {level} {}\n", hex(&payload));
                expected.push((compressor, payload.clone()));
            }
        }
    }
    let answers = run(&tools::python(), &["-c", PYTHON, compressors[0].0], questions.as_bytes());
    let answers = String::from_utf8(answers).expect("hexadecimal");
    let lines: Vec<&str> = answers.lines().collect();
    assert_eq!(lines.len(), 2 * expected.len());
    for (pair, (compressor, payload)) in lines.chunks(2).zip(&expected) {
        let name = compressor.name();
        assert!(unhex(pair[0]) == *payload, "{name}: read by Python, {} bytes", payload.len());
        let theirs = decompress(*compressor, &[], &unhex(pair[1]), payload.len());
        assert!(theirs == *payload, "{name}: written by Python, {} bytes", payload.len());
    }
}

fn dictionary() -> Vec<u8> {
    let samples: Vec<String> = (0..3000)
        .map(|i| format!("{{\"wind\":{{\"speed_ms\":{}.5}},\"station\":\"EDD{}\"}}", i % 37, i % 11))
        .collect();
    polywire_core::compress::dictionary::train(&samples, 4096).expect("trained")
}

#[test]
fn the_zstd_program_reads_and_writes_the_same() {
    if !tools::has_program("zstd", "--version") {
        return;
    }
    let zstd = find("zstd").expect("in the table");
    let (trained, folder) = (dictionary(), Folder::new("zstd"));
    let file = folder.write("dictionary", &trained);
    for (dictionary, option) in [(&[][..], None), (&trained, Some(["-D", file.as_str()]))] {
        for payload in payloads() {
            for level in ["-1", "-19"] {
                let packed = compress(zstd, level[1..].parse().expect("a number"), dictionary, &payload);
                let arguments =
                    |verb| ["-q", "-c", verb].into_iter().chain(option.into_iter().flatten()).collect::<Vec<_>>();
                let theirs = run("zstd", &arguments("-d"), &packed);
                assert!(theirs == payload, "read by the program");
                let theirs = run("zstd", &arguments(level), &payload);
                assert!(decompress(zstd, dictionary, &theirs, payload.len()) == payload, "written by the program");
            }
        }
    }
}

/// A frame without checksums, with independent blocks of up to 4 MiB.
const LZ4_FRAME: [u8; 7] = [0x04, 0x22, 0x4D, 0x18, 0x60, 0x70, 0x73];

#[test]
fn the_lz4_program_reads_and_writes_the_same() {
    if !tools::has_program("lz4", "--version") {
        return;
    }
    let lz4 = find("lz4").expect("in the table");
    let (trained, folder) = (dictionary(), Folder::new("lz4"));
    let file = folder.write("dictionary", &trained);
    for (dictionary, option) in [(&[][..], None), (&trained, Some(["-D", file.as_str()]))] {
        for payload in payloads() {
            let block = compress(lz4, 0, dictionary, &payload);
            let mut frame = LZ4_FRAME.to_vec();
            frame.extend((block.len() as u32).to_le_bytes());
            frame.extend(block);
            frame.extend([0; 4]);
            let arguments = |verbs: &'static [&str]| -> Vec<&str> {
                verbs.iter().copied().chain(option.iter().flatten().copied()).collect()
            };
            let theirs = run("lz4", &arguments(&["-q", "-c", "-d"]), &frame);
            assert!(theirs == payload, "read by the program, {} bytes", payload.len());

            let theirs = run("lz4", &arguments(&["-q", "-c", "-9", "-B7", "--no-frame-crc"]), &payload);
            // Magic, flags and sizes, header's checksum; a size and the one block; an empty one.
            let flags = theirs[4];
            let head = 7 + if flags & 8 != 0 { 8 } else { 0 } + if flags & 1 != 0 { 4 } else { 0 };
            let size = u32::from_le_bytes(theirs[head..head + 4].try_into().expect("four bytes"));
            let block = &theirs[head + 4..][..(size & 0x7FFF_FFFF) as usize];
            if size >> 31 == 0 {
                assert!(decompress(lz4, dictionary, block, payload.len()) == payload, "written by the program");
            }
        }
    }
}
