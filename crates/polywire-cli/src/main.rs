//! The command-line program `polywire`. Each verb has a file or a folder of its own; [`VERBS`]
//! lists them.

mod agent;
mod bench;
mod bridge;
mod bw;
mod call;
mod codecs;
mod collect;
mod collecting;
mod compat;
mod completions;
mod cut;
mod demo;
#[cfg(feature = "zstd")]
mod dict;
mod directory;
mod doctor;
mod echo;
mod fast;
#[cfg(all(feature = "hosts", target_os = "linux"))]
mod hosts;
mod hz;
#[cfg(feature = "tls")]
mod identity;
mod idl;
mod link;
mod list;
mod man;
mod network;
mod node;
mod outcome;
mod probe;
mod publish;
mod query;
mod rate;
mod reach;
mod relay;
mod reload;
mod seconds;
mod serve;
mod stop;
mod terminal;
mod text;
mod top;
mod topic;
#[cfg(feature = "tracing")]
mod trace;
mod transcode;
mod type_of;
mod types;
mod unknown;
mod verb;
mod view;
mod watch;

use std::process::ExitCode;

use clap::{ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _, Parser};

use outcome::{Misuse, Outcome};
use terminal::Terminal;
use verb::Verb;

/// The verbs, in the order of `--help`.
static VERBS: &[Verb] = &[
    demo::VERB,
    publish::VERB,
    echo::VERB,
    hz::VERB,
    bw::VERB,
    call::VERB,
    serve::VERB,
    list::VERB,
    node::VERB,
    top::VERB,
    type_of::VERB,
    idl::VERB,
    compat::VERB,
    codecs::VERB,
    transcode::VERB,
    fast::VERB,
    #[cfg(feature = "zstd")]
    dict::VERB,
    #[cfg(feature = "tls")]
    identity::VERB,
    doctor::VERB,
    bench::VERB,
    agent::VERB,
    probe::VERB,
    directory::VERB,
    collect::VERB,
    query::VERB,
    relay::VERB,
    bridge::VERB,
    link::VERB,
    completions::VERB,
    man::VERB,
    bench::PEER_VERB,
    #[cfg(all(feature = "hosts", target_os = "linux"))]
    hosts::HOST_VERB,
    demo::probes::VERB,
    demo::publisher::VERB,
    demo::subscriber::VERB,
];

const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    nothing arrived in time, messages were lost, or a check was not met
  2    failure: incompatible types, wrong files, an address that cannot be opened
  3    bad arguments
  129  ended by SIGHUP, which otherwise reads the file of --config again
  130  ended by SIGINT (Ctrl-C)
  143  ended by SIGTERM

After a signal, published messages have up to a second to leave.
Topics without a wire are at the endpoint 'local': all processes of the user on this machine find each other,
in the domain that POLYWIRE_DOMAIN names, or 0.";

/// Typed publish/subscribe in which the wire is a run-time choice
#[derive(Parser)]
#[command(name = "polywire", version, after_help = EXIT_CODES)]
struct Cli {
    /// Prints what happens on the links to standard error; -vv prints more
    #[arg(short, long, global = true, display_order = 100, action = ArgAction::Count)]
    verbose: u8,
    /// Prints JSON, for programs
    #[arg(long, global = true, display_order = 101)]
    json: bool,
    /// Prints spans to standard error, as polywire=debug or polywire[publish]=trace says
    #[cfg(feature = "tracing")]
    #[arg(
        long,
        global = true,
        display_order = 102,
        value_name = "FILTER",
        env = "POLYWIRE_TRACE",
        hide_env_values = true
    )]
    trace: Option<String>,
}

/// Returns the clap command of the whole program.
fn command() -> Command {
    verb::add(VERBS, verb::one_of(Cli::command()))
}

#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "of what is global, only spans can fail"))]
fn run(cli: &Cli, matches: &ArgMatches, terminal: &Terminal) -> outcome::Result {
    #[cfg(feature = "tracing")]
    cli.trace.as_deref().map_or(Ok(()), trace::print)?;
    let unknown = || Err(Misuse("a command is missing: --help lists them".into()).into());
    verb::dispatch(VERBS, matches, terminal).unwrap_or_else(unknown)
}

fn main() -> ExitCode {
    let parsed = command().try_get_matches().and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // If this cannot be printed, there is no other way to report it.
            let _ = error.print();
            return if error.use_stderr() { Outcome::Misused } else { Outcome::Fine }.into();
        }
    };
    terminal::log_from(cli.verbose);
    let terminal = Terminal::new(cli.json);
    let result = run(&cli, &matches, &terminal);
    stop::give_way();
    let outcome = result.unwrap_or_else(|error| {
        let outcome = Outcome::of(&error);
        if outcome != Outcome::Fine {
            terminal.error(&outcome::chain(&error));
        }
        outcome
    });
    topic::leave();
    stop::end(outcome);
    outcome.into()
}
