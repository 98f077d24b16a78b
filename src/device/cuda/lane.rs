//! What one device worker does on a GPU: copies, and kernels on what was copied, on a stream of its
//! own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::driver::{Argument, Event, Grid, Lent, Module, Stream};
use super::error::CudaError;
use super::memory::CudaMemory;
use super::reader::Reader;
use super::{Cuda, kernel};
use crate::device::transform::{NotHere, Transform, applies};
use crate::device::{DeviceBatch, DeviceTensor, FilePart, Kernel, Lane, Memory as _, UNDER_WAY};
use crate::fault::Result;
use crate::item::{Batch, Buffer, DType, Pool, Spec, Tensor};
use crate::ops::Picked;
use crate::stage::Worker;
use crate::store::zarr::Window;
use crate::trace::DeviceMeter;

pub(super) struct CudaLane {
    cuda: Arc<Cuda>,
    stream: Stream,
    under_way: VecDeque<UnderWay>,
    /// The kernel of a user that was compiled last.
    compiled: Option<(Kernel, Module)>,
    worker: Worker,
    /// Tensors of the batch at hand.
    per_batch: usize,
    told_pageable: bool,
    reader: Reader,
}

/// What the stream does for one batch.
struct UnderWay {
    from: Arc<Event>,
    until: Arc<Event>,
    /// The copies, which read these until they are done.
    uploads: Vec<Lent<Buffer>>,
    bytes: u64,
}

impl CudaLane {
    pub(super) fn new(cuda: Arc<Cuda>, worker: &Worker) -> Result<Self, CudaError> {
        cuda.context.check_answers()?;
        let stream = cuda.stream()?;
        cuda.timeline.begin(&stream)?;
        let (under_way, worker) = (VecDeque::new(), worker.clone());
        Ok(CudaLane {
            cuda,
            stream,
            under_way,
            compiled: None,
            worker,
            per_batch: 0,
            told_pageable: false,
            reader: Reader::default(),
        })
    }

    fn meter(&self) -> &DeviceMeter {
        self.worker.device_meter()
    }

    /// Waits until the stream has less than two batches under way; what is done gives its memory back.
    fn make_room(&mut self) -> Result<(), CudaError> {
        self.cuda.context.check_answers()?;
        while let Some(oldest) = self.under_way.front() {
            if !oldest.until.happened()? {
                if self.under_way.len() < UNDER_WAY {
                    break;
                }
                oldest.until.reached(|| self.worker.is_ending())?;
            }
            let done = self.under_way.pop_front().expect("looked at above");
            let took = done.until.since(&done.from)?.unwrap_or_default();
            if done.uploads.is_empty() {
                self.meter().ran(took);
                self.cuda.timeline.computed(&done.from, &done.until)?;
            } else {
                self.meter().copied(took, done.bytes);
                self.cuda.timeline.copied(&done.from, &done.until, &self.worker)?;
            }
        }
        Ok(())
    }

    /// The tensor's bytes in pinned memory: where they are, or else copied there.
    fn pinned(&mut self, name: &str, data: Buffer) -> Result<Buffer> {
        if data.pool().is_pinned() {
            return Ok(data);
        }
        self.meter().pageable();
        if !std::mem::replace(&mut self.told_pageable, true) {
            tracing::warn!(
                "stage `{}`: `{name}` comes in memory that is not pinned, so the host copies every \
                 batch once more: let the stage before it take its memory from the pool of {}",
                self.worker.stage(),
                self.cuda.name,
            );
        }
        let mut pinned = self.cuda.host.try_take(data.len())?;
        pinned.copy_from_slice(&data);
        Ok(pinned)
    }

