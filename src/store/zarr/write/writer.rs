//! Puts batches at their place: adds what their windows have to the chunks that they touch, and writes
//! each chunk once all windows that touch it have come. A chunk is written whole or not at all, by
//! whoever got all its windows: so no two writers touch one, and what was written stays.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;

use super::create::create;
use super::error::WriteError;
use super::output::Output;
use super::pile::Pile;
use super::spec::{Incomplete, WriteSpec};
use super::touching::{Touching, places};
use crate::item::{Batch, Pool, Spec};
use crate::store::zarr::cut::Piece;
use crate::store::zarr::dataset::Dataset;
use crate::store::zarr::fetch::each_place;
use crate::store::{Store, on_a_blocking_thread};

/// Bytes that chunks may take while windows are missing, unless told otherwise.
const MEMORY: u64 = 4 << 30;
/// Chunks that one call writes at once.
const AT_ONCE: usize = 16;

/// Writes the batches of one source to a store.
pub(super) struct Writer {
    pub(super) store: Store,
    pub(super) spec: WriteSpec,
    pool: Pool,
    /// Known once the first batch has come.
    target: tokio::sync::OnceCell<Arc<Target>>,
    pub(super) tally: Arc<Tally>,
}

/// What was written so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) chunks: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) found: AtomicU64,
    pub(super) open_max: AtomicU64,
    pub(super) open_bytes_max: AtomicU64,
}

/// The arrays that are written, and the state of their chunks.
struct Target {
    dataset: Arc<Dataset>,
    outputs: Vec<Output>,
    chunks: Mutex<Chunks>,
}

#[derive(Default)]
struct Chunks {
    /// Those for which windows are still to come, by array and number.
    open: HashMap<(usize, u64), Arc<Open>>,
    /// Those that are written, or about to be, of each array.
    done: Vec<HashSet<u64>>,
    bytes: u64,
}

struct Open {
    place: Vec<u64>,
    pile: Mutex<State>,
}

enum State {
    New,
    Filling(Pile),
    Full,
}

/// A chunk of an array that can be written.
struct Full {
    output: usize,
    place: Vec<u64>,
    pile: Pile,
}

impl Writer {
    pub(super) fn new(store: &Store, spec: &WriteSpec) -> Self {
        let (pool, target, tally) = Default::default();
        Writer { store: store.clone(), spec: spec.clone(), pool, target, tally }
    }

    /// Adds a batch, and writes the chunks for which nothing is missing any more.
    pub(super) async fn write(self: &Arc<Self>, batch: Batch) -> Result<Batch, WriteError> {
        let Some(first) = batch.windows().first() else { return Ok(batch) };
        let open = || {
            let (writer, dataset) = (Arc::clone(self), Arc::clone(&first.dataset));
            let tensors = batch.tensors().iter().map(|tensor| tensor.spec().clone()).collect();
            on_a_blocking_thread(move || writer.open(dataset, tensors))
        };
        let target = Arc::clone(self.target.get_or_try_init(open).await?);
        let writer = Arc::clone(self);
        let (batch, encoded) = on_a_blocking_thread(move || {
            let full = writer.add(&target, &batch)?;
            let encode = |full| writer.encode(&target, full);
            let encoded: Result<Vec<_>, WriteError> = full.into_iter().map(encode).collect();
            Ok::<_, WriteError>((batch, encoded?))
        })
        .await?;
        self.put(encoded).await?;
        Ok(batch)
    }

