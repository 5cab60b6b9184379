//! Runs of mandatory fields as machine code does them: eight fields at a time, side by side as words.
//!
//! Machine code puts the values of a run's members into *lanes*, words on its stack, or takes them from there; a function does the fields.
//! A *chunk* is eight lanes whose operators, ranges and tags are masks and tables, so that a presence map's bits come out of one wide
//! comparison with the previous values, and entities of a byte are moved together. Whatever is rare in a chunk (no previous value, a value
//! out of range, an entity of more than eight bytes, anything that is wrong) is done field by field, by the functions that the interpreter
//! calls, from the chunk's beginning.

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use super::{Field, FieldKind, Initial, Operator, Policy};
use crate::{
    layout::Scalar,
    program::{PathId, io::SHORT_TEXT},
};

mod get;
mod put;
mod wide;

pub(crate) use get::set_initial;
pub(crate) use wide::{Level, level};

/// Lanes of a chunk.
const WIDTH: usize = 8;

/// Chunks of a run at most.
const MAX_CHUNKS: usize = 64;

/// Fields that follow each other.
pub(crate) struct Run {
    chunks: Vec<Chunk>,
    lanes: Vec<Lane>,
    /// Slots that its fields keep: none twice, since a chunk's fields are done at once.
    slots: Vec<(u32, u32)>,
}

/// What of eight lanes is the same for every message. A mask has a bit for each lane.
#[derive(Clone, Default)]
#[repr(C, align(64))]
struct Chunk {
    /// The value that is left out, of defaults and constants.
    initial: [u64; WIDTH],
    /// One for increments.
    step: [u64; WIDTH],
    /// The largest value of increments.
    largest: [u64; WIDTH],
    /// A value is in range if it is at most `span` more than `least`.
    least: [u64; WIDTH],
    span: [u64; WIDTH],
    /// Tags of assigned slots, and where there must be one.
    tags: [u8; WIDTH],
    tagged: [u8; WIDTH],
    slots: [u32; WIDTH],
    /// The slots are one after the other from the first.
    in_order: bool,
    /// Fields with a bit in the presence map.
    bits: u8,
    /// Integers that are always there.
    always: u8,
    /// Defaults and constants; increments; differences.
    fixed: u8,
    delta: u8,
    increment: u8,
    constant: u8,
    /// Fields that keep their value in a slot.
    kept: u8,
    /// Entities with a sign; nullable ones.
    signed: u8,
    nullable: u8,
    /// Values that may be out of range.
    checked: u8,
    /// Differences of 64 bits.
    wide: u8,
    texts: u8,
    /// Of the strings, those that machine code compares with their initial value, and sets to it; and of the others those that have one.
    inline: u8,
    fixed_text: u8,
    /// Memory that strings with an initial value take at most.
    fixed_cost: usize,
    /// First lanes of numbers, and the bits that stand for those that are no decimals.
    floats: u8,
    escapes: u8,
}

/// A lane's member and field, for what is done one by one.
struct Lane {
    kind: LaneKind,
    field: Option<Arc<Field>>,
    path: PathId,
    /// Of the member, from the frame.
    offset: u32,
    /// The member's type in memory.
    memory: Scalar,
    /// What its value is turned into, one after the other, on its way to the field or from it.
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LaneKind {
    Idle,
    Int,
    Text,
    /// A number; its parts are in the lanes behind it.
    Float,
    Part,
}

/// A step between a member and its field.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// To another type.
    Convert(Scalar),
    /// A boolean is 0 or 1.
    Bool,
}

/// A member with its field.
pub(crate) struct Member<'f> {
    pub field: &'f Arc<Field>,
    pub path: PathId,
    pub offset: u32,
    pub memory: Scalar,
    pub steps: Vec<Step>,
    /// The value comes from memory, so that it is one of the member's type.
    pub encoded: bool,
    /// It is a string that machine code compares and sets: its lane says whether it differs, or whether the message has it.
    pub inline: bool,
}

impl Run {
    pub fn new() -> Run {
        Run { chunks: Vec::new(), lanes: Vec::new(), slots: Vec::new() }
    }

    /// Number of lanes.
    pub fn width(&self) -> usize {
        self.lanes.len()
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.lanes.iter().filter(|lane| !matches!(lane.kind, LaneKind::Idle | LaneKind::Part)).count()
    }

    /// Bytes that the fields may take, and that may be written behind them.
    fn room(&self) -> usize {
        10 * self.lanes.len() + 80
    }

