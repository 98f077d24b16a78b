//! Several pipelines in one: their plans side by side, and a stage that reads them all.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::assembly::{Assembly, Build, Deferred, guarded, record};
use crate::entering::Entering;
use crate::fault::PlanError;
use crate::limits::check;
use crate::link::{Inlet, Outlet};
use crate::options::Options;
use crate::pipeline::{Node, Pipeline, RunSettings, free_id, node};
use crate::site::Site;
use crate::stage::{Kind, Stop};

/// What a stage says that takes from several pipelines.
pub(crate) const SEVERAL: Entering =
    Entering::Beginning("takes from several pipelines, each of which is elsewhere");

/// What becomes of several pipelines of one type.
pub(crate) trait Join<T>: Send + 'static {
    /// Where a run can go on behind it.
    const ENTERING: Entering = SEVERAL;

    fn run(
        self,
        inlets: &mut [Inlet<T>],
        outlet: &mut Outlet<T>,
    ) -> impl Future<Output = Result<(), Stop>> + Send;
}

/// What becomes of two pipelines of different types.
pub(crate) trait Join2<A, B>: Send + 'static {
    type Out: Send + 'static;

    fn run(
        self,
        left: &mut Inlet<A>,
        right: &mut Inlet<B>,
        outlet: &mut Outlet<Self::Out>,
    ) -> impl Future<Output = Result<(), Stop>> + Send;
}

/// The parts of the pipelines that are being joined.
#[derive(Default)]
struct Splice {
    nodes: Vec<Node>,
    problems: Vec<PlanError>,
    settings: Option<RunSettings>,
}

impl Splice {
    fn take<T: Send + 'static>(&mut self, pipeline: Pipeline<T>) -> Build<T> {
        let (build, nodes, problems, settings) = pipeline.into_parts();
        self.problems.extend(problems);
        self.settings.get_or_insert(settings);
        let mut renamed = BTreeMap::new();
        for mut node in nodes {
            if self.nodes.iter().any(|other| other.number == node.number) {
                continue;
            }
            match free_id(&self.nodes, &node) {
                Some(id) if id != node.id => {
                    renamed.insert(std::mem::replace(&mut node.id, id.clone()), id);
                }
                Some(_) => {}
                None => self.problems.push(PlanError::Duplicate(node.id.clone())),
            }
            self.nodes.push(node);
        }
        Box::new(move |assembly, to| {
            assembly.renamed.push(renamed);
            let inlet = build(assembly, to);
            assembly.renamed.pop();
            inlet
        })
    }

    fn finish<T: Send + 'static>(
        mut self,
        (name, entering): (&str, Entering),
        options: Options,
        build: impl FnOnce(&mut Assembly, &Arc<Site>, Node) -> Inlet<T> + Send + 'static,
    ) -> Pipeline<T> {
        let mut node = node::<T>(name, Kind::Flow, options);
        node.entering = entering;
        match free_id(&self.nodes, &node) {
            Some(id) => node.id = id,
            None => self.problems.push(PlanError::Duplicate(node.id.clone())),
        }
        check(&node, false, &mut self.problems);
        self.nodes.push(node.clone());
        let build: Build<T> = Box::new(move |assembly, to| build(assembly, to, node));
        Pipeline::from_parts(build, self.nodes, self.problems, self.settings.unwrap_or_default())
    }
}

/// Joins pipelines of one type; of the options, `id` and `buffer` apply.
pub(crate) fn joined<T: Send + 'static, J: Join<T>>(
    name: &str,
    options: Options,
    pipelines: impl IntoIterator<Item = Pipeline<T>>,
    join: J,
) -> Pipeline<T> {
    let mut splice = Splice::default();
    let builds: Vec<_> = pipelines.into_iter().map(|pipeline| splice.take(pipeline)).collect();
    splice.finish((name, J::ENTERING), options, move |assembly, to, node| {
        let slot = Deferred::new(assembly, node);
        let mut inlets: Vec<_> =
            builds.into_iter().map(|build| build(assembly, &slot.site)).collect();
        let (mut outlet, next) = slot.link(assembly, to);
        let site = slot.site;
        assembly.spawn(async move {
            let gone = outlet.core().gone().clone();
            let run = async { join.run(&mut inlets, &mut outlet).await };
            let result = guarded(&site, gone, run).await;
            record(&site, &outlet, result);
        });
        next
    })
}

/// Joins two pipelines of different types.
pub(crate) fn joined2<A, B, J>(
    name: &str,
    left: Pipeline<A>,
    right: Pipeline<B>,
    join: J,
) -> Pipeline<J::Out>
where
    A: Send + 'static,
    B: Send + 'static,
    J: Join2<A, B>,
{
    let mut splice = Splice::default();
    let (left, right) = (splice.take(left), splice.take(right));
    splice.finish((name, SEVERAL), Options::default(), move |assembly, to, node| {
        let slot = Deferred::new(assembly, node);
        let (mut left, mut right) = (left(assembly, &slot.site), right(assembly, &slot.site));
        let (mut outlet, next) = slot.link(assembly, to);
        let site = slot.site;
        assembly.spawn(async move {
            let gone = outlet.core().gone().clone();
            let run = async { join.run(&mut left, &mut right, &mut outlet).await };
            let result = guarded(&site, gone, run).await;
            record(&site, &outlet, result);
        });
        next
    })
}
