//! The encoding dialect of CDR: what it writes for each kind of type.

use alloc::boxed::Box;

use super::{DISCRIMINATOR_ID, Dialect, Version, parameters};
use crate::{
    codec::lower::{EncodeDialect, EncodeWalk, Lowered, MemberOut, UnionOut, scalar_of, widens},
    layout::{Kind, Scalar},
    program::{Block, OpKind, Overflow, Place, Segment, Wire},
    schema::{Case, DefId, Extensibility, Member, Type, array_shape},
};

impl EncodeDialect for Dialect {
    fn scalar(&self, walk: &mut EncodeWalk<'_>, _ty: &Type, wire: Scalar, place: Place) -> Lowered {
        self.put_scalar(walk, wire, place)
    }

    fn enumeration(&self, walk: &mut EncodeWalk<'_>, _id: DefId, wire: Scalar, place: Place) -> Lowered {
        self.put_scalar(walk, wire, place)
    }

    fn text(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place) -> Lowered {
        walk.emit(OpKind::Align(4));
        walk.text(ty, place, self.text_form(ty))
    }

    fn sequence(&self, walk: &mut EncodeWalk<'_>, element: &Type, bound: u32, place: Place) -> Lowered {
        let delimited = self.delimited_elements(walk.schema(), &[element]);
        self.put_delimited(walk, delimited, |walk| {
            self.put_length(walk, place);
            match self.bulk_scalar(walk, element, place) {
                Some(scalar) => self.put_bulk(walk, scalar, bound, place),
                None => walk.elements(place, bound, |walk, at| walk.value(element, at)),
            }
        })
    }

    fn array(&self, walk: &mut EncodeWalk<'_>, element: &Type, _dims: &[u32], place: Place) -> Lowered {
        let (inner, _) = array_shape(walk.schema(), element);
        let delimited = self.delimited_elements(walk.schema(), &[inner]);
        self.put_delimited(walk, delimited, |walk| match self.put_repeated(walk, inner, place) {
            Some(segment) => {
                walk.emit(OpKind::Align(self.alignment(segment.wire)));
                walk.run(segment);
                Ok(())
            }
            None => self.put_array_elements(walk, inner, place),
        })
    }

    fn map(&self, walk: &mut EncodeWalk<'_>, key: &Type, value: &Type, bound: u32, place: Place) -> Lowered {
        let delimited = self.delimited_elements(walk.schema(), &[key, value]);
        self.put_delimited(walk, delimited, |walk| {
            self.put_length(walk, place);
            walk.entries(place, bound, |walk, at| walk.value(key, at), |walk, at| walk.value(value, at))
        })
    }

    fn structure(&self, walk: &mut EncodeWalk<'_>, id: DefId, members: &[MemberOut<'_>]) -> Lowered {
        let def = walk.schema().def(id);
        let mutable = def.extensibility == Extensibility::Mutable;
        self.put_delimited(walk, self.delimited(def), |walk| {
            members.iter().try_for_each(|member| match mutable {
                true => self.put_mutable_member(walk, member),
                false => self.put_plain_member(walk, member),
            })?;
            if mutable && self.version == Version::One {
                self.put_list_end(walk);
            }
            Ok(())
        })
    }

    fn union(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Lowered {
        let def = walk.schema().def(union.id);
        let mutable = def.extensibility == Extensibility::Mutable;
        self.put_delimited(walk, self.delimited(def), |walk| {
            walk.union_arms(
                union,
                |walk, case, place| {
                    self.put_discriminator(walk, union.wire, mutable);
                    self.put_case(walk, case, place, mutable)
                },
                |walk| {
                    self.put_discriminator(walk, union.wire, mutable);
                    Ok(())
                },
            )?;
            if mutable && self.version == Version::One {
                self.put_list_end(walk);
            }
            Ok(())
        })
    }
}

