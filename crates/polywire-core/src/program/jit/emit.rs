//! The builder of one machine-code function ([`Emit`]), shared by both directions: position and
//! buffer as variables, side exits, calls, the accumulator, copies. `jit/ops.rs` and its helpers
//! call it. It reads the program and writes the Cranelift function.

use alloc::{string::String, vec::Vec};
use core::{cell::Cell, mem::offset_of};

use cranelift_codegen::{
    Context,
    control::ControlPlane,
    ir::{
        AbiParam, Block as CodeBlock, BlockArg, InstBuilder, MemFlagsData, SigRef, Signature, StackSlot, StackSlotData,
        StackSlotKind, Type, Value, condcodes::IntCC, types,
    },
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::JITModule;
use cranelift_module::{FuncId, Module, ModuleReloc};

use super::{
    join::LocalFact,
    shims,
    stream::{Held, Segment, SlotWords},
};
use crate::{
    layout::{EnumNode, Kind, Layout, NodeId, Scalar, SequenceNode},
    program::{
        Block, Cursor, Direction, FaultKind, Input, Op, OpKind, Order, Output, Place, Program, interp::HOST,
        passes::inner_blocks, state::LOCALS,
    },
};

/// The flags of accesses through verified places and checked positions: they never trap and may be
/// unaligned.
pub(super) fn flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// The accumulator: a value and what it is. Integers, booleans and the bits of floats are extended
/// to 64 bits; `F128` takes 128.
#[derive(Clone, Copy)]
pub(super) struct Accumulator {
    pub value: Value,
    pub scalar: Scalar,
    /// The type before integers were widened, which bounds the bits that the value uses.
    pub from: Scalar,
}

/// A function being made.
pub(super) struct Emit<'e, 'f> {
    pub code: FunctionBuilder<'f>,
    pub module: &'f mut JITModule,
    pub program: &'e Program,
    pub routines: &'e [FuncId],
    /// The first argument: the input or output; in direct code, the first byte of the message.
    argument: Value,
    /// Position in the message.
    pub position: Variable,
    /// First byte of the message.
    pub base: Variable,
    /// Decoding: end of the region. Encoding: capacity.
    pub end: Variable,
    /// Offsets in the context.
    pub fields: Fields,
    /// The exit block. General code jumps to it after recording a fault; direct code jumps to it to
    /// bail out.
    pub unwind: CodeBlock,
    pub accumulator: Option<Accumulator>,
    /// In direct code: the bytes in hand.
    pub held: Option<Held<'e>>,
    /// Index of the innermost element.
    pub index: Option<Value>,
    /// The function is direct: it has no context, and failures bail out.
    pub direct: bool,
    /// Direct code of the program would need a context, so there will be none.
    needs_context: Cell<bool>,
    /// In direct code: the room that is wanted for all bytes of known size, or the size that the
    /// message has for certain.
    pub wanted: i64,
    /// A word in memory that kernels write to.
    word: StackSlot,
    /// The state of the stream, in programs with a bank.
    pub stream: Option<Stream>,
    /// In direct code: the program's locals.
    pub locals: [Variable; LOCALS],
    /// Known facts about the locals.
    pub facts: [LocalFact; LOCALS],
    /// In direct code: the words of slots.
    pub slot_words: Vec<SlotWords>,
    /// Slots that are known to have a value.
    pub assigned: Vec<u32>,
    /// In direct code: the tag of the member that is read, if its prefix determines it.
    pub tag: Option<u32>,
    /// In direct code: the presence map that is read or written.
    pub segment: Option<Segment>,
    /// Released stack slots, with their sizes in words.
    free_slots: Vec<(u32, StackSlot)>,
}

/// Values that machine code keeps about the state of a stream.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    pub state: Value,
    /// The first slot's value.
    pub values: Value,
}

/// Offsets in the context of the fields that machine code keeps in registers.
#[derive(Clone, Copy)]
pub(super) struct Fields {
    pub base: i32,
    pub position: i32,
    pub end: i32,
    pub origin: i32,
    pub depth: i32,
    pub state: i32,
    /// Some region restarts the origin, so that it must be loaded.
    pub origin_moves: bool,
}

