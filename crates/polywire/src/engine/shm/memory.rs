//! The shared memory of a node's links: services of iceoryx2, which two nodes open for each
//! direction of their link.
//!
//! A publish-subscribe service carries the bytes of one direction, in samples. A writer that has
//! much to write allocates memory for larger samples, which a second service carries, and releases
//! this memory later. A blackboard with one value shows the writer whether the reader sleeps.

use std::{
    fmt,
    fs::{self, DirBuilder, File, Permissions},
    io,
    mem::MaybeUninit,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::atomic::{self, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use iceoryx2::{
    port::{
        LoanError, SendError, publisher::Publisher, reader::EntryHandle, subscriber::Subscriber,
        update_connections::UpdateConnections as _, writer::EntryHandleMut,
    },
    prelude::{
        BackpressureStrategy, Config, FileName, Node, NodeBuilder, SemanticString as _, ServiceName,
        SignalHandlingMode, ipc::Service,
    },
    sample::Sample,
    sample_mut::SampleMut,
    sample_mut_uninit::SampleMutUninit,
    service::port_factory::publish_subscribe::PortFactory,
};
use polywire_core::{frame::Hello, schema::DocumentHash};
use rustix::fs::{FallocateFlags, fallocate, statvfs};

use crate::engine::local;

/// A received sample, which contains bytes of frames.
type Bytes = Sample<Service, [u8], ()>;
type Writer = Publisher<Service, [u8], ()>;
type Reader = Subscriber<Service, [u8], ()>;
type Loan = SampleMutUninit<Service, [MaybeUninit<u8>], ()>;
/// The blackboard value that shows whether the reader sleeps.
type Sleeps = EntryHandle<Service, u64, u64>;

/// The name of a service, and the number and size of its samples.
#[derive(Clone, Copy)]
struct Samples {
    /// The name of the service.
    name: &'static str,
    /// The number of samples. `count` samples of `bytes` bytes can be in flight.
    count: usize,
    /// The maximum number of bytes in a sample.
    bytes: usize,
}

/// The samples that each direction has during its whole lifetime.
const SMALL: Samples = Samples { name: "link", count: 64, bytes: 4 << 10 };
/// The additional samples of a direction while there is much to write.
const LARGE: Samples = Samples { name: "large", count: 16, bytes: 256 << 10 };
/// A write of at least this many bytes uses large samples. A large sample takes as long as two
/// small ones, but its memory must be allocated first.
const MUCH: usize = 32 << 10;
/// How long the memory of large samples is kept after their last use. If the system does not have
/// the memory, the next attempt to allocate it follows after this time.
const KEEP: Duration = Duration::from_secs(1);
/// Bytes that must stay free in addition to the allocated memory, because other processes allocate
/// memory at the same time.
const SPARE: u64 = 768 << 10;
/// The folder of the system's shared memory.
const MOUNT: &str = "/dev/shm";
/// The folder with the files of all nodes' memories, inside the folder of the nodes' sockets.
const FOLDER: &str = "memory";
/// The maximum number of bytes in the path of `FOLDER`. iceoryx2 panics if the path of a file has
/// more than 255 bytes: this path is followed by the names of a node and of a link, and by up to
/// 146 more bytes.
const LONGEST_FOLDER: usize = 52;
/// The file extension of a node's lock.
const LOCK: &str = "lock";
/// The key of the value that shows whether the reader sleeps.
const SLEEPS: u64 = 0;
/// How often, and with which pause, a node tries to remove the files of a peer whose process has
/// ended.
const LOOKS: usize = 20;
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The shared memory of a port: the halves of its links that this node writes.
pub(super) struct Memory {
    /// The folder with the memories of all nodes.
    folder: PathBuf,
    name: String,
    /// The node's lock, held until this value is dropped.
    _lock: File,
    /// The number of links so far, which names the next one.
    links: AtomicU64,
}

/// This end of a link before it is joined with the peer's end: the memory of the direction that
/// this end writes, and the value that shows whether this end's reader sleeps.
pub(super) struct Half {
    pub(super) name: String,
    small: Writer,
    large: Large,
    sleeps: EntryHandleMut<Service, u64, u64>,
    folder: OwnedFolder,
}

/// The writing end of a direction.
pub(super) struct Outlet {
    small: Writer,
    large: Large,
    sleeps: Sleeps,
    /// The value of `sleeps` at the last check, so that the writer wakes the reader once for each
    /// sleep.
    woken: u64,
}

/// The large samples of a direction, and their memory while there is much to write.
struct Large {
    service: PortFactory<Service, [u8], ()>,
    folder: SegmentFolder,
    writer: Option<Writer>,
    /// If there is memory, the time when it may be released; otherwise the time when it may be
    /// allocated.
    until: Instant,
}

/// The reading end of a direction, and the files of the other direction.
pub(super) struct Inlet {
    small: Reader,
    large: Reader,
    sleeps: EntryHandleMut<Service, u64, u64>,
    /// The current value of `sleeps`. It is odd while the reader sleeps.
    sleep: u64,
    /// A sample that is partly read, its kind, and the number of bytes that have been read.
    begun: Option<(Bytes, Samples, usize)>,
    _folder: OwnedFolder,
}

/// The folder in which iceoryx2 keeps the files of one half.
struct SegmentFolder(PathBuf);

/// A folder that this node has created. Dropping it removes the files. A peer that has opened them
/// can still use them.
struct OwnedFolder(SegmentFolder);

impl Memory {
    /// Opens the memory of a node, and removes the files of nodes whose processes have ended.
    pub(super) fn open(folder: &Path, hello: &Hello) -> io::Result<Memory> {
        let folder = private_folder(folder)?;
        if folder.as_os_str().len() > LONGEST_FOLDER {
            let reason = format!("the path '{}' is longer than {LONGEST_FOLDER} bytes", folder.display());
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                reason + ": choose a shorter one, as in shm//FOLDER",
            ));
        }
        sweep(&folder);
        let name = local::name_of(hello);
        let lock = local::lock_anew(&folder.join(format!("{name}.{LOCK}")))?;
        Ok(Memory { folder, name, _lock: lock, links: AtomicU64::new(0) })
    }

    /// Creates this end's half of a link, and reserves its memory.
    pub(super) fn half(&self) -> io::Result<Half> {
        has_room(free()?, SMALL)?;
        let name = format!("{}/{}", self.name, self.links.fetch_add(1, Ordering::Relaxed));
        let folder = OwnedFolder(SegmentFolder(self.folder.join(&name)));
        fs::create_dir_all(&folder.0.0)?;
        let node = folder.0.node()?;
        folder.0.make_private()?;
        let (small, sleeps) = (writer(&service(&node, SMALL)?, SMALL)?, sleeps(&node)?);
        let (service, files) = (service(&node, LARGE)?, SegmentFolder(folder.0.0.clone()));
        let large = Large { service, folder: files, writer: None, until: Instant::now() };
        folder.0.reserve()?;
        Ok(Half { name, small, large, sleeps, folder })
    }

    /// Joins this end's half with the half of the peer that has this name.
    pub(super) fn join(&self, half: Half, peer: &str) -> io::Result<(Outlet, Inlet)> {
        let is_name = |(node, link): (&str, &str)| local::hello_of(node).is_some() && link.parse::<u64>().is_ok();
        let folder = SegmentFolder(self.folder.join(peer));
        if !peer.split_once('/').is_some_and(is_name) || !folder.0.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no shared memory '{peer}'")));
        }
        let node = folder.node()?;
        let (readers, peer_sleeps) = ([reader(&node, SMALL)?, reader(&node, LARGE)?], opened(&node)?);
        let (Half { small, large, sleeps, folder, .. }, [from_small, from_large]) = (half, readers);
        let inlet = Inlet { small: from_small, large: from_large, sleeps, sleep: 0, begun: None, _folder: folder };
        Ok((Outlet { small, large, sleeps: peer_sleeps, woken: 0 }, inlet))
    }

    /// Removes the files of a peer whose process has ended. The peer's lock is released some
    /// moments after its connections have ended.
    pub(super) fn sweep(&self, peer: &str) {
        let name = peer.split('/').next().unwrap_or_default();
        for _ in 0..LOOKS {
            sweep(&self.folder);
            if !self.folder.join(format!("{name}.{LOCK}")).exists() {
                return;
            }
            thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        remove(&self.folder, &self.name);
    }
}

