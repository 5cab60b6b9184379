//! [`SharedStr`] and [`SharedBytes`]: strings and octets that can be parts of a received message.
//! They are decoded without a copy and keep the message in memory.
//!
//! ```
//! use polywire_core::codec::{self, Decoder, Encoder, Options};
//! use polywire_core::layout::{SharedBytes, SharedStr};
//! # use polywire_core as polywire;
//!
//! #[derive(Default, Debug, PartialEq, polywire_derive::Message)]
//! struct Picture { title: SharedStr, pixels: SharedBytes }
//!
//! let cdr = codec::find("cdr").unwrap();
//! let encoder = Encoder::<Picture>::new(cdr, &Options::default()).unwrap();
//! let mut bytes = Vec::new();
//! encoder.encode(&Picture { title: "sky".into(), pixels: vec![7; 1000].into() }, &mut bytes).unwrap();
//!
//! let message = SharedBytes::from(bytes).into_shared();
//! let decoder = Decoder::<Picture>::new(cdr, &Options::default(), encoder.schema()).unwrap();
//! let mut picture = Picture::default();
//! decoder.decode_shared(&message, &mut picture).unwrap();
//! assert_eq!(&*picture.title, "sky");
//! assert!(message.as_ptr_range().contains(&picture.pixels.as_ptr()));
//! ```

use alloc::{string::String, sync::Arc, vec::Vec};
use core::{
    borrow::Borrow,
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    mem,
    ops::{Deref, Range},
};

use super::{
    Kind, MessageElement, MessageField, OutOfMemory, SequenceAccess, SequenceNode,
    describe::{Describe, Described, Lit},
};
use crate::schema::Type;

/// Octets that are either owned or a part of a shared buffer. The field type of a `sequence<octet>`
/// that decoders need not copy.
///
/// A part of a message keeps the whole message in memory. Copy (`to_vec`) what you keep for long.
#[derive(Clone, Default)]
pub struct SharedBytes {
    held: Held,
    /// First octet within a shared buffer. Unused for owned octets, which are always used
    /// completely.
    start: usize,
    len: usize,
}

#[derive(Clone)]
enum Held {
    Own(Vec<u8>),
    Bytes(Arc<Vec<u8>>),
    Words(Arc<Vec<u64>>),
}

impl Default for Held {
    fn default() -> Held {
        Held::Own(Vec::new())
    }
}

impl SharedBytes {
    /// No octets.
    pub const fn new() -> SharedBytes {
        SharedBytes { held: Held::Own(Vec::new()), start: 0, len: 0 }
    }

    /// The octets in `range` of a shared buffer of words. Such a buffer is aligned to 8 bytes.
    ///
    /// # Panics
    /// If the range is not within the words.
    pub fn of_words(words: Arc<Vec<u64>>, range: Range<usize>) -> SharedBytes {
        assert!(range.start <= range.end && range.end <= 8 * words.len(), "the range is not within the words");
        SharedBytes { held: Held::Words(words), start: range.start, len: range.end - range.start }
    }

    /// The octets.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        let all = match &self.held {
            Held::Own(own) => return own,
            Held::Bytes(bytes) => bytes.as_slice(),
            Held::Words(words) => octets(words),
        };
        // SAFETY: every constructor checks that the range lies within the shared buffer, and the
        // contents of a shared `Arc` do not change.
        unsafe { all.get_unchecked(self.start..self.start + self.len) }
    }

    /// Moves the octets into a shared buffer, so that [`SharedBytes::part`] makes no copies.
    pub fn into_shared(mut self) -> SharedBytes {
        if let Held::Own(own) = &mut self.held {
            self.len = own.len();
            self.held = Held::Bytes(Arc::new(mem::take(own)));
        }
        self
    }

    /// A part of these octets. Makes no copy if they are shared.
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub fn part(&self, range: Range<usize>) -> SharedBytes {
        let part = &self.as_slice()[range.clone()];
        match &self.held {
            Held::Own(_) => SharedBytes::from(part.to_vec()),
            held => SharedBytes { held: held.clone(), start: self.start + range.start, len: part.len() },
        }
    }

    /// True if others may refer to the same buffer.
    pub fn is_shared(&self) -> bool {
        !matches!(self.held, Held::Own(_))
    }

    /// The octets as an owned vector, for writing. Shared octets are released, not copied: then the
    /// vector is empty.
    fn own(&mut self) -> &mut Vec<u8> {
        if self.is_shared() {
            *self = SharedBytes::new();
        }
        match &mut self.held {
            Held::Own(own) => own,
            _ => unreachable!("it was let go"),
        }
    }
}

