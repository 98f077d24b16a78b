//! What is known of the items on an edge before any of them is there: how many, how large, which
//! tensors. What is not known is `None`, never a guess.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::item::{DType, Spec};
use crate::nearest::nearest;
use crate::source::Index;
use crate::store::zarr::Window;

/// What is known of the items between two stages.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Flow {
    /// How many items there are at most.
    pub items: Option<u64>,
    /// Bytes of memory that an item keeps at most: of the host, unless it is [`on_device`](Self::on_device).
    pub bytes: Option<u64>,
    /// Whether the memory of an item is that of a device.
    pub on_device: bool,
    /// The tensors that an item holds, or that its windows become when they are decoded.
    pub tensors: Option<Vec<Outline>>,
    /// Whether items are computed by position: stages that choose among them cost nothing.
    pub by_position: bool,
    /// Whether items come of several sources, so that windows can't share a batch.
    pub(crate) mixed: bool,
    /// Bytes of the encoded chunks of an item, at most.
    pub(crate) encoded: Option<u64>,
    /// Bytes that the stage itself holds beside the items of its calls, at most.
    pub(crate) held: Option<u64>,
    /// Bytes that the source keeps for later items, at most.
    pub(crate) kept: u64,
}

/// What is known of a tensor before it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outline {
    /// Its name.
    pub name: Arc<str>,
    /// The variable that it is cut from: `t2m` for `target/t2m`.
    pub variable: Arc<str>,
    /// The type of its elements.
    pub dtype: Option<DType>,
    /// The names of its dimensions and its extent in each, outermost first.
    pub shape: Option<Vec<(Arc<str>, u64)>>,
    /// Whether its store says its mean and its deviation.
    pub(crate) has_stats: Option<bool>,
    /// Whether its windows don't know it: it came from another source, or has another name.
    pub(crate) is_moved: bool,
}

/// Why a stage cannot take what flows into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    pub(super) code: &'static str,
    pub(super) message: Box<str>,
    /// The argument that is to blame, from the outermost; none is the stage itself.
    pub(super) at: Vec<String>,
    /// The line of that argument's text, from 1.
    pub(super) line: Option<NonZeroU32>,
    pub(super) help: Option<Box<str>>,
    /// List items that would make it fit, to be put before it.
    pub(super) before: Vec<String>,
    /// What the last part of `at` was probably meant as.
    pub(super) meant: Option<Box<str>>,
}

impl Flow {
    /// Each item as one of `size`: tensors of windows are stacked.
    pub(super) fn grouped(&self, size: u64, drop_last: bool, stacks: bool) -> Flow {
        let least = self.items.map_or(size, |items| items.min(size));
        let stack = |bytes: u64| bytes.saturating_mul(least);
        let tensors = self.tensors.as_ref().filter(|_| stacks);
        Flow {
            items: self.items.map(|n| if drop_last { n / size } else { n.div_ceil(size) }),
            bytes: self.bytes.map(|bytes| stack(bytes).saturating_add(size_of::<Vec<u8>>() as u64)),
            tensors: tensors
                .map(|tensors| tensors.iter().map(|tensor| tensor.stacked(least)).collect()),
            encoded: self.encoded.map(stack),
            ..self.clone()
        }
    }

    /// The items of groups, one by one. How many there are in a group is not known here.
    pub(super) fn ungrouped(&self, stacks: bool) -> Flow {
        let mut tensors = self.tensors.clone().filter(|_| stacks);
        for shape in tensors.iter_mut().flatten().filter_map(|tensor| tensor.shape.as_mut()) {
            shape.iter_mut().take(1).for_each(|(_, samples)| *samples = 1);
        }
        Flow { items: None, held: self.bytes, tensors, ..self.streamed() }
    }

    /// At most `n` items.
    pub(super) fn at_most(&self, n: u64) -> Flow {
        Flow { items: Some(self.items.map_or(n, |items| items.min(n))), ..self.clone() }
    }

    /// The same items as a stream.
    pub(super) fn streamed(&self) -> Flow {
        Flow { by_position: false, ..self.clone() }
    }

    /// Bytes of its tensors, if all of them are known.
    pub(super) fn tensor_bytes(&self) -> Option<u64> {
        self.tensors
            .as_ref()?
            .iter()
            .map(Outline::bytes)
            .try_fold(0, |sum: u64, bytes| bytes.map(|bytes| sum.saturating_add(bytes)))
    }

    /// What the windows of `index` will be.
    pub(super) fn of_windows(index: &Index<Window>) -> Flow {
        let bytes = Some(size_of::<Window>() as u64 + 128);
        let flow = Flow { items: Some(index.len()), bytes, by_position: true, ..Flow::default() };
        if index.is_empty() {
            return flow;
        }
        let window = index.get(0);
        let outline = |spec: Spec| {
            let number = |name| window.attribute(&spec.name, name).is_some_and(|n| n.is_number());
            let has_stats = Some(number("mean") && number("std"));
            let variable = window.variable(&spec.name).unwrap_or_default().into();
            Outline { variable, has_stats, ..Outline::from(&spec) }
        };
        Flow {
            tensors: Some(window.specs().into_iter().map(outline).collect()),
            encoded: Some(window.encoded_max()),
            kept: window.cache_bytes(),
            ..flow
        }
    }
}

