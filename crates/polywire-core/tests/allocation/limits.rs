//! Requirements on every codec, under all options: values round-trip, and malformed messages cost
//! no more memory than the limits allow.

use polywire_core::{
    codec::{BuildError, LowerError},
    layout::Shape,
    program::{Backend, Limits},
    schema::arbitrary::Random,
};
use polywire_testing::allocator::peak_of;
use polywire_testing::{Coder, backends, mutated, random_record, random_schema, seeds, wires};

#[test]
fn every_codec_carries_every_value() {
    let mut carried = vec![0; wires().len()];
    for seed in seeds(300) {
        let Ok(shape) = Shape::of(&random_schema(seed, 3 + seed as usize % 9)) else { continue };
        for (wire, carried) in wires().iter().zip(&mut carried) {
            let coder = match Coder::new(wire, &shape, Backend::Interpreter) {
                Ok(coder) => coder,
                Err(BuildError::Lower(LowerError::Unsupported { .. })) => continue,
                Err(error) => panic!("seed {seed}, {wire:?}: {error}"),
            };
            let mut random = Random::new(seed);
            for _ in 0..4 {
                let (record, over) = (random_record(&mut random, &shape), random_record(&mut random, &shape));
                let message = coder.encode(&record).unwrap_or_else(|e| panic!("seed {seed}, {wire:?}: {e}"));
                let (back, taken) =
                    coder.decode(&message, &over).unwrap_or_else(|e| panic!("seed {seed}, {wire:?}: {e}"));
                assert_eq!(back, record, "seed {seed}, {wire:?}");
                assert_eq!(taken, message.len(), "seed {seed}, {wire:?}");
                *carried += 1;
            }
        }
    }
    let values: usize = carried.iter().sum();
    println!("{values} values, by wire {carried:?}");
    assert!(carried.iter().all(|n| *n > 500) && values >= 50_000, "{carried:?}");
}

/// False counts and lengths at every place of a message: the peak of allocated memory stays within
/// the limits.
#[test]
fn lies_about_sizes_cost_no_more_than_the_limits_allow() {
    let limits = Limits { memory_bytes: 20_000, ..Limits::default() };
    let lies: [u32; 6] = [u32::MAX, 0x7FFF_FFFF, 0x8000_0000, 0x00FF_FFFF, 100_000, 5_000];
    for seed in seeds(15) {
        let Ok(shape) = Shape::of(&random_schema(seed, 3 + seed as usize % 9)) else { continue };
        for wire in wires() {
            for backend in backends() {
                if backend == Backend::Jit && seed % 4 > 0 {
                    continue;
                }
                let Ok(coder) = Coder::new(&wire, &shape, backend) else { continue };
                let decoder = coder.decoder.clone().with_limits(limits);
                let mut random = Random::new(seed);
                let Ok(message) = coder.encode(&random_record(&mut random, &shape)) else { continue };
                let mut bad: Vec<Vec<u8>> = Vec::new();
                for at in (0..message.len().saturating_sub(3)).step_by(1 + message.len() / 100) {
                    for bytes in [random.choose(&lies).to_le_bytes(), random.choose(&lies).to_be_bytes()] {
                        let mut lying = message.clone();
                        lying[at..at + 4].copy_from_slice(&bytes);
                        bad.push(lying);
                    }
                }
                bad.extend((0..20).map(|_| mutated(&mut random, &message)));
                for bad in bad {
                    let mut record = polywire_core::layout::Record::new(&shape);
                    let used = peak_of(|| drop(decoder.decode(&bad, &mut record)));
                    // What grows is for a moment there twice, and grows by more than it must.
                    let most = 4 * limits.memory_bytes + 16 * bad.len() + 4096;
                    assert!(used <= most, "seed {seed}, {wire:?}, {backend:?}: {used} bytes for {bad:?}");
                }
            }
        }
    }
}
