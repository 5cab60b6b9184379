//! Modified programs: real lowerings with operations removed, moved and exchanged. A program that
//! the verifier accepts causes no harm for any input. It runs on both back ends with guarded
//! memory, and they must agree.

use polywire_core::{
    codec::Options,
    layout::{Record, Shape},
    program::{Backend, CodecError, Direction, Executable, FaultKind, Limits, Payload, Program, State},
    schema::arbitrary::Random,
};
use polywire_testing::{
    guard::{alone, exact, guarded},
    mutated, plain_wires,
    programs::change,
    random_record, seeds,
};
use polywire_testing::{random_evolution, random_schema};
use std::sync::Arc;

/// Loops end soon: what takes no bytes is repeated at most so often.
const LIMITS: Limits = Limits {
    message_bytes: 1 << 16,
    memory_bytes: 1 << 16,
    expansion: 64,
    free_bytes: 1 << 12,
    elements: 50,
    depth: 8,
};

#[derive(Debug, Default)]
struct Told {
    refused: usize,
    passed: usize,
    ended_well: usize,
}

#[test]
fn programs_that_the_verifier_accepts_do_no_harm() {
    let _alone = alone();
    let mut told = Told::default();
    for seed in seeds(20) {
        let old = random_schema(seed, 3 + seed as usize % 7);
        let Ok(shape) = Shape::of(&old) else { continue };
        let writer = if seed % 2 == 0 { old.clone() } else { random_evolution(seed, &old) };
        for wire in plain_wires() {
            let options = Options::default();
            let (Ok(encode), Ok(decode)) = (
                wire.codec.lower_encode(&options, &old, shape.layout()),
                wire.codec.lower_decode(&options, &writer, &old, shape.layout()),
            ) else {
                continue;
            };
            let (encode, decode) = (encode.prepared(), decode.prepared());
            let mut random = Random::new(seed);
            let sound = Executable::prepared(encode.clone(), Backend::Interpreter).unwrap();
            for _ in 0..40 {
                let mut program = if random.one_in(3) { encode.clone() } else { decode.clone() };
                let changes = 1 + random.below(2);
                (0..changes).for_each(|_| change(&mut random, &mut program));
                try_program(&mut random, &program, &sound, &shape, &mut told, seed);
            }
        }
    }
    assert!(told.refused > 1000 && told.passed > 500 && told.ended_well > 100, "{told:?}");
}

/// Runs a program on all back ends, if it may run.
fn try_program(
    random: &mut Random,
    program: &Program,
    sound: &Executable,
    shape: &Arc<Shape>,
    told: &mut Told,
    seed: u64,
) {
    let Ok(interpreted) = Executable::prepared(program.clone(), Backend::Interpreter) else {
        told.refused += 1;
        return;
    };
    told.passed += 1;
    let compiled = Executable::prepared(program.clone(), Backend::Auto).unwrap();
    let what = || format!("seed {seed}: {:#?}", program.root);
    if let Some(states) = interpreted.state().zip(compiled.state()) {
        try_stream(random, [&interpreted, &compiled], states.into(), sound, shape, told, seed);
    }
    for _ in 0..4 {
        let record = guarded(|| random_record(random, shape));
        if program.direction == Direction::Encode {
            let outcomes = [&interpreted, &compiled].map(|executable| {
                guarded(|| {
                    let mut out = Vec::new();
                    // SAFETY: the program is one for the record's layout.
                    unsafe { executable.encode(record.as_ptr(), &mut out, &LIMITS) }.map(|()| out)
                })
            });
            told.ended_well += usize::from(outcomes[0].is_ok());
            assert!(agree(&outcomes), "{}: {outcomes:?}", what());
            guarded(|| drop((record, outcomes)));
            continue;
        }
        let mut message = Vec::new();
        // SAFETY: the sound program is one for the record's layout, too.
        let _ = unsafe { sound.encode(record.as_ptr(), &mut message, &Limits::default()) };
        let bytes = match random.below(3) {
            0 => (0..random.below(64)).map(|_| random.bits() as u8 & if random.one_in(2) { 3 } else { 255 }).collect(),
            1 => message,
            _ => mutated(random, &message),
        };
        let input = exact(&bytes);
        let outcomes = [&interpreted, &compiled].map(|executable| {
            guarded(|| {
                let mut target = record.clone();
                // SAFETY: the program is one for the layout of the record that it decodes into.
                let outcome = unsafe { executable.decode(Payload::Bytes(&input), target.as_mut_ptr(), &LIMITS) };
                // Even after an error the record is a valid value, which others can use.
                assert_eq!(target.clone(), target);
                let _ = format!("{target:?}");
                // SAFETY: the record is valid, and the sound program is one for its layout.
                let _ = unsafe { sound.encode(target.as_ptr(), &mut Vec::new(), &Limits::default()) };
                outcome.map(|taken| (taken, target))
            })
        });
        told.ended_well += usize::from(outcomes[0].is_ok());
        assert!(agree(&outcomes), "{} of {bytes:?}: {outcomes:?}", what());
        guarded(|| drop((record, outcomes, input)));
    }
}

