//! Draws what `top` knows, into whatever room there is.

use ratatui::Frame;
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::bars::{STATES, fill, states};
use super::columns::Columns;
use super::model::{Model, Over, Panel, Sort};
use crate::stage::Kind;
use crate::trace::{
    Cause, Ended, RunStats, StageStats, Verdict, YOU, bytes, duration, percent, rate,
};

const HELP: [&str; 8] = [
    "up, down   choose a stage",
    "+ -        change its workers",
    "s          busiest first, or in order",
    "b          who waits for whom",
    "p          pause the display",
    "? Esc      this help, and back",
    "q Ctrl-C   quit; the run goes on",
    "bars       ",
];

/// Draws all.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    if width == 0 || height == 0 {
        return;
    }
    let panel = panel(model);
    let has_footer = height >= 4;
    let has_heads = height >= 6;
    let mut room = height - 1 - usize::from(has_footer) - usize::from(has_heads);
    // A panel takes the room that the stages leave, or all of it where there is little.
    let stages = model.now().stages.len() + 4;
    let for_panel = match panel.len() {
        0 => 0,
        n if room < stages + n && room < 10 => room,
        n => n.min(room.saturating_sub(stages).max(room / 2)),
    };
    room -= for_panel;
    let mut lines = vec![header(model, width)];
    if room > 0 {
        let columns = columns(model, width);
        if has_heads {
            lines.push(heads(&columns));
        }
        lines.extend(body(model, &columns, width, room));
    }
    lines.truncate(height - usize::from(has_footer) - for_panel);
    lines.resize(height - usize::from(has_footer) - for_panel, Line::default());
    lines.extend(panel.into_iter().take(for_panel));
    lines.resize(height - usize::from(has_footer), Line::default());
    if has_footer {
        lines.push(footer(model));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn columns(model: &Model, width: usize) -> Columns {
    let ids = model.now().stages.iter().map(|stage| stage.id.chars().count());
    Columns::of(width, ids.chain([YOU.len()]).max().unwrap_or(0))
}

fn header(model: &Model, width: usize) -> Line<'static> {
    let (report, lately) = (model.now(), model.lately());
    let seconds = lately.elapsed.as_secs_f64().max(1e-9);
    let time = duration((report.seconds * 1e9) as u64);
    let how = match (model.over, report.ended) {
        (Some(Over::Gone), _) => "gone after",
        (_, None) => "running for",
        (_, Some(Ended::Finished)) => "finished in",
        (_, Some(Ended::Stopped)) => "stopped after",
        (_, Some(Ended::Failed)) => "failed after",
        (_, Some(Ended::Cancelled)) => "cancelled after",
    };
    let name = Span::raw(model.name.clone()).bold();
    let items = format!("{} items/s", rate(lately.items as f64 / seconds));
    let verb = if width < 60 { "wait" } else { "waited" };
    let waited = format!("you {verb} {}", percent(lately.waited_share()));
    let mut parts = vec![
        name,
        Span::raw(format!(" ({})", model.pid)).dim(),
        Span::raw(format!("  {how} {time}")),
        Span::raw(format!("  {items}")).bold(),
        Span::raw(format!("  {}/s", bytes(lately.bytes as f64 / seconds))),
        Span::raw(format!("  {waited}")),
    ];
    // In a narrow terminal what can be spared goes first.
    for spare in [1, 3, 1] {
        if parts.iter().map(Span::width).sum::<usize>() > width && parts.len() > spare + 1 {
            parts.remove(spare);
        }
    }
    Line::from(parts)
}

fn heads(columns: &Columns) -> Line<'static> {
    let Columns { id, kind, workers, items, could_do, p50, p99, states, fill, held } = *columns;
    let mut text = format!("  {:id$}", "stage");
    for (head, width) in [
        ("kind", kind),
        ("workers", workers),
        ("items/s", items),
        ("could do", could_do),
        ("p50", p50),
        ("p99", p99),
    ] {
        let head = if head == "workers" && width < 8 { "wrk" } else { head };
        text += &right(head, width);
    }
    let head = if states >= 20 { "where its workers are" } else { "workers are" };
    text += &format!(" {}", left(head, states));
    if fill > 0 {
        text += &left(" buffer", fill + held);
    }
    Line::from(text).dim()
}

/// The stages and the consumer, with the bottleneck's sentence where it belongs.
fn body(model: &Model, columns: &Columns, width: usize, room: usize) -> Vec<Line<'static>> {
    let (lately, interval, verdict) = (model.lately(), model.last_interval(), model.verdict());
    let mut lines = Vec::new();
    let mut selected = 0..0;
    for stage in model.sorted(&interval) {
        let is_selected = stage.id == model.selected;
        let start = lines.len();
        let of_late = lately.stages.iter().find(|other| other.id == stage.id);
        let guilty = verdict.stage.as_ref() == Some(&stage.id);
        let row = row(columns, &stage, of_late.unwrap_or(&stage), &lately, is_selected, guilty);
        lines.push(row);
        if guilty {
            lines.extend(sentence(&verdict, width, room));
        }
        if is_selected {
            selected = start..lines.len();
        }
    }
    let mut last = vec![you(columns, &lately, &interval)];
    if verdict.stage.as_deref().is_none_or(|stage| stage == YOU) {
        last.extend(sentence(&verdict, width, room));
    }
    last.truncate(room);
    // The consumer stays at the bottom, the selected stage in sight.
    let room = room - last.len();
    let first = selected.end.saturating_sub(room).min(selected.start);
    let mut lines: Vec<_> = lines.into_iter().skip(first).take(room).collect();
    lines.extend(last);
    lines
}

