//! The shared memory of a node's links: services of iceoryx2, which two nodes open for each
//! direction of their link.
//!
//! Publish-subscribe carries the bytes of one direction, in samples. A blackboard with one value
//! tells the writer whether the reader sleeps.

use std::{
    fmt,
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::atomic::{self, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use iceoryx2::{
    port::{
        LoanError, SendError, publisher::Publisher, reader::EntryHandle, subscriber::Subscriber,
        update_connections::UpdateConnections as _, writer::EntryHandleMut,
    },
    prelude::{
        BackpressureStrategy, Config, FileName, Node, NodeBuilder, SemanticString as _, ServiceName,
        SignalHandlingMode, ipc_threadsafe::Service,
    },
    sample::Sample,
};
use polywire_core::{frame::Hello, schema::DocumentHash};
use rustix::fs::statvfs;

use crate::engine::local;

/// Bytes of frames in a sample.
type Bytes = Sample<Service, [u8], ()>;
type Reader = Subscriber<Service, [u8], ()>;
/// Says whether the reader sleeps.
type Sleeps = EntryHandle<Service, u64, u64>;

/// Bytes in a sample, at most.
pub(super) const SAMPLE_BYTES: usize = 4096;
/// Samples of one direction. Together with [`SAMPLE_BYTES`], the bytes that can be under way.
pub(super) const SAMPLES: usize = 64;
/// What must be free before a link takes its memory. It takes about a quarter of it: as nobody can
/// tell how much others take at the same time, there is room for some more.
const FREE_BYTES: u64 = 4 * (SAMPLES * SAMPLE_BYTES) as u64;
/// Where the system has shared memory.
const MOUNT: &str = "/dev/shm";
/// The folder with the memories, in that of the nodes' sockets.
const FOLDER: &str = "memory";
/// Bytes in the path of that folder, at most. iceoryx2 panics at files whose paths have more than
/// 255: behind this one, they have the names of a node and of a link, and up to 146 bytes.
const LONGEST_FOLDER: usize = 52;
/// The ending of a node's lock.
const LOCK: &str = "lock";
/// The key of the value that says whether the reader sleeps.
const SLEEPS: u64 = 0;
/// How often, and with which pause, a node looks for the files of a peer that has gone.
const LOOKS: usize = 20;
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The shared memory of a port: the halves of its links that this node writes.
pub(super) struct Memory {
    /// Where the memories of all nodes are.
    folder: PathBuf,
    name: String,
    /// Locked as long as this lives.
    _lock: File,
    /// Links so far.
    links: AtomicU64,
}

/// One end of a link before the other end is there: the memory of the direction that it writes, and
/// the value by which it will say that it sleeps.
pub(super) struct Half {
    pub(super) name: String,
    publisher: Publisher<Service, [u8], ()>,
    sleeps: EntryHandleMut<Service, u64, u64>,
    place: Own,
}

/// The writing end of a direction.
pub(super) struct Outlet {
    publisher: Publisher<Service, [u8], ()>,
    sleeps: Sleeps,
    /// The sleep from which the reader was woken last.
    woken: u64,
}

/// The reading end of a direction, and the files of the other direction.
pub(super) struct Inlet {
    subscriber: Reader,
    sleeps: EntryHandleMut<Service, u64, u64>,
    /// Odd while the reader sleeps.
    sleep: u64,
    /// A sample of which this many bytes have been read.
    begun: Option<(Bytes, usize)>,
    _place: Own,
}

/// Where iceoryx2 has the files of one half.
struct Place(PathBuf);

/// A half's place that this node has made. Dropping it removes it; whoever uses it goes on.
struct Own(Place);

impl Memory {
    /// Opens the memory of a node, and removes what dead nodes have left.
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

    /// Makes this end's half of a link. Its memory is there afterwards: an access to shared memory
    /// that the system does not have would end the process.
    pub(super) fn half(&self) -> io::Result<Half> {
        has_room(statvfs(MOUNT).map(|found| found.f_bavail.saturating_mul(found.f_frsize))?)?;
        let name = format!("{}/{}", self.name, self.links.fetch_add(1, Ordering::Relaxed));
        let place = Own(Place(self.folder.join(&name)));
        fs::create_dir_all(&place.0.0)?;
        let node = place.0.node()?;
        place.0.make_private()?;
        let (publisher, sleeps) = (publisher(&node)?, sleeps(&node)?);
        let samples: Result<Vec<_>, _> = (0..SAMPLES).map(|_| publisher.loan_slice_uninit(SAMPLE_BYTES)).collect();
        for sample in samples.map_err(failed("reserve"))? {
            sample.write_from_slice(&[0; SAMPLE_BYTES]);
        }
        Ok(Half { name, publisher, sleeps, place })
    }

    /// Joins this end's half with that of the peer, by its name.
    pub(super) fn join(&self, half: Half, peer: &str) -> io::Result<(Outlet, Inlet)> {
        let is_name = |(node, link): (&str, &str)| local::hello_of(node).is_some() && link.parse::<u64>().is_ok();
        let place = Place(self.folder.join(peer));
        if !peer.split_once('/').is_some_and(is_name) || !place.0.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no shared memory '{peer}'")));
        }
        let (subscriber, sleeps) = open(&place.node()?)?;
        let Half { publisher, sleeps: own, place, .. } = half;
        let inlet = Inlet { subscriber, sleeps: own, sleep: 0, begun: None, _place: place };
        Ok((Outlet { publisher, sleeps, woken: 0 }, inlet))
    }

    /// Removes what a peer has left whose process has ended. Its lock is held for some moments
    /// longer than its connections last.
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

fn publisher(node: &Node<Service>) -> io::Result<Publisher<Service, [u8], ()>> {
    let service = node.service_builder(&service_name()?).publish_subscribe::<[u8]>();
    let service = service.max_publishers(1).max_subscribers(1).max_nodes(2).enable_safe_overflow(false);
    let service = service.subscriber_max_buffer_size(SAMPLES).subscriber_max_borrowed_samples(1);
    let service = service.create().map_err(failed("create"))?;
    let publisher = service.publisher_builder().initial_max_slice_len(SAMPLE_BYTES);
    // All samples at once, to fill them at first; and no more than those.
    let publisher = publisher.max_loaned_samples(SAMPLES).override_sample_preallocation(|_| SAMPLES);
    publisher.backpressure_strategy(BackpressureStrategy::DiscardData).create().map_err(failed("create"))
}

fn sleeps(node: &Node<Service>) -> io::Result<EntryHandleMut<Service, u64, u64>> {
    let service = node.service_builder(&service_name()?).blackboard_creator::<u64>();
    let service = service.max_readers(1).max_nodes(2).add(SLEEPS, 0u64).create().map_err(failed("create"))?;
    let writer = service.writer_builder().create().map_err(failed("create"))?;
    writer.entry(&SLEEPS).map_err(failed("create"))
}

/// Opens what a peer has made.
fn open(node: &Node<Service>) -> io::Result<(Reader, Sleeps)> {
    let service = node.service_builder(&service_name()?).publish_subscribe::<[u8]>();
    let subscriber = service.open().map_err(failed("open"))?.subscriber_builder().create().map_err(failed("open"))?;
    let service = node.service_builder(&service_name()?).blackboard_opener::<u64>();
    let reader = service.open().map_err(failed("open"))?.reader_builder().create().map_err(failed("open"))?;
    Ok((subscriber, reader.entry(&SLEEPS).map_err(failed("open"))?))
}

impl Place {
    /// A node of iceoryx2 that uses the place.
    fn node(&self) -> io::Result<Node<Service>> {
        let mut config = Config::default();
        let root = iceoryx2::prelude::Path::new(self.0.as_os_str().as_bytes());
        config.global.set_root_path(&root.map_err(failed("use the folder of"))?);
        config.global.prefix = FileName::new(self.prefix().as_bytes()).map_err(failed("use the folder of"))?;
        // Whoever dies is swept by its lock.
        config.global.service.cleanup_dead_nodes_on_open = false;
        config.global.node.cleanup_dead_nodes_on_creation = false;
        config.global.node.cleanup_dead_nodes_on_destruction = false;
        let node = NodeBuilder::new().config(&config).signal_handling_mode(SignalHandlingMode::Disabled);
        node.create().map_err(failed("open a node for"))
    }

    /// With what the names of the objects in shared memory begin.
    fn prefix(&self) -> String {
        let hash = DocumentHash::of(self.0.as_os_str().as_bytes()).to_string();
        format!("polywire_{}_", &hash[..16])
    }

    /// The objects in shared memory.
    fn objects(&self) -> impl Iterator<Item = PathBuf> {
        let prefix = self.prefix();
        let is_own = move |entry: &fs::DirEntry| entry.file_name().as_bytes().starts_with(prefix.as_bytes());
        fs::read_dir(MOUNT).into_iter().flatten().filter_map(Result::ok).filter(is_own).map(|entry| entry.path())
    }

    /// Removes the objects in shared memory, and the files.
    fn remove(&self) {
        self.objects().for_each(|object| remove_file(&object));
        // Somebody else may be removing it.
        let _ = fs::remove_dir_all(&self.0);
    }

    /// Takes from other users the permission for the one object that iceoryx2 makes for everybody:
    /// a counter of nodes.
    fn make_private(&self) -> io::Result<()> {
        self.objects().try_for_each(|object| fs::set_permissions(object, Permissions::from_mode(0o600)))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.0.remove();
    }
}

impl Outlet {
    /// Opens what the peer has made for the samples to come, as long as its files are there.
    pub(super) fn connect(&self) -> io::Result<()> {
        self.publisher.update_connections().map_err(failed("open"))
    }

    /// Writes the bytes that there is room for, and returns their number.
    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        for part in bytes.chunks(SAMPLE_BYTES) {
            let sample = match self.publisher.loan_slice_uninit(part.len()) {
                Err(LoanError::OutOfMemory | LoanError::ExceedsMaxLoans) => break,
                loan => loan.map_err(failed("write"))?,
            };
            match sample.write_from_slice(part).send() {
                Ok(0) => break,
                Ok(_) => written += part.len(),
                // The peer has closed its end.
                Err(SendError::ConnectionError(_)) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(error) => return Err(failed("write")(error)),
            }
        }
        Ok(written)
    }

    /// Whether there is room for a sample.
    pub(super) fn has_room(&self) -> bool {
        self.publisher.loan_slice_uninit(1).is_ok()
    }

    /// Whether the reader sleeps and has to be woken, after something was put. True once for each
    /// of its sleeps.
    #[inline]
    pub(super) fn must_wake(&mut self) -> bool {
        // The reader says that it sleeps and then looks once more; this end puts and then looks
        // whether it sleeps. So at least one of the two sees what the other one did.
        atomic::fence(Ordering::SeqCst);
        let sleep = *self.sleeps.get();
        let must_wake = sleep % 2 == 1 && sleep != self.woken;
        self.woken = sleep;
        must_wake
    }
}

impl Inlet {
    /// Reads what is there into the buffer; 0 if that is nothing.
    #[inline]
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
            let next = || Ok(self.subscriber.receive()?.map(|sample| (sample, 0)));
            let next = self.begun.take().map_or_else(next, |begun| Ok(Some(begun)));
            let Some((sample, start)) = next.map_err(failed::<iceoryx2::port::ReceiveError>("read"))? else { break };
            let (taken, len) = copy(sample.payload(), start, room)?;
            filled += taken;
            if start + taken < len {
                self.begun = Some((sample, start + taken));
            } else if len != SAMPLE_BYTES && filled > 0 {
                // The writer had no more to write. If it has written again, the next read sees it.
                break;
            }
        }
        Ok(filled)
    }

    /// Tells the writer that the reader will sleep. It must look once more before it does.
    pub(super) fn fall_asleep(&mut self) {
        self.sleep += 1;
        self.sleeps.update_with_copy(self.sleep);
        atomic::fence(Ordering::SeqCst);
    }

    /// Tells the writer that the reader does not sleep any more.
    pub(super) fn awake(&mut self) {
        self.sleep += 1;
        self.sleeps.update_with_copy(self.sleep);
    }
}

