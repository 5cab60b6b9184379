//! Messages of streams without a context, as hand-written code would have them: previous values at
//! known places, presence maps in registers, each bit at its known position (`elided` has what is
//! done where one is left out), texts by functions that know their form. It serves a [*specialised*
//! state](crate::program::state::specialised), and leaves whatever is not ordinary to the function
//! with a context.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use crate::{
    layout::Kind,
    program::{
        Block, Direction, Field, FieldKind, Op, OpKind, Overflow, Place, Program, Source, TextForm, Wire,
        state::{
            Operator, UNDEFINED,
            specialised::{EMPTY_WORD, NO_NUMBER, NO_TEXT, Specialisation, SpecialisedSlot, inline_text},
        },
    },
};

mod calls;
mod combined;
mod decimal;
mod elided;
mod fallback;
mod field;
mod integer;
mod map;
mod number;
mod octets;
mod optional;
mod slots;
mod text;
mod whole;

#[cfg(test)]
mod tests;

use integer::Int;
pub(super) use map::Segment;
use optional::optional;
pub(super) use slots::{Marks, marks};

/// Slots up to which their distances are part of instructions.
const MAX_SLOTS: usize = 1 << 16;

/// Bytes that an integer takes at most.
const INTEGER: usize = 10;

/// What belongs to a slot beside its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Second {
    Mantissa(u32),
    Text(u32),
}

impl Second {
    fn of(field: &Field) -> Option<Second> {
        match &field.kind {
            FieldKind::Decimal => Some(Second::Mantissa(field.text)),
            kind => kind.is_text().then_some(Second::Text(field.text)),
        }
    }
}

/// What is to be known of a program that can do without a context.
pub(super) struct Eligibility<'p> {
    program: &'p Program,
    specialised: Specialisation,
    /// Bytes of an encoded message at most, without what texts have and with each sequence's
    /// element once.
    room: usize,
    /// Where it forgets all previous values, the slots whose values stay.
    kept: Vec<u32>,
    /// Slots of mantissas, and of texts, and the slots that they go with.
    seconds: BTreeMap<Second, u32>,
    /// Slots of operations that are left to the interpreter.
    fallback: Vec<u32>,
    /// What operations on slots do with them.
    uses: BTreeMap<u32, slots::Uses>,
    /// What the words of those slots may say.
    marks: Vec<Marks>,
    fallback_seconds: Vec<Second>,
}