fn sentence(verdict: &Verdict, width: usize, room: usize) -> Vec<Line<'static>> {
    let style = match verdict.cause {
        Cause::Unknown => Style::new().add_modifier(Modifier::DIM),
        _ => Style::new().fg(Color::Indexed(214)).add_modifier(Modifier::BOLD),
    };
    let most = if room < 10 { 1 } else { 3 };
    let told = wrapped(&format!("▲ {}", verdict.sentence), width.saturating_sub(2));
    let mut lines: Vec<_> = told.into_iter().take(most).collect();
    if room >= 14
        && let Some(advice) = &verdict.advice
    {
        lines.extend(wrapped(&format!("  try: {advice}"), width.saturating_sub(2)));
    }
    lines.into_iter().map(|line| Line::styled(format!("  {line}"), style)).collect()
}

/// Lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(format!("  {word}"));
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn row(
    columns: &Columns,
    now: &StageStats,
    lately: &StageStats,
    run: &RunStats,
    is_selected: bool,
    guilty: bool,
) -> Line<'static> {
    let seconds = run.elapsed.as_secs_f64().max(1e-9);
    let calls = now.service.count > 0;
    let or_dash = |text: String| if calls { text } else { "–".to_owned() };
    let items = if now.kind == Kind::Source { lately.items_out } else { lately.items_in };
    let workers = match now.workers_set {
        set if set == now.workers => set.to_string(),
        set => format!("{}→{set}", now.workers),
    };
    let mut style = Style::new();
    if guilty {
        style = style.fg(Color::Indexed(214)).add_modifier(Modifier::BOLD);
    }
    if is_selected {
        style = style.add_modifier(Modifier::REVERSED);
    }
    let mark = if is_selected { "▸ " } else { "  " };
    let figures = [
        (now.kind.to_string(), columns.kind),
        (workers, columns.workers),
        (rate(items as f64 / seconds), columns.items),
        (or_dash(rate(lately.could_do_per_s())), columns.could_do),
        (or_dash(duration(now.service.p50_ns)), columns.p50),
        (or_dash(duration(now.service.p99_ns)), columns.p99),
    ];
    let mut spans = vec![Span::raw(mark), Span::styled(left(&now.id, columns.id), style)];
    spans.extend(figures.into_iter().map(|(text, width)| Span::raw(right(&text, width))));
    spans.push(Span::raw(" "));
    spans.extend(states(now.states.shares(), columns.states));
    if columns.fill > 0 {
        spans.push(Span::raw(" "));
        spans.extend(fill(&now.buffer, columns.fill - 1));
    }
    if columns.held > 0 {
        let held = format!(" {}, {}", now.buffer.items, bytes(now.buffer.bytes as f64));
        spans.push(Span::raw(left(&held, columns.held)).dim());
    }
    Line::from(spans)
}

fn you(columns: &Columns, lately: &RunStats, interval: &RunStats) -> Line<'static> {
    let seconds = lately.elapsed.as_secs_f64().max(1e-9);
    let per_s = lately.items as f64 / seconds;
    let figures = [
        (String::new(), columns.kind),
        ("–".to_owned(), columns.workers),
        (rate(per_s), columns.items),
        (rate(per_s / (1.0 - lately.waited_share())), columns.could_do),
        (String::new(), columns.p50),
        (String::new(), columns.p99),
    ];
    let mut spans = vec![Span::raw("  "), Span::raw(left(YOU, columns.id)).bold()];
    spans.extend(figures.into_iter().map(|(text, width)| Span::raw(right(&text, width))));
    spans.push(Span::raw(" "));
    let waited = interval.waited_share();
    spans.extend(states([1.0 - waited, waited, 0.0, 0.0, 0.0], columns.states));
    Line::from(spans)
}

fn panel(model: &Model) -> Vec<Line<'static>> {
    let title = |text: &'static str| Line::from(text).bold();
    match model.panel {
        Panel::None => Vec::new(),
        Panel::Waits => {
            let waits = model.waits.iter().enumerate().map(|(i, wait)| {
                let arrow = if i == 0 { "  " } else { "  └ for " };
                Line::from(format!("{}{arrow}{wait}", "  ".repeat(i)))
            });
            [title("who waits for whom")].into_iter().chain(waits).collect()
        }
        Panel::Help => {
            let [keys @ .., bars] = HELP;
            let mut legend = vec![Span::raw(format!("  {bars}"))];
            for paint in &STATES {
                legend.extend([paint.cells(2), Span::raw(format!(" {}  ", paint.name))]);
            }
            let keys = keys.iter().map(|key| Line::from(format!("  {key}")));
            [title("keys")].into_iter().chain(keys).chain([Line::from(legend)]).collect()
        }
    }
}

fn footer(model: &Model) -> Line<'static> {
    let error = model.now().error.as_ref();
    let text = match (model.over, &model.message) {
        (Some(Over::Ended), _) => match error {
            Some(error) => format!("the run has ended: {error}  q quits"),
            None => "the run has ended  q quits".to_owned(),
        },
        (Some(Over::Gone), _) => "the run can't be reached any more  q quits".to_owned(),
        (None, Some(message)) => message.clone(),
        (None, None) => {
            let paused = if model.paused { "PAUSED  " } else { "" };
            let order = if model.sort == Sort::Busiest { "busiest first  " } else { "" };
            format!("{paused}{order}? help  + - workers  b waits  s sort  p pause  q quit")
        }
    };
    Line::from(text).dim()
}

fn right(text: &str, width: usize) -> String {
    if width == 0 { String::new() } else { format!("{text:>width$}") }
}

fn left(text: &str, width: usize) -> String {
    let short: String = text.chars().take(width).collect();
    format!("{short:width$}")
}
