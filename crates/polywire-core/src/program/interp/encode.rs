//! Encode programs: loads the value and writes it to `Output`. `exec.rs` calls [`encode`]; machine
//! code runs single operations through `interp/op.rs`.

use super::{
    Done, boxed_node, check, convert, extend, from_word, load, map_node, memory_scalar, optional_node, reorder,
    sequence_node, slots, store, union_node,
};
use crate::{
    layout::{Kind, NodeId, Scalar, text_at},
    program::{
        Block, Cursor, Decimal, FaultKind, Op, OpKind, Order, Output, Place, Program, RegionDialect, Routine,
        ScalarKernel, Segment, SliceKernel, Status, TextForm, Wire, arm_of, state,
    },
};

/// Runs an encode program from the value at `value` to `output`.
///
/// # Safety
/// `program` is a verified encode program, and `value` points to a live value of its layout's root
/// that nobody changes meanwhile.
pub(crate) unsafe fn encode(program: &Program, output: &mut Output<'_>, value: *const u8) -> Status {
    Status::of(Run { program, output, accumulator: 0, scalar: Scalar::U64, index: 0 }.block(&program.root, value))
}

/// One run of a program: its output, the accumulator with its type, and the index of the innermost
/// element.
pub(super) struct Run<'r, 'a> {
    pub(super) program: &'r Program,
    pub(super) output: &'r mut Output<'a>,
    pub(super) accumulator: i128,
    pub(super) scalar: Scalar,
    pub(super) index: u64,
}

