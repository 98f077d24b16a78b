//! Pipelines from YAML: checked before a byte is read, built of the operators of a catalogue, run by
//! the engine that runs the Rust chain.

mod absent;
mod adapters;
mod any;
mod args;
mod builtin;
mod cases;
mod catalog;
mod check;
mod effects;
mod explain;
mod fix;
mod flow;
mod given;
mod holds;
mod ids;
mod implied;
mod joined;
mod keys;
mod layout;
mod lint;
mod numbers;
mod operator;
mod outline;
mod pinned;
mod plan;
mod problem;
mod resume;
mod retries;
mod schema;
mod sources;
mod stages;
mod survey;
mod text;
mod tree;
mod units;
mod values;
mod vars;
mod within;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub use any::{AnyPipeline, AnyRunning, FlowType};
pub(crate) use cases::{Case, Expect, cases};
use catalog::{BuildError, Made};
pub use catalog::{Catalog, Context, Operator};
use check::{Checked, Step};
pub(crate) use explain::{Explanation, explain, explanations, first_sentence};
pub use flow::{Flow, Misfit, Outline};
use given::Given;
pub(crate) use layout::laid_out;
pub(crate) use numbers::Numbers;
pub use outline::StageOutline;
use pinned::{Pinned, Ring};
pub use plan::Planned;
use problem::Problem;
pub use problem::Problems;
pub(crate) use problem::{Region, Told, suggest};
use survey::Surveyor;
pub use survey::{Edge, Survey};
pub(crate) use units::{duration, link_speed};

use crate::checkpoint::Checkpoint;
use crate::item::{Pool, PoolStats, mix};
use crate::options::OnError;
use crate::pipeline::Pipeline;
use crate::store::zarr::Window;

/// Values given on the command line: of variables by name, and of runtime keys by `stage.key`.
pub type Set = BTreeMap<String, String>;

/// The seed of the stage `id` in a run with the seed `run`, so that a Rust chain can shuffle as a
/// definition does.
pub fn stage_seed(run: u64, id: &str) -> u64 {
    id.bytes().fold(run, |seed, byte| mix(seed, byte.into()))
}

/// A definition that has been read and checked: syntax, variables, arguments, types, runtime keys.
#[derive(Debug)]
pub struct Definition {
    file: String,
    text: Arc<str>,
    checked: Checked,
    /// What takes the place of its stages, in a case.
    given: Given,
}

/// A definition made into a pipeline.
#[derive(Debug)]
pub struct Built {
    /// The pipeline.
    pub pipeline: AnyPipeline,
    pools: Pools,
}

/// The pools that a pipeline reads and decodes into.
#[derive(Clone, Debug)]
pub struct Pools {
    decoded: Pool,
    others: Arc<parking_lot::Mutex<Vec<Pool>>>,
}

impl Pools {
    /// What they have done so far.
    pub fn stats(&self) -> Vec<PoolStats> {
        let others = self.others.lock();
        others.iter().chain([&self.decoded]).map(Pool::stats).collect()
    }

    /// Counts a pool, once however many stages use it.
    fn add(&self, pool: &Pool) {
        let mut others = self.others.lock();
        if !others.iter().any(|other| other.is(pool)) {
            others.push(pool.clone());
        }
    }

    fn new() -> Self {
        Pools { decoded: Pool::default(), others: Arc::new(parking_lot::Mutex::default()) }
    }
}

impl Definition {
    /// Reads and checks the definition in `file`.
    ///
    /// # Errors
    /// The file can't be read, or everything that is wrong with it.
    pub fn load(file: &Path, catalog: &Catalog, set: &Set) -> Result<Self, Problems> {
        let shown = file.display().to_string();
        match text::read(file) {
            Ok(text) => Definition::parse(&shown, &text, catalog, set),
            Err(why) => {
                let problem = Problem::absent(file, why);
                Err(Problems::new(&shown, &Arc::from(""), vec![problem]))
            }
        }
    }

