//! A graph for Mermaid, which Markdown on many sites draws.

use super::state::{CULPRIT, State};
use super::{Graph, Stage};

pub(super) fn draw(graph: &Graph) -> String {
    let mut out = format!("---\ntitle: {}\n---\nflowchart TD\n", quoted(&graph.name));
    for (n, stage) in graph.stages.iter().enumerate() {
        let Stage { outline, .. } = stage;
        let head = [format!("<b>{}</b>", escaped(&outline.id)), {
            escaped(&format!("{} · {}", stage.operation(), outline.kind))
        }];
        let lines = stage.lines().into_iter().map(|line| escaped(&line));
        let label: Vec<_> = head.into_iter().chain(lines).collect();
        out += &format!("  s{n}[\"{}\"]\n", label.join("<br/>"));
    }
    out += &format!("  you([\"{}\"])\n", escaped(&graph.you()));
    for (n, stage) in graph.stages.iter().enumerate() {
        let to = graph.target(n);
        out += &format!("  s{n} -->|\"{}\"| {to}\n", escaped(&stage.yields().to_string()));
    }
    for state in State::ALL {
        let (fill, text) = state.colors();
        let is_it = |stage: &&(usize, &Stage)| stage.1.state() == Some(state);
        let stages: Vec<_> = graph.stages.iter().enumerate().collect();
        let ids: Vec<_> = stages.iter().filter(is_it).map(|(n, _)| format!("s{n}")).collect();
        if !ids.is_empty() {
            let word = state.word();
            out += &format!("  classDef {word} fill:{fill},color:{text}\n");
            out += &format!("  class {} {word}\n", ids.join(","));
        }
    }
    let limits = |stage: &Stage| stage.ran.as_ref().is_some_and(|ran| ran.is_limit);
    if let Some(n) = graph.stages.iter().position(limits) {
        out += &format!("  style s{n} stroke:{CULPRIT},stroke-width:4px\n");
    }
    out
}

/// Text between quotes of Mermaid's.
fn escaped(text: &str) -> String {
    text.replace('#', "#35;").replace('"', "#quot;").replace('<', "#lt;").replace('>', "#gt;")
}

/// Text of the front matter, which is YAML: a JSON string is one.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
