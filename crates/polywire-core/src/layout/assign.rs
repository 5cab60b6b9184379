//! Stores values in a [`Record`](super::Record). [`Record::set`](super::Record::set) and
//! [`Record::resize`](super::Record::resize) call this. Every value is checked against the schema
//! before it is stored, so a record never holds a value that its schema does not allow.

use alloc::{
    format,
    string::{String, ToString},
};

use super::{
    Char16, Float128, Kind, NodeId, OutOfMemory, PathError, Scalar, Value, ValueRef,
    dynamic::{Plan, assign_text, discriminator_of, integer_bytes},
    path::{Segment, Target, cases, no_member, text},
    record::Failure,
    view::{ListRef, TypedPlace, member, members, selected_case},
};
use crate::schema::{DefKind, Type};

/// A writer to one record, which it borrows exclusively.
#[derive(Clone, Copy)]
pub(super) struct Assign<'a> {
    plan: &'a Plan,
    root: TypedPlace<'a>,
}

type Done = Result<(), Failure>;

impl<'a> Assign<'a> {
    /// `root` is the root of a record of this plan, borrowed exclusively for `'a`.
    pub(super) fn new(plan: &'a Plan, root: TypedPlace<'a>) -> Assign<'a> {
        Assign { plan, root }
    }

    pub(super) fn root(&self) -> TypedPlace<'a> {
        self.root
    }

    /// Makes a step possible: an absent value becomes present, a union selects the named case, a
    /// map gets the key.
    pub(super) fn prepare(&self, spot: TypedPlace<'a>, step: &Segment) -> Result<(), PathError> {
        self.try_prepare(spot, step).map_err(|failure| failure.at(text(core::slice::from_ref(step))))
    }

    fn try_prepare(&self, spot: TypedPlace<'a>, step: &Segment) -> Done {
        let spot = self.present(spot)?;
        match (spot.kind(), step) {
            (Kind::Union(_), Segment::Name(name)) => self.select(spot, name).map(|_| ()),
            (Kind::Map(_), Segment::Key(key)) => self.add_key(spot, &Value::Text(key.clone())),
            (Kind::Map(_), Segment::Index(key)) => self.add_key(spot, &Value::Int(*key)),
            _ => Ok(()),
        }
    }

    pub(super) fn resize(&self, target: Target<'a>, len: usize) -> Done {
        let Target::TypedPlace(spot) = target else { return misfit("an array keeps its length") };
        let spot = self.present(spot)?;
        self.resize_sequence(spot, len).map(|_| ())
    }

    pub(super) fn put(&self, target: Target<'a>, value: &Value) -> Done {
        match target {
            Target::Row(row) => self.put_row(row, value),
            Target::TypedPlace(spot) => self.put_spot(spot, value),
        }
    }

    fn put_spot(&self, spot: TypedPlace<'a>, value: &Value) -> Done {
        if let (Kind::Optional(_), Value::Absent) = (spot.kind(), value) {
            // SAFETY: the spot holds an optional of the record, which is borrowed exclusively.
            unsafe { self.plan.make_absent(spot.at.cast_mut()) };
            return Ok(());
        }
        let spot = self.present(spot)?;
        match (spot.kind(), value) {
            (_, Value::Absent) => misfit("it is not optional, so it cannot be absent"),
            (Kind::Scalar(scalar), _) => self.put_scalar(spot, *scalar, value),
            (Kind::Enum(node), _) => {
                let number = enum_value(spot, value)?;
                self.store_integer(spot, node.repr, number.into())
            }
            (Kind::String { shared: false, .. }, Value::Text(text)) => {
                check_text(spot.ty, text)?;
                // SAFETY: the spot holds a string of the record, which is borrowed exclusively.
                Ok(assign_text(unsafe { &mut *spot.at.cast_mut().cast::<String>() }, text)?)
            }
            (Kind::Sequence(_), _) => self.put_sequence(spot, value),
            (Kind::Array { .. }, _) => match spot.view() {
                ValueRef::List(row) => self.put_row(row, value),
                _ => misfit("it is not a list"),
            },
            (Kind::Struct { .. }, Value::Fields(fields)) => {
                fields.iter().try_for_each(|(name, value)| match member(spot, name) {
                    Some(part) => self.put_spot(part, value).map_err(|f| f.below(name)),
                    None => Err(unknown(name, members(spot).iter().map(|(m, _)| m.name.as_str()))),
                })
            }
            (Kind::Union(_), _) => self.put_union(spot, value),
            (Kind::Map(_), Value::Entries(_) | Value::Fields(_)) => self.put_map(spot, value),
            _ => misfit(format!("{} cannot be {value:?}", kind_name(spot))),
        }
    }

    /// Returns the value inside an optional or box. An absent optional becomes present, with its
    /// default.
    fn present(&self, mut spot: TypedPlace<'a>) -> Result<TypedPlace<'a>, OutOfMemory> {
        loop {
            let at = spot.at.cast_mut();
            spot = match spot.kind() {
                // SAFETY: the spot holds a value of its node in the record, which is borrowed
                // exclusively.
                Kind::Optional(node) => unsafe {
                    let was_absent = node.access.get(at).is_null();
                    let value = self.plan.make_present(spot.node, at)?;
                    if was_absent {
                        // The payload may hold a value from an earlier use.
                        self.plan.reset(node.inner, value)?;
                    }
                    spot.part(spot.ty, node.inner, value)
                },
                // SAFETY: the spot holds a box of the record, which is borrowed exclusively.
                Kind::Boxed(node) => unsafe { spot.part(spot.ty, node.inner, node.access.get_mut(at)) },
                _ => return Ok(spot),
            };
        }
    }

    fn put_scalar(&self, spot: TypedPlace<'a>, scalar: Scalar, value: &Value) -> Done {
        let number = match value {
            Value::Float(f) => *f,
            Value::Int(i) if !scalar.is_integer() && scalar != Scalar::Bool => *i as f64,
            _ => return self.store_integer(spot, scalar, integer_value(spot, scalar, value)?),
        };
        let at = spot.at.cast_mut();
        // SAFETY: the spot holds a number of this type in the record, which is borrowed
        // exclusively; records align their members.
        unsafe {
            match scalar {
                Scalar::F32 => at.cast::<f32>().write(number as f32),
                Scalar::F64 => at.cast::<f64>().write(number),
                Scalar::F128 => at.cast::<Float128>().write(number.into()),
                _ => return misfit(format!("{} cannot be {number}", kind_name(spot))),
            }
        }
        Ok(())
    }

    fn store_integer(&self, spot: TypedPlace<'a>, scalar: Scalar, number: i128) -> Done {
        let Some(bytes) = integer_bytes(scalar, number) else {
            return misfit(format!("{number} is out of range"));
        };
        // SAFETY: the spot holds an integer of this type in the record, which is borrowed
        // exclusively, and `integer_bytes` checked the range.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), spot.at.cast_mut(), scalar.size()) };
        Ok(())
    }

    fn resize_sequence(&self, spot: TypedPlace<'a>, len: usize) -> Result<*mut u8, Failure> {
        let Type::Sequence { bound, .. } = spot.ty else { return misfit("it is not a sequence") };
        if *bound != 0 && len > *bound as usize {
            return misfit(format!("{len} elements are more than its bound {bound}"));
        }
        // SAFETY: the spot holds a sequence of the record, which is borrowed exclusively.
        Ok(unsafe { self.plan.resize(spot.node, spot.at.cast_mut(), len)? })
    }

    fn put_sequence(&self, spot: TypedPlace<'a>, value: &Value) -> Done {
        let len = match value {
            Value::List(values) => values.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => return misfit(format!("a sequence cannot be {value:?}")),
        };
        // Shrinking to zero first gives every element its default before it is set.
        self.resize_sequence(spot, 0)?;
        self.resize_sequence(spot, len)?;
        match spot.view() {
            ValueRef::List(row) => self.put_row(row, value),
            _ => Ok(()),
        }
    }

    fn put_row(&self, row: ListRef<'a>, value: &Value) -> Done {
        let len = match value {
            Value::List(values) => values.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => return misfit(format!("a list cannot be {value:?}")),
        };
        if len != row.len() {
            return misfit(format!("{len} values for {} elements", row.len()));
        }
        match value {
            Value::Bytes(bytes) if row.as_bytes().is_some() => {
                if let (Some(_), Err(first)) = (bytes.first(), row.row(0)) {
                    // SAFETY: `len` bytes lie there in the record, which is borrowed exclusively.
                    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), first.at.cast_mut(), len) };
                }
                Ok(())
            }
            Value::List(values) => values.iter().enumerate().try_for_each(|(i, value)| {
                let element = row.row(i).map_or_else(Target::TypedPlace, Target::Row);
                self.put(element, value).map_err(|f| f.below(&format!("[{i}]")))
            }),
            _ => misfit("its elements are not octets"),
        }
    }

    /// Selects a case by name and returns its value.
    fn select(&self, spot: TypedPlace<'a>, name: &str) -> Result<TypedPlace<'a>, Failure> {
        if let Some((case, value)) = selected_case(spot)
            && case.member.name == name
        {
            return Ok(value);
        }
        let Some(number) = cases(spot).position(|case| case == name) else { return Err(unknown(name, cases(spot))) };
        let discriminator = spot.def().and_then(|(id, _)| discriminator_of(spot.schema, id, number));
        let Some(discriminator) = discriminator else { return misfit(format!("no discriminator chooses '{name}'")) };
        self.select_case(spot, discriminator, Some(number as u32))?;
        selected_case(spot).map(|(_, value)| value).ok_or(Failure::OutOfMemory)
    }

    fn select_case(&self, spot: TypedPlace<'a>, discriminator: i64, case: Option<u32>) -> Done {
        // SAFETY: the spot holds a union of the record, which is borrowed exclusively, and the
        // union has this case.
        unsafe { self.plan.select(spot.node, spot.at.cast_mut(), discriminator, case)? };
        Ok(())
    }

    fn put_union(&self, spot: TypedPlace<'a>, value: &Value) -> Done {
        if let Value::Fields(fields) = value {
            let [(name, value)] = fields.as_slice() else { return misfit("a union has one case") };
            let case = self.select(spot, name)?;
            return self.put_spot(case, value).map_err(|f| f.below(name));
        }
        let Some(DefKind::Union { discriminator, cases, .. }) = spot.def().map(|(_, def)| &def.kind) else {
            return misfit("it is not a union");
        };
        let number = discriminator_value(spot, discriminator, value)?;
        let case = cases.iter().position(|c| c.labels.contains(&number));
        let case = case.or(cases.iter().position(|c| c.is_default));
        self.select_case(spot, number, case.map(|c| c as u32))
    }

    fn put_map(&self, spot: TypedPlace<'a>, value: &Value) -> Done {
        let len = match value {
            Value::Entries(entries) => entries.len(),
            Value::Fields(fields) => fields.len(),
            _ => 0,
        };
        if let Type::Map { bound: bound @ 1.., .. } = spot.ty
            && len > *bound as usize
        {
            return misfit(format!("{len} entries are more than its bound {bound}"));
        }
        // SAFETY: the spot holds a map of the record, which is borrowed exclusively.
        unsafe { self.plan.clear_map(spot.at.cast_mut()) };
        match value {
            Value::Entries(entries) => entries.iter().try_for_each(|(k, v)| self.insert(spot, k, Some(v))),
            Value::Fields(fields) => {
                fields.iter().try_for_each(|(k, v)| self.insert(spot, &Value::Text(k.clone()), Some(v)))
            }
            _ => Ok(()),
        }
    }

    /// Inserts a key with a default value, unless the map has the key.
    fn add_key(&self, spot: TypedPlace<'a>, key: &Value) -> Done {
        let ValueRef::Map(map) = spot.view() else { return misfit("it is not a map") };
        let is_there = |found: &ValueRef<'_>| match key {
            Value::Text(text) => found.as_str() == Some(text),
            Value::Int(i) => found.as_i64().map(i128::from).or(found.as_u64().map(i128::from)) == Some(*i),
            _ => false,
        };
        if map.entries().iter().any(|(key, _)| is_there(key)) {
            return Ok(());
        }
        if let Type::Map { bound: bound @ 1.., .. } = spot.ty
            && map.len() >= *bound as usize
        {
            return misfit(format!("one entry more than its bound {bound}"));
        }
        self.insert(spot, key, None)
    }

    fn insert(&self, spot: TypedPlace<'a>, key: &Value, value: Option<&Value>) -> Done {
        let (Kind::Map(node), Type::Map { key: key_type, value: value_type, .. }) = (spot.kind(), spot.ty) else {
            return misfit("it is not a map");
        };
        let map = spot.at.cast_mut();
        // SAFETY: the spot holds a map of the record, which is borrowed exclusively; the plan's
        // entries have these nodes.
        unsafe {
            let entry = self.plan.spare_entry(spot.node, map)?;
            self.put_spot(spot.part(key_type, node.key, entry), key)?;
            if let Some(value) = value {
                let at = entry.add(self.plan.value_offset(spot.node));
                self.put_spot(spot.part(value_type, node.value, at), value)?;
            }
            self.plan.insert_spare(spot.node, map)?;
        }
        Ok(())
    }
}

