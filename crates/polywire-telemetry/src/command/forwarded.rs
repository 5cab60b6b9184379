//! Commands that a program declares as operations of a probe: the node passes requests to the
//! program, and passes its replies to the clients. The node never waits for the program.

use std::{
    mem,
    sync::{
        Arc, Weak,
        mpsc::{Receiver, TryRecvError},
    },
    time::Duration,
};

use polywire::{
    Node, NodeError, Wire,
    coding::Dynamic,
    service::{RequestOf, ServiceOf},
};

use super::{Audit, Declared, declared, service_of};
use crate::{
    CommandDescription, Moment,
    socket::{Answer, Calls, LONGEST_CALL, Operation, Programs},
};

/// The command of an operation.
struct Forwarded {
    description: CommandDescription,
    instance: String,
    operation: Arc<Operation>,
    programs: Arc<Programs>,
    service: ServiceOf<Dynamic, Dynamic>,
    under_way: Vec<UnderWay>,
}

/// A request that the node has passed to a program.
struct UnderWay {
    request: RequestOf<Dynamic, Dynamic>,
    /// The request as JSON.
    text: String,
    calls: Weak<Calls>,
    number: u64,
    answer: Receiver<Answer>,
    /// The deadline of the call, by the steady clock.
    until: Duration,
}

/// Returns the name of the command of an operation.
pub(crate) fn forwarded_name(instance: &str, operation: &Operation) -> String {
    format!("{instance}.{}", operation.name)
}

/// Opens the service of an operation.
pub(crate) fn forward(
    node: &Node,
    wire: &Wire,
    of: &str,
    instance: &str,
    operation: &Arc<Operation>,
    programs: &Arc<Programs>,
) -> Result<Box<dyn Declared>, NodeError> {
    let name = forwarded_name(instance, operation);
    let (request, reply) = (operation.request.clone(), operation.reply.clone());
    let description = CommandDescription {
        service: format!("{}/{name}", service_of(of)),
        name,
        summary: operation.summary.clone(),
        request: request.shape().schema().to_bytes_with_docs(),
        reply: reply.shape().schema().to_bytes_with_docs(),
    };
    let service = node.service_of(&description.service, Some(&wire.to_string()), request, reply)?.open()?;
    let (instance, operation, programs) = (instance.to_owned(), operation.clone(), programs.clone());
    Ok(Box::new(Forwarded { description, instance, operation, programs, service, under_way: Vec::new() }))
}

impl Declared for Forwarded {
    fn description(&self) -> &CommandDescription {
        &self.description
    }

    fn instance(&self) -> Option<&str> {
        Some(&self.instance)
    }

    fn retire(&mut self, audit: &mut Audit, now: Moment) {
        self.service.close();
        self.settle(audit, now);
        let under_way = mem::take(&mut self.under_way);
        let replaced = || Err(format!("another probe has taken the place of '{}'", self.instance));
        for UnderWay { request, text, calls, number, .. } in under_way {
            calls.upgrade().iter().for_each(|calls| calls.forget(number));
            self.end(request, text, replaced(), audit, now);
        }
        while let Some(request) = self.service.recv_timeout(Duration::ZERO) {
            let text = self.operation.text(request.value());
            self.end(request, text, replaced(), audit, now);
        }
    }

    fn serve(&mut self, audit: &mut Audit, now: Moment) -> bool {
        self.settle(audit, now);
        let Some(request) = self.service.recv_timeout(Duration::ZERO) else { return false };
        let text = self.operation.text(request.value());
        match self.begin(&text) {
            Ok((calls, number, answer)) => {
                let until = now.steady + LONGEST_CALL;
                self.under_way.push(UnderWay { request, text, calls, number, answer, until });
            }
            Err(problem) => self.end(request, text, Err(problem), audit, now),
        }
        true
    }
}

impl Forwarded {
    fn begin(&self, request: &str) -> Result<(Weak<Calls>, u64, Receiver<Answer>), String> {
        let gone = || format!("the program that declared the probe '{}' has gone", self.instance);
        let calls = self.programs.latest().ok_or_else(gone)?;
        let (number, answer) = calls.begin(&self.instance, &self.operation, request)?;
        Ok((Arc::downgrade(&calls), number, answer))
    }

    /// Ends the calls that have an answer, have lost their program, or have timed out.
    fn settle(&mut self, audit: &mut Audit, now: Moment) {
        let mut at = 0;
        while let Some(call) = self.under_way.get(at) {
            let answer = match call.answer.try_recv() {
                Ok(answer) => answer,
                Err(TryRecvError::Disconnected) => {
                    Err("the program has gone before it replied; it may have done it".to_owned())
                }
                Err(TryRecvError::Empty) if now.steady >= call.until => {
                    call.calls.upgrade().iter().for_each(|calls| calls.forget(call.number));
                    let seconds = LONGEST_CALL.as_secs();
                    Err(format!("the program has not replied within {seconds} s; it may have done it, or do it yet"))
                }
                Err(TryRecvError::Empty) => {
                    at += 1;
                    continue;
                }
            };
            let UnderWay { request, text, .. } = self.under_way.remove(at);
            self.end(request, text, answer, audit, now);
        }
    }

    fn end(&self, request: RequestOf<Dynamic, Dynamic>, text: String, answer: Answer, audit: &mut Audit, now: Moment) {
        declared::end(request, text, answer, &self.description.service, audit, now);
    }
}
