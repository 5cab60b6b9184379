//! Changing the values of records: what the access functions of their layouts do.

use alloc::sync::Arc;
use core::{mem, ptr};

use super::{ABSENT, NO_CASE, PRESENT, Plan, RawMap, RawSequence, RawUnion, SPARE, What, compare_keys, sorted_runs};
use crate::layout::{
    BoxedAccess, MapAccess, NodeId, OptionalAccess, OutOfMemory, SequenceAccess, UnionAccess,
    access::{Inserted, Selected},
};

/// The access functions of one place. Nothing here runs code of the user's, so nothing panics.
pub(super) struct Access {
    pub(super) plan: Arc<Plan>,
    pub(super) node: NodeId,
}

// SAFETY: sequences change as the plan does it, which keeps them valid.
unsafe impl SequenceAccess for Access {
    unsafe fn slice(&self, sequence: *const u8) -> (*const u8, usize) {
        // SAFETY: the caller hands in a live sequence of this place.
        let raw = unsafe { &*sequence.cast::<RawSequence>() };
        (raw.pointer, raw.len)
    }

    unsafe fn resize(&self, sequence: *mut u8, len: usize) -> Result<*mut u8, OutOfMemory> {
        // SAFETY: as above.
        unsafe { self.plan.lengthen(self.node, sequence, len) }
    }

    unsafe fn assign(&self, sequence: *mut u8, source: *const u8, len: usize) -> Result<(), OutOfMemory> {
        // SAFETY: as above.
        unsafe { self.plan.assign(self.node, sequence, source, len) }
    }

    unsafe fn release(&self, sequence: *mut u8) {
        // SAFETY: as above.
        unsafe { self.plan.empty(self.node, sequence) }
    }
}

// SAFETY: the flag says what the payload is.
unsafe impl OptionalAccess for Access {
    unsafe fn get(&self, optional: *const u8) -> *const u8 {
        // SAFETY: the caller hands in a live optional of this place.
        match (&self.plan.place(self.node).what, unsafe { optional.read() }) {
            // SAFETY: the payload lies inside.
            (What::Optional { payload, .. }, PRESENT) => unsafe { optional.add(*payload) },
            _ => ptr::null(),
        }
    }

    unsafe fn set_some(&self, optional: *mut u8) -> Result<*mut u8, OutOfMemory> {
        // SAFETY: as above.
        unsafe { self.plan.make_present(self.node, optional) }
    }

    unsafe fn set_none(&self, optional: *mut u8) {
        // SAFETY: as above.
        unsafe { self.plan.make_absent(optional) }
    }

    unsafe fn release(&self, optional: *mut u8) {
        // SAFETY: as above.
        unsafe { self.plan.empty(self.node, optional) }
    }
}

// SAFETY: the case says what the payload is.
unsafe impl UnionAccess for Access {
    unsafe fn get(&self, union: *const u8) -> Selected {
        // SAFETY: the caller hands in a live union of this place.
        let front = unsafe { union.cast::<RawUnion>().read() };
        let value = match &self.plan.place(self.node).what {
            // SAFETY: the payload lies inside.
            What::Union { payload, .. } => unsafe { union.add(*payload) },
            _ => union,
        };
        let case = Some(front.case).filter(|case| *case != NO_CASE);
        Selected { discriminator: front.discriminator, case, value }
    }

    unsafe fn select(&self, union: *mut u8, discriminator: i64, case: Option<u32>) -> Result<*mut u8, OutOfMemory> {
        // SAFETY: as above.
        unsafe { self.plan.choose(self.node, union, discriminator, case) }
    }

    unsafe fn release(&self, union: *mut u8) {
        // SAFETY: as above.
        unsafe { self.plan.let_go(self.node, union) }
    }
}

// SAFETY: entries change as the plan does it, which keeps them valid.
unsafe impl MapAccess for Access {
    unsafe fn len(&self, map: *const u8) -> usize {
        // SAFETY: the caller hands in a live map of this place.
        unsafe { &*map.cast::<RawMap>() }.entries.len
    }

    unsafe fn visit(&self, map: *const u8, visit: &mut dyn FnMut(*const u8, *const u8) -> bool) {
        let What::Map { value_at, .. } = self.plan.place(self.node).what else { return };
        // SAFETY: as above; so many entries are in use.
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
        // SAFETY: as above.
        unsafe { self.plan.clear_map(map) }
    }

