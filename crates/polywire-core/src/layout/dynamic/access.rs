//! Access functions of records: the implementations behind the access traits, and the operations of
//! [`Plan`] that change sequences, optionals, unions and maps.

use alloc::sync::Arc;
use core::{mem, ptr};

use super::{ABSENT, NO_CASE, PRESENT, Plan, RawMap, RawSequence, RawUnion, SPARE, What, compare_keys, sorted_runs};
use crate::layout::{
    BoxedAccess, MapAccess, NodeId, OptionalAccess, OutOfMemory, SequenceAccess, UnionAccess,
    access::{Inserted, Selected},
};

/// The access functions of one place. They run no user code, so they cannot panic.
pub(super) struct Access {
    pub(super) plan: Arc<Plan>,
    pub(super) node: NodeId,
}

// SAFETY: `Plan` changes sequences and keeps them valid.
unsafe impl SequenceAccess for Access {
    unsafe fn slice(&self, sequence: *const u8) -> (*const u8, usize) {
        // SAFETY: the access rules give a live sequence of this place.
        let raw = unsafe { &*sequence.cast::<RawSequence>() };
        (raw.pointer, raw.len)
    }

    unsafe fn resize(&self, sequence: *mut u8, len: usize) -> Result<*mut u8, OutOfMemory> {
        // SAFETY: the access rules give a live sequence of this place that nothing else uses.
        unsafe { self.plan.resize_keeping_values(self.node, sequence, len) }
    }

    unsafe fn assign(&self, sequence: *mut u8, source: *const u8, len: usize) -> Result<(), OutOfMemory> {
        // SAFETY: the access rules give a live sequence of this place that nothing else uses, and
        // valid elements at `source`.
        unsafe { self.plan.assign(self.node, sequence, source, len) }
    }

    unsafe fn release(&self, sequence: *mut u8) {
        // SAFETY: the access rules give a live sequence of this place that nothing else uses.
        unsafe { self.plan.empty(self.node, sequence) }
    }
}

// SAFETY: the flag says whether the payload is initialised and present.
unsafe impl OptionalAccess for Access {
    unsafe fn get(&self, optional: *const u8) -> *const u8 {
        // SAFETY: the access rules give a live optional of this place, which begins with its flag.
        match (&self.plan.place(self.node).what, unsafe { optional.read() }) {
            // SAFETY: the payload lies inside the optional.
            (What::Optional { payload, .. }, PRESENT) => unsafe { optional.add(*payload) },
            _ => ptr::null(),
        }
    }

    unsafe fn set_some(&self, optional: *mut u8) -> Result<*mut u8, OutOfMemory> {
        // SAFETY: the access rules give a live optional of this place that nothing else uses.
        unsafe { self.plan.make_present(self.node, optional) }
    }

    unsafe fn set_none(&self, optional: *mut u8) {
        // SAFETY: the access rules give a live optional of this place that nothing else uses.
        unsafe { self.plan.make_absent(optional) }
    }

    unsafe fn release(&self, optional: *mut u8) {
        // SAFETY: the access rules give a live optional of this place that nothing else uses.
        unsafe { self.plan.empty(self.node, optional) }
    }
}

// SAFETY: the union's front says which case the payload holds.
unsafe impl UnionAccess for Access {
    unsafe fn get(&self, union: *const u8) -> Selected {
        // SAFETY: the access rules give a live union of this place, which begins with a `RawUnion`.
        let front = unsafe { union.cast::<RawUnion>().read() };
        let value = match &self.plan.place(self.node).what {
            // SAFETY: the payload lies inside the union.
            What::Union { payload, .. } => unsafe { union.add(*payload) },
            _ => union,
        };
        let case = Some(front.case).filter(|case| *case != NO_CASE);
        Selected { discriminator: front.discriminator, case, value }
    }

    unsafe fn select(&self, union: *mut u8, discriminator: i64, case: Option<u32>) -> Result<*mut u8, OutOfMemory> {
        // SAFETY: the access rules give a live union of this place that nothing else uses.
        unsafe { self.plan.choose(self.node, union, discriminator, case) }
    }

    unsafe fn release(&self, union: *mut u8) {
        // SAFETY: the access rules give a live union of this place that nothing else uses.
        unsafe { self.plan.drop_held(self.node, union) }
    }
}