    /// Adds a member; gives its lane, or none if its field is none of those that are done here.
    pub fn push(&mut self, member: Member<'_>) -> Option<usize> {
        let parts = parts(member.field, &member)?;
        let filled = self.lanes.len() % WIDTH;
        let idle = if filled > 0 && filled + parts.len() > WIDTH { WIDTH - filled } else { 0 };
        if (self.lanes.len() + idle + parts.len()).div_ceil(WIDTH) > MAX_CHUNKS {
            return None;
        }
        let slots = parts.iter().filter(|part| part.field.has_slot());
        let slots: Vec<_> = slots.map(|part| (part.field.slot, u32::from(part.field.kind.is_text()))).collect();
        // A slot that comes twice has its second value after its first.
        if slots.iter().any(|(slot, _)| self.slots.iter().any(|(known, _)| known == slot)) {
            return None;
        }
        self.slots.extend(slots);
        (0..idle).for_each(|_| self.lanes.push(Lane::idle()));
        let lane = self.lanes.len();
        for (i, part) in parts.iter().enumerate() {
            let at = (lane + i) % WIDTH;
            if at == 0 {
                self.chunks.push(Chunk::default());
            }
            if let Some(chunk) = self.chunks.last_mut() {
                chunk.set(at, part, member.inline);
            }
            let (kind, field) = match (parts.len() > 1, i) {
                (true, 0) => (LaneKind::Float, Some(member.field.clone())),
                (true, _) => (LaneKind::Part, None),
                _ if part.field.kind.is_text() => (LaneKind::Text, Some(member.field.clone())),
                _ => (LaneKind::Int, Some(member.field.clone())),
            };
            let steps = if i == 0 { member.steps.clone() } else { Vec::new() };
            let Member { path, offset, memory, .. } = member;
            self.lanes.push(Lane { kind, field, path, offset, memory, steps });
        }
        Some(lane)
    }

    /// Nothing more is added.
    pub fn complete(&mut self) {
        while !self.lanes.len().is_multiple_of(WIDTH) {
            self.lanes.push(Lane::idle());
        }
        self.chunks.iter_mut().for_each(Chunk::complete);
    }
}

/// A field that a lane is for.
struct Part<'f> {
    field: &'f Field,
    /// Values that may be there; none if any may.
    range: Option<(i64, i64)>,
    role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Value,
    Exponent,
    Escape,
}

/// The lanes of a field.
fn parts<'f>(field: &'f Field, member: &Member<'_>) -> Option<Vec<Part<'f>>> {
    let one = |range| Some(Vec::from([Part { field, range, role: Role::Value }]));
    match &field.kind {
        FieldKind::Int { .. } if !field.optional && field.operator != Operator::Tail && member.memory.size() <= 8 => {
            one(range(field, member)?)
        }
        FieldKind::Ascii | FieldKind::Unicode | FieldKind::Bytes
            if !field.optional
                && field.policy == Policy::Reject
                && matches!(field.operator, Operator::Constant | Operator::Default | Operator::Copy)
                && member.steps.is_empty() =>
        {
            one(None)
        }
        FieldKind::Float { decimal, bits, .. }
            if !field.optional && member.steps.is_empty() && member.memory == field.scalar() =>
        {
            let FieldKind::Split(parts) = &decimal.kind else { return None };
            let [exponent, mantissa] = &**parts;
            let known = matches!(exponent.operator, Operator::Constant | Operator::Default | Operator::Copy);
            if !known || exponent.optional && exponent.operator == Operator::Constant {
                return None;
            }
            // A default without a value is absence, which is none of the decimals here.
            if exponent.operator == Operator::Default && exponent.initial.is_none() {
                return None;
            }
            let mut lanes = Vec::from([
                Part { field: exponent, range: Some((-63, 63)), role: Role::Exponent },
                Part { field: mantissa, range: None, role: Role::Value },
            ]);
            if let Some(bits) = bits {
                if bits.operator != Operator::Default || bits.initial.is_some() {
                    return None;
                }
                lanes.push(Part { field: bits, range: None, role: Role::Escape });
            }
            Some(lanes)
        }
        _ => None,
    }
}