    unsafe fn release(&self, map: *mut u8) {
        // SAFETY: as above.
        unsafe { self.plan.empty(self.node, map) }
    }

    unsafe fn insert(
        &self,
        map: *mut u8,
        fill: &mut dyn FnMut(*mut u8, *mut u8) -> bool,
    ) -> Result<Inserted, OutOfMemory> {
        let What::Map { value_at, .. } = self.plan.place(self.node).what else { return Err(OutOfMemory) };
        // SAFETY: as above.
        unsafe {
            let entry = self.plan.spare_entry(self.node, map)?;
            if !fill(entry, entry.add(value_at)) {
                return Ok(Inserted::Refused);
            }
            self.plan.insert_spare(self.node, map)
        }
    }
}

// SAFETY: a box always has a value once it is initialised.
unsafe impl BoxedAccess for Access {
    unsafe fn get(&self, boxed: *const u8) -> *const u8 {
        // SAFETY: the caller hands in a live box of this place.
        unsafe { boxed.cast::<*const u8>().read() }
    }

    unsafe fn get_mut(&self, boxed: *mut u8) -> *mut u8 {
        // SAFETY: as above.
        unsafe { boxed.cast::<*mut u8>().read() }
    }
}

impl Plan {
    /// Makes a sequence `len` elements long, new ones with their defaults.
    ///
    /// # Safety
    /// `sequence` holds a sequence of place `id`, which nobody else uses.
    pub(in crate::layout) unsafe fn resize(
        &self,
        id: NodeId,
        sequence: *mut u8,
        len: usize,
    ) -> Result<*mut u8, OutOfMemory> {
        let What::Sequence { element } = self.place(id).what else { return Err(OutOfMemory) };
        let size = self.place(element).size;
        // SAFETY: as the caller promises; so many elements are initialised.
        unsafe {
            let (old, spare) = {
                let raw = &*sequence.cast::<RawSequence>();
                (raw.len, raw.initialised)
            };
            let first = self.lengthen(id, sequence, len)?;
            (old..len.min(spare)).try_for_each(|i| self.reset(element, first.add(i * size)))?;
            Ok(first)
        }
    }