impl Fields {
    fn of(program: &Program) -> Fields {
        let origin_moves = origin_moves(program);
        match program.direction {
            Direction::Decode => Fields {
                base: offset_of!(Input<'_>, base) as i32,
                position: offset_of!(Input<'_>, pos) as i32,
                end: offset_of!(Input<'_>, end) as i32,
                origin: offset_of!(Input<'_>, origin) as i32,
                depth: offset_of!(Input<'_>, depth_left) as i32,
                state: offset_of!(Input<'_>, state) as i32,
                origin_moves,
            },
            Direction::Encode => Fields {
                base: offset_of!(Output<'_>, base) as i32,
                position: offset_of!(Output<'_>, pos) as i32,
                end: offset_of!(Output<'_>, capacity) as i32,
                origin: offset_of!(Output<'_>, origin) as i32,
                depth: offset_of!(Output<'_>, depth_left) as i32,
                state: offset_of!(Output<'_>, state) as i32,
                origin_moves,
            },
        }
    }
}

/// Makes the function of one block. The arguments of a general function are the context and the
/// frame. Those of a direct function are the address of the message, the frame, and the number of
/// bytes (or of room); with a bank, the end address and the state instead of the number.
///
/// Returns the length of the code. There is none of a direct function if an operation needs a
/// context: emitting the operations finds that out.
pub(super) fn function<'e>(
    module: &mut JITModule,
    program: &'e Program,
    block: &'e Block,
    function: FuncId,
    routines: &'e [FuncId],
    direct: bool,
) -> Result<Option<usize>, String> {
    let mut context = Context::new();
    context.func.signature = super::block_signature(module, direct, program.bank.is_some());
    let mut frontend = FunctionBuilderContext::new();
    let mut code = FunctionBuilder::new(&mut context.func, &mut frontend);
    let entry = code.create_block();
    code.append_block_params_for_function_params(entry);
    code.switch_to_block(entry);
    let (argument, frame) = (code.block_params(entry)[0], code.block_params(entry)[1]);
    let (size, state) = (code.block_params(entry).get(2).copied(), code.block_params(entry).get(3).copied());
    let word = code.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 16, 4));
    let [position, base, end] = [(); 3].map(|()| code.declare_var(types::I64));
    let locals = [(); LOCALS].map(|()| code.declare_var(types::I64));
    let unwind = code.create_block();
    code.set_cold_block(unwind);
    let config = module.target_config();
    let mut emit = Emit {
        code,
        module,
        program,
        routines,
        argument,
        position,
        base,
        end,
        fields: Fields::of(program),
        unwind,
        accumulator: None,
        held: None,
        index: None,
        direct,
        needs_context: Cell::new(false),
        wanted: if direct { super::direct_size(program).unwrap_or(0) as i64 } else { 0 },
        word,
        stream: None,
        locals,
        facts: [LocalFact::default(); LOCALS],
        slot_words: if direct && program.bank.is_some() { super::stream::slot_words(program) } else { Vec::new() },
        assigned: Vec::new(),
        tag: None,
        segment: None,
        free_slots: Vec::new(),
    };
    emit.begin(size, state);
    emit.block(block, frame);
    if emit.has_given_up() {
        return Ok(None);
    }
    emit.spill();
    let (done, failed) = match direct {
        true => (emit.taken(), (types::I64, -1)),
        false => (emit.code.ins().iconst(types::I32, 0), (types::I32, 1)),
    };
    emit.code.ins().return_(&[done]);
    emit.code.switch_to_block(unwind);
    let failed = emit.code.ins().iconst(failed.0, failed.1);
    emit.code.ins().return_(&[failed]);
    emit.code.seal_all_blocks();
    emit.code.finalize(config);
    define(module, function, &mut context).map(Some)
}

/// Compiles a function into the module, and returns the length of its code.
/// [`Module::define_function`] does the same, but also logs the whole function at a level that
/// users see.
fn define(module: &mut JITModule, function: FuncId, context: &mut Context) -> Result<usize, String> {
    context.compile(module.isa(), &mut ControlPlane::default()).map_err(|error| alloc::format!("{error:?}"))?;
    let Some(code) = context.compiled_code() else { return Err("nothing was compiled".into()) };
    let relocations = code.buffer.relocs().iter();
    let relocations: Vec<ModuleReloc> =
        relocations.map(|reloc| ModuleReloc::from_mach_reloc(reloc, &context.func, function)).collect();
    let (bytes, alignment) = (code.code_buffer(), code.buffer.alignment.into());
    let defined = module.define_function_bytes(function, alignment, bytes, &relocations);
    defined.map_err(|error| alloc::format!("{error:?}"))?;
    Ok(bytes.len())
}

impl<'e> Emit<'e, '_> {
    /// The input or output. Direct code has none, so in direct code this [gives up](Emit::give_up).
    pub(super) fn context(&self) -> Value {
        self.give_up();
        self.argument
    }

    /// In direct code: the program gets no direct function. What is emitted afterwards is dropped.
    pub(super) fn give_up(&self) {
        self.needs_context.set(self.direct);
    }

    pub(super) fn has_given_up(&self) -> bool {
        self.needs_context.get()
    }

    /// True in an encode program.
    pub(super) fn encodes(&self) -> bool {
        self.program.direction == Direction::Encode
    }

    /// The function for decode programs or the one for encode programs.
    pub(super) fn either(&self, decode: *const u8, encode: *const u8) -> *const u8 {
        if self.encodes() { encode } else { decode }
    }

    pub(super) fn layout(&self) -> &'e Layout {
        &self.program.layout
    }

    pub(super) fn constant(&mut self, value: i64) -> Value {
        self.code.ins().iconst(types::I64, value)
    }

    pub(super) fn address<T: ?Sized>(&mut self, of: &T) -> Value {
        self.constant(core::ptr::from_ref(of).cast::<()>() as i64)
    }

    pub(super) fn load(&mut self, ty: Type, base: Value, offset: i32) -> Value {
        self.code.ins().load(ty, flags(), base, offset)
    }

    pub(super) fn store(&mut self, value: Value, base: Value, offset: i32) {
        self.code.ins().store(flags(), value, base, offset);
    }

    fn begin(&mut self, size: Option<Value>, state: Option<Value>) {
        if let Some(size) = size {
            let (message, zero) = (self.argument, self.constant(0));
            // In direct code with a bank, the position is an address. This saves a register.
            let (base, start) = if state.is_some() { (zero, message) } else { (message, zero) };
            self.code.def_var(self.base, base);
            self.code.def_var(self.position, start);
            self.code.def_var(self.end, size);
            if let Some(state) = state {
                self.load_stream(state);
                self.locals.into_iter().for_each(|local| self.code.def_var(local, zero));
            }
        } else {
            if self.program.bank.is_some() {
                let state = self.load(types::I64, self.context(), self.fields.state);
                self.load_stream(state);
            }
            self.load_base();
            self.reload();
            // A kernel may not write the word, so it is initialised.
            let (zero, word) = (self.constant(0), self.word);
            for at in [0, 8] {
                self.code.ins().stack_store(types::I64, zero, word, at);
            }
        }
    }

    fn load_base(&mut self) {
        let base = self.load(types::I64, self.context(), self.fields.base);
        self.code.def_var(self.base, base);
    }

    /// Reloads position and end, and the base if it can move, from the context, after a call that
    /// may have changed them.
    pub(super) fn reload(&mut self) {
        // An output may have grown.
        if self.encodes() {
            self.load_base();
        }
        let position = self.load(types::I64, self.context(), self.fields.position);
        let end = self.load(types::I64, self.context(), self.fields.end);
        self.code.def_var(self.position, position);
        self.code.def_var(self.end, end);
    }

    /// Stores the position in the context, before a call that reads it there.
    pub(super) fn spill(&mut self) {
        if self.direct {
            return;
        }
        let position = self.position();
        self.store(position, self.context(), self.fields.position);
    }

    /// In direct code: the number of bytes up to the position.
    fn taken(&mut self) -> Value {
        let (here, first) = (self.here(), self.argument);
        self.code.ins().isub(here, first)
    }

    pub(super) fn position(&mut self) -> Value {
        self.code.use_var(self.position)
    }

    /// Address of the byte at the position.
    pub(super) fn here(&mut self) -> Value {
        let (base, position) = (self.code.use_var(self.base), self.position());
        self.code.ins().iadd(base, position)
    }

    pub(super) fn advance(&mut self, n: i64) {
        if n != 0 {
            let position = self.position();
            let position = self.code.ins().iadd_imm_s(position, n);
            self.code.def_var(self.position, position);
        }
    }

    /// Advances by `n` and `more` bytes.
    pub(super) fn advance_by(&mut self, n: Value, more: i64) {
        let position = self.position();
        let position = self.code.ins().iadd(position, n);
        self.code.def_var(self.position, position);
        self.advance(more);
    }

    /// Moves the position to the next multiple of `n` from the origin.
    pub(super) fn align(&mut self, n: u8) {
        if self.direct && self.stream.is_some() {
            // The position is an address there.
            self.give_up();
        }
        let position = self.position();
        let mask = !(i64::from(n) - 1);
        let aligned = if self.fields.origin_moves {
            let origin = self.load(types::I64, self.context(), self.fields.origin);
            let distance = self.code.ins().isub(position, origin);
            let distance = self.code.ins().iadd_imm_s(distance, i64::from(n) - 1);
            let distance = self.code.ins().band_imm_s(distance, mask);
            self.code.ins().iadd(origin, distance)
        } else {
            let up = self.code.ins().iadd_imm_s(position, i64::from(n) - 1);
            self.code.ins().band_imm_s(up, mask)
        };
        self.code.def_var(self.position, aligned);
    }

    /// Calls a Rust function: arguments are words; the result is of type `returns`.
    pub(super) fn call(&mut self, function: *const u8, arguments: &[Value], returns: Option<Type>) -> Option<Value> {
        let signature = self.signature(arguments.len(), returns);
        let callee = self.constant(function as i64);
        let call = self.code.ins().call_indirect(signature, callee, arguments);
        self.code.inst_results(call).first().copied()
    }

    /// Calls a Rust function that returns a word.
    pub(super) fn call_word(&mut self, function: *const u8, arguments: &[Value]) -> Value {
        self.call(function, arguments, Some(types::I64)).expect("it returns a word")
    }

    /// In direct code: calls a function that returns a word, and bails out if that is zero.
    pub(super) fn call_or_bail_out(&mut self, function: *const u8, arguments: &[Value]) -> Value {
        let word = self.call_word(function, arguments);
        let none = self.code.ins().icmp_imm_s(IntCC::Equal, word, 0);
        self.or_bail_out(none);
        word
    }

    /// In direct code: calls a function that returns zero on success, and bails out if it does not.
    pub(super) fn call_expecting_zero(&mut self, function: *const u8, arguments: &[Value]) {
        let failed = self.call_word(function, arguments);
        self.or_bail_out(failed);
    }

    fn signature(&mut self, arguments: usize, returns: Option<Type>) -> SigRef {
        let mut signature = Signature::new(self.module.target_config().default_call_conv);
        signature.params.extend((0..arguments).map(|_| AbiParam::new(types::I64)));
        signature.returns.extend(returns.map(AbiParam::new));
        self.code.import_signature(signature)
    }

    /// Calls a function that uses the context and returns a status. If it fails, it has set the
    /// fault, and the fault names the field of `op`.
    pub(super) fn call_status(&mut self, op: &Op, function: *const u8, arguments: &[Value]) {
        self.spill();
        self.call_in_place(op, function, arguments);
        self.reload();
    }

    /// The same for a function that uses the context only to fail.
    pub(super) fn call_in_place(&mut self, op: &Op, function: *const u8, arguments: &[Value]) {
        let status = self.call(function, arguments, Some(types::I32)).expect("it returns a status");
        let failed = self.cold();
        let go_on = self.new_block();
        self.code.ins().brif(status, failed, &[], go_on, &[]);
        self.code.switch_to_block(failed);
        self.name(op);
        self.code.switch_to_block(go_on);
    }

    /// Emits a block between calls of two functions that share an argument and a cursor.
    pub(super) fn bracketed(
        &mut self,
        op: &Op,
        [begin, end]: [*const u8; 2],
        argument: u64,
        (body, frame): (&'e Block, Value),
    ) {
        let slot = self.slot(size_of::<Cursor>() as u32 / 8);
        let (cursor, argument) = (self.slot_address(slot), self.constant(argument as i64));
        self.call_status(op, begin, &[self.context(), argument, cursor]);
        self.inner(body, frame);
        let cursor = self.slot_address(slot);
        self.call_status(op, end, &[self.context(), argument, cursor]);
        self.release(slot);
    }

    /// Ends a cold block with a fault.
    pub(super) fn fault(&mut self, op: &Op, kind: FaultKind, expected: Value, got: Value) {
        if self.direct {
            return self.jump_out();
        }
        self.spill();
        let function = self.either(shims::fail_input as *const u8, shims::fail_output as *const u8);
        let kind = self.constant(kind as i64);
        self.call(function, &[self.context(), kind, expected, got], Some(types::I32));
        self.name(op);
    }

    /// Ends a cold block: names the field in the fault and unwinds.
    pub(super) fn name(&mut self, op: &Op) {
        let path = self.constant(i64::from(op.path.0));
        let name = self.either(shims::name_input as *const u8, shims::name_output as *const u8);
        self.call(name, &[self.context(), path], None);
        self.jump_out();
    }

    /// In direct code: bails out. The code emitted next is unreachable.
    pub(super) fn bail_out(&mut self) {
        self.jump_out();
        let nowhere = self.cold();
        self.code.switch_to_block(nowhere);
    }

    /// Creates a block, which is cold if the current one is.
    pub(super) fn new_block(&mut self) -> CodeBlock {
        let is_cold = self.code.current_block().is_some_and(|block| self.code.func.layout.is_cold(block));
        if is_cold { self.cold() } else { self.code.create_block() }
    }

    /// Creates a cold block. The code of cold blocks is behind that of all others.
    pub(super) fn cold(&mut self) -> CodeBlock {
        let block = self.code.create_block();
        self.code.set_cold_block(block);
        block
    }

    /// Continues if `condition` is zero, else jumps to a cold block that `otherwise` fills and
    /// ends.
    pub(super) fn unless(&mut self, condition: Value, otherwise: impl FnOnce(&mut Self)) {
        let (cold, go_on) = (self.cold(), self.new_block());
        self.code.ins().brif(condition, cold, &[], go_on, &[]);
        self.code.switch_to_block(cold);
        otherwise(self);
        self.code.switch_to_block(go_on);
    }

    /// If `condition` holds, runs a cold block, which `rare` fills, and returns.
    pub(super) fn rarely(&mut self, condition: Value, rare: impl FnOnce(&mut Self)) {
        let join = self.new_block();
        self.unless(condition, |emit| {
            rare(emit);
            emit.code.ins().jump(join, &[]);
        });
        self.jump_and_begin(join, join);
    }

    /// Continues if `condition` is zero, else jumps to `block`.
    pub(super) fn or_else(&mut self, condition: Value, block: CodeBlock) {
        let go_on = self.new_block();
        self.code.ins().brif(condition, block, &[], go_on, &[]);
        self.code.switch_to_block(go_on);
    }

    /// In direct code: continues if `condition` is zero, else bails out.
    pub(super) fn or_bail_out(&mut self, condition: Value) {
        let unwind = self.unwind;
        self.or_else(condition, unwind);
    }

    /// Ends a block with a jump to the exit block.
    pub(super) fn jump_out(&mut self) {
        let unwind = self.unwind;
        self.code.ins().jump(unwind, &[]);
    }

    /// Ends a block with a jump, and begins another one.
    pub(super) fn jump_and_begin(&mut self, to: CodeBlock, next: CodeBlock) {
        self.code.ins().jump(to, &[]);
        self.code.switch_to_block(next);
    }

    /// The sequence at a place, if there is one.
    pub(super) fn sequence_node(&self, place: Place) -> Option<&'e SequenceNode> {
        match &self.layout().node(place.node()?).kind {
            Kind::Sequence(sequence) => Some(sequence),
            _ => None,
        }
    }

    pub(super) fn jump(&mut self, block: CodeBlock, arguments: &[Value]) {
        let arguments: Vec<BlockArg> = arguments.iter().map(|a| BlockArg::Value(*a)).collect();
        self.code.ins().jump(block, &arguments);
    }

    /// Address of the word that kernels write to.
    pub(super) fn word(&mut self) -> Value {
        self.code.ins().stack_addr(types::I64, self.word, 0)
    }

    pub(super) fn load_word(&mut self, offset: i32) -> Value {
        self.code.ins().stack_load(types::I64, types::I64, self.word, offset)
    }

    pub(super) fn store_word(&mut self, value: Value) {
        self.code.ins().stack_store(types::I64, value, self.word, 0);
    }

    /// Allocates zeroed stack memory for a kernel's cursor or for a set. [`Emit::release`] frees it
    /// for reuse, so that the stack frame stays small.
    pub(super) fn slot(&mut self, words: u32) -> StackSlot {
        let slot = match self.free_slots.iter().position(|(free, _)| *free == words) {
            Some(at) => self.free_slots.swap_remove(at).1,
            None => {
                let data = StackSlotData::new(StackSlotKind::ExplicitSlot, 8 * words, 3);
                self.code.create_sized_stack_slot(data)
            }
        };
        let zero = self.constant(0);
        for i in 0..words {
            self.code.ins().stack_store(types::I64, zero, slot, 8 * i as i32);
        }
        slot
    }

    /// Releases stack memory.
    pub(super) fn release(&mut self, slot: StackSlot) {
        let bytes = self.code.func.sized_stack_slots[slot].size;
        self.free_slots.push((bytes / 8, slot));
    }

    pub(super) fn slot_address(&mut self, slot: StackSlot) -> Value {
        self.code.ins().stack_addr(types::I64, slot, 0)
    }

    pub(super) fn set(&mut self, value: Value, scalar: Scalar) {
        self.accumulator = Some(Accumulator { value, scalar, from: scalar });
    }

    /// Takes the accumulator that an operation run by the interpreter has left, if the operation
    /// fills it.
    pub(super) fn take_filled(&mut self, scalar: Option<Scalar>) {
        if let Some(scalar) = scalar {
            let value = self.load_word(0);
            self.set(value, scalar);
        }
    }

    pub(super) fn accumulator(&self) -> Accumulator {
        self.accumulator.expect("the verifier has seen it set")
    }

    /// A place's address as base and offset.
    pub(super) fn place(&self, place: Place, frame: Value) -> Option<(Value, i32, NodeId)> {
        match place {
            Place::Sink => None,
            Place::At { offset, node } => Some((frame, offset as i32, node)),
        }
    }

    /// True for a string that may be a part of a message.
    pub(super) fn is_shared(&self, place: Place) -> bool {
        place.node().is_some_and(|node| matches!(self.layout().node(node).kind, Kind::String { shared: true, .. }))
    }

    pub(super) fn place_address(&mut self, place: Place, frame: Value) -> Value {
        match place {
            Place::Sink => frame,
            Place::At { offset, .. } => self.code.ins().iadd_imm_s(frame, i64::from(offset)),
        }
    }

    /// The scalar in memory at a node.
    pub(super) fn memory_scalar(&self, node: NodeId) -> Scalar {
        match &self.layout().node(node).kind {
            Kind::Scalar(scalar) => *scalar,
            Kind::Enum(node) => node.repr,
            _ => unreachable!("the verifier admits scalars only"),
        }
    }

    /// Loads a scalar in the host's order, extended as the accumulator has it.
    pub(super) fn load_scalar(&mut self, scalar: Scalar, base: Value, offset: i32) -> Value {
        let ins = self.code.ins();
        match (scalar.size(), scalar.is_signed()) {
            (1, false) => ins.uload8(types::I64, flags(), base, offset),
            (1, true) => ins.sload8(types::I64, flags(), base, offset),
            (2, false) => ins.uload16(types::I64, flags(), base, offset),
            (2, true) => ins.sload16(types::I64, flags(), base, offset),
            (4, false) => ins.uload32(flags(), base, offset),
            (4, true) => ins.sload32(flags(), base, offset),
            (8, _) => ins.load(types::I64, flags(), base, offset),
            _ => ins.load(types::I128, flags(), base, offset),
        }
    }

    /// Stores the low bytes of a scalar in the host's order.
    pub(super) fn store_scalar(&mut self, scalar: Scalar, value: Value, base: Value, offset: i32) {
        match scalar.size() {
            1 => self.code.ins().istore8(flags(), value, base, offset),
            2 => self.code.ins().istore16(flags(), value, base, offset),
            4 => self.code.ins().istore32(flags(), value, base, offset),
            _ => self.code.ins().store(flags(), value, base, offset),
        };
    }

    /// Reverses the bytes of an extended scalar if `order` is not the host's.
    pub(super) fn reorder(&mut self, value: Value, scalar: Scalar, order: Order) -> Value {
        if order == HOST || scalar.size() == 1 {
            return value;
        }
        let narrow = match scalar.size() {
            2 => types::I16,
            4 => types::I32,
            8 => return self.code.ins().bswap(value),
            // Not every target can swap 128 bits, so swap the halves.
            _ => {
                let (low, high) = self.code.ins().isplit(value);
                let (low, high) = (self.code.ins().bswap(low), self.code.ins().bswap(high));
                return self.code.ins().iconcat(high, low);
            }
        };
        let value = self.code.ins().ireduce(narrow, value);
        let value = self.code.ins().bswap(value);
        match scalar.is_signed() {
            true => self.code.ins().sextend(types::I64, value),
            false => self.code.ins().uextend(types::I64, value),
        }
    }

    /// Widens a scalar of a run. The verifier has checked that nothing is lost.
    pub(super) fn widen(&mut self, value: Value, from: Scalar, to: Scalar) -> Value {
        match (from, to) {
            (Scalar::F32, Scalar::F64) => {
                let bits = self.code.ins().ireduce(types::I32, value);
                let float = self.code.ins().bitcast(types::F32, MemFlagsData::new(), bits);
                let double = self.code.ins().fpromote(types::F64, float);
                self.code.ins().bitcast(types::I64, MemFlagsData::new(), double)
            }
            _ => value,
        }
    }

    /// 1 if the extended integer is outside `min..=max`, else 0.
    pub(super) fn outside(&mut self, value: Value, min: i64, max: i64) -> Value {
        let distance = self.code.ins().iadd_imm_s(value, min.wrapping_neg());
        self.code.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, distance, max.wrapping_sub(min))
    }

    /// 1 if the extended integer is no literal of the enum, else 0.
    pub(super) fn no_literal(&mut self, value: Value, node: &EnumNode) -> Value {
        let (Some(first), Some(last)) = (node.literals.first(), node.literals.last()) else {
            return self.code.ins().iconst(types::I8, 1);
        };
        let (first, last) = (i64::from(*first), i64::from(*last));
        let outside = self.outside(value, first, last);
        if last - first + 1 == node.literals.len() as i64 {
            return outside;
        }
        if last - first < 64 {
            let mask = node.literals.iter().fold(0u64, |mask, l| mask | 1 << (i64::from(*l) - first));
            let mask = self.constant(mask as i64);
            let bit = self.code.ins().iadd_imm_s(value, -first);
            let shifted = self.code.ins().ushr(mask, bit);
            let known = self.code.ins().band_imm_s(shifted, 1);
            let unknown = self.code.ins().icmp_imm_s(IntCC::Equal, known, 0);
            return self.code.ins().bor(outside, unknown);
        }
        let node = self.address(node);
        let unknown = self.call_word(shims::no_literal as *const u8, &[value, node]);
        self.code.ins().ireduce(types::I8, unknown)
    }

    /// Copies `len` bytes between places that do not overlap.
    pub(super) fn copy(&mut self, from: (Value, i32), to: (Value, i32), len: u32) {
        let mut at = 0;
        let chunk = |size| match size {
            16.. => types::I8X16,
            8..=15 => types::I64,
            4..=7 => types::I32,
            2..=3 => types::I16,
            _ => types::I8,
        };
        while at < len {
            let ty = chunk(len - at);
            // The last chunk overlaps the one before it, so that no shorter pieces remain.
            let rest = len - at;
            let at_now = match ty.bytes() {
                size if size < rest && rest < 2 * size && rest.count_ones() > 1 => {
                    let value = self.load(ty, from.0, from.1 + at as i32);
                    self.store(value, to.0, to.1 + at as i32);
                    len - size
                }
                _ => at,
            };
            let value = self.load(ty, from.0, from.1 + at_now as i32);
            self.store(value, to.0, to.1 + at_now as i32);
            at = at_now + ty.bytes();
        }
    }

    /// A loop over `count` elements: `body` gets the address of each. The first is at `first`. The
    /// address is counted up, because an address of two parts would occupy two registers.
    pub(super) fn repeat(&mut self, count: Value, (first, stride): (Value, i64), body: impl FnOnce(&mut Self, Value)) {
        let (head, inside, done) = (self.new_block(), self.new_block(), self.new_block());
        let [index, at] = [(); 2].map(|()| self.code.append_block_param(head, types::I64));
        let zero = self.constant(0);
        self.jump(head, &[zero, first]);
        self.code.switch_to_block(head);
        let end = self.code.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, index, count);
        self.code.ins().brif(end, done, &[], inside, &[]);
        self.code.switch_to_block(inside);
        self.element(index, |emit| body(emit, at));
        let next = self.code.ins().iadd_imm_s(index, 1);
        let next_at = self.code.ins().iadd_imm_s(at, stride);
        self.jump(head, &[next, next_at]);
        self.code.switch_to_block(done);
    }

    /// Emits an element. A failure inside adds the index to the fault.
    pub(super) fn element(&mut self, index: Value, body: impl FnOnce(&mut Self)) {
        if self.direct {
            // The code runs for each element, and an element may change locals and slots. So no
            // facts hold at the beginning of an element or behind the loop.
            let known = |emit: &mut Self| {
                emit.facts = [LocalFact::default(); LOCALS];
                emit.assigned.clear();
            };
            let held = self.held;
            known(self);
            body(self);
            self.held = held;
            return known(self);
        }
        let unwind = self.cold();
        let outer = core::mem::replace(&mut self.unwind, unwind);
        let outer_index = self.index.replace(index);
        body(self);
        self.index = outer_index;
        self.unwind = outer;
        let go_on = self.new_block();
        self.jump_and_begin(go_on, unwind);
        let note = self.either(shims::index_input as *const u8, shims::index_output as *const u8);
        self.call(note, &[self.context(), index], None);
        self.jump_and_begin(outer, go_on);
    }

    /// Calls another routine of the program, entering the levels that it costs.
    pub(super) fn call_routine(&mut self, op: &Op, routine: u32, frame: Value) {
        let depth = self.load(types::I32, self.context(), self.fields.depth);
        let levels = i64::from(self.program.routines[routine as usize].levels);
        let too_few_left = self.code.ins().icmp_imm_s(IntCC::UnsignedLessThan, depth, levels);
        self.unless(too_few_left, |emit| {
            emit.spill();
            let levels = emit.constant(levels);
            let too_deep = emit.either(shims::too_deep_input as *const u8, shims::too_deep_output as *const u8);
            emit.call(too_deep, &[emit.context(), levels], Some(types::I32));
            emit.name(op);
        });
        let deeper = self.code.ins().iadd_imm_s(depth, -levels);
        self.store(deeper, self.context(), self.fields.depth);
        self.spill();
        let function = self.module.declare_func_in_func(self.routines[routine as usize], self.code.func);
        let context = self.context();
        let call = self.code.ins().call(function, &[context, frame]);
        let status = self.code.inst_results(call)[0];
        self.unless(status, |emit| emit.name(op));
        self.store(depth, self.context(), self.fields.depth);
        self.reload();
    }
}

/// True if an operation of the program may restart the origin of alignment: a region or members.
fn origin_moves(program: &Program) -> bool {
    fn any(block: &Block) -> bool {
        block.0.iter().any(|op| {
            let mut found = matches!(&op.kind, OpKind::Region { .. } | OpKind::Members { .. });
            inner_blocks(&op.kind, &mut |inner| found |= any(inner));
            found
        })
    }
    any(&program.root) || program.routines.iter().any(|r| any(&r.block))
}
