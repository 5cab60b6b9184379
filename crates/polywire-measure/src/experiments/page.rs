//! Shared by all experiments: the experiment itself, and the page that it writes.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Case, CaseResult, Results, report, table};

/// An experiment.
pub struct Experiment {
    /// Its name on the command line, and its page.
    pub name: &'static str,
    /// What measures it again.
    pub command: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Its scenarios, by the names of their files without the ending.
    pub scenarios: &'static [&'static str],
    /// Folder beside the page, with a slash behind it, for results and plots; empty where they lie
    /// with the page.
    pub data: &'static str,
    pub(super) page: fn(&mut Page, &[Results]),
}

impl Experiment {
    /// Writes the page, its plots and the results of its scenarios, which are in the order of
    /// [`Experiment::scenarios`], into a folder; gives the files.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, results: &[Results], folder: &Path) -> io::Result<Vec<PathBuf>> {
        fs::create_dir_all(folder.join(self.data))?;
        let mut page = Page { experiment: self, text: format!("# {}\n", self.title), plots: Vec::new() };
        let machine = results.first().map(table::measured_on).unwrap_or_default();
        page.say(&format!("{machine}."));
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

/// Markdown in the making.
pub(super) struct Page<'a> {
    experiment: &'a Experiment,
    text: String,
    plots: Vec<(String, String)>,
}

impl Page<'_> {
    pub(super) fn heading(&mut self, text: &str) {
        let _ = write!(self.text, "\n## {text}\n");
    }

    /// A paragraph.
    pub(super) fn say(&mut self, text: &str) {
        let _ = write!(self.text, "\n{text}\n");
    }

    pub(super) fn list(&mut self, items: &[String]) {
        self.text.push('\n');
        items.iter().for_each(|item| self.text.push_str(&format!("- {item}\n")));
    }

    /// A table, and above it the command that measures it.
    pub(super) fn table(&mut self, head: &[String], rows: &[Vec<String>]) {
        let _ = write!(self.text, "\n```\n{}\n```\n\n", self.experiment.command);
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        self.text.push_str(&line(head));
        let _ = writeln!(self.text, "|{}", " --- |".repeat(head.len()));
        rows.iter().for_each(|row| self.text.push_str(&line(row)));
    }

    /// A plot of these results by its title on pages of results.
    pub(super) fn plot(&mut self, results: &Results, title: &str, keep: impl Fn(&Case) -> bool) {
        let mut part = results.clone();
        part.cases.retain(|result| keep(&result.case));
        let Some((_, _, svg)) = report::plots(&part).into_iter().find(|(own, _, _)| *own == title) else {
            return;
        };
        self.draw(title, svg);
    }

    /// A picture of its own.
    pub(super) fn draw(&mut self, title: &str, svg: String) {
        let file = format!("{}-{}.svg", self.experiment.name, self.plots.len() + 1);
        let _ = write!(self.text, "\n![{title}]({}{file})\n", self.experiment.data);
        self.plots.push((file, svg));
    }
}

/// A figure as tables write it.
pub(super) fn cell(result: Option<&CaseResult>, metric: &str) -> String {
    let measure = result.and_then(|result| result.metrics.get(metric));
    measure.map_or("-".into(), |measure| table::figure(metric, measure.value))
}

pub(super) fn texts<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// The mean of what there is; none of nothing.
pub(super) fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.into_iter().collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
