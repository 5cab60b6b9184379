//! Alerts: conditions on messages. An alert is raised and cleared as its condition changes.
//!
//! The threads of the sources pass each entry to [`Alerts`] before they offer it to the handlers,
//! so an alert also sees entries that a handler's queue drops. The changes of alerts are entries of
//! a separate source, which also publishes them.

mod condition;
mod source;
mod subject;
mod token;

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use polywire::{
    Kind, Message, Pattern,
    extend::envelope::Id128,
    qos::{Durability, History, Qos, Reliability},
};

pub use self::condition::{Condition, ConditionError};
pub(crate) use self::source::AlertSource;
use self::subject::Subject;
use crate::Entry;

/// The topic on which collectors publish the changes of alerts, as [`Alert`]s.
pub const ALERTS: &str = "telemetry/alerts";

/// The maximum number of alerts of a collector.
pub const MAX_ALERTS: usize = 256;

/// The maximum number of subjects of all alerts together.
const MAX_SUBJECTS: usize = 100_000;

/// The maximum number of topics whose alerts are cached.
const MAX_TOPICS: usize = 65_536;

/// The maximum number of changes that wait to be published, and that wait for the program.
const MAX_CHANGES: usize = 4096;

/// Returns the QoS of [`ALERTS`]: a late joiner receives the latest state of each alert.
///
/// ```
/// use polywire::Node;
/// use polywire_collector::{ALERTS, Alert, alerts_qos};
///
/// let alerts = Node::new().subscribe::<Alert>(ALERTS, Some("inproc/alerts-doc"))?.qos(alerts_qos())?.open();
/// assert_eq!(alerts.try_recv().map(|alert| alert.value), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn alerts_qos() -> Qos {
    let qos = Qos::default().reliability(Reliability::Reliable).history(History::KeepLast(1));
    qos.durability(Durability::TransientLocal)
}

/// An alert that was raised or cleared, on the topic [`ALERTS`].
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::Alert")]
pub struct Alert {
    /// The name in the configuration.
    #[polywire(key)]
    pub name: String,
    /// The first levels of the topics of the condition, such as `probes/pump-house`.
    #[polywire(key)]
    pub prefix: String,
    /// The instance, if the messages have a key, such as `id=7`.
    #[polywire(key)]
    pub instance: String,
    /// Whether the condition is true.
    pub state: AlertState,
    /// The severity of the alert.
    pub severity: Severity,
    /// The condition, as in the configuration.
    pub condition: String,
    /// The fields of the condition with their latest values.
    pub values: Vec<AlertValue>,
    /// The summary from the configuration.
    pub summary: String,
}

/// The state of an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Message)]
#[polywire(name = "telemetry::AlertState", nested)]
pub enum AlertState {
    /// The condition is no longer true, or the alert was removed from the configuration.
    #[default]
    Cleared,
    /// The condition is true.
    Raised,
}

/// The severity of an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Message)]
#[polywire(name = "telemetry::Severity", nested)]
pub enum Severity {
    /// For information only.
    Info,
    /// Requires attention.
    #[default]
    Warning,
    /// Requires immediate attention.
    Critical,
}

/// A field of a condition, and its value.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::AlertValue", nested)]
pub struct AlertValue {
    /// The field, as in the condition.
    pub field: String,
    /// The first 200 characters of its latest value; `missing` if the field is missing, `there` for
    /// a topic on which any message counts, and empty if there is no value.
    pub value: String,
}

/// The severities by name.
pub(crate) const SEVERITIES: [(&str, Severity); 3] =
    [("info", Severity::Info), ("warning", Severity::Warning), ("critical", Severity::Critical)];

impl Severity {
    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        SEVERITIES.iter().find(|(_, severity)| *severity == self).map_or("", |(name, _)| name)
    }
}

/// An alert in the configuration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AlertPlan {
    /// The name of the alert.
    pub name: String,
    /// The pattern of the first levels of the topics. Each matching prefix has a state of its own.
    /// `None` if the condition has complete topics.
    pub prefix: Option<Pattern>,
    /// The condition that raises the alert.
    pub condition: Condition,
    /// The severity of the alert.
    pub severity: Severity,
    /// A human-readable text.
    pub summary: String,
    /// The line of the alert's table in the file, from 1.
    pub line: usize,
}

