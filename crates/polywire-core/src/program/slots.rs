//! The operations on slots and locals ([`SlotOp`]). Lowerings build these types; the verifier and
//! both back ends read them. Types only.

use super::OpKind;
use crate::layout::Scalar;

/// What an [`OpKind::Slot`] does, in programs of both directions. It works on the accumulator and
/// the state of a program with a bank.
///
/// ```
/// use polywire_core::layout::{Kind, Message, Scalar};
/// use polywire_core::program::{
///     Arithmetic, Backend, Bank, Block, Direction, Executable, Limits, Op, OpKind, Operand, Order, PathId, Payload,
///     Place, Program, SlotOp, Wire,
/// };
///
/// #[derive(Default, polywire_derive::Message)]
/// struct Meter { total: u64 }
///
/// // Each message has what was added since the one before.
/// let layout = Meter::shape().layout().clone();
/// let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!("it is a structure") };
/// let total = Place::At { offset: fields[0].offset, node: fields[0].node };
/// let ops = [
///     SlotOp::LoadSlot { slot: 0, scalar: Scalar::U64, initial: 0 }.into(),
///     SlotOp::StoreLocal(0).into(),
///     OpKind::Need(8),
///     OpKind::Get(Wire::Fixed { scalar: Scalar::U64, order: Order::Little }),
///     SlotOp::Compute(Arithmetic::Add, Operand::Local(0)).into(),
///     SlotOp::StoreSlot { slot: 0, kind: 2 }.into(),
///     OpKind::Store(total),
/// ];
/// let program = Program {
///     direction: Direction::Decode,
///     layout: layout.clone(),
///     root: Block(ops.map(|kind| Op { path: PathId(0), kind }).into()),
///     routines: vec![],
///     adapter: None,
///     paths: vec!["total".into()],
///     bank: Some(Bank { slots: 1, texts: 0 }.into()),
/// };
/// let executable = Executable::new(program, Backend::Auto)?;
/// let (mut state, mut meter) = (executable.state().expect("it has a bank"), Meter::default());
/// for total in [5, 10, 15] {
///     let bytes = 5u64.to_le_bytes();
///     let payload = Payload::Chained { state: &mut state, keep: true, bytes: &bytes };
///     // SAFETY: the program is one for the layout of `Meter`.
///     unsafe { executable.decode(payload, std::ptr::from_mut(&mut meter).cast(), &Limits::default()) }?;
///     assert_eq!(meter.total, total);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotOp {
    /// All slots but one become undefined.
    Forget {
        /// The slot that stays; an index outside the bank if none does.
        except: u32,
    },
    /// Accumulator (an integer, `F32` or `F64`) from the value of a slot, cut to the type.
    LoadSlot {
        /// The slot.
        slot: u32,
        /// What the accumulator becomes.
        scalar: Scalar,
        /// The bits that replace the value of a slot without one.
        initial: u64,
    },
    /// The slot is assigned the accumulator (an integer, `F32` or `F64`).
    StoreSlot {
        /// The slot.
        slot: u32,
        /// The kind of the value, for [`SlotOp::SlotState`]: 2 or more.
        kind: u8,
    },
    /// The slot becomes empty: its value is known to be absent.
    EmptySlot(u32),
    /// Accumulator (`U64`) from the state of a slot: 0 if it is undefined, 1 if it is empty,
    /// else the kind of its value.
    SlotState(u32),
    /// Accumulator (`Bool`) from whether a slot's value equals the accumulator (an integer).
    SlotHas {
        /// The slot.
        slot: u32,
        /// The kind that the value must be of.
        kind: u8,
        /// The bits that replace the value of an undefined slot, if any do.
        initial: Option<u64>,
    },
    /// Accumulator (an integer, `F32` or `F64`) from one of eight locals, cut to the type.
    /// They are zero when a message begins.
    LoadLocal(u8, Scalar),
    /// A local from the accumulator (an integer, `F32` or `F64`).
    StoreLocal(u8),
    /// Accumulator from itself, an integer, and an operand of the same type. It becomes an
    /// integer, or a `Bool` if they are compared.
    Compute(Arithmetic, Operand),
}

#[cfg(feature = "jit")]
impl SlotOp {
    /// The slot that it reads or writes, if it is only one. The verifier has its own rules.
    pub(crate) fn slot(self) -> Option<u32> {
        match self {
            SlotOp::LoadSlot { slot, .. }
            | SlotOp::StoreSlot { slot, .. }
            | SlotOp::EmptySlot(slot)
            | SlotOp::SlotState(slot)
            | SlotOp::SlotHas { slot, .. } => Some(slot),
            SlotOp::Forget { .. } | SlotOp::LoadLocal(..) | SlotOp::StoreLocal(_) | SlotOp::Compute(..) => None,
        }
    }
}

impl From<SlotOp> for OpKind {
    fn from(op: SlotOp) -> OpKind {
        OpKind::Slot(op)
    }
}

/// What [`SlotOp::Compute`] computes from the accumulator and an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Their sum, modulo the type's size.
    Add,
    /// The accumulator minus the operand, modulo the type's size.
    Subtract,
    /// Whether they are equal.
    Equal,
    /// Whether the accumulator is less than the operand.
    Less,
}

/// The second operand of [`SlotOp::Compute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A local, cut to the accumulator's type.
    Local(u8),
    /// These bits, cut to the accumulator's type.
    Constant(u64),
}

/// The preferred `initial` of a slot, where the program works with any number. Back ends then use
/// this word itself as the reserved word of a slot without a value.
pub const NO_VALUE: u64 = 0x5B1D_27E4_93A6_C80F;
