//! Decode programs: reads the message from `Input` and stores it in the value. `exec.rs` calls
//! [`decode`]; machine code runs single operations through `interp/op.rs`.

use alloc::{string::String, vec};

use super::{
    Done, HOST, INLINE_SEEN, boxed_node, check, convert, extend, from_word, load, map_node, memory_scalar,
    optional_node, reorder, sequence_node, slots, store, texts::TextBound, union_node,
};
use crate::{
    layout::{Kind, MapNode, NodeId, Scalar, SequenceNode, SharedStr, access::Inserted},
    program::{
        Arm, Block, Check, Cursor, Decimal, Elements, FaultKind, Input, MemberDialect, MemberTable, Op, OpKind, Order,
        Overflow, Place, Program, RegionDialect, Routine, ScalarKernel, Segment, SequenceDialect, SliceKernel, Source,
        Status, Wire, arm_of, state,
    },
};

/// Runs a decode program over `input` into the value at `value`.
///
/// # Safety
/// `program` is a verified decode program, and `value` points to a live value of its layout's root
/// that nothing else refers to.
pub(crate) unsafe fn decode(program: &Program, input: &mut Input<'_>, value: *mut u8) -> Status {
    Status::of(Run::new(program, input, 0, Scalar::U64).block(&program.root, value))
}

/// One run of a program: its input, and the accumulator with its type.
pub(crate) struct Run<'r, 'a> {
    pub(super) program: &'r Program,
    pub(super) input: &'r mut Input<'a>,
    pub(super) accumulator: i128,
    pub(super) scalar: Scalar,
}

// In all methods, `frame` points to a live value of the block's frame node, for which the verifier
// checked all places; or it is dangling if all places are sinks.
impl<'r, 'a> Run<'r, 'a> {
    /// A run with this word of this type in the accumulator.
    pub(crate) fn new(program: &'r Program, input: &'r mut Input<'a>, word: u64, scalar: Scalar) -> Run<'r, 'a> {
        Run { program, input, accumulator: from_word(word, scalar), scalar }
    }

    fn block(&mut self, block: &'r Block, frame: *mut u8) -> Done {
        block.0.iter().try_for_each(|op| self.named(op, frame))
    }

    /// Runs an operation; a fault names its field.
    pub(super) fn named(&mut self, op: &'r Op, frame: *mut u8) -> Done {
        self.op(op, frame).inspect_err(|_| self.input.blame(op.path))
    }

