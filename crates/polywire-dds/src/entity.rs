//! Participants, topics, writers and readers.

use std::{
    collections::BTreeMap,
    ffi::{CString, c_void},
    ptr,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cyclors::{
    dds_assert_liveliness, dds_builtintopic_endpoint_t, dds_builtintopic_free_endpoint, dds_create_domain,
    dds_create_listener, dds_create_participant, dds_create_reader_rhc, dds_create_topic_sertype, dds_create_writer,
    dds_delete, dds_delete_listener, dds_entity_t, dds_forwardcdr, dds_get_guid, dds_get_matched_publication_data,
    dds_get_matched_publications, dds_get_matched_subscription_data, dds_get_matched_subscriptions, dds_guid_t,
    dds_instance_handle_t, dds_listener_t, dds_liveliness_changed_status_t, dds_lset_liveliness_changed_arg,
    dds_lset_offered_incompatible_qos_arg, dds_lset_publication_matched_arg, dds_lset_requested_incompatible_qos_arg,
    dds_lset_subscription_matched_arg, dds_offered_incompatible_qos_status_t, dds_publication_matched_status_t,
    dds_requested_incompatible_qos_status_t, dds_subscription_matched_status_t, dds_wait_for_acks, ddsi_domaingv,
    ddsi_sertype, ddsi_sertype_ref, ddsi_sertype_unref,
};
use parking_lot::Mutex;

use crate::{
    cache::{Cache, Receive},
    error::Error,
    expiry::Expiry,
    guid::Guid,
    logs,
    qos::{Native, Qos},
    sample::{Sample, new_type, to_native},
    types::TypeObjects,
};

/// The bits of a type's counter that count its references.
const REFERENCES: u32 = 0x0fff_ffff;

/// An entity that is deleted, with all that belongs to it, when dropped.
#[derive(Debug)]
pub(crate) struct Entity(dds_entity_t);

impl Entity {
    pub(crate) fn new(action: &'static str, created: dds_entity_t) -> Result<Entity, Error> {
        Error::check(action, created).map(Entity)
    }

    pub(crate) fn handle(&self) -> dds_entity_t {
        self.0
    }

    fn guid(&self) -> Result<Guid, Error> {
        let mut guid = dds_guid_t { v: [0; 16] };
        // SAFETY: `guid` is a place for the result.
        Error::check("name an entity", unsafe { dds_get_guid(self.0, &raw mut guid) })?;
        Ok(Guid(guid.v))
    }
}

impl Drop for Entity {
    fn drop(&mut self) {
        // SAFETY: a handle may be deleted at any time. The call waits for listeners that run.
        unsafe { dds_delete(self.0) };
    }
}

/// The domains that this process has opened with a configuration.
static DOMAINS: Mutex<BTreeMap<u32, Weak<Domain>>> = Mutex::new(BTreeMap::new());

struct Domain {
    configuration: String,
    _entity: Entity,
}

/// The domains in which this process has participants: how many, and the number of the opening.
static OPENINGS: Mutex<BTreeMap<u32, (usize, u64)>> = Mutex::new(BTreeMap::new());

/// Counts a participant for as long as it exists.
struct Counted(u32);

impl Counted {
    fn new(domain_number: u32) -> Counted {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let first = || (0, LAST.fetch_add(1, Ordering::Relaxed) + 1);
        OPENINGS.lock().entry(domain_number).or_insert_with(first).0 += 1;
        Counted(domain_number)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut openings = OPENINGS.lock();
        if let Some((count, _)) = openings.get_mut(&self.0) {
            *count -= 1;
        }
        openings.retain(|_, (count, _)| *count > 0);
    }
}

/// Returns a number for the time since this process has participants in a domain without a break,
/// which differs from those of all other such times; `None` if it has none. Cyclone chooses network
/// interfaces when the first participant joins, and keeps them until the last one leaves.
///
/// ```
/// use polywire_dds::{LOOPBACK, Participant, Qos, opening};
/// let join = || Participant::new(102, Some(LOOPBACK), &Qos::default());
/// let (first, second) = (join()?, join()?);
/// let before = opening(102);
/// drop(first);
/// assert!(before.is_some() && opening(102) == before);
/// drop(second);
/// assert!(opening(102).is_none());
/// let _again = join()?;
/// assert_ne!(opening(102), before);
/// # Ok::<(), polywire_dds::Error>(())
/// ```
pub fn opening(domain_number: u32) -> Option<u64> {
    OPENINGS.lock().get(&domain_number).map(|(_, number)| *number)
}

/// Opens a domain with a configuration, or returns the one that is open.
fn domain(number: u32, configuration: &str) -> Result<Arc<Domain>, Error> {
    let mut domains = DOMAINS.lock();
    if let Some(domain) = domains.get(&number).and_then(Weak::upgrade) {
        let is_same = domain.configuration == configuration;
        return is_same.then_some(domain).ok_or(Error::Configured(number));
    }
    let text = CString::new(configuration).map_err(|_| Error::Text(configuration.into()))?;
    // SAFETY: the text ends with a zero byte and is copied.
    let entity = joined("open the domain", number, false, || unsafe { dds_create_domain(number, text.as_ptr()) })?;
    let domain = Arc::new(Domain { configuration: configuration.into(), _entity: entity });
    domains.insert(number, Arc::downgrade(&domain));
    Ok(domain)
}

/// Opens a domain or joins it. If that fails, Cyclone reports the reason only in its log.
fn joined(
    action: &'static str,
    number: u32,
    is_secure: bool,
    create: impl FnOnce() -> dds_entity_t,
) -> Result<Entity, Error> {
    let (created, errors) = logs::watching(create);
    let is_full = errors.iter().any(|error| error.contains("find a free participant index"));
    Entity::new(action, created).map_err(|error| match errors.first() {
        _ if is_full => Error::Full(number),
        Some(cause) if is_secure => Error::Security(cause.split_whitespace().collect::<Vec<_>>().join(" ")),
        _ => error,
    })
}

/// A member of a domain. Clones are the same participant, which leaves the domain when the last
/// clone and the last topic, writer and reader of it are dropped.
///
/// ```
/// use polywire_dds::{LOOPBACK, Participant, Qos};
/// let participant = Participant::new(101, Some(LOOPBACK), &Qos::default())?;
/// let topic = participant.topic("pumps", "plant::Pump", true)?;
/// let writer = topic.writer(&Qos::default(), |_| {})?;
/// assert_eq!(writer.guid().participant(), participant.guid());
/// assert_eq!(writer.guid().is_keyed(), Some(true));
/// # Ok::<(), polywire_dds::Error>(())
/// ```
#[derive(Clone)]
pub struct Participant(Arc<Member>);

struct Member {
    guid: Guid,
    /// Cyclone's state of the domain, determined when it is first needed.
    state: OnceLock<State>,
    /// When the files of DDS Security expire.
    expiry: Option<Expiry>,
    // Dropped in this order: the domain outlives its participants.
    entity: Entity,
    _domain: Option<Arc<Domain>>,
    _counted: Counted,
}

impl Participant {
    /// Joins a domain, 0 to 232. The configuration is Cyclone's, as XML; with `None`, it is taken
    /// from the environment variable `CYCLONEDDS_URI`. All participants of a process in a domain
    /// have the same configuration.
    pub fn new(domain_number: u32, configuration: Option<&str>, qos: &Qos) -> Result<Participant, Error> {
        Participant::join(domain_number, configuration, &qos.native()?, None)
    }

    /// Joins a domain like [`Participant::new`], with DDS Security: the participant exchanges
    /// samples only with participants that have certificates of the same authority.
    #[cfg(feature = "security")]
    pub fn secure(
        domain_number: u32,
        configuration: Option<&str>,
        qos: &Qos,
        security: &crate::Security,
    ) -> Result<Participant, Error> {
        let qos = qos.native()?;
        let expiry = security.set(&qos)?;
        Participant::join(domain_number, configuration, &qos, Some(expiry))
    }

    fn join(
        domain_number: u32,
        configuration: Option<&str>,
        qos: &Native,
        expiry: Option<Expiry>,
    ) -> Result<Participant, Error> {
        logs::pass_on();
        let counted = Counted::new(domain_number);
        let domain = configuration.map(|configuration| domain(domain_number, configuration)).transpose()?;
        // SAFETY: the policies are valid during the call; there is no listener.
        let create = || unsafe { dds_create_participant(domain_number, qos.as_ptr(), ptr::null()) };
        let entity = joined("join the domain", domain_number, expiry.is_some(), create)?;
        let (guid, state) = (entity.guid()?, OnceLock::new());
        Ok(Participant(Arc::new(Member { guid, state, expiry, entity, _domain: domain, _counted: counted })))
    }

    /// Returns the participant's GUID.
    pub fn guid(&self) -> Guid {
        self.0.guid
    }

    pub(crate) fn handle(&self) -> dds_entity_t {
        self.0.entity.handle()
    }

    /// Returns Cyclone's state of the domain, which lives as long as the participant.
    pub(crate) fn domain(&self) -> Result<*mut ddsi_domaingv, Error> {
        if let Some(State(state)) = self.0.state.get() {
            return Ok(*state);
        }
        // Only types have a pointer to it. Topics without writers and readers are not announced to
        // others.
        let topic = self.topic("polywire_state", "polywire::State", false)?;
        // SAFETY: the topic keeps its type alive, and Cyclone has registered it.
        let state = unsafe { (*topic.of.0).gv.v as *mut ddsi_domaingv };
        Ok(self.0.state.get_or_init(|| State(state)).0)
    }

    /// Checks whether the participant's certificate or its permissions have expired, or will expire
    /// in some seconds. Then the participant and its topics, writers and readers fail with
    /// [`Error::Expired`], and report no matches. Only a new participant, with newer files, can
    /// join the domain.
    pub fn has_expired(&self) -> bool {
        self.0.expiry.is_some_and(Expiry::has_come)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.has_expired() { Err(Error::Expired) } else { Ok(()) }
    }

    /// Opens a topic of this name and type name. Types are compared by their names, and by whether
    /// they have a key.
    pub fn topic(&self, name: &str, type_name: &str, is_keyed: bool) -> Result<Topic, Error> {
        self.open(name, new_type(type_name, is_keyed, None)?)
    }

    /// Opens a topic that also publishes its type to other programs. They compare it with theirs,
    /// and do not match if one cannot be read as the other.
    pub fn described_topic(
        &self,
        name: &str,
        type_name: &str,
        is_keyed: bool,
        types: &TypeObjects,
    ) -> Result<Topic, Error> {
        types.check()?;
        self.open(name, new_type(type_name, is_keyed, Some(types.clone()))?)
    }

    fn open(&self, name: &str, of: *mut ddsi_sertype) -> Result<Topic, Error> {
        let is_usable = self.check();
        // The number of references shows whether a failed call has released the type. Nobody else
        // changes this number meanwhile.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _alone = ONE_AT_A_TIME.lock();
        let name_with_end = CString::new(name).map_err(|_| Error::Text(name.into()));
        let mut registered = of;
        // SAFETY: `of` is a new type, of which this function has one reference and takes a second.
        // The name ends with a zero byte and is copied. The call takes a reference if it succeeds,
        // and may put an equal type in place; if it fails, it may have released one.
        unsafe {
            ddsi_sertype_ref(of);
            let created = match &name_with_end {
                Ok(name) if is_usable.is_ok() => dds_create_topic_sertype(
                    self.handle(),
                    name.as_ptr(),
                    &raw mut registered,
                    ptr::null(),
                    ptr::null(),
                    ptr::null(),
                ),
                _ => 0,
            };
            if created <= 0 && (*of).flags_refc.v & REFERENCES > 1 {
                ddsi_sertype_unref(of);
            }
            ddsi_sertype_unref(of);
            is_usable?;
            name_with_end?;
            let entity = Entity::new("open a topic", created)?;
            Ok(Topic { entity, of: Type(registered), participant: self.clone() })
        }
    }
}

/// Cyclone's state of a domain.
struct State(*mut ddsi_domaingv);

// SAFETY: Cyclone's threads share it; here the pointer is only passed on.
unsafe impl Send for State {}
// SAFETY: the pointer does not change.
unsafe impl Sync for State {}

/// A type that a topic keeps alive.
#[derive(Clone, Copy)]
struct Type(*const ddsi_sertype);

// SAFETY: Cyclone shares types between threads; here the pointer is only passed on.
unsafe impl Send for Type {}
// SAFETY: the type behind the pointer does not change once its topic exists.
unsafe impl Sync for Type {}

/// A topic of a participant, for writers and readers.
pub struct Topic {
    entity: Entity,
    of: Type,
    participant: Participant,
}

/// What happens to a writer or a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A reader or writer has begun or ceased to match. Now `count` match.
    Matched {
        /// Number of readers of the writer, or of writers of the reader.
        count: usize,
    },
    /// A reader or writer of the topic does not match because of a policy.
    Incompatible {
        /// The policy's number in DDS.
        policy: u32,
    },
    /// A writer that matches a reader is alive, or has missed its lease.
    Lives {
        /// The writer, as [`Reader::guid_of`] takes it.
        writer: u64,
        /// `None` if the writer no longer matches the reader.
        is_alive: Option<bool>,
    },
}

