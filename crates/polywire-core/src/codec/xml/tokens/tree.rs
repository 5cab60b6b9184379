//! A document as a tree, and the tree as a document again: without comments, instructions and CDATA
//! sections.

use alloc::vec::Vec;

use super::{
    characters::{inner, put_parsed, raw_at},
    *,
};
use crate::program::{
    Output,
    adapter::{Events, Node, PositionMap},
};

const ELEMENT: u32 = 0;
const ATTRIBUTE: u32 = 1;
const TEXT: u32 = 2;

/// Reads the whole document into `nodes`, of which the first is the root element. Attributes come
/// before other nodes inside an element.
pub(crate) fn build(input: &mut Input<'_>, nodes: &mut Vec<Node>) -> Result<(), Status> {
    nodes.clear();
    let root = begin(input)?;
    let mut open = Open { elements: [0; MAX_DEPTH], last: [0; MAX_DEPTH], depth: 0 };
    element(input, nodes, &mut open, root)?;
    while let Some(at) = open.depth.checked_sub(1) {
        let start = input.position();
        let starts = inner(input)?;
        if input.position() > start {
            let text = Node { kind: TEXT, start, end: input.position(), ..Node::default() };
            open.append(input, nodes, text)?;
        }
        if starts {
            input.advance(1);
            let name = name(input)?;
            element(input, nodes, &mut open, name)?;
            continue;
        }
        let Some(Node { start, end, .. }) = nodes.get(open.elements[at] as usize).copied() else { break };
        close(input, Name { start, end }).ok()?;
        open.depth = at;
    }
    super::end(input).ok()
}

/// Elements whose end tag was not met yet, and the last node inside each.
struct Open {
    elements: [u32; MAX_DEPTH],
    last: [u32; MAX_DEPTH],
    depth: usize,
}

impl Open {
    /// Adds a node to the innermost element.
    fn append(&mut self, input: &mut Input<'_>, nodes: &mut Vec<Node>, node: Node) -> Result<u32, Status> {
        let index = Events::add(nodes, input, node)?;
        if let Some(at) = self.depth.checked_sub(1) {
            let (parent, last) = (self.elements[at] as usize, self.last[at] as usize);
            match nodes.get_mut(if last > 0 { last } else { parent }) {
                Some(before) if last > 0 => before.next = index,
                Some(parent) => parent.first = index,
                None => {}
            }
            self.last[at] = index;
        }
        Ok(index)
    }
}

/// A start tag, from behind its name on.
fn element(input: &mut Input<'_>, nodes: &mut Vec<Node>, open_elements: &mut Open, name: Name) -> Result<(), Status> {
    let depth = open_elements.depth;
    if depth >= MAX_DEPTH {
        return Err(input.fail(FaultKind::TooDeep, MAX_DEPTH as u64, MAX_DEPTH as u64 + 1));
    }
    let node = Node { kind: ELEMENT, start: name.start, end: name.end, ..Node::default() };
    let index = open_elements.append(input, nodes, node)?;
    (open_elements.elements[depth], open_elements.last[depth]) = (index, 0);
    open_elements.depth += 1;
    let start = input.position();
    let empty = open(input)?;
    let behind = input.position();
    if behind > start + 1 {
        input.seek(start);
        while let Some(name) = attribute(input)? {
            let value = text(input)?;
            let node = Node { kind: ATTRIBUTE, start: name.start, end: name.end, ..Node::default() };
            let index = open_elements.append(input, nodes, node)?;
            let (start, end) = (value.start(), value.start() + value.as_str().len());
            let text = Events::add(nodes, input, Node { kind: TEXT, start, end, ..Node::default() })?;
            if let Some(attribute) = nodes.get_mut(index as usize) {
                attribute.first = text;
            }
        }
        input.seek(behind);
    }
    open_elements.depth -= usize::from(empty);
    Ok(())
}

/// Writes the tree.
pub(crate) fn emit(
    input: &Input<'_>,
    nodes: &[Node],
    output: &mut Output<'_>,
    positions: &mut PositionMap<'_>,
) -> Status {
    let (mut path, mut depth, mut at) = ([0u32; MAX_DEPTH], 0, 0);
    loop {
        let Some(node) = nodes.get(at as usize) else { return Status::Ok };
        positions.note(output, node.start);
        let bytes = input.message().get(node.start..node.end).unwrap_or_default();
        if node.kind == ELEMENT {
            let first = match start_tag(input, nodes, node, bytes, output, positions) {
                Ok(first) => first,
                Err(status) => return status,
            };
            if first > 0 && depth < MAX_DEPTH {
                path[depth] = at;
                depth += 1;
                at = first;
                continue;
            }
            if end_tag(output, bytes) == Status::Failed {
                return Status::Failed;
            }
        } else if put_pieces(output, bytes, false) == Status::Failed {
            return Status::Failed;
        }
        // The next beside it, or beside what it is in.
        while let Some(next) = nodes.get(at as usize).map(|node| node.next) {
            if next > 0 {
                at = next;
                break;
            }
            let Some(up) = depth.checked_sub(1) else { return Status::Ok };
            (depth, at) = (up, path[up]);
            let parent = nodes.get(at as usize).copied().unwrap_or_default();
            if end_tag(output, input.message().get(parent.start..parent.end).unwrap_or_default()) == Status::Failed {
                return Status::Failed;
            }
        }
    }
}

/// A start tag with its attributes: the first node behind them.
fn start_tag(
    input: &Input<'_>,
    nodes: &[Node],
    element: &Node,
    name: &[u8],
    output: &mut Output<'_>,
    positions: &mut PositionMap<'_>,
) -> Result<u32, Status> {
    let put = |output: &mut Output<'_>, bytes: &[u8]| output.put(bytes).ok();
    put(output, b"<")?;
    put(output, name)?;
    let mut at = element.first;
    while let Some(node) = nodes.get(at as usize).filter(|node| at > 0 && node.kind == ATTRIBUTE) {
        let value = nodes.get(node.first as usize).copied().unwrap_or_default();
        put(output, b" ")?;
        put(output, input.message().get(node.start..node.end).unwrap_or_default())?;
        put(output, b"=\"")?;
        positions.note(output, value.start);
        let bytes = input.message().get(value.start..value.end).unwrap_or_default();
        put_pieces(output, bytes, true).ok()?;
        put(output, b"\"")?;
        at = node.next;
    }
    put(output, b">")?;
    Ok(at)
}

fn end_tag(output: &mut Output<'_>, name: &[u8]) -> Status {
    output.put(b"</").then(|| output.put(name)).then(|| output.put(b">"))
}

/// The text as a parser reports it, written anew: who reads it replaces `_xHHHH_`, and that must
/// not happen twice.
fn put_pieces(output: &mut Output<'_>, bytes: &[u8], attribute: bool) -> Status {
    let mut status = Status::Ok;
    // It was checked when the tree was built.
    raw_at(core::str::from_utf8(bytes).unwrap_or_default(), attribute).parsed(&mut |piece| {
        status = status.then(|| put_parsed(output, piece, attribute));
    });
    status
}
