//! The operators that a definition can name: built in, or a user's own.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::Pools;
use super::any::{AnyPipeline, FlowType, Same};
use super::args;
use super::builtin;
use super::flow::{Flow, Misfit};
use super::pinned::CopiesTo;
use super::problem::Problem;
use super::tree::{Key, Node};
use crate::entering::Entering;
use crate::fault::BoxError;
use crate::item::Pool;
use crate::options::Options;
use crate::pipeline::Pipeline;
use crate::stage::{Kind, Source, Stage};

/// What an operator can use beside its arguments while a pipeline is built.
#[derive(Clone, Debug)]
pub struct Context {
    /// The pool that batches are decoded into.
    pub pool: Pool,
    /// The seed of this stage: a function of the run's seed and the stage's id.
    pub seed: u64,
    /// Those of the run.
    pub(super) pools: Pools,
}

impl Context {
    /// Counts the buffers of `pool` in the run's report.
    pub fn report_pool(&self, pool: &Pool) {
        self.pools.add(pool);
    }
}

/// Operators by name. Every operator is one line:
///
/// ```
/// use forebay::definition::Catalog;
/// use forebay::prelude::*;
///
/// /// Adds to every number.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct Add {
///     /// What is added.
///     by: i64,
/// }
///
/// let catalog = Catalog::builtin().stage("acme.add", Kind::Cpu, |args: Add, _| {
///     Ok(cpu::map("add", move |x: i64| Ok::<_, Never>(x + args.by)))
/// });
/// # let _ = catalog;
/// ```
#[derive(Default)]
pub struct Catalog {
    operators: BTreeMap<String, Operator>,
    last: Option<String>,
}

/// A name in the catalogue.
pub struct Operator {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) main: Option<&'static str>,
    /// Whether its batches are in memory from the context's pool.
    pub(super) allocates: bool,
    /// The device that it copies batches to.
    pub(super) copies_to: Option<CopiesTo>,
    pub(super) schema: Json,
    pub(super) forms: Vec<Form>,
    pub(super) check: fn(&Key, &Node, Option<&str>) -> Vec<Problem>,
}

type Build =
    Box<dyn Fn(Vec<AnyPipeline>, Made<'_>) -> Result<AnyPipeline, BuildError> + Send + Sync>;

/// What a form is built from.
pub(super) struct Made<'a> {
    pub(super) key: &'a Key,
    pub(super) node: &'a Node,
    pub(super) main: Option<&'a str>,
    pub(super) options: Options,
    /// Whether `retry` is said of all stages, and not of this one.
    pub(super) retries_by_default: bool,
    pub(super) context: &'a Context,
}

/// Why a stage could not be built.
pub(super) enum BuildError {
    Problems(Vec<Problem>),
    Failed(BoxError),
}

/// One of the ways to use an operator, told apart by what comes in.
pub(super) struct Form {
    pub(super) takes: Takes,
    pub(super) yields: Option<FlowType>,
    pub(super) build: Build,
    /// What flows out of it, from its arguments and what flows in; if it says.
    pub(super) flow: Option<Flows>,
    /// What its stages say of themselves.
    pub(super) options: Options,
    /// Whether its items can be tried again, if that is known.
    pub(super) retries: Option<bool>,
    /// Where its stages can be entered, if it says.
    pub(super) entering: Option<Enters>,
}

type Enters = Box<dyn Fn(&Asked<'_>) -> Option<Entering> + Send + Sync>;
type Flows = Box<dyn Fn(&Asked<'_>) -> Result<Flow, Misfit> + Send + Sync>;

/// What a form is asked what flows out of it.
pub(super) struct Asked<'a> {
    pub(super) key: &'a Key,
    pub(super) node: &'a Node,
    pub(super) main: Option<&'a str>,
    pub(super) before: &'a Flow,
    /// What flows in from each named source, for one that takes several.
    pub(super) branches: &'a [Flow],
    /// Whether stores that are not on this machine may be opened.
    pub(super) online: bool,
}

/// What comes into a form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Takes {
    /// Nothing: it is a source.
    Nothing,
    /// Any type, and it yields the same.
    Any,
    /// One type.
    One(FlowType),
    /// Several named sources: of one type that is given, or of any.
    Named(Option<FlowType>),
}

