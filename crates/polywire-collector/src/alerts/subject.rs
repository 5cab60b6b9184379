//! The state of an alert for one subject: which tests its fields pass, and since when.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::{Duration, Instant},
};

use polywire::extend::layout::{PathError, ValueRef};

use super::condition::{Condition, Field, How, Literal, Term, Test};
use crate::entry::plain;

/// The maximum number of characters of a value in an alert.
const SHOWN: usize = 200;
/// The values of a field that is missing, and of a topic on which any message counts.
const MISSING: &str = "missing";
const THERE: &str = "there";

/// The state of a condition for the messages below one prefix and of one instance.
pub(super) struct Subject {
    fields: Vec<Known>,
    /// The times since which the terms with a `for` have been true.
    since: Vec<Option<Instant>>,
    pub is_raised: bool,
    /// Whether the subject exists only because the configuration names it: no message has arrived
    /// yet.
    pub is_expected: bool,
    /// The time at which the condition may change without a message.
    pub due: Option<Instant>,
}

/// The state of a field.
struct Known {
    passes: bool,
    /// The value as text; empty if there is none.
    shown: String,
    /// The hash of the latest values, for the test `changes`.
    hash: Option<u64>,
    came: Instant,
}

impl Subject {
    pub fn new(condition: &Condition, now: Instant) -> Subject {
        let known = |_: &Field| Known { passes: false, shown: String::new(), hash: None, came: now };
        Subject {
            fields: condition.fields.iter().map(known).collect(),
            since: vec![None; condition.waits],
            is_raised: false,
            is_expected: false,
            due: None,
        }
    }

    /// Updates the fields of a topic from a message. The error names a field that does not fit the
    /// type.
    pub fn update(
        &mut self,
        condition: &Condition,
        topic: &str,
        value: ValueRef<'_>,
        now: Instant,
    ) -> Result<(), String> {
        let mut result = Ok(());
        for (field, known) in condition.fields.iter().zip(&mut self.fields) {
            if field.topic == topic
                && let Err(reason) = known.update(field, value, now)
            {
                result = Err(format!("'{}': {reason}", field.text));
            }
        }
        result
    }

    /// Returns whether the condition is true now, and sets `due`.
    pub fn evaluate(&mut self, condition: &Condition, now: Instant) -> bool {
        self.due = None;
        self.is_true(condition, &condition.root, now)
    }

    fn is_true(&mut self, condition: &Condition, term: &Term, now: Instant) -> bool {
        match term {
            Term::Field(number) => match (condition.fields.get(*number), self.fields.get(*number)) {
                (Some(Field { test: Test::Missing(time), .. }), Some(known)) => {
                    let since = known.came;
                    let is_missing = self.is_over(since, *time, now);
                    if let Some(known) = self.fields.get_mut(*number).filter(|_| is_missing) {
                        known.shown = MISSING.into();
                    }
                    is_missing
                }
                (_, known) => known.is_some_and(|known| known.passes),
            },
            // All terms are evaluated, because each of them tracks its own time.
            Term::All(terms) => terms.iter().fold(true, |all, term| self.is_true(condition, term, now) & all),
            Term::Any(terms) => terms.iter().fold(false, |any, term| self.is_true(condition, term, now) | any),
            Term::For { term, time, wait } => {
                let is_true = self.is_true(condition, term, now);
                let Some(since) = self.since.get_mut(*wait) else { return is_true };
                if !is_true {
                    *since = None;
                    return false;
                }
                let since = *since.get_or_insert(now);
                self.is_over(since, *time, now)
            }
        }
    }

    fn is_over(&mut self, since: Instant, time: Duration, now: Instant) -> bool {
        if now.saturating_duration_since(since) >= time {
            return true;
        }
        let due = since.checked_add(time);
        self.due = self.due.into_iter().chain(due).min();
        false
    }

    /// Returns the fields with their latest values.
    pub fn values<'a>(&'a self, condition: &'a Condition) -> impl Iterator<Item = (&'a str, &'a str)> {
        condition.fields.iter().zip(&self.fields).map(|(field, known)| (field.text.as_str(), known.shown.as_str()))
    }
}

