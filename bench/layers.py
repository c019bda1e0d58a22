"""The peers: attention and the whole causal layer in PyTorch and in onnxruntime.

Each function returns a function without arguments that runs the work once and returns the result.
"""

import numpy as np
import onnxruntime
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from torch import nn


class BookLayer(nn.Module):
    """MultiHeadAttention as in chapter 3 of "Build a Large Language Model (From Scratch)", in our
    own words: three projections without bias, the future hidden by a buffer, out_proj."""

    def __init__(self, width, context_length, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_query = nn.Linear(width, width, bias=False)
        self.W_key = nn.Linear(width, width, bias=False)
        self.W_value = nn.Linear(width, width, bias=False)
        self.out_proj = nn.Linear(width, width)
        future = torch.triu(torch.ones(context_length, context_length), diagonal=1)
        self.register_buffer("mask", future)

    def attend(self, q, k, v):
        return book_attention(q, k, v, self.mask)

    def forward(self, x):
        batch, tokens, width = x.shape

        def heads(t):
            return t.view(batch, tokens, self.num_heads, -1).transpose(1, 2)

        context = self.attend(heads(self.W_query(x)), heads(self.W_key(x)), heads(self.W_value(x)))
        return self.out_proj(context.transpose(1, 2).contiguous().view(batch, tokens, width))


class SdpaLayer(BookLayer):
    """The same layer on PyTorch's fused attention. It needs no buffer."""

    def __init__(self, width, num_heads):
        super().__init__(width, 0, num_heads)

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def book_attention(q, k, v, mask):
    """The book's steps: every score is stored. q, k, v: [batch, num_heads, tokens, head_dim]"""
    tokens = q.shape[-2]
    scores = q @ k.transpose(2, 3)
    scores.masked_fill_(mask.bool()[:tokens, :tokens], -torch.inf)
    return torch.softmax(scores / k.shape[-1] ** 0.5, dim=-1) @ v


def make_parameters(width, rng):
    """Parameters of one layer as torch.nn.Linear would draw them, under the book's names."""
    bound = width ** -0.5
    names = ("W_query.weight", "W_key.weight", "W_value.weight", "out_proj.weight")
    parameters = {name: rng.uniform(-bound, bound, (width, width)).astype(np.float32)
                  for name in names}
    parameters["out_proj.bias"] = rng.uniform(-bound, bound, width).astype(np.float32)
    return parameters


def load_parameters(layer, parameters):
    tensors = {name: torch.from_numpy(array) for name, array in parameters.items()}
    layer.load_state_dict(tensors, strict=False)  # the mask is no parameter


def torch_layer(layer, parameters, x):
    load_parameters(layer, parameters)
    layer.eval()
    x = torch.from_numpy(x)
    return lambda: layer(x)


def torch_multihead(parameters, x, num_heads):
    """nn.MultiheadAttention always has either both biases or none: those of q, k and v are 0."""
    width = x.shape[-1]
    layer = nn.MultiheadAttention(width, num_heads, batch_first=True).eval()
    joined = [parameters[f"W_{name}.weight"] for name in ("query", "key", "value")]
    layer.load_state_dict({
        "in_proj_weight": torch.from_numpy(np.concatenate(joined)),
        "in_proj_bias": torch.zeros(3 * width),
        "out_proj.weight": torch.from_numpy(parameters["out_proj.weight"]),
        "out_proj.bias": torch.from_numpy(parameters["out_proj.bias"])})
    future = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), diagonal=1)
    x = torch.from_numpy(x)
    return lambda: layer(x, x, x, attn_mask=future, is_causal=True, need_weights=False)[0]


def sdpa(q, k, v, **arguments):
    q, k, v = map(torch.from_numpy, (q, k, v))
    return lambda: F.scaled_dot_product_attention(q, k, v, **arguments)


def leaves(arrays):
    return [torch.from_numpy(array).requires_grad_() for array in arrays]


def sdpa_backward(q, k, v, dcontext, **arguments):
    """The graph is recorded once and kept: only the way back is timed."""
    inputs = leaves((q, k, v))
    context = F.scaled_dot_product_attention(*inputs, **arguments)
    dcontext = torch.from_numpy(dcontext)
    return lambda: torch.autograd.grad(context, inputs, dcontext, retain_graph=True)


def torch_layer_backward(layer, parameters, x, dy):
    """Forward and back: dx and the gradients of the parameters, in their order."""
    load_parameters(layer, parameters)
    (x,) = leaves([x])
    dy = torch.from_numpy(dy)
    wanted = [x, *(layer.get_parameter(name) for name in parameters)]
    return lambda: torch.autograd.grad(layer(x), wanted, dy)


def onnx_call(nodes, inputs, constants, shape, threads):
    """A session over a graph from `inputs` (name -> array) to "y", bound to their memory."""
    def info(name, dims):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)

    graph = helper.make_graph(
        nodes, "graph", [info(name, array.shape) for name, array in inputs.items()],
        [info("y", shape)], [numpy_helper.from_array(a, name) for name, a in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    y = np.full(shape, np.nan, np.float32)
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, shape, y.ctypes.data)

    def call():
        session.run_with_iobinding(binding)
        return y

    call.keeps_alive = inputs
    return call


def onnx_attention(q, k, v, causal, threads):
    """The standard operator Attention: 4-dimensional, the very arrays that the others read."""
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=int(causal))
    return onnx_call([node], {"q": q, "k": k, "v": v}, {}, q.shape[:-1] + v.shape[-1:], threads)


def onnx_layer(parameters, x, num_heads, threads):
    constants = {name: np.ascontiguousarray(array.T) for name, array in parameters.items()}
    nodes = [helper.make_node("MatMul", ["x", f"W_{name}.weight"], [name])
             for name in ("query", "key", "value")]
    nodes += [helper.make_node("Attention", ["query", "key", "value"], ["context"], is_causal=1,
                               q_num_heads=num_heads, kv_num_heads=num_heads),
              helper.make_node("MatMul", ["context", "out_proj.weight"], ["projected"]),
              helper.make_node("Add", ["projected", "out_proj.bias"], ["y"])]
    return onnx_call(nodes, {"x": x}, constants, x.shape, threads)