/// The integer that `value` represents in a place of type `spot.ty`.
fn integer_value(spot: TypedPlace<'_>, scalar: Scalar, value: &Value) -> Result<i128, Failure> {
    match (spot.ty, value) {
        (_, Value::Bool(b)) if scalar == Scalar::Bool => Ok(i128::from(*b)),
        (_, Value::Int(i)) if scalar != Scalar::Bool => Ok(*i),
        (Type::Char8, Value::Text(text)) => one_char(text).map(|c| u32::from(c).into()),
        (Type::Char16, Value::Text(text)) => {
            let c = Char16::try_from(one_char(text)?);
            c.map(|c| c.0.into()).map_err(|_| Failure::DoesNotFit(format!("{text:?} is not a single UTF-16 unit")))
        }
        (Type::Def(_), Value::List(names)) => flags(spot, names),
        (Type::Def(id), Value::Fields(fields)) => {
            let all = spot.schema.bit_fields(*id);
            let mut bits = match spot.view() {
                ValueRef::Bitset(bitset) => bitset.bits(),
                _ => return misfit("it has no fields"),
            };
            for (name, value) in fields {
                let named = |f: &&&crate::schema::BitField| f.name.as_ref() == Some(name);
                let Some(field) = all.iter().find(named) else {
                    return Err(unknown(name, all.iter().filter_map(|f| f.name.as_deref())));
                };
                let mask = u64::MAX >> (64 - field.width.clamp(1, 64));
                let number = match value {
                    Value::Int(i) => *i,
                    Value::Bool(b) => i128::from(*b),
                    _ => return misfit(format!("the bits '{name}' cannot be {value:?}")),
                };
                let least = -(i128::from(mask >> 1) + 1);
                if !(least..=i128::from(mask)).contains(&number) {
                    return misfit(format!("{number} does not fit the {} bits of '{name}'", field.width));
                }
                bits = bits & !(mask << field.position) | (number as u64 & mask) << field.position;
            }
            Ok(bits.into())
        }
        _ => misfit(format!("{} cannot be {value:?}", kind_name(spot))),
    }
}

