//! Unions in the walk for decoding: selects the reader's case for the writer's discriminator.
//! Decoding dialects call [`DecodeWalk::union_arms`] and [`DecodeWalk::case_value`]. It touches the
//! walk only.

use super::*;
use crate::program::{RegionDialect, SymbolKernel};

/// A case of the writer's union, and the destination of its value.
#[derive(Clone, Copy, Debug)]
pub struct CaseIn<'a> {
    /// The writer's member.
    pub member: &'a Member,
    /// The destination of the case's value.
    pub slot: Slot<'a>,
}

/// The cases that a discriminator selects on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CaseRow {
    writer: Option<usize>,
    reader: Option<usize>,
    step: CaseStep,
}

impl CaseRow {
    fn unknown(self) -> CaseRow {
        CaseRow { step: CaseStep::Unknown, ..self }
    }
}

impl<'a> DecodeWalk<'a> {
    /// Emits a choice among a union's cases by the accumulator, an `I64`. Refuses a number that is
    /// not a discriminator of the writer's type. `value` emits what a format has around a case's
    /// value, and calls [`DecodeWalk::case_value`] for the value itself.
    pub fn union_arms(
        &mut self,
        union: &UnionIn<'_>,
        mut value: impl FnMut(&mut Self, &CaseIn<'_>) -> Result<(), LowerError>,
    ) -> Result<(), LowerError> {
        self.check_discriminator(union);
        let rows = self.case_rows(union);
        let mut arms: Vec<(CaseRow, Vec<i64>)> = Vec::new();
        let mut arm_of: BTreeMap<(Option<usize>, Option<usize>, u8), usize> = BTreeMap::new();
        let mut otherwise = Block::default();
        for (label, row) in rows {
            let Some(label) = label else {
                otherwise = self.block(|walk| walk.case_row(union, &row, &mut value))?;
                continue;
            };
            let arm = *arm_of.entry((row.writer, row.reader, row.step as u8)).or_insert(arms.len());
            match arms.get_mut(arm) {
                Some((_, labels)) => labels.push(label),
                None => arms.push((row, [label].into())),
            }
        }
        let arms = arms.into_iter().map(|(row, labels)| {
            let block = self.block(|walk| walk.case_row(union, &row, &mut value))?;
            Ok((labels, block))
        });
        let arms = arms.collect::<Result<Vec<_>, LowerError>>()?;
        self.emit(OpKind::switch(arms, otherwise));
        Ok(())
    }

    /// Emits a check that the discriminator is a value of its type. This is needed even for values
    /// without a case, because a record could not be encoded again with an invalid discriminator.
    fn check_discriminator(&mut self, union: &UnionIn<'_>) {
        let writer = self.writer;
        let definition = match writer.resolve(union.discriminator) {
            Type::Def(id) => Some((*id, &writer.def(*id).kind)),
            _ => None,
        };
        let check = match definition {
            Some((id, DefKind::Enum { literals, .. })) => self.one_of(id, literals),
            _ => match union.wire.range() {
                Some((min, max)) if !self.is_within(min, max) => Check::Range { min, max },
                _ => return,
            },
        };
        self.emit(OpKind::Check(check));
    }

    /// True if the accumulator came from a scalar whose range lies within `min` to `max`.
    fn is_within(&self, min: i128, max: i128) -> bool {
        let scalar = self.ops.iter().rev().find_map(|op| match &op.kind {
            OpKind::Convert(_) => None,
            OpKind::Check(Check::Bool) => Some(Some(Scalar::Bool)),
            OpKind::Get(wire) => Some(Some(wire.scalar())),
            _ => Some(None),
        });
        scalar.flatten().and_then(Scalar::range).is_some_and(|(low, high)| min <= low && high <= max)
    }

    fn case_rows(&self, union: &UnionIn<'_>) -> Vec<(Option<i64>, CaseRow)> {
        // Without a reader the union is paired with itself, so that every case of the writer is
        // skipped.
        let (reader, target) = match self.reader_def(&union.slot) {
            Some(target) => (self.reader, target),
            None => (self.writer, union.id),
        };
        let pairs = evolve::case_steps(self.writer, union.id, reader, target);
        let mut foreign = foreign_literals(self.writer, union.id, reader, target);
        let row = |(pair, step): &(evolve::CasePair<'_>, CaseStep)| CaseRow {
            writer: pair.writer.map(|(i, _)| i),
            reader: pair.reader.map(|(i, _)| i),
            step: *step,
        };
        let mut rows: Vec<(Option<i64>, CaseRow)> = Vec::new();
        for pair in &pairs {
            let label = pair.0.label;
            let unknown = label.is_some_and(|label| foreign.remove(&label));
            rows.push((label, if unknown { row(pair).unknown() } else { row(pair) }));
        }
        let others = pairs.iter().find(|(pair, _)| pair.label.is_none()).map(row);
        rows.extend(
            foreign.into_iter().zip(others.into_iter().cycle()).map(|(label, row)| (Some(label), row.unknown())),
        );
        rows
    }

    fn case_row(
        &mut self,
        union: &UnionIn<'_>,
        row: &CaseRow,
        value: &mut dyn FnMut(&mut Self, &CaseIn<'_>) -> Lowered,
    ) -> Lowered {
        let writer_case = |i: usize| match &self.writer.def(union.id).kind {
            DefKind::Union { cases, .. } => cases.get(i),
            _ => None,
        };
        let writer = row.writer.and_then(writer_case).map(|case| &case.member);
        let sunk = union.slot.place == Place::Sink;
        match (row.step, writer) {
            (CaseStep::Same, Some(member)) if !sunk => self.case_same(union, row, member, value),
            (CaseStep::Same | CaseStep::Unknown, Some(member)) => {
                value(self, &CaseIn { member, slot: Slot::SINK })?;
                if sunk { Ok(()) } else { self.case_unknown(union) }
            }
            (CaseStep::Unknown, None) if !sunk => self.case_unknown(union),
            (CaseStep::Default, _) if !sunk => {
                let (Some(case), Some(ty)) = (row.reader, union.slot.reader) else { return Err(self.mismatch()) };
                self.select_default(ty, case, union.slot.place)
            }
            _ if sunk => Ok(()),
            _ => {
                self.emit(OpKind::Select { place: union.slot.place, case: None, body: Block::default() });
                Ok(())
            }
        }
    }

    fn case_same(
        &mut self,
        union: &UnionIn<'_>,
        row: &CaseRow,
        member: &Member,
        value: &mut dyn FnMut(&mut Self, &CaseIn<'_>) -> Lowered,
    ) -> Lowered {
        let reader = self.reader;
        let case = row.reader.ok_or_else(|| self.mismatch())?;
        let Some(Kind::Union(node)) = self.kind(union.slot.place) else { return Err(self.mismatch()) };
        let node = *node.cases.get(case).ok_or_else(|| self.mismatch())?;
        let target = match self.reader_def(&union.slot).map(|id| &reader.def(id).kind) {
            Some(DefKind::Union { cases, .. }) => cases.get(case).map(|c| &c.member),
            _ => None,
        };
        let target = target.ok_or_else(|| self.mismatch())?;
        let inside = Place::At { offset: 0, node };
        let body = self.block(|walk| {
            walk.through_pointer(target, inside, |walk, slot| value(walk, &CaseIn { member, slot: *slot }))
        })?;
        self.emit(OpKind::Select { place: union.slot.place, case: Some(case as u32), body });
        Ok(())
    }

    /// Emits what happens after a value was skipped for which the reader has no case.
    fn case_unknown(&mut self, union: &UnionIn<'_>) -> Lowered {
        match (union.slot.try_construct, union.slot.reader) {
            (TryConstruct::UseDefault, Some(ty)) => {
                let reader = self.reader;
                let value = union.slot.member.map_or_else(|| zero_of(reader, ty), |m| value_default(reader, m));
                self.default(value, ty, union.slot.place)
            }
            _ => {
                self.emit(OpKind::Fail(FaultKind::UnknownCase));
                Ok(())
            }
        }
    }

    /// Emits a union inside a region, in which the name of a member selects the case, unless there
    /// is a discriminator beside it. `selectors` find what selects; the second one if it is a
    /// character. `name` makes a member's name as the format has it.
    pub(crate) fn named_case(
        &mut self,
        union: &UnionIn<'_>,
        selectors: [&'static SymbolKernel; 2],
        members: &'static MemberDialect,
        region: &'static RegionDialect,
        name: impl Fn(&str) -> Box<[u8]>,
    ) -> Lowered {
        let writer = self.writer;
        let DefKind::Union { cases, .. } = &writer.def(union.id).kind else { return Err(self.mismatch()) };
        let table = symbols::union_head(writer, union.discriminator, cases, &str::to_string);
        let selector = selectors[usize::from(self.is_character(union))];
        let body = self.block(|walk| {
            walk.emit(OpKind::Get(Wire::Symbol(selector, table)));
            walk.union_arms(union, |walk, case| {
                let body = walk.block(|walk| walk.case_value(case))?;
                let absent = walk.failing(FaultKind::MissingMember);
                let key = key(0, &name(&case.member.name));
                walk.members(members, [Arm { key, prefix: None, body, absent }].into());
                Ok(())
            })
        })?;
        self.emit(OpKind::Region { dialect: region, argument: 0, body });
        Ok(())
    }

    /// True if a union's discriminator is a character.
    pub(crate) fn is_character(&self, union: &UnionIn<'_>) -> bool {
        matches!(self.writer.resolve(union.discriminator), Type::Char8 | Type::Char16)
    }

    /// Emits the value of a union's case.
    pub fn case_value(&mut self, case: &CaseIn<'_>) -> Result<(), LowerError> {
        let step = self.paths.enter(&case.member.name);
        let done = self.value(&case.member.ty, &case.slot);
        self.paths.leave(step);
        done
    }
}

/// Discriminators that are literals of the writer's enum but not of the reader's. They select an
/// unknown case, whatever the labels say.
fn foreign_literals(writer: &Schema, w: DefId, reader: &Schema, r: DefId) -> BTreeSet<i64> {
    let literals = |schema: &Schema, id: DefId| -> BTreeSet<i64> {
        let DefKind::Union { discriminator, .. } = &schema.def(id).kind else { return BTreeSet::new() };
        match schema.def_of(discriminator).map(|def| &def.kind) {
            Some(DefKind::Enum { literals, .. }) => literals.iter().map(|l| l.value.into()).collect(),
            _ => BTreeSet::new(),
        }
    };
    literals(writer, w).difference(&literals(reader, r)).copied().collect()
}