fn service(node: &Node<Service>, samples: Samples) -> io::Result<PortFactory<Service, [u8], ()>> {
    let service = node.service_builder(&service_name(samples.name)?).publish_subscribe::<[u8]>();
    let service = service.max_publishers(1).max_subscribers(1).max_nodes(2).enable_safe_overflow(false);
    let service = service.subscriber_max_buffer_size(samples.count).subscriber_max_borrowed_samples(1);
    service.create().map_err(failed("create"))
}

fn writer(service: &PortFactory<Service, [u8], ()>, samples: Samples) -> io::Result<Writer> {
    // Permits loans of all samples at once, by which `Large::is_idle` checks that none is in use.
    // Allocates no more than these.
    let writer = service.publisher_builder().initial_max_slice_len(samples.bytes);
    let writer = writer.max_loaned_samples(samples.count).override_sample_preallocation(move |_| samples.count);
    writer.backpressure_strategy(BackpressureStrategy::DiscardData).create().map_err(failed("create"))
}

fn sleeps(node: &Node<Service>) -> io::Result<EntryHandleMut<Service, u64, u64>> {
    let service = node.service_builder(&service_name(SMALL.name)?).blackboard_creator::<u64>();
    let service = service.max_readers(1).max_nodes(2).add(SLEEPS, 0u64).create().map_err(failed("create"))?;
    let writer = service.writer_builder().create().map_err(failed("create"))?;
    writer.entry(&SLEEPS).map_err(failed("create"))
}