/// The function that is called with each [`Change`].
type OnChange = Box<dyn Fn(Change) + Send + Sync>;

impl Topic {
    /// Makes a writer. `on_change` is called on Cyclone's threads; it must neither block nor panic.
    pub fn writer(self, qos: &Qos, on_change: impl Fn(Change) + Send + Sync + 'static) -> Result<Writer, Error> {
        self.participant.check()?;
        let qos = qos.native()?;
        let listener = Listener::new(Box::new(on_change));
        // SAFETY: policies and listener are valid during the call, which copies them; what the
        // listener's functions get lives longer than the entity.
        let created = unsafe {
            dds_create_writer(self.participant.handle(), self.entity.handle(), qos.as_ptr(), listener.native)
        };
        let entity = Entity::new("create a writer", created)?;
        Ok(Writer { guid: entity.guid()?, entity, topic: self, _listener: listener })
    }

    /// Makes a reader. `on_change` is called on Cyclone's threads; it must neither block nor panic.
    pub fn reader(
        self,
        qos: &Qos,
        receiver: Arc<dyn Receive>,
        on_change: impl Fn(Change) + Send + Sync + 'static,
    ) -> Result<Reader, Error> {
        self.participant.check()?;
        let qos = qos.native()?;
        let listener = Listener::new(Box::new(on_change));
        let cache = Cache::new(receiver);
        let (participant, topic) = (self.participant.handle(), self.entity.handle());
        // SAFETY: policies and listener are valid during the call, which copies them; what the
        // listener's functions get lives longer than the entity. The reader owns the cache.
        let created = unsafe { dds_create_reader_rhc(participant, topic, qos.as_ptr(), listener.native, cache.cast()) };
        // If the call fails, it is unknown whether the reader owns the cache, so the cache leaks.
        let entity = Entity::new("create a reader", created)?;
        Ok(Reader { guid: entity.guid()?, entity, topic: self, _listener: listener })
    }
}

