//! What all programs take: `[--quick] [--json FILE] [--markdown FILE] [--extract FILE] [WORD..]`.

use std::{env, fs, path::PathBuf, process};

use crate::{measure::Effort, report::Report};

/// The arguments of this process.
#[derive(Debug, Default)]
pub struct Arguments {
    /// A few milliseconds a candidate, no bars.
    pub quick: bool,
    /// Everything as JSON.
    pub json: Option<PathBuf>,
    /// The tables of the documentation.
    pub markdown: Option<PathBuf>,
    /// A file between whose marks the first table is put: `<!-- table -->` and `<!-- end of table
    /// -->`.
    pub extract: Option<PathBuf>,
    /// Groups to measure; all if there are none.
    pub words: Vec<String>,
}

impl Arguments {
    /// Of this process; ends it where they are wrong.
    pub fn parse() -> Arguments {
        let mut arguments = Arguments::default();
        let mut rest = env::args().skip(1);
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--quick" => arguments.quick = true,
                "--json" => arguments.json = Some(file(&argument, rest.next())),
                "--markdown" => arguments.markdown = Some(file(&argument, rest.next())),
                "--extract" => arguments.extract = Some(file(&argument, rest.next())),
                word if word.starts_with('-') => usage(word),
                word => arguments.words.push(word.into()),
            }
        }
        arguments
    }

    /// True if a group is to be measured.
    pub fn wants(&self, group: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| word == group)
    }

    /// The command that measures the same again.
    pub fn command(&self, bin: &str) -> String {
        let features = if cfg!(feature = "peers") { " --features peers" } else { "" };
        let mut command = format!("cargo run --release -p polywire-bench{features} --bin {bin}");
        if self.quick || !self.words.is_empty() {
            command.push_str(" --");
        }
        if self.quick {
            command.push_str(" --quick");
        }
        for word in &self.words {
            command.push(' ');
            command.push_str(word);
        }
        command
    }

    /// How long to measure.
    pub fn effort(&self) -> Effort {
        if self.quick { Effort::QUICK } else { Effort::FULL }
    }

    /// Prints and writes the report.
    pub fn deliver(&self, report: &Report) -> std::io::Result<()> {
        print!("{}", report.terminal());
        if let Some(file) = &self.json {
            fs::write(file, serde_json::to_string_pretty(report).map_err(std::io::Error::other)?)?;
        }
        if let Some(file) = &self.markdown {
            fs::write(file, report.markdown())?;
        }
        if let Some(file) = &self.extract {
            let text = fs::read_to_string(file)?;
            let put = report.put_between_marks(&text);
            fs::write(file, put.ok_or_else(|| std::io::Error::other("the file has no marks for a table"))?)?;
        }
        Ok(())
    }
}

fn file(option: &str, value: Option<String>) -> PathBuf {
    value.map_or_else(|| usage(option), PathBuf::from)
}

fn usage(wrong: &str) -> ! {
    eprintln!(
        "'{wrong}' is not understood; there are: [--quick] [--json FILE] [--markdown FILE] [--extract FILE] [GROUP..]"
    );
    process::exit(2)
}
