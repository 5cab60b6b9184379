//! The rules by which a reader understands a writer with another version of the type.
//! `spec/evolution.md` defines them.
//!
//! [`assess`] returns the verdict for a writer and a reader. Lowering uses the pairing functions,
//! such as [`pair_members`], to find which parts correspond, and [`ScalarStep`] and [`default_of`]
//! to convert them. Both follow the same rules, so a decoder can always be compiled for a pair of
//! types that was not refused.
//!
//! ```
//! use polywire_core::schema::{BitField, Case, Def, DefId, EnumLiteral, Flag, Member, Schema, SchemaBuilder, TryConstruct, Type};
//! use polywire_core::schema::evolve::{
//!     self, CasePair, CaseStep, Conflict, DefaultValue, Pair, Policy, Rules, ScalarStep, Verdict,
//! };
//!
//! /// A schema of one definition, which is number 0.
//! fn of(def: Def) -> Schema {
//!     let mut types = SchemaBuilder::new();
//!     let id = types.add(def);
//!     types.finish(Type::Def(id)).unwrap()
//! }
//! let zero = DefId(0);
//!
//! // A wider member is compatible, but not for a reader without the writer's schema.
//! let old = of(Def::structure("S", vec![Member::new("a", Type::Int16), Member::new("b", Type::string())]));
//! let new = of(Def::structure("S", vec![Member::new("a", Type::Int32), Member::new("b", Type::string())]));
//! assert_eq!(evolve::assess(&old, &new), Verdict::Always);
//! assert!(!evolve::assess_with(&old, &new, Rules { strict_xtypes: true }).is_compatible());
//! assert_eq!(ScalarStep::of(&Type::Int16, &Type::Int32), ScalarStep::SignExtend);
//!
//! // In the other direction it is refused. The verdict has the smallest fix.
//! let Verdict::Refused(reasons) = evolve::assess(&new, &old) else { panic!("it is narrower") };
//! assert_eq!((reasons[0].path.as_str(), reasons[0].fix.as_str()), ("a", "make the reader's type int32"));
//!
//! // A smaller bound is decided for each value.
//! let short = Member { try_construct: TryConstruct::Trim, ..Member::new("b", Type::String { bound: 4 }) };
//! let short = of(Def::structure("S", vec![Member::new("a", Type::Int16), short]));
//! let Verdict::PerValue(conditions) = evolve::assess(&old, &short) else { panic!("it is shorter") };
//! assert_eq!((conditions[0].path.as_str(), conditions[0].policy), ("b", Policy::Trim));
//!
//! // Values that the reader uses in place of missing ones.
//! let member = &old.members(zero)[1];
//! assert_eq!(evolve::value_default(&old, member), DefaultValue::Text(""));
//! assert_eq!(evolve::absent_value(&old, member), None, "absent is no empty text unless the reader says so");
//! assert_eq!(evolve::zero_of(&old, &Type::Float64), DefaultValue::Float(0.0));
//!
//! // Literals pair by number, flags by position, fields by their bits, cases by label.
//! let small = of(Def::enumeration("E", ["OFF", "ON"]));
//! let large = of(Def::enumeration("E", ["OFF", "ON", "AUTO"]));
//! let pairs: Vec<Pair<EnumLiteral>> = evolve::pair_literals(&large, zero, &small, zero)?;
//! assert_eq!(pairs[2].writer.unwrap().1, &EnumLiteral::new("AUTO", 2));
//! assert_eq!(pairs[2].reader, None);
//! assert_eq!(evolve::unknown_literal(&small, zero, TryConstruct::Discard, None), None);
//! assert_eq!(evolve::unknown_literal(&small, zero, TryConstruct::UseDefault, None), Some(0));
//! let (few, many) = (of(Def::bitmask("F", 8, ["X"])), of(Def::bitmask("F", 8, ["X", "Y"])));
//! let pairs: Vec<Pair<Flag>> = evolve::pair_flags(&many, zero, &few, zero)?;
//! assert_eq!((pairs.len(), pairs[1].reader, evolve::kept_bits(&many, zero, &few, zero)?), (2, None, 0b01));
//! let bits = |width| of(Def::bitset("B", vec![BitField::new("lo", width)]));
//! let (writer, reader) = (bits(3), bits(3));
//! let pairs: Vec<Pair<BitField>> = evolve::pair_fields(&writer, zero, &reader, zero)?;
//! assert!(pairs[0].writer.is_some() && pairs[0].reader.is_some());
//! let conflict: Conflict = evolve::pair_fields(&bits(3), zero, &bits(4), zero).unwrap_err();
//! assert!(conflict.to_string().contains("the reader"), "{conflict}");
//! let union = |label| of(Def::union("U", Type::Int32, vec![Case::new([label], "a", Type::Bool)]));
//! let (writer, reader) = (union(1), union(2));
//! let rows: Vec<CasePair> = evolve::pair_cases(&writer, zero, &reader, zero);
//! let steps: Vec<CaseStep> = rows.iter().map(|row| row.step()).collect();
//! assert_eq!(steps, [CaseStep::Unknown, CaseStep::Default, CaseStep::Empty]);
//! # Ok::<(), Conflict>(())
//! ```

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
pub(crate) use default::has_absent_value;
pub use default::{DefaultValue, absent_value, default_of, unknown_literal, value_default, zero_of};
pub(crate) use pair::case_steps;
pub use pair::{
    CasePair, CaseStep, Conflict, Pair, Placed, kept_bits, pair_cases, pair_fields, pair_flags, pair_literals,
    pair_members,
};
pub use scalar::ScalarStep;

/// Whether a reader understands a writer. At most 64 reasons or conditions are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The reader's type can hold every value of the writer's type.
    Always,
    /// The reader's type can hold some values. The conditions list the others and what happens to
    /// them.
    PerValue(Vec<Condition>),
    /// No value can be read.
    Refused(Vec<Reason>),
}

/// A set of writer's values that the reader's type cannot hold, and what happens to them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Condition {
    /// The place in the reader's type, such as `mdEntries[].mdEntryType`. Empty for the root.
    pub path: String,
    /// A description of the values that do not fit.
    pub text: String,
    /// What happens to them.
    pub policy: Policy,
}

/// What happens to a value that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The message is refused: `@try_construct(DISCARD)`, which is the default.
    Discard,
    /// A default replaces it: `@try_construct(USE_DEFAULT)`. A member's own value becomes its
    /// [`value_default`], an element [`zero_of`] its type.
    UseDefault,
    /// The string or collection is cut to its bound: `@try_construct(TRIM)`.
    Trim,
    /// The enum's `@default_literal` replaces it.
    DefaultLiteral,
}

/// Why no value of the writer can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reason {
    /// The place in the type, such as `mdEntries[].mdEntryPx`. Empty for the root.
    pub path: String,
    /// The writer's declaration.
    pub writer: String,
    /// The reader's declaration.
    pub reader: String,
    /// The smallest change after which the two are compatible.
    pub fix: String,
}

/// Options of the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Also refuse what a DDS-XTypes reader without the writer's schema would refuse: another
    /// extensibility, changes of `@final` types, `@appendable` members not added at the end, other
    /// ids, widened scalars.
    pub strict_xtypes: bool,
}

impl Verdict {
    /// True unless the verdict is [`Verdict::Refused`].
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
