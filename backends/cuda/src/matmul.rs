//! Matrix products by cuBLASLt.
//!
//! It takes columns where we have rows, so it is asked for the transposed product: `dᵀ = bᵀ aᵀ`, its first matrix our `b`.
//! The algorithm of a shape is chosen once, in `prepare`, and kept: the same for every thread and stream, so results are,
//! too (T8). What a product depends on is its [`Shape`]: sizes, strides, how addresses are aligned, what is done at the
//! end, how much scratch memory there is. Sums are split only with partial sums in the compute type.

use crate::{
    driver::Stream,
    kernels::steps::{BIAS_ALIGNMENT_BYTES, MatMulStep, Matrix, Place},
    setup::SetupError,
};
use cudarc::cublaslt::{
    result::{self, CublasError},
    sys,
};
use raddle_base::DType;
use raddle_hal::DeviceError;
use std::ffi::c_void;

pub const LIBRARY: &str = "cuBLASLt (libcublasLt.so)";
pub const REMEDY: &str =
    "pip install 'nvidia-cublas>=13,<14', and add the folder of libcublasLt.so.13 to LD_LIBRARY_PATH";
/// Addresses that are aligned to more don't matter.
const ALIGNMENT_BYTES_MAX: u64 = 256;

/// Is the library there?
pub fn is_present() -> bool {
    // SAFETY: loading the library runs its initializers, which are fit for that.
    unsafe { sys::is_culib_present() }
}

/// The version of the library, which is there, as 130200 for 13.2.0.
pub fn version() -> usize {
    // SAFETY: no preconditions.
    unsafe { sys::cublasLtGetVersion() }
}

fn failed(call: &'static str) -> impl Fn(CublasError) -> DeviceError {
    move |CublasError(status)| DeviceError::Driver { call, code: i64::from(status as u32) }
}

/// The library's handle on the current context. Never destroyed.
pub struct Handle {
    raw: sys::cublasLtHandle_t,
    tf32: bool,
}

// SAFETY: the library locks what the handle owns.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// A matrix as the library is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Side {
    leading: usize,
    batch_stride: usize,
    transposed: bool,
    alignment_bytes: u32,
}

/// What an algorithm is chosen for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    dtype: DType,
    result: DType,
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    sides: [Side; 4],
    bias: bool,
    relu: bool,
    workspace_bytes: usize,
}

fn alignment_bytes(place: Place) -> u32 {
    let address = match place {
        Place::At(address) => address,
        Place::Scratch(offset) => offset as u64, // scratch memory itself is aligned to more
    };
    1 << (address | ALIGNMENT_BYTES_MAX).trailing_zeros()
}

impl Shape {
    pub fn of(step: &MatMulStep) -> Shape {
        let side = |matrix: &Matrix| Side {
            leading: matrix.leading,
            batch_stride: matrix.batch_stride,
            transposed: matrix.transposed,
            alignment_bytes: alignment_bytes(matrix.place),
        };
        Shape {
            dtype: step.dtype,
            result: step.result,
            batch: step.batch,
            m: step.m,
            n: step.n,
            k: step.k,
            sides: [side(&step.a), side(&step.b), side(&step.c), side(&step.d)],
            bias: step.bias.is_some(),
            relu: step.relu,
            workspace_bytes: step.workspace_bytes,
        }
    }
}

/// How a shape is computed: descriptions of the four matrices, and the algorithm. Read only once it is made; destroyed when
/// dropped, which is no call of the driver.
pub struct Algorithm {
    layouts: [sys::cublasLtMatrixLayout_t; 4],
    algorithm: sys::cublasLtMatmulAlgo_t,
    shape: Shape,
    /// Of the product. With a bias each launch has one of its own, since it says where the bias lies.
    description: Description,
}

// SAFETY: plain descriptions in memory of the library, which takes them on any thread.
unsafe impl Send for Algorithm {}
// SAFETY: as above; the library only reads them.
unsafe impl Sync for Algorithm {}

impl Drop for Algorithm {
    fn drop(&mut self) {
        for layout in self.layouts {
            // SAFETY: made by `Layouts`, and destroyed once.
            _ = unsafe { result::destroy_matrix_layout(layout) };
        }
    }
}

