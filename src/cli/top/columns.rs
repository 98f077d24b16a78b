//! Which columns fit into a terminal. The bar of states takes what is left.

/// The columns of a width, each with its own; 0 is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) id: usize,
    pub(super) kind: usize,
    pub(super) workers: usize,
    pub(super) items: usize,
    pub(super) could_do: usize,
    pub(super) p50: usize,
    pub(super) p99: usize,
    pub(super) states: usize,
    pub(super) fill: usize,
    pub(super) held: usize,
}

/// The bar of states is not shorter than this, as long as anything else is there.
const STATES_MIN: usize = 10;

impl Columns {
    /// The columns for a terminal of `width`, with ids of `id` characters.
    pub(super) fn of(width: usize, id: usize) -> Self {
        let id = id.clamp(5, if width < 60 { 10 } else { 20 });
        let mut columns = Columns { id, ..Columns::default() };
        // The mark before the id, and the space before the bar.
        let mut left = width.saturating_sub(id + 3);
        let mut take = |column: &mut usize, wanted: usize| {
            if left >= wanted + STATES_MIN {
                *column = wanted;
                left -= wanted;
            }
        };
        // What matters most comes first.
        take(&mut columns.workers, 6);
        take(&mut columns.items, 8);
        take(&mut columns.fill, 7);
        take(&mut columns.p99, 8);
        take(&mut columns.could_do, 9);
        take(&mut columns.kind, 7);
        take(&mut columns.p50, 8);
        take(&mut columns.held, 16);
        columns.states = left;
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_keeps_what_matters() {
        for width in 0..300 {
            let c = Columns::of(width, 9);
            let sum = c.id + c.kind + c.workers + c.items + c.could_do + c.p50 + c.p99;
            let sum = sum + c.states + c.fill + c.held + 3;
            assert!(sum <= width.max(12), "{width} {c:?}");
        }
        let all = Columns::of(80, 9);
        assert!(all.p50 > 0 && all.kind > 0 && all.states >= STATES_MIN, "{all:?}");
        let few = Columns::of(40, 9);
        assert!(few.workers > 0 && few.items > 0 && few.states >= STATES_MIN, "{few:?}");
    }
}
