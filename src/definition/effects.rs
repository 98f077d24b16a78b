//! What the built-in operators do to what is known of items. Reads metadata, and the coordinates that
//! `select` needs, never the data.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::flow::{Flow, Misfit, Outline};
use crate::device::{self, Kernel, OtherDType, other_dtype};
use crate::item::DType;
use crate::ops::{Pick, PickError, Picked, RenameError, Stats, has_dims, renamed};
use crate::source::Index;
use crate::stage::Source as _;
use crate::store::zarr::{self, Keep, Window, WindowsSpec, WriteSpec, ZarrError};
use crate::store::{Store, StoreOptions, sample};

/// The windows of a store; without its metadata, what the arguments say of them.
pub(super) fn windows(
    store: &str,
    options: &StoreOptions,
    mut spec: WindowsSpec,
    online: bool,
) -> Result<Flow, Misfit> {
    let cannot = |error: String| Misfit::new(format!("`zarr.windows` can't be made: {error}"));
    let keep = spec.keep.take();
    let kept_wrong = |error: ZarrError| cannot(error.to_string()).at(["keep"]);
    keep.as_ref().map_or(Ok(()), Keep::check).map_err(kept_wrong)?;
    let others = spec.also.values().filter_map(|also| also.store.as_deref());
    if !online && !std::iter::once(store).chain(others).all(is_at_hand) {
        return Ok(outlined(&spec));
    }
    spec.disk = None;
    let store = Store::open_with(store, options).map_err(|error| cannot(error.to_string()))?;
    let source = zarr::windows(&store, &spec).map_err(|error| {
        let misfit = cannot(error.to_string());
        match &error {
            ZarrError::NoVariable { name, .. } => misfit.at(["variables", name]),
            _ => misfit,
        }
    })?;
    if let Some(keep) = &keep {
        zarr::find_mask(&store, keep).map_err(|error| match &error {
            ZarrError::NoVariable { .. } => cannot(error.to_string()).at(["keep", "variable"]),
            _ => kept_wrong(error),
        })?;
    }
    let index: Index<Window> = source.into_index().map_err(|_| cannot("no index".to_owned()))?;
    let flow = Flow::of_windows(&index);
    // Its mask is data: how many windows are kept is not known before it is read.
    Ok(if keep.is_some() { Flow { items: None, ..flow } } else { flow })
}

/// Whether the store lies on this machine, ready to be read.
fn is_at_hand(url: &str) -> bool {
    match url.split_once("://") {
        None => Path::new(url).exists(),
        Some(("file", path)) => Path::new(path).exists(),
        Some(("sample", _)) => sample::is_made(),
        Some(_) => false,
    }
}

/// The tensors by their names.
fn outlined(spec: &WindowsSpec) -> Flow {
    let own = spec.variables.iter().map(|name| Outline::new(name));
    let also = spec.also.iter().flat_map(|(part, also)| {
        let of = if also.variables.is_empty() { &spec.variables } else { &also.variables };
        of.iter().map(move |name| Outline::new(&format!("{part}/{name}")))
    });
    let typed = |outline: Outline| Outline { dtype: spec.dtype, ..outline };
    let tensors = Some(own.chain(also).map(typed).collect());
    let bytes = Some(size_of::<Window>() as u64 + 128);
    let kept = spec.cache.unwrap_or(zarr::CACHE);
    Flow { tensors, bytes, kept, by_position: true, ..Flow::default() }
}

/// Their encoded chunks.
pub(super) fn fetch(before: &Flow) -> Flow {
    Flow { bytes: before.encoded, ..before.streamed() }
}

/// Their tensors, brought to mean 0 and deviation 1 on the way if there are `stats` for it.
pub(super) fn decode(stats: Option<&Stats>, before: &Flow) -> Result<Flow, Misfit> {
    let decoded = Flow { bytes: before.tensor_bytes(), encoded: None, ..before.streamed() };
    match stats {
        Some(stats) => normalize(&DECODE, stats, &decoded),
        None => Ok(decoded),
    }
}

/// An operator that normalizes, for its messages.
pub(super) struct Normalizes {
    operator: &'static str,
    /// The argument that says with what.
    argument: &'static str,
    /// What stands before it to make floating point of other types, if something can.
    cast: Option<&'static str>,
}

const DECODE: Normalizes =
    Normalizes { operator: "zarr.decode", argument: "normalize", cast: None };
pub(super) const TENSOR: Normalizes =
    Normalizes { operator: "tensor.normalize", argument: "stats", cast: Some("tensor.cast: f32") };
pub(super) const DEVICE: Normalizes =
    Normalizes { operator: "device.normalize", argument: "stats", cast: Some("device.cast: f32") };

