//! What users put in the way of a device's allocations: private pools, memory resources, a history.

mod intercept;
mod pool;
mod resource;

pub(crate) use intercept::{AllocInterceptors, is_inside};
pub(super) use intercept::{free_watched, watched_block};
pub use pool::{MemoryPool, MemoryPoolGuard};
pub use resource::{
    Allocation, DeviceMemory, FailAt, FailingResource, LimitingResource, LogFormat, LoggingResource,
    MemoryResource, ResourceStatistics, StatisticsResource,
};
