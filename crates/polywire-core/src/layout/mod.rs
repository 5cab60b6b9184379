//! Memory layout: one description of where values lie, for derived Rust types and for dynamic
//! records.
//!
//! A [`Layout`] is a table of [`Node`]s parallel to a schema. The fields of a structure are the
//! schema's flattened members in order. A member that is `@optional` is wrapped in
//! [`Kind::Optional`], one that is `@external` in [`Kind::Boxed`], and one that is both in the two,
//! the optional outside. Codec programs address values only through a layout, so they work alike
//! for derived types and for records.
//!
//! Programs read and write plain bytes in place. Everything else goes through the access traits
//! ([`SequenceAccess`] and others), whose functions never leave a value uninitialised or invalid:
//! after any error the value can still be dropped, compared and decoded into again. Programs also
//! read the pointer, capacity and length of a `String` or `Vec` in place, but only if a probe at
//! start-up found their offsets ([`Words`]).
//!
//! ```
//! use polywire_core::layout::{Kind, Message};
//!
//! #[derive(polywire_derive::Message)]
//! struct Pump { id: u32, pressure_bar: f64 }
//!
//! let layout = Pump::shape().layout();
//! let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!("it is a structure") };
//! assert_eq!(fields[1].offset as usize, std::mem::offset_of!(Pump, pressure_bar));
//! ```

use alloc::{sync::Arc, vec::Vec};
use core::fmt;

pub(crate) mod access;
mod assign;
mod codable;
mod derived;
mod describe;
mod dynamic;
mod path;
mod primitive;
mod record;
mod release;
mod shape;
mod shared;
#[doc(hidden)]
pub mod support;
mod value;
mod view;

pub use access::{BoxedAccess, Inserted, MapAccess, OptionalAccess, Selected, SequenceAccess, UnionAccess};
pub use codable::Codable;
pub use describe::{Describe, Described};
pub use path::PathError;
pub use primitive::{Char8, Char16, Float128};
pub use record::{Record, RecordError};
pub(crate) use release::Growth;
pub use shape::{Message, MessageElement, MessageField, Shape, ShapeError};
pub(crate) use shared::text_at;
pub use shared::{SharedBytes, SharedStr};
pub use value::Value;
pub use view::{BitmaskRef, BitsetRef, EnumRef, ListRef, MapRef, StructRef, UnionRef, ValueRef};

/// An allocation failed. The value is unchanged, or a container in it holds fewer elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memory could not be allocated")]
pub struct OutOfMemory;

/// Index of a node in its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// How a scalar's bytes in memory are interpreted.
///
/// ```
/// use polywire_core::layout::Scalar;
/// assert_eq!((Scalar::U16.size(), Scalar::F128.size()), (2, 16));
/// assert_eq!(Scalar::I8.range(), Some((-128, 127)));
/// assert!(Scalar::I8.is_signed() && Scalar::U64.is_integer() && !Scalar::F32.is_integer());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scalar {
    /// One byte, 0 or 1.
    Bool,
    /// Signed, one byte.
    I8,
    /// Signed, two bytes.
    I16,
    /// Signed, four bytes.
    I32,
    /// Signed, eight bytes.
    I64,
    /// Unsigned, one byte: `octet`, `uint8`, `char`.
    U8,
    /// Unsigned, two bytes: `uint16`, `wchar`.
    U16,
    /// Unsigned, four bytes.
    U32,
    /// Unsigned, eight bytes.
    U64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary128 as sixteen bytes in the host's order.
    F128,
}

impl Scalar {
    /// Size in memory, in bytes.
    pub const fn size(self) -> usize {
        match self {
            Scalar::Bool | Scalar::I8 | Scalar::U8 => 1,
            Scalar::I16 | Scalar::U16 => 2,
            Scalar::I32 | Scalar::U32 | Scalar::F32 => 4,
            Scalar::I64 | Scalar::U64 | Scalar::F64 => 8,
            Scalar::F128 => 16,
        }
    }

