//! A graph for Graphviz.

use super::state::CULPRIT;
use super::{Graph, Stage};

pub(super) fn draw(graph: &Graph) -> String {
    let mut out = format!("digraph {} {{\n", quoted(&graph.name));
    out += "  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=sans]\n";
    out += "  edge [fontname=monospace, fontsize=10]\n";
    for (n, stage) in graph.stages.iter().enumerate() {
        let Stage { outline, ran } = stage;
        let head = [outline.id.clone(), format!("{} · {}", stage.operation(), outline.kind)];
        let label: Vec<_> = head.into_iter().chain(stage.lines()).collect();
        let mut attributes = format!("label={}", quoted(&label.join("\n")));
        if let Some(state) = stage.state() {
            let (fill, text) = state.colors();
            attributes += &format!(", fillcolor=\"{fill}\", fontcolor=\"{text}\"");
        }
        if ran.as_ref().is_some_and(|ran| ran.is_limit) {
            attributes += &format!(", color=\"{CULPRIT}\", penwidth=4");
        }
        out += &format!("  s{n} [{attributes}]\n");
    }
    out += &format!("  you [label={}, shape=ellipse]\n", quoted(&graph.you()));
    for (n, stage) in graph.stages.iter().enumerate() {
        let to = graph.target(n);
        out += &format!("  s{n} -> {to} [label={}]\n", quoted(&stage.yields().to_string()));
    }
    out + "}\n"
}

/// A string of Graphviz's: only quotes and backslashes are special in it, and a line's end.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{text}\"")
}