// In all methods, `frame` points to a live value of the block's frame node, for which the verifier
// checked all places.
impl<'r> Run<'r, '_> {
    fn block(&mut self, block: &'r Block, frame: *const u8) -> Done {
        block.0.iter().try_for_each(|op| self.named(op, frame))
    }

    /// Runs an operation; a fault names its field.
    pub(super) fn named(&mut self, op: &'r Op, frame: *const u8) -> Done {
        self.op(op, frame).inspect_err(|_| self.output.blame(op.path))
    }

    fn op(&mut self, op: &'r Op, frame: *const u8) -> Done {
        match &op.kind {
            OpKind::Need(n) => self.output.reserve(*n as usize).ok(),
            OpKind::Align(n) => self.output.align(usize::from(*n)).ok(),
            OpKind::Run { segments, size } => {
                self.run(segments, *size, frame);
                Ok(())
            }
            OpKind::Literal(bytes) => self.output.put(bytes).ok(),
            OpKind::Load(place) => self.load(*place, frame),
            OpKind::Put(wire) => self.put(wire),
            OpKind::Const(scalar, bits) => self.set(extend(*bits, *scalar), *scalar),
            OpKind::Length(place) => {
                let len = self.length(*place, frame);
                self.set(len as i128, Scalar::U64)
            }
            OpKind::Index => self.set(i128::from(self.index), Scalar::U64),
            OpKind::Convert(to) => self.convert(*to),
            OpKind::Check(condition) => {
                let value = check(&self.program.layout, condition, self.accumulator);
                self.accumulator = value.map_err(|kind| self.fail(kind, 0, self.accumulator as u64))?;
                Ok(())
            }
            OpKind::Text { place, form, bound, utf16_bound, after, .. } => {
                self.text(self.string(*place, frame), form, *bound, *utf16_bound)?;
                self.output.reserve(*after as usize).ok()
            }
            OpKind::Bulk { place, scalar, order, bound, .. } => self.bulk(*place, *scalar, *order, *bound, frame),
            OpKind::Bytes(bytes) => self.bytes(bytes, frame),
            OpKind::Slice { place, kernel, bound, .. } => self.slice(*place, kernel, *bound, frame),
            OpKind::Sequence { place, element, bound, .. } => self.sequence(*place, element, *bound, frame),
            OpKind::Map { place, key, value, bound, .. } => self.map(*place, key, value, *bound, frame),
            OpKind::IfPresent { place, then, otherwise } => {
                let value = self.optional(*place, frame);
                if value.is_null() { self.block(otherwise, frame) } else { self.block(then, value) }
            }
            OpKind::Unbox { place, body } => self.block(body, self.unboxed(*place, frame)),
            OpKind::Union { place, arms, none } => self.union(*place, arms, none, frame),
            OpKind::Switch { labels, arms, otherwise } => {
                let chosen = arm_of(labels, self.accumulator);
                self.block(chosen.map_or(otherwise, |arm| &arms[arm]), frame)
            }
            OpKind::If { then, otherwise } => self.block(if self.accumulator != 0 { then } else { otherwise }, frame),
            OpKind::PresenceMap { bits, body, .. } => self.presence_map((*bits).into(), body, frame),
            OpKind::KnownBits { zeros, one } => {
                state::put_bits(self.output, *zeros, *one);
                Ok(())
            }
            OpKind::Slot(op) => {
                (self.accumulator, self.scalar) = slots::run(*op, self.output.state(), self.accumulator, self.scalar);
                Ok(())
            }
            OpKind::Decimal(decimal) => self.decimal(decimal),
            OpKind::Action(kernel, argument) => (kernel.put)(self.output, *argument).ok(),
            OpKind::Region { dialect, argument, body } => self.region(dialect, *argument, body, frame),
            OpKind::Call { routine, place } => self.call(*routine, *place, frame),
            OpKind::Fail(kind) => Err(self.fail(*kind, 0, 0)),
            OpKind::Store(_)
            | OpKind::Get(_)
            | OpKind::SetText(..)
            | OpKind::Present { .. }
            | OpKind::Clear(_)
            | OpKind::Select { .. }
            | OpKind::Test(_)
            | OpKind::TakeBit
            | OpKind::Members { .. } => unreachable!("the verifier refuses decode operations here"),
        }
    }

    fn load(&mut self, place: Place, frame: *const u8) -> Done {
        let (at, node) = at(place, frame);
        let scalar = memory_scalar(&self.program.layout, node);
        // SAFETY: the verifier found the scalar at the place.
        self.set(unsafe { load(at, scalar) }, scalar)
    }

    fn convert(&mut self, to: Scalar) -> Done {
        let value = convert(self.accumulator, self.scalar, to);
        let value = value.map_err(|kind| self.fail(kind, 8 * to.size() as u64, self.accumulator as u64))?;
        self.set(value, to)
    }

    fn string<'v>(&self, place: Place, frame: *const u8) -> &'v str {
        let (at, node) = at(place, frame);
        let shared = matches!(self.program.layout.node(node).kind, Kind::String { shared: true, .. });
        // SAFETY: the verifier found a string at the place, which nobody changes while the program
        // runs.
        unsafe { text_at(shared, at) }
    }

    /// The value of an optional, or null.
    fn optional(&self, place: Place, frame: *const u8) -> *const u8 {
        let (at, node) = at(place, frame);
        let optional = optional_node(&self.program.layout, node);
        // SAFETY: the verifier found the optional at the place.
        unsafe { optional.access.get(at) }
    }

    fn unboxed(&self, place: Place, frame: *const u8) -> *const u8 {
        let (at, node) = at(place, frame);
        let boxed = boxed_node(&self.program.layout, node);
        // SAFETY: the verifier found the pointer at the place.
        unsafe { boxed.access.get(at) }
    }

    fn presence_map(&mut self, bits: u64, body: &'r Block, frame: *const u8) -> Done {
        let mut outer = Cursor::default();
        state::begin_writing(self.output, bits, &mut outer).ok()?;
        self.block(body, frame)?;
        state::end_writing(self.output, bits, &mut outer).ok()
    }

    fn decimal(&mut self, decimal: &Decimal) -> Done {
        let number = self.accumulator as u64;
        let mantissa = match decimal {
            Decimal::Split { exponent } => state::decimal::split(self.output, *exponent, self.scalar, number),
            Decimal::Shift { exponent, to } => state::decimal::shift(self.output, (*exponent, *to), number)?,
            Decimal::Join { .. } => unreachable!("the verifier refuses decode operations here"),
        };
        self.set(from_word(mantissa, Scalar::I64), Scalar::I64)
    }

    fn region(&mut self, dialect: &RegionDialect, argument: u64, body: &'r Block, frame: *const u8) -> Done {
        let mut cursor = Cursor::default();
        (dialect.put_begin)(self.output, argument, &mut cursor).ok()?;
        self.block(body, frame)?;
        (dialect.put_end)(self.output, argument, &mut cursor).ok()
    }

    fn call(&mut self, routine: u32, place: Place, frame: *const u8) -> Done {
        let (frame, _) = at(place, frame);
        let Routine { block, levels, .. } = &self.program.routines[routine as usize];
        self.output.enter_levels(*levels).ok()?;
        self.block(block, frame)?;
        self.output.leave_levels(*levels);
        Ok(())
    }

    /// Sets the accumulator, which never fails.
    pub(super) fn set(&mut self, value: i128, scalar: Scalar) -> Done {
        (self.accumulator, self.scalar) = (value, scalar);
        Ok(())
    }

    pub(super) fn fail(&mut self, kind: FaultKind, expected: u64, got: u64) -> Status {
        self.output.fail(kind, expected, got)
    }

    fn run(&mut self, segments: &[Segment], size: u32, frame: *const u8) {
        // SAFETY: a `Need` reserved the bytes of the run, segments lie within it, and the verifier
        // found their scalars at their places. Padding in memory is never read, and every byte of
        // the run is written.
        unsafe {
            let start = self.output.here();
            start.write_bytes(0, size as usize);
            for segment in segments {
                let Place::At { offset, .. } = segment.place else { continue };
                for i in 0..segment.count as usize {
                    let value = load(frame.add(offset as usize + i * segment.memory.size()), segment.memory);
                    let wire = start.add(segment.at as usize + i * segment.wire.size());
                    store(wire, segment.wire, reorder(value, segment.wire, segment.order));
                }
            }
        }
        self.output.pos += size as usize;
    }

    fn put(&mut self, wire: &Wire) -> Done {
        match wire {
            Wire::Fixed { scalar, order } => {
                // SAFETY: the verifier has shown that a `Need` reserved room for these bytes.
                unsafe {
                    let at = self.output.here();
                    store(at, *scalar, reorder(self.accumulator, *scalar, *order));
                }
                self.output.pos += scalar.size();
                Ok(())
            }
            Wire::Kernel(ScalarKernel { wide: Some(wide), .. }) => {
                (wide.put)(self.output, self.accumulator as u128).ok()
            }
            Wire::StopBit(form) => state::stop_bit::put(self.output, form, self.accumulator as u64).ok(),
            Wire::Inline(kernel, argument) => {
                let value = self.accumulator as u64;
                self.output.put_cleared(|room| (kernel.put)(room, *argument, value)).ok()
            }
            Wire::Octet => unreachable!("the verifier refuses it here"),
            Wire::Symbol(kernel, table) => (kernel.put)(self.output, table, self.accumulator as u64).ok(),
            Wire::Kernel(kernel) => (kernel.put)(self.output, self.accumulator as u64).ok(),
        }
    }

    fn length(&self, place: Place, frame: *const u8) -> usize {
        let (at, node) = at(place, frame);
        // SAFETY: the verifier found such a node at the place.
        unsafe {
            match &self.program.layout.node(node).kind {
                Kind::String { shared, .. } => text_at(*shared, at).len(),
                Kind::Sequence(sequence) => sequence.access.slice(at).1,
                Kind::Map(map) => map.access.len(at),
                _ => unreachable!("the verifier admits what has a length only"),
            }
        }
    }

    fn text(&mut self, text: &str, form: &TextForm, bound: u32, utf16_bound: bool) -> Done {
        let len = if utf16_bound && bound > 0 { text.encode_utf16().count() } else { text.len() };
        if bound > 0 && len > bound as usize {
            return Err(self.fail(FaultKind::Bound, bound.into(), len as u64));
        }
        match form {
            TextForm::CountedNul { order } => put_counted_nul(self.output, *order, text).ok(),
            TextForm::Kernel(kernel) => (kernel.put)(self.output, text).ok(),
            TextForm::Held => {
                self.output.state().hold(text.as_bytes());
                Ok(())
            }
        }
    }

    fn bulk(&mut self, place: Place, scalar: Scalar, order: Order, bound: u32, frame: *const u8) -> Done {
        let (at, node) = at(place, frame);
        let sequence = sequence_node(&self.program.layout, node);
        // SAFETY: the verifier found a sequence of such scalars at the place.
        unsafe {
            let (data, len) = sequence.access.slice(at);
            self.hold(len, bound)?;
            let bytes = len * scalar.size();
            self.output.reserve(bytes).ok()?;
            let wire = self.output.here();
            if order == super::HOST || scalar.size() == 1 {
                core::ptr::copy_nonoverlapping(data, wire, len * scalar.size());
            } else {
                for i in 0..len {
                    let value = load(data.add(i * scalar.size()), scalar);
                    store(wire.add(i * scalar.size()), scalar, reorder(value, scalar, order));
                }
            }
            self.output.pos += len * scalar.size();
        }
        Ok(())
    }

    fn slice(&mut self, place: Place, kernel: &SliceKernel, bound: u32, frame: *const u8) -> Done {
        let (data, len, _) = self.elements(place, frame);
        self.hold(len, bound)?;
        // SAFETY: the verifier found the elements to be such scalars, which have no padding.
        let bytes = unsafe { core::slice::from_raw_parts(data, len * kernel.scalar.size()) };
        (kernel.put)(self.output, bytes).ok()
    }

    /// The first element of a sequence or array, the number of elements, and the node of each.
    pub(super) fn elements(&self, place: Place, frame: *const u8) -> (*const u8, usize, NodeId) {
        let (at, node) = at(place, frame);
        match &self.program.layout.node(node).kind {
            Kind::Sequence(sequence) => {
                // SAFETY: the verifier found the sequence at the place.
                let (data, len) = unsafe { sequence.access.slice(at) };
                (data, len, sequence.element)
            }
            Kind::Array { element, len } => (at, *len as usize, *element),
            _ => unreachable!("the verifier admits sequences and arrays only"),
        }
    }

    pub(super) fn hold(&mut self, len: usize, bound: u32) -> Done {
        match bound > 0 && len > bound as usize {
            true => Err(self.fail(FaultKind::Bound, bound.into(), len as u64)),
            false => Ok(()),
        }
    }

    fn sequence(&mut self, place: Place, element: &'r Block, bound: u32, frame: *const u8) -> Done {
        let (data, len, element_node) = self.elements(place, frame);
        self.hold(len, bound)?;
        let stride = self.program.layout.node(element_node).size as usize;
        let outer = self.index;
        for i in 0..len {
            self.index = i as u64;
            self.block(element, data.wrapping_add(i * stride)).inspect_err(|_| self.output.blame_element(i as u32))?;
        }
        self.index = outer;
        Ok(())
    }

    fn map(&mut self, place: Place, key: &'r Block, value: &'r Block, bound: u32, frame: *const u8) -> Done {
        let (at, node) = at(place, frame);
        let map = map_node(&self.program.layout, node);
        // SAFETY: the verifier found the map at the place.
        let len = unsafe { map.access.len(at) };
        self.hold(len, bound)?;
        let outer = self.index;
        let (mut done, mut i) = (Ok(()), 0);
        let mut visit = |k: *const u8, v: *const u8| {
            self.index = i;
            done = self.block(key, k).and_then(|()| self.block(value, v));
            done = done.inspect_err(|_| self.output.blame_element(i as u32));
            i += 1;
            done.is_ok()
        };
        // SAFETY: the verifier found the map at the place, and the frames of the blocks to be its
        // key and value.
        unsafe { map.access.visit(at, &mut visit) };
        self.index = outer;
        done
    }

    fn union(&mut self, place: Place, arms: &'r [Block], none: &'r Block, frame: *const u8) -> Done {
        let (at, node) = at(place, frame);
        let union = union_node(&self.program.layout, node);
        // SAFETY: the verifier found the union at the place.
        let selected = unsafe { union.access.get(at) };
        self.set(i128::from(selected.discriminator), Scalar::I64)?;
        match selected.case {
            Some(case) => self.block(&arms[case as usize], selected.value),
            None => self.block(none, frame),
        }
    }
}

/// The address of a place, and its node.
pub(super) fn at(place: Place, frame: *const u8) -> (*const u8, NodeId) {
    match place {
        Place::At { offset, node } => (frame.wrapping_add(offset as usize), node),
        Place::Sink => unreachable!("the verifier refuses sinks when encoding"),
    }
}

/// Writes a string as CDR and BSON have it: a count, the bytes, a NUL that is counted.
pub(crate) fn put_counted_nul(output: &mut Output<'_>, order: Order, text: &str) -> Status {
    let Ok(count) = u32::try_from(text.len() as u64 + 1) else {
        return output.fail(FaultKind::Limit, u64::from(u32::MAX), text.len() as u64 + 1);
    };
    let head = if order == Order::Little { count.to_le_bytes() } else { count.to_be_bytes() };
    let reserved = output.reserve(text.len() + 5);
    reserved.then(|| output.put(&head)).then(|| output.put(text.as_bytes())).then(|| output.put(&[0]))
}
