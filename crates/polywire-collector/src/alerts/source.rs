//! Publishes the changes of alerts, and passes them to the handlers.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use polywire::{DynPublisher, Message as _, Node, Record, Shape, Wire, coding::Dynamic, extend::layout::PathError};

use super::{ALERTS, Alert, Alerts, alerts_qos};
use crate::{CollectorError, Entry, Numbered, Origin, Source};

/// The source of the entries of [`ALERTS`].
pub(crate) struct AlertSource {
    alerts: Arc<Alerts>,
    shape: Arc<Shape>,
    publisher: DynPublisher,
    origin: Arc<Origin>,
    published: u64,
}

impl AlertSource {
    /// Starts to publish at these endpoints, beginning with all raised alerts.
    pub fn open(node: &Node, endpoints: &[Wire], alerts: Arc<Alerts>) -> Result<AlertSource, CollectorError> {
        let shape = Shape::of(Alert::shape().schema()).map_err(|error| CollectorError::Coding(error.to_string()))?;
        let mut wires = endpoints.iter().map(ToString::to_string);
        let publish = node.publish_of(ALERTS, wires.next().as_deref(), Dynamic::from(shape.clone()))?;
        let publish = wires.try_fold(publish, |publish, wire| publish.also(&wire))?;
        let publisher = publish.qos(alerts_qos())?.open()?;
        let (writer, incarnation) = (publisher.writer(), node.hello().incarnation);
        alerts.begin(writer);
        let origin = Arc::new(Origin { topic: ALERTS.to_owned(), writer, incarnation });
        Ok(AlertSource { alerts, shape, publisher, origin, published: 0 })
    }
}

impl Source for AlertSource {
    fn next(&mut self, patience: Duration) -> Option<Numbered> {
        let alert = self.alerts.next(patience)?;
        let record = record_of(&alert, &self.shape)
            .inspect_err(|error| log::error!("alert '{}' cannot be told: {error}", alert.name))
            .ok()?;
        if let Err(error) = self.publisher.publish(&record) {
            log::warn!("alert '{}' cannot be published: {error}", alert.name);
        }
        self.published += 1;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let timestamp_ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
        let entry = Entry::new(self.origin.clone(), self.published, timestamp_ns, record);
        Some(Numbered { position: self.published, entry })
    }

    /// Alerts are not kept until they are stored.
    fn acknowledge(&mut self, _: u64) {}
}

fn record_of(alert: &Alert, shape: &Arc<Shape>) -> Result<Record, PathError> {
    let Alert { name, prefix, instance, state, severity, condition, values, summary } = alert;
    let mut record = Record::new(shape);
    for (member, text) in
        [("name", name), ("prefix", prefix), ("instance", instance), ("condition", condition), ("summary", summary)]
    {
        record.set(member, text.as_str())?;
    }
    record.set("state", format!("{state:?}"))?;
    record.set("severity", format!("{severity:?}"))?;
    record.resize("values", values.len())?;
    for (at, value) in values.iter().enumerate() {
        record.set(&format!("values[{at}].field"), value.field.as_str())?;
        record.set(&format!("values[{at}].value"), value.value.as_str())?;
    }
    Ok(record)
}
