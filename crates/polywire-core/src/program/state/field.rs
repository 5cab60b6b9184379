//! Strings and bytes with operators, as FAST has them: a form, whether it may be absent, and an
//! operator with its slot.

use alloc::boxed::Box;

/// A string or bytes with an operator, for both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// What it is on the wire.
    pub kind: FieldKind,
    /// It may be absent.
    pub optional: bool,
    /// How it refers to the previous value.
    pub operator: Operator,
    /// Where it is known whether there is a previous value, for operators that refer to it.
    pub slot: u32,
    /// Where the previous value is.
    pub text: u32,
    /// What kind of value the slot has: 2 or more.
    pub tag: u8,
    /// The value before there is one.
    pub initial: Option<Box<[u8]>>,
    /// What happens to deviations that the specification calls reportable.
    pub policy: Policy,
}

/// The form of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A string of 7-bit characters with a stop bit.
    Ascii,
    /// UTF-8 behind its length.
    Unicode,
    /// Bytes behind their length.
    Bytes,
}

/// How a field refers to the previous value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Not at all.
    None,
    /// Always the initial value.
    Constant,
    /// Left out if it is the initial value.
    Default,
    /// Left out if it is the previous value.
    Copy,
    /// Left out if it is one more than the previous value.
    Increment,
    /// As the difference.
    Delta,
    /// As the end that differs.
    Tail,
}

/// What happens to deviations that the specification calls reportable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The message is refused.
    #[default]
    Reject,
    /// They are noted in the state, and the message goes on.
    Report,
    /// The message goes on.
    Ignore,
}

impl Policy {
    /// The policy that a word of machine code is.
    pub(crate) fn of_word(word: u64) -> Policy {
        match word {
            1 => Policy::Report,
            2 => Policy::Ignore,
            _ => Policy::Reject,
        }
    }
}

impl Field {
    /// Bits that it takes in the presence map.
    pub fn bits(&self) -> u32 {
        match self.operator {
            Operator::None | Operator::Delta | Operator::Increment => 0,
            Operator::Constant => u32::from(self.optional),
            Operator::Default | Operator::Copy | Operator::Tail => 1,
        }
    }

    /// True where the previous value is kept in a slot.
    pub fn has_slot(&self) -> bool {
        matches!(self.operator, Operator::Copy | Operator::Delta | Operator::Tail)
    }

    /// True if its operator is one of strings, and has the initial value that it needs.
    pub fn is_sound(&self) -> bool {
        let valued = !matches!(self.operator, Operator::Constant | Operator::Default)
            || self.initial.is_some()
            || self.optional && self.operator == Operator::Default;
        valued && self.operator != Operator::Increment && self.tag > 1
    }

    pub(crate) fn initial_bytes(&self) -> Option<&[u8]> {
        self.initial.as_deref()
    }
}
