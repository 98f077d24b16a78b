//! A pipeline whose type is known at run time only. The plan is erased, never the items: what runs
//! is the code that the Rust chain runs.

use std::any::{Any, TypeId, type_name};
use std::fmt;

use crate::device::{DeviceBatch, DeviceTensor};
use crate::entering::Entry;
use crate::fault::{Fault, PlanError};
use crate::flow::{self, Together, Uneven};
use crate::item::{Batch, Spec, Tensor};
use crate::options::Options;
use crate::pipeline::{Node, Pipeline, RunSettings};
use crate::position::{Position, ResumeError};
use crate::running::{Handle, Running};
use crate::store::zarr::{Encoded, Window};
use crate::trace::{Delivered, RunStats};

/// A Rust type that flows, by the name that people know it by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FlowType {
    id: TypeId,
    name: &'static str,
}

impl FlowType {
    /// The type `T`.
    pub fn of<T: 'static>() -> Self {
        FlowType { id: TypeId::of::<T>(), name: type_name::<T>() }
    }
}

impl fmt::Display for FlowType {
    /// The name without the modules: `Vec<Window>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&short(self.name))
    }
}

impl fmt::Debug for FlowType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A type's name without the modules that it and its parts lie in.
pub(crate) fn short(name: &str) -> String {
    let (mut out, mut word) = (String::new(), String::new());
    for c in name.chars() {
        match c {
            ':' => word.clear(),
            c if c.is_alphanumeric() || c == '_' => word.push(c),
            c => {
                out.push_str(&std::mem::take(&mut word));
                out.push(c);
            }
        }
    }
    out + &word
}

/// What a stage does that fits any type and keeps it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Same {
    Shuffle { seed: u64, how: Order },
    Shard { rank: u64, world: u64, uneven: Uneven },
    Take(u64),
    Skip(u64),
    Repeat(u64),
}

/// How a shuffle mixes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Full,
    Buffer(usize),
    Chunks(Option<u64>),
    Blocks(u64),
}

/// A pipeline of some type.
pub struct AnyPipeline {
    pub(super) yields: FlowType,
    plan: Box<dyn Plan>,
}

impl AnyPipeline {
    /// Forgets the type.
    pub fn new<T: Send + 'static>(pipeline: Pipeline<T>) -> Self {
        AnyPipeline { yields: FlowType::of::<T>(), plan: Box::new(pipeline) }
    }

    /// What it yields.
    pub fn yields(&self) -> FlowType {
        self.yields
    }

    /// The pipeline with its type, if that is `T`.
    ///
    /// # Errors
    /// Gives it back if it is another.
    pub fn downcast<T: Send + 'static>(self) -> Result<Pipeline<T>, AnyPipeline> {
        if self.yields != FlowType::of::<T>() {
            return Err(self);
        }
        let plan = self.plan.into_any().downcast::<Pipeline<T>>();
        Ok(*plan.expect("the type's id was compared"))
    }

    /// The pipeline with its type, if that is `T`.
    pub(crate) fn downcast_ref<T: Send + 'static>(&self) -> Option<&Pipeline<T>> {
        self.plan.as_any().downcast_ref()
    }

    pub(crate) fn same(self, what: Same, options: Options) -> Self {
        AnyPipeline { plan: self.plan.same(what, options), ..self }
    }

    /// The first `n` items.
    pub fn take(self, n: u64) -> Self {
        self.same(Same::Take(n), Options::default())
    }

    /// One pipeline of those in `all`, which yield one type.
    pub(crate) fn together(all: Vec<Self>, how: Together, options: Options) -> Self {
        let mut all = all.into_iter();
        let first = all.next().expect("checked: it takes two named sources at least");
        let yields = first.yields;
        AnyPipeline { yields, plan: first.plan.together(all.collect(), how, options) }
    }

    /// Its stages, sources first.
    pub fn nodes(&self) -> &[Node] {
        self.plan.nodes()
    }

    /// Everything that keeps it from running.
    pub fn problems(&self) -> &[PlanError] {
        self.plan.problems()
    }

    /// How many items it yields, where that is known before it runs.
    pub fn len_known(&self) -> Option<u64> {
        self.plan.len_known()
    }

    /// What holds for the whole run.
    pub fn settings_mut(&mut self) -> &mut RunSettings {
        self.plan.settings_mut()
    }

    /// How a run of it goes on from a position in the middle.
    pub fn entry(&self) -> Entry {
        Entry::of(self.plan.nodes())
    }

    /// Goes on from `position`.
    ///
    /// # Errors
    /// See [`Pipeline::resume`].
    pub fn resume(self, position: &Position) -> Result<Self, ResumeError> {
        Ok(AnyPipeline { plan: self.plan.resume(position)?, ..self })
    }

    /// Runs it.
    ///
    /// # Errors
    /// See [`Pipeline::run`].
    pub fn run(self) -> Result<AnyRunning, PlanError> {
        self.plan.run()
    }
}