    /// The same, where new elements may as well be what they once were.
    ///
    /// # Safety
    /// As of [`Plan::resize`].
    pub(super) unsafe fn lengthen(&self, id: NodeId, sequence: *mut u8, len: usize) -> Result<*mut u8, OutOfMemory> {
        let What::Sequence { element } = self.place(id).what else { return Err(OutOfMemory) };
        let of = self.place(element);
        // SAFETY: as the caller promises; the count is raised when an element is there.
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
    /// As of [`Plan::resize`]; elements are plain bytes, and `len` valid ones lie at `source`,
    /// outside the sequence.
    pub(in crate::layout) unsafe fn assign(
        &self,
        id: NodeId,
        sequence: *mut u8,
        source: *const u8,
        len: usize,
    ) -> Result<(), OutOfMemory> {
        let What::Sequence { element } = self.place(id).what else { return Err(OutOfMemory) };
        let of = self.place(element);
        // SAFETY: as the caller promises; there is room for what is copied.
        unsafe {
            let raw = &mut *sequence.cast::<RawSequence>();
            raw.reserve(len, of.size, of.align)?;
            ptr::copy_nonoverlapping(source, raw.pointer, len * of.size);
            raw.len = len;
            raw.initialised = raw.initialised.max(len);
        }
        Ok(())
    }

    /// Makes an optional present, with the value it once had or a fresh one.
    ///
    /// # Safety
    /// `optional` holds an optional of place `id`, which nobody else uses.
    pub(in crate::layout) unsafe fn make_present(&self, id: NodeId, optional: *mut u8) -> Result<*mut u8, OutOfMemory> {
        let What::Optional { inner, payload } = self.place(id).what else { return Err(OutOfMemory) };
        // SAFETY: as the caller promises; the flag changes when the payload is there.
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
    /// `optional` holds an optional, which nobody else uses.
    pub(in crate::layout) unsafe fn make_absent(&self, optional: *mut u8) {
        // SAFETY: as the caller promises; what is initialised stays so.
        unsafe {
            if optional.read() == PRESENT {
                optional.write(SPARE);
            }
        }
    }

    /// Selects a case of a union, with its default if it was another.
    ///
    /// # Safety
    /// `union` holds a union of place `id`, which nobody else uses.
    pub(in crate::layout) unsafe fn select(
        &self,
        id: NodeId,
        union: *mut u8,
        discriminator: i64,
        case: Option<u32>,
    ) -> Result<*mut u8, OutOfMemory> {
        let What::Union { cases, .. } = &self.place(id).what else { return Err(OutOfMemory) };
        // SAFETY: as the caller promises.
        unsafe {
            let RawUnion { case: chosen, held, .. } = union.cast::<RawUnion>().read();
            let value = self.choose(id, union, discriminator, case)?;
            if let Some(new) = case.filter(|new| chosen != *new && held == *new) {
                self.reset(cases[new as usize], value)?;
            }
            Ok(value)
        }
    }

    /// The same, where the case's value may as well be what it once was.
    ///
    /// # Safety
    /// As of [`Plan::select`].
    pub(super) unsafe fn choose(
        &self,
        id: NodeId,
        union: *mut u8,
        discriminator: i64,
        case: Option<u32>,
    ) -> Result<*mut u8, OutOfMemory> {
        let What::Union { cases, payload, .. } = &self.place(id).what else { return Err(OutOfMemory) };
        // SAFETY: as the caller promises; the front says of no case that it is chosen or held
        // unless its value is there.
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

    /// Makes a union's payload a value of a case: a fresh one, unless it is of that case already.
    ///
    /// # Safety
    /// The union has these cases, front and payload, and no case is chosen.
    unsafe fn hold(&self, cases: &[NodeId], front: &mut RawUnion, value: *mut u8, new: u32) -> Result<(), OutOfMemory> {
        let node = *cases.get(new as usize).ok_or(OutOfMemory)?;
        // SAFETY: as the caller promises.
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

    /// Ends a value of a case that is not chosen.
    ///
    /// # Safety
    /// `union` holds a union of place `id`, which nobody else uses.
    unsafe fn let_go(&self, id: NodeId, union: *mut u8) {
        let What::Union { cases, payload, .. } = &self.place(id).what else { return };
        // SAFETY: as the caller promises; the front says that nothing is held before what is held
        // ends.
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
        // SAFETY: as the caller promises.
        unsafe { map.entries.pointer.add(i * stride) }
    }

    /// # Safety
    /// `map` holds a map, which nobody else uses.
    pub(in crate::layout) unsafe fn clear_map(&self, map: *mut u8) {
        // SAFETY: as the caller promises.
        let raw = unsafe { &mut *map.cast::<RawMap>() };
        raw.entries.len = 0;
        raw.index.clear();
    }

    /// An entry behind those in use, fresh.
    ///
    /// # Safety
    /// `map` holds a map of place `id`, which nobody else uses.
    pub(in crate::layout) unsafe fn spare_entry(&self, id: NodeId, map: *mut u8) -> Result<*mut u8, OutOfMemory> {
        let What::Map { key, value, value_at, stride, align } = self.place(id).what else { return Err(OutOfMemory) };
        // SAFETY: as the caller promises; the count is raised when the entry is there.
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

    /// Takes the entry that [`Plan::spare_entry`] gave into the map.
    ///
    /// # Safety
    /// As there, and nothing happened to the map since.
    pub(in crate::layout) unsafe fn insert_spare(&self, id: NodeId, map: *mut u8) -> Result<Inserted, OutOfMemory> {
        let What::Map { key, value, value_at, stride, .. } = self.place(id).what else { return Err(OutOfMemory) };
        let keys = self.place(key);
        // SAFETY: as the caller promises; the index holds numbers of entries in use, and of the
        // spare one.
        unsafe {
            let raw = &mut *map.cast::<RawMap>();
            let spare = self.entry(id, raw, raw.entries.len);
            let number = u32::try_from(raw.entries.len).map_err(|_| OutOfMemory)?;
            let first = raw.entries.pointer;
            let at = |i: u32| first.add(i as usize * stride);
            if let Some(found) = sorted_runs::find(&raw.index, |i| compare_keys(keys, at(i), spare)) {
                // The old value waits in the spare entry for its next use.
                ptr::swap_nonoverlapping(at(found).add(value_at), spare.add(value_at), self.place(value).size);
                return Ok(Inserted::Replaced);
            }
            sorted_runs::insert(&mut raw.index, number, |a, b| compare_keys(keys, at(a), at(b)))?;
            raw.entries.len += 1;
            Ok(Inserted::Yes)
        }
    }
}
