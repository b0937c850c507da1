//! DLPack: tensors that cross to other libraries, and theirs to here, without a copy.
//!
//! A capsule holds a C structure that says where elements lie, with a function that gives them back. Ours holds a handle of the
//! tensor; of another's, the tensor's memory is [adopted](raddle::runtime::Device::adopt), and its function is called when nothing here
//! touches the memory any more, on whatever thread that is.
//!
//! **Order.** On a GPU the consumer names its stream: what it does there from now on is put behind all that touches the tensor here, and
//! the tensor isn't given back to the allocator before what the stream has then is complete. When we consume, the producer
//! puts its work before our stream, and our ops are ordered behind that. Nobody waits. On the host a consumer knows no streams,
//! so before it gets the memory we wait until nothing of ours touches it: that is the one wait, and on `cpu` there is mostly nothing to
//! wait for. The simulator's memory is the host's, too.
//!
//! Memory that is ours comes back as ours: from our own capsule, and from that of a library that got it from us.
//!
//! The structures are those of `dlpack.h`, version 1.

#![allow(unsafe_code, reason = "structures of C, and the functions in them")]

use crate::{
    device::{self, PyDevice},
    error::{Result, wrong_value},
    tensor::PyTensor,
};
use pyo3::{
    exceptions::{PyBufferError, PyTypeError},
    ffi,
    prelude::*,
    sync::PyOnceLock,
    types::{PyCapsule, PyDict},
};
use raddle::{
    DType, Device, Dims, ExternalStream, Foreign, Layout, MAX_RANK, Ready, Stream, Tensor, grad::Autograd,
};
use std::{
    ffi::{CStr, c_void},
    ptr,
    sync::{Arc, Weak},
};

const CPU: i32 = 1;
const CUDA: i32 = 2;
/// Pinned by CUDA, so memory of the host.
const CUDA_HOST: i32 = 3;

const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;

/// The version whose structures these are.
const VERSION: Version = Version { major: 1, minor: 0 };

/// Names of capsules, of the older structure and of the one with a version; and when somebody has taken what is inside.
const NAMES: [&CStr; 2] = [c"dltensor", c"dltensor_versioned"];
const USED: [&CStr; 2] = [c"used_dltensor", c"used_dltensor_versioned"];

#[repr(C)]
#[derive(Clone, Copy)]
struct Place {
    kind: i32,
    id: i32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
struct Kind {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    place: Place,
    rank: i32,
    kind: Kind,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Version {
    major: u32,
    minor: u32,
}

/// Without a version.
#[repr(C)]
struct Plain {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Plain)>,
}

#[repr(C)]
struct Versioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// The two structures alike.
trait Managed: Sized + 'static {
    /// Which of the names.
    const NAME: usize;
    fn new(tensor: DlTensor, flags: u64) -> Self;
    fn tensor(&self) -> &DlTensor;
    fn flags(&self) -> u64;
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

impl Managed for Plain {
    const NAME: usize = 0;
    fn new(tensor: DlTensor, _: u64) -> Plain {
        Plain { tensor, context: ptr::null_mut(), deleter: Some(Export::<Plain>::delete) }
    }
    fn tensor(&self) -> &DlTensor {
        &self.tensor
    }
    fn flags(&self) -> u64 {
        0
    }
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Plain)> {
        self.deleter
    }
}

impl Managed for Versioned {
    const NAME: usize = 1;
    fn new(tensor: DlTensor, flags: u64) -> Versioned {
        let deleter = Some(Export::<Versioned>::delete as unsafe extern "C" fn(*mut Versioned));
        Versioned { version: VERSION, context: ptr::null_mut(), deleter, flags, tensor }
    }
    fn tensor(&self) -> &DlTensor {
        &self.tensor
    }
    fn flags(&self) -> u64 {
        self.flags
    }
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Versioned)> {
        self.deleter
    }
}

fn refuse<T>(text: impl Into<String>) -> Result<T> {
    Err(PyBufferError::new_err(text.into()).into())
}