    fn here<'a>(&self, tensor: &'a DeviceTensor) -> Result<&'a CudaMemory> {
        match tensor.memory().as_cuda() {
            Some(memory) => {
                // Memory of somebody's own may say another length of itself.
                tensor.spec().check_length(memory.bytes())?;
                Ok(memory)
            }
            None => {
                Err(NotHere { tensor: tensor.spec().clone(), device: self.cuda.name.to_string() }
                    .into())
            }
        }
    }

    /// A tensor that a kernel makes of another.
    fn made(
        &self,
        from: &DeviceTensor,
        spec: Spec,
        kernel: &str,
        last: &[Argument],
    ) -> Result<DeviceTensor> {
        let source = self.here(from)?;
        source.enter(&self.stream)?;
        let filled = CudaMemory::filled(
            &self.cuda.blocks,
            spec.bytes() as usize,
            self.per_batch,
            &self.stream,
            || self.worker.is_ending(),
            |block| {
                let n = spec.elements();
                let mut arguments = vec![
                    Argument::Address(source.block().address()),
                    Argument::Address(block.address()),
                    Argument::U64(n),
                ];
                arguments.extend_from_slice(last);
                let grid = Grid::of(n, kernel::BLOCK);
                self.cuda.kernels.launch(&self.stream, kernel, grid, &mut arguments)?;
                Ok(((), self.stream.record()?))
            },
        );
        source.used_by(&self.stream);
        let (memory, ()) = filled?;
        Ok(DeviceTensor::new(spec, Box::new(memory))?)
    }

    fn transformed(
        &mut self,
        mut tensor: DeviceTensor,
        window: Option<&Window>,
        how: &Transform,
    ) -> Result<DeviceTensor> {
        let spec = tensor.spec().clone();
        match how {
            Transform::Cast(to) if spec.dtype == *to => Ok(tensor),
            Transform::Cast(to) => {
                let out = crate::ops::cast_spec(&spec, *to)?;
                self.made(&tensor, out, &format!("cast_{}_{to}", spec.dtype), &[])
            }
            Transform::Pick(pick) => match Picked::of(&spec, pick)? {
                None => Ok(tensor),
                Some(picked) => {
                    let Picked { spec: out, offset, shape, strides } = picked;
                    let name = format!("pick_{}", out.dtype.size());
                    let last =
                        [Argument::Eight(shape), Argument::Eight(strides), Argument::U64(offset)];
                    self.made(&tensor, out, &name, &last)
                }
            },
            Transform::Normalize(stats) => {
                let of = stats.of(window, &spec.name)?;
                let (name, rest) = match spec.dtype {
                    DType::F32 => (
                        "normalize_f32",
                        [Argument::F32(of.mean as f32), Argument::F32((1.0 / of.std) as f32)],
                    ),
                    DType::F64 => {
                        ("normalize_f64", [Argument::F64(of.mean), Argument::F64(1.0 / of.std)])
                    }
                    _ => return Err(crate::ops::not_normal(&spec).into()),
                };
                self.in_place(&mut tensor, |lane, address, n| {
                    let mut arguments = vec![Argument::Address(address), Argument::U64(n)];
                    arguments.extend_from_slice(&rest);
                    let grid = Grid::of(n, kernel::BLOCK);
                    lane.cuda.kernels.launch(&lane.stream, name, grid, &mut arguments)
                })?;
                Ok(tensor)
            }
            Transform::Kernel(kernel) if !kernel.takes(&spec.name) => Ok(tensor),
            Transform::Kernel(own) => {
                self.compile(own)?;
                self.in_place(&mut tensor, |lane, address, n| {
                    let (_, module) = lane.compiled.as_ref().expect("compiled above");
                    kernel::launch(own, module, &lane.stream, address, n)
                })?;
                Ok(tensor)
            }
        }
    }

    /// Lets a kernel change a tensor where it is.
    fn in_place(
        &self,
        tensor: &mut DeviceTensor,
        launch: impl FnOnce(&Self, u64, u64) -> Result<(), CudaError>,
    ) -> Result<()> {
        let elements = tensor.spec().elements();
        let memory = self.here(tensor)?;
        memory.enter(&self.stream)?;
        launch(self, memory.block().address(), elements)?;
        let ready = self.stream.record().inspect_err(|_| memory.used_by(&self.stream))?;
        // Memory of somebody's own may lend what it has and no more, and only this is known of it then.
        memory.used(Arc::clone(&ready));
        if let Some(memory) = tensor.memory_mut().as_cuda_mut() {
            memory.changed(ready);
        }
        Ok(())
    }

    fn compile(&mut self, kernel: &Kernel) -> Result<(), CudaError> {
        if self.compiled.as_ref().is_none_or(|(compiled, _)| compiled != kernel) {
            self.compiled = Some((kernel.clone(), kernel::compiled(&self.cuda.context, kernel)?));
        }
        Ok(())
    }
}

impl Lane for CudaLane {
    fn upload(&mut self, batch: Batch) -> Result<DeviceBatch> {
        self.make_room()?;
        let (tensors, windows) = batch.into_parts();
        self.per_batch = tensors.len();
        let (mut from, mut until) = (None, None);
        let (mut uploads, mut on_device, mut bytes) = (Vec::new(), Vec::new(), 0);
        for tensor in tensors {
            let (spec, data) = tensor.into_parts();
            let data = self.pinned(&spec.name, data)?;
            bytes += data.len() as u64;
            let (memory, upload) = CudaMemory::filled(
                &self.cuda.blocks,
                data.len(),
                self.per_batch,
                &self.stream,
                || self.worker.is_ending(),
                |block| {
                    // Behind what still uses the memory, which is not copying.
                    if from.is_none() {
                        from = Some(self.stream.record()?);
                    }
                    let upload = self.stream.upload(data, block)?;
                    let done = Arc::clone(&upload.done);
                    Ok((upload, done))
                },
            )?;
            until = Some(Arc::clone(&upload.done));
            uploads.push(upload);
            on_device.push(DeviceTensor::new(spec, Box::new(memory))?);
        }
        if let (Some(from), Some(until)) = (from, until) {
            self.under_way.push_back(UnderWay { from, until, uploads, bytes });
        }
        let device: Arc<Cuda> = Arc::clone(&self.cuda);
        Ok(DeviceBatch::new(device, on_device, windows))
    }

