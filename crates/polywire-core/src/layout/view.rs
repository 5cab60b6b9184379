//! [`ValueRef`]: read access to any value through its schema, for derived types and records alike.

use alloc::{format, string::String, vec::Vec};
use core::{cmp::Ordering, fmt, marker::PhantomData, slice};

use super::{
    Char8, Char16, Float128, Kind, Layout, Message, NodeId, Scalar, Shape, access::Selected, describe::read_integer,
    shared::text_at,
};
use crate::schema::{BitField, Case, Def, DefId, DefKind, Flag, Member, Schema, Type, array_shape};

/// A borrowed view of a value of any type.
///
/// Floating-point numbers compare by their bits: a NaN equals itself, and `-0.0` differs from
/// `0.0`.
///
/// ```
/// use polywire_core::layout::ValueRef;
/// use polywire_derive::Message;
///
/// #[derive(Message)]
/// struct Position { level: Option<i32>, names: Vec<String> }
///
/// let position = Position { level: Some(350), names: vec!["RIVER".into()] };
/// let view = ValueRef::of(&position);
/// assert_eq!(view.get("names[0]")?.as_str(), Some("RIVER"));
/// assert_eq!(format!("{view:?}"), r#"Position { level: 350, names: ["RIVER"] }"#);
/// # Ok::<(), polywire_core::layout::PathError>(())
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum ValueRef<'a> {
    /// `boolean`
    Bool(bool),
    /// `int8` to `int64`
    Int(i64),
    /// `octet`, `uint8` to `uint64`
    Uint(u64),
    /// `float`
    Float32(f32),
    /// `double`
    Float64(f64),
    /// `long double`
    Float128(Float128),
    /// `char`
    Char8(Char8),
    /// `wchar`
    Char16(Char16),
    /// `string`, `wstring`
    Str(&'a str),
    /// An enum literal.
    Enum(EnumRef<'a>),
    /// A bitmask.
    Bitmask(BitmaskRef<'a>),
    /// A bitset.
    Bitset(BitsetRef<'a>),
    /// A sequence, or one dimension of an array.
    List(ListRef<'a>),
    /// A structure.
    Struct(StructRef<'a>),
    /// A union.
    Union(UnionRef<'a>),
    /// A map.
    Map(MapRef<'a>),
    /// An `@optional` member that is absent.
    Absent,
}

impl<'a> ValueRef<'a> {
    /// A view of a message.
    pub fn of<T: Message>(message: &'a T) -> ValueRef<'a> {
        let shape = T::shape();
        // SAFETY: the shape is that of the type, and the borrow keeps the value alive.
        unsafe { ValueRef::from_raw(shape, (&raw const *message).cast()) }
    }

    /// A view of a value by its shape.
    ///
    /// # Safety
    /// `at` points to a value of the shape that stays alive and unchanged for `'a`.
    pub unsafe fn from_raw(shape: &'a Shape, at: *const u8) -> ValueRef<'a> {
        // SAFETY: `at` points to a value of the shape that stays unchanged for `'a`: the caller's
        // contract.
        unsafe { TypedPlace::root(shape, at) }.view()
    }

    /// The value of an integer, boolean, character, enum, bitmask or bitset, if it fits an `i64`.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            ValueRef::Int(i) => Some(*i),
            other => other.as_u64().and_then(|u| i64::try_from(u).ok()).or(match other {
                ValueRef::Enum(e) => Some(e.value().into()),
                _ => None,
            }),
        }
    }

    /// The value of an integer, boolean, character, enum, bitmask or bitset, if it fits a `u64`.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            ValueRef::Bool(b) => Some(u64::from(*b)),
            ValueRef::Int(i) => u64::try_from(*i).ok(),
            ValueRef::Uint(u) => Some(*u),
            ValueRef::Char8(c) => Some(c.0.into()),
            ValueRef::Char16(c) => Some(c.0.into()),
            ValueRef::Enum(e) => u64::try_from(e.value()).ok(),
            ValueRef::Bitmask(b) => Some(b.bits()),
            ValueRef::Bitset(b) => Some(b.bits()),
            _ => None,
        }
    }

    /// The value of a number, rounded to `f64` if necessary.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            ValueRef::Float32(f) => Some((*f).into()),
            ValueRef::Float64(f) => Some(*f),
            ValueRef::Float128(f) => Some(f.to_f64()),
            ValueRef::Int(i) => Some(*i as f64),
            ValueRef::Uint(u) => Some(*u as f64),
            _ => None,
        }
    }

    /// The value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            ValueRef::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The text of a string, or the name of an enum literal.
    pub fn as_str(&self) -> Option<&'a str> {
        match self {
            ValueRef::Str(text) => Some(text),
            ValueRef::Enum(e) => Some(e.name()),
            _ => None,
        }
    }

    /// True for an `@optional` member that is absent.
    pub fn is_absent(&self) -> bool {
        matches!(self, ValueRef::Absent)
    }
}

/// A typed place in memory. All views consist of one.
#[derive(Clone, Copy)]
pub(super) struct TypedPlace<'a> {
    pub(super) schema: &'a Schema,
    pub(super) layout: &'a Layout,
    pub(super) ty: &'a Type,
    pub(super) node: NodeId,
    pub(super) at: *const u8,
    life: PhantomData<&'a u8>,
}

impl<'a> TypedPlace<'a> {
    /// # Safety
    /// `at` points to a value of the shape that stays alive for `'a`. Nothing writes it while a
    /// view of it is used.
    pub(super) unsafe fn root(shape: &'a Shape, at: *const u8) -> TypedPlace<'a> {
        let (schema, layout) = (shape.schema(), &**shape.layout());
        TypedPlace { schema, layout, ty: schema.resolve(schema.root()), node: layout.root(), at, life: PhantomData }
    }

    /// A place inside this one, or one that this place points to.
    ///
    /// # Safety
    /// `at` points to a value of `node`, which is the layout's node for `ty`, alive for `'a`.
    pub(super) unsafe fn part(&self, ty: &'a Type, node: NodeId, at: *const u8) -> TypedPlace<'a> {
        TypedPlace { ty: self.schema.resolve(ty), node, at, ..*self }
    }

    pub(super) fn kind(&self) -> &'a Kind {
        &self.layout.node(self.node).kind
    }

    /// The definition of the place's type, if it has one.
    pub(super) fn def(&self) -> Option<(DefId, &'a Def)> {
        match self.ty {
            Type::Def(id) => Some((*id, self.schema.def(*id))),
            _ => None,
        }
    }

    /// The value inside optional and box. `None` if it is absent.
    pub(super) fn inner(mut self) -> Option<TypedPlace<'a>> {
        loop {
            match self.kind() {
                Kind::Optional(optional) => {
                    // SAFETY: a spot holds a value of its node.
                    self.at = unsafe { optional.access.get(self.at) };
                    self.node = optional.inner;
                    if self.at.is_null() {
                        return None;
                    }
                }
                Kind::Boxed(boxed) => {
                    // SAFETY: a spot holds a value of its node.
                    self.at = unsafe { boxed.access.get(self.at) };
                    self.node = boxed.inner;
                }
                _ => return Some(self),
            }
        }
    }

    pub(super) fn view(self) -> ValueRef<'a> {
        let Some(spot) = self.inner() else { return ValueRef::Absent };
        match spot.kind() {
            Kind::Scalar(scalar) => spot.scalar(*scalar),
            Kind::Enum(node) => {
                // SAFETY: a spot holds a value of its node.
                let value = unsafe { read_integer(spot.at, node.repr) } as i32;
                ValueRef::Enum(EnumRef { def: spot.def().map(|(_, def)| def), value })
            }
            // SAFETY: a spot holds a value of its node.
            Kind::String { shared, .. } => ValueRef::Str(unsafe { text_at(*shared, spot.at) }),
            Kind::Sequence(_) | Kind::Array { .. } => ValueRef::List(ListRef::new(spot)),
            Kind::Struct { .. } => ValueRef::Struct(StructRef(spot)),
            Kind::Union(_) => ValueRef::Union(UnionRef(spot)),
            Kind::Map(_) => ValueRef::Map(MapRef(spot)),
            Kind::Optional(_) | Kind::Boxed(_) => ValueRef::Absent,
        }
    }

    fn scalar(self, scalar: Scalar) -> ValueRef<'a> {
        // SAFETY: a spot holds a value of its node.
        let integer = unsafe { read_integer(self.at, scalar) };
        match (scalar, self.ty) {
            (Scalar::Bool, _) => ValueRef::Bool(integer != 0),
            // SAFETY: a spot holds a value of its node. Derived types may be packed, so the read is
            // unaligned.
            (Scalar::F32, _) => ValueRef::Float32(unsafe { self.at.cast::<f32>().read_unaligned() }),
            // SAFETY: a spot holds a value of its node.
            (Scalar::F64, _) => ValueRef::Float64(unsafe { self.at.cast::<f64>().read_unaligned() }),
            // SAFETY: a spot holds a value of its node.
            (Scalar::F128, _) => ValueRef::Float128(unsafe { self.at.cast::<Float128>().read() }),
            (_, Type::Char8) => ValueRef::Char8(Char8(integer as u8)),
            (_, Type::Char16) => ValueRef::Char16(Char16(integer as u16)),
            (_, Type::Def(id)) => {
                let (def, bits) = (self.schema.def(*id), integer as u64);
                match &def.kind {
                    DefKind::Bitset { .. } => ValueRef::Bitset(BitsetRef { schema: self.schema, id: *id, bits }),
                    _ => ValueRef::Bitmask(BitmaskRef { def, bits }),
                }
            }
            _ if scalar.is_signed() => ValueRef::Int(integer as i64),
            _ => ValueRef::Uint(integer as u64),
        }
    }
}

