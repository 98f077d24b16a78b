//! A graph in characters, from the top down.

use super::Graph;
use super::state::State;

/// The graph, with each stage in the ANSI colour of its state if `color` is wanted.
pub(super) fn draw(graph: &Graph, color: bool) -> String {
    let Graph { name, stages, verdict, .. } = graph;
    let width = |text: fn(&super::Stage) -> usize| stages.iter().map(text).max().unwrap_or(0);
    let id = width(|stage| stage.outline.id.chars().count());
    let operation = width(|stage| stage.operation().chars().count());
    let mut out = format!("{name}\n\n");
    for (n, stage) in stages.iter().enumerate() {
        let kind = stage.outline.kind;
        let mark = match &stage.ran {
            Some(ran) if ran.is_limit => "  ◀ the limit",
            _ => "",
        };
        let (name, operator) = (&stage.outline.id, stage.operation());
        let line = format!("{name:id$}  {kind:6}  {operator:operation$}{mark}");
        out += &match stage.state().filter(|_| color) {
            Some(state) => format!("\x1b[1;{}m{}\x1b[0m\n", ansi(state), line.trim_end()),
            None => format!("{}\n", line.trim_end()),
        };
        for line in stage.lines() {
            out += &format!("  │   {line}\n");
        }
        // Of the branches that flow together, the last stands right above what they flow into.
        out += &match graph.next(n).filter(|next| *next != n + 1) {
            Some(next) => {
                format!("  ╰─▶ {}, to `{}`\n\n", stage.yields(), stages[next].outline.id)
            }
            None => format!("  ▼ {}\n", stage.yields()),
        };
    }
    out += &format!("{}\n", graph.you());
    if let Some(verdict) = verdict {
        out += &format!("\n{verdict}\n");
    }
    out
}

/// The colours of a live run.
fn ansi(state: State) -> u8 {
    match state {
        State::Working => 34,
        State::Starved => 37,
        State::Blocked => 90,
        State::Turn => 33,
        State::Limit => 35,
    }
}
