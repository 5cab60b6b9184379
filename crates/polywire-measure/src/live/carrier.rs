//! What sends the messages of a case: one implementation for Polywire's engines, one for each kind
//! of peer.

use std::time::Duration;

use polywire::Record;

/// How messages get to the other end.
pub trait Carrier {
    /// Sends one message to every subscriber.
    fn send(&mut self, record: &Record) -> Result<(), String>;

    /// Sends each when the one before has come back from every subscriber; gives how long each
    /// took, and how many did not come back.
    fn rounds(&mut self, records: &[Record], count: usize) -> Result<(Vec<Duration>, usize), String>;

    /// Sends as many as are taken, and waits until all have come back; gives how long each was
    /// away, and how long that took.
    fn loaded(&mut self, _records: &[Record], _count: usize) -> Result<(Vec<Duration>, Duration), String> {
        Err("the mode `loaded` is for tcp, unix and inproc".into())
    }

    /// Sees to it that nothing is kept back.
    fn flush(&mut self) {}

    /// A turn begins: receivers that poll do so from now on.
    fn wake(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// The turn is over: nobody takes time from the cases whose turn it is.
    fn rest(&mut self) -> Result<(), String> {
        Ok(())
    }
}
