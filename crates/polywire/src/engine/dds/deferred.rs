//! Work that may take long, which a separate thread does: deleting writers and readers, which waits
//! for acknowledgements and for Cyclone's threads, and writing messages that found no room.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use polywire_dds::{Error, Reader, Sample, Writer};

use super::{
    super::{Event, Overflow},
    dispatch,
    peer::{Link, Peer, ReadEnd},
    state::{Channel, Shared},
};

/// The interval between checks whether a message that waits for room may be left to the thread, and
/// whether a retired channel is no longer in use.
const LOOK: Duration = Duration::from_millis(5);

/// The minimum time between two [`Event::Dropped`] of a channel.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// A task that may take long.
pub(super) enum Task {
    /// A channel has retired. DDS deletes its writer once its readers have acknowledged everything.
    Retire(Arc<Channel>),
    /// A channel no longer uses this reader, which is deleted if no other channel uses it.
    Leave(Arc<ReadEnd>),
    /// A participant has gone.
    Lose(Box<Peer>),
    /// The writer and reader of questions for types that are no longer needed.
    DropTypeClient(Box<(Writer, Reader)>),
    /// Messages of a channel wait for room.
    Write(Arc<Channel>),
}

/// The queue of the thread for deferred work.
pub(super) struct Deferred(Mutex<Option<mpsc::Sender<Task>>>);

impl Deferred {
    pub(super) fn new() -> (Deferred, mpsc::Receiver<Task>) {
        let (sender, receiver) = mpsc::channel();
        (Deferred(Mutex::new(Some(sender))), receiver)
    }

    /// Adds a task. Nothing is done after [`Deferred::end`].
    pub(super) fn add(&self, task: Task) {
        if let Some(sender) = &*self.0.lock() {
            // An error means that the thread has panicked.
            let _ = sender.send(task);
        }
    }

    /// Ends the thread once it has done all tasks. Messages that still find no room are not
    /// written.
    pub(super) fn end(&self) {
        self.0.lock().take();
    }

    fn is_ending(&self) -> bool {
        self.0.lock().is_none()
    }
}

/// Starts the thread.
pub(super) fn start(shared: &Arc<Shared>, tasks: mpsc::Receiver<Task>) -> io::Result<JoinHandle<()>> {
    let shared = shared.clone();
    thread::Builder::new().name("dds-deferred".into()).spawn(move || {
        let mut retired: Vec<Arc<Channel>> = Vec::new();
        loop {
            let pause = if retired.is_empty() { Duration::MAX } else { LOOK };
            match tasks.recv_timeout(pause) {
                Ok(Task::Retire(channel)) => retired.push(channel),
                Ok(Task::Leave(end)) => drop(end),
                Ok(Task::Lose(peer)) => drop(peer),
                Ok(Task::DropTypeClient(ends)) => drop(ends),
                Ok(Task::Write(channel)) => shared.write_late(&channel),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if retired.is_empty() => return,
                Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK),
            }
            // A thread that still writes, such as one of Cyclone's, must not drop the last
            // reference.
            retired.retain(|channel| Arc::strong_count(channel) > 1);
        }
    })
}

/// Samples that wait for room in the history of a channel's writer.
#[derive(Default)]
pub(super) struct Late {
    waiting: Mutex<Waiting>,
    empty: Condvar,
}

#[derive(Default)]
struct Waiting {
    samples: VecDeque<Sample>,
    bytes: usize,
}

impl Late {
    fn is_empty(&self) -> bool {
        self.waiting.lock().samples.is_empty()
    }

    /// Adds a sample. Returns it as the error if `most` bytes wait already.
    fn push(&self, sample: Sample, most: usize) -> Result<(), Sample> {
        let mut waiting = self.waiting.lock();
        if waiting.bytes >= most {
            return Err(sample);
        }
        waiting.bytes += sample.bytes.sample().len();
        waiting.samples.push_back(sample);
        Ok(())
    }

    fn first(&self) -> Option<Sample> {
        self.waiting.lock().samples.front().cloned()
    }

    fn done(&self) {
        let mut waiting = self.waiting.lock();
        let done = waiting.samples.pop_front();
        waiting.bytes -= done.map_or(0, |sample| sample.bytes.sample().len());
        if waiting.samples.is_empty() {
            self.empty.notify_all();
        }
    }

    /// Waits until no sample waits. Returns false if the time is up before.
    pub(super) fn wait(&self, at_most: Duration) -> bool {
        let is_busy = |waiting: &mut Waiting| !waiting.samples.is_empty();
        !self.empty.wait_while_for(&mut self.waiting.lock(), is_busy, at_most).timed_out()
    }
}

impl Shared {
    /// Writes a message. False if it found no room in the writer's history.
    ///
    /// Waits for room, but must not block the thread of Cyclone that processes acknowledgements,
    /// because these make room. So the messages that this thread of Cyclone writes, and those
    /// written while it may wait for the caller, are left to the thread for deferred work.
    pub(super) fn write(&self, channel: &Arc<Channel>, mut sample: Sample) -> Result<bool, Error> {
        let (mut until, mut may_not_wait) = (None, dispatch::is_delivering() || self.inbox.is_full());
        loop {
            // Samples that already wait go first.
            if channel.late.is_empty() {
                match dispatch::writing(|| channel.writer.write(&sample)) {
                    Err(error) if error.is_timeout() => {}
                    written => return written.map(|()| true),
                }
            }
            if self.patience().is_zero() {
                return Ok(false);
            }
            if may_not_wait {
                match channel.late.push(sample, self.options.queue_bytes) {
                    Ok(()) => {
                        self.deferred.add(Task::Write(channel.clone()));
                        return Ok(true);
                    }
                    Err(back) => sample = back,
                }
            }
            let until = *until.get_or_insert_with(|| Instant::now() + self.patience());
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || dispatch::is_delivering() {
                return Ok(false);
            }
            // Returns at once if no sample waits; then the write above has already waited briefly.
            channel.late.wait(left.min(LOOK));
            may_not_wait = self.inlet.is_held_up();
        }
    }

    fn patience(&self) -> Duration {
        match self.options.overflow {
            Overflow::Block { patience } => patience,
            _ => Duration::ZERO,
        }
    }

    /// Writes the samples that wait for room. If there is no room in time, drops them until there
    /// is.
    fn write_late(&self, channel: &Arc<Channel>) {
        let mut until = Instant::now() + self.patience();
        while let Some(sample) = channel.late.first() {
            match dispatch::writing(|| channel.writer.write(&sample)) {
                Err(error) if error.is_timeout() && Instant::now() < until && !self.deferred.is_ending() => continue,
                Ok(()) => until = Instant::now() + self.patience(),
                Err(error) if error.is_timeout() => self.dropped(channel, &channel.takers()),
                Err(error) => log::warn!("{}: cannot write '{}': {error}", self.endpoint, channel.topic),
            }
            channel.late.done();
        }
    }

    /// Counts and reports a message for which the writer's history had no room.
    pub(super) fn dropped(&self, channel: &Channel, to: &[Arc<Link>]) {
        to.iter().for_each(|link| link.count_drop());
        let count = {
            let mut sending = channel.sending.lock();
            sending.dropped += 1;
            if sending.told.is_some_and(|told| told.elapsed() < TELL_AGAIN) {
                return;
            }
            sending.told = Some(Instant::now());
            std::mem::take(&mut sending.dropped)
        };
        let topic = &channel.announcement.topic;
        for link in to {
            self.sink.event(Event::Dropped { link: link.info.clone(), topic: topic.clone(), count });
        }
    }
}