fn flags(spot: TypedPlace<'_>, names: &[Value]) -> Result<i128, Failure> {
    let Some(DefKind::Bitmask { flags, .. }) = spot.def().map(|(_, def)| &def.kind) else {
        return misfit("it has no flags");
    };
    names.iter().try_fold(0i128, |bits, name| match name {
        Value::Text(name) => match flags.iter().find(|f| f.name == *name) {
            Some(flag) => Ok(bits | 1 << flag.position),
            None => Err(unknown(name, flags.iter().map(|f| f.name.as_str()))),
        },
        other => misfit(format!("{other:?} is not the name of a flag")),
    })
}

fn enum_value(spot: TypedPlace<'_>, value: &Value) -> Result<i32, Failure> {
    literal_of(spot.ty, spot, value)
}

fn literal_of(ty: &Type, spot: TypedPlace<'_>, value: &Value) -> Result<i32, Failure> {
    let Some(DefKind::Enum { literals, .. }) = spot.schema.def_of(ty).map(|d| &d.kind) else {
        return misfit("it is not an enum");
    };
    let found = literals.iter().find(|l| match value {
        Value::Text(name) => l.name == *name,
        Value::Int(i) => i128::from(l.value) == *i,
        _ => false,
    });
    match (found, value) {
        (Some(literal), _) => Ok(literal.value),
        (None, Value::Text(name)) => Err(unknown(name, literals.iter().map(|l| l.name.as_str()))),
        (None, other) => misfit(format!("{other:?} is not a literal")),
    }
}