/// `t2m, u10: f32[sample 4, time 1]`, or what is known of it.
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(tensors) = &self.tensors else { return f.write_str("tensors not known") };
        let alike = |a: &Outline, b: &Outline| (a.dtype, &a.shape) == (b.dtype, &b.shape);
        let group = |group: &[Outline]| {
            let names: Vec<_> = group.iter().map(|outline| &*outline.name).collect();
            Outline { name: names.join(", ").into(), ..group[0].clone() }.to_string()
        };
        f.write_str(&tensors.chunk_by(alike).map(group).collect::<Vec<_>>().join("; "))
    }
}

impl Outline {
    /// A tensor of which only the name is known.
    pub fn new(name: &str) -> Self {
        let (dtype, shape, has_stats) = (None, None, None);
        let variable = name.rsplit('/').next().unwrap_or(name);
        let is_moved = false;
        Outline { name: name.into(), variable: variable.into(), dtype, shape, has_stats, is_moved }
    }

    /// Its bytes, if its type and its shape are known.
    pub fn bytes(&self) -> Option<u64> {
        let elements = self.shape.as_ref()?.iter().map(|(_, n)| *n);
        elements.fold(self.dtype.map(|dtype| dtype.size() as u64), |bytes, n| {
            bytes.map(|bytes| bytes.saturating_mul(n))
        })
    }

    /// What it is, if its shape is known; a type that is not known is taken for that of bytes.
    pub(super) fn spec(&self) -> Option<Spec> {
        let shape = self.shape.as_ref()?;
        Some(Spec {
            name: Arc::clone(&self.name),
            dtype: self.dtype.unwrap_or(DType::U8),
            dims: shape.iter().map(|(dim, _)| Arc::clone(dim)).collect(),
            shape: shape.iter().map(|(_, extent)| *extent).collect(),
        })
    }

    fn stacked(&self, n: u64) -> Outline {
        let mut shape = self.shape.clone();
        if let Some((_, samples)) = shape.as_mut().and_then(|shape| shape.first_mut()) {
            *samples = samples.saturating_mul(n);
        }
        Outline { shape, ..self.clone() }
    }
}

impl From<&Spec> for Outline {
    fn from(spec: &Spec) -> Self {
        let shape = spec.dims.iter().cloned().zip(spec.shape.iter().copied());
        let shape = Some(shape.collect());
        Outline { dtype: Some(spec.dtype), shape, ..Outline::new(&spec.name) }
    }
}

impl fmt::Display for Outline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(dtype) = self.dtype {
            write!(f, ": {dtype}")?;
        }
        if let Some(shape) = &self.shape {
            let dims: Vec<_> = shape.iter().map(|(dim, n)| format!("{dim} {n}")).collect();
            write!(f, "[{}]", dims.join(", "))?;
        }
        Ok(())
    }
}

impl Misfit {
    /// It does not fit, because of `message`.
    pub fn new(message: impl Into<String>) -> Self {
        let (at, before) = (Vec::new(), Vec::new());
        let (code, message) = ("forebay::spec", message.into().into());
        Misfit { code, message, at, line: None, help: None, before, meant: None }
    }

    /// What to write instead.
    pub fn help(self, help: impl Into<String>) -> Self {
        Misfit { help: Some(help.into().into()), ..self }
    }

    /// The argument that is to blame, from the outermost: `["stats", "t2m"]`.
    pub fn at<'a>(self, path: impl IntoIterator<Item = &'a str>) -> Self {
        Misfit { at: path.into_iter().map(str::to_owned).collect(), ..self }
    }

    /// Another code than that of what flows.
    pub(super) fn code(self, code: &'static str) -> Self {
        Misfit { code, ..self }
    }

    /// The line of the argument's text that is to blame, from 1.
    pub(super) fn line(self, line: Option<usize>) -> Self {
        let line = line.and_then(|line| u32::try_from(line).ok()).and_then(NonZeroU32::new);
        Misfit { line, ..self }
    }

    /// A list item that would make it fit: `tensor.cast: f32`.
    pub fn before(mut self, item: impl Into<String>) -> Self {
        let item = item.into();
        self = self.help(format!("add before it: `- {item}`"));
        self.before.push(item);
        self
    }

    /// The last part of the argument was probably meant as one of `known`.
    pub(super) fn meant(mut self, known: &[&str]) -> Self {
        let name = self.at.last().map_or("", String::as_str);
        let help = super::suggest(name, known.iter().copied());
        self.meant = nearest(name, known).map(Box::from);
        self.help(help)
    }
}
