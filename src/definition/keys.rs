//! The runtime keys of a stage: the same for all stages, read into [`Options`].

use std::path::PathBuf;
use std::time::Duration;

use super::check::only;
use super::problem::Problem;
use super::tree::{Key, Node, Value};
use super::units::{self, PerSecond};
use crate::options::{Buffer, OnError, Options, Ordered, Rate, Retry, RetryOn, SkipLimit, Workers};
use crate::stage::Kind;
use crate::store::is_transient;

/// Every runtime key. `id`, `kind`, `doc` and `when` say nothing about how calls are made.
pub(crate) const KEYS: [&str; 12] = [
    "id", "kind", "doc", "when", "workers", "buffer", "ordered", "timeout", "deadline", "retry",
    "rate", "on_error",
];
/// Those that say how calls are made, which can have defaults and be set.
pub(crate) const SETTINGS: &[&str] = KEYS.split_at(4).1;

/// The keys that mean something to stages that make no calls.
const KEYS_OF_ALL: [&str; 5] = ["id", "kind", "doc", "when", "buffer"];

/// Reads the runtime keys among `entries` into options; `entries` holds nothing else.
pub(crate) fn read<'a>(
    entries: impl IntoIterator<Item = (&'a Key, &'a Node)>,
    kind: Option<Kind>,
    problems: &mut Vec<Problem>,
) -> Options {
    let mut options = Options::default();
    for (key, node) in entries {
        if let Some(kind @ (Kind::Source | Kind::Flow)) = kind
            && !KEYS_OF_ALL.contains(&key.text.as_str())
        {
            let message = format!("`{}` does not apply to a {kind} stage", key.text);
            problems.push(
                Problem::new("forebay::key", message, &key.place, "here")
                    .help("it runs in one task and makes no calls: leave the key out"),
            );
            continue;
        }
        if node.is_unknown() {
            continue;
        }
        let read = match key.text.as_str() {
            "id" => id(node).map(|id| options.id = Some(id.to_owned())),
            "kind" | "doc" => text(node).map(|_| ()),
            // Read before, as it decides whether there is a stage.
            "when" => Ok(()),
            "workers" => workers(node).map(|workers| options.workers = Some(workers)),
            "buffer" => buffer(node, problems).map(|buffer| options.buffer = Some(buffer)),
            "ordered" => ordered(node, problems).map(|ordered| options.ordered = Some(ordered)),
            "timeout" => time(node).map(|time| options.timeout = Some(time)),
            "deadline" => time(node).map(|time| options.deadline = Some(time)),
            "retry" => retry(node, problems).map(|retry| options.retry = Some(retry)),
            "rate" => rate(node, problems).map(|rate| options.rate = Some(rate)),
            "on_error" => on_error(node, problems).map(|policy| options.on_error = Some(policy)),
            other => unreachable!("`{other}` is no runtime key"),
        };
        if let Err(why) = read {
            let message = format!("`{}` can't be read: {why}", key.text);
            problems.push(Problem::new("forebay::key", message, &node.place, "here"));
        }
    }
    options
}

type Read<T> = Result<T, String>;

/// Whether a stage is there, as its `when` says.
pub(super) fn when(node: &Node) -> Read<bool> {
    match &node.value {
        Value::Bool(is) => Ok(*is),
        Value::Text(text) if text == "gpu" => {
            Ok(crate::device::cuda::count().is_ok_and(|gpus| gpus > 0))
        }
        Value::Unknown => Ok(true),
        _ => Err(format!(
            "it is {}: write `gpu` (there only where a GPU is), true, false, or a variable of type \
             bool, `$(name)`",
            node.kind()
        )),
    }
}

fn text(node: &Node) -> Read<&str> {
    node.as_text().ok_or_else(|| format!("it is {}, not text", node.kind()))
}

fn id(node: &Node) -> Read<&str> {
    let id = text(node)?;
    let is_right = !id.trim().is_empty()
        && id.chars().count() <= 100
        && !id.chars().any(|c| c.is_control() || c == '=');
    match is_right {
        true => Ok(id),
        false => {
            Err("it is empty, has more than 100 characters, or a control character or `=` among \
                      them: write a name such as `read`"
                .to_owned())
        }
    }
}

