//! The operations on the bytes in hand ([`Bytes`]), the slots for bytes, and the forms of bytes on
//! the wire. Lowerings build these types; the verifier and both back ends read them. Types only.

use alloc::boxed::Box;

use super::{Overflow, PartKernel, Place, Policy};

/// What an [`OpKind::Bytes`](super::OpKind::Bytes) does. It works on the bytes in hand, a second
/// accumulator of programs with a bank: a string of bytes, or nothing.
///
/// ```
/// use polywire_core::layout::{Kind, Message, Scalar};
/// use polywire_core::program::{
///     Backend, Bank, Block, ByteSlot, Bytes, BytesForm, Coding, Direction, Executable, Limits, Op, OpKind, Overflow,
///     PartKernel, PathId, Payload, Place, Policy, Program, SlotOp, StopBit, TextForm, Wire,
/// };
///
/// #[derive(Default, polywire_derive::Message)]
/// struct Log { line: String }
///
/// /// What a line begins with is what the line before began with.
/// static REST: PartKernel = PartKernel {
///     name: "rest",
///     split: |base, value| {
///         let same = base.iter().zip(value).take_while(|(a, b)| a == b).count();
///         Some((same as i64, same..value.len()))
///     },
///     join: |_, _, same| Some((usize::try_from(same).ok()?, 0)),
/// };
/// assert_eq!(format!("{REST:?}"), "rest");
///
/// // A line: how much is as it was, in an octet, then the rest behind its length.
/// let layout = Log::shape().layout().clone();
/// let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!("it is a structure") };
/// let place = Place::At { offset: fields[0].offset, node: fields[0].node };
/// let slot = ByteSlot { slot: 0, bytes: 0 };
/// let octet = Wire::StopBit(StopBit::new(Scalar::U8));
/// let text = OpKind::Text { place, form: TextForm::Held, bound: 0, utf16_bound: false, overflow: Overflow::Refuse, after: 0 };
/// let rest = Bytes::Part { kernel: &REST, slot, initial: [].into(), number: 0 };
/// let ops = [
///     OpKind::Get(octet),
///     SlotOp::StoreLocal(0).into(),
///     OpKind::Bytes(Bytes::Get(BytesForm::new(Coding::Counted))),
///     OpKind::Bytes(rest),
///     OpKind::Bytes(Bytes::Utf8(Policy::Reject)),
///     OpKind::Bytes(Bytes::StoreSlot { slot, kind: 2 }),
///     text,
/// ];
/// let program = Program {
///     direction: Direction::Decode,
///     layout: layout.clone(),
///     root: Block(ops.map(|kind| Op { path: PathId(0), kind }).into()),
///     routines: vec![],
///     adapter: None,
///     paths: vec!["line".into()],
///     bank: Some(Bank { slots: 1, texts: 1 }.into()),
/// };
/// let executable = Executable::new(program, Backend::Auto)?;
/// let (mut state, mut log) = (executable.state().expect("it has a bank"), Log::default());
/// for (bytes, line) in [(&b"\x80\x85valve"[..], "valve"), (b"\x83\x81t", "valt")] {
///     let payload = Payload::Chained { state: &mut state, keep: true, bytes };
///     // SAFETY: the program is one for the layout of `Log`.
///     unsafe { executable.decode(payload, std::ptr::from_mut(&mut log).cast(), &Limits::default()) }?;
///     assert_eq!(log.line, line);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub enum Bytes {
    /// E: takes the elements of a sequence or array of octets into hand. D: stores the bytes in
    /// hand there.
    Octets {
        /// The sequence or array; when decoding, also a sink.
        place: Place,
        /// Largest number of elements; 0 is unbounded.
        bound: u32,
        /// What to do past the bound.
        overflow: Overflow,
    },
    /// E D: takes these constant bytes.
    Const(Box<[u8]>),
    /// D: takes bytes from the wire.
    Get(BytesForm),
    /// E: writes the bytes to the wire.
    Put(BytesForm),
    /// E D: takes the bytes of a slot.
    LoadSlot {
        /// The slot.
        slot: ByteSlot,
        /// The bytes that are taken if the slot has none.
        initial: Box<[u8]>,
    },
    /// E D: the slot is assigned the bytes.
    StoreSlot {
        /// The slot.
        slot: ByteSlot,
        /// The kind of the value, as in [`SlotOp::StoreSlot`](super::SlotOp::StoreSlot).
        kind: u8,
    },
    /// E D: accumulator (`Bool`) from whether the slot's value equals the bytes in hand.
    SlotHas {
        /// The slot.
        slot: ByteSlot,
        /// The kind that its value must have.
        kind: u8,
        /// The bytes that replace the value of an undefined slot, if any do.
        initial: Option<Box<[u8]>>,
    },
    /// E D: accumulator (`Bool`) from whether the bytes in hand equal these.
    Equal(Box<[u8]>),
    /// E D: accumulator (`U64`) from the number of bytes in hand.
    Length,
    /// D: checks that the bytes are UTF-8, else reports a deviation. If the policy lets them pass,
    /// a string gets them with invalid parts replaced.
    Utf8(Policy),
    /// E: reduces the bytes to the part that is sent. D: restores the full bytes from that part.
    Part {
        /// Defines the part.
        kernel: &'static PartKernel,
        /// The slot with the base bytes, relative to which the part is sent.
        slot: ByteSlot,
        /// The bytes that replace those of a slot without any.
        initial: Box<[u8]>,
        /// The local of the number that goes with the part.
        number: u8,
    },
}

/// A slot whose value is bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSlot {
    /// The slot that has the state.
    pub slot: u32,
    /// The index of the bytes among the bank's [`texts`](super::Bank::texts).
    pub bytes: u32,
}

/// The form of bytes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesForm {
    /// Where they end.
    pub coding: Coding,
    /// The bytes are nullable: a form of its own on the wire means absent. When decoding, this
    /// local becomes 1 if they are present and 0 if they are absent; then no bytes are in hand.
    /// When encoding, they are always present.
    pub there: Option<u8>,
    /// The policy for an encoding that is longer than necessary.
    pub policy: Policy,
}

impl BytesForm {
    /// Bytes that are always present; deviations are refused.
    pub fn new(coding: Coding) -> BytesForm {
        BytesForm { coding, there: None, policy: Policy::Reject }
    }
}

/// See [`BytesForm::coding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// 7-bit characters, the last of which has its highest bit set. A NUL in front means that there
    /// are no characters, or that all are NULs.
    StopBit,
    /// A stop-bit integer in front gives their number.
    Counted,
}
