//! What a definition says of going on: where the place of a run is kept, and how another one enters
//! there.

use std::time::Duration;

use super::catalog::{Asked, Form};
use super::check::{Checked, Step, only};
use super::problem::Problem;
use super::tree::{Node, Place, Value};
use super::units;
use crate::checkpoint::{Checkpoint, Every};
use crate::entering::{Entered, Entering, Entry};
use crate::options::Options;
use crate::stage::Kind;

/// Reads `checkpoint: { path: FILE, every: 500 }`.
pub(super) fn checkpoint(node: &Node, problems: &mut Vec<Problem>) -> Option<(Checkpoint, Place)> {
    let mut wrong = |place: &Place, message: &str| {
        let help = "write `checkpoint: { path: run.ckpt, every: 500 }`, or a time, `every: 30s`";
        problems.push(Problem::new("forebay::key", message, place, "here").help(help));
    };
    if node.is_unknown() {
        return None;
    }
    if !matches!(node.value, Value::Map(_)) {
        wrong(&node.place, &format!("`checkpoint` is {}, not a mapping", node.kind()));
        return None;
    }
    let path = match node.get("path").map(|path| (path, path.as_text())) {
        Some((_, Some(path))) if !path.is_empty() => Some(path),
        Some((path, _)) if path.is_unknown() => None,
        Some((path, _)) => {
            wrong(&path.place, "`path` is not the name of a file");
            None
        }
        None => {
            wrong(&node.place, "`checkpoint` does not say in which file: `path` is missing");
            None
        }
    };
    let every = match node.get("every").map(|every| (every, every_of(every))) {
        Some((_, Ok(every))) => every,
        Some((node, Err(why))) => {
            wrong(&node.place, &format!("`every`: {why}"));
            Every::default()
        }
        None => Every::default(),
    };
    only("`checkpoint`", node, &["path", "every"], problems);
    Some((Checkpoint::new(path?).every(every), node.place.clone()))
}

fn every_of(node: &Node) -> Result<Every, String> {
    match &node.value {
        Value::Unknown => Ok(Every::default()),
        Value::Int(n) => match u64::try_from(*n) {
            Ok(items @ 1..) => Ok(Every::Items(items)),
            _ => Err(format!("it is {n}: write 1 or more")),
        },
        Value::Text(text) if text.ends_with(" items") || text.ends_with(" batches") => {
            match text.split_once(' ').and_then(|(n, _)| n.parse().ok()) {
                Some(items @ 1..) => Ok(Every::Items(items)),
                _ => Err(format!("`{text}` is no number of items: write `500 batches`")),
            }
        }
        Value::Text(text) => match units::duration(text)? {
            Duration::ZERO => Err("it is no time at all: `every: 1` is after each item".to_owned()),
            time => Ok(Every::Time(time)),
        },
        _ => Err(format!("it is {}: write a count of items, or a time", node.kind())),
    }
}

/// Collects what the stages of a definition say of where they can be entered.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// `None` of a stage that does not say.
    stages: Vec<(String, Kind, Option<Entering>)>,
}

impl Entries {
    /// Takes in the stage of `step`; `is_by_position` is what flows out of it.
    pub(super) fn add(
        &mut self,
        (step, kind): (&Step, Kind),
        (form, options): (&Form, &Options),
        asked: &Asked<'_>,
        is_by_position: bool,
    ) {
        if is_by_position {
            return;
        }
        let says = form.entering.as_ref().and_then(|entering| entering(asked));
        // What leaves as it finishes can't be entered, whatever it is.
        let says = match Entering::One.ordered(options.ordered) {
            Entering::One => says,
            unordered => Some(unordered),
        };
        self.stages.push((step.id.clone(), kind, says));
    }

    /// How a run goes on, as far as the stages say.
    pub(super) fn entry(&self) -> Option<Entry> {
        let entered = |entering: &dyn Fn(Option<Entering>) -> Option<Entering>| {
            let stages = self.stages.iter().filter_map(|(id, kind, says)| {
                entering(*says).map(|entering| Entered { id, kind: *kind, entering })
            });
            Entry::through(stages)
        };
        // What one stage says is enough to make it impossible.
        match entered(&|says| says) {
            never @ Entry::Never { .. } => Some(never),
            entry if self.stages.iter().all(|(.., says)| says.is_some()) => Some(entry),
            _ => None,
        }
    }
}

/// The order of `checked` must not depend on timing, but does because of what a stage says.
pub(super) fn never(entry: &Entry, checked: &Checked) -> Option<Problem> {
    let Entry::Never { stage, why } = entry else { return None };
    let step = checked.steps.iter().find(|step| step.id == *stage)?;
    let (why, help) = why.split_once(": ").unwrap_or((why, "leave it out"));
    let (code, what, asked) = match (&checked.run.deterministic, &checked.run.checkpoint) {
        (Some(place), _) => ("forebay::deterministic", "the order depends on timing", place),
        (None, Some((_, place))) => {
            ("forebay::checkpoint", "no run can go on from a checkpoint", place)
        }
        (None, None) => return None,
    };
    let at = step.places.get("ordered").unwrap_or(&step.key.place);
    let problem = Problem::new(code, format!("{what}: `{stage}` {why}"), at, "here");
    Some(problem.and(asked, "this is asked for here").help(help))
}