impl fmt::Debug for AnyPipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyPipeline").field("yields", &self.yields).finish_non_exhaustive()
    }
}

trait Plan: Send {
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
    fn as_any(&self) -> &dyn Any;
    fn same(self: Box<Self>, what: Same, options: Options) -> Box<dyn Plan>;
    fn together(
        self: Box<Self>,
        others: Vec<AnyPipeline>,
        how: Together,
        options: Options,
    ) -> Box<dyn Plan>;
    fn nodes(&self) -> &[Node];
    fn problems(&self) -> &[PlanError];
    fn len_known(&self) -> Option<u64>;
    fn settings_mut(&mut self) -> &mut RunSettings;
    fn resume(self: Box<Self>, position: &Position) -> Result<Box<dyn Plan>, ResumeError>;
    fn run(self: Box<Self>) -> Result<AnyRunning, PlanError>;
}

impl<T: Send + 'static> Plan for Pipeline<T> {
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn same(self: Box<Self>, what: Same, options: Options) -> Box<dyn Plan> {
        Box::new(match what {
            Same::Shuffle { seed, how } => {
                let shuffle = flow::shuffle(seed);
                let shuffle = match how {
                    Order::Full => shuffle,
                    Order::Buffer(items) => shuffle.buffer(items),
                    Order::Chunks(mixed) => shuffle.by_chunks(mixed),
                    Order::Blocks(items) => shuffle.by_blocks(items),
                };
                self.then_with(shuffle, options)
            }
            Same::Shard { rank, world, uneven } => {
                self.then_with(flow::shard(rank, world).uneven(uneven), options)
            }
            Same::Take(n) => self.then_with(flow::take(n), options),
            Same::Skip(n) => self.then_with(flow::skip(n), options),
            Same::Repeat(n) => self.then_with(flow::repeat(n), options),
        })
    }

    fn together(
        self: Box<Self>,
        others: Vec<AnyPipeline>,
        how: Together,
        options: Options,
    ) -> Box<dyn Plan> {
        let others = others.into_iter().map(|other| other.downcast().expect("checked: one type"));
        let all: Vec<Pipeline<T>> = std::iter::once(*self).chain(others).collect();
        Box::new(flow::together(how, all, options))
    }

    fn nodes(&self) -> &[Node] {
        Pipeline::nodes(self)
    }

    fn problems(&self) -> &[PlanError] {
        Pipeline::problems(self)
    }

    fn len_known(&self) -> Option<u64> {
        Pipeline::len_known(self)
    }

    fn settings_mut(&mut self) -> &mut RunSettings {
        Pipeline::settings_mut(self)
    }

    fn resume(self: Box<Self>, position: &Position) -> Result<Box<dyn Plan>, ResumeError> {
        Ok(Box::new(Pipeline::resume(*self, position)?))
    }

    fn run(self: Box<Self>) -> Result<AnyRunning, PlanError> {
        Ok(AnyRunning(Box::new(Pipeline::run(*self)?)))
    }
}

