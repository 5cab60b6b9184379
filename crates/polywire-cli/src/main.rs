//! The command line of Polywire, one file a verb.

mod bench;
mod bw;
mod codecs;
mod compat;
mod completions;
mod cut;
mod demo;
#[cfg(feature = "zstd")]
mod dict;
mod echo;
mod fast;
#[cfg(all(feature = "hosts", target_os = "linux"))]
mod hosts;
mod hz;
mod idl;
mod link;
mod list;
mod outcome;
mod publish;
mod rate;
mod reach;
mod seconds;
mod stop;
mod terminal;
mod text;
mod topic;
mod transcode;
mod type_of;
mod types;
mod unknown;
mod watch;

use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};

use outcome::Outcome;
use terminal::Terminal;

const EXIT_CODES: &str = "\
Exit codes:
  0    fine
  1    nothing came in time, or what was asked for was not met
  2    failed: types that do not agree, files that are wrong, links that broke
  3    bad arguments
  130  ended by SIGINT (Ctrl-C), 143 by SIGTERM: what was published has left before that

Without a wire, topics are at tcp/127.0.0.1:7447: the first process there listens and relays.";

/// Typed publish/subscribe in which the wire is a run-time choice
#[derive(Parser)]
#[command(name = "polywire", version, after_help = EXIT_CODES, arg_required_else_help = true)]
struct Cli {
    /// Tells what happens on the links; twice for more
    #[arg(short, long, global = true, display_order = 100, action = ArgAction::Count)]
    verbose: u8,
    /// Prints JSON, for programs
    #[arg(long, global = true, display_order = 101)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Demo(demo::Demo),
    Pub(publish::Pub),
    Echo(echo::Echo),
    Hz(hz::Hz),
    Bw(bw::Bw),
    List(list::List),
    Typeof(type_of::Typeof),
    #[command(subcommand)]
    Idl(idl::Idl),
    Compat(compat::Compat),
    Codecs(codecs::Codecs),
    Transcode(transcode::Transcode),
    #[command(subcommand)]
    Fast(fast::Fast),
    #[cfg(feature = "zstd")]
    #[command(subcommand)]
    Dict(dict::Dict),
    Bench(bench::Bench),
    Link(Box<link::Link>),
    Completions(completions::Completions),
    #[command(hide = true)]
    BenchPeer(bench::BenchPeer),
    #[cfg(all(feature = "hosts", target_os = "linux"))]
    #[command(hide = true)]
    LinkHost(hosts::LinkHost),
    #[command(hide = true)]
    DemoPublisher(demo::publisher::DemoPublisher),
    #[command(hide = true)]
    DemoSubscriber(demo::subscriber::DemoSubscriber),
}

impl Verb {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        match self {
            Verb::Demo(verb) => verb.run(terminal),
            Verb::Pub(verb) => verb.run(terminal),
            Verb::Echo(verb) => verb.run(terminal),
            Verb::Hz(verb) => verb.run(terminal),
            Verb::Bw(verb) => verb.run(terminal),
            Verb::List(verb) => verb.run(terminal),
            Verb::Typeof(verb) => verb.run(terminal),
            Verb::Idl(verb) => verb.run(terminal),
            Verb::Compat(verb) => verb.run(terminal),
            Verb::Codecs(verb) => verb.run(terminal),
            Verb::Transcode(verb) => verb.run(terminal),
            Verb::Fast(verb) => verb.run(terminal),
            #[cfg(feature = "zstd")]
            Verb::Dict(verb) => verb.run(terminal),
            Verb::Bench(verb) => verb.run(terminal),
            Verb::Link(verb) => verb.run(terminal),
            Verb::BenchPeer(verb) => verb.run(),
            #[cfg(all(feature = "hosts", target_os = "linux"))]
            Verb::LinkHost(verb) => verb.run(),
            Verb::Completions(verb) => verb.run(terminal),
            Verb::DemoPublisher(verb) => verb.run(),
            Verb::DemoSubscriber(verb) => verb.run(),
        }
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to tell if this cannot be printed.
            let _ = error.print();
            return if error.use_stderr() { Outcome::Misused } else { Outcome::Fine }.into();
        }
    };
    terminal::log_from(cli.verbose);
    let terminal = Terminal::new(cli.json);
    let outcome = cli.verb.run(&terminal).unwrap_or_else(|error| {
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
