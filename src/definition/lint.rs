//! What runs, but was hardly meant: warnings with a place and what to write instead.

use super::check::Step;
use super::flow::Flow;
use super::problem::Problem;
use super::tree::{Place, Value};
use crate::device::cuda;
use crate::options::{Options, Ordered, Workers};
use crate::trace::{bytes, count};

/// A call that takes longer than this to keep all workers busy at the rate that is set is unlikely.
const CALL_S: f64 = 1.0;

/// A stage and the one before it.
pub(super) struct Steps<'a> {
    pub(super) step: &'a Step,
    pub(super) previous: Option<&'a Step>,
}

/// Looks at one stage, and what flows into and out of it.
pub(super) fn stage(
    steps: &Steps<'_>,
    options: &Options,
    (before, after): (&Flow, &Flow),
    problems: &mut Vec<Problem>,
) {
    let step = steps.step;
    problems.extend(order(steps, before));
    problems.extend(group(step, before));
    problems.extend(empty(step, before, after));
    problems.extend(large(step, options, after));
    problems.extend(rate(step, options));
    problems.extend(unused(step, after));
    problems.extend(device(step));
}

fn warn(code: &'static str, message: String, place: &Place, label: &str) -> Problem {
    Problem::new(code, message, place, label).warning()
}

/// Branches whose n-th items may not belong together.
pub(super) fn zip(step: &Step, all: &[Step], branches: &[Flow], problems: &mut Vec<Problem>) {
    let code = "forebay::lint::zip";
    let ends = |problem: Problem, label: &dyn Fn(usize) -> String| {
        let places = step.after.iter().map(|&at| &all[at].key.place).enumerate();
        places.fold(problem, |problem, (n, place)| problem.and(place, label(n)))
    };
    let items: Vec<_> = branches.iter().filter_map(|flow| flow.items).collect();
    if items.len() == branches.len() && items.iter().any(|n| *n != items[0]) {
        let message = "the branches have different numbers of items";
        let label = "it ends with the shortest of them";
        problems.push(
            ends(warn(code, message.to_owned(), &step.key.place, label), &|n| {
                format!("{} items at most", count(items[n]))
            })
            .help("choose windows of the same times in all of them, such as with `select`"),
        );
    }
    let shuffles: Vec<Vec<_>> = (step.after.iter())
        .map(|&end| {
            let chain = std::iter::successors(Some(&all[end]), |step| match step.after[..] {
                [before] => Some(&all[before]),
                _ => None,
            });
            let shuffles = chain.filter(|step| step.key.text == "shuffle");
            // Without a seed of its own it is seeded by its id.
            let seed = |step: &'_ Step| match step.node.get("seed") {
                Some(_) => String::new(),
                None => step.own_id().to_owned(),
            };
            shuffles.map(|step| (seed(step), step.node.to_json())).collect()
        })
        .collect();
    if shuffles.iter().any(|of| *of != shuffles[0]) {
        let message = "the branches are shuffled in different ways".to_owned();
        let label = "pairs are made here, by position";
        problems.push(
            ends(warn(code, message, &step.key.place, label), &|n| match shuffles[n].len() {
                0 => "not shuffled".to_owned(),
                _ => "shuffled".to_owned(),
            })
            .help(
                "write the same `shuffle` in all branches: with the same arguments it gives the \
                 same order",
            ),
        );
    }
}

/// Order that is restored and thrown away by the next stage.
fn order(steps: &Steps<'_>, before: &Flow) -> Option<Problem> {
    let previous = steps.previous?;
    let place = previous.places.get("ordered")?;
    let is_lost = steps.step.key.text == "shuffle" && !before.by_position;
    if !is_lost || matches!(previous.options.ordered, None | Some(Ordered::No)) {
        return None;
    }
    let message = format!("order is restored after `{}` and then thrown away", previous.id);
    let label = "every straggler holds up the items behind it";
    Some(
        warn("forebay::lint::order", message, place, label)
            .and(&steps.step.key.place, "order ends here")
            .help(
                "write `ordered: false`, unless two runs must shuffle alike: the seed needs a fixed \
                 order to start from",
            ),
    )
}

