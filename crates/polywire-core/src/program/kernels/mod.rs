//! The hot loops of the formats: number text, tokenisers of JSON and XML, bytes as text. Codecs
//! build their kernels from them.
//!
//! They work on [`Input`](super::Input) and [`Output`](super::Output), whose bytes they may touch
//! without bounds checks where the code says why that is safe. None panics on any bytes.

pub(crate) mod base64;
pub(crate) mod float;
pub(crate) mod json;
pub(crate) mod number;
pub(crate) mod scalar;
pub(crate) mod scan;
pub(crate) mod xml;

/// Copies to `to`, without a call for what is short.
///
/// # Safety
/// There is room for as many bytes, and no overlap.
#[inline]
unsafe fn copy_short(from: &[u8], to: *mut u8) {
    let (len, from) = (from.len(), from.as_ptr());
    // SAFETY: each read and write lies within the first `len` bytes.
    unsafe {
        match len {
            0 => {}
            1..4 => {
                *to = *from;
                *to.add(len / 2) = *from.add(len / 2);
                *to.add(len - 1) = *from.add(len - 1);
            }
            4..8 => {
                let (head, tail) =
                    (from.cast::<u32>().read_unaligned(), from.add(len - 4).cast::<u32>().read_unaligned());
                to.cast::<u32>().write_unaligned(head);
                to.add(len - 4).cast::<u32>().write_unaligned(tail);
            }
            8..17 => {
                let (head, tail) =
                    (from.cast::<u64>().read_unaligned(), from.add(len - 8).cast::<u64>().read_unaligned());
                to.cast::<u64>().write_unaligned(head);
                to.add(len - 8).cast::<u64>().write_unaligned(tail);
            }
            _ => core::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}
