//! Builds the schema and the layout of a derived type side by side. Only derived code and the
//! implementations for Rust's own types call this.

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
    format,
    string::{String, ToString},
    sync::Arc,
    vec,
    vec::Vec,
};
use core::{any::TypeId, marker::PhantomData, mem};

use super::{
    EnumNode, Field, Kind, Layout, MessageField, Node, NodeId, Scalar, Shape, ShapeError, UnionNode,
    derived::{UnionCases, VariantAccess},
};
use crate::schema::{
    Annotation, AutoId, BitField, Case, Def, DefId, DefKind, EnumLiteral, Extensibility, Flag, Literal, Member,
    SchemaBuilder, TryConstruct, Type, hash_id,
};

/// A Rust type as it appears in the schema and in the layout.
#[derive(Clone, Debug)]
pub struct Described {
    pub(super) ty: Type,
    pub(super) node: NodeId,
    pub(super) optional: bool,
    pub(super) external: bool,
}

/// A constant in an attribute.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lit {
    Bool(bool),
    Int(i128),
    Float(f64),
    Char(char),
    Text(&'static str),
}

/// The type in an `idl = ".."` attribute.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum TypeText {
    /// A primitive, a string or a wide string.
    Is(Type),
    /// The type that the Rust type has, provided that its name is this one.
    Named(&'static str),
    Sequence(Box<TypeText>, u32),
    Array(Box<TypeText>, Vec<u32>),
    Map(Box<TypeText>, Box<TypeText>, u32),
}

impl TypeText {
    pub fn sequence(element: TypeText, bound: u32) -> TypeText {
        TypeText::Sequence(Box::new(element), bound)
    }

    pub fn array(element: TypeText, dims: &[u32]) -> TypeText {
        TypeText::Array(Box::new(element), dims.to_vec())
    }

    pub fn map(key: TypeText, value: TypeText, bound: u32) -> TypeText {
        TypeText::Map(Box::new(key), Box::new(value), bound)
    }
}

/// Schema definitions and layout nodes under construction.
#[derive(Debug, Default)]
pub struct Describe {
    defs: Vec<Def>,
    nodes: Vec<Node>,
    known: BTreeMap<TypeId, Described>,
    structs: Vec<PendingStruct>,
    error: Option<ShapeError>,
}

/// A structure whose base may not be described yet.
#[derive(Debug)]
struct PendingStruct {
    node: NodeId,
    base: Option<(NodeId, u32)>,
    own: Vec<Field>,
}

impl Describe {
    pub(super) fn new() -> Describe {
        Describe::default()
    }

    /// Describes `T`, at most once per builder.
    pub(super) fn of<T: MessageField>(&mut self) -> Described {
        if let Some(known) = self.known.get(&TypeId::of::<T>()) {
            return known.clone();
        }
        let described = T::describe(self);
        self.known.insert(TypeId::of::<T>(), described.clone());
        described
    }