impl Known {
    fn update(&mut self, field: &Field, message: ValueRef<'_>, now: Instant) -> Result<(), String> {
        let mut found = Vec::new();
        let result = find(message, &field.path, &mut found);
        if !found.is_empty() {
            self.came = now;
        }
        match &field.test {
            // Only the presence counts. A topic on which any message counts has no value.
            Test::Missing(_) if found.is_empty() => {}
            Test::Missing(_) if field.path.is_empty() => self.shown = THERE.into(),
            Test::Missing(_) => self.shown = found.first().map(show).unwrap_or_default(),
            Test::Changes => {
                let hash = hash(&found);
                self.passes = self.hash.is_some_and(|before| before != hash);
                (self.hash, self.shown) = (Some(hash), found.first().map(show).unwrap_or_default());
            }
            Test::Compare { how, with, clear } => {
                let compare = |value: &ValueRef<'_>| match clear.filter(|_| self.passes) {
                    Some(bound) => number(value).map(|number| stays(number, *how, bound)),
                    None => passes(value, *how, with),
                };
                let outcomes: Vec<Option<bool>> = found.iter().map(compare).collect();
                let passing = outcomes.iter().position(|outcome| *outcome == Some(true));
                self.passes = passing.is_some();
                self.shown = found.get(passing.unwrap_or(0)).map(show).unwrap_or_default();
                if let Some(at) = outcomes.iter().position(Option::is_none) {
                    return Err(format!("{} cannot be compared so", found.get(at).map(show).unwrap_or_default()));
                }
            }
        }
        result
    }
}

/// Appends the values at a path. Absent values and missing elements are left out. The error says
/// why the type cannot have such a value.
fn find<'a>(value: ValueRef<'a>, path: &[String], found: &mut Vec<ValueRef<'a>>) -> Result<(), String> {
    let Some((first, rest)) = path.split_first() else {
        if !value.is_absent() {
            found.push(value);
        }
        return Ok(());
    };
    let here = match value.get(first) {
        Ok(here) => here,
        Err(PathError::Absent { .. } | PathError::OtherCase { .. } | PathError::OutOfRange { .. }) => return Ok(()),
        Err(PathError::NoEntry { .. }) => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    match (here, rest.is_empty()) {
        (_, true) => find(here, rest, found),
        (ValueRef::List(list), false) => list.iter().try_for_each(|element| find(element, rest, found)),
        (ValueRef::Map(map), false) => map.entries().into_iter().try_for_each(|(_, value)| find(value, rest, found)),
        (ValueRef::Absent, false) => Ok(()),
        _ => Err(format!("'{first}' has no elements")),
    }
}

/// Tests a value; `None` if it cannot be compared with the literal.
fn passes(value: &ValueRef<'_>, how: How, with: &Literal) -> Option<bool> {
    match with {
        Literal::Number(limit) => number(value).map(|number| compare(number, how, *limit)),
        Literal::Text(text) => value.as_str().map(|own| (own == text) == (how == How::Equal)),
        Literal::Truth(truth) => value.as_bool().map(|own| (own == *truth) == (how == How::Equal)),
    }
}

/// Returns the numeric value; `None` for booleans and texts.
fn number(value: &ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Bool(_) => None,
        ValueRef::Bitmask(mask) => Some(mask.bits() as f64),
        other => other.as_f64().or_else(|| other.as_i64().map(|number| number as f64)),
    }
}

/// Compares two numbers. NaN passes no test.
fn compare(number: f64, how: How, limit: f64) -> bool {
    match how {
        How::Less => number < limit,
        How::LessOrEqual => number <= limit,
        How::Greater => number > limit,
        How::GreaterOrEqual => number >= limit,
        How::Equal => number == limit,
        How::NotEqual => !number.is_nan() && number != limit,
    }
}

/// Returns whether a comparison that was true remains true, because the number has not passed the
/// bound.
fn stays(number: f64, how: How, bound: f64) -> bool {
    match how {
        How::Less | How::LessOrEqual => number <= bound,
        _ => number >= bound,
    }
}