    /// Says what is missing, or writes it with the fill value, once all batches have come.
    pub(super) async fn close(self: Arc<Self>) -> Result<(), WriteError> {
        let Some(target) = self.target.get().map(Arc::clone) else { return Ok(()) };
        let open: BTreeMap<_, _> =
            std::mem::take(&mut target.chunks.lock().open).into_iter().collect();
        let count = open.len() as u64;
        for ((output, _), open) in open {
            let state = std::mem::replace(&mut *open.pile.lock(), State::Full);
            let State::Filling(pile) = state else { continue };
            let place = open.place.clone();
            if self.spec.incomplete == Incomplete::Fail {
                let chunk = target.outputs[output].key(&place);
                let Pile { windows, missing, .. } = pile;
                return Err(WriteError::Incomplete { chunks: count, chunk, missing, windows });
            }
            let (writer, target) = (Arc::clone(&self), Arc::clone(&target));
            let full = Full { output, place, pile };
            let encoded = on_a_blocking_thread(move || writer.encode(&target, full)).await?;
            self.put(vec![encoded]).await?;
        }
        Ok(())
    }

    fn open(&self, dataset: Arc<Dataset>, tensors: Vec<Spec>) -> Result<Arc<Target>, WriteError> {
        let (outputs, done) = create(&self.store, &self.spec, &dataset, &tensors)?;
        let found = done.iter().map(|done| done.len() as u64).sum();
        self.tally.found.store(found, Relaxed);
        let chunks = Mutex::new(Chunks { done, ..Chunks::default() });
        Ok(Arc::new(Target { dataset, outputs, chunks }))
    }

    /// Adds what the windows of a batch have; gives the chunks for which nothing is missing any more.
    fn add(&self, target: &Target, batch: &Batch) -> Result<Vec<Full>, WriteError> {
        let Target { dataset, outputs, .. } = target;
        if batch.windows().iter().any(|window| !Arc::ptr_eq(&window.dataset, dataset)) {
            return Err(WriteError::OtherSource);
        }
        let starts: Vec<_> =
            batch.windows().iter().map(|window| dataset.starts(window.number)).collect();
        let mut full = Vec::new();
        for (number, output) in outputs.iter().enumerate() {
            let cut = &dataset.cuts[output.cut];
            let extents = cut.extents(&starts[0]);
            let elements = elements_of(batch, output, &extents)?;
            let window_bytes = elements.len() / batch.len();
            for (window, starts) in starts.iter().enumerate() {
                let at = batch.windows()[window].number;
                if !self.is_mine(dataset, at) {
                    continue;
                }
                let places = places(dataset.axes(), at);
                let elements = &elements[window * window_bytes..(window + 1) * window_bytes];
                for (chunk, pieces) in touched(output, &cut.pieces(starts)) {
                    let found = self.chunk(target, number, &chunk)?;
                    let Some(open) = found else { continue };
                    let mut state = open.pile.lock();
                    let touching = output.touching(dataset, &chunk);
                    if let State::New = *state {
                        let (all, read) = (touching.len(), touching.read(dataset));
                        *state = State::Filling(Pile::new(output, &self.pool, all, read));
                    }
                    let State::Filling(pile) = &mut *state else { continue };
                    // It can have come before, where windows are read several times.
                    let position = touching.position(&places);
                    let Some(position) = position.filter(|position| pile.comes(*position)) else {
                        continue;
                    };
                    let early = pile.early_bytes;
                    pile.add(
                        (output, &self.pool),
                        (&output.block(&chunk), &pieces),
                        (elements, &extents),
                        (position, |position| touching.is_read(dataset, position)),
                    );
                    self.holds(target, early, pile.early_bytes)?;
                    if pile.missing == 0
                        && let State::Filling(pile) = std::mem::replace(&mut *state, State::Full)
                    {
                        target.chunks.lock().fill(number, output, &chunk);
                        full.push(Full { output: number, place: chunk, pile });
                    }
                }
            }
        }
        Ok(full)
    }

    /// Whether a window belongs to this rank.
    fn is_mine(&self, dataset: &Dataset, number: u64) -> bool {
        match &self.spec.shard {
            Some(ranks) if dataset.left_out() == 0 => {
                ranks.share(dataset.windows(), ranks.rank).contains(&number)
            }
            _ => true,
        }
    }

