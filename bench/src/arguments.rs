//! The command line of all benchmark programs: `[--quick] [--json FILE] [--markdown FILE]
//! [--extract FILE] [GROUP..]`. Reads this process's arguments and writes the report to the files
//! that they name.

use std::{env, fs, path::PathBuf, process};

use crate::{measure::Effort, report::Report};

/// The parsed command line.
#[derive(Debug, Default)]
pub struct Arguments {
    /// Measure each candidate for a few milliseconds only ([`Effort::QUICK`]).
    pub quick: bool,
    /// Write the report to this file as JSON.
    pub json: Option<PathBuf>,
    /// Write the report's tables to this file as Markdown.
    pub markdown: Option<PathBuf>,
    /// Replace the text between the marks `<!-- table -->` and `<!-- end of table -->` of this file
    /// with the report's first table.
    pub extract: Option<PathBuf>,
    /// Names of the groups to measure. If it is empty, all groups are measured.
    pub words: Vec<String>,
}

impl Arguments {
    /// Parses the arguments of this process. If one is wrong, it prints the usage and exits with
    /// code 2.
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

    /// Whether the group of this name is measured.
    pub fn wants(&self, group: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| word == group)
    }

    /// The command that repeats this measurement.
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

    /// The effort that `--quick` selects.
    pub fn effort(&self) -> Effort {
        if self.quick { Effort::QUICK } else { Effort::FULL }
    }

    /// Prints the report and writes it to the files that the arguments name.
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
            fs::write(
                file,
                put.ok_or_else(|| {
                    std::io::Error::other("the file of --extract has no '<!-- table -->' and '<!-- end of table -->'")
                })?,
            )?;
        }
        Ok(())
    }
}

fn file(option: &str, value: Option<String>) -> PathBuf {
    value.map_or_else(|| usage(option), PathBuf::from)
}

fn usage(wrong: &str) -> ! {
    eprintln!(
        "error: unknown option '{wrong}', or its FILE is missing\nusage: [--quick] [--json FILE] [--markdown FILE] [--extract FILE] [GROUP..]"
    );
    process::exit(2)
}
