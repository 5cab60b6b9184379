//! The decoding dialect of CDR: what it reads for each kind of type.

use alloc::vec::Vec;

use super::{DISCRIMINATOR_ID, Dialect, Version, parameters};
use crate::{
    codec::lower::{
        CaseIn, DecodeDialect, DecodeWalk, LowerError, Lowered, MemberIn, Slot, UnionIn, decode::key, scalar_of,
    },
    layout::{Kind, Scalar},
    program::{Arm, Block, Check, OpKind, Place, Segment, Source, Wire},
    schema::{DefId, Extensibility, Type, array_shape},
};

impl DecodeDialect for Dialect {
    fn scalar(&self, walk: &mut DecodeWalk<'_>, ty: &Type, wire: Scalar, slot: &Slot<'_>) -> Lowered {
        walk.emit(OpKind::Align(self.alignment(wire)));
        walk.fixed(ty, wire, self.order, slot)
    }

    fn enumeration(&self, walk: &mut DecodeWalk<'_>, id: DefId, wire: Scalar, slot: &Slot<'_>) -> Lowered {
        walk.emit(OpKind::Align(self.alignment(wire)));
        walk.fixed(&Type::Def(id), wire, self.order, slot)
    }

    fn text(&self, walk: &mut DecodeWalk<'_>, ty: &Type, slot: &Slot<'_>) -> Lowered {
        walk.emit(OpKind::Align(4));
        walk.text(self.text_form(ty), slot)
    }

    fn sequence(&self, walk: &mut DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> Lowered {
        let delimited = self.delimited_elements(walk.writer(), &[element]);
        self.get_delimited(walk, delimited, parameters::EXACT, |walk| {
            self.get_length(walk);
            match walk.bulk_scalar(element, slot) {
                Some(scalar) => self.get_bulk(walk, scalar, slot),
                None => {
                    let min_wire = self.min_wire(walk, element);
                    walk.elements(slot, Source::Count, min_wire, |walk, at| walk.value(element, at))
                }
            }
        })
    }

    fn array(&self, walk: &mut DecodeWalk<'_>, element: &Type, dims: &[u32], slot: &Slot<'_>) -> Lowered {
        let (inner, inner_dims) = array_shape(walk.writer(), element);
        let len = dims.iter().chain(&inner_dims).try_fold(1u32, |n, dim| n.checked_mul(*dim));
        let len = len.ok_or_else(|| walk.unsupported("the array is too large"))?;
        let delimited = self.delimited_elements(walk.writer(), &[inner]);
        self.get_delimited(walk, delimited, parameters::EXACT, |walk| {
            match self.get_repeated(walk, inner, len, slot)? {
                Some(segment) => {
                    let size = segment.size();
                    walk.emit(OpKind::Align(self.alignment(segment.wire)));
                    walk.emit(OpKind::Run { segments: [segment].into(), size });
                    Ok(())
                }
                None => self.get_array_elements(walk, inner, len, slot),
            }
        })
    }

    fn map(&self, walk: &mut DecodeWalk<'_>, key: &Type, value: &Type, slot: &Slot<'_>) -> Lowered {
        let delimited = self.delimited_elements(walk.writer(), &[key, value]);
        let (least_key, least_value) = (self.min_wire(walk, key), self.min_wire(walk, value));
        let min_wire = least_key.saturating_add(least_value);
        self.get_delimited(walk, delimited, parameters::EXACT, |walk| {
            self.get_length(walk);
            let key = |walk: &mut DecodeWalk<'_>, at: &Slot<'_>| walk.value(key, at);
            walk.entries(slot, Source::Count, min_wire, key, |walk, at| walk.value(value, at))
        })
    }

    fn structure(&self, walk: &mut DecodeWalk<'_>, id: DefId, members: &[MemberIn<'_>]) -> Lowered {
        let def = walk.writer().def(id);
        self.get_delimited(walk, self.delimited(def), parameters::SKIP_REST, |walk| match def.extensibility {
            Extensibility::Mutable => self.get_mutable(walk, members),
            _ => members.iter().try_for_each(|member| self.get_plain_member(walk, member)),
        })
    }