/// Opens the samples of a peer.
fn reader(node: &Node<Service>, samples: Samples) -> io::Result<Reader> {
    let service = node.service_builder(&service_name(samples.name)?).publish_subscribe::<[u8]>();
    service.open().map_err(failed("open"))?.subscriber_builder().create().map_err(failed("open"))
}

/// Opens the value of a peer that shows whether the peer's reader sleeps.
fn opened(node: &Node<Service>) -> io::Result<Sleeps> {
    let service = node.service_builder(&service_name(SMALL.name)?).blackboard_opener::<u64>();
    let reader = service.open().map_err(failed("open"))?.reader_builder().create().map_err(failed("open"))?;
    reader.entry(&SLEEPS).map_err(failed("open"))
}

impl SegmentFolder {
    /// Creates an iceoryx2 node that uses this folder.
    fn node(&self) -> io::Result<Node<Service>> {
        let mut config = Config::default();
        let root = iceoryx2::prelude::Path::new(self.0.as_os_str().as_bytes());
        config.global.set_root_path(&root.map_err(failed("use the folder of"))?);
        config.global.prefix = FileName::new(self.prefix().as_bytes()).map_err(failed("use the folder of"))?;
        // `sweep` removes the files of dead nodes, which it recognises by their locks.
        config.global.service.cleanup_dead_nodes_on_open = false;
        config.global.node.cleanup_dead_nodes_on_creation = false;
        config.global.node.cleanup_dead_nodes_on_destruction = false;
        let node = NodeBuilder::new().config(&config).signal_handling_mode(SignalHandlingMode::Disabled);
        node.create().map_err(failed("open a node for"))
    }

    /// Returns the prefix of the names of this folder's objects in shared memory.
    fn prefix(&self) -> String {
        let hash = DocumentHash::of(self.0.as_os_str().as_bytes()).to_string();
        format!("polywire_{}_", &hash[..16])
    }

    /// Returns the paths of this folder's objects in shared memory.
    fn objects(&self) -> impl Iterator<Item = PathBuf> {
        let prefix = self.prefix();
        let is_own = move |entry: &fs::DirEntry| entry.file_name().as_bytes().starts_with(prefix.as_bytes());
        fs::read_dir(MOUNT).into_iter().flatten().filter_map(Result::ok).filter(is_own).map(|entry| entry.path())
    }

    /// Makes the system allocate all of the memory. Fails if the system does not have it: an access
    /// to memory that is not there would end the process.
    fn reserve(&self) -> io::Result<()> {
        self.objects().try_for_each(|object| {
            let object = File::options().write(true).open(object)?;
            Ok(fallocate(&object, FallocateFlags::empty(), 0, object.metadata()?.len())?)
        })
    }

    /// Removes the objects in shared memory, and the files.
    fn remove(&self) {
        self.objects().for_each(|object| remove_file(&object));
        // Another process may remove the folder at the same time.
        let _ = fs::remove_dir_all(&self.0);
    }

    /// Restricts the access to this user. iceoryx2 creates one object, a counter of nodes, with
    /// access for everybody.
    fn make_private(&self) -> io::Result<()> {
        self.objects().try_for_each(|object| fs::set_permissions(object, Permissions::from_mode(0o600)))
    }
}

impl Drop for OwnedFolder {
    fn drop(&mut self) {
        self.0.remove();
    }
}

// SAFETY: a port of `ipc::Service` shares its state with its samples and entries without a lock.
// They are all in this value, and no function returns one. The state that they share with other
// ports is that of nodes and services, which is `Send` and `Sync`.
unsafe impl Send for Outlet {}
// SAFETY: as for `Outlet`. A sample that is partly read is in this value, together with its port.
unsafe impl Send for Inlet {}