    /// Checks the definition in `text`; `file` is what it is called in messages.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(file: &str, text: &str, catalog: &Catalog, set: &Set) -> Result<Self, Problems> {
        let text: Arc<str> = Arc::from(text);
        match check::check(file, &text, catalog, set) {
            Ok(checked) => {
                Ok(Definition { file: file.to_owned(), text, checked, given: Given::default() })
            }
            Err(problems) => Err(Problems::new(file, &text, problems)),
        }
    }

    /// The seed of its runs.
    pub fn seed(&self) -> u64 {
        self.checked.run.seed
    }

    /// Where the place of its runs is kept, if it says so. Whoever runs it keeps it:
    /// [`AnyPipeline::resume`] goes on from what was kept.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checked.run.checkpoint.as_ref().map(|(checkpoint, _)| checkpoint)
    }

    /// The pipeline's name.
    pub fn name(&self) -> &str {
        &self.checked.name
    }

    /// What the pipeline yields.
    pub fn yields(&self) -> FlowType {
        self.checked.yields
    }

    /// The ids of its stages with their operators and the types that they yield.
    pub fn stages(&self) -> impl Iterator<Item = (&str, &str, FlowType)> {
        self.checked.steps.iter().map(|step| (&*step.id, &*step.key.text, step.yields))
    }

    /// Whether a scalar of the definition begins with `prefix`.
    pub(crate) fn mentions(&self, prefix: &str) -> bool {
        fn any(node: &tree::Node, prefix: &str) -> bool {
            match &node.value {
                tree::Value::Text(text) => text.starts_with(prefix),
                tree::Value::List(nodes) => nodes.iter().any(|node| any(node, prefix)),
                tree::Value::Map(entries) => entries.iter().any(|(_, node)| any(node, prefix)),
                _ => false,
            }
        }
        let steps = self.checked.steps.iter().enumerate();
        steps.filter(|(at, _)| !self.given.replaces(*at)).any(|(_, step)| any(&step.node, prefix))
    }

    /// Makes the pipeline: opens its stores and reads their metadata.
    ///
    /// # Errors
    /// A stage that can't be made, with its place in the file.
    pub fn build(&self, catalog: &Catalog) -> Result<Built, Problems> {
        let pools = Pools::new();
        let pinned = pinned::pinned(&self.checked.steps, catalog);
        let replaced = |(at, pinned)| if self.given.replaces(at) { None } else { pinned };
        let pinned: Vec<_> = pinned.into_iter().enumerate().map(replaced).collect();
        // What can be known before a byte of data is read is known before that.
        let mut surveyor = Surveyor::new(catalog, &self.checked, &self.text, true);
        let mut made = Vec::<Option<AnyPipeline>>::new();
        for (at, (step, pinned)) in self.checked.steps.iter().zip(&pinned).enumerate() {
            if self.given.replaces(at) {
                let (pipeline, flow) = self.given.instead(at, &step.id).unzip();
                surveyor.step(step, Some(flow.unwrap_or_default()));
                made.push(pipeline);
                continue;
            }
            let of_step = match pinned {
                Some(Pinned { pool, .. }) => {
                    pools.add(pool);
                    Pools { decoded: pool.clone(), others: Arc::clone(&pools.others) }
                }
                None => pools.clone(),
            };
            let before = step.after.iter().filter_map(|after| made[*after].take()).collect();
            let pipeline = self.step(step, before, catalog, &of_step)?;
            let windows = pipeline.downcast_ref::<Window>().filter(|_| step.after.is_empty());
            let known = windows.and_then(Pipeline::index).map(Flow::of_windows);
            surveyor.step(step, known);
            made.push(Some(pipeline));
        }
        let pinned = (pinned.iter().enumerate()).filter_map(|(of, pinned)| {
            let pinned = pinned.as_ref()?;
            Some((of, pinned, Ring::of(of, pinned.until, &surveyor)))
        });
        let pinned: Vec<_> = pinned.collect();
        let survey = surveyor.finish(&self.file, &self.text)?;
        for (of, pinned, ring) in pinned {
            pinned.pin(&ring).map_err(|error| {
                let Step { key, .. } = &self.checked.steps[of];
                let message = format!("memory for `{}` can't be pinned: {error}", key.text);
                let problem = Problem::new("forebay::build", message, &key.place, "this stage");
                Problems::new(&self.file, &self.text, vec![problem])
            })?;
        }
        let pipeline = made.pop().flatten();
        let mut pipeline = pipeline.expect("a definition without stages is refused");
        let settings = pipeline.settings_mut();
        settings.name.clone_from(&self.checked.name);
        settings.cores = self.checked.run.cores;
        settings.io_threads = self.checked.run.io_threads;
        settings.memory = survey.items_max;
        settings.stall = self.checked.run.stall;
        // What only the stages themselves know.
        let entry = pipeline.entry();
        match resume::never(&entry, &self.checked) {
            None => Ok(Built { pipeline, pools }),
            Some(problem) => Err(Problems::new(&self.file, &self.text, vec![problem])),
        }
    }

    /// What flows on each of its edges and how much memory a run can take, as far as that can be
    /// known without reading data. Stores on this machine are opened for their metadata; others only
    /// if `online`.
    ///
    /// # Errors
    /// What does not fit, such as a stage that takes floating point where integers flow.
    pub fn survey(&self, catalog: &Catalog, online: bool) -> Result<Survey, Problems> {
        let mut surveyor = Surveyor::new(catalog, &self.checked, &self.text, online);
        for step in &self.checked.steps {
            surveyor.step(step, None);
        }
        surveyor.finish(&self.file, &self.text)
    }

    /// Refuses to log what `step` skips where no file can be.
    fn check_log(&self, step: &Step) -> Result<(), Problems> {
        let Some(OnError::Skip { log: Some(log), .. }) = &step.options.on_error else {
            return Ok(());
        };
        let folder = log.parent().filter(|folder| !folder.as_os_str().is_empty());
        let Some(folder) = folder.filter(|folder| !folder.is_dir()) else { return Ok(()) };
        let message =
            format!("there is no folder `{}` for the log of `{}`", folder.display(), step.id);
        let place = step.places.get("on_error").unwrap_or(&step.key.place);
        let problem = Problem::new("forebay::build", message, place, "here");
        let problem = problem.help("make the folder, or write the log elsewhere");
        Err(Problems::new(&self.file, &self.text, vec![problem]))
    }

    fn step(
        &self,
        step: &Step,
        before: Vec<AnyPipeline>,
        catalog: &Catalog,
        pools: &Pools,
    ) -> Result<AnyPipeline, Problems> {
        let operator = catalog.get(&step.key.text).expect("checked against this catalogue");
        let seed = stage_seed(self.checked.run.seed, step.own_id());
        let context = Context { pool: pools.decoded.clone(), seed, pools: pools.clone() };
        let made = Made {
            key: &step.key,
            node: &step.node,
            main: operator.main,
            options: operator.forms[step.form].options.clone().overridden_by(step.options.clone()),
            retries_by_default: step.retries_by_default,
            context: &context,
        };
        let known: usize = before.iter().map(|before| before.problems().len()).sum();
        self.check_log(step)?;
        let here = |message: String| {
            Problem::new("forebay::build", message, &step.key.place, "this stage")
        };
        let list = match (operator.forms[step.form].build)(before, made) {
            Ok(pipeline) => {
                let problems = &pipeline.problems()[known..];
                if problems.is_empty() {
                    return Ok(pipeline);
                }
                problems.iter().map(|problem| here(problem.to_string())).collect()
            }
            Err(BuildError::Problems(problems)) => problems,
            Err(BuildError::Failed(error)) => {
                vec![here(format!("`{}` can't be made: {error}", step.key.text))]
            }
        };
        Err(Problems::new(&self.file, &self.text, list))
    }
}