/// Sends samples.
pub struct Writer {
    guid: Guid,
    // Dropped in this order: the listener outlives the entity that calls it.
    entity: Entity,
    topic: Topic,
    _listener: Listener,
}

impl Writer {
    /// Returns the writer's GUID.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Writes a sample. Blocks while the history has no room, for at most the time of
    /// [`Qos::reliable`]; then it fails with an error for which [`Error::is_timeout`] is true.
    pub fn write(&self, sample: &Sample) -> Result<(), Error> {
        self.topic.participant.check()?;
        // SAFETY: the topic keeps its type alive; the call takes the reference of the sample,
        // whether it succeeds or not.
        let written = unsafe { dds_forwardcdr(self.entity.handle(), to_native(self.topic.of.0, sample)) };
        Error::check("write a sample", written).map(drop)
    }

    /// Returns the readers that match the writer.
    pub fn readers(&self) -> Vec<Guid> {
        matched(&self.topic, &self.entity, dds_get_matched_subscriptions, dds_get_matched_subscription_data)
    }

    /// Asserts that the writer is alive, as each write does, if its liveliness is manual.
    pub fn assert_liveliness(&self) -> Result<(), Error> {
        self.topic.participant.check()?;
        // SAFETY: a plain call with a handle.
        Error::check("assert liveliness", unsafe { dds_assert_liveliness(self.entity.handle()) }).map(drop)
    }

