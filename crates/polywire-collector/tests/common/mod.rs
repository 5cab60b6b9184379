//! What the tests share: a folder, a source of numbered entries, and a collector for them.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

pub use polywire_testing::waiting::{SOON, until};

use polywire::{Message, Record, Shape, extend::envelope::Id128};
use polywire_collector::{Entry, Numbered, Origin, Source};

/// The type of the entries.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "test::Number")]
pub struct Number {
    pub number: u64,
    pub text: String,
}

/// A folder for one test, which is removed at its end.
pub struct Folder(polywire_testing::Folder);

impl Folder {
    pub fn new(name: &str) -> Folder {
        Folder(polywire_testing::Folder::new(name))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).expect(name)
    }
}

/// An entry with a number.
pub fn entry(topic: &str, number: u64) -> Entry {
    // Handlers make ready for a type once, as long as its shape is the same one.
    static SHAPE: LazyLock<Arc<Shape>> = LazyLock::new(|| Shape::of(Number::shape().schema()).expect("a shape"));
    let mut record = Record::new(&SHAPE);
    record.set("number", number).expect("set");
    record.set("text", format!("this is {number}")).expect("set");
    let origin = Origin { topic: topic.to_owned(), writer: Id128([7; 16]), incarnation: 1 };
    Entry::new(Arc::new(origin), number, i64::try_from(number).expect("small"), record)
}

/// What a source of numbers has done.
#[derive(Default)]
pub struct Counts {
    pub given: AtomicU64,
    pub acknowledged: AtomicU64,
}

/// Entries with the numbers from `next` to `last`. At most `window` of them are not acknowledged,
/// as with a node that keeps what the collector does not have.
pub struct Numbers {
    pub next: u64,
    pub last: u64,
    pub window: u64,
    pub counts: Arc<Counts>,
    pub tell: fn(u64),
}

impl Numbers {
    pub fn new(last: u64) -> (Numbers, Arc<Counts>) {
        let counts = Arc::new(Counts::default());
        (Numbers { next: 1, last, window: u64::MAX, counts: counts.clone(), tell: |_| {} }, counts)
    }
}

impl Source for Numbers {
    fn next(&mut self, _: Duration) -> Option<Numbered> {
        let acknowledged = self.counts.acknowledged.load(Ordering::Acquire);
        if self.next > self.last || self.next - acknowledged.min(self.next) > self.window {
            thread::sleep(Duration::from_millis(1));
            return None;
        }
        let entry = entry("test/numbers", self.next);
        self.next += 1;
        self.counts.given.store(self.next - 1, Ordering::Release);
        Some(Numbered { position: self.next - 1, entry })
    }

    fn acknowledge(&mut self, position: u64) {
        let before = self.counts.acknowledged.swap(position, Ordering::AcqRel);
        assert!(before < position, "positions rise");
        (self.tell)(position);
    }
}