impl Catalog {
    /// No operators.
    pub fn empty() -> Self {
        Catalog::default()
    }

    /// The built-in operators.
    pub fn builtin() -> Self {
        builtin::catalog()
    }

    /// Adds a source.
    pub fn source<A, S>(
        self,
        name: &str,
        make: impl Fn(A, &Context) -> Result<S, BoxError> + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        S: Source,
    {
        let build: Build = Box::new(move |_, made| {
            let arguments = arguments(&made)?;
            let source = make(arguments, made.context).map_err(BuildError::Failed)?;
            Ok(AnyPipeline::new(Pipeline::from_with(source, made.options)))
        });
        let yields = Some(FlowType::of::<S::Item>());
        self.form::<A>(name, Kind::Source, Form::new(Takes::Nothing, yields, build))
    }

    /// Adds a stage of a kind. A name that is there already gets another form, for what comes in.
    pub fn stage<A, S>(
        self,
        name: &str,
        kind: Kind,
        make: impl Fn(A, &Context) -> Result<S, BoxError> + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        S: Stage,
    {
        let build: Build = Box::new(move |before, made| {
            let arguments = arguments(&made)?;
            let stage = make(arguments, made.context).map_err(BuildError::Failed)?;
            let mut options = made.options;
            if made.retries_by_default && !stage.can_retry() {
                options.retry = None;
            }
            let before = only(before).downcast::<S::In>();
            let before = before.expect("the form was chosen by the type that comes in");
            Ok(AnyPipeline::new(before.then_with(stage, options)))
        });
        let takes = Takes::One(FlowType::of::<S::In>());
        self.form::<A>(name, kind, Form::new(takes, Some(FlowType::of::<S::Out>()), build))
    }

    /// Adds an operator that fits any type and keeps it.
    pub(super) fn same<A: DeserializeOwned + JsonSchema + 'static>(
        self,
        name: &str,
        make: impl Fn(A, &Context) -> Result<Same, BoxError> + Send + Sync + 'static,
    ) -> Self {
        let build: Build = Box::new(move |before, made| {
            let arguments = arguments(&made)?;
            let same = make(arguments, made.context).map_err(BuildError::Failed)?;
            Ok(only(before).same(same, made.options))
        });
        self.form::<A>(name, Kind::Flow, Form::new(Takes::Any, None, build))
    }

    /// Adds an operator that makes one pipeline of several named sources: of type `of`, or of any
    /// one type.
    pub(super) fn join<A: DeserializeOwned + JsonSchema + 'static>(
        self,
        name: &str,
        of: Option<FlowType>,
        make: impl Fn(A, Vec<AnyPipeline>, Options) -> AnyPipeline + Send + Sync + 'static,
    ) -> Self {
        let build: Build = Box::new(move |before, made| {
            let arguments = arguments(&made)?;
            Ok(make(arguments, before, made.options))
        });
        self.form::<A>(name, Kind::Flow, Form::new(Takes::Named(of), of, build))
    }

    /// The argument for which a scalar stands in the operator added last: `- batch: 32`.
    pub fn main(mut self, argument: &'static str) -> Self {
        if let Some(operator) = self.operator_added_last() {
            operator.main = Some(argument);
        }
        self
    }

    /// What flows out of the operator added last, from its arguments and what flows in. Without it
    /// nothing is known of items from this operator on.
    ///
    /// ```
    /// # use forebay::definition::{Catalog, Misfit};
    /// # use forebay::prelude::*;
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Flip {}
    /// let catalog = Catalog::builtin()
    ///     .stage("acme.flip", Kind::Cpu, |_: Flip, _| {
    ///         Ok(cpu::map("flip", |batch: Batch| Ok::<_, Never>(batch)))
    ///     })
    ///     .flows(|_: Flip, before| match before.tensors.as_deref() {
    ///         Some([]) => Err(Misfit::new("there is nothing to flip")),
    ///         _ => Ok(before.clone()),
    ///     });
    /// # let _ = catalog;
    /// ```
    pub fn flows<A: DeserializeOwned + JsonSchema>(
        self,
        flow: impl Fn(A, &Flow) -> Result<Flow, Misfit> + Send + Sync + 'static,
    ) -> Self {
        self.asked(move |arguments, asked| flow(arguments, asked.before))
    }

