//! The command `polywire serve`: replies to the requests to a service with a fixed value, or with
//! the output of a command.

use std::{
    io::Write as _,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;
use polywire::{
    Record,
    coding::{Coding, Discovered, Dynamic},
    schema::Schema,
    service::RequestOf,
};
use sd_notify::NotifyState;

use crate::{
    call::read,
    outcome::{self, Missed, Misuse, Outcome},
    seconds::Seconds,
    stop::{self, Stop},
    terminal::Terminal,
    text::JsonText,
    topic::{WireArgs, place},
    types::TypeArgs,
    verb::{Action, Verb},
    watch::Watch,
};

/// How often the command checks whether its time is over.
const TICK: Duration = Duration::from_millis(100);

pub const VERB: Verb = Verb::new::<Serve>("serve", "Answers the requests to a service, and prints them")
    .details(
        "The reply has the type that --idl and --type name: VALUE, or what the command of --exec prints. It gets the \
         request as JSON on its standard input. If the command fails, the client gets what it printed on standard \
         error as an error. Requests are answered one after the other, whatever their type. On SIGTERM or SIGINT, the \
         request at hand is answered first, and the exit code is 0. Under systemd it reports readiness (Type=notify).",
    )
    .example("polywire serve add --exec 'sh sum.sh' --idl add.idl --type Add_Response");

#[derive(Args)]
pub struct Serve {
    /// Service to offer
    service: String,
    /// The reply to every request, as JSON
    #[arg(conflicts_with = "exec")]
    value: Option<String>,
    /// Shell command that prints the reply to a request, as JSON
    #[arg(short = 'x', long, value_name = "COMMAND")]
    exec: Option<String>,
    #[command(flatten)]
    ty: TypeArgs,
    /// Type of the requests, in the file of --idl, for clients that do not tell it: those that are
    /// not Polywire's
    #[arg(long, value_name = "NAME", requires = "idl")]
    request_type: Option<String>,
    #[command(flatten)]
    wire: WireArgs,
    /// Ends after this many requests
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Ends when no request has come for this long
    #[arg(short, long, value_name = "SECONDS")]
    timeout: Option<Seconds>,
}

/// Makes the replies.
struct Replies<'a> {
    schema: Schema,
    coding: Dynamic,
    fixed: Option<Record>,
    command: &'a str,
}

impl Action for Serve {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        if self.value.is_none() && self.exec.is_none() {
            return Err(Misuse("what to reply? give the reply as VALUE, or a command by --exec".into()).into());
        }
        match &self.request_type {
            Some(name) => self.serve(Dynamic::of(&self.ty.other(name, terminal)?)?, terminal),
            None => self.serve(Discovered::new()?, terminal),
        }
    }
}

impl Serve {
    fn serve(&self, requests: impl Coding<Value = Record>, terminal: &Terminal) -> outcome::Result {
        let schema = self.ty.needed(terminal)?;
        let coding = Dynamic::of(&schema)?;
        let fixed = self.value.as_ref().map(|text| read(&schema, &coding, text)).transpose();
        let fixed = fixed.map_err(|error| Misuse(format!("the reply: {error}")))?;
        stop::hold()?;
        let stop = Stop::new()?;
        let (node, wires) = self.wire.node_for(&self.service)?;
        let mut watch = Watch::new(&node);
        let wire = wires.only()?;
        let service = node.service_of(&self.service, Some(&wire.to_string()), requests, coding.clone())?;
        let service = service.open()?;
        let replies = Replies { schema, coding, fixed, command: self.exec.as_deref().unwrap_or_default() };
        // Without systemd this has no effect.
        sd_notify::notify(&[NotifyState::Ready]).context("cannot tell systemd that the service is ready")?;
        let (mut served, mut last, mut json) = (0, Instant::now(), JsonText::default());
        while stop.outcome().is_none() && self.count.is_none_or(|count| served < count) {
            if let Some(request) = service.recv_timeout(TICK) {
                let text = json.of(request.value(), None)?;
                terminal.line(&text)?;
                replies.answer(request, &text, terminal)?;
                (served, last) = (served + 1, Instant::now());
            } else if self.timeout.is_some_and(|timeout| last.elapsed() >= timeout.0) {
                break;
            }
            watch.poll(terminal);
        }
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        // The last reply is sent before the node closes.
        node.flush(Duration::from_secs(10));
        drop(service);
        node.close();
        match served {
            _ if stop.outcome().is_some() => Ok(Outcome::Fine),
            0 if self.count != Some(0) => {
                let (timeout, place) = (self.timeout.map(|t| t.to_string()).unwrap_or_default(), place(&wires));
                Err(Missed(format!("no request to '{}' at {place} for {timeout} s", self.service)).into())
            }
            some if self.count.is_some_and(|count| some < count) => Ok(Outcome::Missed),
            _ => Ok(Outcome::Fine),
        }
    }
}

impl Replies<'_> {
    fn answer(
        &self,
        request: RequestOf<impl Coding<Value = Record>, Dynamic>,
        text: &str,
        terminal: &Terminal,
    ) -> anyhow::Result<()> {
        let made = match &self.fixed {
            Some(value) => Ok(value.clone()),
            None => self.run(text)?.and_then(|text| read(&self.schema, &self.coding, &text)),
        };
        match made {
            Ok(value) => drop(request.reply(&value)?),
            Err(error) => {
                terminal.error(&error);
                request.fail(&error);
            }
        }
        Ok(())
    }

    /// Runs the command for a request. Returns its output, or why it failed.
    fn run(&self, request: &str) -> anyhow::Result<Result<String, String>> {
        let mut command = Command::new("sh");
        command.args(["-c", self.command]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().context("cannot run sh")?;
        let input = running.stdin.take();
        // A command may fill the pipes of its output before it has read the whole request.
        let ended = thread::scope(|scope| {
            scope.spawn(move || {
                if let Some(mut input) = input {
                    // A command need not read the request.
                    let _ = writeln!(input, "{request}");
                }
            });
            running.wait_with_output()
        });
        let ended = ended.context("cannot read what the command prints")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Ok(match (ended.status.success(), text(&ended.stderr)) {
            (true, _) => Ok(text(&ended.stdout)),
            (false, said) if said.is_empty() => Err(format!("the command failed: {}", ended.status)),
            (false, said) => Err(said),
        })
    }
}

#[cfg(test)]
mod tests {
    use polywire_idl::Compiler;

    use super::*;

    #[test]
    fn a_command_may_print_while_it_reads_a_large_request_or_not_read_it() {
        let document = Compiler::new().parse_str("a.idl", "struct A { long x; };").expect("valid");
        let schema = document.schema("A").expect("there");
        let coding = Dynamic::of(&schema).expect("a coding");
        let request = "x".repeat(1 << 20);
        for (command, printed) in [("cat", request.as_str()), ("echo done", "done")] {
            let replies = Replies { schema: schema.clone(), coding: coding.clone(), fixed: None, command };
            assert_eq!(replies.run(&request).expect("it runs"), Ok(printed.to_owned()));
        }
    }
}
