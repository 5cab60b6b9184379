//! Quality of service, and its translation to and from Cyclone's.

use std::{
    ffi::{CString, c_char, c_void},
    ptr, slice,
    time::Duration,
};

use cyclors::{
    dds_create_qos, dds_data_representation_id_t, dds_delete_qos, dds_free,
    dds_ignorelocal_kind_DDS_IGNORELOCAL_PARTICIPANT, dds_qget_data_representation, dds_qget_deadline,
    dds_qget_destination_order, dds_qget_durability, dds_qget_history, dds_qget_latency_budget, dds_qget_lifespan,
    dds_qget_liveliness, dds_qget_ownership, dds_qget_ownership_strength, dds_qget_partition, dds_qget_reliability,
    dds_qget_transport_priority, dds_qget_userdata, dds_qos_t, dds_qset_data_representation, dds_qset_deadline,
    dds_qset_destination_order, dds_qset_durability, dds_qset_durability_service, dds_qset_history,
    dds_qset_ignorelocal, dds_qset_latency_budget, dds_qset_lifespan, dds_qset_liveliness, dds_qset_ownership,
    dds_qset_ownership_strength, dds_qset_partition, dds_qset_reliability, dds_qset_transport_priority,
    dds_qset_userdata, dds_qset_writer_data_lifecycle,
};

use crate::{discovery::text, error::Error};

/// The maximum number of partitions that are read from another program's endpoint.
const MAX_PARTITIONS: usize = 64;

/// Cyclone's infinite duration, in nanoseconds.
pub(crate) const INFINITE: i64 = i64::MAX;

/// Cyclone's number for "no limit".
const UNLIMITED: i32 = -1;

/// The policies of a participant, a writer or a reader, as far as this crate sets and reads them.
///
/// The defaults are DDS's, except that a history keeps all samples, that a writer does not dispose
/// of its instances when it unregisters them, and that the readers of a participant never get what
/// its own writers send.
///
/// ```
/// use polywire_dds::{Durability, Qos};
/// use std::time::Duration;
/// let qos = Qos { deadline: Some(Duration::from_millis(20)), durability: Durability::TransientLocal, ..Qos::default() };
/// assert_eq!(qos.round_trip()?, qos);
/// # Ok::<(), polywire_dds::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qos {
    /// `Some` for reliable; then the longest time that a write blocks while the writer's history
    /// has no room. `None` for best effort.
    pub reliable: Option<Duration>,
    /// Whether late joiners get samples that were written before.
    pub durability: Durability,
    /// `Some` with the number of samples that are kept of each instance; `None` for all.
    pub keep_last: Option<u32>,
    /// `Some` with the number of samples of each instance that a writer keeps for late joiners.
    /// `None` leaves it at one.
    pub service_depth: Option<u32>,
    /// The maximum time between two samples of an instance; `None` for no limit.
    pub deadline: Option<Duration>,
    /// Acceptable delay.
    pub latency_budget: Duration,
    /// Time after which a sample is worthless; `None` for never.
    pub lifespan: Option<Duration>,
    /// How a writer shows that it is alive.
    pub liveliness: Liveliness,
    /// The time without a sign of life after which a writer counts as gone; `None` for no limit.
    pub lease: Option<Duration>,
    /// `Some` with the writer's strength for exclusive ownership; `None` for shared ownership.
    pub exclusive: Option<i32>,
    /// Partitions. Empty for the default partition.
    pub partitions: Vec<String>,
    /// Whether the samples of an instance are ordered by their source timestamps instead of by
    /// reception.
    pub by_source: bool,
    /// Importance to the transport.
    pub transport_priority: i32,
    /// Bytes that discovery shows to others.
    pub user_data: Vec<u8>,
    /// The data representations that a writer sends or a reader takes. Empty for the default.
    pub representations: Vec<Representation>,
}

/// Whether late joiners get samples that were written before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Late joiners do not get them.
    #[default]
    Volatile,
    /// Late joiners get them as long as the writer exists.
    TransientLocal,
    /// Late joiners get them as long as a durability service exists.
    Transient,
    /// Late joiners get them as long as a durability service has them on disk.
    Persistent,
}

/// How a writer shows that it is alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Liveliness {
    /// The participant asserts it by itself.
    #[default]
    Automatic,
    /// The application asserts it for all writers of the participant.
    ManualByParticipant,
    /// The application asserts it for each writer.
    ManualByTopic,
}

/// A data representation of XTypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// XCDR version 1, which includes plain CDR.
    Xcdr1,
    /// XCDR version 2.
    Xcdr2,
    /// Another one, by its number.
    Other(i16),
}

impl Representation {
    const fn number(self) -> dds_data_representation_id_t {
        match self {
            Representation::Xcdr1 => 0,
            Representation::Xcdr2 => 2,
            Representation::Other(number) => number,
        }
    }

