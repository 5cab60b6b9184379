//! Samples as bytes: the type support that Cyclone calls. It never interprets a payload.
//!
//! Cyclone handles a sample as a `ddsi_serdata`. Here it is the first field of [`Native`], which
//! owns the bytes. Cyclone calls [`free`] when nobody refers to the sample any more.

use std::{
    ffi::{CString, c_char, c_void},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    mem, ptr, slice,
    sync::Arc,
};

use cyclors::{
    ddsi_keyhash, ddsi_serdata, ddsi_serdata_init, ddsi_serdata_kind, ddsi_serdata_kind_SDK_DATA,
    ddsi_serdata_kind_SDK_KEY, ddsi_serdata_ops, ddsi_sertype, ddsi_sertype_fini, ddsi_sertype_init_flags,
    ddsi_sertype_ops, ddsi_sertype_v0, ddsi_typeid, ddsi_typeid_kind, ddsi_typeinfo, ddsi_typemap, ddsrt_iovec_t,
    ddsrt_msg_iovlen_t,
};

use crate::{error::Error, types::TypeObjects};

/// The largest sample that is written or read, in bytes with its encapsulation header.
///
/// ```
/// assert_eq!(polywire_dds::MAX_SAMPLE_BYTES, 64 << 20);
/// ```
pub const MAX_SAMPLE_BYTES: usize = 64 << 20;

/// Bytes of the encapsulation header in front of every payload.
const HEADER: usize = 4;

/// Where a sample begins in its buffer, so that the payload behind the header is at an address
/// divisible by 8.
const START: usize = 8 - HEADER;

const NO_KEY: u32 = 1;
/// Requests the hash of the key from writers: some send nothing else when they dispose.
const REQUEST_KEY_HASH: u32 = 2;

/// The bytes of a sample, in a shared buffer: the encapsulation header and the payload, which
/// begins at an address divisible by 8.
///
/// ```
/// use polywire_dds::Bytes;
/// let bytes = Bytes::new([0, 1, 0, 0], b"abc")?;
/// assert_eq!((bytes.header(), bytes.payload()), ([0, 1, 0, 1], &b"abc"[..]));
/// assert_eq!((bytes.sample().len(), bytes.payload().as_ptr().addr() % 8), (8, 0));
/// # Ok::<(), polywire_dds::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes {
    words: Arc<Vec<u64>>,
    /// The length of the sample, with its header and padding.
    len: usize,
}

impl Bytes {
    /// Copies a header and a payload, which is padded to a multiple of 4 bytes. The number of
    /// padding bytes goes into the lowest two bits of the header, as XTypes requires.
    pub fn new(header: [u8; HEADER], payload: &[u8]) -> Result<Bytes, Error> {
        let padding = payload.len().wrapping_neg() % 4;
        let mut bytes = Bytes::zeroed(HEADER + payload.len() + padding)?;
        let [kind, order, high, low] = header;
        let sample = bytes.sample_mut();
        sample[..HEADER].copy_from_slice(&[kind, order, high, low & !3 | padding as u8]);
        sample[HEADER..HEADER + payload.len()].copy_from_slice(payload);
        Ok(bytes)
    }

    /// Copies a sample that has its header and padding.
    pub fn of_sample(sample: &[u8]) -> Result<Bytes, Error> {
        let mut bytes = Bytes::zeroed(sample.len())?;
        bytes.sample_mut().copy_from_slice(sample);
        Ok(bytes)
    }

    fn zeroed(len: usize) -> Result<Bytes, Error> {
        if !(HEADER..=MAX_SAMPLE_BYTES).contains(&len) {
            return Err(Error::Size { bytes: len, most: MAX_SAMPLE_BYTES });
        }
        Ok(Bytes { words: Arc::new(vec![0; (START + len).div_ceil(8)]), len })
    }

    /// Returns the encapsulation header.
    pub fn header(&self) -> [u8; HEADER] {
        self.sample().first_chunk().copied().unwrap_or_default()
    }

    /// Returns the sample, with its header and padding.
    pub fn sample(&self) -> &[u8] {
        self.all().get(START..START + self.len).unwrap_or_default()
    }

