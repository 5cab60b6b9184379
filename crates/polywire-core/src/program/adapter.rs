//! Formats that rest on a parser: the parser's events become the text of a simpler format, which
//! the program reads.

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

use super::{
    FaultKind, Input, Limits, Output, Program, Status,
    io::{CodecError, Fault},
};

/// What goes in front of a decode program.
pub struct Adapter {
    /// For dumps and documentation.
    pub name: &'static str,
    /// Reads a whole message and writes its events.
    pub run: fn(&Program, &mut Input<'_>, &mut Events) -> Status,
    /// Only what the program has refused for one of these reasons goes through it, and then to the
    /// program once more.
    pub only_after: Option<&'static [FaultKind]>,
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What an adapter writes. Its memory is used again by the next message of the thread.
#[derive(Debug, Default)]
pub struct Events {
    /// The text that the program reads.
    text: Vec<u8>,
    /// Bytes of the text and of the message where the same begins, ascending.
    positions: Vec<(usize, usize)>,
    /// A tree, if the adapter makes one.
    pub nodes: Vec<Node>,
}

/// A node of a tree in an arena. What its fields mean is the adapter's own affair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: u32,
    /// The first of what is inside, or 0.
    pub first: u32,
    /// The next beside it, or 0.
    pub next: u32,
    /// Where it begins in the message.
    pub start: usize,
    /// Where it ends there.
    pub end: usize,
}

/// Bytes of memory that a thread keeps from one message to the next.
const KEPT_BYTES: usize = 4 << 20;

impl Events {
    /// Writes events within the limits on memory; `write` notes with [`PositionMap::note`] where in
    /// the message they come from.
    pub fn write(
        &mut self,
        input: &mut Input<'_>,
        write: impl FnOnce(&mut Input<'_>, &mut Output<'_>, &mut PositionMap<'_>, &mut Vec<Node>) -> Status,
    ) -> Status {
        self.text.clear();
        self.positions.clear();
        let limits = Limits { message_bytes: input.limits().memory(input.message().len()), ..*input.limits() };
        let mut output = Output::new(&mut self.text, &limits);
        let status = write(input, &mut output, &mut PositionMap(&mut self.positions), &mut self.nodes);
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

    /// Where in the message what stands at `offset` in the text comes from.
    pub fn source(&self, offset: usize) -> usize {
        let behind = self.positions.partition_point(|(text, _)| *text <= offset);
        behind.checked_sub(1).and_then(|at| self.positions.get(at)).map_or(0, |(_, source)| *source)
    }

    /// Adds a node, within the limits on memory: its index.
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

    /// Runs a decoding with events' memory.
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

    /// An error in the text is one in the message.
    pub(crate) fn locate(&self, mut error: CodecError) -> CodecError {
        error.offset = self.source(error.offset);
        error
    }
}

/// Where events come from.
pub struct PositionMap<'e>(&'e mut Vec<(usize, usize)>);

impl PositionMap<'_> {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// What is written from here on begins at `source` in the message.
    pub fn note(&mut self, output: &Output<'_>, source: usize) {
        self.0.push((output.position(), source));
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
    // A thread that ends keeps nothing.
    let _ = SPARE.try_with(|spare| spare.set(Some(events)));
}

#[cfg(not(feature = "std"))]
fn take() -> Box<Events> {
    Box::default()
}

#[cfg(not(feature = "std"))]
fn keep(_: Box<Events>) {}
