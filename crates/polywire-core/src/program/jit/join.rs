//! Choices among alternative blocks, and their joins. Each choice calls [`Emit::begin_join`], then
//! `begin_arm` and `end_arm` for each block, then `finish_join`. Facts on which all blocks agree
//! (the type of the accumulator, facts about locals) hold behind them. `jit/ops.rs` calls this file
//! for `If` and `Switch`; choices in `jit/encode.rs` and `jit/stream/slots.rs` use the joins. It
//! touches `Emit` only.

use alloc::vec::Vec;

use cranelift_codegen::ir::{Block as CodeBlock, InstBuilder, Value, types};
use cranelift_frontend::{Switch, Variable};

use super::{
    emit::{Accumulator, Emit},
    stream::Held,
};
use crate::{
    layout::Scalar,
    program::{Block, OpKind, state::LOCALS},
};

/// Facts about a local, where it is a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LocalFact {
    /// It holds a number of this type.
    pub from: Option<Scalar>,
    /// It holds this number.
    pub constant: Option<i64>,
}

/// A join that is being emitted.
pub(super) struct Join<'e> {
    /// The accumulator where each arm begins.
    accumulator: Option<Accumulator>,
    held: Option<Held<'e>>,
    facts: [LocalFact; LOCALS],
    /// The facts where arms have ended, if any has.
    ended: Option<Ended>,
}

struct Ended {
    /// The accumulator, its type, and its type before it was widened, if the arms agree on it.
    accumulator: Option<(Variable, Scalar, Scalar)>,
    facts: [LocalFact; LOCALS],
}

/// True if the end of a block is never reached, because it always fails.
pub(super) fn stops(block: &Block) -> bool {
    block.0.iter().any(|op| match &op.kind {
        OpKind::Fail(_) => true,
        OpKind::If { then, otherwise } => stops(then) && stops(otherwise),
        OpKind::Switch { arms, otherwise, .. } => stops(otherwise) && arms.iter().all(stops),
        _ => false,
    })
}

/// True if a block that encodes sets a presence bit: it writes a field that operators are made to
/// leave out.
pub(super) fn sets_bit(block: &Block) -> bool {
    block.0.iter().any(|op| matches!(op.kind, OpKind::KnownBits { one: true, .. }))
}

impl<'e> Emit<'e, '_> {
    pub(super) fn begin_join(&self) -> Join<'e> {
        Join { accumulator: self.accumulator, held: self.held, facts: self.facts, ended: None }
    }

    /// Restores the facts at the beginning of an arm.
    pub(super) fn begin_arm(&mut self, join: &Join<'e>) {
        (self.accumulator, self.held, self.facts) = (join.accumulator, join.held, join.facts);
    }

    /// Records the facts at an arm's end, which may be unreachable.
    pub(super) fn end_arm(&mut self, join: &mut Join<'e>, stops: bool) {
        if stops {
            return;
        }
        let (own, facts) = (self.accumulator, self.facts);
        let Some(ended) = &mut join.ended else {
            let accumulator = own.map(|Accumulator { value, scalar, from }| {
                let ty = if scalar == Scalar::F128 { types::I128 } else { types::I64 };
                let variable = self.code.declare_var(ty);
                self.code.def_var(variable, value);
                (variable, scalar, from)
            });
            join.ended = Some(Ended { accumulator, facts });
            return;
        };
        ended.accumulator = match (ended.accumulator, own) {
            (Some((variable, scalar, from)), Some(own)) if own.scalar == scalar => {
                self.code.def_var(variable, own.value);
                Some((variable, scalar, if from == own.from { from } else { scalar }))
            }
            _ => None,
        };
        for (before, own) in ended.facts.iter_mut().zip(facts) {
            if *before != own {
                *before = LocalFact::default();
            }
        }
    }

    /// Continues behind the arms.
    pub(super) fn finish_join(&mut self, join: Join<'e>) {
        // If an arm has taken other bytes in hand, no operation behind the arms uses them.
        self.held = join.held;
        let ended = join.ended.unwrap_or(Ended { accumulator: None, facts: [LocalFact::default(); LOCALS] });
        self.facts = ended.facts;
        self.accumulator = ended.accumulator.map(|(variable, scalar, from)| {
            let value = self.code.use_var(variable);
            Accumulator { value, scalar, from }
        });
    }

    /// Emits a branch to one of two blocks, which begin with the condition as accumulator.
    /// Rare blocks are cold, so that the code of the others is without gaps.
    pub(super) fn choose(&mut self, condition: Value, blocks: [&'e Block; 2], rare: [bool; 2], frame: Value) {
        self.choose_by(|emit, yes, no| _ = emit.code.ins().brif(condition, yes, &[], no, &[]), blocks, rare, frame);
    }

    /// The same with a test that jumps to the first block or the second.
    pub(super) fn choose_by(
        &mut self,
        ask: impl FnOnce(&mut Self, CodeBlock, CodeBlock),
        blocks: [&'e Block; 2],
        rare: [bool; 2],
        frame: Value,
    ) {
        let done = self.new_block();
        let [yes, no] = [0, 1].map(|at| self.arm_block(blocks[at], rare[at]));
        ask(self, yes, no);
        let mut join = self.begin_join();
        let most = self.arm_bits(blocks.into_iter());
        for (start, block) in [yes, no].into_iter().zip(blocks) {
            self.code.switch_to_block(start);
            self.begin_arm(&join);
            self.set_bits_done(most.0);
            self.block(block, frame);
            self.elide_rest(most.1, stops(block));
            self.end_arm(&mut join, stops(block));
            self.code.ins().jump(done, &[]);
        }
        self.code.switch_to_block(done);
        self.finish_join(join);
    }

    /// Emits a switch to the block that has the accumulator among its labels.
    pub(super) fn switch(&mut self, labels: &[(i64, u32)], arms: &'e [Block], otherwise: &'e Block, frame: Value) {
        let bodies = arms.iter().chain([otherwise]);
        let (start, end) = self.arm_bits(bodies.clone());
        let value = self.accumulator().value;
        let mut join = self.begin_join();
        let mut switch = Switch::new();
        let (done, none) = (self.new_block(), self.new_block());
        let blocks: Vec<CodeBlock> = arms.iter().map(|_| self.new_block()).collect();
        let unsigned = self.accumulator().scalar == Scalar::U64;
        // An unsigned accumulator has no negative labels: they would match large numbers.
        for (label, arm) in labels.iter().filter(|(label, _)| !unsigned || *label >= 0) {
            switch.set_entry(u128::from(*label as u64), blocks[*arm as usize]);
        }
        switch.emit(&mut self.code, value, none);
        for (block, body) in blocks.into_iter().chain([none]).zip(bodies) {
            self.code.switch_to_block(block);
            self.begin_arm(&join);
            self.set_bits_done(start);
            self.block(body, frame);
            self.fill_bits(end);
            self.end_arm(&mut join, stops(body));
            self.code.ins().jump(done, &[]);
        }
        self.code.switch_to_block(done);
        self.finish_join(join);
    }

    /// Creates the block in which an arm begins. It is cold if the arm is rare or always fails.
    pub(super) fn arm_block(&mut self, arm: &Block, is_rare: bool) -> CodeBlock {
        if is_rare || stops(arm) { self.cold() } else { self.new_block() }
    }
}