    const fn of_number(number: dds_data_representation_id_t) -> Representation {
        match number {
            0 => Representation::Xcdr1,
            2 => Representation::Xcdr2,
            other => Representation::Other(other),
        }
    }
}

/// A `dds_qos_t` that is deleted when dropped.
pub(crate) struct Native(*mut dds_qos_t);

impl Native {
    #[cfg(feature = "security")]
    pub(crate) fn as_mut_ptr(&self) -> *mut dds_qos_t {
        self.0
    }

    pub(crate) fn as_ptr(&self) -> *const dds_qos_t {
        self.0
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: `Qos::native` made the object, and nobody else has it.
        unsafe { dds_delete_qos(self.0) }
    }
}

impl Qos {
    /// Converts these policies to Cyclone's object and back. Fails if a partition has a zero byte.
    pub fn round_trip(&self) -> Result<Qos, Error> {
        let native = self.native()?;
        // SAFETY: `native` is a valid object until the end of this function.
        Ok(unsafe { Qos::read(native.as_ptr()) })
    }

    pub(crate) fn native(&self) -> Result<Native, Error> {
        let text = |name: &String| CString::new(name.as_str()).map_err(|_| Error::Text(name.clone()));
        let partitions: Vec<CString> = self.partitions.iter().map(text).collect::<Result<_, _>>()?;
        let mut names: Vec<*const c_char> = partitions.iter().map(|name| name.as_ptr()).collect();
        let representations: Vec<_> = self.representations.iter().map(|one| one.number()).collect();
        let (kind, blocking) = self.reliable.map_or((0, Duration::ZERO), |blocking| (1, blocking));
        let (keep, depth) = self.keep_last.map_or((1, UNLIMITED), |depth| (0, number(depth)));
        // SAFETY: the setters copy what they get; strings and slices live until the end of the
        // block, with the lengths that are passed.
        unsafe {
            let qos = dds_create_qos();
            dds_qset_reliability(qos, kind, nanoseconds(Some(blocking)));
            dds_qset_durability(qos, self.durability as u32);
            dds_qset_history(qos, keep, depth);
            if let Some(depth) = self.service_depth {
                dds_qset_durability_service(qos, 0, 0, number(depth), UNLIMITED, UNLIMITED, UNLIMITED);
            }
            dds_qset_deadline(qos, nanoseconds(self.deadline));
            dds_qset_latency_budget(qos, nanoseconds(Some(self.latency_budget)));
            dds_qset_lifespan(qos, nanoseconds(self.lifespan));
            // If this is not set, a participant gets its lease from the configuration. Set to no
            // limit, the participant would never leave.
            if (self.liveliness, self.lease) != (Liveliness::default(), None) {
                dds_qset_liveliness(qos, self.liveliness as u32, nanoseconds(self.lease));
            }
            dds_qset_ownership(qos, u32::from(self.exclusive.is_some()));
            dds_qset_ownership_strength(qos, self.exclusive.unwrap_or_default());
            if !names.is_empty() {
                dds_qset_partition(qos, names.len() as u32, names.as_mut_ptr());
            }
            dds_qset_destination_order(qos, u32::from(self.by_source));
            dds_qset_transport_priority(qos, self.transport_priority);
            dds_qset_userdata(qos, self.user_data.as_ptr().cast::<c_void>(), self.user_data.len());
            if !representations.is_empty() {
                dds_qset_data_representation(qos, representations.len() as u32, representations.as_ptr());
            }
            dds_qset_writer_data_lifecycle(qos, false);
            dds_qset_ignorelocal(qos, dds_ignorelocal_kind_DDS_IGNORELOCAL_PARTICIPANT);
            Ok(Native(qos))
        }
    }

