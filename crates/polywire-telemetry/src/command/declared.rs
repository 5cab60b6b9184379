//! Commands that are declared: a service each. Those of an application have Rust types.

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

/// A command that is declared.
pub(crate) trait Declared: Send {
    /// What the node says about it.
    fn description(&self) -> &CommandDescription;

    /// The probe that it is an operation of, if it is one.
    fn instance(&self) -> Option<&str> {
        None
    }

    /// Ends what is under way, before this is dropped.
    fn retire(&mut self, _audit: &mut Audit, _now: Moment) {}

    /// Answers a request, if one waits. Returns whether one did.
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

/// The encoder for the text of requests.
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

/// Ends a request, whose text is JSON, with a reply or the reason why there is none. The record of
/// it leaves first.
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
        // The client learns of a reply that cannot be encoded.
        Ok(reply) => drop(request.reply(&reply)),
        Err(text) => request.fail(&text),
    }
}