    /// Waits until all reliable readers have acknowledged what was written. Returns false if the
    /// time is up before.
    pub fn wait_for_acknowledgments(&self, at_most: Duration) -> bool {
        let nanoseconds = i64::try_from(at_most.as_nanos()).unwrap_or(i64::MAX);
        // SAFETY: a plain call with a handle.
        unsafe { dds_wait_for_acks(self.entity.handle(), nanoseconds) == 0 }
    }
}

/// Receives samples until dropped. A sample may still be delivered a moment later.
pub struct Reader {
    guid: Guid,
    // Dropped in this order: the listener outlives the entity that calls it.
    entity: Entity,
    topic: Topic,
    _listener: Listener,
}

impl Reader {
    /// Returns the reader's GUID.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Returns the writers that match the reader.
    pub fn writers(&self) -> Vec<Guid> {
        matched(&self.topic, &self.entity, dds_get_matched_publications, dds_get_matched_publication_data)
    }

    /// Returns the GUID of a writer that matches the reader and that [`Change::Lives`] has
    /// reported.
    pub fn guid_of(&self, writer: u64) -> Option<Guid> {
        let is_usable = !self.topic.participant.has_expired();
        is_usable.then(|| guid_of(&self.entity, writer, dds_get_matched_publication_data)).flatten()
    }
}

