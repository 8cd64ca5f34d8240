"""PyTorch's side of `cargo xtask bench moe`: a layer of a mixture of experts, from the scores of its tokens on.

A request names how experts are run and a file with the scores (`server.py` says the rest): `grouped`, one grouped GEMM for all experts in
a CUDA graph; `padded`, a batched GEMM of as many rows for every expert as the one with most tokens has, in a CUDA graph that was made
for these very scores; `per-expert`, a GEMM for each expert with as many rows as it has, which the host has to know first. What is around
them is the same, and `torch.compile` where that is faster.

Argument: the GPU's number. With `check` instead, all give the same on the CPU.
"""

import server
import torch
import torch.nn.functional as F


class Layer:
    """Random operands."""

    def __init__(self, device, tokens, experts, chosen, hidden, inner, scores):
        def numbers(*shape):
            return ((torch.rand(shape, device=device) * 2 - 1) / shape[-1] ** 0.5).to(torch.bfloat16)

        self.experts, self.chosen = experts, chosen
        self.scores = scores.to(device)
        self.x = numbers(tokens, hidden)
        self.gate, self.up = numbers(experts, inner, hidden), numbers(experts, inner, hidden)
        self.down = numbers(experts, hidden, inner)
        # Of the expert with most tokens.
        _, ids = self.route()
        self.most = int(torch.bincount(ids.flatten(), minlength=experts).max())

    def route(self):
        return torch.topk(torch.softmax(self.scores, dim=1), self.chosen, dim=1)

    def sorted(self, ids):
        """Tokens in the order of their experts, where each of them went, and how many each expert has."""
        flat = ids.flatten()
        order = flat.argsort(stable=True)
        place = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
        counts = torch.zeros(self.experts, dtype=torch.int64, device=flat.device).scatter_add_(0, flat, torch.ones_like(flat))
        return self.x[order // self.chosen], place, counts

    def combined(self, results, place, weights):
        rows = results[place].view(*weights.shape, -1)
        return (rows.float() * weights.unsqueeze(-1)).sum(dim=1).to(results.dtype)

    def grouped(self):
        weights, ids = self.route()
        rows, place, counts = self.sorted(ids)
        ends = counts.cumsum(0).to(torch.int32)
        inner = F.silu(torch._grouped_mm(rows, self.gate.transpose(1, 2), offs=ends))
        inner = inner * torch._grouped_mm(rows, self.up.transpose(1, 2), offs=ends)
        return self.combined(torch._grouped_mm(inner, self.down.transpose(1, 2), offs=ends), place, weights)

    def padded(self):
        weights, ids = self.route()
        flat = ids.flatten()
        chosen = F.one_hot(flat, self.experts)
        place = flat * self.most + (chosen.cumsum(0) - chosen).gather(1, flat.unsqueeze(1)).squeeze(1)
        rows = self.x.new_zeros(self.experts * self.most, self.x.shape[1])
        rows[place] = self.x.repeat_interleave(self.chosen, dim=0)
        rows = rows.view(self.experts, self.most, -1)
        inner = F.silu(torch.bmm(rows, self.gate.transpose(1, 2))) * torch.bmm(rows, self.up.transpose(1, 2))
        results = torch.bmm(inner, self.down.transpose(1, 2))
        return self.combined(results.view(-1, self.x.shape[1]), place, weights)

    def per_expert(self):
        weights, ids = self.route()
        rows, place, counts = self.sorted(ids)
        results = []
        for expert, own in enumerate(rows.split(counts.tolist())):
            inner = F.silu(own @ self.gate[expert].t()) * (own @ self.up[expert].t())
            results.append(inner @ self.down[expert].t())
        return self.combined(torch.cat(results), place, weights)


class Eager:
    """What no graph can hold: the host has its part in it."""

    def __init__(self, run):
        self.replay = run


def prepare(request):
    how = request["how"]
    sizes = [request[name] for name in ("tokens", "experts", "chosen", "hidden", "inner")]
    scores = torch.from_file(request["scores"], size=sizes[0] * sizes[1], dtype=torch.float32).clone().view(sizes[0], sizes[1])
    layer = Layer("cuda", *sizes, scores)
    if how == "per-expert":
        graph = Eager(layer.per_expert)
        server.time(graph, 1, 3)
        return graph, 1, layer
    graph, kept = server.fastest(how, {"grouped": layer.grouped, "padded": layer.padded}[how], [()], True)
    return graph, 1, (kept, layer)


def check():
    torch.manual_seed(1)
    layer = Layer("cpu", 64, 8, 2, 32, 16, torch.randn(64, 8))
    expected = layer.per_expert()
    for run in (layer.grouped, layer.padded):
        torch.testing.assert_close(run(), expected, rtol=2e-2, atol=2e-2)
        print(run.__name__)


server.main(prepare, check)