impl PartialEq for AlertPlan {
    /// Compares all settings, but not the position in the file.
    fn eq(&self, other: &AlertPlan) -> bool {
        self.name == other.name
            && self.prefix == other.prefix
            && self.condition == other.condition
            && self.severity == other.severity
            && self.summary == other.summary
    }
}

impl AlertPlan {
    /// Splits a topic of the alert into prefix and rest; `None` if the alert is not about the
    /// topic.
    fn divide<'t>(&self, topic: &'t str) -> Option<(&'t str, &'t str)> {
        let (prefix, rest) = match &self.prefix {
            None => ("", topic),
            Some(pattern) => {
                let levels = pattern.as_str().split('/').count();
                let (at, _) = topic.match_indices('/').nth(levels - 1)?;
                let (prefix, rest) = (&topic[..at], &topic[at + 1..]);
                pattern.fits(prefix).then_some((prefix, rest))?
            }
        };
        self.condition.topics().any(|topic| topic == rest).then_some((prefix, rest))
    }

    fn alert(&self, (prefix, instance): &(String, String), subject: &Subject) -> Alert {
        let value = |(field, value): (&str, &str)| AlertValue { field: field.to_owned(), value: value.to_owned() };
        Alert {
            name: self.name.clone(),
            prefix: prefix.clone(),
            instance: instance.clone(),
            state: if subject.is_raised { AlertState::Raised } else { AlertState::Cleared },
            severity: self.severity,
            condition: self.condition.to_string(),
            values: subject.values(&self.condition).map(value).collect(),
            summary: self.summary.clone(),
        }
    }
}

/// The alerts of a collector with their states.
#[derive(Default)]
pub(crate) struct Alerts {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    /// The numbers of the rules that use each topic.
    concerned: BTreeMap<String, Vec<usize>>,
    /// The writer that publishes the alerts. Entries of this writer are ignored.
    writer: Option<Id128>,
    book: Book,
}

/// An alert with its subjects, by prefix and instance.
struct Rule {
    plan: AlertPlan,
    subjects: BTreeMap<(String, String), Subject>,
    /// Whether a field that fits no message has been reported.
    has_warned: bool,
}

/// The state that all rules share.
#[derive(Default)]
struct Book {
    /// The number of subjects of all rules.
    subjects: usize,
    /// The earliest time at which a condition may change without a message.
    due: Option<Instant>,
    /// Changes that wait to be published.
    changes: VecDeque<Alert>,
    /// Changes that the program has not taken.
    untold: VecDeque<Alert>,
}

