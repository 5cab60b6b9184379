//! The lowering that codecs share: it turns a type into a
//! [`Program`](crate::program::Program).
//!
//! [`encode`] walks one type. [`decode`] walks the writer's type and the reader's type side by side
//! and resolves all their differences once: members that were moved, added or removed, wider
//! scalars, other bounds, literals and cases, and default values. A codec supplies a *dialect*,
//! which emits the operations for each kind of type. A dialect knows only the format, so evolution
//! works the same in every format. The folder `kinds` has the dialects of MessagePack, CBOR and
//! UBJSON, and `json` those of JSON notation, which YAML uses too. `keys` has keys of maps that are
//! names, `symbols` the tables of names, and `one_way` makes kernels and dialects.
//!
//! ```
//! use polywire_core::codec::lower::{bits_scalar, enum_scalar, scalar_of, widens};
//! use polywire_core::layout::Scalar;
//! use polywire_core::schema::{Def, DefId, SchemaBuilder, Type};
//! assert_eq!((scalar_of(&Type::Char16), scalar_of(&Type::string())), (Some(Scalar::U16), None));
//! assert!(widens(Scalar::U16, Scalar::I32) && !widens(Scalar::I32, Scalar::U16));
//! assert_eq!(enum_scalar(12), Scalar::I16);
//! let mut types = SchemaBuilder::new();
//! let flags = types.add(Def::bitmask("F", 12, ["A"]));
//! let schema = types.finish(Type::Def(flags)).unwrap();
//! assert_eq!(bits_scalar(&schema, DefId(0)), Scalar::U16);
//! ```

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec,
    vec::Vec,
};

use crate::{
    layout::Scalar,
    program::{Op, OpKind, PathId, verify::MAX_OPS},
    schema::{DefId, DefKind, Member, Schema, Type, part_count, recursive, uses},
};

pub mod decode;
pub mod encode;
pub(crate) mod json;
pub(crate) mod keys;
pub(crate) mod kinds;
pub(crate) mod one_way;
pub(crate) mod symbols;

pub use decode::{CaseIn, DecodeDialect, DecodeWalk, MemberIn, Slot, UnionIn};
pub use encode::{EncodeDialect, EncodeWalk, MemberOut, UnionOut};

/// Why a codec cannot lower a type. The writer or the reader has to change its type, its format or
/// its options; trying again does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LowerError {
    /// The reader's type cannot understand the writer's: [`assess`](crate::schema::evolve::assess)
    /// says which rule of evolution is broken.
    #[error("reader and writer do not agree: {0}")]
    Refused(String),
    /// The format cannot represent a part of the type. Choose another format for the topic.
    #[error("{path}: {what}")]
    Unsupported {
        /// Path of the field.
        path: String,
        /// What is not supported, and why.
        what: String,
    },
    /// The codec does not know an option or its value, or its configuration is unusable.
    #[error("{0}")]
    Option(String),
    /// The layout does not match the schema: the caller passed the two of different types.
    #[error("{path}: the layout does not match the schema")]
    Layout {
        /// Path of the field.
        path: String,
    },
}

/// What a dialect's method returns.
pub(crate) type Lowered = Result<(), LowerError>;

/// The paths of fields that a walk has visited, and the current one.
#[derive(Default)]
pub(crate) struct Paths {
    all: Vec<String>,
    ids: BTreeMap<String, u32>,
    current: String,
    /// The ids of the current path and of those around it, if they are known.
    known: Vec<Option<u32>>,
    /// Length of all paths, in bytes.
    bytes: usize,
    /// Number of operations emitted and values visited.
    steps: usize,
    /// Number of values around the current one that the walk has not finished, including those
    /// outside the current routine.
    depth: usize,
}

/// Largest length of all paths of a program, in bytes. Names in a peer's schema may be long.
const MAX_PATH_BYTES: usize = 16 << 20;

/// Largest depth of a walk, which protects the stack. The limit on schemas is lower.
const MAX_DEPTH: usize = 128;

impl Paths {
    fn new() -> Paths {
        let mut paths = Paths::default();
        paths.set(String::new());
        paths.id();
        paths
    }

    /// Goes to another path.
    fn set(&mut self, path: String) {
        self.current = path;
        self.known = vec![None];
    }