fn count(node: &Node, least: u64) -> Read<u64> {
    match node.value {
        Value::Int(n) if n >= i128::from(least) => {
            u64::try_from(n).map_err(|_| format!("{n} is too large"))
        }
        Value::Int(n) => Err(format!("it is {n}: write {least} or more")),
        _ => Err(format!("it is {}: write a whole number such as 64", node.kind())),
    }
}

fn time(node: &Node) -> Read<Duration> {
    let time = match &node.value {
        Value::Text(text) => units::duration(text)?,
        Value::Int(n) => units::duration(&n.to_string())?,
        Value::Float(x) => units::duration(&x.to_string())?,
        _ => return Err(format!("it is {}, not a time such as `30s`", node.kind())),
    };
    if time.is_zero() {
        return Err("it is no time at all: leave it out for no limit".to_owned());
    }
    Ok(time)
}

pub(super) fn size(node: &Node) -> Read<u64> {
    let size = match &node.value {
        Value::Text(text) => units::bytes(text)?,
        Value::Int(n) => units::bytes(&n.to_string())?,
        _ => return Err(format!("it is {}, not a size such as `2GiB`", node.kind())),
    };
    if size == 0 { Err("it is 0: one item always fits, write 1B".to_owned()) } else { Ok(size) }
}

fn workers(node: &Node) -> Read<Workers> {
    let forms = "write a count, a share of the cores such as `50%`, or `auto`";
    match &node.value {
        Value::Text(text) if text == "auto" => Ok(Workers::Auto),
        Value::Text(text) => match units::share(text) {
            Some(Ok(0.0)) => Err("it is no worker at all: write more than 0%".to_owned()),
            Some(share) => share.map(Workers::Share),
            None => Err(format!("`{text}` is no number of workers: {forms}")),
        },
        Value::Int(0) => Err("it is 0: write 1 or more, or `auto`".to_owned()),
        Value::Int(_) => match count(node, 1)? {
            n @ 1..=65_536 => Ok(Workers::Count(n as usize)),
            n => Err(format!("it is {n}: write at most 65536")),
        },
        _ => Err(format!("it is {}: {forms}", node.kind())),
    }
}

fn items(node: &Node) -> Read<usize> {
    match count(node, 1)? {
        n @ 1..=16_777_216 => Ok(n as usize),
        n => Err(format!("it is {n}: write at most 16777216 items")),
    }
}

fn buffer(node: &Node, problems: &mut Vec<Problem>) -> Read<Buffer> {
    match &node.value {
        Value::Int(_) => items(node).map(Buffer::from),
        Value::Map(_) => {
            only("`buffer`", node, &["items", "bytes"], problems);
            let default = Buffer::default();
            Ok(Buffer {
                items: node.get("items").map_or(Ok(default.items), items)?,
                bytes: node.get("bytes").map_or(Ok(default.bytes), size)?,
            })
        }
        _ => Err(format!(
            "it is {}: write a count of items, or `{{ items: 16, bytes: 2GiB }}`",
            node.kind()
        )),
    }
}

fn ordered(node: &Node, problems: &mut Vec<Problem>) -> Read<Ordered> {
    match &node.value {
        Value::Bool(true) => Ok(Ordered::Window(None)),
        Value::Bool(false) => Ok(Ordered::No),
        Value::Map(_) => {
            only("`ordered`", node, &["window"], problems);
            let window = node.get("window").map(items).transpose()?;
            Ok(Ordered::Window(window))
        }
        _ => Err(format!("it is {}: write true, false or `{{ window: 64 }}`", node.kind())),
    }
}