/// Runs a stateful program on a few messages, each of which goes on from those before.
fn try_stream(
    random: &mut Random,
    executables: [&Executable; 2],
    mut states: [State; 2],
    sound: &Executable,
    shape: &Arc<Shape>,
    told: &mut Told,
    seed: u64,
) {
    let (program, mut writer) = (executables[0].program(), sound.state().unwrap());
    for _ in 0..4 {
        let (keep, record) = (!random.one_in(4), random_record(random, shape));
        let mut message = Vec::new();
        // SAFETY: all programs are ones for the record's layout.
        let _ = unsafe { sound.encode_with(&mut writer, true, record.as_ptr(), &mut message, &Limits::default()) };
        let bytes = if random.one_in(2) { message } else { mutated(random, &message) };
        let mut outcomes = Vec::new();
        for (executable, state) in executables.iter().zip(&mut states) {
            let (mut target, mut out) = (record.clone(), Vec::new());
            // SAFETY: all programs are ones for the record's layout.
            let outcome = unsafe {
                match program.direction {
                    Direction::Encode => {
                        executable.encode_with(state, keep, record.as_ptr(), &mut out, &LIMITS).map(|()| 0)
                    }
                    Direction::Decode => {
                        executable.decode(Payload::Chained { state, keep, bytes: &bytes }, target.as_mut_ptr(), &LIMITS)
                    }
                }
            };
            // Both go on, from what a message that failed has left, which is nothing.
            state.mend();
            let outcome = outcome.map(|taken| (taken, out, format!("{target:?}")));
            outcomes.push(outcome);
        }
        let outcomes: [_; 2] = outcomes.try_into().unwrap();
        told.ended_well += usize::from(outcomes[0].is_ok());
        assert!(agree(&outcomes), "seed {seed}: {:#?} of {bytes:?}: {outcomes:?}", program.root);
        if outcomes[0].is_err() {
            // How far the one came and the other did not, when a limit ended both, is nobody's
            // business.
            return;
        }
    }
}

/// The same value or the same error; only how far an output may grow differs by the slack of
/// machine code.
fn agree<T: PartialEq>(outcomes: &[Result<T, CodecError>; 2]) -> bool {
    match outcomes {
        [Err(a), Err(b)] if a.kind == FaultKind::Limit => b.kind == FaultKind::Limit,
        [a, b] => a == b,
    }
}

/// The record that all of this is about is not the only thing that may be changed: a type from
/// elsewhere does not fit.
#[test]
fn programs_of_other_layouts_are_refused() {
    let mut refused = 0;
    for seed in 0..40 {
        let (Ok(one), Ok(other)) = (Shape::of(&random_schema(seed, 6)), Shape::of(&random_schema(seed + 1000, 6)))
        else {
            continue;
        };
        for wire in plain_wires() {
            let Ok(mut program) =
                wire.codec.lower_decode(&Options::default(), one.schema(), one.schema(), one.layout())
            else {
                continue;
            };
            program.layout = other.layout().clone();
            match Executable::new(program, Backend::Interpreter) {
                Err(_) => refused += 1,
                // By chance it fits; then it does no harm.
                Ok(executable) => {
                    let mut record = guarded(|| Record::new(&other));
                    let bytes = exact(&[1; 64]);
                    // SAFETY: the verifier found the program to be one for this layout.
                    let _ =
                        guarded(|| unsafe { executable.decode(Payload::Bytes(&bytes), record.as_mut_ptr(), &LIMITS) });
                    guarded(|| drop(record));
                }
            }
        }
    }
    assert!(refused > 50, "{refused}");
}