    /// # Safety
    /// `kind` describes the memory of `T` correctly.
    pub(super) unsafe fn plain<T: MessageField>(&mut self, ty: Type, kind: Kind) -> Described {
        let node = self.reserve::<T>();
        self.nodes[node.0 as usize].kind = kind;
        Described { ty, node, optional: false, external: false }
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub(super) fn refuse(&mut self, at: impl Into<String>, what: impl Into<String>) {
        // The first error is kept, because later ones often follow from it.
        self.error.get_or_insert_with(|| ShapeError::Attribute { at: at.into(), what: what.into() });
    }

    pub(super) fn finish(mut self, root: Described) -> Result<Shape, ShapeError> {
        self.flatten_bases();
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut builder = SchemaBuilder::new();
        self.defs.into_iter().for_each(|def| {
            builder.add(def);
        });
        let schema = builder.finish(root.ty)?;
        // SAFETY: each node was added by the implementation for the type it describes, next to the
        // definition of the same type.
        Ok(unsafe { Shape::new(schema, Layout::new(self.nodes, root.node)) })
    }

    /// Adds a node for `T` that has only its size and alignment.
    fn reserve<T>(&mut self) -> NodeId {
        let (size, align) = (u32::try_from(mem::size_of::<T>()), u32::try_from(mem::align_of::<T>()));
        if size.is_err() {
            let (bytes, max) = (mem::size_of::<T>() as u64, u64::from(u32::MAX));
            self.error.get_or_insert(ShapeError::TooLarge { bytes, max });
        }
        let kind = Kind::Struct { fields: Arc::new([]) };
        self.nodes.push(Node { size: size.unwrap_or(0), align: align.unwrap_or(1), kind });
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Adds a definition and a node that others may refer to before they are filled in.
    fn reserve_definition<T: MessageField>(&mut self, name: &str) -> (DefId, Described) {
        let def = DefId(self.defs.len() as u32);
        self.defs.push(Def::structure(name, Vec::new()));
        let node = self.reserve::<T>();
        let described = Described { ty: Type::Def(def), node, optional: false, external: false };
        self.known.insert(TypeId::of::<T>(), described.clone());
        (def, described)
    }

    fn define(&mut self, id: DefId, described: &Described, def: Def, kind: Kind) {
        self.defs[id.0 as usize] = def;
        self.nodes[described.node.0 as usize].kind = kind;
    }

    /// Inserts the fields of base structures in front, once all structures are known.
    fn flatten_bases(&mut self) {
        let of_node: BTreeMap<NodeId, &PendingStruct> = self.structs.iter().map(|s| (s.node, s)).collect();
        for pending in &self.structs {
            let mut fields = Vec::new();
            let mut chain = vec![(pending, 0u32)];
            while let Some((base, by)) = chain.last().and_then(|(s, by)| s.base.map(|(base, at)| (base, by + at))) {
                match of_node.get(&base) {
                    Some(base) => chain.push((base, by)),
                    None => break,
                }
            }
            for (part, by) in chain.iter().rev() {
                fields.extend(part.own.iter().map(|f| Field { offset: f.offset + by, node: f.node }));
            }
            self.nodes[pending.node.0 as usize].kind = Kind::Struct { fields: fields.into() };
        }
    }

    /// The type that the attribute's `text` gives to a place described as `ty`, or why it does not
    /// fit.
    fn fit(&self, text: &TypeText, ty: &Type) -> Result<Type, String> {
        let wrong =
            || Err(format!("the IDL text {} does not fit the Rust type, which is {}", text_of(text), self.show(ty)));
        match (text, ty) {
            (TypeText::Is(want), have) if same_memory(want, have) => Ok(want.clone()),
            (TypeText::Named(name), Type::Def(id)) if same_name(name, &self.defs[id.0 as usize].name) => Ok(ty.clone()),
            (TypeText::Sequence(of, bound), Type::Sequence { element, .. }) => {
                Ok(Type::Sequence { element: Box::new(self.fit(of, element)?), bound: *bound })
            }
            (TypeText::Array(of, want), Type::Array { element, dims }) if want == dims => {
                Ok(Type::Array { element: Box::new(self.fit(of, element)?), dims: dims.clone() })
            }
            (TypeText::Map(k, v, bound), Type::Map { key, value, .. }) => {
                let (key, value) = (Box::new(self.fit(k, key)?), Box::new(self.fit(v, value)?));
                Ok(Type::Map { key, value, bound: *bound })
            }
            _ => wrong(),
        }
    }

    fn show(&self, ty: &Type) -> String {
        match ty {
            Type::Def(id) => self.defs[id.0 as usize].name.clone(),
            other => format!("{other:?}"),
        }
    }
}

/// Attributes of a definition.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Definition {
    pub name: &'static str,
    pub extensibility: Extensibility,
    pub nested: bool,
    pub hash_ids: bool,
}

impl Definition {
    fn with(self, kind: DefKind) -> Def {
        Def {
            name: self.name.into(),
            kind,
            extensibility: self.extensibility,
            nested: self.nested,
            auto_id: if self.hash_ids { AutoId::Hash } else { AutoId::Sequential },
            annotations: Vec::new(),
            doc: String::new(),
        }
    }
}

/// A member under construction: attributes refine the type that the Rust type gave it.
#[doc(hidden)]
#[derive(Debug)]
pub struct MemberBuilder<'a, M> {
    describe: &'a mut Describe,
    owner: &'static str,
    member: &'a mut Member,
    of: PhantomData<M>,
}

