//! Commands that an application declares: a typed service each.

use std::{
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use polywire::{
    Message, Node, NodeError, Wire,
    codec::{Encoder, Options, json::JSON},
    service::{Request, Service},
};

use super::{Audit, service_of};
use crate::{CommandDescription, Moment};

/// A command of an application.
pub(crate) trait Declared: Send {
    /// What the node says about it.
    fn description(&self) -> &CommandDescription;

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

/// A request as JSON.
pub(super) fn json<Q: Message>(encoder: &Encoder<Q>, request: &Q) -> String {
    let mut text = Vec::new();
    // JSON has a text for every value; a request that is too long for one is empty.
    let _ = encoder.encode(request, &mut text);
    String::from_utf8_lossy(&text).into_owned()
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
        let problem = done.as_ref().err().map_or("", String::as_str);
        audit.record(request.info(), &self.description.service, &self.text, request.value(), problem, now);
        match done {
            // The client learns of a reply that cannot be encoded.
            Ok(reply) => drop(request.reply(&reply)),
            Err(text) => request.fail(&text),
        }
        true
    }
}
