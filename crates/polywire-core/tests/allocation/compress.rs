//! Packers and unpackers keep their memory: once they have seen messages of a size, further ones
//! cost no allocation. bzip2 is left out, because the state of its library serves one message.

use polywire_core::compress::{COMPRESSORS, Limits, Packer, Settings, Unpacker};
use polywire_testing::allocator::requests_of;

#[test]
fn packers_and_unpackers_do_not_allocate_in_the_steady_state() {
    let messages: Vec<Vec<u8>> = (1..40usize)
        .map(|i| {
            format!("{{\"station\":\"EDD{i}\",\"temperature_c\":{}.5}}", i * 7 % 40).repeat(1 + i * i % 90).into_bytes()
        })
        .chain([vec![7; 200_000], (0..=255).collect()])
        .collect();
    for compressor in COMPRESSORS.iter().filter(|compressor| compressor.name() != "bzip2") {
        for dictionary in [&[][..], b"{\"station\":\"EDD\",\"temperature_c\":.5}"] {
            if !dictionary.is_empty() && !compressor.properties().dictionary {
                continue;
            }
            let mut packer = Packer::new(*compressor, &Settings::default(), dictionary).expect("a state");
            let mut unpacker = Unpacker::new(*compressor, dictionary, Limits::default()).expect("a state");
            let mut packed = Vec::new();
            let mut all = || {
                for message in &messages {
                    packed.clear();
                    packer.pack(message, &mut packed);
                    assert!(unpacker.unpack(&packed) == Ok(message), "{}", compressor.name());
                }
            };
            all();
            assert_eq!(requests_of(all), 0, "{}", compressor.name());
        }
    }
}
