//! Repetitions of the experiments in the papers that Polywire is based on. Their scenarios are in
//! `scenarios/papers`. They write the pages of `docs/experiments`, which compare the measured
//! figures with the printed ones.

mod article;
mod flexible;
mod thesis;
mod tuning;

use super::page::Experiment;

/// All experiments of the papers.
///
/// ```
/// use polywire_measure::experiments::papers::PAPERS;
///
/// assert!(PAPERS.iter().any(|paper| paper.name == "thesis" && !paper.scenarios.is_empty()));
/// ```
pub static PAPERS: &[Experiment] = &[
    Experiment {
        name: "thesis",
        command: "polywire bench papers thesis",
        data: "",
        title: "Run-time choice of the marshalling format (thesis of 2016, sections 5.3 to 5.8)",
        scenarios: &["thesis"],
        page: thesis::page,
    },
    Experiment {
        name: "flexible",
        command: "polywire bench papers flexible",
        data: "",
        title: "Flexible communication: parsers and compressors over three networks (2010)",
        scenarios: &["flexible", "flexible_small", "evolved"],
        page: flexible::page,
    },
    Experiment {
        name: "article",
        command: "polywire bench papers article",
        data: "",
        title: "Raw buffers and typed messages compared with bare sockets (article of 2011)",
        scenarios: &["article"],
        page: article::page,
    },
    Experiment {
        name: "tuning",
        command: "polywire bench papers tuning",
        data: "",
        title: "Transmit buffer, send buffer and receive buffer (tuning table of 2015)",
        scenarios: &["tuning", "tuning_calm"],
        page: tuning::page,
    },
];