impl Built {
    /// The pools that the pipeline reads and decodes into.
    pub fn pools(&self) -> &Pools {
        &self.pools
    }
}

impl<T: Send + 'static> Pipeline<T> {
    /// The pipeline of the definition in `file`, made of built-in operators.
    ///
    /// # Errors
    /// Everything that is wrong with it; also that it does not yield `T`.
    pub fn load(file: impl AsRef<Path>) -> Result<Self, Problems> {
        Self::load_with(file, &Catalog::builtin(), &Set::new())
    }

    /// The pipeline of the definition in `file`, made of the operators in `catalog`, with the
    /// values in `set`.
    ///
    /// # Errors
    /// Everything that is wrong with it; also that it does not yield `T`.
    pub fn load_with(
        file: impl AsRef<Path>,
        catalog: &Catalog,
        set: &Set,
    ) -> Result<Self, Problems> {
        let definition = Definition::load(file.as_ref(), catalog, set)?;
        let wanted = FlowType::of::<T>();
        let last = definition.checked.steps.last();
        if let Some(last) = last.filter(|last| last.yields != wanted) {
            let yields = last.yields;
            let message = format!("the pipeline yields {yields}, but the program takes {wanted}");
            let problem = Problem::new(
                "forebay::type::mismatch",
                message,
                &last.key.place,
                format!("yields {yields}"),
            );
            return Err(Problems::new(&definition.file, &definition.text, vec![problem]));
        }
        let built = definition.build(catalog)?;
        Ok(built.pipeline.downcast().expect("the type was compared"))
    }
}
