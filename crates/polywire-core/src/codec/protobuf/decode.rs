//! The decoding dialect of Protobuf.

use alloc::{collections::BTreeMap, sync::Arc, vec, vec::Vec};
use core::{cell::Cell, str};

use super::{
    delimiters::{self, MAX_REPEAT_KEYS, OnRepeat},
    encode::{NO_KEY, is_key},
    get,
    kinds::{Form, field_numbers, tag},
    put, repeated,
};
use crate::{
    codec::lower::{CaseIn, DecodeDialect, DecodeWalk, LowerError, Lowered, MemberIn, Slot, UnionIn},
    layout::{Kind, Scalar},
    program::{
        Arm, Block, ExpectedPrefix, FaultKind, MemberKey, Op, OpKind, PathId, Place, PrefixTag, SequenceDialect,
        SliceKernel, Source, SymbolTable, TextForm, Wire,
    },
    schema::{DefId, DefKind, Schema, Type},
};

/// The decoding dialect.
pub(super) struct Decode<'a> {
    schema: &'a Schema,
    /// Where the next value is read from. The dialect's methods have no argument for it.
    next: Cell<From>,
    /// True if there are fields whose repetition is [refused](OnRepeat::Refused).
    merges: Cell<bool>,
}

/// Where a value is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// A single field. A sequence, array or map is in a message of its own.
    Field,
    /// Repeated fields, one for each element, from the first one on.
    Elements,
    /// Repeated fields that continue after other fields.
    MoreElements,
    /// No field: the message omits a zero or empty value.
    Nothing,
}

impl From {
    fn source(self, dialect: &'static SequenceDialect) -> Source {
        if self == From::MoreElements { Source::Append(dialect) } else { Source::Dialect(dialect) }
    }
}

const MISSING: FaultKind = FaultKind::MissingMember;

