//! Finds templates that refer to themselves endlessly. `read` calls it. It reads templates only.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use super::{Instruction, Name, TemplateSet};

/// The index of a template whose static references lead back to it, so that its instructions never
/// end. A reference that stands alone in a group or sequence is not followed: it denotes a
/// recursive type and is expanded only once.
pub(super) fn endless(set: &TemplateSet) -> Option<usize> {
    let index: BTreeMap<&Name, usize> = set.templates.iter().enumerate().map(|(i, t)| (&t.name, i)).collect();
    let refers = set.templates.iter().map(|template| {
        let mut names = Vec::new();
        references(&template.instructions, &mut names);
        names.into_iter().filter_map(|name| index.get(name).copied()).collect()
    });
    let refers: Vec<Vec<usize>> = refers.collect();
    let (mut marks, mut way) = (vec![Mark::New; refers.len()], Vec::new());
    for start in 0..refers.len() {
        if marks[start] == Mark::New {
            marks[start] = Mark::Open;
            way.push((start, refers[start].iter()));
        }
        while let Some((template, rest)) = way.last_mut() {
            match rest.next().map(|next| (*next, marks[*next])) {
                Some((next, Mark::New)) => {
                    marks[next] = Mark::Open;
                    way.push((next, refers[next].iter()));
                }
                Some((next, Mark::Open)) => return Some(next),
                Some((_, Mark::Done)) => {}
                None => {
                    marks[*template] = Mark::Done;
                    way.pop();
                }
            }
        }
    }
    None
}

#[derive(Clone, Copy, PartialEq)]
enum Mark {
    New,
    /// The template is on the current path.
    Open,
    Done,
}

fn references<'a>(instructions: &'a [Instruction], names: &mut Vec<&'a Name>) {
    for instruction in instructions {
        let inside = match instruction {
            Instruction::Static(name) => {
                names.push(name);
                continue;
            }
            Instruction::Group(group) => &group.instructions,
            Instruction::Sequence(sequence) => &sequence.instructions,
            Instruction::Field(_) | Instruction::Dynamic => continue,
        };
        if !matches!(inside[..], [Instruction::Static(_)]) {
            references(inside, names);
        }
    }
}
