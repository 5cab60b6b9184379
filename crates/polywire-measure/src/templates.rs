//! Provides the templates for a case's codec: from a file, or learned from values like the measured
//! ones.

use std::fs;

use polywire::codec::fast::{LearnOptions, learn};

use crate::{Case, Error, Scenario, scenario::TypeSpec, subject::Subject, values::ValueModel};

/// The codec option that selects the templates.
const OPTION: &str = "template=";

/// The option value that requests learned templates, in place of a file name.
pub const LEARNED: &str = "learned";

/// Number of values to learn from; none of them is measured.
const SAMPLES: usize = 500;

/// Splits a codec's text into the template option and the rest: `fast:template=learned@chained`
/// gives `learned` and `fast@chained`.
pub fn split(wire: &str) -> Option<(&str, String)> {
    let (codec, mode) = wire.split_once('@').map_or((wire, None), |(codec, mode)| (codec, Some(mode)));
    let (name, options) = codec.split_once(':')?;
    let templates = options.split(',').find_map(|option| option.strip_prefix(OPTION))?;
    let rest: Vec<&str> = options.split(',').filter(|option| !option.starts_with(OPTION)).collect();
    let mut text = name.to_owned();
    if !rest.is_empty() {
        text += &format!(":{}", rest.join(","));
    }
    if let Some(mode) = mode {
        text += &format!("@{mode}");
    }
    Some((templates, text))
}

/// The templates of a case in XML, if its codec has the option; otherwise `None`.
///
/// # Errors
/// [`Error::Wire`] if a file cannot be read or there is nothing to learn.
pub fn of(scenario: &Scenario, case: &Case, subject: &Subject) -> Result<Option<String>, Error> {
    let Some((which, _)) = split(&case.codec) else { return Ok(None) };
    let wrong = |problem: String| Error::Wire { wire: case.codec.clone(), problem };
    if which == LEARNED {
        return learned(scenario, case, subject).map(Some);
    }
    let text = fs::read_to_string(scenario.folder.join(which)).map_err(|error| wrong(format!("{which}: {error}")))?;
    match case.fields {
        0 => Ok(Some(text)),
        fields => repeated(&text, fields).map(Some).map_err(wrong),
    }
}

/// Learns templates from values of the same model with another seed.
fn learned(scenario: &Scenario, case: &Case, subject: &Subject) -> Result<String, Error> {
    let spec: &TypeSpec = &scenario.types[case.type_index];
    let model = ValueModel::parse(&case.values)?;
    let samples = model.records(&subject.shape, SAMPLES, scenario.seed ^ 1 << 32, spec, &scenario.folder)?;
    let learned = learn(&subject.shape, &samples, &LearnOptions::default());
    let wrong = |problem: String| Error::Wire { wire: case.codec.clone(), problem };
    Ok(learned.map_err(|error| wrong(error.to_string()))?.templates.to_xml())
}

/// Repeats the instructions of a template for the probe's first ten fields, once for every ten
/// fields. The suffix `_1` counts up.
fn repeated(text: &str, fields: usize) -> Result<String, String> {
    let (head, rest) =
        text.split_once("<template ").and_then(|(a, b)| Some((a, b.split_once('>')?))).ok_or("no template")?;
    let (attributes, rest) = rest;
    let (instructions, tail) = rest.split_once("</template>").ok_or("a template that does not end")?;
    let own = instructions.matches("_1\"").count();
    if own == 0 || !fields.is_multiple_of(own) {
        return Err(format!("{fields} fields are not a multiple of the template's {own}"));
    }
    let all: String = (1..=fields / own).map(|i| instructions.replace("_1\"", &format!("_{i}\""))).collect();
    Ok(format!("{head}<template {attributes}>{all}</template>{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_told_from_the_others() {
        let plain = |text: &str| split(text).map(|(which, rest)| (which.to_owned(), rest));
        assert_eq!(plain("fast:template=learned@chained"), Some(("learned".into(), "fast@chained".into())));
        assert_eq!(
            plain("fast:deviations=report,template=../a.xml"),
            Some(("../a.xml".into(), "fast:deviations=report".into()))
        );
        assert_eq!(plain("fast@chained"), None);
        assert_eq!(plain("cdr:header"), None);
    }

    #[test]
    fn ten_fields_become_thirty() {
        let text =
            "<templates><template id=\"2\" name=\"T\"><int8 name=\"a_1\"/><int8 name=\"b_1\"/></template></templates>";
        let long = repeated(text, 6).expect("it goes into six");
        assert_eq!(long.matches("<int8").count(), 6);
        assert!(long.contains("name=\"b_3\"") && long.ends_with("</template></templates>"));
        assert!(repeated(text, 5).is_err() && repeated("", 2).is_err());
    }
}