impl DecodeDialect for Decode<'_> {
    fn scalar(&self, walk: &mut DecodeWalk<'_>, ty: &Type, wire: Scalar, slot: &Slot<'_>) -> Lowered {
        if self.next.get() == From::Nothing {
            walk.emit(OpKind::Const(wire, 0));
            return walk.store(ty, wire, slot);
        }
        let kernel = match Form::of_scalar(wire) {
            Form::Bool => &get::BOOL,
            Form::Signed => &get::SIGNED,
            Form::Single => &get::SINGLE,
            Form::Double => &get::DOUBLE,
            Form::Quad => &get::QUAD,
            _ => &get::UNSIGNED,
        };
        walk.unless_skipped(&get::SKIP, slot, |walk| walk.get(ty, Wire::Kernel(kernel), slot))
    }

    fn enumeration(&self, walk: &mut DecodeWalk<'_>, id: DefId, wire: Scalar, slot: &Slot<'_>) -> Lowered {
        if self.next.get() == From::Nothing {
            walk.emit(OpKind::Const(wire, 0));
            return walk.store(&Type::Def(id), wire, slot);
        }
        walk.unless_skipped(&get::SKIP, slot, |walk| walk.get(&Type::Def(id), Wire::Kernel(&get::ENUM), slot))
    }

    fn text(&self, walk: &mut DecodeWalk<'_>, _: &Type, slot: &Slot<'_>) -> Lowered {
        if self.next.get() == From::Nothing {
            walk.emit(OpKind::Clear(slot.place));
            return Ok(());
        }
        walk.unless_skipped(&get::SKIP, slot, |walk| walk.text(TextForm::Kernel(&get::TEXT), slot))
    }

    fn sequence(&self, walk: &mut DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> Lowered {
        if self.next.get() == From::Nothing {
            walk.emit(OpKind::Clear(slot.place));
            return Ok(());
        }
        walk.unless_skipped(&get::SKIP, slot, |walk| self.elements(walk, element, slot))
    }

    fn array(&self, walk: &mut DecodeWalk<'_>, element: &Type, _: &[u32], slot: &Slot<'_>) -> Lowered {
        walk.unless_skipped(&get::SKIP, slot, |walk| self.elements(walk, element, slot))
    }

    fn map(&self, walk: &mut DecodeWalk<'_>, key: &Type, value: &Type, slot: &Slot<'_>) -> Lowered {
        if !is_key(self.schema, key) {
            return Err(walk.unsupported(NO_KEY));
        }
        match self.next.get() {
            From::Nothing => {
                walk.emit(OpKind::Clear(slot.place));
                Ok(())
            }
            from => walk.unless_skipped(&get::SKIP, slot, |walk| match from {
                From::Field => self.wrapped(walk, slot.place, |dialect, walk| dialect.entries(walk, key, value, slot)),
                _ => self.entries(walk, key, value, slot),
            }),
        }
    }

    fn structure(&self, walk: &mut DecodeWalk<'_>, id: DefId, members: &[MemberIn<'_>]) -> Lowered {
        let names = self.schema.members(id).into_iter().map(|member| member.name.as_str());
        let numbers: BTreeMap<&str, u32> = names.zip(field_numbers(self.schema, id)).collect();
        let mut arms = Vec::new();
        let mut more = Vec::new();
        let mut repeat_key = 0;
        for member in members {
            let number = *numbers.get(member.writer.name.as_str()).ok_or_else(|| walk.mismatch())?;
            let form = Form::of(self.schema, &member.writer.ty);
            let again = match (form, member.writer.optional, member.reader) {
                (_, _, None) => OnRepeat::Replaces,
                (Form::Sequence | Form::Map, false, _) => OnRepeat::Arm((members.len() + more.len()) as u32),
                (Form::Message | Form::Array, ..) | (Form::Sequence | Form::Map, true, _) => OnRepeat::Refused,
                _ => OnRepeat::Replaces,
            };
            let key = self.repeat_key(number, repeat_key, again);
            let note = (again != OnRepeat::Replaces).then_some(repeat_key as u8);
            repeat_key += usize::from(note.is_some());
            if repeat_key > MAX_REPEAT_KEYS {
                return Err(walk.unsupported("a message of more than 192 repeated fields and messages"));
            }
            let prefix = ExpectedPrefix {
                // Zero and empty values are left out.
                optional: true,
                tag: PrefixTag::Is(number << 3 | form.wire_type()),
                note,
                ..ExpectedPrefix::new(&tag(number, form))
            };
            arms.push(Arm { prefix: Some(prefix), ..self.arm(walk, member, key, form)? });
            if let OnRepeat::Arm(_) = again {
                let body = walk.block(|walk| self.member(walk, member, form, From::MoreElements))?;
                more.push(without_key(body));
            }
        }
        arms.extend(more);
        walk.members(&delimiters::FIELDS, arms);
        Ok(())
    }

    fn union(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Lowered {
        let DefKind::Union { cases, .. } = &self.schema.def(union.id).kind else { return Err(walk.mismatch()) };
        let numbers = field_numbers(self.schema, union.id);
        let label = |(case, number): (&crate::schema::Case, &u32)| {
            let (digits, len) = delimiters::number_name(*number);
            Some((*case.labels.first()?, str::from_utf8(digits.get(..len)?).ok()?.into()))
        };
        let table = Arc::new(SymbolTable::new(cases.iter().zip(&numbers).filter_map(label), None));
        walk.emit(OpKind::Get(Wire::Symbol(&delimiters::SELECTOR, table)));
        let numbers: BTreeMap<&str, u32> = cases.iter().map(|case| case.member.name.as_str()).zip(numbers).collect();
        walk.union_arms(union, |walk: &mut DecodeWalk<'_>, case: &CaseIn<'_>| {
            let number = *numbers.get(case.member.name.as_str()).ok_or_else(|| walk.mismatch())?;
            let form = Form::of(self.schema, &case.member.ty);
            let body = walk.block(|walk| {
                self.field(walk, form, From::Field, case.slot.place == Place::Sink, |walk| walk.case_value(case))
            })?;
            let absent = walk.failing(MISSING);
            let merges = form == Form::Message || form.is_repeated();
            let again = if merges && case.slot.place != Place::Sink { OnRepeat::Refused } else { OnRepeat::Replaces };
            walk.members(
                &delimiters::FIELDS,
                vec![Arm { key: self.repeat_key(number, 0, again), prefix: None, body, absent }],
            );
            Ok(())
        })
    }
}

