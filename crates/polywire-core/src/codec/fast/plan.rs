//! Plans: the fields and slots for each value of a type. [`bind`](super::bind) makes them, and both
//! dialects follow them. This file also assigns slots ([`Slots`]). It reads templates only.

use alloc::{boxed::Box, collections::BTreeMap, format, rc::Rc, string::String, sync::Arc, vec::Vec};

use super::{
    field::{Field, FieldKind, Initial, Operator},
    numbers::{Ops, Uses},
    template::{self, Dictionary, FieldType, Name, OperatorKind},
};
use crate::{
    layout::Scalar,
    program::{
        Block, PathId,
        state::{Bank, Policy},
    },
};

/// How a value of the type is encoded.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    /// A number, boolean, character or enum.
    Scalar(Arc<Field>),
    /// A structure of exponent and mantissa.
    Decimal(Arc<Field>),
    /// The exponent or mantissa of a decimal, which is kept as a word.
    Word(u8),
    /// A string.
    Text(Arc<Field>),
    /// A sequence or array of octets.
    Octets(Arc<Field>),
    /// A `long double`, as a byte vector.
    Wide,
    /// A structure.
    Group(Rc<Group>),
    /// A sequence or array.
    Sequence(Rc<Sequence>),
    /// A map.
    Map(Rc<Map>),
    /// A union: a discriminator field and a group for each case.
    Union(Rc<Union>),
    /// A message of any template, as a union.
    Any(Rc<Any>),
    /// A recursive type: an index into [`Plans::referred`].
    Refer(usize),
}

/// Members in the order of their fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub items: Vec<Item>,
    /// Number of bits in the surrounding presence map.
    pub bits: u32,
    /// True if the group has a presence map of its own.
    pub own: bool,
    /// True if all previous values are forgotten before it.
    pub reset: bool,
}

/// A member.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Name of the member. `None` for a field that the type lacks.
    pub member: Option<String>,
    pub presence: Presence,
    pub plan: Plan,
}

/// How the absence of a member is encoded.
#[derive(Clone, Debug)]
pub(super) enum Presence {
    /// The member is always present.
    Always,
    /// By a null value of the field or of the sequence's length.
    Field(Arc<Field>),
    /// By a bit of the presence map.
    Bit,
}

