# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp logs when it loads a model; the logs are real but for their cuts."""

from __future__ import annotations

# llama.cpp 0.7.0 (11669) of Debian, our model, no accelerator and no backend but the processor's.
CPU_LOG = """\
0.00.042.688 I load_tensors: loading model tensors, this can take a while... (load_mode = mmap)
0.00.043.310 I load_tensors:   CPU_Mapped model buffer size =     1.97 MiB
0.00.043.614 I llama_context:        CPU  output buffer size =     0.01 MiB
0.00.043.635 I llama_kv_cache:        CPU KV buffer size =     0.50 MiB
0.00.044.927 I sched_reserve:        CPU compute buffer size =     4.02 MiB
"""
# The same with libggml0-backend-rpc, and no node to ask: the second kind of line is not true.
CPU_LOG_WITH_RPC = """\
0.00.027.813 I load_tensors: offloading output layer to GPU
0.00.027.821 I load_tensors: offloading 1 repeating layers to GPU
0.00.027.826 I load_tensors: offloaded 3/3 layers to GPU
0.00.027.832 I load_tensors:   CPU_Mapped model buffer size =     1.97 MiB
"""
RPC_LOG = """\
0.00.036.351 I llama_prepare_model_devices: using device RPC0 (10.77.0.12:50052) (unknown id) - \
24105 MiB free
0.00.037.759 I load_tensors: offloading output layer to GPU
0.00.037.770 I load_tensors: offloading 1 repeating layers to GPU
0.00.037.770 I load_tensors: offloaded 3/3 layers to GPU
0.00.037.773 I load_tensors:   CPU_Mapped model buffer size =     0.17 MiB
0.00.037.773 I load_tensors: RPC0[10.77.0.12:50052] model buffer size =     1.80 MiB
0.00.041.263 I llama_kv_cache: RPC0[10.77.0.12:50052] KV buffer size =     0.50 MiB
"""
# The device is there and gets nothing (-ngl 0).
RPC_LOG_UNUSED = """\
0.00.041.594 I llama_prepare_model_devices: using device RPC0 (10.77.0.12:50052) (unknown id) - \
24105 MiB free
0.00.043.158 I load_tensors: offloading 0 repeating layers to GPU
0.00.043.168 I load_tensors: offloaded 0/3 layers to GPU
0.00.043.175 I load_tensors:   CPU_Mapped model buffer size =     1.97 MiB
"""
# gpustack/gpustack#1547
ROCM_LOG = """\
load_tensors: loading model tensors, this can take a while... (mmap = false)
load_tensors: offloading 24 repeating layers to GPU
load_tensors: offloading output layer to GPU
load_tensors: offloaded 25/25 layers to GPU
load_tensors:        ROCm0 model buffer size =   579.23 MiB
load_tensors:    ROCm_Host model buffer size =   520.30 MiB
"""
# iacopPBK/llama.cpp-gfx906#17
ROCM_LOG_OF_TWO = """\
load_tensors: offloaded 63/63 layers to GPU
load_tensors:          CPU model buffer size =   251.85 MiB
load_tensors:        ROCm0 model buffer size = 27022.95 MiB
load_tensors:        ROCm1 model buffer size = 26590.20 MiB
"""
# ggml-org/llama.cpp#16095
VULKAN_LOG = """\
load_tensors: offloading 48 repeating layers to GPU
load_tensors: offloading output layer to GPU
load_tensors: offloaded 49/49 layers to GPU
load_tensors:   CPU_Mapped model buffer size = 25265.84 MiB
load_tensors:      Vulkan0 model buffer size = 27246.99 MiB
"""
# ggml-org/llama.cpp#11367 says 0/36 with a device that it uses; the buffer is as without it.
VULKAN_LOG_UNUSED = """\
llama_model_load_from_file_impl: using device Vulkan0 (NVIDIA GeForce RTX 2060) - 5955 MiB free
load_tensors: offloading 0 repeating layers to GPU
load_tensors: offloaded 0/36 layers to GPU
load_tensors:   CPU_Mapped model buffer size =  3891.24 MiB
"""
# The form of ggml-org/llama.cpp's src/llama-model.cpp, some of the layers on the card.
CUDA_LOG = """\
llama_prepare_model_devices: using device CUDA0 (NVIDIA GeForce RTX 3060) - 11929 MiB free
load_tensors: offloading output layer to GPU
load_tensors: offloading 3 repeating layers to GPU
load_tensors: offloaded 4/41 layers to GPU
load_tensors: CPU_Mapped model buffer size = 12398.48 MiB
load_tensors: CUDA0 model buffer size = 1101.95 MiB
"""
LLVMPIPE_LOG = (
    f"llama_prepare_model_devices: using device Vulkan0 (llvmpipe (LLVM 21))\n{VULKAN_LOG}"
)

# A log, what computes here, and the nodes that hold layers.
PLACED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (CPU_LOG, "cpu", ()),
    (CPU_LOG_WITH_RPC, "cpu", ()),
    (RPC_LOG, "cpu", ("10.77.0.12:50052",)),
    (RPC_LOG.replace("RPC0[", "RPC["), "cpu", ("10.77.0.12:50052",)),
    (RPC_LOG.replace("1.80 MiB", "0.00 MiB"), "cpu", ()),
    (RPC_LOG_UNUSED, "cpu", ()),
    (ROCM_LOG, "rocm", ()),
    (ROCM_LOG_OF_TWO, "rocm", ()),
    (VULKAN_LOG, "vulkan", ()),
    (VULKAN_LOG_UNUSED, "cpu", ()),
    (CUDA_LOG, "cuda", ()),
    (LLVMPIPE_LOG, "cpu", ()),
    (VULKAN_LOG.replace("27246.99", "0.00"), "cpu", ()),
    (ROCM_LOG.replace("ROCm0 model", "ROCm0_Split model"), "rocm", ()),
    (ROCM_LOG_OF_TWO.replace("ROCm1", "Vulkan1"), "rocm", ()),
    (ROCM_LOG + CPU_LOG, "cpu", ()),  # the last load counts
)
# The server of a log level that does not say it.
QUIET_LOG = """\
I srv  llama_server: model loaded
I srv  llama_server: listening on http://[::1]:8080
"""
