//! Figures that take a while to get: a thread gets them, so that no other probe waits.

use std::{
    sync::mpsc::{self, Receiver, Sender, TryRecvError},
    thread,
};

use super::{Metrics, problem};
use crate::{Measure, MeasureError, Moment};

/// Gets figures by a function, each time that a sample is taken: the sample has what the function
/// returned after the one before. The first one waits for nothing and has no figures.
pub struct Fetch {
    what: String,
    /// Asks for the next figures. Dropping it ends the thread, when the function returns.
    ask: Sender<()>,
    got: Receiver<Result<Metrics, String>>,
    /// They have been asked for and have not come.
    is_asked: bool,
}

impl Fetch {
    /// `what` is what the function gets, for errors. Fails if the system has no more threads.
    pub fn start(
        what: &str,
        mut get: impl FnMut() -> Result<Metrics, String> + Send + 'static,
    ) -> Result<Fetch, MeasureError> {
        let (ask, asked) = mpsc::channel();
        let (give, got) = mpsc::channel();
        // It ends when nobody asks, or nobody takes what it got.
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
            // Fails if the thread has panicked, which the next sample tells.
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
