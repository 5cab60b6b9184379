//! Which fields can be done side by side, and what lanes they take.

use alloc::vec::Vec;

use super::{
    super::{Field, FieldKind, Operator, Policy},
    Member, Role, Step,
};
use crate::layout::Scalar;

/// A field that a lane is for.
pub(super) struct Part<'f> {
    pub field: &'f Field,
    /// Values that may be there; none if any may.
    pub range: Option<(i64, i64)>,
    pub role: Role,
}

/// The lanes of a field: none of a constant string. None if it is not done here.
pub(super) fn parts<'f>(field: &'f Field, member: &Member<'_>, encoded: bool) -> Option<Vec<Part<'f>>> {
    let one = |range| Some(Vec::from([Part { field, range, role: Role::Value }]));
    if field.optional {
        return None;
    }
    match (&field.kind, member.memory) {
        (FieldKind::Int { .. }, Some(memory)) if field.operator != Operator::Tail && memory.size() <= 8 => {
            one(range(field, (memory, &member.steps), encoded)?)
        }
        (FieldKind::Ascii | FieldKind::Unicode | FieldKind::Bytes, None)
            if field.policy == Policy::Reject && member.steps.is_empty() =>
        {
            match field.operator {
                Operator::Constant => Some(Vec::new()),
                Operator::Default | Operator::Copy => one(None),
                _ => None,
            }
        }
        (FieldKind::Float { decimal, bits, .. }, Some(memory))
            if member.steps.is_empty() && memory == field.scalar() =>
        {
            let FieldKind::Split(parts) = &decimal.kind else { return None };
            let [exponent, mantissa] = &**parts;
            let known = matches!(exponent.operator, Operator::Constant | Operator::Default | Operator::Copy);
            if !known || exponent.optional && exponent.operator == Operator::Constant {
                return None;
            }
            // A default without a value is absence, which is none of the decimals here.
            if exponent.operator == Operator::Default && exponent.initial.is_none() {
                return None;
            }
            let mut lanes = Vec::from([
                Part { field: exponent, range: Some((-63, 63)), role: Role::Exponent },
                Part { field: mantissa, range: None, role: Role::Value },
            ]);
            if let Some(bits) = bits {
                if bits.operator != Operator::Default || bits.initial.is_some() {
                    return None;
                }
                lanes.push(Part { field: bits, range: None, role: Role::Escape });
            }
            Some(lanes)
        }
        _ => None,
    }
}

/// The values that both field and member can have. None if the range is not one that a comparison
/// can tell.
#[allow(clippy::option_option, reason = "no range at all is another answer than one that holds everything")]
fn range(field: &Field, (memory, steps): (Scalar, &[Step]), encoded: bool) -> Option<Option<(i64, i64)>> {
    let FieldKind::Int { signed, min, max } = field.kind else { return None };
    let (mut low, mut high) = (min, max);
    let types = steps.iter().map(|step| match step {
        Step::Convert(to) => to.range(),
        Step::Bool => Some((0, 1)),
    });
    let memory = if memory == Scalar::Bool { Some((0, 1)) } else { memory.range() };
    for range in types {
        let (least, most) = range?;
        (low, high) = (low.max(least), high.min(most));
    }
    let (least, most) = memory?;
    if encoded && low <= least && most <= high {
        return Some(None);
    }
    (low, high) = (low.max(least), high.min(most));
    let full = if signed { (i64::MIN.into(), i64::MAX.into()) } else { (0, i128::from(u64::MAX)) };
    match (i64::try_from(low), i64::try_from(high)) {
        _ if (low, high) == full => Some(None),
        (Ok(low), Ok(high)) if low <= high && i128::from(high) - i128::from(low) < 1 << 40 => Some(Some((low, high))),
        _ => None,
    }
}
