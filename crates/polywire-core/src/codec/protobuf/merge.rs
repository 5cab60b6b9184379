//! Merges the parts of a field that occurs several times.
//!
//! According to the specification, a message field that occurs again is merged with the first
//! occurrence, and elements of a repeated field may have other fields between them. Arrays are
//! repeated fields. The decoding programs do not support this; a message that they refuse for such
//! a reason is rewritten with the parts put together, and decoded again.
//!
//! The structure of the message is taken from the program.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::ops::Range;

use super::{
    delimiters,
    get::{length, skip, tag},
    kinds::{DISCRIMINATOR_NUMBER, LENGTH},
};
use crate::program::{
    Arm, Block, FaultKind, Input, OpKind, Output, Program, Status, SymbolTable, Wire,
    adapter::{Adapter, Events, PositionMap},
    kernel::RegionForm,
};

/// The adapter. It also runs after faults that merging may cure, because the first part of a
/// message may lack a union's case, elements of an array, or a mandatory member that a later part
/// has.
pub(super) static MERGE: Adapter = Adapter {
    name: "merge",
    run,
    only_after: Some(&[delimiters::IN_PIECES, FaultKind::UnknownCase, FaultKind::MissingMember]),
};

type Read<T = ()> = Result<T, Status>;

/// Bytes reserved for the length of a message, enough for any length. The varint may be longer than
/// necessary.
const LENGTH_BYTES: usize = 5;

fn run(program: &Program, input: &mut Input<'_>, events: &mut Events) -> Status {
    events.write(input, |input, output, notes, _| {
        let whole = 0..input.end();
        Status::of(Merge { program, input, output, notes }.message(&program.root, core::slice::from_ref(&whole)))
    })
}

struct Merge<'p, 'm, 'e, 'i, 'o, 'n> {
    program: &'p Program,
    input: &'m mut Input<'i>,
    output: &'m mut Output<'o>,
    notes: &'e mut PositionMap<'n>,
}

/// A field and its position in the message.
struct Field {
    tag: u32,
    start: usize,
    /// End of the tag, and end of the length if there is one.
    head: usize,
    value: usize,
    end: usize,
}

impl Field {
    fn number(&self) -> u32 {
        self.tag >> 3
    }

    fn is_message(&self) -> bool {
        self.tag & 7 == LENGTH
    }
}

/// The fields of a message, taken from the program.
#[derive(Default)]
struct Known<'p> {
    arms: BTreeMap<u32, &'p Arm>,
    /// The cases, for a union's message.
    cases: Option<&'p SymbolTable>,
    levels: u32,
}

