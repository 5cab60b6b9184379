//! Translates a model to arguments of `tc netem`. Runs nothing; a model that netem does not support
//! is an error.

use polywire_core::netsim::{Jitter, Loss, Model};

/// Bytes of a packet, to convert a queue from bytes to packets.
const PACKET: usize = 1500;

/// The arguments after `tc qdisc add dev .. root netem`. The kernel makes its own random choices;
/// no seed decides them.
///
/// ```
/// use polywire_link::hosts::netem;
///
/// let model = "rate=8mbit,delay=20ms,jitter=normal:2ms,loss=1%".parse().unwrap();
/// assert_eq!(netem(&model)?.join(" "), "limit 699 delay 20000us 2000us distribution normal loss random 1% rate 8000000bit");
/// assert!(netem(&"loss=pattern:01".parse().unwrap()).is_err());
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// A text that names what netem does not support.
pub fn netem(model: &Model) -> Result<Vec<String>, String> {
    if !model.down.is_empty() {
        return Err("netem has no blackouts".into());
    }
    let mut words = vec!["limit".to_owned(), (model.queue_bytes / PACKET).max(1).to_string()];
    words.extend(delay(model));
    words.extend(loss(&model.loss)?);
    for (name, part) in [("duplicate", model.duplicate), ("corrupt", model.corrupt), ("reorder", model.reorder)] {
        if part > 0.0 {
            words.extend([name.to_owned(), percent(part)]);
        }
    }
    words.extend(model.rate.into_iter().flat_map(|rate| ["rate".to_owned(), format!("{rate}bit")]));
    Ok(words)
}

fn delay(model: &Model) -> Vec<String> {
    let time = |ns: u64| format!("{}us", ns / 1000);
    let fixed = vec!["delay".to_owned(), time(model.delay.fixed)];
    let varied = |width: u64, distribution: &[&str]| {
        let more = [time(width)].into_iter().chain(distribution.iter().map(|word| (*word).to_owned()));
        fixed.iter().cloned().chain(more).collect()
    };
    match model.delay.jitter {
        Jitter::Uniform(width) => varied(width, &[]),
        Jitter::Normal(width) => varied(width, &["distribution", "normal"]),
        Jitter::Pareto(width) => varied(width, &["distribution", "pareto"]),
        _ if model.delay.fixed > 0 => fixed,
        _ => Vec::new(),
    }
}

fn loss(loss: &Loss) -> Result<Vec<String>, String> {
    let words = |first: &[&str], parts: &[f64]| {
        first.iter().map(|word| (*word).to_owned()).chain(parts.iter().map(|part| percent(*part))).collect()
    };
    match loss {
        Loss::None => Ok(Vec::new()),
        Loss::Bernoulli(rate) => Ok(words(&["loss", "random"], &[*rate])),
        Loss::Gilbert { .. } | Loss::GilbertElliott { .. } => {
            let (enter, leave, good, bad) = loss.chain();
            // netem takes the loss in the bad state and the loss in the good state.
            Ok(words(&["loss", "gemodel"], &[enter, leave, bad, good]))
        }
        _ => Err("netem has no patterns and no regular bursts of loss".into()),
    }
}

/// Formats with four decimal places, without trailing zeros.
fn percent(part: f64) -> String {
    let text = format!("{:.4}", part * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}
