//! What of eight lanes is the same for every message.

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use super::{
    super::{Field, FieldKind, Initial, Operator},
    Lane, Role, WIDTH,
    parts::Part,
};
use crate::program::{PathId, io::SHORT_TEXT};

/// Eight lanes. A mask has a bit for each.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct Chunk {
    /// The value that is left out, of defaults and constants; of others the value before there is
    /// one, or for increments one less.
    pub initial: [u64; WIDTH],
    /// The highest bit of members with a sign.
    pub signs: [u64; WIDTH],
    /// Fields with a bit in the presence map.
    pub bits: u8,
    /// Integers that are always there.
    pub always: u8,
    /// Defaults and constants; increments; differences.
    pub fixed: u8,
    pub delta: u8,
    pub increment: u8,
    pub constant: u8,
    /// Fields that have a slot, of which the values of those of `kept` are integers that change
    /// with each message.
    pub slotted: u8,
    pub kept: u8,
    /// Copies and increments of integers that have no initial value.
    pub unknown: u8,
    /// Entities with a sign; nullable ones.
    pub signed: u8,
    pub nullable: u8,
    /// Values that may be out of range.
    pub checked: u8,
    /// Differences of 64 bits; fields without a sign.
    pub wide: u8,
    pub natural: u8,
    /// Strings.
    pub strings: u8,
    /// First lanes of numbers, and the bits that stand for those that are no decimals. Those that
    /// are no doubles, but floats.
    pub floats: u8,
    pub escapes: u8,
    pub singles: u8,
    /// Members with a sign.
    pub negative: u8,
    /// The first lane's slot, behind which are the others'.
    pub first: u32,
    /// Tags of the slots, and where there must be one.
    pub tags: [u8; WIDTH],
    pub tagged: [u8; WIDTH],
    /// Where members are.
    pub windows: Box<[Window]>,
    /// Its strings, but for constants.
    pub texts: Box<[Text]>,
    /// All members in order.
    pub members: Box<[Lane]>,
    /// The slots are not side by side: they are these.
    pub scattered: Option<Box<[u32; WIDTH]>>,
    /// The largest value of increments.
    pub largest: [u64; WIDTH],
    /// A value is in range if it is at most `span` more than `least`.
    pub least: [u64; WIDTH],
    pub span: [u64; WIDTH],
}

/// Bytes of the longest string that is compared by one instruction.
pub(super) const SHORT: usize = 16;

/// A string.
pub(super) struct Text {
    pub lane: u8,
    /// Of the string, from the frame.
    pub offset: u32,
    pub field: Arc<Field>,
    pub path: PathId,
    /// The initial value that it is left out for, if it is a short one: bytes and length.
    pub short: Option<([u8; SHORT], usize)>,
}

/// Up to 64 bytes of a value, with members of a chunk.
#[repr(C, align(64))]
pub(super) struct Window {
    /// For each byte of the lanes its byte in the window; when reading the other way round.
    pub index: [u8; 64],
    /// Of the window, from the frame.
    pub offset: u32,
    /// Bytes of the window that are members'.
    pub members: u64,
    /// Bytes of the lanes that come from here.
    pub lanes: u64,
}