impl Alerts {
    /// Replaces the alerts. Alerts that are unchanged keep their states; removed alerts are
    /// cleared.
    pub fn set_plans(&self, plans: &[AlertPlan], now: Instant) {
        let mut state = self.lock();
        let State { rules, concerned, book, .. } = &mut *state;
        let (kept, gone): (Vec<_>, Vec<_>) =
            std::mem::take(rules).into_iter().partition(|rule| plans.contains(&rule.plan));
        *rules = kept;
        concerned.clear();
        gone.into_iter().for_each(|rule| rule.end(book));
        for plan in plans {
            if !rules.iter().any(|rule| rule.plan == *plan) {
                rules.push(Rule::new(plan, now, book));
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Passes an entry to the alerts. Returns false if the entry was published by these alerts and
    /// was received by a subscription.
    pub fn see(&self, entry: &Entry, now: Instant) -> bool {
        let mut state = self.lock();
        if state.writer == Some(entry.origin.writer) {
            return false;
        }
        let before = (state.book.changes.len(), state.book.due);
        state.see(entry, now);
        if before != (state.book.changes.len(), state.book.due) {
            self.changed.notify_all();
        }
        true
    }

    /// Returns the next change. Blocks for at most `patience`; `None` if there was none.
    pub fn next(&self, patience: Duration) -> Option<Alert> {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            state.tick(now);
            if let Some(alert) = state.book.changes.pop_front() {
                return Some(alert);
            }
            if now >= until {
                return None;
            }
            let wake = state.book.due.map_or(until, |due| due.min(until));
            let wait = wake.saturating_duration_since(now);
            self.changed.wait_for(&mut state, wait);
        }
    }

    /// Returns the changes since the last call. If there were too many, the oldest ones are
    /// missing.
    pub fn take_untold(&self) -> Vec<Alert> {
        self.lock().book.untold.drain(..).collect()
    }

    /// Returns whether there is something to publish, or may be later.
    pub fn is_used(&self) -> bool {
        let state = self.lock();
        !state.rules.is_empty() || !state.book.changes.is_empty()
    }

    /// Sets the writer that publishes from now on. It first publishes all raised alerts.
    fn begin(&self, writer: Id128) {
        let mut state = self.lock();
        state.writer = Some(writer);
        let raised: Vec<Alert> = state.rules.iter().flat_map(Rule::raised).collect();
        state.book.changes.retain(|alert| !raised.contains(alert));
        state.book.changes.extend(raised);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn see(&mut self, entry: &Entry, now: Instant) {
        let State { rules, concerned, book, .. } = self;
        if rules.is_empty() {
            return;
        }
        let topic = entry.topic();
        if !concerned.contains_key(topic) {
            if concerned.len() >= MAX_TOPICS {
                concerned.clear();
            }
            let numbered = rules.iter().enumerate().filter(|(_, rule)| rule.plan.divide(topic).is_some());
            let numbers = numbered.map(|(at, _)| at).collect();
            concerned.insert(topic.to_owned(), numbers);
        }
        for at in concerned.get(topic).into_iter().flatten() {
            if let Some(rule) = rules.get_mut(*at) {
                rule.see(entry, now, book);
            }
        }
    }

    /// Evaluates the conditions that may have changed because time has passed.
    fn tick(&mut self, now: Instant) {
        if self.book.due.is_none_or(|due| now < due) {
            return;
        }
        self.book.due = None;
        for Rule { plan, subjects, .. } in &mut self.rules {
            for (key, subject) in subjects.iter_mut().filter(|(_, subject)| subject.due.is_some()) {
                self.book.evaluate(plan, key, subject, now);
            }
        }
    }
}

impl Rule {
    fn new(plan: &AlertPlan, now: Instant, book: &mut Book) -> Rule {
        let mut rule = Rule { plan: plan.clone(), subjects: BTreeMap::new(), has_warned: false };
        // A topic on which no message has ever arrived can be missing, too.
        if plan.prefix.as_ref().is_none_or(Pattern::is_name) {
            let key = (plan.prefix.as_ref().map_or(String::new(), ToString::to_string), String::new());
            let mut subject = Subject::new(&plan.condition, now);
            subject.is_expected = true;
            book.evaluate(plan, &key, &mut subject, now);
            book.subjects += 1;
            rule.subjects.insert(key, subject);
        }
        rule
    }

    fn see(&mut self, entry: &Entry, now: Instant, book: &mut Book) {
        let Some((prefix, rest)) = self.plan.divide(entry.topic()) else { return };
        let key = (prefix.to_owned(), entry.instance());
        match entry.kind {
            Kind::Data => self.update(key, rest, entry, now, book),
            Kind::Dispose | Kind::Unregister => self.forget(&key, book),
            _ => {}
        }
    }

    fn update(&mut self, key: (String, String), rest: &str, entry: &Entry, now: Instant, book: &mut Book) {
        self.forget_expected(&key, book);
        if !self.subjects.contains_key(&key) {
            if book.subjects >= MAX_SUBJECTS {
                return self.warn(&format!("there are {MAX_SUBJECTS} subjects of alerts; others are ignored"));
            }
            book.subjects += 1;
            self.subjects.insert(key.clone(), Subject::new(&self.plan.condition, now));
        }
        let Some(subject) = self.subjects.get_mut(&key) else { return };
        subject.is_expected = false;
        let updated = subject.update(&self.plan.condition, rest, entry.value.view(), now);
        book.evaluate(&self.plan, &key, subject, now);
        if let Err(reason) = updated {
            self.warn(&format!("type {}: {reason}", entry.type_name()));
        }
    }

    /// Removes the expected subject, which has no instance, as soon as messages have a key.
    fn forget_expected(&mut self, (prefix, instance): &(String, String), book: &mut Book) {
        let bare = (prefix.clone(), String::new());
        if !instance.is_empty() && self.subjects.get(&bare).is_some_and(|subject| subject.is_expected) {
            self.forget(&bare, book);
        }
    }

    fn forget(&mut self, key: &(String, String), book: &mut Book) {
        if let Some(subject) = self.subjects.remove(key) {
            book.end(&self.plan, key, subject);
        }
    }

    fn end(self, book: &mut Book) {
        let Rule { plan, subjects, .. } = self;
        subjects.into_iter().for_each(|(key, subject)| book.end(&plan, &key, subject));
    }

    fn raised(&self) -> impl Iterator<Item = Alert> {
        let raised = self.subjects.iter().filter(|(_, subject)| subject.is_raised);
        raised.map(|(key, subject)| self.plan.alert(key, subject))
    }

    fn warn(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.has_warned, true) {
            log::warn!("alert '{}': {reason}", self.plan.name);
        }
    }
}

impl Book {
    fn evaluate(&mut self, plan: &AlertPlan, key: &(String, String), subject: &mut Subject, now: Instant) {
        let is_true = subject.evaluate(&plan.condition, now);
        self.due = self.due.into_iter().chain(subject.due).min();
        if subject.is_raised != is_true {
            subject.is_raised = is_true;
            self.tell(plan.alert(key, subject));
        }
    }

    /// Removes a subject, and clears its alert if it is raised.
    fn end(&mut self, plan: &AlertPlan, key: &(String, String), mut subject: Subject) {
        self.subjects -= 1;
        if std::mem::take(&mut subject.is_raised) {
            self.tell(plan.alert(key, &subject));
        }
    }

    fn tell(&mut self, alert: Alert) {
        for queue in [&mut self.untold, &mut self.changes] {
            if queue.len() >= MAX_CHANGES {
                queue.pop_front();
            }
            queue.push_back(alert.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polywire::{Record, Shape};

    use super::*;
    use crate::Origin;

    #[derive(Default, Message)]
    struct Pump {
        #[polywire(key)]
        id: u32,
        pressure: f64,
    }

    #[derive(Default, Message)]
    struct Load {
        busy: f64,
    }

    fn entry<T: Message>(topic: &str, set: impl FnOnce(&mut Record)) -> Entry {
        let mut record = Record::new(&Shape::of(T::shape().schema()).expect("a shape"));
        set(&mut record);
        Entry::new(Arc::new(Origin { topic: topic.to_owned(), ..Origin::default() }), 1, 0, record)
    }

    fn pump(topic: &str, id: u32, pressure: f64) -> Entry {
        entry::<Pump>(topic, |record| {
            record.set("id", id).expect("set");
            record.set("pressure", pressure).expect("set");
        })
    }

    fn load(node: &str, busy: f64) -> Entry {
        entry::<Load>(&format!("probes/{node}/load"), |record| record.set("busy", busy).expect("set"))
    }

    fn plan(name: &str, prefix: Option<&str>, condition: &str) -> AlertPlan {
        AlertPlan {
            name: name.to_owned(),
            prefix: prefix.map(|prefix| prefix.parse().expect("a pattern")),
            condition: condition.parse().expect("a condition"),
            severity: Severity::Critical,
            summary: String::new(),
            line: 1,
        }
    }

    fn alerts(plans: &[AlertPlan]) -> (Alerts, Instant) {
        let (alerts, now) = (Alerts::default(), Instant::now());
        alerts.set_plans(plans, now);
        (alerts, now)
    }

    /// Returns the changes, each with name, prefix and instance.
    fn told(alerts: &Alerts) -> Vec<(AlertState, String)> {
        let tell = |alert: Alert| (alert.state, format!("{} {} {}", alert.name, alert.prefix, alert.instance));
        alerts.take_untold().into_iter().map(tell).collect()
    }

    use AlertState::{Cleared, Raised};

    #[test]
    fn each_prefix_and_instance_has_a_state() {
        let (alerts, now) =
            alerts(&[plan("busy", Some("probes/*"), "load/busy > 90"), plan("high", None, "plant/pump/pressure > 3")]);
        for entry in [load("a", 95.0), load("b", 5.0), load("a", 96.0), pump("plant/pump", 7, 4.0)] {
            assert!(alerts.see(&entry, now));
        }
        assert_eq!(told(&alerts), [(Raised, "busy probes/a ".to_owned()), (Raised, "high  id=7".to_owned())]);
        alerts.see(&pump("plant/pump", 8, 4.0), now);
        alerts.see(&Entry { kind: Kind::Dispose, ..pump("plant/pump", 7, 0.0) }, now);
        alerts.see(&pump("plant/other", 9, 4.0), now);
        alerts.see(&load("a", 0.0), now);
        let expected = [(Raised, "high  id=8"), (Cleared, "high  id=7"), (Cleared, "busy probes/a ")];
        assert_eq!(told(&alerts), expected.map(|(state, text)| (state, text.to_owned())));
        let first = alerts.next(Duration::ZERO).expect("it is to be published");
        assert_eq!((first.severity, first.condition.as_str()), (Severity::Critical, "load/busy > 90"));
        assert_eq!((first.values[0].field.as_str(), first.values[0].value.as_str()), ("load/busy", "95.0"));
    }

    #[test]
    fn topics_of_a_prefix_are_seen_together() {
        let (alerts, now) = alerts(&[plan("both", Some("probes/*"), "load/busy > 90 and pump/pressure > 3")]);
        let pump =
            |node: &str| entry::<Load>(&format!("probes/{node}/pump"), |record| record.set("busy", 1.0).expect("set"));
        alerts.see(&load("a", 95.0), now);
        alerts.see(&pump("b"), now);
        // The type does not have the field: that is reported, and the comparison is not true.
        alerts.see(&pump("a"), now);
        assert_eq!(told(&alerts), []);
    }

    #[test]
    fn what_never_came_is_missing() {
        let second = Duration::from_secs(1);
        let (alerts, now) = alerts(&[
            plan("gone", Some("probes/a"), "load/ missing for 1s"),
            plan("any", Some("probes/*"), "load/ missing for 2s"),
        ]);
        alerts.lock().tick(now + second);
        assert_eq!(told(&alerts), [(Raised, "gone probes/a ".to_owned())]);
        alerts.see(&load("a", 0.0), now + second);
        alerts.see(&load("b", 0.0), now + second);
        assert_eq!(told(&alerts), [(Cleared, "gone probes/a ".to_owned())]);
        alerts.lock().tick(now + 3 * second);
        let expected = ["gone probes/a ", "any probes/a ", "any probes/b "].map(|text| (Raised, text.to_owned()));
        assert_eq!(told(&alerts), expected);
        assert_eq!(alerts.lock().book.due, None);
    }

    #[test]
    fn a_key_takes_the_place_of_what_was_expected() {
        let (alerts, now) = alerts(&[plan("gone", None, "pumps/ missing for 1s")]);
        alerts.see(&pump("pumps", 7, 0.0), now);
        alerts.lock().tick(now + Duration::from_secs(1));
        assert_eq!(told(&alerts), [(Raised, "gone  id=7".to_owned())]);
        assert_eq!(alerts.lock().book.subjects, 1);
    }

    #[test]
    fn new_plans_keep_the_state_of_those_that_are_the_same() {
        let (same, other) =
            (plan("same", Some("probes/*"), "load/busy > 1"), plan("b", Some("probes/*"), "load/busy > 2"));
        let (alerts, now) = alerts(&[same.clone(), other]);
        alerts.see(&load("a", 9.0), now);
        assert_eq!(told(&alerts).len(), 2);
        let changed = plan("b", Some("probes/*"), "load/busy > 3");
        alerts.set_plans(&[AlertPlan { line: 7, ..same }, changed], now);
        assert_eq!(told(&alerts), [(Cleared, "b probes/a ".to_owned())]);
        alerts.see(&load("a", 9.5), now);
        assert_eq!(told(&alerts), [(Raised, "b probes/a ".to_owned())], "the other one is still raised");
        while alerts.next(Duration::ZERO).is_some() {}
        alerts.begin(Id128([1; 16]));
        let again: Vec<String> = std::iter::from_fn(|| alerts.next(Duration::ZERO)).map(|alert| alert.name).collect();
        assert_eq!(again, ["same", "b"], "a new writer begins with what is raised");
        let own = Entry { origin: Arc::new(Origin { writer: Id128([1; 16]), ..Origin::default() }), ..load("a", 0.0) };
        assert!(!alerts.see(&own, now));
        alerts.set_plans(&[], now);
        assert_eq!(told(&alerts).len(), 2);
        assert!(alerts.is_used(), "what was cleared is to be published");
    }
}
