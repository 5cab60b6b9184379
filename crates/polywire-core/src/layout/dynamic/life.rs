//! Creating, resetting, copying and dropping the values of records.

use alloc::{
    alloc::{alloc, dealloc, realloc},
    string::String,
    vec::Vec,
};
use core::{alloc::Layout as Block, ptr};

use super::{ABSENT, NO_CASE, PRESENT, Plan, RawMap, RawSequence, RawUnion, What};
use crate::layout::{NodeId, OutOfMemory};

/// In all of these functions `at` points to memory of the place's size and alignment.
impl Plan {
    /// Creates a default value in uninitialised memory. After an error the memory is uninitialised
    /// again.
    ///
    /// # Safety
    /// `at` is valid for writes.
    pub(in crate::layout) unsafe fn init(&self, id: NodeId, at: *mut u8) -> Result<(), OutOfMemory> {
        // SAFETY: `at` is valid for writes: the caller's contract. A hollow value can be reset and
        // dropped.
        unsafe {
            if self.place(id).zero {
                at.write_bytes(0, self.place(id).size);
                return Ok(());
            }
            self.hollow(id, at);
            self.reset(id, at).inspect_err(|_| self.end(id, at))
        }
    }

    /// Creates a value that has allocated nothing. Its boxes are null; only `reset` and `end` may
    /// see such a value.
    ///
    /// # Safety
    /// `at` is valid for writes.
    unsafe fn hollow(&self, id: NodeId, at: *mut u8) {
        let place = self.place(id);
        // SAFETY: `at` is valid for writes: the caller's contract. Parts lie inside the place,
        // aligned.
        unsafe {
            match &place.what {
                What::Scalar { scalar, fresh } => ptr::copy_nonoverlapping(fresh.as_ptr(), at, scalar.size()),
                What::Enum { fresh, .. } => at.cast::<i32>().write(*fresh),
                What::String { .. } => at.cast::<String>().write(String::new()),
                What::Sequence { element } => {
                    at.cast::<RawSequence>().write(RawSequence::empty(self.place(*element).align))
                }
                What::Array { element, len } => {
                    let stride = self.place(*element).size;
                    (0..*len).for_each(|i| self.hollow(*element, at.add(i * stride)));
                }
                What::Struct { fields } => fields.iter().for_each(|f| self.hollow(f.node, at.add(f.offset as usize))),
                What::Optional { .. } => at.write(ABSENT),
                What::Union { cases, payload, fresh: (discriminator, case) } => {
                    let chosen = case.unwrap_or(NO_CASE);
                    at.cast::<RawUnion>().write(RawUnion { discriminator: *discriminator, case: chosen, held: chosen });
                    if let Some(case) = case {
                        self.hollow(cases[*case as usize], at.add(*payload));
                    }
                }
                What::Map { align, .. } => {
                    let entries = RawSequence::empty(*align);
                    at.cast::<RawMap>().write(RawMap { entries, index: Vec::new() });
                }
                What::Boxed { .. } => at.cast::<*mut u8>().write(ptr::null_mut()),
            }
        }
    }