    fn op(&mut self, op: &'r Op, frame: *mut u8) -> Done {
        match &op.kind {
            OpKind::Need(n) => self.need(*n as usize),
            OpKind::Align(n) => {
                self.input.align(usize::from(*n));
                Ok(())
            }
            OpKind::Run { segments, size } => self.run(segments, *size, frame),
            OpKind::Load(place) => self.load(*place, frame),
            OpKind::Store(place) => self.store(*place, frame),
            OpKind::Get(wire) => self.get(wire),
            OpKind::Const(scalar, bits) => self.set(extend(*bits, *scalar), *scalar),
            OpKind::Convert(to) => self.convert(*to),
            OpKind::Check(condition) => self.check(condition),
            OpKind::Text { place, form, bound, utf16_bound, overflow, .. } => {
                let bound = TextBound { bound: *bound, utf16: *utf16_bound, overflow };
                self.text(*place, form, &bound, frame)
            }
            OpKind::SetText(place, text) => self.set_text(*place, text, frame),
            OpKind::Bulk { place, scalar, order, bound, overflow } => {
                self.bulk(*place, *scalar, *order, (*bound, overflow), frame)
            }
            OpKind::Bytes(bytes) => self.bytes(bytes, frame),
            OpKind::Slice { place, kernel, bound, overflow } => self.slice(*place, kernel, (*bound, overflow), frame),
            OpKind::Sequence { place, source, element, bound, overflow, min_wire } => {
                let shape = SequenceShape { element, bound: *bound, overflow, min_wire: *min_wire };
                match source {
                    Source::Count => self.counted(*place, &shape, frame),
                    Source::Fixed(n) => self.elements(*place, element, *n as usize, address(*place, frame)),
                    Source::Dialect(dialect) => self.delimited(*place, dialect, &shape, false, frame),
                    Source::Append(dialect) => self.delimited(*place, dialect, &shape, true, frame),
                }
            }
            OpKind::Map { place, source, key, value, bound, overflow, min_wire } => {
                let entry = Entry { key, value, bound: *bound, overflow, min_wire: *min_wire };
                self.map(*place, source, &entry, frame)
            }
            OpKind::Present { place, body } => self.present(*place, body, frame),
            OpKind::Clear(place) => self.clear(*place, frame),
            OpKind::Unbox { place, body } => self.unbox(*place, body, frame),
            OpKind::Select { place, case, body } => self.select(*place, *case, body, frame),
            OpKind::Switch { labels, arms, otherwise } => {
                let chosen = arm_of(labels, self.accumulator);
                self.block(chosen.map_or(otherwise, |arm| &arms[arm]), frame)
            }
            OpKind::If { then, otherwise } => self.block(if self.accumulator != 0 { then } else { otherwise }, frame),
            OpKind::Test(kernel) => {
                let mut word = 0;
                (kernel.test)(self.input, &mut word).ok()?;
                self.set(i128::from(word != 0), Scalar::Bool)
            }
            OpKind::PresenceMap { policy, body, .. } => self.presence_map(*policy as u64, body, frame),
            OpKind::TakeBit => {
                let bit = self.input.take_bit();
                self.set(i128::from(bit), Scalar::Bool)
            }
            OpKind::KnownBits { zeros, one } => state::expect_bits(self.input, *zeros, *one).ok(),
            OpKind::Slot(op) => {
                (self.accumulator, self.scalar) = slots::run(*op, self.input.state(), self.accumulator, self.scalar);
                Ok(())
            }
            OpKind::Decimal(Decimal::Join { exponent, to, policy }) => {
                let joined = state::decimal::join(self.input, (*exponent, *to, *policy), self.accumulator as u64);
                self.set(from_word(joined?, *to), *to)
            }
            OpKind::Action(kernel, argument) => (kernel.get)(self.input, *argument).ok(),
            OpKind::Region { dialect, argument, body } => self.region(dialect, *argument, body, frame),
            OpKind::Members { dialect, arms, table } => self.members(dialect, arms, table, frame),
            OpKind::Call { routine, place } => self.call(*routine, *place, frame),
            OpKind::Fail(kind) => Err(self.fail(*kind, 0, 0)),
            OpKind::Literal(_)
            | OpKind::Put(_)
            | OpKind::Decimal(Decimal::Split { .. } | Decimal::Shift { .. })
            | OpKind::Length(_)
            | OpKind::Index
            | OpKind::IfPresent { .. }
            | OpKind::Union { .. } => unreachable!("the verifier refuses encode operations here"),
        }
    }

    /// Sets the accumulator, which never fails.
    pub(super) fn set(&mut self, value: i128, scalar: Scalar) -> Done {
        (self.accumulator, self.scalar) = (value, scalar);
        Ok(())
    }

    pub(super) fn fail(&mut self, kind: FaultKind, expected: u64, got: u64) -> Status {
        self.input.fail(kind, expected, got)
    }

    fn convert(&mut self, to: Scalar) -> Done {
        let value = convert(self.accumulator, self.scalar, to);
        let value = value.map_err(|kind| self.fail(kind, 8 * to.size() as u64, self.accumulator as u64))?;
        self.set(value, to)
    }

    fn check(&mut self, condition: &Check) -> Done {
        let value = check(&self.program.layout, condition, self.accumulator);
        if let (Err(fault), Check::Within { policy, .. }) = (&value, condition) {
            let got = self.accumulator as u64;
            return self.input.deviate(*fault, *policy, got);
        }
        self.accumulator = value.map_err(|kind| self.fail(kind, 0, self.accumulator as u64))?;
        if matches!(condition, Check::Bool) {
            self.scalar = Scalar::Bool;
        }
        Ok(())
    }

