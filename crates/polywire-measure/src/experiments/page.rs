//! An [`Experiment`] and the files that it writes: a page in Markdown, plots as SVG, and results as
//! JSON.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Case, CaseResult, Results, report, table};

/// An experiment.
pub struct Experiment {
    /// Name on the command line; also the name of the page's file, without the ending.
    pub name: &'static str,
    /// The command that measures the experiment.
    pub command: &'static str,
    /// Heading of the page.
    pub title: &'static str,
    /// The scenarios, as names of their files without the ending.
    pub scenarios: &'static [&'static str],
    /// Folder for results and plots, relative to the page, with a slash at the end; empty for the
    /// page's own folder.
    pub data: &'static str,
    /// Writes the body of the page from the results of the scenarios, in their order.
    pub(super) page: fn(&mut Page, &[Results]),
}

impl Experiment {
    /// Writes the page, its plots and the results into a folder, and returns the paths of all
    /// files. `results` are those of [`Experiment::scenarios`], in the same order.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, results: &[Results], folder: &Path) -> io::Result<Vec<PathBuf>> {
        fs::create_dir_all(folder.join(self.data))?;
        let mut page = Page { experiment: self, text: format!("# {}\n", self.title), plots: Vec::new() };
        let machine = results.first().map(table::measured_on).unwrap_or_default();
        page.say(&format!("Measured by `{}`: {machine}.", self.command));
        let raw: Vec<String> =
            self.scenarios.iter().map(|name| format!("[{name}.json]({}{name}.json)", self.data)).collect();
        page.say(&format!(
            "Every figure, with its interval and each repeat: {}. Times include the effect of other load on the \
             machine; ratios carry over to other machines better.",
            raw.join(", ")
        ));
        (self.page)(&mut page, results);
        let mut files = Vec::new();
        let mut write = |name: String, text: &str| {
            files.push(folder.join(name));
            fs::write(&files[files.len() - 1], text)
        };
        write(format!("{}.md", self.name), &page.text)?;
        for (name, svg) in &page.plots {
            write(format!("{}{name}", self.data), svg)?;
        }
        for (name, results) in self.scenarios.iter().zip(results) {
            write(format!("{}{name}.json", self.data), &serde_json::to_string(results).map_err(io::Error::other)?)?;
        }
        Ok(files)
    }
}

/// A page that is being written, and its plots.
pub(super) struct Page<'a> {
    experiment: &'a Experiment,
    text: String,
    /// File names and contents.
    plots: Vec<(String, String)>,
}

impl Page<'_> {
    pub(super) fn heading(&mut self, text: &str) {
        let _ = write!(self.text, "\n## {text}\n");
    }

    /// Adds a paragraph.
    pub(super) fn say(&mut self, text: &str) {
        let _ = write!(self.text, "\n{text}\n");
    }

    pub(super) fn list(&mut self, items: &[String]) {
        self.text.push('\n');
        items.iter().for_each(|item| self.text.push_str(&format!("- {item}\n")));
    }

    /// Adds a table.
    pub(super) fn table(&mut self, head: &[String], rows: &[Vec<String>]) {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let _ = write!(self.text, "\n{}", line(head));
        let _ = writeln!(self.text, "|{}", " --- |".repeat(head.len()));
        rows.iter().for_each(|row| self.text.push_str(&line(row)));
    }

    /// Adds the plot of [`report::plots`] with this title, drawn for the cases to keep; nothing if
    /// there is no such plot.
    pub(super) fn plot(&mut self, results: &Results, title: &str, keep: impl Fn(&Case) -> bool) {
        let mut part = results.clone();
        part.cases.retain(|result| keep(&result.case));
        let Some((_, _, svg)) = report::plots(&part).into_iter().find(|(own, _, _)| *own == title) else {
            return;
        };
        self.draw(title, svg);
    }

    /// Adds a picture.
    pub(super) fn draw(&mut self, title: &str, svg: String) {
        let file = format!("{}-{}.svg", self.experiment.name, self.plots.len() + 1);
        let _ = write!(self.text, "\n![{title}]({}{file})\n", self.experiment.data);
        self.plots.push((file, svg));
    }
}

/// A figure of a case as text; `-` if there is none.
pub(super) fn cell(result: Option<&CaseResult>, metric: &str) -> String {
    let measure = result.and_then(|result| result.metrics.get(metric));
    measure.map_or("-".into(), |measure| table::figure(metric, measure.value))
}

pub(super) fn texts<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// The mean; `None` if there are no values.
pub(super) fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.into_iter().collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