    /// True for `I8` to `I64` and `U8` to `U64`.
    pub const fn is_integer(self) -> bool {
        !matches!(self, Scalar::Bool | Scalar::F32 | Scalar::F64 | Scalar::F128)
    }

    /// True for `I8` to `I64`.
    pub const fn is_signed(self) -> bool {
        matches!(self, Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64)
    }

    /// Smallest and largest value of an integer or boolean. `None` for floating point.
    pub const fn range(self) -> Option<(i128, i128)> {
        let bits = 8 * self.size() as u32;
        match self {
            Scalar::Bool => Some((0, 1)),
            Scalar::F32 | Scalar::F64 | Scalar::F128 => None,
            _ if self.is_signed() => Some((-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)),
            _ => Some((0, (1i128 << bits) - 1)),
        }
    }
}

/// One place in memory: its size, its alignment and what it holds.
#[derive(Clone)]
pub struct Node {
    /// Size in bytes, a multiple of `align`.
    pub size: u32,
    /// Alignment, a power of two.
    pub align: u32,
    /// What the place holds.
    pub kind: Kind,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Plain bytes. Every bit pattern is valid, except for [`Scalar::Bool`].
    Scalar(Scalar),
    /// An integer that must be one of the literals.
    Enum(EnumNode),
    /// A Rust `String`, for `string` and `wstring` alike.
    String {
        /// Offsets of the string's words, if the probe found them.
        words: Option<Words>,
        /// True for a [`SharedStr`] instead of a `String`.
        shared: bool,
    },
    /// A Rust `Vec` or a record's sequence.
    Sequence(SequenceNode),
    /// Elements side by side. The dimensions are multiplied into one length.
    Array {
        /// Node of an element; the stride is its size.
        element: NodeId,
        /// Number of elements, all dimensions together.
        len: u32,
    },
    /// Fields, in the order of the schema's flattened members.
    Struct {
        /// Offset and node of each field.
        fields: Arc<[Field]>,
    },
    /// A Rust `Option` or a record's optional.
    Optional(OptionalNode),
    /// A Rust `enum` with data or a record's union.
    Union(UnionNode),
    /// A Rust map or a record's map.
    Map(MapNode),
    /// A Rust `Box` or a record's `@external` member.
    Boxed(BoxedNode),
}

/// A field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Bytes from the start of the structure.
    pub offset: u32,
    /// The field's node.
    pub node: NodeId,
}

/// See [`Kind::Enum`].
#[derive(Clone, Debug)]
pub struct EnumNode {
    /// The integer type in memory. It stores the literal's value.
    pub repr: Scalar,
    /// Values of the literals, ascending. No other value may ever be stored.
    pub literals: Arc<[i32]>,
}

/// See [`Kind::Sequence`].
#[derive(Clone)]
pub struct SequenceNode {
    /// Node of an element; the stride is its size.
    pub element: NodeId,
    /// Offsets of pointer, capacity and length, if programs may access them in place.
    pub words: Option<Words>,
    /// Functions for everything else.
    pub access: Arc<dyn SequenceAccess>,
}

/// Byte offsets of the words of a `String`, a `Vec` or a record's sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Pointer to the first element.
    pub pointer: u32,
    /// The largest length that may be set in place: of a `String` or `Vec` the allocated elements,
    /// of a record's sequence the initialised elements.
    pub capacity: u32,
    /// Number of elements in use.
    pub len: u32,
}

/// See [`Kind::Optional`].
#[derive(Clone)]
pub struct OptionalNode {
    /// Node of the value, if it is present.
    pub inner: NodeId,
    /// Offsets of a record's flag and value. `None` for a Rust `Option`.
    pub flag: Option<FlagWords>,
    /// Functions for everything else.
    pub access: Arc<dyn OptionalAccess>,
}

