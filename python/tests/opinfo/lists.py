"""Each name that doesn't pass, in exactly one of two lists, with the reason."""

#: What Raddle doesn't have, by the reason. Most of it is what issue 17 brings, family by family.
ABSENT = {
    "complex numbers, which Raddle doesn't have": """
        H angle cdouble cfloat chalf complex conj conj_physical fft.fft fft.fft2 fft.fftn fft.fftshift fft.hfft
        fft.hfft2 fft.hfftn fft.ifft fft.ifft2 fft.ifftn fft.ifftshift fft.ihfft fft.ihfft2 fft.ihfftn fft.irfft
        fft.irfft2 fft.irfftn fft.rfft fft.rfft2 fft.rfftn imag isreal istft mH polar real resolve_conj
        resolve_neg sgn stft view_as_complex view_as_real
    """,
    "dtypes that Raddle doesn't have": """
        char short
    """,
    "sparse tensors, which Raddle doesn't have": """
        sparse.mm.reduce sparse.sampled_addmm to_sparse
    """,
    "masked tensors: PyTorch's prototype, composed in Python": """
        masked.amax masked.amin masked.argmax masked.argmin masked.cumprod masked.cumsum masked.log_softmax
        masked.logaddexp masked.logsumexp masked.mean masked.median masked.norm masked.normalize masked.prod
        masked.softmax masked.softmin masked.std masked.sum masked.var
    """,
    "kernels that PyTorch compiles from text at run time; here `fused`": """
        jiterator_2inputs_2outputs jiterator_4inputs_with_extra_args jiterator_binary
        jiterator_binary_return_by_ref jiterator_unary
    """,
    "PyTorch's internals, which users don't call": """
        __rdiv__ _batch_norm_with_update _chunk_cat _native_batch_norm_legit _segment_reduce.lengths
        _segment_reduce.offsets _softmax_backward_data _unsafe_masked_index _unsafe_masked_index_put_accumulate
        _upsample_bilinear2d_aa alias_copy as_strided_copy diagonal_copy empty_permuted empty_strided
        expand_copy hash_tensor max_pool2d_with_indices_backward narrow_copy native_batch_norm
        native_dropout_backward native_group_norm native_layer_norm new_empty_strided
        nn.functional.multi_head_attention_forward permute_copy resize_ resize_as_ split_with_sizes_copy
        squeeze_copy t_copy torch._scaled_mm torch._scaled_mm_v2 torch.ops.aten._efficient_attention_forward
        torch.ops.aten._flash_attention_forward torch.ops.aten._safe_softmax.default
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu transpose_copy unbind_copy unfold_copy
        unsafe_chunk unsafe_split unsqueeze_copy view_copy
    """,
    "convolution and pooling: an op family of its own": """
        nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d
        nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d nn.functional.adaptive_max_pool3d
        nn.functional.avg_pool1d nn.functional.avg_pool2d nn.functional.avg_pool3d nn.functional.conv1d
        nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose1d nn.functional.conv_transpose2d
        nn.functional.conv_transpose3d nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
        nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.max_pool3d nn.functional.max_unpool1d
        nn.functional.max_unpool1d.grad nn.functional.max_unpool2d nn.functional.max_unpool2d.grad
        nn.functional.max_unpool3d nn.functional.max_unpool3d.grad nn.functional.unfold
    """,
    "resampling and padding: an op family of its own": """
        grid_sampler_2d grid_sampler_3d nn.functional.grid_sample nn.functional.interpolate.area
        nn.functional.interpolate.bicubic nn.functional.interpolate.bilinear nn.functional.interpolate.linear
        nn.functional.interpolate.nearest nn.functional.interpolate.nearest-exact
        nn.functional.interpolate.trilinear nn.functional.upsample_bilinear nn.functional.upsample_nearest
    """,
    "linear algebra: an op family of its own": """
        cholesky_inverse cholesky_solve cov geqrf linalg.cholesky linalg.cholesky_ex linalg.cond linalg.det
        linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh linalg.householder_product linalg.inv
        linalg.inv_ex linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve linalg.lstsq
        linalg.lstsq.grad_oriented linalg.lu linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve
        linalg.matrix_rank linalg.matrix_rank.hermitian linalg.matrix_sqrth linalg.norm
        linalg.norm.subgradients_at_zero linalg.pinv linalg.pinv.hermitian linalg.pinv.singular linalg.polar
        linalg.qr linalg.slogdet linalg.solve linalg.solve_ex linalg.solve_triangular linalg.svd linalg.svdvals
        linalg.tensorinv linalg.tensorsolve logdet lu lu_solve lu_unpack matrix_exp ormqr pca_lowrank pinverse
        svd svd_lowrank triangular_solve vdot
    """,
    "indexing and rearranging: an op family of its own": """
        as_strided_scatter histogramdd nonzero_static
    """,
    "scans, order and statistics: an op family of its own": """
        multinomial
    """,
    "random numbers of further distributions: an op family of its own": """
        cauchy exponential geometric log_normal normal normal.in_place normal.number_mean randint_like uniform
    """,
    "losses and activations: an op family of its own": """
        nn.functional.alpha_dropout nn.functional.ctc_loss nn.functional.dropout2d nn.functional.dropout3d
        nn.functional.embedding_bag nn.functional.feature_alpha_dropout.with_train
        nn.functional.feature_alpha_dropout.without_train nn.functional.linear_cross_entropy
        nn.functional.linear_cross_entropy.chunked nn.functional.linear_cross_entropy.chunked_none
        nn.functional.rrelu
    """,
    "special functions: rows that the op table doesn't have yet": """
        digamma frexp gcd i0 igamma igammac lcm lgamma mvlgamma.mvlgamma_p_1 mvlgamma.mvlgamma_p_3
        mvlgamma.mvlgamma_p_5 nextafter polygamma.polygamma_n_0 polygamma.polygamma_n_1 polygamma.polygamma_n_2
        polygamma.polygamma_n_3 polygamma.polygamma_n_4 signal.windows.bartlett signal.windows.blackman
        signal.windows.cosine signal.windows.exponential signal.windows.gaussian signal.windows.general_cosine
        signal.windows.general_hamming signal.windows.hamming signal.windows.hann signal.windows.kaiser
        signal.windows.nuttall special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0
        special.bessel_y1 special.chebyshev_polynomial_t special.chebyshev_polynomial_u
        special.chebyshev_polynomial_v special.chebyshev_polynomial_w special.erfcx special.hermite_polynomial_h
        special.hermite_polynomial_he special.i0e special.i1 special.i1e special.laguerre_polynomial_l
        special.legendre_polynomial_p special.log_ndtr special.modified_bessel_i0 special.modified_bessel_i1
        special.modified_bessel_k0 special.modified_bessel_k1 special.ndtri
        special.polygamma.special_polygamma_n_0 special.scaled_modified_bessel_k0
        special.scaled_modified_bessel_k1 special.shifted_chebyshev_polynomial_t
        special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
        special.shifted_chebyshev_polynomial_w special.spherical_bessel_j0 special.zeta
    """,
}
_REASONS = {name: reason for reason, names in ABSENT.items() for name in names.split()}