fn kind_of(dtype: DType) -> Kind {
    let code = match dtype {
        DType::I32 | DType::I64 => 0,
        DType::U8 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::Bool => 6,
    };
    Kind { code, bits: 8 * dtype.size_bytes() as u8, lanes: 1 }
}

/// Where a tensor lies, in DLPack's words.
fn place_of(tensor: &Tensor) -> Result<Place> {
    let device = tensor.device();
    if device.info().is_host {
        return Ok(Place { kind: CPU, id: 0 });
    }
    match PyDevice::of(Device::from(device)).ordinal() {
        Some(id) => Ok(Place { kind: CUDA, id }),
        None => refuse(format!("__dlpack__: DLPack has no name for the device {}", device.name())),
    }
}

// ------------------------------------------------------------ to others

/// What stands behind a capsule of ours. The structure is in front, so that a pointer to it is one to the whole.
#[repr(C)]
struct Export<M> {
    managed: M,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
    /// Given back before the stream is, so that it is kept for what is there.
    tensor: Tensor,
    _stream: Option<Arc<ExternalStream>>,
}

impl<M: Managed> Export<M> {
    fn capsule<'py>(
        py: Python<'py>,
        tensor: Tensor,
        place: Place,
        flags: u64,
        stream: Option<Arc<ExternalStream>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let size_bytes = tensor.dtype().size_bytes();
        let numbers =
            |sizes: &[usize]| std::array::from_fn(|at| sizes.get(at).map_or(0, |&size| size as i64));
        let (shape, strides) = (numbers(tensor.shape()), numbers(tensor.strides()));
        // Of no elements there is nothing to point to.
        let first = tensor.buffer().address() + (tensor.storage_offset() * size_bytes) as u64;
        let data = if tensor.element_count() == 0 { ptr::null_mut() } else { first as *mut c_void };
        let described = DlTensor {
            data,
            place,
            rank: tensor.rank() as i32,
            kind: kind_of(tensor.dtype()),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        let managed = M::new(described, flags);
        let export = Box::into_raw(Box::new(Export { managed, shape, strides, tensor, _stream: stream }));
        // SAFETY: it was made just now, and nobody else has it; `managed` is in front.
        let capsule = unsafe {
            let described = ptr::from_ref((*export).managed.tensor()).cast_mut();
            (*described).shape = (&raw mut (*export).shape).cast();
            (*described).strides = (&raw mut (*export).strides).cast();
            ffi::PyCapsule_New(export.cast(), NAMES[M::NAME].as_ptr(), Some(drop_capsule::<M>))
        };
        // SAFETY: it is a new reference, or an error is set.
        let made = unsafe { Bound::from_owned_ptr_or_err(py, capsule) };
        if made.is_err() {
            // SAFETY: no capsule has it.
            drop(unsafe { Box::from_raw(export) });
        }
        made
    }

    /// What consumers call, once, on any thread. It needs no interpreter.
    unsafe extern "C" fn delete(managed: *mut M) {
        if !managed.is_null() {
            // SAFETY: it is in front of what `capsule` has made, and is called once.
            drop(unsafe { Box::from_raw(managed.cast::<Export<M>>()) });
        }
    }
}

/// A capsule that nobody has taken the structure out of gives it back.
unsafe extern "C" fn drop_capsule<M: Managed>(capsule: *mut ffi::PyObject) {
    let name = NAMES[M::NAME].as_ptr();
    // SAFETY: the interpreter calls it with the capsule, at its end.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, name).cast::<M>();
            if let Some(deleter) = (*managed).deleter() {
                deleter(managed);
            }
        }
    }
}

/// Puts a consumer's stream of CUDA behind all that touches a tensor.
fn order_stream(py: Python<'_>, tensor: &Tensor, stream: Option<i64>) -> Result<Option<Arc<ExternalStream>>> {
    let handle = match stream {
        Some(-1) => return Ok(None), // the consumer sees to it
        // The legacy default stream, which is 1.
        None => 1,
        // The per-thread one, which has no handle that another thread could use: so this thread waits.
        Some(2) => {
            py.detach(|| tensor.buffer().synchronize())?;
            return Ok(None);
        }
        Some(handle) if handle > 0 => handle as u64,
        Some(found) => {
            return wrong_value(format!(
                "__dlpack__: stream, expected None, -1, 1, 2 or the handle of a stream, found {found}"
            ));
        }
    };
    let stream = wrapped(py, tensor, handle)?;
    py.detach(|| {
        stream.wait_buffer(tensor.buffer())?;
        tensor.device().record_stream(tensor.buffer(), **stream)
    })?;
    Ok(Some(stream))
}