    /// The id of the current path. Adds the path if it is new.
    fn id(&mut self) -> PathId {
        if let Some(Some(id)) = self.known.last() {
            return PathId(*id);
        }
        let id = match self.ids.get(&self.current) {
            Some(id) => *id,
            None => {
                let id = self.all.len() as u32;
                self.all.push(self.current.clone());
                self.bytes += self.current.len();
                self.ids.insert(self.current.clone(), id);
                id
            }
        };
        if let Some(known) = self.known.last_mut() {
            *known = Some(id);
        }
        PathId(id)
    }

    /// Goes down one step. Returns the value to pass to [`Paths::leave`].
    fn enter(&mut self, step: &str) -> usize {
        let len = self.current.len();
        if !self.current.is_empty() && !step.starts_with('[') {
            self.current.push('.');
        }
        self.current.push_str(step);
        self.known.push(None);
        len
    }

    fn leave(&mut self, len: usize) {
        self.current.truncate(len);
        self.known.pop();
    }

    fn op(&mut self, kind: OpKind) -> Op {
        self.steps += 1;
        Op { path: self.id(), kind }
    }

    /// Counts a step, and fails if the program becomes larger than the verifier accepts: a small
    /// schema can describe a very large type.
    fn step(&mut self) -> Result<(), &'static str> {
        self.steps(1)
    }

    /// The same for several steps.
    fn steps(&mut self, count: usize) -> Result<(), &'static str> {
        self.steps = self.steps.saturating_add(count);
        match (self.steps > 2 * MAX_OPS, self.bytes > MAX_PATH_BYTES) {
            (false, false) => Ok(()),
            (true, _) => Err("the type has too many parts: put some of them into sequences"),
            (_, true) => Err("the names of the type's parts are too long"),
        }
    }

    /// Begins a value inside the current one. The walk calls [`Paths::up`] after it.
    fn down(&mut self) -> Result<(), &'static str> {
        self.step()?;
        if self.depth == MAX_DEPTH {
            return Err("the type is nested too deeply");
        }
        self.depth += 1;
        Ok(())
    }

    fn up(&mut self) {
        self.depth -= 1;
    }
}

/// The scalar of a primitive type, on the wire and in memory. `None` for other types.
pub fn scalar_of(ty: &Type) -> Option<Scalar> {
    Some(match ty {
        Type::Bool => Scalar::Bool,
        Type::Octet | Type::Uint8 | Type::Char8 => Scalar::U8,
        Type::Int8 => Scalar::I8,
        Type::Int16 => Scalar::I16,
        Type::Uint16 | Type::Char16 => Scalar::U16,
        Type::Int32 => Scalar::I32,
        Type::Uint32 => Scalar::U32,
        Type::Int64 => Scalar::I64,
        Type::Uint64 => Scalar::U64,
        Type::Float32 => Scalar::F32,
        Type::Float64 => Scalar::F64,
        Type::Float128 => Scalar::F128,
        _ => return None,
    })
}

/// True if `to` holds every value of `from` and both are integers or both floating-point.
pub fn widens(from: Scalar, to: Scalar) -> bool {
    match (from.range(), to.range()) {
        (Some((min, max)), Some((low, high))) => {
            from != Scalar::Bool && to != Scalar::Bool && low <= min && max <= high
        }
        _ => (from, to) == (Scalar::F32, Scalar::F64),
    }
}

/// The number of labels and literals of a union. A walk takes as many steps for each place where
/// the union occurs.
fn union_parts(schema: &Schema, id: DefId) -> usize {
    let def = schema.def(id);
    let discriminator = match &def.kind {
        DefKind::Union { discriminator, .. } => schema.def_of(discriminator).map_or(0, part_count),
        _ => 0,
    };
    part_count(def) + discriminator
}

/// The fewest parts of a union whose operations may be shared. A call costs little beside them.
const LARGE: usize = 64;
/// The most parts of large unions in a type, counted for each use, whose operations are not shared.
const UNSHARED: usize = MAX_OPS / 4;