/// Of elements, of factors, and what is computed in.
fn types(dtype: DType, tf32: bool) -> (sys::cudaDataType, sys::cudaDataType, sys::cublasComputeType_t) {
    use sys::{cublasComputeType_t::*, cudaDataType_t::*};
    match dtype {
        DType::F64 => (CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F),
        DType::F32 if tf32 => (CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32),
        DType::F32 => (CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F),
        DType::F16 => (CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F),
        DType::BF16 => (CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F),
        dtype => unreachable!("cuda: matmul of {dtype}"),
    }
}

/// Destroyed when dropped.
struct Description(sys::cublasLtMatmulDesc_t);

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: it is alive until now.
        _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

impl Description {
    fn new(shape: &Shape, tf32: bool, bias: u64) -> Result<Description, DeviceError> {
        use sys::{cublasLtEpilogue_t::*, cublasLtMatmulDescAttributes_t::*};
        let (_, scale, compute) = types(shape.dtype, tf32);
        let description = Description(
            result::create_matmul_desc(compute, scale).map_err(failed("cublasLtMatmulDescCreate"))?,
        );
        let operation = |transposed: bool| i32::from(transposed); // CUBLAS_OP_N, CUBLAS_OP_T
        description.set(CUBLASLT_MATMUL_DESC_TRANSA, operation(shape.sides[1].transposed))?;
        description.set(CUBLASLT_MATMUL_DESC_TRANSB, operation(shape.sides[0].transposed))?;
        let epilogue = match (shape.bias, shape.relu) {
            (false, false) => return Ok(description),
            (true, false) => CUBLASLT_EPILOGUE_BIAS,
            (false, true) => CUBLASLT_EPILOGUE_RELU,
            (true, true) => CUBLASLT_EPILOGUE_RELU_BIAS,
        };
        description.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue)?;
        if shape.bias {
            description.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
        }
        Ok(description)
    }

    fn set<T>(&self, attribute: sys::cublasLtMatmulDescAttributes_t, value: T) -> Result<(), DeviceError> {
        let value = &raw const value;
        // SAFETY: the description is alive, and the value is so large.
        unsafe { result::set_matmul_desc_attribute(self.0, attribute, value.cast(), size_of::<T>()) }
            .map_err(failed("cublasLtMatmulDescSetAttribute"))
    }
}

/// Destroyed when dropped.
struct Preference(sys::cublasLtMatmulPreference_t);

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: it is alive until now.
        _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

impl Preference {
    fn new(shape: &Shape) -> Result<Preference, DeviceError> {
        use sys::{cublasLtMatmulPreferenceAttributes_t::*, cublasLtReductionScheme_t::*};
        let preference =
            Preference(result::create_matmul_pref().map_err(failed("cublasLtMatmulPreferenceCreate"))?);
        preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, shape.workspace_bytes as u64)?;
        // Partial sums in the type of a 16-bit output would lose what `f32` has.
        preference
            .set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32)?;
        let [a, b, c, d] = shape.sides;
        for (attribute, side) in [
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d),
        ] {
            preference.set(attribute, side.alignment_bytes)?;
        }
        Ok(preference)
    }

    fn set<T>(
        &self,
        attribute: sys::cublasLtMatmulPreferenceAttributes_t,
        value: T,
    ) -> Result<(), DeviceError> {
        let value = &raw const value;
        // SAFETY: the preference is alive, and the value is so large.
        unsafe { result::set_matmul_pref_attribute(self.0, attribute, value.cast(), size_of::<T>()) }
            .map_err(failed("cublasLtMatmulPreferenceSetAttribute"))
    }
}

/// Layouts that are destroyed when making another fails.
struct Layouts(Vec<sys::cublasLtMatrixLayout_t>);

impl Drop for Layouts {
    fn drop(&mut self) {
        for layout in &self.0 {
            // SAFETY: made by `add`, and destroyed once.
            _ = unsafe { result::destroy_matrix_layout(*layout) };
        }
    }
}

impl Layouts {
    /// Of our [rows, columns], which the library sees as [columns, rows].
    fn add(
        &mut self,
        shape: &Shape,
        dtype: DType,
        side: Side,
        [rows, columns]: [usize; 2],
    ) -> Result<(), DeviceError> {
        use sys::cublasLtMatrixLayoutAttribute_t::*;
        let (rows, columns) = if side.transposed { (rows, columns) } else { (columns, rows) };
        let (element, ..) = types(dtype, false);
        let layout = result::create_matrix_layout(element, rows as u64, columns as u64, side.leading as i64)
            .map_err(failed("cublasLtMatrixLayoutCreate"))?;
        self.0.push(layout);
        if shape.batch > 1 {
            let (count, stride) = (shape.batch as i32, side.batch_stride as i64);
            // SAFETY: the layout is alive, and the values are as large as said.
            unsafe {
                result::set_matrix_layout_attribute(
                    layout,
                    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                    (&raw const count).cast(),
                    size_of_val(&count),
                )
                .and_then(|()| {
                    result::set_matrix_layout_attribute(
                        layout,
                        CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                        (&raw const stride).cast(),
                        size_of_val(&stride),
                    )
                })
            }
            .map_err(failed("cublasLtMatrixLayoutSetAttribute"))?;
        }
        Ok(())
    }
}

