//! The decoding dialect of FAST: emits the reading of each kind of type by its plan. The walk of
//! `lower/decode` calls it; `numbers`, `decimals` and `texts` emit single fields. It touches the
//! walk only.

use alloc::{collections::BTreeMap, rc::Rc, sync::Arc, vec::Vec};

use super::{
    decimals::{self, EXPONENT, MANTISSA},
    field::{Field, FieldKind, Operator},
    lowering::Lowering,
    numbers::{Ops, THERE, VALUE},
    plan::{Any, Group, Item, Plan, Plans, Presence, Union},
    texts::Text,
    wide::WIDE,
};
use crate::{
    codec::lower::{DecodeDialect, DecodeWalk, LowerError, MemberIn, Slot, UnionIn},
    layout::Scalar,
    program::{Block, Bytes, Check, FaultKind, Op, OpKind, PathId, Place, SlotOp, Source, TextForm, Wire},
    schema::{DefId, Type},
};

type Done = Result<(), LowerError>;

#[allow(clippy::only_used_in_recursion, reason = "the plan says what is there; the trait's arguments are passed on")]
impl DecodeDialect for Lowering<'_> {
    fn scalar(&self, walk: &mut DecodeWalk<'_>, ty: &Type, _wire: Scalar, slot: &Slot<'_>) -> Done {
        match self.pending(walk.unsupported("the template has no field for it"))? {
            (Plan::Scalar(field), pending) => {
                let scalar = self.get(walk, &field, pending);
                walk.store(ty, scalar, slot)
            }
            (Plan::Word(local), _) => {
                walk.emit(OpKind::Slot(SlotOp::LoadLocal(local, Scalar::I64)));
                walk.store(ty, Scalar::I64, slot)
            }
            (Plan::Wide, _) => walk.get(ty, Wire::Kernel(&WIDE), slot),
            (plan, _) => self.inside(walk, plan, |walk| self.scalar(walk, ty, _wire, slot)),
        }
    }

    fn enumeration(&self, walk: &mut DecodeWalk<'_>, id: DefId, wire: Scalar, slot: &Slot<'_>) -> Done {
        self.scalar(walk, &Type::Def(id), wire, slot)
    }

    fn text(&self, walk: &mut DecodeWalk<'_>, _ty: &Type, slot: &Slot<'_>) -> Done {
        match self.pending(walk.unsupported("the template has no field for it"))? {
            (Plan::Text(_), true) => walk.text(TextForm::Held, slot),
            (Plan::Text(field), false) => self.demand(walk, &field, |walk| walk.text(TextForm::Held, slot)),
            (plan, _) => self.inside(walk, plan, |walk| self.text(walk, _ty, slot)),
        }
    }

    fn sequence(&self, walk: &mut DecodeWalk<'_>, element: &Type, slot: &Slot<'_>) -> Done {
        match self.pending(walk.unsupported("the template has no field for it"))? {
            (Plan::Octets(_), true) => self.octets(walk, element, None, slot),
            (Plan::Octets(field), false) => self.demand(walk, &field, |walk| self.octets(walk, element, None, slot)),
            (Plan::Sequence(sequence), pending) => {
                self.count(walk, &sequence.length, pending);
                self.each(walk, (&sequence.element, sequence.bits), element, Source::Count, slot)
            }
            (plan, _) => self.inside(walk, plan, |walk| self.sequence(walk, element, slot)),
        }
    }

    fn array(&self, walk: &mut DecodeWalk<'_>, element: &Type, dims: &[u32], slot: &Slot<'_>) -> Done {
        let len = crate::schema::array_len(dims).and_then(|len| u32::try_from(len).ok());
        let len = len.ok_or_else(|| walk.unsupported("the array is too large"))?;
        match self.pending(walk.unsupported("the template has no field for it"))? {
            (Plan::Octets(_), true) => self.octets(walk, element, Some(len), slot),
            (Plan::Octets(field), false) => {
                self.demand(walk, &field, |walk| self.octets(walk, element, Some(len), slot))
            }
            (Plan::Sequence(sequence), pending) => {
                self.count(walk, &sequence.length, pending);
                walk.emit(OpKind::Check(Check::Range { min: len.into(), max: len.into() }));
                self.each(walk, (&sequence.element, sequence.bits), element, Source::Fixed(len), slot)
            }
            (plan, _) => self.inside(walk, plan, |walk| self.array(walk, element, dims, slot)),
        }
    }

    fn map(&self, walk: &mut DecodeWalk<'_>, key: &Type, value: &Type, slot: &Slot<'_>) -> Done {
        let (map, pending) = match self.pending(walk.unsupported("the template has no field for it"))? {
            (Plan::Map(map), pending) => (map, pending),
            (plan, _) => return self.inside(walk, plan, |walk| self.map(walk, key, value, slot)),
        };
        self.count(walk, &map.length, pending);
        let fill = |walk: &mut DecodeWalk<'_>, ty: &Type, (plan, bits): (&Plan, u32), slot: &Slot<'_>| {
            self.with_map(walk, bits, |walk| {
                self.set(plan);
                walk.value(ty, slot)
            })
        };
        walk.entries(
            slot,
            Source::Count,
            min_wire(&map.key, map.key_bits).saturating_add(min_wire(&map.value, map.value_bits)),
            |walk, slot| fill(walk, key, (&map.key, map.key_bits), slot),
            |walk, slot| fill(walk, value, (&map.value, map.value_bits), slot),
        )
    }

    fn structure(&self, walk: &mut DecodeWalk<'_>, _id: DefId, members: &[MemberIn<'_>]) -> Done {
        match self.pending(walk.unsupported("the template has no group for it"))? {
            (Plan::Group(group), _) if is_alone(&group) => {
                self.inside(walk, Plan::Group(group), |walk| self.structure(walk, _id, members))
            }
            (Plan::Group(group), _) => {
                let bits = if group.own { group.bits } else { 0 };
                self.with_map(walk, bits, |walk| self.items(walk, &group, members))
            }
            (Plan::Decimal(field), pending) => {
                if !pending {
                    self.test(walk, &field);
                }
                for (local, member) in [EXPONENT, MANTISSA].into_iter().zip(members) {
                    self.set(&Plan::Word(local));
                    walk.member(member)?;
                }
                Ok(())
            }
            _ => Err(walk.unsupported("the template has no group for the structure")),
        }
    }

    fn union(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>) -> Done {
        match self.pending(walk.unsupported("the template has no group for it"))? {
            (Plan::Union(plan), _) => self.with_map(walk, plan.bits, |walk| self.select_case(walk, union, &plan)),
            (Plan::Any(plan), _) => self.with_map(walk, plan.bits, |walk| self.select_template(walk, union, &plan)),
            (plan, _) => self.inside(walk, plan, |walk| self.union(walk, union)),
        }
    }

    fn context(&self) -> u64 {
        self.number()
    }

    fn resume(&self, _: u64) -> bool {
        false
    }
}

