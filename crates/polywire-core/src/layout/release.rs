//! Values that give back what they keep.
//!
//! A value that is decoded into again and again keeps the memory of what it once held: that is why
//! steady messages need no allocation. Each message is held to its limits, but many different ones
//! could make a value grow without end. So a decoder counts what messages ask for, and when that is
//! more than a single message may have, the value that it is given next gives its memory back
//! before it is decoded into.

use alloc::string::String;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::{Kind, Layout, NodeId, SharedStr};

/// Bytes that the values of a decoder have grown by since one of them gave its memory back. A copy
/// of a decoder counts for itself.
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

    /// A value has grown. Of two that do so at once one may be lost, which matters to nobody.
    #[cold]
    pub(crate) fn add(&self, bytes: usize) {
        self.0.store(self.bytes().saturating_add(bytes), Ordering::Relaxed);
    }

    /// A value has given its memory back.
    #[cold]
    pub(crate) fn begin_anew(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Layout {
    /// Gives back what a value keeps, but for what it cannot be without. It is valid then, and
    /// another value.
    ///
    /// # Safety
    /// `value` is a live value of the layout, which nobody else refers to.
    #[cold]
    pub(crate) unsafe fn release(&self, value: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { self.release_node(self.root(), value) };
    }

    /// # Safety
    /// At `at` is a live value of the node, which nobody else refers to.
    unsafe fn release_node(&self, id: NodeId, at: *mut u8) {
        // SAFETY: as the caller promises; what is inside is of the nodes that the layout says,
        // where it says.
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
