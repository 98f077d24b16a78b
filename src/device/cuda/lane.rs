//! What one device worker does on a GPU: copies, and kernels on what was copied, on a stream of its
//! own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::driver::{Argument, Event, Module, Stream, Upload};
use super::error::CudaError;
use super::memory::CudaMemory;
use super::reader::Reader;
use super::{Cuda, kernel};
use crate::device::transform::{Kernel, NotHere, Transform, applies};
use crate::device::{DeviceBatch, DeviceTensor, FilePart, Lane, UNDER_WAY};
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
    uploads: Vec<Upload>,
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
        while let Some(oldest) = self.under_way.front() {
            if !oldest.until.happened()? {
                if self.under_way.len() < UNDER_WAY {
                    break;
                }
                oldest.until.reached(|| self.worker.is_ending())?;
            }
            let done = self.under_way.pop_front().expect("looked at above");
            let took = done.until.since(&done.from)?;
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
    fn pinned(&mut self, name: &str, data: Buffer) -> Buffer {
        if data.pool().is_pinned() {
            return data;
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
        let mut pinned = self.cuda.host.take(data.len());
        pinned.copy_from_slice(&data);
        pinned
    }

    fn here<'a>(&self, tensor: &'a DeviceTensor) -> Result<&'a CudaMemory> {
        match tensor.memory().as_cuda() {
            Some(memory) => Ok(memory),
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
        let (memory, ()) = CudaMemory::filled(
            &self.cuda.blocks,
            spec.bytes() as usize,
            self.per_batch,
            &self.stream,
            |block| {
                let n = spec.elements();
                let mut arguments = vec![
                    Argument::Address(source.block().address()),
                    Argument::Address(block.address()),
                    Argument::U64(n),
                ];
                arguments.extend_from_slice(last);
                self.cuda.kernels.launch(&self.stream, kernel, n, kernel::BLOCK, &mut arguments)?;
                Ok(((), self.stream.record()?))
            },
        )?;
        source.used(self.stream.record()?);
        Ok(DeviceTensor::new(spec, Box::new(memory)))
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
                    lane.cuda.kernels.launch(&lane.stream, name, n, kernel::BLOCK, &mut arguments)
                })?;
                Ok(tensor)
            }
            Transform::Kernel(kernel) if !kernel.takes(&spec.name) => Ok(tensor),
            Transform::Kernel(kernel) => {
                self.compile(kernel)?;
                self.in_place(&mut tensor, |lane, address, n| {
                    let (_, module) = lane.compiled.as_ref().expect("compiled above");
                    let mut arguments = vec![Argument::Address(address), Argument::U64(n)];
                    arguments.extend(kernel.numbers.iter().map(|&number| Argument::F32(number)));
                    module.launch(&lane.stream, &kernel.name, n, kernel.block, &mut arguments)
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
        let ready = self.stream.record()?;
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
        let from = self.stream.record()?;
        let mut until = None;
        let (mut uploads, mut on_device, mut bytes) = (Vec::new(), Vec::new(), 0);
        for tensor in tensors {
            let (spec, data) = tensor.into_parts();
            let data = self.pinned(&spec.name, data);
            bytes += data.len() as u64;
            let (memory, upload) = CudaMemory::filled(
                &self.cuda.blocks,
                data.len(),
                self.per_batch,
                &self.stream,
                |block| {
                    let upload = self.stream.upload(data, block)?;
                    let done = Arc::clone(&upload.done);
                    Ok((upload, done))
                },
            )?;
            until = Some(Arc::clone(&upload.done));
            uploads.push(upload);
            on_device.push(DeviceTensor::new(spec, Box::new(memory)));
        }
        if let Some(until) = until {
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
            let (memory, read) = CudaMemory::filled(blocks, bytes, 1, stream, |block| {
                // It is read on no stream: what still uses the block is waited for here.
                stream.record()?.reached(|| self.worker.is_ending())?;
                let read = file.read(block, part.offset, bytes);
                Ok((read, stream.record()?))
            })?;
            match read {
                Ok(()) => {
                    self.meter().copied(begun.elapsed(), bytes as u64);
                    let tensor = DeviceTensor::new(part.spec.clone(), Box::new(memory));
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
        let from = self.stream.record()?;
        let (device, tensors, windows) = batch.into_parts();
        self.per_batch = tensors.len();
        applies(how, tensors.iter().map(DeviceTensor::spec))?;
        let window = windows.first();
        let tensors = tensors.into_iter().map(|tensor| self.transformed(tensor, window, how));
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        let until = self.stream.record()?;
        self.under_way.push_back(UnderWay { from, until, uploads: Vec::new(), bytes: 0 });
        Ok(DeviceBatch::new(device, tensors, windows))
    }

    fn download(&mut self, batch: DeviceBatch) -> Result<Batch> {
        let (_, tensors, windows) = batch.into_parts();
        let take = |tensor: &DeviceTensor| Tensor::take(&self.cuda.host, tensor.spec().clone());
        let on_host: Vec<_> = tensors.iter().map(take).collect();
        let mut blocks = Vec::with_capacity(tensors.len());
        for tensor in &tensors {
            let memory = self.here(tensor)?;
            memory.enter(&self.stream)?;
            blocks.push(memory.block());
        }
        let from = self.stream.record()?;
        let done = self.stream.download_to(&blocks, on_host, || self.worker.is_ending());
        let (on_host, until) = match done {
            Ok(done) => done,
            Err(error) => {
                if let CudaError::NoAnswer { .. } = error {
                    // The GPU may still read them.
                    std::mem::forget(tensors);
                }
                return Err(error.into());
            }
        };
        let batch = Batch::new(on_host, windows);
        self.meter().copied(until.since(&from)?, batch.bytes());
        Ok(batch)
    }
}

impl Drop for CudaLane {
    /// Waits for the copies under way, which read memory of the host. Nobody is there any more to take an
    /// error.
    fn drop(&mut self) {
        let mut under_way = self.under_way.iter().filter(|done| !done.uploads.is_empty());
        let answer = under_way.try_for_each(|under_way| under_way.until.reached(|| true));
        if let Err(error @ CudaError::NoAnswer { .. }) = answer {
            tracing::error!("stage `{}` ends without its GPU: {error}", self.worker.stage());
        }
    }
}
