//! The target that decodes into a value repeatedly, over the contents that earlier messages left.

use crate::{
    messages::{LIMITS, agree, messages, type_of},
    seed,
};
use polywire_core::{
    codec::Decoder,
    layout::{Record, Shape, ValueRef},
    program::{CodecError, FaultKind},
    schema::arbitrary::Random,
};
use polywire_testing::random_evolution;
use polywire_testing::{
    Wire,
    allocator::{PATTERN, TestAllocator},
    backends, random_record,
};
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::filling();

/// Panics if a printed value has the number that four or eight bytes of the allocator's pattern
/// make, because such memory was never written. One or two bytes with the pattern may be a proper
/// value.
pub fn was_written(printed: &str, message: &[u8]) {
    let numbers = [
        i32::from_ne_bytes([PATTERN; 4]).to_string(),
        u32::from_ne_bytes([PATTERN; 4]).to_string(),
        i64::from_ne_bytes([PATTERN; 8]).to_string(),
        u64::from_ne_bytes([PATTERN; 8]).to_string(),
        format!("{:?}", f32::from_ne_bytes([PATTERN; 4])),
        format!("{:?}", f64::from_ne_bytes([PATTERN; 8])),
    ];
    let found = numbers.iter().find(|number| printed.contains(number.as_str()));
    assert!(found.is_none(), "{found:?} was never written: {printed} of {message:02x?}");
}

/// A decoder on one back end, and the value that it decodes into.
struct End {
    decoder: Decoder<Record>,
    kept: Record,
}

type Outcome = Result<(usize, String), (FaultKind, String)>;

fn decode(decoder: &Decoder<Record>, message: &[u8], record: &mut Record) -> Outcome {
    let outcome = decoder.decode(message, record);
    let printed = format!("{record:?}");
    was_written(&printed, message);
    outcome.map(|taken| (taken, printed)).map_err(|error: CodecError| (error.kind, error.to_string()))
}

/// Decodes each message into a new value and into a value that was used before. The results must be
/// the same on every back end. Elements that are added afterwards must also be the same.
pub fn decode_again(input: &[u8]) {
    let Some((wire, shape)) = type_of(input) else { return };
    let (mut random, mut clean) = (Random::new(seed(input)), true);
    let mut ends = ends(wire, &shape, &mut random);
    for message in messages(input) {
        let outcomes = ends.iter_mut().map(|End { decoder, kept }| {
            let fresh = decode(decoder, message, &mut Record::new(decoder.shape()));
            let reused = decode(decoder, message, kept);
            match (&fresh, &reused) {
                (Ok(fresh), Ok(reused)) => {
                    assert_eq!(fresh, reused, "{wire:?}: the previous value changes the decoded value")
                }
                // Memory that a value has already does not count against the limit.
                (Err((FaultKind::Limit, _)), _) | (_, Err((FaultKind::Limit, _))) => {}
                (fresh, reused) => assert_eq!(fresh, reused, "{wire:?}: the previous value changes the outcome"),
            }
            reused
        });
        let outcomes: Vec<Outcome> = outcomes.collect();
        // After a refused message, back ends may have decoded a different number of members and
        // kept different memory.
        clean &= outcomes.iter().all(Result::is_ok);
        if clean || !outcomes.iter().any(|outcome| matches!(outcome, Err((FaultKind::Limit, _)))) {
            agree(&outcomes);
        }
        if outcomes.iter().all(Result::is_ok) {
            agree(&ends.iter_mut().map(|end| grown(&mut end.kept)).collect::<Vec<_>>());
        }
    }
}

fn ends(wire: &Wire, shape: &Arc<Shape>, random: &mut Random) -> Vec<End> {
    let reader = match random.one_in(2) {
        true => Shape::of(&random_evolution(random.bits(), shape.schema())).unwrap_or_else(|_| shape.clone()),
        false => shape.clone(),
    };
    let over = random_record(random, &reader);
    let ends = backends().into_iter().filter_map(|backend| {
        let decoder =
            Decoder::for_shape_with_backend(wire.codec, &wire.options, shape.schema(), &reader, backend).ok()?;
        Some(End { decoder: decoder.with_limits(LIMITS), kept: over.clone() })
    });
    ends.collect()
}

/// Adds two default elements to each sequence of the value.
fn grown(record: &mut Record) -> String {
    let lists: Vec<(String, usize)> = record
        .fields()
        .iter()
        .filter_map(|(member, value)| match value {
            ValueRef::List(list) => Some((member.name.to_string(), list.len())),
            _ => None,
        })
        .collect();
    for (name, len) in lists {
        // Arrays and full bounded sequences cannot grow.
        let _ = record.resize(&name, len + 2);
    }
    format!("{record:?}")
}