/// A record's optional: a flag byte and the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagWords {
    /// Offset of the flag: 0 absent and not initialised, 1 present, 2 absent but initialised.
    pub flag: u32,
    /// Offset of the value.
    pub payload: u32,
}

/// See [`Kind::Union`].
#[derive(Clone)]
pub struct UnionNode {
    /// Node of each case's value, in the order of the schema's cases.
    pub cases: Arc<[NodeId]>,
    /// The case of a default value; `None` if it has no payload.
    pub default_case: Option<u32>,
    /// Access functions.
    pub access: Arc<dyn UnionAccess>,
}

/// See [`Kind::Map`].
#[derive(Clone)]
pub struct MapNode {
    /// Node of a key.
    pub key: NodeId,
    /// Node of a value.
    pub value: NodeId,
    /// Access functions.
    pub access: Arc<dyn MapAccess>,
}

/// See [`Kind::Boxed`].
#[derive(Clone)]
pub struct BoxedNode {
    /// Node of the value behind the pointer.
    pub inner: NodeId,
    /// Access functions.
    pub access: Arc<dyn BoxedAccess>,
}

/// The memory layout of a type: one node for the type and for each type inside it.
///
/// ```
/// use polywire_core::layout::{
///     BoxedNode, EnumNode, Field, FlagWords, Kind, Layout, MapNode, Message, Node, NodeId, OptionalNode, Record, Scalar,
///     SequenceNode, Shape, UnionNode, Words,
/// };
/// use std::collections::BTreeMap;
///
/// #[derive(Default, polywire_derive::Message)]
/// struct Pump {
///     id: u32,
///     mode: Mode,
///     readings: Vec<f64>,
///     names: BTreeMap<String, u8>,
///     drive: Drive,
///     level: Option<i16>,
///     next: Option<Box<f32>>,
/// }
/// #[derive(Clone, Copy, Default, polywire_derive::Message)]
/// #[repr(u32)]
/// enum Mode { #[default] Off, On = 4 }
/// #[derive(polywire_derive::Message)]
/// #[polywire(switch = "int32")]
/// enum Drive {
///     #[polywire(case(0))]
///     Fixed(u16),
///     #[polywire(case(1))]
///     Geared([u8; 3]),
/// }
/// # impl Default for Drive { fn default() -> Self { Drive::Fixed(0) } }
///
/// let layout: &Layout = Pump::shape().layout();
/// let root: &Node = layout.node(layout.root());
/// assert_eq!(root.size as usize, size_of::<Pump>());
/// let Kind::Struct { fields } = &root.kind else { panic!("it is a structure") };
/// let id: Field = fields[0];
/// assert_eq!(id.offset as usize, std::mem::offset_of!(Pump, id));
/// assert!(layout.contains(layout.root(), id.offset, id.node));
/// assert!(matches!(layout.node(id.node).kind, Kind::Scalar(Scalar::U32)));
/// let kind = |field: usize| &layout.node(fields[field].node).kind;
/// assert!(matches!(kind(1), Kind::Enum(EnumNode { literals, .. }) if **literals == [0, 4]));
/// let Kind::Sequence(SequenceNode { element, words, .. }) = kind(2) else { panic!("it is a sequence") };
/// assert!(matches!(layout.node(*element).kind, Kind::Scalar(Scalar::F64)));
/// assert!(words.is_none_or(|Words { len, .. }| (len as usize) < size_of::<Vec<f64>>()));
/// let Kind::Map(MapNode { key, .. }) = kind(3) else { panic!("it is a map") };
/// assert!(matches!(layout.node(*key).kind, Kind::String { .. }));
/// let Kind::Union(UnionNode { cases, .. }) = kind(4) else { panic!("it is a union") };
/// assert_eq!(cases.len(), 2);
/// let Kind::Optional(OptionalNode { inner, flag: None, .. }) = kind(6) else { panic!("it is an `Option`") };
/// assert!(matches!(layout.node(*inner).kind, Kind::Boxed(BoxedNode { .. })));
/// assert!(!layout.shares());
/// assert!(layout.len() > 10 && !layout.is_empty() && (layout.root().0 as usize) < layout.len());
///
/// // A record of the same schema has another layout, in which optionals have a flag.
/// let shape = Shape::of(Pump::shape().schema())?;
/// let flagged = (0..shape.layout().len() as u32).any(|i| {
///     matches!(&shape.layout().node(NodeId(i)).kind, Kind::Optional(OptionalNode { flag: Some(FlagWords { .. }), .. }))
/// });
/// assert!(flagged && Record::new(&shape).get("level").unwrap().is_absent());
/// # Ok::<(), polywire_core::layout::ShapeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Layout {
    nodes: Vec<Node>,
    root: NodeId,
    /// For each structure with many fields, the indices of the fields in order of offset.
    by_offset: Vec<Vec<u32>>,
    /// For each node, the result of [`Layout::behind_pointers`].
    behind: Vec<usize>,
}

