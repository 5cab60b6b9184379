//! Programs that nobody would write: lowerings with parts dropped, moved, exchanged. What the verifier passes does no harm, whatever
//! the bytes are: all memory lies between guard pages, both back ends run it, and they agree.
#![cfg(unix)]

mod common;

use common::{
    guard::{Guarding, exact, guarded},
    mutated, plain_wires, random_record, seeds,
};
use polywire_core::{
    codec::Options,
    layout::{NodeId, Record, Scalar, Shape},
    program::{
        Backend, Block, Check, Direction, Executable, FaultKind, Limits, Op, OpKind, Order, Overflow, Place, Program,
        Routine, Source, Wire, io::CodecError, passes,
    },
    schema::arbitrary::{Random, random_evolution, random_schema},
};
use std::sync::Arc;

#[global_allocator]
static GUARDING: Guarding = Guarding;

/// Loops end soon: what takes no bytes is repeated at most so often.
const LIMITS: Limits = Limits { message_bytes: 1 << 16, memory_bytes: 1 << 16, elements: 50, depth: 8 };

#[derive(Debug, Default)]
struct Told {
    refused: usize,
    passed: usize,
    ended_well: usize,
}

#[test]
fn what_the_verifier_passes_does_no_harm() {
    let mut told = Told::default();
    for seed in seeds(60) {
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
            let (encode, decode) = (passes::prepare(encode), passes::prepare(decode));
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
        // SAFETY: as above.
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
                // SAFETY: as above.
                let outcome = unsafe { executable.decode(&input, target.as_mut_ptr(), &LIMITS) };
                // Whatever happened, it is a value, and one that others can use.
                assert_eq!(target.clone(), target);
                let _ = format!("{target:?}");
                // SAFETY: as above.
                let _ = unsafe { sound.encode(target.as_ptr(), &mut Vec::new(), &Limits::default()) };
                outcome.map(|taken| (taken, target))
            })
        });
        told.ended_well += usize::from(outcomes[0].is_ok());
        assert!(agree(&outcomes), "{} of {bytes:?}: {outcomes:?}", what());
        guarded(|| drop((record, outcomes, input)));
    }
}

/// The same value or the same error; only how far an output may grow differs by the slack of machine code.
fn agree<T: PartialEq>(outcomes: &[Result<T, CodecError>; 2]) -> bool {
    match outcomes {
        [Err(a), Err(b)] if a.kind == FaultKind::Limit => b.kind == FaultKind::Limit,
        [a, b] => a == b,
    }
}

/// Changes one thing somewhere.
fn change(random: &mut Random, program: &mut Program) {
    let nodes = program.layout.len();
    let routines = program.routines.len();
    let block = match random.below(routines + 2) {
        i if i < routines => {
            let Routine { frame, block, levels } = &mut program.routines[i];
            match random.below(12) {
                0 => *frame = random_node(random, nodes).filter(|_| !random.one_in(3)),
                1 => *levels = random.below(4) as u32,
                _ => {}
            }
            block
        }
        _ => &mut program.root,
    };
    change_block(random, block, nodes, routines);
}

fn random_node(random: &mut Random, nodes: usize) -> Option<NodeId> {
    // Now and then one that is not there.
    let beyond = usize::from(random.one_in(8));
    Some(NodeId(random.below(nodes + beyond) as u32))
}

fn change_block(random: &mut Random, block: &mut Block, nodes: usize, routines: usize) {
    if block.0.is_empty() {
        return;
    }
    let at = random.below(block.0.len());
    // Mostly go down where there is a way down.
    let mut inner: Vec<&mut Block> = inner_blocks(&mut block.0[at].kind);
    if !inner.is_empty() && !random.one_in(4) {
        let chosen = random.below(inner.len());
        return change_block(random, inner.swap_remove(chosen), nodes, routines);
    }
    match random.below(8) {
        0 => drop(block.0.remove(at)),
        1 => block.0.insert(at, block.0[at].clone()),
        2 => {
            let other = random.below(block.0.len());
            block.0.swap(at, other);
        }
        3 => {
            let path = block.0[at].path;
            block.0.insert(at, Op { path, kind: random_op(random, nodes, routines) });
        }
        _ => change_op(random, &mut block.0[at].kind, nodes, routines),
    }
}

