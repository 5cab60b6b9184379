//! Benchmark of compiling a codec's program, which happens once for a pair of types.

use std::time::Instant;

use polywire_core::program::Backend;

use super::{
    Measured, for_each_workload,
    subject::{decoder, encoder},
};
use crate::{
    measure::{Effort, Figure, median},
    report::{Group, Row},
};

pub fn group(effort: Effort) -> Group {
    // A type's schema is computed on first use. The median hides the one call that includes it.
    let rows = for_each_workload!(rows(effort)).into_iter().flatten().collect();
    let note =
        "Median time from a schema to a program that is ready to run: lowered, verified and compiled to machine \
                code, or without the last step for the interpreter."
            .into();
    Group { title: "Compiling a program", note, rows, ..Group::default() }
}

fn rows<T: Measured>(effort: Effort) -> [Row; 2] {
    let row = |operation: &str, make: fn(&str, Backend)| {
        let columns = [
            ("cdr", Backend::Jit),
            ("json", Backend::Jit),
            ("bson", Backend::Jit),
            ("cdr interpreted", Backend::Interpreter),
        ];
        let measure = |(name, backend): (&'static str, _)| {
            figure(name, effort, || make(name.split(' ').next().unwrap_or(name), backend))
        };
        Row::new(T::NAME, operation, None, columns.map(measure).into())
    };
    [
        row("encode", |codec, backend| drop(encoder::<T>(codec, backend))),
        row("decode", |codec, backend| drop(decoder::<T>(codec, backend))),
    ]
}

fn figure(name: &'static str, effort: Effort, make: impl Fn()) -> Figure {
    let once = |_| {
        let start = Instant::now();
        make();
        start.elapsed().as_nanos() as f64
    };
    let ns = median((0..effort.turns.min(9)).map(once));
    Figure { name, ns, ratio: f64::NAN, more_ns: f64::NAN, bar: None }
}
