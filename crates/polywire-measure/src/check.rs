//! Checks the names in a scenario, and whether its files can be read, before anything is measured.
//! A typing error is thereby reported instead of silently leaving a case out.

use std::{fs::File, path::Path};

use polywire::{
    Schema, Wire,
    codec::{self, CODECS, Options},
    compress::{self, COMPRESSORS, Settings},
    engine::ENGINES,
    schema::DefKind,
    suggest::hint,
    wire::Names,
};
use polywire_core::netsim::Model;

use crate::{
    Error, Scenario,
    live::engines,
    metrics::{self, METRICS, Needs},
    scenario::{AXES, Criterion, Place, TypeSpec},
    templates,
    values::ValueModel,
};

/// How a stateful codec is used: the part after `@`.
const STREAMS: [&str; 3] = ["alone", "chained", "anchored"];

/// Compressors that a build may leave out. Their cases are then left out, like those of unavailable
/// peers.
const OPTIONAL: [&str; 1] = ["zstd"];

/// Checks the values of the axes.
pub fn names(scenario: &Scenario) -> Result<(), Error> {
    let axes = &scenario.axes;
    axes.values.iter().try_for_each(|text| ValueModel::parse(text).map(|_| ()))?;
    let all = axes.codec.iter().map(|text| codec(text));
    let all = all.chain(axes.compressor.iter().map(|text| compressor(text)));
    let all = all.chain(axes.engine.iter().map(|text| engine(text)));
    let all = all.chain(axes.network.iter().map(|text| network(text)));
    all.collect::<Result<(), String>>().map_err(Error::Scenario)
}

/// `NAME[:OPTIONS][@STREAM]`
fn codec(text: &str) -> Result<(), String> {
    let (plain, stream) = text.split_once('@').unwrap_or((text, "alone"));
    if !STREAMS.contains(&stream) {
        return Err(unknown("stream", stream, &STREAMS));
    }
    let plain = templates::split(plain).map_or(plain.to_owned(), |(_, rest)| rest);
    let wire = wire(&plain)?;
    let options: Options = wire.codec.options.parse().map_err(|error| format!("codec '{text}': {error}"))?;
    let codec = codec::find(&wire.codec.name).ok_or_else(|| format!("a codec is expected, not '{text}'"))?;
    options.check(codec).map_err(|error| error.to_string())
}

fn compressor(text: &str) -> Result<(), String> {
    let name = text.split(':').next().unwrap_or_default();
    if name == "none" || OPTIONAL.contains(&name) && compress::find(name).is_none() {
        return Ok(());
    }
    let choice = wire(&format!("cdr+{text}"))?.compressor.ok_or("a compressor is expected")?;
    let compressor = compress::find(&choice.name).ok_or_else(|| format!("there is no compressor '{text}'"))?;
    Settings::parse(&choice.options, compressor).map(|_| ()).map_err(|error| error.to_string())
}

fn engine(text: &str) -> Result<(), String> {
    let ours = ENGINES.iter().map(|engine| engine.name());
    let known: Vec<&str> = ours.chain(engines::ENGINES.iter().map(|engine| engine.name)).collect();
    if known.contains(&text) { Ok(()) } else { Err(unknown("engine", text, &known)) }
}

fn network(text: &str) -> Result<(), String> {
    match text {
        "none" => Ok(()),
        text => text.parse::<Model>().map(|_| ()).map_err(|error| error.to_string()),
    }
}

/// Checks that all names in a wire exist.
fn wire(text: &str) -> Result<Wire, String> {
    let wire: Wire = text.parse().map_err(|error: polywire::wire::WireError| error.to_string())?;
    let codecs: Vec<&str> = CODECS.iter().map(|codec| codec.name()).collect();
    let compressors: Vec<&str> = COMPRESSORS.iter().map(|compressor| compressor.name()).collect();
    let names = Names { codecs: &codecs, compressors: &compressors, engines: &[] };
    wire.check(&names).map(|()| wire).map_err(|error| error.to_string())
}

fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let hint = hint(name, known.iter().copied());
    format!("there is no {what} '{name}'{hint}; there are {}", known.join(", "))
}

