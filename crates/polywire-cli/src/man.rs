//! The command `polywire man`: makes the manual pages from the same table of verbs as `--help`.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use clap_mangen::Man;
use serde::Serialize;

use crate::{
    command,
    outcome::{self, Outcome},
    terminal::Terminal,
    verb::{Action, Verb},
};

pub const VERB: Verb = Verb::new::<Manual>("man", "Writes the manual pages")
    .details("One page for polywire and one for each command. Without --output, prints the page of polywire.")
    .example("polywire man --output man1");

#[derive(Args)]
pub struct Manual {
    /// Folder to write the pages to; it is created if it does not exist
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

#[derive(Serialize)]
struct Printed {
    page: String,
}

#[derive(Serialize)]
struct Written {
    pages: usize,
    folder: PathBuf,
}

impl Action for Manual {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        match self.output {
            Some(folder) => write(folder, terminal)?,
            None => print(terminal)?,
        }
        Ok(Outcome::Fine)
    }
}

fn write(folder: PathBuf, terminal: &Terminal) -> anyhow::Result<()> {
    let written = fs::create_dir_all(&folder).and_then(|()| clap_mangen::generate_to(command(), &folder));
    written.with_context(|| format!("cannot write to {}", folder.display()))?;
    let pages = fs::read_dir(&folder)?.filter_map(Result::ok);
    let pages = pages.filter(|page| page.path().extension().is_some_and(|section| section == "1")).count();
    match terminal.json {
        true => terminal.value(&Written { pages, folder }),
        false => Ok(terminal.line(&format!("{pages} pages in {}", folder.display()))?),
    }
}

fn print(terminal: &Terminal) -> anyhow::Result<()> {
    let mut page = Vec::new();
    Man::new(command()).render(&mut page)?;
    let page = String::from_utf8(page)?;
    match terminal.json {
        true => terminal.value(&Printed { page }),
        false => Ok(terminal.plain(&page)?),
    }
}
