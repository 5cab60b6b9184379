//! One suite over the table of compressors: payloads round-trip at every level, with and without a
//! dictionary, with reused state; hostile payloads cause no harm.

use polywire_core::{
    compress::{
        COMPRESSORS, Compressor, Decompress, DecompressError, Limits, Packer, Settings, UnpackError, Unpacker, find,
    },
    schema::arbitrary::Random,
};

fn each(mut check: impl FnMut(&'static dyn Compressor)) {
    assert!(COMPRESSORS.len() >= 6, "the table is empty");
    COMPRESSORS.iter().for_each(|compressor| check(*compressor));
}

fn levels(compressor: &dyn Compressor) -> Vec<i32> {
    compressor.properties().levels.map_or(vec![0], |levels| (levels.least..=levels.most).collect())
}

fn compressed(compressor: &dyn Compressor, level: i32, input: &[u8]) -> Vec<u8> {
    let mut out = b"before".to_vec();
    let mut state = compressor.compression(level, &[]).expect("a state");
    state.compress(input, &mut out).expect("compressed");
    assert!(out.starts_with(b"before"), "{}: what stood there is gone", compressor.name());
    out.split_off(6)
}

fn back(state: &mut dyn Decompress, input: &[u8], size: usize) -> Result<Vec<u8>, DecompressError> {
    let mut output = vec![0xA5; size];
    state.decompress(input, &mut output).map(|()| output)
}

/// Bytes of all sorts: nothing, single ones, runs, periods, text, numbers, noise, and mixtures of
/// these.
fn payload(random: &mut Random, largest: usize) -> Vec<u8> {
    let size = match random.below(8) {
        0 => random.below(4),
        1..=4 => random.below(400),
        5 | 6 => random.below(6000),
        _ => random.below(largest),
    };
    let mut bytes = Vec::new();
    while bytes.len() < size {
        let part = 1 + random.below(size - bytes.len());
        piece(random, part, &mut bytes);
    }
    bytes
}

fn piece(random: &mut Random, size: usize, out: &mut Vec<u8>) {
    let words = ["temperature_c", "station", "EDDM", "\":", ",\"", "21.5", "0.000", "\n", "true", "  "];
    let end = out.len() + size;
    match random.below(6) {
        0 => out.resize(end, random.bits() as u8),
        1 => {
            let period: Vec<u8> = (0..1 + random.below(300)).map(|_| random.bits() as u8).collect();
            out.extend(period.iter().cycle().take(size));
        }
        2 => {
            while out.len() < end {
                out.extend_from_slice(random.choose(&words).as_bytes());
            }
        }
        3 => {
            let mut number = random.bits();
            while out.len() < end {
                out.extend(number.to_le_bytes());
                number = number.wrapping_add(random.below(1000) as u64);
            }
        }
        4 if !out.is_empty() => {
            // Repeat earlier bytes from any position.
            let from = random.below(out.len());
            (0..size).for_each(|i| out.push(out[from + i]));
        }
        _ => (0..size).for_each(|_| out.push(random.bits() as u8)),
    }
    out.truncate(end);
}

/// What each state is asked to handle one after the other.
fn corpus() -> Vec<Vec<u8>> {
    let text = b"It was the best of times, it was the worst of times, it was the age of wisdom; ".repeat(4);
    let numbers: Vec<u8> = (0..50_000u32).flat_map(|i| (i * i / 7).to_le_bytes()).collect();
    let mut random = Random::new(1);
    let noise: Vec<u8> = (0..70_000).map(|_| random.bits() as u8).collect();
    let fibonacci = fibonacci_bytes();
    let mut all = vec![Vec::new(), vec![0], vec![7; 2], vec![9; 3], vec![0; 100_000], (0..=255).collect(), text];
    all.extend([numbers, noise, fibonacci, b"a".to_vec(), b"ab".repeat(70_000)]);
    all
}

/// Counts that make the longest Huffman codes: they have to be cut.
fn fibonacci_bytes() -> Vec<u8> {
    let (mut bytes, mut counts) = (Vec::new(), (1usize, 1usize));
    for byte in 0..24 {
        bytes.resize(bytes.len() + counts.0, byte);
        counts = (counts.1, counts.0 + counts.1);
    }
    bytes
}

#[test]
fn names_are_unique_and_fit_a_wire() {
    each(|compressor| {
        let name = compressor.name();
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{name}");
        assert_eq!(COMPRESSORS.iter().filter(|other| other.name() == name).count(), 1, "{name}");
        assert!(find(name).is_some());
    });
}

#[test]
fn every_level_gives_everything_back() {
    each(|compressor| {
        let mut decompression = compressor.decompression(&[]).expect("a state");
        for level in levels(compressor) {
            // The slowest levels take a second for a megabyte.
            let most = if level > 12 { 20_000 } else { usize::MAX };
            for input in corpus().iter().map(|input| &input[..input.len().min(most)]) {
                let packed = compressed(compressor, level, input);
                let out = back(&mut *decompression, &packed, input.len());
                assert!(
                    out.as_deref() == Ok(input),
                    "{} level {level}: {} bytes: {:?}",
                    compressor.name(),
                    input.len(),
                    out.err()
                );
            }
        }
    });
}

#[test]
fn compressible_payloads_become_smaller() {
    let text = b"It was the best of times, it was the worst of times, it was the age of wisdom; ".repeat(40);
    each(|compressor| {
        let level = compressor.properties().default_level();
        let (text_len, zeros_len) =
            (compressed(compressor, level, &text).len(), compressed(compressor, level, &[0; 5000]).len());
        match compressor.name() {
            "none" => assert_eq!((text_len, zeros_len), (text.len(), 5000)),
            "rle" => assert!(zeros_len < 100 && text_len < text.len() + 50, "{text_len} {zeros_len}"),
            "huffman" => assert!(zeros_len < 700 && text_len < text.len() * 6 / 10, "{text_len} {zeros_len}"),
            name => assert!(zeros_len < 200 && text_len < text.len() / 4, "{name}: {text_len} {zeros_len}"),
        }
    });
}

/// States see thousands of payloads one after the other, as on a topic, and every compressor sees
/// the same ones.
#[test]
fn states_are_used_again_and_payloads_do_not_depend_on_each_other() {
    let rounds = 1500;
    each(|compressor| {
        let level = compressor.properties().default_level();
        let mut compression = compressor.compression(level, &[]).expect("a state");
        let mut decompression = compressor.decompression(&[]).expect("a state");
        let mut random = Random::new(4);
        let (mut packed, mut output) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let input = payload(&mut random, 60_000);
            packed.clear();
            compression.compress(&input, &mut packed).expect("compressed");
            // What the buffer held before must not shine through.
            output.clear();
            output.resize(input.len(), 0xA5);
            let result = decompression.decompress(&packed, &mut output);
            assert!(result.is_ok() && output == input, "{} round {round}: {result:?}", compressor.name());
            if round % 50 == 0 {
                let fresh = compressed(compressor, level, &input);
                assert!(
                    fresh == packed || compressor.name() == "lz4",
                    "{} round {round}: old state shows",
                    compressor.name()
                );
            }
        }
    });
}