    /// Returns the payload, without header and padding.
    pub fn payload(&self) -> &[u8] {
        let padding = usize::from(self.header()[3] & 3);
        let end = self.len.saturating_sub(padding).max(HEADER);
        self.sample().get(HEADER..end).unwrap_or_default()
    }

    /// Returns the buffer, in which the payload begins at byte 8.
    pub fn words(&self) -> &Arc<Vec<u64>> {
        &self.words
    }

    fn all(&self) -> &[u8] {
        // SAFETY: the words are initialised memory of this size, and every byte of it is a u8.
        unsafe { slice::from_raw_parts(self.words.as_ptr().cast(), 8 * self.words.len()) }
    }

    /// Returns the sample of a buffer that is not shared yet.
    fn sample_mut(&mut self) -> &mut [u8] {
        let (words, len) = (Arc::make_mut(&mut self.words), self.len);
        // SAFETY: the words are initialised memory of this size that is borrowed mutably here, and
        // any byte is valid in them.
        let all = unsafe { slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), 8 * words.len()) };
        &mut all[START..START + len]
    }
}

/// What a sample means for its instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A new value.
    #[default]
    Data,
    /// The instance no longer exists.
    Dispose,
    /// The writer will not write the instance again.
    Unregister,
}

impl Kind {
    const fn status(self) -> u32 {
        match self {
            Kind::Data => 0,
            Kind::Dispose => 1,
            Kind::Unregister => 2,
        }
    }

    /// Reads the status. Unregistering with automatic disposal counts as disposal.
    const fn of_status(status: u32) -> Kind {
        match status {
            status if status & 1 != 0 => Kind::Dispose,
            status if status & 2 != 0 => Kind::Unregister,
            _ => Kind::Data,
        }
    }
}

/// A sample to write, or one that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// What the sample means for its instance.
    pub kind: Kind,
    /// Whether the payload is the key alone instead of a value.
    pub is_key: bool,
    /// The encapsulation header, and the value or the key. Without payload if only the hash of a
    /// key was received.
    pub bytes: Bytes,
    /// The hash of the key. `None` if the writer does not send it.
    pub key_hash: Option<[u8; 16]>,
    /// The writer's time, in nanoseconds since 1970.
    pub timestamp_ns: i64,
    /// The writer's sequence number, if the sample was received over the network.
    pub sequence: Option<u64>,
}

/// A sample as Cyclone has it.
#[repr(C)]
struct Native {
    base: ddsi_serdata,
    bytes: Bytes,
    key_hash: Option<[u8; 16]>,
    sequence: Option<u64>,
}

/// A fragment of a received sample: the struct of `ddsi_radmin.h`, which the bindings leave opaque.
#[repr(C)]
struct Fragment {
    message: *const Message,
    next: *const Fragment,
    from: u32,
    to: u32,
    submessage_at: u16,
    payload_at: u16,
    key_hash_at: u16,
}

/// The head of a received packet, whose bytes follow: a struct of `ddsi_radmin.h`.
#[repr(C)]
struct Message {
    references: u32,
    last_chunk: *const c_void,
    is_traced: bool,
    buffer: *const c_void,
    next_chunk: *const c_void,
    size: u64,
}

impl Fragment {
    /// Returns the bytes of the sample from `from` to `to`.
    ///
    /// # Safety
    ///
    /// Cyclone made the fragment.
    unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the packet's bytes follow its head, and the fragment's begin at `payload_at`.
        unsafe {
            let start = self.message.add(1).cast::<u8>().add(self.payload_at.into());
            slice::from_raw_parts(start, self.to.saturating_sub(self.from) as usize)
        }
    }

    /// # Safety
    ///
    /// Cyclone made the fragment, and it is the first one of its sample.
    unsafe fn key_hash(&self) -> Option<[u8; 16]> {
        if self.key_hash_at == 0 {
            return None;
        }
        // SAFETY: if the offset is not 0, 16 bytes of the packet are a key hash.
        let hash = unsafe { self.message.add(1).cast::<u8>().add(self.key_hash_at.into()).cast::<[u8; 16]>().read() };
        // A writer that has no hash, but is asked for one, sends zeros.
        (hash != [0; 16]).then_some(hash)
    }
}

