//! Bars: what workers did, and how full a buffer is.
//!
//! Every state has a colour that colour-blind people tell apart and a sign of its own, for terminals
//! without colours.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use crate::trace::BufferStats;

/// A state of workers as it is drawn.
pub(super) struct Paint {
    pub(super) name: &'static str,
    sign: &'static str,
    color: Color,
}

/// In the order of [`States::shares`](crate::trace::States::shares).
pub(super) const STATES: [Paint; 5] = [
    Paint { name: "working", sign: "█", color: Color::Indexed(32) },
    Paint { name: "starved", sign: "·", color: Color::Indexed(244) },
    Paint { name: "blocked", sign: "▒", color: Color::Indexed(240) },
    Paint { name: "turn", sign: "▚", color: Color::Indexed(214) },
    Paint { name: "limit", sign: "▓", color: Color::Indexed(169) },
];

impl Paint {
    fn style(&self) -> Style {
        let style = Style::new().fg(self.color);
        if self.name == "starved" { style.add_modifier(Modifier::DIM) } else { style }
    }

    /// So many cells of it.
    pub(super) fn cells(&self, n: usize) -> Span<'static> {
        Span::styled(self.sign.repeat(n), self.style())
    }
}

/// The shares of the five states, in `width` cells.
pub(super) fn states(shares: [f64; 5], width: usize) -> Vec<Span<'static>> {
    let cells = cells(shares, width);
    STATES.iter().zip(cells).filter(|(_, n)| *n > 0).map(|(paint, n)| paint.cells(n)).collect()
}

/// `width` cells for shares of 1; nothing if nothing is known. What is there at all gets a cell, if
/// there are enough.
fn cells(shares: [f64; 5], width: usize) -> [usize; 5] {
    let exact = shares.map(|share| share * width as f64);
    let mut cells = exact.map(|cells| cells as usize);
    if shares.iter().sum::<f64>() <= 0.0 {
        return cells;
    }
    let rest = |cells: &[usize; 5]| width.saturating_sub(cells.iter().sum());
    let mut order = [0, 1, 2, 3, 4];
    order.sort_by(|&a, &b| (exact[b].fract()).total_cmp(&exact[a].fract()));
    for i in order.into_iter().take(rest(&cells)) {
        cells[i] += 1;
    }
    cells
}

/// How full a buffer is, in `width` cells: by items or by bytes, whichever is nearer to its bound.
pub(super) fn fill(buffer: &BufferStats, width: usize) -> Vec<Span<'static>> {
    let share = |part: f64, of: f64| if of > 0.0 { (part / of).min(1.0) } else { 0.0 };
    let by_items = share(buffer.items as f64, buffer.items_max as f64);
    let full = by_items.max(share(buffer.bytes as f64, buffer.bytes_max as f64));
    // What is not empty does not look so.
    let n = ((full * width as f64).round() as usize).max(usize::from(buffer.items > 0));
    let n = n.min(width);
    let dim = Style::new().add_modifier(Modifier::DIM);
    vec![
        Span::styled("■".repeat(n), Style::new().fg(Color::Indexed(73))),
        Span::styled("□".repeat(width - n), dim),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_add_up_to_the_width() {
        for width in 0..40 {
            for shares in [
                [1.0, 0.0, 0.0, 0.0, 0.0],
                [0.2; 5],
                [0.5, 0.3, 0.1, 0.06, 0.04],
                [0.0, 0.0, 0.333, 0.333, 0.334],
            ] {
                assert_eq!(cells(shares, width).iter().sum::<usize>(), width);
            }
        }
        assert_eq!(cells([0.5, 0.25, 0.25, 0.0, 0.0], 8), [4, 2, 2, 0, 0]);
        assert_eq!(cells([0.0; 5], 8), [0; 5]);
    }
}