NUMBERS = "A number may stand beside a tensor in every pointwise op, where PyTorch takes numbers in some of them alone."
VIEWS = "A tensor's shape and strides never change, so that threads may share it: there are no `squeeze_`, `transpose_` and the like."
NO_TENSOR = "An op takes one tensor at least; of numbers alone PyTorch makes tensors."
COMPOSED = "An op that is composed of several has no form in place: what another thread writes between them would be lost."
RANK = "A tensor has 8 axes at most."

#: What differs on purpose: for each name the mode, a part of what is found, and the reason, which docs/python.md has, too.
DIFFERS = {
    **dict.fromkeys(
        "atan2 clamp_max clamp_min maximum minimum logical_and logical_or logical_xor".split(), [("errors", "isn't refused", NUMBERS)]
    ),
    **dict.fromkeys(
        "as_strided as_strided.partial_views squeeze squeeze.multiple unsqueeze transpose t".split(), [("in place", "no form", VIEWS)]
    ),
    **dict.fromkeys(
        "add sub mul div.no_rounding_mode div.trunc_rounding div.floor_rounding true_divide floor_divide".split(),
        [("reference", "wrong number of tensors", NO_TENSOR)],
    ),
    **dict.fromkeys(
        """addbmm addmv addr baddbmm cumprod float_power index_reduce.amax index_reduce.amin index_reduce.mean index_reduce.prod
        masked_scatter renorm scatter_reduce.amax scatter_reduce.amin scatter_reduce.mean scatter_reduce.prod
        scatter_reduce.sum""".split(),
        [("in place", "no form", COMPOSED)],
    ),
    **dict.fromkeys("fmax fmin heaviside hypot ldexp logaddexp rsub".split(), [("errors", "isn't refused", NUMBERS)]),
    "fill": [("gradients", "requires no grad", "What depends on no input requires no grad: random draws, and a tensor that was overwritten. PyTorch goes on with gradients of 0.")],
    "histc": [("samples", "not close", "An element beside an edge of `histc` is counted by the edges that `linspace` gives.")],
    "linalg.matrix_norm": [("", "expected 'fro', 1, -1, inf or -inf", "There is no nuclear norm before there is a singular value decomposition.")],
    "linalg.matrix_power": [
        ("", "expected at least 0", "A matrix has no negative powers before it has an inverse."),
        ("gradients", "requires no grad", "What depends on no input requires no grad: random draws, and a tensor that was overwritten. PyTorch goes on with gradients of 0."),
    ],
    "nn.functional.batch_norm": [("", "expected at least 2 axes", "A batch of `batch_norm` has two axes at least: elements and channels.")],
    "nn.functional.hardsigmoid": [("gradients", "not close", "PyTorch's gradient of `hardsigmoid` is 1/6 as float32 has it, in float64 too.")],
    "nn.functional.local_response_norm": [("int64", "expected a float", "`local_response_norm` is of floats.")],
    **dict.fromkeys(["aminmax", "take"], [("errors", "isn't refused", "What is composed is made before it is written: its `out` may overlap the input.")]),
    "einsum": [(dtype, "for torch.int64", "A sum of `einsum` has the dtype of its operands.") for dtype in ("int32", "uint8")],
    "nn.functional.hardtanh": [("uint8", "not equal", "`hardtanh` of uint8 compares with bounds as they are; PyTorch's wrap.")],
    "roll": [("errors", "isn't refused", "A tensor without axes may be rolled along its imagined one.")],
    **dict.fromkeys(
        "trapezoid trapz cumulative_trapezoid".split(),
        [("uint8", "not close", "Integrals of uint8 are computed in float32; PyTorch's differences of places wrap.")],
    ),
    "cumsum": [("in place", "no form", "`cumsum` has no form in place: it would be two ops, and what another thread writes between them would be lost.")],
    **dict.fromkeys(["clone", "contiguous"], [("reference", "expected at most 8", RANK)]),
    **dict.fromkeys(
        ["all", "any"], [("uint8", "dtype torch.bool for torch.uint8", "`all` and `any` give bools, of uint8 as of every dtype.")]
    ),
    **dict.fromkeys(
        ["byte", "int", "long"],
        [("reference", "are not equal", "A float that an integer dtype can't hold becomes its nearest number, and NaN 0, on every device. PyTorch leaves it undefined.")],
    ),
    **dict.fromkeys(
        ["bernoulli", "zero_"],
        [("gradients", "requires no grad", "What depends on no input requires no grad: random draws, and a tensor that was overwritten. PyTorch goes on with gradients of 0.")],
    ),
    **dict.fromkeys(
        ["__rmod__", "__rpow__", "__rsub__"],
        [("reference", "requires a 'raddle.Tensor'", "The method of a reflected operator is one of a tensor; `2 - x` is as in PyTorch.")],
    ),
    "arange": [("uint8", "expected a number that fits u8", "A negative number that isn't whole is none of uint8.")],
    "norm.nuc": [("", "expected a number or 'fro'", "There is no nuclear norm before there is a singular value decomposition.")],
    "scatter": [("", "expected reduce 'add'", "`scatter` multiplies nothing: `reduce` is `add` or none.")],
    "nn.functional.embedding": [
        ("", "max_norm", "An embedding never changes its table: there is no `max_norm`."),
        ("", "scale_grad_by_freq", "A gradient isn't scaled by how often a row was used: there is no `scale_grad_by_freq`."),
        ("errors", "must be 2-D", "The rows of a table may have any number of axes."),
    ],
}  # fmt: skip


def absent(name):
    """Why Raddle doesn't have it; none if it should."""
    return _REASONS.get(name)
