//! The command `polywire call`: sends a request to a service and prints the reply.

use anyhow::anyhow;
use clap::Args;
use polywire::{
    Record, Sample,
    codec::{Decoder, Options, json::JSON},
    coding::{Coding, Discovered, Dynamic},
    extend::envelope::Id128,
    schema::Schema,
    service::{CallError, ClientOf},
};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    outcome::{self, Missed, Misuse, Outcome},
    seconds::Seconds,
    terminal::Terminal,
    text::JsonText,
    topic::{WireArgs, place},
    types::TypeArgs,
    unknown::unknown_member,
    verb::{Action, Verb},
    watch::Watch,
};

pub const VERB: Verb = Verb::new::<Call>("call", "Sends a request to a service, and prints the reply")
    .details(
        "The request is VALUE, of the type that --idl and --type name; a member that it does not have takes its \
         default value. The reply has whatever type the server has. Exit code 1 means that nobody serves it, or no \
         reply came in time; 2, that the call failed.",
    )
    .example(r#"polywire call add '{"a":2,"b":3}' --idl add.idl --type Add_Request"#);

#[derive(Args)]
pub struct Call {
    /// Service to call
    service: String,
    /// The request as JSON
    #[arg(default_value = "{}")]
    value: String,
    #[command(flatten)]
    ty: TypeArgs,
    /// Type of the reply, in the file of --idl, for servers that do not tell it: those that are not
    /// Polywire's
    #[arg(long, value_name = "NAME", requires = "idl")]
    reply_type: Option<String>,
    #[command(flatten)]
    wire: WireArgs,
    /// How long to wait for a server and its reply
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    timeout: Seconds,
    /// Calls all servers, and prints the reply of each. The first one is waited for
    #[arg(long)]
    all: bool,
}

/// The reply of one of several servers.
#[derive(Serialize)]
struct OfServer<'a> {
    server: String,
    reply: &'a RawValue,
}

impl Action for Call {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        match &self.reply_type {
            Some(name) => self.call(Dynamic::of(&self.ty.other(name, terminal)?)?, terminal),
            None => self.call(Discovered::new()?, terminal),
        }
    }
}

impl Call {
    fn call(&self, replies: impl Coding<Value = Record>, terminal: &Terminal) -> outcome::Result {
        let schema = self.ty.needed(terminal)?;
        let requests = Dynamic::of(&schema)?;
        let request = read(&schema, &requests, &self.value).map_err(|e| Misuse(format!("the request: {e}")))?;
        let (node, wires) = self.wire.open(&self.service)?;
        let mut watch = Watch::new(&node);
        let wire = wires.only()?;
        let client = node.client_of(&self.service, Some(&wire.to_string()), requests, replies)?.open()?;
        let mut failed = |error| failed(error, &self.service, &place(&wires), self.timeout, &watch.trouble());
        client.wait_for_server(self.timeout.0).map_err(&mut failed)?;
        let outcome = match self.all {
            true => self.call_all(&client, &request, terminal)?,
            false => {
                let reply = client.request(&request, self.timeout.0).and_then(|reply| reply.wait());
                terminal.line(&JsonText::default().of(&reply.map_err(failed)?.value, None)?)?;
                Outcome::Fine
            }
        };
        drop(client);
        node.close();
        Ok(outcome)
    }

    fn call_all(
        &self,
        client: &ClientOf<Dynamic, impl Coding<Value = Record>>,
        request: &Record,
        terminal: &Terminal,
    ) -> outcome::Result {
        let (mut json, mut failures) = (JsonText::default(), 0);
        for reply in client.request_all(request, self.timeout.0)? {
            match reply {
                Ok(Sample { value, info }) => {
                    let value = json.of(&value, None)?;
                    let server: Id128 = info.source.announcement.writer;
                    terminal.value(&OfServer { server: server.to_string(), reply: serde_json::from_str(&value)? })?;
                }
                Err(error) => {
                    failures += 1;
                    terminal.error(&error.to_string());
                }
            }
        }
        Ok(if failures > 0 { Outcome::Missed } else { Outcome::Fine })
    }
}

/// Reads a value of a type from JSON. Fails if it has members that the type does not have.
pub fn read(schema: &Schema, coding: &Dynamic, text: &str) -> Result<Record, String> {
    unknown_member(schema, text).map_or(Ok(()), Err)?;
    let reader = Decoder::for_shape(&JSON, &Options::default(), schema, coding.shape()).map_err(|e| e.to_string())?;
    let mut record = coding.default_value();
    reader.decode(text.as_bytes(), &mut record).map_err(|e| e.to_string())?;
    Ok(record)
}

fn failed(error: CallError, service: &str, place: &str, timeout: Seconds, trouble: &str) -> anyhow::Error {
    match error {
        CallError::NoServer => {
            let start = format!("start `polywire serve {service}`, or wait longer with --timeout");
            Missed(format!("nobody serves '{service}' at {place} after {timeout} s{trouble}; {start}")).into()
        }
        CallError::TimedOut => Missed(format!("no reply of '{service}' at {place} after {timeout} s")).into(),
        error => anyhow!("service '{service}': {error}"),
    }
}
