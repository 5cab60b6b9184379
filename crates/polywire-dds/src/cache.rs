//! The receiving end of a reader: a reader history cache of DDS that keeps nothing and passes each
//! sample on as it arrives.
//!
//! Cyclone's own cache sorts samples by instance, for which it needs their keys, and it merges what
//! happens to one instance between two calls of the application. Here the receiver sees every
//! sample, in the order of arrival.

use std::{ffi::c_void, sync::Arc};

use cyclors::ddsi_serdata;

use crate::{
    guid::Guid,
    sample::{Sample, of_native},
};

/// Takes the samples that arrive at a [`Reader`](crate::Reader).
pub trait Receive: Send + Sync {
    /// Takes a sample of a writer. Called on Cyclone's threads, or on the thread that writes if the
    /// writer belongs to this process. Must neither block nor panic.
    ///
    /// Returns false if there is no room: the sample is offered again a little later. Meanwhile no
    /// other sample arrives at any reader of the domain in this process, and reliable writers have
    /// to wait.
    fn receive(&self, writer: Guid, sample: Sample) -> bool;
}

/// `struct dds_rhc` of `dds_rhc.h`, which the bindings leave out, and our receiver.
#[repr(C)]
pub(crate) struct Cache {
    ops: &'static Ops,
    receiver: Arc<dyn Receive>,
}

impl Cache {
    /// Makes a cache, which the reader that is created with it owns.
    pub(crate) fn new(receiver: Arc<dyn Receive>) -> *mut Cache {
        Box::into_raw(Box::new(Cache { ops: &OPS, receiver }))
    }
}

/// `struct ddsi_writer_info` of `ddsi_rhc.h`. Only its first field is read here.
#[repr(C)]
struct WriterInfo {
    /// In the byte order of the machine.
    guid: [u32; 4],
}

/// `struct dds_rhc_ops` of `dds_rhc.h`.
#[repr(C)]
struct Ops {
    store: unsafe extern "C" fn(*mut Cache, *const WriterInfo, *mut ddsi_serdata, *mut c_void) -> bool,
    unregister_writer: unsafe extern "C" fn(*mut Cache, *const WriterInfo),
    relinquish_ownership: unsafe extern "C" fn(*mut Cache, u64),
    free: unsafe extern "C" fn(*mut Cache),
    peek: Read,
    read: Read,
    take: Read,
    add_condition: unsafe extern "C" fn(*mut Cache, *mut c_void) -> bool,
    remove_condition: unsafe extern "C" fn(*mut Cache, *mut c_void),
    associate: unsafe extern "C" fn(*mut Cache, *mut c_void) -> i32,
}

type Read =
    unsafe extern "C" fn(*mut Cache, i32, u32, u64, *mut c_void, Option<unsafe extern "C" fn()>, *mut c_void) -> i32;

static OPS: Ops = Ops {
    store,
    unregister_writer,
    relinquish_ownership,
    free,
    peek: nothing,
    read: nothing,
    take: nothing,
    add_condition,
    remove_condition,
    associate,
};

// The functions below are called by Cyclone alone, with a cache that `Cache::new` made.

unsafe extern "C" fn store(
    cache: *mut Cache,
    writer: *const WriterInfo,
    sample: *mut ddsi_serdata,
    _instance: *mut c_void,
) -> bool {
    // SAFETY: Cyclone passes the cache, the writer's description and a sample of the reader's type,
    // which is one of ours, all valid during the call.
    let (cache, writer, sample) = unsafe { (&*cache, &*writer, of_native(sample)) };
    cache.receiver.receive(Guid::of_words(writer.guid), sample)
}

/// Does nothing: discovery reports writers that leave.
unsafe extern "C" fn unregister_writer(_: *mut Cache, _: *const WriterInfo) {}

unsafe extern "C" fn relinquish_ownership(_: *mut Cache, _: u64) {}

unsafe extern "C" fn free(cache: *mut Cache) {
    // SAFETY: the reader is gone, and `Cache::new` put the cache into a box.
    drop(unsafe { Box::from_raw(cache) });
}

/// Reads nothing: the cache keeps no samples.
unsafe extern "C" fn nothing(
    _: *mut Cache,
    _: i32,
    _: u32,
    _: u64,
    _: *mut c_void,
    _: Option<unsafe extern "C" fn()>,
    _: *mut c_void,
) -> i32 {
    0
}

unsafe extern "C" fn add_condition(_: *mut Cache, _: *mut c_void) -> bool {
    false
}

unsafe extern "C" fn remove_condition(_: *mut Cache, _: *mut c_void) {}

unsafe extern "C" fn associate(_: *mut Cache, _: *mut c_void) -> i32 {
    0
}
