"""PyTorch's side of `cargo xtask bench memory`.

A request names an operation, its rows and columns, and how many sets of operands take turns (`server.py` says the rest). Times are of one
run of the operation, by CUDA events around a replay of a CUDA graph in which every set has its turn. Where PyTorch has no kernel of
its own for an operation, what `torch.compile` makes of it is tried too, and the faster counts. Indices have 64 bits here, as PyTorch asks.

Argument: the GPU's number. With `check` instead, every operation runs once on the CPU.
"""

import server
import torch
import torch.nn.functional as F

HEADS = 32
CHOSEN = 8
COMBINED = 2
EPSILON = 1e-5


def copy(x, y):
    y.copy_(x)


def rotate(x, positions, cos, sin):
    heads = x.view(x.shape[0], HEADS, -1)
    cos, sin = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    low, high = heads.float().chunk(2, dim=-1)
    turned = torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)
    return turned.to(x.dtype).view_as(x)


def add_rmsnorm(x, residual, weight):
    total = x + residual
    return total, F.rms_norm(total, weight.shape, weight, EPSILON)


def quantise(x):
    scale = x.float().abs().amax(dim=1, keepdim=True) / 127
    return torch.round(x.float() / scale).to(torch.int8), scale


def combine(ids, weights, x):
    return (x[ids].float() * weights.unsqueeze(-1)).sum(dim=1).to(x.dtype)


class Operands:
    """Random operands of one set, on a device."""

    def __init__(self, device, rows, columns):
        self.device, self.rows, self.columns = device, rows, columns

    def numbers(self, *shape, dtype=torch.bfloat16):
        return (torch.rand(shape, device=self.device) * 2 - 1).to(dtype)

    def matrix(self, rows=None, dtype=torch.bfloat16):
        return self.numbers(rows or self.rows, self.columns, dtype=dtype)

    def vector(self):
        return self.numbers(self.columns)

    def permutation(self, count):
        return torch.randperm(count, device=self.device)

    def columns_of_rows(self):
        return torch.stack([self.permutation(self.columns) for _ in range(min(self.rows, 64))]).repeat(-(-self.rows // 64), 1)[: self.rows]


# The operation, its operands, and whether PyTorch takes several kernels for it.
OPERATIONS = {
    "copy": (copy, lambda o: (o.matrix(), o.matrix()), False),
    "add": (torch.add, lambda o: (o.matrix(), o.matrix()), False),
    "gelu": (lambda x: F.gelu(x, approximate="tanh"), lambda o: (o.matrix(),), False),
    "silu_mul": (lambda gate, up: F.silu(gate) * up, lambda o: (o.matrix(), o.matrix()), True),
    "softmax": (lambda x: torch.softmax(x, dim=1), lambda o: (o.matrix(),), False),
    "rmsnorm": (lambda x, w: F.rms_norm(x, w.shape, w, EPSILON), lambda o: (o.matrix(), o.vector()), True),
    "add_rmsnorm": (add_rmsnorm, lambda o: (o.matrix(), o.matrix(), o.vector()), True),
    "layernorm": (lambda x, w, b: F.layer_norm(x, w.shape, w, b, EPSILON), lambda o: (o.matrix(), o.vector(), o.vector()), False),
    "sum_rows": (lambda x: x.sum(dim=1, dtype=torch.float32), lambda o: (o.matrix(),), False),
    "sum_cols": (lambda x: x.sum(dim=0, dtype=torch.float32), lambda o: (o.matrix(),), False),
    "transpose": (lambda x: x.t().contiguous(), lambda o: (o.matrix(),), False),
    "to_f32": (lambda x: x.float(), lambda o: (o.matrix(),), False),
    "to_bf16": (lambda x: x.to(torch.bfloat16), lambda o: (o.matrix(dtype=torch.float32),), False),
    "rope": (
        rotate,
        lambda o: (
            o.matrix(),
            o.permutation(o.rows),
            o.numbers(o.rows, o.columns // HEADS // 2, dtype=torch.float32),
            o.numbers(o.rows, o.columns // HEADS // 2, dtype=torch.float32),
        ),
        True,
    ),
    "embedding": (F.embedding, lambda o: (o.permutation(o.rows), o.matrix()), False),
    "gather": (lambda x, ids: torch.gather(x, 1, ids), lambda o: (o.matrix(), o.columns_of_rows()), False),
    "gather_sum": (
        combine,
        lambda o: (
            o.permutation(COMBINED * o.rows).view(o.rows, COMBINED),
            o.numbers(o.rows, COMBINED, dtype=torch.float32),
            o.matrix(rows=COMBINED * o.rows),
        ),
        True,
    ),
    "scatter": (lambda ids, x, y: y.scatter_(1, ids, x), lambda o: (o.columns_of_rows(), o.matrix(), o.matrix()), False),
    "index_copy": (lambda ids, x, y: y.index_copy_(0, ids, x), lambda o: (o.permutation(o.rows), o.matrix(), o.matrix()), False),
    "quantise": (quantise, lambda o: (o.matrix(),), True),
    "dequantise": (
        lambda q, scale: (q.float() * scale).to(torch.bfloat16),
        lambda o: ((o.matrix(dtype=torch.float32) * 127).to(torch.int8), o.numbers(o.rows, 1, dtype=torch.float32)),
        True,
    ),
    "argmax": (lambda x: x.argmax(dim=1), lambda o: (o.matrix(),), False),
    "top_k": (lambda x: torch.topk(x, CHOSEN, dim=1), lambda o: (o.matrix(),), False),
}


def prepare(request):
    run, operands, several = OPERATIONS[request["operation"]]
    sets = [operands(Operands("cuda", request["rows"], request["columns"])) for _ in range(request["sets"])]
    graph, kept = server.fastest(request["operation"], run, sets, several)
    return graph, len(sets), (kept, sets)


def check():
    for name, (run, operands, _) in OPERATIONS.items():
        run(*operands(Operands("cpu", 64, 4096)))
        print(name)


server.main(prepare, check)