/// Bytes of a DATA or DATA_FRAG submessage before the sequence number: its head, flags, the offset
/// of the inline policies, and the ids of reader and writer.
const BEFORE_SEQUENCE: usize = 16;

impl Fragment {
    /// Returns the writer's sequence number of the sample.
    ///
    /// # Safety
    ///
    /// Cyclone made the fragment.
    unsafe fn sequence(&self) -> Option<u64> {
        if self.submessage_at == 0 {
            return None;
        }
        // SAFETY: if the offset is not 0, the submessage of the packet begins there. Cyclone has
        // checked that it is whole, and has brought its fields into the machine's byte order.
        let [high, low] = unsafe {
            let submessage = self.message.add(1).cast::<u8>().add(self.submessage_at.into());
            submessage.add(BEFORE_SEQUENCE).cast::<[u32; 2]>().read_unaligned()
        };
        Some(u64::from(high) << 32 | u64::from(low)).filter(|sequence| *sequence > 0)
    }
}

impl Native {
    /// Makes a sample with one reference. The type's address is kept, so it must outlive the sample
    /// or be null afterwards.
    ///
    /// # Safety
    ///
    /// `of` points to a type that [`new_type`] made.
    unsafe fn make(
        of: *const ddsi_sertype,
        kind: ddsi_serdata_kind,
        bytes: Bytes,
        key_hash: Option<[u8; 16]>,
        sequence: Option<u64>,
    ) -> *mut ddsi_serdata {
        // SAFETY: all-zero is a valid `ddsi_serdata`: integers, and pointers that may be null.
        let base = unsafe { mem::zeroed() };
        let sample = Box::into_raw(Box::new(Native { base, bytes, key_hash, sequence })).cast::<ddsi_serdata>();
        // SAFETY: `sample` points to the `ddsi_serdata` at the beginning of `Native`, and the
        // caller vouches for the type.
        unsafe {
            ddsi_serdata_init(sample, of, kind);
            (*sample).hash = (*of).serdata_basehash ^ hash(key_hash);
        }
        sample
    }

    /// # Safety
    ///
    /// `sample` points to a sample that [`Native::make`] made and that has a reference.
    unsafe fn of<'a>(sample: *const ddsi_serdata) -> &'a Native {
        // SAFETY: the `ddsi_serdata` is the first field of a `Native`.
        unsafe { &*sample.cast::<Native>() }
    }
}

/// Returns the hash for Cyclone's table of instances.
fn hash(key: Option<[u8; 16]>) -> u32 {
    let words = key.unwrap_or_default();
    words.chunks_exact(4).fold(0, |hash: u32, word| {
        let word = word.first_chunk().copied().map_or(0, u32::from_le_bytes);
        (hash.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9)
    })
}

/// Makes a sample for a writer, with one reference, which the write takes.
///
/// # Safety
///
/// `of` points to a type that [`new_type`] made.
pub(crate) unsafe fn to_native(of: *const ddsi_sertype, sample: &Sample) -> *mut ddsi_serdata {
    let kind = if sample.is_key { ddsi_serdata_kind_SDK_KEY } else { ddsi_serdata_kind_SDK_DATA };
    // SAFETY: the caller vouches for the type, and the new sample is nobody else's yet.
    unsafe {
        let native = Native::make(of, kind, sample.bytes.clone(), sample.key_hash, None);
        (*native).timestamp.v = sample.timestamp_ns;
        (*native).statusinfo = sample.kind.status();
        native
    }
}

/// Converts a received sample. Shares its bytes.
///
/// # Safety
///
/// `native` points to a sample of a type that [`new_type`] made, with a reference.
pub(crate) unsafe fn of_native(native: *const ddsi_serdata) -> Sample {
    // SAFETY: the caller vouches for the sample.
    let native = unsafe { Native::of(native) };
    Sample {
        kind: Kind::of_status(native.base.statusinfo),
        is_key: native.base.kind == ddsi_serdata_kind_SDK_KEY,
        bytes: native.bytes.clone(),
        key_hash: native.key_hash,
        timestamp_ns: native.base.timestamp.v,
        sequence: native.sequence,
    }
}

/// A type as Cyclone has it.
#[repr(C)]
struct NativeType {
    base: ddsi_sertype,
    /// What is published of the type to other programs.
    objects: Option<TypeObjects>,
}