/// Copies the bytes of a sample from `start` on, as many as there is room for. Returns their
/// number, and the length of the sample, which the peer can change at any time.
#[inline]
fn copy(sample: &[u8], start: usize, room: &mut [u8]) -> io::Result<(usize, usize)> {
    let len = sample.len();
    if len > SAMPLE_BYTES {
        let reason = format!("a sample of {len} bytes, and none has more than {SAMPLE_BYTES}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let rest = sample.get(start..).unwrap_or_default();
    let count = rest.len().min(room.len());
    if let (Some(room), Some(rest)) = (room.get_mut(..count), rest.get(..count)) {
        room.copy_from_slice(rest);
    }
    Ok((count, len))
}

/// The folder with the memories of all nodes, by the same path for all, however they came to it.
fn private_folder(folder: &Path) -> io::Result<PathBuf> {
    let folder = folder.canonicalize()?.join(FOLDER);
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(folder),
    }
}

/// Removes the memories of dead nodes.
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

/// Removes the memory of a node, whose lock this process has.
fn remove(folder: &Path, name: &str) {
    let halves = fs::read_dir(folder.join(name)).into_iter().flatten().filter_map(Result::ok);
    halves.for_each(|half| Place(half.path()).remove());
    let _ = fs::remove_dir(folder.join(name));
    // The lock last: until then nobody can take the name.
    remove_file(&folder.join(format!("{name}.{LOCK}")));
}

fn remove_file(path: &Path) {
    // It may be gone already.
    let _ = fs::remove_file(path);
}

fn has_room(free: u64) -> io::Result<()> {
    let reason = || {
        let reason = format!("{MOUNT} has {free} bytes left, and a link needs {FREE_BYTES}");
        io::Error::new(io::ErrorKind::StorageFull, reason)
    };
    if free >= FREE_BYTES { Ok(()) } else { Err(reason()) }
}

fn service_name() -> io::Result<ServiceName> {
    ServiceName::new("link").map_err(failed("use the name of"))
}

/// An error of iceoryx2, which has the name of its cause.
fn failed<E: fmt::Debug>(action: &'static str) -> impl Fn(E) -> io::Error {
    move |cause| io::Error::other(format!("cannot {action} shared memory: {cause:?}"))
}

#[cfg(test)]
mod tests {
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

    /// A folder of its own with two nodes.
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

        /// The end that writes and the end that reads, and the others of both.
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

    #[test]
    fn bytes_come_in_order_however_they_are_written_and_read() {
        let two = Two::new();
        let (mut outlet, mut inlet, _others) = two.link();
        for seed in 0..20 {
            let (mut dice, mut written, mut read) = (Dice(seed), 0, 0);
            for _ in 0..300 {
                let bytes: Vec<u8> = (0..dice.roll(3 * SAMPLE_BYTES)).map(|at| (written + at) as u8).collect();
                written += outlet.put(&bytes).expect("written");
                let mut buffer = vec![0; 1 + dice.roll(5 * SAMPLE_BYTES)];
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
        let all = SAMPLES * SAMPLE_BYTES;
        for _ in 0..3 {
            assert_eq!(outlet.put(&vec![7; 2 * all]).expect("written"), all);
            assert!(!outlet.has_room() && outlet.put(&[7]).expect("full") == 0);
            let mut buffer = vec![0; SAMPLE_BYTES];
            assert_eq!(inlet.take(&mut buffer).expect("read"), SAMPLE_BYTES);
            assert!(outlet.has_room());
            let mut rest = vec![0; all];
            assert_eq!(inlet.take(&mut rest).expect("read"), all - SAMPLE_BYTES);
        }
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
            // Larger samples than are agreed, and of any number.
            let name = format!("{}/{seed}", two.1.name);
            let place = Own(Place(two.1.folder.join(&name)));
            fs::create_dir_all(&place.0.0).expect("a folder");
            let node = place.0.node().expect("a node");
            let service = node.service_builder(&service_name().expect("a name")).publish_subscribe::<[u8]>();
            let service = service.max_nodes(2).subscriber_max_buffer_size(100).create().expect("a service");
            let hostile =
                service.publisher_builder().initial_max_slice_len(4 * SAMPLE_BYTES).create().expect("created");
            let sleeps = sleeps(&node).expect("a value");
            let half = two.2.half().expect("a half");
            let (_outlet, mut inlet) = two.2.join(half, &name).expect("joined");
            sleeps.update_with_copy(dice.0);
            let (mut sent, mut is_long) = (Vec::new(), false);
            for _ in 0..dice.roll(90) {
                let len = match dice.roll(100) {
                    0 => SAMPLE_BYTES + 1 + dice.roll(SAMPLE_BYTES),
                    1..20 => 0,
                    20..40 => SAMPLE_BYTES,
                    _ => dice.roll(SAMPLE_BYTES),
                };
                let bytes: Vec<u8> = (0..len).map(|_| dice.roll(256) as u8).collect();
                let sample = hostile.loan_slice_uninit(len).expect("a loan");
                sample.write_from_slice(&bytes).send().expect("sent");
                is_long |= len > SAMPLE_BYTES;
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
        assert!(has_room(FREE_BYTES).is_ok());
        let refused = has_room(FREE_BYTES - 1).expect_err("refused");
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
        // Killed with a lock, without one, and before it had any memory.
        fs::create_dir_all(dead.join("0/nodes")).expect("a folder");
        let object = Path::new(MOUNT).join(Place(dead.join("0")).prefix() + "x");
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
        // Those that live go on.
        assert_eq!(outlet.put(b"on").expect("written"), 2);
        assert_eq!(inlet.take(&mut [0; 9]).expect("read"), 2);
    }
}