impl Dialect {
    fn put_scalar(&self, walk: &mut EncodeWalk<'_>, wire: Scalar, place: Place) -> Lowered {
        let memory = walk.memory_scalar(place)?;
        walk.emit(OpKind::Align(self.alignment(wire)));
        if wire == memory || widens(wire, memory) {
            return walk.fixed(place, wire, self.order);
        }
        walk.put(place, Wire::Fixed { scalar: wire, order: self.order })
    }

    fn put_length(&self, walk: &mut EncodeWalk<'_>, place: Place) {
        walk.emit(OpKind::Align(4));
        walk.emit(OpKind::Length(place));
        walk.emit(OpKind::Convert(Scalar::U32));
        walk.emit(OpKind::Put(Wire::Fixed { scalar: Scalar::U32, order: self.order }));
    }

    /// The scalar of a sequence's elements, if they can be copied to the wire as a block, apart
    /// from the byte order.
    fn bulk_scalar(&self, walk: &EncodeWalk<'_>, element: &Type, place: Place) -> Option<Scalar> {
        walk.element_scalar(place).filter(|memory| scalar_of(walk.schema().resolve(element)) == Some(*memory))
    }

    /// Emits elements copied as a block. An empty sequence has no padding after its count.
    fn put_bulk(&self, walk: &mut EncodeWalk<'_>, scalar: Scalar, bound: u32, place: Place) -> Lowered {
        let bulk = OpKind::Bulk { place, scalar, order: self.order, bound, overflow: Overflow::Refuse };
        let alignment = self.alignment(scalar);
        if alignment <= 4 {
            walk.emit(bulk);
            return Ok(());
        }
        let otherwise = walk.block(|walk| {
            walk.emit(OpKind::Align(alignment));
            walk.emit(bulk);
            Ok(())
        })?;
        walk.emit(OpKind::switch([([0].into(), Block::default())].into(), otherwise));
        Ok(())
    }

    /// Emits the elements of an array. Nested arrays count as one array, so one DHEADER covers all.
    fn put_array_elements(&self, walk: &mut EncodeWalk<'_>, inner: &Type, place: Place) -> Lowered {
        walk.elements(place, 0, |walk, at| match walk.kind(at) {
            Some(Kind::Array { .. }) => self.put_array_elements(walk, inner, at),
            _ => walk.value(inner, at),
        })
    }

    /// An array's elements as one segment of a run, if wire and memory have the same scalars.
    fn put_repeated(&self, walk: &EncodeWalk<'_>, inner: &Type, place: Place) -> Option<Segment> {
        let scalar = scalar_of(walk.schema().resolve(inner))?;
        let Place::At { offset, mut node } = place else { return None };
        let mut count = 1u32;
        while let Kind::Array { element, len } = walk.layout().node(node).kind {
            (node, count) = (element, count.checked_mul(len)?);
        }
        count.checked_mul(scalar.size() as u32)?;
        let place = Place::At { offset, node };
        let same = matches!(walk.kind(place), Some(Kind::Scalar(memory)) if *memory == scalar);
        let segment = Segment { place, at: 0, wire: scalar, memory: scalar, count, order: self.order, check: None };
        same.then_some(segment)
    }

    pub(super) fn put_plain_member(&self, walk: &mut EncodeWalk<'_>, out: &MemberOut<'_>) -> Lowered {
        if !out.member.optional {
            return walk.member(out.member, out.place);
        }
        match self.version {
            Version::One => {
                let absent = self.absent_parameter(out.member);
                walk.if_present(
                    out,
                    |walk, place| self.put_parameter(walk, out.member, place),
                    |walk| {
                        walk.emit(OpKind::Align(4));
                        walk.literal(absent);
                        Ok(())
                    },
                )
            }
            Version::Two => walk.if_present(
                out,
                |walk, place| {
                    walk.literal([1]);
                    walk.member(out.member, place)
                },
                |walk| {
                    walk.literal([0]);
                    Ok(())
                },
            ),
        }
    }

