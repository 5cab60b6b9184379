//! The command `polywire codecs`: lists codecs, compressors and engines.

use clap::Args;
use polywire::codec::{CODECS, Codec, OptionSpec};
use polywire::compress::{self, COMPRESSORS, Compressor};
use polywire::engine::{ENGINES, Engine};
use serde_json::{Value, json};

use crate::{
    outcome::{self, Outcome},
    terminal::{Terminal, columns},
    verb::{Action, Verb},
};

pub const VERB: Verb =
    Verb::new::<Codecs>("codecs", "Lists the codecs and compressors with their options, and the engines")
        .example("polywire codecs zstd lz4");

#[derive(Args)]
pub struct Codecs {
    /// Codecs and compressors to list [default: all]
    #[arg(value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(names()))]
    names: Vec<String>,
}

impl Action for Codecs {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let wanted = |codec: &&&dyn Codec| self.names.is_empty() || self.names.iter().any(|name| name == codec.name());
        let chosen: Vec<&dyn Codec> = CODECS.iter().filter(wanted).copied().collect();
        let compressors: Vec<&dyn Compressor> = COMPRESSORS
            .iter()
            .filter(|compressor| self.names.is_empty() || self.names.iter().any(|name| name == compressor.name()))
            .copied()
            .collect();
        if terminal.json {
            let codecs: Vec<Value> = chosen.iter().map(|codec| describe(*codec)).collect();
            let engines: Vec<Value> = ENGINES.iter().map(|engine| describe_engine(*engine)).collect();
            let compressors: Vec<Value> =
                compressors.iter().map(|compressor| describe_compressor(*compressor)).collect();
            terminal.value(&json!({ "codecs": codecs, "compressors": compressors, "engines": engines }))?;
            return Ok(Outcome::Fine);
        }
        let codecs: String = chosen.iter().map(|codec| page(*codec)).collect();
        terminal.text(&codecs)?;
        if !compressors.is_empty() {
            terminal.text(&compressor_page(&compressors))?;
        }
        if self.names.is_empty() {
            let rows: Vec<Vec<String>> = ENGINES.iter().map(|engine| engine_row(*engine)).collect();
            terminal.text(&format!("\nEngines\n{}", columns(&rows)))?;
        }
        Ok(Outcome::Fine)
    }
}

fn page(codec: &dyn Codec) -> String {
    let properties = codec.properties();
    let mut traits = vec![if properties.text { "text" } else { "binary" }];
    traits.push(if properties.self_describing { "self-describing" } else { "readers need the writer's schema" });
    traits.push(if properties.stateful { "a message may depend on earlier ones" } else { "each message stands alone" });
    let rows: Vec<Vec<String>> = codec.options().iter().map(option_row).collect();
    format!(
        "{}: {}\n  {}\n  {}\n  for {}\n  defined in {}\n{}\n",
        codec.name(),
        properties.summary,
        traits.join(", "),
        codec.evolution().summary(),
        properties.typical_use,
        properties.specification,
        columns(&rows)
    )
}

fn names() -> impl Iterator<Item = &'static str> {
    CODECS.iter().map(|codec| codec.name()).chain(COMPRESSORS.iter().map(|compressor| compressor.name()))
}

fn compressor_page(compressors: &[&dyn Compressor]) -> String {
    let row = |compressor: &&dyn Compressor| {
        let properties = compressor.properties();
        let levels = properties.levels;
        let levels = levels.map_or("-".into(), |l| format!("{} to {}, usually {}", l.least, l.most, l.usual));
        let dictionary = if properties.dictionary { "dictionary" } else { "-" };
        let texts = [properties.summary, properties.typical_use].map(str::to_owned);
        let [summary, typical_use] = texts;
        vec![format!("  +{}", compressor.name()), levels, dictionary.to_owned(), summary, format!("for {typical_use}")]
    };
    let rows: Vec<Vec<String>> = compressors.iter().map(row).collect();
    let options = compress::OPTIONS.iter().map(|(option, help)| vec![format!("  :{option}"), (*help).to_owned()]);
    format!("Compressors\n{}\nOptions of compressors\n{}", columns(&rows), columns(&options.collect::<Vec<_>>()))
}

fn option_row(option: &OptionSpec) -> Vec<String> {
    let values = option.values.join("|");
    let equals = if values.is_empty() { "" } else { "=" };
    vec![format!("  :{}{equals}{values}", option.name), option.help.to_owned()]
}

fn engine_row(engine: &dyn Engine) -> Vec<String> {
    vec![format!("  {}/{}", engine.name(), engine.example()), engine.summary().to_owned()]
}

fn describe(codec: &dyn Codec) -> Value {
    let properties = codec.properties();
    let option = |option: &OptionSpec| json!({ "name": option.name, "values": option.values, "help": option.help });
    json!({
        "name": codec.name(),
        "summary": properties.summary,
        "text": properties.text,
        "self_describing": properties.self_describing,
        "stateful": properties.stateful,
        "evolution": codec.evolution().summary(),
        "typical_use": properties.typical_use,
        "specification": properties.specification,
        "options": codec.options().iter().map(option).collect::<Vec<_>>(),
    })
}

fn describe_compressor(compressor: &dyn Compressor) -> Value {
    let properties = compressor.properties();
    let levels = properties.levels.map(|l| json!({ "least": l.least, "most": l.most, "usual": l.usual }));
    json!({
        "name": compressor.name(),
        "summary": properties.summary,
        "levels": levels,
        "dictionary": properties.dictionary,
        "typical_use": properties.typical_use,
        "specification": properties.specification,
    })
}

fn describe_engine(engine: &dyn Engine) -> Value {
    let properties = engine.properties();
    json!({
        "name": engine.name(),
        "summary": engine.summary(),
        "example": engine.example(),
        "reliable": properties.reliable,
        "ordered": properties.ordered,
        "multicast": properties.multicast,
        "largest_payload": properties.largest_payload,
    })
}