#[doc(hidden)]
impl<M: MessageField> MemberBuilder<'_, M> {
    pub fn id(self, id: u32) -> Self {
        self.member.explicit_id = Some(id);
        self
    }

    pub fn hash_id(self, name: &str) -> Self {
        self.id(hash_id(name))
    }

    pub fn key(self) -> Self {
        self.member.key = true;
        self
    }

    pub fn must_understand(self) -> Self {
        self.member.must_understand = true;
        self
    }

    pub fn try_construct(self, how: TryConstruct) -> Self {
        self.member.try_construct = how;
        self
    }

    pub fn annotation(self, name: &str, value: Lit) -> Self {
        let value = match value {
            Lit::Text(text) => Literal::String(text.into()),
            other => literal(other),
        };
        self.member.annotations.push(Annotation { name: name.into(), args: vec![("value".into(), value)] });
        self
    }

    pub fn idl(self, text: TypeText) -> Self {
        match self.describe.fit(&text, &self.member.ty) {
            Ok(ty) => self.member.ty = ty,
            Err(what) => self.describe.refuse(format!("{}.{}", self.owner, self.member.name), what),
        }
        self
    }

    pub fn default(self, value: Lit) -> Self {
        if M::from_lit(value).is_none() {
            let at = format!("{}.{}", self.owner, self.member.name);
            self.describe.refuse(
                at,
                format!("its type {} cannot hold the default {value:?}", self.describe.show(&self.member.ty)),
            );
        }
        self.member.default = Some(match (&self.member.ty, value) {
            (Type::Float32 | Type::Float64 | Type::Float128, Lit::Int(i)) => Literal::Float(i as f64),
            (Type::Char8 | Type::Char16, Lit::Int(i)) => Literal::Char(i as u32),
            (Type::String { .. } | Type::WString { .. }, Lit::Text(text)) => Literal::String(text.into()),
            _ => literal(value),
        });
        self
    }
}

fn literal(value: Lit) -> Literal {
    match value {
        Lit::Bool(b) => Literal::Bool(b),
        Lit::Int(i) => Literal::Int(i),
        Lit::Float(f) => Literal::Float(f),
        Lit::Char(c) => Literal::Char(c.into()),
        Lit::Text(name) => Literal::Enum(name.into()),
    }
}

/// The members of a structure under construction.
#[doc(hidden)]
#[derive(Debug)]
pub struct StructBuilder<'a> {
    describe: &'a mut Describe,
    name: &'static str,
    base: Option<(DefId, NodeId, u32)>,
    members: Vec<Member>,
    fields: Vec<Field>,
}

#[doc(hidden)]
impl StructBuilder<'_> {
    /// # Safety
    /// The structure has a field of type `M` at `offset`.
    pub unsafe fn member<M: MessageField>(&mut self, name: &str, offset: usize) -> MemberBuilder<'_, M> {
        let described = self.describe.of::<M>();
        // A structure with an offset beyond `u32` was refused when its node was reserved.
        self.fields.push(Field { offset: offset as u32, node: described.node });
        let mut member = Member::new(name, described.ty);
        member.optional = described.optional;
        member.external = described.external;
        self.members.push(member);
        let last = self.members.len() - 1;
        MemberBuilder { describe: self.describe, owner: self.name, member: &mut self.members[last], of: PhantomData }
    }

    /// # Safety
    /// The structure has a field of type `B` at `offset`.
    pub unsafe fn base<B: MessageField>(&mut self, offset: usize) {
        let described = self.describe.of::<B>();
        match described.ty {
            // A definition that is only reserved is a structure so far; the schema builder refuses
            // other bases.
            Type::Def(id) if !described.optional && !described.external => {
                self.base = Some((id, described.node, offset as u32));
            }
            _ => self.describe.refuse(self.name, "its base is not a structure"),
        }
    }
}

