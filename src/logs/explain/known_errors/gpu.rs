//! Errors of the GPU's memory, its libraries and its driver.

use super::{KnownError, anywhere, form};

const DRIVER_SENTENCE: &str = "The driver itself had no memory left: no room for the CUDA context of a process that starts on a \
    full GPU (some hundred MiB), or for a library that allocates past PyTorch. The error has no figures.";
const NCCL_SENTENCE: &str = "NCCL, which PyTorch uses between GPUs, got no memory from the driver: its buffers come on top of \
    PyTorch's cache, and the GPU is full.";
const NCCL_CALL: &str = "A CUDA call inside NCCL, which PyTorch uses between GPUs, failed. Most often the GPU had no memory left for \
    NCCL's buffers, or an earlier error broke the context; NCCL's own line says which.";

pub(super) const ERRORS: &[KnownError] = &[
    KnownError {
        cause: "cuda_malloc_async",
        title: "Out of memory in the allocator cudaMallocAsync",
        forms: &[form(
            "Allocation on device",
            r"Allocation on device\s*(?:\d+\s*)?(?:$|would exceed allowed memory)",
            "PyTorch's allocator cudaMallocAsync got no memory. This copy of its message has no figures.",
        )],
        advice: &["unsaid"],
        follows: &[],
        absorbs: &["cuda_out_of_memory"],
    },
    KnownError {
        cause: "pytorch",
        title: "{backend} out of memory, without figures",
        forms: &[form(
            " out of memory",
            r"(?P<backend>CUDA|HIP|XPU|NPU) out of memory ?(?:\.+|!+|[,;:]|$|\\n|['\x22)])",
            "PyTorch ran out of memory. This copy of its message has no figures.",
        )],
        advice: &["unsaid"],
        follows: &[],
        absorbs: &["cuda_out_of_memory"],
    },
    KnownError {
        cause: "nvml_assert",
        title: "PyTorch could not ask the driver while it was out of memory",
        forms: &[form(
            "INTERNAL ASSERT FAILED",
            r"NVML_SUCCESS == .*INTERNAL ASSERT FAILED",
            "PyTorch ran out of GPU memory, and failed when it asked the driver (NVML) for the figures of its message: this \
             hides an ordinary out-of-memory error. It happens on a MIG instance, on Jetson, on WSL, and where NVML is missing.",
        )],
        advice: &["nvml-assert"],
        follows: &["pytorch"],
        absorbs: &[],
    },
    KnownError {
        cause: "cublas",
        title: "cuBLAS got no memory",
        forms: &[
            form(
                "CUBLAS_STATUS_",
                r"(?:CUDA error: |cuBLAS error: |)(?P<status>CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED))(?: when calling|$|[.,;)\x22'`])",
                "cuBLAS, the library for matrix products, got no memory for its handle and its workspace ({status}): PyTorch's \
                 cache has filled the GPU.",
            ),
            form(
                "cublas runtime error",
                r"cublas runtime error : resource allocation failed",
                "cuBLAS, the library for matrix products, got no memory for its handle and its workspace.",
            ),
            form(
                "cublas",
                r"(?:failed to create cublas handle|cublasCreate\S* failed|Failed to create cuBLAS)",
                "cuBLAS, the library for matrix products, got no memory for its handle and its workspace.",
            ),
        ],
        advice: &["cublas"],
        follows: &["pytorch"],
        absorbs: &[],
    },
    KnownError {
        cause: "cuda_library",
        title: "A CUDA library got no memory",
        forms: &[form(
            "_ALLOC",
            r"(?:\w+ error: )?(?P<status>CUSOLVER_STATUS_ALLOC_FAILED|CUSPARSE_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED|CURAND_STATUS_ALLOCATION_FAILED)",
            "A library of CUDA got no memory for its handle or its workspace ({status}): the GPU is full.",
        )],
        advice: &["cublas"],
        follows: &["pytorch"],
        absorbs: &[],
    },
    KnownError {
        cause: "cudnn",
        title: "cuDNN got no memory",
        forms: &[form(
            "CUDNN_STATUS_",
            r"(?:cuDNN error: |Error in CuDNN: |cuDNN: |Check failed: .*|cudnn error: |error: |)(?P<status>CUDNN_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED|INTERNAL_ERROR_HOST_ALLOCATION_FAILED))(?:$|[\s.,;)\x22'`])",
            "cuDNN, the library for convolutions, could not start or got no memory for its handle and workspace ({status}). On a \
             full GPU that means out of memory; on an empty one, a cuDNN that does not fit the driver or PyTorch.",
        )],
        advice: &["cudnn"],
        follows: &["pytorch"],
        absorbs: &[],
    },
    KnownError {
        cause: "nccl",
        title: "NCCL failed in the driver",
        forms: &[
            anywhere(
                "WARN Cuda failure",
                r"(?:NCCL |\d )WARN Cuda failure.*out of memory",
                NCCL_SENTENCE,
            ),
            form(
                "Failed to CUDA calloc",
                r"Failed to CUDA calloc",
                NCCL_SENTENCE,
            ),
            anywhere(
                "Cuda failure",
                r"^\s*Cuda failure (?:2 )?'out of memory'",
                NCCL_SENTENCE,
            ),
            form(
                "unhandled cuda error",
                r"NCCL [Ee]rror(?: in)?:? .*unhandled cuda error",
                NCCL_CALL,
            ),
            form(
                "ncclUnhandledCudaError",
                r"ncclUnhandledCudaError: Call to CUDA function failed",
                NCCL_CALL,
            ),
        ],
        advice: &["nccl"],
        follows: &[
            "pytorch",
            "cuda_malloc_async",
            "cuda_out_of_memory",
            "killed",
            "kernel_oom_killer",
            "slurm_oom_kill",
            "xid",
        ],
        absorbs: &[],
    },
    KnownError {
        cause: "triton_shared_memory",
        title: "A Triton kernel needs more shared memory than the GPU has",
        forms: &[
            form(
                "out of resource: shared memory",
                r"out of resource: shared memory, Required: (?P<required>\d+), Hardware limit: (?P<limit>\d+)",
                "A kernel of Triton (torch.compile, or one of a library) asked for {required} bytes of shared memory in each block, and \
             this GPU has {limit}. This is no lack of GPU memory: a smaller batch does not help, a smaller kernel does.",
            ),
            form(
                "out of resource: ",
                r"out of resource: (?P<kernel>\S+) Required: (?P<required>\d+) Hardware limit: ?(?P<limit>\d+)",
                "Triton's kernel {kernel} asked for {required} bytes of shared memory in each block, and this GPU has {limit}. This is no \
             lack of GPU memory: a smaller batch does not help, a smaller kernel does.",
            ),
        ],
        advice: &["triton-shared-memory"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "xid",
        title: "The driver reported an error of the GPU: Xid {key}",
        forms: &[
            anywhere(
                "Xid (",
                r"Xid \((?P<gpu>PCI:[^)]*|[0-9a-fA-F:.]+)\): (?P<key>31),",
                "The driver reports Xid 31 on {gpu}: a program read or wrote GPU memory that it does not have. The driver ends \
                 that program. Most often a bug in a kernel (an index out of range), seldom the hardware.",
            ),
            anywhere(
                "Xid (",
                r"Xid \((?P<gpu>PCI:[^)]*|[0-9a-fA-F:.]+)\): (?P<key>13|43|45|109),",
                "The driver reports Xid {key} on {gpu}: a kernel of the program failed or was stopped (13: a fault in it, 43: it \
                 was reset, 45: cleaned up after another error, 109: it did not let others run). Most often a bug in the program.",
            ),
        ],
        advice: &["xid-program"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "xid",
        title: "The driver reported an error of the GPU: Xid {key}",
        forms: &[
            anywhere(
                "Xid (",
                r"Xid \((?P<gpu>PCI:[^)]*|[0-9a-fA-F:.]+)\): (?P<key>48|63|64|92|94|95|140|171|172),",
                "The driver reports Xid {key} on {gpu}: errors in the GPU's memory that ECC could not correct. Programs on this GPU \
                 end, and it needs a reset or a repair.",
            ),
            anywhere(
                "Xid (",
                r"Xid \((?P<gpu>PCI:[^)]*|[0-9a-fA-F:.]+)\): (?P<key>79),",
                "The driver reports Xid 79 on {gpu}: the GPU has fallen off the bus, so the host no longer reaches it. All its \
                 programs end. Power, heat, the slot or the riser, seldom the program.",
            ),
            anywhere(
                "Xid (",
                r"Xid \((?P<gpu>PCI:[^)]*|[0-9a-fA-F:.]+)\): (?P<key>\d+),",
                "The driver reports Xid {key} on {gpu}. NVIDIA's list of Xid errors tells what it means.",
            ),
        ],
        advice: &["xid-hardware"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "cuda_out_of_memory",
        title: "{backend} error: out of memory, from the driver",
        forms: &[
            form(
                "error:",
                r"(?P<backend>CUDA|HIP|ROCm|XPU|NPU) (?:driver |runtime )?error: ?out of memory\s*(?:$|[.,;\\'\x22)(]|CUDA|Search|Compile|at )",
                DRIVER_SENTENCE,
            ),
            anywhere(
                "THCudaCheck FAIL",
                r"THCudaCheck FAIL .*error=2 : out of memory",
                DRIVER_SENTENCE,
            ),
            anywhere(
                "cuMemAlloc",
                r"cuMemAlloc\w* failed: out of memory",
                DRIVER_SENTENCE,
            ),
            anywhere(
                "ERROR_OUT_OF_",
                r"(?P<backend>PI|UR)_(?:RESULT_)?ERROR_OUT_OF_(?:RESOURCES|HOST_MEMORY)",
                DRIVER_SENTENCE,
            ),
            form(
                "cuda runtime err",
                r"(?i)(?P<backend>CUDA) runtime err(?:or)? ?\(2\) ?: out of memory",
                DRIVER_SENTENCE,
            ),
            anywhere(
                "cudaErrorMemoryAllocation",
                r"(?:error:? |failed:? |code=2\(|Program hit )\(?cudaErrorMemoryAllocation\b|cudaErrorMemoryAllocation: out of memory",
                DRIVER_SENTENCE,
            ),
            anywhere(
                "hipErrorOutOfMemory",
                r"(?P<backend>hip)ErrorOutOfMemory(?:$|[^\w\s=]| [^=])",
                DRIVER_SENTENCE,
            ),
            form(
                "failed with error out of memory",
                r"(?P<backend>CUDA) failed with error out of memory",
                DRIVER_SENTENCE,
            ),
            anywhere(
                "CUDA_ERROR_OUT_OF_MEMORY",
                r"(?P<backend>CUDA)_ERROR_OUT_OF_MEMORY(?::| \(|$|['\x22)])",
                DRIVER_SENTENCE,
            ),
            anywhere(
                "cudaMalloc",
                r"cudaMalloc(?:Async|Managed)? failed:? out of memory",
                DRIVER_SENTENCE,
            ),
            anywhere(
                "UR_RESULT_ERROR_OUT_OF",
                r"(?P<backend>UR)_RESULT_ERROR_OUT_OF_(?:DEVICE_MEMORY|RESOURCES)",
                DRIVER_SENTENCE,
            ),
            anywhere(
                "DriverError(CUDA_ERROR_OUT_OF_MEMORY",
                r"DriverError\((?P<backend>CUDA)_ERROR_OUT_OF_MEMORY",
                DRIVER_SENTENCE,
            ),
            form(
                "out of memory",
                r"(?i)(?P<backend>CUDA) (?:runtime )?error:? ?(?:\(?2\)?:? ?)\(?out of memory\)?",
                DRIVER_SENTENCE,
            ),
            form(
                "cudaErrorMemoryAllocation",
                r"(?i:(?P<backend>CUDA) runtime error: )?cudaErrorMemoryAllocation(?: \(2\))?$",
                DRIVER_SENTENCE,
            ),
            form(
                "[CUDA] out of memory",
                r"\[(?P<backend>CUDA)\] out of memory",
                DRIVER_SENTENCE,
            ),
            form(
                "cudaMalloc retry failed",
                r"cudaMalloc retry failed: out of memory",
                DRIVER_SENTENCE,
            ),
            form(
                "ailed: out of memory",
                r"(?:parallel_for|for_each|reduce|sort|scan|copy|transform|\w+) failed: (?:\w+: )?out of memory$",
                "Thrust, NVIDIA's library of parallel algorithms, got no memory from the driver. The error has no figures.",
            ),
            form(
                "rror out of memory at line",
                r"Error out of memory at line \d+ in file",
                "A library with kernels of its own (bitsandbytes) got no memory from the driver. The error has no figures.",
            ),
            anywhere(
                "cudaGetDeviceCount()",
                r"Unexpected error from cudaGetDeviceCount\(\).*Error 2: out of memory",
                "The process got no room for its CUDA context (some hundred MiB): the GPU is full, or the host has no memory left.",
            ),
            form(
                "out of memory",
                r"(?:CUDA|Cuda|cuda) failure:? ?(?:2 )?'?out of memory",
                DRIVER_SENTENCE,
            ),
        ],
        advice: &["driver-out-of-memory"],
        follows: &[],
        absorbs: &[],
    },
];
