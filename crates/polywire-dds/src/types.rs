//! Types as DDS-XTypes describes them: what a topic publishes of its own type, and what other
//! programs publish of theirs.
//!
//! Discovery carries the hashes of a type's parts. The parts themselves must be requested: Cyclone
//! keeps those that have arrived.

use std::{fmt, ptr, slice, sync::Arc};

use cyclors::{
    dds_free, dds_return_t, ddsi_domaingv, ddsi_type, ddsi_type_include_deps_DDSI_TYPE_INCLUDE_DEPS,
    ddsi_type_request_DDSI_TYPE_NO_REQUEST, ddsi_type_request_DDSI_TYPE_SEND_REQUEST, ddsi_type_unref, ddsi_typeid,
    ddsi_typeid_kind, ddsi_typeinfo, ddsi_typeinfo_complete_typeid, ddsi_typeinfo_deser, ddsi_typeinfo_dup,
    ddsi_typeinfo_equal, ddsi_typeinfo_free, ddsi_typeinfo_typeid, ddsi_typeinfo_valid, ddsi_typemap,
    ddsi_typemap_deser, ddsi_typemap_fini, ddsi_wait_for_type_resolved,
};

use crate::{entity::Participant, error::Error};

/// Serializes information about a resolved type into newly allocated memory.
type Write = unsafe extern "C" fn(*mut ddsi_domaingv, *const ddsi_type, *mut *mut u8, *mut u32) -> dds_return_t;

// Functions of `ddsi__typelib.h`, which the bindings leave out.
unsafe extern "C" {
    fn ddsi_type_get_typeinfo_ser(
        of: *mut ddsi_domaingv,
        which: *const ddsi_type,
        data: *mut *mut u8,
        size: *mut u32,
    ) -> dds_return_t;
    fn ddsi_type_get_typemap_ser(
        of: *mut ddsi_domaingv,
        which: *const ddsi_type,
        data: *mut *mut u8,
        size: *mut u32,
    ) -> dds_return_t;
}

/// A type as `TypeInformation` and `TypeMapping` of XTypes, in XCDR2, little endian, without a
/// header. `polywire_core::schema::TypeObjects` makes and reads the bytes.
///
/// ```
/// use polywire_dds::{LOOPBACK, Participant, Qos, TypeObjects};
/// let participant = Participant::new(103, Some(LOOPBACK), &Qos::default())?;
/// let malformed = TypeObjects { information: vec![1], mapping: vec![2] };
/// assert!(participant.described_topic("pumps", "plant::Pump", false, &malformed).is_err());
/// # Ok::<(), polywire_dds::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TypeObjects {
    /// The hashes of the type and of the types that it needs.
    pub information: Vec<u8>,
    /// The parts of the type by their hashes.
    pub mapping: Vec<u8>,
}

impl TypeObjects {
    /// Fails if Cyclone cannot read the bytes. Cyclone expects the types of its own topics to be
    /// valid.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let invalid = Error::Call { action: "describe a type", reason: "its type information is malformed", code: -3 };
        let information = Owned(self.native_information());
        let mapping = self.native_mapping();
        // SAFETY: both are null or new objects; the second is freed here, as Cyclone does it.
        unsafe {
            let is_valid = !information.0.is_null() && ddsi_typeinfo_valid(information.0) && !mapping.is_null();
            if !mapping.is_null() {
                ddsi_typemap_fini(mapping);
                dds_free(mapping.cast());
            }
            is_valid.then_some(()).ok_or(invalid)
        }
    }

    /// Returns a new object, or null if the bytes are malformed.
    pub(crate) fn native_information(&self) -> *mut ddsi_typeinfo {
        // SAFETY: the call gets bytes with their length, and copies them.
        unsafe { ddsi_typeinfo_deser(self.information.as_ptr(), self.information.len() as u32) }
    }

    /// Returns a new object, or null if the bytes are malformed.
    pub(crate) fn native_mapping(&self) -> *mut ddsi_typemap {
        // SAFETY: the call gets bytes with their length, and copies them.
        unsafe { ddsi_typemap_deser(self.mapping.as_ptr(), self.mapping.len() as u32) }
    }

    /// Returns a new object, or null if the bytes are malformed.
    pub(crate) fn native_id(&self, kind: ddsi_typeid_kind) -> *mut ddsi_typeid {
        let information = Owned(self.native_information());
        if information.0.is_null() {
            return ptr::null_mut();
        }
        // SAFETY: the information is there during the call, which copies from it.
        unsafe { ddsi_typeinfo_typeid(information.0, kind) }
    }
}

