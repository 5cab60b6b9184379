//! The shared memory of a node's links: services of iceoryx2, which two nodes open for each
//! direction of their link.
//!
//! Publish-subscribe carries the bytes of one direction, in samples. A blackboard with one value
//! tells the writer whether the reader sleeps.

use std::{
    fmt, io,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::atomic::{self, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use iceoryx2::{
    port::{LoanError, SendError, publisher::Publisher, reader::EntryHandle, subscriber::Subscriber, writer::EntryHandleMut},
    prelude::{
        BackpressureStrategy, Config, FileName, Node, NodeBuilder, SemanticString as _, ServiceName,
        SignalHandlingMode, ipc_threadsafe::Service,
    },
    sample::Sample,
};
use polywire_core::schema::DocumentHash;
use rustix::fs::statvfs;

/// Bytes in a sample, at most.
pub(super) const SAMPLE_BYTES: usize = 4096;
/// Samples of one direction. Together with [`SAMPLE_BYTES`], the bytes that can be under way.
pub(super) const SAMPLES: usize = 64;
/// What must be free before a link takes its memory. It takes about a quarter of it: as nobody can
/// tell how much others take at the same time, there is room for some more.
const FREE_BYTES: u64 = 4 * (SAMPLES * SAMPLE_BYTES) as u64;
/// Where the system has shared memory.
const MOUNT: &str = "/dev/shm";
/// The folder of iceoryx2's files, in that of the nodes' sockets.
const FOLDER: &str = "iceoryx2";
/// The key of the value that says whether the reader sleeps.
const SLEEPS: u64 = 0;
/// How often, and with which pause, a node looks for the files of a peer that has gone.
const LOOKS: usize = 20;
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A node of iceoryx2, which has the shared memory of all links of a port.
pub(super) struct Memory {
    node: Node<Service>,
    /// Links so far.
    links: AtomicU64,
}

/// One end of a link before the other end is there: the memory of the direction that it writes, and
/// the value by which it will say that it sleeps.
pub(super) struct Half {
    pub(super) name: String,
    publisher: Publisher<Service, [u8], ()>,
    sleeps: EntryHandleMut<Service, u64, u64>,
}

/// The writing end of a direction.
pub(super) struct Outlet {
    publisher: Publisher<Service, [u8], ()>,
    sleeps: EntryHandle<Service, u64, u64>,
    /// The sleep from which the reader was woken last.
    woken: u64,
}

/// The reading end of a direction.
pub(super) struct Inlet {
    subscriber: Subscriber<Service, [u8], ()>,
    sleeps: EntryHandleMut<Service, u64, u64>,
    /// Odd while the reader sleeps.
    sleep: u64,
    /// A sample of which this many bytes have been read.
    begun: Option<(Sample<Service, [u8], ()>, usize)>,
}

impl Memory {
    /// Opens the shared memory of the nodes of a folder, and removes what dead nodes have left.
    pub(super) fn open(folder: &Path) -> io::Result<Memory> {
        let node = NodeBuilder::new().config(&config(folder)?).signal_handling_mode(SignalHandlingMode::Disabled);
        Ok(Memory { node: node.create().map_err(failed("open iceoryx2's node"))?, links: AtomicU64::new(0) })
    }

    /// Makes this end's half of a link. Its memory is there afterwards: an access to shared memory
    /// that the system does not have would end the process.
    pub(super) fn half(&self) -> io::Result<Half> {
        has_room(statvfs(MOUNT).map(|found| found.f_bavail.saturating_mul(found.f_frsize))?)?;
        let link = self.links.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}/{link}", self.node.id().value());
        let (publisher, sleeps) = (self.publisher(&name)?, self.sleeps(&name)?);
        let samples: Result<Vec<_>, _> = (0..SAMPLES).map(|_| publisher.loan_slice_uninit(SAMPLE_BYTES)).collect();
        for sample in samples.map_err(failed("reserve"))? {
            sample.write_from_slice(&[0; SAMPLE_BYTES]);
        }
        Ok(Half { name, publisher, sleeps })
    }

    fn publisher(&self, name: &str) -> io::Result<Publisher<Service, [u8], ()>> {
        let service = self.node.service_builder(&service_name(name)?).publish_subscribe::<[u8]>();
        let service = service.max_publishers(1).max_subscribers(1).max_nodes(2).enable_safe_overflow(false);
        let service = service.subscriber_max_buffer_size(SAMPLES).subscriber_max_borrowed_samples(1);
        let service = service.create().map_err(failed("create"))?;
        let publisher = service.publisher_builder().initial_max_slice_len(SAMPLE_BYTES);
        // All samples at once, to fill them at first; and no more than those.
        let publisher = publisher.max_loaned_samples(SAMPLES).override_sample_preallocation(|_| SAMPLES);
        publisher.backpressure_strategy(BackpressureStrategy::DiscardData).create().map_err(failed("create"))
    }

    fn sleeps(&self, name: &str) -> io::Result<EntryHandleMut<Service, u64, u64>> {
        let service = self.node.service_builder(&service_name(name)?).blackboard_creator::<u64>();
        let service = service.max_readers(1).max_nodes(2).add(SLEEPS, 0u64).create().map_err(failed("create"))?;
        let writer = service.writer_builder().create().map_err(failed("create"))?;
        writer.entry(&SLEEPS).map_err(failed("create"))
    }

    /// Joins this end's half with that of the peer.
    pub(super) fn join(&self, half: Half, peer: &str) -> io::Result<(Outlet, Inlet)> {
        let service = self.node.service_builder(&service_name(peer)?).publish_subscribe::<[u8]>();
        let service = service.open().map_err(failed("open"))?;
        let subscriber = service.subscriber_builder().create().map_err(failed("open"))?;
        let service = self.node.service_builder(&service_name(peer)?).blackboard_opener::<u64>();
        let reader = service.open().map_err(failed("open"))?.reader_builder().create().map_err(failed("open"))?;
        let sleeps = reader.entry(&SLEEPS).map_err(failed("open"))?;
        let inlet = Inlet { subscriber, sleeps: half.sleeps, sleep: 0, begun: None };
        Ok((Outlet { publisher: half.publisher, sleeps, woken: 0 }, inlet))
    }

    /// Removes what a peer has left whose process has ended. Its files are those of a living node
    /// for some moments longer than its connections last.
    pub(super) fn sweep(&self) {
        for _ in 0..LOOKS {
            if self.node.try_cleanup_dead_nodes().cleanups > 0 {
                return;
            }
            thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Outlet {
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

/// Copies the bytes of a sample from `start` on, as many as there is room for. Returns their number,
/// and the length of the sample, which the peer can change at any time.
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

/// Files in the user's own folder, and objects in shared memory that this folder gives their names.
fn config(folder: &Path) -> io::Result<Config> {
    let mut config = Config::default();
    // The same for all nodes, by whatever way they came to the folder.
    let root = folder.canonicalize()?.join(FOLDER);
    let root = root.as_os_str().as_bytes();
    config.global.set_root_path(&iceoryx2::prelude::Path::new(root).map_err(failed("use the folder of"))?);
    let prefix = format!("polywire_{}_", DocumentHash::of(root));
    config.global.prefix = FileName::new(prefix.as_bytes()).map_err(failed("use the folder of"))?;
    // Nodes that have died are looked for when a node comes and when a peer goes.
    config.global.service.cleanup_dead_nodes_on_open = false;
    Ok(config)
}

fn has_room(free: u64) -> io::Result<()> {
    let reason = || {
        let reason = format!("{MOUNT} has {free} bytes left, and a link needs {FREE_BYTES}");
        io::Error::new(io::ErrorKind::StorageFull, reason)
    };
    if free >= FREE_BYTES { Ok(()) } else { Err(reason()) }
}

fn service_name(name: &str) -> io::Result<ServiceName> {
    ServiceName::new(name).map_err(failed("use the name of"))
}

/// An error of iceoryx2, which has the name of its cause.
fn failed<E: fmt::Debug>(action: &'static str) -> impl Fn(E) -> io::Error {
    move |cause| io::Error::other(format!("cannot {action} shared memory: {cause:?}"))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::PathBuf,
        sync::atomic::{AtomicU64, Ordering},
    };

    use super::*;

    /// Pseudo-random numbers, from a seed that a failing test prints.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % sides
        }
    }

    /// A folder of its own with two nodes.
    struct Two(PathBuf, Memory, Memory);

    impl Two {
        fn new() -> Two {
            static COUNT: AtomicU64 = AtomicU64::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let folder = std::env::temp_dir().join(format!("polywire-memory-{}-{number}", std::process::id()));
            fs::create_dir_all(&folder).expect("a folder");
            let open = || Memory::open(&folder).expect("memory");
            let (here, there) = (open(), open());
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
            let name = service_name(&format!("hostile/{seed}")).expect("a name");
            let service = two.1.node.service_builder(&name).publish_subscribe::<[u8]>();
            let service = service.max_nodes(2).subscriber_max_buffer_size(100).create().expect("a service");
            let hostile = service.publisher_builder().initial_max_slice_len(4 * SAMPLE_BYTES).create().expect("created");
            let sleeps = two.1.sleeps(&format!("hostile/{seed}")).expect("a value");
            let half = two.2.half().expect("a half");
            let (_outlet, mut inlet) = two.2.join(half, &format!("hostile/{seed}")).expect("joined");
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
        for name in ["nobody/0", "", &"long".repeat(100)] {
            let half = two.1.half().expect("a half");
            let refused = two.1.join(half, name).err().expect("refused").to_string();
            assert!(refused.contains("shared memory"), "{refused}");
        }
        assert!(Memory::open(std::path::Path::new("/nowhere")).is_err());
    }
}