impl Layout {
    /// Makes a layout from its nodes.
    ///
    /// # Safety
    /// Every node must describe memory correctly: offset, size, alignment, and access functions
    /// made for exactly the type of the node. Programs read and write through them without further
    /// checks.
    pub unsafe fn new(nodes: Vec<Node>, root: NodeId) -> Layout {
        let by_offset = nodes.iter().map(|node| fields_by_offset(&node.kind)).collect();
        let behind = behind_pointers(&nodes);
        Layout { nodes, root, by_offset, behind }
    }

    /// The node of the whole value.
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// A node by index.
    ///
    /// # Panics
    /// If `id` is out of range, because it belongs to another layout.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// Bytes that a default value of a node keeps behind pointers: mandatory `@external` members
    /// are allocated from the start.
    pub(crate) fn behind_pointers(&self, id: NodeId) -> usize {
        self.behind[id.0 as usize]
    }

    /// Size of a default value in bytes, including mandatory `@external` members behind pointers.
    ///
    /// ```
    /// use polywire_core::layout::Message;
    /// # use polywire_core as polywire;
    ///
    /// #[derive(Default, polywire_derive::Message)]
    /// struct Corners { heights: [u64; 4] }
    ///
    /// assert_eq!(Corners::shape().layout().default_bytes(), 32);
    /// ```
    pub fn default_bytes(&self) -> usize {
        (self.node(self.root).size as usize).saturating_add(self.behind_pointers(self.root))
    }

