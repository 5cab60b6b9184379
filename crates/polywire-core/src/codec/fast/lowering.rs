//! The state that both dialects share: the plan of the value that the walk visits next. `encode`
//! and `decode` set and read it. It touches nothing else.

use core::cell::RefCell;

use super::plan::{Plan, Plans};
use crate::codec::lower::LowerError;

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

    /// The plan of the walk's current value.
    pub fn plan(&self, otherwise: LowerError) -> Result<Plan, LowerError> {
        self.pending(otherwise).map(|(plan, _)| plan)
    }

    /// The plan of the walk's current value, and whether the value was already read.
    pub fn pending(&self, otherwise: LowerError) -> Result<(Plan, bool), LowerError> {
        let (plan, pending) = self.next.borrow().clone();
        match plan {
            Plan::Refer(index) => self.plans.referred.get(index).cloned().map(|plan| (plan, pending)).ok_or(otherwise),
            plan => Ok((plan, pending)),
        }
    }

    /// The slot of the template id, which a reset keeps.
    pub fn kept(&self) -> u32 {
        // It is the first slot that was assigned.
        0
    }
}