/// A stream of others, as long as a tensor that they have was given to it.
#[pyclass(frozen)]
struct Wrapped(Weak<ExternalStream>);

/// The wrapped stream of a handle, one for all tensors that are on it.
fn wrapped(py: Python<'_>, tensor: &Tensor, handle: u64) -> Result<Arc<ExternalStream>> {
    static STREAMS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let streams = STREAMS.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    let key = (tensor.device().name(), handle);
    if let Some(found) = streams.get_item(key)?
        && let Some(stream) = found.cast::<Wrapped>().map_err(PyErr::from)?.get().0.upgrade()
    {
        return Ok(stream);
    }
    // SAFETY: DLPack's consumer has named it as the stream on which it uses the tensor, and so keeps it as long as the tensor.
    let stream = Arc::new(unsafe { Stream::wrap(&tensor.device(), handle) }?);
    streams.set_item(key, Bound::new(py, Wrapped(Arc::downgrade(&stream)))?)?;
    Ok(stream)
}

#[pymethods]
impl PyTensor {
    /// For consumers of DLPack, as `torch.from_dlpack` and `numpy.from_dlpack`: a capsule of the same memory. What a tensor on a GPU is
    /// to wait for is told to `stream`; on the CPU this waits until nothing touches it.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, PyTensor>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let (py, tensor) = (slf.py(), &slf.get().0);
        if tensor.requires_grad() {
            return refuse("__dlpack__: the tensor requires grad, expected one that doesn't (see detach)");
        }
        let mut place = place_of(tensor)?;
        let moves = dl_device.is_some_and(|wanted| wanted != (place.kind, place.id));
        if moves && dl_device != Some((CPU, 0)) {
            let found = dl_device.unwrap_or_default();
            return refuse(format!(
                "__dlpack__: dl_device, expected the tensor's or (1, 0), found {found:?}"
            ));
        }
        if moves && copy == Some(false) {
            return refuse("__dlpack__: copy=False, and the tensor is on another device than dl_device");
        }
        let copies = moves || copy == Some(true);
        let shared = if moves {
            place = Place { kind: CPU, id: 0 };
            let cpu = Device::cpu()?;
            py.detach(|| tensor.detach().to_device(&cpu))?
        } else if copies {
            py.detach(|| tensor.detach().copy())?
        } else {
            tensor.clone()
        };
        let held = if place.kind == CPU {
            if stream.is_some_and(|stream| stream != -1) {
                let found = stream.unwrap_or_default();
                return wrong_value(format!("__dlpack__: stream, expected None on the CPU, found {found}"));
            }
            if !shared.buffer().query() {
                py.detach(|| shared.buffer().synchronize())?;
            }
            None
        } else {
            order_stream(py, &shared, stream)?
        };
        let flags = if shared.buffer().is_read_only() { READ_ONLY } else { 0 };
        if max_version.is_some_and(|(major, _)| major >= VERSION.major) {
            let flags = flags | if copies { IS_COPIED } else { 0 };
            return Ok(Export::<Versioned>::capsule(py, shared, place, flags, held)?);
        }
        if flags != 0 {
            return refuse(
                "__dlpack__: the memory may only be read, expected max_version of at least (1, 0), which can say so",
            );
        }
        Ok(Export::<Plain>::capsule(py, shared, place, 0, held)?)
    }

    /// Where it lies, in DLPack's words: (1, 0) is the CPU, (2, n) the GPU n.
    fn __dlpack_device__(&self) -> Result<(i32, i32)> {
        let Place { kind, id } = place_of(&self.0)?;
        Ok((kind, id))
    }
}

