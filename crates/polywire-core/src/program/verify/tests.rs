//! Tests of the verifier: takes prepared programs of every codec, makes one reservation or cost too
//! small, and expects each to be refused.

use alloc::vec::Vec;

use super::*;
use crate::{
    codec::{self, Options},
    layout::Shape,
    program::passes::{Cost, cost, inner_blocks, inner_blocks_mut},
    schema::random_schema,
};

/// Prepared programs of both directions for random types, under every codec that has them.
fn programs() -> Vec<Program> {
    let mut found = Vec::new();
    for seed in 0..40 {
        let schema = random_schema(seed, 3 + seed as usize % 7);
        let Ok(shape) = Shape::of(&schema) else { continue };
        for codec in codec::CODECS {
            let options = Options::default();
            found.extend(codec.lower_encode(&options, &schema, shape.layout()).map(Program::prepared));
            found.extend(codec.lower_decode(&options, &schema, &schema, shape.layout()).map(Program::prepared));
        }
    }
    found
}

/// Calls `f` on all operations, until it returns true.
fn any_op(block: &mut Block, f: &mut dyn FnMut(&mut OpKind) -> bool) -> bool {
    block.0.iter_mut().any(|op| {
        let mut done = f(&mut op.kind);
        inner_blocks_mut(&mut op.kind, &mut |inner| done = done || any_op(inner, f));
        done
    })
}

/// Applies `change` to each operation that it can change, one at a time, and expects each such
/// program to be refused with the rule. Returns the number of programs.
#[track_caller]
fn refused_everywhere(rule: &str, change: &dyn Fn(&mut OpKind) -> bool) -> usize {
    let mut changed = 0;
    for program in programs() {
        assert_eq!(program.verify(), Ok(()));
        for nth in 0..8 {
            let (mut program, mut left) = (program.clone(), nth);
            let mut once = |kind: &mut OpKind| {
                let before = kind.clone();
                if !change(kind) {
                    return false;
                }
                if left == 0 {
                    return true;
                }
                left -= 1;
                *kind = before;
                false
            };
            let routines = program.routines.iter_mut().map(|routine| &mut routine.block);
            if !core::iter::once(&mut program.root).chain(routines).any(|block| any_op(block, &mut once)) {
                break;
            }
            let error = program.verify().expect_err("it reserves or costs too little");
            assert_eq!(error.rule, rule, "{:#?}", program.root);
            changed += 1;
        }
    }
    changed
}

const UNCOVERED: &str = "no Need covers the bytes it moves";

#[test]
fn a_need_of_a_byte_less_is_refused() {
    let less = |kind: &mut OpKind| match kind {
        OpKind::Need(n) => {
            *n -= 1;
            true
        }
        _ => false,
    };
    assert!(refused_everywhere(UNCOVERED, &less) > 500);
}

#[test]
fn a_text_that_leaves_less_room_behind_it_is_refused() {
    let less = |kind: &mut OpKind| match kind {
        OpKind::Text { after, .. } if *after > 0 => {
            *after -= 1;
            true
        }
        _ => false,
    };
    let changed = refused_everywhere(UNCOVERED, &less);
    assert!(changed > 10, "{changed}");
}

#[test]
fn operations_that_move_a_byte_more_are_refused() {
    let more = |kind: &mut OpKind| match kind {
        OpKind::Run { size, .. } => {
            *size += 1;
            true
        }
        OpKind::Literal(bytes) => {
            *bytes = bytes.iter().copied().chain([0]).collect();
            true
        }
        _ => false,
    };
    assert!(refused_everywhere(UNCOVERED, &more) > 500);
}

#[test]
fn a_routine_that_costs_a_level_less_is_refused() {
    let mut changed = 0;
    for program in programs() {
        for routine in 0..program.routines.len() {
            let mut program = program.clone();
            program.routines[routine].levels -= 1;
            let rule = "calls cost too little for the blocks in the routine";
            assert_eq!(program.verify().map_err(|error| error.rule), Err(rule));
            changed += 1;
        }
    }
    assert!(changed > 20, "{changed}");
}