    fn read(&mut self, part: &FilePart, pool: &Pool) -> Result<DeviceBatch> {
        let stage = self.worker.stage().to_owned();
        if let Some(file) = self.reader.file(&self.cuda.context, part, &stage) {
            let (begun, bytes) = (Instant::now(), part.spec.bytes() as usize);
            let (blocks, stream) = (&self.cuda.blocks, &self.stream);
            let is_ending = || self.worker.is_ending();
            let (memory, read) =
                CudaMemory::filled(blocks, bytes, 1, stream, is_ending, |block| {
                    // It is read on no stream: what still uses the block is waited for here.
                    stream.record()?.reached(is_ending)?;
                    let read = file.read(block, part.offset, bytes);
                    Ok((read, stream.record()?))
                })?;
            match read {
                Ok(()) => {
                    self.meter().copied(begun.elapsed(), bytes as u64);
                    let tensor = DeviceTensor::new(part.spec.clone(), Box::new(memory))?;
                    let device: Arc<Cuda> = Arc::clone(&self.cuda);
                    return Ok(DeviceBatch::new(device, vec![tensor], Vec::new()));
                }
                Err(why) => self.reader.fails(&stage, format!("`{}`: {why}", part.path.display())),
            }
        }
        self.upload(part.to_host(pool)?)
    }

    fn transform(&mut self, batch: DeviceBatch, how: &Transform) -> Result<DeviceBatch> {
        self.make_room()?;
        let (device, tensors, windows) = batch.into_parts();
        self.per_batch = tensors.len();
        applies(how, tensors.iter().map(DeviceTensor::spec))?;
        // Behind the copies of the batch, as waiting for them is not computing.
        for tensor in &tensors {
            self.here(tensor)?.enter(&self.stream)?;
        }
        let from = self.stream.record()?;
        let window = windows.first();
        let tensors = tensors.into_iter().map(|tensor| self.transformed(tensor, window, how));
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        let until = self.stream.record()?;
        self.under_way.push_back(UnderWay { from, until, uploads: Vec::new(), bytes: 0 });
        Ok(DeviceBatch::new(device, tensors, windows))
    }

    fn download(&mut self, batch: DeviceBatch) -> Result<Batch> {
        self.cuda.context.check_answers()?;
        let (_, tensors, windows) = batch.into_parts();
        let take = |tensor: &DeviceTensor| Tensor::try_take(&self.cuda.host, tensor.spec().clone());
        let on_host = tensors.iter().map(take).collect::<Result<Vec<_>>>()?;
        let memory = tensors.iter().map(|tensor| self.here(tensor)).collect::<Result<Vec<_>>>()?;
        memory.iter().try_for_each(|memory| memory.enter(&self.stream))?;
        let blocks: Vec<_> = memory.iter().map(|memory| memory.block()).collect();
        let from = self.stream.record()?;
        let told = self.stream.download(&blocks, on_host);
        for memory in memory {
            match &told {
                Ok(copies) => memory.used(Arc::clone(&copies.done)),
                Err(_) => memory.used_by(&self.stream),
            }
        }
        let (on_host, until) = told?.back(|| self.worker.is_ending())?;
        let batch = Batch::new(on_host, windows);
        self.meter().copied(until.since(&from)?.unwrap_or_default(), batch.bytes());
        Ok(batch)
    }
}

impl Drop for CudaLane {
    /// Waits for the copies under way, which read memory of the host, and for kernels that are unloaded
    /// with it. Nobody is there any more to take an error.
    fn drop(&mut self) {
        let unloads = self.compiled.is_some();
        let mut under_way =
            self.under_way.iter().filter(|done| unloads || !done.uploads.is_empty());
        let answer = under_way.try_for_each(|under_way| under_way.until.reached(|| true));
        if let Err(error @ CudaError::NoAnswer { .. }) = answer {
            tracing::error!("stage `{}` ends without its GPU: {error}", self.worker.stage());
        }
    }
}
