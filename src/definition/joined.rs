//! What flows out of `merge` and `zip`, from what flows into them: branches that do not fit each other
//! are told before a byte is read.

use super::flow::{Flow, Misfit, Outline};

/// The items of all branches: they are of one kind.
pub(super) fn merge(names: &[String], branches: &[Flow]) -> Result<Flow, Misfit> {
    let Some((first, others)) = branches.split_first() else { return Ok(Flow::default()) };
    let mut all = Flow { mixed: true, kept: 0, ..first.streamed() };
    for (name, other) in names.iter().skip(1).zip(others) {
        if let (Some(a), Some(b)) = (&mut all.tensors, &other.tensors) {
            alike(&names[0], a, name, b)?;
        } else {
            all.tensors = None;
        }
        all.items = all.items.zip(other.items).map(|(a, b)| a.saturating_add(b));
        all.bytes = all.bytes.zip(other.bytes).map(|(a, b)| a.max(b));
        all.encoded = all.encoded.zip(other.encoded).map(|(a, b)| a.max(b));
        all.mixed |= other.mixed;
    }
    Ok(all)
}

/// Refuses tensors of which a consumer could not tell what they are: other names, types or extents.
fn alike(one: &str, a: &mut [Outline], other: &str, b: &[Outline]) -> Result<(), Misfit> {
    let names =
        |of: &[Outline]| of.iter().map(|t| format!("`{}`", t.name)).collect::<Vec<_>>().join(", ");
    let differ = |what: String| {
        Misfit::new(format!("`{one}` and `{other}` can't be merged: {what}")).at(["sources", other])
    };
    if a.len() != b.len() || a.iter().zip(b).any(|(a, b)| a.name != b.name) {
        return Err(differ(format!("one has {}, the other {}", names(a), names(b)))
            .help("items that are merged hold the same tensors: choose the same `variables`, or `tensor.rename`"));
    }
    for (a, b) in a.iter_mut().zip(b) {
        if let (Some(of_a), Some(of_b)) = (a.dtype, b.dtype)
            && of_a != of_b
        {
            return Err(differ(format!("`{}` is {of_a} in one and {of_b} in the other", a.name))
                .help(format!("write `- tensor.cast: {of_a}` at the end of `{other}`")));
        }
        if let (Some(of_a), Some(of_b)) = (&mut a.shape, &b.shape) {
            let inner = |shape: &[_]| shape.get(1..).unwrap_or_default().to_vec();
            if of_a.len() != of_b.len() || inner(of_a) != inner(of_b) {
                return Err(differ(format!("`{}` has other extents", a.name))
                    .help("give both windows of the same extents, or `tensor.crop` one of them"));
            }
            // How many windows a batch has may differ.
            if let (Some((_, n)), Some((_, m))) = (of_a.first_mut(), of_b.first()) {
                *n = (*n).max(*m);
            }
        }
        a.is_moved |= b.is_moved;
        a.has_stats = a.has_stats.zip(b.has_stats).map(|(a, b)| a && b);
    }
    Ok(())
}

/// The tensors of all branches in one batch.
pub(super) fn zip(names: &[String], branches: &[Flow]) -> Result<Flow, Misfit> {
    let Some((first, others)) = branches.split_first() else { return Ok(Flow::default()) };
    let mut all = Flow { kept: 0, ..first.streamed() };
    for (name, other) in names.iter().skip(1).zip(others) {
        if let (Some(a), Some(b)) = (&mut all.tensors, &other.tensors) {
            beside(a, name, b)?;
        } else {
            all.tensors = None;
        }
        all.items = all.items.zip(other.items).map(|(a, b)| a.min(b));
        all.bytes = all.bytes.zip(other.bytes).map(|(a, b)| a.saturating_add(b));
        all.mixed |= other.mixed;
    }
    Ok(all)
}

/// Adds the tensors `b` of the branch `other`.
fn beside(a: &mut Vec<Outline>, other: &str, b: &[Outline]) -> Result<(), Misfit> {
    if let Some(taken) = b.iter().find(|b| a.iter().any(|a| a.name == b.name)) {
        let name = &taken.name;
        return Err(Misfit::new(format!("two tensors of a batch would be called `{name}`"))
            .at(["sources", other])
            .help(format!(
                "end `{other}` with `- tensor.rename: {{ names: {{ {name}: {other}_{name} }} }}`, or \
                 choose other `variables`"
            )));
    }
    let windows = |of: &[Outline]| Some(of.first()?.shape.as_ref()?.first()?.1);
    if let (Some(n), Some(m)) = (windows(a), windows(b))
        && n != m
    {
        return Err(Misfit::new(format!("batches of {n} can't stand beside batches of {m}"))
            .at(["sources", other])
            .help("write the same `batch` in all branches"));
    }
    // The batch keeps the windows of the first branch, where the attributes of others are not found.
    a.extend(b.iter().map(|outline| Outline { is_moved: true, ..outline.clone() }));
    Ok(())
}
