//! Tests that keep the yardsticks frozen: their bytes have known hashes, values survive a round
//! trip, and malformed bytes are errors. They also equal the bytes of Polywire's codec `cdr`.

use polywire_workloads::{
    CodecsTest10, CodecsTest50, CodecsTest100, CodecsTest250, CodecsTest500, Fast, FlightData, Floats,
    LinuxProcessorProbe, Malformed, MarketData, ProcessorProbe, Samples, Workload, cdr_decode, fast_decode,
};

/// FNV-1a over the bytes of a workload's first hundred messages.
fn hash_of_bytes<T: Workload>() -> u64 {
    let mut bytes = Vec::new();
    Samples::<T>::generate(100).iter().fold(0xcbf29ce484222325, |hash, sample| {
        sample.encode(&mut bytes);
        bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100000001b3))
    })
}

#[test]
fn bytes_are_those_of_the_first_measurements() {
    assert_eq!(hash_of_bytes::<MarketData>(), 0x7745bdc20f0ba08f);
    assert_eq!(hash_of_bytes::<CodecsTest10>(), 0xd19e666abfa5f489);
    assert_eq!(hash_of_bytes::<CodecsTest50>(), 0x9328af495e565baf);
    assert_eq!(hash_of_bytes::<CodecsTest100>(), 0x2ec84325e3c606db);
    assert_eq!(hash_of_bytes::<CodecsTest250>(), 0x35fa410cb4dfd325);
    assert_eq!(hash_of_bytes::<CodecsTest500>(), 0x44b852c1a9041d83);
    assert_eq!(hash_of_bytes::<LinuxProcessorProbe>(), 0x26feb9d0fb6a150a);
    assert_eq!(hash_of_bytes::<FlightData>(), 0xe69cd218fcab4035);
    assert_eq!(hash_of_bytes::<ProcessorProbe>(), 0xec27ad503ee23a22);
}

// The values depend on `sin`, whose last bit differs between mathematical libraries.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn bytes_of_floats_are_those_of_the_first_measurements() {
    assert_eq!(hash_of_bytes::<Floats>(), 0xb5f3a8ba4b0fda86);
}

fn round_trips<T: Workload>(messages: usize) {
    let (mut bytes, mut back) = (Vec::new(), T::default());
    for sample in Samples::<T>::generate(messages).iter() {
        sample.encode(&mut bytes);
        cdr_decode(&bytes, &mut back).unwrap();
        assert_eq!(back, *sample.message());
    }
}

#[test]
fn values_survive() {
    round_trips::<MarketData>(512);
    round_trips::<CodecsTest10>(1024);
    round_trips::<CodecsTest50>(64);
    round_trips::<CodecsTest100>(64);
    round_trips::<CodecsTest250>(64);
    round_trips::<CodecsTest500>(64);
    round_trips::<LinuxProcessorProbe>(1024);
    round_trips::<FlightData>(4);
    round_trips::<ProcessorProbe>(1024);
    round_trips::<Floats>(2);
}

fn refuses_truncations<T: Workload>(step: usize) {
    let (mut bytes, mut back) = (Vec::new(), T::default());
    Samples::<T>::generate(1).iter().for_each(|sample| sample.encode(&mut bytes));
    for end in (0..bytes.len()).step_by(step) {
        assert_eq!(cdr_decode(&bytes[..end], &mut back), Err(Malformed), "{} cut at {end}", T::NAME);
    }
}

#[test]
fn truncations_are_refused() {
    refuses_truncations::<MarketData>(1);
    refuses_truncations::<CodecsTest10>(1);
    refuses_truncations::<CodecsTest500>(1);
    refuses_truncations::<CodecsTest50>(1);
    refuses_truncations::<CodecsTest100>(1);
    refuses_truncations::<CodecsTest250>(1);
    refuses_truncations::<LinuxProcessorProbe>(1);
    refuses_truncations::<FlightData>(499);
    refuses_truncations::<ProcessorProbe>(1);
    refuses_truncations::<Floats>(997);
}

#[test]
fn booleans_and_text_are_checked() {
    let mut bytes = Vec::new();
    Samples::<CodecsTest10>::generate(1).iter().for_each(|sample| sample.encode(&mut bytes));
    for (at, byte) in [(0, 2), (8, 0xff), (4, 0)] {
        let mut bad = bytes.clone();
        bad[at] = byte;
        assert_eq!(cdr_decode(&bad, &mut CodecsTest10::default()), Err(Malformed), "{byte} at {at}");
    }
}

/// Checks that hand-written FAST decodes what it encodes. Returns the mean bytes per message,
/// without the first message.
fn fast_round_trips<T: Workload + Fast>(messages: usize) -> f64 {
    let samples = Samples::<T>::generate(messages);
    let (mut buffer, mut back, mut total) = (samples.buffer(), T::default(), 0);
    let (mut writer, mut reader) = (T::State::default(), T::State::default());
    for (number, sample) in samples.iter().enumerate() {
        let len = sample.encode_fast(&mut writer, &mut buffer);
        fast_decode(&buffer[..len], &mut reader, &mut back).unwrap();
        assert_eq!(back, *sample.message());
        total += if number > 0 { len } else { 0 };
    }
    total as f64 / (messages - 1) as f64
}

#[test]
fn values_survive_fast() {
    assert!((58.0..62.0).contains(&fast_round_trips::<MarketData>(512)));
    assert!((7.0..8.0).contains(&fast_round_trips::<CodecsTest10>(1024)));
    assert!((325.0..345.0).contains(&fast_round_trips::<CodecsTest500>(256)));
    assert!((4.9..5.1).contains(&fast_round_trips::<ProcessorProbe>(1024)));
}

/// Checks that the hand-written codec and Polywire's write the same bytes.
fn is_ours<T: Workload + polywire_core::layout::Message>(messages: usize) {
    let codec = polywire_core::codec::find("cdr").expect("`cdr` is in the table of codecs");
    let encoder =
        polywire_core::codec::Encoder::<T>::new(codec, &Default::default()).expect("the codec supports the type");
    let (mut by_hand, mut ours) = (Vec::new(), Vec::new());
    for sample in Samples::<T>::generate(messages).iter() {
        sample.encode(&mut by_hand);
        ours.clear();
        encoder.encode(sample.message(), &mut ours).expect("encoding succeeds");
        let differs = ours.iter().zip(&by_hand).position(|(ours, by_hand)| ours != by_hand);
        assert_eq!((differs, ours.len()), (None, by_hand.len()), "{}", T::NAME);
    }
}

#[test]
fn yardsticks_write_what_we_write() {
    is_ours::<MarketData>(64);
    is_ours::<CodecsTest10>(64);
    is_ours::<CodecsTest50>(16);
    is_ours::<CodecsTest100>(16);
    is_ours::<CodecsTest250>(8);
    is_ours::<CodecsTest500>(8);
    is_ours::<ProcessorProbe>(64);
    is_ours::<LinuxProcessorProbe>(64);
    is_ours::<FlightData>(3);
    is_ours::<Floats>(1);
}