// Does not compile if threads may not share a node or a service.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Node<Service>>();
    shared::<PortFactory<Service, [u8], ()>>();
};

impl Outlet {
    /// Opens the objects that the peer has created for the samples to come, while their files still
    /// exist.
    pub(super) fn connect(&self) -> io::Result<()> {
        self.small.update_connections().map_err(failed("open"))
    }

    /// Writes as many bytes as fit into one sample, and returns their number; 0 if there is no
    /// room.
    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_much = bytes.len() >= MUCH;
        if is_much && let Some(large) = self.large.take() {
            return put_large(&self.small, large, bytes);
        }
        if !is_much && self.large.is_idle() {
            self.large.writer = None;
        }
        let part = bytes.get(..SMALL.bytes).unwrap_or(bytes);
        let Some(sample) = loan(&self.small, part.len())? else { return Ok(0) };
        Ok(if send(sample.write_from_slice(part))? { part.len() } else { 0 })
    }

    /// Whether there is room for a sample.
    pub(super) fn has_room(&self) -> bool {
        let has_room = |writer: &Writer| writer.loan_slice_uninit(1).is_ok();
        has_room(&self.small) && self.large.writer.as_ref().is_none_or(has_room)
    }

    /// Returns whether the reader sleeps and must be woken, after a write. Returns true once for
    /// each sleep.
    #[inline]
    pub(super) fn must_wake(&mut self) -> bool {
        // The reader sets its value and then polls once more; the writer writes a sample and then
        // reads the value. So at least one of the two sees what the other one did.
        atomic::fence(Ordering::SeqCst);
        let sleep = *self.sleeps.get();
        let must_wake = sleep % 2 == 1 && sleep != self.woken;
        self.woken = sleep;
        must_wake
    }
}

/// Loans a sample of this length, or returns `None` if there is no room.
#[inline]
fn loan(writer: &Writer, len: usize) -> io::Result<Option<Loan>> {
    match writer.loan_slice_uninit(len) {
        Ok(sample) => Ok(Some(sample)),
        Err(LoanError::OutOfMemory | LoanError::ExceedsMaxLoans) => Ok(None),
        Err(error) => Err(failed("write")(error)),
    }
}

/// Sends a sample. Returns false if there is no room.
#[inline]
fn send(sample: SampleMut<Service, [u8], ()>) -> io::Result<bool> {
    match sample.send() {
        Ok(readers) => Ok(readers > 0),
        // The peer has closed its end.
        Err(SendError::ConnectionError(_)) => Err(io::ErrorKind::BrokenPipe.into()),
        Err(error) => Err(failed("write")(error)),
    }
}

