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
            let bytes = sample.payload().get(start..).unwrap_or_default();
            let (count, len) = (bytes.len().min(room.len()), sample.payload().len());
            if let (Some(room), Some(bytes)) = (room.get_mut(..count), bytes.get(..count)) {
                room.copy_from_slice(bytes);
            }
            filled += count;
            if start + count < len {
                self.begun = Some((sample, start + count));
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
