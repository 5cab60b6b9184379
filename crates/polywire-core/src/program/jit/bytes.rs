//! The bytes in hand. Where there is a context they are in the state, and functions do all with them
//! that the interpreter calls, too. Where there is none, `stream/bytes.rs` makes it.

use cranelift_codegen::ir::Value;

use super::{emit::Emit, shims};
use crate::program::{Bytes, Op, interp::bytes::filled};

impl<'e> Emit<'e, '_> {
    /// Emits an operation on the bytes in hand.
    pub(super) fn bytes(&mut self, op: &'e Op, bytes: &'e Bytes, frame: Value) {
        if self.direct {
            return self.stream_bytes(op, bytes, frame);
        }
        let (program, address, word) = (self.address(self.program), self.address(op), self.word());
        let function =
            if self.fields.moves { shims::encode_bytes as *const u8 } else { shims::decode_bytes as *const u8 };
        self.call_status(op, function, &[self.context, program, address, frame, word]);
        if let Some(scalar) = filled(bytes) {
            let value = self.load_word(0);
            self.set(value, scalar);
        }
    }
}