/// Compressed, compressed again by each other one, and back.
#[test]
fn pairs_of_compressors_give_everything_back() {
    let mut random = Random::new(5);
    let mut states: Vec<_> = COMPRESSORS
        .iter()
        .map(|compressor| {
            let level = compressor.properties().levels.map_or(0, |levels| levels.least);
            let compression = compressor.compression(level, &[]).expect("a state");
            (compressor.name(), compression, compressor.decompression(&[]).expect("a state"))
        })
        .collect();
    for round in 0..3000 {
        let input = payload(&mut random, 4000);
        let (a, b) = (random.below(states.len()), random.below(states.len()));
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        states[a].1.compress(&input, &mut once).expect("compressed");
        states[b].1.compress(&once, &mut twice).expect("compressed");
        let pair = (states[a].0, states[b].0);
        let outer = back(&mut *states[b].2, &twice, once.len());
        assert!(outer.as_deref() == Ok(&once), "{pair:?} round {round}: {outer:?}");
        let inner = back(&mut *states[a].2, &once, input.len());
        assert!(inner.as_deref() == Ok(&input), "{pair:?} round {round}: {inner:?}");
    }
}

/// Every prefix of a few, and every other size: an error, never a panic, never other bytes.
#[test]
fn truncations_and_wrong_sizes_are_refused() {
    let mut random = Random::new(6);
    each(|compressor| {
        let mut state = compressor.decompression(&[]).expect("a state");
        for _ in 0..12 {
            let mut input = payload(&mut random, 2000);
            input.push(1);
            let packed = compressed(compressor, compressor.properties().default_level(), &input);
            for end in 0..packed.len() {
                let got = back(&mut *state, &packed[..end], input.len());
                assert!(got.is_err(), "{}: {end} of {} bytes will do", compressor.name(), packed.len());
            }
            // Bits that fill the last byte may be taken for codes: seven at most.
            for size in [0, 1, input.len() - 1, input.len() + 8, 2 * input.len() + 100] {
                if size != input.len() {
                    assert!(
                        back(&mut *state, &packed, size).is_err(),
                        "{}: {size} for {}",
                        compressor.name(),
                        input.len()
                    );
                }
            }
            let longer: Vec<u8> = packed.iter().copied().chain([0x55; 3]).collect();
            assert!(back(&mut *state, &longer, input.len()).is_err(), "{}: bytes behind the end", compressor.name());
            // And the state is as good as new.
            assert_eq!(back(&mut *state, &packed, input.len()).as_ref(), Ok(&input), "{}", compressor.name());
        }
    });
}

