//! The findings of `fast study`, as text, Markdown and SVG.

use std::collections::BTreeMap;

use polywire_measure::{
    netsim::PROFILES,
    report::svg::{self, Bars},
};
use serde::Serialize;

use super::{formats::FormatFigures, links::LinkFigures};
use crate::{terminal::columns, types::count};

/// The findings for one recording.
#[derive(Debug, Serialize)]
pub struct Findings {
    pub recording: String,
    pub messages: usize,
    pub bytes: usize,
    /// The number of messages that have other bytes when they are encoded again, because the
    /// recorded encoding is not the shortest one.
    pub longer_than_needed: usize,
    /// Number of messages of each template.
    pub templates: BTreeMap<String, usize>,
    pub formats: Vec<FormatFigures>,
    /// Codecs that cannot carry the messages, and why.
    pub left_out: Vec<String>,
    /// Messages a second on each topic.
    pub rate_hz: u32,
    pub links: Vec<LinkFigures>,
}

/// Lines of cells, headings first.
type Table = Vec<Vec<String>>;

impl Findings {
    /// Returns true if every message has its shortest encoding, and none arrived as another value.
    pub fn are_fine(&self) -> bool {
        self.longer_than_needed == 0 && self.links.iter().all(|link| link.wrong == 0)
    }

    pub fn text(&self) -> String {
        let links = self.by_link().map(|(link, figures)| format!("{link}\n{}", columns(&of_topics(figures))));
        let parts = [self.summary() + "\n", columns(&self.formats())].into_iter().chain(links);
        parts.collect::<Vec<_>>().join("\n")
    }

    /// Returns a section of the page, with the picture of this name.
    pub fn markdown(&self, picture: &str) -> String {
        let left_out: String = self.left_out.iter().map(|why| format!("\nLeft out: {why}.\n")).collect();
        let mut text =
            format!("\n## {}\n\n{}\n\n{}{left_out}", self.recording, self.summary(), markdown(&self.formats()));
        if self.links.is_empty() {
            return text;
        }
        let sent = self.links.first().map_or(0, |link| link.sent);
        let sent = count(sent, "message");
        text += &format!(
            "\nOver lossy links: {sent} on each of four topics, in turn, from one node to another, {} per second. Messages \
             without fields, which only reset dictionaries, are not sent. *undecodable* counts every copy of a duplicated \
             message.\n",
            self.rate_hz
        );
        for (link, figures) in self.by_link() {
            let profile = PROFILES.iter().find(|profile| profile.name == link);
            let says = profile.map_or(String::new(), |profile| format!("`{}`\n\n", profile.text));
            text += &format!("\n### {link}\n\n{says}{}", markdown(&of_topics(figures)));
        }
        text + &format!("\n![Delivered, and bytes per message, by wire and link](<{picture}>)\n")
    }

    /// Draws what was delivered over each link, and the bytes that it took; `None` without links.
    pub fn picture(&self) -> Option<String> {
        let (_, first) = self.by_link().next()?;
        let percent = |figures: &LinkFigures| 100.0 * figures.delivered as f64 / figures.sent.max(1) as f64;
        let delivered = Bars {
            labels: self.links.iter().map(|figures| format!("{}, {}", figures.wire, figures.link)).collect(),
            parts: vec![("delivered".into(), self.links.iter().map(percent).collect())],
            intervals: Vec::new(),
            text: Box::new(|percent| format!("{percent:.1} %")),
        };
        let bytes = Bars {
            labels: first.iter().map(|figures| figures.wire.to_owned()).collect(),
            parts: vec![("bytes".into(), first.iter().map(|figures| figures.bytes).collect())],
            intervals: Vec::new(),
            text: Box::new(|bytes| format!("{bytes:.1} bytes")),
        };
        let (over, title) =
            (format!("Delivered of {}", self.recording), format!("Bytes per message, over {}", first[0].link));
        Some(svg::column(&[(&over, &delivered), (&title, &bytes)]))
    }

    fn summary(&self) -> String {
        let templates: Vec<String> = self.templates.iter().map(|(name, many)| format!("{many} of {name}")).collect();
        let back = match self.longer_than_needed {
            0 => "encoding them again gives the same bytes".to_string(),
            1 => "encoding them again changes the bytes of 1, because it is not the shortest encoding".to_string(),
            many => {
                format!("encoding them again changes the bytes of {many}, because they are not the shortest encodings")
            }
        };
        format!("{}, {} bytes ({}); {back}.", count(self.messages, "message"), self.bytes, templates.join(", "))
    }

    fn formats(&self) -> Table {
        let recorded = self.bytes as f64 / self.messages as f64;
        let line = |format: &FormatFigures| {
            vec![
                format.format.into(),
                format!("{:.1}", format.bytes),
                format!("{:.2}x", format.bytes / recorded),
                format!("{:.0} ns", format.encode_ns),
                format!("{:.0} ns", format.decode_ns),
            ]
        };
        let headings = ["format", "bytes per message", "size / recorded size", "encode", "decode"];
        table(&headings, self.formats.iter().map(line))
    }

    /// Returns the topics of each link.
    fn by_link(&self) -> impl Iterator<Item = (&str, &[LinkFigures])> {
        let links = self.links.chunk_by(|a, b| a.link == b.link);
        links.filter_map(|figures| figures.first().map(|first| (first.link.as_str(), figures)))
    }
}

fn of_topics(figures: &[LinkFigures]) -> Table {
    let line = |topic: &LinkFigures| {
        vec![
            topic.wire.into(),
            topic.sent.to_string(),
            format!("{:.1}", topic.bytes),
            format!("{:.1} %", 100.0 * topic.delivered as f64 / topic.sent.max(1) as f64),
            topic.undecodable.to_string(),
            topic.wrong.to_string(),
        ]
    };
    let headings = ["topic", "sent", "bytes per message", "delivered", "undecodable", "wrong values"];
    table(&headings, figures.iter().map(line))
}

fn table(headings: &[&str], lines: impl Iterator<Item = Vec<String>>) -> Table {
    std::iter::once(headings.iter().map(|heading| (*heading).to_owned()).collect()).chain(lines).collect()
}

fn markdown(table: &Table) -> String {
    let rule = format!("|{}\n", " --- |".repeat(table.first().map_or(0, Vec::len)));
    let line = |cells: &Vec<String>| format!("| {} |\n", cells.join(" | "));
    table.iter().map(line).enumerate().map(|(i, line)| if i == 0 { line + &rule } else { line }).collect()
}
