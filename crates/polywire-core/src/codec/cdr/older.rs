//! Reads values of older, shorter versions of appendable types when the writer's schema is unknown
//! (XTypes 1.3, 7.4.3). Used with the option `older`.
//!
//! Members that are missing at the end of a structure get their defaults. In XCDR2, the length in
//! front of a structure says where it ends. In XCDR1, only the end of the message or of a parameter
//! does, so only the last structure in it can be shorter. Its first member must be present, because
//! an earlier version without any member would not have been a structure.

use core::cell::Cell;

use super::{Dialect, Version, fixed_scalar, parameters};
use crate::{
    codec::lower::{DecodeDialect, DecodeWalk, Lowered, MemberIn, Slot, UnionIn},
    layout::Scalar,
    schema::{DefId, Extensibility, Schema, Type},
};

/// CDR, with appendable structures that may end early.
pub(super) struct OlderDialect {
    plain: Dialect,
    /// True if nothing follows the value in the message or in its parameter.
    last: Cell<bool>,
}

impl OlderDialect {
    pub(super) fn new(plain: Dialect) -> OlderDialect {
        OlderDialect { plain, last: Cell::new(true) }
    }

    fn with_last<R>(&self, last: bool, fill: impl FnOnce() -> R) -> R {
        let outer = self.last.replace(last);
        let filled = fill();
        self.last.set(outer);
        filled
    }

    fn members(&self, walk: &mut DecodeWalk<'_>, members: &[MemberIn<'_>], may_end: bool) -> Lowered {
        let last = self.last.get();
        members.iter().enumerate().try_for_each(|(i, member)| {
            // An optional member of XCDR1 is a parameter, in which nothing follows it.
            let is_last = member.writer.optional || last && i + 1 == members.len();
            let is_first = i == 0 && self.plain.version == Version::One;
            self.with_last(is_last, || match may_end && !is_first {
                true => self.member_or_end(walk, member),
                false => self.plain.get_plain_member(walk, member),
            })
        })
    }

    fn member_or_end(&self, walk: &mut DecodeWalk<'_>, member: &MemberIn<'_>) -> Lowered {
        let is_end = parameters::nothing_left(self.plain.first_alignment(walk.writer(), member));
        walk.choose(is_end, |walk| walk.left_out(member), |walk| self.plain.get_plain_member(walk, member))
    }
}

impl DecodeDialect for OlderDialect {
    fn scalar(&self, walk: &mut DecodeWalk<'_>, ty: &Type, wire: Scalar, slot: &Slot<'_>) -> Lowered {
        self.plain.scalar(walk, ty, wire, slot)
    }

    fn enumeration(&self, walk: &mut DecodeWalk<'_>, id: DefId, wire: Scalar, slot: &Slot<'_>) -> Lowered {
        self.plain.enumeration(walk, id, wire, slot)
    }

    fn text(&self, walk: &mut DecodeWalk<'_>, ty: &Type, slot: &Slot<'_>) -> Lowered {
        self.plain.text(walk, ty, slot)
    }

    fn sequence(&self, walk: &mut DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> Lowered {
        self.with_last(false, || self.plain.sequence(walk, element, slot))
    }

    fn array(&self, walk: &mut DecodeWalk<'_>, element: &Type, dims: &[u32], slot: &Slot<'_>) -> Lowered {
        self.with_last(false, || self.plain.array(walk, element, dims, slot))
    }

    fn map(&self, walk: &mut DecodeWalk<'_>, key: &Type, value: &Type, slot: &Slot<'_>) -> Lowered {
        self.with_last(false, || self.plain.map(walk, key, value, slot))
    }

    fn structure(&self, walk: &mut DecodeWalk<'_>, id: DefId, members: &[MemberIn<'_>]) -> Lowered {
        let def = walk.writer().def(id);
        let (delimited, rest) = (self.plain.delimited(def), parameters::SKIP_REST);
        match def.extensibility {
            Extensibility::Mutable => self.with_last(true, || self.plain.structure(walk, id, members)),
            Extensibility::Appendable => self
                .plain
                .get_delimited(walk, delimited, rest, |walk| self.members(walk, members, delimited || self.last.get())),
            Extensibility::Final => self.members(walk, members, false),
        }
    }

    fn union(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Lowered {
        let mutable = walk.writer().def(union.id).extensibility == Extensibility::Mutable;
        self.with_last(mutable || self.last.get(), || self.plain.union(walk, union))
    }

    fn context(&self) -> u64 {
        self.last.get().into()
    }

    fn resume(&self, context: u64) -> bool {
        self.last.set(context != 0);
        true
    }
}

impl Dialect {
    /// A lower bound of the alignment of a member's first byte.
    fn first_alignment(&self, schema: &Schema, member: &MemberIn<'_>) -> u8 {
        if member.writer.optional {
            // The header of a parameter, or a flag.
            return if self.version == Version::One { 4 } else { 1 };
        }
        let ty = schema.resolve(&member.writer.ty);
        match (fixed_scalar(schema, ty), ty) {
            (Some(scalar), _) => self.alignment(scalar),
            (None, Type::String { .. } | Type::WString { .. } | Type::Sequence { .. } | Type::Map { .. }) => 4,
            (None, Type::Def(id)) if self.delimited(schema.def(*id)) => 4,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use crate::{
        codec::{Decoder, Options, cdr::CDR},
        layout::{Record, Shape},
        program::Backend,
        schema::{Def, DefId, Member, SchemaBuilder, Type},
    };

    #[test]
    fn only_the_last_value_of_a_recursive_type_may_end_early() {
        let mut types = SchemaBuilder::new();
        let node = || Type::Def(DefId(0));
        let members = vec![Member::new("id", Type::Octet), Member::new("below", Type::sequence(node()))];
        types.add(Def::structure("Node", members));
        let root = types.add(Def::structure("Root", vec![Member::new("a", node()), Member::new("b", node())]));
        let schema = types.finish(Type::Def(root)).expect("a valid schema");
        let shape = Shape::of(&schema).expect("a shape");
        let options: Options = "older".parse().expect("an option");
        let decoder = Decoder::for_shape_with_backend(&CDR, &options, &schema, &shape, Backend::Interpreter);
        let decoder = decoder.expect("a decoder");

        let mut read = Record::new(&shape);
        decoder.decode(&[1, 0, 0, 0, 0, 0, 0, 0, 2], &mut read).expect("a message");
        let json = r#"{"a": {"id": 1, "below": []}, "b": {"id": 2, "below": []}}"#;
        assert_eq!(read, Record::from_json(&shape, json).expect("a record"));
        assert!(decoder.decode(&[1], &mut read).is_err());
    }
}
