"""Memory that PyTorch's CUDA kernels take while they run, beside their results.

Each row is the name of an operation and a function of its arguments and its result that returns
bytes. The amounts are those of PyTorch's sources, and were compared with its allocator on the fake
CUDA runtime of `tests/pytorch`.
"""

import torch

# Of an H100. The partial sums of a reduction are as many as there are blocks of threads.
MULTIPROCESSORS = 132
THREADS_PER_MULTIPROCESSOR = 2048


def bytes_while_running(function, arguments, result):
    """The bytes that an operation takes until it returns."""
    known = BY_NAME.get(function.__name__)
    return known(arguments, result) if known else 0


def nbytes(tensor):
    return tensor.numel() * tensor.element_size()


def _contiguous(*places):
    """These arguments are copied, unless they are contiguous."""

    def amount(arguments, result):
        given = (arguments[place] for place in places if place < len(arguments))
        return sum(nbytes(tensor) for tensor in given if not tensor.is_contiguous())

    return amount


def _for_cublas(*places):
    """These matrices are copied, unless cuBLAS can read them: one of the last two dimensions must
    be contiguous.
    """

    def amount(arguments, result):
        return sum(nbytes(arguments[place]) for place in places if not _is_blas(arguments[place]))

    return amount


def _is_blas(matrix):
    rows, columns = matrix.shape[-2:]
    row, column = matrix.stride()[-2:]
    return (column == 1 and row >= max(1, columns)) or (row == 1 and column >= max(1, rows))


def _sum(arguments, result):
    """A sum of all rows, as of the gradients of a bias: blocks of threads leave partial sums."""
    tensor, dimensions = arguments[0], arguments[1]
    if not dimensions or tensor.dim() < 2 or tensor.stride(-1) != 1:
        return 0
    summed = {dimension % tensor.dim() for dimension in dimensions}
    if tensor.dim() - 1 in summed or summed != set(range(tensor.dim() - 1)):
        return 0
    columns = tensor.shape[-1]
    rows = tensor.numel() // max(1, columns)
    if columns < 32:
        return 0
    vector = 4 if columns % 4 == 0 else 2 if columns % 2 == 0 else 1
    threads = 512 // vector
    height = threads // 32
    grid = -(-columns // (32 * vector))
    target = MULTIPROCESSORS * (THREADS_PER_MULTIPROCESSOR // threads)
    values = -(-rows // height)
    if grid > target or values < min(16 * height, 256):
        return 0
    blocks = max(min(-(-target // grid), -(-values // 16)), -(-values // 256))
    return columns * 4 * blocks * 32 * vector if blocks > 1 else 0


def _first_result(arguments, result):
    """As much as the first result."""
    return nbytes(result[0] if isinstance(result, (list, tuple)) else result)


def _flash_backward(arguments, result):
    """The gradient of the query is summed in single precision."""
    query = result[0]
    return query.numel() * 4 if isinstance(query, torch.Tensor) else 0


BY_NAME = {
    "mm.default": _for_cublas(0, 1),
    "bmm.default": _for_cublas(0, 1),
    "addmm.default": _for_cublas(1, 2),
    "baddbmm.default": _for_cublas(1, 2),
    "sum.dim_IntList": _sum,
    "_softmax_backward_data.default": _first_result,
    "native_layer_norm.default": _contiguous(0),
    "native_layer_norm_backward.default": _contiguous(0, 1),
    "embedding_dense_backward.default": _contiguous(0),
    "upsample_nearest2d_backward.default": _contiguous(0),
    "_scaled_dot_product_efficient_attention_backward.default": _first_result,
    "_scaled_dot_product_flash_attention_backward.default": _flash_backward,
}
