//! What both directions share: which plan is meant for the value that a walk comes to next.

use core::cell::RefCell;

use super::plan::{Plan, Plans};
use crate::codec::lower::LowerError;

/// A lowering: the dialect of both walks.
pub(super) struct Lowering<'p> {
    pub plans: &'p Plans,
    /// The plan of the value that comes next, and whether it was read already.
    next: RefCell<(Plan, bool)>,
}

impl<'p> Lowering<'p> {
    /// At the root.
    pub fn new(plans: &'p Plans) -> Lowering<'p> {
        Lowering { plans, next: RefCell::new((plans.root.clone(), false)) }
    }

    /// Says what the next value is.
    pub fn set(&self, plan: &Plan) {
        *self.next.borrow_mut() = (plan.clone(), false);
    }

    /// The same of a value that waits in the state.
    pub fn set_pending(&self, plan: &Plan) {
        *self.next.borrow_mut() = (plan.clone(), true);
    }

    /// The plan of the value that a walk came to.
    pub fn plan(&self, otherwise: LowerError) -> Result<Plan, LowerError> {
        self.pending(otherwise).map(|(plan, _)| plan)
    }

    /// The same, and whether the value was read already.
    pub fn pending(&self, otherwise: LowerError) -> Result<(Plan, bool), LowerError> {
        let (plan, pending) = self.next.borrow().clone();
        match plan {
            Plan::Refer(index) => self.plans.referred.get(index).cloned().map(|plan| (plan, pending)).ok_or(otherwise),
            plan => Ok((plan, pending)),
        }
    }

    /// The slot of the template's id, which a reset leaves.
    pub fn kept(&self) -> u64 {
        // It is the first that was given.
        0
    }
}
