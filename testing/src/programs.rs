//! Changes programs of codecs at random, for tests of the verifier and of the back ends. A changed
//! program may be valid or not.

use polywire_core::{
    layout::{NodeId, Scalar},
    program::{
        Arithmetic, Block, ByteSlot, Bytes, BytesForm, Check, Coding, Op, OpKind, Operand, Order, Overflow, PartKernel,
        Place, Policy, Program, Routine, SlotOp, Source, StopBit, Wire,
    },
    schema::arbitrary::Random,
};

/// Makes one random change to an operation, a block or a routine.
pub fn change(random: &mut Random, program: &mut Program) {
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
    // One in eight may be a node that does not exist.
    let beyond = usize::from(random.one_in(8));
    Some(NodeId(random.below(nodes + beyond) as u32))
}

fn change_block(random: &mut Random, block: &mut Block, nodes: usize, routines: usize) {
    if block.0.is_empty() {
        return;
    }
    let at = random.below(block.0.len());
    // If the operation contains blocks, mostly change one of them.
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
        | OpKind::PresenceMap { body, .. }
        | OpKind::Region { body, .. } => vec![body],
        OpKind::Union { arms, none: rest, .. } | OpKind::Switch { arms, otherwise: rest, .. } => {
            arms.iter_mut().chain([rest]).collect()
        }
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
    match random.below(18) {
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
        13..17 => random_state_op(random),
        _ => OpKind::Call { routine: random.below(routines + 1) as u32, place: at },
    }
}

/// A random operation on slots, locals, the presence map or the bytes in hand.
pub fn random_state_op(random: &mut Random) -> OpKind {
    let (slot, local) = (random.below(3) as u32, random.below(9) as u8);
    let scalar = *random.choose(&[Scalar::U64, Scalar::I64, Scalar::F64, Scalar::U32, Scalar::I8, Scalar::Bool]);
    // The values of a slot are mostly of one kind, which direct functions require.
    let kind = if random.one_in(8) { random.below(4) as u8 } else { 2 };
    let initial = random.bits() >> random.below(64);
    let local = if random.one_in(2) { local.min(1) } else { local };
    let operand = if random.one_in(2) { Operand::Local(local) } else { Operand::Constant(initial) };
    let arithmetic = [Arithmetic::Add, Arithmetic::Subtract, Arithmetic::Equal, Arithmetic::Less];
    match random.below(16) {
        13..16 => OpKind::Bytes(random_bytes(random)),
        0 => OpKind::Slot(SlotOp::LoadSlot { slot, scalar, initial }),
        1 => OpKind::Slot(SlotOp::StoreSlot { slot, kind }),
        2 => OpKind::Slot(SlotOp::EmptySlot(slot)),
        3 => OpKind::Slot(SlotOp::SlotState(slot)),
        4 => OpKind::Slot(SlotOp::LoadLocal(local, scalar)),
        5 => OpKind::Slot(SlotOp::StoreLocal(local)),
        6 => OpKind::Slot(SlotOp::Compute(*random.choose(&arithmetic), operand)),
        7 => OpKind::TakeBit,
        8 | 9 => OpKind::KnownBits { zeros: random.below(3) as u32, one: random.one_in(2) },
        10 => OpKind::Slot(SlotOp::SlotHas { slot, kind, initial: random.one_in(2).then_some(initial) }),
        11 => {
            let there = random.one_in(3).then_some(local);
            let base = random.one_in(3).then_some(local);
            let wire = Wire::StopBit(StopBit { there, base, ..StopBit::new(scalar) });
            if random.one_in(2) { OpKind::Get(wire) } else { OpKind::Put(wire) }
        }
        _ => OpKind::Slot(SlotOp::Forget { except: slot }),
    }
}

/// An operation on the bytes in hand.
fn random_bytes(random: &mut Random) -> Bytes {
    static WHOLE: PartKernel = PartKernel {
        name: "random",
        split: |known, value| Some((known.len() as i64, 0..value.len())),
        join: |_, _, number| Some((number as usize, 1)),
    };
    let slot = ByteSlot { slot: random.below(3) as u32, bytes: random.below(3) as u32 };
    let (kind, number) = (random.below(4) as u8, random.below(9) as u8);
    let initial: Box<[u8]> = random.choose(&[&b""[..], b"short", b"more than sixteen bytes", b"\xFF"]).to_vec().into();
    let coding = *random.choose(&[Coding::StopBit, Coding::Counted]);
    let form = BytesForm { there: random.one_in(3).then_some(number), ..BytesForm::new(coding) };
    match random.below(10) {
        0 => Bytes::Const(initial),
        1 => Bytes::Get(form),
        2 => Bytes::Put(form),
        3 => Bytes::LoadSlot { slot, initial },
        4 => Bytes::StoreSlot { slot, kind },
        5 => Bytes::SlotHas { slot, kind, initial: random.one_in(2).then_some(initial) },
        6 => Bytes::Equal(initial),
        7 => Bytes::Length,
        8 => Bytes::Utf8(Policy::Reject),
        _ => Bytes::Part { kernel: &WHOLE, slot, initial, number },
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
        OpKind::Switch { labels, arms, .. } => {
            labels.push((*random.choose(&[-1, 0, 1, i64::MAX, i64::MIN]), random.below(arms.len() + 1) as u32));
            if !random.one_in(4) {
                labels.sort_unstable();
                labels.dedup_by_key(|(label, _)| *label);
            }
        }
        OpKind::Call { routine, place: at } => match random.below(2) {
            0 => *routine = random.below(routines + 1) as u32,
            _ => place(random, at, nodes),
        },
        OpKind::Members { arms, .. } => drop(arms.pop()),
        OpKind::PresenceMap { bits, .. } => *bits = bits.wrapping_add_signed(*random.choose(&[-1, 1, 7, i32::MIN])),
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