fn discriminator_value(spot: TypedPlace<'_>, ty: &Type, value: &Value) -> Result<i64, Failure> {
    let ty = spot.schema.resolve(ty);
    let number = match (ty, value) {
        (Type::Def(_), _) => return literal_of(ty, spot, value).map(i64::from),
        (Type::Bool, Value::Bool(b)) => i128::from(*b),
        (Type::Char8 | Type::Char16, Value::Text(text)) => u32::from(one_char(text)?).into(),
        (_, Value::Int(i)) => *i,
        _ => return misfit(format!("the discriminator cannot be {value:?}")),
    };
    let (least, most) = super::describe::discriminator_range(ty);
    let in_range = i64::try_from(number).ok().filter(|n| (least..=most).contains(n));
    in_range.ok_or_else(|| Failure::DoesNotFit(format!("{number} is not a value of the discriminator")))
}

fn one_char(text: &str) -> Result<char, Failure> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) => Ok(c),
        _ => misfit(format!("{text:?} is not a single character")),
    }
}

fn check_text(ty: &Type, text: &str) -> Done {
    let (len, bound) = match ty {
        Type::String { bound } => (text.len(), *bound),
        Type::WString { bound } => (text.encode_utf16().count(), *bound),
        _ => (0, 0),
    };
    match bound != 0 && len > bound as usize {
        true => misfit(format!("a length of {len} is more than its bound {bound}")),
        false => Ok(()),
    }
}

fn kind_name(spot: TypedPlace<'_>) -> String {
    match spot.def() {
        Some((_, def)) => def.name.clone(),
        None => format!("{:?}", spot.ty),
    }
}

fn unknown<'n>(name: &str, there: impl Iterator<Item = &'n str>) -> Failure {
    match no_member(String::new(), name, there) {
        PathError::NoMember { name, there, .. } => Failure::NoMember(name, there),
        other => Failure::DoesNotFit(other.to_string()),
    }
}

fn misfit<T>(why: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::DoesNotFit(why.into()))
}

impl Failure {
    /// Puts the name of a member or element in front of the message.
    fn below(self, part: &str) -> Failure {
        match self {
            Failure::DoesNotFit(why) => Failure::DoesNotFit(format!("{part}: {why}")),
            other => other,
        }
    }
}

impl Plan {
    fn value_offset(&self, map: NodeId) -> usize {
        match self.place(map).what {
            super::dynamic::What::Map { value_at, .. } => value_at,
            _ => 0,
        }
    }
}