#[doc(hidden)]
impl Describe {
    /// # Safety
    /// `fill` describes every member of `T` that is on the wire, in the order of declaration.
    pub unsafe fn structure<T: MessageField>(
        &mut self,
        def: Definition,
        fill: fn(&mut StructBuilder<'_>),
    ) -> Described {
        let (id, described) = self.reserve_definition::<T>(def.name);
        let mut builder =
            StructBuilder { describe: self, name: def.name, base: None, members: Vec::new(), fields: Vec::new() };
        fill(&mut builder);
        let StructBuilder { base, members, fields, .. } = builder;
        let base_def = base.map(|(id, ..)| id);
        let base = base.map(|(_, node, offset)| (node, offset));
        self.defs[id.0 as usize] = def.with(DefKind::Struct { base: base_def, members });
        self.structs.push(PendingStruct { node: described.node, base, own: fields });
        described
    }

    /// Describes a fieldless enum from a value of each variant. The integer type in memory is found
    /// by reading the variants' bytes.
    ///
    /// # Safety
    /// `T` is a fieldless enum, and `variants` has all of its variants.
    pub unsafe fn enumeration<T: MessageField>(
        &mut self,
        def: Definition,
        bit_bound: u8,
        variants: &[Variant<T>],
    ) -> Described {
        let (id, described) = self.reserve_definition::<T>(def.name);
        let literal = |v: &Variant<T>| EnumLiteral {
            name: v.name.into(),
            // A number that does not fit is refused below.
            value: v.number as i32,
            is_default: v.is_default,
            annotations: Vec::new(),
        };
        let literals: Vec<EnumLiteral> = variants.iter().map(literal).collect();
        let mut values: Vec<i32> = literals.iter().map(|l| l.value).collect();
        values.sort_unstable();
        let least = -(1i128 << (bit_bound.clamp(1, 32) - 1));
        let most = (1i128 << bit_bound.clamp(1, 32)) - 1;
        for variant in variants {
            if !(least..=most.min(i128::from(i32::MAX))).contains(&variant.number) {
                let what = format!("{} is {}, which {bit_bound} bits cannot hold", variant.name, variant.number);
                self.refuse(def.name, what);
            }
        }
        let repr = enum_repr(variants).unwrap_or_else(|| {
            self.refuse(def.name, "its memory is not a plain integer; give it a #[repr(..)]");
            Scalar::U8
        });
        let kind = Kind::Enum(EnumNode { repr, literals: values.into() });
        self.define(id, &described, def.with(DefKind::Enum { bit_bound, literals }), kind);
        described
    }

    /// # Safety
    /// `cases` describes the type of every case in the order in which [`UnionCases`] numbers them.
    pub unsafe fn union<T: MessageField + UnionCases>(
        &mut self,
        def: Definition,
        switch: Described,
        key: bool,
        fill: fn(&mut UnionBuilder<'_>),
    ) -> Described {
        let (id, described) = self.reserve_definition::<T>(def.name);
        let mut builder = UnionBuilder {
            describe: self,
            name: def.name,
            switch: switch.ty.clone(),
            cases: Vec::new(),
            nodes: Vec::new(),
        };
        fill(&mut builder);
        let UnionBuilder { cases, nodes, .. } = builder;
        let discriminators = self.discriminators(def.name, &switch.ty, &cases);
        let access = VariantAccess::<T>::new(discriminators);
        let default_case = Some(T::default_value().selected().0);
        let kind = Kind::Union(UnionNode { cases: nodes.into(), default_case, access: Arc::new(access) });
        self.define(id, &described, def.with(DefKind::Union { discriminator: switch.ty, key, cases }), kind);
        described
    }

    /// The type of a discriminator given as IDL text.
    pub fn primitive(ty: Type) -> Described {
        Described { ty, node: NodeId(0), optional: false, external: false }
    }

    /// The type of a discriminator, or of a bitset's base, given as a Rust type.
    pub fn switch_type<T: MessageField>(&mut self) -> Described {
        self.of::<T>()
    }

    /// # Safety
    /// `T` is a `#[repr(transparent)]` wrapper of `I`, or has the same layout, and `I` is an
    /// unsigned integer.
    pub unsafe fn bitmask<T: MessageField, I: MessageField>(
        &mut self,
        def: Definition,
        bit_bound: u8,
        flags: &[(&'static str, u8)],
    ) -> Described {
        let flag =
            |(name, position): &(&str, u8)| Flag { name: (*name).into(), position: *position, annotations: Vec::new() };
        let flags = flags.iter().map(flag).collect();
        let bytes = usize::from(bit_bound.max(1)).div_ceil(8).next_power_of_two();
        if mem::size_of::<T>() != bytes {
            self.refuse(def.name, format!("a bit_bound of {bit_bound} needs an integer of {} bits", 8 * bytes));
        }
        // SAFETY: the caller upholds the contract of `bitmask`, which is that of `bits`.
        unsafe { self.bits::<T, I>(def, DefKind::Bitmask { bit_bound, flags }) }
    }

    /// # Safety
    /// The same contract as [`Describe::bitmask`].
    pub unsafe fn bitset<T: MessageField, I: MessageField>(
        &mut self,
        def: Definition,
        base: Option<Described>,
        fields: Vec<BitField>,
    ) -> Described {
        let base = base.and_then(|base| match base.ty {
            Type::Def(id) => Some(id),
            _ => None,
        });
        let bits_of = |fields: &[BitField]| fields.iter().map(|f| usize::from(f.width)).sum::<usize>();
        let mut width = bits_of(&fields);
        let mut next = base;
        while let Some(DefKind::Bitset { base, fields }) = next.map(|id| &self.defs[id.0 as usize].kind) {
            width += bits_of(fields);
            next = *base;
        }
        if width > 8 * mem::size_of::<T>() {
            self.refuse(def.name, format!("its fields take {width} bits, more than the integer has"));
        }
        // SAFETY: the caller upholds the contract of `bitset`, which is that of `bits`.
        unsafe { self.bits::<T, I>(def, DefKind::Bitset { base, fields }) }
    }

    /// # Safety
    /// The same contract as [`Describe::bitmask`].
    unsafe fn bits<T: MessageField, I: MessageField>(&mut self, def: Definition, kind: DefKind) -> Described {
        let (id, described) = self.reserve_definition::<T>(def.name);
        let inner = self.of::<I>();
        let memory = self.node(inner.node).kind.clone();
        let unsigned = matches!(memory, Kind::Scalar(s) if s.is_integer() && !s.is_signed());
        if !unsigned || mem::size_of::<T>() != mem::size_of::<I>() {
            self.refuse(def.name, "it must wrap an unsigned integer and nothing else");
        }
        self.define(id, &described, def.with(kind), memory);
        described
    }

    /// The discriminator of each case: its first label or, without labels, the smallest value that
    /// is no case's label.
    fn discriminators(&mut self, name: &'static str, switch: &Type, cases: &[Case]) -> Vec<i64> {
        let (least, most) = discriminator_range(switch);
        let mut labels = cases.iter().flat_map(|c| &c.labels);
        if let Some(label) = labels.find(|l| !(least..=most).contains(*l)) {
            self.refuse(name, format!("the label {label} is not a value of the discriminator"));
        }
        let def = match switch {
            Type::Def(id) => Some(&self.defs[id.0 as usize]),
            _ => None,
        };
        let free = free_discriminator(switch, def, cases);
        let all: Option<Vec<i64>> = cases.iter().map(|c| c.labels.first().copied().or(free)).collect();
        all.unwrap_or_else(|| {
            self.refuse(name, "no discriminator is left for a case without labels");
            Vec::new()
        })
    }
}

/// The smallest discriminator value, counted from zero, that is no case's label. `def` is the enum
/// that `switch` names, if it names one.
pub(super) fn free_discriminator(switch: &Type, def: Option<&Def>, cases: &[Case]) -> Option<i64> {
    let labels: BTreeSet<i64> = cases.iter().flat_map(|c| c.labels.iter().copied()).collect();
    match def.map(|d| &d.kind) {
        Some(DefKind::Enum { literals, .. }) => {
            literals.iter().map(|l| i64::from(l.value)).filter(|v| !labels.contains(v)).min()
        }
        // There is one candidate more than there are labels, so one is free unless the type's range
        // ends.
        _ => {
            let most = (labels.len() as i64).min(discriminator_range(switch).1);
            (0..=most).find(|v| !labels.contains(v))
        }
    }
}

pub(super) fn discriminator_range(switch: &Type) -> (i64, i64) {
    match switch {
        Type::Bool => (0, 1),
        Type::Octet | Type::Uint8 | Type::Char8 => (0, 0xFF),
        Type::Uint16 | Type::Char16 => (0, 0xFFFF),
        Type::Uint32 => (0, i64::from(u32::MAX)),
        Type::Int8 => (i8::MIN.into(), i8::MAX.into()),
        Type::Int16 => (i16::MIN.into(), i16::MAX.into()),
        Type::Int32 | Type::Def(_) => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    }
}

/// A variant of a fieldless enum.
#[doc(hidden)]
#[derive(Debug)]
pub struct Variant<T> {
    pub name: &'static str,
    pub value: T,
    pub number: i128,
    pub is_default: bool,
}

/// The integer type with which every variant's value in memory equals its number, if there is one.
fn enum_repr<T>(variants: &[Variant<T>]) -> Option<Scalar> {
    let candidates = match mem::size_of::<T>() {
        1 => [Scalar::U8, Scalar::I8],
        2 => [Scalar::U16, Scalar::I16],
        4 => [Scalar::U32, Scalar::I32],
        8 => [Scalar::U64, Scalar::I64],
        _ => return None,
    };
    let in_memory = |variant: &Variant<T>, repr: Scalar| {
        let at = (&raw const variant.value).cast::<u8>();
        // SAFETY: a fieldless enum larger than zero bytes consists of its tag, which is
        // initialised, and `repr` has the enum's size.
        unsafe { read_integer(at, repr) }
    };
    candidates.into_iter().find(|repr| variants.iter().all(|v| in_memory(v, *repr) == v.number))
}

/// Reads an integer or boolean from memory. Returns 0 for floating point.
///
/// # Safety
/// `at` is valid for reads of `scalar.size()` bytes. It needs no alignment.
pub(super) unsafe fn read_integer(at: *const u8, scalar: Scalar) -> i128 {
    // SAFETY: `at` is valid for reads of the scalar's size: the caller's contract. The reads are
    // unaligned.
    unsafe {
        match scalar {
            Scalar::Bool | Scalar::U8 => at.read().into(),
            Scalar::I8 => at.cast::<i8>().read().into(),
            Scalar::U16 => at.cast::<u16>().read_unaligned().into(),
            Scalar::I16 => at.cast::<i16>().read_unaligned().into(),
            Scalar::U32 => at.cast::<u32>().read_unaligned().into(),
            Scalar::I32 => at.cast::<i32>().read_unaligned().into(),
            Scalar::U64 => at.cast::<u64>().read_unaligned().into(),
            Scalar::I64 => at.cast::<i64>().read_unaligned().into(),
            Scalar::F32 | Scalar::F64 | Scalar::F128 => 0,
        }
    }
}

/// The cases of a union under construction.
#[doc(hidden)]
#[derive(Debug)]
pub struct UnionBuilder<'a> {
    describe: &'a mut Describe,
    name: &'static str,
    switch: Type,
    cases: Vec<Case>,
    nodes: Vec<NodeId>,
}

#[doc(hidden)]
impl UnionBuilder<'_> {
    /// # Safety
    /// `M` is the type of the next case.
    pub unsafe fn case<M: MessageField>(
        &mut self,
        name: &str,
        labels: &[Lit],
        is_default: bool,
    ) -> MemberBuilder<'_, M> {
        let described = self.describe.of::<M>();
        let labels: Vec<i64> = labels.iter().filter_map(|l| self.label(*l)).collect();
        let mut case = Case { labels, is_default, member: Member::new(name, described.ty) };
        case.member.external = described.external;
        if described.optional {
            self.describe.refuse(format!("{}.{name}", self.name), "a case of a union cannot be optional");
        }
        self.cases.push(case);
        self.nodes.push(described.node);
        let last = self.cases.len() - 1;
        let member = &mut self.cases[last].member;
        MemberBuilder { describe: self.describe, owner: self.name, member, of: PhantomData }
    }

    fn label(&mut self, label: Lit) -> Option<i64> {
        let value = match (label, &self.switch) {
            (Lit::Bool(b), Type::Bool) => Some(i64::from(b)),
            (Lit::Char(c), Type::Char8 | Type::Char16) => Some(i64::from(u32::from(c))),
            (Lit::Int(i), Type::Bool) => i64::try_from(i).ok().filter(|i| (0..=1).contains(i)),
            (Lit::Int(i), _) => i64::try_from(i).ok(),
            (Lit::Text(name), Type::Def(id)) => match &self.describe.defs[id.0 as usize].kind {
                DefKind::Enum { literals, .. } => {
                    let name = name.rsplit("::").next();
                    literals.iter().find(|l| Some(&*l.name) == name).map(|l| i64::from(l.value))
                }
                _ => None,
            },
            _ => None,
        };
        if value.is_none() {
            self.describe.refuse(self.name, format!("the label {label:?} is not a value of the discriminator"));
        }
        value
    }
}

/// True if both types have the same bytes in memory, so that an attribute may replace one by the
/// other.
fn same_memory(want: &Type, have: &Type) -> bool {
    let class = |ty: &Type| match ty {
        Type::Octet | Type::Uint8 | Type::Char8 => Some(Scalar::U8),
        Type::Uint16 | Type::Char16 => Some(Scalar::U16),
        _ => None,
    };
    let is_text = |ty: &Type| matches!(ty, Type::String { .. } | Type::WString { .. });
    want == have || is_text(want) && is_text(have) || class(want).is_some() && class(want) == class(have)
}

/// True if `name` is `full`, or its end after a `::`.
fn same_name(name: &str, full: &str) -> bool {
    let name = name.trim_start_matches("::");
    full.strip_suffix(name).is_some_and(|front| front.is_empty() || front.ends_with("::"))
}

fn text_of(text: &TypeText) -> String {
    match text {
        TypeText::Is(ty) => format!("{ty:?}"),
        TypeText::Named(name) => name.to_string(),
        TypeText::Sequence(..) => "of a sequence".into(),
        TypeText::Array(_, dims) => format!("of an array {dims:?}"),
        TypeText::Map(..) => "of a map".into(),
    }
}
