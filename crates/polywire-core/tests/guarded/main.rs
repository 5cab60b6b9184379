//! Nothing is read or written past its end: every block lies directly before an inaccessible page.
#![cfg(unix)]

mod backends;
mod programs;

use polywire_testing::guard::Guarding;

#[global_allocator]
static GUARDING: Guarding = Guarding;