    fn presence_map(&mut self, policy: u64, body: &'r Block, frame: *mut u8) -> Done {
        let mut outer = Cursor::default();
        state::begin_reading(self.input, policy, &mut outer).ok()?;
        self.block(body, frame)?;
        state::end_reading(self.input, policy, &mut outer).ok()
    }

    fn region(&mut self, dialect: &RegionDialect, argument: u64, body: &'r Block, frame: *mut u8) -> Done {
        let mut cursor = Cursor::default();
        (dialect.get_begin)(self.input, argument, &mut cursor).ok()?;
        self.block(body, frame)?;
        (dialect.get_end)(self.input, argument, &mut cursor).ok()
    }

    fn need(&mut self, n: usize) -> Done {
        let left = self.input.remaining();
        if left < n {
            return Err(self.fail(FaultKind::Truncated, n as u64, left as u64));
        }
        Ok(())
    }

    fn run(&mut self, segments: &[Segment], size: u32, frame: *mut u8) -> Done {
        let start = self.input.pos;
        for segment in segments {
            for i in 0..segment.count as usize {
                let at = start + segment.at as usize + i * segment.wire.size();
                // SAFETY: a Need covers the run, and the segment lies within it.
                let raw = unsafe { load(self.input.base.add(at), segment.wire) };
                let value = self.segment_value(segment, raw, at)?;
                if let Place::At { offset, .. } = segment.place {
                    // SAFETY: the verifier found `count` such scalars at the place.
                    unsafe { store(frame.add(offset as usize + i * segment.memory.size()), segment.memory, value) };
                }
            }
        }
        self.input.pos = start + size as usize;
        Ok(())
    }

    fn segment_value(&mut self, segment: &Segment, raw: i128, at: usize) -> Done<i128> {
        let value = reorder(raw, segment.wire, segment.order);
        let checked = match &segment.check {
            Some(condition) => check(&self.program.layout, condition, value),
            None => Ok(value),
        };
        let converted = checked.and_then(|value| convert(value, segment.wire, segment.memory));
        converted.map_err(|kind| {
            self.input.pos = at;
            self.fail(kind, 0, value as u64)
        })
    }

    fn load(&mut self, place: Place, frame: *mut u8) -> Done {
        let Place::At { offset, node } = place else { return Ok(()) };
        let scalar = memory_scalar(&self.program.layout, node);
        // SAFETY: the verifier found the scalar at the place.
        self.set(unsafe { load(frame.add(offset as usize), scalar) }, scalar)
    }

    fn store(&mut self, place: Place, frame: *mut u8) -> Done {
        let Place::At { offset, node } = place else { return Ok(()) };
        let scalar = memory_scalar(&self.program.layout, node);
        // SAFETY: the verifier found the scalar at the place, and that the accumulator is valid for
        // it.
        unsafe { store(frame.add(offset as usize), scalar, self.accumulator) };
        Ok(())
    }

    fn get(&mut self, wire: &Wire) -> Done {
        match wire {
            Wire::Fixed { scalar, order } => {
                // SAFETY: the verifier has shown that a `Need` reserved these bytes.
                let raw = unsafe { load(self.input.base.add(self.input.pos), *scalar) };
                self.input.pos += scalar.size();
                self.set(reorder(raw, *scalar, *order), *scalar)
            }
            Wire::Kernel(ScalarKernel { wide: Some(wide), scalar, .. }) => {
                let bits = (wide.get)(self.input)?;
                self.set(bits as i128, *scalar)
            }
            Wire::Inline(..) => unreachable!("the verifier refuses encode operations here"),
            Wire::StopBit(form) => {
                let word = state::stop_bit::get(self.input, form)?;
                self.set(from_word(word, form.scalar), form.scalar)
            }
            Wire::Octet => {
                let mut word = 0;
                state::bytes::take_octet(self.input, &mut word).ok()?;
                self.set(i128::from(word), Scalar::U8)
            }
            Wire::Symbol(kernel, table) => {
                let mut word = 0;
                (kernel.get)(self.input, table, &mut word).ok()?;
                self.set(from_word(word, kernel.scalar), kernel.scalar)
            }
            Wire::Kernel(kernel) => {
                let mut word = 0;
                (kernel.get)(self.input, &mut word).ok()?;
                // A kernel may return any word for true; a boolean in memory must be 0 or 1.
                let word = if kernel.scalar == Scalar::Bool { u64::from(word != 0) } else { word };
                self.set(from_word(word, kernel.scalar), kernel.scalar)
            }
        }
    }

