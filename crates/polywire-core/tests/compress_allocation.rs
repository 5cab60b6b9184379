//! What packs and unpacks keeps its memory: once it has seen messages of a size, further ones cost
//! no allocation. bzip2 alone is left out: its library's state serves one message.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use polywire_core::compress::{COMPRESSORS, Limits, Packer, Settings, Unpacker};

/// Counts each request of a thread.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = REQUESTS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let _ = REQUESTS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[test]
fn warm_packers_and_unpackers_do_not_allocate() {
    let messages: Vec<Vec<u8>> = (1..40usize)
        .map(|i| {
            format!("{{\"station\":\"EDD{i}\",\"temperature_c\":{}.5}}", i * 7 % 40).repeat(1 + i * i % 90).into_bytes()
        })
        .chain([vec![7; 200_000], (0..=255).collect()])
        .collect();
    for compressor in COMPRESSORS.iter().filter(|compressor| compressor.name() != "bzip2") {
        for dictionary in [&[][..], b"{\"station\":\"EDD\",\"temperature_c\":.5}"] {
            if !dictionary.is_empty() && !compressor.properties().dictionary {
                continue;
            }
            let mut packer = Packer::new(*compressor, &Settings::default(), dictionary).expect("a state");
            let mut unpacker = Unpacker::new(*compressor, dictionary, Limits::default()).expect("a state");
            let mut packed = Vec::new();
            let mut all = || {
                for message in &messages {
                    packed.clear();
                    packer.pack(message, &mut packed);
                    assert!(unpacker.unpack(&packed) == Ok(message), "{}", compressor.name());
                }
            };
            all();
            let before = REQUESTS.get();
            all();
            assert_eq!(REQUESTS.get(), before, "{}", compressor.name());
        }
    }
}