    /// The chunk at `place`, unless it is written already.
    fn chunk(
        &self,
        target: &Target,
        output: usize,
        place: &[u64],
    ) -> Result<Option<Arc<Open>>, WriteError> {
        let of = &target.outputs[output];
        let number = of.number(place);
        let mut chunks = target.chunks.lock();
        if chunks.done[output].contains(&number) {
            return Ok(None);
        }
        if let Some(open) = chunks.open.get(&(output, number)) {
            return Ok(Some(Arc::clone(open)));
        }
        let bytes = chunks.bytes + of.bytes_while_open();
        if !chunks.open.is_empty() {
            self.check_memory(&chunks, bytes)?;
        }
        chunks.bytes = bytes;
        let open = Open { place: place.to_vec(), pile: Mutex::new(State::New) };
        let open = Arc::new(open);
        chunks.open.insert((output, number), Arc::clone(&open));
        self.tally.open_max.fetch_max(chunks.open.len() as u64, Relaxed);
        self.tally.open_bytes_max.fetch_max(bytes, Relaxed);
        Ok(Some(open))
    }

    /// A chunk holds `now` bytes of windows that came before their turn, and held `before`.
    fn holds(&self, target: &Target, before: u64, now: u64) -> Result<(), WriteError> {
        if now == before {
            return Ok(());
        }
        let mut chunks = target.chunks.lock();
        chunks.bytes = chunks.bytes + now - before;
        self.tally.open_bytes_max.fetch_max(chunks.bytes, Relaxed);
        if now > before { self.check_memory(&chunks, chunks.bytes) } else { Ok(()) }
    }

    fn check_memory(&self, chunks: &Chunks, bytes: u64) -> Result<(), WriteError> {
        let memory = self.spec.memory.unwrap_or(MEMORY);
        if bytes <= memory {
            return Ok(());
        }
        let why = "let windows come in order or with `shuffle: chunks`, so that those of a chunk come \
                   soon after each other, write smaller `chunks`, or give more `memory`";
        let chunks = chunks.open.len() as u64;
        Err(WriteError::Memory { chunks, memory, why: why.to_owned() })
    }

    fn encode(&self, target: &Target, full: Full) -> Result<(String, Bytes), WriteError> {
        let output = &target.outputs[full.output];
        let key = output.key(&full.place);
        let elements = full.pile.finish(output, &self.pool);
        match output.encode(&elements) {
            Ok(encoded) => Ok((key, encoded)),
            Err(why) => Err(WriteError::Encode { chunk: key, why }),
        }
    }

    async fn put(&self, encoded: Vec<(String, Bytes)>) -> Result<(), WriteError> {
        let put = async |(key, bytes): (String, Bytes)| {
            let len = bytes.len() as u64;
            self.store.put(&key, bytes).await?;
            self.tally.chunks.fetch_add(1, Relaxed);
            self.tally.bytes.fetch_add(len, Relaxed);
            Ok(())
        };
        futures::stream::iter(encoded).map(put).buffer_unordered(AT_ONCE).try_collect().await
    }
}

impl Chunks {
    /// A chunk is full: nothing more is added to it.
    fn fill(&mut self, number: usize, output: &Output, place: &[u64]) {
        let chunk = output.number(place);
        self.open.remove(&(number, chunk));
        self.bytes -= output.bytes_while_open();
        self.done[number].insert(chunk);
    }
}

/// The elements of the tensor of `output`, whose windows have the extents `extents`.
fn elements_of<'a>(
    batch: &'a Batch,
    output: &Output,
    extents: &[u64],
) -> Result<&'a [u8], WriteError> {
    let wrong = |why: String| WriteError::Tensor { tensor: output.tensor.to_string(), why };
    let tensor = batch.get(&output.tensor);
    let tensor = tensor.ok_or_else(|| wrong("this batch has none of that name".to_owned()))?;
    let spec = tensor.spec();
    if spec.dtype != output.dtype {
        return Err(wrong(format!("it is of type {} now, and was {}", spec.dtype, output.dtype)));
    }
    let expected: Vec<_> = std::iter::once(batch.len() as u64).chain(extents.to_vec()).collect();
    if *spec.shape != *expected {
        let by = |shape: &[u64]| shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
        return Err(wrong(format!(
            "it has {} elements, but its {} windows have {}: a stage before changed its shape, so its \
             elements have no place on the grid",
            by(&spec.shape),
            batch.len(),
            by(&expected),
        )));
    }
    Ok(tensor.bytes())
}