/// The same tensors, brought to mean 0 and deviation 1.
pub(super) fn normalize(by: &Normalizes, stats: &Stats, before: &Flow) -> Result<Flow, Misfit> {
    let Normalizes { operator, argument, cast } = by;
    let tensors = before.tensors.as_deref().unwrap_or_default();
    if let (Stats::Given(given), Some(_)) = (stats, &before.tensors) {
        let mut known: Vec<&str> = tensors.iter().flat_map(|t| [&*t.variable, &*t.name]).collect();
        known.dedup();
        if let Some(name) = given.keys().find(|name| !known.contains(&name.as_str())) {
            let misfit = Misfit::new(format!("no tensor `{name}` flows into `{operator}`"));
            return Err(misfit.at([*argument, name]).meant(&known));
        }
        if let Some((name, of)) = given.iter().find(|(_, of)| !of.makes_numbers()) {
            let message = format!(
                "a mean of {} and a deviation of {} make no numbers of `{name}`",
                of.mean, of.std
            );
            return Err(Misfit::new(message).at([*argument, name]).help("a deviation is not 0"));
        }
    }
    for Outline { name, variable, dtype, has_stats, is_moved, .. } in tensors {
        if let Some(dtype) = dtype.filter(|dtype| !matches!(dtype, DType::F32 | DType::F64)) {
            let message =
                format!("`{operator}` normalizes f32 and f64, but `{name}` comes as {dtype}");
            let misfit = Misfit::new(message);
            return Err(match cast {
                Some(cast) => misfit.before((*cast).to_owned()),
                None => misfit.help("write `dtype: f32` at `zarr.windows`"),
            });
        }
        match stats {
            Stats::Given(given) if !given.contains_key(&**name) => {
                if *is_moved || !given.contains_key(&**variable) {
                    let variable = if *is_moved { name } else { variable };
                    let message = format!("no mean and deviation are given for `{name}`");
                    let help =
                        format!("add `{variable}: {{ mean: ..., std: ... }}` to `{argument}`");
                    return Err(Misfit::new(message).at([*argument]).help(help));
                }
            }
            Stats::Auto if *is_moved => {
                let message = format!(
                    "what the store says of `{name}` is not known behind `zip` and `tensor.rename`"
                );
                let help = format!(
                    "put `- {operator}` before them, or write `{argument}: {{ {name}: {{ mean: \
                     ..., std: ... }} }}`"
                );
                return Err(Misfit::new(message).help(help));
            }
            Stats::Auto if *has_stats == Some(false) => {
                let message = format!(
                    "the store says no mean and deviation of `{variable}`: it has no attributes \
                     `mean` and `std`"
                );
                let help =
                    format!("write `{argument}: {{ {variable}: {{ mean: ..., std: ... }} }}`");
                return Err(Misfit::new(message).help(help));
            }
            Stats::Given(_) | Stats::Auto => {}
        }
    }
    Ok(before.streamed())
}

/// The same tensors with elements of another type.
pub(super) fn cast(where_: &str, to: DType, before: &Flow) -> Result<Flow, Misfit> {
    let mut tensors = before.tensors.clone();
    let stays = |outline: &Outline| outline.dtype == Some(to);
    if !to.is_float() && tensors.as_ref().is_none_or(|tensors| !tensors.iter().all(stays)) {
        let misfit = Misfit::new(format!("`{where_}.cast` makes no {to}"));
        return Err(misfit.at(["to"]).help("write f16, bf16, f32 or f64"));
    }
    for outline in tensors.iter_mut().flatten() {
        outline.dtype = Some(to);
    }
    let after = Flow { tensors, ..before.streamed() };
    Ok(Flow { bytes: after.tensor_bytes(), ..after })
}

/// The same tensors, changed by a kernel that is written for them.
pub(super) fn kernel(kernel: &Kernel, before: &Flow) -> Result<Flow, Misfit> {
    let tensors = before.tensors.as_deref().unwrap_or_default();
    let known: Vec<&str> = tensors.iter().map(|outline| &*outline.name).collect();
    let missing = |name: &&String| before.tensors.is_some() && !known.contains(&name.as_str());
    if let Some(name) = kernel.variables.iter().find(missing) {
        let misfit = Misfit::new(format!("no tensor `{name}` flows into `device.kernel`"));
        return Err(misfit.at(["variables", name]).meant(&known));
    }
    for Outline { name, dtype, .. } in tensors.iter().filter(|outline| kernel.takes(&outline.name))
    {
        let Some(Err(other)) = dtype.map(|dtype| kernel.is_for(name, dtype)) else { continue };
        let OtherDType { kernel, wanted, tensor, found } = &other;
        let message =
            format!("kernel `{kernel}` is written for {wanted}, but `{tensor}` comes as {found}");
        let misfit = Misfit::new(message);
        // No cast makes whole numbers.
        let misfit = match wanted.is_float() {
            true => misfit.before(format!("device.cast: {wanted}")),
            false => misfit,
        };
        return Err(misfit.help(other_dtype(*wanted, *found)));
    }
    let misfit = |at: &str, why: String| {
        let misfit = Misfit::new(format!("kernel `{}`: {why}", kernel.name));
        misfit.code("forebay::kernel").at([at])
    };
    if let Some((argument, why)) = kernel.out_of_range() {
        return Err(misfit(argument, why));
    }
    device::cuda::check(kernel).map_err(|flaw| {
        let misfit = misfit("source", flaw.why).line(flaw.line);
        match flaw.help {
            Some(help) => misfit.help(help),
            None => misfit,
        }
    })?;
    Ok(before.streamed())
}