    /// Returns whether values of this type can hold parts of a message without a copy. If so,
    /// decode from a shared message.
    pub fn shares(&self) -> bool {
        self.nodes.iter().any(|node| match &node.kind {
            Kind::String { shared, .. } => *shared,
            Kind::Sequence(sequence) => sequence.access.shares(),
            _ => false,
        })
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if there are no nodes. No layout made by this crate is empty.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns whether a value of `frame` has `node` at `offset` bytes. The search follows fields
    /// and array elements, but no pointers.
    pub fn contains(&self, frame: NodeId, offset: u32, node: NodeId) -> bool {
        if frame == node && offset == 0 {
            return true;
        }
        match &self.node(frame).kind {
            Kind::Struct { fields } => {
                // Fields of size zero share offsets, so every field that could hold the place is
                // tried.
                let holds = |f: &Field| {
                    offset >= f.offset
                        && offset - f.offset <= self.node(f.node).size
                        && self.contains(f.node, offset - f.offset, node)
                };
                let order = &self.by_offset[frame.0 as usize];
                if order.is_empty() {
                    return fields.iter().any(holds);
                }
                let field = |i: &u32| &fields[*i as usize];
                let end = order.partition_point(|i| field(i).offset <= offset);
                // Fields do not overlap, so the search goes backwards and stops at the first field
                // that ends before the place.
                let mut candidates = order[..end].iter().rev().map(field);
                let mut ended = false;
                candidates
                    .by_ref()
                    .take_while(|f| {
                        let goes_on = !ended;
                        ended = f.offset + self.node(f.node).size < offset;
                        goes_on
                    })
                    .any(holds)
            }
            Kind::Array { element, len } => {
                let stride = self.node(*element).size;
                match stride {
                    0 => self.contains(*element, offset, node),
                    _ => offset / stride < *len && self.contains(*element, offset % stride, node),
                }
            }
            _ => false,
        }
    }
}

/// Structures with at most this many fields are searched linearly.
const FEW_FIELDS: usize = 16;

/// For each node, the bytes that a default value keeps behind pointers.
fn behind_pointers(nodes: &[Node]) -> Vec<usize> {
    // A recursive type counts zero for itself inside itself.
    fn of(nodes: &[Node], id: NodeId, known: &mut [Option<usize>]) -> usize {
        let at = id.0 as usize;
        if let Some(bytes) = known[at] {
            return bytes;
        }
        known[at] = Some(0);
        let bytes = match &nodes[at].kind {
            Kind::Struct { fields } => {
                fields.iter().fold(0, |sum: usize, field| sum.saturating_add(of(nodes, field.node, known)))
            }
            Kind::Array { element, len } => of(nodes, *element, known).saturating_mul(*len as usize),
            Kind::Boxed(boxed) => {
                (nodes[boxed.inner.0 as usize].size as usize).saturating_add(of(nodes, boxed.inner, known))
            }
            Kind::Union(union) => {
                let case = union.default_case.and_then(|case| union.cases.get(case as usize));
                case.map_or(0, |case| of(nodes, *case, known))
            }
            _ => 0,
        };
        known[at] = Some(bytes);
        bytes
    }
    let mut known = alloc::vec![None; nodes.len()];
    (0..nodes.len()).map(|at| of(nodes, NodeId(at as u32), &mut known)).collect()
}

fn fields_by_offset(kind: &Kind) -> Vec<u32> {
    match kind {
        Kind::Struct { fields } if fields.len() > FEW_FIELDS => {
            let mut order: Vec<u32> = (0..fields.len() as u32).collect();
            order.sort_by_key(|i| fields[*i as usize].offset);
            order
        }
        _ => Vec::new(),
    }
}

macro_rules! debug_without_access {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }
    )*};
}

debug_without_access! {
    SequenceNode { element, words }
    OptionalNode { inner, flag }
    UnionNode { cases, default_case }
    MapNode { key, value }
    BoxedNode { inner }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({} bytes, align {})", self.kind, self.size, self.align)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Case, Def, Member, SchemaBuilder, Type};

    /// Bytes behind the pointers of a default value of a union that has `large` behind a pointer,
    /// beside a small case.
    fn behind(large: impl FnOnce(Type) -> Case, small: i64) -> usize {
        let mut types = SchemaBuilder::new();
        let array = Member::new("words", Type::array(Type::Uint64, [100]));
        let large_type = Type::Def(types.add(Def::structure("Large", alloc::vec![array])));
        let mut large = large(large_type);
        large.member.external = true;
        let cases = alloc::vec![large, Case::new([small], "small", Type::Octet)];
        let root = types.add(Def::union("Either", Type::Int32, cases));
        let shape = Shape::of(&types.finish(Type::Def(root)).unwrap()).unwrap();
        shape.layout().behind_pointers(shape.layout().root())
    }

    #[test]
    fn a_default_union_keeps_what_its_default_case_keeps() {
        assert_eq!(behind(|ty| Case::new([1], "large", ty), 0), 0);
        assert_eq!(behind(|ty| Case::new([0], "large", ty), 1), 800);
        assert_eq!(behind(|ty| Case::default("large", ty), 1), 800);
    }
}