/// An enum literal.
#[derive(Clone, Copy)]
pub struct EnumRef<'a> {
    def: Option<&'a Def>,
    value: i32,
}

impl<'a> EnumRef<'a> {
    /// The literal's number.
    pub fn value(&self) -> i32 {
        self.value
    }

    /// The literal's name.
    pub fn name(&self) -> &'a str {
        let literals = match self.def.map(|d| &d.kind) {
            Some(DefKind::Enum { literals, .. }) => literals.as_slice(),
            _ => &[],
        };
        literals.iter().find(|l| l.value == self.value).map_or("", |l| &l.name)
    }
}

/// A bitmask.
#[derive(Clone, Copy)]
pub struct BitmaskRef<'a> {
    def: &'a Def,
    bits: u64,
}

impl<'a> BitmaskRef<'a> {
    /// All bits, including those without a name.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// The flags that are set.
    pub fn flags(&self) -> impl Iterator<Item = &'a Flag> + use<'a> {
        let bits = self.bits;
        let flags = match &self.def.kind {
            DefKind::Bitmask { flags, .. } => flags.as_slice(),
            _ => &[],
        };
        flags.iter().filter(move |f| bits >> f.position & 1 == 1)
    }
}

/// A bitset.
#[derive(Clone, Copy)]
pub struct BitsetRef<'a> {
    schema: &'a Schema,
    id: DefId,
    bits: u64,
}

