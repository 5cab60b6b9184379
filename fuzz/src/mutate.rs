//! What is done to a valid input.

use polywire_core::schema::arbitrary::Random;

/// Numbers that code tends to forget.
const EXTREMES: [u64; 8] = [0, 1, 0x7F, 0x80, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, u64::MAX];

/// Changes an input in one to four ways.
pub fn mutate(random: &mut Random, input: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        once(random, input);
    }
}

fn once(random: &mut Random, input: &mut Vec<u8>) {
    if input.is_empty() {
        return input.push(random.bits() as u8);
    }
    let at = random.below(input.len());
    match random.below(7) {
        0 => input[at] ^= 1 << random.below(8),
        1 => input[at] = random.bits() as u8,
        2 => input.truncate(at),
        3 => drop(input.drain(at..(at + 1 + random.below(8)).min(input.len()))),
        4 => {
            let piece = input[at..(at + 1 + random.below(32)).min(input.len())].to_vec();
            let to = random.below(input.len() + 1);
            input.splice(to..to, piece);
        }
        5 => {
            let extreme = random.choose(&EXTREMES).to_le_bytes();
            let end = (at + [1, 2, 4, 8][random.below(4)]).min(input.len());
            let len = end - at;
            input[at..end].copy_from_slice(&extreme[..len]);
        }
        _ => {
            let deep = *random.choose(b"[{(\x0A<");
            let many = random.below(300);
            input.splice(at..at, std::iter::repeat_n(deep, many));
        }
    }
}