    /// The accumulator as a number of elements, if the message can hold that many.
    fn count(&mut self, min_wire: u32) -> Done<usize> {
        let (count, most) = (self.accumulator, self.input.limits.elements);
        if count > i128::from(most) {
            return Err(self.fail(FaultKind::Limit, u64::from(most), count as u64));
        }
        let (count, left) = (count as usize, self.input.remaining());
        let bytes = count.saturating_mul(min_wire as usize);
        if bytes > left {
            return Err(self.fail(FaultKind::BadLength, left as u64, bytes as u64));
        }
        // Elements without bytes on the wire cost time nevertheless, and may contain other
        // elements.
        if min_wire == 0 && count > left {
            self.input.charge(count).ok()?;
        }
        Ok(count)
    }

    fn bulk(
        &mut self,
        place: Place,
        scalar: Scalar,
        order: Order,
        (bound, overflow): (u32, &Overflow),
        frame: *mut u8,
    ) -> Done {
        let count = self.count(scalar.size() as u32)?;
        let start = self.input.pos;
        if scalar == Scalar::Bool {
            let bytes = &self.input.rest()[..count];
            if let Some(at) = bytes.iter().position(|b| *b > 1) {
                self.input.pos += at;
                return Err(self.fail(FaultKind::BadBool, 0, u64::from(bytes[at])));
            }
        }
        let kept =
            keep(count, bound, overflow).map_err(|()| self.fail(FaultKind::Bound, bound.into(), count as u64))?;
        if let Place::At { offset, node } = place {
            let sequence = sequence_node(&self.program.layout, node);
            // SAFETY: the verifier found a sequence of such scalars at the place; `count` saw that
            // the bytes are there.
            unsafe {
                let at = frame.add(offset as usize);
                if let Some(message) = self.input.shared.filter(|_| sequence.access.shares()) {
                    sequence.access.hold(at, message, start..start + kept);
                    self.input.pos = start + count;
                    return Ok(());
                }
                self.charge_growth(sequence, at, kept)?;
                let source = self.input.base.add(start);
                if order == HOST || scalar.size() == 1 {
                    let assigned = sequence.access.assign(at, source, kept);
                    assigned.map_err(|_| self.fail(FaultKind::OutOfMemory, kept as u64, 0))?;
                } else {
                    let resized = sequence.access.resize(at, kept);
                    let data = resized.map_err(|_| self.fail(FaultKind::OutOfMemory, kept as u64, 0))?;
                    for i in 0..kept {
                        let value = reorder(load(source.add(i * scalar.size()), scalar), scalar, order);
                        store(data.add(i * scalar.size()), scalar, value);
                    }
                }
            }
        }
        self.input.pos = start + count * scalar.size();
        Ok(())
    }

    fn slice(
        &mut self,
        place: Place,
        kernel: &SliceKernel,
        (bound, overflow): (u32, &Overflow),
        frame: *mut u8,
    ) -> Done {
        let Place::At { offset, node } = place else { unreachable!("the verifier refuses sinks here") };
        let at = frame.wrapping_add(offset as usize);
        // SAFETY: the verifier found a sequence or array of such scalars at the place.
        let mut elements = unsafe { Elements::new(&self.program.layout, node, at, kernel.scalar) };
        (kernel.get)(self.input, &mut elements).ok()?;
        elements.finish(self.input, |count| keep(count, bound, overflow).map_err(|()| bound)).ok()
    }

    /// Charges for new elements, and for the memory that they keep behind pointers.
    ///
    /// # Safety
    /// `at` is a live sequence of the node.
    unsafe fn charge_growth(&mut self, sequence: &SequenceNode, at: *const u8, len: usize) -> Done {
        // SAFETY: `at` is a live sequence of the node by the contract; only its length is read.
        let (_, present) = unsafe { sequence.access.slice(at) };
        let grows = len.saturating_sub(present);
        if grows == 0 {
            return Ok(());
        }
        let stride = self.program.layout.node(sequence.element).size as usize;
        let fresh = stride.saturating_add(self.program.layout.behind_pointers(sequence.element));
        self.input.charge(grows.saturating_mul(fresh)).ok()
    }

