//! Operations that a program declares with a probe in PDL: the types of their requests and replies.

use std::fmt::Display;

use polywire::{
    Record,
    codec::{Decoder, Encoder, Options, json::JSON},
    coding::Dynamic,
    extend::program::Payload,
};
use polywire_idl::Document;

use super::line::{LineError, Mistake, check_members};
use crate::json::json;

/// The maximum number of operations of a probe.
const MAX_OPERATIONS: usize = 64;

/// The maximum size of the types of a probe's operations in bytes.
const MAX_TYPE_BYTES: usize = 256 << 10;

/// The maximum number of characters of an operation's summary.
const MAX_SUMMARY: usize = 200;

/// An operation of a probe. The node serves it as a command.
pub(crate) struct Operation {
    pub name: String,
    /// What the operation does, in one line.
    pub summary: String,
    pub request: Dynamic,
    pub reply: Dynamic,
    requests: Encoder<Record>,
    replies: Decoder<Record>,
}

impl Operation {
    /// Returns the operations of a probe that a PDL document defines.
    pub(super) fn all(document: &Document, probe: &str) -> Result<Vec<Operation>, LineError> {
        let wrong = |error: &dyn Display| Mistake::Type.because(error);
        let (mut all, mut bytes) = (Vec::new(), 0);
        for operation in document.operations(probe).map_err(|error| wrong(&error))? {
            bytes += operation.request.to_bytes_with_docs().len() + operation.reply.to_bytes_with_docs().len();
            if all.len() >= MAX_OPERATIONS || bytes > MAX_TYPE_BYTES {
                let limit = format!("{MAX_OPERATIONS} operations, whose types have {MAX_TYPE_BYTES} bytes");
                return Err(Mistake::TooLong.because(format!("a probe has at most {limit}")));
            }
            all.push(Operation::new(operation).map_err(|error| wrong(&error))?);
        }
        Ok(all)
    }

    fn new(operation: polywire_idl::Operation) -> Result<Operation, Box<dyn std::error::Error>> {
        let (request, reply) = (Dynamic::of(&operation.request)?, Dynamic::of(&operation.reply)?);
        let options = Options::default();
        let requests = Encoder::for_shape(&JSON, &options, request.shape())?;
        let replies = Decoder::for_shape(&JSON, &options, reply.shape().schema(), reply.shape())?;
        let line = operation.doc.lines().next().unwrap_or_default().trim_end_matches('.');
        let summary: String = line.chars().take(MAX_SUMMARY).collect();
        let summary = if summary.is_empty() { format!("The operation {}", operation.name) } else { summary };
        Ok(Operation { name: operation.name, summary, request, reply, requests, replies })
    }

    /// Returns a request as JSON.
    pub fn text(&self, request: &Record) -> String {
        json(&self.requests, request)
    }

    /// Parses the reply that a program has written as JSON.
    pub(super) fn read_reply(&self, value: &[u8]) -> Result<Record, LineError> {
        check_members(value, self.reply.shape().schema())?;
        let mut reply = Record::new(self.reply.shape());
        let read = self.replies.decode_measured(Payload::Bytes(value), &mut reply);
        read.map(|_| reply).map_err(|error| Mistake::Value.because(error))
    }
}
