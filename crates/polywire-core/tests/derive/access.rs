//! The access functions of derived types, also if the user's code panics inside them.

use polywire_core::layout::{Inserted, Kind, Layout, Message, MessageField, Node, OutOfMemory};
use polywire_derive::Message;
use std::{cell::Cell, collections::BTreeMap};

thread_local! {
    static LIVE: Cell<i32> = const { Cell::new(0) };
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

/// Counts its values. Panics in `default` or `drop` if the test asks for it.
#[derive(Debug)]
struct Touchy;

impl Default for Touchy {
    fn default() -> Self {
        assert!(!PANICS.get(), "default");
        LIVE.set(LIVE.get() + 1);
        Touchy
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        LIVE.set(LIVE.get() - 1);
        assert!(!PANICS.get() || std::thread::panicking(), "drop");
    }
}

#[derive(Message, Debug)]
#[expect(dead_code)]
struct Part {
    number: i32,
    #[polywire(skip)]
    touchy: Touchy,
}

#[derive(Message, Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    One,
    Two,
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        assert!(!PANICS.get(), "ord");
        (*self as u8).cmp(&(*other as u8))
    }
}

#[derive(Message, Debug)]
struct Whole {
    parts: Vec<Part>,
    numbers: Vec<[i16; 3]>,
    maybe: Option<Part>,
    boxed: Box<Part>,
    named: BTreeMap<Key, Part>,
    choice: Choice,
}

#[derive(Message, Debug)]
#[polywire(switch = "int32")]
enum Choice {
    #[polywire(case(1))]
    Part(Part),
    #[polywire(case(0))]
    Number(f64),
}

fn place(whole: &mut Whole, index: usize) -> (*mut u8, &'static Node) {
    let layout: &'static Layout = Whole::shape().layout();
    let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!() };
    let at = (&raw mut *whole).cast::<u8>().wrapping_add(fields[index].offset as usize);
    (at, layout.node(fields[index].node))
}

/// Runs `run` while the user's code panics, without noise.
#[cfg(feature = "std")]
fn panicking<R>(run: impl FnOnce() -> R) -> R {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    PANICS.set(true);
    let result = run();
    PANICS.set(false);
    std::panic::set_hook(hook);
    result
}

#[test]
fn values_come_and_go() {
    let mut whole = Whole::default_value();
    assert_eq!(LIVE.get(), 1, "the box");
    // SAFETY: all places are those of the layout.
    unsafe {
        let (at, node) = place(&mut whole, 0);
        let Kind::Sequence(parts) = &node.kind else { panic!() };
        let first = parts.access.resize(at, 3).unwrap().cast::<Part>();
        (*first.add(2)).number = 7;
        assert_eq!(LIVE.get(), 4);
        parts.access.resize(at, 1).unwrap();
        assert_eq!(LIVE.get(), 2);
        let first = parts.access.resize(at, 3).unwrap().cast::<Part>();
        assert_eq!((*first.add(2)).number, 0, "new elements are fresh");
        assert_eq!(parts.access.resize(at, usize::MAX), Err(OutOfMemory));
        assert_eq!(parts.access.slice(at), (first.cast_const().cast(), 3));

        let (at, node) = place(&mut whole, 1);
        let Kind::Sequence(numbers) = &node.kind else { panic!() };
        let bytes: Vec<u8> = [0i16, 1, 2, 3, 4, 5].iter().flat_map(|n| n.to_ne_bytes()).collect();
        numbers.access.assign(at, bytes.as_ptr(), 2).unwrap();
        assert_eq!(whole.numbers, [[0, 1, 2], [3, 4, 5]]);
        assert_eq!(numbers.access.assign(at, bytes.as_ptr(), usize::MAX / 2), Err(OutOfMemory));

        let (at, node) = place(&mut whole, 2);
        let Kind::Optional(maybe) = &node.kind else { panic!() };
        assert!(maybe.access.get(at).is_null());
        let part = maybe.access.set_some(at).unwrap().cast::<Part>();
        (*part).number = 5;
        assert_eq!(maybe.access.set_some(at).unwrap(), part.cast());
        assert_eq!((maybe.access.get(at), whole.maybe.as_ref().unwrap().number), (part.cast_const().cast(), 5));
        maybe.access.set_none(at);
        assert!(whole.maybe.is_none());

        let (at, node) = place(&mut whole, 3);
        let Kind::Boxed(boxed) = &node.kind else { panic!() };
        (*boxed.access.get_mut(at).cast::<Part>()).number = 9;
        assert_eq!((*boxed.access.get(at).cast::<Part>()).number, 9);

        let (at, node) = place(&mut whole, 4);
        let Kind::Map(named) = &node.kind else { panic!() };
        let insert = |key: Key, number: i32, take: bool| {
            named.access.insert(at, &mut |k, v| {
                k.cast::<Key>().write(key);
                (*v.cast::<Part>()).number = number;
                take
            })
        };
        assert_eq!(insert(Key::Two, 2, true), Ok(Inserted::Yes));
        assert_eq!(insert(Key::Two, 3, true), Ok(Inserted::Replaced));
        assert_eq!(insert(Key::One, 4, false), Ok(Inserted::Refused));
        let mut seen = Vec::new();
        named.access.visit(at, &mut |k, v| {
            seen.push((*k.cast::<Key>(), (*v.cast::<Part>()).number));
            true
        });
        assert_eq!((named.access.len(at), seen), (1, vec![(Key::Two, 3)]));
        named.access.clear(at);
        assert!(whole.named.is_empty());
    }
    drop(whole);
    assert_eq!(LIVE.get(), 0);
}