    /// Makes the sequence `len` elements long.
    ///
    /// # Safety
    /// `at` is a live sequence of the node.
    unsafe fn resize(&mut self, sequence: &SequenceNode, at: *mut u8, len: usize) -> Done<*mut u8> {
        // SAFETY: `at` is a live sequence of the node by the contract, and the program runs on it
        // alone.
        unsafe {
            self.charge_growth(sequence, at, len)?;
            sequence.access.resize(at, len).map_err(|_| self.fail(FaultKind::OutOfMemory, len as u64, 0))
        }
    }

    /// Takes the accumulator as the number of elements, and makes the sequence as long. Returns the
    /// number and the first element.
    ///
    /// # Safety
    /// `at` is a live sequence at the place, or anything for a sink.
    pub(crate) unsafe fn begin_sequence(
        &mut self,
        place: Place,
        (bound, overflow, min_wire): (u32, &Overflow, u32),
        at: *mut u8,
    ) -> Done<(usize, *mut u8)> {
        let count = self.count(min_wire)?;
        keep(count, bound, overflow).map_err(|()| self.fail(FaultKind::Bound, bound.into(), count as u64))?;
        let Place::At { node, .. } = place else { return Ok((count, at)) };
        // SAFETY: `at` is a live sequence of the node by the contract.
        Ok((count, unsafe { self.resize(sequence_node(&self.program.layout, node), at, count)? }))
    }

    /// The element with an index that the dialect has announced. Grows a sequence if necessary.
    ///
    /// # Safety
    /// `at` is a live sequence or array at the place, or anything for a sink.
    pub(crate) unsafe fn element_at(
        &mut self,
        place: Place,
        (bound, overflow): (u32, &Overflow),
        at: *mut u8,
        index: usize,
    ) -> Done<*mut u8> {
        self.admit(index + 1, bound, overflow)?;
        let data = match place.node().map(|node| &self.program.layout.node(node).kind) {
            Some(Kind::Array { len, .. }) if index >= *len as usize => {
                return Err(self.fail(FaultKind::Count, (*len).into(), index as u64 + 1));
            }
            // SAFETY: `at` is a live sequence of the node by the contract, and the program runs on
            // it alone.
            Some(Kind::Sequence(sequence)) => unsafe {
                let (data, len) = sequence.access.slice_mut(at);
                if index < len { data } else { self.resize(sequence, at, (2 * len).max(4))? }
            },
            _ => at,
        };
        Ok(data.wrapping_add(index * self.stride(place)))
    }

    /// Cuts a sequence to those of `count` elements that its bound keeps, or refuses an incomplete
    /// array.
    ///
    /// # Safety
    /// `at` is a live sequence or array at the place, or anything for a sink.
    pub(crate) unsafe fn end_sequence(
        &mut self,
        place: Place,
        (bound, overflow): (u32, &Overflow),
        at: *mut u8,
        count: usize,
    ) -> Done {
        match place.node().map(|node| &self.program.layout.node(node).kind) {
            Some(Kind::Array { len, .. }) if count != *len as usize => {
                Err(self.fail(FaultKind::Count, (*len).into(), count as u64))
            }
            Some(Kind::Sequence(sequence)) => {
                let kept = keep(count, bound, overflow).unwrap_or(count);
                // SAFETY: `at` is a live sequence of the node by the contract, and no pointer to
                // its elements is used any more.
                unsafe { self.resize(sequence, at, kept).map(drop) }
            }
            _ => Ok(()),
        }
    }

    /// Bytes from one element to the next; 0 for a sink, so that its dangling frame does not
    /// change.
    fn stride(&self, place: Place) -> usize {
        let layout = &self.program.layout;
        let element = match place.node().map(|node| &layout.node(node).kind) {
            Some(Kind::Sequence(sequence)) => sequence.element,
            Some(Kind::Array { element, .. }) => *element,
            _ => return 0,
        };
        layout.node(element).size as usize
    }