    /// The same with all that can be asked.
    pub(super) fn asked<A: DeserializeOwned + JsonSchema>(
        mut self,
        flow: impl Fn(A, &Asked<'_>) -> Result<Flow, Misfit> + Send + Sync + 'static,
    ) -> Self {
        if let Some(form) = self.form_added_last() {
            form.flow = Some(Box::new(move |asked| {
                match args::read(asked.key, asked.node, asked.main) {
                    Ok(arguments) => flow(arguments, asked),
                    // What is wrong with the arguments is told where they are checked.
                    Err(_) => Ok(Flow::default()),
                }
            }));
        }
        self
    }

    /// Where a run that goes on from a checkpoint can enter the stages of the operator added last, as
    /// those say themselves ([`Stage::entering`]), so that `check` can tell how a run will go on.
    pub fn enters<A: DeserializeOwned + JsonSchema>(
        mut self,
        entering: impl Fn(A) -> Entering + Send + Sync + 'static,
    ) -> Self {
        if let Some(form) = self.form_added_last() {
            form.entering = Some(Box::new(move |asked| {
                args::read(asked.key, asked.node, asked.main).ok().map(&entering)
            }));
        }
        self
    }

    /// All operators whose stages make calls make one item of each at most, unless they said otherwise.
    pub(super) fn calls_are_maps(mut self) -> Self {
        for operator in self.operators.values_mut().filter(|o| o.kind.makes_calls()) {
            for form in &mut operator.forms {
                form.entering.get_or_insert_with(|| Box::new(|_| Some(Entering::One)));
            }
        }
        self
    }

    /// What stages of the operator added last say of themselves: what a definition says wins.
    pub(super) fn options(mut self, options: Options) -> Self {
        if let Some(form) = self.form_added_last() {
            form.options = options;
        }
        self
    }

    pub(super) fn operator_added_last(&mut self) -> Option<&mut Operator> {
        self.operators.get_mut(self.last.as_ref()?)
    }

    pub(super) fn form_added_last(&mut self) -> Option<&mut Form> {
        self.operator_added_last()?.forms.last_mut()
    }

    pub(super) fn all_forms(&mut self) -> impl Iterator<Item = &mut Form> {
        self.operators.values_mut().flat_map(|operator| &mut operator.forms)
    }

    fn form<A: DeserializeOwned + JsonSchema + 'static>(
        mut self,
        name: &str,
        kind: Kind,
        form: Form,
    ) -> Self {
        let operator = self.operators.entry(name.to_owned()).or_insert_with(|| Operator {
            name: name.to_owned(),
            kind,
            main: None,
            allocates: false,
            copies_to: None,
            schema: args::schema::<A>(),
            forms: Vec::new(),
            check: |key, node, main| args::read::<A>(key, node, main).err().unwrap_or_default(),
        });
        // The last word counts, so that a user's operator can take the place of a built-in one.
        operator.forms.retain(|other| other.takes != form.takes);
        operator.forms.push(form);
        self.last = Some(name.to_owned());
        self
    }

    /// The operators in the order of their names.
    pub fn operators(&self) -> impl Iterator<Item = &Operator> {
        self.operators.values()
    }

    /// The operator of a name.
    pub fn get(&self, name: &str) -> Option<&Operator> {
        self.operators.get(name)
    }
}

/// What comes before a stage that is neither a source nor takes named sources.
fn only(mut before: Vec<AnyPipeline>) -> AnyPipeline {
    before.pop().expect("a stage that is not a source has one before it")
}

fn arguments<A: DeserializeOwned + JsonSchema>(made: &Made<'_>) -> Result<A, BuildError> {
    args::read(made.key, made.node, made.main).map_err(BuildError::Problems)
}

impl Form {
    fn new(takes: Takes, yields: Option<FlowType>, build: Build) -> Self {
        Form {
            takes,
            yields,
            build,
            flow: None,
            options: Options::default(),
            retries: None,
            entering: None,
        }
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.operators.keys()).finish()
    }
}
