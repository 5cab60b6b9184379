//! The state that both dialects share: the plan of the value that the walk visits next. `encode`
//! and `decode` set and read it. It touches nothing else.

use alloc::rc::Rc;
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

    /// A number for the plan of the next value, and for whether the value was already read. All
    /// plans are parts of `plans`, so that their addresses identify them.
    pub fn number(&self) -> u64 {
        let (plan, pending) = &*self.next.borrow();
        let plan = match plan {
            Plan::Refer(index) => index << 2 | 1,
            Plan::Group(group) => Rc::as_ptr(group).addr(),
            Plan::Union(union) => Rc::as_ptr(union).addr(),
            Plan::Any(any) => Rc::as_ptr(any).addr(),
            // No structure or union has another plan that depends on its place in the templates.
            _ => 0,
        };
        plan as u64 | u64::from(*pending) << 1
    }

    /// The slot of the template id, which a reset keeps.
    pub fn kept(&self) -> u32 {
        // It is the first slot that was assigned.
        0
    }
}
