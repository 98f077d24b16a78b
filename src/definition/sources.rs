//! The named sources of a definition, and the stages that make one flow of several: each is taken once,
//! by a stage behind it.

use super::any::FlowType;
use super::catalog::{Operator, Takes};
use super::check::Step;
use super::ids::ids;
use super::problem::Problem;
use super::stages::{Before, Stages};
use super::tree::{Key, Node, Place, Value};
use crate::nearest::nearest;
use crate::options::{OnError, Ordered};

/// A named source.
pub(super) struct Named {
    key: Key,
    steps: Vec<Step>,
    before: Before,
    left_out: Vec<(String, Place)>,
    /// Where it is taken.
    taken: Option<Place>,
}

/// The named sources of a definition, as far as they are lists.
pub(super) fn lists<'a>(
    block: Option<&'a Node>,
    problems: &mut Vec<Problem>,
) -> Vec<(&'a Key, &'a [Node])> {
    let Some(block) = block else { return Vec::new() };
    let help = "write `sources:`, below it a name such as `  era5:`, and below that its stages";
    let Value::Map(entries) = &block.value else {
        let message = "`sources` is a mapping of names to lists of stages";
        let found = format!("this is {}", block.kind());
        let problem = Problem::new("forebay::sources", message, &block.place, found);
        problems.push(problem.help(help));
        return Vec::new();
    };
    let mut lists = Vec::new();
    for (key, node) in entries {
        let is_plain = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if key.text.is_empty() || !key.text.chars().all(is_plain) {
            let message = "the name of a source has letters, digits, `_` and `-` alone";
            problems.push(Problem::new("forebay::sources", message, &key.place, "here").help(
                "its stages are called after it: `era5.fetch` is the stage `fetch` of `era5`",
            ));
        }
        match &node.value {
            Value::List(nodes) if !nodes.is_empty() => lists.push((key, &nodes[..])),
            _ => {
                let message =
                    format!("the source `{}` is a list with one stage at least", key.text);
                let problem = Problem::new("forebay::sources", message, &key.place, "here");
                problems.push(problem.help(help));
            }
        }
    }
    lists
}

/// The names that `merge` or `zip` takes, if it has a list of them.
fn names(arguments: &Node) -> Option<&[Node]> {
    match &arguments.get("sources").unwrap_or(arguments).value {
        Value::List(nodes) => Some(nodes),
        _ => None,
    }
}