/// The same tensors by other names.
pub(super) fn rename(names: &BTreeMap<String, String>, before: &Flow) -> Result<Flow, Misfit> {
    let mut after = before.streamed();
    let Some(tensors) = &mut after.tensors else { return Ok(after) };
    let old: Vec<Arc<str>> = tensors.iter().map(|outline| Arc::clone(&outline.name)).collect();
    let old: Vec<&str> = old.iter().map(|name| &**name).collect();
    let new = renamed(names, &old).map_err(|error| match &error {
        RenameError::NoTensor(name) => {
            Misfit::new(error.to_string()).at(["names", name]).meant(&old)
        }
        RenameError::Taken(_) => {
            Misfit::new(error.to_string()).at(["names"]).help("give each a name of its own")
        }
    })?;
    for (outline, name) in tensors.iter_mut().zip(new) {
        if *outline.name != *name {
            // Its windows know it by its old name alone.
            *outline = Outline { name: name.as_str().into(), is_moved: true, ..outline.clone() };
        }
    }
    Ok(after)
}

/// Boxes of the tensors, or the tensors turned around.
pub(super) fn pick(pick: &Pick, before: &Flow) -> Result<Flow, Misfit> {
    let mut after = before.streamed();
    let tensors = after.tensors.iter_mut().flatten();
    let mut known: Vec<_> =
        tensors.filter_map(|outline| Some((outline.spec()?, outline))).collect();
    let wrong = |error: PickError| misfit(pick, &error, before);
    if !known.is_empty() {
        has_dims(pick, known.iter().map(|(spec, _)| spec)).map_err(wrong)?;
    }
    for (spec, outline) in &mut known {
        if let Some(picked) = Picked::of(spec, pick).map_err(wrong)? {
            outline.shape = Outline::from(&picked.spec).shape;
        }
    }
    Ok(Flow { bytes: after.tensor_bytes(), ..after })
}

fn misfit(pick: &Pick, error: &PickError, before: &Flow) -> Misfit {
    let argument = if matches!(pick, Pick::Flip(_)) { "dims" } else { "ranges" };
    match error {
        PickError::NoDim { dim, .. } => {
            let tensors = before.tensors.iter().flatten();
            let shapes = tensors.filter_map(|outline| outline.shape.as_ref()).flatten();
            let mut there: Vec<&str> = shapes.map(|(dim, _)| &**dim).collect();
            there.dedup();
            Misfit::new(format!("no tensor has a dimension `{dim}`"))
                .at([argument, dim])
                .meant(&there)
        }
        PickError::Beyond { dim, extent, from, to, .. } => {
            Misfit::new(format!("`{dim}` has {extent} entries, not {from}..{to}"))
                .at([argument, dim])
                .help(format!("write a range within 0..{extent}"))
        }
        PickError::TooManyDims { .. } | PickError::NoMemory { .. } => {
            Misfit::new(error.to_string())
        }
    }
}

/// The same tensors, written to the store `url`. Whether it takes them is known without asking it where
/// it lies on this machine or can't be written to at all.
pub(super) fn write(
    url: &str,
    options: &StoreOptions,
    spec: &WriteSpec,
    before: &Flow,
) -> Result<Flow, Misfit> {
    let cannot = |error: String| Misfit::new(format!("`zarr.write` can't be made: {error}"));
    let cannot_there = |error: String| cannot(error).at(["store"]);
    if matches!(url.split_once("://"), None | Some(("file" | "http" | "https" | "sample", _))) {
        zarr::can_write(url, options).map_err(|error| cannot_there(error.to_string()))?;
    }
    spec.check().map_err(|error| cannot(error.to_string()))?;
    Ok(before.streamed())
}

/// The same tensors in the memory of a device. `auto` is what it is on this machine.
pub(super) fn upload(device: &str, before: &Flow) -> Result<Flow, Misfit> {
    if !is_device(device) {
        let misfit = Misfit::new(format!("there is no device `{device}`")).at(["device"]);
        return Err(misfit.help("write `auto`, `host` or `cuda:0`"));
    }
    let on_device = match device {
        "host" => false,
        "auto" => device::cuda::count().is_ok_and(|gpus| gpus > 0),
        _ => true,
    };
    Ok(Flow { on_device, ..before.streamed() })
}

/// Whether a device can have this name: whether it is there is another question.
fn is_device(name: &str) -> bool {
    let is_numbered =
        |name: &str| name.strip_prefix("cuda:").is_some_and(|n| n.parse::<u32>().is_ok());
    matches!(name, "auto" | "host" | "cuda") || is_numbered(name)
}

/// The same tensors in memory of the host.
pub(super) fn download(before: &Flow) -> Flow {
    Flow { on_device: false, ..before.streamed() }
}