// SAFETY: `Plan` changes entries and keeps them valid.
unsafe impl MapAccess for Access {
    unsafe fn len(&self, map: *const u8) -> usize {
        // SAFETY: the access rules give a live map of this place.
        unsafe { &*map.cast::<RawMap>() }.entries.len
    }

    unsafe fn visit(&self, map: *const u8, visit: &mut dyn FnMut(*const u8, *const u8) -> bool) {
        let What::Map { value_at, .. } = self.plan.place(self.node).what else { return };
        // SAFETY: the access rules give a live map of this place, with `len` entries in use.
        unsafe {
            let raw = &*map.cast::<RawMap>();
            for i in 0..raw.entries.len {
                let entry = self.plan.entry(self.node, raw, i);
                if !visit(entry, entry.add(value_at)) {
                    return;
                }
            }
        }
    }

    unsafe fn clear(&self, map: *mut u8) {
        // SAFETY: the access rules give a live map of this place that nothing else uses.
        unsafe { self.plan.clear_map(map) }
    }

    unsafe fn release(&self, map: *mut u8) {
        // SAFETY: the access rules give a live map of this place that nothing else uses.
        unsafe { self.plan.empty(self.node, map) }
    }

    unsafe fn insert(
        &self,
        map: *mut u8,
        fill: &mut dyn FnMut(*mut u8, *mut u8) -> bool,
    ) -> Result<Inserted, OutOfMemory> {
        let What::Map { value_at, .. } = self.plan.place(self.node).what else { return Err(OutOfMemory) };
        // SAFETY: the access rules give a live map of this place that nothing else uses; `fill`
        // leaves key and value valid.
        unsafe {
            let entry = self.plan.spare_entry(self.node, map)?;
            if !fill(entry, entry.add(value_at)) {
                return Ok(Inserted::Refused);
            }
            self.plan.insert_spare(self.node, map)
        }
    }
}

// SAFETY: an initialised box always has a value.
unsafe impl BoxedAccess for Access {
    unsafe fn get(&self, boxed: *const u8) -> *const u8 {
        // SAFETY: the access rules give a live box of this place, which is one pointer.
        unsafe { boxed.cast::<*const u8>().read() }
    }

    unsafe fn get_mut(&self, boxed: *mut u8) -> *mut u8 {
        // SAFETY: the access rules give a live box of this place, which is one pointer.
        unsafe { boxed.cast::<*mut u8>().read() }
    }
}

impl Plan {
    /// Sets the length of a sequence. New elements have their default values.
    ///
    /// # Safety
    /// `sequence` holds a sequence of place `id`, which nothing else uses.
    pub(in crate::layout) unsafe fn resize(
        &self,
        id: NodeId,
        sequence: *mut u8,
        len: usize,
    ) -> Result<*mut u8, OutOfMemory> {
        let What::Sequence { element } = self.place(id).what else { return Err(OutOfMemory) };
        let size = self.place(element).size;
        // SAFETY: `sequence` is a sequence of place `id`: the caller's contract. Elements up to
        // `initialised` are initialised.
        unsafe {
            let (old, spare) = {
                let raw = &*sequence.cast::<RawSequence>();
                (raw.len, raw.initialised)
            };
            let first = self.resize_keeping_values(id, sequence, len)?;
            (old..len.min(spare)).try_for_each(|i| self.reset(element, first.add(i * size)))?;
            Ok(first)
        }
    }

    /// Sets the length of a sequence like [`Plan::resize`], but new elements may keep values from
    /// an earlier use.
    ///
    /// # Safety
    /// The same contract as [`Plan::resize`].
    pub(super) unsafe fn resize_keeping_values(
        &self,
        id: NodeId,
        sequence: *mut u8,
        len: usize,
    ) -> Result<*mut u8, OutOfMemory> {
        let What::Sequence { element } = self.place(id).what else { return Err(OutOfMemory) };
        let of = self.place(element);
        // SAFETY: `sequence` is a sequence of place `id`: the caller's contract. The count is
        // raised only after an element is initialised.
        unsafe {
            let raw = &mut *sequence.cast::<RawSequence>();
            raw.reserve(len, of.size, of.align)?;
            while raw.initialised < len {
                self.init(element, raw.pointer.add(raw.initialised * of.size))?;
                raw.initialised += 1;
            }
            raw.len = len;
            Ok(raw.pointer)
        }
    }