/// Flipped bits, bytes put in and taken out, noise: an error or other bytes, as the format has no
/// checksum; never a panic or a hang, and the state stays good.
#[test]
fn damage_does_no_harm() {
    let mut random = Random::new(7);
    each(|compressor| {
        let mut state = compressor.decompression(&[]).expect("a state");
        let (mut refused, rounds) = (0, 600);
        for round in 0..rounds {
            let input = payload(&mut random, 3000);
            let good = compressed(compressor, compressor.properties().default_level(), &input);
            let mut bad = good.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bad.len() + 1);
                match random.below(4) {
                    0 => bad.insert(at, random.bits() as u8),
                    1 if at < bad.len() => drop(bad.remove(at)),
                    2 => bad.truncate(at),
                    _ if at < bad.len() => bad[at] ^= 1 << random.below(8),
                    _ => {}
                }
            }
            if round % 4 == 0 {
                bad = (0..random.below(200)).map(|_| random.bits() as u8).collect();
            }
            refused += usize::from(back(&mut *state, &bad, input.len()).is_err());
            let again = back(&mut *state, &good, input.len());
            assert!(again.as_deref() == Ok(&input), "{} round {round}: {again:?}", compressor.name());
        }
        assert!(refused > rounds / 5, "{}: {refused} refused", compressor.name());
    });
}

/// A megabyte out of a few bytes, for every compressor that can; by the rules of a channel.
#[test]
fn bombs_cost_no_more_than_the_limits() {
    let zeros = vec![0; 8 << 20];
    each(|compressor| {
        let bomb = compressed(compressor, compressor.properties().default_level(), &zeros);
        let limits = Limits { message_bytes: 4 << 20, ..Limits::default() };
        let mut unpacker = Unpacker::new(compressor, &[], limits).expect("a state");
        let said = |size: u64| {
            let mut packed = Vec::new();
            let rest = std::iter::successors(Some(size), |rest| Some(rest >> 7).filter(|rest| *rest > 0));
            packed.extend(rest.map(|rest| (rest & 0x7F) as u8 | if rest >= 0x80 { 0x80 } else { 0 }));
            packed.extend_from_slice(&bomb);
            packed
        };
        // The truth is too much, and a lie does not help.
        let truth = unpacker.unpack(&said(8 << 20)).expect_err("too large");
        assert_eq!(truth, UnpackError::TooLarge { said: 8 << 20, limit: 4 << 20 });
        for lie in [1, 1000, 1 << 20] {
            let lie = unpacker.unpack(&said(lie)).expect_err("more comes out");
            assert!(matches!(lie, UnpackError::Decompress(_)), "{}: {lie}", compressor.name());
        }
        for huge in [5 << 20, 1 << 40, u64::MAX] {
            assert!(unpacker.unpack(&said(huge)).is_err(), "{}", compressor.name());
        }
        let few = [0x80, 0x80, 0x80, 0x01, 1, 2, 3];
        let expansion = UnpackError::Expansion { compressed: 3, said: 2 << 20, limit: 1 << 20 };
        assert_eq!(unpacker.unpack(&few), Err(expansion), "{}", compressor.name());
        assert_eq!(unpacker.unpack(&[0x80]), Err(UnpackError::Size));
    });
}