/// Checks that the files named by the scenario can be read. A case whose file cannot be read is an
/// error; it is not merely left out.
pub fn files(scenario: &Scenario) -> Result<(), Error> {
    let axes = &scenario.axes;
    let replayed = axes.values.iter().filter_map(|text| text.strip_prefix("replay:"));
    let templates = axes.codec.iter().filter_map(|text| templates::split(text)).map(|(which, _)| which);
    let dictionaries = axes.compressor.iter().flat_map(|text| text.split([':', ',']));
    let dictionaries = dictionaries.filter_map(|setting| setting.strip_prefix("dict="));
    let named = replayed.chain(templates.filter(|which| *which != templates::LEARNED)).chain(dictionaries);
    let readers = scenario.types.iter().filter_map(|spec| spec.reader.as_deref());
    let types = scenario.types.iter().chain(readers).filter_map(|spec| spec.idl.as_deref());
    for file in named.map(Path::new).chain(types) {
        File::open(scenario.folder.join(file))
            .map_err(|error| Error::Scenario(format!("cannot read {}: {error}", file.display())))?;
    }
    Ok(())
}

/// Checks a criterion: the scenario's mode measures its metric, and its cases exist.
pub fn criterion(scenario: &Scenario, criterion: &Criterion) -> Result<(), Error> {
    let checked = metric(scenario, criterion).and_then(|()| places(scenario, criterion));
    let limited = criterion.at_most.is_some() || criterion.at_least.is_some();
    let no_limit = || format!("a criterion of {} has neither at_most nor at_least", criterion.metric);
    checked.and_then(|()| if limited { Ok(()) } else { Err(no_limit()) }).map_err(Error::Scenario)
}

fn metric(scenario: &Scenario, criterion: &Criterion) -> Result<(), String> {
    let name = criterion.metric.as_str();
    if metrics::find(name).is_none() {
        let known: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        return Err(match METRICS.iter().find(|metric| metric.label == name) {
            Some(metric) => format!("'{name}' is the heading of the metric '{}': use that name", metric.name),
            None => unknown("metric", name, &known),
        });
    }
    let mode = scenario.mode;
    let Some(needs) = mode.needs_for(name) else {
        let known: Vec<&str> = mode.metrics().map(|(name, _)| name).collect();
        let mode = mode.name();
        return Err(format!("the mode '{mode}' does not measure '{name}'; it measures {}", known.join(", ")));
    };
    let concerned = |axis: &str, lacks: &dyn Fn(&str) -> bool| match criterion.only.get(axis) {
        Some(only) => lacks(only),
        None => scenario.places(axis).is_some_and(|places| places.iter().any(|place| lacks(place))),
    };
    let is_none = |place: &str| place == "none";
    match needs {
        Needs::Compressor if concerned("compressor", &is_none) => {
            Err(format!("'{name}' needs a compressor: select cases that have one with where = {{ compressor = ... }}"))
        }
        Needs::Network if concerned("network", &is_none) => Err(format!(
            "in the mode '{}', '{name}' needs a network: select cases that have one with where = {{ network = ... }}",
            mode.name()
        )),
        Needs::Process
            if scenario.effort.peer == Place::Thread || concerned("engine", &|engine| engine == "inproc") =>
        {
            Err(format!(
                "'{name}' needs the other end in another process: peer = \"process\", and an engine other than inproc"
            ))
        }
        _ => Ok(()),
    }
}

fn places(scenario: &Scenario, criterion: &Criterion) -> Result<(), String> {
    for (axis, place) in criterion.only.iter().chain(&criterion.relative_to) {
        let Some(places) = scenario.places(axis) else { return Err(unknown("axis", axis, AXES)) };
        if !places.contains(place) {
            let places: Vec<&str> = places.iter().map(String::as_str).collect();
            return Err(format!("criterion of {}: {}", criterion.metric, unknown(axis, place, &places)));
        }
    }
    Ok(())
}

/// Checks the members named by `lengths` and `texts` of a type.
pub fn members(spec: &TypeSpec, schema: &Schema) -> Result<(), Error> {
    let names = schema.defs().iter().flat_map(|def| match &def.kind {
        DefKind::Struct { members, .. } => members.iter().map(|member| member.name.as_str()).collect(),
        DefKind::Union { cases, .. } => cases.iter().map(|case| case.member.name.as_str()).collect(),
        _ => Vec::new(),
    });
    let names: Vec<&str> = names.collect();
    let is_there = |wanted: &str| match wanted.strip_suffix('*') {
        Some(start) => names.iter().any(|name| name.starts_with(start)),
        None => names.contains(&wanted),
    };
    match spec.lengths.keys().chain(spec.texts.keys()).find(|name| !is_there(name)) {
        Some(name) => {
            let hint = hint(name, names.iter().copied());
            Err(Error::Scenario(format!("{} has no member '{name}'{hint}", schema.name())))
        }
        None => Ok(()),
    }
}