impl Chunk {
    /// Adds a lane for a part of a member.
    pub(super) fn set(&mut self, at: usize, part: &Part<'_>, lane: &Lane) {
        let (field, bit) = (part.field, 1 << at);
        let initial = match &field.initial {
            Some(Initial::Int(value)) => Some(*value),
            _ => None,
        };
        self.initial[at] = initial.unwrap_or(0).wrapping_sub(u64::from(field.operator == Operator::Increment));
        let set = |mask: &mut u8, is: bool| *mask |= if is { bit } else { 0 };
        let is_text = field.kind.is_text();
        set(&mut self.bits, field.bits() > 0);
        set(&mut self.always, matches!(field.operator, Operator::None | Operator::Delta));
        set(&mut self.fixed, matches!(field.operator, Operator::Default | Operator::Constant) || is_text);
        set(&mut self.delta, field.operator == Operator::Delta);
        set(&mut self.increment, field.operator == Operator::Increment);
        set(&mut self.constant, field.operator == Operator::Constant);
        set(&mut self.slotted, field.has_slot());
        set(&mut self.kept, field.has_slot() && !is_text);
        let refers = matches!(field.operator, Operator::Copy | Operator::Increment);
        set(&mut self.unknown, refers && !is_text && initial.is_none());
        set(&mut self.strings, is_text);
        set(&mut self.escapes, part.role == Role::Escape);
        set(&mut self.floats, part.role == Role::Exponent);
        set(&mut self.singles, part.role == Role::Exponent && lane.memory.size() == 4);
        set(&mut self.nullable, field.optional && part.role == Role::Exponent);
        set(&mut self.checked, part.range.is_some());
        if part.role == Role::Value && !is_text && lane.memory.is_signed() {
            set(&mut self.negative, true);
            self.signs[at] = 1 << (8 * lane.memory.size() - 1);
        }
        if let Some((low, high)) = part.range {
            (self.least[at], self.span[at]) = (low as u64, high.wrapping_sub(low) as u64);
        }
        if let FieldKind::Int { signed, max, .. } = field.kind {
            set(&mut self.natural, !signed);
            set(&mut self.signed, signed || field.operator == Operator::Delta);
            set(&mut self.wide, part.range.is_none() && field.operator == Operator::Delta && max > u32::MAX.into());
            self.largest[at] = max as u64;
        }
    }

    /// Nothing more is added; `slots` are those of its lanes, with the tags of what they must have.
    pub(super) fn complete(&mut self, slots: &[(usize, u32, u8)], lanes: Vec<Lane>, texts: Vec<Text>, encoded: bool) {
        let mut all = [0; WIDTH];
        for (lane, slot, tag) in slots {
            (self.tags[*lane], self.tagged[*lane], all[*lane]) = (*tag, 0xFF, *slot);
        }
        // A bank has as many values behind its last slot as a chunk has lanes.
        self.first = slots.first().and_then(|(lane, slot, _)| slot.checked_sub(*lane as u32)).unwrap_or(0);
        if slots.iter().any(|(lane, slot, _)| *slot != self.first + *lane as u32) {
            self.scattered = Some(Box::new(all));
        }
        self.windows = windows(&lanes, encoded);
        (self.members, self.texts) = (lanes.into(), texts.into());
    }
}

impl Text {
    pub(super) fn new(lane: u8, offset: u32, field: &Arc<Field>, path: PathId) -> Text {
        let initial = field.initial_bytes().filter(|_| field.operator != Operator::Copy);
        let short = initial.filter(|bytes| bytes.len() <= SHORT).map(|bytes| {
            let mut short = [0; SHORT];
            short[..bytes.len()].copy_from_slice(bytes);
            (short, bytes.len())
        });
        Text { lane, offset, field: field.clone(), path, short }
    }

    /// Memory that the initial value takes at most.
    pub(super) fn cost(&self) -> usize {
        self.field.initial_bytes().map_or(0, <[u8]>::len).max(SHORT_TEXT)
    }
}

/// As few windows as hold all members that are numbers.
fn windows(lanes: &[Lane], encoded: bool) -> Box<[Window]> {
    let mut rest: Vec<&Lane> = lanes.iter().filter(|lane| lane.is_number()).collect();
    rest.sort_by_key(|lane| lane.offset);
    let mut windows = Vec::new();
    while let Some(first) = rest.first().map(|lane| lane.offset) {
        let inside = |lane: &&Lane| lane.offset as usize + lane.memory.size() <= first as usize + 64;
        let (own, others) = rest.into_iter().partition(inside);
        windows.push(Window::new(first, own, encoded));
        rest = others;
    }
    windows.into()
}

impl Window {
    fn new(offset: u32, lanes: Vec<&Lane>, encoded: bool) -> Window {
        let mut window = Window { index: [0; 64], offset, members: 0, lanes: 0 };
        for lane in lanes {
            for byte in 0..lane.memory.size() {
                let (there, here) = ((lane.offset - offset) as usize + byte, WIDTH * usize::from(lane.at) + byte);
                window.members |= 1 << there;
                window.lanes |= 1 << here;
                let (to, from) = if encoded { (here, there) } else { (there, here) };
                window.index[to] = from as u8;
            }
        }
        window
    }
}