// ------------------------------------------------------------ from others

/// A structure of others, which is given back when this is dropped, by whatever thread.
struct Taken<M: Managed>(*mut M);

// SAFETY: consumers may call a deleter from any thread.
unsafe impl<M: Managed> Send for Taken<M> {}

impl<M: Managed> Drop for Taken<M> {
    fn drop(&mut self) {
        // SAFETY: it was taken out of its capsule, which gave it up, and is given back once.
        unsafe {
            if let Some(deleter) = (*self.0).deleter() {
                deleter(self.0);
            }
        }
    }
}

impl<M: Managed> Taken<M> {
    /// Takes the structure out of a capsule of that name.
    fn of(capsule: &Bound<'_, PyCapsule>) -> PyResult<Taken<M>> {
        // SAFETY: a capsule of this name holds such a structure, and whoever changes its name may have that.
        unsafe {
            let managed = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAMES[M::NAME].as_ptr());
            if managed.is_null() || ffi::PyCapsule_SetName(capsule.as_ptr(), USED[M::NAME].as_ptr()) != 0 {
                return Err(PyErr::fetch(capsule.py()));
            }
            Ok(Taken(managed.cast()))
        }
    }

    /// The tensor that it is, over the same memory.
    fn tensor(self, device: &raddle::runtime::Device, ready: Ready<'_>) -> Result<Tensor> {
        // SAFETY: it lives until it is dropped.
        let managed = unsafe { &*self.0 };
        let (described, flags) = (managed.tensor(), managed.flags());
        // Ours comes back as what it was.
        if let Some(deleter) = managed.deleter()
            && ptr::fn_addr_eq(deleter, Export::<M>::delete as unsafe extern "C" fn(*mut M))
        {
            // SAFETY: only `Export::capsule` makes structures with that deleter, and they are in front of exports.
            let tensor = unsafe { &(*self.0.cast::<Export<M>>()).tensor };
            if tensor.device() == *device {
                return Ok(tensor.detach());
            }
        }
        let dtype = DType::ALL.iter().copied().find(|&dtype| kind_of(dtype) == described.kind);
        let Some(dtype) = dtype else {
            let Kind { code, bits, lanes } = described.kind;
            return refuse(format!(
                "from_dlpack: no dtype of Raddle has DLPack's code {code}, {bits} bits and {lanes} lanes"
            ));
        };
        let rank = described.rank as usize;
        if rank > MAX_RANK {
            return refuse(format!(
                "from_dlpack: expected at most {MAX_RANK} axes, found {}",
                described.rank
            ));
        }
        let sizes = |numbers: *mut i64| -> Result<Dims> {
            let mut sizes = Dims::EMPTY;
            for at in 0..rank {
                // SAFETY: there is one for each axis.
                let size = unsafe { *numbers.add(at) };
                let Ok(size) = usize::try_from(size) else {
                    return refuse(format!(
                        "from_dlpack: axis {at}, expected no negative size or stride, found {size}"
                    ));
                };
                sizes.push(size);
            }
            Ok(sizes)
        };
        let shape = if rank == 0 { Dims::EMPTY } else { sizes(described.shape)? };
        let layout = if rank == 0 || described.strides.is_null() || shape.contains(&0) {
            Layout::contiguous(shape)
        } else {
            Layout::new(shape, sizes(described.strides)?, 0)
        };
        let address = (described.data as u64).wrapping_add(described.byte_offset);
        let size_bytes = layout.end() * dtype.size_bytes();
        // SAFETY: the producer says that these elements lie there, until its deleter is called; what it does with them meanwhile is its
        // own and its user's to order, as DLPack has it.
        let memory = unsafe { Foreign::new(device, address, size_bytes, self) };
        let memory = if flags & READ_ONLY != 0 { memory.read_only() } else { memory };
        Ok(Tensor::from_foreign(memory, layout, dtype, ready)?)
    }
}