    fn union(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Lowered {
        let def = walk.writer().def(union.id);
        let mutable = def.extensibility == Extensibility::Mutable;
        self.get_delimited(walk, self.delimited(def), parameters::SKIP_REST, |walk| {
            self.get_discriminator(walk, union, mutable);
            walk.union_arms(union, |walk, case| match mutable {
                true => self.get_case(walk, case),
                false => walk.case_value(case),
            })?;
            if mutable && self.version == Version::One {
                walk.emit(OpKind::Action(parameters::list_end(self.order), 0));
            }
            Ok(())
        })
    }
}

impl Dialect {
    fn get_length(&self, walk: &mut DecodeWalk<'_>) {
        walk.emit(OpKind::Align(4));
        walk.emit(OpKind::Get(Wire::Fixed { scalar: Scalar::U32, order: self.order }));
    }

    /// Emits elements copied as a block. An empty sequence has no padding after its count.
    fn get_bulk(&self, walk: &mut DecodeWalk<'_>, scalar: Scalar, slot: &Slot<'_>) -> Lowered {
        let (place, bound, overflow) = (slot.place, walk.bound(slot), walk.overflow(slot));
        let bulk = OpKind::Bulk { place, scalar, order: self.order, bound, overflow };
        let alignment = self.alignment(scalar);
        if alignment <= 4 {
            walk.emit(bulk);
            return Ok(());
        }
        let empty = walk.block(|walk| {
            walk.emit(OpKind::Clear(place));
            Ok(())
        })?;
        let otherwise = walk.block(|walk| {
            walk.emit(OpKind::Align(alignment));
            walk.emit(bulk);
            Ok(())
        })?;
        walk.emit(OpKind::switch([([0].into(), empty)].into(), otherwise));
        Ok(())
    }

    /// Emits the elements of an array. `len` is the number of elements in the remaining dimensions;
    /// the layout says how they are grouped in memory.
    fn get_array_elements(&self, walk: &mut DecodeWalk<'_>, inner: &Type, len: u32, slot: &Slot<'_>) -> Lowered {
        let here = match walk.kind(slot.place) {
            Some(Kind::Array { len, .. }) => *len,
            _ => len,
        };
        walk.elements(slot, Source::Fixed(here), 0, |walk, at| match walk.kind(at.place) {
            Some(Kind::Array { .. }) => self.get_array_elements(walk, inner, len, at),
            _ => walk.value(inner, at),
        })
    }

    /// An array's elements as one segment of a run, if wire and memory have the same scalars.
    fn get_repeated(
        &self,
        walk: &mut DecodeWalk<'_>,
        inner: &Type,
        len: u32,
        slot: &Slot<'_>,
    ) -> Result<Option<Segment>, LowerError> {
        let scalar = match walk.writer().resolve(inner) {
            Type::Def(_) => None,
            primitive => scalar_of(primitive),
        };
        let Some(scalar) = scalar.filter(|scalar| len.checked_mul(scalar.size() as u32).is_some()) else {
            return Ok(None);
        };
        let place = match slot.place {
            Place::Sink => Place::Sink,
            Place::At { offset, mut node } => {
                while let Kind::Array { element, .. } = walk.layout().node(node).kind {
                    node = element;
                }
                match walk.layout().node(node).kind {
                    Kind::Scalar(memory) if memory == scalar => Place::At { offset, node },
                    _ => return Ok(None),
                }
            }
        };
        let check = (scalar == Scalar::Bool).then_some(Check::Bool);
        let order = self.order;
        Ok(Some(Segment { place, at: 0, wire: scalar, memory: scalar, count: len, order, check }))
    }