    fn put_mutable_member(&self, walk: &mut EncodeWalk<'_>, out: &MemberOut<'_>) -> Lowered {
        match out.member.optional {
            true => walk.if_present(out, |walk, place| self.put_with_header(walk, out.member, place), |_| Ok(())),
            false => self.put_with_header(walk, out.member, out.place),
        }
    }

    fn put_with_header(&self, walk: &mut EncodeWalk<'_>, member: &Member, place: Place) -> Lowered {
        match self.version {
            Version::One => self.put_parameter(walk, member, place),
            Version::Two => self.put_emember(walk, member, place),
        }
    }

    fn put_parameter(&self, walk: &mut EncodeWalk<'_>, member: &Member, place: Place) -> Lowered {
        let body = walk.block(|walk| walk.member(member, place))?;
        let dialect = parameters::parameter_region(self.order);
        walk.emit(OpKind::Region { dialect, argument: self.parameter(member), body });
        Ok(())
    }

    fn put_emember(&self, walk: &mut EncodeWalk<'_>, member: &Member, place: Place) -> Lowered {
        let header = self.member_header(walk.schema(), member);
        if header.sized {
            let body = walk.block(|walk| walk.member(member, place))?;
            let dialect = parameters::member_region(self.order);
            walk.emit(OpKind::Region { dialect, argument: header.word.into(), body });
            return Ok(());
        }
        walk.emit(OpKind::Align(4));
        walk.literal(self.word(header.word));
        walk.member(member, place)
    }

    pub(super) fn put_discriminator(&self, walk: &mut EncodeWalk<'_>, wire: Scalar, mutable: bool) {
        let wire = if wire == Scalar::Bool { Scalar::U8 } else { wire };
        match (mutable, self.version) {
            (false, _) => walk.emit(OpKind::Align(self.alignment(wire))),
            (true, Version::One) => {
                let header = self.short_parameter(DISCRIMINATOR_ID as u16, wire.size() as u16);
                walk.emit(OpKind::Align(4));
                walk.literal(header);
            }
            (true, Version::Two) => {
                // For sizes of 1, 2, 4 and 8 bytes, the length code is the logarithm of the size.
                let code = wire.size().trailing_zeros();
                walk.emit(OpKind::Align(4));
                walk.literal(self.word(code << 28 | DISCRIMINATOR_ID));
            }
        }
        walk.emit(OpKind::Convert(wire));
        walk.emit(OpKind::Put(Wire::Fixed { scalar: wire, order: self.order }));
    }

    fn put_case(&self, walk: &mut EncodeWalk<'_>, case: &Case, place: Place, mutable: bool) -> Lowered {
        match mutable {
            true => self.put_with_header(walk, &case.member, place),
            false => walk.member(&case.member, place),
        }
    }

    fn put_list_end(&self, walk: &mut EncodeWalk<'_>) {
        walk.emit(OpKind::Align(4));
        walk.literal(self.short_parameter(parameters::PID_LIST_END, 0));
    }

    /// The parameter header of an absent optional member in a final or appendable type of XCDR1.
    fn absent_parameter(&self, member: &Member) -> Box<[u8]> {
        let flag = if member.must_understand { parameters::PID_MUST_UNDERSTAND } else { 0 };
        match parameters::short_id(member.id) {
            Some(id) => self.short_parameter(id | flag, 0).into(),
            None => {
                let head = self.short_parameter(parameters::PID_EXTENDED | flag, 8);
                [head, self.word(member.id), self.word(0)].concat().into()
            }
        }
    }

    /// Emits `fill`, inside a DHEADER if `delimited` is true.
    fn put_delimited(
        &self,
        walk: &mut EncodeWalk<'_>,
        delimited: bool,
        fill: impl FnOnce(&mut EncodeWalk<'_>) -> Lowered,
    ) -> Lowered {
        if !delimited {
            return fill(walk);
        }
        let body = walk.block(fill)?;
        let dialect = parameters::dheader_region(self.order);
        walk.emit(OpKind::Region { dialect, argument: parameters::SKIP_REST, body });
        Ok(())
    }
}