impl Handle {
    /// Needs a current context. `tf32`: products of `f32` may round their factors to 11 bits.
    pub fn new(tf32: bool) -> Result<Handle, DeviceError> {
        if !is_present() {
            return Err(SetupError::missing(LIBRARY, REMEDY));
        }
        Ok(Handle { raw: result::create_handle().map_err(failed("cublasLtCreate"))?, tf32 })
    }

    /// Chooses the algorithm of a shape. Needs a current context.
    pub fn choose(&self, shape: &Shape) -> Result<Algorithm, DeviceError> {
        let [a, b, c, d] = shape.sides;
        debug_assert!(!c.transposed && !d.transposed, "cuda: results of products are in rows");
        let mut layouts = Layouts(Vec::with_capacity(4));
        layouts.add(shape, shape.dtype, a, [shape.m, shape.k])?;
        layouts.add(shape, shape.dtype, b, [shape.k, shape.n])?;
        layouts.add(shape, shape.result, c, [shape.m, shape.n])?;
        layouts.add(shape, shape.result, d, [shape.m, shape.n])?;
        // Where the bias lies doesn't matter for the choice beyond how it is aligned; that there is one does.
        let description = Description::new(shape, self.tf32, BIAS_ALIGNMENT_BYTES as u64)?;
        let preference = Preference::new(shape)?;
        let [a, b, c, d] = [0, 1, 2, 3].map(|index| layouts.0[index]);
        // SAFETY: the handle and all descriptions are alive.
        let chosen =
            unsafe { result::get_matmul_algo_heuristic(self.raw, description.0, b, a, c, d, preference.0) };
        let algorithm = chosen.map_err(failed("cublasLtMatmulAlgoGetHeuristic"))?.algo;
        std::mem::forget(layouts); // they are the algorithm's now
        Ok(Algorithm { layouts: [a, b, c, d], algorithm, shape: shape.clone(), description })
    }

    /// Puts a product on a stream. Needs a current context.
    ///
    /// # Safety
    /// - The algorithm was chosen for the step's shape; `at` tells the addresses of its places.
    /// - The matrices and the workspace are as the contract of hal says.
    pub unsafe fn launch(
        &self,
        algorithm: &Algorithm,
        step: &MatMulStep,
        at: impl Fn(Place) -> u64,
        stream: Stream,
    ) -> Result<(), DeviceError> {
        let own =
            step.bias.map(|bias| Description::new(&algorithm.shape, self.tf32, at(bias))).transpose()?;
        let description = own.as_ref().unwrap_or(&algorithm.description);
        let (single, double) = ([step.alpha as f32, step.beta as f32], [step.alpha, step.beta]);
        let [alpha, beta] = match step.dtype {
            DType::F64 => double.each_ref().map(|factor| (&raw const *factor).cast::<c_void>()),
            _ => single.each_ref().map(|factor| (&raw const *factor).cast::<c_void>()),
        };
        let pointer = |place| at(place) as *mut c_void;
        let [a, b, c, d] = algorithm.layouts;
        // SAFETY: the handle and all descriptions are alive; the rest is by the contract. Factors are read at once.
        unsafe {
            result::matmul(
                self.raw,
                description.0,
                alpha,
                beta,
                pointer(step.b.place),
                b,
                pointer(step.a.place),
                a,
                pointer(step.c.place),
                c,
                pointer(step.d.place),
                d,
                &algorithm.algorithm,
                pointer(step.workspace),
                step.workspace_bytes,
                stream.raw().cast(),
            )
        }
        .map_err(failed("cublasLtMatmul"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_is_of_the_address_up_to_a_limit() {
        let found = [0, 2, 12, 256, 4096, 4097].map(|address| alignment_bytes(Place::At(address)));
        assert_eq!(found, [256, 2, 4, 256, 256, 1]);
        assert_eq!(alignment_bytes(Place::Scratch(512)), 256);
    }
}
