"""Describes PyTorch tensors to the runtime, without a copy and without DLPack's cost."""
from __future__ import annotations

import torch

DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


def lie_of(query, key, value) -> tuple:
    """The layout of the tensors, without their addresses."""
    return (query.shape, query.stride(), query.dtype, query.is_cpu,
            key.shape, key.stride(), key.dtype, key.is_cpu,
            value.shape, value.stride(), value.dtype, value.is_cpu)


def device_of(tensor: torch.Tensor) -> str:
    """fasa's name of a device: "cpu", "cuda:1"; PyTorch's name for devices that fasa does not
    support."""
    device = tensor.device
    return device.type if device.type == "cpu" else str(device)


def stream_of(tensor: torch.Tensor) -> int:
    """PyTorch's current stream on the tensor's device, for the runtime; -1: none."""
    if tensor.device.type != "cuda":
        return -1
    return torch.cuda.current_stream(tensor.device).cuda_stream


def parts(tensor: torch.Tensor) -> tuple:
    """[tokens, heads, dim] or [tokens, heads, 1, dim], as Runtime._step_layer takes it. The caller
    keeps the tensor alive."""
    shape, strides = tensor.shape, tensor.stride()
    return (tensor.data_ptr(), DTYPES[tensor.dtype], shape[0], shape[1], shape[-1], strides[0],
            strides[1])


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """[rows, heads, tokens, dim] -> [rows x tokens, heads, dim], without a copy where one step of
    strides allows it. One token is returned as it is: taking a view costs more than all the
    rest."""
    rows, heads, tokens, dim = tensor.shape
    strides = tensor.stride()
    if strides[3] != 1 and dim > 1:
        tensor = tensor.contiguous()
        strides = tensor.stride()
    if tokens == 1:
        return tensor
    if rows == 1:
        return tensor[0].transpose(0, 1)
    if strides[0] == tokens * strides[2]:
        return tensor.as_strided((rows * tokens, heads, dim), (strides[2], strides[1], 1))
    return tensor.transpose(1, 2).reshape(rows * tokens, heads, dim)
