//! The encoding dialect of FAST: emits the writing of each kind of type by its plan. The walk of
//! `lower/encode` calls it; `numbers`, `decimals` and `texts` emit single fields. It touches the
//! walk only.

use alloc::{collections::BTreeMap, rc::Rc, sync::Arc};

use super::{
    decimals::{self, EXPONENT, MANTISSA},
    decode::is_alone,
    field::Field,
    lowering::Lowering,
    plan::{Any, Group, Item, Plan, Plans, Presence, Union},
    texts::Text,
    wide::WIDE,
};
use crate::{
    codec::lower::{EncodeDialect, EncodeWalk, LowerError, MemberOut, UnionOut},
    layout::Scalar,
    program::{Block, Bytes, FaultKind, Op, OpKind, Overflow, PathId, Place, SlotOp, TextForm, Wire},
    schema::{DefId, Type},
};

type Done = Result<(), LowerError>;

#[allow(clippy::only_used_in_recursion, reason = "the plan says what is there; the trait's arguments are passed on")]
impl EncodeDialect for Lowering<'_> {
    fn scalar(&self, walk: &mut EncodeWalk<'_>, _: &Type, _: Scalar, place: Place) -> Done {
        let plan = self.plan(walk.unsupported("the template has no field for it"))?;
        if !matches!(plan, Plan::Scalar(_) | Plan::Word(_) | Plan::Wide) {
            return self.alone(walk, plan, |walk| self.scalar(walk, &Type::Bool, Scalar::Bool, place));
        }
        walk.emit(OpKind::Load(place));
        let memory = walk.memory_scalar(place)?;
        match plan {
            Plan::Scalar(field) => self.put(walk, &field, memory),
            Plan::Word(local) => {
                if memory != Scalar::I64 {
                    walk.emit(OpKind::Convert(Scalar::I64));
                }
                walk.emit(OpKind::Slot(SlotOp::StoreLocal(local)));
            }
            _ => walk.emit(OpKind::Put(Wire::Kernel(&WIDE))),
        }
        Ok(())
    }

    fn enumeration(&self, walk: &mut EncodeWalk<'_>, id: DefId, wire: Scalar, place: Place) -> Done {
        self.scalar(walk, &Type::Def(id), wire, place)
    }

    fn text(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place) -> Done {
        let field = match self.plan(walk.unsupported("the template has no field for it"))? {
            Plan::Text(field) => field,
            plan => return self.alone(walk, plan, |walk| self.text(walk, ty, place)),
        };
        self.put_text(walk, &field, &EncodeWalk::string(ty, place, TextForm::Held));
        Ok(())
    }

    fn sequence(&self, walk: &mut EncodeWalk<'_>, element: &Type, bound: u32, place: Place) -> Done {
        match self.plan(walk.unsupported("the template has no field for it"))? {
            Plan::Octets(field) => {
                let load = OpKind::Bytes(Bytes::Octets { place, bound, overflow: Overflow::Refuse });
                self.put_text(walk, &field, &load);
                Ok(())
            }
            Plan::Sequence(sequence) => {
                walk.emit(OpKind::Length(place));
                self.put(walk, &sequence.length, Scalar::U64);
                self.elements(walk, (&sequence.element, sequence.bits), element, bound, place)
            }
            plan => self.alone(walk, plan, |walk| self.sequence(walk, element, bound, place)),
        }
    }

    fn array(&self, walk: &mut EncodeWalk<'_>, element: &Type, dims: &[u32], place: Place) -> Done {
        match self.plan(walk.unsupported("the template has no field for it"))? {
            Plan::Octets(field) => {
                let load = OpKind::Bytes(Bytes::Octets { place, bound: 0, overflow: Overflow::Refuse });
                self.put_text(walk, &field, &load);
                Ok(())
            }
            Plan::Sequence(sequence) => {
                let len = crate::schema::array_len(dims).unwrap_or(0);
                walk.emit(OpKind::Const(Scalar::U64, len as u128));
                self.put(walk, &sequence.length, Scalar::U64);
                self.elements(walk, (&sequence.element, sequence.bits), element, 0, place)
            }
            plan => self.alone(walk, plan, |walk| self.array(walk, element, dims, place)),
        }
    }

    fn map(&self, walk: &mut EncodeWalk<'_>, key: &Type, value: &Type, bound: u32, place: Place) -> Done {
        let map = match self.plan(walk.unsupported("the template has no field for it"))? {
            Plan::Map(map) => map,
            plan => return self.alone(walk, plan, |walk| self.map(walk, key, value, bound, place)),
        };
        walk.emit(OpKind::Length(place));
        self.put(walk, &map.length, Scalar::U64);
        let fill = |walk: &mut EncodeWalk<'_>, ty: &Type, (plan, bits): (&Plan, u32), place: Place| {
            self.segmented(walk, bits, |walk| {
                self.set(plan);
                walk.value(ty, place)
            })
        };
        walk.entries(
            place,
            bound,
            |walk, place| fill(walk, key, (&map.key, map.key_bits), place),
            |walk, place| fill(walk, value, (&map.value, map.value_bits), place),
        )
    }

    fn structure(&self, walk: &mut EncodeWalk<'_>, _id: DefId, members: &[MemberOut<'_>]) -> Done {
        match self.plan(walk.unsupported("the template has no group for it"))? {
            Plan::Group(group) if is_alone(&group) => {
                self.alone(walk, Plan::Group(group), |walk| self.structure(walk, _id, members))
            }
            Plan::Group(group) => self.group(walk, &group, members),
            Plan::Decimal(field) => {
                for (local, member) in [EXPONENT, MANTISSA].into_iter().zip(members) {
                    self.set(&Plan::Word(local));
                    walk.member(member.member, member.place)?;
                }
                let block = self.plans.ops(walk.path(), |ops, uses| decimals::put(ops, &field, uses));
                walk.append(block);
                Ok(())
            }
            _ => Err(walk.unsupported("the template has no group for the structure")),
        }
    }

    fn union(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Done {
        match self.plan(walk.unsupported("the template has no group for it"))? {
            Plan::Union(plan) => self.segmented(walk, plan.bits, |walk| self.cases(walk, union, &plan)),
            Plan::Any(plan) => self.segmented(walk, plan.bits, |walk| self.templates(walk, union, &plan)),
            plan => self.alone(walk, plan, |walk| self.union(walk, union)),
        }
    }

    fn context(&self) -> u64 {
        self.number()
    }

    fn resume(&self, _: u64) -> bool {
        false
    }
}