#[test]
fn payloads_say_whether_they_are_compressed() {
    let mut random = Random::new(8);
    each(|compressor| {
        let settings = Settings { min_bytes: Some(40), ..Settings::default() };
        let mut packer = Packer::new(compressor, &settings, &[]).expect("a state");
        let mut unpacker = Unpacker::new(compressor, &[], Limits::default()).expect("a state");
        let (mut shrunk, mut kept) = (0, 0);
        for _ in 0..800 {
            let input = payload(&mut random, 20_000);
            let mut packed = b"head".to_vec();
            packer.pack(&input, &mut packed);
            assert!(packed.starts_with(b"head"));
            let packed = &packed[4..];
            match packed {
                [] => assert!(input.is_empty()),
                [0, rest @ ..] => {
                    assert_eq!(rest, input);
                    kept += 1;
                }
                _ => {
                    assert!(input.len() >= 40 && packed.len() <= input.len() * 9 / 10, "{}", compressor.name());
                    shrunk += 1;
                }
            }
            assert_eq!(unpacker.unpack(packed), Ok(&input[..]), "{}", compressor.name());
        }
        assert!(kept > 50, "{}", compressor.name());
        assert!(shrunk > 50 || compressor.name() == "none", "{}: {shrunk}", compressor.name());
    });
}

/// What a receiver with the default limits would refuse is sent as it is.
#[test]
fn nothing_is_sent_that_expands_too_much() {
    let zeros = vec![0; 3 << 20];
    each(|compressor| {
        let mut packer = Packer::new(compressor, &Settings::default(), &[]).expect("a state");
        let mut unpacker = Unpacker::new(compressor, &[], Limits::default()).expect("a state");
        let mut packed = Vec::new();
        packer.pack(&zeros, &mut packed);
        assert!(unpacker.unpack(&packed).is_ok_and(|out| out == zeros), "{}", compressor.name());
    });
}

#[cfg(feature = "zstd")]
fn reports(count: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let report = |_| {
        let (station, celsius, wind) = (random.below(40), random.below(400), random.below(360));
        let sky = *random.choose(&["CLEAR", "CLOUDY", "RAIN"]);
        format!(
            r#"{{"station":"EDD{station}","temperature_c":{}.{},"sky":"{sky}","wind":{{"speed_ms":{}.5,"direction_deg":{wind}}},"notes":[]}}"#,
            celsius / 10,
            celsius % 10,
            random.below(30)
        )
        .into_bytes()
    };
    (0..count).map(report).collect()
}