fn retry(node: &Node, problems: &mut Vec<Problem>) -> Read<Retry> {
    let times = |node: &Node| {
        let n = count(node, 0)?;
        u32::try_from(n).map_err(|_| format!("{n} is too many"))
    };
    match &node.value {
        Value::Int(_) => Ok(Retry::times(times(node)?).on(RetryOn::When(is_transient))),
        Value::Map(_) => {
            only("`retry`", node, &["max", "backoff", "on"], problems);
            let max = node.get("max").map_or(Ok(3), times)?;
            let mut retry = Retry::times(max).on(RetryOn::When(is_transient));
            if let Some(node) = node.get("backoff") {
                let Some(text) = node.as_text() else {
                    return Err(format!(
                        "`backoff` is {}: write the shortest and longest pause, `200ms..20s`",
                        node.kind()
                    ));
                };
                let (first, most) = units::durations(text)?;
                retry = retry.backoff(first, most);
            }
            if let Some(node) = node.get("on") {
                retry = retry.on(match node.as_text().unwrap_or(node.kind()) {
                    "any" => RetryOn::Any,
                    "timeout" => RetryOn::Timeouts,
                    "transient" => RetryOn::When(is_transient),
                    other => {
                        return Err(format!(
                            "`on` is `{other}`: write any, transient (a store's passing \
                             failures and timeouts) or timeout"
                        ));
                    }
                });
            }
            Ok(retry)
        }
        _ => Err(format!(
            "it is {}: write a count, or `{{ max: 5, backoff: 200ms..20s }}`",
            node.kind()
        )),
    }
}

fn rate(node: &Node, problems: &mut Vec<Problem>) -> Read<Rate> {
    let positive = |rate: f64| {
        if rate > 1e-9 { Ok(rate) } else { Err("it is 0: nothing would ever start".to_owned()) }
    };
    let one = |node: &Node| units::rate(text(node)?);
    match &node.value {
        Value::Text(_) => match one(node)? {
            PerSecond::Calls(n) => positive(n).map(Rate::requests),
            PerSecond::Bytes(n) => positive(n).map(Rate::bytes),
        },
        Value::Map(_) => {
            only("`rate`", node, &["requests", "bytes", "burst"], problems);
            let mut rate = Rate::default();
            if let Some(node) = node.get("requests") {
                let PerSecond::Calls(n) = one(node)? else {
                    return Err("`requests` has a unit of size: write `300/s`".to_owned());
                };
                rate.requests_per_s = Some(positive(n)?);
            }
            if let Some(node) = node.get("bytes") {
                let PerSecond::Bytes(n) = one(node)? else {
                    return Err("`bytes` has no unit of size: write `400MB/s`".to_owned());
                };
                rate.bytes_per_s = Some(positive(n)?);
            }
            if rate == Rate::default() {
                return Err(
                    "it says no rate: write `{ requests: 300/s }`, `{ bytes: 400MB/s }` or both"
                        .to_owned(),
                );
            }
            if let Some(node) = node.get("burst") {
                rate.burst = Some(items(node)? as u32);
            }
            Ok(rate)
        }
        _ => Err(format!("it is {}: write `300/s` or `400MB/s`", node.kind())),
    }
}

fn on_error(node: &Node, problems: &mut Vec<Problem>) -> Read<OnError> {
    let forms = "write fail, skip, or `{ skip: 100, log: bad.jsonl }`";
    match &node.value {
        Value::Text(text) if text == "fail" => Ok(OnError::Fail),
        Value::Text(text) if text == "skip" => Ok(OnError::skip()),
        Value::Map(_) => {
            only("`on_error`", node, &["skip", "log"], problems);
            let Some(skip) = node.get("skip") else {
                return Err(format!("it does not say how many to skip: {forms}"));
            };
            let max = match &skip.value {
                Value::Text(text) if text == "any" => SkipLimit::Any,
                Value::Text(text) => match units::share(text) {
                    Some(share) => SkipLimit::Share(share?),
                    None => return Err(format!("`{text}` is no limit: write 100, 0.1% or any")),
                },
                _ => SkipLimit::Count(count(skip, 0)?),
            };
            let log = node.get("log").map(|node| text(node).map(PathBuf::from)).transpose()?;
            Ok(OnError::Skip { max, log })
        }
        _ => Err(format!("it is {}: {forms}", node.kind())),
    }
}
