//! An allocator that puts each block right before a page that cannot be touched. A test file makes
//! it its global one.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// While a thread asks for it, each of its allocations lies at the end of pages of its own.
pub struct Guarding;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Address space for what is guarded. It is handed out once, so that what is freed stays out of
/// bounds.
static START: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);
const ARENA: usize = 1 << 38;
pub const PAGE: usize = 4096;

/// Reserves the address space. Any thread may come first.
fn arena() -> usize {
    let start = START.load(Relaxed);
    if start != 0 {
        return start;
    }
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: it is new address space that nobody else uses.
    let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), ARENA, ProtFlags::empty(), flags) };
    let mapped = mapped.map_or(usize::MAX, |at| at as usize);
    match START.compare_exchange(0, mapped, Relaxed, Relaxed) {
        Ok(_) => mapped,
        Err(first) => first,
    }
}

pub fn is_guarded(at: *mut u8) -> bool {
    let start = START.load(Relaxed);
    start != 0 && (start..start.saturating_add(ARENA)).contains(&(at as usize))
}

// SAFETY: blocks are disjoint, aligned and large enough; what is not guarded is the system's.
unsafe impl GlobalAlloc for Guarding {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !GUARDED.try_with(Cell::get).unwrap_or(false) || layout.align() > PAGE {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc(layout) };
        }
        let pages = layout.size().div_ceil(PAGE) * PAGE;
        let used = USED.fetch_add(pages + PAGE, Relaxed);
        if used + pages > ARENA {
            // A very long run has used it all up.
            // SAFETY: as the caller promises.
            return unsafe { System.alloc(layout) };
        }
        let first = arena() + used;
        // SAFETY: the pages are in the arena and were given to nobody before.
        if unsafe { mprotect(first as *mut _, pages, MprotectFlags::READ | MprotectFlags::WRITE) }.is_err() {
            return std::ptr::null_mut();
        }
        ((first + pages - layout.size()) & !(layout.align() - 1)) as *mut u8
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_guarded(block) {
            // SAFETY: as the caller promises.
            return unsafe { System.dealloc(block, layout) };
        }
        let first = block as usize & !(PAGE - 1);
        let pages = layout.size().div_ceil(PAGE) * PAGE;
        // New pages in their place, not the same ones closed: the system would keep count of each
        // of those for ever.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: these are the block's own pages.
        let closed = unsafe { mmap_anonymous(first as *mut _, pages, ProtFlags::empty(), flags) };
        assert!(closed.is_ok(), "pages cannot be closed");
    }
}

/// Runs with every allocation guarded.
pub fn guarded<R>(run: impl FnOnce() -> R) -> R {
    GUARDED.set(true);
    let result = run();
    GUARDED.set(false);
    result
}

/// A copy that ends where the page does.
pub fn exact(bytes: &[u8]) -> Box<[u8]> {
    guarded(|| bytes.into())
}