impl NativeType {
    /// # Safety
    ///
    /// `of` is a type that [`new_type`] made, and lives as long as the result is used.
    unsafe fn of<'a>(of: *const ddsi_sertype) -> &'a NativeType {
        // SAFETY: the caller promises it; the base is the first field.
        unsafe { &*of.cast::<NativeType>() }
    }
}

/// Makes a type of this name, with one reference.
pub(crate) fn new_type(name: &str, is_keyed: bool, objects: Option<TypeObjects>) -> Result<*mut ddsi_sertype, Error> {
    let c_name = CString::new(name).map_err(|_| Error::Text(name.into()))?;
    let flags = if is_keyed { REQUEST_KEY_HASH } else { NO_KEY };
    // SAFETY: all-zero is a valid `ddsi_sertype`: integers, and pointers that may be null. The
    // initialisation copies the name; the tables of functions are static.
    unsafe {
        let of = Box::into_raw(Box::new(NativeType { base: mem::zeroed(), objects })).cast::<ddsi_sertype>();
        ddsi_sertype_init_flags(of, c_name.as_ptr(), &TYPE_OPS.0, &SAMPLE_OPS.0, flags);
        (*of).allowed_data_representation = 0b101;
        Ok(of)
    }
}

/// A table of functions. Cyclone only reads it.
struct Table<T>(T);

// SAFETY: the tables have function pointers and one null pointer, and are never written.
unsafe impl<T> Sync for Table<T> {}

static TYPE_OPS: Table<ddsi_sertype_ops> = Table(ddsi_sertype_ops {
    version: Some(ddsi_sertype_v0),
    arg: ptr::null_mut(),
    free: Some(free_type),
    zero_samples: Some(zero_samples),
    realloc_samples: Some(realloc_samples),
    free_samples: Some(free_samples),
    equal: Some(equal_types),
    hash: Some(hash_type),
    type_id: Some(type_id),
    type_map: Some(type_map),
    type_info: Some(type_information),
    derive_sertype: None,
    get_serialized_size: None,
    serialize_into: None,
});

static SAMPLE_OPS: Table<ddsi_serdata_ops> = Table(ddsi_serdata_ops {
    eqkey: Some(equal_keys),
    get_size: Some(size),
    from_ser: Some(from_fragments),
    from_ser_iov: Some(from_vector),
    from_keyhash: Some(from_key_hash),
    from_sample: Some(from_value),
    to_ser: Some(copy_out),
    to_ser_ref: Some(lend),
    to_ser_unref: Some(take_back),
    to_sample: Some(to_value),
    to_untyped: Some(to_untyped),
    untyped_to_sample: Some(untyped_to_value),
    free: Some(free),
    print: Some(print),
    get_keyhash: Some(key_hash),
    from_loaned_sample: None,
    from_psmx: None,
});

// The functions below are called by Cyclone alone, with pointers to types that `new_type` made and
// to samples that `Native::make` made. None of them panics: that would end the process.

unsafe extern "C" fn free_type(of: *mut ddsi_sertype) {
    // SAFETY: this is the last reference to a type that `new_type` put into a box.
    unsafe {
        ddsi_sertype_fini(of);
        drop(Box::from_raw(of.cast::<NativeType>()));
    }
}

/// Types of the same name, keys and functions are equal if the same is published of them.
unsafe extern "C" fn equal_types(a: *const ddsi_sertype, b: *const ddsi_sertype) -> bool {
    // SAFETY: Cyclone passes types with these functions.
    unsafe { NativeType::of(a).objects == NativeType::of(b).objects }
}

unsafe extern "C" fn hash_type(of: *const ddsi_sertype) -> u32 {
    let mut hasher = DefaultHasher::new();
    // SAFETY: Cyclone passes a type with these functions.
    unsafe { NativeType::of(of).objects.hash(&mut hasher) }
    hasher.finish() as u32
}

// These functions return null for a type of which nothing is published.

unsafe extern "C" fn type_id(of: *const ddsi_sertype, kind: ddsi_typeid_kind) -> *mut ddsi_typeid {
    // SAFETY: Cyclone passes a type with these functions.
    let objects = unsafe { &NativeType::of(of).objects };
    objects.as_ref().map_or(ptr::null_mut(), |objects| objects.native_id(kind))
}