    /// Decodes `count` elements from `data` on.
    fn elements(&mut self, place: Place, element: &'r Block, count: usize, data: *mut u8) -> Done {
        let stride = self.stride(place);
        (0..count).try_for_each(|i| self.element(element, i, data.wrapping_add(i * stride)))
    }

    fn element(&mut self, element: &'r Block, i: usize, frame: *mut u8) -> Done {
        self.block(element, frame).inspect_err(|_| self.input.blame_element(i as u32))
    }

    fn counted(&mut self, place: Place, shape: &SequenceShape<'r>, frame: *mut u8) -> Done {
        let (at, bound) = (address(place, frame), (shape.bound, shape.overflow));
        // SAFETY: the verifier found the sequence at the place. Elements past the bound are decoded
        // into it too and then cut off.
        unsafe {
            let (count, data) = self.begin_sequence(place, (bound.0, bound.1, shape.min_wire), at)?;
            self.elements(place, shape.element, count, data)?;
            if shape.bound > 0 { self.end_sequence(place, bound, at, count) } else { Ok(()) }
        }
    }

    /// A sequence or array with delimiters.
    fn delimited(
        &mut self,
        place: Place,
        dialect: &SequenceDialect,
        shape: &SequenceShape<'r>,
        append: bool,
        frame: *mut u8,
    ) -> Done {
        let (at, bound) = (address(place, frame), (shape.bound, shape.overflow));
        let mut cursor = Cursor::default();
        (dialect.begin)(self.input, &mut cursor).ok()?;
        let mut count = match place.node().map(|node| &self.program.layout.node(node).kind) {
            // SAFETY: the verifier found the sequence at the place.
            Some(Kind::Sequence(sequence)) if append => unsafe { sequence.access.slice(at).1 },
            _ => 0,
        };
        loop {
            let mut more = 0;
            (dialect.next)(self.input, &mut cursor, &mut more).ok()?;
            if more == 0 {
                // SAFETY: the verifier found the sequence or array at the place.
                return unsafe { self.end_sequence(place, bound, at, count) };
            }
            // SAFETY: the verifier found the sequence or array at the place.
            let element = unsafe { self.element_at(place, bound, at, count)? };
            self.element(shape.element, count, element)?;
            count += 1;
        }
    }

    /// Refuses an element that breaks a bound or limit.
    fn admit(&mut self, count: usize, bound: u32, overflow: &Overflow) -> Done {
        if count > self.input.limits.elements as usize {
            return Err(self.fail(FaultKind::Limit, self.input.limits.elements.into(), count as u64));
        }
        match keep(count, bound, overflow) {
            Ok(_) => Ok(()),
            Err(()) => Err(self.fail(FaultKind::Bound, bound.into(), count as u64)),
        }
    }

    fn map(&mut self, place: Place, source: &Source, entry: &Entry<'r>, frame: *mut u8) -> Done {
        let target = match place {
            Place::Sink => None,
            Place::At { offset, node } => {
                Some((map_node(&self.program.layout, node), frame.wrapping_add(offset as usize)))
            }
        };
        let mut i = 0;
        match (target, source) {
            // SAFETY: the verifier found the map at the place.
            (Some((map, at)), Source::Append(_)) => i = unsafe { map.access.len(at) },
            // SAFETY: the verifier found the map at the place, and no entry is being read.
            (Some((map, at)), _) => unsafe { map.access.clear(at) },
            (None, _) => {}
        }
        let mut cursor = Cursor::default();
        let left = match source {
            Source::Dialect(dialect) | Source::Append(dialect) => {
                (dialect.begin)(self.input, &mut cursor).ok()?;
                usize::MAX
            }
            Source::Fixed(n) => *n as usize,
            Source::Count => self.count(entry.min_wire)?,
        };
        loop {
            let mut more = u64::from(i < left);
            if let Source::Dialect(dialect) | Source::Append(dialect) = source {
                (dialect.next)(self.input, &mut cursor, &mut more).ok()?;
            }
            if more == 0 {
                break;
            }
            self.admit(i + 1, entry.bound, entry.overflow)?;
            let keeps = entry.bound == 0 || i < entry.bound as usize;
            self.entry(target, entry, keeps, frame).inspect_err(|_| self.input.blame_element(i as u32))?;
            i += 1;
        }
        if let (Some((map, at)), Ok(0)) = (target, keep(i, entry.bound, entry.overflow)) {
            // SAFETY: the verifier found the map at the place, and no pointer to its entries is
            // used any more.
            unsafe { map.access.clear(at) };
        }
        Ok(())
    }

