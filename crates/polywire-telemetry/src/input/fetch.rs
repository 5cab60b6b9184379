//! Figures that take a while to get: a thread gets them, so that no other probe waits.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, SyncSender, TrySendError},
    },
    thread,
};

use super::{Metrics, problem};
use crate::{Measure, MeasureError, Moment};

/// What was got last, and is taken by the next sample.
type Got = Option<Result<Metrics, String>>;

/// Gets figures by a function, each time that a sample is taken: the sample has what the function
/// returned after the one before. The first one waits for nothing and has no figures.
pub struct Fetch {
    what: String,
    /// Asks for the next figures. Dropping it ends the thread, when the function returns.
    ask: SyncSender<()>,
    got: Arc<Mutex<Got>>,
}

impl Fetch {
    /// `what` is what the function gets, for errors. Fails if the system has no more threads.
    pub fn start(
        what: &str,
        mut get: impl FnMut() -> Result<Metrics, String> + Send + 'static,
    ) -> Result<Fetch, MeasureError> {
        let (ask, asked) = mpsc::sync_channel(1);
        let got = Arc::new(Mutex::new(None));
        let place = got.clone();
        let work = move || {
            while asked.recv().is_ok() {
                let fresh = get();
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(fresh);
            }
        };
        let started = thread::Builder::new().name("input".into()).spawn(work);
        started.map_err(|error| problem(what, format!("cannot start a thread: {error}")))?;
        Ok(Fetch { what: what.to_owned(), ask, got })
    }
}

impl Measure<Metrics> for Fetch {
    fn measure(&mut self, _: Moment, sample: &mut Metrics) -> Result<(), MeasureError> {
        let got = self.got.lock().unwrap_or_else(PoisonError::into_inner).take();
        match self.ask.try_send(()) {
            // It still gets those that were asked for before.
            Ok(()) | Err(TrySendError::Full(())) => {}
            Err(TrySendError::Disconnected(())) => return Err(problem(&self.what, "the thread has panicked")),
        }
        match got {
            Some(Ok(fresh)) => *sample = fresh,
            Some(Err(text)) => return Err(problem(&self.what, text)),
            None => return Err(problem(&self.what, "nothing has come yet")),
        }
        Ok(())
    }
}
