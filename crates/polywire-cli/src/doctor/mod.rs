//! The command `polywire doctor`: checks whether this machine is suitable for Polywire, and gives
//! advice where it is not. Each group of checks has a file.

mod clock;
mod multicast;
mod network;
mod nodes;
mod ports;
mod processes;
mod runtime;
mod system;
#[cfg(feature = "zeromq")]
mod zeromq;

use clap::Args;
use serde::Serialize;

use crate::{
    outcome::{self, Outcome},
    seconds::Seconds,
    terminal::Terminal,
    verb::{Action, Verb},
};

pub const VERB: Verb = Verb::new::<Doctor>("doctor", "Checks this machine and its network, and says what to do")
    .details(
        "Looks at the build, the processor, limits of the system, the runtime folder, the clock, the interfaces, \
         multicast, ports, and the nodes on this machine and the network. It changes nothing: to see other nodes it \
         joins the domain as a node that neither publishes nor subscribes. The exit code is 1 if a check finds a \
         problem, and 0 if there are at most warnings.",
    )
    .example("polywire doctor --time 1 --interface lo");

#[derive(Args)]
pub struct Doctor {
    /// How long to look for other nodes
    #[arg(short, long, value_name = "SECONDS", default_value = "2")]
    time: Seconds,
    /// Checks this interface alone, by its name; may be given several times
    #[arg(short, long, value_name = "NAME")]
    interface: Vec<String>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Everything is in order.
    Ok,
    /// A part works less well than it could, or could not be checked.
    Warning,
    /// A part does not work.
    Problem,
}

/// A line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject of the check.
    pub check: String,
    pub state: State,
    pub found: String,
    /// The advice; empty if nothing needs to be done.
    #[serde(rename = "do")]
    pub advice: String,
}

impl Finding {
    pub fn ok(check: &str, found: impl Into<String>) -> Finding {
        Finding { check: check.into(), state: State::Ok, found: found.into(), advice: String::new() }
    }

    pub fn warning(check: &str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { state: State::Warning, advice: advice.into(), ..Finding::ok(check, found) }
    }

    pub fn problem(check: &str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { state: State::Problem, advice: advice.into(), ..Finding::ok(check, found) }
    }

    /// Returns the line of the report, with the advice at its end.
    fn line(&self) -> String {
        let word = match self.state {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Problem => "problem",
        };
        let advice = if self.advice.is_empty() { String::new() } else { format!("; {}", self.advice) };
        format!("{word:<8} {:<12} {}{advice}", self.check, self.found)
    }
}

impl Action for Doctor {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let mut all = Vec::new();
        let mut tell = |findings: Vec<Finding>| -> anyhow::Result<()> {
            for finding in &findings {
                match terminal.json {
                    true => terminal.value(finding)?,
                    false => terminal.line(&finding.line())?,
                }
            }
            all.extend(findings);
            Ok(())
        };
        tell(system::check())?;
        tell(runtime::check())?;
        tell(clock::check())?;
        let interfaces = network::interfaces(&self.interface);
        tell(network::check(&interfaces, &self.interface))?;
        tell(multicast::check(&interfaces))?;
        tell(ports::check())?;
        #[cfg(feature = "zeromq")]
        tell(zeromq::check())?;
        tell(processes::check())?;
        tell(nodes::check(&self.interface, self.time.0))?;
        Ok(outcome_of(&all))
    }
}

fn outcome_of(findings: &[Finding]) -> Outcome {
    match findings.iter().any(|finding| finding.state == State::Problem) {
        true => Outcome::Missed,
        false => Outcome::Fine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_that_ends_with_what_to_do() {
        assert_eq!(Finding::ok("clock", "fine").line(), "ok       clock        fine");
        let warning = Finding::warning("clock", "not set", "set it");
        assert_eq!(warning.line(), "warning  clock        not set; set it");
        let json = serde_json::to_string(&warning).expect("JSON");
        assert_eq!(json, r#"{"check":"clock","state":"warning","found":"not set","do":"set it"}"#);
    }

    #[test]
    fn only_a_problem_changes_the_exit_code() {
        let [fine, less, wrong] =
            [Finding::ok("a", ""), Finding::warning("a", "", "x"), Finding::problem("a", "", "x")];
        assert_eq!(outcome_of(&[fine.clone(), less.clone()]), Outcome::Fine);
        assert_eq!(outcome_of(&[fine, wrong, less]), Outcome::Missed);
    }
}
