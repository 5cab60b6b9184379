//! Codecs of third parties, in safe code only. Whatever they claim, the worst results are wrong
//! bytes, wrong values and errors. They never access memory that is not theirs or was never
//! written.
#![forbid(unsafe_code)]

use polywire_core::{
    codec::{self, BuildError, Decoder, Encoder, Options},
    layout::{Kind, Layout, Message, Scalar},
    program::{
        Arm, Backend, Block, Cursor, Direction, ExecError, ExpectedPrefix, FaultKind, InlineForm, InlineKernel, Input,
        MemberDialect, MemberKey, MemberTable, NumberForm, Op, OpKind, Order, Output, Overflow, PathId, Place, Program,
        RegionDialect, RegionForm, Room, ScalarKernel, ShortText, Status, SymbolKernel, SymbolTable, TextForm,
        TextKernel, WideKernel, Wire,
    },
};
use polywire_derive::Message;
use std::sync::Arc;

use super::foreign::{Foreign, Lower};

const BACKENDS: [Backend; 2] = [Backend::Interpreter, Backend::Auto];

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Pair {
    first: u64,
    second: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Note {
    on: bool,
    text: String,
}

type Make = fn(&Arc<Layout>) -> Program;

/// Lowers whatever it is given to the one program.
struct Stranger(Make);

impl Lower for Stranger {
    const NAME: &'static str = "stranger";
    const LIKE: &'static str = "cdr";

    fn program(&self, _: Direction, layout: &Arc<Layout>) -> Program {
        (self.0)(layout)
    }
}

fn op(kind: OpKind) -> Op {
    Op { path: PathId(0), kind }
}

fn program(direction: Direction, layout: &Arc<Layout>, kinds: impl IntoIterator<Item = OpKind>) -> Program {
    let (root, layout) = (Block(kinds.into_iter().map(op).collect()), layout.clone());
    Program { direction, layout, root, routines: vec![], adapter: None, paths: vec!["".into()], bank: None }
}

fn place(layout: &Layout, field: usize) -> Place {
    let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!("it is a structure") };
    Place::At { offset: fields[field].offset, node: fields[field].node }
}

fn encoder<T: Message>(make: Make, backend: Backend) -> Result<Encoder<T>, BuildError> {
    Encoder::with_backend(&Foreign(Stranger(make)), &Options::default(), backend)
}

fn decoder<T: Message>(make: Make, backend: Backend) -> Result<Decoder<T>, BuildError> {
    Decoder::with_backend(&Foreign(Stranger(make)), &Options::default(), T::shape().schema(), backend)
}

