//! Slow figures: a separate thread obtains them, so that no other probe waits.

use std::{
    sync::mpsc::{self, Receiver, Sender, TryRecvError},
    thread,
};

use super::{Metrics, problem};
use crate::{Measure, MeasureError, Moment};

/// Obtains figures by a function on a thread of its own. Each sample takes the result of the call
/// that the previous sample started, and starts the next call. The first sample does not wait and
/// fails, because there is no result yet.
pub struct Fetch {
    what: String,
    /// Requests the next figures. Dropping it ends the thread when the function returns.
    ask: Sender<()>,
    got: Receiver<Result<Metrics, String>>,
    /// Whether figures are requested and have not arrived yet.
    is_asked: bool,
}

impl Fetch {
    /// Starts the thread. `what` names the source of the figures in errors. Fails if the system has
    /// no more threads.
    pub fn start(
        what: &str,
        mut get: impl FnMut() -> Result<Metrics, String> + Send + 'static,
    ) -> Result<Fetch, MeasureError> {
        let (ask, asked) = mpsc::channel();
        let (give, got) = mpsc::channel();
        // The thread ends when the `Fetch` is dropped.
        let work = move || while asked.recv().is_ok_and(|()| give.send(get()).is_ok()) {};
        let started = thread::Builder::new().name("input".into()).spawn(work);
        started.map_err(|error| problem(what, format!("cannot start a thread: {error}")))?;
        Ok(Fetch { what: what.to_owned(), ask, got, is_asked: false })
    }
}

impl Measure<Metrics> for Fetch {
    fn measure(&mut self, _: Moment, sample: &mut Metrics) -> Result<(), MeasureError> {
        let got = self.got.try_recv();
        self.is_asked &= got.is_err();
        if !self.is_asked {
            // Fails if the thread has panicked; the next sample reports that.
            self.is_asked = self.ask.send(()).is_ok();
        }
        match got {
            Ok(Ok(fresh)) => *sample = fresh,
            Ok(Err(text)) => return Err(problem(&self.what, text)),
            Err(TryRecvError::Empty) => return Err(problem(&self.what, "nothing has come yet")),
            Err(TryRecvError::Disconnected) => return Err(problem(&self.what, "the thread has panicked")),
        }
        Ok(())
    }
}