fn octets(words: &[u64]) -> &[u8] {
    // SAFETY: words consist of initialised bytes without padding.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), mem::size_of_val(words)) }
}

/// Text that is either owned or a part of a shared buffer. The field type of a `string` that
/// decoders need not copy.
///
/// As with [`SharedBytes`], a part of a message keeps the whole message in memory.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedStr(SharedBytes);

impl SharedStr {
    /// No text.
    pub const fn new() -> SharedStr {
        SharedStr(SharedBytes::new())
    }

    /// The text.
    #[inline]
    pub fn as_str(&self) -> &str {
        // SAFETY: every constructor takes UTF-8.
        unsafe { core::str::from_utf8_unchecked(self.0.as_slice()) }
    }

    /// True if others may refer to the same buffer.
    pub fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    /// # Safety
    /// The octets are UTF-8.
    pub(crate) unsafe fn of_utf8(octets: SharedBytes) -> SharedStr {
        SharedStr(octets)
    }

    /// Takes the memory of owned text as an empty `String`. Leaves this text empty.
    pub(crate) fn take_string(&mut self) -> String {
        let mut own = mem::take(self.0.own());
        own.clear();
        // SAFETY: no octets are valid UTF-8.
        unsafe { String::from_utf8_unchecked(own) }
    }

    /// Makes the text empty. Owned text keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.0.own().clear();
    }
}

/// The text of a string node, a [`SharedStr`] if `shared` and otherwise a `String`.
///
/// # Safety
/// `at` points to a string of that type, which does not change while the text is used.
#[inline]
pub(crate) unsafe fn text_at<'v>(shared: bool, at: *const u8) -> &'v str {
    // SAFETY: `at` points to a string of that type: the caller's contract.
    unsafe { if shared { (*at.cast::<SharedStr>()).as_str() } else { (*at.cast::<String>()).as_str() } }
}

// SAFETY: the node says that the string is a `SharedStr`.
unsafe impl MessageField for SharedStr {
    fn default_value() -> Self {
        SharedStr::new()
    }

    fn describe(describe: &mut Describe) -> Described {
        // SAFETY: the node says that the string is a `SharedStr`.
        unsafe { describe.plain::<SharedStr>(Type::string(), Kind::String { words: None, shared: true }) }
    }

    fn from_lit(lit: Lit) -> Option<Self> {
        String::from_lit(lit).map(SharedStr::from)
    }
}

impl MessageElement for SharedStr {}

// SAFETY: the access functions are those of this very type.
unsafe impl MessageField for SharedBytes {
    fn default_value() -> Self {
        SharedBytes::new()
    }

    fn describe(describe: &mut Describe) -> Described {
        let element = describe.of::<u8>().node;
        let kind = Kind::Sequence(SequenceNode { element, words: None, access: Arc::new(SharedAccess) });
        // SAFETY: the access functions are those of `SharedBytes`.
        unsafe { describe.plain::<SharedBytes>(Type::sequence(Type::Octet), kind) }
    }
}

impl MessageElement for SharedBytes {}

struct SharedAccess;

// SAFETY: only owned octets are returned for writing.
unsafe impl SequenceAccess for SharedAccess {
    unsafe fn slice(&self, sequence: *const u8) -> (*const u8, usize) {
        // SAFETY: the access rules give live `SharedBytes`.
        let octets = unsafe { &*sequence.cast::<SharedBytes>() }.as_slice();
        (octets.as_ptr(), octets.len())
    }

    unsafe fn slice_mut(&self, sequence: *mut u8) -> (*mut u8, usize) {
        // SAFETY: the access rules give live `SharedBytes` that nothing else uses.
        let own = unsafe { &mut *sequence.cast::<SharedBytes>() }.own();
        (own.as_mut_ptr(), own.len())
    }

    unsafe fn resize(&self, sequence: *mut u8, len: usize) -> Result<*mut u8, OutOfMemory> {
        // SAFETY: the access rules give live `SharedBytes` that nothing else uses.
        let octets = unsafe { &mut *sequence.cast::<SharedBytes>() };
        if octets.is_shared() {
            let kept = octets.as_slice();
            let kept = &kept[..kept.len().min(len)];
            let mut own = Vec::new();
            own.try_reserve(len).map_err(|_| OutOfMemory)?;
            own.extend_from_slice(kept);
            *octets = SharedBytes::from(own);
        }
        let own = octets.own();
        own.try_reserve(len.saturating_sub(own.len())).map_err(|_| OutOfMemory)?;
        own.resize(len, 0);
        Ok(own.as_mut_ptr())
    }