/// The contents of a field.
#[derive(Clone, Copy)]
enum Inside<'p> {
    /// One message, in one or several parts.
    Message(&'p Block),
    /// A separate message in each occurrence.
    Messages(&'p Block),
    Other,
}

impl<'p> Merge<'p, '_, '_, '_, '_, '_> {
    /// Writes the message that the parts form together.
    fn message(&mut self, block: &'p Block, pieces: &[Range<usize>]) -> Read {
        let mut known = Known::default();
        self.look(block, &mut known);
        self.input.enter_levels(known.levels).ok()?;
        let mut fields = self.fields(pieces)?;
        if let Some(cases) = known.cases {
            keep_last_case(&mut fields, cases);
        }
        let mut done = BTreeSet::new();
        for (i, field) in fields.iter().enumerate() {
            let number = field.number();
            let arm = known.arms.get(&number);
            let inside = arm.map_or(Inside::Other, |arm| inside(&arm.body));
            let is_piece = match inside {
                Inside::Message(_) => field.is_message(),
                _ => arm.is_some_and(|arm| delimiters::is_refused_again(&arm.key)),
            };
            if !is_piece {
                self.field_alone(field, inside)?;
                continue;
            }
            if !done.insert(number) {
                continue;
            }
            let mut same = fields[i..].iter().filter(|other| other.number() == number);
            match inside {
                Inside::Message(block) => {
                    let pieces = same.filter(|other| other.is_message()).map(|other| other.value..other.end);
                    self.embedded(field, block, &pieces.collect::<Vec<_>>())?;
                }
                // Elements of an array.
                _ => same.try_for_each(|element| self.field_alone(element, inside))?,
            }
        }
        self.input.leave_levels(known.levels);
        Ok(())
    }

    /// Writes a field that is complete in itself.
    fn field_alone(&mut self, field: &Field, inside: Inside<'p>) -> Read {
        match inside {
            Inside::Message(block) | Inside::Messages(block) if field.is_message() => {
                self.embedded(field, block, core::slice::from_ref(&(field.value..field.end)))
            }
            _ => {
                self.notes.note(self.output, field.start);
                self.copy(field.start..field.end)
            }
        }
    }

    /// Writes a field that is a message.
    fn embedded(&mut self, field: &Field, block: &'p Block, pieces: &[Range<usize>]) -> Read {
        self.notes.note(self.output, field.start);
        self.copy(field.start..field.head)?;
        let begin = self.output.position();
        self.output.put(&[0; LENGTH_BYTES]).ok()?;
        self.message(block, pieces)?;
        let len = self.output.position() - begin - LENGTH_BYTES;
        if len > i32::MAX as usize {
            return Err(self.output.fail(FaultKind::Limit, i32::MAX as u64, len as u64));
        }
        let group = |i: usize| (len >> (7 * i)) as u8 & 0x7F | if i + 1 < LENGTH_BYTES { 0x80 } else { 0 };
        self.output.patch(begin, &core::array::from_fn::<u8, LENGTH_BYTES, _>(group));
        Ok(())
    }

    fn copy(&mut self, bytes: Range<usize>) -> Read {
        let message = self.input.message();
        self.output.put(message.get(bytes).unwrap_or_default()).ok()
    }

    /// The fields of a message. Each field lies completely in one of the parts.
    fn fields(&mut self, pieces: &[Range<usize>]) -> Read<Vec<Field>> {
        let outer = self.input.end();
        let mut fields = Vec::new();
        for piece in pieces {
            self.input.restore_end(piece.end);
            self.input.seek(piece.start);
            while self.input.remaining() > 0 {
                let field = self.field()?;
                if fields.len() == fields.capacity() {
                    let more = (fields.len() * 2).max(16);
                    self.input.charge((more - fields.len()) * size_of::<Field>()).ok()?;
                    if fields.try_reserve(more - fields.len()).is_err() {
                        return Err(self.input.fail(FaultKind::OutOfMemory, more as u64, 0));
                    }
                }
                fields.push(field);
            }
        }
        self.input.restore_end(outer);
        Ok(fields)
    }

    fn field(&mut self) -> Read<Field> {
        let start = self.input.position();
        let tag = tag(self.input)?;
        let head = self.input.position();
        if tag & 7 != LENGTH {
            skip(self.input, tag)?;
            return Ok(Field { tag, start, head, value: head, end: self.input.position() });
        }
        let len = length(self.input)?;
        let value = self.input.position();
        self.input.take(len)?;
        Ok(Field { tag, start, head, value, end: value + len })
    }

    /// Collects what a block reads.
    fn look(&self, block: &'p Block, known: &mut Known<'p>) {
        for op in &block.0 {
            match &op.kind {
                OpKind::Members { arms, .. } => {
                    known.arms.extend(arms.iter().filter(|arm| arm.key.id > 0).map(|arm| (arm.key.id, arm)));
                }
                // The format's only symbols are the cases of a union.
                OpKind::Get(Wire::Symbol(_, table)) => known.cases = Some(table),
                OpKind::Call { routine, .. } => {
                    if let Some(routine) = self.program.routines.get(*routine as usize) {
                        known.levels += routine.levels;
                        self.look(&routine.block, known);
                    }
                }
                kind => crate::program::passes::inner_blocks(kind, &mut |inner| self.look(inner, known)),
            }
        }
    }
}

/// The kind of value that a field's block reads.
fn inside(block: &Block) -> Inside<'_> {
    block.0.iter().map(|op| &op.kind).fold(Inside::Other, |found, kind| match kind {
        OpKind::Region { body, dialect, .. } if matches!(dialect.form, Some(RegionForm::Length { .. })) => {
            Inside::Message(body)
        }
        OpKind::Present { body, .. } | OpKind::Unbox { body, .. } => inside(body),
        OpKind::Sequence { element, .. } => match inside(element) {
            Inside::Message(block) => Inside::Messages(block),
            _ => Inside::Other,
        },
        // Map entries are messages. Only their values may contain messages.
        OpKind::Map { value, .. } => Inside::Messages(value),
        _ => found,
    })
}

/// In a union without a discriminator, the last case counts. Removes earlier cases.
fn keep_last_case(fields: &mut Vec<Field>, cases: &SymbolTable) {
    let is_case = |field: &Field| {
        let (digits, len) = delimiters::number_name(field.number());
        digits.get(..len).is_some_and(|name| cases.value(name).is_some())
    };
    let last = fields.iter().rev().find(|field| is_case(field)).map(Field::number);
    let says = fields.iter().any(|field| field.number() == DISCRIMINATOR_NUMBER);
    let Some(last) = last.filter(|_| !says) else { return };
    let others = fields.iter().rposition(|field| is_case(field) && field.number() != last);
    if let Some(others) = others {
        let mut at = 0;
        fields.retain(|field| {
            at += 1;
            at > others + 1 || !is_case(field)
        });
    }
}
