//! A global allocator for test binaries. It uses the system's allocator and counts the requests of
//! each thread. It can also fill new memory with a pattern, and refuse requests on demand.
//!
//! A test binary declares it with `#[global_allocator]`, and then reads the counts of its own
//! thread:
//!
//! ```
//! use polywire_testing::allocator::{Counts, TestAllocator};
//!
//! #[global_allocator]
//! static ALLOCATOR: TestAllocator = TestAllocator::counting();
//!
//! let before = Counts::of_this_thread();
//! let kept = std::hint::black_box(vec![0u8; 100]);
//! let now = Counts::of_this_thread();
//! assert_eq!(now.requests - before.requests, 1);
//! assert_eq!(now.held_bytes - before.held_bytes, 100);
//! ```

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// The byte with which [`TestAllocator::filling`] fills new memory. No test uses the number that
/// four or eight of these bytes make, so a value with this number was never written.
pub const PATTERN: u8 = 0xA5;

/// The allocator. Its counts are per thread, because the test runner allocates on other threads
/// during a test.
pub struct TestAllocator {
    fills: bool,
}

impl TestAllocator {
    /// An allocator that counts.
    pub const fn counting() -> Self {
        TestAllocator { fills: false }
    }

    /// An allocator that counts and fills new memory with [`PATTERN`].
    pub const fn filling() -> Self {
        TestAllocator { fills: true }
    }

    /// Fills `size` bytes from `offset` on, if this allocator fills.
    ///
    /// # Safety
    /// `block` is null, or a block of at least `offset + size` bytes.
    unsafe fn fill(&self, block: *mut u8, offset: usize, size: usize) {
        if self.fills && !block.is_null() {
            // SAFETY: the caller guarantees that the bytes are within the block.
            unsafe { block.add(offset).write_bytes(PATTERN, size) }
        }
    }
}

/// A thread's requests to the [`TestAllocator`] since the thread started.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Calls that allocate, resize or free memory.
    pub requests: usize,
    /// Bytes of all allocations, and the new sizes of resized blocks. Freeing does not lower it.
    pub requested_bytes: usize,
    /// Bytes that are allocated now. Negative if the thread freed what another one allocated.
    pub held_bytes: isize,
    /// The largest `held_bytes` so far, or since [`peak_of`] began. Resizing counts the old and the
    /// new block as held at once.
    pub peak_bytes: isize,
    /// Blocks that are allocated now.
    pub held_blocks: isize,
}

thread_local! {
    static COUNTS: Cell<Counts> = const {
        Cell::new(Counts { requests: 0, requested_bytes: 0, held_bytes: 0, peak_bytes: 0, held_blocks: 0 })
    };
    /// The number of requests that are still granted while `REFUSES` is set.
    static GRANTED: Cell<usize> = const { Cell::new(usize::MAX) };
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

impl Counts {
    /// The counts of the calling thread.
    pub fn of_this_thread() -> Counts {
        COUNTS.get()
    }

    fn update(change: impl FnOnce(&mut Counts)) {
        let mut counts = COUNTS.get();
        change(&mut counts);
        counts.peak_bytes = counts.peak_bytes.max(counts.held_bytes);
        COUNTS.set(counts);
    }

    fn allocate(&mut self, size: usize) {
        self.requested_bytes += size;
        self.held_bytes += size as isize;
    }
}

/// The number of requests that `run` makes on this thread: allocations, resizings and frees.
pub fn requests_of(run: impl FnOnce()) -> usize {
    let before = COUNTS.get().requests;
    run();
    COUNTS.get().requests - before
}

/// The bytes that `run` requests on this thread, whether or not it frees them.
pub fn bytes_requested_by(run: impl FnOnce()) -> usize {
    let before = COUNTS.get().requested_bytes;
    run();
    COUNTS.get().requested_bytes - before
}

/// The peak of the bytes that this thread holds while `run` runs, minus the bytes that it held
/// before.
pub fn peak_of(run: impl FnOnce()) -> usize {
    let before = COUNTS.get().held_bytes;
    Counts::update(|counts| counts.peak_bytes = before);
    run();
    (COUNTS.get().peak_bytes - before) as usize
}

/// Grants this thread `requests` further requests inside [`refusable`]; later ones fail.
/// `usize::MAX` stands for no limit.
pub fn grant(requests: usize) {
    GRANTED.set(requests);
}

/// Runs code that must cope with refused requests. Everywhere else requests are granted.
pub fn refusable<R>(run: impl FnOnce() -> R) -> R {
    with_refusals(true, run)
}

/// Inside [`refusable`], runs code whose requests are granted all the same.
pub fn irrefusable<R>(run: impl FnOnce() -> R) -> R {
    with_refusals(false, run)
}

fn with_refusals<R>(refuses: bool, run: impl FnOnce() -> R) -> R {
    let before = REFUSES.replace(refuses);
    let result = run();
    REFUSES.set(before);
    result
}

fn is_refused() -> bool {
    if !REFUSES.get() {
        return false;
    }
    let left = GRANTED.get();
    if left != usize::MAX {
        GRANTED.set(left.saturating_sub(1));
    }
    left == 0
}

// SAFETY: every block comes from the system's allocator. The counts are in thread-local cells with
// constant initial values and no destructors, so using them does not allocate.
unsafe impl GlobalAlloc for TestAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused() {
            return std::ptr::null_mut();
        }
        Counts::update(|counts| {
            counts.requests += 1;
            counts.held_blocks += 1;
            counts.allocate(layout.size());
        });
        // SAFETY: the caller gives a layout whose size is not zero, and the block has that size.
        unsafe {
            let block = System.alloc(layout);
            self.fill(block, 0, layout.size());
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        Counts::update(|counts| {
            counts.requests += 1;
            counts.held_blocks -= 1;
            counts.held_bytes -= layout.size() as isize;
        });
        // SAFETY: the block came from `alloc` or `realloc`, hence from the system's allocator, with
        // this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_refused() {
            return std::ptr::null_mut();
        }
        // Two steps, so that the peak includes both blocks.
        Counts::update(|counts| {
            counts.requests += 1;
            counts.allocate(size);
        });
        Counts::update(|counts| counts.held_bytes -= layout.size() as isize);
        // SAFETY: the block came from the system's allocator with this layout, and the caller gives
        // a size that is not zero. The new block has `size` bytes.
        unsafe {
            let moved = System.realloc(block, layout, size);
            self.fill(moved, layout.size().min(size), size.saturating_sub(layout.size()));
            moved
        }
    }
}