#[test]
fn a_switch_whose_labels_do_not_ascend_or_choose_no_arm_is_refused() {
    let swapped = |kind: &mut OpKind| match kind {
        OpKind::Switch { labels, .. } if labels.len() > 1 => {
            labels.swap(0, 1);
            true
        }
        _ => false,
    };
    let twice = |kind: &mut OpKind| match kind {
        OpKind::Switch { labels, .. } if !labels.is_empty() => {
            labels.insert(0, labels[0]);
            true
        }
        _ => false,
    };
    for change in [&swapped as &dyn Fn(&mut OpKind) -> bool, &twice] {
        assert!(refused_everywhere("the labels of a switch ascend, and none occurs twice", change) > 20);
    }
    let beyond = |kind: &mut OpKind| match kind {
        OpKind::Switch { labels, arms, .. } if !labels.is_empty() => {
            labels[0].1 = arms.len() as u32;
            true
        }
        _ => false,
    };
    assert!(refused_everywhere("a label chooses an arm of its switch", &beyond) > 20);
}

#[test]
fn blocks_nest_and_operations_are_counted_without_the_passes() {
    let mut program = programs().into_iter().find(|program| program.direction == Direction::Decode).unwrap();
    let op = |kind| Op { path: super::super::PathId(0), kind };
    let truth = || op(OpKind::Const(Scalar::Bool, 1));
    let nest = |inner: Block| Block(vec![truth(), op(OpKind::If { then: inner, otherwise: Block::default() })]);
    let deep = |levels| (0..levels).fold(Block(vec![truth()]), |inner, _| nest(inner));
    program.root = deep(MAX_DEPTH);
    assert_eq!(program.verify(), Ok(()));
    program.root = deep(MAX_DEPTH + 1);
    assert_eq!(program.verify().unwrap_err().rule, "blocks are nested too deeply");
    program.root = Block(vec![truth(); MAX_OPS + 1]);
    program.routines.clear();
    assert_eq!(program.verify().unwrap_err().rule, "it has too many operations");
    program.root.0.pop();
    assert_eq!(program.verify(), Ok(()));
}

#[test]
fn a_check_that_may_note_a_deviation_needs_a_state() {
    let mut program = programs().into_iter().find(|program| program.bank.is_none()).unwrap();
    let op = |kind| Op { path: super::super::PathId(0), kind };
    for policy in [Policy::Reject, Policy::Report, Policy::Ignore] {
        let fault = crate::program::FaultKind::OutOfRange;
        let within = OpKind::Check(Check::Within { min: 1, max: 2, fault, policy });
        program.root = Block(vec![op(OpKind::Const(Scalar::I64, 3)), op(within)]);
        let refused = program.verify().map_err(|error| error.rule);
        assert_eq!(refused, if policy == Policy::Reject { Ok(()) } else { Err("the program has no bank") });
    }
}

#[test]
fn the_table_and_the_passes_know_the_same_blocks_and_bytes() {
    fn compare(block: &Block, direction: Direction) {
        for op in &block.0 {
            let mut of_passes = Vec::new();
            inner_blocks(&op.kind, &mut |inner| of_passes.push(core::ptr::from_ref(inner)));
            let Facts { blocks: own, reserved, .. } = facts(&op.kind, direction);
            assert!(own.iter().map(|block| core::ptr::from_ref(*block)).eq(of_passes), "{op:?}");
            let of_passes = match cost(&op.kind, direction) {
                Cost::Bytes(moved) => Some(moved),
                Cost::Barrier => None,
            };
            let moved = match reserved {
                Reserved::Moves(moved) => Some(moved),
                Reserved::Ensures(_) => Some(0),
                Reserved::Leaves(_) => None,
            };
            assert_eq!(moved, of_passes, "{op:?}");
            own.into_iter().for_each(|inner| compare(inner, direction));
        }
    }
    programs().iter().for_each(|program| compare(&program.root, program.direction));
}
