//! Adapters, for formats that need a parser: an adapter turns the parser's events into the text of
//! a simpler format, which the decode program reads. Codecs (XML, YAML, Protobuf) define adapters;
//! `exec.rs` runs them. They read an `Input` and write [`Events`], never the value.

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

use super::{
    FaultKind, Input, Limits, Output, Program, Status,
    io::{CodecError, Fault},
};

/// A conversion of the message that runs before a decode program.
pub struct Adapter {
    /// For dumps and documentation.
    pub name: &'static str,
    /// Reads a whole message and writes its events.
    pub run: fn(&Program, &mut Input<'_>, &mut Events) -> Status,
    /// If set, the adapter runs only on a message that the program has refused for one of these
    /// reasons; the program then runs again on the result.
    pub only_after: Option<&'static [FaultKind]>,
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The output of an adapter. The thread's next message reuses its memory.
#[derive(Debug, Default)]
pub struct Events {
    /// The text that the program reads.
    text: Vec<u8>,
    /// Pairs of an offset in the text and the offset in the message that it comes from, ascending.
    positions: Vec<(usize, usize)>,
    /// The nodes of a tree, if the adapter makes one.
    pub nodes: Vec<Node>,
}

/// A node of a tree in an arena. The adapter defines the meaning of its fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The kind of the node.
    pub kind: u32,
    /// The index of the first child, or 0.
    pub first: u32,
    /// The index of the next sibling, or 0.
    pub next: u32,
    /// Where it begins in the message.
    pub start: usize,
    /// Where it ends there.
    pub end: usize,
}

/// The most memory, in bytes, that a thread keeps from one message to the next.
const KEPT_BYTES: usize = 4 << 20;

impl Events {
    /// Writes events within the memory limits. `write` records with [`PositionMap::note`] where in
    /// the message they come from.
    pub fn write(
        &mut self,
        input: &mut Input<'_>,
        write: impl FnOnce(&mut Input<'_>, &mut Output<'_>, &mut PositionMap<'_>, &mut Vec<Node>) -> Status,
    ) -> Status {
        self.text.clear();
        self.positions.clear();
        let limit = input.limits().memory(input.message().len());
        let limits = Limits { message_bytes: limit, ..*input.limits() };
        let mut output = Output::new(&mut self.text, &limits);
        let mut positions = PositionMap { entries: &mut self.positions, limit, every: 1, passes: 0 };
        let status = write(input, &mut output, &mut positions, &mut self.nodes);
        let status = output.finish(status);
        if status == Status::Failed
            && input.fault().is_none()
            && let Some(Fault { kind, expected, got, .. }) = output.fault()
        {
            return input.fail(*kind, *expected, *got);
        }
        status
    }

    /// The text that the program reads.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The offset in the message that the text at `offset` comes from.
    pub fn source(&self, offset: usize) -> usize {
        let behind = self.positions.partition_point(|(text, _)| *text <= offset);
        behind.checked_sub(1).and_then(|at| self.positions.get(at)).map_or(0, |(_, source)| *source)
    }

    /// Adds a node within the memory limits, and returns its index.
    pub fn add(nodes: &mut Vec<Node>, input: &mut Input<'_>, node: Node) -> Result<u32, Status> {
        let limit = input.limits().memory(input.message().len());
        let bytes = (nodes.len() + 1).saturating_mul(size_of::<Node>());
        match u32::try_from(nodes.len()) {
            Ok(index) if bytes <= limit => {
                nodes.push(node);
                Ok(index)
            }
            _ => Err(input.fail(FaultKind::Limit, limit as u64, bytes as u64)),
        }
    }

    /// Calls `run` with the thread's `Events`.
    pub(crate) fn with<R>(run: impl FnOnce(&mut Events) -> R) -> R {
        let mut events = take();
        let result = run(&mut events);
        let held = events.text.capacity()
            + events.positions.capacity() * size_of::<(usize, usize)>()
            + events.nodes.capacity() * size_of::<Node>();
        if held <= KEPT_BYTES {
            keep(events);
        }
        result
    }

    /// Converts the offset of an error in the text to one in the message.
    pub(crate) fn locate(&self, mut error: CodecError) -> CodecError {
        error.offset = self.source(error.offset);
        error
    }
}

/// Records where in the message events come from.
pub struct PositionMap<'e> {
    entries: &'e mut Vec<(usize, usize)>,
    /// Bytes that the entries may take.
    limit: usize,
    /// One of so many calls of [`PositionMap::note`] makes an entry.
    every: usize,
    /// The number of calls that make none before the next one that does.
    passes: usize,
}

impl PositionMap<'_> {
    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
        (self.every, self.passes) = (1, 0);
    }

    /// Records that the output from here on comes from `source` in the message. If the entries
    /// would exceed the memory limits, every second one is removed, and from then on every second
    /// call does nothing. The entries only say where in the message a fault is, so a message is not
    /// refused because of them.
    pub fn note(&mut self, output: &Output<'_>, source: usize) {
        if self.passes > 0 {
            self.passes -= 1;
            return;
        }
        let most = self.limit / size_of::<(usize, usize)>();
        if self.entries.len() >= most {
            self.every = self.every.saturating_mul(2);
            let mut number = 0;
            self.entries.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        if self.entries.len() < most {
            self.entries.push((output.position(), source));
        }
        self.passes = self.every - 1;
    }
}

#[cfg(feature = "std")]
thread_local! {
    static SPARE: core::cell::Cell<Option<Box<Events>>> = const { core::cell::Cell::new(None) };
}

#[cfg(feature = "std")]
fn take() -> Box<Events> {
    SPARE.try_with(core::cell::Cell::take).ok().flatten().unwrap_or_default()
}

#[cfg(feature = "std")]
fn keep(events: Box<Events>) {
    // The thread-local is gone if the thread is ending; then nothing is kept.
    let _ = SPARE.try_with(|spare| spare.set(Some(events)));
}

#[cfg(not(feature = "std"))]
fn take() -> Box<Events> {
    Box::default()
}

#[cfg(not(feature = "std"))]
fn keep(_: Box<Events>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_positions_are_bounded_and_refuse_no_message() {
        for most in 0..20 {
            let memory_bytes = 100.max(most * size_of::<(usize, usize)>());
            let limits = Limits { memory_bytes, ..Limits::default() };
            let mut input = Input::new(b"message", &limits);
            let mut events = Events::default();
            let status = events.write(&mut input, |_, output, positions, _| {
                positions.limit = most * size_of::<(usize, usize)>();
                for source in 0..100 {
                    positions.note(output, 3 * source);
                    output.put(b"-").ok().expect("there is room");
                    assert!(positions.entries.len() <= most);
                }
                Status::Ok
            });
            assert_eq!(status, Status::Ok);
            // A place in the text is that of a recorded one at or before it, and not three times as
            // far away as evenly spread ones would be.
            let source = |offset: usize| events.source(offset);
            assert!((0..100).all(|offset| source(offset) <= 3 * offset && source(offset) % 3 == 0), "{most}");
            assert!(most == 0 || (0..100).all(|offset| 3 * offset - source(offset) <= 3 * 300 / most), "{most}");
        }
    }
}