/// What is in a capsule, as a tensor.
fn consume(capsule: &Bound<'_, PyAny>, device: &raddle::runtime::Device, ready: Ready<'_>) -> Result<Tensor> {
    let Ok(capsule) = capsule.cast::<PyCapsule>() else {
        return Err(PyTypeError::new_err("from_dlpack: expected __dlpack__ to give a capsule").into());
    };
    // SAFETY: the capsule is one.
    let is = |name: &CStr| unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 1 };
    if is(NAMES[1]) {
        let taken = Taken::<Versioned>::of(capsule)?;
        // SAFETY: the version is in front, whatever it is.
        let Version { major, minor } = unsafe { (*taken.0).version };
        if major != VERSION.major {
            // What follows the deleter, which stays where it is, may mean something else.
            return refuse(format!("from_dlpack: expected DLPack 1, found version {major}.{minor}"));
        }
        taken.tensor(device, ready)
    } else if is(NAMES[0]) {
        Taken::<Plain>::of(capsule)?.tensor(device, ready)
    } else {
        refuse("from_dlpack: expected a capsule that hasn't been used, named dltensor or dltensor_versioned")
    }
}

/// A tensor over the memory of another library's array or tensor, or of a capsule: no copy, and both go on with the memory. `device`: a
/// device that computes in the same memory (`sim` instead of `cpu`), or to copy to. `copy`: True always copies, False never.
#[pyfunction]
#[pyo3(signature = (ext_tensor, /, *, device=None, copy=None))]
pub fn from_dlpack(
    ext_tensor: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
) -> Result<PyTensor> {
    let py = ext_tensor.py();
    let wanted = device.map(|device| device::parse(py, Some(device))).transpose()?;
    let (kind, id) = if ext_tensor.is_instance_of::<PyCapsule>() {
        (CPU, 0) // such a capsule is of the host, or of a library that is older than the question
    } else {
        ext_tensor.call_method0(pyo3::intern!(py, "__dlpack_device__"))?.extract::<(i32, i32)>()?
    };
    let wanted_is_host = wanted.as_ref().is_none_or(|device| device.info().is_host);
    let own = match kind {
        CPU | CUDA_HOST => match &wanted {
            Some(device) if wanted_is_host => *device,
            _ => device::open(py, "cpu")?,
        },
        CUDA => device::open(py, &format!("cuda:{id}"))?,
        _ => {
            return refuse(format!(
                "from_dlpack: expected memory of the CPU or of CUDA, found device type {kind}"
            ));
        }
    };
    let tensor = if ext_tensor.is_instance_of::<PyCapsule>() {
        consume(ext_tensor, &own, Ready::Now)?
    } else if let Ok(tensor) = ext_tensor.cast::<PyTensor>()
        && wanted.is_none()
    {
        tensor.get().0.detach()
    } else {
        let current = Stream::current(&own)?;
        let stream = if kind == CUDA { current.as_raw() } else { None };
        let capsule = produce(ext_tensor, stream)?;
        let ready = if stream.is_some() { Ready::After(current) } else { Ready::Now };
        consume(&capsule, &own, ready)?
    };
    let moved = match wanted {
        Some(device) if tensor.device() != *device => {
            if copy == Some(false) {
                return wrong_value("from_dlpack: copy=False, and the elements are on another device");
            }
            py.detach(|| tensor.to_device(&device))?
        }
        _ if copy == Some(true) => py.detach(|| tensor.copy())?,
        _ => tensor,
    };
    Ok(PyTensor(moved))
}

/// The producer's capsule: with a version if it knows of that.
fn produce<'py>(producer: &Bound<'py, PyAny>, stream: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
    let py = producer.py();
    let method = producer.getattr(pyo3::intern!(py, "__dlpack__"))?;
    let arguments = PyDict::new(py);
    arguments.set_item(pyo3::intern!(py, "max_version"), (VERSION.major, VERSION.minor))?;
    if let Some(stream) = stream {
        arguments.set_item(pyo3::intern!(py, "stream"), stream)?;
    }
    match method.call((), Some(&arguments)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            arguments.del_item(pyo3::intern!(py, "max_version"))?;
            method.call((), Some(&arguments))
        }
        capsule => capsule,
    }
}