    /// Resets a value to its default and keeps allocations that can be reused. After an error the
    /// value is valid except for null boxes that [`Plan::hollow`] left.
    ///
    /// # Safety
    /// `at` holds a value.
    pub(in crate::layout) unsafe fn reset(&self, id: NodeId, at: *mut u8) -> Result<(), OutOfMemory> {
        let place = self.place(id);
        // SAFETY: `at` holds a value of the place: the caller's contract.
        unsafe {
            match &place.what {
                _ if place.zero => at.write_bytes(0, place.size),
                What::Scalar { .. } | What::Enum { .. } => self.hollow(id, at),
                What::String { fresh } => assign_text(&mut *at.cast::<String>(), fresh)?,
                What::Sequence { .. } => (*at.cast::<RawSequence>()).len = 0,
                What::Array { element, len } => {
                    let stride = self.place(*element).size;
                    (0..*len).try_for_each(|i| self.reset(*element, at.add(i * stride)))?;
                }
                What::Struct { fields } => {
                    fields.iter().try_for_each(|f| self.reset(f.node, at.add(f.offset as usize)))?;
                }
                What::Optional { .. } => self.make_absent(at),
                What::Union { cases, fresh: (discriminator, case), .. } => {
                    let payload = self.choose(id, at, *discriminator, *case)?;
                    if let Some(case) = case {
                        self.reset(cases[*case as usize], payload)?;
                    }
                }
                What::Map { .. } => self.clear_map(at),
                What::Boxed { inner } => {
                    let boxed = &mut *at.cast::<*mut u8>();
                    match boxed.is_null() {
                        true => *boxed = self.new_boxed(*inner)?,
                        false => self.reset(*inner, *boxed)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Empties a sequence, a map or an optional and frees its memory.
    ///
    /// # Safety
    /// `at` holds one of these.
    pub(in crate::layout) unsafe fn empty(&self, id: NodeId, at: *mut u8) {
        // SAFETY: `at` holds a value of the place: the caller's contract. Hollow values of these
        // three kinds have no null boxes, so they are valid.
        unsafe {
            self.end(id, at);
            self.hollow(id, at);
        }
    }

    /// Drops a value in place.
    ///
    /// # Safety
    /// `at` holds a value, which nothing uses afterwards.
    pub(in crate::layout) unsafe fn end(&self, id: NodeId, at: *mut u8) {
        let place = self.place(id);
        if place.plain {
            return;
        }
        // SAFETY: `at` holds a value of the place: the caller's contract.
        unsafe {
            match &place.what {
                What::Scalar { .. } | What::Enum { .. } => {}
                What::String { .. } => at.cast::<String>().drop_in_place(),
                What::Sequence { element } => {
                    let (of, sequence) = (self.place(*element), &mut *at.cast::<RawSequence>());
                    if !of.plain {
                        sequence.each(of.size, |one| self.end(*element, one));
                    }
                    sequence.free(of.size, of.align);
                }
                What::Array { element, len } => {
                    let stride = self.place(*element).size;
                    (0..*len).for_each(|i| self.end(*element, at.add(i * stride)));
                }
                What::Struct { fields } => fields.iter().for_each(|f| self.end(f.node, at.add(f.offset as usize))),
                What::Optional { inner, payload } => {
                    if at.read() != ABSENT {
                        self.end(*inner, at.add(*payload));
                    }
                }
                What::Union { cases, payload, .. } => {
                    let held = (*at.cast::<RawUnion>()).held;
                    if held != NO_CASE {
                        self.end(cases[held as usize], at.add(*payload));
                    }
                }
                What::Map { key, value, value_at, stride, align } => {
                    let map = &mut *at.cast::<RawMap>();
                    map.entries.each(*stride, |entry| {
                        self.end(*key, entry);
                        self.end(*value, entry.add(*value_at));
                    });
                    map.entries.free(*stride, *align);
                    ptr::drop_in_place(&raw mut map.index);
                }
                What::Boxed { inner } => {
                    let boxed = at.cast::<*mut u8>().read();
                    if !boxed.is_null() {
                        self.end(*inner, boxed);
                        self.free_block(*inner, boxed);
                    }
                }
            }
        }
    }

    /// Copies the value at `from` over the value at `to`. After an error both are valid.
    ///
    /// # Safety
    /// Both pointers hold values of the place, and they do not overlap.
    pub(in crate::layout) unsafe fn copy(&self, id: NodeId, from: *const u8, to: *mut u8) -> Result<(), OutOfMemory> {
        let place = self.place(id);
        // SAFETY: both pointers hold values of the place: the caller's contract.
        unsafe {
            if place.plain {
                ptr::copy_nonoverlapping(from, to, place.size);
                return Ok(());
            }
            match &place.what {
                What::Scalar { .. } | What::Enum { .. } => {}
                What::String { .. } => assign_text(&mut *to.cast::<String>(), &*from.cast::<String>())?,
                What::Sequence { element } => {
                    let source = &*from.cast::<RawSequence>();
                    self.copy_elements(id, *element, source, to)?;
                }
                What::Array { element, len } => {
                    let stride = self.place(*element).size;
                    (0..*len).try_for_each(|i| self.copy(*element, from.add(i * stride), to.add(i * stride)))?;
                }
                What::Struct { fields } => fields
                    .iter()
                    .try_for_each(|f| self.copy(f.node, from.add(f.offset as usize), to.add(f.offset as usize)))?,
                What::Optional { inner, payload } => match from.read() {
                    PRESENT => {
                        let value = self.make_present(id, to)?;
                        self.copy(*inner, from.add(*payload), value)?;
                    }
                    _ => self.make_absent(to),
                },
                What::Union { cases, payload, .. } => {
                    let front = from.cast::<RawUnion>().read();
                    let case = Some(front.case).filter(|c| *c != NO_CASE);
                    let value = self.choose(id, to, front.discriminator, case)?;
                    if let Some(case) = case {
                        self.copy(cases[case as usize], from.add(*payload), value)?;
                    }
                }
                What::Map { key, value, value_at, .. } => {
                    self.clear_map(to);
                    let source = &*from.cast::<RawMap>();
                    for i in 0..source.entries.len {
                        let entry = self.entry(id, source, i);
                        let spare = self.spare_entry(id, to)?;
                        self.copy(*key, entry, spare)?;
                        self.copy(*value, entry.add(*value_at), spare.add(*value_at))?;
                        self.insert_spare(id, to)?;
                    }
                }
                What::Boxed { inner } => {
                    self.copy(*inner, from.cast::<*const u8>().read(), to.cast::<*mut u8>().read())?
                }
            }
        }
        Ok(())
    }

    /// # Safety
    /// The same contract as [`Plan::copy`].
    unsafe fn copy_elements(
        &self,
        id: NodeId,
        element: NodeId,
        source: &RawSequence,
        to: *mut u8,
    ) -> Result<(), OutOfMemory> {
        let of = self.place(element);
        // SAFETY: both sequences are of place `id` and do not overlap: the caller's contract.
        unsafe {
            if of.plain {
                return self.assign(id, to, source.pointer, source.len);
            }
            let first = self.resize_keeping_values(id, to, source.len)?;
            (0..source.len)
                .try_for_each(|i| self.copy(element, source.pointer.add(i * of.size), first.add(i * of.size)))
        }
    }

    /// Allocates a block with a default value of `inner`.
    fn new_boxed(&self, inner: NodeId) -> Result<*mut u8, OutOfMemory> {
        let place = self.place(inner);
        let block = block(place.size, place.align)?;
        // SAFETY: no place has size zero.
        let boxed = unsafe { alloc(block) };
        if boxed.is_null() {
            return Err(OutOfMemory);
        }
        // SAFETY: the block has the place's size and alignment, and is freed if `init` fails.
        unsafe { self.init(inner, boxed).inspect_err(|_| dealloc(boxed, block))? };
        Ok(boxed)
    }

    /// Allocates a block with a default value of the root.
    pub(in crate::layout) fn new_root(&self) -> Result<*mut u8, OutOfMemory> {
        self.new_boxed(self.root)
    }

    /// # Safety
    /// `boxed` came from [`Plan::new_boxed`] for `inner`, and its value was dropped.
    pub(in crate::layout) unsafe fn free_block(&self, inner: NodeId, boxed: *mut u8) {
        let place = self.place(inner);
        if let Ok(block) = block(place.size, place.align) {
            // SAFETY: the block was allocated with this size and alignment.
            unsafe { dealloc(boxed, block) }
        }
    }
}

impl RawSequence {
    fn empty(align: usize) -> RawSequence {
        // Not null, so that it can be the start of an empty slice.
        RawSequence { pointer: ptr::without_provenance_mut(align), capacity: 0, len: 0, initialised: 0 }
    }

    /// Makes room for `len` elements in total.
    pub(in crate::layout) fn reserve(&mut self, len: usize, size: usize, align: usize) -> Result<(), OutOfMemory> {
        if len <= self.capacity {
            return Ok(());
        }
        let capacity = len.max(self.capacity.saturating_mul(2));
        let block_of = |capacity: usize| block(size.checked_mul(capacity).ok_or(OutOfMemory)?, align);
        let new = block_of(capacity)?;
        let pointer = match self.capacity {
            // SAFETY: neither `len` nor the size of a record's element is zero.
            0 => unsafe { alloc(new) },
            // SAFETY: the block was allocated with this capacity.
            old => unsafe { realloc(self.pointer, block_of(old)?, new.size()) },
        };
        if pointer.is_null() {
            return Err(OutOfMemory);
        }
        (self.pointer, self.capacity) = (pointer, capacity);
        Ok(())
    }

    /// Calls `visit` with each element that is initialised.
    fn each(&self, size: usize, visit: impl FnMut(*mut u8)) {
        (0..self.initialised).map(|i| self.pointer.wrapping_add(i * size)).for_each(visit);
    }

    /// # Safety
    /// The elements were dropped or need not be, and the sequence is not used afterwards.
    unsafe fn free(&mut self, size: usize, align: usize) {
        if let (1.., Ok(block)) = (self.capacity, block(size * self.capacity, align)) {
            // SAFETY: the block was allocated with this capacity.
            unsafe { dealloc(self.pointer, block) }
        }
    }
}

fn block(size: usize, align: usize) -> Result<Block, OutOfMemory> {
    Block::from_size_align(size, align).map_err(|_| OutOfMemory)
}

pub(in crate::layout) fn assign_text(string: &mut String, text: &str) -> Result<(), OutOfMemory> {
    string.clear();
    string.try_reserve(text.len()).map_err(|_| OutOfMemory)?;
    string.push_str(text);
    Ok(())
}