/// The type information that another program's writer or reader publishes, without the parts of the
/// type.
#[derive(Clone)]
pub struct TypeInformation(Arc<Owned>);

struct Owned(*mut ddsi_typeinfo);

// SAFETY: Cyclone's object has no thread of its own, and is only read.
unsafe impl Send for Owned {}
// SAFETY: nothing changes the object once it is made.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the object is this value's own.
            unsafe { ddsi_typeinfo_free(self.0) }
        }
    }
}

impl TypeInformation {
    /// Copies type information from discovery. `None` if the other program publishes none.
    ///
    /// # Safety
    ///
    /// `information` is null or valid.
    pub(crate) unsafe fn copy(information: *const ddsi_typeinfo) -> Option<TypeInformation> {
        // SAFETY: the caller promises it.
        unsafe {
            let is_there = !information.is_null() && ddsi_typeinfo_valid(information);
            is_there.then(|| TypeInformation(Arc::new(Owned(ddsi_typeinfo_dup(information)))))
        }
    }
}

impl PartialEq for TypeInformation {
    fn eq(&self, other: &TypeInformation) -> bool {
        // SAFETY: both objects are valid.
        unsafe { ddsi_typeinfo_equal(self.0.0, other.0.0, ddsi_type_include_deps_DDSI_TYPE_INCLUDE_DEPS) }
    }
}

impl Eq for TypeInformation {}

impl fmt::Debug for TypeInformation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TypeInformation(..)")
    }
}

impl Participant {
    /// Returns the parts of another program's type, or `None` if they have not arrived yet. Does
    /// not wait. With `ask`, requests the missing parts from other programs.
    ///
    /// `dds_create_topic_descriptor` does the same with public functions, but also makes the
    /// operations of Cyclone's own serializer. If the type has a part that this serializer does not
    /// support, such as a mutable union, Cyclone 11.0.1 frees the operations twice.
    pub fn type_objects(&self, of: &TypeInformation, ask: bool) -> Result<Option<TypeObjects>, Error> {
        self.check()?;
        let domain = self.domain()?;
        let (request, timeout_ns) = match ask {
            // The shortest time: with 0, Cyclone would not send the request.
            true => (ddsi_type_request_DDSI_TYPE_SEND_REQUEST, 1),
            false => (ddsi_type_request_DDSI_TYPE_NO_REQUEST, 0),
        };
        let (parts, mut found) = (ddsi_type_include_deps_DDSI_TYPE_INCLUDE_DEPS, ptr::null_mut());
        // SAFETY: the information is valid, the domain lives as long as the participant, and
        // `found` is a place for the result.
        let code = unsafe {
            let id = ddsi_typeinfo_complete_typeid(of.0.0);
            ddsi_wait_for_type_resolved(domain, id, timeout_ns, &raw mut found, parts, request)
        };
        match code {
            // Timed out, or nobody to ask is known yet.
            -10 | -4 => Ok(None),
            _ => {
                Error::check("read a type", code)?;
                // SAFETY: the call succeeded, so the type and its parts are there, with a reference
                // that is given back here.
                unsafe {
                    let information = written(ddsi_type_get_typeinfo_ser, domain, found);
                    let mapping = written(ddsi_type_get_typemap_ser, domain, found);
                    ddsi_type_unref(domain, found);
                    Ok(Some(TypeObjects { information: information?, mapping: mapping? }))
                }
            }
        }
    }
}

/// # Safety
///
/// The type is one of the domain, and resolved, and the caller has a reference to it.
unsafe fn written(write: Write, domain: *mut ddsi_domaingv, of: *const ddsi_type) -> Result<Vec<u8>, Error> {
    let (mut data, mut size) = (ptr::null_mut(), 0);
    // SAFETY: the caller promises what the function expects; if it succeeds, it has allocated as
    // many bytes as it says, which are freed here.
    unsafe {
        Error::check("read a type", write(domain, of, &raw mut data, &raw mut size))?;
        if data.is_null() {
            return Ok(Vec::new());
        }
        let bytes = slice::from_raw_parts(data, size as usize).to_vec();
        dds_free(data.cast());
        Ok(bytes)
    }
}
