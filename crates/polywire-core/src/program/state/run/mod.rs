//! Runs of mandatory fields as machine code does them: eight fields at a time, side by side as
//! words.
//!
//! A *chunk* is eight *lanes*, words whose operators, ranges and tags are masks and tables, so that
//! a presence map's bits come out of one wide comparison with the previous values, and entities of
//! a byte are moved together. Where the machine permutes bytes, members come into the lanes and go
//! back by *windows* of the value; elsewhere machine code moves them one by one, through memory on
//! its stack. Whatever is rare in a chunk (no previous value, a value out of range, anything that
//! is wrong) is done field by field, by the functions that the interpreter calls, from the chunk's
//! beginning.

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use super::Field;
use crate::{layout::Scalar, program::PathId};

mod chunk;
mod get;
mod parts;
mod put;
mod wide;

use chunk::{Chunk, Text};
use parts::parts;
pub(crate) use wide::{Level, level};

/// Lanes of a chunk.
const WIDTH: usize = 8;

/// Chunks of a run at most.
const MAX_CHUNKS: usize = 64;

/// Fields that follow each other.
pub(crate) struct Run {
    chunks: Vec<Chunk>,
    /// Slots that its fields keep: none twice, since a chunk's fields are done at once.
    slots: Vec<u32>,
    /// Values are in memory.
    encoded: bool,
    /// Constant strings, which are looked at before any other field.
    constants: Vec<Text>,
    /// The other strings, and memory that all initial values take at most.
    strings: usize,
    fixed_cost: usize,
    /// Of the chunk that is being made: lanes that are taken, members, strings, and slots by lane.
    filled: usize,
    lanes: Vec<Lane>,
    texts: Vec<Text>,
    slotted: Vec<(usize, u32, u8)>,
    /// Members.
    count: usize,
}

/// A member of a run: a number whose lane is `at`, and whose parts are in the lanes behind it, or a
/// string.
struct Lane {
    kind: LaneKind,
    at: u8,
    field: Arc<Field>,
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
    Int,
    Text,
    Float,
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
    /// None of a string.
    pub memory: Option<Scalar>,
    pub steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Value,
    Exponent,
    Escape,
}

impl Run {
    /// One without members yet, whose values come from memory or go there.
    pub(crate) fn new(encoded: bool) -> Run {
        Run {
            chunks: Vec::new(),
            slots: Vec::new(),
            encoded,
            constants: Vec::new(),
            strings: 0,
            fixed_cost: 0,
            filled: 0,
            lanes: Vec::new(),
            texts: Vec::new(),
            slotted: Vec::new(),
            count: 0,
        }
    }

    /// Number of lanes.
    pub(crate) fn width(&self) -> usize {
        WIDTH * self.chunks.len()
    }

    /// Number of members.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Bytes that the fields may take, and that may be written behind them.
    fn room(&self) -> usize {
        10 * self.width() + 80
    }

    /// Adds a member; gives its lane, where it is a number. None if its field is none of those that
    /// are done here.
    pub(crate) fn push(&mut self, member: Member<'_>) -> Option<Option<usize>> {
        let parts = parts(member.field, &member, self.encoded)?;
        let is_new = self.chunks.is_empty() || self.filled + parts.len() > WIDTH;
        if is_new && self.chunks.len() == MAX_CHUNKS {
            return None;
        }
        // A slot that comes twice has its second value after its first.
        let slots = parts.iter().filter(|part| part.field.has_slot());
        let slots: Vec<_> = slots.map(|part| part.field.slot).collect();
        if slots.iter().any(|slot| self.slots.contains(slot)) {
            return None;
        }
        self.slots.extend(slots);
        if is_new {
            self.complete();
            self.chunks.push(Chunk::default());
        }
        let Member { field, path, offset, memory, steps } = member;
        let first = self.filled;
        let kind = match memory {
            None => LaneKind::Text,
            Some(_) if parts.len() > 1 => LaneKind::Float,
            Some(_) => LaneKind::Int,
        };
        let memory = memory.unwrap_or(Scalar::U64);
        let lane = Lane { kind, at: first as u8, field: field.clone(), path, offset, memory, steps };
        let chunk = self.chunks.last_mut()?;
        for (at, part) in (first..).zip(&parts) {
            chunk.set(at, part, &lane);
            if part.field.has_slot() {
                self.slotted.push((at, part.field.slot, part.field.tag));
            }
        }
        if kind == LaneKind::Text {
            let text = Text::new(first as u8, offset, field, path);
            self.fixed_cost += text.cost();
            match parts.is_empty() {
                true => self.constants.push(text),
                false => {
                    self.strings += 1;
                    self.texts.push(text);
                }
            }
        }
        (self.filled, self.count) = (first + parts.len(), self.count + 1);
        let number = WIDTH * (self.chunks.len() - 1) + first;
        self.lanes.push(lane);
        Some((kind != LaneKind::Text).then_some(number))
    }

    /// Nothing more is added, to the last chunk for now.
    pub(crate) fn complete(&mut self) {
        let (slots, lanes) = (core::mem::take(&mut self.slotted), core::mem::take(&mut self.lanes));
        let texts = core::mem::take(&mut self.texts);
        self.filled = 0;
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.complete(&slots, lanes, texts, self.encoded);
        }
    }
}

impl Lane {
    fn is_number(&self) -> bool {
        self.kind != LaneKind::Text
    }
}

/// The bits of each byte in the other order: the first lane's is the lowest of a mask, and the
/// highest of a presence map.
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

/// True where the functions move members by themselves; elsewhere their numbers are in lanes, and
/// come into them.
pub(crate) fn gathers() -> bool {
    match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => true,
        _ => false,
    }
}

/// Runs that machine code refers to.
pub(crate) type Runs = Vec<Box<Run>>;
