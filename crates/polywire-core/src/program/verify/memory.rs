//! Rules 2, 3 and 5 of the verifier: accesses to memory through places. `verify/mod.rs` calls it.
//! It reads the program and its layout only.

use super::{State, Verdict, Verifier, checkable, require};
use crate::{
    layout::{EnumNode, Kind, NodeId, Scalar},
    program::{Check, Direction, Place, Segment, Source},
};

impl Verifier<'_> {
    /// Rule 2: the node at a place, if it is what the operation works on.
    pub(super) fn place(&self, place: Place, state: &State, fits: impl Fn(&Kind) -> bool) -> Verdict<Option<NodeId>> {
        let Place::At { offset, node } = place else {
            require(self.program.direction == Direction::Decode, "a sink cannot be encoded")?;
            return Ok(None);
        };
        let frame = state.frame.ok_or("there is no frame for a place")?;
        require((node.0 as usize) < self.layout.len(), "there is no such node")?;
        require(self.layout.contains(frame, offset, node), "the frame has no such place")?;
        require(fits(&self.layout.node(node).kind), "the place holds something else")?;
        Ok(Some(node))
    }

    /// The scalar at a place, and the enum whose literal it must be.
    pub(super) fn scalar_at(&self, place: Place, state: &State) -> Verdict<(Scalar, Option<NodeId>)> {
        let node = self.place(place, state, |k| matches!(k, Kind::Scalar(_) | Kind::Enum(_)))?;
        let node = node.ok_or("a sink holds nothing")?;
        Ok(match &self.layout.node(node).kind {
            Kind::Scalar(scalar) => (*scalar, None),
            Kind::Enum(literals) => (literals.repr, Some(node)),
            _ => unreachable!("just checked"),
        })
    }

    /// Rule 3: a value that is stored is valid for its place.
    pub(super) fn store(&self, place: Place, state: &State) -> Verdict {
        let (scalar, literal_of) = state.accumulator.ok_or("the accumulator is not set")?;
        if place == Place::Sink {
            return Ok(());
        }
        let (wanted, node) = self.scalar_at(place, state)?;
        require(wanted == scalar, "the accumulator is of another type than the place")?;
        require(node.is_none() || node == literal_of, "the accumulator was not checked to be a literal")
    }

    pub(super) fn literals(&self, node: NodeId, otherwise: Option<i32>) -> Verdict<&EnumNode> {
        require((node.0 as usize) < self.layout.len(), "there is no such node")?;
        match &self.layout.node(node).kind {
            Kind::Enum(literals) => {
                let known = otherwise.is_none_or(|value| literals.literals.binary_search(&value).is_ok());
                require(known, "the default is no literal")?;
                Ok(literals)
            }
            _ => Err("the place holds no enum"),
        }
    }

    /// Rule 5: the segments of a run.
    pub(super) fn run(&self, segments: &[Segment], size: u32, state: &State) -> Verdict {
        let mut end = 0;
        for segment in segments {
            require(segment.at >= end, "segments overlap or are out of order")?;
            let bytes = u64::from(segment.count) * segment.wire.size() as u64 + u64::from(segment.at);
            require(bytes <= u64::from(size), "a segment lies outside its run")?;
            end = bytes as u32;
            self.segment(segment, state)?;
        }
        Ok(())
    }

    fn segment(&self, segment: &Segment, state: &State) -> Verdict {
        require(segment.count == 1 || segment.wire == segment.memory, "only like scalars are repeated")?;
        require(widens(segment.wire, segment.memory), "a run widens scalars, it does not narrow them")?;
        if let Some(check) = &segment.check {
            checkable(check, segment.wire)?;
        }
        if let Some(Check::Enum { node, otherwise }) = &segment.check {
            self.literals(*node, *otherwise)?;
        }
        let Place::At { offset, node } = segment.place else {
            return Ok(());
        };
        let frame = state.frame.ok_or("there is no frame for a place")?;
        for i in 0..segment.count {
            // A segment with several scalars must be elements of an array (see `adjacent`), so it
            // is enough to check the first and the last.
            if i == 0 || i + 1 == segment.count {
                let at = i.checked_mul(segment.memory.size() as u32).and_then(|n| n.checked_add(offset));
                let at = at.ok_or("a place lies outside every frame")?;
                require((node.0 as usize) < self.layout.len(), "there is no such node")?;
                require(self.layout.contains(frame, at, node), "the frame has no such place")?;
            }
        }
        require(segment.count == 1 || self.adjacent(frame, segment), "repeated scalars lie side by side")?;
        let decodes = self.program.direction == Direction::Decode;
        match &self.layout.node(node).kind {
            Kind::Scalar(Scalar::Bool) => {
                require(segment.memory == Scalar::Bool, "the place holds something else")?;
                require(!decodes || matches!(segment.check, Some(Check::Bool)), "a boolean is not checked")
            }
            Kind::Scalar(scalar) => require(*scalar == segment.memory, "the place holds something else"),
            Kind::Enum(literals) => {
                require(literals.repr == segment.memory, "the place holds something else")?;
                let checked = matches!(&segment.check, Some(Check::Enum { node: n, .. }) if *n == node);
                require(!decodes || checked, "an enum is not checked")
            }
            _ => Err("the place holds something else"),
        }
    }

    /// True if all scalars of a repeated segment are in the frame, not only the first and the last.
    fn adjacent(&self, frame: NodeId, segment: &Segment) -> bool {
        let Place::At { offset, node } = segment.place else { return true };
        (0..segment.count).all(|i| {
            let at = offset.checked_add(i.saturating_mul(segment.memory.size() as u32));
            at.is_some_and(|at| self.layout.contains(frame, at, node))
        })
    }

    pub(super) fn text(&self, place: Place, state: &State) -> Verdict {
        self.place(place, state, |k| matches!(k, Kind::String { .. })).map(|_| ())
    }

    pub(super) fn clear(&self, place: Place, state: &State) -> Verdict {
        let fits = |k: &Kind| matches!(k, Kind::String { .. } | Kind::Sequence(_) | Kind::Map(_) | Kind::Optional(_));
        self.place(place, state, fits).map(|_| ())
    }

    pub(super) fn bulk(&self, place: Place, scalar: Scalar, state: &State) -> Verdict {
        if self.program.direction == Direction::Decode {
            self.counted(&Source::Count, state)?;
        }
        let Some(node) = self.place(place, state, |k| matches!(k, Kind::Sequence(_)))? else {
            return Ok(());
        };
        let Kind::Sequence(sequence) = &self.layout.node(node).kind else { unreachable!("just checked") };
        let plain = matches!(&self.layout.node(sequence.element).kind, Kind::Scalar(s) if *s == scalar);
        require(plain, "the elements are something else")
    }

    pub(super) fn slice(&self, place: Place, scalar: Scalar, state: &State) -> Verdict {
        let node = self.place(place, state, |k| matches!(k, Kind::Sequence(_) | Kind::Array { .. }))?;
        let element = match &self.layout.node(node.ok_or("a sink is no slice")?).kind {
            Kind::Sequence(sequence) => sequence.element,
            Kind::Array { element, .. } => *element,
            _ => unreachable!("just checked"),
        };
        require(scalar != Scalar::Bool, "a slice of booleans cannot be checked")?;
        let plain = matches!(&self.layout.node(element).kind, Kind::Scalar(s) if *s == scalar);
        require(plain, "the elements are something else")
    }

    pub(super) fn counted(&self, source: &Source, state: &State) -> Verdict {
        if self.program.direction == Direction::Decode && matches!(source, Source::Count) {
            let scalar = self.accumulator(state)?;
            require(scalar.is_integer() && !scalar.is_signed(), "a count is an unsigned integer")?;
        }
        Ok(())
    }

    /// The frame of the elements.
    pub(super) fn elements(&self, place: Place, source: &Source, state: &State) -> Verdict<Option<NodeId>> {
        self.counted(source, state)?;
        let node = self.place(place, state, |k| matches!(k, Kind::Sequence(_) | Kind::Array { .. }))?;
        let decodes = self.program.direction == Direction::Decode;
        match node.map(|n| &self.layout.node(n).kind) {
            None => Ok(None),
            Some(Kind::Sequence(sequence)) => {
                require(!decodes || !matches!(source, Source::Fixed(_)), "a sequence has no fixed number of elements")?;
                Ok(Some(sequence.element))
            }
            Some(Kind::Array { element, len }) => {
                let fits = match source {
                    Source::Count => false,
                    Source::Fixed(n) => n == len,
                    Source::Dialect(_) => true,
                    Source::Append(_) => false,
                };
                require(!decodes || fits, "an array has a fixed number of elements")?;
                Ok(Some(*element))
            }
            Some(_) => unreachable!("just checked"),
        }
    }

    pub(super) fn optional(&self, place: Place, state: &State) -> Verdict<Option<NodeId>> {
        let node = self.place(place, state, |k| matches!(k, Kind::Optional(_)))?;
        Ok(node.map(|n| match &self.layout.node(n).kind {
            Kind::Optional(optional) => optional.inner,
            _ => unreachable!("just checked"),
        }))
    }

    pub(super) fn cases(&self, place: Place, state: &State) -> Verdict<Option<&[NodeId]>> {
        let node = self.place(place, state, |k| matches!(k, Kind::Union(_)))?;
        Ok(node.map(|n| match &self.layout.node(n).kind {
            Kind::Union(union) => &union.cases[..],
            _ => unreachable!("just checked"),
        }))
    }
}

/// True if every value of `from` is one of `to`, in the same family.
fn widens(from: Scalar, to: Scalar) -> bool {
    match (from, to) {
        _ if from == to => true,
        (Scalar::F32, Scalar::F64) => true,
        _ => match (from.range(), to.range()) {
            (Some((min, max)), Some((low, high))) => {
                to != Scalar::Bool && from != Scalar::Bool && low <= min && max <= high
            }
            _ => false,
        },
    }
}
