//! Nothing is read or written past its end: every allocation, a message, a buffer, a value, a string, lies right before a page that
//! cannot be touched, and what is freed cannot be touched either.
#![cfg(unix)]

mod common;

use common::{
    Wire, backends,
    derived::{Everything, random_message},
    mutated, plain_wires, random_record, seeds, wires,
};
use polywire_core::{
    codec::{Decoder, DynDecoder, DynEncoder, Encoder},
    layout::{Message, Record, Shape},
    program::Backend,
    schema::arbitrary::{Random, random_schema},
};
use polywire_derive::Message;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// While a thread asks for it, each of its allocations lies at the end of pages of its own.
struct Guarding;

#[global_allocator]
static GUARDING: Guarding = Guarding;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Address space for what is guarded. It is handed out once, so that what is freed stays out of bounds.
static START: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);
const ARENA: usize = 1 << 37;
const PAGE: usize = 4096;

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

fn is_guarded(at: *mut u8) -> bool {
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
        let first = arena() + USED.fetch_add(pages + PAGE, Relaxed);
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
        // New pages in their place, not the same ones closed: the system would keep count of each of those for ever.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: these are the block's own pages.
        let closed = unsafe { mmap_anonymous(first as *mut _, pages, ProtFlags::empty(), flags) };
        assert!(closed.is_ok(), "pages cannot be closed");
    }
}

/// Runs with every allocation guarded.
fn guarded<R>(run: impl FnOnce() -> R) -> R {
    GUARDED.set(true);
    let result = run();
    GUARDED.set(false);
    result
}

/// A copy that ends where the page does.
fn exact(bytes: &[u8]) -> Box<[u8]> {
    guarded(|| bytes.into())
}

#[test]
fn guards_are_in_place() {
    let bytes = exact(b"12345");
    assert!(is_guarded(bytes.as_ptr().cast_mut()));
    assert_eq!((bytes.as_ptr() as usize + 5) % PAGE, 0);
}

#[derive(Message, Debug, Clone, PartialEq)]
struct Texts {
    first: String,
    flag: bool,
    second: String,
    number: u16,
    third: String,
}

/// Strings of every length, in buffers as long as they are, into outputs that have just enough room, or less.
#[test]
fn strings_of_every_length_at_the_end_of_a_page() {
    for wire in plain_wires() {
        let coders: Vec<_> = backends().into_iter().map(|b| coder::<Texts>(&wire, b)).collect();
        for len in 0..41 {
            let text = |len| guarded(|| "x".repeat(len).into_boxed_str().into_string());
            let value = guarded(|| {
                Box::new(Texts {
                    first: text(len),
                    flag: true,
                    second: text(40 - len),
                    number: 7,
                    third: text(len / 2),
                })
            });
            for (encoder, decoder) in &coders {
                let mut message = Vec::new();
                encoder.encode(&value, &mut message).unwrap();
                for room in (0..message.len() + 40).step_by(3).chain([message.len()]) {
                    let same = guarded(|| {
                        let mut out = Vec::with_capacity(room);
                        encoder.encode(&value, &mut out).unwrap();
                        out == message
                    });
                    assert!(same, "{wire:?}, length {len}, room {room}");
                }
                // Over strings that have just the capacity, more, or none.
                for capacity in [0, len, 16, 17, 40] {
                    let input = exact(&message);
                    let same = guarded(|| {
                        let string = || String::with_capacity(capacity);
                        let mut back = Box::new(Texts {
                            first: string(),
                            flag: false,
                            second: string(),
                            number: 0,
                            third: string(),
                        });
                        decoder.decode(&input, &mut back).unwrap();
                        *back == *value
                    });
                    assert!(same, "{wire:?}, length {len}, capacity {capacity}");
                }
                for cut in 0..message.len() {
                    let input = exact(&message[..cut]);
                    let mut back = guarded(|| value.clone());
                    assert!(guarded(|| decoder.decode(&input, &mut back)).is_err(), "{wire:?}, cut to {cut}");
                    guarded(|| drop((back, input)));
                }
            }
        }
    }
}

fn coder<T: Message>(wire: &Wire, backend: Backend) -> (Encoder<T>, Decoder<T>) {
    let encoder = Encoder::with_backend(wire.codec, &wire.options, backend).unwrap();
    let decoder = Decoder::with_backend(wire.codec, &wire.options, T::shape().schema(), backend).unwrap();
    (encoder, decoder)
}

#[test]
fn derived_values_between_guards() {
    for wire in wires() {
        for backend in backends() {
            let (encoder, decoder) = coder::<Everything>(&wire, backend);
            let mut random = Random::new(3);
            for _ in 0..2 {
                let value: Everything = random_message(&mut random);
                let mut message = Vec::new();
                encoder.encode(&value, &mut message).unwrap();
                guarded(|| {
                    // In memory of its own, and so is all that it points to.
                    let copy = Box::new(value.clone());
                    let mut out = Vec::with_capacity(message.len());
                    encoder.encode(&copy, &mut out).unwrap();
                    assert_eq!(out, message);
                });
                for round in 0..30 {
                    let bad = if round > 0 { mutated(&mut random, &message) } else { message.clone() };
                    let input = exact(&bad);
                    guarded(|| {
                        let mut over = Box::new(value.clone());
                        let outcome = decoder.decode(&input, &mut over);
                        assert!(round > 0 || outcome.is_ok());
                        let mut again = Vec::new();
                        let _ = encoder.encode(&over, &mut again);
                        drop((over, input));
                    });
                }
            }
        }
    }
}

#[test]
fn records_between_guards() {
    for seed in seeds(10) {
        let Ok(shape) = Shape::of(&random_schema(seed, 8)) else { continue };
        for wire in plain_wires() {
            for backend in backends() {
                let Ok(encoder) = DynEncoder::with_backend(wire.codec, &wire.options, &shape, backend) else {
                    continue;
                };
                let decoder = DynDecoder::with_backend(wire.codec, &wire.options, shape.schema(), &shape, backend);
                let decoder = decoder.unwrap();
                let mut random = Random::new(seed);
                let mut message = Vec::new();
                let record = guarded(|| random_record(&mut random, &shape));
                if encoder.encode(&record, &mut message).is_err() {
                    continue;
                }
                let out = guarded(|| {
                    let mut out = Vec::with_capacity(message.len());
                    encoder.encode(&record, &mut out).unwrap();
                    out
                });
                assert_eq!(out, message);
                for round in 0..20 {
                    let bad = if round > 0 { mutated(&mut random, &message) } else { message.clone() };
                    let input = exact(&bad);
                    guarded(|| {
                        let mut over = Record::new(&shape);
                        let outcome = decoder.decode(&input, &mut over);
                        assert!(round > 0 || outcome.is_ok());
                        let _ = decoder.decode(&input, &mut over);
                        drop((over, input));
                    });
                }
                guarded(|| drop((record, out)));
            }
        }
    }
}