fn inner_blocks(kind: &mut OpKind) -> Vec<&mut Block> {
    match kind {
        OpKind::Sequence { element, .. } => vec![element],
        OpKind::Map { key, value, .. } => vec![key, value],
        OpKind::IfPresent { then, otherwise, .. } | OpKind::If { then, otherwise } => vec![then, otherwise],
        OpKind::Present { body, .. }
        | OpKind::Unbox { body, .. }
        | OpKind::Select { body, .. }
        | OpKind::Region { body, .. } => vec![body],
        OpKind::Union { arms, none, .. } => arms.iter_mut().chain([none]).collect(),
        OpKind::Switch { arms, otherwise } => arms.iter_mut().map(|(_, b)| b).chain([otherwise]).collect(),
        OpKind::Members { arms, .. } => arms.iter_mut().flat_map(|a| [&mut a.body, &mut a.absent]).collect(),
        _ => vec![],
    }
}

const SCALARS: [Scalar; 12] = [
    Scalar::Bool,
    Scalar::I8,
    Scalar::I16,
    Scalar::I32,
    Scalar::I64,
    Scalar::U8,
    Scalar::U16,
    Scalar::U32,
    Scalar::U64,
    Scalar::F32,
    Scalar::F64,
    Scalar::F128,
];

fn order(random: &mut Random) -> Order {
    *random.choose(&[Order::Little, Order::Big])
}

fn place(random: &mut Random, place: &mut Place, nodes: usize) {
    match place {
        Place::At { offset, node } => match random.below(4) {
            0 => *offset = offset.wrapping_add_signed(*random.choose(&[-8, -4, -1, 1, 2, 4, 8, 16])),
            1 => *node = random_node(random, nodes).unwrap(),
            2 => *offset = *random.choose(&[0, u32::MAX, 1 << 31]),
            _ => *place = Place::Sink,
        },
        Place::Sink => *place = Place::At { offset: 0, node: random_node(random, nodes).unwrap() },
    }
}

fn random_check(random: &mut Random, nodes: usize) -> Check {
    match random.below(5) {
        0 => Check::Bool,
        1 => Check::Enum { node: random_node(random, nodes).unwrap(), otherwise: None },
        2 => Check::Range { min: -5, max: random.below(300) as i128 },
        3 => Check::OneOf(vec![-1, 0, 1, 70].into()),
        _ => Check::Keep(random.bits()),
    }
}

fn random_op(random: &mut Random, nodes: usize, routines: usize) -> OpKind {
    let scalar = *random.choose(&SCALARS);
    let at = Place::At { offset: *random.choose(&[0, 0, 0, 4, 8]), node: random_node(random, nodes).unwrap() };
    match random.below(14) {
        0 => OpKind::Need(random.below(20) as u32),
        1 => OpKind::Align(*random.choose(&[1, 2, 4, 8, 3, 16])),
        2 => OpKind::Literal((0..random.below(12)).map(|i| i as u8).collect()),
        3 => OpKind::Load(at),
        4 => OpKind::Store(at),
        5 => OpKind::Get(Wire::Fixed { scalar, order: order(random) }),
        6 => OpKind::Put(Wire::Fixed { scalar, order: order(random) }),
        7 => OpKind::Const(scalar, u128::from(random.bits() >> random.below(64))),
        8 => OpKind::Length(at),
        9 => OpKind::Index,
        10 => OpKind::Convert(scalar),
        11 => OpKind::Check(random_check(random, nodes)),
        12 => OpKind::Clear(at),
        _ => OpKind::Call { routine: random.below(routines + 1) as u32, place: at },
    }
}

