//! What the stages of a definition are called.

use std::collections::{BTreeMap, BTreeSet};

use super::catalog::Catalog;
use super::problem::Problem;
use super::stages::operations;
use super::tree::{Node, Place};

/// The ids of the stages in each list: as given, else the operation's last part, with a number if it
/// repeats; behind the list's name, if it has one.
pub(super) fn ids(
    lists: &[(Option<&str>, &[Node])],
    catalog: &Catalog,
    problems: &mut Vec<Problem>,
) -> Vec<Vec<String>> {
    let mut given = BTreeMap::<&str, &Place>::new();
    for id in lists.iter().flat_map(|(_, nodes)| *nodes).filter_map(|node| node.get("id")) {
        if let Some(text) = id.as_text()
            && let Some(first) = given.insert(text, &id.place)
        {
            let message = format!("two stages are called `{text}`");
            problems.push(
                Problem::new("forebay::id", message, &id.place, "here")
                    .and(first, "and here")
                    .help("give one of them another `id`"),
            );
        }
    }
    let mut taken: BTreeSet<String> = given.keys().map(|id| (*id).to_owned()).collect();
    let mut counts = BTreeMap::<String, u64>::new();
    let mut id = |list: Option<&str>, node: &Node| {
        if let Some(id) = node.get("id").and_then(Node::as_text) {
            return id.to_owned();
        }
        let name = operations(node, catalog).first().map_or("", |(key, _)| &key.text);
        let last = name.rsplit('.').next().unwrap_or_default();
        let base = list.map_or_else(|| last.to_owned(), |list| format!("{list}.{last}"));
        let count = counts.entry(base.clone()).or_default();
        loop {
            *count += 1;
            let id = if *count == 1 { base.clone() } else { format!("{base}-{count}") };
            if taken.insert(id.clone()) {
                return id;
            }
        }
    };
    let each = lists.iter().map(|(list, nodes)| nodes.iter().map(|node| id(*list, node)).collect());
    each.collect()
}