/// The definitions whose operations are made once, as a routine that each use calls: those that
/// contain themselves and, in a type that would make a program too large, large unions with several
/// uses. `parts` says how many parts of a union a walk looks at for each use. With `may_share`
/// unset, only the former: in a stateful format, each use has a state of its own.
fn in_routines(schema: &Schema, may_share: bool, parts: impl Fn(DefId) -> usize) -> BTreeSet<DefId> {
    let defs = schema.defs();
    let mut found = recursive(defs);
    let is_union = |at: &usize| may_share && matches!(defs[*at].kind, DefKind::Union { .. });
    let large = (0..defs.len()).filter(is_union).map(|at| (at, parts(DefId(at as u32))));
    let large: Vec<(usize, usize)> = large.filter(|(_, parts)| *parts >= LARGE).collect();
    if !large.is_empty() {
        let uses = uses(defs, &found);
        let cost = large.iter().fold(0usize, |sum, (at, parts)| sum.saturating_add(uses[*at].saturating_mul(*parts)));
        let shared = large.into_iter().filter(|(at, _)| cost > UNSHARED && uses[*at] > 1);
        found.extend(shared.map(|(at, _)| DefId(at as u32)));
    }
    found
}

/// The number of cases of a union.
fn case_count(schema: &Schema, id: DefId) -> usize {
    match &schema.def(id).kind {
        DefKind::Union { cases, .. } => cases.len(),
        _ => 0,
    }
}

/// The integer of a bitmask or bitset on the wire.
pub fn bits_scalar(schema: &Schema, id: DefId) -> Scalar {
    let bits = match &schema.def(id).kind {
        DefKind::Bitmask { bit_bound, .. } => u32::from(*bit_bound),
        _ => schema.bit_fields(id).last().map_or(8, |f| u32::from(f.position) + u32::from(f.width)),
    };
    match bits {
        0..=8 => Scalar::U8,
        9..=16 => Scalar::U16,
        17..=32 => Scalar::U32,
        _ => Scalar::U64,
    }
}

/// The integer of an enum on the wire.
pub fn enum_scalar(bit_bound: u8) -> Scalar {
    match bit_bound {
        0..=8 => Scalar::I8,
        9..=16 => Scalar::I16,
        _ => Scalar::I32,
    }
}

/// True for a structure that represents a decimal number: it consists of `int32 exponent` and
/// `int64 mantissa`, in this order.
pub fn is_decimal(schema: &Schema, id: DefId) -> bool {
    let is_part = |member: &Member, name: &str, ty: Type| {
        member.name == name && *schema.resolve(&member.ty) == ty && !member.optional && !member.external
    };
    match schema.members(id)[..] {
        [exponent, mantissa] => {
            is_part(exponent, "exponent", Type::Int32) && is_part(mantissa, "mantissa", Type::Int64)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use super::*;
    use crate::{
        codec::{Codec as _, Options, cdr::CDR},
        layout::{Kind, Shape},
        program::Check,
        schema::{Def, Literal, SchemaBuilder},
    };

    fn of(members: Vec<Member>) -> Schema {
        let mut types = SchemaBuilder::new();
        types.add(Def::enumeration("Letter", ["A", "B"]));
        let root = types.add(Def::structure("Root", members));
        types.finish(Type::Def(root)).expect("a valid schema")
    }

    #[test]
    fn members_of_an_enum_share_its_literals() {
        let common = || Member::new("common", Type::Bool);
        let letter = |name: &str| {
            let default = Some(Literal::Enum("B".into()));
            Member { default, ..Member::new(name, Type::Def(DefId(0))) }
        };
        let (writer, reader) = (of(vec![common(), letter("a"), letter("b")]), of(vec![common()]));
        let shape = Shape::of(&reader).expect("a shape");
        let program = CDR.lower_decode(&Options::default(), &writer, &reader, shape.layout()).expect("a program");
        let checked = program.root.0.iter().filter_map(|op| match &op.kind {
            OpKind::Run { segments, .. } => segments.first()?.check.as_ref(),
            OpKind::Check(check) => Some(check),
            _ => None,
        });
        let values = checked.filter_map(|check| match check {
            Check::OneOf(values) => Some(values),
            _ => None,
        });
        assert!(matches!(values.collect::<Vec<_>>()[..], [a, b] if Arc::ptr_eq(a, b)));

        let shape = Shape::of(&writer).expect("a shape");
        let layout = shape.layout();
        let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!("a structure") };
        let literals = fields.iter().filter_map(|field| match &layout.node(field.node).kind {
            Kind::Enum(node) => Some(&node.literals),
            _ => None,
        });
        assert!(matches!(literals.collect::<Vec<_>>()[..], [a, b] if Arc::ptr_eq(a, b)));
    }
}