    /// Reads Cyclone's object, which may describe another program's endpoint. Policies that are not
    /// set have their defaults.
    ///
    /// # Safety
    ///
    /// `qos` is null or points to a valid object.
    pub(crate) unsafe fn read(qos: *const dds_qos_t) -> Qos {
        let mut read = Qos::default();
        if qos.is_null() {
            return read;
        }
        let (mut kind, mut time, mut value) = (0, 0, 0);
        // SAFETY: the caller promises a valid object. The getters write to the places passed, and
        // return false without writing if a policy is not set.
        unsafe {
            if dds_qget_reliability(qos, &raw mut kind, &raw mut time) && kind == 1 {
                read.reliable = Some(duration(time).unwrap_or(Duration::MAX));
            }
            if dds_qget_durability(qos, &raw mut kind) {
                read.durability = durability(kind);
            }
            if dds_qget_history(qos, &raw mut kind, &raw mut value) && kind == 0 {
                read.keep_last = Some(value.unsigned_abs());
            }
            if dds_qget_deadline(qos, &raw mut time) {
                read.deadline = duration(time);
            }
            if dds_qget_latency_budget(qos, &raw mut time) {
                read.latency_budget = duration(time).unwrap_or(Duration::MAX);
            }
            if dds_qget_lifespan(qos, &raw mut time) {
                read.lifespan = duration(time);
            }
            if dds_qget_liveliness(qos, &raw mut kind, &raw mut time) {
                (read.liveliness, read.lease) = (liveliness(kind), duration(time));
            }
            if dds_qget_ownership(qos, &raw mut kind) && kind == 1 {
                let is_set = dds_qget_ownership_strength(qos, &raw mut value);
                read.exclusive = Some(if is_set { value } else { 0 });
            }
            if dds_qget_destination_order(qos, &raw mut kind) {
                read.by_source = kind == 1;
            }
            if dds_qget_transport_priority(qos, &raw mut value) {
                read.transport_priority = value;
            }
            read.partitions = partitions(qos);
            read.user_data = user_data(qos);
            read.representations = representations(qos);
        }
        read
    }
}

fn durability(kind: u32) -> Durability {
    match kind {
        0 => Durability::Volatile,
        1 => Durability::TransientLocal,
        2 => Durability::Transient,
        _ => Durability::Persistent,
    }
}

fn liveliness(kind: u32) -> Liveliness {
    match kind {
        0 => Liveliness::Automatic,
        1 => Liveliness::ManualByParticipant,
        _ => Liveliness::ManualByTopic,
    }
}

/// # Safety
///
/// `qos` points to a valid object.
unsafe fn partitions(qos: *const dds_qos_t) -> Vec<String> {
    let (mut count, mut names) = (0, ptr::null_mut::<*mut c_char>());
    // SAFETY: if the getter returns true, `names` is an array of `count` strings that end with a
    // zero byte; the caller frees them and the array by `dds_free`.
    unsafe {
        if !dds_qget_partition(qos, &raw mut count, &raw mut names) || names.is_null() {
            return Vec::new();
        }
        let all = slice::from_raw_parts(names, count as usize);
        let read = all.iter().take(MAX_PARTITIONS).map(|name| text(*name)).collect();
        all.iter().for_each(|name| dds_free(name.cast()));
        dds_free(names.cast());
        read
    }
}

/// # Safety
///
/// `qos` points to a valid object.
unsafe fn user_data(qos: *const dds_qos_t) -> Vec<u8> {
    let (mut bytes, mut size) = (ptr::null_mut::<c_void>(), 0);
    // SAFETY: if the getter returns true and `size` is not 0, `bytes` is memory of that size, which
    // the caller frees by `dds_free`.
    unsafe {
        if !dds_qget_userdata(qos, &raw mut bytes, &raw mut size) || bytes.is_null() {
            return Vec::new();
        }
        let read = slice::from_raw_parts(bytes.cast::<u8>(), size).to_vec();
        dds_free(bytes);
        read
    }
}

/// # Safety
///
/// `qos` points to a valid object.
unsafe fn representations(qos: *const dds_qos_t) -> Vec<Representation> {
    let (mut count, mut numbers) = (0, ptr::null_mut());
    // SAFETY: if the getter returns true and `count` is not 0, `numbers` is an array of that
    // length, which the caller frees by `dds_free`.
    unsafe {
        if !dds_qget_data_representation(qos, &raw mut count, &raw mut numbers) || numbers.is_null() {
            return Vec::new();
        }
        let all = slice::from_raw_parts(numbers, count as usize);
        let read = all.iter().map(|number| Representation::of_number(*number)).collect();
        dds_free(numbers.cast());
        read
    }
}

fn number(depth: u32) -> i32 {
    i32::try_from(depth).unwrap_or(i32::MAX).max(1)
}

fn nanoseconds(duration: Option<Duration>) -> i64 {
    duration.and_then(|duration| i64::try_from(duration.as_nanos()).ok()).unwrap_or(INFINITE)
}

fn duration(nanoseconds: i64) -> Option<Duration> {
    (nanoseconds != INFINITE).then(|| Duration::from_nanos(nanoseconds.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_participant_leaves_its_lease_to_the_configuration() {
        let (mut kind, mut time) = (0, 0);
        let is_set = |qos: &Qos, kind: &mut u32, time: &mut i64| {
            let native = qos.native().expect("valid");
            // SAFETY: `native` is a valid object until the end of the block.
            unsafe { dds_qget_liveliness(native.as_ptr(), kind, time) }
        };
        assert!(!is_set(&Qos::default(), &mut kind, &mut time));
        let lease = Some(Duration::from_secs(3));
        assert!(is_set(&Qos { lease, ..Qos::default() }, &mut kind, &mut time));
        assert_eq!((kind, time), (0, 3_000_000_000));
    }
}