/// True for a group around a single value that is not a member of a structure.
pub(super) fn is_alone(group: &Group) -> bool {
    matches!(&group.items[..], [Item { member: None, presence: Presence::Always, .. }])
}

/// Bytes that a value takes at least, with its presence map if that has bits.
fn min_wire(plan: &Plan, bits: u32) -> u32 {
    plan.min_wire().saturating_add(u32::from(bits > 0))
}

impl Lowering<'_> {
    /// Emits a value that has a group of its own.
    fn inside(&self, walk: &mut DecodeWalk<'_>, plan: Plan, fill: impl FnOnce(&mut DecodeWalk<'_>) -> Done) -> Done {
        match plan {
            Plan::Group(group) if is_alone(&group) => {
                let bits = if group.own { group.bits } else { 0 };
                self.with_map(walk, bits, |walk| {
                    self.set(&group.items[0].plan);
                    fill(walk)
                })
            }
            _ => Err(walk.unsupported("the template has a field of another kind")),
        }
    }

    /// Emits `fill` inside a presence map of its own, if it needs one.
    fn with_map(&self, walk: &mut DecodeWalk<'_>, bits: u32, fill: impl FnOnce(&mut DecodeWalk<'_>) -> Done) -> Done {
        if bits == 0 {
            return fill(walk);
        }
        let body = walk.block(fill)?;
        walk.emit(OpKind::PresenceMap { bits, policy: self.plans.policy, body });
        Ok(())
    }

    /// Reads the number of elements into the accumulator.
    fn count(&self, walk: &mut DecodeWalk<'_>, length: &Arc<Field>, pending: bool) {
        self.get(walk, length, pending);
        walk.emit(OpKind::Convert(Scalar::U64));
    }

    /// Emits the reading of a text or byte vector, with the continuations for a present and for an
    /// absent one.
    fn get_text(&self, walk: &mut DecodeWalk<'_>, field: &Field, then: &Block, absent: &Block) {
        let block = self.plans.ops(walk.path(), |ops, uses| {
            let append = |block| move |ops: &mut Ops| ops.append(block);
            Text::of(field, uses).get(ops, &append(then), &append(absent));
        });
        walk.append(block);
    }

    /// The same for a mandatory one.
    fn demand(&self, walk: &mut DecodeWalk<'_>, field: &Field, then: impl FnOnce(&mut DecodeWalk<'_>) -> Done) -> Done {
        let then = walk.block(then)?;
        let absent = walk.failing(FaultKind::MissingMember);
        self.get_text(walk, field, &then, &absent);
        Ok(())
    }

    /// Emits the storing of the bytes in hand in a sequence, or in an array of `len` elements.
    fn octets(&self, walk: &mut DecodeWalk<'_>, element: &Type, len: Option<u32>, slot: &Slot<'_>) -> Done {
        let (place, bound, overflow) = (slot.place, walk.bound(slot), walk.overflow(slot));
        if place == Place::Sink || walk.slice_scalar(element, slot) == Some(Scalar::U8) {
            walk.emit(OpKind::Bytes(Bytes::Octets { place, bound, overflow }));
            return Ok(());
        }
        // The reader's elements are wider than octets.
        walk.emit(OpKind::Bytes(Bytes::Length));
        if let Some(len) = len {
            walk.emit(OpKind::Check(Check::Range { min: len.into(), max: len.into() }));
        }
        let source = len.map_or(Source::Count, Source::Fixed);
        walk.elements(slot, source, 0, |walk, slot| walk.get(element, Wire::Octet, slot))
    }

    fn each(
        &self,
        walk: &mut DecodeWalk<'_>,
        (plan, bits): (&Plan, u32),
        element: &Type,
        source: Source,
        slot: &Slot<'_>,
    ) -> Done {
        walk.elements(slot, source, min_wire(plan, bits), |walk, slot| {
            self.with_map(walk, bits, |walk| {
                self.set(plan);
                walk.value(element, slot)
            })
        })
    }

    fn items(&self, walk: &mut DecodeWalk<'_>, group: &Rc<Group>, members: &[MemberIn<'_>]) -> Done {
        if group.reset {
            walk.emit(OpKind::Slot(SlotOp::Forget { except: self.kept() }));
        }
        let by_name: BTreeMap<&str, &MemberIn<'_>> = members.iter().map(|m| (&*m.writer.name, m)).collect();
        for item in &group.items {
            let Some(name) = &item.member else {
                self.unmapped(walk, item);
                continue;
            };
            let member = by_name.get(name.as_str());
            let member = member.ok_or_else(|| walk.unsupported("the template has a field that the type lacks"))?;
            self.member(walk, item, member)?;
        }
        Ok(())
    }

    /// Emits the reading of a number that is mandatory, or was read before, and returns its type.
    fn get(&self, walk: &mut DecodeWalk<'_>, field: &Field, pending: bool) -> Scalar {
        let scalar = decimals::scalar(field);
        let block = self.plans.ops(walk.path(), |ops, uses| {
            if !pending {
                decimals::get(ops, field, uses);
            }
            if field.optional && !pending {
                ops.demand(FaultKind::MissingMember);
            }
            if field.optional || pending {
                ops.put(SlotOp::LoadLocal(VALUE, scalar));
            }
        });
        walk.append(block);
        scalar
    }

    /// Emits the reading of an optional number. Its value stays in a local, and the accumulator
    /// says whether it is present.
    fn test(&self, walk: &mut DecodeWalk<'_>, field: &Field) {
        let block = self.plans.ops(walk.path(), |ops, uses| {
            decimals::get(ops, field, uses);
            if field.optional {
                return ops.test(THERE);
            }
            if !matches!(field.kind, FieldKind::Decimal | FieldKind::Split(_)) {
                ops.put(SlotOp::StoreLocal(VALUE));
            }
            ops.put(OpKind::Const(Scalar::Bool, 1));
        });
        walk.append(block);
    }

    /// Reads a field that the type lacks. It must be read because it changes later fields.
    fn unmapped(&self, walk: &mut DecodeWalk<'_>, item: &Item) {
        let nothing = |field: &Field| field.operator == Operator::Constant && !field.optional;
        match &item.presence {
            Presence::Field(field) if nothing(field) => {}
            Presence::Field(field) if field.kind.is_text() => {
                self.get_text(walk, field, &Block::default(), &Block::default());
            }
            Presence::Field(field) => self.test(walk, field),
            _ => {}
        }
    }

    fn member(&self, walk: &mut DecodeWalk<'_>, item: &Item, member: &MemberIn<'_>) -> Done {
        let pending = match &item.presence {
            Presence::Always => {
                self.set(&item.plan);
                return walk.member(member);
            }
            Presence::Field(_) => true,
            Presence::Bit => false,
        };
        let then = walk.block(|walk| {
            if pending {
                self.set_pending(&item.plan)
            } else {
                self.set(&item.plan)
            }
            walk.member(member)
        })?;
        let otherwise = walk.block(|walk| walk.left_out(member))?;
        match &item.presence {
            Presence::Field(field) if field.kind.is_text() => {
                self.get_text(walk, field, &then, &otherwise);
                return Ok(());
            }
            Presence::Field(field) => self.test(walk, field),
            _ => walk.emit(OpKind::TakeBit),
        }
        walk.emit(OpKind::If { then, otherwise });
        Ok(())
    }

    fn select_case(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>, plan: &Rc<Union>) -> Done {
        self.get(walk, &plan.discriminator, false);
        walk.emit(OpKind::Convert(Scalar::I64));
        walk.union_arms(union, |walk, case| {
            let index = plan.by_name.get(&case.member.name).copied();
            let index = index.ok_or_else(|| walk.unsupported("the template has no such case"))?;
            walk.emit(OpKind::KnownBits { zeros: index as u32, one: true });
            self.inside(walk, plan.cases[index].1.clone(), |walk| walk.case_value(case))
        })
    }

    fn select_template(&self, walk: &mut DecodeWalk<'_>, union: &UnionIn<'_>, plan: &Rc<Any>) -> Done {
        let mut ids: Vec<i64> = plan.cases.iter().map(|(_, id, _)| (*id).into()).collect();
        ids.sort_unstable();
        self.get(walk, &plan.id, false);
        walk.emit(OpKind::Convert(Scalar::I64));
        self.known(walk, ids);
        walk.union_arms(union, |walk, case| {
            let found = plan.by_name.get(&case.member.name).and_then(|index| plan.cases.get(*index));
            let Some((.., plan)) = found else { return Err(walk.unsupported("there is no template for the case")) };
            self.set(plan);
            walk.case_value(case)
        })
    }

    /// Emits a check that refuses ids without a template.
    fn known(&self, walk: &mut DecodeWalk<'_>, ids: Vec<i64>) {
        let otherwise = walk.failing(FaultKind::UnknownTemplate);
        walk.emit(OpKind::switch([(ids, Block::default())].into(), otherwise));
    }
}

/// Puts the message's presence map and template id around a program's root.
pub(super) fn message(plans: &Plans, (id, field): (u32, &Arc<Field>), root: Block) -> Block {
    let path = PathId(0);
    let head = plans.ops(path, |ops, uses| {
        decimals::get(ops, field, uses);
        let otherwise = ops.fault(FaultKind::UnknownTemplate);
        ops.put(OpKind::switch([([id.into()].into(), Block::default())].into(), otherwise));
    });
    let body = Block(head.0.into_iter().chain(root.0).collect());
    let (bits, policy) = (field.bits() + plans.root.bits(), plans.policy);
    Block([Op { path, kind: OpKind::PresenceMap { bits, policy, body } }].into())
}