impl<'p> Eligibility<'p> {
    /// None for a program that needs a context.
    pub(super) fn of(program: &'p Program) -> Option<Eligibility<'p>> {
        let mut eligibility = Eligibility::new(program)?;
        let bits = eligibility.block(&program.root)?;
        eligibility.settle_slots()?;
        let can_reset = eligibility.kept.is_empty()
            || eligibility.specialised.can_be_forgotten() && eligibility.fallback.is_empty();
        (bits == 0 && can_reset && eligibility.stand_apart()).then_some(eligibility)
    }

    fn new(program: &'p Program) -> Option<Eligibility<'p>> {
        let slots = program.bank.as_ref().map(|bank| bank.slots as usize).filter(|slots| *slots <= MAX_SLOTS)?;
        let specialised = Specialisation {
            slots: vec![SpecialisedSlot::default(); slots].into(),
            fresh: vec![0; slots].into(),
            ..Specialisation::default()
        };
        Some(Eligibility {
            program,
            specialised,
            room: 0,
            kept: Vec::new(),
            seconds: BTreeMap::new(),
            fallback_seconds: Vec::new(),
            fallback: Vec::new(),
            uses: BTreeMap::new(),
            marks: Vec::new(),
        })
    }

    /// Bytes that there must be room for, for [`Direction::Encode`].
    pub(super) fn room(&self) -> usize {
        match self.program.direction {
            Direction::Encode => self.room,
            Direction::Decode => 0,
        }
    }

    /// What it wants.
    pub(super) fn specialised(self) -> Specialisation {
        self.specialised.settled()
    }

    /// Bits that a block takes of the presence map around it.
    fn block(&mut self, block: &Block) -> Option<u32> {
        let behind = block.0.iter().skip(1).map(|op| Some(&op.kind)).chain([None]);
        block.0.iter().zip(behind).try_fold(0u32, |sum, (op, behind)| {
            self.use_slot(&op.kind, behind);
            sum.checked_add(self.op(op)?)
        })
    }

    /// The bits of the longest of some blocks of which one runs, and room for the largest.
    fn longest<'b>(&mut self, blocks: impl Iterator<Item = &'b Block>) -> Option<u32> {
        let (before, mut bits, mut room) = (self.room, 0, self.room);
        for block in blocks {
            self.room = before;
            bits = self.block(block)?.max(bits);
            room = self.room.max(room);
        }
        self.room = room;
        Some(bits)
    }

    fn op(&mut self, op: &Op) -> Option<u32> {
        match &op.kind {
            OpKind::Const(..)
            | OpKind::Load(_)
            | OpKind::Store(_)
            | OpKind::Length(_)
            | OpKind::Convert(_)
            | OpKind::Check(_)
            | OpKind::Need(_)
            | OpKind::Fail(_) => Some(0),
            OpKind::Literal(bytes) => {
                self.room += bytes.len();
                Some(0)
            }
            OpKind::Put(Wire::Fixed { scalar, .. }) | OpKind::Get(Wire::Fixed { scalar, .. }) => {
                self.room += scalar.size();
                Some(0)
            }
            OpKind::Put(Wire::StopBit(_)) | OpKind::Get(Wire::StopBit(_)) => {
                self.room += INTEGER;
                Some(0)
            }
            OpKind::Put(Wire::Word(..)) | OpKind::Get(Wire::Word(..)) => Some(0),
            OpKind::Put(Wire::Field(field)) | OpKind::Get(Wire::Field(field)) => self.number(field),
            OpKind::TestField(field) => self.waiting(field),
            OpKind::PutField { field, present } => {
                let waits = match field.kind {
                    FieldKind::Split(_) | FieldKind::Decimal => *present || field.optional,
                    _ => !present && field.optional,
                };
                self.waiting(field).filter(|_| waits)
            }
            OpKind::If { then, otherwise } | OpKind::IfPresent { then, otherwise, .. } => {
                self.longest([then, otherwise].into_iter())
            }
            OpKind::Present { place, body } => {
                self.is_optional(*place).then_some(())?;
                self.block(body)
            }
            OpKind::Clear(place) => self.is_optional(*place).then_some(0),
            OpKind::Text { place, form: TextForm::Field(field), bound, utf16_bound, overflow, .. } => {
                let bounded = *bound == 0 || !utf16_bound && *overflow == Overflow::Refuse;
                // One that might be absent is asked for before it is put anywhere.
                let asked = self.program.direction == Direction::Encode || !field.optional;
                let is_text = field.kind != FieldKind::Bytes;
                self.text(field).filter(|_| bounded && asked && is_text && self.is_string(*place))
            }
            OpKind::Text { place, form: TextForm::Pending, bound, utf16_bound, overflow, .. } => {
                let bounded = *bound == 0 || !utf16_bound && *overflow == Overflow::Refuse;
                (bounded && self.is_string(*place)).then_some(0)
            }
            OpKind::Octets { field: Some(field), .. } => {
                let asked = self.program.direction == Direction::Encode || !field.optional;
                self.text(field).filter(|_| asked && field.kind == FieldKind::Bytes)
            }
            OpKind::Octets { field: None, .. } => Some(0),
            OpKind::Sequence { place, source, element, bound, overflow, .. } => {
                let encodes = self.program.direction == Direction::Encode;
                let counted = encodes || matches!(source, Source::Count | Source::Fixed(_));
                let bounded = *bound == 0 || *overflow == Overflow::Refuse;
                (counted && bounded && self.has_elements(*place)).then_some(())?;
                // A bit that each element took would be at no known place.
                self.block(element).filter(|bits| *bits == 0)
            }
            OpKind::Switch { arms, otherwise } => self.longest(arms.iter().map(|(_, block)| block).chain([otherwise])),
            OpKind::Union { arms, none, .. } => self.longest(arms.iter().chain([none])),
            OpKind::Select { body, .. } => self.block(body),
            OpKind::Forget { except } => {
                self.kept.push(*except);
                Some(0)
            }
            OpKind::KnownBits { zeros, one } => zeros.checked_add(u32::from(*one)),
            OpKind::TakeBit | OpKind::PutBit => Some(1),
            OpKind::LoadLocal(..) | OpKind::StoreLocal(_) | OpKind::Compute(..) => Some(0),
            OpKind::LoadSlot { .. }
            | OpKind::StoreSlot { .. }
            | OpKind::EmptySlot(_)
            | OpKind::SlotState(_)
            | OpKind::SlotHas { .. } => Some(0),
            OpKind::Unbox { body, .. } => self.block(body),
            OpKind::Map { .. } | OpKind::SetText(..) | OpKind::Slice { .. } => self.fall_back(op),
            OpKind::PresenceMap { bits, body, .. } => {
                let taken = self.block(body)?;
                self.room += taken.div_ceil(7).max(1) as usize;
                (taken == *bits).then_some(0)
            }
            _ => None,
        }
    }

    /// The bits of a field whose value fits a word.
    fn number(&mut self, field: &Field) -> Option<u32> {
        match &field.kind {
            FieldKind::Int { .. } => {
                Int::of(field).or_else(|| optional(field))?;
                self.keep(field, INTEGER)?;
            }
            FieldKind::Bits { bits, .. } => return self.number(bits),
            _ => match decimal::parts(field) {
                Some([exponent, mantissa]) => {
                    self.keep(exponent, INTEGER)?;
                    self.number(mantissa)?;
                }
                None => return self.number_by_decimal(field),
            },
        }
        Some(field.bits())
    }

    /// The bits of a field that might be absent, or whose value is two words.
    fn waiting(&mut self, field: &Field) -> Option<u32> {
        match &field.kind {
            kind if kind.is_text() => self.text(field),
            FieldKind::Int { .. } => self.number(field),
            FieldKind::Bits { bits, .. } => self.waiting(bits),
            FieldKind::Split(_) | FieldKind::Decimal => self.decimal(field),
            _ => self.number_by_decimal(field),
        }
    }

    /// The bits of a decimal, whose value is two words.
    fn decimal(&mut self, field: &Field) -> Option<u32> {
        if let FieldKind::Split(parts) = &field.kind {
            // What is not there has no mantissa: its bit is left out.
            let [exponent, mantissa] = &**parts;
            return Some(self.number(exponent)? + self.number(mantissa)?);
        }
        self.keep(field, 2 * INTEGER)?;
        Some(field.bits())
    }

    fn text(&mut self, field: &Field) -> Option<u32> {
        let initial = field.initial_bytes().unwrap_or_default();
        let sound = match field.kind {
            FieldKind::Ascii => initial.is_ascii(),
            FieldKind::Unicode => core::str::from_utf8(initial).is_ok(),
            _ => true,
        };
        sound.then_some(())?;
        let difference = if field.operator == Operator::Delta { INTEGER } else { 0 };
        self.keep(field, text::HEAD + difference)?;
        Some(field.bits())
    }

    /// Notes a field's slot, and the room that it takes.
    fn keep(&mut self, field: &Field, room: usize) -> Option<()> {
        self.room += room;
        if !field.has_slot() {
            return Some(());
        }
        let initial = field.initial_bytes().filter(|_| field.kind.is_text());
        let own = self.fresh(field);
        let text = field.kind.is_text().then_some(field.text);
        let octets = field.kind == FieldKind::Bytes;
        let mantissa = (field.kind == FieldKind::Decimal).then_some(field.text);
        let may_be_empty = field.optional && field.operator != Operator::Delta;
        let (slot, fresh) = (
            self.specialised.slots.get_mut(field.slot as usize)?,
            self.specialised.fresh.get_mut(field.slot as usize)?,
        );
        if slot.tag == UNDEFINED {
            let initial = initial.map(Into::into);
            *slot = SpecialisedSlot {
                tag: field.tag,
                may_be_fresh: own.is_some(),
                may_be_empty,
                text,
                octets,
                initial,
                mantissa,
            };
            *fresh = own.unwrap_or(0);
        } else {
            // Two fields that begin otherwise have no word that stands for no value.
            slot.may_be_fresh &= own == Some(*fresh) && slot.initial.as_deref() == initial;
            // One that is never absent does not know the word for that.
            (may_be_empty == slot.may_be_empty).then_some(())?;
        }
        // Two types in one slot are never both there.
        let is_same = slot.text == text && slot.octets == octets && slot.mantissa == mantissa;
        (slot.tag == field.tag && is_same).then_some(())?;
        self.keep_second(field)
    }

    /// A word that has the same effect as no value; none if there is no such word.
    fn fresh(&self, field: &Field) -> Option<u64> {
        match (&field.kind, field.initial_bytes()) {
            (FieldKind::Decimal, _) => Some(whole::fresh(field)[0]),
            (kind, Some(initial)) if kind.is_text() => Some(inline_text(initial)),
            (kind, None) if kind.is_text() => Some(if field.optional { EMPTY_WORD } else { NO_TEXT }),
            _ => fresh_number(field),
        }
    }

    /// Notes what belongs to a field's slot: it is nobody else's.
    fn keep_second(&mut self, field: &Field) -> Option<()> {
        let Some(second) = Second::of(field) else { return Some(()) };
        let is_first = match self.seconds.insert(second, field.slot) {
            Some(slot) => (slot == field.slot).then_some(false)?,
            None => true,
        };
        let Second::Mantissa(at) = second else { return Some(()) };
        // It has no tag, and is worth what the exponent is.
        let (fresh, value) = (self.specialised.fresh.get_mut(at as usize)?, whole::fresh(field)[1]);
        if is_first {
            *fresh = value;
        }
        let is_same = *fresh == value;
        self.specialised.slots.get_mut(field.slot as usize)?.may_be_fresh &= is_same;
        Some(())
    }

    /// True if no mantissa's slot is another field's, none that is kept has more than its value,
    /// and what is left to the interpreter stays away from what is not: a slot has a tag, which
    /// the interpreter knows, or is specialised.
    fn stand_apart(&self) -> bool {
        let slot = |at: &u32| self.specialised.slots.get(*at as usize);
        let is_mantissa = |at: &u32| self.seconds.contains_key(&Second::Mantissa(*at));
        let is_free = |at: &u32| slot(at).is_some_and(|slot| slot.tag == UNDEFINED);
        let own = |second: &Second| match second {
            Second::Mantissa(at) => is_free(at),
            Second::Text(_) => true,
        };
        self.seconds.keys().all(own)
            && self.kept.iter().all(|at| slot(at).is_none_or(|slot| slot.mantissa.is_none() && slot.text.is_none()))
            && self.fallback.iter().all(|at| is_free(at) && !is_mantissa(at))
            && self.fallback_seconds.iter().all(|second| !self.seconds.contains_key(second) && own(second))
    }

    fn is_optional(&self, place: Place) -> bool {
        matches!(place.node().map(|node| &self.program.layout.node(node).kind), Some(Kind::Optional(_)))
    }

    /// True for a string that need not be asked where its bytes are, or that may be a part of a
    /// message.
    fn is_string(&self, place: Place) -> bool {
        let kind = place.node().map(|node| &self.program.layout.node(node).kind);
        matches!(kind, Some(Kind::String { shared: true, .. } | Kind::String { words: Some(_), .. }))
    }

    /// True for an array, or a sequence that need not be asked where its elements are.
    fn has_elements(&self, place: Place) -> bool {
        match place.node().map(|node| &self.program.layout.node(node).kind) {
            Some(Kind::Sequence(sequence)) => sequence.words.is_some(),
            kind => matches!(kind, Some(Kind::Array { .. })),
        }
    }
}

/// A word that has the same effect as no value; none if there is no such word.
fn fresh_number(field: &Field) -> Option<u64> {
    let int = Int::of_any(field)?;
    // What stands for absence is no value.
    let word = |word: u64| (!field.optional || word != EMPTY_WORD).then_some(word);
    match (field.operator, field.initial_int()) {
        (Operator::Delta, initial) => Some(initial.unwrap_or(0)),
        (Operator::Copy, Some(initial)) => word(initial),
        // One less than what it says; what is the least of all words cannot be one more than
        // another.
        (Operator::Increment, Some(initial)) => word(initial.wrapping_sub(1)).filter(|_| !int.is_least(initial)),
        _ if field.optional => Some(EMPTY_WORD),
        _ => Some(NO_NUMBER),
    }
}