/// Both directions refuse what one of them is asked for, for the reason.
#[track_caller]
fn refused<T: Message>(make: Make, reason: &str) {
    for error in [encoder::<T>(make, Backend::Interpreter).err(), decoder::<T>(make, Backend::Interpreter).err()] {
        match error {
            Some(BuildError::Exec(ExecError::Refused(error))) => assert!(error.rule.contains(reason), "{error}"),
            Some(BuildError::Foreign("stranger")) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_program_for_other_memory_is_refused() {
    let of_another_type: Make = |_| {
        let shape = Note::shape();
        codec::find("cdr").unwrap().lower_encode(&Options::default(), shape.schema(), shape.layout()).unwrap()
    };
    assert_eq!(encoder::<Pair>(of_another_type, Backend::Auto).err(), Some(BuildError::Foreign("stranger")));
    let of_an_equal_type: Make = |layout| {
        // The nodes are the same, but nobody can know.
        program(Direction::Decode, &Arc::new(Layout::clone(layout)), [])
    };
    assert_eq!(decoder::<Pair>(of_an_equal_type, Backend::Auto).err(), Some(BuildError::Foreign("stranger")));
    let the_other_way: Make = |layout| program(Direction::Decode, layout, []);
    let error = encoder::<Pair>(the_other_way, Backend::Auto).err().unwrap();
    assert_eq!(error.to_string(), "codec 'stranger' made a program for another type, or of the other direction");
    assert!(decoder::<Pair>(the_other_way, Backend::Auto).is_ok());
}

/// It says that it wrote as many bytes as its argument, and writes none.
static BOASTER: InlineKernel = InlineKernel::new("boaster", Scalar::U64, boast, None);

extern "C" fn boast(_: &mut Room, bytes: u64, _: u64) -> usize {
    bytes as usize
}

fn boasting<const BYTES: u64>(layout: &Arc<Layout>) -> Program {
    let put = OpKind::Put(Wire::Inline(&BOASTER, BYTES));
    let kinds = [OpKind::Load(place(layout, 0)), put, OpKind::Need(2), OpKind::Literal([0x42; 2].into())];
    program(Direction::Encode, layout, kinds)
}

#[test]
fn the_rest_of_an_inline_string_is_zero_and_within_its_bound() {
    let makes: [(Make, usize); 4] =
        [(boasting::<0>, 0), (boasting::<32>, 32), (boasting::<{ 1 << 30 }>, 32), (boasting::<{ u64::MAX }>, 32)];
    for backend in BACKENDS {
        for (make, bytes) in makes {
            let encoder = encoder::<Pair>(make, backend).unwrap();
            // The previous content of the buffer is not sent.
            let mut out = vec![0x53; 256];
            out.clear();
            for _ in 0..3 {
                encoder.encode(&Pair::default(), &mut out).unwrap();
            }
            let one = [vec![0; bytes], vec![0x42; 2]].concat();
            assert_eq!(out, one.repeat(3), "{backend:?}");
        }
    }
}

static FORMED: InlineKernel =
    InlineKernel::new("formed", Scalar::U64, boast, Some(InlineForm { number: NumberForm::Fixed, unless_zero: false }));
static NEVER: TextKernel = text(ShortText { head: 0, head_len: 0, below: 8 });
static LONG: TextKernel = text(ShortText { head: 0, head_len: 255, below: 8 });
static NONE: TextKernel = text(ShortText { head: 0, head_len: 1, below: 0 });

const fn text(short: ShortText) -> TextKernel {
    TextKernel { name: "text", get: |_, _| Status::Ok, put: |_, _| Status::Ok, short: Some(short) }
}

fn texts(direction: Direction, layout: &Arc<Layout>, kernel: &'static TextKernel) -> Program {
    let (form, overflow) = (TextForm::Kernel(kernel), Overflow::Refuse);
    let text = OpKind::Text { place: place(layout, 1), form, bound: 0, utf16_bound: false, overflow, after: 0 };
    program(direction, layout, [text])
}

#[test]
fn forms_that_machine_code_cannot_follow_are_refused() {
    refused::<Pair>(
        |layout| {
            let put = OpKind::Put(Wire::Inline(&FORMED, 8 << 56));
            program(Direction::Encode, layout, [OpKind::Load(place(layout, 0)), put])
        },
        "head is too long",
    );
    refused::<Note>(|layout| texts(Direction::Encode, layout, &NEVER), "one to four");
    refused::<Note>(|layout| texts(Direction::Encode, layout, &LONG), "one to four");
    refused::<Note>(|layout| texts(Direction::Decode, layout, &NONE), "one to four");
}

static BARE: MemberDialect = MemberDialect {
    name: "bare",
    begin: nothing,
    next: none_more,
    after: nothing,
    skip: nothing,
    refuse_duplicates: false,
    ending: None,
    prefixes_suffice: false,
};

extern "C" fn nothing(_: &mut Input<'_>, _: &mut Cursor) -> Status {
    Status::Ok
}

extern "C" fn none_more(_: &mut Input<'_>, _: &mut Cursor, _: &MemberTable, arm: &mut u64) -> Status {
    *arm = MemberTable::END;
    Status::Ok
}

fn noting<const BIT: u8>(layout: &Arc<Layout>) -> Program {
    let key = MemberKey { id: 1, name: (*b"a").into() };
    let prefix = ExpectedPrefix { note: Some(BIT), ..ExpectedPrefix::new(b"a") };
    let arm = Arm { key: key.clone(), prefix: Some(prefix), body: Block::default(), absent: Block::default() };
    let table = Arc::new(MemberTable::new(vec![key]));
    program(Direction::Decode, layout, [OpKind::Members { dialect: &BARE, arms: vec![arm], table }])
}

#[test]
fn an_expected_prefix_is_within_the_cursor() {
    refused::<Pair>(noting::<192>, "cursor");
    refused::<Pair>(noting::<255>, "cursor");
    for backend in BACKENDS {
        let decoder = decoder::<Pair>(noting::<191>, backend).unwrap();
        assert!(decoder.decode(b"ab", &mut Pair::default()).is_ok());
    }
}

static WIDE_BOOL: ScalarKernel = ScalarKernel {
    name: "wide",
    scalar: Scalar::Bool,
    get: leave,
    put: put_word,
    wide: Some(WideKernel { get: |_| Ok(2), put: |_, _| Status::Ok }),
    form: None,
};

static NARROW: ScalarKernel = ScalarKernel { scalar: Scalar::F128, wide: None, name: "narrow", ..LEFT };
static BOOLEAN: SymbolKernel = SymbolKernel { name: "boolean", scalar: Scalar::Bool, get: two, put: put_symbol };

const LEFT: ScalarKernel =
    ScalarKernel { name: "left", scalar: Scalar::U64, get: leave, put: put_word, wide: None, form: None };
static LEAVES: ScalarKernel = LEFT;

extern "C" fn put_word(_: &mut Output<'_>, _: u64) -> Status {
    Status::Ok
}

extern "C" fn put_symbol(_: &mut Output<'_>, _: &SymbolTable, _: u64) -> Status {
    Status::Ok
}

extern "C" fn put_mark(_: &mut Output<'_>, _: u64, _: &mut Cursor) -> Status {
    Status::Ok
}

extern "C" fn get_mark(_: &mut Input<'_>, _: u64, _: &mut Cursor) -> Status {
    Status::Ok
}

extern "C" fn leave(_: &mut Input<'_>, _: &mut u64) -> Status {
    Status::Ok
}

extern "C" fn two(_: &mut Input<'_>, _: &SymbolTable, word: &mut u64) -> Status {
    *word = 2;
    Status::Ok
}

fn get(layout: &Arc<Layout>, wire: Wire) -> Program {
    program(Direction::Decode, layout, [OpKind::Get(wire), OpKind::Store(place(layout, 0))])
}

#[test]
fn kernels_are_of_types_that_they_can_have() {
    refused::<Note>(|layout| get(layout, Wire::Kernel(&WIDE_BOOL)), "128 bits");
    refused::<Note>(|layout| get(layout, Wire::Kernel(&NARROW)), "128 bits");
    refused::<Note>(|layout| get(layout, Wire::Symbol(&BOOLEAN, Arc::new(SymbolTable::new([], None)))), "I64 or U64");
}

#[test]
fn a_word_that_a_kernel_leaves_alone_is_zero_or_what_another_wrote() {
    for backend in BACKENDS {
        let decoder = decoder::<Pair>(|layout| get(layout, Wire::Kernel(&LEAVES)), backend).unwrap();
        let mut pair = Pair { first: 7, second: 7 };
        decoder.decode(b"", &mut pair).unwrap();
        assert_eq!(pair, Pair { first: 0, second: 7 }, "{backend:?}");
    }
}

/// It keeps no end in its cursor, and narrows nothing.
static ENDLESS: RegionDialect = RegionDialect {
    name: "endless",
    restarts_origin: false,
    get_begin: far,
    get_end: get_mark,
    put_begin: put_mark,
    put_end: put_mark,
    form: Some(RegionForm::Length { tag: 5 }),
};

extern "C" fn far(_: &mut Input<'_>, _: u64, cursor: &mut Cursor) -> Status {
    *cursor = Cursor([1 << 40; 3]);
    Status::Ok
}

#[test]
fn a_region_ends_where_it_was_whatever_its_dialect_says() {
    let make: Make = |layout| {
        let region = OpKind::Region { dialect: &ENDLESS, argument: 0, body: Block::default() };
        let get = OpKind::Get(Wire::Fixed { scalar: Scalar::U64, order: Order::Little });
        program(Direction::Decode, layout, [region, OpKind::Need(8), get, OpKind::Store(place(layout, 0))])
    };
    for backend in BACKENDS {
        let error = decoder::<Pair>(make, backend).unwrap().decode(b"1234", &mut Pair::default()).unwrap_err();
        assert_eq!(error.kind, FaultKind::Truncated, "{backend:?}");
    }
}

/// Moves as far as it is allowed to.
static WANDERER: ScalarKernel =
    ScalarKernel { name: "wanderer", scalar: Scalar::U64, get: wander, put: put_word, wide: None, form: None };

extern "C" fn wander(input: &mut Input<'_>, word: &mut u64) -> Status {
    for origin in [usize::MAX, usize::MAX - 3, 1 << 63, 0, 5] {
        input.replace_origin(origin);
        [0, 1, 3, 1 << 63, usize::MAX].into_iter().for_each(|n| input.align(n));
    }
    input.leave_levels(u32::MAX);
    input.leave();
    *word = input.rest().len() as u64;
    Status::Ok
}

#[test]
fn a_position_stays_near_the_message() {
    let make: Make = |layout| {
        let first = [OpKind::Get(Wire::Kernel(&WANDERER)), OpKind::Store(place(layout, 0)), OpKind::Align(8)];
        let get = OpKind::Get(Wire::Fixed { scalar: Scalar::U64, order: Order::Little });
        program(
            Direction::Decode,
            layout,
            first.into_iter().chain([OpKind::Need(8), get, OpKind::Store(place(layout, 1))]),
        )
    };
    for backend in BACKENDS {
        let error = decoder::<Pair>(make, backend).unwrap().decode(b"12345678", &mut Pair::default()).unwrap_err();
        assert_eq!(error.kind, FaultKind::Truncated, "{backend:?}");
    }
}

#[test]
fn an_output_cannot_be_moved() {
    static WANDERS: ScalarKernel =
        ScalarKernel { name: "wanders", scalar: Scalar::U64, get: leave, put: wanders, wide: None, form: None };
    extern "C" fn wanders(output: &mut Output<'_>, _: u64) -> Status {
        output.replace_origin(usize::MAX);
        output.leave_levels(u32::MAX);
        let status = output.align(usize::MAX);
        output.truncate(1);
        status
    }
    let make: Make = |layout| {
        let put = [OpKind::Load(place(layout, 0)), OpKind::Put(Wire::Kernel(&WANDERS))];
        let behind = [OpKind::Need(16), OpKind::Align(8), OpKind::Literal((*b"end").into())];
        program(Direction::Encode, layout, put.into_iter().chain(behind))
    };
    for backend in BACKENDS {
        let mut out = vec![9; 3];
        encoder::<Pair>(make, backend).unwrap().encode(&Pair::default(), &mut out).unwrap();
        assert!(out.starts_with(&[9; 3]) && out.ends_with(b"end") && out.len() < 40, "{backend:?}: {out:?}");
    }
}