#[cfg(feature = "std")]
#[test]
fn panics_of_the_users_code_are_errors() {
    let mut whole = Whole::default_value();
    whole.parts.push(Part::default_value());
    whole.parts.push(Part::default_value());
    whole.named.insert(Key::One, Part::default_value());
    // SAFETY: all places are those of the layout.
    unsafe {
        let (at, node) = place(&mut whole, 0);
        let Kind::Sequence(parts) = &node.kind else { panic!() };
        assert_eq!(panicking(|| parts.access.resize(at, 5)), Err(OutOfMemory));
        assert_eq!(whole.parts.len(), 2, "as it was");
        assert_eq!(panicking(|| parts.access.resize(at, 1)), Err(OutOfMemory));
        assert_eq!(whole.parts.len(), 1, "the panic came after the element was gone");

        let (at, node) = place(&mut whole, 2);
        let Kind::Optional(maybe) = &node.kind else { panic!() };
        assert!(panicking(|| maybe.access.set_some(at)).is_err());
        assert!(whole.maybe.is_none());
        maybe.access.set_some(at).unwrap();
        panicking(|| maybe.access.set_none(at));
        assert!(whole.maybe.is_none());

        let (at, node) = place(&mut whole, 4);
        let Kind::Map(named) = &node.kind else { panic!() };
        assert!(panicking(|| named.access.insert(at, &mut |_, _| true)).is_err());
        let in_ord = |_: *mut u8, _: *mut u8| {
            PANICS.set(true);
            true
        };
        let mut fill = in_ord;
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        assert_eq!(named.access.insert(at, &mut fill), Err(OutOfMemory));
        PANICS.set(false);
        std::panic::set_hook(hook);
        assert_eq!(whole.named.len(), 1);
        panicking(|| named.access.clear(at));
        assert!(whole.named.is_empty());

        let (at, node) = place(&mut whole, 5);
        let Kind::Union(choice) = &node.kind else { panic!() };
        assert!(panicking(|| choice.access.select(at, 1, Some(0))).is_err());
        assert!(matches!(whole.choice, Choice::Number(_)));
        choice.access.select(at, 1, Some(0)).unwrap();
        assert!(panicking(|| choice.access.select(at, 0, Some(1))).is_err());
        assert!(matches!(whole.choice, Choice::Number(_)), "the panic came after the case was changed");
    }
    drop(whole);
    assert_eq!(LIVE.get(), 0, "nothing leaked");
}