impl Stages<'_> {
    /// The stages of the sources `named`, then those of the list `stages`.
    pub(super) fn all(
        &mut self,
        named: &[(&Key, &[Node])],
        stages: &[Node],
        problems: &mut Vec<Problem>,
    ) {
        self.names = named.iter().map(|(key, _)| (*key).clone()).collect();
        let lists = named.iter().map(|(key, nodes)| (Some(&*key.text), *nodes));
        let lists: Vec<_> = lists.chain([(None, stages)]).collect();
        let mut ids = ids(&lists, self.catalog, problems).into_iter();
        for ((key, nodes), ids) in named.iter().zip(ids.by_ref()) {
            self.of = Some(key.text.clone());
            for (node, id) in nodes.iter().zip(ids) {
                self.stage(node, id, problems);
            }
            self.put_aside(key);
        }
        self.of = None;
        for (node, id) in stages.iter().zip(ids.next().unwrap_or_default()) {
            self.stage(node, id, problems);
        }
        self.check_taken(problems);
    }

    /// Puts aside the stages so far as the source `key`.
    fn put_aside(&mut self, key: &Key) {
        let named = Named {
            key: key.clone(),
            steps: std::mem::take(&mut self.steps),
            before: std::mem::replace(&mut self.before, Before::Nothing),
            left_out: std::mem::take(&mut self.left_out),
            taken: None,
        };
        self.named.push(named);
    }

    /// Tells the named sources that nothing takes.
    fn check_taken(&self, problems: &mut Vec<Problem>) {
        // What was said of it once is enough.
        let is_told =
            |named: &&Named| named.taken.is_some() || self.meant.contains(&named.key.text);
        for Named { key, .. } in self.named.iter().filter(|named| !is_told(named)) {
            let message = format!("the source `{}` is not used", key.text);
            problems.push(
                Problem::new("forebay::sources", message, &key.place, "nothing takes it")
                    .help("take it with `merge` or `zip`, or leave it out"),
            );
        }
    }

    /// The form of `operator` that takes the named sources in `arguments`, what it yields, and which
    /// those are.
    pub(super) fn join(
        &mut self,
        operator: &Operator,
        key: &Key,
        arguments: &Node,
        problems: &mut Vec<Problem>,
    ) -> Option<(usize, FlowType, Vec<usize>)> {
        let is_first = matches!(self.before, Before::Nothing);
        let known = problems.len();
        if !is_first {
            let message =
                format!("`{}` takes named sources: it can only be the first stage", key.text);
            problems.push(Problem::new("forebay::source", message, &key.place, "here").help(
                "give what comes before it a name in `sources:`, and write that among those it takes",
            ));
        }
        let nodes = names(arguments);
        if let Some([] | [_]) = nodes {
            let message = format!("`{}` takes two named sources at least", key.text);
            let problem = Problem::new("forebay::sources", message, &key.place, "here");
            problems.push(problem.help(format!("write `- {}: [a, b]`", key.text)));
        }
        let nodes = nodes.unwrap_or_default();
        let taken: Vec<_> = nodes.iter().map(|node| self.take(node, key, problems)).collect();
        let form = self.form_of(operator, key, nodes, &taken, problems);
        self.before = match operator.forms.iter().find_map(|form| form.yields) {
            Some(yields) => Before::Yields(yields, (key.text.clone(), key.place.clone())),
            None => Before::Unknown,
        };
        let (form, yields) = form.filter(|_| problems.len() == known)?;
        Some((form, yields, taken.into_iter().flatten().collect()))
    }

    /// The source that `node` names, which nothing else may take.
    fn take(&mut self, node: &Node, key: &Key, problems: &mut Vec<Problem>) -> Option<usize> {
        let name = node.as_text()?;
        let Some(at) = self.named.iter().position(|named| named.key.text == name) else {
            let names: Vec<_> = self.names.iter().map(|name| &*name.text).collect();
            self.meant.extend(nearest(name, &names).map(str::to_owned));
            let wrong = |message: String, label: &str| {
                Problem::new("forebay::sources", message, &node.place, label)
            };
            let problem = match self.names.iter().find(|other| other.text == name) {
                Some(other) if self.of.as_deref() == Some(name) => {
                    wrong(format!("`{name}` would take itself"), "a circle")
                        .and(&other.place, "it begins here")
                        .help("leave it out of what it takes")
                }
                Some(other) => wrong(format!("`{name}` stands below what takes it"), "taken here")
                    .and(&other.place, "but it stands here")
                    .help(
                        "a source takes those above it, so that none takes itself in a circle: put \
                         it above",
                    ),
                None if self.names.is_empty() => {
                    wrong(format!("there is no source `{name}`"), "unknown").help(format!(
                        "`{}` takes named sources: write `sources:` and below it `{name}:` with \
                         its stages",
                        key.text
                    ))
                }
                None => wrong(format!("there is no source `{name}`"), "unknown")
                    .meant(name, self.names.iter().map(|name| &*name.text)),
            };
            problems.push(problem);
            return None;
        };
        let named = &mut self.named[at];
        if let Some(first) = named.taken.replace(node.place.clone()) {
            let message = format!("the source `{name}` is taken twice");
            problems.push(
                Problem::new("forebay::sources", message, &node.place, "here")
                    .and(&first, "and here")
                    .help("an item goes one way: write the source twice, under two names"),
            );
        }
        Some(at)
    }

    fn form_of(
        &self,
        operator: &Operator,
        key: &Key,
        nodes: &[Node],
        taken: &[Option<usize>],
        problems: &mut Vec<Problem>,
    ) -> Option<(usize, FlowType)> {
        let at = operator.forms.iter().position(|form| matches!(form.takes, Takes::Named(_)))?;
        let Takes::Named(of) = operator.forms[at].takes else { return None };
        let mut first: Option<(FlowType, &str, &Place)> = None;
        let mut fits = true;
        for (node, named) in nodes.iter().zip(taken) {
            let Some(named) = named.map(|at| &self.named[at]) else {
                fits = false;
                continue;
            };
            let name = &named.key.text;
            let (yields, end) = match &named.before {
                Before::Yields(yields, (_, end)) => (*yields, end),
                // What is wrong with it was told.
                Before::Unknown => {
                    fits = false;
                    continue;
                }
                Before::Nothing => {
                    let message = format!("nothing is left of the source `{name}`");
                    let problem =
                        Problem::new("forebay::sources", message, &node.place, "taken here");
                    let problem = named.left_out.iter().fold(problem, |problem, (id, place)| {
                        problem.and(place, format!("`{id}` is left out, as this is not true"))
                    });
                    problems.push(problem.help("one `when` of it at least must be true"));
                    fits = false;
                    continue;
                }
            };
            let wanted = of.or(first.map(|(of, ..)| of));
            if let Some(wanted) = wanted.filter(|wanted| *wanted != yields) {
                let message = format!("`{}` cannot take what `{name}` yields", key.text);
                let problem = Problem::new("forebay::type::mismatch", message, &node.place, {
                    format!("takes {wanted}")
                })
                .and(end, format!("`{name}` yields {yields}"));
                let problem = match first {
                    Some((_, other, place)) if of.is_none() => {
                        problem.and(place, format!("as `{other}` does"))
                    }
                    _ => problem,
                };
                let help = match self.catalog.adapters(yields, &[Takes::One(wanted)]) {
                    Some(way) if !way.is_empty() => {
                        let steps: Vec<_> = way.iter().map(|name| format!("`- {name}:`")).collect();
                        format!("end `{name}` with {}", steps.join(" then "))
                    }
                    _ => format!("all of what `{}` takes yields {wanted}", key.text),
                };
                problems.push(problem.help(help));
                fits = false;
            }
            first.get_or_insert((yields, name, end));
            if operator.name() == "zip" {
                problems.extend(apart(key, named));
            }
        }
        let yields = of.or(first.map(|(of, ..)| of));
        yields.filter(|_| fits).map(|yields| (at, yields))
    }

    /// The stages of the sources `taken`, for the stage behind them; where each of them ends.
    pub(super) fn put(&mut self, taken: &[usize]) -> Vec<usize> {
        let mut ends = Vec::new();
        for &at in taken {
            let offset = self.steps.len();
            let steps = std::mem::take(&mut self.named[at].steps);
            // It has none if all of them are wrong, which was told.
            ends.extend(steps.len().checked_sub(1).map(|last| offset + last));
            self.steps.extend(steps.into_iter().map(|mut step| {
                step.after.iter_mut().for_each(|after| *after += offset);
                step
            }));
        }
        ends
    }
}

/// Stages of a branch that would make pairs of items that do not belong together.
fn apart<'a>(key: &'a Key, named: &'a Named) -> impl Iterator<Item = Problem> + 'a {
    named.steps.iter().filter_map(move |step| {
        let order = step.node.get("order").and_then(Node::as_text);
        let (at, what) = if step.options.ordered == Some(Ordered::No) {
            ("ordered", "its items come in any order")
        } else if matches!(step.options.on_error, Some(OnError::Skip { .. })) {
            ("on_error", "an item that is skipped moves all pairs behind it")
        } else if step.key.text == "merge" && order.is_none_or(|order| order == "arrival") {
            ("", "its items come in any order: write `order: turns` or `sequence`")
        } else {
            return None;
        };
        let message = format!("`{}` would pair what does not belong together", key.text);
        let place = step.places.get(at).unwrap_or(&step.key.place);
        Some(
            Problem::new("forebay::sources", message, place, what)
                .and(&key.place, "pairs are made here, by position")
                .help("in what is zipped, items keep their order and none is skipped"),
        )
    })
}
