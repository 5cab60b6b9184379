//! Declared commands: each has a service of its own. Commands of an application have Rust types.

use std::{
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use polywire::{
    Message, Node, NodeError, Wire,
    codec::{Encoder, Options, json::JSON},
    coding::Coding,
    service::{Request, RequestOf, Service},
};

use super::{Audit, service_of};
use crate::{CommandDescription, Moment, json::json};

/// A declared command.
pub(crate) trait Declared: Send {
    /// Returns the command's entry in the description of the node.
    fn description(&self) -> &CommandDescription;

    /// Returns the instance of the probe that the command belongs to, if it is an operation of a
    /// probe.
    fn instance(&self) -> Option<&str> {
        None
    }

    /// Ends the calls that are under way, before the command is dropped.
    fn retire(&mut self, _audit: &mut Audit, _now: Moment) {}

    /// Receives one request and handles it. Returns whether there was one.
    fn serve(&mut self, audit: &mut Audit, now: Moment) -> bool;
}

struct Declaration<Q: Message, R: Message, F> {
    description: CommandDescription,
    service: Service<Q, R>,
    text: Encoder<Q>,
    callback: F,
}

/// Opens the service of a command.
pub(crate) fn declare<Q: Message, R: Message, E: Display>(
    node: &Node,
    wire: &Wire,
    of: &str,
    name: &str,
    summary: &str,
    callback: impl FnMut(&Q) -> Result<R, E> + Send + 'static,
) -> Result<Box<dyn Declared>, NodeError> {
    let description = CommandDescription {
        name: name.to_owned(),
        summary: summary.to_owned(),
        service: format!("{}/{name}", service_of(of)),
        request: Q::shape().schema().to_bytes_with_docs(),
        reply: R::shape().schema().to_bytes_with_docs(),
    };
    let service = node.service::<Q, R>(&description.service, Some(&wire.to_string()))?.open()?;
    let text = encoder()?;
    Ok(Box::new(Declaration { description, service, text, callback }))
}

/// Makes the encoder that renders requests as JSON.
pub(crate) fn encoder<Q: Message>() -> Result<Encoder<Q>, NodeError> {
    let failed = |cause| NodeError::Codec { codec: "json".to_owned(), cause };
    Encoder::new(&JSON, &Options::default()).map_err(failed)
}

impl<Q, R, E, F> Declared for Declaration<Q, R, F>
where
    Q: Message,
    R: Message,
    E: Display,
    F: FnMut(&Q) -> Result<R, E> + Send + 'static,
{
    fn description(&self) -> &CommandDescription {
        &self.description
    }

    fn serve(&mut self, audit: &mut Audit, now: Moment) -> bool {
        let Some(request) = self.service.recv_timeout(Duration::ZERO) else { return false };
        let request: Request<Q, R> = request;
        let done =
            catch_unwind(AssertUnwindSafe(|| (self.callback)(request.value()).map_err(|error| error.to_string())));
        let done = done.unwrap_or_else(|_| Err("the command panicked".to_owned()));
        let text = json(&self.text, request.value());
        end(request, text, done, &self.description.service, audit, now);
        true
    }
}

/// Ends a request with a reply, or with the reason why there is none. `text` is the request as
/// JSON. Publishes the audit record first.
pub(super) fn end<Q: Coding, R: Coding>(
    request: RequestOf<Q, R>,
    text: String,
    done: Result<R::Value, String>,
    service: &str,
    audit: &mut Audit,
    now: Moment,
) {
    let problem = done.as_ref().err().map_or("", String::as_str);
    audit.record(request.info(), service, text, problem, now);
    match done {
        // If the reply cannot be encoded, `reply` reports that to the client.
        Ok(reply) => drop(request.reply(&reply)),
        Err(text) => request.fail(&text),
    }
}