impl<'a> BitsetRef<'a> {
    /// All bits.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// Every named field with its value. Values of signed types are sign-extended.
    pub fn fields(&self) -> Vec<(&'a BitField, i128)> {
        let fields = self.schema.bit_fields(self.id);
        let value = |field: &BitField| {
            let unused = 64 - u32::from(field.width.clamp(1, 64));
            let up = self.bits.checked_shr(u32::from(field.position)).unwrap_or(0) << unused;
            match self.schema.resolve(&field.ty) {
                Type::Int8 | Type::Int16 | Type::Int32 | Type::Int64 => i128::from(up as i64 >> unused),
                _ => i128::from(up >> unused),
            }
        };
        fields.into_iter().filter(|f| f.name.is_some()).map(|f| (f, value(f))).collect()
    }
}

/// A sequence, or one dimension of an array.
#[derive(Clone, Copy)]
pub struct ListRef<'a> {
    spot: TypedPlace<'a>,
    /// Type and node of the innermost elements.
    element: (&'a Type, NodeId),
    /// Number of elements in this dimension; `below` has the dimensions inside it.
    len: usize,
    below: &'a [u32],
    first: *const u8,
}

impl<'a> ListRef<'a> {
    fn new(spot: TypedPlace<'a>) -> ListRef<'a> {
        match (spot.kind(), spot.ty) {
            (Kind::Sequence(node), Type::Sequence { element, .. }) => {
                // SAFETY: a spot holds a value of its node.
                let (first, len) = unsafe { node.access.slice(spot.at) };
                ListRef { spot, element: (element, node.element), len, below: &[], first }
            }
            (Kind::Array { element: node, .. }, Type::Array { element, dims }) => {
                let (len, below) = dims.split_first().map_or((0, &[][..]), |(d, rest)| (*d as usize, rest));
                ListRef { spot, element: (element, *node), len, below, first: spot.at }
            }
            _ => ListRef { spot, element: (spot.ty, spot.node), len: 0, below: &[], first: spot.at },
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element at an index. `None` if it is out of range.
    pub fn at(&self, index: usize) -> Option<ValueRef<'a>> {
        if index >= self.len {
            return None;
        }
        Some(match self.row(index) {
            Ok(row) => ValueRef::List(row),
            Err(element) => element.view(),
        })
    }

    /// All elements.
    pub fn iter(&self) -> impl Iterator<Item = ValueRef<'a>> + use<'a> {
        let list = *self;
        (0..list.len).filter_map(move |i| list.at(i))
    }

    /// The bytes, if the elements are octets or `uint8`s.
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        let is_bytes = matches!(self.spot.schema.resolve(self.element.0), Type::Octet | Type::Uint8);
        // SAFETY: `len` elements of one byte each lie at `first`, for as long as the spot lives.
        (is_bytes && self.below.is_empty()).then(|| unsafe { slice::from_raw_parts(self.first, self.len) })
    }

    /// The element at `index`, which must be in range: a list in all dimensions but the last,
    /// otherwise the element's place.
    pub(super) fn row(&self, index: usize) -> Result<ListRef<'a>, TypedPlace<'a>> {
        let (ty, node) = self.element;
        let (ty, node) = (self.spot.schema.resolve(ty), self.spot.layout.node(node));
        // Arrays of arrays in the schema are one array in memory, with the innermost elements side
        // by side.
        let inner = match (ty, &node.kind) {
            (Type::Array { element, dims }, kind) if !matches!(kind, Kind::Array { .. }) => Some((element, dims)),
            _ => None,
        };
        let inside = inner.map_or(Vec::new(), |_| array_shape(self.spot.schema, ty).1);
        let count = self.below.iter().chain(&inside).fold(1usize, |n, d| n * *d as usize);
        let each = count * node.size as usize;
        // SAFETY: elements lie side by side, and the index is in range.
        let at = unsafe { self.first.add(index * each) };
        let row = |element, dims: &'a [u32]| {
            let (len, below) = dims.split_first().map_or((0, &[][..]), |(len, below)| (*len as usize, below));
            Ok(ListRef { element: (element, self.element.1), len, below, first: at, ..*self })
        };
        match inner {
            _ if !self.below.is_empty() => row(self.element.0, self.below),
            Some((element, dims)) => row(element, dims),
            // SAFETY: an element is a value of its node.
            None => Err(unsafe { self.spot.part(ty, self.element.1, at) }),
        }
    }
}

