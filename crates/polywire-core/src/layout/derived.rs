//! Layouts and access functions of Rust's own types: numbers, `String`, `Vec`, arrays, `Option`,
//! `Box` and maps as fields of derived messages. The derive's code uses them through
//! [`MessageField`].

use alloc::{boxed::Box, collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use core::{marker::PhantomData, mem, ptr};

use super::{
    BoxedAccess, BoxedNode, Char8, Char16, Float128, Kind, MapAccess, MapNode, MessageElement, MessageField,
    OptionalAccess, OptionalNode, OutOfMemory, Scalar, SequenceAccess, SequenceNode, UnionAccess, Words,
    access::{Inserted, Selected},
    describe::{Describe, Described, Lit},
};
use crate::schema::Type;

macro_rules! scalars {
    ($($rust:ty: $ty:ident, $scalar:ident, $lit:expr;)*) => {$(
        // SAFETY: the scalar is this very type, and all of these types are plain bytes.
        unsafe impl MessageField for $rust {
            fn default_value() -> Self {
                <$rust>::default()
            }

            fn describe(describe: &mut Describe) -> Described {
                // SAFETY: the scalar is this very type.
                unsafe { describe.plain::<Self>(Type::$ty, Kind::Scalar(Scalar::$scalar)) }
            }

            fn from_lit(lit: Lit) -> Option<Self> {
                let take: fn(Lit) -> Option<$rust> = $lit;
                take(lit)
            }
        }

        impl MessageElement for $rust {}
    )*};
}

macro_rules! integers {
    ($($rust:ty: $ty:ident, $scalar:ident;)*) => {
        scalars! {$(
            $rust: $ty, $scalar, |lit| match lit {
                Lit::Int(i) => i.try_into().ok(),
                Lit::Char(c) => u32::from(c).try_into().ok(),
                _ => None,
            };
        )*}
    };
}

integers! {
    i8: Int8, I8;
    i16: Int16, I16;
    i32: Int32, I32;
    i64: Int64, I64;
    u8: Uint8, U8;
    u16: Uint16, U16;
    u32: Uint32, U32;
    u64: Uint64, U64;
}

scalars! {
    bool: Bool, Bool, |lit| match lit {
        Lit::Bool(b) => Some(b),
        _ => None,
    };
    f32: Float32, F32, |lit| float(lit).map(|f| f as f32);
    f64: Float64, F64, float;
    Float128: Float128, F128, |lit| float(lit).map(Float128::from);
    Char8: Char8, U8, |lit| u8::from_lit(lit).map(Char8);
    Char16: Char16, U16, |lit| u16::from_lit(lit).map(Char16);
}

fn float(lit: Lit) -> Option<f64> {
    match lit {
        Lit::Float(f) => Some(f),
        Lit::Int(i) => Some(i as f64),
        _ => None,
    }
}

// SAFETY: the node says `String`; it has word offsets only if the probe found them.
unsafe impl MessageField for String {
    fn default_value() -> Self {
        String::new()
    }

    fn describe(describe: &mut Describe) -> Described {
        // SAFETY: the node says `String`; it has word offsets only if the probe found them.
        unsafe { describe.plain::<String>(Type::string(), Kind::String { words: string_words(), shared: false }) }
    }

    fn from_lit(lit: Lit) -> Option<Self> {
        match lit {
            Lit::Text(text) => Some(text.into()),
            _ => None,
        }
    }
}

impl MessageElement for String {}

// SAFETY: the access functions are those of this very type; the node has word offsets only if the
// probe found them.
unsafe impl<T: MessageElement> MessageField for Vec<T> {
    fn default_value() -> Self {
        Vec::new()
    }

    fn describe(describe: &mut Describe) -> Described {
        let element = describe.of::<T>();
        let access = Arc::new(VecAccess::<T>(PhantomData));
        let kind = Kind::Sequence(SequenceNode { element: element.node, words: vec_words::<T>(), access });
        // SAFETY: the access functions and words are those of `Vec<T>`.
        unsafe { describe.plain::<Vec<T>>(Type::sequence(element.ty), kind) }
    }
}

impl<T: MessageElement> MessageElement for Vec<T> {}

// SAFETY: the elements of an array lie side by side, and so do those of inner arrays.
unsafe impl<T: MessageElement, const N: usize> MessageField for [T; N] {
    fn default_value() -> Self {
        core::array::from_fn(|_| T::default_value())
    }

    fn describe(describe: &mut Describe) -> Described {
        const { assert!(N > 0 && N <= u32::MAX as usize, "IDL has no arrays without elements") };
        let inner = describe.of::<T>();
        let (element, dims) = match inner.ty {
            Type::Array { element, dims } => (element, [&[N as u32][..], &dims].concat()),
            ty => (Box::new(ty), [N as u32].into()),
        };
        let kind = match describe.node(inner.node).kind {
            // A length beyond `u32` comes with a size beyond `u32`, which is refused, unless the
            // elements have size zero.
            Kind::Array { element, len } => Kind::Array { element, len: len.saturating_mul(N as u32) },
            _ => Kind::Array { element: inner.node, len: N as u32 },
        };
        // SAFETY: the elements of an array lie side by side, and so do those of inner arrays.
        unsafe { describe.plain::<[T; N]>(Type::Array { element, dims }, kind) }
    }
}

impl<T: MessageElement, const N: usize> MessageElement for [T; N] {}

// SAFETY: the access functions are those of this very type.
unsafe impl<T: MessageField> MessageField for Option<T> {
    fn default_value() -> Self {
        None
    }

    fn describe(describe: &mut Describe) -> Described {
        let inner = describe.of::<T>();
        if inner.optional {
            describe.refuse(core::any::type_name::<Self>(), "an optional value cannot be optional once more");
        }
        let access = Arc::new(OptionAccess::<T>(PhantomData));
        let kind = Kind::Optional(OptionalNode { inner: inner.node, flag: None, access });
        // SAFETY: the access functions are those of `Option<T>`.
        let described = unsafe { describe.plain::<Option<T>>(inner.ty, kind) };
        Described { optional: true, external: inner.external, ..described }
    }

    fn from_lit(lit: Lit) -> Option<Self> {
        T::from_lit(lit).map(Some)
    }

    fn default_value_or(_: Lit) -> Self {
        None
    }
}

// SAFETY: the access functions are those of this very type.
unsafe impl<T: MessageElement> MessageField for Box<T> {
    fn default_value() -> Self {
        Box::new(T::default_value())
    }

    fn describe(describe: &mut Describe) -> Described {
        let inner = describe.of::<T>();
        let access = Arc::new(BoxAccess::<T>(PhantomData));
        // SAFETY: the access functions are those of `Box<T>`.
        let described =
            unsafe { describe.plain::<Box<T>>(inner.ty, Kind::Boxed(BoxedNode { inner: inner.node, access })) };
        Described { external: true, ..described }
    }

    fn from_lit(lit: Lit) -> Option<Self> {
        T::from_lit(lit).map(Box::new)
    }
}

macro_rules! maps {
    ($($(#[$on:meta])* $map:ident [$($extra:ident: $bound:path),*] where $key:path { $reserve:expr })*) => {$(
        $(#[$on])*
        // SAFETY: the access functions are those of this very type.
        unsafe impl<K: MessageElement + $key, V: MessageElement $(, $extra: $bound + Default + Send + 'static)*> MessageField
            for $map<K, V $(, $extra)*>
        {
            fn default_value() -> Self {
                Self::default()
            }

            fn describe(describe: &mut Describe) -> Described {
                let (key, value) = (describe.of::<K>(), describe.of::<V>());
                let access = Arc::new(EntryAccess::<Self>(PhantomData));
                let kind = Kind::Map(MapNode { key: key.node, value: value.node, access });
                // SAFETY: the access functions are those of this very type.
                unsafe { describe.plain::<Self>(Type::map(key.ty, value.ty), kind) }
            }
        }

        $(#[$on])*
        impl<K: MessageElement + $key, V: MessageElement $(, $extra: $bound + Default + Send + 'static)*> MessageElement
            for $map<K, V $(, $extra)*>
        {
        }

        $(#[$on])*
        // SAFETY: `guarded` lets no panic out, and a map stays valid if the code of its elements
        // panics.
        unsafe impl<K: MessageElement + $key, V: MessageElement $(, $extra: $bound + Default + Send + 'static)*> MapAccess
            for EntryAccess<$map<K, V $(, $extra)*>>
        {
            unsafe fn len(&self, map: *const u8) -> usize {
                // SAFETY: the access rules give a live map of this type.
                unsafe { &*map.cast::<$map<K, V $(, $extra)*>>() }.len()
            }

            unsafe fn visit(&self, map: *const u8, visit: &mut dyn FnMut(*const u8, *const u8) -> bool) {
                // SAFETY: the access rules give a live map of this type.
                for (key, value) in unsafe { &*map.cast::<$map<K, V $(, $extra)*>>() } {
                    if !visit((&raw const *key).cast(), (&raw const *value).cast()) {
                        return;
                    }
                }
            }

            unsafe fn clear(&self, map: *mut u8) {
                // SAFETY: the access rules give a live map of this type that nothing else uses.
                let map = unsafe { &mut *map.cast::<$map<K, V $(, $extra)*>>() };
                // After a panic the entries are dropped or leaked; the map no longer has them in
                // either case.
                let _ = guarded(|| map.clear());
            }

            unsafe fn release(&self, map: *mut u8) {
                // SAFETY: the access rules give a live map of this type that nothing else uses.
                let map = unsafe { &mut *map.cast::<$map<K, V $(, $extra)*>>() };
                let _ = guarded(|| drop(mem::take(map)));
            }

            unsafe fn insert(
                &self,
                map: *mut u8,
                fill: &mut dyn FnMut(*mut u8, *mut u8) -> bool,
            ) -> Result<Inserted, OutOfMemory> {
                // SAFETY: the access rules give a live map of this type that nothing else uses.
                let map = unsafe { &mut *map.cast::<$map<K, V $(, $extra)*>>() };
                guarded(|| {
                    let (mut key, mut value) = (K::default_value(), V::default_value());
                    if !fill((&raw mut key).cast(), (&raw mut value).cast()) {
                        return Ok(Inserted::Refused);
                    }
                    let reserve: fn(&mut $map<K, V $(, $extra)*>) -> Result<(), OutOfMemory> = $reserve;
                    reserve(map)?;
                    Ok(if map.insert(key, value).is_some() { Inserted::Replaced } else { Inserted::Yes })
                })?
            }
        }
    )*};
}

#[cfg(feature = "std")]
use std::collections::HashMap;

maps! {
    // `BTreeMap` has no fallible allocation: it aborts if there is no memory for a node.
    BTreeMap [] where Ord { |_| Ok(()) }
    #[cfg(feature = "std")]
    HashMap [S: core::hash::BuildHasher] where HashKey { |map| map.try_reserve(1).map_err(|_| OutOfMemory) }
}

/// What a key of a `HashMap` must implement.
#[cfg(feature = "std")]
#[doc(hidden)]
pub trait HashKey: core::hash::Hash + Eq {}

#[cfg(feature = "std")]
impl<K: core::hash::Hash + Eq> HashKey for K {}

struct EntryAccess<M>(PhantomData<fn() -> M>);

struct VecAccess<T>(PhantomData<fn() -> T>);

// SAFETY: `guarded` lets no panic out, and a `Vec` stays valid if the code of its elements panics.
unsafe impl<T: MessageElement> SequenceAccess for VecAccess<T> {
    unsafe fn slice(&self, sequence: *const u8) -> (*const u8, usize) {
        // SAFETY: the access rules give a live `Vec` of this type.
        let vec = unsafe { &*sequence.cast::<Vec<T>>() };
        (vec.as_ptr().cast(), vec.len())
    }

    unsafe fn resize(&self, sequence: *mut u8, len: usize) -> Result<*mut u8, OutOfMemory> {
        // SAFETY: the access rules give a live `Vec` of this type that nothing else uses.
        let vec = unsafe { &mut *sequence.cast::<Vec<T>>() };
        if len > vec.len() {
            vec.try_reserve(len - vec.len()).map_err(|_| OutOfMemory)?;
            guarded(|| vec.resize_with(len, T::default_value))?;
        } else if len < vec.len() {
            guarded(|| vec.truncate(len))?;
        }
        Ok(vec.as_mut_ptr().cast())
    }

    unsafe fn assign(&self, sequence: *mut u8, source: *const u8, len: usize) -> Result<(), OutOfMemory> {
        // SAFETY: the access rules give a live `Vec` of this type that nothing else uses.
        let vec = unsafe { &mut *sequence.cast::<Vec<T>>() };
        vec.clear();
        vec.try_reserve(len).map_err(|_| OutOfMemory)?;
        // SAFETY: there is room for `len` elements, `len` valid ones lie at `source`, and plain
        // bytes need no drop.
        unsafe {
            ptr::copy_nonoverlapping(source, vec.as_mut_ptr().cast::<u8>(), len * mem::size_of::<T>());
            vec.set_len(len);
        }
        Ok(())
    }

    unsafe fn release(&self, sequence: *mut u8) {
        // SAFETY: the access rules give a live `Vec` of this type that nothing else uses.
        let old = mem::take(unsafe { &mut *sequence.cast::<Vec<T>>() });
        let _ = guarded(|| drop(old));
    }
}

struct OptionAccess<T>(PhantomData<fn() -> T>);

// SAFETY: `guarded` lets no panic out, and a value is dropped only after it left the option.
unsafe impl<T: MessageField> OptionalAccess for OptionAccess<T> {
    unsafe fn get(&self, optional: *const u8) -> *const u8 {
        // SAFETY: the access rules give a live `Option` of this type.
        match unsafe { &*optional.cast::<Option<T>>() } {
            Some(value) => (&raw const *value).cast(),
            None => ptr::null(),
        }
    }

    unsafe fn set_some(&self, optional: *mut u8) -> Result<*mut u8, OutOfMemory> {
        // SAFETY: the access rules give a live `Option` of this type that nothing else uses.
        let option = unsafe { &mut *optional.cast::<Option<T>>() };
        if option.is_none() {
            *option = Some(guarded(T::default_value)?);
        }
        option.as_mut().map(|value| (&raw mut *value).cast()).ok_or(OutOfMemory)
    }

    unsafe fn set_none(&self, optional: *mut u8) {
        // SAFETY: the access rules give a live `Option` of this type that nothing else uses.
        let old = unsafe { &mut *optional.cast::<Option<T>>() }.take();
        let _ = guarded(|| drop(old));
    }
}

struct BoxAccess<T>(PhantomData<fn() -> T>);

// SAFETY: a box always has a value.
unsafe impl<T: MessageElement> BoxedAccess for BoxAccess<T> {
    unsafe fn get(&self, boxed: *const u8) -> *const u8 {
        // SAFETY: the access rules give a live `Box` of this type.
        (&raw const **unsafe { &*boxed.cast::<Box<T>>() }).cast()
    }

    unsafe fn get_mut(&self, boxed: *mut u8) -> *mut u8 {
        // SAFETY: the access rules give a live `Box` of this type that nothing else uses.
        (&raw mut **unsafe { &mut *boxed.cast::<Box<T>>() }).cast()
    }
}

/// An `enum` with data. The derive implements this.
///
/// # Safety
/// Cases have the numbers in which they were described, and every pointer leads to the payload of
/// the variant that the value currently is.
#[doc(hidden)]
pub unsafe trait UnionCases: MessageField {
    /// Index of the value's case, and its payload.
    fn selected(&self) -> (u32, *const u8);

    /// The payload if the value is of `case`, otherwise null.
    fn payload(&mut self, case: u32) -> *mut u8;

    /// The variant of `case` with a default payload. `None` if there is no such case.
    fn default_case(case: u32) -> Option<Self>;
}

pub(super) struct VariantAccess<T> {
    discriminators: Vec<i64>,
    of: PhantomData<fn() -> T>,
}

impl<T> VariantAccess<T> {
    pub(super) fn new(discriminators: Vec<i64>) -> Self {
        VariantAccess { discriminators, of: PhantomData }
    }
}

// SAFETY: `guarded` lets no panic out, and the old variant is dropped after it was replaced.
unsafe impl<T: UnionCases> UnionAccess for VariantAccess<T> {
    unsafe fn get(&self, union: *const u8) -> Selected {
        // SAFETY: the access rules give a live value of this type.
        let (case, value) = unsafe { &*union.cast::<T>() }.selected();
        let discriminator = self.discriminators.get(case as usize).copied().unwrap_or_default();
        Selected { discriminator, case: Some(case), value }
    }

    unsafe fn select(&self, union: *mut u8, _: i64, case: Option<u32>) -> Result<*mut u8, OutOfMemory> {
        // SAFETY: the access rules give a live value of this type that nothing else uses.
        let union = unsafe { &mut *union.cast::<T>() };
        let case = case.ok_or(OutOfMemory)?;
        let payload = union.payload(case);
        if !payload.is_null() {
            return Ok(payload);
        }
        let fresh = guarded(|| T::default_case(case))?.ok_or(OutOfMemory)?;
        let old = mem::replace(union, fresh);
        guarded(|| drop(old))?;
        Ok(union.payload(case))
    }
}

/// Runs the user's code and turns a panic into an error.
#[cfg(feature = "std")]
fn guarded<R>(run: impl FnOnce() -> R) -> Result<R, OutOfMemory> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        // Dropping the panic's payload may panic too; then that payload is leaked.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(mem::forget);
        OutOfMemory
    })
}

/// Runs the user's code. Without `std` a panic cannot be caught, so unwinding becomes an abort.
#[cfg(not(feature = "std"))]
fn guarded<R>(run: impl FnOnce() -> R) -> Result<R, OutOfMemory> {
    struct AbortOnUnwind;
    impl Drop for AbortOnUnwind {
        fn drop(&mut self) {
            panic!("a panic must not unwind through a codec program");
        }
    }
    let bomb = AbortOnUnwind;
    let result = run();
    mem::forget(bomb);
    Ok(result)
}

/// Word offsets of a `Vec<T>`, found by looking at real ones. `None` if anything is unexpected.
fn vec_words<T: MessageElement>() -> Option<Words> {
    if mem::size_of::<T>() == 0 {
        return None;
    }
    let probe = |capacity: usize, len: usize| {
        let mut vec = Vec::with_capacity(capacity);
        vec.resize_with(len, T::default_value);
        let want = [vec.as_ptr().addr(), vec.capacity(), vec.len()];
        find_words(&vec, want)
    };
    agreed(probe(5, 2), probe(11, 3))
}

/// Word offsets of a `String`, found in the same way.
pub(super) fn string_words() -> Option<Words> {
    let probe = |capacity: usize, text: &str| {
        let mut string = String::with_capacity(capacity);
        string.push_str(text);
        let want = [string.as_ptr().addr(), string.capacity(), string.len()];
        find_words(&string, want)
    };
    agreed(probe(9, "to"), probe(21, "probe"))
}

fn agreed(one: Option<Words>, other: Option<Words>) -> Option<Words> {
    one.filter(|_| one == other)
}

/// Offsets of the three words in `value`, if it consists of three words and each of `want` equals
/// exactly one of them.
fn find_words<T>(value: &T, want: [usize; 3]) -> Option<Words> {
    const WORD: usize = mem::size_of::<usize>();
    if mem::size_of::<T>() != 3 * WORD || mem::align_of::<T>() != mem::align_of::<usize>() {
        return None;
    }
    // SAFETY: `T` is a `Vec` or `String` of three words, which hold pointer, capacity and length in
    // some order without padding.
    let words: [usize; 3] = unsafe { (&raw const *value).cast::<[usize; 3]>().read() };
    let offset_of = |want: usize| {
        let mut found = (0..3).filter(|i| words[*i] == want);
        found.next().filter(|_| found.next().is_none()).map(|i| (i * WORD) as u32)
    };
    let [pointer, capacity, len] = want.map(offset_of);
    Some(Words { pointer: pointer?, capacity: capacity?, len: len? })
}
