//! Calls of operations to a program, and the replies of the program.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::{
        Arc, Weak,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, Thread},
};

use parking_lot::{Mutex, MutexGuard};
use polywire::Record;
use serde_json::json;

use super::{line::MAX_LINE_BYTES, operation::Operation};

/// The maximum number of calls under way to one program. Further calls fail.
pub const MAX_CALLS: usize = 16;

/// Notifies the driver of a connection that there is a line to send to the program. The node's
/// thread calls it, so it must not block.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// The reply of a program, or why the call has failed.
pub(crate) type Answer = Result<Record, String>;

/// The calls of one connection. The node's thread begins them, and the thread of the connection
/// ends them. Dropping this makes all remaining calls fail.
pub(crate) struct Calls {
    state: Mutex<State>,
    wake: Wake,
}

#[derive(Default)]
struct State {
    /// The number of the last call, from 1.
    last: u64,
    /// Lines of calls that were not sent to the program yet, and their total number of bytes.
    lines: VecDeque<(u64, String)>,
    bytes: usize,
    under_way: BTreeMap<u64, Call>,
}

struct Call {
    operation: Arc<Operation>,
    answer: Sender<Answer>,
    /// The thread that waits for the answer; it is unparked when the answer arrives.
    caller: Thread,
}

impl Calls {
    pub(super) fn new(wake: Wake) -> Calls {
        Calls { state: Mutex::default(), wake }
    }

    /// Begins a call with a request as JSON. Returns its number and the receiver of the answer; the
    /// current thread is unparked when the answer arrives. The receiver is disconnected if the
    /// program disconnects.
    pub fn begin(
        &self,
        instance: &str,
        operation: &Arc<Operation>,
        request: &str,
    ) -> Result<(u64, Receiver<Answer>), String> {
        let mut state = self.lock();
        if state.under_way.len() >= MAX_CALLS {
            return Err(format!("the program has {MAX_CALLS} calls under way already"));
        }
        let number = state.last + 1;
        let (probe, command) = (json!(instance), json!(operation.name));
        let line = format!("{{\"call\":{number},\"probe\":{probe},\"command\":{command},\"request\":{request}}}\n");
        if line.len() > MAX_LINE_BYTES {
            return Err(format!("the request is too long: a program takes at most {MAX_LINE_BYTES} bytes of JSON"));
        }
        if state.bytes + line.len() > MAX_LINE_BYTES {
            return Err(format!("the program has not read the {} bytes of the calls before", state.bytes));
        }
        let (answer, answered) = mpsc::channel();
        state.last = number;
        state.bytes += line.len();
        state.lines.push_back((number, line));
        state.under_way.insert(number, Call { operation: operation.clone(), answer, caller: thread::current() });
        drop(state);
        (self.wake)();
        Ok((number, answered))
    }

    /// Ends a call without an answer.
    pub fn forget(&self, number: u64) {
        self.lock().under_way.remove(&number);
    }

    /// Returns the next line for the program. Calls that have already ended are left out.
    pub(super) fn next_line(&self) -> Option<String> {
        let mut state = self.lock();
        while let Some((number, line)) = state.lines.pop_front() {
            state.bytes -= line.len();
            if state.under_way.contains_key(&number) {
                return Some(line);
            }
        }
        None
    }

    /// Returns the operation of a call that waits for an answer; `None` if there is no such call.
    pub(super) fn operation(&self, number: u64) -> Option<Arc<Operation>> {
        self.lock().under_way.get(&number).map(|call| call.operation.clone())
    }

    /// Ends a call with an answer. Returns whether the call was under way.
    pub(super) fn answer(&self, number: u64, answer: Answer) -> bool {
        let Some(call) = self.lock().under_way.remove(&number) else { return false };
        // Fails if the node has ended.
        let _ = call.answer.send(answer);
        call.caller.unpark();
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        for (_, Call { answer, caller, .. }) in mem::take(&mut state.under_way) {
            drop(answer);
            caller.unpark();
        }
    }
}

/// The programs that have declared a probe, the latest one last. The latest one receives the calls.
#[derive(Default)]
pub(crate) struct Programs(Mutex<Vec<Weak<Calls>>>);

impl Programs {
    pub(super) fn enter(&self, calls: &Arc<Calls>) {
        self.leave(calls);
        self.lock().push(Arc::downgrade(calls));
    }

    /// Removes a program, and all programs that have disconnected.
    pub(super) fn leave(&self, calls: &Arc<Calls>) {
        let is_other = |known: &Weak<Calls>| known.strong_count() > 0 && known.as_ptr() != Arc::as_ptr(calls);
        self.lock().retain(is_other);
    }

    /// Returns the calls of the latest program that is still connected.
    pub fn latest(&self) -> Option<Arc<Calls>> {
        self.lock().iter().rev().find_map(Weak::upgrade)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Calls>>> {
        self.0.lock()
    }
}