#[cfg(feature = "zstd")]
#[test]
fn dictionaries_make_small_messages_smaller() {
    use polywire_core::compress::dictionary::train;
    let dictionary = train(&reports(2000, 1), 4096).expect("trained");
    let other =
        train(&reports(2000, 2).iter().map(|r| r.to_ascii_uppercase()).collect::<Vec<_>>(), 4096).expect("trained");
    let messages = reports(500, 3);
    let mut with_dictionary = 0;
    each(|compressor| {
        if !compressor.properties().dictionary {
            let refused = Settings::parse("dict=x", compressor).expect_err("no dictionary");
            assert!(matches!(refused, polywire_core::compress::SettingsError::NoDictionary { .. }));
            return;
        }
        with_dictionary += 1;
        let sizes = [&[][..], &dictionary].map(|dictionary| {
            let mut packer = Packer::new(compressor, &Settings::default(), dictionary).expect("a state");
            let mut unpacker = Unpacker::new(compressor, dictionary, Limits::default()).expect("a state");
            let mut total = 0;
            for message in &messages {
                let mut packed = Vec::new();
                packer.pack(message, &mut packed);
                assert_eq!(unpacker.unpack(&packed), Ok(&message[..]), "{}", compressor.name());
                total += packed.len();
            }
            total
        });
        let plain: usize = messages.iter().map(Vec::len).sum();
        println!("{}: {plain} bytes, {sizes:?} without and with a dictionary", compressor.name());
        assert!(sizes[1] * 2 < sizes[0] && sizes[1] * 3 < plain, "{}: {sizes:?} of {plain}", compressor.name());

        // With the wrong one or none there is an error or there are other bytes, and no harm.
        let mut packer = Packer::new(compressor, &Settings::default(), &dictionary).expect("a state");
        for wrong in [&[][..], &other, &dictionary[..dictionary.len() / 2], b"abc"] {
            let Ok(mut unpacker) = Unpacker::new(compressor, wrong, Limits::default()) else { continue };
            for message in &messages[..20] {
                let mut packed = Vec::new();
                packer.pack(message, &mut packed);
                assert_ne!(unpacker.unpack(&packed), Ok(&message[..]), "{}", compressor.name());
            }
        }
        // Random payloads, longer than any window, and damage.
        let mut random = Random::new(9);
        let mut compression =
            compressor.compression(compressor.properties().default_level(), &dictionary).expect("a state");
        let mut decompression = compressor.decompression(&dictionary).expect("a state");
        for round in 0..400 {
            let input = payload(&mut random, 200_000);
            let mut packed = Vec::new();
            compression.compress(&input, &mut packed).expect("compressed");
            assert!(back(&mut *decompression, &packed, input.len()).as_deref() == Ok(&input), "round {round}");
            if let Some(at) = packed.len().checked_sub(1) {
                packed[random.below(at + 1)] ^= 1 << random.below(8);
                let _ = back(&mut *decompression, &packed, input.len());
            }
        }
    });
    assert_eq!(with_dictionary, 2);
}

#[cfg(feature = "zstd")]
#[test]
fn damaged_dictionaries_are_refused_or_harmless() {
    use polywire_core::compress::dictionary::{TrainError, train};
    let dictionary = train(&reports(2000, 1), 4096).expect("trained");
    let mut random = Random::new(10);
    for compressor in COMPRESSORS.iter().filter(|compressor| compressor.properties().dictionary) {
        for _ in 0..300 {
            let mut bad = dictionary.clone();
            bad.truncate(random.below(bad.len() + 1));
            for _ in 0..random.below(6) {
                let at = random.below(bad.len().min(200));
                if let Some(byte) = bad.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            let Ok(mut state) = compressor.compression(compressor.properties().default_level(), &bad) else { continue };
            let mut other = compressor.decompression(&bad).expect("one takes what the other takes");
            for message in reports(5, 4) {
                let mut packed = Vec::new();
                if state.compress(&message, &mut packed).is_ok() {
                    assert_eq!(back(&mut *other, &packed, message.len()), Ok(message));
                }
            }
        }
    }
    assert!(matches!(train::<&[u8]>(&[], 4096), Err(TrainError::TooFew { .. })));
    assert!(matches!(train(&[b"a"; 3], 4096), Err(TrainError::TooFew { .. })));
    assert!(matches!(train(&[b""; 300], 4096), Err(TrainError::TooFew { .. })));
}

#[test]
fn settings_are_parsed_and_typing_errors_are_named() {
    each(|compressor| {
        let parse = |text: &str| Settings::parse(text, compressor).map_err(|error| error.to_string());
        let full = parse("min=10,ratio=50").expect("valid");
        assert_eq!((full.min_bytes, full.ratio_percent, full.level), (Some(10), 50, None));
        for (text, expected) in [
            ("min=x", "a number of bytes is expected"),
            ("ratio=0", "percents from 1 to 100"),
            ("ratio=101", "percents from 1 to 100"),
            ("fast", "there is no option 'fast'"),
            ("min=1,min=2", "occurs twice"),
            ("99999999999", "level"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(expected) && error.contains(compressor.name()), "{text}: {error}");
        }
        match compressor.properties().levels {
            Some(levels) => {
                assert_eq!(parse(&levels.most.to_string()).map(|s| s.level), Ok(Some(levels.most)));
                assert!(parse(&(levels.most + 1).to_string()).is_err());
                assert!(parse(&(levels.least - 1).to_string()).is_err());
            }
            None => assert!(parse("1").expect_err("none").contains("has no levels")),
        }
    });
}
