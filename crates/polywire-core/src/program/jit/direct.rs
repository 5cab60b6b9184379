//! Decides for which programs a direct function is emitted, and what its caller checks before each
//! message.
//!
//! For a small message of scalars and strings, preparing the context costs about as much as
//! processing it. A direct function needs no context. It handles the whole message or bails out;
//! then the general function processes the message and reports the error, if there is one.
//!
//! Whether the operations of a program need a context is found by emitting them: `Emit::context`
//! gives up in direct code. This file says what has to be known before that. `jit/mod.rs` calls it
//! before it compiles, and for the size that `exec.rs` checks. It reads the program only.

use super::{
    SLACK,
    stream::{Eligibility, HEAD},
};
use crate::program::{
    Block, Bytes, Direction, Op, OpKind, Program, Wire,
    kernel::Room,
    passes::{Cost, cost, message_size},
};

/// Largest message that a direct function of a program without a bank writes, strings not counted,
/// unless all messages have the same size.
const MAX_ROOM: usize = 1 << 10;

/// Longest stop-bit integer.
const INTEGER: usize = 10;

/// The room that a direct function needs at its beginning (encode), or the bytes that the message
/// must have (decode). None if there is to be no direct function.
pub(crate) fn direct_size(program: &Program) -> Option<usize> {
    let constant = message_size(program);
    let is_eligible = match &program.bank {
        Some(_) => Eligibility::of(program).is_some(),
        None => constant.is_some() || program.adapter.is_none(),
    };
    match (program.direction, constant) {
        _ if !is_eligible => None,
        (Direction::Decode, size) => Some(size.unwrap_or(0)),
        (Direction::Encode, Some(size)) => Some(size + SLACK),
        (Direction::Encode, None) => {
            let room = block_room(&program.root)?;
            (program.bank.is_some() || room <= MAX_ROOM).then_some(room + SLACK)
        }
    }
}

/// The most bytes that a block writes without checking its own room: one element of each sequence
/// is counted, and strings are not. None if that is unknown.
fn block_room(block: &Block) -> Option<usize> {
    block.0.iter().try_fold(0usize, |sum, op| sum.checked_add(op_room(op)?))
}

/// The room of the largest of alternative blocks.
fn largest<'p>(blocks: impl IntoIterator<Item = &'p Block>) -> Option<usize> {
    blocks.into_iter().try_fold(0, |most, block| Some(block_room(block)?.max(most)))
}

