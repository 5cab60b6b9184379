//! The encoding dialect of Protobuf.

use alloc::vec;
use core::cell::Cell;

use super::{
    get,
    kinds::{DISCRIMINATOR_NUMBER, Form, field_numbers, tag},
    put, repeated,
};
use crate::{
    codec::lower::{EncodeDialect, EncodeWalk, Lowered, MemberOut, UnionOut},
    layout::Scalar,
    program::{Block, InlineKernel, OpKind, Order, Place, SliceKernel, TextForm, Wire},
    schema::{DefId, Schema, Type},
};

/// The encoding dialect.
pub(super) struct Encode<'a> {
    schema: &'a Schema,
    /// How the next value is written. The dialect's methods have no argument for it.
    next: Cell<Field>,
}

/// The field around a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// A field that is omitted if its value is what readers assume for a missing field.
    Unless(u32),
    /// A field that is always written. A sequence, array or map is in a message of its own, because
    /// without elements its presence would not be visible.
    Always(u32),
    /// Only the value, without a tag.
    Bare,
}

impl EncodeDialect for Encode<'_> {
    fn scalar(&self, walk: &mut EncodeWalk<'_>, _: &Type, wire: Scalar, place: Place) -> Lowered {
        let form = Form::of_scalar(wire);
        match (self.next.get(), form) {
            (Field::Unless(number), Form::Unsigned | Form::Bool) => {
                put_inline(walk, place, &put::FIELD_UNSIGNED, &tag(number, form))
            }
            (Field::Unless(number), Form::Signed) => put_inline(walk, place, &put::FIELD_SIGNED, &tag(number, form)),
            (Field::Unless(number), Form::Single) => put_inline(walk, place, &put::FIELD_SINGLE, &tag(number, form)),
            (Field::Unless(number), Form::Double) => put_inline(walk, place, &put::FIELD_DOUBLE, &tag(number, form)),
            (Field::Unless(number) | Field::Always(number), _) => tagged(walk, &tag(number, form), form, wire, place),
            (Field::Bare, _) => tagged(walk, &[], form, wire, place),
        }
    }

    fn enumeration(&self, walk: &mut EncodeWalk<'_>, id: DefId, _: Scalar, place: Place) -> Lowered {
        let has_zero = match &self.schema.def(id).kind {
            crate::schema::DefKind::Enum { literals, .. } => literals.iter().any(|literal| literal.value == 0),
            _ => false,
        };
        match self.next.get() {
            Field::Unless(number) if has_zero => put_inline(walk, place, &put::FIELD_ENUM, &tag(number, Form::Enum)),
            Field::Unless(number) | Field::Always(number) => {
                put_inline(walk, place, &put::ENUM, &tag(number, Form::Enum))
            }
            Field::Bare => put_inline(walk, place, &put::ENUM, &[]),
        }
    }

    fn text(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place) -> Lowered {
        self.unless_empty(walk, place, Form::Text, |walk| walk.text(ty, place, TextForm::Kernel(&get::TEXT)))
    }

    fn sequence(&self, walk: &mut EncodeWalk<'_>, element: &Type, bound: u32, place: Place) -> Lowered {
        if *self.schema.resolve(element) == Type::Octet {
            return self.unless_empty(walk, place, Form::Bytes, |walk| walk.slice(place, &put::OCTETS, bound));
        }
        self.repeated(walk, |dialect, walk, number| {
            let form = Form::of(dialect.schema, element);
            if !form.is_packed() {
                return dialect.elements(walk, element, place, bound, number);
            }
            let values = walk.block(|walk| {
                walk.literal(tag(number, Form::Bytes));
                dialect.packed(walk, element, place, bound)
            })?;
            walk.emit(OpKind::Length(place));
            walk.emit(OpKind::switch(vec![(vec![0], Block::default())], values));
            Ok(())
        })
    }

    fn array(&self, walk: &mut EncodeWalk<'_>, element: &Type, _: &[u32], place: Place) -> Lowered {
        if *self.schema.resolve(element) == Type::Octet {
            if let Field::Unless(number) | Field::Always(number) = self.next.get() {
                walk.literal(tag(number, Form::Bytes));
            }
            return walk.slice(place, &put::OCTETS, 0);
        }
        self.repeated(walk, |dialect, walk, number| {
            if !Form::of(dialect.schema, element).is_packed() {
                return dialect.elements(walk, element, place, 0, number);
            }
            walk.literal(tag(number, Form::Bytes));
            dialect.packed(walk, element, place, 0)
        })
    }

    fn map(&self, walk: &mut EncodeWalk<'_>, key: &Type, value: &Type, bound: u32, place: Place) -> Lowered {
        if !is_key(self.schema, key) {
            return Err(walk.unsupported(NO_KEY));
        }
        self.repeated(walk, |dialect, walk, number| {
            let head = put::tag_word(&tag(number, Form::Message));
            let key = |walk: &mut EncodeWalk<'_>, place| {
                walk.emit(OpKind::Action(&put::BEGIN_ENTRY, head));
                dialect.field(walk, Field::Always(1), key, |walk| walk.value(key, place))
            };
            walk.entries(place, bound, key, |walk, place| {
                dialect.field(walk, Field::Always(2), value, |walk| walk.value(value, place))?;
                walk.emit(OpKind::Action(&put::END_ENTRY, 0));
                Ok(())
            })
        })
    }

    fn structure(&self, walk: &mut EncodeWalk<'_>, id: DefId, members: &[MemberOut<'_>]) -> Lowered {
        members.iter().zip(field_numbers(self.schema, id)).try_for_each(|(out, number)| {
            let ty = &out.member.ty;
            if !out.member.optional {
                return self.field(walk, Field::Unless(number), ty, |walk| walk.member(out.member, out.place));
            }
            walk.if_present(
                out,
                |walk, place| self.field(walk, Field::Always(number), ty, |walk| walk.member(out.member, place)),
                |_| Ok(()),
            )
        })
    }

    fn union(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Lowered {
        let mut numbers = field_numbers(self.schema, union.id).into_iter();
        walk.union_arms(
            union,
            |walk, case, place| {
                let number = numbers.next().ok_or_else(|| walk.mismatch())?;
                walk.implied_or(case, |_| Ok(()), put_discriminator)?;
                self.field(walk, Field::Always(number), &case.member.ty, |walk| walk.member(&case.member, place))
            },
            put_discriminator,
        )
    }
}