unsafe extern "C" fn type_map(of: *const ddsi_sertype) -> *mut ddsi_typemap {
    // SAFETY: Cyclone passes a type with these functions.
    let objects = unsafe { &NativeType::of(of).objects };
    objects.as_ref().map_or(ptr::null_mut(), TypeObjects::native_mapping)
}

unsafe extern "C" fn type_information(of: *const ddsi_sertype) -> *mut ddsi_typeinfo {
    // SAFETY: Cyclone passes a type with these functions.
    let objects = unsafe { &NativeType::of(of).objects };
    objects.as_ref().map_or(ptr::null_mut(), TypeObjects::native_information)
}

// The functions for values in memory do nothing: the readers of this crate get samples as bytes.

unsafe extern "C" fn zero_samples(_: *const ddsi_sertype, _: *mut c_void, _: usize) {}

unsafe extern "C" fn realloc_samples(_: *mut *mut c_void, _: *const ddsi_sertype, _: *mut c_void, _: usize, _: usize) {}

unsafe extern "C" fn free_samples(_: *const ddsi_sertype, _: *mut *mut c_void, _: usize, _: cyclors::dds_free_op_t) {}

unsafe extern "C" fn from_value(_: *const ddsi_sertype, _: ddsi_serdata_kind, _: *const c_void) -> *mut ddsi_serdata {
    ptr::null_mut()
}

unsafe extern "C" fn to_value(_: *const ddsi_serdata, _: *mut c_void, _: *mut *mut c_void, _: *mut c_void) -> bool {
    false
}

unsafe extern "C" fn untyped_to_value(
    _: *const ddsi_sertype,
    _: *const ddsi_serdata,
    _: *mut c_void,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> bool {
    false
}

unsafe extern "C" fn equal_keys(a: *const ddsi_serdata, b: *const ddsi_serdata) -> bool {
    // SAFETY: Cyclone passes samples with these functions.
    unsafe { Native::of(a).key_hash == Native::of(b).key_hash }
}

unsafe extern "C" fn size(sample: *const ddsi_serdata) -> u32 {
    // SAFETY: Cyclone passes a sample with these functions.
    unsafe { Native::of(sample).bytes.len as u32 }
}

/// Assembles a received sample from its fragments, which may overlap.
unsafe extern "C" fn from_fragments(
    of: *const ddsi_sertype,
    kind: ddsi_serdata_kind,
    first: *const cyclors::ddsi_rdata,
    size: usize,
) -> *mut ddsi_serdata {
    let first = first.cast::<Fragment>();
    let Ok(mut bytes) = Bytes::zeroed(size) else { return ptr::null_mut() };
    let (sample, mut end) = (bytes.sample_mut(), 0);
    let mut next = first;
    // SAFETY: Cyclone passes a list of fragments that ends with a null pointer.
    while let Some(fragment) = unsafe { next.as_ref() } {
        // SAFETY: the fragment is Cyclone's.
        let part = unsafe { fragment.bytes() };
        let (from, to) = (fragment.from as usize, fragment.to as usize);
        if from > end || to > size {
            return ptr::null_mut();
        }
        if let (true, Some(new)) = (to > end, part.get(end - from..)) {
            sample[end..to].copy_from_slice(new);
            end = to;
        }
        next = fragment.next;
    }
    if end != size {
        return ptr::null_mut();
    }
    // SAFETY: the first fragment is not null since `size` is not 0; the type is one of ours.
    unsafe { Native::make(of, kind, bytes, (*first).key_hash(), (*first).sequence()) }
}

/// Makes a sample from a sample of another type of this process.
unsafe extern "C" fn from_vector(
    of: *const ddsi_sertype,
    kind: ddsi_serdata_kind,
    count: ddsrt_msg_iovlen_t,
    parts: *const ddsrt_iovec_t,
    size: usize,
) -> *mut ddsi_serdata {
    let Ok(mut bytes) = Bytes::zeroed(size) else { return ptr::null_mut() };
    let mut rest = bytes.sample_mut();
    for number in 0..count {
        // SAFETY: Cyclone passes an array of `count` parts, each with its address and length.
        let part = unsafe {
            let part = &*parts.add(number);
            slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len)
        };
        let (into, after) = rest.split_at_mut(part.len().min(rest.len()));
        into.copy_from_slice(&part[..into.len()]);
        rest = after;
    }
    // SAFETY: the type is one of ours.
    unsafe { Native::make(of, kind, bytes, None, None) }
}

