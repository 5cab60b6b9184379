//! A global allocator for test binaries that puts each block directly before a page that cannot be
//! accessed, so that an access past the end of a block crashes. A test binary declares it with
//! `#[global_allocator]`.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// The allocator. Inside [`guarded`], each block lies at the end of its own pages. Elsewhere,
/// blocks come from the system's allocator.
pub struct Guarding;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// The start of the address space for guarded blocks, or 0 before it is reserved. No part of it is
/// used twice, so a freed block stays inaccessible.
static START: AtomicUsize = AtomicUsize::new(0);
/// The number of bytes used from [`START`] on.
static USED: AtomicUsize = AtomicUsize::new(0);
/// The size of the address space in bytes.
const ARENA: usize = 1 << 38;
/// The size of a page in bytes.
pub const PAGE: usize = 4096;

/// The start of the address space, which the first caller reserves.
fn arena() -> usize {
    let start = START.load(Relaxed);
    if start != 0 {
        return start;
    }
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: the kernel chooses the address, so the mapping replaces no other one.
    let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), ARENA, ProtFlags::empty(), flags) };
    let mapped = mapped.map_or(usize::MAX, |at| at as usize);
    match START.compare_exchange(0, mapped, Relaxed, Relaxed) {
        Ok(_) => mapped,
        Err(first) => first,
    }
}

/// Whether a block was allocated inside [`guarded`].
pub fn is_guarded(at: *mut u8) -> bool {
    let start = START.load(Relaxed);
    start != 0 && (start..start.saturating_add(ARENA)).contains(&(at as usize))
}

// SAFETY: guarded blocks are disjoint, aligned and large enough. All others come from the system's
// allocator.
unsafe impl GlobalAlloc for Guarding {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !GUARDED.try_with(Cell::get).unwrap_or(false) || layout.align() > PAGE {
            // SAFETY: the caller gives a layout whose size is not zero.
            return unsafe { System.alloc(layout) };
        }
        let pages = layout.size().div_ceil(PAGE) * PAGE;
        let used = USED.fetch_add(pages + PAGE, Relaxed);
        if used + pages > ARENA {
            // A very long run has used up the address space.
            // SAFETY: the caller gives a layout whose size is not zero.
            return unsafe { System.alloc(layout) };
        }
        let first = arena() + used;
        // SAFETY: the pages lie in the arena, and `USED` hands out each page once.
        if unsafe { mprotect(first as *mut _, pages, MprotectFlags::READ | MprotectFlags::WRITE) }.is_err() {
            return std::ptr::null_mut();
        }
        ((first + pages - layout.size()) & !(layout.align() - 1)) as *mut u8
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_guarded(block) {
            // SAFETY: a block outside the arena came from the system's allocator, with this layout.
            return unsafe { System.dealloc(block, layout) };
        }
        let first = block as usize & !(PAGE - 1);
        let pages = layout.size().div_ceil(PAGE) * PAGE;
        // The pages are mapped anew instead of made inaccessible: the kernel keeps a record of each
        // range whose protection changed.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the pages belong to this block alone, and the caller no longer uses it.
        let closed = unsafe { mmap_anonymous(first as *mut _, pages, ProtFlags::empty(), flags) };
        assert!(closed.is_ok(), "the pages of a freed block cannot be made inaccessible");
    }
}

/// Waits until no other test of this program has the lock that this returns. Each block changes the
/// mappings of the whole process, so tests with many blocks take less time one after the other.
pub fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs code whose allocations, on this thread, are all guarded.
pub fn guarded<R>(run: impl FnOnce() -> R) -> R {
    GUARDED.set(true);
    let result = run();
    GUARDED.set(false);
    result
}

/// A guarded copy of the bytes, which ends at the end of a page.
pub fn exact(bytes: &[u8]) -> Box<[u8]> {
    guarded(|| bytes.into())
}