    unsafe fn assign(&self, sequence: *mut u8, source: *const u8, len: usize) -> Result<(), OutOfMemory> {
        // SAFETY: the access rules give live `SharedBytes` that nothing else uses, and `len` octets
        // at `source`.
        let (octets, source) =
            unsafe { (&mut *sequence.cast::<SharedBytes>(), core::slice::from_raw_parts(source, len)) };
        let own = octets.own();
        own.clear();
        own.try_reserve(len).map_err(|_| OutOfMemory)?;
        own.extend_from_slice(source);
        Ok(())
    }

    unsafe fn release(&self, sequence: *mut u8) {
        // SAFETY: the access rules give live `SharedBytes` that nothing else uses.
        unsafe { *sequence.cast::<SharedBytes>() = SharedBytes::default() };
    }

    fn shares(&self) -> bool {
        true
    }

    unsafe fn hold(&self, sequence: *mut u8, message: &SharedBytes, range: Range<usize>) {
        // SAFETY: the access rules give live `SharedBytes` that nothing else uses.
        unsafe { *sequence.cast::<SharedBytes>() = message.part(range) };
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(own: Vec<u8>) -> SharedBytes {
        SharedBytes { len: own.len(), held: Held::Own(own), start: 0 }
    }
}

impl From<Arc<Vec<u8>>> for SharedBytes {
    fn from(bytes: Arc<Vec<u8>>) -> SharedBytes {
        SharedBytes { len: bytes.len(), held: Held::Bytes(bytes), start: 0 }
    }
}

impl From<&[u8]> for SharedBytes {
    fn from(octets: &[u8]) -> SharedBytes {
        octets.to_vec().into()
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for SharedBytes {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &SharedBytes) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SharedBytes {}

impl PartialOrd for SharedBytes {
    fn partial_cmp(&self, other: &SharedBytes) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SharedBytes {
    fn cmp(&self, other: &SharedBytes) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl Hash for SharedBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl Deref for SharedStr {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<String> for SharedStr {
    fn from(text: String) -> SharedStr {
        SharedStr(text.into_bytes().into())
    }
}

impl From<&str> for SharedStr {
    fn from(text: &str) -> SharedStr {
        SharedStr(text.as_bytes().into())
    }
}

impl AsRef<str> for SharedStr {
    fn as_ref(&self) -> &str {
        self
    }
}

impl PartialEq<str> for SharedStr {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for SharedStr {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Debug for SharedStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for SharedStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_shared_octets_are_where_the_whole_is() {
        let whole = SharedBytes::from(alloc::vec![1, 2, 3, 4]).into_shared();
        let part = whole.part(1..3);
        assert_eq!((&*part, part.as_ptr()), (&[2, 3][..], whole[1..].as_ptr()));
        assert_eq!(&*part.part(1..2), [3]);
        drop(whole);
        assert_eq!(&*part, [2, 3]);
        let own = SharedBytes::from(alloc::vec![1, 2, 3]);
        assert!(!own.part(0..2).is_shared());
    }

    #[test]
    fn words_are_octets() {
        let words = Arc::new(alloc::vec![u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7]), u64::MAX]);
        let octets = SharedBytes::of_words(words.clone(), 3..9);
        assert_eq!(&*octets, [3, 4, 5, 6, 7, 255]);
        assert!(Arc::strong_count(&words) == 2);
    }

    #[test]
    fn what_is_shared_is_never_changed() {
        let whole = SharedBytes::from(alloc::vec![1, 2, 3, 4]).into_shared();
        let mut part = whole.part(0..4);
        let at = (&raw mut part).cast::<u8>();
        // SAFETY: `at` points to `SharedBytes`, and nothing else refers to this part.
        unsafe {
            let data = SharedAccess.resize(at, 6).unwrap();
            data.write(9);
            assert_eq!((*at.cast::<SharedBytes>()).as_slice(), [9, 2, 3, 4, 0, 0]);
            SharedAccess.hold(at, &whole, 1..3);
            assert_eq!(SharedAccess.slice_mut(at).1, 0);
            SharedAccess.hold(at, &whole, 1..3);
            SharedAccess.assign(at, [5, 6].as_ptr(), 2).unwrap();
        }
        assert_eq!((&*part, &*whole), (&[5, 6][..], &[1, 2, 3, 4][..]));
    }
}
