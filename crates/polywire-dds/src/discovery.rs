//! The built-in topics of DDS: who is in the domain, and who writes and reads what.

use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
};

use cyclors::{
    DDS_BUILTIN_TOPIC_DCPSPARTICIPANT, DDS_BUILTIN_TOPIC_DCPSPUBLICATION, DDS_BUILTIN_TOPIC_DCPSSUBSCRIPTION,
    dds_builtintopic_endpoint_t, dds_builtintopic_get_endpoint_type_info, dds_builtintopic_participant_t,
    dds_create_listener, dds_create_reader, dds_delete_listener, dds_entity_t, dds_instance_state_DDS_IST_ALIVE,
    dds_lset_data_available_arg, dds_return_loan, dds_sample_info_t, dds_take,
};

use crate::{
    entity::{Entity, Participant},
    error::Error,
    guid::Guid,
    qos::Qos,
    types::TypeInformation,
};

/// The longest name of a topic or type that is read, in bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// Samples that are taken at a time.
const BATCH: usize = 32;

/// A report of discovery, which also covers this process's own entities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// A participant has appeared, or has changed its user data.
    Participant {
        /// The participant's GUID.
        guid: Guid,
        /// Its user data.
        user_data: Vec<u8>,
    },
    /// A writer has appeared, or has changed its policies.
    Writer(Endpoint),
    /// A reader has appeared, or has changed its policies.
    Reader(Endpoint),
    /// A participant, writer or reader has gone.
    Gone(Guid),
}

/// A writer or a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its GUID.
    pub guid: Guid,
    /// The GUID of its participant.
    pub participant: Guid,
    /// The name of its topic.
    pub topic: String,
    /// The name of its type.
    pub type_name: String,
    /// Its policies.
    pub qos: Qos,
    /// Its type information, if it publishes any.
    pub types: Option<TypeInformation>,
}

/// The function that is called with each [`Discovery`].
type OnDiscovery = Box<dyn Fn(Discovery) + Send + Sync>;

/// Reports discovery until dropped.
pub struct Watch {
    // Dropped in this order: the function outlives the entities that call it.
    _readers: [Entity; 3],
    _function: Function,
    _participant: Participant,
}

struct Function(*mut OnDiscovery);

// SAFETY: the function may be called from any thread.
unsafe impl Send for Function {}
// SAFETY: a shared handle offers nothing but its address.
unsafe impl Sync for Function {}