fn op_room(op: &Op) -> Option<usize> {
    if let Cost::Bytes(bytes) = cost(&op.kind, Direction::Encode) {
        return Some(bytes as usize);
    }
    match &op.kind {
        OpKind::Put(Wire::Inline(..)) => Some(size_of::<Room>()),
        OpKind::Put(Wire::StopBit(_)) => Some(INTEGER),
        OpKind::Bytes(Bytes::Put(_)) => Some(HEAD),
        // They check their own room.
        OpKind::Bytes(_) | OpKind::Text { .. } | OpKind::Bulk { .. } | OpKind::Map { .. } | OpKind::Slice { .. } => {
            Some(0)
        }
        // A presence map counts its bits.
        OpKind::KnownBits { .. } | OpKind::Slot(_) | OpKind::Fail(_) => Some(0),
        OpKind::PresenceMap { bits, body, .. } => block_room(body)?.checked_add(bits.div_ceil(7).max(1) as usize),
        OpKind::IfPresent { then, otherwise, .. } | OpKind::If { then, otherwise } => largest([then, otherwise]),
        OpKind::Union { arms, none: rest, .. } | OpKind::Switch { arms, otherwise: rest, .. } => {
            largest(arms.iter().chain([rest]))
        }
        OpKind::Unbox { body, .. } | OpKind::Sequence { element: body, .. } => block_room(body),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use alloc::{sync::Arc, vec, vec::Vec};
    use core::ptr::NonNull;

    use crate::{
        codec::{Codec, Options, cdr::CDR},
        layout::{Record, Shape, Value},
        program::{Program, jit, passes},
        schema::{Def, Member, Schema, SchemaBuilder, Type},
    };

    fn schema(members: Vec<Member>) -> Schema {
        let mut types = SchemaBuilder::new();
        let root = types.add(Def::structure("Root", members));
        types.finish(Type::Def(root)).unwrap()
    }

    /// The prepared programs of both directions.
    fn programs(schema: &Schema, shape: &Shape) -> [Arc<Program>; 2] {
        let options = Options::default();
        let encode = CDR.lower_encode(&options, schema, shape.layout()).unwrap();
        let decode = CDR.lower_decode(&options, schema, schema, shape.layout()).unwrap();
        [encode, decode].map(|program| Arc::new(passes::prepare(program)))
    }

    #[test]
    fn strings_and_sequences_of_numbers_need_no_context() {
        let members = vec![
            Member::new("number", Type::Uint8),
            Member::new("text", Type::string()),
            Member::new("octets", Type::sequence(Type::Uint8)),
            Member::new("numbers", Type::sequence(Type::Int32)),
            Member::new("doubles", Type::sequence(Type::Float64)),
            Member::new("last", Type::Float64),
        ];
        let schema = schema(members);
        let shape = Shape::of(&schema).unwrap();
        let programs = programs(&schema, &shape);
        let least = jit::direct_size(&programs[0]).unwrap();
        let [encode, decode] = programs.map(|program| jit::compile(&program).unwrap());
        let [encode, decode] =
            [&encode, &decode].map(|code| NonNull::new(code.direct().cast_mut()).expect("no context"));
        let (mut record, mut back, mut bytes) = (Record::new(&shape), Record::new(&shape), Vec::with_capacity(8192));
        for len in [0, 1, 15, 16, 17, 21, 100, 999] {
            record.set("number", len as u8).unwrap();
            record.set("text", "é".repeat(len / 2)).unwrap();
            record.set("octets", Value::Bytes(vec![len as u8; len])).unwrap();
            record.set("numbers", Value::List((0..len as i32 / 4).map(Value::from).collect())).unwrap();
            record.set("doubles", Value::List((0..len / 8).map(|at| Value::from(at as f64)).collect())).unwrap();
            record.set("last", len as f64).unwrap();
            // Has the memory that the message needs.
            back.clone_from(&record);
            back.set("last", -1.0).unwrap();
            if len < 8 {
                // An empty sequence removes it.
                back.set("doubles", Value::List(vec![Value::from(-1.0)])).unwrap();
            }
            // SAFETY: the records have the layout of the programs, and `bytes` the room.
            unsafe {
                let written = jit::encode_direct(encode, bytes.as_mut_ptr(), bytes.capacity(), record.as_ptr());
                assert!(written <= bytes.capacity(), "{len}: not written without a context");
                bytes.set_len(written);
                let taken = jit::decode_direct(decode, &bytes, back.as_mut_ptr());
                assert_eq!(taken, bytes.len(), "{len}: not read without a context");
                assert_eq!(back, record, "{len}");
                // Whatever is cut off or does not fit is left to the general function.
                for cut in 0..bytes.len() {
                    assert!(jit::decode_direct(decode, &bytes[..cut], back.as_mut_ptr()) > cut, "{len}, {cut}");
                }
                let few = &mut vec![0; (bytes.len() - 1).max(least)];
                let fits = bytes.len() <= few.len();
                assert!(fits || jit::encode_direct(encode, few.as_mut_ptr(), few.len(), record.as_ptr()) > few.len());
                let mut empty = Record::new(&shape);
                let taken = jit::decode_direct(decode, &bytes, empty.as_mut_ptr());
                assert!(len == 0 || taken > bytes.len(), "{len}: the value has no memory for it");
            }
        }
    }

    #[test]
    fn a_program_whose_operations_need_a_context_has_no_direct_function() {
        let nested = Type::sequence(Type::sequence(Type::string()));
        let schema = schema(vec![Member::new("names", nested)]);
        let shape = Shape::of(&schema).unwrap();
        for program in programs(&schema, &shape) {
            assert!(jit::compile(&program).unwrap().direct().is_null());
        }
    }
}