/// The arm for further elements of a field, which only [`OnRepeat::Arm`] refers to.
fn without_key(body: Block) -> Arm {
    Arm { key: MemberKey { id: 0, name: [].into() }, prefix: None, body, absent: Block::default() }
}

/// Puts the region of a message around the root.
pub(super) fn message_root(root: Block) -> Block {
    Block(vec![op(OpKind::Region { dialect: &put::ROOT, argument: 0, body: root })])
}

fn op(kind: OpKind) -> Op {
    Op { path: PathId(0), kind }
}

impl<'a> Decode<'a> {
    pub fn new(schema: &'a Schema) -> Decode<'a> {
        Decode { schema, next: Cell::new(From::Field), merges: Cell::new(false) }
    }

    /// True if repeated parts of messages may need to be [merged](super::merge).
    pub(super) fn merges(&self) -> bool {
        self.merges.get()
    }

    fn repeat_key(&self, number: u32, rank: usize, again: OnRepeat) -> MemberKey {
        self.merges.set(self.merges.get() || again == OnRepeat::Refused);
        delimiters::repeat_key(number, rank, again)
    }

    /// The program of a root that is not a message itself.
    pub(super) fn wrapped_root(&self, root: Block) -> Block {
        let key = delimiters::repeat_key(1, 0, OnRepeat::Replaces);
        let absent = Block(vec![op(OpKind::Fail(MISSING))]);
        message_root(Block(vec![op(OpKind::members(
            &delimiters::FIELDS,
            vec![Arm { key, prefix: None, body: root, absent }],
        ))]))
    }

    fn arm(
        &self,
        walk: &mut DecodeWalk<'_>,
        member: &MemberIn<'_>,
        key: MemberKey,
        form: Form,
    ) -> Result<Arm, LowerError> {
        let body = walk.block(|walk| {
            let from = match (form.is_repeated(), member.writer.optional) {
                (true, false) => From::Elements,
                _ => From::Field,
            };
            self.member(walk, member, form, from)
        })?;
        let absent = walk.block(|walk| self.absent(walk, member, form))?;
        Ok(Arm { key, prefix: None, body, absent })
    }

    fn member(&self, walk: &mut DecodeWalk<'_>, member: &MemberIn<'_>, form: Form, from: From) -> Lowered {
        self.field(walk, form, from, member.reader.is_none(), |walk| walk.member(member))
    }

    /// Emits the substitute for a missing member. Writers omit mandatory members that are zero or
    /// empty.
    fn absent(&self, walk: &mut DecodeWalk<'_>, member: &MemberIn<'_>, form: Form) -> Lowered {
        match form {
            _ if member.writer.optional => walk.absent(member),
            _ if member.reader.is_none() => Ok(()),
            Form::Message | Form::Array | Form::Quad => walk.missing(member),
            Form::Bytes if matches!(self.schema.resolve(&member.writer.ty), Type::Array { .. }) => walk.missing(member),
            _ => {
                self.next.set(From::Nothing);
                walk.member(member)
            }
        }
    }

    /// Emits a value, with the region of its message if it has one.
    fn field(
        &self,
        walk: &mut DecodeWalk<'_>,
        form: Form,
        from: From,
        skipped_by_reader: bool,
        value: impl FnOnce(&mut DecodeWalk<'_>) -> Lowered,
    ) -> Lowered {
        self.next.set(from);
        if form != Form::Message {
            return value(walk);
        }
        if skipped_by_reader {
            let skipped = walk.block(value)?;
            // A mandatory member that must be understood fails. Everything else is skipped at once.
            match skipped.0.first() {
                Some(Op { kind: OpKind::Fail(_), .. }) => walk.append(skipped),
                _ => walk.emit(OpKind::Action(&get::SKIP, 0)),
            }
            return Ok(());
        }
        let body = walk.block(value)?;
        walk.emit(OpKind::Region { dialect: &put::MESSAGE, argument: 0, body });
        Ok(())
    }

    /// Emits a sequence, array or map that is field 1 of a message of its own.
    fn wrapped(
        &self,
        walk: &mut DecodeWalk<'_>,
        place: Place,
        fields: impl Fn(&Self, &mut DecodeWalk<'_>) -> Lowered,
    ) -> Lowered {
        self.next.set(From::Elements);
        let first = walk.block(|walk| fields(self, walk))?;
        let is_array = matches!(walk.kind(place), Some(Kind::Array { .. }));
        let absent = walk.block(|walk| {
            walk.emit(if is_array { OpKind::Fail(MISSING) } else { OpKind::Clear(place) });
            Ok(())
        })?;
        let again = if is_array { OnRepeat::Refused } else { OnRepeat::Arm(1) };
        let mut arms = vec![Arm { key: self.repeat_key(1, 0, again), prefix: None, body: first, absent }];
        if !is_array {
            self.next.set(From::MoreElements);
            let more = walk.block(|walk| fields(self, walk))?;
            arms.push(without_key(more));
        }
        let body = walk.block(|walk| {
            walk.members(&delimiters::FIELDS, arms);
            Ok(())
        })?;
        walk.emit(OpKind::Region { dialect: &put::MESSAGE, argument: 0, body });
        Ok(())
    }

    /// Emits the elements of a sequence or array.
    fn elements(&self, walk: &mut DecodeWalk<'_>, ty: &Type, slot: &Slot<'_>) -> Lowered {
        if *self.schema.resolve(ty) == Type::Octet && walk.slice_scalar(ty, slot) == Some(Scalar::U8) {
            return walk.slice(slot, &put::OCTETS);
        }
        match self.next.get() {
            From::Field => self.wrapped(walk, slot.place, |dialect, walk| dialect.elements(walk, ty, slot)),
            from => self.fields_of(walk, ty, slot, from),
        }
    }

    fn fields_of(&self, walk: &mut DecodeWalk<'_>, ty: &Type, slot: &Slot<'_>, from: From) -> Lowered {
        let form = Form::of(self.schema, ty);
        if from == From::Elements
            && let Some(kernel) = slice(walk, ty, slot, form)
        {
            return walk.slice(slot, kernel);
        }
        let source = from.source(delimiters::elements(form.wire_type()));
        walk.elements(slot, source, 0, |walk, inside| {
            self.field(walk, form, From::Field, false, |walk| walk.value(ty, inside))
        })
    }

    /// Emits the entries of a map.
    fn entries(&self, walk: &mut DecodeWalk<'_>, key: &Type, value: &Type, slot: &Slot<'_>) -> Lowered {
        let from = self.next.get();
        let part = |walk: &mut DecodeWalk<'_>, number, ty: &Type, slot: &Slot<'_>| {
            let form = Form::of(self.schema, ty);
            let body = walk.block(|walk| self.field(walk, form, From::Field, false, |walk| walk.value(ty, slot)))?;
            let is_array = matches!(self.schema.resolve(ty), Type::Array { .. });
            let absent = match form {
                Form::Message | Form::Quad | Form::Array | Form::Sequence | Form::Map => walk.failing(MISSING),
                Form::Bytes if is_array => walk.failing(MISSING),
                _ => walk.block(|walk| {
                    self.next.set(From::Nothing);
                    walk.value(ty, slot)
                })?,
            };
            let merges = form == Form::Message || form.is_repeated();
            let again = if merges { OnRepeat::Refused } else { OnRepeat::Replaces };
            walk.members(
                &delimiters::FIELDS,
                vec![Arm { key: self.repeat_key(number, 0, again), prefix: None, body, absent }],
            );
            Ok(())
        };
        let value = |walk: &mut DecodeWalk<'_>, slot: &Slot<'_>| {
            walk.emit(OpKind::Action(&delimiters::REWIND, 0));
            part(walk, 2, value, slot)
        };
        walk.entries(slot, from.source(&delimiters::ENTRIES), 0, |walk, slot| part(walk, 1, key, slot), value)
    }
}

/// The kernel for all elements at once, if there is one.
fn slice(walk: &DecodeWalk<'_>, ty: &Type, slot: &Slot<'_>, form: Form) -> Option<&'static SliceKernel> {
    match form {
        Form::Unsigned | Form::Signed | Form::Single | Form::Double => repeated::kernel(walk.slice_scalar(ty, slot)?),
        _ => None,
    }
}