/// The chunks that pieces of a window touch, and which of the pieces.
fn touched<'a>(output: &Output, pieces: &'a [Piece]) -> BTreeMap<Vec<u64>, Vec<&'a Piece>> {
    let mut chunks = BTreeMap::<Vec<u64>, Vec<&Piece>>::new();
    for piece in pieces {
        each_place(&piece.from, output.chunk.iter().copied(), |place| {
            chunks.entry(place.to_vec()).or_default().push(piece);
        });
    }
    chunks
}

/// Refuses shares of windows with which two ranks would write one chunk. It is enough to look at the
/// chunks of the last window of a share and of the first one of the next: windows are counted in
/// row-major order, so if any chunk is shared, one of these is.
pub(super) fn check_ranks(
    spec: &WriteSpec,
    dataset: &Dataset,
    outputs: &[Output],
) -> Result<(), WriteError> {
    let Some(ranks) = &spec.shard else { return Ok(()) };
    let windows = dataset.windows();
    ranks.check(windows)?;
    // The windows of a mask are not counted in the order of the grid; then what is missing is told.
    if dataset.left_out() > 0 {
        return Ok(());
    }
    let own = ranks.share(windows, ranks.rank);
    let share = own.end - own.start;
    let borders = (1..ranks.world.get()).map(|rank| ranks.share(windows, rank).start);
    let borders = borders.filter(|at| (1..windows).contains(at));
    for border in borders {
        for number in [border - 1, border] {
            let starts = dataset.starts(number);
            for output in outputs {
                for (chunk, _) in touched(output, &dataset.cuts[output.cut].pieces(&starts)) {
                    let touching = output.touching(dataset, &chunk);
                    if touching.ends(dataset.axes()).is_some_and(|(a, b)| a < border && border <= b)
                    {
                        return Err(shared(output, &chunk, &touching, (border, share), dataset));
                    }
                }
            }
        }
    }
    Ok(())
}

fn shared(
    output: &Output,
    chunk: &[u64],
    touching: &Touching,
    (border, share): (u64, u64),
    dataset: &Dataset,
) -> WriteError {
    let (rank, count) = (border / share - 1, touching.len());
    let outermost = dataset.axes().iter().position(|axis| axis.count > 1);
    let advice = match outermost.map(|at| (at, &dataset.axes()[at])) {
        Some((_, axis)) if output.weights.is_some() => format!(
            "windows that overlap have no border that chunks could follow: let one process write, or \
             cut `{}` with `range` so that the windows of two ranks do not overlap",
            axis.name
        ),
        Some((at, axis)) => {
            let within: u64 = dataset.axes()[at + 1..].iter().map(|axis| axis.count).product();
            let steps = if share.is_multiple_of(within) { share / within } else { 1 };
            let largest: Range<u64> = 1..steps * axis.stride + 1;
            format!(
                "write `chunks: {{ {}: {} }}`, or any extent that divides it, and a number of ranks \
                 among which the {} windows along `{}` divide",
                axis.name,
                largest.end - 1,
                axis.count,
                axis.name
            )
        }
        None => "let one process write".to_owned(),
    };
    let why = format!(
        "{count} windows touch it, and ranks get {share} windows each, so that it belongs to rank {rank} \
         and to rank {}; {advice}",
        rank + 1
    );
    WriteError::Shared { chunk: output.key(chunk), why }
}