    /// Decodes an entry, and inserts it into the map if `keeps` is set.
    fn entry(&mut self, target: Option<(&MapNode, *mut u8)>, entry: &Entry<'r>, keeps: bool, frame: *mut u8) -> Done {
        let Some((map, at)) = target else {
            self.block(entry.key, frame)?;
            return self.block(entry.value, frame);
        };
        let layout = &self.program.layout;
        let size = |node| (layout.node(node).size as usize).saturating_add(layout.behind_pointers(node));
        self.input.charge(size(map.key).saturating_add(size(map.value))).ok()?;
        let mut done = Ok(());
        let mut fill = |key: *mut u8, value: *mut u8| {
            done = self.block(entry.key, key).and_then(|()| self.block(entry.value, value));
            done.is_ok() && keeps
        };
        // SAFETY: the verifier found the map at the place, and the frames of the blocks to be its
        // key and value.
        match unsafe { map.access.insert(at, &mut fill) } {
            Ok(Inserted::Yes | Inserted::Replaced | Inserted::Refused) => done,
            Err(_) => Err(self.fail(FaultKind::OutOfMemory, 0, 0)),
        }
    }

    fn present(&mut self, place: Place, body: &'r Block, frame: *mut u8) -> Done {
        let Place::At { offset, node } = place else {
            return self.block(body, frame);
        };
        // SAFETY: the verifier found the optional at the place.
        let value = unsafe { self.set_some(node, frame.wrapping_add(offset as usize))? };
        self.block(body, value)
    }

    /// Makes an optional present, charging for the memory that a new value keeps behind pointers.
    ///
    /// # Safety
    /// `at` is a live optional of the node.
    pub(crate) unsafe fn set_some(&mut self, node: NodeId, at: *mut u8) -> Done<*mut u8> {
        let optional = optional_node(&self.program.layout, node);
        // SAFETY: `at` is a live optional of the node by the contract, and the access is that
        // node's.
        unsafe {
            if optional.access.get(at).is_null() {
                self.input.charge(self.program.layout.behind_pointers(optional.inner)).ok()?;
            }
            optional.access.set_some(at).map_err(|_| self.fail(FaultKind::OutOfMemory, 0, 0))
        }
    }

    fn clear(&mut self, place: Place, frame: *mut u8) -> Done {
        let Place::At { offset, node } = place else {
            return Ok(());
        };
        let at = frame.wrapping_add(offset as usize);
        // SAFETY: the verifier found such a node at the place.
        unsafe {
            match &self.program.layout.node(node).kind {
                Kind::String { shared: true, .. } => (&mut *at.cast::<SharedStr>()).clear(),
                Kind::String { .. } => (&mut *at.cast::<String>()).clear(),
                Kind::Optional(optional) => optional.access.set_none(at),
                Kind::Map(map) => map.access.clear(at),
                _ => {
                    self.resize(sequence_node(&self.program.layout, node), at, 0)?;
                }
            }
        }
        Ok(())
    }

    fn unbox(&mut self, place: Place, body: &'r Block, frame: *mut u8) -> Done {
        let Place::At { offset, node } = place else {
            return self.block(body, frame);
        };
        let boxed = boxed_node(&self.program.layout, node);
        // SAFETY: the verifier found the pointer at the place.
        let value = unsafe { boxed.access.get_mut(frame.wrapping_add(offset as usize)) };
        self.block(body, value)
    }

    fn select(&mut self, place: Place, case: Option<u32>, body: &'r Block, frame: *mut u8) -> Done {
        let Place::At { offset, node } = place else {
            return self.block(body, frame);
        };
        // SAFETY: the verifier found the union, with this case, at the place.
        let value = unsafe { self.set_case(node, frame.wrapping_add(offset as usize), self.accumulator as i64, case)? };
        self.block(body, value)
    }

