//! What encoding, decoding and compressing allocate: nothing in the steady state, never more than
//! the limits allow, and nothing that is not freed.

mod cdr;
mod compress;
mod json;
mod limits;
mod records;
mod steady;

use polywire_testing::allocator::TestAllocator;

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::counting();