/// A structure.
///
/// ```
/// use polywire_core::layout::{BitmaskRef, BitsetRef, EnumRef, ListRef, MapRef, Message, StructRef, UnionRef, ValueRef};
/// use std::collections::BTreeMap;
///
/// #[derive(polywire_derive::Message)]
/// struct Pump { mode: Mode, alarms: Alarms, version: Version, drive: Drive, raw: Vec<u8>, limits: BTreeMap<String, i8>, hot: bool, bar: f32 }
/// #[derive(Clone, Copy, polywire_derive::Message)]
/// #[repr(u32)]
/// enum Mode { Off, On = 4 }
/// #[derive(polywire_derive::Message)]
/// #[polywire(bitmask(bit_bound = 8, LEAK = 0, HEAT = 1))]
/// struct Alarms(pub u8);
/// #[derive(polywire_derive::Message)]
/// #[polywire(bitset(major(3), minor(5)))]
/// struct Version(pub u8);
/// #[derive(polywire_derive::Message)]
/// #[polywire(switch = "int32")]
/// enum Drive {
///     #[polywire(case(0))]
///     Fixed(u16),
///     #[polywire(case(1))]
///     Geared(f64),
/// }
///
/// let limits = BTreeMap::from([("low".to_string(), -5)]);
/// let pump = Pump { mode: Mode::On, alarms: Alarms(2), version: Version(0b00010_011), drive: Drive::Geared(1.5), raw: vec![1, 2], limits, hot: true, bar: 2.5 };
/// let ValueRef::Struct(pump_ref) = ValueRef::of(&pump) else { panic!("it is a structure") };
/// let view: StructRef = pump_ref;
/// assert_eq!((view.name(), view.fields().len()), ("Pump", 8));
/// let field = |name: &str| view.field(name).unwrap();
/// let ValueRef::Enum(mode) = field("mode") else { panic!("it is an enum") };
/// let mode: EnumRef = mode;
/// assert_eq!((mode.value(), mode.name(), field("mode").as_i64()), (4, "On", Some(4)));
/// let ValueRef::Bitmask(alarms) = field("alarms") else { panic!("it is a bitmask") };
/// let alarms: BitmaskRef = alarms;
/// assert_eq!((alarms.bits(), alarms.flags().map(|flag| &*flag.name).collect::<Vec<_>>()), (2, vec!["HEAT"]));
/// let ValueRef::Bitset(version) = field("version") else { panic!("it is a bitset") };
/// let version: BitsetRef = version;
/// assert_eq!(version.fields().iter().map(|(_, value)| *value).collect::<Vec<_>>(), [3, 2]);
/// let ValueRef::Union(drive) = field("drive") else { panic!("it is a union") };
/// let drive: UnionRef = drive;
/// let (case, value) = drive.case().unwrap();
/// assert_eq!((drive.discriminator(), case.member.name.as_str(), value.as_f64()), (1, "Geared", Some(1.5)));
/// let ValueRef::List(raw) = field("raw") else { panic!("it is a list") };
/// let raw: ListRef = raw;
/// assert_eq!((raw.len(), raw.is_empty(), raw.as_bytes(), raw.at(1).unwrap().as_u64()), (2, false, Some(&[1, 2][..]), Some(2)));
/// assert_eq!(raw.iter().count(), 2);
/// let ValueRef::Map(limits) = field("limits") else { panic!("it is a map") };
/// let limits: MapRef = limits;
/// let (key, value) = limits.entries()[0];
/// assert_eq!((limits.len(), key.as_str(), value.as_i64(), limits.is_empty()), (1, Some("low"), Some(-5), false));
/// assert_eq!((field("hot").as_bool(), field("bar").as_f64(), field("hot").is_absent()), (Some(true), Some(2.5), false));
/// // SAFETY: the pointer is to a live value of the shape.
/// let raw = unsafe { ValueRef::from_raw(Pump::shape(), std::ptr::from_ref(&pump).cast()) };
/// assert_eq!(raw, ValueRef::of(&pump));
/// ```
#[derive(Clone, Copy)]
pub struct StructRef<'a>(TypedPlace<'a>);