/// The maximum number of matched readers of a writer, or writers of a reader, that are listed.
const MAX_MATCHED: usize = 4096;

type List = unsafe extern "C" fn(dds_entity_t, *mut dds_instance_handle_t, usize) -> dds_entity_t;
type Describe = unsafe extern "C" fn(dds_entity_t, dds_instance_handle_t) -> *mut dds_builtintopic_endpoint_t;

/// Returns the readers or writers that match an entity.
fn matched(topic: &Topic, entity: &Entity, list: List, describe: Describe) -> Vec<Guid> {
    if topic.participant.has_expired() {
        return Vec::new();
    }
    let mut handles: Vec<dds_instance_handle_t> = vec![0; MAX_MATCHED];
    // SAFETY: `handles` has as many places as the call is given as its limit.
    let count = unsafe { list(entity.handle(), handles.as_mut_ptr(), handles.len()) };
    handles.truncate(usize::try_from(count).unwrap_or(0));
    handles.into_iter().filter_map(|handle| guid_of(entity, handle, describe)).collect()
}

/// Returns the GUID of a reader or writer that matches an entity.
fn guid_of(entity: &Entity, handle: dds_instance_handle_t, describe: Describe) -> Option<Guid> {
    // SAFETY: the description is null, or an object that is freed here.
    unsafe {
        let description = describe(entity.handle(), handle);
        let guid = Guid(description.as_ref()?.key.v);
        dds_builtintopic_free_endpoint(description);
        Some(guid)
    }
}

