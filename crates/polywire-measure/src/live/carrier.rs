//! The sender of a case's messages: one implementation for Polywire's engines, one for each kind of
//! peer.

use std::time::Duration;

use polywire::Record;

/// Sends messages to the other end of a case.
pub trait Carrier {
    /// Sends one message to every subscriber.
    fn send(&mut self, record: &Record) -> Result<(), String>;

    /// Sends each message when the one before has come back from every subscriber. Returns the
    /// round trip times, and how many messages did not come back.
    fn rounds(&mut self, records: &[Record], count: usize) -> Result<(Vec<Duration>, usize), String>;

    /// Sends as fast as messages are accepted and waits until all have come back. Returns the round
    /// trip times and the whole time.
    fn loaded(&mut self, _records: &[Record], _count: usize) -> Result<(Vec<Duration>, Duration), String> {
        Err("the mode `loaded` is for tcp, unix and inproc".into())
    }

    /// Sends what is buffered.
    fn flush(&mut self) {}

    /// Begins a turn: polling receivers start to poll.
    fn wake(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Ends a turn: receivers stop polling, so that they take no time from other cases.
    fn rest(&mut self) -> Result<(), String> {
        Ok(())
    }
}