impl<'a> StructRef<'a> {
    pub(super) fn spot(&self) -> TypedPlace<'a> {
        self.0
    }

    /// Scoped name of the structure's type.
    pub fn name(&self) -> &'a str {
        self.0.def().map_or("", |(_, def)| &def.name)
    }

    /// Every member with its value, inherited members first.
    pub fn fields(&self) -> Vec<(&'a Member, ValueRef<'a>)> {
        self.members().into_iter().map(|(member, spot)| (member, spot.view())).collect()
    }

    /// The value of the member with this name.
    pub fn field(&self, name: &str) -> Option<ValueRef<'a>> {
        member(self.0, name).map(TypedPlace::view)
    }

    fn members(&self) -> Vec<(&'a Member, TypedPlace<'a>)> {
        members(self.0)
    }
}

/// The members of a structure with their places.
pub(super) fn members(spot: TypedPlace<'_>) -> Vec<(&Member, TypedPlace<'_>)> {
    let (Kind::Struct { fields }, Some((id, _))) = (spot.kind(), spot.def()) else { return Vec::new() };
    let members = spot.schema.members(id).into_iter().zip(fields.iter());
    members
        .map(|(member, field)| {
            // SAFETY: the layout's fields are parallel to the members, at their offsets.
            let part = unsafe { spot.part(&member.ty, field.node, spot.at.add(field.offset as usize)) };
            (member, part)
        })
        .collect()
}

/// The place of a structure's member. It is found without a list of all members.
pub(super) fn member<'a>(spot: TypedPlace<'a>, name: &str) -> Option<TypedPlace<'a>> {
    let (Kind::Struct { fields }, Some((id, _))) = (spot.kind(), spot.def()) else { return None };
    let (index, member) = position(spot.schema, id, name).ok()?;
    let field = fields.get(index)?;
    // SAFETY: the layout's fields are parallel to the members, at their offsets.
    Some(unsafe { spot.part(&member.ty, field.node, spot.at.add(field.offset as usize)) })
}