impl Lowering<'_> {
    /// Emits the accumulator as a field.
    fn put(&self, walk: &mut EncodeWalk<'_>, field: &Field, from: Scalar) {
        let block = self.plans.ops(walk.path(), |ops, uses| {
            decimals::convert(ops, field, from);
            decimals::put(ops, field, uses);
        });
        walk.append(block);
    }

    /// Emits the absence of a field.
    fn put_absent(&self, walk: &mut EncodeWalk<'_>, field: &Field) {
        let block = self.plans.ops(walk.path(), |ops, _| decimals::put_absent(ops, field));
        walk.append(block);
    }

    /// Emits `load`, which takes bytes in hand, and the writing of them as a field.
    fn put_text(&self, walk: &mut EncodeWalk<'_>, field: &Field, load: &OpKind) {
        let block = self.plans.ops(walk.path(), |ops, uses| Text::of(field, uses).put(ops, load));
        walk.append(block);
    }

    /// Emits a value that has a group of its own.
    fn alone(&self, walk: &mut EncodeWalk<'_>, plan: Plan, fill: impl FnOnce(&mut EncodeWalk<'_>) -> Done) -> Done {
        match plan {
            Plan::Group(group) if is_alone(&group) => {
                let bits = if group.own { group.bits } else { 0 };
                self.segmented(walk, bits, |walk| {
                    self.set(&group.items[0].plan);
                    fill(walk)
                })
            }
            _ => Err(walk.unsupported("the template has a field of another kind")),
        }
    }

    /// Emits `fill` inside a presence map of its own, if it needs one.
    fn segmented(&self, walk: &mut EncodeWalk<'_>, bits: u32, fill: impl FnOnce(&mut EncodeWalk<'_>) -> Done) -> Done {
        if bits == 0 {
            return fill(walk);
        }
        let body = walk.block(fill)?;
        walk.emit(OpKind::PresenceMap { bits, policy: self.plans.policy, body });
        Ok(())
    }

    fn elements(
        &self,
        walk: &mut EncodeWalk<'_>,
        (plan, bits): (&Plan, u32),
        element: &Type,
        bound: u32,
        place: Place,
    ) -> Done {
        walk.elements(place, bound, |walk, place| {
            self.segmented(walk, bits, |walk| {
                self.set(plan);
                walk.value(element, place)
            })
        })
    }

    fn group(&self, walk: &mut EncodeWalk<'_>, group: &Rc<Group>, members: &[MemberOut<'_>]) -> Done {
        let bits = if group.own { group.bits } else { 0 };
        self.segmented(walk, bits, |walk| {
            if group.reset {
                self.reset(walk);
            }
            let members = members.iter().map(|out| (&*out.member.name, out)).collect();
            group.items.iter().try_for_each(|item| self.item(walk, item, &members))
        })
    }

    fn reset(&self, walk: &mut EncodeWalk<'_>) {
        walk.emit(OpKind::Slot(SlotOp::Forget { except: self.kept() }));
    }

    fn item(&self, walk: &mut EncodeWalk<'_>, item: &Item, members: &BTreeMap<&str, &MemberOut<'_>>) -> Done {
        let Some(name) = &item.member else {
            if let Presence::Field(field) = &item.presence
                && field.optional
            {
                self.put_absent(walk, field);
            }
            return Ok(());
        };
        let out = members.get(name.as_str()).copied();
        let out = out.ok_or_else(|| walk.unsupported("the template has a field that the type lacks"))?;
        let present = |walk: &mut EncodeWalk<'_>, place: Place| {
            if let Presence::Bit = item.presence {
                walk.emit(OpKind::KnownBits { zeros: 0, one: true });
            }
            self.set(&item.plan);
            walk.member(out.member, place)
        };
        if !out.member.optional {
            return present(walk, out.place);
        }
        walk.if_present(out, present, |walk| {
            match &item.presence {
                Presence::Field(field) => self.put_absent(walk, field),
                Presence::Bit => walk.emit(OpKind::KnownBits { zeros: 1, one: false }),
                Presence::Always => walk.emit(OpKind::Fail(FaultKind::Unrepresentable)),
            }
            Ok(())
        })
    }

    fn cases(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>, plan: &Rc<Union>) -> Done {
        let discriminator = |walk: &mut EncodeWalk<'_>| self.put(walk, &plan.discriminator, Scalar::I64);
        walk.union_arms(
            union,
            |walk, case, place| {
                let index = plan.by_name.get(&case.member.name).copied();
                let index = index.ok_or_else(|| walk.unsupported("the template has no such case"))?;
                discriminator(walk);
                walk.emit(OpKind::KnownBits { zeros: index as u32, one: true });
                self.alone(walk, plan.cases[index].1.clone(), |walk| walk.member(&case.member, place))
            },
            |walk| {
                discriminator(walk);
                Ok(())
            },
        )
    }

    fn templates(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>, plan: &Rc<Any>) -> Done {
        walk.union_arms(
            union,
            |walk, case, place| {
                let found = plan.by_name.get(&case.member.name).and_then(|index| plan.cases.get(*index));
                let Some((_, id, plan_of)) = found else {
                    return Err(walk.unsupported("there is no template for the case"));
                };
                walk.emit(OpKind::Const(Scalar::U32, (*id).into()));
                self.put(walk, &plan.id, Scalar::U32);
                self.set(plan_of);
                walk.member(&case.member, place)
            },
            |walk| {
                walk.emit(OpKind::Fail(FaultKind::UnknownTemplate));
                Ok(())
            },
        )
    }
}

/// Puts the message's presence map and template id around a program's root.
pub(super) fn message(plans: &Plans, (id, field): (u32, &Arc<Field>), root: Block) -> Block {
    let path = PathId(0);
    let head = plans.ops(path, |ops, uses| {
        ops.put(OpKind::Const(decimals::scalar(field), id.into()));
        decimals::put(ops, field, uses);
    });
    let body = Block(head.0.into_iter().chain(root.0).collect());
    let (bits, policy) = (field.bits() + plans.root.bits(), plans.policy);
    Block([Op { path, kind: OpKind::PresenceMap { bits, policy, body } }].into())
}