impl Drop for Function {
    fn drop(&mut self) {
        // SAFETY: the readers that may have called are deleted, and `watch` put it into a box.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl Participant {
    /// Calls a function with everything that discovery reports, beginning with what is already
    /// known. The function is called on Cyclone's threads, several at a time; it must neither block
    /// nor panic.
    ///
    /// ```
    /// use polywire_dds::{Discovery, LOOPBACK, Participant, Qos};
    /// use std::{sync::mpsc, time::Duration};
    /// let participant = Participant::new(102, Some(LOOPBACK), &Qos::default())?;
    /// let (sender, discovered) = mpsc::channel();
    /// let _watch = participant.watch(move |discovery| sender.send(discovery).unwrap())?;
    /// let _writer = participant.topic("pumps", "plant::Pump", false)?.writer(&Qos::default(), |_| {})?;
    /// loop {
    ///     let next = discovered.recv_timeout(Duration::from_secs(20)).expect("the writer is discovered");
    ///     if matches!(&next, Discovery::Writer(writer) if writer.topic == "pumps") {
    ///         break;
    ///     }
    /// }
    /// # Ok::<(), polywire_dds::Error>(())
    /// ```
    pub fn watch(&self, on_discovery: impl Fn(Discovery) + Send + Sync + 'static) -> Result<Watch, Error> {
        self.check()?;
        let on_discovery: OnDiscovery = Box::new(on_discovery);
        let function = Function(Box::into_raw(Box::new(on_discovery)));
        let argument = function.0.cast::<c_void>();
        let reader = |topic: dds_entity_t, available: OnAvailable| {
            // SAFETY: the listener is copied by the reader, and what its function gets lives longer
            // than the reader.
            let created = unsafe {
                let listener = dds_create_listener(ptr::null_mut());
                dds_lset_data_available_arg(listener, Some(available), argument, true);
                let created = dds_create_reader(self.handle(), topic, ptr::null(), listener);
                dds_delete_listener(listener);
                created
            };
            let reader = Entity::new("read a built-in topic", created)?;
            // SAFETY: the reader and the argument are those of the listener, which has the same
            // function. This takes what arrived before the listener existed.
            unsafe { available(reader.handle(), argument) };
            Ok::<_, Error>(reader)
        };
        let readers = [
            reader(DDS_BUILTIN_TOPIC_DCPSPARTICIPANT, participants)?,
            reader(DDS_BUILTIN_TOPIC_DCPSPUBLICATION, writers)?,
            reader(DDS_BUILTIN_TOPIC_DCPSSUBSCRIPTION, readers)?,
        ];
        Ok(Watch { _readers: readers, _function: function, _participant: self.clone() })
    }
}

type OnAvailable = unsafe extern "C" fn(dds_entity_t, *mut c_void);

unsafe extern "C" fn participants(reader: dds_entity_t, argument: *mut c_void) {
    // SAFETY: the reader is one of this built-in topic, and the argument is the function.
    unsafe {
        take(reader, argument, |sample: &dds_builtintopic_participant_t| (Guid(sample.key.v), participant(sample)))
    }
}

unsafe extern "C" fn writers(reader: dds_entity_t, argument: *mut c_void) {
    // SAFETY: the reader is one of this built-in topic, and the argument is the function.
    unsafe {
        take(reader, argument, |sample: &dds_builtintopic_endpoint_t| {
            (Guid(sample.key.v), Discovery::Writer(endpoint(sample)))
        });
    }
}

unsafe extern "C" fn readers(reader: dds_entity_t, argument: *mut c_void) {
    // SAFETY: the reader is one of this built-in topic, and the argument is the function.
    unsafe {
        take(reader, argument, |sample: &dds_builtintopic_endpoint_t| {
            (Guid(sample.key.v), Discovery::Reader(endpoint(sample)))
        });
    }
}

/// Takes everything that a reader has.
///
/// # Safety
///
/// The samples of `reader` have the type `T`, and `argument` is an [`OnDiscovery`].
unsafe fn take<T>(reader: dds_entity_t, argument: *mut c_void, read: impl Fn(&T) -> (Guid, Discovery)) {
    // SAFETY: the caller promises it.
    let on_discovery = unsafe { &*argument.cast::<OnDiscovery>() };
    loop {
        let mut samples = [ptr::null_mut::<c_void>(); BATCH];
        // SAFETY: all-zero is a valid description: integers and a bool.
        let mut infos: [dds_sample_info_t; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: both arrays have `BATCH` places; a null pointer in the first asks for a loan.
        let taken = unsafe { dds_take(reader, samples.as_mut_ptr(), infos.as_mut_ptr(), BATCH, BATCH as u32) };
        let Ok(count @ 1..) = usize::try_from(taken) else { return };
        for (sample, info) in samples.iter().zip(&infos).take(count) {
            // SAFETY: the loaned samples have this type; without valid data their key is valid.
            let (guid, discovery) = unsafe { read(&*sample.cast::<T>()) };
            let is_there = info.valid_data && info.instance_state == dds_instance_state_DDS_IST_ALIVE;
            on_discovery(if is_there { discovery } else { Discovery::Gone(guid) });
        }
        // SAFETY: these samples were loaned by this reader.
        unsafe { dds_return_loan(reader, samples.as_mut_ptr(), taken) };
    }
}

fn participant(sample: &dds_builtintopic_participant_t) -> Discovery {
    // SAFETY: the policies of a loaned sample are valid, or null without valid data.
    let qos = unsafe { Qos::read(sample.qos) };
    Discovery::Participant { guid: Guid(sample.key.v), user_data: qos.user_data }
}

fn endpoint(sample: &dds_builtintopic_endpoint_t) -> Endpoint {
    let mut types = ptr::null();
    // SAFETY: texts, policies and type information of a loaned sample are valid, or null without
    // valid data. The call for the last only reads the sample.
    unsafe {
        dds_builtintopic_get_endpoint_type_info(ptr::from_ref(sample).cast_mut(), &raw mut types);
        Endpoint {
            guid: Guid(sample.key.v),
            participant: Guid(sample.participant_key.v),
            topic: text(sample.topic_name),
            type_name: text(sample.type_name),
            qos: Qos::read(sample.qos),
            types: TypeInformation::copy(types),
        }
    }
}

/// Reads a text of another program. Bytes that are not UTF-8 are replaced, and what is too long is
/// cut off.
///
/// # Safety
///
/// `text` is null, or ends with a zero byte.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller promises it.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT_BYTES)]).into_owned()
}