/// A member and its index, counted from the first inherited member. If none has the name, the
/// number of members.
fn position<'a>(schema: &'a Schema, id: DefId, name: &str) -> Result<(usize, &'a Member), usize> {
    let DefKind::Struct { base, members } = &schema.def(id).kind else { return Err(0) };
    let inherited = match base.map(|base| position(schema, base, name)) {
        Some(Ok(found)) => return Ok(found),
        Some(Err(count)) => count,
        None => 0,
    };
    let own = members.iter().enumerate().find(|(_, m)| m.name == name);
    own.map(|(i, m)| (inherited + i, m)).ok_or(inherited + members.len())
}

/// A union.
#[derive(Clone, Copy)]
pub struct UnionRef<'a>(TypedPlace<'a>);

impl<'a> UnionRef<'a> {
    pub(super) fn spot(&self) -> TypedPlace<'a> {
        self.0
    }

    /// Scoped name of the union's type.
    pub fn name(&self) -> &'a str {
        self.0.def().map_or("", |(_, def)| &def.name)
    }

    /// The discriminator, as a number.
    pub fn discriminator(&self) -> i64 {
        self.selected().discriminator
    }

    /// The selected case with its value. `None` if the discriminator chooses no case.
    pub fn case(&self) -> Option<(&'a Case, ValueRef<'a>)> {
        selected_case(self.0).map(|(case, spot)| (case, spot.view()))
    }

    fn selected(&self) -> Selected {
        match self.0.kind() {
            // SAFETY: a spot holds a value of its node.
            Kind::Union(node) => unsafe { node.access.get(self.0.at) },
            _ => Selected { discriminator: 0, case: None, value: self.0.at },
        }
    }
}

/// The selected case of a union, and the place of its value.
pub(super) fn selected_case(spot: TypedPlace<'_>) -> Option<(&Case, TypedPlace<'_>)> {
    let (Kind::Union(node), Some((_, def))) = (spot.kind(), spot.def()) else { return None };
    let DefKind::Union { cases, .. } = &def.kind else { return None };
    let selected = UnionRef(spot).selected();
    let number = selected.case? as usize;
    let case = cases.get(number)?;
    // SAFETY: nodes are parallel to cases, and the value is that of the selected case.
    Some((case, unsafe { spot.part(&case.member.ty, *node.cases.get(number)?, selected.value) }))
}

/// A map.
#[derive(Clone, Copy)]
pub struct MapRef<'a>(TypedPlace<'a>);

impl<'a> MapRef<'a> {
    pub(super) fn spot(&self) -> TypedPlace<'a> {
        self.0
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        match self.0.kind() {
            // SAFETY: a spot holds a value of its node.
            Kind::Map(node) => unsafe { node.access.len(self.0.at) },
            _ => 0,
        }
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every key and value: in order of insertion for a record, in the map's own order for a
    /// derived type.
    pub fn entries(&self) -> Vec<(ValueRef<'a>, ValueRef<'a>)> {
        entries(self.0).into_iter().map(|(key, value)| (key.view(), value.view())).collect()
    }
}

/// The entries of a map with their places.
pub(super) fn entries(spot: TypedPlace<'_>) -> Vec<(TypedPlace<'_>, TypedPlace<'_>)> {
    let mut entries = Vec::new();
    let (Kind::Map(node), Type::Map { key, value, .. }) = (spot.kind(), spot.ty) else { return entries };
    // SAFETY: a spot holds a value of its node; entries do not move while the map is unchanged.
    unsafe {
        node.access.visit(spot.at, &mut |k, v| {
            entries.push((spot.part(key, node.key, k), spot.part(value, node.value, v)));
            true
        });
    }
    entries
}

impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (ValueRef::Bool(a), ValueRef::Bool(b)) => a == b,
            (ValueRef::Int(a), ValueRef::Int(b)) => a == b,
            (ValueRef::Uint(a), ValueRef::Uint(b)) => a == b,
            (ValueRef::Float32(a), ValueRef::Float32(b)) => a.to_bits() == b.to_bits(),
            (ValueRef::Float64(a), ValueRef::Float64(b)) => a.to_bits() == b.to_bits(),
            (ValueRef::Float128(a), ValueRef::Float128(b)) => a == b,
            (ValueRef::Char8(a), ValueRef::Char8(b)) => a == b,
            (ValueRef::Char16(a), ValueRef::Char16(b)) => a == b,
            (ValueRef::Str(a), ValueRef::Str(b)) => a == b,
            (ValueRef::Enum(a), ValueRef::Enum(b)) => a.value == b.value,
            (ValueRef::Bitmask(a), ValueRef::Bitmask(b)) => a.bits == b.bits,
            (ValueRef::Bitset(a), ValueRef::Bitset(b)) => a.bits == b.bits,
            (ValueRef::List(a), ValueRef::List(b)) => {
                a.len == b.len
                    && match (a.as_bytes(), b.as_bytes()) {
                        (Some(a), Some(b)) => a == b,
                        _ => a.iter().eq(b.iter()),
                    }
            }
            (ValueRef::Struct(a), ValueRef::Struct(b)) => {
                let (a, b) = (a.fields(), b.fields());
                a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.0.name == b.0.name && a.1 == b.1)
            }
            (ValueRef::Union(a), ValueRef::Union(b)) => {
                a.discriminator() == b.discriminator() && a.case().map(|c| c.1) == b.case().map(|c| c.1)
            }
            (ValueRef::Map(a), ValueRef::Map(b)) => a.len() == b.len() && sorted_entries(a) == sorted_entries(b),
            (ValueRef::Absent, ValueRef::Absent) => true,
            _ => false,
        }
    }
}

fn sorted_entries<'a>(map: &MapRef<'a>) -> Vec<(ValueRef<'a>, ValueRef<'a>)> {
    let mut entries = map.entries();
    entries.sort_by(|a, b| compare(&a.0, &b.0));
    entries
}

// Floating-point numbers are compared by their bits, so equality is reflexive.
impl Eq for ValueRef<'_> {}

/// Orders keys: numbers first, then text.
fn compare(a: &ValueRef<'_>, b: &ValueRef<'_>) -> Ordering {
    let number = |v: &ValueRef<'_>| v.as_i64().map(i128::from).or(v.as_u64().map(i128::from));
    match (number(a), number(b)) {
        (None, None) => a.as_str().cmp(&b.as_str()),
        (a, b) => a.cmp(&b),
    }
}

impl fmt::Debug for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueRef::Bool(v) => v.fmt(f),
            ValueRef::Int(v) => v.fmt(f),
            ValueRef::Uint(v) => v.fmt(f),
            ValueRef::Float32(v) => v.fmt(f),
            ValueRef::Float64(v) => v.fmt(f),
            ValueRef::Float128(v) => v.fmt(f),
            ValueRef::Char8(v) => v.fmt(f),
            ValueRef::Char16(v) => v.fmt(f),
            ValueRef::Str(v) => v.fmt(f),
            ValueRef::Enum(v) => f.write_str(v.name()),
            ValueRef::Bitmask(v) => f.write_str(&flags_text(v)),
            ValueRef::Bitset(v) => {
                let text = |(field, value): (&BitField, i128)| (field.name.clone().unwrap_or_default(), value);
                f.debug_map().entries(v.fields().into_iter().map(text)).finish()
            }
            ValueRef::List(v) => f.debug_list().entries(v.iter()).finish(),
            ValueRef::Struct(v) => {
                let mut out = f.debug_struct(v.name());
                v.fields().iter().for_each(|(member, value)| {
                    out.field(&member.name, value);
                });
                out.finish()
            }
            ValueRef::Union(v) => match v.case() {
                Some((case, value)) => f.debug_struct(v.name()).field(&case.member.name, &value).finish(),
                None => f.debug_tuple(v.name()).field(&v.discriminator()).finish(),
            },
            ValueRef::Map(v) => f.debug_map().entries(v.entries()).finish(),
            ValueRef::Absent => f.write_str("absent"),
        }
    }
}

/// Text such as `MODE_A|MODE_C`, followed by a number for bits without a name.
fn flags_text(mask: &BitmaskRef<'_>) -> String {
    let named = mask.flags().fold(0u64, |bits, f| bits | 1 << f.position);
    let rest = mask.bits & !named;
    let mut parts: Vec<_> = mask.flags().map(|f| f.name.clone()).collect();
    if rest != 0 {
        parts.push(format!("{rest:#x}"));
    }
    match parts.is_empty() {
        true => "0".into(),
        false => parts.join("|"),
    }
}