/// A batch that is larger than the stream.
fn group(step: &Step, before: &Flow) -> Option<Problem> {
    if step.key.text != "batch" {
        return None;
    }
    let size = step.node.get("size").unwrap_or(&step.node);
    let Value::Int(n) = size.value else { return None };
    let items = before.items.filter(|items| i128::from(*items) < n && *items > 0)?;
    let drops = step.node.get("drop_last").is_some_and(|node| node.value == Value::Bool(true));
    let message = match drops {
        true => format!("nothing comes out of `{}`: a batch of {n} is never full", step.id),
        false => format!("the only batch of `{}` has {} of {n} items", step.id, count(items)),
    };
    let label = format!("there are {} items at most", count(items));
    let problem = warn("forebay::lint::batch", message, &size.place, &label);
    Some(problem.help(format!("write {} or less", count(items))))
}

/// Nothing flows.
fn empty(step: &Step, before: &Flow, after: &Flow) -> Option<Problem> {
    let ends = after.items == Some(0) && before.items != Some(0) && step.key.text != "batch";
    let message = format!("nothing comes out of `{}`", step.id);
    let problem = || warn("forebay::lint::empty", message, &step.key.place, "no item is left here");
    ends.then(problem).map(|problem| problem.help("take or choose more, or skip fewer"))
}

/// An item that is larger than what may wait.
fn large(step: &Step, options: &Options, after: &Flow) -> Option<Problem> {
    let buffer = options.buffer.unwrap_or_default();
    // How well chunks are compressed is not known: most are far below what they have at most.
    let is_known = !after.by_position && after.encoded.is_none();
    let each = after.bytes.filter(|each| *each > buffer.bytes && is_known)?;
    let (each, most) = (bytes(each as f64), bytes(buffer.bytes as f64));
    let message = format!("an item of `{}` is larger than its buffer", step.id);
    let place = step.places.get("buffer").unwrap_or(&step.key.place);
    let label = format!("holds {most}, an item has {each}");
    Some(warn("forebay::lint::buffer", message, place, &label).help(
        "one item always fits, so that one waits at a time: give `buffer: { bytes: ... }` room for \
         some, or make items smaller",
    ))
}

/// A rate at which most workers have nothing to do.
fn rate(step: &Step, options: &Options) -> Option<Problem> {
    let per_s = options.rate?.requests_per_s?;
    let (Some(Workers::Count(workers)), Some(place)) = (options.workers, step.places.get("rate"))
    else {
        return None;
    };
    let busy_s = workers as f64 / per_s;
    if busy_s <= CALL_S || workers == 1 {
        return None;
    }
    let message = format!("the rate of `{}` leaves most of its {workers} workers idle", step.id);
    let label = format!("all are busy only if a call takes {busy_s:.1} s");
    let needed = (per_s * 0.1).ceil().max(1.0);
    let problem = warn("forebay::lint::rate", message, place, &label);
    Some(
        match step.places.get("workers") {
            Some(at) => problem.and(at, format!("calls of 100 ms need {needed}")),
            None => problem,
        }
        .help("write fewer workers, or a higher rate"),
    )
}

/// A buffer where nothing waits; that of a source stands behind what is computed of its items.
fn unused(step: &Step, after: &Flow) -> Option<Problem> {
    let place = step
        .places
        .get("buffer")
        .filter(|_| after.by_position && step.key.text != "zarr.windows")?;
    let message = format!("the buffer of `{}` is never used", step.id);
    let label = "its items are computed by position and wait nowhere";
    let problem = warn("forebay::lint::buffer", message, place, label);
    Some(problem.help("leave it out: the buffer of the source stands behind it"))
}

/// A GPU that this machine does not have: the pipeline may be for another one.
fn device(step: &Step) -> Option<Problem> {
    if step.key.text != "device.upload" {
        return None;
    }
    let node = step.node.get("device").unwrap_or(&step.node);
    let name = node.as_text()?;
    let number = match name.strip_prefix("cuda")? {
        "" => 0,
        numbered => numbered.strip_prefix(':')?.parse::<u32>().ok()?,
    };
    let there = cuda::count().unwrap_or(0);
    if u64::from(number) < there as u64 {
        return None;
    }
    let label = match there {
        0 => "it has no GPU".to_owned(),
        1 => "it has one GPU, `cuda:0`".to_owned(),
        n => format!("it has {n} GPUs, `cuda:0` to `cuda:{}`", n - 1),
    };
    let message = format!("this machine has no device `{name}`: the pipeline does not run on it");
    let problem = warn("forebay::lint::device", message, &node.place, &label);
    Some(problem.help("write `auto`, which is the host where there is no GPU, or run it elsewhere"))
}
