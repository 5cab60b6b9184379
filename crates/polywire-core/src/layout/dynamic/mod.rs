//! Layouts computed from schemas, and the life of the values in them.
//!
//! A [`Plan`] knows what [`Layout`] knows, and what must happen to memory besides: how a value
//! comes to be, goes back to its default, is copied and dropped. The access functions of a record's
//! layout share it.

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

/// Largest fixed part of a record. A schema's own limit lies below: it counts the same things
/// smaller.
const MAX_BYTES: u64 = 1 << 26;

/// Fields of all structures together. Inheritance multiplies: many structures may share one large
/// base.
const MAX_FIELDS: usize = 1 << 17;

impl Shape {
    /// The shape of records of a schema.
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
        // SAFETY: the plan lays records out and walks them; the nodes say the same as it does.
        let layout = unsafe { Layout::new(nodes, plan.root) };
        // SAFETY: the plan was made from this very schema.
        Ok(Arc::new(unsafe { Shape::of_records(schema.clone(), layout, plan.clone()) }))
    }
}

/// Everything about the values of a schema's records. Its places have the ids of the layout's
/// nodes.
pub(super) struct Plan {
    places: Vec<Place>,
    pub(super) root: NodeId,
}

pub(super) struct Place {
    pub(super) size: usize,
    pub(super) align: usize,
    pub(super) what: What,
    /// Nothing but bytes: it can be copied as they are, and needs no drop.
    pub(super) plain: bool,
    /// Zero bytes are a fresh value.
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

/// A record's sequence. Elements from `len` to `initialised` are out of use but keep what they have
/// allocated.
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

/// The front of a record's union.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawUnion {
    pub(super) discriminator: i64,
    /// [`NO_CASE`] where the discriminator chooses none.
    pub(super) case: u32,
    /// The case whose value is in the payload, if any: that one, unless it is a structure without
    /// members. Then, and where there is no case, a value from before stays out of use and
    /// keeps what it has allocated.
    pub(super) held: u32,
}

pub(super) const NO_CASE: u32 = u32::MAX;

/// States of an optional's flag: as of [`FlagWords`].
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
                // Machine code may not raise the length past the elements that are initialised.
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

/// A discriminator that chooses `case`: its first label, or the smallest that is nobody's.
pub(super) fn discriminator_of(schema: &Schema, union: DefId, case: usize) -> Option<i64> {
    let DefKind::Union { discriminator, cases, .. } = &schema.def(union).kind else { return None };
    let first = cases.get(case)?.labels.first().copied();
    first.or_else(|| free_discriminator(schema.resolve(discriminator), schema.def_of(discriminator), cases))
}

/// Orders two keys of the same place: all that can be keys are integers, booleans, enums and
/// strings.
///
/// # Safety
/// Both hold values of it.
pub(super) unsafe fn compare_keys(place: &Place, a: *const u8, b: *const u8) -> core::cmp::Ordering {
    // SAFETY: as the caller promises.
    unsafe {
        match &place.what {
            What::String { .. } => (*a.cast::<String>()).cmp(&*b.cast::<String>()),
            What::Enum { .. } => a.cast::<i32>().read().cmp(&b.cast::<i32>().read()),
            What::Scalar { scalar, .. } => read_integer(a, *scalar).cmp(&read_integer(b, *scalar)),
            _ => core::cmp::Ordering::Equal,
        }
    }
}
