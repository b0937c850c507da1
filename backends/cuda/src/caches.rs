//! What is made once and kept: kernels, algorithms, plans of a thread.

use super::{
    driver::Driver,
    exit, gates,
    kernels::{self, Key, steps::Step},
    local::Held,
    matmul::{self, Algorithm, Shape},
    prepared::{self, Call, Here, Loaded, Steps, Used},
    shared::Shared,
};
use raddle_hal::{CacheStats, DeviceError, Kernel, Operand, trace};
use raddle_sync::Arc;
use std::ffi::CString;

const LOADED_TOO_LATE: &str = "way to load a kernel while a stream is held (run the op once before)";

impl Shared {
    /// A loaded kernel. Compiles and loads it if need be.
    pub(crate) fn kernel(&self, driver: Driver<'_>, key: &Key) -> Result<Arc<Loaded>, DeviceError> {
        let (loaded, evicted) = self.kernels.get(key, || {
            gates::check_none_is_closed(LOADED_TOO_LATE)?;
            let start = trace::start();
            let image = self.compiler.image(key.entry(), &key.source())?;
            let entry = CString::new(key.entry()).expect("names have no zeros");
            let (module, function) = driver.module_load(&image, &entry)?;
            exit::install();
            if let Some(start) = start {
                trace::here("compile and load", start);
            }
            Ok((Loaded { module, function }, image.len()))
        })?;
        evicted.into_iter().for_each(|evicted| self.retired_kernels.add(evicted));
        self.unload_unused(driver)?;
        Ok(loaded)
    }

    pub(crate) fn unload_unused(&self, driver: Driver<'_>) -> Result<(), DeviceError> {
        for unused in self.retired_kernels.collect(|| self.in_flight(), |wait| self.is_executed(wait)) {
            // SAFETY: it was evicted, no thread holds it, and all launches of it are over.
            unsafe { driver.module_unload(unused.module) }?;
        }
        Ok(())
    }

    pub(crate) fn clear_caches(&self) -> Result<(), DeviceError> {
        let driver = self.context.enter()?;
        self.kernels.clear().into_iter().for_each(|kernel| self.retired_kernels.add(kernel));
        self.algorithms.clear().into_iter().for_each(|algorithm| self.retired_algorithms.add(algorithm));
        self.clear_thread_caches();
        self.destroy_unused(driver)?;
        self.unload_unused(driver)?;
        self.retired_algorithms.collect(|| self.in_flight(), |wait| self.is_executed(wait));
        self.open_queues().for_each(|(_, queue)| queue.transfers.free_uploads(queue.executed()));
        for address in self.staging.take_free() {
            // SAFETY: it was free, and is known to nobody any more.
            unsafe { driver.mem_free_host(address) }?;
        }
        Ok(())
    }

    pub(crate) fn clear_thread_caches(&self) {
        prepared::with(|here| {
            if let Some(Here { used, .. }) = here {
                used.kernels.clear(self.id);
                used.algorithms.clear(self.id);
            }
        });
    }

    pub(crate) fn cache_stats(&self) -> CacheStats {
        let thread_count = prepared::with(|here| {
            here.map_or(0, |here| here.used.kernels.count(self.id) + here.used.algorithms.count(self.id))
        });
        CacheStats {
            kernels: self.kernels.counts(),
            algorithms: self.algorithms.counts(),
            retired_count: (self.retired_kernels.count() + self.retired_algorithms.count()) as u64,
            executable_count: self.executables.count() as u64,
            pinned_bytes: self.staging.total_bytes() as u64,
            thread_count: thread_count as u64,
            own: self.compiler.counts(),
            ..CacheStats::default()
        }
    }

    pub(crate) fn matmul(&self) -> Result<&matmul::Handle, DeviceError> {
        self.matmul
            .get_or_init(|| matmul::Handle::new(self.options.tf32))
            .as_ref()
            .map_err(DeviceError::clone)
    }

    pub(crate) fn algorithm(&self, shape: &Shape) -> Result<Arc<Algorithm>, DeviceError> {
        let (algorithm, evicted) = self.algorithms.get(shape, || {
            gates::check_none_is_closed(LOADED_TOO_LATE)?;
            Ok((self.matmul()?.choose(shape).inspect(|_| exit::install())?, size_of::<Algorithm>()))
        })?;
        evicted.into_iter().for_each(|evicted| self.retired_algorithms.add(evicted));
        self.retired_algorithms.collect(|| self.in_flight(), |wait| self.is_executed(wait));
        Ok(algorithm)
    }

    /// Plans a kernel and finds what its steps call: what this thread keeps, if it keeps things. What was in `steps` is gone
    /// in any case.
    pub(crate) fn plan(
        &self,
        driver: Driver<'_>,
        mut used: Option<&mut Used>,
        kernel: &Kernel,
        operands: &[Operand],
        steps: &mut Steps,
    ) -> Result<(), DeviceError> {
        kernels::plan_over(&mut steps.plan, kernel, operands);
        steps.calls.clear();
        for step in &steps.plan.steps {
            steps.calls.push(match step {
                Step::Kernel(step) => {
                    let find = || self.kernel(driver, &step.key);
                    Call::Kernel(match &mut used {
                        Some(used) => {
                            used.kernels.get(self.id, self.kernels.generation(), &step.key, find)?
                        }
                        None => Held(find()?).into(),
                    })
                }
                Step::MatMul(step) => {
                    let shape = Shape::of(step);
                    let find = || self.algorithm(&shape);
                    Call::MatMul(match &mut used {
                        Some(used) => {
                            used.algorithms.get(self.id, self.algorithms.generation(), &shape, find)?
                        }
                        None => Held(find()?).into(),
                    })
                }
                Step::Fill { .. } => Call::Fill,
            });
        }
        Ok(())
    }
}