/// A run whose items nobody keeps: an iterator of what each of them held.
pub struct AnyRunning(Box<dyn Run>);

impl AnyRunning {
    /// A handle for other threads.
    pub fn handle(&self) -> Handle {
        self.0.handle()
    }

    /// The place behind the item yielded last: see [`Running::position`].
    pub fn position(&self) -> Position {
        self.0.position()
    }

    /// Wants no more items.
    pub(crate) fn leave(&mut self) {
        self.0.leave();
    }

    /// Ends the run and returns when nothing of it is left.
    pub fn close(self) -> RunStats {
        self.0.close()
    }

    /// The next item, which `see` may look at before it is dropped.
    pub fn next_seen(&mut self, see: &mut dyn FnMut(&dyn Any)) -> Option<<Self as Iterator>::Item> {
        self.0.next(see)
    }
}

impl Iterator for AnyRunning {
    type Item = Result<Delivered, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(&mut |_| {})
    }
}

impl fmt::Debug for AnyRunning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyRunning").finish_non_exhaustive()
    }
}

trait Run: Send {
    fn next(&mut self, see: &mut dyn FnMut(&dyn Any)) -> Option<Result<Delivered, Fault>>;
    fn handle(&self) -> Handle;
    fn position(&self) -> Position;
    fn leave(&mut self);
    fn close(self: Box<Self>) -> RunStats;
}

impl<T: Send + 'static> Run for Running<T> {
    fn next(&mut self, see: &mut dyn FnMut(&dyn Any)) -> Option<Result<Delivered, Fault>> {
        let item = Iterator::next(self)?;
        Some(item.map(|item| {
            see(&item);
            delivered(&item)
        }))
    }

    fn handle(&self) -> Handle {
        Running::handle(self)
    }

    fn position(&self) -> Position {
        Running::position(self)
    }

    fn leave(&mut self) {
        Running::leave(self);
    }

    fn close(self: Box<Self>) -> RunStats {
        Running::close(*self)
    }
}

/// What one item of a run holds.
fn delivered<T: 'static>(item: &T) -> Delivered {
    let any: &dyn Any = item;
    // A batch that was read from nowhere says by its tensors how many windows it stands for.
    let rows = |first: Option<&Spec>| first.and_then(|spec| spec.shape.first().copied());
    let windows = if let Some(batch) = any.downcast_ref::<DeviceBatch>() {
        let rows = rows(batch.tensors().first().map(DeviceTensor::spec));
        if batch.is_empty() { rows.unwrap_or(0) as usize } else { batch.len() }
    } else if let Some(batch) = any.downcast_ref::<Batch>() {
        let rows = rows(batch.tensors().first().map(Tensor::spec));
        if batch.is_empty() { rows.unwrap_or(0) as usize } else { batch.len() }
    } else if let Some(encoded) = any.downcast_ref::<Encoded>() {
        encoded.windows().len()
    } else if let Some(windows) = any.downcast_ref::<Vec<Window>>() {
        windows.len()
    } else {
        return Delivered { items: 1, batches: 0 };
    };
    Delivered { items: windows as u64, batches: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_names_lose_their_modules() {
        assert_eq!(FlowType::of::<Vec<Window>>().to_string(), "Vec<Window>");
        assert_eq!(
            FlowType::of::<(String, Option<Batch>)>().to_string(),
            "(String, Option<Batch>)"
        );
        assert_eq!(FlowType::of::<[u8; 4]>().to_string(), "[u8; 4]");
    }

    #[test]
    fn a_pipeline_keeps_its_type_under_the_erasure() {
        let numbers = Pipeline::from(crate::source::iter("n", 0..9_u64));
        let any = AnyPipeline::new(numbers).take(3);
        let any = any.downcast::<String>().expect_err("it yields numbers");
        let run = any.downcast::<u64>().expect("numbers").run().expect("runs");
        assert_eq!(run.map(|item| item.expect("no fault")).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