/// A listener of Cyclone, and the function that the listener's own functions call.
struct Listener {
    native: *mut dds_listener_t,
    on_change: *mut OnChange,
}

// SAFETY: the listener is not used after it was copied into an entity, and the function may be
// called from any thread.
unsafe impl Send for Listener {}
// SAFETY: a shared listener offers nothing but its address.
unsafe impl Sync for Listener {}

impl Listener {
    fn new(on_change: OnChange) -> Listener {
        let on_change = Box::into_raw(Box::new(on_change));
        let argument = on_change.cast::<c_void>();
        // SAFETY: the listener is new, and the functions get an argument of the type that they
        // expect.
        let native = unsafe {
            let native = dds_create_listener(ptr::null_mut());
            dds_lset_publication_matched_arg(native, Some(publication_matched), argument, true);
            dds_lset_subscription_matched_arg(native, Some(subscription_matched), argument, true);
            dds_lset_liveliness_changed_arg(native, Some(liveliness_changed), argument, true);
            dds_lset_offered_incompatible_qos_arg(native, Some(offered_incompatible), argument, true);
            dds_lset_requested_incompatible_qos_arg(native, Some(requested_incompatible), argument, true);
            native
        };
        Listener { native, on_change }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // SAFETY: the entity that may have called is deleted, and `new` made both.
        unsafe {
            dds_delete_listener(self.native);
            drop(Box::from_raw(self.on_change));
        }
    }
}

/// # Safety
///
/// `argument` is the [`OnChange`] of a listener that lives.
unsafe fn change(argument: *mut c_void, change: Change) {
    // SAFETY: the caller promises it.
    let on_change = unsafe { &*argument.cast::<OnChange>() };
    on_change(change);
}

unsafe extern "C" fn publication_matched(
    _: dds_entity_t,
    status: dds_publication_matched_status_t,
    argument: *mut c_void,
) {
    // SAFETY: Cyclone passes the argument of the listener, which lives as long as the writer.
    unsafe { change(argument, Change::Matched { count: status.current_count as usize }) }
}

unsafe extern "C" fn subscription_matched(
    _: dds_entity_t,
    status: dds_subscription_matched_status_t,
    argument: *mut c_void,
) {
    // SAFETY: Cyclone passes the argument of the listener, which lives as long as the reader.
    unsafe { change(argument, Change::Matched { count: status.current_count as usize }) }
}

/// Handles a change of one writer: Cyclone calls this for each change, and counts from 0 each time.
unsafe extern "C" fn liveliness_changed(
    _: dds_entity_t,
    status: dds_liveliness_changed_status_t,
    argument: *mut c_void,
) {
    let is_alive = match (status.alive_count_change, status.not_alive_count_change) {
        (1, _) => Some(true),
        (_, 1) => Some(false),
        _ => None,
    };
    // SAFETY: Cyclone passes the argument of the listener, which lives as long as the reader.
    unsafe { change(argument, Change::Lives { writer: status.last_publication_handle, is_alive }) }
}

unsafe extern "C" fn offered_incompatible(
    _: dds_entity_t,
    status: dds_offered_incompatible_qos_status_t,
    argument: *mut c_void,
) {
    // SAFETY: Cyclone passes the argument of the listener, which lives as long as the writer.
    unsafe { change(argument, Change::Incompatible { policy: status.last_policy_id }) }
}

unsafe extern "C" fn requested_incompatible(
    _: dds_entity_t,
    status: dds_requested_incompatible_qos_status_t,
    argument: *mut c_void,
) {
    // SAFETY: Cyclone passes the argument of the listener, which lives as long as the reader.
    unsafe { change(argument, Change::Incompatible { policy: status.last_policy_id }) }
}
