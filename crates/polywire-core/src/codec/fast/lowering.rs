//! State that both dialects share: the plan of the value that the walk visits next.

use core::cell::RefCell;

use super::{
    numbers::{Int, Ops, SlotUse, VALUE},
    plan::{Plan, Plans},
};
use crate::{
    codec::lower::LowerError,
    layout::Scalar,
    program::{Block, FaultKind, Field, OpKind, PathId},
};

/// The dialect of FAST for both walks.
pub(super) struct Lowering<'p> {
    pub plans: &'p Plans,
    /// The plan of the next value, and whether the value was already read.
    next: RefCell<(Plan, bool)>,
}

impl<'p> Lowering<'p> {
    /// Starts with the plan of the root.
    pub fn new(plans: &'p Plans) -> Lowering<'p> {
        Lowering { plans, next: RefCell::new((plans.root.clone(), false)) }
    }

    /// Sets the plan of the next value.
    pub fn set(&self, plan: &Plan) {
        *self.next.borrow_mut() = (plan.clone(), false);
    }

    /// Sets the plan of the next value, which was already read and is kept in the state.
    pub fn set_pending(&self, plan: &Plan) {
        *self.next.borrow_mut() = (plan.clone(), true);
    }

    /// The plan of the value that the walk is at.
    pub fn plan(&self, otherwise: LowerError) -> Result<Plan, LowerError> {
        self.pending(otherwise).map(|(plan, _)| plan)
    }

    /// The plan of the value that the walk is at, and whether the value was already read.
    pub fn pending(&self, otherwise: LowerError) -> Result<(Plan, bool), LowerError> {
        let (plan, pending) = self.next.borrow().clone();
        match plan {
            Plan::Refer(index) => self.plans.referred.get(index).cloned().map(|plan| (plan, pending)).ok_or(otherwise),
            plan => Ok((plan, pending)),
        }
    }

    /// The operations for an integer field; none for a field of another kind.
    pub fn int(&self, path: PathId, field: &Field, fill: impl FnOnce(&mut Ops, &Int, &SlotUse)) -> Option<Block> {
        self.plans.int(path, field, fill)
    }

    /// The operations that read an integer which must be there, or take it from where it was read,
    /// and its type.
    pub fn get_int(&self, path: PathId, field: &Field, pending: bool) -> Option<(Block, Scalar)> {
        let scalar = Int::of(field)?.scalar;
        let block = self.int(path, field, |ops, int, slot| {
            if !pending {
                int.get(ops, slot);
            }
            if field.optional && !pending {
                ops.demand(FaultKind::MissingMember);
            }
            if field.optional || pending {
                ops.put(OpKind::LoadLocal(VALUE, scalar));
            }
        });
        Some((block?, scalar))
    }

    /// The operations that write the accumulator, of another type, as an integer.
    pub fn put_int(&self, path: PathId, field: &Field, from: Scalar) -> Option<Block> {
        self.int(path, field, |ops, int, slot| {
            int.convert(ops, from);
            int.put(ops, slot);
        })
    }

    /// The slot of the template id, which a reset keeps.
    pub fn kept(&self) -> u32 {
        // It is the first slot that was assigned.
        0
    }
}
