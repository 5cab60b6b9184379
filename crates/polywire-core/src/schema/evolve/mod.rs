//! The rules by which a reader understands a writer that has another version of the type. `spec/evolution.md` is their text.
//!
//! [`assess`] gives the verdict when the two meet. The pairings, [`pair_members`] and its like, tell whoever compiles a decoder
//! which part is which; [`ScalarStep`] and [`default_of`] tell what to do with it. Both follow the same rules, so a decoder for
//! a pair of types that was not refused can always be compiled.

use alloc::{string::String, vec::Vec};
use core::fmt;

mod assess;
mod default;
mod pair;
mod scalar;
mod strict;
#[cfg(test)]
mod tests;

pub use assess::{assess, assess_with};
pub use default::{DefaultValue, absent_value, default_of, unknown_literal, value_default, zero_of};
pub use pair::{
    CasePair, CaseStep, Conflict, FieldPair, FlagPair, LiteralPair, Pair, Placed, kept_bits, pair_cases, pair_fields,
    pair_flags, pair_literals, pair_members,
};
pub use scalar::ScalarStep;

/// Whether a reader understands a writer. Of many reasons or conditions the first 64 are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every value of the writer's is a value of the reader's.
    Always,
    /// Each value decides: these are the ones that do not fit, and what then happens.
    PerValue(Vec<Condition>),
    /// No value is read.
    Refused(Vec<Reason>),
}

/// Values of the writer's that the reader's type cannot hold, and what then happens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Condition {
    /// The place in the reader's type, such as `mdEntries[].mdEntryType`; empty for the root.
    pub path: String,
    /// Which values do not fit.
    pub text: String,
    /// What happens to them.
    pub policy: Policy,
}

/// What happens to a value that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The message is refused: nothing or `@try_construct(DISCARD)` is said.
    Discard,
    /// A default takes its place, by `@try_construct(USE_DEFAULT)`: the member's [`value_default`] if it is its own value that
    /// does not fit, else, for an element, [`zero_of`] its type.
    UseDefault,
    /// The string or collection is cut to the bound, by `@try_construct(TRIM)`.
    Trim,
    /// The enum's `@default_literal` takes its place.
    DefaultLiteral,
}

/// Why no value of the writer's is read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reason {
    /// The place in the type, such as `mdEntries[].mdEntryPx`; empty for the root.
    pub path: String,
    /// What the writer has there.
    pub writer: String,
    /// What the reader has there.
    pub reader: String,
    /// The smallest change after which the two understand each other.
    pub fix: String,
}

/// Which rules hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Refuse also what a DDS-XTypes reader would refuse because it has no schema of the writer's: other extensibility, changes
    /// of `@final` types, `@appendable` members that are not added at the end, other ids, widened scalars.
    pub strict_xtypes: bool,
}

impl Verdict {
    /// True unless every value is refused.
    pub fn is_compatible(&self) -> bool {
        !matches!(self, Verdict::Refused(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Always => f.write_str("always"),
            Verdict::PerValue(conditions) => {
                f.write_str("per value")?;
                conditions.iter().try_for_each(|condition| write!(f, "\n  {condition}"))
            }
            Verdict::Refused(reasons) => {
                f.write_str("refused")?;
                reasons.iter().try_for_each(|reason| write!(f, "\n  {reason}"))
            }
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", at(&self.path), self.text, self.policy)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Discard => "the message is refused",
            Policy::UseDefault => "the default takes its place",
            Policy::Trim => "it is cut to the bound",
            Policy::DefaultLiteral => "the default literal takes its place",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: the writer has {}, the reader {}", at(&self.path), self.writer, self.reader)?;
        write!(f, "\n    to fix it: {}", self.fix)
    }
}

fn at(path: &str) -> &str {
    if path.is_empty() { "the type" } else { path }
}
