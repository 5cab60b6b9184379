//! Layouts that are computed from schemas, and the management of the values in them.
//!
//! A [`Plan`] has the information of a [`Layout`] and, in addition, how to create, reset, copy and
//! drop values. [`Record`](super::Record) owns a plan's memory; the access functions of a record's
//! layout share the plan.

use alloc::{string::String, sync::Arc, vec::Vec};
use core::mem;

use super::{
    BoxedNode, EnumNode, Field, FlagWords, Kind, Layout, MapNode, Node, NodeId, OptionalNode, Scalar, SequenceNode,
    Shape, ShapeError, UnionNode, Words,
    derived::string_words,
    describe::{free_discriminator, read_integer},
};
use crate::schema::{DefId, DefKind, Schema};

mod access;
mod life;
mod plan;
mod sorted_runs;

use access::Access;
pub(super) use life::assign_text;
pub(super) use plan::integer_bytes;

/// Largest fixed part of a record, in bytes. The schema's own limit is lower, but counts the same
/// members smaller.
const MAX_BYTES: u64 = 1 << 26;

/// Largest number of fields of all structures together. Inheritance multiplies them: many
/// structures may share one large base.
const MAX_FIELDS: usize = 1 << 17;

impl Shape {
    /// The shape of a schema's records.
    ///
    /// ```
    /// use polywire_core::{layout::Shape, schema::{SchemaBuilder, Type}};
    ///
    /// let schema = SchemaBuilder::new().finish(Type::sequence(Type::Float64))?;
    /// let shape = Shape::of(&schema)?;
    /// assert_eq!(shape.schema(), &schema);
    /// # Ok::<(), Box<dyn core::error::Error>>(())
    /// ```
    pub fn of(schema: &Schema) -> Result<Arc<Shape>, ShapeError> {
        let plan = Arc::new(Plan::of(schema)?);
        let node = |(i, place): (usize, &Place)| plan.node(NodeId(i as u32), place);
        let nodes = plan.places.iter().enumerate().map(node).collect();
        // SAFETY: the nodes have the sizes and offsets with which the plan lays out records.
        let layout = unsafe { Layout::new(nodes, plan.root) };
        // SAFETY: the plan was made from this very schema.
        Ok(Arc::new(unsafe { Shape::of_records(schema.clone(), layout, plan.clone()) }))
    }
}

/// How to lay out and manage the values of a schema's records. A place has the same id as the
/// layout's node.
pub(super) struct Plan {
    places: Vec<Place>,
    pub(super) root: NodeId,
}

pub(super) struct Place {
    pub(super) size: usize,
    pub(super) align: usize,
    pub(super) what: What,
    /// The value is plain bytes: it can be copied bytewise and needs no drop.
    pub(super) plain: bool,
    /// The default value consists of zero bytes.
    zero: bool,
}

pub(super) enum What {
    Scalar { scalar: Scalar, fresh: [u8; 16] },
    Enum { literals: Arc<[i32]>, fresh: i32 },
    String { fresh: String },
    Sequence { element: NodeId },
    Array { element: NodeId, len: usize },
    Struct { fields: Arc<[Field]> },
    Optional { inner: NodeId, payload: usize },
    Union { cases: Arc<[NodeId]>, payload: usize, fresh: (i64, Option<u32>) },
    Map { key: NodeId, value: NodeId, value_at: usize, stride: usize, align: usize },
    Boxed { inner: NodeId },
}

/// A record's sequence. Elements from `len` to `initialised` are out of use but keep their
/// allocations.
#[repr(C)]
pub(super) struct RawSequence {
    pub(super) pointer: *mut u8,
    pub(super) capacity: usize,
    pub(super) len: usize,
    pub(super) initialised: usize,
}

/// A record's map: entries in order of insertion, and an index of them (see [`sorted_runs`]).
#[repr(C)]
pub(super) struct RawMap {
    pub(super) entries: RawSequence,
    pub(super) index: Vec<u32>,
}

/// The start of a record's union, in front of the payload.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawUnion {
    pub(super) discriminator: i64,
    /// [`NO_CASE`] if the discriminator chooses none.
    pub(super) case: u32,
    /// The case whose value is in the payload, or [`NO_CASE`]. It is the selected case, except if
    /// that is a structure without members or there is no selected case: then a value of an earlier
    /// case may stay in the payload and keep its allocations.
    pub(super) held: u32,
}

pub(super) const NO_CASE: u32 = u32::MAX;

/// States of an optional's flag; see [`FlagWords`].
pub(super) const ABSENT: u8 = 0;
pub(super) const PRESENT: u8 = 1;
pub(super) const SPARE: u8 = 2;

impl Plan {
    pub(super) fn place(&self, id: NodeId) -> &Place {
        &self.places[id.0 as usize]
    }

    fn node(self: &Arc<Plan>, id: NodeId, place: &Place) -> Node {
        const WORD: u32 = mem::size_of::<usize>() as u32;
        let access = || Arc::new(Access { plan: self.clone(), node: id });
        let kind = match &place.what {
            What::Scalar { scalar, .. } => Kind::Scalar(*scalar),
            What::Enum { literals, .. } => Kind::Enum(EnumNode { repr: Scalar::I32, literals: literals.clone() }),
            What::String { .. } => Kind::String { words: string_words(), shared: false },
            What::Sequence { element } => {
                // Machine code may raise the length up to the initialised elements only.
                let words = Some(Words { pointer: 0, capacity: 3 * WORD, len: 2 * WORD });
                Kind::Sequence(SequenceNode { element: *element, words, access: access() })
            }
            What::Array { element, len } => Kind::Array { element: *element, len: *len as u32 },
            What::Struct { fields } => Kind::Struct { fields: fields.clone() },
            What::Optional { inner, payload } => {
                let flag = Some(FlagWords { flag: 0, payload: *payload as u32 });
                Kind::Optional(OptionalNode { inner: *inner, flag, access: access() })
            }
            What::Union { cases, fresh: (_, default_case), .. } => {
                Kind::Union(UnionNode { cases: cases.clone(), default_case: *default_case, access: access() })
            }
            What::Map { key, value, .. } => Kind::Map(MapNode { key: *key, value: *value, access: access() }),
            What::Boxed { inner } => Kind::Boxed(BoxedNode { inner: *inner, access: access() }),
        };
        Node { size: place.size as u32, align: place.align as u32, kind }
    }
}

/// A discriminator that chooses `case`: its first label, or the smallest value that is no label.
pub(super) fn discriminator_of(schema: &Schema, union: DefId, case: usize) -> Option<i64> {
    let DefKind::Union { discriminator, cases, .. } = &schema.def(union).kind else { return None };
    let first = cases.get(case)?.labels.first().copied();
    first.or_else(|| free_discriminator(schema.resolve(discriminator), schema.def_of(discriminator), cases))
}

/// Compares two keys of the same place. Keys are integers, booleans, enums or strings.
///
/// # Safety
/// Both pointers hold values of the place.
pub(super) unsafe fn compare_keys(place: &Place, a: *const u8, b: *const u8) -> core::cmp::Ordering {
    // SAFETY: both pointers hold values of the place: the caller's contract.
    unsafe {
        match &place.what {
            What::String { .. } => (*a.cast::<String>()).cmp(&*b.cast::<String>()),
            What::Enum { .. } => a.cast::<i32>().read().cmp(&b.cast::<i32>().read()),
            What::Scalar { scalar, .. } => read_integer(a, *scalar).cmp(&read_integer(b, *scalar)),
            _ => core::cmp::Ordering::Equal,
        }
    }
}