/// Makes the sample of a disposal that arrived with only the hash of its key.
unsafe extern "C" fn from_key_hash(of: *const ddsi_sertype, key: *const ddsi_keyhash) -> *mut ddsi_serdata {
    let Ok(bytes) = Bytes::zeroed(HEADER) else { return ptr::null_mut() };
    // SAFETY: Cyclone passes a key hash of 16 bytes and a type of ours.
    unsafe { Native::make(of, ddsi_serdata_kind_SDK_KEY, bytes, Some(key.cast::<[u8; 16]>().read()), None) }
}

unsafe extern "C" fn copy_out(sample: *const ddsi_serdata, offset: usize, size: usize, to: *mut c_void) {
    // SAFETY: Cyclone passes a sample with these functions.
    let bytes = unsafe { &Native::of(sample).bytes };
    let from = bytes.all().get(START + offset..).unwrap_or_default();
    // SAFETY: `to` has room for `size` bytes.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.cast::<u8>(), size.min(from.len())) }
}

/// Lends bytes of a sample. `size` may extend to the next multiple of 4 after the sample; the
/// buffer has these bytes, because it consists of whole words.
unsafe extern "C" fn lend(
    sample: *const ddsi_serdata,
    offset: usize,
    size: usize,
    part: *mut ddsrt_iovec_t,
) -> *mut ddsi_serdata {
    // SAFETY: Cyclone passes a sample with these functions and a place for the result; the
    // reference that is added keeps the bytes where they are until `take_back`.
    unsafe {
        let from = Native::of(sample).bytes.all().as_ptr().add(START + offset);
        (*part).iov_base = from.cast_mut().cast();
        (*part).iov_len = size as _;
        ddsi_serdata_ref(sample)
    }
}

unsafe extern "C" fn take_back(sample: *mut ddsi_serdata, _: *const ddsrt_iovec_t) {
    // SAFETY: the reference is the one that `lend` added.
    unsafe { cyclors::ddsi_serdata_unref(sample) }
}

/// Makes a sample with only the key, for Cyclone's table of instances.
unsafe extern "C" fn to_untyped(sample: *const ddsi_serdata) -> *mut ddsi_serdata {
    let Ok(bytes) = Bytes::zeroed(HEADER) else { return ptr::null_mut() };
    // SAFETY: Cyclone passes a sample with these functions. Samples without a type may outlive it,
    // so the type is cleared.
    unsafe {
        let native = Native::of(sample);
        let key = Native::make(native.base.type_, ddsi_serdata_kind_SDK_KEY, bytes, native.key_hash, None);
        (*key).type_ = ptr::null();
        (*key).timestamp.v = i64::MIN;
        key
    }
}

unsafe extern "C" fn free(sample: *mut ddsi_serdata) {
    // SAFETY: the last reference to a sample that `Native::make` put into a box is gone.
    drop(unsafe { Box::from_raw(sample.cast::<Native>()) });
}

/// Writes what Cyclone's trace shows of a sample: an empty text.
unsafe extern "C" fn print(_: *const ddsi_sertype, _: *const ddsi_serdata, to: *mut c_char, size: usize) -> usize {
    if size > 0 {
        // SAFETY: `to` has room for `size` bytes.
        unsafe { *to = 0 };
    }
    0
}

unsafe extern "C" fn key_hash(sample: *const ddsi_serdata, to: *mut ddsi_keyhash, _force_md5: bool) {
    // SAFETY: Cyclone passes a sample with these functions and a place for 16 bytes.
    unsafe { to.cast::<[u8; 16]>().write(Native::of(sample).key_hash.unwrap_or_default()) }
}

unsafe extern "C" {
    /// Adds a reference. An inline function of C that the library has, and the bindings leave out.
    fn ddsi_serdata_ref(sample: *const ddsi_serdata) -> *mut ddsi_serdata;
}
