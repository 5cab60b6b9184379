//! Limits the memory that reused values keep.
//!
//! A value that is decoded into repeatedly keeps the memory of its earlier contents, so that a
//! steady sequence of messages needs no allocations. Limits hold for each message, but many
//! different messages could together make a value grow without end. Therefore each decoder counts
//! the bytes by which its messages made values grow ([`Growth`]). Once the sum exceeds the limit of
//! a single message, the next value passed to the decoder frees its memory before it is decoded
//! into ([`Layout::release`]).

use alloc::string::String;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::{Kind, Layout, NodeId, SharedStr};

/// Bytes by which a decoder's values have grown since one of them last freed its memory. A clone of
/// a decoder has a count of its own.
#[derive(Debug, Default)]
pub(crate) struct Growth(AtomicUsize);

impl Clone for Growth {
    fn clone(&self) -> Growth {
        Growth::default()
    }
}

impl Growth {
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds growth. If two threads add at the same time, one of the additions may be lost; the
    /// count is only an estimate.
    #[cold]
    pub(crate) fn add(&self, bytes: usize) {
        self.0.store(self.bytes().saturating_add(bytes), Ordering::Relaxed);
    }

    /// Starts again from zero, after a value freed its memory.
    #[cold]
    pub(crate) fn begin_anew(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Layout {
    /// Frees the memory that a value keeps, except for mandatory parts. The value stays valid, but
    /// its contents change.
    ///
    /// # Safety
    /// `value` is a live value of the layout, which nothing else refers to.
    #[cold]
    pub(crate) unsafe fn release(&self, value: *mut u8) {
        // SAFETY: `value` is a live value of the root: the caller's contract.
        unsafe { self.release_node(self.root(), value) };
    }

    /// # Safety
    /// `at` points to a live value of the node, which nothing else refers to.
    unsafe fn release_node(&self, id: NodeId, at: *mut u8) {
        // SAFETY: `at` points to a live value of the node: the caller's contract. The layout says
        // which nodes lie inside it and where.
        unsafe {
            match &self.node(id).kind {
                Kind::Scalar(_) | Kind::Enum(_) => {}
                Kind::String { shared: true, .. } => *at.cast::<SharedStr>() = SharedStr::default(),
                Kind::String { .. } => *at.cast::<String>() = String::new(),
                Kind::Sequence(sequence) => sequence.access.release(at),
                Kind::Array { element, .. } if matches!(self.node(*element).kind, Kind::Scalar(_) | Kind::Enum(_)) => {}
                Kind::Array { element, len } => {
                    let stride = self.node(*element).size as usize;
                    (0..*len as usize).for_each(|i| self.release_node(*element, at.add(i * stride)));
                }
                Kind::Struct { fields } => {
                    fields.iter().for_each(|field| self.release_node(field.node, at.add(field.offset as usize)));
                }
                Kind::Optional(optional) => optional.access.release(at),
                Kind::Map(map) => map.access.release(at),
                Kind::Boxed(boxed) => self.release_node(boxed.inner, boxed.access.get_mut(at)),
                Kind::Union(union) => {
                    union.access.release(at);
                    let chosen = union.access.get(at);
                    let case = chosen.case.and_then(|case| union.cases.get(case as usize));
                    if let (Some(node), Ok(value)) = (case, union.access.select(at, chosen.discriminator, chosen.case))
                    {
                        self.release_node(*node, value);
                    }
                }
            }
        }
    }
}