fn change_op(random: &mut Random, kind: &mut OpKind, nodes: usize, routines: usize) {
    match kind {
        OpKind::Need(n) => *n = n.wrapping_add_signed(*random.choose(&[-8, -1, 1, 1 << 20])),
        OpKind::Align(n) => *n = *random.choose(&[1, 2, 4, 8]),
        OpKind::Run { segments, size } => {
            if segments.is_empty() || random.one_in(4) {
                *size = size.wrapping_add_signed(*random.choose(&[-4, -1, 1, 4, i32::MIN]));
                return;
            }
            let chosen = random.below(segments.len());
            if random.one_in(5) {
                let other = random.below(segments.len());
                let from = segments[other].place;
                segments[chosen].place = from;
                return;
            }
            let segment = &mut segments[chosen];
            match random.below(7) {
                0 => place(random, &mut segment.place, nodes),
                1 => segment.at = segment.at.wrapping_add_signed(*random.choose(&[-4, -1, 1, 4])),
                2 => segment.wire = *random.choose(&SCALARS),
                3 => segment.memory = *random.choose(&SCALARS),
                4 => segment.count = *random.choose(&[0, 1, 2, 3, u32::MAX]),
                5 => segment.check = (!random.one_in(3)).then(|| random_check(random, nodes)),
                _ => segment.order = order(random),
            }
        }
        OpKind::Load(at) | OpKind::Store(at) | OpKind::Length(at) | OpKind::Clear(at) => place(random, at, nodes),
        OpKind::Get(wire) | OpKind::Put(wire) => {
            *wire = Wire::Fixed { scalar: *random.choose(&SCALARS), order: order(random) };
        }
        OpKind::Const(scalar, bits) => match random.below(2) {
            0 => *scalar = *random.choose(&SCALARS),
            _ => *bits = u128::from(random.bits()) << random.below(65),
        },
        OpKind::Convert(scalar) => *scalar = *random.choose(&SCALARS),
        OpKind::Check(check) => *check = random_check(random, nodes),
        OpKind::Text { place: at, bound, utf16_bound, overflow, after, .. } => match random.below(5) {
            0 => place(random, at, nodes),
            1 => *bound = random.below(20) as u32,
            2 => *utf16_bound = !*utf16_bound,
            3 => *overflow = random_overflow(random),
            _ => *after = random.below(40) as u32,
        },
        OpKind::SetText(at, _) => place(random, at, nodes),
        OpKind::Bulk { place: at, scalar, order: bytes, bound, overflow } => match random.below(5) {
            0 => place(random, at, nodes),
            1 => *scalar = *random.choose(&SCALARS),
            2 => *bytes = order(random),
            3 => *bound = random.below(6) as u32,
            _ => *overflow = random_overflow(random),
        },
        OpKind::Slice { place: at, bound, overflow, .. } => match random.below(3) {
            0 => place(random, at, nodes),
            1 => *bound = random.below(6) as u32,
            _ => *overflow = random_overflow(random),
        },
        OpKind::Sequence { place: at, source, bound, overflow, min_wire, .. } => match random.below(5) {
            0 => place(random, at, nodes),
            1 => *source = *random.choose(&[Source::Count, Source::Fixed(0), Source::Fixed(3)]),
            2 => *bound = random.below(6) as u32,
            3 => *overflow = random_overflow(random),
            _ => *min_wire = *random.choose(&[0, 1, 100, u32::MAX]),
        },
        OpKind::Map { place: at, source, bound, overflow, min_wire, .. } => match random.below(5) {
            0 => place(random, at, nodes),
            1 => *source = *random.choose(&[Source::Count, Source::Fixed(0), Source::Fixed(3)]),
            2 => *bound = random.below(6) as u32,
            3 => *overflow = random_overflow(random),
            _ => *min_wire = *random.choose(&[0, 1, 100, u32::MAX]),
        },
        OpKind::IfPresent { place: at, .. } | OpKind::Present { place: at, .. } | OpKind::Unbox { place: at, .. } => {
            place(random, at, nodes);
        }
        OpKind::Union { place: at, arms, .. } => match random.below(3) {
            0 => drop(arms.pop()),
            1 => arms.push(Block::default()),
            _ => place(random, at, nodes),
        },
        OpKind::Select { place: at, case, .. } => match random.below(2) {
            0 => place(random, at, nodes),
            _ => *case = (!random.one_in(4)).then(|| random.below(4) as u32),
        },
        OpKind::Switch { arms, .. } => {
            if let Some((labels, _)) = arms.first_mut() {
                labels.push(*random.choose(&[-1, 0, 1, i64::MAX, i64::MIN]));
                labels.sort_unstable();
                labels.dedup();
            }
        }
        OpKind::Call { routine, place: at } => match random.below(2) {
            0 => *routine = random.below(routines + 1) as u32,
            _ => place(random, at, nodes),
        },
        OpKind::Members { arms, .. } => drop(arms.pop()),
        other => *other = random_op(random, nodes, routines),
    }
}

fn random_overflow(random: &mut Random) -> Overflow {
    match random.below(3) {
        0 => Overflow::Refuse,
        1 => Overflow::Trim,
        _ => Overflow::UseDefault("default".into()),
    }
}

/// The record that all of this is about is not the only thing that may be changed: a type from elsewhere does not fit.
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
                    let _ = guarded(|| unsafe { executable.decode(&bytes, record.as_mut_ptr(), &LIMITS) });
                    guarded(|| drop(record));
                }
            }
        }
    }
    assert!(refused > 50, "{refused}");
}
