//! Known errors in the forms in which programs print them, one log each.

use super::tests::{explained, explained_text, find};
use crate::output::TextStyle;

/// The causes, and logs that name them first.
const LOGS: &[(&str, &str)] = &[
    ("cuda_out_of_memory", "RuntimeError: CUDA driver error: out of memory"),
    ("cuda_out_of_memory", "[rank3]: RuntimeError: CUDA error: out of memory"),
    ("cuda_out_of_memory", "torch.AcceleratorError: CUDA error: out of memory"),
    ("cuda_out_of_memory", "torch.AcceleratorError: CUDA error: out of memory
Search for `cudaErrorMemoryAllocation"),
    ("cuda_out_of_memory", "RuntimeError: HIP error: out of memory"),
    ("cuda_out_of_memory", "RuntimeError: cuda runtime error (2) : out of memory at /opt/conda/THC/THCStorage.cu:58"),
    ("cuda_out_of_memory", "THCudaCheck FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=50 error=2 : out of memory"),
    ("cuda_out_of_memory", "2024-05-01 12:00:00,123 ERROR train: CUDA error: out of memory"),
    ("cuda_out_of_memory", "terminate called after throwing an instance of 'c10::Error'
  what():  CUDA error: out of memory"),
    ("cuda_out_of_memory", "pycuda._driver.MemoryError: cuMemAlloc failed: out of memory"),
    ("cuda_out_of_memory", "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY"),
    ("cuda_out_of_memory", "RuntimeError: XPU error: out of memory"),
    ("cuda_out_of_memory", "RuntimeError: Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)"),
    ("cuda_out_of_memory", "RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
    ("cuda_out_of_memory", "level_zero backend failed with error: 38 (UR_RESULT_ERROR_OUT_OF_HOST_MEMORY)"),
    ("pinned_memory", "RuntimeError: cudaHostRegister failed: out of memory"),
    ("pinned_memory", "cudaMallocHost failed: out of memory"),
    ("pinned_memory", "cuMemHostAlloc failed: CUDA_ERROR_OUT_OF_MEMORY"),
    ("killed", "fatal: index-pack died of signal 9"),
    ("killed", "g++: internal compiler error: Killed (program cc1plus)"),
    ("killed", "Container killed on request. Exit code is 137"),
    ("onnx_runtime", "bfc_arena.cc:342 AllocateRawInternal Available memory of 0 is smaller than requested bytes of 154140672"),
    ("pytorch", "RuntimeError: CUDA out of memory."),
    ("pytorch", "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 15.11 GiB. Of the allocated memory 14.20 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory."),
    ("pytorch", "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 29.50 GiB total capacity; 27.10 GiB already allocated; 27.10 GiB current active; 1.00 GiB free; 27.80 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."),
    ("cublas", "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    ("cublas", "RuntimeError: cublas runtime error : resource allocation failed at /pytorch/aten/src/THC/THCGeneral.cpp:216"),
    ("cudnn", "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED
You can try to repro this exception"),
    ("cudnn", "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
    ("nccl", "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 2 'out of memory'"),
    ("nccl", "[1] misc/strongstream.cc:395 NCCL WARN Cuda failure 2 'out of memory'"),
    ("nvml_assert", r#"RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":1016, please report a bug to PyTorch."#),
    ("triton_shared_memory", "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376. Reducing block sizes or `num_stages` may help."),
    ("triton_shared_memory", "torch._inductor.exc.InductorError: RuntimeError: No valid triton configs. OutOfMemoryError: out of resource: triton_per_fused_0 Required: 278528 Hardware limit:232448 Reducing block sizes or `num_stages` may help."),
    ("xid", "[ 1234.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."),
    ("xid", "kernel: NVRM: Xid (PCI:0000:3b:00): 48, An uncorrectable double bit error (DBE) has been detected on GPU"),
    ("vllm_cache_too_small", "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (7.45 GiB). Based on the available memory, the estimated maximum model length is 61024. Try increasing `gpu_memory_utilization`"),
    ("vllm_cache_too_small", "ValueError: To serve at least one request with the model's max seq len (32768), 6.0 GiB KV cache is needed, which is larger than the available KV cache memory (2.1 GiB)."),
    ("vllm_startup_memory", "AssertionError: Error in memory profiling. Initial free memory 10.2 GiB, current free memory 12.1 GiB."),
    ("sglang_memory", "RuntimeError: Not enough memory. Please try increasing --mem-fraction-static."),
    ("sglang_memory", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. self.server_args.mem_fraction_static=0.7"),
    ("open_files", "RuntimeError: unable to open shared memory object </torch_12345_678> in read-write mode: Too many open files (24)"),
    ("shared_memory", "RuntimeError: unable to write to file </torch_1234_5678_0>: No space left on device (28)"),
    ("shared_memory", "RuntimeError: unable to mmap 1024 bytes from file </torch_12>: Cannot allocate memory (12)"),
    ("shared_memory", "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1234'"),
    ("shared_memory", "misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-abc to 33030532 bytes"),
    ("shared_memory", "Bus error (core dumped)"),
    ("worker_killed", "RuntimeError: DataLoader worker (pid(s) 3456, 3457) exited unexpectedly"),
    ("killed", "./run.sh: line 3: 12345 Killed                  python train.py"),
    ("killed", "[1]+  Killed                  python train.py"),
    ("killed", "[1]    12345 killed     python train.py"),
    ("killed", "zsh: killed     python train.py"),
    ("killed", "Killed: 9"),
    ("killed", "    Reason:       OOMKilled"),
    ("killed", "trainer-0   0/1     OOMKilled   0          5m"),
    ("killed", "worker exited with code 137"),
    ("killed", "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL"),
    ("killed", "subprocess.CalledProcessError: Command '[...]' died with <Signals.SIGKILL: 9>."),
    ("killed", "[2024-01-01 00:00:00,000] [ERROR] [launch.py:321:sigkill_handler] ['python'] exits with return code = -9"),
    ("killed", "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running or pending."),
    ("host_allocator", "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 40000000000 bytes. Error code 12 (Cannot allocate memory)"),
    ("host_allocator", "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 29.8 GiB for an array with shape (4000000000,) and data type float64"),
    ("host_allocator", "numpy.core._exceptions.MemoryError: Unable to allocate 29.8 GiB for an array with shape (4,)"),
    ("host_allocator", "terminate called after throwing an instance of 'std::bad_alloc'
  what():  std::bad_alloc"),
    ("host_allocator", "MemoryError"),
    ("rmm", "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: rmm"),
    ("host_allocator", "OSError: [Errno 12] Cannot allocate memory"),
    ("cgroup_limit", "May  3 10:11:12 host kernel: Memory cgroup out of memory: Killed process 4242 (python) total-vm:100kB, anon-rss:64000000kB, file-rss:0kB"),
    ("kernel_oom_killer", "[123.4] Out of memory: Kill process 4242 (python) score 950 or sacrifice child"),
    ("slurm_oom_kill", "slurmstepd: error: Detected 3 oom_kill events in StepId=123.0. Some of the step tasks have been OOM Killed."),
    ("slurm_oom_kill", "slurmstepd: error: Job 123 exceeded memory limit (4194304 > 4096000), being killed"),
    ("slurm_oom_kill", "srun: error: node01: task 3: Out Of Memory"),
    ("ray_memory_monitor", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."),
    ("xla", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes."),
    ("xla", "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8.00GiB."),
    ("xla", "2024-01-01 W external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to allocate 8.00GiB (rounded to 8589934592)requested by op 
jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes."),
    ("tensorflow", "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[64,64,224,224] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Conv2D]"),
    ("tensorflow", "tensorflow.python.framework.errors_impl.InternalError: Dst tensor is not initialized."),
    ("tensorflow", "failed to allocate 10.91G (11712724992 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    ("cupy", "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 1,024 bytes)."),
    ("cupy", "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out of memory"),
    ("llama_cpp", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory"),
    ("ollama", "Error: model requires more system memory (8.4 GiB) than is available (6.1 GiB)"),
    ("ollama", "Error: 500 Internal Server Error: llama runner process has terminated: CUDA error: out of memory"),
    ("onnx_runtime", "onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException: [ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Exception during initialization: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:342 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size 65536"),
    ("onnx_runtime", "onnxruntime::CudaCall CUDA failure 2: out of memory ; GPU=0 ; hostname=x"),
    ("tensorrt", "[TRT] [E] 1: [defaultAllocator.cpp::allocate::31] Error Code 1: Cuda Runtime (out of memory)"),
    ("tensorrt", "[TensorRT] ERROR: ../rtSafe/safeRuntime.cpp (25) - Cuda Error in allocate: 2 (out of memory)"),
    ("mps", "RuntimeError: MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 1.00 GB, max allowed: 18.13 GB). Tried to allocate 256.00 MB on private pool."),
    ("mps", "RuntimeError: Invalid buffer size: 20.00 GiB"),
    ("batch_size_search", "RuntimeError: No executable batch size found, reached zero."),
    ("cuda_malloc_async", "torch.OutOfMemoryError: Allocation on device"),
    ("cuda_malloc_async", "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)
Currently allocated     : 4.86 GiB
Requested               : 10.12 GiB
Device limit            : 24.00 GiB
Free (according to CUDA): 0 bytes
PyTorch limit (set by user-supplied memory fraction)
                        : 17179869184.00 GiB"),
    ("cgroup_limit", "time=\"2025-09-02T10:15:44Z\" level=info msg=\"TaskOOM event container_id:\\\"abc\\\"\""),
    ("cgroup_limit", "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/kubepods,task_memcg=/kubepods,task=python,pid=461754,uid=0"),
    ("pinned_memory", "2024-01-01 E failed to alloc 8589934592 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    ("pinned_memory", "    return data.pin_memory(device)\nRuntimeError: CUDA error: out of memory"),
    ("pinned_memory", "ggml_cuda_host_malloc: failed to allocate 4096.00 MiB of pinned memory: out of memory"),
    ("pinned_memory", "ncclUnhandledCudaError: Call to CUDA function failed. Last error: Failed to CUDA host alloc 1376256 bytes"),
    ("pinned_memory", "RuntimeError: cudaHostAlloc failed: out of memory"),
    ("rmm", "MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate 8589934592 bytes) at: /opt/include/rmm/mr/device/cuda_async_view_memory_resource.hpp:100"),
    ("rmm", "MemoryError: std::bad_alloc: out_of_memory: RMM failure at: pool_memory_resource.hpp:277: Maximum pool size exceeded"),
    ("job_memory_limit", "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit."),
    ("job_memory_limit", "=>> PBS: job killed: mem 33554432kb exceeded limit 16777216kb"),
    ("job_memory_limit", "ExecutorLostFailure: Container killed by YARN for exceeding memory limits. 5.5 GB of 5.5 GB physical memory used."),
    ("job_memory_limit", "OutOfMemoryError: Container killed due to memory usage"),
    ("job_memory_limit", "distributed.nanny.memory - WARNING - Worker tcp://127.0.0.1:4 (pid=12) exceeded 95% memory budget. Restarting..."),
    ("evicted", "Warning  Evicted  2m  kubelet  The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi."),
    ("notebook_memory", "Your notebook tried to allocate more memory than is available. It has restarted."),
    ("notebook_memory", "Your session crashed after using all available RAM."),
    ("jvm_heap", "java.lang.OutOfMemoryError: Java heap space"),
    ("earlyoom", "earlyoom[812]: sending SIGTERM to process 12345 uid 1000 \"python\": badness 900, VmRSS 28000 MiB"),
    ("open_files", "RuntimeError: received 0 items of ancdata"),
    ("vllm_warmup_memory", "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering `max_num_seqs`"),
    ("vllm_wake_up", "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62"),
    ("sglang_memory", "Exception: Capture cuda graph failed: CUDA error: out of memory"),
    ("tensorrt_llm", "[TRT-LLM] [RANK 1] [E] Failed to initialize executor on rank 1: Executor creation failed due to insufficient GPU memory."),
    ("metal", "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"),
    ("metal", "RuntimeError: [metal::malloc] Attempting to allocate 48736917632 bytes which is greater than the maximum allowed buffer size of 30150672384 bytes."),
    ("cuda_out_of_memory", "ROCm error: out of memory"),
    ("cuda_out_of_memory", "terminate called after throwing an instance of 'thrust::system::system_error'\n  what():  parallel_for failed: out of memory"),
    ("cuda_out_of_memory", "Error out of memory at line 88 in file D:\\a\\csrc\\ops.cu"),
    ("cuda_out_of_memory", "Error: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")"),
    ("cuda_out_of_memory", "Cuda error: 2 (out of memory)"),
    ("cuda_out_of_memory", "CUDA Error 2: out of memory"),
    ("cuda_out_of_memory", "ERROR: cudaErrorMemoryAllocation"),
    ("cuda_out_of_memory", "CUDA Runtime Error: cudaErrorMemoryAllocation (2)"),
    ("cuda_out_of_memory", "lightgbm.basic.LightGBMError: [CUDA] out of memory /tmp/x/cuda_utils.cu 12"),
    ("cuda_out_of_memory", "mxnet.base.MXNetError: [12:11:09] src/storage/./pooled_storage_manager.h:161: cudaMalloc retry failed: out of memory"),
    ("cuda_out_of_memory", "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 2: out of memory (Triggered internally)"),
    ("cuda_library", "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"),
    ("cuda_library", "cuFFT error: CUFFT_ALLOC_FAILED"),
    ("nccl", "Failed to CUDA calloc async 608 bytes"),
    ("xla", "RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED: Attempting to reserve 10.51G at the bottom of memory. That was not possible. There are 8.97G free, 0B reserved, and 8.97G reservable."),
    ("paddle", "Out of memory error on GPU 0. Cannot allocate 98.000244MB memory on GPU 0, 6.000000GB memory has been allocated and available memory is only 0.000000B."),
    ("cuda_jl", "ERROR: LoadError: Out of GPU memory trying to allocate 4.000 GiB"),
    ("gaudi", "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::1073741824 (1024)MB"),
    ("llama_cpp", "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache"),
    ("llama_cpp", "llama_kv_cache_update_impl: failed to allocate compute buffers"),
    ("slurm_oom_kill", "37205392         train2        gpu       proj         16 OUT_OF_ME+    0:125"),
    ("slurm_oom_kill", "slurmstepd: error: Exceeded step memory limit at some point."),
    ("slurm_oom_kill", "slurmstepd: error: *** JOB 991 ON gpu07 CANCELLED AT 2025-09-02T10:00:00 DUE TO MEMORY LIMIT ***"),
    ("kernel_oom_killer", "systemd[1]: train.service: A process of this unit has been killed by the OOM killer."),
    ("kernel_oom_killer", "systemd[1]: train.service: Failed with result 'oom-kill'."),
    ("shared_memory", "RuntimeError: unable to allocate shared memory(shm) for file </torch_31245_1934>: Resource temporarily unavailable (11)"),
    ("shared_memory", "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGBUS"),
    ("shared_memory", "  traceback : Signal 7 (SIGBUS) received by PID 14750"),
    ("shared_memory", "Fatal Python error: Bus error"),
    ("host_allocator", "memory allocation of 8589934592 bytes failed"),
    ("host_allocator", "bash: fork: Cannot allocate memory"),
    ("host_allocator", "OSError: Unable to mmap 8589934592 bytes from file <model.safetensors>: Cannot allocate memory (12)"),
    ("killed", "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process was unexpectedly terminated.\n\nThe exit codes of the workers are {SIGKILL(-9)}"),
    ("killed", "[2025-09-02 10:00:00] [1] [ERROR] Worker (pid:12) was sent SIGKILL! Perhaps out of memory?"),
    ("killed", "mpirun noticed that process rank 0 with PID 0 on node n1 exited on signal 9 (Killed)."),
    ("killed", "c++: fatal error: Killed signal terminated program cc1plus"),
    ("killed", "srun: error: gpu07: task 0: Killed"),
    ("killed", "systemd[1]: train.service: Main process exited, code=killed, status=9/KILL"),
    ("killed", "            \"OOMKilled\": false,\n            \"ExitCode\": 137,"),
];

#[test]
fn each_form_of_an_error_names_its_cause() {
    let mut wrong = Vec::new();
    for (cause, log) in LOGS {
        let json = explained(find(log.as_bytes()));
        let message = &json["messages"][0];
        if message["cause"] != *cause {
            wrong.push(format!("{}, not {cause}: {log}", message["cause"]));
        }
        let Some(sentence) = message["sentence"].as_str() else {
            continue;
        };
        assert!(
            !sentence.contains(['{', '?']),
            "a group of the pattern is missing: {sentence}"
        );
        assert!(
            message["advice"]
                .as_array()
                .is_some_and(|advice| !advice.is_empty()),
            "{log}"
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_warning_whose_second_try_succeeded_is_no_failure() {
    const WARNING: &str = "[W922 05:15:28.123 CUDACachingAllocator.cpp:3312] memory allocation failed with OOM on device 0 while trying \
        to allocate 3630170112 bytes (free: 202833920, total: 25250627584).\n";
    let json = explained(find(WARNING.as_bytes()));
    assert_eq!(json["messages"][0]["reason"], "retried", "{json:#}");
    assert_eq!(json["messages"][0]["gpu"], 0, "{json:#}");
    // With an error in the log, the warning tells nothing.
    let failed = format!("{WARNING}RuntimeError: CUDA error: out of memory\n");
    let json = explained(find(failed.as_bytes()));
    assert_eq!(
        json["messages"].as_array().map(Vec::len),
        Some(1),
        "{json:#}"
    );
    assert_eq!(
        json["messages"][0]["cause"], "cuda_out_of_memory",
        "{json:#}"
    );
}

/// Returns the report in 80 columns, on one line.
fn report(log: &str) -> String {
    let page = explained_text(
        find(log.as_bytes()),
        TextStyle {
            width: 80,
            ascii: true,
            bold: false,
        },
    );
    page.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_local_rank_is_not_called_a_rank() {
    const KILLED: &str =
        "E0325 api.py:869] failed (exitcode: -9) local_rank: 5 (pid: 2630) of binary: python\n";
    let page = report(&format!("starting\n{KILLED}"));
    assert!(
        page.starts_with("A process was killed (SIGKILL) (line 2; local rank 5)"),
        "{page}"
    );
    // The table names both.
    let table = "  rank      : 13 (local_rank: 5)\n  exitcode  : -9 (pid: 2630)\n";
    let page = report(&format!(
        "{KILLED}Root Cause (first observed failure):\n{table}"
    ));
    assert!(
        page.starts_with("A process was killed (SIGKILL) (line 1; rank 13; local rank 5)"),
        "{page}"
    );
}

#[test]
fn a_line_that_follows_from_the_cause_may_stand_before_it() {
    const TERMINATED: &str = "WARNING: Sending process 812914 closing signal SIGTERM\n";
    const KILLED: &str =
        "ERROR: failed (exitcode: -9) local_rank: 3 (pid: 812917) of binary: python\n";
    let page = report(&format!("{TERMINATED}{KILLED}"));
    assert!(
        !page.contains("What followed")
            && page.contains("Most likely not the cause, although it comes before the error"),
        "{page}"
    );
    let page = report(&format!("{KILLED}{TERMINATED}"));
    assert!(
        page.contains("What followed: torchrun told") && !page.contains("Most likely not"),
        "{page}"
    );
    let page = report(&format!(
        "{KILLED}[1.2] Out of memory: Killed process 812917 (python) score 950\n"
    ));
    assert!(
        page.contains("although its line comes earlier in this log: the kernel"),
        "{page}"
    );
}

#[test]
fn copies_of_an_error_in_one_line_are_shown_once() {
    const ERROR: &str = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)";
    let json = explained(find(
        format!("RuntimeErrorRuntimeError: : {ERROR}{ERROR}\n").as_bytes(),
    ));
    assert_eq!(json["messages"][0]["excerpt"], ERROR, "{json:#}");
}

#[test]
fn the_sum_on_a_small_gpu_has_the_unit_of_the_gpu() {
    let page = report(
        "RuntimeError: CUDA out of memory. Tried to allocate 100.00 MiB (GPU 0; 972.81 MiB total capacity; 940.00 MiB already \
         allocated; 10.00 MiB free; 950.00 MiB reserved in total by PyTorch)",
    );
    assert!(
        page.contains("asked for 100.00 MiB more: 1050.00 MiB of 972.81 MiB."),
        "{page}"
    );
}

#[test]
fn figures_that_contradict_each_other_are_said_before_the_bar() {
    let page = report(
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 4.00 GiB total capacity; 5.00 GiB already \
         allocated; 0 bytes free; 6.00 GiB reserved in total by PyTorch)",
    );
    let offset = |words: &str| {
        page.find(words)
            .unwrap_or_else(|| panic!("no `{words}` in {page}"))
    };
    assert!(offset("do not add up") < offset("####"), "{page}");
}

#[test]
fn the_memory_that_was_missing_is_named() {
    // Each log with words that its report has, and words that it does not have.
    for (log, words, wrong) in [
        (
            "MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate 8589934592 bytes) at: /rmm/mr/device/x.hpp:100\n",
            "asked the driver for 8.00 GiB, and the GPU had no room. This is the GPU's memory",
            "not the GPU's",
        ),
        (
            "E cuda_driver.cc:1065] failed to alloc 8589934592 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n",
            "asked for 8.00 GiB of pinned host memory",
            "TensorFlow is out of GPU memory",
        ),
        (
            "  File \"/env/torch/utils/data/_utils/pin_memory.py\", line 57, in pin_memory\n    return data.pin_memory(device)\n           \
             ^^^^\ntorch.AcceleratorError: CUDA error: out of memory\n",
            "The driver could not pin host memory",
            "The driver itself had no memory left",
        ),
        (
            "[1.1] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=829\n\
             [1.2] memory: usage 67108864kB, limit 67108864kB, failcnt 88211\n\
             [1.3] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/kubepods.slice,task=pt_main_thread,pid=461754,uid=0\n\
             [1.4] Memory cgroup out of memory: Killed process 461754 (pt_main_thread) total-vm:124964936kB, anon-rss:66203112kB\n\
             [1.5] oom_reaper: reaped process 461754 (pt_main_thread), now anon-rss:0kB, file-rss:0kB\n",
            "The kernel ended process 461754 (pt_main_thread), which held 63.14 GiB, because its container or job (memory cgroup) used \
             64.00 GiB of the 64.00 GiB that it may.",
            "the host had no memory left",
        ),
    ] {
        let page = report(log);
        assert!(page.contains(words) && !page.contains(wrong), "{page}");
        assert!(!page.contains("different errors"), "{page}");
    }
}

#[test]
fn a_failure_after_which_the_program_continued_is_no_cause() {
    const FAILED: &str = "RuntimeError: CUDA out of memory.\n";
    for (log, continued) in [
        (
            "[TP4] KV cache pool is full. Retract requests. #retracted_reqs: 3\n[TP4] Decode batch, #running-req: 120\n",
            None,
        ),
        (
            "E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 51748.72 MiB on device 1: cudaMalloc failed: out of memory\n\
             E graph_reserve: failed to allocate compute buffers\n\
             W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n\
             I main: server is listening on http://127.0.0.1:8080\n",
            Some(3),
        ),
        (
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.10 GiB is free.\n\
             Decreasing batch size to: 32\nTrying batch size 32\nTraining completed.\n",
            Some(2),
        ),
    ] {
        let json = explained(find(log.as_bytes()));
        assert_eq!(
            json["messages"].as_array().map(Vec::len),
            Some(0),
            "{json:#}"
        );
        assert_eq!(
            json["unrecognised_lines"].as_array().map(Vec::len),
            Some(0),
            "{json:#}"
        );
        assert_eq!(
            json["recovered_lines"][0]["continued_line"].as_u64(),
            continued,
            "{json:#}"
        );
    }
    // The last of several failures counts, and so does a search that found no batch size.
    let json = explained(find(
        format!("{FAILED}Decreasing batch size to: 32\nepoch 1\n{FAILED}").as_bytes(),
    ));
    assert_eq!(json["messages"][0]["count"], 2, "{json:#}");
    let log = format!(
        "{FAILED}Decreasing batch size to: 1\nRuntimeError: No executable batch size found, reached zero.\n"
    );
    assert_eq!(
        explained(find(log.as_bytes()))["messages"][0]["cause"],
        "pytorch"
    );
}