pub(super) const NO_KEY: &str = "in Protobuf a map's key is a string, integer, boolean, character or enum";

/// True if Protobuf supports maps with keys of this type.
pub(super) fn is_key(schema: &Schema, key: &Type) -> bool {
    matches!(Form::of(schema, key), Form::Text | Form::Bool | Form::Unsigned | Form::Signed | Form::Enum)
}

impl<'a> Encode<'a> {
    /// A root that is not a message itself is field 1 of one.
    pub fn new(schema: &'a Schema) -> Encode<'a> {
        Encode { schema, next: Cell::new(Field::Always(1)) }
    }

    /// Emits a value, with its tag and message if it has them.
    fn field(
        &self,
        walk: &mut EncodeWalk<'_>,
        field: Field,
        ty: &Type,
        value: impl FnOnce(&mut EncodeWalk<'_>) -> Lowered,
    ) -> Lowered {
        if Form::of(self.schema, ty) != Form::Message {
            self.next.set(field);
            return value(walk);
        }
        let body = walk.block(value)?;
        if let Field::Unless(number) | Field::Always(number) = field {
            walk.literal(tag(number, Form::Message));
        }
        walk.emit(OpKind::Region { dialect: &put::MESSAGE, argument: 0, body });
        Ok(())
    }

    /// Emits repeated fields: with their own number, or as field 1 of a message of their own.
    fn repeated(
        &self,
        walk: &mut EncodeWalk<'_>,
        fields: impl FnOnce(&Self, &mut EncodeWalk<'_>, u32) -> Lowered,
    ) -> Lowered {
        match self.next.get() {
            Field::Unless(number) => fields(self, walk, number),
            Field::Always(number) => {
                let body = walk.block(|walk| fields(self, walk, 1))?;
                walk.literal(tag(number, Form::Message));
                walk.emit(OpKind::Region { dialect: &put::MESSAGE, argument: 0, body });
                Ok(())
            }
            Field::Bare => Err(walk.mismatch()),
        }
    }

    /// Emits text or octets with their tag. Emits nothing if they are empty and may be omitted.
    fn unless_empty(
        &self,
        walk: &mut EncodeWalk<'_>,
        place: Place,
        form: Form,
        value: impl FnOnce(&mut EncodeWalk<'_>) -> Lowered,
    ) -> Lowered {
        let (number, may_miss) = match self.next.get() {
            Field::Unless(number) => (number, true),
            Field::Always(number) => (number, false),
            Field::Bare => return value(walk),
        };
        let there = walk.block(|walk| {
            walk.literal(tag(number, form));
            value(walk)
        })?;
        if !may_miss {
            walk.append(there);
            return Ok(());
        }
        walk.emit(OpKind::Length(place));
        walk.emit(OpKind::switch(vec![(vec![0], Block::default())], there));
        Ok(())
    }

    /// Emits elements with a tag each.
    fn elements(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place, bound: u32, number: u32) -> Lowered {
        walk.elements(place, bound, |walk, inside| {
            self.field(walk, Field::Always(number), ty, |walk| walk.value(ty, inside))
        })
    }

    /// Emits packed elements with their length in front.
    fn packed(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place, bound: u32) -> Lowered {
        if let Some(kernel) = slice(walk, self.schema, ty, place) {
            return walk.slice(place, kernel, bound);
        }
        let body = walk.block(|walk| {
            walk.elements(place, bound, |walk, inside| {
                self.next.set(Field::Bare);
                walk.value(ty, inside)
            })
        })?;
        walk.emit(OpKind::Region { dialect: &put::MESSAGE, argument: 0, body });
        Ok(())
    }
}

/// The kernel for all elements at once, if there is one.
fn slice(walk: &EncodeWalk<'_>, schema: &Schema, ty: &Type, place: Place) -> Option<&'static SliceKernel> {
    match Form::of(schema, ty) {
        Form::Unsigned | Form::Signed | Form::Single | Form::Double => repeated::kernel(walk.element_scalar(place)?),
        _ => None,
    }
}

/// Emits a scalar with this tag in front.
fn tagged(walk: &mut EncodeWalk<'_>, tag: &[u8], form: Form, wire: Scalar, place: Place) -> Lowered {
    let kernel = match form {
        Form::Bool | Form::Unsigned => &put::UNSIGNED,
        Form::Signed => &put::SIGNED,
        _ => {
            walk.literal(tag);
            if form == Form::Quad {
                walk.literal([16]);
            }
            return walk.fixed(place, wire, Order::Little);
        }
    };
    put_inline(walk, place, kernel, tag)
}

fn put_inline(walk: &mut EncodeWalk<'_>, place: Place, kernel: &'static InlineKernel, tag: &[u8]) -> Lowered {
    walk.put(place, Wire::Inline(kernel, put::tag_word(tag)))
}

/// Emits the discriminator, which is in the accumulator.
fn put_discriminator(walk: &mut EncodeWalk<'_>) -> Lowered {
    let tag = tag(DISCRIMINATOR_NUMBER, Form::Signed);
    walk.emit(OpKind::Put(Wire::Inline(&put::SIGNED, put::tag_word(&tag))));
    Ok(())
}