    /// Selects a case, charging for the memory that a new value keeps behind pointers.
    ///
    /// # Safety
    /// `at` is a live union of the node, which has the case.
    pub(crate) unsafe fn set_case(
        &mut self,
        node: NodeId,
        at: *mut u8,
        discriminator: i64,
        case: Option<u32>,
    ) -> Done<*mut u8> {
        let union = union_node(&self.program.layout, node);
        // SAFETY: `at` is a live union of the node by the contract, which has the case.
        unsafe {
            if let Some(case) = case.filter(|case| union.access.get(at).case != Some(*case)) {
                self.input.charge(self.program.layout.behind_pointers(union.cases[case as usize])).ok()?;
            }
            let value = union.access.select(at, discriminator, case);
            value.map_err(|_| self.fail(FaultKind::OutOfMemory, 0, 0))
        }
    }

    fn members(&mut self, dialect: &MemberDialect, arms: &'r [Arm], table: &MemberTable, frame: *mut u8) -> Done {
        let mut inline = [0u64; INLINE_SEEN];
        let mut spilled = vec![];
        let seen: &mut [u64] = match arms.len() <= 64 * INLINE_SEEN {
            true => &mut inline,
            false => {
                spilled.resize(arms.len().div_ceil(64), 0);
                &mut spilled
            }
        };
        let mut cursor = Cursor::default();
        (dialect.begin)(self.input, &mut cursor).ok()?;
        let mut expected = 0;
        loop {
            let mut arm = expected;
            (dialect.next)(self.input, &mut cursor, table, &mut arm).ok()?;
            match arm {
                MemberTable::END => break,
                MemberTable::UNKNOWN => (dialect.skip)(self.input, &mut cursor).ok()?,
                arm => {
                    // An index from a kernel may be out of range; then the member counts as
                    // unknown.
                    let Some(known) = arms.get(arm as usize) else {
                        (dialect.skip)(self.input, &mut cursor).ok()?;
                        continue;
                    };
                    expected = arm + 1;
                    let (word, bit) = (arm as usize / 64, 1u64 << (arm % 64));
                    if seen[word] & bit != 0 && dialect.refuse_duplicates {
                        return Err(self.fail(FaultKind::DuplicateMember, 0, 0));
                    }
                    seen[word] |= bit;
                    self.block(&known.body, frame)?;
                    (dialect.after)(self.input, &mut cursor).ok()?;
                }
            }
        }
        let absent = |i: &usize| seen[i / 64] & (1 << (i % 64)) == 0;
        let mut absent = (0..arms.len()).filter(absent);
        absent.try_for_each(|i| self.block(&arms[i].absent, frame))
    }

    fn call(&mut self, routine: u32, place: Place, frame: *mut u8) -> Done {
        let Routine { block, levels, .. } = &self.program.routines[routine as usize];
        self.input.enter_levels(*levels).ok()?;
        self.block(block, address(place, frame))?;
        self.input.leave_levels(*levels);
        Ok(())
    }
}

/// The address of a place; for a sink the frame.
fn address(place: Place, frame: *mut u8) -> *mut u8 {
    match place {
        Place::Sink => frame,
        Place::At { offset, .. } => frame.wrapping_add(offset as usize),
    }
}

struct SequenceShape<'p> {
    element: &'p Block,
    bound: u32,
    overflow: &'p Overflow,
    min_wire: u32,
}

struct Entry<'p> {
    key: &'p Block,
    value: &'p Block,
    bound: u32,
    overflow: &'p Overflow,
    min_wire: u32,
}

/// How many of `count` elements stay under the bound; an error if the message must be refused.
pub(super) fn keep(count: usize, bound: u32, overflow: &Overflow) -> Result<usize, ()> {
    match overflow {
        _ if bound == 0 || count <= bound as usize => Ok(count),
        Overflow::Refuse => Err(()),
        Overflow::Trim => Ok(bound as usize),
        Overflow::UseDefault(_) => Ok(0),
    }
}
