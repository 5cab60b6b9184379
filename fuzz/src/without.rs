//! The target `zenoh` of a fuzzer without that feature: it has no session, and so nothing to try.

use polywire_core::schema::arbitrary::Random;

pub fn samples(_: &mut Random) -> Vec<u8> {
    Vec::new()
}

pub fn meet(_: &[u8]) {}
