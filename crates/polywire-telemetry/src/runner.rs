//! Runs a node on a thread of its own.

use std::{
    io,
    sync::mpsc::{self, Receiver, Sender, TryRecvError},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{Agent, Clocks};

/// The longest time between two turns of a node. Requests wake its thread earlier.
const TICK: Duration = Duration::from_secs(1);

/// The longest time between two turns of a node with sockets, because their samples do not wake its
/// thread.
const SHORT_TICK: Duration = Duration::from_millis(50);

/// A node that runs on a thread of its own. Dropping it ends the thread; published messages may
/// still be under way then ([`polywire::Node::flush`]). See [`crate::Application`] for an example.
pub struct Runner {
    flushes: Option<Sender<Flush>>,
    thread: Option<JoinHandle<()>>,
}

/// An instance, and the channel for whether the flush was done.
type Flush = (String, Sender<bool>);

impl Runner {
    /// Starts the thread. Fails if the system has no more threads.
    pub fn start(agent: Agent) -> io::Result<Runner> {
        let (flushes, asked) = mpsc::channel();
        let thread = thread::Builder::new().name("probes".into()).spawn(move || run(agent, &asked))?;
        Ok(Runner { flushes: Some(flushes), thread: Some(thread) })
    }

    /// Samples and publishes a probe at once, and blocks until that is done. Returns false if there
    /// is no such probe, or if it has neither a subscriber nor a collector.
    pub fn flush(&self, instance: &str) -> bool {
        let (tell, told) = mpsc::channel();
        let sent = self.flushes.as_ref().is_some_and(|flushes| flushes.send((instance.to_owned(), tell)).is_ok());
        self.thread.iter().for_each(|thread| thread.thread().unpark());
        sent && told.recv().unwrap_or(false)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.flushes = None;
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // Fails if a probe has panicked; the panic has been reported already.
            let _ = thread.join();
        }
    }
}

fn run(mut agent: Agent, asked: &Receiver<Flush>) {
    let clocks = Clocks::new();
    loop {
        agent.turn(clocks.now());
        match asked.try_recv() {
            Ok((instance, tell)) => {
                // Fails if the caller no longer waits.
                let _ = tell.send(agent.flush(&instance, clocks.now()));
            }
            Err(TryRecvError::Empty) => {
                let tick = if agent.serves() { SHORT_TICK } else { TICK };
                thread::park_timeout(agent.wait(clocks.now()).min(tick));
            }
            Err(TryRecvError::Disconnected) => return,
        }
    }
}