#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub length: Arc<Field>,
    pub element: Plan,
    /// Number of bits in an element's presence map.
    pub bits: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Map {
    pub length: Arc<Field>,
    pub key: Plan,
    pub key_bits: u32,
    pub value: Plan,
    pub value_bits: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Union {
    pub discriminator: Arc<Field>,
    /// Name and plan of each case, in order.
    pub cases: Vec<(String, Plan)>,
    /// Index of each case by name.
    pub by_name: BTreeMap<String, usize>,
    /// Number of bits in the union's own presence map.
    pub bits: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Any {
    pub id: Arc<Field>,
    pub cases: Vec<(String, u32, Plan)>,
    /// Index of each case by name.
    pub by_name: BTreeMap<String, usize>,
    pub bits: u32,
}

/// The plans of a type.
#[derive(Debug)]
pub(super) struct Plans {
    pub root: Plan,
    /// The template id and its field. `None` if the root is a [`Plan::Any`].
    pub id: Option<(u32, Arc<Field>)>,
    pub referred: Vec<Plan>,
    pub bank: Bank,
    /// How fields use each slot.
    pub uses: Uses,
    pub policy: Policy,
}

impl Plans {
    /// The operations that `fill` emits.
    pub fn ops(&self, path: PathId, fill: impl FnOnce(&mut Ops, &Uses)) -> Block {
        let mut ops = Ops::new(path);
        fill(&mut ops, &self.uses);
        ops.into_block()
    }
}

impl Plan {
    /// Number of bits in the surrounding presence map.
    pub fn bits(&self) -> u32 {
        match self {
            Plan::Scalar(field) | Plan::Decimal(field) | Plan::Text(field) | Plan::Octets(field) => field.bits(),
            Plan::Group(group) if !group.own => group.bits,
            Plan::Sequence(sequence) => sequence.length.bits(),
            Plan::Map(map) => map.length.bits(),
            Plan::Word(_) | Plan::Wide | Plan::Group(_) | Plan::Union(_) | Plan::Any(_) | Plan::Refer(_) => 0,
        }
    }

    /// A lower bound of the size in bytes, including presence maps.
    pub fn min_wire(&self) -> u32 {
        match self {
            Plan::Scalar(field) | Plan::Decimal(field) | Plan::Text(field) | Plan::Octets(field) => field.min_wire(),
            Plan::Group(group) => {
                let items = group.items.iter().map(Item::min_wire).fold(0, u32::saturating_add);
                items.saturating_add(u32::from(group.own && group.bits > 0))
            }
            Plan::Sequence(sequence) => sequence.length.min_wire(),
            Plan::Map(map) => map.length.min_wire(),
            Plan::Union(_) | Plan::Any(_) => 1,
            Plan::Word(_) | Plan::Wide | Plan::Refer(_) => 0,
        }
    }
}

impl Item {
    fn min_wire(&self) -> u32 {
        match &self.presence {
            Presence::Always => self.plan.min_wire(),
            Presence::Field(field) => field.min_wire(),
            Presence::Bit => 0,
        }
    }
}

impl Group {
    /// A group of items.
    pub fn new(items: Vec<Item>, own: bool) -> Group {
        let bit = |item: &Item| u32::from(matches!(item.presence, Presence::Bit)) + item.plan.bits();
        Group { bits: items.iter().map(bit).sum(), items, own, reset: false }
    }
}

/// The dictionaries that apply to a field.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub template: Name,
    pub type_ref: Option<Name>,
}

impl Scope {
    /// The scope inside an element that may have a `typeRef`.
    pub fn of_type(&self, type_ref: &Option<Name>) -> Scope {
        Scope { template: self.template.clone(), type_ref: type_ref.clone().or_else(|| self.type_ref.clone()) }
    }
}

/// Assigns slots to dictionary keys.
#[derive(Default)]
pub(super) struct Slots {
    /// Slots by dictionary and key. The number distinguishes the parts of a value.
    values: BTreeMap<(String, Name, u8), u32>,
    texts: BTreeMap<(String, Name), u32>,
    uses: Uses,
    policy: Policy,
}

impl Slots {
    /// No slots yet.
    pub fn new(policy: Policy) -> Slots {
        Slots { policy, ..Slots::default() }
    }

    /// The number of slots assigned.
    pub fn bank(&self) -> Bank {
        Bank { slots: self.values.len() as u32, texts: self.texts.len() as u32 }
    }

    /// How fields use each slot.
    pub fn uses(self) -> Uses {
        self.uses
    }

    fn value(&mut self, dictionary: &str, key: &Name, part: u8) -> u32 {
        let next = self.values.len() as u32;
        *self.values.entry((dictionary.into(), key.clone(), part)).or_insert(next)
    }

    fn text(&mut self, dictionary: &str, key: &Name) -> u32 {
        let next = self.texts.len() as u32;
        *self.texts.entry((dictionary.into(), key.clone())).or_insert(next)
    }

    /// The field of template ids: a mandatory copy field in the global dictionary, with a key that
    /// no document can contain. The specification allows both ends to agree on a template by other
    /// means; then `first` is the initial value.
    pub fn template_id(&mut self, first: Option<u32>) -> Arc<Field> {
        let field = template::Field { name: Name::local(" id"), ..template::Field::new("", FieldType::U32) };
        let mut field = field.with(OperatorKind::Copy);
        field.operator.initial = first.map(|id| template::Initial::Int(id.into()));
        Arc::new(self.field(&field, &Scope::default()))
    }

    /// Assigns slots to a template's field.
    pub fn field(&mut self, field: &template::Field, scope: &Scope) -> Field {
        let int = |bits| FieldType::Int { signed: true, bits };
        let none = template::Operator::default();
        let (bits, mantissa) = match &field.mantissa {
            Some(mantissa) => (32, mantissa),
            // Without an operator, the two forms have the same bytes: one integer after the other.
            // An exponent beyond 32 bits is out of the decimal's range.
            None if field.ty == FieldType::Decimal && field.operator.kind == OperatorKind::None => (64, &none),
            None => return self.part(field, (field.ty, &field.operator, field.optional), scope),
        };
        // Exponent and mantissa share the decimal's name, but have separate previous values.
        let part = |name: &str| template::Field {
            name: Name { local: format!("{} {name}", field.name.local), ..field.name.clone() },
            ..field.clone()
        };
        let exponent = self.part(&part("exponent"), (int(bits), &field.operator, field.optional), scope);
        let mantissa = self.part(&part("mantissa"), (int(64), mantissa, false), scope);
        Field {
            kind: FieldKind::Split(Box::new([exponent, mantissa])),
            optional: field.optional,
            operator: Operator::None,
            slot: 0,
            text: 0,
            tag: tag(FieldType::Decimal),
            initial: None,
            policy: self.policy,
        }
    }

    fn part(
        &mut self,
        field: &template::Field,
        (ty, operator, optional): (FieldType, &template::Operator, bool),
        scope: &Scope,
    ) -> Field {
        let key = operator.key.as_ref().unwrap_or(&field.name);
        let (mut slot, mut text) = (0, 0);
        if operator.kind.has_dictionary() {
            let dictionary = dictionary(&operator.dictionary, scope);
            slot = self.value(&dictionary, key, 0);
            text = match ty {
                FieldType::Int { .. } => 0,
                FieldType::Decimal => self.value(&dictionary, key, 1),
                _ => self.text(&dictionary, key),
            };
        }
        let field = Field {
            kind: kind(ty),
            optional,
            operator: operator.kind,
            slot,
            text,
            tag: tag(ty),
            initial: operator.initial.as_ref().map(initial),
            policy: self.policy,
        };
        self.uses.note(&field);
        field
    }
}

/// The name of a dictionary: one for each template, one for each type, the global one, or a
/// user-defined one.
fn dictionary(dictionary: &Dictionary, scope: &Scope) -> String {
    match dictionary {
        Dictionary::Global => "global".into(),
        Dictionary::Template => format!("template {}", scope.template),
        Dictionary::Type => match &scope.type_ref {
            Some(name) => format!("type {name}"),
            None => "type".into(),
        },
        Dictionary::Named(name) => format!("named {name}"),
    }
}

fn kind(ty: FieldType) -> FieldKind {
    match ty {
        FieldType::Int { signed, bits } => FieldKind::Int(match (signed, bits) {
            (false, 8) => Scalar::U8,
            (false, 16) => Scalar::U16,
            (false, 32) => Scalar::U32,
            (false, _) => Scalar::U64,
            (true, 8) => Scalar::I8,
            (true, 16) => Scalar::I16,
            (true, 32) => Scalar::I32,
            (true, _) => Scalar::I64,
        }),
        FieldType::Decimal => FieldKind::Decimal,
        FieldType::Ascii => FieldKind::Ascii,
        FieldType::Unicode => FieldKind::Unicode,
        FieldType::Bytes => FieldKind::Bytes,
    }
}

/// The tag of a slot's value. Each type has its own, because a previous value of another type is an
/// error (D4).
fn tag(ty: FieldType) -> u8 {
    match ty {
        FieldType::Int { signed, bits } => 2 + 2 * bits.trailing_zeros() as u8 + u8::from(signed),
        FieldType::Decimal => 20,
        FieldType::Ascii => 21,
        FieldType::Unicode => 22,
        FieldType::Bytes => 23,
    }
}

fn initial(value: &template::Initial) -> Initial {
    match value {
        template::Initial::Int(value) => Initial::Int(*value as u64),
        template::Initial::Decimal { exponent, mantissa } => {
            Initial::Decimal { exponent: (*exponent).into(), mantissa: *mantissa }
        }
        template::Initial::Bytes(bytes) => Initial::Bytes(bytes.clone()),
    }
}