    /// # Safety
    /// The same contract as [`Plan::resize`]. In addition, elements are plain bytes, and `len`
    /// valid ones lie at `source`, outside the sequence.
    pub(in crate::layout) unsafe fn assign(
        &self,
        id: NodeId,
        sequence: *mut u8,
        source: *const u8,
        len: usize,
    ) -> Result<(), OutOfMemory> {
        let What::Sequence { element } = self.place(id).what else { return Err(OutOfMemory) };
        let of = self.place(element);
        // SAFETY: the caller upholds this function's contract, and there is room for `len`
        // elements.
        unsafe {
            let raw = &mut *sequence.cast::<RawSequence>();
            raw.reserve(len, of.size, of.align)?;
            ptr::copy_nonoverlapping(source, raw.pointer, len * of.size);
            raw.len = len;
            raw.initialised = raw.initialised.max(len);
        }
        Ok(())
    }

    /// Makes an optional present, with a value from an earlier use or the default.
    ///
    /// # Safety
    /// `optional` holds an optional of place `id`, which nothing else uses.
    pub(in crate::layout) unsafe fn make_present(&self, id: NodeId, optional: *mut u8) -> Result<*mut u8, OutOfMemory> {
        let What::Optional { inner, payload } = self.place(id).what else { return Err(OutOfMemory) };
        // SAFETY: `optional` is of place `id`: the caller's contract. The flag changes only after
        // the payload is initialised.
        unsafe {
            let value = optional.add(payload);
            if optional.read() == ABSENT {
                self.init(inner, value)?;
            }
            optional.write(PRESENT);
            Ok(value)
        }
    }

    /// # Safety
    /// `optional` holds an optional, which nothing else uses.
    pub(in crate::layout) unsafe fn make_absent(&self, optional: *mut u8) {
        // SAFETY: `optional` begins with its flag: the caller's contract. The payload stays
        // initialised.
        unsafe {
            if optional.read() == PRESENT {
                optional.write(SPARE);
            }
        }
    }

    /// Selects a case of a union. A case that was not selected before gets its default value.
    ///
    /// # Safety
    /// `union` holds a union of place `id`, which nothing else uses.
    pub(in crate::layout) unsafe fn select(
        &self,
        id: NodeId,
        union: *mut u8,
        discriminator: i64,
        case: Option<u32>,
    ) -> Result<*mut u8, OutOfMemory> {
        let What::Union { cases, .. } = &self.place(id).what else { return Err(OutOfMemory) };
        // SAFETY: `union` is a union of place `id`: the caller's contract.
        unsafe {
            let RawUnion { case: chosen, held, .. } = union.cast::<RawUnion>().read();
            let value = self.choose(id, union, discriminator, case)?;
            if let Some(new) = case.filter(|new| chosen != *new && held == *new) {
                self.reset(cases[new as usize], value)?;
            }
            Ok(value)
        }
    }

    /// Selects a case of a union like [`Plan::select`], but the value may be one from an earlier
    /// use.
    ///
    /// # Safety
    /// The same contract as [`Plan::select`].
    pub(super) unsafe fn choose(
        &self,
        id: NodeId,
        union: *mut u8,
        discriminator: i64,
        case: Option<u32>,
    ) -> Result<*mut u8, OutOfMemory> {
        let What::Union { cases, payload, .. } = &self.place(id).what else { return Err(OutOfMemory) };
        // SAFETY: `union` is a union of place `id`: the caller's contract. The front names a case
        // as selected or held only while the payload holds its value.
        unsafe {
            let front = &mut *union.cast::<RawUnion>();
            let value = union.add(*payload);
            if front.case != case.unwrap_or(NO_CASE) {
                front.case = NO_CASE;
                if let Some(new) = case {
                    self.hold(cases, front, value, new)?;
                    front.case = new;
                }
            }
            front.discriminator = discriminator;
            Ok(value)
        }
    }

    /// Makes the payload a value of case `new`: a default, unless it already holds one of that
    /// case.
    ///
    /// # Safety
    /// `cases`, `front` and `value` (the payload) belong to one union, and no case is selected.
    unsafe fn hold(&self, cases: &[NodeId], front: &mut RawUnion, value: *mut u8, new: u32) -> Result<(), OutOfMemory> {
        let node = *cases.get(new as usize).ok_or(OutOfMemory)?;
        // SAFETY: the payload has room for every case and holds a value of `front.held`: the
        // caller's contract.
        unsafe {
            if front.held == new {
                return Ok(());
            }
            if matches!(&self.place(node).what, What::Struct { fields } if fields.is_empty()) {
                return Ok(());
            }
            let old = mem::replace(&mut front.held, NO_CASE);
            if let Some(old) = cases.get(old as usize) {
                self.end(*old, value);
            }
            self.init(node, value)?;
            front.held = new;
            Ok(())
        }
    }

