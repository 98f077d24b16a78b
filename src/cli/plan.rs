//! `plan`: what one pass over a pipeline's windows will cost, without reading any data.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::progress;
use super::terminal::{out, out_json, tell_problems};
use super::{Exit, Format, assignment, assignments, files};
use crate::definition::{Catalog, Definition, Planned, Problems, link_speed};
use crate::store::zarr::{self, Plan};
use crate::trace::{bytes, count};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The definition: a file, or a name in pipelines/
    file: PathBuf,
    /// Gives a variable, or the runtime key of a stage (decode.workers=8), a value
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// The link to the store, as bandwidth and latency: `10Gbit,30ms`
    #[arg(long, value_name = "LINK", value_parser = link_speed)]
    link: Option<(f64, Duration)>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn plan(args: &Args, catalog: &Catalog) -> Exit {
    match made(args, catalog) {
        Ok(plans) => {
            match args.format {
                Format::Text => out(&texts(&plans, args.link)),
                Format::Json => out_json(&jsons(&plans, args.link)),
            }
            Exit::Done
        }
        Err(problems) => {
            tell_problems(&problems, args.format);
            Exit::Wrong
        }
    }
}

fn made(args: &Args, catalog: &Catalog) -> Result<Vec<Planned>, Problems> {
    let file = files::find(&args.file);
    let definition = Definition::load(&file, catalog, &assignments(&args.set))?;
    progress::make_sample_for(&definition, false);
    definition.plan(catalog)
}

/// The plan of the only source, or those of all by name.
fn jsons(plans: &[Planned], link: Option<(f64, Duration)>) -> serde_json::Value {
    if let [only] = plans {
        return json(&only.plan, link);
    }
    let each = plans.iter().map(|Planned { source, plan, .. }| {
        let mut json = json(plan, link);
        json["source"] = source.clone().into();
        json
    });
    serde_json::json!({ "schema": 1, "sources": each.collect::<Vec<_>>() })
}

fn json(plan: &Plan, link: Option<(f64, Duration)>) -> serde_json::Value {
    let mut json = serde_json::json!({
        "schema": 1,
        "plan": plan,
        "amplification": plan.amplification(),
        "fetches_per_chunk": plan.fetches_per_chunk(),
        "advice": zarr::advice(plan),
    });
    if let Some((bytes_per_s, latency)) = link {
        json["link"] = serde_json::json!({
            "bytes_per_s": bytes_per_s,
            "latency_ms": latency.as_secs_f64() * 1e3,
            "seconds": plan.seconds(bytes_per_s, latency.as_secs_f64()),
        });
    }
    json
}

/// Of which dimensions the nearest entries are taken.
fn nearest(dims: &BTreeMap<String, String>) -> String {
    let dims: Vec<_> =
        dims.iter().map(|(dim, far)| format!("{dim} (at most {far} away)")).collect();
    match &dims[..] {
        [] => String::new(),
        dims => format!(", nearest in {}", dims.join(", ")),
    }
}

/// The plan of the only source, or those of all, and what they come to.
fn texts(plans: &[Planned], link: Option<(f64, Duration)>) -> String {
    if let [only] = plans {
        return text(&only.plan, link);
    }
    let each = plans.iter().map(|Planned { source, plan, .. }| {
        format!("{}\n{}\n", source.as_deref().unwrap_or("the others"), text(plan, link))
    });
    let sum = |of: fn(&Plan) -> u64| plans.iter().map(|planned| of(&planned.plan)).sum::<u64>();
    let all = format!(
        "{} requests for {} on the wire in all\n",
        count(sum(|plan| plan.requests)),
        bytes(sum(|plan| plan.wire_bytes) as f64)
    );
    each.chain([all]).collect()
}

fn text(plan: &Plan, link: Option<(f64, Duration)>) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, text: String| lines.push(format!("{name:14}{text}\n"));
    for variable in &plan.variables {
        let by = |shape: &[u64]| shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
        line(
            &variable.name,
            format!(
                "{} ({}) in chunks of {}, windows of {}{}",
                by(&variable.shape),
                variable.dims.join(", "),
                by(&variable.chunk),
                by(&variable.window),
                nearest(&variable.nearest)
            ),
        );
    }
    let per = plan.window_bytes / plan.windows.max(1);
    let left_out = match plan.left_out {
        0 => String::new(),
        n => format!(", {} left out", count(n)),
    };
    line("windows", format!("{} of {}{left_out}", count(plan.windows), bytes(per as f64)));
    line(
        "batches",
        format!("{}, the largest of {}", count(plan.batches), bytes(plan.batch_bytes as f64)),
    );
    line(
        "chunks",
        format!(
            "{}, each wanted {:.2} times and fetched {:.2} times",
            count(plan.chunks),
            plan.wanted as f64 / plan.chunks.max(1) as f64,
            plan.fetches_per_chunk()
        ),
    );
    line(
        "requests",
        format!("{} for {} on the wire", count(plan.requests), bytes(plan.wire_bytes as f64)),
    );
    line(
        "decoded",
        format!(
            "{}, {:.2} bytes for each byte that a window uses",
            bytes(plan.decoded_bytes as f64),
            plan.amplification()
        ),
    );
    line(
        "kept",
        format!("{} of chunks at most, for later windows", bytes(plan.cache_bytes as f64)),
    );
    if let Some((bytes_per_s, latency)) = link {
        let seconds = plan.seconds(bytes_per_s, latency.as_secs_f64());
        line(
            "bound",
            format!(
                "{:.1} s over this link at best: {:.1} batches/s, {}/s of windows",
                seconds,
                plan.batches as f64 / seconds,
                bytes(plan.window_bytes as f64 / seconds)
            ),
        );
    }
    if plan.looked_at < 1.0 {
        line("estimated", format!("from the first {:.1} % of the batches", 100.0 * plan.looked_at));
    }
    if plan.sizes_estimated {
        line("estimated", "sizes of some objects, from the mean of others".to_owned());
    }
    for advice in zarr::advice(plan) {
        line("try", advice);
    }
    lines.concat()
}