    pub(super) fn get_plain_member(&self, walk: &mut DecodeWalk<'_>, member: &MemberIn<'_>) -> Lowered {
        if !member.writer.optional {
            return walk.member(member);
        }
        match self.version {
            Version::One => self.get_optional_parameter(walk, member),
            Version::Two => {
                walk.emit(OpKind::Get(Wire::Fixed { scalar: Scalar::U8, order: self.order }));
                walk.emit(OpKind::Check(Check::Bool));
                let then = walk.block(|walk| walk.member(member))?;
                let otherwise = walk.block(|walk| walk.absent(member))?;
                walk.emit(OpKind::If { then, otherwise });
                Ok(())
            }
        }
    }

    fn get_optional_parameter(&self, walk: &mut DecodeWalk<'_>, member: &MemberIn<'_>) -> Lowered {
        let argument = self.parameter(member.writer);
        let present = |walk: &mut DecodeWalk<'_>| {
            let body = walk.block(|walk| walk.member(member))?;
            let dialect = parameters::parameter_region(self.order);
            walk.emit(OpKind::Region { dialect, argument, body });
            Ok(())
        };
        walk.choose(parameters::parameter_present(self.order), present, |walk| {
            walk.emit(OpKind::Action(parameters::absent_parameter(self.order), argument));
            walk.absent(member)
        })
    }

    fn get_mutable(&self, walk: &mut DecodeWalk<'_>, members: &[MemberIn<'_>]) -> Lowered {
        // A member that the reader lacks has no arm. It is skipped by its length, or refused if it
        // must be understood. In a structure that is skipped as a whole, no member needs to be
        // understood.
        let known = members.iter().filter(|member| member.reader.is_some() || member.in_skipped);
        let arms = known.map(|member| {
            Ok(Arm {
                key: key(member.writer.id, b""),
                prefix: None,
                body: walk.block(|walk| walk.member(member))?,
                absent: walk.block(|walk| walk.left_out(member))?,
            })
        });
        let arms = arms.collect::<Result<Vec<Arm>, LowerError>>()?;
        let dialect = match self.version {
            Version::One => parameters::parameter_list(self.order),
            Version::Two => parameters::member_list(self.order),
        };
        walk.members(dialect, arms);
        Ok(())
    }

    fn get_discriminator(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>, mutable: bool) {
        let wire = if union.wire == Scalar::Bool { Scalar::U8 } else { union.wire };
        let header = u64::from(DISCRIMINATOR_ID) | (wire.size() as u64) << 32;
        match (mutable, self.version) {
            (false, _) => walk.emit(OpKind::Align(self.alignment(wire))),
            (true, Version::One) => walk.emit(OpKind::Action(parameters::scalar_parameter(self.order), header)),
            (true, Version::Two) => walk.emit(OpKind::Action(parameters::scalar_member(self.order), header)),
        }
        walk.emit(OpKind::Get(Wire::Fixed { scalar: wire, order: self.order }));
        if union.wire == Scalar::Bool {
            walk.emit(OpKind::Check(Check::Bool));
        }
        walk.emit(OpKind::Convert(Scalar::I64));
    }

    fn get_case(&self, walk: &mut DecodeWalk<'_>, case: &CaseIn<'_>) -> Lowered {
        let body = walk.block(|walk| walk.case_value(case))?;
        let (dialect, argument) = match self.version {
            Version::One => (parameters::parameter_region(self.order), self.parameter(case.member)),
            Version::Two => {
                let header = self.member_header(walk.writer(), case.member);
                (parameters::member_region(self.order), header.word.into())
            }
        };
        walk.emit(OpKind::Region { dialect, argument, body });
        Ok(())
    }

    /// Emits `fill`, inside a DHEADER if `delimited` is true.
    pub(super) fn get_delimited(
        &self,
        walk: &mut DecodeWalk<'_>,
        delimited: bool,
        rest: u64,
        fill: impl FnOnce(&mut DecodeWalk<'_>) -> Lowered,
    ) -> Lowered {
        if !delimited {
            return fill(walk);
        }
        let body: Block = walk.block(fill)?;
        let dialect = parameters::dheader_region(self.order);
        walk.emit(OpKind::Region { dialect, argument: rest, body });
        Ok(())
    }
}
