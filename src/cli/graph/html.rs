//! A graph as one page that needs nothing else: no script, no network.

use super::state::State;
use super::{Graph, Stage};

const PAGE: &str = include_str!("page.html");

pub(super) fn draw(graph: &Graph) -> String {
    let mut body = String::new();
    body += &column(graph, graph.stages.len() - 1);
    body += &format!("<div class=\"you\">{}</div>\n", escaped(&graph.you()));
    if let Some(verdict) = &graph.verdict {
        body += &format!("<p class=\"verdict\">{}</p>\n<ul>{}</ul>\n", escaped(verdict), legend());
    }
    // The page's own places, never those of what is put in.
    let (before, rest) = PAGE.split_once("{{TITLE}}").expect("the page has a title");
    let (between, rest) = rest.split_once("{{NAME}}").expect("the page has a heading");
    let (behind, after) = rest.split_once("{{BODY}}").expect("the page has a body");
    let name = escaped(&graph.name);
    [before, &name, between, &name, behind, &body, after].concat()
}

/// The chain that ends with stage `last`, below the columns of what flows into it.
fn column(graph: &Graph, last: usize) -> String {
    let before = |n: &usize| match graph.stages[*n].outline.after[..] {
        [before] => Some(before),
        _ => None,
    };
    let chain: Vec<usize> = std::iter::successors(Some(last), before).collect();
    let mut out = String::new();
    for n in chain.into_iter().rev() {
        let stage = &graph.stages[n];
        if let branches @ [_, _, ..] = &stage.outline.after[..] {
            let columns = branches.iter().map(|&branch| column(graph, branch));
            let columns = columns.map(|column| format!("<div>\n{column}</div>\n"));
            out += &format!("<div class=\"branches\">\n{}</div>\n", columns.collect::<String>());
        }
        out += &format!(
            "{}<div class=\"edge\"><span>{}</span></div>\n",
            card(stage),
            escaped(&stage.yields().to_string())
        );
    }
    out
}

fn card(stage: &Stage) -> String {
    let state = stage.state().map_or("", State::word);
    let limit = match &stage.ran {
        Some(ran) if ran.is_limit => " culprit",
        _ => "",
    };
    let bar: String = stage.ran.iter().flat_map(|ran| ran.states).map(share).collect();
    let bar = if bar.is_empty() { bar } else { format!("<div class=\"bar\">{bar}</div>") };
    let lines = stage.lines().into_iter().map(|line| format!("<small>{}</small>", escaped(&line)));
    format!(
        "<section class=\"{state}{limit}\"><b>{}</b><code>{}</code><i>{}</i>{bar}{}</section>\n",
        escaped(&stage.outline.id),
        escaped(&stage.operation()),
        stage.outline.kind,
        lines.collect::<String>(),
    )
}

fn share((state, share): (State, f64)) -> String {
    let (word, percent) = (state.word(), share * 100.0);
    format!(
        "<span class=\"{word}\" style=\"width:{percent:.1}%\" title=\"{word} {percent:.0} %\"></span>"
    )
}

fn legend() -> String {
    let each = State::ALL.map(State::word);
    each.map(|word| format!("<li class=\"{word}\">{word}</li>")).concat()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