/// Writes a large sample, and an empty small sample that marks its position in the byte stream.
fn put_large(small: &Writer, large: &Writer, bytes: &[u8]) -> io::Result<usize> {
    let part = bytes.get(..LARGE.bytes).unwrap_or(bytes);
    let (Some(mark), Some(sample)) = (loan(small, 0)?, loan(large, part.len())?) else { return Ok(0) };
    if !send(sample.write_from_slice(part))? {
        return Ok(0);
    }
    // The empty sample was loaned before, so there is room for it unless the peer has closed its
    // end.
    let is_marked = send(mark.write_from_slice(&[]))?;
    if is_marked { Ok(part.len()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}

impl Large {
    /// Returns the writer of large samples, and allocates their memory if necessary. Returns `None`
    /// if the system does not have the memory, or did not have it less than `KEEP` ago.
    fn take(&mut self) -> Option<&Writer> {
        let now = Instant::now();
        let is_due = self.writer.is_none() && now >= self.until;
        if is_due {
            let taken = free().and_then(|free| has_room(free, LARGE)).and_then(|()| writer(&self.service, LARGE));
            self.writer = taken.and_then(|writer| self.folder.reserve().map(|()| writer)).ok();
        }
        if is_due || self.writer.is_some() {
            self.until = now + KEEP;
        }
        self.writer.as_ref()
    }

    /// Returns whether no large sample was written for `KEEP`, and the reader has read all of them.
    fn is_idle(&self) -> bool {
        let Some(writer) = self.writer.as_ref().filter(|_| Instant::now() >= self.until) else { return false };
        let all: Result<Vec<_>, _> = (0..LARGE.count).map(|_| writer.loan_slice_uninit(0)).collect();
        all.is_ok()
    }
}

impl Inlet {
    /// Reads the available bytes into the buffer, and returns their number; 0 if there are none.
    #[inline]
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
            let begun = self.begun.take();
            let Some((sample, samples, start)) = begun.map_or_else(|| self.next(), |begun| Ok(Some(begun)))? else {
                break;
            };
            let (taken, len) = copy(sample.payload(), samples.bytes, start, room)?;
            filled += taken;
            if start + taken < len {
                self.begun = Some((sample, samples, start + taken));
            } else if len != samples.bytes && filled > 0 {
                // The writer had no more to write. If it has written again, the next read sees it.
                break;
            }
        }
        Ok(filled)
    }

    /// Returns the next sample. An empty small sample marks the position of a large one.
    fn next(&self) -> io::Result<Option<(Bytes, Samples, usize)>> {
        let take = |reader: &Reader| reader.receive().map_err(failed("read"));
        while let Some(sample) = take(&self.small)? {
            if !sample.payload().is_empty() {
                return Ok(Some((sample, SMALL, 0)));
            }
            if let Some(sample) = take(&self.large)? {
                return Ok(Some((sample, LARGE, 0)));
            }
        }
        Ok(None)
    }

    /// Unmaps the memory of large samples that the writer has released.
    pub(super) fn unmap_released(&self) {
        // This also opens memory that the writer has allocated since. If that fails, the next read
        // of a large sample reports it.
        let _ = self.large.update_connections();
    }

    /// Shows the writer that the reader is about to sleep. The reader must poll once more before it
    /// sleeps.
    pub(super) fn fall_asleep(&mut self) {
        self.sleep += 1;
        self.sleeps.update_with_copy(self.sleep);
        atomic::fence(Ordering::SeqCst);
    }

    /// Shows the writer that the reader is awake.
    pub(super) fn awake(&mut self) {
        self.sleep += 1;
        self.sleeps.update_with_copy(self.sleep);
    }
}