fn hash(values: &[ValueRef<'_>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.iter().for_each(|value| format!("{value:?}").hash(&mut hasher));
    hasher.finish()
}

fn show(value: &ValueRef<'_>) -> String {
    plain(*value).chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use polywire::{Message as _, Record, Shape};

    use super::*;

    #[derive(Default, polywire::Message)]
    struct Disk {
        busy: Option<f32>,
    }

    #[derive(Default, polywire::Message)]
    struct Pump {
        pressure: f64,
        mode: String,
        on: bool,
        disks: Vec<Disk>,
    }

    /// A subject with a clock of its own.
    struct Bench {
        condition: Condition,
        subject: Subject,
        record: Record,
        now: Instant,
    }

    impl Bench {
        fn new(condition: &str) -> Bench {
            let condition: Condition = condition.parse().expect("a condition");
            let (record, now) = (Record::new(&Shape::of(Pump::shape().schema()).expect("a shape")), Instant::now());
            Bench { subject: Subject::new(&condition, now), condition, record, now }
        }

        fn after(&mut self, seconds: f64) -> bool {
            self.now += Duration::from_secs_f64(seconds);
            self.subject.evaluate(&self.condition, self.now)
        }

        fn message(&mut self) -> Result<bool, String> {
            self.subject.update(&self.condition, "p", self.record.view(), self.now)?;
            Ok(self.after(0.0))
        }

        fn pressure(&mut self, pressure: f64) -> bool {
            self.record.set("pressure", pressure).expect("set");
            self.message().expect("it fits")
        }
    }

    #[test]
    fn a_comparison_must_last() {
        let mut bench = Bench::new("p/pressure > 90 for 10s");
        assert!(!bench.pressure(91.0) && !bench.after(9.0) && !bench.pressure(95.0));
        assert_eq!(bench.subject.due, Some(bench.now + Duration::from_secs(1)));
        assert!(bench.after(1.0) && bench.subject.due.is_none());
        assert!(!bench.pressure(90.0) && !bench.pressure(91.0) && !bench.after(9.9) && bench.after(0.2));
        assert!(!bench.pressure(f64::NAN));
        assert_eq!(bench.subject.values(&bench.condition).collect::<Vec<_>>(), [("p/pressure", "NaN")]);
    }

    #[test]
    fn a_bound_clears_later() {
        let mut bench = Bench::new("p/pressure > 90 clear below 80");
        let seen = [85.0, 91.0, 85.0, 80.0, 79.9, 85.0, 90.0, 90.5].map(|pressure| bench.pressure(pressure));
        assert_eq!(seen, [false, true, true, true, false, false, false, true]);
        let mut low = Bench::new("p/pressure <= 1 clear above 2");
        assert_eq!([1.5, 1.0, 1.5, 2.0, 2.1, 1.5].map(|p| low.pressure(p)), [false, true, true, true, false, false]);
    }

    #[test]
    fn values_change_and_are_missing() {
        let mut bench = Bench::new("p/mode changes");
        assert!(!bench.message().unwrap() && !bench.message().unwrap());
        bench.record.set("mode", "auto").expect("set");
        assert!(bench.message().unwrap() && !bench.message().unwrap());
        let mut missing = Bench::new("p/disks[*].busy missing for 5s");
        assert!(!missing.after(4.9) && missing.after(0.2));
        assert!(missing.message().unwrap(), "no disk has it");
        missing.record.resize("disks", 2).expect("set");
        assert!(missing.message().unwrap(), "it is absent");
        missing.record.set("disks[1].busy", 0.5).expect("set");
        assert!(!missing.message().unwrap() && missing.after(5.0));
        let mut any = Bench::new("p/ missing for 1h");
        any.after(3599.0);
        let shown = |bench: &Bench| bench.subject.values(&bench.condition).next().map(|(_, shown)| shown.to_owned());
        assert!(!any.message().unwrap() && !any.after(3599.0));
        assert_eq!(shown(&any).as_deref(), Some(THERE));
        assert!(any.after(1.0));
        assert_eq!(shown(&any).as_deref(), Some(MISSING));
        assert_eq!(shown(&missing).as_deref(), Some(MISSING));
        assert!(!missing.message().unwrap());
        assert_eq!(shown(&missing).as_deref(), Some("0.5"));
    }

    #[test]
    fn one_element_is_enough() {
        let mut bench = Bench::new("p/disks[*].busy >= 50 clear below 20");
        bench.record.resize("disks", 3).expect("set");
        assert!(!bench.message().unwrap());
        for (disk, busy, expected) in [(1, 60.0, true), (0, 30.0, true), (1, 0.0, true), (0, 19.0, false)] {
            bench.record.set(&format!("disks[{disk}].busy"), busy).expect("set");
            assert_eq!(bench.message(), Ok(expected), "{:?}", bench.record);
        }
        assert_eq!(bench.subject.values(&bench.condition).next(), Some(("p/disks[*].busy", "19.0")));
    }

    #[test]
    fn terms_have_times_of_their_own() {
        let mut bench = Bench::new("(p/pressure > 1 or p/on == true) for 2s and p/mode == \"auto\" for 1s");
        assert!(!bench.pressure(2.0) && !bench.after(5.0));
        bench.record.set("mode", "auto").expect("set");
        assert!(!bench.message().unwrap() && bench.after(1.0));
        bench.record.set("on", true).expect("set");
        assert!(bench.pressure(0.0), "the other one goes on");
        bench.record.set("mode", "manual").expect("set");
        assert!(!bench.message().unwrap());
    }

    #[test]
    fn fields_that_suit_no_message_are_told() {
        let told = |condition: &str| Bench::new(condition).message().expect_err(condition);
        assert!(told("p/presure > 1").starts_with("'p/presure': there is no 'presure' among pressure, mode"));
        assert_eq!(told("p/mode > 1"), "'p/mode':  cannot be compared so");
        assert_eq!(told("p/on == 1"), "'p/on': false cannot be compared so");
        assert_eq!(told("p/pressure[*] > 1"), "'p/pressure[*]': 'pressure' has no elements");
        assert_eq!(Bench::new("q/x > 1").message(), Ok(false), "another topic");
    }
}