    /// Drops a held value whose case is not selected.
    ///
    /// # Safety
    /// `union` holds a union of place `id`, which nothing else uses.
    unsafe fn drop_held(&self, id: NodeId, union: *mut u8) {
        let What::Union { cases, payload, .. } = &self.place(id).what else { return };
        // SAFETY: `union` is a union of place `id`: the caller's contract. The front is cleared
        // before the held value is dropped.
        unsafe {
            let front = &mut *union.cast::<RawUnion>();
            if front.held == front.case {
                return;
            }
            if let Some(old) = cases.get(mem::replace(&mut front.held, NO_CASE) as usize) {
                self.end(*old, union.add(*payload));
            }
        }
    }

    /// # Safety
    /// `map` holds a map of place `id` with more than `i` initialised entries.
    pub(in crate::layout) unsafe fn entry(&self, id: NodeId, map: &RawMap, i: usize) -> *mut u8 {
        let stride = match self.place(id).what {
            What::Map { stride, .. } => stride,
            _ => 0,
        };
        // SAFETY: the map has more than `i` entries of this stride: the caller's contract.
        unsafe { map.entries.pointer.add(i * stride) }
    }

    /// # Safety
    /// `map` holds a map, which nothing else uses.
    pub(in crate::layout) unsafe fn clear_map(&self, map: *mut u8) {
        // SAFETY: `map` is a map: the caller's contract.
        let raw = unsafe { &mut *map.cast::<RawMap>() };
        raw.entries.len = 0;
        raw.index.clear();
    }

    /// Returns an entry after those in use, with default key and value.
    ///
    /// # Safety
    /// `map` holds a map of place `id`, which nothing else uses.
    pub(in crate::layout) unsafe fn spare_entry(&self, id: NodeId, map: *mut u8) -> Result<*mut u8, OutOfMemory> {
        let What::Map { key, value, value_at, stride, align } = self.place(id).what else { return Err(OutOfMemory) };
        // SAFETY: `map` is a map of place `id`: the caller's contract. The count is raised only
        // after the entry is initialised.
        unsafe {
            let raw = &mut *map.cast::<RawMap>();
            let i = raw.entries.len;
            raw.entries.reserve(i.checked_add(1).ok_or(OutOfMemory)?, stride, align)?;
            let entry = self.entry(id, raw, i);
            if i < raw.entries.initialised {
                self.reset(key, entry)?;
                self.reset(value, entry.add(value_at))?;
            } else {
                self.init(key, entry)?;
                self.init(value, entry.add(value_at)).inspect_err(|_| self.end(key, entry))?;
                raw.entries.initialised += 1;
            }
            Ok(entry)
        }
    }

    /// Inserts the entry that [`Plan::spare_entry`] returned into the map.
    ///
    /// # Safety
    /// The same contract as [`Plan::spare_entry`], and the map did not change since that call.
    pub(in crate::layout) unsafe fn insert_spare(&self, id: NodeId, map: *mut u8) -> Result<Inserted, OutOfMemory> {
        let What::Map { key, value, value_at, stride, .. } = self.place(id).what else { return Err(OutOfMemory) };
        let keys = self.place(key);
        // SAFETY: the caller upholds this function's contract; the index holds only numbers of
        // entries in use and of the spare one.
        unsafe {
            let raw = &mut *map.cast::<RawMap>();
            let spare = self.entry(id, raw, raw.entries.len);
            let number = u32::try_from(raw.entries.len).map_err(|_| OutOfMemory)?;
            let first = raw.entries.pointer;
            let at = |i: u32| first.add(i as usize * stride);
            if let Some(found) = sorted_runs::find(&raw.index, |i| compare_keys(keys, at(i), spare)) {
                // The old value is kept in the spare entry for reuse.
                ptr::swap_nonoverlapping(at(found).add(value_at), spare.add(value_at), self.place(value).size);
                return Ok(Inserted::Replaced);
            }
            sorted_runs::insert(&mut raw.index, number, |a, b| compare_keys(keys, at(a), at(b)))?;
            raw.entries.len += 1;
            Ok(Inserted::Yes)
        }
    }
}