/// The values that both field and member can have. None if the range is not one that a comparison can tell.
#[allow(clippy::option_option, reason = "no range at all is another answer than one that holds everything")]
fn range(field: &Field, member: &Member<'_>) -> Option<Option<(i64, i64)>> {
    let FieldKind::Int { signed, min, max } = field.kind else { return None };
    let (mut low, mut high) = (min, max);
    let types = member.steps.iter().map(|step| match step {
        Step::Convert(to) => to.range(),
        Step::Bool => Some((0, 1)),
    });
    let memory = if member.memory == Scalar::Bool { Some((0, 1)) } else { member.memory.range() };
    for range in types {
        let (least, most) = range?;
        (low, high) = (low.max(least), high.min(most));
    }
    let (least, most) = memory?;
    if member.encoded && low <= least && most <= high {
        return Some(None);
    }
    (low, high) = (low.max(least), high.min(most));
    let full = if signed { (i64::MIN.into(), i64::MAX.into()) } else { (0, i128::from(u64::MAX)) };
    match (i64::try_from(low), i64::try_from(high)) {
        _ if (low, high) == full => Some(None),
        (Ok(low), Ok(high)) if low <= high && i128::from(high) - i128::from(low) < 1 << 40 => Some(Some((low, high))),
        _ => None,
    }
}

impl Chunk {
    fn set(&mut self, at: usize, part: &Part<'_>, inline: bool) {
        let (field, bit) = (part.field, 1 << at);
        let initial = match &field.initial {
            Some(Initial::Int(value)) => *value,
            // Of strings it is known whether they differ.
            _ => 0,
        };
        self.initial[at] = initial;
        self.slots[at] = field.slot;
        let set = |mask: &mut u8, is: bool| *mask |= if is { bit } else { 0 };
        let is_text = field.kind.is_text();
        set(&mut self.bits, field.bits() > 0);
        set(&mut self.always, matches!(field.operator, Operator::None | Operator::Delta));
        set(&mut self.fixed, matches!(field.operator, Operator::Default | Operator::Constant) || is_text);
        set(&mut self.delta, field.operator == Operator::Delta);
        set(&mut self.increment, field.operator == Operator::Increment);
        set(&mut self.constant, field.operator == Operator::Constant);
        set(&mut self.kept, field.has_slot() && !is_text);
        set(&mut self.texts, is_text);
        set(&mut self.inline, is_text && inline);
        set(&mut self.fixed_text, is_text && !inline && field.operator != Operator::Copy);
        if is_text && field.operator != Operator::Copy {
            self.fixed_cost += field.initial_bytes().map_or(0, <[u8]>::len).max(SHORT_TEXT);
        }
        set(&mut self.escapes, part.role == Role::Escape);
        set(&mut self.floats, part.role == Role::Exponent);
        set(&mut self.nullable, field.optional && part.role == Role::Exponent);
        set(&mut self.checked, part.range.is_some());
        if let Some((low, high)) = part.range {
            (self.least[at], self.span[at]) = (low as u64, high.wrapping_sub(low) as u64);
        }
        if let FieldKind::Int { signed, max, .. } = field.kind {
            set(&mut self.signed, signed || field.operator == Operator::Delta);
            set(&mut self.wide, part.range.is_none() && field.operator == Operator::Delta && max > u32::MAX.into());
            self.largest[at] = max as u64;
        }
        self.step[at] = u64::from(field.operator == Operator::Increment);
        if field.has_slot() {
            (self.tags[at], self.tagged[at]) = (field.tag, 0xFF);
        }
    }

    fn complete(&mut self) {
        let first = self.slots[0];
        let used = self.tagged.map(|tagged| tagged != 0);
        let in_order = |(at, slot): (usize, &u32)| !used[at] || *slot == first.wrapping_add(at as u32);
        // A slot that is kept is one of the bank's, and so is the first if it is none behind that.
        self.in_order = used.contains(&true) && self.slots.iter().enumerate().all(in_order);
    }
}

impl Lane {
    fn idle() -> Lane {
        Lane { kind: LaneKind::Idle, field: None, path: PathId(0), offset: 0, memory: Scalar::U64, steps: Vec::new() }
    }
}

/// The bits of each byte in the other order: the first lane's is the lowest of a mask, and the highest of a presence map.
static REVERSED: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = (i as u8).reverse_bits();
        i += 1;
    }
    table
};

/// False where fields one by one are faster: without wide instructions.
pub(crate) fn pays() -> bool {
    level() != Level::Plain
}

/// The functions for this machine.
pub(crate) fn functions() -> (put::PutRun, get::GetRun) {
    match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => (put::avx512, get::avx512),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => (put::avx2, get::avx2),
        _ => (put::plain, get::plain),
    }
}

/// Runs that machine code refers to.
pub(crate) type Runs = Vec<Box<Run>>;
