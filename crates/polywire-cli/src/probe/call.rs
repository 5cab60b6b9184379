//! `polywire probe call`: calls a command that an application or a probe declares.

use anyhow::anyhow;
use clap::Args;
use polywire::coding::{Discovered, Dynamic};

use super::{Asking, is_missed, schema_of};
use crate::{
    call::read,
    outcome::{self, Missed, Misuse, Outcome},
    terminal::Terminal,
    text::JsonText,
    verb::{Action, Verb},
};

pub const VERB: Verb = Verb::new::<Call>("call", "Calls a command that an application or a probe declares")
    .details(
        "REQUEST is JSON of the type that `probe describe NODE/COMMAND` prints; a member that it does not have takes \
         its default value. The reply is printed as JSON. Exit code 1 means that there is no such node or command, or \
         that it did not answer in time; 2, that the command failed.",
    )
    .example("polywire probe call press-hall eject '{\"parts\":2}'");

#[derive(Args)]
pub struct Call {
    /// Name of the node
    node: String,
    /// Name of the command
    command: String,
    /// The request as JSON
    #[arg(default_value = "{}")]
    request: String,
    #[command(flatten)]
    asking: Asking,
}

impl Action for Call {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let (asked, nodes) = self.asking.like(&self.node)?;
        let commands = || nodes.iter().flat_map(|node| &node.commands);
        let Some(command) = commands().find(|command| command.name == self.command) else {
            let hint = polywire::suggest::hint(&self.command, commands().map(|command| command.name.as_str()));
            return Err(Missed(format!("node '{}' has no command '{}'{hint}", self.node, self.command)).into());
        };
        let schema = schema_of(&command.request)?;
        let requests = Dynamic::of(&schema)?;
        let request = read(&schema, &requests, &self.request).map_err(|e| Misuse(format!("the request: {e}")))?;
        let replies = Discovered::new()?;
        let client = asked.node.client_of(&command.service, Some(&asked.wire), requests, replies)?.open()?;
        let reply = client.wait_for_server(self.asking.timeout.0);
        let reply = reply.and_then(|()| client.request(&request, self.asking.timeout.0)?.wait());
        match reply {
            Ok(reply) => terminal.line(&JsonText::default().of(&reply.value, None)?)?,
            Err(error) if is_missed(&error) => return Err(Missed(format!("'{}': {error}", command.service)).into()),
            Err(error) => return Err(anyhow!("{}: {error}", self.command)),
        }
        Ok(Outcome::Fine)
    }
}