/// Copies the bytes of a sample from `start` on, as many as there is room for. Returns their
/// number, and the length of the sample, which the peer can change at any time.
#[inline]
fn copy(sample: &[u8], longest: usize, start: usize, room: &mut [u8]) -> io::Result<(usize, usize)> {
    let len = sample.len();
    if len > longest {
        let reason = format!("a sample of {len} bytes, and none has more than {longest}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let rest = sample.get(start..).unwrap_or_default();
    let count = rest.len().min(room.len());
    if let (Some(room), Some(rest)) = (room.get_mut(..count), rest.get(..count)) {
        room.copy_from_slice(rest);
    }
    Ok((count, len))
}

/// Creates the folder with the memories of all nodes, and returns its canonical path, which is the
/// same in all processes.
fn private_folder(folder: &Path) -> io::Result<PathBuf> {
    let folder = folder.canonicalize()?.join(FOLDER);
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(folder),
    }
}

/// Removes the memories of nodes whose processes have ended.
fn sweep(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    for name in entries.filter_map(|entry| entry.path().file_stem()?.to_str().map(str::to_owned)) {
        if local::hello_of(&name).is_some()
            && let Some(_lock) = local::lock_of_dead(&folder.join(format!("{name}.{LOCK}")))
        {
            remove(folder, &name);
        }
    }
}

/// Removes the memory of a node. This process must hold the node's lock.
fn remove(folder: &Path, name: &str) {
    let halves = fs::read_dir(folder.join(name)).into_iter().flatten().filter_map(Result::ok);
    halves.for_each(|half| SegmentFolder(half.path()).remove());
    let _ = fs::remove_dir(folder.join(name));
    // The lock is removed last: until then, no other process can use the name.
    remove_file(&folder.join(format!("{name}.{LOCK}")));
}

fn remove_file(path: &Path) {
    // The file may be removed already.
    let _ = fs::remove_file(path);
}

/// Returns the number of free bytes of shared memory.
fn free() -> io::Result<u64> {
    Ok(statvfs(MOUNT).map(|found| found.f_bavail.saturating_mul(found.f_frsize))?)
}

fn has_room(free: u64, samples: Samples) -> io::Result<()> {
    let needed = SPARE + (samples.count * samples.bytes) as u64;
    let reason = || {
        let reason = format!("{MOUNT} has {free} bytes left, and a link needs {needed}");
        io::Error::new(io::ErrorKind::StorageFull, reason)
    };
    if free >= needed { Ok(()) } else { Err(reason()) }
}

fn service_name(name: &str) -> io::Result<ServiceName> {
    ServiceName::new(name).map_err(failed("use the name of"))
}

/// Converts an error of iceoryx2. The message contains the name of its cause.
fn failed<E: fmt::Debug>(action: &'static str) -> impl Fn(E) -> io::Error {
    move |cause| io::Error::other(format!("cannot {action} shared memory: {cause:?}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use polywire_core::envelope::Id128;

    use super::*;

    /// Pseudo-random numbers, from a seed that a failing test prints.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % sides
        }
    }

    fn hello(node: u8) -> Hello {
        Hello { node: Id128([node; 16]), incarnation: 3 }
    }

    /// Two nodes with a folder of their own.
    struct Two(PathBuf, Memory, Memory);

    impl Two {
        fn new() -> Two {
            static COUNT: AtomicU64 = AtomicU64::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            Two::at(std::env::temp_dir().join(format!("polywire-memory-{}-{number}", std::process::id())))
        }

        fn at(folder: PathBuf) -> Two {
            fs::create_dir_all(&folder).expect("a folder");
            let open = |node| Memory::open(&folder, &hello(node)).expect("memory");
            let (here, there) = (open(1), open(2));
            Two(folder, here, there)
        }

        /// Returns the writing end and the reading end of one direction, and both ends of the other
        /// direction.
        fn link(&self) -> (Outlet, Inlet, (Inlet, Outlet)) {
            let (here, there) = (self.1.half().expect("a half"), self.2.half().expect("a half"));
            let (here_name, there_name) = (here.name.clone(), there.name.clone());
            let (outlet, back) = self.1.join(here, &there_name).expect("joined");
            let (echo, inlet) = self.2.join(there, &here_name).expect("joined");
            (outlet, inlet, (back, echo))
        }
    }

    impl Drop for Two {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_is_refused_before_its_path_is_too_long_for_iceoryx2() {
        let base = std::env::temp_dir().canonicalize().expect("a folder").join(format!("{}-", std::process::id()));
        let rest = (LONGEST_FOLDER - FOLDER.len() - 1).saturating_sub(base.as_os_str().len());
        let of_length = |length| PathBuf::from(format!("{}{}", base.display(), "x".repeat(length)));
        if rest > 0 {
            drop(Two::at(of_length(rest)).link());
        }
        let long = of_length(rest + 1);
        fs::create_dir_all(&long).expect("a folder");
        let error = Memory::open(&long, &hello(1)).err().expect("too long");
        fs::remove_dir_all(&long).expect("removed");
        assert!(error.to_string().contains("longer than 52 bytes"), "{error}");
    }

    /// Writes as much as there is room for.
    fn put_all(outlet: &mut Outlet, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            match outlet.put(&bytes[written..]).expect("written") {
                0 => break,
                count => written += count,
            }
        }
        written
    }

    #[test]
    fn bytes_come_in_order_however_they_are_written_and_read() {
        let two = Two::new();
        let (mut outlet, mut inlet, _others) = two.link();
        for seed in 0..20 {
            let (mut dice, mut written, mut read) = (Dice(seed), 0, 0);
            for _ in 0..300 {
                // Some writes are long, and some follow a pause after which the memory is released.
                let longest = if dice.roll(10) == 0 { 2 * LARGE.bytes } else { 3 * SMALL.bytes };
                if dice.roll(30) == 0 {
                    outlet.large.until = Instant::now();
                }
                let bytes: Vec<u8> = (0..dice.roll(longest)).map(|at| (written + at) as u8).collect();
                written += put_all(&mut outlet, &bytes);
                let mut buffer = vec![0; 1 + dice.roll(2 * longest)];
                let count = inlet.take(&mut buffer).expect("read");
                let are_right = (read..).zip(&buffer[..count]).all(|(at, byte)| at as u8 == *byte);
                assert!(are_right, "seed {seed}: {count} bytes from {read} on");
                read += count;
            }
            while read < written {
                read += inlet.take(&mut [0; 1000]).expect("read");
            }
            assert_eq!(inlet.take(&mut [0]).expect("nothing"), 0, "seed {seed}");
        }
    }

    #[test]
    fn a_direction_takes_what_it_has_room_for_and_no_more() {
        let two = Two::new();
        let (mut outlet, mut inlet, _others) = two.link();
        for samples in [SMALL, LARGE] {
            // At first, the memory for large samples is refused.
            outlet.large.until =
                Instant::now() + if samples.bytes == SMALL.bytes { KEEP * 1000 } else { Duration::ZERO };
            let all = samples.count * samples.bytes;
            for _ in 0..3 {
                assert_eq!(put_all(&mut outlet, &vec![7; 2 * all]), all);
                assert!(!outlet.has_room() && outlet.put(&vec![7; samples.bytes]).expect("full") == 0);
                let mut buffer = vec![0; samples.bytes];
                assert_eq!(inlet.take(&mut buffer).expect("read"), samples.bytes);
                assert!(outlet.has_room());
                let mut rest = vec![0; all];
                assert_eq!(inlet.take(&mut rest).expect("read"), all - samples.bytes);
            }
        }
    }

    /// Bytes of shared memory that a folder's objects take.
    fn taken(folder: &SegmentFolder) -> u64 {
        folder.objects().map(|object| object.metadata().expect("there").blocks() * 512).sum()
    }

    /// Counts the objects of a folder that this process has mapped and that nobody can open any
    /// more.
    fn deleted_but_mapped(folder: &SegmentFolder) -> usize {
        let maps = fs::read_to_string("/proc/self/maps").expect("maps");
        maps.lines().filter(|line| line.contains(&folder.prefix()) && line.contains("(deleted)")).count()
    }

    #[test]
    fn much_takes_memory_and_gives_it_back() {
        let two = Two::new();
        let (mut outlet, mut inlet, _others) = two.link();
        let folder = SegmentFolder(outlet.large.folder.0.clone());
        let (before, all) = (taken(&folder), (LARGE.count * LARGE.bytes) as u64);
        assert!(before >= (SMALL.count * SMALL.bytes) as u64);
        let mut buffer = vec![0; 2 * MUCH];
        let mut exchange = |outlet: &mut Outlet, len: usize| {
            assert_eq!(put_all(outlet, &vec![7; len]), len);
            let (mut read, mut came) = (0, 1);
            while came > 0 {
                came = inlet.take(&mut buffer[read..]).expect("read");
                read += came;
            }
            assert_eq!(read, len);
            inlet.unmap_released();
        };
        for _ in 0..3 {
            exchange(&mut outlet, MUCH - 1);
            assert!(taken(&folder) < before + all);
            exchange(&mut outlet, MUCH);
            assert!(taken(&folder) >= before + all, "it is there before it is written to");
            exchange(&mut outlet, 10);
            assert!(outlet.large.writer.is_some(), "it is kept for some time");
            outlet.large.until = Instant::now();
            exchange(&mut outlet, 10);
            assert_eq!((taken(&folder), deleted_but_mapped(&folder)), (before, 0));
        }
        // The memory is not released before the reader has read everything.
        outlet.put(&[7; MUCH]).expect("written");
        outlet.large.until = Instant::now();
        outlet.put(b"x").expect("written");
        assert!(outlet.large.writer.is_some());
    }

    #[test]
    fn without_memory_for_large_samples_small_ones_are_written() {
        let two = Two::new();
        let (mut outlet, mut inlet, _others) = two.link();
        // An object that the system cannot provide memory for.
        let object = Path::new(MOUNT).join(outlet.large.folder.prefix() + "x");
        fs::create_dir(&object).expect("a folder");
        let bytes = vec![7; 2 * MUCH];
        assert_eq!(put_all(&mut outlet, &bytes), bytes.len());
        fs::remove_dir(&object).expect("removed");
        assert!(outlet.large.writer.is_none() && outlet.large.until > Instant::now());
        assert_eq!(inlet.take(&mut vec![0; 3 * MUCH]).expect("read"), bytes.len());
    }

    #[test]
    fn a_reader_that_sleeps_is_woken_once() {
        let two = Two::new();
        let (mut outlet, mut inlet, _others) = two.link();
        assert!(!outlet.must_wake());
        for _ in 0..3 {
            inlet.fall_asleep();
            assert!(outlet.must_wake() && !outlet.must_wake());
            inlet.awake();
            assert!(!outlet.must_wake());
        }
    }

    #[test]
    fn samples_of_a_hostile_writer_are_bytes_or_an_error() {
        let two = Two::new();
        for seed in 0..30 {
            let mut dice = Dice(seed);
            // Any number of samples, some larger than agreed.
            let name = format!("{}/{seed}", two.1.name);
            let folder = OwnedFolder(SegmentFolder(two.1.folder.join(&name)));
            fs::create_dir_all(&folder.0.0).expect("a folder");
            let node = folder.0.node().expect("a node");
            let hostile = [SMALL, LARGE].map(|samples| {
                let service = node.service_builder(&service_name(samples.name).expect("a name"));
                let service = service.publish_subscribe::<[u8]>().max_nodes(2).subscriber_max_buffer_size(100);
                let service = service.create().expect("a service");
                service.publisher_builder().initial_max_slice_len(2 * samples.bytes).create().expect("created")
            });
            let sleeps = sleeps(&node).expect("a value");
            let half = two.2.half().expect("a half");
            let (_outlet, mut inlet) = two.2.join(half, &name).expect("joined");
            sleeps.update_with_copy(dice.0);
            let (mut sent, mut is_long) = (Vec::new(), false);
            for _ in 0..dice.roll(90) {
                // An empty sample without a large one would mark the next large one.
                let has_large = seed % 2 == 0;
                let which = usize::from(has_large && dice.roll(20) == 0);
                let longest = [SMALL, LARGE][which].bytes;
                let len = match dice.roll(100) {
                    0 => longest + 1 + dice.roll(longest),
                    1..20 if !has_large => 0,
                    20..40 => longest,
                    _ => 1 + dice.roll(longest),
                };
                let bytes: Vec<u8> = (0..len).map(|_| dice.roll(256) as u8).collect();
                let send = |which: usize, bytes: &[u8]| {
                    let sample = hostile[which].loan_slice_uninit(bytes.len()).expect("a loan");
                    sample.write_from_slice(bytes).send().expect("sent");
                };
                send(which, &bytes);
                if which == 1 {
                    send(0, &[]);
                }
                is_long |= len > longest;
                sent.extend_from_slice(if is_long { &[] } else { &bytes });
            }
            let (mut came, mut buffer) = (Vec::new(), vec![0; 10_000]);
            let end = loop {
                match inlet.take(&mut buffer) {
                    Ok(0) => break Ok(()),
                    Ok(count) => came.extend_from_slice(&buffer[..count]),
                    Err(error) => break Err(error.kind()),
                }
            };
            assert!(sent.starts_with(&came), "seed {seed}");
            match is_long {
                true => assert_eq!(end, Err(io::ErrorKind::InvalidData), "seed {seed}"),
                false => assert_eq!((end, came.len()), (Ok(()), sent.len()), "seed {seed}"),
            }
        }
    }

    #[test]
    fn without_room_there_is_no_link() {
        assert!(has_room(1 << 20, SMALL).is_ok());
        let refused = has_room((1 << 20) - 1, SMALL).expect_err("refused");
        assert!(has_room(1 << 20, LARGE).is_err());
        assert!(refused.to_string().contains("bytes left") && refused.kind() == io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_memory_that_is_not_there_is_told() {
        let two = Two::new();
        let own = two.2.name.clone();
        for name in ["nobody/0", "", "/", &"long".repeat(100), &own, &format!("{own}/7"), &format!("{own}/../{own}")] {
            let half = two.1.half().expect("a half");
            let refused = two.1.join(half, name).err().expect("refused").to_string();
            assert!(refused.contains("no shared memory"), "{refused}");
        }
        assert!(Memory::open(Path::new("/nowhere"), &hello(9)).is_err());
    }

    #[test]
    fn what_dead_nodes_have_left_is_removed_and_nothing_else() {
        let two = Two::new();
        let (mut outlet, mut inlet, _others) = two.link();
        let dead = two.1.folder.join(local::name_of(&hello(5)));
        // The dead nodes: one with a lock and memory, one without a lock, and one without memory.
        fs::create_dir_all(dead.join("0/nodes")).expect("a folder");
        let object = Path::new(MOUNT).join(SegmentFolder(dead.join("0")).prefix() + "x");
        fs::write(&object, "x").expect("an object");
        fs::write(dead.with_extension(LOCK), "").expect("a lock");
        fs::create_dir_all(two.1.folder.join(local::name_of(&hello(6)))).expect("a folder");
        fs::write(two.1.folder.join(local::name_of(&hello(7))).with_extension(LOCK), "").expect("a lock");
        fs::write(two.1.folder.join("notes.lock"), "").expect("a file of somebody's");
        two.1.sweep("nobody");
        assert!(!object.exists());
        let mut left: Vec<_> = fs::read_dir(&two.1.folder)
            .expect("a folder")
            .map(|entry| entry.expect("there").file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        let of = |memory: &Memory| [memory.name.clone(), format!("{}.{LOCK}", memory.name)];
        assert_eq!(left, [&of(&two.1)[..], &of(&two.2), &["notes.lock".into()]].concat());
        // The living nodes continue to work.
        assert_eq!(outlet.put(b"on").expect("written"), 2);
        assert_eq!(inlet.take(&mut [0; 9]).expect("read"), 2);
    }
}
