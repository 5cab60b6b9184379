//! The interface that `case` uses to send messages. `ours` implements it for Polywire's engines,
//! `raw` for bare sockets and `bus` for other libraries.

use std::time::Duration;

use polywire::Record;

/// Sends messages to the other end of a case.
pub trait Carrier {
    /// Sends one message to every subscriber.
    fn send(&mut self, record: &Record) -> Result<(), String>;

    /// Sends each message when the echoes of the previous message have arrived from every
    /// subscriber. Returns the round trip times, and how many echoes did not arrive.
    fn rounds(&mut self, records: &[Record], count: usize) -> Result<(Vec<Duration>, usize), String>;

    /// Sends as fast as the engine accepts messages and waits for all echoes. Returns the round
    /// trip times and the whole time.
    fn loaded(&mut self, _records: &[Record], _count: usize) -> Result<(Vec<Duration>, Duration), String> {
        Err("only tcp, unix and inproc support the mode `loaded`".into())
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
